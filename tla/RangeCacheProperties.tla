------------------------ MODULE RangeCacheProperties ------------------------
(***************************************************************************)
(* What the range caches promise: the twin of invariants/range_cache.py,   *)
(* under the same names.                                                   *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.  Where a promise is *)
(* about every step, it is an action property.                             *)
(*                                                                         *)
(* Not said here: what a lookup gives to its caller, and that a copy has   *)
(* one counter.  Outcomes are not modelled, and copies have no names.      *)
(***************************************************************************)
EXTENDS RangeCache

InSet(seq) == {seq[i] : i \in DOMAIN seq}
EntrySet(of) == InSet(Entries(of))
Bytes(seq) == LET Sum[n \in 0..Len(seq)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + seq[n].bytes IN Sum[Len(seq)]

\* Whether an entry of now is still cached in the contents after a step, and the entry of now that one then was.
IsKept(after, e) == Find(after, e.cache, e.position) # None
Gone(after) == LET IsGone(e) == ~IsKept(after, e) IN SelectSeq(Entries(Contents), IsGone)

\* Thresholds that are not in the future, as those of the broker's own passes.
Ordinary == {threshold \in threshold_ns : threshold <= 0}

-----------------------------------------------------------------------------
(* Of every state. *)

\* The size of a cache is the sum of its entries' bytes as they were at insertion [1].
CacheSizeEqualsSumOfEntrySizes == \A c \in DOMAIN sizes : LET IsOf(e) == e.cache = c
                                        IN sizes[c] = Bytes(SelectSeq(Entries(Contents), IsOf))

-----------------------------------------------------------------------------
(* Of puts, lookups and removals. *)

\* After a put the entry expects the reads of that put, for it knows the cursors of now best [D9].
LatestPutSetsExpectedReadCount ==
  \A c \in cache, p \in position, b \in bytes, n \in expected_reads :
    LET e == Find(AfterPut(c, p, b, n), c, p) IN e.released \/ e.expected_reads = InitialCount(n)

\* A range whose first position is after its last holds nothing; asking for it is no error [D11].
InvertedRangeIsEmpty ==
  \A low \in first, high \in last : Before(high, low) =>
    /\ ~IsRefused(low, high)
    /\ \A c \in cache, inclusive \in last_inclusive : AfterRemoveRange(c, low, high, inclusive) = Contents
    /\ \A c \in cache, h \in hold : AfterGetRange(c, low, high, h) = Contents

-----------------------------------------------------------------------------
(* Of eviction passes. *)

\* An entry that is due for an extension is not removed at its first visit [12].
TimePassKeepsDueEntries ==
  \A threshold \in Ordinary : \A e \in EntrySet(Contents) : ShouldRequeue(e) => IsKept(AfterTimePass(threshold), e)

\* A size pass frees what was asked, or everything there is [13].
SizePassFreesRequestedBytes ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET left == Bytes(Entries(AfterSizePass(goal))) IN left = 0 \/ Bytes(Entries(Contents)) - left >= goal

\* Without its last removal a size pass would not have reached its goal [13].
SizePassFreesNoMoreThanNeeded ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET gone == Gone(AfterSizePass(goal))
    IN gone = <<>> \/ \E e \in InSet(gone) : Bytes(gone) - e.bytes < goal

-----------------------------------------------------------------------------
(* Of every step. *)

\* All counters that are defined, and how many open copies there are whose counter is defined and at most n.
Counters == ({e.expected_reads : e \in EntrySet(Contents)} \cup {g[2] : g \in DOMAIN orphaned_copies}) \ {None}
CopiesAtMost(n) ==
  LET IsAtMost(e) == e.expected_reads # None /\ e.expected_reads <= n
  IN CopiesIn(SelectSeq(Entries(Contents), IsAtMost)) + OrphanedCopiesIn({g \in DOMAIN orphaned_copies : g[2] # None /\ g[2] <= n})

\* The counter of an entry that stays is lower than before, or undefined.
IsAnEntryCountedDown ==
  \E e \in EntrySet(Contents) :
    LET now == Find(Contents', e.cache, e.position)
    IN now # None /\ e.expected_reads # None /\ now.expected_reads # e.expected_reads /\
       (now.expected_reads = None \/ now.expected_reads < e.expected_reads)

\* A counter that open copies see is lower than before.  A step that gives out copies lowers none of the others.
IsACopyCountedDown ==
  OpenCopies' <= OpenCopies /\ \E n \in Counters \cup Counters' : CopiesAtMost(n)' > CopiesAtMost(n)

ADelivery == (TRUE \in delivered /\ ReleaseOf(TRUE)) /\ ~(FALSE \in delivered /\ ReleaseOf(FALSE))

\* A counter is its initial value plus the replays minus the deliveries: nothing else changes it, but for a put,
\* which gives an entry a new one and leaves the old one to its copies [18].
OnlyDeliveredReleasesDecrementReadCount ==
  [][/\ IsAnEntryCountedDown => ADelivery \/ MarkRead \/ Put \/ PutMismatched
     /\ IsACopyCountedDown => ADelivery \/ MarkRead]_vars

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* Once nothing is put or looked up, time passes empty the caches, expected reads or not [P3].
EveryEntryIsEventuallyEvicted == Entries(Contents) = <<>>

\* A detached slot is dropped no later than when every entry in front of it has expired [P4].
EveryDetachedWrapperIsEventuallyDropped == \A i \in DOMAIN queue : queue[i] # None

\* The size check brings the caches below the trigger, whatever reads their entries expect [P2].
SizeCheckEventuallyEndsAtOrBelowTrigger == IsOverTrigger => Entries(Contents) = <<>>
=============================================================================
