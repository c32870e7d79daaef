"""Processes that a command starts and ends itself."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """What is started in the block never sees SIGINT, not even while it imports: the parent handles it and ends them.

    Processes and threads inherit the signal mask, so it also holds for the processes that a pool starts later. The
    resource tracker, which the first lock of a pool starts, unblocks SIGINT in this process: it is started before.
    """
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
