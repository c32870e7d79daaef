"""Generates the TLA+ module of a run of TLC: the twin with the constants, bounds, actions and checks of the run.

`fuzz/tlc/runs.py` says how a twin names constants, actions, bounds and properties, and how liveness is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.explore.search import LIVENESS_MARGIN, Space
from fuzz.run.generate import usable
from fuzz.subject import Domain, Offset
from fuzz.tlc.values import tla
from invariants.properties import Property
from model.machine import BadValue, plain

#: Kinds of properties. As the name of a check, a kind stands for all properties of this kind.
ALWAYS, EVENTUALLY = "always", "eventually"
#: Suffix of the module that has the properties of a twin.
_PROPERTIES = "Properties"
#: Suffix of the operator that compares a measure with its bound.
_BOUND = "AtMost"
#: Prefix of the constant for a setting, if a variable of the twin has the name of the setting.
_START = "start_"
#: The prefix of all operators, variables and modules that are generated.
_PREFIX = "MC_"
#: The model value of TLC for an absent value.
_NONE = "None"


def camel(name: str) -> str:
    """Returns the twin's name for a name of the model: TimePass for time_pass."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


# ---- modules ------------------------------------------------------------------------------------------


class Module(NamedTuple):
    """The constants and operators of a twin: of its top module, and of the modules in the folder that this one extends.

    The top module is `<twin>Properties` if there is one, otherwise the twin's own module.
    """

    name: str  # of the top module, which a generated module extends
    constants: tuple[str, ...]
    operators: frozenset[str]
    of_steps: frozenset[str]  # operators that are action properties: the definition begins with `[][`


_COMMENT = re.compile(r"\(\*.*?\*\)|\\\*[^\n]*", re.DOTALL)
_CONSTANTS = re.compile(r"^\s*CONSTANTS?\s+(\w+(?:\s*,\s*\w+)*)", re.MULTILINE)
_OPERATOR = re.compile(r"^(\w+)(?:\([^)\n]*(?:\([^)]*\)[^)\n]*)*\))?\s*==\s*(\[\]\[)?", re.MULTILINE)
_EXTENDS = re.compile(r"^EXTENDS\s+(\w+(?:\s*,\s*\w+)*)", re.MULTILINE)


def read_module(folder: Path, name: str) -> Module:
    """Reads the twin of that name: its top module, and the modules that this one extends, directly or not.

    Raises BadValue if there is no module of that name.
    """
    top = name + _PROPERTIES if (folder / f"{name}{_PROPERTIES}.tla").is_file() else name
    if not (folder / f"{top}.tla").is_file():
        raise BadValue(f"there is no module {top}.tla in {folder}")
    constants: list[str] = []
    operators: set[str] = set()
    of_steps: set[str] = set()
    todo, seen = [top], {top}
    while todo:
        text = _COMMENT.sub("", (folder / f"{todo.pop()}.tla").read_text(encoding="utf-8"))
        for names in _CONSTANTS.findall(text):
            constants += _listed(names)
        for operator, of_step in _OPERATOR.findall(text):
            operators.add(operator)
            if of_step:
                of_steps.add(operator)
        for other in [each for names in _EXTENDS.findall(text) for each in _listed(names)]:
            if other not in seen and (folder / f"{other}.tla").is_file():
                seen.add(other)
                todo.append(other)
    return Module(top, tuple(constants), frozenset(operators), frozenset(of_steps))


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


class Twin:
    """A twin within a scope of the model, with the properties that TLC checks.

    `wanted` has names of operators, or the kinds `always` and `eventually`. A kind stands for the subject's properties
    of this kind that apply under the config and that the module states. A liveness property is left out if the scope
    lacks one of its fair actions. `fair` is as in `Run` (`fuzz/tlc/manifest.py`). Raises BadValue if the module lacks
    an operator, or if a kind stands for no property.
    """

    def __init__(
        self, module: Module, space: Space, wanted: Iterable[str] = (), fair: tuple[str, ...] | None = None
    ) -> None:
        self.module = module
        self.space = space
        self.fair = fair
        self._eventually = {camel(p.name): p for p in self._properties(EVENTUALLY)}
        named = {each: self._named(each) for each in wanted}
        for kind in (each for each, names in named.items() if not names):
            raise BadValue(f"{module.name} states no property of the kind {kind} that applies to the run's scope")
        #: the operators that TLC checks, in the order of `wanted`
        self.checks = tuple(dict.fromkeys(name for names in named.values() for name in names))
        for name in self.checks:
            self._must_have(name, "which the run checks")

    def text(self, name: str, checks: tuple[str, ...]) -> tuple[str, str]:
        """Returns the text of a generated module, and its configuration, in which TLC checks the operators `checks`."""
        constants = {each: self._constant(each) for each in self.module.constants if each != _NONE}
        lines = [f"---- MODULE {name} ----", f"EXTENDS {self.module.name}, TLC"]
        lines += [f"{_PREFIX}{key} == {value}" for key, value in constants.items()]
        config = [f"CONSTANT {key} <- {_PREFIX}{key}" for key in constants]
        config += [f"CONSTANT {_NONE} = {_NONE}" for each in self.module.constants if each == _NONE]
        lines += self._bounded_actions()
        liveness = [check for check in checks if check in self._eventually]
        if liveness:
            lines += self._fair_specification()
            lines += [f"{_PREFIX}{check} == {_PREFIX}fairOnly ~> {check}" for check in liveness]
            config.append(f"SPECIFICATION {_PREFIX}Spec")
        else:
            config += ["INIT Init", f"NEXT {_PREFIX}Next"]
        config += [f"PROPERTY {_PREFIX}{check}" for check in liveness]
        for check in checks:
            if check not in liveness:
                config.append(f"{'PROPERTY' if check in self.module.of_steps else 'INVARIANT'} {check}")
        return "\n".join([*lines, "====", ""]), "\n".join([*config, ""])

    # ---- checks ---------------------------------------------------------------------------------------

    def _properties(self, kind: str) -> Iterator[Property]:
        return (p for p in self.space.subject.properties if p.kind == kind)

    def _named(self, wanted: str) -> list[str]:
        """Returns the operators for an element of `wanted`: the named operator, or those of the named kind."""
        if wanted not in (ALWAYS, EVENTUALLY):
            return [wanted]
        in_scope = set(self.space.scope.actions)
        return [
            camel(p.name)
            for p in self._properties(wanted)
            if p.given(self.space.cfg) and camel(p.name) in self.module.operators and in_scope >= set(p.fair)
        ]

    def _must_have(self, operator: str, why: str) -> None:
        """Raises BadValue if the module lacks an operator. `why` completes the message."""
        if operator not in self.module.operators:
            raise BadValue(f"{self.module.name} has no operator {operator}, {why}")

    # ---- bounds and fairness --------------------------------------------------------------------------

    def _bounds(self, margin: int) -> str:
        """Returns the condition that each measure exceeds its bound by at most `margin`."""
        bounds = []
        for measure, bound in self.space.scope.bounds.items():
            operator = camel(measure) + _BOUND
            self._must_have(operator, "which bounds a measure of the scope")
            bounds.append(f"{operator}({bound + margin})")
        return " /\\ ".join(bounds) or "TRUE"

    def _bounded_actions(self) -> list[str]:
        """Returns the definitions of the scope's actions, restricted to the bounds, and of the disjunction of these."""
        lines = [f"{_PREFIX}Within == {self._bounds(0)}"]
        for action in self.space.scope.actions:
            self._must_have(camel(action), "an action that the scope drives")
            lines.append(f"{_PREFIX}{camel(action)} == {camel(action)} /\\ {_PREFIX}Within'")
        return [*lines, f"{_PREFIX}Next == {_any(self.space.scope.actions)}"]

    @property
    def fair_actions(self) -> tuple[str, ...]:
        """The only actions that occur after the switch to fair actions.

        They are those of `fair`. If `fair` is None or (), they are those that the checked liveness properties name; ()
        if there is no such property. Raises BadValue if these properties name different actions.
        """
        named = {self._eventually[check].fair for check in self.checks if check in self._eventually}
        if self.fair:
            named = {self.fair}
        if len(named) > 1:
            raise BadValue(f"{', '.join(self.checks)} have different fair actions; give each its own run")
        return named.pop() if named else ()

    def _fair_specification(self) -> list[str]:
        """Returns the lines of the specification with the switch to fair actions.

        Fair actions may exceed the bounds by LIVENESS_MARGIN.
        """
        every = f"<<vars, {_PREFIX}fairOnly>>"
        lines = [
            f"VARIABLE {_PREFIX}fairOnly",
            f"{_PREFIX}WithinMargin == {self._bounds(LIVENESS_MARGIN)}",
            f"{_PREFIX}AnyAction == ~{_PREFIX}fairOnly /\\ {_PREFIX}fairOnly' = FALSE /\\ {_PREFIX}Next",
            f"{_PREFIX}StartFairOnly == ~{_PREFIX}fairOnly /\\ {_PREFIX}fairOnly' = TRUE /\\ UNCHANGED vars",
        ]
        for action in self.fair_actions:
            switched = f"{_PREFIX}fairOnly /\\ {_PREFIX}fairOnly' = TRUE"
            lines.append(f"{_PREFIX}Fair{camel(action)} == {switched} /\\ {camel(action)} /\\ {_PREFIX}WithinMargin'")
        fair_steps = [f"Fair{camel(action)}" for action in self.fair_actions]
        lines.append(f"{_PREFIX}LivenessNext == {_any(['AnyAction', 'StartFairOnly', *fair_steps])}")
        # an empty `fair` means that no action is assumed to be fair
        weakly_fair = fair_steps if self.fair is None or self.fair else []
        weak = "".join(f" /\\ WF_{every}({_PREFIX}{each})" for each in weakly_fair)
        return [
            *lines,
            f"{_PREFIX}Spec == Init /\\ {_PREFIX}fairOnly = FALSE /\\ [][{_PREFIX}LivenessNext]_{every}{weak}",
        ]

    # ---- constants ------------------------------------------------------------------------------------

    def _constant(self, name: str) -> str:
        """Returns the value of a constant in TLA+. Raises BadValue if the constant is no setting and no argument."""
        space = self.space
        settings = space.cfg._asdict()
        for setting in (name, name.removeprefix(_START)):
            if setting in settings:
                return tla(_as_fraction(plain(settings[setting])))
        parameters = [
            (action.name, param.name)
            for action in space.machine.actions.values()
            for param in action.params
            if name in (param.name, f"{action.name}_{param.name}")
        ]
        if not parameters:
            raise BadValue(
                f"{self.module.name} has a constant {name}, which is neither a setting nor an argument of "
                f"{space.subject.name}"
            )
        return self._domain(name, [parameter for parameter in parameters if parameter[0] in space.scope.actions])

    def _domain(self, name: str, parameters: list[tuple[str, str]]) -> str:
        """Returns the common domain of `parameters`: pairs of an action and its argument; {} if there are none.

        `name` is that of the constant. A pair with a constant of its own is left out. Raises BadValue if the domains
        differ.
        """
        found: dict[str, str] = {}
        for action, param in parameters:
            if f"{action}_{param}" != name and f"{action}_{param}" in self.module.constants:
                continue
            found[f"{action}.{param}"] = self._values(action, param)
        if len(set(found.values())) > 1:
            raise BadValue(f"{' and '.join(found)} have different domains, and {self.module.name} one constant, {name}")
        return next(iter(found.values()), "{}")

    def _values(self, action: str, param: str) -> str:
        """Returns the domain of one argument as a set; of an Offset, the offsets.

        Raises BadValue if the domain depends on the state in another way.
        """
        space = self.space
        given = [space.scope.domains[key] for key in (f"{action}.{param}", param) if key in space.scope.domains]
        domain: Domain = given[0] if given else space.subject.domain(action, param)
        if isinstance(domain, Offset):
            domain = domain.by
        elif isinstance(domain, tuple):
            kind = next(p.annotation for p in space.machine.actions[action].params if p.name == param)
            domain = usable(domain, kind, space.cfg)
        else:
            raise BadValue(f"{action}.{param} depends on the state; a scope for TLC must give it fixed values")
        values = [tla(_as_fraction(plain(value))) for value in domain]  # type: ignore[union-attr]
        return "{" + ", ".join(dict.fromkeys(values)) + "}"


def _any(actions: Iterable[str]) -> str:
    """Returns the disjunction of generated actions."""
    return " \\/ ".join(_PREFIX + camel(action) for action in actions)


def _as_fraction(value: Any) -> Any:
    """Returns a float as the fraction of its shortest decimal, because TLA+ has no floats; other values unchanged."""
    if isinstance(value, float):
        share = Fraction(repr(value))
        return {"num": share.numerator, "den": share.denominator}
    return value
