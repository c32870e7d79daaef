"""The ownership channel: stateful test, worked examples of PIP-192, conflict resolution, effects of shipped rules."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.explore.search import explore, find_space
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.ownership_channel import OwnershipChannel
from model.machine import Failed, Refused
from model.ownership_channel import machine as m
from model.ownership_channel.records import BLANK, MAX_VERSION, MIN_VERSION, Config, Data, keeps_left
from model.ownership_channel.state import State, canonical, ownership_channel
from tests.conftest import RECORDINGS, stepped

TestOwnershipChannel = stateful_test(find_subject("ownership_channel"))

TOPIC = Config(brokers=3)
STORE = Config(brokers=3, storage="metadata_store")
SHIPPED = m.shipped.config

Step = tuple[Any, ...]


def ran(cfg: Config, *steps: Step) -> tuple[State, list[Any]]:
    """Returns the state after some steps, none of which may be refused, and their outcomes.

    Under the reference, the implementation must agree.
    """
    state, outcomes = stepped(ownership_channel, cfg, steps, None, OwnershipChannel)
    assert [(step, each) for step, each in zip(steps, outcomes[1:], strict=True) if isinstance(each, Refused)] == []
    return state, outcomes[1:]


def delivered(cfg: Config, s: State) -> State:
    """Returns the state after every running broker has read all records."""
    for broker, at in enumerate(s.brokers):
        for _ in range(len(s.log) - at.read if at.is_up else 0):
            s, _ = ownership_channel.step(cfg, s, "read", (broker,))
        for bundle in range(cfg.bundles if at.is_up else 0):
            s, _ = ownership_channel.step(cfg, s, "notify", (broker, bundle))
    return s


def quiet(cfg: Config, s: State) -> State:
    """Returns the state after all records are read and all handlers have finished, so that no broker acts by itself."""
    s = delivered(cfg, s)
    while any(at.tasks for at in s.brokers):
        busy = next(broker for broker, at in enumerate(s.brokers) if at.tasks)
        s = delivered(cfg, ownership_channel.step(cfg, s, "finish", (busy, 0))[0])
    return s


def after(cfg: Config, s: State, *steps: Step) -> State:
    """Returns the state after some steps. After each step, the brokers act until the state is quiet."""
    for name, *arguments in steps:
        s, outcome = ownership_channel.step(cfg, s, name, tuple(arguments))
        assert not isinstance(outcome, Refused), (name, arguments, outcome)
        s = quiet(cfg, s)
    return s


def settled(cfg: Config, *steps: Step) -> Data | None:
    """Returns the record of bundle 0 after some steps, each until the state is quiet."""
    return after(cfg, ownership_channel.start(cfg), *steps).settled[0]


# ---- requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cfg", [TOPIC, STORE], ids=["topic", "store"])
def test_states_of_a_transfer(cfg: Config) -> None:
    """The versions count the states: Assigning and Owned, then Releasing, Assigning and Owned."""
    assert settled(cfg, ("lookup", 2, 0, 0)) == Data("Owned", 0, None, 2)
    assert settled(cfg, ("lookup", 2, 0, 0), ("unload", 0, 0, 1, False)) == Data("Owned", 1, 0, 5)


@pytest.mark.parametrize("cfg", [TOPIC, STORE], ids=["topic", "store"])
def test_unload_without_destination_frees_the_bundle(cfg: Config) -> None:
    freed = ("lookup", 2, 0, 0), ("unload", 1, 0, None, False)
    assert settled(cfg, *freed) == Data("Free", None, 0, 4)
    assert settled(cfg, *freed, ("lookup", 0, 0, 1)) == Data("Owned", 1, None, 6)


def test_removed_bundle_has_no_record() -> None:
    removed = ("lookup", 0, 0, 0), ("unload", 0, 0, None, True)
    assert settled(TOPIC, *removed) == Data("Init", None, 0, 5, True)
    assert settled(TOPIC._replace(removal="tombstone"), *removed) is None


def test_split() -> None:
    cfg = Config(brokers=2, bundles=3)
    s = after(cfg, ownership_channel.start(cfg), ("lookup", 1, 0, 1), ("split", 1, 0))
    assert s.settled == (Data("Init", None, 1, 5, True), Data("Owned", 1), Data("Owned", 1))
    assert ownership_channel.step(cfg, s, "lookup", (0, 0, 0))[1].kind == "illegal_argument"
    assert ownership_channel.step(cfg, s, "lookup", (0, 2, 0))[1] == 1


def test_proposal_lets_the_destination_acknowledge_first() -> None:
    cfg = m.proposal.config
    s = after(cfg, ownership_channel.start(cfg), ("lookup", 0, 0, 0))
    s, version = ownership_channel.step(cfg, s, "unload", (0, 0, 1, False))
    assert (version, s.settled[0]) == (3, Data("Assigning", 1, 0, 3))
    s = delivered(cfg, s)
    s, answer = ownership_channel.step(cfg, s, "finish", (1, 0))
    assert answer == "Releasing"
    s = delivered(cfg, s)
    s, answer = ownership_channel.step(cfg, s, "finish", (0, 0))
    assert (answer, s.settled[0]) == ("Owned", Data("Owned", 1, 0, 5))


def test_two_lookups_at_once_end_with_one_owner() -> None:
    """Both brokers assign version 1; the first record in the log wins, and both lookups end."""
    s, _ = ran(TOPIC, ("lookup", 0, 0, 0), ("lookup", 1, 0, 1))
    assert [at.lookups[0] for at in s.brokers] == [True, True, False]
    s = quiet(TOPIC, s)
    assert s.settled[0] == Data("Owned", 0, None, 2)
    assert not any(at.lookups[0] for at in s.brokers)


def test_answers_during_a_transfer() -> None:
    """At the destination, a lookup waits. Every other broker answers it with the destination at once."""
    s = after(TOPIC, ownership_channel.start(TOPIC), ("lookup", 0, 0, 0))
    s, _ = ownership_channel.step(TOPIC, s, "unload", (2, 0, 1, False))
    s = delivered(TOPIC, s)
    assert [ownership_channel.step(TOPIC, s, "lookup", (b, 0, 0))[1] for b in (0, 1, 2)] == [1, None, 1]


def test_coalesced_notification_skips_records() -> None:
    s = after(STORE, ownership_channel.start(STORE), ("lookup", 0, 0, 0))
    for name, *arguments in (("unload", 0, 0, 1, False), ("finish", 0, 0), ("notify", 1, 0), ("finish", 1, 0)):
        s, _ = ownership_channel.step(STORE, s, name, tuple(arguments))
    assert s.brokers[2].view[0] == Data("Owned", 0, None, 2)
    s, is_new = ownership_channel.step(STORE, s, "notify", (2, 0))
    assert (is_new, s.brokers[2].view[0]) == (True, Data("Owned", 1, 0, 5))


def with_view(cfg: Config, s: State, *brokers: int) -> State:
    """Returns the state after some brokers have read the newest record of bundle 0, and no record before it."""
    for broker in brokers:
        s, _ = ownership_channel.step(cfg, s, "jump", (broker,))
        s, _ = ownership_channel.step(cfg, s, "notify", (broker, 0))
    return s


@pytest.mark.parametrize("cfg", [TOPIC, STORE], ids=["topic", "store"])
def test_unload_whose_record_is_rejected_waits_for_its_time_out(cfg: Config) -> None:
    """The writer is not informed: broker 2 has not seen that the bundle was freed and assigned again."""
    s = after(cfg, ownership_channel.start(cfg), ("lookup", 0, 0, 0))
    for steps in (("unload", 0, 0, None, False), ("finish", 0, 0)), (("lookup", 0, 0, 1),), (("finish", 1, 0),):
        for name, *arguments in steps:
            s = with_view(cfg, ownership_channel.step(cfg, s, name, tuple(arguments))[0], 0, 1)
    s, version = ownership_channel.step(cfg, s, "unload", (2, 0, 1, False))
    s = quiet(cfg, with_view(cfg, s, 2))
    assert (version, s.settled[0], s.brokers[2].view) == (3, Data("Owned", 1, None, 6), s.settled)
    assert s.brokers[2].unloads == (True,)
    assert not isinstance(ownership_channel.step(cfg, s, "time_out_unload", (2, 0))[1], Refused)


# ---- recovery -------------------------------------------------------------------------------------------

DEAD: tuple[Step, ...] = (("crash", 1), ("expire", 1), ("start_clean_up", 0, 1, False))


@pytest.mark.parametrize("cfg", [TOPIC, STORE], ids=["topic", "store"])
def test_bundle_of_dead_broker_is_overridden(cfg: Config) -> None:
    owned = ("lookup", 0, 0, 1), *DEAD
    assert settled(cfg, *owned, ("override", 0, 1, 0, 2)) == Data("Owned", 2, 1, 3, True)


def test_bundle_is_free_if_no_broker_is_left() -> None:
    cfg = Config(brokers=1)
    owned = ("lookup", 0, 0, 0), ("disable", 0), ("override", 0, 0, 0, None)
    assert settled(cfg, *owned) == Data("Init", None, 0, 4, True)


@pytest.mark.parametrize(
    ("shipped", "scheduled", "version"), [(TOPIC, 0, 2), (m.release_3_1.config, 1, None)], ids=["reference", "3.1.0"]
)
def test_former_owner_that_left_blocks_the_monitor_before_23064(
    shipped: Config, scheduled: int, version: int | None
) -> None:
    """No clean-up overrides the Owned record that names the former owner as source."""
    cfg = shipped._replace(brokers=3, bundles=2)
    s = after(cfg, ownership_channel.start(cfg), ("lookup", 0, 0, 1), ("unload", 0, 0, 2, False), *DEAD)
    assert (s.settled[0], s.brokers[0].clean_ups) == (Data("Owned", 2, 1, 5), ())
    s, _ = ownership_channel.step(cfg, s, "lookup", (0, 1, 2))
    s, _ = ownership_channel.step(cfg, s, "read", (0,))
    assert (s.brokers[0].view[1], ownership_channel.step(cfg, s, "monitor", ())[1]) == (Data("Assigning", 2), scheduled)
    outcome = ownership_channel.step(cfg, s, "override_stuck", (1, 0))[1]
    assert (None if isinstance(outcome, Refused) else outcome) == version


def test_source_dies_while_the_destination_acknowledges() -> None:
    """The destination's Owned and the leader's override have one version: the first in the log wins."""
    s = after(TOPIC, ownership_channel.start(TOPIC), ("lookup", 0, 0, 1))
    s, _ = ownership_channel.step(TOPIC, s, "unload", (0, 0, 2, False))
    s, _ = ownership_channel.step(TOPIC, delivered(TOPIC, s), "finish", (1, 0))
    s = delivered(TOPIC, s)
    for step in DEAD:
        s, _ = ownership_channel.step(TOPIC, s, step[0], step[1:])
    by_destination, _ = ownership_channel.step(TOPIC, s, "finish", (2, 0))
    by_leader, _ = ownership_channel.step(TOPIC, s, "override", (0, 1, 0, 0))
    assert quiet(TOPIC, ownership_channel.step(TOPIC, by_destination, "override", (0, 1, 0, 0))[0]).settled[0] == Data(
        "Owned", 2, 1, 5
    )
    assert quiet(TOPIC, ownership_channel.step(TOPIC, by_leader, "finish", (2, 0))[0]).settled[0] == Data(
        "Owned", 0, 1, 5, True
    )


def test_false_suspicion_is_cancelled_by_the_registration() -> None:
    owned = ("lookup", 0, 0, 1), ("lose_session", 1)
    s = after(TOPIC, ownership_channel.start(TOPIC), *owned)
    assert [job.target for job in s.brokers[0].clean_ups] == [1]
    assert after(TOPIC, s, ("reconnect", 1)).brokers[0].clean_ups == ()
    assert after(TOPIC, s, ("start_clean_up", 0, 1, True)).brokers[0].clean_ups == ()


def test_leader_without_session_drops_deletions() -> None:
    s = after(TOPIC, ownership_channel.start(TOPIC), ("lose_session", 0), ("crash", 1), ("expire", 1))
    assert s.brokers[0].clean_ups == ()
    assert ownership_channel.step(TOPIC, s, "monitor", ())[1].kind == "not_enabled"


def test_shutdown_moves_bundles_and_retries() -> None:
    """apache/pulsar#26520: an override that loses against a record of the same version is repeated."""
    raced = ("lookup", 0, 0, 1), ("read", 1), ("disable", 1), ("finish", 1, 0)
    for retries, stops in (("none", True), ("all", False)):
        cfg = TOPIC._replace(clean_up_retries=retries)  # type: ignore[arg-type]
        s, _ = ran(cfg, *raced[:-1])
        s, _ = ownership_channel.step(cfg, s, "finish", (1, 0))
        s, _ = ownership_channel.step(cfg, s, "override", (1, 1, 0, 0))
        s = quiet(cfg, s)
        assert s.settled[0] == Data("Owned", 1, None, 2)
        assert isinstance(ownership_channel.step(cfg, s, "stop", (1,))[1], Refused) is not stops
    s = after(TOPIC, s, ("override", 1, 1, 0, 0), ("stop", 1))
    assert s.settled[0] == Data("Owned", 0, 1, 5)


def test_split_bundle_returns_after_its_tombstone() -> None:
    """Broker 1, whose view still has Owned, writes Releasing after the tombstone. The shipped rules accept this."""
    late = (
        ("lookup", 0, 0, 0),
        ("jump", 0),
        ("finish", 0, 0),
        ("jump", 0),
        ("jump", 1),
        ("split", 0, 0),
        ("jump", 0),
        ("finish", 0, 0),
        ("finish", 0, 0),
        ("jump", 0),
        ("finish", 0, 0),
        ("unload", 1, 0, 1, False),
    )
    for cfg, state in ((SHIPPED, "Releasing"), (m.reference.config, "Init")):
        s, _ = ran(cfg._replace(brokers=2, bundles=3), *late)
        assert s.is_split[0]
        assert s.settled[0] is not None
        assert s.settled[0].state == state


@pytest.mark.nightly
@pytest.mark.parametrize(("policy", "is_broken"), [("reconnect", True), ("shutdown", False)])
def test_shutdown_on_session_loss_repairs_stale_answers(policy: str, is_broken: bool) -> None:
    """apache/pulsar#24478: with the session-expired policy `shutdown`, no view is stale."""
    space = find_space(find_subject("ownership_channel"), "stored")
    settings = {**space.scope.settings, "stale_view_answers": True, "session_expired_policy": policy}
    space = type(space)(space.subject, "reference", replace(space.scope, settings=settings))
    broken = {v.broken_property for v in explore(space, implementation=False).violations}
    assert broken == ({"timed_out_lookup_is_not_answered_from_stale_view"} if is_broken else set())


@pytest.mark.parametrize(
    ("storage", "removal", "record"),
    [
        ("system_topic", "tombstone", Data("Owned", 2, 1, 4, True)),
        ("metadata_store", "tombstone", None),
        ("system_topic", "init_record", Data("Init", None, 1, 5, True)),
        ("metadata_store", "init_record", Data("Init", None, 1, 5, True)),
    ],
)
def test_override_races_with_removal(storage: Any, removal: Any, record: Data | None) -> None:
    """The leader overrides a stuck release of a removed bundle. After a tombstone, the topic accepts any version."""
    cfg = TOPIC._replace(storage=storage, removal=removal)
    s = after(cfg, ownership_channel.start(cfg), ("lookup", 0, 0, 1))
    s = with_view(cfg, ownership_channel.step(cfg, s, "unload", (1, 0, None, True))[0], 0, 1)
    for _ in range(2):
        s = with_view(cfg, ownership_channel.step(cfg, s, "finish", (1, 0))[0], 1)
    s, version = ownership_channel.step(cfg, s, "override_stuck", (0, 2))
    assert (version, s.settled[0]) == (4, record)


def test_overridden_split_is_done_beside_the_new_owner() -> None:
    """Broker 1 lost its session while it split the bundle. Its handler splits the bundle that broker 0 owns by then."""
    steps = (
        ("lookup", 1, 0, 1),
        ("jump", 1),
        ("finish", 1, 0),
        ("jump", 1),
        ("split", 1, 0),
        ("jump", 1),
        ("jump", 0),
        ("lose_session", 1),
        ("start_clean_up", 0, 1, False),
        ("lose_session", 0),
        ("override", 0, 1, 0, None),
        ("reconnect", 0),
        ("jump", 0),
        ("lookup", 0, 0, 0),
        ("jump", 0),
        ("finish", 0, 0),
        ("reconnect", 1),
        ("jump", 1),
        ("finish", 1, 0),
    )
    for cfg in (m.reference.config, SHIPPED):
        s, _ = ran(cfg._replace(brokers=2, bundles=3), *steps)
        assert s.settled == (Data("Owned", 0, None, 6), Data("Owned", 1), Data("Owned", 1))
        assert s.is_split[0]


# ---- conflict resolution --------------------------------------------------------------------------------

OWNED = Data("Owned", 0, 1, 5)


@pytest.mark.parametrize(
    ("storage", "left", "right", "kept"),
    [
        ("system_topic", OWNED, None, False),
        ("system_topic", OWNED, Data("Releasing", 1, 0, 5, True), True),
        ("system_topic", OWNED, Data("Releasing", 1, 0, 6), False),
        ("system_topic", OWNED, Data("Assigning", 1, 0, 6), True),
        ("system_topic", OWNED, Data("Assigning", 1, 0, 7), False),  # a gap skips all other checks
        ("metadata_store", OWNED, Data("Assigning", 1, 0, 7), True),
        ("metadata_store", OWNED, Data("Free", None, None, 6, True), False),
        ("system_topic", OWNED, Data("Releasing", 0, 0, 6), True),
        ("system_topic", Data("Owned", 0, None, MAX_VERSION), Data("Releasing", 1, 0, MIN_VERSION), False),
        ("metadata_store", None, Data("Owned", 1, 0, 1), False),
        ("metadata_store", None, Data("Assigning", 1, None, 2, True), True),  # force does not help
        ("system_topic", None, Data("Splitting", None, 0, 9), False),
        ("system_topic", Data("Releasing", None, 0, 3), Data("Assigning", 1, None, 4), True),
        ("system_topic", Data("Free", None, 0, 3), Data("Assigning", BLANK, None, 4), True),
        ("system_topic", Data("Owned", None, 0, 3), Data("Splitting", None, 0, 4), True),
    ],
)
def test_which_record_is_kept(storage: str, left: Data | None, right: Data | None, kept: bool) -> None:
    assert keeps_left(TOPIC, storage, True, left, right) is kept


def test_recorded_version_fails_on_owned_without_destination() -> None:
    arguments = ("system_topic", True, Data("Owned", None, 0, 3), Data("Splitting", None, 0, 4))
    s = ownership_channel.start(SHIPPED)
    assert isinstance(ownership_channel.step(SHIPPED, s, "should_keep_left", arguments)[1], Failed)


def test_canonical_log_begins_at_the_slowest_reader() -> None:
    s, _ = ran(TOPIC, ("lookup", 0, 0, 0), ("read", 0), ("read", 1), ("crash", 2))
    assert (len(s.log), canonical(TOPIC, s).log) == (1, ())


# ---- recorded tables ------------------------------------------------------------------------------------

TABLE = "service_unit_state_transition.csv.gz"


def test_changed_row_does_not_agree(brokerproof: Any, tmp_path: Path) -> None:
    text = gzip.decompress((RECORDINGS / TABLE).read_bytes()).decode()
    path = tmp_path / "service_unit_state_transition.csv"
    path.write_text(text.replace("SystemTopic,Init,Free,true", "SystemTopic,Init,Free,false"))
    ran = brokerproof("replay", path, "--json")
    [difference] = ran.json["differences"]
    assert (ran.code, difference["line"], difference["fields"]) == (1, 3, ["result"])
    assert difference["actual"] == {"valid_transition": "true", "to_in_flight": "false", "to_active": "false"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no_such.csv", "a,b\n1,2\n", "no_such.csv:1: no mapping for the component no_such"),
        (
            "service_unit_state_conflict.csv",
            "a,b\n1,2\n",
            ":1: a table of service_unit_state_conflict needs the columns",
        ),
        ("service_unit_state_conflict.csv", "a,b\n1\n", ":2: a row must have 2 fields"),
        (
            "service_unit_state_conflict.csv",
            "a,keep_left\n1,true\n",
            ":2: operation service_unit_state_conflict: lacks",
        ),
    ],
)
def test_bad_table_is_one_line(name: str, text: str, said: str, brokerproof: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    ran = brokerproof("replay", tmp_path / name)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert said in ran.err
