"""Records concurrent histories of Python objects: thread, invocation, return and outcome of each call.

    recorder = Recorder(act)
    recorder.call(Call("add", (3,)))    from any thread
    recorder.history("id", target)

Times are taken from a counter: no two are equal. `run_threads` drives the implementation of a subject. Our
implementations are not thread-safe, so `run_threads` wraps them in a guard such as `Locked`.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fuzz.platform.version import code_version
from fuzz.run.call import Arguments, Call
from fuzz.run.compare import as_data
from fuzz.run.generate import generate, plan_trace
from fuzz.subject import Subject
from fuzz.target import Target
from fuzz.trace.file import ABSENT, Operation, Span, Trace
from fuzz.trace.recording import OWN
from model.machine import plain

#: The switch interval of the interpreter while threads run. A short one makes calls overlap.
_SWITCH_SECONDS = 2e-6

#: (action, arguments) -> outcome, callable from any thread.
Act = Callable[[str, Arguments], Any]


class Locked:
    """A guard of an implementation that holds a lock during each call."""

    def __init__(self, subject: Subject, cfg: Any) -> None:
        self._instance = subject.implementation(cfg)
        self._lock = threading.Lock()

    def __call__(self, action: str, arguments: Arguments) -> Any:
        """Takes an action. Returns its outcome."""
        with self._lock:
            return getattr(self._instance, action)(*arguments)

    def view(self) -> Any:
        """Returns the implementation's view. No thread may be running."""
        return self._instance.view()


class LostUpdate(Locked):
    """A guard with a seeded race: a call changes a copy, which replaces the original without compare-and-set.

    So the effect of a concurrent call can be lost.
    """

    def __init__(self, subject: Subject, cfg: Any) -> None:
        super().__init__(subject, cfg)
        self._copy: Callable[[Any], Any] = lambda instance: subject.implementation.load(cfg, instance.view())

    def __call__(self, action: str, arguments: Arguments) -> Any:
        """Takes an action. Returns its outcome."""
        copy = self._copy(self._instance)
        outcome = getattr(copy, action)(*arguments)
        time.sleep(0)
        self._instance = copy
        return outcome


class Recorder:
    """Records calls from any number of threads.

    `act` executes a call. `pauses` is the probability that the thread yields before a call, and that it yields after
    the call, so that more calls overlap.
    """

    def __init__(self, act: Act, pauses: float = 0.0) -> None:
        self._act = act
        self._chance, self._pauses = random.Random(0), pauses  # noqa: S311
        self._time = itertools.count()
        self._calls: list[tuple[Call, Any, Span]] = []

    def call(self, call: Call) -> Any:
        """Executes a call in the current thread. Returns its outcome.

        An exception is recorded as the outcome `{"raised": TEXT}` and raised again.
        """
        invoked, outcome = next(self._time), None
        try:
            self._pause()
            outcome = self._act(*call)
        except Exception as problem:
            outcome = {"raised": repr(problem)}
            raise
        finally:
            self._pause()
            self._calls.append((call, outcome, Span(threading.current_thread().name, invoked, next(self._time))))
        return outcome

    def _pause(self) -> None:
        if self._chance.random() < self._pauses:
            time.sleep(0)

    def history(self, name: str, target: Target, **header: Any) -> Trace:
        """Returns the recorded calls as a concurrent history, with further keys for its opening line."""
        actions = target.subject.machine.actions
        operations = [
            Operation(call.action, actions[call.action].named(call.arguments), as_data(outcome), ABSENT, 0, span)
            for call, outcome, span in sorted(self._calls, key=lambda each: each[2].invoked)
        ]
        return Trace(name, target.subject.name, plain(target.config), operations, {OWN: code_version(), **header})


def run_threads(
    target: Target,
    *,
    threads: int,
    operations: int,
    seed: int,
    guard: Callable[[Subject, Any], Locked] = Locked,
    pauses: float = 0.0,
) -> Trace:
    """Executes a seed's calls in threads. Returns their history, with the observation of the final state.

    Each of the threads executes `operations` calls, and ends early if one raises an exception. `guard` makes an
    object that executes calls, from a subject and a config. The seed determines the calls, but not how they overlap.
    """
    subject = target.subject
    plan, _ = plan_trace(subject, target.config, seed)
    calls = list(generate(subject, target.config, seed, threads * operations))
    guarded = guard(subject, plan.config)
    recorder, begin = Recorder(guarded, pauses), threading.Barrier(threads)

    def work(share: Sequence[Call]) -> None:
        begin.wait()
        for call in share:
            try:
                recorder.call(call)
            except Exception:
                return  # recorded; the model allows no such outcome

    workers = [threading.Thread(target=work, args=(calls[i::threads],), name=f"{i}") for i in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    final = plain(subject.machine.observe(plan.config, guarded.view()))
    return recorder.history(f"{subject.name}/{seed}", target.drawn(plan.config), seed=seed, final=final)
