"""`brokerproof report`: one HTML file from a campaign's tables."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.driver import read_plan, read_state
from fuzz.campaign.store import HadoopStore, LocalStore, Store, is_local, local_path
from fuzz.commands import Result
from fuzz.commands.campaign import shown_findings, write_report
from fuzz.platform.spark import session


class ReportResult(Result):
    """Where the report is."""

    html: str


def run(folder: str) -> ReportResult:
    """Writes the report of a campaign's folder or URI. Raises BadValue when there is no campaign."""
    if is_local(folder):
        return _written(LocalStore(local_path(folder)))
    with session("brokerproof report") as spark:
        return _written(HadoopStore(spark, folder))


def _written(store: Store) -> ReportResult:
    plan = read_plan(store)
    state = read_state(store, plan)
    return ReportResult(html=write_report(store, plan, state, shown_findings(store, state)))


def show(console: Console, result: ReportResult) -> None:
    """Prints the path."""
    console.print(escape(result.html))
