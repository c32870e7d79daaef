"""Canonical form of the entry cache's states: times are relative to now, and numbers are assigned in a fixed order.

No rule of the broker is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model.entry_cache.shared_reads import Part, all_held
from model.entry_cache.state import State
from model.range_cache import OrphanedCopies


def from_now(s: State) -> State:
    """Returns the state with the clock at zero; times are relative to the previous clock."""
    now = s.ranges.now_ns
    if not now:
        return s
    queue = tuple([e and e._replace(timestamp_ns=e.timestamp_ns - now) for e in s.ranges.queue])
    waiting = tuple([w._replace(since_ns=w.since_ns - now) for w in s.limiter.waiting])
    caches = s.ranges._replace(now_ns=0, queue=queue)
    return s._replace(ranges=caches, limiter=s.limiter._replace(waiting=waiting))


def renumber_range_caches(s: State) -> State:
    """Returns the state with renumbered range caches, without those that nothing refers to.

    Range caches are numbered in the order in which topics, removal queue, reads and requests refer to them.
    """
    used = list(s.topic_caches)
    used += [e.cache for e in s.ranges.queue if e is not None]
    used += [r.range_cache for r in s.reads] + [q.range_cache for q in s.requests]
    used = [n for n in used if n >= 0]
    order = list(dict.fromkeys(used))
    if order == list(range(len(s.owners))):
        return s
    # Negative numbers (ABSENT and DISABLED) stay. Those of the reads are also among those of the requests, because the
    # request that issued a read still waits.
    to = {n: n for n in (*s.topic_caches, *[q.range_cache for q in s.requests])}
    to |= {old: new for new, old in enumerate(order)}
    queue = tuple([e and e._replace(cache=to[e.cache]) for e in s.ranges.queue])
    sizes = tuple([s.ranges.sizes[old] for old in order])
    return s._replace(
        ranges=s.ranges._replace(queue=queue, sizes=sizes),
        owners=tuple([s.owners[old] for old in order]),
        topic_caches=tuple([to[n] for n in s.topic_caches]),
        reads=tuple([r._replace(range_cache=to[r.range_cache]) for r in s.reads]),
        requests=tuple([r._replace(range_cache=to[r.range_cache]) for r in s.requests]),
    )


def renumber_requests(s: State) -> State:
    """Returns the state with requests and outstanding reads numbered from 1, in the same order.

    Requests that have completed and still hold permits are numbered, too.
    """
    numbers = sorted({r.number for r in s.requests} | {g.request for g in s.limiter.grants})
    return with_requests(s, {old: new for new, old in enumerate(numbers, 1)})


def with_requests(s: State, to: Mapping[int, int]) -> State:
    """Returns the state with requests renumbered by the map `to`, and outstanding reads numbered from 1."""
    read_to = {r.number: i for i, r in enumerate(s.reads, 1)}

    def renumbered(part: Part) -> Part:  # 0 stands for no read
        return part._replace(read=read_to.get(part.read, 0), parts=tuple([renumbered(p) for p in part.parts]))

    reads = [r._replace(number=read_to[r.number], waiting=tuple([to[n] for n in r.waiting])) for r in s.reads]
    waiting = tuple([w._replace(request=to[w.request]) for w in s.limiter.waiting])
    grants = tuple([g._replace(request=to[g.request]) for g in s.limiter.grants])
    return s._replace(
        reads=tuple(reads),
        requests=tuple(sorted([r._replace(number=to[r.number], part=renumbered(r.part)) for r in s.requests])),
        limiter=s.limiter._replace(waiting=waiting, grants=grants),
        next_request=len(to) + 1,
        next_read=len(reads) + 1,
    )


def renumber_copies(s: State) -> State:
    """Returns the state with renumbered copies; open copies that a grant lists come first (`with_copies`)."""
    return with_copies(s, [c for g in s.limiter.grants for c in g.copies])[0]


def with_copies(s: State, named: Sequence[int]) -> tuple[State, Mapping[int, int]]:
    """Returns the state with renumbered copies, and the map from old to new numbers.

    Held copies are numbered from -1 down, in the order of their requests. Open copies are numbered from 1 up: first the
    copies `named`, in this order; then the other copies of cached entries, in queue order; then those of orphaned
    copies, ordered by `sort_key`.
    """
    held = [h.copy for r in s.requests for h in all_held((r.part,))]
    to = {old: -i for i, old in enumerate(held, 1)} | {old: i for i, old in enumerate(named, 1)}
    keys = {g: sort_key(g, to) for g in s.ranges.orphaned_copies}
    groups = sorted(s.ranges.orphaned_copies, key=keys.__getitem__)
    remaining = [c for h in (*s.ranges.queue, *groups) if h is not None for c in h.copies if c not in to]
    to |= {old: i for i, old in enumerate(remaining, len(named) + 1)}

    def renumbered(copies: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted([to[c] for c in copies]))

    def renumbered_part(part: Part) -> Part:
        held_here = tuple([h._replace(copy=to[h.copy]) for h in part.held])
        return part._replace(held=held_here, parts=tuple([renumbered_part(p) for p in part.parts]))

    caches = s.ranges._replace(
        queue=tuple([e and e._replace(copies=renumbered(e.copies)) for e in s.ranges.queue]),
        orphaned_copies=tuple(sorted([g._replace(copies=renumbered(g.copies)) for g in groups])),
        next_copy=len(named) + len(remaining) + 1,
    )
    grants = tuple([g._replace(copies=tuple([to[c] for c in g.copies])) for g in s.limiter.grants])
    requests = tuple([r._replace(part=renumbered_part(r.part)) for r in s.requests])
    limits = s.limiter._replace(grants=grants)
    return s._replace(ranges=caches, requests=requests, limiter=limits, next_held=-len(held) - 1), to


def sort_key(group: OrphanedCopies, to: Mapping[int, int]) -> tuple[object, ...]:
    """Returns the sort key of a group of orphaned copies.

    The key has the new numbers of those copies that `to` has, the number of copies, and the read count (None last).
    """
    numbered = sorted([to[c] for c in group.copies if c in to])
    return numbered, len(group.copies), group.expected_reads is None, group.expected_reads or 0
