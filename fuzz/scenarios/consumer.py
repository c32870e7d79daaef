"""A consumer: permits, lost acknowledgements, redelivery, and entries with a wrong checksum."""

from __future__ import annotations

import time

from fuzz.client.contracts import CONSUMER, acknowledged_log_leaves_no_backlog, flow_returns_half_the_queue
from fuzz.client.run import GROUPED, Run
from fuzz.client.schedule import Scenario, StepKind


def begin(run: Run) -> None:
    """Attaches a producer, which sends batches if `size` exceeds 1, and a consumer."""
    run.start()
    run.create_producer(
        send_timeout_millis=0,
        batching_enabled=run.settings["size"] > 1,
        batching_max_messages=max(2, run.settings["size"]),  # the client accepts no smaller maximum
        batching_max_publish_delay_ms=1000,
    )
    run.subscribe(
        kind=run.settings["kind"],
        receiver_queue_size=run.settings["receiver_queue"],
        batch_index_ack_enabled=run.settings["index_acks"],
    )


def send(run: Run, count: int) -> None:
    """Sends `count` entries, each a message or a batch."""
    run.send(count * run.settings["size"])


def receive(run: Run, count: int) -> None:
    """Receives up to `count` messages, acknowledges them one by one, and waits until the client has sent the acks."""
    run.receive(count)
    run.pause(GROUPED)


def lose(run: Run) -> None:
    """Receives up to three messages and acknowledges them, but the brokers ignore the acks. Ends the connections.

    On an Exclusive subscription, the ack is cumulative.
    """
    indexes = run.take(3, 0.1)
    if indexes:
        run.broker("order", acks="ignore")
        if run.settings["kind"] == 0:
            run.call("acknowledge_cumulative", indexes[-1:])
        else:
            run.call("acknowledge", indexes)
        run.pause(GROUPED)
    drop(run)


def drop(run: Run) -> None:
    """Ends the TCP connections. From then on, the brokers store acks."""
    run.broker("drop")
    run.broker("order", acks="store")
    run.sync()


def corrupt(run: Run, count: int) -> None:
    """Sends `count` entries. The brokers deliver them with a wrong checksum."""
    run.wait("delivered", None)
    run.broker("corrupt_next", count=count)
    send(run, count)
    run.wait("delivered", None)


def redeliver(run: Run) -> None:
    """Requests the redelivery of all unacknowledged messages."""
    before = run.broker("count", kind="REDELIVER")
    run.client("redeliver")
    run.wait("commands", ["REDELIVER", before + 1])


def end(run: Run) -> None:
    """Ends the orders, then receives and acknowledges all that is left, for at most `run.patience` seconds."""
    run.is_patient = True  # waits again, even if an effect of an earlier step did not come in time
    run.broker("end_orders")
    run.sync()
    until = time.monotonic() + run.patience
    while time.monotonic() < until:
        before = len(run.observed.received)
        run.receive(100, 0.05)
        is_empty = run.broker("wait", what="left", value=0, seconds=GROUPED)
        if is_empty and before == len(run.observed.received):
            break
    # waits for the permits that the client returns after the last messages
    run.broker("wait", what="permits", value=run.settings["receiver_queue"] // 2, seconds=0.5)
    run.finish()


scenario = Scenario(
    "consumer",
    settings={"receiver_queue": (10, 20), "size": (1, 8), "index_acks": (False, True), "kind": (0, 1)},
    steps={
        "send": StepKind(send, ((1, 3, 8),), weight=3),
        "receive": StepKind(receive, ((1, 3, 7),), weight=2),
        "lose": StepKind(lose),
        "drop": StepKind(drop),
        "corrupt": StepKind(corrupt, ((1, 2, 3),)),
        "redeliver": StepKind(redeliver),
    },
    begin=begin,
    end=end,
    contracts=(*CONSUMER, flow_returns_half_the_queue, acknowledged_log_leaves_no_backlog),
    length=8,
)
