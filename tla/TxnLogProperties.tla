--------------------------- MODULE TxnLogProperties ---------------------------
(***************************************************************************)
(* Properties of the coordinator's transaction log: the twin of            *)
(* invariants/txn_log.py, under the same names.                            *)
(*                                                                         *)
(* A property about steps is stated as an invariant: from every reached    *)
(* state, each action with each argument preserves it. Most compare the    *)
(* store with an independent replay of the remaining log. The transition   *)
(* rules are restated below, so an error in TxnLog's rules cannot hide.    *)
(* "Confirmed" means that the caller's future completed with success.      *)
(*                                                                         *)
(* The last part is about the order of deletions: it holds in memory and   *)
(* in storage, and it is the reason why no ended transaction returns, for  *)
(* every set of deleted records.                                           *)
(***************************************************************************)
EXTENDS TxnLog

InFailures(Holds(_)) ==
  /\ \A n \in fail_write_durable : Holds(AfterFailWrite(Contents, n))
  /\ \A n \in fence_durable : Holds(AfterFence(Contents, n))
  /\ Holds(AfterFailLedgerCreation(Contents))
InReopens(Holds(_)) == \A batched \in reopen_batching : Holds(AfterReopen(Contents, batched))
\* A store becomes ready.
InRecoveries(Holds(_)) ==
  LET Recovered(after) == after.is_taken /\ after.s.status = "ready" => Holds(after.s)
  IN Recovered(AfterCompleteReplay(Contents)) /\ Recovered(AfterFailRead(Contents))

CanDelete == status = "ready" /\ cursor_works
Entries(s) == 0..EndOf(s) - 1

-----------------------------------------------------------------------------
(* The transactions as the log describes them, from its first record to its last. *)

\* The legal status transitions.
Transitions == {<<"OPEN", "COMMITTING">>, <<"OPEN", "ABORTING">>, <<"COMMITTING", "COMMITTED">>, <<"ABORTING",
      "ABORTED">>}
MayReach(before, after) ==
  before = after \/ <<before, after>> \in Transitions
    \/ \E between \in {"COMMITTING", "ABORTING"} : <<before, between>> \in Transitions /\ <<between,
          after>> \in Transitions

Begun(r, position) == [id |-> r.txn, status |-> "OPEN", partitions |-> {}, subscriptions |-> {},
      positions |-> <<position>>]

\* The logged transaction after one more of its records; unchanged if the record has no effect.
LoggedAfter(logged, r, position) ==
  LET more == [logged EXCEPT !.positions = Append(@, position)]
  IN CASE r.op = "NEW" -> more
       [] r.op = "UPDATE" -> IF <<logged.status, r.to>> \in Transitions THEN [more EXCEPT !.status = r.to] ELSE logged
       [] r.op = "ADD_PARTITION" -> IF logged.status = "OPEN" THEN [more EXCEPT !.partitions = @
             \cup {r.name}] ELSE logged
       [] OTHER -> IF logged.status = "OPEN" THEN [more EXCEPT !.subscriptions = @ \cup {r.name}] ELSE logged

RECURSIVE LoggedFrom(_, _, _, _)
LoggedFrom(s, found, n, at) ==
  LET r == s.log[n + 1][at + 1]
      mine == OfId(r.txn, found)
      Next(then) == LoggedFrom(s, then, n, at + 1)
  IN IF n = EndOf(s) THEN found
     ELSE IF at = SizeOf(s, n) THEN LoggedFrom(s, found, n + 1, 0)
     ELSE IF mine # {} THEN With((found \ mine) \cup {LoggedAfter(TheOne(mine), r, <<n, at>>)}, Next)
     ELSE With(IF r.op = "NEW" THEN found \cup {Begun(r, <<n, at>>)} ELSE found, Next)
LoggedTransactions(s) == LoggedFrom(s, {}, 0, 0)

LoggedForm(t) == [id |-> t.id, status |-> t.status, partitions |-> t.partitions, subscriptions |-> t.subscriptions,
              positions |-> t.positions]
Ongoing(logged) == {e \in logged : ~HasEnded(e.status)}
Ended(logged) == {e \in logged : HasEnded(e.status)}

-----------------------------------------------------------------------------
(* Deletions. *)

\* An entry is deleted if and only if all its records are deleted. In a ready store, those are exactly the records that
\* belong to no ongoing transaction.
EntryIsDeletedIffAllItsRecordsAre ==
  LET positions == UNION {Members(t.positions) : t \in txns}
      Needed(n) == {i \in AllOf(Contents, n) : <<n, i>> \in positions}
  IN CanDelete => \A n \in Entries(Contents) : /\ RemainingIn(Contents, acks, n) = Needed(n)
                                              /\ IsDeleted(acks, n) = (Needed(n) = {})

\* Whether a record is undeleted.
IsLeftIn(s, a, position) == position[2] \in RemainingIn(s, a, position[1])
EndedTransactionRecordsAreDeleted ==
  LET s == AfterCompleteWrite(Contents).s
      IsGone(t) == \A position \in Members(t.positions) : ~IsLeftIn(s, s.acks, position)
  IN s.cursor_works => \A t \in txns : OfId(t.id, s.txns) # {} \/ IsGone(t)

\* A record of an ended transaction is deleted only if the transaction's NEW record is.
NewRecordDeletedFirst(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) :
    IsLeftIn(s, a, e.positions[1]) => \A position \in Members(e.positions) : IsLeftIn(s, a, position)
RecordIsDurablyDeletedOnlyAfterNewRecord == NewRecordDeletedFirst(Contents, durable)

\* Whether one persisted PositionInfo of the cursor can hold all deletions. A deleted range that spans two ledgers is
\* stored as two ranges.
FitsInPositionInfo == /\ Cardinality({n \in acks.deleted : n - 1 \notin acks.deleted
                                            \/ \E k \in DOMAIN ledgers : n = SumTo(ledgers, k - 1)}) <= max_ranges
        /\ Cardinality(acks.partial) <= max_batch_records
CleanCursorHasPersistedAllDeletions ==
  ~dirty /\ FitsInPositionInfo => \A n \in Entries(Contents) : RemainingIn(Contents, durable, n)
        \subseteq RemainingIn(Contents, acks, n)

\* A clean close and reopen with batching preserves all deletions, provided that they fit in one PositionInfo.
CleanClosePreservesDeletions ==
  LET after == AfterReopen(Contents, TRUE)
  IN TRUE \in reopen_batching /\ after.is_taken /\ FitsInPositionInfo /\ cursor_works /\ ledger # "fenced"
        => after.s.acks = acks

\* A PositionInfo that cannot hold all deletions holds every deletion below some entry, and none from it on.
PersistedCursorRecordIsPrefixOfDeletions ==
  LET s == AfterPersist(Contents).s
      Found(n) == RemainingIn(s, s.durable, n)
      Lost == {n \in Entries(s) : Found(n) # RemainingIn(s, s.acks, n)}
  IN dirty /\ ~s.dirty => \A m \in Lost : \A n \in Entries(s) : n >= m => Found(n) = AllOf(s, n)

-----------------------------------------------------------------------------
(* Recovery. *)

\* A ready store has exactly the ongoing transactions of the log, with their status, participants and positions.
ReadyStoreEqualsLog == status = "ready" => {LoggedForm(t) : t \in txns} = Ongoing(LoggedTransactions(Contents))

\* Recovery finds every confirmed transaction that has not ended, with all its confirmed participants. Its status is
\* the confirmed one or one reachable from it.
RecoveryPreservesAcknowledgedState ==
  LET IsKept(p, t) == /\ p.partitions \subseteq t.partitions
                      /\ p.subscriptions \subseteq t.subscriptions
                      /\ MayReach(p.status, t.status)
      Kept(s) == \A p \in acknowledged : HasEnded(p.status) \/ \E t \in OfId(p.id, s.txns) : IsKept(p, t)
  IN InRecoveries(Kept)

\* A transaction whose COMMITTED or ABORTED status was confirmed is not ongoing after any later replay.
EndedTransactionIsNotRecovered ==
  LET after == AfterCompleteReplay(Contents)
  IN after.is_taken => \A p \in acknowledged : HasEnded(p.status) => Ongoing(OfId(p.id, after.s.txns)) = {}

\* The log never contains the opposite of a confirmed commit or abort decision. No restart can then find another
\* decision.
AcknowledgedDecisionIsFinal ==
  LET Way(at) == IF at = "OPEN" THEN {} ELSE IF at \in {"COMMITTING", "COMMITTED"} THEN {"commit"} ELSE {"abort"}
      logged == LoggedTransactions(Contents)
  IN \A p \in acknowledged : \A e \in OfId(p.id, logged) : Cardinality(Way(p.status) \cup Way(e.status)) < 2

\* The map of a ready store (txnMetaMap) has no COMMITTED or ABORTED transaction, even if the cursor is broken.
EndedTransactionLeavesTheMap == status = "ready" => Ended(txns) = {}

\* After a replay with a working cursor, no undeleted record belongs to an unknown transaction.
ReplayDeletesOrphanRecords ==
  LET after == AfterCompleteReplay(Contents)
      s == after.s
  IN after.is_taken /\ s.cursor_works =>
       \A n \in Entries(s) : \A i \in RemainingIn(s, s.acks, n) : OfId(s.log[n + 1][i + 1].txn, s.txns) # {}

\* The result of a replay, without deadlines, which then count from the start time.
RECURSIVE ReplayedToTheEnd(_)
ReplayedToTheEnd(s) == IF IsRead(s) THEN s ELSE With(Replayed(s), ReplayedToTheEnd)
Bare(ts) == {[t EXCEPT !.deadline_ms = 0] : t \in ts}
FoundBy(opened) == Bare(ReplayedToTheEnd(opened).txns)

\* A store becomes ready only after reading its log to the end. A read that fails for good ends the replay.
StoreIsReadyOnlyAfterCompleteReplay ==
  LET Complete(s) == \A n \in read_position..Len(log) - 1 : RemainingIn(Contents, acks, n) = {}
      stopped == AfterFailRead(Contents)
  IN InRecoveries(Complete) /\ (stopped.is_taken => stopped.s.status # "replaying")

-----------------------------------------------------------------------------
(* Ids, low watermark, deadlines. *)

\* In a ready store, every ongoing transaction is above every low watermark that was returned.
LowWatermarkIsBelowOngoingTransactions == status = "ready" => \A t \in txns : t.id > reported_watermark

\* The low watermark never decreases. It is the highest id below every transaction that is ongoing or may begin. With
\* ongoing transactions, that is one below the first of them. Without, it is one below the lowest id that may still
\* begin: the first pending id, or the first id that a restart could assign.
LowWatermarkIsMonotoneAndMaximal ==
  LET ongoing_ids == {t.id : t \in txns}
      to_come == {r.txn : r \in NewRecords(PendingRecords(Contents))} \cup {RecoveredId(Contents) + 1}
      highest == Least(IF ongoing_ids = {} THEN to_come ELSE ongoing_ids) - 1
  IN status = "ready" => reported_watermark <= LowWatermarkOf(Contents) /\ LowWatermarkOf(Contents) = highest

-----------------------------------------------------------------------------
(* Statuses. *)

\* After an append with unknown outcome (it failed, but may be durable), the store stops until it is reopened.
StoreStopsAfterAmbiguousAppend ==
  LET Stopped(after) == (\E k \in DOMAIN after.completions : after.completions[k].result = "unknown")
        => after.s.status = "stopped"
  IN InFailures(Stopped)

-----------------------------------------------------------------------------
(* Liveness, under fairness of the named actions. *)

\* With fair flushes and write completions, every pending request completes.
EveryRequestCompletes == buffer = <<>> /\ in_flight = <<>>

\* With fair reads, every replay completes.
ReplayTerminates == status # "replaying"

\* With failing reads, every replay ends: the store fails to open.
FailingReplayTerminates == status # "replaying"

\* Without ongoing transactions and with fair cursor writes and trims, every ledger but the last is trimmed.
FullyDeletedLedgersAreTrimmed == CanDelete /\ ledger # "fenced" /\ txns = {} => Len(ledgers) = 1

-----------------------------------------------------------------------------
(* A restart finds the transactions of before, whatever deletions and unconfirmed requests are lost. *)

RestartFindsSameTransactions ==
  LET Same(after) == after.is_taken => FoundBy(after.s) = Bare(txns)
  IN status = "ready" => Same(AfterCrash(Contents, 0)) /\ InReopens(Same)

-----------------------------------------------------------------------------
(* The order of deletions. *)

\* The deletion order holds in memory as well; for persisted deletions it is a property above.
DeletionOrderHoldsInMemory == NewRecordDeletedFirst(Contents, acks)

\* The deletion of exactly these records.
Positions(s) == UNION {{<<n, i>> : i \in AllOf(s, n)} : n \in Entries(s)}
DeletionOf(s, positions) ==
  LET Remaining(n) == {i \in AllOf(s, n) : <<n, i>> \notin positions}
      parts == {n \in Entries(s) : Remaining(n) # {} /\ Remaining(n) # AllOf(s, n)}
  IN Settled(Acks(0, {n \in Entries(s) : Remaining(n) = {}}, {[entry |-> n, remaining |-> Remaining(n)] : n \in parts}))

\* Whether a store that recovers these deletions finds no ended transaction.
NoEndedTransactionReturns(s, a) ==
  LET Found(opened) == {t.id : t \in ReplayedToTheEnd(opened).txns}
  IN With(Opened(s, a, s.batching), Found) \cap {e.id : e \in Ended(LoggedTransactions(s))} = {}

\* For every set of deleted records: if it respects the deletion order, no ended transaction returns.
DeletionOrderImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    LET a == DeletionOf(Contents, positions) IN NewRecordDeletedFirst(Contents, a)
          => NoEndedTransactionReturns(Contents, a)

\* Two controls that fail: any set of deletions suffices; it suffices that the COMMITTED or ABORTED record is deleted
\* after the NEW record.
NewRecordDeletedBeforeLast(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) : IsLeftIn(s, a, e.positions[1]) => IsLeftIn(s, a, Last(e.positions))
AnyDeletionImpliesNoReturn == \A positions \in SUBSET Positions(Contents) : NoEndedTransactionReturns(Contents,
      DeletionOf(Contents, positions))
LastRecordOrderImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    LET a == DeletionOf(Contents, positions) IN NewRecordDeletedBeforeLast(Contents, a)
          => NoEndedTransactionReturns(Contents, a)
=============================================================================
