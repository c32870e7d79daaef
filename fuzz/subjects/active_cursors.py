"""How to drive the container of active cursors."""

from __future__ import annotations

from fuzz.subject import Subject
from impl.active_cursors import ActiveCursors
from invariants import active_cursors as invariants
from model import cursor_list
from model.active_cursors import Config, State, active_cursors
from model.positions import Position

#: neighbours and ties in a ledger, its end and the next one's begin, before the first entry of each, before all ledgers
POSITIONS = (
    Position(1, 3),
    Position(1, 2),
    Position(1, 1),
    Position(1, 4),
    Position(1, 0),
    Position(1, 9),
    Position(2, 0),
    Position(2, -1),
    Position(1, -1),
    Position(2, 2),
    Position(-1, -1),
)
#: an entry id that does not fit the broker's 64 bits, and is an integer like any other here
WIDE = Position(1, 2**63)


def movers(cfg: Config, s: State) -> tuple[int, ...]:
    """Every name; half of the time the slowest cursor's, as of a consumer that catches up."""
    names = tuple(range(cfg.cursors))
    slowest, at = None, WIDE
    for c in s.cursors:
        if c.position is not None and c.position < at:
            slowest, at = c.cursor, c.position
    return names if slowest is None else names + (slowest,) * len(names)


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """How many cursors, tied or not, at one position or several; what waits; what is left of cursors that are gone."""
    positions = [c.position for c in s.cursors if c.position is not None]
    places = set(positions)
    tail = positions.count(max(positions)) if positions else 0
    waiting = garbage = 0
    if s.nodes is not None:
        waiting = len([n for n in s.nodes.linked + s.nodes.others if n.queued]) + 4 * len(s.nodes.removals)
        garbage = cursor_list.garbage(s.nodes)
    return (
        len(s.cursors),
        len(positions) - len(s.cursors) > -2,
        len(places),
        tail if tail < 3 else 3,
        s.now_ms - s.last_removal_ms < cfg.grace_ms,
        s.durables > 0,
        waiting,
        garbage if garbage < 3 else 3,
        len(s.items) - len(positions) if s.items else 0,
    )


subject = Subject(
    active_cursors,
    ActiveCursors,
    invariants,
    domains={
        "cursor": tuple(range(12)),
        "cursor_updated.cursor": movers,
        "position": (*POSITIONS, None),
        "add_cursor.position": (*POSITIONS, None, WIDE, *POSITIONS),
        "durable": (True, False),
        "advance.millis": (1, 9, 10, 11),
    },
    settings={
        "cursors": (8, 6, 12, 4),
        "grace_ms": (10, 1, 0, -1, 20),
        "removals_before_cleanup": (2, 1, 3),
    },
    weights={
        "add_cursor": 4,
        "update_cursor": 8,
        "cursor_updated": 2,
        "remove_cursor": 1.5,
        "remove_while_iterating": 0.1,
        "get_cursor": 0.7,
        "number_at_same_position_or_before": 6,
        "slowest_position": 1.5,
        "size": 0.5,
        "should_cache_added_entries": 0.7,
        "advance": 0.7,
    },
    swarms={
        "crowd": {"remove_cursor": 0.1, "update_cursor": 2},
        "sparing": {
            "add_cursor": 1.5,
            "remove_cursor": 2,
            "update_cursor": 0.05,
            "slowest_position": 2.7,
            "remove_while_iterating": 0,
            "get_cursor": 0,
            "number_at_same_position_or_before": 0.05,
            "size": 0,
            "should_cache_added_entries": 0,
            "advance": 0,
        },
        "leavers": {"remove_cursor": 5, "advance": 6, "should_cache_added_entries": 5},
        "silence": {"number_at_same_position_or_before": 0.1, "slowest_position": 0.1, "cursor_updated": 0.1},
        "asked": {"number_at_same_position_or_before": 4, "slowest_position": 2},
    },
    abstract=kind_of_state,
    steps=128,
)
