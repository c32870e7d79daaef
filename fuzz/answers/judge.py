"""Whether the brokers answered as the models do: their journal, run on the models in this process.

The journal has every decision in order: lookups, admissions of clients, what became of each send and each ack, and each
delivery. The models repeat the decisions. What a schedule ordered (to ignore sends, to refuse a client) is taken as an
action of the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fuzz.answers.cursor import Cursor
from fuzz.answers.ownership import Ownership

#: What becomes of a send that a schedule orders to ignore.
_BY_ORDER = "ignored by order"


class Judge:
    """The models, and where the brokers differ from them."""

    def __init__(self, report: dict[str, Any], *, deduplication: bool, profile: str = "reference") -> None:
        self.report = report
        self.profile = profile
        self.names = sorted({entry[1] for entry in report["journal"] if entry[0] == "session"})
        self.ownership = Ownership(2, len(self.names), deduplication=deduplication)
        self.sessions: dict[int, tuple[int, int]] = {}  # broker and producer
        self.fenced: set[int] = set()
        self.cursors: dict[str, Cursor] = {}
        self.stored = 0
        self.ledgers = [0]

    def differences(self) -> Iterator[str]:
        """What the models do otherwise."""
        for number, (kind, *about) in enumerate(self.report["journal"]):
            wrong = getattr(self, f"_{kind}")(*about)
            if wrong:
                yield f"decision {number}, {kind}{tuple(about)}: {wrong}"
        log = [(self.names.index(name), sequence) for _, name, _, sequence, *_ in self.report["log"]]
        if log != self.ownership.log():
            yield f"the log is {log}, the model's {self.ownership.log()}"
        seen = {place.rpartition("/")[2]: plain for place, plain in self.report["cursors"].items()}
        for name, cursor in self.cursors.items():
            if name in seen and seen[name] != cursor.observe():
                yield f"the cursor {name} is {seen[name]}, the model's {cursor.observe()}"

    # ---- decisions

    def _lookup(self, broker: int, answer: int | None) -> str:
        expected = self.ownership.answer(broker)
        return "" if answer == expected else f"the model answers {expected}"

    def _admit(self, broker: int, served: bool | None) -> str:
        expected = self.ownership.admit(broker)
        return "" if served == expected else f"the model says {expected}"

    def _session(self, name: str, number: int, broker: int) -> str:
        self.sessions[number] = (broker, self.names.index(name))
        return ""

    def _send(self, session: int, sequence: int, outcome: str) -> str:
        if session in self.fenced:
            return "" if outcome == "ignored" else "the session is fenced, and never stores again"
        if outcome == _BY_ORDER:
            self.fenced.add(session)
            return ""
        expected = self.ownership.process(*self.sessions[session], sequence)
        if expected == "ignored":
            self.fenced.add(session)
        if expected == "added":
            size = len(self.report["log"][self.stored][4]) if self.stored < len(self.report["log"]) else 1
            for cursor in self.cursors.values():
                cursor.add_entry(self.stored, size)
            self.stored += 1
            self.ledgers[-1] += 1
        return "" if outcome == expected else f"the model says {expected}"

    def _subscription(self, name: str, earliest: bool) -> str:
        sizes = [len(entry[4]) for entry in self.report["log"][: self.stored]]
        self.cursors[name] = Cursor(self.profile, self.ledgers, sizes, at_end=not earliest)
        return ""

    def _read(self, name: str, number: int) -> str:
        expected = self.cursors[name].read()
        return "" if number == expected else f"the model reads entry {expected}"

    def _deliver(self, name: str, number: int, ack_set: Sequence[int] | None) -> str:
        expected = self.cursors[name].remaining(number)
        if expected == ():
            return "the entry is acknowledged"
        given = None if ack_set is None else tuple(ack_set)
        return "" if given == expected else f"the model's ack set is {expected}"

    def _ack(self, name: str, cumulative: bool, ids: Sequence[Any], accepted: bool) -> str:
        acks = [(ledger, entry, None if words is None else tuple(words)) for ledger, entry, words in ids]
        expected = self.cursors[name].acknowledge(acks, cumulative=cumulative)
        return "" if accepted == expected else f"the model says {expected}"

    # ---- ownership

    def _load(self) -> str:
        self.ledgers.append(0)
        for cursor in self.cursors.values():
            cursor.step("roll_ledger")
        return ""

    def _begin_transfer(self, destination: int) -> str:
        return "" if self.ownership.begin_transfer(destination) else "the model refuses"

    def _finish_transfer(self) -> str:
        self.ownership.finish_transfer()
        for cursor in self.cursors.values():
            cursor.move(crashed=False)
        return ""

    def _crash(self, broker: int, heir: int) -> str:
        was = self.ownership.owner
        self.ownership.crash(broker, heir)
        if self.ownership.owner != was:
            for cursor in self.cursors.values():
                cursor.move(crashed=True)
        return ""

    def _restart(self, broker: int) -> str:
        self.ownership.restart(broker)
        return ""


def differences(report: dict[str, Any], *, deduplication: bool) -> list[str]:
    """Where the brokers of a run differ from the models."""
    return list(Judge(report, deduplication=deduplication).differences())
