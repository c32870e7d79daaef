------------------------ MODULE RangeCacheProperties ------------------------
(***************************************************************************)
(* Guarantees of the range caches: twin of invariants/range_cache,         *)
(* under the same names.                                                   *)
(*                                                                         *)
(* A property of a step is an invariant: it holds for every step from      *)
(* every reached state.  A property of all steps is an action property.    *)
(*                                                                         *)
(* Equal edges establish the other properties of the model.  Outcomes are  *)
(* not modelled, and copies have no numbers.                               *)
(***************************************************************************)
EXTENDS RangeCache

InSet(seq) == {seq[i] : i \in DOMAIN seq}
EntrySet(of) == InSet(Entries(of))
Bytes(seq) == LET Sum[n \in 0..Len(seq)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + seq[n].bytes IN Sum[Len(seq)]

\* Whether an entry is still cached after a step; the entries that left.
IsKept(after, e) == Find(after, e.cache, e.position) # None
Gone(after) == LET IsGone(e) == ~IsKept(after, e) IN SelectSeq(Entries(Contents), IsGone)

\* Thresholds that are not in the future, as in the broker.
Ordinary == {threshold \in threshold_ns : threshold <= 0}

-----------------------------------------------------------------------------
(* States. *)

CacheSizeEqualsSumOfEntrySizes == \A c \in DOMAIN sizes : LET IsOf(e) == e.cache = c
                                        IN sizes[c] = Bytes(SelectSeq(Entries(Contents), IsOf))

-----------------------------------------------------------------------------
(* Puts, lookups and removals. *)

LatestPutSetsExpectedReadCount ==
  \A c \in cache, p \in position, b \in bytes, n \in expected_reads :
    LET e == Find(AfterPut(c, p, b, n), c, p) IN e.released \/ e.expected_reads = InitialCount(n)

InvertedRangeIsEmpty ==
  \A low \in first, high \in last : Before(high, low) =>
    /\ ~IsRefused(low, high)
    /\ \A c \in cache, inclusive \in last_inclusive : AfterRemoveRange(c, low, high, inclusive) = Contents
    /\ \A c \in cache, h \in hold : AfterGetRange(c, low, high, h) = Contents

-----------------------------------------------------------------------------
(* Eviction passes. *)

TimePassKeepsDueEntries ==
  \A threshold \in Ordinary : \A e \in EntrySet(Contents) : ShouldRequeue(e) => IsKept(AfterTimePass(threshold), e)

\* A size pass frees the requested bytes, or all there are [13].
SizePassFreesRequestedBytes ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET left == Bytes(Entries(AfterSizePass(goal))) IN left = 0 \/ Bytes(Entries(Contents)) - left >= goal

-----------------------------------------------------------------------------
(* Steps. *)

\* All defined read counts, and the number of open copies whose read count is at most n.
Counters == ({e.expected_reads : e \in EntrySet(Contents)} \cup {g[2] : g \in DOMAIN orphaned_copies}) \ {None}
CopiesAtMost(n) ==
  LET IsAtMost(e) == e.expected_reads # None /\ e.expected_reads <= n
  IN CopiesIn(SelectSeq(Entries(Contents), IsAtMost)) + OrphanedCopiesIn({g \in DOMAIN orphaned_copies : g[2] # None /\ g[2] <= n})

\* The read count of an entry that remains cached decreases or becomes undefined.
IsAnEntryCountedDown ==
  \E e \in EntrySet(Contents) :
    LET now == Find(Contents', e.cache, e.position)
    IN now # None /\ e.expected_reads # None /\ now.expected_reads # e.expected_reads /\
       (now.expected_reads = None \/ now.expected_reads < e.expected_reads)

-----------------------------------------------------------------------------
(* Liveness: goals reached once only the fair actions happen. *)

\* Time passes empty the caches once there are no more puts and lookups, whatever reads are expected [P3].
EveryEntryIsEventuallyEvicted == Entries(Contents) = <<>>

EveryDetachedWrapperIsEventuallyDropped == \A i \in DOMAIN queue : queue[i] # None

SizeCheckEventuallyEndsAtOrBelowTrigger == IsOverTrigger => Entries(Contents) = <<>>
=============================================================================
