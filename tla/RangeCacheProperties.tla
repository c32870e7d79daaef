------------------------ MODULE RangeCacheProperties ------------------------
(*****************************************************************************)
(* Invariants and liveness of the range caches: those of                     *)
(* invariants/range_cache that a broker engineer would name first, under the *)
(* same names.                                                               *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.  The other *)
(* properties of the model hold here because steps are equal.                *)
(*****************************************************************************)
EXTENDS RangeCache

InSet(seq) == {seq[i] : i \in DOMAIN seq}
EntrySet(of) == InSet(Entries(of))
Bytes(seq) == LET Sum[n \in 0..Len(seq)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + seq[n].bytes IN Sum[Len(seq)]

\* Whether an entry is still cached after a step.
IsKept(after, e) == Find(after, e.cache, e.position) # None

\* Thresholds that are not in the future; the broker uses no other ones.
Ordinary == {threshold \in threshold_ns : threshold <= 0}

-----------------------------------------------------------------------------
(* States. *)

\* The size of a cache is the sum of the bytes of its entries.
CacheSizeEqualsSumOfEntrySizes == \A c \in DOMAIN sizes : LET IsOf(e) == e.cache = c
                                        IN sizes[c] = Bytes(SelectSeq(Entries(Contents), IsOf))

-----------------------------------------------------------------------------
(* Puts, lookups and removals. *)

\* After a put, the entry has the expected read count of that put.  A deallocated value cannot take it over.
LatestPutSetsExpectedReadCount ==
  \A c \in cache, p \in position, b \in bytes, n \in expected_reads :
    LET e == Find(AfterPut(c, p, b, n), c, p) IN e.released \/ e.expected_reads = InitialCount(n)

\* A range whose first position is after its last is no error; nothing is looked up or removed.
InvertedRangeIsEmpty ==
  \A low \in first, high \in last : Before(high, low) =>
    /\ ~IsRefused(low, high)
    /\ \A c \in cache, inclusive \in last_inclusive : AfterRemoveRange(c, low, high, inclusive) = Contents
    /\ \A c \in cache, h \in hold : AfterGetRange(c, low, high, h) = Contents

-----------------------------------------------------------------------------
(* Eviction passes. *)

\* A time pass removes no entry that is due for requeue.
TimePassKeepsDueEntries ==
  \A threshold \in Ordinary : \A e \in EntrySet(Contents) : ShouldRequeue(e) => IsKept(AfterTimePass(threshold), e)

\* A size pass frees the requested bytes, or all bytes.
SizePassFreesRequestedBytes ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET left == Bytes(Entries(AfterSizePass(goal))) IN left = 0 \/ Bytes(Entries(Contents)) - left >= goal

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: Advance, TimePass.  Every entry expires.  A time pass then removes the entry, or requeues it.  Requeues for
\* expected reads have a maximum.  Requeues for recent access end because lookups are not fair, so they stop.
EveryEntryIsEventuallyEvicted == Entries(Contents) = <<>>

\* Fair: Advance, TimePass.  A time pass drops a detached wrapper once every entry in front of it is expired.
EveryDetachedWrapperIsEventuallyDropped == \A i \in DOMAIN queue : queue[i] # None

\* Fair: EvictToWatermark.  If the watermark is below the trigger, a size check brings the total to the trigger or below
\* it, or leaves no entry.  That needs no time: one pass visits an entry again until its requeues are used up.
SizeCheckEventuallyEndsAtOrBelowTrigger == IsOverTrigger => Entries(Contents) = <<>>
=============================================================================
