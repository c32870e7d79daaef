"""When a client asks for the redelivery of negatively acknowledged entries, by the model `negative_acks`.

The profile `cpp` has the rules of the C++ client. The client's timer runs once in an interval, and asks for the
redelivery of all due entries. A run may be late: its lag is unknown. The next run is due an interval after the late
one. So the model allows commands at many times. The contracts check that the model allows those of a real client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.negative_acks.machine import Config, Elapsed, State, cpp, delay_of, negative_acks, reference, timer_interval
from model.negative_acks.message_ids import NackedId
from model.positions import Position

MS = 1_000_000
#: Lags of a timer run in nanoseconds: on an idle machine, and on a busy one. The search also tries others (`_lags`).
_LAGS = (MS // 20, MS * 5 // 2)
#: Nanoseconds by which a run of the model may be later than its command: earlier runs may have had smaller lags than
#: those that the search tries.
_SLACK = MS
#: A lag with which the timer does not run.
_NEVER = 10**18


class Call(NamedTuple):
    """A nack of an entry, or the close if there is no entry."""

    at: int  # nanoseconds
    entry: Position | None


class Command(NamedTuple):
    """A redelivery command; without entries, for all unacknowledged messages."""

    at: int  # nanoseconds
    entries: tuple[Position, ...]


def delay(delay_ms: int) -> int:
    """Returns the delay of a nack in nanoseconds, by the model's reference, for a configured delay in milliseconds."""
    return delay_of(reference.config._replace(redelivery_delay_ms=delay_ms, clock_unit="ns"), None) or 0


def interval(delay_ms: int) -> int:
    """Returns the interval of the C++ client's timer in nanoseconds, for a configured delay in milliseconds."""
    return timer_interval(cpp.config._replace(redelivery_delay_ms=delay_ms))


class _Node(NamedTuple):
    """A point of the search: a state, and the numbers of calls and commands up to this state."""

    state: State
    calls: int
    commands: int


def obeys_timing_law(delay_ms: int, calls: Sequence[Call], commands: Sequence[Command], bound: int) -> bool:
    """Returns whether the model can make these commands after these calls, if timer runs are at most `bound` ns late.

    Calls and commands are in the order of their times. The search is depth-first over the lag of each run. It treats
    states after the same calls and commands as equal if they have equally many buckets, and their timers are in the
    same millisecond. So the result may be a wrong False.
    """
    cfg = cpp.config._replace(redelivery_delay_ms=delay_ms, initial_time=calls[0].at if calls else 0)
    stack, seen = [_Node(negative_acks.start(cfg), 0, 0)], set()
    while stack:
        node = stack.pop()
        s = node.state
        key = (node.calls, node.commands, len(s.buckets), None if s.timer is None else s.timer // MS)
        if key in seen:
            continue
        seen.add(key)
        call = calls[node.calls] if node.calls < len(calls) else None
        if s.timer is None and call is None:
            if node.commands == len(commands):
                return True
            continue
        if call is not None and (s.timer is None or call.at <= s.timer + bound):
            stack.append(node._replace(state=_called(cfg, s, call), calls=node.calls + 1))
        for lag in _lags(s, node, commands, bound):
            after = _run(cfg, node, lag, commands, bound)
            if after is not None and (call is None or after.state.now <= call.at):
                stack.append(after)
    return False


def _lags(s: State, node: _Node, commands: Sequence[Command], bound: int) -> list[int]:
    """Returns the lags of the next run in nanoseconds. The search tries the last one first."""
    if s.timer is None:
        return []
    # the lag with which the run would be at the time of the next command
    shown = [command.at - s.timer for command in commands[node.commands : node.commands + 1]]
    return [bound, *[lag for lag in shown if 0 < lag < bound], *reversed(_LAGS)]


def _called(cfg: Config, s: State, call: Call) -> State:
    """Returns the state after a call. The timer does not run between the state before and the call."""
    s, _ = negative_acks.step(cfg, s, "advance_time", (max(0, call.at - s.now), _NEVER))
    if call.entry is None:
        return negative_acks.step(cfg, s, "close", ())[0]
    return negative_acks.step(cfg, s, "nack", (call.entry, None, NackedId()))[0]


def _run(cfg: Config, node: _Node, lag: int, commands: Sequence[Command], bound: int) -> _Node | None:
    """Returns the point after the next run of the timer, late by `lag`; None if the next command contradicts it."""
    s = node.state
    assert s.timer is not None, "the timer is armed"
    at = max(s.timer + lag, s.now)
    s, outcome = negative_acks.step(cfg, s, "advance_time", (at - s.now, lag))
    assert isinstance(outcome, Elapsed), "time advances"
    command = commands[node.commands] if node.commands < len(commands) else None
    if not outcome.redeliveries:  # this run makes no command, and no later run makes a command before this run
        return None if command is not None and command.at + _SLACK < at else node._replace(state=s)
    entries = tuple([each.position for each in outcome.redeliveries[0].ids])
    # a command without entries asks for all unacknowledged messages, so it includes these entries
    if (
        command is None
        or not at - _SLACK <= command.at <= at + bound
        or set(command.entries) not in (set(), set(entries))
    ):
        return None
    return node._replace(state=s, commands=node.commands + 1)
