"""Guarantees of the negative-ack tracker (PIP-393).

The time of a bucket is the due time of its nacks, rounded down to a multiple of the bucket length. The properties
compute due times from the arguments of the nack, and the expected redeliveries of a timer task run from the nacks that
were pending before the run.
"""

from __future__ import annotations

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.negative_acks.avl_tree import Tree
from model.negative_acks.machine import Config, Elapsed, Nacked, Redelivery, State, negative_acks
from model.negative_acks.message_ids import ChunkedMessage, MessageId
from model.positions import Position

#: Actions that run the timer task.
RUNS = ("advance_time", "run_timer_task", "fail_redelivery")
#: Actions that send redelivery commands.
DELIVERING = ("advance_time", "run_timer_task")
#: Clock units per millisecond.
PER_MS = {"ms": 1, "ns": 1_000_000}


def is_error(event: Event) -> bool:
    """Returns whether the call was rejected or failed."""
    return isinstance(event.outcome, Refused | Failed)


def pending(s: State) -> set[tuple[int, Position]]:
    """Returns the pending nacks, each as its bucket time and entry."""
    return {(bucket.time, entry) for bucket in s.buckets for entry in bucket.entries}


def bucket_length(cfg: Config) -> int:
    """Returns the length of a bucket in clock units: 2^precision_bits milliseconds."""
    return PER_MS[cfg.clock_unit] << cfg.precision_bits


def commands(event: Event) -> tuple[Redelivery, ...]:
    """Returns the redelivery commands that a step sent."""
    if isinstance(event.outcome, Elapsed):
        return event.outcome.redeliveries
    return (event.outcome,) if isinstance(event.outcome, Redelivery) else ()


def requested_delay(cfg: Config, count: int | None) -> int:
    """Returns the delay that the backoff or the fixed delay gives a nack, before the minimum delay is applied.

    `count` is the redelivery count; None for a nack by message id, to which `redelivery_count_of_id` applies.
    """
    unit, delays = cfg.backoff
    if not delays:
        return cfg.redelivery_delay_ms * PER_MS[cfg.clock_unit]
    index = cfg.redelivery_count_of_id if count is None else count
    return (delays[index] if index < len(delays) else delays[-1]) * PER_MS[cfg.clock_unit] // PER_MS[unit]


def monotonic(s: State, time: int) -> int:
    """Returns the time of the monotonic clock at a bucket time."""
    return time - s.wall_offset


def chunked_redelivered(before: State, event: Event, after: State) -> list[ChunkedMessage]:
    """Returns the received chunked messages whose last chunk a step removed from a bucket and redelivered."""
    if not before.chunked_messages:
        return []
    removed = {entry for _, entry in pending(before) - pending(after)}
    removed &= {each.position for command in commands(event) for each in command.ids}
    return [message for message in before.chunked_messages if message.id.position in removed]


def chunks_redelivered(before: State, event: Event, after: State) -> set[Position]:
    """Returns the positions of all chunks of the messages in `chunked_redelivered`."""
    return {chunk for message in chunked_redelivered(before, event, after) for chunk in message.chunks}


@always(negative_acks)
def tracker_starts_with_any_delay(cfg: Config, s: State) -> bool:
    """The construction of the tracker succeeds for every delay, including 0."""
    return s.status != "failed"


# ---- nack ---------------------------------------------------------------------------------------------


@always(negative_acks, on=("nack",))
def valid_nack_is_accepted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A tracker that is constructed and not closed accepts every nack with nonnegative ids and a nonnegative delay."""
    if (
        before.status in ("closed", "failed")
        or min(event.arguments["entry"]) < 0
        or requested_delay(cfg, event.arguments["redelivery_count"]) < 0
    ):
        return True
    return isinstance(event.outcome, Nacked)


@always(negative_acks, on=("nack",))
def negative_message_id_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack with a negative ledger or entry id is rejected or fails, and leaves the state unchanged."""
    return min(event.arguments["entry"]) >= 0 or (is_error(event) and after == before)


@always(negative_acks, on=("nack",))
def nack_delay_is_nonnegative(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The delay of an accepted nack is not negative."""
    return is_error(event) or event.outcome.delay >= 0


@always(negative_acks, on=("nack",))
def nack_delay_is_requested_or_minimum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The delay of an accepted nack is the delay of the backoff or the fixed delay, but at least the minimum delay.

    `nack_delay_is_nonnegative` covers negative delays.
    """
    if is_error(event) or event.outcome.delay < 0:
        return True
    requested = requested_delay(cfg, event.arguments["redelivery_count"])
    return bool(event.outcome.delay == max(requested, cfg.min_delay_ms * PER_MS[cfg.clock_unit]))


@always(negative_acks, on=("nack",))
def nack_reports_backoff_and_timer(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An accepted nack reports whether the backoff was used, and whether the timer changed.

    The backoff is used if it computes the delay from a redelivery count; a nack by message id has none. An accepted
    nack changes no chunked message. A rejected nack changes no bucket, timer, retained id or chunked message.
    """
    if is_error(event):
        state = after.buckets, after.timer, after.retained_ids, after.chunked_messages
        return state == (before.buckets, before.timer, before.retained_ids, before.chunked_messages)
    has_backoff = event.arguments["redelivery_count"] is not None and cfg.backoff.delays != ()
    reported = event.outcome.backoff_used, event.outcome.timer_changed
    return reported == (has_backoff, after.timer != before.timer) and after.chunked_messages == before.chunked_messages


@always(negative_acks, on=("nack",))
def nacked_entry_is_in_bucket_of_due_time(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An accepted nack's entry is in a bucket whose time is the due time, or earlier by less than the bucket length.

    With `repeated_nack` `earliest_due`, an entry in a bucket at or before the due time stays in that bucket only.
    """
    if is_error(event):
        return True
    due = before.now + before.wall_offset + event.outcome.delay
    earlier = {time for time, entry in pending(before) if entry == event.arguments["entry"]}
    times = {time for time, entry in pending(after) if entry == event.arguments["entry"]}
    if cfg.repeated_nack == "earliest_due" and earlier and min(earlier) <= due:
        return times == earlier
    return any(due - bucket_length(cfg) < time <= due for time in times)


@always(negative_acks, on=("nack",), given=lambda cfg: cfg.repeated_nack != "earliest_due")
def nack_leaves_other_nacks_pending(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack adds at most one entry to one bucket, and all earlier nacks stay pending."""
    old, new = pending(before), pending(after)
    others = {pair for pair in new - old if pair[1] != event.arguments["entry"]}
    return old <= new and not others and len(new - old) <= 1


@always(negative_acks, on=("nack",))
def nack_never_postpones_timer(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack leaves an armed timer armed, with the same deadline or an earlier one."""
    return before.timer is None or (after.timer is not None and after.timer <= before.timer)


# ---- buckets and timer --------------------------------------------------------------------------------


@always(negative_acks)
def bucket_times_are_multiples_of_length(cfg: Config, s: State) -> bool:
    """Every bucket time is a multiple of 2^precision_bits milliseconds."""
    return all(bucket.time % bucket_length(cfg) == 0 for bucket in s.buckets)


@always(negative_acks)
def buckets_are_sorted_and_nonempty(cfg: Config, s: State) -> bool:
    """Bucket times are strictly increasing, and each bucket has entries, which are sorted and distinct."""
    times = [bucket.time for bucket in s.buckets]
    return times == sorted(set(times)) and all(
        bucket.entries and list(bucket.entries) == sorted(set(bucket.entries)) for bucket in s.buckets
    )


@always(negative_acks)
def timer_is_armed_iff_nacks_are_pending(cfg: Config, s: State) -> bool:
    """An open tracker's timer is armed if and only if a nack is pending."""
    return s.status != "open" or (s.timer is not None) == bool(s.buckets)


@always(negative_acks)
def timer_deadline_is_at_most_first_bucket(cfg: Config, s: State) -> bool:
    """While an open tracker has pending nacks, its timer's deadline is at most the first bucket time, or now if later.

    The bucket time is taken on the monotonic clock.
    """
    if not s.buckets or s.status != "open":
        return True
    return s.timer is not None and s.timer <= max(monotonic(s, s.buckets[0].time), s.now)


@always(negative_acks, on=("nack", *RUNS), given=lambda cfg: cfg.due_buckets == "avl_walk")
def avl_tree_has_the_bucket_times(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The AVL tree has the bucket times in order; the heights of a node's subtrees differ by at most one."""
    times: list[int] = []

    def height(tree: Tree) -> int:
        """Returns the height of a tree, and adds its keys to `times`; -1 if a height or the balance is wrong."""
        if tree is None:
            return 0
        left = height(tree.left)
        times.append(tree.time)
        right = height(tree.right)
        own = 1 + max(left, right)
        return own if min(left, right) >= 0 and abs(left - right) <= 1 and tree.height == own else -1

    return height(after.avl_tree) >= 0 and times == [bucket.time for bucket in after.buckets]


# ---- redelivery ---------------------------------------------------------------------------------------


@always(negative_acks, on=("advance_time",))
def redelivery_is_not_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pending nack is redelivered at most the timer lag after the end of its bucket.

    If the bucket has ended before the step, the lag counts from the start of the step.
    `timer_deadline_is_at_most_first_bucket` guarantees that the timer is armed for the bucket time.
    """
    if before.status != "open":
        return True
    lag, last = event.arguments["timer_lag"], bucket_length(cfg) - 1
    redelivered = [(command.at, {each.position for each in command.ids}) for command in commands(event)]
    for time, entry in pending(before):
        latest = max(monotonic(before, time) + last, before.now) + lag
        if latest <= after.now and not any(at <= latest and entry in entries for at, entries in redelivered):
            return False
    return True


@always(negative_acks, on=DELIVERING)
def redelivery_is_not_early(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every redelivered entry was in a due bucket, or is a chunk of a message whose last chunk is redelivered."""
    chunks = chunks_redelivered(before, event, after)
    for command in commands(event):
        due = {entry for time, entry in pending(before) if monotonic(before, time) <= command.at}
        if not {each.position for each in command.ids} <= due | chunks:
            return False
    return True


@always(negative_acks, on=DELIVERING)
def nack_is_redelivered_iff_removed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Except as a chunk, an entry is redelivered if and only if it is removed from a bucket, at most once per bucket.

    Chunks are also redelivered with the last chunk of their message.
    """
    old, new = pending(before), pending(after)
    redelivered = [(command.at, each.position) for command in commands(event) for each in command.ids]
    removed = {entry for _, entry in old - new}
    removals = {entry: len([pair for pair in old - new if pair[1] == entry]) for entry in removed}
    redeliveries = {entry: len({at for at, position in redelivered if position == entry}) for entry in removed}
    chunks = chunks_redelivered(before, event, after)
    if not new <= old or not {position for _, position in redelivered} <= removed | chunks:
        return False
    return all(redeliveries[e] >= 1 and (redeliveries[e] <= removals[e] or e in chunks) for e in removed)


@always(negative_acks, on=DELIVERING)
def redelivery_command_has_no_duplicate_id(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The ids of a redelivery command are distinct."""
    return all(len(set(command.ids)) == len(command.ids) for command in commands(event))


@always(negative_acks, on=DELIVERING)
def redelivery_command_has_one_id_per_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Different ids in a redelivery command are of different entries, except for the ids of chunks."""
    chunks = chunks_redelivered(before, event, after)
    for command in commands(event):
        positions = [each.position for each in set(command.ids) if each.position not in chunks]
        if len(positions) != len(set(positions)):
            return False
    return True


@always(negative_acks, on=DELIVERING)
def redelivery_command_is_nonempty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A redelivery command has at least one id: an empty command asks for all unacknowledged messages."""
    return all(len(command.ids) > 0 for command in commands(event))


@always(negative_acks, on=RUNS)
def timer_run_leaves_no_due_bucket(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a run of the timer task, no remaining bucket is due.

    In `advance_time`, only a run at the end of the step is checked.
    """
    if event.name == "advance_time":
        first_run = None if before.timer is None else max(before.timer + event.arguments["timer_lag"], before.now)
        # the first run, or a run that sent a command, was at the end of the step
        ran_now = first_run == after.now or any(command.at == after.now for command in commands(event))
    else:
        ran_now = before.status == "open" and not isinstance(event.outcome, Refused)
    return not ran_now or all(monotonic(after, bucket.time) > after.now for bucket in after.buckets)


@always(negative_acks, on=("advance_time",))
def timer_runs_only_to_redeliver(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every run of the timer task sends a redelivery command."""
    return bool(event.outcome.timer_runs == len(event.outcome.redeliveries))


@always(negative_acks, on=("fail_redelivery",))
def consumer_failure_keeps_later_nacks(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If the consumer throws, nacks that are not due stay pending, and the timer is armed for them.

    If nacks are removed, the outcome of the step is a failure.
    """
    if before.status != "open":
        return True
    old, new = pending(before), pending(after)
    later = {pair for pair in old if monotonic(before, pair[0]) > before.now}
    is_armed = after.timer is not None and after.timer >= before.now
    return later <= new <= old and (not new or is_armed) and (new == old or isinstance(event.outcome, Failed))


@always(negative_acks)
def only_runs_and_close_remove_nacks(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only a timer task run or a close removes pending nacks, and only a nack adds one.

    If `repeated_nack` keeps only one nack of an entry, a nack may also remove the earlier nack of its entry.
    """
    old, new = pending(before), pending(after)
    if event.name in ("close", *RUNS):
        return new <= old
    if event.name == "nack":
        return {pair for pair in old ^ new if pair[1] != event.arguments["entry"]} == set()
    return old == new


@always(negative_acks, on=("ack",))
def ack_leaves_tracker_unchanged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack leaves the tracker unchanged."""
    return after == before


@always(negative_acks)
def only_advance_time_moves_clock(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only `advance_time` moves the monotonic clock, by its argument.

    Only `step_wall_clock` changes the offset between the wall clock and the monotonic clock, by its argument, and only
    if due times follow the wall clock.
    """
    by = event.arguments.get("by", 0)
    advance = by if event.name == "advance_time" else 0
    step = by if event.name == "step_wall_clock" and cfg.due_clock == "wall" else 0
    return (after.now - before.now, after.wall_offset - before.wall_offset) == (advance, step)


@always(negative_acks, on=("step_wall_clock",))
def wall_clock_step_moves_no_due_time(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step of the wall clock does not change the monotonic time of any bucket."""
    old, new = ([monotonic(s, bucket.time) for bucket in s.buckets] for s in (before, after))
    return old == new


# ---- message ids --------------------------------------------------------------------------------------


@always(negative_acks, on=DELIVERING)
def chunked_message_is_redelivered_whole(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When the last chunk of a chunked message is redelivered from a bucket, all its chunks are in the same command."""
    redelivered = [{each.position for each in command.ids} for command in commands(event)]
    messages = chunked_redelivered(before, event, after)
    return all(any(ids.issuperset((m.id.position, *m.chunks)) for ids in redelivered) for m in messages)


@always(negative_acks, on=DELIVERING)
def redelivered_chunked_message_is_removed_from_map(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A chunked message leaves `unAckedChunkedMessageIdSequenceMap` when its last chunk is redelivered from a bucket.

    No other chunked message is removed. With `chunks_found_by` `message_id`, a redelivered message may stay.
    """
    redelivered, remaining = set(chunked_redelivered(before, event, after)), set(after.chunked_messages)
    removed = set(before.chunked_messages) - remaining
    is_subset = remaining <= set(before.chunked_messages) and removed <= redelivered
    return is_subset and (removed == redelivered or cfg.chunks_found_by == "message_id")


@always(negative_acks, on=DELIVERING, given=lambda cfg: cfg.retained_ids == "traced")
def retained_id_is_redelivered_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A retained id is in the first command that redelivers its entry from a bucket, and is then dropped.

    An entry that is redelivered only as a chunk keeps its retained id. Every other id in a command is a plain id or the
    id of a chunk.
    """
    retained, chunks = {each.position: each for each in before.retained_ids}, chunks_redelivered(before, event, after)
    for command in commands(event):
        due = {entry for time, entry in pending(before) if monotonic(before, time) <= command.at}
        entries = {each.position for each in command.ids if each.position in due or each.position not in chunks}
        first = [retained.pop(position) for position in entries if position in retained]
        others = set(command.ids).difference(first)
        if not set(first) <= set(command.ids):
            return False
        if any(each != MessageId(each.position) and each.position not in chunks for each in others):
            return False
    return sorted(retained.values()) == list(after.retained_ids)


@always(negative_acks, on=("nack",), given=lambda cfg: cfg.retained_ids == "traced")
def latest_traced_id_is_retained(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The tracker retains the id of an accepted nack if the id is traced or of a chunked message, and no other id."""
    if is_error(event):
        return after.retained_ids == before.retained_ids
    nacked, entry = event.arguments["message_id"], event.arguments["entry"]
    own = [each for each in after.retained_ids if each.position == entry]
    others = [[each for each in s.retained_ids if each.position != entry] for s in (before, after)]
    if not nacked.traced and nacked.kind != "chunk":
        return after.retained_ids == before.retained_ids
    found = [(each.partition, each.kind, each.first_chunk, each.batch_index) for each in own]
    expected = (nacked.partition, nacked.kind, nacked.first_chunk, nacked.batch_index)
    return others[0] == others[1] and found == [expected]


@always(negative_acks, on=("receive_chunks",))
def received_chunks_are_stored(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A received message of at least two chunks is stored by its id, and replaces a stored message with this id.

    A message of fewer chunks is rejected.
    """
    last, chunks = event.arguments["last_chunk"], event.arguments["chunks"]
    if is_error(event) or len(chunks) < 2:
        return is_error(event) and after == before and len(chunks) < 2
    new = ChunkedMessage(MessageId(last, event.arguments["partition"], "chunk", chunks[0], None), chunks)
    others = {message for message in before.chunked_messages if message.id != new.id}
    return set(after.chunked_messages) == {*others, new}


# ---- close --------------------------------------------------------------------------------------------


@always(negative_acks)
def close_is_final(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A closed tracker stays closed, and redelivers nothing.

    It has no pending nack, no retained id and no armed timer. The close of a tracker whose construction failed is not
    checked.
    """
    if event.name == "close" and before.status != "failed":
        return after.status == "closed" and is_empty(after)
    return before.status != "closed" or (after.status == "closed" and is_empty(after) and not commands(event))


def is_empty(s: State) -> bool:
    """Returns whether the tracker has no pending nack, no retained id and no armed timer."""
    return not s.buckets and not s.retained_ids and s.timer is None


@always(negative_acks, on=("run_timer_task", "fail_redelivery"))
def timer_task_after_close_is_a_no_op(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A timer task that runs before the first nack or after close returns normally and changes nothing.

    Before the first nack, only a tracker in the status `new` is checked: its `nackedMessages` is null.
    """
    if before.status in ("open", "failed"):
        return True
    return event.outcome is None and after == before


# ---- coverage goals -----------------------------------------------------------------------------------


@sometimes(negative_acks, on=("nack",), given=lambda cfg: bool(cfg.backoff.delays))
def nack_brings_timer_forward(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack re-arms the timer for an earlier deadline, which is after now."""
    return before.timer is not None and after.timer is not None and before.now < after.timer < before.timer


@sometimes(negative_acks, on=("nack",))
def nack_of_pending_entry_changes_no_bucket(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack changes no bucket: an earlier nack has put the entry into the same bucket."""
    return not is_error(event) and after.buckets == before.buckets


@sometimes(negative_acks, on=("nack",))
def entry_is_in_three_buckets(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is pending in three buckets."""
    return len([time for time, entry in pending(after) if entry == event.arguments["entry"]]) >= 3


@sometimes(negative_acks, on=("nack",))
def equal_delays_straddle_bucket_boundary(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two nacks of an entry with the same delay fall into adjacent buckets: it will be redelivered twice."""
    new = pending(after) - pending(before)
    return not cfg.backoff.delays and any((time - bucket_length(cfg), e) in pending(before) for time, e in new)


@sometimes(negative_acks, on=("nack",))
def nack_is_added_to_past_bucket(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack with a positive delay falls into a bucket whose time is past: a bucket is longer than the delay."""
    past = [time for time, _ in pending(after) - pending(before) if monotonic(after, time) < before.now]
    return not is_error(event) and event.outcome.delay > 0 and bool(past)


@sometimes(negative_acks, on=("advance_time",))
def one_command_covers_three_buckets(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One redelivery command has the entries of at least three buckets, two of which have a common entry."""
    if len(commands(event)) != 1:
        return False
    removed = pending(before) - pending(after)
    entries = [entry for _, entry in removed]
    return len({time for time, _ in removed}) >= 3 and len(entries) > len(set(entries))


@sometimes(negative_acks, on=("advance_time",))
def redelivered_entry_is_still_pending(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is redelivered and is still pending in a later bucket."""
    still_pending = {entry for _, entry in pending(after)}
    return any(each.position in still_pending for command in commands(event) for each in command.ids)


@sometimes(negative_acks, on=("advance_time",))
def timer_task_runs_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The timer task runs after its deadline and sends a redelivery command."""
    # the deadline before the step is that of the first run; by default, every run sends a command
    return any(before.timer is not None and command.at > before.timer for command in commands(event)[:1])


@sometimes(negative_acks)
def twenty_buckets_are_pending(cfg: Config, s: State) -> bool:
    """Twenty buckets are pending."""
    return len(s.buckets) >= 20


@sometimes(negative_acks, on=("advance_time",))
def command_has_ids_of_three_kinds(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A redelivery command has ids of at least three kinds, one of them `MessageIdImpl`."""
    kinds = [{each.kind for each in command.ids} for command in commands(event)]
    return any("message_id" in each and len(each) >= 3 for each in kinds)


@sometimes(negative_acks, on=("advance_time",))
def one_of_two_chunked_messages_is_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A chunked message is redelivered, while another one stays in `unAckedChunkedMessageIdSequenceMap`."""
    return bool(after.chunked_messages) and len(after.chunked_messages) < len(before.chunked_messages)


@sometimes(negative_acks, on=("close",))
def tracker_closes_with_three_buckets(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The tracker is closed while three buckets are pending."""
    return len(before.buckets) >= 3


@sometimes(negative_acks, on=("fail_redelivery",))
def consumer_fails_with_later_buckets(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The consumer throws an exception at a redelivery, while later buckets are pending."""
    return isinstance(event.outcome, Failed) and bool(after.buckets)


@sometimes(negative_acks, on=("ack",))
def pending_entry_is_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry with a pending nack is acknowledged."""
    return any(entry == event.arguments["entry"] for _, entry in pending(before))


# ---- liveness -----------------------------------------------------------------------------------------


@eventually(negative_acks, fair=("advance_time", "run_timer_task"))
def every_nack_is_redelivered(cfg: Config, s: State) -> bool:
    """If time advances, the timer task runs and nacks stop, every pending nack is eventually redelivered.

    `run_timer_task` is fair because `advance_time` may give the timer any lag. That the timer is armed is a safety
    property.
    """
    return not s.buckets
