"""Child processes of a command: a pool, and signals. An interrupt ends the command, which ends its children itself."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, Literal

from model.machine import BadValue


def usable_cores() -> int:
    """Returns the number of cores that this process may use; 1 if this process cannot fork."""
    if "fork" not in multiprocessing.get_all_start_methods() or multiprocessing.current_process().daemon:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(ProcessPoolExecutor):
    """Child processes that execute functions. They do not receive interrupts.

    After an exception in the `with` body, the processes are ended at once. If a process dies, the body ends with
    BadValue. If a process of the kind `spawn` dies before its first result, this is noticed at the next result of
    another process.
    """

    def __init__(self, jobs: int, how: Literal["fork", "spawn"], **options: Any) -> None:
        super().__init__(jobs, multiprocessing.get_context(how), **options)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Executes a function in one of the processes, which the executor starts when it needs them."""
        with without_interrupts():
            return super().submit(function, *arguments, **named)

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: Any) -> None:
        if kind is not None:
            for child in list((self._processes or {}).values()):
                child.terminate()
        self.shutdown(cancel_futures=kind is not None)
        if isinstance(problem, BrokenProcessPool):
            raise BadValue("a process ended early, probably out of memory: use fewer processes") from None


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
