"""What a person looks at: one self-contained HTML file with pictures, from a campaign's tables."""

from __future__ import annotations

import base64
import io
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from fuzz.campaign.driver import Plan, State
from fuzz.campaign.worker import Found, Spec, target_of
from fuzz.mutation.seeding import subject_or_mutant
from fuzz.platform.json import to_json
from fuzz.platform.version import code_version
from fuzz.run.call import Call
from fuzz.run.coverage import Total
from fuzz.run.pair import Pair
from fuzz.subject import Subject
from fuzz.target import Target
from fuzz.trace.file import Trace, read_traces
from model.machine import BadValue, plain

INK, RED, BLUE = "#1d2733", "#c62828", "#1f5f99"


def render(plan: Plan, state: State, failed: Sequence[str]) -> str:
    """The report as HTML. Cost: a few pictures for each subject, one checked run for each finding."""
    return page(
        "report.html",
        plan=plan,
        state=state,
        failed=failed,
        speed=state.steps / state.seconds if state.seconds else 0.0,
        version=plan.version or code_version(),
        shown_by=code_version(),
        profiles=sorted({s.profile for s in plan.specs}),
        mutants=sorted({s.mutant for s in plan.specs if s.mutant}),
        subjects=[_subject(spec, state, plan.seed) for spec in plan.specs],
        findings=[_finding(f) for f in state.merged_findings()],
        throughput=_throughput(state) if state.runs else None,
    )


def page(template: str, **values: Any) -> str:
    """A page from one of the templates, which share their style."""
    loader = jinja2.FunctionLoader(lambda name: (files("fuzz") / "templates" / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)
    return environment.get_template(template).render(**values)


# ---- one subject --------------------------------------------------------------------------------------


def _subject(spec: Spec, state: State, first_seed: int) -> dict[str, Any]:
    subject = target_of(spec).subject
    total = state.coverage.get(spec.subject, Total())
    runs = [r for r in state.runs if r["subject"] == spec.subject]
    traces, steps = sum(r["traces"] for r in runs), sum(r["steps"] for r in runs)
    taken, refused = total.taken(), {k: v[0] for k, v in total.of("refused").items()}
    witnesses = {k: v[1] for k, v in total.of("goal").items()}
    return {
        "name": spec.subject,
        "source": subject.machine.source,
        "profile": spec.profile,
        "about": subject.machine.profiles[spec.profile].about,
        "traces": traces,
        "steps": steps,
        "seconds": sum(r["seconds"] for r in runs),
        "skipped": sum(r["skipped"] for r in runs),
        "actions": [
            _action(subject, name, taken.get(name, 0), refused.get(name, 0), steps) for name in subject.machine.actions
        ],
        "witnesses": [
            {"name": p.name, "guarantee": p.guarantee, "seed": witnesses.get(p.name), "meant": _is_meant(p, spec)}
            for p in subject.properties
            if p.kind == "sometimes"
        ],
        "guidance": dict(subject.guidance),
        "always": [p for p in subject.properties if p.kind == "always"],
        "abstract_states": len(total.of("abstract")),
        "pairs": len([k for k in total.of("pair") if not k.startswith(" ")]),
        "possible_pairs": len(subject.machine.actions) ** 2,
        "heat_map": _heat_map(subject, total),
        "saturation": _saturation(total, first_seed, traces),
    }


def _action(subject: Subject, name: str, taken: int, refused: int, steps: int) -> dict[str, Any]:
    action = subject.machine.actions[name]
    drivable = all(subject.domain(name, p.name) != () for p in action.params)
    return {
        "name": name,
        "rule": action.rule.splitlines()[0],
        "taken": taken,
        "refused": refused,
        "share": taken / steps if steps else 0.0,
        "never": drivable and taken == refused,
        "driven": drivable,
        "fault": action.fault,
    }


def _is_meant(p: Any, spec: Spec) -> bool:
    from fuzz.commands.core import configs_of

    return any(p.given(cfg) for cfg in configs_of(spec, 0))


# ---- pictures -----------------------------------------------------------------------------------------


@cache
def pyplot() -> Any:
    """The plotting library, set up for files; it is slow to import."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 8, "axes.edgecolor": INK, "text.color": INK, "axes.labelcolor": INK})
    return pyplot


def picture(figure: Any) -> str:
    """A figure as a data URI, so that the report is one file."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150, bbox_inches="tight")
    pyplot().close(figure)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _heat_map(subject: Subject, total: Total) -> str:
    """How often each action followed each other one, on a logarithmic scale; white: never."""
    from matplotlib.colors import LogNorm

    names = list(subject.machine.actions)
    place = {name: i for i, name in enumerate(names)}
    counts = [[float("nan")] * len(names) for _ in names]
    for pair, (count, _) in total.of("pair").items():
        first, second = pair.split(" ")
        if first:
            counts[place[first]][place[second]] = count
    size = 0.24 * len(names) + 1.6
    figure, axes = pyplot().subplots(figsize=(size + 0.8, size))
    most = max((c for row in counts for c in row if c == c), default=1)  # noqa: PLR0124  (not a number is not itself)
    image = axes.imshow(counts, cmap="YlGnBu", norm=LogNorm(vmin=1, vmax=max(most, 2)), aspect="equal")
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("action")
    axes.set_ylabel("action before it")
    figure.colorbar(image, ax=axes, shrink=0.7, label="times")
    return picture(figure)


def _saturation(total: Total, first_seed: int, traces: int) -> str:
    """How many kinds of states had been seen after how many traces: a flat curve means little new is coming."""
    firsts = sorted(first - first_seed + 1 for _, first in total.of("abstract").values())
    figure, axes = pyplot().subplots(figsize=(4.6, 2.6))
    if firsts:
        axes.step(
            [0, *firsts, max(traces, firsts[-1])],
            [0, *range(1, len(firsts) + 1), len(firsts)],
            where="post",
            color=BLUE,
        )
        axes.set_xscale("symlog")
    axes.set_xlabel("traces")
    axes.set_ylabel("kinds of states seen")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    return picture(figure)


def line_style(place: int) -> dict[str, Any]:
    """How the line at this place is drawn: another colour for each of ten lines, then broken, then dotted."""
    return {"color": f"C{place % 10}", "linestyle": ("-", "--", ":")[place // 10 % 3]}


def _throughput(state: State) -> str:
    """Steps a second of one worker, by subject, round by round."""
    figure, axes = pyplot().subplots(figsize=(6.4, 2.6))
    for place, subject in enumerate(sorted({r["subject"] for r in state.runs})):
        rounds: dict[int, list[dict[str, Any]]] = {}
        for row in state.runs:
            if row["subject"] == subject:
                rounds.setdefault(row["round"], []).append(row)
        speeds = [
            sum(r["steps"] for r in rows) / max(sum(r["seconds"] for r in rows), 1e-9)
            for _, rows in sorted(rounds.items())
        ]
        axes.plot(sorted(rounds), speeds, marker="o", markersize=3, label=subject, **line_style(place))
    axes.set_xlabel("round")
    axes.set_ylabel("steps/s of one worker")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.25)
    # beside the lines, of which it hides none, and wide enough to show which are broken
    axes.legend(frameon=False, handlelength=4, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return picture(figure)


# ---- one finding --------------------------------------------------------------------------------------


def _finding(found: Found) -> dict[str, Any]:
    """A finding with its shrunk trace, step by step: state before, action, both outcomes."""
    trace = _trace(found)
    try:
        steps, difference = steps_of(trace)
    except Exception as problem:  # another version of the code may not run it any more
        steps, difference = [], {"problem": f"this version cannot run the trace: {problem}"}
    return {**found._asdict(), "header": trace.header, "config": trace.config, "steps": steps, "difference": difference}


def _trace(found: Found) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_text(found.trace, encoding="utf-8")
        return next(read_traces(path))


def steps_of(trace: Trace) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Runs an engine's trace with everything checked; each step as data, and what is wrong at the last.

    Raises BadValue when the trace does not fit the code.
    """
    subject = subject_or_mutant(trace.component, trace.header.get("mutant"))
    machine = subject.machine
    cfg = machine.configure(trace.config)
    against = machine.configure(trace.header["against"]) if "against" in trace.header else None
    pair = Pair(Target(subject, cfg, against))
    steps, previous = [], plain(pair.state)
    for operation in trace.operations:
        if operation.op not in machine.actions:
            raise BadValue(f"there is no action {operation.op}")
        before = plain(pair.state)
        difference = pair.step(Call(operation.op, machine.actions[operation.op].arguments(operation.args, cfg)))
        steps.append(
            {
                "action": operation.op,
                "args": operation.args,
                "before": _lines(before, _differing(previous, before)),
                "outcome": _short(pair.outcome),
                "other": _short(pair.other_outcome),
                "same": difference is None,
            }
        )
        previous = before
        if difference is not None:
            return steps, {
                "kind": str(difference.cause.kind),
                "message": difference.message,
                "after": _lines(plain(pair.state), _differing(before, plain(pair.state))),
                "expected": _lines(difference.expected, []),
                "actual": _lines(difference.actual, _differing(difference.expected, difference.actual)),
            }
    return steps, None


def _differing(a: Any, b: Any) -> list[str]:
    return [k for k in b if a.get(k) != b[k]] if isinstance(a, dict) and isinstance(b, dict) else []


def _short(value: Any) -> str:
    """An outcome in one line."""
    try:
        return _said(plain(value))
    except TypeError:
        return repr(value)


def _said(data: Any) -> str:
    """Plain data in one line, objects as name=value."""
    if isinstance(data, dict):
        return " ".join(f"{k}={_said(v)}" for k, v in data.items()) or "{}"
    if isinstance(data, list):
        return "[" + ", ".join(_said(v) for v in data) + "]"
    return to_json(data).decode()


def _lines(data: Any, marked: list[str]) -> list[dict[str, Any]]:
    """Plain data as lines: a field each; of a list of objects, an object each."""
    if not isinstance(data, dict):
        return [{"name": "", "values": [_short(data)], "marked": False}]
    lines = []
    for name, value in data.items():
        is_table = isinstance(value, list) and any(isinstance(v, dict) for v in value)
        lines.append(
            {
                "name": name,
                "values": [_said(v) for v in value] if is_table else [_said(value)],
                "marked": name in marked,
            }
        )
    return lines
