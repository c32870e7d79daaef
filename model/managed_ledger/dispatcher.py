"""Dispatchers: how entries are read, sent to consumers, and put back for replay; used by `machine.py`.

    replay_now         the entries of the next replay read
    start_read         makes requests to the entry cache: one for a normal read, one for each entry of a replay read
    answered           a request completes or fails. If a request of a read failed, the read ends when none of its
                       requests is pending, and its entries are discarded
    dispatch_entries   sends each entry of a complete read, puts it back for replay, or skips it if it is acknowledged
    discard            releases the entries of a read that has failed or is not dispatched

The count of an entry is its expected read count in the entry cache.
"""

from __future__ import annotations

from model import range_cache as ranges
from model.entry_cache import machine as entry_cache
from model.entry_cache.state import Answered, Issued, Reading
from model.managed_ledger.cursors import is_acknowledged, moved, rewind, with_subscription
from model.managed_ledger.state import (
    Config,
    Consumer,
    Dispatched,
    Kind,
    Read,
    ReadEntry,
    State,
    Subscription,
    cache_config,
    entries_from,
    following,
    key_of,
    type_of,
    valid_from,
)
from model.positions import Position

# ---- a subscription and its consumers -----------------------------------------------------------------


def with_read(sub: Subscription, kind: Kind, read: Read | None) -> Subscription:
    """Returns the subscription with a new value of its normal or replay read."""
    return sub._replace(normal_read=read) if kind == "normal" else sub._replace(replay_read=read)


def read_of(sub: Subscription, kind: Kind) -> Read | None:
    """Returns the normal or the replay read of a subscription."""
    return sub.normal_read if kind == "normal" else sub.replay_read


def cancelled(sub: Subscription) -> Subscription:
    """Returns the subscription with its outstanding reads cancelled (`shouldRewindBeforeReadingOrReplaying`).

    A cancelled read still completes or fails. When the read is dispatched or has failed, the cursor is rewound.
    `is_discarded` decides whether the entries of a complete read are discarded.
    """
    return sub._replace(
        normal_read=sub.normal_read and sub.normal_read._replace(cancelled=True),
        replay_read=sub.replay_read and sub.replay_read._replace(cancelled=True),
    )


def with_consumer(sub: Subscription, consumer: Consumer) -> Subscription:
    """Returns the subscription with a consumer: added, or in place of the consumer that has the same number."""
    others = [c for c in sub.consumers if c.consumer != consumer.consumer]
    return sub._replace(consumers=tuple(sorted((*others, consumer))))


def added_to_replay(sub: Subscription, positions: tuple[Position, ...]) -> Subscription:
    """`PersistentDispatcherMultipleConsumers.addMessageToReplay`: adds unacknowledged entries to the replay queue."""
    wanted = [p for p in positions if not is_acknowledged(sub, p)]
    return sub._replace(replay=tuple(sorted({*sub.replay, *wanted})))


def without_replay(sub: Subscription, position: Position) -> Subscription:
    """Returns the subscription after an entry left its replay queue."""
    return sub._replace(replay=tuple([p for p in sub.replay if p != position]))


def consumer_for(cfg: Config, sub: Subscription, subscription: int, position: Position) -> Consumer | None:
    """Returns the consumer to which an entry would be sent; None without consumers.

    Key_Shared: the consumer of the entry's key. Failover: the active consumer. Shared: the first consumer with permits;
    None if no consumer has permits.
    """
    if not sub.consumers:
        return None
    if type_of(cfg, subscription) == "key_shared":
        return sub.consumers[key_of(cfg, position) % len(sub.consumers)]
    if type_of(cfg, subscription) == "failover":
        return sub.consumers[0]
    return next((c for c in sub.consumers if c.permits > 0), None)


def is_draining(cfg: Config, sub: Subscription, consumer: Consumer, position: Position) -> bool:
    """`DrainingHashesTracker.shouldBlockStickyKeyHash`: whether a consumer other than a given one holds an entry's key.

    A consumer holds a key if it holds any entry with this key.
    """
    key = key_of(cfg, position)
    return any(key_of(cfg, p) == key for c in sub.consumers if c.consumer != consumer.consumer for p in c.pending)


def is_blocked(cfg: Config, sub: Subscription, kind: Kind, position: Position) -> bool:
    """Whether the replay queue has an entry of the same key that must be sent before a given entry (`replay_order`).

    earlier_of_key: any earlier entry of the key. any_of_key: any entry of the key, if the given entry comes from a
    normal read; an entry of a replay read is not blocked.
    """
    key = key_of(cfg, position)
    if cfg.replay_order == "earlier_of_key":
        return any(p < position and key_of(cfg, p) == key for p in sub.replay)
    return kind == "normal" and any(key_of(cfg, p) == key for p in sub.replay)


# ---- starting a read ----------------------------------------------------------------------------------


def permits_of(cfg: Config, sub: Subscription, subscription: int) -> int:
    """Returns the sum of the permits of all consumers; of a failover subscription, the active consumer's permits."""
    counted = sub.consumers[:1] if type_of(cfg, subscription) == "failover" else sub.consumers
    return sum([c.permits for c in counted])


def replay_now(cfg: Config, sub: Subscription, subscription: int, max_entries: int) -> tuple[Position, ...]:
    """`PersistentDispatcherMultipleConsumers.getMessagesToReplayNow`: returns the entries of the next replay read.

    These are the first `max_entries` entries of the replay queue. Key_Shared (`ReplayPositionFilter`): entries whose
    consumer has no permit left, or whose key is draining, do not count; each of the others takes a permit.
    """
    if type_of(cfg, subscription) != "key_shared":
        return sub.replay[:max_entries]
    permits = {c.consumer: c.permits for c in sub.consumers}
    taken = []
    for position in sub.replay:
        consumer = consumer_for(cfg, sub, subscription, position)
        if consumer and permits[consumer.consumer] > 0 and not is_draining(cfg, sub, consumer, position):
            permits[consumer.consumer] -= 1
            taken.append(position)
    return tuple(taken[:max_entries])


def entries_to_read(cfg: Config, s: State, subscription: int, max_entries: int) -> tuple[Position, ...]:
    """Returns the positions of the next normal read: the first entries from the read position on, in one ledger.

    Key_Shared with `limits_look_ahead`: the entries of the read plus those of the replay queue are at most `look_ahead`
    (`isNormalReadAllowed`, `getMaxEntriesReadLimit`).
    """
    sub = s.subscriptions[subscription]
    if type_of(cfg, subscription) == "key_shared" and cfg.limits_look_ahead:
        max_entries = min(max_entries, cfg.look_ahead - len(sub.replay))
    first = valid_from(s, sub.read_position)
    available = sum([each.entries for each in s.ledgers if each.ledger == first.ledger]) - first.entry
    return tuple([Position(first.ledger, first.entry + i) for i in range(min(max_entries, available))])


def start_read(
    cfg: Config, s: State, subscription: int, kind: Kind, positions: tuple[Position, ...]
) -> tuple[State, tuple[Issued, ...]]:
    """Returns the state after a read of these positions has started, and the storage reads that it issued.

    A normal read first moves the read position to its first entry, which may be in a later ledger. A request completes
    in this step if all its entries are cached. The expected read count of entries from storage is set when storage
    answers (`machine.expected_read_count`).
    """
    cache_cfg, sub = cache_config(cfg, s.ledgers), s.subscriptions[subscription]
    min_replayed_position = sub.replay[0] if cfg.replay_order == "any_of_key" and sub.replay else None
    ranges_to_read = [(p, p) for p in positions]
    if kind == "normal":
        ranges_to_read = [(positions[0], positions[-1])]
        sub = sub._replace(read_position=positions[0])
    number = s.caches.next_request  # the entry cache numbers requests consecutively
    numbers = tuple(range(number, number + len(ranges_to_read)))
    read = Read(numbers, entries=(), cancelled=False, failed=False, min_replayed_position=min_replayed_position)
    s = moved(cfg, s, subscription, with_read(sub, kind, read))
    issued: list[Issued] = []
    for low, high in ranges_to_read:
        caches, reading = entry_cache.read(cache_cfg, s.caches, 0, low.ledger, low.entry, high.entry, expected_reads=0)
        assert isinstance(reading, Reading)
        s = all_answered(cfg, s._replace(caches=caches), reading.answered)
        issued.extend(reading.issued)
    return s, tuple(issued)


# ---- completing a read --------------------------------------------------------------------------------


def reader_of(s: State, request: int) -> tuple[int, Kind]:
    """Returns the subscription that made a request to the entry cache, and the kind of its read."""
    for number, sub in enumerate(s.subscriptions):
        if sub.normal_read is not None and request in sub.normal_read.requests:
            return number, "normal"
        if sub.replay_read is not None and request in sub.replay_read.requests:
            return number, "replay"
    raise AssertionError(f"no read made the request {request}")


def all_answered(cfg: Config, s: State, answers: tuple[Answered, ...]) -> State:
    """Returns the state after requests to the entry cache completed or failed."""
    for each in answers:
        subscription, kind = reader_of(s, each.request)
        s = answered(cfg, s, subscription, kind, each)
    return s


def answered(cfg: Config, s: State, subscription: int, kind: Kind, answer: Answered) -> State:
    """`readEntriesComplete` or `readEntriesFailed`: a request of a read completes or fails.

    When a normal read completes, the read position moves past its last entry, unless that entry is before the
    mark-delete position. A read with a failed request ends when its last request has completed or failed: the entries
    of the read are discarded, and if the read was cancelled, the cursor is rewound.
    """
    sub = s.subscriptions[subscription]
    read = read_of(sub, kind)
    assert read is not None
    found = [ReadEntry(each.position, each.copy) for each in answer.entries]
    read = read._replace(
        requests=tuple([n for n in read.requests if n != answer.request]),
        entries=tuple(sorted((*read.entries, *found))),
        failed=read.failed or not answer.ok,
    )
    sub = with_read(sub, kind, read)
    if kind == "normal" and found and following(found[-1].position) > sub.mark_delete:
        sub = sub._replace(read_position=following(found[-1].position))
    s = moved(cfg, s, subscription, sub)
    if read.requests or not read.failed:
        return s
    s = discard(cfg, s, read.entries)
    s = with_subscription(s, subscription, with_read(s.subscriptions[subscription], kind, None))
    return rewind(cfg, s, subscription) if read.cancelled else s


# ---- dispatching --------------------------------------------------------------------------------------


def discard(cfg: Config, s: State, entries: tuple[ReadEntry, ...]) -> State:
    """Releases the entries of a discarded read. Only with `discard_lowers_count`, their counts fall by 1."""
    change = ranges.marked_read if cfg.discard_lowers_count else ranges.unchanged
    for each in entries:
        caches, _ = ranges.change_read_count(s.caches.ranges, each.copy, change, keep_copy=False)
        s = s._replace(caches=s.caches._replace(ranges=caches))
    return s


def released(cfg: Config, s: State, entry: ReadEntry) -> State:
    """`Entry.release` of an entry that was sent, skipped or put back: its count falls by 1."""
    caches, _ = entry_cache.release(cache_config(cfg, s.ledgers), s.caches, entry.copy)
    return s._replace(caches=caches)


def put_back(cfg: Config, s: State, subscription: int, entry: ReadEntry) -> State:
    """`PersistentDispatcherMultipleConsumers.addEntryToReplay`: an entry joins the replay queue unless acknowledged.

    With `replay_raises_count`, the count of the entry, acknowledged or not, rises by 1 before the entry is released.
    """
    if cfg.replay_raises_count:
        caches, _ = entry_cache.replay(cache_config(cfg, s.ledgers), s.caches, entry.copy)
        s = s._replace(caches=caches)
    s = released(cfg, s, entry)
    return with_subscription(s, subscription, added_to_replay(s.subscriptions[subscription], (entry.position,)))


def send(s: State, subscription: int, consumer: Consumer, entry: ReadEntry) -> State:
    """`Consumer.sendMessages`: an entry uses a permit, becomes a pending ack and leaves the replay queue.

    The entry is released in a later step (`machine.release`).
    """
    sub = s.subscriptions[subscription]
    pending = tuple(sorted({*consumer.pending, entry.position}))
    sub = with_consumer(sub, consumer._replace(permits=consumer.permits - 1, pending=pending))
    sub = without_replay(sub, entry.position)
    return with_subscription(s, subscription, sub._replace(sent=(*sub.sent, entry)))


def is_discarded(cfg: Config, sub: Subscription, kind: Kind, read: Read) -> bool:
    """Whether the entries of a complete read are discarded.

    The entries of any read are discarded if no consumer is connected. The entries of a cancelled normal read are always
    discarded, those of a cancelled replay read with `discards_cancelled_replay_read`.
    """
    return not sub.consumers or (read.cancelled and (kind == "normal" or cfg.discards_cancelled_replay_read))


def is_overtaken(cfg: Config, sub: Subscription, subscription: int, read: Read) -> bool:
    """Key_Shared: whether the replay queue now has an entry before `Read.min_replayed_position`.

    A read whose `min_replayed_position` is None is not overtaken. A cancelled replay read is not overtaken either: the
    replay queue was cleared when the read was cancelled, and stays empty until the read is dispatched.
    """
    if type_of(cfg, subscription) != "key_shared" or read.min_replayed_position is None or not sub.replay:
        return False
    return sub.replay[0] < read.min_replayed_position


def dispatch_entries(cfg: Config, s: State, subscription: int, kind: Kind, read: Read) -> tuple[State, Dispatched]:
    """`PersistentDispatcherMultipleConsumers.trySendMessagesToConsumers`: dispatches the entries of a read in order.

    An acknowledged entry is skipped. Any other entry is sent to its consumer (`consumer_for`) if the consumer can take
    the entry (`can_take`), and otherwise put back for replay.
    """
    sent: list[tuple[Position, int]] = []
    put_back_positions: list[Position] = []
    skipped: list[Position] = []
    for entry in read.entries:
        sub = s.subscriptions[subscription]
        consumer = consumer_for(cfg, sub, subscription, entry.position)
        if is_acknowledged(sub, entry.position):
            skipped.append(entry.position)
            s = with_subscription(released(cfg, s, entry), subscription, without_replay(sub, entry.position))
        elif consumer is not None and can_take(cfg, sub, subscription, kind, consumer, entry.position):
            sent.append((entry.position, consumer.consumer))
            s = send(s, subscription, consumer, entry)
        else:
            put_back_positions.append(entry.position)
            s = put_back(cfg, s, subscription, entry)
    return s, Dispatched(tuple(sent), tuple(put_back_positions), tuple(skipped), ())


def can_take(
    cfg: Config, sub: Subscription, subscription: int, kind: Kind, consumer: Consumer, position: Position
) -> bool:
    """`PersistentStickyKeyDispatcherMultipleConsumers.canDispatchEntry`: whether an entry may be sent to a consumer.

    Failover: always. Shared: the consumer needs a permit. Key_Shared: the consumer needs a permit, and the entry must
    wait neither for entries in the replay queue (`is_blocked`) nor for another consumer (`is_draining`).
    """
    subscription_type = type_of(cfg, subscription)
    if subscription_type == "failover":
        return True
    if consumer.permits <= 0:
        return False
    if subscription_type == "shared":
        return True
    return not is_blocked(cfg, sub, kind, position) and not is_draining(cfg, sub, consumer, position)


def unread_entries(s: State, subscription: int) -> int:
    """`ManagedCursorImpl.getNumberOfEntries`: the number of unacknowledged entries from the read position on."""
    sub = s.subscriptions[subscription]
    return entries_from(s, sub.read_position) - sum([p >= sub.read_position for p in sub.acked])
