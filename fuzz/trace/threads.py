"""Records concurrent histories of Python objects: thread, invocation, return and outcome of each call.

    recorder = Recorder(act)
    recorder.call(Call("add", (3,)))    from any thread
    recorder.history("id", target)

The times of a history are values of a counter, so no two are equal. `run_threads` calls the implementation of a subject
from several threads. Our implementations are not thread-safe, so the threads call a `Guard`, which calls the
implementation.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fuzz.platform.version import code_version
from fuzz.run.call import Arguments, Call
from fuzz.run.compare import as_data
from fuzz.run.generate import generate, plan_trace
from fuzz.subject import Subject
from fuzz.target import Target
from fuzz.trace.file import ABSENT, ENGINE_KEY, Operation, Span, Trace
from model.machine import plain

#: The switch interval of the interpreter while threads run. A short one makes calls overlap.
_SWITCH_SECONDS = 2e-6

#: (action, arguments) -> outcome, callable from any thread.
Act = Callable[[str, Arguments], Any]


class Guard(ABC):
    """Executes the calls of several threads on one implementation."""

    def __init__(self, subject: Subject, cfg: Any) -> None:
        self._instance = subject.implementation(cfg)

    @abstractmethod
    def __call__(self, action: str, arguments: Arguments) -> Any:
        """Executes an action. Returns its outcome."""

    def view(self) -> Any:
        """Returns the state of the implementation, as a state of the model. Call it only after all threads ended."""
        return self._instance.view()


class Locked(Guard):
    """Executes one call at a time: holds a lock during each call."""

    def __init__(self, subject: Subject, cfg: Any) -> None:
        super().__init__(subject, cfg)
        self._lock = threading.Lock()

    def __call__(self, action: str, arguments: Arguments) -> Any:
        """Executes an action. Returns its outcome."""
        with self._lock:
            return getattr(self._instance, action)(*arguments)


class LostUpdate(Guard):
    """Takes no lock, which is a seeded race: a call changes a copy, which then replaces the original.

    There is no compare-and-set. So the effect of a concurrent call can be lost.
    """

    def __init__(self, subject: Subject, cfg: Any) -> None:
        super().__init__(subject, cfg)
        self._copy: Callable[[Any], Any] = lambda instance: subject.implementation.load(cfg, instance.view())

    def __call__(self, action: str, arguments: Arguments) -> Any:
        """Executes an action. Returns its outcome."""
        copy = self._copy(self._instance)
        outcome = getattr(copy, action)(*arguments)
        time.sleep(0)
        self._instance = copy
        return outcome


class Recorder:
    """Records calls from any number of threads. `act` executes a call."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._time = itertools.count()
        #: time of invocation -> call, plain outcome, and span; ABSENT and no time of return until the call returns
        self._calls: dict[int, tuple[Call, Any, Span]] = {}

    def call(self, call: Call) -> Any:
        """Executes a call in the current thread. Returns its outcome.

        An exception is recorded as the outcome `{"raised": TEXT}` and raised again.
        """
        span = Span(threading.current_thread().name, next(self._time), None)
        self._calls[span.invoked] = call, ABSENT, span
        try:
            outcome = self._act(*call)
        except Exception as problem:
            self._returned(call, {"raised": repr(problem)}, span)
            raise
        self._returned(call, as_data(outcome), span)  # at once, because later calls may change the outcome's value
        return outcome

    def _returned(self, call: Call, outcome: Any, span: Span) -> None:
        """Records the plain outcome of a call, and the time of return."""
        self._calls[span.invoked] = call, outcome, span._replace(returned=next(self._time))

    def history(self, name: str, target: Target, **header: Any) -> Trace:
        """Returns the recorded calls as a concurrent history. The opening line also has the keys of `header`.

        A call that has not returned yet has no outcome in the history.
        """
        actions = target.subject.machine.actions
        operations = [
            Operation(call.action, actions[call.action].named(call.arguments), outcome, ABSENT, 0, span)
            for _, (call, outcome, span) in sorted(self._calls.copy().items())
        ]
        return Trace(
            name, target.subject.name, plain(target.config), operations, {ENGINE_KEY: code_version(), **header}
        )


def run_threads(
    target: Target,
    *,
    threads: int,
    calls_per_thread: int,
    seed: int,
    make_guard: Callable[[Subject, Any], Guard] = Locked,
) -> Trace:
    """Executes a seed's calls in threads. Returns their history, with the observation of the final state.

    A thread ends early if one of its calls raises an exception. `make_guard(subject, config)` returns the guard that
    executes the calls. The seed determines the calls, but not how they overlap.
    """
    subject = target.subject
    plan, _ = plan_trace(subject, target.config, seed)
    calls = list(generate(subject, target.config, seed, threads * calls_per_thread))
    guard = make_guard(subject, plan.config)
    recorder, begin = Recorder(guard), threading.Barrier(threads)

    def work(share: Sequence[Call]) -> None:
        try:
            begin.wait()
        except threading.BrokenBarrierError:
            return  # another thread could not be started
        for call in share:
            try:
                recorder.call(call)
            except Exception:
                return  # the recorder has the exception as the outcome of the call. No model allows this outcome

    workers = [threading.Thread(target=work, args=(calls[i::threads],), name=f"{i}") for i in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    finally:
        begin.abort()  # if a thread could not be started, ends the threads that wait for it
        sys.setswitchinterval(interval)
    final = plain(subject.machine.observe(plan.config, guard.view()))
    return recorder.history(f"{subject.name}/{seed}", target.with_config(plan.config), seed=seed, final=final)
