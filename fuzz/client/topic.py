"""A topic: the log that all brokers share, sessions of producers, and subscriptions with their dispatch.

No I/O: replies go to the connection of a session. Where a model exists it decides: the cursor of a subscription is that
of `fuzz/answers/cursor.py`.
"""

from __future__ import annotations

from bisect import insort
from typing import Any, NamedTuple, Protocol

from fuzz.answers.cursor import Cursor, Id
from fuzz.client import wire
from fuzz.client.wire import Type, command_of

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)


class Connection(Protocol):
    """One TCP connection of a client."""

    broker: int
    number: int

    def send(self, command: Any, message: bytes = b"") -> None:
        """Sends a command."""


class Entry(NamedTuple):
    """A stored entry, by which session at which broker, and the payloads of its messages."""

    ledger: int
    entry: int
    broker: int
    producer: str
    sequence: int
    session: int
    payloads: tuple[bytes, ...]
    message: bytes


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
        self.is_fenced = False  # it never stores again
        self.deferred: list[Send] = []
        self.receipts: list[Any] = []  # held back
        self.last_receipt: Any = None
        self.last_payload = b""


class Consumer:
    """A session of a consumer, from SUBSCRIBE to its end."""

    def __init__(self, connection: Connection, number: int, name: str) -> None:
        self.connection = connection
        self.id = number
        self.name = name
        self.permits = 0
        self.granted = 0
        self.dispatched = 0  # messages, as permits count them
        self.unacked: dict[int, None] = {}  # numbers of entries


class Subscription:
    """A subscription: its cursor, its consumers, and what must be delivered again."""

    def __init__(self, name: str, kind: int, cursor: Cursor, journal: list[tuple[Any, ...]]) -> None:
        self.name = name
        self._journal = journal
        self.kind = kind
        self.cursor = cursor
        self.consumers: list[Consumer] = []
        self.replay: list[int] = []  # numbers of entries, in order
        self.redeliveries: dict[int, int] = {}
        self.corrupt = 0  # deliveries that have a wrong checksum, from now on
        self.corrupted: list[int] = []  # numbers of their entries
        self._next = 0

    def remove(self, consumer: Consumer) -> None:
        """Ends a consumer's session: what it has not acknowledged is delivered again."""
        self.consumers.remove(consumer)
        for number in consumer.unacked:
            self.again(number)

    def again(self, number: int) -> None:
        """Queues an entry for redelivery."""
        if number not in self.replay:
            insort(self.replay, number)

    def move(self, *, crashed: bool) -> None:
        """Another broker opens the subscription. It reads from the mark-delete position, and knows of no redelivery."""
        self.cursor.move(crashed=crashed)
        self.replay.clear()
        self.redeliveries.clear()
        for consumer in self.consumers:
            consumer.unacked.clear()

    def redeliver(self, consumer: Consumer, ids: list[Id]) -> None:
        """Queues what a consumer has not acknowledged: some entries, or without ids all; single consumers get all."""
        wanted = list(consumer.unacked)
        if ids and self.kind in (SHARED, KEY_SHARED):
            named = {self.cursor.number_of(ledger, entry) for ledger, entry, _ in ids}
            wanted = [number for number in wanted if number in named]
        for number in wanted:
            del consumer.unacked[number]
            self.redeliveries[number] = self.redeliveries.get(number, 0) + 1
            self.again(number)

    def acknowledge(self, ids: list[Id], *, cumulative: bool) -> bool:
        """Acknowledges. Returns whether the cursor accepts it."""
        accepted = self.cursor.acknowledge(ids, cumulative=cumulative)
        for consumer in self.consumers:
            if cumulative or len(ids) > len(consumer.unacked):
                gone = [number for number in consumer.unacked if self.cursor.remaining(number) == ()]
            else:
                numbers = [self.cursor.number_of(ledger, entry) for ledger, entry, _ in ids]
                gone = [n for n in numbers if n is not None and n in consumer.unacked and not self._is_left(n)]
            for number in gone:
                consumer.unacked.pop(number, None)
        return accepted

    def _is_left(self, number: int) -> bool:
        return self.cursor.remaining(number) != ()

    def _receiver(self, entry: Entry) -> Consumer | None:
        """The consumer that gets an entry, if it has permits."""
        if not self.consumers:
            return None
        if self.kind in (EXCLUSIVE, FAILOVER):
            chosen = self.consumers[0]
            return chosen if chosen.permits > 0 else None
        if self.kind == KEY_SHARED:
            key = wire.parts_of(entry.message, check=False).metadata.partition_key.encode()
            chosen = self.consumers[wire.crc32c(key) % len(self.consumers)]
            return chosen if chosen.permits > 0 else None
        for _ in self.consumers:
            self._next = (self._next + 1) % len(self.consumers)
            if self.consumers[self._next].permits > 0:
                return self.consumers[self._next]
        return None

    def dispatch(self, log: list[Entry]) -> None:
        """Delivers entries while there are permits: what is to be redelivered first, then from the read position."""
        while any(consumer.permits > 0 for consumer in self.consumers):
            while self.replay and not self._is_left(self.replay[0]):
                del self.replay[0]
            number = self.replay.pop(0) if self.replay else self._read()
            if number is None:
                return
            entry = log[number]
            consumer = self._receiver(entry)
            if consumer is None:
                self.again(number)
                return
            charged = self.cursor.left(number, len(entry.payloads))
            consumer.permits -= charged
            consumer.dispatched += charged
            consumer.unacked[number] = None
            self._deliver(consumer, number, entry)

    def _read(self) -> int | None:
        number = self.cursor.read()
        if number is not None:
            self._journal.append(("read", self.name, number))
        return number

    def _deliver(self, consumer: Consumer, number: int, entry: Entry) -> None:
        position = {"ledger": entry.ledger, "entry": entry.entry, "partition": -1}
        command = command_of(Type.MESSAGE, consumer_id=consumer.id, message_id=position)
        if self.redeliveries.get(number):
            command.MESSAGE.redelivery_count = self.redeliveries[number]
        ack_words = self.cursor.remaining(number)
        command.MESSAGE.ack_words.extend(ack_words or ())
        self._journal.append(("deliver", self.name, number, ack_words))
        message = entry.message
        if self.corrupt:
            self.corrupt -= 1
            self.corrupted.append(number)
            message = message[:-1] + bytes([message[-1] ^ 1])
        consumer.connection.send(command, message)


class Topic:
    """A topic: its log, and which producers and consumers are attached at which broker."""

    def __init__(self, name: str, journal: list[tuple[Any, ...]], *, deduplication: bool, profile: str) -> None:
        self.name = name
        self._journal = journal
        self.deduplication = deduplication
        self.profile = profile
        self.ledgers = [0]
        self.log: list[Entry] = []
        self.sizes: list[int] = []
        self.last_sequence: dict[str, int] = {}
        self.producers: dict[tuple[int, int], Producer] = {}  # by connection and id
        self.consumers: dict[tuple[int, int], tuple[Subscription, Consumer]] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.is_terminated = False

    def roll_ledger(self) -> None:
        """A broker opens the topic: the next entry goes to a new ledger."""
        self.ledgers.append(0)
        for each in self.subscriptions.values():
            each.cursor.step("roll_ledger")

    def store(self, producer: Producer, send: Send) -> Any:
        """Adds the entry of a send, unless it is a duplicate. Returns the receipt and whether it was added."""
        receipt = command_of(Type.SEND_RECEIPT, producer_id=producer.id, sequence_id=send.sequence)
        receipt.SEND_RECEIPT.highest_sequence_id = send.highest
        if self.deduplication and send.highest <= self.last_sequence.get(producer.name, -1):
            receipt.SEND_RECEIPT.message_id.ledger = receipt.SEND_RECEIPT.message_id.entry = 2**64 - 1
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
        """Delivers what permits allow."""
        for each in self.subscriptions.values():
            each.dispatch(self.log)

    def subscription(self, name: str, kind: int, *, earliest: bool) -> Subscription:
        """The subscription of that name; a new one starts at the first entry, or after the last one."""
        found = self.subscriptions.get(name)
        if found is None:
            cursor = Cursor(self.profile, self.ledgers, self.sizes, at_end=not earliest)
            found = self.subscriptions[name] = Subscription(name, kind, cursor, self._journal)
            self._journal.append(("subscription", name, earliest))
        return found

    def forget(self, connection: int) -> None:
        """A connection has ended, and with it its sessions."""
        for key in [key for key in self.producers if key[0] == connection]:
            del self.producers[key]
        for key in [key for key in self.consumers if key[0] == connection]:
            subscription, consumer = self.consumers.pop(key)
            subscription.remove(consumer)
        self.dispatch()
