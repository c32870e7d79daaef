"""The reference adapter in Python: one of our implementations as a program that speaks the protocol.

    brokerproof sut SUBJECT -- python -m fuzz.sut.serve SUBJECT [MUTANT]

With a mutant the implementation has a seeded bug, which `brokerproof sut` must find. An adapter around other code needs
only standard input and output; `fuzz/sut/program.py` describes the protocol.
"""

from __future__ import annotations

import sys

from fuzz.platform.json import from_json, to_json
from fuzz.seeding import subject_or_mutant
from fuzz.sut.program import VERSION, outcome_data


def main(name: str, mutant: str | None = None) -> None:
    """Answers each line of standard input with one line of standard output, until the input ends.

    Raises BadValue for an unknown component or mutant.
    """
    subject = subject_or_mutant(name, mutant)
    machine = subject.machine
    for line in sys.stdin.buffer:
        request = from_json(line)
        if "brokerproof" in request:  # the introduction. A hello without lists: the adapter supports everything
            reply = {"brokerproof": VERSION, "name": f"brokerproof's {name} in Python"}
        else:
            if "config" in request:  # a reset
                cfg = machine.configure(request["config"])
                implementation = subject.implementation(cfg)
                methods = {
                    action.name: (getattr(implementation, action.name), [fit for _, fit, _ in action.fitters])
                    for action in machine.actions.values()
                }
            outcomes = []
            for action, *arguments in request["calls"]:
                method, fitters = methods[action]
                fitted = [fit(value, action, cfg) for fit, value in zip(fitters, arguments, strict=True)]
                outcomes.append(outcome_data(method(*fitted)))
            reply = {"id": request["id"], "outcomes": outcomes, "observed": machine.observe(cfg, implementation.view())}
        sys.stdout.buffer.write(to_json(reply) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
