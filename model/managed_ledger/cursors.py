"""Cursors of a managed ledger (`ManagedCursorImpl`) and their effect on the cache; used by `machine.py`.

    moved                  a read or mark-delete position changes; the container of active cursors is updated
    activate, deactivate   a cursor is added to the container of active cursors, or removed from it
    rewind                 the read position becomes the position after the mark-delete position
    marked_deleted         all entries up to a position are acknowledged

The slowest cursor is the one with the smallest position in the container. Without counts
(`cacheEvictionByExpectedReadCount` off), the entries before its position are removed from the cache when a move of a
cursor changes the smallest position, and when a cursor becomes inactive. If no active cursor is left, all entries are
removed.
"""

from __future__ import annotations

from model.active_cursors import machine as active_cursors
from model.entry_cache import machine as entry_cache
from model.managed_ledger.state import Config, State, Subscription, active_config, cache_config, following, valid_from
from model.positions import Position


def is_active(s: State, subscription: int) -> bool:
    """Whether the cursor of a subscription is in the container of active cursors."""
    return active_cursors.find(s.active, subscription) is not None


def tracked_position(cfg: Config, sub: Subscription) -> Position:
    """Returns the position that the container of active cursors has for a cursor while the cursor is active."""
    return sub.mark_delete if cfg.invalidates_by_mark_delete and not cfg.counts_reads else sub.read_position


def with_subscription(s: State, subscription: int, new: Subscription) -> State:
    """Returns the state with a new value of a subscription. If its cursor moves, use `moved`."""
    return s._replace(subscriptions=s.subscriptions[:subscription] + (new,) + s.subscriptions[subscription + 1 :])


def moved(cfg: Config, s: State, subscription: int, new: Subscription) -> State:
    """`ManagedLedgerImpl.updateActiveCursor`: returns the state with a new value of a subscription.

    If the tracked position of the cursor changed, the container of active cursors is updated. Without counts, if this
    changes the slowest position, the entries before the new slowest position are removed from the cache.
    """
    position = tracked_position(cfg, new)
    has_moved = position != tracked_position(cfg, s.subscriptions[subscription])
    s = with_subscription(s, subscription, new)
    if not has_moved:
        return s
    active, slowest = active_cursors.cursor_updated(active_config(cfg), s.active, subscription, position)
    s = s._replace(active=active)
    # The container ignores an update of an inactive cursor, and then returns no `Slowest`.
    if cfg.counts_reads or not isinstance(slowest, active_cursors.Slowest) or slowest.previous == slowest.new:
        return s
    return invalidate_up_to_slowest(cfg, s)


def invalidate_up_to_slowest(cfg: Config, s: State) -> State:
    """`ManagedLedgerImpl.invalidateEntriesUpToSlowestReaderPosition`: removes the entries before the slowest cursor.

    Without active cursors, all entries are removed.
    """
    cache_cfg = cache_config(cfg, s.ledgers)
    slowest = active_cursors.slowest_of(s.active)
    if slowest is None:
        caches, _ = entry_cache.clear_cache(cache_cfg, s.caches, 0)
    else:
        caches, _ = entry_cache.invalidate_entries_before(cache_cfg, s.caches, 0, slowest)
    return s._replace(caches=caches)


def activate(cfg: Config, s: State, subscription: int) -> State:
    """`ManagedLedgerImpl.activateCursor`: adds a cursor to the container of active cursors, if it is inactive."""
    if is_active(s, subscription):
        return s
    position = tracked_position(cfg, s.subscriptions[subscription])
    active, _ = active_cursors.add_cursor(active_config(cfg), s.active, subscription, position, durable=True)
    return s._replace(active=active)


def deactivate(cfg: Config, s: State, subscription: int) -> State:
    """`ManagedLedgerImpl.deactivateCursor`: removes a cursor from the container of active cursors.

    With counts, cached entries stay. Without counts, if the cursor was active, `invalidate_up_to_slowest` removes
    entries from the cache.
    """
    active, was_active = active_cursors.remove_cursor(active_config(cfg), s.active, subscription)
    s = s._replace(active=active)
    return invalidate_up_to_slowest(cfg, s) if was_active and not cfg.counts_reads else s


def rewind(cfg: Config, s: State, subscription: int) -> State:
    """`ManagedCursorImpl.rewind`: the read position becomes the next one after the mark-delete position."""
    sub = s.subscriptions[subscription]
    return moved(cfg, s, subscription, sub._replace(read_position=valid_from(s, following(sub.mark_delete))))


def is_acknowledged(sub: Subscription, position: Position) -> bool:
    """Whether an entry is acknowledged, individually or by the mark-delete position."""
    return position <= sub.mark_delete or position in sub.acked


def individually_deleted(cfg: Config, s: State, subscription: int, position: Position) -> State:
    """`ManagedCursorImpl.asyncDelete`: acknowledges one entry.

    If the entry directly follows the mark-delete position, the mark-delete position moves (`marked_deleted`).
    """
    sub = s.subscriptions[subscription]
    s = with_subscription(s, subscription, sub._replace(acked=tuple(sorted((*sub.acked, position)))))
    return marked_deleted(cfg, s, subscription, sub.mark_delete)


def marked_deleted(cfg: Config, s: State, subscription: int, mark: Position) -> State:
    """`ManagedCursorImpl.setAcknowledgedPosition`: acknowledges all entries up to a position.

    The mark-delete position becomes that position, and then advances over individually acknowledged entries that
    directly follow. A read position that is not after the new mark-delete position moves to the position after it.
    Entries up to the mark-delete position leave the replay queue and the pending acks of consumers.
    """
    sub = s.subscriptions[subscription]
    while (after := valid_from(s, following(mark))) in sub.acked:
        mark = after
    consumers = [c._replace(pending=tuple([p for p in c.pending if p > mark])) for c in sub.consumers]
    read_position = sub.read_position if sub.read_position > mark else valid_from(s, following(mark))
    new = sub._replace(
        mark_delete=mark,
        acked=tuple([p for p in sub.acked if p > mark]),
        read_position=read_position,
        consumers=tuple(consumers),
        replay=tuple([p for p in sub.replay if p > mark]),
    )
    return moved(cfg, s, subscription, new)
