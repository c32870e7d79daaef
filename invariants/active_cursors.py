"""What a container of active cursors promises.

Each promise is said by brute force over the cursors as their callers last set them. A property that some shipped
version breaks says so in its last sentence.
"""

from __future__ import annotations

from invariants.properties import Event, always, eventually, sometimes
from model.active_cursors import linked_list as cursor_list
from model.active_cursors.machine import (
    Config,
    Cursor,
    Found,
    Slowest,
    State,
    active_cursors,
    find,
    observe,
    slowest_position,
)
from model.machine import Refused
from model.positions import Position

RANK = "number_at_same_position_or_before"
QUESTIONS = ("get_cursor", RANK, "slowest_position", "size", "should_cache_added_entries")
MOVES = ("update_cursor", "cursor_updated")
CHANGES = ("add_cursor", *MOVES, "remove_cursor")


def tracked(s: State) -> list[Position]:
    """Where the tracked cursors stand."""
    return [c.position for c in s.cursors if c.position is not None]


def own_cursor(s: State, event: Event) -> Cursor | None:
    """The cursor that an event names."""
    return find(s, event.arguments["cursor"])


def is_list(cfg: Config) -> bool:
    """The container is the list that is brought up to date lazily."""
    return cfg.container == "linked_list"


def was_refused(event: Event) -> bool:
    """The call was not allowed."""
    return isinstance(event.outcome, Refused)


# ---- what questions answer ----------------------------------------------------------------------------


@always(active_cursors, on=(RANK,), given=lambda cfg: cfg.counts_cursors)
def a_rank_counts_all_at_or_before(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor's rank is the number of tracked cursors at its position or before it, itself and ties included.

    The shipped list breaks it when its last cursor leaves a group of equal positions, or joins the one in front; the
    shipped set, when a present cursor is added again.
    """
    c = own_cursor(before, event)
    if c is None or c.position is None:
        return bool(event.outcome == 0)
    return bool(event.outcome == len([p for p in tracked(before) if p <= c.position]))


@always(active_cursors, on=("slowest_position",))
def the_slowest_is_the_minimum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The slowest position is the smallest of all tracked ones, and there is none when nothing is tracked.

    The shipped heap breaks it after a removal from its middle; it and the set, when a present cursor is added again;
    the shipped list, when a cursor is untracked twice.
    """
    return bool(event.outcome == min(tracked(before), default=None))


@always(active_cursors, on=("cursor_updated",), given=lambda cfg: cfg.tells_slowest)
def an_update_tells_the_slowest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update that moves a cursor tells the smallest position before and after it.

    The shipped heap breaks it after a removal from its middle; it and the set, when a present cursor is added again.
    """
    c = own_cursor(before, event)
    if was_refused(event) or event.outcome is None:
        return c is None or c.position is None or was_refused(event)
    return bool(event.outcome == Slowest(min(tracked(before), default=None), min(tracked(after), default=None)))


@always(active_cursors, on=("size",))
def the_size_counts_untracked_cursors_too(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new entry is expected to be read once by every active cursor, also by one whose position is not tracked."""
    return bool(event.outcome == len({c.cursor for c in before.cursors}))


@always(active_cursors, on=("should_cache_added_entries",))
def caching_goes_on_for_the_grace_period(cfg: Config, before: State, event: Event, after: State) -> bool:
    """New entries are cached while there are cursors, and then for less than the grace period since a removal."""
    waited = before.now_ms - before.last_removal_ms
    return event.outcome is (len(before.cursors) > 0 or 0 <= waited <= cfg.grace_ms - 1)


@always(active_cursors, on=("add_cursor", "get_cursor"))
def a_name_gives_the_cursor_added_last(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A name gives the cursor that was added last under it, and none once that was removed.

    The shipped list breaks it for a name that is added again: it keeps the cursor that it knew.
    """
    if was_refused(event):
        return bool(before == after)
    if event.name == "add_cursor":
        c = own_cursor(after, event)
        return c is not None and c.object == event.outcome and all(c.object > old.object for old in before.cursors)
    c = own_cursor(before, event)
    return bool(event.outcome == (None if c is None else Found(c.cursor, c.object)))


@always(active_cursors, on=QUESTIONS)
def a_question_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Asking changes no cursor and no time, whatever the container puts in order on the way."""
    return bool(after._replace(nodes=before.nodes) == before)


# ---- what calls do ------------------------------------------------------------------------------------


@always(active_cursors, on=("add_cursor",))
def an_addition_is_as_it_was_asked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an addition its name has a cursor with the position and durability that were given."""
    c, asked = own_cursor(after, event), event.arguments
    return was_refused(event) or (c is not None and (c.position, c.durable) == (asked["position"], asked["durable"]))


@always(active_cursors, on=MOVES)
def an_update_sets_the_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an update its cursor stands where it was said, forward or backward, or is not tracked any more.

    The shipped heap breaks it: a cursor that was added without a position never gets one.
    """
    old, new = own_cursor(before, event), own_cursor(after, event)
    if was_refused(event) or old is None:
        return new == old
    return bool(new == old._replace(position=event.arguments["position"]))


@always(active_cursors, on=("remove_cursor",))
def a_removal_frees_the_name(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal says whether the name had a cursor; afterwards it has none."""
    return own_cursor(after, event) is None and event.outcome is (own_cursor(before, event) is not None)


@always(active_cursors)
def a_call_concerns_its_own_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No call changes, adds or removes a cursor of another name than its own."""
    if after.cursors is before.cursors:
        return True
    own = event.arguments.get("cursor") if event.name in CHANGES else None
    others = [[c for c in s.cursors if c.cursor != own] for s in (before, after)]
    return others[0] == others[1]


@always(active_cursors, on=("update_cursor", "cursor_updated", "remove_cursor"))
def an_unknown_name_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update or removal of a name that has no cursor leaves everything as it was; it adds none."""
    return own_cursor(before, event) is not None or after == before


@always(active_cursors)
def only_a_removal_begins_the_grace_period(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The grace period is counted from the last removal that removed something, or from the start if there was none."""
    removes = event.name == "remove_cursor" and event.outcome is True
    return after.last_removal_ms == (before.now_ms if removes else before.last_removal_ms)


@always(active_cursors)
def the_version_tells_changes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The version rises by one at each addition, each removal and each update of a cursor that it moves."""
    moves = event.name in MOVES and not was_refused(event) and own_cursor(before, event) is not None
    if moves and not cfg.update_begins_tracking:
        c = own_cursor(before, event)
        moves = c is not None and c.position is not None
    removes = event.name == "remove_cursor" and event.outcome is True
    adds = event.name == "add_cursor" and not was_refused(event)
    return after.version - before.version == int(moves or removes or adds)


@always(active_cursors)
def durable_cursors_are_counted(cfg: Config, s: State) -> bool:
    """A container knows how many of its cursors are durable.

    The shipped heap breaks it: a cursor that is added again counts twice.
    """
    return s.durables == len([c for c in s.cursors if c.durable])


# ---- what a shipped container keeps in mind -----------------------------------------------------------


@always(active_cursors, on=CHANGES, given=is_list)
def a_flush_cannot_be_observed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Whether a question was asked before a call makes no difference to any answer after it.

    The shipped list breaks it: what its short cuts get wrong, a list that is built anew gets right.
    """
    asked, _ = slowest_position(cfg, before)
    arguments = tuple(event.arguments.values())
    asked, _ = active_cursors.step(cfg, asked, event.name, arguments)
    return bool(observe(cfg, asked) == observe(cfg, after))


@always(active_cursors, given=is_list)
def little_is_kept_of_removed_cursors(cfg: Config, s: State) -> bool:
    """Without a question, the list remembers no more removed cursors than there are present, or than a small number.

    The shipped list as recorded breaks it: removed cursors stay until a question is asked, which may be never.
    """
    return s.nodes is None or cursor_list.garbage(s.nodes) <= max(cfg.removals_before_cleanup, len(s.cursors))


@always(active_cursors, given=lambda cfg: cfg.container in ("heap", "sorted_set"))
def nothing_is_kept_of_replaced_cursors(cfg: Config, s: State) -> bool:
    """The heap and the set hold each tracked cursor once, at its position, and nothing else.

    As shipped they break it: a cursor that is added again leaves its old item behind, for ever.
    """
    held = sorted((item.cursor, item.object, item.position) for item in s.items)
    return held == [(c.cursor, c.object, c.position) for c in s.cursors if c.position is not None]


# ---- what a run must have seen ------------------------------------------------------------------------


def counts(cfg: Config) -> bool:
    """The container counts cursors."""
    return cfg.counts_cursors


def begins_tracking(cfg: Config) -> bool:
    """An update of an untracked cursor begins to track it."""
    return cfg.update_begins_tracking


def rank_of(event: Event) -> int:
    """The rank that was answered."""
    return event.outcome if isinstance(event.outcome, int) else 0


def ties(s: State, c: Cursor) -> int:
    """How many other cursors stand where this one does."""
    return len([p for p in tracked(s) if p == c.position]) - 1


@sometimes(active_cursors, on=(RANK,), given=counts)
def a_rank_with_ties_and_others_behind(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A rank is asked for a cursor that shares its position, while others stand before and after it."""
    c = own_cursor(before, event)
    if c is None or c.position is None or not ties(before, c):
        return False
    return min(tracked(before)) < c.position < max(tracked(before))


@sometimes(active_cursors, on=(RANK,), given=counts)
def a_rank_of_an_untracked_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A rank is asked for a member that is not tracked, while others are."""
    c = own_cursor(before, event)
    return c is not None and c.position is None and bool(tracked(before))


@sometimes(active_cursors, on=MOVES)
def a_backward_move_becomes_the_slowest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor moves backward, past all others."""
    c, position = own_cursor(before, event), event.arguments["position"]
    return c is not None and c.position is not None and position is not None and position < min(tracked(before))


@sometimes(active_cursors, on=MOVES)
def the_slowest_moves_past_another(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The only slowest cursor moves on, and another one is the slowest now."""
    c = own_cursor(before, event)
    if c is None or c.position is None or c.position != min(tracked(before)) or ties(before, c):
        return False
    return bool(tracked(after)) and find(after, c.cursor) not in [None, min_cursor(after)]


def min_cursor(s: State) -> Cursor:
    """A slowest cursor."""
    return min((c for c in s.cursors if c.position is not None), key=lambda c: c.position or Position(0, 0))


@sometimes(active_cursors, on=MOVES)
def the_last_leaves_a_group(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One of several cursors at the largest position moves on, in front of all."""
    c, position = own_cursor(before, event), event.arguments["position"]
    if c is None or c.position is None or position is None or len(before.cursors) < 4:
        return False
    return c.position == max(tracked(before)) < position and ties(before, c) > 0


@sometimes(active_cursors, on=MOVES)
def the_last_joins_a_group(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The only cursor at the largest position moves back to the one in front of it."""
    c, position = own_cursor(before, event), event.arguments["position"]
    if c is None or c.position is None or position is None or len(before.cursors) < 4 or ties(before, c):
        return False
    others = [p for p in tracked(before) if p < c.position]
    return c.position == max(tracked(before)) and bool(others) and position == max(others)


@sometimes(active_cursors, on=("remove_cursor",))
def a_removal_from_the_middle(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor leaves that is neither the slowest nor the fastest."""
    c = own_cursor(before, event)
    return c is not None and c.position is not None and min(tracked(before)) < c.position < max(tracked(before))


@sometimes(active_cursors, on=("update_cursor",), given=begins_tracking)
def an_untracked_cursor_is_tracked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update gives a position to a member that had none."""
    old, new = own_cursor(before, event), own_cursor(after, event)
    return old is not None and new is not None and old.position is None and new.position is not None


@sometimes(active_cursors, on=MOVES, given=lambda cfg: cfg.container != "heap" and cfg.calls == "any")
def a_tracked_cursor_is_untracked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update takes its position from a member."""
    old, new = own_cursor(before, event), own_cursor(after, event)
    return old is not None and new is not None and old.position is not None and new.position is None


@sometimes(active_cursors, on=("get_cursor",))
def a_name_had_another_cursor_before(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A name gives a cursor, and there is an older cursor that was added later than another name's."""
    found = event.outcome
    return isinstance(found, Found) and found.object > before.cursors[-1].object and found.object > len(before.cursors)


@sometimes(active_cursors, on=("update_cursor",))
def an_update_comes_too_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update names a cursor that there is not, while there are others."""
    return own_cursor(before, event) is None and bool(before.cursors)


@sometimes(active_cursors, on=("should_cache_added_entries",))
def cached_for_one_who_may_be_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """New entries are cached although there is no cursor."""
    return event.outcome is True and not before.cursors


@sometimes(active_cursors, on=("should_cache_added_entries",))
def the_grace_period_is_over_to_the_millisecond(cfg: Config, before: State, event: Event, after: State) -> bool:
    """New entries are not cached any more exactly when the grace period has passed."""
    return event.outcome is False and cfg.grace_ms > 0 and before.now_ms - before.last_removal_ms == cfg.grace_ms


@sometimes(active_cursors)
def cursors_in_two_ledgers(cfg: Config, s: State) -> bool:
    """Tracked cursors stand in different ledgers, the one with the larger entry in the earlier ledger."""
    last, first = max(tracked(s), default=None), min(tracked(s), default=None)
    return last is not None and first is not None and first.ledger < last.ledger and first.entry > last.entry


@sometimes(active_cursors, given=is_list)
def a_removed_cursor_waits_in_the_list(cfg: Config, s: State) -> bool:
    """The list still has a node of a cursor that is gone, among others that are present."""
    return s.nodes is not None and any(not n.present for n in s.nodes.linked) and bool(s.cursors)


@sometimes(active_cursors, given=is_list)
def few_of_many_are_queued(cfg: Config, s: State) -> bool:
    """So few nodes are queued that a flush will move them one by one."""
    if s.nodes is None:
        return False
    queued = len([n for n in s.nodes.linked + s.nodes.others if n.queued])
    return 0 < queued < s.nodes.tracked // 2


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(active_cursors, fair=("advance",))
def caching_without_cursors_ends(cfg: Config, s: State) -> bool:
    """When no cursor comes back, new entries are not cached for ever."""
    return bool(s.cursors) or s.now_ms - s.last_removal_ms >= cfg.grace_ms


@eventually(active_cursors, fair=("slowest_position",), given=is_list)
def a_question_leaves_nothing_pending(cfg: Config, s: State) -> bool:
    """Once questions are asked, nothing waits in the list and nothing of a removed cursor is left."""
    return s.nodes is None or (cursor_list.is_flushed(s.nodes) and not cursor_list.garbage(s.nodes))
