"""How the loopback brokers answer commands about connections, lookups and producers.

The brokers share one log. One broker is the owner of all topics: a model decides which (`fuzz/answers/ownership.py`).
The owner *serves*: it stores sends and takes acks and permits. During a transfer, that is between the two phases of
PIP-307, no broker serves.

A session of a producer or consumer begins when a broker answers PRODUCER or SUBSCRIBE with success. The session ends
with the connection, with CLOSE or UNSUBSCRIBE, or when a new session replaces it. CLOSE stands for CLOSE_PRODUCER and
CLOSE_CONSUMER. If a broker ignores a send, the session is *fenced*: its later sends are ignored, too, because the log
would have a gap before them.

An order of a schedule changes the answers (`orders.py`). Brokers without orders are faithful: they answer as the models
do. There is no I/O here: `broker.py` has the sockets. A method `_kind` answers the command KIND.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

from fuzz.answers.ownership import Ownership
from fuzz.client.answer import Answer, Order
from fuzz.client.topic import Connection, Consumer, Producer, Send, Topic
from fuzz.client.wire import ServerError, Type, command_of, parts_of, payloads_of

_MAX_MESSAGE = 5 << 20
_REDIRECT, _CONNECT, _FAILED = 0, 1, 2  # values of the field `response` in LOOKUP_RESPONSE
#: Answers to a PRODUCER or SUBSCRIBE other than success.
_REFUSALS = (Answer.REFUSE, Answer.FAIL, Answer.SILENT, Answer.ERROR)


class NotAnswered(Exception):
    """These brokers have no answer to a command, such as those for schemas and transactions."""


class Cluster:
    """The brokers, their topics, and a record of what happened."""

    def __init__(
        self,
        urls: list[str],
        *,
        deduplication: bool = False,
        check: bool = True,
        max_message_sizes: tuple[int, ...] = (_MAX_MESSAGE, _MAX_MESSAGE),
    ) -> None:
        """`check`: whether to check the checksums of sends. `max_message_sizes`: the limit in CONNECTED, by broker."""
        self.urls = urls
        self.deduplication = deduplication
        self.checks_checksums = check
        self.max_message_sizes = max_message_sizes
        self.ownership = Ownership(len(urls))
        self.serving: int | None = 0  # the broker that serves; None during a transfer
        self.loaded_at = 0  # the broker that loaded the topics last; a new owner loads them at its first new session
        self.topics: dict[str, Topic] = {}
        #: sessions of producers, each with its topic, by number of the connection and id of the producer
        self.producers: dict[tuple[int, int], tuple[Topic, Producer]] = {}
        # orders about sends, acks, receipts and answers; `orders.py` describes them
        self.sends = self.acks = "store"
        self.holds_receipts = False
        self.answers: dict[str, deque[Order]] = defaultdict(deque)  # by kind of command, the next order first
        self.newest_session = 0  # sessions of producers and consumers are numbered from 1
        self.started = time.monotonic()
        #: events: milliseconds since `started`, connection, kind, and details. Most events are received commands, with
        #: the command's kind. Some kinds of commands are not recorded. A parked command is recorded twice: at its
        #: arrival and at its answer. Other events: ORDER (a command has used an order), REACHED_END_OF_TOPIC (it was
        #: sent), ENDED (a connection in `may_end` has ended), LOST (another connection has ended)
        self.commands: list[tuple[float, int, str, Any]] = []
        #: kind of command -> how many were received; ENDED, LOST -> how many connections ended in this way
        self.counts: Counter[str] = Counter()
        #: the brokers' decisions, which `fuzz/answers/judge.py` compares with the models'
        self.journal: list[tuple[Any, ...]] = []
        #: lookups, PRODUCER and SUBSCRIBE commands that arrived during a transfer; they are answered when it ends
        self.parked: list[tuple[Connection, Any]] = []
        #: replies that are held back until the next command arrives on any connection, oldest first
        self.late_replies: list[tuple[Connection, Any]] = []
        #: replies to SEEK that are sent before or after the success of the next session of any producer or consumer:
        #: answer (BEFORE_SUBSCRIBE or AFTER_SUBSCRIBE), connection, reply
        self.seek_replies: list[tuple[Answer, Connection, Any]] = []
        #: numbers of the connections that may end: because the broker process ends them (`Server.do_drop`,
        #: `Server.end`), or because the client may end them at a reply
        self.may_end: set[int] = set()
        #: numbers of the messages whose sends were answered with SEND_ERROR
        self.refused: list[int] = []
        self._handlers: dict[int, Callable[[Connection, Any, bytes], None]] = {
            kind: getattr(self, f"_{kind.name.lower()}") for kind in Type if hasattr(self, f"_{kind.name.lower()}")
        }

    def handle(self, connection: Connection, command: Any, message: bytes) -> None:
        """Sends the late replies, then answers a command. Raises NotAnswered for a command without an answer here."""
        if command.type not in self._handlers:
            raise NotAnswered(f"the client sent a command of type {command.type}, which these brokers do not answer")
        self._send_late_replies()
        kind = Type(command.type)
        self.counts[kind.name] += 1
        self._handlers[kind](connection, getattr(command, kind.name), message)

    def _send_late_replies(self) -> None:
        late, self.late_replies = self.late_replies, []
        for connection, reply in late:
            connection.send(reply)

    def _note(self, connection: Connection, kind: str, about: Any) -> None:
        """Adds an event to `commands`."""
        self.commands.append(((time.monotonic() - self.started) * 1000, connection.number, kind, about))

    def topic(self, name: str) -> Topic:
        """Returns the topic of that name. Creates it if there is none."""
        if name not in self.topics:
            self.topics[name] = Topic(name, self.journal, deduplication=self.deduplication)
        return self.topics[name]

    def consumer_connections(self) -> list[Connection]:
        """Returns the connections with an attached consumer, in the order of their numbers."""
        found = {
            c.connection.number: c.connection for topic in self.topics.values() for _, c in topic.consumers.values()
        }
        return [found[number] for number in sorted(found)]

    # ---- connections and lookups

    def _connect(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "CONNECT", body.client_version)
        order = self._use_order(connection, "CONNECT")
        if order.answer is Answer.ERROR:
            self.may_end.add(connection.number)
            error = ServerError.SERVICE_NOT_READY
            connection.send(command_of(Type.ERROR, request_id=0, error=error, message="not ready"))
        if order.answer in (Answer.ERROR, Answer.SILENT):
            return
        # 20 is the newest protocol version that these brokers have
        version = order.number if order.answer is Answer.VERSION else min(body.protocol_version, 20)
        reply = command_of(Type.CONNECTED, server_version="loopback", protocol_version=version)
        reply.CONNECTED.max_message_size = self.max_message_sizes[connection.broker]
        connection.send(reply)

    def _ping(self, connection: Connection, _: Any, __: bytes) -> None:
        connection.send(command_of(Type.PONG))

    def _pong(self, connection: Connection, _: Any, __: bytes) -> None:
        """Does nothing: `counts` has the number of answers to pings."""

    def _partitioned_metadata(self, connection: Connection, body: Any, _: bytes) -> None:
        """Answers with success (0): the topic has no partitions."""
        connection.send(
            command_of(Type.PARTITIONED_METADATA_RESPONSE, partitions=0, request_id=body.request_id, response=0)
        )

    def _lookup(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "LOOKUP", body.topic)
        owner = self.ownership.answer(connection.broker)
        self.journal.append(("lookup", connection.broker, owner))
        if owner is None:
            self.parked.append((connection, body))
            return
        answer = self._use_order(connection, "LOOKUP").answer
        if answer is Answer.SILENT:
            return
        reply = command_of(Type.LOOKUP_RESPONSE, request_id=body.request_id, response=_CONNECT, authoritative=True)
        if answer is Answer.REDIRECT:
            reply.LOOKUP_RESPONSE.response = _REDIRECT
            reply.LOOKUP_RESPONSE.url = self.urls[1 - connection.broker]
        elif answer is not Answer.FAITHFUL:  # REFUSE
            self.may_end.add(connection.number)  # by design, the client may end the connection
            reply.LOOKUP_RESPONSE.response = _FAILED
            reply.LOOKUP_RESPONSE.error = ServerError.SERVICE_NOT_READY
        else:
            reply.LOOKUP_RESPONSE.url = self.urls[owner]
        connection.send(reply)

    def _next_order(self, kind: str) -> Order:
        """Returns the order for the next command of a kind, and keeps it. Without an order: `Order()`, faithful."""
        return self.answers[kind][0] if self.answers[kind] else Order()

    def _use_order(self, connection: Connection, kind: str) -> Order:
        """Removes, records and returns the order for the next command of a kind. Without an order: `Order()`."""
        if not self.answers[kind]:
            return Order()
        order = self.answers[kind].popleft()
        self._note(connection, "ORDER", [kind, order])
        return order

    def _admit(self, connection: Connection, kind: str, body: Any) -> bool:
        """Returns whether a broker admits a PRODUCER or SUBSCRIBE: the owner does, if no order refuses the command.

        If the broker admits the command, the topics are loaded there, and the caller answers the command. Otherwise,
        this method has parked the command (during a transfer), ignored it (SILENT), or answered with an error.
        """
        served = self.ownership.admit(connection.broker)
        self.journal.append(("admit", connection.broker, served))
        if served is None:  # a transfer is going on
            self.parked.append((connection, body))
            return False
        order = self._next_order(kind)
        if order.answer in _REFUSALS:  # the caller removes any other order when it answers with success
            self._use_order(connection, kind)
        if order.answer is Answer.SILENT:
            return False
        if served and order.answer not in _REFUSALS:
            if self.loaded_at != connection.broker:
                self._load(connection.broker)
            return True
        # by default, for REFUSE and for a broker that is not the owner: ServiceNotReady
        codes = {Answer.FAIL: int(ServerError.PERSISTENCE_ERROR), Answer.ERROR: order.number}
        error = codes.get(order.answer, int(ServerError.SERVICE_NOT_READY))
        why = "not served here" if order.answer is Answer.FAITHFUL else order.answer
        connection.send(command_of(Type.ERROR, request_id=body.request_id, error=error, message=why))
        return False

    def _fail(self, connection: Connection, body: Any, error: ServerError) -> None:
        """Answers a request with an error."""
        connection.send(command_of(Type.ERROR, request_id=body.request_id, error=error, message=error.name))

    def _load(self, broker: int) -> None:
        """Loads the topics at a broker, each with a new ledger."""
        self.loaded_at = self.serving = broker
        for topic in self.topics.values():
            topic.load()

    # ---- producers

    def _producer(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "PRODUCER", [body.producer_id, body.epoch, body.producer_name])
        if not self._admit(connection, "PRODUCER", body):
            return
        topic, key = self.topic(body.topic), (connection.number, body.producer_id)
        name = body.producer_name or f"loopback-{self.newest_session}"
        if self._next_order("PRODUCER").answer is Answer.RENAME:
            name += "-renamed"
        for other_key, other in list(topic.producers.items()):
            if other.name != name:
                continue
            # a session of this name ends if PRODUCER has a higher epoch, or repeats the session's connection and id
            if other.epoch >= body.epoch and other_key != key:
                self._fail(connection, body, ServerError.PRODUCER_BUSY)
                return
            self.forget_producer(topic, other_key)
        self.newest_session += 1
        producer = Producer(connection, body.producer_id, name, self.newest_session, body.epoch)
        topic.producers[key] = producer
        self.producers[key] = topic, producer
        self.journal.append(("session", topic.name, name, producer.session, connection.broker))
        last = topic.highest_sequence.get(name, -1) if topic.deduplication else -1
        reply = command_of(Type.PRODUCER_SUCCESS, request_id=body.request_id, producer_name=name, producer_ready=True)
        reply.PRODUCER_SUCCESS.last_sequence_id = last
        order = self._use_order(connection, "PRODUCER")
        if order.answer is Answer.CLOSE:
            self.forget_producer(topic, key)
        if order.answer is Answer.QUEUED:
            waits = command_of(Type.PRODUCER_SUCCESS, request_id=body.request_id, producer_name=name)
            waits.PRODUCER_SUCCESS.producer_ready = False
            connection.send(waits)
        self._welcome(order, producer, reply)

    def _welcome(self, order: Order, session: Producer | Consumer, reply: Any) -> None:
        """Sends the success `reply` to a new session. An order can repeat or delay the reply, or send CLOSE before it.

        Also sends the replies to SEEK that an order has delayed until now.
        """
        connection = session.connection
        if order.answer is Answer.TWICE:
            connection.send(reply)
        if order.answer is Answer.CLOSE:
            connection.send(close_command(session, self.urls[connection.broker] if order.has_address else ""))
        seek_replies, self.seek_replies = self.seek_replies, []
        for when, other, seek_reply in seek_replies:
            if when is Answer.BEFORE_SUBSCRIBE:
                other.send(seek_reply)
        if order.is_late:
            self.late_replies.append((connection, reply))
        else:
            connection.send(reply)
        for when, other, seek_reply in seek_replies:
            if when is Answer.AFTER_SUBSCRIBE:
                other.send(seek_reply)

    def forget_producer(self, topic: Topic, key: tuple[int, int]) -> None:
        """Ends the session of a producer."""
        producer = topic.producers.pop(key)
        producer.is_fenced = True
        self.producers.pop(key, None)

    def _send(self, connection: Connection, body: Any, message: bytes) -> None:
        found = self.producers.get((connection.number, body.producer_id))
        parts = parts_of(message, check=self.checks_checksums)
        payloads = payloads_of(parts)
        first, highest = body.sequence_id, max(body.sequence_id, body.highest_sequence_id)
        self._note(connection, "SEND", [body.producer_id, first, payloads[0].decode("latin1")])
        if found is None:  # the producer has no session
            return
        topic, producer = found
        producer.last_payload = payloads[-1]
        producer.arrived.append(first)
        if parts.is_intact:
            self.take(topic, producer, Send(first, highest, payloads, message))
        else:
            self.refuse_send(producer, Send(first, highest, payloads, message))

    def take(self, topic: Topic, producer: Producer, send: Send) -> None:
        """Stores and answers a send. An order can defer the send.

        Ignores the send, and fences the session, if the session is already fenced, if the broker does not serve, or by
        order.
        """
        if producer.is_fenced or self.serving != producer.connection.broker or self.sends == "ignore":
            is_by_order = not producer.is_fenced and self.sends == "ignore"
            outcome = "ignored by order" if is_by_order else "ignored"
            producer.is_fenced = True
            self.journal.append(("send", producer.session, send.highest, outcome))
        elif self.sends == "defer":
            producer.deferred.append(send)
        else:
            self._store(topic, producer, send)

    def _store(self, topic: Topic, producer: Producer, send: Send) -> None:
        receipt, added = topic.store(producer, send)
        outcome = "added" if added else "duplicate"
        last = len(send.payloads) - 1
        #: answer -> the index of the message whose sequence id the receipt has; otherwise the first message
        indexes = {Answer.MIDDLE: len(send.payloads) // 2, Answer.LAST: last}
        receipt.SEND_RECEIPT.sequence_id += indexes.get(self._use_order(producer.connection, "SEND_RECEIPT").answer, 0)
        self.journal.append(("send", producer.session, send.highest, outcome))
        if self.holds_receipts or producer.receipts:  # a receipt does not overtake one that is held back
            producer.receipts.append(receipt)
        else:
            producer.last_receipt = receipt
            producer.connection.send(receipt)
        if added:
            topic.dispatch()

    def refuse_send(self, producer: Producer, send: Send) -> None:
        """Answers a send with ChecksumError."""
        self.refused += [int(payload) for payload in send.payloads]
        reply = command_of(Type.SEND_ERROR, producer_id=producer.id, sequence_id=send.sequence, message="checksum")
        reply.SEND_ERROR.error = ServerError.CHECKSUM_ERROR
        producer.connection.send(reply)

    def _close_producer(self, connection: Connection, body: Any, _: bytes) -> None:
        key = (connection.number, body.producer_id)
        self._note(connection, "CLOSE_PRODUCER", body.producer_id)
        if key in self.producers:
            self.forget_producer(self.producers[key][0], key)
        connection.send(command_of(Type.SUCCESS, request_id=body.request_id))

    def forget(self, connection: Connection) -> None:
        """Records that a connection has ended (ENDED or LOST), and ends its sessions."""
        how = "ENDED" if connection.number in self.may_end else "LOST"
        self.counts[how] += 1
        self._note(connection, how, connection.broker)
        self.parked = [each for each in self.parked if each[0] is not connection]
        for topic in self.topics.values():
            for key in [key for key in topic.producers if key[0] == connection.number]:
                self.forget_producer(topic, key)
            topic.forget_consumers(connection.number)


def close_command(session: Producer | Consumer, url: str = "") -> Any:
    """Returns the CLOSE command for a session. With `url`, it has the address of the broker to connect to."""
    fields: dict[str, Any] = {"request_id": 0}  # the protocol requires a request id, but no client reads it
    if url:
        fields["broker_url"] = url
    if isinstance(session, Producer):
        return command_of(Type.CLOSE_PRODUCER, producer_id=session.id, **fields)
    return command_of(Type.CLOSE_CONSUMER, consumer_id=session.id, **fields)
