"""The real client, Pulsar's C++ client under Python, in a process of its own: `python -m fuzz.client.driver`.

A request is a line of JSON on standard input: an object whose key `do` names a method of `Driver`, and whose other keys
are the method's arguments. For each request the process writes one line of reply: what the method returns. Output of
the client is discarded. The process ends by `os._exit`, because a thread of the client may still be blocked.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, BinaryIO, NamedTuple

import msgspec

from fuzz.platform.json import from_json, to_json

#: Kind of call in `Driver.call` -> the method of a consumer, and whether the method gets the message's id (serialized
#: and deserialized) in place of the message.
METHODS = {
    "acknowledge": ("acknowledge", False),
    "acknowledge_id": ("acknowledge", True),
    "acknowledge_cumulative": ("acknowledge_cumulative", False),
    "acknowledge_cumulative_id": ("acknowledge_cumulative", True),
    "negative_acknowledge": ("negative_acknowledge", False),
}

#: The number of a message, perhaps with leading zeros, in the longest form that `int` accepts.
Payload = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,4300}$")]
#: Payload, ledger, entry, batch index and redelivery count of a received message.
Received = tuple[Payload, int, int, int, int]
#: A call: kind, the monotonic times before and after it, ledger, entry, batch index, and the error or an empty string.
Made = tuple[str, float, float, int, int, int, str]


class Driver:
    """A client, its producer and its consumers. Consumers are numbered from 0 in the order of their creation."""

    def __init__(self) -> None:
        self.pulsar: Any = None
        self.client: Any = None
        self.producer: Any = None
        self.consumers: list[Any] = []
        self.received: list[list[Any]] = []  # the messages that each consumer has received
        self.late = 0.0  # `lateness` returns this value
        self._done = threading.Condition()  # is notified at each callback
        #: payload, result and message id of each callback, in order
        self._results: list[tuple[str, str, str]] = []

    def hello(self) -> str:
        """Loads the client, which may take a second. Returns its name and version."""
        self.pulsar = importlib.import_module("pulsar")
        return f"pulsar-client {importlib.metadata.version('pulsar-client')}"

    def open(self, url: str, operation_timeout_seconds: int = 30) -> None:
        """Creates a client."""
        logger = self.pulsar.FileLogger(self.pulsar.LoggerLevel.Error, os.devnull)
        self.client = self.pulsar.Client(url, operation_timeout_seconds=operation_timeout_seconds, logger=logger)

    def create_producer(self, topic: str, **options: Any) -> str:
        """Creates the producer with `options` of the client. Returns an empty string, or the error."""
        try:
            self.producer = self.client.create_producer(topic, **options)
        except self.pulsar.PulsarException as problem:
            return f"failed: {type(problem).__name__}"
        return ""

    def send(self, first: int, count: int, size: int = 0) -> list[tuple[int, str]]:
        """Sends `count` messages whose payloads are their numbers, from `first` on, padded with zeros to `size` bytes.

        Returns the number and error of each message that the client does not accept.
        """
        not_accepted = []
        for number in range(first, first + count):
            payload = str(number)
            try:
                self.producer.send_async(payload.zfill(size).encode(), self._callback(payload))
            except self.pulsar.PulsarException as problem:
                not_accepted.append((number, type(problem).__name__))
        return not_accepted

    def _callback(self, payload: str) -> Any:
        return lambda result, message_id: self.completed(payload, result.name, str(message_id))

    def completed(self, payload: str, result: str, message_id: str) -> None:
        """Records the callback of a message."""
        with self._done:
            self._results.append((payload, result, message_id))
            self._done.notify_all()

    def results(self, count: int, seconds: float) -> list[tuple[Payload, str, str]]:
        """Waits for `seconds` at most until there are `count` callbacks. Returns all callbacks so far, in order."""
        with self._done:
            self._done.wait_for(lambda: len(self._results) >= count, seconds)
            return list(self._results)

    def subscribe(
        self,
        topic: str,
        subscription: str,
        kind: int = 0,
        earliest: bool = True,
        listener: bool = False,
        dead_letter: int = 0,
        **options: Any,
    ) -> str:
        """Subscribes. Returns an empty string, or the error.

        kind           0 Exclusive, 1 Shared, 2 Failover, 3 Key_Shared
        earliest       whether a new subscription starts at the first message; otherwise it starts after the last
        listener       whether messages go to a message listener, which nacks each message at its first delivery.
                       `receive` then returns the messages that the listener got
        dead_letter    `maxRedeliverCount` of the dead-letter policy; 0: no such policy
        options        further arguments of `pulsar.Client.subscribe`
        """
        heard: queue.Queue[Any] = queue.Queue()
        if listener:
            options["message_listener"] = lambda source, message: _hear(heard, source, message)
        if dead_letter:
            options["dead_letter_policy"] = self.pulsar.ConsumerDeadLetterPolicy(dead_letter)
        kinds, positions = self.pulsar.ConsumerType, self.pulsar.InitialPosition
        consumer_type = (kinds.Exclusive, kinds.Shared, kinds.Failover, kinds.KeyShared)[kind]
        position = positions.Earliest if earliest else positions.Latest
        try:
            consumer = self.client.subscribe(topic, subscription, consumer_type, initial_position=position, **options)
        except self.pulsar.PulsarException as problem:
            return f"failed: {type(problem).__name__}"
        if listener:
            consumer = _Source(lambda ms: heard.get(timeout=ms / 1000), consumer.acknowledge, consumer.close)
        self.consumers.append(consumer)
        self.received.append([])
        return ""

    def read(self, topic: str) -> str:
        """Creates a reader that starts at the first message. Returns an empty string, or the error.

        The reader counts as a consumer. Acknowledging its messages does nothing.
        """
        try:
            reader = self.client.create_reader(topic, self.pulsar.MessageId.earliest)
        except self.pulsar.PulsarException as problem:
            return f"failed: {type(problem).__name__}"
        self.consumers.append(_Source(reader.read_next, lambda message: None, reader.close))
        self.received.append([])
        return ""

    def seek(self, index: int, consumer: int = 0) -> str:
        """Seeks to a received message, by its index. Returns an empty string, or the error."""
        try:
            self.consumers[consumer].seek(self.received[consumer][index].message_id())
        except self.pulsar.PulsarException as problem:
            return f"failed: {type(problem).__name__}"
        return ""

    def receive(self, count: int, seconds: float, consumer: int = 0) -> list[Received]:
        """Receives up to `count` messages, each within `seconds`."""
        found: list[Received] = []
        for _ in range(count):
            try:
                message = self.consumers[consumer].receive(max(1, int(seconds * 1000)))
            except (self.pulsar.Timeout, queue.Empty):
                break
            self.received[consumer].append(message)
            id_ = message.message_id()
            payload, redelivered = message.data().decode("latin1").strip(), message.redelivery_count()
            found.append((payload, id_.ledger_id(), id_.entry_id(), id_.batch_index(), redelivered))
        return found

    def produce(self, count: int, one_by_one: bool) -> float:
        """Sends `count` messages and waits for their receipts. Returns the seconds that this took.

        With `one_by_one`, waits for each receipt before the next send. Only benchmarks use `produce` and `consume`.
        """
        started, before, payload = time.perf_counter(), len(self._results), b"x" * 16
        if one_by_one:
            for _ in range(count):
                self.producer.send(payload)
            return time.perf_counter() - started
        done = self._callback("x")
        for _ in range(count):
            self.producer.send_async(payload, done)
        self.results(before + count, 60.0)
        return time.perf_counter() - started

    def consume(self, count: int, consumer: int = 0) -> float:
        """Receives and acknowledges `count` messages. Returns the seconds that this took."""
        started, source = time.perf_counter(), self.consumers[consumer]
        for _ in range(count):
            source.acknowledge(source.receive(10_000))
        return time.perf_counter() - started

    def acknowledge(self, index: int, consumer: int = 0, cumulative: bool = False) -> str:
        """Acknowledges a received message, by its index. Returns an empty string, or the error."""
        source = self.consumers[consumer]
        method = source.acknowledge_cumulative if cumulative else source.acknowledge
        try:
            method(self.received[consumer][index])
        except self.pulsar.PulsarException as problem:
            return f"failed: {type(problem).__name__}"
        return ""

    def call(self, kind: str, indexes: list[int], consumer: int = 0, gap: float = 0.0) -> list[Made]:
        """Calls a method of a consumer for each of the received messages `indexes`, one every `gap` seconds.

        `kind` is a key of `METHODS`.
        """
        name, by_id = METHODS[kind]
        method = getattr(self.consumers[consumer], name)
        made: list[Made] = []
        start = time.monotonic()
        for number, index in enumerate(indexes):
            self.late = max(self.late, _sleep_until(start + number * gap))
            message = self.received[consumer][index]
            id_, before, error = message.message_id(), time.monotonic(), ""
            try:
                method(self.pulsar.MessageId.deserialize(id_.serialize()) if by_id else message)
            except self.pulsar.PulsarException as problem:
                error = type(problem).__name__
            after = time.monotonic()
            made.append((kind, before, after, id_.ledger_id(), id_.entry_id(), id_.batch_index(), error))
            self.late = max(self.late, after - before)
        return made

    def pause(self, seconds: float) -> None:
        """Sleeps in short intervals, and measures how late each interval ends (`lateness`)."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            self.late = max(self.late, _sleep_until(min(until, now + 0.005)))

    def lateness(self) -> float:
        """Returns the largest lateness since `forget`, in seconds: the excess of a sleep, or the duration of a call."""
        return self.late

    def redeliver(self, consumer: int = 0) -> None:
        """Asks for the redelivery of all messages that are not acknowledged."""
        self.consumers[consumer].redeliver_unacknowledged_messages()

    def close_consumer(self, consumer: int = 0) -> Made:
        """Closes a consumer. Returns the call with ledger 0, entry 0 and batch index -1."""
        before = time.monotonic()
        self.consumers[consumer].close()
        return "close", before, time.monotonic(), 0, 0, -1, ""

    def close(self) -> str:
        """Closes the client, then forgets it (`forget`). Returns an empty string, or the error."""
        try:
            self.client.close()
        except self.pulsar.PulsarException as problem:
            return f"failed: {type(problem).__name__}"
        finally:
            self.forget()
        return ""

    def forget(self) -> None:
        """Forgets client, producer and consumers, for the next schedule."""
        self.client = self.producer = None
        self.consumers, self.received, self._results = [], [], []
        self.late = 0.0


class _Source(NamedTuple):
    """Stands for a reader, or for a consumer with a listener, in `Driver.consumers`."""

    receive: Callable[[int], Any]
    acknowledge: Callable[[Any], None]
    close: Callable[[], None]


def _hear(heard: queue.Queue[Any], source: Any, message: Any) -> None:
    """Is called by the client for each message: puts it into `heard`, and nacks it at its first delivery."""
    if message.redelivery_count() == 0:
        source.negative_acknowledge(message)
    heard.put(message)


def _sleep_until(moment: float) -> float:
    """Sleeps until a monotonic time. Returns how many seconds late the process wakes up; 0 if it need not sleep."""
    left = moment - time.monotonic()
    if left <= 0:
        return 0.0
    time.sleep(left)
    return time.monotonic() - moment


def serve(driver: object, lines: BinaryIO, replies: BinaryIO) -> None:
    """Answers requests by methods of `driver` until the input ends. If one raises, the reply has `driver_failed`."""
    for line in lines:
        request = from_json(line)
        try:
            reply = getattr(driver, request.pop("do"))(**request)
        except Exception as problem:
            reply = {"driver_failed": f"{type(problem).__name__}: {problem}"}
        replies.write(to_json(reply) + b"\n")
        replies.flush()


def main(driver: object) -> None:
    """Serves requests on standard input and output, discards other output, and ends the process."""
    replies = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        serve(driver, sys.stdin.buffer, replies)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(Driver())
