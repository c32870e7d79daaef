"""A claim: a sentence about a component that a solver is asked for, and what came of it.

A component's claims are the `claims` of `invariants/proofs/<component>.py`. Each is a function that looks at the
source as it is imported, and answers. Each has a control: a small change in the source that breaks the claim. The
engine runs the same function where that change is made, and it must refute the claim there: a check that cannot
tell the broken from the whole shows nothing.

    @claim("half-is-less", "z3", "Half of a positive number is less than it.", Control(...))
    def half_is_less() -> Answer:
        '''Source: toy.'''
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import UnsupportedError, as_term

Verdict = Literal["proved", "confirmed_over_all_paths", "no_counterexample", "refuted", "unknown"]
Tool = Literal["z3", "crosshair"]

#: Milliseconds that the solver may take for one step of a proof.
STEP_MS = 20_000
#: Seconds that CrossHair may take for one contract.
CONTRACT_SECONDS = 20.0


class Control(NamedTuple):
    """A broken variant: in `module`, `find`, which must stand there exactly once, becomes `replace`."""

    about: str
    module: str
    find: str
    replace: str


class Answer(NamedTuple):
    """What came of a claim.

    `paths` are those that were followed by running; `steps` those of a proof; `compared` counts the random states on
    which terms and program, or claim and program, were compared.
    """

    verdict: Verdict
    detail: str = ""
    paths: int | None = None
    steps: int | None = None
    compared: int | None = None


class Claim(NamedTuple):
    """A sentence, who is asked, its control and its check; `source` is where the sentence comes from."""

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


class Proof:
    """Collects the steps of a proof, and runs of the program beside it.

    A step that is `direct` speaks of the program as it is, so that a way to break it is a counterexample. Any other
    step may fail although the claim holds, since an induction may assume too little: then a run that breaks the claim
    refutes it. Where all steps were shown and a run breaks the claim all the same, the terms are not the program, and
    nothing is known; nor where terms and program differ, or where a step assumes what cannot be.
    """

    def __init__(self) -> None:
        self.steps = self.compared = 0
        self.open: list[str] = []  # steps that were not shown
        self.doubts: list[str] = []  # why the steps may be about nothing, or not about the program
        self.counterexamples: list[str] = []
        self.runs_against: list[str] = []

    def show(
        self, what: str, goal: Any, given: Sequence[Any] = (), *, direct: bool = False, solver: Any = None
    ) -> bool:
        """Asks whether the goal follows from what is given. At most STEP_MS."""
        solver = solver or z3.Solver()
        solver.set("timeout", STEP_MS)
        solver.add(*[as_term(g) for g in given], z3.Not(as_term(goal)))
        self.steps += 1
        said = solver.check()
        if said == z3.unsat:
            return True
        found = f"{what}: {_shown(solver.model())}" if said == z3.sat else f"{what}: {solver.reason_unknown()}"
        (self.counterexamples if direct and said == z3.sat else self.open).append(found)
        return False

    def possible(self, what: str, given: Sequence[Any]) -> None:
        """Asks for an example of what is given: from what cannot be, anything follows, and nothing is shown."""
        solver = z3.Solver()
        solver.set("timeout", STEP_MS)
        solver.add(*[as_term(g) for g in given])
        self.steps += 1
        if solver.check() != z3.sat:
            self.doubts.append(f"there is no example of {what}")

    def need(self, what: str, holds: bool) -> None:
        """A step that is seen without a solver."""
        self.steps += 1
        if not holds:
            self.open.append(what)

    def run(self, what: str, holds: bool, example: object = "") -> None:
        """One run of the program: it must not break the claim."""
        self.compared += 1
        if not holds:
            self.runs_against.append(f"{what}: {example}")

    def compare(self, what: str, terms: object, program: object) -> None:
        """Terms worked out, against what the program gives. A difference leaves the claim open."""
        self.compared += 1
        if terms != program:
            self.doubts.append(f"the terms are not the program: {what}: {terms}, but it runs to {program}")

    def answer(self) -> Answer:
        """The verdict: proved only if every step was shown and no run disagrees. Of runs, the shortest is told."""
        verdict, detail = self._verdict()
        return Answer(verdict, detail, None, self.steps, self.compared)

    def _verdict(self) -> tuple[Verdict, str]:
        shortest = min(self.runs_against, key=lambda text: (len(text), text), default="")
        if shortest and (self.open or self.counterexamples):
            return "refuted", f"{shortest}; not shown: {[*self.counterexamples, *self.open][0]}"
        if shortest:
            return "unknown", f"every step was shown, but a run breaks the claim: {shortest}"
        if self.doubts:
            return "unknown", self.doubts[0]
        if self.counterexamples:
            return "refuted", self.counterexamples[0]
        return ("unknown", f"not shown: {self.open[0]}") if self.open else ("proved", "")


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
    return Answer(verdict, said, paths)


def answer(check: Callable[[], Answer]) -> Answer:
    """Runs a check; source that cannot be put into terms leaves the claim open, and says why."""
    try:
        return check()
    except UnsupportedError as problem:
        return Answer("unknown", f"the source cannot be put into terms: {problem}")
