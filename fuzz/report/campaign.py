"""The report of a campaign: one self-contained HTML file."""

from __future__ import annotations

import base64
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from fuzz.campaign.folder import Plan, State
from fuzz.campaign.kinds import is_scenario
from fuzz.campaign.schedules import PREFIX
from fuzz.campaign.summary import Compared, configs_of
from fuzz.campaign.worker import Spec, target_of
from fuzz.client.schedule import find_scenario
from fuzz.defects.page import ISSUE
from fuzz.defects.table import NO_REPORT
from fuzz.platform.version import code_version
from fuzz.report.changes import changes
from fuzz.report.diagram import draw
from fuzz.report.finding import grouped
from fuzz.report.records import OF_STATES, ExplainedFinding
from fuzz.report.sequence import sequence_chart
from fuzz.report.text import change_text, first_sentence, outcome_text, rule_text, text_of
from fuzz.run.coverage import Total
from fuzz.subject import Subject, introduction_of, module_of
from fuzz.target import Second

_CODE = re.compile(r"`([^`]+)`")
INK, RED, BLUE = "#1d2733", "#c62828", "#1f5f99"


def render(
    plan: Plan,
    state: State,
    findings: Sequence[ExplainedFinding],
    failed: Sequence[str],
    against: Compared | None = None,
) -> str:
    """Returns the report as HTML.

    `failed` has a line for each goal and action that the campaign did not reach (`missed_by_campaign`). `against` is
    the comparison with an older campaign. Cost: two or three figures for each component, and one for the campaign.
    """
    subjects = [_subject(spec, state, plan.seed) for spec in plan.specs if not is_scenario(spec.subject)]
    groups = grouped(findings)
    return page(
        "report.html",
        plan=plan,
        state=state,
        failed=failed,
        against=against,
        alone=_names_with(plan, Second.NONE),
        in_lockstep=_names_with(plan, Second.IMPLEMENTATION),
        speed=state.steps / state.seconds if state.seconds else 0.0,
        version=plan.version or code_version(),
        shown_by=code_version(),
        profiles=sorted({s.profile for s in plan.specs}),
        mutants=sorted({s.mutant for s in plan.specs if s.mutant}),
        subjects=subjects,
        scenarios=[_scenario(spec, state) for spec in plan.specs if is_scenario(spec.subject)],
        findings=groups,
        findings_of=Counter(group[0].subject for group in groups),
        throughput=_throughput(state) if state.runs else None,
    )


def _names_with(plan: Plan, second: Second) -> list[str]:
    """Returns the components for which the campaign's second side is of the kind `second`."""
    specs = [each for each in plan.specs if not is_scenario(each.subject)]
    return [each.subject for each in specs if target_of(each).second is second]


def page(template: str, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """Returns a template of `fuzz/templates/`, rendered with `values`. `filters` are added to the usual filters."""
    loader = jinja2.FunctionLoader(lambda name: (files("fuzz") / "templates" / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)
    environment.filters |= {
        "text": text_of,
        "outcome": outcome_text,
        "change": change_text,
        "sentence": first_sentence,
        "prose": prose,
        "rule": rule_text,
    }
    environment.filters |= {"sequence": sequence_chart} | dict(filters or {})
    environment.globals |= {"changes": changes, "of_states": OF_STATES, "no_report": NO_REPORT}
    return environment.get_template(template).render(**values)


def prose(text: str) -> Markup:
    """Returns a text as HTML: `code` in a fixed-width font, issues such as apache/pulsar#4265 as links."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(ISSUE.sub(r'<a href="https://github.com/\1/issues/\2">\1#\2</a>', marked))  # noqa: S704


# ---- one component ------------------------------------------------------------------------------------


def _subject(spec: Spec, state: State, first_seed: int) -> dict[str, Any]:
    """Returns what the template shows of a component."""
    subject = target_of(spec).subject
    total = state.coverage.get(spec.subject, Total())
    runs = [r for r in state.runs if r["subject"] == spec.subject]
    traces, steps, skipped = (sum(r[key] for r in runs) for key in ("traces", "steps", "skipped"))
    configs = configs_of(spec, first_seed)
    safety = [p for p in subject.properties if p.kind == "always"]
    names, refused = subject.machine.actions, {k: v[0] for k, v in total.of("refused").items()}
    taken = total.taken(names)
    reached = {k: v[1] for k, v in total.of("goal").items()}
    return {
        "name": spec.subject,
        "introduction": introduction_of(spec.subject),
        "module": module_of(spec.subject).__name__.replace(".", "/") + ".py",
        "source": subject.machine.source,
        "profile": spec.profile,
        "about": subject.machine.profiles[spec.profile].about,
        "traces": traces,
        "steps": steps,
        "speed": speed_of(runs),
        "skipped": skipped,
        "min_steps_for_coverage": subject.min_steps_for_coverage,
        "must_reach_goals": spec.mutant is None and steps >= subject.min_steps_for_coverage,
        "actions": [_action(subject, name, taken[name], refused.get(name, 0), steps) for name in names],
        "goals": [
            {"name": p.name, "guarantee": p.guarantee, "seed": reached.get(p.name)}
            for p in subject.properties
            if p.kind == "sometimes" and any(p.given(cfg) for cfg in configs)
        ],
        "guidance": dict(subject.guidance),
        "always": [p for p in safety if any(p.given(cfg) for cfg in configs)],
        "inapplicable": [p for p in safety if not any(p.given(cfg) for cfg in configs)],
        "abstract_states": len(total.of("abstract")),
        "pairs": len([previous for previous, _ in total.pairs(names) if previous]),
        "possible_pairs": len(names) ** 2,
        "heat_map": _heat_map(subject, total),
        "diagrams": diagrams_of(subject),
        "saturation": _saturation(total, first_seed, traces + skipped),
    }


def _scenario(spec: Spec, state: State) -> dict[str, Any]:
    """Returns what the template shows of a scenario."""
    scenario = find_scenario(spec.subject.removeprefix(PREFIX))
    taken = state.coverage.get(spec.subject, Total()).taken(scenario.steps)
    runs = [r for r in state.runs if r["subject"] == spec.subject]
    return {
        "name": spec.subject,
        "about": scenario.about,
        "profile": spec.profile,
        **{key: sum(r[key] for r in runs) for key in ("traces", "steps", "seconds")},
        "taken": taken,
        "contracts": scenario.contracts,
    }


def _action(subject: Subject, name: str, taken: int, refused: int, steps: int) -> dict[str, Any]:
    """Returns what the template shows of an action. `steps` is the number of steps of its component."""
    action = subject.machine.actions[name]
    is_called = all(subject.domain(name, p.name) != () for p in action.params)  # whether traces can call the action
    has_no_effect = is_called and taken == refused  # never taken, or always refused: `taken` counts refused calls, too
    return {
        "name": name,
        "about": action.docstring.splitlines()[0],
        "taken": taken,
        "refused": refused,
        "share": taken / steps if steps else 0.0,
        "always_refused": has_no_effect and taken > 0,
        "is_missing": has_no_effect and steps >= subject.min_steps_for_coverage,
        "is_called": is_called,
        "fault": action.fault,
    }


# ---- figures ------------------------------------------------------------------------------------------


@cache
def pyplot() -> Any:
    """Returns `matplotlib.pyplot`, configured for output to files. The first call imports it, which is slow."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 8, "axes.edgecolor": INK, "text.color": INK, "axes.labelcolor": INK})
    return pyplot


def picture(figure: Any) -> str:
    """Returns a figure as a data URI, because the report is one file. Closes the figure."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150, bbox_inches="tight")
    pyplot().close(figure)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _heat_map(subject: Subject, total: Total) -> str:
    """Draws how often each action followed each action, on a logarithmic scale. White means never."""
    from matplotlib.colors import LogNorm

    names = list(subject.machine.actions)
    index = {name: i for i, name in enumerate(names)}
    counts = [[float("nan")] * len(names) for _ in names]
    for (first, second), count in total.pairs(names).items():
        if first:
            counts[index[first]][index[second]] = count
    size = 0.24 * len(names) + 1.6
    figure, axes = pyplot().subplots(figsize=(size + 0.8, size))
    most = max((c for row in counts for c in row if c == c), default=1)  # noqa: PLR0124  (NaN != NaN)
    image = axes.imshow(counts, cmap="YlGnBu", norm=LogNorm(vmin=1, vmax=max(most, 2)), aspect="equal")
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("action")
    axes.set_ylabel("previous action")
    figure.colorbar(image, ax=axes, shrink=0.7, label="times")
    return picture(figure)


def diagrams_of(subject: Subject) -> str:
    """Draws the machine's state diagrams in one figure. Returns an empty string if the machine has none."""
    tables = subject.machine.diagrams
    if not tables:
        return ""
    figure, axes = pyplot().subplots(ncols=len(tables), squeeze=False, figsize=(4.2 * len(tables), 3.6))
    for each, (title, table) in zip(axes[0], tables.items(), strict=True):
        draw(each, title, table)
    return picture(figure)


def _saturation(total: Total, first_seed: int, seeds: int) -> str:
    """Draws the number of abstract states over the number of seeds. The line is flat if seeds reach no new state."""
    # for each state, the number of seeds up to the first one that reached it
    firsts = sorted(seed - first_seed + 1 for _, seed in total.of("abstract").values())
    figure, axes = pyplot().subplots(figsize=(4.6, 2.6))
    if firsts:
        axes.step(
            [0, *firsts, max(seeds, firsts[-1])],
            [0, *range(1, len(firsts) + 1), len(firsts)],
            where="post",
            color=BLUE,
        )
        axes.set_xscale("symlog")
    axes.set_xlabel("seeds")
    axes.set_ylabel("abstract states seen")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    return picture(figure)


def line_style(index: int) -> dict[str, Any]:
    """Returns the style of a line: ten colours, solid, then dashed, then dotted."""
    return {"color": f"C{index % 10}", "linestyle": ("-", "--", ":")[index // 10 % 3]}


def speed_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns the steps per second of one worker, without its time for replaying and shrinking findings.

    The time of a scenario of a real client includes shrinking.
    """
    seconds = sum(row["seconds"] - row["shrinking_seconds"] for row in rows)
    return sum(row["steps"] for row in rows) / seconds if seconds > 0 else 0.0


def _throughput(state: State) -> str:
    """Draws the steps per second of one worker over the rounds, with a line for each component and scenario."""
    figure, axes = pyplot().subplots(figsize=(9.2, 2.6))  # the legend fills the rest of the page's width
    for index, subject in enumerate(sorted({r["subject"] for r in state.runs})):
        rounds: dict[int, list[dict[str, Any]]] = {}
        for row in state.runs:
            if row["subject"] == subject:
                rounds.setdefault(row["round"], []).append(row)
        speeds = [speed_of(rows) for _, rows in sorted(rounds.items())]
        axes.plot(sorted(rounds), speeds, marker="o", markersize=3, label=subject, **line_style(index))
    axes.set_xlim(0.5, max(r["round"] for r in state.runs) + 0.5)
    axes.set_xlabel("round")
    axes.set_ylabel("steps/s of one worker while fuzzing")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.25)
    # outside the axes; long handles show the dashes
    axes.legend(frameon=False, handlelength=4, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return picture(figure)
