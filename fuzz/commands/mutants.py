"""`brokerproof mutants`: the kill matrix, which has for each mutant the check that kills it, and how fast."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.commands import Count, Record, Result, Seconds
from fuzz.mutation import Check, kill_matrix
from fuzz.platform.processes import usable_cores
from fuzz.platform.progress import showing
from fuzz.platform.spark import session, slots
from fuzz.platform.version import code_version
from fuzz.seeding import mutants_of
from fuzz.subject import find_subject, subject_names
from model.machine import BadValue

#: If there are more mutants, those that were killed are not printed.
_MAX_ROWS = 200


class MutantRow(Record):
    """A mutant, and the check that killed it, as in `kill_matrix.MutantVerdict`.

    `origin` is the source of a seeded bug, or the operator that generated the mutant. `steps_to_kill` counts the steps
    of all traces up to the kill, `length` those of the trace that kills the mutant. `excuse` is the reason why an
    equivalent mutant survives.
    """

    id: str
    subject: str
    origin: str
    killed: bool
    killed_by: str
    seconds_to_kill: Seconds | None
    steps_to_kill: Count | None
    length: Count | None
    excuse: str
    path: str


class Score(Record):
    """The number of killed mutants of a component (`subject`) by check. Percentages do not count equivalent mutants.

    A mutant is guarded if a property, a recording or the implementation kills it, and not only a worked example or the
    twin. `percent_guarded` is the percentage of these mutants.
    """

    subject: str
    mutants: Count
    equivalent: Count
    killed_by: dict[str, Count]
    percent: float
    percent_guarded: float


class PropertyKills(Record):
    """The mutants that only this property kills.

    If there are none, `stays` is the reason to keep the property; it is empty if there is no reason.
    """

    only_killer_of: list[str]
    stays: str


class MutantsResult(Result):
    """The kill matrix.

    `survivors` survive and have no `excuse`. `idle_properties` kill no mutant that nothing else kills, and have no
    reason to be kept (`stays`).
    """

    subjects: list[str]
    mutants: list[MutantRow]
    scores: list[Score]
    killed: Count
    survivors: list[str]
    properties: dict[str, dict[str, PropertyKills]]  # component -> property -> its kills; empty with `--generated`
    idle_properties: list[str]
    seed: Count
    version: str

    @property
    def found(self) -> bool:
        """Whether there are survivors or idle properties."""
        return bool(self.survivors or self.idle_properties)


class Options(NamedTuple):
    """The options of the command line."""

    names: list[str]
    seconds: float = 60.0
    seed: int = 0
    generated: bool = False
    model: bool = False
    sample: int = 0
    twin: bool = False
    jobs: int | None = None
    spark: bool = False
    master: str | None = None


def run(options: Options, console: Console) -> MutantsResult:
    """Runs the kill matrix.

    Raises BadValue for unknown names, for an option without the one that it needs, and if `check_all_apply` or
    `jobs_of` does.
    """
    if options.model and not options.generated:
        raise BadValue("--model applies to generated mutants only: add --generated")
    if (options.sample or options.twin) and not options.generated:
        raise BadValue("--sample and --twin apply to generated mutants only: add --generated")
    if options.twin and not options.model:
        raise BadValue("--twin applies to mutants of the model only: add --model")
    # without canaries, which are wrong even without a mutant
    seeded = [n for n in subject_names(without_canaries=True) if mutants_of(n)]
    chosen = options.names or seeded
    for name in chosen:
        find_subject(name)
        if not options.generated and name not in seeded:
            raise BadValue(f"{name} has no mutants; these have: {', '.join(seeded)}")
    kill_matrix.check_all_apply(chosen)
    work = kill_matrix.jobs_of(
        chosen,
        generated=options.generated,
        seconds=options.seconds,
        seed=options.seed,
        model=options.model,
        sample=options.sample,
        twin=options.twin,
    )
    with contextlib.ExitStack() as stack:
        update = stack.enter_context(showing(console, "killing mutants"))
        if options.spark:
            spark = stack.enter_context(session("brokerproof mutants", options.master))
            done = iter(kill_matrix.run_on_spark(work, spark, slots(spark)))
        else:
            done = kill_matrix.run_here(work, options.jobs or usable_cores())
        verdicts = kill_matrix.in_order(work, done, lambda n, of: update(n, of, f"{n:,} of {of:,} mutants"))
        properties = {} if options.generated else _property_kills(chosen, update)
    return MutantsResult(
        subjects=chosen,
        mutants=[_row(each) for each in verdicts],
        scores=[_score(name, [each for each in verdicts if each.subject == name]) for name in chosen],
        killed=sum(each.killed for each in verdicts),
        survivors=[each.id for each in verdicts if not each.killed and not each.excuse],
        properties=properties,
        idle_properties=[
            f"{subject}.{name}"
            for subject, each in properties.items()
            for name, row in each.items()
            if not row.only_killer_of and not row.stays
        ],
        seed=options.seed,
        version=code_version(),
    )


def _row(verdict: kill_matrix.MutantVerdict) -> MutantRow:
    row = {name: getattr(verdict, name) for name in MutantRow.__struct_fields__}
    return MutantRow(**row)


def _score(name: str, verdicts: list[kill_matrix.MutantVerdict]) -> Score:
    equivalent = sum(1 for each in verdicts if not each.killed and each.excuse)
    checks = Counter(each.check for each in verdicts if each.check is not None)
    guarded = sum(count for check, count in checks.items() if check not in (Check.EXAMPLES, Check.TWIN))
    killable = len(verdicts) - equivalent or 1  # 1: if there are none, the percentages are 0
    percent, of_guarded = (round(100 * count / killable, 1) for count in (checks.total(), guarded))
    by_check = {str(check): count for check, count in sorted(checks.items())}
    return Score(name, len(verdicts), equivalent, by_check, percent, of_guarded)


def _property_kills(names: list[str], update: Callable[..., None]) -> dict[str, dict[str, PropertyKills]]:
    """Returns for each property of each component the seeded bugs of the model that only this property kills."""
    table = {}
    for name in names:
        mutants = [m for m in mutants_of(name) if kill_matrix.is_of_model(m)]
        if mutants:
            causes = {}
            for done, mutant in enumerate(mutants):
                update(done, len(mutants), f"properties of {name}")
                causes[mutant.id] = kill_matrix.kill_causes(mutant)
            rows = kill_matrix.unique_kills(find_subject(name), causes)
            table[name] = msgspec.convert(rows, dict[str, PropertyKills])
    return table


def show(console: Console, result: MutantsResult) -> None:
    """Prints the kill matrix: each mutant, if there are at most `_MAX_ROWS`, then those that survived, with paths."""
    rows = result.mutants
    for row in rows if len(rows) <= _MAX_ROWS else ():
        seconds = "" if row.seconds_to_kill is None else f"{row.seconds_to_kill:.2f} s"
        steps = "" if row.steps_to_kill is None else f"{row.steps_to_kill:,} steps"
        verdict = escape(row.killed_by) or "[red]survived[/]"
        console.print(f"{escape(row.id):42} {seconds:>8} {steps:>15}  {verdict}  [dim]{escape(row.origin)}[/]")
    for row in rows:
        if not row.killed:
            verdict = f"equivalent: {escape(row.excuse)}" if row.excuse else "[bold red]survived[/]"
            console.print(f"{row.subject} {row.path} {escape(row.id)}\n      {verdict}")
    for subject, properties in result.properties.items():
        for name, kills in properties.items():
            if kills.only_killer_of:
                verdict = f"is the only killer of {', '.join(kills.only_killer_of)}"
            elif kills.stays:
                verdict = f"is no mutant's only killer; kept because: {kills.stays}"
            else:
                verdict = "[red]is no mutant's only killer[/]"
            console.print(f"{subject}.{name} {verdict}", style="dim")
    for score in result.scores:
        by = ", ".join(f"{count:,} by {check}" for check, count in score.killed_by.items())
        excused = f"; {score.equivalent:,} more are equivalent" if score.equivalent else ""
        killed = f"{score.percent} % of {score.mutants - score.equivalent:,} mutants killed ({by}{excused})"
        guarded = f", {score.percent_guarded} % without worked examples and twin"
        console.print(f"{score.subject}: {killed}{guarded if score.percent_guarded != score.percent else ''}")
    fast = sum(1 for row in rows if row.killed and row.seconds_to_kill is not None and row.seconds_to_kill <= 1.0)
    killed = f"{result.killed:,} of {len(rows):,} mutants killed, {fast:,} of them within a second"
    console.print(f"{killed} (seed {result.seed})")
