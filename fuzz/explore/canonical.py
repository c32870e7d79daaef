"""The law of canonical forms: a state and its canonical form, which differ only in generated names, behave alike.

The law also says that the canonical form of a canonical form is this form itself. The explorer visits canonical forms
only, so its counts are right only if the law holds. Tests and the mutation check `canonical` check the law on states of
random traces.
"""

from __future__ import annotations

from typing import Any

from fuzz.run.generate import possible_calls
from fuzz.subject import Subject


def misbehaviour(subject: Subject, cfg: Any, state: Any) -> str:
    """Returns how a state violates the law; an empty text if it does not.

    Two states behave alike if their successors have the same canonical forms. The successors of a state are the states
    after each action with all arguments that the domains have in this state. Outcomes are not compared.
    """
    machine = subject.machine
    form = machine.canonical(cfg, state)
    if machine.canonical(cfg, form) != form:
        return "the canonical form of a canonical form is another one"
    of_state, of_form = (
        {
            machine.canonical(cfg, machine.step(cfg, each, action, arguments)[0])
            for action, arguments in possible_calls(subject, cfg).every(cfg, each)
        }
        for each in (state, form)
    )
    return "" if of_state == of_form else "a state and its canonical form have different successors"
