"""A coordinator's transaction log: settings, records, state, and what is deleted and kept of the log.

Entries are numbered from 0 through all ledgers that the log ever had; a record is known by its entry and where it
stands there. What is deleted is what `model/batch_acks/state.py` calls acknowledged: a mark, deleted entries after it,
and entries of which some records are deleted, in memory and in storage alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from model.ack_set import AckSet, all_of, first_of, words_of
from model.batch_acks import state as batch_acks_state
from model.batch_acks.machine import acked
from model.batch_acks.state import Acks, capped, in_metadata, is_deleted, range_starts, remaining_of, settled
from model.machine import Setting
from model.values import AtLeast, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions differ."""

    #: whether records are batched when the store is first opened; a batch of at most one record means that they are not
    batching: Annotated[bool, Setting("transactionLogBatchedWriteEnabled", "false")] = True
    #: with how many records a batch is written
    max_records: Annotated[int, AtLeast(0), Setting("transactionLogBatchedWriteMaxRecords", "512")] = 512
    #: how many transactions may live at once; 0: any number
    max_active: Annotated[int, AtLeast(0), Setting("maxActiveTransactionsPerCoordinator", "0")] = 0
    #: how many ranges of deleted entries a record of the cursor holds
    max_ranges: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxUnackedRangesToPersist", "10000, from June 2026 200000")
    ] = 200_000
    #: how many partly deleted entries a record of the cursor holds
    max_batch_records: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxBatchDeletedIndexToPersist", "10000, from June 2026 200000")
    ] = 200_000
    #: with how many ranges at most a cursor that is closed goes to the metadata store
    max_ranges_in_metadata: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerMaxUnackedRangesToPersistInMetadataStore", "1000, from June 2026 200000"),
    ] = 200_000
    #: whether the broker lets parts of entries be deleted at all, which this log needs
    batch_index_acks: Annotated[
        bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", "false before 4.1, then true")
    ] = True

    #: parts of this log's entries can be deleted: always; or while it is batched, or where the broker says so, and else
    #: such a deletion is ignored, and those that were stored are not found
    parts_are_deletable: Literal["always", "as_configured"] = "always"
    #: whether deletions of parts of entries alone are to be written
    partial_deletes_are_dirty: bool = True
    #: whether the metadata store gives back partly deleted entries
    metadata_keeps_sets: bool = True
    #: whether a record of the cursor holds as many ranges as it may; else one more, which breaks no promise of this log
    range_cap_is_exact: bool = True
    #: what a record of the cursor that cannot hold everything keeps: all up to some entry, or ranges and parts each on
    #: their own, the lowest
    caps_keep: Literal["prefix", "each_its_own"] = "prefix"
    #: after an append that failed and may be in the log all the same, the store serves nothing until it is opened
    #: again; or it goes on
    unknown_outcome: Literal["reopens", "goes_on"] = "reopens"
    #: whether a transaction that ends at replay leaves the map at once; else when its records could be deleted
    replay_removes_first: bool = True
    #: a replay whose reading stopped: the store failed to open, or it is ready with what was read
    stopped_replay: Literal["failure", "complete"] = "failure"
    #: the low watermark when no transaction lives: the last id that is in the log, or 0; the last id that was given may
    #: never have reached the log
    empty_watermark: Literal["last_id", "zero"] = "last_id"


# ---- records ------------------------------------------------------------------------------------------

Op = Literal["NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE"]
Status = Literal["OPEN", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED"]
#: What a transaction can be updated to.
Target = Literal["COMMITTING", "COMMITTED", "ABORTING", "ABORTED"]

#: From where a transaction may come to each status: this is what its record expects.
EXPECTED: dict[Target, Status] = {
    "COMMITTING": "OPEN",
    "COMMITTED": "COMMITTING",
    "ABORTING": "OPEN",
    "ABORTED": "ABORTING",
}
#: With these a transaction has ended.
ENDED: tuple[Status, ...] = ("COMMITTED", "ABORTED")


class Record(NamedTuple):
    """One step of a transaction. What its op does not need has its default."""

    txn: int
    op: Op
    last_id: int  # the last id that was given when the record was made
    name: int = 0  # of the partition or subscription
    to: Target | None = None
    start_ms: int = 0
    timeout_ms: int = 0


#: The records of an entry; a plain entry has one.
Entry = tuple[Record, ...]


class Place(NamedTuple):
    """Where a record is: the number of its entry, and where it stands there."""

    entry: int
    at: int


# ---- state --------------------------------------------------------------------------------------------


@record
class Txn(NamedTuple):
    """A transaction that lives, with the places of the records that made it what it is, in order."""

    id: int
    status: Status
    partitions: int  # a mask of names
    subscriptions: int
    deadline_ms: int
    places: tuple[Place, ...]


@record
class Promise(NamedTuple):
    """What callers were told of a transaction: its status, and what takes part in it."""

    id: int
    status: Status
    partitions: int
    subscriptions: int


Told = Literal["done", "invalid_status", "not_written", "fenced", "closed", "unknown"]


class Answer(NamedTuple):
    """What the caller of an operation is told: it is durable and in effect, or why not.

    invalid_status    it is durable, and has no effect: the transaction was not in the status that it needs
    unknown           the append failed, and the record may be in the log all the same
    not_written, fenced, closed    the append failed, and the record is not in the log
    """

    txn: int
    op: Op
    told: Told


@record
class State(NamedTuple):
    """A store on its log."""

    status: Literal["replaying", "ready", "stopped", "failed"]
    #: open          takes appends
    #: write_failed  is lost, which the next append finds out: it fails
    #: closed        is full or lost: the next append makes a new one
    #: fenced        is in another's hands
    ledger: Literal["open", "write_failed", "closed", "fenced"]
    batching: bool  # as it was read when the store was opened
    cursor_works: bool
    buffer: Entry  # records that wait for their batch, whose callers wait
    in_flight: tuple[Entry, ...]
    first: int  # how many entries were trimmed
    ledgers: tuple[int, ...]  # how many entries each ledger has that is kept; the last one is written to
    log: tuple[Entry, ...]  # the entries that are kept
    ledger_id: int  # the last id, as the ledger's properties have it
    txns: tuple[Txn, ...]  # by id
    last_id: int  # the last id that was given
    acks: Acks  # what is deleted, in memory
    durable: Acks  # what a crash leaves of it
    dirty: bool  # there are deletions to be written
    read_next: int  # the entry that the replay reads next; 0 when it is over
    now_ms: int
    # what callers know, and no store: it is there to say what must hold
    promised: tuple[Promise, ...]  # by id
    told_id: int  # the highest id that was told
    told_watermark: int  # the highest watermark that was told


def start(cfg: Config) -> State:
    """A store on a new log, ready for its first transaction."""
    nothing = Acks()
    return State(
        "ready", "open", cfg.batching, True, (), (), 0, (0,), (), -1, (), -1, nothing, nothing, False, 0, 0, (), -1, -1
    )


def end_of(s: State) -> int:
    """The number of the entry that is written next."""
    return s.first + len(s.log)


def is_batching(cfg: Config, s: State) -> bool:
    """Whether records wait for others."""
    return s.batching and cfg.max_records > 1


# ---- the map ------------------------------------------------------------------------------------------


def txn_of(txns: tuple[Txn, ...], txn: int) -> Txn | None:
    """The transaction of that id, if it lives."""
    for t in txns:
        if t.id == txn:
            return t
    return None


def with_txn(txns: tuple[Txn, ...], new: Txn) -> tuple[Txn, ...]:
    """The map with this transaction, in place of the one of its id if there is one."""
    if not txns or txns[-1].id < new.id:
        return (*txns, new)
    return tuple([t for t in txns if t.id < new.id]) + (new,) + tuple([t for t in txns if t.id > new.id])


def without_txn(txns: tuple[Txn, ...], txn: int) -> tuple[Txn, ...]:
    """The map without a transaction."""
    return tuple([t for t in txns if t.id != txn])


class Effect(NamedTuple):
    """What a durable record does: the map after it, what it deletes, and whether it had an effect."""

    txns: tuple[Txn, ...]
    deleted: tuple[Place, ...]
    told: Literal["done", "invalid_status"]


def effect_of(txns: tuple[Txn, ...], record: Record, place: Place, deadline_ms: int) -> Effect:
    """What a durable record does to the map, live and at replay alike.

    A transaction that ends leaves the map, and all its records are deleted. A record of a transaction that has ended,
    or is not in the status that the record needs, changes nothing and is deleted. A second NEW of an id that lives adds
    its place.
    """
    t = txn_of(txns, record.txn)
    if record.op == "NEW":
        if t is None:
            return Effect(with_txn(txns, Txn(record.txn, "OPEN", 0, 0, deadline_ms, (place,))), (), "done")
        return Effect(with_txn(txns, t._replace(places=(*t.places, place))), (), "done")
    if t is None:
        return Effect(txns, (place,), "invalid_status")
    if record.to is not None:
        if t.status != EXPECTED[record.to]:
            return Effect(txns, (place,), "invalid_status")
        if record.to in ENDED:
            return Effect(without_txn(txns, t.id), (*t.places, place), "done")
        return Effect(with_txn(txns, t._replace(status=record.to, places=(*t.places, place))), (), "done")
    if t.status != "OPEN":
        return Effect(txns, (place,), "invalid_status")
    return Effect(with_txn(txns, with_name(t, record, place)), (), "done")


def with_name(t: Txn, record: Record, place: Place) -> Txn:
    """A transaction in which one more partition or subscription takes part."""
    if record.op == "ADD_PARTITION":
        return t._replace(partitions=t.partitions | 1 << record.name, places=(*t.places, place))
    return t._replace(subscriptions=t.subscriptions | 1 << record.name, places=(*t.places, place))


# ---- deletions ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def ack_set_of(size: int, index: int) -> AckSet | None:
    """The ack set that deletes one record of an entry: all its bits but that one. None for an entry of one record."""
    return None if size == 1 else words_of(all_of(size) & ~(1 << index))


@lru_cache(maxsize=4096)
def cursor_of(cfg: Config, size: int = 1) -> batch_acks_state.Config:
    """The settings of the log's cursor, for an entry of that many records."""
    return batch_acks_state.Config(
        batch_sizes=(size,),
        max_ranges=cfg.max_ranges,
        max_batch_records=cfg.max_batch_records,
        max_ranges_in_metadata=cfg.max_ranges_in_metadata,
        range_cap_is_exact=cfg.range_cap_is_exact,
        metadata_keeps_sets=cfg.metadata_keeps_sets,
    )


def deletes_parts(cfg: Config, batching: bool) -> bool:
    """Whether a store that is opened with batching, or without, can delete parts of entries."""
    return cfg.parts_are_deletable == "always" or cfg.batch_index_acks or (batching and cfg.max_records > 1)


def with_deleted(cfg: Config, s: State, places: tuple[Place, ...]) -> State:
    """Records are deleted, in memory; an entry is when its last one is. A cursor that does not work deletes nothing."""
    if not places or not s.cursor_works:
        return s
    acks, parts = s.acks, deletes_parts(cfg, s.batching)
    for entry, at in places:
        size = len(s.log[entry - s.first])
        acks = acked(cursor_of(cfg, size), parts, acks, entry, ack_set_of(size, at))
    if acks == s.acks:
        return s
    dirty = s.dirty or cfg.partial_deletes_are_dirty or acks.deleted != 0
    return s._replace(acks=settled(acks), dirty=dirty)


def live_of(acks: Acks, entry: int, size: int) -> int:
    """The mask of the records of an entry that are not deleted."""
    if is_deleted(acks, entry):
        return 0
    remaining = remaining_of(acks, entry)
    return all_of(size) if remaining is None else remaining


# ---- what is kept of deletions ------------------------------------------------------------------------


def snapshot(cfg: Config, s: State) -> Acks:
    """What a record of the cursor holds: everything, if it can.

    Else, so that no closing record is deleted without its transaction's first, all up to some entry, and nothing from
    there on. As shipped, the lowest ranges and the lowest parts, whichever those are.
    """
    kept = capped(cursor_of(cfg), (s.first, *s.ledgers), s.acks)
    return kept if cfg.caps_keep == "each_its_own" else prefix_of(s.acks, kept)


def prefix_of(acks: Acks, kept: Acks) -> Acks:
    """What is kept, up to the first entry of which something is lost."""
    lost = acks.deleted & ~kept.deleted
    limits = [first_of(lost)] if lost else []
    if len(kept.partial) < len(acks.partial):
        limits.append(acks.partial[len(kept.partial)].entry)
    if not limits:
        return kept
    limit = min(limits)
    return Acks(kept.mark, kept.deleted & all_of(limit), tuple([p for p in kept.partial if p.entry < limit]))


def closed_cursor(cfg: Config, s: State) -> Acks:
    """What a clean close leaves of the deletions: with few ranges they go to the metadata store.

    A cursor that does not work, or that another broker has taken, leaves what was written before.
    """
    if s.ledger == "fenced" or not s.cursor_works:
        return s.durable
    kept = snapshot(cfg, s)
    if range_starts((s.first, *s.ledgers), kept.deleted).bit_count() <= cfg.max_ranges_in_metadata:
        return in_metadata(cursor_of(cfg), kept)
    return kept
