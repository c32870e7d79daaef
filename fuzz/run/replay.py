"""Replay: executes given calls with everything checked at every step."""

from __future__ import annotations

from fuzz.run.call import Calls
from fuzz.run.checks import NONE_SKIPPED, Skipped, all_but
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.pair import Pair, load_difference
from fuzz.run.watchdog import HANG_SECONDS, Hang, time_limit, watchdog
from fuzz.target import Target


def replay(
    target: Target,
    calls: Calls,
    *,
    seed: int | None = None,
    hang_seconds: float = HANG_SECONDS,
    skipped: Skipped = NONE_SKIPPED,
) -> Finding | None:
    """Executes calls with everything checked at every step, then checks `load`. Returns the first finding, or None.

    Every step gets a copy of its call (`Call.copy`), as if the call was read from a file. `time_limit` says how much
    processor time the trace has; beyond it, the finding is a HANG at the last call that was begun. `seed` is the seed
    of the finding. Without calls nothing is checked. Raises Hang if the implementation cannot be made in time and there
    is no call.
    """
    config, at, limit = target.config, 0, time_limit(len(calls), hang_seconds)
    try:
        with watchdog(limit):
            pair = Pair(target, skipped)
            for at, call in enumerate(calls):
                difference = pair.step(call.copy())
                if difference is not None:
                    return Finding(config, tuple(calls[: at + 1]), difference, seed)
            difference = load_difference(target, calls) if calls else None
            if difference is not None:
                return Finding(config, tuple(calls), difference, seed)
    except Hang:
        if not calls:
            raise
        return Finding(config, tuple(calls[: at + 1]), hang_difference(calls[at].action, limit), seed)
    return None


def skipped_for(target: Target, finding: Finding) -> Skipped:
    """Returns the properties that replays of a finding skip: all but the violated one, since others may fail earlier.

    If the finding violates no property, replays skip all. But if the finding is a CRASH that such a replay does not
    show, a property may have raised the exception, and replays skip none.
    """
    skipped = all_but(target.subject, finding.broken_property)
    if finding.cause.kind is not Kind.CRASH:
        return skipped
    again = replay(target.with_config(finding.config), finding.calls, skipped=skipped)
    return skipped if again is not None and again.cause == finding.cause else NONE_SKIPPED


def hang_difference(action: str, seconds: float) -> Difference:
    """Returns the difference for a trace that exceeded its processor time at an action."""
    message = f"{action} had not returned when the trace had used {seconds:g} s of processor time"
    return Difference(Cause(Kind.HANG, action), message)
