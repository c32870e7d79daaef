"""Traces of a foreign program: the model runs a seed, the program gets the whole trace in one request.

While the program works on a trace, the model runs the following ones. The reply to a trace is compared as a whole. If
it is not as expected, the trace runs again in single steps with everything checked, on the same `Pair` as in every
other engine. That replay says what is wrong. The finding is confirmed and shrunk in a new process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from fuzz.campaign.worker import ENOUGH, Found, Spec, found_of
from fuzz.run.call import Call
from fuzz.run.checks import all_but
from fuzz.run.coverage import Row
from fuzz.run.finding import Cause, Difference, Finding, Kind, Misbehaved
from fuzz.run.lockstep import Lockstep, Taken
from fuzz.run.pair import Depth, Pair
from fuzz.run.replay import replay
from fuzz.sut.program import HELLO, Program, RecordedSide, Reply, agrees, reply_text, wire
from fuzz.target import Target
from model.machine import BadValue

#: Number of requests that are sent after the one whose reply is awaited.
_AHEAD = 3
#: While a hang is replayed and shrunk, the time limit of a reply is this share of the usual one.
_HANG_SHARE = 0.1
#: A run ends after this many traces without a step.
_MOST_EMPTY = 64


class Window(NamedTuple):
    """A trace that was sent: its steps, its calls as sent, and the reply that the model gives."""

    seed: int
    config: Any
    taken: list[Taken]
    sent: list[bytes]  # the encoded calls
    expected: Reply
    text: bytes  # the expected reply, from its outcomes on

    @property
    def calls(self) -> list[Call]:
        """The calls of the trace."""
        return [Call(action, arguments) for action, arguments, _ in self.taken]


class Hunted(NamedTuple):
    """What a run of seeds did."""

    traces: int
    steps: int
    seconds: float
    coverage: tuple[Row, ...]  # of the model
    findings: list[Finding]  # the first of each cause, in the order in which they were found


class Hunter:
    """Runs seeds of a target that has a program in the place of the implementation."""

    def __init__(self, target: Target, steps: int | None = None) -> None:
        self.target = target
        self.program: Program = target.program
        self.subject = target.subject
        self.skipped = all_but(self.subject, None)  # the model's own properties are not at stake
        self._model = Lockstep(replace(target, program=None, model_only=True), steps=steps)
        self._model.skipped = self.skipped
        self._model.may_end_early = True  # a program need not have all actions
        self._waiting: deque[Window] = deque()
        self._unreachable: Misbehaved | None = None

    def run(
        self,
        seed: int,
        traces: int | None,
        until: float | None,
        progress: Callable[[int, int, int], None] = lambda traces, steps, findings: None,
    ) -> Hunted:
        """Runs seeds from `seed` on: `traces` of them, until `until` (of `time.monotonic()`), or to ENOUGH findings.

        A hang, a broken protocol and a failing start end the run at once. `progress` is called after each trace with
        traces, steps and causes so far. Raises BadValue if the program cannot be started, or has no action that can
        be taken, RuntimeError if the model fails.
        """
        started, done, steps, found = time.monotonic(), 0, 0, dict[Cause, Finding]()
        wrong, last, finding = 0, None if traces is None else seed + traces, None
        while True:
            if done >= _MOST_EMPTY and not steps:
                break
            is_over = wrong >= ENOUGH or (until is not None and time.monotonic() >= until)
            if is_over and done:
                break
            if finding is not None:
                for each in self._waiting:
                    self._request(each)  # again: explaining the finding took or lost its reply
            while len(self._waiting) <= _AHEAD and (last is None or seed < last):
                self._waiting.append(self._sent_window(seed))
                seed += 1
            if not self._waiting:
                break
            window = self._waiting.popleft()
            finding = self._receive(window)
            done += 1
            steps += len(window.taken)
            if finding is not None:
                found.setdefault(finding.cause, finding)
                wrong += ENOUGH if _is_hopeless(finding.cause) else 1
            progress(done, steps, len(found))
        if done and not steps and not found:
            names = ", ".join(self.subject.machine.actions)
            raise BadValue(f"the program has the actions {names}, and none can be taken in the first state")
        seconds = time.monotonic() - started
        return Hunted(done, steps, seconds, tuple(self._model.coverage.rows()), list(found.values()))

    def _sent_window(self, seed: int) -> Window:
        """Runs a seed on the model and sends its trace. Raises RuntimeError when the model itself fails."""
        taken: list[Taken] = []
        self._model.record = taken.append
        broken = self._model.run(seed)
        if broken is not None:
            raise RuntimeError(f"the model of {self.subject.name} fails at seed {seed}: {broken.difference.message}")
        cfg, state = self._model.last
        observed = self.program.seen(self.subject.machine.observe(cfg, state))
        expected = Reply([outcome if outcome.__class__ is int else wire(outcome) for _, _, outcome in taken], observed)
        window = Window(seed, cfg, taken, self.program.encoded_calls(taken), expected, reply_text(expected))
        self._request(window)
        return window

    def _request(self, window: Window) -> None:
        """Sends a trace. If the program misbehaves at its start, `_receive` reports that."""
        try:
            if self._unreachable is None:
                self.program.send(window.sent, window.config)
        except Misbehaved as problem:
            self._unreachable = problem

    def _receive(self, window: Window) -> Finding | None:
        """Receives the reply to a trace and compares it. Returns the finding, or None if nothing is wrong."""
        try:
            if self._unreachable is not None:
                raise self._unreachable
            reply = self.program.receive_unless(window.text, len(window.taken))
            expected = window.expected
            if reply is None or (
                agrees(expected.outcomes, reply.outcomes)
                and (expected.observed is None or agrees(expected.observed, reply.observed))
            ):
                return None
            difference = self._walk(window, reply)
        except Misbehaved as problem:
            difference = problem.difference
        self._unreachable = None
        return self._explain(window, difference)

    def _walk(self, window: Window, reply: Reply) -> Difference:
        """The first difference between a reply that is not the expected one and a second run of the model."""
        pair = Pair(replace(self.target, config=window.config, program=None, model_only=True), self.skipped)
        side = RecordedSide(self.program, self.subject, window.config, reply)
        pair.side = side
        for call in window.calls:
            difference = pair.step(call, Depth.OUTCOME)
            if difference is not None:
                return difference
        message = "the model's second run of the trace has the outcomes and the observation of the reply"
        return side.difference(pair.state) or Difference(Cause(Kind.UNSTABLE, "difference"), message)

    def _explain(self, window: Window, seen: Difference) -> Finding:
        """Runs a trace again in single steps. Returns the finding; if it shows nothing, an unstable one with `seen`."""
        if _is_hello(seen.cause):
            return Finding(window.config, tuple(window.calls[:1]), seen, window.seed)
        target = self.target.with_config(window.config)
        with quick(self.program, seen.cause):
            finding = replay(target, window.calls, seed=window.seed, skipped=self.skipped)
        is_slow = finding is not None and finding.cause.kind is Kind.UNSTABLE
        if finding is not None and not is_slow:
            return finding
        why = f"single steps took more than {self.program.patience:g} s" if is_slow else "single steps do not show it"
        message = f"the whole trace in one request: {seen.message}; {why}"
        different = Difference(Cause(Kind.UNSTABLE, str(seen.cause)), message, seen.expected, seen.actual)
        return Finding(window.config, tuple(window.calls), different, window.seed)


def shrunk(target: Target, spec: Spec, finding: Finding, seconds: float) -> Found:
    """Replays a finding twice in a new process and shrinks it, for `seconds` at most. Returns it as a row."""
    program: Program = target.program
    program.close()
    with quick(program, finding.cause):
        with suppress(Misbehaved):
            program.start()
        if _is_hello(finding.cause):
            seconds = 0.0
        return found_of(target, spec, finding, time.monotonic() + seconds)


@contextmanager
def quick(program: Program, cause: Cause) -> Iterator[None]:
    """In the `with` body, the time limit of a reply is shorter if the cause is a hang: each candidate may hang again.

    The time limit of the hello stays, unless the hello is what hangs.
    """
    limits = program.limits
    if cause.kind is Kind.HANG:
        program.close()
        before = f" ({limits.seconds:g} s before the trace was shrunk)"
        program.limits = limits._replace(seconds=limits.seconds * _HANG_SHARE, before=before)
        program.start_seconds = program.limits.seconds if _is_hello(cause) else limits.seconds
    try:
        yield
    finally:
        if program.limits is not limits:
            program.close()
            program.limits, program.start_seconds = limits, limits.seconds


def _is_hello(cause: Cause) -> bool:
    """Whether the program failed before the first call."""
    return cause.what.startswith(HELLO)


def _is_hopeless(cause: Cause) -> bool:
    """Whether no further trace is run: each would reach its time limit, or fail in the same way."""
    return cause.kind in (Kind.HANG, Kind.PROTOCOL, Kind.UNSTABLE) or _is_hello(cause)
