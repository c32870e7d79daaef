"""The target of a run: a subject, a config, and the second side, which the model is compared with.

`resolve` returns the target for the names of subject, profiles and mutant. Engines receive a target, not names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fuzz.seeding import find_mutant, subject_or_mutant
from fuzz.subject import Subject, find_profile
from model.machine import BadValue


class Second(StrEnum):
    """The kind of the second side."""

    IMPLEMENTATION = "implementation"
    PROFILE = "profile"  # the model under another profile
    PROGRAM = "program"  # a foreign program: one of a user (`fuzz/sut/`)
    NONE = "none"  # the model runs alone: properties and recordings are the oracle


@dataclass(frozen=True)
class Target:
    """A subject under a config, and the second side.

    `config` is the config of a profile or of one trace. The second side is

    - the model under `other_config`, if this is given;
    - else the foreign program `program`, if this is given;
    - else none with `model_only`, and if `config` has other rules than the reference: an implementation has only the
      rules of the reference;
    - else the implementation.
    """

    subject: Subject
    config: Any
    other_config: Any = None  # if the model is compared with itself under another profile: the config of that profile
    model_only: bool = False
    program: Any = None  # the foreign program or None; its `side(subject, config)` returns the second side

    @property
    def second(self) -> Second:
        """Returns the kind of the second side."""
        if self.other_config is not None:
            return Second.PROFILE
        if self.program is not None:
            return Second.PROGRAM
        if self.model_only or not self.subject.machine.is_reference(self.config):
            return Second.NONE
        return Second.IMPLEMENTATION

    def with_config(self, config: Any) -> Target:
        """Returns this target with the config of one trace, in which settings have drawn values.

        In the config of the other profile, the settings that traces draw (`Subject.settings`) get the values of
        `config`, except for those to which the other profile gives a value of its own.
        """
        other = self.other_config
        if other is not None:
            other = other._replace(**{name: getattr(config, name) for name in self.subject.drawn_settings(other)})
        return replace(self, config=config, other_config=other)


def resolve(subject: str, profile: str = "reference", against: str | None = None, mutant: str | None = None) -> Target:
    """Returns the target for these names; `against` is the other profile.

    Raises BadValue for a name that does not exist, and for a mutant that would not run (`check_mutant`).
    """
    found = subject_or_mutant(subject, mutant)
    other = find_profile(found, against) if against is not None else None
    target = Target(found, find_profile(found, profile), other)
    check_mutant(target, mutant)
    return target


def check_mutant(target: Target, mutant: str | None) -> None:
    """Raises BadValue if the mutant is a bug of the implementation and the target does not run the implementation."""
    if mutant is None or target.second is Second.IMPLEMENTATION:
        return
    if not find_mutant(mutant, [target.subject.name]).module.startswith("model."):
        raise BadValue(
            f"{mutant} is a bug of the implementation, which would not run: use --mutant with --profile reference, "
            "without --against and --property"
        )
