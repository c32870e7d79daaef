"""Individual acks of a cursor with many ranges of deleted entries: implementation against model.

The workload is a shared subscription: consumers acknowledge random messages of batches and random whole entries. Every
`_ACKS_PER_RECORD` acks, the implementation persists its acknowledgements as a record; the model does not. The model
keeps deleted entries in one bit mask over all entries. The two are not measured in the same state: the implementation
begins with no acks, and the model after `ACKS` acks.
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

#: Entries of the two benchmarks, messages of an entry, and acks of a measurement of the implementation.
FEW, MANY, MESSAGES, ACKS = 10_000, 100_000, 10, 20_000
#: The model is slow, so it gets fewer acks.
_ACKS_OF_MODEL = 300
_REPETITIONS = 3
#: A record is written after this many acks.
_ACKS_PER_RECORD = 5_000


def config(entries: int) -> Config:
    """Returns the config of a cursor with this many unacknowledged entries."""
    return Config(batch_sizes=(MESSAGES,), entries=entries)


def acknowledgements(entries: int, count: int) -> list[tuple[Ack, ...]]:
    """Returns acks of random messages and of random whole entries, but not of the first entry.

    So the mark-delete position does not advance.
    """
    chance, everything = random.Random(7), 2**MESSAGES - 1  # noqa: S311
    made: list[tuple[Ack, ...]] = []
    for _ in range(count):
        # an ack set in which the bit of one message is clear; None: the whole entry
        words = words_of(everything & ~(1 << chance.randrange(MESSAGES))) if chance.random() < 0.6 else None
        made.append((Ack(Position(1, chance.randrange(1, entries)), words),))
    return made


def implementation_seconds(entries: int, given: list[tuple[Ack, ...]]) -> float:
    """Returns the seconds that the implementation takes for the acks, with records."""
    cursor = BatchAcks(config(entries))
    started = time.perf_counter()
    for i, acks in enumerate(given, 1):
        cursor.ack_individual(acks)
        if i % _ACKS_PER_RECORD == 0:
            cursor.flush()
            cursor.written()
    return time.perf_counter() - started


def model_seconds(entries: int, given: list[tuple[Ack, ...]]) -> float:
    """Returns the seconds that the model takes for `_ACKS_OF_MODEL` further acks, after the given ones.

    The implementation executes the given acks, because the model would be slow.
    """
    cfg = config(entries)
    cursor = BatchAcks(cfg)
    for acks in given:
        cursor.ack_individual(acks)
    state: Any = cursor.view()
    again = acknowledgements(entries, len(given) + _ACKS_OF_MODEL)[len(given) :]
    started = time.perf_counter()
    for acks in again:
        state, _ = m.ack_individual(cfg, state, acks)
    seconds = time.perf_counter() - started
    assert state != start(cfg)
    return seconds


def speed(entries: int) -> Callable[[], Measured]:
    """Returns the measurement with this many entries: acks per second, median of the repetitions."""

    def run() -> Measured:
        given = acknowledgements(entries, ACKS)
        pairs = [
            (ACKS / implementation_seconds(entries, given), _ACKS_OF_MODEL / model_seconds(entries, given))
            for _ in range(_REPETITIONS)
        ]
        value, baseline = sorted(p[0] for p in pairs)[_REPETITIONS // 2], sorted(p[1] for p in pairs)[_REPETITIONS // 2]
        return Measured(value, baseline, value / baseline)

    return run


benchmarks = [
    Benchmark(
        "batch_acks_speed",
        f"{entries}_entries",
        "acks/s",
        f"individual acks of messages of {entries:,} batches in random order, with records, against the model",
        speed(entries),
    )
    for entries in (FEW, MANY)
]
