----------------------------- MODULE RangeCache -----------------------------
(****************************************************************************)
(* Range caches of a broker and the removal queue that they share: which    *)
(* entries a pass over the queue evicts, and which it requeues.             *)
(*                                                                          *)
(* Source: PIP-430.  Twin of model/range_cache.py: the same actions and     *)
(* settings, equal states and steps.  Models RangeCache,                    *)
(* RangeCacheRemovalQueue, RangeCacheEntryWrapper,                          *)
(* EntryReadCountHandlerImpl and                                            *)
(* RangeEntryCacheManagerImpl.doEvictToWatermarkWhenOverThreshold.          *)
(*                                                                          *)
(* Step grain: one call on a cache, or one whole eviction pass.             *)
(* CacheSteps.tla models the steps within calls and passes.                 *)
(*                                                                          *)
(* A slot of the queue is a cached entry, or None: the detached wrapper of  *)
(* a removed entry.  A copy is an entry held by a reader.  A copy shares    *)
(* its read count (the handler) with the cached entry, until the cached     *)
(* entry is removed or a duplicate put replaces the handler.  From then on  *)
(* the copy is orphaned.  A state is a canonical state of the model:        *)
(*                                                                          *)
(*   timestamp_ns  relative to now: 0 at the put or requeue, negative when  *)
(*                 time has passed, positive when the clock stepped back    *)
(*   copies        the number of open copies that share the read count of   *)
(*                 a cached entry; copies are not numbered here             *)
(*   orphaned_copies  a bag (a function to multiplicities) of pairs: a      *)
(*                 number of copies that share a read count, and that count *)
(*                                                                          *)
(* Not modelled: return values of actions; and, as in the model, cursors,   *)
(* reference counts and the schedule of the passes.  A rejected call        *)
(* changes nothing.  Shares of the maximum size are exact fractions; the    *)
(* broker truncates products of doubles.                                    *)
(****************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  None,
  \* Settings of the broker.  start_NAME is the first value of the variable NAME.  Config in model/range_cache.py
  \* explains each setting and each rule.
  caches, ttl_ns, max_bytes, watermark, counts_reads,
  start_max_requeue_times, start_extend_ttl_of_recently_accessed,
  \* Rules on which versions or proposals differ.
  duplicate_put, inverted_range, removal_marks_read, undelivered_release_marks_read, access_requeue_counts,
  size_pass_requeues_expired, released_value_stays_counted, retention,
  \* The values of the actions' arguments, by name; threshold_ns is relative to now.
  cache, position, value_position, bytes, expected_reads, hold, delivered, first, last, last_inclusive, ledger,
  threshold_ns, bytes_to_free, advance_nanos, step_clock_back_nanos, set_max_requeue_times_value, set_extend_ttl_value

VARIABLES
  queue,              \* the removal queue: slots, head (oldest) first
  stash,              \* entries that size passes moved out of the queue; empty unless `retention` is "stash"
  sizes,              \* bytes of each cache (RangeCache.size)
  orphaned_copies,    \* open copies whose read count no cached entry has: a bag of <<copies, read count>>
  max_requeue_times,  \* dynamic setting: an entry with expected reads is requeued if its requeue_count is lower
  extend_ttl_of_recently_accessed  \* dynamic setting: whether an accessed entry is requeued

vars == <<queue, stash, sizes, orphaned_copies, max_requeue_times, extend_ttl_of_recently_accessed>>
settings == <<max_requeue_times, extend_ttl_of_recently_accessed>>

\* A record of all variables that are not settings.  The operators below map such a record to the next one.  Become
\* makes a record the next state.
Contents == [queue |-> queue, stash |-> stash, sizes |-> sizes, orphaned_copies |-> orphaned_copies]

Become(c) == /\ queue' = c.queue
             /\ stash' = c.stash
             /\ sizes' = c.sizes
             /\ orphaned_copies' = c.orphaned_copies
             /\ UNCHANGED settings

Init == /\ queue = <<>>
        /\ stash = <<>>
        /\ sizes = [c \in 0..caches - 1 |-> 0]
        /\ orphaned_copies = <<>>
        /\ max_requeue_times = start_max_requeue_times
        /\ extend_ttl_of_recently_accessed = start_extend_ttl_of_recently_accessed

-----------------------------------------------------------------------------
(* Read counts, requeue and expiry. *)

\* EntryReadCountHandlerImpl.maybeCreate: the read count of a new handler.  For zero or less there is no handler (None).
InitialCount(n) == IF counts_reads /\ n > 0 THEN n ELSE None

\* markRead and incrementExpectedReadCount: the read count may become negative; without a handler nothing changes.
MarkedRead(n) == IF n = None THEN None ELSE n - 1
Replayed(n) == IF n = None THEN None ELSE n + 1

HasExpectedReads(e) == e.expected_reads # None /\ e.expected_reads >= 1

\* shouldRequeue: whether an entry is due for requeue.  The maximum limits requeues for expected reads, not those for
\* recent access.
ShouldRequeue(e) == \/ extend_ttl_of_recently_accessed /\ e.accessed
                    \/ e.requeue_count < max_requeue_times /\ HasExpectedReads(e)

\* `requeueCount` after a requeue.  Without access_requeue_counts, a requeue for recent access does not count.
RequeuesAfter(e) == IF access_requeue_counts \/ ~(extend_ttl_of_recently_accessed /\ e.accessed)
                    THEN e.requeue_count + 1
                    ELSE e.requeue_count

\* Whether the timestamp is before the threshold.  An entry at the threshold is not expired.
IsExpired(e, threshold) == e.timestamp_ns < threshold

\* markRequeued: the entry as the pass requeues it, with its timestamp now and `accessed` cleared.
Requeued(e) == [e EXCEPT !.timestamp_ns = 0, !.accessed = FALSE, !.requeue_count = RequeuesAfter(e)]

\* Positions are ordered by ledger first, then by entry.
Before(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
Inside(p, low, high, inclusive) == ~Before(p, low) /\ (Before(p, high) \/ (inclusive /\ p = high))

\* Whether a range is rejected because its first position is after its last (RangeCache.getRange).  Otherwise such a
\* range is empty.
IsRefused(low, high) == inverted_range = "illegal_argument" /\ Before(high, low)

\* A share of the maximum size, rounded down.  The product of the share's numerator and the maximum may exceed TLC's
\* 32-bit integers, so the maximum is divided first.
ShareOf(share) == (max_bytes \div share.den) * share.num + ((max_bytes % share.den) * share.num) \div share.den
\* evictionTriggerThresholdPercent
TriggerShare == [num |-> 98, den |-> 100]

\* The total size of the caches.
Total(of_caches) == LET Sum[n \in 0..caches] == IF n = 0 THEN 0 ELSE Sum[n - 1] + of_caches[n - 1] IN Sum[caches]
IsOverTrigger == Total(sizes) > ShareOf(TriggerShare)

-----------------------------------------------------------------------------
(* Finding and changing entries. *)

IsEntry(slot) == slot # None
IsAt(slot, c, p) == slot # None /\ slot.position = p /\ slot.cache = c

\* All cached entries.
Entries(contents) == SelectSeq(contents.queue, IsEntry) \o contents.stash

\* The entry of cache c at position p, or None.
Find(contents, c, p) ==
  LET Matches(slot) == IsAt(slot, c, p)
      found == SelectSeq(contents.queue \o contents.stash, Matches)
  IN IF found = <<>> THEN None ELSE found[1]

\* The slots, with New(e) for each entry e that satisfies Chosen.
Changed(slots, Chosen(_), New(_)) ==
  [i \in DOMAIN slots |-> IF slots[i] # None /\ Chosen(slots[i]) THEN New(slots[i]) ELSE slots[i]]

ChangedAll(contents, Chosen(_), New(_)) ==
  [contents EXCEPT !.queue = Changed(@, Chosen, New), !.stash = Changed(@, Chosen, New)]

\* The bag with one more read count and its copies.  Without copies the bag stays the same.
WithOrphanedCopies(bag, copies, count) ==
  IF copies = 0 THEN bag
  ELSE [g \in DOMAIN bag \cup {<<copies, count>>} |->
          (IF g \in DOMAIN bag THEN bag[g] ELSE 0) + (IF g = <<copies, count>> THEN 1 ELSE 0)]

WithoutOrphanedCopies(bag, group) ==
  IF bag[group] > 1 THEN [bag EXCEPT ![group] = @ - 1] ELSE [g \in DOMAIN bag \ {group} |-> bag[g]]

\* Whether the size of the cache keeps the bytes of a removed entry: RangeCache.removeEntry only unmaps an entry whose
\* value is already deallocated.
StaysCounted(e) == released_value_stays_counted /\ e.released
Freed(e) == IF StaysCounted(e) THEN 0 ELSE e.bytes

\* Subtracts the bytes of the removed entries `gone` from the sizes.  The copies of these entries become orphaned.
RECURSIVE AccountForRemoved(_, _)
AccountForRemoved(contents, gone) ==
  IF gone = <<>> THEN contents
  ELSE LET e == Head(gone)
           count == IF removal_marks_read THEN MarkedRead(e.expected_reads) ELSE e.expected_reads
       IN AccountForRemoved([contents EXCEPT !.sizes[e.cache] = @ - Freed(e),
                                             !.orphaned_copies = WithOrphanedCopies(@, e.copies, count)], Tail(gone))

-----------------------------------------------------------------------------
(* Putting and looking up. *)

NewEntry(c, p, b, n) ==
  [cache |-> c, position |-> p, bytes |-> b, expected_reads |-> InitialCount(n), copies |-> 0,
   timestamp_ns |-> 0, requeue_count |-> 0, accessed |-> FALSE, released |-> FALSE]

\* RangeCache.put: appends an absent entry.  A put at a cached position adds nothing; unless duplicate_put is "keep", or
\* the cached value is deallocated, the put replaces the handler of the cached entry (updateIfCached).
AfterPut(c, p, b, n) ==
  LET present == Find(Contents, c, p)
      Chosen(e) == e = present
      New(e) == [e EXCEPT !.expected_reads = InitialCount(n), !.copies = 0]
  IN IF present = None
     THEN [Contents EXCEPT !.queue = Append(@, NewEntry(c, p, b, n)), !.sizes[c] = @ + b]
     ELSE IF duplicate_put = "keep" \/ present.released
     THEN Contents
     ELSE [ChangedAll(Contents, Chosen, New) EXCEPT
             !.orphaned_copies = WithOrphanedCopies(@, present.copies, present.expected_reads)]

Put == \E c \in cache, p \in position, b \in bytes, n \in expected_reads : Become(AfterPut(c, p, b, n))

\* A put is rejected if the position of its value v is not its key p.
PutMismatched ==
  \E c \in cache, p \in position, v \in value_position, b \in bytes, n \in expected_reads :
    IF p = v THEN Become(AfterPut(c, p, b, n)) ELSE UNCHANGED vars

\* A lookup marks found entries accessed.  If h (`hold`) is true, the caller keeps a copy that shares the read count.
\* An entry whose value was deallocated is marked accessed, but not returned.
LookedAt(e, h) == [e EXCEPT !.accessed = TRUE, !.copies = IF h /\ ~e.released THEN @ + 1 ELSE @]

AfterGet(c, p, h) ==
  LET Chosen(e) == e.position = p /\ e.cache = c
      New(e) == LookedAt(e, h)
  IN ChangedAll(Contents, Chosen, New)

Get == \E c \in cache, p \in position, h \in hold : Become(AfterGet(c, p, h))

AfterGetRange(c, low, high, h) ==
  LET Chosen(e) == e.cache = c /\ Inside(e.position, low, high, TRUE)
      New(e) == LookedAt(e, h)
  IN IF IsRefused(low, high) THEN Contents ELSE ChangedAll(Contents, Chosen, New)

GetRange == \E c \in cache, low \in first, high \in last, h \in hold : Become(AfterGetRange(c, low, high, h))

\* RangeCache.exists does not mark the entry accessed.
Exists == UNCHANGED vars

-----------------------------------------------------------------------------
(* Counting reads. *)

\* Replaces the read count n of one open copy by New(n).  `closed` is 1 if the copy is closed, else 0.
CountCopy(New(_), closed) ==
  /\ \/ \E i \in DOMAIN queue :
          /\ queue[i] # None /\ queue[i].copies > 0
          /\ queue' = [queue EXCEPT ![i].expected_reads = New(@), ![i].copies = @ - closed]
          /\ UNCHANGED <<stash, orphaned_copies>>
     \/ \E i \in DOMAIN stash :
          /\ stash[i].copies > 0
          /\ stash' = [stash EXCEPT ![i].expected_reads = New(@), ![i].copies = @ - closed]
          /\ UNCHANGED <<queue, orphaned_copies>>
     \/ \E g \in DOMAIN orphaned_copies :
          /\ orphaned_copies' = WithOrphanedCopies(WithoutOrphanedCopies(orphaned_copies, g), g[1] - closed, New(g[2]))
          /\ UNCHANGED <<queue, stash>>
  /\ UNCHANGED <<sizes, settings>>

Same(n) == n

\* EntryImpl.release: closes a copy.  The release of a delivered copy decrements its read count.  The release of an
\* undelivered copy does so only with undelivered_release_marks_read.
ReleaseOf(d) == IF d \/ undelivered_release_marks_read THEN CountCopy(MarkedRead, 1) ELSE CountCopy(Same, 1)
Release == \E d \in delivered : ReleaseOf(d)

\* The entry is added to the replay queue, so one more read is expected.
Replay == CountCopy(Replayed, 0)

AfterMarkRead(c, p) ==
  LET Chosen(e) == e.position = p /\ e.cache = c
      New(e) == [e EXCEPT !.expected_reads = MarkedRead(@)]
  IN ChangedAll(Contents, Chosen, New)

MarkRead == \E c \in cache, p \in position : Become(AfterMarkRead(c, p))

-----------------------------------------------------------------------------
(* Removing by position. *)

\* Removes the entries that satisfy Gone.  Their wrappers stay in the queue, detached.
RemoveEntries(Gone(_)) ==
  LET Stays(e) == ~Gone(e)
      Nothing(e) == None
      gone == SelectSeq(Entries(Contents), Gone)
  IN IF gone = <<>> THEN Contents
     ELSE AccountForRemoved([Contents EXCEPT !.queue = Changed(@, Gone, Nothing), !.stash = SelectSeq(@, Stays)], gone)

AfterRemoveRange(c, low, high, inclusive) ==
  LET Gone(e) == e.cache = c /\ Inside(e.position, low, high, inclusive)
  IN IF IsRefused(low, high) THEN Contents ELSE RemoveEntries(Gone)

RemoveRange == \E c \in cache, low \in first, high \in last, inclusive \in last_inclusive :
                 Become(AfterRemoveRange(c, low, high, inclusive))

AfterInvalidateLedger(c, l) ==
  LET Gone(e) == e.cache = c /\ Inside(e.position, <<l, 0>>, <<l + 1, 0>>, FALSE) IN RemoveEntries(Gone)

InvalidateLedger == \E c \in cache, l \in ledger : Become(AfterInvalidateLedger(c, l))

AfterClear(c) == LET Gone(e) == e.cache = c IN RemoveEntries(Gone)

Clear == \E c \in cache : Become(AfterClear(c))

-----------------------------------------------------------------------------
(* Eviction. *)

\* Whether a size pass removes an entry because it is expired, also if it is due for requeue.  This is PIP-430's
\* evictLeastAccessedEntries(sizeToFree, expirationTimestamp).
IsRemovedAsExpired(e) == ~size_pass_requeues_expired /\ IsExpired(e, -ttl_ns)

\* The result of a time pass for the head of the queue.
TimePassPredicate(slot, threshold) ==
  IF slot = None THEN "MISSING"
  ELSE IF ~IsExpired(slot, threshold) THEN "STOP"
  ELSE IF ShouldRequeue(slot) THEN "REQUEUE" ELSE "REMOVE"

\* The result of a size pass for the head of the queue.  The age of an entry matters only without
\* size_pass_requeues_expired.
SizePassPredicate(slot, freed, goal) ==
  IF slot = None THEN "MISSING"
  ELSE IF freed >= goal THEN "STOP"
  ELSE IF ShouldRequeue(slot) /\ ~IsRemovedAsExpired(slot) THEN "REQUEUE" ELSE "REMOVE"

\* RangeCacheRemovalQueue.evictEntries: one pass, from the head of the queue to the first STOP or to the end of the
\* queue.  The pass may visit a requeued entry again.  `limit` is the threshold of a time pass, or the bytes that a
\* size pass must free.  The value is [queue, gone]: the queue after the pass, and the removed entries.
RECURSIVE EvictionPass(_, _, _, _, _)
EvictionPass(by_time, limit, slots, gone, freed) ==
  IF slots = <<>> THEN [queue |-> slots, gone |-> gone]
  ELSE LET slot == Head(slots)
           result == IF by_time THEN TimePassPredicate(slot, limit) ELSE SizePassPredicate(slot, freed, limit)
       IN CASE result = "STOP"    -> [queue |-> slots, gone |-> gone]
            [] result = "MISSING" -> EvictionPass(by_time, limit, Tail(slots), gone, freed)
            [] result = "REQUEUE" -> EvictionPass(by_time, limit, Append(Tail(slots), Requeued(slot)), gone, freed)
            [] result = "REMOVE"  -> EvictionPass(by_time, limit, Tail(slots), Append(gone, slot), freed + Freed(slot))

Evicted(by_time, limit) == LET walk == EvictionPass(by_time, limit, queue, <<>>, 0)
                          IN AccountForRemoved([Contents EXCEPT !.queue = walk.queue], walk.gone)

\* `retention` "stash" is RangeCacheRemovalQueueStash, the first draft of apache/pulsar#24623.  MustBeStashed: whether a
\* size pass moves the entry to the stash, or keeps it there.
MustBeStashed(e) == HasExpectedReads(e) /\ ~IsExpired(e, -ttl_ns)

\* The first draft's time pass evicts the expired entries of the stash, and the entries of the queue before the first
\* unexpired one, with or without expected reads.
AfterStashTimePass(threshold) ==
  LET Old(e) == IsExpired(e, threshold)
      Young(e) == ~Old(e)
      stops == {i \in DOMAIN queue : queue[i] # None /\ Young(queue[i])}
      stop == IF stops = {} THEN Len(queue) + 1 ELSE CHOOSE i \in stops : \A j \in stops : i <= j
      passed == SelectSeq(SubSeq(queue, 1, stop - 1), IsEntry)
  IN AccountForRemoved([Contents EXCEPT !.queue = SubSeq(@, stop, Len(@)), !.stash = SelectSeq(@, Young)],
                       SelectSeq(stash, Old) \o passed)

\* The first draft's size pass visits the stash, then the queue.  Once enough bytes are freed, it keeps the rest of the
\* stash, and ends at the next entry of the queue.  `to_visit` has the entries of the stash that the pass has not
\* visited, `slots` those of the queue.  `kept` is the next stash, `gone` are the removed entries.
RECURSIVE StashSizePass(_, _, _, _, _, _)
StashSizePass(goal, to_visit, slots, kept, gone, freed) ==
  IF to_visit = <<>> /\ slots = <<>> THEN [queue |-> slots, stash |-> kept, gone |-> gone]
  ELSE LET from_stash == to_visit # <<>>
           slot == IF from_stash THEN Head(to_visit) ELSE Head(slots)
           rest == IF from_stash THEN Tail(to_visit) ELSE to_visit
           behind == IF from_stash THEN slots ELSE Tail(slots)
       IN CASE slot = None -> StashSizePass(goal, rest, behind, kept, gone, freed)
            [] slot # None /\ freed >= goal /\ ~from_stash -> [queue |-> slots, stash |-> kept, gone |-> gone]
            [] slot # None /\ freed < goal /\ ~MustBeStashed(slot) ->
                 StashSizePass(goal, rest, behind, kept, Append(gone, slot), freed + Freed(slot))
            [] OTHER -> StashSizePass(goal, rest, behind, Append(kept, slot), gone, freed)

AfterStashSizePass(goal) ==
  LET result == StashSizePass(goal, stash, queue, <<>>, <<>>, 0)
  IN AccountForRemoved([Contents EXCEPT !.queue = result.queue, !.stash = result.stash], result.gone)

AfterTimePass(threshold) == IF retention = "stash" THEN AfterStashTimePass(threshold) ELSE Evicted(TRUE, threshold)

TimePass == \E threshold \in threshold_ns : Become(AfterTimePass(threshold))

\* A goal of zero or less is rejected.
AfterSizePass(goal) ==
  IF goal <= 0 THEN Contents ELSE IF retention = "stash" THEN AfterStashSizePass(goal) ELSE Evicted(FALSE, goal)

SizePass == \E goal \in bytes_to_free : Become(AfterSizePass(goal))

\* doEvictToWatermarkWhenOverThreshold: above the trigger and above the watermark, a size pass down to the watermark.
AfterEvictToWatermark ==
  IF IsOverTrigger THEN AfterSizePass(Total(sizes) - ShareOf(watermark)) ELSE Contents

EvictToWatermark == Become(AfterEvictToWatermark)

\* getNonEvictableSize drops detached wrappers.
NonEvictableSize == Become([Contents EXCEPT !.queue = SelectSeq(@, IsEntry)])

-----------------------------------------------------------------------------
(* Time and settings. *)

\* The entries after the clock advances by nanos, or steps back if nanos is negative.
Aged(nanos) ==
  LET Chosen(e) == TRUE
      New(e) == [e EXCEPT !.timestamp_ns = @ - nanos]
  IN ChangedAll(Contents, Chosen, New)

Advance == \E nanos \in advance_nanos : Become(Aged(nanos))

SetMaxRequeueTimes ==
  /\ max_requeue_times' \in set_max_requeue_times_value
  /\ UNCHANGED <<queue, stash, sizes, orphaned_copies, extend_ttl_of_recently_accessed>>

SetExtendTtl ==
  /\ extend_ttl_of_recently_accessed' \in set_extend_ttl_value
  /\ UNCHANGED <<queue, stash, sizes, orphaned_copies, max_requeue_times>>

\* The clock steps back.  This models two concurrent puts that enter the queue in the opposite order of their
\* timestamps.
StepClockBack == \E nanos \in step_clock_back_nanos : Become(Aged(-nanos))

\* One release too many deallocates the value of a cached entry.
OverRelease ==
  \E c \in cache, p \in position :
    LET Chosen(e) == e.position = p /\ e.cache = c
        New(e) == [e EXCEPT !.released = TRUE]
    IN Become(ChangedAll(Contents, Chosen, New))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Whether a predicate holds for every cached entry.
OfAll(Holds(_)) == /\ \A i \in DOMAIN queue : queue[i] = None \/ Holds(queue[i])
                   /\ \A i \in DOMAIN stash : Holds(stash[i])

\* Slots of the queue and the stash, detached ones included.
SlotsAtMost(n) == Len(queue) + Len(stash) <= n

\* Nanoseconds since the oldest entry was put or requeued.
AgeAtMost(n) == LET Holds(e) == -e.timestamp_ns <= n IN OfAll(Holds)

\* The largest `requeueCount`.
RequeuesAtMost(n) == LET Holds(e) == e.requeue_count <= n IN OfAll(Holds)

\* The largest read count (HighestCount), and the largest negated read count (LowestCount).
HighestCountAtMost(n) == LET Holds(e) == e.expected_reads = None \/ e.expected_reads <= n
                         IN OfAll(Holds) /\ \A g \in DOMAIN orphaned_copies : g[2] = None \/ g[2] <= n
LowestCountAtMost(n) == LET Holds(e) == e.expected_reads = None \/ -e.expected_reads <= n
                        IN OfAll(Holds) /\ \A g \in DOMAIN orphaned_copies : g[2] = None \/ -g[2] <= n

\* Open copies that share the read count of a cached entry, and orphaned copies.
RECURSIVE CopiesIn(_)
CopiesIn(slots) == IF slots = <<>> THEN 0
                   ELSE CopiesIn(Tail(slots)) + IF Head(slots) = None THEN 0 ELSE Head(slots).copies

RECURSIVE OrphanedCopiesIn(_)
OrphanedCopiesIn(groups) == IF groups = {} THEN 0
                            ELSE LET g == CHOOSE g \in groups : TRUE
                                 IN orphaned_copies[g] * g[1] + OrphanedCopiesIn(groups \ {g})

OpenCopies == CopiesIn(queue) + CopiesIn(stash) + OrphanedCopiesIn(DOMAIN orphaned_copies)
OpenCopiesAtMost(n) == OpenCopies <= n
=============================================================================
