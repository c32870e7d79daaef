"""The search on all cores of a machine: forked processes that share the unexpanded states.

All processes have the same states under the same numbers. The search works in batches: a batch has the states that are
unexpanded when it begins. Each process takes blocks of these states from a shared counter, and gives new states
provisional numbers. At the end of the batch, every process receives for each new state the number of its parent, the
index of the transition and an encoding of the state. All processes sort the new states by parent and transition, and so
give them the numbers that a single process would. If a process did not find a state itself, it computes the state by
taking the transition. No state object is sent between processes: a seeded bug has its own copies of the classes
(`fuzz/seeding.py`), which pickle cannot import. For the same reason, the calls of failures are sent as plain data.

The first process collects transitions and failures. The result does not depend on the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from fuzz.platform.processes import without_interrupts
from fuzz.run.watchdog import Hang, watchdog
from model.machine import BadValue

if TYPE_CHECKING:
    from fuzz.explore.search import Failure, Progress, Search
    from fuzz.run.call import Call

#: States in a block.
_BLOCK = 8
#: Processes are started if at least this many states are unexpanded.
WORTH_SHARING = 200
_encoded = msgspec.msgpack.Encoder().encode


class NewState(NamedTuple):
    """A new state as a process found it: the parent's number, the index of the transition, and the encoded state."""

    parent: int
    transition: int
    key: bytes


class BatchResult(NamedTuple):
    """The result of one process in a batch."""

    expanded: array[int]  # the numbers of the states that the process expanded, ascending
    lengths: array[int]  # for each expanded state, the number of its transitions
    targets: array[int]  # their targets (new states: provisional numbers), then those of a state in which a step hung
    found: list[NewState]  # the new states, in the order of their provisional numbers
    failures: list[Failure]
    hung: int | None  # the number of the state in which a step hung


def run_shared(
    search: Search, first: int, jobs: int, hang_seconds: float, limit: int, progress: Progress | None
) -> None:
    """Expands all states from the number `first` on, and all states found from them.

    `jobs` processes share the work; this process is one of them. Ends after a batch in which a step hung. A step hangs
    if its block takes more than `hang_seconds` of processor time. Raises the exception of a process, and BadValue if
    there are more than `limit` states or a process ends early.
    """
    context = multiprocessing.get_context("fork")
    next_state = context.Value("q", first)
    pipes = [context.Pipe() for _ in range(jobs - 1)]
    member = _Member(search, next_state)
    with ExitStack() as stack:
        for index, (_, child_end) in enumerate(pipes, 1):
            others = [each for pipe in pipes for each in pipe if each is not child_end]
            process = context.Process(target=_work, args=(member, index, hang_seconds, child_end, others), daemon=True)
            with without_interrupts():
                process.start()
            stack.callback(_terminate, process)
        for parent_end, child_end in pipes:
            child_end.close()
            stack.callback(parent_end.close)
        while first < len(search.graph.states):
            results = [member.expand(hang_seconds, progress), *[_received(search, end) for end, _ in pipes]]
            hung = min((each.hung for each in results if each.hung is not None), default=None)
            found = [_with_earlier_parents(each.found, hung) for each in results]
            base = len(search.graph.states) - len(results[0].found)  # the number of the first new state of the batch
            # after a hang, `found` lacks the last new states (`_with_earlier_parents`); this process forgets its own
            _forget_states(search, base + len(found[0]))
            next_state.value = base
            for parent_end, _ in pipes:
                parent_end.send((found, hung))
            numbers = member.merge(0, found)
            _collect(search, results, numbers, base, hung)
            first = base
            if hung is not None:
                return
            if len(search.graph.states) > limit:
                raise BadValue(f"more than {limit:,} states: bound a measure that grows, or use --spark")


def _terminate(process: Any) -> None:
    process.terminate()
    process.join()


def _received(search: Search, pipe: Connection) -> BatchResult:
    """Returns the result of another process. Raises that process's exception, and BadValue if the process has ended."""
    try:
        data = pipe.recv()
    except EOFError:
        raise BadValue(
            "a process of the search ended early, probably out of memory: use a smaller scope, or --spark"
        ) from None
    if isinstance(data, Exception):
        raise data
    result = BatchResult(*data)
    return result._replace(failures=[_with_call(each, search.space.call_of) for each in result.failures])


def _with_call(failure: Failure, convert: Callable[[Call], Call]) -> Failure:
    """Returns the failure with its call, if it has one, converted to plain data or back."""
    return failure if failure.call is None else failure._replace(call=convert(failure.call))


def _forget_states(search: Search, first: int) -> None:
    """Removes the states from the number `first` on."""
    for state in search.graph.states[first:]:
        search.numbers.pop(state, None)
    del search.graph.states[first:], search.graph.parents[first:]


def _with_earlier_parents(found: list[NewState], hung: int | None) -> list[NewState]:
    """Returns the new states whose parent is before the state that hung; all new states if `hung` is None."""
    return found if hung is None else [each for each in found if each.parent < hung]


def _work(member: _Member, own: int, hang_seconds: float, pipe: Connection, others: list[Connection]) -> None:
    """Runs a child process: expands and merges batches, until the first process closes the pipe or a step hangs.

    `own` is the index of this process, and `pipe` its connection to the first process, which receives results or an
    exception. `others` has all other connections.
    """
    for each in others:
        each.close()  # `recv` reports that a process has ended only if no other process holds that process's connection
    try:
        while True:
            result = member.expand(hang_seconds)
            failures = [_with_call(each, member.search.space.plain_call) for each in result.failures]
            pipe.send(tuple(result._replace(failures=failures)))
            found, hung = pipe.recv()
            if hung is not None:
                break
            member.merge(own, found)
    except (EOFError, OSError):
        pass
    except Exception as problem:
        pipe.send(problem)
    os._exit(0)


class _Member:
    """One of the processes, with its copy of the states."""

    def __init__(self, search: Search, next_state: Any) -> None:
        self.search = search
        self.next_state = next_state

    def expand(self, hang_seconds: float, progress: Progress | None = None) -> BatchResult:
        """Expands blocks of the unexpanded states, until no block is left or a step hangs. Returns the result.

        Until `merge`, the new states that this process found are in its graph, after the states that all processes
        have; their numbers are provisional. Transitions and failures are only in the result.
        """
        search = self.search
        graph = search.graph
        base, targets_before, offsets_before = len(graph.states), graph.targets, graph.offsets
        graph.targets, graph.offsets = array("q"), array("q", [0])
        # restored below, because `_collect` adds the failures of all processes
        failures_before = search.failures, set(search.failure_keys)
        search.found_by, search.failures = [], []
        expanded, hung = array("q"), None
        for block in self._blocks(base):
            number = block.start
            try:
                with watchdog(hang_seconds):
                    for number in block:
                        search.expand(number)
                        expanded.append(number)
            except Hang:
                search.hang(number)
                hung = number
                break
            if progress is not None:  # the counter can be beyond `base`; states of unfinished blocks count as expanded
                progress(min(self.next_state.value, base), len(graph.states))
        offsets, found_by = graph.offsets, search.found_by
        starts = dict(zip(expanded, offsets, strict=False))  # expanded state -> the index of its first transition
        parents = graph.parents[base:]
        found = [
            NewState(parent, transition - starts[parent], self._key(state))
            for parent, transition, state in zip(parents, found_by, graph.states[base:], strict=True)
            if parent in starts  # not if a step from the parent hung: the parent was not expanded completely
        ]
        lengths = array("q", [offsets[i + 1] - offsets[i] for i in range(len(expanded))])
        result = BatchResult(expanded, lengths, graph.targets, found, search.failures, hung)
        _forget_states(search, base + len(found))
        graph.targets, graph.offsets = targets_before, offsets_before
        search.failures, search.failure_keys = failures_before
        return result

    def _blocks(self, base: int) -> Iterator[range]:
        """Takes blocks of state numbers below `base` from the shared counter, and yields them."""
        while True:
            with self.next_state.get_lock():
                start = self.next_state.value
                self.next_state.value = start + _BLOCK
            if start >= base:
                return
            yield range(start, min(start + _BLOCK, base))

    def _key(self, state: Any) -> bytes:
        """Returns an encoding of a state: states with equal encodings are equal."""
        try:
            return bytes(_encoded(state))
        except (TypeError, OverflowError):
            return repr(state).encode()

    def merge(self, own: int, found: list[list[NewState]]) -> list[list[int]]:
        """Gives the new states of a batch their numbers, and adds them to the graph.

        `found` has the new states of each process; `own` is the index of this process. Returns the numbers of these
        states, a list for each process.
        """
        search = self.search
        graph, numbers = search.graph, search.numbers
        base = len(graph.states) - len(found[own])
        provisional = graph.states[base:]
        del graph.states[base:], graph.parents[base:]
        for state in provisional:
            numbers.pop(state, None)
        known = {each.key: state for each, state in zip(found[own], provisional, strict=True)}
        by_key: dict[bytes, int] = {}
        assigned = [[0] * len(each) for each in found]
        order = sorted(
            (each.parent, each.transition, process, i)
            for process, of_process in enumerate(found)
            for i, each in enumerate(of_process)
        )
        for parent, transition, process, i in order:
            key = found[process][i].key
            number = by_key.get(key)
            if number is None:
                state = known[key] if key in known else search.space.form_after(graph.states[parent], transition)
                number = numbers.setdefault(state, len(graph.states))  # equal states may have different keys
                if number == len(graph.states):
                    graph.states.append(state)
                    graph.parents.append(parent)
                by_key[key] = number
            assigned[process][i] = number
        return assigned


def _collect(search: Search, results: list[BatchResult], numbers: list[list[int]], base: int, hung: int | None) -> None:
    """Adds the transitions and failures of a batch to the search, in the order of the states.

    `base` is the first provisional number; `numbers` is the result of `merge`. If a step hung in the state `hung`, the
    failures of this state are added, but not its transitions; of later states, neither is added.
    """
    graph = search.graph
    targets: dict[int, list[int]] = {}  # by number of the expanded state
    for result, assigned in zip(results, numbers, strict=True):
        offset = 0
        for number, length in zip(result.expanded, result.lengths, strict=True):
            if hung is None or number < hung:
                of_state = result.targets[offset : offset + length]
                targets[number] = [assigned[t - base] if t >= base else t for t in of_state]
            offset += length
    for number in sorted(targets):
        graph.targets.extend(targets[number])
        graph.offsets.append(len(graph.targets))
    failures = [(each.number, i, each) for result in results for i, each in enumerate(result.failures)]
    for number, _, each in sorted(failures, key=lambda f: f[:2]):
        if hung is None or number <= hung:
            search.fail(each)
