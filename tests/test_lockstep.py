"""The lockstep engine: each way in which an implementation can be wrong is told apart from the others."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

import pytest

from fuzz.run.lockstep import CHECK_EVERY, AnotherProfile, Finding, Hang, Lockstep, replay, same, watchdog
from fuzz.subject import Subject, find_profile, find_subject
from impl.range_cache import RangeCaches
from model.machine import Machine, Refused
from model.range_cache import Config, State

SUBJECT = find_subject("range_cache")
REFERENCE = find_profile(SUBJECT, "reference")


def found(body: type, *, seeds: int = 300) -> Finding:
    """What the fast loop finds in a wrong implementation."""
    lockstep = Lockstep(replace(SUBJECT, implementation=body), REFERENCE)
    finding = next(f for f in map(lockstep.run, range(seeds)) if f is not None)
    again = replay(lockstep.subject, finding.config, finding.actions)
    assert again is not None
    assert again.cause == finding.cause
    return finding


def test_another_outcome() -> None:
    class Wrong(RangeCaches):
        def exists(self, cache: int, position: Any) -> bool:
            return True

    assert found(Wrong).cause == "outcome:exists"


def test_one_is_not_true_to_a_caller() -> None:
    class Wrong(RangeCaches):
        def exists(self, cache: int, position: Any) -> Any:
            return int(super().exists(cache, position))

    assert not same(1, True)
    replayed = replay(replace(SUBJECT, implementation=Wrong), REFERENCE, [("exists", (0, (1, 0)))])
    assert replayed is not None
    assert replayed.cause == "outcome:exists"


def test_another_state() -> None:
    class Wrong(RangeCaches):
        def advance(self, nanos: int) -> None:
            self.now_ns += nanos + (nanos == 11)

    assert found(Wrong).cause == "view:now_ns"


def test_a_broken_structure() -> None:
    class Wrong(RangeCaches):
        def check(self) -> list[str]:
            return ["something is loose"] if len(self._queue) > 3 else []

    assert found(Wrong).cause == "structure:something is loose"


def test_an_exception() -> None:
    class Wrong(RangeCaches):
        def clear(self, cache: int) -> Any:
            raise IndexError(cache)

    finding = found(Wrong)
    assert finding.cause == "crash:clear IndexError"
    assert "clear raised IndexError" in finding.difference.message


def test_one_that_cannot_be_made() -> None:
    class Wrong(RangeCaches):
        def __init__(self, cfg: Config) -> None:
            super().__init__(cfg)
            raise LookupError("no room")

    finding = found(Wrong)
    assert finding.cause == "crash:start LookupError"
    assert len(finding.actions) == 1  # which is the first one, so that there is a trace to replay


def test_an_endless_loop() -> None:
    class Wrong(RangeCaches):
        def clear(self, cache: int) -> Any:
            while True:
                pass

    assert found(Wrong).cause == "hang:clear"


def test_a_refusal_that_changes_the_state() -> None:
    """In the model itself: such a rule would be believed by all other engines."""
    machine: Machine[Config, State] = Machine("range_cache", Config, SUBJECT.machine.start, source="test")
    machine.actions = dict(SUBJECT.machine.actions)
    run = machine.actions["size_pass"].run

    def wrong(cfg: Config, s: State, bytes_to_free: int) -> Any:
        after, outcome = run(cfg, s, bytes_to_free)
        return (
            (after._replace(next_copy=s.next_copy + 1), outcome) if isinstance(outcome, Refused) else (after, outcome)
        )

    machine.actions["size_pass"] = machine.actions["size_pass"]._replace(run=wrong)
    finding = replay(replace(SUBJECT, machine=machine), REFERENCE, [("size_pass", (0,))])
    assert finding is not None
    assert finding.cause == "stutter:size_pass"


def test_a_broken_property_is_named_with_its_guarantee() -> None:
    lockstep = Lockstep(SUBJECT, find_profile(SUBJECT, "pulsar-2026-07"))
    finding = next(
        f for f in map(lockstep.run, range(50)) if f is not None and f.broken_property == "latest_put_sets_the_counter"
    )
    assert finding.difference.message.startswith("latest_put_sets_the_counter: After a put the entry expects")


def test_what_does_not_reproduce_is_called_unstable() -> None:
    class Wrong(RangeCaches):
        calls = 0

        def exists(self, cache: int, position: Any) -> bool:
            type(self).calls += 1
            return super().exists(cache, position) ^ (type(self).calls == 5)

    lockstep = Lockstep(replace(SUBJECT, implementation=Wrong), REFERENCE)
    finding = next(f for f in map(lockstep.run, range(300)) if f is not None)
    assert finding.cause == "unstable:replay"


@pytest.mark.parametrize("offset", range(0, CHECK_EVERY, 5))
def test_a_state_that_stays_wrong_is_seen_wherever_it_begins(offset: int) -> None:
    """Views are compared at every sixteenth step and at the end: nothing that stays can hide between."""

    class Wrong(RangeCaches):
        steps = 0

        def advance(self, nanos: int) -> None:
            self.steps += 1
            self.now_ns += nanos + (self.steps == offset + 1)

    assert found(Wrong).cause in ("view:now_ns", "view:queue")


def test_a_profile_against_itself_shows_nothing() -> None:
    lockstep = Lockstep(SUBJECT, REFERENCE, against=REFERENCE)
    assert [lockstep.run(seed) for seed in range(50)] == [None] * 50


@pytest.mark.parametrize("other", ["pulsar-2026-07", "fifo", "stash"])
def test_two_profiles_are_told_apart(other: str) -> None:
    lockstep = Lockstep(SUBJECT, REFERENCE, against=find_profile(SUBJECT, other))
    finding = next(f for f in map(lockstep.run, range(100)) if f is not None)
    assert replay(SUBJECT, finding.config, finding.actions, against=lockstep.other_config(finding.config)) is not None
    assert isinstance(AnotherProfile(SUBJECT, REFERENCE).method("advance"), object)


def test_muted_properties_do_not_hide_others() -> None:
    lockstep = Lockstep(SUBJECT, find_profile(SUBJECT, "pulsar-2026-07"))
    seen: set[str] = set()
    for seed in range(2500):
        finding = lockstep.run(seed)
        if finding is not None and finding.broken_property is not None:
            seen.add(finding.broken_property)
            lockstep.muted |= {finding.broken_property}
    assert seen == {
        "an_inverted_range_is_empty",
        "latest_put_sets_the_counter",
        "only_delivery_lowers_a_counter",
        "sizes_are_sums",
        "a_size_pass_takes_no_more_than_needed",
    }


def test_the_watchdog_stops_what_does_not_come_back() -> None:
    started = time.process_time()
    with pytest.raises(Hang), watchdog(0.05):
        sum(1 for _ in iter(int, 1))
    assert time.process_time() - started < 1.0


def test_a_collection_of_garbage_is_no_hang() -> None:
    """It takes as long as the process is large, whatever the body does."""
    assert gc.isenabled()
    with watchdog(1.0):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(Hang), watchdog(0.05):
        sum(1 for _ in iter(int, 1))
    assert gc.isenabled()


def test_coverage_counts_every_step() -> None:
    lockstep = Lockstep(SUBJECT, REFERENCE)
    for seed in range(20):
        lockstep.run(seed)
    assert sum(lockstep.coverage.pairs) == lockstep.coverage.steps == 20 * SUBJECT.steps
    assert lockstep.coverage.traces == 20


def test_the_subject_stands_for_what_users_import() -> None:
    assert isinstance(SUBJECT, Subject)
    assert SUBJECT.implementation is RangeCaches
