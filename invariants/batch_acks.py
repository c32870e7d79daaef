"""Guarantees of a cursor's acknowledgements.

The properties compute a mask of unacknowledged messages for each entry. The mask is 0 for a deleted entry, and has the
bits of all messages for an entry without acks. A record is what a write of the cursor stores. A reset is a seek; it
changes memory only when its write succeeds.
"""

from __future__ import annotations

from itertools import accumulate

from invariants.properties import Event, always, eventually, sometimes
from model.batch_acks.machine import Ack, Delivered, batch_acks
from model.batch_acks.state import Acks, Config, Reset, State, Write
from model.machine import Failed, Refused
from model.positions import Position

ACK_CALLS = ("ack_individual", "ack_cumulative")
WRITE_ENDS = ("written", "write_fails")
RECOVERIES = ("crash", "reopen")

#: By entry number, the mask of the unacknowledged messages.
Masks = list[int]


def all_messages(cfg: Config, entry: int) -> int:
    """Returns the mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def unacked_masks(cfg: Config, acks: Acks, count: int) -> Masks:
    """Returns the masks of the unacknowledged messages of the first `count` entries.

    Bits beyond the batch, which an ack set can have if batch sizes are unknown, are left out.
    """
    ack_sets = {p.entry: p.remaining for p in acks.partial}
    whole = [all_messages(cfg, n) for n in range(len(cfg.batch_sizes))]
    return [
        0 if n < acks.first_unacked or acks.deleted >> n & 1 else ack_sets.get(n, -1) & whole[n % len(whole)]
        for n in range(count)
    ]


def entry_count(s: State) -> int:
    """Returns the number of entries in all ledgers."""
    return sum(s.ledgers)


def unacked_messages(cfg: Config, s: State) -> Masks:
    """Returns the masks of the unacknowledged messages of all entries, in memory."""
    return unacked_masks(cfg, s.acks, entry_count(s))


def is_subset(some: Masks, more: Masks) -> bool:
    """Returns whether every message that is unacknowledged in `some` is unacknowledged in `more`."""
    return all(a & ~b == 0 for a, b in zip(some, more, strict=True))


def entry_of(s: State, ack: Ack) -> int:
    """Returns the number of the entry at the position of an ack; the entry must exist."""
    return sum(s.ledgers[: ack.position.ledger - 1]) + ack.position.entry


def mask_left_by(s: State, ack: Ack) -> int:
    """Returns the mask of the messages that an ack leaves unacknowledged; -1, all bits, if the ack has no effect."""
    mask = mask_of(ack)
    return mask if s.batch_acks or mask == 0 else -1


def position_of(ledgers: tuple[int, ...], entry: int) -> Position:
    """Returns the position of an entry: the last ledger that begins at or before the entry, and the index there."""
    firsts = [0, *accumulate(ledgers[:-1])]
    ledger, first = max((i, first) for i, first in enumerate(firsts, 1) if first <= entry)
    return Position(ledger, entry - first)


def ranges(ledgers: tuple[int, ...], deleted: int) -> list[list[int]]:
    """Returns the ranges of deleted entries, each within one ledger."""
    found: list[list[int]] = []
    firsts = {*accumulate(ledgers[:-1])}  # the first entries of all ledgers but the first one
    for n in range(deleted.bit_length()):
        if deleted >> n & 1:
            if found and found[-1][-1] == n - 1 and n not in firsts:
                found[-1].append(n)
            else:
                found.append([n])
    return found


def fits_in_record(cfg: Config, s: State, acks: Acks) -> bool:
    """Returns whether a record can hold all acknowledgements."""
    return len(ranges(s.ledgers, acks.deleted)) <= cfg.max_ranges and len(acks.partial) <= cfg.max_ack_sets


def unacked_after_reset(cfg: Config, reset: Reset, count: int) -> Masks:
    """Returns the masks of the unacknowledged messages of the first `count` entries after a reset."""
    rest = [0 if n < reset.entry else all_messages(cfg, n) for n in range(count)]
    if reset.remaining is not None:
        rest[reset.entry] &= reset.remaining
    return rest


def is_error(event: Event) -> bool:
    """Returns whether the call was rejected or failed."""
    return isinstance(event.outcome, Refused | Failed)


def stored_write(before: State, event: Event) -> Write | None:
    """Returns the write that completes successfully in this step, or None."""
    is_end = event.name in WRITE_ENDS and not is_error(event) and event.outcome.stored
    return before.writing if is_end else None


def completed_resets(before: State, event: Event) -> tuple[Reset, ...]:
    """Returns the resets that complete successfully in this step."""
    write = stored_write(before, event)
    return () if write is None else write.resets


def may_undo_acks(before: State, event: Event) -> bool:
    """Returns whether this step may undo acks: a reset takes effect, or the cursor recovers."""
    write = stored_write(before, event)
    return event.name in RECOVERIES or (write is not None and write.to_apply is not None)


# ---- acknowledgements ---------------------------------------------------------------------------------


@always(batch_acks)
def acknowledged_message_stays_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An acknowledged message stays acknowledged until a reset takes effect or the cursor recovers."""
    return (
        after.acks is before.acks
        or may_undo_acks(before, event)
        or is_subset(unacked_messages(cfg, after)[: entry_count(before)], unacked_messages(cfg, before))
    )


@always(batch_acks, on=("ack_individual",))
def individual_acks_acknowledge_exactly_their_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A list of individual acks acknowledges the messages of all its acks, and no others.

    An entry without unacknowledged messages is deleted. An ack without an ack set, or whose ack set has no set bit, is
    for all messages of the entry. Other ack sets have an effect only if batch-index acks are enabled.
    """
    if is_error(event):
        return True
    wanted = unacked_messages(cfg, before)
    for ack in event.arguments["acks"]:
        wanted[entry_of(before, ack)] &= mask_left_by(before, ack)
    deleted = [n for n in range(len(wanted)) if n < after.acks.first_unacked or after.acks.deleted >> n & 1]
    return unacked_messages(cfg, after) == wanted and deleted == [n for n, rest in enumerate(wanted) if rest == 0]


@always(batch_acks, on=("ack_cumulative",))
def cumulative_ack_acknowledges_up_to_its_message(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative ack acknowledges all earlier entries, and its own entry as an individual ack would; nothing else."""
    if is_error(event):
        return True
    ack = Ack(event.arguments["position"], event.arguments["ack_set"])
    entry, wanted = entry_of(before, ack), unacked_messages(cfg, before)
    wanted[:entry] = [0] * entry
    wanted[entry] &= mask_left_by(before, ack)
    return unacked_messages(cfg, after) == wanted


@always(batch_acks, on=("ack_individual",))
def order_of_individual_acks_is_irrelevant(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A list of individual acks has the same effect as its acks one by one in reverse order."""
    if is_error(event):
        return True
    reversed_state = before
    for ack in reversed(event.arguments["acks"]):
        reversed_state, _ = batch_acks.step(cfg, reversed_state, "ack_individual", ((ack,),))
    return reversed_state.acks == after.acks


@always(batch_acks, on=ACK_CALLS)
def failed_ack_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A failed acknowledgement changes nothing."""
    return not is_error(event) or after == before


@always(batch_acks, on=ACK_CALLS)
def ack_returns_number_of_newly_acked_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An acknowledgement returns the number of messages that it newly acknowledges."""
    if is_error(event):
        return True
    newly_acked = [a & ~b for a, b in zip(unacked_messages(cfg, before), unacked_messages(cfg, after), strict=True)]
    return bool(event.outcome == sum(mask.bit_count() for mask in newly_acked))


def is_after_last_entry(s: State, ack: Ack) -> bool:
    """Returns whether the position of an acknowledgement is after the last entry."""
    last = max([(i, count - 1) for i, count in enumerate(s.ledgers, 1) if count], default=(1, -1))
    return tuple(ack.position) > last


def ack_error(cfg: Config, s: State, ack: Ack) -> str:
    """Returns the error of the position or ack set of an acknowledgement, or an empty string."""
    ledger, entry = ack.position
    if not (1 <= ledger <= len(s.ledgers) and 0 <= entry < s.ledgers[ledger - 1]):
        where = "after the last entry" if is_after_last_entry(s, ack) else "where no entry is"
        return f"position is {[ledger, entry]}, {where}"
    size = all_messages(cfg, entry_of(s, ack)).bit_length()
    is_beyond = cfg.batch_sizes_are_known and mask_of(ack) >> size
    return f"ack_set has a bit beyond the batch of {size}" if is_beyond else ""


def mask_of(ack: Ack) -> int:
    """Returns the mask of the ack set of an ack; 0 without ack set."""
    return sum(word % 2**64 << 64 * i for i, word in enumerate(ack.ack_set or ()))


def moves_mark_delete_back(cfg: Config, s: State, ack: Ack) -> bool:
    """Returns whether a cumulative ack would move the mark-delete position back.

    An ack of the whole entry (`is_whole`) moves the mark-delete position to the entry, any other ack to the previous
    entry. An ack without an ack set is for the whole entry. So is an ack set whose words are all 0, except in two
    cases: it has no effect, or the profile replaces stored ack sets (`cumulative_sets`).
    """
    has_effect = s.batch_acks or (cfg.zero_words_mean_whole and mask_of(ack) == 0)
    replaces = s.batch_acks and cfg.cumulative_sets == "replace_if_further"
    is_whole = not ack.ack_set or (mask_of(ack) == 0 and has_effect and not replaces)
    return entry_of(s, ack) + is_whole < s.acks.first_unacked


@always(batch_acks, on=(*ACK_CALLS, "reset"))
def ack_fails_iff_position_or_ack_set_is_invalid(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack or reset fails if and only if its position or ack set is invalid.

    Invalid are: a position without an entry; an ack set with a bit beyond the batch; a cumulative ack that would move
    the mark-delete position back; the ack set of a reset that leaves no message of the entry. If batch sizes are
    unknown, no bit is beyond the batch. A reset without an ack set to the position of the next entry succeeds, too. The
    error of a list names the first invalid ack whose position is not after the last entry; without such an ack, the
    first ack whose position is after the last entry.
    """
    if event.name == "ack_individual":
        acks = event.arguments["acks"]
        errors = {i: error for i, ack in enumerate(acks) if (error := ack_error(cfg, before, ack))}
        if not errors or not is_error(event):
            return not errors and not is_error(event)
        first = next((i for i in errors if not is_after_last_entry(before, acks[i])), min(errors))
        return bool(event.outcome.why == f"acks[{first}].{errors[first]}")
    ack = Ack(event.arguments["position"], event.arguments["ack_set"])
    error = ack_error(cfg, before, ack)
    if event.name == "reset":
        is_next = tuple(ack.position) == (len(before.ledgers), before.ledgers[-1]) and not ack.ack_set
        return is_error(event) == (not is_next and (error != "" or bool(ack.ack_set and mask_of(ack) == 0)))
    if not error or not is_error(event):
        return is_error(event) == (bool(error) or moves_mark_delete_back(cfg, before, ack))
    expected = "position is after the last entry" if is_after_last_entry(before, ack) else error
    return bool(event.outcome.why == expected)


@always(batch_acks)
def only_acks_resets_and_recovery_change_acks(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Acknowledgements change only by an ack, by a reset that takes effect, or by a recovery.

    `added_entry_is_unacknowledged` checks added entries.
    """
    return event.name in (*ACK_CALLS, "add_entry") or may_undo_acks(before, event) or after.acks == before.acks


@always(batch_acks, on=("add_entry",))
def added_entry_is_unacknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """All messages of an added entry are unacknowledged, and adding it changes no other entry's acknowledgements."""
    return unacked_messages(cfg, after) == [*unacked_messages(cfg, before), all_messages(cfg, entry_count(before))]


@always(batch_acks, on=("add_entry", "roll_ledger", "begin_read", "flush", *WRITE_ENDS, *RECOVERIES, "end_read"))
def second_read_fails_and_second_write_is_queued(cfg: Config, before: State, event: Event, after: State) -> bool:
    """While a read is in flight, a second read fails; while a read or write is in flight, no flush starts a write.

    Instead, the flush of a dirty cursor is queued, but not directly behind another queued flush. If nothing is in
    flight, the flush of a dirty cursor starts a write. A flush of a clean cursor changes nothing. The end of a read or
    write that is not in flight fails. A close fails while a read or write is in flight. A crash in which the write in
    flight survives fails if no write is in flight. A recovered cursor is not dirty, has no operation in flight or
    queued, and its read position is the first one after the mark-delete position. An added entry goes to the last
    ledger; a rollover adds an empty ledger.
    """
    reading, writing = before.reading, before.writing is not None
    match event.name:
        case "add_entry" | "roll_ledger":
            count, is_new = before.ledgers[-1], event.name == "roll_ledger"
            ledgers = (*before.ledgers, 0) if is_new else (*before.ledgers[:-1], count + 1)
            returned = len(ledgers) if is_new else (len(ledgers), count)
            return after.ledgers == ledgers and bool(event.outcome == returned)
        case "begin_read":
            # `only_acks_resets_and_recovery_change_acks` checks `acks`
            return is_error(event) == reading and after._replace(acks=before.acks) == before._replace(reading=True)
        case "end_read":
            return is_error(event) != reading and not after.reading
        case "flush":
            if not before.dirty or reading or writing:
                is_queued = before.dirty and before.queued[-1:] != (None,)
                queued = (*before.queued, None) if is_queued else before.queued
                return event.outcome is False and after == before._replace(queued=queued)
            is_of_memory = after.writing is not None and after.writing[1:] == ((), None)
            return (
                event.outcome is True and is_of_memory and after == before._replace(writing=after.writing, dirty=False)
            )
        case "reopen" | "crash":
            wrong = reading or writing if event.name == "reopen" else event.arguments["write_survives"] and not writing
            batch_acks = event.arguments.get("batch_acks", before.batch_acks)
            idle = before._replace(dirty=False, writing=None, queued=(), reading=False, batch_acks=batch_acks)
            idle = idle._replace(acks=after.acks, durable=after.durable, read_position=after.acks.first_unacked)
            return is_error(event) == wrong and (wrong or after == idle)
    # the end of a write
    if is_error(event) or not writing:
        return is_error(event) and not writing
    return bool(event.outcome.stored == (event.name == "written" or event.arguments["stored_in_metadata"]))


@always(batch_acks, on=ACK_CALLS, given=lambda cfg: cfg.partial_acks_are_dirty)
def ack_without_effect_leaves_cursor_clean(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A successful ack makes a cursor dirty (something must be written) only if it changes acknowledgements."""
    return is_error(event) or not after.dirty or before.dirty or after.acks != before.acks


# ---- states -------------------------------------------------------------------------------------------


@always(batch_acks)
def ack_set_has_some_but_not_all_messages(cfg: Config, s: State) -> bool:
    """An ack set leaves some messages of its entry unacknowledged, but not all.

    An entry has at most one ack set; a deleted entry has none.
    """
    numbers = [p.entry for p in s.acks.partial]
    if numbers != sorted(set(numbers)):
        return False
    return all(
        p.entry >= s.acks.first_unacked
        and not s.acks.deleted >> p.entry & 1
        and 0 < p.remaining < all_messages(cfg, p.entry)
        for p in s.acks.partial
    )


@always(batch_acks)
def mark_delete_position_is_before_first_undeleted_entry(cfg: Config, s: State) -> bool:
    """The mark-delete position is directly before the first entry that is not deleted, across ledgers.

    No entry that was not added yet is deleted, individually or by the mark-delete position.
    """
    is_before = s.acks.deleted & (2 ** (s.acks.first_unacked + 1) - 1) == 0
    return is_before and s.acks.deleted >> entry_count(s) == 0 and s.acks.first_unacked <= entry_count(s)


@always(batch_acks)
def mark_delete_position_moves_back_only_by_reset_or_recovery(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """The mark-delete position moves back only by a reset or a recovery.

    The read position is always after the mark-delete position. The read position moves only by reads, resets and
    recoveries, or because the mark-delete position reaches the read position.
    """
    if may_undo_acks(before, event) or event.name == "end_read":
        return after.read_position >= after.acks.first_unacked
    is_kept = after.read_position == max(before.read_position, after.acks.first_unacked)
    return is_kept and after.acks.first_unacked >= before.acks.first_unacked


@always(batch_acks)
def no_ack_set_without_batch_index_acks(cfg: Config, s: State) -> bool:
    """If batch-index acks are disabled, no entry has an ack set."""
    return s.batch_acks or s.acks.partial == ()


@always(batch_acks, on=("end_read",))
def read_delivers_next_entry_with_its_ack_set(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read delivers the next entry that is not deleted, with an ack set of exactly the unacknowledged messages.

    If all messages of the entry are unacknowledged, the read may deliver no ack set. If there is no such entry, the
    read delivers nothing.
    """
    if is_error(event):
        return True
    rest = unacked_messages(cfg, before)
    entry = next((n for n in range(before.read_position, len(rest)) if rest[n]), None)
    if entry is None or event.outcome is None:
        return entry is None and event.outcome is None and after.read_position == before.read_position
    words = event.outcome.ack_set
    ack_set = sum(word % 2**64 << 64 * i for i, word in enumerate(words or ()))
    delivered = all_messages(cfg, entry) if words is None else ack_set
    is_next_entry = (
        event.outcome.position == position_of(before.ledgers, entry)
        and delivered & all_messages(cfg, entry) == rest[entry]
    )
    return is_next_entry and after.read_position == entry + 1


# ---- storage ------------------------------------------------------------------------------------------


@always(batch_acks, on=RECOVERIES)
def recovery_invents_no_acknowledgement(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A recovery acknowledges no message, except by the record of a reset that survives a crash.

    If such a record survives, every acknowledged message is one that the reset acknowledges.
    """
    if is_error(event):
        return True
    known, found = unacked_messages(cfg, before), unacked_messages(cfg, after)
    to_apply = before.writing.to_apply if before.writing is not None else None
    if to_apply is None or not event.arguments["write_survives"]:
        return is_subset(known, found)
    return is_subset(unacked_after_reset(cfg, to_apply, entry_count(before)), found)


@always(batch_acks, on=RECOVERIES)
def recovered_cursor_has_all_acks_of_its_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor that is recovered from a record has exactly the acknowledgements in the record.

    The cursor has ack sets only if batch-index acks are enabled.
    """
    ack_sets, count = after.durable.partial if after.batch_acks else (), entry_count(after)
    stored = after.durable._replace(partial=ack_sets)
    return is_error(event) or unacked_masks(cfg, after.acks, count) == unacked_masks(cfg, stored, count)


@always(batch_acks)
def clean_cursor_is_durable_or_in_flight(cfg: Config, s: State) -> bool:
    """A cursor with nothing to write (not dirty) has all its acknowledgements in a record, if one record can hold them.

    The record is that of the write of memory in flight or, if there is no such write, the durable record.
    """
    if s.dirty or not fits_in_record(cfg, s, s.acks):
        return True
    record = s.durable if s.writing is None or s.writing.to_apply is not None else s.writing.record
    count = entry_count(s)
    return record == s.acks or is_subset(unacked_masks(cfg, record, count), unacked_masks(cfg, s.acks, count))


@always(batch_acks, on=("reopen",))
def clean_close_keeps_all_acks_if_they_fit(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a clean close and a reopen, the cursor has all its acknowledgements, if one record can hold them.

    Ack sets are kept if batch-index acks are enabled after the reopen.
    """
    if is_error(event) or not fits_in_record(cfg, before, before.acks):
        return True
    ack_sets = before.acks.partial if event.arguments["batch_acks"] else ()
    return after.acks == before.acks._replace(partial=ack_sets)


@always(batch_acks)
def only_completed_write_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The durable record is that of the last successful write. Other writes do not change the durable record.

    A write in flight that survives a crash is successful. The record that a clean close writes is not checked. If a
    recovery from the metadata store does not read ack sets, those of a record that is stored there are not checked.
    """
    if event.name == "reopen":
        return True
    if event.name in (*WRITE_ENDS, "crash") and before.writing is not None and not is_error(event):
        kept = event.outcome.stored if event.name in WRITE_ENDS else event.arguments["write_survives"]
        wanted = before.writing.record if kept else before.durable
        if not cfg.metadata_ack_sets_are_recovered and event.name == "write_fails":
            return after.durable._replace(partial=wanted.partial) == wanted
        return after.durable == wanted
    return after.durable is before.durable or after.durable == before.durable


@always(batch_acks)
def record_respects_configured_limits(cfg: Config, s: State) -> bool:
    """A record holds at most the configured numbers of ranges of deleted entries and of ack sets."""
    records = [s.durable] if s.writing is None else [s.durable, s.writing.record]
    return all(fits_in_record(cfg, s, each) for each in records)


@always(batch_acks)
def record_keeps_lowest_ranges_and_ack_sets(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record written from memory has the mark-delete position and, up to the limits, the lowest ranges and ack sets.

    The record of a write is checked when the write starts, and the record of a close when the cursor is closed. If a
    recovery from the metadata store does not read ack sets, the ack sets of a close are not checked.
    """
    write, is_close = after.writing, event.name == "reopen" and not is_error(event)
    if not is_close and (write is None or write is before.writing or write.to_apply is not None):
        return True
    kept, memory = (after.durable, before.acks) if is_close or write is None else (write.record, after.acks)
    held, known = ranges(after.ledgers, kept.deleted), ranges(after.ledgers, memory.deleted)
    most = min(len(known), cfg.max_ranges)
    loses_ack_sets = is_close and not cfg.metadata_ack_sets_are_recovered
    return (
        kept.first_unacked == memory.first_unacked
        and held[:most] == known[:most]
        and (loses_ack_sets or kept.partial == memory.partial[: cfg.max_ack_sets])
    )


@always(batch_acks, on=("is_fully_persistable",))
def fully_persistable_means_ranges_and_ack_sets_fit(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`is_fully_persistable` is true if and only if one record can hold all acknowledgements."""
    return event.outcome is fits_in_record(cfg, before, before.acks)


# ---- resets -------------------------------------------------------------------------------------------


@always(batch_acks, on=WRITE_ENDS)
def completed_reset_takes_effect(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Queued resets can share one write. If the write succeeds, the last of them takes effect.

    Reading restarts at the entry of this reset. The acknowledged messages are exactly those before this entry, and
    those that the reset's ack set acknowledges. The cursor is not dirty, because the written record has these
    acknowledgements, up to the limits.
    """
    resets = completed_resets(before, event)
    if not resets:
        return True
    wanted = unacked_after_reset(cfg, resets[-1], entry_count(after))
    return unacked_messages(cfg, after) == wanted and after.read_position == resets[-1].entry and not after.dirty


@always(batch_acks, on=("reset",))
def reset_starts_write_or_is_queued(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reset starts its write or, if a read or write is in flight, is queued last.

    The call changes nothing else, and returns the ticket of the reset.
    """
    if is_error(event):
        return True
    ack = Ack(event.arguments["position"], event.arguments["ack_set"])
    to = entry_of(before, ack)
    remaining = mask_left_by(before, ack) if ack.ack_set else -1
    wanted = Reset(before.next_ticket, to, None if remaining in (-1, all_messages(cfg, to)) else remaining)
    expected = before._replace(next_ticket=before.next_ticket + 1)
    if before.reading or before.writing is not None:
        expected = expected._replace(queued=(*before.queued, wanted))
    else:
        expected = expected._replace(writing=after.writing)
        if after.writing is None or after.writing[1:] != ((wanted,), wanted):
            return False
    return after == expected and bool(event.outcome == wanted.ticket)


@always(batch_acks)
def queued_operation_waits_for_read_or_write(cfg: Config, s: State) -> bool:
    """An operation is queued only while a read or a write is in flight."""
    return not s.queued or s.reading or s.writing is not None


@always(batch_acks)
def reset_completes_exactly_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every reset completes or fails exactly once, in the order of the requests, or a recovery discards it."""
    if event.name in RECOVERIES:
        return is_error(event) or not open_tickets(after)
    completed = list(event.outcome.resets) if event.name in WRITE_ENDS and not is_error(event) else []
    requested_now = [event.outcome] if event.name == "reset" and not is_error(event) else []
    return open_tickets(before) + requested_now == completed + open_tickets(after)


def open_tickets(s: State) -> list[int]:
    """Returns the tickets of pending resets, in the order of requests."""
    in_flight = s.writing.resets if s.writing is not None else ()
    return [each.ticket for each in (*in_flight, *s.queued) if each is not None]


# ---- coverage goals -----------------------------------------------------------------------------------


@sometimes(batch_acks, on=("ack_individual",))
def last_message_of_batch_is_acked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack of some messages of a batch deletes the entry: earlier acks have acknowledged its other messages."""
    if is_error(event):
        return False
    ack_sets = {p.entry: p.remaining for p in before.acks.partial}
    unacked = unacked_messages(cfg, after)
    return any(
        entry_of(before, ack) in ack_sets and any(ack.ack_set or ()) and unacked[entry_of(before, ack)] == 0
        for ack in event.arguments["acks"]
    )


@sometimes(batch_acks, on=("ack_individual",))
def mark_delete_position_advances_into_next_ledger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack fills a gap between acknowledged entries, and the mark-delete position advances into another ledger."""
    moved = after.acks.first_unacked - before.acks.first_unacked > len(event.arguments["acks"])
    first, last = (position_of(s.ledgers, max(s.acks.first_unacked - 1, 0)) for s in (before, after))
    return moved and before.acks.deleted > 0 and first.ledger < last.ledger


@sometimes(batch_acks, on=("ack_cumulative",))
def cumulative_ack_into_entry_with_ack_set(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative ack ends inside a batch with an ack set, newly acknowledges some messages, and leaves others."""
    if is_error(event) or not event.outcome:
        return False
    entry = entry_of(before, Ack(event.arguments["position"], None))
    return entry in [p.entry for p in before.acks.partial] and entry in [p.entry for p in after.acks.partial]


@sometimes(batch_acks, on=("ack_individual",))
def ack_list_has_position_without_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last ack in a list of several acks is for a position after the last entry."""
    acks = event.arguments["acks"]
    return len(acks) > 1 and is_after_last_entry(before, acks[-1])


@sometimes(batch_acks)
def empty_ledger_between_deleted_entries(cfg: Config, s: State) -> bool:
    """Entries are individually deleted directly before and after an empty ledger."""
    if 0 not in s.ledgers[1:-1]:
        return False
    following = sum(s.ledgers[: s.ledgers.index(0, 1)])  # number of the first entry after the empty ledger
    return following > 0 and s.acks.deleted >> (following - 1) & 1 == 1 and s.acks.deleted >> following & 1 == 1


@sometimes(batch_acks)
def record_cannot_hold_everything(cfg: Config, s: State) -> bool:
    """A record can hold neither all ranges of deleted entries nor all ack sets."""
    too_many = len(ranges(s.ledgers, s.acks.deleted)) > cfg.max_ranges
    return too_many and len(s.acks.partial) > cfg.max_ack_sets


@sometimes(batch_acks, on=("crash",))
def crash_loses_part_of_ack_set(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash loses some acknowledgements of messages of a batch, and keeps others."""
    found = {p.entry: p.remaining for p in after.acks.partial}
    return any(p.entry in found and found[p.entry] != p.remaining for p in before.acks.partial)


@sometimes(batch_acks, on=("crash",))
def crash_recovers_record_in_flight(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash interrupts a write; its record turns out to be durable, and differs from the previous record."""
    return not is_error(event) and event.arguments["write_survives"] and after.durable != before.durable


@sometimes(batch_acks, on=WRITE_ENDS)
def queued_reset_starts_with_later_write(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A write ends without completing a reset; then the write of a queued reset starts."""
    return not completed_resets(before, event) and after.writing is not None and after.writing.resets != ()


@sometimes(batch_acks, on=("written",))
def reset_into_batch_before_mark_delete_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reset into the middle of a batch, at or before the mark-delete position, completes."""
    resets = completed_resets(before, event)
    return bool(resets) and resets[-1].remaining is not None and resets[-1].entry < before.acks.first_unacked


@sometimes(batch_acks, on=("end_read",))
def entry_with_ack_set_is_delivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read skips a deleted entry, and delivers a later entry with its ack set."""
    outcome = event.outcome
    return (
        isinstance(outcome, Delivered)
        and outcome.ack_set is not None
        and after.read_position > before.read_position + 1
    )


@sometimes(batch_acks, on=("reopen",))
def ack_sets_are_dropped_when_switched_off(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor that has ack sets is reopened with batch-index acks switched off."""
    return not is_error(event) and before.acks.partial != () and not after.batch_acks


# ---- liveness -----------------------------------------------------------------------------------------


@eventually(batch_acks, fair=("flush", "written", "end_read"))
def acknowledgements_become_durable(cfg: Config, s: State) -> bool:
    """If flushes start, and reads and writes complete, eventually the cursor is clean and no write is in flight."""
    return not s.dirty and s.writing is None
