-------------------------- MODULE BatchAcksProperties --------------------------
(***************************************************************************)
(* Guarantees of a cursor's acknowledgements.  Twin of                     *)
(* invariants/batch_acks.py, under the same names.                         *)
(*                                                                         *)
(* An action property is an invariant here: in every reachable state, the  *)
(* action with any of its arguments would satisfy it.                      *)
(*                                                                         *)
(* Not stated: tickets of resets, which have no numbers here, and the ack  *)
(* set of a delivered entry, which is its remaining messages.              *)
(***************************************************************************)
EXTENDS BatchAcks

Numbers == 0..Total(ledgers) - 1
\* Every message left in the first is left in the second.
IsSubset(fewer, more) == \A n \in Numbers : LeftIn(fewer, n) \subseteq LeftIn(more, n)
Fits(a) == /\ Cardinality(RangeStarts(ledgers, a.deleted)) <= max_ranges
           /\ Cardinality(a.partial) <= max_batch_records

\* The remaining messages that an ack requests; all messages if batch-index acks have no effect.
Requested(n, words) ==
  CASE ~IsGiven(words) \/ (IsGiven(words) /\ MaskOf(words) = {}) -> {}
    [] OTHER -> IF batch_acks THEN MaskOf(words) ELSE AllOf(n)

-----------------------------------------------------------------------------
(* Acknowledgements. *)

AcknowledgedMessageStaysAcknowledged ==
  /\ \A list \in acks : IsSubset(AfterIndividual(Contents, list).memory, memory)
  /\ \A p \in position, words \in ack_set : IsSubset(AfterCumulative(Contents, p, words).memory, memory)

AddedEntryIsUnacknowledged ==
  LET n == Total(ledgers) IN LeftIn(AfterEntry(Contents).memory, n) = AllOf(n)

-----------------------------------------------------------------------------
(* States. *)

AckSetHasSomeButNotAllMessages ==
  /\ \A p \in memory.partial : /\ ~IsDeleted(memory, p.entry)
                              /\ p.remaining # {}
                              /\ p.remaining \subseteq AllOf(p.entry)
                              /\ p.remaining # AllOf(p.entry)
  /\ Cardinality({p.entry : p \in memory.partial}) = Cardinality(memory.partial)

MarkDeletePositionIsBeforeFirstUndeletedEntry ==
  \A n \in memory.deleted : n > memory.first_unacked /\ n < Total(ledgers)

-----------------------------------------------------------------------------
(* Storage. *)

RecoveryInventsNoAcknowledgement ==
  LET Before(survives) ==
        IF survives /\ writing.applies THEN AfterReset(LastReset(writing.resets)) ELSE memory
  IN \A survives \in write_survives :
       (survives => writing # None) => IsSubset(Before(survives), AfterCrash(Contents, survives).memory)

CleanCursorIsDurable ==
  LET is_stored == writing = None \/ (writing # None /\ writing.applies)
      record == IF is_stored THEN durable ELSE writing.record
  IN ~dirty /\ Fits(memory) => IsSubset(record, memory)

RecordRespectsConfiguredLimits == Fits(durable) /\ (writing # None => Fits(writing.record))

-----------------------------------------------------------------------------
(* Resets. *)

\* When resets complete, reading restarts at the position of the last one; only messages that its ack set excludes are
\* acknowledged from there on.
CompletedResetTakesEffect ==
  LET Done(s) == LET last == LastReset(writing.resets) IN s.memory = AfterReset(last) /\ s.read_position = last.entry
  IN writing # None /\ writing.resets # <<>> =>
       Done(AfterWritten(Contents)) /\ (TRUE \in stored_in_metadata => Done(AfterFailure(Contents, TRUE)))

-----------------------------------------------------------------------------
(* Liveness, under weak fairness of flush, written and end_read. *)

AcknowledgementsBecomeDurable == ~dirty /\ writing = None
=============================================================================
