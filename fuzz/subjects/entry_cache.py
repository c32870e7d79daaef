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
#: inserted only: the last of a page and the first of the next one, before the first entry, before all that is stored
FAR = (Position(1, 63), Position(1, 64), Position(2, -1), Position(-1, -1))


def open_copies(cfg: Config, s: State) -> tuple[int, ...]:
    """Copies that can be released or replayed; now and then the newest one although it is closed: a refusal."""
    held = [
        c for h in (*s.ranges.queue, *s.ranges.orphaned_copies) if h is not None and h.copies for c in h.copies if c > 0
    ]
    newest = s.ranges.next_copy - 1
    return (*held, newest) if newest % 8 == 1 and newest not in held else tuple(held)


def outstanding_reads(cfg: Config, s: State) -> tuple[int, ...]:
    """Reads that storage can answer; now and then the newest one although it is answered: a refusal."""
    open_reads = tuple([r.number for r in s.reads])
    newest = s.next_read - 1
    return (*open_reads, newest) if newest % 8 == 1 and newest not in open_reads else open_reads


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """What is outstanding and how it is shared, whether an eviction is due, and who waits for permits."""
    kinds = tuple(sorted({q.part.kind for q in s.requests}))
    live = sum([e is not None for e in s.ranges.queue])
    shared = max([len(r.waiting) for r in s.reads], default=0)
    return (
        live if live < 4 else 4,
        kinds,
        len(s.reads) if len(s.reads) < 3 else 3,
        shared if shared < 3 else 3,
        any(not r.joinable for r in s.reads),
        s.marked,
        s.tasks if s.tasks < 2 else 2,
        bool(s.limiter.waiting),
        len(s.limiter.grants) if len(s.limiter.grants) < 3 else 3,
        len(s.owners) > cfg.caches,
        min(s.homes),
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def slots(s: State) -> int:
    """Places in the removal queue, DETACHED ones included."""
    return len(s.ranges.queue)


def copies_count(s: State) -> int:
    """Open copies, and those that are held for a request."""
    return sum([len(h.copies) for h in (*s.ranges.queue, *s.ranges.orphaned_copies) if h is not None])


def requests_count(s: State) -> int:
    """Requests that are not answered yet."""
    return len(s.requests)


def reads_count(s: State) -> int:
    """Outstanding reads of storage."""
    return len(s.reads)


def age(s: State) -> int:
    """Nanoseconds since the oldest entry was put, or put back, or the first request began to wait for permits."""
    times = [e.timestamp_ns for e in s.ranges.queue if e is not None] + [w.since_ns for w in s.limiter.waiting]
    return s.ranges.now_ns - min(times, default=s.ranges.now_ns)


def counts(s: State) -> list[int]:
    """All counters that are defined."""
    found = [h.expected_reads for h in (*s.ranges.queue, *s.ranges.orphaned_copies) if h is not None]
    return [count for count in found if count is not None]


def highest_count(s: State) -> int:
    """The largest counter."""
    return max(counts(s), default=0)


def lowest_count(s: State) -> int:
    """How far below zero a counter is."""
    return -min(counts(s), default=0)


def most_requeues(s: State) -> int:
    """How often an entry was put back."""
    return max([e.requeue_count for e in s.ranges.queue if e is not None], default=0)


def tasks(s: State) -> int:
    """Eviction tasks that are queued."""
    return s.tasks


def stores(s: State) -> int:
    """Range caches, those of topics and those that were removed."""
    return len(s.owners)


# ---- the TLA+ twin ------------------------------------------------------------------------------------

#: Who shares a counter: held copies by request and entry, granted ones by request and place, and how many others.
Copies = Mapping[str, Any]


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, which names the copies that someone names, and only counts the others."""
    grants = sorted((g.request, g.permits, sorted(g.copies)) for g in variables["grants"])
    granted = {name: i for i, name in enumerate([(n, place) for n, _, places in grants for place in places], 1)}
    held = {(q.number, h.entry): 0 for q in variables["requests"] for h in _all_held(q.part)}
    held = {name: -i for i, name in enumerate(held, 1)}
    following = len(granted) + 1

    def numbered(copies: Copies) -> tuple[int, ...]:
        nonlocal following
        following += copies["open"]
        named = [*[held[n] for n in copies["held"]], *[granted[n] for n in copies["granted"]]]
        return tuple(sorted([*named, *range(following - copies["open"], following)]))

    queue = tuple([slot and _entry(slot, numbered(slot.copies)) for slot in variables["queue"]])
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
    taken = tuple([Grant(n, permits, tuple(granted[n, place] for place in places)) for n, permits, places in grants])
    same = ("total_bytes", "max_bytes", "marked", "tasks", "failing")
    return State(
        ranges=caches,
        owners=_in_order(variables["owners"]),
        homes=_in_order(variables["homes"]),
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
    """A function from 0 on; an empty one is read as a tuple."""
    return tuple([numbered[i] for i in range(len(numbered))])


def _entry(slot: Mapping[str, Any], copies: tuple[int, ...]) -> Entry:
    same = ("bytes", "expected_reads", "timestamp_ns", "requeue_count", "accessed")
    fields = {name: slot[name] for name in same}
    return Entry(cache=slot["store"], position=Position(*slot["position"]), copies=copies, released=False, **fields)


def _all_held(part: Any) -> list[Any]:
    """What the twin's part holds, from left to right."""
    return [*part.held, *[h for each in part.parts for h in _all_held(each)]]


def _request(q: Any, held: Mapping[tuple[int, int], int]) -> Request:
    return Request(q.number, q.store, q.cache, q.ledger, q.expected_reads, _part(q.number, q.part, held))


def _part(number: int, part: Any, held: Mapping[tuple[int, int], int]) -> Part:
    mine = tuple([Held(h.entry, h.bytes, held[number, h.entry]) for h in part.held])
    parts = tuple([_part(number, each, held) for each in part.parts])
    return Part(part.kind, part.first, part.last, part.read, mine, parts)


#: Why the scopes are as they are; each scope adds what is its own.
WHY = {
    "stored": "entries of two bytes, so that a size pass can free more than it was asked; hides different sizes",
    "storage_reads": "queued: one that is answered at once is one that is answered next",
    "eviction_task": "queued: one that runs at once is one that runs next",
    "ttl_ns": "one is the least time to live with an age below, at and above it",
    "max_bytes": "the bytes of two entries, which are over the trigger; the watermark leaves one of them",
    "watermark": "a half is a fraction that a double holds exactly; rounding is a matter of the proofs",
    "bytes": "as in storage",
    "expected_reads": "without a counter, and expecting one read",
    "success": "storage answers, or fails",
    "nanos": "the least step; longer ones are several of it",
    "age": "older than the time to live is expired all the same; hides only what stays unevicted longer",
    "requeues": "more requeues than the maximum make no difference; access alone can bring an entry there",
    "lowest_count": "a counter below minus one behaves as minus one until it is replayed that much more often",
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
    reasons=WHY
    | {
        "actions": "adding, reading, evicting by size; no time, removals, replays, permits or settings that change",
        "caches": "one: hides what one topic does to another",
        "max_requeue_times": "one extension: hides that there may be several",
        "expected_reads": "expecting one read: entries without a counter are in the larger scopes",
        "position": "the two that there are",
        "ledger": "the one that there is",
        "first": "each of the two entries",
        "last": "each of the two entries",
        "slots": "hides what takes a third slot, such as two live entries behind a detached one",
        "copies": "two: one request's whole range",
        "requests": "one: hides what requests share, which is in the scope sharing",
        "reads": "one outstanding read",
        "tasks": "two: one more than there may ever be",
        "lowest_count": "counters do not go below zero here",
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
        "actions": "reads that join one another, and one entry that is cached between them",
        "stored": "three entries: an outstanding read can miss some on the left, on the right, and on both sides",
        "max_bytes": "far away: nothing is evicted",
        "position": "the one in the middle, so that a read of all has a gap on each side",
        "expected_reads": "none: what storage brings is not cached; who reads what is in the other scopes",
        "first": "each of the three entries",
        "last": "each of the three entries",
        "slots": "one: the entry in the middle",
        "copies": "three: one request's whole range; hides two requests that both hold entries of all they asked for",
        "requests": "two: hides a read that three requests share",
        "reads": "two: a gap on each side of what is joined or cached",
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
        "actions": "reads that wait for permits, get them, keep them until a release, or wait too long",
        "max_bytes": "far away: nothing is evicted",
        "max_reads_in_flight_bytes": "permits of two entries, not of three; hides reads that want more than all",
        "permits_timeout_ns": "one is the least time to wait with a wait below, at and above it",
        "permits_queue_size": "one waits, the next is refused; hides the order of those who wait",
        "position": "one entry is cached, the other never",
        "insert.expected_reads": "one, so that the entry is cached",
        "expected_reads": "none: what storage brings is not cached",
        "slots": "one: the entry that is cached",
        "copies": "three: more than the permits allow at a time",
        "requests": "three: one with permits, one that waits, one more",
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
        "stores": 2,
        "requeues": 1,
    },
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "all but permits, single reads, settings that change and what is another removal of the same kind",
        "position": "the first of the two; the other comes from storage alone",
        "first": "reads from the first entry, alone and with the second",
        "entries": "none, and one",
        "oddity": "a short answer; what nobody asked for is left to fuzzing",
        "age": "expired, or not",
        "highest_count": "one replay, or one read that is expected",
        "stores": "a topic's cache and one that was removed before",
    },
)

NIGHTLY = Scope(
    actions=CI.actions,
    settings=CI.settings,
    domains=dict(CI.domains) | {"expected_reads": (0, 1)},
    bounds=dict(CI.bounds) | {"age": 2, "lowest_count": 1},
    reasons=dict(CI.reasons)
    | {
        "expected_reads": WHY["expected_reads"],
        "age": WHY["age"],
        "lowest_count": WHY["lowest_count"],
    },
)

# ---- states that `check` must not let pass ------------------------------------------------------------


def more_bytes(s: State) -> State:
    """The total says a byte too much."""
    return s._replace(total_bytes=s.total_bytes + 1)


def a_size_too_small(s: State) -> State | None:
    """A range cache, and the total with it, says a byte too little."""
    sizes = s.ranges.sizes
    if not sizes:
        return None
    fewer = s.ranges._replace(sizes=(sizes[0] - 1, *sizes[1:]))
    return s._replace(ranges=fewer, total_bytes=s.total_bytes - 1)


def an_entry_twice(s: State) -> State | None:
    """An entry stands in the queue a second time."""
    live = [e for e in s.ranges.queue if e is not None]
    if not live:
        return None
    store, size = live[0].cache, live[0].bytes
    sizes = s.ranges.sizes[:store] + (s.ranges.sizes[store] + size,) + s.ranges.sizes[store + 1 :]
    twice = s.ranges._replace(queue=(*s.ranges.queue, live[0]), sizes=sizes)
    return s._replace(ranges=twice, total_bytes=s.total_bytes + size)


def a_held_copy_of_nobody(s: State) -> State | None:
    """A copy is held, and no request holds it."""
    held = [h for q in s.requests for h in all_held((q.part,))]
    return s._replace(requests=(), reads=()) if held and not s.limiter.waiting else None


def a_number_not_given(s: State) -> State | None:
    """The lowest number of a held copy is still to be given."""
    held = [h.copy for q in s.requests for h in all_held((q.part,))]
    return s._replace(next_held=min(held)) if held else None


def joinable_reads_overlap(s: State) -> State | None:
    """Two outstanding reads of a ledger that overlap can both be joined."""
    for a in s.reads:
        for b in s.reads:
            if a is not b and a.store == b.store >= 0 and a.ledger == b.ledger and overlaps(a, b.first, b.last):
                return s._replace(reads=tuple([r._replace(joinable=True) if r in (a, b) else r for r in s.reads]))
    return None


def a_permit_too_many(s: State) -> State | None:
    """There is a free permit that nobody gave back."""
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
        "pressure": {"insert": 4, "do_cache_eviction": 0.3, "advance": 0.3, "run_eviction_task": 2, "read": 0.5},
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
        "movers": {
            "remove_entry_cache": 10,
            "invalidate_ledger": 6,
            "clear_cache": 6,
            "clear_all": 4,
            "invalidate_entries_before": 4,
            "set_max_cache_bytes": 6,
        },
        "patience": {"advance": 2, "do_cache_eviction": 3, "replay": 4},
    },
    guidance={
        "weights": "used, as for the range caches; not measured again",
        "swarms": "used, as for the range caches; not measured again",
        "situations": "not used: see the range caches",
        "corpus": "not used to generate: see the range caches",
    },
    abstract=kind_of_state,
    measures={
        "slots": slots,
        "copies": copies_count,
        "requests": requests_count,
        "reads": reads_count,
        "age": age,
        "highest_count": highest_count,
        "lowest_count": lowest_count,
        "requeues": most_requeues,
        "stores": stores,
        "tasks": tasks,
    },
    scopes={"smoke": SMOKE, "sharing": SHARING, "permits": PERMITS, "ci": CI, "nightly": NIGHTLY},
    corrupt={
        "more_bytes": more_bytes,
        "a_size_too_small": a_size_too_small,
        "an_entry_twice": an_entry_twice,
        "a_held_copy_of_nobody": a_held_copy_of_nobody,
        "a_number_not_given": a_number_not_given,
        "joinable_reads_overlap": joinable_reads_overlap,
        "a_permit_too_many": a_permit_too_many,
    },
    names=("copy", "storage_read"),
    tla="EntryCache",
    from_tla=from_tla,
)
