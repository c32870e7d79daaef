"""The broker's entry cache: how a message is cached when it is added, and found again or fetched when it is read.

Source: PIP-430. It is made of `model/range_cache.py`, `model/entry_cache/shared_reads.py`, `model/entry_cache/reads_limiter.py` and
`model/watermark.py`.
Step grain: one call on the cache, one eviction task, one answer of storage. What may happen inside such a call is in
`model/cache_steps/machine.py`.

    insert       absent: cached, the total grows, and eviction is triggered when it is above 98 % of the maximum
                 present: rejected
    trigger      an eviction task is begun and marked, unless one is marked already
    task         still above the trigger: a size pass down to the watermark; then the mark is taken off
    periodic     a time pass for what is older than the time to live, then as a task
    read         all cached: answered at once
                 none cached: the range is read from storage, or an outstanding read of it is joined
                 some cached: those are held, each gap is read; if a gap fails, the whole range is read again
    storage      answers a read, or fails, or brings less than was asked; entries that expect reads are cached

State: the range caches and the one removal queue; which of them is a topic's cache now, for one that was removed may
still be filled by reads that began before; the total and the eviction's mark; the outstanding reads and the requests
that wait for them; the limiter. Copies that a reader got are numbered from 1 up, copies that are held for a request
which is not answered yet from -1 down.

Not modelled: cursors and their positions (`expected_reads` is handed in, where the broker asks for it when storage
answers); copying on insert; ledgers that grow while they are read; values released behind the cache's back (see
`model/range_cache.py`); threads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from model import range_cache as ranges
from model.entry_cache import names
from model.entry_cache import reads_limiter as limiter
from model.entry_cache.eviction import cached, entries_of, forget, given_again, remove, size_check
from model.entry_cache.reads import Done, answer, begin, give_up, hand_on, permits_back
from model.entry_cache.shared_reads import Part, Request, StorageRead, without_joining
from model.entry_cache.state import (
    ABSENT,
    DISABLED,
    Answered,
    Config,
    Counters,
    Reading,
    Released,
    State,
    derived,
    start,
)
from model.machine import Machine, Step, refused
from model.positions import EARLIEST, Position
from model.range_cache import Count, Entry, Removed
from model.values import AtLeast, Below, Between

entry_cache = Machine("entry_cache", Config, start, source="PIP-430")

Cache = Annotated[int, Below("caches")]
Bytes = Annotated[int, AtLeast(0)]
Nanos = Annotated[int, AtLeast(0)]
EntryId = Annotated[int, AtLeast(0)]

#: What a read is thought to need beside its bytes, for each entry.
ENTRY_OVERHEAD = 64

# ---- caches of topics ---------------------------------------------------------------------------------


def home_of(s: State, cache: int) -> tuple[State, int]:
    """A topic's cache; one that was removed is created anew, disabled if the maximum is 0 now (getEntryCache)."""
    home = s.homes[cache]
    if home != ABSENT:
        return s, home
    if s.max_bytes == 0:
        return s._replace(homes=with_home(s, cache, DISABLED)), DISABLED
    home = len(s.owners)
    grown = s.ranges._replace(sizes=(*s.ranges.sizes, 0))
    return s._replace(ranges=grown, owners=(*s.owners, cache), homes=with_home(s, cache, home)), home


def with_home(s: State, cache: int, home: int) -> tuple[int, ...]:
    """The topics' caches, with another one for this topic."""
    return s.homes[:cache] + (home,) + s.homes[cache + 1 :]


# ---- the total, and eviction --------------------------------------------------------------------------


@entry_cache.action
def run_eviction_task(cfg: Config, s: State) -> Step[State, int]:
    """A queued task runs: the size check, then the mark is taken off. The outcome is how many entries went."""
    if not s.tasks:
        return refused(s, "illegal_state", "no eviction task is queued")
    s, evicted = size_check(cfg, s)
    return s._replace(tasks=s.tasks - 1, marked=False), evicted


@entry_cache.action
def do_cache_eviction(cfg: Config, s: State) -> Step[State, int]:
    """The periodic eviction: what is older than the time to live, then the size check.

    A task that is queued keeps its mark, so that no second one is begun; a version takes the mark off.
    """
    after, removed = ranges.evict_entries(
        derived(cfg).ranges, s.ranges, ranges.time_pass_predicate, s.ranges.now_ns - cfg.ttl_ns
    )
    s, evicted = size_check(cfg, forget(s, after, removed))
    if s.marked and cfg.periodic_eviction_erases_mark:
        s = s._replace(marked=False)
    return s, removed.entries + evicted


# ---- adding entries -----------------------------------------------------------------------------------


@entry_cache.action
def insert(
    cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes, expected_reads: int
) -> Step[State, bool]:
    """A new entry is cached when it was added to the ledger; true if it was absent. Never refused for lack of space."""
    s, store = home_of(s, cache)
    if store == DISABLED:
        return s, False
    present = ranges.find(s.ranges, store, position)
    count = ranges.initial_count(derived(cfg).ranges, expected_reads)
    if present is None:
        return cached(cfg, s, Entry(store, position, bytes, count, (), s.ranges.now_ns, 0, False, False)), True
    return s._replace(ranges=given_again(cfg, s.ranges, present, count, ())), False


# ---- reading ------------------------------------------------------------------------------------------


@entry_cache.action
def read(
    cfg: Config, s: State, cache: Cache, ledger: int, first: EntryId, last: EntryId, expected_reads: int
) -> Step[State, Reading]:
    """A range of a ledger is read, both ends included. Entries that must be fetched expect `expected_reads` reads.

    The request may have to wait for permits first; what it asks for is the ledger's mean size, and some overhead.
    """
    known = derived(cfg)
    stored = known.stored.get((cache, ledger), ())
    if first > last:
        return refused(s, "illegal_argument", "the first entry is after the last")
    if last >= len(stored):
        return refused(s, "illegal_argument", "the ledger has no such entry")
    s, store = home_of(s, cache)
    number, permits = s.next_request, estimated_bytes(stored, last - first + 1)
    limits, answer = limiter.acquire(known.limiter, s.limiter, number, permits, s.ranges.now_ns)
    s = s._replace(next_request=number + 1, limiter=limits)
    if answer == "refused":
        return s, Reading(number, (), (Answered(number, False, ()),))
    request = Request(number, store, cache, ledger, expected_reads, Part("permits", first, last))
    if answer == "waiting":
        return s._replace(requests=(*s.requests, request)), Reading(number, (), ())
    done = Done([], [])
    s = begin(cfg, s, request, done)
    return s, Reading(number, tuple(done.issued), tuple(done.answered))


@entry_cache.action
def read_one(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Reading]:
    """One entry is read, as a replay does it. It expects no reads, so what is fetched is not cached."""
    if position.entry < 0:
        return refused(s, "illegal_argument", "the ledger has no such entry")
    return read(cfg, s, cache, position.ledger, position.entry, position.entry, 0)


def estimated_bytes(stored: tuple[int, ...], entries: int) -> int:
    """What a read of so many entries is thought to need: the ledger's mean size and an overhead, for each."""
    return entries * (max(1, sum(stored) // len(stored)) + ENTRY_OVERHEAD)


@entry_cache.action
def expire_waiting_reads(cfg: Config, s: State) -> Step[State, Reading]:
    """The limiter's timer: requests that waited as long as the timeout for their permits fail.

    Whoever waited behind them may have enough permits now; in a version they wait for the next release.
    """
    limits, failed = limiter.expire(derived(cfg).limiter, s.limiter, s.ranges.now_ns)
    if not failed:
        return s, Reading(None, (), ())
    done = Done([], [])
    s = give_up(s._replace(limiter=limits), failed, done)
    if cfg.timer_hands_permits_on:
        s = hand_on(cfg, s, done)
    return s, Reading(None, tuple(done.issued), tuple(done.answered))


# ---- storage answers ----------------------------------------------------------------------------------


@entry_cache.action
def complete_storage_read(cfg: Config, s: State, storage_read: int, success: bool) -> Step[State, Reading]:
    """Storage answers an outstanding read, or fails it; all who waited for it go on, in the order in which they came.

    A failure makes the other outstanding reads of that ledger unfit for joining.
    """
    r = outstanding(s, storage_read)
    if r is None:
        return refused(s, "not_open", "no outstanding read has this number")
    return answer(cfg, s, r, r.last - r.first + 1 if success else None)


Oddity = Literal["short", "twice", "beyond", "other_ledger", "wraps"]


@entry_cache.fault
def answer_oddly(
    cfg: Config, s: State, storage_read: int, entries: Annotated[int, AtLeast(0)], oddity: Oddity
) -> Step[State, Reading]:
    """Storage brings only the first entries of what it was asked for, and perhaps one that it was not asked for.

    What was not asked for is left out; whoever needs all of a range does not have it.
    """
    r = outstanding(s, storage_read)
    if r is None:
        return refused(s, "not_open", "no outstanding read has this number")
    if entries > r.last - r.first:
        return refused(s, "illegal_argument", "that many entries are no short answer")
    return answer(cfg, s, r, accepted(r, brought(r, entries, oddity)))


def outstanding(s: State, number: int) -> StorageRead | None:
    """The outstanding read of that number."""
    return next((r for r in s.reads if r.number == number), None)


def brought(r: StorageRead, entries: int, oddity: Oddity) -> list[Position]:
    """An odd answer: the first entries, and one that is there twice, or that nobody asked for."""
    asked = [Position(r.ledger, r.first + i) for i in range(entries)]
    odd = {
        "short": [],
        "twice": asked[:1],
        "beyond": [Position(r.ledger, r.last + 1)],
        "other_ledger": [Position(r.ledger + 1, r.first + entries)],
        "wraps": [Position(r.ledger, r.first + entries + 2**32)],
    }
    return asked + odd[oddity]


def accepted(r: StorageRead, positions: list[Position]) -> int:
    """How many of the first entries of a read are there, each once and in order; the rest of the answer is no use."""
    for i, position in enumerate(positions):
        if position != Position(r.ledger, r.first + i) or position.entry > r.last:
            return i
    return len(positions)


@entry_cache.fault
def fail_next_storage_reads(cfg: Config, s: State, count: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """Where storage answers at once, its next reads fail; this many, whatever was said before."""
    if cfg.storage_reads == "queued":
        return refused(s, "illegal_state", "a queued read fails when it is completed")
    return s._replace(failing=count), None


# ---- copies -------------------------------------------------------------------------------------------


@entry_cache.action
def release(cfg: Config, s: State, copy: Annotated[int, AtLeast(1)]) -> Step[State, Released]:
    """A reader gives back an entry that it has dealt with: one read fewer to expect ("Dynamic Updates").

    With the last entry of a request its permits are free again.
    """
    caches, count = ranges.change_read_count(s.ranges, copy, ranges.marked_read, keep_copy=False)
    if not isinstance(count, Count):
        return s, count
    s = s._replace(ranges=caches)
    if not s.limiter.grants:
        return s, Released(count.expected_reads, (), ())
    done = Done([], [])
    for grant in s.limiter.grants:
        if copy in grant.copies:
            left = tuple([c for c in grant.copies if c != copy])
            grants = tuple([g._replace(copies=left) if g is grant else g for g in s.limiter.grants])
            s = s._replace(limiter=s.limiter._replace(grants=grants))
            if not left:
                s = permits_back(cfg, s, grant.request, done)
            break
    return s, Released(count.expected_reads, tuple(done.issued), tuple(done.answered))


@entry_cache.action
def replay(cfg: Config, s: State, copy: Annotated[int, AtLeast(1)]) -> Step[State, Count]:
    """The copy's entry goes to the replay queue: it will be read once more ("Dynamic Updates")."""
    caches, count = ranges.change_read_count(s.ranges, copy, ranges.replayed, keep_copy=True)
    return (s._replace(ranges=caches), count) if isinstance(count, Count) else (s, count)


# ---- removing -----------------------------------------------------------------------------------------


@entry_cache.action
def invalidate_entries_before(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, None]:
    """What a topic's cache holds before a position, in whatever ledger, is removed."""
    s, store = home_of(s, cache)
    return remove(cfg, s, entries_of(s, store, lambda e: EARLIEST <= e.position < position)), None


@entry_cache.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, None]:
    """A ledger's entries are removed from a topic's cache; nobody joins its outstanding reads any more."""
    s, store = home_of(s, cache)
    s = remove(cfg, s, entries_of(s, store, lambda e: e.position.ledger == ledger))
    return s._replace(reads=without_joining(s.reads, store, ledger)) if s.reads and store >= 0 else s, None


@entry_cache.action
def clear_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """A topic's cache is emptied; nobody joins its outstanding reads any more."""
    s, store = home_of(s, cache)
    return emptied(cfg, s, store), None


def emptied(cfg: Config, s: State, store: int) -> State:
    """A range cache without entries, and without reads that could be joined."""
    s = remove(cfg, s, entries_of(s, store, lambda e: True))
    return s._replace(reads=without_joining(s.reads, store, None)) if s.reads and store >= 0 else s


@entry_cache.action
def clear_all(cfg: Config, s: State) -> Step[State, None]:
    """Every topic's cache is emptied; one that was removed before, and filled since, is not reached."""
    for home in s.homes:
        if home >= 0:
            s = emptied(cfg, s, home)
    return s, None


@entry_cache.action
def remove_entry_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """A topic's cache is forgotten, then emptied; the next use begins with a new one.

    A read that began before may still fill the old one: such entries count, and are evicted, but never found.
    """
    store = s.homes[cache]
    if store == ABSENT:
        return s, None
    s = s._replace(homes=with_home(s, cache, ABSENT))
    return (emptied(cfg, s, store) if store >= 0 else s), None


@entry_cache.action
def non_evictable_size(cfg: Config, s: State) -> Step[State, Removed]:
    """Entries that expect reads or do not count them, and their bytes; see the range caches' action of that name."""
    after, held = ranges.non_evictable_size(derived(cfg).ranges, s.ranges)
    assert isinstance(held, Removed)
    return s._replace(ranges=after), held


# ---- time and settings --------------------------------------------------------------------------------


@entry_cache.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Time passes."""
    return s._replace(ranges=s.ranges._replace(now_ns=s.ranges.now_ns + nanos)), None


@entry_cache.action
def set_max_cache_bytes(cfg: Config, s: State, value: Bytes) -> Step[State, None]:
    """The maximum changes while the broker runs; by itself that evicts nothing (updateCacheSizeAndThreshold)."""
    return s._replace(max_bytes=value), None


@entry_cache.action
def set_eviction_watermark(cfg: Config, s: State, value: Annotated[float, Between(0, 1)]) -> Step[State, None]:
    """The watermark changes while the broker runs; by itself that evicts nothing."""
    return s._replace(watermark=value), None


@entry_cache.action
def set_max_requeue_times(cfg: Config, s: State, value: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """The maximum of extensions changes while the broker runs; entries keep their counts."""
    return s._replace(ranges=s.ranges._replace(max_requeue_times=value)), None


@entry_cache.action
def set_extend_ttl(cfg: Config, s: State, value: bool) -> Step[State, None]:
    """The extension for recent access is switched while the broker runs; entries keep their marks."""
    return s._replace(ranges=s.ranges._replace(extend_ttl_of_recently_accessed=value)), None


# ---- names and observers ------------------------------------------------------------------------------


@entry_cache.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Only differences matter: time is counted from now, and whatever has a number is numbered in order.

    Range caches: those of the topics, then those that were removed and still hold or await something. Held copies by
    the requests that hold them; open copies by the grants that name them, then as they stand.
    """
    s = s._replace(counters=Counters())
    return names.renumber_copies(names.renumber_requests(names.renumber_stores(names.from_now(s))))


@entry_cache.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """The topics' caches, the queue, the open copies with their counters, the eviction, and the metrics."""
    seen: dict[str, Any] = ranges.observe(derived(cfg).ranges, s.ranges)
    disabled, empty = {"disabled": True, "bytes": 0}, {"entries": 0, "bytes": 0, "keys": []}
    unused = disabled if s.max_bytes == 0 else empty
    return {
        "total_bytes": s.total_bytes,
        "caches": [seen["caches"][h] if h >= 0 else disabled if h == DISABLED else unused for h in s.homes],
        "removal_queue": [slot and [s.owners[slot[0]], *slot[1:]] for slot in seen["removal_queue"]],
        "open_copies": [pair for pair in seen["open_copies"] if pair[0] > 0],
        "eviction_in_progress": s.marked,
        "queued_eviction_tasks": s.tasks,
        "outstanding_storage_reads": [r.number for r in s.reads],
        "waiting_for_permits": [w.request for w in s.limiter.waiting],
        "counters": s.counters._asdict(),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = entry_cache.profile("reference", "what this specification holds to be right", Config())

recorded = entry_cache.profile(
    "pulsar-2026-07",
    "as recorded from Apache Pulsar master, 2026-07-23",
    Config(
        duplicate_put="keep",
        removal_marks_read=True,
        undelivered_release_marks_read=True,
        rejection_counts_as_read=True,
        periodic_eviction_erases_mark=True,
        timer_hands_permits_on=False,
    ),
)

null_slot = entry_cache.profile(
    "null-slot",
    "before OpReadEntryNullSlotTest: a mixed read that storage answers short is never answered",
    Config(short_answer="never_answered"),
)
