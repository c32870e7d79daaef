----------------------------- MODULE CacheSteps -----------------------------
(***************************************************************************)
(* Range caches at the grain of the source: what may happen between the    *)
(* steps of an insert, a removal, an eviction and a lookup.                *)
(*                                                                         *)
(* Source: PIP-430.  This is the twin of model/cache_steps/machine.py: the same    *)
(* steps under the same names, the same settings, and as many states.      *)
(*                                                                         *)
(*   insert    a wrapper from the pool is filled under its lock and put in *)
(*             the map; it is offered to the queue; the cache counts its   *)
(*             bytes, and the lock goes back; the total counts them; if    *)
(*             that is too much and no marker is set, it is set and a task *)
(*             is scheduled                                                *)
(*   remove    position by position: a wrapper is found; under its lock,   *)
(*             if it still carries the position, it is unmapped, then      *)
(*             cleared; the bytes of all are subtracted at the end         *)
(*   evict     one thread, one task at a time: the head of the queue is    *)
(*             looked at; under its lock it is decided on, unmapped,       *)
(*             cleared and subtracted; it leaves the queue, and goes back  *)
(*             to the pool; the total gives back what the pass has freed   *)
(*   look up   a wrapper is found; its key is compared; it is marked, with *)
(*             no lock; its value is retained                              *)
(*                                                                         *)
(* A wrapper has a number.  States that differ only in these numbers are   *)
(* one: every step ends by numbering the wrappers anew, as the model's     *)
(* canonical form does.  Who holds a lock is not written down: it is the   *)
(* thread at a step that holds it.  A step that the model refuses is not   *)
(* enabled here.  The bytes of an entry are its position, counted from 1.  *)
(*                                                                         *)
(* Not modelled: what a caller is told, time, read counters, buffers.      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  None,
  \* How much there is of everything, and two settings of the broker.
  caches, positions, pool, inserters, removers, readers, trigger_bytes, target_bytes,
  extend_ttl_of_recently_accessed,
  \* Rules: each right, or a bug that was or is there.
  published_first, put_is_atomic, clears_in_bulk, removal_reports, removal_rechecks_key, eviction_takes,
  retaining_checks_position, recycling_clears_the_mark, late_trigger, periodic_task_uses_the_marker,
  released_value_stays_counted, removal_passes_released_values,
  \* The values of the steps' arguments; threads and wrappers are all that there are.
  cache, position, last, expired

VARIABLES
  mapped,     \* the wrapper at each key
  queue,      \* the removal queue: wrappers, oldest first
  wrappers,   \* of each: the key of its entry, whether it was accessed, released, whether it is in the pool
  sizes,      \* bytes that each cache says it has
  total,      \* bytes that all caches together are said to have
  marker,     \* whether an eviction task is said to wait or to run
  scheduled,  \* tasks that wait for the evicting thread
  inserts, removals, eviction, lookups  \* the threads: where each is, and what it holds

vars == <<mapped, queue, wrappers, sizes, total, marker, scheduled, inserts, removals, eviction, lookups>>

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
        /\ marker = FALSE
        /\ scheduled = 0
        /\ inserts = [i \in Inserters |-> NoInsert]
        /\ removals = [r \in Removers |-> NoRemoval]
        /\ eviction = NoEviction
        /\ lookups = [l \in Readers |-> NoLookup]

-----------------------------------------------------------------------------
(* A state as one value, and the numbers of its wrappers. *)

Contents == [mapped |-> mapped, queue |-> queue, wrappers |-> wrappers, sizes |-> sizes, total |-> total,
             marker |-> marker, scheduled |-> scheduled, inserts |-> inserts, removals |-> removals,
             eviction |-> eviction, lookups |-> lookups]

\* Wrappers, and None, in the order in which they are met: in the queue, in the map, in the hands of threads.
Met(c) == c.queue \o [k \in 1..caches * positions |-> c.mapped[k - 1]]
                  \o [i \in 1..inserters |-> c.inserts[i - 1].wrapper]
                  \o [r \in 1..removers |-> c.removals[r - 1].wrapper]
                  \o <<c.eviction.wrapper>>
                  \o [l \in 1..readers |-> c.lookups[l - 1].wrapper]

Bit(truth) == IF truth THEN 1 ELSE 0

\* What a wrapper carries, as a number: in this order come, last, those that are met nowhere.
Carried(w) == 8 * (IF w.key = None THEN 0 ELSE w.key + 1) + 4 * Bit(w.accessed) + 2 * Bit(w.released) + Bit(w.pooled)

\* Where each wrapper is met first, or behind all that are met; and from that its new number.
Place(c, met, w) == LET at == {n \in DOMAIN met : met[n] = w}
                    IN IF at = {} THEN Len(met) + 1 + Carried(c.wrappers[w]) ELSE CHOOSE n \in at : \A m \in at : n <= m
Number(place, w) == Cardinality({v \in Wrappers : place[v] < place[w] \/ (place[v] = place[w] /\ v < w)})

\* The same state with these numbers of its wrappers.
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

\* A step ends in this state, with new numbers.  The quantifiers give names to values that TLC is to compute only once.
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
     /\ marker' = d.marker
     /\ scheduled' = d.scheduled
     /\ inserts' = d.inserts
     /\ removals' = d.removals
     /\ eviction' = d.eviction
     /\ lookups' = d.lookups

-----------------------------------------------------------------------------
(* Small rules. *)

\* An insert holds the lock of its wrapper; a removal from when it has taken it; an eviction from when it has decided
\* to remove, or, where it takes the first that it finds, from when it has found it.
InsertLocks(w) == \E i \in Inserters : inserts[i].wrapper = w
RemovalLocks(w) == \E r \in Removers : removals[r].wrapper = w /\ removals[r].at # "take"
EvictionLocks(w) == /\ eviction.wrapper = w
                    /\ eviction.at \in {"clear", "subtract"} \/ (eviction.at = "unmap" /\ eviction_takes = "checked")
Locked(w) == InsertLocks(w) \/ RemovalLocks(w) \/ EvictionLocks(w)

\* A wrapper as it goes to the pool, and one whose entry was removed: that one keeps its mark.
Recycled(w) == IF recycling_clears_the_mark THEN Free ELSE [Free EXCEPT !.accessed = w.accessed]
Cleared(w) == [w EXCEPT !.key = None, !.released = FALSE]

\* The map without this wrapper at the key; another that stands there stays.
Unmapped(k, w) == IF mapped[k] = w THEN [mapped EXCEPT ![k] = None] ELSE mapped

\* Clearing a wrapper fails, and nothing is counted, for its value had been released elsewhere.
StaysCounted(w) == wrappers[w].released /\ released_value_stays_counted

-----------------------------------------------------------------------------
(* Inserting. *)

\* A wrapper from the pool is filled under its lock, and put in the map unless the position is taken.  If it is, the
\* wrapper goes back at once.  The mark of a late lookup stays.
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

\* The wrapper is offered to the queue.  In the variants that are not there yet it is put in the map: behind its slot
\* in the queue, which stays when the position is taken; or after a look at the map, and then, if the position is taken
\* by now, it goes on all the same.
AfterPublish(i) ==
  LET w == inserts[i].wrapper
      k == inserts[i].key
      put == IF mapped[k] = None THEN [Contents EXCEPT !.mapped[k] = w] ELSE Contents
  IN IF inserts[i].at = "offer" THEN [Contents EXCEPT !.queue = Append(@, w), !.inserts[i].at = "count"]
     ELSE IF published_first = "map" THEN [put EXCEPT !.inserts[i].at = "offer"]
     ELSE IF mapped[k] = None THEN [put EXCEPT !.inserts[i].at = "count"]
     ELSE [Contents EXCEPT !.wrappers[w] = Recycled(@), !.inserts[i] = NoInsert]

Publish == \E i \in Inserters : inserts[i].at \in {"put", "offer"} /\ Become(AfterPublish(i))

\* The cache counts the bytes, and the lock goes back.
AfterCountInCache(i) ==
  [Contents EXCEPT !.sizes[CacheOf(inserts[i].key)] = @ + BytesOf(inserts[i].key),
                   !.inserts[i].at = "total", !.inserts[i].wrapper = None]

CountInCache == \E i \in Inserters : inserts[i].at = "count" /\ Become(AfterCountInCache(i))

\* The total counts them, when the entry may have been evicted already.  If it is over the trigger and no marker is set,
\* an eviction is to be scheduled.
AfterCountInTotal(i) ==
  LET now == total + BytesOf(inserts[i].key)
  IN [Contents EXCEPT !.total = now,
                      !.inserts[i] = IF now > trigger_bytes /\ ~marker THEN [NoInsert EXCEPT !.at = "schedule"]
                                     ELSE NoInsert]

CountInTotal == \E i \in Inserters : inserts[i].at = "total" /\ Become(AfterCountInTotal(i))

\* If there still is no marker it is set, and a task is scheduled; if there is, another thread was faster.  The variant
\* writes null over that thread's marker, and looks again.
AfterSchedule(i) ==
  IF inserts[i].at = "look"
  THEN [Contents EXCEPT !.inserts[i] = IF marker THEN NoInsert ELSE [@ EXCEPT !.at = "schedule"]]
  ELSE IF ~marker THEN [Contents EXCEPT !.marker = TRUE, !.scheduled = @ + 1, !.inserts[i] = NoInsert]
  ELSE IF late_trigger = "leaves_the_marker" THEN [Contents EXCEPT !.inserts[i] = NoInsert]
  ELSE [Contents EXCEPT !.marker = FALSE, !.inserts[i].at = "look"]

Schedule == \E i \in Inserters : inserts[i].at \in {"schedule", "look"} /\ Become(AfterSchedule(i))

-----------------------------------------------------------------------------
(* Removing by position. *)

\* A thread begins to remove what a cache holds up to a position, that one included.
AfterRemove(r, c, p) ==
  [Contents EXCEPT !.removals[r] =
     [NoRemoval EXCEPT !.at = "find", !.key = Key(c, 0), !.last = Key(c, p),
                       !.present = IF removal_reports = "present" THEN sizes[c] ELSE 0]]

Remove == \E r \in Removers, c \in cache, p \in last : removals[r].at = "idle" /\ Become(AfterRemove(r, c, p))

\* It finds the next position of its range that has a wrapper; if there is none, what it removed is to be subtracted.
AfterFindNext(r) ==
  LET at == removals[r]
      ahead == {k \in at.key..at.last : mapped[k] # None}
      next == CHOOSE k \in ahead : \A l \in ahead : k <= l
  IN [Contents EXCEPT !.removals[r] =
        IF ahead # {} THEN [@ EXCEPT !.at = "take", !.key = next, !.wrapper = mapped[next]]
        ELSE IF at.removed # 0 \/ at.present # 0 \/ clears_in_bulk THEN [@ EXCEPT !.at = "subtract", !.key = None]
        ELSE NoRemoval]

FindNext == \E r \in Removers : removals[r].at = "find" /\ Become(AfterFindNext(r))

\* It takes the wrapper's lock, and gives it back at once if the wrapper is another position's by now.
AfterTake(r) ==
  LET at == removals[r]
      w == wrappers[at.wrapper]
  IN [Contents EXCEPT !.removals[r] =
        IF w.released /\ ~removal_passes_released_values THEN [@ EXCEPT !.at = "find", !.wrapper = None]
        ELSE IF w.key # at.key /\ removal_rechecks_key
        THEN [@ EXCEPT !.at = "find", !.key = at.key + 1, !.wrapper = None]
        ELSE [@ EXCEPT !.at = "unmap"]]

Take == \E r \in Removers : removals[r].at = "take" /\ ~Locked(removals[r].wrapper) /\ Become(AfterTake(r))

\* Under the lock, the wrapper leaves the map; its slot stays in the queue.
AfterUnmap(r) ==
  [Contents EXCEPT !.mapped = Unmapped(removals[r].key, removals[r].wrapper), !.removals[r].at = "clear"]

Unmap == \E r \in Removers : removals[r].at = "unmap" /\ Become(AfterUnmap(r))

\* Under the lock, it is cleared if it still carries the key: DETACHED; its bytes are counted, and the lock goes back.
AfterClear(r) ==
  LET at == removals[r]
      w == at.wrapper
      clears == ~StaysCounted(w) /\ (wrappers[w].key = at.key \/ ~removal_rechecks_key)
  IN [Contents EXCEPT
        !.wrappers[w] = IF clears THEN Cleared(@) ELSE @,
        !.removals[r] = [@ EXCEPT !.at = "find", !.key = at.key + 1, !.wrapper = None,
                                  !.removed = IF clears THEN @ + BytesOf(at.key) ELSE @]]

Clear == \E r \in Removers : removals[r].at = "clear" /\ Become(AfterClear(r))

\* What was removed is subtracted from the cache, once.  A variant empties the map of the range now.
AfterSubtract(r) ==
  LET at == removals[r]
      c == CacheOf(at.last)
      reports == IF removal_reports = "present" THEN at.present ELSE at.removed
  IN [Contents EXCEPT
        !.sizes[c] = @ - at.removed,
        !.mapped = [k \in Keys |-> IF clears_in_bulk /\ k >= Key(c, 0) /\ k <= at.last THEN None ELSE @[k]],
        !.removals[r] = IF reports = 0 THEN NoRemoval ELSE [NoRemoval EXCEPT !.at = "report", !.removed = reports]]

Subtract == \E r \in Removers : removals[r].at = "subtract" /\ Become(AfterSubtract(r))

\* The total gives back what was removed.
AfterReport(r) == [Contents EXCEPT !.total = @ - removals[r].removed, !.removals[r] = NoRemoval]

Report == \E r \in Removers : removals[r].at = "report" /\ Become(AfterReport(r))

-----------------------------------------------------------------------------
(* Evicting: one thread. *)

Evicting(at) == [Contents EXCEPT !.eviction.at = at]

\* The thread takes up a task that was scheduled.
BeginEviction == /\ eviction.at = "idle" /\ scheduled > 0
                 /\ Become([Evicting("measure") EXCEPT !.scheduled = @ - 1])

\* Or its periodic one: a time pass, then the same check of the total.
BeginPeriodicEviction ==
  /\ eviction.at = "idle"
  /\ Become([Contents EXCEPT !.marker = @ \/ periodic_task_uses_the_marker,
                             !.eviction = [NoEviction EXCEPT !.at = "peek", !.periodic = TRUE, !.goal = None]])

\* The task reads the total again, and begins a size pass if it is over the trigger.
Measure ==
  LET goal == IF total > trigger_bytes THEN Max(total - target_bytes, 0) ELSE 0
  IN /\ eviction.at = "measure"
     /\ Become([Evicting(IF goal > 0 THEN "peek" ELSE "end") EXCEPT !.eviction.goal = goal])

\* What follows a pass: the report, if there is something to report; then, for a time pass, the size check.
PassOver == IF eviction.freed # 0 THEN [Evicting("report") EXCEPT !.eviction.wrapper = None]
            ELSE [Evicting(IF eviction.goal = None THEN "measure" ELSE "end") EXCEPT !.eviction.wrapper = None,
                                                                                   !.eviction.goal = 0]

\* The pass looks at the head of the queue; if nothing is left, it is over.
Peek == /\ eviction.at = "peek"
        /\ Become(IF queue = <<>> THEN PassOver ELSE [Evicting("visit") EXCEPT !.eviction.wrapper = Head(queue)])

\* What becomes of the head, under its lock and in this order: MISSING, STOP, REQUEUE, REMOVE.
AfterVisit(stops) ==
  LET w == eviction.wrapper
  IN IF wrappers[w].key = None THEN Evicting("pop")
     ELSE IF stops THEN PassOver
     ELSE IF wrappers[w].accessed /\ extend_ttl_of_recently_accessed
     THEN [Evicting("requeue") EXCEPT !.wrappers[w].accessed = FALSE]
     ELSE [Evicting("unmap") EXCEPT !.eviction.key = wrappers[w].key]

CanVisit == eviction.at = "visit" /\ ~Locked(eviction.wrapper)

\* A size pass stops when enough is free, a time pass at what has not expired.
VisitForSize == CanVisit /\ eviction.goal # None /\ Become(AfterVisit(eviction.freed >= eviction.goal))
VisitForTime == CanVisit /\ eviction.goal = None /\ \E e \in expired : Become(AfterVisit(~e))

\* The head goes to the tail.
Requeue == /\ eviction.at = "requeue"
           /\ Become([Evicting("peek") EXCEPT !.queue = Append(Tail(@), eviction.wrapper), !.eviction.wrapper = None])

\* Under the lock, the wrapper leaves the map.  The variant takes the first that it finds at the position.
UnmapEvicted ==
  LET k == eviction.key
      first == mapped[k]
  IN /\ eviction.at = "unmap"
     /\ IF eviction_takes = "checked"
        THEN Become([Evicting("clear") EXCEPT !.mapped = Unmapped(k, eviction.wrapper)])
        ELSE /\ ~Locked(IF first = None THEN eviction.wrapper ELSE first)
             /\ Become(IF first = None THEN [Evicting("pop") EXCEPT !.eviction.key = None]
                       ELSE [Evicting("clear") EXCEPT !.mapped[k] = None, !.eviction.wrapper = first])

\* Under the lock, it is cleared.
AfterClearEvicted ==
  LET w == eviction.wrapper
  IN IF StaysCounted(w) THEN [Evicting("pop") EXCEPT !.eviction.key = None]
     ELSE [Evicting("subtract") EXCEPT !.wrappers[w] = Cleared(@)]

ClearEvicted == eviction.at = "clear" /\ Become(AfterClearEvicted)

\* The bytes are subtracted from the cache at once, and the lock goes back.
SubtractEvicted ==
  /\ eviction.at = "subtract"
  /\ Become([Evicting("pop") EXCEPT !.sizes[CacheOf(eviction.key)] = @ - BytesOf(eviction.key),
                                    !.eviction.freed = @ + BytesOf(eviction.key), !.eviction.key = None])

\* The head leaves the queue.
Pop == eviction.at = "pop" /\ Become([Evicting("recycle") EXCEPT !.queue = Tail(@), !.eviction.wrapper = Head(queue)])

\* The wrapper is cleared altogether, and goes back to the pool.
AfterRecycle == [Evicting("peek") EXCEPT !.wrappers[eviction.wrapper] = Recycled(@), !.eviction.wrapper = None]

Recycle == eviction.at = "recycle" /\ Become(AfterRecycle)

\* The total gives back what the pass has freed.
ReportEvicted ==
  /\ eviction.at = "report"
  /\ Become([Evicting(IF eviction.goal = None THEN "measure" ELSE "end") EXCEPT !.total = @ - eviction.freed,
                                                                                !.eviction.goal = 0,
                                                                                !.eviction.freed = 0])

\* The task is over, and the marker goes; the periodic task has none, but in the variant it takes what is there.
EndEviction ==
  /\ eviction.at = "end"
  /\ Become([Contents EXCEPT !.marker = @ /\ eviction.periodic /\ ~periodic_task_uses_the_marker,
                             !.eviction = NoEviction])

-----------------------------------------------------------------------------
(* Looking up. *)

\* A lookup finds the wrapper at a position.
AfterFind(l, k) == [Contents EXCEPT !.lookups[l] = [at |-> "compare", key |-> k, wrapper |-> mapped[k]]]

Find == \E l \in Readers, c \in cache, p \in position :
          lookups[l].at = "idle" /\ mapped[Key(c, p)] # None /\ Become(AfterFind(l, Key(c, p)))

\* When nobody holds the lock, the wrapper's key is compared with the one that was asked for.
AfterCompare(l) ==
  [Contents EXCEPT !.lookups[l] = IF wrappers[lookups[l].wrapper].key = lookups[l].key THEN [@ EXCEPT !.at = "mark"]
                                  ELSE NoLookup]

Compare == \E l \in Readers : lookups[l].at = "compare" /\ ~Locked(lookups[l].wrapper) /\ Become(AfterCompare(l))

\* The wrapper is marked as accessed, without its lock: it may be in the pool by now, or another entry's.
AfterMark(l) == [Contents EXCEPT !.wrappers[lookups[l].wrapper].accessed = TRUE, !.lookups[l].at = "retain"]

Mark == \E l \in Readers : lookups[l].at = "mark" /\ Become(AfterMark(l))

\* The value is retained, and given out if it is live and still the asked position's.
Given(l) == LET w == wrappers[lookups[l].wrapper]
            IN IF ~w.released /\ (w.key = lookups[l].key \/ ~retaining_checks_position) THEN w.key ELSE None
AfterRetain(l) == [Contents EXCEPT !.lookups[l] = NoLookup]

Retain == \E l \in Readers : lookups[l].at = "retain" /\ Become(AfterRetain(l))

\* Someone gives back a reference that was the cache's: the value is gone, the entry is still listed.
AfterOverRelease(k) == [Contents EXCEPT !.wrappers[mapped[k]].released = TRUE]

OverRelease == \E c \in cache, p \in position : LET k == Key(c, p) IN mapped[k] # None /\ Become(AfterOverRelease(k))

-----------------------------------------------------------------------------
(* Bounds: what a scope limits, so that there are finitely many states. *)

\* Threads that are in the middle of something.
Busy == Cardinality({i \in Inserters : inserts[i].at # "idle"})
        + Cardinality({r \in Removers : removals[r].at # "idle"})
        + Cardinality({l \in Readers : lookups[l].at # "idle"}) + Bit(eviction.at # "idle")
BusyAtMost(n) == Busy <= n

\* All counts of bytes, below zero as above.
BytesAtMost(n) == /\ total \in -n..n
                  /\ eviction.freed <= n
                  /\ \A c \in DOMAIN sizes : sizes[c] \in -n..n
                  /\ \A r \in Removers : removals[r].removed <= n

TasksAtMost(n) == scheduled <= n
SlotsAtMost(n) == Len(queue) <= n
=============================================================================
