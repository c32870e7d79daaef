-------------------------- MODULE BatchAcksProperties --------------------------
(*****************************************************************************)
(* Properties of a cursor's acknowledgements, under the names of             *)
(* invariants/batch_acks.py: some of its invariants, and all of its liveness *)
(* properties.                                                               *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
(*****************************************************************************)
EXTENDS BatchAcks

\* The numbers of all entries.
Numbers == 0..Total(ledgers) - 1

\* Whether every message that `fewer` leaves unacknowledged is unacknowledged in `more`, too.
IsSubset(fewer, more) == \A n \in Numbers : RemainingIn(fewer, n) \subseteq RemainingIn(more, n)

\* Whether all acknowledgements of `a` are within the configured limits of a record.
Fits(a) == /\ Cardinality(RangeStarts(ledgers, a.deleted)) <= max_ranges
           /\ Cardinality(a.partial) <= max_ack_sets

-----------------------------------------------------------------------------
(* Acknowledgements. *)

\* An acknowledged message stays acknowledged until a reset takes effect or the cursor recovers.  Acks are tested here:
\* no other action changes the acknowledgements in memory, except for resets and recoveries.
AcknowledgedMessageStaysAcknowledged ==
  /\ \A list \in acks : IsSubset(AfterIndividual(Contents, list).memory, memory)
  /\ \A p \in position, words \in ack_set : IsSubset(AfterCumulative(Contents, p, words).memory, memory)

\* All messages of an added entry are unacknowledged.
AddedEntryIsUnacknowledged ==
  LET n == Total(ledgers) IN RemainingIn(AfterEntry(Contents).memory, n) = AllOf(n)

-----------------------------------------------------------------------------
(* States. *)

\* An ack set leaves some but not all messages of its entry unacknowledged.  An entry has at most one ack
\* set; a deleted entry has none.
AckSetHasSomeButNotAllMessages ==
  /\ \A p \in memory.partial : /\ ~IsDeleted(memory, p.entry)
                              /\ p.remaining # {}
                              /\ p.remaining \subseteq AllOf(p.entry)
                              /\ p.remaining # AllOf(p.entry)
  /\ Cardinality({p.entry : p \in memory.partial}) = Cardinality(memory.partial)

\* The mark-delete position is directly before the first entry that is not deleted, across ledgers.
MarkDeletePositionIsBeforeFirstUndeletedEntry ==
  \A n \in memory.deleted : n > memory.first_unacked /\ n < Total(ledgers)

-----------------------------------------------------------------------------
(* Storage. *)

\* After a crash, every acknowledged message was acknowledged before the crash.  If the record of a reset survives the
\* crash, every acknowledged message is one that the reset acknowledges.
RecoveryInventsNoAcknowledgement ==
  LET Before(survives) ==
        IF survives /\ writing.applies THEN AfterReset(LastReset(writing.resets)) ELSE memory
  IN \A survives \in write_survives :
       (survives => writing # None) => IsSubset(Before(survives), AfterCrash(Contents, survives).memory)

\* If the cursor is not dirty, and its acknowledgements are within the limits of a record, a record holds them: the
\* record of the write in flight, or the durable record if no write is in flight or the write applies a reset.
CleanCursorIsDurableOrInFlight ==
  LET is_stored == writing = None \/ (writing # None /\ writing.applies)
      record == IF is_stored THEN durable ELSE writing.record
  IN ~dirty /\ Fits(memory) => IsSubset(record, memory)

\* A record holds at most the configured numbers of ranges and ack sets.
RecordRespectsConfiguredLimits == Fits(durable) /\ (writing # None => Fits(writing.record))

-----------------------------------------------------------------------------
(* Resets. *)

\* When resets succeed, the last one takes effect: reading restarts at its entry.  The acknowledged messages are exactly
\* those before this entry, and those that the reset's ack set acknowledges.
CompletedResetTakesEffect ==
  LET Done(s) == LET last == LastReset(writing.resets) IN s.memory = AfterReset(last) /\ s.read_position = last.entry
  IN writing # None /\ writing.resets # <<>> =>
       Done(AfterWritten(Contents)) /\ (TRUE \in stored_in_metadata => Done(AfterFailure(Contents, TRUE)))

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* If flushes start, and reads and writes complete, eventually the cursor is clean and no write is in flight.
\* Fair: Flush, Written, EndRead.  Queued operations start when the read or write in flight completes.  A flush writes
\* the acknowledgements of a dirty cursor.
AcknowledgementsBecomeDurable == ~dirty /\ writing = None
=============================================================================
