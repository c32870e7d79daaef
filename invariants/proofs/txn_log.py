"""What solvers have shown about the transaction log of a coordinator, for any number of records and transactions."""

from __future__ import annotations

from invariants.proofs import txn_log_deletions as deletions
from invariants.proofs import txn_log_ids as ids
from invariants.proofs import txn_log_places as places
from invariants.proofs import txn_log_replays as replays

claims = (*deletions.claims, *places.claims, *replays.claims, *ids.claims)
