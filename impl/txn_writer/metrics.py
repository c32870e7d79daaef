"""Metrics of the buffered writers of a broker, for Prometheus: by the names of PIP-160 (section "Metrics Changes").

They say how large batches are, how long their first records waited, and why they were written. A flush is counted
before its write begins, so one that fails counts, too; a large record's own entry does not, and with batching off
nothing does. So the triggers sum up to the number of batches in each histogram. Sizes are those of the records, without
the header.

After `pulsar_txn_tc`, with the labels cluster and coordinator_id, and after `pulsar_pending_ack`, with the label
cluster, stand the names below; the client library adds `_total` to a counter and `_bucket`, `_count` and `_sum` to a
histogram. Shipped are others, after `pulsar_txn_tc` and `pulsar_txn_pending_ack_store`, with the labels cluster and
broker:

    PIP-160, after its prefix                          shipped, after `_bufferedwriter`     buckets
    _batched_log_records_count_per_entry               _batch_records                       10 50 100 200 500 1000
    _batched_log_entry_size_bytes                      _batch_size_bytes                    128 512 1024 2048 4096 16384
                                                                                            102400 1232896
    _batched_log_olderst_record_delay_time_seconds     _batch_oldest_record_delay_seconds   0.001 0.005 0.01
    _batched_log_triggering_count_by_records           _flush_trigger_max_records
    _batched_log_triggering_count_by_size              _flush_trigger_max_size
    _batched_log_triggering_count_by_delay_time        _flush_trigger_max_delay
    _batched_log_triggering_count_by_large_record      _flush_trigger_large_data
    _batched_log_triggering_count_by_close             none

The first one of a coordinator is printed `pulsar_txn_tc_log_records_count_per_entry` in the proposal, and so it is
here; its author's later text (apache/pulsar#16758) has it like the others. `olderst` is the proposal's spelling. It
prints the bucket of 100 KiB as 12400 where its own text says 100KB: here it is 102400, as shipped. The last bucket is
called 1MB and is 1232896, both there and as shipped. The last two triggers are not in the proposal, which says nothing
of large records or of a close; without them the sum would not come out.

Two slips to know when shipped numbers are read. The delay is observed in seconds, and its bounds 1, 5 and 10 were meant
as milliseconds, as the proposal's text has it: nearly all that is shipped falls into the first bucket. And names that
end in `_count` got another one from the library, `_record_count_count`, until apache/pulsar#17905 and #17921 renamed
them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from model.machine import BadValue
from model.txn_writer.state import Reason

#: Whose batches are counted: those of transaction coordinators, or those of pending acknowledgements.
Log = Literal["txn_tc", "pending_ack"]


class Metric(NamedTuple):
    """A metric: its name in the proposal after the prefix, the shipped one after its own, and a histogram's bounds."""

    name: str
    shipped: str | None
    about: str
    reason: Reason | None = None  # of a counter: what it counts
    buckets: tuple[float, ...] = ()


#: The proposal's prefix, the shipped one, and the labels.
PREFIXES: dict[Log, tuple[str, str, tuple[str, ...]]] = {
    "txn_tc": ("pulsar_txn_tc", "pulsar_txn_tc_bufferedwriter", ("cluster", "coordinator_id")),
    "pending_ack": ("pulsar_pending_ack", "pulsar_txn_pending_ack_store_bufferedwriter", ("cluster",)),
}

RECORDS = Metric(
    "_batched_log_records_count_per_entry",
    "_batch_records",
    "Records in a batch.",
    buckets=(10, 50, 100, 200, 500, 1000),
)
SIZE = Metric(
    "_batched_log_entry_size_bytes",
    "_batch_size_bytes",
    "Bytes of the records of a batch.",
    buckets=(128, 512, 1024, 2048, 4096, 16384, 102400, 1232896),
)
DELAY = Metric(
    "_batched_log_olderst_record_delay_time_seconds",
    "_batch_oldest_record_delay_seconds",
    "How long the first record of a batch was in the buffer.",
    buckets=(0.001, 0.005, 0.01),
)
TRIGGERS = (
    Metric(
        "_batched_log_triggering_count_by_records",
        "_flush_trigger_max_records",
        "Batches written because they had enough records.",
        "records",
    ),
    Metric(
        "_batched_log_triggering_count_by_size",
        "_flush_trigger_max_size",
        "Batches written because they had enough bytes.",
        "size",
    ),
    Metric(
        "_batched_log_triggering_count_by_delay_time",
        "_flush_trigger_max_delay",
        "Batches written because the delay was over.",
        "delay",
    ),
    Metric(
        "_batched_log_triggering_count_by_large_record",
        "_flush_trigger_large_data",
        "Batches written because a record came that was large alone.",
        "large",
    ),
    Metric("_batched_log_triggering_count_by_close", None, "Batches written because the writer was closed.", "close"),
)
METRICS = (RECORDS, SIZE, DELAY, *TRIGGERS)

#: What the proposal prints otherwise than the rule of its names would have it.
PRINTED = {"pulsar_txn_tc_batched_log_records_count_per_entry": "pulsar_txn_tc_log_records_count_per_entry"}


def proposed_name(log: Log, metric: Metric) -> str:
    """A metric's whole name, by the proposal."""
    name = PREFIXES[log][0] + metric.name
    return PRINTED.get(name, name)


def shipped_name(log: Log, metric: Metric) -> str | None:
    """A metric's whole name as shipped, if it is."""
    return None if metric.shipped is None else PREFIXES[log][1] + metric.shipped


class TxnMetrics:
    """The collectors of one kind of log, registered once, for all writers of a broker.

    Raises ValueError, the client library's, if the registry has them already.
    """

    def __init__(self, log: Log, registry: CollectorRegistry | None = None) -> None:
        self.log = log
        self.registry = CollectorRegistry() if registry is None else registry
        self._histograms = [
            Histogram(proposed_name(log, m), m.about, PREFIXES[log][2], registry=self.registry, buckets=m.buckets)
            for m in (RECORDS, SIZE, DELAY)
        ]
        self._triggers = {
            m.reason: Counter(proposed_name(log, m), m.about, PREFIXES[log][2], registry=self.registry)
            for m in TRIGGERS
        }

    def of_writer(self, cluster: str, coordinator_id: int | None = None) -> WriterMetrics:
        """The metrics of one writer, by its labels; writers with the same ones share them.

        Raises BadValue when a coordinator's number is missing, or given where there is none.
        """
        if (coordinator_id is None) == (self.log == "txn_tc"):
            wanted = ", ".join(PREFIXES[self.log][2])
            raise BadValue(f"metrics of {self.log} have the labels {wanted}; coordinator_id is {coordinator_id}")
        labels = [cluster] if coordinator_id is None else [cluster, str(coordinator_id)]
        records, size, delay = [each.labels(*labels) for each in self._histograms]
        triggers = {reason: each.labels(*labels) for reason, each in self._triggers.items() if reason is not None}
        return WriterMetrics(records, size, delay, triggers)


class WriterMetrics:
    """The metrics of one writer; a lookup of labels is paid once, when it is made."""

    def __init__(self, records: Histogram, size: Histogram, delay: Histogram, triggers: dict[Reason, Counter]) -> None:
        self._records, self._size, self._delay, self._triggers = records, size, delay, triggers

    def flushed(self, reason: Reason, records: int, size: int, waited_ms: int) -> None:
        """A batch with so many records and bytes is about to be written; its first record waited for so long. O(1)."""
        self._triggers[reason].inc()
        self._records.observe(records)
        self._size.observe(size)
        self._delay.observe(waited_ms / 1000)
