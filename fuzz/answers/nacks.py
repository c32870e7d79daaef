"""When a client asks for the redelivery of negatively acknowledged entries, by the model `negative_acks`.

The profile `cpp` has the rules of the C++ client. The client's timer runs once in an interval, and asks for the
redelivery of all due entries. A run may be late: its lag is unknown. The next run is due an interval after the late
one. So the model allows commands at many times. The contracts check that the model allows those of a real client.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from model.negative_acks.machine import Config, Elapsed, State, cpp, delay_of, negative_acks, reference, timer_interval
from model.negative_acks.message_ids import NackedId
from model.positions import Position

MS = 1_000_000
#: A lag with which the timer does not run.
_NEVER = 10**18


class Call(NamedTuple):
    """A nack of an entry, or the close if there is no entry. Times are in nanoseconds."""

    at: int  # the start of the call
    end: int
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
    """A point of the search: the state with its earliest timer, and the numbers of calls and commands so far."""

    state: State
    width: int  # the timer may be later by up to this number of nanoseconds
    calls: int
    commands: int


def obeys_timing_law(delay_ms: int, calls: Sequence[Call], commands: Sequence[Command], bound: int) -> bool:
    """Returns whether the model can make these commands after these calls, if timer runs are at most `bound` ns late.

    A command may come up to `bound` after its run. Calls and commands are in the order of their times. The search is
    depth-first: the next event is a call, or a run with certain due buckets. All lags with which a run removes the same
    buckets are one step of the search, because only the time of the next run depends on them: it is an interval. A call
    takes effect between its start and its end, and so does the timer that it arms; but its nack is due a delay after
    the earliest of these times. So the result may be a wrong False if a run falls between the two.
    """
    cfg = cpp.config._replace(redelivery_delay_ms=delay_ms, initial_time=calls[0].at if calls else 0)
    stack, seen = [_Node(negative_acks.start(cfg), 0, 0, 0)], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        call = calls[node.calls] if node.calls < len(calls) else None
        timer = node.state.timer
        if timer is None and call is None and node.commands == len(commands):
            return True
        if call is not None and (timer is None or call.at <= timer + node.width + bound):
            stack.append(_called(cfg, node, call))
        if timer is not None:
            latest = timer + node.width + bound
            command = commands[node.commands] if node.commands < len(commands) else None
            for first, last in _windows(node.state, latest if call is None else min(latest, call.end)):
                stack.extend(_run(cfg, node, first, last, command, bound))
    return False


def _windows(s: State, latest: int) -> list[tuple[int, int]]:
    """Returns the first and the last time of runs that remove the same buckets, up to the latest time of a run."""
    assert s.timer is not None, "the timer is armed"
    first = max(s.timer, s.now)
    # a bucket is due at its time or a unit later, depending on a rule
    times = [at for bucket in s.buckets for at in (bucket.time, bucket.time + 1) if first < at <= latest]
    starts = sorted({first, *times}) if first <= latest else []
    return [(at, after - 1) for at, after in pairwise([*starts, latest + 1])]


def _called(cfg: Config, node: _Node, call: Call) -> _Node:
    """Returns the point after a call. The timer does not run between the point before and the call."""
    s, _ = negative_acks.step(cfg, node.state, "advance_time", (max(0, call.at - node.state.now), _NEVER))
    if call.entry is None:
        after, _ = negative_acks.step(cfg, s, "close", ())
    else:
        after, _ = negative_acks.step(cfg, s, "nack", (call.entry, None, NackedId()))
    width = node.width if after.timer == s.timer else max(0, call.end - s.now)
    return node._replace(state=after, width=width, calls=node.calls + 1)


def _run(cfg: Config, node: _Node, first: int, last: int, command: Command | None, bound: int) -> list[_Node]:
    """Returns the point after a run in this window of time; nothing if the next command contradicts it."""
    s = node.state
    assert s.timer is not None, "the timer is armed"
    s, outcome = negative_acks.step(cfg, s, "advance_time", (first - s.now, first - s.timer))
    assert isinstance(outcome, Elapsed), "time advances"
    if not outcome.redeliveries:
        # no later run makes a command before this run
        last = last if command is None else min(last, command.at)
        return [node._replace(state=s, width=last - first)] if first <= last else []
    entries = tuple([each.position for each in outcome.redeliveries[0].ids])
    # a command without entries asks for all unacknowledged messages, so it includes these entries
    if command is None or set(command.entries) not in (set(), set(entries)):
        return []
    earliest, last = max(first, command.at - bound), min(last, command.at)
    if earliest > last:
        return []
    timer = None if s.timer is None else s.timer + earliest - first
    state = s._replace(now=earliest, timer=timer)
    return [node._replace(state=state, width=last - earliest, commands=node.commands + 1)]
