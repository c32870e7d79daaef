"""The tables of `fuzz/workloads/README.md`, from results of `brokerproof compare --json`.

python -m fuzz.workloads.caches.results README.md FILE.json...      writes a table for each workload, and the policies
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.platform.json import from_json
from fuzz.workloads.caches.policies import POLICIES

_POLICIES = "| policy | what it does |"
_BEGIN, _END = "<!-- generated -->", "<!-- end -->"


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of a table, means over the seeds: hits at each size, costs at the third (or last) size."""
    sizes = sorted({row["cache_bytes"] for row in rows})
    shown = sizes[min(2, len(sizes) - 1)]
    seeds = sorted({row["seed"] for row in rows})
    named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    yield f"`brokerproof compare {rows[0]['workload']}`, {named}, {rows[0]['reads']:,} reads."
    yield ""
    hits = [f"hits % at {size:,}" for size in sizes]
    costs = [f"{name} at {shown:,}" for name in ("storage reads", "mean bytes", "dead bytes", "visits")]
    yield "| policy | " + " | ".join(hits + costs) + " |"
    yield "|---" * (1 + len(hits) + len(costs)) + "|"
    for policy in dict.fromkeys(row["policy"] for row in rows):
        cells = [f"{100 * mean(rows, policy, size, 'hit_ratio'):.1f}" for size in sizes]
        for field in ("storage_reads", "bytes_cached_mean", "dead_bytes_mean", "eviction_visits"):
            value = mean(rows, policy, shown, field)
            cells.append("" if value is None else f"{value:,.0f}")
        yield f"| {policy} | " + " | ".join(cells) + " |"


def policies() -> str:
    """Returns the policies of the study as a table, with the descriptions that `brokerproof compare` prints."""
    return "\n".join([_POLICIES, "|---|---|", *(f"| `{name}` | {each.about} |" for name, each in POLICIES.items())])


def mean(rows: list[dict[str, Any]], policy: str, size: int, field: str) -> Any:
    """Returns the mean of a field over the seeds; None if the policy does not know the field."""
    found = [row[field] for row in rows if (row["policy"], row["cache_bytes"]) == (policy, size)]
    return None if None in found else statistics.fmean(found)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sys.argv[2:]:
        result = from_json(Path(name).read_bytes())
        found.setdefault(result["workload"], []).extend(result["policies"])
    tables = "\n\n".join("\n".join(table(rows)) for _, rows in sorted(found.items()))
    text = re.sub(rf"^{re.escape(_POLICIES)}(\n\|.*)+", lambda _: policies(), document.read_text(), flags=re.MULTILINE)
    before, after = text.split(_BEGIN)[0], text.split(_END)[1]
    document.write_text(f"{before}{_BEGIN}\n{tables}\n{_END}{after}")
