"""The command line: one command, `brokerproof`. Options only; what a command does is in `fuzz/commands/`.

Commands are imported when they run: some load a solver or a plotting library, and `--help` must answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.exceptions import TyperException

from fuzz.commands import ExitCode, Result
from fuzz.platform.json import to_json
from fuzz.platform.version import code_version
from fuzz.subject import find_subject, subject_names
from model.machine import BadValue

app = typer.Typer(
    help=(
        "An executable specification of parts of Apache Pulsar's broker, an optimised implementation, and engines that "
        "compare the two and check their properties. Exit codes: 0 nothing wrong found, 1 something found, 2 wrong "
        "usage or input, 3 a defect of brokerproof itself."
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
Seed = Annotated[int, typer.Option(min=0, help="First seed. The traces of a run have consecutive seeds from here.")]
Profile = Annotated[str, typer.Option(help="Named config of the model; `brokerproof subjects SUBJECT` lists them.")]
MutantId = Annotated[
    str | None, typer.Option("--mutant", metavar="ID", help="Insert a seeded bug, which the run must find.")
]
Master = Annotated[str | None, typer.Option(help="Spark master, with --spark (default: all cores of this machine).")]
Subjects = Annotated[list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Components (default: all).")]

_STOPPED = "stopped before its end; of a campaign, the committed rounds are kept"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process with its exit code."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code. Wrong input is reported in one line."""
    try:
        code = app(list(arguments) if arguments is not None else None, standalone_mode=False)
    except BadValue as problem:
        return _complain(str(problem))
    except TyperException as problem:
        return _complain(problem.format_message().replace("\n", " ") + _hint(problem, arguments or sys.argv[1:]))
    except KeyboardInterrupt:
        return _complain(_STOPPED, ExitCode.STOPPED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.NOTHING_FOUND
    except Exception:
        traceback.print_exc()
        return _complain(
            "this is a defect of brokerproof itself, not a finding; please report it with the lines above",
            ExitCode.DEFECT,
        )
    if code == ExitCode.STOPPED:
        return _complain(_STOPPED, ExitCode.STOPPED)
    return int(code or 0)


def _hint(problem: TyperException, arguments: Sequence[str]) -> str:
    """What to do about wrong usage; of an option that lacks a profile, the profiles of the component."""
    if getattr(problem, "option_name", "") in ("--profile", "--against"):
        for name in arguments:
            if name in subject_names():
                return f" {name} has {', '.join(find_subject(name).machine.profiles)}."
    return " Try brokerproof --help."


def _complain(message: str, code: int = ExitCode.WRONG) -> int:
    sys.stderr.write("brokerproof: " + " ".join(message.split()) + "\n")
    return code


def _err() -> Console:
    return Console(stderr=True, highlight=False)


R = TypeVar("R", bound=Result)


def _end(as_json: bool, result: R, show: Callable[[Console, R], None]) -> NoReturn:
    """Prints the result, as one JSON object or for a person, and ends the command."""
    if as_json:
        sys.stdout.write(to_json(result).decode() + "\n")
        sys.stdout.flush()
    else:
        # a pipe gets long lines, so that other tools find whole names
        show(Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160), result)
    raise typer.Exit(ExitCode.FOUND if result.found else ExitCode.NOTHING_FOUND)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"brokerproof {code_version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the release and a digest of the code, which a finding's seed belongs to.",
        ),
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def subjects(names: Subjects = None, as_json: Json = False) -> None:
    """List the components; of a named one its profiles, rules with their origin, settings and properties."""
    from fuzz.commands import subjects as command

    result = command.run(names or [])
    _end(as_json, result, lambda console, each: command.show(console, each, in_full=bool(names)))


@app.command()
def fuzz(
    subject: Annotated[str, typer.Argument(help="Component; `brokerproof subjects` lists them.")],
    profile: Profile = "reference",
    against: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Compare with the model under this profile.")
    ] = None,
    property_name: Annotated[
        str | None,
        typer.Option("--property", metavar="NAME", help="Check this safety property alone, on the model alone."),
    ] = None,
    seed: Seed = 0,
    traces: Annotated[int | None, typer.Option(min=1, help="Stop after that many traces.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of a trace (default: the component's).")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Stop after that long, shrinking included (default without --traces: 10, or 60 with --stop-at-first).",
        ),
    ] = None,
    stop_at_first: Annotated[bool, typer.Option("--stop-at-first", help="Stop at the first finding.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    mutant: MutantId = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for traces of findings and a corpus (default: build/fuzz, traces only)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fuzz a component on this machine: seeded traces, model and implementation in lockstep."""
    from fuzz.campaign.local import Request
    from fuzz.campaign.worker import Spec
    from fuzz.commands import fuzz as command

    if seconds is None and traces is None:
        seconds = 60.0 if stop_at_first else 10.0
    spec = Spec(subject, profile, against, mutant, steps)
    request = Request(spec, seed, traces, seconds, jobs, property_name, stop_at_first)
    _end(as_json, command.run(request, out, _err()), command.show)


@app.command()
def campaign(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Components (default: all but the canary).")
    ] = None,
    profile: Profile = "reference",
    seed: Seed = 0,
    traces: Annotated[int | None, typer.Option(min=1, help="Stop when each component has that many traces.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.01, help="Fuzz that much longer, start-up not counted (default: 60 without --traces)."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master (default: spark-submit's, else all cores of this machine).")
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Spark partitions of a round of tasks.")] = None,
    mutant: MutantId = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Folder, or any URI that Spark knows; the same again resumes (default: build/campaigns/PLAN).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fuzz on Spark: resumable, with the same findings at any number of partitions."""
    from fuzz.commands import campaign as command

    if seconds is None and traces is None:
        seconds = 60.0
    chosen = command.Options(names or [], profile, seed, traces, seconds, master, partitions, mutant, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def replay(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="URI...", help="Traces: findings, corpora, recordings; plain or gzip'd; or their folders."
        ),
    ],
    profile: Annotated[
        str | None, typer.Option(help="Profile (default: that of the version that a trace was recorded from).")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Replay as a Spark job, there (default: only what is not on this machine).")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="URI", help="New folder for a Parquet table with a row for each trace.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay findings, or validate recordings of a real system, through model and implementation."""
    from fuzz.commands import replay as command

    chosen = command.Options(files, profile, master, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def sut(
    subject: Annotated[str, typer.Argument(help="Component; `brokerproof subjects` lists them.")],
    program: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")],
    profile: Profile = "reference",
    seed: Seed = 0,
    traces: Annotated[int | None, typer.Option(min=1, help="Stop after that many traces.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of a trace (default: the component's).")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Fuzz for that long, then shrink (default: 10 without --traces).")
    ] = None,
    reply_seconds: Annotated[
        float, typer.Option("--reply-seconds", min=0.01, help="Time limit of a reply, start-up included.")
    ] = 10.0,
    reply_bytes: Annotated[int, typer.Option("--reply-bytes", min=1, help="Size limit of a reply.")] = 1 << 24,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Only replay the trace of a finding.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for traces of findings (default: build/sut).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Drive your own implementation: a program that answers calls on standard input (protocol: fuzz/README.md)."""
    from fuzz.campaign.worker import Spec
    from fuzz.commands import sut as command
    from fuzz.sut.link import Limits

    if seconds is None and traces is None:
        seconds = 10.0
    limits, spec = Limits(reply_seconds, reply_bytes), Spec(subject, profile, steps=steps)
    chosen = command.Options(spec, program, seed, traces, seconds, limits, trace, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def explore(
    subject: Annotated[str, typer.Argument(help="Component; `brokerproof subjects` lists them.")],
    scope: Annotated[str, typer.Option(help="Bounds that make the state space finite: smoke, ci, nightly.")] = "smoke",
    profile: Profile = "reference",
    mutant: MutantId = None,
    spark: Annotated[bool, typer.Option("--spark", help="Search on Spark: for scopes larger than a machine.")] = False,
    master: Master = None,
    cover: Annotated[
        bool, typer.Option("--cover", help="Also run every transition on the implementation from the first state.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for traces of violations.")] = Path("build/explore"),
    as_json: Json = False,
) -> None:
    """Visit every state of a scope, check every transition on the implementation, give shortest counterexamples."""
    from fuzz.commands import explore as command

    chosen = command.Options(subject, scope, profile, mutant, spark, master, cover, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def prove(names: Subjects = None, as_json: Json = False) -> None:
    """Ask Z3 and CrossHair about each claim; the control of each claim, a broken variant, must be refuted."""
    from fuzz.commands import prove as command

    _end(as_json, command.run(names or [], _err()), command.show)


@app.command()
def tla(
    modules: Annotated[
        list[str] | None, typer.Argument(metavar="[MODULE]...", help="TLA+ modules (default: all of tla/).")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="Runs of that scope (default: all but the nightly ones).")] = None,
    as_json: Json = False,
) -> None:
    """Run TLC on the TLA+ twins, and compare states and transitions with the model's (logs: build/tla)."""
    from fuzz.commands import tla as command

    _end(as_json, command.run(modules or [], scope, _err()), command.show)


@app.command()
def mutants(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT]...", help="Components (default: all with mutants).")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Fuzz each mutant for at most that long (processor time).")
    ] = 60.0,
    seed: Seed = 0,
    generated: Annotated[
        bool,
        typer.Option("--generated", help="Mutants that operators make of the implementation instead."),
    ] = False,
    model: Annotated[
        bool,
        typer.Option("--model", help="With --generated: of the model, judged without the implementation."),
    ] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="With --generated: that many of each component, evenly spread (0: all).")
    ] = 0,
    twin: Annotated[
        bool, typer.Option("--twin", help="With --model: survivors also need the twin's graph of a small scope.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes (default: all cores).")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Spread the mutants over a cluster.")] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """The kill matrix: which mutants are killed, by what and how fast. Each equivalent mutant needs a reason."""
    from fuzz.commands import mutants as command

    chosen = command.Options(names or [], seconds, seed, generated, model, sample, twin, jobs, spark, master)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def evidence(
    names: Subjects = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Try at most that long for each defect.")] = 120.0,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Markdown document to write the table into, between its marks.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find and shrink each defect of the table: shipped versions and proposals that break a guarantee."""
    from fuzz.commands import evidence as command

    _end(as_json, command.run(names or [], seconds, write, _err()), command.show)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A campaign's folder or URI.")],
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML file from a campaign's tables (DIR/report.html)."""
    from fuzz.commands import report as command

    _end(as_json, command.run(folder), command.show)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Benchmarks whose names start with this (default: all)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML page with plots.")] = None,
    as_json: Json = False,
) -> None:
    """Run the benchmarks, each against its baseline in the same run."""
    from fuzz.commands import bench as command

    _end(as_json, command.run(names or [], out, _err()), command.show)


@app.command()
def compare(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="`transfer`; a wrong name lists all.")],
    policy: Annotated[list[str] | None, typer.Option(help="Only this policy; may be repeated (default: all).")] = None,
    size: Annotated[
        list[int] | None, typer.Option(min=1, help="Only this size; may be repeated (default: all).")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a plot: .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Run the policies of a workload on the model, and compare what they cost."""
    from fuzz.commands import compare as command

    _end(as_json, command.run(workload, policy or [], size or [], out, _err()), command.show)


@app.command()
def check(
    tier: Annotated[
        str, typer.Option(help="quick (two minutes), full (half an hour) or nightly; on two cores.")
    ] = "quick",
    since: Annotated[
        str | None, typer.Option(metavar="REV", help="Only checks that the changes since a git revision affect.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output of an earlier `check --json`: its findings do not fail.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the result as JUnit XML.")] = None,
    as_json: Json = False,
) -> None:
    """Run every check that fits a tier, for continuous integration (passed checks are kept in build/check)."""
    from fuzz.commands import check as command

    if tier not in list(command.Tier):
        raise BadValue(f"--tier must be {', '.join(command.Tier)}, got {tier}")
    options = command.Options(command.Tier(tier), since, baseline, junit)
    _end(as_json, command.run(options, _err()), command.show)
