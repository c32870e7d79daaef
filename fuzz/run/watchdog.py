"""A limit on the processor time of code under test: a step that does not return in time raises `Hang`."""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
import threading
from collections.abc import Iterator
from types import FrameType

#: Processor time after which a trace of at most `_USUAL_STEPS` steps counts as a hang. Most traces take milliseconds.
HANG_SECONDS = 1.0
#: A trace of more steps than this has proportionally more time.
_USUAL_STEPS = 256


def time_limit(steps: int, hang_seconds: float = HANG_SECONDS) -> float:
    """Returns the processor time in seconds after which a trace of that many steps counts as a hang."""
    return hang_seconds * max(1.0, steps / _USUAL_STEPS)


def _user_seconds() -> float:
    """Returns the processor time that this process has used in user mode."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


class Hang(BaseException):
    """A step did not return in time. The base class is not Exception, so that code under test does not catch it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds  # the processor time that the watchdog allowed


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Raises Hang in the `with` body after `seconds` of this process's processor time, in user mode.

    Wall-clock time would report hangs on a busy machine. A step that sleeps, or waits for a lock, uses no processor
    time and is not ended. Garbage collection is disabled, because its time depends on other objects of the process. The
    signal repeats, because the first one may arrive where exceptions are ignored, for example in a destructor. Inside
    another watchdog, the time counts for both. If the outer watchdog's time runs out inside the inner one, the outer
    watchdog raises Hang right after the inner one has ended. Outside the main thread, `watchdog` has no effect: Python
    delivers signals to the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    is_running = True

    def stop(_signum: int, _frame: FrameType | None) -> None:
        if is_running:  # a signal during the clean-up below must not interrupt it
            raise Hang(seconds)

    collecting = gc.isenabled()
    gc.disable()
    previous = signal.signal(signal.SIGVTALRM, stop)
    outer, interval = signal.setitimer(signal.ITIMER_VIRTUAL, seconds, max(seconds, 0.2))
    started = _user_seconds()
    try:
        yield
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
        if outer:
            left = max(outer - (_user_seconds() - started), 0.001)  # 0 would stop the timer
            signal.setitimer(signal.ITIMER_VIRTUAL, left, interval)
        if collecting:
            gc.enable()
