-------------------------- MODULE TxnRolloutProperties --------------------------
(*****************************************************************************)
(* Invariants and liveness of upgrade and downgrade: those of                *)
(* invariants/txn_rollout.py that an operator would name first, under the    *)
(* same names.                                                               *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.            *)
(*****************************************************************************)
EXTENDS TxnRollout

IsNew(b) == cluster[b + 1].new
Stores == DOMAIN logs

\* Whether Holds(store, broker, store afterwards) for every opening, alone or with all others.
InOpenings(Holds(_, _, _)) ==
  LET Alone(k, b) == Holds(logs[k + 1], b, AfterOpening(Contents, k, b).logs[k + 1])
      Among(k) == Holds(logs[k], OwnerOrFirst(logs[k]), AfterReopening(Contents).logs[k])
  IN /\ \A k \in store, b \in broker : logs[k + 1].owner = None => Alone(k, b)
     /\ \A k \in Stores : Among(k)

-----------------------------------------------------------------------------
(* Readers. *)

\* No old broker opens a store that holds a batch.
OldBrokerNeverReadsBatch ==
  LET Holds(log, b, after) == IsNew(b) \/ ~HasBatch(log)
  IN InOpenings(Holds)

\* While a broker is old, no log holds a batch.
BatchesExistOnlyWithNewBrokers == AllAreNew(Contents) \/ \A k \in Stores : ~HasBatch(logs[k])

\* No ledger behind the recorded one holds a batch.
NoBatchFollowsLastBatchedLedger ==
  \A k \in Stores : logs[k].last_batched_ledger # None =>
    \A n \in DOMAIN logs[k].ledgers : n > logs[k].last_batched_ledger =>
      \A i \in DOMAIN logs[k].ledgers[n] : logs[k].ledgers[n][i].batch = 0

-----------------------------------------------------------------------------
(* Transactions. *)

\* An opening makes no record of an ended transaction a record of an open one.
EndedTransactionIsNotReopened ==
  LET Holds(log, b, after) == OpenIn(after) <= OpenIn(log)
  IN InOpenings(Holds)

\* No record of an ended transaction stays undeleted.
EndedTransactionIsDeleted == \A k \in Stores : LET all == EntriesOf(logs[k]) IN \A i \in DOMAIN all : all[i].ended = 0

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: TurnFlagsOff, ReopenStores, EndTransactions, Trim, RecordLastLedgers.  The operators' steps for a downgrade
\* and the work of the stores lead to logs without batches; then brokers may be old again.
DowngradeTerminates == FlagsAreOff(Contents) /\ \A k \in Stores : logs[k].last_batched_ledger = 0
=============================================================================
