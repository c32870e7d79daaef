-------------------------- MODULE BatchAcksProperties --------------------------
(*****************************************************************************)
(* Invariants and liveness of a cursor's acknowledgements: those of          *)
(* invariants/batch_acks.py that a broker engineer would name first, under   *)
(* the same names.                                                           *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.            *)
(*****************************************************************************)
EXTENDS BatchAcks

Numbers == 0..Total(ledgers) - 1

\* Whether every message that `fewer` leaves unacknowledged is unacknowledged in `more`, too.
IsSubset(fewer, more) == \A n \in Numbers : RemainingIn(fewer, n) \subseteq RemainingIn(more, n)

\* Whether a record can hold all of these acknowledgements.
Fits(a) == /\ Cardinality(RangeStarts(ledgers, a.deleted)) <= max_ranges
           /\ Cardinality(a.partial) <= max_batch_records

-----------------------------------------------------------------------------
(* Acknowledgements. *)

\* No ack makes an acknowledged message unacknowledged.
AcknowledgedMessageStaysAcknowledged ==
  /\ \A list \in acks : IsSubset(AfterIndividual(Contents, list).memory, memory)
  /\ \A p \in position, words \in ack_set : IsSubset(AfterCumulative(Contents, p, words).memory, memory)

\* No message of an added entry is acknowledged already.
AddedEntryIsUnacknowledged ==
  LET n == Total(ledgers) IN RemainingIn(AfterEntry(Contents).memory, n) = AllOf(n)

-----------------------------------------------------------------------------
(* States. *)

\* An entry with an ack set is not deleted; some but not all of its messages are acknowledged.
AckSetHasSomeButNotAllMessages ==
  /\ \A p \in memory.partial : /\ ~IsDeleted(memory, p.entry)
                              /\ p.remaining # {}
                              /\ p.remaining \subseteq AllOf(p.entry)
                              /\ p.remaining # AllOf(p.entry)
  /\ Cardinality({p.entry : p \in memory.partial}) = Cardinality(memory.partial)

\* The mark-delete position is at the entry before the first one that is not deleted.
MarkDeletePositionIsBeforeFirstUndeletedEntry ==
  \A n \in memory.deleted : n > memory.first_unacked /\ n < Total(ledgers)

-----------------------------------------------------------------------------
(* Storage. *)

\* A message that is acknowledged after a crash was acknowledged before it, or by the reset that the surviving write
\* applies.
RecoveryInventsNoAcknowledgement ==
  LET Before(survives) ==
        IF survives /\ writing.applies THEN AfterReset(LastReset(writing.resets)) ELSE memory
  IN \A survives \in write_survives :
       (survives => writing # None) => IsSubset(Before(survives), AfterCrash(Contents, survives).memory)

\* If the cursor is not dirty, and a record can hold its acknowledgements, then the record that is stored or in flight
\* has all of them.
CleanCursorIsDurable ==
  LET is_stored == writing = None \/ (writing # None /\ writing.applies)
      record == IF is_stored THEN durable ELSE writing.record
  IN ~dirty /\ Fits(memory) => IsSubset(record, memory)

\* No record has more ranges or ack sets than configured.
RecordRespectsConfiguredLimits == Fits(durable) /\ (writing # None => Fits(writing.record))

-----------------------------------------------------------------------------
(* Resets. *)

\* When resets complete, the cursor reads from the position of the last one.  From there on only the messages that this
\* reset's ack set excludes are acknowledged.
CompletedResetTakesEffect ==
  LET Done(s) == LET last == LastReset(writing.resets) IN s.memory = AfterReset(last) /\ s.read_position = last.entry
  IN writing # None /\ writing.resets # <<>> =>
       Done(AfterWritten(Contents)) /\ (TRUE \in stored_in_metadata => Done(AfterFailure(Contents, TRUE)))

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: Flush, Written, EndRead.  A read or write in flight ends, so that queued operations start; a flush writes
\* what is dirty, and the write succeeds.
AcknowledgementsBecomeDurable == ~dirty /\ writing = None
=============================================================================
