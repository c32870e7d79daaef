"""The lockstep engine: each kind of defect of an implementation has its own kind of finding.

The *fast loop* (`Lockstep.run`) generates a trace, and checks some of its steps. A replay checks every step.
"""

from __future__ import annotations

import copy
import gc
import signal
from collections import Counter, deque
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import pytest

from fuzz.campaign.worker import Spec, trace_of
from fuzz.explore.edge_cover import cover
from fuzz.explore.search import Space, explore
from fuzz.run.call import Call
from fuzz.run.compare import exact, same
from fuzz.run.coverage import pair_key, total_of
from fuzz.run.finding import Cause, Finding, Kind
from fuzz.run.generate import generate, plan_trace
from fuzz.run.lockstep import CHECK_EVERY, Lockstep
from fuzz.run.pair import ImplementationSide, Pair, load_difference
from fuzz.run.replay import replay
from fuzz.run.shrink import shrink
from fuzz.run.watchdog import Hang, watchdog
from fuzz.subject import Subject, find_profile, find_subject, subject_names
from fuzz.target import Second, Target, resolve
from fuzz.trace.agreement import replayer_of
from impl.range_cache import RangeCaches
from invariants.properties import Event, always, history, sometimes
from model.machine import Machine, Refused
from model.positions import Position
from model.range_cache import Config, State

SUBJECT = find_subject("range_cache")
REFERENCE = find_profile(SUBJECT, "reference")
CANARY = find_subject("canary")


def found(implementation: type, *, seeds: int = 300) -> Finding:
    """Returns the first finding of the fast loop in a wrong implementation. Its replay must show the same cause."""
    target = Target(replace(SUBJECT, implementation=implementation), REFERENCE)
    finding = next(f for f in map(Lockstep(target).run, range(seeds)) if f is not None)
    again = replay(target.with_config(finding.config), finding.calls)
    assert again is not None
    assert again.cause == finding.cause
    return finding


def test_another_outcome() -> None:
    class Wrong(RangeCaches):
        def exists(self, cache: int, position: Any) -> bool:
            return True

    assert found(Wrong).cause == Cause(Kind.OUTCOME, "exists")


def test_one_is_not_true_to_a_caller() -> None:
    class Wrong(RangeCaches):
        def exists(self, cache: int, position: Any) -> Any:
            return int(super().exists(cache, position))

    assert not same(1, True)
    target = Target(replace(SUBJECT, implementation=Wrong), REFERENCE)
    replayed = replay(target, [Call("exists", (0, Position(1, 0)))])
    assert replayed is not None
    assert replayed.cause == Cause(Kind.OUTCOME, "exists")
    assert (replayed.difference.expected, replayed.difference.actual) == (False, 0)
    assert found(Wrong).cause == Cause(Kind.OUTCOME, "exists"), "the fast loop compares types as well"


def test_a_view_of_another_type_is_another_state() -> None:
    class Wrong(RangeCaches):
        def view(self) -> State:
            state = super().view()
            return state._replace(now_ns=float(state.now_ns))  # type: ignore[arg-type]

    assert found(Wrong).cause == Cause(Kind.VIEW, "now_ns")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((1, (2, True)), (1, (2, 1))),
        (Position(1, 2), (1, 2)),
        ([1], (1,)),
        ({"x": 1}, {"x": True}),
        ({1: "x"}, {True: "x"}),
        (frozenset([1]), frozenset([True])),
        (frozenset([(1, 2)]), frozenset([(1, True), (1, 2)])),
        (2**80, True),
        ((2**80, 1), (2**80, True)),
        ("a", "b"),
    ],
)
def test_values_of_other_types_are_not_the_same(a: Any, b: Any) -> None:
    """`same` does not distinguish a record inside a value from the tuple of its fields; `exact` does."""
    assert not same(a, b)
    assert not same((a, 1), (b, 1)) or isinstance(a, Position)
    assert not exact((a, 1), (b, 1))
    for each in (a, b):
        assert same(each, copy.deepcopy(each))
        assert exact((each, 1), (copy.deepcopy(each), 1))


def test_a_tuple_in_place_of_a_record_is_another_view() -> None:
    """Both have the same encoding: only an exact comparison, as at the end of a trace, distinguishes them."""

    class Wrong(RangeCaches):
        def view(self) -> State:
            state = super().view()
            return state._replace(queue=tuple([e and e._replace(position=tuple(e.position)) for e in state.queue]))  # type: ignore[arg-type, misc]

    wrong, right = Wrong(REFERENCE), RangeCaches(REFERENCE)
    for each in (wrong, right):
        each.put(0, Position(1, 0), 10, 1)
    assert same(wrong.view(), right.view())
    assert not exact(wrong.view(), right.view())
    assert found(Wrong).cause == Cause(Kind.VIEW, "queue")


def test_a_tuple_in_place_of_a_record_is_another_outcome() -> None:
    class Wrong(RangeCaches):
        def get(self, *arguments: Any) -> Any:
            hit = super().get(*arguments)
            return hit and hit._replace(position=tuple(hit.position))  # type: ignore[arg-type]

    assert found(Wrong).cause == Cause(Kind.OUTCOME, "get")


def test_an_observation_that_depends_on_the_order_of_a_set() -> None:
    """Model and implementation are in the same state, but their observations differ."""

    class Members(NamedTuple):
        members: frozenset[int] = frozenset()

    machine: Machine[Any, Members] = Machine("canary", CANARY.machine.config, lambda cfg: Members(), source="test")

    @machine.action
    def join(cfg: Any, s: Any, first: int, second: int) -> Any:
        """Two join at once."""
        return Members(frozenset([*s.members, first, second])), None

    class Group(RangeCaches):
        def __init__(self, cfg: Any, members: frozenset[int] = frozenset()) -> None:
            self.members = members

        def join(self, first: int, second: int) -> None:
            self.members = frozenset([second, first, *self.members])

        def view(self) -> Any:
            return Members(self.members)

        def check(self) -> list[str]:
            return []

        @classmethod
        def load(cls, cfg: Any, state: Any) -> Any:
            return cls(cfg, state.members)

    machine.observe = lambda cfg, s: {"members": list(s.members)}
    subject = Subject(machine, Group, ModuleType("none"), {"first": (0,), "second": (8,)}, steps=2)
    finding = Lockstep(Target(subject, CANARY.machine.config())).run(0)
    assert finding is not None
    assert finding.cause == Cause(Kind.VIEW, "members")
    machine.observe = lambda cfg, s: {}
    assert Lockstep(Target(subject, CANARY.machine.config())).run(0) is None


class Forgetful(RangeCaches):
    """`clear` of a loaded instance reports one entry too many, if it removes any. View and check do not show this."""

    loaded = False

    def clear(self, cache: int) -> Any:
        removed = super().clear(cache)
        return removed._replace(entries=removed.entries + 1) if self.loaded and removed.entries else removed

    @classmethod
    def load(cls, cfg: Config, s: State) -> Any:
        self: Any = super().load(cfg, s)
        self.loaded = True
        return self


class Sharing(RangeCaches):
    """All instances share one counter, so a call of a loaded instance affects the original."""

    clears: ClassVar[list[int]] = [0]

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        self.own = 0
        self.clears[0] = 0

    def clear(self, cache: int) -> Any:
        self.own += 1
        self.clears[0] += 1
        removed = super().clear(cache)
        return removed if self.own == self.clears[0] else removed._replace(entries=-1)


@pytest.mark.parametrize("implementation", [Forgetful, Sharing])
def test_a_loaded_instance_executes_the_remaining_steps_beside_the_original(implementation: Any) -> None:
    """Neither the view nor the check of the loaded instance shows its defect."""
    finding = found(implementation)
    assert finding.cause in (Cause(Kind.LOAD, "clear"), Cause(Kind.LOAD, "state"))
    target = Target(replace(SUBJECT, implementation=implementation), REFERENCE).with_config(finding.config)
    pair = Pair(target)
    assert [pair.step(call) for call in finding.calls] == [None] * len(finding.calls)
    side = ImplementationSide(target.subject, target.config, pair.state)
    assert (side.difference(pair.state, exactly=True), side.broken_structure()) == (None, None)
    shrunk = shrink(target, finding)
    assert shrunk.cause == finding.cause
    assert len(shrunk.calls) <= 3


class Poisoned(RangeCaches):
    """After a call of a loaded instance, the view of the original raises an exception."""

    loaded = False
    poisoned: ClassVar[list[int]] = []

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        self.poisoned.clear()

    def clear(self, cache: int) -> Any:
        self.poisoned.extend([1] if self.loaded else [])
        return super().clear(cache)

    def view(self) -> State:
        if self.poisoned and not self.loaded:
            raise ValueError("poisoned")
        return super().view()

    @classmethod
    def load(cls, cfg: Config, s: State) -> Any:
        self: Any = super().load(cfg, s)
        self.loaded = True
        return self


def test_a_view_that_raises_after_the_calls_of_a_copy_is_a_difference() -> None:
    target = Target(replace(SUBJECT, implementation=Poisoned), REFERENCE)
    different = load_difference(target, [Call("clear", (0,))])
    assert different is not None
    assert different.cause == Cause(Kind.LOAD, "view ValueError")


def test_another_state() -> None:
    class Wrong(RangeCaches):
        def advance(self, nanos: int) -> None:
            self.now_ns += nanos + (nanos == 11)

    assert found(Wrong).cause == Cause(Kind.VIEW, "now_ns")


def test_a_broken_structure() -> None:
    class Wrong(RangeCaches):
        puts = 0

        def put(self, *arguments: Any) -> Any:
            self.puts += 1
            return super().put(*arguments)

        def check(self) -> list[str]:
            return ["something is loose"] if self.puts > 20 else []

    assert found(Wrong).cause == Cause(Kind.STRUCTURE, "something is loose")


def test_an_exception() -> None:
    class Wrong(RangeCaches):
        def clear(self, cache: int) -> Any:
            raise IndexError(cache)

    finding = found(Wrong)
    assert str(finding.cause) == "crash:clear IndexError"
    assert "the second side raised IndexError at clear" in finding.difference.message


def test_an_exception_of_a_view_is_not_blamed_on_the_action() -> None:
    class Wrong(RangeCaches):
        def view(self) -> Any:
            raise IndexError(0)

    finding = found(Wrong)
    assert "the view or check of the second side raised IndexError at " in finding.difference.message


def test_implementation_that_cannot_be_created() -> None:
    class Wrong(RangeCaches):
        def __init__(self, cfg: Config) -> None:
            super().__init__(cfg)
            raise LookupError("no room")

    finding = found(Wrong)
    assert str(finding.cause) == "crash:start LookupError"
    assert len(finding.calls) == 1, "the difference belongs to the first call, so that there is a trace to replay"


def test_a_value_that_is_in_no_domain() -> None:
    """Wide traces have such values: here 2**32 bytes or more."""

    class Wrong(RangeCaches):
        def put(self, cache: int, position: Any, bytes: int, expected_reads: int) -> bool:
            return super().put(cache, position, bytes % 2**32, expected_reads)

    assert found(Wrong).cause == Cause(Kind.VIEW, "queue")


def test_a_length_that_no_ordinary_trace_has() -> None:
    """Only long traces and bursts have more than 100 wrappers in the queue."""

    class Wrong(RangeCaches):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, deque(value, maxlen=100) if name == "_queue" else value)

    finding = found(Wrong, seeds=1500)
    assert finding.seed is not None
    assert plan_trace(SUBJECT, REFERENCE, finding.seed)[0].steps > SUBJECT.steps
    assert len(finding.calls) > 100
    assert finding.cause.kind in (Kind.VIEW, Kind.STRUCTURE)


def test_an_endless_loop() -> None:
    class Wrong(RangeCaches):
        def clear(self, cache: int) -> Any:
            while True:
                pass

    assert found(Wrong).cause == Cause(Kind.HANG, "clear")


def test_a_refusal_that_changes_the_state() -> None:
    """The model itself is wrong: a refused action must leave the state unchanged, and other engines rely on this."""
    machine = copy.copy(SUBJECT.machine)
    machine.actions = dict(SUBJECT.machine.actions)
    run = machine.actions["size_pass"].run

    def wrong(cfg: Config, s: State, bytes_to_free: int) -> Any:
        after, outcome = run(cfg, s, bytes_to_free)
        return (
            (after._replace(next_copy=s.next_copy + 1), outcome) if isinstance(outcome, Refused) else (after, outcome)
        )

    machine.actions["size_pass"] = machine.actions["size_pass"]._replace(run=wrong)
    target = Target(replace(SUBJECT, machine=machine), REFERENCE)
    finding = replay(target, [Call("size_pass", (0,))])
    assert finding is not None
    assert finding.cause == Cause(Kind.STUTTER, "size_pass")
    assert any(f is not None and f.cause == finding.cause for f in map(Lockstep(target).run, range(20)))


def test_a_broken_property_is_named_with_its_guarantee() -> None:
    lockstep = Lockstep(resolve("range_cache", "pulsar-2026-07"))
    finding = next(
        f
        for f in map(lockstep.run, range(50))
        if f is not None and f.broken_property == "latest_put_sets_expected_read_count"
    )
    assert finding.difference.message.startswith(
        "latest_put_sets_expected_read_count: After a put, the entry at the position, if readable, has the expected read"
    )


def test_finding_that_does_not_reproduce_is_unstable() -> None:
    class Wrong(RangeCaches):
        calls = 0

        def exists(self, cache: int, position: Any) -> bool:
            type(self).calls += 1
            return super().exists(cache, position) ^ (type(self).calls == 5)

    lockstep = Lockstep(Target(replace(SUBJECT, implementation=Wrong), REFERENCE))
    finding = next(f for f in map(lockstep.run, range(300)) if f is not None)
    assert finding.cause == Cause(Kind.UNSTABLE, "difference")


@pytest.mark.parametrize("offset", range(0, CHECK_EVERY, 5))
def test_a_state_that_stays_wrong_is_seen_wherever_it_begins(offset: int) -> None:
    """Views are compared at every sixteenth step and at the end, so a difference that stays is always found.

    Here, the difference begins at the `advance` with this offset among those of the trace.
    """

    class Wrong(RangeCaches):
        steps = 0

        def advance(self, nanos: int) -> None:
            self.steps += 1
            self.now_ns += nanos + (self.steps == offset + 1)

    assert str(found(Wrong).cause) in ("view:now_ns", "view:queue")
    lockstep = Lockstep(Target(replace(SUBJECT, implementation=Wrong), REFERENCE))
    for seed in range(20):
        advances = [call.action for call in generate(SUBJECT, REFERENCE, seed)].count("advance")
        assert (lockstep.run(seed) is not None) == (advances > offset), seed


@pytest.mark.parametrize("wrong", [0, 1, 7, 14])
def test_a_property_of_any_step_is_checked_in_some_traces(wrong: int) -> None:
    """Every sixteenth step is checked. The seed decides which step is the first."""
    properties = ModuleType("properties")

    @history(SUBJECT.machine, initial=lambda cfg: 0)
    def steps(cfg: Config, value: int, before: State, event: Event, after: State) -> int:
        """The number of steps so far."""
        return value + 1

    @always(SUBJECT.machine, history=(steps,))
    def is_another_step(cfg: Config, before: State, event: Event, after: State, count: int) -> bool:
        """A step is not the wrong one."""
        return count != wrong

    vars(properties)["a"] = is_another_step
    lockstep = Lockstep(Target(replace(SUBJECT, invariants=properties), REFERENCE))
    findings = [f for f in map(lockstep.run, range(2 * CHECK_EVERY)) if f is not None]
    assert {len(f.calls) for f in findings} == {wrong + 1}
    assert 2 <= len(findings) < CHECK_EVERY


def test_a_profile_against_itself_shows_nothing() -> None:
    lockstep = Lockstep(Target(SUBJECT, REFERENCE, REFERENCE))
    assert [lockstep.run(seed) for seed in range(50)] == [None] * 50


@pytest.mark.parametrize("other", ["pulsar-2026-07", "fifo", "stash"])
def test_two_profiles_differ(other: str) -> None:
    target = resolve("range_cache", against=other)
    finding = next(f for f in map(Lockstep(target).run, range(100)) if f is not None)
    again = replay(target.with_config(finding.config), finding.calls)
    assert again is not None
    assert again.difference == finding.difference
    assert finding.cause.kind in (Kind.OUTCOME, Kind.VIEW), (
        "properties hold under the reference, so the profiles differ"
    )


def test_a_config_with_other_rules_runs_the_model_alone() -> None:
    """No implementation is created, and the model takes one step for each call."""
    made = []

    class Noted(RangeCaches):
        def __init__(self, cfg: Config) -> None:
            made.append(cfg)
            super().__init__(cfg)

    taken = 0

    def counted(cfg: Any, s: Any, nanos: int) -> Any:
        nonlocal taken
        taken += 1
        return advance.run(cfg, s, nanos)

    original_subject = SUBJECT
    machine, advance = copy.copy(original_subject.machine), original_subject.machine.actions["advance"]
    machine.actions = {**machine.actions, "advance": advance._replace(run=counted)}
    shipped_config = find_profile(original_subject, "pulsar-2026-07")
    reference = find_profile(original_subject, "reference")
    machine.rules = tuple(n for n in machine.fields if getattr(reference, n) != getattr(shipped_config, n))
    subject = replace(original_subject, implementation=Noted, machine=machine)
    shipped = Target(subject, shipped_config)
    assert shipped.second is Second.NONE
    assert replay(shipped, [Call("advance", (1,))] * 3) is None
    assert (made, taken) == ([], 3)
    replay(Target(subject, reference), [Call("advance", (1,))])
    assert made, "under the reference the implementation is created"


def test_skipped_properties_do_not_hide_others() -> None:
    lockstep = Lockstep(resolve("range_cache", "pulsar-2026-07"))
    seen: set[str] = set()
    for seed in range(2500):
        finding = lockstep.run(seed)
        if finding is not None and finding.broken_property is not None:
            seen.add(finding.broken_property)
            lockstep.skipped |= {finding.broken_property}
    assert seen == {
        "inverted_range_is_empty",
        "latest_put_sets_expected_read_count",
        "only_reads_and_replays_change_read_count",
        "cache_size_equals_sum_of_entry_sizes",
        "size_pass_frees_no_more_than_needed",
    }


def test_watchdog_stops_a_call_that_does_not_return() -> None:
    with pytest.raises(Hang) as hang, watchdog(10.0), watchdog(0.05):
        sum(1 for _ in iter(int, 1))
    assert hang.value.seconds == 0.05


def test_a_collection_of_garbage_is_no_hang() -> None:
    """A watchdog switches garbage collection off: a collection takes long in a large process, whatever the code does."""
    assert gc.isenabled()
    with watchdog(1.0):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(Hang), watchdog(0.05):
        sum(1 for _ in iter(int, 1))
    assert gc.isenabled()


def test_a_signal_after_the_end_of_a_watchdog_is_ignored() -> None:
    with watchdog(10.0):
        late = signal.getsignal(signal.SIGVTALRM)
    assert callable(late)
    late(signal.SIGVTALRM, None)


def test_coverage_counts_every_step() -> None:
    lockstep = Lockstep(Target(SUBJECT, REFERENCE))
    for seed in range(20):
        lockstep.run(seed)
    steps = sum(plan_trace(SUBJECT, REFERENCE, seed)[0].steps for seed in range(20))
    assert sum(lockstep.coverage.pairs) == lockstep.coverage.steps == steps
    assert lockstep.coverage.traces == 20


def test_pairs_of_actions_are_counted_with_the_previous_action() -> None:
    lockstep, wanted = Lockstep(Target(SUBJECT, REFERENCE)), Counter[tuple[str, str]]()
    for seed in range(5):
        lockstep.run(seed)
        actions = ["", *[call.action for call in generate(SUBJECT, REFERENCE, seed)]]
        wanted.update(pairwise(actions))
    names, total = SUBJECT.machine.actions, total_of(lockstep.coverage)
    assert {row.key for row in total.rows() if row.kind == "pair"} == {pair_key(*pair) for pair in wanted}
    assert total.pairs(names) == wanted
    assert total.taken(names) == {name: sum(n for (_, taken), n in wanted.items() if taken == name) for name in names}


@pytest.mark.parametrize("name", subject_names())
def test_a_subject_drives_the_modules_of_its_name(name: str) -> None:
    """The tested implementation is the one that users import."""
    subject = find_subject(name)
    assert f"{subject.invariants.__name__}.".startswith(f"invariants.{name}.")
    assert f"{subject.implementation.__module__}.".startswith(f"impl.{name}.")


def properties_with_history() -> ModuleType:
    """Returns properties that need a history variable, such as: a run has at most two puts."""
    machine, properties = SUBJECT.machine, ModuleType("properties")

    @history(machine, initial=lambda cfg: 0, on=("put",))
    def puts(cfg: Config, value: int, before: State, event: Event, after: State) -> int:
        """The number of puts so far."""
        return value + 1

    @always(machine, history=(puts,))
    def puts_are_at_most_two(cfg: Config, s: State, count: int) -> bool:
        """A run has at most two puts."""
        return count <= 2

    @always(machine, on=("put",), history=(puts,))
    def step_sees_value_before(cfg: Config, before: State, event: Event, after: State, count: int) -> bool:
        """A put follows fewer than four puts."""
        return count < 4

    @sometimes(machine, on=("put",), history=(puts,))
    def a_second_put(cfg: Config, before: State, event: Event, after: State, count: int) -> bool:
        """A put follows another one."""
        return count == 1

    vars(properties).update(a=puts_are_at_most_two, b=step_sees_value_before, c=a_second_put)
    return properties


@pytest.mark.parametrize(
    ("skipped", "name", "puts"), [("", "puts_are_at_most_two", 3), ("a", "step_sees_value_before", 5)]
)
def test_a_history_variable_is_folded_over_every_step(skipped: str, name: str, puts: int) -> None:
    """The fast loop and the replay see the variable's value at every step, also if the model runs alone.

    `skipped` is the key of a property that is not checked, because it would fail first.
    """
    properties = properties_with_history()
    target = Target(replace(SUBJECT, invariants=properties), REFERENCE)
    for each in (target, replace(target, model_only=True)):
        lockstep = Lockstep(each)
        lockstep.skipped = frozenset([vars(properties)[skipped].name] if skipped else [])
        finding = next(f for f in map(lockstep.run, range(100)) if f is not None)
        assert finding.broken_property == name
        assert [call.action for call in finding.calls].count("put") == puts
        assert finding.calls[-1].action == "put"
        assert "a_second_put" in lockstep.coverage.goals


def test_the_edge_cover_checks_properties_with_history_variables() -> None:
    """The search has no history variables. The edge cover runs traces from the initial state, and has them."""
    subject = replace(SUBJECT, invariants=properties_with_history())
    space = Space(subject, "reference", SUBJECT.scopes["smoke"])
    found = explore(space, implementation=False)
    assert found.violations == []
    assert found.graph is not None
    finding = cover(space, found.graph).finding
    assert finding is not None
    assert finding.broken_property == "puts_are_at_most_two"


class Fresh(NamedTuple):
    """The state of a machine with one action, `make`, after which the initial state is never reached again."""

    made: bool = False


class Maker:
    """The implementation of the machine with the state `Fresh`."""

    def __init__(self, cfg: Any, made: bool = False) -> None:
        self.made = made

    def make(self) -> None:
        self.made = True

    def view(self) -> Any:
        return Fresh(self.made)

    def check(self) -> list[str]:
        return []

    @classmethod
    def load(cls, cfg: Any, state: Any) -> Any:
        return cls(cfg, state.made)


class Early(Maker):
    """An implementation that is wrong before the first action only: it begins in the state after `make`."""

    def __init__(self, cfg: Any, made: bool = True) -> None:
        super().__init__(cfg, made)


@pytest.mark.parametrize(
    ("implementation", "has_property", "cause"), [(Maker, True, "property:is_made"), (Early, False, "view:made")]
)
def test_the_initial_state_is_checked(implementation: type, has_property: bool, cause: str) -> None:
    machine: Machine[Any, Fresh] = Machine("canary", CANARY.machine.config, lambda cfg: Fresh(), source="test")

    @machine.action
    def make(cfg: Any, s: Any) -> Any:
        """Makes."""
        return Fresh(made=True), None

    @always(machine)
    def is_made(cfg: Any, s: Fresh) -> bool:
        """The state is made."""
        return s.made

    module = ModuleType("properties")
    if has_property:
        vars(module)["is_made"] = is_made
    target = Target(Subject(machine, implementation, module, {}, steps=4), CANARY.machine.config())
    findings = [f for f in map(Lockstep(target).run, range(8)) if f is not None]
    assert {str(f.cause) for f in findings} == {cause}
    assert all(len(f.calls) == 1 and "in the initial state" in f.difference.message for f in findings)


def test_an_exception_of_the_fast_loop_alone_is_shown() -> None:
    def key(cfg: Any, s: Any) -> Any:
        raise ZeroDivisionError("of a coverage key")

    finding = Lockstep(Target(replace(SUBJECT, abstract=key), REFERENCE)).run(0)
    assert finding is not None
    assert finding.cause == Cause(Kind.CRASH, "key ZeroDivisionError")
    assert "the fast loop raised ZeroDivisionError: of a coverage key" in finding.difference.message


def test_a_hang_of_the_fast_loop_alone_has_a_cause_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(cfg: Any, s: Any) -> Any:
        while True:
            pass

    monkeypatch.setattr("fuzz.run.lockstep.time_limit", lambda steps: 0.1)
    finding = Lockstep(Target(replace(SUBJECT, abstract=key), REFERENCE, model_only=True)).run(0)
    assert finding is not None
    assert finding.cause == Cause(Kind.UNSTABLE, "hang")


def test_a_watchdog_inside_another_leaves_it_running() -> None:
    def run_two() -> None:
        with watchdog(5):
            pass
        while True:
            pass

    with pytest.raises(Hang), watchdog(0.2):
        run_two()


def test_a_finding_of_a_load_is_replayed_from_its_file() -> None:
    target = Target(replace(SUBJECT, implementation=Forgetful), REFERENCE)
    finding = shrink(target, found(Forgetful))
    trace = trace_of(target, Spec("range_cache"), finding)
    mismatches = replayer_of(trace, subject=target.subject).replay(trace).mismatches
    assert [each.labels for each in mismatches] == [[str(finding.cause)]]
    assert replayer_of(trace).replay(trace).mismatches == []
