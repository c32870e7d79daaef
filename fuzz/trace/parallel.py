"""Replay of trace files on all cores.

Part p of n of a file has the traces i, counted from 0, with i % n == p. Process p of n replays part p of each file. The
results are in the order of files and lines, and do not depend on the number of processes.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fuzz.platform.processes import Workers, usable_cores
from fuzz.platform.progress import Update
from fuzz.seeding import subject_or_mutant
from fuzz.subject import find_profile, find_subject
from fuzz.trace.agreement import Mismatch, Replayer
from fuzz.trace.file import BadTrace, Fetched, Trace
from fuzz.trace.recording import mapping_of, mappings, recorded_traces
from model.machine import BadValue

#: Files are replayed on all cores if their total size is at least this many bytes.
_WORTH_SHARING = 100_000


#: The replayers that a process has made. The key is component, subject and profile of the mapping, the mutant, and
#: whether the operations are actions.
Replayers = dict[tuple[str, str, str, str | None, bool], Replayer]


class ReplayedTrace(NamedTuple):
    """The mismatches of a trace, or the problem because of which the trace cannot be replayed."""

    position: tuple[int, int]  # index of the file, and line number of the trace; with a problem, of the bad line
    id: str
    component: str
    operations: int  # the number of operations; 0 with a problem
    mismatches: list[Mismatch]
    trace: Trace | None = None  # None if there is no mismatch
    problem: str = ""  # empty if the trace was replayed


def processes_for(paths: Sequence[Path]) -> int:
    """Returns the number of processes that replay files: `usable_cores` if the files together are large, or else one.

    Also returns one if this process has a second thread, because such a process is not forked. A progress bar has a
    thread, so call this function before a progress bar is shown.
    """
    size = sum(path.stat().st_size for path in paths if path.is_file())
    return usable_cores() if threading.active_count() == 1 and size >= _WORTH_SHARING else 1


def replay_files(
    paths: Sequence[Path], profile: str | None, jobs: int = 1, update: Update | None = None
) -> list[ReplayedTrace]:
    """Replays all traces of the files in `jobs` processes. Returns the results in the order of files and lines.

    `profile` replaces the profile of the recorded version. `update` receives the progress, if there is one process.
    Raises BadValue for the first trace that cannot be read or replayed.
    """
    if jobs > 1:
        for mapping in mappings():
            find_subject(mapping.subject)  # import before the fork, not in each process
        with Workers(jobs, "fork", initializer=gc.disable) as pool:
            futures = [pool.submit(replay_part, paths, profile, part, jobs) for part in range(jobs)]
            results = [each.result() for each in futures]
    else:
        results = [replay_part(paths, profile, 0, 1, update)]
    together = sorted((each for of_part in results for each in of_part), key=lambda each: each.position)
    problems = [each.problem for each in together if each.problem]
    if problems:
        raise BadValue(problems[0])
    return together


def replay_part(
    paths: Sequence[Path], profile: str | None, part: int, parts: int, update: Update | None = None
) -> list[ReplayedTrace]:
    """Replays part `part` of `parts` of each file. Returns the results.

    The first trace that cannot be read or replayed is the last result, with a `problem`.
    """
    replayers: Replayers = {}
    done: list[ReplayedTrace] = []
    operations = 0
    for number, path in enumerate(paths):
        for each in replay_file(number, path, profile, part, parts, replayers):
            done.append(each)
            operations += each.operations
            if each.problem:
                return done
            if update is not None:
                update(len(done), None, f"{len(done):,} traces  {operations:,} operations")
    return done


def replay_file(
    number: int, path: Path | Fetched, profile: str | None, part: int, parts: int, replayers: Replayers
) -> Iterator[ReplayedTrace]:
    """Replays part `part` of `parts` of a file. Yields the results.

    `number` is the index of the file. Replayers are taken from `replayers` and added there. The first trace that cannot
    be read or replayed is the last result, with a `problem`.
    """
    try:
        for trace in recorded_traces(path, part, parts):
            replayed = _replayer(replayers, trace, profile).replay(trace)
            yield ReplayedTrace(
                (number, trace.line),
                trace.id,
                trace.component,
                replayed.operations,
                replayed.mismatches,
                trace if replayed.mismatches else None,
            )
    except BadTrace as problem:
        yield ReplayedTrace((number, problem.line), "", "", 0, [], None, str(problem))


def _replayer(made: Replayers, trace: Trace, profile: str | None) -> Replayer:
    """Returns the replayer for a trace. Takes it from `made`, or makes it and adds it there.

    A trace of actions may name a mutant, which then runs in place of the component. Raises BadTrace if the component,
    the mutant or the profile is unknown.
    """
    mutant = trace.header.get("mutant") if trace.has_actions else None
    mapping = mapping_of(trace)
    key = mapping.component, mapping.subject, mapping.profile, mutant, trace.has_actions
    if key not in made:
        try:
            subject = subject_or_mutant(mapping.subject, mutant)
            if profile is not None:
                find_profile(subject, profile)
        except BadValue as problem:
            raise BadTrace(trace.path, trace.line, str(problem)) from None
        made[key] = Replayer(mapping, subject, profile)
    return made[key]
