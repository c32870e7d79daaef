------------------------- MODULE EntryCacheEviction -------------------------
(***************************************************************************)
(* What is cached, for how long, and when the broker evicts: the twin of   *)
(* model/entry_cache/eviction.py, and of those rules of RangeCache.tla     *)
(* that the entry cache uses, over its own state.                          *)
(*                                                                         *)
(* Shares of the maximum are exact fractions here and rounded doubles in   *)
(* the broker.                                                             *)
(***************************************************************************)
EXTENDS EntryCacheState

-----------------------------------------------------------------------------
(* Counters. *)

\* A count of zero or less is no count at all: the entry will never expect reads.
InitialCount(n) == IF n > 0 THEN n ELSE None

\* One read fewer, or more, to expect: without a floor, and undefined stays undefined.
MarkedRead(n) == IF n = None THEN None ELSE n - 1
Replayed(n) == IF n = None THEN None ELSE n + 1
Same(each) == each

HasExpectedReads(n) == n # None /\ n >= 1

\* The counter that an entry's, or a orphaned_copies group's, copies share changes, and the copies may be others then.
ChangedAt(c, i, New(_), Copies(_)) ==
  [c EXCEPT !.queue = Exchanged(@, i, [@[i] EXCEPT !.expected_reads = New(@), !.copies = Copies(@)])]
ChangedOrphaned(c, g, New(_), Copies(_)) ==
  [c EXCEPT !.orphaned_copies = WithOrphanedCopies(WithoutOrphanedCopies(@, g), Copies(g.copies), New(g.expected_reads))]

\* The same for the copies that Has(copies) holds of, wherever they stand.
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

\* Entries that have left their slots: their bytes are subtracted, also from the total, and their copies go on alone.
RECURSIVE AccountForRemoved(_, _)
AccountForRemoved(c, gone) ==
  IF gone = <<>> THEN c
  ELSE LET e == Head(gone)
           n == IF removal_marks_read THEN MarkedRead(e.expected_reads) ELSE e.expected_reads
       IN AccountForRemoved([c EXCEPT !.sizes[e.store] = @ - e.bytes, !.total_bytes = @ - e.bytes,
                          !.orphaned_copies = WithOrphanedCopies(@, e.copies, n)], Tail(gone))

\* Entries leave by position: their slots stay behind, DETACHED.
Detached(c, Gone(_)) ==
  LET IsGone(slot) == slot # None /\ Gone(slot)
      Nothing(e) == None
  IN AccountForRemoved([c EXCEPT !.queue = Changed(@, Gone, Nothing)], SelectSeq(c.queue, IsGone))

-----------------------------------------------------------------------------
(* Passes over the removal queue. *)

\* Recently accessed, without limit; or expecting reads, up to the maximum.
ShouldRequeue(e) == \/ extend_ttl_of_recently_accessed /\ e.accessed
                    \/ e.requeue_count < max_requeue_times /\ HasExpectedReads(e.expected_reads)

\* A spared entry goes to the tail with the time of now, its access mark cleared and one requeue more.
Requeued(e) == [e EXCEPT !.timestamp_ns = 0, !.accessed = FALSE, !.requeue_count = @ + 1]

\* What a time pass does with the head of the queue, in exactly this order.  Expired is strictly older.
TimePassPredicate(slot, threshold) ==
  CASE slot = None                      -> "MISSING"
    [] ~(slot.timestamp_ns < threshold) -> "STOP"
    [] ShouldRequeue(slot)          -> "REQUEUE"
    [] OTHER                            -> "REMOVE"

\* What a size pass does with the head of the queue, in exactly this order.  Age is irrelevant.
SizePassPredicate(slot, freed, goal) ==
  CASE slot = None             -> "MISSING"
    [] freed >= goal           -> "STOP"
    [] ShouldRequeue(slot) -> "REQUEUE"
    [] OTHER                   -> "REMOVE"

\* One pass over the queue, from the head, until it stops or nothing is left; it may meet a requeued entry again.
\* What it leaves in the queue, and the entries that it removed.
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

\* The size check: if the total is still above the trigger, a size pass down to the watermark.
SizeCheck(c) ==
  LET wanted == c.total_bytes - ShareOf(watermark)
  IN IF wanted > 0 /\ IsOverTrigger(c) THEN Evicted(c, FALSE, wanted) ELSE c

\* Above the trigger an eviction task is begun, unless one is marked.
Triggered(c) ==
  CASE c.marked \/ ~IsOverTrigger(c) -> c
    [] eviction_task = "immediate"   -> SizeCheck(c)
    [] OTHER                         -> [c EXCEPT !.marked = TRUE, !.tasks = @ + 1]

-----------------------------------------------------------------------------
(* Caching. *)

IsAt(slot, s, p) == slot # None /\ slot.position = p /\ slot.store = s
IsCached(c, s, p) == \E i \in DOMAIN c.queue : IsAt(c.queue[i], s, p)

\* An absent entry comes: it goes to its cache and to the queue's tail, and eviction may be triggered.
Cached(c, s, p, b, n, copies) ==
  LET e == [store |-> s, position |-> p, bytes |-> b, expected_reads |-> n, copies |-> copies, timestamp_ns |-> 0,
            requeue_count |-> 0, accessed |-> FALSE]
  IN Triggered([c EXCEPT !.queue = Append(@, e), !.sizes[s] = @ + b, !.total_bytes = @ + b])

\* An entry comes that is cached already: it is rejected, though its counter may be taken over.
\* `copies` are those of the newcomer, which share its counter.
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
