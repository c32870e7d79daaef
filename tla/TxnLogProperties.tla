--------------------------- MODULE TxnLogProperties ---------------------------
(*****************************************************************************)
(* Properties of the coordinator's transaction log, under the names of       *)
(* invariants/txn_log: some of its invariants, and all of its liveness       *)
(* properties.  Only the twin has the properties of restarts and of the      *)
(* order of deletions, at the end.                                           *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
(*                                                                           *)
(* Most invariants compare the store with the transactions that the log      *)
(* describes (LoggedTransactions).  This module states the effects of        *)
(* records a second time: an error in the effects that TxnLog.tla states     *)
(* violates an invariant.  "Confirmed" means that the future of the request  *)
(* completed with success, or that a replay found the record.                *)
(*                                                                           *)
(* The order of deletions: a record that changed an ended transaction is     *)
(* deleted only if the transaction's NEW record is deleted.  The properties  *)
(* claim that this order holds in memory and in storage, and that it         *)
(* suffices: for every set of deleted records that respects the order, no    *)
(* ended transaction returns.                                                *)
(*****************************************************************************)
EXTENDS TxnLog

\* Whether Holds(result) for every failure of writes (InFailures), or for every reopening (InReopens).
InFailures(Holds(_)) ==
  /\ \A n \in fail_write_durable : Holds(AfterFailWrite(Contents, n))
  /\ \A n \in fence_durable : Holds(AfterFence(Contents, n))
  /\ Holds(AfterFailLedgerCreation(Contents))
InReopens(Holds(_)) == \A batched \in reopen_batching : Holds(AfterReopen(Contents, batched))
\* Whether Holds(state) for every step by which a store becomes ready.
InRecoveries(Holds(_)) ==
  LET Recovered(after) == after.is_accepted /\ after.s.status = "ready" => Holds(after.s)
  IN Recovered(AfterCompleteReplay(Contents)) /\ Recovered(AfterFailRead(Contents))

CanDelete == status = "ready" /\ deletions_succeed
Entries(s) == 0..EndOf(s) - 1

-----------------------------------------------------------------------------
(* The transactions as the log describes them, from its first record to its last. *)

\* The legal status transitions.
Transitions ==
  {<<"OPEN", "COMMITTING">>, <<"OPEN", "ABORTING">>, <<"COMMITTING", "COMMITTED">>, <<"ABORTING", "ABORTED">>}

\* Whether transitions lead from one status to the other.
MayReach(before, after) ==
  before = after \/ <<before, after>> \in Transitions
    \/ \E between \in {"COMMITTING", "ABORTING"} :
         <<before, between>> \in Transitions /\ <<between, after>> \in Transitions

\* The transaction that NEW record r at a position describes.
LoggedAtFirst(r, position) ==
  [id |-> r.txn, status |-> "OPEN", partitions |-> {}, subscriptions |-> {}, positions |-> <<position>>]

\* The transaction with one more of its records.  The transaction is unchanged if the record has no effect.
LoggedAfter(logged, r, position) ==
  LET more == [logged EXCEPT !.positions = Append(@, position)]
  IN CASE r.op = "NEW" -> more
       [] r.op = "UPDATE" -> IF <<logged.status, r.to>> \in Transitions THEN [more EXCEPT !.status = r.to] ELSE logged
       [] r.op = "ADD_PARTITION" ->
            IF logged.status = "OPEN" THEN [more EXCEPT !.partitions = @ \cup {r.name}] ELSE logged
       [] OTHER -> IF logged.status = "OPEN" THEN [more EXCEPT !.subscriptions = @ \cup {r.name}] ELSE logged

\* The transactions `found` with the records from index `at` of entry n on.
RECURSIVE LoggedFrom(_, _, _, _)
LoggedFrom(s, found, n, at) ==
  LET r == s.log[n + 1][at + 1]
      mine == OfId(r.txn, found)
      Next(then) == LoggedFrom(s, then, n, at + 1)
  IN IF n = EndOf(s) THEN found
     ELSE IF at = SizeOf(s, n) THEN LoggedFrom(s, found, n + 1, 0)
     ELSE IF mine # {} THEN With((found \ mine) \cup {LoggedAfter(TheOne(mine), r, <<n, at>>)}, Next)
     ELSE With(IF r.op = "NEW" THEN found \cup {LoggedAtFirst(r, <<n, at>>)} ELSE found, Next)
LoggedTransactions(s) == LoggedFrom(s, {}, 0, 0)

\* A transaction of txnMetaMap in the form of the log's transactions.
LoggedForm(t) ==
  [id |-> t.id, status |-> t.status, partitions |-> t.partitions, subscriptions |-> t.subscriptions,
   positions |-> t.positions]
Ongoing(logged) == {e \in logged : ~HasEnded(e.status)}
Ended(logged) == {e \in logged : HasEnded(e.status)}

-----------------------------------------------------------------------------
(* Deletions. *)

\* Whether a record is undeleted.
IsUndeleted(s, a, position) == position[2] \in RemainingIn(s, a, position[1])

\* The order of deletions: a record that changed an ended transaction is deleted only if the transaction's NEW record
\* is.
NewRecordDeletedFirst(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) :
    IsUndeleted(s, a, e.positions[1]) => \A position \in Members(e.positions) : IsUndeleted(s, a, position)

\* If a record that changed an ended transaction is durably deleted, so is the transaction's NEW record.  Otherwise a
\* replay after a crash could read the NEW record without the COMMITTED or ABORTED record, and the transaction would be
\* ongoing again.
NewRecordIsDurablyDeletedFirst == NewRecordDeletedFirst(Contents, durable)

-----------------------------------------------------------------------------
(* Recovery. *)

\* A ready store has exactly the ongoing transactions of the log, with their status, participants and positions.
ReadyStoreEqualsLog == status = "ready" => {LoggedForm(t) : t \in txns} = Ongoing(LoggedTransactions(Contents))

\* Recovery finds every confirmed transaction that has not ended, with all its confirmed participants.  The recovered
\* status is the confirmed one, or legal transitions lead from the confirmed status to the recovered one.
RecoveryPreservesConfirmedState ==
  LET IsKept(p, t) == /\ p.partitions \subseteq t.partitions
                      /\ p.subscriptions \subseteq t.subscriptions
                      /\ MayReach(p.status, t.status)
      Kept(s) == \A p \in confirmed : HasEnded(p.status) \/ \E t \in OfId(p.id, s.txns) : IsKept(p, t)
  IN InRecoveries(Kept)

\* A transaction whose COMMITTED or ABORTED status was confirmed is not ongoing after any later complete replay.
EndedTransactionIsNotRecovered ==
  LET after == AfterCompleteReplay(Contents)
  IN after.is_accepted => \A p \in confirmed : HasEnded(p.status) => Ongoing(OfId(p.id, after.s.txns)) = {}

\* The records of the log never lead to the opposite of a confirmed commit or abort decision.  The log may contain a
\* record of the opposite decision that has no effect.
ConfirmedDecisionIsFinal ==
  LET OutcomeOf(at) == IF at = "OPEN" THEN {} ELSE IF at \in {"COMMITTING", "COMMITTED"} THEN {"commit"} ELSE {"abort"}
      logged == LoggedTransactions(Contents)
  IN \A p \in confirmed : \A e \in OfId(p.id, logged) : Cardinality(OutcomeOf(p.status) \cup OutcomeOf(e.status)) < 2

\* The map of a ready store (`txnMetaMap`) has no COMMITTED or ABORTED transaction, even if deletions fail.
EndedTransactionLeavesTheMap == status = "ready" => Ended(txns) = {}

\* RecoveredBy: the transactions that a replay finds, without their deadlines.  At replay, a deadline counts from the
\* start time of the transaction; before the crash, it counted from the completion of the NEW record.
RECURSIVE ReplayedToTheEnd(_)
ReplayedToTheEnd(s) == IF IsRead(s) THEN s ELSE With(Replayed(s), ReplayedToTheEnd)
WithoutDeadlines(ts) == {[t EXCEPT !.deadline_ms = 0] : t \in ts}
RecoveredBy(opened) == WithoutDeadlines(ReplayedToTheEnd(opened).txns)

-----------------------------------------------------------------------------
(* Ids, low watermark, deadlines. *)

\* In a ready store, every ongoing transaction is above every low watermark that was returned.
LowWatermarkIsBelowOngoingTransactions == status = "ready" => \A t \in txns : t.id > reported_watermark

-----------------------------------------------------------------------------
(* Statuses. *)

\* After an append with unknown outcome (it failed, but may be durable), the store stops until it is reopened.
StoreStopsAfterAmbiguousAppend ==
  LET Stopped(after) ==
        (\E k \in DOMAIN after.completions : after.completions[k].result = "unknown") => after.s.status = "stopped"
  IN InFailures(Stopped)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* Every pending request completes.
\* Fair: Flush, CompleteWrite.  The buffer is flushed, and the ledger completes each write.
EveryRequestCompletes == buffer = <<>> /\ in_flight = <<>>

\* Every replay completes.
\* Fair: ReplayEntry, CompleteReplay.  The log is finite, and no record is appended during a replay.
ReplayTerminates == status # "replaying"

\* Every replay ends if its reads fail.
\* Fair: FailRead.
FailingReplayTerminates == status # "replaying"

\* Without ongoing transactions, every ledger but the last is trimmed, if the store is ready, the cursor can delete, and
\* the ledger is not fenced.
\* Fair: Persist, Trim.  All records of ended transactions are deleted, so the persisted mark-delete position reaches
\* the last ledger.
FullyDeletedLedgersAreTrimmed == CanDelete /\ ledger # "fenced" /\ txns = {} => Len(ledgers) = 1

-----------------------------------------------------------------------------
(* Restarts. *)

\* A crash and a clean restart recover the transactions that the store has.  Lost deletions and lost unconfirmed
\* requests do not matter.
RestartFindsSameTransactions ==
  LET Same(after) == after.is_accepted => RecoveredBy(after.s) = WithoutDeadlines(txns)
  IN status = "ready" => Same(AfterCrash(Contents, 0)) /\ InReopens(Same)

-----------------------------------------------------------------------------
(* The order of deletions. *)

\* The deletions in memory respect the order.  NewRecordIsDurablyDeletedFirst states this for persisted ones.
DeletionOrderHoldsInMemory == NewRecordDeletedFirst(Contents, acks)

\* The positions of all records (Positions); the deletions of a cursor that has deleted exactly the records at some of
\* these positions (DeletionOf).
Positions(s) == UNION {{<<n, i>> : i \in AllOf(s, n)} : n \in Entries(s)}
DeletionOf(s, positions) ==
  LET Remaining(n) == {i \in AllOf(s, n) : <<n, i>> \notin positions}
      parts == {n \in Entries(s) : Remaining(n) # {} /\ Remaining(n) # AllOf(s, n)}
  IN WithMarkDeleteAdvanced(Acks(0, {n \in Entries(s) : Remaining(n) = {}},
                                 {[entry |-> n, remaining |-> Remaining(n)] : n \in parts}))

\* Whether a store that recovers the deletions `a` finds no ended transaction.
NoEndedTransactionReturns(s, a) ==
  LET Found(opened) == {t.id : t \in ReplayedToTheEnd(opened).txns}
  IN With(OpenedStore(s, a, s.batching), Found) \cap {e.id : e \in Ended(LoggedTransactions(s))} = {}

\* For every set of deleted records: if it respects the order of deletions, no ended transaction returns.
DeletionOrderImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    LET a == DeletionOf(Contents, positions)
    IN NewRecordDeletedFirst(Contents, a) => NoEndedTransactionReturns(Contents, a)

\* Two controls, which TLC must find violated.  AnyDeletionImpliesNoReturn claims that no order is needed.
\* LastRecordOrderImpliesNoReturn claims that it suffices to delete the COMMITTED or ABORTED record after the NEW
\* record.
NewRecordDeletedBeforeLast(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) : IsUndeleted(s, a, e.positions[1]) => IsUndeleted(s, a, Last(e.positions))
AnyDeletionImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    NoEndedTransactionReturns(Contents, DeletionOf(Contents, positions))
LastRecordOrderImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    LET a == DeletionOf(Contents, positions)
    IN NewRecordDeletedBeforeLast(Contents, a) => NoEndedTransactionReturns(Contents, a)
=============================================================================
