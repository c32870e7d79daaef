"""The command line: one command, `brokerproof`. Exit codes: 0 nothing wrong, 1 something found, 2 wrong usage."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from typer.exceptions import TyperException

from fuzz.platform.json import to_json
from model.machine import BadValue

app = typer.Typer(
    help=(
        "An executable specification of parts of Apache Pulsar's broker, an optimised twin, and engines that try "
        "to tell the two apart. Exit codes: 0 nothing wrong found, 1 something found, 2 wrong usage or input, 3 a "
        "defect of brokerproof itself."
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
Seed = Annotated[int, typer.Option(min=0, help="First seed: the traces of a run have consecutive seeds from here.")]
Profile = Annotated[str, typer.Option(help="Named config of the model; `subjects` lists them.")]
MutantId = Annotated[str | None, typer.Option("--mutant", help="Plant a bug: the harness must find it.")]

NOTHING_FOUND, FOUND, WRONG = 0, 1, 2
#: not a finding: brokerproof itself has failed
DEFECT = 3
#: interrupted from the keyboard
STOPPED = 130
_STOPPED = "stopped before its end; of a campaign, the rounds that were finished are kept"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process with its exit code."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code. Whatever is wrong with the input is said in one line."""
    try:
        code = app(list(arguments) if arguments is not None else None, standalone_mode=False)
    except BadValue as problem:
        return _complain(str(problem))
    except TyperException as problem:
        return _complain(problem.format_message().replace("\n", " ") + " Try brokerproof --help.")
    except KeyboardInterrupt:
        return _complain(_STOPPED, STOPPED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOTHING_FOUND
    except Exception:
        traceback.print_exc()
        return _complain(
            "this is a defect of brokerproof itself, not a finding; please report it with the lines above", DEFECT
        )
    if code == STOPPED:
        return _complain(_STOPPED, STOPPED)
    return int(code or 0)


def _complain(message: str, code: int = WRONG) -> int:
    sys.stderr.write("brokerproof: " + " ".join(message.split()) + "\n")
    return code


def _out() -> Console:
    # what is not read from a terminal is looked through with other tools: names must not be broken there
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)


def _err() -> Console:
    return Console(stderr=True, highlight=False)


def _answer(as_json: bool, data: dict[str, Any], show: Callable[[Console], None]) -> None:
    """One JSON object, or what a person reads; both on standard output."""
    if as_json:
        sys.stdout.write(to_json(data).decode() + "\n")
        sys.stdout.flush()
    else:
        show(_out())


# ---- subjects -----------------------------------------------------------------------------------------


@app.command()
def subjects(as_json: Json = False) -> None:
    """List the components, and what covers each."""
    from fuzz.commands.subjects import overview

    rows = overview()

    def show(console: Console) -> None:
        for row in rows:
            console.print(
                f"[bold]{row['name']}[/] ({escape(row['source'])})"
                + ("" if not row["canary"] else "  [dim]a canary: must fail[/]")
            )
            console.print(f"  profiles    {', '.join(row['profiles'])}")
            console.print(f"  actions     {', '.join(row['actions'])}")
            kinds = [
                f"{sum(p['kind'] == k for p in row['properties'])} {k}" for k in ("always", "sometimes", "eventually")
            ]
            console.print(f"  properties  {', '.join(kinds)}")
            console.print(f"  proofs      {len(row['proofs'])}")
            console.print(f"  mutants     {len(row['mutants'])}")
            console.print(f"  tla         {', '.join(row['tla']) or '-'}")

    _answer(as_json, {"subjects": rows}, show)


# ---- fuzz and campaign --------------------------------------------------------------------------------


@app.command()
def fuzz(
    subject: Annotated[str, typer.Argument(help="The component; `subjects` lists them.")],
    profile: Profile = "reference",
    against: Annotated[str | None, typer.Option(help="Another profile, in the place of the implementation.")] = None,
    seed: Seed = 0,
    traces: Annotated[int | None, typer.Option(min=1, help="Stop after that many traces.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of a trace (default: as the subject says).")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Stop after that long (default: 10, if no --traces).")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    mutant: MutantId = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for traces of findings and a corpus (default: build/fuzz).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fuzz a component on this machine: seeded, model and implementation in lockstep."""
    from fuzz.campaign.worker import Spec
    from fuzz.commands.core import run_fuzz

    if seconds is None and traces is None:
        seconds = 10.0
    result = run_fuzz(Spec(subject, profile, against, mutant, steps), seed, traces, seconds, jobs, out, _err())
    _answer(as_json, result, lambda console: _show_run(console, result))
    raise typer.Exit(FOUND if result["findings"] or result["failed"] else NOTHING_FOUND)


@app.command()
def campaign(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Components (default: all honest ones).")
    ] = None,
    profile: Profile = "reference",
    seed: Seed = 0,
    traces: Annotated[int | None, typer.Option(min=1, help="Stop when every subject has had that many traces.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.01, help="Fuzz that much longer, start-up not counted (default: 60, if no --traces)."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master (default: spark-submit's, else all cores here).")
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Pieces that a round of tasks is cut into.")] = None,
    mutant: MutantId = None,
    out: Annotated[
        str | None, typer.Option(help="Folder, or any URI that Spark knows; the same again resumes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fuzz on Spark: resumable, the same findings at any number of partitions."""
    from fuzz.commands.core import run_spark_campaign

    if seconds is None and traces is None:
        seconds = 60.0
    result = run_spark_campaign(
        names or [],
        profile,
        seed,
        traces,
        seconds,
        master=master,
        partitions=partitions,
        mutant=mutant,
        out=out,
        console=_err(),
    )
    _answer(as_json, result, lambda console: _show_run(console, result))
    raise typer.Exit(FOUND if result["findings"] or result["failed"] else NOTHING_FOUND)


def _show_run(console: Console, result: dict[str, Any]) -> None:
    """What a run did and found, for people."""
    speed = result["steps"] / result["seconds"] if result["seconds"] else 0.0
    subject = result.get("subject") or ", ".join(result["subjects"])
    console.print(f"{subject}: {result['traces']:,} traces, {result['steps']:,} steps, {speed:,.0f} steps/s")
    for finding in result["findings"]:
        console.print(f"[bold red]found[/] {escape(finding['message'])}")
        lengths = f"{finding['length']} steps, shrunk to {finding['shrunk_length']}"
        console.print(f"      {finding['subject']} under {finding['profile']}, seed {finding['seed']}, {lengths}")
        console.print(f"      {escape(finding['signature'])}")
        console.print(f"      brokerproof replay {escape(finding['trace'])}")
    for line in result["never"]:
        console.print(f"[red]never[/] {escape(line)}")
    if not result["findings"]:
        console.print(
            f"no difference in {result['steps']:,} steps of {result['traces']:,} traces (seed {result['seed']})"
        )
    if "report" in result:
        console.print(f"report: {escape(result['report'])}")


# ---- replay -------------------------------------------------------------------------------------------


@app.command()
def replay(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Traces: findings, corpora, recordings; plain or gzip'd.")
    ],
    profile: Annotated[
        str | None, typer.Option(help="Profile (default: that of the version a trace was made from).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay findings, or validate recordings of a real system, through model and implementation."""
    from fuzz.commands.core import run_replay

    result = run_replay(files, profile, _err())

    def show(console: Console) -> None:
        console.print(
            f"{result['agreed']:,} of {result['traces']:,} traces agree ({result['operations']:,} operations)"
        )
        for d in result["differences"]:
            if d["known_deviation"] is None:
                _show_difference(console, d)
        known = [d["known_deviation"] for d in result["differences"] if d["known_deviation"] is not None]
        for name in sorted(set(known)):
            console.print(f"known deviation {name}: {known.count(name)} traces")

    _answer(as_json, result, show)
    unknown = [d for d in result["differences"] if d["known_deviation"] is None]
    raise typer.Exit(FOUND if unknown else NOTHING_FOUND)


def _show_difference(console: Console, d: dict[str, Any]) -> None:
    place = f"{d['trace']}, line {d['line']}: {d['op']} in {', '.join(d['fields'])}"
    console.print(f"[bold red]differs[/] {escape(place)}")
    console.print(f"  expected {escape(to_json(d['expected']).decode())}")
    console.print(f"  actual   {escape(to_json(d['actual']).decode())}")
    if d.get("message"):
        console.print(f"  {escape(d['message'])}")


# ---- explore ------------------------------------------------------------------------------------------


@app.command()
def explore(
    subject: Annotated[str, typer.Argument(help="The component; `subjects` lists them.")],
    scope: Annotated[str, typer.Option(help="Bounds that make the states finite: smoke, ci, nightly.")] = "smoke",
    profile: Profile = "reference",
    mutant: MutantId = None,
    spark: Annotated[bool, typer.Option("--spark", help="Search on Spark: for scopes larger than a machine.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master, with --spark.")] = None,
    cover: Annotated[
        bool, typer.Option("--cover", help="Also run every transition on the implementation from the first state on.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for traces of violations.")] = Path("build/explore"),
    as_json: Json = False,
) -> None:
    """Visit every state of a scope: the implementation checked on every transition, shortest counterexamples."""
    from fuzz.commands.core import run_explore

    result = run_explore(
        subject, scope, profile, mutant, on_spark=spark, covered=cover, master=master, out=out, console=_err()
    )

    def show(console: Console) -> None:
        for each in result["violations"]:
            console.print(f"[bold red]violated[/] {escape(each['message'])}")
            console.print(f"      {escape(each['signature'])}")
            console.print(f"      brokerproof replay {escape(each['trace'])}")
        word = "exhausted" if not result["violations"] else "visited"
        console.print(
            f"{word}: {result['distinct_states']:,} states, the whole of scope {scope} of {subject} under {profile} "
            f"({result['transitions']:,} transitions, depth {result['depth']}, {result['seconds']:.1f} s)"
        )
        if result["covered"]:
            console.print(
                "every transition run from the first state: {runs:,} runs, {steps:,} steps".format(**result["covered"])
            )
        console.print("what the bounds hide:")
        for name, why in result["hides"].items():
            console.print(f"  {name}: {escape(why)}", style="dim")

    _answer(as_json, result, show)
    raise typer.Exit(FOUND if result["violations"] else NOTHING_FOUND)


# ---- prove --------------------------------------------------------------------------------------------


@app.command()
def prove(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Components (default: all with claims).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask Z3 and CrossHair what they can show; each claim's broken variant must be refuted."""
    from fuzz.prove import holds, run_prove

    result = run_prove(names or [], _err())

    def show(console: Console) -> None:
        for row in result["claims"]:
            _show_claim(console, row, holds(row))

    _answer(as_json, result, show)
    raise typer.Exit(NOTHING_FOUND if all(holds(row) for row in result["claims"]) else FOUND)


def _show_claim(console: Console, row: dict[str, Any], fine: bool) -> None:
    tool = {"z3": "Z3", "crosshair": "CrossHair"}[row["tool"]]
    words = {
        "proved": f"proved by {tool}",
        "confirmed_over_all_paths": f"confirmed over all paths by {tool}, {row['paths']} of them",
        "no_counterexample": f"no counterexample in {row['paths']} paths, by {tool}",
    }
    verdict = words.get(row["verdict"], row["verdict"])
    console.print(f"[bold]{row['id']}[/]  [{'green' if fine else 'red'}]{verdict}[/]  {row['seconds']:.1f} s")
    console.print(f"  {escape(row['claim'])}", style="dim" if fine else None)
    if row["detail"]:
        console.print(f"  {escape(row['detail'])}")
    if not row["control_refuted"]:
        console.print(
            f"  [red]its control is not refuted[/] ({escape(row['control'])}): {escape(row['control_detail'])}"
        )


# ---- tla ----------------------------------------------------------------------------------------------


@app.command()
def tla(
    modules: Annotated[
        list[str] | None, typer.Argument(metavar="[MODULE]...", help="TLA+ modules (default: all of the manifest).")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Runs of that scope (default: all but those that are marked as nightly).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run TLC on the TLA+ twins, and compare states and steps with the model's."""
    from fuzz.tlc.runs import run_tla

    results = run_tla(modules or [], scope, _err())

    def show(console: Console) -> None:
        for result in results:
            run, states = result.run, f"{result.distinct_states:,} distinct states"
            if result.model_distinct_states == result.distinct_states:
                states += ", as many as the model"
            steps = f", {result.edges_checked:,} steps compared" if run.edges else ""
            mark = result.result if result.result == "success" else f"{result.result}, as it should be"
            mark = "[bold red]differs[/]" if result.differences else mark
            console.print(f"{run.module} {run.name}: {mark}, {states}{steps} ({result.seconds:.1f} s)")
            for line in result.differences:
                console.print(f"  {escape(line)}")

    _answer(as_json, {"modules": [result.row() for result in results]}, show)
    raise typer.Exit(NOTHING_FOUND if all(result.passed for result in results) else FOUND)


# ---- mutants ------------------------------------------------------------------------------------------


@app.command()
def mutants(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Components (default: all honest ones).")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Fuzz each mutant for at most that long.")] = 60.0,
    seed: Seed = 0,
    generated: Annotated[
        bool, typer.Option("--generated", help="Mutants that operators make of the implementation, in place of ours.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes (default: all cores).")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Spread the mutants over a cluster.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master, with --spark.")] = None,
    as_json: Json = False,
) -> None:
    """The kill matrix: planted bugs, what finds them, and how fast. Survivors must say why they change nothing."""
    from fuzz.commands.core import run_mutants

    result = run_mutants(
        names or [],
        seconds=seconds,
        seed=seed,
        generated=generated,
        jobs=jobs,
        on_spark=spark,
        master=master,
        console=_err(),
    )
    _answer(as_json, result, lambda console: _show_mutants(console, result))
    raise typer.Exit(FOUND if result["survivors"] or result["idle_properties"] else NOTHING_FOUND)


def _show_mutants(console: Console, result: dict[str, Any]) -> None:
    """The kill matrix, for people: of many, only the survivors."""
    rows = result["mutants"]
    if len(rows) <= 200:
        for r in rows:
            seconds = "" if r["seconds_to_kill"] is None else f"{r['seconds_to_kill']:.2f} s"
            steps = "" if r["steps_to_kill"] is None else f"{r['steps_to_kill']:,} steps"
            by = escape(r["killed_by"]) or "[red]survives[/]"
            console.print(f"{r['id']:42} {seconds:>8} {steps:>15}  {by}  [dim]{escape(r['origin'])}[/]")
    for r in rows:
        if not r["killed"]:
            word = f"changes nothing: {r['excuse']}" if r["excuse"] else "[bold red]survives[/]"
            console.print(f"{r['subject']} {escape(r['id'])}\n      {word}")
    for subject, properties in result["properties"].items():
        for name, row in properties.items():
            only = ", ".join(row["only_killer_of"]) or row["stays"] or "[red]nothing[/]"
            console.print(f"{subject}.{name} alone kills: {only}", style="dim")
    fast = sum(1 for r in rows if r["killed"] and r["seconds_to_kill"] <= 1.0)
    killed = f"{result['killed']:,} of {len(rows):,} mutants killed, {fast:,} of them within a second"
    console.print(f"{killed} (seed {result['seed']})")


@app.command()
def evidence(
    components: Annotated[list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Default: all.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Try at most that long for each defect.")] = 120.0,
    write: Annotated[Path | None, typer.Option(help="Document to put the table into, between its marks.")] = None,
    as_json: Json = False,
) -> None:
    """Find and shrink each defect of the table: shipped versions and proposals that break a guarantee."""
    from fuzz.evidence import show_all, table_of, write_into
    from fuzz.platform.progress import counter, showing
    from fuzz.platform.version import code_version

    with showing(_err(), "showing defects") as update:
        shown = show_all(components or [], seconds, counter(update))
    if write is not None:
        write_into(write, table_of(shown))
    rows = [s._asdict() for s in shown]
    _answer(
        as_json, {"defects": rows, "version": code_version()}, lambda console: console.print(escape(table_of(shown)))
    )
    raise typer.Exit(FOUND if any(s.seconds is None for s in shown) else NOTHING_FOUND)


# ---- report and bench ---------------------------------------------------------------------------------


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A campaign's folder or URI.")],
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML file from a campaign's tables."""
    from fuzz.commands.core import run_report

    result = run_report(folder)
    _answer(as_json, result, lambda console: console.print(escape(result["html"])))


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Benchmarks whose names start so (default: all).")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page with plots, too.")] = None,
    as_json: Json = False,
) -> None:
    """Run the benchmarks, each against its baseline in the same run."""
    from fuzz.benchmarks.runner import run_bench

    if out is not None and not out.absolute().parent.is_dir():
        raise BadValue(f"{out}: there is no such directory to write to")
    results = run_bench(names or [], _err())
    if out is not None:
        from fuzz.report.bench import write_report

        write_report(out, results)

    def show(console: Console) -> None:
        table = Table(Column("benchmark", overflow="fold"), "value", "unit", "baseline", "ratio", box=None)
        for r in results:
            table.add_row(
                r["name"],
                f"{r['value']:,.4g}" if r["value"] < 1000 else f"{r['value']:,.0f}",
                r["unit"],
                f"{r['baseline']:,.4g}" if r["baseline"] < 1000 else f"{r['baseline']:,.0f}",
                f"{r['ratio']:.2f}",
            )
        console.print(table)

    _answer(as_json, {"results": results}, show)
