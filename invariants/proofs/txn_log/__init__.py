"""Claims about the transaction log of a coordinator, for any number of records and transactions."""

from __future__ import annotations

from invariants.proofs.claim import claims_in
from invariants.proofs.txn_log import deletions, ids, record_positions, replays

claims = claims_in(deletions, record_positions, replays, ids)
