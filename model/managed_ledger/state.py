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

Kind = Literal["normal", "replay"]

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """The topic, settings of the broker, and the rules on which versions differ."""

    #: number of subscriptions; they and their cursors are named by numbers from 0
    subscriptions: Annotated[int, AtLeast(1)] = 2
    #: number of names of consumers of a subscription
    consumers: Annotated[int, AtLeast(1)] = 2
    #: types of the subscriptions: subscription n has the type at index n modulo the length
    types: tuple[Literal["failover", "shared", "key_shared"], ...] = ("shared", "key_shared", "failover")
    #: bytes and keys of the entries: entry id n has those at index n modulo the length; a key is a sticky key hash
    entry_bytes: tuple[Annotated[int, AtLeast(0)], ...] = (10,)
    entry_keys: tuple[int, ...] = (0, 1)
    #: whether the topic is a shadow topic (`ShadowManagedLedgerImpl`): added entries are not cached. Entries that its
    #: cursors read from storage are, as in any other topic
    shadow_topic: bool = False
    #: immediate: an eviction task runs in the step that triggers it. queued: it is a later step
    eviction_task: Literal["immediate", "queued"] = "queued"

    #: whether entries have expected read counts, and cursors are active while they have consumers (PIP-430). Below,
    #: "with counts" means that this setting is on, "without counts" that it is off
    counts_reads: Annotated[bool, Setting("cacheEvictionByExpectedReadCount", (("4.1", True),))] = True
    #: without counts: entries are invalidated up to the slowest mark-delete position, not the slowest read position
    invalidates_by_mark_delete: Annotated[bool, Setting("cacheEvictionByMarkDeletedPosition", False)] = False
    #: with counts: how long added entries are cached after the last cursor became inactive; 0 switches it off
    grace_ms: Annotated[
        int,
        AtLeast(0),
        Setting(
            "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", (("4.1", "twice the TTL"),)
        ),
    ] = 2000
    #: TTL; an expired entry is evicted, or requeued: moved to the tail of the removal queue for another TTL
    ttl_ms: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000)] = 1000
    #: `maxRequeueCountWhenHasExpectedReads`: a pass requeues an entry with expected reads if `requeue_count` is lower
    max_requeue_times: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", (("4.1", 5),)),
    ] = 5
    #: whether an entry that was accessed since insertion or its last requeue is requeued, without a maximum
    extend_ttl_of_recently_accessed: Annotated[
        bool, Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (("4.1", True), ("5.0", False)))
    ] = False
    #: maximum size of the cache; 0 disables it
    max_bytes: Annotated[
        int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory, at least 64 MB")
    ] = 134_217_728
    #: fraction of the maximum size at which a size pass (`doEvictToWatermarkWhenOverThreshold`) stops
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", 0.9)] = 0.9
    #: without counts: a cursor with at least this backlog (`dispatcher.unread_entries`) is inactive
    backlogged_threshold: Annotated[int, AtLeast(0), Setting("managedLedgerCursorBackloggedThreshold", 1000)] = 1000
    #: without counts: entries that a cursor reads from storage are cached if at least this many other cursors have a
    #: backlog similar to its own (`max_backlog_between`); 0: never
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
    #: Key_Shared: no normal read starts while the replay queue has at least this many entries
    look_ahead: Annotated[
        int,
        AtLeast(1),
        Setting("keySharedLookAheadMsgInReplayThresholdPerSubscription", (("4.0", 20_000), ("5.0", 40_000))),
    ] = 20_000

    #: whether the release of an entry of a discarded read lowers its expected read count
    discarded_read_marks_read: Annotated[
        bool,
        Rule(
            Origin.READ,
            {
                True: (
                    "Entry.release lowers it by default (readEntriesComplete, "
                    "trySendMessagesToConsumers), as read in 4.1"
                )
            },
        ),
    ] = False
    #: whether an entry that is put back for replay gets one more expected read
    replay_raises_count: Annotated[
        bool, Rule(Origin.INFERRED, {False: "no release; a dispatcher that adds positions without addEntryToReplay"})
    ] = True
    #: Key_Shared: how the replay queue holds back entries. earlier_of_key: an entry waits for an earlier entry with its
    #: key. any_of_key: an entry of a normal read waits for any entry with its key; and no entry of a read, normal or
    #: replay, is sent if the replay queue has an entry before `minReplayedPosition`, its first position when the read
    #: began (apache/pulsar#12885)
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
    #: whether a cancelled replay read, which began before all consumers left, is discarded
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

    ledger: int
    entries: int


class ReadEntry(NamedTuple):
    """An entry that was read and is not released; `copy` is the number of its `EntryImpl` in `model/entry_cache`."""

    position: Position
    copy: int


@record
class Read(NamedTuple):
    """A read of a dispatcher, from its start until its entries are dispatched."""

    requests: tuple[int, ...]  # incomplete requests to the entry cache: one, or one for each entry of a replay read
    entries: tuple[ReadEntry, ...]  # of complete requests, by position
    #: shouldRewindBeforeReadingOrReplaying: the cursor will be rewound when the read is dispatched or has failed;
    #: `dispatcher.is_discarded` decides whether the entries of the read are discarded
    cancelled: bool
    failed: bool  # a request failed
    #: minReplayedPosition: first position in the replay queue when the read began; None if the queue was empty, or
    #: unless `replay_order` is any_of_key
    min_replayed_position: Position | None


class Consumer(NamedTuple):
    """A connected consumer."""

    consumer: int
    permits: int  # availablePermits
    pending: tuple[Position, ...]  # pendingAcks: sent and not acknowledged, by position


@record
class Subscription(NamedTuple):
    """A subscription: its cursor (`ManagedCursorImpl`) and its dispatcher."""

    read_position: Position
    mark_delete: Position
    acked: tuple[Position, ...]  # individuallyDeletedMessages, by position
    caches_reads: bool  # isCacheReadEntry
    consumers: tuple[Consumer, ...]  # by number
    replay: tuple[Position, ...]  # redeliveryMessages, by position
    normal_read: Read | None  # havePendingRead
    replay_read: Read | None  # havePendingReplayRead
    sent: tuple[ReadEntry, ...]  # sent, not released: the write to the connection is not complete; oldest first


@record
class State(NamedTuple):
    """A managed ledger."""

    ledgers: tuple[Ledger, ...]  # entries are added to the last one
    caches: entry_cache.State  # `model/entry_cache` with one topic
    active: active_cursors.State  # `model/active_cursors`: the active cursors, named after the subscriptions
    subscriptions: tuple[Subscription, ...]


def start(cfg: Config) -> State:
    """An empty ledger; every subscription is at its beginning and has no consumers."""
    ledgers = (Ledger(0, 0),)
    idle = Subscription(Position(0, 0), Position(0, -1), (), False, (), (), None, None, ())
    caches = entry_cache.start(cache_config(cfg, ledgers))
    return State(ledgers, caches, active_cursors.start(active_config(cfg)), (idle,) * cfg.subscriptions)


class Added(NamedTuple):
    """An added entry; `cached` is whether it was cached."""

    position: Position
    cached: bool


class Started(NamedTuple):
    """A read that was started, and the storage reads that it issued."""

    kind: Kind
    positions: tuple[Position, ...]
    issued: tuple[Issued, ...]


class Dispatched(NamedTuple):
    """What `dispatch` did with the entries of a read."""

    sent: tuple[tuple[Position, int], ...]  # with the consumer
    replayed: tuple[Position, ...]  # put back for replay
    skipped: tuple[Position, ...]  # acknowledged, before the read or since
    discarded: tuple[Position, ...]  # with the whole read; they are read again later


# ---- configs of the parts -----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def cache_config(cfg: Config, ledgers: tuple[Ledger, ...]) -> entry_cache.Config:
    """Returns the config of the entry cache while storage has these ledgers."""
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
    """Returns the config of the container of active cursors; without counts there is no grace period."""
    return active_cursors.Config(cursors=cfg.subscriptions, grace_ms=cfg.grace_ms if cfg.counts_reads else 0)


# ---- the log ------------------------------------------------------------------------------------------


def type_of(cfg: Config, subscription: int) -> str:
    """Returns the type of a subscription."""
    return cfg.types[subscription % len(cfg.types)]


def key_of(cfg: Config, position: Position) -> int:
    """Returns the key of an entry."""
    return cfg.entry_keys[position.entry % len(cfg.entry_keys)]


def following(position: Position) -> Position:
    """Returns the position after another one in its ledger."""
    return Position(position.ledger, position.entry + 1)


def exists(s: State, position: Position) -> bool:
    """Whether the log has an entry at a position."""
    return any(each.ledger == position.ledger and 0 <= position.entry < each.entries for each in s.ledgers)


def valid_from(s: State, position: Position) -> Position:
    """Returns the first position, at this one or after it, that has an entry or gets the next one.

    A position past the end of a closed ledger, or of a deleted one, becomes the start of the next ledger.
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
