"""Range caches, checked by CrossHair: rules of read counts and requeues, and agreement of model and implementation."""

from __future__ import annotations

from invariants.proofs.claim import Answer, Control, claim, explored
from invariants.proofs.range_cache import contracts
from invariants.proofs.range_cache.passes import MODEL

IMPL = "impl.range_cache"


@claim(
    "counters-keep-to-their-rule",
    "crosshair",
    "`markRead` decrements and a replay increments a read count, without a floor; without a handler nothing changes; "
    "reads are expected from 1 on.",
    Control(
        "a read count of 0 expects reads", MODEL, "count is not None and count >= 1", "count is not None and count >= 0"
    ),
)
def counters_rule() -> Answer:
    """`EntryReadCountHandlerImpl` in the model."""
    return explored(contracts.counters_keep_to_their_rule)


@claim(
    "requeues-keep-to-their-rule",
    "crosshair",
    "Every requeue increments `requeueCount`; with separate counters, a requeue for recent access does not.",
    Control(
        "no requeue after an access counts",
        MODEL,
        "not (s.extend_ttl_of_recently_accessed and e.accessed)",
        "not e.accessed",
    ),
)
def requeues_rule() -> Answer:
    """`requeue_count_after` of the model."""
    return explored(contracts.requeues_keep_to_their_rule)


@claim(
    "counters-agree",
    "crosshair",
    "Model and implementation decrement, increment and test a read count alike.",
    Control(
        "the implementation's read count has a floor of 0",
        IMPL,
        "self.expected -= 1",
        "self.expected = max(self.expected - 1, 0)",
    ),
)
def counters_agree() -> Answer:
    """`ReadCountHandler` and `marked_read`, `replayed`, `has_expected_reads`."""
    return explored(contracts.counters_agree)


@claim(
    "should-requeue-agrees",
    "crosshair",
    "The same entries are due for requeue in model and implementation.",
    Control(
        "the implementation compares with the maximum by <=",
        IMPL,
        "wrapper.requeue_count < self.max_requeue_times",
        "wrapper.requeue_count <= self.max_requeue_times",
    ),
)
def due_agrees() -> Answer:
    """`RangeCaches.should_requeue` and the model's."""
    return explored(contracts.due_agrees)


@claim(
    "first-put-agrees",
    "crosshair",
    "A put into empty caches stores the same entry, read count and size in model and implementation.",
    Control(
        "the implementation creates a read count for 0 expected reads",
        IMPL,
        "counts = self.cfg.counts_reads and expected_reads > 0",
        "counts = self.cfg.counts_reads and expected_reads >= 0",
    ),
)
def put_agrees() -> Answer:
    """`RangeCaches.put` and the model's, without cached entries."""
    return explored(contracts.put_agrees)


@claim(
    "time-pass-over-one-entry-agrees",
    "crosshair",
    "A time pass over one entry that no reader holds, with a threshold not in the future, has the same "
    "outcome and state in model and implementation.",
    Control(
        "the implementation's expiry is not strict",
        IMPL,
        "if wrapper.timestamp_ns >= threshold_ns:",
        "if wrapper.timestamp_ns > threshold_ns:",
    ),
)
def time_pass_agrees() -> Answer:
    """`RangeCaches.time_pass` and the model's, on one entry."""
    return explored(contracts.time_pass_agrees)


@claim(
    "size-pass-over-two-entries-agrees",
    "crosshair",
    "A size pass over an entry, and behind it one without a read count, with at most one requeue, has the same outcome "
    "and the same state in model and implementation.",
    Control(
        "the implementation's pass stops only beyond the requested bytes",
        IMPL,
        "if freed >= bytes_to_free:",
        "if freed > bytes_to_free:",
    ),
)
def size_pass_agrees() -> Answer:
    """`RangeCaches.size_pass` and the model's, on two entries."""
    return explored(contracts.size_pass_agrees)


@claim(
    "pages-keep-the-order",
    "crosshair",
    "Pages are ordered like their entry ids, and a page holds exactly the ids with the same quotient by 64.",
    Control("pages of 64 ids are of 32", IMPL, "_PAGE_BITS = 6", "_PAGE_BITS = 5"),
)
def pages_in_order() -> Answer:
    """`page_of` of the implementation: a range may skip the pages before its first and after its last."""
    return explored(contracts.pages_keep_the_order)


@claim(
    "pages-agree",
    "crosshair",
    "A range of the implementation's paged cache finds an entry exactly if the model's `is_in_range` holds.",
    Control(
        "an inclusive range leaves out its last entry",
        IMPL,
        "if first <= wrapper.position <= last]",
        "if first <= wrapper.position < last]",
    ),
)
def pages_agree() -> Answer:
    """`PagedRangeCache.between` and the model's `is_in_range`, on one entry."""
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
