"""The target of a run: subject, config and second side. Engines receive a target, not names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fuzz.seeding import find_mutant, subject_or_mutant
from fuzz.subject import Subject, find_profile
from model.machine import BadValue


class Second(StrEnum):
    """What the model is compared with: the second side."""

    IMPLEMENTATION = "implementation"
    PROFILE = "profile"  # the model under another profile
    PROGRAM = "program"  # a foreign program
    NONE = "none"  # nothing: properties and recordings are the oracle


@dataclass(frozen=True)
class Target:
    """A subject under a config, and what the model is compared with.

    `config` is a profile's config, or that of one trace. `against` is the config of the other profile, if the model is
    compared with itself under another profile. An implementation has the reference's rules, so the model runs alone
    under a config with other rules. With `model_only`, the model runs without the implementation under any config.
    """

    subject: Subject
    config: Any
    against: Any = None
    model_only: bool = False
    program: Any = None  # a foreign program; its `side(subject, config)` is the second side

    @property
    def second(self) -> Second:
        """Returns what the model is compared with under this config."""
        if self.against is not None:
            return Second.PROFILE
        if self.program is not None:
            return Second.PROGRAM
        if self.model_only or not self.subject.machine.is_reference(self.config):
            return Second.NONE
        return Second.IMPLEMENTATION

    def drawn(self, config: Any) -> Target:
        """Returns the target of one trace, whose config has drawn settings.

        The other profile gets the drawn value of each setting that has its default there.
        """
        against = self.against
        if against is not None:
            defaults = self.subject.machine.config._field_defaults
            settings = [name for name in self.subject.settings if getattr(against, name) == defaults[name]]
            against = against._replace(**{name: getattr(config, name) for name in settings})
        return replace(self, config=config, against=against)


def resolve(subject: str, profile: str = "reference", against: str | None = None, mutant: str | None = None) -> Target:
    """Returns the target of these names. Raises BadValue for a name that does not exist, and as `check_mutant`."""
    found = subject_or_mutant(subject, mutant)
    other = find_profile(found, against) if against is not None else None
    target = Target(found, find_profile(found, profile), other)
    check_mutant(target, mutant)
    return target


def check_mutant(target: Target, mutant: str | None) -> None:
    """Raises BadValue if a mutant is in the implementation, and the target does not run that."""
    if mutant is None or target.second is Second.IMPLEMENTATION:
        return
    if not find_mutant(mutant, [target.subject.name]).module.startswith("model."):
        raise BadValue(
            f"{mutant} is a bug of the implementation, which would not run: use --mutant with --profile reference, "
            "without --against and --property"
        )
