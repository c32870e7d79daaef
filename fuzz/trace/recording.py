"""Recordings of a real system, and mappings from recordings to components.

A module in `fuzz/recordings/` has mappings. A mapping (`TraceMapping`) maps a recorded component to a subject and a
profile, each recorded operation to actions, and outcomes and observations to their recorded form. The mapping also
lists the known deviations of the recorded version from the reference. For a trace whose operations are actions
(`Trace.has_actions`), `action_mapping` makes the mapping.

A recorded decision table is a CSV file, named after its component. Each row is an operation; `TraceMapping.results`
names the columns that are the operation's result.

The records that an operator of a cluster can collect, such as the messages of a topic or the lines of a log, have other
keys than a trace file. A `Form` maps a record to an operation.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.defects.table import defects_of
from fuzz.trace.file import (
    ABSENT,
    BadTrace,
    Fetched,
    Operation,
    Trace,
    first_object,
    objects,
    read_table,
    read_traces,
)
from model.machine import BadValue, Failed, Refused, plain


class Deviation(NamedTuple):
    """A known deviation of a recorded version from the reference."""

    name: str
    fields: tuple[str, ...]  # the config fields in which the recorded version differs from the reference
    breaks: str  # the property that the deviation violates; empty if only the design differs
    smallest: str = ""  # the trace that shows the deviation after the fewest operations; empty if no trace shows it


class Form(NamedTuple):
    """A format of a file of records, with a JSON object in each line. The records with the same key are a trace."""

    name: str
    recognises: Callable[[Mapping[str, Any]], bool]  # first record -> whether the file is in this form
    #: record -> the key of its trace, such as a bundle, and its operation; None: the record is no operation. Raises
    #: BadValue, KeyError, TypeError or ValueError
    read: Callable[[Mapping[str, Any]], tuple[str, Operation] | None]
    config: Callable[[Sequence[Operation]], Mapping[str, Any]]  # the recorded config of a trace with these operations
    empty: str  # the message for a file without an operation
    among_text: bool = False  # whether lines that do not begin with `{`, such as those of a start script, are skipped
    time: Callable[[Mapping[str, Any]], Any] = lambda record: None  # record -> its time; None: unknown


class Folded(NamedTuple):
    """The result of `TraceMapping.fold`."""

    state: Any  # the next state of the mapping
    result: Any  # in recorded form
    known_deviation: str | None = None  # the name of the deviation that explains a result other than the recorded one


@dataclass(frozen=True)
class TraceMapping:
    """Maps the recordings of one component to a subject."""

    component: str  # the name of the component in the recordings
    subject: str
    profile: str  # the profile of the recorded version
    settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]  # recorded config -> values of fields of the config
    #: (config, state, operation, recorded config) -> the actions of the operation, each with its arguments
    actions: Callable[[Any, Any, Operation, Mapping[str, Any]], Sequence[tuple[str, Mapping[str, Any]]]]
    result: Callable[[Any, str, Any, Mapping[str, Any]], Any]  # (config, op, outcome, recorded config) -> recorded form
    observation: Callable[[Any, Any, Mapping[str, Any]], Any]  # (config, observation, recorded config) -> recorded form
    #: (model's observation in recorded form, recorded observation) -> the value that must equal the recorded one. This
    #: function drops fields that were not recorded, and resolves a choice that the specification leaves open
    as_recorded: Callable[[Any, Any], Any] = lambda seen, recorded: seen
    applies: Callable[[Mapping[str, Any]], bool] = lambda config: True  # recorded config -> whether the mapping applies
    results: frozenset[str] = frozenset()  # the columns of a decision table that are results
    forms: tuple[Form, ...] = ()  # the formats of files of records that the mapping can read
    #: replaces `result` if a result depends on values of earlier operations that the model's state does not have. The
    #: mapping then has a state of its own, at first None, which `actions` receives in place of the model's state:
    #: (config, state of the mapping, operation, outcome, recorded config) -> the next state of the mapping, the result
    fold: Callable[[Any, Any, Operation, Any, Mapping[str, Any]], Folded] | None = None
    #: known deviations in the defect table: id of the defect -> `Deviation.smallest`, without `COMPONENT/dev/`
    defects: Mapping[str, str] = field(default_factory=dict)
    #: known deviations without a row in the defect table: a different design, or one of several effects of a defect.
    #: Here, too, `smallest` lacks `COMPONENT/dev/`
    others: tuple[Deviation, ...] = ()

    @cached_property
    def deviations(self) -> tuple[Deviation, ...]:
        """The known deviations: those of `defects`, then `others`."""
        rows = {row.id: row for row in defects_of(self.subject)} if self.defects else {}
        known = [Deviation(name, rows[name].rules, rows[name].property, trace) for name, trace in self.defects.items()]
        of_component = f"{self.component}/dev/"  # the ids of recorded traces begin so
        return tuple([d._replace(smallest=d.smallest and of_component + d.smallest) for d in (*known, *self.others)])


def mappings() -> list[TraceMapping]:
    """Returns the mappings of all recorded components."""
    package = importlib.import_module("fuzz.recordings")  # its modules import this one
    modules = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [r for name in modules for r in importlib.import_module(f"fuzz.recordings.{name}").mappings]


def mapping_of(trace: Trace) -> TraceMapping:
    """Returns the mapping of a trace. Raises BadTrace if its operations are not actions and no mapping applies."""
    if trace.has_actions:
        return action_mapping(trace.component)
    for each in mappings():
        if each.component == trace.component and each.applies(trace.config):
            return each
    known = ", ".join(sorted({r.component for r in mappings()}))
    raise BadTrace(
        trace.path, trace.line, f"no mapping for the component {trace.component}; there are mappings for {known}"
    )


def recorded_traces(path: Path | Fetched, part: int = 0, parts: int = 1) -> Iterator[Trace]:
    """Yields the traces of a trace file, of a decision table, which is one trace, or of a file in a `Form`.

    Yields part `part` of `parts`: every trace i, counted from 0, with i % parts == part. Raises BadTrace.
    """
    if path.name.removesuffix(".gz").endswith(".csv"):
        yield from [_table(path)] if part == 0 else []
        return
    # without a first object, the file is read as a trace file, which reports what is wrong
    first, is_after_text = first_object(path) or ({"trace": None}, False)
    forms = () if "trace" in first else ((r, f) for r in mappings() for f in r.forms)
    form = next(((r, f) for r, f in forms if f.recognises(first) and (f.among_text or not is_after_text)), None)
    yield from read_traces(path, part, parts) if form is None else _imported(path, *form, part, parts)


def _table(path: Path | Fetched) -> Trace:
    """Returns a recorded decision table as one trace. Raises BadTrace."""
    name = path.name.partition(".")[0]
    trace = Trace(f"{name}/dev/table", name, {}, [], {}, str(path), 1)
    results = mapping_of(trace).results
    for line, row in read_table(path):
        if not results < row.keys():  # a table needs at least one column of arguments, too
            raise BadTrace(path, 1, f"a table of {name} needs the columns {', '.join(sorted(results))}")
        arguments = {column: text for column, text in row.items() if column not in results}
        result = {column: row[column] for column in results}
        trace.operations.append(Operation(name, arguments, result, ABSENT, line))
    if not trace.operations:
        raise BadTrace(path, 0, f"the table has no row; a row of {name} has the columns {', '.join(sorted(results))}")
    return trace


def _imported(path: Path | Fetched, mapping: TraceMapping, form: Form, part: int, parts: int) -> Iterator[Trace]:
    """Yields the traces of a file in a form, a trace for each key. All operations are in memory. Raises BadTrace."""
    traces: dict[str, list[Operation]] = {}
    times, number = list[Any](), 0  # `times`: those of the first and of the last operation
    for number, data in objects(path, among_text=form.among_text):
        try:
            read = form.read(data)
        except (BadValue, KeyError, TypeError, ValueError) as problem:
            raise BadTrace(path, number, f"{form.name}: {message_of(problem)}") from None
        if read is not None:
            traces.setdefault(read[0], []).append(read[1]._replace(line=number))
            times = [*times[:1], form.time(data)]
    if None not in times and times[-1:] < times[:1]:
        raise BadTrace(path, number, f"{form.name}: the last record is older than the first; sort the lines by time")
    if not traces:
        raise BadTrace(path, 0, f"{form.name}: {form.empty}")
    for key, operations in itertools.islice(traces.items(), part, None, parts):
        config = {"form": form.name, **form.config(operations)}
        yield Trace(key, mapping.component, config, operations, {}, str(path), operations[0].line)


def message_of(problem: Exception) -> str:
    """Returns the message of an exception. A KeyError means a missing field."""
    if isinstance(problem, KeyError):
        return f"lacks {problem.args[0]!r}"
    return str(problem)


def action_mapping(subject: str) -> TraceMapping:
    """Returns the mapping of traces whose operations are actions of a subject, and whose results are plain outcomes."""
    return TraceMapping(
        component=subject,
        subject=subject,
        profile="reference",
        settings=lambda config: config,
        actions=lambda cfg, state, operation, config: [(operation.op, operation.args)],
        result=lambda cfg, op, outcome, config: plain(outcome),
        observation=lambda cfg, seen, config: seen,
    )


def error_or(outcome: Any, otherwise: Callable[[Any], Any]) -> Any:
    """Returns a refusal or failure in recorded form, and `otherwise(outcome)` for any other outcome."""
    return {"error": outcome.kind} if isinstance(outcome, Refused | Failed) else otherwise(outcome)
