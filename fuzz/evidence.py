"""The track record: real defects, and that this project shows each by itself.

The defects are data, in `fuzz/defects/`. Showing one is an ordinary fuzz run under the profile of the version that
has it; what is known to be broken already is muted, as in a campaign, so that one defect does not hide the next.
"""

from __future__ import annotations

import itertools
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from fuzz.mutation.kill_matrix import one_by_one
from fuzz.run.lockstep import Finding, Lockstep, all_but
from fuzz.run.shrink import shrink
from fuzz.subject import find_profile, find_subject, subject_names
from model.machine import BadValue

#: Where the table stands in a document.
BEGIN, END = "<!-- evidence -->", "<!-- end of evidence -->"


class Defect(NamedTuple):
    """A real defect, and what fails under the profile of the version that has it.

    The table begins with those that say `first`: what a reader should see first need not come first in the alphabet.
    """

    subject: str
    title: str
    reported: str
    profile: str
    cause: str
    first: bool = False


#: A shrunk trace with more steps is long: another finding of the same cause may show it in fewer.
LONG = 10


class Shown(NamedTuple):
    """A defect with how it was shown, if it was."""

    subject: str
    title: str
    reported: str
    profile: str
    cause: str
    command: str
    seconds: float | None  # of processor time, from the run's first step to the finding
    length: int | None  # steps of the shrunk trace


def defects() -> list[Defect]:
    """All defects, in the order of their files but for those that come first.

    Raises BadValue for a file that does not read.
    """
    found = []
    for name in subject_names():
        resource = files("fuzz") / "defects" / f"{name}.toml"
        if resource.is_file():
            try:
                tables = tomllib.loads(resource.read_text(encoding="utf-8"))["defect"]
                found += [Defect(subject=name, **table) for table in tables]
            except (tomllib.TOMLDecodeError, KeyError, TypeError) as problem:
                raise BadValue(
                    f"fuzz/defects/{name}.toml: {problem}; a defect has title, reported, profile, cause, perhaps first"
                ) from None
    return sorted(found, key=lambda defect: not defect.first)


def show_all(seconds: float, tell: Callable[[int, int], None]) -> list[Shown]:
    """Shows every defect, or tries to for so many seconds a profile."""
    every = defects()
    shown: list[Shown] = []
    for subject, profile in dict.fromkeys((d.subject, d.profile) for d in every):
        wanted = [d for d in every if (d.subject, d.profile) == (subject, profile)]
        causes = {d.cause for d in wanted}
        found = {finding.cause: (finding, at) for finding, at in _run(subject, profile, causes, seconds)}
        for defect in wanted:
            command = f"brokerproof fuzz {subject} --profile {profile}"
            if defect.cause in found:
                finding, at = found[defect.cause]
                length = min(_lengths(subject, profile, finding, seconds))
                shown.append(Shown(*defect[:-1], command, at, length))
            else:
                shown.append(Shown(*defect[:-1], command, None, None))
            tell(len(shown), len(every))
    return shown


def _lengths(name: str, profile: str, finding: Finding, seconds: float) -> Iterator[int]:
    """The length of the shrunk finding; if it is long, those of the next ones of its cause, too, for some seconds."""
    subject, started = find_subject(name), time.perf_counter()
    length = len(shrink(subject, finding).actions)
    yield length
    lockstep = Lockstep(subject, find_profile(subject, profile))
    lockstep.muted = all_but(subject, finding)
    seeds = itertools.count((finding.seed or 0) + 1)
    for seed in itertools.takewhile(lambda _: time.perf_counter() - started < seconds, seeds if length > LONG else ()):
        again = lockstep.run(seed)
        if again is not None and again.cause == finding.cause:
            length = min(length, len(shrink(subject, again).actions))
            yield length
            if length <= LONG:
                return


def _run(name: str, profile: str, causes: set[str], seconds: float) -> Iterator[tuple[Finding, float]]:
    """The first finding of each cause, with the processor time until it, until all that are wanted were found.

    Processor time, so that the table says the same on a busy machine.
    """
    subject = find_subject(name)
    lockstep = Lockstep(subject, find_profile(subject, profile))
    started, begun, missing = time.perf_counter(), time.process_time(), set(causes)
    seeds = itertools.takewhile(lambda _: time.perf_counter() - started < seconds, itertools.count())
    for finding in one_by_one(lockstep, seeds):
        if finding.cause in missing:
            missing.discard(finding.cause)
            yield finding, time.process_time() - begun
        if not missing:
            return


def table_of(shown: list[Shown]) -> str:
    """The track record as a table of a Markdown document."""
    lines = [
        "| defect | reported | what catches it | command | seconds | steps |",
        "|---|---|---|---|---|---|",
    ]
    for s in shown:
        seconds = "not shown" if s.seconds is None else "< 0.1" if s.seconds < 0.05 else f"{s.seconds:.1f}"
        steps = "" if s.length is None else str(s.length)
        catcher = s.cause.partition(":")[2]
        lines.append(f"| {s.title} | {s.reported} | `{catcher}` | `{s.command}` | {seconds} | {steps} |")
    return "\n".join(lines)


def write_into(path: Path, table: str) -> None:
    """Puts the table between the marks of a document. Raises BadValue when it has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadValue(f"{path}: cannot be read: {problem.strerror}") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadValue(f"{path}: needs the lines {BEGIN} and {END}, once each, for the table to stand between")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    path.write_text(f"{before}\n{table}\n{after}", encoding="utf-8")
