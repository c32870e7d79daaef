"""Model and implementation side by side.

Every step goes to both. Outcomes are compared at every step; the implementation's view and the properties
at every sixteenth and at a trace's end; its structure, which mostly stays broken, at the end. The fast loop
only notices that something is wrong: then the same actions are replayed with everything checked at every step,
and that replay says what it is.

    outcome     the two told their callers different things
    view        the implementation is in another state than the model
    structure   the implementation's own check fails
    load        an implementation that is loaded with the last state is in another one
    property    an `always` property of the model's states is broken
    stutter     a refused action changed the state
    crash       one of them raised an exception
    hang        a step did not come back
    unstable    the fast loop saw something that the replay did not

The other side is the component's implementation, or the model under another profile.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from fuzz.run.coverage import Coverage
from fuzz.run.generate import Arguments, anew, decoder, generate, recipe
from fuzz.subject import Subject
from invariants.properties import Event, Property
from model.machine import Refused, plain

#: The view and the properties are compared at least this often.
CHECK_EVERY = 16
#: A trace or replay that takes more processor time than this hangs. A trace takes a thousandth of it.
HANG_SECONDS = 1.0

Actions = Sequence[tuple[str, Arguments]]


class Difference(NamedTuple):
    """What is wrong at one step."""

    kind: str
    what: str
    message: str
    expected: Any
    actual: Any


class Finding(NamedTuple):
    """A run that shows a difference: the actions up to and including the step at which it shows."""

    config: Any
    actions: tuple[tuple[str, Arguments], ...]
    difference: Difference
    seed: int | None = None

    @property
    def cause(self) -> str:
        """What failed, without where: findings of one cause are candidates for being the same."""
        return f"{self.difference.kind}:{self.difference.what}"

    @property
    def broken_property(self) -> str | None:
        """The name of the property that is broken, if that is what failed."""
        return self.difference.what if self.difference.kind == "property" else None

    @property
    def signature(self) -> str:
        """What failed and the shape of the run: findings with the same signature are one."""
        return f"{self.cause} after {' '.join(name for name, _ in self.actions)}"


class Hang(BaseException):
    """A step did not come back in time. Not an Exception, so that nothing under test can swallow it."""


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Raises Hang in the body after that much processor time of this process.

    Processor time, so that a busy machine makes nothing hang. No garbage is collected meanwhile: what the rest of
    the process holds would count against the body. Again and again, for the first time may come where an exception is
    swallowed, in a destructor for instance. Does nothing outside the main thread, where Python takes no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signum: int, _frame: FrameType | None) -> None:
        raise Hang

    collecting = gc.isenabled()
    gc.disable()
    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, max(seconds, 0.2))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
        if collecting:
            gc.enable()


# ---- the other side -----------------------------------------------------------------------------------


class AnotherProfile:
    """The model under another profile, in the place of an implementation; compared by what an observer sees."""

    def __init__(self, subject: Subject, cfg: Any) -> None:
        self.machine = subject.machine
        self.cfg = cfg
        self.state = subject.machine.start(cfg)

    def method(self, name: str) -> Callable[..., Any]:
        """The action of that name as a method."""
        run = self.machine.actions[name].run

        def act(*arguments: Any) -> Any:
            self.state, outcome = run(self.cfg, self.state, *arguments)
            return outcome

        return act


class Side:
    """The second of the two that are compared, with its methods in the order of the actions."""

    def __init__(self, subject: Subject, cfg: Any, against: Any = None) -> None:
        self.subject = subject
        self.cfg = cfg
        if against is None and not subject.machine.is_reference(cfg):
            against = cfg  # no implementation has these rules: the model is checked against its properties
        self.other = AnotherProfile(subject, against) if against is not None else None
        self.body: Any = subject.implementation(cfg) if self.other is None else None
        self.methods = self._methods()

    def _methods(self) -> list[Callable[..., Any]]:
        names = self.subject.machine.actions
        return [self.other.method(n) if self.other else getattr(self.body, n) for n in names]

    def load(self, state: Any) -> None:
        """Puts this side into a state of the model."""
        if self.other is not None:
            self.other.state = state
        else:
            self.body = self.subject.implementation.load(self.cfg, state)
        self.methods = self._methods()

    def broken_structure(self) -> Difference | None:
        """What the implementation's own check says is wrong."""
        for line in self.body.check() if self.body is not None else ():
            return Difference("structure", line, f"the implementation's structure is broken: {line}", None, line)
        return None

    def differs(self, state: Any) -> Difference | None:
        """How this side is not in the model's state."""
        machine = self.subject.machine
        if self.other is not None:
            ours, theirs = machine.observe(self.cfg, state), machine.observe(self.other.cfg, self.other.state)
            if ours == theirs:
                return None
            field = (
                next((k for k in ours if ours[k] != theirs.get(k)), "observation")
                if isinstance(ours, dict)
                else "observation"
            )
            return Difference("view", field, f"an observer sees a different {field}", ours, theirs)
        view = self.body.view()
        if view == state:
            return None
        fields = getattr(state, "_fields", ())
        field = next((f for f in fields if getattr(view, f, None) != getattr(state, f)), "state")
        ours, theirs = (plain(getattr(s, field, s)) for s in (state, view))
        return Difference(
            "view", field, f"{field} is not the same in the model and in the implementation", ours, theirs
        )


def loads_differently(subject: Subject, cfg: Any, state: Any) -> Difference | None:
    """How an implementation that is loaded with a state is not in it. The explorer stands on this."""
    if not subject.machine.is_reference(cfg):
        return None
    try:
        body = subject.implementation.load(cfg, state)
        view = body.view()
        if view == state and not body.check():
            return None
    except Exception as problem:
        return _crash("other side", "load", problem)
    return Difference("load", "state", "the implementation is loaded wrongly", plain(state), plain(view))


# ---- what is checked ----------------------------------------------------------------------------------


#: A property, with its predicate at hand.
Check = tuple[Callable[..., bool], Property]


class Checks(NamedTuple):
    """The properties that speak of a config: of states, and of steps by the index of their action.

    `meant` says which they are by their place among the subject's; configs of which the same are meant share one.
    """

    meant: tuple[int, ...]
    of_states: tuple[Check, ...]
    of_steps: tuple[tuple[Check, ...], ...]
    state_witnesses: tuple[Property, ...]
    step_witnesses: tuple[tuple[Property, ...], ...]


#: Names of properties that are not looked at for now.
Muted = frozenset[str]
NONE_MUTED: Muted = frozenset()


def checks_for(subject: Subject, cfg: Any, muted: Muted = NONE_MUTED) -> Checks:
    """A subject's properties that speak of a config, sorted by what they speak of. O(properties)."""
    properties = _properties_of(subject)
    return _checks(subject, tuple([i for i, p in enumerate(properties) if p.name not in muted and p.given(cfg)]))


@lru_cache(maxsize=64)
def _properties_of(subject: Subject) -> tuple[Property, ...]:
    return subject.properties


@lru_cache(maxsize=256)
def _checks(subject: Subject, places: tuple[int, ...]) -> Checks:
    properties = _properties_of(subject)
    meant = [properties[i] for i in places]

    def of_steps(kind: str) -> tuple[tuple[Property, ...], ...]:
        steps = [p for p in meant if p.kind == kind and p.of_step]
        return tuple(tuple(p for p in steps if not p.on or n in p.on) for n in subject.machine.actions)

    def of_states(kind: str) -> tuple[Property, ...]:
        return tuple(p for p in meant if p.kind == kind and not p.of_step)

    always_states = tuple((p.holds, p) for p in of_states("always"))
    always_steps = tuple(tuple((p.holds, p) for p in step) for step in of_steps("always"))
    return Checks(places, always_states, always_steps, of_states("sometimes"), of_steps("sometimes"))


def broken_property(checks: Checks, cfg: Any, before: Any, event: Event, action: int, after: Any) -> Difference | None:
    """The first `always` property that the step or the state after it breaks."""
    for holds, p in checks.of_states:
        if not holds(cfg, after):
            return Difference("property", p.name, f"{p.name}: {p.guarantee}", True, False)
    for holds, p in checks.of_steps[action]:
        if not holds(cfg, before, event, after):
            return Difference("property", p.name, f"{p.name}: {p.guarantee}", True, False)
    return None


def all_but(subject: Subject, finding: Finding) -> Muted:
    """Mutes every property but the one that the finding breaks: what it shows must not hide behind another defect."""
    return frozenset(p.name for p in subject.properties if p.name != finding.broken_property)


def event_of(subject: Subject, name: str, arguments: Arguments, outcome: Any) -> Event:
    """The event that properties are told of."""
    params = subject.machine.actions[name].params
    return Event(name, {p.name: a for p, a in zip(params, arguments, strict=True)}, outcome)


def same(a: Any, b: Any) -> bool:
    """Equal, and of one type, parts too: true is not 1 to a caller."""
    return type(a) is type(b) and bool(a == b) and repr(a) == repr(b)


# ---- every step checked -------------------------------------------------------------------------------


def replay(
    subject: Subject,
    cfg: Any,
    actions: Actions,
    *,
    against: Any = None,
    seed: int | None = None,
    hang_seconds: float = HANG_SECONDS,
    muted: Muted = NONE_MUTED,
) -> Finding | None:
    """Runs given actions with everything checked at every step; what is wrong first, or None."""
    position = 0
    try:
        with watchdog(hang_seconds):
            run = CheckedRun(subject, cfg, against, muted)
            for position, (name, arguments) in enumerate(actions):
                difference = run.step(name, arguments)
                if difference is not None:
                    return Finding(cfg, tuple(actions[: position + 1]), difference, seed)
            difference = loads_differently(subject, cfg, run.state) if against is None and actions else None
            if difference is not None:
                return Finding(cfg, tuple(actions), difference, seed)
    except Hang:
        name = actions[position][0]
        hang = Difference(
            "hang", name, f"{name} did not come back within {hang_seconds:g} s of processor time", None, None
        )
        return Finding(cfg, tuple(actions[: position + 1]), hang, seed)
    return None


class CheckedRun:
    """A run in which every step is checked: for replays, for shrinking, and where speed does not matter."""

    def __init__(self, subject: Subject, cfg: Any, against: Any = None, muted: Muted = NONE_MUTED) -> None:
        self.subject = subject
        self.cfg = cfg
        self.state = subject.machine.start(cfg)
        self.checks = checks_for(subject, cfg, muted)
        self.unmade: Difference | None = None  # why there is no second side; the first step says it
        try:
            self.side = Side(subject, cfg, against)
        except Exception as problem:
            self.unmade = _crash("other side", "start", problem)
        self.places = {name: i for i, name in enumerate(subject.machine.actions)}
        self.outcome: Any = None
        self.other_outcome: Any = None

    def step(self, name: str, arguments: Arguments, *, fully: bool = True) -> Difference | None:
        """Takes one step on both sides; what is wrong after it, or None. Not fully: outcomes only.

        Every step gets argument objects of its own, as a step read from a file would.
        """
        if self.unmade is not None:
            return self.unmade
        before, arguments = self.state, anew(arguments)
        try:
            self.state, self.outcome = self.subject.machine.actions[name].run(self.cfg, before, *arguments)
        except Exception as problem:
            return _crash("model", name, problem)
        try:
            self.other_outcome = self.side.methods[self.places[name]](*arguments)
            if not same(self.outcome, self.other_outcome):
                ours, theirs = _shown(self.outcome), _shown(self.other_outcome)
                if ours == theirs:
                    ours, theirs = repr(self.outcome), repr(self.other_outcome)
                return Difference("outcome", name, f"{name} tells its caller something else", ours, theirs)
            if isinstance(self.outcome, Refused) and self.state != before:
                return Difference(
                    "stutter", name, f"{name} was refused and still changed the state", plain(before), plain(self.state)
                )
            if not fully:
                return None
            different = self.side.differs(self.state) or self.side.broken_structure()
        except Exception as problem:
            return _crash("other side", name, problem)
        if different is not None:
            return different
        event = event_of(self.subject, name, arguments, self.outcome)
        try:
            return broken_property(self.checks, self.cfg, before, event, self.places[name], self.state)
        except Exception as problem:
            return _crash("property", name, problem)


def _shown(outcome: Any) -> Any:
    """An outcome as plain data, whatever it is: an implementation under test may give anything."""
    try:
        return plain(outcome)
    except TypeError:
        return repr(outcome)


def _crash(who: str, name: str, problem: Exception) -> Difference:
    place = traceback.extract_tb(problem.__traceback__)[-1]
    message = f"{name} raised {type(problem).__name__}: {problem} (in {place.name})"
    return Difference("crash", f"{name} {type(problem).__name__}", message, None, f"{who}: {problem!r}")


# ---- the fast loop ------------------------------------------------------------------------------------


class Lockstep:
    """Runs seeds of one subject under one profile, and keeps what they covered."""

    def __init__(self, subject: Subject, profile_config: Any, *, against: Any = None, steps: int | None = None) -> None:
        self.subject = subject
        self.profile_config = profile_config
        self.against = against
        self.steps = steps
        self.coverage = Coverage(subject)
        #: properties already seen broken: muted, so that a common one does not hide a rare one behind it
        self.muted: Muted = NONE_MUTED
        self.configs: set[Any] = set()
        self._hunting: dict[tuple[int, ...], list[list[Property]]] = {}

    def run(self, seed: int) -> Finding | None:
        """Runs one seed; a finding with every step checked, or None. Cost: a few microseconds a step."""
        self.coverage.traces += 1
        try:
            with watchdog(HANG_SECONDS):
                wrong = self._run(seed)
        except (Hang, Exception):
            wrong = True
        return self._explain(seed) if wrong else None

    def _run(self, seed: int) -> bool:
        """Whether anything is wrong in the trace of a seed."""
        subject, coverage = self.subject, self.coverage
        plan, rng = recipe(subject, self.profile_config, seed, self.steps)
        cfg = plan.config
        self.configs.add(cfg)
        side = Side(subject, cfg, self.other_config(cfg))
        methods, differs, checks, hunts = (
            side.methods,
            side.differs,
            checks_for(subject, cfg, self.muted),
            self._hunts(cfg),
        )
        choose, abstract = decoder(subject, cfg).chooser(cfg, plan.swarm, rng), subject.abstract
        pairs, refused, seen, size = coverage.pairs, coverage.refused, coverage.abstract, len(coverage.actions)
        row, last = size * size, plan.steps - 1
        state = subject.machine.start(cfg)
        step = -1
        try:
            for step in range(plan.steps):
                chosen, arguments = choose(state)
                action = chosen.index
                after, outcome = chosen.run(cfg, state, *arguments)
                theirs = methods[action](*arguments)
                if theirs != outcome or theirs.__class__ is not outcome.__class__:
                    return True
                pairs[row + action] += 1
                row = action * size
                if outcome.__class__ is Refused:
                    refused[action] += 1
                    if after is not state:
                        return True
                if hunts[action]:
                    self._hunt(
                        hunts, seed, cfg, state, event_of(subject, chosen.name, arguments, outcome), action, after
                    )
                if step % CHECK_EVERY == CHECK_EVERY - 1 or step == last:
                    if not same(theirs, outcome):
                        return True
                    event = event_of(subject, chosen.name, arguments, outcome)
                    if (
                        differs(after) is not None
                        or broken_property(checks, cfg, state, event, action, after) is not None
                    ):
                        return True
                    kind = abstract(cfg, after)
                    if kind not in seen:
                        seen[kind] = seed
                state = after
            if side.body is not None and loads_differently(subject, cfg, state) is not None:
                return True
            return side.broken_structure() is not None
        finally:
            coverage.steps += step + 1

    def other_config(self, cfg: Any) -> Any:
        """The other profile's config, with the settings that were drawn for this trace."""
        if self.against is None:
            return None
        drawn = {n: getattr(cfg, n) for n in self.subject.settings}
        defaults = self.subject.machine.config._field_defaults
        return self.against._replace(**{n: v for n, v in drawn.items() if getattr(self.against, n) == defaults[n]})

    def _hunts(self, cfg: Any) -> list[list[Property]]:
        """The witnesses not yet seen, by the index of the action after which they may show."""
        checks = checks_for(self.subject, cfg)
        hunts = self._hunting.get(checks.meant)
        if hunts is None:
            found = self.coverage.witnesses
            of_states = [p for p in checks.state_witnesses if p.name not in found]
            hunts = [of_states + [p for p in steps if p.name not in found] for steps in checks.step_witnesses]
            self._hunting[checks.meant] = hunts
        return hunts

    def _hunt(
        self, hunts: list[list[Property]], seed: int, cfg: Any, before: Any, event: Event, action: int, after: Any
    ) -> None:
        for p in list(hunts[action]):
            if p.holds(cfg, before, event, after) if p.of_step else p.holds(cfg, after):
                self.coverage.witnesses.setdefault(p.name, seed)
                for each in self._hunting.values():
                    for wanted in each:
                        if p in wanted:
                            wanted.remove(p)

    def _explain(self, seed: int) -> Finding:
        """Replays a seed's actions with everything checked, and says what is wrong first."""
        plan, _ = recipe(self.subject, self.profile_config, seed, self.steps)
        actions: list[tuple[str, Arguments]] = []
        with contextlib.suppress(Exception, Hang), watchdog(HANG_SECONDS):
            actions.extend(generate(self.subject, self.profile_config, seed, self.steps))
        finding = replay(
            self.subject, plan.config, actions, against=self.other_config(plan.config), seed=seed, muted=self.muted
        )
        if finding is not None:
            return finding
        message = "the fast loop saw a difference that a replay with every step checked does not show"
        return Finding(plan.config, tuple(actions), Difference("unstable", "replay", message, None, None), seed)
