"""Processes that a command starts and ends itself."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Blocks SIGINT in the processes and threads that the `with` body starts. This process handles the signal.

    Processes and threads inherit the signal mask, also the processes that a pool's thread starts later. The resource
    tracker of `multiprocessing` is started first, because its start unblocks SIGINT in this process.
    """
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
