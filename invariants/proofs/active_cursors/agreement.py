"""Active cursors, checked by CrossHair: moves in the linked list; model and implementation agree."""

from __future__ import annotations

from invariants.proofs.active_cursors import contracts
from invariants.proofs.claim import Answer, Control, claim, explored


@claim(
    "a-move-in-the-list-keeps-its-counts",
    "crosshair",
    "In the list with every rule mended, flushed, of three cursors at any positions: when any of them moves anywhere, "
    "the list is in order again, and the count of each is the number of those at its position or before it.",
    Control(
        "the shipped tail shortcut: no count changes when the last of the list moves within its place",
        "model.active_cursors.linked_list",
        "return rules.tail_keeps_counts and place == len(bench.line) - 1",
        "return place == len(bench.line) - 1",
    ),
)
def move_keeps_counts() -> Answer:
    """Source: PIP-430's list (ActiveManagedCursorContainerImpl), which forgets who stands in front of its last."""
    return explored(contracts.a_move_keeps_counts, seconds=40.0)


@claim(
    "moves-in-the-shipped-list-agree",
    "crosshair",
    "Of four cursors of the shipped list, of which two stand at one position and two anywhere from there on, one of "
    "these moves anywhere: model and implementation then give the same ranks and the same slowest position.",
    Control(
        "the implementation has no tail shortcut",
        "impl.active_cursors.linked_list",
        "if node is self._tail and self.rules.tail_keeps_counts:",
        "if False and self.rules.tail_keeps_counts:",
    ),
)
def shipped_moves_agree() -> Answer:
    """Equivalence of the two lists, the shipped tail shortcut included."""
    return explored(contracts.shipped_moves_agree, seconds=40.0)


@claim(
    "ranks-agree",
    "crosshair",
    "Of three cursors of one ledger, in order, at any long entry ids, one moves anywhere: the implementation, which "
    "keeps all positions sorted, gives the ranks and the slowest position that the definition gives.",
    Control(
        "the implementation counts those before the cursor only",
        "impl.active_cursors.container",
        "return before + bisect_right(self._blocks[at], key) if at < len(self._ends) else before",
        "return before + bisect_left(self._blocks[at], key) if at < len(self._ends) else before",
    ),
)
def ranks_agree() -> Answer:
    """Equivalence of the implementation's order with the definition."""
    return explored(contracts.ranks_agree, seconds=40.0)


claims = (move_keeps_counts, shipped_moves_agree, ranks_agree)
