"""The timing law of the C++ client's redelivery commands, for the commands of a simulated client.

The simulation states the rules of the client's timer by itself. Its runs are late, by at most the bound.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.answers import nacks
from fuzz.answers.nacks import MS, Call, Command
from model.positions import Position

DELAY_MS = 300
DELAY, INTERVAL = DELAY_MS * MS, DELAY_MS // 3 * MS
#: nanoseconds; less than half of the interval
BOUND = 45 * MS

#: The time after the call before, in microseconds: calls of one loop, or of different steps of a schedule.
GAPS = st.one_of(st.integers(0, 50), st.integers(0, 120_000))
#: The lags of runs in nanoseconds.
LAGS = st.lists(st.one_of(st.integers(MS // 20, 2 * MS), st.integers(MS // 20, BOUND)), min_size=1, max_size=20)


def calls_after(gaps: list[int]) -> list[Call]:
    """Returns a nack of another entry after each gap (microseconds). A call takes no time."""
    times = [sum(gaps[: n + 1]) * 1000 for n in range(len(gaps))]
    return [Call(at, at, Position(1, entry)) for entry, at in enumerate(times)]


def commands_of_client(calls: list[Call], lags: list[int], transit: int = 0) -> list[Command]:
    """Returns the commands of a client. A nack arms the timer again; a run requests the redelivery of all due entries.

    The run with number n is late by `lags[n]`, then by the first lag again. A command comes `transit` ns after its run.
    """
    commands, pending, timer, runs = list[Command](), list[Call](), None, 0
    waiting = list(calls)
    while waiting or timer is not None:
        run = None if timer is None else timer + lags[runs % len(lags)]
        if waiting and (run is None or waiting[0].at <= run):
            pending.append(waiting.pop(0))
            timer = pending[-1].at + INTERVAL
            continue
        assert run is not None, "a timer is armed if no call waits"
        runs += 1
        # a due time is rounded down to a multiple of 256 ns
        due = [call for call in pending if (call.at + DELAY) // 256 * 256 <= run]
        timer = run + INTERVAL if pending else None
        pending = [call for call in pending if call not in due]
        if due:
            commands.append(Command(run + transit, tuple([call.entry for call in due if call.entry])))
    return commands


def obeys(calls: list[Call], commands: list[Command], bound: int = BOUND) -> bool:
    """Returns whether the commands obey the timing law."""
    return nacks.obeys_timing_law(DELAY_MS, calls, commands, bound)


@given(st.lists(GAPS, min_size=1, max_size=20), LAGS, st.integers(0, MS))
@example([0, 1, 98_444], [50_000, 1_505_000], 768)  # a search over a few lags misses it
def test_the_commands_of_a_late_client_obey_the_law(gaps: list[int], lags: list[int], transit: int) -> None:
    calls = calls_after(gaps)
    assert obeys(calls, commands_of_client(calls, lags, transit))


@given(st.lists(GAPS, min_size=1, max_size=20), LAGS, st.data())
def test_a_missing_command_and_a_command_without_a_due_entry_violate_the_law(
    gaps: list[int], lags: list[int], data: st.DataObject
) -> None:
    calls = calls_after(gaps)
    commands = commands_of_client(calls, lags)
    lost = data.draw(st.integers(0, len(commands) - 1))
    assert not obeys(calls, [*commands[:lost], *commands[lost + 1 :]])
    assert not obeys(calls, [*commands, commands[lost]])


@given(st.lists(GAPS, min_size=1, max_size=20), st.integers(1, 10))
def test_a_command_that_is_later_than_the_bound_allows_violates_the_law(gaps: list[int], excess: int) -> None:
    """The last nack is due in the third run after it. Each run may be late by the bound, and the command once more."""
    calls, bound = calls_after(gaps), MS
    commands = commands_of_client(calls, [0])
    assert obeys(calls, commands, bound)
    late = commands[-1]._replace(at=commands[-1].at + 4 * bound + excess * MS)
    assert not obeys(calls, [*commands[:-1], late], bound)


def test_a_run_during_a_call_obeys_the_law() -> None:
    """The timer runs after the second call began, and before its nack reaches the tracker."""
    first, start = Call(0, 0, Position(1, 0)), 3 * INTERVAL - MS // 2
    commands = [Command(3 * INTERVAL + MS, (Position(1, 0),)), Command(start + 3 * MS + DELAY, (Position(1, 1),))]
    assert obeys([first, Call(start, start + 3 * MS, Position(1, 1))], commands, 2 * MS)
    assert not obeys([first, Call(start, start, Position(1, 1))], commands, 2 * MS)
