-------------------------- MODULE TxnRolloutProperties --------------------------
(***************************************************************************)
(* What must hold when brokers whose transaction logs hold batches are     *)
(* upgraded and downgraded: the twin of invariants/txn_rollout.py, under   *)
(* the same names.                                                         *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.  Not said here: how *)
(* much is counted, for outcomes are not modelled.                         *)
(***************************************************************************)
EXTENDS TxnRollout

IsNew(b) == cluster[b + 1].new
Stores == DOMAIN logs

\* What holds of each store that is opened, at which broker, and what it is then: by itself, or with all others.
InOpenings(Holds(_, _, _)) ==
  LET Alone(k, b) == Holds(logs[k + 1], b, AfterOpening(Contents, k, b).logs[k + 1])
      Among(k) == Holds(logs[k], OwnerOrFirst(logs[k]), AfterReopening(Contents).logs[k])
  IN /\ \A k \in store, b \in broker : logs[k + 1].owner = None => Alone(k, b)
     /\ \A k \in Stores : Among(k)

\* What holds of each store and what any step makes of it that opens none.
InOtherSteps(Holds(_, _)) ==
  LET After(s) == \A k \in Stores : Holds(logs[k], s.logs[k])
  IN /\ \A b \in broker : /\ After(AfterUpgrade(Contents, b)) /\ After(AfterDowngrade(Contents, b))
                          /\ After(Stopped(Contents, b))
                          /\ \A is_on \in on : After(AfterFlag(Contents, b, is_on))
     /\ After(AfterFlagsOff(Contents)) /\ After(AfterNoting(Contents)) /\ After(AfterTrim(Contents))
     /\ \A k \in store : /\ After(AfterClosing(Contents, k)) /\ After(AfterRoll(Contents, k))
                         /\ \A n \in records : After(AfterWriting(Contents, k, n))

-----------------------------------------------------------------------------
(* Readers. *)

\* No broker from before PIP-160 opens a store in which something of a batch is left: it could not read it.
AnOldBrokerMeetsNoBatch ==
  LET Holds(log, b, after) == IsNew(b) \/ ~HasBatch(log)
  IN InOpenings(Holds)

\* Operators who follow the steps have no old broker while anything is left of a batch in any store.
WhereABatchIsEveryBrokerIsNew == AllAreNew(Contents) \/ \A k \in Stores : ~HasBatch(logs[k])

\* Once the last ledger of a store was noted, every batch lies in it or before it.
NoBatchLiesBehindTheNotedLedger ==
  \A k \in Stores : logs[k].noted # None =>
    \A n \in DOMAIN logs[k].ledgers : n > logs[k].noted =>
      \A i \in DOMAIN logs[k].ledgers[n] : logs[k].ledgers[n][i].batch = 0

-----------------------------------------------------------------------------
(* Flags and modes. *)

\* A store that is open and stays open writes as it did, whatever becomes of the flag of its broker.
AStoreKeepsItsModeUntilItIsOpenedAgain ==
  LET Holds(log, after) == log.owner # None /\ after.owner # None => after.batching = log.batching
  IN InOtherSteps(Holds)

-----------------------------------------------------------------------------
(* Transactions. *)

\* A store that is opened finds no more open transactions than it had: none that has ended is back.
AnEndedTransactionStaysEnded ==
  LET Holds(log, b, after) == OpenIn(after) <= OpenIn(log)
  IN InOpenings(Holds)

\* Of a transaction that has ended no record is left.
WhatHasEndedIsDeleted == \A k \in Stores : LET all == EntriesOf(logs[k]) IN \A i \in DOMAIN all : all[i].ended = 0

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* When the flags are off, stores are opened again, transactions end and logs are trimmed, brokers may be old again.
TheDowngradeEnds == FlagsAreOff(Contents) /\ \A k \in Stores : logs[k].noted = 0
=============================================================================
