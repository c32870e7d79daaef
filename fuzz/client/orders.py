"""What a schedule orders the brokers to do, and what the harness sees of them.

Orders, each until it is changed or used up:

    sends      store them; defer them, unprocessed, until they are released; or ignore them, which fences the session
    receipts   send them; or hold them back until they are released
    answers    of the next PRODUCER, SUBSCRIBE or LOOKUP, one after the other: refuse (ServiceNotReady), fail (a
               persistence error), silent (never answered), or close (CLOSE comes before SUCCESS)

The other orders are methods: `broker.py` calls a method by the name in a request.
"""

from __future__ import annotations

import time
from typing import Any

from fuzz.client.cluster import Cluster, close_command
from fuzz.client.wire import Type, command_of


class Ordered(Cluster):
    """Brokers that obey a schedule."""

    def order(self, *, sends: str | None = None, receipts: str | None = None, **answers: list[str]) -> None:
        """Changes the orders; see the module."""
        self.sends = sends or self.sends
        self.holds_receipts = receipts == "hold" if receipts else self.holds_receipts
        for kind, values in answers.items():
            self.answers[kind].extend(values)

    def release(self, how: str = "in_order") -> None:
        """Stores what was deferred and sends the receipts that were held back, in some order; both from now on.

        in_order; reverse; skip (without the oldest receipt of each session); twice
        """
        self.sends, self.holds_receipts = "store", False
        for key, (topic, producer) in list(self.of_producer.items()):
            if producer.is_fenced:  # it waits for receipts that never come
                self.forget_producer(topic, key)
                producer.connection.send(close_command(producer))
                continue
            for send in producer.deferred:
                self.store(topic, producer, send)
            producer.deferred.clear()
            held, producer.receipts = producer.receipts, []
            receipts = {"reverse": held[::-1], "skip": held[1:], "twice": [r for r in held for _ in range(2)]}
            if how in ("reverse", "skip") and len(held) > 1:
                self.ended.add(producer.connection.number)  # out of order: the client reconnects, by design
            for receipt in receipts.get(how, held):
                producer.connection.send(receipt)
                producer.last_receipt = receipt

    def obey_no_more(self) -> None:
        """The brokers are faithful from now on."""
        self.answers.clear()
        self.finish_transfer()
        self.release()

    def repeat_receipts(self) -> None:
        """Sends the newest receipt of every session again."""
        for _, producer in self.of_producer.values():
            if producer.last_receipt is not None:
                producer.connection.send(producer.last_receipt)

    def refuse_deferred(self, rank: int) -> None:
        """Answers one deferred send of every session with ChecksumError: the one of that rank, or the newest."""
        for _, producer in self.of_producer.values():
            if producer.deferred:
                self.refuse_send(producer, producer.deferred.pop(min(rank, len(producer.deferred) - 1)))

    def begin_transfer(self, destination: int) -> None:
        """Phase 1 of a transfer: sends and acks are ignored, and clients stay attached."""
        if self.ownership.owner != destination and self.open_at is not None:
            self.ownership.begin_transfer(destination)
            self.journal.append(("begin_transfer", destination))
            self.open_at = None

    def finish_transfer(self, *, url: bool = True) -> None:
        """Phase 2: the destination owns the topics, and clients get its address; without `url`, only the close."""
        if self.open_at is not None:
            return
        source, destination = self.ownership.finish_transfer()
        self.journal.append(("finish_transfer",))
        self.open_at = destination
        for topic in self.topics.values():
            for each in topic.subscriptions.values():
                each.cursor.move(crashed=False)
        self.close_sessions(source, self.urls[destination] if url else "")

    def close_sessions(self, broker: int, url: str) -> None:
        """Sends CLOSE to every producer and consumer that is attached at a broker."""
        for topic in self.topics.values():
            for key, producer in list(topic.producers.items()):
                if producer.connection.broker == broker:
                    self.forget_producer(topic, key)
                    producer.connection.send(close_command(producer, url))
            for key, (subscription, consumer) in list(topic.consumers.items()):
                if consumer.connection.broker == broker:
                    del topic.consumers[key]
                    subscription.remove(consumer)
                    consumer.connection.send(close_command(consumer, url))

    def terminate(self) -> None:
        """Tells every consumer that the topic has ended (REACHED_END_OF_TOPIC)."""
        for topic in self.topics.values():
            for _, consumer in topic.consumers.values():
                consumer.connection.send(command_of(Type.REACHED_END_OF_TOPIC, consumer_id=consumer.id))

    def crash(self, broker: int, heir: int) -> None:
        """A broker stops: acknowledgements since the last write are forgotten, and another broker is the owner."""
        self.ownership.crash(broker, heir)
        self.journal.append(("crash", broker, heir))
        if self.ownership.owner == heir and self.open_at != heir:
            self.open_at = heir
            for topic in self.topics.values():
                for each in topic.subscriptions.values():
                    each.cursor.move(crashed=True)

    # ---- what the harness sees

    def holds(self, what: str, value: Any) -> bool:
        """Whether a condition holds that the harness waits for."""
        if what == "received":  # by an attached producer's session, as its newest message
            return any(p.last_payload == str(value).encode() for _, p in self.of_producer.values())
        if what == "producers":
            return len(self.of_producer) >= int(value)
        if what == "consumers":
            return sum(len(topic.consumers) for topic in self.topics.values()) >= int(value)
        if what == "acknowledged":  # by every subscription, the whole log
            subscriptions = [(topic, each) for topic in self.topics.values() for each in topic.subscriptions.values()]
            return all(s.cursor.state.acks.first_unacked >= len(t.log) for t, s in subscriptions)
        kind, count = value
        assert what == "commands", what
        return self.counts[str(kind)] >= int(count)

    def report(self) -> dict[str, Any]:
        """What happened, as plain data."""
        return {
            "commands": self.commands,
            "counts": dict(self.counts),
            "journal": self.journal,
            "log": [
                [
                    e.broker,
                    e.producer,
                    e.session,
                    e.sequence,
                    [p.decode("latin1") for p in e.payloads],
                    e.ledger,
                    e.entry,
                ]
                for topic in self.topics.values()
                for e in topic.log
            ],
            "refused": self.refused,
            "attached": [len(self.of_producer), sum(len(topic.consumers) for topic in self.topics.values())],
            "cursors": {
                f"{topic.name}/{each.name}": each.cursor.observe()
                for topic in self.topics.values()
                for each in topic.subscriptions.values()
            },
            "permits": [
                [consumer.name, consumer.granted, consumer.dispatched, consumer.permits]
                for topic in self.topics.values()
                for _, consumer in topic.consumers.values()
            ],
            "milliseconds": (time.monotonic() - self.started) * 1000,
        }
