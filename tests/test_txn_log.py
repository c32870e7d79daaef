"""The transaction log of a coordinator: stateful tests, worked examples, bad input, and what the shipped rules lose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.explore.search import bounded, explore
from fuzz.mutation.seeding import find_mutant, plant
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.txn_log.entries import LogEntry, from_wire, to_wire
from impl.txn_log.log import TxnLog
from impl.txn_writer.records import TransactionRecord, is_batched
from model.batch_acks.state import Acks, Partial
from model.machine import BadValue, Failed, Refused
from model.txn_log import machine as m
from model.txn_log.replay import Open, Recovered, next_entry
from model.txn_log.state import Answer, Config, Place, Record, State, ack_set_of, start

SUBJECT = find_subject("txn_log")

TestTxnLog = stateful_test(SUBJECT)

#: Batches of two records.
TWO = Config(max_records=2)
#: Every record is an entry of its own.
PLAIN = Config(batching=False)
SHIPPED = m.shipped.config._replace(max_records=2)
LATER = m.later.config._replace(max_records=2)
EARLIER = m.earlier.config._replace(max_records=2)

NEW: tuple[Any, ...] = ("new_transaction", 100)
DONE = ("written",)


def to(txn: int, status: str) -> tuple[Any, ...]:
    """A transaction is to go one step further."""
    return "update_status", txn, status


def commit(txn: int) -> list[tuple[Any, ...]]:
    """Both steps of a commit in one batch of two, which is written."""
    return [to(txn, "COMMITTING"), to(txn, "COMMITTED"), DONE]


def after(cfg: Config, *steps: tuple[Any, ...], start_at: State | None = None) -> tuple[State, Any]:
    """The state after some actions, and the last one's outcome, of the model and of the implementation."""
    s, outcome = start_at or start(cfg), None
    body = TxnLog.load(cfg, s)
    for name, *arguments in steps:
        s, outcome = m.txn_log.step(cfg, s, name, tuple(arguments))
        assert getattr(body, name)(*arguments) == outcome
        assert body.check() == []
    assert body.view() == s
    return s, outcome


def replayed(cfg: Config, s: State) -> tuple[State, Recovered]:
    """The state after a whole replay, and what it has found."""
    while next_entry(s) is not None:
        s, _ = after(cfg, ("replay_entry",), start_at=s)
    return after(cfg, ("replay_completes",), start_at=s)


def restarted(cfg: Config, s: State, *restart: Any) -> dict[int, str]:
    """The transactions that a store finds after a restart, with their statuses."""
    s, _ = after(cfg, restart or ("crash", 0), start_at=s)
    return {t.id: t.status for t in replayed(cfg, s)[0].txns}


def told(outcome: Any) -> list[str]:
    """What callers are told."""
    return [answer.told for answer in outcome]


# ---- a transaction's life


def test_a_transaction_lives_when_its_record_is_durable_and_is_gone_when_it_has_ended() -> None:
    s, outcome = after(TWO, NEW, ("add_participant", 0, "ADD_PARTITION", 1))
    assert isinstance(outcome, Refused), "nobody knows it yet"
    s, outcome = after(TWO, NEW, NEW, DONE)
    assert outcome == (Answer(0, "NEW", "done"), Answer(1, "NEW", "done"))
    s, _ = after(TWO, ("add_participant", 0, "ADD_PARTITION", 1), to(0, "COMMITTING"), DONE, start_at=s)
    [first, _] = s.txns
    assert (first.status, first.partitions, first.places) == (
        "COMMITTING",
        0b10,
        (Place(0, 0), Place(1, 0), Place(1, 1)),
    )
    s, outcome = after(TWO, to(0, "COMMITTED"), to(0, "COMMITTED"), DONE, start_at=s)
    assert told(outcome) == ["done", "invalid_status"]
    assert ([t.id for t in s.txns], s.acks) == ([1], Acks(0, 0b110, (Partial(0, 0b10),)))
    s, _ = after(TWO, to(1, "ABORTING"), to(1, "ABORTED"), DONE, start_at=s)
    assert (s.txns, s.acks) == ((), Acks(4))


def test_a_batch_is_written_when_it_is_full_or_flushed_and_without_batching_at_once() -> None:
    assert after(TWO, NEW)[0].in_flight == ()
    assert [len(entry) for entry in after(TWO, NEW, NEW, NEW, ("flush",))[0].in_flight] == [2, 1]
    for cfg in (PLAIN, Config(max_records=1)):
        assert [len(entry) for entry in after(cfg, NEW, NEW)[0].in_flight] == [1, 1]


@pytest.mark.parametrize(("first", "second"), [("COMMITTED", "COMMITTING"), ("COMMITTING", "ABORTING")])
def test_who_comes_too_late_has_no_effect_and_is_deleted(first: str, second: str) -> None:
    """The first of the one pair, and the second of the other one."""
    s, outcome = after(TWO, NEW, NEW, DONE, to(0, first), to(0, second), DONE)
    late = 0 if first == "COMMITTED" else 1
    assert told(outcome) == ["done" if i != late else "invalid_status" for i in range(2)]
    assert s.acks.partial == (Partial(1, 0b11 & ~(1 << late)),)
    assert restarted(TWO, s) == {0: "COMMITTING", 1: "OPEN"}


def test_a_partition_that_comes_after_the_end_is_deleted() -> None:
    """The record of a late participant is not one of the transaction's, and nothing of either is left."""
    cfg = Config(max_records=3)
    late = ("add_participant", 0, "ADD_PARTITION", 0)
    s, outcome = after(cfg, NEW, ("flush",), DONE, to(0, "COMMITTING"), to(0, "COMMITTED"), late, DONE)
    assert told(outcome) == ["done", "done", "invalid_status"]
    assert s.acks == Acks(2)


def test_an_end_that_is_tried_again_succeeds() -> None:
    s, _ = after(TWO, NEW, NEW, DONE, to(0, "COMMITTING"), ("flush",), DONE)
    again, outcome = after(TWO, to(0, "COMMITTING"), start_at=s)
    assert (again, told(outcome)) == (s, ["done"])
    assert told(after(TWO, to(0, "COMMITTED"), ("flush",), DONE, start_at=s)[1]) == ["done"]


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
def test_the_ack_set_of_one_record(size: int, index: int, words: tuple[int, ...] | None) -> None:
    assert ack_set_of(size, index) == words


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 130])
def test_a_batch_is_deleted_with_its_last_record(size: int) -> None:
    """A batch of so many beginnings, of which all end, in whatever order."""
    cfg = Config(max_records=size, batching=size > 1)
    s, _ = after(cfg, *[NEW] * size, DONE)
    order = [*range(1, size, 2), *range(0, size, 2)]
    for left, txn in zip(range(size - 1, -1, -1), order, strict=True):
        steps = [to(txn, "ABORTING"), ("flush",), DONE, to(txn, "ABORTED"), ("flush",), DONE]
        s, _ = after(cfg, *steps, start_at=s)
        assert (s.acks.mark > 0) is (left == 0)
        assert left == 0 or s.acks.partial[0].remaining.bit_count() == left
    assert s.acks == Acks(s.first + len(s.log))


# ---- restarts


RESTARTS = [("crash", 0), ("reopen", True), ("reopen", False)]


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("cfg", [TWO, PLAIN, Config(max_records=3)], ids=["two", "plain", "three"])
def test_what_callers_were_told_is_there_again(cfg: Config, restart: tuple[Any, ...]) -> None:
    steps = [NEW, NEW, ("flush",), DONE, DONE]
    steps += [("add_participant", 1, "ADD_SUBSCRIPTION", 2), ("add_participant", 1, "ADD_PARTITION", 0)]
    steps += [("flush",), DONE, DONE, to(0, "COMMITTING"), to(0, "COMMITTED"), to(1, "ABORTING"), ("flush",)]
    s, _ = after(cfg, *steps, DONE, DONE, DONE)
    known = s.txns
    assert [(t.id, t.status, t.partitions, t.subscriptions) for t in known] == [(1, "ABORTING", 1, 4)]
    s, outcome = replayed(cfg, after(cfg, restart, start_at=s)[0])
    assert (s.txns, outcome) == (known, Recovered((), (1,), ()))


def test_a_committed_transaction_stays_away_after_a_clean_restart() -> None:
    """[NEW 0, NEW 1] is half deleted, [COMMITTING 0, COMMITTED 0] is deleted: the half must not be forgotten."""
    steps = [NEW, NEW, DONE, *commit(0)]
    for cfg, found in ((TWO, {1: "OPEN"}), (LATER, {1: "OPEN"}), (SHIPPED, {0: "OPEN", 1: "OPEN"})):
        assert restarted(cfg, after(cfg, *steps)[0], "reopen", True) == found


def test_caps_keep_a_beginning_deleted_as_long_as_its_end() -> None:
    """No part fits, and the range does."""
    for rules, found in ((TWO, {1: "OPEN"}), (SHIPPED, {0: "OPEN", 1: "OPEN"})):
        cfg = rules._replace(max_batch_records=0)
        s, _ = after(cfg, NEW, NEW, DONE, *commit(0), ("persist",))
        assert s.durable == (Acks() if cfg.caps_keep == "prefix" else Acks(0, 0b10))
        assert restarted(cfg, s) == found


def test_a_shipped_record_has_room_for_one_range_more() -> None:
    """Participants that come too late are deleted: entries 2, 4 and 6, each a range of its own."""
    late = ("add_participant", 0, "ADD_PARTITION", 0)
    steps = [NEW, DONE, to(0, "COMMITTING"), DONE, *[late, DONE, NEW, DONE] * 3]
    for rules, kept in ((m.reference, 0b100), (m.shipped, 0b10100), (m.later, 0b100)):
        cfg = rules.config._replace(batching=False, max_ranges=1)
        s, _ = after(cfg, *steps, ("persist",))
        assert (s.acks, s.durable) == (Acks(0, 0b1010100), Acks(0, kept))


def test_caps_are_those_of_their_time() -> None:
    for rules, most in ((m.earlier, (10_000, 10_000, 1000)), (m.shipped, (200_000,) * 3), (m.later, (200_000,) * 3)):
        assert (rules.config.max_ranges, rules.config.max_batch_records, rules.config.max_ranges_in_metadata) == most


def test_parts_alone_are_written() -> None:
    """Nothing but parts of entries is deleted: shipped, there is nothing to be written."""
    steps = [NEW, NEW, DONE, to(0, "ABORTING"), to(1, "COMMITTING"), DONE, to(0, "ABORTED"), NEW, DONE]
    for cfg, kept in ((TWO, True), (SHIPPED, False)):
        s, wrote = after(cfg, *steps, ("persist",))
        assert (wrote, s.durable == s.acks) == (kept, kept)
        assert restarted(cfg, s) == {1: "COMMITTING", 2: "OPEN"}, "it ends again, at every restart"


def test_a_store_without_batching_deletes_what_batches_hold() -> None:
    """Shipped before 4.1 it cannot, and whatever was in a batch comes back with each restart."""
    steps = [NEW, NEW, DONE, ("reopen", False)]
    for cfg, mark in ((TWO, 5), (SHIPPED, 5), (EARLIER, 0)):
        s, _ = replayed(cfg, after(cfg, *steps)[0])
        ends = [each for txn in (0, 1) for each in (to(txn, "ABORTING"), DONE, to(txn, "ABORTED"), DONE)]
        s, _ = after(cfg, *ends, ("persist",), start_at=s)
        assert (s.txns, s.acks.mark) == ((), mark)
        assert restarted(cfg, s) == ({} if mark else {0: "OPEN", 1: "OPEN"})


def test_a_replay_reads_all_ledgers_and_ends_where_the_last_entry_is_deleted() -> None:
    steps = [NEW, DONE, ("roll_ledger",), NEW, DONE, ("roll_ledger",), to(1, "ABORTING"), DONE, to(1, "ABORTED"), DONE]
    s, _ = after(PLAIN, *steps)
    assert restarted(PLAIN, s) == {0: "OPEN"}
    s, _ = after(PLAIN, ("persist",), ("crash", 0), start_at=s)
    assert next_entry(after(PLAIN, ("replay_entry",), start_at=s)[0]) is None


def test_a_crash_in_the_middle_of_a_replay_changes_nothing() -> None:
    s, _ = after(TWO, NEW, NEW, DONE, *commit(0), NEW, NEW, DONE, ("crash", 0))
    whole = replayed(TWO, s)[0].txns
    for read in range(3):
        again, _ = after(TWO, *[("replay_entry",)] * read, ("crash", 0), start_at=s)
        assert replayed(TWO, again)[0].txns == whole


def test_what_was_in_flight_is_found_if_it_was_written_and_not_if_it_waited() -> None:
    s, _ = after(PLAIN, NEW, NEW)
    for durable, found in ((0, {}), (1, {0: "OPEN"}), (2, {0: "OPEN", 1: "OPEN"}), (3, {0: "OPEN", 1: "OPEN"})):
        assert restarted(PLAIN, s, "crash", durable) == found
    s, outcome = after(TWO, NEW, ("reopen", True))
    assert (told(outcome), s.buffer) == (["closed"], ())


def test_a_replay_that_stops_fails() -> None:
    s, _ = after(PLAIN, NEW, DONE, NEW, DONE, ("crash", 0), ("replay_entry",))
    failed, outcome = after(PLAIN, ("read_fails",), start_at=s)
    assert isinstance(outcome, Failed)
    assert isinstance(after(PLAIN, NEW, start_at=failed)[1], Refused)
    assert restarted(PLAIN, failed) == {0: "OPEN", 1: "OPEN"}
    shipped = SHIPPED._replace(batching=False)
    s, outcome = after(shipped, NEW, DONE, NEW, DONE, ("crash", 0), ("replay_entry",), ("read_fails",))
    assert (outcome, s.status) == (Recovered((), (), (Open(0, 100),)), "ready"), "transaction 1 is lost"


def test_a_replay_that_cannot_read_and_does_not_end_is_found() -> None:
    """Apart from the step itself: a replay whose reads fail goes round for ever."""
    actions = ("new_transaction", "written", "crash", "replay_entry", "replay_completes", "read_fails")
    tiny = replace(SUBJECT.scopes["failures"], actions=actions, bounds={"entries": 1, "ids": 1, "ledgers": 2})
    broken = plant(find_mutant("spec-a-replay-that-cannot-read-goes-on"))
    for subject, names in ((SUBJECT, []), (broken, ["a_replay_whose_reads_fail_ends"])):
        found = explore(bounded(replace(subject, scopes={"tiny": tiny}), "tiny"), implementation=False)
        assert [lasso.name for lasso in found.lassos] == names


# ---- appends that fail


def test_a_commit_that_was_acknowledged_is_not_lost_to_an_abort_that_failed() -> None:
    """The abort is in the log though its caller was told of a failure; shipped, the opposite is decided behind it."""
    steps = [NEW, DONE, to(0, "ABORTING"), ("write_fails", 1)]
    s, outcome = after(PLAIN, *steps)
    assert (told(outcome), s.status) == (["unknown"], "stopped")
    assert isinstance(after(PLAIN, to(0, "COMMITTING"), start_at=s)[1], Refused)
    assert restarted(PLAIN, s, "reopen", False) == {0: "ABORTING"}
    shipped = SHIPPED._replace(batching=False)
    s, outcome = after(shipped, *steps, to(0, "COMMITTING"), to(0, "COMMITTING"), DONE)
    assert (told(outcome), [t.status for t in s.txns]) == (["done"], ["COMMITTING"])
    assert restarted(shipped, s) == {0: "ABORTING"}, "a commit that was acknowledged is lost"


@pytest.mark.parametrize("failure", [("write_fails", 0), ("creation_fails",)])
def test_a_lost_ledger_is_replaced_by_the_append_after_the_one_that_finds_out(failure: tuple[Any, ...]) -> None:
    cfg = PLAIN._replace(unknown_outcome="goes_on")
    s, _ = after(cfg, NEW, failure)
    assert s.ledger == "write_failed"
    s, outcome = after(cfg, NEW, start_at=s)
    assert (told(outcome), s.ledger) == (["not_written"], "closed")
    s, outcome = after(cfg, NEW, DONE, start_at=s)
    assert (outcome, [t.id for t in s.txns]) == ((Answer(2, "NEW", "done"),), [2])


def test_what_never_reached_the_ledger_stops_nothing() -> None:
    s, outcome = after(TWO, NEW, NEW, ("creation_fails",))
    assert (told(outcome), s.status) == (["not_written"] * 2, "ready")
    assert after(TWO, ("creation_fails",))[0].ledger == "closed", "nothing was in flight: the next append succeeds"


def test_a_fenced_store_neither_appends_nor_writes_its_cursor() -> None:
    s, outcome = after(TWO, NEW, NEW, DONE, *commit(0), NEW, NEW, ("fence", 1))
    assert told(outcome) == ["unknown"] * 2
    assert isinstance(after(TWO, ("persist",), start_at=s)[1], Refused)
    assert after(TWO, ("reopen", True), start_at=s)[0].durable == Acks()
    idle, _ = after(TWO, ("fence", 0))
    assert told(after(TWO, NEW, NEW, start_at=idle)[1]) == ["fenced"] * 2


@pytest.mark.parametrize("cfg", [TWO, SHIPPED], ids=["reference", "shipped"])
def test_a_transaction_ends_whether_its_records_can_be_deleted_or_not(cfg: Config) -> None:
    s, _ = after(cfg, NEW, NEW, DONE, ("cursor_breaks",), *commit(0))
    assert ([t.id for t in s.txns], s.acks) == ([1], Acks())
    assert restarted(cfg, s) == {1: "OPEN"}
    s, _ = after(cfg, ("crash", 0), ("cursor_breaks",), start_at=s)
    found = {t.id: t.status for t in replayed(cfg, s)[0].txns}
    assert found == ({1: "OPEN"} if cfg.replay_removes_first else {0: "COMMITTED", 1: "OPEN"})


# ---- ids, the watermark, deadlines


def test_ids_are_not_used_again_though_the_whole_log_is_trimmed() -> None:
    ends = [NEW, DONE, to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE]
    s, dropped = after(PLAIN, *ends, ("roll_ledger",), ("persist",), ("trim",))
    assert (dropped, s.log, s.first) == (1, (), 3)
    s, _ = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    s, outcome = after(PLAIN, NEW, DONE, start_at=s)
    assert outcome == (Answer(1, "NEW", "done"),)


def test_trimming_writes_the_last_id() -> None:
    """Transaction 1 is given and its record does not reach the log, whose last entry goes."""
    ends = [NEW, DONE, to(0, "ABORTING"), DONE, to(0, "ABORTED"), DONE, ("roll_ledger",), ("persist",)]
    s, _ = after(PLAIN, *ends, NEW, ("creation_fails",))
    assert (s.ledger_id, s.last_id) == (0, 1)
    s, dropped = after(PLAIN, ("trim",), start_at=s)
    assert (dropped, s.ledger_id) == (1, 1)
    s, _ = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    assert after(PLAIN, NEW, DONE, start_at=s)[1] == (Answer(2, "NEW", "done"),)


def test_a_ledger_is_dropped_when_the_mark_after_it_is_stored_and_never_the_last_one() -> None:
    steps = [NEW, DONE, to(0, "ABORTING"), DONE, ("roll_ledger",), to(0, "ABORTED"), DONE]
    s, dropped = after(PLAIN, *steps, ("trim",))
    assert (dropped, s.acks.mark, s.durable.mark) == (0, 3, 0)
    s, dropped = after(PLAIN, ("persist",), ("trim",), ("trim",), start_at=s)
    assert (dropped, s.ledgers, len(s.log)) == (0, (1,), 1)


def test_the_watermark_is_the_id_before_the_first_that_lives() -> None:
    s, watermark = after(TWO, NEW, NEW, DONE, ("low_watermark",))
    assert watermark == -1
    s, watermark = after(TWO, *commit(0), ("low_watermark",), start_at=s)
    assert watermark == 0
    s, watermark = after(TWO, *commit(1), ("low_watermark",), start_at=s)
    assert watermark == 1
    assert after(TWO, NEW, ("low_watermark",), start_at=s)[1] == 1, "transaction 2 is on its way"
    assert after(SHIPPED, ("low_watermark",), start_at=s)[1] == 0


def test_the_watermark_is_below_an_id_that_may_be_given_again() -> None:
    """An id was given, its record is not in the log, and after a crash it is given once more."""
    s, _ = after(PLAIN, NEW, ("creation_fails",))
    s, watermark = after(PLAIN, ("low_watermark",), start_at=s)
    assert (s.last_id, watermark) == (0, -1)
    s, _ = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    assert after(PLAIN, NEW, DONE, start_at=s)[1] == (Answer(0, "NEW", "done"),)


def test_a_deadline_counts_from_the_append_and_after_a_restart_from_the_call() -> None:
    s, _ = after(PLAIN, NEW, ("advance_time", 30), DONE)
    assert s.txns[0].deadline_ms == 130
    s, outcome = replayed(PLAIN, after(PLAIN, ("crash", 0), start_at=s)[0])
    assert outcome.open == (Open(0, 100),)
    assert after(PLAIN, ("advance_time", 70), ("expired",), start_at=s)[1] == ()
    assert after(PLAIN, ("advance_time", 71), ("expired",), start_at=s)[1] == (0,)


def test_the_earliest_deadline_comes_first() -> None:
    steps = [("new_transaction", 50), DONE, ("new_transaction", 5), DONE, ("new_transaction", 70), DONE]
    s, late = after(PLAIN, *steps, ("advance_time", 60), ("expired",))
    assert late == (1, 0)
    assert after(PLAIN, to(1, "ABORTING"), DONE, ("expired",), start_at=s)[1] == (0,)


# ---- bad input


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (to(1, "COMMITTING"), "no transaction 1 lives"),
        (("add_participant", 7, "ADD_PARTITION", 0), "no transaction 7 lives"),
        (DONE, "no entry is in flight"),
        (("write_fails", 0), "no entry is in flight"),
        (("replay_entry",), "the store is ready, not replaying"),
        (("replay_completes",), "the store is ready, not replaying"),
        (("read_fails",), "the store is ready, not replaying"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(step: tuple[Any, ...], said: str) -> None:
    s, _ = after(PLAIN, NEW, DONE)
    again, refusal = after(PLAIN, step, start_at=s)
    assert isinstance(refusal, Refused)
    assert refusal.why == said
    assert again is s


def test_no_more_transactions_live_than_may() -> None:
    s, refusal = after(PLAIN._replace(max_active=1), NEW, DONE, NEW)
    assert refusal == Refused("too_many", "1 transactions live")
    assert s.last_id == 0


def test_who_is_one_too_many_is_told_so_whatever_the_store_does() -> None:
    """One lives and one is in flight, which does not count; then the store stops, and while it replays none lives."""
    cfg = PLAIN._replace(max_active=1)
    s, _ = after(cfg, NEW, NEW, DONE, ("write_fails", 1))
    assert after(cfg, NEW, start_at=s)[1] == Refused("too_many", "1 transactions live")
    s, refusal = after(cfg, ("crash", 0), NEW, start_at=s)
    assert refusal == Refused("illegal_state", "the store is replaying, not ready")
    s, refusal = after(cfg, ("replay_entry",), NEW, start_at=s)
    assert refusal == Refused("too_many", "1 transactions live")


def test_an_argument_of_the_wrong_kind_is_an_error_that_names_it() -> None:
    action = SUBJECT.machine.actions["update_status"]
    with pytest.raises(BadValue, match=r"update_status.to is 'OPEN', must be one of COMMITTING, COMMITTED, ABORTING"):
        action.arguments({"txn": 0, "to": "OPEN"}, TWO)
    with pytest.raises(BadValue, match=r"max_records is -1, must be integer of 0 or more"):
        SUBJECT.machine.configure({"max_records": -1})


# ---- bytes


RECORDS = [
    Record(3, "NEW", 3, start_ms=5, timeout_ms=100),
    Record(0, "ADD_PARTITION", 3, name=12),
    Record(2**40, "ADD_SUBSCRIPTION", 2**41, name=0),
    *[Record(1, "UPDATE", 3, to=target) for target in ("COMMITTING", "COMMITTED", "ABORTING", "ABORTED")],
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.to or r.op)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert from_wire(to_wire(record)) == record


@pytest.mark.parametrize(
    ("record", "said"),
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
    ],
)
def test_a_record_that_cannot_be_ours_is_refused(record: TransactionRecord, said: str) -> None:
    with pytest.raises(BadValue) as problem:
        from_wire(record)
    assert str(problem.value) == said


@pytest.mark.parametrize("batched", [True, False])
def test_after_a_restart_an_entry_has_nothing_but_its_bytes(batched: bool) -> None:
    entry = LogEntry(tuple(RECORDS) if batched else (RECORDS[0],), batched)
    records = entry.records
    entry.forget()
    assert entry._known is None
    assert entry._data is not None
    assert is_batched(entry._data) is batched
    assert entry.records == records
    assert entry.records is not records


# ---- every state of a scope


@pytest.mark.nightly
def test_every_shipped_rule_shows_in_some_scope() -> None:
    found = explore(bounded(SUBJECT, "failures", "pulsar-2026-07"))
    assert {str(v.finding.cause) for v in found.violations} >= {
        "property:recovery_gives_what_was_promised",
        "property:the_store_has_what_the_log_says",
        "property:a_replay_is_complete_or_fails",
    }


@pytest.mark.nightly
def test_the_nightly_scope() -> None:
    found = explore(bounded(SUBJECT, "nightly"), implementation=False)
    assert (found.distinct_states, found.violations) == (67_658, [])
