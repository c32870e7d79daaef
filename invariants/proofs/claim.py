"""Claims: what a solver is asked about a component, and the verdict.

`claims` of `invariants/proofs/<component>` lists them. A claim is a sentence and a check, which reads the source as it
is imported and answers. Its control is a seeded bug: the engine runs the same check on the changed source, where the
statement that the control names must fail.

    @claim("half-is-less", "z3", "Half of a positive number is less than it.", Control(...))
    def half_is_less() -> Answer:
        '''Source: toy.'''

A proved claim is scrutinised (`scrutiny.py`): no statement may hold of an arbitrary program, and no assumption may be
impossible or exclude a reachable state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Literal, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import FORGETS, UnsupportedError, as_term

Verdict = Literal["proved", "confirmed_over_all_paths", "no_counterexample", "refuted", "unknown"]
Tool = Literal["z3", "crosshair"]

#: Milliseconds that the solver may take for one statement of a proof. Elapsed time counts: on a busy machine, rounding
#: and the trigger take more than 20 s.
STEP_MS = 60_000
#: Seconds that CrossHair may take for one contract.
CONTRACT_SECONDS = 20.0
#: What the control of a contract refutes.
POSTCONDITION = "the postcondition"


class Control(NamedTuple):
    """A seeded bug: in `module`, `find`, which occurs exactly once, becomes `replace`.

    `refutes` names the statement of the proof, or the run, that fails then.
    """

    about: str
    module: str
    find: str
    replace: str
    refutes: str = ""


class Answer(NamedTuple):
    """What came of a check.

    `paths` were followed by running, `steps` are those of a proof; `compared` counts the random states on which terms
    and program, or claim and program, were compared; `failed` names the statements that failed; `assumes` has what the
    check assumes, as far as it is short enough to be read.
    """

    verdict: Verdict
    detail: str = ""
    paths: int | None = None
    steps: int | None = None
    compared: int | None = None
    failed: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()


class Claim(NamedTuple):
    """A sentence, the tool that is asked, the control and the check; `source` says where the sentence comes from."""

    id: str
    tool: Tool
    says: str
    control: Control
    check: Callable[[], Answer]
    source: str


def claim(name: str, tool: Tool, says: str, control: Control) -> Callable[[Callable[[], Answer]], Claim]:
    """Decorator: this function is the check of a claim. Its docstring, which it must have, gives the source."""

    def made(check: Callable[[], Answer]) -> Claim:
        if not check.__doc__:
            raise TypeError(f"the claim {name} does not say where it comes from")
        return Claim(name, tool, says, control, check, " ".join(check.__doc__.split()))

    return made


def contract(
    name: str, says: str, control: Control, *, seconds: float = CONTRACT_SECONDS
) -> Callable[[Callable[..., bool]], Claim]:
    """Decorator: CrossHair is asked whether this function can return False.

    Its docstring gives the source first, then restricts the arguments by `pre:` lines and ends with `post: _`.
    """

    def made(function: Callable[..., bool]) -> Claim:
        source, _, _ = (function.__doc__ or "").partition("\n\n")
        return Claim(name, "crosshair", says, control, lambda: explored(function, seconds), " ".join(source.split()))

    return made


def claims_in(*modules: ModuleType) -> tuple[Claim, ...]:
    """The claims that the modules define, in order."""
    return tuple([each for module in modules for each in vars(module).values() if isinstance(each, Claim)])


class Statement(NamedTuple):
    """A statement of a proof: a goal that follows from premises. A lemma is about no program."""

    what: str
    goal: Any
    given: list[Any]
    is_lemma: bool


class Proof:
    """Collects the statements of a proof, and runs of the program beside it.

    A counterexample to a `direct` statement is one to the claim. Any other statement may fail although the claim holds,
    since an induction may assume too little: then a run that breaks the claim refutes it. If every statement was shown
    and a run breaks the claim, or if terms and program differ, the reading is wrong and the verdict is `unknown`.
    """

    def __init__(self) -> None:
        self.steps = self.compared = 0
        self.statements: list[Statement] = []
        self.open: list[tuple[str, str]] = []  # statements that were not shown, and why
        self.doubts: list[str] = []
        self.counterexamples: list[tuple[str, str]] = []
        self.runs_against: list[tuple[str, str]] = []
        recording = _RECORDING.get()
        if recording is not None:
            recording.append(self)

    def show(
        self, what: str, goal: Any, given: Sequence[Any] = (), *, direct: bool = False, solver: Any = None
    ) -> bool:
        """Asks whether the goal follows from the premises. At most STEP_MS."""
        return self._ask(Statement(what, as_term(goal), [as_term(g) for g in given], False), direct, solver)

    def lemma(self, what: str, goal: Any, given: Sequence[Any] = (), *, solver: Any = None) -> bool:
        """Asks for a statement about no program: it needs its premises."""
        return self._ask(Statement(what, as_term(goal), [as_term(g) for g in given], True), False, solver)

    def _ask(self, statement: Statement, direct: bool, solver: Any) -> bool:
        self.statements.append(statement)
        self.steps += 1
        if FORGETS.get():
            return True
        solver = solver or z3.Solver()
        solver.set("timeout", STEP_MS)
        solver.add(*statement.given, z3.Not(statement.goal))
        said = solver.check()
        if said == z3.unsat:
            return True
        why = _shown(solver.model()) if said == z3.sat else solver.reason_unknown()
        (self.counterexamples if direct and said == z3.sat else self.open).append((statement.what, why))
        return False

    def possible(self, what: str, given: Sequence[Any]) -> None:
        """Asks for an example of what is given: an impossible premise implies anything."""
        self.steps += 1
        if FORGETS.get():
            return
        solver = z3.Solver()
        solver.set("timeout", STEP_MS)
        solver.add(*[as_term(g) for g in given])
        if solver.check() != z3.sat:
            self.doubts.append(f"there is no example of {what}")

    def need(self, what: str, holds: bool) -> None:
        """A step that needs no solver."""
        self.steps += 1
        if not holds:
            self.open.append((what, "it is not so"))

    def run(self, what: str, holds: bool, example: object = "") -> None:
        """One run of the program: it must not break the claim."""
        self.compared += 1
        if not holds:
            self.runs_against.append((what, str(example)))

    def compare(self, what: str, terms: object, program: object) -> None:
        """Terms that were evaluated, and what the program gives. A difference leaves the claim open."""
        self.compared += 1
        if terms != program:
            self.doubts.append(f"the terms are not the program: {what}: {terms}, but it runs to {program}")

    def answer(self) -> Answer:
        """Proved if every statement was shown and no run disagrees. With it, the shortest run that disagrees."""
        verdict, detail = self._verdict()
        failed = tuple(dict.fromkeys(what for what, _ in (*self.counterexamples, *self.open)))
        return Answer(verdict, detail, None, self.steps, self.compared, failed)

    def _verdict(self) -> tuple[Verdict, str]:
        against = [f"{what}: {example}" for what, example in self.runs_against]
        shortest = min(against, key=lambda text: (len(text), text), default="")
        not_shown = [f"{what}: {why}" for what, why in (*self.counterexamples, *self.open)]
        if shortest and not_shown:
            return "refuted", f"{shortest}; not shown: {not_shown[0]}"
        if shortest:
            return "unknown", f"every step was shown, but a run breaks the claim: {shortest}"
        if self.doubts:
            return "unknown", self.doubts[0]
        if self.counterexamples:
            return "refuted", not_shown[0]
        return ("unknown", f"not shown: {not_shown[0]}") if not_shown else ("proved", "")


#: the proofs that are made while a check is recorded
_RECORDING: ContextVar[list[Proof] | None] = ContextVar("_RECORDING", default=None)


@contextmanager
def recorded() -> Iterator[list[Proof]]:
    """Within it, every new proof is added to the list."""
    proofs: list[Proof] = []
    token = _RECORDING.set(proofs)
    try:
        yield proofs
    finally:
        _RECORDING.reset(token)


def _shown(model: Any) -> str:
    """A model's constants, in the order of their names."""
    constants = sorted((str(d.name()), str(model[d])) for d in model.decls() if d.arity() == 0)
    return ", ".join(f"{name} = {value}" for name, value in constants)[:400]


def explored(contract: Callable[..., Any], seconds: float = CONTRACT_SECONDS) -> Answer:
    """Asks CrossHair about a function whose docstring has `pre:` and `post:` lines. Takes at most about `seconds`."""
    from collections import Counter

    from crosshair.core_and_libs import MessageType, analyze_function, run_checkables
    from crosshair.options import AnalysisKind, AnalysisOptionSet

    counts: Counter[str] = Counter()
    options = AnalysisOptionSet(
        analysis_kind=[AnalysisKind.PEP316], per_condition_timeout=seconds, report_all=True, stats=counts
    )
    messages = run_checkables(analyze_function(contract, options))
    paths = counts["num_paths"]
    if not messages:
        return Answer("unknown", f"CrossHair found no contract in {contract.__name__}", paths)
    worst = max(messages, key=lambda m: m.state)
    verdicts: dict[Any, Verdict] = {
        MessageType.CONFIRMED: "confirmed_over_all_paths",
        MessageType.CANNOT_CONFIRM: "no_counterexample",
        MessageType.POST_FAIL: "refuted",
        MessageType.POST_ERR: "refuted",
        MessageType.EXEC_ERR: "refuted",
    }
    verdict = verdicts.get(worst.state, "unknown")
    said = "" if verdict in ("confirmed_over_all_paths", "no_counterexample") else worst.message
    failed = {MessageType.POST_FAIL: (POSTCONDITION,), MessageType.EXEC_ERR: ("it raises",)}.get(worst.state, ())
    lines = [line.strip() for line in (contract.__doc__ or "").splitlines()]
    assumes = tuple([line.removeprefix("pre: ") for line in lines if line.startswith("pre: ")])
    return Answer(verdict, said, paths, failed=failed, assumes=assumes)


def answer(check: Callable[[], Answer]) -> Answer:
    """Runs a check; source outside the subset leaves the claim open, and says why."""
    try:
        return check()
    except UnsupportedError as problem:
        return Answer("unknown", f"the source cannot be read: {problem}")
