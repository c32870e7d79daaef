"""Range cache, checked by CrossHair: rules of counters and requeues, and that model and implementation agree."""

from __future__ import annotations

from invariants.proofs.claim import Answer, Control, claim, explored
from invariants.proofs.range_cache import contracts
from invariants.proofs.range_cache.passes import MODEL

IMPL = "impl.range_cache"


# ---- the model and its twin, by CrossHair -----------------------------------------------------------------


@claim(
    "counters-keep-to-their-rule",
    "crosshair",
    "The model's counters: a read lowers, a replay raises, without a floor; what is undefined stays so; reads are "
    "expected from one on.",
    Control(
        "a counter of zero expects reads", MODEL, "count is not None and count >= 1", "count is not None and count >= 0"
    ),
)
def counters_rule() -> Answer:
    """What a read count handler does: no floor at zero, and nothing where no count was defined."""
    return explored(contracts.counters_keep_to_their_rule)


@claim(
    "requeues-keep-to-their-rule",
    "crosshair",
    "The model's requeues: each counts once, whatever its reason; in the variant, one that recent access "
    "justifies does not.",
    Control(
        "no requeue counts that follows an access",
        MODEL,
        "not (s.extend_ttl_of_recently_accessed and e.accessed)",
        "not e.accessed",
    ),
)
def requeues_rule() -> Answer:
    """All requeues count, in every pass; the variant counts those for expected reads apart from those for access."""
    return explored(contracts.requeues_keep_to_their_rule)


@claim(
    "counters-agree",
    "crosshair",
    "Model and implementation lower, raise and ask a counter alike.",
    Control(
        "the implementation's counter stops at zero",
        IMPL,
        "self.expected -= 1",
        "self.expected = max(self.expected - 1, 0)",
    ),
)
def counters_agree() -> Answer:
    """Equivalence of `ReadCountHandler` with marked_read, replayed and has_expected_reads."""
    return explored(contracts.counters_agree)


@claim(
    "due-for-extension-agrees",
    "crosshair",
    "Model and implementation hold the same entries due for an extension.",
    Control(
        "the implementation's cap is compared with <=",
        IMPL,
        "slot.requeue_count < self.max_requeue_times",
        "slot.requeue_count <= self.max_requeue_times",
    ),
)
def due_agrees() -> Answer:
    """Equivalence of `RangeCaches.should_requeue` with the model's."""
    return explored(contracts.due_agrees)


@claim(
    "first-put-agrees",
    "crosshair",
    "A put into empty caches gives the same entry, counter and size in model and implementation.",
    Control(
        "the implementation counts an expectation of zero",
        IMPL,
        "counts = self.cfg.counts_reads and expected_reads > 0",
        "counts = self.cfg.counts_reads and expected_reads >= 0",
    ),
)
def put_agrees() -> Answer:
    """Equivalence of `RangeCaches.put` with the model's, without anything cached."""
    return explored(contracts.put_agrees)


@claim(
    "time-pass-over-one-entry-agrees",
    "crosshair",
    "A time pass over one entry without copies, at a threshold that is not in the future, has the same outcome "
    "and leaves the same state in model and implementation.",
    Control(
        "the implementation's expiry is not strict",
        IMPL,
        "if slot.timestamp_ns >= threshold_ns:",
        "if slot.timestamp_ns > threshold_ns:",
    ),
)
def time_pass_agrees() -> Answer:
    """Equivalence of `RangeCaches.time_pass` with the model's, on one entry."""
    return explored(contracts.time_pass_agrees)


@claim(
    "size-pass-over-two-entries-agrees",
    "crosshair",
    "A size pass over an entry, and a plain one behind it, without copies and with at most one extension, has the "
    "same outcome and leaves the same state in model and implementation.",
    Control(
        "where age matters, the implementation's expiry is not strict",
        IMPL,
        "slot.timestamp_ns < expired_before",
        "slot.timestamp_ns <= expired_before",
    ),
)
def size_pass_agrees() -> Answer:
    """Equivalence of `RangeCaches.size_pass` with the model's, on two entries."""
    return explored(contracts.size_pass_agrees)


@claim(
    "pages-keep-the-order",
    "crosshair",
    "Of two entry ids, the one that is not larger stands in a page that is not later; in the same page stand "
    "exactly those that have the same quotient by 64.",
    Control("pages of 64 ids are of 32", IMPL, "_PAGE_BITS = 6", "_PAGE_BITS = 5"),
)
def pages_in_order() -> Answer:
    """`page_of` of the implementation: why a range skips all pages before its first and after its last."""
    return explored(contracts.pages_keep_the_order)


@claim(
    "pages-agree",
    "crosshair",
    "A range of the implementation's paged cache finds an entry exactly if the model says that it is inside.",
    Control(
        "the last entry of an inclusive range is left out",
        IMPL,
        "if first <= slot.position <= last]",
        "if first <= slot.position < last]",
    ),
)
def pages_agree() -> Answer:
    """Equivalence of `PagedRangeCache.between` with the model's inside, on one entry: pages of 64 entry ids."""
    return explored(contracts.pages_agree, seconds=5.0)


claims = (
    counters_rule,
    requeues_rule,
    counters_agree,
    due_agrees,
    put_agrees,
    time_pass_agrees,
    size_pass_agrees,
    pages_in_order,
    pages_agree,
)
