"""The command line `brokerproof`. This module defines the options; the commands are in `fuzz/commands/`.

The module of a command is imported when the command runs. Some modules load a solver or a plotting library, and
`--help` must answer at once.
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
from fuzz.subject import find_subject, profile_names, subject_names
from model.machine import BadValue

app = typer.Typer(
    help=(
        "Finds defects of Apache Pulsar with executable models of parts of it. Engines compare each model with an "
        "optimised implementation, and check the properties of both. A modelled part is a component, or SUBJECT. Exit "
        "codes: 0 nothing wrong found, 1 something found, 2 wrong usage or input, 3 a defect of brokerproof "
        "itself, 130 interrupted."
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
#: Limits that catch typing errors before a run: a machine cannot start more processes or tasks, a longer trace takes
#: too long, and a table cannot store larger numbers.
_MOST_PROCESSES, _MOST_TASKS, _MOST_STEPS, _LARGEST_NUMBER = 1024, 100_000, 1_000_000, 10**18

Seed = Annotated[
    int,
    typer.Option(min=0, max=_LARGEST_NUMBER, help="Seed of the first trace; each further trace has the next seed."),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, max=_MOST_STEPS, help="Steps of each trace (default: defined by the component)."),
]
Profile = Annotated[
    str, typer.Option(help="Rules and settings of the model; `brokerproof subjects SUBJECT` lists the profiles.")
]
Component = Annotated[str, typer.Argument(help="Component; `brokerproof subjects` lists them.")]
Traces = Annotated[int | None, typer.Option(min=1, help="Stop after this number of traces.")]
FuzzingSeconds = Annotated[
    float | None,
    typer.Option(min=0.01, help="Seconds of fuzzing without shrinking (default: 10 without --traces and --trace)."),
]
MutantId = Annotated[
    str | None,
    typer.Option("--mutant", metavar="ID", help="Insert this seeded bug; the run should report it."),
]
Master = Annotated[
    str | None,
    typer.Option(help="Run on this Spark master URL (default with --spark: all cores of this machine)."),
]
Subjects = Annotated[list[str] | None, typer.Argument(metavar="SUBJECT", help="Components (default: all).")]

_STOPPED = "stopped before its end; the complete rounds of a campaign are kept"


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
        message = problem.format_message().replace("\n", " ").removesuffix(".")
        return _complain(f"{message}. {_hint(problem, arguments or sys.argv[1:])}")
    except KeyboardInterrupt:
        return _complain(_STOPPED, ExitCode.STOPPED)
    except BrokenPipeError:  # of output that is no result, such as help
        _discard_output()
        return ExitCode.NOTHING_FOUND
    except Exception:
        traceback.print_exc()
        return _complain(
            "this is a defect of brokerproof itself, not a finding; please report it with the lines above",
            ExitCode.DEFECT,
        )
    if code == ExitCode.STOPPED:  # typer returns this code for an interrupt of a command
        return _complain(_STOPPED, ExitCode.STOPPED)
    return int(code or 0)


def _hint(problem: TyperException, arguments: Sequence[str]) -> str:
    """Returns the component's profiles if --profile or --against lacks a value, else the command that prints help."""
    if getattr(problem, "option_name", "") in ("--profile", "--against"):
        for name in arguments:
            if name in subject_names():
                return f"The profiles of {name} are {', '.join(profile_names(find_subject(name)))}."
    context = getattr(problem, "ctx", None)
    command = f"{context.info_name} " if context is not None and context.parent is not None else ""
    return f"Try brokerproof {command}--help."


def _complain(message: str, code: int = ExitCode.WRONG) -> int:
    """Prints a message as one line on standard error. Returns the code."""
    sys.stderr.write("brokerproof: " + " ".join(message.split()) + "\n")
    return code


def _err() -> Console:
    return Console(stderr=True, highlight=False)


def _discard_output() -> None:
    """Discards all further output, because the reader of the pipe has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Output(Console):
    """Standard output. If its reader closes the pipe, as `head` does, the command ends with its usual exit code."""

    def on_broken_pipe(self) -> None:
        """Called by rich, whose own method exits with the code 1."""
        self.quiet = True
        _discard_output()


R = TypeVar("R", bound=Result)


def _end(as_json: bool, result: R, show: Callable[[Console, R], None]) -> NoReturn:
    """Prints the result, as one JSON object or for a person, and ends the command."""
    if as_json:
        try:
            sys.stdout.write(to_json(result).decode() + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
    else:
        # a pipe gets long lines, so that other tools find whole names
        show(_Output(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160), result)
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
            help="Print the release and a digest of the code. A seed gives the same trace only with the same digest.",
        ),
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def subjects(names: Subjects = None, as_json: Json = False) -> None:
    """List the components, or describe some: profiles, rules, settings, actions and properties."""
    from fuzz.commands import subjects as command

    result = command.run(names or [])
    _end(as_json, result, lambda console, each: command.show(console, each, in_full=bool(names)))


@app.command()
def fuzz(
    subject: Component,
    profile: Profile = "reference",
    against: Annotated[
        str | None,
        typer.Option(metavar="PROFILE", help="Compare the model under --profile with the model under this profile."),
    ] = None,
    property_name: Annotated[
        str | None,
        typer.Option(
            "--property", metavar="NAME", help="Check only this safety property, on the model, until a violation."
        ),
    ] = None,
    seed: Seed = 0,
    traces: Traces = None,
    steps: Steps = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Seconds of fuzzing and shrinking (default without --traces: 10, or 60 with --stop-at-first).",
        ),
    ] = None,
    stop_at_first: Annotated[bool, typer.Option("--stop-at-first", help="Stop at the first finding.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=_MOST_PROCESSES, help="Number of processes.")] = 1,
    mutant: MutantId = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for traces of findings, and a corpus: traces that together reach each abstract state and "
            "coverage goal of the run (default: build/fuzz, and no corpus).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run random traces of one component: compare its model with its implementation, and check its properties."""
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
        list[str] | None,
        typer.Argument(
            metavar="SUBJECT",
            help="Components, or client.SCENARIO for a real client (default: all with the profile, except the canary).",
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile (default: reference; for client.SCENARIO, cpp-4.2.0).")
    ] = None,
    seed: Seed = 0,
    traces: Annotated[
        int | None, typer.Option(min=1, help="Stop when each component has this number of traces.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Time limit of this run, not counting start-up; the last round is completed "
            "(default: 60 without --traces).",
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master URL (default: that of spark-submit, or all cores of this machine).")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=_MOST_TASKS, help="Number of Spark partitions of each round.")
    ] = None,
    mutant: MutantId = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Folder or URI of a file system that Spark supports. A campaign there is resumed "
            "(default: a folder in build/campaigns/, named by SUBJECT, mutant, profile, seed and version of the code).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fuzz components on Spark, and write an HTML report. The same command resumes a campaign."""
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
            metavar="URI",
            help="Files or folders with findings, recordings, calls of threads, or ownership records; plain or gzip.",
        ),
    ],
    profile: Annotated[
        str | None, typer.Option(help="Profile (default: the trace's own config, or the recorded version's profile).")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Spark master URL (default: Spark only if a file or --out is not on this machine)."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Write a Parquet table, with one row for each trace, to this new folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay findings, or check recorded traces against the model: of Pulsar, of a cluster, of several threads."""
    from fuzz.commands import replay as command

    chosen = command.Options(files, profile, master, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def sut(
    subject: Component,
    program: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="Program to test, and its arguments.")],
    profile: Profile = "reference",
    seed: Seed = 0,
    traces: Traces = None,
    steps: Steps = None,
    seconds: FuzzingSeconds = None,
    reply_seconds: Annotated[
        float, typer.Option("--reply-seconds", min=0.01, help="Time limit of each reply; the first includes start-up.")
    ] = 10.0,
    reply_bytes: Annotated[int, typer.Option("--reply-bytes", min=1, help="Size limit of each reply.")] = 1 << 24,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Replay only this trace of a finding.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for traces of findings (default: build/sut).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test your own program: compare it with the model, over lines of JSON (see fuzz/README.md)."""
    from fuzz.campaign.worker import Spec
    from fuzz.commands import sut as command
    from fuzz.run.link import Limits

    if seconds is None and traces is None:
        seconds = 10.0
    limits, spec = Limits(reply_seconds, reply_bytes), Spec(subject, profile, steps=steps)
    chosen = command.Options(spec, program, seed, traces, seconds, limits, trace, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def client(
    scenario: Annotated[str, typer.Argument(help="Scenario, such as producer (fuzz/README.md lists them), or all.")],
    driver: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]", help="Driver of your own client, and its arguments.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Profile whose known deviations do not fail the run: cpp-4.2.0, or reference, which has none.",
            show_default="cpp-4.2.0; with COMMAND, reference",
        ),
    ] = None,
    seed: Seed = 0,
    traces: Annotated[int | None, typer.Option(min=1, help="Number of schedules of each scenario.")] = None,
    seconds: FuzzingSeconds = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Replay only this schedule of a finding.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for schedules of findings (default: build/client).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test a real Pulsar client against brokers that answer as the models do (see fuzz/README.md)."""
    from fuzz.commands import client as command

    if seconds is None and traces is None and trace is None:
        seconds = 10.0
    chosen = command.Options(scenario, profile, seed, traces, seconds, trace, out, driver or ())
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def explore(
    subject: Component,
    scope: Annotated[str, typer.Option(help="Bounds that make the state space finite, such as smoke or ci.")] = "smoke",
    profile: Profile = "reference",
    mutant: MutantId = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Search on Spark, for scopes that do not fit in the memory of one machine; no liveness properties.",
        ),
    ] = False,
    master: Master = None,
    cover: Annotated[
        bool,
        typer.Option(
            "--cover",
            help="Also run traces from the initial state that together take every transition.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for traces of violations.")] = Path("build/explore"),
    as_json: Json = False,
) -> None:
    """Visit every state within bounds (a scope), and check every transition; prints shortest counterexamples."""
    from fuzz.commands import explore as command

    chosen = command.Options(subject, scope, profile, mutant, spark or master is not None, master, cover, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def prove(
    names: Subjects = None,
    ledger: Annotated[
        bool,
        typer.Option("--ledger", help="Show the strongest verdict on each safety property, not the claims."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Prove claims with Z3 and CrossHair. Each claim has a control, a broken variant, which must be refuted."""
    from fuzz.commands import prove as command

    _end(as_json, command.run(names or [], _err(), ledger=ledger), command.show)


@app.command()
def tla(
    modules: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODULE", help="Modules of tla/ that have runs, such as RangeCache (default: all)."),
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Only runs of this scope, such as smoke or ci (default: all but nightly).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run TLC on the TLA+ twins, and compare their states and transitions with the models' (logs: build/tla)."""
    from fuzz.commands import tla as command

    _end(as_json, command.run(modules or [], scope, _err()), command.show)


@app.command()
def mutants(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="SUBJECT", help="Components (default: all with mutants).")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Processor time of fuzzing each mutant.")] = 60.0,
    seed: Seed = 0,
    generated: Annotated[
        bool,
        typer.Option("--generated", help="Instead of seeded bugs, use mutants generated from the implementation."),
    ] = False,
    model: Annotated[
        bool,
        typer.Option(
            "--model",
            help="With --generated: mutate the model; properties, recordings and examples must kill the mutants.",
        ),
    ] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="With --generated: number of mutants of each component, evenly spread (0: all).")
    ] = 0,
    twin: Annotated[
        bool,
        typer.Option(
            "--twin",
            help="With --model: also compare the state graphs of survivors with the model's, which TLC confirms.",
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=_MOST_PROCESSES, help="Number of processes (default: all cores).")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run the mutants on Spark.")] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Run the checks on seeded bugs (mutants), and print which check kills each mutant, and how fast."""
    from fuzz.commands import mutants as command

    on_spark = spark or master is not None
    chosen = command.Options(names or [], seconds, seed, generated, model, sample, twin, jobs, on_spark, master)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def evidence(
    names: Subjects = None,
    most_steps: Annotated[int, typer.Option(min=1, help="Maximum steps of random traces for each defect.")] = 2_000_000,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Add missing results to the generated table in this Markdown file.",
        ),
    ] = None,
    defect: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Find only this defect of the component, and print its trace."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find every known defect (fuzz/defects) by fuzzing, and print how many steps that takes."""
    from fuzz.commands import evidence as command

    _end(as_json, command.run(names or [], most_steps, write, _err(), defect), command.show)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder or URI of a campaign (its --out).")],
    against: Annotated[
        str | None,
        typer.Option(metavar="OLDER", help="Also show which findings are new or gone since this campaign."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the HTML report of a campaign again (DIR/report.html, one self-contained file)."""
    from fuzz.commands import report as command

    _end(as_json, command.run(folder, against), command.show)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Prefixes of benchmark names (default: all)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML page with plots.")] = None,
    as_json: Json = False,
) -> None:
    """Measure the speed and memory of our code, each value beside a baseline from the same run."""
    from fuzz.commands import bench as command

    _end(as_json, command.run(names or [], out, _err()), command.show)


@app.command()
def compare(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help="`transfer` of a bundle between brokers, or a stream of reads through the entry cache: catch_up, "
            "churn, drain, file:PATH, key_shared, mix (tailing and catch_up), reconnect, rolling_restart, tailing, "
            "topics_mix. Several are separated by commas.",
        ),
    ],
    policy: Annotated[
        list[str] | None, typer.Option(help="Only this policy, such as V0 or 5.0; may be repeated.")
    ] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(
            "--cache-bytes",
            "--size",
            min=1,
            max=_LARGEST_NUMBER,
            help="Size of a broker's cache in bytes; for `transfer`, --size is the number of topics; may be repeated.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, max=_LARGEST_NUMBER, help="Seed; may be repeated (default: 0).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the workload, as in scale=1; may be repeated."),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run the grid on Spark.")] = False,
    master: Master = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Write a plot (.png, .svg or .pdf), or to this folder a Parquet table and a plot; a table there is "
            "continued.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a workload under each policy or protocol variant, and print what each costs."""
    from fuzz.commands import compare as command

    chosen = command.Options(workload, policy or [], size or [], seed or [], settings or [], spark, master, out)
    _end(as_json, command.run(chosen, _err()), command.show)


@app.command()
def check(
    tier: Annotated[
        str, typer.Option(help="quick (two minutes on two cores), full (half an hour) or nightly (hours).")
    ] = "quick",
    kind: Annotated[
        list[str] | None, typer.Option(help="Run only checks of this kind, such as fuzz or generated; may be repeated.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="REV", help="Run only checks that depend on files changed since this git revision."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output of an earlier `check --json`; findings that it contains do not fail the check."
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the result as JUnit XML.")] = None,
    as_json: Json = False,
) -> None:
    """Run all checks of a tier, for continuous integration. Passed checks without findings are cached (build/check)."""
    from fuzz.commands import check as command

    if tier not in list(command.Tier):
        raise BadValue(f"--tier must be {', '.join(command.Tier)}, got {tier}")
    for each in kind or []:
        if each not in list(command.Kind):
            raise BadValue(f"--kind must be {', '.join(command.Kind)}, got {each}")
    kinds = [command.Kind(each) for each in kind] if kind else tuple(command.Kind)
    options = command.Options(command.Tier(tier), since, baseline, junit, kinds=kinds)
    _end(as_json, command.run(options, _err()), command.show)
