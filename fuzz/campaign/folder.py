"""The folder of a campaign: its parameters, and the committed results in Parquet tables.

    campaign.json     the manifest: version, seed, block length, specs. Each campaign needs a folder of its own
    commits/          a file for each committed round, with the names of its tables. An incomplete file does not count
    runs/             one table for each round, a row for each task: seeds, traces, steps, seconds, seconds of shrinking
    findings/         one table for each round: shrunk findings, each with its trace
    coverage/         one table for each round: its coverage keys (`fuzz/run/coverage.py`)
    traces/           one file for each finding: the shrunk trace or schedule. The file is named by the trace's id
    report.html       the report

The tables of a round that was not committed are ignored (`fuzz/campaign/store.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from fuzz.campaign.store import Store, commits, read_table, table_of
from fuzz.campaign.store import commit as commit_tables
from fuzz.campaign.worker import BLOCK, FindingRow, Spec, Task, TaskResult, merged
from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.platform.version import code_version
from fuzz.run.coverage import Row, Total
from model.machine import BadValue

MANIFEST = "campaign.json"
RUNS = pa.schema(
    [
        ("round", pa.int32()),
        ("subject", pa.string()),
        ("first_seed", pa.int64()),
        ("traces", pa.int64()),
        ("skipped", pa.int64()),
        ("steps", pa.int64()),
        ("seconds", pa.float64()),
        ("shrinking_seconds", pa.float64()),
        ("raw_findings", pa.int64()),  # traces with a finding; many may show the same defect
        ("round_seconds", pa.float64()),
    ]
)
FINDINGS = pa.schema(
    [
        ("round", pa.int32()),
        ("subject", pa.string()),
        ("profile", pa.string()),
        ("signature", pa.string()),
        ("cause", pa.string()),
        ("seed", pa.int64()),
        ("length", pa.int32()),
        ("shrunk_length", pa.int32()),
        ("message", pa.string()),
        ("shown", pa.int32()),  # in how many of the replays the finding showed again
        ("replays", pa.int32()),
        ("trace", pa.string()),
    ]
)
COVERAGE = pa.schema(
    [
        ("round", pa.int32()),
        ("subject", pa.string()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("times", pa.int64()),
        ("first_seed", pa.int64()),
    ]
)


class Plan(NamedTuple):
    """The parameters of a campaign. A folder has one plan."""

    specs: tuple[Spec, ...]
    seed: int  # the first seed of each spec
    version: str = ""  # the version of the code that began the campaign; empty: the version of this code

    def manifest(self) -> dict[str, Any]:
        """Returns the content of campaign.json."""
        return {
            "brokerproof": self.version or code_version(),
            "seed": self.seed,
            "block": BLOCK,
            "specs": [s._asdict() for s in self.specs],
        }


@dataclass
class State:
    """The results of all committed rounds of a campaign, added up."""

    rounds: int = 0
    traces: int = 0
    steps: int = 0
    seconds: float = 0.0  # the elapsed time of the rounds
    next_seed: dict[str, int] = field(default_factory=dict)  # the first seed that did not run, by subject
    speed: dict[str, float] = field(default_factory=dict)  # seeds per second of one process or Spark slot, by subject
    findings: list[FindingRow] = field(default_factory=list)
    coverage: dict[str, Total] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)  # the rows of the `runs` tables

    def add(self, results: Sequence[TaskResult], round_seconds: float) -> None:
        """Adds the results of a committed round to all fields except `runs`."""
        self.rounds += 1
        self.seconds += round_seconds
        for result in results:
            subject = result.task.spec.subject
            self.traces += result.traces
            self.steps += result.steps
            end = result.task.first_seed + result.task.traces
            self.next_seed[subject] = max(self.next_seed.get(subject, 0), end)
            if result.seconds > 0:
                self.speed[subject] = result.task.traces / result.seconds
            total = self.coverage.setdefault(subject, Total())
            for row in result.coverage:
                total.add(row)
            self.findings.extend(result.findings)

    @property
    def shrinking_share(self) -> float:
        """The fraction of the tasks' seconds that was spent on replaying and shrinking findings of components.

        For schedules of a real client, these seconds are not measured and count as 0.
        """
        seconds = sum(row["seconds"] for row in self.runs)
        return sum(row["shrinking_seconds"] for row in self.runs) / seconds if seconds else 0.0

    def merge_findings(self) -> list[FindingRow]:
        """Reduces `findings` to one for each subject, profile and signature. Returns the findings that are left."""
        self.findings = merged(self.findings)
        return self.findings


# ---- reading and writing ----------------------------------------------------------------------------


def check_folder(store: Store, plan: Plan) -> bool:
    """Returns True if the folder holds a campaign of this plan, False if it holds no campaign. Writes nothing.

    Raises BadValue if the folder holds a campaign of another plan or version, committed tables without a manifest, or a
    file MANIFEST that is no manifest. Also raises BadValue if `commits` does.
    """
    text, wanted, has_tables = store.read(MANIFEST), plan.manifest(), bool(commits(store))
    if text is None and has_tables:
        raise BadValue(f"{store.path('')} has tables but no {MANIFEST}; use another --out")
    wanted_text = to_json(wanted, indent=True)
    if text is None or (wanted_text.startswith(text) and text != wanted_text and not has_tables):
        return False  # no manifest, or the process that wrote the manifest died before the end
    try:
        found = from_json(text)
        differs = [key for key in wanted if found.get(key) != wanted[key]]
    except (NotJSON, AttributeError):
        raise BadValue(f"{store.path(MANIFEST)} is not a campaign's manifest; use another --out") from None
    if differs:
        key = differs[0]
        name = {"brokerproof": "version", "specs": "component, profile or mutant"}.get(key, key)
        here, now = (to_json(each).decode() for each in (found.get(key), wanted[key]))
        raise BadValue(
            f"{store.path('')} holds a campaign of another {name} ({here}, this is {now}); use another --out"
        )
    return True


def open_campaign(store: Store, plan: Plan) -> State:
    """Returns the committed state of this plan's campaign. Writes the manifest if the folder holds no campaign.

    Raises BadValue if `check_folder` does.
    """
    if check_folder(store, plan):
        return read_state(store, plan)
    store.write(MANIFEST, to_json(plan.manifest(), indent=True))
    return State(next_seed={spec.subject: plan.seed for spec in plan.specs})


def read_plan(store: Store) -> Plan:
    """Returns the plan of the campaign in a folder, also if another version of brokerproof began it.

    Raises BadValue if the folder holds no campaign.
    """
    text = store.read(MANIFEST)
    if text is None:
        raise BadValue(f"{store.path('')} holds no campaign: there is no {MANIFEST}")
    try:
        data = from_json(text)
        return Plan(tuple(Spec(**s) for s in data["specs"]), data["seed"], data["brokerproof"])
    except (NotJSON, KeyError, TypeError):
        raise BadValue(f"{store.path(MANIFEST)} is not a campaign's manifest") from None


def read_state(store: Store, plan: Plan) -> State:
    """Returns the results of all committed rounds of a campaign, added up.

    Raises BadValue if `commits` or `read_table` does.
    """
    state = State()
    state.next_seed = {spec.subject: plan.seed for spec in plan.specs}
    specs = {spec.subject: spec for spec in plan.specs}
    for committed in commits(store):
        rows = read_table(store, committed.tables["runs"], RUNS)
        findings = read_table(store, committed.tables["findings"], FINDINGS)
        coverage = read_table(store, committed.tables["coverage"], COVERAGE)
        results = []
        for row in rows:
            task = Task(specs[row["subject"]], row["first_seed"], row["traces"] + row["skipped"])
            results.append(
                TaskResult(
                    task,
                    traces=row["traces"],
                    skipped_traces=row["skipped"],
                    steps=row["steps"],
                    seconds=row["seconds"],
                    raw_findings=row["raw_findings"],
                    findings=(),  # added below, from their own table
                    coverage=(),  # added below, from their own table
                )
            )
        state.runs += rows
        state.add(results, rows[0]["round_seconds"] if rows else 0.0)
        for row in findings:
            row.pop("round")
            state.findings.append(FindingRow(**row))
        for row in coverage:
            total = state.coverage.setdefault(row["subject"], Total())
            total.add(Row(row["kind"], row["key"], row["times"], row["first_seed"]))
    state.merge_findings()
    return state


def commit(store: Store, number: int, results: Sequence[TaskResult], round_seconds: float) -> list[dict[str, Any]]:
    """Commits the results of round `number`, which took `round_seconds`. Returns the round's rows of `runs`."""
    found = merged(each for result in results for each in result.findings)
    findings = [{"round": number, **each._asdict()} for each in found]
    totals: dict[str, Total] = {}  # by subject
    for result in results:
        for row in result.coverage:
            totals.setdefault(result.task.spec.subject, Total()).add(row)
    coverage = [
        {"round": number, "subject": subject, **row._asdict()}
        for subject in sorted(totals)
        for row in totals[subject].rows()
    ]
    runs = [
        {
            "round": number,
            "subject": result.task.spec.subject,
            "first_seed": result.task.first_seed,
            "traces": result.traces,
            "skipped": result.skipped_traces,
            "steps": result.steps,
            "seconds": result.seconds,
            "shrinking_seconds": result.shrinking_seconds,
            "raw_findings": result.raw_findings,
            "round_seconds": round_seconds,
        }
        for result in results
    ]
    rows = {"findings": (findings, FINDINGS), "coverage": (coverage, COVERAGE), "runs": (runs, RUNS)}
    commit_tables(store, number, {name: table_of(*each) for name, each in rows.items()})
    return runs


def write_traces(store: Store, findings: Iterable[FindingRow]) -> None:
    """Writes the trace or schedule of each finding to its file in `traces/`. A complete file is not written again."""
    sizes = store.sizes("traces")
    for each in findings:
        name, data = trace_name(each), each.trace.encode()
        if sizes.get(name) != len(data):
            store.write(f"traces/{name}", data)


def trace_name(found: FindingRow) -> str:
    """Returns the file name of a finding's trace or schedule: the id of the trace, which ends in a digest."""
    opening = from_json(found.trace.split("\n", 1)[0])
    return str(opening["trace"]).replace("/", "-") + ".jsonl"
