"""Transfer of a bundle: stateful test, the happy path step by step, the crash matrix, variants and shipped rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.explore.search import Space, explore, find_space
from fuzz.run.call import Call
from fuzz.run.pair import Pair
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_profile, find_subject
from fuzz.target import Target
from impl.bundle_transfer import BundleTransfer
from model.bundle_transfer.machine import bundle_transfer
from model.bundle_transfer.state import Command, Config, Entry, Record, State
from model.machine import BadValue, Failed, Refused

SUBJECT = find_subject("bundle_transfer")

TestBundleTransfer = stateful_test(SUBJECT)

ONE = Config(producers=1, consumers=0)
#: Steps of an undisturbed transfer: the records of the channel, the reconnection of the client, its next message.
HAND_OVER: tuple[Any, ...] = (
    ("publish", 0),
    ("deliver", 1),
    ("deliver", 1),
    ("publish", 1),
    ("deliver", 0),
    ("deliver", 0),
)
RECONNECT: tuple[Any, ...] = (
    ("receive", 0, 0),
    ("connect", 0, 0),
    ("deliver", 1),
    ("begin_load", 0, 1),
    ("open_topic", 0, 1, 0),
    ("admit", 0, 0),
    ("receive", 0, 0),
)
STORE: tuple[Any, ...] = (("process", 0, 0), ("confirm", 0, 1), ("receive", 0, 0))


def ran(cfg: Config, *steps: Any) -> tuple[State, list[Any]]:
    """Returns the state after some steps, and their outcomes. Under the reference, the implementation must agree."""
    state, outcomes = bundle_transfer.start(cfg), []
    implementation = BundleTransfer(cfg) if bundle_transfer.is_reference(cfg) else None
    for name, *arguments in steps:
        state, outcome = bundle_transfer.step(cfg, state, name, tuple(arguments))
        outcomes.append(outcome)
        if implementation is not None:
            assert getattr(implementation, name)(*arguments) == outcome
            assert implementation.view() == state
            assert implementation.check() == []
    return state, outcomes


def done(cfg: Config, *steps: Any) -> State:
    """Returns the state after some steps, none of which may be refused."""
    state, outcomes = ran(cfg, *steps)
    refused = [(step, outcome) for step, outcome in zip(steps, outcomes, strict=True) if isinstance(outcome, Refused)]
    assert refused == []
    return state


# ---- the happy path ------------------------------------------------------------------------------------


def test_happy_path() -> None:
    """The source confirms one message and ignores another during the transfer. Both end in the log, without lookup."""
    sent = (("send", 0, 0), ("process", 0, 0), ("confirm", 0, 0), ("transfer", 1), ("deliver", 0), ("send", 0, 0))
    state, outcomes = ran(ONE, *sent, ("process", 0, 0), ("close_ledger", 0, 0))
    assert outcomes[-2] == "ignored"
    assert state.topics[0].clients[0].down == (Command("receipt", 0),), "the receipt comes before the close"
    steps = (*sent, ("process", 0, 0), ("close_ledger", 0, 0), *HAND_OVER)
    assert done(ONE, *steps).records[-1] == Record("owned", 1, 0, False)
    assert done(ONE, *steps).topics[0].objects[1] is None, "Owned does not mean that a topic is loaded"
    closed = (*steps, ("disconnect", 0, 0), ("clean_up", 0, 0), ("receive", 0, 0))
    state = done(ONE, *closed)
    assert state.topics[0].clients[0].down == (Command("close", 1),)
    state = done(ONE, *closed, *RECONNECT, *STORE)
    assert state.topics[0].log == (Entry(0, 0), Entry(0, 1))
    assert (state.topics[0].clients[0].done, state.topics[0].clients[0].peer) == (2, 1)
    assert state.topics[0].objects[0] is None


def test_destination_parks_a_request_until_its_view_says_owned() -> None:
    begun = (("transfer", 1), ("deliver", 0), ("close_ledger", 0, 0), *HAND_OVER, ("disconnect", 0, 0))
    _, outcomes = ran(ONE, *begun, ("receive", 0, 0), ("connect", 0, 0), ("admit", 0, 0), ("begin_load", 0, 1))
    assert [outcome.why for outcome in outcomes[-2:]] == [
        "the bundle has no owner yet",
        "no client waits for the topic here, or the broker does not own it",
    ]


def test_source_answers_lookups_during_the_transfer_and_destination_parks_them() -> None:
    begun = (("break_connection", 0, 0), ("transfer", 1), ("deliver", 0), ("deliver", 1))
    assert ran(ONE, *begun, ("lookup", 0, 0, 0))[1][-1] == "answered"
    parked = (*begun, ("lookup", 0, 0, 1))
    assert ran(ONE, *parked)[1][-1] == "parked"
    owned = (("close_ledger", 0, 0), ("publish", 0), ("deliver", 1), ("publish", 1), ("deliver", 1))
    assert ran(ONE, *parked, ("answer", 0, 0), *owned, ("answer", 0, 0))[1][-1] == 1


def test_processed_message_is_delivered_again_after_a_transfer() -> None:
    """apache/pulsar#23056: the source ignores the ack, and the destination delivers from the persisted position."""
    delivered = (("send", 0, 0), ("process", 0, 0), ("confirm", 0, 0), ("dispatch", 0, 1), ("receive", 0, 1))
    moved = (("transfer", 1), ("deliver", 0), ("process", 0, 1), ("close_ledger", 0, 0), *HAND_OVER)
    again = (("disconnect", 0, 0), *[("receive", 0, 1)], ("connect", 0, 1), ("deliver", 1), ("begin_load", 0, 1))
    opened = (("open_topic", 0, 1, 0), ("admit", 0, 1), ("receive", 0, 1), ("dispatch", 0, 1))
    outcomes = ran(TWO, *delivered, *moved, *again, *opened)[1]
    assert (outcomes[3], outcomes[7], outcomes[-1]) == (0, "ignored", 0)


def test_source_that_stops_before_it_reads_owned_sends_no_address() -> None:
    """A broker that shuts down sends none either: its disabled channel drops the Owned record. Its clients look up."""
    ignored = (("transfer", 1), ("deliver", 0), ("send", 0, 0), ("process", 0, 0), ("close_ledger", 0, 0))
    stopped = (*ignored, *HAND_OVER[:4], ("deliver", 1), ("crash", 0), ("lookup", 0, 0, 1))
    again = (("connect", 0, 0), *RECONNECT[3:], *STORE)
    assert done(ONE, *stopped, *again).topics[0].log == (Entry(0, 0),)


@pytest.mark.parametrize(
    ("variant", "redirected"),
    [("V1a", (("disconnect", 0, 0),)), ("V4", (("publish", 0), ("deliver", 0), ("disconnect", 0, 0)))],
)
def test_destination_that_has_not_read_the_channel_rejects_redirected_clients(variant: Any, redirected: Any) -> None:
    """In V1a and V4 nothing makes the source wait until the destination has read a record: the client looks up."""
    cfg = ONE._replace(variant=variant)
    steps = (*CLOSED, *redirected, ("receive", 0, 0), ("connect", 0, 0), ("admit", 0, 0))
    state, outcomes = ran(cfg, *steps)
    assert isinstance(outcomes[-1], Failed)
    assert (state.brokers[1].view, state.topics[0].clients[0].phase) == (0, "lookup")


# ---- ignored sends are a suffix ------------------------------------------------------------------------


@pytest.mark.parametrize("deduplication", [False, True])
def test_accepting_after_ignoring_reorders_or_loses(deduplication: bool) -> None:
    """The last completed write reopens a closing topic: message 1 is ignored, message 2 is accepted."""
    cfg = ONE._replace(window=3, drained_topic_reopens=True, deduplication=deduplication)
    steps = (
        *[("send", 0, 0)] * 3,
        ("process", 0, 0),
        ("transfer", 1),
        ("deliver", 0),
        ("process", 0, 0),
        ("confirm", 0, 0),
        ("process", 0, 0),
        ("confirm", 0, 0),
        *[("receive", 0, 0)] * 2,
    )
    state, outcomes = ran(cfg, *steps)
    assert [outcomes[6], outcomes[8]] == ["ignored", "added"]
    assert state.topics[0].log == (Entry(0, 0), Entry(0, 2))
    assert state.topics[0].clients[0].phase == "lookup", "a receipt beyond the oldest message ends the connection"
    moved = (("crash", 0), ("override", 1), ("deliver", 1), ("deliver", 1), ("lookup", 0, 0, 1), ("connect", 0, 0))
    resent = (*steps, *moved, ("begin_load", 0, 1), ("open_topic", 0, 1, 0), *RECONNECT[5:], ("process", 0, 0))
    assert ran(cfg, *resent)[1][-1] == ("duplicate" if deduplication else "added"), "a duplicate is lost"


# ---- crashes -------------------------------------------------------------------------------------------

CLOSED: tuple[Any, ...] = (("transfer", 1), ("deliver", 0), ("close_ledger", 0, 0))


@pytest.mark.parametrize(
    ("steps", "crashed", "owner"),
    [
        ((), 0, 2),
        ((("transfer", 1), ("deliver", 0)), 0, 2),
        ((("transfer", 1), ("deliver", 0)), 1, 0),
        ((*CLOSED, ("publish", 0)), 0, 2),
        ((*CLOSED, ("publish", 0)), 1, 2),
        ((*CLOSED, ("publish", 0), ("deliver", 1), ("deliver", 1), ("publish", 1)), 1, 2),
    ],
)
def test_override_ends_every_transfer_with_a_dead_side(steps: Any, crashed: int, owner: int) -> None:
    state = done(ONE, *steps, ("crash", crashed), ("override", owner))
    assert state.records[-1].dst == owner
    assert state.records[-1].state == "owned"


def test_variant_v3_stores_a_message_twice_without_deduplication() -> None:
    """A send during the transfer ends the session at the source, before the source confirms an earlier send."""
    sends = ("send", 0, 0), ("process", 0, 0), ("send", 0, 0), ("transfer", 1), ("deliver", 0), ("process", 0, 0)
    moves = ("deliver", 1), ("close_ledger", 0, 0), ("publish", 0), ("deliver", 0), ("receive", 0, 0), ("deliver", 1)
    again = ("lookup", 0, 0, 0), ("connect", 0, 0), ("publish", 1), ("deliver", 1), *RECONNECT[3:]
    state = done(ONE._replace(variant="V3"), *sends, ("confirm", 0, 0), *moves, *again, *STORE[:2])
    assert state.topics[0].log == (Entry(0, 0), Entry(0, 0))


def test_owner_survives_the_crash_of_the_source() -> None:
    steps = (*CLOSED, ("publish", 0), ("deliver", 1), ("deliver", 1), ("publish", 1), ("crash", 0))
    assert isinstance(ran(ONE, *steps, ("override", 2))[1][-1], Refused)


def test_first_record_wins_when_override_and_destination_race() -> None:
    raced = (*CLOSED, ("publish", 0), ("crash", 0), ("deliver", 1), ("deliver", 1))
    assert ran(ONE, *raced, ("override", 2), ("publish", 1))[1][-1] is False
    assert isinstance(ran(ONE, *raced, ("publish", 1), ("override", 2))[1][-1], Refused)


def test_recovery_may_keep_an_unconfirmed_entry_of_a_dead_source() -> None:
    """Without deduplication the message is then stored twice; with it the resend is recognised."""
    steps = (("send", 0, 0), ("process", 0, 0), ("crash", 0), ("override", 1), ("deliver", 1), ("lookup", 0, 0, 1))
    again = (("connect", 0, 0), *RECONNECT[3:4], ("open_topic", 0, 1, 1), *RECONNECT[5:], ("process", 0, 0))
    assert ran(ONE, *steps, *again)[1][-1] == "added"
    assert ran(ONE._replace(deduplication=True), *steps, *again)[1][-1] == "duplicate"


def test_override_to_the_source_leaves_half_closed_topics() -> None:
    """With the shipped rule, a forced Owned of the source closes nothing: clients stay at a topic that ignores them."""
    back = (*CLOSED, ("override_stuck", 0), ("deliver", 0), ("disconnect", 0, 0))
    assert ran(ONE, *back)[1][-1] == 0
    assert isinstance(ran(ONE._replace(stale_topics_closed_on="owner_names_source"), *back)[1][-1], Refused)


def test_old_instance_s_clean_up_removes_a_new_topic() -> None:
    back = (*CLOSED, ("override_stuck", 0), ("deliver", 0), ("disconnect", 0, 0), ("receive", 0, 0), ("connect", 0, 0))
    again = (*back, ("begin_load", 0, 0), ("open_topic", 0, 0, 0), ("clean_up", 0, 0))
    assert done(ONE, *again).topics[0].objects[0] is not None
    assert ran(ONE._replace(removal_compares_instance=False), *again)[0].topics[0].objects[0] is None


# ---- shipped rules that leave clients behind or fence too early ----------------------------------------


def test_source_that_misses_owned_still_closes_its_topic() -> None:
    """The bundle moves on to broker 2 while the source reads no record. The source then jumps to the last record.

    With the shipped rule, the source does not close its topic, because that record does not name it as the source.
    """
    moved = (*CLOSED, *HAND_OVER[:4], ("deliver", 1), ("transfer", 2), ("deliver", 1), ("publish", 1), ("jump", 2))
    missed = (*moved, ("publish", 2), ("jump", 0), ("disconnect", 0, 0))
    assert ran(ONE, *missed)[1][-1] == 2
    assert isinstance(ran(ONE._replace(stale_topics_closed_on="owner_names_source"), *missed)[1][-1], Refused)


def test_failed_close_is_retried_and_not_forgotten() -> None:
    """With the shipped rule, the topic leaves the cache with its clients attached, and no record is appended."""
    failed = (("transfer", 1), ("deliver", 0), ("fail_close", 0, 0))
    assert ran(ONE, *failed, ("close_ledger", 0, 0), ("publish", 0))[1][-1] is True
    forgotten = ran(ONE._replace(failed_close_evicts=True), *failed, ("publish", 0))
    assert isinstance(forgotten[1][-1], Refused)
    assert forgotten[0].topics[0].objects[0] is None
    assert forgotten[0].topics[0].clients[0].phase == "ready"


def test_timeout_of_the_close_does_not_release_an_open_ledger() -> None:
    early = (("transfer", 1), ("deliver", 0), ("close_timeout", 0))
    assert ran(ONE, *early)[0].records[-1].state == "releasing"
    assert broken(ONE._replace(close_timeout_publishes=True), *early) == {"source_releases_after_ledgers_are_closed"}


def test_destination_without_registration_does_not_load_early() -> None:
    """With the shipped rule, the destination loads while the source still serves. Only fencing protects the log."""
    begun = (("transfer", 1), ("deliver", 1), ("break_connection", 0, 0), ("lookup", 0, 0, 0), ("lose_session", 1))
    moved = (("deliver", 0), ("receive", 0, 0), ("lookup", 0, 0, 0), ("connect", 0, 0))
    steps = (*begun[:2], ("deliver", 0), *begun[2:], *moved, ("begin_load", 0, 1), ("open_topic", 0, 1, 0))
    assert broken(ONE, *steps) == set()
    early = {"topic_is_opened_by_its_owner", "load_fences_only_after_override"}
    assert broken(ONE._replace(unregistered_uses_view=True), *steps) & early


# ---- two owners ----------------------------------------------------------------------------------------

TWO = Config(producers=1, consumers=1)
#: Broker 1 takes over from broker 0, which has lost its session and serves the producer; the consumer moves.
TAKEN_OVER: tuple[Any, ...] = (
    ("lose_session", 0),
    ("override", 1),
    ("deliver", 1),
    ("break_connection", 0, 1),
    ("lookup", 0, 1, 1),
    ("connect", 0, 1),
    ("begin_load", 0, 1),
    ("open_topic", 0, 1, 0),
)


def broken(cfg: Config, *steps: Any) -> set[str]:
    """Returns the properties that some steps violate, of each step the first."""
    found = set()
    pair = Pair(Target(SUBJECT, cfg, model_only=True))
    for name, *arguments in steps:
        difference = pair.step(Call(name, tuple(arguments)))
        found |= {difference.cause.what} if difference is not None else set()
    return found


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [("refresh", set()), ("shutdown", set()), ("stale", {"broker_reads_channel_before_it_opens_topic"})],
)
def test_stale_owner_after_session_loss(rule: Any, outcome: set[str]) -> None:
    """Broker 0 loads the topic again after broker 1 took it over (apache/pulsar#24478, open).

    A refresh of the view prevents this, and so does the session-expired policy `shutdown`.
    """
    failed = (("send", 0, 0), ("process", 0, 0), ("confirm", 0, 0), ("register", 0), ("receive", 0, 0))
    again = (("lookup", 0, 0, 0), ("connect", 0, 0), ("begin_load", 0, 0), ("open_topic", 0, 0, 0))
    steps = (*TAKEN_OVER, *failed, *again)
    assert broken(TWO._replace(session_loss=rule), *steps) == outcome


def test_confirmation_after_recovery_loses_a_message() -> None:
    """apache/pulsar#24722: the new owner's recovery does not find the entry, and the old owner gets its quorum later."""
    steps = (("send", 0, 0), ("process", 0, 0), *TAKEN_OVER, ("confirm", 0, 0), ("receive", 0, 0))
    assert broken(TWO, *steps) == set()
    assert broken(TWO._replace(recovery_seals_ledger=False), *steps) == {"receipted_message_is_in_log"}


# ---- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"variant": "V5"}, "must be one of V0, V1a, V1b, V2, V3, V4"),
        ({"brokers": 1}, "bundle_transfer.brokers is 1, must be integer from 2 to 4"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        bundle_transfer.configure(settings)


def test_failed_address_is_used_once() -> None:
    steps = (*CLOSED, *HAND_OVER, ("disconnect", 0, 0), ("receive", 0, 0), ("crash", 1), ("connect", 0, 0))
    assert isinstance(ran(ONE, *steps)[1][-1], Failed)
    assert ran(ONE, *steps)[0].topics[0].clients[0].phase == "lookup"
    pinned = find_profile(SUBJECT, "pulsar-2026-05")._replace(producers=1, consumers=0)
    assert ran(pinned, *steps)[0].topics[0].clients[0].phase == "directed"


# ---- variants ------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("variant", "messages", "states"),
    [("V1a", 2, 9_592), ("V1b", 2, 9_417), ("V2", 2, 11_428), ("V3", 1, 3_128), ("V4", 2, 3_348)],
)
def test_variant_breaks_no_property_and_strands_no_client(variant: str, messages: int, states: int) -> None:
    """The explorer visits the whole scope smoke. V3 resends twice, so the bound of entries permits one message only."""
    scope = SUBJECT.scopes["smoke"]
    found = explore(Space(SUBJECT, variant, replace(scope, bounds={**scope.bounds, "messages": messages})))
    assert (found.distinct_states, found.violations, found.lassos) == (states, [], [])


@pytest.mark.nightly
def test_broker_that_shuts_down_on_session_loss_breaks_no_property() -> None:
    """The explorer visits the whole scope session with the session-expired policy `shutdown`."""
    found = explore(find_space(SUBJECT, "session", "session-loss-shuts-down"))
    assert (found.distinct_states, found.violations, found.lassos) == (1_924, [], [])


@pytest.mark.nightly
@pytest.mark.parametrize(("freed", "states"), [((), 298), (("break_connection",), 1_568)])
def test_shipped_rules_end_at_a_fenced_topic(freed: tuple[str, ...], states: int) -> None:
    """After an override to the source, only a broken connection or a crash frees the clients of its fenced topic.

    The scope session has neither.
    """
    scope = SUBJECT.scopes["session"]
    found = explore(Space(SUBJECT, "pulsar-2026-09", replace(scope, actions=(*scope.actions, *freed))))
    assert found.distinct_states == states
    assert {each.broken_property for each in found.violations} == {"stale_topic_can_be_closed"}
