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

\* Every store and its value after any step that opens none.
InOtherSteps(Holds(_, _)) ==
  LET After(s) == \A k \in Stores : Holds(logs[k], s.logs[k])
  IN /\ \A b \in broker : /\ After(AfterUpgrade(Contents, b)) /\ After(AfterDowngrade(Contents, b))
                          /\ After(Stopped(Contents, b))
                          /\ \A is_on \in on : After(AfterFlag(Contents, b, is_on))
     /\ After(AfterFlagsOff(Contents)) /\ After(AfterRecordLastLedgers(Contents)) /\ After(AfterTrim(Contents))
     /\ \A k \in store : /\ After(AfterClosing(Contents, k)) /\ After(AfterRoll(Contents, k))
                         /\ \A n \in records : After(AfterWriting(Contents, k, n))

-----------------------------------------------------------------------------
(* Readers. *)

\* No broker from before PIP-160 opens a store with an undeleted batch.
OldBrokerNeverReadsBatch ==
  LET Holds(log, b, after) == IsNew(b) \/ ~HasBatch(log)
  IN InOpenings(Holds)

\* If operators follow the steps, all brokers are new while any store has an undeleted batch.
BatchesExistOnlyWithNewBrokers == AllAreNew(Contents) \/ \A k \in Stores : ~HasBatch(logs[k])

\* Once the last ledger of a store was recorded, no later ledger has a batch.
NoBatchFollowsLastBatchedLedger ==
  \A k \in Stores : logs[k].last_batched_ledger # None =>
    \A n \in DOMAIN logs[k].ledgers : n > logs[k].last_batched_ledger =>
      \A i \in DOMAIN logs[k].ledgers[n] : logs[k].ledgers[n][i].batch = 0

-----------------------------------------------------------------------------
(* Flags and modes. *)

\* An open store keeps its mode until it is reopened, whatever the flag of its broker.
OpenStoreKeepsBatchingMode ==
  LET Holds(log, after) == log.owner # None /\ after.owner # None => after.batching = log.batching
  IN InOtherSteps(Holds)

-----------------------------------------------------------------------------
(* Transactions. *)

\* Opening a store finds no more open transactions than the store had.
EndedTransactionIsNotReopened ==
  LET Holds(log, b, after) == OpenIn(after) <= OpenIn(log)
  IN InOpenings(Holds)

\* An ended transaction has no undeleted record.
EndedTransactionIsDeleted == \A k \in Stores : LET all == EntriesOf(logs[k]) IN \A i \in DOMAIN all : all[i].ended = 0

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* If flags are turned off, stores reopened, transactions ended, logs trimmed and ledgers recorded fairly, brokers
\* may be old again.
DowngradeTerminates == FlagsAreOff(Contents) /\ \A k \in Stores : logs[k].last_batched_ledger = 0
=============================================================================
