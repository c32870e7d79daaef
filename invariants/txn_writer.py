"""What a buffered writer promises to those who hand it records, and to those who read the log.

A record is known by its number, in the order of the calls. A property that some shipped version breaks says so in its
last sentence.

Not stated: that a writer leaves the records and batches of another one alone, and that each buffer is released exactly
once. For the one it would take two writers, and there is one here; buffers, the model does not have. The implementation
draws batches from a pool, and its `check` asks that each is in one place and comes back once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Refused
from model.positions import Position
from model.txn_writer.machine import txn_writer
from model.txn_writer.state import Answer, Config, Flush, Record, State, Task, Told, Write

ENDS = ("complete_write", "fail_write")
TASKS = ("add", "close", "run_writer_tasks", "advance_time")


def batches(cfg: Config) -> bool:
    """Records are batched: that is asked for, and a batch may have two."""
    return cfg.batching and cfg.max_records >= 2


def told(event: Event) -> Told:
    """What a step told; nothing if it was refused."""
    return Told(0) if isinstance(event.outcome, Refused) else event.outcome


def held(s: State) -> list[int]:
    """The records that wait for the thread, in the buffer, or for the ledger."""
    numbers = [number for write in s.in_flight for number in write.records]
    if s.status != "closed":
        numbers += [each.number for each in s.buffer]
    return numbers + [task.number for task in s.tasks if isinstance(task, Record)]


def numbers_of(answers: Iterable[Answer]) -> list[int]:
    """The records that were answered."""
    return [answer.record for answer in answers]


def has_tick(s: State) -> bool:
    """The timer has fired, and its task waits for the thread."""
    return "tick" in s.tasks


def tasks_run(cfg: Config, before: State, event: Event) -> tuple[Task, ...]:
    """What the writer's thread ran in a step: tasks that had waited for it, or what the call gave it."""
    number = told(event).number
    if event.name == "run_writer_tasks":
        return before.tasks[:number]
    if cfg.thread == "queued":
        return ()
    if event.name == "add":
        return (Record(number, event.arguments["size"], event.arguments["fails_on"]),)
    if event.name == "advance_time":
        ticks: tuple[Task, ...] = ("tick",)
        return ticks * number
    return ("close",) if event.name == "close" and before.status != "closed" else ()


def sizes_of(write: Write, before: State, event: Event) -> list[int]:
    """How many bytes each record of a write had when it was added, waited for the thread, or was in the buffer."""
    known = {each.number: each.size for each in before.buffer}
    known.update({task.number: task.size for task in before.tasks if isinstance(task, Record)})
    if event.name == "add":
        known[told(event).number] = event.arguments["size"]
    return [known.get(number, 0) for number in write.records]


def fits(cfg: Config, write: Write, sizes: list[int]) -> bool:
    """An entry is one record, or a batch whose last record at most has brought it to a limit."""
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


def may_flush(cfg: Config, task: Task, flush: Flush) -> bool:
    """A task is one that flushes the buffer for such a reason."""
    if not isinstance(task, Record):
        return flush.reason == ("delay" if task == "tick" else "close")
    if task.size >= cfg.max_bytes or flush.reason not in ("records", "size"):
        return task.size >= cfg.max_bytes and flush.reason == "large"
    is_full = flush.size >= cfg.max_bytes
    return flush.reason == "records" or is_full or (cfg.size_limit == "cap" and flush.size + task.size > cfg.max_bytes)


# ---- answers ------------------------------------------------------------------------------------------


@always(txn_writer, given=lambda cfg: batches(cfg) or cfg.unserialisable_alone == "callback")
def a_record_without_an_answer_is_on_its_way(cfg: Config, s: State) -> bool:
    """Until its callback is told, a record waits for the thread, in the buffer or for the ledger: none is forgotten.
    A record whose caller gets an exception, with batching off, is the matter of `no_caller_gets_an_exception`.

    As shipped, a large record is forgotten if the batch before it cannot be serialised: not even close answers it.
    """
    return sorted(held(s)) == list(s.unanswered)


@always(txn_writer, on=("add",))
def no_caller_gets_an_exception(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Whatever is wrong with a record, its callback is told of it, and the caller who hands it over gets no exception.

    As shipped, it is the other way round for a record that cannot be serialised while batching is off.
    """
    return not told(event).thrown


@always(txn_writer)
def a_callback_is_told_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record's callback is told exactly once, that it is stored or that it failed; a new record waits for that."""
    waiting = [*before.unanswered, *range(before.next_record, after.next_record)]
    return sorted([*numbers_of(told(event).answers), *after.unanswered]) == waiting


@always(txn_writer)
def what_is_told_is_what_is_stored(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each success names the entry, and the place in it, where a reader finds that very record, and each stored record
    is told so unless its write failed all the same. The batch size is the number of records of the entry.
    """
    expected: list[tuple[int, Position, int | None, int | None]] = []
    for position, batched, records, was_told in after.log[len(before.log) :]:
        if was_told and batched:
            expected += [(number, position, i, len(records)) for i, number in enumerate(records)]
        elif was_told:
            expected += [(number, position, None, None) for number in records]
    answers = [a for a in told(event).answers if a.outcome == "ok"]
    return [(a.record, a.position, a.place, a.batch) for a in answers] == expected


@always(txn_writer, on=ENDS)
def an_end_reaches_every_record_of_its_entry_and_no_other(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """The end of a write is told to each record of that entry, in order, all alike; other entries are not touched."""
    if isinstance(event.outcome, Refused):
        return True
    outcome = "ok" if event.name == "complete_write" else "write_failed"
    told_to = [(a.record, a.outcome) for a in event.outcome.answers]
    write = before.in_flight[0]
    return after.in_flight == before.in_flight[1:] and told_to == [(number, outcome) for number in write.records]


@always(txn_writer)
def successes_come_in_the_order_of_positions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Successes are told in the order of positions, and within an entry in that of batch indexes."""
    last = before.log[-1].position if before.log else None
    places = [(a.position, a.place or 0) for a in told(event).answers if a.position is not None]
    return places == sorted(set(places)) and (last is None or not places or places[0][0] > last)


# ---- entries ------------------------------------------------------------------------------------------


@always(txn_writer)
def records_are_stored_in_the_order_of_their_calls(cfg: Config, s: State) -> bool:
    """No record stands before one that was added earlier, nor twice: not in the log, nor among what is to be written.

    A large record never overtakes what is in the buffer.
    """
    stored = [number for entry in s.log for number in entry.records]
    waiting = [number for write in s.in_flight for number in write.records]
    if s.status != "closed":
        waiting += [each.number for each in s.buffer]
    waiting += [task.number for task in s.tasks if isinstance(task, Record)]
    return all(a < b for a, b in pairwise(stored + waiting))


@always(txn_writer)
def entries_have_positions_in_order(cfg: Config, s: State) -> bool:
    """Entry numbers rise by one from 0 in each ledger, and the next entry comes after all of them."""
    expected: list[tuple[int, int]] = []
    for i, entry in enumerate(s.log):
        is_first = i == 0 or s.log[i - 1].position.ledger != entry.position.ledger
        expected.append((entry.position.ledger, 0 if is_first else expected[-1][1] + 1))
    there = sum([entry.position.ledger == s.ledger for entry in s.log])
    ledgers = [entry.position.ledger for entry in s.log]
    if [tuple(entry.position) for entry in s.log] != expected or s.next_entry != there:
        return False
    return ledgers == sorted(ledgers) and all(ledger <= s.ledger for ledger in ledgers)


@always(txn_writer)
def an_entry_is_one_record_or_a_batch_within_its_limits(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batch has one to max_records records. All but the last have less than max_bytes together, and with it they have
    less than twice as many. A plain entry has one record. An entry has the bytes of its records, a batch a header, too.

    As shipped, a batch that cannot be serialised grows beyond that in the buffer, where it stays.
    """
    shapes = [(entry.batched, len(entry.records)) for entry in after.log[len(before.log) :]]
    shaped = all(1 <= count <= (cfg.max_records if batched else 1) for batched, count in shapes)
    return shaped and all(fits(cfg, write, sizes_of(write, before, event)) for write in told(event).writes)


@always(txn_writer, on=TASKS, given=batches)
def what_is_large_goes_alone_and_what_is_small_in_a_batch(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """A record of max_bytes or more is never in a batch, and a smaller one always, even if it is the only one."""
    for write in told(event).writes:
        if any(write.batched != (size < cfg.max_bytes) for size in sizes_of(write, before, event)):
            return False
    return all(each.size < cfg.max_bytes for each in after.buffer)


@always(txn_writer, given=lambda cfg: not batches(cfg))
def without_batching_nothing_has_a_header(cfg: Config, s: State) -> bool:
    """With batching off no entry begins with the magic number, nothing is buffered, no timer is set, no task waits."""
    batched = [entry.batched for entry in s.log] + [write.batched for write in s.in_flight]
    return not any(batched) and not s.buffer and s.timer is None and not s.tasks


@always(txn_writer, on=TASKS, given=lambda cfg: cfg.size_limit == "cap")
def no_batch_exceeds_max_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Where the size limit is a cap, the records of a batch never have more than max_bytes together."""
    written = [sizes_of(write, before, event) for write in told(event).writes if write.batched]
    return after.size <= cfg.max_bytes and all(sum(sizes) <= cfg.max_bytes for sizes in written)


# ---- buffer and triggers ------------------------------------------------------------------------------


@always(txn_writer)
def the_buffer_is_below_its_limits(cfg: Config, s: State) -> bool:
    """A batch goes as soon as it has max_records records or max_bytes bytes: an open writer never holds so much.

    As shipped, a batch that cannot be serialised stays in the buffer and grows, until close fails all of it.
    """
    if s.size != sum([each.size for each in s.buffer]):
        return False
    return s.status == "closed" or not s.buffer or (len(s.buffer) < cfg.max_records and s.size < cfg.max_bytes)


@always(txn_writer, on=TASKS)
def a_flush_has_the_reason_that_it_says(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each flush has exactly one reason, and a task of its own that gave it. It is "records" if there are max_records
    of them; "size" only if not, and if there are max_bytes or would be too many with the next; else "large" if a record
    came that is large alone, "delay" if the timer did, "close" if a close did.

    As shipped, a batch that cannot be serialised is flushed by the delay, too, though it has more than enough records.
    """
    flushes = told(event).flushes
    if not flushes:
        return True
    tasks = iter(tasks_run(cfg, before, event))
    for flush in flushes:
        enough = flush.records >= cfg.max_records
        if enough != (flush.reason == "records"):
            return False
        if flush.size >= cfg.max_bytes and not enough and flush.reason != "size":
            return False
        if not any(may_flush(cfg, task, flush) for task in tasks):  # of those after the task of the flush before it
            return False
    return True


@always(txn_writer, on=TASKS)
def a_flush_takes_all_that_is_in_the_buffer(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every flush of a buffer becomes one batch, or fails as a whole: then all that it held is told so.

    As shipped, a batch that cannot be serialised is flushed again and again, and nobody is told.
    """
    happened = told(event)
    written = [len(write.records) for write in happened.writes if write.batched]
    flushed = [flush.records for flush in happened.flushes]
    failed = sum([a.outcome in ("serialization", "closed", "fenced") for a in happened.answers])
    if len(written) == len(flushed):
        return written == flushed
    return len(written) < len(flushed) and sum(flushed) - sum(written) <= failed


@always(txn_writer)
def a_record_waits_no_longer_than_the_delay(cfg: Config, s: State) -> bool:
    """While the writer is open, the timer is due no later than max_delay after a record came to the buffer, or its tick
    waits for the thread already.

    As shipped, it is broken by a batch that cannot be serialised, which waits until close.
    """
    if not s.buffer or s.status != "open" or has_tick(s):
        return True
    return s.timer is not None and s.timer <= s.buffer[0].since + cfg.max_delay_ms


@always(txn_writer)
def there_is_one_timer_or_tick_at_most(cfg: Config, s: State) -> bool:
    """However slow the thread is, one timer is set or one tick waits for it, never more; a timer is never overdue.

    An open writer with a free-running tick always has one, and a closed one never sets it again.
    """
    count = (s.timer is not None) + sum([task == "tick" for task in s.tasks])
    if count > 1 or (s.timer is not None and s.timer <= s.now) or (s.status == "closed" and s.timer is not None):
        return False
    return count == 1 or not batches(cfg) or cfg.delay_from != "tick" or s.status != "open"


@always(txn_writer, given=lambda cfg: cfg.delay_from == "first_record")
def the_delay_counts_from_the_first_record(cfg: Config, s: State) -> bool:
    """By the proposal's text the timer is set for max_delay after the first record of the batch, and only then."""
    if s.timer is None:
        return not s.buffer or has_tick(s) or s.status == "closed"
    return bool(s.buffer) and s.timer == s.buffer[0].since + cfg.max_delay_ms


@eventually(txn_writer, fair=("advance_time", "run_writer_tasks"))
def what_is_buffered_goes(cfg: Config, s: State) -> bool:
    """While time passes and the thread runs, the buffer of an open writer is empty again and again.

    As shipped, it never is again once it has a batch that cannot be serialised.
    """
    return not s.buffer or s.status != "open"


@eventually(txn_writer, fair=("run_writer_tasks",))
def a_close_comes_to_its_end(cfg: Config, s: State) -> bool:
    """A close ends once the thread runs, whatever the timer does meanwhile."""
    return s.status != "closing"


@eventually(txn_writer, fair=("advance_time", "run_writer_tasks", "complete_write"))
def every_record_is_answered(cfg: Config, s: State) -> bool:
    """While time passes, the thread runs and writes end, there comes a time when all callbacks were told.

    As shipped, some never are.
    """
    return not s.unanswered


# ---- close --------------------------------------------------------------------------------------------


@always(txn_writer)
def a_closed_writer_holds_nothing(cfg: Config, s: State) -> bool:
    """A closed writer has no record and no byte in its buffer.

    As shipped, it still has what it held, and refers to lists that other writers use by then.
    """
    return s.status != "closed" or (not s.buffer and s.size == 0)


@always(txn_writer)
def a_writer_that_closes_writes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Once close was called no entry is submitted, unless the writer is one that flushes then; after it, none at all.

    Whatever comes to a closed writer fails, and is told that it is closed.
    """
    happened = told(event)
    if before.status == "open" or (before.status == "closing" and cfg.close_buffered == "flushes"):
        return True
    in_flight = {number for write in before.in_flight for number in write.records}
    others = [a.outcome for a in happened.answers if a.record not in in_flight]
    return not happened.writes and (before.status == "closing" or all(outcome == "closed" for outcome in others))


@always(txn_writer, on=TASKS, given=lambda cfg: cfg.close_buffered == "fails")
def a_close_fails_what_has_not_gone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Once close was called, all that is in the buffer or waits for the thread is told that the writer is closed, and
    what is in the buffer no later than those who called close. It is told another reason only if it cannot be
    serialised with its batch, and the timer flushes that before the close has ended.
    """
    if after.status == "open" or before.status == "closed":
        return True
    happened, buffered = told(event), {each.number for each in before.buffer}
    fails = bool(happened.flushes) and "batch" in [each.fails_on for each in before.buffer]
    others = [a for a in happened.answers if a.outcome != "closed"]
    if not all(fails and a.record in buffered and a.outcome == "serialization" for a in others):
        return False
    return after.status == "closing" or buffered <= set(numbers_of(happened.answers))


@always(txn_writer, on=("close", "run_writer_tasks"))
def a_close_leaves_alone_what_is_in_flight(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A close fails what is in the buffer, and not what is on its way to the ledger: that ends as it may."""
    return after.in_flight[: len(before.in_flight)] == before.in_flight


@always(txn_writer, on=("close",))
def a_close_is_done_when_it_says_so(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Whoever is told that the writer is closed finds it closed, the second caller, too.

    As shipped, a second caller is told at once though the first close still runs.
    """
    return (told(event).number == 1) == (after.status == "closed")


@always(txn_writer)
def whoever_closes_is_told(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each caller of close who has to wait is told when the writer is closed; somebody waits only while it closes."""
    done = told(event).closed
    came = event.name == "close" and (done > 0 or event.outcome.number == 0)
    return after.closers == before.closers + came - done and (after.closers > 0) == (after.status == "closing")


@always(txn_writer)
def time_and_status_never_go_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An open writer closes, a closing one is closed, and that is that; time does not go back; a fence stays, and so
    does what is stored: the log only grows.
    """
    order = ("open", "closing", "closed")
    if order.index(after.status) < order.index(before.status) or after.now < before.now:
        return False
    return after.fenced >= before.fenced and after.log[: len(before.log)] == before.log


@always(txn_writer)
def a_fenced_ledger_takes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a fence no write begins: each record that would have been written is told that the ledger is fenced."""
    return not before.fenced or not told(event).writes


# ---- witnesses ----------------------------------------------------------------------------------------


def flushed_by(event: Event, reason: str) -> bool:
    """A step flushed the buffer for that reason."""
    return any(flush.reason == reason for flush in told(event).flushes)


@sometimes(txn_writer, on=TASKS, given=batches)
def a_batch_goes_for_its_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batch has enough records."""
    return flushed_by(event, "records")


@sometimes(txn_writer, on=TASKS, given=batches)
def a_batch_goes_for_its_size(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batch has enough bytes, and not enough records."""
    return flushed_by(event, "size")


@sometimes(txn_writer, on=TASKS, given=batches)
def a_batch_goes_before_a_large_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record comes that is large alone, and something is in the buffer."""
    return flushed_by(event, "large") and any(not write.batched for write in told(event).writes)


@sometimes(txn_writer, on=TASKS, given=batches)
def a_batch_of_one_goes_for_the_delay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The timer fires, and one record is in the buffer."""
    return flushed_by(event, "delay") and any(w.batched and len(w.records) == 1 for w in told(event).writes)


@sometimes(txn_writer, on=TASKS, given=batches)
def a_batch_cannot_be_serialised(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Records fail together because one of them cannot be serialised among others."""
    return bool(told(event).flushes) and [a.outcome for a in told(event).answers].count("serialization") > 1


@sometimes(txn_writer, on=("fail_write",))
def a_failed_record_is_stored_all_the_same(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Callers are told of a failure, and a reader finds their records in the log."""
    return len(after.log) > len(before.log)


@sometimes(txn_writer, on=("complete_write",))
def a_success_comes_after_a_failure(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A later entry is stored though an earlier one, stored or not, has failed: there is no prefix."""
    return bool(before.log) and not before.log[-1].told and len(after.log) > len(before.log)


@sometimes(txn_writer, on=TASKS)
def a_failure_overtakes_a_success(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A fenced ledger refuses a record at once while an earlier one is still in flight."""
    return bool(after.in_flight) and any(a.outcome == "fenced" for a in told(event).answers)


@sometimes(txn_writer, on=TASKS, given=lambda cfg: batches(cfg) and cfg.thread == "queued")
def a_later_record_fails_before_an_earlier_one(cfg: Config, before: State, event: Event, after: State) -> bool:
    """While the writer closes, a record that waited for the thread fails before those in the buffer."""
    numbers = [a.record for a in told(event).answers if a.outcome == "closed"]
    return numbers != sorted(numbers)


@sometimes(txn_writer, on=("complete_write",))
def a_write_ends_well_after_close(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What was in flight when the writer closed is stored, and its callers are told."""
    return before.status == "closed" and not isinstance(event.outcome, Refused)


@sometimes(txn_writer)
def three_writes_are_in_flight(cfg: Config, s: State) -> bool:
    """A batch does not wait for the one before it."""
    return len(s.in_flight) >= 3
