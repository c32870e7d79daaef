"""A producer at one broker: receipts that are late, lost, repeated or out of order, refusals, and lost connections."""

from __future__ import annotations

from fuzz.client.answer import Answer, Order
from fuzz.client.contracts import PRODUCER
from fuzz.client.run import Run
from fuzz.client.schedule import Scenario, StepKind


def begin(run: Run) -> None:
    """Attaches a producer."""
    run.start(deduplication=run.settings["deduplication"])
    options = {"initial_sequence_id": 41} if run.settings["initial_sequence_id"] else {}
    run.create_producer(
        send_timeout_millis=0,
        batching_enabled=run.settings["batching"],
        batching_max_messages=3,
        batching_max_publish_delay_ms=1,
        **options,
    )


def defer(run: Run) -> None:
    """Orders that sends are not processed until the step `release`."""
    run.withheld.add("sends")
    run.broker("order", sends="defer")


def ignore(run: Run) -> None:
    """Orders that sends are ignored until the step `release`, as by a topic that is being closed."""
    run.withheld.add("sends")
    run.broker("order", sends="ignore")


def hold(run: Run) -> None:
    """Orders that sends are stored, and their receipts are held back until the step `release`."""
    run.withheld.add("receipts")
    run.broker("order", receipts="hold")


def release(run: Run, how: str) -> None:
    """Ends the orders of `defer`, `ignore` and `hold`. `how` says in which order receipts come (`Ordered.release`)."""
    run.withheld -= {"sends", "receipts"}
    run.broker("release", how=how)
    run.sync()


def repeat(run: Run) -> None:
    """Sends the newest receipt again."""
    run.broker("repeat_receipts")


def drop(run: Run) -> None:
    """Ends the TCP connections."""
    run.broker("drop")
    run.sync()


def close(run: Run) -> None:
    """Sends CLOSE_PRODUCER without the address of a new owner, as at an unload. The broker keeps the topic."""
    run.broker("close_owner_sessions", url="")
    run.sync()


def refuse(run: Run) -> None:
    """Orders that the next PRODUCER is refused with ServiceNotReady."""
    run.broker("order", PRODUCER=[Order(Answer.REFUSE)])


def close_first(run: Run) -> None:
    """Orders that the next PRODUCER is answered with CLOSE_PRODUCER and then with PRODUCER_SUCCESS."""
    run.broker("order", PRODUCER=[Order(Answer.CLOSE)])


def checksum(run: Run, index: int) -> None:
    """Answers the deferred send at `index` with ChecksumError; the newest one if there are not so many."""
    run.broker("refuse_deferred", index=index)


scenario = Scenario(
    "producer",
    settings={"deduplication": (False, True), "initial_sequence_id": (False, True), "batching": (False, True)},
    steps={
        "send": StepKind(lambda run, count: run.send(count), ((1, 2, 3, 5),), weight=4),
        "defer": StepKind(defer),
        "ignore": StepKind(ignore),
        "hold": StepKind(hold),
        "release": StepKind(release, (("in_order", "twice", "reverse", "skip"),)),
        "repeat": StepKind(repeat),
        "drop": StepKind(drop),
        "close": StepKind(close),
        "refuse": StepKind(refuse),
        "close_first": StepKind(close_first),
        "checksum": StepKind(checksum, ((0, 1, 2),), weight=2),
    },
    begin=begin,
    end=Run.finish,
    contracts=PRODUCER,
)
