"""Reads of the entry cache: hits, gaps, joined storage reads, their answers, and read counts.

A request is a call of a reader. Several requests may wait for one storage read; a storage read is joinable while later
requests may wait for it, too. `model/entry_cache/shared_reads.py` describes the parts of a request.
"""

from __future__ import annotations

from invariants.entry_cache.derived import (
    READ_COUNT_CHANGES,
    READINGS,
    REMOVALS,
    STORAGE_ANSWERS,
    Key,
    answered,
    asked_range,
    by_key,
    copy_groups,
    entries,
    held_by,
    parts_in,
    read_counts,
    read_of,
    reads_queued,
    stored_sizes,
    tasks_queued,
)
from invariants.properties import Event, always
from model.entry_cache.machine import entry_cache
from model.entry_cache.shared_reads import Part, StorageRead
from model.entry_cache.state import Config, Delivered, Reading, State
from model.machine import Refused
from model.positions import Position
from model.range_cache import Entry


@always(entry_cache, on=STORAGE_ANSWERS)
def answer_caches_only_requested_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A storage answer caches only entries of the range that was read."""
    added = [position for _, position in by_key(after).keys() - by_key(before).keys()]
    ranges_read = [(r.ledger, r.first, r.last) for r in before.reads if r.number == event.arguments["storage_read"]]
    return all(p.ledger == ledger and first <= p.entry <= last for p in added for ledger, first, last in ranges_read)


@always(entry_cache, on=READINGS)
def read_returns_requested_range_in_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A completed read has the entries of its range in order, without gaps, with their cached or stored sizes.

    It has all entries of its range, except after a short answer of storage (`answer_oddly`). A failed read has none.
    """
    for answer in answered(event):
        cache, ledger, first, last = asked_range(before, event, answer.request)
        cached = [(e.position, e.bytes) for e in entries(before)]
        cached += [(Position(ledger, h.entry), h.bytes) for q in before.requests for h in held_by(q.part)]
        sizes = stored_sizes(cfg, cache, ledger)
        if any(e.bytes != sizes[e.position.entry] and (e.position, e.bytes) not in cached for e in answer.entries):
            return False
        if [e.position for e in answer.entries] != [Position(ledger, first + i) for i in range(len(answer.entries))]:
            return False
        if answer.ok and len(answer.entries) != last - first + 1 and event.name != "answer_oddly":
            return False
        if not answer.ok and answer.entries:
            return False
    return True


@always(entry_cache)
def request_completes_exactly_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request completes or fails once: in the step that removes it from the pending requests."""
    if before.requests is after.requests and event.name not in READINGS:
        return True
    done = [answer.request for answer in answered(event)]
    pending_before, pending_after = {q.number for q in before.requests}, {q.number for q in after.requests}
    if event.name in ("read", "read_one") and isinstance(event.outcome, Reading):
        pending_before.add(before.next_request)
    return sorted(done) == sorted(pending_before - pending_after) and pending_after <= pending_before


@always(entry_cache)
def only_reads_and_replays_change_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay raises a read count by 1, the release of a copy lowers it by 1, and nothing else changes it.

    An insert and a storage read may give a cached entry another handler, with another read count. A delivered entry has
    the count of the cached entry, of a held copy, or of a storage read.
    """
    if after.ranges is before.ranges:
        return True
    change, copies = _change_of_read_count(before, event)
    counts_after = read_counts(after)
    for copy, count in read_counts(before).items():
        expected = count if count is None or copy not in copies else count + change
        if counts_after.get(copy, expected) != expected:
            return False
    # A cached entry without copies has a count, too.
    kept = by_key(after)
    for key, e in by_key(before).items():
        now = kept.get(key)
        if now is not None and now is not e and not _may_have_new_handler(before, event, key, now):
            count = e.expected_reads
            if now.expected_reads != (count if count is None or not set(e.copies) & set(copies) else count + change):
                return False
    return all(
        _has_known_read_count(before, event, answer.request, d) for answer in answered(event) for d in answer.entries
    )


def _change_of_read_count(before: State, event: Event) -> tuple[int, tuple[int, ...]]:
    """Returns the change of a read count by an event, and the copies that share this count."""
    if event.name not in READ_COUNT_CHANGES:
        return 0, ()
    sharing = [group for group in copy_groups(before) if event.arguments["copy"] in group]
    return (1 if event.name == "replay" else -1), sharing[0] if sharing else ()


def _may_have_new_handler(before: State, event: Event, key: Key, now: Entry) -> bool:
    """Whether a step may have replaced the handler of a cached entry.

    True if the entry was inserted again, or if its read count is one that a storage read may give in this step.
    """
    if event.name == "insert":
        return key == (before.topic_caches[event.arguments["cache"]], event.arguments["position"])
    return now.expected_reads in _read_counts_given_by_storage_reads(before, event) and now.expected_reads is not None


def _read_counts_given_by_storage_reads(before: State, event: Event) -> set[int | None]:
    """Returns the read counts that a storage read may give to its entries in this step.

    None stands for an entry without a read count handler: no reads of it are expected.
    """
    counts = {q.expected_reads for q in before.requests} | {r.expected_reads for r in before.reads}
    if event.name == "read":
        counts.add(event.arguments["expected_reads"])
    return {None} | {count for count in counts if count > 0}


def _has_known_read_count(before: State, event: Event, request: int, d: Delivered) -> bool:
    """Whether a delivered entry has a known read count.

    Known are the counts that the cached entry or a held copy had before, the counts after this release or replay, and
    those that a storage read may give.
    """
    cache, ledger, _, _ = asked_range(before, event, request)
    known: set[int | None] = {e.expected_reads for e in entries(before) if e.position == d.position}
    for q in before.requests:
        if (q.cache, q.ledger) == (cache, ledger):
            known |= {read_counts(before)[h.copy] for h in held_by(q.part) if h.entry == d.position.entry}
    change, copies = _change_of_read_count(before, event)
    known |= {count + change for copy, count in read_counts(before).items() if copy in copies and count is not None}
    return d.expected_reads in known | _read_counts_given_by_storage_reads(before, event)


@always(entry_cache, on=("complete_storage_read",))
def failed_read_ends_joining_of_its_ledger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a storage read fails, other outstanding reads of its ledger and cache cannot be joined any more.

    Reads that the step itself issues are not checked. Reads for a disabled cache (their `range_cache` is negative) can
    never be joined.
    """
    r = read_of(before, event)
    if r is None or event.arguments["success"] or r.range_cache < 0:
        return True
    old = [each for each in after.reads if each.number < before.next_read]
    return not any(each.joinable for each in old if (each.range_cache, each.ledger) == (r.range_cache, r.ledger))


@always(entry_cache, on=("complete_storage_read",))
def storage_entries_are_cached_iff_reads_are_expected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Entries from storage are cached exactly if reads of them are expected and the cache is not disabled.

    They are cached with their sizes and the current time.
    """
    r = read_of(before, event)
    if r is None or not event.arguments["success"]:
        return True
    returned = {(r.range_cache, Position(r.ledger, i)) for i in range(r.first, r.last + 1)}
    new = by_key(after).keys() - by_key(before).keys()
    sizes = stored_sizes(cfg, r.cache, r.ledger)
    added = [e for key, e in by_key(after).items() if key in new & returned]
    wanted = [(sizes[e.position.entry], after.ranges.now_ns) for e in added]
    if [(e.bytes, e.timestamp_ns) for e in added] != wanted:
        return False
    if r.expected_reads <= 0 or r.range_cache < 0:
        return not new
    # An eviction task that runs in the same step may have removed some of them again.
    return new <= returned and (not tasks_queued(cfg) or returned <= by_key(after).keys())


@always(entry_cache, on=("read", "read_one"), given=reads_queued)
def read_issues_one_storage_read_for_each_gap(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read issues exactly one storage read for each gap: a run of entries neither cached nor in a joinable read.

    A read that waits for permits, or fails for lack of permits, issues none.
    """
    if not isinstance(event.outcome, Reading):
        return True
    range_cache, ledger, wanted = _looked_up(before, event, after)
    present = {e.position.entry for e in entries(before) if (e.cache, e.position.ledger) == (range_cache, ledger)}
    for r in before.reads:
        is_joinable = r.joinable and (r.range_cache, r.ledger) == (range_cache, ledger)
        present |= set(range(r.first, r.last + 1)) if is_joinable else set()
    missing = [entry for entry in wanted if entry not in present]
    begins = [entry for entry in missing if entry - 1 not in missing]
    ends = [entry for entry in missing if entry + 1 not in missing]
    return sorted((i.first, i.last) for i in event.outcome.issued) == list(zip(begins, ends, strict=True))


@always(entry_cache, on=("read", "read_one"), given=reads_queued)
def read_marks_exactly_cached_entries_accessed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that gets its permits at once marks exactly the cached entries of its range as accessed.

    Any other read sets no `accessed`.
    """
    if not isinstance(event.outcome, Reading):
        return True
    range_cache, ledger, wanted = _looked_up(before, event, after)
    hits = {(range_cache, Position(ledger, entry)) for entry in wanted}
    return all(by_key(after)[key].accessed == (e.accessed or key in hits) for key, e in by_key(before).items())


def _looked_up(before: State, event: Event, after: State) -> tuple[int, int, range]:
    """Returns range cache, ledger and entry ids that a read looks up; no ids if the read waits for permits or fails."""
    cache, ledger, first, last = asked_range(before, event, before.next_request)
    waits = after.limiter.waiting != before.limiter.waiting or failed_at_once(before, event, after)
    return after.topic_caches[cache], ledger, range(0) if waits else range(first, last + 1)


def failed_at_once(before: State, event: Event, after: State) -> bool:
    """Whether a read fails in the step that requests it, and issues no storage read: the queue for permits is full."""
    own = [a for a in answered(event) if a.request == before.next_request]
    return after.next_read == before.next_read and any(not a.ok for a in own)


def takes_from_queue(before: State, after: State) -> bool:
    """Whether a step starts or fails requests that were queued for permits."""
    return not {w.request for w in before.limiter.waiting} <= {w.request for w in after.limiter.waiting}


@always(entry_cache, given=reads_queued)
def request_fails_only_for_failed_read_or_no_permits(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request fails only if a storage read that it needs failed or was short, or for lack of permits.

    With `short_answer` "read_again", the request of a partial cache hit (its part is `mixed`) does not fail: if the
    read of a gap fails or is short, the whole range is read again.
    """
    no_permits = {w.request for w in before.limiter.waiting}
    if event.name in ("read", "read_one") and len(before.limiter.waiting) >= cfg.permits_queue_size:
        no_permits.add(before.next_request)
    for request in [a.request for a in answered(event) if not a.ok and a.request not in no_permits]:
        part = next((q.part for q in before.requests if q.number == request), None)
        if part is None or (part.kind == "mixed" and cfg.short_answer == "read_again"):
            return False
        # `answer_oddly` has no argument `success`: its answer is short.
        fails_or_is_short = event.name in STORAGE_ANSWERS and not event.arguments.get("success")
        if not _is_incomplete(part) and not (fails_or_is_short and _awaits(part, event.arguments["storage_read"])):
            return False
    return True


def _is_incomplete(part: Part) -> bool:
    """Whether a storage read for a part of a request, or for one of the parts within it, failed or was short."""
    if part.kind == "found":
        return len(part.held) < part.last - part.first + 1
    return part.kind == "failed" or any(map(_is_incomplete, part.parts))


def _awaits(part: Part, number: int) -> bool:
    """Whether a part of a request, or one of the parts within it, waits for a storage read."""
    return any(each.kind == "awaited" and each.read == number for each in parts_in(part))


@always(entry_cache)
def storage_read_is_joinable_until_removal_or_failure(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A storage read can be joined until a removal or a failed read of its ledger, if the cache is not disabled."""
    if after.reads is before.reads or event.name in (*REMOVALS, "clear_all"):
        return True
    was = {r.number: r.joinable for r in before.reads}
    answer = read_of(before, event) if event.name == "complete_storage_read" else None
    failed_ledger = None if answer is None or event.arguments["success"] else (answer.range_cache, answer.ledger)
    for r in after.reads:
        may_change = r.number in was and (r.range_cache, r.ledger) == failed_ledger
        is_for_enabled_cache = r.range_cache >= 0
        if r.joinable != was.get(r.number, is_for_enabled_cache) and not may_change:
            return False
    return True


@always(entry_cache, on=("read_one",))
def single_read_caches_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`read_one`, the read of a replay, caches nothing.

    Not checked if the step also starts or fails queued requests: a failed `read_one` returns its permits to them.
    """
    return takes_from_queue(before, after) or by_key(after).keys() <= by_key(before).keys()


@always(entry_cache, on=STORAGE_ANSWERS)
def cache_misses_count_entries_and_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The metrics count every requested entry from storage as a cache miss, with its size."""
    r = read_of(before, event)
    if r is None or isinstance(event.outcome, Refused):
        return True
    sizes = stored_sizes(cfg, r.cache, r.ledger)
    # All entries of the read; none after a failure; `entries` in a short answer.
    returned = r.last - r.first + 1 if event.arguments.get("success") else event.arguments.get("entries", 0)
    stored = sizes[r.first : r.first + returned]
    was, now = before.counters, after.counters
    return (now.miss_entries - was.miss_entries, now.miss_bytes - was.miss_bytes) == (len(stored), sum(stored))


@always(entry_cache, on=("read", "read_one"))
def cache_hits_count_entries_and_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that is granted its permits at once counts the cached entries of its range as hits, with their sizes.

    Not checked if the step also starts or fails queued requests: a failed read returns its permits to them.
    """
    if takes_from_queue(before, after):
        return True
    cache, ledger, first, last = asked_range(before, event, before.next_request)
    range_cache = before.topic_caches[cache]
    wanted = [e for e in entries(before) if e.cache == range_cache and e.position.ledger == ledger]
    found = [e.bytes for e in wanted if first <= e.position.entry <= last]
    waits = after.limiter.waiting != before.limiter.waiting
    if isinstance(event.outcome, Refused) or waits or failed_at_once(before, event, after):
        found = []
    was, now = before.counters, after.counters
    return (now.hit_entries - was.hit_entries, now.hit_bytes - was.hit_bytes) == (len(found), sum(found))


@always(entry_cache, on=(*REMOVALS, "clear_all"))
def reads_of_removed_ledger_or_cache_are_not_joined(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After the removal of a ledger or a cache, its outstanding reads cannot be joined; other reads do not change.

    `invalidate_entries_before` removes neither, so it changes no outstanding read.
    """
    range_cache = before.topic_caches[event.arguments["cache"]] if "cache" in event.arguments else None

    def is_removed(r: StorageRead) -> bool:
        if event.name == "invalidate_entries_before":
            return False
        if event.name == "invalidate_ledger":
            return (r.range_cache, r.ledger) == (range_cache, event.arguments["ledger"])
        # `clear_all` removes the caches of all topics, but not one that a topic had earlier.
        return r.range_cache in before.topic_caches if range_cache is None else r.range_cache == range_cache

    return after.reads == tuple([r._replace(joinable=r.joinable and not is_removed(r)) for r in before.reads])
