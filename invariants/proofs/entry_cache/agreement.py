"""Contracts that CrossHair checks about the entry cache: functions of the model, and model against implementation."""

from __future__ import annotations

from impl.entry_cache.reads_limiter import Permits
from impl.entry_cache.shared_reads import JoinableReads, OutstandingRead, PendingRequest, RequestedRange
from invariants.proofs.claim import Control, contract
from model.entry_cache import reads_limiter, shared_reads
from model.entry_cache.reads_limiter import Limiter, Settings, Waiting
from model.entry_cache.shared_reads import Held, Part, StorageRead

LIMITER = "impl.entry_cache.reads_limiter"
MODEL, READS = "model.entry_cache.shared_reads", "impl.entry_cache.shared_reads"

#: Four of the six kinds of parts, by index.
KINDS = ("found", "failed", "awaited", "mixed")


def read_of(
    number: int, first: int, last: int, range_cache: int = 0, ledger: int = 1, joinable: bool = True
) -> StorageRead:
    """Returns an outstanding read whose entries have no expected reads."""
    return StorageRead(number, range_cache, 0, ledger, first, last, 0, joinable, ())


# ---- shared reads -----------------------------------------------------------------------------------------


@contract(
    "joined-read-matches-and-overlaps",
    "Of two outstanding reads, the joined one is eligible: joinable, of the same range cache and ledger, and "
    "overlapping. If an eligible read includes the range, the joined one does. If one is eligible, one is joined.",
    Control(
        "reads of another ledger are joined",
        MODEL,
        "read.joinable and read.range_cache == range_cache and read.ledger == ledger and overlaps",
        "read.joinable and read.range_cache == range_cache and overlaps",
    ),
)
def joined_read_matches(
    first: int,
    last: int,
    a_first: int,
    a_last: int,
    b_first: int,
    b_last: int,
    same_range_cache: bool,
    same_ledger: bool,
    joinable: bool,
) -> bool:
    """`PendingReadsManager.findPendingRead`, apache/pulsar#17241.

    pre: first <= last and a_first <= a_last and b_first <= b_last
    post: _
    """
    one = read_of(
        1, a_first, a_last, range_cache=0 if same_range_cache else 5, ledger=1 if same_ledger else 5, joinable=joinable
    )
    other = read_of(2, b_first, b_last)
    matching = [each for each in (one, other) if each is other or (same_range_cache and same_ledger and joinable)]
    matching = [each for each in matching if each.first <= last and first <= each.last]
    found = shared_reads.candidate((one, other), 0, 1, first, last)
    if found is None or not matching:
        return found is None and not matching
    including = [each for each in matching if each.first <= first and last <= each.last]
    return any(found is each for each in including or matching)


@contract(
    "read-to-join-agrees",
    "Of up to three disjoint joinable reads of a ledger, added in any order, model and implementation join the "
    "same one.",
    Control(
        "of reads inside the range the implementation joins the first, not the latest",
        READS,
        "return max(self.reads[index:end], key=lambda read: read.number)",
        "return self.reads[index]",
    ),
    seconds=8.0,
)
def joining_agrees(first: int, last: int, start: int, one: int, two: int, three: int, gaps: int, order: int) -> bool:
    """Equivalence of `JoinableReads.best` with the model's candidate.

    pre: first <= last
    pre: 0 <= order <= 3
    pre: one >= 0 and two >= 0 and three >= 0
    pre: gaps >= 0
    post: _
    """
    # an odd order numbers the reads from right to left; an order above 1 leaves out the first read
    reads, table = [], JoinableReads()
    for i, length in enumerate((one, two, three)):
        number = i + 1 if order % 2 == 0 else 3 - i
        reads.append(read_of(number, start, start + length))
        start += length + 1 + gaps
    reads = reads[order // 2 :]
    for each in reads:
        table.add(OutstandingRead.load(each, {}))
    best = table.best(first, last)
    in_order_of_age = tuple(reads if order % 2 == 0 else reads[::-1])
    joined = shared_reads.candidate(in_order_of_age, 0, 1, first, last)
    return (None if best is None else best.number) == (None if joined is None else joined.number)


@contract(
    "complete-parts-agree",
    "Model and implementation agree on which parts of a request are settled and complete, for parts of four kinds "
    "with up to three held entries.",
    Control(
        "the implementation does not count the last entry of a range",
        READS,
        "len(self.held) == self.last - self.first + 1",
        "len(self.held) == self.last - self.first",
    ),
)
def complete_agrees(kind: int, first: int, last: int, held: int) -> bool:
    """Equivalence of `RequestedRange.is_complete` with the model's: see `OpReadEntryNullSlotTest`.

    pre: 0 <= kind < 4
    pre: 0 <= held <= 3
    post: _
    """
    entries = tuple([Held(first + i, 1, i) for i in range(held)])
    part = Part(KINDS[kind], first, last, held=entries)  # type: ignore[arg-type]
    wanted = RequestedRange.load(PendingRequest(1, 0, 0, 1, 0), part)
    both = (wanted.is_complete(), wanted.is_settled())
    return both == (shared_reads.is_complete(part), shared_reads.is_settled(part))


# ---- permits ----------------------------------------------------------------------------------------------


@contract(
    "permit-acquisition-agrees",
    "A request for permits has the same outcome and leaves the same limiter in model and implementation, if at most "
    "one request is queued.",
    Control(
        "the implementation grants an oversized request more than the maximum",
        LIMITER,
        "taken = min(permits, self.maximum)",
        "taken = permits",
    ),
)
def requests_agree(most: int, free: int, permits: int, is_queued: bool, queue_size: int, now: int) -> bool:
    """Equivalence of `Permits.fits`, `take` and `acquire` with the model's.

    pre: 0 <= free <= most
    pre: permits >= 0
    pre: 0 <= queue_size <= 2
    post: _
    """
    settings = Settings(most, queue_size, 10)
    waiting = (Waiting(1, most + 1, 0),) if is_queued else ()
    limiter = Limiter(free, waiting, ())
    implementation, asking = Permits(settings), {n: PendingRequest(n, 0, 0, 1, 0) for n in (1, 2)}
    implementation.load(limiter, asking)
    fits = most == 0 or implementation.fits(permits) == reads_limiter.fits(settings, free, permits)
    outcome = implementation.acquire(asking[2], permits, now)
    after, expected = reads_limiter.acquire(settings, limiter, 2, permits, now)
    return fits and outcome == expected and implementation.view() == after


@contract(
    "permit-grants-agree",
    "After a release while two requests are queued, model and implementation grant permits to the same requests and "
    "fail the same requests.",
    Control(
        "the implementation's timeout is not strict at a release",
        LIMITER,
        "if now_ns - since_ns > self.timeout_ns:",
        "if now_ns - since_ns >= self.timeout_ns:",
    ),
)
def grants_agree(most: int, free: int, first: int, second: int, since: int, timeout: int, now: int) -> bool:
    """Equivalence of `Permits.grant_queued` with the model's, for two queued requests.

    pre: 0 < most and 0 <= free <= most
    pre: first >= 0 and second >= 0
    pre: 0 <= timeout and 0 <= since <= now
    post: _
    """
    settings = Settings(most, 5, timeout)
    limiter = Limiter(free, (Waiting(1, first, 0), Waiting(2, second, since)), ())
    implementation, asking = Permits(settings), {n: PendingRequest(n, 0, 0, 1, 0) for n in (1, 2)}
    implementation.load(limiter, asking)
    granted, failed = implementation.grant_queued(now)
    after, *expected = reads_limiter.grant_queued(settings, limiter, now)
    return [[a.number for a in granted], [a.number for a in failed]] == expected and implementation.view() == after
