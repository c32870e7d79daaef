"""Parts of an explanation as text, for the terminal and for HTML."""

from __future__ import annotations

from typing import Any

from fuzz.platform.json import to_json
from fuzz.report.changes import Change
from fuzz.report.in_pulsar import NeededRule
from fuzz.report.records import Step


def text_of(data: Any) -> str:
    """Returns plain data as one line of text, with objects as name=value."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{k}={text_of(v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(text_of(v) for v in data) + "]"
    return to_json(data).decode()


def call_text(step: Step) -> str:
    """Returns an action with its arguments as text, such as `put(position=[1, 2], bytes=10)`."""
    return f"{step.action}({', '.join(f'{k}={text_of(v)}' for k, v in step.arguments.items())})"


def outcome_text(outcome: Any) -> str:
    """Returns an outcome as text: what the action returns or, for a refusal or a failure, its kind and reason."""
    if isinstance(outcome, dict) and list(outcome) == ["kind", "why"]:
        return f"fails ({outcome['kind']}): {outcome['why']}"
    return f"returns {text_of(outcome)}"


def rule_text(rule: NeededRule) -> str:
    """Returns a rule as one line of text: name, value, how the value is known, and its source."""
    value = rule.value if isinstance(rule.value, str) else text_of(rule.value)
    return f"{rule.name} = {value} ({rule.origin}: {rule.source})"


def change_text(change: Change) -> str:
    """Returns a change as one line of text."""
    if change.kind == "added":
        return f"{change.path} added: {text_of(change.after)}"
    if change.kind == "removed":
        return f"{change.path} removed: {text_of(change.before)}"
    return f"{change.path}: {text_of(change.before)} -> {text_of(change.after)}"


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text."""
    head, stop, _ = text.partition(". ")
    return head + stop.strip()
