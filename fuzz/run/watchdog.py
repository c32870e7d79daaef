"""A limit of processor time for code under test."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from collections.abc import Iterator
from types import FrameType

#: Processor time of a trace or replay after which it counts as a hang. A trace takes a thousandth of it.
HANG_SECONDS = 1.0
#: The number of steps up to which that applies; a longer trace has more time in proportion.
_USUAL_STEPS = 256


def patience(steps: int, hang_seconds: float = HANG_SECONDS) -> float:
    """The processor time after which a trace of that many steps counts as a hang."""
    return hang_seconds * max(1.0, steps / _USUAL_STEPS)


class Hang(BaseException):
    """A step did not return in time. No Exception, so that code under test cannot swallow it."""


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Raises Hang in the body after that much processor time of this process.

    Processor time, so that a busy machine causes no hang. Garbage collection is off meanwhile: its time depends on what
    else the process holds. The signal repeats, because the first one may arrive where exceptions are swallowed, in a
    destructor for example. Does nothing outside the main thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signum: int, _frame: FrameType | None) -> None:
        raise Hang

    collecting = gc.isenabled()
    gc.disable()
    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, max(seconds, 0.2))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
        if collecting:
            gc.enable()
