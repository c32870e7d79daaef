-------------------------------- MODULE TxnLog --------------------------------
(*******************************************************************************)
(* Transaction log of a coordinator: requests, batches, failures, crashes and  *)
(* replay (PIP-160, PIP-31, PIP-54).                                           *)
(*                                                                             *)
(* Twin of model/txn_log: the same actions and settings, equal states and      *)
(* steps.  Models MLTransactionMetadataStore, MLTransactionLogImpl and the     *)
(* deletions of the log cursor (ManagedCursorImpl).                            *)
(*                                                                             *)
(* Step grain: one request, one flush, one completion of a ledger write, one   *)
(* call or failure of the managed ledger or cursor, one restart, one entry or  *)
(* the end of a replay, or one advance of the clock.                           *)
(*                                                                             *)
(* A state is a canonical state of the model:                                  *)
(*   entries     numbered from 0, beginning with the first that is not trimmed *)
(*   record positions  <<entry, batch index>>, both from 0                     *)
(*   masks       sets                                                          *)
(*   deletions   [first_unacked, deleted, partial]: the first entry after the  *)
(*               mark-delete position, the deleted entries from there on, and  *)
(*               a set of [entry, remaining]: the records of a partially       *)
(*               deleted entry that are not deleted                            *)
(*   ids, times  counted from the first that a later step can refer to         *)
(*                                                                             *)
(* Not modelled: the query for expired deadlines; what                         *)
(* TransactionRecoverTracker receives; and what the model does not model.      *)
(*******************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, and rules in which versions differ.  start_batching is the first value of the variable batching.  Config
  \* in model/txn_log/state.py explains them.
  start_batching, max_records, max_active, max_ranges, max_ack_sets, max_ranges_in_metadata, batch_index_acks,
  batch_index_deletion, partial_deletes_are_dirty, metadata_ack_sets_are_recovered, range_cap_is_exact,
  cursor_truncation, ambiguous_append, replay_removes_ended_first, incomplete_replay, empty_low_watermark,
  \* The values of the actions' arguments.
  timeout_ms, txn, op, name, to, by_ms, fail_write_durable, fence_durable, crash_durable, reopen_batching

VARIABLES
  status,              \* "replaying", "ready", "stopped" (by an append with unknown outcome), "failed" (unreadable)
  ledger,              \* "open", "write_failed" (WriteFailed), "closed" (ClosedLedger), "fenced" (by another broker)
  batching,            \* the flag as read when the store was opened
  deletions_succeed,   \* whether the cursor can delete and persist
  buffer,              \* the records of the unflushed batch; their requests are pending
  in_flight,           \* the entries submitted to the ledger and not completed
  ledgers,             \* the number of entries of each remaining ledger; the last one takes appends
  log,                 \* the entries that are not trimmed; an entry is a sequence of records
  ledger_property_id,  \* max_local_txn_id in the properties of the managed ledger
  txns,                \* txnMetaMap: a set of [id, status, partitions, subscriptions, deadline_ms, positions]
  last_id,             \* the last assigned id
  acks,                \* the deletions in memory
  durable,             \* the deletions as last persisted, which a crash recovers
  dirty,               \* whether the deletions must be persisted (ManagedCursorImpl.isDirty)
  read_position,       \* the replay continues at this entry, and skips deleted entries; 0 outside a replay
  now_ms,              \* the clock
  confirmed,           \* history: of each transaction the confirmed [id, status, partitions, subscriptions]
  confirmed_id,        \* history: the highest transaction id of a record whose request succeeded
  reported_watermark   \* history: the highest low watermark that was returned

vars == <<status, ledger, batching, deletions_succeed, buffer, in_flight, ledgers, log, ledger_property_id, txns,
          last_id, acks, durable, dirty, read_position, now_ms, confirmed, confirmed_id, reported_watermark>>

\* All variables, as one record.
Contents ==
  [status |-> status, ledger |-> ledger, batching |-> batching, deletions_succeed |-> deletions_succeed,
   buffer |-> buffer, in_flight |-> in_flight, ledgers |-> ledgers, log |-> log,
   ledger_property_id |-> ledger_property_id, txns |-> txns, last_id |-> last_id, acks |-> acks, durable |-> durable,
   dirty |-> dirty, read_position |-> read_position, now_ms |-> now_ms, confirmed |-> confirmed,
   confirmed_id |-> confirmed_id, reported_watermark |-> reported_watermark]

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(numbers) == CHOOSE n \in numbers : \A m \in numbers : n <= m
Last(list) == list[Len(list)]
Members(list) == {list[k] : k \in DOMAIN list}

-----------------------------------------------------------------------------
(* Transactions and records. *)

\* TransactionMetadataEntry.expected_status of an update, by its new status.
Expected == [COMMITTING |-> "OPEN", COMMITTED |-> "COMMITTING", ABORTING |-> "OPEN", ABORTED |-> "ABORTING"]
\* Whether a transaction with confirmed status `at` can end with status `end`.  The confirmed status may lag behind the
\* log: a COMMITTING record can be durable and not confirmed.  So a transaction with confirmed status OPEN can end.
MayEnd(at, end) == at \in {"OPEN", Expected[end], end}
HasEnded(each) == each \in {"COMMITTED", "ABORTED"}

\* A record (TransactionMetadataEntry).  Fields that its op does not use have their defaults; `to` is the new status
\* of an update.
RecordOf(id, kind, last) ==
  [txn |-> id, op |-> kind, last_id |-> last, name |-> 0, to |-> None, start_ms |-> 0, timeout_ms |-> 0]

OfId(id, ts) == {t \in ts : t.id = id}
TheOne(ts) == CHOOSE t \in ts : TRUE

\* TxnMetaImpl: applies a durable record, live and at replay.  The value is [txns, to_delete, result]: the map after the
\* record, the positions that the record deletes, and the result of its request.  A record that ends its transaction
\* removes the transaction from the map and deletes all of the transaction's positions.  A record without effect is
\* deleted.
ApplyRecord(ts, r, position, deadline) ==
  LET mine == OfId(r.txn, ts)
      t == TheOne(mine)
      positions == Append(t.positions, position)
      rejected == [txns |-> ts, to_delete |-> {position}, result |-> "invalid_status"]
      Done(then) == [txns |-> (ts \ mine) \cup {then}, to_delete |-> {}, result |-> "success"]
      new == [id |-> r.txn, status |-> "OPEN", partitions |-> {}, subscriptions |-> {}, deadline_ms |-> deadline,
              positions |-> <<position>>]
  IN IF r.op = "NEW" THEN Done(IF mine = {} THEN new ELSE [t EXCEPT !.positions = positions])
     ELSE IF mine = {} THEN rejected
     ELSE IF r.to # None THEN
       IF t.status # Expected[r.to] THEN rejected
       ELSE IF HasEnded(r.to) THEN [txns |-> ts \ mine, to_delete |-> Members(positions), result |-> "success"]
       ELSE Done([t EXCEPT !.status = r.to, !.positions = positions])
     ELSE IF t.status # "OPEN" THEN rejected
     ELSE IF r.op = "ADD_PARTITION" THEN Done([t EXCEPT !.partitions = @ \cup {r.name}, !.positions = positions])
     ELSE Done([t EXCEPT !.subscriptions = @ \cup {r.name}, !.positions = positions])

\* The history of a transaction that is confirmed to have status `at`.
HistoryOf(t, at) == [id |-> t.id, status |-> at, partitions |-> t.partitions, subscriptions |-> t.subscriptions]
WithConfirmed(ps, new) == {p \in ps : p.id # new.id} \cup {new}

-----------------------------------------------------------------------------
(* Deletions. *)

NoDeletions == [first_unacked |-> 0, deleted |-> {}, partial |-> {}]
Acks(first_unacked, deleted, partial) == [first_unacked |-> first_unacked, deleted |-> deleted, partial |-> partial]

EndOf(s) == Len(s.log)
SizeOf(s, n) == Len(s.log[n + 1])
AllOf(s, n) == 0..SizeOf(s, n) - 1

IsDeleted(a, n) == n < a.first_unacked \/ n \in a.deleted
AckSetOf(a, n) == {p \in a.partial : p.entry = n}
\* The records of an entry that are not deleted.
RemainingIn(s, a, n) ==
  LET part == AckSetOf(a, n)
  IN IF IsDeleted(a, n) THEN {} ELSE IF part = {} THEN AllOf(s, n) ELSE TheOne(part).remaining

\* The first number from n on that is not in the set.
RECURSIVE NotIn(_, _)
NotIn(deleted, n) == IF n \in deleted THEN NotIn(deleted, n + 1) ELSE n

\* Advances the mark-delete position over deleted entries, and drops the deletions at or before this position.
WithMarkDeleteAdvanced(a) ==
  LET first_unacked == NotIn(a.deleted, a.first_unacked)
  IN Acks(first_unacked, {n \in a.deleted : n >= first_unacked}, {p \in a.partial : p.entry >= first_unacked})

\* Whether a store opened with this flag can delete single records of a batch.
DeletesBatchIndexes(batched) == batch_index_deletion = "always" \/ batch_index_acks \/ (batched /\ max_records > 1)

\* Deletes records by batch index; an entry is deleted with its last record.  Without batch index deletion, only
\* entries of one record are deleted.
AcksAfter(s, positions) ==
  LET a == s.acks
      hit == {n \in {p[1] : p \in positions} :
                ~IsDeleted(a, n) /\ (SizeOf(s, n) = 1 \/ DeletesBatchIndexes(s.batching))}
      Remaining(n) == {i \in RemainingIn(s, a, n) : <<n, i>> \notin positions}
      gone == {n \in hit : Remaining(n) = {}}
  IN Acks(a.first_unacked, a.deleted \cup gone,
          {p \in a.partial : p.entry \notin hit} \cup {[entry |-> n, remaining |-> Remaining(n)] : n \in hit \ gone})

\* MLTransactionLogImpl.deletePosition: deletes records in memory, if the cursor can.
DeletePositions(s, positions) ==
  LET Ended(a) == IF a = s.acks THEN s
                  ELSE [s EXCEPT !.acks = WithMarkDeleteAdvanced(a),
                                 !.dirty = @ \/ partial_deletes_are_dirty \/ a.deleted # {}]
  IN IF positions = {} \/ ~s.deletions_succeed THEN s ELSE With(AcksAfter(s, positions), Ended)

-----------------------------------------------------------------------------
(* Persisted deletions. *)

RECURSIVE SumTo(_, _)
SumTo(ls, k) == IF k = 0 THEN 0 ELSE ls[k] + SumTo(ls, k - 1)

\* The first entries of the ranges of deleted entries; a range ends with its ledger.
RangeStarts(ls, deleted) ==
  {n \in deleted : n - 1 \notin deleted \/ \E k \in 1..Len(ls) : ls[k] > 0 /\ n = SumTo(ls, k - 1)}

\* The number of ranges that one PositionInfo holds.  In master of 2026-07, it is one more than the cap.
MaxRanges == IF range_cap_is_exact THEN max_ranges ELSE max_ranges + 1

\* The deletions with the lowest ranges and the lowest ack sets, each up to its cap.
Truncated(ls, a) ==
  Acks(a.first_unacked,
       {n \in a.deleted : Cardinality({first \in RangeStarts(ls, a.deleted) : first <= n}) <= MaxRanges},
       {p \in a.partial : Cardinality({q \in a.partial : q.entry < p.entry}) < max_ack_sets})

\* The kept deletions that are below the first entry that lost a deletion.
PrefixOf(a, kept) ==
  LET lost == (a.deleted \ kept.deleted) \cup {p.entry : p \in a.partial \ kept.partial}
      limit == Least(lost)
  IN IF lost = {} THEN kept
     ELSE Acks(kept.first_unacked, {n \in kept.deleted : n < limit}, {p \in kept.partial : p.entry < limit})

\* The deletions that one PositionInfo holds: all, or those below some entry.  In master of 2026-07 (cursor_truncation
\* "independent"), they are the lowest ranges and the lowest ack sets.
CursorSnapshot(s) ==
  LET Kept(kept) == IF cursor_truncation = "independent" THEN kept ELSE PrefixOf(s.acks, kept)
  IN With(Truncated(s.ledgers, s.acks), Kept)

\* The deletions that a recovery reads after a clean close.  If the ledger is fenced or deletions fail, the close
\* persists nothing.  If memory has few ranges, or max_ranges is 0, the metadata store takes the deletions.  A recovery
\* reads ack sets from the metadata store only with metadata_ack_sets_are_recovered.
ClosedCursor(s) ==
  LET Kept(kept) ==
        IF /\ ~metadata_ack_sets_are_recovered
           /\ max_ranges = 0 \/ Cardinality(RangeStarts(s.ledgers, s.acks.deleted)) <= max_ranges_in_metadata
        THEN [kept EXCEPT !.partial = {}] ELSE kept
  IN IF s.ledger = "fenced" \/ ~s.deletions_succeed THEN s.durable ELSE With(CursorSnapshot(s), Kept)

-----------------------------------------------------------------------------
(* Requests.  The value of a step has the next state, the completions of requests, and whether the step is accepted. *)

Accepted(s, completions) == [s |-> s, completions |-> completions, is_accepted |-> TRUE]
Rejected(s) == [s |-> s, completions |-> <<>>, is_accepted |-> FALSE]
CompletionOf(r, result) == [txn |-> r.txn, op |-> r.op, result |-> result]
CompleteAll(entry, result) == [k \in DOMAIN entry |-> CompletionOf(entry[k], result)]
RECURSIVE CompleteEvery(_, _)
CompleteEvery(entries, result) ==
  IF entries = <<>> THEN <<>> ELSE CompleteAll(Head(entries), result) \o CompleteEvery(Tail(entries), result)

\* Opens a new ledger, which replaces an empty last ledger, and writes the last assigned id to the properties of the
\* managed ledger.
WithNewLedger(s) ==
  [s EXCEPT !.ledger = "open", !.ledgers = IF Last(@) > 0 THEN Append(@, 0) ELSE @, !.ledger_property_id = s.last_id]

\* Submits an entry, after creating a ledger if needed.  A ledger in state "fenced" or "write_failed" fails the
\* entry at once; the entry is not in the log.
Submit(s, entry) ==
  CASE s.ledger = "fenced" -> Accepted(s, CompleteAll(entry, "fenced"))
    [] s.ledger = "write_failed" -> Accepted([s EXCEPT !.ledger = "closed"], CompleteAll(entry, "not_written"))
    [] s.ledger = "closed" -> Accepted([WithNewLedger(s) EXCEPT !.in_flight = Append(@, entry)], <<>>)
    [] OTHER -> Accepted([s EXCEPT !.in_flight = Append(@, entry)], <<>>)

FlushBuffer(s) == Submit([s EXCEPT !.buffer = <<>>], s.buffer)

\* Adds a record to the batch, and flushes a full batch.  Without batching, the record is an entry of its own.
AppendRecord(s, r) ==
  LET joined == [s EXCEPT !.buffer = Append(@, r)]
  IN IF ~(s.batching /\ max_records > 1) THEN Submit(s, <<r>>)
     ELSE IF Len(joined.buffer) >= max_records THEN FlushBuffer(joined) ELSE Accepted(joined, <<>>)

\* newTransaction: assigns the next id and appends a NEW record.
AfterNew(s, timeout) ==
  LET id == s.last_id + 1
  IN IF s.status # "ready" \/ (max_active > 0 /\ Cardinality(s.txns) >= max_active) THEN Rejected(s)
     ELSE AppendRecord([s EXCEPT !.last_id = id],
                   [RecordOf(id, "NEW", id) EXCEPT !.start_ms = s.now_ms, !.timeout_ms = timeout])

\* addProducedPartitionToTxn, addAckedPartitionToTxn.
AfterParticipant(s, id, kind, n) ==
  IF s.status # "ready" \/ OfId(id, s.txns) = {} THEN Rejected(s)
  ELSE AppendRecord(s, [RecordOf(id, kind, s.last_id) EXCEPT !.name = n])

\* updateTxnStatus.  An update to the current status succeeds without a record.
AfterUpdate(s, id, into) ==
  LET r == [RecordOf(id, "UPDATE", s.last_id) EXCEPT !.to = into]
  IN IF s.status # "ready" \/ OfId(id, s.txns) = {} THEN Rejected(s)
     ELSE IF TheOne(OfId(id, s.txns)).status = into THEN Accepted(s, <<CompletionOf(r, "success")>>)
     ELSE AppendRecord(s, r)

\* MLTransactionSequenceIdGenerator: the last assigned id that an opening recovers, from the last record of the last
\* ledger, or from the properties if the last ledger is empty.
RecoveredId(s) == IF Last(s.ledgers) > 0 THEN Last(Last(s.log)).last_id ELSE s.ledger_property_id

RecordsOf(entries) == UNION {Members(entries[k]) : k \in DOMAIN entries}
PendingRecords(s) == RecordsOf(s.in_flight) \cup Members(s.buffer)
NewRecords(records) == {r \in records : r.op = "NEW"}

\* getLowWaterMark: the id before that of the first ongoing transaction.  Without ongoing transactions, it is the last
\* assigned id that an opening recovers, or the id before the first pending NEW record if that is lower; in master of
\* 2026-07 (empty_low_watermark "zero"), it is 0.
LowWatermarkOf(s) ==
  IF s.txns # {} THEN Least({t.id : t \in s.txns}) - 1
  ELSE IF empty_low_watermark = "zero" THEN 0
  ELSE Least({RecoveredId(s)} \cup {r.txn - 1 : r \in NewRecords(PendingRecords(s))})
AfterLowWatermark(s) ==
  LET Next(w) == Accepted(IF w <= s.reported_watermark THEN s ELSE [s EXCEPT !.reported_watermark = w], <<>>)
  IN IF s.status # "ready" THEN Rejected(s) ELSE With(LowWatermarkOf(s), Next)

AfterFlush(s) == IF s.buffer = <<>> THEN Accepted(s, <<>>) ELSE FlushBuffer(s)

-----------------------------------------------------------------------------
(* Completions and failures of writes. *)

\* Adds a durable entry to the last ledger.
AppendToLog(s, entry) == [s EXCEPT !.log = Append(@, entry), !.ledgers = [@ EXCEPT ![Len(@)] = @ + 1]]

\* Applies a record that just became durable. The deadline of a new transaction is now plus its timeout.
WithEffect(s, r, position) ==
  LET Next(effect) ==
        LET after == OfId(r.txn, effect.txns)
            history == IF after # {} THEN HistoryOf(TheOne(after), TheOne(after).status)
                       ELSE HistoryOf(TheOne(OfId(r.txn, s.txns)), r.to)
            done == [s EXCEPT !.txns = effect.txns, !.confirmed = WithConfirmed(@, history),
                              !.confirmed_id = IF r.txn > @ THEN r.txn ELSE @]
        IN Accepted(DeletePositions(IF effect.result = "success" THEN done ELSE s, effect.to_delete),
                    <<CompletionOf(r, effect.result)>>)
  IN With(ApplyRecord(s.txns, r, position, s.now_ms + r.timeout_ms), Next)

\* Applies the records of an entry from index `at` on.
RECURSIVE WithEffects(_, _, _, _)
WithEffects(done, entry, n, at) ==
  LET Next(then) == WithEffects([then EXCEPT !.completions = done.completions \o @], entry, n, at + 1)
  IN IF at = Len(entry) THEN done ELSE With(WithEffect(done.s, entry[at + 1], <<n, at>>), Next)

AfterCompleteWrite(s) ==
  IF s.in_flight = <<>> THEN Rejected(s)
  ELSE WithEffects(Accepted(AppendToLog([s EXCEPT !.in_flight = Tail(@)], Head(s.in_flight)), <<>>), Head(s.in_flight),
                   EndOf(s), 0)

\* Empties the entries in flight; the first n are added to the log.
RECURSIVE KeepDurable(_, _)
KeepDurable(s, n) ==
  LET Next(then) == KeepDurable(then, n - 1)
  IN IF n = 0 \/ s.in_flight = <<>> THEN [s EXCEPT !.in_flight = <<>>]
     ELSE With(AppendToLog([s EXCEPT !.in_flight = Tail(@)], Head(s.in_flight)), Next)

\* All entries in flight fail with an unknown outcome; the first n are durable.  If entries were in flight, a ready
\* store stops or (master of 2026-07) continues.
FailInFlight(s, n) ==
  LET stops == ambiguous_append = "stops_store" /\ s.in_flight # <<>> /\ s.status = "ready"
      ended == KeepDurable(s, n)
  IN Accepted(IF stops THEN [ended EXCEPT !.status = "stopped"] ELSE ended, CompleteEvery(s.in_flight, "unknown"))

\* A write fails.  The first n entries in flight are nevertheless durable.
AfterFailWrite(s, n) ==
  IF s.in_flight = <<>> THEN Rejected(s) ELSE FailInFlight([s EXCEPT !.ledger = "write_failed"], n)

\* The creation of a ledger fails.  No entry in flight has reached the log.
AfterFailLedgerCreation(s) ==
  IF s.ledger # "open" THEN Rejected(s)
  ELSE Accepted([s EXCEPT !.in_flight = <<>>, !.ledger = IF s.in_flight = <<>> THEN "closed" ELSE "write_failed"],
             CompleteEvery(s.in_flight, "not_written"))

\* Another broker fences the ledger.
AfterFence(s, n) == IF s.ledger = "fenced" THEN Rejected(s) ELSE FailInFlight([s EXCEPT !.ledger = "fenced"], n)

\* Until the store is reopened, the cursor neither deletes nor persists.
AfterBreakCursor(s) ==
  IF s.deletions_succeed THEN Accepted([s EXCEPT !.deletions_succeed = FALSE], <<>>) ELSE Rejected(s)

-----------------------------------------------------------------------------
(* Ledgers and the persisted cursor. *)

AfterRoll(s) == IF s.ledger # "open" \/ Last(s.ledgers) = 0 THEN Rejected(s) ELSE Accepted(WithNewLedger(s), <<>>)

Shifted(a, by) ==
  Acks(a.first_unacked - by, {n - by : n \in a.deleted},
       {[entry |-> p.entry - by, remaining |-> p.remaining] : p \in a.partial})

\* The number of ledgers whose entries are all at or before the persisted mark-delete position, without the last ledger.
Trimmable(s) ==
  Cardinality({k \in 1..Len(s.ledgers) - 1 : \A j \in 1..k : SumTo(s.ledgers, j) <= s.durable.first_unacked})

\* Deletes the trimmable ledgers.  Entries are renumbered from the first remaining one.
AfterTrim(s) ==
  LET count == Trimmable(s)
      by == SumTo(s.ledgers, count)
      entries == SubSeq(s.log, by + 1, Len(s.log))
      ids == {r.txn : r \in RecordsOf(entries)}
      Moved(t) == [t EXCEPT !.positions = [k \in DOMAIN t.positions |-> <<t.positions[k][1] - by, t.positions[k][2]>>]]
  IN IF count = 0 THEN Accepted(s, <<>>)
     ELSE Accepted([s EXCEPT !.ledgers = SubSeq(@, count + 1, Len(@)), !.log = entries,
                             !.ledger_property_id = s.last_id,
                             !.confirmed = {p \in @ : ~HasEnded(p.status) \/ p.id \in ids},
                             !.txns = {Moved(t) : t \in @}, !.acks = Shifted(@, by), !.durable = Shifted(@, by),
                             !.read_position = IF @ = 0 THEN 0 ELSE @ - by],
                   <<>>)

\* A dirty cursor persists its deletions.
AfterPersist(s) ==
  IF s.ledger = "fenced" \/ ~s.deletions_succeed THEN Rejected(s)
  ELSE Accepted(IF s.dirty THEN [s EXCEPT !.durable = CursorSnapshot(s), !.dirty = FALSE] ELSE s, <<>>)

-----------------------------------------------------------------------------
(* Restart and replay. *)

\* A store just opened on its log, with the persisted deletions `found`: txnMetaMap is empty, and the replay starts
\* after the mark-delete position.
OpenedStore(s, found, batched) ==
  LET Read(a) ==
        [s EXCEPT !.status = "replaying", !.ledger = "open", !.batching = batched, !.deletions_succeed = TRUE,
                  !.buffer = <<>>, !.in_flight = <<>>, !.ledgers = IF Last(@) > 0 THEN Append(@, 0) ELSE @,
                  !.ledger_property_id = RecoveredId(s), !.txns = {}, !.last_id = RecoveredId(s), !.acks = a,
                  !.durable = found, !.dirty = FALSE, !.read_position = a.first_unacked]
  IN With(WithMarkDeleteAdvanced(IF DeletesBatchIndexes(batched) THEN found ELSE [found EXCEPT !.partial = {}]), Read)

\* A clean close, then an opening with this flag.
AfterReopen(s, batched) ==
  IF s.in_flight # <<>> THEN Rejected(s)
  ELSE Accepted(OpenedStore(s, ClosedCursor(s), batched), CompleteAll(s.buffer, "closed"))

\* A crash, then an opening.  The first n entries in flight are durable.
AfterCrash(s, n) ==
  LET Lost(remaining) == Accepted(OpenedStore(remaining, remaining.durable, remaining.batching), <<>>)
  IN With(KeepDurable(s, n), Lost)

\* The next undeleted entry, or the end of the log.
NextEntry(s) ==
  LET there == {n \in s.read_position..EndOf(s) - 1 : ~IsDeleted(s.acks, n)}
  IN IF there = {} THEN EndOf(s) ELSE Least(there)
\* Whether the replay has read the whole log.
IsRead(s) == NextEntry(s) = EndOf(s)

\* The history after replayed record r ended a transaction, if the confirmed status of the transaction allows that end.
WithEnd(ps, r) ==
  {IF p.id = r.txn /\ MayEnd(p.status, r.to) THEN [p EXCEPT !.status = r.to] ELSE p : p \in ps}

\* handleMetadataEntry: applies one record at replay; the deadline is start time plus timeout.  In master of 2026-07
\* (~replay_removes_ended_first), an ended transaction stays in txnMetaMap if its records cannot be deleted.
ReplayRecord(s, r, position) ==
  LET Done(effect) ==
        LET is_end == effect.result = "success" /\ HasEnded(r.to)
            t == TheOne(OfId(r.txn, s.txns))
            stays == is_end /\ ~replay_removes_ended_first /\ ~s.deletions_succeed
            ts == IF stays THEN effect.txns \cup {[t EXCEPT !.status = r.to, !.positions = Append(@, position)]}
                  ELSE effect.txns
        IN DeletePositions([s EXCEPT !.txns = ts, !.confirmed = IF is_end THEN WithEnd(@, r) ELSE @], effect.to_delete)
  IN With(ApplyRecord(s.txns, r, position, r.start_ms + r.timeout_ms), Done)

\* Applies the records of an entry that were undeleted when it was read.
RECURSIVE ReplayedFrom(_, _, _, _)
ReplayedFrom(s, remaining, n, at) ==
  LET Next(then) == ReplayedFrom(then, remaining, n, at + 1)
  IN IF at = SizeOf(s, n) THEN s
     ELSE With(IF at \in remaining THEN ReplayRecord(s, s.log[n + 1][at + 1], <<n, at>>) ELSE s, Next)
Replayed(s) ==
  LET Next(n) == ReplayedFrom([s EXCEPT !.read_position = n + 1], RemainingIn(s, s.acks, n), n, 0)
  IN With(NextEntry(s), Next)

\* replayComplete: the store is ready, and the recovered transactions are confirmed.
Completed(s) ==
  LET ended == {p \in s.confirmed : HasEnded(p.status) /\ OfId(p.id, s.txns) = {}}
  IN [s EXCEPT !.status = "ready", !.read_position = 0,
               !.confirmed = ended \cup {HistoryOf(t, t.status) : t \in s.txns}]

AfterReplay(s) == IF s.status # "replaying" \/ IsRead(s) THEN Rejected(s) ELSE Accepted(Replayed(s), <<>>)
AfterCompleteReplay(s) == IF s.status # "replaying" \/ ~IsRead(s) THEN Rejected(s) ELSE Accepted(Completed(s), <<>>)

\* A read fails, and the store fails to open.  In master of 2026-07 (incomplete_replay "reports_complete"), the store is
\* ready with some of its transactions.
AfterFailRead(s) ==
  IF s.status # "replaying" THEN Rejected(s)
  ELSE Accepted(IF incomplete_replay = "reports_complete" THEN Completed(s)
             ELSE [s EXCEPT !.status = "failed", !.read_position = 0], <<>>)

-----------------------------------------------------------------------------
(* The canonical form, and the actions.  A rejected request is no step. *)

\* The first id that a later step can refer to.  With empty_low_watermark "zero" it is 0, so ids are not renumbered: the
\* low watermark 0 would not change with them.
FirstId(s) ==
  IF empty_low_watermark = "zero" THEN 0
  ELSE Least({r.txn : r \in RecordsOf(s.log) \cup PendingRecords(s)} \cup {t.id : t \in s.txns}
             \cup {p.id : p \in s.confirmed} \cup {s.last_id + 1, s.ledger_property_id + 1})
FirstTime(s) == Least({r.start_ms : r \in NewRecords(RecordsOf(s.log) \cup PendingRecords(s))} \cup {s.now_ms})

\* Subtracts `ids` from every id, and `time` from every time.
Renumbered(s, ids, time) ==
  LET OfRecord(r) == [r EXCEPT !.txn = @ - ids, !.last_id = @ - ids, !.start_ms = IF r.op = "NEW" THEN @ - time ELSE 0]
      OfEntry(entry) == [k \in DOMAIN entry |-> OfRecord(entry[k])]
      OfEntries(entries) == [k \in DOMAIN entries |-> OfEntry(entries[k])]
      \* -1 stands for every id before the first.
      OrLess(n) == IF n - ids < -1 THEN -1 ELSE n - ids
  IN IF ids = 0 /\ time = 0 THEN s
     ELSE [s EXCEPT !.buffer = OfEntry(@), !.in_flight = OfEntries(@), !.log = OfEntries(@),
                    !.ledger_property_id = @ - ids,
                    !.txns = {[t EXCEPT !.id = @ - ids, !.deadline_ms = @ - time] : t \in @}, !.last_id = @ - ids,
                    !.now_ms = @ - time, !.confirmed = {[p EXCEPT !.id = @ - ids] : p \in @},
                    !.confirmed_id = OrLess(@), !.reported_watermark = OrLess(@)]

\* Makes the canonical form of the result of an accepted step the next state.
Become(after) ==
  \E done \in {after} : done.is_accepted /\ \E s \in {Renumbered(done.s, FirstId(done.s), FirstTime(done.s))} :
    /\ status' = s.status
    /\ ledger' = s.ledger
    /\ batching' = s.batching
    /\ deletions_succeed' = s.deletions_succeed
    /\ buffer' = s.buffer
    /\ in_flight' = s.in_flight
    /\ ledgers' = s.ledgers
    /\ log' = s.log
    /\ ledger_property_id' = s.ledger_property_id
    /\ txns' = s.txns
    /\ last_id' = s.last_id
    /\ acks' = s.acks
    /\ durable' = s.durable
    /\ dirty' = s.dirty
    /\ read_position' = s.read_position
    /\ now_ms' = s.now_ms
    /\ confirmed' = s.confirmed
    /\ confirmed_id' = s.confirmed_id
    /\ reported_watermark' = s.reported_watermark

Init == /\ status = "ready"
        /\ ledger = "open"
        /\ batching = start_batching
        /\ deletions_succeed = TRUE
        /\ buffer = <<>>
        /\ in_flight = <<>>
        /\ ledgers = <<0>>
        /\ log = <<>>
        /\ ledger_property_id = -1
        /\ txns = {}
        /\ last_id = -1
        /\ acks = NoDeletions
        /\ durable = NoDeletions
        /\ dirty = FALSE
        /\ read_position = 0
        /\ now_ms = 0
        /\ confirmed = {}
        /\ confirmed_id = -1
        /\ reported_watermark = -1

NewTransaction == \E timeout \in timeout_ms : Become(AfterNew(Contents, timeout))
AddParticipant == \E id \in txn, kind \in op, n \in name : Become(AfterParticipant(Contents, id, kind, n))
UpdateStatus == \E id \in txn, into \in to : Become(AfterUpdate(Contents, id, into))
LowWatermark == Become(AfterLowWatermark(Contents))
\* The query for expired transactions.
Expired == UNCHANGED vars
AdvanceTime == \E by \in by_ms : Become(Accepted([Contents EXCEPT !.now_ms = @ + by], <<>>))
Flush == Become(AfterFlush(Contents))
CompleteWrite == Become(AfterCompleteWrite(Contents))
FailWrite == \E n \in fail_write_durable : Become(AfterFailWrite(Contents, n))
FailLedgerCreation == Become(AfterFailLedgerCreation(Contents))
Fence == \E n \in fence_durable : Become(AfterFence(Contents, n))
BreakCursor == Become(AfterBreakCursor(Contents))
RollLedger == Become(AfterRoll(Contents))
Trim == Become(AfterTrim(Contents))
Persist == Become(AfterPersist(Contents))
Reopen == \E batched \in reopen_batching : Become(AfterReopen(Contents, batched))
Crash == \E n \in crash_durable : Become(AfterCrash(Contents, n))
ReplayEntry == Become(AfterReplay(Contents))
CompleteReplay == Become(AfterCompleteReplay(Contents))
FailRead == Become(AfterFailRead(Contents))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Entries that are not trimmed; ledgers; assigned ids; entries in flight; milliseconds since the first NEW record.
EntriesAtMost(n) == Len(log) <= n
LedgersAtMost(n) == Len(ledgers) <= n
IdsAtMost(n) == last_id < n
InFlightAtMost(n) == Len(in_flight) <= n
LateAtMost(n) == now_ms <= n
=============================================================================
