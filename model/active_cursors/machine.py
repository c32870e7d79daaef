"""Active cursors: how many readers of a topic are not past a position, and which one is the slowest.

Source: PIP-430, the "Expected Read Count" strategy. Step grain: one call on the container.

    add         a cursor under a name, tracked at a position or not tracked at all; a name has one cursor, the latest
    update      the cursor of that name has moved, forward or backward; of an unknown name: nothing
    remove      the name is free again
    rank        how many tracked cursors stand at the cursor's position or before it, itself included: what a reader
                that fetches an entry from storage expects to be read of it; 0 for a cursor that is not tracked
    slowest     the smallest tracked position: what lies before it is read by everybody
    size        how many cursors there are, tracked or not: what an entry that is just added expects

    new entries are cached while there are cursors, and for a grace period after the last one has left

State: the cursors by name, the clock and the time of the last removal, and, under a container that a version ships,
what its algorithm keeps in mind: nothing here is lazy, so the definition keeps nothing.

    definition    the rules above
    linked_list   the list of PIP-430, lazily brought up to date: model/active_cursors/linked_list.py
    heap          the container without that strategy, which knows the slowest only: model/active_cursors/heap.py
    sorted_set    the container that the list's benchmarks compare it with: also there

A shipped container follows the definition as far as its flags leave it: with none of them set it is the definition,
in another way. Cursors are named by small numbers; each cursor that is added is another object, numbered in turn.

Not modelled: the cursors themselves, the lock, iterators that other threads overtake; when a cursor becomes active.
The heap takes a missing position for its only cursor and fails for any other; here it always fails.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.active_cursors import heap as cursor_heap
from model.active_cursors import linked_list as cursor_list
from model.active_cursors.heap import Item, Items
from model.active_cursors.linked_list import CursorList
from model.machine import Failed, Machine, Setting, Step, refused
from model.positions import Position
from model.values import AtLeast, Below, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions or containers differ."""

    #: how many names there are; cursors are named by numbers from 0
    cursors: Annotated[int, AtLeast(1)] = 8
    #: what the clock shows when the container is made
    start_ms: Annotated[int, AtLeast(0)] = 0
    #: for how long new entries are still cached when the last cursor has left; 0 or less: not at all
    grace_ms: Annotated[
        int, Setting("managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", "twice the TTL")
    ] = 2000

    #: which calls are let through: any, or those of the broker, which adds no present cursor and takes no position away
    calls: Literal["any", "of_the_broker"] = "any"
    #: how the cursors are kept
    container: Literal["definition", "linked_list", "heap", "sorted_set"] = "definition"
    #: whether the container counts cursors, or knows the slowest only
    counts_cursors: bool = True
    #: whether an update can tell what the slowest position was and is
    tells_slowest: bool = True
    #: whether an update of a cursor that is not tracked begins to track it
    update_begins_tracking: bool = True

    #: the list: no count changes when the last node moves within its place (the tail shortcut)
    tail_keeps_counts: bool = False
    #: the list: a cursor that is no longer tracked keeps its old position and count
    untracked_keeps_position: bool = False
    #: the list: an addition of a present cursor does not call off its untracking
    adding_keeps_removal: bool = False
    #: the list: which additions leave the name to the old object: those of a present cursor, or also one before a flush
    readding_keeps_object: Literal["never", "while_present", "until_flushed"] = "never"
    #: the list: whether nodes of removed cursors are dropped now and then without a query
    drops_removed_nodes: bool = True
    #: the list: after how many removals, at least, if there are not more cursors than that (64 in the broker)
    removals_before_cleanup: Annotated[int, AtLeast(1)] = 64
    #: the heap: the item that takes a removed one's place only sinks
    removal_only_sinks: bool = False
    #: the heap and the set: what a present cursor was tracked by stays for ever when it is added again
    adding_leaves_old_item: bool = False


# ---- state --------------------------------------------------------------------------------------------


@record
class Cursor(NamedTuple):
    """An active cursor."""

    cursor: int  # its name
    position: Position | None  # where it reads; None: it is not tracked
    durable: bool
    object: int


@record
class State(NamedTuple):
    """The container of a topic."""

    now_ms: int
    cursors: tuple[Cursor, ...]  # by name
    last_removal_ms: int  # or when the container was made
    next_object: int
    version: int  # of all additions, removals and updates that had an effect
    durables: int  # durable cursors that were added and not removed; the heap counts them so
    nodes: CursorList | None  # what the list keeps in mind
    items: Items  # what the heap or the set keeps in mind


def start(cfg: Config) -> State:
    """No cursors; the grace period begins."""
    nodes = CursorList() if cfg.container == "linked_list" else None
    return State(cfg.start_ms, (), cfg.start_ms, 1, 0, 0, nodes, ())


class Found(NamedTuple):
    """The cursor of a name: which of those that were added under it."""

    cursor: int
    object: int


class Slowest(NamedTuple):
    """The smallest tracked position before and after an update."""

    previous: Position | None
    new: Position | None


active_cursors = Machine("active_cursors", Config, start, source="PIP-430")

Name = Annotated[int, Below("cursors")]
Millis = Annotated[int, AtLeast(0)]

# ---- small rules --------------------------------------------------------------------------------------


def find(s: State, cursor: int) -> Cursor | None:
    """The cursor of that name."""
    for c in s.cursors:
        if c.cursor == cursor:
            return c
    return None


def with_cursor(s: State, new: Cursor) -> tuple[Cursor, ...]:
    """The cursors, with another one under its name."""
    cursors, name = s.cursors, new.cursor
    for i, c in enumerate(cursors):
        if c.cursor >= name:
            return cursors[:i] + (new,) + cursors[i + (c.cursor == name) :]
    return (*cursors, new)


def positions(s: State) -> list[Position]:
    """The positions of all tracked cursors."""
    return [c.position for c in s.cursors if c.position is not None]


def rank_of(s: State, cursor: int) -> int:
    """By definition: how many tracked cursors stand where this one does or before it; 0 if it is not tracked."""
    c = find(s, cursor)
    if c is None or c.position is None:
        return 0
    own = c.position
    return sum([1 for p in positions(s) if p <= own])


def slowest_of(s: State) -> Position | None:
    """By definition: the smallest position."""
    return min(positions(s), default=None)


def in_grace_period(cfg: Config, s: State) -> bool:
    """Less than the grace period since the last removal, strictly; 0 or less switches it off."""
    return cfg.grace_ms > 0 and s.now_ms - s.last_removal_ms < cfg.grace_ms


# ---- cursors come, move and go ------------------------------------------------------------------------


@active_cursors.action
def add_cursor(cfg: Config, s: State, cursor: Name, position: Position | None, durable: bool) -> Step[State, int]:
    """A cursor under a name: a new one, or in the place of the one that had it. The outcome is the object's number.

    Without a position it is a member that is not tracked.
    """
    old, number = find(s, cursor), s.next_object
    if old is not None and cfg.calls == "of_the_broker":
        return refused(s, "illegal_argument", "the broker looks for the cursor before it adds one")
    new = Cursor(cursor, position, durable, number)
    durables = s.durables + durable - (old is not None and old.durable and not cfg.adding_leaves_old_item)
    s = s._replace(cursors=with_cursor(s, new), next_object=number + 1, version=s.version + 1, durables=durables)
    if cfg.container != "definition":
        s = kept_after_addition(cfg, s, old, new)
    return s, number


def kept_after_addition(cfg: Config, s: State, old: Cursor | None, new: Cursor) -> State:
    """What a shipped container keeps in mind after an addition."""
    if s.nodes is not None:
        present = None if old is None else old.object
        nodes, given = cursor_list.added(cfg, s.nodes, present, new.cursor, new.object, new.position)
        return s._replace(nodes=nodes, cursors=with_cursor(s, new._replace(object=given)))
    if old is not None and old.position is not None and not cfg.adding_leaves_old_item:
        s = s._replace(items=without_item(cfg, s.items, old.object))
    if new.position is None:
        return s
    return s._replace(items=with_item(cfg, s.items, Item(new.position, new.object, new.cursor)))


def with_item(cfg: Config, items: Items, item: Item) -> Items:
    """The heap's or the set's items with another one."""
    return (cursor_heap.pushed if cfg.container == "heap" else cursor_heap.with_item)(items, item)


def without_item(cfg: Config, items: Items, object: int) -> Items:
    """The heap's or the set's items without that of a tracked cursor."""
    if cfg.container == "sorted_set":
        return cursor_heap.without(items, object)
    return cursor_heap.taken_out(items, cursor_heap.place_of(items, object), cfg.removal_only_sinks)


@active_cursors.action
def update_cursor(cfg: Config, s: State, cursor: Name, position: Position | None) -> Step[State, None]:
    """The cursor has moved, forward or backward; without a position it is not tracked any more. Unknown: nothing."""
    if position is None and cfg.calls == "of_the_broker":
        return refused(s, "illegal_argument", "the broker takes no position away")
    old = find(s, cursor)
    if old is None or (old.position is None and not cfg.update_begins_tracking):
        return s, None
    if position is None and cfg.container == "heap":
        return refused(s, "null_pointer", "a heap cannot compare a missing position")
    new = old._replace(position=position)
    s = s._replace(cursors=with_cursor(s, new), version=s.version + 1)
    if cfg.container != "definition":
        s = kept_after_move(cfg, s, old, new)
    return s, None


def kept_after_move(cfg: Config, s: State, old: Cursor, new: Cursor) -> State:
    """What a shipped container keeps in mind after an update."""
    if s.nodes is not None:
        return s._replace(nodes=cursor_list.updated(cfg, s.nodes, old.object, new.position))
    if cfg.container == "heap" and old.position is not None and new.position is not None:
        return s._replace(items=cursor_heap.moved(s.items, cursor_heap.place_of(s.items, old.object), new.position))
    items = s.items if old.position is None else without_item(cfg, s.items, old.object)
    if new.position is not None:
        items = with_item(cfg, items, Item(new.position, new.object, new.cursor))
    return s._replace(items=items)


@active_cursors.action
def cursor_updated(cfg: Config, s: State, cursor: Name, position: Position | None) -> Step[State, Slowest | None]:
    """An update that tells what the slowest position was and is; None for a cursor that it does not move."""
    if not cfg.tells_slowest:
        return refused(s, "unsupported", "the list is brought up to date lazily and does not know")
    old = find(s, cursor)
    asked, previous = slowest_position(cfg, s)
    after, refusal = update_cursor(cfg, asked, cursor, position)
    if refusal is not None:
        return s, refusal
    if old is None or (old.position is None and not cfg.update_begins_tracking):
        return s, None
    after, new = slowest_position(cfg, after)
    return after, Slowest(previous, new)


@active_cursors.action
def remove_cursor(cfg: Config, s: State, cursor: Name) -> Step[State, bool]:
    """The cursor leaves; true if it was there. The grace period begins anew, whoever is left."""
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
        return s._replace(nodes=cursor_list.removed(cfg, s.nodes, old.object, len(s.cursors))), True
    if s.items and old.position is not None:
        return s._replace(items=without_item(cfg, s.items, old.object)), True
    return s, True


@active_cursors.action
def remove_while_iterating(cfg: Config, s: State, cursor: Name) -> Step[State, None]:
    """Who goes over the cursors cannot remove one on the way."""
    if find(s, cursor) is None:
        return refused(s, "illegal_state", "the iteration does not come to this cursor")
    return s, Failed("illegal_argument", "a cursor is removed by its name, not by the iterator")


# ---- questions ----------------------------------------------------------------------------------------


def flush(cfg: Config, s: State) -> State:
    """A question about positions first brings the list up to date."""
    if s.nodes is None:
        return s
    nodes = cursor_list.flushed(cfg, s.nodes)
    return s if nodes == s.nodes else s._replace(nodes=nodes)


@active_cursors.action
def get_cursor(cfg: Config, s: State, cursor: Name) -> Step[State, Found | None]:
    """The cursor of a name, which is the one that was added last under it."""
    c = find(s, cursor)
    return s, None if c is None else Found(cursor, c.object)


@active_cursors.action
def number_at_same_position_or_before(cfg: Config, s: State, cursor: Name) -> Step[State, int]:
    """How many tracked cursors stand at the cursor's position or before it, itself included ("Expected Read Count").

    All at one position get the same number; a cursor that is unknown or not tracked gets 0.
    """
    if not cfg.counts_cursors:
        return refused(s, "unsupported", "the heap does not count")
    s = flush(cfg, s)
    rank = shipped_rank(cfg, s, cursor)
    if rank is None:
        return s, Failed("null_pointer", "the cursor has a position in the list and was never counted")
    return s, rank


def shipped_rank(cfg: Config, s: State, cursor: int) -> int | None:
    """The rank that the container gives when it is up to date."""
    if s.nodes is None and not s.items:
        return rank_of(s, cursor)
    c = find(s, cursor)
    if c is None:
        return 0
    if s.nodes is not None:
        return cursor_list.rank(s.nodes, c.object)
    return 0 if c.position is None else cursor_heap.rank(s.items, c.position)


@active_cursors.action
def slowest_position(cfg: Config, s: State) -> Step[State, Position | None]:
    """The smallest tracked position, or None."""
    if cfg.container == "definition":
        return s, slowest_of(s)
    s = flush(cfg, s)
    return s, shipped_slowest(s)


def shipped_slowest(s: State) -> Position | None:
    """The slowest position that a container gives when it is up to date."""
    if s.nodes is not None:
        return cursor_list.slowest(s.nodes)
    return s.items[0].position if s.items else None


@active_cursors.action
def size(cfg: Config, s: State) -> Step[State, int]:
    """How many cursors there are, tracked or not: the reads that are expected of an entry that is added now."""
    return s, len(s.cursors)


@active_cursors.action
def should_cache_added_entries(cfg: Config, s: State) -> Step[State, bool]:
    """Whether an entry that is added now is worth caching: there are cursors, or the last one may soon be back."""
    return s, bool(s.cursors) or in_grace_period(cfg, s)


@active_cursors.action
def advance(cfg: Config, s: State, millis: Millis) -> Step[State, None]:
    """Time passes."""
    return s._replace(now_ms=s.now_ms + millis), None


# ---- names and observers ------------------------------------------------------------------------------


@active_cursors.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Objects are numbered in the order in which they stand, the clock starts at now, and no time is longer ago
    than the grace period: a longer one is as good as that one. The version only tells changes apart.

    No answer of the set depends on the age of items at one position: those of replaced cursors are numbered by name.
    """
    numbers = {c.object: number for number, c in enumerate(s.cursors, 1)}
    cursors = tuple([c._replace(object=numbers[c.object]) for c in s.cursors])
    nodes = None if s.nodes is None else cursor_list.renamed(s.nodes, numbers)
    is_set = cfg.container == "sorted_set"
    for item in sorted(s.items, key=age_aside) if is_set else s.items:
        numbers.setdefault(item.object, len(numbers) + 1)
    items = tuple([item._replace(object=numbers[item.object]) for item in s.items])
    ago = min(s.now_ms - s.last_removal_ms, max(cfg.grace_ms, 0))
    ordered = tuple(sorted(items)) if is_set else items
    return State(0, cursors, -ago, len(numbers) + 1, 0, s.durables, nodes, ordered)


def age_aside(item: Item) -> tuple[Position, int]:
    """Where an item stands, and for whom."""
    return item.position, item.cursor


@active_cursors.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """The members, the ranks of all of them, and who is slowest: what questions asked now would answer."""
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
    """The names that stand at the slowest position: any of them is the slowest cursor."""
    if s.items:
        return sorted(item.cursor for item in s.items if item.position == slowest)
    return [c.cursor for c in s.cursors if c.position is not None and c.position == slowest]


# ---- profiles -----------------------------------------------------------------------------------------

reference = active_cursors.profile("reference", "what this specification holds to be right", Config())

recorded = active_cursors.profile(
    "pulsar-2026-07",
    "the shipped list as recorded from Apache Pulsar master, 2026-07-23, in the broker's own use",
    Config(
        calls="of_the_broker",
        container="linked_list",
        tells_slowest=False,
        tail_keeps_counts=True,
        untracked_keeps_position=True,
        adding_keeps_removal=True,
        readding_keeps_object="until_flushed",
        drops_removed_nodes=False,
    ),
)

recorded_any_call = active_cursors.profile(
    "pulsar-2026-07-any-call",
    "the shipped list, also in uses that its broker avoids",
    recorded.config._replace(calls="any"),
)

recorded_heap = active_cursors.profile(
    "pulsar-2026-07-heap",
    "the shipped heap as recorded from Apache Pulsar master, 2026-07-23, in the broker's own use",
    Config(
        calls="of_the_broker",
        container="heap",
        counts_cursors=False,
        update_begins_tracking=False,
        removal_only_sinks=True,
        adding_leaves_old_item=True,
    ),
)

recorded_heap_any_call = active_cursors.profile(
    "pulsar-2026-07-heap-any-call",
    "the shipped heap, also in uses that its broker avoids",
    recorded_heap.config._replace(calls="any"),
)

recorded_set = active_cursors.profile(
    "pulsar-2026-07-set",
    "the sorted set that the list is compared with, as recorded from Apache Pulsar master, 2026-07-23",
    Config(container="sorted_set", adding_leaves_old_item=True),
)

later = active_cursors.profile(
    "pulsar-2026-09",
    "the shipped list with pull requests 26511 and 26629, which bound what it remembers and mend untracking; any call",
    Config(
        container="linked_list",
        tells_slowest=False,
        tail_keeps_counts=True,
        adding_keeps_removal=True,
        readding_keeps_object="while_present",
    ),
)

mended_list = active_cursors.profile(
    "mended-list", "the shipped list with every rule mended: the definition, lazily", Config(container="linked_list")
)

mended_heap = active_cursors.profile(
    "mended-heap",
    "the shipped heap with every rule mended: the definition of the slowest, without counts",
    Config(container="heap", counts_cursors=False),
)

slowest_only = active_cursors.profile(
    "slowest-only", "the definition, as far as a heap can answer: no counts", Config(counts_cursors=False)
)
