"""Upgrades and downgrades with batched logs: stateful tests, worked examples, and the effects of wrong steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.explore.search import explore, find_space
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.txn_rollout import TxnRollout
from model import txn_rollout as m
from model.machine import BadValue, Failed, Refused
from model.txn_rollout import Config, Entry, State, txn_rollout
from tests.conftest import stepped

SUBJECT = find_subject("txn_rollout")

TestTxnRollout = stateful_test(SUBJECT)

ONE = Config(brokers=2, stores=1)
UPGRADE: tuple[Any, ...] = (("upgrade_broker", 0), ("upgrade_broker", 1), ("set_flag", 0, True), ("set_flag", 1, True))
#: The first steps of a downgrade. As we read the proposal, it records the last ledgers before stores are reopened.
STOP: tuple[Any, ...] = (("turn_flags_off",), ("reopen_stores",), ("record_last_ledgers",))


def ran(cfg: Config, *steps: Any) -> tuple[State, list[Any]]:
    """Returns the state after some steps, and their outcomes. Under the reference, the implementation must agree."""
    state, outcomes = stepped(txn_rollout, cfg, steps, None, TxnRollout)
    return state, outcomes[1:]


def end(cfg: Config, *steps: Any) -> Any:
    """Returns the outcome of the last step."""
    return ran(cfg, *steps)[1][-1]


def broken(profile: str, scope: str = "smoke", **settings: Any) -> tuple[set[str], set[str]]:
    """Returns the safety properties and the liveness properties that fail in a scope under a profile."""
    space = find_space(SUBJECT, scope, profile)
    space = type(space)(SUBJECT, profile, replace(space.scope, settings={**space.scope.settings, **settings}))
    found = explore(space)
    return {v.broken_property or "" for v in found.violations}, {lasso.name for lasso in found.lassos}


# ---- upgrade ------------------------------------------------------------------------------------------


def test_upgrade_by_the_steps() -> None:
    state, outcomes = ran(
        ONE, *UPGRADE, ("open_store", 0, 0), ("write_records", 0, 2), ("close_store", 0), ("open_store", 0, 1)
    )
    assert outcomes[-3:] == [1, None, 2]
    assert state.stores[0].batching
    assert [e for ledger in state.stores[0].ledgers for e in ledger.entries] == [Entry(2, 2, 0)]


def test_flag_enabled_with_one_old_broker() -> None:
    """Why operators follow the steps: otherwise a store moves to the old broker, which cannot read its batches."""
    moved = (
        ("upgrade_broker", 0),
        ("set_flag", 0, True),
        ("open_store", 0, 0),
        ("write_records", 0, 1),
        ("restart_broker", 0),
        ("open_store", 0, 1),
    )
    assert isinstance(end(ONE._replace(operators_follow_steps=False), *moved), Failed)
    assert ran(ONE, *moved)[1][1] == Refused("illegal_state", "a broker is old")
    assert "old_broker_never_reads_batch" in broken("operators-skip-steps")[0]


def test_plain_entries_are_read_by_old_and_new_brokers() -> None:
    state, outcomes = ran(
        ONE,
        ("open_store", 0, 1),
        ("write_records", 0, 2),
        ("upgrade_broker", 0),
        ("close_store", 0),
        ("open_store", 0, 0),
        ("write_records", 0, 1),
        ("close_store", 0),
        ("open_store", 0, 1),
    )
    assert (outcomes[4], outcomes[-1]) == (2, 3)
    assert not any(e.batch for ledger in state.stores[0].ledgers for e in ledger.entries)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("then", [True, False])
def test_new_broker_reads_any_entry_whatever_its_flag(first: bool, then: bool) -> None:
    """The log has a batch and plain entries. The store is reopened with the flag `then`."""
    steps = (
        *UPGRADE[:2],
        ("set_flag", 0, first),
        ("open_store", 0, 0),
        ("write_records", 0, 2),
        ("set_flag", 0, not first),
        ("reopen_stores",),
        ("write_records", 0, 2),
        ("set_flag", 0, then),
        ("reopen_stores",),
    )
    assert end(ONE, *steps) == 4


def test_open_store_keeps_batching_mode() -> None:
    opened = (*UPGRADE, ("open_store", 0, 0), ("turn_flags_off",))
    assert end(ONE, *opened, ("write_records", 0, 3)) == 1
    assert end(ONE, *opened, ("reopen_stores",), ("write_records", 0, 3)) == 3
    assert end(m.at_once.config._replace(stores=1), *opened, ("write_records", 0, 3)) == 3
    assert broken("flag-takes-effect-at-once")[0] == {"open_store_keeps_batching_mode"}


# ---- downgrade ----------------------------------------------------------------------------------------


def test_downgrade_by_the_steps() -> None:
    state, outcomes = ran(
        ONE,
        *UPGRADE,
        ("open_store", 0, 0),
        ("write_records", 0, 2),
        *STOP,
        ("reopen_stores",),
        ("end_transaction", 0, 0),
        ("write_records", 0, 1),
        ("trim",),
        ("downgrade_broker", 0),
        ("end_transaction", 0, 0),
        ("downgrade_broker", 0),
        ("trim",),
        ("downgrade_broker", 0),
        ("open_store", 0, 0),
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert len(refused) == 2, "while a transaction of the batch is open, and then while its ledger is there"
    assert outcomes[-1] == 1, "the old broker finds the plain entry"
    assert not state.brokers[0].new


def test_long_transaction_pins_the_log() -> None:
    pinned = (
        *UPGRADE,
        ("open_store", 0, 0),
        ("write_records", 0, 2),
        *STOP,
        ("end_transaction", 0, 0),
        ("write_records", 0, 1),
    )
    state, outcomes = ran(ONE, *pinned, ("roll_ledger", 0), ("end_transaction", 0, 1), ("trim",))
    assert outcomes[-2:] == [0, 0]
    assert [len(ledger.entries) for ledger in state.stores[0].ledgers] == [1, 0, 0]
    assert end(ONE, *pinned, ("roll_ledger", 0), ("end_transactions",), ("trim",)) == 2


def test_last_ledger_recorded_too_early() -> None:
    """Note 2 of the proposal: a store that is still open with batching writes another batch, in a later ledger."""
    early = (
        *UPGRADE,
        ("open_store", 0, 0),
        ("write_records", 0, 1),
        ("turn_flags_off",),
        ("record_last_ledgers",),
        ("end_transactions",),
        ("write_records", 0, 1),
        ("reopen_stores",),
        ("trim",),
        ("downgrade_broker", 0),
    )
    assert isinstance(end(ONE, *early), Refused)
    assert ran(ONE, *early)[1][7] == Refused("illegal_state", "a store writes batches until it is reopened")


def test_recording_too_early_needs_a_rollover() -> None:
    """Without a rollover, all batches of a store that is not reopened are in the recorded ledger."""
    properties, lassos = broken("pulsar-2026-07")
    assert properties == {
        "old_broker_never_reads_batch",
        "batches_exist_only_with_new_brokers",
        "no_batch_follows_last_batched_ledger",
    }
    assert lassos == set()
    assert broken("pulsar-2026-07", "stores") == (set(), set())


def test_recording_early_is_harmless_if_flag_takes_effect_at_once() -> None:
    """The proposal's order is right if an open store obeys a change of the flag at once."""
    properties, _ = broken("flag-takes-effect-at-once", last_ledgers_recorded="after_flags_off")
    assert properties == {"open_store_keeps_batching_mode"}


def test_downgrade_that_never_terminates() -> None:
    """Up to 4.0: with batching off, no record of a batch can be deleted. Every reopening recovers its transactions."""
    cfg = m.older.config._replace(stores=1)
    ended = (*UPGRADE, ("open_store", 0, 0), ("write_records", 0, 2), ("end_transaction", 0, 0), *STOP)
    around = (("end_transactions",), ("trim",), ("reopen_stores",))
    state, outcomes = ran(cfg, *ended, *around, *around)
    assert outcomes[-7:] == [1, 2, 0, 2, 2, 0, 2], "two transactions end, again and again: one of them had ended before"
    assert not m.may_downgrade(state)
    properties, lassos = broken("pulsar-4.0")
    assert lassos == {"downgrade_terminates"}
    assert properties >= {"ended_transaction_is_not_reopened", "ended_transaction_is_deleted"}


@pytest.mark.parametrize("settings", [{"batch_index_deletion_needs_batching": False}, {"batch_index_acks": True}])
def test_either_remedy_terminates_the_downgrade(settings: dict[str, Any]) -> None:
    properties, lassos = broken("pulsar-4.0", last_ledgers_recorded="after_stores_reopened", **settings)
    assert (properties, lassos) == (set(), set())


def test_batch_of_one_is_deleted_whole_under_any_rule() -> None:
    cfg = m.older.config._replace(stores=1)
    steps = (*UPGRADE, ("open_store", 0, 0), ("write_records", 0, 1), ("turn_flags_off",), ("reopen_stores",))
    state, outcomes = ran(cfg, *steps, ("end_transaction", 0, 0), ("trim",))
    assert outcomes[-2:] == [0, 1]
    assert state.stores[0].ledgers[0].entries == ()


def test_interrupted_downgrade_starts_again() -> None:
    state, outcomes = ran(
        ONE, *UPGRADE, ("open_store", 0, 0), *STOP, ("roll_ledger", 0), ("reopen_stores",), ("set_flag", 0, True)
    )
    assert m.may_downgrade(ran(ONE, *UPGRADE, ("open_store", 0, 0), *STOP, ("reopen_stores",))[0])
    assert outcomes[-3] == Refused("illegal_state", "the ledger has no undeleted entry")
    assert state.stores[0].last_batched_ledger is None


def test_downgrade_waits_for_the_ledgers_of_all_stores() -> None:
    two = Config(brokers=1, stores=2)
    steps = (
        ("upgrade_broker", 0),
        ("set_flag", 0, True),
        ("open_store", 0, 0),
        ("open_store", 1, 0),
        ("write_records", 1, 2),
        ("turn_flags_off",),
        ("close_store", 0),
        ("open_store", 0, 0),
    )
    assert isinstance(end(two, *steps, ("record_last_ledgers",)), Refused), "the other store still writes batches"
    recorded = (*steps, ("reopen_stores",), ("record_last_ledgers",), ("reopen_stores",), ("trim",))
    assert isinstance(end(two, *recorded, ("downgrade_broker", 0)), Refused)
    assert end(two, *recorded, ("end_transactions",), ("trim",), ("downgrade_broker", 0)) == 2


# ---- bad input ----------------------------------------------------------------------------------------


def test_rejected_steps() -> None:
    for steps, said in (
        ((("downgrade_broker", 0),), "the broker is already old"),
        ((("upgrade_broker", 0), ("upgrade_broker", 0)), "the broker is already new"),
        ((("set_flag", 0, False),), "an old broker has no flag"),
        ((("write_records", 0, 1),), "the store is closed"),
        ((("roll_ledger", 0),), "the store is closed"),
        ((("end_transaction", 0, 0),), "the store is closed"),
        ((("open_store", 0, 0), ("end_transaction", 0, 0)), "there is no such entry"),
        ((("open_store", 0, 0), ("open_store", 0, 1)), "the store is open"),
        ((*UPGRADE, ("record_last_ledgers",)), "a flag is on"),
    ):
        assert end(ONE, *steps).why == said


def test_a_cluster_starts_with_old_brokers_and_closed_empty_stores() -> None:
    log = m.Store(None, False, (m.Ledger(1, ()),), None)
    assert m.start(Config(brokers=1, stores=2)) == State((m.Broker(new=False, flag=False),), (log, log))


def test_batch_log_stat_is_that_of_pip_160() -> None:
    """A store that was opened before the flag was enabled does not batch yet, so the upgrade is not complete."""
    cfg = Config()
    s = State((m.Broker(True, True), m.Broker(True, False)), m.start(cfg).stores)
    assert m.batch_log_stat(s, 0) == {"txnTcBatchLogEnabled": True, "coodinatorArray": []}
    opened = s._replace(stores=(s.stores[0]._replace(owner=0), s.stores[1]._replace(owner=0, batching=True)))
    stat = {"txnTcBatchLogEnabled": True, "coodinatorArray": [{"0": False}, {"1": True}]}
    assert m.batch_log_stat(opened, 0) == stat
    assert m.batch_log_stat(opened, 1) == {"txnTcBatchLogEnabled": False, "coodinatorArray": []}


@pytest.mark.parametrize(
    ("action", "arguments", "said"),
    [
        ("open_store", {"store": 2, "broker": 0}, "open_store.store is 2, must be integer from 0, below the setting"),
        ("set_flag", {"broker": 5, "on": True}, "set_flag.broker is 5"),
        ("set_flag", {"broker": 0, "on": 1}, "set_flag.on is 1, must be true or false"),
        ("write_records", {"store": 0, "records": 0}, "write_records.records is 0, must be integer of 1 or more"),
        ("end_transaction", {"store": 0, "entry": -1}, "end_transaction.entry is -1"),
        ("trim", {"store": 0}, "trim has no argument store"),
    ],
)
def test_invalid_arguments(action: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        txn_rollout.actions[action].arguments(arguments, m.reference.config)
    assert said in str(problem.value)
