"""Active cursors, checked by CrossHair: moves in the linked list; model and implementation agree."""

from __future__ import annotations

from invariants.proofs.active_cursors import contracts
from invariants.proofs.claim import Answer, Control, claim, explored


@claim(
    "linked-list-move-keeps-counts",
    "crosshair",
    "In a flushed linked list of three cursors at any positions, with every rule repaired: after any move the list is "
    "sorted, and the count of each cursor is the number of cursors at its position or before.",
    Control(
        "the shipped tail shortcut: a tail that moves in place changes no counter",
        "model.active_cursors.linked_list",
        "if rules.tail_keeps_counts and index == len(flush.linked) - 1:",
        "if index == len(flush.linked) - 1:",
    ),
)
def move_keeps_counts() -> Answer:
    """Source: ActiveManagedCursorContainerImpl.moveNodeToNewPosition (PIP-430)."""
    return explored(contracts.move_keeps_counts, seconds=40.0)


@claim(
    "counts-agree",
    "crosshair",
    "After any move of one of three cursors of one ledger at any long entry ids, the implementation gives the counts "
    "and the slowest position of the definition.",
    Control(
        "the implementation counts only the cursors before the cursor",
        "impl.active_cursors",
        "return before + bisect_right(self._blocks[at], key) if at < len(self._last_keys) else before",
        "return before + bisect_left(self._blocks[at], key) if at < len(self._last_keys) else before",
    ),
)
def counts_agree() -> Answer:
    """Equivalence of the implementation's sorted order with the definition."""
    return explored(contracts.counts_agree, seconds=40.0)


claims = (move_keeps_counts, counts_agree)
