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

Max(set) == CHOOSE n \in set : \A m \in set : n >= m
InSet(seq) == {seq[i] : i \in DOMAIN seq}
EntrySet(of) == InSet(Entries(of))
Bytes(seq) == LET Sum[n \in 0..Len(seq)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + seq[n].bytes IN Sum[Len(seq)]

\* Whether an entry of now is still cached in the contents after a step, and the entry of now that one then was.
IsKept(after, e) == Find(after, e.cache, e.position) # None
Was(e) == Find(Contents, e.cache, e.position)
Gone(after) == LET IsGone(e) == ~IsKept(after, e) IN SelectSeq(Entries(Contents), IsGone)

\* What passes, and removals by position, can make of the caches of now.
AfterPasses == {AfterTimePass(threshold) : threshold \in threshold_ns} \cup
               {AfterSizePass(goal) : goal \in bytes_to_free} \cup {AfterEvictToWatermark}
AfterRemovals == {AfterClear(c) : c \in cache} \cup {AfterInvalidateLedger(c, l) : c \in cache, l \in ledger} \cup
                 {AfterRemoveRange(c, low, high, inclusive) :
                    c \in cache, low \in first, high \in last, inclusive \in last_inclusive}

\* Thresholds that are not in the future, as those of the broker's own passes.
Ordinary == {threshold \in threshold_ns : threshold <= 0}

-----------------------------------------------------------------------------
(* Of every state. *)

\* The size of a cache is the sum of its entries' bytes as they were at insertion [1].
SizesAreSums == \A c \in DOMAIN sizes : LET IsOf(e) == e.cache = c
                                        IN sizes[c] = Bytes(SelectSeq(Entries(Contents), IsOf))

\* A cache holds at most one entry at a position, in exactly one slot [3, 4].
OneEntryPerPosition ==
  LET all == Entries(Contents)
  IN \A i, j \in DOMAIN all : i < j => <<all[i].cache, all[i].position>> # <<all[j].cache, all[j].position>>

\* From head to tail no entry is older than the one before it, so that a time pass may stop early [9].
QueueIsInOrderOfTime ==
  LET live == SelectSeq(queue, IsEntry)
  IN \A i \in DOMAIN live : /\ live[i].timestamp_ns <= 0
                            /\ i > 1 => live[i - 1].timestamp_ns <= live[i].timestamp_ns

-----------------------------------------------------------------------------
(* Of puts, lookups and removals. *)

\* A removal subtracts exactly the bytes of the entries that left the caches in it, once [5].
RemovalCountsAnEntryOnce ==
  \A after \in AfterPasses \cup AfterRemovals : \A c \in DOMAIN sizes :
    LET IsCounted(e) == e.cache = c /\ ~StaysCounted(e)
    IN sizes[c] - after.sizes[c] = Bytes(SelectSeq(Gone(after), IsCounted))

\* A put at a cached position changes nothing of the entry but its counter [7].
DuplicatePutLeavesTheEntry ==
  \A c \in cache, p \in position, b \in bytes, n \in expected_reads :
    LET present == Find(Contents, c, p)
        after == AfterPut(c, p, b, n)
        Uncounted(e) == [e EXCEPT !.expected_reads = None, !.copies = 0]
    IN IF present = None
       THEN Find(after, c, p) # None /\ Len(after.queue) = Len(queue) + 1
       ELSE /\ Uncounted(Find(after, c, p)) = Uncounted(present)
            /\ after.sizes = sizes
            /\ Len(after.queue) = Len(queue)

\* After a put the entry expects the reads of that put, for it knows the cursors of now best [D9].
LatestPutSetsTheCounter ==
  \A c \in cache, p \in position, b \in bytes, n \in expected_reads :
    LET e == Find(AfterPut(c, p, b, n), c, p) IN e.released \/ e.expected_reads = InitialCount(n)

\* A range whose first position is after its last holds nothing; asking for it is no error [D11].
AnInvertedRangeIsEmpty ==
  \A low \in first, high \in last : Before(high, low) =>
    /\ ~IsRefused(low, high)
    /\ \A c \in cache, inclusive \in last_inclusive : AfterRemoveRange(c, low, high, inclusive) = Contents
    /\ \A c \in cache, h \in hold : AfterGetRange(c, low, high, h) = Contents

\* Every entry that a lookup gives out is marked as accessed [16].
ALookupMarksWhatItFinds ==
  \A c \in cache, h \in hold :
    /\ \A p \in position : LET e == Find(AfterGet(c, p, h), c, p) IN e = None \/ e.released \/ e.accessed
    /\ \A low \in first, high \in last : ~IsRefused(low, high) =>
         \A e \in EntrySet(AfterGetRange(c, low, high, h)) :
           e.cache = c /\ Inside(e.position, low, high, TRUE) => e.released \/ e.accessed

-----------------------------------------------------------------------------
(* Of eviction passes. *)

\* An entry that a pass puts back keeps its bytes, counter and copies; it stays readable throughout [17].
ARequeueChangesNothingElse ==
  \A after \in AfterPasses : \A e \in EntrySet(after) :
    [Was(e) EXCEPT !.timestamp_ns = e.timestamp_ns, !.accessed = e.accessed, !.requeue_count = e.requeue_count] = e

\* Expected reads extend an entry's life up to the maximum, all requeues counted; only access goes past it [15].
ExtensionsAreLimited ==
  \A after \in AfterPasses : \A e \in EntrySet(after) :
    LET was == Was(e)
        by_access == extend_ttl_of_recently_accessed /\ was.accessed
    IN e.requeue_count <= Max({max_requeue_times, IF by_access THEN was.requeue_count + 1 ELSE was.requeue_count})

\* A pass puts back only entries that were due for an extension; one without a count gets none for reads [23].
OnlyWhatIsDueIsSpared ==
  \A after \in AfterPasses : \A e \in EntrySet(after) : e.requeue_count = Was(e).requeue_count \/ ShouldRequeue(Was(e))

\* After a time pass no entry in the caches is older than the threshold [10].
ATimePassLeavesNothingOlder ==
  \A threshold \in Ordinary : \A e \in EntrySet(AfterTimePass(threshold)) : ~IsExpired(e, threshold)

\* A time pass touches no entry whose age is the threshold's or less [11].
ATimePassTakesNothingYounger ==
  \A threshold \in Ordinary : \A e \in EntrySet(Contents) :
    IsExpired(e, threshold) \/ Find(AfterTimePass(threshold), e.cache, e.position) = e

\* An entry that is due for an extension is not removed at its first visit [12].
ADueEntrySurvivesATimePass ==
  \A threshold \in Ordinary : \A e \in EntrySet(Contents) : ShouldRequeue(e) => IsKept(AfterTimePass(threshold), e)

\* A size pass frees what was asked, or everything there is [13].
ASizePassReachesItsGoal ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET left == Bytes(Entries(AfterSizePass(goal))) IN left = 0 \/ Bytes(Entries(Contents)) - left >= goal

\* Without its last removal a size pass would not have reached its goal [13].
ASizePassTakesNoMoreThanNeeded ==
  \A goal \in bytes_to_free : goal > 0 =>
    LET gone == Gone(AfterSizePass(goal))
    IN gone = <<>> \/ \E e \in InSet(gone) : Bytes(gone) - e.bytes < goal

\* A size pass removes an entry that was due for an extension only when all that were not due are gone [12, 14].
ExpectedReadsGoLast ==
  \A goal \in bytes_to_free :
    LET after == AfterSizePass(goal)
        due == {e \in EntrySet(Contents) : ShouldRequeue(e)}
    IN (\A e \in due : IsKept(after, e)) \/ (\A e \in EntrySet(Contents) \ due : ~IsKept(after, e))

\* Of two entries that are not due for an extension, a pass removes the one that stands in front first [8].
FirstInFirstOut ==
  \A after \in AfterPasses : \A i, j \in DOMAIN queue :
    LET IsPlain(slot) == slot # None /\ ~ShouldRequeue(slot)
    IN i < j /\ IsPlain(queue[i]) /\ IsPlain(queue[j]) /\ ~IsKept(after, queue[j]) => ~IsKept(after, queue[i])

\* A pass drains the detached slots that it meets, also those in front of the entry at which it stops.
NoDetachedSlotAtTheHead ==
  \A after \in {AfterTimePass(threshold) : threshold \in threshold_ns}
                 \cup {AfterSizePass(goal) : goal \in {n \in bytes_to_free : n > 0}} :
    after.queue = <<>> \/ Head(after.queue) # None

\* Below the trigger the size check does nothing; above it, it brings the caches to the watermark or empties them [P2].
TheSizeCheckReachesTheWatermark ==
  LET after == AfterEvictToWatermark
  IN IF IsOverTrigger
     THEN Total(sizes) - Total(after.sizes) >= Max({Total(sizes) - ShareOf(watermark), 0}) \/ Entries(after) = <<>>
     ELSE after = Contents

-----------------------------------------------------------------------------
(* Of every step. *)

APass == TimePass \/ SizePass \/ EvictToWatermark

\* A copy, once given out, stays until its own release, whatever becomes of its entry [6].
ACopyStaysOpenUntilReleased == [][OpenCopies' < OpenCopies => Release]_vars

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
OnlyDeliveryLowersACounter ==
  [][/\ IsAnEntryCountedDown => ADelivery \/ MarkRead \/ Put \/ PutMismatched
     /\ IsACopyCountedDown => ADelivery \/ MarkRead]_vars

\* An entry that was looked up stays marked until a pass puts it back at the tail [16].
AnAccessMarkStaysUntilRequeue ==
  [][\A e \in EntrySet(Contents) :
       LET now == Find(Contents', e.cache, e.position)
       IN e.accessed /\ now # None => now.accessed \/ (now.timestamp_ns = 0 /\ APass)]_vars

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* Once nothing is put or looked up, time passes empty the caches, expected reads or not [P3].
NoEntryLivesForEver == Entries(Contents) = <<>>

\* A detached slot is dropped no later than when every entry in front of it has expired [P4].
NoSlotStaysDetached == \A i \in DOMAIN queue : queue[i] # None

\* The size check brings the caches below the trigger, whatever reads their entries expect [P2].
TheCachesComeBelowTheTrigger == IsOverTrigger => Entries(Contents) = <<>>
=============================================================================
