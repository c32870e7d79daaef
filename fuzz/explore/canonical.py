"""The law of canonical forms: a state and its canonical form, which differ only in generated names, behave alike.

The explorer visits canonical states only, so its counts mean nothing without this law. Tests and the mutation check
`canonical` check it on states of random traces.
"""

from __future__ import annotations

from typing import Any

from fuzz.run.generate import possible_calls
from fuzz.subject import Subject


def misbehaviour(subject: Subject, cfg: Any, state: Any) -> str:
    """Returns how a state and its canonical form differ in behaviour; an empty text if they behave alike.

    They behave alike if their successors have the same canonical forms. The successors of a state are the states after
    every action with all arguments that the domains give in this state. Outcomes are not compared.
    """
    machine = subject.machine
    form = machine.canonical(cfg, state)
    if machine.canonical(cfg, form) != form:
        return "the canonical form of a canonical form is another one"
    ours, theirs = (
        {
            machine.canonical(cfg, machine.step(cfg, each, n, a)[0])
            for n, a in possible_calls(subject, cfg).every(cfg, each)
        }
        for each in (state, form)
    )
    return "" if ours == theirs else "a state and its canonical form have different successors"
