"""What a cursor knows of acknowledgements: settings, state, and the small functions on entries and masks.

Entries are numbered from 0, through all ledgers; empty ledgers have no numbers. What is acknowledged is a triple, in
memory, on its way to storage and in storage alike:

    mark      every entry before this number is deleted; the entry before it is the mark-delete position
    deleted   a mask: bit n is entry n, which is deleted although an entry before it is not
    partial   entries of which some messages are acknowledged, each with the mask of those that are left
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.ack_set import AckSet, all_of, first_of, mask_of
from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions differ."""

    #: how many messages the entries have, in turn: entry n has as many as place n modulo the length says
    batch_sizes: tuple[Annotated[int, AtLeast(1)], ...] = (4, 1, 3)
    #: how many entries the first ledger has at the start
    entries: Annotated[int, AtLeast(0)] = 4
    #: whether acknowledgements of parts of entries count at the start
    batch_acks: Annotated[bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", "false before 4.1, then true")] = True
    #: how many ranges of deleted entries a record holds; the lowest are kept
    max_ranges: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxUnackedRangesToPersist", "10000, from June 2026 200000")
    ] = 200_000
    #: how many partly acknowledged entries a record holds; the lowest are kept
    max_batch_records: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxBatchDeletedIndexToPersist", "10000, from June 2026 200000")
    ] = 200_000
    #: with how many ranges at most a cursor that is closed goes to the metadata store
    max_ranges_in_metadata: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerMaxUnackedRangesToPersistInMetadataStore", "1000, from June 2026 200000"),
    ] = 200_000

    #: what a cumulative acknowledgement into a batch leaves of it: what is left in both, or only its own set, if that
    #: begins later
    cumulative_sets: Literal["and", "replace_if_further"] = "and"
    #: whether a cumulative acknowledgement is looked at before it changes anything
    cumulative_checks_first: bool = True
    #: whether a list with an entry that is not there yet acknowledges nothing; else what stands before that entry
    lists_are_atomic: bool = True
    #: whether a set of zero words means the whole entry wherever it comes, as an empty array does
    zero_words_mean_whole: bool = True
    #: whether acknowledgements of parts of entries alone are to be written
    partial_acks_are_dirty: bool = True
    #: whether the cursor knows how many messages an entry has
    batch_sizes_are_known: bool = True
    #: whether the record of a reset is the state after it; else its position with what was acknowledged before
    resets_write_the_state_after: bool = True
    #: which of the operations that waited for a read or a write have their effect: all, in order, or the last one
    queue_applies: Literal["all", "last"] = "all"
    #: whether a record holds as many ranges as it may; else one more
    range_cap_is_exact: bool = True
    #: whether "fully persistable" also asks for the partly acknowledged entries
    persistable_counts_sets: bool = True
    #: whether the metadata store gives back partly acknowledged entries
    metadata_keeps_sets: bool = True


# ---- state --------------------------------------------------------------------------------------------


class Partial(NamedTuple):
    """An entry of which some messages are acknowledged, and the mask of those that are left."""

    entry: int
    remaining: int


@record
class Acks(NamedTuple):
    """What is acknowledged."""

    mark: int = 0
    deleted: int = 0
    partial: tuple[Partial, ...] = ()  # in order of entries


class Reset(NamedTuple):
    """A reset that was asked for: the caller's ticket, the entry that is to be read next, and what is left of it."""

    ticket: int
    to: int
    remaining: int  # 0: all of it


class Write(NamedTuple):
    """A record on its way to storage."""

    record: Acks
    resets: tuple[Reset, ...]  # those whose callers wait for it
    applied: Reset | None  # the one whose effect it has


#: An operation that waits: a reset, or None for a write of what is in memory.
Waiting = Reset | None


@record
class State(NamedTuple):
    """A cursor on its ledgers."""

    ledgers: tuple[int, ...]  # how many entries each has; their ids count from 1
    acks: Acks  # in memory
    read_next: int  # the entry that is read next
    durable: Acks  # what a recovery finds
    dirty: bool  # memory has acknowledgements that no write has begun with
    writing: Write | None
    waiting: tuple[Waiting, ...]  # for a read or a write
    reading: bool
    batch_acks: bool  # acknowledgements of parts of entries count
    next_ticket: int


def start(cfg: Config) -> State:
    """A new cursor at the beginning of a ledger."""
    return State((cfg.entries,), Acks(), 0, Acks(), False, None, (), False, cfg.batch_acks, 1)


# ---- entries ------------------------------------------------------------------------------------------


def number_of(ledgers: tuple[int, ...], position: Position) -> int | None:
    """The number of the entry at a position; None if there is none."""
    ledger, entry = position
    if 1 <= ledger <= len(ledgers) and 0 <= entry < ledgers[ledger - 1]:
        return sum(ledgers[: ledger - 1]) + entry
    return None


def number_to_come(ledgers: tuple[int, ...], position: Position) -> int | None:
    """The number that a position after the last entry of the last ledger will have; None for any other."""
    ledger, entry = position
    return sum(ledgers[:-1]) + entry if ledger == len(ledgers) and entry >= ledgers[-1] else None


def position_of(ledgers: tuple[int, ...], number: int) -> Position:
    """Where an entry stands; the number after the last entry is the next position of the last ledger."""
    for i, count in enumerate(ledgers[:-1], 1):
        if number < count:
            return Position(i, number)
        number -= count
    return Position(len(ledgers), number)


def mark_delete_position(ledgers: tuple[int, ...], mark: int) -> Position:
    """The last entry before which, itself included, everything is deleted; before the first one at the start."""
    return position_of(ledgers, mark - 1) if mark else Position(1, -1)


def size_of(cfg: Config, entry: int) -> int:
    """How many messages an entry has."""
    return cfg.batch_sizes[entry % len(cfg.batch_sizes)]


# ---- what is acknowledged -----------------------------------------------------------------------------


def is_deleted(acks: Acks, entry: int) -> bool:
    """Every message of the entry is acknowledged."""
    return entry < acks.mark or bool(acks.deleted >> entry & 1)


def remaining_of(acks: Acks, entry: int) -> int | None:
    """The mask of what is left of a partly acknowledged entry; None if it is not one."""
    for p in acks.partial:
        if p.entry == entry:
            return p.remaining
    return None


def left_of(cfg: Config, acks: Acks, entry: int) -> int:
    """How many messages of an entry are not acknowledged."""
    if is_deleted(acks, entry):
        return 0
    size, remaining = size_of(cfg, entry), remaining_of(acks, entry)
    return size if remaining is None else (remaining & all_of(size)).bit_count()


def without(partial: tuple[Partial, ...], entry: int) -> tuple[Partial, ...]:
    """The partly acknowledged entries but one."""
    return tuple([p for p in partial if p.entry != entry])


def with_remaining(partial: tuple[Partial, ...], entry: int, remaining: int) -> tuple[Partial, ...]:
    """The partly acknowledged entries, with so much left of one."""
    new = Partial(entry, remaining)
    for i, p in enumerate(partial):
        if p.entry >= entry:
            return partial[:i] + (new,) + partial[i + (p.entry == entry) :]
    return (*partial, new)


def whole(acks: Acks, entry: int) -> Acks:
    """An entry is deleted; what was known of its parts is not needed any more."""
    partial = without(acks.partial, entry) if acks.partial else ()
    return Acks(acks.mark, acks.deleted | 1 << entry, partial)


def up_to(acks: Acks, mark: int) -> Acks:
    """Everything before a number is deleted, and nothing is remembered of it; the mark moves over what follows."""
    mark += first_of(~(acks.deleted >> mark))
    deleted, partial = acks.deleted >> mark << mark, acks.partial
    if partial and partial[0].entry < mark:
        partial = tuple([p for p in partial if p.entry >= mark])
    return Acks(mark, deleted, partial)


def settled(acks: Acks) -> Acks:
    """The mark moves over the deleted entries that follow it, and nothing is remembered of what lies before it."""
    mark, deleted, partial = acks
    if deleted >> mark & 1 or (partial and partial[0].entry < mark):
        return up_to(acks, mark)
    return acks


def what_it_leaves(cfg: Config, batch_acks: bool, ack_set: AckSet | None) -> int | None:
    """The mask of what an acknowledgement leaves of an entry: 0 for the whole entry; None if it does not count."""
    if not ack_set:
        return 0
    mask = mask_of(ack_set)
    if batch_acks or (mask == 0 and cfg.zero_words_mean_whole):
        return mask
    return None


def narrowed(cfg: Config, acks: Acks, entry: int, given: int) -> Acks:
    """An entry is left with what is left in both; with nothing, it is deleted. A set of all its messages is no news."""
    old, everything = remaining_of(acks, entry), all_of(size_of(cfg, entry))
    remaining = given & (everything if old is None and cfg.batch_sizes_are_known else given if old is None else old)
    if remaining == 0:
        return whole(acks, entry)
    if remaining == everything:
        return acks if old is None else Acks(acks.mark, acks.deleted, without(acks.partial, entry))
    return Acks(acks.mark, acks.deleted, with_remaining(acks.partial, entry, remaining))


# ---- records ------------------------------------------------------------------------------------------


def range_starts(ledgers: tuple[int, ...], deleted: int) -> int:
    """The mask of the first entries of the ranges of deleted entries; a range ends with its ledger."""
    starts, first = deleted & ~(deleted << 1), 0
    for count in ledgers:
        starts |= deleted & 1 << first if count else 0
        first += count
    return starts


def lowest_ranges(ledgers: tuple[int, ...], deleted: int, most: int) -> int:
    """The deleted entries of so many ranges, the lowest."""
    starts = range_starts(ledgers, deleted)
    while starts and most > 0:
        starts &= starts - 1
        most -= 1
    return deleted & all_of(first_of(starts)) if starts else deleted


def capped(cfg: Config, ledgers: tuple[int, ...], acks: Acks) -> Acks:
    """What a record holds of it: the lowest ranges and the lowest parts, as many as it may."""
    ranges = cfg.max_ranges + (not cfg.range_cap_is_exact)
    deleted = lowest_ranges(ledgers, acks.deleted, ranges) if acks.deleted else 0
    return Acks(acks.mark, deleted, acks.partial[: cfg.max_batch_records])


def in_metadata(cfg: Config, acks: Acks) -> Acks:
    """What the metadata store gives back of a record."""
    return acks if cfg.metadata_keeps_sets else acks._replace(partial=())


def after_reset(reset: Reset) -> Acks:
    """What is acknowledged after a reset: what comes before its entry, and what its set leaves out."""
    return Acks(reset.to, 0, (Partial(reset.to, reset.remaining),) if reset.remaining else ())


def record_of(cfg: Config, s: State, applied: Reset | None) -> Acks:
    """The record that is written now, of memory or of a reset."""
    if applied is None:
        return capped(cfg, s.ledgers, s.acks)
    if cfg.resets_write_the_state_after:
        return capped(cfg, s.ledgers, after_reset(applied))
    return capped(cfg, s.ledgers, up_to(s.acks, applied.to))
