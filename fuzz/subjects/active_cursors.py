"""How to drive the container of active cursors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.active_cursors import ActiveCursors
from invariants import active_cursors as invariants
from model.active_cursors.heap import Item
from model.active_cursors.linked_list import CursorList, Node
from model.active_cursors.machine import Config, Cursor, State, active_cursors
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


def waits(cfg: Config, s: State) -> tuple[int, ...]:
    """A little, and to around the end of the grace period."""
    left = s.last_removal_ms + cfg.grace_ms - s.now_ms
    return (1, 9) if left <= 0 else (1, left, left - 1, left + 1)


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """How many cursors, tied or not, at one position or several; what waits; what is left of cursors that are gone."""
    positions = [c.position for c in s.cursors if c.position is not None]
    places = set(positions)
    tail = positions.count(max(positions)) if positions else 0
    waiting = garbage = 0
    if s.nodes is not None:
        waiting = len(s.nodes.updates) + 4 * len(s.nodes.removals)
        garbage = len([n for n in s.nodes.linked + s.nodes.unlinked if not n.present])
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


# ---- bounds for the engines that visit every state -----------------------------------------------------


def remembered(s: State) -> int:
    """Nodes and items that a shipped container keeps."""
    return len(s.items) if s.nodes is None else len(s.nodes.linked) + len(s.nodes.unlinked)


def farthest_count(s: State) -> int:
    """The largest count of a list, or how far below zero one is."""
    return 0 if s.nodes is None else max((abs(count) for count in s.nodes.counts), default=0)


#: Why the scopes are as they are; each scope adds what is its own.
WHY = {
    "grace_ms": "two milliseconds: the least period with a middle; the canonical form knows no longer wait",
    "advance.millis": "the least step; longer ones are several of it",
    "removals_before_cleanup": "one: the list's cleanup comes as soon as it can, and is met between any two calls",
    "remembered": "one more than the cursors; hides what a list keeps of more cursors that are gone",
    "farthest_count": "one more than the cursors; a count that is wrong once is not better for being wrong by more",
}

SMOKE = Scope(
    actions=(
        "add_cursor",
        "update_cursor",
        "remove_cursor",
        "number_at_same_position_or_before",
        "slowest_position",
        "should_cache_added_entries",
        "advance",
    ),
    settings={"cursors": 4, "grace_ms": 2, "removals_before_cleanup": 1},
    domains={
        "cursor": (0, 1, 2, 3),
        "position": (Position(1, 1), Position(1, 2), Position(2, 0), None),
        "durable": (True,),
        "advance.millis": (1,),
    },
    bounds={"remembered": 5, "farthest_count": 5},
    reasons=WHY
    | {
        "actions": "what changes cursors, ranks, the slowest position and the grace period",
        "cursors": "four are the fewest that a lazy list moves one by one, with a tie of any size among them",
        "cursor": "all names that there are",
        "position": "two neighbours, one in another ledger, and none: hides moves past three different positions",
        "durable": "durable ones only; the others are in the larger scopes",
    },
)

CI = Scope(
    actions=tuple(active_cursors.actions),
    settings=SMOKE.settings,
    domains=dict(SMOKE.domains)
    | {
        "position": (Position(1, 2), Position(2, 0), None),
        "cursor_updated.cursor": (0,),
        "get_cursor.cursor": (0,),
        "remove_while_iterating.cursor": (0,),
        "durable": (True, False),
    },
    bounds=SMOKE.bounds,
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "all that there are",
        "position": "one in each of two ledgers, and none: hides what happens between two positions",
        "cursor_updated.cursor": "one name: to the definition names are alike, and it moves as update_cursor does",
        "get_cursor.cursor": "one name: to the definition names are alike, and nothing changes",
        "remove_while_iterating.cursor": "one name: to the definition names are alike, and nothing changes",
        "durable": "durable and not",
    },
)

NIGHTLY = Scope(
    actions=CI.actions,
    settings=dict(SMOKE.settings) | {"cursors": 5},
    domains=dict(CI.domains)
    | {
        "cursor": (0, 1, 2, 3, 4),
        "position": SMOKE.domains["position"],
    },
    bounds={"remembered": 6, "farthest_count": 6},
    reasons=dict(CI.reasons)
    | {
        "cursors": "five, so that a group can have others on both sides and lose its last",
        "position": SMOKE.reasons["position"],
    },
)

LAZY = Scope(
    actions=("add_cursor", "update_cursor", "number_at_same_position_or_before", "slowest_position"),
    settings={"cursors": 4, "grace_ms": 0, "removals_before_cleanup": 1},
    domains={"cursor": (0, 1, 2, 3), "position": (Position(1, 1), Position(1, 2)), "durable": (True,)},
    bounds={"farthest_count": 4},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "what a lazy list notes, and what makes it flush; hides what it keeps of cursors that are gone",
        "farthest_count": "no right one is larger; hides how a wrong one goes on",
        "grace_ms": "none: time is in the other scopes",
        "position": "two neighbours: groups are left and joined, and nobody passes a third position",
    },
)

HEAP = Scope(
    actions=("add_cursor", "update_cursor", "cursor_updated", "remove_cursor", "slowest_position"),
    settings={"cursors": 6, "grace_ms": 0},
    domains={
        "cursor": (0, 1, 2, 3, 4, 5),
        "cursor_updated.cursor": (0, 1, 2, 3, 4, 5),
        "position": (Position(1, 1), Position(1, 2)),
        "durable": (True,),
    },
    bounds={},
    reasons=dict(LAZY.reasons)
    | {
        "actions": "what moves the items of a heap, and who asks for the first",
        "cursors": "six are the fewest of which one has to rise when it takes another one's place",
        "cursor_updated.cursor": "all names, each as often as the others",
        "position": "slower and faster: an item needs no more to stand above or below another",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, which counts its objects instead of keeping the next number."""
    cursors = tuple([Cursor(**placed(each)) for each in variables["cursors"]])
    items = tuple([Item(**placed(each)) for each in variables["items"]])
    kept, nodes = variables["nodes"], None
    if kept is not None:
        linked, unlinked = (tuple([Node(**placed(each)) for each in kept[key]]) for key in ("linked", "unlinked"))
        rest = (kept[key] for key in ("updates", "removals", "counts", "tracked", "removed"))
        nodes = CursorList(linked, unlinked, *rest)
    objects = {each.object for each in cursors} | {each.object for each in items}
    if nodes is not None:
        objects |= {each.object for each in nodes.linked + nodes.unlinked}
    return State(0, cursors, variables["last_removal_ms"], len(objects) + 1, 0, variables["durables"], nodes, items)


def placed(each: Mapping[str, Any]) -> dict[str, Any]:
    """A record of the twin with positions for its pairs."""
    return {key: Position(*value) if isinstance(value, tuple) else value for key, value in each.items()}


# ---- states that `check` must not let pass ------------------------------------------------------------


def one_more_is_durable(s: State) -> State:
    """A durable cursor more than there is."""
    return s._replace(durables=s.durables + 1)


def one_fewer_is_durable(s: State) -> State:
    """A durable cursor fewer than there is."""
    return s._replace(durables=s.durables - 1)


def a_number_not_given(s: State) -> State | None:
    """The highest number of an object is still to be given."""
    return s._replace(next_object=max(c.object for c in s.cursors)) if s.cursors else None


def a_removal_to_come(s: State) -> State:
    """The last removal has not happened yet."""
    return s._replace(last_removal_ms=s.now_ms + 1)


subject = Subject(
    active_cursors,
    ActiveCursors,
    invariants,
    domains={
        "cursor": tuple(range(12)),
        "cursor_updated.cursor": movers,
        "position": (*POSITIONS, None),
        "add_cursor.position": (*POSITIONS, None, WIDE, *POSITIONS),
        "update_cursor.position": (*POSITIONS, None, *POSITIONS, WIDE),
        "durable": (True, False),
        "advance.millis": waits,
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
    measures={"remembered": remembered, "farthest_count": farthest_count},
    scopes={"smoke": SMOKE, "ci": CI, "nightly": NIGHTLY, "lazy": LAZY, "heap": HEAP},
    corrupt={
        "one_more_is_durable": one_more_is_durable,
        "one_fewer_is_durable": one_fewer_is_durable,
        "a_number_not_given": a_number_not_given,
        "a_removal_to_come": a_removal_to_come,
    },
    steps=128,
    tla="ActiveCursors",
    from_tla=from_tla,
)
