"""Range caches: a stub that the proofs of range and entry caches share."""

from __future__ import annotations

from typing import Any

from invariants.proofs.symbolic import Rec, Seq
from model.range_cache import OrphanedCopies


def add_orphaned_copies(copies: Any, count: Any, orphaned_copies: Seq) -> Seq:
    """Stub: appends a group of copies. The model's function also sorts the groups, and adds no empty group."""
    return orphaned_copies.appended(Rec(OrphanedCopies, {"copies": copies, "expected_reads": count}))
