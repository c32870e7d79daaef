"""A consumer that negatively acknowledges. Some steps only let time pass: the client redelivers by a timer."""

from __future__ import annotations

import time

from fuzz.client.contracts import CONSUMER
from fuzz.client.run import Run
from fuzz.client.schedule import Scenario, StepKind
from fuzz.scenarios.nack_contracts import (
    closed_consumer_redelivers_nothing,
    judges_times,
    later_nack_postpones_no_redelivery,
    nack_after_close_is_rejected,
    queued_message_is_received_once,
    redelivery_command_has_due_entries,
    redelivery_follows_timing_law,
    redelivery_is_in_time,
)

_NACK = "negative_acknowledge"
#: The interval of the brokers' pings, by which they measure how late commands may be.
_PING_SECONDS = 0.01


def begin(run: Run) -> None:
    """Attaches a producer and a consumer."""
    run.start(ping_seconds=_PING_SECONDS)
    run.create_producer(send_timeout_millis=0, batching_enabled=False)
    run.subscribe(kind=run.settings["kind"], negative_ack_redelivery_delay_ms=run.settings["delay"])


def nack(run: Run, count: int, gap: int) -> None:
    """Sends `count` messages, receives up to `count`, and nacks the received ones, one every `gap` milliseconds."""
    if run.consumers:
        run.send(count)
        run.call(_NACK, run.take(count), gap / 1000)


def again(run: Run) -> None:
    """Nacks the newest received message again."""
    if run.consumers and run.taken.get(0):
        run.call(_NACK, [run.taken[0] - 1])


def acknowledge(run: Run) -> None:
    """Acknowledges the newest received message. A nack of the message stays pending."""
    if run.consumers and run.taken.get(0):
        run.call("acknowledge", [run.taken[0] - 1])


def close(run: Run) -> None:
    """Closes the consumer, and then nacks the newest received message, if there is one."""
    if run.consumers:
        run.observed.calls.append(run.client("close_consumer"))
        run.consumers = run.observed.consumers = 0  # no contract expects further deliveries
        if run.taken.get(0):
            run.call(_NACK, [run.taken[0] - 1])


def end(run: Run) -> None:
    """Waits until the delay and two intervals of the timer have passed since the last call. Then receives the rest."""
    if run.observed.calls:
        # an interval is a third of the delay: 5/3 of the delay (in ms), and 20 ms more
        run.pause(run.observed.calls[-1][2] + run.settings["delay"] * 5 / 3000 + 0.02 - time.monotonic())
    received = {int(message[0]) for message in run.observed.received}
    run.observed.queued = [number for number in range(run.observed.begun) if number not in received]
    run.observed.lateness = run.client("lateness")
    run.finish()


scenario = Scenario(
    "negative_acks",
    settings={"delay": (300, 500), "kind": (1, 0, 2)},
    steps={
        "nack": StepKind(nack, ((1, 2, 8), (0, 60)), weight=2),
        "again": StepKind(again),
        "acknowledge": StepKind(acknowledge),
        "queue": StepKind(lambda run, count: run.send(count), ((1, 3),)),
        "pause": StepKind(lambda run, ms: run.pause(ms / 1000), ((30, 150, 700),), weight=2),
        "close": StepKind(close),
    },
    begin=begin,
    end=end,
    contracts=(
        *CONSUMER[:3],  # the contracts on crashes, hangs and delivery
        redelivery_command_has_due_entries,
        redelivery_follows_timing_law,
        redelivery_is_in_time,
        later_nack_postpones_no_redelivery,
        closed_consumer_redelivers_nothing,
        nack_after_close_is_rejected,
        queued_message_is_received_once,
    ),
    length=6,
    judges_times=judges_times,
)
