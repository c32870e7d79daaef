"""How to drive the managed ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.subjects.entry_cache import from_tla as cache_from_tla
from fuzz.tlc.values import Function
from impl.managed_ledger.ledger import ManagedLedger
from invariants import managed_ledger as invariants
from model.active_cursors import machine as active_cursors
from model.entry_cache import canonical_form
from model.entry_cache.reads_limiter import Limiter
from model.managed_ledger.cursors import activate
from model.managed_ledger.machine import entries_of, managed_ledger
from model.managed_ledger.state import (
    Config,
    Consumer,
    Ledger,
    Read,
    ReadEntry,
    State,
    Subscription,
    active_config,
    cache_config,
)
from model.positions import Position

# ---- domains ------------------------------------------------------------------------------------------


def log(s: State) -> list[Position]:
    """Returns the positions of the entries, in order."""
    return [Position(each.ledger, i) for each in s.ledgers for i in range(each.entries)]


def outstanding_reads(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the numbers of the outstanding storage reads."""
    return tuple([r.number for r in s.caches.reads])


def held_entries(cfg: Config, s: State) -> tuple[Position, ...]:
    """Returns the entries that are pending at consumers or in a replay queue, and a position that is not in the log."""
    held = [p for sub in s.subscriptions for p in (*[p for c in sub.consumers for p in c.pending], *sub.replay)]
    return (*sorted(set(held)), Position(0, -1))


def positions(cfg: Config, s: State) -> tuple[Position, ...]:
    """Returns the last four entries, the two positions after them, and the first entry, which may be deleted."""
    end = Position(*s.ledgers[-1])  # the last ledger, and its number of entries: the next position
    return (*log(s)[-4:], end, Position(0, 0), end._replace(entry=end.entry + 1))


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in; "" if none.

    replaying   a replay read is in progress, or its entries are not dispatched yet
    rewound     without `counts_reads`: an acked entry is at or after the read position of a cursor
    """
    if any(sub.replay_read is not None for sub in s.subscriptions):
        return "replaying"
    is_rewound = not cfg.counts_reads and any(
        sub.acked and sub.acked[-1] >= sub.read_position for sub in s.subscriptions
    )
    return "rewound" if is_rewound else ""


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns facts about one subscription, and about the cached entries, ledgers and eviction tasks.

    The subscription is the one whose facts are the largest as text, so the order of subscriptions has no effect.
    """
    subs = [
        (
            cfg.types[i % len(cfg.types)],
            len(sub.consumers),
            sub.normal_read and (bool(sub.normal_read.requests), sub.normal_read.cancelled),
            sub.replay_read and (bool(sub.replay_read.requests), sub.replay_read.cancelled),
            min(len(sub.replay), 2),
            any(c.pending for c in sub.consumers),
            bool(sub.acked),
        )
        for i, sub in enumerate(s.subscriptions)
    ]
    live = [e for e in s.caches.ranges.queue if e is not None]
    signs = {e.expected_reads is None or (e.expected_reads > 0) - (e.expected_reads < 0) for e in live}
    return max(subs, key=repr), min(len(live), 3), len(s.ledgers) > 1, tuple(sorted(signs)), s.caches.tasks


# ---- measures that scopes bound -----------------------------------------------------------------------


def entries(s: State) -> int:
    """Returns the number of entries of all ledgers that are not trimmed."""
    return len(log(s))


def ledgers(s: State) -> int:
    """Returns the id of the last ledger. Ledger ids start at 0."""
    return s.ledgers[-1].ledger


def permits(s: State) -> int:
    """Returns the largest number of permits of a consumer."""
    return max([c.permits for sub in s.subscriptions for c in sub.consumers], default=0)


def copies(s: State) -> int:
    """Returns the number of open copies of entries."""
    return sum([len(entries_of(sub)) for sub in s.subscriptions])


def slots(s: State) -> int:
    """Returns the number of slots of the removal queue, including those of removed entries."""
    return len(s.caches.ranges.queue)


def lowest_count(s: State) -> int:
    """Returns the absolute value of the smallest negative read count; 0 if no read count is negative."""
    holders = [h.expected_reads for h in (*s.caches.ranges.queue, *s.caches.ranges.orphaned_copies) if h is not None]
    return -min([n for n in holders if n is not None and n < 0], default=0)


def age(s: State) -> int:
    """Returns the milliseconds since the oldest timestamp of a cached entry."""
    times = [e.timestamp_ns for e in s.caches.ranges.queue if e is not None]
    return (s.caches.ranges.now_ns - min(times, default=s.caches.ranges.now_ns)) // 1_000_000


# ---- scopes -------------------------------------------------------------------------------------------

#: Reasons for the choices that several scopes share.
REASONS = {
    "actions": "adds, reads and their release; excludes consumers that leave, acks, time and changes of the log",
    "types": "Shared; with one consumer, no entry enters the replay queue",
    "subscriptions": "two: one cursor can be ahead of the other",
    "consumers": "one consumer for each subscription; the scopes failover and keys have two",
    "max_bytes": "so large that no size pass runs; eviction is in the scopes of entry_cache",
    "grace_ms": "none: time does not pass",
    "entry_bytes": "one byte: only eviction depends on sizes",
    "read_batch": "two: the smallest range with a cached entry and a gap",
    "subscription": "all subscriptions of the scope",
    "consumer": "all consumers of the scope",
    "permits": "as many as a read has entries: two, or one in a scope with one entry",
    "success": "true: storage answers; failed reads are in the scope failover",
    "kind": "normal: the replay queue stays empty",
    "entries": "excludes longer ranges and logs",
    "copies": "excludes more copies that are read and not released",
    "slots": "one slot for each entry that can be cached at once",
    "lowest_count": "minus one: a smaller read count has a different effect only after several replays",
}

SETTINGS = {
    "types": ("shared",),
    "subscriptions": 2,
    "consumers": 1,
    "max_bytes": 1000,
    "grace_ms": 0,
    "entry_bytes": (1,),
    "read_batch": 2,
}

READING = ("add_entry", "connect", "flow", "read_more_entries", "complete_storage_read", "dispatch", "release")

SMOKE = Scope(
    actions=READING,
    settings=SETTINGS,
    domains={"subscription": (0, 1), "consumer": (0,), "permits": (2,), "success": (True,), "kind": ("normal",)},
    bounds={"entries": 2, "permits": 2, "copies": 2, "lowest_count": 1, "slots": 2},
    reasons=REASONS,
)

CHURN = SMOKE.changed(
    actions=(*READING, "disconnect"),
    domains={"permits": (1,), "kind": ("normal", "replay")},
    bounds={"entries": 1, "permits": 1, "slots": 1},
    reasons={
        "actions": "consumers that come and leave while entries are read; excludes acks, time and changes of the log",
        "kind": "normal, and replay, which is refused: the replay queue stays empty",
    },
)

FAILOVER = Scope(
    actions=(*READING, "disconnect", "redeliver", "mark_delete"),
    settings=SETTINGS | {"types": ("failover",), "subscriptions": 1, "consumers": 2},
    domains={
        "subscription": (0,),
        "consumer": (0, 1),
        "permits": (1,),
        "success": (True, False),
        "kind": ("normal",),
        "position": (Position(0, 0),),
    },
    bounds={"entries": 1, "permits": 1, "copies": 2, "lowest_count": 1, "slots": 1},
    reasons=REASONS
    | {
        "actions": "the active consumer changes, and reads fail; excludes individual acks, time and changes of the log",
        "types": "Failover; with one consumer, it equals Exclusive",
        "subscriptions": "one: excludes interference of subscriptions",
        "consumers": "two: the active one changes",
        "success": "storage answers or fails",
        "kind": "normal: a failover subscription has no replay queue",
        "position": "the only entry of the log",
    },
)

KEYS = Scope(
    actions=(*READING, "disconnect", "acknowledge"),
    settings=SETTINGS | {"types": ("key_shared",), "subscriptions": 1, "consumers": 2, "entry_keys": (0,)},
    domains={
        "subscription": (0,),
        "consumer": (0, 1),
        "permits": (1,),
        "success": (True,),
        "kind": ("normal", "replay"),
        "position": (Position(0, 0), Position(0, 1)),
    },
    bounds={"entries": 2, "permits": 1, "copies": 1, "lowest_count": 1, "slots": 2},
    reasons=REASONS
    | {
        "actions": "the consumer of a key changes while entries are pending; excludes time and changes of the log",
        "types": "Key_Shared: the order of a key",
        "subscriptions": "one: excludes interference of subscriptions",
        "consumers": "two: a key moves from one to the other",
        "entry_keys": "one key: every entry is ordered after the one before it",
        "permits": "one: the consumer of a key may lack a permit for an entry that was read",
        "copies": "one: excludes a complete read of two entries, and a complete read while an entry is being sent",
        "kind": "normal and replay reads",
        "position": "both entries of the log",
    },
)

TIME = Scope(
    actions=(
        *READING,
        "disconnect",
        "mark_delete",
        "seek",
        "rollover_ledger",
        "trim_consumed_ledgers",
        "do_cache_eviction",
        "advance",
    ),
    settings=SETTINGS
    | {"types": ("failover",), "subscriptions": 1, "ttl_ms": 1, "grace_ms": 2, "max_requeue_times": 1},
    domains={
        "subscription": (0,),
        "consumer": (0,),
        "permits": (1,),
        "success": (True,),
        "kind": ("normal",),
        "position": (Position(0, 0),),
        "millis": (1,),
    },
    bounds={"entries": 1, "ledgers": 1, "permits": 1, "copies": 1, "lowest_count": 1, "slots": 2, "age": 2},
    reasons=REASONS
    | {
        "actions": "the log, the cache and the grace period while time passes; excludes individual acks",
        "types": "Failover with one consumer, which equals Exclusive",
        "subscriptions": "one: excludes interference of subscriptions",
        "ttl_ms": "one: the smallest TTL with an age below, at and above it",
        "grace_ms": "twice the TTL, as by default",
        "max_requeue_times": "one: an entry with expected reads lives for two TTLs",
        "kind": "normal: a failover subscription has no replay queue",
        "position": "the first entry of the log",
        "millis": "the smallest step; a longer step equals several of them",
        "ledgers": "two: excludes several closed ledgers",
        "slots": "two: the slot of a cached entry, and the slot of a removed one",
        "age": "TTL plus one: an older entry is expired as well",
    },
)

WITHOUT_COUNTS = SMOKE.changed(
    actions=(*READING, "disconnect", "check_backlogged_cursors", "check_cursors_to_cache_entries"),
    settings={
        "counts_reads": False,
        "backlogged_threshold": 1,
        "min_backlog_cursors": 1,
        "min_backlog_entries": 1,
    },
    domains={"permits": (1,)},
    bounds={"entries": 1, "permits": 1, "copies": 1, "slots": 1},
    reasons={
        "actions": "the checks activate and deactivate cursors; excludes acks, time and changes of the log",
        "counts_reads": "off: the settings below apply only then",
        "backlogged_threshold": "one: a cursor with an entry to read is inactive",
        "min_backlog_cursors": "one: the other cursor; with one entry, the two backlogs are always similar",
        "min_backlog_entries": "one: a cursor with an entry to read is backlogged",
    },
)

# ---- the TLA+ twin ------------------------------------------------------------------------------------

#: A copy in the twin: the number of the owner (`_owner`), and a number within the owner. For a read, the second number
#: stands for the position of the entry (`_code`); for the sent entries of a subscription, it is an index.
CopyName = tuple[int, int]


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables.

    In the twin, the number of a request or copy contains the number of the subscription. Here both are numbered from 1.
    """
    contents, subs = variables["entry_cache"], [variables["subs"][i] for i in range(cfg.subscriptions)]
    copies = {name: i for i, name in enumerate(sorted([n for i, sub in enumerate(subs) for n in _copies(i, sub)]), 1)}
    # `cache_from_tla` numbers the copies of grants in order, so with these grants it gives them the numbers in `copies`
    grants = [Function(request=owner, permits=0, copies=(index,)) for owner, index in copies]
    same = {name: getattr(cfg, name) for name in ("max_bytes", "max_requeue_times", "extend_ttl_of_recently_accessed")}
    same |= {"watermark": Function(num=cfg.watermark, den=1), "grants": grants}
    caches = cache_from_tla(cache_config(cfg, ()), {**contents, **same})
    numbers = {n: i for i, n in enumerate([n for sub in subs for r in _reads(sub) for n in sorted(r.requests)], 1)}
    active = active_cursors.start(active_config(cfg))._replace(last_removal_ms=variables["last_removal_ms"])
    known = [_subscription(i, sub, numbers, copies) for i, sub in enumerate(subs)]
    s = State(
        tuple([Ledger(each.ledger, each.entries) for each in variables["ledgers"]]),
        canonical_form.with_requests(caches._replace(limiter=Limiter(0, (), ())), numbers),
        active,
        tuple(known),
    )
    for i, sub in enumerate(subs):
        s = activate(cfg, s, i) if sub.active else s
    return s._replace(active=s.active._replace(version=0))


def _owner(i: int, kind: int) -> int:
    """Returns the twin's number of an owner: the normal read (kind 1), replay read (2) or sent entries (3)."""
    return 100_000 + 10 * i + kind


def _code(position: Position) -> int:
    """Returns the twin's number of a position."""
    return 50 * position[0] + position[1]


def _reads(sub: Any) -> list[Any]:
    return [read for read in (sub.normal_read, sub.replay_read) if read is not None]


def _copies(i: int, sub: Any) -> list[CopyName]:
    """Returns the names of the copies that a subscription of the twin holds."""
    read = [
        (_owner(i, k), _code(p))
        for k, r in ((1, sub.normal_read), (2, sub.replay_read))
        if r is not None
        for p in r.entries
    ]
    return [*read, *[(_owner(i, 3), index) for index in range(1, len(sub.sent) + 1)]]


def _subscription(i: int, sub: Any, numbers: Mapping[int, int], copies: Mapping[CopyName, int]) -> Subscription:
    def ordered(positions: Any) -> tuple[Position, ...]:
        return tuple(sorted([Position(*p) for p in positions]))

    def read(r: Any, kind: int) -> Read | None:
        if r is None:
            return None
        entries = [ReadEntry(p, copies[_owner(i, kind), _code(p)]) for p in ordered(r.entries)]
        requests = tuple(sorted([numbers[n] for n in r.requests]))
        first_replay = r.min_replayed_position and Position(*r.min_replayed_position)
        return Read(requests, tuple(entries), r.cancelled, r.failed, first_replay)

    consumers = sub.consumers if isinstance(sub.consumers, dict) else dict(enumerate(sub.consumers, 1))
    return Subscription(
        Position(*sub.read_position),
        Position(*sub.mark_delete),
        ordered(sub.acked),
        sub.caches_reads,
        tuple([Consumer(c, consumers[c].permits, ordered(consumers[c].pending)) for c in sorted(consumers)]),
        ordered(sub.replay),
        read(sub.normal_read, 1),
        read(sub.replay_read, 2),
        tuple([ReadEntry(Position(*p), copies[_owner(i, 3), k]) for k, p in enumerate(sub.sent, 1)]),
    )


# ---- corrupted states that `check` must report ----------------------------------------------------------


def request_has_no_reader(_cfg: Config, s: State) -> State | None:
    """A request is pending at the cache, and belongs to no read of a subscription."""
    reading = [sub for sub in s.subscriptions if sub.normal_read is not None and sub.normal_read.requests]
    lost: list[Subscription] = [sub._replace(normal_read=None) if sub in reading else sub for sub in s.subscriptions]
    return s._replace(subscriptions=tuple(lost)) if reading else None


def durable_count_is_too_large(_cfg: Config, s: State) -> State | None:
    """The count of durable cursors is one too large."""
    return s._replace(active=s.active._replace(durables=s.active.durables + 1)) if s.active.cursors else None


subject = Subject(
    managed_ledger,
    ManagedLedger,
    invariants,
    domains={
        "subscription": (0, 1, 2),
        "consumer": (0, 1, 0, 1, 2),
        "permits": (2, 1, 1, 4),
        "storage_read": outstanding_reads,
        "success": (True, True, True, False),
        "kind": ("normal", "replay", "normal"),
        "acknowledge.position": held_entries,
        "position": positions,
        "millis": (1, 999, 1000, 1001, 400),
    },
    settings={
        "subscriptions": (3, 2, 1, 1),
        "types": (
            ("shared", "key_shared", "failover"),
            ("key_shared",),
            ("shared", "key_shared"),
            ("key_shared", "failover"),
        ),
        "consumers": (2, 1, 3),
        "entry_bytes": ((10,), (10, 7, 1)),
        "entry_keys": ((0, 1), (0, 1, 0), (0, 1, 2), (0,)),
        "shadow_topic": (False,) * 9 + (True,),
        "eviction_task": ("queued", "immediate"),
        "counts_reads": (True, True, True, False),
        "invalidates_by_mark_delete": (False, True),
        "grace_ms": (2000, 0, 500),
        "ttl_ms": (1000,),
        "max_requeue_times": (2, 5, 0),
        "extend_ttl_of_recently_accessed": (False, True),
        "max_bytes": (1000, 1000, 45, 31, 0),
        "watermark": (0.9, 0.5),
        "backlogged_threshold": (3, 1, 1000),
        "min_backlog_cursors": (1, 2, 0),
        "min_backlog_entries": (0, 1),
        "max_backlog_between": (1, 0, 1000),
        "read_batch": (4, 2, 1),
        "look_ahead": (2, 20_000, 1),
    },
    weights={
        "add_entry": 5,
        "rollover_ledger": 0.4,
        "trim_consumed_ledgers": 0.4,
        "connect": 2,
        "disconnect": 0.7,
        "flow": 3,
        "redeliver": 0.5,
        "read_more_entries": 6,
        "complete_storage_read": 5,
        "dispatch": 6,
        "release": 5,
        "acknowledge": 3,
        "mark_delete": 0.3,
        "seek": 0.3,
        "check_backlogged_cursors": 0.6,
        "check_cursors_to_cache_entries": 0.6,
        "do_cache_eviction": 0.7,
        "run_eviction_task": 1,
        "advance": 0.7,
    },
    situation=situation,
    in_situation={
        "replaying": {"redeliver": 5, "disconnect": 2, "dispatch": 0.7},
        "rewound": {"check_backlogged_cursors": 10, "check_cursors_to_cache_entries": 10},
    },
    swarms={
        "tailing": {"disconnect": 0.1, "seek": 0, "complete_storage_read": 2},
        "catching_up": {"seek": 3, "add_entry": 0.5, "advance": 0.2},
        "slow_consumers": {"flow": 0.3, "redeliver": 2, "connect": 2},
        "churn": {"connect": 4, "disconnect": 4, "seek": 0.3},
        "sessions": {
            "redeliver": 3,
            "connect": 2,
            "disconnect": 0.7,
            "flow": 0.6,
            "rollover_ledger": 0.1,
            "trim_consumed_ledgers": 0.1,
            "release": 0.3,
            "acknowledge": 0.1,
            "mark_delete": 0.1,
            "seek": 0.1,
            "check_backlogged_cursors": 0.1,
            "check_cursors_to_cache_entries": 0.1,
            "do_cache_eviction": 0.1,
            "advance": 0.1,
        },
        "failing": {"advance": 2, "do_cache_eviction": 2, "complete_storage_read": 0.5},
    },
    guidance={
        "weights": "used; see range_cache for the measurement",
        "swarms": "used; see range_cache for the measurement",
        "situations": "used: more calls of redeliver during a replay read, more checks of cursors after a rewind",
        "corpus": "not used to generate traces; see range_cache",
    },
    abstract=coverage_key,
    measures={
        "entries": entries,
        "ledgers": ledgers,
        "permits": permits,
        "copies": copies,
        "slots": slots,
        "lowest_count": lowest_count,
        "age": age,
    },
    scopes={
        "smoke": SMOKE,
        "churn": CHURN,
        "failover": FAILOVER,
        "keys": KEYS,
        "time": TIME,
        "without_counts": WITHOUT_COUNTS,
    },
    corrupt={
        "request_has_no_reader": request_has_no_reader,
        "durable_count_is_too_large": durable_count_is_too_large,
    },
    largest={"max_requeue_times": 300},  # a pass visits an entry that many times
    tla="ManagedLedger",
    from_tla=from_tla,
)
