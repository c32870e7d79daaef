"""Child processes of a command: a pool, and signals. Only the command handles an interrupt, and ends its children."""

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
    """Returns the number of cores that this process may use; 1 if this process can have no forked children.

    A process can have none on a system without `fork`, or if it is a daemonic process of `multiprocessing`.
    """
    if "fork" not in multiprocessing.get_all_start_methods() or multiprocessing.current_process().daemon:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(ProcessPoolExecutor):
    """Child processes that execute functions. They do not receive interrupts. `how` is the start method.

    After an exception in the `with` body, the processes are ended at once. If a process dies, the next `submit` or
    `result` raises BrokenProcessPool, which the `with` statement turns into BadValue. With `spawn`, processes are
    started on demand. The executor's thread watches only the processes that existed when this thread last began to
    wait. So the thread may notice the death of a new process only when another process returns a result.
    """

    def __init__(self, jobs: int, how: Literal["fork", "spawn"], **options: Any) -> None:
        super().__init__(jobs, multiprocessing.get_context(how), **options)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Executes a function in one of the processes. New processes start here, so they inherit the blocked SIGINT."""
        with without_interrupts():
            return super().submit(function, *arguments, **named)

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, traceback: Any) -> None:
        if kind is not None:
            for child in list((self._processes or {}).values()):
                child.terminate()
        self.shutdown(cancel_futures=kind is not None)
        if isinstance(problem, BrokenProcessPool):
            raise BadValue("a process ended early, probably out of memory: use fewer processes") from None


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Blocks SIGINT in the processes and threads that the `with` body starts, so that only this process handles it.

    New processes and threads inherit the signal mask. So do processes that an executor's own thread starts later, if
    that thread was started in the body. The resource tracker of `multiprocessing` is started first, because its start
    unblocks SIGINT in this process.
    """
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextlib.contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Handles SIGTERM and SIGHUP like SIGINT in the `with` body: raises KeyboardInterrupt.

    This is needed for children in their own session: signals to the command's process group, such as Ctrl-C, do not
    reach them. So the command must end them itself, also when it is terminated. Has no effect outside the main thread,
    because Python delivers signals there only.
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
