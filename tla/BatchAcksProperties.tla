-------------------------- MODULE BatchAcksProperties --------------------------
(***************************************************************************)
(* What a cursor promises about batch acknowledgements: the twin of        *)
(* invariants/batch_acks.py, under the same names.                         *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.                     *)
(*                                                                         *)
(* Not said here: what callers are told of tickets, which have no numbers  *)
(* here; which set comes with an entry that is read, for it is what is     *)
(* left of it.                                                             *)
(***************************************************************************)
EXTENDS BatchAcks

Numbers == 0..Total(ledgers) - 1
\* Whatever is left in the first is left in the second.
IsPart(some, more) == \A n \in Numbers : LeftIn(some, n) \subseteq LeftIn(more, n)
Fits(a) == /\ Cardinality(RangeStarts(ledgers, a.deleted)) <= max_ranges
           /\ Cardinality(a.partial) <= max_batch_records

\* The mask of what an acknowledgement leaves of an entry; everything, if parts do not count.
Asked(n, words) ==
  CASE ~IsGiven(words) \/ (IsGiven(words) /\ MaskOf(words) = {}) -> {}
    [] OTHER -> IF batch_acks THEN MaskOf(words) ELSE AllOf(n)

InLists(Holds(_, _)) == \A list \in acks : Holds(list, AfterIndividual(Contents, list))
InCumulative(Holds(_, _, _)) ==
  \A p \in position, words \in ack_set : Holds(p, words, AfterCumulative(Contents, p, words))

-----------------------------------------------------------------------------
(* Acknowledgements. *)

\* No message is redelivered that was acknowledged, unless a reset or a new beginning of the cursor comes between.
AcknowledgedMessageStaysAcknowledged ==
  LET OfList(list, after) == IsPart(after.s.known, known)
      OfOne(p, words, after) == IsPart(after.s.known, known)
  IN InLists(OfList) /\ InCumulative(OfOne)

\* After a cumulative ack nothing is left before its entry, and of the entry what was left in it and in the set.
CumulativeAckAcknowledgesUpToItsMessage ==
  LET Holds(p, words, after) ==
        after.is_taken =>
          LET entry == NumberOf(ledgers, p)
          IN \A n \in Numbers : LeftIn(after.s.known, n) =
               IF n < entry THEN {} ELSE IF n = entry THEN LeftIn(known, n) \cap Asked(n, words) ELSE LeftIn(known, n)
  IN InCumulative(Holds)

\* A caller who is told of a failure can rely on it: nothing was acknowledged, nothing was forgotten.
FailedAckChangesNothing ==
  LET OfList(list, after) == after.is_taken \/ after.s = Contents
      OfOne(p, words, after) == after.is_taken \/ after.s = Contents
  IN InLists(OfList) /\ InCumulative(OfOne)

\* Every message of an entry that is just added is left, and an addition acknowledges nothing else.
AddedEntryIsUnacknowledged ==
  LET n == Total(ledgers) IN LeftIn(AfterEntry(Contents).known, n) = AllOf(n)

-----------------------------------------------------------------------------
(* States. *)

\* An entry is untouched, deleted, or partly acknowledged: then some but not all of its messages are left.
AckSetHasSomeButNotAllMessages ==
  /\ \A p \in known.partial : /\ ~IsDeleted(known, p.entry)
                              /\ p.remaining # {}
                              /\ p.remaining \subseteq AllOf(p.entry)
                              /\ p.remaining # AllOf(p.entry)
  /\ Cardinality({p.entry : p \in known.partial}) = Cardinality(known.partial)

\* The mark stands before the first entry that is not deleted, across ledgers; what is deleted behind it is known.
MarkDeletePositionIsBeforeFirstUndeletedEntry == \A n \in known.deleted : n > known.first_unacked /\ n < Total(ledgers)

-----------------------------------------------------------------------------
(* Storage. *)

\* After a crash nothing is acknowledged that was not acknowledged before, or by the reset that was being written.
RecoveryInventsNoAcknowledgement ==
  LET Before(survives) ==
        IF survives /\ writing.applies THEN AfterReset(LastReset(writing.resets)) ELSE known
  IN \A survives \in write_survives :
       (survives => writing # None) => IsPart(Before(survives), AfterCrash(Contents, survives).known)

\* With nothing left to write, a recovery would find all that is acknowledged, as far as a record can hold it.
CleanCursorIsDurable ==
  LET record == IF writing = None THEN durable ELSE writing.record
      is_reset == writing # None /\ writing.applies
  IN ~dirty /\ Fits(known) /\ ~is_reset => IsPart(record, known)

\* A cursor that is closed and opened again knows all that a record can hold; parts, if they count again.
CleanCloseKeepsEverythingThatFits ==
  \A counts \in reopen_batch_acks :
    ~IsBusy(Contents) /\ Fits(known) =>
      AfterReopening(Contents, counts).known = (IF counts THEN known ELSE [known EXCEPT !.partial = {}])

\* A record holds no more ranges and no more parts of entries than the settings say.
RecordRespectsConfiguredLimits == Fits(durable) /\ (writing # None => Fits(writing.record))

\* A cursor says that it can be written whole only if its ranges and its parts of entries all fit.
FullyPersistableMeansRangesAndAckSetsFit == FullyPersistable(Contents) = Fits(known)

-----------------------------------------------------------------------------
(* Resets. *)

\* When callers are told that resets are done, reading goes on where the last of them says, and nothing behind it is
\* acknowledged but what its set leaves out.
CompletedResetTakesEffect ==
  LET Done(s) == LET last == LastReset(writing.resets) IN s.known = AfterReset(last) /\ s.read_next = last.to
  IN writing # None /\ writing.resets # <<>> =>
       Done(AfterWritten(Contents)) /\ (TRUE \in rescued => Done(AfterFailure(Contents, TRUE)))

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* When reads and writes come to an end and flushes go on, nothing is left to be written.
AcknowledgementsBecomeDurable == ~dirty /\ writing = None
=============================================================================
