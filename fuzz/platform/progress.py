"""Progress bars on standard error: shown on a terminal, silent in a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


class Update(Protocol):
    """A function that moves a progress bar: `done` of `total` (None: unknown), and the text beside the bar."""

    def __call__(self, done: float, total: float | None, text: str) -> None:
        """Redraws the bar."""


@contextlib.contextmanager
def showing(console: Console, text: str) -> Iterator[Update]:
    """Shows a progress bar during the `with` body, with the text, if the console is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=None)

        def update(done: float, total: float | None, text: str) -> None:
            progress.update(task, completed=done, total=total, description=text)

        yield update


def counter(update: Update, what: str) -> Callable[[int, int], None]:
    """Returns a function of (done, found) that moves a progress bar, for a search whose total is not known in advance.

    `found` is the total so far, which includes `done`. `what` names the counted things, in the plural.
    """
    return lambda done, found: update(done, found, f"{done:,} of {found:,} {what}")
