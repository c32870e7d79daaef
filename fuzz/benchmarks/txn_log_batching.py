"""What batching buys a transaction log, and what it costs: entries, bytes, time and replay, with batches and without.

A simulation in microseconds, with the writer and the bytes of `impl/txn_writer/{writer,records}.py`. So many
clients run whole transactions, one after the other: each sends its next request when the last one was answered and it
has worked for a while. A request is a record of the log; it is answered when its entry is stored. With batching the
writer has the proposal's limits: 512 records, 4 MiB, and a tick every millisecond (PIP-160).

All numbers but those of the replay are the same on every machine. Times are told for two ledgers: one that stores any
number of entries at a time, so that nothing shows but what a record waits for its batch; and one that is busy with an
entry for a while before it takes the next, so that many entries wait for each other. How long that is, is assumed, as
all durations are. What BookKeeper adds to each entry is not in the bytes.

The replay reads all entries of a log that is in memory, and applies them: what a coordinator does when it recovers,
without the reads from storage, of which there are as many as entries.
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
from model.txn_writer.state import Config, Write

#: How long a request or an answer is on its way, and an entry to be stored; how long a client works at most in between.
NETWORK_US, STORED_US, WORK_US = 200, 2_000, 2_000
#: How long a ledger is busy with an entry that takes one after the other.
BUSY_US = 20
#: The writer's tick. Its clock counts what we tell it: here microseconds.
DELAY_US = 1_000
ON = Config(max_delay_ms=DELAY_US)
OFF = ON._replace(batching=False)
#: What clocks show at the start, in milliseconds.
START_MS = 1_660_000_000_000
TIMEOUT_MS = 60_000

#: Concurrent transactions, and how many there are in all.
CONCURRENT = (1, 10, 100, 1_000)
TRANSACTIONS = 4_000


class Log(NamedTuple):
    """What came of a simulation."""

    entries: tuple[bytes, ...]
    records: int
    transactions: int
    waited_us: int  # from requests to their answers, of all together

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(len(entry) for entry in self.entries)


def record(step: int, number: int, client: int, now_us: int, newest: int) -> TransactionRecord:
    """The record of a transaction's step: it begins, has a partition and a subscription, is to commit, and has."""
    if step == 0:
        now_ms = START_MS + now_us // 1_000
        return TransactionRecord(
            "NEW",
            number,
            timeout_ms=TIMEOUT_MS,
            start_time=now_ms,
            last_modification_time=now_ms,
            max_local_txn_id=newest,
        )
    made = TransactionRecord(
        ("ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE", "UPDATE")[step - 1], number, max_local_txn_id=newest
    )
    if step == 1:
        return made._replace(partitions=(f"persistent://public/default/orders-partition-{client % 16}",))
    if step == 2:
        read = Subscription(f"persistent://public/default/payments-partition-{client % 16}", "billing")
        return made._replace(subscriptions=(read,))
    statuses = ("OPEN", "COMMITTING", "COMMITTED")
    return made._replace(expected_status=statuses[step - 3], new_status=statuses[step - 2])


#: How many records a transaction has.
STEPS = 5


class Client:
    """Runs transactions, one after the other."""

    def __init__(self, number: int, transactions: int) -> None:
        self.number = number
        self.left = transactions
        self.step = 0
        self.transaction = -1
        self.sent_us = 0


class Simulation:
    """Clients, a coordinator with its writer, and a ledger."""

    def __init__(
        self, cfg: Config, concurrent: int, transactions: int, work_us: int = WORK_US, busy_us: int = 0
    ) -> None:
        self._writer = TxnWriter(cfg)
        self._chance = random.Random(160)  # noqa: S311
        self._work_us = work_us
        self._busy_us = busy_us
        self._free_us = 0  # when the ledger takes the next entry
        self._delay_us = cfg.max_delay_ms
        self._clients = [Client(number, transactions // concurrent) for number in range(concurrent)]
        self._events: list[tuple[int, int, str, int]] = []  # when, in which order, what, and whose
        self._events_made = 0
        self._records: dict[int, tuple[Client, TransactionRecord]] = {}  # by the writer's numbers
        self._entries: list[bytes] = []
        self._newest = -1
        self._waited_us = 0
        self._tick_us = -1

    def run(self) -> Log:
        """All transactions, to their ends. O(records log clients)."""
        for client in self._clients:
            self._send(client, 0)
        now, count = 0, 0
        while self._events:
            at, _, what, who = heapq.heappop(self._events)
            told = self._writer.advance_time(at - now)
            now = at
            self._begin_writes(now, told.writes)
            if what == "request":
                count += 1
                self._take(now, self._clients[who])
            elif what == "stored":
                for answer in self._writer.complete_write().answers:  # type: ignore[union-attr]
                    self._answer(now, self._records[answer.record][0])
        return Log(tuple(self._entries), count, count // STEPS, self._waited_us)

    def _later(self, at: int, what: str, who: int = -1) -> None:
        self._events_made += 1
        heapq.heappush(self._events, (at, self._events_made, what, who))

    def _send(self, client: Client, now: int) -> None:
        """The client works, and sends its next request."""
        if client.left:
            client.sent_us = now + self._chance.randint(0, self._work_us)
            self._later(client.sent_us + NETWORK_US, "request", client.number)

    def _take(self, now: int, client: Client) -> None:
        """A request is there: its record goes to the writer."""
        if client.step == 0:
            self._newest += 1
            client.transaction = self._newest
        made = record(client.step, client.transaction, client.number, now, self._newest)
        told = self._writer.add(record_size(made), "nothing")
        self._records[told.number] = client, made
        self._begin_writes(now, told.writes)
        tick = now - now % self._delay_us + self._delay_us
        if tick != self._tick_us:
            self._tick_us = tick
            self._later(tick, "tick")

    def _begin_writes(self, now: int, writes: Sequence[Write]) -> None:
        for write in writes:
            records = [self._records[number][1] for number in write.records]
            self._entries.append(batched_entry(records) if write.batched else plain_entry(records[0]))
            self._free_us = max(self._free_us, now) + self._busy_us
            self._later(self._free_us + STORED_US, "stored")

    def _answer(self, now: int, client: Client) -> None:
        """An answer goes to the client, which goes on."""
        there = now + NETWORK_US
        self._waited_us += there - client.sent_us
        client.step = (client.step + 1) % STEPS
        client.left -= client.step == 0
        self._send(client, there)


@functools.cache
def simulated(cfg: Config, concurrent: int, busy_us: int = 0) -> Log:
    """The log of so many concurrent transactions."""
    return Simulation(cfg, concurrent, TRANSACTIONS, busy_us=busy_us).run()


# ---- replay -------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """A transaction as a recovery finds it."""

    status: str
    partitions: tuple[str, ...]
    subscriptions: tuple[Subscription, ...]


def replayed(entries: Sequence[bytes]) -> dict[int, Found]:
    """The transactions that are not over, from the entries of a log. O(bytes)."""
    found: dict[int, Found] = {}
    for entry in entries:
        for each in read_entry(TransactionRecord, entry).records:
            number, op = each.txnid_least_bits, each.op
            if op == "NEW":
                found[number] = Found("OPEN", (), ())
            elif op == "ADD_PARTITION":
                found[number] = found[number]._replace(partitions=found[number].partitions + each.partitions)
            elif op == "ADD_SUBSCRIPTION":
                found[number] = found[number]._replace(subscriptions=found[number].subscriptions + each.subscriptions)
            elif each.new_status in ("COMMITTED", "ABORTED"):
                del found[number]
            else:
                found[number] = found[number]._replace(status=each.new_status or "")
    return found


def speed(log: Log) -> float:
    """Records a second that are replayed."""
    started = time.perf_counter()
    replayed(log.entries)
    return log.records / (time.perf_counter() - started)


# ---- measuring ----------------------------------------------------------------------------------------


def less(concurrent: int, measure: Callable[[Log], float], busy_us: int = 0) -> Callable[[], Measured]:
    """How much of something there is with batching, against none: less is better."""

    def run() -> Measured:
        ours, other = [measure(simulated(cfg, concurrent, busy_us)) for cfg in (ON, OFF)]
        return Measured(ours, other, other / ours)

    return run


def faster(concurrent: int) -> Callable[[], Measured]:
    """How fast the log is replayed, against the one without batches."""

    def run() -> Measured:
        on, off = simulated(ON, concurrent), simulated(OFF, concurrent)
        ours, other = in_turns(lambda: speed(on), lambda: speed(off))
        return Measured(ours, other, ours / other)

    return run


def of_row(concurrent: int) -> list[Benchmark]:
    """All measurements with so many concurrent transactions."""
    name = f"txn_log_batching.{concurrent}"
    those = f"{concurrent:,} concurrent transactions" if concurrent > 1 else "one transaction at a time"
    return [
        Benchmark(
            f"{name}.entries",
            "entries a transaction",
            f"{those}: entries of the log, against a log without batches",
            less(concurrent, lambda log: len(log.entries) / log.transactions),
        ),
        Benchmark(
            f"{name}.bytes",
            "bytes a transaction",
            f"{those}: bytes of the log, against a log without batches",
            less(concurrent, lambda log: log.size / log.transactions),
        ),
        Benchmark(
            f"{name}.time",
            "us a transaction",
            f"{those}: how long requests take, simulated, against a log without batches",
            less(concurrent, lambda log: log.waited_us / log.transactions),
        ),
        Benchmark(
            f"{name}.time_of_a_busy_ledger",
            "us a transaction",
            f"{those}: the same where the ledger takes {BUSY_US} us for each entry",
            less(concurrent, lambda log: log.waited_us / log.transactions, BUSY_US),
        ),
        Benchmark(
            f"{name}.replay",
            "records/s",
            f"{those}: reading the log and applying it, against the log without batches",
            faster(concurrent),
        ),
    ]


benchmarks = [each for concurrent in CONCURRENT for each in of_row(concurrent)]


def line(label: str, part: str, column: str = "value") -> Line:
    """A line over the number of concurrent transactions."""
    return Line(label, tuple(Point(float(n), f"txn_log_batching.{n}.{part}", column) for n in CONCURRENT))


plots = (
    Plot(
        "Concurrent transactions, and entries of their log",
        "Every request of a transaction is a record, and without batching an entry: five of them. With a tick every "
        "millisecond, requests that come within one share an entry.",
        "concurrent transactions",
        "entries a transaction",
        (line("batched", "entries"), line("batching off", "entries", "baseline")),
    ),
    Plot(
        "Concurrent transactions, and how long their requests take",
        "What it costs: a record waits for the tick. What it buys: a ledger that takes a while for each entry has "
        f"fewer of them. Here that is {BUSY_US} microseconds, which is assumed; the others store any number at a time.",
        "concurrent transactions",
        "microseconds a transaction",
        (
            line("batched", "time"),
            line("batching off", "time", "baseline"),
            line("batched, busy ledger", "time_of_a_busy_ledger"),
            line("batching off, busy ledger", "time_of_a_busy_ledger", "baseline"),
        ),
    ),
    Plot(
        "Concurrent transactions, and how fast their log is replayed",
        "Records that are read and applied in a second, from a log in memory.",
        "concurrent transactions",
        "records a second",
        (line("batched", "replay"), line("batching off", "replay", "baseline")),
    ),
)
