"""State of a cursor's acknowledgements: settings, state, and functions on entries and masks.

Entries are numbered from 0 across all ledgers; an empty ledger takes no entry number. A record is what a write stores:
a `PositionInfo` in the cursor ledger, or a `ManagedCursorInfo` in the metadata store. Acknowledgements, in memory and
in records, are a triple:

    first_unacked  every entry before this number is acknowledged; the entry before it is at the mark-delete position
    deleted        a mask: bit n is entry n, which is after `first_unacked` and individually deleted
                   (`individualDeletedMessages`); entries before `first_unacked` have no bit
    partial        entries with an ack set (`batchDeletedIndexes`), each with the mask of its remaining messages
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.ack_set import AckSet, bits_below, lowest_set_bit, mask_of
from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions differ."""

    #: batch sizes of the topic's entries: entry n has `batch_sizes[n % len(batch_sizes)]` messages
    batch_sizes: tuple[Annotated[int, AtLeast(1)], ...] = (4, 1, 3)
    #: number of entries of the first ledger at the start
    entries: Annotated[int, AtLeast(0)] = 4
    #: whether batch-index acks are enabled when the cursor is first opened; `reopen` can change it
    batch_acks: Annotated[bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", (("4.0", False), ("4.1", True)))] = (
        True
    )
    #: maximum number of ranges of individually deleted entries in a record; the lowest are kept
    max_ranges: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxUnackedRangesToPersist", (("4.0", 10_000), ("5.0", 200_000)))
    ] = 200_000
    #: maximum number of ack sets (`BatchedEntryDeletionIndexInfo`) in a record; those of the lowest entries are kept
    max_batch_records: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxBatchDeletedIndexToPersist", (("4.0", 10_000), ("5.0", 200_000)))
    ] = 200_000
    #: a cursor that is closed with at most this many ranges is stored in the metadata store, with more in the cursor
    #: ledger. -1: always in the cursor ledger. With `max_ranges` 0 always in the metadata store. (apache/pulsar#25992
    #: raised the defaults of the three limits.)
    max_ranges_in_metadata: Annotated[
        int,
        AtLeast(-1),
        Setting("managedLedgerMaxUnackedRangesToPersistInMetadataStore", (("4.0", 1000), ("5.0", 200_000))),
    ] = 200_000

    #: the ack set of an entry after a cumulative ack with an ack set. `and`: the intersection of the stored and the
    #: given one. `replace_if_further`: the given one if its first unacknowledged index is larger, else the stored one
    cumulative_sets: Annotated[
        Literal["and", "replace_if_further"],
        Rule(Origin.READ, {"replace_if_further": "ManagedCursorImpl.asyncMarkDelete, master 2026-07"}),
    ] = "and"
    #: whether a cumulative ack is validated before its ack set is stored
    cumulative_ack_is_validated_first: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncMarkDelete, master 2026-07"})
    ] = True
    #: whether `asyncDelete` of several positions, one of them after the last entry, has no effect; otherwise the
    #: positions before it in the list take effect
    lists_are_atomic: Annotated[bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})] = (
        True
    )
    #: whether an ack set whose words are all 0 is treated like one without words: it acknowledges the whole entry, even
    #: if batch-index acks are disabled
    zero_words_mean_whole: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})
    ] = True
    #: whether batch-index acks alone make the cursor dirty
    partial_acks_are_dirty: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})
    ] = True
    #: whether the cursor knows batch sizes, and so rejects ack sets with bits beyond the batch
    batch_sizes_are_known: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})
    ] = True
    #: whether the record written for a reset has the acknowledgements after the reset; otherwise the new position with
    #: the acknowledgements from before the reset
    reset_record_has_new_acks: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.internalResetCursor, master 2026-07"})
    ] = True
    #: which queued operations (`pendingMarkDeleteOps`) take effect: all, or only the last one. With `last`, a reset
    #: that is queued before another operation is lost (apache/pulsar#26304)
    queue_applies: Annotated[
        Literal["all", "last"],
        Rule(
            Origin.READ,
            {"last": "ManagedCursorImpl.internalFlushPendingMarkDeletes, since apache/pulsar#25047 for resets, too"},
        ),
    ] = "all"
    #: whether a record holds at most the configured number of ranges; otherwise one more
    range_cap_is_exact: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.buildIndividualDeletedMessageRanges, master 2026-07"})
    ] = True
    #: whether `isCursorDataFullyPersistable` also compares the number of ack sets with its limit
    persistable_compares_ack_sets: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.isCursorDataFullyPersistable, master 2026-07"})
    ] = True
    #: whether a recovery from the metadata store reads the ack sets, which are stored there
    metadata_sets_are_recovered: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.recover before apache/pulsar#26474"})
    ] = True


# ---- state --------------------------------------------------------------------------------------------


class Partial(NamedTuple):
    """An entry with an ack set: some messages are acknowledged, the mask has the remaining ones."""

    entry: int
    remaining: int


@record
class Acks(NamedTuple):
    """The acknowledged entries and messages: the triple that the module's docstring describes."""

    first_unacked: int = 0
    deleted: int = 0
    partial: tuple[Partial, ...] = ()  # in order of entries


class Reset(NamedTuple):
    """A requested reset."""

    ticket: int  # number of the request; outcomes refer to the request by it
    entry: int  # the entry at which reading restarts
    remaining: int | None  # mask of the messages of `entry` that remain; None: all of them


class Write(NamedTuple):
    """A record in flight."""

    record: Acks
    resets: tuple[Reset, ...]  # whose callbacks complete with this write
    to_apply: Reset | None  # changes memory when the write succeeds


#: A queued operation: a reset, or None for a write of the acknowledgements in memory (an ordinary mark-delete).
Queued = Reset | None


@record
class State(NamedTuple):
    """A cursor, and the ledgers of its managed ledger."""

    ledgers: tuple[int, ...]  # number of entries of each; ledger ids start at 1
    acks: Acks  # in memory
    read_position: int  # number of the next entry to read
    durable: Acks  # the record that a recovery finds
    dirty: bool  # memory is to be written (`ManagedCursorImpl.isDirty`)
    writing: Write | None
    #: operations that start when no read and no write is in flight. (In Pulsar, `pendingMarkDeleteOps` waits for reads
    #: and for the creation of the cursor ledger, not for writes, of which several may be in flight.)
    queued: tuple[Queued, ...]
    reading: bool  # an `asyncReadEntries` is in flight (`pendingReadOps`)
    batch_acks: bool  # batch-index acks are enabled
    next_ticket: int


def start(cfg: Config) -> State:
    """Returns a new cursor at the beginning of a ledger."""
    return State((cfg.entries,), Acks(), 0, Acks(), False, None, (), False, cfg.batch_acks, 1)


# ---- entries ------------------------------------------------------------------------------------------


def entry_number(ledgers: tuple[int, ...], position: Position) -> int | None:
    """Returns the number of the entry at a position, or None."""
    ledger, entry = position
    if 1 <= ledger <= len(ledgers) and 0 <= entry < ledgers[ledger - 1]:
        return sum(ledgers[: ledger - 1]) + entry
    return None


def future_entry_number(ledgers: tuple[int, ...], position: Position) -> int | None:
    """Returns the number that a position after the last entry, in the last ledger, will have; None for any other."""
    ledger, entry = position
    return sum(ledgers[:-1]) + entry if ledger == len(ledgers) and entry >= ledgers[-1] else None


def position_of(ledgers: tuple[int, ...], number: int) -> Position:
    """Returns the position of an entry; for the number after the last entry, the next position in the last ledger."""
    for i, count in enumerate(ledgers[:-1], 1):
        if number < count:
            return Position(i, number)
        number -= count
    return Position(len(ledgers), number)


def mark_delete_position(ledgers: tuple[int, ...], first_unacked: int) -> Position:
    """Returns the mark-delete position: that of the entry before the first one that is not deleted."""
    return position_of(ledgers, first_unacked - 1) if first_unacked else Position(1, -1)


def size_of(cfg: Config, entry: int) -> int:
    """Returns the number of messages of an entry."""
    return cfg.batch_sizes[entry % len(cfg.batch_sizes)]


# ---- acknowledgements ---------------------------------------------------------------------------------


def is_deleted(acks: Acks, entry: int) -> bool:
    """Whether every message of the entry is acknowledged."""
    return entry < acks.first_unacked or bool(acks.deleted >> entry & 1)


def remaining_of(acks: Acks, entry: int) -> int | None:
    """Returns the mask of the remaining messages of an entry with an ack set, or None."""
    for p in acks.partial:
        if p.entry == entry:
            return p.remaining
    return None


def unacked_count(cfg: Config, acks: Acks, entry: int) -> int:
    """Returns the number of unacknowledged messages of an entry."""
    if is_deleted(acks, entry):
        return 0
    size, remaining = size_of(cfg, entry), remaining_of(acks, entry)
    return size if remaining is None else (remaining & bits_below(size)).bit_count()


def without_ack_set(partial: tuple[Partial, ...], entry: int) -> tuple[Partial, ...]:
    """Returns the ack sets without that of an entry."""
    return tuple([p for p in partial if p.entry != entry])


def with_remaining(partial: tuple[Partial, ...], entry: int, remaining: int) -> tuple[Partial, ...]:
    """Returns the ack sets with that of an entry replaced."""
    new = Partial(entry, remaining)
    for i, p in enumerate(partial):
        if p.entry >= entry:
            return partial[:i] + (new,) + partial[i + (p.entry == entry) :]
    return (*partial, new)


def with_entry_deleted(acks: Acks, entry: int) -> Acks:
    """Returns the acknowledgements with an entry individually deleted, without its ack set."""
    partial = without_ack_set(acks.partial, entry) if acks.partial else ()
    return Acks(acks.first_unacked, acks.deleted | 1 << entry, partial)


def with_mark_delete_at(acks: Acks, first_unacked: int) -> Acks:
    """`setAcknowledgedPosition`: deletes every entry before `first_unacked`.

    The mark-delete position then advances over deleted entries.
    """
    first_unacked += lowest_set_bit(~(acks.deleted >> first_unacked))
    deleted, partial = acks.deleted >> first_unacked << first_unacked, acks.partial
    if partial and partial[0].entry < first_unacked:
        partial = tuple([p for p in partial if p.entry >= first_unacked])
    return Acks(first_unacked, deleted, partial)


def with_mark_delete_advanced(acks: Acks) -> Acks:
    """Advances the mark-delete position over individually deleted entries; ack sets of passed entries are dropped."""
    return with_mark_delete_at(acks, acks.first_unacked) if acks.deleted >> acks.first_unacked & 1 else acks


def requested_mask(cfg: Config, batch_acks: bool, ack_set: AckSet | None) -> int | None:
    """Returns the mask of messages that an ack leaves unacknowledged.

    0 if it acknowledges the whole entry, None if it has no effect.
    """
    if not ack_set:
        return 0
    mask = mask_of(ack_set)
    if batch_acks or (mask == 0 and cfg.zero_words_mean_whole):
        return mask
    return None


def with_ack_set(cfg: Config, acks: Acks, entry: int, given: int) -> Acks:
    """`asyncDelete`: returns the acknowledgements with an ack set intersected with the stored one of the entry.

    An entry without remaining messages is deleted.
    """
    old, everything = remaining_of(acks, entry), bits_below(size_of(cfg, entry))
    stored = old if old is not None else everything if cfg.batch_sizes_are_known else given
    remaining = given & stored
    if remaining == 0:
        return with_entry_deleted(acks, entry)
    if remaining == everything:
        return acks if old is None else Acks(acks.first_unacked, acks.deleted, without_ack_set(acks.partial, entry))
    return Acks(acks.first_unacked, acks.deleted, with_remaining(acks.partial, entry, remaining))


# ---- records ------------------------------------------------------------------------------------------


def range_starts(ledgers: tuple[int, ...], deleted: int) -> int:
    """Returns the mask of the first entries of ranges of deleted entries.

    A range ends with its ledger, as with `managedLedgerUnackedRangesOpenCacheSetEnabled`, the default.
    """
    starts, first = deleted & ~(deleted << 1), 0
    for count in ledgers:
        starts |= deleted & 1 << first if count else 0
        first += count
    return starts


def lowest_ranges(ledgers: tuple[int, ...], deleted: int, limit: int) -> int:
    """Returns the deleted entries of the lowest ranges, at most `limit` ranges."""
    starts = range_starts(ledgers, deleted)
    while starts and limit > 0:
        starts &= starts - 1
        limit -= 1
    return deleted & bits_below(lowest_set_bit(starts)) if starts else deleted


def capped(cfg: Config, ledgers: tuple[int, ...], acks: Acks) -> Acks:
    """Returns the acknowledgements in a record: the lowest ranges, and the lowest ack sets, within their limits.

    Models `buildIndividualDeletedMessageRanges` and `buildBatchEntryDeletionIndexInfoList`.
    """
    ranges = cfg.max_ranges + (not cfg.range_cap_is_exact)
    deleted = lowest_ranges(ledgers, acks.deleted, ranges) if acks.deleted else 0
    return Acks(acks.first_unacked, deleted, acks.partial[: cfg.max_batch_records])


def fits_metadata(cfg: Config, starts: int) -> bool:
    """Whether a closed cursor is stored in the metadata store and not in the cursor ledger.

    Models the negation of `shouldPersistUnackRangesToLedger` with an open cursor ledger. `starts` is the mask of the
    first entries of the ranges.
    """
    return cfg.max_ranges == 0 or starts.bit_count() <= cfg.max_ranges_in_metadata


def read_from_metadata(cfg: Config, acks: Acks) -> Acks:
    """Returns what a recovery reads of a record in the metadata store: all of it, or all but the ack sets."""
    return acks if cfg.metadata_sets_are_recovered else acks._replace(partial=())


def acks_after_reset(reset: Reset) -> Acks:
    """`internalResetCursor`: returns the acknowledgements after a reset.

    They are the entries before the entry of the reset, and the messages of this entry that its ack set acknowledges.
    """
    return Acks(reset.entry, 0, () if reset.remaining is None else (Partial(reset.entry, reset.remaining),))


def record_of(cfg: Config, s: State, to_apply: Reset | None) -> Acks:
    """Returns the record to write: of the acknowledgements in memory, or of a reset."""
    if to_apply is None:
        return capped(cfg, s.ledgers, s.acks)
    if cfg.reset_record_has_new_acks:
        return capped(cfg, s.ledgers, acks_after_reset(to_apply))
    return capped(cfg, s.ledgers, with_mark_delete_at(s.acks, to_apply.entry))
