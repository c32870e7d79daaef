"""Transaction log of a coordinator: settings, rules, records and state, and the deletions of the log's cursor.

Entries are numbered from 0 across all ledgers of the log. The position of a record is an entry number and a batch
index; `TxnBatchedPositionImpl` also has a ledger id and the batch size. The cursor's deletions are the triple `Acks` of
`model/batch_acks`: the first entry after the mark-delete position, the individually deleted entries, and the ack sets
of partially deleted entries. The state has two such triples: the deletions in memory (`acks`), and the deletions that
are recovered after a crash (`durable`). `PositionInfo` is Pulsar's format of a persisted cursor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from model.ack_set import AckSet, bits_below, lowest_set_bit, words_of
from model.batch_acks import state as batch_acks_state
from model.batch_acks.machine import with_individual_ack
from model.batch_acks.state import (
    Acks,
    capped,
    closes_into_metadata_store,
    is_deleted,
    range_starts,
    read_from_metadata,
    remaining_of,
    with_mark_delete_advanced,
)
from model.machine import Setting
from model.values import AtLeast, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Broker settings, then the rules in which versions differ."""

    #: whether records are batched when the store is first opened; effective only with `max_records` above 1
    batching: Annotated[bool, Setting("transactionLogBatchedWriteEnabled", False)] = True
    #: a batch is flushed when it has this many records
    max_records: Annotated[int, AtLeast(0), Setting("transactionLogBatchedWriteMaxRecords", 512)] = 512
    #: limit on ongoing transactions; 0 is unlimited
    max_active: Annotated[int, AtLeast(0), Setting("maxActiveTransactionsPerCoordinator", 0)] = 0
    #: maximum number of ranges of deleted entries in a persisted `PositionInfo`
    max_ranges: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxUnackedRangesToPersist", (("4.0", 10_000), ("5.0", 200_000)))
    ] = 200_000
    #: maximum number of ack sets of partially deleted entries in a persisted `PositionInfo`
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
    #: the broker-wide switch for batch index deletion
    batch_index_acks: Annotated[
        bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", (("4.0", False), ("4.1", True)))
    ] = True

    #: whether single records of a batched entry can be deleted. `always`: they can. `as_configured`: they can while
    #: batching is enabled (`batching_enabled`) or `batch_index_acks` is on; otherwise the deletion of a single record
    #: is ignored, and stored ack sets are not recovered
    batch_index_deletion: Annotated[
        Literal["always", "as_configured"],
        Rule(
            Origin.READ,
            {"as_configured": "constructor of MLTransactionLogImpl (managed ledger config), master 2026-07"},
        ),
    ] = "always"
    #: whether a deletion that changes only ack sets marks the cursor dirty if `individualDeletedMessages` is empty
    partial_deletes_are_dirty: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete, master 2026-07; apache/pulsar#26498"})
    ] = True
    #: whether a recovery from the metadata store reads the ack sets, which are stored there in any case
    metadata_ack_sets_are_recovered: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.recover before apache/pulsar#26474"})
    ] = True
    #: whether a persisted `PositionInfo` has at most `max_ranges` ranges; otherwise it has at most one more
    range_cap_is_exact: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.buildIndividualDeletedMessageRanges, master 2026-07"})
    ] = True
    #: which deletions a `PositionInfo` has if they exceed a limit. `prefix`: all deletions below some entry, and none
    #: from this entry on. `independent`: the lowest ranges up to `max_ranges`, and the lowest ack sets up to
    #: `max_ack_sets`
    cursor_truncation: Annotated[
        Literal["prefix", "independent"],
        Rule(
            Origin.READ,
            {
                "independent": (
                    "ManagedCursorImpl.buildIndividualDeletedMessageRanges, "
                    "buildBatchEntryDeletionIndexInfoList; apache/pulsar#26499, #26553"
                )
            },
        ),
    ] = "prefix"
    #: the effect of an append with unknown outcome. `stops_store`: the store rejects all requests until it is reopened.
    #: `continues`: the store still accepts requests
    ambiguous_append: Annotated[
        Literal["stops_store", "continues"],
        Rule(Origin.READ, {"continues": "MLTransactionLogImpl.append, master 2026-07"}),
    ] = "stops_store"
    #: whether a transaction that ends during replay is removed from `txnMetaMap` at once; otherwise it is removed only
    #: if the deletion of its records succeeds
    replay_removes_ended_first: Annotated[
        bool,
        Rule(
            Origin.READ,
            {False: "TransactionLogReplayCallback.handleMetadataEntry, master 2026-07; apache/pulsar#15472"},
        ),
    ] = True
    #: the effect of a failed read that stops the replay. `fails`: the store fails to open. `reports_complete`: the
    #: store becomes ready with the transactions that have been read
    incomplete_replay: Annotated[
        Literal["fails", "reports_complete"],
        Rule(Origin.READ, {"reports_complete": "MLTransactionLogImpl.TransactionLogReplayer, master 2026-07"}),
    ] = "fails"
    #: the low watermark while no transaction is ongoing. `last_durable_id`: the last assigned id that a restart
    #: recovers, or a lower id while a NEW record is pending (`low_watermark_of`). `zero`: 0
    empty_low_watermark: Annotated[
        Literal["last_durable_id", "zero"],
        Rule(Origin.READ, {"zero": "MLTransactionMetadataStore.getLowWaterMark, master 2026-07"}),
    ] = "last_durable_id"


# ---- records ------------------------------------------------------------------------------------------

#: `TransactionMetadataEntry.metadata_op`.
Op = Literal["NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE"]
#: The protobuf enumeration `TxnStatus`.
Status = Literal["OPEN", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED"]
#: `TransactionMetadataEntry.new_status` of an update.
Target = Literal["COMMITTING", "COMMITTED", "ABORTING", "ABORTED"]

#: `TransactionMetadataEntry.expected_status` of an update, by its new status.
EXPECTED: dict[Target, Status] = {
    "COMMITTING": "OPEN",
    "COMMITTED": "COMMITTING",
    "ABORTING": "OPEN",
    "ABORTED": "ABORTING",
}
#: A transaction with one of these statuses has ended.
ENDED: tuple[Status, ...] = ("COMMITTED", "ABORTED")


class Record(NamedTuple):
    """A `TransactionMetadataEntry`. A field that the operation does not use has its default."""

    txn: int
    op: Op
    last_id: int  # `max_local_txn_id`: the last assigned transaction id when the record was built
    name: int = 0  # number of the partition or subscription
    to: Target | None = None  # `new_status`
    start_ms: int = 0
    timeout_ms: int = 0


#: The records of a log entry; a plain entry has one.
Entry = tuple[Record, ...]


class RecordPosition(NamedTuple):
    """The entry of a record and its batch index (`TxnBatchedPositionImpl`)."""

    entry: int
    batch_index: int


# ---- state --------------------------------------------------------------------------------------------


@record
class Txn(NamedTuple):
    """An ongoing transaction (`TxnMeta`), with the positions of its records that took effect, in log order."""

    id: int
    status: Status
    partitions: int  # mask: bit n is partition n
    subscriptions: int  # mask: bit n is subscription n
    deadline_ms: int
    positions: tuple[RecordPosition, ...]


@record
class Confirmed(NamedTuple):
    """History variable: the confirmed status and participants of a transaction.

    A status or participant is confirmed when the future of its request completes with success, or when a replay
    recovers it.
    """

    id: int
    status: Status
    partitions: int
    subscriptions: int


Result = Literal["success", "invalid_status", "not_written", "fenced", "closed", "unknown"]


class Completion(NamedTuple):
    """The completion of one request's future.

    success         the record is durable and has changed its transaction, or an update needed no record
    invalid_status  the record is durable and had no effect: the transaction had ended, or was not in the required
                    status
    unknown         the write of the entry failed, but the record may be durable
    not_written     the entry was submitted in the state `WriteFailed`, or the managed ledger could not create a ledger
                    for it; the record is not in the log
    fenced          the entry was submitted after the managed ledger was fenced; the record is not in the log
    closed          the store was closed before the record was flushed
    """

    txn: int
    op: Op
    result: Result


@record
class State(NamedTuple):
    """A transaction metadata store and its log."""

    #: stopped: an append had an unknown outcome. failed: the log could not be read to its end. A stopped or failed
    #: store rejects all requests until it is reopened
    status: Literal["replaying", "ready", "stopped", "failed"]
    #: the state of the managed ledger (`ManagedLedgerImpl.State`)
    #: open          `LedgerOpened`: the last ledger accepts entries
    #: write_failed  `WriteFailed`: a write or the creation of a ledger failed; the next entry fails and changes the
    #:               state to closed
    #: closed        `ClosedLedger`: the last ledger is full or failed; the next entry creates a ledger
    #: fenced        `Fenced`: another broker owns the log
    ledger: Literal["open", "write_failed", "closed", "fenced"]
    batching: bool  # the flag as read when the store was opened
    deletions_succeed: bool  # false after a failure of the cursor: then all deletions and cursor writes fail
    buffer: Entry  # records of the unflushed batch; their requests are pending
    in_flight: tuple[Entry, ...]  # submitted entries whose writes have not completed, in order
    first_entry: int  # number of the first entry that is not trimmed
    ledgers: tuple[int, ...]  # number of entries of each untrimmed ledger; entries are appended to the last ledger
    log: tuple[Entry, ...]  # the entries that are not trimmed
    ledger_property_id: int  # the managed ledger's property `max_local_txn_id`; -1: no id was assigned
    txns: tuple[Txn, ...]  # the ongoing transactions (`txnMetaMap`), in order of ids
    last_id: int  # the last assigned transaction id; -1: none
    acks: Acks  # deletions in memory
    durable: Acks  # the deletions that a recovery after a crash reads from the last persisted `PositionInfo`
    dirty: bool  # the cursor is to be persisted (`ManagedCursorImpl.isDirty`)
    read_position: int  # the replay continues at this entry; 0 outside a replay
    now_ms: int
    # history variables: used by properties only
    confirmed: tuple[Confirmed, ...]  # in order of ids
    confirmed_id: int  # the highest transaction id of a record whose request completed with success; -1: none
    reported_watermark: int  # the highest low watermark that was returned; -1: none


def start(cfg: Config) -> State:
    """Returns a ready store with an empty log."""
    return State(
        status="ready",
        ledger="open",
        batching=cfg.batching,
        deletions_succeed=True,
        buffer=(),
        in_flight=(),
        first_entry=0,
        ledgers=(0,),
        log=(),
        ledger_property_id=-1,
        txns=(),
        last_id=-1,
        acks=Acks(),
        durable=Acks(),
        dirty=False,
        read_position=0,
        now_ms=0,
        confirmed=(),
        confirmed_id=-1,
        reported_watermark=-1,
    )


def next_entry_number(s: State) -> int:
    """Returns the number that the next entry gets."""
    return s.first_entry + len(s.log)


def batching_enabled(cfg: Config, s: State) -> bool:
    """Whether records are batched (`TxnLogBufferedWriter.batchEnabled`). `max_records` below 2 disables batching."""
    return s.batching and cfg.max_records > 1


# ---- the map of ongoing transactions (`txnMetaMap`) ---------------------------------------------------


def find_txn(txns: tuple[Txn, ...], txn: int) -> Txn | None:
    """Returns the ongoing transaction with this id, or None."""
    for t in txns:
        if t.id == txn:
            return t
    return None


def put_txn(txns: tuple[Txn, ...], new: Txn) -> tuple[Txn, ...]:
    """Returns the map after adding or replacing a transaction."""
    if not txns or txns[-1].id < new.id:
        return (*txns, new)
    return tuple([t for t in txns if t.id < new.id]) + (new,) + tuple([t for t in txns if t.id > new.id])


def remove_txn(txns: tuple[Txn, ...], txn: int) -> tuple[Txn, ...]:
    """Returns the map without a transaction."""
    return tuple([t for t in txns if t.id != txn])


class Effect(NamedTuple):
    """Effect of a durable record: the map after the record, the positions to delete, and the result of its request."""

    txns: tuple[Txn, ...]
    to_delete: tuple[RecordPosition, ...]
    result: Literal["success", "invalid_status"]


def apply_record(txns: tuple[Txn, ...], record: Record, position: RecordPosition, deadline_ms: int) -> Effect:
    """`MLTransactionMetadataStore`, `TxnMetaImpl`: returns the effect of a durable record, live or at replay.

    A COMMITTED or ABORTED record removes its transaction from the map and deletes all records of the transaction. A
    record other than NEW is deleted without effect if its transaction is not in the map or not in the required status.
    A second NEW record of an ongoing transaction only adds its position. `deadline_ms` is the deadline that a new
    transaction gets.
    """
    t = find_txn(txns, record.txn)
    if record.op == "NEW":
        if t is None:
            return Effect(put_txn(txns, Txn(record.txn, "OPEN", 0, 0, deadline_ms, (position,))), (), "success")
        return Effect(put_txn(txns, t._replace(positions=(*t.positions, position))), (), "success")
    if t is None:
        return Effect(txns, (position,), "invalid_status")
    if record.to is not None:
        if t.status != EXPECTED[record.to]:
            return Effect(txns, (position,), "invalid_status")
        if record.to in ENDED:
            return Effect(remove_txn(txns, t.id), (*t.positions, position), "success")
        return Effect(put_txn(txns, t._replace(status=record.to, positions=(*t.positions, position))), (), "success")
    if t.status != "OPEN":
        return Effect(txns, (position,), "invalid_status")
    return Effect(put_txn(txns, with_participant(t, record, position)), (), "success")


def with_participant(t: Txn, record: Record, position: RecordPosition) -> Txn:
    """Returns the transaction after an ADD_PARTITION or ADD_SUBSCRIPTION record."""
    if record.op == "ADD_PARTITION":
        return t._replace(partitions=t.partitions | 1 << record.name, positions=(*t.positions, position))
    return t._replace(subscriptions=t.subscriptions | 1 << record.name, positions=(*t.positions, position))


# ---- deletions ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def deletion_ack_set(size: int, batch_index: int) -> AckSet | None:
    """`TxnBatchedPositionImpl.setAckSetByIndex`: returns the ack set that deletes the record at a batch index.

    The bits of all other records of the entry are set. If the entry has one record, returns None, which deletes the
    whole entry (apache/pulsar#16685).
    """
    return None if size == 1 else words_of(bits_below(size) & ~(1 << batch_index))


@lru_cache(maxsize=4096)
def cursor_config(cfg: Config, size: int = 1) -> batch_acks_state.Config:
    """Returns the config of the log's cursor, for entries of `size` records."""
    return batch_acks_state.Config(
        batch_sizes=(size,),
        max_ranges=cfg.max_ranges,
        max_ack_sets=cfg.max_ack_sets,
        max_ranges_in_metadata=cfg.max_ranges_in_metadata,
        range_cap_is_exact=cfg.range_cap_is_exact,
        metadata_ack_sets_are_recovered=cfg.metadata_ack_sets_are_recovered,
    )


def deletes_batch_indexes(cfg: Config, batching: bool) -> bool:
    """Whether a store that was opened with this batching flag can delete single records of a batched entry."""
    return cfg.batch_index_deletion == "always" or cfg.batch_index_acks or (batching and cfg.max_records > 1)


def delete_positions(cfg: Config, s: State, positions: tuple[RecordPosition, ...]) -> State:
    """`MLTransactionLogImpl.deletePosition`: deletes records in memory.

    An entry is deleted when all its records are deleted. Without batch index deletion (`deletes_batch_indexes`), the
    deletion of a single record of a batched entry is ignored. If deletions fail, the state does not change.
    """
    if not positions or not s.deletions_succeed:
        return s
    acks, deletes_indexes = s.acks, deletes_batch_indexes(cfg, s.batching)
    for entry, batch_index in positions:
        size = len(s.log[entry - s.first_entry])
        ack_set = deletion_ack_set(size, batch_index)
        acks = with_individual_ack(cursor_config(cfg, size), deletes_indexes, acks, entry, ack_set)
    if acks == s.acks:
        return s
    # `acks.deleted` is `individualDeletedMessages`
    dirty = s.dirty or cfg.partial_deletes_are_dirty or acks.deleted != 0
    return s._replace(acks=with_mark_delete_advanced(acks), dirty=dirty)


def remaining_records(acks: Acks, entry: int, size: int) -> int:
    """Returns the mask of the records of an entry that are not deleted."""
    if is_deleted(acks, entry):
        return 0
    remaining = remaining_of(acks, entry)
    return bits_below(size) if remaining is None else remaining


# ---- persisted deletions ------------------------------------------------------------------------------


def cursor_snapshot(cfg: Config, s: State) -> Acks:
    """Returns the deletions that one persisted `PositionInfo` has: all of them, or those that the limits allow.

    If `cursor_truncation` is `prefix`, these are the deletions below some entry. A COMMITTED or ABORTED record is then
    deleted in the `PositionInfo` only if the NEW record of its transaction is deleted there, too.
    """
    # `capped` numbers entries from 0. So the trimmed entries are given to it as one more ledger, the first
    ledgers = (s.first_entry, *s.ledgers)
    kept = capped(cursor_config(cfg), ledgers, s.acks)
    return kept if cfg.cursor_truncation == "independent" else prefix_of(s.acks, kept)


def prefix_of(acks: Acks, kept: Acks) -> Acks:
    """Returns the deletions in `kept` below the first entry that has a deletion in `acks` and not in `kept`."""
    lost = acks.deleted & ~kept.deleted
    entries = [lowest_set_bit(lost)] if lost else []
    # `kept.partial` has the first ack sets of `acks.partial`
    if len(kept.partial) < len(acks.partial):
        entries.append(acks.partial[len(kept.partial)].entry)
    if not entries:
        return kept
    first_lost = min(entries)
    deleted = kept.deleted & bits_below(first_lost)
    return Acks(kept.first_unacked, deleted, tuple([p for p in kept.partial if p.entry < first_lost]))


def closed_cursor(cfg: Config, s: State) -> Acks:
    """`ManagedCursorImpl.asyncClose`: returns the deletions that a recovery after a clean close reads.

    `max_ranges_in_metadata` decides whether the cursor is stored in the metadata store or in the cursor ledger. If the
    managed ledger is fenced or deletions fail, the close persists nothing.
    """
    if s.ledger == "fenced" or not s.deletions_succeed:
        return s.durable
    kept = cursor_snapshot(cfg, s)
    cursor = cursor_config(cfg)
    is_small = closes_into_metadata_store(cursor, range_starts((s.first_entry, *s.ledgers), s.acks.deleted))
    return read_from_metadata(cursor, kept) if is_small else kept
