"""A client's session: stateful test, worked examples of the protocol, and the observed defects of the C++ client."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.charts import chart_of
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from invariants.properties import Event
from model.client_session.machine import client_session
from model.client_session.state import Config, Entry, Reply, State
from model.machine import BadValue, Refused
from tests.conftest import assert_agreement, stepped

SUBJECT = find_subject("client_session")

TestClientSession = stateful_test(SUBJECT, examples=40)


def attached(handler: str) -> tuple[Any, ...]:
    """Returns the steps that attach a handler."""
    return (("connect", handler), ("accept", handler), ("handle", handler))


def ran(cfg: Config, *steps: Any) -> tuple[State, list[Any]]:
    """Returns the state after some steps, and their outcomes.

    Under reference rules, the implementation agrees and no property is violated.
    """
    if client_session.is_reference(cfg):
        assert_agreement(SUBJECT, cfg, steps)
    state, outcomes = stepped(client_session, cfg, steps)
    return state, outcomes[1:]


def done(cfg: Config, *steps: Any) -> State:
    """Returns the state after some steps, none of which may be refused."""
    state, outcomes = ran(cfg, *steps)
    refused = [(step, each) for step, each in zip(steps, outcomes, strict=True) if isinstance(each, Refused)]
    assert refused == []
    return state


PRODUCER = attached("producer")
CONSUMER = attached("consumer")
BROKEN = (("break_connection", "producer"), *PRODUCER)
STORED = (("store",), ("handle", "producer"))
DELIVERED = (("dispatch",), ("handle", "consumer"), ("receive",))
DEDUPLICATED = Config(deduplication=True)

# ---- sequence ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "first"),
    [
        (Config(), 0),
        (Config(stored=3), 0),
        (Config(stored=3, deduplication=True), 3),
        (Config(initial_sequence_id=41), 42),
        (Config(stored=3, deduplication=True, initial_sequence_id=0), 1),
    ],
)
def test_first_sequence_id(cfg: Config, first: int) -> None:
    """One above `last_sequence_id`, which is -1 without deduplication, or above `initialSequenceId`."""
    assert ran(cfg, *PRODUCER, ("send",))[1][-1] == first


def test_a_reused_sequence_id_is_not_stored_again() -> None:
    """An application that continues at an earlier sequence id sends what an earlier session has stored."""
    cfg = Config(stored=2, deduplication=True, initial_sequence_id=0)
    state = done(cfg, *PRODUCER, ("send",), *STORED, ("send",), *STORED)
    assert state.producer.results == (True, True)
    assert state.log == (Entry(-1, 0), Entry(-1, 1), Entry(1, 2))
    done(cfg, *PRODUCER, ("send",), ("send",), ("store",), ("store",))  # the same with both messages in flight


EARLY_LOSS = (*PRODUCER, ("send",), *BROKEN, ("send",), ("store",), ("store",), ("handle", "producer"))


def test_reconnection_before_the_first_receipt_keeps_sequence_ids() -> None:
    """As observed in C++, the second message gets sequence id 0 again: dropped as a duplicate and reported stored."""
    state = done(DEDUPLICATED, *EARLY_LOSS, ("handle", "producer"))
    assert (state.producer.results, state.log) == ((True, True), (Entry(0, 0), Entry(1, 1)))
    cpp = DEDUPLICATED._replace(reconnection_restarts_sequence_ids=True)
    state = done(cpp, *EARLY_LOSS, ("handle", "producer"))
    assert (state.producer.results, state.log) == ((True, True), (Entry(0, 0),))


def test_no_restart_after_the_first_receipt_or_with_an_initial_sequence_id() -> None:
    cpp = DEDUPLICATED._replace(reconnection_restarts_sequence_ids=True)
    steps = (*PRODUCER, ("send",), *STORED, ("send",), *BROKEN, ("send",))
    assert done(cpp, *steps).producer.pending == (1, 2)
    steps = (*PRODUCER, ("send",), *BROKEN, ("send",))
    assert done(cpp._replace(initial_sequence_id=0), *steps).producer.pending == (1, 2)


# ---- resends, receipts, errors -------------------------------------------------------------------------


@pytest.mark.parametrize(("deduplication", "stored"), [(False, (0, 1, 0, 1)), (True, (0, 1))])
def test_stored_without_receipts(deduplication: bool, stored: tuple[int, ...]) -> None:
    """The receipts are lost, so the messages are sent again. Only deduplication prevents that they are stored twice."""
    steps = (*PRODUCER, ("send",), ("send",), ("store",), ("store",), *BROKEN, *STORED, *STORED)
    state = done(Config(deduplication=deduplication), *steps)
    assert tuple(entry.message for entry in state.log) == stored
    assert state.producer.results == (True, True)


def test_redirect_with_ignored_sends() -> None:
    """The broker acknowledged one message and ignored five; all five and three more arrive, in order (PIP-307)."""
    cfg = Config(max_pending_messages=10)
    begun = (*PRODUCER, ("send",), *STORED, ("ignore_sends",), *[("send",)] * 5)
    moved = (("finish_transfer", "producer", True), ("handle", "producer"), *[("send",)] * 3)
    state, outcomes = ran(cfg, *begun, *moved, *PRODUCER, *STORED * 8)
    assert outcomes[len((*begun, *moved))] == "redirect"
    assert [entry.sequence for entry in state.log] == list(range(9))


def test_receipts_that_are_early_late_or_for_nobody() -> None:
    sent = (*PRODUCER, ("send",), ("send",))
    assert ran(Config(), *PRODUCER, ("stray_reply", "receipt", 7))[1][-1] == "ignored"
    assert ran(Config(), *sent, *STORED, ("stray_reply", "receipt", 0))[1][-1] == "ignored"
    state, outcomes = ran(Config(), *sent, ("stray_reply", "receipt", 1))
    assert (outcomes[-1], state.producer.link.phase, state.producer.pending) == ("disconnected", "lookup", (0, 1))


def test_timed_out_messages_fail_together_and_may_be_stored() -> None:
    state, outcomes = ran(Config(), *PRODUCER, ("send",), ("send",), ("time_out",), *STORED)
    assert (outcomes[-3], outcomes[-1]) == (2, "ignored")
    assert (state.producer.results, state.log) == ((False, False), (Entry(0, 0),))


FOREIGN_ERROR = (*PRODUCER, ("send",), ("time_out",), ("send",), ("stray_reply", "checksum_error", 0), ("store",))


def test_checksum_error_for_a_message_that_timed_out() -> None:
    """As observed in C++, the next receipt is a segmentation fault."""
    assert done(Config(), *FOREIGN_ERROR[:-1]).producer.pending == (1,)
    cpp = Config(checksum_error_takes_oldest=True)
    state, outcomes = ran(cpp, *FOREIGN_ERROR, ("handle", "producer"))
    assert (outcomes[-1], state.consumer.link.phase) == ("crashed", "crashed")


@pytest.mark.parametrize("deduplication", [False, True])
def test_message_that_passes_a_corrupt_one_is_lost_or_reordered(deduplication: bool) -> None:
    """The broker refuses message 0 as corrupt, and stores message 1. The error is lost with the connection.

    Both messages are sent again. Message 0 is stored after message 1. With deduplication, it counts as a duplicate, and
    is lost.
    """
    steps = (*PRODUCER, ("send",), ("send",), ("send_error", True), ("store",), *BROKEN, *STORED, *STORED)
    shipped = Config(deduplication=deduplication, checksum_error_ends_session=False)
    state = done(shipped, *steps)
    assert state.producer.results == (True, True)
    assert [entry.message for entry in state.log] == ([1] if deduplication else [1, 0, 1])
    assert isinstance(ran(Config(), *steps[: len(PRODUCER) + 4])[1][-1], Refused), "the session has ended"


# ---- handlers ------------------------------------------------------------------------------------------


def test_redirect_serves_one_attempt() -> None:
    closed = (*PRODUCER, ("close", "producer", True), ("handle", "producer"))
    assert ran(Config(), *closed, ("connect", "producer"))[1][-1] == "redirect"
    assert ran(Config(), *closed, ("fail_redirect", "producer"), ("connect", "producer"))[1][-1] == "lookup"
    again = (("connect", "producer"), ("break_connection", "producer"), ("connect", "producer"))
    assert ran(Config(), *closed, *again)[1][-1] == "lookup"


@pytest.mark.parametrize("handler", ["producer", "consumer"])
def test_close_while_a_request_is_in_flight(handler: str) -> None:
    """As observed in C++, the handler is ready at a broker that has closed it, for ever."""
    steps = (*attached(handler), ("break_connection", handler), ("connect", handler), ("close", handler, False))
    late = (*steps, ("late_success", handler), ("handle", handler))
    assert ran(Config(), *late)[1][-1] == "closed"
    state, outcomes = ran(Config(close_cancels_request=False), *late, ("handle", handler))
    assert outcomes[-2:] == ["kept", "ready"]
    assert (state.producer if handler == "producer" else state.consumer).link.session == "none"


@pytest.mark.parametrize(("handler", "phase"), [("producer", "lookup"), ("consumer", "failed")])
def test_first_request_is_refused_with_a_retryable_error(handler: str, phase: str) -> None:
    """As observed in C++, SUBSCRIBE is not retried. PRODUCER is, and so is every request of the reference."""
    steps = (("connect", handler), ("refuse", handler, True), ("handle", handler))
    assert ran(Config(), *steps)[1][-1] == "retried"
    state, _ = ran(Config(first_subscribe_is_retried=False), *steps)
    assert (state.producer if handler == "producer" else state.consumer).link.phase == phase


def test_end_of_topic_closes_the_connection_of_both_handlers() -> None:
    steps = (*PRODUCER, *CONSUMER, ("end_of_topic",))
    assert ran(Config(), *steps)[1][-1] == "ignored"
    state, _ = ran(Config(unknown_command_disconnects=True), *steps)
    assert (state.producer.link.phase, state.consumer.link.phase) == ("lookup", "lookup")


# ---- permits -------------------------------------------------------------------------------------------


def test_permits_are_returned_by_halves() -> None:
    cfg = Config(stored=9, receiver_queue_size=6)
    steps = (*CONSUMER, *[("dispatch",), ("handle", "consumer")] * 6)
    assert [done(cfg, *steps, *[("receive",)] * n).consumer.permits for n in range(7)] == [0, 0, 0, 3, 3, 3, 6]


def test_a_batch_costs_its_size_and_may_overdraw_permits() -> None:
    assert done(Config(stored=2, batch_size=5), *CONSUMER, ("dispatch",)).consumer.permits == -3


def test_corrupt_batch_returns_its_permits() -> None:
    """As observed in C++, the client returns one permit."""
    cfg = Config(stored=2, batch_size=5, receiver_queue_size=10)
    steps = (*CONSUMER, ("dispatch_corrupt",), ("handle", "consumer"))
    state = done(cfg, *steps)
    assert (state.consumer.permits, state.acked) == (10, (0, 1, 2, 3, 4))
    state = done(cfg._replace(corrupt_batch_returns_all_permits=False), *steps)
    assert state.consumer.permits + state.consumer.available_permits == 6


def test_a_new_session_starts_with_the_whole_queue() -> None:
    """Broker A has sent eight messages, and the application has received four. The new session drops the others."""
    cfg = Config(stored=12, receiver_queue_size=10)
    at_a = (*CONSUMER, *[("dispatch",), ("handle", "consumer")] * 8, *[("receive",)] * 4, ("acknowledge", 0))
    moved = (("close", "consumer", True), ("handle", "consumer"), *CONSUMER)
    state = done(cfg, *at_a, *moved)
    assert (state.consumer.permits, state.consumer.queue, state.consumer.grouped) == (10, (), (0,))
    assert ran(cfg, *at_a, *moved, ("flush",), ("dispatch",))[1][-1] == 1, "the grouped ack is sent to the new broker"


# ---- acknowledgements ----------------------------------------------------------------------------------

FIVE = Config(stored=2, batch_size=5, receiver_queue_size=5)
BATCH = (*CONSUMER, ("dispatch",), ("handle", "consumer"), *[("receive",)] * 5)


def test_batch_without_index_acks_is_acknowledged_when_complete() -> None:
    acks = [("acknowledge", n) for n in (0, 3, 1, 4, 2)]
    assert ran(FIVE, *BATCH, *acks)[1][-5:] == [False] * 4 + [True]
    assert done(FIVE, *BATCH, *acks, ("flush",)).acked == (0, 1, 2, 3, 4)
    assert isinstance(ran(FIVE, *BATCH, *acks[:4], ("flush",))[1][-1], Refused)


def test_index_acks_are_sent_one_by_one() -> None:
    cfg = FIVE._replace(index_acks=True)
    steps = (*BATCH, ("acknowledge", 0), ("acknowledge", 1), ("flush",))
    again = (("break_connection", "consumer"), *CONSUMER, ("dispatch",))
    assert done(cfg, *steps, *again).consumer.link.down == (Reply("message", 0, (2, 3, 4)),)


@pytest.mark.parametrize(("index_acks", "covered"), [(True, 2), (False, -1)])
def test_cumulative_ack_inside_a_batch(index_acks: bool, covered: int) -> None:
    """With index acks, the ack carries an ack set. Otherwise it is an ack of the entry before."""
    cfg = FIVE._replace(index_acks=index_acks)
    assert ran(cfg, *BATCH, ("acknowledge_cumulative", 2))[1][-1] == covered


def test_shared_subscription_refuses_cumulative_acks() -> None:
    outcome = ran(FIVE._replace(shared=True), *BATCH, ("acknowledge_cumulative", 2))[1][-1]
    assert isinstance(outcome, Refused)
    assert outcome.kind == "unsupported"


def test_batch_that_another_consumer_acknowledged_in_part() -> None:
    """As observed in C++, the client waits for acks of messages that it never got."""
    steps = (
        ("acknowledge_elsewhere", 1),
        ("acknowledge_elsewhere", 3),
        *CONSUMER,
        ("dispatch",),
        ("handle", "consumer"),
        *[("receive",)] * 3,
        *[("acknowledge", n) for n in (0, 2, 4)],
    )
    assert ran(FIVE, *steps)[1][-1] is True
    assert ran(FIVE._replace(tracker_uses_ack_set=False), *steps)[1][-1] is False
    inflated = done(FIVE._replace(filtered_messages_return_permits=True), *steps).consumer
    assert inflated.permits + inflated.available_permits == 7, "two more than the receiver queue"


def test_message_whose_ack_is_grouped_is_dropped_until_the_flush() -> None:
    cfg = Config(stored=1)
    again = (("break_connection", "consumer"), *CONSUMER, ("dispatch",), ("handle", "consumer"))
    state, outcomes = ran(cfg, *CONSUMER, *DELIVERED, ("acknowledge", 0), *again)
    assert outcomes[-1] == "dropped"
    assert state.consumer.permits + state.consumer.available_permits == 2


LOST_ACK = (
    *(*CONSUMER, *DELIVERED, ("acknowledge_cumulative", 0), ("close", "consumer", False), ("flush",)),
    *(("handle", "consumer"), *CONSUMER, ("dispatch",), ("handle", "consumer")),
)


def test_lost_cumulative_ack_does_not_hide_its_messages() -> None:
    """As observed in C++, the messages are dropped as long as the consumer lives."""
    assert ran(Config(stored=1), *LOST_ACK)[1][-1] == "queued"
    assert ran(Config(stored=1, cumulative_ack_hides_for_ever=True), *LOST_ACK)[1][-1] == "dropped"


def test_acks_wait_while_the_consumer_has_no_connection() -> None:
    steps = (*CONSUMER, *DELIVERED, ("acknowledge", 0), ("break_connection", "consumer"), ("flush",))
    assert isinstance(ran(Config(stored=1), *steps)[1][-1], Refused)
    assert done(Config(stored=1), *steps[:-1], *CONSUMER, ("flush",)).acked == (0,)


@pytest.mark.parametrize("asked", [(), (("connect", "consumer"),)])
def test_acks_are_lost_in_a_flush_without_session(asked: tuple[Any, ...]) -> None:
    """As observed in C++: without a connection, and between SUBSCRIBE and its answer."""
    steps = (*CONSUMER, *DELIVERED, ("acknowledge", 0), ("break_connection", "consumer"), *asked, ("flush",))
    state = done(Config(stored=1, flush_waits_for_session=False), *steps)
    assert (state.consumer.grouped, state.acked) == ((), ())


# ---- redelivery ----------------------------------------------------------------------------------------

TWO = (*CONSUMER, *[("dispatch",), ("handle", "consumer")] * 2, ("receive",), ("negative_acknowledge", 0))


def test_negative_ack_of_an_exclusive_consumer_redelivers_everything() -> None:
    """As observed in C++, the receiver queue is kept: message 1 is delivered twice."""
    cfg = Config(stored=2)
    again = [("dispatch",), ("handle", "consumer")] * 2
    assert done(cfg, *TWO, *again).consumer.queue == (0, 1)
    state, _ = ran(cfg._replace(redelivery_of_all_clears_queue=False), *TWO, *again)
    assert state.consumer.queue == (1, 0)


def test_negative_ack_of_a_shared_consumer_redelivers_the_entry() -> None:
    cfg = Config(stored=2, shared=True)
    assert done(cfg, *TWO, ("dispatch",), ("handle", "consumer")).consumer.queue == (1, 0)


def test_redelivery_of_a_batch_excludes_acknowledged_messages() -> None:
    """Messages 0 and 3 are acked, 1 is negatively acked: the second delivery has messages 1, 2 and 4."""
    cfg = FIVE._replace(index_acks=True, shared=True)
    steps = (("acknowledge", 0), ("acknowledge", 3), ("flush",), ("negative_acknowledge", 1), ("dispatch",))
    assert done(cfg, *BATCH, *steps, ("handle", "consumer")).consumer.queue == (1, 2, 4)


# ---- sequence chart ------------------------------------------------------------------------------------


def test_every_action_has_an_arrow_in_the_chart() -> None:
    """The accepted steps of a trace have roles and texts of the chart."""
    chart = chart_of("client_session")
    assert chart is not None
    assert set(chart.arrows) == set(client_session.actions)
    steps = (*EARLY_LOSS, *LOST_ACK, *TWO, ("stray_reply", "receipt", 9), ("end_of_topic",))
    state, drawn = client_session.start(Config(stored=1)), set()
    for name, *arguments in steps:
        after, outcome = client_session.step(Config(stored=1), state, name, tuple(arguments))
        if not isinstance(outcome, Refused):
            event = Event(name, client_session.actions[name].named(tuple(arguments)), outcome)
            assert set(chart.arrows[name]) <= set(chart.roles(Config(), state, event.arguments))
            drawn.add(chart.text(Config(), state, event, after))
        state = after
    assert {"PRODUCER after lookup", "message 1, sequence id 1: stored", "MESSAGE 0: queued", "acks: 0"} <= drawn


# ---- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"receiver_queue_size": 0}, "client_session.receiver_queue_size is 0, must be integer of 1 or more"),
        ({"batch_size": 65}, "client_session.batch_size is 65, must be integer from 1 to 64"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        client_session.configure(settings)
