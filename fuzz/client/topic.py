"""A topic: the log that all brokers share, the sessions of its producers, and its subscriptions.

A subscription has a cursor and a dispatcher. The cursor is the model's (`fuzz/answers/cursor.py`). The dispatcher, with
replay queue and permits, is code of this module, for speed. Decisions are added to a journal; after a schedule has run,
`fuzz/answers/judge.py` compares them with the models' decisions. There is no I/O here: a subscription gives MESSAGE
commands to the `Connection` of a consumer, and the caller of `Topic.store` gets the receipt.

The number of an entry is its index in the log, from 0. An entry also has a ledger id and an entry id, as in Pulsar.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any, NamedTuple, Protocol

from fuzz.answers.cursor import Cursor, Id
from fuzz.client.wire import Type, command_of

#: Types of subscriptions that the brokers serve (`SubType` of `PulsarApi.proto`).
EXCLUSIVE, SHARED, FAILOVER = range(3)
#: -1 as an unsigned integer: the ledger id and the entry id in the receipt of a duplicate, and in `MessageId.earliest`.
_MINUS_ONE = 2**64 - 1


class Connection(Protocol):
    """One TCP connection of a client."""

    broker: int  # the broker to which the client is connected
    number: int  # the connections are numbered in the order in which they are accepted

    def send(self, command: Any, message: bytes = b"") -> None:
        """Sends a command. `message` is what follows a MESSAGE command: checksum, metadata and payload."""


class Entry(NamedTuple):
    """A stored entry."""

    ledger: int  # the ledger id
    entry: int  # the entry id
    broker: int  # the broker that stored the entry
    producer: str  # the producer's name
    sequence: int  # the sequence id of the first message
    session: int  # the number of the producer's session
    payloads: tuple[bytes, ...]  # the payload of each message of the batch
    headers_and_payload: bytes  # checksum, metadata and payload of the whole batch, as received


class Send(NamedTuple):
    """A SEND, which has a batch of one message or more."""

    sequence: int  # the sequence id of the first message
    highest: int  # the sequence id of the last message
    payloads: tuple[bytes, ...]  # the payload of each message
    headers_and_payload: bytes  # checksum, metadata and payload of the whole batch, as received


class Producer:
    """A session of a producer. PRODUCER begins the session."""

    def __init__(self, connection: Connection, producer_id: int, name: str, session: int, epoch: int) -> None:
        self.connection = connection
        self.id = producer_id
        self.name = name
        self.session = session  # the number of this session
        self.epoch = epoch
        #: whether later sends of this session are ignored: a broker has ignored a send, or the session has ended
        self.is_fenced = False
        self.deferred: list[Send] = []  # sends that an order defers: they have arrived and are not processed
        self.receipts: list[Any] = []  # receipts that an order holds back
        self.last_receipt: Any = None  # the newest receipt that was sent
        self.arrived: list[int] = []  # `Send.sequence` of the sends of this session, in the order of arrival
        self.last_payload = b""  # the payload of the newest message that arrived


class Consumer:
    """A session of a consumer. SUBSCRIBE begins the session."""

    def __init__(self, connection: Connection, consumer_id: int, name: str, session: int) -> None:
        self.connection = connection
        self.id = consumer_id
        self.name = name
        self.session = session  # the number of this session
        self.permits = 0  # `granted` minus `charged`
        self.granted = 0  # sum of the permits of all FLOW commands
        self.charged = 0  # sum of the permits that deliveries cost
        #: numbers of entries that were delivered and not acknowledged, in the order of delivery; the values are None
        self.pending: dict[int, None] = {}


class Subscription:
    """A subscription: its cursor, its consumers, and its replay queue.

    A delivery costs a permit for each message of the entry that is not acknowledged. A consumer with at least one
    permit can get the next entry. On a Shared subscription, the consumers take turns. On any other subscription, only
    the consumer that subscribed first gets entries, until its session ends.
    """

    def __init__(
        self, key: str, sub_type: int, cursor: Cursor, journal: list[tuple[Any, ...]], *, is_durable: bool = True
    ) -> None:
        self.key = key  # TOPIC/NAME
        self._journal = journal
        self.sub_type = sub_type
        self.is_durable = is_durable
        self.cursor = cursor
        self.consumers: list[Consumer] = []
        self.replay: list[int] = []  # numbers of entries, ascending
        #: number of an entry -> its redelivery count. These brokers count on every subscription, Pulsar only on Shared
        #: and Key_Shared subscriptions
        self.redeliveries: dict[int, int] = {}
        self.deliveries_to_corrupt = 0  # an order gives this number of the next deliveries a wrong checksum
        self.corrupted: list[int] = []  # numbers of the entries that were delivered with a wrong checksum
        self.forced_ack_set: list[int] = []  # the ack set that an order gives the next delivery; empty: the cursor's
        #: MESSAGE commands that an order holds back; None: MESSAGE commands are sent at once
        self.held: list[tuple[Connection, Any, bytes]] | None = None
        self._turn = 0  # the index of the consumer whose turn it is, to be taken modulo the number of consumers

    def _note(self, decision: str, *about: Any) -> None:
        """Adds a decision to the journal, or a command on which decisions depend."""
        self._journal.append((decision, self.key, *about))

    def attach(self, consumer: Consumer) -> None:
        """Adds a consumer, whose session begins."""
        self._note("attach", consumer.session)
        self.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Removes a consumer, whose session ends. Puts the consumer's pending entries into the replay queue."""
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
        """Opens the subscription at another broker, which reads from the entry after the mark-delete position.

        Redelivery counts start again from 0. After a crash of the last owner, acks since the last write of the cursor
        are lost.
        """
        self.cursor.move(crashed=crashed)
        self._restart()

    def seek(self, number: int) -> None:
        """Resets the cursor to the entry `number`, which is read next."""
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
        """Puts pending entries of a consumer into the replay queue, and increments their redelivery counts.

        With `ids`, a Shared subscription redelivers only the pending entries with these ids. In all other cases, all
        pending entries of the consumer are redelivered.
        """
        self._note("redeliver", consumer.session, ids)
        wanted = list(consumer.pending)
        if ids and self.sub_type == SHARED:
            named = {self.cursor.number_of(ledger, entry) for ledger, entry, _ in ids}
            wanted = [number for number in wanted if number in named]
        for number in wanted:
            del consumer.pending[number]
            self.redeliveries[number] = self.redeliveries.get(number, 0) + 1
            self.add_to_replay(number)

    def acknowledge(self, ids: list[Id], *, cumulative: bool) -> bool:
        """Acknowledges entries, or messages of entries by ack sets. Returns whether the cursor accepts all acks.

        An entry is no longer pending when all its messages are acknowledged.
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
        return self.cursor.remaining(number) != ()  # (): the entry is deleted; None: no message is acknowledged

    def _receiver(self) -> Consumer | None:
        """Returns the consumer that gets the next entry; None if no consumer that could get it has a permit."""
        if self.sub_type != SHARED:
            return self.consumers[0] if self.consumers and self.consumers[0].permits > 0 else None
        turn = self._turn % max(1, len(self.consumers))
        return next((each for each in self.consumers[turn:] + self.consumers[:turn] if each.permits > 0), None)

    def dispatch(self, log: list[Entry]) -> None:
        """Delivers entries, first those of the replay queue, then those from the read position on.

        Ends when there is no further entry, or when no consumer can receive one (`_receiver`).
        """
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
        """Reads the next entry with the cursor. Returns the entry's number, or None if there is no entry to read."""
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
        data = entry.headers_and_payload
        if self.deliveries_to_corrupt:
            self.deliveries_to_corrupt -= 1
            self.corrupted.append(number)
            self._note("corrupt", consumer.session, number)
            data = data[:-1] + bytes([data[-1] ^ 1])  # a bit of the payload, so the checksum is wrong
        if self.held is not None:
            self.held.append((consumer.connection, command, data))
        else:
            consumer.connection.send(command, data)


class Topic:
    """A topic: its log, its subscriptions, and the sessions of its producers and consumers."""

    def __init__(self, name: str, journal: list[tuple[Any, ...]], *, deduplication: bool) -> None:
        self.name = name
        self._journal = journal
        self.deduplication = deduplication
        self.ledgers = [0]  # the number of entries of each ledger; ledger ids start at 1
        self.log: list[Entry] = []
        self.sizes: list[int] = []  # the number of messages of each entry of the log
        self.highest_sequence: dict[str, int] = {}  # by name of the producer: the highest stored sequence id
        self.producers: dict[tuple[int, int], Producer] = {}  # by connection and id
        self.consumers: dict[tuple[int, int], tuple[Subscription, Consumer]] = {}  # by connection and id
        self.subscriptions: dict[str, Subscription] = {}  # by name

    def load(self) -> None:
        """Loads the topic at a broker, which creates a new ledger. The next entry goes to this ledger."""
        self.ledgers.append(0)
        self._journal.append(("load", self.name))
        for each in self.subscriptions.values():
            each.cursor.step("roll_ledger")

    def store(self, producer: Producer, send: Send) -> tuple[Any, bool]:
        """Adds an entry with the messages of a send, unless the send is a duplicate.

        Returns the receipt, and whether an entry was added.
        """
        receipt = command_of(Type.SEND_RECEIPT, producer_id=producer.id, sequence_id=send.sequence)
        receipt.SEND_RECEIPT.highest_sequence_id = send.highest
        if self.deduplication and send.highest <= self.highest_sequence.get(producer.name, -1):
            receipt.SEND_RECEIPT.message_id.ledger = receipt.SEND_RECEIPT.message_id.entry = _MINUS_ONE
            return receipt, False
        ledger, entry, size = len(self.ledgers), self.ledgers[-1], len(send.payloads)
        broker = producer.connection.broker
        data = send.headers_and_payload
        self.log.append(
            Entry(ledger, entry, broker, producer.name, send.sequence, producer.session, send.payloads, data)
        )
        self.sizes.append(size)
        self.ledgers[-1] += 1
        self.highest_sequence[producer.name] = max(send.highest, self.highest_sequence.get(producer.name, -1))
        for each in self.subscriptions.values():
            each.cursor.add_entry(len(self.log) - 1, size)
        receipt.SEND_RECEIPT.message_id.ledger = ledger
        receipt.SEND_RECEIPT.message_id.entry = entry
        return receipt, True

    def dispatch(self) -> None:
        """Delivers entries of all subscriptions, as `Subscription.dispatch`."""
        for each in self.subscriptions.values():
            each.dispatch(self.log)

    def subscription(self, name: str, sub_type: int, first: int, *, is_durable: bool = True) -> Subscription:
        """Returns the subscription of that name.

        If there is none, creates one of this type that reads from the entry with the number `first` on.
        """
        found = self.subscriptions.get(name)
        if found is None:
            key = f"{self.name}/{name}"
            cursor = Cursor(self.ledgers, self.sizes, first)
            found = Subscription(key, sub_type, cursor, self._journal, is_durable=is_durable)
            self.subscriptions[name] = found
            self._journal.append(("subscription", key, self.name, sub_type, first))
        return found

    def first_from(self, message_id: Any, *, after: bool = False) -> int:
        """Returns the number of the first entry at or after a message id; with `after`, of the first entry after it.

        If there is no such entry, returns the number that the next stored entry gets.
        """
        if message_id.ledger == _MINUS_ONE:  # `MessageId.earliest`
            return 0
        return (bisect_right if after else bisect_left)(  # the log is sorted by ledger and entry
            self.log, (message_id.ledger, message_id.entry), key=lambda each: each[:2]
        )

    def remove(self, subscription: Subscription, consumer: Consumer) -> None:
        """Removes a consumer from its subscription. The caller has already removed it from `Topic.consumers`.

        If this was the last consumer of a subscription that is not durable, removes the subscription, too.
        """
        subscription.remove(consumer)
        if not subscription.is_durable and not subscription.consumers:
            self.subscriptions = {n: each for n, each in self.subscriptions.items() if each is not subscription}

    def forget_consumers(self, connection: int) -> None:
        """Ends the sessions of consumers on the connection with this number.

        Redelivers their pending entries to other consumers.
        """
        for key in [key for key in self.consumers if key[0] == connection]:
            subscription, consumer = self.consumers.pop(key)
            self.remove(subscription, consumer)
        self.dispatch()
