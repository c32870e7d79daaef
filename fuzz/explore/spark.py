"""The explorer on Spark, for scopes larger than one machine's memory. Its counts are those of `explore`.

Workers expand the states of one depth; the unvisited successors of these states are the states of the next depth.
States are exchanged as JSON and partitioned by a checksum. The driver receives counts, one failure of each cause and
depth, and at the end the states on a shortest trace to each failure. A hang ends the expansion of one state only.
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
    """The names from which the driver and each worker make the state space."""

    subject: str
    scope: str
    profile: str
    mutant: str | None

    def build(self) -> Space:
        """Returns the state space. Raises BadValue for unknown names."""
        return find_space(resolve(self.subject, self.profile, mutant=self.mutant).subject, self.scope, self.profile)


def checksum(state: bytes) -> int:
    """Returns a number from which Spark chooses the partition of a state. All workers compute the same number."""
    return zlib.crc32(state)


def state_to_json(state: Any) -> bytes:
    """Returns a state as JSON. Equal states have equal bytes."""
    return to_json(plain(state))


def state_from_json(space: Space, text: bytes) -> Any:
    """Returns the state with this JSON. Raises BadValue if the JSON is not a state of the space's machine."""
    kind: Any = type(space.start)
    return fitter(kind)(from_json(text), "state", space.cfg)


def explore_on_spark(names: SpaceNames, spark: Any, partitions: int, progress: Progress | None = None) -> Exploration:
    """Visits every state of a scope once, on a cluster. `eventually` properties are not checked.

    `partitions` is the number of Spark's partitions. `progress` receives the numbers of expanded and of found states.
    The number of states has no limit. Cost: that of `explore`, spread over the workers; for each depth, one shuffle of
    the successors, and a pass over the visited states.
    """
    from pyspark import StorageLevel

    started = time.perf_counter()
    space = names.build()
    keep = StorageLevel.MEMORY_AND_DISK
    context = spark.sparkContext
    first = [(state_to_json(space.start), b"")]  # a state and its parent; the initial state has none
    frontier = context.parallelize(first, 1).partitionBy(partitions, checksum).persist(keep)
    visited, frontiers, states, transitions = frontier, [frontier], 1, 0
    #: kind and text of a cause -> the depth, and the failure as `_expanded` yields it
    failed: dict[tuple[str, str], tuple[int, tuple[bytes, str, bytes, str, str]]] = {}
    new = 1  # number of states that the last depth added
    while new:
        rows = frontier.mapPartitions(lambda part: _expanded(names, part)).persist(keep)
        transitions += rows.filter(lambda row: row[0] == "transitions").map(lambda row: row[1]).sum()
        failures = rows.filter(lambda row: row[0] == "failure").map(lambda row: row[1])
        for cause, failure in sorted(failures.reduceByKey(min, 1, lambda _: 0).collect()):
            failed.setdefault(cause, (len(frontiers) - 1, failure))
        successors = rows.filter(lambda row: row[0] == "state").map(lambda row: row[1])
        reached = successors.reduceByKey(min, partitions, checksum)
        # both have the same partitioner, so a state is in the same partition of both, and `union` moves nothing
        both = reached.mapValues(lambda parent: (True, parent)).union(visited.mapValues(lambda parent: (False, parent)))
        frontier = both.mapPartitions(_unvisited, preservesPartitioning=True).persist(keep)
        new = frontier.count()
        rows.unpersist()
        visited = visited.union(frontier)
        frontiers.append(frontier)
        states += new
        if progress is not None:
            progress(states - new, states)
    # 0: `explained` does not use the number of a failure's state
    violations = [
        explained(
            space,
            Failure(Cause(Kind(kind), what), 0, call_from_json(space, action, arguments), message, raised_by or None),
            _path(space, frontiers, depth, text),
        )
        for (kind, what), (depth, (text, action, arguments, message, raised_by)) in failed.items()
    ]
    # the first frontier has depth 0, and the last frontier is empty: the depth is the number of frontiers - 2
    return Exploration(
        states, transitions, len(frontiers) - 2, time.perf_counter() - started, shortest_by_cause(violations)
    )


def _unvisited(part: Iterable[tuple[bytes, tuple[bool, bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    """Yields the new states of a partition, each with its parent: the state before it on a shortest trace.

    A partition has the reached states (True), then the visited states (False). Only reached states are kept in memory.
    """
    new: dict[bytes, bytes] = {}
    for state, (is_reached, parent) in part:
        if is_reached:
            new[state] = parent
        else:
            new.pop(state, None)
    return iter(new.items())


def _expanded(names: SpaceNames, part: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, Any]]:
    """Expands the states of a partition on a worker.

    Yields ("state", (successor, parent)), ("failure", (cause, failure)), and at last ("transitions", number). A failure
    is a state, the name of an action or an empty text, arguments, a message, and the name of the property that raised
    an exception or an empty text.
    """
    space = names.build()
    transitions = 0
    for text, _parent in part:
        # True: on the implementation, and with properties
        search = Search(space, True, True, state_from_json(space, text))
        try:
            with watchdog(_HANG_SECONDS):
                search.expand(0)
        except Hang:
            search.hang(0)
        transitions += len(search.graph.targets)
        for successor in search.graph.states[1:]:
            yield "state", (state_to_json(successor), text)
        for failure in search.failures:
            action, arguments = failure.call or ("", ())
            named = space.machine.actions[action].named(arguments) if action else {}
            cause = str(failure.cause.kind), failure.cause.what
            yield "failure", (cause, (text, action, to_json(named), failure.message, failure.raised_by or ""))
    yield "transitions", transitions


def call_from_json(space: Space, action: str, arguments: bytes) -> Call | None:
    """Returns the call of a failure; None if `action` is empty: the failure then concerns a state and no call.

    Raises BadValue for arguments that do not fit.
    """
    return Call(action, space.machine.actions[action].arguments(from_json(arguments), space.cfg)) if action else None


def _path(space: Space, frontiers: list[Any], depth: int, text: bytes) -> list[Any]:
    """Returns the states of a shortest trace to a state, which is given as JSON: one state of each depth."""
    path = [text]
    for each in range(depth, 0, -1):
        path.append(frontiers[each].lookup(path[-1])[0])
    return [state_from_json(space, each) for each in reversed(path)]
