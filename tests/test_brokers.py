"""The loopback brokers of `brokerproof client`, without sockets: the models make the same decisions.

Random commands drive the brokers.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from random import Random
from types import ModuleType
from typing import Any

import pytest

from fuzz.answers.judge import differences
from fuzz.client import cluster, topic
from fuzz.client.answer import Answer, Order
from fuzz.client.broker import Server
from fuzz.client.orders import Ordered
from fuzz.client.run import TOPIC
from fuzz.client.wire import Metadata, ServerError, Type, command_of
from fuzz.platform.json import from_json, to_json
from fuzz.seeding import replaced_source, source_of

SEEDS = range(60)


class Client:
    """A connection that keeps what it receives."""

    def __init__(self, broker: int, number: int) -> None:
        self.broker = broker
        self.number = number
        self.received: list[Any] = []

    def send(self, command: Any, message: bytes = b"") -> None:
        self.received.append(command)


def batch(size: int) -> bytes:
    """Returns a batch of messages. The metadata of each message has only the size of its payload."""
    metadata: bytes = Metadata(num_messages_in_batch=size).SerializeToString()
    single = b"\x18\x01"  # payload_size 1
    return struct.pack(">I", len(metadata)) + metadata + (struct.pack(">I", len(single)) + single + b"7") * size


class Driver:
    """Sends random commands of several producers and consumers, and moves or crashes the owner."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.brokers = Ordered(["pulsar://a", "pulsar://b"], deduplication=bool(seed % 2))
        self.clients: dict[int, Client] = {}  # the connected ones, by number
        self.connected = 0
        self.subscribed = 0
        self.sequence = 0

    def command(self, client: Client, kind: Type, message: bytes = b"", **fields: Any) -> None:
        self.brokers.handle(client, command_of(kind, **fields), message)

    def connect(self) -> None:
        """Connects a client with a producer, mostly to the owner."""
        broker = self.brokers.serving if self.random.random() < 0.8 else self.random.randint(0, 1)
        self.connected += 1
        client = self.clients[self.connected] = Client(broker or 0, self.connected)
        self.command(client, Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=0, producer_name=f"p{client.number}")

    def client(self) -> Client:
        """Returns a connected client, mostly one with a producer that the owner has accepted."""
        while not self.clients:
            self.connect()
        attached = [number for number, _ in self.brokers.topic(TOPIC).producers]
        if attached and self.random.random() < 0.8:
            return self.clients[self.random.choice(attached)]
        return self.random.choice(list(self.clients.values()))

    def subscribe(self) -> None:
        client, number = self.client(), self.subscribed
        kind = self.random.choice((topic.EXCLUSIVE, topic.SHARED, topic.SHARED, topic.FAILOVER))
        fields: dict[str, Any] = {
            "consumer_id": number,
            "initial_position": self.random.randint(0, 1),
            "consumer_name": "c",
        }
        self.command(client, Type.SUBSCRIBE, topic=TOPIC, subscription=f"s{kind}", type=kind, request_id=0, **fields)
        self.subscribed += 1

    def send(self) -> None:
        size = self.random.choice((1, 1, 5))
        client = self.client()
        self.command(client, Type.SEND, batch(size), producer_id=0, sequence_id=self.sequence)
        self.sequence += self.random.choice((0, size, size, size))

    def consumer(self) -> tuple[Client, int]:
        """Returns a client and the number of a consumer, mostly of one that is attached."""
        attached = list(self.brokers.topic(TOPIC).consumers)
        if attached and self.random.random() < 0.8:
            client, number = self.random.choice(attached)
            return self.clients[client], number
        return self.client(), self.random.randrange(self.subscribed + 1)

    def flow(self) -> None:
        client, number = self.consumer()
        self.command(client, Type.FLOW, consumer_id=number, permits=self.random.choice((1, 2, 10)))

    def ids(self, client: Client, number: int, words: tuple[Any, ...]) -> list[dict[str, Any]]:
        """Returns ids of at most two entries that a consumer holds, and sometimes of one entry of the log.

        Each id has one of the ack sets `words`; the empty one stands for the whole entry.
        """
        log = self.brokers.topic(TOPIC).log
        attached = self.brokers.topic(TOPIC).consumers.get((client.number, number))
        held = list(attached[1].pending) if attached else []
        chosen = self.random.sample(held, min(len(held), self.random.randint(0, 2)))
        chosen += [self.random.randrange(len(log))] if log and self.random.random() < 0.3 else []
        return [
            {"ledger": log[n].ledger, "entry": log[n].entry, "ack_words": self.random.choice(words)} for n in chosen
        ]

    def acknowledge(self) -> None:
        client, number = self.consumer()
        is_cumulative = self.random.random() < 0.3
        # in a batch of five, 21 (10101) acknowledges messages 1 and 3, and 28 (11100) messages 0 and 1
        ids = self.ids(client, number, ((), (), (21,), (28,)))[: 1 if is_cumulative else None]
        self.command(client, Type.ACK, consumer_id=number, ack_type=int(is_cumulative), message_id=ids)

    def redeliver(self) -> None:
        client, number = self.consumer()
        self.command(client, Type.REDELIVER, consumer_id=number, message_ids=self.ids(client, number, ((),)))

    def close(self) -> None:
        client, number = self.consumer()
        self.command(client, Type.CLOSE_CONSUMER, consumer_id=number, request_id=0)

    def seek(self) -> None:
        client, number = self.consumer()
        for entry in self.random.sample(self.brokers.topic(TOPIC).log, 1) if self.brokers.topic(TOPIC).log else []:
            position = {"ledger": entry.ledger, "entry": entry.entry}
            self.command(client, Type.SEEK, consumer_id=number, request_id=0, message_id=position)

    def forget(self, client: Client) -> None:
        self.brokers.forget(client)
        del self.clients[client.number]

    def drop(self) -> None:
        self.forget(self.client())

    def move(self) -> None:
        self.brokers.begin_transfer()
        for _ in range(self.random.randint(0, 3)):
            self.random.choice((self.send, self.flow, self.acknowledge))()
        self.brokers.finish_transfer(url=self.random.random() < 0.5)

    def crash(self) -> None:
        broker = self.brokers.crash()
        for client in [each for each in self.clients.values() if each.broker == broker]:
            self.forget(client)
        self.brokers.restart()

    def run(self, steps: int = 120) -> dict[str, Any]:
        """Takes random steps. Returns the report, after a round trip through JSON as through a pipe."""
        weights = {"send": 20, "flow": 20, "acknowledge": 12, "redeliver": 8, "subscribe": 8, "connect": 3}
        weights |= {"close": 3, "seek": 3, "drop": 1, "move": 1, "crash": 1}
        for name in self.random.choices(list(weights), list(weights.values()), k=steps):
            getattr(self, name)()
        report: dict[str, Any] = from_json(to_json(self.brokers.report()))
        return report


def first_difference(seeds: range) -> str:
    for seed in seeds:
        for each in differences(Driver(seed).run(), deduplication=bool(seed % 2)):
            return f"seed {seed}: {each}"
    return ""


def test_brokers_decide_as_the_models_do() -> None:
    kinds: Counter[str] = Counter()
    for seed in SEEDS:
        report = Driver(seed).run()
        assert differences(report, deduplication=bool(seed % 2)) == [], seed
        kinds.update(kind for kind, *_ in report["journal"])
    rare = {kind for kind in ("redeliver", "detach", "seek", "crash", "finish_transfer", "ack") if kinds[kind] < 20}
    assert (kinds["deliver"] > 1000, rare) == (True, set())


def test_a_subscription_of_a_type_that_is_not_served_is_refused() -> None:
    client, brokers = Client(0, 1), Ordered(["pulsar://a", "pulsar://b"])
    brokers.handle(client, command_of(Type.SUBSCRIBE, topic=TOPIC, subscription="s", type=3, request_id=7), b"")
    [reply] = client.received
    assert (reply.type, reply.ERROR.request_id, reply.ERROR.error) == (Type.ERROR, 7, ServerError.NOT_ALLOWED)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"ledger": 2**64 - 1, "entry": 2**64 - 1}, 0),  # -1 without a sign
        ({"ledger": 1, "entry": 1}, 2),
        ({"ledger": 1, "entry": 1, "batch_index": -1}, 2),
        ({"ledger": 1, "entry": 1, "batch_index": 0}, 1),
        ({"ledger": 2**63 - 1, "entry": 2**63 - 1}, 3),
    ],
    ids=["earliest", "after an entry", "not in a batch", "inside a batch", "latest"],
)
def test_where_a_reader_starts(start: dict[str, int], first: int) -> None:
    """A reader that starts inside a batch gets the whole entry. Its client drops the messages that it has read."""
    driver, client = Driver(0), Client(0, 1)
    driver.command(client, Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=0)
    for number in range(3):
        driver.command(client, Type.SEND, batch(5), producer_id=0, sequence_id=5 * number)
    reader: dict[str, Any] = {"consumer_id": 0, "durable": False, "start_message_id": start}
    driver.command(client, Type.SUBSCRIBE, topic=TOPIC, subscription="r", type=0, request_id=0, **reader)
    driver.command(client, Type.FLOW, consumer_id=0, permits=100)
    delivered = [each.MESSAGE.message_id.entry for each in client.received if each.type == Type.MESSAGE]
    assert delivered == list(range(first, 3))
    driver.brokers.forget(client)
    assert driver.brokers.topic(TOPIC).subscriptions == {}, "a reader's subscription ends with it"


@pytest.mark.parametrize(("ids", "may_end"), [((0, 1, 2), False), ((0, 1, 0), True), ((1, 0, 1), False)])
def test_a_repeated_receipt_is_out_of_order_if_a_later_send_has_a_smaller_id(
    ids: tuple[int, ...], may_end: bool
) -> None:
    """The third send is deferred, so the brokers repeat the receipt of the second send.

    If this receipt is out of order, the client may end its connection, which has the number 1.
    """
    driver, client = Driver(0), Client(0, 1)
    driver.command(client, Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=0)
    for number in ids[:2]:
        driver.command(client, Type.SEND, batch(1), producer_id=0, sequence_id=number)
    driver.brokers.order(sends="defer")
    driver.command(client, Type.SEND, batch(1), producer_id=0, sequence_id=ids[2])
    driver.brokers.repeat_receipts()
    assert driver.brokers.may_end == ({1} if may_end else set())


def test_a_consumer_is_waited_for_until_it_grants_permits() -> None:
    """SUBSCRIBE is too early: until the client receives SUCCESS, the application can get messages of the last session."""
    driver, client = Driver(0), Client(0, 1)
    driver.command(client, Type.SUBSCRIBE, topic=TOPIC, subscription="s", type=0, consumer_id=0, request_id=0)
    assert not driver.brokers.is_met("consumers", 1)
    driver.command(client, Type.FLOW, consumer_id=0, permits=10)
    assert driver.brokers.is_met("consumers", 1)


def test_an_ack_with_a_request_id_gets_a_receipt() -> None:
    driver, client = Driver(0), Client(0, 1)
    driver.command(client, Type.SUBSCRIBE, topic=TOPIC, subscription="s", type=0, consumer_id=3, request_id=0)
    for about in ({"consumer_id": 3}, {"consumer_id": 4, "request_id": 5}, {"consumer_id": 3, "request_id": 6}):
        driver.command(client, Type.ACK, ack_type=0, message_id=[{"ledger": 9, "entry": 9}], **about)
    receipts = [each.ACK_RESPONSE for each in client.received if each.type == Type.ACK_RESPONSE]
    assert [(each.consumer_id, each.request_id) for each in receipts] == [(3, 6)]


def test_no_order_is_in_force_after_the_end_of_orders() -> None:
    """Three orders end: to hold the answer of a SEEK back, to answer a SUBSCRIBE late, to deliver with an ack set."""
    driver, client = Driver(0), Client(0, 1)

    def subscribe(number: int) -> None:
        about = {"topic": TOPIC, "subscription": f"s{number}", "type": 0, "initial_position": 1}
        driver.command(client, Type.SUBSCRIBE, consumer_id=number, request_id=number, **about)

    def succeeded() -> list[int]:
        return [each.SUCCESS.request_id for each in client.received if each.type == Type.SUCCESS]

    def ack_words_of_delivery_to(number: int) -> list[int]:
        driver.command(client, Type.FLOW, consumer_id=number, permits=10)
        [delivered] = [m.MESSAGE for m in client.received if m.type == Type.MESSAGE and m.MESSAGE.consumer_id == number]
        return list(delivered.ack_words)

    driver.command(client, Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=0)
    subscribe(1)
    driver.brokers.order(SEEK=[Order(Answer.BEFORE_SUBSCRIBE)])
    driver.command(client, Type.SEEK, consumer_id=1, request_id=2, message_id={"ledger": 1, "entry": 0})
    assert succeeded() == [1]
    driver.brokers.end_orders()
    assert succeeded() == [1, 2]
    driver.brokers.order(SUBSCRIBE=[Order(Answer.CLOSE, is_late=True)])
    subscribe(3)
    assert succeeded() == [1, 2]
    driver.brokers.end_orders()
    assert succeeded() == [1, 2, 3]
    subscribe(4)
    subscribe(5)
    driver.brokers.force_ack_set([2])
    driver.command(client, Type.SEND, batch(5), producer_id=0, sequence_id=0)
    assert ack_words_of_delivery_to(4) == [2]
    driver.brokers.end_orders()
    assert ack_words_of_delivery_to(5) == []


def test_an_exception_is_reported_once() -> None:
    server = Server()
    server.cluster = Ordered(["pulsar://a", "pulsar://b"])
    server.failures.append("Traceback")
    assert [server.do_report()["failures"] for _ in range(2)] == [["Traceback"], []]


#: Seeded bugs of topic.py: text, and replacement.
BUGS = {
    "entries-of-a-closed-consumer-are-forgotten": (
        "        for number in consumer.pending:\n            self.add_to",
        "        for number in ():\n            self.add_to",
    ),
    "a-batch-costs-one-permit": ("cost = self.cursor.left(number, len(log[number].payloads))", "cost = 1"),
    "flow-is-counted-twice": ("consumer.permits += permits", "consumer.permits += 2 * permits"),
    "delivers-without-permits": ("if each.permits > 0), None", "if each.permits >= 0), None"),
    "replays-the-newest-first": ("self.replay.pop(0) if", "self.replay.pop() if"),
    "new-entries-come-before-replayed-ones": (
        "number = self.replay.pop(0) if self.replay else self._read()",
        "number = read if (read := self._read()) is not None else self.replay.pop(0) if self.replay else None",
    ),
    "redelivers-only-the-named-entries-of-an-exclusive-consumer": ("if ids and self.sub_type == SHARED", "if ids"),
    "redelivers-all-but-the-named-entries": ("wanted if number in named", "wanted if number not in named"),
    "stops-after-one-delivery": (
        "            self._deliver(consumer, number, log[number])",
        "            return self._deliver(consumer, number, log[number])",
    ),
    "an-acknowledged-entry-is-still-held": ("(cumulative or n in numbers) and not", "cumulative and not"),
    "the-newest-failover-consumer-is-active": ("return self.consumers[0] if", "return self.consumers[-1] if"),
    "a-seek-keeps-the-replay-queue": ("        self.replay.clear()\n", ""),
}


def use_topic(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the brokers use the class `Topic` of this source."""
    seeded = ModuleType(topic.__name__)
    monkeypatch.setitem(sys.modules, topic.__name__, seeded)
    exec(compile(source, "topic", "exec"), seeded.__dict__)
    monkeypatch.setattr(cluster, "Topic", seeded.Topic)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_the_dispatcher_is_a_difference_from_the_models(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_topic(replaced_source(bug, topic.__name__, *BUGS[bug]), monkeypatch)
    assert first_difference(SEEDS)


def test_a_dispatcher_without_a_bug_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: executing the source again makes no difference."""
    use_topic(source_of(topic.__name__), monkeypatch)
    assert first_difference(range(10)) == ""
