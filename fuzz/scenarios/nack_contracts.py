"""Contracts of negative acknowledgements (nacks).

A client keeps nacks in a tracker. The tracker's timer runs once in an interval, and requests the redelivery of the
entries whose delay is over. The brokers record the times of commands, the client's process records the times of calls.

A command may be late because the machine is busy. Both processes measure lateness while the schedule runs: the client's
process by sleeps and calls, the brokers by sleeps and by pings, which the client's network thread answers. The bound on
the lateness of a command is 25 ms plus the largest measured lateness. Times are judged only if the bound is less than
half of the interval: otherwise two runs of the timer cannot be distinguished.
"""

from __future__ import annotations

from itertools import pairwise

from fuzz.answers import nacks
from fuzz.answers.nacks import MS, Call, Command
from fuzz.client.contracts import contract
from fuzz.client.run import Observed
from model.positions import Position

#: Milliseconds that a command may be late even if no lateness was measured.
_LATE_MS = 25
#: The tracker rounds due times down to a multiple of this number of nanoseconds.
_CUT_NS = 256


def _calls(seen: Observed) -> list[Call]:
    """Returns the accepted nacks up to the first close of the consumer, and the close."""
    found = []
    for kind, before, after, ledger, entry, _, error in seen.calls:
        at, end = int(before * 1e9), int(after * 1e9)
        if kind == "negative_acknowledge" and not error:
            found.append(Call(at, end, Position(ledger, entry)))
        elif kind == "close":
            return [*found, Call(at, end, None)]
    return found


def _commands(seen: Observed) -> list[Command]:
    """Returns the redelivery commands, in order."""
    start = seen.report.get("started", 0.0) * 1e9
    kinds = [(at, about["ids"]) for at, _, kind, about in seen.report.get("commands", ()) if kind == "REDELIVER"]
    return [Command(int(start + at * MS), tuple([Position(*each[:2]) for each in ids])) for at, ids in kinds]


def _bound(seen: Observed) -> int:
    """Returns the bound on lateness in nanoseconds."""
    return int(_LATE_MS * MS + max(seen.lateness, seen.report.get("lateness", 0.0)) * 1e9)


def judges_times(seen: Observed) -> bool:
    """Whether times are judged: the bound on lateness is less than half of the interval of the timer."""
    return _bound(seen) < nacks.interval(seen.settings.get("delay", 0)) // 2


def _bound_if_judged(seen: Observed) -> int | None:
    """Returns the bound on lateness in nanoseconds; None if times are not judged."""
    return _bound(seen) if judges_times(seen) else None


@contract
def redelivery_command_has_due_entries(seen: Observed) -> str:
    """A redelivery command has entries whose delay is over, in order, each once.

    A nack leads to at most one request. There are never more commands than nacks whose delay is over.
    """
    delay, calls = nacks.delay(seen.settings.get("delay", 0)), _calls(seen)
    dues = [(call.at + delay, call.entry) for call in calls if call.entry is not None]
    for number, command in enumerate(commands := _commands(seen)):
        if any(a >= b for a, b in pairwise(command.entries)):
            return f"command {number} has {command.entries}"
        for entry in command.entries:
            before = sum(entry in each.entries for each in commands[:number])
            if sum(due <= command.at + _CUT_NS and nacked == entry for due, nacked in dues) <= before:
                return f"command {number} has {entry}, which is not due"
        if sum(due <= command.at + _CUT_NS for due, _ in dues) <= number:
            return f"command {number} comes before another nack is due"
    return ""


@contract
def redelivery_follows_timing_law(seen: Observed) -> str:
    """Until close, commands come when the model `negative_acks` makes them (profile `cpp`), with all due entries."""
    bound, calls = _bound_if_judged(seen), _calls(seen)
    closed = next((call.at for call in calls if call.entry is None), None)
    commands = [each for each in _commands(seen) if closed is None or each.at <= closed + _bound(seen)]
    if bound is None or nacks.obeys_timing_law(seen.settings.get("delay", 0), calls, commands, bound):
        return ""
    start = min([call.at for call in calls], default=0)
    called = ", ".join(f"{(c.at - start) / MS:.1f}" for c in calls)
    came = ", ".join(f"{(c.at - start) / MS:.1f} ({len(c.entries)})" for c in commands)
    return f"calls at {called} ms; commands at {came} ms with a bound of {bound / MS:.1f} ms"


@contract
def redelivery_is_in_time(seen: Observed) -> str:
    """A nacked entry is requested when its delay is over, if no other nack is made during the delay."""
    return _late(seen, is_undisturbed=True)


@contract
def later_nack_postpones_no_redelivery(seen: Observed) -> str:
    """A nacked entry is requested when its delay is over, also if other nacks are made during the delay."""
    return _late(seen, is_undisturbed=False)


def _late(seen: Observed, *, is_undisturbed: bool) -> str:
    """Returns a text about a nacked entry that is not requested, or about the latest request; "" if none is late.

    A request is late if it comes later than the due time plus the bound. A nack is undisturbed if no other nack follows
    before this one is due. With `is_undisturbed`, judges undisturbed nacks only; otherwise, only the others. A nack is
    not judged if the consumer was closed before the due time plus the bound.
    """
    bound, calls, commands = _bound_if_judged(seen), _calls(seen), _commands(seen)
    delay = nacks.delay(seen.settings.get("delay", 0))
    closed = next((call.at for call in calls if call.entry is None), None)
    late = 0
    # the added call stands for the end of the run: it comes after the last nack is due
    for call, following in pairwise([*calls, calls[-1]._replace(at=calls[-1].at + 2 * delay)] if calls else []):
        due = call.at + delay
        if bound is None or call.entry is None or (closed is not None and closed < due + bound):
            continue
        if is_undisturbed != (following.at > due):
            continue
        # a command without entries requests all unacknowledged messages
        found = [c.at for c in commands if c.at + _CUT_NS >= due and (not c.entries or call.entry in c.entries)]
        if not found:
            return f"{call.entry} is not requested"
        late = max(late, min(found) - due - bound)
    return f"a request is late by {late / MS:.1f} ms more than the bound of {(bound or 0) / MS:.1f} ms" if late else ""


@contract
def closed_consumer_redelivers_nothing(seen: Observed) -> str:
    """After close, no redelivery is requested."""
    closed = [call.at for call in _calls(seen) if call.entry is None]
    late = [each for each in _commands(seen) if closed and each.at > closed[0] + _bound(seen)]
    return f"{len(late)} redelivery commands after close" if late else ""


@contract
def nack_after_close_is_rejected(seen: Observed) -> str:
    """A closed consumer rejects a negative acknowledgement, as it rejects an acknowledgement."""
    kinds = [(each[0], each[6]) for each in seen.calls]
    after = kinds[kinds.index(("close", "")) :] if ("close", "") in kinds else []
    accepted = [kind for kind, error in after if kind == "negative_acknowledge" and not error]
    return f"{len(accepted)} nacks after close are accepted" if accepted else ""


@contract
def queued_message_is_received_once(seen: Observed) -> str:
    """A message that was still in the receiver queue when redelivery was requested is received once."""
    # `queued`: the messages that the application had not received when the last step ended
    received = [int(message[0]) for message in seen.received]
    twice = [number for number in seen.queued if received.count(number) > 1]
    return f"{len(twice)} queued messages were received again" if twice else ""
