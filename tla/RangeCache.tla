----------------------------- MODULE RangeCache -----------------------------
(***************************************************************************)
(* Range caches with one removal queue: when a broker evicts cached        *)
(* entries.                                                                *)
(*                                                                         *)
(* Source: PIP-430.  This is the twin of model/range_cache.py: the same    *)
(* actions under the same names, the same settings, equal state counts.    *)
(* A state is a canonical state of the model:                              *)
(*                                                                         *)
(*   time    timestamp_ns is relative to now: zero at the put, negative    *)
(*           when time has passed                                          *)
(*   copies  the number of open copies; which of them is released does not *)
(*           matter                                                        *)
(*   orphaned_copies  open copies whose read count no cached entry has: a    *)
(*           bag of <<copies that share a read count, the read count>>     *)
(*                                                                         *)
(* A slot of the queue is an entry, or None if it is detached.  Step grain: *)
(* one call, or one whole eviction pass.  CacheSteps models the steps      *)
(* within an insert and a removal.                                         *)
(*                                                                         *)
(* Not modelled: outcomes, except the counts of a pass or a removal (a     *)
(* refused call changes nothing).  Shares of the maximum are exact         *)
(* fractions here and rounded doubles in the broker.                       *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  None,
  \* Settings of the broker; for a dynamic setting, its first value.
  caches, ttl_ns, max_bytes, watermark, counts_reads,
  start_max_requeue_times, start_extend_ttl_of_recently_accessed,
  \* Rules on which versions or proposals differ.
  duplicate_put, inverted_range, removal_marks_read, undelivered_release_marks_read, access_requeue_counts,
  size_pass_requeues_expired, released_value_stays_counted, retention,
  \* The values of the actions' arguments; threshold_ns is relative to now.
  cache, position, value_position, bytes, expected_reads, hold, delivered, first, last, last_inclusive, ledger,
  threshold_ns, bytes_to_free, advance_nanos, step_clock_back_nanos, set_max_requeue_times_value, set_extend_ttl_value

VARIABLES
  queue,              \* entries and detached slots, oldest first
  stash,              \* entries set aside by a size pass; only with the early draft's stash
  sizes,              \* bytes of each cache
  orphaned_copies,    \* open copies whose read count no cached entry has
  max_requeue_times, extend_ttl_of_recently_accessed

vars == <<queue, stash, sizes, orphaned_copies, max_requeue_times, extend_ttl_of_recently_accessed>>
settings == <<max_requeue_times, extend_ttl_of_recently_accessed>>

\* The variables that actions change, as one record.
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

\* The read count of a new handler; none for zero or less (EntryReadCountHandlerImpl.maybeCreate).
InitialCount(n) == IF counts_reads /\ n > 0 THEN n ELSE None

\* markRead and incrementExpectedReadCount: the read count may become negative; an undefined one does not change.
MarkedRead(n) == IF n = None THEN None ELSE n - 1
Replayed(n) == IF n = None THEN None ELSE n + 1

HasExpectedReads(e) == e.expected_reads # None /\ e.expected_reads >= 1

\* Due for requeue: recently accessed, without limit, or with expected reads, up to the maximum.
ShouldRequeue(e) == \/ extend_ttl_of_recently_accessed /\ e.accessed
                    \/ e.requeue_count < max_requeue_times /\ HasExpectedReads(e)

\* requeueCount after a requeue; with separate counters, a requeue for recent access does not count.
RequeuesAfter(e) == IF access_requeue_counts \/ ~(extend_ttl_of_recently_accessed /\ e.accessed)
                    THEN e.requeue_count + 1
                    ELSE e.requeue_count

\* Older than the threshold, strictly.
IsExpired(e, threshold) == e.timestamp_ns < threshold

\* A requeued entry: timestamp now, accessed cleared, requeueCount incremented.
Requeued(e) == [e EXCEPT !.timestamp_ns = 0, !.accessed = FALSE, !.requeue_count = RequeuesAfter(e)]

\* Positions are ordered by ledger first, then by entry.
Before(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
Inside(p, low, high, inclusive) == ~Before(p, low) /\ (Before(p, high) \/ (inclusive /\ p = high))
IsRefused(low, high) == inverted_range = "illegal_argument" /\ Before(high, low)

\* The whole bytes of a share of the maximum, without the product of the two, which TLC's integers may not hold.
ShareOf(share) == (max_bytes \div share.den) * share.num + ((max_bytes % share.den) * share.num) \div share.den
TriggerShare == [num |-> 98, den |-> 100]

Total(of) == LET Sum[n \in 0..caches] == IF n = 0 THEN 0 ELSE Sum[n - 1] + of[n - 1] IN Sum[caches]
IsOverTrigger == Total(sizes) > ShareOf(TriggerShare)

-----------------------------------------------------------------------------
(* Finding and changing entries. *)

IsEntry(slot) == slot # None
IsAt(slot, c, p) == slot # None /\ slot.position = p /\ slot.cache = c

\* All cached entries.
Entries(of) == SelectSeq(of.queue, IsEntry) \o of.stash

Find(of, c, p) == LET Matches(slot) == IsAt(slot, c, p)
                      found == SelectSeq(of.queue \o of.stash, Matches)
                  IN IF found = <<>> THEN None ELSE found[1]

\* The slots, with New(e) for each entry e that satisfies Chosen.
Changed(slots, Chosen(_), New(_)) ==
  [i \in DOMAIN slots |-> IF slots[i] # None /\ Chosen(slots[i]) THEN New(slots[i]) ELSE slots[i]]

ChangedAll(of, Chosen(_), New(_)) ==
  [of EXCEPT !.queue = Changed(@, Chosen, New), !.stash = Changed(@, Chosen, New)]

\* A read count without copies is dropped.
WithOrphanedCopies(bag, copies, count) ==
  IF copies = 0 THEN bag
  ELSE [g \in DOMAIN bag \cup {<<copies, count>>} |->
          (IF g \in DOMAIN bag THEN bag[g] ELSE 0) + (IF g = <<copies, count>> THEN 1 ELSE 0)]

WithoutOrphanedCopies(bag, group) ==
  IF bag[group] > 1 THEN [bag EXCEPT ![group] = @ - 1] ELSE [g \in DOMAIN bag \ {group} |-> bag[g]]

\* Whether the size keeps the bytes of a removed entry, because its value was deallocated.
StaysCounted(e) == released_value_stays_counted /\ e.released
Freed(e) == IF StaysCounted(e) THEN 0 ELSE e.bytes

\* Subtracts the bytes of removed entries and orphans their open copies.
RECURSIVE Leave(_, _)
Leave(of, gone) ==
  IF gone = <<>> THEN of
  ELSE LET e == Head(gone)
           count == IF removal_marks_read THEN MarkedRead(e.expected_reads) ELSE e.expected_reads
       IN Leave([of EXCEPT !.sizes[e.cache] = @ - Freed(e), !.orphaned_copies = WithOrphanedCopies(@, e.copies, count)], Tail(gone))

-----------------------------------------------------------------------------
(* Putting and looking up. *)

NewEntry(c, p, b, n) ==
  [cache |-> c, position |-> p, bytes |-> b, expected_reads |-> InitialCount(n), copies |-> 0,
   timestamp_ns |-> 0, requeue_count |-> 0, accessed |-> FALSE, released |-> FALSE]

AfterPut(c, p, b, n) ==
  LET present == Find(Contents, c, p)
      Chosen(e) == e = present
      New(e) == [e EXCEPT !.expected_reads = InitialCount(n), !.copies = 0]
  IN IF present = None
     THEN [Contents EXCEPT !.queue = Append(@, NewEntry(c, p, b, n)), !.sizes[c] = @ + b]
     ELSE IF duplicate_put = "keep" \/ present.released
     THEN Contents
     ELSE [ChangedAll(Contents, Chosen, New) EXCEPT !.orphaned_copies = WithOrphanedCopies(@, present.copies, present.expected_reads)]

Put == \E c \in cache, p \in position, b \in bytes, n \in expected_reads : Become(AfterPut(c, p, b, n))

PutMismatched ==
  \E c \in cache, p \in position, v \in value_position, b \in bytes, n \in expected_reads :
    IF p = v THEN Become(AfterPut(c, p, b, n)) ELSE UNCHANGED vars

\* A lookup marks found entries accessed; with hold, the caller keeps a copy that shares the read count.
\* An entry whose value was deallocated is marked, but not returned.
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

Exists == UNCHANGED vars

-----------------------------------------------------------------------------
(* Counting reads. *)

\* Changes the read count of one open copy, cached or orphaned; closes `goes` copies (one or none).
CountCopy(New(_), goes) ==
  /\ \/ \E i \in DOMAIN queue :
          /\ queue[i] # None /\ queue[i].copies > 0
          /\ queue' = [queue EXCEPT ![i].expected_reads = New(@), ![i].copies = @ - goes]
          /\ UNCHANGED <<stash, orphaned_copies>>
     \/ \E i \in DOMAIN stash :
          /\ stash[i].copies > 0
          /\ stash' = [stash EXCEPT ![i].expected_reads = New(@), ![i].copies = @ - goes]
          /\ UNCHANGED <<queue, orphaned_copies>>
     \/ \E g \in DOMAIN orphaned_copies :
          /\ orphaned_copies' = WithOrphanedCopies(WithoutOrphanedCopies(orphaned_copies, g), g[1] - goes, New(g[2]))
          /\ UNCHANGED <<queue, stash>>
  /\ UNCHANGED <<sizes, settings>>

Same(n) == n

\* Releases a copy; a delivered one decrements the read count.
ReleaseOf(d) == IF d \/ undelivered_release_marks_read THEN CountCopy(MarkedRead, 1) ELSE CountCopy(Same, 1)
Release == \E d \in delivered : ReleaseOf(d)

Replay == CountCopy(Replayed, 0)

AfterMarkRead(c, p) ==
  LET Chosen(e) == e.position = p /\ e.cache = c
      New(e) == [e EXCEPT !.expected_reads = MarkedRead(@)]
  IN ChangedAll(Contents, Chosen, New)

MarkRead == \E c \in cache, p \in position : Become(AfterMarkRead(c, p))

-----------------------------------------------------------------------------
(* Removing by position. *)

\* Removes entries by position; their slots remain in the queue, detached.
Detached(Gone(_)) ==
  LET Stays(e) == ~Gone(e)
      Nothing(e) == None
      gone == SelectSeq(Entries(Contents), Gone)
  IN IF gone = <<>> THEN Contents
     ELSE Leave([Contents EXCEPT !.queue = Changed(@, Gone, Nothing), !.stash = SelectSeq(@, Stays)], gone)

AfterRemoveRange(c, low, high, inclusive) ==
  LET Gone(e) == e.cache = c /\ Inside(e.position, low, high, inclusive)
  IN IF IsRefused(low, high) THEN Contents ELSE Detached(Gone)

RemoveRange == \E c \in cache, low \in first, high \in last, inclusive \in last_inclusive :
                 Become(AfterRemoveRange(c, low, high, inclusive))

AfterInvalidateLedger(c, l) ==
  LET Gone(e) == e.cache = c /\ Inside(e.position, <<l, 0>>, <<l + 1, 0>>, FALSE) IN Detached(Gone)

InvalidateLedger == \E c \in cache, l \in ledger : Become(AfterInvalidateLedger(c, l))

AfterClear(c) == LET Gone(e) == e.cache = c IN Detached(Gone)

Clear == \E c \in cache : Become(AfterClear(c))

-----------------------------------------------------------------------------
(* Eviction. *)

\* Whether a size pass removes an entry because it is expired (PIP-430's two-argument pass).
IsPastSparing(e) == ~size_pass_requeues_expired /\ IsExpired(e, -ttl_ns)

\* The result of a time pass for the head; the order of the tests matters.
TimePassPredicate(slot, threshold) ==
  CASE slot = None                  -> "MISSING"
    [] ~IsExpired(slot, threshold)  -> "STOP"
    [] ShouldRequeue(slot)      -> "REQUEUE"
    [] OTHER                        -> "REMOVE"

\* The result of a size pass for the head; the order of the tests matters, and age does not.
SizePassPredicate(slot, freed, goal) ==
  CASE slot = None                                           -> "MISSING"
    [] freed >= goal                                         -> "STOP"
    [] ShouldRequeue(slot) /\ ~IsPastSparing(slot)       -> "REQUEUE"
    [] OTHER                                                 -> "REMOVE"

\* One pass from the head of the queue, until it stops or the queue is empty; it may visit a requeued entry again.
\* Gives the queue after it, and the removed entries.
RECURSIVE Walk(_, _, _, _, _)
Walk(by_time, limit, slots, gone, freed) ==
  IF slots = <<>> THEN [queue |-> slots, gone |-> gone]
  ELSE LET slot == Head(slots)
           verdict == IF by_time THEN TimePassPredicate(slot, limit) ELSE SizePassPredicate(slot, freed, limit)
       IN CASE verdict = "STOP"    -> [queue |-> slots, gone |-> gone]
            [] verdict = "MISSING" -> Walk(by_time, limit, Tail(slots), gone, freed)
            [] verdict = "REQUEUE" -> Walk(by_time, limit, Append(Tail(slots), Requeued(slot)), gone, freed)
            [] verdict = "REMOVE"  -> Walk(by_time, limit, Tail(slots), Append(gone, slot), freed + Freed(slot))

Walked(by_time, limit) == LET walk == Walk(by_time, limit, queue, <<>>, 0)
                          IN Leave([Contents EXCEPT !.queue = walk.queue], walk.gone)

\* The early draft: an unexpired entry with expected reads, which a size pass never evicts.
IsSparedInStash(e) == HasExpectedReads(e) /\ ~IsExpired(e, -ttl_ns)

\* The early draft's time pass: first every stashed entry, then the queue; evicts entries older than the threshold,
\* also those with expected reads.
AfterStashTimePass(threshold) ==
  LET Old(e) == IsExpired(e, threshold)
      Young(e) == ~Old(e)
      stops == {i \in DOMAIN queue : queue[i] # None /\ Young(queue[i])}
      stop == IF stops = {} THEN Len(queue) + 1 ELSE CHOOSE i \in stops : \A j \in stops : i <= j
      passed == SelectSeq(SubSeq(queue, 1, stop - 1), IsEntry)
  IN Leave([Contents EXCEPT !.queue = SubSeq(@, stop, Len(@)), !.stash = SelectSeq(@, Young)],
           SelectSeq(stash, Old) \o passed)

\* The early draft's size pass: first the stash, then the queue, until enough is freed; unevicted entries are stashed.
RECURSIVE SetAside(_, _, _, _, _, _)
SetAside(goal, aside, slots, kept, gone, freed) ==
  IF aside = <<>> /\ slots = <<>> THEN [queue |-> slots, stash |-> kept, gone |-> gone]
  ELSE LET from_stash == aside # <<>>
           slot == IF from_stash THEN Head(aside) ELSE Head(slots)
           rest == IF from_stash THEN Tail(aside) ELSE aside
           behind == IF from_stash THEN slots ELSE Tail(slots)
       IN CASE slot = None -> SetAside(goal, rest, behind, kept, gone, freed)
            [] slot # None /\ freed >= goal /\ ~from_stash -> [queue |-> slots, stash |-> kept, gone |-> gone]
            [] slot # None /\ freed < goal /\ ~IsSparedInStash(slot) ->
                 SetAside(goal, rest, behind, kept, Append(gone, slot), freed + Freed(slot))
            [] OTHER -> SetAside(goal, rest, behind, Append(kept, slot), gone, freed)

AfterStashSizePass(goal) ==
  LET result == SetAside(goal, stash, queue, <<>>, <<>>, 0)
  IN Leave([Contents EXCEPT !.queue = result.queue, !.stash = result.stash], result.gone)

AfterTimePass(threshold) == IF retention = "stash" THEN AfterStashTimePass(threshold) ELSE Walked(TRUE, threshold)

TimePass == \E threshold \in threshold_ns : Become(AfterTimePass(threshold))

AfterSizePass(goal) ==
  IF goal <= 0 THEN Contents ELSE IF retention = "stash" THEN AfterStashSizePass(goal) ELSE Walked(FALSE, goal)

SizePass == \E goal \in bytes_to_free : Become(AfterSizePass(goal))

AfterEvictToWatermark ==
  IF IsOverTrigger THEN AfterSizePass(Total(sizes) - ShareOf(watermark)) ELSE Contents

EvictToWatermark == Become(AfterEvictToWatermark)

NonEvictableSize == Become([Contents EXCEPT !.queue = SelectSeq(@, IsEntry)])

-----------------------------------------------------------------------------
(* Time and settings. *)

\* Advances the clock by nanos.
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

StepClockBack == \E nanos \in step_clock_back_nanos : Become(Aged(-nanos))

OverRelease ==
  \E c \in cache, p \in position :
    LET Chosen(e) == e.position = p /\ e.cache = c
        New(e) == [e EXCEPT !.released = TRUE]
    IN Become(ChangedAll(Contents, Chosen, New))

-----------------------------------------------------------------------------
(* Bounds: what a scope limits, so that there are finitely many states. *)

\* Whether a predicate holds for every cached entry.
OfAll(Holds(_)) == /\ \A i \in DOMAIN queue : queue[i] = None \/ Holds(queue[i])
                   /\ \A i \in DOMAIN stash : Holds(stash[i])

\* Slots of the queue and the stash, detached ones included.
SlotsAtMost(n) == Len(queue) + Len(stash) <= n

\* Nanoseconds since the oldest entry was put or requeued.
AgeAtMost(n) == LET Holds(e) == -e.timestamp_ns <= n IN OfAll(Holds)

\* The largest `requeueCount`.
RequeuesAtMost(n) == LET Holds(e) == e.requeue_count <= n IN OfAll(Holds)

\* The largest read count, and the largest negated read count.
HighestCountAtMost(n) == LET Holds(e) == e.expected_reads = None \/ e.expected_reads <= n
                         IN OfAll(Holds) /\ \A g \in DOMAIN orphaned_copies : g[2] = None \/ g[2] <= n
LowestCountAtMost(n) == LET Holds(e) == e.expected_reads = None \/ -e.expected_reads <= n
                        IN OfAll(Holds) /\ \A g \in DOMAIN orphaned_copies : g[2] = None \/ -g[2] <= n

\* Open copies: of cached entries, then orphaned ones.
RECURSIVE CopiesIn(_)
CopiesIn(slots) == IF slots = <<>> THEN 0
                   ELSE CopiesIn(Tail(slots)) + IF Head(slots) = None THEN 0 ELSE Head(slots).copies

RECURSIVE OrphanedCopiesIn(_)
OrphanedCopiesIn(groups) == IF groups = {} THEN 0
                       ELSE LET g == CHOOSE g \in groups : TRUE IN orphaned_copies[g] * g[1] + OrphanedCopiesIn(groups \ {g})

OpenCopies == CopiesIn(queue) + CopiesIn(stash) + OrphanedCopiesIn(DOMAIN orphaned_copies)
OpenCopiesAtMost(n) == OpenCopies <= n
=============================================================================
