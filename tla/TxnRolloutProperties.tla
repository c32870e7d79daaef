-------------------------- MODULE TxnRolloutProperties --------------------------
(***************************************************************************)
(* Guarantees for upgrade and downgrade: the twin of                       *)
(* invariants/txn_rollout.py, under the same names.                        *)
(*                                                                         *)
(* A guarantee about steps is stated as an invariant: from every reached   *)
(* state, each action with each argument preserves it.                     *)
(***************************************************************************)
EXTENDS TxnRollout

IsNew(b) == cluster[b + 1].new
Stores == DOMAIN logs

\* Every opening: the store, its broker, and the store after it; alone or with all others.
InOpenings(Holds(_, _, _)) ==
  LET Alone(k, b) == Holds(logs[k + 1], b, AfterOpening(Contents, k, b).logs[k + 1])
      Among(k) == Holds(logs[k], OwnerOrFirst(logs[k]), AfterReopening(Contents).logs[k])
  IN /\ \A k \in store, b \in broker : logs[k + 1].owner = None => Alone(k, b)
     /\ \A k \in Stores : Among(k)

-----------------------------------------------------------------------------
(* Readers. *)

OldBrokerNeverReadsBatch ==
  LET Holds(log, b, after) == IsNew(b) \/ ~HasBatch(log)
  IN InOpenings(Holds)

BatchesExistOnlyWithNewBrokers == AllAreNew(Contents) \/ \A k \in Stores : ~HasBatch(logs[k])

NoBatchFollowsLastBatchedLedger ==
  \A k \in Stores : logs[k].last_batched_ledger # None =>
    \A n \in DOMAIN logs[k].ledgers : n > logs[k].last_batched_ledger =>
      \A i \in DOMAIN logs[k].ledgers[n] : logs[k].ledgers[n][i].batch = 0

-----------------------------------------------------------------------------
(* Transactions. *)

EndedTransactionIsNotReopened ==
  LET Holds(log, b, after) == OpenIn(after) <= OpenIn(log)
  IN InOpenings(Holds)

EndedTransactionIsDeleted == \A k \in Stores : LET all == EntriesOf(logs[k]) IN \A i \in DOMAIN all : all[i].ended = 0

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

DowngradeTerminates == FlagsAreOff(Contents) /\ \A k \in Stores : logs[k].last_batched_ledger = 0
=============================================================================
