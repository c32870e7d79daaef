"""Loopback brokers in a process of their own: `python -m fuzz.client.broker`.

The process listens on 127.0.0.1, on one port for each broker. The first line on standard output has the addresses.
Then the process reads requests from standard input, and writes a reply to each. Requests and replies are lines of JSON.
A request is an object: its key `do` names a method (`Server.answer`), and its other keys are the method's arguments. If
the method raises an exception, the reply has the key `broker_failed`. `cluster.py` explains owner and session.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
import traceback
from typing import Any

from fuzz.client.cluster import NotAnswered
from fuzz.client.orders import Ordered
from fuzz.client.wire import BadFrame, Type, command_of, frame, frames
from fuzz.platform.json import from_json, to_json

#: Number of brokers in the process.
BROKERS = 2
#: Maximum number of connections between two resets. Later ones are ended at once, because a client may reconnect
#: forever.
_MOST_CONNECTIONS = 2_000


class Link(asyncio.Protocol):
    """One TCP connection at a broker: the `Connection` of `topic.py`, with its socket."""

    def __init__(self, server: Server, broker: int) -> None:
        self.server = server
        self.broker = broker
        self.number = 0
        self.cluster: Ordered | None = None  # the cluster that answers; None after `do_drop`, or without a cluster
        self.transport: Any = None
        self.buffer = bytearray()
        self.out: list[bytes] = []  # replies that are not written yet
        self.pinged_at: float | None = None  # the time of a PING of `Server` that is not answered yet

    def connection_made(self, transport: Any) -> None:
        """Registers the connection, and binds it to the cluster of the running schedule."""
        self.transport = transport
        self.cluster = self.server.cluster
        self.server.register(self)

    def data_received(self, data: bytes) -> None:
        """Answers the commands that have arrived in full. All replies are sent in one write.

        Ignores the commands of a connection that `do_reset` or `do_drop` has ended. Bytes that break the protocol,
        commands that the brokers do not answer, and exceptions of this process are noted and end the connection.
        """
        self.buffer += data
        try:
            for command, message in frames(self.buffer):
                if self.cluster is self.server.cluster and self.cluster is not None:
                    self.cluster.handle(self, command, message)
                    if command.type == Type.PONG:
                        self.server.observe_pong(self)
        except BadFrame as problem:
            self.server.complain(f"the client sent {problem}")
            self.server.end(self)
        except NotAnswered as problem:
            self.server.not_answered.append(str(problem))
            self.server.end(self)
        except Exception:
            self.server.failures.append(traceback.format_exc())
            self.server.end(self)
        self.server.flush()

    def connection_lost(self, _: Exception | None) -> None:
        """Ends the sessions of the connection, unless `do_reset` or `do_drop` ended the connection and its sessions."""
        if self.cluster is self.server.cluster and self.cluster is not None:
            self.cluster.forget(self)
        self.server.links.pop(self.number, None)
        self.server.flush()

    def send(self, command: Any, message: bytes = b"") -> None:
        """Adds a command to those that the next `flush` writes."""
        if not self.out:
            self.server.dirty.append(self)
        self.out.append(frame(command, message))

    def flush(self) -> None:
        """Writes the commands that were given to `send`."""
        if self.out and self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self.out))
        self.out.clear()


class Server:
    """The ports, and the cluster of the running schedule."""

    def __init__(self) -> None:
        self.cluster: Ordered | None = None  # None before the first reset
        self.links: dict[int, Link] = {}  # by `Link.number`
        self.dirty: list[Link] = []  # connections with commands to be written
        self.problems: list[str] = []  # how the client broke the protocol
        self.not_answered: list[str] = []  # commands since the last report that the brokers do not answer
        self.failures: list[str] = []  # exceptions in this process since the last report
        #: the largest lateness (`_ping`) of this process and of the client's network thread since the reset, in seconds
        self.lateness = 0.0
        self.listeners: list[Any] = []  # by broker; None: the port is closed
        self.ports: list[int] = []
        self._count = 0  # number of connections since the reset
        #: for each `wait` request in progress: the condition, its parameter, and the reply
        self._waiting: list[tuple[str, Any, asyncio.Future[bool]]] = []
        self._pinging: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Opens the ports."""
        loop = asyncio.get_running_loop()
        for broker in range(BROKERS):
            listener = await loop.create_server(lambda b=broker: Link(self, b), "127.0.0.1", 0)  # type: ignore[misc]
            self.listeners.append(listener)
            self.ports.append(listener.sockets[0].getsockname()[1])

    @property
    def urls(self) -> list[str]:
        """The addresses as `pulsar://` URLs."""
        return [f"pulsar://127.0.0.1:{port}" for port in self.ports]

    def register(self, link: Link) -> None:
        """Numbers a connection. Ends it if there is no cluster, or if it exceeds `_MOST_CONNECTIONS`."""
        self._count += 1
        link.number = self._count
        self.links[self._count] = link
        if self.cluster is None or self._count > _MOST_CONNECTIONS:
            self.end(link)

    def end(self, link: Link) -> None:
        """Ends a connection. The cluster records that a broker ended it, not the client."""
        if self.cluster is not None:
            self.cluster.may_end.add(link.number)
        link.transport.abort()

    def complain(self, problem: str) -> None:
        """Notes that the client broke the protocol."""
        self.problems.append(problem)

    def flush(self) -> None:
        """Writes all replies, and completes the `wait` requests whose condition is met now."""
        dirty, self.dirty = self.dirty, []
        for link in dirty:
            link.flush()
        if self._waiting and self.cluster is not None:
            for what, value, future in self._waiting:
                if not future.done() and self.cluster.is_met(what, value):
                    future.set_result(True)

    # ---- lateness

    async def _ping(self, cluster: Ordered, seconds: float) -> None:
        """Measures `lateness` every `seconds`, until the next reset. Sends a PING on each connection of a consumer.

        The brokers note when a command arrives. On a busy machine, a command that a timer of the client sends arrives
        late: this process wakes up late (the excess of a sleep), or the client does (the time from PING to PONG). A
        connection gets no PING while its last PING is not answered.
        """
        try:
            while cluster is self.cluster:
                due = time.monotonic() + seconds
                await asyncio.sleep(seconds)
                now = time.monotonic()
                self.lateness = max(self.lateness, now - due)
                for connection in cluster.consumer_connections():
                    link = self.links.get(connection.number)
                    if link is not None and link.pinged_at is None:
                        link.pinged_at = now
                        link.send(command_of(Type.PING))
                self.flush()
        except Exception:
            self.failures.append(traceback.format_exc())

    def observe_pong(self, link: Link) -> None:
        """Raises `lateness` to the time since the unanswered PING on a connection, if this time is longer."""
        if link.pinged_at is not None:
            self.lateness = max(self.lateness, time.monotonic() - link.pinged_at)
            link.pinged_at = None

    # ---- requests

    async def answer(self, request: dict[str, Any]) -> Any:
        """Calls this class's method `do_NAME`, or else the cluster's method `NAME`; the key `do` has NAME.

        Returns the method's result.
        """
        name = request.pop("do")
        method = getattr(self, f"do_{name}", None) or getattr(self.cluster, name)
        result = method(**request)
        if inspect.isawaitable(result):
            result = await result
        self.flush()
        return result

    async def do_reset(self, ping_seconds: float = 0.0, **settings: Any) -> list[str]:
        """Ends all connections, opens all ports, and starts a new cluster with these settings. Returns the addresses.

        `settings` are those of `Cluster`. Measures `lateness` every `ping_seconds`; 0: does not measure it.
        """
        self.cluster = None
        if self._pinging is not None:
            self._pinging.cancel()
        for link in list(self.links.values()):
            link.transport.abort()
        for broker, listener in enumerate(self.listeners):
            if listener is None:
                await self.do_open(broker)
        self._count = 0
        self.links.clear()
        self.problems.clear()
        self.cluster = Ordered(self.urls, **settings)
        self.lateness = 0.0
        self._pinging = asyncio.create_task(self._ping(self.cluster, ping_seconds)) if ping_seconds else None
        return self.urls

    async def do_wait(self, what: str, value: Any, seconds: float) -> bool:
        """Waits for a condition of the cluster (`Ordered.is_met`). Returns whether it was met within the seconds."""
        assert self.cluster is not None, "reset comes first"
        if self.cluster.is_met(what, value):
            return True
        waiting = (what, value, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await asyncio.wait_for(waiting[2], seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(waiting)

    def do_drop(self, broker: int | None = None) -> int:
        """Ends the connections to a broker, or to all brokers. Returns the number of connections that it ended.

        Replies that were not written are lost.
        """
        assert self.cluster is not None, "reset comes first"
        gone = [link for link in self.links.values() if broker in (None, link.broker)]
        for link in gone:
            self.cluster.may_end.add(link.number)
            self.cluster.forget(link)  # at once, because `connection_lost` is called later
            link.cluster = None
            self.links.pop(link.number, None)
            link.transport.abort()
        return len(gone)

    def do_crash(self) -> None:
        """Stops the owner, if the other broker runs: the owner's connections end, and its port closes.

        During a transfer, `Ordered.crash` first finishes the transfer. So the destination is the owner that is stopped.
        """
        assert self.cluster is not None, "reset comes first"
        broker = self.cluster.crash()
        if broker is not None:
            self.listeners[broker].close()
            self.listeners[broker] = None
            self.do_drop(broker)

    async def do_restart(self) -> None:
        """Starts the stopped brokers again."""
        assert self.cluster is not None, "reset comes first"
        for broker in self.cluster.restart():
            await self.do_open(broker)

    async def do_open(self, broker: int) -> None:
        """Opens a broker's port, if it is closed."""
        if self.listeners[broker] is None:
            loop = asyncio.get_running_loop()
            port = self.ports[broker]
            self.listeners[broker] = await loop.create_server(lambda: Link(self, broker), "127.0.0.1", port)

    def do_report(self) -> dict[str, Any]:
        """Returns `Ordered.report` with four more keys.

        problems      how the client broke the protocol
        not_answered  commands that the brokers do not answer; each is reported once
        failures      exceptions in this process; each is reported once
        lateness      the largest lateness of this process and of the client's network thread, in seconds (`_ping`)
        """
        assert self.cluster is not None, "reset comes first"
        failures, self.failures = self.failures, []
        not_answered, self.not_answered = self.not_answered, []
        waiting = [time.monotonic() - link.pinged_at for link in self.links.values() if link.pinged_at is not None]
        lateness = max([self.lateness, *waiting])
        return {
            **self.cluster.report(),
            "problems": self.problems,
            "not_answered": not_answered,
            "failures": failures,
            "lateness": lateness,
        }


async def serve() -> None:
    """Serves requests until standard input ends. The reply to a request that raises has the key `broker_failed`."""
    server = Server()
    await server.listen()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    _reply(server.urls)
    while line := await lines.readline():
        try:
            _reply(await server.answer(from_json(line)))
        except Exception as problem:
            _reply({"broker_failed": f"{type(problem).__name__}: {problem}"})


def _reply(data: Any) -> None:
    sys.stdout.buffer.write(to_json(data) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(serve())
