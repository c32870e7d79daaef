"""Transaction log of a coordinator: requests, batches, failures, crashes and replay (PIP-160, PIP-31).

The coordinator has a map of its ongoing transactions, each with a status and participants (partitions and
subscriptions). A request to begin or change a transaction is written to the log as a record; several records may share
an entry. When the record is durable, it takes effect: it changes the map. When a transaction ends, its records are
deleted. After a restart, a replay of the log rebuilds the map.

Models `MLTransactionMetadataStore` (the store) and `MLTransactionLogImpl` (the log). One step is one request to the
store, one flush of a batch, one completion of a write, one call or failure of the log's managed ledger or cursor, one
restart, one entry of a replay, the end of a replay, or one advance of the clock. The log's cursor deletes records by
the rules of `model/batch_acks`: a record corresponds to a message of a batch, and the deletion of a record to an ack of
that message. A persisted cursor is a `PositionInfo`.

    append      a request becomes a record in the current batch; without batching, the record is an entry of its own
    completion  when the write of an entry completes, the entry's records take effect and their futures complete, in
                order. An entry whose write failed may be in the log, too: its records take effect in the next replay
    end         a transaction has the positions of its records; when the transaction ends, these records are deleted
    deletion    an entry is deleted when all its records are deleted. The mark-delete position advances over deleted
                entries. A ledger other than the last is trimmed when the persisted mark-delete position is at the
                ledger's last entry or after it
    replay      after a restart, the records that are not deleted are read; they take effect by the same rules as after
                a completed write
    ids         transaction ids are assigned in order. The last assigned id (`max_local_txn_id`) is a field of every
                record, and a property of the managed ledger. The property is written when a ledger is created or
                trimmed, and when the log is opened. A restart recovers the id from the last record, or from the
                property if the last ledger is empty
    low watermark   no transaction up to this id is ongoing; if such a transaction is still pending at a participant,
                    the participant may abort it

A restart is a clean close (`reopen`) or a crash (`crash`). Both actions also open the log.

Differences from Apache Pulsar master of 2026-07 (each a rule of `Config`; see `fuzz/defects/txn_log.toml`):
  * after an append with unknown outcome (it failed, but may be durable), the store stops until it is reopened. A store
    that continues may confirm a commit although the log holds an earlier abort;
  * a `PositionInfo` that cannot hold all deletions has those below some entry, and none from this entry on. If ranges
    and ack sets are truncated independently, a restart can recover the deletion of a COMMITTED or ABORTED record, but
    not the deletion of the transaction's NEW record: the transaction is ongoing again;
  * a `PositionInfo` has at most `max_ranges` ranges, and not one more;
  * without ongoing transactions, the low watermark is at most the last assigned id that a restart recovers, instead of
    always 0 (see `low_watermark_of`);
  * single records of a batch can always be deleted; such deletions make the cursor dirty, and survive a clean close;
  * a replay that cannot read the whole log fails; a replay removes ended transactions from the map even if the deletion
    of their records fails.

Not modelled:
  * of the writer: sizes in bytes, and the triggers of a flush (the model flushes at `max_records`, and otherwise at any
    time; see `model/txn_writer`);
  * of records: topic names, owners, modification times, updates whose expected status is not that of `EXPECTED`, empty
    batches;
  * of the cursor: the rate limit of its writes;
  * of a restart: how many entries one read requests, retries of failed reads, a clean close with entries in flight, a
    restart after a crash with another batching flag, the unloading of a fenced coordinator;
  * of the coordinator: participants and the requests to them, retries of commits and aborts, timeouts below 100 ms, the
    broker's reply (after `ReachMaxActiveTxnException`, Pulsar sends none), the client states ERROR and TIME_OUT.
"""

from __future__ import annotations

from typing import Annotated, Literal

from model.batch_acks.state import Acks, Partial
from model.machine import Failed, Machine, Refused, Step, refused
from model.txn_log.replay import (
    Recovered,
    as_confirmed,
    completed,
    next_entry,
    opened,
    recovered_id,
    replay_interrupted,
    replayed,
    with_confirmed,
)
from model.txn_log.state import (
    ENDED,
    Completion,
    Config,
    Confirmed,
    Entry,
    Record,
    RecordPosition,
    Result,
    State,
    Target,
    Txn,
    apply_record,
    batching_enabled,
    closed_cursor,
    cursor_snapshot,
    delete_positions,
    find_txn,
    next_entry_number,
    remaining_records,
    start,
)
from model.values import AtLeast

txn_log = Machine(
    "txn_log",
    Config,
    start,
    source="PIP-160",
    history=("confirmed", "confirmed_id", "reported_watermark"),
    java={
        "MLTransactionMetadataStore": (
            "newTransaction",
            "addProducedPartitionToTxn",
            "addAckedPartitionToTxn",
            "updateTxnStatus",
            "getLowWaterMark",
            "replayComplete",
        ),
        "MLTransactionLogImpl": ("append", "initialize", "closeAsync"),
        "TxnLogBufferedWriter": (),
        "ManagedLedgerImpl": ("createComplete", "ledgerClosed", "trimConsumedLedgersInBackground"),
        "ManagedLedgerFencedException": (),
        "ManagedCursorImpl": ("asyncDelete", "persistPositionToLedger"),
        "TransactionTimeoutTrackerImpl": (),
        "TransactionRecoverTracker": (),
    },
)

#: The futures that a step completes, in order.
Completions = tuple[Completion, ...]

#: The number of durable entries among the entries in flight: the first ones are durable. A number greater than the
#: number of entries in flight means all of them.
Durable = Annotated[int, AtLeast(0)]


# ---- requests -----------------------------------------------------------------------------------------


def not_ready(s: State) -> tuple[State, Refused]:
    """Returns the rejection of a request to a store that is replaying, failed or stopped."""
    return refused(s, "illegal_state", f"the store is {s.status}, not ready")


def not_found(s: State, txn: int) -> tuple[State, Refused]:
    """Returns the rejection of a request for an unknown or ended transaction (`TransactionNotFoundException`)."""
    return refused(s, "not_found", f"transaction {txn} is not ongoing")


@txn_log.action
def new_transaction(cfg: Config, s: State, timeout_ms: Annotated[int, AtLeast(0)]) -> Step[State, Completions]:
    """`MLTransactionMetadataStore.newTransaction`: begins a transaction with the next id.

    The transaction is ongoing once the write of its NEW record completes. If `max_active` is positive and at least that
    many transactions are ongoing, the request is rejected (`ReachMaxActiveTxnException`), whatever the status of the
    store. An id whose NEW record fails is not reused before a restart.
    """
    if 0 < cfg.max_active <= len(s.txns):
        return refused(s, "too_many", f"{len(s.txns)} transactions are ongoing")
    if s.status != "ready":
        return not_ready(s)
    txn = s.last_id + 1
    record = Record(txn, "NEW", txn, start_ms=s.now_ms, timeout_ms=timeout_ms)
    return append(cfg, s._replace(last_id=txn), record)


@txn_log.action
def add_participant(
    cfg: Config,
    s: State,
    txn: Annotated[int, AtLeast(0)],
    op: Literal["ADD_PARTITION", "ADD_SUBSCRIPTION"],
    name: Annotated[int, AtLeast(0)],
) -> Step[State, Completions]:
    """`addProducedPartitionToTxn`, `addAckedPartitionToTxn`: adds a partition or subscription to a transaction.

    The status of the transaction is checked when the write of the record completes, and not before the append: unless
    the transaction is then ongoing and OPEN, the result is `invalid_status`.
    """
    if s.status != "ready":
        return not_ready(s)
    if find_txn(s.txns, txn) is None:
        return not_found(s, txn)
    return append(cfg, s, Record(txn, op, s.last_id, name=name))


@txn_log.action
def update_status(cfg: Config, s: State, txn: Annotated[int, AtLeast(0)], to: Target) -> Step[State, Completions]:
    """`updateTxnStatus`: updates the status of a transaction.

    If the transaction already has the new status at the time of the request, the request succeeds without an append.
    Otherwise the status is checked when the write of the record completes: unless the transaction is then ongoing, with
    the status that `EXPECTED` names, the result is `invalid_status`.
    """
    if s.status != "ready":
        return not_ready(s)
    t = find_txn(s.txns, txn)
    if t is None:
        return not_found(s, txn)
    if t.status == to:
        return s, (Completion(txn, "UPDATE", "success"),)
    return append(cfg, s, Record(txn, "UPDATE", s.last_id, to=to))


@txn_log.action
def low_watermark(cfg: Config, s: State) -> Step[State, int]:
    """`getLowWaterMark`: returns the low watermark, an id up to which no transaction is ongoing."""
    if s.status != "ready":
        return not_ready(s)
    watermark = low_watermark_of(cfg, s)
    # a pair: the state, which is the conditional expression, and the watermark
    return s if watermark <= s.reported_watermark else s._replace(reported_watermark=watermark), watermark


def low_watermark_of(cfg: Config, s: State) -> int:
    """Returns the id before that of the first ongoing transaction.

    If no transaction is ongoing, returns the last assigned id that a restart recovers: after a crash, every later id
    may be assigned again. The result is then also below the id of every pending NEW record. With `empty_low_watermark`
    `zero`, returns 0 if no transaction is ongoing.
    """
    if s.txns:
        return s.txns[0].id - 1
    if cfg.empty_low_watermark == "zero":
        return 0
    pending = [record.txn for entry in (*s.in_flight, s.buffer) for record in entry if record.op == "NEW"]
    return min([recovered_id(s), *[txn - 1 for txn in pending]])


@txn_log.action
def expired(cfg: Config, s: State) -> Step[State, tuple[int, ...]]:
    """`TransactionTimeoutTrackerImpl`: returns the OPEN transactions past their deadline, earliest deadline first."""
    if s.status != "ready":
        return not_ready(s)
    late = [(t.deadline_ms, t.id) for t in s.txns if t.status == "OPEN" and t.deadline_ms < s.now_ms]
    return s, tuple([txn for _, txn in sorted(late)])


@txn_log.action
def advance_time(cfg: Config, s: State, by_ms: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """Advances the clock."""
    return s._replace(now_ms=s.now_ms + by_ms), None


# ---- appends ------------------------------------------------------------------------------------------


def append(cfg: Config, s: State, record: Record) -> tuple[State, Completions]:
    """`MLTransactionLogImpl.append`: adds a record to the batch and flushes a full batch.

    Without batching, the record is submitted as an entry of its own.
    """
    if not batching_enabled(cfg, s):
        return submit(s, (record,))
    s = s._replace(buffer=(*s.buffer, record))
    return flush_buffer(s) if len(s.buffer) >= cfg.max_records else (s, ())


def flush_buffer(s: State) -> tuple[State, Completions]:
    """Submits the buffered records as one entry. Returns the state and the completions of `submit`."""
    return submit(s._replace(buffer=()), s.buffer)


def submit(s: State, entry: Entry) -> tuple[State, Completions]:
    """`ManagedLedgerImpl.asyncAddEntry`: submits an entry; in the state `ClosedLedger`, creates a ledger first.

    In the states `Fenced` and `WriteFailed`, the entry fails at once and is not in the log. `WriteFailed` becomes
    `ClosedLedger` (`readyToCreateNewLedger`): the next entry creates a ledger (apache/pulsar#10711, #14738).
    """
    if s.ledger == "fenced":
        return s, completions_of(entry, "fenced")
    if s.ledger == "write_failed":
        return s._replace(ledger="closed"), completions_of(entry, "not_written")
    if s.ledger == "closed":
        s = with_new_ledger(s)
    return s._replace(in_flight=(*s.in_flight, entry)), ()


def completions_of(entry: Entry, result: Result) -> Completions:
    """Returns the completions of the futures of an entry's records, all with one result."""
    return tuple([Completion(r.txn, r.op, result) for r in entry])


def with_new_ledger(s: State) -> State:
    """Returns the state with a new last ledger, which is empty, and the last assigned id in `ledger_property_id`.

    If the last ledger is empty, the new one replaces it.
    """
    ledgers = (*s.ledgers, 0) if s.ledgers[-1] else s.ledgers
    return s._replace(ledger="open", ledgers=ledgers, ledger_property_id=s.last_id)


@txn_log.action
def flush(cfg: Config, s: State) -> Step[State, Completions]:
    """`TxnLogBufferedWriter`: submits the buffered records as one entry, as the size and delay triggers do."""
    return flush_buffer(s) if s.buffer else (s, ())


@txn_log.action
def complete_write(cfg: Config, s: State) -> Step[State, Completions]:
    """`MLTransactionLogImpl.append`: completes the write of the first entry in flight, which is now durable.

    The records take effect and their futures complete, in batch order.
    """
    if not s.in_flight:
        return refused(s, "illegal_state", "no entry is in flight")
    entry, number = s.in_flight[0], next_entry_number(s)
    s = append_to_log(s._replace(in_flight=s.in_flight[1:]), entry)
    completions: list[Completion] = []
    for index, record in enumerate(entry):
        s, completion = with_effect(cfg, s, record, RecordPosition(number, index))
        completions.append(completion)
    return s, tuple(completions)


def append_to_log(s: State, entry: Entry) -> State:
    """Returns the state with a durable entry added to the last ledger."""
    return s._replace(log=(*s.log, entry), ledgers=(*s.ledgers[:-1], s.ledgers[-1] + 1))


def with_effect(cfg: Config, s: State, record: Record, position: RecordPosition) -> tuple[State, Completion]:
    """Applies a record whose write has just completed. Returns the state, and the completion of the record's future.

    The deadline of a new transaction is the current time plus its timeout.
    """
    effect = apply_record(s.txns, record, position, s.now_ms + record.timeout_ms)
    if effect.result == "success":
        before, after = find_txn(s.txns, record.txn), find_txn(effect.txns, record.txn)
        if after is not None:
            new = as_confirmed(after)
        elif before is not None and record.to is not None:  # the transaction has ended and left the map
            new = Confirmed(before.id, record.to, before.partitions, before.subscriptions)
        confirmed, confirmed_id = with_confirmed(s.confirmed, new), max(s.confirmed_id, record.txn)
        s = s._replace(txns=effect.txns, confirmed=confirmed, confirmed_id=confirmed_id)
    return delete_positions(cfg, s, effect.to_delete), Completion(record.txn, record.op, effect.result)


# ---- failures of the ledger and of the cursor ---------------------------------------------------------


@txn_log.fault
def fail_write(cfg: Config, s: State, durable: Durable) -> Step[State, Completions]:
    """`MLTransactionLogImpl.append` fails for all entries in flight, with unknown outcome (`WriteFailed`).

    The first `durable` entries are in the log, but their records take effect only in a later replay. With
    `ambiguous_append` `stops_store`, a ready store stops.
    """
    if not s.in_flight:
        return refused(s, "illegal_state", "no entry is in flight")
    return fail_in_flight(cfg, s._replace(ledger="write_failed"), durable)


def fail_in_flight(cfg: Config, s: State, durable: int) -> tuple[State, Completions]:
    """Fails all entries in flight with the result `unknown`; the first `durable` entries are in the log.

    If entries were in flight, `ambiguous_append` decides whether a ready store stops.
    """
    completions = [each for entry in s.in_flight for each in completions_of(entry, "unknown")]
    stops = cfg.ambiguous_append == "stops_store" and s.in_flight != () and s.status == "ready"
    s = keep_durable(s, durable)
    return s._replace(status="stopped") if stops else s, tuple(completions)


def keep_durable(s: State, durable: int) -> State:
    """Returns the state with the first `durable` entries in flight added to the log, and the others dropped."""
    entries, s = s.in_flight[:durable], s._replace(in_flight=())
    for entry in entries:
        s = append_to_log(s, entry)
    return s


@txn_log.fault
def fail_ledger_creation(cfg: Config, s: State) -> Step[State, Completions]:
    """`createComplete`: the last ledger is full, and the creation of the next one fails.

    Entries in flight, which wait for the next ledger, fail and are not in the log. The state of the managed ledger
    becomes `WriteFailed`, or `ClosedLedger` if no entry was in flight.
    """
    if s.ledger != "open":
        return refused(s, "illegal_state", f"the ledger is {s.ledger}, not open")
    completions = [each for entry in s.in_flight for each in completions_of(entry, "not_written")]
    return s._replace(in_flight=(), ledger="write_failed" if s.in_flight else "closed"), tuple(completions)


@txn_log.fault
def fence(cfg: Config, s: State, durable: Durable) -> Step[State, Completions]:
    """`ManagedLedgerFencedException`: another broker has taken the log; later entries and cursor writes fail.

    All entries in flight fail with unknown outcome; the first `durable` ones are in the log. With `ambiguous_append`
    `stops_store`, a ready store stops if there were such entries.
    """
    if s.ledger == "fenced":
        return refused(s, "illegal_state", "the ledger is fenced")
    return fail_in_flight(cfg, s._replace(ledger="fenced"), durable)


@txn_log.fault
def break_cursor(cfg: Config, s: State) -> Step[State, None]:
    """`asyncDelete`, `persistPositionToLedger`: every deletion and cursor write fails until the store is reopened."""
    if not s.deletions_succeed:
        return refused(s, "illegal_state", "the cursor does not work")
    return s._replace(deletions_succeed=False), None


# ---- ledgers and the persisted cursor -----------------------------------------------------------------


@txn_log.action
def roll_ledger(cfg: Config, s: State) -> Step[State, int]:
    """`ledgerClosed`: rolls over to a new ledger, and writes the last assigned id to the managed ledger's properties.

    Returns the number of ledgers.
    """
    if s.ledger != "open":
        return refused(s, "illegal_state", f"the ledger is {s.ledger}, not open")
    if s.ledgers[-1] == 0:
        return refused(s, "illegal_state", "the ledger is empty")
    return with_new_ledger(s), len(s.ledgers) + 1


@txn_log.action
def trim(cfg: Config, s: State) -> Step[State, int]:
    """`trimConsumedLedgersInBackground`: trims ledgers up to the persisted mark-delete position; returns their number.

    Only whole ledgers are trimmed, and never the last one. If a ledger is trimmed, the last assigned id is written to
    the managed ledger's properties. The history variable `confirmed` loses ended transactions without a record in the
    log.
    """
    count, first = 0, s.first_entry
    while count < len(s.ledgers) - 1 and first + s.ledgers[count] <= s.durable.first_unacked:
        first += s.ledgers[count]
        count += 1
    if count == 0:
        return s, 0
    log = s.log[first - s.first_entry :]
    in_log = {record.txn for entry in log for record in entry}
    kept = tuple([p for p in s.confirmed if p.status not in ENDED or p.id in in_log])
    s = s._replace(first_entry=first, ledgers=s.ledgers[count:], log=log, ledger_property_id=s.last_id, confirmed=kept)
    return s, count


@txn_log.action
def persist(cfg: Config, s: State) -> Step[State, bool]:
    """`ManagedCursorImpl.persistPositionToLedger`: persists the deletions of a dirty cursor.

    Returns whether the cursor was dirty. If the deletions exceed a limit, only some of them are persisted.
    """
    if s.ledger == "fenced" or not s.deletions_succeed:
        return refused(s, "illegal_state", "the cursor cannot be persisted")
    if not s.dirty:
        return s, False
    return s._replace(durable=cursor_snapshot(cfg, s), dirty=False), True


# ---- restart and replay -------------------------------------------------------------------------------


@txn_log.action
def reopen(cfg: Config, s: State, batching: bool) -> Step[State, Completions]:
    """`closeAsync`, then `MLTransactionLogImpl.initialize`: closes the store cleanly and opens it.

    `batching` is the flag with which the store is opened. The close persists the deletions, unless the ledger is fenced
    or deletions fail. Buffered records are not written; their requests fail with the result `closed`. While entries are
    in flight, the call is rejected.
    """
    if s.in_flight:
        return refused(s, "illegal_state", "entries are in flight")
    return opened(cfg, s, closed_cursor(cfg, s), batching), completions_of(s.buffer, "closed")


@txn_log.fault
def crash(cfg: Config, s: State, durable: Durable) -> Step[State, None]:
    """The broker crashes, and the store is reopened from the log and the persisted deletions.

    No pending future completes. The first `durable` entries in flight are in the log. The batching flag stays the same.
    """
    s = keep_durable(s, durable)
    return opened(cfg, s, s.durable, s.batching), None


@txn_log.action
def replay_entry(cfg: Config, s: State) -> Step[State, int]:
    """`MLTransactionLogImpl.TransactionLogReplayer`: replays the undeleted records of the next entry that has any.

    The replay deletes a record without effect (`invalid_status`), for instance an orphan: a record whose transaction is
    unknown, because the transaction has ended and its NEW record is deleted. Returns the number of replayed records.
    """
    if s.status != "replaying":
        return refused(s, "illegal_state", f"the store is {s.status}, not replaying")
    entry = next_entry(s)
    if entry is None:
        return refused(s, "illegal_state", "the log has been read to its end")
    return replayed(cfg, s, entry)


@txn_log.action
def complete_replay(cfg: Config, s: State) -> Step[State, Recovered]:
    """`replayComplete`: the replay has reached the end of the log, and the store becomes ready.

    Returns the transactions that `TransactionRecoverTracker` has. The tracker ends COMMITTING and ABORTING
    transactions, and passes OPEN transactions to the timeout tracker.
    """
    if s.status != "replaying":
        return refused(s, "illegal_state", f"the store is {s.status}, not replaying")
    if next_entry(s) is not None:
        return refused(s, "illegal_state", "the log has not been read to its end")
    return completed(s)


@txn_log.fault
def fail_read(cfg: Config, s: State) -> Step[State, Recovered | Failed]:
    """`MLTransactionLogImpl.FillEntryQueueCallback`: a read of the log fails for good, and the replay stops.

    The store fails or, with `incomplete_replay` `reports_complete`, becomes ready.
    """
    if s.status != "replaying":
        return refused(s, "illegal_state", f"the store is {s.status}, not replaying")
    return replay_interrupted(cfg, s)


# ---- canonical form and observation -------------------------------------------------------------------


@txn_log.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers ids, entry numbers and times: each from the first one that a later step can refer to.

    With `empty_low_watermark` `zero`, ids are not renumbered, because the low watermark 0 would not change with them.
    """
    id_offset = 0 if cfg.empty_low_watermark == "zero" else first_id(s)
    time_offset = first_time(s)
    if id_offset == 0 and s.first_entry == 0 and time_offset == 0:
        return s

    def renumbered_record(r: Record) -> Record:
        start_ms = r.start_ms - time_offset if r.op == "NEW" else 0  # other records have no start time
        return r._replace(txn=r.txn - id_offset, last_id=r.last_id - id_offset, start_ms=start_ms)

    def renumbered_entry(entry: Entry) -> Entry:
        return tuple([renumbered_record(r) for r in entry])

    def renumbered_txn(t: Txn) -> Txn:
        positions = tuple([RecordPosition(p.entry - s.first_entry, p.batch_index) for p in t.positions])
        return t._replace(id=t.id - id_offset, deadline_ms=t.deadline_ms - time_offset, positions=positions)

    return s._replace(
        buffer=renumbered_entry(s.buffer),
        in_flight=tuple([renumbered_entry(entry) for entry in s.in_flight]),
        first_entry=0,
        log=tuple([renumbered_entry(entry) for entry in s.log]),
        ledger_property_id=s.ledger_property_id - id_offset,
        txns=tuple([renumbered_txn(t) for t in s.txns]),
        last_id=s.last_id - id_offset,
        acks=shifted(s.acks, s.first_entry),
        durable=shifted(s.durable, s.first_entry),
        read_position=s.read_position - s.first_entry if s.read_position else 0,
        now_ms=s.now_ms - time_offset,
        confirmed=tuple([p._replace(id=p.id - id_offset) for p in s.confirmed]),
        confirmed_id=max(s.confirmed_id - id_offset, -1),  # no step distinguishes ids below the first one from -1
        reported_watermark=max(s.reported_watermark - id_offset, -1),
    )


def first_id(s: State) -> int:
    """Returns the first id that a later step can return or compare with."""
    ids = [r.txn for entry in (*s.log, *s.in_flight, s.buffer) for r in entry]
    ids += [t.id for t in s.txns] + [p.id for p in s.confirmed]
    return min([*ids, s.last_id + 1, s.ledger_property_id + 1])


def first_time(s: State) -> int:
    """Returns the first time that a later step can compare with."""
    starts = [r.start_ms for entry in (*s.log, *s.in_flight, s.buffer) for r in entry if r.op == "NEW"]
    return min([*starts, s.now_ms])


def shifted(acks: Acks, by: int) -> Acks:
    """Returns the deletions with `by` subtracted from every entry number."""
    partial = tuple([Partial(p.entry - by, p.remaining) for p in acks.partial])
    return Acks(acks.first_unacked - by, acks.deleted >> by, partial)


@txn_log.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns statuses, the low watermark, the last id, transactions, ledgers, deletions and pending requests.

    Deletions are the first entry after the mark-delete position, in memory and as persisted; and for each entry of the
    log the number of its undeleted records.
    """
    return {
        "status": s.status,
        "ledger": s.ledger,
        "low_watermark": low_watermark_of(cfg, s) if s.status == "ready" else None,
        "last_id": s.last_id,
        "transactions": [[t.id, t.status, t.partitions, t.subscriptions, t.deadline_ms] for t in s.txns],
        "ledgers": list(s.ledgers),
        "first_unacked": s.acks.first_unacked,
        "durable_first_unacked": s.durable.first_unacked,
        "remaining_records": [
            remaining_records(s.acks, n, len(entry)).bit_count() for n, entry in enumerate(s.log, s.first_entry)
        ],
        "pending_requests": len(s.buffer) + sum(len(entry) for entry in s.in_flight),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = txn_log.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

pulsar_2026_07 = txn_log.profile(
    "pulsar-2026-07",
    "Apache Pulsar master, 2026-07-23, as read in its source",
    Config(
        batch_index_deletion="as_configured",
        partial_deletes_are_dirty=False,
        metadata_ack_sets_are_recovered=False,
        range_cap_is_exact=False,
        cursor_truncation="independent",
        ambiguous_append="continues",
        replay_removes_ended_first=False,
        incomplete_replay="reports_complete",
        empty_low_watermark="zero",
    ),
)

pulsar_2026_09 = txn_log.profile(
    "pulsar-2026-09",
    "pulsar-2026-07 with apache/pulsar#26474: recovery reads ack sets in the metadata store, the range limit is exact",
    pulsar_2026_07.config._replace(metadata_ack_sets_are_recovered=True, range_cap_is_exact=True),
)

pulsar_4_0 = txn_log.release(
    "4.0",
    rules=pulsar_2026_07.config,
    about="pulsar-2026-07; by default, the broker enables batch index deletion only while batching is on",
)
pulsar_4_1 = txn_log.release("4.1", "4.2", rules=pulsar_2026_07.config, about="pulsar-2026-07")
pulsar_5_0 = txn_log.release("5.0", rules=pulsar_2026_09.config, about="pulsar-2026-09")

continues = txn_log.profile(
    "continues-after-ambiguous-append",
    "the reference with one rule of pulsar-2026-07: the store continues after an append with unknown outcome",
    Config(ambiguous_append="continues"),
)
