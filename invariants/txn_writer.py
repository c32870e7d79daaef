"""Guarantees of the buffered writer to its callers and to readers of the log.

Records are numbered in call order. A large record has max_bytes bytes or more. A plain entry has one record and no
header. A tick is a task that the timer submits to the executor. Object pools are not covered, because the model has
none; the implementation's `check` covers the pool of the implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Refused
from model.positions import Position
from model.txn_writer.machine import txn_writer
from model.txn_writer.state import Callback, Config, Effects, Flush, Record, State, Task, Write

#: Actions that complete or fail a write.
COMPLETIONS = ("complete_write", "fail_write")
#: Actions that may run tasks of the executor.
TASKS = ("add", "close", "run_writer_tasks", "advance_time")
#: Actions that may run the task of an `add`, and those that may run a tick.
ADDS = ("add", "run_writer_tasks")
TICKS = ("advance_time", "run_writer_tasks")


def is_batching(cfg: Config) -> bool:
    """Whether records are batched."""
    return cfg.batching and cfg.max_records >= 2


def effects_of(event: Event) -> Effects:
    """Returns the effects of a step; no effects if the call was rejected."""
    return Effects(0) if isinstance(event.outcome, Refused) else event.outcome


def pending_records(s: State) -> list[int]:
    """Returns the numbers of the records in flight, in the buffer and in the executor's queue, in this order.

    The buffer of a closed writer does not count: its records have failed.
    """
    numbers = [number for write in s.in_flight for number in write.records]
    if s.status != "closed":
        numbers += [each.number for each in s.buffer]
    return numbers + [task.number for task in s.tasks if isinstance(task, Record)]


def record_numbers(callbacks: Iterable[Callback]) -> list[int]:
    """Returns the numbers of the records whose callbacks completed."""
    return [callback.record for callback in callbacks]


def has_tick(s: State) -> bool:
    """Whether a tick is queued in the executor."""
    return "tick" in s.tasks


def tasks_run(cfg: Config, before: State, event: Event) -> tuple[Task, ...]:
    """Returns the executor tasks that a step of a batching writer ran."""
    number = effects_of(event).number  # of `run_writer_tasks`: tasks; of `advance_time`: ticks; of `add`: the record
    if event.name == "run_writer_tasks":
        return before.tasks[:number]
    if cfg.executor == "queued":
        return ()
    if event.name == "add":
        return (Record(number, event.arguments["size"], event.arguments["fails_on"]),)
    if event.name == "advance_time":
        ticks: tuple[Task, ...] = ("tick",)
        return ticks * number
    return ("close",) if event.name == "close" and before.status != "closed" else ()


def sizes_of(write: Write, before: State, event: Event) -> list[int]:
    """Returns the sizes of the records of a write, which were buffered or queued before the step, or added by it."""
    size_of = {each.number: each.size for each in before.buffer}
    size_of.update({task.number: task.size for task in before.tasks if isinstance(task, Record)})
    if event.name == "add":
        size_of[effects_of(event).number] = event.arguments["size"]
    return [size_of.get(number, 0) for number in write.records]


def respects_limits(cfg: Config, write: Write, sizes: list[int]) -> bool:
    """Whether the size of an entry is that of its records and header, and its records respect the limits.

    A plain entry has one record. Only the last record of a batch may bring the batch to max_records records or
    max_bytes bytes. Each record of a batch has less than max_bytes bytes, so a batch has at most 2 * max_bytes - 2.
    """
    size = sum(sizes)
    if write.size != size + (cfg.header_bytes if write.batched else 0):
        return False
    if not write.batched:
        return len(sizes) == 1
    return (
        1 <= len(sizes) <= cfg.max_records
        and size - sizes[-1] < cfg.max_bytes
        and size <= max(2 * cfg.max_bytes - 2, 0)
    )


def can_trigger(cfg: Config, task: Task, flush: Flush) -> bool:
    """Whether a task can cause a flush with this trigger and this size."""
    if not isinstance(task, Record):
        return flush.trigger == ("delay" if task == "tick" else "close")
    is_large = task.size >= cfg.max_bytes
    # a large record flushes with `large` only, any other record with `records` or `size` only
    if is_large or flush.trigger not in ("records", "size"):
        return is_large and flush.trigger == "large"
    is_full = flush.size >= cfg.max_bytes
    # with a cap, a record that would exceed it flushes the buffer first
    return flush.trigger == "records" or is_full or (cfg.size_limit == "cap" and flush.size + task.size > cfg.max_bytes)


# ---- callbacks ------------------------------------------------------------------------------------------


@always(txn_writer, given=lambda cfg: is_batching(cfg) or cfg.unserialisable_unbatched == "callback")
def callback_is_pending_iff_its_record_is(cfg: Config, s: State) -> bool:
    """A record's callback is pending if and only if the record is in the executor's queue, buffered or in flight.

    In a closed writer, no record counts as buffered. Configs without batching in which `add` may throw are excluded;
    `add_never_throws` covers them.
    """
    return sorted(pending_records(s)) == list(s.pending_callbacks)


@always(txn_writer, on=("add",))
def add_never_throws(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`add` does not throw, even if the record cannot be serialised."""
    return not effects_of(event).thrown


@always(txn_writer)
def callback_completes_exactly_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step completes each pending callback once, or leaves it pending, and completes no other callback."""
    pending = [*before.pending_callbacks, *range(before.next_record, after.next_record)]
    return sorted([*record_numbers(effects_of(event).callbacks), *after.pending_callbacks]) == pending


@always(txn_writer)
def successful_callback_names_stored_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record's callback succeeds if and only if the record's entry is stored and its write succeeds.

    A successful callback has the position of the entry. In a batch, the callback also has the batch index of its
    record, and the number of records.
    """
    expected: list[tuple[int, Position, int | None, int | None]] = []
    for position, batched, records, succeeded in after.log[len(before.log) :]:
        if succeeded and batched:
            expected += [(number, position, i, len(records)) for i, number in enumerate(records)]
        elif succeeded:
            expected += [(number, position, None, None) for number in records]
    callbacks = [callback for callback in effects_of(event).callbacks if callback.outcome == "ok"]
    return [
        (callback.record, callback.position, callback.batch_index, callback.batch_size) for callback in callbacks
    ] == expected


@always(txn_writer, on=COMPLETIONS)
def write_result_reaches_exactly_its_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a write completes or fails, exactly the callbacks of its records do, in order.

    The write is the first one in flight; the other writes stay in flight.
    """
    if isinstance(event.outcome, Refused):
        return True
    outcome = "ok" if event.name == "complete_write" else "write_failed"
    completed = [(callback.record, callback.outcome) for callback in event.outcome.callbacks]
    write = before.in_flight[0]
    return after.in_flight == before.in_flight[1:] and completed == [(number, outcome) for number in write.records]


@always(txn_writer)
def successes_complete_in_position_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Successful callbacks complete in position order, and within an entry in the order of batch indexes."""
    last = before.log[-1].position if before.log else None
    stored = [
        (callback.position, callback.batch_index or 0)
        for callback in effects_of(event).callbacks
        if callback.position is not None
    ]
    return stored == sorted(set(stored)) and (last is None or not stored or stored[0][0] > last)


# ---- entries ------------------------------------------------------------------------------------------


@always(txn_writer)
def records_are_stored_in_call_order(cfg: Config, s: State) -> bool:
    """Records are stored, submitted and buffered in call order, without duplicates.

    A large record never overtakes buffered ones.
    """
    numbers = [number for entry in s.log for number in entry.records] + pending_records(s)
    return numbers == sorted(set(numbers))


@always(txn_writer)
def entry_positions_are_consecutive(cfg: Config, s: State) -> bool:
    """Entry ids are consecutive from 0 in each ledger, ledger ids increase, and the next entry follows the last one."""
    positions: list[tuple[int, int]] = [*[entry.position for entry in s.log], (s.ledger, s.next_entry)]
    if positions[0][1] != 0:
        return False
    return all(
        entry == (last_entry + 1 if ledger == last_ledger else 0) and ledger >= last_ledger
        for (last_ledger, last_entry), (ledger, entry) in pairwise(positions)
    )


@always(txn_writer)
def entry_respects_batch_limits(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A plain entry has one record; the records of a batch are 1 to max_records, of at most 2 * max_bytes - 2 bytes.

    Without its last record, a batch has less than max_bytes bytes. The size of an entry is that of its records, plus
    the header of a batch.
    """
    counts = [(entry.batched, len(entry.records)) for entry in after.log[len(before.log) :]]
    are_within_limit = all(1 <= count <= (cfg.max_records if batched else 1) for batched, count in counts)
    return are_within_limit and all(
        respects_limits(cfg, write, sizes_of(write, before, event)) for write in effects_of(event).writes
    )


@always(txn_writer, on=TASKS, given=is_batching)
def record_is_plain_entry_iff_large(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record of max_bytes or more is written as a plain entry; a smaller record is always written in a batch.

    A batch may have a single record. No large record is buffered.
    """
    for write in effects_of(event).writes:
        if any(write.batched != (size < cfg.max_bytes) for size in sizes_of(write, before, event)):
            return False
    return all(each.size < cfg.max_bytes for each in after.buffer)


@always(txn_writer, given=lambda cfg: not is_batching(cfg))
def entries_are_plain_without_batching(cfg: Config, s: State) -> bool:
    """Without batching, every entry is plain: it has no magic number.

    No record is buffered, no timer is armed, and no task is queued.
    """
    batched = [entry.batched for entry in s.log] + [write.batched for write in s.in_flight]
    return not any(batched) and not s.buffer and s.timer is None and not s.tasks


@always(txn_writer, on=TASKS, given=lambda cfg: cfg.size_limit == "cap")
def batch_respects_size_cap(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If the size limit is a cap, the records of a batch never exceed max_bytes."""
    written = [sizes_of(write, before, event) for write in effects_of(event).writes if write.batched]
    return after.size <= cfg.max_bytes and all(sum(sizes) <= cfg.max_bytes for sizes in written)


@always(txn_writer, on=("roll_ledger",))
def rollover_returns_next_ledger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A rollover returns the id of the new ledger, which is the next id; the new ledger is empty."""
    ledger = before.ledger + 1
    return event.outcome == Effects(ledger) and (after.ledger, after.next_entry) == (ledger, 0)


# ---- buffer and triggers ------------------------------------------------------------------------------


@always(txn_writer)
def buffer_is_below_thresholds(cfg: Config, s: State) -> bool:
    """A writer that is not closed buffers fewer than max_records records, of less than max_bytes bytes in total.

    An empty buffer is not compared. In every status, `size` is the sum of the sizes of the buffered records.
    """
    if s.size != sum([each.size for each in s.buffer]):
        return False
    return s.status == "closed" or not s.buffer or (len(s.buffer) < cfg.max_records and s.size < cfg.max_bytes)


@always(txn_writer)
def flush_trigger_is_correct(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each flush is caused by a task of the executor, and is reported with its trigger.

    A task causes at most one flush. The trigger is `records` if and only if the batch has max_records records.
    Otherwise the trigger is `size` if the batch has max_bytes, or if the next record is not large and would exceed the
    cap. Otherwise the task determines the trigger: a large record (`large`), a tick (`delay`) or a close (`close`).
    """
    flushes = effects_of(event).flushes
    # the state has the flushes of the last step; a rejected call does not change them
    if not flushes or flushes != after.flushes:
        return isinstance(event.outcome, Refused) or flushes == after.flushes
    tasks = iter(tasks_run(cfg, before, event))
    for flush in flushes:
        has_max_records = flush.records >= cfg.max_records
        if has_max_records != (flush.trigger == "records"):
            return False
        if flush.size >= cfg.max_bytes and not has_max_records and flush.trigger != "size":
            return False
        # `tasks` is an iterator: a flush is compared only with tasks after the task of the previous flush
        if not any(can_trigger(cfg, task, flush) for task in tasks):
            return False
    return True


@always(txn_writer)
def flush_writes_or_fails_whole_buffer(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every flush empties the buffer: it submits all records as one batch, or fails all their callbacks.

    Writes are numbered in order.
    """
    effects = effects_of(event)
    if [write.number for write in effects.writes] != list(range(before.next_write, after.next_write)):
        return False
    if effects.flushes and after.status != "closed" and any(each in before.buffer for each in after.buffer):
        return False
    written = [len(write.records) for write in effects.writes if write.batched]
    flushed = [flush.records for flush in effects.flushes]
    failed = sum([callback.outcome in ("serialization", "closed", "fenced") for callback in effects.callbacks])
    if len(written) == len(flushed):
        return written == flushed
    # the callbacks of the records that were flushed and not written have failed
    return len(written) < len(flushed) and sum(flushed) - sum(written) <= failed


@always(txn_writer, on=TASKS, given=lambda cfg: cfg.unserialisable_batch == "fails")
def flush_reports_size_and_age_of_its_batch(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A flush reports the bytes of its records, and how long the oldest record was buffered.

    The bytes are compared if every flush of the step submitted a batch. In a step without a flush, a record that is
    added to the buffer has the current time.
    """
    effects, old = effects_of(event), before.buffer
    if not effects.flushes:
        return all(each.since == after.now for each in after.buffer if each not in old)
    # in a step that advances the clock, only the first tick finds records to flush
    now = before.timer if event.name == "advance_time" else after.now
    assert now is not None
    # only the first flush of a step can have records that were buffered before the step
    oldest = [old[0].since if old else now, *[now] * len(effects.flushes)]
    ages = [now - since for since in oldest[: len(effects.flushes)]]
    sizes = [write.size - cfg.header_bytes for write in effects.writes if write.batched]
    is_size = [flush.size for flush in effects.flushes] == sizes or len(sizes) < len(effects.flushes)
    return is_size and [flush.waited for flush in effects.flushes] == ages


@always(txn_writer)
def buffered_record_is_flushed_within_max_delay(cfg: Config, s: State) -> bool:
    """While an open writer has buffered records, a tick is queued, or the timer is due within max_delay.

    max_delay counts from the addition of the oldest buffered record.
    """
    if not s.buffer or s.status != "open" or has_tick(s):
        return True
    return s.timer is not None and s.timer <= s.buffer[0].since + cfg.max_delay_ms


@always(txn_writer)
def at_most_one_timer_or_tick_is_outstanding(cfg: Config, s: State) -> bool:
    """At most one timer or queued tick is outstanding, and an armed timer is due after now.

    An open batching writer with a free-running timer has exactly one. A closed writer has no armed timer.
    """
    count = (s.timer is not None) + sum([task == "tick" for task in s.tasks])
    if count > 1 or (s.timer is not None and s.timer <= s.now) or (s.status == "closed" and s.timer is not None):
        return False
    return count == 1 or not is_batching(cfg) or cfg.delay_from != "tick" or s.status != "open"


@always(txn_writer, given=lambda cfg: cfg.delay_from == "first_record")
def timer_is_armed_for_first_record_of_batch(cfg: Config, s: State) -> bool:
    """If the delay counts from the first record, the timer is due exactly max_delay after this record was added.

    The timer is armed only while records are buffered. While a writer that is not closed has buffered records, the
    timer is armed or a tick is queued.
    """
    if s.timer is None:
        return not s.buffer or has_tick(s) or s.status == "closed"
    return bool(s.buffer) and s.timer == s.buffer[0].since + cfg.max_delay_ms


@eventually(txn_writer, fair=("advance_time", "run_writer_tasks"))
def buffer_is_eventually_flushed(cfg: Config, s: State) -> bool:
    """If time and the executor are fair, an open writer eventually has no buffered record, or is no longer open."""
    return not s.buffer or s.status != "open"


@eventually(txn_writer, fair=("run_writer_tasks",))
def close_terminates(cfg: Config, s: State) -> bool:
    """If the executor is fair, every close completes."""
    return s.status != "closing"


@eventually(txn_writer, fair=("advance_time", "run_writer_tasks", "complete_write"))
def every_callback_completes(cfg: Config, s: State) -> bool:
    """If time, executor and ledger are fair, every callback completes."""
    return not s.pending_callbacks


# ---- close --------------------------------------------------------------------------------------------


@always(txn_writer)
def closed_writer_has_empty_buffer(cfg: Config, s: State) -> bool:
    """The buffer of a closed writer is empty, and its size is 0."""
    return s.status != "closed" or (not s.buffer and s.size == 0)


@always(txn_writer)
def closing_writer_submits_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After the call of close, no entry is submitted, unless the close flushes; then until the writer is closed.

    In the profile `flush-on-close`, the close flushes. A closed writer fails every record with the result `closed`.
    """
    effects = effects_of(event)
    if before.status == "open" or (before.status == "closing" and cfg.close_buffered == "flushes"):
        return True
    in_flight = {number for write in before.in_flight for number in write.records}
    others = [callback.outcome for callback in effects.callbacks if callback.record not in in_flight]
    return not effects.writes and (before.status == "closing" or all(outcome == "closed" for outcome in others))


@always(txn_writer, on=TASKS, given=lambda cfg: cfg.close_buffered == "fails")
def close_fails_unsubmitted_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After the call of close, every buffered or queued record fails, with the result `closed` or `serialization`.

    The result is `serialization` only if a tick flushes the buffer before the close, and the batch cannot be
    serialised. Buffered records fail no later than the close future completes.
    """
    if after.status == "open" or before.status == "closed":
        return True
    effects, buffered = effects_of(event), {each.number for each in before.buffer}
    batch_fails = bool(effects.flushes) and "batch" in [each.fails_on for each in before.buffer]
    others = [callback for callback in effects.callbacks if callback.outcome != "closed"]
    if not all(
        batch_fails and callback.record in buffered and callback.outcome == "serialization" for callback in others
    ):
        return False
    return after.status == "closing" or buffered <= set(record_numbers(effects.callbacks))


@always(txn_writer, on=("close", "run_writer_tasks"))
def close_preserves_writes_in_flight(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Neither a close nor a task of the executor changes writes in flight."""
    return after.in_flight[: len(before.in_flight)] == before.in_flight


@always(txn_writer, on=("close",))
def completed_close_means_closed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The future of each `close` is already complete on return if and only if the writer is closed."""
    return (effects_of(event).number == 1) == (after.status == "closed")


@always(txn_writer)
def every_close_future_completes_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every pending close future completes once, when the writer is closed.

    Close futures are pending if and only if the writer is closing.
    """
    completed = effects_of(event).closed
    # whether a close returned a new future; a later close may return a completed one, which does not count
    is_new = event.name == "close" and (completed > 0 or event.outcome.number == 0)
    return after.closers == before.closers + is_new - completed and (after.closers > 0) == (after.status == "closing")


@always(txn_writer)
def time_status_and_log_are_monotone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The status only moves forward (open, closing, closed), time advances by the argument, and the log only grows."""
    order = ("open", "closing", "closed")
    if order.index(after.status) < order.index(before.status):
        return False
    return after.now == before.now + event.arguments.get("by", 0) and after.log[: len(before.log)] == before.log


@always(txn_writer)
def fenced_ledger_accepts_no_write(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A fenced ledger accepts no write and stays fenced. A second fence is rejected. A fence changes no other state."""
    if event.name == "fence":
        is_fenced = after == before._replace(fenced=True, flushes=()) and event.outcome == Effects(0)
        return isinstance(event.outcome, Refused) if before.fenced else is_fenced
    return after.fenced == before.fenced and not (before.fenced and effects_of(event).writes)


# ---- coverage goals ----------------------------------------------------------------------------------------


def flushed_by(event: Event, trigger: str) -> bool:
    """Whether a step flushed the buffer with this trigger."""
    return any(flush.trigger == trigger for flush in effects_of(event).flushes)


@sometimes(txn_writer, on=ADDS, given=is_batching)
def flush_by_max_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The buffer is flushed because it has the maximum number of records."""
    return flushed_by(event, "records")


@sometimes(txn_writer, on=ADDS, given=is_batching)
def flush_by_max_size(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The buffer is flushed because it has max_bytes bytes, or because the next record would exceed the cap."""
    return flushed_by(event, "size")


@sometimes(txn_writer, on=ADDS, given=is_batching)
def flush_by_large_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A large record arrives, and the buffer is flushed before the record is written."""
    return flushed_by(event, "large") and any(not write.batched for write in effects_of(event).writes)


@sometimes(txn_writer, on=TICKS, given=is_batching)
def single_record_is_flushed_by_max_delay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A tick of the timer flushes a batch of one record."""
    return flushed_by(event, "delay") and any(w.batched and len(w.records) == 1 for w in effects_of(event).writes)


@sometimes(txn_writer, on=TASKS, given=is_batching)
def batch_serialization_fails(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Several records fail together, because one record of their batch cannot be serialised."""
    return (
        bool(effects_of(event).flushes)
        and [callback.outcome for callback in effects_of(event).callbacks].count("serialization") > 1
    )


@sometimes(txn_writer, on=("fail_write",))
def failed_record_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record is in the log although its callback failed."""
    return len(after.log) > len(before.log)


@sometimes(txn_writer, on=("complete_write",))
def write_succeeds_after_failed_write(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A write succeeds right after one that was reported as failed although its entry is in the log."""
    return bool(before.log) and not before.log[-1].succeeded and len(after.log) > len(before.log)


@sometimes(txn_writer, on=TASKS)
def failure_overtakes_write_in_flight(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record fails because the ledger is fenced, while an earlier record is still in flight."""
    return bool(after.in_flight) and any(callback.outcome == "fenced" for callback in effects_of(event).callbacks)


@sometimes(txn_writer, on=("run_writer_tasks",), given=lambda cfg: is_batching(cfg) and cfg.executor == "queued")
def later_record_fails_first_while_closing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """While the writer is closing, a queued record fails before earlier records in the buffer."""
    numbers = [callback.record for callback in effects_of(event).callbacks if callback.outcome == "closed"]
    return numbers != sorted(numbers)


@sometimes(txn_writer, on=("complete_write",))
def write_in_flight_succeeds_after_close(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A write in flight succeeds after the writer was closed."""
    return before.status == "closed" and not isinstance(event.outcome, Refused)


@sometimes(txn_writer)
def three_writes_are_in_flight(cfg: Config, s: State) -> bool:
    """Three writes are in flight at once."""
    return len(s.in_flight) >= 3
