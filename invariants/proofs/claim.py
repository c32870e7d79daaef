"""Claims about components, proved by Z3 or confirmed by CrossHair.

`claims` of `invariants/proofs/<component>` lists the claims about a component. A claim has a sentence, a check that
returns an `Answer`, and a control: a seeded bug. The engine (`brokerproof prove`, `fuzz/prove.py`) runs the check on
the source, and again on the source with the bug. The second time, the statement that the control names must fail.
Unless its sentence names other rules, a claim is about the reference rules.

    @claim("half-is-less", "z3", "Half of a positive number is less than it.", Control(...))
    def half_is_less() -> Answer:
        '''Section 3 of the proposal.'''

A Z3 check translates functions to terms (`symbolic/`) and collects statements about the terms in a `Proof`. A CrossHair
check is a function with a contract (`contract`). `scrutiny.py` checks that no proof is vacuous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Literal, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import FORGETS, UnsupportedError, as_term

#: A Z3 check has the verdict `proved`, `refuted` or `unknown` (`Proof`). CrossHair confirms a contract over all paths,
#: finds no counterexample before its timeout, refutes the contract, or cannot tell (`unknown`).
Verdict = Literal["proved", "confirmed_over_all_paths", "no_counterexample", "refuted", "unknown"]
Tool = Literal["z3", "crosshair"]

#: Timeout of the solver for one statement of a proof, in milliseconds of elapsed time. On a busy machine the statements
#: about rounding and about the eviction trigger take more than 20 s.
STEP_MS = 60_000
#: Timeout of CrossHair for one contract, in seconds.
CONTRACT_SECONDS = 20.0
#: The statement that fails under the control of a contract.
POSTCONDITION = "the postcondition"


class Control(NamedTuple):
    """A seeded bug: replaces the only occurrence of `find` in `module` by `replace`.

    `refutes` names the statement of the proof that fails on the changed source; it is empty for a contract, of which
    POSTCONDITION fails.
    """

    about: str
    module: str
    find: str
    replace: str
    refutes: str = ""


class Answer(NamedTuple):
    """The result of a check.

    `paths` is the number of paths that CrossHair executed. For a Z3 check, `steps` is the number of steps of the proof,
    and `compared` the number of runs of the program with which the claim or its terms were compared. `failed` names the
    statements that failed. `assumes` lists the assumptions; see `scrutiny.listed`.
    """

    verdict: Verdict
    detail: str = ""
    paths: int | None = None
    steps: int | None = None
    compared: int | None = None
    failed: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()


class Claim(NamedTuple):
    """A claim: a sentence about a component, its check and its control."""

    id: str
    tool: Tool
    says: str  # its sentence
    control: Control
    check: Callable[[], Answer]
    source: str  # where the sentence comes from
    #: names of the safety properties that the claim implies under the reference rules, in every reachable state
    proves: tuple[str, ...] = ()


def claim(
    name: str, tool: Tool, says: str, control: Control, *, proves: tuple[str, ...] = ()
) -> Callable[[Callable[[], Answer]], Claim]:
    """Returns a decorator that makes a claim of its check. The docstring of the check is the claim's source.

    The decorator raises TypeError if there is no docstring.
    """

    def made(check: Callable[[], Answer]) -> Claim:
        if not check.__doc__:
            raise TypeError(f"the check of the claim {name} has no docstring; the docstring must cite the source")
        return Claim(name, tool, says, control, check, " ".join(check.__doc__.split()), proves)

    return made


def contract(
    name: str, says: str, control: Control, *, seconds: float = CONTRACT_SECONDS
) -> Callable[[Callable[..., bool]], Claim]:
    """Returns a decorator that makes a claim of a function: CrossHair searches for arguments that make it return False.

    The first paragraph of the function's docstring is the claim's source. Lines with `pre:` restrict the arguments; the
    last line is `post: _`, which says that the result is true.
    """

    def made(function: Callable[..., bool]) -> Claim:
        source, _, _ = (function.__doc__ or "").partition("\n\n")
        return Claim(name, "crosshair", says, control, lambda: explored(function, seconds), " ".join(source.split()))

    return made


def claims_in(*modules: ModuleType) -> tuple[Claim, ...]:
    """Returns the claims that the modules define, in the order of their definitions."""
    return tuple([each for module in modules for each in vars(module).values() if isinstance(each, Claim)])


class Statement(NamedTuple):
    """A statement of a proof: the premises imply the goal."""

    what: str  # its name
    goal: Any
    given: list[Any]  # the premises
    is_lemma: bool  # whether the statement mentions no program


class Proof:
    """Collects the statements of a proof, and compares the claim with runs of the program.

    A statement is `direct` if each counterexample to it is a counterexample to the claim. Other statements may fail
    although the claim holds, for example because the invariant of an induction is too weak. There is a doubt if terms
    and program differ, or if the solver finds no values for which the premises hold. The verdict is

        proved     every statement was proved, no run violates the claim, and there are no doubts
        refuted    a statement failed, and a run violates the claim; or there are no doubts, and a direct statement has
                   a counterexample
        unknown    otherwise. If a run violates a claim whose statements were all proved, the translation is wrong
    """

    def __init__(self) -> None:
        self.steps = self.compared = 0  # as in `Answer`
        self.statements: list[Statement] = []
        self.not_proved: list[tuple[str, str]] = []  # names of other statements that failed, each with the reason
        self.doubts: list[str] = []  # differences of terms and program, and premises without an example
        self.counterexamples: list[tuple[str, str]] = []  # names of direct statements, each with its counterexample
        self.runs_against: list[tuple[str, str]] = []  # runs that violate the claim, each with an example
        recording = _RECORDING.get()
        if recording is not None:
            recording.append(self)

    def show(
        self, what: str, goal: Any, given: Sequence[Any] = (), *, direct: bool = False, solver: Any = None
    ) -> bool:
        """Tries to prove that the premises imply the goal, within STEP_MS. Returns whether that succeeded.

        `what` is the statement's name; `direct` is as in the class. `solver` replaces the default solver.
        """
        return self._ask(Statement(what, as_term(goal), [as_term(g) for g in given], False), direct, solver)

    def lemma(self, what: str, goal: Any, given: Sequence[Any] = (), *, solver: Any = None) -> bool:
        """Like `show`, for a statement that mentions no program. `scrutiny.py` rejects one that needs no premises."""
        return self._ask(Statement(what, as_term(goal), [as_term(g) for g in given], True), False, solver)

    def _ask(self, statement: Statement, direct: bool, solver: Any) -> bool:
        self.statements.append(statement)
        self.steps += 1
        if FORGETS.get():  # only the list of statements is needed
            return True
        solver = solver or z3.Solver()
        solver.set("timeout", STEP_MS)
        solver.add(*statement.given, z3.Not(statement.goal))
        result = solver.check()
        if result == z3.unsat:
            return True
        why = _shown(solver.model()) if result == z3.sat else solver.reason_unknown()
        (self.counterexamples if direct and result == z3.sat else self.not_proved).append((statement.what, why))
        return False

    def possible(self, what: str, given: Sequence[Any]) -> None:
        """Checks that the premises of `what` are satisfiable; otherwise they would imply any goal."""
        self.steps += 1
        if FORGETS.get():
            return
        solver = z3.Solver()
        solver.set("timeout", STEP_MS)
        solver.add(*[as_term(g) for g in given])
        if solver.check() != z3.sat:
            self.doubts.append(f"there is no example of {what}")

    def need(self, what: str, holds: bool) -> None:
        """Adds a step that needs no solver: the sentence `what`, and whether it holds."""
        self.steps += 1
        if not holds:
            self.not_proved.append((what, "it does not hold"))

    def run(self, what: str, holds: bool, example: object = "") -> None:
        """Adds a run of the program: its name, whether the claim holds in it, and an example for the message."""
        self.compared += 1
        if not holds:
            self.runs_against.append((what, str(example)))

    def compare(self, what: str, terms: object, program: object) -> None:
        """Compares the value of terms with the program's result. A difference is a doubt."""
        self.compared += 1
        if terms != program:
            self.doubts.append(f"the terms are not the program: {what}: {terms}, but it runs to {program}")

    def answer(self) -> Answer:
        """Returns the verdict, as the class describes it. The detail has the reason, unless it is `proved`."""
        verdict, detail = self._verdict()
        failed = tuple(dict.fromkeys(what for what, _ in (*self.counterexamples, *self.not_proved)))
        return Answer(verdict, detail, None, self.steps, self.compared, failed)

    def _verdict(self) -> tuple[Verdict, str]:
        against = [f"{what}: {example}" for what, example in self.runs_against]
        shortest = min(against, key=lambda text: (len(text), text), default="")
        failures = [f"{what}: {why}" for what, why in (*self.counterexamples, *self.not_proved)]
        if shortest and failures:
            return "refuted", f"{shortest}; not shown: {failures[0]}"
        if shortest:
            return "unknown", f"every step was proved, but a run violates the claim: {shortest}"
        if self.doubts:
            return "unknown", self.doubts[0]
        if self.counterexamples:
            return "refuted", failures[0]
        return ("unknown", f"not shown: {failures[0]}") if failures else ("proved", "")


#: The list to which new proofs are added inside `recorded`.
_RECORDING: ContextVar[list[Proof] | None] = ContextVar("_RECORDING", default=None)


@contextmanager
def recorded() -> Iterator[list[Proof]]:
    """Yields a list to which every proof is added that is created inside the `with` statement."""
    proofs: list[Proof] = []
    token = _RECORDING.set(proofs)
    try:
        yield proofs
    finally:
        _RECORDING.reset(token)


def _shown(model: Any) -> str:
    """Returns the constants of a Z3 model as text, sorted by name."""
    constants = sorted((str(d.name()), str(model[d])) for d in model.decls() if d.arity() == 0)
    return ", ".join(f"{name} = {value}" for name, value in constants)[:400]


def explored(contract: Callable[..., Any], seconds: float = CONTRACT_SECONDS) -> Answer:
    """Returns CrossHair's answer about a function whose docstring has a contract. Takes at most about `seconds`.

    The verdict is `unknown` if the docstring has no contract.
    """
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
    detail = "" if verdict in ("confirmed_over_all_paths", "no_counterexample") else worst.message
    failed = {MessageType.POST_FAIL: (POSTCONDITION,), MessageType.EXEC_ERR: ("it raises",)}.get(worst.state, ())
    lines = [line.strip() for line in (contract.__doc__ or "").splitlines()]
    assumes = tuple([line.removeprefix("pre: ") for line in lines if line.startswith("pre: ")])
    return Answer(verdict, detail, paths, failed=failed, assumes=assumes)


def answer(check: Callable[[], Answer]) -> Answer:
    """Runs a check. Returns its answer; `unknown` if the source is outside the subset that can be translated."""
    try:
        return check()
    except UnsupportedError as problem:
        return Answer("unknown", f"the source cannot be read: {problem}")
