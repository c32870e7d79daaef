"""Transaction log of a coordinator: stateful tests, worked examples, invalid input, and the rules of releases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.explore.search import explore, find_space
from fuzz.run.stateful import stateful_test
from fuzz.seeding import find_mutant, seed_bug
from fuzz.subject import find_subject
from impl.txn_log.entries import LogEntry, from_wire, to_wire
from impl.txn_log.log import TxnLog
from impl.txn_writer.records import TransactionRecord, is_batched
from model.batch_acks.state import Acks, Partial
from model.machine import BadValue, Failed, Refused
from model.txn_log import machine as m
from model.txn_log.replay import OpenTxn, Recovered, next_entry
from model.txn_log.state import (
    Completion,
    Config,
    Record,
    RecordPosition,
    State,
    Txn,
    closed_cursor,
    deletion_ack_set,
    start,
)
from tests.conftest import stepped

SUBJECT = find_subject("txn_log")

TestTxnLog = stateful_test(SUBJECT)

#: Batches of two records.
TWO = Config(max_records=2)
#: Every record is an entry of its own.
PLAIN = Config(batching=False)
SHIPPED = m.pulsar_2026_07.config._replace(max_records=2)
LATER = m.pulsar_2026_09.config._replace(max_records=2)
PULSAR_4_0 = m.pulsar_4_0.config._replace(batching=True, max_records=2)

NEW: tuple[Any, ...] = ("new_transaction", 100)
DONE = ("complete_write",)


def to(txn: int, status: str) -> tuple[Any, ...]:
    """Returns a status update."""
    return "update_status", txn, status


def commit(txn: int) -> list[tuple[Any, ...]]:
    """Returns both status updates of a commit, in one batch of two, which completes."""
    return [to(txn, "COMMITTING"), to(txn, "COMMITTED"), DONE]


def after(cfg: Config, *steps: tuple[Any, ...], start_at: State | None = None) -> tuple[State, Any]:
    """Returns the state after some actions, and the last outcome. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.txn_log, cfg, steps, start_at, TxnLog)
    return s, outcomes[-1]


def replayed(cfg: Config, s: State) -> tuple[State, Recovered]:
    """Returns the state after a complete replay, and the transactions that the replay recovers."""
    while next_entry(s) is not None:
        s, _ = after(cfg, ("replay_entry",), start_at=s)
    return after(cfg, ("complete_replay",), start_at=s)


def restarted(cfg: Config, s: State, *restart: Any) -> dict[int, str]:
    """Returns the statuses of the transactions after a restart."""
    s, _ = after(cfg, restart or ("crash", 0), start_at=s)
    return {t.id: t.status for t in replayed(cfg, s)[0].txns}


def results(outcome: Any) -> list[str]:
    """Returns the results of the completed requests."""
    return [each.result for each in outcome]


# ---- requests


def test_a_transaction_that_stays_open_pins_a_window_of_many_entries() -> None:
    """Transaction 0 stays open while 30 others commit in 90 entries. After a crash, only its one entry is replayed."""
    others = [
        step for txn in range(1, 31) for step in (NEW, DONE, to(txn, "COMMITTING"), DONE, to(txn, "COMMITTED"), DONE)
    ]
    steps = [NEW, DONE, *others, ("persist",), ("crash", 0), ("replay_entry",), ("complete_replay",)]
    s, recovered = after(PLAIN, *steps)
    assert recovered == Recovered((), (), (OpenTxn(0, 100),))
    assert s.acks == Acks(0, (1 << 91) - 2)


def test_transaction_is_ongoing_from_durable_new_record_until_its_end() -> None:
    s, outcome = after(TWO, NEW, ("add_participant", 0, "ADD_PARTITION", 1))
    assert isinstance(outcome, Refused), "its NEW record is not durable"
    s, outcome = after(TWO, NEW, NEW, DONE)
    assert outcome == (Completion(0, "NEW", "success"), Completion(1, "NEW", "success"))
    s, _ = after(TWO, ("add_participant", 0, "ADD_PARTITION", 1), to(0, "COMMITTING"), DONE, start_at=s)
    [first, _] = s.txns
    assert (first.status, first.partitions, first.positions) == (
        "COMMITTING",
        0b10,
        (RecordPosition(0, 0), RecordPosition(1, 0), RecordPosition(1, 1)),
    )
    s, outcome = after(TWO, to(0, "COMMITTED"), to(0, "COMMITTED"), DONE, start_at=s)
    assert results(outcome) == ["success", "invalid_status"]
    assert ([t.id for t in s.txns], s.acks) == ([1], Acks(0, 0b110, (Partial(0, 0b10),)))
    s, _ = after(TWO, to(1, "ABORTING"), to(1, "ABORTED"), DONE, start_at=s)
    assert (s.txns, s.acks) == ((), Acks(4))


def test_batch_is_submitted_when_full_or_flushed() -> None:
    assert after(TWO, NEW)[0].in_flight == ()
    assert [len(entry) for entry in after(TWO, NEW, NEW, NEW, ("flush",))[0].in_flight] == [2, 1]
    for cfg in (PLAIN, Config(max_records=1)):
        assert [len(entry) for entry in after(cfg, NEW, NEW)[0].in_flight] == [1, 1]


@pytest.mark.parametrize(("first", "second"), [("COMMITTED", "COMMITTING"), ("COMMITTING", "ABORTING")])
def test_illegal_status_update_is_rejected_and_deleted(first: str, second: str) -> None:
    """In the first example the first update is illegal, in the second example the second update."""
    s, outcome = after(TWO, NEW, NEW, DONE, to(0, first), to(0, second), DONE)
    late = 0 if first == "COMMITTED" else 1
    assert results(outcome) == ["success" if i != late else "invalid_status" for i in range(2)]
    assert s.acks.partial == (Partial(1, 0b11 & ~(1 << late)),)
    assert restarted(TWO, s) == {0: "COMMITTING", 1: "OPEN"}


def test_partition_added_after_end_is_deleted() -> None:
    """The record of the late participant and those of the transaction are deleted."""
    cfg = Config(max_records=3)
    late = ("add_participant", 0, "ADD_PARTITION", 0)
    s, outcome = after(cfg, NEW, ("flush",), DONE, to(0, "COMMITTING"), to(0, "COMMITTED"), late, DONE)
    assert results(outcome) == ["success", "success", "invalid_status"]
    assert s.acks == Acks(2)


def test_retried_status_update_succeeds() -> None:
    s, _ = after(TWO, NEW, NEW, DONE, to(0, "COMMITTING"), ("flush",), DONE)
    again, outcome = after(TWO, to(0, "COMMITTING"), start_at=s)
    assert (again, results(outcome)) == (s, ["success"])
    assert results(after(TWO, to(0, "COMMITTED"), ("flush",), DONE, start_at=s)[1]) == ["success"]


# ---- deletions


@pytest.mark.parametrize(
    ("size", "index", "words"),
    [
        (10, 5, (991,)),
        (64, 0, (-2,)),
        (64, 63, (9223372036854775807,)),
        (230, 120, (-1, -72057594037927937, -1, 274877906943)),
        (256, 255, (-1, -1, -1, 9223372036854775807)),
        (65, 64, (-1,)),
        (2, 0, (2,)),
        (2, 1, (1,)),
        (1, 0, None),
    ],
)
def test_deletion_ack_set(size: int, index: int, words: tuple[int, ...] | None) -> None:
    assert deletion_ack_set(size, index) == words


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 130])
def test_entry_is_deleted_with_its_last_record(size: int) -> None:
    """A batch of NEW records whose transactions end in any order."""
    cfg = Config(max_records=size, batching=size > 1)
    s, _ = after(cfg, *[NEW] * size, DONE)
    order = [*range(1, size, 2), *range(0, size, 2)]
    for left, txn in zip(range(size - 1, -1, -1), order, strict=True):
        steps = [to(txn, "ABORTING"), ("flush",), DONE, to(txn, "ABORTED"), ("flush",), DONE]
        s, _ = after(cfg, *steps, start_at=s)
        assert (s.acks.first_unacked > 0) is (left == 0)
        assert left == 0 or s.acks.partial[0].remaining.bit_count() == left
    assert s.acks == Acks(s.first_entry + len(s.log))


# ---- restarts


RESTARTS = [("crash", 0), ("reopen", True), ("reopen", False)]


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("cfg", [TWO, PLAIN, Config(max_records=3)], ids=["two", "plain", "three"])
def test_acknowledged_state_is_recovered(cfg: Config, restart: tuple[Any, ...]) -> None:
    steps = [NEW, NEW, ("flush",), DONE, DONE]
    steps += [("add_participant", 1, "ADD_SUBSCRIPTION", 2), ("add_participant", 1, "ADD_PARTITION", 0)]
    steps += [("flush",), DONE, DONE, to(0, "COMMITTING"), to(0, "COMMITTED"), to(1, "ABORTING"), ("flush",)]
    s, _ = after(cfg, *steps, DONE, DONE, DONE)
    known = s.txns
    assert [(t.id, t.status, t.partitions, t.subscriptions) for t in known] == [(1, "ABORTING", 1, 4)]
    s, outcome = replayed(cfg, after(cfg, restart, start_at=s)[0])
    assert (s.txns, outcome) == (known, Recovered((), (1,), ()))


def test_committed_transaction_is_not_recovered_after_clean_restart() -> None:
    """[NEW 0, NEW 1] is partially deleted, [COMMITTING 0, COMMITTED 0] is deleted: the ack set must survive."""
    steps = [NEW, NEW, DONE, *commit(0)]
    for cfg, found in ((TWO, {1: "OPEN"}), (LATER, {1: "OPEN"}), (SHIPPED, {0: "OPEN", 1: "OPEN"})):
        assert restarted(cfg, after(cfg, *steps)[0], "reopen", True) == found


def test_truncation_keeps_deletion_order() -> None:
    """The cap admits no ack set."""
    for rules, found in ((TWO, {1: "OPEN"}), (SHIPPED, {0: "OPEN", 1: "OPEN"})):
        cfg = rules._replace(max_ack_sets=0)
        s, _ = after(cfg, NEW, NEW, DONE, *commit(0), ("persist",))
        assert s.durable == (Acks() if cfg.cursor_truncation == "prefix" else Acks(0, 0b10))
        assert restarted(cfg, s) == found


def test_position_info_of_master_2026_07_holds_one_range_more() -> None:
    """Rejected participants are deleted: entries 2, 4 and 6, each a range of its own."""
    late = ("add_participant", 0, "ADD_PARTITION", 0)
    steps = [NEW, DONE, to(0, "COMMITTING"), DONE, *[late, DONE, NEW, DONE] * 3]
    for rules, kept in ((m.reference, 0b100), (m.pulsar_2026_07, 0b10100), (m.pulsar_2026_09, 0b100)):
        cfg = rules.config._replace(batching=False, max_ranges=1)
        s, _ = after(cfg, *steps, ("persist",))
        assert (s.acks, s.durable) == (Acks(0, 0b1010100), Acks(0, kept))


def test_closed_cursor_keeps_ack_sets_in_the_cursor_ledger() -> None:
    """The metadata store of 4.0 loses ack sets. A closed cursor is stored there if it has few ranges.

    Ranges that a cap drops from the record are counted, too. With a cap of 0, every closed cursor is stored there.
    """
    acks = Acks(0, 0b1010100, (Partial(7, 1),))
    for most, in_metadata, kept in (
        (10_000, 3, False),
        (10_000, 2, True),
        (10_000, -1, True),
        (2, 2, True),
        (0, -1, False),
    ):
        cfg = PULSAR_4_0._replace(max_ranges=most, max_ranges_in_metadata=in_metadata)
        s = start(cfg)._replace(ledgers=(8,), acks=acks)
        assert bool(closed_cursor(cfg, s).partial) == kept


def test_ack_sets_alone_are_persisted() -> None:
    """Only ack sets exist: the cursor of master 2026-07 is not dirty."""
    steps = [NEW, NEW, DONE, to(0, "ABORTING"), to(1, "COMMITTING"), DONE, to(0, "ABORTED"), NEW, DONE]
    for cfg, kept in ((TWO, True), (SHIPPED, False)):
        s, wrote = after(cfg, *steps, ("persist",))
        assert (wrote, s.durable == s.acks) == (kept, kept)
        assert restarted(cfg, s) == {1: "COMMITTING", 2: "OPEN"}, "transaction 0 ends again at every restart"
    ended = [NEW, DONE, to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE, ("persist",)]
    assert after(SHIPPED._replace(batching=False), *ended)[1] is True, "a range of entries"


def test_store_without_batching_deletes_records_of_batches() -> None:
    """The store of 4.0 cannot delete these records, so their transactions are open again after each restart."""
    steps = [NEW, NEW, DONE, ("reopen", False)]
    for cfg, first_unacked in ((TWO, 5), (SHIPPED, 5), (PULSAR_4_0, 0)):
        s, _ = replayed(cfg, after(cfg, *steps)[0])
        ends = [each for txn in (0, 1) for each in (to(txn, "ABORTING"), DONE, to(txn, "ABORTED"), DONE)]
        s, _ = after(cfg, *ends, ("persist",), start_at=s)
        assert (s.txns, s.acks.first_unacked) == ((), first_unacked)
        assert restarted(cfg, s) == ({} if first_unacked else {0: "OPEN", 1: "OPEN"})


def test_replay_reads_all_ledgers_and_completes_at_deleted_last_entry() -> None:
    steps = [NEW, DONE, ("roll_ledger",), NEW, DONE, ("roll_ledger",), to(1, "ABORTING"), DONE, to(1, "ABORTED"), DONE]
    s, _ = after(PLAIN, *steps)
    assert restarted(PLAIN, s) == {0: "OPEN"}
    s, _ = after(PLAIN, ("persist",), ("crash", 0), start_at=s)
    assert next_entry(after(PLAIN, ("replay_entry",), start_at=s)[0]) is None


def test_crash_during_replay_is_harmless() -> None:
    s, _ = after(TWO, NEW, NEW, DONE, *commit(0), NEW, NEW, DONE, ("crash", 0))
    whole = replayed(TWO, s)[0].txns
    for read in range(3):
        again, _ = after(TWO, *[("replay_entry",)] * read, ("crash", 0), start_at=s)
        assert replayed(TWO, again)[0].txns == whole


def test_entries_in_flight_are_recovered_if_durable_and_buffered_records_are_not() -> None:
    s, _ = after(PLAIN, NEW, NEW)
    for durable, found in ((0, {}), (1, {0: "OPEN"}), (2, {0: "OPEN", 1: "OPEN"}), (3, {0: "OPEN", 1: "OPEN"})):
        assert restarted(PLAIN, s, "crash", durable) == found
    s, outcome = after(TWO, NEW, ("reopen", True))
    assert (results(outcome), s.buffer) == (["closed"], ())


def test_incomplete_replay_fails() -> None:
    s, _ = after(PLAIN, NEW, DONE, NEW, DONE, ("crash", 0), ("replay_entry",))
    failed, outcome = after(PLAIN, ("fail_read",), start_at=s)
    assert isinstance(outcome, Failed)
    assert isinstance(after(PLAIN, NEW, start_at=failed)[1], Refused)
    assert restarted(PLAIN, failed) == {0: "OPEN", 1: "OPEN"}
    shipped = SHIPPED._replace(batching=False)
    s, outcome = after(shipped, NEW, DONE, NEW, DONE, ("crash", 0), ("replay_entry",), ("fail_read",))
    assert (outcome, s.status) == (Recovered((), (), (OpenTxn(0, 100),)), "ready"), "transaction 1 is lost"


def test_replay_that_never_ends_is_found_by_the_explorer() -> None:
    """With the mutant, a replay whose reads fail loops for ever."""
    actions = ("new_transaction", "complete_write", "crash", "replay_entry", "complete_replay", "fail_read")
    tiny = replace(SUBJECT.scopes["failures"], actions=actions, bounds={"entries": 1, "ids": 1, "ledgers": 2})
    broken = seed_bug(find_mutant("spec-failing-read-is-retried-forever"))
    for subject, names in ((SUBJECT, []), (broken, ["failing_replay_terminates"])):
        found = explore(find_space(replace(subject, scopes={"tiny": tiny}), "tiny"), implementation=False)
        assert [lasso.name for lasso in found.lassos] == names


# ---- appends that fail


def test_acknowledged_commit_is_not_lost_to_failed_abort() -> None:
    """The failed abort is durable. The store of master 2026-07 commits after it."""
    steps = [NEW, DONE, to(0, "ABORTING"), ("fail_write", 1)]
    s, outcome = after(PLAIN, *steps)
    assert (results(outcome), s.status) == (["unknown"], "stopped")
    assert isinstance(after(PLAIN, to(0, "COMMITTING"), start_at=s)[1], Refused)
    assert restarted(PLAIN, s, "reopen", False) == {0: "ABORTING"}
    shipped = SHIPPED._replace(batching=False)
    s, outcome = after(shipped, *steps, to(0, "COMMITTING"), to(0, "COMMITTING"), DONE)
    assert (results(outcome), [t.status for t in s.txns]) == (["success"], ["COMMITTING"])
    assert restarted(shipped, s) == {0: "ABORTING"}, "the confirmed commit is lost"


@pytest.mark.parametrize("failure", [("fail_write", 0), ("fail_ledger_creation",)])
def test_second_append_after_lost_ledger_creates_one(failure: tuple[Any, ...]) -> None:
    cfg = PLAIN._replace(ambiguous_append="continues")
    s, _ = after(cfg, NEW, failure)
    assert s.ledger == "write_failed"
    s, outcome = after(cfg, NEW, start_at=s)
    assert (results(outcome), s.ledger) == (["not_written"], "closed")
    s, outcome = after(cfg, NEW, DONE, start_at=s)
    assert (outcome, [t.id for t in s.txns]) == ((Completion(2, "NEW", "success"),), [2])


def test_failure_before_the_ledger_does_not_stop_the_store() -> None:
    s, outcome = after(TWO, NEW, NEW, ("fail_ledger_creation",))
    assert (results(outcome), s.status) == (["not_written"] * 2, "ready")
    assert after(TWO, ("fail_ledger_creation",))[0].ledger == "closed", (
        "nothing was in flight: the next append succeeds"
    )


def test_fenced_store_neither_appends_nor_persists() -> None:
    s, outcome = after(TWO, NEW, NEW, DONE, *commit(0), NEW, NEW, ("fence", 1))
    assert results(outcome) == ["unknown"] * 2
    assert isinstance(after(TWO, ("persist",), start_at=s)[1], Refused)
    assert after(TWO, ("reopen", True), start_at=s)[0].durable == Acks()
    idle, _ = after(TWO, ("fence", 0))
    assert results(after(TWO, NEW, NEW, start_at=idle)[1]) == ["fenced"] * 2


@pytest.mark.parametrize("cfg", [TWO, SHIPPED], ids=["reference", "shipped"])
def test_transaction_ends_even_if_its_records_cannot_be_deleted(cfg: Config) -> None:
    s, _ = after(cfg, NEW, NEW, DONE, ("break_cursor",), *commit(0))
    assert ([t.id for t in s.txns], s.acks) == ([1], Acks())
    assert restarted(cfg, s) == {1: "OPEN"}
    s, _ = after(cfg, ("crash", 0), ("break_cursor",), start_at=s)
    found = {t.id: t.status for t in replayed(cfg, s)[0].txns}
    assert found == ({1: "OPEN"} if cfg.replay_removes_ended_first else {0: "COMMITTED", 1: "OPEN"})


# ---- ids, low watermark, deadlines


def test_ids_are_not_reused_after_full_trim() -> None:
    ends = [NEW, DONE, to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE]
    s, dropped = after(PLAIN, *ends, ("roll_ledger",), ("persist",), ("trim",))
    assert (dropped, s.log, s.first_entry) == (1, (), 3)
    s, _ = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    s, outcome = after(PLAIN, NEW, DONE, start_at=s)
    assert outcome == (Completion(1, "NEW", "success"),)


def test_trimming_updates_the_ledger_property() -> None:
    """Transaction 1 is assigned, its record does not reach the log, and the last entry is trimmed."""
    ends = [NEW, DONE, to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE, ("roll_ledger",), ("persist",)]
    s, _ = after(PLAIN, *ends, NEW, ("fail_ledger_creation",))
    assert (s.ledger_property_id, s.last_id) == (0, 1)
    s, dropped = after(PLAIN, ("trim",), start_at=s)
    assert (dropped, s.ledger_property_id) == (1, 1)
    s, _ = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    assert after(PLAIN, NEW, DONE, start_at=s)[1] == (Completion(2, "NEW", "success"),)


def test_ledger_is_trimmed_below_durable_mark_except_the_last() -> None:
    steps = [NEW, DONE, to(0, "ABORTING"), DONE, ("roll_ledger",), to(0, "ABORTED"), DONE]
    s, dropped = after(PLAIN, *steps, ("trim",))
    assert (dropped, s.acks.first_unacked, s.durable.first_unacked) == (0, 3, 0)
    s, dropped = after(PLAIN, ("persist",), ("trim",), ("trim",), start_at=s)
    assert (dropped, s.ledgers, len(s.log)) == (0, (1,), 1)


def test_low_watermark_is_below_first_ongoing_transaction() -> None:
    s, watermark = after(TWO, NEW, NEW, DONE, ("low_watermark",))
    assert watermark == -1
    s, watermark = after(TWO, *commit(0), ("low_watermark",), start_at=s)
    assert watermark == 0
    s, watermark = after(TWO, *commit(1), ("low_watermark",), start_at=s)
    assert watermark == 1
    assert after(TWO, NEW, ("low_watermark",), start_at=s)[1] == 1, "the NEW record of 2 is pending"
    assert after(SHIPPED, ("low_watermark",), start_at=s)[1] == 0


def test_low_watermark_is_below_id_that_may_be_assigned_again() -> None:
    """An assigned id is not in the log, and after a crash it is assigned again."""
    s, _ = after(PLAIN, NEW, ("fail_ledger_creation",))
    s, watermark = after(PLAIN, ("low_watermark",), start_at=s)
    assert (s.last_id, watermark) == (0, -1)
    s, _ = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    assert after(PLAIN, NEW, DONE, start_at=s)[1] == (Completion(0, "NEW", "success"),)


def test_deadline_counts_from_durability_and_after_restart_from_start_time() -> None:
    s, _ = after(PLAIN, NEW, ("advance_time", 30), DONE)
    assert s.txns[0].deadline_ms == 130
    s, outcome = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    assert outcome.open == (OpenTxn(0, 100),)
    assert after(PLAIN, ("advance_time", 70), ("expired",), start_at=s)[1] == ()
    assert after(PLAIN, ("advance_time", 71), ("expired",), start_at=s)[1] == (0,)


def test_earliest_deadline_expires_first() -> None:
    steps = [("new_transaction", 50), DONE, ("new_transaction", 5), DONE, ("new_transaction", 70), DONE]
    s, late = after(PLAIN, *steps, ("advance_time", 60), ("expired",))
    assert late == (1, 0)
    assert after(PLAIN, to(1, "ABORTING"), DONE, ("expired",), start_at=s)[1] == (0,)


# ---- invalid input


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (to(1, "COMMITTING"), "transaction 1 is not ongoing"),
        (("add_participant", 7, "ADD_PARTITION", 0), "transaction 7 is not ongoing"),
        (DONE, "no entry is in flight"),
        (("fail_write", 0), "no entry is in flight"),
        (("replay_entry",), "the store is ready, not replaying"),
        (("complete_replay",), "the store is ready, not replaying"),
        (("fail_read",), "the store is ready, not replaying"),
    ],
)
def test_invalid_request_is_rejected_without_change(step: tuple[Any, ...], why: str) -> None:
    s, _ = after(PLAIN, NEW, DONE)
    again, refusal = after(PLAIN, step, start_at=s)
    assert isinstance(refusal, Refused)
    assert refusal.why == why
    assert again is s


def test_limit_of_ongoing_transactions() -> None:
    s, refusal = after(PLAIN._replace(max_active=1), NEW, DONE, NEW)
    assert refusal == Refused("too_many", "1 transactions are ongoing")
    assert s.last_id == 0


def test_limit_is_checked_before_the_store_status() -> None:
    """One transaction is ongoing. Another one is in flight, and does not count.

    The store then stops, and has no transactions when its replay begins.
    """
    cfg = PLAIN._replace(max_active=1)
    s, _ = after(cfg, NEW, NEW, DONE, ("fail_write", 1))
    assert after(cfg, NEW, start_at=s)[1] == Refused("too_many", "1 transactions are ongoing")
    s, refusal = after(cfg, ("crash", 0), NEW, start_at=s)
    assert refusal == Refused("illegal_state", "the store is replaying, not ready")
    s, refusal = after(cfg, ("replay_entry",), NEW, start_at=s)
    assert refusal == Refused("too_many", "1 transactions are ongoing")


# ---- wire form


RECORDS = [
    Record(3, "NEW", 3, start_ms=5, timeout_ms=100),
    Record(0, "ADD_PARTITION", 3, name=12),
    Record(2**40, "ADD_SUBSCRIPTION", 2**41, name=0),
    *[Record(1, "UPDATE", 3, to=target) for target in ("COMMITTING", "COMMITTED", "ABORTING", "ABORTED")],
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.to or r.op)
def test_record_round_trips_through_wire_form(record: Record) -> None:
    assert from_wire(to_wire(record)) == record


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (TransactionRecord("NEW", 3, timeout_ms=1, start_time=1), "a record of transaction 3 lacks the last id"),
        (
            TransactionRecord("UPDATE", 3, expected_status="OPEN", new_status="COMMITTED", max_local_txn_id=3),
            "an update of transaction 3 from OPEN to COMMITTED",
        ),
        (
            TransactionRecord("ADD_PARTITION", 3, partitions=("a",), max_local_txn_id=3),
            "the name a is not persistent://public/default/topic-partition- and a number",
        ),
        (
            TransactionRecord("ADD_PARTITION", 3, max_local_txn_id=3),
            "a record of transaction 3 has 0 participants, not 1",
        ),
        (
            TransactionRecord("ADD_PARTITION", 3, partitions=("a", "b"), max_local_txn_id=3),
            "a record of transaction 3 has 2 participants, not 1",
        ),
    ],
)
def test_invalid_wire_record_is_rejected(record: TransactionRecord, message: str) -> None:
    with pytest.raises(BadValue) as problem:
        from_wire(record)
    assert str(problem.value) == message


@pytest.mark.parametrize("batched", [True, False])
def test_entry_keeps_only_bytes_after_restart(batched: bool) -> None:
    entry = LogEntry(tuple(RECORDS) if batched else (RECORDS[0],), batched)
    records = entry.records
    entry.forget()
    assert entry._known is None
    assert entry._data is not None
    assert is_batched(entry._data) is batched
    assert entry.records == records
    assert entry.records is not records


def test_new_store_is_ready_and_its_first_id_is_0() -> None:
    assert start(PLAIN) == State(
        status="ready",
        ledger="open",
        batching=False,
        deletions_succeed=True,
        buffer=(),
        in_flight=(),
        first_entry=0,
        ledgers=(0,),
        log=(),
        ledger_property_id=-1,
        txns=(),
        last_id=-1,
        acks=Acks(0, 0, ()),
        durable=Acks(0, 0, ()),
        dirty=False,
        read_position=0,
        now_ms=0,
        confirmed=(),
        confirmed_id=-1,
        reported_watermark=-1,
    )


#: A transaction that ends in a ledger of its own, which is trimmed; time has passed.
TRIMMED = [NEW, DONE, to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE, ("low_watermark",), ("roll_ledger",)]
TRIMMED += [("persist",), ("trim",), ("advance_time", 7)]


@pytest.mark.parametrize("batching", [True, False])
def test_canonical_form_counts_from_the_first_id_entry_and_time(batching: bool) -> None:
    """A new store and one whose first transaction was trimmed have one canonical form, after each of these steps."""
    cfg = TWO._replace(batching=batching)
    shifted, _ = after(PLAIN, *TRIMMED)
    assert m.txn_log.canonical(PLAIN, shifted) == start(PLAIN)
    known, shifted = start(cfg), shifted._replace(batching=batching)
    steps = [("advance_time", 3), NEW, ("advance_time", 2), NEW, ("flush",), DONE, NEW, to("first", "COMMITTING")]
    steps += [("flush",), DONE, DONE, ("low_watermark",), to("first", "COMMITTED"), ("flush",), DONE, ("persist",)]
    steps += [
        ("roll_ledger",),
        NEW,
        ("flush",),
        ("crash", 1),
        ("replay_entry",),
        ("replay_entry",),
        ("advance_time", 1),
    ]
    for name, *arguments in steps:
        for_first = [[each if each != "first" else txn for each in arguments] for txn in (0, 1)]
        known, _ = after(cfg, (name, *for_first[0]), start_at=known)
        shifted, _ = after(cfg, (name, *for_first[1]), start_at=shifted)
        assert m.txn_log.canonical(cfg, shifted) == m.txn_log.canonical(cfg, known)


def test_canonical_form_counts_each_from_its_first_value() -> None:
    """In each example, only the time, only the first id, or only the first entry is greater than 0."""
    assert m.txn_log.canonical(PLAIN, after(PLAIN, ("advance_time", 1))[0]) == start(PLAIN)
    s, _ = after(PLAIN, ("fail_ledger_creation",), NEW, ("fence", 0))
    assert m.txn_log.canonical(PLAIN, s) == start(PLAIN)._replace(status="stopped", ledger="fenced")
    lost, _ = after(PLAIN, NEW, ("fail_ledger_creation",))
    assert m.txn_log.canonical(PLAIN, lost) == lost, "id 0 may be assigned again"
    steps = [NEW, DONE, ("roll_ledger",), to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE, ("persist",), ("trim",)]
    for cfg in (PLAIN, SHIPPED._replace(batching=False)):
        s, _ = after(cfg, *steps)
        form = m.txn_log.canonical(cfg, s)
        assert (form.first_entry, form.acks, form.durable, form.last_id) == (0, Acks(2), Acks(2), 0)
        assert s == form._replace(first_entry=1, acks=Acks(3), durable=Acks(3))


def test_each_rule_differs_in_the_shipped_version() -> None:
    """apache/pulsar#26474 changed two rules."""
    names, ours = m.txn_log.rules, m.reference.config
    assert [name for name in names if getattr(SHIPPED, name) == getattr(ours, name)] == []
    changed = [name for name in names if getattr(LATER, name) == getattr(ours, name)]
    assert changed == ["metadata_ack_sets_are_recovered", "range_cap_is_exact"]


def test_observation_of_a_store() -> None:
    """Five entries are trimmed, record 0 of entry 5 is deleted; transaction 3 is the first ongoing one."""
    cfg, record = Config(), Record(3, "NEW", 9)
    s = start(cfg)._replace(
        first_entry=5,
        ledgers=(2,),
        log=((record, record), (record,)),
        txns=(Txn(3, "OPEN", 1, 2, 900, (RecordPosition(5, 1),)),),
        last_id=9,
        acks=Acks(5, 0, (Partial(5, 0b10),)),
        durable=Acks(4, 0, ()),
        buffer=(record,),
        in_flight=((record, record),),
    )
    assert m.txn_log.observe(cfg, s) == {
        "status": "ready",
        "ledger": "open",
        "low_watermark": 2,
        "last_id": 9,
        "transactions": [[3, "OPEN", 1, 2, 900]],
        "ledgers": [2],
        "first_unacked": 5,
        "durable_first_unacked": 4,
        "remaining_records": [1, 1],
        "pending_requests": 3,
    }


def test_invalid_argument_is_named() -> None:
    action = SUBJECT.machine.actions["update_status"]
    with pytest.raises(BadValue, match=r"update_status.to is 'OPEN', must be one of COMMITTING, COMMITTED, ABORTING"):
        action.arguments({"txn": 0, "to": "OPEN"}, TWO)
    with pytest.raises(BadValue, match=r"max_records is -1, must be integer of 0 or more"):
        SUBJECT.machine.configure({"max_records": -1})
