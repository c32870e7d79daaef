"""The active cursors of a managed ledger: how many are at or before a position, and which is the slowest.

Each subscription of a topic has a cursor, which is active while the subscription has consumers. This component is the
container of a topic's active cursors. When the broker caches an entry, it asks the container how many cursors may still
read the entry: the expected read count of the entry. The container also knows the slowest cursor: the one with the
smallest position. A cursor without a position is untracked. While the container has no cursor, added entries are cached
only for a grace period. In the profiles of Pulsar's versions, the container is a linked list, a heap or a sorted set;
the reference computes each answer from the cursors.

Models `ActiveManagedCursorContainer` (PIP-430, expected read count). One step is one call on the container.

State: the active cursors by name, each with a position (a tracked cursor) or without one (untracked); the clock; the
time of the last removal; the number of changes; the number of durable cursors; a data structure (see `container`).

    add_cursor            adds a cursor under a name; replaces the cursor of that name
    update_cursor         moves a cursor, forward or backward (seek), or untracks it; ignores an unknown name.
                          `cursor_updated` does the same, and returns the slowest position before and after
    remove_cursor         removes a name and its cursor; the grace period starts again
    number_at_same_position_or_before
                          the number of tracked cursors at the position of a cursor or before it, this cursor included:
                          the expected read count of entries that this cursor reads from storage (catch-up read)
    slowest_position      the smallest position of a tracked cursor
    size                  the number of cursors, tracked or not: the expected read count of an added entry
    should_cache_added_entries
                          true while cursors exist, and for a grace period after a removal or the creation

The rule `container` selects the data structure. If no other rule differs from the reference, all containers give the
same answers, except that the heap rejects an update without a position.

    definition    no data structure: every answer is computed from the cursors
    linked_list   `ActiveManagedCursorContainerImpl`: model/active_cursors/linked_list.py
    heap          `ManagedCursorContainerImpl`, used without `cacheEvictionByExpectedReadCount`:
                  model/active_cursors/heap.py
    sorted_set    `ActiveManagedCursorContainerNavigableSetImpl`, for tests and benchmarks:
                  model/active_cursors/sorted_set.py

Not modelled: `ManagedCursorImpl` and when it becomes active, the lock, iterators concurrent with changes. Pulsar's heap
accepts an update without a position if it has a single tracked cursor; the model does not.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.active_cursors import heap, linked_list, sorted_set
from model.active_cursors.heap import Item, Items
from model.active_cursors.linked_list import CursorList
from model.machine import Failed, Machine, Setting, Step, refused
from model.positions import Position
from model.values import AtLeast, Below, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules in which versions and containers differ.

    A rule that begins with "the list", "the heap" or "the set" is meant for that `container` only. Its terms are those
    of `linked_list.py` or `heap.py`.
    """

    #: number of names; cursors are named by numbers from 0
    cursors: Annotated[int, AtLeast(1)] = 8
    #: clock when the container is created
    start_ms: Annotated[int, AtLeast(0)] = 0
    #: grace period: how long added entries are cached after a cursor was removed or the container was created. 0 or
    #: less switches the grace period off
    grace_ms: Annotated[
        int,
        Setting(
            "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", (("4.1", "twice the TTL"),)
        ),
    ] = 2000
    #: the list: `MIN_REMOVALS_BEFORE_CLEANUP`. A cleanup drops the nodes of removed cursors. It follows a removal if no
    #: cursor is left, or if the number of removals since the last cleanup or flush has reached both this number and the
    #: number of cursors left
    removals_before_cleanup: Annotated[int, AtLeast(1)] = 64

    #: which calls are accepted: any, or only those that a broker makes; a broker never adds a name that is present, and
    #: always passes a position to `updateCursor`
    calls: Annotated[
        Literal["any", "of_the_broker"],
        Rule(Origin.READ, {"of_the_broker": "callers in ManagedLedgerImpl, master 2026-07"}),
    ] = "any"
    #: the data structure (see the header)
    container: Annotated[
        Literal["definition", "linked_list", "heap", "sorted_set"],
        Rule(
            Origin.RECORDED,
            dict.fromkeys(
                ("linked_list", "heap", "sorted_set"),
                "the implementations of ActiveManagedCursorContainer, master 2026-07",
            ),
        ),
    ] = "definition"
    #: whether the container answers `number_at_same_position_or_before`
    counts_cursors: Annotated[bool, Rule(Origin.RECORDED, {False: "ManagedCursorContainerImpl"})] = True
    #: whether the container has the call `cursor_updated`, which returns the slowest position before and after
    update_returns_slowest: Annotated[
        bool, Rule(Origin.RECORDED, {False: "ActiveManagedCursorContainerImpl.cursorUpdated throws"})
    ] = True
    #: whether an update starts to track a cursor without position
    update_starts_tracking: Annotated[
        bool, Rule(Origin.RECORDED, {False: "ManagedCursorContainerImpl.updateCursor ignores such a cursor"})
    ] = True
    #: whether there is a grace period (`grace_ms`)
    has_grace_period: Annotated[
        bool, Rule(Origin.RECORDED, {False: "shouldCacheAddedEntry of the heap and the set is !isEmpty()"})
    ] = True

    #: the list: whether the counters stay as they are when the tail gets a new position and passes no other node
    tail_keeps_counts: Annotated[
        bool, Rule(Origin.RECORDED, {True: "ActiveManagedCursorContainerImpl.moveNodeToNewPosition, node == tail"})
    ] = False
    #: the list: whether the node of an untracked cursor keeps its position and counter
    untracked_keeps_position: Annotated[
        bool, Rule(Origin.RECORDED, {True: "ActiveManagedCursorContainerImpl.updateCursor(null), before #26629"})
    ] = False
    #: the list: whether a pending removal of a node, recorded by `add` or `updateCursor` without a position, stays
    #: pending when `add` gives the cursor a position. If the next flush then rebuilds the list, it untracks the cursor
    add_keeps_pending_removal: Annotated[
        bool, Rule(Origin.RECORDED, {True: "ActiveManagedCursorContainerImpl.add"})
    ] = False
    #: the list: when `add` keeps the cursor object that the name had before. never; while_present: if the name is
    #: present; until_flushed: also if the name is absent, a removal of its node is pending, and `add` has a position
    readd_keeps_object: Annotated[
        Literal["never", "while_present", "until_flushed"],
        Rule(
            Origin.RECORDED,
            {"until_flushed": "ActiveManagedCursorContainerImpl.add before #26511", "while_present": "since #26511"},
        ),
    ] = "never"
    #: the list: whether `removeCursor` also drops nodes of removed cursors (see `removals_before_cleanup`); otherwise
    #: only a flush does
    drops_removed_nodes: Annotated[
        bool, Rule(Origin.RECORDED, {False: "ActiveManagedCursorContainerImpl before #26511 (compactRemovedNodes)"})
    ] = True
    #: the heap: whether the item that takes the index of a removed item can only sift down, and not up
    removal_only_sifts_down: Annotated[
        bool, Rule(Origin.RECORDED, {True: "ManagedCursorContainerImpl.removeCursor"})
    ] = False
    #: the heap and the set: whether adding a present name keeps the item of the old cursor and, if that cursor is
    #: durable, goes on counting it in `durables`
    add_keeps_old_item: Annotated[
        bool,
        Rule(
            Origin.RECORDED, {True: "ManagedCursorContainerImpl.add, ActiveManagedCursorContainerNavigableSetImpl.add"}
        ),
    ] = False


# ---- state --------------------------------------------------------------------------------------------


@record
class Cursor(NamedTuple):
    """An active cursor; without a position, it is untracked."""

    cursor: int  # the name
    position: Position | None  # read position, or mark-delete position (`cacheEvictionByMarkDeletedPosition`)
    durable: bool
    object: int  # number of the cursor object, in the order of additions


@record
class State(NamedTuple):
    """The container of a managed ledger."""

    now_ms: int
    cursors: tuple[Cursor, ...]  # by name
    last_removal_ms: int  # `cursorRemovedTimestampMillis`; initially the time of creation
    next_object: int
    version: int  # number of additions, removals and updates, except ignored ones
    durables: int  # the container's count of durable cursors (`ManagedCursorContainerImpl.durableCursorCount`)
    nodes: CursorList | None  # the data structure of the linked list; None for another `container`
    items: Items  # the data structure of the heap or the set; empty for another `container`


def start(cfg: Config) -> State:
    """Returns the state after construction: no cursors, and the grace period has started."""
    nodes = CursorList() if cfg.container == "linked_list" else None
    return State(
        now_ms=cfg.start_ms,
        cursors=(),
        last_removal_ms=cfg.start_ms,
        next_object=1,
        version=0,
        durables=0,
        nodes=nodes,
        items=(),
    )


class Found(NamedTuple):
    """The cursor object of a name."""

    cursor: int
    object: int


class Slowest(NamedTuple):
    """The slowest position before and after an update."""

    previous: Position | None
    new: Position | None


active_cursors = Machine(
    "active_cursors",
    Config,
    start,
    source="PIP-430",
    java={
        "ActiveManagedCursorContainer": (
            "add",
            "updateCursor",
            "cursorUpdated",
            "removeCursor",
            "get",
            "getNumberOfCursorsAtSamePositionOrBefore",
            "getSlowestCursorPosition",
            "size",
            "shouldCacheAddedEntry",
        ),
        "ActiveManagedCursorContainerImpl": (),
        "ManagedCursorContainerImpl": (),
    },
)

Name = Annotated[int, Below("cursors")]
Millis = Annotated[int, AtLeast(0)]

# ---- definitions --------------------------------------------------------------------------------------


def find(s: State, cursor: int) -> Cursor | None:
    """Returns the cursor of a name, or None."""
    for c in s.cursors:
        if c.cursor == cursor:
            return c
    return None


def with_cursor(s: State, new: Cursor) -> tuple[Cursor, ...]:
    """Returns the cursors, by name, with `new` under its name: added, or in place of the cursor of this name."""
    cursors, name = s.cursors, new.cursor
    for i, c in enumerate(cursors):
        if c.cursor >= name:
            # If the names are equal, `new` takes the place of `c` (the bool counts as 1), otherwise it is before `c`.
            return cursors[:i] + (new,) + cursors[i + (c.cursor == name) :]
    return (*cursors, new)


def positions(s: State) -> list[Position]:
    """Returns the positions of all tracked cursors."""
    return [c.position for c in s.cursors if c.position is not None]


def rank_of(s: State, cursor: int) -> int:
    """Returns the number of tracked cursors at the cursor's position or before, itself included; 0 if untracked."""
    c = find(s, cursor)
    if c is None or c.position is None:
        return 0
    own = c.position
    return sum([1 for p in positions(s) if p <= own])


def slowest_of(s: State) -> Position | None:
    """Returns the smallest tracked position, or None."""
    return min(positions(s), default=None)


def in_grace_period(cfg: Config, s: State) -> bool:
    """Returns whether less than the grace period has passed since the last removal, or since the creation."""
    return cfg.has_grace_period and cfg.grace_ms > 0 and s.now_ms - s.last_removal_ms < cfg.grace_ms


# ---- changes ------------------------------------------------------------------------------------------


@active_cursors.action
def add_cursor(cfg: Config, s: State, cursor: Name, position: Position | None, durable: bool) -> Step[State, int]:
    """`add`: adds a cursor under a name, in place of a cursor of that name; returns the number of the new object.

    A cursor without a position is not tracked. If `calls` is of_the_broker, a present name is rejected.
    """
    old, number = find(s, cursor), s.next_object
    if old is not None and cfg.calls == "of_the_broker":
        return refused(s, "illegal_argument", "a broker does not add a cursor that is present")
    new = Cursor(cursor, position, durable, number)
    # A replaced durable cursor is no longer counted, except with `add_keeps_old_item`.
    durables = s.durables + durable - (old is not None and old.durable and not cfg.add_keeps_old_item)
    s = s._replace(cursors=with_cursor(s, new), next_object=number + 1, version=s.version + 1, durables=durables)
    if cfg.container != "definition":
        s = structure_after_add(cfg, s, old, new)
    return s, number


def structure_after_add(cfg: Config, s: State, old: Cursor | None, new: Cursor) -> State:
    """Returns the state after an addition, with the data structure of a shipped container updated."""
    if s.nodes is not None:
        old_object = None if old is None else old.object
        nodes, object_of_name = linked_list.added(cfg, s.nodes, old_object, new.cursor, new.object, new.position)
        return s._replace(nodes=nodes, cursors=with_cursor(s, new._replace(object=object_of_name)))
    if old is not None and old.position is not None and not cfg.add_keeps_old_item:
        s = s._replace(items=without_item(cfg, s.items, old.object))
    if new.position is None:
        return s
    return s._replace(items=with_item(cfg, s.items, Item(new.position, new.object, new.cursor)))


def with_item(cfg: Config, items: Items, item: Item) -> Items:
    """Returns the items of the heap or the set with `item` added."""
    return (heap.pushed if cfg.container == "heap" else sorted_set.with_item)(items, item)


def without_item(cfg: Config, items: Items, object: int) -> Items:
    """Returns the items of the heap or the set without the item of a cursor object."""
    if cfg.container == "sorted_set":
        return sorted_set.without_item(items, object)
    return heap.removed(items, heap.index_of(items, object), cfg.removal_only_sifts_down)


@active_cursors.action
def update_cursor(cfg: Config, s: State, cursor: Name, position: Position | None) -> Step[State, None]:
    """`updateCursor`: moves a cursor, forward or backward; without a position, untracks the cursor.

    An unknown name is ignored; without `update_starts_tracking`, an untracked cursor is also ignored. The heap rejects
    an update without a position. If `calls` is of_the_broker, any container rejects such an update.
    """
    if position is None and cfg.calls == "of_the_broker":
        return refused(s, "illegal_argument", "a broker does not pass a null position")
    old = find(s, cursor)
    if old is None or (old.position is None and not cfg.update_starts_tracking):
        return s, None
    if position is None and cfg.container == "heap":
        return refused(s, "null_pointer", "the heap cannot compare a null position")
    new = old._replace(position=position)
    s = s._replace(cursors=with_cursor(s, new), version=s.version + 1)
    if cfg.container != "definition":
        s = structure_after_move(cfg, s, old, new)
    return s, None


def structure_after_move(cfg: Config, s: State, old: Cursor, new: Cursor) -> State:
    """Returns the state after a move, with the data structure of a shipped container updated."""
    if s.nodes is not None:
        return s._replace(nodes=linked_list.updated(cfg, s.nodes, old.object, new.position))
    if cfg.container == "heap" and old.position is not None and new.position is not None:
        return s._replace(items=heap.moved(s.items, heap.index_of(s.items, old.object), new.position))
    items = s.items if old.position is None else without_item(cfg, s.items, old.object)
    if new.position is not None:
        items = with_item(cfg, items, Item(new.position, new.object, new.cursor))
    return s._replace(items=items)


@active_cursors.action
def cursor_updated(cfg: Config, s: State, cursor: Name, position: Position | None) -> Step[State, Slowest | None]:
    """`cursorUpdated`: moves a cursor and returns the slowest position before and after; None if the update is ignored.

    `update_cursor` says which updates are ignored or rejected. Without `update_returns_slowest`, any call is rejected.
    """
    if not cfg.update_returns_slowest:
        return refused(s, "unsupported", "the linked list only records updates until a query")
    old = find(s, cursor)
    flushed, previous = slowest_position(cfg, s)
    after, refusal = update_cursor(cfg, flushed, cursor, position)
    if refusal is not None:
        return s, refusal
    if old is None or (old.position is None and not cfg.update_starts_tracking):
        return s, None
    after, new = slowest_position(cfg, after)
    return after, Slowest(previous, new)


@active_cursors.action
def remove_cursor(cfg: Config, s: State, cursor: Name) -> Step[State, bool]:
    """`removeCursor`: if the name is known, removes it and restarts the grace period. Returns whether it was known."""
    old = find(s, cursor)
    if old is None:
        return s, False
    s = s._replace(
        cursors=tuple([c for c in s.cursors if c is not old]),
        last_removal_ms=s.now_ms,
        version=s.version + 1,
        durables=s.durables - old.durable,
    )
    if s.nodes is not None:
        return s._replace(nodes=linked_list.removed(cfg, s.nodes, old.object, len(s.cursors))), True
    if s.items and old.position is not None:
        return s._replace(items=without_item(cfg, s.items, old.object)), True
    return s, True


@active_cursors.action
def remove_while_iterating(cfg: Config, s: State, cursor: Name) -> Step[State, None]:
    """`Iterator.remove`: throws; only `removeCursor` removes a cursor."""
    if find(s, cursor) is None:
        return refused(s, "illegal_state", "the iteration does not reach this cursor")
    return s, Failed("illegal_argument", "a cursor is removed by its name, not by the iterator")


# ---- queries ------------------------------------------------------------------------------------------


def flush(cfg: Config, s: State) -> State:
    """Returns the state after a flush of the linked list; every query of positions flushes first."""
    if s.nodes is None:
        return s
    nodes = linked_list.flushed(cfg, s.nodes)
    return s if nodes == s.nodes else s._replace(nodes=nodes)


@active_cursors.action
def get_cursor(cfg: Config, s: State, cursor: Name) -> Step[State, Found | None]:
    """`get`: returns the cursor object of a name, or None."""
    c = find(s, cursor)
    return s, None if c is None else Found(cursor, c.object)


@active_cursors.action
def number_at_same_position_or_before(cfg: Config, s: State, cursor: Name) -> Step[State, int]:
    """`getNumberOfCursorsAtSamePositionOrBefore`: returns how many tracked cursors are not ahead of a cursor.

    The cursor itself is counted. For an unknown or untracked cursor the number is 0.
    """
    if not cfg.counts_cursors:
        return refused(s, "unsupported", "the heap does not count")
    s = flush(cfg, s)
    rank = shipped_rank(cfg, s, cursor)
    if rank is None:
        return s, Failed("null_pointer", "the node has a position and no counter")
    return s, rank


def shipped_rank(cfg: Config, s: State, cursor: int) -> int | None:
    """Returns what the flushed container computes for `rank_of`; None if the container dereferences a null counter."""
    if s.nodes is None and not s.items:  # the definition; or no cursor is tracked, and the rank is 0
        return rank_of(s, cursor)
    c = find(s, cursor)
    if c is None:
        return 0
    if s.nodes is not None:
        return linked_list.number_at_same_position_or_before(s.nodes, c.object)
    return 0 if c.position is None else sorted_set.number_at_or_before(s.items, c.position)


@active_cursors.action
def slowest_position(cfg: Config, s: State) -> Step[State, Position | None]:
    """`getSlowestCursorPosition`: returns the smallest tracked position, or None."""
    if cfg.container == "definition":
        return s, slowest_of(s)
    s = flush(cfg, s)
    return s, shipped_slowest(s)


def shipped_slowest(s: State) -> Position | None:
    """Returns the slowest position as the flushed data structure of a shipped container has it."""
    if s.nodes is not None:
        return linked_list.slowest(s.nodes)
    return s.items[0].position if s.items else None


@active_cursors.action
def size(cfg: Config, s: State) -> Step[State, int]:
    """`size`: returns the number of cursors, tracked or not: the expected read count of an entry that is added now."""
    return s, len(s.cursors)


@active_cursors.action
def should_cache_added_entries(cfg: Config, s: State) -> Step[State, bool]:
    """`shouldCacheAddedEntry`: returns whether cursors exist or the grace period is not over."""
    return s, bool(s.cursors) or in_grace_period(cfg, s)


@active_cursors.action
def advance(cfg: Config, s: State, millis: Millis) -> Step[State, None]:
    """Advances the clock."""
    return s._replace(now_ms=s.now_ms + millis), None


# ---- canonical form and observation -------------------------------------------------------------------


@active_cursors.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Numbers cursor objects in the order of their names, and sets clock and version to 0.

    Limits the time since the last removal to the grace period. Objects that only the data structure has are numbered
    after those of cursors, in the order of the data structure. The items of a set at one position are numbered in the
    order of their names.
    """
    numbers = {c.object: number for number, c in enumerate(s.cursors, 1)}
    cursors = tuple([c._replace(object=numbers[c.object]) for c in s.cursors])
    nodes = None if s.nodes is None else linked_list.with_objects_renumbered(s.nodes, numbers)
    is_set = cfg.container == "sorted_set"
    for item in sorted(s.items, key=position_and_name) if is_set else s.items:
        numbers.setdefault(item.object, len(numbers) + 1)
    items = tuple([item._replace(object=numbers[item.object]) for item in s.items])
    # The clock becomes 0, so the last removal is `ago` milliseconds before 0.
    ago = min(s.now_ms - s.last_removal_ms, max(cfg.grace_ms, 0) if cfg.has_grace_period else 0)
    ordered = tuple(sorted(items)) if is_set else items
    return State(0, cursors, -ago, len(numbers) + 1, 0, s.durables, nodes, ordered)


def position_and_name(item: Item) -> tuple[Position, int]:
    """Returns an item's position and name: a sort key that is independent of the object's number."""
    return item.position, item.cursor


@active_cursors.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the names, the answers to all queries except `get_cursor`, and four further facts.

    These are: whether there are no cursors, whether `durables` is positive, the slowest cursors, and `version`.
    """
    seen = flush(cfg, s)
    slowest = slowest_position(cfg, seen)[1]
    ranks = [[c.cursor, shipped_rank(cfg, seen, c.cursor)] for c in s.cursors] if cfg.counts_cursors else None
    return {
        "size": len(s.cursors),
        "empty": not s.cursors,
        "cursors": [c.cursor for c in s.cursors],
        "cache_added_entries": bool(s.cursors) or in_grace_period(cfg, s),
        "has_durable": s.durables > 0,
        "slowest_position": None if not isinstance(slowest, Position) else slowest.as_plain(),
        "slowest_cursors": slowest_cursors(s, slowest),
        "at_same_position_or_before": ranks,
        "version": s.version,
    }


def slowest_cursors(s: State, slowest: Position | None) -> list[int]:
    """Returns the names at the slowest position; `getSlowestCursor` may return any of them."""
    if s.items:
        return sorted(item.cursor for item in s.items if item.position == slowest)
    return [c.cursor for c in s.cursors if c.position is not None and c.position == slowest]


# ---- profiles -----------------------------------------------------------------------------------------

reference = active_cursors.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

recorded = active_cursors.profile(
    "pulsar-2026-07",
    "ActiveManagedCursorContainerImpl as recorded from Apache Pulsar master, 2026-07-23, with the calls of a broker",
    Config(
        calls="of_the_broker",
        container="linked_list",
        update_returns_slowest=False,
        tail_keeps_counts=True,
        untracked_keeps_position=True,
        add_keeps_pending_removal=True,
        readd_keeps_object="until_flushed",
        drops_removed_nodes=False,
    ),
)

recorded_any_call = active_cursors.profile(
    "pulsar-2026-07-any-call",
    "ActiveManagedCursorContainerImpl with any calls, also those that no broker makes",
    recorded.config._replace(calls="any"),
)

recorded_heap = active_cursors.profile(
    "pulsar-2026-07-heap",
    "ManagedCursorContainerImpl as recorded from Apache Pulsar master, 2026-07-23, with the calls of a broker",
    Config(
        calls="of_the_broker",
        container="heap",
        counts_cursors=False,
        update_starts_tracking=False,
        has_grace_period=False,
        removal_only_sifts_down=True,
        add_keeps_old_item=True,
    ),
)

recorded_heap_any_call = active_cursors.profile(
    "pulsar-2026-07-heap-any-call",
    "ManagedCursorContainerImpl with any calls, also those that no broker makes",
    recorded_heap.config._replace(calls="any"),
)

recorded_set = active_cursors.profile(
    "pulsar-2026-07-set",
    "ActiveManagedCursorContainerNavigableSetImpl as recorded from Apache Pulsar master, 2026-07-23",
    Config(container="sorted_set", has_grace_period=False, add_keeps_old_item=True),
)

later = active_cursors.profile(
    "pulsar-2026-09",
    "ActiveManagedCursorContainerImpl with apache/pulsar#26511 and #26629; any calls, also those that no broker makes",
    Config(
        container="linked_list",
        update_returns_slowest=False,
        tail_keeps_counts=True,
        add_keeps_pending_removal=True,
        readd_keeps_object="while_present",
    ),
)

repaired_list = active_cursors.profile(
    "repaired-list", "the linked list with its defects corrected", Config(container="linked_list")
)

repaired_heap = active_cursors.profile(
    "repaired-heap",
    "the heap with its defects corrected; it answers the slowest position, but does not count",
    Config(container="heap", counts_cursors=False),
)

slowest_only = active_cursors.profile(
    "slowest-only", "the definition without counts, which is what a heap can answer", Config(counts_cursors=False)
)

pulsar_4_0 = active_cursors.release("4.0", rules=recorded_heap.config)
pulsar_4_1 = active_cursors.release("4.1", "4.2", rules=recorded.config)
pulsar_5_0 = active_cursors.release("5.0", rules=later.config)
