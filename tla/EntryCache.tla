----------------------------- MODULE EntryCache -----------------------------
(*****************************************************************************)
(* The entry cache of a broker: an added entry is cached; a read is answered *)
(* from the cache, from a read of storage that another request has started,  *)
(* or from storage.                                                          *)
(*                                                                           *)
(* Source: PIP-430.  Twin of model/entry_cache/machine.py: the same actions  *)
(* and settings, equal states and steps.  Models RangeEntryCacheManagerImpl, *)
(* RangeEntryCacheImpl, PendingReadsManager and InflightReadsLimiter.        *)
(* EntryCacheState.tla defines the state, EntryCacheEviction.tla insertion   *)
(* and eviction, EntryCacheReads.tla reads.                                  *)
(*                                                                           *)
(* Step grain: one call on the cache, one eviction task, one answer of       *)
(* storage.                                                                  *)
(*                                                                           *)
(* Not modelled: return values of actions, metrics, and what the model does  *)
(* not model.  A rejected call changes nothing.  A read that fails because   *)
(* the queue for permits is full may create the range cache of its topic.    *)
(*****************************************************************************)
EXTENDS EntryCacheReads

-----------------------------------------------------------------------------
(* Caches of topics. *)

\* getEntryCache: the range cache of a topic, or Disabled.  If the topic has no range cache after a removal, a new one
\* with the number s is created.  If the maximum size is then 0, the topic's cache becomes Disabled instead.
GetEntryCache(c, topic) ==
  LET s == Cardinality(DOMAIN c.owners)
  IN CASE c.topic_caches[topic] # Absent -> [c |-> c, range_cache |-> c.topic_caches[topic]]
       [] c.topic_caches[topic] = Absent /\ max_bytes = 0 ->
            [c |-> [c EXCEPT !.topic_caches[topic] = Disabled], range_cache |-> Disabled]
       [] OTHER ->
            [c |-> [c EXCEPT !.topic_caches[topic] = s,
                             !.owners = [each \in 0..s |-> IF each = s THEN topic ELSE @[each]],
                             !.sizes = [each \in 0..s |-> IF each = s THEN 0 ELSE @[each]]],
             range_cache |-> s]

-----------------------------------------------------------------------------
(* Inserting and evicting. *)

\* RangeEntryCacheImpl.insert of an added entry.
AfterInsert(topic, p, b, n) ==
  LET entry_cache == GetEntryCache(Contents, topic)
  IN IF entry_cache.range_cache = Disabled THEN entry_cache.c
     ELSE InsertOrReplace(entry_cache.c, entry_cache.range_cache, p, b, InitialCount(n), NoCopies)

Insert == \E topic \in cache, p \in position, b \in bytes, n \in insert_expected_reads :
            Become(AfterInsert(topic, p, b, n))

\* A scheduled eviction task runs the size check, then sets evictionInProgress to null.
AfterEvictionTask == [SizeCheck(Contents) EXCEPT !.tasks = @ - 1, !.eviction_in_progress = FALSE]

RunEvictionTask == tasks > 0 /\ Become(AfterEvictionTask)

\* doCacheEviction, the periodic eviction: a time pass, then the size check.  Now is time 0, so the threshold of the
\* time pass is -ttl_ns.  If a task is scheduled, evictionInProgress stays set, so no second task is scheduled.  With
\* periodic_eviction_clears_in_progress, evictionInProgress is set to null.
AfterCacheEviction ==
  LET evicted == SizeCheck(EvictEntries(Contents, TRUE, -ttl_ns))
  IN IF periodic_eviction_clears_in_progress THEN [evicted EXCEPT !.eviction_in_progress = FALSE] ELSE evicted

DoCacheEviction == Become(AfterCacheEviction)

-----------------------------------------------------------------------------
(* Reading. *)

\* getEstimatedEntrySize (the mean entry size of the ledger plus an overhead), times the number of entries of a read.
Overhead == 64
EstimatedBytes(size, n) ==
  LET Sum[i \in 0..Len(size)] == IF i = 0 THEN 0 ELSE Sum[i - 1] + size[i]
      mean == Sum[Len(size)] \div Len(size)
  IN n * ((IF mean > 1 THEN mean ELSE 1) + Overhead)

\* asyncReadEntry of entries low..high of ledger l.  n is the expected read count of an entry from storage.  A request
\* of no entries, or of entries that do not exist, is rejected.  Any other begins if permits can be granted, or if
\* max_reads_in_flight_bytes is 0 (no limiter).  Otherwise the request is queued, or fails if the queue is full.
AfterRead(topic, l, low, high, n) ==
  LET entry_cache == GetEntryCache(Contents, topic)
      c == entry_cache.c
      permits == EstimatedBytes(StoredOf(topic, l), high - low + 1)
      q == [number |-> Cardinality(RequestNumbers(c)) + 1, range_cache |-> entry_cache.range_cache, cache |-> topic,
            ledger |-> l, expected_reads |-> n, part |-> Part("permits", low, high)]
      w == [request |-> q.number, permits |-> permits, since_ns |-> 0]
  IN IF low > high \/ high >= Len(StoredOf(topic, l)) THEN Contents
     ELSE IF max_reads_in_flight_bytes = 0 THEN Begin(c, q)
     ELSE IF Fits(c, permits) THEN Begin(Taken(c, q.number, permits), q)
     ELSE IF Len(c.waiting) >= permits_queue_size THEN c
     ELSE WithRequest([c EXCEPT !.waiting = Append(@, w)], q)

Read == \E topic \in cache, l \in ledger, low \in first, high \in last, n \in read_expected_reads :
          Become(AfterRead(topic, l, low, high, n))

\* asyncReadEntry of one position, as for a replay.  If this request reads from storage, no reads are expected, so the
\* entry is not cached.
ReadOne == \E topic \in cache, p \in position : Become(AfterRead(topic, p[1], p[2], p[2], 0))

\* InflightReadsLimiter.timeoutCheck: the timer fails the requests at the head of the queue that have waited for permits
\* as long as the timeout, or longer.  If any failed, the next queued requests are then granted permits, up to the first
\* that does not fit.  Without timer_grants_next, they wait for the next release.
AfterExpiry ==
  LET expired == Expired(Contents, {})
      left == FailTimedOut(expired.c, expired.failed)
  IN IF timer_grants_next /\ expired.failed # {} THEN StartQueuedRequests(left) ELSE left

ExpireWaitingReads == Become(AfterExpiry)

CompleteStorageRead ==
  \E i \in DOMAIN reads, ok \in success : Become(Answer(Contents, reads[i], IF ok THEN reads[i].last ELSE None))

\* An irregular answer: the first n entries of a read, fewer than all, then at most one entry that is a duplicate or was
\* not requested.
\* FarAway stands for 2^32, which TLC's integers cannot hold.
FarAway == 65536
OddAnswer(r, n, odd) ==
  LET asked == [i \in 1..n |-> <<r.ledger, r.first + i - 1>>]
  IN asked \o CASE odd = "short"        -> <<>>
                [] odd = "twice"        -> IF n = 0 THEN <<>> ELSE << <<r.ledger, r.first>> >>
                [] odd = "beyond"       -> << <<r.ledger, r.last + 1>> >>
                [] odd = "other_ledger" -> << <<r.ledger + 1, r.first + n>> >>
                [] odd = "wraps"        -> << <<r.ledger, r.first + n + FarAway>> >>

\* The length of the answer's longest prefix that has the requested entries, each once and in order.
AcceptedEntries(r, answer) ==
  LET IsWrong(i) == answer[i] # <<r.ledger, r.first + i - 1>> \/ answer[i][2] > r.last
      wrong == {i \in DOMAIN answer : IsWrong(i)}
  IN IF wrong = {} THEN Len(answer) ELSE Least(wrong) - 1

\* With caches_unexpected_entries, the model caches the rest of an answer, too.  The twin does not model this.
ASSUME caches_unexpected_entries => oddity \subseteq {"short"}

AnswerOddly ==
  \E i \in DOMAIN reads, n \in entries, odd \in oddity :
    LET r == reads[i]
    IN /\ n <= r.last - r.first
       /\ Become(Answer(Contents, r, r.first + AcceptedEntries(r, OddAnswer(r, n, odd)) - 1))

\* The next n reads fail.  This action exists only if storage answers in the same step.
FailNextStorageReads ==
  /\ storage_reads = "immediate"
  /\ \E n \in count : Become([Contents EXCEPT !.failing = n])

-----------------------------------------------------------------------------
(* Copies. *)

OneLess(copies) == [copies EXCEPT !.open = @ - 1]

\* EntryImpl.release of the i-th copy of a request with permits g.  The release of the request's last copy frees the
\* permits.
AfterReleaseOf(g, i) ==
  LET name == <<g.request, i>>
      Has(copies) == name \in copies.granted
      Less(copies) == [copies EXCEPT !.granted = @ \ {name}]
      left == [g EXCEPT !.copies = @ \ {i}]
      released == [ChangedWhere(Contents, Has, MarkedRead, Less) EXCEPT !.grants = (@ \ {g}) \cup {left}]
  IN IF left.copies = {} THEN ReleasePermits(released, g.request) ELSE released

Release ==
  \/ \E i \in DOMAIN queue : /\ queue[i] # None /\ queue[i].copies.open > 0
                             /\ Become(ChangedAt(Contents, i, MarkedRead, OneLess))
  \/ \E g \in DOMAIN orphaned_copies : g.copies.open > 0 /\ Become(ChangedOrphaned(Contents, g, MarkedRead, OneLess))
  \/ \E g \in grants : \E i \in g.copies : Become(AfterReleaseOf(g, i))

\* Whether a reader has one of these copies: `granted` if its request has permits, otherwise `open`.
IsRead(copies) == copies.open > 0 \/ copies.granted # {}

\* The entry of a copy is added to the replay queue, so one more read is expected.
Replay ==
  \/ \E i \in DOMAIN queue : /\ queue[i] # None /\ IsRead(queue[i].copies)
                             /\ Become(ChangedAt(Contents, i, Replayed, Same))
  \/ \E g \in DOMAIN orphaned_copies : IsRead(g.copies) /\ Become(ChangedOrphaned(Contents, g, Replayed, Same))

-----------------------------------------------------------------------------
(* Removing. *)

\* invalidateEntries: removes the entries of a topic before a position, in any ledger.  An entry of a ledger below -1,
\* which no broker has, stays.
AfterInvalidation(topic, p) ==
  LET entry_cache == GetEntryCache(Contents, topic)
      Before(e) == e.position[1] < p[1] \/ (e.position[1] = p[1] /\ e.position[2] < p[2])
      Gone(e) == e.range_cache = entry_cache.range_cache /\ e.position[1] >= -1 /\ Before(e)
  IN RemoveEntries(entry_cache.c, Gone)

InvalidateEntriesBefore == \E topic \in cache, p \in position : Become(AfterInvalidation(topic, p))

\* invalidateAllEntries: removes the entries of a ledger.  Later requests do not join its outstanding reads.
AfterInvalidateLedger(topic, l) ==
  LET entry_cache == GetEntryCache(Contents, topic)
      Gone(e) == e.range_cache = entry_cache.range_cache /\ e.position[1] = l
  IN IF entry_cache.range_cache < 0 THEN entry_cache.c
     ELSE WithoutJoining(RemoveEntries(entry_cache.c, Gone), entry_cache.range_cache, l)

InvalidateLedger == \E topic \in cache, l \in ledger : Become(AfterInvalidateLedger(topic, l))

\* EntryCache.clear: removes all entries of range cache s.  Later requests do not join its outstanding reads.  Absent
\* and Disabled (s < 0) have no entries, and no reads that a request could join.
Cleared(c, s) ==
  LET Gone(e) == e.range_cache = s
  IN IF s < 0 THEN c ELSE WithoutJoining(RemoveEntries(c, Gone), s, None)

AfterClear(topic) ==
  LET entry_cache == GetEntryCache(Contents, topic)
  IN Cleared(entry_cache.c, entry_cache.range_cache)

ClearCache == \E topic \in cache : Become(AfterClear(topic))

\* RangeEntryCacheManagerImpl.clear: clears the caches of all topics.  A removed cache that a late read has filled is
\* not cleared.
RECURSIVE ClearedUpTo(_, _)
ClearedUpTo(c, topics) == IF topics = 0 THEN c ELSE Cleared(ClearedUpTo(c, topics - 1), c.topic_caches[topics - 1])

AfterClearAll == ClearedUpTo(Contents, caches)

ClearAll == Become(AfterClearAll)

\* removeEntryCache: unregisters the range cache of a topic, then clears it.  The next use of the topic creates a new
\* range cache.  A read that started before the removal may still insert entries into the removed cache.  These entries
\* count in the total and are evicted.  Only a request from before the removal can find them.
AfterRemoval(topic) ==
  IF topic_caches[topic] = Absent THEN Contents
  ELSE Cleared([Contents EXCEPT !.topic_caches[topic] = Absent], topic_caches[topic])

RemoveEntryCache == \E topic \in cache : Become(AfterRemoval(topic))

\* getNonEvictableSize drops detached wrappers.
NonEvictableSize == Become([Contents EXCEPT !.queue = SelectSeq(@, IsEntry)])

-----------------------------------------------------------------------------
(* Time and settings. *)

Advance ==
  \E n \in nanos :
    LET Every(e) == TRUE
        Older(e) == [e EXCEPT !.timestamp_ns = @ - n]
    IN Become([Contents EXCEPT !.queue = Changed(@, Every, Older),
                               !.waiting = [i \in DOMAIN @ |-> [@[i] EXCEPT !.since_ns = @ - n]]])

\* The variables that are not settings.
contents == <<queue, orphaned_copies, owners, sizes, topic_caches, total_bytes, eviction_in_progress, tasks, failing,
              reads, requests, free, waiting, grants>>

SetMaxCacheBytes ==
  /\ max_bytes' \in set_max_cache_bytes_value
  /\ UNCHANGED <<contents, watermark, max_requeue_times, extend_ttl_of_recently_accessed>>
SetEvictionWatermark ==
  /\ watermark' \in set_eviction_watermark_value
  /\ UNCHANGED <<contents, max_bytes, max_requeue_times, extend_ttl_of_recently_accessed>>

SetMaxRequeueTimes ==
  /\ max_requeue_times' \in set_max_requeue_times_value
  /\ UNCHANGED <<contents, max_bytes, watermark, extend_ttl_of_recently_accessed>>
SetExtendTtl ==
  /\ extend_ttl_of_recently_accessed' \in set_extend_ttl_value
  /\ UNCHANGED <<contents, max_bytes, watermark, max_requeue_times>>

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Whether a predicate holds for every cached entry (OfAll), or for every read count of a handler (OfCounts).
OfAll(Holds(_)) == \A i \in DOMAIN queue : queue[i] = None \/ Holds(queue[i])
OfCounts(Holds(_)) == LET IsFine(each) == each.expected_reads = None \/ Holds(each.expected_reads)
                      IN OfAll(IsFine) /\ \A g \in DOMAIN orphaned_copies : IsFine(g)

\* Slots of the removal queue, detached wrappers included.
SlotsAtMost(n) == Len(queue) <= n

\* Pending requests; reads that storage has not completed; range caches, removed ones included.
RequestsAtMost(n) == Len(requests) <= n
ReadsAtMost(n) == Len(reads) <= n
RangeCachesAtMost(n) == Cardinality(DOMAIN owners) <= n

\* Scheduled eviction tasks.
TasksAtMost(n) == tasks <= n

\* Nanoseconds since the oldest entry was put or requeued, or since the first request was queued for permits.
AgeAtMost(n) == LET Holds(e) == -e.timestamp_ns <= n
                IN OfAll(Holds) /\ \A i \in DOMAIN waiting : -waiting[i].since_ns <= n

\* The largest `requeueCount`.
RequeuesAtMost(n) == LET Holds(e) == e.requeue_count <= n IN OfAll(Holds)

\* The largest read count (HighestCount), and the largest negated read count (LowestCount).
HighestCountAtMost(n) == LET Holds(m) == m <= n IN OfCounts(Holds)
LowestCountAtMost(n) == LET Holds(m) == -m <= n IN OfCounts(Holds)

\* Copies of readers, and copies held for pending requests.
NumberOf(copies) == Cardinality(copies.held) + Cardinality(copies.granted) + copies.open

RECURSIVE CopiesIn(_)
CopiesIn(slots) == IF slots = <<>> THEN 0
                   ELSE CopiesIn(Tail(slots)) + IF Head(slots) = None THEN 0 ELSE NumberOf(Head(slots).copies)

RECURSIVE OrphanedCopiesIn(_)
OrphanedCopiesIn(groups) == IF groups = {} THEN 0
                            ELSE LET g == CHOOSE g \in groups : TRUE
                                 IN orphaned_copies[g] * NumberOf(g.copies) + OrphanedCopiesIn(groups \ {g})

CopiesAtMost(n) == CopiesIn(queue) + OrphanedCopiesIn(DOMAIN orphaned_copies) <= n
=============================================================================
