"""How to drive the containers of active cursors. `model/active_cursors/machine.py` lists the kinds of containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.active_cursors import ActiveCursors
from invariants import active_cursors as invariants
from model.active_cursors.machine import Config, State, active_cursors
from model.positions import Position

#: neighbours in a ledger, the end of a ledger and the start of the next, and positions before the first entry
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
#: a position with the largest entry id
LAST = Position(1, 2**63 - 1)


def names_mostly_slowest(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns every cursor name. More than half of the values are the slowest cursor, if one is before `LAST`."""
    names = tuple(range(cfg.cursors))
    slowest, smallest = None, LAST
    for c in s.cursors:
        if c.position is not None and c.position < smallest:
            slowest, smallest = c.cursor, c.position
    return names if slowest is None else names + (slowest,) * len(names)


def delays_around_grace_period(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns 1 ms, and delays around the end of the grace period; after the grace period 1 ms and 9 ms."""
    left = s.last_removal_ms + cfg.grace_ms - s.now_ms
    return (1, 9) if left <= 0 else (1, left, left - 1, left + 1)


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns facts about the cursors, the grace period, and the data structure of a shipped container."""
    positions = [c.position for c in s.cursors if c.position is not None]
    tail = positions.count(max(positions)) if positions else 0  # the number of cursors at the largest position
    pending = removed = 0
    if s.nodes is not None:
        pending = len(s.nodes.updates) + 4 * len(s.nodes.removals)  # unique for fewer than 4 updates
        removed = len([n for n in s.nodes.linked + s.nodes.unlinked if not n.present])
    return (
        len(s.cursors),
        len(positions) - len(s.cursors) > -2,  # at most one cursor has no position
        len(set(positions)),
        tail if tail < 3 else 3,
        s.now_ms - s.last_removal_ms < cfg.grace_ms,
        s.durables > 0,
        pending,
        removed if removed < 3 else 3,
        len(s.items) - len(positions) if s.items else 0,  # items of replaced cursors
    )


# ---- measures that scopes bound ------------------------------------------------------------------------


def retained(s: State) -> int:
    """Returns the number of nodes or items that a shipped container retains."""
    return len(s.items) if s.nodes is None else len(s.nodes.linked) + len(s.nodes.unlinked)


def largest_absolute_count(s: State) -> int:
    """Returns the largest absolute value of a counter of the linked list; 0 for any other container."""
    return 0 if s.nodes is None else max((abs(count) for count in s.nodes.counts), default=0)


#: Reasons for the choices that several scopes share.
REASONS = {
    "grace_ms": "two milliseconds: the smallest grace period with a time inside it",
    "advance.millis": "the smallest step; a longer step equals several of them",
    "removals_before_cleanup": "one: the list compacts removed nodes as early as possible",
    "retained": "one more than the cursors; excludes several retained nodes of removed cursors",
    "largest_absolute_count": "one more than the cursors; excludes counts that are wrong by more",
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
    bounds={"retained": 5, "largest_absolute_count": 5},
    reasons=REASONS
    | {
        "actions": "changes of cursors, the two queries that flush the list, and the grace period",
        "cursors": "four: the smallest number at which the list applies updates incrementally",
        "cursor": "every cursor of the scope",
        "position": "two neighbours, one in another ledger, and none; excludes moves past three different positions",
        "durable": "durable cursors only; others are in the larger scopes",
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
        "actions": "all actions of the model",
        "position": "one in each of two ledgers, and none; excludes moves to a position between two others",
        "cursor_updated.cursor": "one name: names are symmetric, and update_cursor has all names",
        "get_cursor.cursor": "one name: names are symmetric, and the call changes nothing",
        "remove_while_iterating.cursor": "one name: names are symmetric, and the call changes nothing",
        "durable": "durable and non-durable cursors",
    },
)

NIGHTLY = CI.changed(
    settings={"cursors": 5},
    domains={"cursor": (0, 1, 2, 3, 4), "position": SMOKE.domains["position"]},
    bounds={"retained": 6, "largest_absolute_count": 6},
    reasons={
        "cursors": "five: nodes at one position can have nodes before and after them, and the last of them can leave",
        "position": SMOKE.reasons["position"],
    },
)

LAZY = Scope(
    actions=("add_cursor", "update_cursor", "number_at_same_position_or_before", "slowest_position"),
    settings={"cursors": 4, "grace_ms": 0, "removals_before_cleanup": 1},
    domains={"cursor": (0, 1, 2, 3), "position": (Position(1, 1), Position(1, 2)), "durable": (True,)},
    bounds={"largest_absolute_count": 4},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "changes that the list records as pending, and queries that flush them; excludes removals",
        "largest_absolute_count": "the largest correct count; excludes successors of states with larger counts",
        "grace_ms": "zero: the grace period is in the other scopes",
        "position": "two neighbours: cursors leave and join others; excludes moves past a third position",
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
        "actions": "changes of the heap, and the query for the position of its first item",
        "cursors": "six: the smallest number at which the item that fills a gap has to sift up",
        "cursor_updated.cursor": "every cursor of the scope",
        "position": "two positions: enough for every order of parent and child",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin has no clock and version, and numbers objects from 1."""
    s: State = as_model(State, variables, now_ms=0, version=0, next_object=0)
    objects = {each.object for each in s.cursors} | {each.object for each in s.items}
    if s.nodes is not None:
        objects |= {each.object for each in s.nodes.linked + s.nodes.unlinked}
    return s._replace(next_object=len(objects) + 1)


# ---- corrupted states that `check` must report ----------------------------------------------------------


def durable_count_is_too_large(_cfg: Config, s: State) -> State:
    """The count of durable cursors is one too large."""
    return s._replace(durables=s.durables + 1)


def durable_count_is_too_small(_cfg: Config, s: State) -> State:
    """The count of durable cursors is one too small."""
    return s._replace(durables=s.durables - 1)


def next_object_is_in_use(_cfg: Config, s: State) -> State | None:
    """The next object number is in use."""
    return s._replace(next_object=max(c.object for c in s.cursors)) if s.cursors else None


def last_removal_is_in_the_future(_cfg: Config, s: State) -> State:
    """The time of the last removal is in the future."""
    return s._replace(last_removal_ms=s.now_ms + 1)


# ---- reduction, for the check of concurrent histories ---------------------------------------------------


def without_times(s: State) -> State:
    """Returns the state with the clock at 0, and with the same time since the last removal."""
    return s._replace(now_ms=0, last_removal_ms=s.last_removal_ms - s.now_ms)


#: Actions that change no state, whatever the `container`.
QUERIES = frozenset({"should_cache_added_entries", "get_cursor", "size"})
#: Actions that change no state if the `container` is `definition`. The two added here flush a linked list.
ALL_QUERIES = QUERIES | {"slowest_position", "number_at_same_position_or_before"}

subject = Subject(
    active_cursors,
    ActiveCursors,
    invariants,
    domains={
        "cursor": tuple(range(12)),
        "cursor_updated.cursor": names_mostly_slowest,
        "position": (*POSITIONS, None),
        "add_cursor.position": (*POSITIONS, None, LAST, *POSITIONS),
        "update_cursor.position": (*POSITIONS, None, *POSITIONS, LAST),
        "durable": (True, False),
        "advance.millis": delays_around_grace_period,
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
        "many_cursors": {"remove_cursor": 0.1, "update_cursor": 2},
        "rare_updates": {
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
        "removals": {"add_cursor": 0.5, "remove_cursor": 5, "advance": 6, "should_cache_added_entries": 10},
        "rare_queries": {"number_at_same_position_or_before": 0.1, "slowest_position": 0.1, "cursor_updated": 0.1},
        "frequent_queries": {"number_at_same_position_or_before": 4, "slowest_position": 2},
    },
    largest={"cursors": 300},
    abstract=coverage_key,
    measures={"retained": retained, "largest_absolute_count": largest_absolute_count},
    scopes={"smoke": SMOKE, "ci": CI, "nightly": NIGHTLY, "lazy": LAZY, "heap": HEAP},
    corrupt={
        "durable_count_is_too_large": durable_count_is_too_large,
        "durable_count_is_too_small": durable_count_is_too_small,
        "next_object_is_in_use": next_object_is_in_use,
        "last_removal_is_in_the_future": last_removal_is_in_the_future,
    },
    reduction=lambda cfg, later: without_times,
    tally="version",
    unchanged=lambda cfg, action, outcome: action in (ALL_QUERIES if cfg.container == "definition" else QUERIES),
    steps=128,
    tla="ActiveCursors",
    from_tla=from_tla,
)
