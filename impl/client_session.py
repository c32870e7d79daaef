"""A client's session with its broker.

Implements the `reference` rules and all settings of `model/client_session`. Attributes are described in the model's
`Link`, `Producer` and `Consumer`, replies in `Reply`. The subscription keeps the first message that is not
acknowledged, and a set of acknowledged ones after it. The highest sequence id of the log is stored, not searched.

A step costs O(1), or O(number of messages that it moves). Some steps also scan: a delivery skips acknowledged entries,
an ack at the broker and a redelivery scan the replay queue, and a cumulative ack scans the received messages and acks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from model.client_session.state import Config, Consumer, Entry, Handler, Link, Producer, Reply, State
from model.machine import Refused

_NOT_NOW = Refused("not_enabled", "the handler is not in this phase")
_NO_SESSION = Refused("not_enabled", "the broker has no such session of the handler")
_NO_SEND = Refused("not_enabled", "no send is in flight, or the broker ignores it")
_NOT_TAKEN = Refused("illegal_argument", "the application has not received the message")
_NOTHING = Refused("not_enabled", "the broker has no entry to deliver, no permit or no session")


class _Link:
    """A handler's connection."""

    __slots__ = ("created", "down", "phase", "session")

    def __init__(self) -> None:
        self.phase = "lookup"
        self.created = False
        self.session = "none"
        self.down: deque[Reply] = deque()

    def reply(self, reply: Reply, session: str) -> None:
        """Sends the handler a reply. `session` is the session afterwards."""
        self.down.append(reply)
        self.session = session

    def leave(self, phase: str = "lookup") -> None:
        """Ends the connection. The replies in flight are lost."""
        self.phase, self.session = phase, "none"
        self.down.clear()

    def view(self) -> Link:
        return Link(self.phase, self.created, self.session, tuple(self.down))  # type: ignore[arg-type]


class _Acked:
    """The acknowledged messages of the subscription: all below `first`, and some above it."""

    __slots__ = ("above", "first")

    def __init__(self) -> None:
        self.first = 0
        self.above: set[int] = set()

    def __contains__(self, message: int) -> bool:
        return message < self.first or message in self.above

    def add(self, messages: Iterable[int]) -> None:
        self.above.update(m for m in messages if m >= self.first)
        while self.first in self.above:
            self.above.remove(self.first)
            self.first += 1

    def view(self) -> tuple[int, ...]:
        return (*range(self.first), *sorted(self.above))


class ClientSession:
    """Producer and consumer of a client. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        self._flow_threshold = max(1, cfg.receiver_queue_size // 2)
        self._log = [Entry(-1, sequence) for sequence in range(cfg.stored)]
        self._highest = cfg.stored - 1  # highest sequence id in the log
        self._acked = _Acked()
        self._links = {"producer": _Link(), "consumer": _Link()}
        self._producer, self._consumer = self._links["producer"], self._links["consumer"]
        # the producer
        self._published = -1
        self._next = 0
        self._pending: deque[int] = deque()
        self._results: list[bool] = []
        self._up: deque[Entry] = deque()
        # the consumer
        self._permits = 0
        self._read = 0
        self._replay: list[int] = []  # a heap
        self._queue: deque[int] = deque()
        self._available_permits = 0
        self._taken: set[int] = set()
        self._tracked: dict[int, set[int]] = {}  # entry of a partly acknowledged batch -> its acknowledged messages
        self._grouped: set[int] = set()
        self._cumulative = -1

    # ---- handlers --------------------------------------------------------------------------------------

    def connect(self, handler: Handler) -> Refused | str:
        """Sends PRODUCER or SUBSCRIBE."""
        link = self._links[handler]
        if link.phase not in ("lookup", "redirected"):
            return _NOT_NOW
        way = "redirect" if link.phase == "redirected" else "lookup"
        link.phase, link.session = "waiting", "requested"
        if handler == "consumer":
            self._queue.clear()
            self._available_permits = 0
        return way

    def fail_redirect(self, handler: Handler) -> Refused | None:
        """Fails to connect to the URL of a redirect; a lookup is next."""
        link = self._links[handler]
        if link.phase != "redirected":
            return _NOT_NOW
        link.phase = "lookup"
        return None

    def _last(self, handler: Handler) -> int:
        """Returns the value of a success reply: for a producer the last sequence id, or -1 without deduplication."""
        if handler == "consumer":
            return 0
        return self._highest if self._cfg.deduplication else -1

    def accept(self, handler: Handler) -> Refused | int:
        """Answers a request with success."""
        link = self._links[handler]
        if link.session != "requested":
            return _NO_SESSION
        last = self._last(handler)
        link.reply(Reply("success", last), "open")
        return last

    def refuse(self, handler: Handler, retryable: bool) -> Refused | None:
        """Answers a request with an error."""
        link = self._links[handler]
        if link.session != "requested":
            return _NO_SESSION
        link.reply(Reply("refused", int(retryable)), "none")
        return None

    def close(self, handler: Handler, redirect: bool) -> Refused | None:
        """Closes a session, or a request before it is answered (the session is then "closed", see `late_success`)."""
        link = self._links[handler]
        if link.session not in ("requested", "open"):
            return _NO_SESSION
        link.reply(Reply("close", int(redirect)), "closed" if link.session == "requested" else "none")
        return None

    def finish_transfer(self, handler: Handler, redirect: bool) -> Refused | None:
        """Closes a session whose sends are ignored."""
        link = self._links[handler]
        if link.session != "ignoring":
            return _NO_SESSION
        link.reply(Reply("close", int(redirect)), "none")
        return None

    def late_success(self, handler: Handler) -> Refused | None:
        """Answers a request with success after it was closed."""
        link = self._links[handler]
        if link.session != "closed":
            return _NO_SESSION
        link.reply(Reply("success", self._last(handler)), "none")
        return None

    def break_connection(self, handler: Handler) -> Refused | None:
        """Loses a connection."""
        if self._links[handler].phase not in ("waiting", "ready"):
            return _NOT_NOW
        self._leave(handler)
        return None

    def end_of_topic(self) -> Refused | str:
        """Ignores REACHED_END_OF_TOPIC."""
        if self._consumer.phase != "ready" or self._consumer.session != "open":
            return _NO_SESSION
        return "ignored"

    def _leave(self, handler: Handler, phase: str = "lookup") -> str:
        """Ends a handler's connection: commands in flight and the broker's session are lost. Returns "disconnected"."""
        self._links[handler].leave(phase)
        if handler == "producer":
            self._up.clear()
        else:
            self._permits = self._read = 0
            self._replay.clear()
        return "disconnected"

    def handle(self, handler: Handler) -> Refused | str:
        """Handles the next reply."""
        link = self._links[handler]
        if not link.down:
            return Refused("not_enabled", "no command is in flight")
        reply = link.down.popleft()
        match reply.kind:
            case "success":
                self._succeed(handler, reply.value)
                return "ready"
            case "refused":
                self._leave(handler, "lookup" if reply.value else "failed")
                if handler == "producer" and not reply.value:
                    self._fail_pending()
                return "retried" if reply.value else "failed"
            case "close":
                self._leave(handler, "redirected" if reply.value else "lookup")
                return "closed"
            case "receipt":
                return self._receipt(reply.value)
            case "checksum_error":
                return self._checksum_error(reply.value)
            case "message":
                return self._message(reply)
            case "corrupt":
                self._ack_at_broker(reply.messages)
                self._give_back(len(reply.messages))
                return "discarded"
        return self._leave("producer")  # send_error

    def _succeed(self, handler: Handler, last: int) -> None:
        """Makes a handler ready. A consumer sends FLOW; a producer sends all pending messages again."""
        link = self._links[handler]
        if handler == "consumer":
            self._permits = self._cfg.receiver_queue_size if link.session == "open" else 0
        else:
            if not link.created:
                self._published = self._cfg.initial_sequence_id if self._cfg.initial_sequence_id >= 0 else last
                self._next = self._published + 1
            first = len(self._results)
            self._up = deque(Entry(first + i, sequence) for i, sequence in enumerate(self._pending))
        link.phase, link.created = "ready", True

    # ---- the producer ----------------------------------------------------------------------------------

    def send(self) -> Refused | int:
        """Sends a message, or keeps it for the next connection."""
        if not self._producer.created or self._producer.phase == "failed":
            return Refused("illegal_state", "the producer was not created, or has failed")
        if len(self._pending) >= self._cfg.max_pending_messages:
            return Refused("not_enabled", "the queue of pending messages is full")
        sequence = self._next
        self._next += 1
        if self._producer.phase == "ready":
            self._up.append(Entry(len(self._results) + len(self._pending), sequence))
        self._pending.append(sequence)
        return sequence

    def time_out(self) -> Refused | int:
        """Fails all pending messages."""
        count = len(self._pending)
        if not count:
            return Refused("not_enabled", "no message is pending")
        self._fail_pending()
        return count

    def _fail_pending(self) -> None:
        self._results += [False] * len(self._pending)
        self._pending.clear()

    def _receipt(self, sequence: int) -> str:
        if not self._pending or sequence < self._pending[0]:
            return "ignored"
        if sequence > self._pending[0]:
            return self._leave("producer")
        self._pending.popleft()
        self._results.append(True)
        self._published = max(self._published, sequence)
        return "stored"

    def _checksum_error(self, sequence: int) -> str:
        is_oldest = bool(self._pending) and self._pending[0] == sequence
        if is_oldest:
            self._pending.popleft()
            self._results.append(False)
        self._leave("producer")
        return "failed" if is_oldest else "disconnected"

    def store(self) -> Refused | str:
        """Stores the next send."""
        if self._producer.session != "open" or not self._up:
            return _NO_SEND
        entry = self._up.popleft()
        self._producer.down.append(Reply("receipt", entry.sequence))
        if self._cfg.deduplication and entry.sequence <= self._highest:
            return "duplicate"
        self._log.append(entry)
        self._highest = max(self._highest, entry.sequence)
        return "stored"

    def send_error(self, checksum: bool) -> Refused | int:
        """Rejects the next send, and ignores later ones."""
        if self._producer.session != "open" or not self._up:
            return _NO_SEND
        sequence = self._up.popleft().sequence
        self._producer.reply(Reply("checksum_error" if checksum else "send_error", sequence), "ignoring")
        return sequence

    def ignore_sends(self) -> Refused | None:
        """Begins to ignore sends."""
        if self._producer.session != "open":
            return Refused("not_enabled", "the producer has no open session")
        self._producer.session = "ignoring"
        return None

    def stray_reply(self, kind: str, sequence: int) -> Refused | str:
        """Handles a reply that does not name the oldest pending message."""
        if self._producer.phase != "ready" or (self._pending and sequence == self._pending[0]):
            return Refused("not_enabled", "the reply names the oldest pending message, or the producer is not ready")
        return self._receipt(sequence) if kind == "receipt" else self._checksum_error(sequence)

    # ---- delivery --------------------------------------------------------------------------------------

    def _unacked(self, entry: int) -> tuple[int, ...]:
        size = self._cfg.batch_size
        return tuple([m for m in range(entry * size, (entry + 1) * size) if m not in self._acked])

    def _deliver(self, kind: str) -> Refused | int:
        """Sends the next entry, first from the replay queue. Each unacknowledged message costs a permit."""
        if self._consumer.session != "open" or self._permits <= 0:
            return _NOTHING
        if self._replay:
            entry = heappop(self._replay)
        else:
            # skips all entries before the first unacknowledged message at once, later acknowledged ones one by one
            entry = max(self._read, self._acked.first // self._cfg.batch_size)
            while entry < len(self._log) and not self._unacked(entry):
                entry += 1
            if entry >= len(self._log):
                return _NOTHING
            self._read = entry + 1
        messages = self._unacked(entry)
        self._permits -= len(messages)
        self._consumer.down.append(Reply(kind, entry, messages))  # type: ignore[arg-type]
        return entry

    def dispatch(self) -> Refused | int:
        """Delivers the next entry."""
        return self._deliver("message")

    def dispatch_corrupt(self) -> Refused | int:
        """Delivers the next entry with a wrong checksum."""
        return self._deliver("corrupt")

    def _give_back(self, permits: int) -> None:
        """Adds permits to return, and sends FLOW once they reach half of the receiver queue.

        A broker without a session ignores FLOW, and the permits are lost.
        """
        self._available_permits += permits
        if self._consumer.phase == "ready" and self._available_permits >= self._flow_threshold:
            if self._consumer.session == "open":
                self._permits += self._available_permits
            self._available_permits = 0

    def _message(self, reply: Reply) -> str:
        """Queues the messages that no grouped ack covers. Returns "queued", or "dropped" if there are none."""
        fresh = [m for m in reply.messages if m > self._cumulative and m not in self._grouped]
        if fresh:
            if not self._cfg.index_acks:
                size, entry = self._cfg.batch_size, reply.value
                self._tracked.pop(entry, None)
                if len(reply.messages) < size:  # messages that the broker left out are acknowledged already
                    filtered = set(range(entry * size, (entry + 1) * size)).difference(reply.messages)
                    self._tracked[entry] = filtered
            self._queue.extend(fresh)
        self._give_back(len(reply.messages) - len(fresh))
        return "queued" if fresh else "dropped"

    def receive(self) -> Refused | int:
        """Takes the next message."""
        if not self._queue:
            return Refused("not_enabled", "the receiver queue is empty")
        message = self._queue.popleft()
        self._taken.add(message)
        self._give_back(1)
        return message

    # ---- acknowledgements ------------------------------------------------------------------------------

    def acknowledge_elsewhere(self, message: int) -> Refused | None:
        """Another consumer acknowledges a message."""
        size = self._cfg.batch_size
        if self._consumer.session == "open" or message >= len(self._log) * size or message in self._acked:
            why = "the message does not exist or is acknowledged, or this consumer has it"
            return Refused("not_enabled", why)
        self._acked.add((message,))
        return None

    def acknowledge(self, message: int) -> Refused | bool:
        """Groups an individual ack, or keeps it until its batch is complete."""
        if message not in self._taken:
            return _NOT_TAKEN
        self._taken.remove(message)
        if self._cfg.index_acks:
            self._grouped.add(message)
            return True
        size = self._cfg.batch_size
        entry = message // size
        tracked = self._tracked.setdefault(entry, set())
        tracked.add(message)
        if len(tracked) < size:
            return False
        self._grouped |= self._tracked.pop(entry)
        return True

    def acknowledge_cumulative(self, message: int) -> Refused | int:
        """Groups a cumulative ack."""
        if self._cfg.shared:
            return Refused("unsupported", "a shared subscription has no cumulative acks")
        if message not in self._taken:
            return _NOT_TAKEN
        self._taken = {m for m in self._taken if m > message}
        last, size = message, self._cfg.batch_size
        if not self._cfg.index_acks:
            entry = message // size
            tracked = self._tracked.setdefault(entry, set())
            tracked.update(range(entry * size, message + 1))
            # the last message of a complete batch, or else of the batch before
            last = entry * size + (size if len(tracked) == size else 0) - 1
            for each in [e for e in self._tracked if e * size <= last]:
                del self._tracked[each]
        self._grouped = {m for m in self._grouped if m > last}
        self._cumulative = max(self._cumulative, last)
        return last

    def flush(self) -> Refused | None:
        """Sends the grouped acks."""
        if self._consumer.phase != "ready" or not (self._grouped or self._cumulative >= 0):
            return Refused("not_enabled", "no ack is grouped, or the consumer is not ready")
        self._ack_at_broker([*range(self._acked.first, self._cumulative + 1), *self._grouped])
        self._grouped.clear()
        self._cumulative = -1
        return None

    def _ack_at_broker(self, messages: Iterable[int]) -> None:
        """Acknowledges messages at the broker; without a session, the broker ignores the ack."""
        if self._consumer.session == "open":
            self._acked.add(messages)
            if self._replay:
                self._replay = [entry for entry in self._replay if self._unacked(entry)]
                heapify(self._replay)

    def negative_acknowledge(self, message: int) -> Refused | None:
        """Requests the redelivery of an entry or, without a shared subscription, of all unacknowledged messages."""
        if message not in self._taken:
            return _NOT_TAKEN
        self._taken.remove(message)
        if self._consumer.phase != "ready":
            return None
        is_open = self._consumer.session == "open"
        if self._cfg.shared:
            entry = message // self._cfg.batch_size
            # an entry that the session has not read yet is delivered anyway
            if is_open and entry < self._read and entry not in self._replay and self._unacked(entry):
                heappush(self._replay, entry)
            return None
        # no shared subscription: everything unacknowledged is redelivered. What is queued or in flight is dropped, and
        # its permits are returned
        if is_open:
            self._read = 0
        permits = len(self._queue)
        self._queue.clear()
        kept = deque[Reply]()
        for reply in self._consumer.down:
            if reply.kind in ("message", "corrupt"):
                permits += len(reply.messages)
            else:
                kept.append(reply)
        self._consumer.down = kept
        self._give_back(permits)
        return None

    # ---- state -----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        broken = []
        if any(a >= b for a, b in zip(self._pending, [*list(self._pending)[1:], self._next], strict=False)):
            broken.append("the sequence ids of pending messages do not ascend")
        if self._highest != max([entry.sequence for entry in self._log], default=-1):
            broken.append("the highest sequence id is not that of the log")
        if any(not 0 < len(tracked) < self._cfg.batch_size for tracked in self._tracked.values()):
            broken.append("a batch is tracked that is empty or complete")
        if self._consumer.session == "open" and self._consumer.phase == "ready":
            in_flight = sum(len(reply.messages) for reply in self._consumer.down)
            total = self._permits + in_flight + len(self._queue) + self._available_permits
            if total != self._cfg.receiver_queue_size:
                broken.append(f"{total} permits, expected {self._cfg.receiver_queue_size}")
        if self._acked.first + len(self._acked.above) > len(self._log) * self._cfg.batch_size:
            broken.append("more messages are acknowledged than stored")
        return broken

    def view(self) -> State:
        """Returns the model's state."""
        pending, results = tuple(self._pending), tuple(self._results)
        up, published = tuple(self._up), self._published
        # False and -1: `damaged` and `covered`, which the reference does not use
        producer = Producer(self._producer.view(), published, self._next, pending, results, up, False)
        tracked = tuple(sorted(m for each in self._tracked.values() for m in each))
        consumer = Consumer(
            self._consumer.view(),
            self._permits,
            self._read,
            tuple(sorted(self._replay)),
            tuple(self._queue),
            self._available_permits,
            tuple(sorted(self._taken)),
            tracked,
            tuple(sorted(self._grouped)),
            self._cumulative,
            -1,
        )
        return State(tuple(self._log), self._acked.view(), producer, consumer)

    @classmethod
    def load(cls, cfg: Config, state: State) -> ClientSession:
        """Returns an implementation in the given state."""
        self = cls(cfg)
        p, c = state.producer, state.consumer
        self._log = list(state.log)
        self._highest = max([entry.sequence for entry in self._log], default=-1)
        self._acked.add(state.acked)
        for link, each in ((self._producer, p.link), (self._consumer, c.link)):
            link.phase, link.created, link.session, link.down = each.phase, each.created, each.session, deque(each.down)
        self._published, self._next = p.published, p.next_sequence_id
        self._pending, self._results, self._up = deque(p.pending), list(p.results), deque(p.up)
        self._permits, self._read, self._replay = c.permits, c.read, list(c.replay)
        self._queue, self._available_permits, self._taken = deque(c.queue), c.available_permits, set(c.taken)
        for message in c.tracked:
            self._tracked.setdefault(message // cfg.batch_size, set()).add(message)
        self._grouped, self._cumulative = set(c.grouped), c.cumulative
        return self
