"""What acknowledgements cost a cursor that has many gaps, against the definition, which looks at masks of all entries.

A shared subscription: consumers acknowledge single messages of batches in no order, some far behind others, and now and
then a record is written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from fuzz.benchmarks.runner import Benchmark, Measured
from impl.batch_acks import BatchAcks
from model.ack_set import words_of
from model.batch_acks import machine as m
from model.batch_acks.machine import Ack
from model.batch_acks.state import Config, start
from model.positions import Position

#: Entries that are not all acknowledged yet, messages of each, and acknowledgements of one measurement.
FEW, MANY, MESSAGES, ACKS = 10_000, 100_000, 10, 20_000
#: The definition is so slow that it is asked less often.
_ACKS_OF_DEFINITION = 300
_TURNS = 3
#: A record is written after so many acknowledgements.
_ACKS_OF_RECORD = 5_000


def config(entries: int) -> Config:
    """A cursor before so many entries, none of which is acknowledged."""
    return Config(batch_sizes=(MESSAGES,), entries=entries)


def acknowledgements(entries: int, count: int) -> list[tuple[Ack, ...]]:
    """Single messages and now and then a whole entry, in no order; the first entry is left, so that the mark stays."""
    chance, everything = random.Random(7), 2**MESSAGES - 1  # noqa: S311
    made: list[tuple[Ack, ...]] = []
    for _ in range(count):
        words = words_of(everything & ~(1 << chance.randrange(MESSAGES))) if chance.random() < 0.6 else None
        made.append((Ack(Position(1, chance.randrange(1, entries)), words),))
    return made


def ours(entries: int, given: list[tuple[Ack, ...]]) -> float:
    """Seconds for acknowledgements, with records."""
    body = BatchAcks(config(entries))
    started = time.perf_counter()
    for i, acks in enumerate(given, 1):
        body.ack_individual(acks)
        if i % _ACKS_OF_RECORD == 0:
            body.flush()
            body.written()
    return time.perf_counter() - started


def definition(entries: int, given: list[tuple[Ack, ...]]) -> float:
    """Seconds for acknowledgements, by the definition, in a cursor that has had as many before."""
    cfg = config(entries)
    body = BatchAcks(cfg)
    for acks in given:
        body.ack_individual(acks)
    state: Any = body.view()
    again = acknowledgements(entries, len(given) + _ACKS_OF_DEFINITION)[len(given) :]
    started = time.perf_counter()
    for acks in again:
        state, _ = m.ack_individual(cfg, state, acks)
    seconds = time.perf_counter() - started
    assert state != start(cfg)
    return seconds


def speed(entries: int) -> Callable[[], Measured]:
    """Acknowledgements a second, ours against the definition."""

    def run() -> Measured:
        given = acknowledgements(entries, ACKS)
        pairs = [(ACKS / ours(entries, given), _ACKS_OF_DEFINITION / definition(entries, given)) for _ in range(_TURNS)]
        value, baseline = sorted(p[0] for p in pairs)[_TURNS // 2], sorted(p[1] for p in pairs)[_TURNS // 2]
        return Measured(value, baseline, value / baseline)

    return run


benchmarks = [
    Benchmark(
        f"batch_acks_speed.{entries}_entries",
        "acks/s",
        f"single messages of {entries:,} batches in no order, with records, against the definition",
        speed(entries),
    )
    for entries in (FEW, MANY)
]
