"""How to drive the entry cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.entry_cache.manager import EntryCaches
from invariants import entry_cache as invariants
from model import range_cache as ranges
from model.entry_cache.machine import entry_cache
from model.entry_cache.reads_limiter import Grant, Limiter, Waiting
from model.entry_cache.shared_reads import Held, Part, Request, StorageRead, all_held, overlaps
from model.entry_cache.state import Config, Counters, State, Stored
from model.positions import Position
from model.range_cache import Entry, OrphanedCopies

POSITIONS = tuple(Position(ledger, entry) for ledger in (1, 2) for entry in range(6))
#: for `insert` only: the last entry of a page, the first of the next one, and positions before the first entry
FAR = (Position(1, 63), Position(1, 64), Position(2, -1), Position(-1, -1))


def open_copies(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the open copies, whose numbers are positive; rarely also a closed one, whose release is refused."""
    held = [
        c for h in (*s.ranges.queue, *s.ranges.orphaned_copies) if h is not None and h.copies for c in h.copies if c > 0
    ]
    newest = s.ranges.next_copy - 1
    return (*held, newest) if newest % 8 == 1 and newest not in held else tuple(held)  # one number in eight


def outstanding_reads(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the outstanding reads; rarely also a completed one, whose completion is refused."""
    open_reads = tuple([r.number for r in s.reads])
    newest = s.next_read - 1
    return (*open_reads, newest) if newest % 8 == 1 and newest not in open_reads else open_reads


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns facts about the entries, requests, storage reads, eviction, permits and range caches."""
    kinds = tuple(sorted({q.part.kind for q in s.requests}))
    live = sum([e is not None for e in s.ranges.queue])
    shared = max([len(r.waiting) for r in s.reads], default=0)  # most requests that wait for one storage read
    return (
        live if live < 4 else 4,
        kinds,
        len(s.reads) if len(s.reads) < 3 else 3,
        shared if shared < 3 else 3,
        any(not r.joinable for r in s.reads),
        s.eviction_in_progress,
        s.tasks if s.tasks < 2 else 2,
        bool(s.limiter.waiting),
        len(s.limiter.grants) if len(s.limiter.grants) < 3 else 3,
        len(s.owners) > cfg.caches,
        min(s.topic_caches),
    )


# ---- measures that scopes bound ------------------------------------------------------------------------


def slots(s: State) -> int:
    """Returns the number of slots of the removal queue, including detached ones, whose entry was removed."""
    return len(s.ranges.queue)


def copies_count(s: State) -> int:
    """Returns the number of open copies and of copies held for a request."""
    return sum([len(h.copies) for h in (*s.ranges.queue, *s.ranges.orphaned_copies) if h is not None])


def requests_count(s: State) -> int:
    """Returns the number of pending requests."""
    return len(s.requests)


def reads_count(s: State) -> int:
    """Returns the number of outstanding storage reads."""
    return len(s.reads)


def age(s: State) -> int:
    """Returns the nanoseconds since the oldest timestamp in the removal queue or in the queue for permits."""
    times = [e.timestamp_ns for e in s.ranges.queue if e is not None] + [w.since_ns for w in s.limiter.waiting]
    return s.ranges.now_ns - min(times, default=s.ranges.now_ns)


def counts(s: State) -> list[int]:
    """Returns the read counts of all entries and orphaned copies that have one."""
    found = [h.expected_reads for h in (*s.ranges.queue, *s.ranges.orphaned_copies) if h is not None]
    return [count for count in found if count is not None]


def highest_count(s: State) -> int:
    """Returns the largest read count."""
    return max(counts(s), default=0)


def lowest_count(s: State) -> int:
    """Returns the absolute value of the smallest negative read count; 0 if no read count is negative."""
    return -min(counts(s), default=0)


def most_requeues(s: State) -> int:
    """Returns the largest requeue count."""
    return max([e.requeue_count for e in s.ranges.queue if e is not None], default=0)


def tasks(s: State) -> int:
    """Returns the number of queued eviction tasks."""
    return s.tasks


def range_caches(s: State) -> int:
    """Returns the number of range caches, including removed ones."""
    return len(s.owners)


# ---- the TLA+ twin ------------------------------------------------------------------------------------

#: The copies of an entry in the twin. `held`: (request, entry id) of each copy that is held for a pending request.
#: `granted`: (request, index) of each delivered copy whose request has permits. `open`: the number of other copies.
Copies = Mapping[str, Any]


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables.

    Held copies get the numbers -1, -2 and so on, granted copies the numbers from 1 on, and the others the next numbers.
    """
    grants = sorted((g.request, g.permits, sorted(g.copies)) for g in variables["grants"])
    granted = {name: i for i, name in enumerate([(n, index) for n, _, indices in grants for index in indices], 1)}
    # each pair once, in the order of the requests
    held = {(q.number, h.entry): 0 for q in variables["requests"] for h in _all_held(q.part)}
    held = {name: -i for i, name in enumerate(held, 1)}
    following = len(granted) + 1

    def numbered(copies: Copies) -> tuple[int, ...]:  # the model's numbers of the copies
        nonlocal following
        following += copies["open"]
        named = [*[held[n] for n in copies["held"]], *[granted[n] for n in copies["granted"]]]
        return tuple(sorted([*named, *range(following - copies["open"], following)]))

    queue = tuple([slot and _entry(slot, numbered(slot.copies)) for slot in variables["queue"]])
    # a bag has each element with the number of its occurrences
    bag = dict(variables["orphaned_copies"]) if variables["orphaned_copies"] else {}
    orphaned_copies = [
        OrphanedCopies(numbered(g.copies), g.expected_reads) for g, times in bag.items() for _ in range(times)
    ]
    caches = ranges.State(
        now_ns=0,
        queue=queue,
        stash=(),
        sizes=_in_order(variables["sizes"]),
        orphaned_copies=tuple(sorted(orphaned_copies)),
        next_copy=following,
        max_requeue_times=variables["max_requeue_times"],
        extend_ttl_of_recently_accessed=variables["extend_ttl_of_recently_accessed"],
    )
    waiting = tuple([Waiting(**w) for w in variables["waiting"]])
    taken = tuple([Grant(n, permits, tuple(granted[n, index] for index in indices)) for n, permits, indices in grants])
    same = ("total_bytes", "max_bytes", "eviction_in_progress", "tasks", "failing")
    return State(
        ranges=caches,
        owners=_in_order(variables["owners"]),
        topic_caches=_in_order(variables["topic_caches"]),
        **{name: variables[name] for name in same},
        watermark=variables["watermark"].num / variables["watermark"].den,
        reads=tuple([StorageRead(**r) for r in variables["reads"]]),
        requests=tuple([_request(q, held) for q in variables["requests"]]),
        limiter=Limiter(variables["free"], waiting, taken),
        next_request=len({q.number for q in variables["requests"]} | {n for n, _, _ in grants}) + 1,
        next_read=len(variables["reads"]) + 1,
        next_held=-len(held) - 1,
        counters=Counters(),
    )


def _in_order(numbered: Any) -> tuple[int, ...]:
    """Returns the values of a TLA+ function whose domain starts at 0, as a tuple."""
    return tuple([numbered[i] for i in range(len(numbered))])


def _entry(slot: Mapping[str, Any], copies: tuple[int, ...]) -> Entry:
    same = ("bytes", "expected_reads", "timestamp_ns", "requeue_count", "accessed")
    fields = {name: slot[name] for name in same}
    cache, position = slot["range_cache"], Position(*slot["position"])
    return Entry(cache=cache, position=position, copies=copies, released=False, **fields)


def _all_held(part: Any) -> list[Any]:
    """Returns the held entries of a part of the twin, from left to right."""
    return [*part.held, *[h for each in part.parts for h in _all_held(each)]]


def _request(q: Any, held: Mapping[tuple[int, int], int]) -> Request:
    return Request(q.number, q.range_cache, q.cache, q.ledger, q.expected_reads, _part(q.number, q.part, held))


def _part(number: int, part: Any, held: Mapping[tuple[int, int], int]) -> Part:
    mine = tuple([Held(h.entry, h.bytes, held[number, h.entry]) for h in part.held])
    parts = tuple([_part(number, each, held) for each in part.parts])
    return Part(part.kind, part.first, part.last, part.read, mine, parts)


#: Reasons for the choices that several scopes share.
REASONS = {
    "stored": "entries of two bytes: a size pass can free more than its goal; excludes different sizes",
    "storage_reads": "queued: an immediate answer equals a queued answer that comes next",
    "eviction_task": "queued: an immediate task equals a queued task that runs next",
    "ttl_ns": "one: the smallest TTL with an age below, at and above it",
    "max_bytes": "the size of two entries, which is above the trigger; a size pass leaves one of them",
    "watermark": "one half: exact as a double; the proofs cover rounding",
    "bytes": "as in storage",
    "expected_reads": "an entry without read count handler, and one with one expected read",
    "success": "both: a storage read completes or fails",
    "nanos": "the smallest step; a longer step equals several of them",
    "age": "TTL plus one: an older entry is expired as well; excludes entries that stay longer without an eviction",
    "requeues": "the maximum: a larger requeue count changes no decision",
    "lowest_count": "minus one: a smaller read count has a different effect only after several replays",
}

SMOKE = Scope(
    actions=("insert", "read", "complete_storage_read", "run_eviction_task", "do_cache_eviction", "release"),
    settings={
        "caches": 1,
        "stored": (Stored(0, 1, (2, 2)),),
        "storage_reads": "queued",
        "eviction_task": "queued",
        "ttl_ns": 1,
        "max_requeue_times": 1,
        "max_bytes": 4,
        "watermark": 0.5,
    },
    domains={
        "position": (Position(1, 0), Position(1, 1)),
        "bytes": (2,),
        "expected_reads": (1,),
        "ledger": (1,),
        "first": (0, 1),
        "last": (0, 1),
        "success": (True, False),
    },
    bounds={"slots": 2, "copies": 2, "requests": 1, "reads": 1, "tasks": 2, "lowest_count": 0, "requeues": 1},
    reasons=REASONS
    | {
        "actions": "insertion, reads and size eviction; excludes time, removals, replays, permits and changed settings",
        "caches": "one: excludes interference of topics",
        "max_requeue_times": "one: excludes several requeues",
        "expected_reads": "one; entries without read count handler are in the larger scopes",
        "position": "both stored entries",
        "ledger": "the only stored ledger",
        "first": "both entries of a ledger",
        "last": "both entries of a ledger",
        "slots": "two: excludes two cached entries behind a detached slot",
        "copies": "two: the whole range of one request",
        "requests": "one: shared reads are in the scope sharing",
        "reads": "one outstanding read",
        "tasks": "two: one more than the property at_most_one_eviction_task allows",
        "lowest_count": "zero: excludes negative read counts",
    },
)

SHARING = Scope(
    actions=("insert", "read", "complete_storage_read"),
    settings=dict(SMOKE.settings) | {"stored": (Stored(0, 1, (2, 2, 2)),), "max_bytes": 1000},
    domains={
        "position": (Position(1, 1),),
        "bytes": (2,),
        "expected_reads": (0,),
        "ledger": (1,),
        "first": (0, 1, 2),
        "last": (0, 1, 2),
        "success": (True, False),
    },
    bounds={"slots": 1, "copies": 3, "requests": 2, "reads": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "reads that join other reads, with one cached entry between them",
        "stored": "three entries: an outstanding read can lack entries on the left, on the right and on both sides",
        "max_bytes": "so large that nothing is evicted",
        "position": "the middle entry: a read of all three has a gap on each side",
        "expected_reads": "none: entries from storage are not cached; read counts are in the other scopes",
        "first": "all three entries",
        "last": "all three entries",
        "slots": "one: the middle entry",
        "copies": "three: the whole range of one request; excludes two requests that both hold complete ranges",
        "requests": "two: excludes a read that three requests share",
        "reads": "two: one for the gap on each side of a joined or cached range",
    },
)

PERMITS = Scope(
    actions=("insert", "read", "complete_storage_read", "release", "expire_waiting_reads", "advance"),
    settings=dict(SMOKE.settings)
    | {"max_bytes": 1000, "max_reads_in_flight_bytes": 140, "permits_timeout_ns": 1, "permits_queue_size": 1},
    domains={
        "position": (Position(1, 0),),
        "bytes": (2,),
        "insert.expected_reads": (1,),
        "expected_reads": (0,),
        "ledger": (1,),
        "first": (0, 1),
        "last": (0, 1),
        "success": (True, False),
        "nanos": (1,),
    },
    bounds={"slots": 1, "copies": 3, "requests": 3, "reads": 2, "age": 2, "lowest_count": 0},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "reads that wait for permits, get permits, return permits at a release, or time out",
        "max_bytes": "so large that nothing is evicted",
        "max_reads_in_flight_bytes": "permits for two entries but not for three; excludes reads above the maximum",
        "permits_timeout_ns": "one: the smallest timeout with a wait below, at and above it",
        "permits_queue_size": "one: one request waits, the next is rejected; excludes the order of queued requests",
        "position": "the first entry; the second is never cached",
        "insert.expected_reads": "one expected read",
        "expected_reads": "none: entries from storage are not cached",
        "slots": "one: the cached entry",
        "copies": "three: more than the permits allow",
        "requests": "three: two with permits, and one queued; more cannot be pending",
        "reads": "two: the permits allow no more",
    },
)

CI = Scope(
    actions=(
        "insert",
        "read",
        "complete_storage_read",
        "answer_oddly",
        "run_eviction_task",
        "do_cache_eviction",
        "release",
        "replay",
        "invalidate_ledger",
        "remove_entry_cache",
        "advance",
    ),
    settings=SMOKE.settings,
    domains=dict(SMOKE.domains)
    | {
        "position": (Position(1, 0),),
        "first": (0,),
        "entries": (0, 1),
        "oddity": ("short",),
        "nanos": (1,),
    },
    bounds={
        "slots": 2,
        "copies": 2,
        "requests": 1,
        "reads": 1,
        "tasks": 2,
        "age": 1,
        "lowest_count": 0,
        "highest_count": 1,
        "range_caches": 2,
        "requeues": 1,
    },
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "excludes permits, single reads, changed settings and other removals",
        "position": "the first entry; the second comes from storage only",
        "first": "the first entry: a read has one entry or both",
        "entries": "no entry or one entry",
        "oddity": "a short answer; unexpected entries are left to fuzzing",
        "age": "the TTL: excludes expired entries, which are in the scope nightly",
        "highest_count": "one expected read or one replay",
        "range_caches": "the topic's cache and one removed cache",
    },
)

NIGHTLY = Scope(
    actions=CI.actions,
    settings=CI.settings,
    domains=dict(CI.domains) | {"expected_reads": (0, 1)},
    bounds=dict(CI.bounds) | {"age": 2, "lowest_count": 1},
    reasons=dict(CI.reasons)
    | {
        "expected_reads": REASONS["expected_reads"],
        "age": REASONS["age"],
        "lowest_count": REASONS["lowest_count"],
    },
)

# ---- corrupted states that `check` must report ----------------------------------------------------------


def total_is_too_large(_cfg: Config, s: State) -> State:
    """The total size is one byte too large."""
    return s._replace(total_bytes=s.total_bytes + 1)


def cache_size_is_too_small(_cfg: Config, s: State) -> State | None:
    """The size of a range cache and the total size are one byte too small."""
    sizes = s.ranges.sizes
    if not sizes:
        return None
    fewer = s.ranges._replace(sizes=(sizes[0] - 1, *sizes[1:]))
    return s._replace(ranges=fewer, total_bytes=s.total_bytes - 1)


def entry_is_queued_twice(_cfg: Config, s: State) -> State | None:
    """An entry is in the removal queue twice."""
    live = [e for e in s.ranges.queue if e is not None]
    if not live:
        return None
    range_cache, size = live[0].cache, live[0].bytes
    sizes = s.ranges.sizes[:range_cache] + (s.ranges.sizes[range_cache] + size,) + s.ranges.sizes[range_cache + 1 :]
    twice = s.ranges._replace(queue=(*s.ranges.queue, live[0]), sizes=sizes)
    return s._replace(ranges=twice, total_bytes=s.total_bytes + size)


def held_copy_has_no_request(_cfg: Config, s: State) -> State | None:
    """A copy is held for a request that is not pending."""
    held = [h for q in s.requests for h in all_held((q.part,))]
    # if the limiter refers to a request, `load` already fails
    return s._replace(requests=(), reads=()) if held and not s.limiter.waiting else None


def next_held_copy_is_in_use(_cfg: Config, s: State) -> State | None:
    """The next number for a held copy is in use."""
    held = [h.copy for q in s.requests for h in all_held((q.part,))]
    return s._replace(next_held=min(held)) if held else None


def overlapping_reads_are_joinable(_cfg: Config, s: State) -> State | None:
    """Two overlapping outstanding reads of a ledger are both joinable."""
    for a in s.reads:
        for b in s.reads:
            shares_ledger = a.range_cache == b.range_cache >= 0 and a.ledger == b.ledger
            if a is not b and shares_ledger and overlaps(a, b.first, b.last):
                return s._replace(reads=tuple([r._replace(joinable=True) if r in (a, b) else r for r in s.reads]))
    return None


def free_permits_are_too_many(_cfg: Config, s: State) -> State | None:
    """There is one free permit more than the limiter has."""
    # with grants, the limiter is on; `check` does not look at one that is off
    return s._replace(limiter=s.limiter._replace(free=s.limiter.free + 1)) if s.limiter.grants else None


subject = Subject(
    entry_cache,
    EntryCaches,
    invariants,
    domains={
        "cache": (0, 1),
        "ledger": (1, 1, 1, 2, 2, 3),
        "position": POSITIONS,
        "insert.position": (*POSITIONS, *FAR),
        "first": (0, 0, 1, 2, 3),
        "last": (2, 3, 2, 4, 1, 5, 6, 0),
        "bytes": (10, 1, 0, 40),
        "expected_reads": (1, 0, 2, 3, -1),
        "storage_read": outstanding_reads,
        "success": (True, True, False),
        "entries": (0, 1, 2),
        "oddity": ("short", "twice", "beyond", "other_ledger", "wraps"),
        "count": (1, 2, 0, 3),
        "copy": open_copies,
        "nanos": (1, 9, 10, 11),
        "set_max_cache_bytes.value": (0, 21, 51, 100),
        "set_eviction_watermark.value": (0.0, 0.5, 0.9, 1.0),
        "set_max_requeue_times.value": (0, 1, 2, 5),
        "set_extend_ttl.value": (True, False),
    },
    settings={
        "storage_reads": ("queued", "queued", "immediate"),
        "eviction_task": ("queued", "immediate"),
        "ttl_ns": (10,),
        "max_bytes": (51, 100, 21, 1000, 0),
        "watermark": (0.9, 0.5, 0.0, 1.0),
        "max_requeue_times": (2, 5, 1, 0),
        "extend_ttl_of_recently_accessed": (False, True),
        "max_reads_in_flight_bytes": (0, 230, 0, 160, 230, 150, 300, 1000),
        "permits_timeout_ns": (10, 20, 10),
        "permits_queue_size": (2, 3, 1, 2, 0, 3),
        "stored": (
            (
                Stored(0, 1, (10, 11, 9, 10, 1, 10)),
                Stored(0, 2, (10, 10, 0, 10, 30, 10)),
                Stored(1, 1, (10, 7, 13, 10, 10, 10)),
            ),
        ),
    },
    weights={
        "insert": 7,
        "read": 3,
        "read_one": 0.7,
        "complete_storage_read": 3,
        "answer_oddly": 0.5,
        "fail_next_storage_reads": 0.2,
        "run_eviction_task": 1.2,
        "do_cache_eviction": 2,
        "release": 6,
        "replay": 1,
        "invalidate_entries_before": 0.5,
        "invalidate_ledger": 0.3,
        "clear_cache": 0.1,
        "clear_all": 0.05,
        "remove_entry_cache": 0.1,
        "non_evictable_size": 0.2,
        "set_max_cache_bytes": 0.1,
        "set_eviction_watermark": 0.1,
        "set_max_requeue_times": 0.1,
        "set_extend_ttl": 0.1,
        "expire_waiting_reads": 0.5,
        "advance": 10,
    },
    swarms={
        "sharing": {
            "read": 4,
            "complete_storage_read": 0.5,
            "answer_oddly": 0.5,
            "insert": 0.3,
            "do_cache_eviction": 0.1,
            "advance": 0.1,
        },
        "failing": {"read": 2, "fail_next_storage_reads": 10, "answer_oddly": 6, "insert": 2, "do_cache_eviction": 0.2},
        "evicting": {"insert": 4, "do_cache_eviction": 0.3, "advance": 0.3, "run_eviction_task": 2, "read": 0.5},
        "permits": {
            "read": 1.2,
            "read_one": 9,
            "release": 0.5,
            "complete_storage_read": 2,
            "expire_waiting_reads": 8,
            "insert": 0.02,
            "do_cache_eviction": 0.02,
            "run_eviction_task": 0.05,
            "replay": 0.05,
            "advance": 0.6,
        },
        "invalidation": {
            "remove_entry_cache": 10,
            "invalidate_ledger": 6,
            "clear_cache": 6,
            "clear_all": 4,
            "invalidate_entries_before": 4,
            "set_max_cache_bytes": 6,
        },
        "long_lived": {"advance": 2, "do_cache_eviction": 3, "replay": 4},
    },
    guidance={
        "weights": "used; see range_cache for the measurement",
        "swarms": "used; see range_cache for the measurement",
        "situations": "not used; see range_cache",
        "corpus": "not used to generate traces; see range_cache",
    },
    abstract=coverage_key,
    measures={
        "slots": slots,
        "copies": copies_count,
        "requests": requests_count,
        "reads": reads_count,
        "age": age,
        "highest_count": highest_count,
        "lowest_count": lowest_count,
        "requeues": most_requeues,
        "range_caches": range_caches,
        "tasks": tasks,
    },
    scopes={"smoke": SMOKE, "sharing": SHARING, "permits": PERMITS, "ci": CI, "nightly": NIGHTLY},
    corrupt={
        "total_is_too_large": total_is_too_large,
        "cache_size_is_too_small": cache_size_is_too_small,
        "entry_is_queued_twice": entry_is_queued_twice,
        "held_copy_has_no_request": held_copy_has_no_request,
        "next_held_copy_is_in_use": next_held_copy_is_in_use,
        "overlapping_reads_are_joinable": overlapping_reads_are_joinable,
        "free_permits_are_too_many": free_permits_are_too_many,
    },
    largest={"max_requeue_times": 300, "set_max_requeue_times.value": 300},  # a pass visits an entry that many times
    tla="EntryCache",
    from_tla=from_tla,
)
