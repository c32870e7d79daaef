"""The metrics of buffered writers: names, labels, buckets, and numbers that add up."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fuzz.run.generate import generate
from fuzz.subject import find_profile, find_subject
from impl.txn_writer.metrics import TxnMetrics, proposed_name, shipped_name
from impl.txn_writer.writer import TxnWriter
from model.machine import BadValue
from model.txn_writer.state import Config, Flush
from model.txn_writer.wire import METRICS, PREFIXES, TRIGGERS, Log

SUBJECT = find_subject("txn_writer")
LOGS: tuple[Log, ...] = ("txn_tc", "pending_ack")

#: The names in the table of the proposal.
PROPOSED = [
    "pulsar_txn_tc_log_records_count_per_entry",
    "pulsar_txn_tc_batched_log_entry_size_bytes",
    "pulsar_txn_tc_batched_log_olderst_record_delay_time_seconds",
    "pulsar_txn_tc_batched_log_triggering_count_by_records",
    "pulsar_txn_tc_batched_log_triggering_count_by_size",
    "pulsar_txn_tc_batched_log_triggering_count_by_delay_time",
    "pulsar_pending_ack_batched_log_records_count_per_entry",
    "pulsar_pending_ack_batched_log_entry_size_bytes",
    "pulsar_pending_ack_batched_log_olderst_record_delay_time_seconds",
    "pulsar_pending_ack_batched_log_triggering_count_by_records",
    "pulsar_pending_ack_batched_log_triggering_count_by_size",
    "pulsar_pending_ack_batched_log_triggering_count_by_delay_time",
]

#: The result of a scrape: by name and labels of a sample, its value.
Scraped = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: TxnMetrics) -> Scraped:
    """Returns what a Prometheus server would read."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    samples = [sample for family in families for sample in family.samples if not sample.name.endswith("_created")]
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}


def total(scraped: Scraped, name: str) -> float:
    """Returns the sum of all samples of that name."""
    return sum(value for (found, _), value in scraped.items() if found == name)


def flushes_of(body: TxnWriter, cfg: Config, seed: int) -> Iterator[Flush]:
    """Drives a writer with the actions of a seed. Yields the flushes."""
    state = SUBJECT.machine.start(cfg)
    for name, arguments in generate(SUBJECT, cfg, seed, 200):
        state, outcome = SUBJECT.machine.step(cfg, state, name, arguments)
        assert getattr(body, name)(*arguments) == outcome
        yield from getattr(outcome, "flushes", ())


def config(**settings: object) -> Config:
    """Returns the reference with settings. Settings that a seed would draw are fixed, so model and writer agree."""
    fixed = {
        "max_records": 4,
        "max_bytes": 60,
        "max_delay_ms": 7,
        "start": 5,
        "executor": "queued",
        "writes": "immediate",
    }
    cfg: Config = SUBJECT.machine.configure(fixed | settings, find_profile(SUBJECT, "reference"))
    return cfg


def test_triggers_add_up_to_the_batches_of_every_histogram() -> None:
    """In random traces of two writers of one broker, the metrics equal the flushes in the outcomes."""
    metrics, flushes = TxnMetrics("txn_tc"), list[Flush]()
    for seed in range(40):
        cfg = config()
        body = TxnWriter(cfg, metrics.of_writer("standalone", seed % 2))
        flushes += flushes_of(body, cfg, seed)
    assert len(flushes) > 200
    scraped = scrape(metrics)
    for metric in METRICS:
        name = proposed_name("txn_tc", metric)
        if metric.trigger is None:
            assert total(scraped, f"{name}_count") == len(flushes)
        else:
            counted = [flush for flush in flushes if flush.trigger == metric.trigger]
            assert total(scraped, f"{name}_total") == len(counted)
    by_trigger = [total(scraped, f"{proposed_name('txn_tc', m)}_total") for m in TRIGGERS]
    assert sum(by_trigger) == len(flushes)
    assert all(count > 0 for count in by_trigger)
    records, size, delay = (f"{proposed_name('txn_tc', m)}_sum" for m in METRICS[:3])
    assert total(scraped, records) == sum(flush.records for flush in flushes)
    assert total(scraped, size) == sum(flush.size for flush in flushes)
    assert total(scraped, delay) == pytest.approx(sum(flush.waited for flush in flushes) / 1000)


def test_the_names_are_the_proposal_s() -> None:
    in_proposal = [m for m in METRICS if m.trigger != "large"]
    assert [proposed_name(log, m) for log in LOGS for m in in_proposal] == PROPOSED
    for log in LOGS:
        metrics = TxnMetrics(log)
        metrics.of_writer("c", 1 if log == "txn_tc" else None)
        families = {family.name for family in metrics.registry.collect()}
        assert families == {proposed_name(log, m) for m in METRICS}


def test_the_shipped_names_of_the_metrics() -> None:
    assert [shipped_name("txn_tc", m) for m in METRICS][:4] == [
        "pulsar_txn_tc_bufferedwriter_batch_records",
        "pulsar_txn_tc_bufferedwriter_batch_size_bytes",
        "pulsar_txn_tc_bufferedwriter_batch_oldest_record_delay_seconds",
        "pulsar_txn_tc_bufferedwriter_flush_trigger_max_records",
    ]
    assert shipped_name("pending_ack", METRICS[-1]) == (
        "pulsar_txn_pending_ack_store_bufferedwriter_flush_trigger_large_data"
    )
    assert not any(str(shipped_name("txn_tc", m)).endswith("_count") for m in METRICS), "the library would add another"


def bounds(scraped: Scraped, name: str) -> dict[str, float]:
    """Returns the buckets of a histogram by their bounds."""
    return {dict(labels)["le"]: value for (found, labels), value in scraped.items() if found == f"{name}_bucket"}


@pytest.mark.parametrize(
    ("waited_ms", "within"),
    [(0, [1, 1, 1]), (1, [1, 1, 1]), (2, [0, 1, 1]), (5, [0, 1, 1]), (10, [0, 0, 1]), (11, [0, 0, 0])],
)
def test_delays_are_seconds_with_bounds_of_milliseconds(waited_ms: int, within: list[int]) -> None:
    metrics = TxnMetrics("pending_ack")
    metrics.of_writer("c").flushed("delay", 1, 1, waited_ms)
    found = bounds(scrape(metrics), "pulsar_pending_ack_batched_log_olderst_record_delay_time_seconds")
    assert found == {"0.001": within[0], "0.005": within[1], "0.01": within[2], "+Inf": 1}


def test_buckets_of_records_and_bytes() -> None:
    metrics = TxnMetrics("txn_tc")
    metrics.of_writer("c", 0).flushed("records", 512, 102_400, 0)
    scraped = scrape(metrics)
    found = bounds(scraped, "pulsar_txn_tc_log_records_count_per_entry")
    assert found == {"10.0": 0, "50.0": 0, "100.0": 0, "200.0": 0, "500.0": 0, "1000.0": 1, "+Inf": 1}
    sizes = bounds(scraped, "pulsar_txn_tc_batched_log_entry_size_bytes")
    assert [float(bound) for bound in sizes][:-1] == [128, 512, 1024, 2048, 4096, 16384, 102400, 1232896]
    assert [int(value) for value in sizes.values()] == [0, 0, 0, 0, 0, 0, 1, 1, 1]


def test_labels() -> None:
    metrics = TxnMetrics("txn_tc")
    for coordinator in (0, 1, 1):
        metrics.of_writer("eu", coordinator).flushed("size", 2, 3, 0)
    scraped, name = scrape(metrics), "pulsar_txn_tc_batched_log_triggering_count_by_size_total"
    labels = [(("cluster", "eu"), ("coordinator_id", str(each))) for each in (0, 1)]
    assert [scraped[name, each] for each in labels] == [1, 2]
    pending = TxnMetrics("pending_ack")
    pending.of_writer("eu").flushed("size", 2, 3, 0)
    name = "pulsar_pending_ack_batched_log_triggering_count_by_size_total"
    assert scrape(pending)[name, (("cluster", "eu"),)] == 1
    assert [labels for _, _, labels in PREFIXES.values()] == [("cluster", "coordinator_id"), ("cluster",)]


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        BadValue, match="metrics of txn_tc have the labels cluster, coordinator_id; coordinator_id is N"
    ):
        TxnMetrics("txn_tc").of_writer("c")
    with pytest.raises(BadValue, match="metrics of pending_ack have the labels cluster; coordinator_id is 3"):
        TxnMetrics("pending_ack").of_writer("c", 3)


def test_both_logs_share_a_registry_and_neither_comes_twice() -> None:
    registry = CollectorRegistry()
    TxnMetrics("txn_tc", registry)
    TxnMetrics("pending_ack", registry)
    assert len(list(registry.collect())) == 2 * len(METRICS)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        TxnMetrics("txn_tc", registry)


@pytest.mark.parametrize("settings", [{"batching": False}, {"max_records": 1}])
def test_with_batching_off_nothing_is_counted(settings: dict[str, object]) -> None:
    metrics = TxnMetrics("pending_ack")
    before, cfg = scrape(metrics), config(**settings)
    body = TxnWriter(cfg, metrics.of_writer("c"))
    chance = random.Random(5)
    stored = sum(len(body.add(chance.randrange(200), "nothing").writes) for _ in range(50))
    body.advance_time(1000)
    body.close()
    assert stored == 50
    assert set(scrape(metrics).values()) == {0}, "the labels are there, and nothing was counted"
    assert before == {}, "no label, no sample"


def test_a_large_record_counts_only_for_the_batch_before_it() -> None:
    metrics = TxnMetrics("txn_tc")
    body = TxnWriter(config(executor="immediate"), metrics.of_writer("c", 7))
    body.add(60, "nothing")
    assert set(scrape(metrics).values()) == {0}
    body.add(10, "nothing")
    body.advance_time(3)
    assert [len(write.records) for write in body.add(61, "nothing").writes] == [1, 1]
    scraped = scrape(metrics)
    assert total(scraped, "pulsar_txn_tc_batched_log_triggering_count_by_large_record_total") == 1
    assert total(scraped, "pulsar_txn_tc_log_records_count_per_entry_sum") == 1
    assert total(scraped, "pulsar_txn_tc_batched_log_entry_size_bytes_sum") == 10
    assert total(scraped, "pulsar_txn_tc_batched_log_olderst_record_delay_time_seconds_sum") == 0.003


def test_a_flush_that_fails_is_counted() -> None:
    """Metrics are recorded before the write, which fails for a fenced ledger or a batch that cannot be serialised."""
    metrics = TxnMetrics("txn_tc")
    body = TxnWriter(config(executor="immediate", max_records=2), metrics.of_writer("c", 7))
    body.add(1, "nothing")
    assert [a.outcome for a in body.add(1, "batch").callbacks] == ["serialization"] * 2
    body.fence()
    body.add(1, "nothing")
    assert [a.outcome for a in body.add(1, "nothing").callbacks] == ["fenced"] * 2
    assert total(scrape(metrics), "pulsar_txn_tc_batched_log_triggering_count_by_records_total") == 2
