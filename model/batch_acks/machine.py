"""A cursor's acknowledgements of entries and of messages inside batches (PIP-54).

A cursor has the acknowledgements of one subscription, and the position at which reading continues. All entries up to
its mark-delete position are acknowledged; later entries may be acknowledged one by one. An entry that is a batch can be
acknowledged in part: it then has an ack set, with one bit for each message, clear if the message is acknowledged. When
all its messages are acknowledged, the entry is deleted. An ack changes memory at once; a later write makes it durable
in a record, and a crash loses what no record has. A reset (seek) moves the cursor.

Models `ManagedCursorImpl`. One step is one call, the start or the end of one write or read of the cursor, one added
entry, one ledger rollover, or one crash.

    memory           the acknowledgements and the read position of the open cursor
    individual ack   acknowledges one entry, whole or by ack set. The ack sets of an entry are intersected; an entry
                     without remaining messages is deleted. `asyncDelete` takes a list of individual acks; a list
                     that fails has no effect
    cumulative ack   `asyncMarkDelete`: acknowledges all entries before an entry, and the entry, whole or by ack set
    mark-delete      the mark-delete position advances over individually deleted entries, across ledgers
    deleted entry    a batch-index ack of a deleted entry is a no-op; deleting an entry removes its ack set
    record           what a write persists: the mark-delete position and, up to the configured limits, the lowest ranges
                     of individually deleted entries and the lowest ack sets
    crash            memory is lost, and a recovery reads the durable record: acks may be lost, but no ack is invented
    close            memory is written when the cursor is closed: the reopened cursor has all acks that fit in a record
    reset            seek: `asyncResetCursor` to an entry, to some messages of an entry, or after the last entry. Memory
                     changes when the record of the reset is durable
    queue            while a read or write is in flight, resets and writes are queued. Afterwards one write starts for
                     all of them

Differences from the shipped broker (each a rule of `Config`; see `fuzz/defects/batch_acks.toml`):
  * a cumulative ack is validated before its ack set changes memory;
  * the ack set of a cumulative ack is intersected with the ack set of the entry;
  * a list with a position after the last entry changes nothing;
  * an ack set whose words are all 0 acknowledges its entry, also in a cumulative ack, and also if batch-index acks are
    disabled;
  * a bit beyond the batch is an error;
  * a changed ack set makes the cursor dirty, even if the cursor has no individually deleted entries;
  * a recovery from the metadata store reads the ack sets;
  * the record of a reset has the acknowledgements after the reset, and no queued reset is lost;
  * a record has at most the configured number of ranges;
  * `isCursorDataFullyPersistable` also compares the number of ack sets with its limit.

Not modelled:
  * when writes start (here at any time), several writes in flight, the bytes of records, the properties of the cursor;
  * the callbacks of acks. In Pulsar, an ack with a write completes when the write completes. Here an ack completes at
    once, and a write is another step;
  * pending acks of transactions (`model/pending_acks`), and the client, which groups the acks of a batch;
  * `resetCursorInProgress`: Pulsar rejects resets and cumulative acks while a reset is pending, and drops the queued
    operations when the reset completes;
  * a cumulative ack with an ack set without words: `asyncMarkDelete` takes it as an ack set whose words are all 0, and
    every profile as an ack of the whole entry;
  * acks of a missing entry before the last entry, such as a position after the last entry of a closed ledger: every
    profile rejects them;
  * resets to a position without an entry, except the next one: Pulsar moves the reset to the next valid position, and
    every profile rejects the reset;
  * that an ack set without words had no effect before apache/pulsar#24406 if batch-index acks were disabled
    (`model/pending_acks` has a rule for this);
  * ack sets without effect. Pulsar keeps an ack set that acknowledges nothing. If the mark-delete position passes an
    entry, Pulsar keeps the ack set of the entry until the next write;
  * the mark-delete position (next ledger, -1), to which Pulsar moves the cursor at a rollover if it has caught up
    (`maybeUpdateCursorBeforeTrimmingConsumedLedger`) and, on the master branch, when `asyncMarkDelete` reaches the last
    entry of a closed ledger. Here the mark-delete position stays at the last entry.
"""

from __future__ import annotations

from typing import NamedTuple

from model.ack_set import AckSet, bits_below, lowest_set_bit, mask_of, words_of
from model.batch_acks.state import (
    Acks,
    Config,
    Queued,
    Reset,
    State,
    Write,
    acks_after_reset,
    capped,
    closes_into_metadata_store,
    entry_number,
    future_entry_number,
    is_deleted,
    mark_delete_position,
    position_of,
    range_starts,
    read_from_metadata,
    record_of,
    remaining_of,
    requested_mask,
    size_of,
    start,
    unacked_count,
    with_ack_set,
    with_entry_deleted,
    with_mark_delete_advanced,
    with_mark_delete_at,
    with_remaining,
    without_ack_set,
)
from model.machine import Failed, Machine, Step, refused
from model.positions import Position

batch_acks = Machine(
    "batch_acks",
    Config,
    start,
    source="PIP-54",
    java={
        "ManagedCursorImpl": (
            "asyncDelete",
            "asyncMarkDelete",
            "asyncReadEntries",
            "flush",
            "persistPositionToLedger",
            "persistPositionToMetaStore",
            "isCursorDataFullyPersistable",
            "asyncResetCursor",
            "asyncClose",
        ),
        "OpAddEntry": (),
    },
)


class Ack(NamedTuple):
    """An individual ack. If the ack set is None or has no words, the ack is for the whole entry."""

    position: Position
    ack_set: AckSet | None


class Delivered(NamedTuple):
    """An entry as a consumer receives it."""

    position: Position
    ack_set: AckSet | None  # a set bit is an unacknowledged message; None: all messages are unacknowledged


class WriteResult(NamedTuple):
    """The end of a write: whether the record is durable, and the tickets of the resets that completed or failed."""

    stored: bool
    resets: tuple[int, ...]


# ---- the topic ----------------------------------------------------------------------------------------


@batch_acks.action
def add_entry(cfg: Config, s: State) -> Step[State, Position]:
    """`OpAddEntry`: adds an entry to the last ledger, and returns its position."""
    count = s.ledgers[-1]
    return s._replace(ledgers=(*s.ledgers[:-1], count + 1)), Position(len(s.ledgers), count)


@batch_acks.action
def roll_ledger(cfg: Config, s: State) -> Step[State, int]:
    """`ManagedLedgerImpl.ledgerClosed`: adds an empty ledger, and returns its id.

    The old ledger may be empty. Pulsar deletes an empty old ledger; here the old ledger stays.
    """
    return s._replace(ledgers=(*s.ledgers, 0)), len(s.ledgers) + 1


# ---- acknowledgements ---------------------------------------------------------------------------------


def entry_count(s: State) -> int:
    """Returns the number of entries."""
    return sum(s.ledgers)


def is_after_last_entry(s: State, position: Position) -> bool:
    """Returns whether a position is after the last entry."""
    count = entry_count(s)
    return position > (position_of(s.ledgers, count - 1) if count else Position(1, -1))


def ack_error(cfg: Config, s: State, entry: int | None, position: Position, ack_set: AckSet | None) -> str:
    """Returns the error of an ack, or an empty string. A position after the last entry is not an error here."""
    if entry is None:
        return "" if is_after_last_entry(s, position) else f"position is {list(position)}, where no entry is"
    return ack_set_error(cfg, entry, ack_set) if ack_set else ""


def ack_set_error(cfg: Config, entry: int, ack_set: AckSet) -> str:
    """Returns the error of an ack set, or an empty string. A bit beyond a batch of known size is an error."""
    size = size_of(cfg, entry)
    if cfg.batch_sizes_are_known and mask_of(ack_set) >> size:
        return f"ack_set has a bit beyond the batch of {size}"
    return ""


@batch_acks.action
def ack_individual(cfg: Config, s: State, acks: tuple[Ack, ...]) -> Step[State, int]:
    """`asyncDelete`: acknowledges a list of entries, each whole or by ack set.

    Fails if a position has no entry, or if an ack set is invalid (`ack_set_error`). A list that fails acknowledges
    nothing. Exception: if `lists_are_atomic` is false, and the list has no other error than positions after the last
    entry, the acks before the first of these positions take effect. Returns the number of newly acknowledged messages.
    """
    entries: list[tuple[int, AckSet | None]] = []
    after_last = ""  # the error of the first position after the last entry
    for i, (position, ack_set) in enumerate(acks):
        entry = entry_number(s.ledgers, position)
        wrong = ack_error(cfg, s, entry, position, ack_set)
        if wrong:
            return refused(s, "illegal_argument", f"acks[{i}].{wrong}")
        if entry is None:
            after_last = after_last or f"acks[{i}].position is {list(position)}, after the last entry"
        elif not after_last:
            entries.append((entry, ack_set))
    after, newly_acked = s.acks, 0
    for entry, ack_set in entries:
        before, after = after, with_individual_ack(cfg, s.batch_acks, after, entry, ack_set)
        if after is not before:
            newly_acked += unacked_count(cfg, before, entry) - unacked_count(cfg, after, entry)
    if not after_last:
        return with_acks(cfg, s, after, individual=True), newly_acked
    if cfg.lists_are_atomic or after == s.acks:
        return refused(s, "illegal_argument", after_last)
    # as in `asyncDelete`, the mark-delete position does not advance, and the cursor does not become dirty
    return s._replace(acks=after), Failed("illegal_argument", after_last)


def with_individual_ack(cfg: Config, batch_acks: bool, acks: Acks, entry: int, ack_set: AckSet | None) -> Acks:
    """Returns the acknowledgements after one individual ack, before the mark-delete position advances."""
    requested = requested_mask(cfg, batch_acks, ack_set)
    if requested is None or is_deleted(acks, entry):
        return acks
    return with_entry_deleted(acks, entry) if requested == 0 else with_ack_set(cfg, acks, entry, requested)


def with_acks(cfg: Config, s: State, after: Acks, *, individual: bool = False) -> State:
    """Returns the state with new acknowledgements; the mark-delete and read positions advance.

    A change makes the cursor dirty. Exception: if `partial_acks_are_dirty` is false, individual acks make the cursor
    dirty if and only if `after` has an individually deleted entry.
    """
    makes_dirty = after is not s.acks and after != s.acks
    if individual and not cfg.partial_acks_are_dirty:
        makes_dirty = after.deleted != 0
    after = with_mark_delete_advanced(after)
    if after is s.acks and not makes_dirty:
        return s
    return s._replace(acks=after, read_position=max(s.read_position, after.first_unacked), dirty=s.dirty or makes_dirty)


@batch_acks.action
def ack_cumulative(cfg: Config, s: State, position: Position, ack_set: AckSet | None) -> Step[State, int]:
    """`asyncMarkDelete`: acknowledges all entries before an entry, and the entry, whole or by ack set.

    The mark-delete position advances to the entry or, if the ack set leaves messages of the entry, to the previous
    entry; then over individually deleted entries. An ack fails if its position has no entry, if its ack set is invalid
    (`ack_set_error`), or if the mark-delete position would move back. If `cumulative_ack_is_validated_first` is false,
    a failed ack can leave its ack set in memory. Returns by how many the unacknowledged messages decrease; with
    `cumulative_sets` "replace_if_further", the number can be negative.
    """
    entry = entry_number(s.ledgers, position)
    wrong = ack_error(cfg, s, entry, position, ack_set)
    if wrong:
        return refused(s, "illegal_argument", wrong)
    requested = requested_mask(cfg, s.batch_acks, ack_set)
    before = s
    if s.batch_acks and ack_set and cfg.cumulative_sets == "replace_if_further":
        target = future_entry_number(s.ledgers, position) if entry is None else entry
        s = s._replace(acks=with_ack_set_replaced_if_further(cfg, s, target, requested))
        # memory already has the ack set. As in Pulsar, the mark-delete goes to the previous entry, whatever the ack set
        requested = None
    wrong = mark_delete_error(before, entry, requested)
    if entry is None or wrong:
        if cfg.cumulative_ack_is_validated_first or s.acks == before.acks:
            return refused(before, "illegal_argument", wrong)
        return s, Failed("illegal_argument", wrong)
    # `requested` is 0 if the ack is for the whole entry: the mark-delete position is then this entry
    after = with_mark_delete_at(s.acks, entry + (requested == 0))
    if requested is not None and not is_deleted(after, entry):
        after = with_ack_set(cfg, after, entry, requested)
    newly_acked = sum(
        [
            unacked_count(cfg, before.acks, n) - unacked_count(cfg, after, n)
            for n in range(before.acks.first_unacked, entry + 1)
        ]
    )
    return with_acks(cfg, before, after), newly_acked


def mark_delete_error(s: State, entry: int | None, requested: int | None) -> str:
    """Returns why a cumulative ack is rejected, or an empty string.

    The ack is rejected if its entry does not exist yet (None), or if the mark-delete position would move back. An ack
    of the whole entry at the mark-delete position is allowed.
    """
    if entry is None:
        return "position is after the last entry"
    if entry + (requested == 0) < s.acks.first_unacked:
        return "the mark-delete position would move back"
    return ""


def with_ack_set_replaced_if_further(cfg: Config, s: State, entry: int | None, given: int | None) -> Acks:
    """`ackBatchPosition`, the rule "replace_if_further": returns the acknowledgements with the entry's new ack set.

    The given ack set becomes the entry's ack set if the entry has none, or if the first set bit of the given one is
    later; if it leaves all messages, the entry has no ack set. Ack sets before the previous entry, the target of the
    mark-delete, are dropped. Not modelled: before apache/pulsar#23833, a rejected `asyncMarkDelete` without an ack set
    also dropped ack sets.
    """
    if entry is None or given is None:
        return s.acks
    old = remaining_of(s.acks, entry)
    partial = tuple([p for p in s.acks.partial if p.entry >= entry - 1])
    if old is None or lowest_set_bit(given) > lowest_set_bit(old):
        acks_some = given != bits_below(size_of(cfg, entry))
        partial = with_remaining(partial, entry, given) if acks_some else without_ack_set(partial, entry)
    return s.acks._replace(partial=partial)


# ---- reads --------------------------------------------------------------------------------------------


@batch_acks.action
def begin_read(cfg: Config, s: State) -> Step[State, None]:
    """`asyncReadEntries`: starts a read. Writes and resets are queued until the read ends."""
    if s.reading:
        return refused(s, "illegal_state", "a read is in flight")
    return s._replace(reading=True), None


@batch_acks.action
def end_read(cfg: Config, s: State) -> Step[State, Delivered | None]:
    """`asyncReadEntries` completes: delivers the next entry that is not deleted, with its ack set.

    Returns None if there is no such entry. In either case, queued operations start if no write is in flight.
    """
    if not s.reading:
        return refused(s, "illegal_state", "no read is in flight")
    s = s._replace(reading=False)
    # the read position, plus the number of deleted entries in a row from there on
    entry = s.read_position + lowest_set_bit(~(s.acks.deleted >> s.read_position))
    if entry >= entry_count(s):
        return with_queue_started(cfg, s), None
    remaining = remaining_of(s.acks, entry)
    delivered = Delivered(position_of(s.ledgers, entry), None if remaining is None else words_of(remaining))
    return with_queue_started(cfg, s._replace(read_position=entry + 1)), delivered


# ---- writes -------------------------------------------------------------------------------------------


def is_busy(s: State) -> bool:
    """Returns whether a read or a write is in flight."""
    return s.reading or s.writing is not None


def with_write_started(cfg: Config, s: State, operations: tuple[Queued, ...]) -> State:
    """Returns the state with one write in flight for all given operations, and without queued operations.

    The record is that of the last reset; if there is no reset, the record is of memory. With `queue_applies` "last",
    the record is that of the last operation. When a write of memory starts, the cursor becomes clean.
    """
    resets = tuple([each for each in operations if each is not None])
    to_apply = resets[-1] if resets else None
    if cfg.queue_applies == "last":
        to_apply = operations[-1]
    write = Write(record_of(cfg, s, to_apply), resets, to_apply)
    return s._replace(writing=write, queued=(), dirty=s.dirty and to_apply is not None)


def with_queue_started(cfg: Config, s: State) -> State:
    """Returns the state after the queued operations start, if no read and no write is in flight.

    A queued write of memory is dropped if the cursor is not dirty and no other operation is queued.
    """
    if not s.queued or is_busy(s):
        return s
    if s.dirty or s.queued != (None,):
        return with_write_started(cfg, s, s.queued)
    return s._replace(queued=())


@batch_acks.action
def flush(cfg: Config, s: State) -> Step[State, bool]:
    """`flush`: starts a write of memory if the cursor is dirty; returns whether the write started.

    If a read or write is in flight, the write of memory is queued, unless the last queued operation is such a write.
    """
    if not s.dirty:
        return s, False
    if not is_busy(s):
        return with_write_started(cfg, s, (None,)), True
    if s.queued and s.queued[-1] is None:
        return s, False
    return s._replace(queued=(*s.queued, None)), False


@batch_acks.action
def written(cfg: Config, s: State) -> Step[State, WriteResult]:
    """`persistPositionToLedger` completes: the record is durable. If the record is of a reset, memory changes, too."""
    if s.writing is None:
        return refused(s, "illegal_state", "no write is in flight")
    return successful_write(cfg, s, s.writing, s.writing.record)


def successful_write(cfg: Config, s: State, write: Write, durable: Acks) -> tuple[State, WriteResult]:
    """Returns the step of a successful write: the callbacks of its resets complete, and queued operations start.

    `durable` is what a recovery reads of the record.
    """
    s = s._replace(durable=durable, writing=None)
    if write.to_apply is not None:
        s = s._replace(acks=acks_after_reset(write.to_apply), read_position=write.to_apply.entry, dirty=False)
    return with_queue_started(cfg, s), WriteResult(True, tickets(write))


def tickets(write: Write) -> tuple[int, ...]:
    """Returns the tickets of the resets whose callbacks complete with a write."""
    return tuple([each.ticket for each in write.resets])


@batch_acks.fault
def write_fails(cfg: Config, s: State, stored_in_metadata: bool) -> Step[State, WriteResult]:
    """`persistPositionToLedger` fails. If `stored_in_metadata` is true, `persistPositionToMetaStore` stores the record.

    If the record is not stored, the resets of the write fail. If, in addition, the record is of memory, the cursor is
    dirty again.
    """
    if s.writing is None:
        return refused(s, "illegal_state", "no write is in flight")
    write = s.writing
    if stored_in_metadata:
        return successful_write(cfg, s, write, read_from_metadata(cfg, write.record))
    s = s._replace(writing=None, dirty=s.dirty or write.to_apply is None)
    return with_queue_started(cfg, s), WriteResult(False, tickets(write))


@batch_acks.action
def is_fully_persistable(cfg: Config, s: State) -> Step[State, bool]:
    """`isCursorDataFullyPersistable`: returns whether a record can hold all acknowledgements."""
    ranges, ack_sets = range_starts(s.ledgers, s.acks.deleted).bit_count(), len(s.acks.partial)
    return s, ranges <= cfg.max_ranges and (ack_sets <= cfg.max_ack_sets or not cfg.persistable_compares_ack_sets)


@batch_acks.action
def reset(cfg: Config, s: State, position: Position, ack_set: AckSet | None) -> Step[State, int]:
    """`asyncResetCursor`: reading restarts at an entry or after the last one.

    After a reset with an ack set, the messages of the entry with a set bit are unacknowledged, and the other messages
    are acknowledged. An ack set whose words are all 0 is rejected, and so is an ack set after the last entry; an ack
    set without words counts as none. If batch-index acks are disabled, a valid ack set has no effect. Returns a ticket.
    The reset completes or fails when the write with this ticket ends; until then, it does not change memory.
    """
    entry = entry_number(s.ledgers, position)
    if entry is None and position == position_of(s.ledgers, entry_count(s)) and not ack_set:
        entry = entry_count(s)  # the next entry
    if entry is None:
        return refused(s, "illegal_argument", "position is not that of an entry, nor the next one")
    wrong = ack_set_error(cfg, entry, ack_set) if ack_set else ""
    if ack_set and not any(ack_set):
        wrong = "ack_set leaves nothing of the entry"
    if wrong:
        return refused(s, "illegal_argument", wrong)
    remaining = mask_of(ack_set) if ack_set and s.batch_acks else None
    if remaining is not None and remaining == bits_below(size_of(cfg, entry)):
        remaining = None
    requested = Reset(s.next_ticket, entry, remaining)
    s = s._replace(next_ticket=requested.ticket + 1)
    if is_busy(s):
        return s._replace(queued=(*s.queued, requested)), requested.ticket
    return with_write_started(cfg, s, (requested,)), requested.ticket


# ---- crash, close and reopen --------------------------------------------------------------------------


def recovered(s: State, durable: Acks, batch_acks: bool) -> State:
    """Returns the state after a recovery from a record. The read position is right after the mark-delete position."""
    acks = with_mark_delete_advanced(durable if batch_acks else durable._replace(partial=()))
    return State(
        ledgers=s.ledgers,
        acks=acks,
        read_position=acks.first_unacked,
        durable=durable,
        dirty=False,
        writing=None,
        queued=(),
        reading=False,
        batch_acks=batch_acks,
        next_ticket=s.next_ticket,
    )


@batch_acks.fault
def crash(cfg: Config, s: State, write_survives: bool) -> Step[State, None]:
    """Memory is lost, and a record is recovered: the durable one or, if `write_survives` is true, the one in flight."""
    if write_survives and s.writing is None:
        return refused(s, "illegal_state", "no write is in flight")
    durable = s.writing.record if write_survives and s.writing is not None else s.durable
    return recovered(s, durable, s.batch_acks), None


@batch_acks.action
def reopen(cfg: Config, s: State, batch_acks: bool) -> Step[State, None]:
    """`asyncClose`, then a recovery with or without batch-index acks: memory is written, and the record is recovered.

    `closes_into_metadata_store` decides whether the record goes to the metadata store or to the cursor ledger.
    """
    if is_busy(s):
        return refused(s, "illegal_state", "a read or a write is in flight")
    record = capped(cfg, s.ledgers, s.acks)
    if closes_into_metadata_store(cfg, range_starts(s.ledgers, s.acks.deleted)):
        record = read_from_metadata(cfg, record)
    return recovered(s, record, batch_acks), None


# ---- canonical form and observation -------------------------------------------------------------------


@batch_acks.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers the tickets of pending resets from 1, in the order of requests."""
    open_resets = [*(s.writing.resets if s.writing else ()), *[each for each in s.queued if each is not None]]
    if s.next_ticket == len(open_resets) + 1:
        return s
    numbers = {each.ticket: i for i, each in enumerate(open_resets, 1)}

    def renumbered(each: Queued) -> Queued:
        return each and each._replace(ticket=numbers[each.ticket])

    write = s.writing and Write(
        s.writing.record,
        tuple([each._replace(ticket=numbers[each.ticket]) for each in s.writing.resets]),
        renumbered(s.writing.to_apply),
    )
    queued = tuple([renumbered(each) for each in s.queued])
    return s._replace(writing=write, queued=queued, next_ticket=len(open_resets) + 1)


@batch_acks.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the mark-delete positions in memory and in storage, the read position, and the acknowledgements.

    The acknowledgements in memory: individually deleted entries, ack sets, and the number of unacknowledged messages.
    """
    entries = range(s.acks.first_unacked, entry_count(s))
    return {
        "mark_delete_position": mark_delete_position(s.ledgers, s.acks.first_unacked).as_plain(),
        "durable_mark_delete_position": mark_delete_position(s.ledgers, s.durable.first_unacked).as_plain(),
        "read_position": position_of(s.ledgers, s.read_position).as_plain(),
        "individually_deleted": [position_of(s.ledgers, n).as_plain() for n in entries if s.acks.deleted >> n & 1],
        "batch_sets": [
            [position_of(s.ledgers, p.entry).as_plain(), list(words_of(p.remaining))] for p in s.acks.partial
        ],
        "not_acknowledged": sum(unacked_count(cfg, s.acks, n) for n in entries),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = batch_acks.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

shipped = batch_acks.profile(
    "pulsar-2026-07",
    "the rules of Apache Pulsar master, 2026-07-23, as read in its source",
    Config(
        cumulative_sets="replace_if_further",
        cumulative_ack_is_validated_first=False,
        lists_are_atomic=False,
        zero_words_mean_whole=False,
        partial_acks_are_dirty=False,
        batch_sizes_are_known=False,
        reset_record_has_new_acks=False,
        queue_applies="last",
        range_cap_is_exact=False,
        persistable_compares_ack_sets=False,
        metadata_ack_sets_are_recovered=False,
    ),
)

later = batch_acks.profile(
    "pulsar-2026-09",
    "pulsar-2026-07 with apache/pulsar#26474: recovery reads ack sets in the metadata store, the range limit is exact",
    shipped.config._replace(metadata_ack_sets_are_recovered=True, range_cap_is_exact=True),
)

before_25047 = shipped.config._replace(queue_applies="all")
pulsar_4_0 = batch_acks.release(
    "4.0",
    rules=before_25047,
    about="pulsar-2026-07 before apache/pulsar#25047; an empty ack set as since 4.0.6 (apache/pulsar#24406)",
)
pulsar_4_1 = batch_acks.release("4.1", rules=before_25047, about="pulsar-2026-07 before apache/pulsar#25047")
pulsar_4_2 = batch_acks.release("4.2", rules=shipped.config, about="pulsar-2026-07")
pulsar_5_0 = batch_acks.release("5.0", rules=later.config, about="pulsar-2026-09")
