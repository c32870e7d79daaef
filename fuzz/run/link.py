"""A child process that answers lines with lines, each within a limit of time and size.

The process cannot block the caller: writing never blocks, a reply has a deadline, and standard error is read. The
process runs in a session of its own, and all processes of the session are killed at the end. A process that starts
another session (a daemon) is not killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fuzz.run.finding import Cause, Difference, Kind, Misbehaved
from model.machine import BadValue

_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 20
#: Number of bytes that are kept of the end of standard error.
_KEPT_OF_STDERR = 8192
#: The maximum number of attempts to kill all processes of the session: one may start another during an attempt.
_ROUNDS = 5
#: Seconds that a process may take to end after it has closed its output. Also the maximum time between two checks
#: whether the process has ended.
_END_SECONDS = 0.5


class Limits(NamedTuple):
    """The limits of a reply."""

    seconds: float = 10.0  # by the clock
    size: int = 1 << 24  # in bytes
    note: str = ""  # is appended to the limit in the message "no reply within 10 s"


def misbehaved(kind: Kind, what: str, message: str) -> Misbehaved:
    """Returns the exception for a process that failed. `what` names the failure in a few words (`Cause.what`)."""
    return Misbehaved(Difference(Cause(kind, what), message, None, message))


class Link:
    """A running process."""

    def __init__(self, command: Sequence[str], limits: Limits, environment: Mapping[str, str] | None = None) -> None:
        """Starts the process, by default in the environment of this one. Raises BadValue if it cannot be started."""
        self.limits = limits
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise BadValue(
                f"{command[0]} cannot be started: {reason}; on the command line, the program comes after --"
            ) from None
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._input, self._output, self._errors = [stream.fileno() for stream in streams if stream is not None]
        for each in (self._input, self._output, self._errors):
            os.set_blocking(each, False)
        for each in (self._input, self._output, self._errors):
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(each, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._poll = select.poll()
        for each in (self._output, self._errors):
            self._poll.register(each, select.POLLIN)
        self._unsent, self._unread = bytearray(), bytearray()
        self._scanned = 0  # number of bytes at the beginning of `_unread` that are known to have no line feed
        self._stderr_end = b""
        self._is_stdout_closed = False

    @property
    def pid(self) -> int:
        """The id of the process in the operating system."""
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Sends a line, which ends with a line feed. Bytes that the process does not read now are sent by `receive`."""
        self._unsent += line
        self._write()

    def receive(self) -> bytes:
        """Returns the next line that the process writes, without its line feed.

        Raises Misbehaved if the line is late or too long, or if the process has ended or closed its output.
        """
        limits, process = self.limits, self._process
        until = time.monotonic() + limits.seconds
        while (end := self._unread.find(b"\n", self._scanned)) < 0:
            self._scanned = len(self._unread)
            if self._scanned > limits.size:
                break
            left = until - time.monotonic()
            if left <= 0:
                limit = f"{limits.seconds:g} s{limits.note}"
                raise misbehaved(Kind.HANG, "no reply", f"no reply within {limit}{self._last_words()}")
            if self._exchange(min(left, _END_SECONDS)):
                continue
            # nothing was moved: has the process ended, or closed its output?
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS if self._is_stdout_closed else 0)
            if process.returncode is not None:
                if self._exchange(0):
                    continue  # the process wrote these bytes before it ended
                how = _ending(process.returncode)
                raise misbehaved(Kind.CRASH, how, f"the program {how}{self._last_words()}")
            if self._is_stdout_closed:
                raise misbehaved(Kind.PROTOCOL, "closed output", "the program closed its standard output")
        if end < 0 or end > limits.size:
            raise misbehaved(Kind.PROTOCOL, "too long", f"a reply of more than {limits.size:,} bytes")
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        self._scanned = 0
        return line

    def close(self) -> None:
        """Kills the process and all that it started in its session."""
        for _ in range(_ROUNDS):
            if not _kill_session(self._process.pid):
                break
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)

    def _exchange(self, seconds: float) -> bool:
        """Moves bytes to and from the process, after waiting at most `seconds`. Returns whether any were moved."""
        if self._unsent:
            self._poll.register(self._input, select.POLLOUT)
        moved = False
        for stream, _ in self._poll.poll(seconds * 1000):
            if stream == self._input:
                moved = self._write() or moved
                continue
            data = os.read(stream, _CHUNK)
            moved = moved or bool(data)
            if stream == self._output:
                self._unread += data
                self._is_stdout_closed = not data
            else:
                self._stderr_end = (self._stderr_end + data)[-_KEPT_OF_STDERR:]
            if not data:
                self._poll.unregister(stream)
        return moved

    def _write(self) -> bool:
        """Writes as many unsent bytes as fit into the pipe. Returns whether any were written."""
        written = 0
        try:
            written = os.write(self._input, self._unsent) if self._unsent else 0
        except BlockingIOError:
            return False
        except OSError:
            self._unsent.clear()  # the process has closed its input; `receive` reports the reason
        del self._unsent[:written]
        if not self._unsent:
            with contextlib.suppress(KeyError):  # it is registered only if `_exchange` had unsent bytes
                self._poll.unregister(self._input)
        return written > 0

    def _last_words(self) -> str:
        """Returns the last line of standard error, as the end of a message; an empty text if there is no line.

        Prefers lines that are not indented: indented lines belong to a stack trace.
        """
        lines = [line for line in self._stderr_end.splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if not line[:1].isspace()), lines[-1] if lines else b"")
        return f"; it said: {printable(last.strip(), 200)}" if last else ""


def printable(text: bytes, size: int) -> str:
    """Returns the first `size` characters of a text. Characters that cannot be printed are replaced."""
    short = text[: 4 * size].decode(errors="replace")
    cut = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in short[:size])
    return cut + "…" if len(short) > size else cut


def _kill_session(session: int) -> bool:
    """Kills the processes of a session. Returns whether another attempt is needed.

    `session` is the id of the first process, of its group and of the session. Job control of a shell, or `timeout`,
    puts processes into other groups. Such processes are found in /proc, if the system has /proc. If one was killed,
    another attempt is needed: this process may have started a further one before.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    has_other_groups = False
    with contextlib.suppress(FileNotFoundError):
        for each in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(each)) == session != os.getpgid(int(each)):  # in the session, and in another group
                    os.kill(int(each), signal.SIGKILL)
                    has_other_groups = True
    return has_other_groups


def _ending(code: int) -> str:
    """Returns how a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
