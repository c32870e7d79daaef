"""Repeats the journal of the loopback brokers on the models, and compares the decisions.

The journal has every decision in order: answers to lookups, admissions of producers and consumers, the outcome of each
send and each ack, each delivery, and the commands on which deliveries depend. Each decision is compared with the
models'. What a schedule orders (a send is ignored, a checksum is wrong) is not compared; the models take it as given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fuzz.answers.cursor import Cursor, Id
from fuzz.answers.dispatcher import Dispatcher
from fuzz.answers.ownership import Ownership

#: The outcome of a send that the broker ignores because a schedule orders it.
_BY_ORDER = "ignored by order"
#: The kinds of decisions before which the brokers must have delivered all entries that they can.
_QUIET = ("send", "flow", "redeliver", "ack", "attach", "end")


class _Topic:
    """A topic: its entries, and the models of its subscriptions up to the present decision.

    `entries` has the topic's rows of `log` in the brokers' report (`Ordered.report`).
    """

    def __init__(self, entries: list[list[Any]]) -> None:
        self.entries = entries
        # the last three columns of a row are payloads, ledger and entry
        self.sizes = [len(payloads) for *_, payloads, _, _ in entries]
        self.ledgers = [0]  # the number of entries of each
        self.subscriptions: dict[str, tuple[Cursor, Dispatcher]] = {}

    @property
    def stored(self) -> int:
        """The number of entries stored up to the present decision."""
        return sum(self.ledgers)

    def add_entry(self) -> None:
        """Adds the next one of `entries` to the models."""
        for cursor, dispatcher in self.subscriptions.values():
            cursor.add_entry(self.stored, self.sizes[self.stored])
            dispatcher.add_entry()
        self.ledgers[-1] += 1


class Judge:
    """Compares the brokers' decisions with the models'.

    For each kind of decision there is a method `_KIND`, whose arguments are those of the journal. The method returns
    how the models decide otherwise, or an empty text if they decide the same.
    """

    def __init__(self, report: dict[str, Any], *, deduplication: bool) -> None:
        """`report` is that of `Ordered.report` (`fuzz/client/orders.py`)."""
        self.report = report
        sessions = [about for kind, *about in report["journal"] if kind == "session"]
        topic_of = {session: topic for topic, _, session, _ in sessions}
        self.producers = list(dict.fromkeys((topic, name) for topic, name, _, _ in sessions))
        self.ownership = Ownership(2, len(self.producers), deduplication=deduplication)
        self.sessions: dict[int, tuple[int, int]] = {}  # session -> broker and producer
        self.fenced: set[int] = set()  # the sessions of which a send was ignored
        # a decision `subscription` has the key of the subscription first, then the topic: `about[1:2]` is the topic
        names = {topic for kind, *about in report["journal"] if kind == "subscription" for topic in about[1:2]}
        self.topics = {
            name: _Topic([entry for entry in report["log"] if topic_of[entry[2]] == name])
            for name in sorted(names.union(topic_of.values()))
        }

    def differences(self) -> Iterator[str]:
        """Yields a message for each decision, log, cursor and dispatcher that differs from the models'."""
        for number, (kind, *about) in enumerate([*self.report["journal"], ("end",)]):
            late = self._overdue() if kind in _QUIET else ""
            wrong = late or getattr(self, f"_{kind}")(*about)
            if wrong:
                yield f"decision {number}, {kind}{tuple(about)}: {wrong}"
        added = [(self.producers[producer], sequence) for producer, sequence in self.ownership.log()]
        for name, topic in self.topics.items():
            log = [(producer, sequence) for _, producer, _, sequence, *_ in topic.entries]
            expected = [(producer, sequence) for (of, producer), sequence in added if of == name]
            if log != expected:
                yield f"the log of {name} is {log}, the model's {expected}"
        for key, plain in self.report["cursors"].items():
            cursor, dispatcher = self._subscription_of(key)
            if plain != cursor.observe():
                yield f"the cursor {key} is {plain}, the model's {cursor.observe()}"
            if self.report["dispatchers"][key] != dispatcher.view():
                held = self.report["dispatchers"][key]
                yield f"the consumers of {key} have permits and entries {held}, the model's {dispatcher.view()}"

    def _subscriptions(self) -> Iterator[tuple[Cursor, Dispatcher]]:
        for topic in self.topics.values():
            yield from topic.subscriptions.values()

    def _subscription_of(self, key: str) -> tuple[Cursor, Dispatcher]:
        return next(topic.subscriptions[key] for topic in self.topics.values() if key in topic.subscriptions)

    # ---- clients

    def _lookup(self, broker: int, answer: int | None) -> str:
        expected = self.ownership.answer(broker)
        return "" if answer == expected else f"the model answers {expected}"

    def _admit(self, broker: int, served: bool | None) -> str:
        expected = self.ownership.admit(broker)
        return "" if served == expected else f"the model says {expected}"

    def _session(self, topic: str, name: str, session: int, broker: int) -> str:
        self.sessions[session] = (broker, self.producers.index((topic, name)))
        return ""

    def _send(self, session: int, sequence: int, outcome: str) -> str:
        if session in self.fenced:
            return "" if outcome == "ignored" else "the session is fenced, and never stores again"
        if outcome == _BY_ORDER:
            self.fenced.add(session)
            return ""
        broker, producer = self.sessions[session]
        expected = self.ownership.process(broker, producer, sequence)
        if expected == "ignored":
            self.fenced.add(session)
        topic = self.topics[self.producers[producer][0]]
        # if the brokers have stored fewer entries than the models, `differences` reports the two logs
        if expected == "added" and topic.stored < len(topic.entries):
            topic.add_entry()
        return "" if outcome == expected else f"the model says {expected}"

    # ---- cursors and dispatchers

    def _subscription(self, key: str, name: str, sub_type: int, first: int) -> str:
        topic = self.topics[name]
        cursor = Cursor(topic.ledgers, topic.sizes[: topic.stored], first)
        topic.subscriptions[key] = cursor, Dispatcher(sub_type, topic.stored, first)
        return ""

    def _attach(self, key: str, consumer: int) -> str:
        return self._subscription_of(key)[1].attach(consumer)

    def _detach(self, key: str, consumer: int) -> str:
        return self._subscription_of(key)[1].detach(consumer)

    def _flow(self, key: str, consumer: int, permits: int) -> str:
        return self._subscription_of(key)[1].flow(consumer, permits)

    def _redeliver(self, key: str, consumer: int, ids: Sequence[Id]) -> str:
        cursor, dispatcher = self._subscription_of(key)
        return dispatcher.redeliver(consumer, {cursor.number_of(ledger, entry) for ledger, entry, _ in ids})

    def _read(self, key: str, number: int) -> str:
        expected = self._subscription_of(key)[0].read()
        return "" if number == expected else f"the model reads entry {expected}"

    def _deliver(self, key: str, consumer: int, number: int, ack_set: Sequence[int] | None) -> str:
        cursor, dispatcher = self._subscription_of(key)
        expected = cursor.remaining(number)
        if expected == ():
            return "the entry is acknowledged"
        if (None if ack_set is None else tuple(ack_set)) != expected:
            return f"the model's ack set is {expected}"
        size = next(topic.sizes[number] for topic in self.topics.values() if key in topic.subscriptions)
        return dispatcher.deliver(consumer, number, size, expected)

    def _corrupt(self, *_: Any) -> str:
        return ""  # not compared: a schedule orders that the previous delivery has a wrong checksum

    def _ack(self, key: str, cumulative: bool, ids: Sequence[Id], accepted: bool) -> str:
        cursor, dispatcher = self._subscription_of(key)
        acks = [(ledger, entry, None if words is None else tuple(words)) for ledger, entry, words in ids]
        expected = cursor.acknowledge(acks, cumulative=cumulative)
        numbers = [cursor.number_of(ledger, entry) for ledger, entry, _ in ids]
        deleted = [number for number in numbers if number is not None and cursor.remaining(number) == ()]
        dispatcher.acknowledged(deleted, cursor.state.acks.first_unacked)
        return "" if accepted == expected else f"the model says {expected}"

    def _seek(self, key: str, number: int) -> str:
        cursor, dispatcher = self._subscription_of(key)
        cursor.reset(number)
        dispatcher.reset(number, ())
        return ""

    def _end(self) -> str:
        return ""  # the end of the journal, at which only overdue deliveries are checked

    def _overdue(self) -> str:
        """Returns a text that names a delivery that the models would make now; empty if there is none."""
        return next(filter(None, (dispatcher.overdue() for _, dispatcher in self._subscriptions())), "")

    # ---- ownership

    def _load(self, topic: str) -> str:
        # a broker that loads a topic creates a new ledger
        found = self.topics.get(topic)
        if found is not None:
            found.ledgers.append(0)
            for cursor, _ in found.subscriptions.values():
                cursor.step("roll_ledger")
        return ""

    def _begin_transfer(self, destination: int) -> str:
        return "" if self.ownership.begin_transfer(destination) else "the model refuses"

    def _finish_transfer(self) -> str:
        self.ownership.finish_transfer()
        self._move(crashed=False)
        return ""

    def _crash(self, broker: int, heir: int) -> str:
        was = self.ownership.owner
        self.ownership.crash(broker, heir)
        if self.ownership.owner != was:
            self._move(crashed=True)
        return ""

    def _restart(self, broker: int) -> str:
        self.ownership.restart(broker)
        return ""

    def _move(self, *, crashed: bool) -> None:
        """Opens all cursors, and resets the dispatchers, on the broker that is the owner now."""
        for cursor, dispatcher in self._subscriptions():
            cursor.move(crashed=crashed)
            dispatcher.reset(cursor.state.acks.first_unacked, cursor.deleted())


def differences(report: dict[str, Any], *, deduplication: bool) -> list[str]:
    """Returns a message for each difference between brokers and models. `report` is that of `Ordered.report`."""
    return list(Judge(report, deduplication=deduplication).differences())
