"""Guarantees of the container of active cursors. The expected answers are computed from the cursors, by brute force.

A cursor with a position is tracked. An unknown name is one that no cursor has. The linked list records updates and
removals as pending. A query of counts or of the slowest position applies them (a flush).
"""

from __future__ import annotations

from typing import NamedTuple

from invariants.properties import Event, always, eventually, history, sometimes
from model.active_cursors.linked_list import CursorList, Node
from model.active_cursors.machine import (
    Config,
    Cursor,
    Found,
    Slowest,
    State,
    active_cursors,
)
from model.machine import Failed, Refused
from model.positions import Position

COUNT = "number_at_same_position_or_before"
#: The actions that ask, those that move a cursor, and those that change cursors.
QUERIES = ("get_cursor", COUNT, "slowest_position", "size", "should_cache_added_entries")
MOVES = ("update_cursor", "cursor_updated")
CHANGES = ("add_cursor", *MOVES, "remove_cursor")


def tracked(s: State) -> list[Position]:
    """Returns the positions of the tracked cursors."""
    return [c.position for c in s.cursors if c.position is not None]


def named(s: State, cursor: int) -> Cursor | None:
    """Returns the cursor of a name, or None."""
    return next((c for c in s.cursors if c.cursor == cursor), None)


def own_cursor(s: State, event: Event) -> Cursor | None:
    """Returns the cursor that is the argument of an event, or None for an unknown name."""
    return named(s, event.arguments["cursor"])


def is_list(cfg: Config) -> bool:
    """Returns whether the container is the linked list, which is flushed lazily."""
    return cfg.container == "linked_list"


def was_refused(event: Event) -> bool:
    """Returns whether a call was rejected."""
    return isinstance(event.outcome, Refused)


def may_be_refused(cfg: Config, before: State, event: Event) -> bool:
    """Returns whether an addition or update may be rejected.

    If `calls` is of_the_broker, the addition of a name that has a cursor is rejected, and so is an update without a
    position. The heap also rejects an update without a position, unless it ignores the update.
    """
    if event.name == "add_cursor":
        return cfg.calls == "of_the_broker" and own_cursor(before, event) is not None
    return event.arguments["position"] is None and (cfg.calls == "of_the_broker" or cfg.container == "heap")


# ---- answers of queries -------------------------------------------------------------------------------


@always(active_cursors, on=(COUNT,), given=lambda cfg: cfg.counts_cursors)
def expected_read_count_equals_cursors_at_or_before(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry read from storage expects reads of the tracked cursors at the reader's position or before it.

    The reading cursor itself and cursors at the same position are included. For an unknown or untracked cursor the
    count is 0.
    """
    c = own_cursor(before, event)
    if c is None or c.position is None:
        return bool(event.outcome == 0)
    return bool(event.outcome == len([p for p in tracked(before) if p <= c.position]))


@always(active_cursors, on=("slowest_position",))
def slowest_position_is_smallest_tracked_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The slowest position is the smallest of all tracked positions, and None if no cursor is tracked."""
    return bool(event.outcome == min(tracked(before), default=None))


@always(active_cursors, on=("cursor_updated",), given=lambda cfg: cfg.update_returns_slowest)
def update_returns_slowest_position_before_and_after(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`cursor_updated` returns the slowest positions before and after the update; None if the update is ignored.

    An update of an unknown name is ignored. Without `update_starts_tracking`, an update of an untracked cursor is
    ignored, too.
    """
    if was_refused(event):
        return may_be_refused(cfg, before, event)
    c = own_cursor(before, event)
    if c is None or (c.position is None and not cfg.update_starts_tracking):
        return event.outcome is None
    return bool(event.outcome == Slowest(min(tracked(before), default=None), min(tracked(after), default=None)))


@always(active_cursors, on=("size",))
def size_includes_untracked_cursors(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`size`, the expected read count of an added entry, is the number of active cursors, tracked or untracked."""
    return bool(event.outcome == len({c.cursor for c in before.cursors}))


@always(active_cursors, on=("should_cache_added_entries",), given=lambda cfg: cfg.has_grace_period)
def added_entries_are_cached_within_grace_period(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Added entries are cached exactly while cursors exist or the grace period runs.

    The grace period starts when a cursor is removed or the container is created.
    """
    elapsed_ms = before.now_ms - before.last_removal_ms
    return event.outcome is (len(before.cursors) > 0 or 0 <= elapsed_ms <= cfg.grace_ms - 1)


@always(active_cursors, on=("should_cache_added_entries",), given=lambda cfg: not cfg.has_grace_period)
def added_entries_are_cached_only_for_cursors(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Without a grace period, added entries are cached exactly while cursors exist."""
    return event.outcome is (len(before.cursors) > 0)


@always(active_cursors, on=("add_cursor", "get_cursor"))
def name_refers_to_cursor_added_last(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A name refers to the cursor object that was added last under this name; a removed name refers to none.

    The number that `add_cursor` returns is that of the new object, and larger than the number of every other object. A
    rejected call changes nothing.
    """
    if was_refused(event):
        return bool(before == after)
    if event.name == "add_cursor":
        c = own_cursor(after, event)
        return c is not None and c.object == event.outcome and all(c.object > old.object for old in before.cursors)
    c = own_cursor(before, event)
    return bool(event.outcome == (None if c is None else Found(c.cursor, c.object)))


@always(active_cursors, on=QUERIES)
def query_changes_no_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A query changes nothing, except that it may apply pending updates to the linked list."""
    return bool(after._replace(nodes=before.nodes) == before)


# ---- effects of changes -------------------------------------------------------------------------------


@always(active_cursors, on=("add_cursor",))
def added_cursor_has_given_position_and_durability(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `add_cursor`, the name has a cursor with the given position and durability.

    `add_cursor` is rejected only if `calls` is of_the_broker and the name already has a cursor.
    """
    if was_refused(event):
        return may_be_refused(cfg, before, event)
    c, given = own_cursor(after, event), event.arguments
    return c is not None and (c.position, c.durable) == (given["position"], given["durable"])


@always(active_cursors, on=MOVES)
def update_sets_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an update, the cursor has the given position, forward or backward; without a position, it is untracked.

    An update of an unknown name adds no cursor. `may_be_refused` says when an update may be rejected. Without
    `update_returns_slowest`, the call `cursor_updated` may also be rejected.
    """
    old, new = own_cursor(before, event), own_cursor(after, event)
    if was_refused(event):
        is_unsupported = event.name == "cursor_updated" and not cfg.update_returns_slowest
        return new == old and (is_unsupported or may_be_refused(cfg, before, event))
    return bool(new == (None if old is None else old._replace(position=event.arguments["position"])))


@always(active_cursors, on=("remove_cursor",))
def removed_name_is_unknown(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `remove_cursor` the name has no cursor; `remove_cursor` returns whether the name had one."""
    return own_cursor(after, event) is None and event.outcome is (own_cursor(before, event) is not None)


@always(active_cursors)
def call_changes_only_its_own_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call adds, changes or removes only the cursor of its name; a query changes no cursor."""
    if after.cursors is before.cursors:
        return True
    own = event.arguments.get("cursor") if event.name in CHANGES else None
    others = [[c for c in s.cursors if c.cursor != own] for s in (before, after)]
    return others[0] == others[1]


@always(active_cursors, on=("update_cursor", "cursor_updated", "remove_cursor"))
def call_on_unknown_name_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update or removal of an unknown name changes nothing."""
    return own_cursor(before, event) is not None or after == before


@always(active_cursors)
def only_removal_restarts_grace_period(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The grace period starts at the last call of `remove_cursor` that removed a cursor, initially at the creation."""
    removes = event.name == "remove_cursor" and event.outcome is True
    return after.last_removal_ms == (before.now_ms if removes else before.last_removal_ms)


@always(active_cursors, on=("advance",))
def time_advances_by_given_milliseconds(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`advance` adds the given milliseconds to the clock and changes nothing else."""
    return after == before._replace(now_ms=before.now_ms + event.arguments["millis"])


@always(active_cursors)
def version_counts_effective_changes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The container's change counter (`version`) increases by 1 at each addition, removal and effective update.

    An update of an unknown name has no effect. Without `update_starts_tracking`, an update of an untracked cursor has
    no effect.
    """
    moves = event.name in MOVES and not was_refused(event) and own_cursor(before, event) is not None
    if moves and not cfg.update_starts_tracking:
        c = own_cursor(before, event)
        moves = c is not None and c.position is not None
    removes = event.name == "remove_cursor" and event.outcome is True
    adds = event.name == "add_cursor" and not was_refused(event)
    return after.version - before.version == int(moves or removes or adds)


@always(active_cursors)
def durable_cursors_are_counted(cfg: Config, s: State) -> bool:
    """The count of durable cursors equals the number of cursors that are durable."""
    return s.durables == len([c for c in s.cursors if c.durable])


# ---- data structures of shipped containers ------------------------------------------------------------


def retained(nodes: CursorList) -> int:
    """Returns how many nodes of removed cursors the list retains."""
    return len([n for n in (*nodes.linked, *nodes.unlinked) if not n.present])


@always(active_cursors, on=CHANGES, given=is_list)
def flush_is_not_observable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Applying pending updates to the linked list before a call changes neither its outcome nor later answers."""
    flushed, _ = active_cursors.step(cfg, before, "slowest_position", ())
    arguments = tuple(event.arguments.values())
    flushed, outcome = active_cursors.step(cfg, flushed, event.name, arguments)
    return bool(outcome == event.outcome and active_cursors.observe(cfg, flushed) == active_cursors.observe(cfg, after))


@always(active_cursors, given=is_list)
def nodes_of_removed_cursors_are_bounded(cfg: Config, s: State) -> bool:
    """The linked list retains at most max(`removals_before_cleanup`, cursors) nodes of removed cursors."""
    return s.nodes is None or retained(s.nodes) <= max(cfg.removals_before_cleanup, len(s.cursors))


def is_repaired_list(cfg: Config) -> bool:
    """Returns whether the container is the linked list, and every rule of the list has the reference's value."""
    rules = cfg.tail_keeps_counts, cfg.untracked_keeps_position, cfg.add_keeps_pending_removal
    return is_list(cfg) and not any(rules) and cfg.readd_keeps_object == "never" and cfg.drops_removed_nodes


@always(active_cursors, given=is_repaired_list)
def list_links_tracked_nodes_in_order_with_their_counts(cfg: Config, s: State) -> bool:
    """The linked list is sorted by position, and each of its nodes stores how many nodes are at or before it.

    The list has each node with a position once. A node outside the list has no position and no counter. The nodes of
    present cursors have exactly the objects of the cursors. The list retains at most as many nodes of removed cursors
    as there were removals since the last cleanup or flush.
    """
    if s.nodes is None:
        return True
    linked, unlinked = s.nodes.linked, s.nodes.unlinked
    objects = [n.object for n in (*linked, *unlinked)]
    positions = [n.position for n in linked if n.position is not None]
    counts = [s.nodes.counts[n.counter - 1] if n.counter else None for n in linked]
    return (
        len(set(objects)) == len(objects)
        and {c.object for c in s.cursors} == {n.object for n in (*linked, *unlinked) if n.present}
        and len(positions) == s.nodes.tracked == len(linked)
        and positions == sorted(positions)
        and counts == [len([p for p in positions if p <= own]) for own in positions]
        and all((n.position, n.counter) == (None, 0) for n in unlinked)
        and retained(s.nodes) <= s.nodes.removed
    )


@always(active_cursors, given=is_list)
def pending_updates_are_a_heap_by_position(cfg: Config, s: State) -> bool:
    """The queue of pending updates is a binary heap: the largest position first, nodes without a position last."""
    if s.nodes is None or not s.nodes.updates:
        return True
    nodes: dict[int, Node] = {n.object: n for n in (*s.nodes.linked, *s.nodes.unlinked)}
    keys = [(n.position is not None, n.position or (0, 0)) for n in (nodes[o] for o in s.nodes.updates)]
    return all(keys[(i - 1) // 2] >= keys[i] for i in range(1, len(keys)))


@always(active_cursors, on=("remove_cursor", "update_cursor"))
def canonical_form_renames_only(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The canonical form, by which the explorer merges states, differs only in clock, version and object numbers.

    Clock and version are 0, and objects are numbered from 1. The canonical form limits the time since the last removal
    to the grace period. It keeps names, positions, the count of durable cursors, and the data structure except for the
    numbers of objects and counters. The canonical form of a canonical form is the same state.
    """
    canonical = active_cursors.canonical
    renamed = canonical(cfg, after)
    same = (renamed.now_ms, renamed.version, renamed.durables) == (0, 0, after.durables) and [
        (c.cursor, c.position, c.durable) for c in renamed.cursors
    ] == [(c.cursor, c.position, c.durable) for c in after.cursors]
    elapsed_ms, renamed_elapsed_ms = (s.now_ms - s.last_removal_ms for s in (after, renamed))
    limit_ms = max(cfg.grace_ms, 0) * cfg.has_grace_period
    numbers = [c.object for c in renamed.cursors]
    if not same or renamed_elapsed_ms != min(elapsed_ms, limit_ms) or sorted(numbers) != [*range(1, len(numbers) + 1)]:
        return False
    return canonical(cfg, renamed) == renamed and _list_form(cfg, renamed) == _list_form(cfg, after)


def _list_form(cfg: Config, s: State) -> object:
    """Returns the data structure without the numbers of objects and counters; the items of a set are sorted."""
    if s.nodes is None:
        items = [(item.position, item.cursor) for item in s.items]
        return sorted(items) if cfg.container == "sorted_set" else items
    nodes = (*s.nodes.linked, *s.nodes.unlinked)
    # Object -> its node, with the value of its counter in place of the numbers of the object and the counter. The
    # fields n[2:6] are `present`, `position`, `pending` and `removing`; n[0] is the name.
    shown = {n.object: (n[0], n[2:6], s.nodes.counts[n.counter - 1] if n.counter else None) for n in nodes}
    queues = [[shown[o] for o in queue] for queue in (s.nodes.updates, s.nodes.removals)]
    outside = sorted(repr(shown[n.object]) for n in s.nodes.unlinked)
    return [shown[n.object] for n in s.nodes.linked], outside, queues, s.nodes.tracked, s.nodes.removed


@always(active_cursors, on=("remove_while_iterating",))
def iteration_removes_no_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Removal of a cursor through an iterator changes nothing: it fails, or is rejected for an unknown name."""
    return after == before and isinstance(event.outcome, Failed if own_cursor(before, event) else Refused)


@always(active_cursors, given=lambda cfg: cfg.container in ("heap", "sorted_set"))
def items_are_exactly_the_tracked_cursors(cfg: Config, s: State) -> bool:
    """A container that is a heap or a set holds each tracked cursor once, at its position, and nothing else."""
    held = sorted((item.cursor, item.object, item.position) for item in s.items)
    return held == [(c.cursor, c.object, c.position) for c in s.cursors if c.position is not None]


# ---- coverage goals -----------------------------------------------------------------------------------


def counts(cfg: Config) -> bool:
    """Returns whether the container counts cursors."""
    return cfg.counts_cursors


def has_grace_period(cfg: Config) -> bool:
    """Returns whether added entries are cached for a grace period."""
    return cfg.has_grace_period


class Move(NamedTuple):
    """A tracked cursor that an update moves, and its positions."""

    cursor: Cursor  # before the update
    old: Position
    new: Position


def move_of(before: State, event: Event, after: State) -> Move | None:
    """Returns the move that an update makes; None if the cursor is not tracked both before and after the update."""
    old, new = own_cursor(before, event), own_cursor(after, event)
    if was_refused(event) or old is None or old.position is None or new is None or new.position is None:
        return None
    return Move(old, old.position, new.position)


def ties(s: State, c: Cursor) -> int:
    """Returns how many other cursors are at the position of a cursor."""
    return len([p for p in tracked(s) if p == c.position]) - 1


@sometimes(active_cursors, on=(COUNT,), given=counts)
def count_with_ties_and_cursors_on_both_sides(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A query of the expected read count names a cursor, while others are before, at and after its position."""
    c = own_cursor(before, event)
    if c is None or c.position is None or not ties(before, c):
        return False
    return min(tracked(before)) < c.position < max(tracked(before))


@sometimes(active_cursors, on=(COUNT,), given=counts)
def count_of_untracked_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A query of the expected read count names an untracked cursor, while other cursors have positions."""
    c = own_cursor(before, event)
    return c is not None and c.position is None and bool(tracked(before))


@sometimes(active_cursors, on=MOVES)
def backward_move_becomes_slowest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor moves back (seek) to before the positions of all other cursors."""
    move = move_of(before, event, after)
    return move is not None and move.new < min(tracked(before))


@sometimes(active_cursors, on=MOVES)
def slowest_cursor_overtakes_another(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The only slowest cursor moves past another cursor, which is then the slowest."""
    move = move_of(before, event, after)
    if move is None or move.old != min(tracked(before)) or ties(before, move.cursor):
        return False
    return move.new > min(tracked(after))


@sometimes(active_cursors, on=MOVES)
def one_of_tied_fastest_cursors_moves_forward(cfg: Config, before: State, event: Event, after: State) -> bool:
    """There are at least four cursors, and one of several at the largest position moves forward.

    With fewer than four cursors, one update makes the list rebuild.
    """
    move = move_of(before, event, after)
    if move is None or len(before.cursors) < 4:
        return False
    return move.old == max(tracked(before)) < move.new and ties(before, move.cursor) > 0


@sometimes(active_cursors, on=MOVES)
def fastest_cursor_moves_back_to_tie(cfg: Config, before: State, event: Event, after: State) -> bool:
    """There are at least four cursors, and the only one at the largest position moves back to the second largest."""
    move = move_of(before, event, after)
    if move is None or len(before.cursors) < 4 or ties(before, move.cursor):
        return False
    others = [p for p in tracked(before) if p < move.old]
    return move.old == max(tracked(before)) and bool(others) and move.new == max(others)


@sometimes(active_cursors, on=("remove_cursor",))
def removal_between_slowest_and_fastest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor strictly between the slowest and the fastest position is removed."""
    c = own_cursor(before, event)
    return c is not None and c.position is not None and min(tracked(before)) < c.position < max(tracked(before))


@sometimes(active_cursors, on=("update_cursor",), given=lambda cfg: cfg.update_starts_tracking)
def untracked_cursor_becomes_tracked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update gives a position to an untracked cursor."""
    old, new = own_cursor(before, event), own_cursor(after, event)
    return old is not None and new is not None and old.position is None and new.position is not None


@sometimes(active_cursors, on=MOVES, given=lambda cfg: cfg.container != "heap" and cfg.calls == "any")
def tracked_cursor_becomes_untracked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update without position untracks a cursor."""
    old, new = own_cursor(before, event), own_cursor(after, event)
    return old is not None and new is not None and old.position is not None and new.position is None


@history(active_cursors, initial=lambda cfg: frozenset(), on=("add_cursor",))
def additions(
    cfg: Config, value: frozenset[tuple[int, bool]], before: State, event: Event, after: State
) -> frozenset[tuple[int, bool]]:
    """The added names: (name, False) from the first addition of a name on, (name, True) from the second on."""
    name = event.arguments["cursor"]
    return value if was_refused(event) else value | {(name, (name, False) in value)}


@sometimes(active_cursors, on=("get_cursor",), history=(additions,))
def name_added_again_is_looked_up(
    cfg: Config, before: State, event: Event, after: State, added: frozenset[tuple[int, bool]]
) -> bool:
    """A lookup finds a cursor whose name was added more than once."""
    return isinstance(event.outcome, Found) and (event.arguments["cursor"], True) in added


@sometimes(active_cursors, on=("update_cursor",))
def update_of_unknown_name(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update has an unknown name, while cursors exist."""
    return own_cursor(before, event) is None and bool(before.cursors)


@sometimes(active_cursors, on=("should_cache_added_entries",), given=has_grace_period)
def caching_without_cursors(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Added entries are cached although no cursor exists: the grace period has not passed."""
    return event.outcome is True and not before.cursors


@sometimes(active_cursors, on=("should_cache_added_entries",), given=has_grace_period)
def grace_period_ends_exactly(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When exactly the grace period has passed, and no cursor exists, an added entry is not cached."""
    return event.outcome is False and cfg.grace_ms > 0 and before.now_ms - before.last_removal_ms == cfg.grace_ms


@sometimes(active_cursors)
def cursors_in_two_ledgers(cfg: Config, s: State) -> bool:
    """The slowest and the fastest cursor are in different ledgers, and the slowest has the larger entry id."""
    slowest, fastest = min(tracked(s), default=None), max(tracked(s), default=None)
    if slowest is None or fastest is None:
        return False
    return slowest.ledger < fastest.ledger and slowest.entry > fastest.entry


@sometimes(active_cursors, given=is_list)
def removed_node_stays_linked(cfg: Config, s: State) -> bool:
    """The linked list still has the node of a removed cursor, while other cursors exist."""
    return s.nodes is not None and any(not n.present for n in s.nodes.linked) and bool(s.cursors)


@sometimes(active_cursors, given=is_list)
def incremental_flush_is_due(cfg: Config, s: State) -> bool:
    """Some updates are pending, few enough to be applied to the linked list one by one, without a rebuild."""
    return s.nodes is not None and 0 < len(s.nodes.updates) < s.nodes.tracked // 2


# ---- liveness -----------------------------------------------------------------------------------------


@eventually(active_cursors, fair=("advance",))
def caching_without_cursors_ends(cfg: Config, s: State) -> bool:
    """If no cursor exists and only the clock advances, the grace period ends, and added entries are not cached then."""
    return bool(s.cursors) or s.now_ms - s.last_removal_ms >= cfg.grace_ms


@eventually(active_cursors, fair=("slowest_position",), given=is_list)
def query_flushes_everything(cfg: Config, s: State) -> bool:
    """After a query of positions, no update or removal is pending, and no node of a removed cursor is retained."""
    nodes = s.nodes
    return nodes is None or (not nodes.updates and not nodes.removals and not retained(nodes))
