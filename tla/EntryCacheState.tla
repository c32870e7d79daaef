-------------------------- MODULE EntryCacheState --------------------------
(***************************************************************************)
(* Settings and state of the entry cache (EntryCache.tla): the twin of     *)
(* model/entry_cache/state.py and, for its canonical form, names.py.       *)
(*                                                                         *)
(* A state is a canonical state of the model:                              *)
(*                                                                         *)
(*   time      timestamp_ns and since_ns are relative to now: zero at the  *)
(*             start, negative when time has passed                        *)
(*   stores    range caches are numbered from 0: those of the topics, then *)
(*             removed ones that still have entries or outstanding reads   *)
(*   requests  pending ones, and completed ones that still hold permits,   *)
(*             are numbered from 1; so are storage reads                   *)
(*   copies    sharers of a read count, named where that matters:          *)
(*               held     <<request, entry>>: of a pending request         *)
(*               granted  <<request, i>>: its i-th copy not yet released   *)
(*               open     number of the other copies of readers            *)
(*   orphaned_copies  copies of entries no longer cached: a bag of records *)
(*             of the copies that share a read count, and the read count   *)
(*                                                                         *)
(* Within a step numbers only grow; Become closes the gaps.                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings of the broker and its environment; for a dynamic setting, its first value.
  caches, stored, storage_reads, eviction_task, ttl_ns, max_reads_in_flight_bytes, permits_timeout_ns,
  permits_queue_size, start_max_bytes, start_watermark, start_max_requeue_times, start_extend_ttl_of_recently_accessed,
  \* Rules on which versions differ.
  duplicate_put, removal_marks_read, undelivered_release_marks_read, rejection_marks_read,
  periodic_eviction_erases_mark, timer_grants_next, short_answer, caches_unexpected_entries,
  \* The values of the actions' arguments.
  cache, position, bytes, insert_expected_reads, ledger, first, last, read_expected_reads, success, entries, oddity,
  count, nanos, set_max_cache_bytes_value, set_eviction_watermark_value, set_max_requeue_times_value,
  set_extend_ttl_value

VARIABLES
  queue,        \* the removal queue: entries and detached slots, oldest first
  orphaned_copies,  \* copies whose read count no cached entry has
  owners,       \* for each range cache: its topic, or its last one
  sizes,        \* bytes of each range cache
  topic_caches, \* for each topic: its range cache, or Absent, or Disabled
  total_bytes,  \* the broker's own sum
  eviction_in_progress,  \* evictionInProgress is set: an eviction task is queued
  tasks,        \* queued eviction tasks
  failing,      \* number of the next storage reads that fail, where storage answers at once
  reads,        \* outstanding storage reads
  requests,     \* pending requests
  free,         \* free permits, in bytes
  waiting,      \* requests queued for permits, oldest first
  grants,       \* a set: permits of a request until its last copy is released
  max_bytes, watermark, max_requeue_times, extend_ttl_of_recently_accessed

settings == <<max_bytes, watermark, max_requeue_times, extend_ttl_of_recently_accessed>>
vars == <<queue, orphaned_copies, owners, sizes, topic_caches, total_bytes, eviction_in_progress, tasks, failing, reads, requests, free, waiting,
          grants, settings>>

\* Instead of a range cache: removed and not used since; or disabled, so that it stores nothing.
Absent == -1
Disabled == -2

Init ==
  LET enabled == start_max_bytes > 0
      stores == IF enabled THEN 0..caches - 1 ELSE {}
  IN /\ queue = <<>>
     /\ orphaned_copies = <<>>
     /\ owners = [s \in stores |-> s]
     /\ sizes = [s \in stores |-> 0]
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

\* Numbers of requests that are pending or hold permits.
Asking(c) == {c.requests[i].number : i \in DOMAIN c.requests} \cup {g.request : g \in c.grants}

\* The variables that actions change, as one record.
Contents ==
  [queue |-> queue, orphaned_copies |-> orphaned_copies, owners |-> owners, sizes |-> sizes, topic_caches |-> topic_caches, total_bytes |-> total_bytes,
   eviction_in_progress |-> eviction_in_progress, tasks |-> tasks, failing |-> failing, reads |-> reads, requests |-> requests, free |-> free,
   waiting |-> waiting, grants |-> grants, next_read |-> Len(reads) + 1]

-----------------------------------------------------------------------------
(* Sets and sequences. *)

\* Of(value), with the value evaluated once.  For an action, TLC evaluates an argument or a LET definition again at each
\* use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(set) == CHOOSE n \in set : \A m \in set : n <= m
Greatest(set) == CHOOSE n \in set : \A m \in set : n >= m
InSet(seq) == {seq[i] : i \in DOMAIN seq}
IndexOf(seq, each) == Least({i \in DOMAIN seq : seq[i] = each})

\* A sequence without repetitions; the first occurrence counts.
Distinct(seq) == LET IsFirst(i) == IndexOf(seq, seq[i]) = i
                     firsts == SelectSeq([i \in DOMAIN seq |-> i], IsFirst)
                 IN [i \in DOMAIN firsts |-> seq[firsts[i]]]

\* A sequence with another element at an index.  Not by EXCEPT: TLC 2.15 drops the exceptions of a function that it has
\* not evaluated yet when it converts it to a sequence.
Exchanged(seq, i, each) == SubSeq(seq, 1, i - 1) \o <<each>> \o SubSeq(seq, i + 1, Len(seq))

IsEntry(slot) == slot # None

\* The slots, with New(e) for each entry e that satisfies Chosen.
Changed(slots, Chosen(_), New(_)) ==
  [i \in DOMAIN slots |-> IF slots[i] # None /\ Chosen(slots[i]) THEN New(slots[i]) ELSE slots[i]]

-----------------------------------------------------------------------------
(* Copies. *)

NoCopies == [held |-> {}, granted |-> {}, open |-> 0]
Held(names) == [NoCopies EXCEPT !.held = names]

\* A read count without copies is dropped.
WithOrphanedCopies(bag, copies, n) ==
  LET group == [copies |-> copies, expected_reads |-> n]
  IN IF copies = NoCopies THEN bag
     ELSE [g \in DOMAIN bag \cup {group} |->
             (IF g \in DOMAIN bag THEN bag[g] ELSE 0) + (IF g = group THEN 1 ELSE 0)]

WithoutOrphanedCopies(bag, group) ==
  IF bag[group] > 1 THEN [bag EXCEPT ![group] = @ - 1] ELSE [g \in DOMAIN bag \ {group} |-> bag[g]]

\* The contents with To(copies) for all copies; To is injective.
WithCopies(c, To(_)) ==
  LET Every(e) == TRUE
      Entry(e) == [e EXCEPT !.copies = To(@)]
      group == [g \in DOMAIN c.orphaned_copies |-> [g EXCEPT !.copies = To(@)]]
  IN [c EXCEPT !.queue = Changed(@, Every, Entry),
               !.orphaned_copies = [h \in {group[g] : g \in DOMAIN group} |->
                            LET g == CHOOSE g \in DOMAIN group : group[g] = h IN c.orphaned_copies[g]]]

-----------------------------------------------------------------------------
(* Numbers without gaps. *)

\* The range caches that can still be observed, in the order of their new numbers.
StoresInUse(c) ==
  LET live == SelectSeq(c.queue, IsEntry)
      IsStore(s) == s >= 0
  IN Distinct(SelectSeq([t \in 1..caches |-> c.topic_caches[t - 1]] \o [i \in DOMAIN live |-> live[i].store]
                        \o [i \in DOMAIN c.reads |-> c.reads[i].store]
                        \o [i \in DOMAIN c.requests |-> c.requests[i].store], IsStore))

WithStores(c) ==
  LET order == StoresInUse(c)
      To(s) == IF s < 0 THEN s ELSE IndexOf(order, s) - 1
      Every(e) == TRUE
      Moved(each) == [each EXCEPT !.store = To(@)]
      in_order == Cardinality(DOMAIN c.owners) = caches /\ \A t \in DOMAIN c.topic_caches : c.topic_caches[t] = t
  IN IF in_order THEN c
     ELSE [c EXCEPT !.queue = Changed(@, Every, Moved),
                    !.owners = [s \in 0..Len(order) - 1 |-> @[order[s + 1]]],
                    !.sizes = [s \in 0..Len(order) - 1 |-> @[order[s + 1]]],
                    !.topic_caches = [t \in DOMAIN @ |-> To(@[t])],
                    !.reads = [i \in DOMAIN @ |-> Moved(@[i])],
                    !.requests = [i \in DOMAIN @ |-> Moved(@[i])]]

\* A part names the outstanding read that it awaits by its index among them.
RECURSIVE WithReads(_, _)
WithReads(part, numbers) ==
  [part EXCEPT !.read = IF part.kind = "awaited" THEN IndexOf(numbers, @) ELSE 0,
               !.parts = [i \in DOMAIN @ |-> WithReads(@[i], numbers)]]

WithRequests(c) ==
  LET asking == Asking(c)
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

\* Sets the variables to these contents.
Become(c) ==
  \E n \in {With(With(c, WithStores), WithRequests)} :
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
