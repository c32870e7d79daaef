"""Traces of a foreign program: the model runs a seed, the program gets the whole trace in one request.

While the program works on a trace, the model runs the following ones. The replies are compared all at once. If they
are not as expected, the same trace runs again in single steps with everything checked, on the same `Pair` as every
other engine. That replay says what is wrong. It is confirmed and shrunk in a new process.
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

#: Requests that are sent ahead of the reply that is awaited.
_AHEAD = 3
#: While a hang is replayed and shrunk, a reply may take this share of its limit.
_HANG_SHARE = 0.1


class Window(NamedTuple):
    """A trace that was sent: its steps, its calls as sent, and the reply that the model gives."""

    seed: int
    config: Any
    taken: list[Taken]
    sent: list[bytes]
    expected: Reply
    text: bytes  # the expected reply, from its outcomes on

    @property
    def calls(self) -> list[Call]:
        """The calls of the trace."""
        return [Call(action, arguments) for action, arguments, _ in self.taken]


class Hunted(NamedTuple):
    """What a run of seeds did. `findings` are in the order in which they were found, one for each cause."""

    traces: int
    steps: int
    seconds: float
    coverage: tuple[Row, ...]
    findings: list[Finding]


class Hunter:
    """Runs seeds of a target whose second side is a program."""

    def __init__(self, target: Target, steps: int | None = None) -> None:
        self.target = target
        self.program: Program = target.program
        self.subject = target.subject
        self.skipped = all_but(self.subject, None)  # the model's own properties are not at stake
        self._model = Lockstep(replace(target, program=None, model_only=True), steps=steps)
        self._model.skipped = self.skipped
        self._waiting: deque[Window] = deque()
        self._unreachable: Misbehaved | None = None

    def run(
        self,
        seed: int,
        traces: int | None,
        until: float | None,
        progress: Callable[[int, int, int], None] = lambda traces, steps, findings: None,
    ) -> Hunted:
        """Runs seeds until the number of traces or the monotonic time is reached, or there are enough findings."""
        started, done, steps, found = time.monotonic(), 0, 0, dict[Cause, Finding]()
        wrong, last, finding = 0, None if traces is None else seed + traces, None
        while True:
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
        """Sends a trace. That the program cannot be started is raised when its reply is awaited."""
        try:
            if self._unreachable is None:
                self.program.send(window.sent, window.config)
        except Misbehaved as problem:
            self._unreachable = problem

    def _receive(self, window: Window) -> Finding | None:
        """Compares the replies to a trace. Returns what is wrong in it."""
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
            if difference is None:
                return None
        except Misbehaved as problem:
            difference = problem.difference
        self._unreachable = None
        return self._explain(window, difference)

    def _walk(self, window: Window, reply: Reply) -> Difference | None:
        """What is wrong in a reply, where other steps than the model's own are allowed. None: nothing."""
        pair = Pair(replace(self.target, config=window.config, program=None, model_only=True), self.skipped)
        side = RecordedSide(self.program, self.subject, window.config, reply)
        pair.side = side
        for call in window.calls:
            difference = pair.step(call, Depth.OUTCOME)
            if difference is not None:
                return difference
        return side.difference(pair.state)

    def _explain(self, window: Window, seen: Difference) -> Finding:
        """A trace again in single steps; if that shows nothing, what was seen in the window."""
        if _is_hello(seen.cause):
            return Finding(window.config, tuple(window.calls[:1]), seen, window.seed)
        target = self.target.drawn(window.config)
        with quick(self.program, seen.cause):
            finding = replay(target, window.calls, seed=window.seed, skipped=self.skipped)
        if finding is not None:
            return finding
        message = f"the whole trace in one request: {seen.message}; single steps do not show it"
        different = Difference(Cause(Kind.UNSTABLE, str(seen.cause)), message, seen.expected, seen.actual)
        return Finding(window.config, tuple(window.calls), different, window.seed)


def shrunk(target: Target, spec: Spec, finding: Finding, seconds: float) -> Found:
    """A finding, replayed twice in a new process and shrunk, for so many seconds at most."""
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
    """Inside, a reply has less time if the cause is a hang, because each candidate that hangs costs as much.

    A start has the time of before, unless it is what hangs.
    """
    limits = program.limits
    if cause.kind is Kind.HANG:
        program.close()
        program.limits = limits._replace(seconds=limits.seconds * _HANG_SHARE)
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
    """Whether other traces are not worth running: each would cost its time limit, or fail in the same way."""
    return cause.kind in (Kind.HANG, Kind.PROTOCOL, Kind.UNSTABLE) or _is_hello(cause)
