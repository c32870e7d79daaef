"""The commands of the command line.

The module of a command defines one subclass of `Result`: the type of the command's result. The function `run` returns
the result, and `show` prints the result for a person. With `--json`, the command prints only the result, as JSON. The
JSON Schema of a command is derived from the result type.
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
PerSecond = Annotated[float, msgspec.Meta(ge=0)]


class ExitCode(IntEnum):
    """The exit codes."""

    NOTHING_FOUND = 0
    FOUND = 1  # `Result.found`: for example a finding, a surviving mutant, or a coverage goal that was not reached
    WRONG = 2  # a wrong command or wrong input
    DEFECT = 3  # brokerproof itself failed
    STOPPED = 130  # interrupted from the keyboard; `client` and `sut`: also terminated by a signal


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A JSON object whose keys are exactly the fields."""


class Result(Record, kw_only=True, forbid_unknown_fields=True):
    """The JSON object that a command prints with `--json`."""

    @property
    def found(self) -> bool:
        """Whether the command ends with the exit code FOUND."""
        return False


def result_type(command: str) -> type[Result]:
    """Returns the result type of a command."""
    module = importlib.import_module(f"fuzz.commands.{command}")
    [found] = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Result) and each.__module__ == module.__name__
    ]
    return found


def schema_of(command: str) -> dict[str, Any]:
    """Returns the JSON Schema of a command's result."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"brokerproof {command} --json",
        **msgspec.json.schema(result_type(command)),
    }
