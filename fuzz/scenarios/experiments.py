"""Steps only for the schedules of `experiments.toml`: unusual answers of brokers, and steps that do not wait."""

from __future__ import annotations

from typing import Any

from fuzz.client.answer import Answer, Order
from fuzz.client.run import GROUPED, TOPIC, Observed, Run
from fuzz.client.schedule import Scenario, StepKind, violations


def answer(run: Run, kind: str, how: str, count: int = 1) -> None:
    """Orders the answer `how` for the next `count` commands of a kind."""
    run.broker("order", **{kind: [Order(Answer(how))] * count})


def send_only(run: Run, count: int) -> None:
    """Sends messages, and waits for nothing."""
    run.observed.not_accepted += run.client("send", first=run.observed.begun, count=count)
    run.observed.begun += count


def close_twice(run: Run) -> None:
    """Sends CLOSE with the address of the broker that is not the owner, and then CLOSE with the owner's address."""
    run.broker("close_twice")
    run.sync()


def age(run: Run) -> None:
    """Sets redelivery counts to 2**31 - 1: the count of the next redelivery exceeds a signed integer of 32 bits."""
    run.wait("delivered", None)
    run.broker("age", count=2**31 - 1)


def send_large(run: Run, size: int) -> None:
    """Sends a message with a payload of `size` bytes."""
    run.observed.not_accepted += run.client("send", first=run.observed.begun, count=1, size=size)
    run.observed.begun += 1
    run.sync()


def reader(run: Run) -> None:
    """Creates a reader that starts at the first message."""
    error = run.client("read", topic=TOPIC)
    if error:
        run.observed.failed.append(f"read {error}")
    else:
        run.consumers += 1
        run.observed.consumers += 1


def seek(run: Run, index: int) -> None:
    """Seeks with the first consumer to its received message of index `index`."""
    error = run.client("seek", index=index)
    if error:
        run.observed.failed.append(f"seek {error}")
    run.sync()


def nack(run: Run, count: int, is_reverse: bool) -> None:
    """Receives `count` messages, and negatively acknowledges them in order; with `is_reverse`, in reverse order."""
    indexes = run.take(count, 5.0)
    run.call("negative_acknowledge", indexes[::-1] if is_reverse else indexes)


def nack_each(run: Run, count: int) -> None:
    """Receives a message and negatively acknowledges it, `count` times."""
    for _ in range(count):
        run.call("negative_acknowledge", run.take(1, 2.0))


def cumulative(run: Run, count: int) -> None:
    """Receives `count` messages, and acknowledges each of them cumulatively, in the order in which they came."""
    run.call("acknowledge_cumulative", run.take(count))
    run.pause(GROUPED)


def ack_both(run: Run) -> None:
    """Acknowledges the first of four messages, and waits until the client has sent (flushed) this ack.

    Right after, acknowledges the second and the fourth message, and the third one cumulatively.
    """
    indexes, before = run.take(4), run.broker("count", kind="ACK")
    run.call("acknowledge", indexes[:1])
    run.wait("commands", ["ACK", before + 1])
    run.call("acknowledge", indexes[1::2])
    run.call("acknowledge_cumulative", indexes[2:3])
    run.pause(GROUPED)


def ack_and_cut(run: Run) -> None:
    """Acknowledges a message, waits until the ack is sent, acknowledges another one, and ends the connections."""
    indexes, before = run.take(2), run.broker("count", kind="ACK")
    run.call("acknowledge", indexes[:1])
    run.wait("commands", ["ACK", before + 1])
    run.call("acknowledge", indexes[1:])
    run.broker("drop")


def ack_index(run: Run, kind: str, index: int) -> None:
    """Acknowledges the message with a batch index in the newest batch. `kind` as in `Driver.call`."""
    entry, _ = max(run.application.indexes_of)
    run.application.call(run, kind, [(entry, index)])


STEPS = {
    "answer": StepKind(answer),
    "answer_error": StepKind(lambda run, number: run.broker("order", PRODUCER=[Order(Answer.ERROR, number)])),
    "answer_version": StepKind(lambda run, number: run.broker("order", CONNECT=[Order(Answer.VERSION, number)])),
    "send_only": StepKind(send_only),
    "close_twice": StepKind(close_twice),
    "stray": StepKind(lambda run: run.broker("stray_receipts")),
    "age": StepKind(age),
    "wait": StepKind(lambda run, ms: run.pause(ms / 1000)),
    "send_large": StepKind(send_large),
    "reader": StepKind(reader),
    "seek": StepKind(seek),
    "take": StepKind(lambda run, count: run.take(count)),
    "nack_received": StepKind(nack),
    "nack_each": StepKind(nack_each),
    "cut": StepKind(lambda run: run.broker("drop")),
    "cumulative_each": StepKind(cumulative),
    "ack_both": StepKind(ack_both),
    "ack_and_cut": StepKind(ack_and_cut),
    "ack_index": StepKind(ack_index),
    "hold_messages": StepKind(lambda run: run.broker("hold_messages")),
    # without an argument, the count is None
    "release_messages": StepKind(lambda run, *count: run.broker("release_messages", count=[*count, None][0])),
    "force_ack_set": StepKind(lambda run, *words: run.broker("force_ack_set", words=words)),
}


def measured(scenario: Scenario, observed: Observed, key: str) -> Any:
    """Returns the observed value of a key of `predicted` in `experiments.toml`. Raises AssertionError if unknown."""
    if key == "log":  # the logs of all topics, one after the other
        return observed.log
    if key == "acknowledged":
        return observed.acknowledged()
    if key == "received":
        return [int(message[0]) for message in observed.received]
    if key == "redelivery_counts":
        return [message[4] for message in observed.received]
    if key == "failed":
        return observed.failed
    if key == "violated":
        return [each.contract.name for each in violations(scenario, observed)]
    commands = [(kind, about) for _, _, kind, about in observed.report["commands"]]
    if key == "redelivered":  # the number of ids in each redelivery command
        return [len(each["ids"]) for kind, each in commands if kind == "REDELIVER"]
    if key == "acks":  # of each id in ACK commands: whether it is cumulative, entry (-1 before the first), ack set
        ids = [
            (each["cumulative"], entry, words)
            for kind, each in commands
            if kind == "ACK"
            for _, entry, words in each["ids"]
        ]
        # the command has entry ids as unsigned integers
        return [[is_cumulative, -1 if entry >= 2**63 else entry, words or []] for is_cumulative, entry, words in ids]
    assert key == "commands", key
    return observed.report["counts"]
