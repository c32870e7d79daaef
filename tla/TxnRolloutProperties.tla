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

\* A new broker opens any store, and finds every record there is.
AnyMixtureIsRead ==
  LET Holds(log, b, after) == IsNew(b) => after.owner = b /\ LeftIn(after) >= LeftIn(log)
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

\* A store that is opened writes batches if the flag of its broker is on then, and plain entries if it is off.
AnOpenedStoreWritesAsTheFlagSays ==
  LET Holds(log, b, after) == after.batching = (after.owner # None /\ cluster[b + 1].flag)
  IN InOpenings(Holds)

\* Records come into one batch where the store writes batches; else each comes into an entry.  They come behind all
\* others, into the last ledger.
AnEntryIsWrittenAsTheStoreDoes ==
  \A k \in store, n \in records :
    LET old == logs[k + 1]
        new == AfterWriting(Contents, k, n).logs[k + 1]
        first == Len(EntriesOf(old))
        come == SubSeq(EntriesOf(new), first + 1, Len(EntriesOf(new)))
    IN old.owner # None =>
         /\ FrontOf(new) = FrontOf(old)
         /\ SubSeq(EntriesOf(new), 1, first) = EntriesOf(old)
         /\ Len(come) = IF old.batching THEN 1 ELSE n
         /\ \A i \in DOMAIN come : come[i] = IF old.batching THEN [batch |-> n, open |-> n, ended |-> 0]
                                             ELSE [batch |-> 0, open |-> 1, ended |-> 0]

\* Old brokers have no flag, and no store writes batches that is closed or open at one of them.
AnOldBrokerHasNoFlag ==
  /\ \A b \in DOMAIN cluster : cluster[b].flag => cluster[b].new
  /\ \A k \in Stores : logs[k].batching => logs[k].owner # None /\ IsNew(logs[k].owner)

\* When a broker stops, its stores are closed, and no others; what is in them stays.
ABrokerThatStopsHasNoStores ==
  LET Holds(b, s) == \A k \in Stores :
        /\ s.logs[k].owner = IF logs[k].owner = b THEN None ELSE logs[k].owner
        /\ s.logs[k].ledgers = logs[k].ledgers
  IN \A b \in broker :
       /\ ~IsNew(b) => Holds(b, AfterUpgrade(Contents, b))
       /\ AfterDowngrade(Contents, b) # Contents => Holds(b, AfterDowngrade(Contents, b))
       /\ Holds(b, Stopped(Contents, b))

-----------------------------------------------------------------------------
(* Transactions. *)

\* A store that is opened finds no more open transactions than it had: none that has ended is back.
AnEndedTransactionStaysEnded ==
  LET Holds(log, b, after) == OpenIn(after) <= OpenIn(log)
  IN InOpenings(Holds)

\* Of a transaction that has ended no record is left.
WhatHasEndedIsDeleted == \A k \in Stores : LET all == EntriesOf(logs[k]) IN \A i \in DOMAIN all : all[i].ended = 0

\* A store has fewer open transactions only when transactions end: one of it, or all of every store that is open.
AnOpenTransactionIsNotLost ==
  LET Holds(log, after) == OpenIn(after) >= OpenIn(log)
      OfOne(k, n) == LET s == AfterEnd(Contents, k, n)
                     IN s # Contents => \A j \in Stores :
                          OpenIn(s.logs[j]) = OpenIn(logs[j]) - (IF j = k + 1 THEN 1 ELSE 0)
      OfAll(k) == OpenIn(AfterEnds(Contents).logs[k]) = IF logs[k].owner = None THEN OpenIn(logs[k]) ELSE 0
  IN InOtherSteps(Holds) /\ (\A k \in store, n \in entry : OfOne(k, n)) /\ \A k \in Stores : OfAll(k)

-----------------------------------------------------------------------------
(* Ledgers. *)

\* Every store has a ledger to write to, and every entry has something left.
LedgersAreInOrder ==
  \A k \in Stores :
    LET all == EntriesOf(logs[k])
    IN /\ Len(logs[k].ledgers) > 0
       /\ \A i \in DOMAIN all : /\ all[i].open >= 0 /\ all[i].ended >= 0 /\ HasLeft(all[i])
                                /\ Left(all[i]) <= IF all[i].batch > 1 THEN all[i].batch ELSE 1

\* Of an open store the first ledgers go until one in which something is left, or the last; nothing else goes.
OnlyWhatIsDeletedIsTrimmed ==
  \A k \in Stores :
    LET old == logs[k].ledgers
        new == AfterTrim(Contents).logs[k].ledgers
        gone == Len(old) - Len(new)
    IN /\ new = SubSeq(old, gone + 1, Len(old))
       /\ \A n \in 1..gone : old[n] = <<>>
       /\ logs[k].owner # None /\ Len(new) > 1 => new[1] # <<>>

\* A ledger that is rolled, or left by an opening, is written to no more: the next one has nothing in it.
ALedgerThatBeginsIsTheLast ==
  LET Follows(log, after) == /\ LastOf(after) = <<>>
                             /\ Len(after.ledgers) = Len(log.ledgers) + (IF LastOf(log) = <<>> THEN 0 ELSE 1)
                             /\ after.noted = None \/ after.noted < Len(after.ledgers)
      Holds(log, b, after) == after.owner # None => Follows(log, after)
      Rolled(k) == AfterRoll(Contents, k).logs[k + 1]
  IN InOpenings(Holds) /\ \A k \in store : Rolled(k) # logs[k + 1] => Follows(logs[k + 1], Rolled(k))

-----------------------------------------------------------------------------
(* Steps of operators. *)

\* The last ledger of every store is noted; where one was noted already, that one stays.
ALedgerIsNotedOnce ==
  LET s == AfterNoting(Contents)
  IN s # Contents => \A k \in Stores :
       s.logs[k].noted = IF logs[k].noted = None THEN Len(logs[k].ledgers) ELSE logs[k].noted

\* The flags are as they were set; after one went on, the ledgers of all stores are to be noted anew.
AFlagThatGoesOnMakesTheNotesVoid ==
  /\ FlagsAreOff(AfterFlagsOff(Contents))
  /\ \A b \in broker, is_on \in on :
       LET s == AfterFlag(Contents, b, is_on)
       IN ~IsRefusedFlag(Contents, b, is_on) =>
            s.cluster[b + 1].flag = is_on /\ (is_on => \A k \in Stores : s.logs[k].noted = None)

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* When the flags are off, stores are opened again, transactions end and logs are trimmed, brokers may be old again.
TheDowngradeEnds == FlagsAreOff(Contents) /\ \A k \in Stores : logs[k].noted = 0
=============================================================================
