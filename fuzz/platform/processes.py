"""Signals of a command and its child processes: an interrupt ends the command, which ends its children itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from types import FrameType


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Blocks SIGINT in the processes and threads that the `with` body starts, so that only this process handles it.

    Processes and threads inherit the signal mask, also the processes that a pool's thread starts later. The resource
    tracker of `multiprocessing` is started first, because its start unblocks SIGINT in this process.
    """
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextlib.contextmanager
def termination_interrupts() -> Iterator[None]:
    """Handles SIGTERM and SIGHUP like SIGINT in the `with` body: raises KeyboardInterrupt.

    The command then ends its children. A child in its own session does not receive the signals of this process. Has no
    effect outside the main thread, because Python delivers signals there only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
