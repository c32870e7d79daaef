"""What CrossHair is asked about active cursors: the shipped list of the model, and implementations beside it.

Each contract is a function of plain numbers that says whether something holds; CrossHair looks for arguments for
which it does not. `pre:` lines say of which arguments, `post: _` that the result must be true.
"""

from __future__ import annotations

from itertools import pairwise

from impl.active_cursors.container import ActiveCursors
from model.active_cursors import linked_list as cursor_list
from model.active_cursors import machine as active_cursors
from model.active_cursors.linked_list import Bench, CursorList, Node
from model.active_cursors.machine import Config
from model.positions import Position

#: The list with every rule mended, and as it is shipped.
MENDED, SHIPPED = active_cursors.mended_list.config, active_cursors.recorded.config


def list_at(entries: tuple[int, ...]) -> CursorList:
    """A flushed list of cursors that stand there."""
    nodes = [Node(i, i + 1, True, None, Position(1, entry), True, False, 0) for i, entry in enumerate(entries)]
    return cursor_list.built_anew(MENDED, CursorList(others=tuple(nodes)))


def a_move_keeps_counts(first: int, second: int, third: int, place: int, to: int) -> bool:
    """One of three cursors of a list moves.

    pre: first <= second <= third
    pre: 0 <= place <= 2
    post: _
    """
    kept = list_at((first, second, third))
    bench = Bench(kept)
    cursor_list.settle(MENDED, bench, cursor_list.queue(kept.linked[place], Position(1, to)))
    after = bench.list()
    stand = [node.position for node in after.linked]
    in_order = all(one is not None and other is not None and one <= other for one, other in pairwise(stand))
    moved = [first, second, third]
    moved[place] = to
    for node in after.linked:
        if node.position != Position(1, moved[node.cursor]):
            return False
        if cursor_list.rank(after, node.object) != len([e for e in moved if e <= moved[node.cursor]]):
            return False
    return in_order and len(stand) == 3


def shipped_moves_agree(first: int, second: int, place: int, to: int) -> bool:
    """Of four cursors of the shipped list, of which two stand at 0, one of the others moves; and all are asked.

    pre: 0 <= first <= second
    pre: 2 <= place <= 3
    post: _
    """
    twin, s = ActiveCursors(SHIPPED), active_cursors.start(SHIPPED)
    for name, entry in enumerate((0, 0, first, second)):
        twin.add_cursor(name, Position(1, entry), False)
        s, _ = active_cursors.add_cursor(SHIPPED, s, name, Position(1, entry), False)
    twin.slowest_position()
    s, _ = active_cursors.slowest_position(SHIPPED, s)
    twin.update_cursor(place, Position(1, to))
    s, _ = active_cursors.update_cursor(SHIPPED, s, place, Position(1, to))
    for name in range(4):
        s, rank = active_cursors.number_at_same_position_or_before(SHIPPED, s, name)
        if twin.number_at_same_position_or_before(name) != rank:
            return False
    return bool(twin.slowest_position() == active_cursors.slowest_position(SHIPPED, s)[1])


def ranks_agree(first: int, second: int, third: int, to: int, place: int) -> bool:
    """One of three cursors moves, in the definition's containers; entry ids are longs.

    pre: -2**63 <= first <= second <= third < 2**63
    pre: -2**63 <= to < 2**63
    pre: 0 <= place <= 2
    post: _
    """
    cfg = Config()
    twin, s = ActiveCursors(cfg), active_cursors.start(cfg)
    for name, entry in enumerate((first, second, third)):
        twin.add_cursor(name, Position(1, entry), False)
        s, _ = active_cursors.add_cursor(cfg, s, name, Position(1, entry), False)
    twin.update_cursor(place, Position(1, to))
    s, _ = active_cursors.update_cursor(cfg, s, place, Position(1, to))
    ranks = [active_cursors.rank_of(s, name) == twin.number_at_same_position_or_before(name) for name in range(3)]
    return all(ranks) and twin.slowest_position() == active_cursors.slowest_of(s)
