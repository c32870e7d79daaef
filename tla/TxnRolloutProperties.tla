-------------------------- MODULE TxnRolloutProperties --------------------------
(*****************************************************************************)
(* Properties of upgrade and downgrade, under the names of                   *)
(* invariants/txn_rollout.py: some of its invariants, and all of its         *)
(* liveness properties.                                                      *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
(*****************************************************************************)
EXTENDS TxnRollout

IsNew(b) == cluster[b + 1].new
Stores == DOMAIN logs

\* Whether Holds(log before, broker, log after) for every opening of a store, alone or together with all others.
InOpenings(Holds(_, _, _)) ==
  LET Alone(k, b) == Holds(logs[k + 1], b, AfterOpening(Contents, k, b).logs[k + 1])
      Among(k) == Holds(logs[k], OwnerOrFirst(logs[k]), AfterReopening(Contents).logs[k])
  IN /\ \A k \in store, b \in broker : logs[k + 1].owner = None => Alone(k, b)
     /\ \A k \in Stores : Among(k)

-----------------------------------------------------------------------------
(* Readers. *)

\* No broker from before PIP-160 tries to open a store with an undeleted batch.
OldBrokerNeverReadsBatch ==
  LET Holds(log, b, after) == IsNew(b) \/ ~HasBatch(log)
  IN InOpenings(Holds)

\* If operators follow the steps, all brokers are new while a store has an undeleted batch.
BatchesExistOnlyWithNewBrokers == AllAreNew(Contents) \/ \A k \in Stores : ~HasBatch(logs[k])

\* If operators follow the steps, no ledger after its store's recorded last ledger has an undeleted batch.
NoBatchFollowsLastBatchedLedger ==
  \A k \in Stores : logs[k].last_batched_ledger # None =>
    \A n \in DOMAIN logs[k].ledgers : n > logs[k].last_batched_ledger =>
      \A i \in DOMAIN logs[k].ledgers[n] : logs[k].ledgers[n][i].batch = 0

-----------------------------------------------------------------------------
(* Transactions. *)

\* Opening a store finds no more open transactions than the store had.
EndedTransactionIsNotReopened ==
  LET Holds(log, b, after) == OpenIn(after) <= OpenIn(log)
  IN InOpenings(Holds)

\* An ended transaction has no undeleted record.
EndedTransactionIsDeleted == \A k \in Stores : LET all == EntriesOf(logs[k]) IN \A i \in DOMAIN all : all[i].ended = 0

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* Eventually all flags are off, and the last ledger of every store is recorded and trimmed.
\* Fair: TurnFlagsOff, ReopenStores, EndTransactions, Trim, RecordLastLedgers.  These are the operators' steps for a
\* downgrade, and the work of the stores.
DowngradeTerminates == FlagsAreOff(Contents) /\ \A k \in Stores : logs[k].last_batched_ledger = 0
=============================================================================
