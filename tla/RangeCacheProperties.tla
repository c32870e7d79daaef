------------------------ MODULE RangeCacheProperties ------------------------
(*****************************************************************************)
(* Properties of the range caches, under the names of                        *)
(* invariants/range_cache: some of its invariants, and all of its liveness   *)
(* properties.                                                               *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.  The other properties of the model hold here because   *)
(* model and twin have equal steps.                                          *)
(*****************************************************************************)
EXTENDS RangeCache

InSet(seq) == {seq[i] : i \in DOMAIN seq}
EntrySet(contents) == InSet(Entries(contents))
Bytes(seq) == LET Sum[n \in 0..Len(seq)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + seq[n].bytes IN Sum[Len(seq)]

\* Whether an entry is still cached after a step.
IsKept(after, e) == Find(after, e.cache, e.position) # None

\* Thresholds that are not in the future.  The broker uses only these.
Ordinary == {threshold \in threshold_ns : threshold <= 0}

-----------------------------------------------------------------------------
(* States. *)

\* The size of a cache is the sum of its entries' lengths at insertion.
CacheSizeEqualsSumOfEntrySizes == \A c \in DOMAIN sizes : LET IsOf(e) == e.cache = c
                                        IN sizes[c] = Bytes(SelectSeq(Entries(Contents), IsOf))

-----------------------------------------------------------------------------
(* Puts, lookups and removals. *)

\* After a put, the entry at the position has the expected read count of the put, unless its value is deallocated.  The
\* count is None if the put expects zero reads or less, or without counts_reads.
LatestPutSetsExpectedReadCount ==
  \A c \in cache, p \in position, b \in bytes, n \in expected_reads :
    LET e == Find(AfterPut(c, p, b, n), c, p) IN e.released \/ e.expected_reads = InitialCount(n)

\* A range whose first position is after its last is empty; it is no error.
InvertedRangeIsEmpty ==
  \A low \in first, high \in last : Before(high, low) =>
    /\ ~IsRefused(low, high)
    /\ \A c \in cache, inclusive \in last_inclusive : AfterRemoveRange(c, low, high, inclusive) = Contents
    /\ \A c \in cache, h \in hold : AfterGetRange(c, low, high, h) = Contents

-----------------------------------------------------------------------------
(* Eviction passes. *)

\* A time pass removes no entry that is due for requeue, unless the threshold is in the future.
TimePassKeepsDueEntries ==
  \A threshold \in Ordinary : \A e \in EntrySet(Contents) : ShouldRequeue(e) => IsKept(AfterTimePass(threshold), e)

\* A size pass frees at least the requested bytes, or all bytes.
SizePassFreesRequestedBytes ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET left == Bytes(Entries(AfterSizePass(goal))) IN left = 0 \/ Bytes(Entries(Contents)) - left >= goal

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* When puts and lookups have stopped, time passes empty the caches, whatever the read counts are.
\* Fair: Advance, TimePass.  Every entry expires; a time pass then removes or requeues the entry.  Requeues for expected
\* reads have a maximum.  Requeues for recent access end with the lookups.
EveryEntryIsEventuallyEvicted == Entries(Contents) = <<>>

\* A time pass drops each detached wrapper, once every entry nearer to the head is expired.
\* Fair: Advance, TimePass.
EveryDetachedWrapperIsEventuallyDropped == \A i \in DOMAIN queue : queue[i] # None

\* The size check brings the total to the trigger or below, or empties the caches, whatever the read counts are.  This
\* holds if the watermark is not above the trigger.
\* Fair: EvictToWatermark.  One size check suffices: a pass visits an entry again until the maximum of its requeues is
\* reached.
SizeCheckEventuallyEndsAtOrBelowTrigger == IsOverTrigger => Entries(Contents) = <<>>
=============================================================================
