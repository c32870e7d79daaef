"""`brokerproof report`: one HTML file from a campaign's tables, with `--against` also a comparison of two campaigns."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.folder import read_plan, read_state
from fuzz.campaign.store import HadoopStore, LocalStore, Store, is_local, local_path
from fuzz.campaign.summary import Compared, compared
from fuzz.commands import Result
from fuzz.commands.campaign import explained_findings, write_report
from fuzz.platform.spark import session


class ReportResult(Result, omit_defaults=True):
    """The path or URI of the report, and the comparison with an older campaign (`Compared`).

    `new` has the signatures of findings that are only in this campaign, `gone` only in the older one, `known` in both.
    """

    html: str
    new: list[str] | None
    gone: list[str] | None
    known: list[str] | None
    coverage_gained: list[str] | None


def run(folder: str, against: str | None = None) -> ReportResult:
    """Writes the report into a campaign's folder or URI. `against` is the folder or URI of an older campaign.

    Raises BadValue if a folder holds no campaign, or if the campaigns cannot be compared (`compared`).
    """
    folders = [each for each in (folder, against) if each is not None]
    if all(is_local(each) for each in folders):
        return _written(folder, against, lambda each: LocalStore(local_path(each)))
    with session("brokerproof report") as spark:
        return _written(
            folder, against, lambda each: LocalStore(local_path(each)) if is_local(each) else HadoopStore(spark, each)
        )


def _written(folder: str, against: str | None, store_of: Callable[[str], Store]) -> ReportResult:
    store = store_of(folder)
    plan = read_plan(store)
    state = read_state(store, plan)
    against_older: Compared | None = None
    if against is not None:
        older = store_of(against)
        older_plan = read_plan(older)
        against_older = compared((plan, state), (older_plan, read_state(older, older_plan)), against)
    html = write_report(store, plan, state, explained_findings(store, state), against_older)
    # without an older campaign, every key of the comparison is None
    return ReportResult(html=html, **{key: getattr(against_older, key, None) for key in _KEYS})


#: The keys of the comparison with an older campaign, and their headings.
_KEYS = {"new": "new", "gone": "gone", "known": "in both campaigns", "coverage_gained": "coverage gained"}


def show(console: Console, result: ReportResult) -> None:
    """Prints what differs from the older campaign, if one was named, and the path."""
    for key, heading in _KEYS.items():
        lines = getattr(result, key)
        if lines is not None:
            console.print(f"{heading}: {len(lines)}")
            for line in lines:
                console.print(f"  {escape(line)}")
    console.print(escape(result.html))
