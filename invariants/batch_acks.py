"""What a cursor promises about acknowledgements.

Each promise is said entry by entry, with the mask of the messages that are left: nothing is left of a deleted entry,
and everything of one that nobody has acknowledged. A property that some shipped version breaks says so in its last
sentence.
"""

from __future__ import annotations

from invariants.properties import Event, always, eventually, sometimes
from model.batch_acks.machine import Ack, Delivered, batch_acks
from model.batch_acks.state import Acks, Config, Reset, State, position_of
from model.machine import Failed, Refused

ACKS = ("ack_individual", "ack_cumulative")
ENDS = ("written", "write_fails")
RESTARTS = ("crash", "reopen")

#: What is left of each entry, as a mask.
Left = list[int]


def everything(cfg: Config, entry: int) -> int:
    """The mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def left(cfg: Config, acks: Acks, count: int) -> Left:
    """What is left of the first entries."""
    parts = {p.entry: p.remaining for p in acks.partial}
    return [
        0 if n < acks.mark or acks.deleted >> n & 1 else parts.get(n, -1) & everything(cfg, n) for n in range(count)
    ]


def entries(s: State) -> int:
    """How many entries there are."""
    return sum(s.ledgers)


def left_in(cfg: Config, s: State) -> Left:
    """What is left of all entries, in memory."""
    return left(cfg, s.acks, entries(s))


def is_part(some: Left, more: Left) -> bool:
    """Whatever is left in the first is left in the second."""
    return all(a & ~b == 0 for a, b in zip(some, more, strict=True))


def number(s: State, ack: Ack) -> int:
    """The number of an entry that there is."""
    return sum(s.ledgers[: ack.position.ledger - 1]) + ack.position.entry


def asked(s: State, ack: Ack) -> int:
    """The mask of what an acknowledgement leaves; everything, if parts do not count."""
    words = ack.ack_set or ()
    mask = sum(word % 2**64 << 64 * i for i, word in enumerate(words))
    return mask if s.batch_acks or mask == 0 else -1


def ranges(ledgers: tuple[int, ...], deleted: int) -> list[list[int]]:
    """The ranges of deleted entries, each of one ledger."""
    found: list[list[int]] = []
    last = None
    for n in range(deleted.bit_length()):
        ledger = position_of(ledgers, n).ledger
        if deleted >> n & 1:
            if last == ledger:
                found[-1].append(n)
            else:
                found.append([n])
        last = ledger if deleted >> n & 1 else None
    return found


def fits(cfg: Config, s: State, acks: Acks) -> bool:
    """A record can hold all of it."""
    return len(ranges(s.ledgers, acks.deleted)) <= cfg.max_ranges and len(acks.partial) <= cfg.max_batch_records


def left_after(cfg: Config, reset: Reset, count: int) -> Left:
    """What is left of the first entries after a reset."""
    rest = [0 if n < reset.to else everything(cfg, n) for n in range(count)]
    if reset.remaining and reset.to < count:
        rest[reset.to] &= reset.remaining
    return rest


def is_error(event: Event) -> bool:
    """The call did not succeed."""
    return isinstance(event.outcome, Refused | Failed)


def done_resets(before: State, event: Event) -> tuple[Reset, ...]:
    """The resets whose callers are told that they are done."""
    is_end = event.name in ENDS and not is_error(event) and event.outcome.stored
    return before.writing.resets if is_end and before.writing is not None else ()


def is_set_back(before: State, event: Event) -> bool:
    """What is acknowledged may become less: a reset has its effect, or the cursor begins anew."""
    is_reset = event.name in ENDS and before.writing is not None and before.writing.applied is not None
    return is_reset or event.name in RESTARTS


# ---- acknowledgements ---------------------------------------------------------------------------------


@always(batch_acks)
def what_is_acknowledged_stays_so(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No message is redelivered that was acknowledged, unless a reset or a new beginning of the cursor comes between.

    As shipped, a cumulative acknowledgement into a batch forgets messages after it that were acknowledged one by one.
    """
    return (
        after.acks is before.acks
        or is_set_back(before, event)
        or is_part(left_in(cfg, after)[: entries(before)], left_in(cfg, before))
    )


@always(batch_acks, on=("ack_individual",))
def an_individual_ack_acknowledges_what_it_says(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an acknowledgement of a list, exactly what was left in memory and in all of its sets is left.

    No set, an empty one and one of zeros mean the whole entry; parts count only where the broker is set up for them. As
    shipped, a set of zeros is ignored where parts do not count, and a bit beyond the batch keeps an entry for ever.
    """
    if is_error(event):
        return True
    wanted = left_in(cfg, before)
    for ack in event.arguments["acks"]:
        wanted[number(before, ack)] &= asked(before, ack)
    deleted = [n for n, rest in enumerate(wanted) if n < after.acks.mark or after.acks.deleted >> n & 1]
    return left_in(cfg, after) == wanted and deleted == [n for n, rest in enumerate(wanted) if rest == 0]


@always(batch_acks, on=("ack_cumulative",))
def a_cumulative_ack_acknowledges_what_it_says(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a cumulative ack nothing is left before its entry, and of the entry what was left in it and in the set.

    As shipped, a set replaces what was known of the entry, and a set of zeros is ignored.
    """
    if is_error(event):
        return True
    ack = Ack(event.arguments["position"], event.arguments["ack_set"])
    entry, wanted = number(before, ack), left_in(cfg, before)
    wanted[:entry] = [0] * entry
    wanted[entry] &= asked(before, ack)
    return left_in(cfg, after) == wanted


@always(batch_acks, on=("ack_individual",))
def the_order_of_a_list_does_not_matter(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Acknowledgements one by one give the same, whatever order they come in."""
    if is_error(event):
        return True
    turned = before
    for ack in reversed(event.arguments["acks"]):
        turned, _ = batch_acks.step(cfg, turned, "ack_individual", ((ack,),))
    return turned.acks == after.acks


@always(batch_acks, on=ACKS)
def a_failed_ack_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A caller who is told of a failure can rely on it: nothing was acknowledged, nothing was forgotten.

    As shipped, what stands in a list before the entry that is not there stays acknowledged, and a cumulative
    acknowledgement that is refused changes sets all the same.
    """
    return not is_error(event) or after == before


@always(batch_acks, on=ACKS)
def news_are_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An acknowledgement tells how many messages it acknowledged that were not acknowledged before."""
    if is_error(event):
        return True
    news = [a & ~b for a, b in zip(left_in(cfg, before), left_in(cfg, after), strict=True)]
    return bool(event.outcome == sum(mask.bit_count() for mask in news))


@always(batch_acks)
def only_acks_resets_and_restarts_change_acks(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Reading, writing, new ledgers and questions leave what is acknowledged as it is."""
    return event.name in (*ACKS, "add_entry") or is_set_back(before, event) or after.acks == before.acks


@always(batch_acks, on=("add_entry",))
def nothing_of_a_new_entry_is_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every message of an entry that is just added is left, and an addition acknowledges nothing else.

    As shipped it is broken, and messages are lost: a set of an entry to come is refused and remembered all the same.
    """
    return left_in(cfg, after) == [*left_in(cfg, before), everything(cfg, entries(before))]


# ---- states -------------------------------------------------------------------------------------------


@always(batch_acks)
def an_entry_has_one_status(cfg: Config, s: State) -> bool:
    """An entry is untouched, deleted, or partly acknowledged: then some but not all of its messages are left.

    As shipped, an entry can be kept with nothing left of it, with messages that it does not have, or though deleted.
    """
    numbers = [p.entry for p in s.acks.partial]
    if numbers != sorted(set(numbers)):
        return False
    return all(
        p.entry >= s.acks.mark and not s.acks.deleted >> p.entry & 1 and 0 < p.remaining < everything(cfg, p.entry)
        for p in s.acks.partial
    )


@always(batch_acks)
def the_mark_is_as_far_as_it_can_be(cfg: Config, s: State) -> bool:
    """The mark stands before the first entry that is not deleted, across ledgers; what is deleted after it is known.

    As shipped, it does not move after a list that failed.
    """
    return s.acks.deleted & (2 ** (s.acks.mark + 1) - 1) == 0 and s.acks.deleted >> entries(s) == 0


@always(batch_acks)
def the_mark_goes_back_only_by_a_reset(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The mark never moves back unless a reset or a new beginning moves it, and the reader never stands before it."""
    moved_on = after.acks.mark >= before.acks.mark or is_set_back(before, event)
    return moved_on and after.read_next >= after.acks.mark


@always(batch_acks)
def without_batch_acks_no_part_is_kept(cfg: Config, s: State) -> bool:
    """Where acknowledgements of parts do not count, no entry is partly acknowledged."""
    return s.batch_acks or s.acks.partial == ()


@always(batch_acks, on=("end_read",))
def a_read_gives_what_is_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A consumer gets the next entry that is not deleted, and is told which of its messages are left."""
    if is_error(event):
        return True
    rest = left_in(cfg, before)
    entry = next((n for n in range(before.read_next, len(rest)) if rest[n]), None)
    if entry is None or event.outcome is None:
        return entry is None and event.outcome is None
    words = event.outcome.ack_set
    told = everything(cfg, entry) if words is None else sum(word % 2**64 << 64 * i for i, word in enumerate(words))
    is_it = (
        event.outcome.position == position_of(before.ledgers, entry) and told & everything(cfg, entry) == rest[entry]
    )
    return is_it and after.read_next == entry + 1


# ---- storage ------------------------------------------------------------------------------------------


@always(batch_acks, on=("crash",))
def recovery_never_invents(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a crash nothing is acknowledged that was not acknowledged before, or by the reset that was being written.

    As shipped, a reset that is done is followed by what was acknowledged before it, when a crash comes next.
    """
    if is_error(event):
        return True
    known, found = left_in(cfg, before), left_in(cfg, after)
    applied = before.writing.applied if before.writing is not None else None
    if applied is None or not event.arguments["write_survives"]:
        return is_part(known, found)
    return is_part(left_after(cfg, applied, entries(before)), found)


@always(batch_acks)
def what_is_not_dirty_is_durable(cfg: Config, s: State) -> bool:
    """With nothing left to write, a recovery would find all that is acknowledged, as far as a record can hold it.

    As shipped, parts of entries alone are never written, and a reset's own set is not.
    """
    if s.dirty or not fits(cfg, s, s.acks) or (s.writing is not None and s.writing.applied is not None):
        return True
    record = s.durable if s.writing is None else s.writing.record
    count = entries(s)
    return is_part(left(cfg, record, count), left(cfg, s.acks, count))


@always(batch_acks, on=("reopen",))
def a_clean_close_keeps_all_that_fits(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor that is closed and opened again knows all that a record can hold; parts, if they count again.

    As shipped until pull request 26474, the metadata store gives no parts of entries back.
    """
    if is_error(event) or not fits(cfg, before, before.acks):
        return True
    parts = before.acks.partial if event.arguments["batch_acks"] else ()
    return after.acks == before.acks._replace(partial=parts)


@always(batch_acks)
def only_a_finished_write_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A recovery finds the record that was written last, whole: nothing later, and nothing of a write that failed."""
    if event.name == "reopen" or after.durable is before.durable:
        return True
    if event.name in (*ENDS, "crash") and before.writing is not None:
        kept = event.outcome.stored if event.name in ENDS else event.arguments["write_survives"]
        wanted = before.writing.record if kept else before.durable
        if not cfg.metadata_keeps_sets and event.name == "write_fails":
            return after.durable._replace(partial=wanted.partial) == wanted
        return after.durable == wanted
    return after.durable == before.durable


@always(batch_acks)
def a_record_is_no_larger_than_allowed(cfg: Config, s: State) -> bool:
    """A record holds no more ranges and no more parts of entries than the settings say.

    As shipped, it holds one range more.
    """
    records = [s.durable] if s.writing is None else [s.durable, s.writing.record]
    return all(fits(cfg, s, each) for each in records)


@always(batch_acks)
def a_record_keeps_the_lowest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What a record cannot hold is what lies after all that it holds: the oldest entries stand in the mark's way."""
    write = after.writing
    if write is None or write is before.writing or write.applied is not None:
        return True
    kept, lost = write.record, after.acks
    held, known = ranges(after.ledgers, kept.deleted), ranges(after.ledgers, lost.deleted)
    most = min(len(known), cfg.max_ranges)
    return (
        kept.mark == lost.mark and held[:most] == known[:most] and kept.partial == lost.partial[: cfg.max_batch_records]
    )


@always(batch_acks, on=("is_fully_persistable",))
def fully_persistable_means_everything(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor says that it can be written whole only if its ranges and its parts of entries all fit.

    As shipped, only the ranges are counted.
    """
    return event.outcome is fits(cfg, before, before.acks)


# ---- resets -------------------------------------------------------------------------------------------


@always(batch_acks, on=ENDS)
def a_reset_that_is_done_has_its_effect(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When callers are told that resets are done, reading goes on where the last of them says, and nothing after it
    is acknowledged but what its set leaves out.

    As shipped, a reset that waited with a later operation is reported as done and does nothing.
    """
    resets = done_resets(before, event)
    if not resets:
        return True
    wanted = left_after(cfg, resets[-1], entries(after))
    return left_in(cfg, after) == wanted and after.read_next == resets[-1].to


@always(batch_acks, on=("reset",))
def a_reset_waits_for_its_write(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reset remembers the entry and the set that were asked for, in the last place, and changes nothing itself."""
    if is_error(event):
        return True
    ack = Ack(event.arguments["position"], event.arguments["ack_set"])
    to = number(before, ack)
    remaining = asked(before, ack) if any(ack.ack_set or ()) and asked(before, ack) != -1 else 0
    last = after.waiting[-1] if after.waiting else after.writing and after.writing.resets[-1]
    return last == Reset(event.outcome, to, 0 if remaining == everything(cfg, to) else remaining)


@always(batch_acks)
def every_reset_is_answered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The caller of a reset is told once whether it is done, in the order of asking, unless the cursor begins anew."""
    if event.name in RESTARTS:
        return is_error(event) or not open_tickets(after)
    told = list(event.outcome.resets) if event.name in ENDS and not is_error(event) else []
    asked_now = [event.outcome] if event.name == "reset" and not is_error(event) else []
    return open_tickets(before) + asked_now == told + open_tickets(after)


def open_tickets(s: State) -> list[int]:
    """The tickets of the resets that are not done, in the order of asking."""
    on_the_way = s.writing.resets if s.writing is not None else ()
    return [each.ticket for each in (*on_the_way, *s.waiting) if each is not None]


# ---- what a run must have seen ------------------------------------------------------------------------


@sometimes(batch_acks, on=("ack_individual",))
def the_last_message_of_an_entry_is_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that was partly acknowledged is deleted by a set that leaves other messages of it."""
    if is_error(event):
        return False
    parts = {p.entry: p.remaining for p in before.acks.partial}
    return any(
        number(before, ack) in parts and any(ack.ack_set or ()) and left_in(cfg, after)[number(before, ack)] == 0
        for ack in event.arguments["acks"]
    )


@sometimes(batch_acks, on=("ack_individual",))
def the_mark_moves_over_what_was_deleted_before(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An acknowledgement closes a gap, and the mark moves into another ledger."""
    moved = after.acks.mark - before.acks.mark > len(event.arguments["acks"])
    first, last = (position_of(s.ledgers, max(s.acks.mark - 1, 0)) for s in (before, after))
    return moved and before.acks.deleted > 0 and first.ledger < last.ledger


@sometimes(batch_acks, on=("ack_cumulative",))
def a_cumulative_ack_into_a_part(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative acknowledgement leaves a part of an entry of which another part was acknowledged one by one."""
    if is_error(event) or not event.outcome:
        return False
    entry = number(before, Ack(event.arguments["position"], None))
    return entry in [p.entry for p in before.acks.partial] and entry in [p.entry for p in after.acks.partial]


@sometimes(batch_acks, on=("ack_individual",))
def a_list_has_an_entry_that_is_not_there(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry of a list that is not the first one is after the last entry."""
    acks = event.arguments["acks"]
    return is_error(event) and len(acks) > 1 and acks[-1].position.ledger == len(before.ledgers)


@sometimes(batch_acks)
def an_empty_ledger_lies_between(cfg: Config, s: State) -> bool:
    """Entries are deleted on both sides of a ledger that has none."""
    if 0 not in s.ledgers[1:-1]:
        return False
    here = sum(s.ledgers[: s.ledgers.index(0, 1)])
    return here > 0 and s.acks.deleted >> (here - 1) & 1 == 1 and s.acks.deleted >> here & 1 == 1


@sometimes(batch_acks)
def a_record_cannot_hold_everything(cfg: Config, s: State) -> bool:
    """More is acknowledged than a record can hold, in ranges and in parts."""
    too_many = len(ranges(s.ledgers, s.acks.deleted)) > cfg.max_ranges
    return too_many and len(s.acks.partial) > cfg.max_batch_records


@sometimes(batch_acks, on=("crash",))
def a_crash_forgets_a_part(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash forgets some messages of an entry, and remembers others."""
    found = {p.entry: p.remaining for p in after.acks.partial}
    return any(p.entry in found and found[p.entry] != p.remaining for p in before.acks.partial)


@sometimes(batch_acks, on=("crash",))
def a_crash_finds_what_was_being_written(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record that was on its way when the cursor crashed is found, and is another one than the last."""
    return not is_error(event) and event.arguments["write_survives"] and after.durable != before.durable


@sometimes(batch_acks, on=ENDS)
def a_reset_was_followed_by_a_write(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reset that has waited with a write after it is done."""
    return not done_resets(before, event) and after.writing is not None and after.writing.resets != ()


@sometimes(batch_acks, on=("written",))
def a_reset_begins_within_a_batch(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reset is done whose set leaves a part of its entry, after entries that are to be read again."""
    resets = done_resets(before, event)
    return bool(resets) and resets[-1].remaining > 0 and resets[-1].to < before.acks.mark


@sometimes(batch_acks, on=("end_read",))
def a_part_is_delivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A consumer gets an entry of which some messages are acknowledged, after one that is deleted."""
    outcome = event.outcome
    return isinstance(outcome, Delivered) and outcome.ack_set is not None and after.read_next > before.read_next + 1


@sometimes(batch_acks, on=("reopen",))
def parts_are_forgotten_when_they_no_longer_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor with parts of entries begins anew where they do not count."""
    return not is_error(event) and before.acks.partial != () and not after.batch_acks


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(batch_acks, fair=("flush", "written", "end_read"))
def what_is_acknowledged_becomes_durable(cfg: Config, s: State) -> bool:
    """When reads and writes come to an end and flushes go on, nothing is left to be written."""
    return not s.dirty and s.writing is None
