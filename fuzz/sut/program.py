"""The protocol of a foreign program, and the program as the second side of a comparison.

The program receives the introduction and then requests, and answers each of them. A message is one line of JSON:

introduction   {"brokerproof": 1, "component": ..., "settings": ..., "actions": ...}; the first line
hello          {"brokerproof": 1, "name": ..., "actions": [...], "settings": [...], "observes": [...]}; the answer to
               the introduction. The lists name what the program supports. A list that is left out means all
request        {"id": n, "config": {...}, "calls": [[action, argument, ...], ...]}. With a config, the program is reset
               to its initial state under the config before the calls. The calls are executed in order
reply          {"id": n, "outcomes": [...], "observed": ...}: the outcome of each call, and the program's observation
               after the last call; or {"id": n, "error": ...}
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.run.call import Arguments
from fuzz.run.compare import observation_difference, same
from fuzz.run.finding import Cause, Difference, Kind, Misbehaved
from fuzz.run.link import Limits, Link, misbehaved, printable
from fuzz.subject import Subject
from model.machine import BadValue, Failed, Machine, Refused, plain
from model.values import AnyOrder, describe

#: The version of the protocol.
VERSION = 1
#: The largest number of encoded calls that are cached. Most arguments come from fixed domains, so calls repeat.
_MOST_KEPT = 100_000
#: The largest depth of nested lists and objects in a reply. It is limited because functions that compare and print
#: replies are recursive.
_MAX_DEPTH = 100
#: The time limit of a trace in single steps (each request has one call), as a multiple of the time limit of a reply.
_TRACE_FACTOR = 3


class HelloCause(Cause):
    """The cause of a finding of `Program.start`: the hello is missing or wrong."""


class Hello(NamedTuple):
    """The name of a program, and the names of what the program supports. None stands for all names."""

    name: str
    actions: tuple[str, ...] | None = None
    settings: tuple[str, ...] | None = None
    observes: tuple[str, ...] | None = None  # fields of the observation

    def restricted(self, subject: Subject) -> Subject:
        """Returns the subject, restricted to the program's actions. Only the program's settings get drawn values.

        Weights, swarms and situations that could give every remaining action the weight 0 are left out. Raises BadValue
        for an action, setting or field that the subject does not have, or if no action is left.
        """
        machine: Machine[Any, Any] = copy.copy(subject.machine)
        cfg = machine.configure({})
        observation = machine.observe(cfg, machine.start(cfg))
        for kind, ours, theirs in (
            ("action", machine.actions, self.actions),
            ("setting", machine.fields, self.settings),
            ("field", observation if isinstance(observation, dict) else (), self.observes),
        ):
            for name in theirs or ():
                if name not in ours:
                    has = ", ".join(ours) or "none by name"
                    raise BadValue(f"the program has the {kind} {name[:80]}, {subject.name} has {has}")
        if self.actions is not None:
            machine.actions = {n: a for n, a in machine.actions.items() if n in self.actions}
        names = machine.actions
        if not names:
            raise BadValue(f"the program has no action; {subject.name} has {', '.join(subject.machine.actions)}")

        def leaves_an_action(*factors: Mapping[str, float]) -> bool:
            """Returns whether a remaining action has a weight above 0. A weight is the product of the factors."""
            return any(all(factor.get(name, 1.0) for factor in factors) for name in names)

        usual = subject.weights if leaves_an_action(subject.weights) else {}
        swarms = {swarm: weights for swarm, weights in subject.swarms.items() if leaves_an_action(usual, weights)}
        situations = {
            situation: weights
            for situation, weights in subject.in_situation.items()
            if all(leaves_an_action(usual, weights, swarm) for swarm in ({}, *swarms.values()))
        }
        drawn = {n: v for n, v in subject.settings.items() if self.settings is None or n in self.settings}
        return replace(subject, machine=machine, weights=usual, swarms=swarms, in_situation=situations, settings=drawn)


class Reply(NamedTuple):
    """The outcomes of a request's calls, and the program's observation after the last call."""

    outcomes: list[Any]
    observed: Any


def text_after_id(reply: Reply) -> bytes:
    """Returns the part of a reply's line that follows the id, as the adapter `fuzz/sut/serve.py` writes this part."""
    return b'"outcomes":%b,"observed":%b}' % (to_json(reply.outcomes), to_json(reply.observed))


def outcome_data(outcome: Any) -> Any:
    """Returns an outcome of model or implementation as the protocol has it: a refusal or failure without its reason."""
    kind = outcome.__class__
    if kind is int or kind is bool or outcome is None:
        return outcome
    if kind is Refused:
        return {"refused": outcome.kind}
    if kind is Failed:
        return {"failed": outcome.kind}
    return plain(outcome)


def agrees(expected: Any, theirs: Any) -> bool:
    """Returns whether a value of a reply equals the expected value.

    1.0 equals 1, because JSON has one type of numbers; true does not equal 1. If the expected value is an object whose
    only key is `refused` or `failed`, the reply's object may have further keys. A list that is `AnyOrder` in the model
    equals its permutations; a permutation costs O(length squared).
    """
    if same(expected, theirs):
        return True
    if isinstance(expected, dict) and isinstance(theirs, dict):
        if len(expected) == 1 and ("refused" in expected or "failed" in expected):
            return all(key in theirs and same(theirs[key], value) for key, value in expected.items())
        return expected.keys() == theirs.keys() and all(agrees(v, theirs[k]) for k, v in expected.items())
    if isinstance(expected, list) and isinstance(theirs, list):
        if len(expected) != len(theirs):
            return False
        return all(map(agrees, expected, theirs)) or (isinstance(expected, AnyOrder) and _permuted(expected, theirs))
    numbers = {expected.__class__, theirs.__class__}
    return numbers == {int, float} and bool(expected == theirs)


def _permuted(expected: list[Any], theirs: list[Any]) -> bool:
    """Returns whether each expected value agrees with another value of the reply's list, which is as long."""
    others = list(theirs)
    for each in expected:
        index = next((index for index, other in enumerate(others) if agrees(each, other)), None)
        if index is None:
            return False
        del others[index]
    return True


class Program:
    """A foreign program. A request with a config starts the program if it does not run, also after a failure."""

    def __init__(self, command: Sequence[str], subject: Subject, limits: Limits | None = None) -> None:
        """Does not start the program yet. Raises BadValue if the command is empty."""
        if not command:
            raise BadValue("name the program after --, for example: brokerproof sut SUBJECT -- python my_adapter.py")
        self.command = tuple(command)
        self.subject = subject  # with all actions and settings, for the introduction
        self.limits = limits or Limits()
        self.start_seconds = self.limits.seconds  # the time limit of the hello
        self.trace_seconds = _TRACE_FACTOR * self.limits.seconds  # the time limit of a trace in single steps
        self.hello: Hello | None = None
        self._link: Link | None = None
        self._last = 0  # the id of the last request
        self._awaited = 0  # the number of requests whose replies have not been received
        self._kept: dict[tuple[str, Arguments], bytes] = {}  # encoded calls

    def side(self, subject: Subject, cfg: Any) -> ProgramSide:
        """Returns the program as a second side, reset to its initial state under a config. Raises as `reset`.

        `subject` is the subject that is compared, which `Hello.restricted` returns.
        """
        return ProgramSide(self, subject, cfg)

    def start(self) -> Hello:
        """Starts the program if it does not run. Returns the program's hello.

        Raises BadValue if the program cannot be started, and Misbehaved if its hello is missing or wrong.
        """
        if self._link is None or self.hello is None:
            self.close()
            self._link = Link(self.command, self.limits._replace(seconds=self.start_seconds))
            try:
                self._link.send(to_json(introduction(self.subject)) + b"\n")
                self.hello = self._parsed_hello(self._link.receive())
                self._link.limits = self.limits
            except Misbehaved as problem:
                self.close()
                (kind, what), message = problem.difference.cause, f"hello: {problem.difference.message}"
                if kind is Kind.HANG:
                    message += "; does it flush its output after each line?"
                cause = HelloCause(kind, f"hello {what}")
                raise Misbehaved(Difference(cause, message, None, message)) from None
        return self.hello

    def close(self) -> None:
        """Ends the program, if it runs."""
        if self._link is not None:
            self._link.close()
        self._link, self._awaited = None, 0

    def send(self, calls: Iterable[bytes], cfg: Any = None) -> None:
        """Sends a request with encoded calls, without waiting for the reply. A config resets the program.

        If the program was not started, or was ended by `close` or after a failure, a request with a config starts the
        program, as `start` does. In this case, a request without a config raises Misbehaved.
        """
        if cfg is not None and self._link is None:
            self.start()
        if self._link is None:
            raise misbehaved(Kind.PROTOCOL, "not running", "the program does not run")
        self._last += 1
        self._awaited += 1
        config = b"" if cfg is None else b'"config":' + to_json(plain(cfg)) + b","
        self._link.send(b'{"id":%d,%b"calls":[%b]}\n' % (self._last, config, b",".join(calls)))

    def receive(self, count: int) -> Reply:
        """Returns the reply to the oldest request that has none yet. The request has `count` calls.

        If the reply violates the protocol or a limit, or has an error, ends the program and raises Misbehaved.
        """
        reply = self.receive_unless(b"", count)
        assert reply is not None
        return reply

    def receive_unless(self, expected: bytes, count: int) -> Reply | None:
        """As `receive`, but returns None if the line of the reply, after the id, is exactly `expected`.

        Then the reply is not parsed, which saves time. If `expected` is empty, never returns None.
        """
        # `number` is the id of the oldest request without a reply: ids are consecutive
        number, line = self._last - self._awaited + 1, self._receive()
        if expected and line == b'{"id":%d,%b' % (number, expected):
            return None
        try:
            return self._parsed_reply(line, number, count)
        except Misbehaved:
            self.close()
            raise

    def _receive(self) -> bytes:
        """Returns the next line of the program.

        If there is no line within the limits, ends the program and raises Misbehaved. Also raises Misbehaved if the
        program does not run.
        """
        try:
            if self._link is None:
                raise misbehaved(Kind.PROTOCOL, "not running", "the program does not run")
            line = self._link.receive()
        except Misbehaved:
            self.close()
            raise
        self._awaited -= 1
        return line

    def reset(self, cfg: Any) -> None:
        """Puts the program into its initial state under a config. Raises as `send` and `receive`."""
        with suppress(Misbehaved):  # drops replies to earlier requests; a program that fails here is started again
            while self._link is not None and self._awaited:
                self._receive()
        self.send((), cfg)
        self.receive(0)

    def encoded(self, action: str, arguments: Arguments) -> bytes:
        """Returns a call in the protocol's form: the action, then its arguments in order."""
        key = action, arguments
        text = self._kept.get(key)
        if text is None:
            text = to_json([action, *[plain(each) for each in arguments]])
            if len(self._kept) < _MOST_KEPT:
                self._kept[key] = text
        return text

    def encoded_calls(self, taken: Iterable[tuple[str, Arguments, Any]]) -> list[bytes]:
        """Returns the calls of a trace in the protocol's form."""
        kept, encoded = self._kept.get, self.encoded
        return [kept((action, arguments)) or encoded(action, arguments) for action, arguments, _ in taken]

    def compared_fields(self, observation: Any) -> Any:
        """Returns the fields of the model's observation that the program also observes; None if there are none.

        A program without the list `observes` observes all fields.
        """
        observes = self.hello.observes if self.hello is not None else None
        if observes is None or not isinstance(observation, dict):
            return observation if observes is None else None
        return {k: v for k, v in observation.items() if k in observes} or None

    def difference(self, expected: Any, reply: Reply) -> Difference | None:
        """Returns how the observation in a reply differs from the model's (`expected`); None if they agree."""
        expected = self.compared_fields(expected)
        if expected is None:
            return None
        return observation_difference(expected, reply.observed, "model and program", agrees)

    # ---- replies --------------------------------------------------------------------------------------

    def _parsed_hello(self, line: bytes) -> Hello:
        """Parses a line as a hello. Raises Misbehaved if the line is no hello."""
        data = _object(line)
        if not agrees(VERSION, data.get("brokerproof")):
            message = f"the reply lacks brokerproof: {VERSION}, the version of the protocol: {_short(line)}"
            raise misbehaved(Kind.PROTOCOL, "version", message)
        lists = {}
        for key in ("actions", "settings", "observes"):
            names = data.get(key)
            if names is not None and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
                raise misbehaved(Kind.PROTOCOL, key, f"{key} must be a list of names, got {_short(to_json(names))}")
            lists[key] = None if names is None else tuple(names)
        name = str(data.get("name", self.command[0]))
        return Hello(printable(name.encode(errors="replace"), 200), **lists)

    def _parsed_reply(self, line: bytes, number: int, count: int) -> Reply:
        """Parses a line as the reply to the request `number`, which has `count` calls.

        Raises Misbehaved if the line is no such reply, or if the reply has an error.
        """
        data = _object(line)
        if not same(data.get("id"), number):
            message = f"the reply must have id {number}, got {_short(to_json(data.get('id')))}"
            raise misbehaved(Kind.PROTOCOL, "id", message)
        if data.get("error") is not None:
            raise misbehaved(Kind.CRASH, "error", f"the program reports an error: {_short(to_json(data['error']))}")
        outcomes = data.get("outcomes")
        if not isinstance(outcomes, list) or len(outcomes) != count:
            got = f"{len(outcomes)}" if isinstance(outcomes, list) else "no list"
            raise misbehaved(Kind.PROTOCOL, "outcomes", f"the reply must have outcomes of {count} calls, got {got}")
        return Reply(outcomes, data.get("observed"))


class ProgramSide:
    """A program as the second side of a `Pair`. Each request has one call: the trace is executed in single steps."""

    def __init__(self, program: Program, subject: Subject, cfg: Any) -> None:
        self.program = program
        self.observe: Callable[[Any], Any] = lambda state: subject.machine.observe(cfg, state)
        program.reset(cfg)
        self._reply = Reply([], None)
        self._until = time.monotonic() + program.trace_seconds

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """Raises NotImplementedError: only the fast loop of lockstep needs methods, and this loop runs no programs."""
        raise NotImplementedError

    def agrees(self, outcome: Any, theirs: Any) -> bool:
        """Returns whether the program's outcome equals the model's."""
        return agrees(outcome_data(outcome), theirs)

    def act(self, name: str, arguments: Arguments) -> Any:
        """Sends one call. Returns the outcome in the reply.

        Raises Misbehaved as `Program.send` and `Program.receive`, and if the time of the trace is over. The cause names
        the action.
        """
        try:
            if time.monotonic() > self._until:
                limit = f"{self.program.trace_seconds:g} s"
                message = f"the calls before it took more than {limit}; --reply-seconds allows more"
                raise misbehaved(Kind.UNSTABLE, "slow", message)
            self.program.send([self.program.encoded(name, arguments)])
            self._reply = self.program.receive(1)
        except Misbehaved as problem:
            kind, what = problem.difference.cause
            raise misbehaved(kind, f"{name} {what}", f"{name}: {problem.difference.message}") from None
        return self._reply.outcomes[0]

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:  # noqa: ARG002
        """Returns how the observation in the newest reply differs from that of `state`; None if they agree."""
        return self.program.difference(self.observe(state), self._reply)

    def broken_structure(self) -> Difference | None:
        """Returns None: the protocol has no structural check."""
        return None


class ReplySide(ProgramSide):
    """A program's reply to a whole trace, as a second side. `difference` is valid after the last step only."""

    def __init__(self, program: Program, subject: Subject, cfg: Any, reply: Reply) -> None:
        self.program = program
        self.observe = lambda state: subject.machine.observe(cfg, state)
        self._reply = reply
        self._outcomes = iter(reply.outcomes)

    def act(self, name: str, arguments: Arguments) -> Any:  # noqa: ARG002
        """Returns the next outcome of the reply."""
        return next(self._outcomes)


def introduction(subject: Subject) -> dict[str, Any]:
    """Returns the introduction as an object: the protocol's version, the component, and its settings and actions."""
    machine = subject.machine
    return {
        "brokerproof": VERSION,
        "component": subject.name,
        "settings": {name: describe(kind) for name, kind in machine.fields.items()},
        "actions": {
            action.name: {"arguments": {p.name: describe(p.annotation) for p in action.params}, "fault": action.fault}
            for action in machine.actions.values()
        },
    }


def _object(line: bytes) -> dict[str, Any]:
    """Returns the JSON object of a line. Raises Misbehaved if there is none, or if it is nested too deeply."""
    try:
        data = from_json(line)
    except NotJSON as problem:
        raise misbehaved(Kind.PROTOCOL, "not JSON", f"not JSON ({problem}): {_short(line)}") from None
    if not isinstance(data, dict):
        raise misbehaved(Kind.PROTOCOL, "no object", f"a reply must be a JSON object: {_short(line)}")
    level: list[Any] = [data]
    for _ in range(_MAX_DEPTH + 1):
        if not level:
            return data
        parts = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for each in parts for part in each if isinstance(part, dict | list)]
    raise misbehaved(Kind.PROTOCOL, "too deep", f"more than {_MAX_DEPTH} nested lists and objects: {_short(line)}")


def _short(line: bytes) -> str:
    """Returns the beginning of a line, for a message."""
    return printable(line, 80)
