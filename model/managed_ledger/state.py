"""Settings and state of a managed ledger with its dispatchers; `model/managed_ledger/machine.py` describes them."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from model.active_cursors import machine as active_cursors
from model.entry_cache import state as entry_cache
from model.entry_cache.state import Issued, Stored
from model.machine import Setting
from model.positions import Position, start_of
from model.values import UNITS_PER_MS, AtLeast, Between, Origin, Rule, record

#: Kind of a read (`PersistentDispatcherMultipleConsumers.ReadType`).
Kind = Literal["normal", "replay"]

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """The topic, settings of the broker, and the rules in which versions differ."""

    #: number of subscriptions; a subscription and its cursor have the same number, from 0
    subscriptions: Annotated[int, AtLeast(1)] = 2
    #: maximum number of consumers of a subscription; consumers are numbered from 0
    consumers: Annotated[int, AtLeast(1)] = 2
    #: types of the subscriptions: subscription n has the type at index n modulo the length
    types: tuple[Literal["failover", "shared", "key_shared"], ...] = ("shared", "key_shared", "failover")
    #: sizes of the entries: the entry with id n has the size at index n modulo the length
    entry_bytes: tuple[Annotated[int, AtLeast(0)], ...] = (10,)
    #: keys of the entries (sticky key hashes): the entry with id n has the key at index n modulo the length
    entry_keys: tuple[int, ...] = (0, 1)
    #: whether the topic is a shadow topic (`ShadowManagedLedgerImpl`), which does not cache added entries. A shadow
    #: topic caches entries that cursors read from storage, as any other topic does
    shadow_topic: bool = False
    #: immediate: an eviction task runs in the step that triggers it. queued: the task runs in a later step
    eviction_task: Literal["immediate", "queued"] = "queued"

    #: whether the cache uses expected read counts (PIP-430). "With counts" means that this setting is on, "without
    #: counts" that it is off. Without counts, an added entry has no count. An entry that is cached from storage has
    #: the count 1, instead of a number of cursors
    counts_reads: Annotated[bool, Setting("cacheEvictionByExpectedReadCount", (("4.1", True),))] = True
    #: without counts: whether the entries before the slowest mark-delete position of the active cursors are invalidated
    #: (true), or the entries before their slowest read position (false)
    invalidates_by_mark_delete: Annotated[bool, Setting("cacheEvictionByMarkDeletedPosition", False)] = False
    #: with counts: grace period. Without active cursors, added entries are cached for this time after the last cursor
    #: became inactive, and after the start. 0 switches the grace period off
    grace_ms: Annotated[
        int,
        AtLeast(0),
        Setting(
            "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", (("4.1", "twice the TTL"),)
        ),
    ] = 2000
    #: TTL; an expired entry is evicted, or requeued: moved to the tail of the removal queue for another TTL
    ttl_ms: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000)] = 1000
    #: `maxRequeueCountWhenHasExpectedReads`: an entry with expected reads is requeued if its `requeue_count` is below
    #: this number
    max_requeue_times: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", (("4.1", 5),)),
    ] = 5
    #: whether an entry that was accessed since its insertion or last requeue is requeued, without a maximum
    extend_ttl_of_recently_accessed: Annotated[
        bool, Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (("4.1", True), ("5.0", False)))
    ] = False
    #: maximum size of the cache; 0 disables the cache
    max_bytes: Annotated[
        int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory, at least 64 MB")
    ] = 134_217_728
    #: `doEvictToWatermarkWhenOverThreshold` evicts entries of an almost full cache down to this fraction of `max_bytes`
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", 0.9)] = 0.9
    #: without counts: `checkBackloggedCursors` deactivates a cursor with at least this backlog
    #: (`dispatcher.unread_entries`)
    backlogged_threshold: Annotated[int, AtLeast(0), Setting("managedLedgerCursorBackloggedThreshold", 1000)] = 1000
    #: without counts: entries that a cursor reads from storage are cached only if at least this many other cursors have
    #: a similar backlog (`max_backlog_between`); with 0, they are never cached
    min_backlog_cursors: Annotated[int, AtLeast(0), Setting("managedLedgerMinimumBacklogCursorsForCaching", 0)] = 0
    #: without counts: entries that a cursor reads from storage are cached only if its backlog is at least this
    min_backlog_entries: Annotated[int, AtLeast(0), Setting("managedLedgerMinimumBacklogEntriesForCaching", 1000)] = (
        1000
    )
    #: without counts: the largest difference of two similar backlogs
    max_backlog_between: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxBacklogBetweenCursorsForCaching", 1000)
    ] = 1000
    #: maximum number of entries of a read
    read_batch: Annotated[int, AtLeast(1), Setting("dispatcherMaxReadBatchSize", (("4.0", 100), ("5.0", 500)))] = 100
    #: Key_Shared: maximum number of entries of a normal read and of the replay queue together; no normal read starts
    #: while the replay queue has at least this many entries
    look_ahead: Annotated[
        int,
        AtLeast(1),
        Setting("keySharedLookAheadMsgInReplayThresholdPerSubscription", (("4.0", 20_000), ("5.0", 40_000))),
    ] = 20_000

    #: whether discarding a read lowers the counts of its entries, although they were not sent
    discard_lowers_count: Annotated[
        bool,
        Rule(
            Origin.READ,
            {
                True: (
                    "Entry.release lowers the count by default (readEntriesComplete, "
                    "trySendMessagesToConsumers), as read in 4.1"
                )
            },
        ),
    ] = False
    #: whether an entry that is put back for replay gets one more expected read
    replay_raises_count: Annotated[
        bool, Rule(Origin.INFERRED, {False: "no shipped version; a dispatcher that does not call addEntryToReplay"})
    ] = True
    #: Key_Shared: which entries of the replay queue must be sent before an entry that was read.
    #: earlier_of_key: the earlier entries with the same key.
    #: any_of_key: before an entry of a normal read, all entries with the same key; before an entry of a replay read,
    #: none. Moreover, a read of either kind is not sent at all if the replay queue has an entry before
    #: `minReplayedPosition`, which was the first position of the queue when the read began (apache/pulsar#12885)
    replay_order: Annotated[
        Literal["earlier_of_key", "any_of_key"],
        Rule(
            Origin.READ,
            {
                "any_of_key": (
                    "PersistentStickyKeyDispatcherMultipleConsumers.trySendMessagesToConsumers, as read in 4.0"
                )
            },
        ),
    ] = "earlier_of_key"
    #: whether a cancelled replay read is always discarded. false: it is sent if a consumer is connected again when the
    #: read is dispatched. A replay read is cancelled when the last consumer leaves
    discards_cancelled_replay_read: Annotated[
        bool,
        Rule(
            Origin.READ,
            {
                False: (
                    "PersistentDispatcherMultipleConsumers.readEntriesComplete discards normal reads "
                    "only, as read in 3.0"
                )
            },
        ),
    ] = True
    #: Key_Shared: whether `look_ahead` limits normal reads
    limits_look_ahead: Annotated[
        bool, Rule(Origin.READ, {False: "PersistentStickyKeyDispatcherMultipleConsumersClassic, apache/pulsar#26677"})
    ] = True
    #: whether the check of backlogged cursors activates cursors without consumers
    backlog_check_activates_without_consumers: Annotated[
        bool,
        Rule(
            Origin.READ,
            {True: "ManagedLedgerImpl.checkBackloggedCursors, before apache/pulsar#6766 moved it to PersistentTopic"},
        ),
    ] = False


# ---- state --------------------------------------------------------------------------------------------


class Ledger(NamedTuple):
    """A BookKeeper ledger of the topic."""

    ledger: int  # ledger id
    entries: int  # number of entries


class ReadEntry(NamedTuple):
    """An entry that was read and is not released; `copy` is the number of its `EntryImpl` in `model/entry_cache`."""

    position: Position
    copy: int


@record
class Read(NamedTuple):
    """A read of a dispatcher. It is outstanding from its start until its entries are dispatched or discarded."""

    #: numbers of the pending requests to the entry cache; a normal read makes one, a replay read one for each entry
    requests: tuple[int, ...]
    entries: tuple[ReadEntry, ...]  # entries that complete requests returned, by position
    #: shouldRewindBeforeReadingOrReplaying: whether the last consumer left during the read, or `machine.restart` was
    #: called. If so, the end of the read rewinds the cursor. A read ends in `dispatch` or, if a request failed, when no
    #: request is pending
    cancelled: bool
    failed: bool  # whether a request failed
    #: minReplayedPosition: first position of the replay queue when the read began; None if the queue was empty or
    #: `replay_order` is earlier_of_key
    min_replayed_position: Position | None


class Consumer(NamedTuple):
    """A connected consumer. An entry that is "held by" a consumer is in its `pending`."""

    consumer: int
    permits: int  # availablePermits
    pending: tuple[Position, ...]  # pendingAcks: entries that were sent and are not acknowledged, by position


@record
class Subscription(NamedTuple):
    """A subscription: its cursor (`ManagedCursorImpl`) and its dispatcher."""

    read_position: Position  # readPosition
    mark_delete: Position  # markDeletePosition; entry id -1: the position before the first entry of a ledger
    acked: tuple[Position, ...]  # individuallyDeletedMessages, by position
    caches_reads: bool  # isCacheReadEntry; without counts: whether entries that it reads from storage are cached
    consumers: tuple[Consumer, ...]  # by number
    replay: tuple[Position, ...]  # redeliveryMessages, by position
    normal_read: Read | None  # havePendingRead
    replay_read: Read | None  # havePendingReplayRead
    sent: tuple[ReadEntry, ...]  # sent entries that are not yet written to the connection, oldest first


@record
class State(NamedTuple):
    """A managed ledger."""

    ledgers: tuple[Ledger, ...]  # entries are added to the last one
    caches: entry_cache.State  # `model/entry_cache` with one topic
    active: active_cursors.State  # `model/active_cursors`; a cursor has the number of its subscription
    subscriptions: tuple[Subscription, ...]


def start(cfg: Config) -> State:
    """Returns the initial state: an empty ledger, all cursors at its beginning, and no consumers."""
    ledgers = (Ledger(0, 0),)
    idle = Subscription(
        read_position=Position(0, 0),
        mark_delete=Position(0, -1),
        acked=(),
        caches_reads=False,
        consumers=(),
        replay=(),
        normal_read=None,
        replay_read=None,
        sent=(),
    )
    caches = entry_cache.start(cache_config(cfg, ledgers))
    return State(ledgers, caches, active_cursors.start(active_config(cfg)), (idle,) * cfg.subscriptions)


class Added(NamedTuple):
    """An added entry; `cached` is whether it was cached."""

    position: Position
    cached: bool


class Started(NamedTuple):
    """The read that a call started, and the storage reads that the read issued.

    If no read was started, there are no positions, and the kind is normal.
    """

    kind: Kind
    positions: tuple[Position, ...]
    issued: tuple[Issued, ...]


class Dispatched(NamedTuple):
    """What `dispatch` did with the entries of a read."""

    sent: tuple[tuple[Position, int], ...]  # each position with the number of the consumer
    put_back: tuple[Position, ...]  # put back for replay
    skipped: tuple[Position, ...]  # not sent, because they are acknowledged
    discarded: tuple[Position, ...]  # all entries of a discarded read; if unacknowledged, they are read again


# ---- configs of the cache and the container -----------------------------------------------------------


@lru_cache(maxsize=256)
def cache_config(cfg: Config, ledgers: tuple[Ledger, ...]) -> entry_cache.Config:
    """Returns the config of the entry cache while storage has these ledgers. The topic's cache has the number 0."""
    sizes = cfg.entry_bytes
    stored = [Stored(0, each.ledger, tuple([sizes[i % len(sizes)] for i in range(each.entries)])) for each in ledgers]
    return entry_cache.Config(
        caches=1,
        stored=tuple(stored),
        storage_reads="queued",
        eviction_task=cfg.eviction_task,
        ttl_ns=cfg.ttl_ms * UNITS_PER_MS["ns"],
        max_requeue_times=cfg.max_requeue_times,
        extend_ttl_of_recently_accessed=cfg.extend_ttl_of_recently_accessed,
        max_bytes=cfg.max_bytes,
        watermark=cfg.watermark,
    )


@lru_cache(maxsize=256)
def active_config(cfg: Config) -> active_cursors.Config:
    """Returns the config of the container of active cursors. Without counts there is no grace period."""
    return active_cursors.Config(cursors=cfg.subscriptions, grace_ms=cfg.grace_ms if cfg.counts_reads else 0)


# ---- the log ------------------------------------------------------------------------------------------


def type_of(cfg: Config, subscription: int) -> str:
    """Returns the type of a subscription."""
    return cfg.types[subscription % len(cfg.types)]


def key_of(cfg: Config, position: Position) -> int:
    """Returns the key of an entry."""
    return cfg.entry_keys[position.entry % len(cfg.entry_keys)]


def following(position: Position) -> Position:
    """Returns the position after another one in the same ledger, whether or not it has an entry."""
    return Position(position.ledger, position.entry + 1)


def exists(s: State, position: Position) -> bool:
    """Whether the log has an entry at a position."""
    return any(each.ledger == position.ledger and 0 <= position.entry < each.entries for each in s.ledgers)


def valid_from(s: State, position: Position) -> Position:
    """Returns the position, moved to the start of the next ledger if necessary.

    A position is moved if it is in a deleted ledger, or past the end of a closed ledger.
    `getNextValidPosition(p)` is `valid_from(s, following(p))`; a read starts at `valid_from(s, read_position)`.
    """
    for each in s.ledgers:
        if each.ledger > position.ledger:
            return start_of(each.ledger)
        if each.ledger == position.ledger and (position.entry < each.entries or each is s.ledgers[-1]):
            return position
    return position


def entries_from(s: State, position: Position) -> int:
    """Returns the number of entries at a position or after it (`ManagedLedgerImpl.getNumberOfEntries(Range)`)."""
    return sum(
        [
            max(0, each.entries - position.entry) if each.ledger == position.ledger else each.entries
            for each in s.ledgers
            if each.ledger >= position.ledger
        ]
    )
