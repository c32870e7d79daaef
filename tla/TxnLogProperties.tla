--------------------------- MODULE TxnLogProperties ---------------------------
(***************************************************************************)
(* Properties of the coordinator's transaction log: the twin of            *)
(* invariants/txn_log, under the same names.                               *)
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

CanDelete == status = "ready" /\ deletions_succeed
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

\* Whether a record is undeleted.
IsLeftIn(s, a, position) == position[2] \in RemainingIn(s, a, position[1])

\* A record of an ended transaction is deleted only if the transaction's NEW record is.
NewRecordDeletedFirst(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) :
    IsLeftIn(s, a, e.positions[1]) => \A position \in Members(e.positions) : IsLeftIn(s, a, position)
RecordIsDurablyDeletedOnlyAfterNewRecord == NewRecordDeletedFirst(Contents, durable)

-----------------------------------------------------------------------------
(* Recovery. *)

ReadyStoreEqualsLog == status = "ready" => {LoggedForm(t) : t \in txns} = Ongoing(LoggedTransactions(Contents))

RecoveryPreservesAcknowledgedState ==
  LET IsKept(p, t) == /\ p.partitions \subseteq t.partitions
                      /\ p.subscriptions \subseteq t.subscriptions
                      /\ MayReach(p.status, t.status)
      Kept(s) == \A p \in confirmed : HasEnded(p.status) \/ \E t \in OfId(p.id, s.txns) : IsKept(p, t)
  IN InRecoveries(Kept)

EndedTransactionIsNotRecovered ==
  LET after == AfterCompleteReplay(Contents)
  IN after.is_taken => \A p \in confirmed : HasEnded(p.status) => Ongoing(OfId(p.id, after.s.txns)) = {}

AcknowledgedDecisionIsFinal ==
  LET Way(at) == IF at = "OPEN" THEN {} ELSE IF at \in {"COMMITTING", "COMMITTED"} THEN {"commit"} ELSE {"abort"}
      logged == LoggedTransactions(Contents)
  IN \A p \in confirmed : \A e \in OfId(p.id, logged) : Cardinality(Way(p.status) \cup Way(e.status)) < 2

EndedTransactionLeavesTheMap == status = "ready" => Ended(txns) = {}

\* The result of a replay, without deadlines, which then count from the start time.
RECURSIVE ReplayedToTheEnd(_)
ReplayedToTheEnd(s) == IF IsRead(s) THEN s ELSE With(Replayed(s), ReplayedToTheEnd)
Bare(ts) == {[t EXCEPT !.deadline_ms = 0] : t \in ts}
FoundBy(opened) == Bare(ReplayedToTheEnd(opened).txns)

-----------------------------------------------------------------------------
(* Ids, low watermark, deadlines. *)

LowWatermarkIsBelowOngoingTransactions == status = "ready" => \A t \in txns : t.id > reported_watermark

-----------------------------------------------------------------------------
(* Statuses. *)

StoreStopsAfterAmbiguousAppend ==
  LET Stopped(after) == (\E k \in DOMAIN after.completions : after.completions[k].result = "unknown")
        => after.s.status = "stopped"
  IN InFailures(Stopped)

-----------------------------------------------------------------------------
(* Liveness, under fairness of the named actions. *)

EveryRequestCompletes == buffer = <<>> /\ in_flight = <<>>

ReplayTerminates == status # "replaying"

FailingReplayTerminates == status # "replaying"

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
