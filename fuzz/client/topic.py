"""A topic: the log that all brokers share, sessions of producers, and subscriptions with their dispatchers.

The cursor of a subscription is the model's (`fuzz/answers/cursor.py`). The dispatcher, with replay queue and permits,
is code of this module, for speed. Decisions are added to a journal; after the run, `fuzz/answers/judge.py` compares
them with the models' decisions. There is no I/O here: replies go to the `Connection` of a session.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any, NamedTuple, Protocol

from fuzz.answers.cursor import Cursor, Id
from fuzz.client.wire import Type, command_of

#: Types of subscriptions that the brokers serve, as on the wire.
EXCLUSIVE, SHARED, FAILOVER = range(3)
_NO_LEDGER = 2**64 - 1  # -1 as an unsigned integer


class Connection(Protocol):
    """One TCP connection of a client."""

    broker: int  # the broker to which the client is connected
    number: int  # the connections are numbered in the order in which they are accepted

    def send(self, command: Any, message: bytes = b"") -> None:
        """Sends a command, and the message behind it."""


class Entry(NamedTuple):
    """A stored entry."""

    ledger: int
    entry: int
    broker: int  # the broker that stored it
    producer: str
    sequence: int  # sequence id of the first message
    session: int  # the number of the producer's session
    payloads: tuple[bytes, ...]  # the payload of each message of the batch
    message: bytes  # checksum, metadata and payload as received


class Send(NamedTuple):
    """A SEND: sequence ids of its first and last message, its payloads, and the message as received."""

    sequence: int
    highest: int
    payloads: tuple[bytes, ...]
    message: bytes


class Producer:
    """A session of a producer, from PRODUCER to its end."""

    def __init__(self, connection: Connection, number: int, name: str, session: int, epoch: int) -> None:
        self.connection = connection
        self.id = number
        self.name = name
        self.session = session
        self.epoch = epoch
        self.is_fenced = False  # a fenced session never stores again
        self.deferred: list[Send] = []  # sends that an order defers: they have arrived and are not processed
        self.receipts: list[Any] = []  # receipts that an order holds back
        self.last_receipt: Any = None  # the newest receipt that was sent
        self.arrived: list[int] = []  # sequence ids of the sends of this session, in the order of arrival
        self.last_payload = b""  # the payload of the newest message that arrived


class Consumer:
    """A session of a consumer, from SUBSCRIBE to its end."""

    def __init__(self, connection: Connection, number: int, name: str, session: int) -> None:
        self.connection = connection
        self.id = number
        self.name = name
        self.session = session
        self.permits = 0
        self.granted = 0  # sum of the permits of all FLOW commands
        self.charged = 0  # sum of the permits that deliveries cost
        self.pending: dict[int, None] = {}  # numbers of entries that were delivered and not acknowledged


class Subscription:
    """A subscription: its cursor, its consumers, and its replay queue. Entries are numbered from 0.

    A delivery costs a permit for each message of the entry that is not acknowledged. A consumer with at least one
    permit gets the next entry. On a Shared subscription the consumers take turns; on others, the first one gets all.
    """

    def __init__(
        self, key: str, kind: int, cursor: Cursor, journal: list[tuple[Any, ...]], *, is_durable: bool = True
    ) -> None:
        self.key = key
        self._journal = journal
        self.kind = kind
        self.is_durable = is_durable
        self.cursor = cursor
        self.consumers: list[Consumer] = []
        self.replay: list[int] = []  # numbers of entries, ascending
        #: number of an entry -> its redelivery count; Pulsar has counts only on Shared and Key_Shared subscriptions
        self.redeliveries: dict[int, int] = {}
        self.corrupt = 0  # an order gives this many of the next deliveries a wrong checksum
        self.corrupted: list[int] = []  # numbers of the entries that were delivered with a wrong checksum
        self.forced_ack_set: list[int] = []  # the ack set that an order gives the next delivery; empty: the cursor's
        #: MESSAGE commands that an order holds back; None: MESSAGE commands are sent at once
        self.held: list[tuple[Connection, Any, bytes]] | None = None
        self._turn = 0  # index of the consumer whose turn it is

    def _note(self, kind: str, *about: Any) -> None:
        """Adds a decision to the journal."""
        self._journal.append((kind, self.key, *about))

    def attach(self, consumer: Consumer) -> None:
        """Begins a consumer's session."""
        self._note("attach", consumer.session)
        self.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Ends a consumer's session, and puts its pending entries into the replay queue."""
        self._note("detach", consumer.session)
        self.consumers.remove(consumer)
        for number in consumer.pending:
            self.add_to_replay(number)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Adds the permits of a FLOW command of a consumer."""
        self._note("flow", consumer.session, permits)
        consumer.permits += permits
        consumer.granted += permits

    def add_to_replay(self, number: int) -> None:
        """Adds an entry to the replay queue, if it is not there."""
        if number not in self.replay:
            insort(self.replay, number)

    def move(self, *, crashed: bool) -> None:
        """Opens the subscription at another broker, which reads from the mark-delete position.

        Redelivery counts start again from 0. After a crash, acks since the last write of the cursor are lost.
        """
        self.cursor.move(crashed=crashed)
        self._restart()

    def seek(self, number: int) -> None:
        """Resets the cursor: the next entry to read is `number`."""
        self._note("seek", number)
        self.cursor.reset(number)
        self._restart()

    def _restart(self) -> None:
        """Forgets replay queue, redelivery counts and pending entries."""
        self.replay.clear()
        self.redeliveries.clear()
        for consumer in self.consumers:
            consumer.pending.clear()

    def redeliver(self, consumer: Consumer, ids: list[Id]) -> None:
        """Puts pending entries of a consumer into the replay queue.

        On a Shared subscription, these are the entries with the given ids. Without ids, and on other subscriptions,
        these are all pending entries.
        """
        self._note("redeliver", consumer.session, ids)
        wanted = list(consumer.pending)
        if ids and self.kind == SHARED:
            named = {self.cursor.number_of(ledger, entry) for ledger, entry, _ in ids}
            wanted = [number for number in wanted if number in named]
        for number in wanted:
            del consumer.pending[number]
            self.redeliveries[number] = self.redeliveries.get(number, 0) + 1
            self.add_to_replay(number)

    def acknowledge(self, ids: list[Id], *, cumulative: bool) -> bool:
        """Acknowledges ids at the cursor. Returns whether the cursor accepts them.

        Entries without an unacknowledged message are no longer pending.
        """
        accepted = self.cursor.acknowledge(ids, cumulative=cumulative)
        self._note("ack", cumulative, ids, accepted)
        numbers = {self.cursor.number_of(ledger, entry) for ledger, entry, _ in ids}
        for consumer in self.consumers:
            for number in [n for n in consumer.pending if (cumulative or n in numbers) and not self._has_unacked(n)]:
                del consumer.pending[number]
        return accepted

    def _has_unacked(self, number: int) -> bool:
        """Returns whether an entry has a message that is not acknowledged."""
        return self.cursor.remaining(number) != ()

    def _receiver(self) -> Consumer | None:
        """Returns the consumer that gets the next entry; None if there is no such consumer with a permit."""
        if self.kind != SHARED:
            return self.consumers[0] if self.consumers and self.consumers[0].permits > 0 else None
        turn = self._turn % max(1, len(self.consumers))
        return next((each for each in self.consumers[turn:] + self.consumers[:turn] if each.permits > 0), None)

    def dispatch(self, log: list[Entry]) -> None:
        """Delivers entries while there are permits: those of the replay queue first, then from the read position."""
        while (consumer := self._receiver()) is not None:
            while self.replay and not self._has_unacked(self.replay[0]):
                del self.replay[0]
            number = self.replay.pop(0) if self.replay else self._read()
            if number is None:
                return
            cost = self.cursor.left(number, len(log[number].payloads))
            consumer.permits -= cost
            consumer.charged += cost
            consumer.pending[number] = None
            self._turn = self.consumers.index(consumer) + 1
            self._deliver(consumer, number, log[number])

    def _read(self) -> int | None:
        """Reads the next entry of the cursor. Returns its number, or None if there is no entry."""
        number = self.cursor.read()
        if number is not None:
            self._note("read", number)
        return number

    def _deliver(self, consumer: Consumer, number: int, entry: Entry) -> None:
        """Sends an entry to a consumer, or holds the MESSAGE command back."""
        position = {"ledger": entry.ledger, "entry": entry.entry, "partition": -1}
        command = command_of(Type.MESSAGE, consumer_id=consumer.id, message_id=position)
        if self.redeliveries.get(number):
            command.MESSAGE.redelivery_count = self.redeliveries[number]
        ack_words = self.cursor.remaining(number)
        self._note("deliver", consumer.session, number, ack_words)
        command.MESSAGE.ack_words.extend(self.forced_ack_set or ack_words or ())
        self.forced_ack_set = []
        message = entry.message
        if self.corrupt:
            self.corrupt -= 1
            self.corrupted.append(number)
            self._note("corrupt", consumer.session, number)
            message = message[:-1] + bytes([message[-1] ^ 1])
        if self.held is not None:
            self.held.append((consumer.connection, command, message))
        else:
            consumer.connection.send(command, message)


class Topic:
    """A topic: its log, and the sessions of its producers and consumers."""

    def __init__(self, name: str, journal: list[tuple[Any, ...]], *, deduplication: bool) -> None:
        self.name = name
        self._journal = journal
        self.deduplication = deduplication
        self.ledgers = [0]  # the number of entries of each ledger; ledger ids start at 1
        self.log: list[Entry] = []
        self.sizes: list[int] = []  # the number of messages of each entry of the log
        self.last_sequence: dict[str, int] = {}  # by name of the producer: the highest stored sequence id
        self.producers: dict[tuple[int, int], Producer] = {}  # by connection and id
        self.consumers: dict[tuple[int, int], tuple[Subscription, Consumer]] = {}  # by connection and id
        self.subscriptions: dict[str, Subscription] = {}  # by name

    def roll_ledger(self) -> None:
        """Opens the topic at a broker: the next entry goes to a new ledger."""
        self.ledgers.append(0)
        self._journal.append(("load", self.name))
        for each in self.subscriptions.values():
            each.cursor.step("roll_ledger")

    def store(self, producer: Producer, send: Send) -> Any:
        """Adds the entry of a send, if it is no duplicate. Returns the receipt, and whether an entry was added."""
        receipt = command_of(Type.SEND_RECEIPT, producer_id=producer.id, sequence_id=send.sequence)
        receipt.SEND_RECEIPT.highest_sequence_id = send.highest
        if self.deduplication and send.highest <= self.last_sequence.get(producer.name, -1):
            receipt.SEND_RECEIPT.message_id.ledger = receipt.SEND_RECEIPT.message_id.entry = _NO_LEDGER
            return receipt, False
        ledger, entry, size = len(self.ledgers), self.ledgers[-1], len(send.payloads)
        broker = producer.connection.broker
        self.log.append(
            Entry(ledger, entry, broker, producer.name, send.sequence, producer.session, send.payloads, send.message)
        )
        self.sizes.append(size)
        self.ledgers[-1] += 1
        self.last_sequence[producer.name] = max(send.highest, self.last_sequence.get(producer.name, -1))
        for each in self.subscriptions.values():
            each.cursor.add_entry(len(self.log) - 1, size)
        receipt.SEND_RECEIPT.message_id.ledger = ledger
        receipt.SEND_RECEIPT.message_id.entry = entry
        return receipt, True

    def dispatch(self) -> None:
        """Delivers entries of all subscriptions while there are permits."""
        for each in self.subscriptions.values():
            each.dispatch(self.log)

    def subscription(self, name: str, kind: int, first: int, *, is_durable: bool = True) -> Subscription:
        """Returns the subscription of that name. If there is none, creates one that reads from the entry `first` on."""
        found = self.subscriptions.get(name)
        if found is None:
            key = f"{self.name}/{name}"
            cursor = Cursor(self.ledgers, self.sizes, first)
            found = Subscription(key, kind, cursor, self._journal, is_durable=is_durable)
            self.subscriptions[name] = found
            self._journal.append(("subscription", key, self.name, kind, first))
        return found

    def number_of(self, position: Any, *, after: bool = False) -> int:
        """Returns the number of the first entry that is not before a message id; with `after`, that is after it."""
        if position.ledger == _NO_LEDGER:  # the earliest
            return 0
        return (bisect_right if after else bisect_left)(
            self.log, (position.ledger, position.entry), key=lambda each: each[:2]
        )

    def remove(self, subscription: Subscription, consumer: Consumer) -> None:
        """Ends a consumer's session. If it was the last one of a non-durable subscription, removes the subscription."""
        subscription.remove(consumer)
        if not subscription.is_durable and not subscription.consumers:
            self.subscriptions = {n: each for n, each in self.subscriptions.items() if each is not subscription}

    def forget(self, connection: int) -> None:
        """Ends all sessions of a connection, and redelivers the pending entries to other consumers."""
        for key in [key for key in self.producers if key[0] == connection]:
            del self.producers[key]
        for key in [key for key in self.consumers if key[0] == connection]:
            subscription, consumer = self.consumers.pop(key)
            self.remove(subscription, consumer)
        self.dispatch()
