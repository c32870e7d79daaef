"""A recorded stream: `file:PATH` of a CSV file with the columns time, topic and event.

`time` is in microseconds and does not decrease; `topic` is any name. Events:

    add BYTES               an entry is added
    connect CURSOR [ENTRY]  a cursor gets its first consumer, at an entry (from 0), or where it was (at first: the end)
    disconnect CURSOR       it loses its last consumer
    seek CURSOR ENTRY       it continues at an entry
    read CURSOR NUMBER      it reads its next entries, as many as there are up to the number
    reread CURSOR ENTRY     it reads an entry of its replay queue
    ack CURSOR ENTRY        its mark-delete position: all entries before this one are acknowledged
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fuzz.workloads import Workload
from fuzz.workloads.caches.plan import Add, Command, Plan, Subscription
from fuzz.workloads.caches.study import study
from model.machine import BadValue

HEADER = ["time", "topic", "event"]
#: The words of an event: its name, whether it names a cursor, and how many numbers may follow.
EVENTS = {
    "add": (False, (1,)),
    "connect": (True, (0, 1)),
    "disconnect": (True, (0,)),
    "seek": (True, (1,)),
    "read": (True, (1,)),
    "reread": (True, (1,)),
    "ack": (True, (1,)),
}
#: Default cache sizes: these shares of all added bytes.
_SHARES = (0.01, 0.03, 0.1, 0.3)


class Parameters(NamedTuple):
    """Times are those of the file."""

    scale: float = 1.0  # of settings that count entries
    latency_us: int = 500
    waits: int = 0


class Event(NamedTuple):
    """A line of the file."""

    at_us: int
    topic: str
    name: str
    cursor: str
    numbers: tuple[int, ...]


def events(path: str) -> Iterator[Event]:
    """The lines. Raises BadValue for the first that is wrong."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as lines:
            rows = csv.reader(lines)
            if next(rows, None) != HEADER:
                raise BadValue(f"{path}:1: the first line must be {','.join(HEADER)}")
            before = 0
            for row in rows:
                event = _event(f"{path}:{rows.line_num}", row)
                if event.at_us < before:
                    raise BadValue(f"{path}:{rows.line_num}: time {event.at_us} is before {before}; sort the lines")
                before = event.at_us
                yield event
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadValue(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def _event(where: str, row: list[str]) -> Event:
    words = row[2].split() if len(row) == len(HEADER) else []
    named, counts = EVENTS.get(words[0] if words else "", (False, ()))
    numbers = words[1 + named :]
    if len(numbers) not in counts or (named and len(words) < 2) or not all(n.isdecimal() for n in (row[0], *numbers)):
        raise BadValue(f"{where}: expected time,topic,event such as 1500,t,read c 10; got {','.join(row)}")
    return Event(int(row[0]), row[1], words[0], words[1] if named else "", tuple([int(n) for n in numbers]))


def of(path: str) -> Workload:
    """The workload of a file."""
    recorded = list(events(path))
    if not any(event.name == "add" for event in recorded):
        raise BadValue(f"{path}: no entry is added")
    total = sum([event.numbers[0] for event in recorded if event.name == "add"])

    def plan(p: Any, rng: Random) -> Plan:  # noqa: ARG001
        return plan_of(recorded, p)

    return study(
        f"file:{path}",
        "a recorded stream of adds and reads",
        Parameters(),
        plan,
        lambda _: tuple([max(1, round(total * share)) for share in _SHARES]),
    )


def plan_of(recorded: list[Event], p: Parameters) -> Plan:
    """The plan of a recorded stream."""
    topics: dict[str, int] = {}
    cursors: dict[tuple[str, str], int] = {}
    subscriptions: list[Subscription] = []
    adds: list[Add] = []
    commands: list[Command] = []
    for event in recorded:
        topic = topics.setdefault(event.topic, len(topics))
        if event.name == "add":
            adds.append(Add(event.at_us, topic, event.numbers[0]))
            continue
        number = cursors.setdefault((event.topic, event.cursor), len(cursors))
        if number == len(subscriptions):
            subscriptions.append(Subscription(topic, kind="scripted", start=None))
        name: Any = "seek" if event.name == "connect" and event.numbers else event.name
        commands.append(Command(event.at_us, name, (number, *event.numbers)))
    end = recorded[-1].at_us + p.latency_us + 10_000
    return Plan(len(topics), adds, subscriptions, end, p.scale, commands, latency_us=p.latency_us)
