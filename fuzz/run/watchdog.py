"""A limit on the processor time of code under test."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from collections.abc import Iterator
from types import FrameType

#: Processor time after which a trace or replay counts as a hang; a trace usually takes a thousandth of it.
HANG_SECONDS = 1.0
#: Longer traces than this get proportionally more time.
_USUAL_STEPS = 256


def time_limit(steps: int, hang_seconds: float = HANG_SECONDS) -> float:
    """The processor time after which a trace of that many steps counts as a hang."""
    return hang_seconds * max(1.0, steps / _USUAL_STEPS)


class Hang(BaseException):
    """A step did not return in time. Not an Exception, so code under test does not catch it."""


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Raises Hang in the `with` body after `seconds` of this process's processor time.

    Wall-clock time would report hangs on a busy machine. Garbage collection is disabled, because its time depends on
    other objects of the process. The signal repeats, because the first one may arrive where exceptions are ignored, for
    example in a destructor. Has no effect outside the main thread, where Python delivers no signals.
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
