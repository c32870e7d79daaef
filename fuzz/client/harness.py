"""The two processes of a run: the brokers, and the driver, which runs the real client. Requests have a time limit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz.platform.json import from_json, to_json

_ROOT = Path(__file__).parents[2]
#: The commands of the processes.
BROKER = (sys.executable, "-m", "fuzz.client.broker")
DRIVER = (sys.executable, "-m", "fuzz.client.driver")
RUST_DRIVER = (sys.executable, "-m", "fuzz.client.rust_driver")
#: Seconds that a request to the brokers may take beyond its argument `seconds`, and that a process may take to start or
#: to end. The limit is long, so that a busy machine does not exceed it.
_GRACE_SECONDS = 60.0


def is_installed() -> bool:
    """Returns whether the package of the C++ client is installed."""
    return importlib.util.find_spec("pulsar") is not None


class ClientDied(Exception):
    """The client's process ended: a crash of the client. `by` is the signal or exit code, `during` the request."""

    def __init__(self, by: str, during: str) -> None:
        super().__init__(f"the client's process ended by {by} during `{during}`")
        self.by = by


class ClientHangs(Exception):
    """A call of the client did not return in time."""


class HarnessFailed(RuntimeError):
    """A defect of this project: the brokers or the driver failed, or the brokers differ from the models."""


class Process:
    """A child process that answers a request, which is a line of JSON, with a line of JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        paths = os.pathsep.join(each for each in (str(_ROOT), os.environ.get("PYTHONPATH")) if each)
        environment = {**os.environ, "PYTHONPATH": paths}
        self._child = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        assert self._child.stdout is not None, "it is a pipe"
        os.set_blocking(self._child.stdout.fileno(), False)
        self._selector.register(self._child.stdout, selectors.EVENT_READ)

    def ask(self, limit: float, do: str, **arguments: Any) -> Any:
        """Sends a request. Returns the reply.

        Raises TimeoutError after `limit` seconds, EOFError if the process ended.
        """
        assert self._child.stdin is not None, "it is a pipe"
        try:
            self._child.stdin.write(to_json({"do": do, **arguments}) + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None
        return self.reply(limit)

    def reply(self, limit: float) -> Any:
        """Waits for the next reply and returns it. Raises as `ask`."""
        assert self._child.stdout is not None, "it is a pipe"
        until = time.monotonic() + limit
        while b"\n" not in self._buffer:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                raise TimeoutError
            data = self._child.stdout.read(1 << 20)
            if data is None:
                continue
            if not data:
                raise EOFError
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return from_json(line)

    def why_ended(self) -> str:
        """Waits for the end of a process that has closed its output. Returns how the process ended, for a message."""
        try:
            code = self._child.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    @property
    def pid(self) -> int:
        """The id of the process in the operating system."""
        return self._child.pid

    def kill(self) -> None:
        """Ends the process."""
        self._child.kill()
        self._child.wait()
        self._selector.close()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Harness:
    """The brokers' process and the driver's process. Both run many schedules.

    If the client crashes or hangs, the next request starts another driver.
    """

    def __init__(self, broker: Sequence[str] = BROKER, driver: Sequence[str] = DRIVER) -> None:
        """Starts the brokers. Raises HarnessFailed."""
        self._driver_command = driver
        self._broker = Process(broker)
        try:
            self.urls: list[str] = self._broker.reply(_GRACE_SECONDS)
        except (TimeoutError, EOFError) as problem:
            self._broker.kill()
            raise HarnessFailed(f"brokers, start: {type(problem).__name__}") from None
        self._driver: Process | None = None
        self.version = ""  # name and version of the client; empty until the first request to the client

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends both processes."""
        self.stop_client()
        self._broker.kill()

    @property
    def client_process(self) -> int | None:
        """The id of the client's process; None if it does not run."""
        return None if self._driver is None else self._driver.pid

    def stop_client(self) -> None:
        """Ends the client's process; the next request starts another one."""
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def broker(self, do: str, **arguments: Any) -> Any:
        """Sends a request to the brokers. Returns the reply.

        Raises HarnessFailed if the brokers have ended or do not reply in time, or if the reply says that they failed.
        """
        try:
            reply = self._broker.ask(_GRACE_SECONDS + float(arguments.get("seconds", 0.0)), do, **arguments)
        except (TimeoutError, EOFError) as problem:
            raise HarnessFailed(f"{do}: {type(problem).__name__}") from None
        if isinstance(reply, dict) and (reply.get("broker_failed") or reply.get("failures")):
            raise HarnessFailed(f"{do}: {reply.get('broker_failed') or reply['failures'][0]}")
        return reply

    def client(self, do: str, *, limit: float = 5.0, **arguments: Any) -> Any:
        """Sends a request to the client. Returns the reply.

        The client has `limit` seconds beyond the argument `seconds` of the request. Raises ClientDied, ClientHangs, or
        HarnessFailed if the driver fails.
        """
        driver = self._driver or self._start_driver()
        seconds = limit + float(arguments.get("seconds", 0.0))
        try:
            reply = driver.ask(seconds, do, **arguments)
        except TimeoutError:
            self.stop_client()
            raise ClientHangs(f"`{do}` did not return within {seconds:g} s") from None
        except EOFError:
            why = driver.why_ended()
            self.stop_client()
            raise ClientDied(why, do) from None
        if isinstance(reply, dict) and reply.get("driver_failed"):
            raise HarnessFailed(f"driver, {do}: {reply['driver_failed']}")
        return reply

    def _start_driver(self) -> Process:
        """Starts the client's process and returns it. Raises HarnessFailed."""
        self._driver = Process(self._driver_command)
        try:
            self.version = self._driver.ask(_GRACE_SECONDS, "hello")
        except (TimeoutError, EOFError) as problem:
            self.stop_client()
            raise HarnessFailed(f"driver, hello: {type(problem).__name__}") from None
        return self._driver
