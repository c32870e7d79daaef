"""A recorded stream: `file:PATH` of a CSV file, whose format `fuzz/workloads/README.md` describes.

The workload's times are relative to the first event, so a file may begin at any time.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fuzz.workloads import Workload
from fuzz.workloads.caches.plan import Command, Plan, Subscription
from fuzz.workloads.caches.study import study
from model.machine import BadValue

HEADER = ["time", "topic", "event"]
#: Name of an event -> whether a cursor follows the name, and how many numbers may come next.
EVENTS = {
    "add": (False, (1,)),
    "connect": (True, (0, 1)),
    "disconnect": (True, (0,)),
    "seek": (True, (1,)),
    "read": (True, (1,)),
    "reread": (True, (1,)),
    "ack": (True, (1,)),
}
#: Default cache sizes, as shares of all added bytes.
_SHARES = (0.01, 0.03, 0.1, 0.3)
#: The most digits of a time, and of any other number.
_TIME_DIGITS, _DIGITS = 18, 15


class Parameters(NamedTuple):
    """The parameters of a workload from a file. They change neither the times between events nor the rates."""

    scale: float = 1.0  # factor of settings that count entries
    latency_us: int = 500  # from a cursor's read to the delivery
    waits: int = 0  # whether readers wait for misses
    checksum: int = 0  # CRC-32 of the file, set by `of`: Spark's workers must have the same file


class Event(NamedTuple):
    """A line of the file."""

    at_us: int
    topic: str
    name: str
    cursor: str  # empty if the event has none
    numbers: tuple[int, ...]


@lru_cache(maxsize=1)
def recorded_events(path: str, content: bytes) -> tuple[Event, ...]:
    """Returns the events of a file. Raises BadValue for an invalid file, or a file that adds or reads no entry.

    The result is cached, because each cell of a grid needs it.
    """
    found = tuple(_events(path, content))
    for name, done in (("add", "added"), ("read", "read")):
        if not any(event.name == name for event in found):
            raise BadValue(f"{path}: no entry is {done}")
    return found


def _events(path: str, content: bytes) -> Iterator[Event]:
    """Yields the events of a file. Raises BadValue for the first invalid line, and if the file is no CSV in UTF-8."""
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if next(rows, None) != HEADER:
            raise BadValue(f"{path}:1: the first line must be {','.join(HEADER)}")
        before, known, connected = 0, set[tuple[str, str]](), set[tuple[str, str]]()
        added: Counter[str] = Counter()
        for row in filter(None, rows):
            where = f"{path}:{rows.line_num}"
            event = _event(where, row)
            if event.at_us < before:
                raise BadValue(f"{where}: time {event.at_us} is before {before}; sort the lines")
            before, cursor = event.at_us, (event.topic, event.cursor)
            if event.name in ("connect", "seek"):
                known.add(cursor)
                connected.add(cursor)
            # an ack may follow the disconnect of its cursor
            elif event.cursor and cursor not in (known if event.name == "ack" else connected):
                raise BadValue(f"{where}: cursor {event.cursor} of {event.topic} is not connected")
            if event.name == "disconnect":
                connected.remove(cursor)
            elif event.name == "add":
                added[event.topic] += 1
            elif event.name != "read" and event.numbers:
                # the number of a reread is an entry; that of a connect, seek or ack is a position, which may be after
                # the last entry
                most = added[event.topic] - (event.name == "reread")
                if event.numbers[0] > most:
                    raise BadValue(
                        f"{where}: {event.name} of entry {event.numbers[0]}, but {event.topic} has "
                        f"{added[event.topic]} entries so far; they are numbered from 0"
                    )
            yield event
    except (UnicodeDecodeError, csv.Error) as problem:
        raise BadValue(f"{path} cannot be read: {problem}") from None


def _event(where: str, row: list[str]) -> Event:
    """Returns the event of a line. Raises BadValue, with `where`, for an invalid line."""
    words = row[2].split() if len(row) == len(HEADER) else []
    named, counts = EVENTS.get(words[0] if words else "", (False, ()))
    numbers = words[1 + named :]
    if (
        len(numbers) not in counts
        or (named and len(words) < 2)
        or not all(n.isascii() and n.isdecimal() and len(n) <= _DIGITS for n in numbers)
        or not (row[0].isascii() and row[0].isdecimal() and len(row[0]) <= _TIME_DIGITS)
    ):
        got = ",".join(row)[:200]
        raise BadValue(f"{where}: expected time,topic,event such as 1500,t,read c 10; got {got}")
    return Event(int(row[0]), row[1], words[0], words[1] if named else "", tuple([int(n) for n in numbers]))


def of(path: str) -> Workload:
    """Returns the workload of a file. Raises BadValue if the file cannot be read or is invalid."""
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise BadValue(f"{path} cannot be read: {problem.strerror}") from None
    recorded, checksum = recorded_events(path, content), zlib.crc32(content)
    total = sum([event.numbers[0] for event in recorded if event.name == "add"])

    def plan(p: Any, rng: Random) -> Plan:  # noqa: ARG001
        if p.checksum != checksum:
            raise BadValue(f"{path} has CRC-32 {checksum} here, not {p.checksum}: it must be the same file everywhere")
        return plan_of(recorded, p)

    return study(
        f"file:{path}",
        "a recorded stream of adds and reads",
        Parameters(checksum=checksum),
        plan,
        lambda _: tuple([max(1, round(total * share)) for share in _SHARES]),
    )


def plan_of(recorded: Sequence[Event], p: Parameters) -> Plan:
    """Returns the plan of a recorded stream. The plan begins at time 0."""
    began_us = recorded[0].at_us
    topics: dict[str, int] = {}
    cursors: dict[tuple[str, str], int] = {}
    subscriptions: list[Subscription] = []
    added: Counter[int] = Counter()
    commands: list[Command] = []  # with the adds, so that events at the same time keep the order of the file
    for event in recorded:
        topic = topics.setdefault(event.topic, len(topics))
        if event.name == "add":
            added[topic] += 1
            commands.append(Command(event.at_us - began_us, "store", (topic, *event.numbers, 0)))
            continue
        number = cursors.setdefault((event.topic, event.cursor), len(cursors))
        name: Any = event.name
        numbers = event.numbers
        if number == len(subscriptions):  # a new cursor: without a position, it begins at the next entry
            subscriptions.append(Subscription(topic, kind="scripted"))
            numbers = numbers or (added[topic],)
        if name == "connect" and numbers:  # a connect with a position is a seek
            name = "seek"
        commands.append(Command(event.at_us - began_us, name, (number, *numbers)))
    end = recorded[-1].at_us - began_us + p.latency_us + 10_000
    return Plan(len(topics), (), subscriptions, end, p.scale, commands, latency_us=p.latency_us)
