"""A pending-ack handle: stateful test, worked examples, shipped defects, invalid arguments, log index and encoding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.explore.search import explore, find_space
from fuzz.run.lockstep import Lockstep
from fuzz.run.stateful import stateful_test
from fuzz.subject import Scope, find_subject
from fuzz.target import Target
from impl.pending_acks.handle import PendingAcks
from impl.pending_acks.log import Log, SparseIndex
from model.batch_acks.state import Acks, Partial
from model.machine import BadValue, Failed, Refused
from model.pending_acks import machine as m
from model.pending_acks import stats
from model.pending_acks.log_index import Key, LagBackoff, LogIndex, empty_index, next_lag, with_entry, without_acked
from model.pending_acks.machine import AckArgument, Effects, Reply
from model.pending_acks.state import (
    Config,
    CumulativeAck,
    LogRecord,
    PositionAck,
    Redelivery,
    Request,
    State,
    TxnAcks,
    start,
)
from tests.conftest import stepped

SUBJECT = find_subject("pending_acks")

TestPendingAcks = stateful_test(SUBJECT)

#: Five messages in every entry; the first acks each add a key to the log index.
FIVE = Config(batch_sizes=(5,), min_lag=1)
MASTER = m.master.config._replace(batch_sizes=(5,), min_lag=1)

OPEN: list[tuple[Any, ...]] = [("open_store",), ("end_replay",)]
WRITE: list[tuple[Any, ...]] = [("flush",), ("written",)]
CRASH = ("crash", 0)


def without(*acked: int) -> int:
    """Returns the ack set of a batch of five of which these messages are acked."""
    return 0b11111 & ~sum(1 << i for i in acked)


def ack(txn: int, *entries: tuple[int, int | None]) -> tuple[Any, ...]:
    """Returns an individual ack request."""
    return "ack_individual", txn, tuple([AckArgument(*each) for each in entries])


def replay(entries: int) -> list[tuple[Any, ...]]:
    """Returns the steps of a replay of this number of log entries."""
    return [("open_store",), *[("read_entry",)] * entries, ("end_replay",)]


def after(cfg: Config, *steps: tuple[Any, ...], start_at: State | None = None) -> tuple[State, Any]:
    """Returns the state after some actions, and the last outcome. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.pending_acks, cfg, steps, start_at, PendingAcks)
    return s, outcomes[-1]


def done(request: int) -> Effects:
    """Returns the effects of one request that completes."""
    return Effects((Reply(request, "done"),), (), 0)


# ---- commit, abort, conflicts -------------------------------------------------------------------------


def test_commit_acknowledges_pending_acks() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, without(0, 1)), (1, None)), *WRITE, ("commit", 1, 0), *WRITE)
    assert outcome == done(2)
    assert s.cursor == Acks(0, 0b10, (Partial(0, without(0, 1)),))
    assert (s.individual_acks, s.durable_cursor) == ((), Acks())
    acks = PositionAck(0, without(0, 1)), PositionAck(1, None)
    assert s.log == ((LogRecord("ack", False, 1, acks),), (LogRecord("commit", False, 1, ()),))


def test_abort_redelivers_only_its_own_batch_indexes() -> None:
    """Pulsar issues #14327 and #19581."""
    acks = ack(1, (0, without(0, 1))), ack(2, (0, without(2, 3, 4)))
    s, outcome = after(FIVE, *OPEN, *acks, *WRITE, ("abort", 2, 0), *WRITE)
    assert outcome == Effects((Reply(3, "done"),), (Redelivery(0, 0b11100),), 0)
    assert s.individual_acks == (TxnAcks(1, (PositionAck(0, without(0, 1)),)),)


def test_abort_redelivers_no_message_of_a_cumulative_ack() -> None:
    """Consumers ask for these messages (#14371). Master also leaves the individual acks of the transaction pending."""
    acks = ack(1, (0, without(2))), ("ack_cumulative", 1, 1, None)
    steps = [*OPEN, *acks, *WRITE, ("abort", 1, 0), *WRITE]
    s, outcome = after(FIVE, *steps)
    assert (outcome.redelivered, s.individual_acks, s.cumulative_ack) == ((Redelivery(0, 0b100),), (), None)
    s, outcome = after(MASTER, *steps)
    assert (outcome.redelivered, len(s.individual_acks), s.cumulative_ack) == ((), 1, None)


def test_released_message_can_be_acked_again() -> None:
    """Two transactions share an entry and no ack set (#16032)."""
    s, _ = after(FIVE, *OPEN, ack(1, (0, without(0))), ack(2, (0, without(1))), *WRITE)
    s, outcome = after(FIVE, ("commit", 1, 0), ("abort", 2, 0), *WRITE, ack(3, (0, without(1))), start_at=s)
    assert outcome == Reply(5, "queued")


def test_records_of_an_entry_are_applied_in_order() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, None)), ("commit", 1, 0), ("abort", 1, 0), *WRITE)
    assert outcome == Effects(tuple([Reply(n, "done") for n in (1, 2, 3)]), (), 0)
    assert [len(entry) for entry in s.log] == [3]
    assert s.cursor.first_unacked == 1


def test_without_batched_writes_each_record_is_an_entry() -> None:
    cfg = FIVE._replace(batched_writes=False)
    s, outcome = after(cfg, *OPEN, ack(1, (0, None)), ("commit", 1, 0), ("written",), ("written",), ("flush",))
    assert isinstance(outcome, Refused)
    assert [len(entry) for entry in s.log] == [1, 1]


def test_unlogged_ack_conflicts() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, without(0))), ack(2, (0, without(0, 1))))
    assert outcome == Failed("conflict", "a message of entry 0 is pending")
    assert len(s.buffer) == 1


@pytest.mark.parametrize("logged", [WRITE, []])
@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (
            ack(1, (2, None)),
            ("ack_cumulative", 2, 2, without(0)),
            "another transaction has a pending ack at or before entry 2",
        ),
        (
            ack(1, (0, without(4))),
            ("ack_cumulative", 2, 2, None),
            "another transaction has a pending ack at or before entry 2",
        ),
        (ack(1, (2, without(1))), ("ack_cumulative", 2, 2, without(0)), ""),
        (ack(1, (3, None)), ("ack_cumulative", 2, 2, None), ""),
        (ack(2, (1, None)), ("ack_cumulative", 2, 2, None), ""),
        (
            ("ack_cumulative", 1, 2, without(0)),
            ack(2, (2, without(0, 1))),
            "transaction 1 has a cumulative ack of entry 2",
        ),
        (
            ("ack_cumulative", 1, 2, without(0)),
            ack(2, (1, without(4))),
            "transaction 1 has a cumulative ack of entry 1",
        ),
        (("ack_cumulative", 1, 2, without(0)), ack(2, (2, without(1))), ""),
        (("ack_cumulative", 1, 2, without(0)), ack(1, (1, None)), ""),
    ],
)
def test_ack_types_conflict_message_by_message(first: Any, second: Any, why: str, logged: list[Any]) -> None:
    """A message is pending in at most one transaction, whatever the types of the acks (#4265)."""
    _, outcome = after(FIVE, *OPEN, first, *logged, second)
    assert outcome == (Failed("conflict", why) if why else Reply(2, "queued"))


def test_replay_drops_the_later_of_two_conflicting_acks() -> None:
    """The log of a broker that does not compare ack types has both."""
    individual = LogRecord("ack", False, 1, (PositionAck(1, None),))
    cumulative = LogRecord("ack", True, 2, (PositionAck(2, None),))
    for records in ((individual, cumulative), (cumulative, individual)):
        s = start(FIVE)._replace(log=tuple([(each,) for each in records]))
        s, _ = after(FIVE, *replay(2), start_at=s)
        assert [t.txn for t in s.individual_acks] == [each.txn for each in records[:1] if not each.cumulative]
        assert (s.cumulative_ack is None) == (not records[0].cumulative)


def test_replay_drops_a_conflicting_ack_of_the_same_type() -> None:
    """The log of a broker that appends before it checks has rejected acks."""
    records = tuple([LogRecord("ack", False, txn, (PositionAck(0, without(0)),)) for txn in (1, 2)])
    s, _ = after(FIVE, *replay(1), start_at=start(FIVE)._replace(log=(records,)))
    assert [t.txn for t in s.individual_acks] == [1]


# ---- log, crash, replay -------------------------------------------------------------------------------


def test_log_is_trimmed_with_the_next_append() -> None:
    """An idle handle keeps log entries that could be deleted."""
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), *WRITE, ("persist",))
    assert (s.log_index.keys, len(s.log)) == ((Key(0, 0),), 2)
    s, outcome = after(FIVE, ("abort", 2, 0), *WRITE, start_at=s)
    assert outcome.trimmed == 1
    assert (s.log_index.keys, len(s.log)) == ((), 2)


def test_replay_restores_what_a_crash_loses() -> None:
    acks = ack(1, (0, without(0)), (1, None)), ack(2, (2, without(4))), ("ack_cumulative", 2, 3, without(0, 1))
    s, _ = after(FIVE, *OPEN, ack(1, (0, without(0)), (1, None)), *WRITE, ("commit", 1, 0), *WRITE, *acks[1:], *WRITE)
    restored, _ = after(FIVE, CRASH, *replay(3), start_at=s)
    assert restored.cursor == s.cursor
    assert restored.individual_acks == s.individual_acks == (TxnAcks(2, (PositionAck(2, without(4)),)),)
    assert restored.cumulative_ack == s.cumulative_ack == CumulativeAck(2, PositionAck(3, without(0, 1)))


def test_low_watermark_aborts_all_transactions_below_it() -> None:
    """Pulsar issues #15530 and #15592."""
    acks = [ack(txn, (txn, None)) for txn in (5, 1, 2, 3)]
    s, _ = after(FIVE, *OPEN, *acks, *WRITE, ("commit", 4, 3), *WRITE, *WRITE)
    assert [t.txn for t in s.individual_acks] == [5]


def test_replay_restores_aborts_of_a_low_watermark() -> None:
    acks = [ack(txn, (txn, None)) for txn in (1, 2, 3, 4)]
    s, _ = after(FIVE, *OPEN, *acks, *WRITE, ("commit", 3, 2), *WRITE, *WRITE, ("persist",), CRASH, *replay(3))
    assert [t.txn for t in s.individual_acks] == [4]
    assert s.cursor == Acks(0, 0b1000, ())


def test_queued_requests_are_submitted_in_order() -> None:
    s, outcome = after(FIVE, ack(1, (0, None)), ("commit", 1, 0), ack(2, (0, without(1))), ("end_replay",))
    assert outcome == Effects((Reply(3, "conflict"),), (), 0)
    assert [request.record.op for request in s.buffer] == ["ack", "commit"]


def test_entry_after_a_failed_append_is_replayed() -> None:
    steps = [*OPEN, ack(1, (0, None)), ("flush",), ack(2, (1, None)), ("flush",), ack(3, (2, None))]
    s, outcome = after(FIVE, *steps, ("write_fails", False))
    assert outcome.replies == (Reply(1, "failed"), Reply(3, "failed"))
    s, outcome = after(FIVE, ("written",), start_at=s)
    assert outcome.replies == (Reply(2, "failed"),)
    s, _ = after(FIVE, *replay(1), start_at=s)
    assert s.individual_acks == (TxnAcks(2, (PositionAck(1, None),)),)


def test_commit_that_the_cursor_rejects_is_replayed() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), ("flush",), ("cursor_refuses",))
    assert (outcome.replies, s.status, s.cursor) == ((Reply(2, "failed"),), "error", Acks())
    s, _ = after(FIVE, *replay(2), start_at=s)
    assert (s.cursor.first_unacked, s.individual_acks) == (1, ())


def test_replay_fails_after_max_failed_reads() -> None:
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, CRASH, ("commit", 1, 0))
    s, outcome = after(FIVE, *[("read_fails", False)] * 2, start_at=s)
    assert (outcome, s.status) == (m.NOTHING, "initializing")
    s, outcome = after(FIVE, ("read_fails", False), start_at=s)
    assert (outcome.replies, s.status) == ((Reply(2, "failed"),), "error")


# ---- rules of shipped versions and proposals ----------------------------------------------------------


def test_master_accepts_acks_of_both_types() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, ("ack_cumulative", 2, 1, None), *WRITE, ("abort", 1, 0), *WRITE]
    s, outcome = after(MASTER, *steps[:-3])
    assert (outcome, len(s.individual_acks), s.cumulative_ack is not None) == (done(2), 1, True)
    s, outcome = after(MASTER._replace(commit_and_abort_cover_both_types=True), *steps, ("commit", 2, 0), *WRITE)
    assert (s.cursor.first_unacked, outcome.redelivered) == (2, ())


def test_master_acks_the_whole_batch_after_replay_of_a_cumulative_ack() -> None:
    steps = [*OPEN, ("ack_cumulative", 1, 0, without(0, 1)), *WRITE, CRASH, *replay(1), ("commit", 1, 0), *WRITE]
    assert after(FIVE, *steps)[0].cursor == Acks(0, 0, (Partial(0, without(0, 1)),))
    assert after(MASTER, *steps)[0].cursor == Acks(1, 0, ())


def test_master_ends_another_cumulative_ack_in_replay() -> None:
    steps = [*OPEN, ("ack_cumulative", 1, 0, None), *WRITE, ("abort", 2, 0), *WRITE]
    pending = CumulativeAck(1, PositionAck(0, None))
    assert [after(cfg, *steps)[0].cumulative_ack for cfg in (FIVE, MASTER)] == [pending, pending]
    assert [after(cfg, *steps, CRASH, *replay(2))[0].cumulative_ack for cfg in (FIVE, MASTER)] == [pending, None]


def test_master_ignores_a_commit_beside_a_cumulative_ack() -> None:
    steps = [*OPEN, ack(2, (3, None)), ("ack_cumulative", 1, 0, None), *WRITE, ("commit", 2, 0)]
    s, outcome = after(MASTER, *steps)
    assert (outcome, s.buffer) == (Reply(3, "done"), ())
    s, _ = after(FIVE, *steps, *WRITE)
    assert s.cursor == Acks(0, 0b1000, ())


def test_master_never_completes_a_batch_index_ack_of_a_pending_entry() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, ack(2, (0, without(0)))]
    assert after(FIVE, *steps)[1] == Failed("conflict", "a message of entry 0 is pending")
    s, outcome = after(MASTER, *steps, *WRITE)
    assert outcome == m.NOTHING
    assert [t.txn for t in s.individual_acks] == [1]


def test_master_is_ready_after_a_stopped_replay() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, CRASH, ("open_store",), ("read_fails", True)]
    assert [after(cfg, *steps)[0].status for cfg in (FIVE, MASTER)] == ["error", "ready"]
    s, outcome = after(MASTER, *steps[:-1], *[("read_fails", False)] * 9)
    assert (outcome, s.status, s.failed_reads) == (m.NOTHING, "initializing", 0), "a read is retried forever"
    assert after(MASTER._replace(stopped_replay_fails=True), *steps)[0].status == "error"


def test_master_drops_a_committed_list_in_replay() -> None:
    steps = [*OPEN, ("acknowledge", 0, None), ("persist",)]
    acks = PositionAck(0, None), PositionAck(1, None)
    log = ((LogRecord("ack", False, 1, acks),), (LogRecord("commit", False, 1, ()),))
    for cfg, first_unacked in ((FIVE, 2), (MASTER, 1)):
        s = after(cfg, *steps, CRASH)[0]._replace(log=log)
        assert after(cfg, *replay(2), start_at=s)[0].cursor.first_unacked == first_unacked


def test_master_spins_in_replay_with_a_kept_cursor() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, CRASH, *replay(1), ("close",), ("open_store",), ("read_entry",)]
    assert after(FIVE, *steps)[1] == 0
    s, outcome = after(MASTER, *steps)
    assert isinstance(outcome, Failed)
    assert after(MASTER, ("read_entry",), start_at=s)[0] == s
    assert isinstance(after(MASTER, ("end_replay",), start_at=s)[1], Refused)


def test_master_hides_overlaps_in_trimmed_words() -> None:
    """The union of the pending ack sets of an entry has no words once every batch index is pending."""
    cfg = MASTER._replace(batch_sizes=(4,))
    steps = [*OPEN, ack(1, (0, 0b1100)), *WRITE, ack(2, (0, 0b0011)), *WRITE, ack(3, (0, 0b1110)), *WRITE]
    s, outcome = after(cfg, *steps)
    assert outcome.replies == (Reply(3, "done"),)
    acks = (1, 0b1100), (2, 0b0011), (3, 0b1110)
    assert s.individual_acks == tuple([TxnAcks(n, (PositionAck(0, each),)) for n, each in acks])
    assert after(cfg, *steps[:-6], *steps[-3:])[1].replies == (Reply(2, "conflict"),)
    reference = FIVE._replace(batch_sizes=(4,))
    assert after(reference, *steps[:-2])[1] == Failed("conflict", "a message of entry 0 is pending")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_master_applies_low_watermarks_after_individual_acks_only(end: str) -> None:
    steps = [*OPEN, ack(1, (3, None)), ("ack_cumulative", 3, 0, None), *WRITE, (end, 3, 2), *WRITE]
    s, _ = after(FIVE, *steps)
    assert (s.low_watermark, [request.record.txn for request in s.buffer]) == (2, [1])
    s, _ = after(MASTER, *steps)
    assert (s.low_watermark, s.buffer, s.cumulative_ack) == (0, (), None)


def test_master_aborts_transactions_below_the_low_watermark_one_by_one() -> None:
    """The transaction that acked first is aborted first. The abort of transaction 7 is a request, and no such abort."""
    steps = [*OPEN, *[ack(txn, (txn, None)) for txn in (2, 1, 5, 4, 6)], *WRITE]
    s, _ = after(MASTER, *steps, ("commit", 4, 2), ("commit", 6, 2), ("flush",), ("abort", 7, 0), ("written",))
    for waiting in ([7, 2], [1], []):
        assert (s.low_watermark, [request.record.txn for request in s.buffer]) == (2, waiting)
        s, _ = after(MASTER, *(WRITE if waiting else []), start_at=s)
    assert [t.txn for t in s.individual_acks] == [5]


def test_master_applies_acks_whose_append_failed() -> None:
    fails = [("flush",), ("write_fails", False)]
    s, outcome = after(MASTER, *OPEN, ack(1, (0, None)), *fails)
    pending = (TxnAcks(1, (PositionAck(0, None),)),)
    assert (outcome.replies, s.status, s.individual_acks) == ((Reply(1, "failed"),), "ready", pending)
    again, outcome = after(MASTER, ack(2, (0, without(0))), *fails, start_at=s)
    assert (outcome.replies, again.individual_acks) == ((), pending), "the future never completes"
    again, outcome = after(MASTER, ("commit", 1, 0), *fails, start_at=s)
    assert (outcome.replies, again.individual_acks) == ((Reply(2, "failed"),), pending)
    owner, entry, ack_set = 2, 2, without(0, 1)
    s, _ = after(MASTER, *OPEN, ("ack_cumulative", owner, entry, without(0)), *fails)
    for txn, last, left, is_further in (
        (2, 2, ack_set, True),
        (2, 1, None, False),
        (1, 5, None, False),
        (3, 5, None, False),
    ):
        s, outcome = after(MASTER, ("ack_cumulative", txn, last, left), *fails, start_at=s)
        assert [reply.result for reply in outcome.replies] == ["failed"], is_further
        assert s.cumulative_ack == CumulativeAck(owner, PositionAck(entry, ack_set))


@pytest.mark.parametrize(
    ("pending", "asked", "result"),
    [(range(64, 130), 64, "done"), (range(63, 130), 63, "conflict"), ([64], 64, "conflict")],
)
def test_master_compares_the_words_of_the_pending_ack_set(pending: Any, asked: int, result: str) -> None:
    """Messages 64 and later are in further words; trailing zero words are dropped."""
    cfg, everything = MASTER._replace(batch_sizes=(130,)), 2**130 - 1
    first = ack(1, (0, everything & ~sum(1 << i for i in pending)))
    _, outcome = after(cfg, *OPEN, first, *WRITE, ack(2, (0, everything & ~(1 << asked))), *WRITE)
    assert outcome.replies == (Reply(2, result),)  # type: ignore[arg-type]


def test_each_rule_differs_in_a_shipped_version() -> None:
    def changed(one: Config, other: Config) -> list[str]:
        return [name for name in m.pending_acks.rules if getattr(one, name) != getattr(other, name)]

    reference, master, before = m.reference.config, m.master.config, m.before_25528.config
    assert {*m.pending_acks.rules} - {*changed(master, reference)} == {"empty_ack_set_acks_entry", "log_deletion"}
    assert changed(before, master) == ["rejected_commit"]
    assert changed(m.before_24406.config, before) == ["empty_ack_set_acks_entry"]
    assert changed(m.pulsar_5_0.config, master) == ["replay_rewinds"]
    assert changed(m.pip_160.config, reference) == ["log_deletion"]


def test_master_restores_a_rejected_ack() -> None:
    steps = [*OPEN, ("acknowledge", 0, None), ack(1, (0, None)), *WRITE, CRASH, *replay(1)]
    assert after(MASTER, *steps)[0].individual_acks == (TxnAcks(1, (PositionAck(0, None),)),)
    assert after(FIVE, *steps[:4])[1] == Failed("conflict", "entry 0 is acknowledged")


def test_empty_ack_set_was_ignored_before_24406() -> None:
    first_unacked = []
    for profile in (m.reference, m.before_24406):
        steps = [*OPEN, ack(1, (0, 0b10)), *WRITE, ack(1, (0, 0b01)), *WRITE, ("commit", 1, 0), *WRITE]
        cfg = profile.config._replace(batch_sizes=(2,), batch_index_acks=False)
        first_unacked.append(after(cfg, *steps)[0].cursor.first_unacked)
    assert first_unacked == [1, 0]


def test_rejected_commit_was_dropped_before_25528() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), ("flush",), ("cursor_refuses",)]
    s, outcome = after(m.before_25528.config._replace(batch_sizes=(5,)), *steps)
    assert (outcome, s.individual_acks, s.cursor) == (done(2), (), Acks())
    s, outcome = after(MASTER, *steps)
    assert (outcome.replies, len(s.individual_acks)) == ((Reply(2, "failed"),), 1)


def test_pip_160_loses_a_commit_whose_records_are_deleted() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, ack(2, (1, None)), ("commit", 1, 0), *WRITE]
    s, outcome = after(m.pip_160.config, *steps)
    assert (outcome.trimmed, [record.txn for entry in s.log for record in entry]) == (1, [2])
    read, deleted = after(m.pip_160.config, CRASH, ("open_store",), ("read_entry",), start_at=s)
    assert (read.log, deleted) == (s.log, 0), "a replay deletes at its end"
    assert after(m.pip_160.config, ("end_replay",), start_at=read)[0].cursor == Acks()
    s, _ = after(FIVE, *steps)
    assert after(FIVE, CRASH, *replay(2), start_at=s)[0].cursor == Acks(1, 0, ())


#: A scope with one ack, and with the actions that open, read and close.
TINY = Scope(
    actions=("ack_individual", "written", "close", "open_store", "read_entry", "end_replay", "read_fails"),
    settings={"batch_sizes": (1,), "min_lag": 1, "batched_writes": False},
    domains={"txn": (1,), "acks": ((AckArgument(0, None),),), "stops": (False,)},
    bounds={"records": 1},
    reasons={},
)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"replay_rewinds": True}, None),
        ({"replay_rewinds": False}, "replay_ends"),
        ({"failed_reads_are_bounded": False}, "replay_with_failing_reads_ends"),
    ],
)
def test_explorer_finds_a_replay_that_does_not_end(settings: dict[str, Any], name: str | None) -> None:
    tiny = replace(TINY, settings=dict(TINY.settings) | settings)
    found = explore(find_space(replace(SUBJECT, scopes={"tiny": tiny}), "tiny"))
    assert (name in [lasso.name for lasso in found.lassos]) == (name is not None)
    assert (found.violations == []) == (name is None)
    assert found.lassos == [] or name is not None


# ---- admin statistics ---------------------------------------------------------------------------------


def test_batch_log_stat_is_that_of_pip_160() -> None:
    empty = {"txnPendingAckBatchLogEnabled": True, "subscriptionArray": []}
    assert stats.batch_log_stat(FIVE, start(FIVE), "my-topic", "my-subscription-1") == empty
    cfg = FIVE._replace(batched_writes=False)
    opened = {"txnPendingAckBatchLogEnabled": False, "subscriptionArray": [{"my-topic-my-subscription-1": False}]}
    assert stats.batch_log_stat(cfg, after(cfg, *OPEN)[0], "my-topic", "my-subscription-1") == opened


def test_shipped_statistics() -> None:
    acks = ack(1, (2, without(0))), ("ack_cumulative", 2, 0, without(0)), ("acknowledge", 1, without(4))
    s, _ = after(FIVE, *OPEN, *acks, *WRITE, ("commit", 3, 0), *WRITE)
    assert stats.pending_ack_stats(FIVE, s) == {"state": "Ready", "lowWaterMarks": None, "ongoingTxnSize": 1}
    assert stats.transaction_stats(FIVE, s, 2) == {"cumulativeAckPosition": "1:0:0"}
    assert stats.transaction_stats(FIVE, s, 1) == stats.transaction_stats(FIVE, s, 3) == {"cumulativeAckPosition": None}
    found = {
        (0, 0): "PendingAck",
        (0, 1): "NotInPendingAck",
        (1, 4): "MarkDelete",
        (1, 3): "NotInPendingAck",
        (1, 0): "NotInPendingAck",
        (3, 0): "NotInPendingAck",
        (3, None): "NotInPendingAck",
        (2, None): "PendingAck",
        (2, 1): "NotInPendingAck",
    }
    assert {each: stats.position_stats(FIVE, s, *each)["state"] for each in found} == found
    assert stats.position_stats(MASTER, s, 0, 0) == {"state": "NotInPendingAck"}
    closed, _ = after(FIVE, ("close",), start_at=s)
    assert stats.pending_ack_stats(FIVE, closed)["state"] == "Close"
    assert stats.position_stats(FIVE, closed, 2, None) == {"state": "PendingAckNotReady"}


# ---- invalid arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (ack(1), "acks is empty"),
        (ack(1, (0, None), (0, without(1))), "acks names an entry twice"),
        (ack(1, (0, 0b11111)), "the ack set of entry 0 acks nothing or has a bit after the batch"),
        (ack(1, (2, 1 << 7)), "the ack set of entry 2 acks nothing or has a bit after the batch"),
        (("ack_cumulative", 1, 0, without(1)), "ack_set is 29, which does not leave the tail of the batch"),
        (("crash", 1), "fewer than 1 entries are in flight"),
        (("written",), "no entry is in flight"),
        (("write_fails", True), "no entry is in flight"),
        (("read_fails", True), "there is nothing to read"),
        (("close",), "the handle is not open"),
    ],
)
def test_invalid_step_is_refused(step: tuple[Any, ...], why: str) -> None:
    s, outcome = after(FIVE, step)
    assert isinstance(outcome, Refused)
    assert outcome.why == why
    assert s == start(FIVE)


def test_handle_in_error_fails_requests_until_it_is_opened() -> None:
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), ("flush",), ("write_fails", True))
    s, outcome = after(FIVE, ("commit", 1, 0), start_at=s)
    assert outcome == Refused("not_ready", "the status of the handle is error or closed; open it first")
    s, _ = after(FIVE, *replay(1), start_at=s)
    assert s.individual_acks == (TxnAcks(1, (PositionAck(0, None),)),)


# ---- log index and encoding ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (LagBackoff(500), [500, 500, 1000, 1500, 2000]),
        (LagBackoff(2, None, 2), [2, 2, 8, 18, 32]),
        (LagBackoff(2, 9, 2), [2, 2, 8, 9, 9]),
        (LagBackoff(5, 3), [5, 3, 3, 3, 3]),
    ],
)
def test_next_lag_has_maximum_and_exponent(backoff: LagBackoff, expected: list[int]) -> None:
    assert [next_lag(backoff, keys) for keys in range(5)] == expected
    index = SparseIndex(*backoff)
    found = [index.max_index_lag]
    for n in range(4):
        index.add(100_000, n, n)
        found.append(index.max_index_lag)
    assert found == expected


def test_lag_grows_with_the_number_of_keys() -> None:
    backoff = LagBackoff(2)
    index, added = empty_index(backoff), []
    for n in range(40):
        before = len(index.keys)
        index = with_entry(backoff, index, 1, n, n)
        added += [n] if len(index.keys) > before else []
    assert added == [1, 3, 7, 13, 21, 31]
    index, trimmed = without_acked(backoff, index, 8)
    assert (trimmed, index.max_index_lag) == (8, 6)
    assert index.keys == (Key(13, 5), Key(21, 13), Key(31, 23))


def test_commits_and_aborts_add_no_key() -> None:
    backoff = LagBackoff(2)
    index = with_entry(backoff, with_entry(backoff, empty_index(backoff), 1, -1, 0), 5, -1, 1)
    assert index == LogIndex(6, 2, -1, ())
    assert with_entry(backoff, index, 1, 3, 2) == LogIndex(0, 2, 3, (Key(3, 2),))


def test_new_handle_has_not_been_opened() -> None:
    assert start(Config()) == State(
        cursor=Acks(0, 0, ()),
        durable_cursor=Acks(0, 0, ()),
        log=(),
        read_position=0,
        log_index=LogIndex(0, 500, -1, ()),
        status="none",
        replayed=0,
        failed_reads=0,
        accept_queue=(),
        buffer=(),
        in_flight=(),
        individual_acks=(),
        cumulative_ack=None,
        low_watermark=0,
        next_request=1,
    )


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 128])
def test_encoded_log_is_decoded(size: int, batched: bool) -> None:
    ack_sets = [None, *[each for each in (1, 2**size - 2, 2 ** (size - 1)) if 0 < each < 2**size - 1]]
    acks = tuple([PositionAck(n, each) for n, each in enumerate(ack_sets)])
    ends = LogRecord("ack", True, 7, acks[-1:]), LogRecord("abort", True, 1, ())
    records = LogRecord("ack", False, 2**63, acks), *ends
    entries = (records,) if batched else tuple([(each,) for each in records])
    log = Log((size,), batched)
    for entry in entries:
        log.append(entry)
    log.encode()
    assert log.view() == entries
    assert tuple([log.read(n) for n in range(log.end)]) == entries


def test_canonical_form_numbers_requests_in_order() -> None:
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), ("flush",), ("abort", 2, 0))
    renumbered = m.pending_acks.canonical(FIVE, s)
    assert (s.next_request, renumbered.next_request) == (4, 3)
    assert renumbered.in_flight == ((Request(1, LogRecord("commit", False, 1, ()), 0),),)
    assert [request.number for request in renumbered.buffer] == [2]


def test_observation_of_a_handle() -> None:
    """Entry 0, message 0 of entry 1, entry 2 and message 1 of entry 5 are acknowledged; two transactions have acks."""
    cfg = Config(batch_sizes=(2,))
    request = Request(7, LogRecord("commit", False, 3, ()), 0)
    s = start(cfg)._replace(
        cursor=Acks(1, 0b100, (Partial(1, 0b10), Partial(5, 0b01))),
        status="ready",
        log=((), ()),
        individual_acks=(TxnAcks(3, (PositionAck(4, 0b01),)),),
        cumulative_ack=CumulativeAck(5, PositionAck(3, None)),
        accept_queue=(request,),
        buffer=(request,),
    )
    s = s._replace(log_index=s.log_index._replace(keys=(Key(2, 0),)))
    assert m.pending_acks.observe(cfg, s) == {
        "status": "ready",
        "first_unacked": 1,
        "durable_first_unacked": 0,
        "acknowledged": [[1, 0b01], [2, 0b11], [5, 0b10]],
        "pending": [[3, [[4, 0b10]]]],
        "cumulative": [5, 3, 0b11],
        "log_entries": 2,
        "index": [[2, 0]],
        "requests": 2,
    }
    assert m.pending_acks.observe(cfg, start(cfg))["cumulative"] is None


@pytest.mark.parametrize(
    "settings", [{"min_lag": 0}, {"batch_sizes": [0]}, {"overlap_check": "words"}, {"max_failed_reads": 0}]
)
def test_invalid_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match=f"pending_acks.{next(iter(settings))}"):
        m.pending_acks.configure(settings)


RULES = [
    (name, getattr(profile.config, name))
    for profile in (m.before_24406, m.pip_160, m.master)
    for name in m.pending_acks.rules
    if getattr(profile.config, name) != getattr(m.reference.config, name)
]


@pytest.mark.nightly
@pytest.mark.parametrize(("rule", "value"), sorted(set(RULES), key=str))
def test_each_rule_alone_breaks_a_property(rule: str, value: Any) -> None:
    """Every rule but one violates a property alone.

    The exception, `replay_checks_cumulative_owner`, matters only if `commit_and_abort_cover_both_types` is false, too.
    """
    lockstep = Lockstep(Target(SUBJECT, m.reference.config._replace(**{rule: value})))
    seeds = 300 if rule != "replay_checks_cumulative_owner" else 40
    findings = [finding for finding in map(lockstep.run, range(seeds)) if finding is not None]
    assert {finding.cause.kind for finding in findings} <= {"property"}
    assert bool(findings) == (rule != "replay_checks_cumulative_owner")
