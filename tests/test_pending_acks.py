"""A pending-ack store: stateful tests, bad input, worked examples, and what the shipped rules do to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.explore.search import bounded, explore
from fuzz.run.lockstep import Lockstep
from fuzz.run.stateful import stateful_test
from fuzz.subject import Scope, find_subject
from fuzz.target import Target
from impl.pending_acks.handle import PendingAcks
from impl.pending_acks.log import Log
from model.batch_acks.state import Acks, Partial
from model.machine import BadValue, Failed, Refused
from model.pending_acks import machine as m
from model.pending_acks.log_index import Key, LogIndex, cleared, counted, empty_index
from model.pending_acks.machine import AckOf, Answer, Effects
from model.pending_acks.state import Call, Config, Cumulative, Holder, Messages, Part, Record, State, start

SUBJECT = find_subject("pending_acks")

TestPendingAcks = stateful_test(SUBJECT)

#: Five messages in every entry, a key of the index for every acknowledgement.
FIVE = Config(batch_sizes=(5,), min_lag=1)
SHIPPED = m.shipped.config._replace(batch_sizes=(5,), min_lag=1)

OPEN: list[tuple[Any, ...]] = [("open_store",), ("end_replay",)]
WRITE: list[tuple[Any, ...]] = [("flush",), ("written",)]
CRASH = ("crash", 0)


def leaves(*acknowledged: int) -> int:
    """What is left of a batch of five of which these messages are acknowledged."""
    return 0b11111 & ~sum(1 << i for i in acknowledged)


def ack(txn: int, *entries: tuple[int, int | None]) -> tuple[Any, ...]:
    """A request of a transaction that acknowledges entries, whole or in part."""
    return "ack_individual", txn, tuple([AckOf(*each) for each in entries])


def replay(entries: int) -> list[tuple[Any, ...]]:
    """The store is opened, and reads so many entries of its log."""
    return [("open_store",), *[("read_entry",)] * entries, ("end_replay",)]


def after(cfg: Config, *steps: tuple[Any, ...], start_at: State | None = None) -> tuple[State, Any]:
    """The state after some actions, and the last one's outcome, of the model and of the implementation."""
    s, outcome = start_at or start(cfg), None
    body = PendingAcks.load(cfg, s)
    for name, *arguments in steps:
        s, outcome = m.pending_acks.step(cfg, s, name, tuple(arguments))
        assert getattr(body, name)(*arguments) == outcome
        assert body.view() == s
        assert body.check() == []
    return s, outcome


def done(ticket: int) -> Effects:
    """One caller is told of success, and nothing else happens."""
    return Effects((Answer(ticket, "done"),), (), 0)


# ---- worked examples ----------------------------------------------------------------------------------


def test_a_commit_acknowledges_what_the_transaction_holds() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, leaves(0, 1)), (1, None)), *WRITE, ("commit", 1, 0), *WRITE)
    assert outcome == done(2)
    assert s.acks == Acks(0, 0b10, (Partial(0, leaves(0, 1)),))
    assert (s.held, s.durable) == ((), Acks())
    assert s.log == (
        (Record("ack", False, 1, (Part(0, leaves(0, 1)), Part(1, None))),),
        (Record("commit", False, 1, ()),),
    )


def test_an_abort_redelivers_only_what_nobody_else_holds() -> None:
    """One transaction holds two messages of a batch, the other three: only these come again (#14327, #19581)."""
    s, outcome = after(
        FIVE, *OPEN, ack(1, (0, leaves(0, 1))), ack(2, (0, leaves(2, 3, 4))), *WRITE, ("abort", 2, 0), *WRITE
    )
    assert outcome == Effects((Answer(3, "done"),), (Messages(0, 0b11100),), 0)
    assert s.held == (Holder(1, (Part(0, leaves(0, 1)),)),)


def test_a_message_that_was_released_can_be_acknowledged_again() -> None:
    """The sets of two transactions are not one (#16032)."""
    s, _ = after(FIVE, *OPEN, ack(1, (0, leaves(0))), ack(2, (0, leaves(1))), *WRITE)
    s, outcome = after(FIVE, ("commit", 1, 0), ("abort", 2, 0), *WRITE, ack(3, (0, leaves(1))), start_at=s)
    assert outcome == Answer(5, "waits")


def test_records_share_an_entry_and_are_called_back_in_order() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, None)), ("commit", 1, 0), ("abort", 1, 0), *WRITE)
    assert outcome == Effects(tuple([Answer(n, "done") for n in (1, 2, 3)]), (), 0)
    assert [len(entry) for entry in s.log] == [3]
    assert s.acks.mark == 1


def test_without_batching_each_record_is_an_entry() -> None:
    cfg = FIVE._replace(batching=False)
    s, outcome = after(cfg, *OPEN, ack(1, (0, None)), ("commit", 1, 0), ("written",), ("written",), ("flush",))
    assert isinstance(outcome, Refused)
    assert [len(entry) for entry in s.log] == [1, 1]


def test_messages_on_their_way_are_taken() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, leaves(0))), ack(2, (0, leaves(0, 1))))
    assert outcome == Failed("conflict", "a message of entry 0 is pending")
    assert len(s.buffer) == 1


def test_the_log_is_trimmed_when_the_next_entry_comes() -> None:
    """A mark that has become durable takes nothing away before an entry is written: what is idle keeps its log."""
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), *WRITE, ("persist",))
    assert (s.log_index.keys, len(s.log)) == ((Key(0, 0),), 2)
    s, outcome = after(FIVE, ("abort", 2, 0), *WRITE, start_at=s)
    assert outcome.trimmed == 1
    assert (s.log_index.keys, len(s.log)) == ((), 2)


def test_a_crash_forgets_and_a_replay_finds_again() -> None:
    acks = ack(1, (0, leaves(0)), (1, None)), ack(2, (2, leaves(4))), ("ack_cumulative", 3, 3, leaves(0, 1))
    s, _ = after(FIVE, *OPEN, *acks, *WRITE, ("commit", 1, 0), *WRITE)
    again, _ = after(FIVE, CRASH, *replay(2), start_at=s)
    assert (again.acks, again.held, again.cumulative) == (s.acks, s.held, s.cumulative)
    assert again.held == (Holder(2, (Part(2, leaves(4)),)),)
    assert again.cumulative == Cumulative(3, Part(3, leaves(0, 1)))


def test_stale_transactions_are_aborted_and_the_others_stay() -> None:
    """Three that are stale, and one that is not (#15530, #15592)."""
    acks = [ack(txn, (txn, None)) for txn in (5, 1, 2, 3)]
    s, _ = after(FIVE, *OPEN, *acks, *WRITE, ("commit", 4, 3), *WRITE, *WRITE)
    assert [holder.txn for holder in s.held] == [5]


def test_requests_wait_for_the_replay_in_order() -> None:
    s, outcome = after(FIVE, ack(1, (0, None)), ("commit", 1, 0), ack(2, (0, leaves(1))), ("end_replay",))
    assert outcome == Effects((Answer(3, "conflict"),), (), 0)
    assert [call.record.op for call in s.buffer] == ["ack", "commit"]


def test_an_entry_after_one_that_failed_counts_when_it_is_read() -> None:
    steps = [*OPEN, ack(1, (0, None)), ("flush",), ack(2, (1, None)), ("flush",), ack(3, (2, None))]
    s, outcome = after(FIVE, *steps, ("write_fails", False))
    assert outcome.answers == (Answer(1, "failed"), Answer(3, "failed"))
    s, outcome = after(FIVE, ("written",), start_at=s)
    assert outcome.answers == (Answer(2, "failed"),)
    s, _ = after(FIVE, *replay(1), start_at=s)
    assert s.held == (Holder(2, (Part(1, None),)),)


def test_a_commit_that_the_cursor_refuses_is_done_when_it_is_read_again() -> None:
    s, outcome = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), ("flush",), ("cursor_refuses",))
    assert (outcome.answers, s.status, s.acks) == ((Answer(2, "failed"),), "error", Acks())
    s, _ = after(FIVE, *replay(2), start_at=s)
    assert (s.acks.mark, s.held) == (1, ())


def test_a_replay_fails_after_so_many_reads_and_tells_those_who_wait() -> None:
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, CRASH, ("commit", 1, 0))
    s, outcome = after(FIVE, *[("read_fails", False)] * 2, start_at=s)
    assert (outcome, s.status) == (m.NOTHING, "initializing")
    s, outcome = after(FIVE, ("read_fails", False), start_at=s)
    assert (outcome.answers, s.status) == ((Answer(1 + 1, "failed"),), "error")


# ---- what the shipped rules do ------------------------------------------------------------------------


def test_as_shipped_a_cumulative_ack_is_of_the_whole_batch_after_a_restart() -> None:
    steps = [*OPEN, ("ack_cumulative", 1, 0, leaves(0, 1)), *WRITE, CRASH, *replay(1), ("commit", 1, 0), *WRITE]
    assert after(FIVE, *steps)[0].acks == Acks(0, 0, (Partial(0, leaves(0, 1)),))
    assert after(SHIPPED, *steps)[0].acks == Acks(1, 0, ())


def test_as_shipped_an_abort_ends_another_s_cumulative_ack_after_a_restart() -> None:
    steps = [*OPEN, ("ack_cumulative", 1, 0, None), *WRITE, ("abort", 2, 0), *WRITE]
    held = Cumulative(1, Part(0, None))
    assert [after(cfg, *steps)[0].cumulative for cfg in (FIVE, SHIPPED)] == [held, held]
    assert [after(cfg, *steps, CRASH, *replay(2))[0].cumulative for cfg in (FIVE, SHIPPED)] == [held, None]


def test_as_shipped_a_commit_beside_a_cumulative_ack_is_nothing() -> None:
    steps = [*OPEN, ack(2, (3, None)), ("ack_cumulative", 1, 0, None), *WRITE, ("commit", 2, 0)]
    s, outcome = after(SHIPPED, *steps)
    assert (outcome, s.buffer) == (Answer(3, "done"), ())
    s, _ = after(FIVE, *steps, *WRITE)
    assert s.acks == Acks(0, 0b1000, ())


def test_as_shipped_a_part_of_a_whole_entry_is_never_answered() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, ack(2, (0, leaves(0)))]
    assert after(FIVE, *steps)[1] == Failed("conflict", "a message of entry 0 is pending")
    s, outcome = after(SHIPPED, *steps, *WRITE)
    assert outcome == m.NOTHING
    assert [holder.txn for holder in s.held] == [1]


def test_as_shipped_a_replay_that_stops_early_is_a_success() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, CRASH, ("open_store",), ("read_fails", True)]
    assert [after(cfg, *steps)[0].status for cfg in (FIVE, SHIPPED)] == ["error", "ready"]


def test_as_shipped_a_committed_list_is_lost_if_the_cursor_has_one_of_it() -> None:
    steps = [*OPEN, ("acknowledge", 0, None), ("persist",)]
    log = ((Record("ack", False, 1, (Part(0, None), Part(1, None))),), (Record("commit", False, 1, ()),))
    for cfg, mark in ((FIVE, 2), (SHIPPED, 1)):
        s = after(cfg, *steps, CRASH)[0]._replace(log=log)
        assert after(cfg, *replay(2), start_at=s)[0].acks.mark == mark


def test_as_shipped_a_replay_spins_when_the_cursor_was_used_before() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, CRASH, *replay(1), ("close",), ("open_store",), ("read_entry",)]
    assert after(FIVE, *steps)[1] == 0
    s, outcome = after(SHIPPED, *steps)
    assert isinstance(outcome, Failed)
    assert after(SHIPPED, ("read_entry",), start_at=s)[0] == s
    assert isinstance(after(SHIPPED, ("end_replay",), start_at=s)[1], Refused)


def test_as_shipped_two_transactions_hold_a_batch_that_one_acknowledged_message_by_message() -> None:
    cfg = SHIPPED._replace(batch_sizes=(2,))
    steps = [*OPEN, ack(1, (0, 0b10)), *WRITE, ack(1, (0, 0b01)), *WRITE, ack(2, (0, 0b10)), *WRITE]
    s, outcome = after(cfg, *steps)
    assert outcome.answers == (Answer(3, "done"),)
    assert s.held == (Holder(1, (Part(0, 0),)), Holder(2, (Part(0, 0b10),)))


def test_as_shipped_nobody_sees_who_holds_a_batch_that_is_all_pending() -> None:
    """One set an entry is compared, that of all transactions: with the last message it is all zeros, and is cut."""
    cfg = SHIPPED._replace(batch_sizes=(4,))
    steps = [*OPEN, ack(1, (0, 0b1100)), *WRITE, ack(2, (0, 0b0011)), *WRITE, ack(3, (0, 0b1110)), *WRITE]
    s, outcome = after(cfg, *steps)
    assert outcome.answers == (Answer(3, "done"),)
    assert s.held == tuple([Holder(n, (Part(0, each),)) for n, each in ((1, 0b1100), (2, 0b0011), (3, 0b1110))])
    assert after(cfg, *steps[:-6], *steps[-3:])[1].answers == (Answer(2, "conflict"),)
    reference = FIVE._replace(batch_sizes=(4,))
    assert after(reference, *steps[:-2])[1] == Failed("conflict", "a message of entry 0 is pending")


def test_as_shipped_a_low_watermark_counts_only_after_an_end_of_what_was_acknowledged_message_by_message() -> None:
    """Transaction 1 has ended, as the end of transaction 3 says, which acknowledged cumulatively."""
    acks = ack(1, (3, None)), ("ack_cumulative", 3, 0, None)
    for end in ("commit", "abort"):
        steps = [*OPEN, *acks, *WRITE, (end, 3, 2), *WRITE]
        marks = [(s.low_watermark, [call.record.txn for call in s.buffer]) for s, _ in (after(FIVE, *steps),)]
        assert marks == [(2, [1])]
        s, _ = after(SHIPPED, *steps)
        assert (s.low_watermark, s.buffer, s.cumulative) == (0, (), None)


def test_the_low_watermark_aborts_those_that_it_is_of() -> None:
    """Transactions 1 and 2 are stale when 3 ends; a restart does not bring them back, and 4 stays (#15530)."""
    acks = [ack(txn, (txn, None)) for txn in (1, 2, 3, 4)]
    s, _ = after(FIVE, *OPEN, *acks, *WRITE, ("commit", 3, 2), *WRITE, *WRITE, ("persist",), CRASH, *replay(3))
    assert [holder.txn for holder in s.held] == [4]
    assert s.acks == Acks(0, 0b1000, ())


def test_as_shipped_a_rejected_ack_comes_back_as_pending() -> None:
    """The log has a record that was rejected, and after a crash the reason for it is gone."""
    steps = [*OPEN, ("acknowledge", 0, None), ack(1, (0, None)), *WRITE, CRASH, *replay(1)]
    assert after(SHIPPED, *steps)[0].held == (Holder(1, (Part(0, None),)),)
    assert after(FIVE, *steps[:4])[1] == Failed("conflict", "entry 0 is acknowledged")


def test_before_pull_request_24406_a_batch_acknowledged_message_by_message_did_not_count() -> None:
    marks = []
    for cfg in (FIVE, m.early.config):
        steps = [*OPEN, ack(1, (0, 0b10)), *WRITE, ack(1, (0, 0b01)), *WRITE, ("commit", 1, 0), *WRITE]
        marks.append(after(cfg._replace(batch_sizes=(2,), batch_acks=False), *steps)[0].acks.mark)
    assert marks == [1, 0]


def test_before_pull_request_25528_a_refused_commit_was_forgotten() -> None:
    steps = [*OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), ("flush",), ("cursor_refuses",)]
    s, outcome = after(m.earlier.config._replace(batch_sizes=(5,)), *steps)
    assert (outcome, s.held, s.acks) == (done(2), (), Acks())
    s, outcome = after(SHIPPED, *steps)
    assert (outcome.answers, len(s.held)) == ((Answer(2, "failed"),), 1)


FLAGS = [
    (name, getattr(m.early.config, name))
    for name in Config._fields
    if getattr(m.early.config, name) != getattr(m.reference.config, name)
]


@pytest.mark.parametrize(("flag", "value"), [*FLAGS, ("refused_commits", "stay_pending")])
def test_the_implementation_follows_each_shipped_rule_alone(flag: str, value: Any) -> None:
    """With one rule as shipped it goes on as the model does, and but for one, a promise is broken by name.

    That a replayed end asks for no owner shows only with marks of ends that are not their owner's.
    """
    cfg = m.reference.config._replace(**{flag: value})
    lockstep = Lockstep(Target(SUBJECT, cfg))
    causes: set[str] = set()
    for seed in range(300):
        finding = lockstep.run(seed)
        causes |= {str(finding.cause)} if finding is not None else set()
        if causes and seed >= 40:
            break
    assert all(cause.startswith("property:") for cause in causes)
    assert bool(causes) == (flag != "replayed_ends_have_owners")


#: One acknowledgement, and all that closes, opens and reads.
TINY = Scope(
    actions=("ack_individual", "written", "close", "open_store", "read_entry", "end_replay", "read_fails"),
    settings={"batch_sizes": (1,), "min_lag": 1, "batching": False},
    domains={"txn": (1,), "acks": ((AckOf(0, None),),), "stops": (False,)},
    bounds={"records": 1},
    reasons={},
)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"replay_begins_at_the_mark": True}, None),
        ({"replay_begins_at_the_mark": False}, "a_replay_ends"),
        ({"read_attempts": 0}, "a_replay_whose_reads_fail_ends"),
    ],
)
def test_a_replay_that_goes_round_for_ever_is_found(settings: dict[str, Any], name: str | None) -> None:
    tiny = replace(TINY, settings=dict(TINY.settings) | settings)
    found = explore(bounded(replace(SUBJECT, scopes={"tiny": tiny}), "tiny"))
    assert (name in [lasso.name for lasso in found.lassos]) == (name is not None)
    assert (found.violations == []) == (name is None)
    assert found.lassos == [] or name is not None


# ---- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (ack(1), "acks is empty"),
        (ack(1, (0, None), (0, leaves(1))), "acks has an entry twice"),
        (ack(1, (0, 0b11111)), "entry 0 has a set that acknowledges nothing, or with a bit beyond the batch"),
        (ack(1, (2, 1 << 7)), "entry 2 has a set that acknowledges nothing, or with a bit beyond the batch"),
        (("ack_cumulative", 1, 0, leaves(1)), "leaves is 29, not the end of a batch"),
        (("crash", 1), "fewer than 1 entries are in flight"),
        (("written",), "no entry is in flight"),
        (("write_fails", True), "no entry is in flight"),
        (("read_fails", True), "there is nothing to read"),
        (("close",), "the store is not open"),
    ],
)
def test_what_makes_no_sense_is_refused(step: tuple[Any, ...], why: str) -> None:
    s, outcome = after(FIVE, step)
    assert isinstance(outcome, Refused)
    assert outcome.why == why
    assert s == start(FIVE)


def test_a_store_that_failed_refuses_until_it_is_opened() -> None:
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), ("flush",), ("write_fails", True))
    s, outcome = after(FIVE, ("commit", 1, 0), start_at=s)
    assert outcome == Refused("illegal_state", "the store must be opened first")
    s, _ = after(FIVE, *replay(1), start_at=s)
    assert s.held == (Holder(1, (Part(0, None),)),)


@pytest.mark.parametrize(
    "settings", [{"min_lag": 0}, {"batch_sizes": [0]}, {"overlap": "words"}, {"read_attempts": -1}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match=f"pending_acks.{next(iter(settings))}"):
        m.pending_acks.configure(settings)


# ---- the index and the bytes --------------------------------------------------------------------------


def test_a_key_is_made_after_more_records_the_more_keys_there_are() -> None:
    index, made = empty_index(2), []
    for at in range(40):
        before = len(index.keys)
        index = counted(2, index, 1, at, at)
        made += [at] if len(index.keys) > before else []
    assert made == [1, 3, 7, 13, 21, 31]
    index, gone = cleared(2, index, 8)
    assert (gone, index.max_lag) == (8, 6)
    assert index.keys == (Key(13, 5), Key(21, 13), Key(31, 23))


def test_an_end_makes_no_key_and_counts() -> None:
    index = counted(2, counted(2, empty_index(2), 1, -1, 0), 5, -1, 1)
    assert index == LogIndex(6, 2, -1, ())
    assert counted(2, index, 1, 3, 2) == LogIndex(0, 2, 3, (Key(3, 2),))


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 128])
def test_the_log_is_real_bytes_after_a_crash(size: int, batching: bool) -> None:
    sets = [None, *[leaves for leaves in (1, 2**size - 2, 2 ** (size - 1)) if 0 < leaves < 2**size - 1]]
    parts = tuple([Part(n, each) for n, each in enumerate(sets)])
    records = Record("ack", False, 2**63, parts), Record("ack", True, 7, parts[-1:]), Record("abort", True, 1, ())
    entries = (records,) if batching else tuple([(each,) for each in records])
    log = Log((size,), batching)
    for entry in entries:
        log.append(entry)
    log.close()
    assert log.view() == entries
    assert tuple([log.read(n) for n in range(log.end)]) == entries


def test_what_waits_is_renamed_in_order() -> None:
    s, _ = after(FIVE, *OPEN, ack(1, (0, None)), *WRITE, ("commit", 1, 0), ("flush",), ("abort", 2, 0))
    named = m.pending_acks.canonical(FIVE, s)
    assert (s.next_ticket, named.next_ticket) == (4, 3)
    assert named.in_flight == ((Call(1, Record("commit", False, 1, ()), 0),),)
    assert [call.ticket for call in named.buffer] == [2]
