----------------------------- MODULE CacheSteps -----------------------------
(***************************************************************************)
(* Range caches at the grain of their linearisation points: interleavings  *)
(* of the steps of an insert, a removal, an eviction and a lookup.         *)
(*                                                                         *)
(* Source: PIP-430.  The twin of model/cache_steps/machine.py: the same    *)
(* steps, the same names, the same settings, equal state counts.           *)
(*                                                                         *)
(*   insert    a pooled wrapper is filled under its lock and mapped; it is *)
(*             offered to the queue; the cache adds its bytes and the      *)
(*             lock is released; the total adds them; above the trigger,   *)
(*             unless an eviction is in progress, a task is scheduled      *)
(*   remove    per position: a wrapper is found; under its lock, if it     *)
(*             still has the key, it is unmapped and marked as removed; at *)
(*             the end its cache subtracts the bytes, then the total       *)
(*   evict     one thread, one task at a time: the head of the queue is    *)
(*             peeked; under its lock it is checked, unmapped, marked and  *)
(*             subtracted; it is popped and recycled; at the end of the    *)
(*             pass the freed bytes are subtracted from the total          *)
(*   look up   a wrapper is found; its key is compared; `accessed` is set  *)
(*             without the lock; its value is retained                     *)
(*                                                                         *)
(* A wrapper is a number.  Symmetry reduction: every step ends by          *)
(* renumbering the wrappers, as the model's canonical form does.  Locks    *)
(* are derived from the threads' program counters.  A step that the model  *)
(* refuses is not enabled here.  The entry at position p has p + 1 bytes.  *)
(*                                                                         *)
(* Not modelled: outcomes, time, read counts, buffers.                     *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  None,
  \* Numbers of caches, positions, wrappers and threads, and broker settings.
  caches, positions, pool, inserters, removers, readers, trigger_bytes, target_bytes,
  extend_ttl_of_recently_accessed,
  \* Rules: the value of the reference, or a bug of a version.
  published_first, put_is_atomic, clears_in_bulk, removal_reports, removal_rechecks_key, eviction_unmaps,
  retaining_checks_position, recycling_clears_accessed, late_trigger, periodic_task_overwrites_future,
  released_value_stays_counted, removal_passes_released_values,
  \* The values of the steps' arguments; steps range over all threads and wrappers.
  cache, position, last, expired

VARIABLES
  mapped,     \* the wrapper at each key
  queue,      \* the removal queue: wrappers, head first
  wrappers,   \* key, `accessed`, whether the value is deallocated, whether the wrapper is in the pool
  sizes,      \* of each cache (RangeCache.size)
  total,      \* of all caches (RangeEntryCacheManagerImpl.currentSize)
  eviction_in_progress,  \* evictionInProgress is not null: an eviction task is scheduled or runs
  scheduled,  \* number of scheduled eviction tasks
  inserts, removals, eviction, lookups  \* the threads: program counters and local variables

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
NoRemoval == [at |-> "idle", key |-> None, last |-> None, wrapper |-> None, removed |-> 0, present |-> 0]
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

\* The wrappers, and None, in the order of queue, map and threads.
Met(c) == c.queue \o [k \in 1..caches * positions |-> c.mapped[k - 1]]
                  \o [i \in 1..inserters |-> c.inserts[i - 1].wrapper]
                  \o [r \in 1..removers |-> c.removals[r - 1].wrapper]
                  \o <<c.eviction.wrapper>>
                  \o [l \in 1..readers |-> c.lookups[l - 1].wrapper]

Bit(truth) == IF truth THEN 1 ELSE 0

\* The fields of a wrapper as a number: unreferenced wrappers come last, in this order.
Carried(w) == 8 * (IF w.key = None THEN 0 ELSE w.key + 1) + 4 * Bit(w.accessed) + 2 * Bit(w.released) + Bit(w.pooled)

\* The first index of a wrapper in `met`, or a number above all indices if it is not in it; its new number.
Place(c, met, w) == LET at == {n \in DOMAIN met : met[n] = w}
                    IN IF at = {} THEN Len(met) + 1 + Carried(c.wrappers[w]) ELSE CHOOSE n \in at : \A m \in at : n <= m
Number(place, w) == Cardinality({v \in Wrappers : place[v] < place[w] \/ (place[v] = place[w] /\ v < w)})

\* The state with renumbered wrappers.
Numbered(c, number) ==
  LET N(w) == IF w = None THEN None ELSE number[w]
  IN IF \A w \in Wrappers : number[w] = w THEN c
     ELSE [c EXCEPT !.mapped = [k \in Keys |-> N(@[k])],
                    !.queue = [n \in DOMAIN @ |-> N(@[n])],
                    !.wrappers = [w \in Wrappers |-> @[CHOOSE v \in Wrappers : number[v] = w]],
                    !.inserts = [i \in Inserters |-> [@[i] EXCEPT !.wrapper = N(@)]],
                    !.removals = [r \in Removers |-> [@[r] EXCEPT !.wrapper = N(@)]],
                    !.eviction.wrapper = N(@),
                    !.lookups = [l \in Readers |-> [@[l] EXCEPT !.wrapper = N(@)]]]

\* The next state, with renumbered wrappers.  The quantifiers name values that TLC shall compute only once.
Become(contents) ==
  \E c \in {TLCEval(contents)} :
  \E met \in {TLCEval(Met(c))} :
  \E place \in {TLCEval([w \in Wrappers |-> Place(c, met, w)])} :
  \E number \in {TLCEval([w \in Wrappers |-> Number(place, w)])} :
  \E d \in {TLCEval(Numbered(c, number))} :
     /\ mapped' = d.mapped
     /\ queue' = d.queue
     /\ wrappers' = d.wrappers
     /\ sizes' = d.sizes
     /\ total' = d.total
     /\ eviction_in_progress' = d.eviction_in_progress
     /\ scheduled' = d.scheduled
     /\ inserts' = d.inserts
     /\ removals' = d.removals
     /\ eviction' = d.eviction
     /\ lookups' = d.lookups

-----------------------------------------------------------------------------
(* Locks, and changes of a wrapper. *)

\* An insert holds the lock of its wrapper; a removal holds it after `take`; an eviction after the result REMOVE, or,
\* if `eviction_unmaps` is "mapped", after it has found the wrapper that is mapped at the position.
InsertLocks(w) == \E i \in Inserters : inserts[i].wrapper = w
RemovalLocks(w) == \E r \in Removers : removals[r].wrapper = w /\ removals[r].at # "take"
EvictionLocks(w) == /\ eviction.wrapper = w
                    /\ \/ eviction.at \in {"mark_removed", "subtract"}
                       \/ eviction.at = "unmap" /\ eviction_unmaps = "checked"
Locked(w) == InsertLocks(w) \/ RemovalLocks(w) \/ EvictionLocks(w)

\* A recycled wrapper; and the wrapper of a removed entry, which keeps `accessed`.
Recycled(w) == IF recycling_clears_accessed THEN Free ELSE [Free EXCEPT !.accessed = w.accessed]
MarkedRemoved(w) == [w EXCEPT !.key = None, !.released = FALSE]

\* The map without this wrapper at the key; another wrapper at the key stays.
Unmapped(k, w) == IF mapped[k] = w THEN [mapped EXCEPT ![k] = None] ELSE mapped

\* Whether clearing a wrapper throws, and nothing is counted, because its value is deallocated.
StaysCounted(w) == wrappers[w].released /\ released_value_stays_counted

-----------------------------------------------------------------------------
(* Inserting. *)

AfterInsert(i, k, w) ==
  LET filled == [Contents EXCEPT !.wrappers[w] = [Free EXCEPT !.key = k, !.accessed = @ \/ wrappers[w].accessed,
                                                              !.pooled = FALSE]]
      at(place) == [at |-> place, wrapper |-> w, key |-> k]
  IN IF published_first = "map" /\ mapped[k] # None THEN [Contents EXCEPT !.wrappers[w] = Recycled(@)]
     ELSE IF published_first = "queue" THEN [filled EXCEPT !.queue = Append(@, w), !.inserts[i] = at("put")]
     ELSE IF put_is_atomic THEN [filled EXCEPT !.mapped[k] = w, !.inserts[i] = at("offer")]
     ELSE [filled EXCEPT !.inserts[i] = at("put")]

CanInsert(i, w) == inserts[i].at = "idle" /\ wrappers[w].pooled /\ ~Locked(w)
Insert == \E i \in Inserters, c \in cache, p \in position, w \in Wrappers :
            CanInsert(i, w) /\ Become(AfterInsert(i, Key(c, p), w))

\* The wrapper is offered to the queue.  With `published_first` "queue", the wrapper is mapped here, after it was
\* queued; if the position is taken, its slot stays in the queue.  Without `put_is_atomic`, it is mapped here after an
\* earlier test of the map; if the position has been taken since, the insert continues.
AfterPublish(i) ==
  LET w == inserts[i].wrapper
      k == inserts[i].key
      put == IF mapped[k] = None THEN [Contents EXCEPT !.mapped[k] = w] ELSE Contents
  IN IF inserts[i].at = "offer" THEN [Contents EXCEPT !.queue = Append(@, w), !.inserts[i].at = "count"]
     ELSE IF published_first = "map" THEN [put EXCEPT !.inserts[i].at = "offer"]
     ELSE IF mapped[k] = None THEN [put EXCEPT !.inserts[i].at = "count"]
     ELSE [Contents EXCEPT !.wrappers[w] = Recycled(@), !.inserts[i] = NoInsert]

Publish == \E i \in Inserters : inserts[i].at \in {"put", "offer"} /\ Become(AfterPublish(i))

AfterCountInCache(i) ==
  [Contents EXCEPT !.sizes[CacheOf(inserts[i].key)] = @ + BytesOf(inserts[i].key),
                   !.inserts[i].at = "total", !.inserts[i].wrapper = None]

CountInCache == \E i \in Inserters : inserts[i].at = "count" /\ Become(AfterCountInCache(i))

AfterCountInTotal(i) ==
  LET now == total + BytesOf(inserts[i].key)
  IN [Contents EXCEPT !.total = now,
                      !.inserts[i] = IF now > trigger_bytes /\ ~eviction_in_progress
                                     THEN [NoInsert EXCEPT !.at = "schedule"] ELSE NoInsert]

CountInTotal == \E i \in Inserters : inserts[i].at = "total" /\ Become(AfterCountInTotal(i))

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

AfterRemove(r, c, p) ==
  [Contents EXCEPT !.removals[r] =
     [NoRemoval EXCEPT !.at = "find", !.key = Key(c, 0), !.last = Key(c, p),
                       !.present = IF removal_reports = "present" THEN sizes[c] ELSE 0]]

Remove == \E r \in Removers, c \in cache, p \in last : removals[r].at = "idle" /\ Become(AfterRemove(r, c, p))

\* Finds the next mapped position of the range; if there is none, the removed bytes are to be subtracted.
AfterFindNext(r) ==
  LET at == removals[r]
      ahead == {k \in at.key..at.last : mapped[k] # None}
      next == CHOOSE k \in ahead : \A l \in ahead : k <= l
  IN [Contents EXCEPT !.removals[r] =
        IF ahead # {} THEN [@ EXCEPT !.at = "take", !.key = next, !.wrapper = mapped[next]]
        ELSE IF at.removed # 0 \/ at.present # 0 \/ clears_in_bulk THEN [@ EXCEPT !.at = "subtract", !.key = None]
        ELSE NoRemoval]

FindNext == \E r \in Removers : removals[r].at = "find" /\ Become(AfterFindNext(r))

AfterTake(r) ==
  LET at == removals[r]
      w == wrappers[at.wrapper]
  IN [Contents EXCEPT !.removals[r] =
        IF w.released /\ ~removal_passes_released_values THEN [@ EXCEPT !.at = "find", !.wrapper = None]
        ELSE IF w.key # at.key /\ removal_rechecks_key
        THEN [@ EXCEPT !.at = "find", !.key = at.key + 1, !.wrapper = None]
        ELSE [@ EXCEPT !.at = "unmap"]]

Take == \E r \in Removers : removals[r].at = "take" /\ ~Locked(removals[r].wrapper) /\ Become(AfterTake(r))

AfterUnmap(r) ==
  [Contents EXCEPT !.mapped = Unmapped(removals[r].key, removals[r].wrapper), !.removals[r].at = "mark_removed"]

Unmap == \E r \in Removers : removals[r].at = "unmap" /\ Become(AfterUnmap(r))

AfterMarkRemoved(r) ==
  LET at == removals[r]
      w == at.wrapper
      clears == ~StaysCounted(w) /\ (wrappers[w].key = at.key \/ ~removal_rechecks_key)
  IN [Contents EXCEPT
        !.wrappers[w] = IF clears THEN MarkedRemoved(@) ELSE @,
        !.removals[r] = [@ EXCEPT !.at = "find", !.key = at.key + 1, !.wrapper = None,
                                  !.removed = IF clears THEN @ + BytesOf(at.key) ELSE @]]

MarkRemoved == \E r \in Removers : removals[r].at = "mark_removed" /\ Become(AfterMarkRemoved(r))

AfterSubtract(r) ==
  LET at == removals[r]
      c == CacheOf(at.last)
      reports == IF removal_reports = "present" THEN at.present ELSE at.removed
  IN [Contents EXCEPT
        !.sizes[c] = @ - at.removed,
        !.mapped = [k \in Keys |-> IF clears_in_bulk /\ k >= Key(c, 0) /\ k <= at.last THEN None ELSE @[k]],
        !.removals[r] = IF reports = 0 THEN NoRemoval ELSE [NoRemoval EXCEPT !.at = "report", !.removed = reports]]

Subtract == \E r \in Removers : removals[r].at = "subtract" /\ Become(AfterSubtract(r))

AfterReport(r) == [Contents EXCEPT !.total = @ - removals[r].removed, !.removals[r] = NoRemoval]

Report == \E r \in Removers : removals[r].at = "report" /\ Become(AfterReport(r))

-----------------------------------------------------------------------------
(* Evicting: one thread. *)

Evicting(at) == [Contents EXCEPT !.eviction.at = at]

BeginEviction == /\ eviction.at = "idle" /\ scheduled > 0
                 /\ Become([Evicting("measure") EXCEPT !.scheduled = @ - 1])

BeginPeriodicEviction ==
  /\ eviction.at = "idle"
  /\ Become([Contents EXCEPT !.eviction_in_progress = @ \/ periodic_task_overwrites_future,
                             !.eviction = [NoEviction EXCEPT !.at = "peek", !.periodic = TRUE, !.goal = None]])

Measure ==
  LET goal == IF total > trigger_bytes THEN Max(total - target_bytes, 0) ELSE 0
  IN /\ eviction.at = "measure"
     /\ Become([Evicting(IF goal > 0 THEN "peek" ELSE "end") EXCEPT !.eviction.goal = goal])

\* The end of a pass: the report if the pass freed bytes; after a time pass, the check of the total.
PassOver == IF eviction.freed # 0 THEN [Evicting("report") EXCEPT !.eviction.wrapper = None]
            ELSE [Evicting(IF eviction.goal = None THEN "measure" ELSE "end") EXCEPT !.eviction.wrapper = None,
                                                                                   !.eviction.goal = 0]

Peek == /\ eviction.at = "peek"
        /\ Become(IF queue = <<>> THEN PassOver ELSE [Evicting("visit") EXCEPT !.eviction.wrapper = Head(queue)])

\* The result for the head, under its lock, in this order: MISSING, STOP, REQUEUE, REMOVE.
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

UnmapEvicted ==
  LET k == eviction.key
      first == mapped[k]
  IN /\ eviction.at = "unmap"
     /\ IF eviction_unmaps = "checked"
        THEN Become([Evicting("mark_removed") EXCEPT !.mapped = Unmapped(k, eviction.wrapper)])
        ELSE /\ ~Locked(IF first = None THEN eviction.wrapper ELSE first)
             /\ Become(IF first = None THEN [Evicting("pop") EXCEPT !.eviction.key = None]
                       ELSE [Evicting("mark_removed") EXCEPT !.mapped[k] = None, !.eviction.wrapper = first])

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

ReportEvicted ==
  /\ eviction.at = "report"
  /\ Become([Evicting(IF eviction.goal = None THEN "measure" ELSE "end") EXCEPT !.total = @ - eviction.freed,
                                                                                !.eviction.goal = 0,
                                                                                !.eviction.freed = 0])

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

\* Retains the value, and returns its key if it is not deallocated and has the requested position.
Given(l) == LET w == wrappers[lookups[l].wrapper]
            IN IF ~w.released /\ (w.key = lookups[l].key \/ ~retaining_checks_position) THEN w.key ELSE None
AfterRetain(l) == [Contents EXCEPT !.lookups[l] = NoLookup]

Retain == \E l \in Readers : lookups[l].at = "retain" /\ Become(AfterRetain(l))

AfterOverRelease(k) == [Contents EXCEPT !.wrappers[mapped[k]].released = TRUE]

OverRelease == \E c \in cache, p \in position : LET k == Key(c, p) IN mapped[k] # None /\ Become(AfterOverRelease(k))

-----------------------------------------------------------------------------
(* Bounds of a scope, which make the number of states finite. *)

\* The number of threads that are not idle.
Busy == Cardinality({i \in Inserters : inserts[i].at # "idle"})
        + Cardinality({r \in Removers : removals[r].at # "idle"})
        + Cardinality({l \in Readers : lookups[l].at # "idle"}) + Bit(eviction.at # "idle")
BusyAtMost(n) == Busy <= n

\* The absolute values of all counts of bytes.
BytesAtMost(n) == /\ total \in -n..n
                  /\ eviction.freed <= n
                  /\ \A c \in DOMAIN sizes : sizes[c] \in -n..n
                  /\ \A r \in Removers : removals[r].removed <= n

TasksAtMost(n) == scheduled <= n
SlotsAtMost(n) == Len(queue) <= n
=============================================================================
