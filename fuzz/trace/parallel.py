"""Replay of trace files on all cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.platform.processes import without_interrupts
from fuzz.platform.progress import Update
from fuzz.seeding import subject_or_mutant
from fuzz.subject import find_profile, find_subject
from fuzz.trace.file import BadTrace, Fetched, Trace
from fuzz.trace.recording import OWN, recorded_traces, recording_of, recordings
from fuzz.trace.replayer import Mismatch, Replayer
from model.machine import BadValue

#: Files are replayed on all cores if their total size is at least this many bytes.
_WORTH_SHARING = 100_000


#: The replayers of a share, by the component of the traces, the mutant, and whether an engine wrote them.
Replayers = dict[tuple[str, str | None, Any], Replayer]


class ReplayedTrace(NamedTuple):
    """The mismatches of a trace, and the trace itself if it has any. `problem` says why it cannot be replayed."""

    position: tuple[int, int]  # file and line
    id: str
    component: str
    operations: int
    mismatches: list[Mismatch]
    trace: Trace | None = None
    problem: str = ""


def processes_for(paths: Sequence[Path]) -> int:
    """The number of processes to replay files in: all cores if the files are large, and this process may be forked.

    It may not while it has a second thread, such as that of a progress bar: call this before one is shown.
    """
    may_fork = threading.active_count() == 1 and "fork" in multiprocessing.get_all_start_methods()
    size = sum(path.stat().st_size for path in paths if path.is_file())
    return os.cpu_count() or 1 if may_fork and size >= _WORTH_SHARING else 1


def replay_files(
    paths: Sequence[Path], profile: str | None, jobs: int = 1, update: Update | None = None
) -> list[ReplayedTrace]:
    """Returns the results of all traces in the order of the files. Only a single process reports its progress.

    Raises BadValue for the first trace that cannot be read or replayed.
    """
    if jobs > 1:
        for recording in recordings():
            find_subject(recording.subject)  # import before the fork, not in each process
        with without_interrupts():
            created = multiprocessing.get_context("fork").Pool(jobs, initializer=gc.disable)
        with created as pool:
            shares = pool.starmap(replay_share, [(paths, profile, part, jobs) for part in range(jobs)])
    else:
        shares = [replay_share(paths, profile, 0, 1, update)]
    together = sorted((each for share in shares for each in share), key=lambda each: each.position)
    problems = [each.problem for each in together if each.problem]
    if problems:
        raise BadValue(problems[0])
    return together


def replay_share(
    paths: Sequence[Path], profile: str | None, part: int, parts: int, update: Update | None = None
) -> list[ReplayedTrace]:
    """Replays the traces whose index in their file % parts == part. Stops at the first line that cannot be read."""
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
    """Replays the traces of a file whose index % parts == part. Ends with the first line that cannot be read."""
    try:
        for trace in recorded_traces(path, part, parts):
            replayed = _replayer(replayers, trace, profile).replay(trace)
            kept = trace if replayed.mismatches else None
            found = replayed.operations, replayed.mismatches, kept
            yield ReplayedTrace((number, trace.line), trace.id, trace.component, *found)
    except BadTrace as problem:
        yield ReplayedTrace((number, problem.line), "", "", 0, [], None, str(problem))


def _replayer(made: Replayers, trace: Trace, profile: str | None) -> Replayer:
    """Returns the replayer for traces like this one, made once. A trace of an engine may name a mutant."""
    mutant = trace.header.get("mutant") if OWN in trace.header else None
    recording = recording_of(trace)
    key = f"{recording.component} {recording.subject} {recording.profile}", mutant, OWN in trace.header
    if key not in made:
        try:
            subject = subject_or_mutant(recording.subject, mutant)
            if profile is not None:
                find_profile(subject, profile)
        except BadValue as problem:
            raise BadTrace(trace.path, trace.line, str(problem)) from None
        made[key] = Replayer(recording, subject, profile)
    return made[key]
