"""Acknowledgements of a cursor: settings, rules and state, and functions on acknowledgements and records.

Entries are numbered from 0 across all ledgers; an empty ledger takes no entry number. An entry is *deleted* if it is at
or before the mark-delete position, or individually deleted; with the default rules, if and only if all its messages are
acknowledged. The *remaining* messages of an entry are the unacknowledged ones. The acknowledgements are a triple
(`Acks`), in memory and in records:

    first_unacked  the first entry after the mark-delete position. Between steps, this entry is not deleted, except
                   after a list that took effect in part (`lists_are_atomic` is false)
    deleted        a mask: bit n is set if entry n is individually deleted (`individualDeletedMessages`); the bits of
                   entries before `first_unacked` are clear
    partial        the entries with an ack set (`batchDeletedIndexes`), each with the mask of its remaining messages

A *record* is what a write stores: a `PositionInfo` in the cursor ledger or a `ManagedCursorInfo` in the metadata store.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.ack_set import AckSet, bits_below, lowest_set_bit, mask_of
from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules in which versions differ."""

    #: batch sizes of the topic's entries: entry n has `batch_sizes[n % len(batch_sizes)]` messages
    batch_sizes: tuple[Annotated[int, AtLeast(1)], ...] = (4, 1, 3)
    #: number of entries of the first ledger at the start
    entries: Annotated[int, AtLeast(0)] = 4
    #: whether batch-index acks are enabled when the cursor is first opened; `reopen` can enable or disable them
    batch_acks: Annotated[bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", (("4.0", False), ("4.1", True)))] = (
        True
    )
    #: maximum number of ranges of individually deleted entries in a record; the lowest are kept
    max_ranges: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxUnackedRangesToPersist", (("4.0", 10_000), ("5.0", 200_000)))
    ] = 200_000
    #: maximum number of ack sets (`BatchedEntryDeletionIndexInfo`) in a record; those of the lowest entries are kept
    max_ack_sets: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxBatchDeletedIndexToPersist", (("4.0", 10_000), ("5.0", 200_000)))
    ] = 200_000
    #: a closed cursor with at most this many ranges is stored in the metadata store, a cursor with more ranges in the
    #: cursor ledger. -1: every cursor is stored in the cursor ledger. If `max_ranges` is 0, every cursor is stored in
    #: the metadata store, whatever this limit. (apache/pulsar#25992 raised the defaults of the three limits.)
    max_ranges_in_metadata: Annotated[
        int,
        AtLeast(-1),
        Setting("managedLedgerMaxUnackedRangesToPersistInMetadataStore", (("4.0", 1000), ("5.0", 200_000))),
    ] = 200_000

    #: the ack set of an entry after a cumulative ack with an ack set. `and`: the intersection of the stored and the
    #: given ack set. `replace_if_further`: the given ack set if its first unacknowledged index is larger, otherwise the
    #: stored one
    cumulative_sets: Annotated[
        Literal["and", "replace_if_further"],
        Rule(Origin.READ, {"replace_if_further": "ManagedCursorImpl.asyncMarkDelete, master 2026-07"}),
    ] = "and"
    #: whether a cumulative ack is validated before its ack set is stored; otherwise after. Has an effect only if
    #: `cumulative_sets` is `replace_if_further`
    cumulative_ack_is_validated_first: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncMarkDelete, master 2026-07"})
    ] = True
    #: whether `asyncDelete` has no effect if a position of its list is after the last entry; otherwise the earlier
    #: positions of the list take effect
    lists_are_atomic: Annotated[bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})] = (
        True
    )
    #: if batch-index acks are disabled: whether an ack set whose words are all 0 acknowledges the whole entry, as an
    #: ack set without words does; otherwise it has no effect
    zero_words_mean_whole: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})
    ] = True
    #: whether every individual ack that changes memory makes the cursor dirty, also one that changes only ack sets.
    #: Otherwise `asyncDelete` makes the cursor dirty if and only if `individualDeletedMessages` is not empty before
    #: the mark-delete position advances, whether or not the list changes memory
    partial_acks_are_dirty: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})
    ] = True
    #: whether the cursor knows batch sizes, and therefore rejects ack sets with bits beyond the batch
    batch_sizes_are_known: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07"})
    ] = True
    #: whether the record of a reset has the acknowledgements after the reset; otherwise it has the new position and the
    #: acknowledgements from before the reset
    reset_record_has_new_acks: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.internalResetCursor, master 2026-07"})
    ] = True
    #: which queued operations (`pendingMarkDeleteOps`) take effect: all, or only the last one. With `last`, a reset
    #: that is queued before another operation completes without effect (apache/pulsar#26304)
    queue_applies: Annotated[
        Literal["all", "last"],
        Rule(
            Origin.READ,
            {"last": "ManagedCursorImpl.internalFlushPendingMarkDeletes, since apache/pulsar#25047 for resets, too"},
        ),
    ] = "all"
    #: whether a record holds at most `max_ranges` ranges; otherwise one range more
    range_cap_is_exact: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.buildIndividualDeletedMessageRanges, master 2026-07"})
    ] = True
    #: whether `isCursorDataFullyPersistable` also compares the number of ack sets with its limit
    persistable_compares_ack_sets: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.isCursorDataFullyPersistable, master 2026-07"})
    ] = True
    #: whether a recovery from the metadata store reads the ack sets; they are stored there in any case
    metadata_ack_sets_are_recovered: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.recover before apache/pulsar#26474"})
    ] = True


# ---- state --------------------------------------------------------------------------------------------


class Partial(NamedTuple):
    """An entry with an ack set. With the default rules, some of its messages are acknowledged, but not all."""

    entry: int
    remaining: int  # mask of the remaining messages


@record
class Acks(NamedTuple):
    """The acknowledgements: the triple that the module's docstring describes."""

    first_unacked: int = 0
    deleted: int = 0
    partial: tuple[Partial, ...] = ()  # in order of entries


class Reset(NamedTuple):
    """A requested reset."""

    ticket: int  # number of the request, by which outcomes refer to it
    entry: int  # the entry at which reading restarts
    remaining: int | None  # mask of the messages of `entry` that are unacknowledged after the reset; None: all


class Write(NamedTuple):
    """A record in flight."""

    record: Acks
    resets: tuple[Reset, ...]  # the resets whose callbacks complete with this write
    #: the reset that changes memory when the write succeeds; None: the record has the acknowledgements in memory
    to_apply: Reset | None


#: A queued operation: a reset, or None for a write of the acknowledgements in memory (an ordinary mark-delete).
Queued = Reset | None


@record
class State(NamedTuple):
    """A cursor, and the ledgers of its managed ledger."""

    ledgers: tuple[int, ...]  # number of entries of each ledger; ledger ids start at 1
    acks: Acks  # in memory
    read_position: int  # number of the next entry to read
    durable: Acks  # what a recovery reads of the last durable record
    dirty: bool  # whether the acknowledgements in memory must be written (`ManagedCursorImpl.isDirty`)
    writing: Write | None  # the write in flight
    #: operations that start when no read and no write is in flight. (In Pulsar, `pendingMarkDeleteOps` waits for reads
    #: and for the creation of the cursor ledger. It does not wait for writes: several writes may be in flight.)
    queued: tuple[Queued, ...]
    reading: bool  # whether an `asyncReadEntries` is in flight (`pendingReadOps`)
    batch_acks: bool  # whether batch-index acks are enabled
    next_ticket: int


def start(cfg: Config) -> State:
    """Returns a new cursor at the beginning of a ledger."""
    return State(
        ledgers=(cfg.entries,),
        acks=Acks(),
        read_position=0,
        durable=Acks(),
        dirty=False,
        writing=None,
        queued=(),
        reading=False,
        batch_acks=cfg.batch_acks,
        next_ticket=1,
    )


# ---- entries ------------------------------------------------------------------------------------------


def entry_number(ledgers: tuple[int, ...], position: Position) -> int | None:
    """Returns the number of the entry at a position; None if no entry is there."""
    ledger, entry = position
    if 1 <= ledger <= len(ledgers) and 0 <= entry < ledgers[ledger - 1]:
        return sum(ledgers[: ledger - 1]) + entry
    return None


def future_entry_number(ledgers: tuple[int, ...], position: Position) -> int | None:
    """Returns the number that an entry will have if it is added to the last ledger at this position.

    Returns None if the position is not after the last entry of the last ledger.
    """
    ledger, entry = position
    return sum(ledgers[:-1]) + entry if ledger == len(ledgers) and entry >= ledgers[-1] else None


def position_of(ledgers: tuple[int, ...], number: int) -> Position:
    """Returns the position of an entry; for the number of the next entry, the next position in the last ledger."""
    for i, count in enumerate(ledgers[:-1], 1):
        if number < count:
            return Position(i, number)
        number -= count
    return Position(len(ledgers), number)


def mark_delete_position(ledgers: tuple[int, ...], first_unacked: int) -> Position:
    """Returns the mark-delete position: the position of the entry before `first_unacked`, (1, -1) if there is none."""
    return position_of(ledgers, first_unacked - 1) if first_unacked else Position(1, -1)


def size_of(cfg: Config, entry: int) -> int:
    """Returns the number of messages of an entry."""
    return cfg.batch_sizes[entry % len(cfg.batch_sizes)]


# ---- acknowledgements ---------------------------------------------------------------------------------


def is_deleted(acks: Acks, entry: int) -> bool:
    """Returns whether an entry is at or before the mark-delete position, or individually deleted."""
    return entry < acks.first_unacked or bool(acks.deleted >> entry & 1)


def remaining_of(acks: Acks, entry: int) -> int | None:
    """Returns the mask of the remaining messages of an entry; None if the entry has no ack set."""
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
    """Returns the ack sets, in order of entries, with the ack set of one entry added or replaced."""
    new = Partial(entry, remaining)
    for i, p in enumerate(partial):
        if p.entry >= entry:  # `new` replaces `p` if both are of the same entry, and is before `p` otherwise
            return partial[:i] + (new,) + partial[i + (p.entry == entry) :]
    return (*partial, new)


def with_entry_deleted(acks: Acks, entry: int) -> Acks:
    """Returns the acknowledgements with an entry individually deleted; its ack set is removed."""
    partial = without_ack_set(acks.partial, entry) if acks.partial else ()
    return Acks(acks.first_unacked, acks.deleted | 1 << entry, partial)


def with_mark_delete_at(acks: Acks, first_unacked: int) -> Acks:
    """`setAcknowledgedPosition`: returns the acknowledgements with every entry before `first_unacked` deleted.

    The mark-delete position then advances over individually deleted entries. The ack sets of the entries that it passes
    are removed.
    """
    first_unacked += lowest_set_bit(~(acks.deleted >> first_unacked))  # the number of deleted entries in a row
    deleted, partial = acks.deleted >> first_unacked << first_unacked, acks.partial
    if partial and partial[0].entry < first_unacked:
        partial = tuple([p for p in partial if p.entry >= first_unacked])
    return Acks(first_unacked, deleted, partial)


def with_mark_delete_advanced(acks: Acks) -> Acks:
    """Returns the acknowledgements with the mark-delete position advanced over individually deleted entries."""
    return with_mark_delete_at(acks, acks.first_unacked) if acks.deleted >> acks.first_unacked & 1 else acks


def requested_mask(cfg: Config, batch_acks: bool, ack_set: AckSet | None) -> int | None:
    """Returns the mask of the messages that an ack leaves unacknowledged.

    The mask is 0 if the ack is for the whole entry. The result is None if the ack set has no effect: batch-index acks
    are disabled, and the ack set does not count as the whole entry (`zero_words_mean_whole`).
    """
    if not ack_set:
        return 0
    mask = mask_of(ack_set)
    if batch_acks or (mask == 0 and cfg.zero_words_mean_whole):
        return mask
    return None


def with_ack_set(cfg: Config, acks: Acks, entry: int, given: int) -> Acks:
    """`asyncDelete`: returns the acknowledgements with an ack set intersected with the stored ack set of the entry.

    An entry without remaining messages is deleted. If exactly the messages of the batch remain, no ack set is stored.
    """
    old, everything = remaining_of(acks, entry), bits_below(size_of(cfg, entry))
    # without a stored ack set, all messages remain; a cursor that does not know the batch size stores the given ack set
    stored = old if old is not None else everything if cfg.batch_sizes_are_known else given
    remaining = given & stored
    if remaining == 0:
        return with_entry_deleted(acks, entry)
    if remaining == everything:
        return acks if old is None else Acks(acks.first_unacked, acks.deleted, without_ack_set(acks.partial, entry))
    return Acks(acks.first_unacked, acks.deleted, with_remaining(acks.partial, entry, remaining))


# ---- records ------------------------------------------------------------------------------------------


def range_starts(ledgers: tuple[int, ...], deleted: int) -> int:
    """Returns the mask of the first entries of the ranges of individually deleted entries.

    A range ends at the end of its ledger, as in Pulsar if `managedLedgerUnackedRangesOpenCacheSetEnabled` is true, the
    default.
    """
    starts, first = deleted & ~(deleted << 1), 0
    for count in ledgers:
        starts |= deleted & 1 << first if count else 0  # a deleted first entry of a ledger begins a range
        first += count
    return starts


def lowest_ranges(ledgers: tuple[int, ...], deleted: int, limit: int) -> int:
    """Returns the mask of the deleted entries of the lowest ranges, at most `limit` ranges."""
    starts = range_starts(ledgers, deleted)
    while starts and limit > 0:
        starts &= starts - 1  # removes the lowest start
        limit -= 1
    return deleted & bits_below(lowest_set_bit(starts)) if starts else deleted


def capped(cfg: Config, ledgers: tuple[int, ...], acks: Acks) -> Acks:
    """Returns acknowledgements as a record has them: with the lowest ranges and the lowest ack sets, within the limits.

    Models `buildIndividualDeletedMessageRanges` and `buildBatchEntryDeletionIndexInfoList`.
    """
    ranges = cfg.max_ranges + (not cfg.range_cap_is_exact)
    deleted = lowest_ranges(ledgers, acks.deleted, ranges) if acks.deleted else 0
    return Acks(acks.first_unacked, deleted, acks.partial[: cfg.max_ack_sets])


def closes_into_metadata_store(cfg: Config, starts: int) -> bool:
    """Returns whether a closed cursor is stored in the metadata store; otherwise it is stored in the cursor ledger.

    The result is the negation of `shouldPersistUnackRangesToLedger` with an open cursor ledger. `starts` is the mask of
    the first entries of the ranges.
    """
    return cfg.max_ranges == 0 or starts.bit_count() <= cfg.max_ranges_in_metadata


def read_from_metadata(cfg: Config, acks: Acks) -> Acks:
    """Returns what a recovery reads of a record in the metadata store: the whole record, or all but the ack sets."""
    return acks if cfg.metadata_ack_sets_are_recovered else acks._replace(partial=())


def acks_after_reset(reset: Reset) -> Acks:
    """`internalResetCursor`: returns the acknowledgements after a reset.

    Acknowledged are all entries before the entry of the reset, and the messages of this entry that the reset's ack set
    acknowledges.
    """
    return Acks(reset.entry, 0, () if reset.remaining is None else (Partial(reset.entry, reset.remaining),))


def record_of(cfg: Config, s: State, to_apply: Reset | None) -> Acks:
    """Returns the record of the reset `to_apply`; if it is None, the record of the acknowledgements in memory."""
    if to_apply is None:
        return capped(cfg, s.ledgers, s.acks)
    if cfg.reset_record_has_new_acks:
        return capped(cfg, s.ledgers, acks_after_reset(to_apply))
    # the new position, and the acknowledgements from before the reset
    return capped(cfg, s.ledgers, with_mark_delete_at(s.acks, to_apply.entry))
