"""The explorer's search on Spark, for scopes larger than one machine's memory: the same states, the same counts.

Workers expand the states of one depth; their unvisited successors are the states of the next depth. States are
exchanged as JSON and partitioned by a checksum. The driver receives counts, and one failure of each cause and depth. A
hang does not end the search.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fuzz.explore.search import Bounded, Exploration, Failure, Progress, Search, bounded, explained, shortest_by_cause
from fuzz.platform.json import from_json, to_json
from fuzz.run.call import Call
from fuzz.run.finding import Cause, Kind
from fuzz.run.watchdog import Hang, watchdog
from fuzz.target import resolve
from model.machine import plain
from model.values import fitter

#: Processor time after which the expansion of one state counts as a hang.
_HANG_SECONDS = 5.0


class SpaceNames(NamedTuple):
    """The names from which a worker creates the space."""

    subject: str
    scope: str
    profile: str
    mutant: str | None

    def build(self) -> Bounded:
        """The space. Raises BadValue for unknown names."""
        return bounded(resolve(self.subject, self.profile, mutant=self.mutant).subject, self.scope, self.profile)


def partition_of(key: bytes) -> int:
    """The partition of a state: a checksum, because Python's hash differs between workers."""
    return zlib.crc32(key)


def state_to_json(state: Any) -> bytes:
    """A state as JSON, in which equal states have equal bytes."""
    return to_json(plain(state))


def state_from_json(space: Bounded, text: bytes) -> Any:
    """A state from JSON."""
    kind: Any = type(space.start)
    return fitter(kind)(from_json(text), "state", space.cfg)


def explore_on_spark(names: SpaceNames, spark: Any, partitions: int, progress: Progress | None = None) -> Exploration:
    """Visits every state of a scope once, on a cluster; `eventually` properties are not checked.

    Cost: as `explore`, spread over the workers, and two shuffles a level.
    """
    from pyspark import StorageLevel

    started = time.perf_counter()
    space = names.build()
    keep = StorageLevel.MEMORY_AND_DISK
    context = spark.sparkContext
    first = [(state_to_json(space.start), b"")]
    frontier = context.parallelize(first, 1).partitionBy(partitions, partition_of).persist(keep)
    visited, levels, states, transitions = frontier, [frontier], 1, 0
    found: dict[tuple[str, str], tuple[int, tuple[bytes, str, bytes, str, str]]] = {}
    count = 1
    while count:
        rows = frontier.mapPartitions(lambda part: _expanded(names, part)).persist(keep)
        transitions += rows.filter(lambda row: row[0] == "transitions").map(lambda row: row[1]).sum()
        failures = rows.filter(lambda row: row[0] == "failure").map(lambda row: row[1])
        for cause, failure in sorted(failures.reduceByKey(min, 1, lambda _: 0).collect()):
            found.setdefault(cause, (len(levels) - 1, failure))
        successors = rows.filter(lambda row: row[0] == "state").map(lambda row: row[1])
        new = successors.reduceByKey(min, partitions, partition_of).subtractByKey(visited, partitions)
        frontier = new.partitionBy(partitions, partition_of).persist(keep)
        count = frontier.count()
        rows.unpersist()
        visited = visited.union(frontier).partitionBy(partitions, partition_of)
        levels.append(frontier)
        states += count
        if progress is not None:
            progress(states - count, states)
    violations = [
        explained(
            space,
            Failure(Cause(Kind(kind), what), 0, call_from_json(space, action, arguments), message, raised_by or None),
            _path(space, levels, level, text),
        )
        for (kind, what), (level, (text, action, arguments, message, raised_by)) in found.items()
    ]
    return Exploration(
        states, transitions, len(levels) - 2, time.perf_counter() - started, shortest_by_cause(violations)
    )


def _expanded(names: SpaceNames, part: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, Any]]:
    """On a worker: for each state its successors, the number of transitions, and failures."""
    space = names.build()
    transitions = 0
    for text, _parent in part:
        search = Search(space, True, True, state_from_json(space, text))
        try:
            with watchdog(_HANG_SECONDS):
                search.expand(0)
        except Hang:
            search.hang(0)
        transitions += len(search.graph.targets)
        for form in search.graph.states[1:]:
            yield "state", (state_to_json(form), text)
        for failure in search.failures:
            action, arguments = failure.call or ("", ())
            named = space.machine.actions[action].named(arguments) if action else {}
            cause = str(failure.cause.kind), failure.cause.what
            yield "failure", (cause, (text, action, to_json(named), failure.message, failure.raised_by or ""))
    yield "transitions", transitions


def call_from_json(space: Bounded, action: str, arguments: bytes) -> Call | None:
    """The call of a failure on a worker, or None for a failure in a state."""
    return Call(action, space.machine.actions[action].arguments(from_json(arguments), space.cfg)) if action else None


def _path(space: Bounded, levels: list[Any], level: int, text: bytes) -> list[Any]:
    """The states of a shortest trace to this one, one from each level."""
    path = [text]
    for each in range(level, 0, -1):
        path.append(levels[each].lookup(path[-1])[0])
    return [state_from_json(space, each) for each in reversed(path)]
