"""Guarantees of a managed ledger: delivery, order, active cursors, reads, and the cache.

"With counts" means that `cacheEvictionByExpectedReadCount` is on. A consumer "holds" the entries in its pending acks.
Each subscription has its own consumers, so consumers of several subscriptions may hold the same entry. The "trigger" is
98 % of the maximum size of the cache: a larger cache needs an eviction task, which shrinks the cache to the
"watermark", the fraction `Config.watermark` of the maximum size. A cursor "caches reads" if its `isCacheReadEntry` is
set: without counts, entries that the cursor reads from storage are then cached.
"""

from __future__ import annotations

import math

from invariants.managed_ledger.counts import (
    active,
    cached,
    is_acked,
    positions_of_answer,
    reader,
    with_counts,
)
from invariants.managed_ledger.steps import entries_between, is_type, key, log, pending
from invariants.properties import Event, always, eventually, sometimes
from model.machine import Refused
from model.managed_ledger.machine import managed_ledger
from model.managed_ledger.state import Config, Dispatched, Read, Started, State, Subscription
from model.positions import Position


def without_counts(cfg: Config) -> bool:
    """Whether `counts_reads` is off."""
    return not cfg.counts_reads


def unread_entries(s: State, sub: Subscription) -> int:
    """Returns the number of entries from the read position on that are not acknowledged."""
    return sum(p >= sub.read_position and not is_acked(sub, p) for p in log(s))


def reads(sub: Subscription) -> list[Read]:
    """Returns the outstanding reads of a subscription."""
    return [read for read in (sub.normal_read, sub.replay_read) if read is not None]


# ---- delivery -----------------------------------------------------------------------------------------


@always(managed_ledger)
def unacknowledged_entry_before_read_position_is_delivered_or_read_again(cfg: Config, s: State) -> bool:
    """An unacknowledged entry before the read position is held by a consumer, or will be dispatched.

    The entry will be dispatched if it is in the replay queue, or in a read that is not dispatched. It is also enough
    that the cursor will be rewound, because no consumer is connected or a read was cancelled.
    """
    for sub in s.subscriptions:
        if not sub.consumers or any(read.cancelled for read in reads(sub)):
            continue
        kept = {*pending(sub), *sub.replay, *[each.position for read in reads(sub) for each in read.entries]}
        if not kept.union(sub.acked).issuperset(entries_between(s, sub.mark_delete, sub.read_position)):
            return False
    return True


@always(managed_ledger, on=("dispatch",))
def dispatch_sends_entry_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A dispatch sends no entry twice, and no entry that was held or acknowledged before the dispatch."""
    if not isinstance(event.outcome, Dispatched):
        return True
    sub = before.subscriptions[event.arguments["subscription"]]
    sent = [position for position, _ in event.outcome.sent]
    return len(set(sent)) == len(sent) and not any(p in pending(sub) or is_acked(sub, p) for p in sent)


@always(managed_ledger)
def entry_is_held_once(cfg: Config, s: State) -> bool:
    """An entry is held by at most one consumer; a held entry is not in the replay queue and not acknowledged."""
    return all(
        len({*held, *sub.replay}) == len(held) + len(sub.replay) and not any(is_acked(sub, p) for p in held)
        for sub in s.subscriptions
        for held in [pending(sub)]
    )


@always(managed_ledger)
def held_entry_is_before_read_position(cfg: Config, s: State) -> bool:
    """An entry that a consumer holds is before the read position."""
    return all(p < sub.read_position for sub in s.subscriptions for p in pending(sub))


@always(managed_ledger)
def key_is_held_by_one_consumer_in_order(cfg: Config, s: State) -> bool:
    """Key_Shared: at most one consumer holds entries of a key, and these are the first unacknowledged ones of the key.

    If an entry is held, all earlier unacknowledged entries with the same key are held.
    """
    for number, sub in enumerate(s.subscriptions):
        if not is_type(cfg, number, "key_shared"):
            continue
        holders = [(key(cfg, p), c.consumer, p) for c in sub.consumers for p in c.pending]
        if len({(k, c) for k, c, _ in holders}) != len({k for k, _, _ in holders}):
            return False  # two consumers hold entries of one key
        held = {p for _, _, p in holders}
        for k, _, position in holders:
            earlier = [p for p in entries_between(s, sub.mark_delete, position) if key(cfg, p) == k and p not in held]
            if not all(is_acked(sub, p) for p in earlier):
                return False
    return True


@always(managed_ledger)
def positions_are_consistent(cfg: Config, s: State) -> bool:
    """The mark-delete position is before the read position. The read position is not after the end of the log.

    Entries that are individually acknowledged, held, or in the replay queue are after the mark-delete position. Permits
    are nonnegative.
    """
    return all(
        sub.mark_delete < sub.read_position <= (s.ledgers[-1].ledger, s.ledgers[-1].entries)
        and all(p > sub.mark_delete for p in (*sub.acked, *sub.replay, *pending(sub)))
        and all(c.permits >= 0 for c in sub.consumers)
        for sub in s.subscriptions
    )


@always(managed_ledger, on=("trim_consumed_ledgers",))
def unacknowledged_entry_is_not_deleted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Trimming deletes only entries that all subscriptions have acknowledged.

    Exactly the deleted entries leave the cache.
    """
    remaining = set(log(after))
    deleted = [p for p in log(before) if p not in remaining]
    return all(is_acked(sub, p) for sub in before.subscriptions for p in deleted) and (
        set(cached(after)) == set(cached(before)) - set(deleted)
    )


# ---- active cursors -----------------------------------------------------------------------------------


@always(managed_ledger)
def active_cursor_has_consumers(cfg: Config, s: State) -> bool:
    """A cursor is active only if its subscription has consumers. With counts, a cursor with consumers is active."""
    connected = {number for number, sub in enumerate(s.subscriptions) if sub.consumers}
    return set(active(s)) == connected if cfg.counts_reads else set(active(s)) <= connected


@always(managed_ledger)
def active_cursors_are_at_their_positions(cfg: Config, s: State) -> bool:
    """The container of active cursors (`model/active_cursors`) has the read position of each active cursor.

    Without counts and with `invalidates_by_mark_delete`, the container has the mark-delete position.
    """
    by_mark = cfg.invalidates_by_mark_delete and not cfg.counts_reads
    subs = s.subscriptions
    return all(p == (subs[i].mark_delete if by_mark else subs[i].read_position) for i, p in active(s).items())


@always(managed_ledger, on=("check_backlogged_cursors",), given=without_counts)
def cursor_is_active_below_backlogged_threshold(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `checkBackloggedCursors`, a cursor with consumers is active exactly if its backlog is below the threshold.

    The backlog is the number of unread entries (`unread_entries`).
    """
    return all(
        (number in active(after)) == (unread_entries(after, sub) < cfg.backlogged_threshold)
        for number, sub in enumerate(after.subscriptions)
        if sub.consumers
    )


@always(managed_ledger, on=("check_cursors_to_cache_entries",), given=without_counts)
def cursor_with_similar_backlogs_caches_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `checkCursorsToCacheEntries`, reads of exactly the cursors with large, similar backlogs are cached.

    The backlog is the number of unread entries (`unread_entries`); it is large from `min_backlog_entries` on. At least
    `min_backlog_cursors` other cursors must have a similar backlog, which differs by at most `max_backlog_between`. If
    `min_backlog_cursors` is 0, the check changes nothing.
    """
    if cfg.min_backlog_cursors == 0:
        return before == after
    backlogs = [unread_entries(after, sub) for sub in after.subscriptions]

    def similar_others(own: int) -> int:
        most = cfg.max_backlog_between
        return sum(own - most <= backlog <= own + most for backlog in backlogs) - 1  # without the cursor itself

    return all(
        sub.caches_reads == (own >= cfg.min_backlog_entries and similar_others(own) >= cfg.min_backlog_cursors)
        for sub, own in zip(after.subscriptions, backlogs, strict=True)
    )


# ---- reading ------------------------------------------------------------------------------------------


@always(managed_ledger, on=("read_more_entries",))
def cached_entry_is_not_read_from_storage(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read takes cached entries from the cache: the storage reads that it issues include no cached entry.

    These storage reads include only entries of the read.
    """
    if not isinstance(event.outcome, Started):
        return True
    issued = {Position(each.ledger, i) for each in event.outcome.issued for i in range(each.first, each.last + 1)}
    return not issued & set(cached(before)) and issued <= set(event.outcome.positions)


@always(managed_ledger, on=("read_more_entries",))
def look_ahead_limits_normal_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Key_Shared: when a normal read starts, its entries plus those of the replay queue are at most `look_ahead`."""
    number = event.arguments["subscription"]
    if not isinstance(event.outcome, Started) or not is_type(cfg, number, "key_shared"):
        return True
    waiting, wanted = len(after.subscriptions[number].replay), event.outcome.positions
    return event.outcome.kind == "replay" or not wanted or waiting + len(wanted) <= cfg.look_ahead


@always(managed_ledger, on=("complete_storage_read",), given=without_counts)
def entry_from_storage_is_cached_only_if_reader_caches_reads(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """With counts off, an entry from storage is cached only for a normal read of a cursor that caches reads."""
    if isinstance(event.outcome, Refused) or not event.arguments["success"]:
        return True
    read = next(r for r in before.caches.reads if r.number == event.arguments["storage_read"])
    number, is_normal = reader(before, read.waiting[0])
    if is_normal and before.subscriptions[number].caches_reads:
        return True
    return not (set(cached(after)) - set(cached(before))) & positions_of_answer(before, event)


# ---- the cache ----------------------------------------------------------------------------------------


@always(managed_ledger, on=("add_entry",))
def added_entry_is_cached_while_it_may_be_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An added entry is cached exactly if a cursor is active or, with counts, the grace period is not over.

    On a shadow topic, or if the cache is disabled, no added entry is cached.
    """
    ago = before.active.now_ms - before.active.last_removal_ms
    wanted = bool(before.active.cursors) or (cfg.counts_reads and ago < cfg.grace_ms)
    return bool(event.outcome.cached == (wanted and not cfg.shadow_topic and cfg.max_bytes > 0))


@always(managed_ledger)
def total_above_trigger_has_eviction_queued(cfg: Config, s: State) -> bool:
    """While the size of the cache is above both the trigger and the watermark, an eviction task is queued.

    If `eviction_task` is immediate, the size is never above both. A task that finds a size between the trigger and a
    higher watermark evicts nothing.
    """
    is_above = s.caches.total_bytes > math.floor(max(0.98, cfg.watermark) * cfg.max_bytes)
    return not is_above or (cfg.eviction_task == "queued" and s.caches.tasks == 1)


@always(managed_ledger, on=("run_eviction_task",))
def eviction_task_ends_at_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction task shrinks a cache above the trigger to the watermark or less; otherwise it evicts nothing."""
    if isinstance(event.outcome, Refused):
        return True
    total = before.caches.total_bytes
    if total <= math.floor(0.98 * cfg.max_bytes):
        return after.caches.total_bytes == total
    return after.caches.total_bytes <= max(int(cfg.watermark * cfg.max_bytes), 0)


@always(managed_ledger, on=("do_cache_eviction",), given=lambda cfg: cfg.max_bytes > 0)
def expired_entry_is_evicted_unless_reads_are_expected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The periodic task evicts exactly the entries older than the TTL that are not due for requeue.

    An entry is due for requeue if it has expected reads and was requeued fewer times than the maximum, or if it was
    accessed and `extend_ttl_of_recently_accessed` is on. If the size of the cache is above the trigger, the task also
    evicts other entries; this property does not check that case.
    """
    if before.caches.total_bytes > math.floor(0.98 * cfg.max_bytes):
        return True
    oldest = before.caches.ranges.now_ns - cfg.ttl_ms * 10**6
    still_cached = cached(after)
    for position, e in cached(before).items():
        extends = (e.expected_reads or 0) > 0 and e.requeue_count < cfg.max_requeue_times
        extends = extends or (cfg.extend_ttl_of_recently_accessed and e.accessed)
        if (position in still_cached) != (e.timestamp_ns >= oldest or extends):
            return False
    return True


#: Actions that add entries to the cache, or can remove entries that are not before the slowest active cursor.
CACHE_CHANGES = (
    *("add_entry", "complete_storage_read", "do_cache_eviction", "run_eviction_task", "trim_consumed_ledgers"),
    "check_backlogged_cursors",  # can deactivate the slowest cursor, and then activate a slower one
)


@always(managed_ledger, on=tuple(n for n in managed_ledger.actions if n not in CACHE_CHANGES))
def cursor_removes_only_entries_before_slowest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call on a subscription adds no entry to the cache, and removes only entries before the slowest active cursor.

    If no cursor is active after the call, the call may have removed any entries. With counts, the call removes none.
    The property also applies to a rollover, an advance of the clock and `checkCursorsToCacheEntries`.
    """
    slowest = min((p for p in active(after).values() if p is not None), default=None)
    removed = set(cached(before)) - set(cached(after))
    if removed and (cfg.counts_reads or (slowest is not None and max(removed) >= slowest)):
        return False
    return set(cached(after)) <= set(cached(before))


#: Actions that can activate a cursor: `connect` with counts, `check_backlogged_cursors` without counts.
ACTIVATING = ("connect", "check_backlogged_cursors")


@always(managed_ledger, on=tuple(n for n in managed_ledger.actions if n not in ACTIVATING), given=without_counts)
def entries_before_slowest_cursor_leave_cache(cfg: Config, before: State, event: Event, after: State) -> bool:
    """With counts off, entries before the slowest active cursor leave the cache when the slowest position changes.

    When the last active cursor becomes inactive, all entries leave the cache.
    """
    was = min((p for p in active(before).values() if p is not None), default=None)
    now = min((p for p in active(after).values() if p is not None), default=None)
    if was == now:
        return True
    return not any(now is None or position < now for position in cached(after))


# ---- progress -----------------------------------------------------------------------------------------


@eventually(managed_ledger, fair=("complete_storage_read", "dispatch", "release"))
def every_read_ends_and_every_sent_entry_is_released(cfg: Config, s: State) -> bool:
    """If only storage reads, dispatches and releases occur, every read ends and every sent entry is released.

    A read ends when it is dispatched, or when it has failed.
    """
    return all(not reads(sub) and not sub.sent for sub in s.subscriptions) and not s.caches.requests


# ---- coverage -----------------------------------------------------------------------------------------


@sometimes(managed_ledger, on=("read_more_entries",))
def normal_read_issues_no_storage_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A normal read of several entries starts no storage read: they are cached, or being read for others."""
    read = event.outcome
    return isinstance(read, Started) and read.kind == "normal" and len(read.positions) > 1 and not read.issued


@sometimes(managed_ledger, on=("read_more_entries",), given=with_counts)
def replay_read_issues_no_storage_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay read (for redelivery) starts no storage read: its entries are cached, or being read for others."""
    return isinstance(event.outcome, Started) and event.outcome.kind == "replay" and not event.outcome.issued


@sometimes(managed_ledger, on=("complete_storage_read",))
def catch_up_read_is_cached(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that was read from storage is cached."""
    return bool(set(cached(after)) - set(cached(before)))


@sometimes(managed_ledger, on=("complete_storage_read",))
def storage_read_is_shared(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One storage read answers several requests."""
    return not isinstance(event.outcome, Refused) and len(event.outcome.answered) > 1


@sometimes(managed_ledger, on=("do_cache_eviction",), given=with_counts)
def expected_reads_extend_ttl(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The periodic task requeues an entry with expected reads."""
    was = cached(before)
    return any(e.requeue_count > was[p].requeue_count for p, e in cached(after).items() if (e.expected_reads or 0) > 0)


@sometimes(managed_ledger, on=("dispatch",))
def entry_waits_for_consumer_that_holds_its_key(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Key_Shared: an entry is not sent, because another consumer still holds entries of its key (PIP-379)."""
    number = event.arguments["subscription"]
    if not isinstance(event.outcome, Dispatched) or not is_type(cfg, number, "key_shared"):
        return False
    consumers = after.subscriptions[number].consumers
    return len(consumers) > 1 and any(
        key(cfg, held) == key(cfg, p) and c != consumers[key(cfg, p) % len(consumers)]
        for p in event.outcome.put_back
        for c in consumers
        for held in c.pending
    )


@sometimes(managed_ledger, on=("dispatch",))
def complete_replay_read_is_discarded(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay read has completed and is discarded, although a consumer is connected."""
    number = event.arguments["subscription"]
    return (
        isinstance(event.outcome, Dispatched)
        and event.arguments["kind"] == "replay"
        and bool(event.outcome.discarded and before.subscriptions[number].consumers)
    )


@sometimes(managed_ledger, on=("trim_consumed_ledgers",))
def cached_entries_are_trimmed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Trimming removes entries from the cache."""
    return len(cached(after)) < len(cached(before))


@sometimes(managed_ledger, on=("mark_delete",), given=without_counts)
def mark_delete_removes_cached_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """With counts switched off, a move of a mark-delete position removes entries from the cache."""
    return len(cached(after)) < len(cached(before))
