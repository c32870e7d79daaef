"""Prometheus metrics of the buffered writers of a broker, under PIP-160's names (`model/txn_writer/wire.py`).

A flush is counted before its write, so failed flushes count. Plain entries are not counted, so without batching nothing
is counted. The sum of the trigger counters is the number of observations of each histogram.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from model.machine import BadValue
from model.txn_writer.state import Trigger
from model.txn_writer.wire import DELAY, PREFIXES, PRINTED, RECORDS, SIZE, TRIGGERS, Log, Metric


def proposed_name(log: Log, metric: Metric) -> str:
    """Returns the full name of a metric in PIP-160."""
    name = PREFIXES[log][0] + metric.name
    return PRINTED.get(name, name)


def shipped_name(log: Log, metric: Metric) -> str:
    """Returns the full name of a metric in the shipped broker."""
    return PREFIXES[log][1] + metric.shipped


class TxnMetrics:
    """The collectors of one kind of log, shared by all writers of a broker.

    Raises ValueError if the registry already has collectors of these names.
    """

    def __init__(self, log: Log, registry: CollectorRegistry | None = None) -> None:
        self.log = log
        self.registry = CollectorRegistry() if registry is None else registry
        self._histograms = [
            Histogram(proposed_name(log, m), m.about, PREFIXES[log][2], registry=self.registry, buckets=m.buckets)
            for m in (RECORDS, SIZE, DELAY)
        ]
        self._counters = {
            m.trigger: Counter(proposed_name(log, m), m.about, PREFIXES[log][2], registry=self.registry)
            for m in TRIGGERS
        }

    def of_writer(self, cluster: str, coordinator_id: int | None = None) -> WriterMetrics:
        """Returns the metrics of one writer; writers with equal labels share their metrics.

        Raises BadValue if `coordinator_id` is missing for a coordinator, or given for a pending-ack store.
        """
        if (coordinator_id is None) == (self.log == "txn_tc"):
            wanted = ", ".join(PREFIXES[self.log][2])
            raise BadValue(f"metrics of {self.log} have the labels {wanted}; coordinator_id is {coordinator_id}")
        labels = [cluster] if coordinator_id is None else [cluster, str(coordinator_id)]
        records, size, delay = [each.labels(*labels) for each in self._histograms]
        triggers = {trigger: each.labels(*labels) for trigger, each in self._counters.items() if trigger is not None}
        return WriterMetrics(records, size, delay, triggers)


class WriterMetrics:
    """The metrics of one writer; labels are resolved in advance."""

    def __init__(self, records: Histogram, size: Histogram, delay: Histogram, triggers: dict[Trigger, Counter]) -> None:
        self._records, self._size, self._delay, self._counters = records, size, delay, triggers

    def flushed(self, trigger: Trigger, records: int, size: int, waited_ms: int) -> None:
        """Counts a flush of `records` records and `size` bytes whose oldest record waited for `waited_ms`. O(1)."""
        self._counters[trigger].inc()
        self._records.observe(records)
        self._size.observe(size)
        self._delay.observe(waited_ms / 1000)
