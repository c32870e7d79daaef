"""What a tracker of negative acknowledgements promises.

Due times are said by brute force from what was asked; a run is judged by what was pending before it. A property that
some shipped version breaks says so in its last sentence.
"""

from __future__ import annotations

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.negative_acks.ids import Chunks, Told
from model.negative_acks.machine import Config, Nacked, Passed, Redelivery, State, nack, negative_acks
from model.positions import Position

RUNS = ("advance_time", "timer_task_runs", "redelivery_fails")
TIME = ("advance_time", "timer_task_runs")
MS = {"ms": 1, "ns": 1_000_000}


def was_refused(event: Event) -> bool:
    """The call was not allowed, or failed."""
    return isinstance(event.outcome, Refused | Failed)


def pending(s: State) -> set[tuple[int, Position]]:
    """Every entry with each slot that it is in."""
    return {(slot.time, entry) for slot in s.slots for entry in slot.entries}


def slot_length(cfg: Config) -> int:
    """How long a slot must be, in units of the clock: a power of two of milliseconds."""
    return MS[cfg.unit] << cfg.precision_bits


def commands(event: Event) -> tuple[Redelivery, ...]:
    """The commands for redelivery that an event has given."""
    if isinstance(event.outcome, Passed):
        return event.outcome.redeliveries
    return (event.outcome,) if isinstance(event.outcome, Redelivery) else ()


def asked_delay(cfg: Config, count: int | None) -> int:
    """The delay that was asked for, by the settings alone."""
    if not cfg.backoff:
        return cfg.redelivery_delay_ms * MS[cfg.unit]
    place = cfg.count_of_an_id if count is None else count
    return (*cfg.backoff, *[cfg.backoff[-1]] * (place + 1))[place]


def steady(s: State, time: int) -> int:
    """A time of the tracker's clock on the steady clock."""
    return time - s.skew


def chunks_due(before: State, event: Event, after: State) -> list[Chunks]:
    """The chunked messages that were remembered and whose last entry has left a slot and was redelivered."""
    if not before.chunks:
        return []
    gone = {entry for _, entry in pending(before) - pending(after)}
    gone &= {each.position for command in commands(event) for each in command.ids}
    return [chunks for chunks in before.chunks if chunks.whole.position in gone]


def pieces_due(before: State, event: Event, after: State) -> set[Position]:
    """The pieces of these."""
    return {piece for chunks in chunks_due(before, event, after) for piece in chunks.pieces}


@always(negative_acks)
def a_tracker_starts(cfg: Config, s: State) -> bool:
    """Every tracker starts, however short its delays are.

    The Go client's fails when a third of its delay is nothing.
    """
    return s.life != "broken"


# ---- what a nack does ---------------------------------------------------------------------------------


@always(negative_acks, on=("nack",))
def every_sound_nack_is_taken(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack of a stored message, with a delay of zero or more, is taken by every tracker that is not closed.

    The Go client's breaks it: a message with a redelivery count fails when there is no backoff.
    """
    if (
        before.life in ("closed", "broken")
        or min(event.arguments["entry"]) < 0
        or asked_delay(cfg, event.arguments["count"]) < 0
    ):
        return True
    return isinstance(event.outcome, Nacked)


@always(negative_acks, on=("nack",))
def only_what_can_be_stored_is_tracked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Ids below zero are refused, and leave no trace. The Java clients, the Go and the C++ client accept them."""
    return min(event.arguments["entry"]) >= 0 or (was_refused(event) and after == before)


@always(negative_acks, on=("nack",))
def nobody_waits_for_less_than_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No nack is due before it was made: a delay below zero is refused.

    The Go client's default backoff breaks it: it overflows from redelivery count 34 on.
    """
    return was_refused(event) or event.outcome.delay >= 0


@always(negative_acks, on=("nack",))
def no_delay_is_shorter_than_the_least(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The least delay holds for the fixed delay and for those of a backoff; longer ones are as asked.

    The Java clients break it for backoffs, the Go client always.
    """
    if was_refused(event) or event.outcome.delay < 0:
        return True
    asked = asked_delay(cfg, event.arguments["count"])
    return bool(event.outcome.delay == max(asked, cfg.least_delay_ms * MS[cfg.unit]))


@always(negative_acks, on=("nack",))
def a_nack_goes_to_the_slot_of_its_due_time(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a nack its entry is in a slot that begins no later than it is due, and less than a slot's length before.

    That is the only licence to redeliver early. Under the option that an entry is pending once, an earlier slot stays.
    """
    if was_refused(event):
        return True
    due = before.now + before.skew + event.outcome.delay
    earlier = {time for time, entry in pending(before) if entry == event.arguments["entry"]}
    times = {time for time, entry in pending(after) if entry == event.arguments["entry"]}
    if cfg.again == "earliest" and earlier and min(earlier) <= due:
        return times == earlier
    return any(due - slot_length(cfg) < time <= due for time in times)


@always(negative_acks, on=("nack",), given=lambda cfg: cfg.again != "earliest")
def a_nack_disturbs_no_other(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack adds at most its own entry in one slot; what was pending before it is pending in the same slots after it.

    The Java client before PIP-393 breaks it: a second nack of an entry moves the first.
    """
    old, new = pending(before), pending(after)
    own = {pair for pair in new - old if pair[1] != event.arguments["entry"]}
    return old <= new and not own and len(new - old) <= 1


@always(negative_acks, on=("nack",))
def a_nack_makes_no_timer_later(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack may set the timer for an earlier time, and never for a later one.

    The C++ client breaks it: each nack puts the timer off, so that while nacks keep coming nothing is redelivered.
    """
    return before.timer is None or (after.timer is not None and after.timer <= before.timer)


# ---- slots and the timer ------------------------------------------------------------------------------


@always(negative_acks)
def slots_begin_at_multiples_of_their_length(cfg: Config, s: State) -> bool:
    """Slots are a power of two of milliseconds long and begin at multiples of that, so that due times share them.

    The C++ client breaks it: it cuts off nanoseconds, and nearly every nack has a slot of its own.
    """
    return all(slot.time % slot_length(cfg) == 0 for slot in s.slots)


@always(negative_acks)
def slots_are_in_order_and_hold_something(cfg: Config, s: State) -> bool:
    """Slots come in the order of time and hold at least one entry, each entry once and in order."""
    times = [slot.time for slot in s.slots]
    return times == sorted(set(times)) and all(
        slot.entries and list(slot.entries) == sorted(set(slot.entries)) for slot in s.slots
    )


@always(negative_acks)
def the_timer_is_set_while_something_is_pending(cfg: Config, s: State) -> bool:
    """A timer is set if anything is pending, and none is set if nothing is.

    Those that wake up regularly break it: they do so with nothing pending.
    """
    return s.life != "open" or (s.timer is not None) == bool(s.slots)


@always(negative_acks)
def the_timer_is_set_for_the_first_slot(cfg: Config, s: State) -> bool:
    """The timer never runs later than the first slot begins, or than now if that has begun.

    All shipped versions break it. The Java client after PIP-393 sets it by the first nack, to the millisecond, and no
    nack brings it forward.
    """
    if not s.slots or s.life != "open":
        return True
    return s.timer is not None and s.timer <= max(steady(s, s.slots[0].time), s.now)


# ---- what is redelivered, and when --------------------------------------------------------------------


@always(negative_acks, on=("advance_time",))
def nothing_comes_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What is pending is redelivered before its slot ends, or at once if it has ended, late by no more than the timer.

    All shipped versions break it, each in its own way. In the Java client after PIP-393, a nack with a shorter delay
    than a pending one waits for the longer one.
    """
    if before.life != "open":
        return True
    lag, last = event.arguments["lag"], slot_length(cfg) - 1
    came = [(command.at, {each.position for each in command.ids}) for command in commands(event)]
    for time, entry in pending(before):
        latest = max(steady(before, time) + last, before.now) + lag
        if latest <= after.now and not any(at <= latest and entry in entries for at, entries in came):
            return False
    return True


@always(negative_acks, on=TIME)
def nothing_comes_early(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each redelivered entry was pending in a slot that had begun, or is a piece of a chunked message that was."""
    pieces = pieces_due(before, event, after)
    for command in commands(event):
        begun = {entry for time, entry in pending(before) if steady(before, time) <= command.at}
        if not {each.position for each in command.ids} <= begun | pieces:
            return False
    return True


@always(negative_acks, on=TIME)
def each_pending_entry_comes_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What is redelivered has left its slots; what is not redelivered is still in them: nothing is lost or repeated."""
    old, new = pending(before), pending(after)
    came = [(command.at, each.position) for command in commands(event) for each in command.ids]
    gone = {entry for _, entry in old - new}
    most = {entry: len([pair for pair in old - new if pair[1] == entry]) for entry in gone}
    times = {entry: len({at for at, position in came if position == entry}) for entry in gone}
    pieces = pieces_due(before, event, after)
    return new <= old and all(times[entry] >= 1 and (times[entry] <= most[entry] or entry in pieces) for entry in gone)


@always(negative_acks, on=TIME)
def an_entry_comes_once_in_a_command(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry of several slots that are due at once is in the command once.

    The Java client after PIP-393 breaks it for an id that it keeps, the Go client always.
    """
    pieces = pieces_due(before, event, after)
    for command in commands(event):
        positions = [each.position for each in command.ids if each.position not in pieces]
        if len(positions) != len(set(positions)):
            return False
    return True


@always(negative_acks, on=TIME)
def no_command_is_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No command for redelivery is without ids: to a broker, that means all that is not acknowledged."""
    return all(len(command.ids) > 0 for command in commands(event))


@always(negative_acks, on=RUNS)
def a_run_leaves_nothing_that_is_due(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a run at the present time, every slot that is left begins later.

    The Go client breaks it: it removes slots from a tree while it walks over it, and so passes some over.
    """
    if event.name == "advance_time":
        first_run = None if before.timer is None else max(before.timer + event.arguments["lag"], before.now)
        ran_now = first_run == after.now or any(command.at == after.now for command in commands(event))
    else:
        ran_now = before.life == "open" and not isinstance(event.outcome, Refused)
    return not ran_now or all(steady(after, slot.time) > after.now for slot in after.slots)


@always(negative_acks, on=("advance_time",))
def no_run_is_in_vain(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The timer's task runs only when it has something to redeliver.

    Those that wake up every third of the delay break it.
    """
    return bool(event.outcome.runs == len(event.outcome.redeliveries))


@always(negative_acks, on=("redelivery_fails",))
def a_failing_consumer_stops_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When the consumer throws, what is not due stays pending, and the timer is set for it."""
    if before.life != "open":
        return True
    old, new = pending(before), pending(after)
    kept = {pair for pair in old if steady(before, pair[0]) > before.now}
    is_set = after.timer is not None and after.timer >= before.now
    return kept <= new <= old and (not new or is_set)


@always(negative_acks)
def nothing_is_forgotten(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only a redelivery or a close takes anything out of a slot, and only a nack puts anything in."""
    if event.name in ("close", *RUNS):
        return pending(after) <= pending(before)
    return event.name == "nack" or pending(after) == pending(before)


@always(negative_acks, on=("ack",))
def an_acknowledgement_cancels_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Acknowledging an entry leaves the tracker as it is: it is the broker that drops what is no longer pending."""
    return after == before


@always(negative_acks)
def a_call_takes_no_time(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The clock moves by what was said, and by nothing else."""
    return after.now == before.now + (event.arguments["by"] if event.name == "advance_time" else 0)


@always(negative_acks, on=("wall_clock_jumps",))
def a_jump_of_the_wall_clock_moves_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When the wall clock is set to another time, nothing comes earlier or later by it.

    The Java client after PIP-393 and the Go client break it: their due times are those of the wall clock.
    """
    return [steady(before, slot.time) for slot in before.slots] == [steady(after, slot.time) for slot in after.slots]


# ---- message ids --------------------------------------------------------------------------------------


@always(negative_acks, on=TIME)
def a_chunked_message_comes_back_whole(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When the last entry of a chunked message is redelivered, so are all its pieces, in the same command.

    The Java client before PIP-393 breaks it: it looks the pieces up by an id that never finds them. The one after it
    does so when the message was last nacked by an id that does not tell that it is in pieces.
    """
    came = [{each.position for each in command.ids} for command in commands(event)]
    due = chunks_due(before, event, after)
    return all(any(there.issuperset((chunks.whole.position, *chunks.pieces)) for there in came) for chunks in due)


@always(negative_acks, on=TIME)
def pieces_are_redelivered_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The pieces of a chunked message are forgotten when they are redelivered with its last entry, and not before."""
    due, left = set(chunks_due(before, event, after)), set(after.chunks)
    gone = set(before.chunks) - left
    return left <= set(before.chunks) and gone <= due and (gone == due or cfg.pieces_by == "id")


@always(negative_acks, on=TIME, given=lambda cfg: cfg.ids == "traced")
def a_traced_id_comes_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The latest id of an entry that is traced, or that of a chunk, is what is redelivered next of the entry, once."""
    kept = {each.position: each for each in before.kept}
    for command in commands(event):
        for position in [position for position in kept if any(each.position == position for each in command.ids)]:
            if kept[position] in command.ids:
                del kept[position]
            elif any(each.position == position and each.kind != "plain" for each in command.ids):
                return False
    return sorted(kept.values()) == list(after.kept)


@always(negative_acks, on=("nack",), given=lambda cfg: cfg.ids == "traced")
def the_latest_traced_id_is_kept(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack by an id that is traced, or by that of a chunk, keeps it as it is; any other one keeps what was kept."""
    if was_refused(event):
        return after.kept == before.kept
    told, entry = event.arguments["told"], event.arguments["entry"]
    own = [each for each in after.kept if each.position == entry]
    others = [[each for each in s.kept if each.position != entry] for s in (before, after)]
    if not told.traced and told.kind != "chunk":
        return after.kept == before.kept
    found = [(each.partition, each.kind, each.first_chunk, each.batch_index) for each in own]
    return others[0] == others[1] and found == [(told.partition, told.kind, told.first_chunk, told.batch_index)]


@always(negative_acks, on=("remember_chunks",))
def pieces_are_remembered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A chunked message's pieces are remembered as they were received, the latest under the same id."""
    if was_refused(event):
        return after == before
    last, pieces = event.arguments["last"], event.arguments["pieces"]
    return any(chunks.whole.position == last and chunks.pieces == pieces for chunks in after.chunks)


# ---- close --------------------------------------------------------------------------------------------


@always(negative_acks)
def close_is_final(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A tracker that was closed holds nothing, takes nothing, sets no timer and redelivers nothing, ever.

    The Java clients break it: a later nack brings slots and timer back. So does the Go client: nacks are stored.
    """
    if event.name == "close" and before.life != "broken":
        later, _ = nack(cfg, after, Position(0, 0), None, Told())
        return holds_nothing(after) and holds_nothing(later)
    return before.life != "closed" or (holds_nothing(after) and not commands(event))


def holds_nothing(s: State) -> bool:
    """Nothing is pending or kept, and nothing will happen."""
    return not s.slots and not s.kept and s.timer is None


@always(negative_acks, on=("timer_task_runs", "redelivery_fails"))
def a_late_task_does_no_harm(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task that had begun when the tracker was closed finds nothing to do, and nothing fails.

    The Java clients break it: it fails with a null pointer.
    """
    if before.life in ("open", "broken"):
        return True
    return event.outcome is None and after == before


# ---- what a run must have seen ------------------------------------------------------------------------


def redelivered(event: Event) -> list[Position]:
    """All redelivered entries, of all commands."""
    return [each.position for command in commands(event) for each in command.ids]


@sometimes(negative_acks, on=("nack",), given=lambda cfg: bool(cfg.backoff))
def a_shorter_nack_comes_after_a_longer_one(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack is due before all that is pending, and brings the timer forward."""
    return before.timer is not None and after.timer is not None and before.now < after.timer < before.timer


@sometimes(negative_acks, on=("nack",))
def an_entry_is_nacked_twice_in_a_slot(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A nack changes no slot, for its entry is in its slot already."""
    return not was_refused(event) and after.slots == before.slots


@sometimes(negative_acks, on=("nack",))
def an_entry_is_in_three_slots(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is pending three times, for different times."""
    return len([time for time, entry in pending(after) if entry == event.arguments["entry"]]) >= 3


@sometimes(negative_acks, on=("nack",))
def equal_delays_straddle_an_edge(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry comes to the slot next to one in which it is, by the same delay: it will be redelivered twice."""
    new = pending(after) - pending(before)
    return not cfg.backoff and any((time - slot_length(cfg), entry) in pending(before) for time, entry in new)


@sometimes(negative_acks, on=("nack",))
def a_nack_is_due_at_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Slots are longer than a delay, so that a nack's slot has begun before it."""
    due_now = [time for time, _ in pending(after) - pending(before) if steady(after, time) < before.now]
    return not was_refused(event) and event.outcome.delay > 0 and bool(due_now)


@sometimes(negative_acks, on=("advance_time",))
def three_slots_are_due_at_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One command redelivers what was in three slots, with an entry that was in two of them."""
    if len(commands(event)) != 1:
        return False
    gone = pending(before) - pending(after)
    entries = [entry for _, entry in gone]
    return len({time for time, _ in gone}) >= 3 and len(entries) > len(set(entries))


@sometimes(negative_acks, on=("advance_time",))
def an_entry_comes_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is redelivered, and is pending still: whoever handles it now will get it once more."""
    left = {entry for _, entry in pending(after)}
    return any(entry in left for entry in redelivered(event))


@sometimes(negative_acks, on=("advance_time",))
def a_run_comes_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The timer's task runs late, so that a slot is due that was not when the timer was set."""
    return any(before.timer is not None and command.at > before.timer for command in commands(event)[:1])


@sometimes(negative_acks)
def many_slots_are_pending(cfg: Config, s: State) -> bool:
    """Twenty slots hold something."""
    return len(s.slots) >= 20


@sometimes(negative_acks, on=("advance_time",))
def ids_of_all_kinds_in_a_command(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A command has ids that were kept, of two kinds, beside bare ones."""
    return any(len({each.kind for each in command.ids}) >= 3 for command in commands(event))


@sometimes(negative_acks, on=("advance_time",))
def pieces_come_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A chunked message is redelivered, while another one is remembered."""
    return bool(after.chunks) and len(after.chunks) < len(before.chunks)


@sometimes(negative_acks, on=("close",))
def a_tracker_is_closed_with_much_pending(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The consumer closes while several slots are pending."""
    return len(before.slots) >= 3


@sometimes(negative_acks, on=("redelivery_fails",))
def a_consumer_fails_with_more_to_come(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The consumer throws, and other slots are still pending."""
    return isinstance(event.outcome, Failed) and bool(after.slots)


@sometimes(negative_acks, on=("ack",))
def what_is_acknowledged_is_pending(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is acknowledged that will be redelivered all the same."""
    return any(entry == event.arguments["entry"] for _, entry in pending(before))


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(negative_acks, fair=("advance_time", "timer_task_runs"))
def everything_comes_back(cfg: Config, s: State) -> bool:
    """When time goes on, the timer's task gets its turn and nothing new is nacked, nothing stays pending."""
    return not s.slots
