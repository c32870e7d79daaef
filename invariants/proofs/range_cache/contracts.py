"""What CrossHair is asked about the range caches: small functions of the model, and of its optimised twin beside it.

Each contract is a function of plain numbers and truths that says whether something holds; CrossHair looks for
arguments for which it does not. `pre:` lines say of which arguments, `post: _` that the result must be true. The
twin is put into the model's state by its own `load`, and looked at by its own `view`.
"""

from __future__ import annotations

from impl.range_cache import PagedRangeCache, RangeCaches, ReadCountHandler, Wrapper, page_of
from model import range_cache as model
from model.positions import Position
from model.range_cache import Config, Entry, State

HERE = Position(1, 0)


def one_entry(
    extends: bool, most: int, count: int | None, requeue_count: int, accessed: bool, time: int, size: int, now: int
) -> State:
    """A state with one entry, and no copies."""
    e = Entry(0, HERE, size, count, (), time, requeue_count, accessed, False)
    return State(now, (e,), (), (size, 0), (), 1, most, extends)


def counters_agree(count: int | None) -> bool:
    """Lowering, raising, and asking whether reads are expected: the same in both.

    post: _
    """
    lowered, raised = ReadCountHandler(count), ReadCountHandler(count)
    lowered.mark_read()
    raised.increment()
    ours = (lowered.expected, raised.expected, ReadCountHandler(count).has_expected_reads())
    return ours == (model.marked_read(count), model.replayed(count), model.has_expected_reads(count))


def counters_keep_to_their_rule(count: int | None) -> bool:
    """One read fewer, one more, and none where none were counted; reads are expected from one on.

    post: _
    """
    fewer, more = model.marked_read(count), model.replayed(count)
    if count is None:
        return fewer is None and more is None and not model.has_expected_reads(count)
    return fewer == count - 1 and more == count + 1 and model.has_expected_reads(count) == (count > 0)


def requeues_keep_to_their_rule(extends: bool, accessed: bool, counts: bool, requeue_count: int) -> bool:
    """A requeue counts once, or, in the variant, not at all if recent access justifies it.

    post: _
    """
    cfg = Config(access_requeue_counts=counts)
    s = one_entry(extends, 0, None, requeue_count, accessed, 0, 0, 0)
    [e] = s.queue
    assert e is not None
    free = extends and accessed and not counts
    return model.requeue_count_after(cfg, s, e) == (requeue_count if free else requeue_count + 1)


def due_agrees(extends: bool, most: int, count: int | None, requeue_count: int, accessed: bool) -> bool:
    """An entry is due for an extension in both, or in neither.

    post: _
    """
    s = one_entry(extends, most, count, requeue_count, accessed, 0, 0, 0)
    [e] = s.queue
    assert e is not None
    slot = Wrapper(0, HERE, 0, ReadCountHandler(count), 0)
    slot.requeue_count, slot.accessed = requeue_count, accessed
    twin = RangeCaches(Config())
    twin.max_requeue_times, twin.extend_ttl_of_recently_accessed = most, extends
    return twin.should_requeue(slot) == model.should_requeue(s, e)


def put_agrees(expected: int, size: int, now: int, counts: bool) -> bool:
    """A put into empty caches: the same entry, the same counter, the same size.

    post: _
    """
    cfg = Config(counts_reads=counts)
    s = model.start(cfg)._replace(now_ns=now)
    twin = RangeCaches.load(cfg, s)
    done = twin.put(0, HERE, size, expected)
    after, said = model.put(cfg, s, 0, HERE, size, expected)
    return done == said and twin.view() == after


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
    """A time pass over one entry: the same outcome, the same state.

    pre: time <= now
    pre: threshold <= now
    post: _
    """
    cfg = Config()
    s = one_entry(extends, most, count, requeue_count, accessed, time, size, now)
    twin = RangeCaches.load(cfg, s)
    done = twin.time_pass(threshold)
    after, said = model.time_pass(cfg, s, threshold)
    return done == said and twin.view() == after


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
    """A size pass over an entry and a plain one behind it: the same outcome, the same state.

    It may meet the first entry up to three times. A pass that needs no more than the plain one's bytes shows in what it
    leaves whether it spared the first.

    pre: requeue_count >= 0
    pre: most <= 1
    pre: time <= now
    post: _
    """
    cfg = Config(ttl_ns=10)
    s = one_entry(extends, most, count, requeue_count, accessed, time, size, now)
    plain = Entry(1, HERE, 5, None, (), now, 0, False, False)
    s = s._replace(queue=(*s.queue, plain), sizes=(size, 5))
    twin = RangeCaches.load(cfg, s)
    done = twin.size_pass(wanted)
    after, said = model.size_pass(cfg, s, wanted)
    return done == said and twin.view() == after


def pages_keep_the_order(entry: int, other: int) -> bool:
    """Pages are 64 entry ids long, and in the order of their ids.

    pre: entry <= other
    post: _
    """
    same = page_of(entry) == page_of(other)
    return page_of(entry) <= page_of(other) and same == (entry // 64 == other // 64)


def pages_agree(
    ledger: int, entry: int, first_ledger: int, first: int, last_ledger: int, last: int, inclusive: bool
) -> bool:
    """A range of a paged cache finds an entry exactly if the model says that it is inside.

    pre: 0 <= entry < 2**40
    post: _
    """
    here, start, end = Position(ledger, entry), Position(first_ledger, first), Position(last_ledger, last)
    cache = PagedRangeCache()
    cache.add(Wrapper(0, here, 0, ReadCountHandler(None), 0))
    found = cache.between(start, end, inclusive)
    return (found != []) == model.is_in_range(here, start, end, inclusive)
