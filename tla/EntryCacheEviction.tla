------------------------- MODULE EntryCacheEviction -------------------------
(***************************************************************************)
(* Insertion and eviction: twin of model/entry_cache/eviction.py, and the  *)
(* rules of RangeCache.tla for the state of the entry cache.  Models       *)
(* RangeEntryCacheManagerImpl and RangeCacheRemovalQueue.                  *)
(*                                                                         *)
(* A share of the maximum size is the product of the maximum and an exact  *)
(* fraction, rounded down.  The broker truncates a product of doubles.     *)
(***************************************************************************)
EXTENDS EntryCacheState

-----------------------------------------------------------------------------
(* Expected read counts. *)

\* EntryReadCountHandlerImpl.maybeCreate: the read count of a new handler.  For zero or less there is no handler (None).
InitialCount(n) == IF n > 0 THEN n ELSE None

\* markRead and incrementExpectedReadCount: the read count may become negative; without a handler nothing changes.
MarkedRead(n) == IF n = None THEN None ELSE n - 1
Replayed(n) == IF n = None THEN None ELSE n + 1
Same(each) == each

HasExpectedReads(n) == n # None /\ n >= 1

\* Replaces the read count by New(read count), and the copies by Copies(copies): of the entry in slot i (ChangedAt), or
\* of a group g of orphaned copies (ChangedOrphaned).
ChangedAt(c, i, New(_), Copies(_)) ==
  [c EXCEPT !.queue = Exchanged(@, i, [@[i] EXCEPT !.expected_reads = New(@), !.copies = Copies(@)])]
ChangedOrphaned(c, g, New(_), Copies(_)) ==
  [c EXCEPT !.orphaned_copies =
     WithOrphanedCopies(WithoutOrphanedCopies(@, g), Copies(g.copies), New(g.expected_reads))]

\* The same for the entry or group whose copies satisfy Has; there is exactly one.
ChangedWhere(c, Has(_), New(_), Copies(_)) ==
  LET slots == {i \in DOMAIN c.queue : c.queue[i] # None /\ Has(c.queue[i].copies)}
  IN IF slots # {} THEN ChangedAt(c, CHOOSE i \in slots : TRUE, New, Copies)
     ELSE ChangedOrphaned(c, CHOOSE g \in DOMAIN c.orphaned_copies : Has(g.copies), New, Copies)

-----------------------------------------------------------------------------
(* Sizes and removal. *)

\* A share of the maximum size, rounded down.  The product of the share's numerator and the maximum may exceed TLC's
\* 32-bit integers, so the maximum is divided first.
ShareOf(share) == (max_bytes \div share.den) * share.num + ((max_bytes % share.den) * share.num) \div share.den
\* evictionTriggerThresholdPercent
TriggerShare == [num |-> 98, den |-> 100]
IsOverTrigger(c) == c.total_bytes > ShareOf(TriggerShare)

\* Subtracts the bytes of the removed entries `gone` from the sizes of their range caches and from the total.  The
\* copies of these entries become orphaned.
RECURSIVE AccountForRemoved(_, _)
AccountForRemoved(c, gone) ==
  IF gone = <<>> THEN c
  ELSE LET e == Head(gone)
           n == IF removal_marks_read THEN MarkedRead(e.expected_reads) ELSE e.expected_reads
       IN AccountForRemoved([c EXCEPT !.sizes[e.range_cache] = @ - e.bytes, !.total_bytes = @ - e.bytes,
                                       !.orphaned_copies = WithOrphanedCopies(@, e.copies, n)], Tail(gone))

\* Removes the entries that satisfy Gone.  Their wrappers stay in the queue, detached.
RemoveEntries(c, Gone(_)) ==
  LET IsGone(slot) == slot # None /\ Gone(slot)
      Nothing(e) == None
  IN AccountForRemoved([c EXCEPT !.queue = Changed(@, Gone, Nothing)], SelectSeq(c.queue, IsGone))

-----------------------------------------------------------------------------
(* Passes over the removal queue. *)

\* shouldRequeue: whether an entry is due for requeue.  The maximum limits requeues for expected reads, not those for
\* recent access.
ShouldRequeue(e) == \/ extend_ttl_of_recently_accessed /\ e.accessed
                    \/ e.requeue_count < max_requeue_times /\ HasExpectedReads(e.expected_reads)

\* markRequeued: the entry as the pass requeues it, with its timestamp now and `accessed` cleared.
Requeued(e) == [e EXCEPT !.timestamp_ns = 0, !.accessed = FALSE, !.requeue_count = @ + 1]

\* The result of a time pass for the head of the queue.  An entry whose timestamp is the threshold is not expired.
TimePassPredicate(slot, threshold) ==
  IF slot = None THEN "MISSING"
  ELSE IF ~(slot.timestamp_ns < threshold) THEN "STOP"
  ELSE IF ShouldRequeue(slot) THEN "REQUEUE" ELSE "REMOVE"

\* Whether a size pass removes an entry because it is expired, also if it is due for requeue.  This is PIP-430's
\* evictLeastAccessedEntries(sizeToFree, expirationTimestamp).
IsRemovedAsExpired(e) == ~size_pass_requeues_expired /\ e.timestamp_ns < -ttl_ns

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
            [] result = "REMOVE"  -> EvictionPass(by_time, limit, Tail(slots), Append(gone, slot), freed + slot.bytes)

EvictEntries(c, by_time, limit) ==
  LET walk == EvictionPass(by_time, limit, c.queue, <<>>, 0)
  IN AccountForRemoved([c EXCEPT !.queue = walk.queue], walk.gone)

\* doEvictToWatermarkWhenOverThreshold, the size check: above the trigger and above the watermark, a size pass down to
\* the watermark.
SizeCheck(c) ==
  LET wanted == c.total_bytes - ShareOf(watermark)
  IN IF wanted > 0 /\ IsOverTrigger(c) THEN EvictEntries(c, FALSE, wanted) ELSE c

\* triggerEvictionWhenNeeded: above the trigger, schedules an eviction task unless evictionInProgress is set.  With
\* `eviction_task` "immediate", runs the size check in this step instead.
TriggerEviction(c) ==
  IF c.eviction_in_progress \/ ~IsOverTrigger(c) THEN c
  ELSE IF eviction_task = "immediate" THEN SizeCheck(c)
  ELSE [c EXCEPT !.eviction_in_progress = TRUE, !.tasks = @ + 1]

-----------------------------------------------------------------------------
(* Insertion. *)

\* In these operators, s is a range cache, p a position, and b, n and `copies` are bytes, read count and copies of an
\* entry.

IsAt(slot, s, p) == slot # None /\ slot.position = p /\ slot.range_cache = s
IsCached(c, s, p) == \E i \in DOMAIN c.queue : IsAt(c.queue[i], s, p)

\* Adds an entry, whose position is not cached, to its range cache and to the tail of the queue.  This may trigger an
\* eviction.
Cached(c, s, p, b, n, copies) ==
  LET e == [range_cache |-> s, position |-> p, bytes |-> b, expected_reads |-> n, copies |-> copies, timestamp_ns |-> 0,
            requeue_count |-> 0, accessed |-> FALSE]
  IN TriggerEviction([c EXCEPT !.queue = Append(@, e), !.sizes[s] = @ + b, !.total_bytes = @ + b])

\* Rejects an entry whose position is cached; n and `copies` are those of the rejected entry's handler.  With
\* `duplicate_put` "latest_handler", the cached entry gets this handler (EntryImpl.updateExpectedReadCount), and the
\* cached entry's copies become orphaned.  Otherwise the rejected entry's copies become orphaned.
InsertDuplicate(c, s, p, n, copies) ==
  LET present == c.queue[CHOOSE i \in DOMAIN c.queue : IsAt(c.queue[i], s, p)]
      Chosen(e) == e = present
      New(e) == [e EXCEPT !.expected_reads = n, !.copies = copies]
  IN IF duplicate_put = "latest_handler"
     THEN [c EXCEPT !.queue = Changed(@, Chosen, New),
                    !.orphaned_copies = WithOrphanedCopies(@, present.copies, present.expected_reads)]
     ELSE [c EXCEPT !.orphaned_copies =
             WithOrphanedCopies(@, copies, IF rejection_marks_read THEN MarkedRead(n) ELSE n)]

InsertOrReplace(c, s, p, b, n, copies) ==
  IF IsCached(c, s, p) THEN InsertDuplicate(c, s, p, n, copies) ELSE Cached(c, s, p, b, n, copies)
=============================================================================
