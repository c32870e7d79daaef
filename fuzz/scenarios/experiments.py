"""Steps of experiments: odd brokers, and clients that do not wait. Schedules from seeds do not have them."""

from __future__ import annotations

from typing import Any

from fuzz.client.run import Observed, Run
from fuzz.client.schedule import Scenario, StepKind, violations


def answer(run: Run, kind: str, how: str, count: int = 1) -> None:
    """The next commands of a kind get an answer."""
    run.broker("order", **{kind: [how] * count})


def send_only(run: Run, count: int) -> None:
    """Messages are sent, and nothing is waited for."""
    run.observed.refused += run.client("send", first=run.observed.begun, count=count)
    run.observed.begun += count


def close_twice(run: Run) -> None:
    """CLOSE with the address of the other broker, which is not the owner, and CLOSE with the owner's right behind."""
    run.broker("close_twice")
    run.sync()


def age(run: Run) -> None:
    """The next redelivery has a count beyond 31 bits."""
    run.wait("delivered", None)
    run.broker("age", count=2**31 - 1)


STEPS = {
    "answer": StepKind(answer),
    "send_only": StepKind(send_only),
    "close_twice": StepKind(close_twice),
    "stray": StepKind(lambda run: run.broker("stray_receipts")),
    "age": StepKind(age),
    "wait": StepKind(lambda run, ms: run.pause(ms / 1000)),
}


def measured(scenario: Scenario, observed: Observed) -> dict[str, Any]:
    """What an experiment may predict."""
    return {
        "log": observed.log,
        "acknowledged": observed.acknowledged(),
        "received": [int(message[0]) for message in observed.received],
        "redelivery_counts": [message[4] for message in observed.received],
        "failed": observed.failed,
        "violated": [each.contract.name for each in violations(scenario, observed)],
        "commands": observed.report["counts"],
    }
