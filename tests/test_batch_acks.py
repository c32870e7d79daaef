"""A cursor's acknowledgements: stateful tests, bad input, and worked examples, also under the shipped rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.batch_acks import BatchAcks
from invariants.properties import Event
from model.batch_acks import machine as m
from model.batch_acks.machine import Ack, Delivered, WriteResult
from model.batch_acks.state import Acks, Config, Partial, State
from model.machine import BadValue, Failed, Refused
from model.positions import Position
from tests.conftest import stepped

SUBJECT = find_subject("batch_acks")

TestBatchAcks = stateful_test(SUBJECT)

#: Ten messages in every entry, five entries.
TEN = Config(batch_sizes=(10,), entries=5)
SHIPPED = m.shipped.config._replace(batch_sizes=(10,), entries=5)
LATER = m.later.config._replace(batch_sizes=(10,), entries=5)
EVERYTHING = 1023


def words(*acknowledged: int) -> tuple[int, ...]:
    """Returns the ack set of a batch of ten that acknowledges these messages."""
    return (EVERYTHING & ~sum(1 << i for i in acknowledged),)


def to(last: int) -> tuple[int, ...]:
    """Returns the ack set that acknowledges the messages up to this one."""
    return words(*range(last + 1))


def at(entry: int) -> Position:
    """Returns the position of an entry of the first ledger."""
    return Position(1, entry)


def one(entry: int, ack_set: Any = None) -> tuple[Any, ...]:
    """Returns an individual ack of an entry."""
    return "ack_individual", (Ack(at(entry), ack_set),)


WRITE = [("flush",), ("written",)]


def after(cfg: Config, *steps: tuple[Any, ...], start_at: State | None = None) -> tuple[State, Any]:
    """Returns the state after some actions, and the last outcome. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.batch_acks, cfg, steps, start_at, BatchAcks)
    return s, outcomes[-1]


def acknowledged(s: State, entry: int) -> list[int]:
    """Returns the acknowledged messages of an entry of ten."""
    if entry < s.acks.first_unacked or s.acks.deleted >> entry & 1:
        return list(range(10))
    remaining = {p.entry: p.remaining for p in s.acks.partial}.get(entry, EVERYTHING)
    return [i for i in range(10) if not remaining >> i & 1]


# ---- a new cursor


def test_new_cursor_reads_from_the_first_entry() -> None:
    cfg = Config(entries=3)
    new = State(
        ledgers=(3,),
        acks=Acks(0, 0, ()),
        read_position=0,
        durable=Acks(0, 0, ()),
        dirty=False,
        writing=None,
        queued=(),
        reading=False,
        batch_acks=True,
        next_ticket=1,
    )
    assert m.start(cfg) == new
    assert after(cfg, ("begin_read",), ("end_read",))[1] == Delivered(at(0), None)


# ---- individual acknowledgements


def test_an_entry_is_deleted_with_its_last_message() -> None:
    s, newly_acked = after(TEN, one(0, words(0, 1, 2)), one(0, words(2, 3, 4)))
    assert (newly_acked, acknowledged(s, 0), s.acks.first_unacked) == (2, [0, 1, 2, 3, 4], 0)
    s, newly_acked = after(TEN, one(0, words(*range(4, 10))), start_at=s)
    assert (newly_acked, s.acks) == (5, Acks(1))


@pytest.mark.parametrize("ack_set", [None, (), (0,), (0, 0)])
@pytest.mark.parametrize("batch_acks", [True, False])
def test_no_ack_set_an_empty_one_and_zero_words_ack_the_whole_entry(ack_set: Any, batch_acks: bool) -> None:
    cfg = TEN._replace(batch_acks=batch_acks)
    assert after(cfg, one(0, ack_set))[0].acks == Acks(1)
    assert after(cfg, ("ack_cumulative", at(1), ack_set))[0].acks == Acks(2)


def test_shipped_zero_words_have_no_effect_without_batch_index_acks() -> None:
    cfg = SHIPPED._replace(batch_acks=False)
    assert after(cfg, one(0, (0,)))[0].acks == Acks()
    assert after(cfg, one(0, ()))[0].acks == Acks(1), "since pull request 24406"


def test_a_deleted_entry_has_no_ack_set() -> None:
    whole, _ = after(TEN, one(1))
    assert after(TEN, one(1, words(3)), start_at=whole) == (whole, 0)
    s, newly_acked = after(TEN, one(1, words(3)), one(1))
    assert (s.acks, newly_acked) == (Acks(0, 0b10), 9)


def test_missing_words_of_an_ack_set_are_zero() -> None:
    cfg = Config(batch_sizes=(70,), entries=1)
    s, newly_acked = after(cfg, ("ack_individual", (Ack(at(0), (-1,)),)))
    assert (newly_acked, s.acks.partial) == (6, (Partial(0, 2**64 - 1),))


def test_the_mark_delete_position_advances_over_ledgers_and_empty_ones() -> None:
    cfg = TEN._replace(entries=2)
    rolled = [("roll_ledger",), ("roll_ledger",), ("add_entry",), ("add_entry",)]
    s, position = after(cfg, *rolled)
    assert position == Position(3, 1)
    s, _ = after(cfg, one(1), ("ack_individual", (Ack(Position(3, 0), None),)), start_at=s)
    assert m.observe(cfg, s)["individually_deleted"] == [[1, 1], [3, 0]]
    s, _ = after(cfg, one(0), start_at=s)
    assert m.observe(cfg, s)["mark_delete_position"] == [3, 0]
    assert s.read_position == 3


def test_ranges_end_with_their_ledger() -> None:
    cfg = TEN._replace(entries=2, max_ranges=1)
    steps = [("roll_ledger",), ("add_entry",), one(1), ("ack_individual", (Ack(Position(2, 0), None),))]
    s, _ = after(cfg, *steps)
    assert after(cfg, ("is_fully_persistable",), start_at=s)[1] is False
    s, _ = after(cfg, *WRITE, start_at=s)
    assert s.durable.deleted == 0b10


# ---- cumulative acknowledgements


def test_individual_and_cumulative_acks_in_both_orders() -> None:
    """Message 5 is acknowledged alone, the messages up to 2 together. The shipped rules can forget message 5."""
    steps = [one(0, words(5)), ("ack_cumulative", at(0), to(2))]
    for order in (steps, steps[::-1]):
        assert acknowledged(after(TEN, *order)[0], 0) == [0, 1, 2, 5]
    assert acknowledged(after(SHIPPED, *steps)[0], 0) == [0, 1, 2]
    assert acknowledged(after(SHIPPED, *steps[::-1])[0], 0) == [0, 1, 2, 5]


@pytest.mark.parametrize("cfg", [TEN, SHIPPED], ids=["reference", "shipped"])
def test_a_cumulative_ack_never_moves_back(cfg: Config) -> None:
    s, newly_acked = after(cfg, ("ack_cumulative", at(1), to(4)), ("ack_cumulative", at(1), to(2)))
    assert (acknowledged(s, 0), acknowledged(s, 1), newly_acked) == (list(range(10)), [0, 1, 2, 3, 4], 0)


def test_a_cumulative_ack_of_all_messages_deletes_the_entry() -> None:
    assert after(TEN, ("ack_cumulative", at(0), (0,)))[0].acks == Acks(1)
    shipped = after(SHIPPED, ("ack_cumulative", at(0), (0,)))[0].acks
    assert shipped == Acks(0, 0, (Partial(0, 0),)), "an empty record for an entry that is not deleted"


def test_a_cumulative_ack_before_the_mark_delete_position_is_rejected() -> None:
    s, _ = after(TEN, ("ack_cumulative", at(2), None))
    assert after(TEN, ("ack_cumulative", at(2), None), start_at=s) == (s, 0)
    for entry, ack_set in ((1, None), (2, words(3))):
        again, refusal = after(TEN, ("ack_cumulative", at(entry), ack_set), start_at=s)
        assert isinstance(refusal, Refused)
        assert again is s


# ---- bad input


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (one(0, (1024,)), "acks[0].ack_set has a bit beyond the batch of 10"),
        (
            ("ack_individual", (Ack(at(1), words(1)), Ack(at(0), (0, 1)))),
            "acks[1].ack_set has a bit beyond the batch of 10",
        ),
        (("ack_individual", (Ack(at(1), None), Ack(at(5), None))), "acks[1].position is [1, 5], after the last entry"),
        (("ack_individual", (Ack(Position(0, 0), None),)), "acks[0].position is [0, 0], where no entry is"),
        (("ack_cumulative", at(1), (-1,)), "ack_set has a bit beyond the batch of 10"),
        (("ack_cumulative", Position(2, 0), None), "position is after the last entry"),
        (("reset", at(1), (1024,)), "ack_set has a bit beyond the batch of 10"),
        (("reset", at(1), (0,)), "ack_set leaves nothing of the entry"),
        (("reset", at(6), None), "position is not that of an entry, nor the next one"),
        (("written",), "no write is in flight"),
    ],
)
def test_bad_input_is_rejected_and_changes_nothing(step: tuple[Any, ...], expected: str) -> None:
    s, _ = after(TEN, one(1, words(3)), one(3))
    again, refusal = after(TEN, step, start_at=s)
    assert isinstance(refusal, Refused)
    assert refusal.why == expected
    assert again is s


@pytest.mark.parametrize(
    ("why", "is_right"),
    [
        ("acks[2].position is [0, 0], where no entry is", True),
        ("acks[1].position is [1, 5], after the last entry", False),
        ("acks[2].ack_set has a bit beyond the batch of 10", False),
    ],
)
def test_the_property_compares_the_whole_error_of_a_list(why: str, is_right: bool) -> None:
    [law] = [p for p in SUBJECT.properties if p.name == "ack_fails_iff_position_or_ack_set_is_invalid"]
    s, acks = SUBJECT.machine.start(TEN), (Ack(at(1), None), Ack(at(5), None), Ack(Position(0, 0), None))
    event = Event("ack_individual", {"acks": acks}, Refused("illegal_argument", why))
    assert law.holds(TEN, s, event, s) == is_right


def test_an_argument_of_the_wrong_type_is_an_error_that_names_it() -> None:
    action = SUBJECT.machine.actions["ack_individual"]
    with pytest.raises(BadValue, match=r"ack_individual.acks\[0\].position is 7, must be \[ledger, entry\]"):
        action.arguments({"acks": [{"position": 7, "ack_set": None}]}, TEN)
    with pytest.raises(BadValue, match=r"batch_sizes\[1\] is 0, must be integer of 1 or more"):
        SUBJECT.machine.configure({"batch_sizes": [3, 0]})


@pytest.mark.parametrize(
    ("max_ranges", "in_metadata", "ack_set_is_kept"),
    [(10, 0, False), (10, -1, True), (10, 1000, False), (0, -1, False)],
)
def test_closed_cursor_goes_to_the_metadata_store_up_to_a_number_of_ranges(
    max_ranges: int, in_metadata: int, ack_set_is_kept: bool
) -> None:
    """The shipped metadata store loses ack sets. With a limit of -1 ranges, the cursor goes to a ledger.

    With `max_ranges` 0 a record has no ranges, so the cursor goes to the metadata store, whatever the limit.
    """
    cfg = SHIPPED._replace(max_ranges=max_ranges, max_ranges_in_metadata=in_metadata)
    s, _ = after(cfg, one(0, (EVERYTHING - 1,)), ("reopen", True))
    assert (acknowledged(s, 0) == [0]) == ack_set_is_kept


def test_shipped_failed_acks_have_effects() -> None:
    s, failure = after(SHIPPED, ("ack_individual", (Ack(at(0), None), Ack(at(5), None))))
    assert isinstance(failure, Failed)
    assert (acknowledged(s, 0), s.dirty) == (list(range(10)), False)
    s, failure = after(SHIPPED, ("ack_cumulative", at(5), to(3)), ("add_entry",))
    assert acknowledged(s, 5) == [0, 1, 2, 3], "entry 5 was added after the ack failed"


def test_shipped_bit_beyond_the_batch_keeps_the_entry() -> None:
    s, _ = after(SHIPPED, one(0, (1024 + EVERYTHING - 1,)), one(0, (1024 + 1,)))
    assert s.acks == Acks(0, 0, (Partial(0, 1024),))
    s, _ = after(SHIPPED, ("ack_cumulative", at(0), (1024 + EVERYTHING - 1,)))
    assert s.acks == Acks(0, 0, (Partial(0, 1024 + EVERYTHING - 1),))
    s, _ = after(SHIPPED, ("reset", at(0), (1024 + EVERYTHING - 1,)), ("written",))
    assert s.acks == Acks(0, 0, (Partial(0, 1024 + EVERYTHING - 1),))


def test_shipped_cumulative_ack_replaces_the_ack_set_if_its_first_bit_is_later() -> None:
    """An equal first bit is not later. Ack sets of earlier entries are dropped."""
    acked = [one(0, words(3)), one(2, words(0, 1, 2, 5))]
    for last, kept in ((2, [0, 1, 2, 5]), (3, [0, 1, 2, 3])):
        assert acknowledged(after(SHIPPED, *acked, ("ack_cumulative", at(2), to(last)))[0], 2) == kept
    s, _ = after(SHIPPED, ("ack_cumulative", at(1), (EVERYTHING,)))
    assert s.acks == Acks(1), "the ack set leaves all messages of entry 1"


def test_shipped_ack_set_of_a_position_without_entry_waits_for_it() -> None:
    """The positions are after the last entry of the last ledger. A position in a later ledger gets no ack set."""
    cfg = SHIPPED._replace(entries=2)
    start_at, _ = after(cfg, ("roll_ledger",), ("add_entry",))
    for ledger, entry, number in ((2, 1, 3), (2, 2, 4), (3, 1, None)):
        s, failure = after(cfg, ("ack_cumulative", Position(ledger, entry), to(3)), start_at=start_at)
        kept = () if number is None else (Partial(number, EVERYTHING & ~0b1111),)
        assert (s.acks.partial, failure.why) == (kept, "position is after the last entry")
    s, _ = after(cfg, *[("ack_cumulative", Position(2, 1), to(last)) for last in (3, 5)], start_at=start_at)
    assert s.acks.partial == (Partial(3, EVERYTHING & ~0b111111),)


def test_shipped_list_with_a_position_without_entry_has_its_effect_before() -> None:
    beyond = Ack(at(5), None)
    s, _ = after(SHIPPED, one(0, words(1)))
    for ack_set, kind in ((words(2), Failed), (words(1), Refused)):
        again, failure = after(SHIPPED, ("ack_individual", (Ack(at(0), ack_set), beyond)), start_at=s)
        assert (isinstance(failure, kind), again is s) == (True, kind is Refused)


def test_shipped_deleted_entry_makes_the_cursor_dirty() -> None:
    assert after(SHIPPED, one(1), ("flush",))[1] is True


def test_each_rule_differs_in_the_shipped_version() -> None:
    """Pull request 26474 changed two rules, 25047 changed one."""
    names, ours = m.batch_acks.rules, m.reference.config
    assert [name for name in names if getattr(SHIPPED, name) == getattr(ours, name)] == []
    changed = [name for name in names if getattr(LATER, name) == getattr(ours, name)]
    assert changed == ["range_cap_is_exact", "metadata_ack_sets_are_recovered"]
    changed = [name for name in names if getattr(m.pulsar_4_0.config, name) != getattr(SHIPPED, name)]
    assert changed == ["queue_applies"]


# ---- writes, crashes, closes


def test_an_ack_is_durable_once_it_is_written() -> None:
    s, _ = after(TEN, one(1, words(0)))
    assert after(TEN, ("crash", False), start_at=s)[0].acks == Acks()
    s, _ = after(TEN, *WRITE, one(1, words(1)), start_at=s)
    assert acknowledged(after(TEN, ("crash", False), start_at=s)[0], 1) == [0]
    s, _ = after(TEN, ("flush",), start_at=s)
    assert acknowledged(after(TEN, ("crash", True), start_at=s)[0], 1) == [0, 1]


@pytest.mark.parametrize("cfg", [SHIPPED, LATER], ids=["2026-07", "2026-09"])
def test_shipped_ack_sets_alone_are_not_written(cfg: Config) -> None:
    s, began = after(cfg, ("ack_cumulative", at(0), None), *WRITE, one(1, words(0)), ("flush",))
    assert began is False
    assert acknowledged(after(cfg, ("crash", False), start_at=s)[0], 1) == []


@pytest.mark.parametrize(
    ("cfg", "kept"), [(TEN, [0, 1]), (LATER, [0, 1]), (SHIPPED, [])], ids=["ref", "2026-09", "2026-07"]
)
def test_a_clean_close_keeps_ack_sets_since_26474(cfg: Config, kept: list[int]) -> None:
    assert acknowledged(after(cfg, one(0, words(0, 1)), ("reopen", True))[0], 0) == kept
    assert acknowledged(after(cfg, one(0, words(0, 1)), ("reopen", False), ("reopen", True))[0], 0) == []


def test_a_record_keeps_the_lowest_ranges_and_ack_sets() -> None:
    cfg = TEN._replace(entries=9, max_ranges=2, max_ack_sets=1)
    s, _ = after(cfg, one(1), one(3), one(4), one(6), one(8), one(2, words(0)), one(5, words(0)), *WRITE)
    assert s.durable == Acks(0, 0b11010, (Partial(2, EVERYTHING - 1),))
    assert after(cfg, ("is_fully_persistable",), start_at=s)[1] is False
    shipped = cfg._replace(range_cap_is_exact=False)
    assert after(shipped, one(1), one(3), one(6), one(8), *WRITE)[0].durable.deleted == 0b1001010, "one more than two"


def test_fully_persistable_counts_ack_sets() -> None:
    steps = [one(entry, words(0)) for entry in range(3)]
    for cfg, expected in ((TEN, False), (SHIPPED, True)):
        assert after(cfg._replace(max_ack_sets=2), *steps, ("is_fully_persistable",))[1] is expected


def test_a_failed_write_is_retried() -> None:
    s, completed = after(TEN, one(0), ("flush",), ("write_fails", False))
    assert (completed, s.durable, s.dirty) == (WriteResult(False, ()), Acks(), True)
    assert after(TEN, *WRITE, start_at=s)[0].durable == Acks(1)
    s, completed = after(TEN, one(0), ("flush",), ("write_fails", True))
    assert (completed, s.durable, s.dirty) == (WriteResult(True, ()), Acks(1), False)


# ---- resets


def test_a_reset_into_a_batch_forgets_acknowledgements() -> None:
    acked = [one(2), one(3, words(5)), ("ack_cumulative", at(0), None), *WRITE]
    s, ticket = after(TEN, *acked, ("reset", at(0), to(2)))
    assert (ticket, s.acks.first_unacked) == (1, 1)
    s, completed = after(TEN, ("written",), start_at=s)
    assert completed == WriteResult(True, (1,))
    assert s.acks == s.durable == Acks(0, 0, (Partial(0, EVERYTHING - 7),))
    s, delivered = after(TEN, ("begin_read",), ("end_read",), start_at=s)
    assert delivered == Delivered(at(0), (EVERYTHING - 7,))


def test_shipped_crash_after_reset_restores_previous_acks() -> None:
    s, _ = after(SHIPPED, one(2), one(4), ("reset", at(0), None), ("written",))
    assert (s.acks, after(SHIPPED, ("crash", False), start_at=s)[0].acks) == (Acks(), Acks(0, 0b10100))
    s, _ = after(SHIPPED, ("reset", at(1), to(1)), ("written",), ("crash", False))
    assert acknowledged(s, 1) == []


@pytest.mark.parametrize(("cfg", "first_unacked"), [(TEN, 0), (SHIPPED, 2)], ids=["reference", "shipped"])
def test_a_queued_reset_followed_by_a_flush(cfg: Config, first_unacked: int) -> None:
    """The write completes the reset. Under the shipped rules, only the last operation takes effect: the flush of the ack."""
    steps = [("ack_cumulative", at(1), None), ("begin_read",), ("reset", at(0), None), ("flush",), ("end_read",)]
    s, completed = after(cfg, *steps, ("written",))
    assert (completed, s.acks.first_unacked) == (WriteResult(True, (1,)), first_unacked)


def test_a_reset_whose_write_fails_changes_nothing() -> None:
    s, completed = after(TEN, one(0), ("reset", at(0), None), ("write_fails", False))
    assert (completed, s.acks, s.dirty) == (WriteResult(False, (1,)), Acks(1), True)


# ---- equivalences


def test_individual_acks_commute() -> None:
    chance = random.Random(3)
    for _ in range(60):
        acks = [
            Ack(at(chance.randrange(5)), chance.choice([None, words(chance.randrange(10)), to(4)])) for _ in range(6)
        ]
        together, _ = after(TEN, ("ack_individual", tuple(acks)))
        chance.shuffle(acks)
        cut = chance.randrange(7)
        apart, _ = after(TEN, ("ack_individual", tuple(acks[:cut])), ("ack_individual", tuple(acks[cut:])))
        assert apart == together


def test_canonical_form_numbers_open_resets_in_order() -> None:
    """The tickets of two open resets are 1 and 2 in the canonical form, however many resets have completed before."""
    steps = [("reset", at(1), None), one(2), ("flush",), ("reset", at(0), to(1))]
    known, _ = after(TEN, *steps)
    assert m.batch_acks.canonical(TEN, known) == known
    s, completed = after(TEN)[0], [("reset", at(0), None), ("written",)]
    for done in (1, 2, 3):
        s, _ = after(TEN, *completed, start_at=s)
        assert m.batch_acks.canonical(TEN, s) == m.start(TEN)
        later, ticket = after(TEN, *steps, start_at=s)
        assert (ticket, m.batch_acks.canonical(TEN, later)) == (done + 2, known)


def test_observation_of_a_cursor() -> None:
    """Entries 0 and 2 are deleted, message 1 of entry 1 is acknowledged; nothing is persisted."""
    acks = Acks(1, 0b100, (Partial(1, 0b101),))
    cfg = Config(batch_sizes=(4, 3, 2))
    s = m.start(cfg)._replace(ledgers=(2, 1), acks=acks, read_position=2)
    assert m.batch_acks.observe(cfg, s) == {
        "mark_delete_position": [1, 0],
        "durable_mark_delete_position": [1, -1],
        "read_position": [2, 0],
        "individually_deleted": [[2, 0]],
        "batch_sets": [[[1, 1], [5]]],
        "not_acknowledged": 2,
    }
