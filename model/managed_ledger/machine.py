"""A managed ledger with its cursors, dispatchers and entry cache (PIP-430, PIP-379).

A topic is stored in a managed ledger. Each subscription has a cursor, and a dispatcher that reads entries and sends
them to consumers. All cursors share the entry cache. The expected read count ("count") of a cached entry is the number
of reads that the cache still expects. If an entry with a positive count expires, it is requeued instead of evicted, a
limited number of times. So counts should agree with the reads that follow; this component shows where they do not.

Models `ManagedLedgerImpl`, `OpAddEntry`, `OpReadEntry`, `ManagedCursorImpl`, `PersistentTopic.checkBackloggedCursors`,
`PersistentDispatcherMultipleConsumers`, `PersistentStickyKeyDispatcherMultipleConsumers` and
`PersistentDispatcherSingleActiveConsumer`. Composed of `model/entry_cache` (one topic) and `model/active_cursors`.
One step is one add or rollover, one start of a read, one answer of storage, one `sendMessagesToConsumers`, one write of
a sent entry to its connection, one call of a client, one run of a task, or one advance of the clock.

    add        the entry is cached, and its count is the number of active cursors. If no cursor is active, the entry is
               cached only in the grace period, and has no count. A shadow topic caches no added entry
    read       a dispatcher starts a normal read, of entries from the read position on, or a replay read, of entries in
               the replay queue. Cached entries come from the cache, the others from storage
    storage    storage answers a storage read. All entries of the answer to a normal read get the same count: the number
               of active cursors that are then at the position of the reading cursor or before it; 0 if the reading
               cursor is inactive. The entries are cached if the count is positive. The answer to a replay read is not
               cached
    dispatch   each entry of a complete read is skipped if it is acknowledged, sent if a consumer can take it, and
               otherwise put back into the replay queue, which raises its count by 1
    release    lowers the count by 1. A skipped entry, and an entry that is put back, are released at once, a sent entry
               when it has been written to the connection
    inactive   a cursor is active while it has consumers. When the last consumer leaves, outstanding reads are
               cancelled. A cancelled read still completes or fails. Then its entries are released without a change of
               their counts, and the cursor is rewound to the position after the mark-delete position. If no read is
               outstanding when the next consumer connects, the cursor is rewound in that step

Without counts (`cacheEvictionByExpectedReadCount` off), two periodic checks by the backlog decide what is cached. The
backlog is the number of unread entries (`ManagedCursorImpl.getNumberOfEntries`). `checkBackloggedCursors` activates
cursors with consumers and a small backlog; there is no grace period. Entries before the slowest active cursor leave the
cache. `checkCursorsToCacheEntries` sets `isCacheReadEntry` of cursors with a large backlog that is similar to the
backlogs of enough other cursors. Entries that such a cursor reads from storage are cached with the count 1.

State: the ledgers of the topic, the entry cache, the container of active cursors, and for each subscription its cursor
and dispatcher: read and mark-delete position, acknowledged entries, consumers with permits and pending acks, replay
queue, the normal and the replay read, and entries that are being sent. A subscription of type "failover" sends to its
first consumer, the active one. A failover subscription with one consumer stands for an Exclusive one. The keys of a
Key_Shared subscription are distributed evenly over the connected consumers.

Not modelled: how a cursor persists its position (`model/batch_acks`); batches, delayed delivery, transactions;
`maxUnackedMessagesPer*`; the order in which a Shared dispatcher serves consumers (here the first with permits); the
hash ring; `keySharedLookAheadMsgInReplayThresholdPerConsumer`; a normal read in place of a replay read after replayed
entries could not be sent (`skipNextReplayToTriggerLookAhead`); `activeConsumerFailoverDelayTimeMillis` (here 0); that a
redelivery on a failover subscription is ignored while a read is outstanding (`internalRedeliverUnacknowledgedMessages`;
here the read is discarded); that a rewind after a cancelled replay read waits for the next normal read, and discards it
(`shouldRewindBeforeReadingOrReplaying`; here the cursor is rewound after the replay read); that a normal read leaves
out individually acknowledged entries (`ManagedCursorImpl.asyncReadEntriesWithSkip`, since apache/pulsar#21739; here
they are read, and skipped by `dispatch`), and continues in the next ledger (`OpReadEntry.checkReadCompletion`; here a
read ends at the end of a ledger); reads that wait at the end of the topic (here a read starts only if there are
entries); byte limits of reads, and the limiter (`model/entry_cache`); retention (here a closed ledger can be deleted
once all cursors have passed it); that a cursor is active when it is opened; data structures of the container
(`model/active_cursors`); other topics; threads.
"""

from __future__ import annotations

from typing import Annotated

from model.active_cursors import machine as active_cursors
from model.entry_cache import canonical_form
from model.entry_cache import machine as entry_cache
from model.entry_cache.state import Counters, Reading
from model.machine import Machine, Step, refused
from model.managed_ledger.cursors import (
    activate,
    deactivate,
    individually_deleted,
    is_acknowledged,
    marked_deleted,
    moved,
    rewind,
    with_subscription,
)
from model.managed_ledger.dispatcher import (
    added_to_replay,
    all_answered,
    cancelled,
    discard,
    dispatch_entries,
    entries_to_read,
    is_discarded,
    is_overtaken,
    permits_of,
    put_back,
    read_of,
    reader_of,
    released,
    replay_now,
    start_read,
    unread_entries,
    with_consumer,
    with_read,
)
from model.managed_ledger.state import (
    Added,
    Config,
    Consumer,
    Dispatched,
    Kind,
    Ledger,
    Read,
    ReadEntry,
    Started,
    State,
    Subscription,
    active_config,
    cache_config,
    exists,
    start,
    type_of,
)
from model.positions import Position
from model.values import UNITS_PER_MS, AtLeast, Below

managed_ledger = Machine(
    "managed_ledger",
    Config,
    start,
    source="PIP-430, PIP-379",
    java={
        "ManagedLedgerImpl": (
            "ledgerClosed",
            "createNewOpAddEntryForNewLedger",
            "trimConsumedLedgersInBackground",
            "checkCursorsToCacheEntries",
        ),
        "OpAddEntry": (),
        "OpReadEntry": (),
        "ManagedCursorImpl": ("asyncDelete", "asyncMarkDelete"),
        "PersistentDispatcherMultipleConsumers": (
            "addConsumer",
            "removeConsumer",
            "consumerFlow",
            "redeliverUnacknowledgedMessages",
            "readMoreEntries",
            "sendMessagesToConsumers",
        ),
        "PersistentTopic": ("checkBackloggedCursors",),
        "PersistentSubscription": ("resetCursor",),
        "RangeEntryCacheImpl": ("readFromStorage", "invalidateAllEntries"),
        "RangeEntryCacheManagerImpl": ("doCacheEviction", "doEvictToWatermarkWhenOverThreshold"),
        "EntryImpl": ("release",),
    },
)

SubscriptionNumber = Annotated[int, Below("subscriptions")]
ConsumerNumber = Annotated[int, Below("consumers")]
Millis = Annotated[int, AtLeast(0)]

# ---- the log ------------------------------------------------------------------------------------------


@managed_ledger.action
def add_entry(cfg: Config, s: State) -> Step[State, Added]:
    """`OpAddEntry`: adds an entry, and caches it if a cursor is active or the grace period is not over.

    With counts, the count of the entry is the number of active cursors. Without active cursors or without counts, the
    entry has no count. A shadow topic caches no added entry.
    """
    last = s.ledgers[-1]
    position = Position(last.ledger, last.entries)
    s = s._replace(ledgers=(*s.ledgers[:-1], Ledger(last.ledger, last.entries + 1)))
    _, caches_it = active_cursors.should_cache_added_entries(active_config(cfg), s.active)
    if cfg.shadow_topic or not caches_it:
        return s, Added(position, False)
    # With 0, the entry has no count (`EntryReadCountHandlerImpl.maybeCreate`).
    expected = len(s.active.cursors) if cfg.counts_reads else 0
    cache_cfg = cache_config(cfg, s.ledgers)
    size = cfg.entry_bytes[position.entry % len(cfg.entry_bytes)]
    caches, inserted = entry_cache.insert(cache_cfg, s.caches, 0, position, size, expected)
    return s._replace(caches=caches), Added(position, inserted is True)  # a disabled cache inserts nothing


@managed_ledger.action
def rollover_ledger(cfg: Config, s: State) -> Step[State, int]:
    """`ManagedLedgerImpl.ledgerClosed`, `createNewOpAddEntryForNewLedger`: opens a new ledger for later entries.

    Returns the id of the new ledger.
    """
    if not s.ledgers[-1].entries:
        return refused(s, "illegal_state", "the ledger is empty")
    new = s.ledgers[-1].ledger + 1
    return s._replace(ledgers=(*s.ledgers, Ledger(new, 0))), new


@managed_ledger.action
def trim_consumed_ledgers(cfg: Config, s: State) -> Step[State, int]:
    """`ManagedLedgerImpl.trimConsumedLedgersInBackground`: deletes the closed ledgers that no cursor needs any more.

    A closed ledger is not needed if the mark-delete position of every cursor is at or after its last entry. The entries
    of deleted ledgers leave the cache (`invalidateAllEntries`). Returns the number of deleted ledgers.
    """
    slowest = min([sub.mark_delete for sub in s.subscriptions])
    cache_cfg = cache_config(cfg, s.ledgers)
    deleted = [each for each in s.ledgers[:-1] if Position(each.ledger, each.entries - 1) <= slowest]
    for each in deleted:
        caches, _ = entry_cache.invalidate_ledger(cache_cfg, s.caches, 0, each.ledger)
        s = s._replace(caches=caches)
    return s._replace(ledgers=s.ledgers[len(deleted) :]), len(deleted)


# ---- consumers ----------------------------------------------------------------------------------------


@managed_ledger.action
def connect(cfg: Config, s: State, subscription: SubscriptionNumber, consumer: ConsumerNumber) -> Step[State, None]:
    """`PersistentDispatcherMultipleConsumers.addConsumer`: the first consumer rewinds and activates the cursor.

    A new active consumer of a failover subscription also rewinds the cursor. While reads are outstanding, the cursor is
    not rewound yet (`restart`). Without counts, only `checkBackloggedCursors` activates cursors.
    """
    sub = s.subscriptions[subscription]
    if any(c.consumer == consumer for c in sub.consumers):
        return refused(s, "illegal_state", "the consumer is connected")
    new = with_consumer(sub, Consumer(consumer, 0, ()))
    s = with_subscription(s, subscription, new)
    if not sub.consumers or active_consumer_changed(cfg, subscription, sub, new):
        s = restart(cfg, s, subscription)
    return (activate(cfg, s, subscription) if cfg.counts_reads else s), None


def active_consumer_changed(cfg: Config, subscription: int, before: Subscription, after: Subscription) -> bool:
    """Whether the active consumer of a failover subscription changed; `before` and `after` have consumers."""
    return type_of(cfg, subscription) == "failover" and before.consumers[0].consumer != after.consumers[0].consumer


def restart(cfg: Config, s: State, subscription: int) -> State:
    """Returns the state in which a subscription starts to deliver again from the mark-delete position.

    The pending acks of its consumers are cleared. Without outstanding reads, the cursor is rewound in this step.
    Otherwise, the reads are cancelled, and the cursor is rewound when each of them is dispatched or has failed.
    """
    sub = s.subscriptions[subscription]
    consumers = tuple([c._replace(pending=()) for c in sub.consumers])
    sub = cancelled(sub._replace(consumers=consumers))
    s = with_subscription(s, subscription, sub)
    return s if sub.normal_read or sub.replay_read else rewind(cfg, s, subscription)


@managed_ledger.action
def disconnect(cfg: Config, s: State, subscription: SubscriptionNumber, consumer: ConsumerNumber) -> Step[State, None]:
    """`PersistentDispatcherMultipleConsumers.removeConsumer`: moves the consumer's pending acks to the replay queue.

    No count rises. A failover subscription has no replay queue: if its active consumer leaves, the subscription
    delivers again from the mark-delete position. When the last consumer leaves a subscription of any type, the replay
    queue is cleared, the reads are cancelled and the cursor becomes inactive.
    """
    sub = s.subscriptions[subscription]
    gone = next((c for c in sub.consumers if c.consumer == consumer), None)
    if gone is None:
        return refused(s, "illegal_state", "the consumer is not connected")
    new = sub._replace(consumers=tuple([c for c in sub.consumers if c is not gone]))
    if not new.consumers:
        s = with_subscription(s, subscription, cancelled(new._replace(replay=())))
        return deactivate(cfg, s, subscription), None
    if type_of(cfg, subscription) != "failover":
        return with_subscription(s, subscription, added_to_replay(new, gone.pending)), None
    s = with_subscription(s, subscription, new)
    return (restart(cfg, s, subscription) if active_consumer_changed(cfg, subscription, sub, new) else s), None


@managed_ledger.action
def flow(
    cfg: Config,
    s: State,
    subscription: SubscriptionNumber,
    consumer: ConsumerNumber,
    permits: Annotated[int, AtLeast(1)],
) -> Step[State, None]:
    """`PersistentDispatcherMultipleConsumers.consumerFlow`: a consumer grants permits; an entry uses one permit."""
    sub = s.subscriptions[subscription]
    granting = next((c for c in sub.consumers if c.consumer == consumer), None)
    if granting is None:
        return refused(s, "illegal_state", "the consumer is not connected")
    new = with_consumer(sub, granting._replace(permits=granting.permits + permits))
    return with_subscription(s, subscription, new), None


@managed_ledger.action
def redeliver(cfg: Config, s: State, subscription: SubscriptionNumber, consumer: ConsumerNumber) -> Step[State, None]:
    """`PersistentDispatcherMultipleConsumers.redeliverUnacknowledgedMessages`: moves pending acks to the replay queue.

    The call moves all pending acks of one consumer. No count rises. A failover subscription delivers again from the
    mark-delete position if the consumer is the active one, and otherwise ignores the call.
    """
    sub = s.subscriptions[subscription]
    asking = next((c for c in sub.consumers if c.consumer == consumer), None)
    if asking is None:
        return refused(s, "illegal_state", "the consumer is not connected")
    if type_of(cfg, subscription) == "failover":
        return (restart(cfg, s, subscription) if asking is sub.consumers[0] else s), None
    new = added_to_replay(with_consumer(sub, asking._replace(pending=())), asking.pending)
    return with_subscription(s, subscription, new), None


# ---- reads --------------------------------------------------------------------------------------------


@managed_ledger.action
def read_more_entries(cfg: Config, s: State, subscription: SubscriptionNumber) -> Step[State, Started]:
    """`PersistentDispatcherMultipleConsumers.readMoreEntries`: starts a replay read, or else a normal read.

    First, acknowledged entries leave the replay queue. A normal read starts only if no entry can be replayed now. A
    read has at most as many entries as there are permits, and at most `dispatcherMaxReadBatchSize`. No read starts
    during a replay read, and no normal read during a normal read.
    """
    sub = s.subscriptions[subscription]
    max_entries = min(permits_of(cfg, sub, subscription), cfg.read_batch)
    if max_entries <= 0 or sub.replay_read is not None:
        return refused(s, "not_enabled", "no permits, or a replay read is outstanding")
    replay = tuple([p for p in sub.replay if not is_acknowledged(sub, p)])
    s = with_subscription(s, subscription, sub._replace(replay=replay))
    kind: Kind = "replay"
    positions = replay_now(cfg, s.subscriptions[subscription], subscription, max_entries)
    if not positions:
        if sub.normal_read is not None:
            return s, Started("normal", (), ())
        kind, positions = "normal", entries_to_read(cfg, s, subscription, max_entries)
    if not positions:
        return s, Started(kind, (), ())
    s, issued = start_read(cfg, s, subscription, kind, positions)
    return s, Started(kind, positions, issued)


@managed_ledger.action
def complete_storage_read(cfg: Config, s: State, storage_read: int, success: bool) -> Step[State, Reading]:
    """`RangeEntryCacheImpl.readFromStorage`: storage completes or fails a storage read.

    A storage read of a deleted ledger fails. All entries of the answer get the same count, which is computed in this
    step (`expected_read_count`) for the cursor whose request issued the storage read. Requests of other cursors may
    have joined the storage read.
    """
    read = next((r for r in s.caches.reads if r.number == storage_read), None)
    if read is None:
        return refused(s, "not_open", "no outstanding storage read has this number")
    success = success and any(each.ledger == read.ledger for each in s.ledgers)
    # The first waiting request issued the storage read.
    expected = expected_read_count(cfg, s, *reader_of(s, read.waiting[0]))
    reads = tuple([r._replace(expected_reads=expected) if r is read else r for r in s.caches.reads])
    cache_cfg = cache_config(cfg, s.ledgers)
    caches, reading = entry_cache.complete_storage_read(
        cache_cfg, s.caches._replace(reads=reads), storage_read, success
    )
    assert isinstance(reading, Reading)
    return all_answered(cfg, s._replace(caches=caches), reading.answered), reading


def expected_read_count(cfg: Config, s: State, subscription: int, kind: Kind) -> int:
    """Returns the count of the entries that a cursor reads from storage; entries with the count 0 are not cached.

    Replay read: 0. Normal read with counts: the number of active cursors at or before the cursor; 0 if the cursor is
    inactive. Normal read without counts: 1 if `ManagedCursorImpl.isCacheReadEntry`, otherwise 0.
    """
    if kind == "replay":
        return 0
    if cfg.counts_reads:
        return active_cursors.rank_of(s.active, subscription)
    return int(s.subscriptions[subscription].caches_reads)


@managed_ledger.action
def dispatch(cfg: Config, s: State, subscription: SubscriptionNumber, kind: Kind) -> Step[State, Dispatched]:
    """`PersistentDispatcherMultipleConsumers.sendMessagesToConsumers`: dispatches the entries of a complete read.

    If `is_discarded`, the entries are discarded and the cursor is rewound. The cursor is also rewound after a cancelled
    replay read that is not discarded. With `replay_order` "any_of_key", a Key_Shared read that `is_overtaken` is not
    sent: the entries of a normal read are put back for replay; those of a replay read are discarded and stay in the
    replay queue.
    """
    sub = s.subscriptions[subscription]
    read = read_of(sub, kind)
    if read is None or read.requests:
        return refused(s, "not_enabled", "no read is complete")
    s = with_subscription(s, subscription, with_read(sub, kind, None))
    positions = tuple([each.position for each in read.entries])
    if is_discarded(cfg, sub, kind, read):
        return rewind(cfg, discard(cfg, s, read.entries), subscription), Dispatched((), (), (), positions)
    if is_overtaken(cfg, sub, subscription, read):
        if kind == "replay":
            return discard(cfg, s, read.entries), Dispatched((), (), (), positions)
        for entry in read.entries:
            s = put_back(cfg, s, subscription, entry)
        return s, Dispatched((), positions, (), ())
    s, outcome = dispatch_entries(cfg, s, subscription, kind, read)
    return (rewind(cfg, s, subscription) if read.cancelled else s), outcome


@managed_ledger.action
def release(cfg: Config, s: State, subscription: SubscriptionNumber) -> Step[State, Position]:
    """`EntryImpl.release`: the oldest sent entry has been written to the connection; its count falls by 1."""
    sub = s.subscriptions[subscription]
    if not sub.sent:
        return refused(s, "not_enabled", "no entry is being sent")
    s = with_subscription(s, subscription, sub._replace(sent=sub.sent[1:]))
    return released(cfg, s, sub.sent[0]), sub.sent[0].position


# ---- acknowledgements ---------------------------------------------------------------------------------


@managed_ledger.action
def acknowledge(cfg: Config, s: State, subscription: SubscriptionNumber, position: Position) -> Step[State, None]:
    """`ManagedCursorImpl.asyncDelete`: acknowledges an entry that a consumer holds, or that is to be replayed."""
    sub = s.subscriptions[subscription]
    holder = next((c for c in sub.consumers if position in c.pending), None)
    if holder is not None:
        left = tuple([p for p in holder.pending if p != position])
        s = with_subscription(s, subscription, with_consumer(sub, holder._replace(pending=left)))
    elif position not in sub.replay or is_acknowledged(sub, position):
        return refused(s, "illegal_argument", "no consumer holds the entry")
    return individually_deleted(cfg, s, subscription, position), None


@managed_ledger.action
def mark_delete(cfg: Config, s: State, subscription: SubscriptionNumber, position: Position) -> Step[State, None]:
    """`ManagedCursorImpl.asyncMarkDelete`: a cumulative ack, or a skip by an operator.

    The position is that of an entry after the mark-delete position; it may be after the read position.
    """
    sub = s.subscriptions[subscription]
    if position <= sub.mark_delete or not exists(s, position):
        return refused(s, "illegal_argument", "the position is acknowledged, or not in the log")
    return marked_deleted(cfg, s, subscription, position), None


@managed_ledger.action
def seek(cfg: Config, s: State, subscription: SubscriptionNumber, position: Position) -> Step[State, None]:
    """`PersistentSubscription.resetCursor`: disconnects all consumers, then moves the cursor, forward or backward."""
    last = s.ledgers[-1]
    if not exists(s, position) and position != Position(last.ledger, last.entries):
        return refused(s, "illegal_argument", "the position is not in the log, nor directly after it")
    for each in s.subscriptions[subscription].consumers:
        s, _ = disconnect(cfg, s, subscription, each.consumer)
    sub = s.subscriptions[subscription]
    mark = Position(position.ledger, position.entry - 1)
    return moved(cfg, s, subscription, sub._replace(mark_delete=mark, acked=(), read_position=position)), None


# ---- periodic tasks -----------------------------------------------------------------------------------


@managed_ledger.action
def check_backlogged_cursors(cfg: Config, s: State) -> Step[State, None]:
    """`PersistentTopic.checkBackloggedCursors`: activates the cursors with consumers and a small backlog.

    All other cursors are deactivated. With `backlog_check_activates_without_consumers`, only the backlog matters. With
    counts, the check is refused: the broker does not run it.
    """
    if cfg.counts_reads:
        return refused(s, "unsupported", "a cursor is active while it has consumers")
    for subscription, sub in enumerate(s.subscriptions):
        may_be_active = bool(sub.consumers) or cfg.backlog_check_activates_without_consumers
        if may_be_active and unread_entries(s, subscription) < cfg.backlogged_threshold:
            s = activate(cfg, s, subscription)
        else:
            s = deactivate(cfg, s, subscription)
    return s, None


@managed_ledger.action
def check_cursors_to_cache_entries(cfg: Config, s: State) -> Step[State, None]:
    """`ManagedLedgerImpl.checkCursorsToCacheEntries`: sets or clears `isCacheReadEntry` of every cursor.

    `isCacheReadEntry` is set for a cursor with a large backlog that is similar to the backlogs of enough other cursors.
    If `min_backlog_cursors` is 0, the check does nothing. With counts, it is refused: the broker does not run it.
    """
    if cfg.counts_reads:
        return refused(s, "unsupported", "reads are cached by their expected read counts")
    if cfg.min_backlog_cursors < 1:
        return s, None
    backlogs = [unread_entries(s, subscription) for subscription in range(cfg.subscriptions)]
    for subscription, own in enumerate(backlogs):
        others = backlogs[:subscription] + backlogs[subscription + 1 :]
        similar = [other for other in others if abs(own - other) <= cfg.max_backlog_between]
        caches = own >= cfg.min_backlog_entries and len(similar) >= cfg.min_backlog_cursors
        s = with_subscription(s, subscription, s.subscriptions[subscription]._replace(caches_reads=caches))
    return s, None


@managed_ledger.action
def do_cache_eviction(cfg: Config, s: State) -> Step[State, int]:
    """`RangeEntryCacheManagerImpl.doCacheEviction`: the periodic task. Returns the number of evicted entries."""
    caches, evicted = entry_cache.do_cache_eviction(cache_config(cfg, s.ledgers), s.caches)
    return s._replace(caches=caches), evicted


@managed_ledger.action
def run_eviction_task(cfg: Config, s: State) -> Step[State, int]:
    """`RangeEntryCacheManagerImpl.doEvictToWatermarkWhenOverThreshold`: the task that an insertion triggered.

    Returns the number of evicted entries.
    """
    caches, evicted = entry_cache.run_eviction_task(cache_config(cfg, s.ledgers), s.caches)
    # If the task is refused, the state must be the same object.
    return (s, evicted) if caches is s.caches else (s._replace(caches=caches), evicted)


@managed_ledger.action
def advance(cfg: Config, s: State, millis: Millis) -> Step[State, None]:
    """Advances the clock."""
    ranges = s.caches.ranges
    ranges = ranges._replace(now_ns=ranges.now_ns + millis * UNITS_PER_MS["ns"])
    active = s.active._replace(now_ms=s.active.now_ms + millis)
    return s._replace(caches=s.caches._replace(ranges=ranges), active=active), None


# ---- canonical form and profiles ----------------------------------------------------------------------


@managed_ledger.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Makes times relative to now; renumbers requests and copies in the order of the subscriptions that have them.

    The counters of the metrics become zero.
    """
    caches = canonical_form.renumber_range_caches(canonical_form.from_now(s.caches._replace(counters=Counters())))
    reads = [r for sub in s.subscriptions for r in (sub.normal_read, sub.replay_read) if r is not None]
    request_to = {old: new for new, old in enumerate([n for r in reads for n in r.requests], 1)}
    caches = canonical_form.with_requests(caches, request_to)
    owned = [e.copy for sub in s.subscriptions for e in entries_of(sub)]
    caches, copy_to = canonical_form.with_copies(caches, owned)

    def renumbered(entries: tuple[ReadEntry, ...]) -> tuple[ReadEntry, ...]:
        return tuple([e._replace(copy=copy_to[e.copy]) for e in entries])

    def renumbered_read(r: Read | None) -> Read | None:
        return r and r._replace(requests=tuple([request_to[n] for n in r.requests]), entries=renumbered(r.entries))

    subs = [
        sub._replace(
            normal_read=renumbered_read(sub.normal_read),
            replay_read=renumbered_read(sub.replay_read),
            sent=renumbered(sub.sent),
        )
        for sub in s.subscriptions
    ]
    active = active_cursors.canonical(active_config(cfg), s.active)
    return State(s.ledgers, caches, active, tuple(subs))


def entries_of(sub: Subscription) -> tuple[ReadEntry, ...]:
    """Returns the entries of a subscription that are not released: the entries of its reads, and those being sent."""
    read = [e for r in (sub.normal_read, sub.replay_read) if r is not None for e in r.entries]
    return (*read, *sub.sent)


reference = managed_ledger.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

without_counts = managed_ledger.profile(
    "without-counts",
    "cacheEvictionByExpectedReadCount is off: entries leave the cache once the slowest read position has passed them",
    Config(counts_reads=False),
)

SHIPPED = Config(discard_lowers_count=True, replay_order="any_of_key", discards_cancelled_replay_read=False)

pulsar_4_1 = managed_ledger.release("4.1", "4.2", rules=SHIPPED, about="the dispatchers as read in 3.0 to 4.1")
pulsar_5_0 = managed_ledger.release("5.0", rules=SHIPPED, about="the dispatchers of pulsar-4.1; other defaults")

classic = managed_ledger.profile(
    "classic-dispatcher",
    "the classic Key_Shared dispatcher, which 5.0 removes; apache/pulsar#26677 proposes a limit",
    Config(limits_look_ahead=False),
)

before_6766 = managed_ledger.profile(
    "pulsar-before-6766",
    "before apache/pulsar#6766; the cache is that of the reference without counts",
    Config(counts_reads=False, backlog_check_activates_without_consumers=True),
)

no_replay_count = managed_ledger.profile(
    "replay-without-count",
    "a dispatcher that adds positions, not entries, to the replay queue",
    Config(replay_raises_count=False),
)
