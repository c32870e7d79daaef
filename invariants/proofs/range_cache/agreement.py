"""Contracts of the range caches for CrossHair: functions of the model, and their agreement with the implementation.

`RangeCaches.load` returns an implementation in a state of the model, and `view` returns the state of an implementation
as a state of the model.
"""

from __future__ import annotations

from impl.range_cache import PagedRangeCache, RangeCaches, ReadCountHandler, Wrapper, page_of
from invariants.proofs.claim import Control, contract
from model import range_cache as model
from model.positions import Position
from model.range_cache import Config, Entry, State

MODEL, IMPL = "model.range_cache", "impl.range_cache"

HERE = Position(1, 0)


def one_entry(
    extends: bool, most: int, count: int | None, requeue_count: int, accessed: bool, time: int, size: int, now: int
) -> State:
    """Returns a state with one entry, of which no copy is open."""
    e = Entry(0, HERE, size, count, (), time, requeue_count, accessed, False)
    return State(now, (e,), (), (size, 0), (), 1, most, extends)


@contract(
    "counters-agree",
    "Model and implementation decrement, increment and test a read count alike.",
    Control(
        "the implementation's read count stops at 0",
        IMPL,
        "self.expected -= 1",
        "self.expected = max(self.expected - 1, 0)",
    ),
)
def counters_agree(count: int | None) -> bool:
    """`ReadCountHandler` and `marked_read`, `replayed`, `has_expected_reads`.

    post: _
    """
    lowered, raised = ReadCountHandler(count), ReadCountHandler(count)
    lowered.mark_read()
    raised.increment()
    ours = (lowered.expected, raised.expected, ReadCountHandler(count).has_expected_reads())
    return ours == (model.marked_read(count), model.replayed(count), model.has_expected_reads(count))


@contract(
    "counters-keep-to-their-rule",
    "`markRead` decrements a read count, which may become negative, and a replay increments it; without a handler "
    "nothing changes; reads are expected if the count is at least 1.",
    Control(
        "a read count of 0 expects reads", MODEL, "count is not None and count >= 1", "count is not None and count >= 0"
    ),
)
def counters_keep_to_their_rule(count: int | None) -> bool:
    """`EntryReadCountHandlerImpl` in the model.

    post: _
    """
    fewer, more = model.marked_read(count), model.replayed(count)
    if count is None:
        return fewer is None and more is None and not model.has_expected_reads(count)
    return fewer == count - 1 and more == count + 1 and model.has_expected_reads(count) == (count > 0)


@contract(
    "requeues-keep-to-their-rule",
    "A requeue increments `requeueCount`, except a requeue for recent access without `access_requeue_counts`.",
    Control(
        "no requeue after an access counts",
        MODEL,
        "not (s.extend_ttl_of_recently_accessed and e.accessed)",
        "not e.accessed",
    ),
)
def requeues_keep_to_their_rule(extends: bool, accessed: bool, counts: bool, requeue_count: int) -> bool:
    """`requeue_count_after` of the model.

    post: _
    """
    cfg = Config(access_requeue_counts=counts)
    s = one_entry(extends, 0, None, requeue_count, accessed, 0, 0, 0)
    [e] = s.queue
    assert e is not None
    is_uncounted = extends and accessed and not counts
    return model.requeue_count_after(cfg, s, e) == (requeue_count if is_uncounted else requeue_count + 1)


@contract(
    "should-requeue-agrees",
    "The same entries are due for requeue in model and implementation.",
    Control(
        "the implementation compares with the maximum by <=",
        IMPL,
        "wrapper.requeue_count < self.max_requeue_times",
        "wrapper.requeue_count <= self.max_requeue_times",
    ),
)
def due_agrees(extends: bool, most: int, count: int | None, requeue_count: int, accessed: bool) -> bool:
    """`RangeCaches.should_requeue` and the model's.

    post: _
    """
    s = one_entry(extends, most, count, requeue_count, accessed, 0, 0, 0)
    [e] = s.queue
    assert e is not None
    wrapper = Wrapper(0, HERE, 0, ReadCountHandler(count), 0)
    wrapper.requeue_count, wrapper.accessed = requeue_count, accessed
    implementation = RangeCaches(Config())
    implementation.max_requeue_times, implementation.extend_ttl_of_recently_accessed = most, extends
    return implementation.should_requeue(wrapper) == model.should_requeue(s, e)


@contract(
    "first-put-agrees",
    "A put into empty caches stores the same entry, read count and size in model and implementation.",
    Control(
        "the implementation creates a read count for 0 expected reads",
        IMPL,
        "counts = self.cfg.counts_reads and expected_reads > 0",
        "counts = self.cfg.counts_reads and expected_reads >= 0",
    ),
)
def put_agrees(expected: int, size: int, now: int, counts: bool) -> bool:
    """`RangeCaches.put` and the model's, without cached entries.

    post: _
    """
    cfg = Config(counts_reads=counts)
    s = model.start(cfg)._replace(now_ns=now)
    implementation = RangeCaches.load(cfg, s)
    outcome = implementation.put(0, HERE, size, expected)
    after, model_outcome = model.put(cfg, s, 0, HERE, size, expected)
    return outcome == model_outcome and implementation.view() == after


@contract(
    "time-pass-over-one-entry-agrees",
    "A time pass over one entry of which no copy is open, with a threshold not in the future, has the same "
    "outcome and state in model and implementation.",
    Control(
        "the implementation's expiry is not strict",
        IMPL,
        "if wrapper.timestamp_ns >= threshold_ns:",
        "if wrapper.timestamp_ns > threshold_ns:",
    ),
)
def time_pass_agrees(
    extends: bool,
    most: int,
    count: int | None,
    requeue_count: int,
    accessed: bool,
    time: int,
    size: int,
    now: int,
    threshold: int,
) -> bool:
    """`RangeCaches.time_pass` and the model's, on one entry.

    pre: time <= now
    pre: threshold <= now
    post: _
    """
    cfg = Config()
    s = one_entry(extends, most, count, requeue_count, accessed, time, size, now)
    implementation = RangeCaches.load(cfg, s)
    outcome = implementation.time_pass(threshold)
    after, model_outcome = model.time_pass(cfg, s, threshold)
    return outcome == model_outcome and implementation.view() == after


@contract(
    "size-pass-over-two-entries-agrees",
    "A size pass over two entries, of which the second has no read count, with a maximum of at most one requeue, has "
    "the same outcome and the same state in model and implementation.",
    Control(
        "the implementation's pass stops only beyond the requested bytes",
        IMPL,
        "if freed >= bytes_to_free:",
        "if freed > bytes_to_free:",
    ),
)
def size_pass_agrees(
    extends: bool,
    most: int,
    count: int | None,
    requeue_count: int,
    accessed: bool,
    time: int,
    size: int,
    now: int,
    wanted: int,
) -> bool:
    """`RangeCaches.size_pass` and the model's, on two entries.

    pre: requeue_count >= 0
    pre: most <= 1
    pre: time <= now
    post: _
    """
    cfg = Config(ttl_ns=10)
    s = one_entry(extends, most, count, requeue_count, accessed, time, size, now)
    plain = Entry(1, HERE, 5, None, (), now, 0, False, False)
    s = s._replace(queue=(*s.queue, plain), sizes=(size, 5))
    implementation = RangeCaches.load(cfg, s)
    outcome = implementation.size_pass(wanted)
    after, model_outcome = model.size_pass(cfg, s, wanted)
    return outcome == model_outcome and implementation.view() == after


@contract(
    "pages-keep-the-order",
    "Pages are ordered like their entry ids, and a page holds exactly the ids with the same quotient by 64.",
    Control("a page holds 32 ids", IMPL, "_PAGE_BITS = 6", "_PAGE_BITS = 5"),
)
def pages_keep_the_order(entry: int, other: int) -> bool:
    """`page_of` of the implementation: a range may skip the pages before its first and after its last.

    pre: entry <= other
    post: _
    """
    same = page_of(entry) == page_of(other)
    return page_of(entry) <= page_of(other) and same == (entry // 64 == other // 64)


@contract(
    "pages-agree",
    "A range of the implementation's paged cache finds an entry exactly if the model's `is_in_range` holds.",
    Control(
        "an inclusive range leaves out its last entry",
        IMPL,
        "if first <= wrapper.position <= last]",
        "if first <= wrapper.position < last]",
    ),
    seconds=5.0,
)
def pages_agree(
    ledger: int, entry: int, first_ledger: int, first: int, last_ledger: int, last: int, inclusive: bool
) -> bool:
    """`PagedRangeCache.between` and the model's `is_in_range`, on one entry.

    pre: 0 <= entry < 2**40
    post: _
    """
    here, start, end = Position(ledger, entry), Position(first_ledger, first), Position(last_ledger, last)
    cache = PagedRangeCache()
    cache.add(Wrapper(0, here, 0, ReadCountHandler(None), 0))
    found = cache.between(start, end, inclusive)
    return (found != []) == model.is_in_range(here, start, end, inclusive)
