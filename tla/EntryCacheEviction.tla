------------------------- MODULE EntryCacheEviction -------------------------
(***************************************************************************)
(* Caching and eviction: the twin of model/entry_cache/eviction.py, and of *)
(* the rules of RangeCache.tla over the entry cache's state.               *)
(*                                                                         *)
(* Shares of the maximum are exact fractions here and rounded doubles in   *)
(* the broker.                                                             *)
(***************************************************************************)
EXTENDS EntryCacheState

-----------------------------------------------------------------------------
(* Counters. *)

\* The read count of a new entry; none for zero or less (EntryReadCountHandlerImpl.maybeCreate).
InitialCount(n) == IF n > 0 THEN n ELSE None

\* Changes a read count; it may become negative, and an undefined one does not change.
MarkedRead(n) == IF n = None THEN None ELSE n - 1
Replayed(n) == IF n = None THEN None ELSE n + 1
Same(each) == each

HasExpectedReads(n) == n # None /\ n >= 1

\* Changes the read count, and perhaps the copies, of an entry or of a group of orphaned copies.
ChangedAt(c, i, New(_), Copies(_)) ==
  [c EXCEPT !.queue = Exchanged(@, i, [@[i] EXCEPT !.expected_reads = New(@), !.copies = Copies(@)])]
ChangedOrphaned(c, g, New(_), Copies(_)) ==
  [c EXCEPT !.orphaned_copies = WithOrphanedCopies(WithoutOrphanedCopies(@, g), Copies(g.copies), New(g.expected_reads))]

\* The same for the holder whose copies satisfy Has.
ChangedWhere(c, Has(_), New(_), Copies(_)) ==
  LET slots == {i \in DOMAIN c.queue : c.queue[i] # None /\ Has(c.queue[i].copies)}
  IN IF slots # {} THEN ChangedAt(c, CHOOSE i \in slots : TRUE, New, Copies)
     ELSE ChangedOrphaned(c, CHOOSE g \in DOMAIN c.orphaned_copies : Has(g.copies), New, Copies)

-----------------------------------------------------------------------------
(* Leaving. *)

\* The whole bytes of a share of the maximum, without the product of the two, which TLC's integers may not hold.
ShareOf(share) == (max_bytes \div share.den) * share.num + ((max_bytes % share.den) * share.num) \div share.den
TriggerShare == [num |-> 98, den |-> 100]
IsOverTrigger(c) == c.total_bytes > ShareOf(TriggerShare)

\* Accounts for removed entries: subtracts their bytes from cache and total, and orphans their copies.
RECURSIVE AccountForRemoved(_, _)
AccountForRemoved(c, gone) ==
  IF gone = <<>> THEN c
  ELSE LET e == Head(gone)
           n == IF removal_marks_read THEN MarkedRead(e.expected_reads) ELSE e.expected_reads
       IN AccountForRemoved([c EXCEPT !.sizes[e.store] = @ - e.bytes, !.total_bytes = @ - e.bytes,
                          !.orphaned_copies = WithOrphanedCopies(@, e.copies, n)], Tail(gone))

\* Removes entries by position; their slots remain in the queue, detached.
Detached(c, Gone(_)) ==
  LET IsGone(slot) == slot # None /\ Gone(slot)
      Nothing(e) == None
  IN AccountForRemoved([c EXCEPT !.queue = Changed(@, Gone, Nothing)], SelectSeq(c.queue, IsGone))

-----------------------------------------------------------------------------
(* Passes over the removal queue. *)

\* Due for requeue: recently accessed, without limit, or with expected reads, up to the maximum.
ShouldRequeue(e) == \/ extend_ttl_of_recently_accessed /\ e.accessed
                    \/ e.requeue_count < max_requeue_times /\ HasExpectedReads(e.expected_reads)

\* A requeued entry: timestamp now, accessed cleared, requeueCount incremented.
Requeued(e) == [e EXCEPT !.timestamp_ns = 0, !.accessed = FALSE, !.requeue_count = @ + 1]

\* The result of a time pass for the head; the order of the tests matters.  Expired means strictly older.
TimePassPredicate(slot, threshold) ==
  CASE slot = None                      -> "MISSING"
    [] ~(slot.timestamp_ns < threshold) -> "STOP"
    [] ShouldRequeue(slot)          -> "REQUEUE"
    [] OTHER                            -> "REMOVE"

\* The result of a size pass for the head; the order of the tests matters, and age does not.
SizePassPredicate(slot, freed, goal) ==
  CASE slot = None             -> "MISSING"
    [] freed >= goal           -> "STOP"
    [] ShouldRequeue(slot) -> "REQUEUE"
    [] OTHER                   -> "REMOVE"

\* One pass from the head of the queue, until it stops or the queue is empty; it may visit a requeued entry again.
\* Gives the queue after it, and the removed entries.
RECURSIVE EvictionPass(_, _, _, _, _)
EvictionPass(by_time, limit, slots, gone, freed) ==
  IF slots = <<>> THEN [queue |-> slots, gone |-> gone]
  ELSE LET slot == Head(slots)
           verdict == IF by_time THEN TimePassPredicate(slot, limit) ELSE SizePassPredicate(slot, freed, limit)
       IN CASE verdict = "STOP"    -> [queue |-> slots, gone |-> gone]
            [] verdict = "MISSING" -> EvictionPass(by_time, limit, Tail(slots), gone, freed)
            [] verdict = "REQUEUE" -> EvictionPass(by_time, limit, Append(Tail(slots), Requeued(slot)), gone, freed)
            [] verdict = "REMOVE"  -> EvictionPass(by_time, limit, Tail(slots), Append(gone, slot), freed + slot.bytes)

Evicted(c, by_time, limit) ==
  LET walk == EvictionPass(by_time, limit, c.queue, <<>>, 0) IN AccountForRemoved([c EXCEPT !.queue = walk.queue], walk.gone)

\* The size check: above the trigger, a size pass down to the watermark.
SizeCheck(c) ==
  LET wanted == c.total_bytes - ShareOf(watermark)
  IN IF wanted > 0 /\ IsOverTrigger(c) THEN Evicted(c, FALSE, wanted) ELSE c

\* Above the trigger, queues an eviction task unless the eviction flag is set.
Triggered(c) ==
  CASE c.eviction_in_progress \/ ~IsOverTrigger(c) -> c
    [] eviction_task = "immediate"   -> SizeCheck(c)
    [] OTHER                         -> [c EXCEPT !.eviction_in_progress = TRUE, !.tasks = @ + 1]

-----------------------------------------------------------------------------
(* Caching. *)

IsAt(slot, s, p) == slot # None /\ slot.position = p /\ slot.store = s
IsCached(c, s, p) == \E i \in DOMAIN c.queue : IsAt(c.queue[i], s, p)

\* Inserts an absent entry into its cache and at the queue's tail; may trigger eviction.
Cached(c, s, p, b, n, copies) ==
  LET e == [store |-> s, position |-> p, bytes |-> b, expected_reads |-> n, copies |-> copies, timestamp_ns |-> 0,
            requeue_count |-> 0, accessed |-> FALSE]
  IN Triggered([c EXCEPT !.queue = Append(@, e), !.sizes[s] = @ + b, !.total_bytes = @ + b])

\* Rejects an entry whose position is cached; the cached entry may take over its read count.
\* `copies` are the rejected entry's, which share that read count.
InsertDuplicate(c, s, p, n, copies) ==
  LET present == c.queue[CHOOSE i \in DOMAIN c.queue : IsAt(c.queue[i], s, p)]
      Chosen(e) == e = present
      New(e) == [e EXCEPT !.expected_reads = n, !.copies = copies]
  IN IF duplicate_put = "latest_handler"
     THEN [c EXCEPT !.queue = Changed(@, Chosen, New), !.orphaned_copies = WithOrphanedCopies(@, present.copies, present.expected_reads)]
     ELSE [c EXCEPT !.orphaned_copies = WithOrphanedCopies(@, copies, IF rejection_marks_read THEN MarkedRead(n) ELSE n)]

InsertOrReplace(c, s, p, b, n, copies) ==
  IF IsCached(c, s, p) THEN InsertDuplicate(c, s, p, n, copies) ELSE Cached(c, s, p, b, n, copies)
=============================================================================
