"""Contracts that CrossHair checks about active cursors: the model's linked list, and model against implementation.

Each contract is a function of integers that returns whether a statement holds. `pre:` lines restrict the arguments.
"""

from __future__ import annotations

from itertools import pairwise

from impl.active_cursors import ActiveCursors
from invariants.proofs.claim import Control, contract
from model.active_cursors import linked_list
from model.active_cursors import machine as active_cursors
from model.active_cursors.linked_list import CursorList, Flush, Node
from model.active_cursors.machine import Config
from model.positions import Position

REPAIRED = active_cursors.repaired_list.config


def list_at(entries: tuple[int, ...]) -> CursorList:
    """Returns a rebuilt list of cursors at these entries of ledger 1."""
    nodes = [Node(i, i + 1, True, None, Position(1, entry), False, 0) for i, entry in enumerate(entries)]
    return linked_list.rebuilt(REPAIRED, CursorList(unlinked=tuple(nodes)))


@contract(
    "linked-list-move-keeps-counts",
    "In a rebuilt linked list of three cursors at any entries of one ledger, under the profile repaired-list: after "
    "any move of one of them within the ledger, the list is sorted, and the count of each cursor is the number of "
    "cursors at its position or before.",
    Control(
        "the shipped tail shortcut: a tail that moves in place changes no counter",
        "model.active_cursors.linked_list",
        "if rules.tail_keeps_counts and index == len(flush.linked) - 1:",
        "if index == len(flush.linked) - 1:",
    ),
    seconds=40.0,
)
def move_keeps_counts(first: int, second: int, third: int, index: int, to: int) -> bool:
    """ActiveManagedCursorContainerImpl.moveNodeToNewPosition (PIP-430).

    pre: first <= second <= third
    pre: 0 <= index <= 2
    post: _
    """
    s = list_at((first, second, third))
    flush = Flush(s)
    linked_list.apply_update(REPAIRED, flush, s.linked[index]._replace(pending=Position(1, to)))
    after = flush.list()
    found = [node.position for node in after.linked]
    in_order = all(one is not None and other is not None and one <= other for one, other in pairwise(found))
    moved = [first, second, third]
    moved[index] = to
    for node in after.linked:
        if node.position != Position(1, moved[node.cursor]):
            return False
        count = linked_list.number_at_same_position_or_before(after, node.object)
        if count != len([e for e in moved if e <= moved[node.cursor]]):
            return False
    return in_order and len(found) == 3


@contract(
    "counts-agree",
    "After any move of one of three cursors within one ledger, with entry ids of 64 bits: the implementation gives the "
    "counts and the slowest position of the definition.",
    Control(
        "the implementation leaves out cursors at the same position",
        "impl.active_cursors",
        "return before + bisect_right(self._blocks[at], key) if at < len(self._last_keys) else before",
        "return before + bisect_left(self._blocks[at], key) if at < len(self._last_keys) else before",
    ),
    seconds=40.0,
)
def counts_agree(first: int, second: int, third: int, to: int, cursor: int) -> bool:
    """Equivalence of the implementation's sorted order with the definition.

    pre: -2**63 <= first <= second <= third < 2**63
    pre: -2**63 <= to < 2**63
    pre: 0 <= cursor <= 2
    post: _
    """
    cfg = Config()
    implementation, s = ActiveCursors(cfg), active_cursors.start(cfg)
    for name, entry in enumerate((first, second, third)):
        implementation.add_cursor(name, Position(1, entry), False)
        s, _ = active_cursors.add_cursor(cfg, s, name, Position(1, entry), False)
    implementation.update_cursor(cursor, Position(1, to))
    s, _ = active_cursors.update_cursor(cfg, s, cursor, Position(1, to))
    counts = [active_cursors.rank_of(s, n) == implementation.number_at_same_position_or_before(n) for n in range(3)]
    return all(counts) and implementation.slowest_position() == active_cursors.slowest_of(s)
