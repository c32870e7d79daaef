"""The buffered writer of a transaction log: worked examples, bad input, and what the shipped rules do."""

from __future__ import annotations

from fuzz.stateful import stateful_test
from fuzz.subject import find_subject

SUBJECT = find_subject("txn_writer")

TestTxnWriter = stateful_test(SUBJECT)
