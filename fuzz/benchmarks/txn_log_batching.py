"""Benefit and cost of batching a transaction log: entries, bytes, request latency and replay, with and without batches.

The benchmarks are discrete-event simulations in microseconds, on the writer and the codec of `impl/txn_writer/`
(`writer.py`, `records.py`). Concurrent clients run whole transactions. A client sends its next request after the
previous one completed and a random think time passed. Each request appends one record, and completes when the record's
entry is persisted. With batching, the writer has the limits that PIP-160 proposes: 512 records, 4 MiB, and a flush
every millisecond.

All results but the replay are deterministic. Latency is measured on two ledgers. One persists any number of entries
concurrently, so batching only adds the wait for the flush. The other is busy for `BUSY_US` with each entry, so entries
queue. All durations are assumptions. BookKeeper's overhead per entry is not in the bytes.

The replay benchmark reads a log in memory and applies all its records, as a recovering coordinator does. It leaves out
the ledger reads, one per entry.
"""

from __future__ import annotations

import functools
import heapq
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fuzz.benchmarks.runner import Benchmark, Line, Measured, Plot, Point, in_turns
from impl.txn_writer.records import (
    Subscription,
    TransactionRecord,
    batched_entry,
    plain_entry,
    read_entry,
    record_size,
)
from impl.txn_writer.writer import TxnWriter
from model.machine import Refused
from model.txn_writer.state import Config, Write

#: One-way network delay, time to persist an entry, and the maximum think time of a client.
NETWORK_US, PERSIST_US, THINK_US = 200, 2_000, 2_000
#: The time that the busy ledger takes per entry before it starts the next.
BUSY_US = 20
#: The writer's flush interval. Time is in microseconds here, so `max_delay_ms` has microseconds, too.
DELAY_US = 1_000
ON = Config(max_delay_ms=DELAY_US)
OFF = ON._replace(batching=False)
#: The clock at the start, in milliseconds.
START_MS = 1_660_000_000_000
TIMEOUT_MS = 60_000

#: Numbers of concurrent transactions, and the number of all transactions of a simulation.
CONCURRENT = (1, 10, 100, 1_000)
TRANSACTIONS = 4_000


class Log(NamedTuple):
    """The log that a simulation wrote, and the latency of the requests."""

    entries: tuple[bytes, ...]
    records: int
    transactions: int
    latency_us: int  # sum over all requests, from send to response

    @property
    def size(self) -> int:
        """The size in bytes of all entries."""
        return sum(len(entry) for entry in self.entries)


def record(step: int, txn: int, client: int, now_us: int, last_id: int) -> TransactionRecord:
    """Returns the record of a transaction's step: NEW, ADD_PARTITION, ADD_SUBSCRIPTION, COMMITTING, COMMITTED."""
    if step == 0:
        now_ms = START_MS + now_us // 1_000
        return TransactionRecord(
            "NEW",
            txn,
            timeout_ms=TIMEOUT_MS,
            start_time=now_ms,
            last_modification_time=now_ms,
            max_local_txn_id=last_id,
        )
    update = TransactionRecord(
        ("ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE", "UPDATE")[step - 1], txn, max_local_txn_id=last_id
    )
    if step == 1:
        return update._replace(partitions=(f"persistent://public/default/orders-partition-{client % 16}",))
    if step == 2:
        subscription = Subscription(f"persistent://public/default/payments-partition-{client % 16}", "billing")
        return update._replace(subscriptions=(subscription,))
    statuses = ("OPEN", "COMMITTING", "COMMITTED")
    return update._replace(expected_status=statuses[step - 3], new_status=statuses[step - 2])


#: The number of records of a transaction.
STEPS = 5


class Client:
    """A client, which runs transactions one after the other."""

    def __init__(self, number: int, transactions: int) -> None:
        self.number = number
        self.remaining = transactions
        self.step = 0
        self.txn = -1  # until the coordinator receives the first request
        self.sent_us = 0


class Simulation:
    """Event queue of clients, a coordinator with its writer, and a ledger."""

    def __init__(
        self, cfg: Config, concurrent: int, transactions: int, think_us: int = THINK_US, busy_us: int = 0
    ) -> None:
        self._writer = TxnWriter(cfg)
        self._random = random.Random(160)  # noqa: S311
        self._think_us = think_us
        self._busy_us = busy_us
        self._free_us = 0  # when the ledger can start the next entry
        self._delay_us = cfg.max_delay_ms
        self._clients = [Client(number, transactions // concurrent) for number in range(concurrent)]
        self._events: list[tuple[int, int, str, int]] = []  # time, sequence number, kind, client
        self._event_count = 0
        self._records: dict[int, tuple[Client, TransactionRecord]] = {}  # by the writer's record number
        self._entries: list[bytes] = []
        self._last_id = -1  # no transaction yet
        self._latency_us = 0
        self._tick_us = -1  # the latest scheduled tick

    def run(self) -> Log:
        """Runs all transactions to their ends. Returns the log. Cost: O(records log clients)."""
        for client in self._clients:
            self._send(client, 0)
        now, records = 0, 0
        while self._events:
            at, _, kind, number = heapq.heappop(self._events)
            effects = self._writer.advance_time(at - now)
            now = at
            self._begin_writes(now, effects.writes)
            if kind == "request":
                records += 1
                self._receive(now, self._clients[number])
            elif kind == "persisted":
                completed = self._writer.complete_write()
                if isinstance(completed, Refused):
                    raise RuntimeError(completed.why)
                for callback in completed.callbacks:
                    self._respond(now, self._records[callback.record][0])
        return Log(tuple(self._entries), records, records // STEPS, self._latency_us)

    def _schedule(self, at: int, kind: str, client: int = -1) -> None:
        """Adds an event. Events at the same time occur in the order in which they were added."""
        self._event_count += 1
        heapq.heappush(self._events, (at, self._event_count, kind, client))

    def _send(self, client: Client, now: int) -> None:
        """Sends the client's next request after its think time, unless all its transactions are done."""
        if client.remaining:
            client.sent_us = now + self._random.randint(0, self._think_us)
            self._schedule(client.sent_us + NETWORK_US, "request", client.number)

    def _receive(self, now: int, client: Client) -> None:
        """Receives a client's request at the coordinator, which adds the request's record to the writer."""
        if client.step == 0:
            self._last_id += 1
            client.txn = self._last_id
        new = record(client.step, client.txn, client.number, now, self._last_id)
        effects = self._writer.add(record_size(new), "nothing")  # "nothing": no step of the write fails
        self._records[effects.number] = client, new
        self._begin_writes(now, effects.writes)
        # without this event, the simulation would advance the writer's clock past the flush
        tick = now - now % self._delay_us + self._delay_us
        if tick != self._tick_us:
            self._tick_us = tick
            self._schedule(tick, "tick")

    def _begin_writes(self, now: int, writes: Sequence[Write]) -> None:
        """Starts the writes of the entries that the writer flushed."""
        for write in writes:
            records = [self._records[number][1] for number in write.records]
            self._entries.append(batched_entry(records) if write.batched else plain_entry(records[0]))
            self._free_us = max(self._free_us, now) + self._busy_us
            self._schedule(self._free_us + PERSIST_US, "persisted")

    def _respond(self, now: int, client: Client) -> None:
        """Completes the client's request; the client continues with its next step."""
        received_us = now + NETWORK_US
        self._latency_us += received_us - client.sent_us
        client.step = (client.step + 1) % STEPS
        client.remaining -= client.step == 0  # 1 after the last step of a transaction, otherwise 0
        self._send(client, received_us)


@functools.cache
def simulated(cfg: Config, concurrent: int, busy_us: int = 0) -> Log:
    """Returns the log that a simulation with this number of concurrent transactions writes."""
    return Simulation(cfg, concurrent, TRANSACTIONS, busy_us=busy_us).run()


# ---- replay -------------------------------------------------------------------------------------------


class Recovered(NamedTuple):
    """A transaction after a replay."""

    status: str
    partitions: tuple[str, ...]
    subscriptions: tuple[Subscription, ...]


def replayed(entries: Sequence[bytes]) -> dict[int, Recovered]:
    """Replays the entries of a log. Returns the ongoing transactions by id. Cost: O(bytes)."""
    found: dict[int, Recovered] = {}
    for entry in entries:
        for each in read_entry(TransactionRecord, entry).records:
            txn, op = each.txnid_least_bits, each.op
            if op == "NEW":
                found[txn] = Recovered("OPEN", (), ())
            elif op == "ADD_PARTITION":
                found[txn] = found[txn]._replace(partitions=found[txn].partitions + each.partitions)
            elif op == "ADD_SUBSCRIPTION":
                found[txn] = found[txn]._replace(subscriptions=found[txn].subscriptions + each.subscriptions)
            elif each.new_status in ("COMMITTED", "ABORTED"):
                del found[txn]
            else:
                found[txn] = found[txn]._replace(status=each.new_status or "")
    return found


def replay_rate(log: Log) -> float:
    """Returns the number of records replayed per second."""
    started = time.perf_counter()
    replayed(log.entries)
    return log.records / (time.perf_counter() - started)


# ---- measuring ----------------------------------------------------------------------------------------


def reduction(concurrent: int, measure: Callable[[Log], float], busy_us: int = 0) -> Callable[[], Measured]:
    """Returns a measurement of a cost with batching on and off. The ratio is above 1 if batching lowers the cost."""

    def run() -> Measured:
        batched, baseline = [measure(simulated(cfg, concurrent, busy_us)) for cfg in (ON, OFF)]
        return Measured(batched, baseline, baseline / batched)

    return run


def replay_speedup(concurrent: int) -> Callable[[], Measured]:
    """Returns a measurement of the replay rate with batching on and off."""

    def run() -> Measured:
        on, off = simulated(ON, concurrent), simulated(OFF, concurrent)
        batched, baseline = in_turns(lambda: replay_rate(on), lambda: replay_rate(off))
        return Measured(batched, baseline, batched / baseline)

    return run


def benchmarks_at(concurrent: int) -> list[Benchmark]:
    """Returns all benchmarks with this number of concurrent transactions."""
    group = "txn_log_batching"
    load = f"{concurrent:,} concurrent transactions" if concurrent > 1 else "one transaction at a time"
    return [
        Benchmark(
            group,
            f"{concurrent}.entries",
            "entries per transaction",
            f"{load}: log entries, against a log without batches",
            reduction(concurrent, lambda log: len(log.entries) / log.transactions),
        ),
        Benchmark(
            group,
            f"{concurrent}.bytes",
            "bytes per transaction",
            f"{load}: log bytes, against a log without batches",
            reduction(concurrent, lambda log: log.size / log.transactions),
        ),
        Benchmark(
            group,
            f"{concurrent}.time",
            "us per transaction",
            f"{load}: simulated request latency, against a log without batches",
            reduction(concurrent, lambda log: log.latency_us / log.transactions),
        ),
        Benchmark(
            group,
            f"{concurrent}.time_of_a_busy_ledger",
            "us per transaction",
            f"{load}: the same with a ledger that is busy for {BUSY_US} us per entry",
            reduction(concurrent, lambda log: log.latency_us / log.transactions, BUSY_US),
        ),
        Benchmark(
            group,
            f"{concurrent}.replay",
            "records/s",
            f"{load}: replay of a log in memory, against a log without batches",
            replay_speedup(concurrent),
        ),
    ]


benchmarks = [each for concurrent in CONCURRENT for each in benchmarks_at(concurrent)]


def line(label: str, metric: str, column: str = "value") -> Line:
    """Returns the line of a metric over the number of concurrent transactions."""
    return Line(label, tuple(Point(float(n), f"txn_log_batching.{n}.{metric}", column) for n in CONCURRENT))


plots = (
    Plot(
        "Log entries by concurrent transactions",
        "A transaction has five records. Without batching, each is an entry. With a flush every millisecond, records "
        "that arrive between two flushes share an entry.",
        "concurrent transactions",
        "entries per transaction",
        (line("batched", "entries"), line("batching off", "entries", "baseline")),
    ),
    Plot(
        "Request latency by concurrent transactions",
        "Batching costs the wait for the flush, and saves entries of a ledger that is busy with each. The busy ledger "
        f"takes an assumed {BUSY_US} microseconds per entry; the other one persists any number of entries at a time.",
        "concurrent transactions",
        "microseconds per transaction",
        (
            line("batched", "time"),
            line("batching off", "time", "baseline"),
            line("batched, busy ledger", "time_of_a_busy_ledger"),
            line("batching off, busy ledger", "time_of_a_busy_ledger", "baseline"),
        ),
    ),
    Plot(
        "Replay rate by concurrent transactions",
        "Records of a log in memory that are read and applied per second.",
        "concurrent transactions",
        "records per second",
        (line("batched", "replay"), line("batching off", "replay", "baseline")),
    ),
)
