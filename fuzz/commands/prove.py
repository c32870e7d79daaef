"""`brokerproof prove`: checks claims with Z3 and CrossHair; with `--ledger`, the strongest verdict on each property."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.commands import Record, Result, Seconds
from fuzz.ledger import run_ledger
from fuzz.prove import run_prove

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class Tool(StrEnum):
    """The tool that checks a claim."""

    Z3 = "z3"
    CROSSHAIR = "crosshair"

    @property
    def title(self) -> str:  # type: ignore[override]
        """The official spelling of the name."""
        return {"z3": "Z3", "crosshair": "CrossHair"}[self]


class Verdict(StrEnum):
    """The result of checking a claim."""

    PROVED = "proved"
    CONFIRMED = "confirmed_over_all_paths"
    NO_COUNTEREXAMPLE = "no_counterexample"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


class ClaimRow(Record):
    """A claim, its verdict, and whether its control is refuted: the same claim about code with a seeded bug."""

    id: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    subject: str
    tool: Tool
    claim: NonEmpty
    source: NonEmpty
    verdict: Verdict
    detail: str
    paths: int | None  # this field and the next two: as in `invariants.proofs.claim.Answer`
    steps: int | None
    compared: int | None
    assumes: list[str]
    seconds: Seconds
    control: NonEmpty
    control_refuted: bool
    control_detail: str

    @property
    def holds(self) -> bool:
        """Whether the claim passes: the verdict is neither refuted nor unknown, and the control is refuted."""
        return self.verdict not in (Verdict.REFUTED, Verdict.UNKNOWN) and self.control_refuted


class Status(StrEnum):
    """How a property is established, the strongest way first."""

    PROVED = "proved"  # a claim that passes (`ClaimRow.holds`) implies the property
    EXHAUSTED = "exhausted"  # the explorer checks all states of a scope, whose counts are in fuzz/explore/counts.toml
    SAMPLED = "sampled"  # only traces check the property


class LedgerRow(Record):
    """A safety property, how it is established, and the scopes that check it.

    `lemmas` are the claims that imply the property. Each of them suffices.
    """

    subject: str
    property: str
    status: Status
    how: NonEmpty
    scopes: list[str]
    lemmas: list[str]
    control_refuted: bool | None  # null without lemmas
    seconds: Seconds


class ProveResult(Result):
    """A row for each claim or, with `--ledger`, for each safety property."""

    claims: list[ClaimRow]
    ledger: list[LedgerRow]

    @property
    def found(self) -> bool:
        """Whether a claim does not hold; with `--ledger`, whether a property that has claims is not proved."""
        is_open = any(row.lemmas and row.status is not Status.PROVED for row in self.ledger)
        return is_open or not all(claim.holds for claim in self.claims)


def run(names: list[str], console: Console, *, ledger: bool = False) -> ProveResult:
    """Checks the claims about the named components, by default all. With `ledger`, makes the ledger instead.

    Raises BadValue if `run_prove` or `run_ledger` does.
    """
    rows = {"ledger": run_ledger(names, console)} if ledger else run_prove(names, console)
    return msgspec.convert({"claims": [], "ledger": [], **rows}, ProveResult)


def show(console: Console, result: ProveResult) -> None:
    """Prints each claim with its verdict, or each property with the strongest one."""
    for row in result.claims:
        _show_claim(console, row)
    for each in result.ledger:
        console.print(f"{each.subject}  [bold]{each.property}[/]  {each.status}: {escape(each.how)}")


def _show_claim(console: Console, row: ClaimRow) -> None:
    tool = row.tool.title
    words = {
        Verdict.PROVED: f"proved by {tool}",
        Verdict.CONFIRMED: f"confirmed over all paths by {tool} ({row.paths} paths)",
        Verdict.NO_COUNTEREXAMPLE: f"no counterexample in {row.paths} paths, by {tool}",
    }
    verdict = words.get(row.verdict, row.verdict.value)
    console.print(f"[bold]{row.id}[/]  [{'green' if row.holds else 'red'}]{verdict}[/]  {row.seconds:.1f} s")
    console.print(f"  {escape(row.claim)}", style="dim" if row.holds else None)
    if row.detail:
        console.print(f"  {escape(row.detail)}")
    if not row.control_refuted:
        console.print(f"  [red]the control is not refuted[/] ({escape(row.control)}): {escape(row.control_detail)}")
