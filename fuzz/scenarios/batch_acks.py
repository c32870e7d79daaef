"""A consumer that acknowledges batches in part, with index acks and without, and reconnects."""

from __future__ import annotations

from fuzz.answers.batches import Batches, Message
from fuzz.client.contracts import client_does_not_crash, client_does_not_hang
from fuzz.client.driver import METHODS
from fuzz.client.run import GROUPED, Run
from fuzz.client.schedule import Scenario, StepKind
from fuzz.scenarios.ack_contracts import (
    ack_sets_are_exact,
    acknowledgement_by_id_reaches_cursor,
    acknowledgement_reaches_cursor,
    redelivery_has_what_is_left,
    unacknowledged_message_stays,
)


class Application(Batches):
    """The application of a run. The base class computes which messages its acknowledgements should leave."""

    def __init__(self, *, index_acks: bool) -> None:
        super().__init__()
        self.index_acks = index_acks
        self.indexes_of: dict[Message, int] = {}  # message -> its number among the received messages
        self.pending: list[Message] = []  # received and not acknowledged by the application

    def take(self, run: Run, count: int, seconds: float = 0.5) -> list[Message]:
        """Receives up to `count` messages, each within `seconds`. Returns them."""
        indexes = run.take(count, seconds)
        # `indexes` may be empty; [-0:] would be all received messages
        received = run.observed.received[-len(indexes) :] if indexes else []
        # a message outside a batch has the batch index -1
        found = [(entry, max(batch_index, 0)) for _, _, entry, batch_index, _ in received]
        self.indexes_of.update(zip(found, indexes, strict=True))
        self.deliver(found)
        self.pending = sorted({*self.pending, *found})
        return found

    def call(self, run: Run, kind: str, messages: list[Message]) -> None:
        """Acknowledges messages by a kind of call (`Driver.call`), and waits until the cursor has the acks."""
        run.call(kind, [self.indexes_of[each] for each in messages])
        cumulative = METHODS[kind][0] == "acknowledge_cumulative"
        for each in messages:
            self.acknowledge(each, cumulative=cumulative, index_acks=self.index_acks)
        acked = {each for each in self.pending if each in messages or (cumulative and each <= messages[-1])}
        self.pending = [each for each in self.pending if each not in acked]
        run.wait("left", len(self.left()))


def begin(run: Run) -> None:
    """Attaches a producer of batches and a consumer."""
    size = run.settings["size"]
    run.start()
    run.create_producer(
        send_timeout_millis=0,
        batching_enabled=True,
        batching_max_messages=size,
        batching_max_publish_delay_ms=1000,
    )
    run.application = Application(index_acks=run.settings["index_acks"])
    subscribe(run)


def subscribe(run: Run) -> None:
    """Subscribes a consumer."""
    run.subscribe(kind=run.settings["kind"], batch_index_ack_enabled=run.application.index_acks)


def batch(run: Run) -> None:
    """Sends a batch, and receives its messages."""
    size = run.settings["size"]
    run.send(size)
    run.application.add(size)
    run.application.take(run, size)


def acknowledge(run: Run, which: str, kind: str) -> None:
    """Acknowledges pending messages of one entry, the newest that has any, one by one. `kind` as in `Driver.call`."""
    pending = run.application.pending
    newest = [each for each in pending if each[0] == pending[-1][0]]
    chosen = {"first": newest[:1], "last": newest[-1:], "odd": [e for e in newest if e[1] % 2], "all": newest}[which]
    if chosen:
        run.application.call(run, kind, chosen)


def cumulative(run: Run, which: str) -> None:
    """Acknowledges the first, middle or last pending message cumulatively. Does nothing on a Shared subscription."""
    pending = run.application.pending
    if pending and run.settings["kind"] == 0:
        at = {"first": 0, "middle": len(pending) // 2, "last": -1}[which]
        run.application.call(run, "acknowledge_cumulative", [pending[at]])


def drop(run: Run) -> None:
    """Ends the TCP connections, and receives the unacknowledged messages again."""
    run.broker("drop")
    receive_again(run)


def resubscribe(run: Run, index_acks: bool) -> None:
    """Closes the consumer, and subscribes another one, with index acks or without."""
    run.client("close_consumer", consumer=run.current)
    run.consumers -= 1
    run.current += 1
    run.application.index_acks = index_acks
    subscribe(run)
    receive_again(run)


def receive_again(run: Run) -> None:
    """Receives the unacknowledged messages again, and records which messages come."""
    run.sync()
    application = run.application
    left = application.left()
    application.pending.clear()
    application.indexes_of.clear()
    found = application.take(run, len(left))
    found += application.take(run, 1000, 0.02)  # messages that should not come
    if run.is_patient:  # otherwise acks may not have arrived before the redelivery
        run.observed.redelivered.append([left, found])


def end(run: Run) -> None:
    """Acknowledges the pending messages if `acknowledges_rest` is set, and collects the observation."""
    application = run.application
    if run.settings["acknowledges_rest"] and application.pending:
        application.call(run, "acknowledge", application.pending)
    run.observed.left = run.application.left()
    if not run.is_patient:
        run.pause(GROUPED)  # the run does not wait for acks any more, and the client may still group some
    run.consumers = 0  # `finish` receives and acknowledges no more messages
    run.finish()


scenario = Scenario(
    "batch_acks",
    settings={
        "size": (5, 65, 64, 130),
        "index_acks": (True, False),
        "acknowledges_rest": (False, True),
        "kind": (0, 1),
    },
    steps={
        "batch": StepKind(batch, weight=2),
        "acknowledge": StepKind(
            lambda run, which: acknowledge(run, which, "acknowledge"), (("first", "last", "odd", "all"),), weight=2
        ),
        "cumulative": StepKind(cumulative, (("first", "middle", "last"),)),
        "deserialized": StepKind(lambda run, which: acknowledge(run, which, "acknowledge_id"), (("first", "all"),)),
        "drop": StepKind(drop),
        "resubscribe": StepKind(resubscribe, ((False, True),), weight=2),
    },
    begin=begin,
    end=end,
    contracts=(
        client_does_not_crash,
        client_does_not_hang,
        unacknowledged_message_stays,
        acknowledgement_reaches_cursor,
        acknowledgement_by_id_reaches_cursor,
        ack_sets_are_exact,
        redelivery_has_what_is_left,
    ),
    length=8,
)
