----------------------------- MODULE CacheSteps -----------------------------
(*****************************************************************************)
(* Range caches and their removal queue with concurrent threads: the steps   *)
(* of a put, a removal, an eviction and a lookup interleave.                 *)
(*                                                                           *)
(* Source: PIP-430.  Twin of model/cache_steps/machine.py: the same actions  *)
(* and settings, equal states and steps.  Models RangeCache,                 *)
(* RangeCacheRemovalQueue and RangeEntryCacheManagerImpl (master 2026-07).   *)
(* Step grain: one access to a shared structure; the model's docstring lists *)
(* the exceptions.                                                           *)
(*                                                                           *)
(*   insert    a pooled wrapper is filled under its lock and mapped; it is   *)
(*             offered to the queue; the cache adds its bytes, and the lock  *)
(*             is released; the total adds the bytes; above the trigger, if  *)
(*             no eviction is in progress, an eviction task is scheduled     *)
(*   remove    per position: a wrapper is found; under its lock, if it still *)
(*             has the key, it is unmapped and marked as removed; at the end *)
(*             the removed bytes are subtracted from the size of the cache,  *)
(*             then from the total                                           *)
(*   evict     one thread, one task at a time: the head of the queue is      *)
(*             peeked and tested under its lock.  STOP ends the pass;        *)
(*             REQUEUE moves the head to the tail; REMOVE unmaps it, marks   *)
(*             it as removed and subtracts its bytes from the size of its    *)
(*             cache.  After REMOVE or MISSING, the head is popped and       *)
(*             recycled.  At the end of the pass, the freed bytes are        *)
(*             subtracted from the total                                     *)
(*   look up   a wrapper is found; its key is compared; `accessed` is set    *)
(*             without the lock; its value is retained                       *)
(*                                                                           *)
(* A wrapper is identified by a number.  A key is the number of a position   *)
(* among those of all caches; the entry at position p of a cache has p + 1   *)
(* bytes.  Every step ends by renumbering the wrappers (symmetry reduction), *)
(* as the model's canonical form does.  Locks are derived from the program   *)
(* counters `at` of the threads.  A step that the model refuses is not       *)
(* enabled, except OverRelease of a value that is already deallocated, which *)
(* changes nothing.                                                          *)
(*                                                                           *)
(* Not modelled: return values, time (any entry may be expired), expected    *)
(* read counts, buffers and reference counts.                                *)
(*****************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  None,
  \* Numbers of caches, positions, wrappers and threads, and broker settings.  Config in model/cache_steps/state.py
  \* explains them, and the rules.
  caches, positions, pool, inserters, removers, readers, trigger_bytes, target_bytes,
  extend_ttl_of_recently_accessed,
  \* Rules on which versions differ.
  published_first, put_is_atomic, clears_in_bulk, removal_reports, removal_rechecks_key, eviction_unmaps,
  retaining_checks_position, recycling_clears_accessed, late_trigger, periodic_task_overwrites_future,
  released_value_stays_counted, removal_passes_released_values,
  \* Sets of values of the actions' arguments: caches, positions, the last positions of removals, and whether the head
  \* of the queue is expired.  An action can take any thread and wrapper.
  cache, position, last, expired

VARIABLES
  mapped,     \* the wrapper at each key
  queue,      \* the removal queue: wrappers, head first
  wrappers,   \* of each wrapper: key, `accessed`, whether its value is deallocated, whether it is in the pool
  sizes,      \* of each cache (RangeCache.size)
  total,      \* of all caches (RangeEntryCacheManagerImpl.currentSize)
  eviction_in_progress,  \* evictionInProgress is not null: an eviction task is scheduled or runs
  scheduled,  \* number of eviction tasks that the evicting thread has not begun
  inserts,    \* of each inserting thread: program counter and local variables
  removals,   \* of each removing thread
  eviction,   \* of the evicting thread; `goal` is the number of bytes to free, None in a time pass
  lookups     \* of each thread that looks up

vars == <<mapped, queue, wrappers, sizes, total, eviction_in_progress, scheduled, inserts, removals, eviction, lookups>>

Keys == 0..caches * positions - 1
Wrappers == 0..pool - 1
Inserters == 0..inserters - 1
Removers == 0..removers - 1
Readers == 0..readers - 1

Key(c, p) == c * positions + p
CacheOf(k) == k \div positions
BytesOf(k) == (k % positions) + 1
Max(m, n) == IF m > n THEN m ELSE n

Free == [key |-> None, accessed |-> FALSE, released |-> FALSE, pooled |-> TRUE]
NoInsert == [at |-> "idle", wrapper |-> None, key |-> None]
NoRemoval == [at |-> "idle", key |-> None, last |-> None, wrapper |-> None, removed |-> 0, size_at_start |-> 0]
NoEviction == [at |-> "idle", periodic |-> FALSE, wrapper |-> None, key |-> None, goal |-> 0, freed |-> 0]
NoLookup == [at |-> "idle", key |-> None, wrapper |-> None]

Init == /\ mapped = [k \in Keys |-> None]
        /\ queue = <<>>
        /\ wrappers = [w \in Wrappers |-> Free]
        /\ sizes = [c \in 0..caches - 1 |-> 0]
        /\ total = 0
        /\ eviction_in_progress = FALSE
        /\ scheduled = 0
        /\ inserts = [i \in Inserters |-> NoInsert]
        /\ removals = [r \in Removers |-> NoRemoval]
        /\ eviction = NoEviction
        /\ lookups = [l \in Readers |-> NoLookup]

-----------------------------------------------------------------------------
(* A state as one record, and the renumbering of its wrappers. *)

Contents == [mapped |-> mapped, queue |-> queue, wrappers |-> wrappers, sizes |-> sizes, total |-> total,
             eviction_in_progress |-> eviction_in_progress, scheduled |-> scheduled, inserts |-> inserts,
             removals |-> removals, eviction |-> eviction, lookups |-> lookups]

\* The references to wrappers, in the order of queue, map and threads; None if a key or a thread has no wrapper.
References(s) == s.queue \o [k \in 1..caches * positions |-> s.mapped[k - 1]]
                  \o [i \in 1..inserters |-> s.inserts[i - 1].wrapper]
                  \o [r \in 1..removers |-> s.removals[r - 1].wrapper]
                  \o <<s.eviction.wrapper>>
                  \o [l \in 1..readers |-> s.lookups[l - 1].wrapper]

Bit(truth) == IF truth THEN 1 ELSE 0

\* The fields of a wrapper as a number, by which unreferenced wrappers are ordered.
FieldsAsNumber(w) ==
  8 * (IF w.key = None THEN 0 ELSE w.key + 1) + 4 * Bit(w.accessed) + 2 * Bit(w.released) + Bit(w.pooled)

\* The first index of a wrapper in the references, or a number above all indices if the wrapper is unreferenced.
RankOf(s, references, w) == LET found == {n \in DOMAIN references : references[n] = w}
                            IN IF found = {} THEN Len(references) + 1 + FieldsAsNumber(s.wrappers[w])
                               ELSE CHOOSE n \in found : \A m \in found : n <= m

\* The number of a wrapper in the canonical state: wrappers are ordered by rank, then by their old numbers.
NewNumber(rank, w) == Cardinality({v \in Wrappers : rank[v] < rank[w] \/ (rank[v] = rank[w] /\ v < w)})

\* The state with wrapper w renumbered to number[w].
Renumbered(s, number) ==
  LET N(w) == IF w = None THEN None ELSE number[w]
  IN IF \A w \in Wrappers : number[w] = w THEN s
     ELSE [s EXCEPT !.mapped = [k \in Keys |-> N(@[k])],
                    !.queue = [n \in DOMAIN @ |-> N(@[n])],
                    !.wrappers = [w \in Wrappers |-> @[CHOOSE v \in Wrappers : number[v] = w]],
                    !.inserts = [i \in Inserters |-> [@[i] EXCEPT !.wrapper = N(@)]],
                    !.removals = [r \in Removers |-> [@[r] EXCEPT !.wrapper = N(@)]],
                    !.eviction.wrapper = N(@),
                    !.lookups = [l \in Readers |-> [@[l] EXCEPT !.wrapper = N(@)]]]

\* Makes these contents the next state, with renumbered wrappers.  Each quantifier over a single value makes TLC
\* evaluate that value only once.
Become(contents) ==
  \E s \in {TLCEval(contents)} :
  \E references \in {TLCEval(References(s))} :
  \E rank \in {TLCEval([w \in Wrappers |-> RankOf(s, references, w)])} :
  \E number \in {TLCEval([w \in Wrappers |-> NewNumber(rank, w)])} :
  \E t \in {TLCEval(Renumbered(s, number))} :
     /\ mapped' = t.mapped
     /\ queue' = t.queue
     /\ wrappers' = t.wrappers
     /\ sizes' = t.sizes
     /\ total' = t.total
     /\ eviction_in_progress' = t.eviction_in_progress
     /\ scheduled' = t.scheduled
     /\ inserts' = t.inserts
     /\ removals' = t.removals
     /\ eviction' = t.eviction
     /\ lookups' = t.lookups

-----------------------------------------------------------------------------
(* Locks, and changes of a wrapper. *)

\* Whether a thread holds the lock of wrapper w.  An insert holds the lock of its wrapper.  A removal holds the lock
\* after Take.  An eviction holds the lock from the result REMOVE until the bytes are subtracted.  If `eviction_unmaps`
\* is "mapped", an eviction instead holds, after UnmapEvicted, the lock of the wrapper that was mapped at the position.
InsertLocks(w) == \E i \in Inserters : inserts[i].wrapper = w
RemovalLocks(w) == \E r \in Removers : removals[r].wrapper = w /\ removals[r].at # "take"
EvictionLocks(w) == /\ eviction.wrapper = w
                    /\ \/ eviction.at \in {"mark_removed", "subtract"}
                       \/ eviction.at = "unmap" /\ eviction_unmaps = "checked"
Locked(w) == InsertLocks(w) \/ RemovalLocks(w) \/ EvictionLocks(w)

\* RangeCacheEntryWrapper.recycle resets every field; without recycling_clears_accessed, every field but `accessed`.
\* markRemoved keeps `accessed`.
Recycled(w) == IF recycling_clears_accessed THEN Free ELSE [Free EXCEPT !.accessed = w.accessed]
MarkedRemoved(w) == [w EXCEPT !.key = None, !.released = FALSE]

\* The map without this wrapper at the key; another wrapper at the key stays.
Unmapped(k, w) == IF mapped[k] = w THEN [mapped EXCEPT ![k] = None] ELSE mapped

\* Whether a removal or eviction leaves the wrapper unmarked and its bytes in the size: its value is deallocated.
StaysCounted(w) == wrappers[w].released /\ released_value_stays_counted

-----------------------------------------------------------------------------
(* Inserting. *)

\* RangeCache.put: fills a pooled wrapper under its lock and maps it.  If the position is taken, the wrapper returns to
\* the pool.  Filling does not clear `accessed`.  With `published_first` "queue", the wrapper is queued, not mapped,
\* also if the position is taken.  Without `put_is_atomic`, Publish maps the wrapper.
AfterInsert(i, k, w) ==
  LET filled == [Contents EXCEPT !.wrappers[w] = [Free EXCEPT !.key = k, !.accessed = @ \/ wrappers[w].accessed,
                                                              !.pooled = FALSE]]
      thread(step) == [at |-> step, wrapper |-> w, key |-> k]
  IN IF published_first = "map" /\ mapped[k] # None THEN [Contents EXCEPT !.wrappers[w] = Recycled(@)]
     ELSE IF published_first = "queue" THEN [filled EXCEPT !.queue = Append(@, w), !.inserts[i] = thread("put")]
     ELSE IF put_is_atomic THEN [filled EXCEPT !.mapped[k] = w, !.inserts[i] = thread("offer")]
     ELSE [filled EXCEPT !.inserts[i] = thread("put")]

CanInsert(i, w) == inserts[i].at = "idle" /\ wrappers[w].pooled /\ ~Locked(w)
Insert == \E i \in Inserters, c \in cache, p \in position, w \in Wrappers :
            CanInsert(i, w) /\ Become(AfterInsert(i, Key(c, p), w))

\* At "offer", the mapped wrapper is offered to the queue.  At "put", the wrapper is mapped.  With `published_first`
\* "queue", Insert has already queued the wrapper.  If the position is taken, the wrapper is recycled, but its slot
\* stays in the queue.  Without `put_is_atomic`, Insert has only tested the map.  If the position has been taken since,
\* the wrapper is queued and counted, but not mapped.
AfterPublish(i) ==
  LET w == inserts[i].wrapper
      k == inserts[i].key
      put == IF mapped[k] = None THEN [Contents EXCEPT !.mapped[k] = w] ELSE Contents
  IN IF inserts[i].at = "offer" THEN [Contents EXCEPT !.queue = Append(@, w), !.inserts[i].at = "count"]
     ELSE IF published_first = "map" THEN [put EXCEPT !.inserts[i].at = "offer"]
     ELSE IF mapped[k] = None THEN [put EXCEPT !.inserts[i].at = "count"]
     ELSE [Contents EXCEPT !.wrappers[w] = Recycled(@), !.inserts[i] = NoInsert]

Publish == \E i \in Inserters : inserts[i].at \in {"put", "offer"} /\ Become(AfterPublish(i))

\* The cache adds the bytes to its size, and the lock of the wrapper is released.
AfterCountInCache(i) ==
  [Contents EXCEPT !.sizes[CacheOf(inserts[i].key)] = @ + BytesOf(inserts[i].key),
                   !.inserts[i].at = "total", !.inserts[i].wrapper = None]

CountInCache == \E i \in Inserters : inserts[i].at = "count" /\ Become(AfterCountInCache(i))

\* entryAdded: the total adds the bytes.  Above the trigger, the thread schedules an eviction if none is in progress.
AfterCountInTotal(i) ==
  LET now == total + BytesOf(inserts[i].key)
  IN [Contents EXCEPT !.total = now,
                      !.inserts[i] = IF now > trigger_bytes /\ ~eviction_in_progress
                                     THEN [NoInsert EXCEPT !.at = "schedule"] ELSE NoInsert]

CountInTotal == \E i \in Inserters : inserts[i].at = "total" /\ Become(AfterCountInTotal(i))

\* triggerEvictionWhenNeeded: sets evictionInProgress and schedules a task.  If another thread has set
\* evictionInProgress since this thread read it, this thread does nothing.  With `late_trigger` "erases", this thread
\* sets it to null instead, and reads it again at "retry".
AfterSchedule(i) ==
  IF inserts[i].at = "retry"
  THEN [Contents EXCEPT !.inserts[i] = IF eviction_in_progress THEN NoInsert ELSE [@ EXCEPT !.at = "schedule"]]
  ELSE IF ~eviction_in_progress
  THEN [Contents EXCEPT !.eviction_in_progress = TRUE, !.scheduled = @ + 1, !.inserts[i] = NoInsert]
  ELSE IF late_trigger = "keeps" THEN [Contents EXCEPT !.inserts[i] = NoInsert]
  ELSE [Contents EXCEPT !.eviction_in_progress = FALSE, !.inserts[i].at = "retry"]

Schedule == \E i \in Inserters : inserts[i].at \in {"schedule", "retry"} /\ Become(AfterSchedule(i))

-----------------------------------------------------------------------------
(* Removing by position. *)

\* removeRange of the positions of cache c up to p.
AfterRemove(r, c, p) ==
  [Contents EXCEPT !.removals[r] =
     [NoRemoval EXCEPT !.at = "find", !.key = Key(c, 0), !.last = Key(c, p),
                       !.size_at_start = IF removal_reports = "size_at_start" THEN sizes[c] ELSE 0]]

Remove == \E r \in Removers, c \in cache, p \in last : removals[r].at = "idle" /\ Become(AfterRemove(r, c, p))

\* Finds the next mapped position of the range.  If there is none, the removal ends.  A removal that has removed bytes,
\* will report bytes, or clears the range in bulk first goes to "subtract".
AfterFindNext(r) ==
  LET removal == removals[r]
      ahead == {k \in removal.key..removal.last : mapped[k] # None}
      next == CHOOSE k \in ahead : \A l \in ahead : k <= l
  IN [Contents EXCEPT !.removals[r] =
        IF ahead # {} THEN [@ EXCEPT !.at = "take", !.key = next, !.wrapper = mapped[next]]
        ELSE IF removal.removed # 0 \/ removal.size_at_start # 0 \/ clears_in_bulk
        THEN [@ EXCEPT !.at = "subtract", !.key = None]
        ELSE NoRemoval]

FindNext == \E r \in Removers : removals[r].at = "find" /\ Become(AfterFindNext(r))

\* Locks the wrapper.  With `removal_rechecks_key`, unlocks it at once if its key has changed.  Without
\* `removal_passes_released_values`, unlocks a wrapper whose value is deallocated, and finds the same wrapper again.
AfterTake(r) ==
  LET removal == removals[r]
      w == wrappers[removal.wrapper]
  IN [Contents EXCEPT !.removals[r] =
        IF w.released /\ ~removal_passes_released_values THEN [@ EXCEPT !.at = "find", !.wrapper = None]
        ELSE IF w.key # removal.key /\ removal_rechecks_key
        THEN [@ EXCEPT !.at = "find", !.key = removal.key + 1, !.wrapper = None]
        ELSE [@ EXCEPT !.at = "unmap"]]

Take == \E r \in Removers : removals[r].at = "take" /\ ~Locked(removals[r].wrapper) /\ Become(AfterTake(r))

AfterUnmap(r) ==
  [Contents EXCEPT !.mapped = Unmapped(removals[r].key, removals[r].wrapper), !.removals[r].at = "mark_removed"]

Unmap == \E r \in Removers : removals[r].at = "unmap" /\ Become(AfterUnmap(r))

\* markRemoved: marks the wrapper as removed, adds its bytes to `removed` and unlocks it; its slot stays in the queue.
\* The wrapper is only unlocked if StaysCounted holds or, with `removal_rechecks_key`, if its key has changed.
AfterMarkRemoved(r) ==
  LET removal == removals[r]
      w == removal.wrapper
      clears == ~StaysCounted(w) /\ (wrappers[w].key = removal.key \/ ~removal_rechecks_key)
  IN [Contents EXCEPT
        !.wrappers[w] = IF clears THEN MarkedRemoved(@) ELSE @,
        !.removals[r] = [@ EXCEPT !.at = "find", !.key = removal.key + 1, !.wrapper = None,
                                  !.removed = IF clears THEN @ + BytesOf(removal.key) ELSE @]]

MarkRemoved == \E r \in Removers : removals[r].at = "mark_removed" /\ Become(AfterMarkRemoved(r))

\* The cache subtracts the removed bytes from its size.  With `clears_in_bulk`, it also unmaps the whole range.
AfterSubtract(r) ==
  LET removal == removals[r]
      c == CacheOf(removal.last)
      reports == IF removal_reports = "size_at_start" THEN removal.size_at_start ELSE removal.removed
  IN [Contents EXCEPT
        !.sizes[c] = @ - removal.removed,
        !.mapped = [k \in Keys |-> IF clears_in_bulk /\ k >= Key(c, 0) /\ k <= removal.last THEN None ELSE @[k]],
        !.removals[r] = IF reports = 0 THEN NoRemoval ELSE [NoRemoval EXCEPT !.at = "report", !.removed = reports]]

Subtract == \E r \in Removers : removals[r].at = "subtract" /\ Become(AfterSubtract(r))

\* entriesRemoved: the total subtracts the bytes that the removal reports (`removal_reports`).
AfterReport(r) == [Contents EXCEPT !.total = @ - removals[r].removed, !.removals[r] = NoRemoval]

Report == \E r \in Removers : removals[r].at = "report" /\ Become(AfterReport(r))

-----------------------------------------------------------------------------
(* Evicting: one thread. *)

\* The state with the evicting thread at this program counter.
Evicting(step) == [Contents EXCEPT !.eviction.at = step]

\* The thread begins a scheduled task.
BeginEviction == /\ eviction.at = "idle" /\ scheduled > 0
                 /\ Become([Evicting("measure") EXCEPT !.scheduled = @ - 1])

\* doCacheEviction begins: a time pass, then the size check.
BeginPeriodicEviction ==
  /\ eviction.at = "idle"
  /\ Become([Contents EXCEPT !.eviction_in_progress = @ \/ periodic_task_overwrites_future,
                             !.eviction = [NoEviction EXCEPT !.at = "peek", !.periodic = TRUE, !.goal = None]])

\* doEvictToWatermarkWhenOverThreshold: the bytes that the size pass must free; 0, and no pass, at or below the trigger
\* or the target.
Measure ==
  LET goal == IF total > trigger_bytes THEN Max(total - target_bytes, 0) ELSE 0
  IN /\ eviction.at = "measure"
     /\ Become([Evicting(IF goal > 0 THEN "peek" ELSE "end") EXCEPT !.eviction.goal = goal])

\* The end of a pass.  If the pass freed bytes, the thread reports them.  Then a time pass is followed by the size
\* check, and a size pass ends the task.
PassOver == IF eviction.freed # 0 THEN [Evicting("report") EXCEPT !.eviction.wrapper = None]
            ELSE [Evicting(IF eviction.goal = None THEN "measure" ELSE "end") EXCEPT !.eviction.wrapper = None,
                                                                                   !.eviction.goal = 0]

Peek == /\ eviction.at = "peek"
        /\ Become(IF queue = <<>> THEN PassOver ELSE [Evicting("visit") EXCEPT !.eviction.wrapper = Head(queue)])

\* The test of the head under its lock.  The branches are, in this order, MISSING, STOP, REQUEUE and REMOVE.
AfterVisit(stops) ==
  LET w == eviction.wrapper
  IN IF wrappers[w].key = None THEN Evicting("pop")
     ELSE IF stops THEN PassOver
     ELSE IF wrappers[w].accessed /\ extend_ttl_of_recently_accessed
     THEN [Evicting("requeue") EXCEPT !.wrappers[w].accessed = FALSE]
     ELSE [Evicting("unmap") EXCEPT !.eviction.key = wrappers[w].key]

CanVisit == eviction.at = "visit" /\ ~Locked(eviction.wrapper)

VisitForSize == CanVisit /\ eviction.goal # None /\ Become(AfterVisit(eviction.freed >= eviction.goal))
VisitForTime == CanVisit /\ eviction.goal = None /\ \E e \in expired : Become(AfterVisit(~e))

Requeue == /\ eviction.at = "requeue"
           /\ Become([Evicting("peek") EXCEPT !.queue = Append(Tail(@), eviction.wrapper), !.eviction.wrapper = None])

\* Unmaps the wrapper under its lock.  With `eviction_unmaps` "mapped", unmaps whichever wrapper is mapped at the
\* position; if none is, only the head is popped.
UnmapEvicted ==
  LET k == eviction.key
      resident == mapped[k]
  IN /\ eviction.at = "unmap"
     /\ IF eviction_unmaps = "checked"
        THEN Become([Evicting("mark_removed") EXCEPT !.mapped = Unmapped(k, eviction.wrapper)])
        ELSE /\ ~Locked(IF resident = None THEN eviction.wrapper ELSE resident)
             /\ Become(IF resident = None THEN [Evicting("pop") EXCEPT !.eviction.key = None]
                       ELSE [Evicting("mark_removed") EXCEPT !.mapped[k] = None, !.eviction.wrapper = resident])

AfterMarkEvictedRemoved ==
  LET w == eviction.wrapper
  IN IF StaysCounted(w) THEN [Evicting("pop") EXCEPT !.eviction.key = None]
     ELSE [Evicting("subtract") EXCEPT !.wrappers[w] = MarkedRemoved(@)]

MarkEvictedRemoved == eviction.at = "mark_removed" /\ Become(AfterMarkEvictedRemoved)

SubtractEvicted ==
  /\ eviction.at = "subtract"
  /\ Become([Evicting("pop") EXCEPT !.sizes[CacheOf(eviction.key)] = @ - BytesOf(eviction.key),
                                    !.eviction.freed = @ + BytesOf(eviction.key), !.eviction.key = None])

Pop == eviction.at = "pop" /\ Become([Evicting("recycle") EXCEPT !.queue = Tail(@), !.eviction.wrapper = Head(queue)])

AfterRecycle == [Evicting("peek") EXCEPT !.wrappers[eviction.wrapper] = Recycled(@), !.eviction.wrapper = None]

Recycle == eviction.at = "recycle" /\ Become(AfterRecycle)

\* entriesRemoved: the total subtracts the freed bytes.
ReportEvicted ==
  /\ eviction.at = "report"
  /\ Become([Evicting(IF eviction.goal = None THEN "measure" ELSE "end") EXCEPT !.total = @ - eviction.freed,
                                                                                !.eviction.goal = 0,
                                                                                !.eviction.freed = 0])

\* The task ends and sets evictionInProgress to null.  The periodic task does so only if it has overwritten
\* evictionInProgress.
EndEviction ==
  /\ eviction.at = "end"
  /\ Become([Contents EXCEPT !.eviction_in_progress = @ /\ eviction.periodic /\ ~periodic_task_overwrites_future,
                             !.eviction = NoEviction])

-----------------------------------------------------------------------------
(* Looking up. *)

AfterFind(l, k) == [Contents EXCEPT !.lookups[l] = [at |-> "compare", key |-> k, wrapper |-> mapped[k]]]

Find == \E l \in Readers, c \in cache, p \in position :
          lookups[l].at = "idle" /\ mapped[Key(c, p)] # None /\ Become(AfterFind(l, Key(c, p)))

AfterCompare(l) ==
  [Contents EXCEPT !.lookups[l] = IF wrappers[lookups[l].wrapper].key = lookups[l].key
                                  THEN [@ EXCEPT !.at = "set_accessed"] ELSE NoLookup]

Compare == \E l \in Readers : lookups[l].at = "compare" /\ ~Locked(lookups[l].wrapper) /\ Become(AfterCompare(l))

AfterSetAccessed(l) == [Contents EXCEPT !.wrappers[lookups[l].wrapper].accessed = TRUE, !.lookups[l].at = "retain"]

SetAccessed == \E l \in Readers : lookups[l].at = "set_accessed" /\ Become(AfterSetAccessed(l))

\* For the properties: the key of the value that a lookup returns, or None if the lookup returns no value.  A
\* deallocated value is not returned.  A value with another position is returned only without
\* `retaining_checks_position`.
RetainedKey(l) == LET w == wrappers[lookups[l].wrapper]
            IN IF ~w.released /\ (w.key = lookups[l].key \/ ~retaining_checks_position) THEN w.key ELSE None
AfterRetain(l) == [Contents EXCEPT !.lookups[l] = NoLookup]

Retain == \E l \in Readers : lookups[l].at = "retain" /\ Become(AfterRetain(l))

AfterOverRelease(k) == [Contents EXCEPT !.wrappers[mapped[k]].released = TRUE]

\* One release too many deallocates the value of a cached entry.
OverRelease == \E c \in cache, p \in position : LET k == Key(c, p) IN mapped[k] # None /\ Become(AfterOverRelease(k))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* The number of threads that are not idle.
Busy == Cardinality({i \in Inserters : inserts[i].at # "idle"})
        + Cardinality({r \in Removers : removals[r].at # "idle"})
        + Cardinality({l \in Readers : lookups[l].at # "idle"}) + Bit(eviction.at # "idle")
BusyAtMost(n) == Busy <= n

\* The absolute values of sizes, total, and freed and removed bytes.
BytesAtMost(n) == /\ total \in -n..n
                  /\ eviction.freed <= n
                  /\ \A c \in DOMAIN sizes : sizes[c] \in -n..n
                  /\ \A r \in Removers : removals[r].removed <= n

TasksAtMost(n) == scheduled <= n
SlotsAtMost(n) == Len(queue) <= n
=============================================================================
