-------------------------- MODULE EntryCacheState --------------------------
(***************************************************************************)
(* The settings and the state of the entry cache; EntryCache.tla says what *)
(* it is for.  The twin of model/entry_cache/state.py and, for what a      *)
(* state is called by, of model/entry_cache/names.py.                      *)
(*                                                                         *)
(* A state here is what the model calls its canonical state:               *)
(*                                                                         *)
(*   time      timestamp_ns and since_ns are relative to now, so they are  *)
(*             zero for what begins now and fall when time passes          *)
(*   stores    range caches are numbered from 0: those of the topics, then *)
(*             those that were removed and still hold or await something   *)
(*   requests  those that are not answered, or answered and still hold     *)
(*             permits, are numbered from 1, and reads of storage likewise *)
(*   copies    who shares a counter is told by name where that matters:    *)
(*               held     <<request, entry>>: for a request not answered   *)
(*               granted  <<request, i>>: its i-th copy not yet given back *)
(*               open     other copies of readers: a number of them        *)
(*   orphaned_copies     copies whose entry has left its cache: a bag of records of  *)
(*             the copies that share a counter, and the counter            *)
(*                                                                         *)
(* Within a step numbers only grow; Become closes the gaps.                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings of the broker and its surroundings; those that can change while it runs are named after their start.
  caches, stored, storage_reads, eviction_task, ttl_ns, max_reads_in_flight_bytes, permits_timeout_ns,
  permits_queue_size, start_max_bytes, start_watermark, start_max_requeue_times, start_extend_ttl_of_recently_accessed,
  \* Rules on which versions differ.
  duplicate_put, removal_marks_read, undelivered_release_marks_read, rejection_marks_read,
  periodic_eviction_erases_mark, timer_grants_next, short_answer,
  \* The values of the actions' arguments.
  cache, position, bytes, insert_expected_reads, ledger, first, last, read_expected_reads, success, entries, oddity,
  count, nanos, set_max_cache_bytes_value, set_eviction_watermark_value, set_max_requeue_times_value,
  set_extend_ttl_value

VARIABLES
  queue,        \* the one removal queue: entries and DETACHED slots, oldest first
  orphaned_copies,        \* copies whose entry is no longer cached
  owners,       \* of each range cache: the topic whose it is, or was
  sizes,        \* bytes of each range cache
  topic_caches,        \* of each topic: its range cache, or Absent, or Disabled
  total_bytes,  \* the broker's own sum
  marked,       \* whether an eviction is in progress
  tasks,        \* eviction tasks that are queued
  failing,      \* how many of the next reads of storage fail, where they are answered at once
  reads,        \* reads that storage has not answered
  requests,     \* requests that are not answered
  free,         \* permits that nobody holds, in bytes
  waiting,      \* requests that wait for permits, the one that waits longest first
  grants,       \* a set: the permits of a request until its last copy is given back
  max_bytes, watermark, max_requeue_times, extend_ttl_of_recently_accessed

settings == <<max_bytes, watermark, max_requeue_times, extend_ttl_of_recently_accessed>>
vars == <<queue, orphaned_copies, owners, sizes, topic_caches, total_bytes, marked, tasks, failing, reads, requests, free, waiting,
          grants, settings>>

\* In place of a range cache: the topic's was removed and not used since; or it stores nothing.
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
     /\ marked = FALSE
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

\* The numbers of all who hold permits or wait for anything.
Asking(c) == {c.requests[i].number : i \in DOMAIN c.requests} \cup {g.request : g \in c.grants}

\* What an action changes, as one value: the rules compute with it.
Contents ==
  [queue |-> queue, orphaned_copies |-> orphaned_copies, owners |-> owners, sizes |-> sizes, topic_caches |-> topic_caches, total_bytes |-> total_bytes,
   marked |-> marked, tasks |-> tasks, failing |-> failing, reads |-> reads, requests |-> requests, free |-> free,
   waiting |-> waiting, grants |-> grants, next_read |-> Len(reads) + 1]

-----------------------------------------------------------------------------
(* Sets and sequences. *)

\* Of(value), where the value is worked out once.  Asked whether a step is possible, TLC works an argument, and what a
\* LET names, out anew at each place where it stands, and what stands in it likewise.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(set) == CHOOSE n \in set : \A m \in set : n <= m
Greatest(set) == CHOOSE n \in set : \A m \in set : n >= m
InSet(seq) == {seq[i] : i \in DOMAIN seq}
IndexOf(seq, each) == Least({i \in DOMAIN seq : seq[i] = each})

\* Each of a sequence once, where it stands first.
Distinct(seq) == LET IsFirst(i) == IndexOf(seq, seq[i]) = i
                     firsts == SelectSeq([i \in DOMAIN seq |-> i], IsFirst)
                 IN [i \in DOMAIN firsts |-> seq[firsts[i]]]

\* A sequence with another element at a place.  Not by EXCEPT, of which TLC 2.15 may lose sight: asked for a sequence, a
\* function that it has not worked out yet comes without its exceptions.
Exchanged(seq, i, each) == SubSeq(seq, 1, i - 1) \o <<each>> \o SubSeq(seq, i + 1, Len(seq))

IsEntry(slot) == slot # None

\* The same slots with New(e) for each entry e that Chosen(e) holds of.
Changed(slots, Chosen(_), New(_)) ==
  [i \in DOMAIN slots |-> IF slots[i] # None /\ Chosen(slots[i]) THEN New(slots[i]) ELSE slots[i]]

-----------------------------------------------------------------------------
(* Copies. *)

NoCopies == [held |-> {}, granted |-> {}, open |-> 0]
Held(names) == [NoCopies EXCEPT !.held = names]

\* Without copies nobody can see the counter any more.
WithOrphanedCopies(bag, copies, n) ==
  LET group == [copies |-> copies, expected_reads |-> n]
  IN IF copies = NoCopies THEN bag
     ELSE [g \in DOMAIN bag \cup {group} |->
             (IF g \in DOMAIN bag THEN bag[g] ELSE 0) + (IF g = group THEN 1 ELSE 0)]

WithoutOrphanedCopies(bag, group) ==
  IF bag[group] > 1 THEN [bag EXCEPT ![group] = @ - 1] ELSE [g \in DOMAIN bag \ {group} |-> bag[g]]

\* The same contents with To(copies) wherever copies stand; To may give other names, but never the same to two.
WithCopies(c, To(_)) ==
  LET Every(e) == TRUE
      Entry(e) == [e EXCEPT !.copies = To(@)]
      group == [g \in DOMAIN c.orphaned_copies |-> [g EXCEPT !.copies = To(@)]]
  IN [c EXCEPT !.queue = Changed(@, Every, Entry),
               !.orphaned_copies = [h \in {group[g] : g \in DOMAIN group} |->
                            LET g == CHOOSE g \in DOMAIN group : group[g] = h IN c.orphaned_copies[g]]]

-----------------------------------------------------------------------------
(* Numbers without gaps. *)

\* The range caches that something can be known of, in the order of their numbers-to-be.
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

\* A part that waits for one of these outstanding reads names it by its place among them.
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

\* An action leaves these contents.
Become(c) ==
  \E n \in {With(With(c, WithStores), WithRequests)} :
    /\ queue' = n.queue
    /\ orphaned_copies' = n.orphaned_copies
    /\ owners' = n.owners
    /\ sizes' = n.sizes
    /\ topic_caches' = n.topic_caches
    /\ total_bytes' = n.total_bytes
    /\ marked' = n.marked
    /\ tasks' = n.tasks
    /\ failing' = n.failing
    /\ reads' = n.reads
    /\ requests' = n.requests
    /\ free' = n.free
    /\ waiting' = n.waiting
    /\ grants' = n.grants
    /\ UNCHANGED settings
=============================================================================
