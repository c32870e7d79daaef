"""The reference adapter in Python: one of our implementations as a program that speaks the protocol.

    brokerproof sut SUBJECT -- python -m fuzz.sut.serve SUBJECT [MUTANT]

The component's class in `impl/` names the class of Pulsar that it stands for. With a mutant the adapter has a seeded
bug, which `sut` must find. An adapter around other code replaces `machine` by its own table of functions.
"""

from __future__ import annotations

import sys

from fuzz.platform.json import from_json, to_json
from fuzz.seeding import subject_or_mutant
from fuzz.sut.program import VERSION, wire


def main(name: str, mutant: str | None = None) -> None:
    """Answers each line of standard input with one line of standard output, until the input ends."""
    subject = subject_or_mutant(name, mutant)
    machine, body = subject.machine, subject.implementation(subject.machine.configure({}))
    for line in sys.stdin.buffer:
        request = from_json(line)
        if "brokerproof" in request:  # the first line: what we drive. We have all actions, settings and fields
            reply = {"brokerproof": VERSION, "name": f"brokerproof's {name} in Python"}
        else:
            if "config" in request:  # a reset
                cfg = machine.configure(request["config"])
                body = subject.implementation(cfg)
                methods = {
                    action.name: (getattr(body, action.name), [fit for _, fit, _ in action.fitters])
                    for action in machine.actions.values()
                }
            outcomes = []
            for action, *arguments in request["calls"]:
                method, fitters = methods[action]
                fitted = [fit(value, action, cfg) for fit, value in zip(fitters, arguments, strict=True)]
                outcomes.append(wire(method(*fitted)))
            reply = {"id": request["id"], "outcomes": outcomes, "observed": machine.observe(cfg, body.view())}
        sys.stdout.buffer.write(to_json(reply) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
