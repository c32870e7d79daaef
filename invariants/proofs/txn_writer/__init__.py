"""Claims about the buffered log writer, for any number of records."""

from __future__ import annotations

from invariants.proofs.txn_writer import batching

claims = batching.claims
