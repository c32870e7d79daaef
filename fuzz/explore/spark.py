"""The explorer's search on Spark, for scopes larger than one machine's memory: the same states, the same counts.

Workers expand the states of one depth; the unvisited successors of these states are the states of the next depth.
States are exchanged as JSON and partitioned by a checksum. The driver receives counts, and one failure of each cause
and depth. A hang does not end the search.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fuzz.explore.search import Exploration, Failure, Progress, Search, Space, explained, find_space, shortest_by_cause
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
    """The names from which a worker makes the state space."""

    subject: str
    scope: str
    profile: str
    mutant: str | None

    def build(self) -> Space:
        """Returns the state space. Raises BadValue for unknown names."""
        return find_space(resolve(self.subject, self.profile, mutant=self.mutant).subject, self.scope, self.profile)


def partition_of(key: bytes) -> int:
    """Returns a checksum of a state as JSON, which selects its partition. Python's hash differs between workers."""
    return zlib.crc32(key)


def state_to_json(state: Any) -> bytes:
    """Returns a state as JSON. Equal states have equal bytes."""
    return to_json(plain(state))


def state_from_json(space: Space, text: bytes) -> Any:
    """Returns the state with this JSON. Raises BadValue if it is not one of the space's machine."""
    kind: Any = type(space.start)
    return fitter(kind)(from_json(text), "state", space.cfg)


def explore_on_spark(names: SpaceNames, spark: Any, partitions: int, progress: Progress | None = None) -> Exploration:
    """Visits every state of a scope once, on a cluster. `eventually` properties are not checked.

    `partitions` is the number of Spark's partitions. `progress` receives the numbers of expanded and of found states.
    The number of states has no limit. Cost: that of `explore`, spread over the workers, and two shuffles for each
    depth.
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
    """Expands the states of a partition on a worker. Yields successors with the state before, failures, transitions."""
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


def call_from_json(space: Space, action: str, arguments: bytes) -> Call | None:
    """Returns the call of a failure; None for a failure of a state, whose action is empty. Raises BadValue."""
    return Call(action, space.machine.actions[action].arguments(from_json(arguments), space.cfg)) if action else None


def _path(space: Space, levels: list[Any], level: int, text: bytes) -> list[Any]:
    """Returns the states of a shortest trace to a state, one from each level. `text` is the state as JSON."""
    path = [text]
    for each in range(level, 0, -1):
        path.append(levels[each].lookup(path[-1])[0])
    return [state_from_json(space, each) for each in reversed(path)]
