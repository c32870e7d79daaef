"""Traces on model and program: the model runs a seed, then the program gets the whole trace in one request.

While the program executes a trace, the model runs the next traces. The reply to a trace is compared as a whole. If the
reply is not as expected, the trace is replayed in single steps (each request has one call) on a `Pair`, as in every
other engine. `shrunk` confirms and shrinks the finding of this replay in a new process of the program.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from fuzz.campaign.worker import ENOUGH, FindingRow, Spec, shrunk_row
from fuzz.run.call import Call
from fuzz.run.checks import all_but
from fuzz.run.coverage import Row
from fuzz.run.finding import Cause, Difference, Finding, Kind, Misbehaved
from fuzz.run.lockstep import Lockstep, ModelStep
from fuzz.run.pair import Depth, Pair
from fuzz.run.replay import replay
from fuzz.sut.program import HelloCause, Program, Reply, ReplySide, agrees, outcome_data, text_after_id
from fuzz.target import Target
from model.machine import BadValue

#: Number of requests that are sent after the one whose reply is awaited.
_AHEAD = 3
#: While a hang is replayed and shrunk, the time limit of a reply is this fraction of the usual one.
_HANG_FRACTION = 0.1
#: A run ends after this many traces if none of them has a step.
_MOST_EMPTY = 64


class SentTrace(NamedTuple):
    """A trace that was sent to the program, and the expected reply."""

    seed: int
    config: Any
    taken: list[ModelStep]  # the steps of the model
    encoded: list[bytes]  # the calls as they were sent
    expected: Reply  # the model's outcomes and observation
    text: bytes  # `text_after_id` of the expected reply

    @property
    def calls(self) -> list[Call]:
        """The calls of the trace."""
        return [Call(action, arguments) for action, arguments, _ in self.taken]


class Hunted(NamedTuple):
    """The result of a run of seeds."""

    traces: int
    steps: int
    seconds: float
    coverage: tuple[Row, ...]  # the coverage of the model
    findings: list[Finding]  # the first finding of each cause, in the order in which they were found


class Hunter:
    """Runs seeds of a target whose second side is a program."""

    def __init__(self, target: Target, steps: int | None = None) -> None:
        self.target = target
        self.program: Program = target.program
        self.subject = target.subject
        self.skipped = all_but(self.subject, None)  # properties are about the model's states, not about the program
        self._model = Lockstep(replace(target, program=None, model_only=True), steps=steps)
        self._model.skipped = self.skipped
        self._model.may_end_early = True  # if the program lacks actions, there may be a state without a possible call
        self._sent: deque[SentTrace] = deque()  # traces without a reply, the oldest first
        self._start_failure: Misbehaved | None = None  # why the program did not start, until `_receive` reports it

    def run(
        self,
        seed: int,
        traces: int | None,
        until: float | None,
        progress: Callable[[int, int, int], None] = lambda traces, steps, findings: None,
    ) -> Hunted:
        """Runs seeds from `seed` on, at least one.

        Ends after `traces` seeds, at the time `until` (of `time.monotonic()`), or after ENOUGH traces with a finding. A
        hang, a violation of the protocol, a finding that single steps do not show, and a failing start end the run at
        once. `progress` is called after each trace, with the numbers of traces, steps and causes so far. Raises
        BadValue if the program cannot be started, or if none of its actions can be taken. Raises RuntimeError if the
        model fails.
        """
        started, done, steps, found = time.monotonic(), 0, 0, dict[Cause, Finding]()
        # `failed`: the number of traces with a finding; a finding that ends the run counts as ENOUGH traces
        failed, end, finding = 0, None if traces is None else seed + traces, None
        while True:
            if done >= _MOST_EMPTY and not steps:
                break
            is_over = failed >= ENOUGH or (until is not None and time.monotonic() >= until)
            if is_over and done:
                break
            if finding is not None:
                for each in self._sent:
                    self._request(each)  # again, because the replay of the finding has dropped the replies
            while len(self._sent) <= _AHEAD and (end is None or seed < end):
                self._sent.append(self._send_next(seed))
                seed += 1
            if not self._sent:
                break
            trace = self._sent.popleft()
            finding = self._receive(trace)
            done += 1
            steps += len(trace.taken)
            if finding is not None:
                found.setdefault(finding.cause, finding)
                failed += ENOUGH if _is_hopeless(finding.cause) else 1
            progress(done, steps, len(found))
        if done and not steps and not found:
            names = ", ".join(self.subject.machine.actions)
            raise BadValue(f"the program has the actions {names}, and none can be taken in the first state")
        seconds = time.monotonic() - started
        return Hunted(done, steps, seconds, tuple(self._model.coverage.rows()), list(found.values()))

    def _send_next(self, seed: int) -> SentTrace:
        """Runs a seed on the model and sends the seed's trace. Raises RuntimeError if the model itself fails."""
        taken: list[ModelStep] = []
        self._model.record = taken.append
        broken = self._model.run(seed)
        if broken is not None:
            raise RuntimeError(f"the model of {self.subject.name} fails at seed {seed}: {broken.difference.message}")
        cfg, state = self._model.latest_config, self._model.latest_state
        observed = self.program.compared_fields(self.subject.machine.observe(cfg, state))
        # without a call for each integer, to save time
        outcomes = [outcome if outcome.__class__ is int else outcome_data(outcome) for _, _, outcome in taken]
        expected = Reply(outcomes, observed)
        trace = SentTrace(seed, cfg, taken, self.program.encoded_calls(taken), expected, text_after_id(expected))
        self._request(trace)
        return trace

    def _request(self, trace: SentTrace) -> None:
        """Sends a trace. If the program does not start, `_receive` reports the failure."""
        try:
            if self._start_failure is None:
                self.program.send(trace.encoded, trace.config)
        except Misbehaved as problem:
            self._start_failure = problem

    def _receive(self, trace: SentTrace) -> Finding | None:
        """Receives the reply to a trace and compares it. Returns the finding, or None if nothing is wrong."""
        try:
            if self._start_failure is not None:
                raise self._start_failure
            reply = self.program.receive_unless(trace.text, len(trace.taken))
            expected = trace.expected
            if reply is None or (
                agrees(expected.outcomes, reply.outcomes)
                and (expected.observed is None or agrees(expected.observed, reply.observed))
            ):
                return None
            difference = self._walk(trace, reply)
        except Misbehaved as problem:
            difference = problem.difference
        self._start_failure = None
        return self._explain(trace, difference)

    def _walk(self, trace: SentTrace, reply: Reply) -> Difference:
        """Compares an unexpected reply with a second run of the model, step by step. Returns the first difference.

        If the second run has no difference, the difference is UNSTABLE.
        """
        pair = Pair(replace(self.target, config=trace.config, program=None, model_only=True), self.skipped)
        side = ReplySide(self.program, self.subject, trace.config, reply)
        pair.side = side
        for call in trace.calls:
            difference = pair.step(call, Depth.OUTCOME)
            if difference is not None:
                return difference
        message = "the model's second run of the trace has the outcomes and the observation of the reply"
        return side.difference(pair.state) or Difference(Cause(Kind.UNSTABLE, "difference"), message)

    def _explain(self, trace: SentTrace, seen: Difference) -> Finding:
        """Runs a trace again in single steps. Returns the finding that they show.

        If they show none, or take too long, returns an UNSTABLE finding with the message of `seen`, the difference in
        the reply. If the program did not start, there is no reply, and `seen` is the finding.
        """
        if isinstance(seen.cause, HelloCause):
            return Finding(trace.config, tuple(trace.calls[:1]), seen, trace.seed)
        target = self.target.with_config(trace.config)
        with shorter_limit(self.program, seen.cause):
            finding = replay(target, trace.calls, seed=trace.seed, skipped=self.skipped)
        # in single steps, UNSTABLE means that the time of the trace was over (`ProgramSide.act`)
        is_slow = finding is not None and finding.cause.kind is Kind.UNSTABLE
        if finding is not None and not is_slow:
            return finding
        limit = f"{self.program.trace_seconds:g} s"
        why = f"single steps took more than {limit}" if is_slow else "single steps do not show it"
        message = f"the whole trace in one request: {seen.message}; {why}"
        different = Difference(Cause(Kind.UNSTABLE, str(seen.cause)), message, seen.expected, seen.actual)
        return Finding(trace.config, tuple(trace.calls), different, trace.seed)


def shrunk(target: Target, spec: Spec, finding: Finding, seconds: float) -> FindingRow:
    """Replays a finding twice in a new process and shrinks it, for `seconds` at most. Returns the finding as a row."""
    program: Program = target.program
    program.close()
    with shorter_limit(program, finding.cause):
        with suppress(Misbehaved):
            program.start()
        if isinstance(finding.cause, HelloCause):
            seconds = 0.0  # the program fails before any call, so no trace is shorter
        return shrunk_row(target, spec, finding, time.monotonic() + seconds)


@contextmanager
def shorter_limit(program: Program, cause: Cause) -> Iterator[None]:
    """If the cause is a hang, the time limit of a reply is shorter in the `with` body.

    Replays and candidates of shrinking may hang again, and each hang lasts for the time limit. The time limit of the
    hello is shorter only if the program hangs at the hello.
    """
    limits = program.limits
    if cause.kind is Kind.HANG:
        program.close()
        note = f" ({limits.seconds:g} s before the trace was shrunk)"
        program.limits = limits._replace(seconds=limits.seconds * _HANG_FRACTION, note=note)
        program.start_seconds = program.limits.seconds if isinstance(cause, HelloCause) else limits.seconds
    try:
        yield
    finally:
        if program.limits is not limits:
            program.close()
            program.limits, program.start_seconds = limits, limits.seconds


def _is_hopeless(cause: Cause) -> bool:
    """Returns whether further traces are useless: each would reach its time limit, or fail in the same way."""
    return cause.kind in (Kind.HANG, Kind.PROTOCOL, Kind.UNSTABLE) or isinstance(cause, HelloCause)
