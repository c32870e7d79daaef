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

InLists(Holds(_, _)) == \A list \in acks : Holds(list, AfterIndividual(Contents, list))
InCumulative(Holds(_, _, _)) ==
  \A p \in position, words \in ack_set : Holds(p, words, AfterCumulative(Contents, p, words))

-----------------------------------------------------------------------------
(* Acknowledgements. *)

\* An acknowledged message stays acknowledged until a reset takes effect or the cursor recovers.
AcknowledgedMessageStaysAcknowledged ==
  LET OfList(list, after) == IsSubset(after.s.memory, memory)
      OfOne(p, words, after) == IsSubset(after.s.memory, memory)
  IN InLists(OfList) /\ InCumulative(OfOne)

\* After a cumulative ack, no message before its entry is left, and of the entry those left before and in the ack set.
CumulativeAckAcknowledgesUpToItsMessage ==
  LET Holds(p, words, after) ==
        after.is_accepted =>
          LET entry == NumberOf(ledgers, p)
          IN \A n \in Numbers : LeftIn(after.s.memory, n) =
               IF n < entry THEN {}
               ELSE IF n = entry THEN LeftIn(memory, n) \cap Requested(n, words) ELSE LeftIn(memory, n)
  IN InCumulative(Holds)

\* An acknowledgement that fails acknowledges nothing and forgets nothing.
FailedAckChangesNothing ==
  LET OfList(list, after) == after.is_accepted \/ after.s = Contents
      OfOne(p, words, after) == after.is_accepted \/ after.s = Contents
  IN InLists(OfList) /\ InCumulative(OfOne)

\* All messages of an added entry are unacknowledged, and adding it changes no other entry's acknowledgements.
AddedEntryIsUnacknowledged ==
  LET n == Total(ledgers) IN LeftIn(AfterEntry(Contents).memory, n) = AllOf(n)

-----------------------------------------------------------------------------
(* States. *)

\* An entry is untouched, deleted, or has an ack set with some but not all of its messages remaining.
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

\* After a crash, only messages are acknowledged that were before, or that the reset in flight acknowledges.
RecoveryInventsNoAcknowledgement ==
  LET Before(survives) ==
        IF survives /\ writing.applies THEN AfterReset(LastReset(writing.resets)) ELSE memory
  IN \A survives \in write_survives :
       (survives => writing # None) => IsSubset(Before(survives), AfterCrash(Contents, survives).memory)

\* If the cursor is not dirty, a recovery finds all acknowledgements, as far as a record can hold them.
CleanCursorIsDurable ==
  LET record == IF writing = None THEN durable ELSE writing.record
      is_reset == writing # None /\ writing.applies
  IN ~dirty /\ Fits(memory) /\ ~is_reset => IsSubset(record, memory)

\* After a clean close and reopen, the cursor has all acknowledgements that a record can hold.
CleanCloseKeepsEverythingThatFits ==
  \A batch_index_acks \in reopen_batch_acks :
    ~IsBusy(Contents) /\ Fits(memory) =>
      AfterReopening(Contents, batch_index_acks).memory =
        (IF batch_index_acks THEN memory ELSE [memory EXCEPT !.partial = {}])

\* A record holds at most the configured numbers of ranges and ack sets.
RecordRespectsConfiguredLimits == Fits(durable) /\ (writing # None => Fits(writing.record))

\* is_fully_persistable is true exactly if ranges and ack sets fit in a record.
FullyPersistableMeansRangesAndAckSetsFit == FullyPersistable(Contents) = Fits(memory)

-----------------------------------------------------------------------------
(* Resets. *)

\* When resets complete, reading restarts at the position of the last one; only messages that its ack set excludes are
\* acknowledged from there on.
CompletedResetTakesEffect ==
  LET Done(s) == LET last == LastReset(writing.resets) IN s.memory = AfterReset(last) /\ s.read_position = last.to
  IN writing # None /\ writing.resets # <<>> =>
       Done(AfterWritten(Contents)) /\ (TRUE \in stored_in_metadata => Done(AfterFailure(Contents, TRUE)))

-----------------------------------------------------------------------------
(* Liveness, under weak fairness of flush, written and end_read. *)

\* If reads and writes complete and flushes continue, nothing stays dirty.
AcknowledgementsBecomeDurable == ~dirty /\ writing = None
=============================================================================
