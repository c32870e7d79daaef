"""Orders, by which a schedule changes what the brokers do. Also the conditions that a run waits for, and the report.

The arguments of `Ordered.order` are the orders of this table. `store` and `send` are faithful. An order about sends,
acks or receipts stays in force until another one replaces it; `release` ends orders about sends and receipts,
`end_orders` ends all.

    sends      store; defer: sends are processed when they are released; ignore: sends are not stored or answered, and
               their session is fenced
    acks       store; ignore: as if acks were lost
    receipts   send; hold: receipts are held back until they are released
    answers    by kind of command: each of the next commands of this kind uses one order. SUCCESS also stands for
               PRODUCER_SUCCESS:
                 refuse                (PRODUCER, SUBSCRIBE, LOOKUP) ServiceNotReady
                 silent                (PRODUCER, SUBSCRIBE, LOOKUP, CONNECT) no answer
                 fail                  (PRODUCER, SUBSCRIBE) PersistenceError
                 close                 (PRODUCER, SUBSCRIBE) CLOSE, then SUCCESS. CLOSE may have this broker's address
                                       (`has_address`), SUCCESS may be held back until the next command (`is_late`)
               and only in experiments (`fuzz/scenarios/experiments.toml`):
                 error                 (PRODUCER, SUBSCRIBE) the error with the number `number`
                 twice                 (PRODUCER) SUCCESS twice
                 queued                (PRODUCER) SUCCESS with producer_ready = false, then SUCCESS
                 rename                (PRODUCER) SUCCESS with another producer name
                 eager                 (SUBSCRIBE) one entry, if the consumer is the next to get one, then SUCCESS
                 redirect              (LOOKUP) to the other broker
                 error                 (CONNECT) ServiceNotReady
                 version               (CONNECT) CONNECTED with the protocol version `number`
                 success_first         (SEEK) SUCCESS, then CLOSE; the faithful answer is CLOSE, then SUCCESS
                 stay                  (SEEK) SUCCESS without CLOSE
                 never                 (SEEK) CLOSE without SUCCESS
                 before_subscribe      (SEEK) CLOSE; SUCCESS comes just before that of the next PRODUCER or SUBSCRIBE
                 after_subscribe       (SEEK) CLOSE; SUCCESS comes just after that of the next PRODUCER or SUBSCRIBE
                 fail                  (SEEK) MetadataError
                 first, middle, last   (SEND_RECEIPT) the next receipt has the sequence id of this message of the
                                       batch; the faithful receipt has that of the first

The other orders are methods: `broker.py` calls a method by the name in a request.
"""

from __future__ import annotations

import time
from itertools import dropwhile
from typing import Any

import msgspec

from fuzz.client.answer import Order
from fuzz.client.cluster import close_command
from fuzz.client.consumers import Consumers
from fuzz.client.topic import Producer
from fuzz.client.wire import Type, command_of


class Ordered(Consumers):
    """Brokers that obey a schedule."""

    def order(
        self, *, sends: str | None = None, receipts: str | None = None, acks: str | None = None, **answers: list[Any]
    ) -> None:
        """Replaces the orders about sends, receipts and acks that are given, and adds orders about answers.

        `answers` has for each kind of command a list of `Order` as plain data.
        """
        self.acks = acks or self.acks
        self.sends = sends or self.sends
        self.holds_receipts = receipts == "hold" if receipts else self.holds_receipts
        for kind, values in answers.items():
            self.answers[kind].extend(msgspec.convert(values, list[Order]))

    def release(self, how: str = "in_order") -> None:
        """Ends the orders about sends and receipts. Processes the deferred sends, and sends the held receipts.

        A fenced session at the owner gets CLOSE instead.

        how    in_order, reverse or twice: the held receipts of each session are sent in order, in reverse order, or
               each twice; skip: the oldest of several receipts is not sent
        """
        self.sends, self.holds_receipts = "store", False
        for key, (topic, producer) in list(self.producers.items()):
            if producer.is_fenced and self.serving == producer.connection.broker:
                self.forget_producer(topic, key)  # sends of this session were ignored, and get no receipts
                producer.connection.send(close_command(producer))
                continue
            deferred, producer.deferred = producer.deferred, []
            for send in deferred:
                self.take(topic, producer, send)
            held, producer.receipts = producer.receipts, []
            receipts = {"reverse": held[::-1], "skip": held[1:] or held, "twice": [r for r in held for _ in range(2)]}
            if how in ("reverse", "skip") and len(held) > 1:
                self.may_end.add(producer.connection.number)  # the first receipt is not that of the oldest send
            for receipt in receipts.get(how, held):
                self._send_receipt(producer, receipt)

    def _send_receipt(self, producer: Producer, receipt: Any) -> None:
        """Sends a receipt. Records in `may_end` if the client may end the connection at this receipt.

        By design, the client ends the connection at a receipt whose sequence id is larger than that of its oldest
        pending send. A repeated receipt can have this effect if a later send of the session has a smaller sequence id.
        """
        number = receipt.SEND_RECEIPT.sequence_id
        later = dropwhile(lambda each: each != number, producer.arrived)  # the receipt's send, and those after it
        if receipt is producer.last_receipt and any(each < number for each in later):
            self.may_end.add(producer.connection.number)
        producer.connection.send(receipt)
        producer.last_receipt = receipt

    def end_orders(self) -> None:
        """Makes the brokers faithful: ends orders, finishes a transfer, and releases what is held back or deferred."""
        self.answers.clear()
        self.acks = "store"
        self.corrupt_next(0)
        self.force_ack_set([])
        self._send_late_replies()
        seek_replies, self.seek_replies = self.seek_replies, []
        for _, connection, reply in seek_replies:
            connection.send(reply)
        self.release_messages()
        self.finish_transfer()
        self.release()

    def corrupt_next(self, count: int) -> None:
        """Gives the next `count` deliveries of each existing subscription a wrong checksum."""
        for topic in self.topics.values():
            for each in topic.subscriptions.values():
                each.deliveries_to_corrupt = count

    def hold_messages(self) -> None:
        """Holds the MESSAGE commands of the existing subscriptions back from now on."""
        for topic in self.topics.values():
            for each in topic.subscriptions.values():
                each.held = each.held or []

    def release_messages(self, count: int | None = None) -> None:
        """Sends the `count` newest MESSAGE commands that each subscription holds back, the newest first.

        The others stay held back. Raises AssertionError if a subscription holds back fewer than `count`. Without
        `count`, sends all.
        """
        for topic in self.topics.values():
            for each in topic.subscriptions.values():
                for _ in range(len(each.held or ()) if count is None else count):
                    assert each.held, "a subscription must hold back at least `count` commands"
                    connection, command, message = each.held.pop()
                    connection.send(command, message)
                each.held = each.held or None  # if no command is left, later ones are sent at once

    def force_ack_set(self, words: list[int]) -> None:
        """Sets the ack set of the next delivery of each existing subscription. Without words, removes this order."""
        for topic in self.topics.values():
            for each in topic.subscriptions.values():
                each.forced_ack_set = words

    def repeat_receipts(self) -> None:
        """Sends the newest receipt of every session again."""
        for _, producer in self.producers.values():
            if producer.last_receipt is not None:
                self._send_receipt(producer, producer.last_receipt)

    def refuse_deferred(self, index: int) -> None:
        """Answers a deferred send of each session with ChecksumError: the one at `index`, or else the last."""
        for _, producer in self.producers.values():
            if producer.deferred:
                self.refuse_send(producer, producer.deferred.pop(min(index, len(producer.deferred) - 1)))

    def begin_transfer(self) -> bool:
        """Starts a transfer to the other broker: no broker serves, and producers and consumers stay attached.

        Returns False, and does nothing, if another transfer is in progress or the other broker is down.
        """
        if self.serving is None or not self.ownership.begin_transfer(1 - self.serving):
            return False
        self.journal.append(("begin_transfer", 1 - self.serving))
        self.serving = None
        return True

    def finish_transfer(self, *, url: bool = True) -> None:
        """Makes the destination the owner, and sends CLOSE to all producers and consumers at the source.

        With `url`, CLOSE has the address of the destination. Nothing happens if no transfer has begun.
        """
        if self.serving is not None:
            return
        source, destination = self.ownership.finish_transfer()
        self.journal.append(("finish_transfer",))
        self._make_owner(destination, crashed=False)
        self.close_sessions(source, self.urls[destination] if url else "")
        self._unpark()

    def _unpark(self) -> None:
        """Answers the requests that arrived during a transfer."""
        parked, self.parked = self.parked, []
        for connection, body in parked:  # the protobuf class of a body has the name of the command's type
            self._handlers[Type[type(body).__name__]](connection, body, b"")

    def _make_owner(self, owner: int, *, crashed: bool) -> None:
        """Lets a new owner serve: it opens the cursors of all subscriptions. `crashed`: the last owner crashed."""
        self.serving = owner
        for topic in self.topics.values():
            for each in topic.subscriptions.values():
                each.move(crashed=crashed)

    def close_owner_sessions(self, url: str) -> None:
        """Ends all sessions at the owner, as `close_sessions`. The owner keeps the topics."""
        if self.serving is not None:
            self.close_sessions(self.serving, url)

    def close_twice(self) -> None:
        """Sends CLOSE with the other broker's address to all producers and consumers at the owner.

        Then sends each producer a second CLOSE, with the owner's address. Raises AssertionError during a transfer.
        """
        assert self.serving is not None, "no transfer is going on"
        producers = [producer for _, producer in self.producers.values()]
        self.close_owner_sessions(self.urls[1 - self.serving])
        for each in producers:
            each.connection.send(close_command(each, self.urls[self.serving]))

    def stray_receipts(self) -> None:
        """Sends each producer's connection a receipt for a producer that does not exist."""
        for _, producer in self.producers.values():
            producer.connection.send(command_of(Type.SEND_RECEIPT, producer_id=99, sequence_id=0))

    def age(self, count: int) -> None:
        """Sets the redelivery count of all pending entries to `count`."""
        for topic in self.topics.values():
            for subscription, consumer in topic.consumers.values():
                subscription.redeliveries.update(dict.fromkeys(consumer.pending, count))

    def close_sessions(self, broker: int, url: str) -> None:
        """Ends all sessions at a broker with a CLOSE. With `url`, CLOSE has this address."""
        for topic in self.topics.values():
            for key, producer in list(topic.producers.items()):
                if producer.connection.broker == broker:
                    self.forget_producer(topic, key)
                    producer.connection.send(close_command(producer, url))
            for key, (_, consumer) in list(topic.consumers.items()):
                if consumer.connection.broker == broker:
                    topic.remove(*topic.consumers.pop(key))
                    consumer.connection.send(close_command(consumer, url))

    def terminate(self) -> int:
        """Sends REACHED_END_OF_TOPIC to every consumer, and PING on every connection of a consumer.

        Returns the parameter of the condition `pings`, which is met when each PING of this call has its answer, or its
        connection is lost: a client answers a PING, or ends the connection.
        """
        expected = self.counts["PONG"] + self.counts["LOST"]
        for topic in self.topics.values():
            for _, consumer in topic.consumers.values():
                consumer.connection.send(command_of(Type.REACHED_END_OF_TOPIC, consumer_id=consumer.id))
                self._note(consumer.connection, "REACHED_END_OF_TOPIC", consumer.id)
        for connection in self.consumer_connections():
            connection.send(command_of(Type.PING))
            expected += 1
        return expected

    def crash(self) -> int | None:
        """Stops the owner: acks since the cursor's last write are lost, and the other broker becomes the owner.

        Finishes a transfer first. If the other broker is down, stops nothing. Returns the stopped broker, or None.
        """
        self.finish_transfer()
        broker = self.serving
        if broker is None or not self.ownership.is_up(1 - broker):
            return None
        self.ownership.crash(broker, 1 - broker)
        self.journal.append(("crash", broker, 1 - broker))
        self._make_owner(1 - broker, crashed=True)
        self._unpark()
        return broker

    def restart(self) -> list[int]:
        """Starts the stopped brokers again. Returns their numbers."""
        down = [broker for broker in range(len(self.urls)) if not self.ownership.is_up(broker)]
        for broker in down:
            self.ownership.restart(broker)
            self.journal.append(("restart", broker))
        return down

    # ---- conditions and reports

    def is_met(self, what: str, value: Any) -> bool:
        """Returns whether the condition `what` is met; `value` is its parameter."""
        if what == "received":  # `value` is the newest message that arrived in a session of a producer
            return any(p.last_payload == str(value).encode() for _, p in self.producers.values())
        if what == "producers":  # at least `value` producers have a session
            return self.attached()[0] >= int(value)
        consumers = [consumer for topic in self.topics.values() for _, consumer in topic.consumers.values()]
        if what == "consumers":  # at least `value` consumers have sent FLOW
            # before its FLOW, a consumer may still return messages of the last session to the application
            return sum([consumer.granted > 0 for consumer in consumers]) >= int(value)
        if what == "flows":  # every attached consumer has sent FLOW
            return all(consumer.granted > 0 for consumer in consumers)
        if what == "acknowledged":  # every subscription has acknowledged the whole log
            subscriptions = [(topic, each) for topic in self.topics.values() for each in topic.subscriptions.values()]
            return all(s.cursor.state.acks.first_unacked >= len(t.log) for t, s in subscriptions)
        if what == "left":  # at most `value` messages, of all subscriptions together, are not acknowledged
            cursors = [each.cursor for topic in self.topics.values() for each in topic.subscriptions.values()]
            return sum([int(str(each.observe()["not_acknowledged"])) for each in cursors]) <= int(value)
        if what == "permits":  # every consumer has at least `value` permits
            return all(consumer.permits >= int(value) for consumer in consumers)
        # the whole log was delivered to every subscription at least once, and no order about a wrong checksum is left
        if what == "delivered":
            subscriptions = [(topic, each) for topic in self.topics.values() for each in topic.subscriptions.values()]
            return all(
                s.cursor.state.read_position >= len(t.log) and not s.deliveries_to_corrupt for t, s in subscriptions
            )
        if what == "pings":  # `value` PING are answered, or their connections lost
            return self.counts["PONG"] + self.counts["LOST"] >= int(value)
        assert what == "commands", what
        kind, count = value  # at least `count` commands of a kind were received
        return self.counts[str(kind)] >= int(count)

    def has_answers(self) -> bool:
        """Returns whether there is an order about answers that no command has used yet."""
        return any(self.answers.values())

    def attached(self) -> list[int]:
        """Returns the number of producers with a session, and the number of consumers with one."""
        return [len(self.producers), sum(len(topic.consumers) for topic in self.topics.values())]

    def count(self, kind: str) -> int:
        """Returns the number of commands of a kind that were received since the reset."""
        return self.counts[kind]

    def report(self) -> dict[str, Any]:
        """Returns what happened since the reset, as plain data.

        commands     as `Cluster.commands`
        counts       as `Cluster.counts`
        journal      the decisions, as `fuzz/answers/judge.py` reads them
        log          the entries of all topics: broker, producer, session, sequence id, payloads, ledger, entry
        refused      messages whose sends were answered with SEND_ERROR
        corrupted    messages that were delivered with a wrong checksum
        attached     as `attached`
        cursors      by subscription: the observation of the cursor's model
        dispatchers  by subscription: session, permits and pending entries of each consumer
        permits      of each consumer: its name, and the permits that were granted, were charged and are left
        started      the `time.monotonic()` of the reset; `milliseconds` is the time since then
        """
        subscriptions = [each for topic in self.topics.values() for each in topic.subscriptions.values()]
        return {
            "started": self.started,
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
            "corrupted": [
                int(payload)
                for topic in self.topics.values()
                for each in topic.subscriptions.values()
                for number in each.corrupted
                for payload in topic.log[number].payloads
            ],
            "attached": self.attached(),
            "cursors": {each.key: each.cursor.observe() for each in subscriptions},
            "dispatchers": {
                each.key: [[c.session, c.permits, sorted(c.pending)] for c in each.consumers] for each in subscriptions
            },
            "permits": [
                [consumer.name, consumer.granted, consumer.charged, consumer.permits]
                for topic in self.topics.values()
                for _, consumer in topic.consumers.values()
            ],
            "milliseconds": (time.monotonic() - self.started) * 1000,
        }
