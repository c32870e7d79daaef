"""Where a reader finds the cause of a finding in Pulsar: the Java methods of its steps, and the rules that it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from fuzz.run.call import Call
from fuzz.run.checks import all_but
from fuzz.run.compare import as_data
from fuzz.run.finding import Cause
from fuzz.run.pair import Pair
from fuzz.subject import Subject
from fuzz.target import Target
from model.machine import Machine
from model.values import rule_of

_NAME = re.compile(r"`(\w+)(?:\.(\w+))?`")


class NeededRule(msgspec.Struct, frozen=True):
    """A rule of the profile that a trace needs: with the reference's value of this rule, the trace does not fail."""

    name: str
    value: Any
    origin: str  # how the value is known
    source: str  # the class, version or proposal that has the value


def java_of(machine: Machine[Any, Any], action: str) -> list[str]:
    """Returns the classes of `machine.java`, and the methods of these classes, that an action's docstring names.

    Each text of the result is `Class` or `Class.method`.
    """
    # if several classes have a method of this name, the first class counts: it is the main class
    class_of = {method: name for name, methods in reversed(machine.java.items()) for method in methods}
    found: dict[str, None] = {}
    for name, method in _NAME.findall(machine.actions[action].docstring):
        if name in machine.java:
            found[f"{name}.{method}" if method else name] = None
        elif not method and name in class_of:
            found[f"{class_of[name]}.{name}"] = None
    return list(found)


def needed_rules(subject: Subject, cfg: Any, calls: Sequence[Call], cause: Cause) -> list[NeededRule]:
    """Returns the rules of a config that these calls need to violate the property in `cause`.

    With the reference's value of a needed rule, a replay of the calls shows no difference. Each rule is replaced alone.
    So if either of two rules suffices for the violation, neither is needed. Cost: a replay for each rule.
    """
    machine = subject.machine
    defaults = machine.config._field_defaults
    return [
        NeededRule(name, as_data(getattr(cfg, name)), *rule.source_of(getattr(cfg, name)))
        for name in machine.rules
        if (rule := rule_of(machine.fields[name])) is not None
        and getattr(cfg, name) != defaults[name]
        and not _fails(subject, cfg._replace(**{name: defaults[name]}), calls, cause)
    ]


def _fails(subject: Subject, cfg: Any, calls: Sequence[Call], cause: Cause) -> bool:
    """Returns whether a replay on the model alone shows a difference. Only the property in `cause` is checked."""
    pair = Pair(Target(subject, cfg, model_only=True), all_but(subject, cause.broken_property))
    return any(pair.step(call.copy()) is not None for call in calls)
