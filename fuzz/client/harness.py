"""The two processes of a run: the brokers, and the driver, which runs the client. Requests have a time limit.

A driver is a program that answers lines of JSON with lines of JSON. `driver.py` describes the requests; any other
program that answers them can take its place.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from fuzz.client.driver import Driver
from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.run.finding import Kind, Misbehaved
from fuzz.run.link import Limits, Link, misbehaved, printable

_ROOT = Path(__file__).parents[2]
#: The commands of the processes.
BROKER = (sys.executable, "-m", "fuzz.client.broker")
DRIVER = (sys.executable, "-m", "fuzz.client.driver")
RUST_DRIVER = (sys.executable, "-m", "fuzz.client.rust_driver")
#: Seconds that a request to the brokers may take beyond its argument `seconds`, and that a process may take to start.
#: The limit is long, so that a busy machine does not exceed it.
_GRACE_SECONDS = 60.0

#: Request -> type of the driver's reply.
_REPLIES = {
    name: get_type_hints(method, include_extras=True)["return"]
    for name, method in vars(Driver).items()
    if inspect.isfunction(method) and not name.startswith("_")
}


def is_installed() -> bool:
    """Returns whether the package of the C++ client is installed."""
    return importlib.util.find_spec("pulsar") is not None


class ClientDied(Exception):
    """The client's process ended or violated the protocol. `by` says which and how, `during` names the request."""

    def __init__(self, by: str, during: str) -> None:
        super().__init__(f"the client's process {by} during `{during}`")
        self.by = by


class ClientHangs(Exception):
    """A call of the client did not return in time."""


class HarnessFailed(RuntimeError):
    """The brokers failed or differ from the models, or the driver failed."""


class DriverFailed(HarnessFailed):
    """The driver did not answer hello, cannot execute a request, or its client sent what the brokers do not answer."""


def _start(command: Sequence[str]) -> Link:
    """Starts a process that can import this project. Raises BadValue if the command cannot be started."""
    paths = os.pathsep.join(each for each in (str(_ROOT), os.environ.get("PYTHONPATH")) if each)
    return Link(command, Limits(_GRACE_SECONDS), {**os.environ, "PYTHONPATH": paths})


def _ask(process: Link, limit: float, do: str, /, **arguments: Any) -> bytes:
    """Sends a request. Returns the line of the reply, which has `limit` seconds. Raises Misbehaved."""
    process.limits = Limits(limit)
    process.send(to_json({"do": do, **arguments}) + b"\n")
    return process.receive()


class Harness:
    """The brokers' process and the driver's process. Both run many schedules.

    If the client crashes or hangs, the next request starts another driver.
    """

    def __init__(self, broker: Sequence[str] = BROKER, driver: Sequence[str] = DRIVER) -> None:
        """Starts the brokers. Raises HarnessFailed."""
        self._driver_command = driver
        self._broker = _start(broker)
        try:
            self.urls: list[str] = from_json(self._broker.receive())
        except Misbehaved as problem:
            self._broker.close()
            raise HarnessFailed(f"brokers, start: {problem}") from None
        self._driver: Link | None = None
        self.version = ""  # name and version of the client; empty until the first request to the client

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends both processes."""
        self.stop_client()
        self._broker.close()

    @property
    def client_process(self) -> int | None:
        """The id of the client's process; None if it does not run."""
        return None if self._driver is None else self._driver.pid

    def stop_client(self) -> None:
        """Ends the client's process; the next request starts another one."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def broker(self, do: str, **arguments: Any) -> Any:
        """Sends a request to the brokers. Returns the reply.

        Raises HarnessFailed if the brokers have ended or do not reply in time, or if the reply says that they failed,
        and DriverFailed if it says that the client sent a command that they do not answer.
        """
        try:
            seconds = _GRACE_SECONDS + float(arguments.get("seconds", 0.0))
            reply = from_json(_ask(self._broker, seconds, do, **arguments))
        except Misbehaved as problem:
            raise HarnessFailed(f"brokers, {do}: {problem}") from None
        if isinstance(reply, dict) and (reply.get("broker_failed") or reply.get("failures")):
            raise HarnessFailed(f"{do}: {reply.get('broker_failed') or reply['failures'][0]}")
        if isinstance(reply, dict) and reply.get("not_answered"):
            raise DriverFailed(reply["not_answered"][0])
        return reply

    def client(self, do: str, *, limit: float = 5.0, **arguments: Any) -> Any:
        """Sends a request to the client. Returns the reply.

        The client has `limit` seconds beyond the argument `seconds` of the request. Raises ClientDied, ClientHangs or
        DriverFailed, and BadValue if the driver's command cannot be started.
        """
        if self._driver is None:
            self._start_driver()
        seconds = limit + float(arguments.get("seconds", 0.0))
        try:
            return self._reply(seconds, do, **arguments)
        except Misbehaved as problem:
            self.stop_client()
            cause = problem.difference.cause
            if cause.kind is Kind.HANG:
                raise ClientHangs(f"`{do}` did not return within {seconds:g} s") from None
            by = cause.what if cause.kind is Kind.CRASH else f"violated the driver protocol ({problem})"
            raise ClientDied(by, do) from None

    def _start_driver(self) -> None:
        """Starts the client's process. Raises BadValue if the command cannot be started, and DriverFailed."""
        self._driver = _start(self._driver_command)
        try:
            self.version = self._reply(_GRACE_SECONDS, "hello")
        except Misbehaved as problem:
            self.stop_client()
            raise DriverFailed(f"the driver did not answer hello: {problem}") from None

    def _reply(self, limit: float, do: str, /, **arguments: Any) -> Any:
        """Sends a request to the driver. Returns the reply.

        Raises DriverFailed for `driver_failed`, and Misbehaved if the process ends, hangs, or sends no such reply.
        """
        assert self._driver is not None, "the caller has started it"
        line = _ask(self._driver, limit, do, **arguments)
        try:
            reply = from_json(line)
            if isinstance(reply, dict) and "driver_failed" in reply:
                raise DriverFailed(f"the driver failed at {do}: {reply['driver_failed']}")
            msgspec.convert(reply, _REPLIES[do])
        except (NotJSON, msgspec.ValidationError) as problem:
            raise misbehaved(Kind.PROTOCOL, do, f"the reply is {printable(line, 80)}: {problem}") from None
        return reply
