"""Transfer of a bundle between brokers.

Implements the `reference` rules and all settings of `model/bundle_transfer`.

    ledger     an object. It is sealed when its writer closes it or is gone, or when a broker recovers it; then it
               accepts no writes
    session    an object, to which the adds in flight of the session refer. An add gets a receipt only if the session is
               still open
    topic      stores the highest sequence id of each producer, so deduplication of a send is O(1)

A step is O(1), or O(number of clients, topics, topic objects, unconfirmed entries or messages that it concerns).
"""

from __future__ import annotations

from collections import deque

from model.bundle_transfer.state import (
    Add,
    Broker,
    Client,
    Command,
    Config,
    Entry,
    Record,
    State,
    Topic,
    TopicObject,
)
from model.machine import Failed, Refused

_DOWN = Refused("not_ready", "the broker is down")
_NO_CLIENT = Refused("illegal_argument", "the topic has no such client")
_OTHER_PHASE = Refused("not_enabled", "the client is not in this phase")
_NO_OBJECT = Refused("not_enabled", "the broker has no topic object in this phase")
_NO_DUTY = Refused("not_enabled", "the broker has nothing to append")
_NO_ADD = Refused("not_enabled", "no add is in flight")
_UNREGISTERED = "the broker has lost its registration"


class _Session:
    """The session of a client at a broker."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = True


class _Ledger:
    """A ledger. The unconfirmed entries are in `adds` of the writer's topic object, or in `left` if it is gone."""

    __slots__ = ("left", "sealed")

    def __init__(self) -> None:
        self.sealed = False
        self.left: list[Entry] = []


class _Object:
    """A topic object. `ledger` is None while it loads. `phase`, `cursor` and `older` are as in `TopicObject`."""

    __slots__ = ("adds", "cursor", "ledger", "older", "phase", "pushed")

    def __init__(self, older: int) -> None:
        self.phase = "loading"
        self.ledger: _Ledger | None = None
        self.adds: deque[tuple[Entry, _Session]] = deque()
        self.pushed: dict[int, int] = {}  # by producer: the highest sequence id received (`highestSequencedPushed`)
        self.cursor = 0
        self.older = older

    @property
    def writable(self) -> bool:
        return self.ledger is not None and not self.ledger.sealed

    def shut(self, phase: str) -> None:
        """Seals the ledger, drops the adds in flight, and enters a phase."""
        if self.ledger is not None:
            self.ledger.sealed = True
        self.phase = phase
        self.adds.clear()
        self.pushed.clear()


class _Client:
    """A handler and its connection. The attributes but `producer` and `session` are those of the model's `Client`."""

    __slots__ = ("begun", "done", "down", "paused", "peer", "phase", "producer", "session", "up")

    def __init__(self, producer: bool) -> None:
        self.producer = producer
        self.phase = "ready"
        self.peer: int | None = 0
        self.paused = False
        self.begun = 0
        self.done = 0
        self.up: deque[int] = deque()
        self.down: deque[Command] = deque()
        self.session = _Session()

    def leave(self, phase: str, peer: int | None = None) -> None:
        """Ends the connection, and enters a phase. `peer`: the next broker, if its address is known."""
        self.session.open = False
        self.phase, self.peer, self.paused = phase, peer, False
        self.up.clear()
        self.down.clear()

    def close(self, address: int | None) -> None:
        """Ends the session: the broker sends a close command."""
        self.session.open = False
        self.down.append(Command("close", address))


class _Topic:
    """A topic: its log, the last ledger, the persisted cursor, the topic objects and the clients.

    `stored` has the highest sequence id of each producer in the log (`highestSequencedPersisted`).
    """

    __slots__ = ("clients", "cursor", "last", "log", "objects", "stored")

    def __init__(self, brokers: int, producers: int, consumers: int) -> None:
        self.log: list[Entry] = []
        self.stored: dict[int, int] = {}
        self.last = _Ledger()
        self.cursor = 0
        self.objects: list[_Object | None] = [None] * brokers
        self.clients = [_Client(i < producers) for i in range(producers + consumers)]

    def append(self, entry: Entry) -> None:
        self.log.append(entry)
        self.stored[entry.producer] = max(self.stored.get(entry.producer, -1), entry.sequence)

    def abandon(self, o: _Object) -> None:
        """Seals the ledger of a topic object that is removed with its ledger open: unconfirmed entries stay stored."""
        if o.ledger is not None and not o.ledger.sealed:
            o.ledger.left = [entry for entry, _ in o.adds]
            o.ledger.sealed = True

    def keep_cursor(self, o: _Object) -> None:
        """Persists the cursor of a topic object whose ledger is writable."""
        if o.writable:
            self.cursor = max(self.cursor, o.cursor)

    def disconnect(self, broker: int, address: int | None) -> None:
        """Closes all sessions of clients at a broker. `address`: the broker in the close command."""
        for c in self.clients:
            if c.peer == broker and c.session.open:
                c.close(address)


class _Broker:
    """A broker. `view` is the index of the last record that it applied.

    `duty` says which record it has to append: "own" (Owned), "release" (Assigning), or "" (none).
    """

    __slots__ = ("alive", "duty", "registered", "view")

    def __init__(self) -> None:
        self.alive = self.registered = True
        self.view = 0
        self.duty = ""


class BundleTransfer:
    """The bundle, its brokers and clients. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        self._records = [Record("owned", 0, None, False)]
        self._brokers = [_Broker() for _ in range(cfg.brokers)]
        self._topics = [_Topic(cfg.brokers, cfg.producers, cfg.consumers) for _ in range(cfg.topics)]
        for t in self._topics:
            o = _Object(0)
            o.phase, o.ledger = "open", t.last
            t.objects[0] = o

    # ---- channel ---------------------------------------------------------------------------------------

    @property
    def _end(self) -> int:
        """Returns the index of the newest record."""
        return len(self._records) - 1

    def _seen(self, broker: int) -> Record:
        """Returns the last record that a broker applied."""
        return self._records[self._brokers[broker].view]

    def transfer(self, dst: int) -> Refused | None:
        """Appends Releasing."""
        r = self._records[-1]
        if r.state != "owned" or dst == r.dst:
            return Refused("illegal_state", "the bundle is in transfer or owned by the destination")
        if not (self._brokers[dst].registered and self._brokers[r.dst].registered):
            return Refused("illegal_state", "the destination or the owner is not registered")
        self._records.append(Record("releasing", dst, r.dst, False))
        return None

    def deliver(self, broker: int) -> Refused | str:
        """Applies the next record."""
        b = self._brokers[broker]
        if not b.alive:
            return _DOWN
        if b.view == self._end:
            return Refused("not_enabled", "the broker has applied every record")
        return self._apply(broker, b.view + 1)

    def jump(self, broker: int) -> Refused | str:
        """Applies the newest record, and misses the others."""
        b = self._brokers[broker]
        if not b.alive:
            return _DOWN
        if self._end - b.view < 2:
            return Refused("not_enabled", "the broker has no record to miss")
        return self._apply(broker, self._end)

    def _apply(self, broker: int, view: int) -> str:
        """Applies a record, sets the broker's duty, and returns the record's state.

        On Releasing, the source fences its open topics (phase "closing"), and forgets those that it is loading.
        """
        b = self._brokers[broker]
        b.view, b.duty = view, ""
        r = self._seen(broker)
        if r.state == "assigning" and r.dst == broker:
            b.duty = "own"
        elif r.state == "releasing" and r.source == broker:
            b.duty = "release"
            for t in self._topics:
                o = t.objects[broker]
                if o is not None and o.phase == "open":
                    o.phase = "closing"
                elif o is not None and o.phase == "loading":
                    t.objects[broker] = None
        return r.state

    def publish(self, broker: int) -> Refused | bool:
        """Appends the record of the broker's duty. O(topics).

        Returns False if the broker has not applied every record: readers would skip its record, so none is appended.
        """
        b = self._brokers[broker]
        if not b.duty:
            return _NO_DUTY
        if b.duty == "release":
            for t in self._topics:
                o = t.objects[broker]
                if o is not None and o.phase == "closing":
                    return Refused("not_enabled", "a ledger is open")
        b.duty = ""
        if b.view != self._end:
            return False
        r = self._records[-1]
        self._records.append(r._replace(state="assigning" if r.state == "releasing" else "owned"))
        return True

    def fail_publish(self, broker: int) -> Refused | None:
        """Drops the broker's duty without appending its record."""
        if not self._brokers[broker].duty:
            return _NO_DUTY
        self._brokers[broker].duty = ""
        return None

    def close_timeout(self, broker: int) -> Refused | bool:
        """Changes nothing: the source keeps waiting for the ledgers."""
        if self._brokers[broker].duty != "release":
            return Refused("not_enabled", "the broker closes no ledgers")
        return False

    def _force(self, owner: int) -> None:
        """Appends a forced Owned record."""
        r = self._records[-1]
        source = r.dst if r.state == "owned" else r.source
        self._records.append(Record("owned", owner, source if source != owner else None, True))

    def override(self, owner: int) -> Refused | None:
        """Reassigns the bundle if its owner, or the source or destination of its transfer, is not registered."""
        r = self._records[-1]
        is_orphan = not self._brokers[r.dst].registered
        if r.state != "owned" and r.source is not None:
            is_orphan = is_orphan or not self._brokers[r.source].registered
        if not is_orphan:
            return Refused("not_enabled", "the brokers of the record are registered")
        if not self._brokers[owner].registered:
            return Refused("illegal_argument", "the new owner is not registered")
        self._force(owner)
        return None

    def override_stuck(self, owner: int) -> Refused | None:
        """Reassigns a bundle whose transfer takes too long."""
        r = self._records[-1]
        if r.state == "owned" or r.source is None:
            return Refused("not_enabled", "no transfer is in flight")
        if not all(self._brokers[b].registered for b in {owner, r.dst, r.source}):
            return Refused("illegal_argument", "a broker is not registered")
        self._force(owner)
        return None

    def crash(self, broker: int) -> Refused | None:
        """Stops a broker. O(topics)."""
        b = self._brokers[broker]
        if not b.alive:
            return _DOWN
        b.alive = b.registered = False
        b.view, b.duty = 0, ""
        for t in self._topics:
            o = t.objects[broker]
            if o is not None:
                t.abandon(o)
                t.objects[broker] = None
            for c in t.clients:
                if c.peer == broker and c.phase != "directed":  # a directed client is not connected yet
                    c.leave("lookup")
        return None

    def restart(self, broker: int) -> Refused | None:
        """Starts a broker."""
        b = self._brokers[broker]
        if b.alive:
            return Refused("illegal_state", "the broker is running")
        b.alive = b.registered = True
        self._apply(broker, self._end)
        return None

    def lose_session(self, broker: int) -> Refused | None:
        """Ends a broker's registration."""
        b = self._brokers[broker]
        if not b.registered:
            return Refused("illegal_state", "the broker is not registered")
        b.registered = False
        return None

    def register(self, broker: int) -> Refused | None:
        """Registers a broker again."""
        b = self._brokers[broker]
        if not b.alive or b.registered:
            return Refused("illegal_state", "the broker is down or registered")
        b.registered = True
        if b.view != self._end:
            self._apply(broker, self._end)
        return None

    # ---- topic objects ---------------------------------------------------------------------------------

    def _owns(self, broker: int) -> bool:
        """Whether a broker is registered, and is the owner in its own view."""
        r = self._seen(broker)
        return self._brokers[broker].registered and r.state == "owned" and r.dst == broker

    def begin_load(self, topic: int, broker: int) -> Refused | None:
        """Begins to load a topic for a client that waits. O(clients)."""
        t = self._topics[topic]
        o = t.objects[broker]
        waiting = any(c.phase == "waiting" and c.peer == broker and not c.down for c in t.clients)
        if not waiting or not self._owns(broker):
            return Refused("not_enabled", "no client waits for the topic here, or the broker does not own it")
        if o is not None and (o.phase != "disconnected" or o.older):
            return Refused("not_enabled", "the topic is in the cache")
        t.objects[broker] = _Object(0 if o is None else 1)
        return None

    def open_topic(self, topic: int, broker: int, kept: int) -> Refused | Failed | int:
        """Seals the last ledger, keeps the first `kept` of its unconfirmed entries, and opens a new ledger."""
        t = self._topics[topic]
        o = t.objects[broker]
        if o is None or o.phase != "loading":
            return _NO_OBJECT
        if not self._owns(broker):
            if self._brokers[broker].registered and self._seen(broker).dst == broker:
                return Refused("not_enabled", "the broker does not own the bundle yet")
            t.objects[broker] = None
            return Failed("not_ready", "the broker does not own the bundle any more")
        unconfirmed = t.last.left
        if not t.last.sealed:
            unconfirmed = [entry for other in t.objects if other and other.ledger is t.last for entry, _ in other.adds]
        if kept > len(unconfirmed):
            return Refused("illegal_argument", "the ledger has fewer unconfirmed entries")
        t.last.sealed = True
        for entry in unconfirmed[:kept]:
            t.append(entry)
        t.last = o.ledger = _Ledger()
        o.phase, o.cursor = "open", t.cursor
        return len(t.log)

    def confirm(self, topic: int, broker: int) -> Refused | Failed | int:
        """Confirms the oldest add in flight."""
        t = self._topics[topic]
        o = t.objects[broker]
        if o is None or not o.adds:
            return _NO_ADD
        if not o.writable:
            return self._fail_add(t, broker, o)
        entry, session = o.adds.popleft()
        t.append(entry)
        if session.open:
            t.clients[entry.producer].down.append(Command("receipt", entry.sequence))
        return entry.sequence

    def fail_add(self, topic: int, broker: int) -> Refused | Failed:
        """Fails the oldest add in flight."""
        t = self._topics[topic]
        o = t.objects[broker]
        return _NO_ADD if o is None or not o.adds else self._fail_add(t, broker, o)

    def _fail_add(self, t: _Topic, broker: int, o: _Object) -> Failed:
        """Fails all adds in flight. An open topic is removed, and its clients get a close command without address."""
        if o.phase == "open":
            t.disconnect(broker, None)
            t.abandon(o)
            t.objects[broker] = None
        else:
            o.adds.clear()
        return Failed("write", "the add failed")

    def close_ledger(self, topic: int, broker: int) -> Refused | int:
        """Persists the cursor (`keep_cursor`) and seals the ledger. Returns the number of dropped adds."""
        t = self._topics[topic]
        o = t.objects[broker]
        if o is None or o.phase != "closing":
            return _NO_OBJECT
        dropped = len(o.adds)
        t.keep_cursor(o)
        o.shut("closed")
        return dropped

    def fail_close(self, topic: int, broker: int) -> Refused | str:
        """Changes nothing: the close is retried."""
        o = self._topics[topic].objects[broker]
        return _NO_OBJECT if o is None or o.phase != "closing" else "retried"

    def disconnect(self, topic: int, broker: int) -> Refused | int:
        """Sends the owner's address to the clients of a stale topic."""
        t = self._topics[topic]
        o = t.objects[broker]
        if o is None or o.phase == "disconnected":
            return _NO_OBJECT
        r = self._seen(broker)
        if r.state != "owned" or (r.dst == broker and o.phase not in ("closing", "closed")):
            return Refused("not_enabled", "the topic is not stale, or no owner is known yet")
        t.keep_cursor(o)
        t.disconnect(broker, r.dst)
        o.shut("disconnected")
        return r.dst

    def clean_up(self, topic: int, broker: int) -> Refused | bool:
        """If there are older topic objects, forgets them and returns False. Otherwise removes the topic object."""
        t = self._topics[topic]
        o = t.objects[broker]
        if o is None or not (o.older or o.phase == "disconnected"):
            return _NO_OBJECT
        if o.older:
            o.older = 0
            return False
        t.objects[broker] = None
        return True

    # ---- clients ---------------------------------------------------------------------------------------

    def _client(self, topic: int, client: int, phase: str) -> _Client | Refused:
        """Returns a client that must be in this phase, or the refusal."""
        clients = self._topics[topic].clients
        if not 0 <= client < len(clients):
            return _NO_CLIENT
        return clients[client] if clients[client].phase == phase else _OTHER_PHASE

    def _answer(self, broker: int) -> int | None:
        """Returns a registered broker's answer to a lookup; None if the broker parks the lookup."""
        r = self._seen(broker)
        if r.state == "owned":
            return r.dst if self._brokers[r.dst].registered else None
        return r.dst if r.dst != broker else None

    def lookup(self, topic: int, client: int, broker: int) -> Refused | str:
        """Answers or parks a lookup."""
        c = self._client(topic, client, "lookup")
        if isinstance(c, Refused):
            return c
        if not self._brokers[broker].alive:
            return _DOWN
        if not self._brokers[broker].registered:
            return Refused("not_ready", _UNREGISTERED)
        owner = self._answer(broker)
        c.phase, c.peer = ("parked", broker) if owner is None else ("directed", owner)
        return "parked" if owner is None else "answered"

    def answer(self, topic: int, client: int) -> Refused | Failed | int:
        """Answers a parked lookup."""
        c = self._client(topic, client, "parked")
        if isinstance(c, Refused):
            return c
        assert c.peer is not None
        if not self._brokers[c.peer].registered:
            c.leave("lookup")
            return Failed("not_ready", _UNREGISTERED)
        owner = self._answer(c.peer)
        if owner is None:
            return Refused("not_enabled", "the bundle has no registered owner yet")
        c.phase, c.peer = "directed", owner
        return owner

    def connect(self, topic: int, client: int) -> Refused | Failed | None:
        """Connects to the address."""
        c = self._client(topic, client, "directed")
        if isinstance(c, Refused):
            return c
        assert c.peer is not None
        if self._brokers[c.peer].alive:
            c.phase = "waiting"
            return None
        c.leave("lookup")
        return Failed("not_connected", "the broker is down")

    def admit(self, topic: int, client: int) -> Refused | Failed | str:
        """Handles `PRODUCER` or `SUBSCRIBE`."""
        c = self._client(topic, client, "waiting")
        if isinstance(c, Refused):
            return c
        if c.down or c.peer is None:
            return _OTHER_PHASE
        t, broker = self._topics[topic], c.peer
        o, r = t.objects[broker], self._seen(broker)
        if self._owns(broker):
            if o is None or o.phase in ("disconnected", "loading"):
                return Refused("not_enabled", "the topic is not loaded yet")
            if o.phase == "open":
                if not c.producer:
                    c.begun = o.cursor
                c.session = _Session()
                c.down.append(Command("success"))
                return "success"
        elif self._brokers[broker].registered and r.dst == broker and r.state != "owned":
            return Refused("not_enabled", "the bundle has no owner yet")
        c.leave("lookup")
        return Failed("not_ready", "the broker does not serve the topic")

    def send(self, topic: int, client: int) -> Refused | int:
        """Takes a message from the application."""
        if not 0 <= client < self._cfg.producers:
            return _NO_CLIENT
        c = self._topics[topic].clients[client]
        if c.begun - c.done >= self._cfg.window:
            return Refused("not_enabled", "the window of pending messages is full")
        if c.phase == "ready":
            c.up.append(c.begun)
        c.begun += 1
        return c.begun - 1

    def process(self, topic: int, client: int) -> Refused | str:
        """Handles a send or an ack at the broker."""
        t = self._topics[topic]
        if not 0 <= client < len(t.clients):
            return _NO_CLIENT
        c = t.clients[client]
        if not c.up or c.peer is None or not c.session.open:
            return Refused("not_enabled", "no command is in flight, or the broker has closed the session")
        value, o = c.up.popleft(), t.objects[c.peer]
        if o is None or o.phase != "open":
            return "ignored"
        if not c.producer:
            o.cursor = max(o.cursor, value)
            return "acknowledged"
        if self._cfg.deduplication:
            if value <= t.stored.get(client, -1):
                c.down.append(Command("receipt", value))
                return "duplicate"
            if value <= o.pushed.get(client, -1):
                c.close(None)
                return "in_doubt"
        o.pushed[client] = value
        o.adds.append((Entry(client, value), c.session))
        return "added"

    def dispatch(self, topic: int, client: int) -> Refused | int:
        """Sends the consumer an entry."""
        t = self._topics[topic]
        if not self._cfg.producers <= client < len(t.clients):
            return _NO_CLIENT
        c = t.clients[client]
        o = t.objects[c.peer] if c.peer is not None and c.session.open else None
        if o is None or o.phase != "open" or c.begun >= len(t.log):
            return Refused("not_enabled", "the consumer is not attached, or has got every entry")
        c.down.append(Command("message", c.begun))
        c.begun += 1
        return c.begun - 1

    def receive(self, topic: int, client: int) -> Refused | int:
        """Handles a command at the client. Returns how many of the client's commands in flight are dropped."""
        t = self._topics[topic]
        if not 0 <= client < len(t.clients):
            return _NO_CLIENT
        c = t.clients[client]
        if not c.down:
            return _OTHER_PHASE
        kind, value = c.down.popleft()
        dropped = len(c.up)
        if kind == "success":
            c.phase = "ready"
            c.up.extend(range(c.done, c.begun) if c.producer else ())
        elif kind == "close":
            c.leave("lookup" if value is None else "directed", value)
            return dropped
        elif value is not None and kind == "message":
            c.done = max(c.done, value + 1)
            c.up.append(value + 1)
        elif value is not None and value > c.done:  # the receipt of a later message
            c.leave("lookup")
            return dropped
        elif value == c.done:
            c.done += 1
        return 0

    def break_connection(self, topic: int, client: int) -> Refused | None:
        """Breaks a connection."""
        clients = self._topics[topic].clients
        if not 0 <= client < len(clients):
            return _NO_CLIENT
        if clients[client].phase not in ("waiting", "ready"):
            return _OTHER_PHASE
        clients[client].leave("lookup")
        return None

    # ---- for the engines --------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        found = []
        for number, t in enumerate(self._topics):
            if [o for o in t.objects if o and o.writable and o.ledger is not t.last]:
                found.append(f"topic {number}: an older ledger than the last is open")
            if not t.last.sealed and not any(o and o.ledger is t.last for o in t.objects):
                found.append(f"topic {number}: the last ledger is open and has no writer")
            if not t.last.sealed and t.last.left:
                found.append(f"topic {number}: an open ledger has entries of a writer that is gone")
            highest = {p: max(e.sequence for e in t.log if e.producer == p) for p in {e.producer for e in t.log}}
            if highest != t.stored:
                found.append(f"topic {number}: highest sequence ids {t.stored} are not those of the log, {highest}")
            for c in t.clients:
                if c.done > c.begun and c.producer:
                    found.append(f"topic {number}: a producer has more receipts than messages")
                if (c.peer is None) != (c.phase == "lookup"):
                    found.append(f"topic {number}: a client in phase {c.phase} has the peer {c.peer}")
        for number, b in enumerate(self._brokers):
            if b.registered and not b.alive:
                found.append(f"broker {number} is registered and down")
            if b.alive and not 0 <= b.view <= self._end:
                found.append(f"broker {number} has applied record {b.view}, the last one is {self._end}")
        return found

    def view(self) -> State:
        """Returns the model's state. O(size)."""
        # False and 0: `named_source` and `leaked`, which the reference does not use
        brokers = [
            Broker(b.alive, b.registered, b.view, b.duty, False, 0)  # type: ignore[arg-type]
            for b in self._brokers
        ]
        return State(tuple(self._records), tuple(brokers), tuple([_as_model(t) for t in self._topics]))

    @classmethod
    def load(cls, cfg: Config, state: State) -> BundleTransfer:
        """Returns an implementation in the given state."""
        self = cls(cfg)
        self._records = list(state.records)
        for b, broker in zip(state.brokers, self._brokers, strict=True):
            broker.alive, broker.registered, broker.view, broker.duty = b.alive, b.registered, b.view, b.duty
        for t, topic in zip(state.topics, self._topics, strict=True):
            _load_topic(topic, t)
        return self


def _as_model(t: _Topic) -> Topic:
    objects = [
        TopicObject(
            o.phase,  # type: ignore[arg-type]
            o.writable,
            tuple([Add(entry, session.open) for entry, session in o.adds]),
            o.cursor,
            o.older,
        )
        if o
        else None
        for o in t.objects
    ]
    clients = [
        Client(c.phase, c.peer, c.paused, c.begun, c.done, tuple(c.up), tuple(c.down))  # type: ignore[arg-type]
        for c in t.clients
    ]
    return Topic(tuple(t.log), tuple(t.last.left), t.cursor, tuple(objects), tuple(clients))


def _load_topic(topic: _Topic, t: Topic) -> None:
    topic.cursor = t.cursor
    for entry in t.log:
        topic.append(entry)
    topic.last.sealed = True  # unless a topic object has a writable ledger
    for c, client in zip(t.clients, topic.clients, strict=True):
        client.phase, client.peer, client.paused = c.phase, c.peer, c.paused
        client.begun, client.done = c.begun, c.done
        client.up, client.down = deque(c.up), deque(c.down)
        # the session is open if the broker has sent `success`, and no close command
        kinds = {command.kind for command in c.down}
        client.session.open = "close" not in kinds and (c.phase == "ready" or "success" in kinds)
    ended = _Session()
    ended.open = False
    for broker, o in enumerate(t.objects):
        topic.objects[broker] = None
        if o is not None:
            made = topic.objects[broker] = _Object(o.older)
            made.phase, made.cursor = o.phase, o.cursor
            made.ledger = None if o.phase == "loading" else _Ledger()
            for add in o.adds:
                made.adds.append((add.entry, topic.clients[add.entry.producer].session if add.live else ended))
                made.pushed[add.entry.producer] = add.entry.sequence
            if made.ledger is not None:
                made.ledger.sealed = not o.writable
                topic.last = made.ledger if o.writable else topic.last
    topic.last.left = list(t.abandoned)
