"""The specification as a site: `python -m fuzz.spec DIR` writes DIR/index.html.

The site is for readers who look up what Pulsar does. It has a page for each component, made from its model, properties,
tables and claims: header, actions with their source, guarantees, rules, settings, profiles, known defects, claims and
scopes. Another page has the settings of Pulsar's broker and clients that occur in a model. The modules of `model/` and
`invariants/`, as pdoc documents them, are under DIR/modules.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from fuzz.commands.subjects import SettingRow, SubjectRow, row_of
from fuzz.defects.table import all_defects, not_expressible, suspected
from fuzz.explore.counts import counts_of
from fuzz.platform.version import code_version
from fuzz.prove import claims_about
from fuzz.report.campaign import diagrams_of, page
from fuzz.report.text import text_of
from fuzz.subject import Subject, find_subject, module_of, subject_names
from model.machine import Action, BadValue
from model.values import RELEASES, describe

_FORMAT = HtmlFormatter(nowrap=True)
_STYLE = Markup(_FORMAT.get_style_defs(".source"))  # noqa: S704


class ActionShown(NamedTuple):
    """An action of a component, its docstring and its source."""

    name: str
    parameters: str
    text: str
    fault: bool
    source: Markup


class ScopeShown(NamedTuple):
    """A scope, what it excludes (`Scope.exclusions`), and its numbers of states and transitions, if recorded."""

    name: str
    exclusions: dict[str, str]
    states: int | None
    transitions: int | None


def write(folder: Path) -> Path:
    """Writes the site, in place of an earlier one. Returns the path of the first page. Cost: some seconds.

    Raises BadValue if the folder has files but no site, because the files would be deleted.
    """
    import pdoc
    import pdoc.render

    # every site has the page settings.html
    if folder.exists() and any(folder.iterdir()) and not (folder / "settings.html").is_file():
        raise BadValue(f"{folder} has files but no site; name a new or empty folder")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name, text in pages(subject_names()).items():
        (folder / name).write_text(text, encoding="utf-8")
    pdoc.render.configure(docformat="markdown", footer_text=f"brokerproof {code_version()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # imports for type checkers only, which pdoc cannot resolve
        pdoc.pdoc("model", "invariants", "!invariants.proofs", output_directory=folder / "modules")
    return folder / "index.html"


def pages(names: Sequence[str]) -> dict[str, str]:
    """Returns the pages, by file name: an index, a page for each of these components, and the page of settings."""
    subjects = [find_subject(name) for name in names]
    rows = [row_of(subject) for subject in subjects]
    shared = {"version": code_version(), "names": names}
    summaries = [_summary(subject, row) for subject, row in zip(subjects, rows, strict=True)]
    settings = [(row.name, each) for row in rows for each in row.settings if each.broker_name]
    made = {
        "index.html": _rendered("spec_index.html", rows=summaries, **shared),
        "settings.html": _rendered("spec_settings.html", settings=settings, releases=RELEASES, **shared),
    }
    for subject, row in zip(subjects, rows, strict=True):
        made[f"{subject.name}.html"] = _rendered("spec_component.html", row=row, **_component(subject), **shared)
    return made


def _rendered(template: str, **values: Any) -> str:
    filters: dict[str, Callable[..., Any]] = {"by_release": by_release}
    return page(template, filters, style=_STYLE, **values)


def by_release(setting: SettingRow) -> list[str]:
    """Returns the default of a setting in each release; a dash if the release does not have it."""
    defaults = [setting.broker_defaults[release] for release in RELEASES]
    return [text_of(each) if each is not None else "-" for each in defaults]


def _summary(subject: Subject, row: SubjectRow) -> dict[str, Any]:
    kinds = [each.kind for each in row.properties]
    return {
        "row": row,
        "safety": kinds.count("always"),
        "goals": kinds.count("sometimes"),
        "liveness": kinds.count("eventually"),
        "defects": sum(each.component == subject.name for each in all_defects()),
    }


def _component(subject: Subject) -> dict[str, Any]:
    module, name = module_of(subject.name), subject.name
    return {
        "header": inspect.getdoc(module) or "",
        "module": module.__name__.replace(".", "/") + ".html",
        "diagram": diagrams_of(subject),
        "actions": [_action(each) for each in subject.machine.actions.values()],
        "guarantees": _guarantees(subject),
        "defects": [row for row in all_defects() if row.component == name],
        "not_expressible": not_expressible(name),
        "suspected": suspected(name),
        "claims": claims_about(name),
        "scopes": [_scope(subject, each) for each in subject.scopes],
        "releases": RELEASES,
    }


def _action(action: Action) -> ActionShown:
    parameters = "; ".join(f"{p.name}: {describe(p.annotation)}" for p in action.params)
    return ActionShown(action.name, parameters, action.docstring, action.fault, _source(action.run))


def _source(function: Callable[..., Any]) -> Markup:
    return Markup(highlight(inspect.getsource(function), PythonLexer(), _FORMAT))  # noqa: S704


def _guarantees(subject: Subject) -> dict[str, list[Any]]:
    titles = {"always": "Safety: always true", "eventually": "Liveness: eventually true", "sometimes": "Coverage goals"}
    return {
        title: [(p.name, p.guarantee, _source(p.holds)) for p in subject.properties if p.kind == kind]
        for kind, title in titles.items()
    }


def _scope(subject: Subject, name: str) -> ScopeShown:
    counts, exclusions = counts_of(subject.name, name), subject.scopes[name].exclusions()
    if counts is None:
        return ScopeShown(name, exclusions, None, None)
    return ScopeShown(name, exclusions, counts.distinct_states, counts.transitions)


if __name__ == "__main__":
    try:
        print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "build/spec")))
    except BadValue as problem:
        sys.exit(f"brokerproof: {problem}")
