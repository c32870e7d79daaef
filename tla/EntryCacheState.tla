-------------------------- MODULE EntryCacheState --------------------------
(*****************************************************************************)
(* Settings and state of the entry cache, and the canonical form of a state. *)
(* Twin of model/entry_cache/state.py and canonical_form.py; EntryCache.tla  *)
(* says what the component models.                                           *)
(*                                                                           *)
(* A range cache holds the entries of one topic (RangeCache).  A request is  *)
(* what a reader asks for.  A read is a read of storage that is not          *)
(* complete; several requests may wait for one read.  A copy is an entry     *)
(* held by a reader or for a pending request.  A cached entry shares a read  *)
(* count (the handler) with its copies, until it leaves the cache or gets    *)
(* another handler: then the copies are orphaned.  A state is a canonical    *)
(* state of the model:                                                       *)
(*                                                                           *)
(*   times        timestamp_ns and since_ns are relative to now: 0 when set, *)
(*                negative when time has passed                              *)
(*   range caches are numbered from 0 (`range_cache`): first those of the    *)
(*                topics, then removed ones that an entry, a read or a       *)
(*                pending request still refers to                            *)
(*   requests     pending requests, and completed requests that still hold   *)
(*                permits, are numbered from 1; so are reads                 *)
(*   copies       that share a read count: a record of                       *)
(*                  held     <<request, entry>> for a pending request        *)
(*                  granted  <<request, i>>: the i-th unreleased copy of a   *)
(*                           completed request with permits                  *)
(*                  open     the number of other copies of readers           *)
(*   orphaned_copies  copies whose read count no cached entry has: a bag (a  *)
(*                function to multiplicities) of records of copies and the   *)
(*                read count that they share                                 *)
(*                                                                           *)
(* Within a step, a new range cache, request or read gets the next number.   *)
(* Become closes the gaps.                                                   *)
(*****************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings of the broker and of storage.  start_NAME is the first value of the variable NAME.  Config in
  \* model/entry_cache/state.py explains each setting and each rule.
  caches, stored, storage_reads, eviction_task, ttl_ns, max_reads_in_flight_bytes, permits_timeout_ns,
  permits_queue_size, start_max_bytes, start_watermark, start_max_requeue_times, start_extend_ttl_of_recently_accessed,
  \* Rules on which versions differ.
  duplicate_put, removal_marks_read, undelivered_release_marks_read, size_pass_requeues_expired, rejection_marks_read,
  periodic_eviction_clears_in_progress, timer_grants_next, short_answer, caches_unexpected_entries,
  \* The values of the actions' arguments.
  cache, position, bytes, insert_expected_reads, ledger, first, last, read_expected_reads, success, entries, oddity,
  count, nanos, set_max_cache_bytes_value, set_eviction_watermark_value, set_max_requeue_times_value,
  set_extend_ttl_value

VARIABLES
  queue,        \* the removal queue, head first: cached entries, and None for the detached wrapper of a removed entry
  orphaned_copies,  \* copies whose read count no cached entry has
  owners,       \* for each range cache: the topic for which it was created
  sizes,        \* for each range cache: its bytes
  topic_caches, \* for each topic: its range cache, or Absent, or Disabled
  total_bytes,  \* bytes of all range caches (RangeEntryCacheManagerImpl.currentSize)
  eviction_in_progress,  \* evictionInProgress is not null: an eviction task is scheduled
  tasks,        \* number of scheduled eviction tasks
  failing,      \* how many of the next reads fail; 0 unless storage_reads is "immediate"
  reads,        \* reads that storage has not completed (PendingReadsManager), oldest first
  requests,     \* pending requests
  free,         \* free permits, in bytes
  waiting,      \* requests that wait for permits (InflightReadsLimiter), oldest first
  grants,       \* a set of records: the permits of a request, which it holds until its last copy is released
  max_bytes,    \* dynamic setting: maximum size of all range caches
  watermark,    \* dynamic setting: fraction of the maximum size down to which a size pass evicts
  max_requeue_times,  \* dynamic setting: how often an entry is requeued because it has expected reads
  extend_ttl_of_recently_accessed  \* dynamic setting: whether an accessed entry is requeued

settings == <<max_bytes, watermark, max_requeue_times, extend_ttl_of_recently_accessed>>
vars == <<queue, orphaned_copies, owners, sizes, topic_caches, total_bytes, eviction_in_progress, tasks, failing, reads,
          requests, free, waiting, grants, settings>>

\* Two values in place of the number of a topic's range cache.  Absent: the range cache was removed, and the topic has
\* not been used since.  Disabled: the range cache was created while the maximum size was 0 (EntryCacheDisabled).
Absent == -1
Disabled == -2

Init ==
  LET enabled == start_max_bytes > 0
      range_caches == IF enabled THEN 0..caches - 1 ELSE {}
  IN /\ queue = <<>>
     /\ orphaned_copies = <<>>
     /\ owners = [s \in range_caches |-> s]
     /\ sizes = [s \in range_caches |-> 0]
     /\ topic_caches = [t \in 0..caches - 1 |-> IF enabled THEN t ELSE Disabled]
     /\ total_bytes = 0
     /\ eviction_in_progress = FALSE
     /\ tasks = 0
     /\ failing = 0
     /\ reads = <<>>
     /\ requests = <<>>
     /\ free = max_reads_in_flight_bytes
     /\ waiting = <<>>
     /\ grants = {}
     /\ max_bytes = start_max_bytes
     /\ watermark = start_watermark
     /\ max_requeue_times = start_max_requeue_times
     /\ extend_ttl_of_recently_accessed = start_extend_ttl_of_recently_accessed

\* The numbers of the requests that are pending or hold permits.
RequestNumbers(c) == {c.requests[i].number : i \in DOMAIN c.requests} \cup {g.request : g \in c.grants}

\* A record of all variables that are not settings, and of the number that the next read gets.  The operators map such a
\* record c to the next one.  Become makes a record the next state.
Contents ==
  [queue |-> queue, orphaned_copies |-> orphaned_copies, owners |-> owners, sizes |-> sizes,
   topic_caches |-> topic_caches, total_bytes |-> total_bytes, eviction_in_progress |-> eviction_in_progress,
   tasks |-> tasks, failing |-> failing, reads |-> reads, requests |-> requests, free |-> free, waiting |-> waiting,
   grants |-> grants, next_read |-> Len(reads) + 1]

-----------------------------------------------------------------------------
(* Sets and sequences. *)

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(set) == CHOOSE n \in set : \A m \in set : n <= m
Greatest(set) == CHOOSE n \in set : \A m \in set : n >= m
InSet(seq) == {seq[i] : i \in DOMAIN seq}
IndexOf(seq, each) == Least({i \in DOMAIN seq : seq[i] = each})

\* The sequence without repetitions: the first one of equal elements stays.
Distinct(seq) == LET IsFirst(i) == IndexOf(seq, seq[i]) = i
                     firsts == SelectSeq([i \in DOMAIN seq |-> i], IsFirst)
                 IN [i \in DOMAIN firsts |-> seq[firsts[i]]]

\* The sequence with another element at index i.  EXCEPT is not used: TLC 2.15 ignores it in a function that it converts
\* to a sequence unevaluated.
Exchanged(seq, i, each) == SubSeq(seq, 1, i - 1) \o <<each>> \o SubSeq(seq, i + 1, Len(seq))

IsEntry(slot) == slot # None

\* The slots, with New(e) for each entry e that satisfies Chosen.
Changed(slots, Chosen(_), New(_)) ==
  [i \in DOMAIN slots |-> IF slots[i] # None /\ Chosen(slots[i]) THEN New(slots[i]) ELSE slots[i]]

-----------------------------------------------------------------------------
(* Copies. *)

NoCopies == [held |-> {}, granted |-> {}, open |-> 0]
\* Copies held for pending requests: `names` are pairs <<request, entry>>.
Held(names) == [NoCopies EXCEPT !.held = names]

\* The bag with one more read count n and its copies.  Without copies the bag stays the same.
WithOrphanedCopies(bag, copies, n) ==
  LET group == [copies |-> copies, expected_reads |-> n]
  IN IF copies = NoCopies THEN bag
     ELSE [g \in DOMAIN bag \cup {group} |->
             (IF g \in DOMAIN bag THEN bag[g] ELSE 0) + (IF g = group THEN 1 ELSE 0)]

WithoutOrphanedCopies(bag, group) ==
  IF bag[group] > 1 THEN [bag EXCEPT ![group] = @ - 1] ELSE [g \in DOMAIN bag \ {group} |-> bag[g]]

\* The contents with To(copies) in place of the copies of each read count; To is injective.
WithCopies(c, To(_)) ==
  LET Every(e) == TRUE
      Entry(e) == [e EXCEPT !.copies = To(@)]
      group == [g \in DOMAIN c.orphaned_copies |-> [g EXCEPT !.copies = To(@)]]
  IN [c EXCEPT !.queue = Changed(@, Every, Entry),
               !.orphaned_copies = [h \in {group[g] : g \in DOMAIN group} |->
                            LET g == CHOOSE g \in DOMAIN group : group[g] = h IN c.orphaned_copies[g]]]

-----------------------------------------------------------------------------
(* The canonical form: numbers without gaps. *)

\* The range caches that a topic, an entry, a read or a request refers to, in the order of their new numbers.
RangeCachesInUse(c) ==
  LET live == SelectSeq(c.queue, IsEntry)
      IsRangeCache(s) == s >= 0
  IN Distinct(SelectSeq([t \in 1..caches |-> c.topic_caches[t - 1]] \o [i \in DOMAIN live |-> live[i].range_cache]
                        \o [i \in DOMAIN c.reads |-> c.reads[i].range_cache]
                        \o [i \in DOMAIN c.requests |-> c.requests[i].range_cache], IsRangeCache))

\* Renumbers the range caches.
WithRangeCaches(c) ==
  LET order == RangeCachesInUse(c)
      To(s) == IF s < 0 THEN s ELSE IndexOf(order, s) - 1
      Every(e) == TRUE
      Moved(each) == [each EXCEPT !.range_cache = To(@)]
      in_order == Cardinality(DOMAIN c.owners) = caches /\ \A t \in DOMAIN c.topic_caches : c.topic_caches[t] = t
  IN IF in_order THEN c
     ELSE [c EXCEPT !.queue = Changed(@, Every, Moved),
                    !.owners = [s \in 0..Len(order) - 1 |-> @[order[s + 1]]],
                    !.sizes = [s \in 0..Len(order) - 1 |-> @[order[s + 1]]],
                    !.topic_caches = [t \in DOMAIN @ |-> To(@[t])],
                    !.reads = [i \in DOMAIN @ |-> Moved(@[i])],
                    !.requests = [i \in DOMAIN @ |-> Moved(@[i])]]

\* A part of a request (EntryCacheReads.tla), where the read that it awaits is renumbered to its index in `numbers`.
RECURSIVE WithReads(_, _)
WithReads(part, numbers) ==
  [part EXCEPT !.read = IF part.kind = "awaited" THEN IndexOf(numbers, @) ELSE 0,
               !.parts = [i \in DOMAIN @ |-> WithReads(@[i], numbers)]]

\* Renumbers requests and reads, and the copies of each request with permits.  Place(<<request, i>>) is the index of
\* copy i among the unreleased copies of the request.
WithRequests(c) ==
  LET asking == RequestNumbers(c)
      numbers == [i \in DOMAIN c.reads |-> c.reads[i].number]
      To(n) == Cardinality({m \in asking : m <= n})
      Place(name) == LET g == CHOOSE g \in c.grants : g.request = name[1]
                     IN Cardinality({i \in g.copies : i <= name[2]})
      Copies(k) == [k EXCEPT !.held = {<<To(name[1]), name[2]>> : name \in @},
                             !.granted = {<<To(name[1]), Place(name)>> : name \in @}]
      no_gaps == /\ asking = 1..Cardinality(asking)
                 /\ \A i \in DOMAIN numbers : numbers[i] = i
                 /\ \A g \in c.grants : g.copies = 1..Cardinality(g.copies)
  IN IF no_gaps THEN c
     ELSE [WithCopies(c, Copies) EXCEPT
             !.reads = [i \in DOMAIN @ |-> [@[i] EXCEPT !.number = i, !.waiting = [j \in DOMAIN @ |-> To(@[j])]]],
             !.requests = [i \in DOMAIN @ |-> [@[i] EXCEPT !.number = To(@), !.part = WithReads(@, numbers)]],
             !.waiting = [i \in DOMAIN @ |-> [@[i] EXCEPT !.request = To(@)]],
             !.grants = {[g EXCEPT !.request = To(@), !.copies = 1..Cardinality(@)] : g \in @}]

\* Makes the canonical form of these contents the next state.
Become(c) ==
  \E n \in {With(With(c, WithRangeCaches), WithRequests)} :
    /\ queue' = n.queue
    /\ orphaned_copies' = n.orphaned_copies
    /\ owners' = n.owners
    /\ sizes' = n.sizes
    /\ topic_caches' = n.topic_caches
    /\ total_bytes' = n.total_bytes
    /\ eviction_in_progress' = n.eviction_in_progress
    /\ tasks' = n.tasks
    /\ failing' = n.failing
    /\ reads' = n.reads
    /\ requests' = n.requests
    /\ free' = n.free
    /\ waiting' = n.waiting
    /\ grants' = n.grants
    /\ UNCHANGED settings
=============================================================================
