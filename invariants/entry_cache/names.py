"""The canonical form of the entry cache's states renumbers, makes times relative to now, and sets metrics to zero.

It changes nothing else.
"""

from __future__ import annotations

from invariants.entry_cache.derived import held_by
from invariants.properties import Event, always
from model.entry_cache.machine import entry_cache
from model.entry_cache.shared_reads import Part, Request
from model.entry_cache.state import Config, Counters, State


def held_and_open(copies: tuple[int, ...]) -> tuple[int, int]:
    """Returns the number of copies that are held for requests, and the number of open copies."""
    held = sum(copy < 0 for copy in copies)
    return held, len(copies) - held


def form(s: State) -> tuple[object, ...]:
    """Returns what the canonical form of a state keeps: all but metrics and numbers. Times are relative to now.

    In place of the number of a cache, request, read or copy, `form` has what the number refers to.
    """
    now, queue = s.ranges.now_ns, s.ranges.queue
    holders = {copy: i for i, e in enumerate(queue) if e is not None for copy in e.copies}
    orphans = {copy: g.expected_reads for g in s.ranges.orphaned_copies for copy in g.copies}
    requests = {q.number: i for i, q in enumerate(s.requests)}
    reads = {r.number: i for i, r in enumerate(s.reads)}
    topics = {range_cache: i for i, range_cache in enumerate(s.topic_caches) if range_cache >= 0}

    def holder_of(copy: int) -> object:
        # The slot of the entry that has the copy; or, for an orphaned copy, the read count of its group.
        return holders.get(copy), orphans.get(copy)

    def owner(range_cache: int) -> object:
        # Topic of creation, topic that uses the range cache now (or None), and size; ABSENT and DISABLED stay.
        if range_cache < 0:
            return range_cache
        return s.owners[range_cache], topics.get(range_cache), s.ranges.sizes[range_cache]

    def form_of_part(part: Part) -> object:
        held = [(h.entry, h.bytes, holder_of(h.copy)) for h in part.held]
        return part.kind, part.first, part.last, reads.get(part.read), held, [form_of_part(each) for each in part.parts]

    def form_of_request(q: Request) -> object:
        return owner(q.range_cache), q.cache, q.ledger, q.expected_reads, form_of_part(q.part)

    limiter = s.limiter
    rest = (
        s.ranges.stash,
        s.total_bytes,
        s.max_bytes,
        s.watermark,
        s.eviction_in_progress,
        s.tasks,
        s.failing,
        limiter.free,
    )
    # e[1:4] is position to expected_reads, e[6:] is requeue_count to released; r[2:8] is cache to joinable.
    return (
        [e and (owner(e.cache), e[1:4], held_and_open(e.copies), e.timestamp_ns - now, e[6:]) for e in queue],
        # As text, because a read count of None cannot be compared with a number.
        sorted(repr((held_and_open(g.copies), g.expected_reads)) for g in s.ranges.orphaned_copies),
        [owner(range_cache) for range_cache in s.topic_caches],
        [(owner(r.range_cache), r[2:8], [requests[n] for n in r.waiting]) for r in s.reads],
        [form_of_request(q) for q in s.requests],
        [(requests[w.request], w.permits, w.since_ns - now) for w in limiter.waiting],
        [(requests.get(g.request), g.permits, [holder_of(copy) for copy in g.copies]) for g in limiter.grants],
        (*rest, s.ranges.max_requeue_times, s.ranges.extend_ttl_of_recently_accessed),
    )


def is_numbered(s: State) -> bool:
    """Whether requests, reads and copies are numbered without gaps, and time and metrics are zero."""
    of_cached = [copy for e in s.ranges.queue if e is not None for copy in e.copies]
    copies = sorted([*of_cached, *[copy for g in s.ranges.orphaned_copies for copy in g.copies]])
    negative = sum(copy < 0 for copy in copies)
    numbers = sorted({q.number for q in s.requests} | {g.request for g in s.limiter.grants})
    following = (s.next_request, s.next_read, s.ranges.next_copy, s.next_held)
    return (
        numbers == list(range(1, len(numbers) + 1))
        and [r.number for r in s.reads] == list(range(1, len(s.reads) + 1))
        and copies == [*range(-negative, 0), *range(1, len(copies) - negative + 1)]
        and following == (len(numbers) + 1, len(s.reads) + 1, len(copies) - negative + 1, -negative - 1)
        and (s.ranges.now_ns, s.counters) == (0, Counters())
    )


@always(entry_cache, on=("complete_storage_read", "remove_entry_cache", "release"))
def canonical_form_renames_only(cfg: Config, before: State, event: Event, s: State) -> bool:
    """States that behave alike have one canonical form: objects are renumbered, clock and metrics are 0.

    Requests, reads and open copies are numbered from 1 up, held copies from -1 down. The canonical form of a canonical
    form is the same.
    """
    held = {h.copy for q in s.requests for h in held_by(q.part)}
    groups = [*[e.copies for e in s.ranges.queue if e is not None], *[g.copies for g in s.ranges.orphaned_copies]]
    if held != {copy for group in groups for copy in group if copy < 0}:
        return True  # a held copy without a request violates `held_copies_belong_to_pending_requests`
    canonical = entry_cache.canonical
    renamed = canonical(cfg, s)
    return is_numbered(renamed) and form(renamed) == form(s) and canonical(cfg, renamed) == renamed
