"""Buffered writer of a transaction log: stateful tests, worked examples, invalid input, and the shipped rules."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.run.stateful import stateful_test
from fuzz.subject import find_profile, find_subject
from impl.txn_writer.writer import TxnWriter
from invariants.properties import Event
from model.machine import BadValue, Refused
from model.positions import Position
from model.txn_writer import machine as m
from model.txn_writer import wire
from model.txn_writer.state import Callback, Config, Effects, Entry, Flush, State, Write
from tests.conftest import stepped

SUBJECT = find_subject("txn_writer")

TestTxnWriter = stateful_test(SUBJECT)

PROFILES = [name for name, each in SUBJECT.machine.profiles.items() if each.config.batching]
BATCHING = {"max_records": 3, "max_bytes": 50, "max_delay_ms": 10}


def config(profile: str = "reference", **settings: Any) -> Config:
    """Returns a profile with small limits."""
    found: Config = SUBJECT.machine.configure(BATCHING | settings, find_profile(SUBJECT, profile))
    return found


REFERENCE, SHIPPED = config(), config("pulsar-2026-07")
QUEUED, SHIPPED_QUEUED = config(executor="queued"), config("pulsar-2026-07", executor="queued")


def after(cfg: Config, *steps: Any, start_at: State | None = None) -> tuple[State, list[Any]]:
    """Returns the state after some actions, and their outcomes. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.txn_writer, cfg, steps, start_at, TxnWriter)
    return s, outcomes[1:]


def add(size: int, fails_on: str = "nothing") -> tuple[Any, ...]:
    """Returns the action that adds a record of this size."""
    return "add", size, fails_on


def wait(by: int) -> tuple[Any, ...]:
    """Returns the action that advances the time."""
    return "advance_time", by


def run(count: int = 1000) -> tuple[Any, ...]:
    """Returns the action in which the writer's thread runs tasks."""
    return "run_writer_tasks", count


CLOSE, DONE, LOST = ("close",), ("complete_write",), ("fail_write", False)


def failures(outcomes: list[Any], why: str = "") -> list[Any]:
    """Returns the records whose callbacks fail, each with the reason. With `why`, the records of that reason only."""
    failed = [a for each in outcomes for a in each.callbacks if a.outcome != "ok"]
    return [a.record for a in failed if a.outcome == why] if why else [(a.record, a.outcome) for a in failed]


def triggers(outcomes: list[Any]) -> list[str]:
    """Returns the triggers of the flushes, in order."""
    return [flush.trigger for each in outcomes for flush in each.flushes]


# ---- batches


def test_wire_numbers_and_buckets_are_those_of_the_proposals() -> None:
    """PIP-31 has the enumerations, PIP-160 the header and histograms. Every message numbers its fields from 1."""
    assert wire.HEADER.hex() == "0e010001"
    assert Config().header_bytes == len(wire.HEADER)
    numbers = [" ".join(f"{value} {number}" for value, number in enum.items()) for enum in wire.ENUMS.values()]
    assert numbers == [
        "NEW 0 ADD_PARTITION 1 ADD_SUBSCRIPTION 2 UPDATE 3",
        "OPEN 0 COMMITTING 1 COMMITTED 2 ABORTING 3 ABORTED 4",
        "ACK 1 COMMIT 2 ABORT 3",
        "Individual 0 Cumulative 1",
    ]
    for fields in wire.MESSAGES.values():
        assert [field.number for field in fields] == list(range(1, len(fields) + 1))
    assert wire.RECORDS.buckets == (10, 50, 100, 200, 500, 1000)
    assert wire.SIZE.buckets == (128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 100 << 10, 1204 << 10)
    assert wire.DELAY.buckets == (0.001, 0.005, 0.01)


def test_example_of_the_proposal() -> None:
    """N records become one entry; each callback has the entry's position, the batch's size, and the index in it."""
    s, outcomes = after(REFERENCE, add(10), add(11), add(12), DONE)
    assert outcomes[2].writes == (Write(1, True, (1, 2, 3), 33 + 4),)
    position = Position(1, 0)
    assert outcomes[3].callbacks == tuple(Callback(number, "ok", position, number - 1, 3) for number in (1, 2, 3))
    assert s.log == (Entry(position, True, (1, 2, 3), True),)


def test_several_writes_are_in_flight() -> None:
    s, _ = after(REFERENCE, *[add(1)] * 9)
    assert [write.records for write in s.in_flight] == [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


@pytest.mark.parametrize(
    ("sizes", "flushed"),
    [
        ((10, 10), []),
        ((10, 10, 10), [Flush("records", 3, 30, 0)]),
        ((0, 0, 0), [Flush("records", 3, 0, 0)]),
        ((25, 24), []),
        ((25, 25), [Flush("size", 2, 50, 0)]),
        ((49, 49), [Flush("size", 2, 98, 0)]),
        ((25, 24, 30), [Flush("records", 3, 79, 0)]),
        ((10, 50), [Flush("large", 1, 10, 0)]),
        ((50,), []),
    ],
)
def test_trigger_order(sizes: tuple[int, ...], flushed: list[Flush]) -> None:
    """The records trigger precedes the size trigger. A batch may have up to twice max_bytes."""
    _, outcomes = after(REFERENCE, *map(add, sizes))
    assert [flush for each in outcomes for flush in each.flushes] == flushed


def test_large_record_is_written_alone_after_the_buffer() -> None:
    _, outcomes = after(REFERENCE, add(10), add(50), add(10))
    assert outcomes[1].writes == (Write(1, True, (1,), 14), Write(2, False, (2,), 50))
    _, outcomes = after(config(writes="immediate"), add(10), add(50))
    assert outcomes[1].callbacks == (Callback(1, "ok", Position(1, 0), 0, 1), Callback(2, "ok", Position(1, 1)))


def test_every_record_is_large_with_max_bytes_zero() -> None:
    _, outcomes = after(config(max_bytes=0), add(0), add(7))
    assert [write.batched for each in outcomes for write in each.writes] == [False, False]


@pytest.mark.parametrize("settings", [{"batching": False}, {"max_records": 1}, {"max_records": 0}])
def test_records_are_written_within_the_call_without_batching(settings: dict[str, Any]) -> None:
    """A record needs no task of the writer's thread, and there is no timer."""
    cfg = config(executor="queued", **settings)
    s, outcomes = after(cfg, add(10), add(100), wait(1000), ("complete_write",), CLOSE, add(3))
    assert [each.writes for each in outcomes[:2]] == [(Write(1, False, (1,), 10),), (Write(2, False, (2,), 100),)]
    assert outcomes[3].callbacks == (Callback(1, "ok", Position(1, 0)),)
    assert outcomes[4] == Effects(1, closed=1)
    assert outcomes[5].callbacks == (Callback(3, "closed"),)
    assert (s.timer, len(s.in_flight)) == (None, 1)


def test_size_cap_flushes_before_exceeding() -> None:
    cfg = config("size-is-a-cap")
    s, outcomes = after(cfg, add(30), add(21), add(29), add(49), add(2))
    assert [flush for each in outcomes for flush in each.flushes] == [
        Flush("size", 1, 30, 0),
        Flush("size", 2, 50, 0),
        Flush("size", 1, 49, 0),
    ]
    assert [each.number for each in s.buffer] == [5]


# ---- the delay


def test_tick_is_free_running() -> None:
    """The tick fires at every multiple of the delay. A record may wait for less than the delay, but not for longer."""
    s, outcomes = after(REFERENCE, wait(25), add(1), wait(4), wait(1), add(1), wait(45))
    assert [outcomes[i].number for i in (0, 2, 3, 5)] == [2, 0, 1, 4], "the number of ticks in each advance"
    assert [flush.waited for each in outcomes for flush in each.flushes] == [5, 10]
    assert s.timer == 80


def test_delay_counts_from_first_record_in_the_proposal() -> None:
    cfg = config("pip-160")
    s, outcomes = after(cfg, wait(25), add(1), wait(5), add(1), wait(4), wait(1), wait(100))
    assert [(each.number, each.flushes) for each in outcomes[4:]] == [
        (0, ()),
        (1, (Flush("delay", 2, 2, 10),)),
        (0, ()),
    ]
    assert s.timer is None
    s, _ = after(cfg, add(1), wait(5), add(1), add(1), wait(1), add(1))
    assert s.timer == 16, "the timer of the flushed batch is cancelled"


def test_flush_by_records_keeps_the_tick() -> None:
    s, _ = after(REFERENCE, wait(4), *[add(1)] * 3)
    assert s.timer == 10


def test_slow_executor_has_at_most_one_tick() -> None:
    """Before apache/pulsar#16679, a slow executor accumulated ticks."""
    s, outcomes = after(QUEUED, wait(1000))
    assert (s.tasks, s.timer, outcomes[0].number) == (("tick",), None, 1)
    s, _ = after(QUEUED, run(), start_at=s)
    assert (s.tasks, s.timer) == ((), 1010)


def test_record_added_after_a_tick_is_flushed_by_the_next() -> None:
    """Before apache/pulsar#16679, the record waited for two delays."""
    _, outcomes = after(REFERENCE, wait(15), add(1), wait(5))
    assert outcomes[-1].flushes == (Flush("delay", 1, 1, 5),)


@pytest.mark.parametrize("profile", PROFILES)
def test_idle_writer_keeps_max_delay(profile: str) -> None:
    """In a revision of apache/pulsar#16758, a tick with an empty buffer did not re-arm the timer."""
    _, outcomes = after(config(profile), wait(100), add(1), wait(10))
    assert triggers(outcomes) == ["delay"]


# ---- the ledger


def test_failure_reaches_only_its_batch() -> None:
    s, outcomes = after(REFERENCE, *[add(1)] * 6, LOST, DONE)
    assert failures(outcomes) == [(number, "write_failed") for number in (1, 2, 3)]
    assert [entry.records for entry in s.log] == [(4, 5, 6)]


def test_failed_write_may_be_durable() -> None:
    """The callbacks report the failure. The entry has a position, and the next entry has the position after it."""
    s, outcomes = after(REFERENCE, *[add(1)] * 6, ("fail_write", True), DONE)
    assert failures(outcomes, "write_failed") == [1, 2, 3]
    assert s.log == (Entry(Position(1, 0), True, (1, 2, 3), False), Entry(Position(1, 1), True, (4, 5, 6), True))
    assert outcomes[-1].callbacks[0] == Callback(4, "ok", Position(1, 1), 0, 3)


def test_write_in_flight_is_stored_in_the_current_ledger() -> None:
    s, _ = after(REFERENCE, *[add(1)] * 6, DONE, ("roll_ledger",), DONE)
    assert [entry.position for entry in s.log] == [Position(1, 0), Position(2, 0)]


def test_fence_fails_records_before_writes_in_flight_complete() -> None:
    s, outcomes = after(REFERENCE, *[add(1)] * 3, ("fence",), *[add(1)] * 3, add(60), DONE)
    assert failures(outcomes) == [(number, "fenced") for number in (4, 5, 6, 7)]
    assert [entry.records for entry in s.log] == [(1, 2, 3)]
    assert s.pending_callbacks == ()


# ---- serialisation


@pytest.mark.parametrize("cfg", [REFERENCE, SHIPPED], ids=["reference", "shipped"])
def test_record_without_size_fails_alone(cfg: Config) -> None:
    s, outcomes = after(cfg, add(1), add(1, "size"), add(60, "single"), add(1, "single"))
    assert failures(outcomes) == [(2, "serialization"), (3, "serialization")]
    assert [each.number for each in s.buffer] == [4], "in a batch it does no harm"


def test_unserialisable_batch_fails_as_a_whole() -> None:
    s, outcomes = after(REFERENCE, add(1), add(1, "batch"), add(60))
    assert failures(outcomes) == [(1, "serialization"), (2, "serialization")]
    assert outcomes[-1].writes == (Write(1, False, (3,), 60),)
    assert s.pending_callbacks == (3,)


def test_shipped_unserialisable_batch_stays_and_loses_large_record() -> None:
    """The buffer is flushed repeatedly. No callback completes before close, and that of the large record never does."""
    steps = [add(1), add(1, "batch"), add(1), add(1), add(60), wait(30)]
    s, outcomes = after(SHIPPED, *steps)
    assert triggers(outcomes) == ["records", "records", "large", "delay", "delay", "delay"]
    assert (failures(outcomes), len(s.buffer), s.pending_callbacks) == ([], 4, (1, 2, 3, 4, 5))
    s, outcomes = after(SHIPPED, CLOSE, start_at=s)
    assert failures(outcomes, "closed") == [1, 2, 3, 4]
    assert s.pending_callbacks == (5,)
    s, _ = after(REFERENCE, *steps, DONE, DONE)
    assert s.pending_callbacks == ()


@pytest.mark.parametrize(("profile", "thrown"), [("reference", False), ("pulsar-2026-07", True)])
def test_unserialisable_record_without_batching(profile: str, thrown: bool) -> None:
    s, outcomes = after(config(profile, batching=False), add(1, "single"), add(1))
    assert outcomes[0].thrown is thrown
    assert failures(outcomes) == ([] if thrown else [(1, "serialization")])
    assert s.pending_callbacks == ((1, 2) if thrown else (2,))


# ---- close


def test_close_fails_buffered_records_and_keeps_writes_in_flight() -> None:
    s, outcomes = after(REFERENCE, *[add(1)] * 5, CLOSE, add(1), DONE, CLOSE, wait(100))
    assert failures(outcomes) == [(4, "closed"), (5, "closed"), (6, "closed")]
    assert outcomes[5] == Effects(1, callbacks=outcomes[5].callbacks, closed=1)
    assert outcomes[8] == Effects(1), "it was closed already"
    assert [entry.records for entry in s.log] == [(1, 2, 3)]
    assert (s.status, s.buffer, s.size, s.timer) == ("closed", (), 0, None)


@pytest.mark.parametrize(("cfg", "held"), [(QUEUED, 0), (SHIPPED_QUEUED, 2)], ids=["reference", "shipped"])
def test_later_records_fail_first_while_closing(cfg: Config, held: int) -> None:
    """See apache/pulsar#16999 and #18290. Under the shipped rules, the buffer keeps its records."""
    adds = [add(10)] * 4
    s, outcomes = after(cfg, *adds, run(2), CLOSE, add(10), run(1), run())
    assert failures(outcomes, "closed") == [3, 4, 1, 2, 5]
    assert (len(s.buffer), s.size) == (held, 10 * held)


def test_tick_after_close_has_no_effect() -> None:
    for cfg in (QUEUED, SHIPPED_QUEUED):
        s, outcomes = after(cfg, add(10), run(), CLOSE, wait(10), run())
        assert (triggers(outcomes), failures(outcomes, "closed"), s.timer) == ([], [1], None)


def test_tick_while_closing_fails_its_batch() -> None:
    s, outcomes = after(QUEUED, add(10), run(), wait(10), CLOSE, run())
    assert (triggers(outcomes), failures(outcomes, "closed")) == (["delay"], [1])
    assert (s.status, s.in_flight) == ("closed", ())


def test_close_completes_while_a_tick_is_queued() -> None:
    """Before apache/pulsar#16758 a writer whose timer could not be cancelled was never closed."""
    s, outcomes = after(QUEUED, wait(10), CLOSE, run())
    assert (s.status, outcomes[-1].closed) == ("closed", 1)


@pytest.mark.parametrize(("cfg", "done"), [(QUEUED, 0), (SHIPPED_QUEUED, 1)], ids=["reference", "shipped"])
def test_second_close_completes_with_the_first(cfg: Config, done: int) -> None:
    s, outcomes = after(cfg, CLOSE, CLOSE)
    assert ([each.number for each in outcomes], s.status) == ([0, done], "closing")
    assert after(cfg, run(), start_at=s)[1] == [Effects(1, closed=2 - done)]


def test_close_that_flushes() -> None:
    cfg = config("flush-on-close", executor="queued")
    s, outcomes = after(cfg, add(10), run(), CLOSE, add(10), run(), DONE)
    assert (triggers(outcomes), failures(outcomes)) == (["close"], [(2, "closed")])
    assert [entry.records for entry in s.log] == [(1,)]


# ---- a new writer, and the canonical form


def test_new_writer_is_empty_and_its_timer_is_armed() -> None:
    expected = State(
        now=5,
        status="open",
        tasks=(),
        buffer=(),
        size=0,
        timer=15,
        in_flight=(),
        pending_callbacks=(),
        closers=0,
        fenced=False,
        ledger=1,
        next_entry=0,
        log=(),
        next_record=1,
        next_write=1,
        flushes=(),
    )
    assert m.txn_writer.start(config(start=5)) == expected
    for cfg in (config("pip-160", start=5), config(start=5, batching=False), config(start=5, max_records=1)):
        assert m.txn_writer.start(cfg) == expected._replace(timer=None)


def test_canonical_form_counts_from_now_and_renumbers() -> None:
    """A new writer and one whose records and writes have failed have one canonical form, also after equal steps."""
    cfg = config(executor="queued", max_delay_ms=40)
    earlier = [add(50), add(1), add(50), run(), wait(40), run(), LOST, LOST, LOST, wait(7), wait(33), run()]
    known, later = m.txn_writer.start(cfg), after(cfg, *earlier)[0]
    assert m.txn_writer.canonical(cfg, later) == known._replace(flushes=())
    steps = [
        add(1),
        add(2),
        run(),
        wait(3),
        add(50),
        add(1),
        run(),
        add(1),
        add(1),
        run(1),
        DONE,
        wait(1),
        CLOSE,
        wait(50),
    ]
    for step in steps:
        known, later = (after(cfg, step, start_at=s)[0] for s in (known, later))
        assert m.txn_writer.canonical(cfg, later) == m.txn_writer.canonical(cfg, known)
        assert m.txn_writer.canonical(cfg, known) == known._replace(
            now=0,
            buffer=tuple([each._replace(since=each.since - known.now) for each in known.buffer]),
            timer=known.timer and known.timer - known.now,
            in_flight=tuple([each._replace(number=i) for i, each in enumerate(known.in_flight, 1)]),
            next_write=len(known.in_flight) + 1,
            flushes=(),
        )


def test_each_rule_differs_in_some_version() -> None:
    def changed(profile: str) -> list[str]:
        cfg, names = find_profile(SUBJECT, profile), m.txn_writer.rules
        return [name for name in names if getattr(cfg, name) != getattr(m.reference.config, name)]

    shipped = ["unserialisable_batch", "unserialisable_unbatched", "second_close", "closed_buffer"]
    assert [changed(name) for name in ("pulsar-2026-07", "pip-160", "size-is-a-cap", "flush-on-close")] == [
        shipped,
        ["delay_from"],
        ["size_limit"],
        ["close_buffered"],
    ]


# ---- bad input


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((DONE,), "no write is in flight"),
        ((add(1), LOST), "no write is in flight"),
        ((("fence",), ("fence",)), "the ledger is fenced"),
    ],
)
def test_invalid_step_is_rejected_without_change(steps: tuple[Any, ...], said: str) -> None:
    s, _ = after(REFERENCE, *steps[:-1])
    again, outcomes = after(REFERENCE, steps[-1], start_at=s)
    assert outcomes == [Refused("illegal_state", said)]
    assert again == s


# ---- what properties find in a single step


def broken(cfg: Config, before: State, step: tuple[Any, ...], wrong: Effects | None = None) -> list[str]:
    """Returns the properties of steps that an action violates, if its outcome is replaced by `wrong`."""
    name, *arguments = step
    s, outcome = m.txn_writer.step(cfg, before, name, tuple(arguments))
    names = [p.name for p in SUBJECT.machine.actions[name].params]
    event = Event(name, dict(zip(names, arguments, strict=True)), wrong or outcome)
    asked = [p for p in SUBJECT.properties if p.kind == "always" and p.of_step and p.given(cfg)]
    return [p.name for p in asked if name in (p.on or (name,)) and not p.holds(cfg, before, event, s)]


IMMEDIATE_WRITES = config(executor="queued", writes="immediate")


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((1, 49), ""),
        ((1, 50), "record_is_plain_entry_iff_large"),
        ((25, 25, 1), "entry_respects_batch_limits"),
        ((1, 1, 1, 1), "entry_respects_batch_limits"),
    ],
)
@pytest.mark.parametrize("cfg", [QUEUED, IMMEDIATE_WRITES], ids=["queued", "immediate"])
def test_wrong_batch_violates_its_property(cfg: Config, sizes: tuple[int, ...], found: str) -> None:
    """The batch is buffered and flushed in one step, so no state has it in the buffer. Only the outcome shows it."""
    s, _ = after(cfg, *map(add, sizes))
    all_of_them = Write(1, True, tuple(range(1, len(sizes) + 1)), 4 + sum(sizes))
    names = broken(cfg, s, run(), Effects(len(sizes), (all_of_them,)))
    assert [name for name in names if name.startswith(("record_is_plain", "entry_respects"))] == (
        [found] if found else []
    )


@pytest.mark.parametrize(
    ("cfg", "steps", "step", "right"),
    [
        (REFERENCE, [add(1)], add(50), "large"),
        (REFERENCE, [add(1)], wait(10), "delay"),
        (config("flush-on-close"), [add(1)], CLOSE, "close"),
        (REFERENCE, [add(1), add(1)], add(1), "records"),
        (REFERENCE, [add(25)], add(25), "size"),
        (config("size-is-a-cap"), [add(25)], add(26), "size"),
        (QUEUED, [add(1), add(50)], run(), "large"),
    ],
)
def test_wrong_trigger_violates_its_property(cfg: Config, steps: list[Any], step: tuple[Any, ...], right: str) -> None:
    s, _ = after(cfg, *steps)
    effects: Effects = m.txn_writer.step(cfg, s, step[0], step[1:])[1]
    (flush,) = effects.flushes
    assert flush.trigger == right
    for trigger in ("records", "size", "large", "delay", "close"):
        wrong = effects._replace(flushes=(flush._replace(trigger=trigger),))
        expected = [] if trigger == right else ["flush_trigger_is_correct"]
        assert broken(cfg, s, step, wrong) == expected


@pytest.mark.parametrize("why", ["fenced", "write_failed", "serialization", "ok"])
@pytest.mark.parametrize(("cfg", "steps"), [(REFERENCE, []), (QUEUED, [run(2), CLOSE])], ids=["immediate", "queued"])
def test_wrong_close_failure_violates_its_property(cfg: Config, steps: list[Any], why: Any) -> None:
    s, _ = after(cfg, add(1), add(1, "batch"), *steps)
    step = run() if steps else CLOSE
    effects: Effects = m.txn_writer.step(cfg, s, step[0], step[1:])[1]
    wrong = effects._replace(callbacks=(effects.callbacks[0], effects.callbacks[1]._replace(outcome=why)))
    assert broken(cfg, s, step) == []
    assert "close_fails_unsubmitted_records" in broken(cfg, s, step, wrong)


def test_unserialisable_batch_may_fail_as_such_while_closing() -> None:
    s, _ = after(QUEUED, add(1), add(1, "batch"), run(), wait(10), CLOSE)
    assert broken(QUEUED, s, run()) == []
    assert failures(after(QUEUED, run(), start_at=s)[1], "serialization") == [1, 2]


# ---- long traces


@pytest.mark.parametrize("profile", PROFILES)
def test_batches_are_recycled(profile: str) -> None:
    """The pool creates one batch for the buffer, and one for each write in flight at the same time."""
    writer, most = TxnWriter(config(profile)), 0
    for number in range(600):
        for name, *arguments in (add(number % 30), wait(10 * (number % 7 == 0))):
            getattr(writer, name)(*arguments)
            most = max(most, len(writer.view().in_flight))
        while len(writer.view().in_flight) > 1:
            writer.fail_write(number % 2 == 0) if number % 5 == 0 else writer.complete_write()
    assert writer.check() == []
    assert (writer._pool.created, most > 1) == (most + 1, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_delay_ms": 0}, "txn_writer.max_delay_ms is 0, must be integer of 1 or more"),
        ({"max_bytes": -1}, "txn_writer.max_bytes is -1, must be integer of 0 or more"),
        ({"executor": "own"}, "txn_writer.executor is 'own', must be one of immediate, queued"),
    ],
)
def test_invalid_setting_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        SUBJECT.machine.configure(settings)
    assert said in str(problem.value)


@pytest.mark.parametrize(
    ("action", "data", "said"),
    [
        ("add", {"size": -1, "fails_on": "nothing"}, "add.size is -1, must be integer of 0 or more"),
        ("add", {"size": 1, "fails_on": "all"}, "add.fails_on is 'all', must be one of nothing, size, single, batch"),
        ("add", {"size": 1}, "add lacks its argument fails_on"),
        ("fail_write", {"durable": 1}, "fail_write.durable is 1, must be true or false"),
        ("advance_time", {"by": -5}, "advance_time.by is -5, must be integer of 0 or more"),
    ],
)
def test_invalid_argument_is_named(action: str, data: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        SUBJECT.machine.actions[action].arguments(data, REFERENCE)
    assert str(problem.value) == said
