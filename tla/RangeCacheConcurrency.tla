----------------------- MODULE RangeCacheConcurrency -----------------------
(***************************************************************************)
(* What may happen between the steps of an insert, a removal and an        *)
(* eviction: a range cache at the grain of its wrappers.                   *)
(*                                                                         *)
(* Source: what is known of RangeCache, RangeCacheRemovalQueue and the     *)
(* manager after PIP-430.                                                  *)
(*                                                                         *)
(*   insert    a wrapper is taken from the pool, filled and put in the     *)
(*             map; offered to the queue; its bytes are counted in the     *)
(*             cache; then in the total; then an eviction is asked for.    *)
(*             Until the cache has counted, the thread holds the wrapper's *)
(*             lock                                                        *)
(*   remove    from position to position: the wrapper is found, then,      *)
(*             under its lock, detached if it still is that position's;    *)
(*             the bytes of all are subtracted at the end                  *)
(*   evict     one thread: it looks at the queue's head, then, under the   *)
(*             wrapper's lock, requeues it or removes its entry; the       *)
(*             wrapper goes back to the pool                               *)
(*   look up   a wrapper is found, then its value is given out             *)
(*                                                                         *)
(* A wrapper in the pool is used again while a thread that found it before *)
(* still holds it.  The bytes of an entry are its position.  Whether an    *)
(* entry is due for an extension is left open; it gets at most one.        *)
(*                                                                         *)
(* Not modelled: time, read counters, references to buffers, and the mark  *)
(* of a lookup (a late reader may set it on a wrapper that has been used   *)
(* again: its new entry may then stay longer, and no more).                *)
(*                                                                         *)
(* Seven constants choose between what is right and a bug that was there   *)
(* once; the runs of the manifest say which property each bug breaks.      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  None,
  inserters, wrappers,     \* model values, interchangeable
  readers,                 \* how many threads look up: 0 or 1
  positions,               \* integers from 1
  goal,                    \* bytes that an eviction is to free
  \* Where an insert publishes its wrapper first: "map", or "queue" (#24363, revision 9534b612).
  published_first,
  \* Whether the map is asked and written in one step; two in #21301.
  put_is_atomic,
  \* Whether a wrapper's count of requeues is cleared when it goes to the pool; another field was not in #25987.
  recycle_clears,
  \* What a removal reports to the total: "removed" bytes, or those "present" before it (#10016).
  removal_reports,
  \* What an eviction removes: the "checked" entry, or the "first" one at its position (#17908).
  eviction_takes,
  \* Whether a lookup looks if the wrapper still is the asked position's; it did not in #22789.
  lookup_checks_key,
  \* How the marker of a running eviction is set: only over none, or null is written over another thread's.
  marker_is_kept

VARIABLES
  map,        \* the wrapper at each position, or None
  queue,      \* the removal queue, oldest first
  key,        \* of each wrapper: its position; None is DETACHED, or not in use
  requeues,   \* of each wrapper
  locked,     \* wrappers whose write lock an insert holds
  pool,       \* wrappers that are not in use
  size,       \* bytes that the cache says it has
  total,      \* bytes that all caches together are said to have
  marker,     \* whether an eviction is marked as running
  scheduled,  \* evictions that wait for their thread
  inserter,   \* of each inserting thread: where it is, its wrapper, its position
  remover,    \* where it is, the position it is at, the wrapper it found there, bytes removed, bytes to report
  evictor,    \* where it is, the head that it looks at, the position that it saw there (only if that is what it
              \* goes by), whether it took another entry than that, bytes freed
  reader      \* where it is, the position asked for, the wrapper found there, the position given out

shared == <<map, queue, key, requeues, locked, pool>>
counts == <<size, total>>
eviction == <<marker, scheduled>>
threads == <<inserter, remover, evictor, reader>>
vars == <<shared, counts, eviction, threads>>

Idle(at) == at.pc = "idle"
IdleInserter == [pc |-> "idle", wrapper |-> None, position |-> None]
IdleRemover == [pc |-> "idle", position |-> None, wrapper |-> None, removed |-> 0, reported |-> 0]
IdleEvictor == [pc |-> "idle", wrapper |-> None, position |-> None, mistaken |-> FALSE, freed |-> 0]
IdleReader == [pc |-> "idle", position |-> None, wrapper |-> None, given |-> None]

Init == /\ map = [p \in positions |-> None]
        /\ queue = <<>>
        /\ key = [w \in wrappers |-> None]
        /\ requeues = [w \in wrappers |-> 0]
        /\ locked = {}
        /\ pool = wrappers
        /\ size = 0
        /\ total = 0
        /\ marker = FALSE
        /\ scheduled = 0
        /\ inserter = [i \in inserters |-> IdleInserter]
        /\ remover = IdleRemover
        /\ evictor = IdleEvictor
        /\ reader = IdleReader

-----------------------------------------------------------------------------
(* Inserting. *)

Goes(i, pc) == inserter' = [inserter EXCEPT ![i].pc = pc]

\* A wrapper comes from the pool and is filled under its write lock, which nobody can see yet; then the first step
\* with it: it is put in the map, or offered to the queue, or only a look is taken at the map.  If the position is
\* seen to be occupied, the wrapper goes back at once and nothing has happened.
Insert(i) ==
  /\ Idle(inserter[i])
  /\ \E w \in pool, p \in positions :
       /\ published_first = "queue" \/ map[p] = None
       /\ pool' = pool \ {w}
       /\ key' = [key EXCEPT ![w] = p]
       /\ locked' = locked \cup {w}
       /\ map' = IF published_first = "map" /\ put_is_atomic THEN [map EXCEPT ![p] = w] ELSE map
       /\ queue' = IF published_first = "queue" THEN Append(queue, w) ELSE queue
       /\ inserter' = [inserter EXCEPT ![i] = [pc |-> IF published_first = "queue" THEN "map"
                                                      ELSE IF put_is_atomic THEN "queue" ELSE "overwrite",
                                               wrapper |-> w, position |-> p]]
  /\ UNCHANGED <<requeues, counts, eviction, remover, evictor, reader>>

\* A bug: the position is asked for when the wrapper is in the queue; a rejected one goes back to the pool from there.
PutAfterOffer(i) ==
  LET w == inserter[i].wrapper
  IN /\ inserter[i].pc = "map"
     /\ IF map[inserter[i].position] = None
        THEN map' = [map EXCEPT ![inserter[i].position] = w] /\ Goes(i, "size") /\ UNCHANGED <<key, locked, pool>>
        ELSE /\ pool' = pool \cup {w}
             /\ key' = [key EXCEPT ![w] = None]
             /\ locked' = locked \ {w}
             /\ inserter' = [inserter EXCEPT ![i] = IdleInserter]
             /\ UNCHANGED map
     /\ UNCHANGED <<queue, requeues, counts, eviction, remover, evictor, reader>>

\* A bug: the second step of a put that is not atomic.  What another thread has put there meanwhile is lost.
Overwrite(i) ==
  /\ inserter[i].pc = "overwrite"
  /\ map' = [map EXCEPT ![inserter[i].position] = inserter[i].wrapper]
  /\ Goes(i, "queue")
  /\ UNCHANGED <<queue, key, requeues, locked, pool, counts, eviction, remover, evictor, reader>>

\* The wrapper is offered to the queue.
Offer(i) ==
  /\ inserter[i].pc = "queue"
  /\ queue' = Append(queue, inserter[i].wrapper)
  /\ Goes(i, "size")
  /\ UNCHANGED <<map, key, requeues, locked, pool, counts, eviction, remover, evictor, reader>>

\* The cache counts the bytes, and the lock is given back.
CountInCache(i) ==
  /\ inserter[i].pc = "size"
  /\ size' = size + inserter[i].position
  /\ locked' = locked \ {inserter[i].wrapper}
  /\ inserter' = [inserter EXCEPT ![i].pc = "total", ![i].wrapper = None]
  /\ UNCHANGED <<map, queue, key, requeues, pool, total, eviction, remover, evictor, reader>>

\* The total counts them, when the entry can have been evicted already.  If there is something to evict and no
\* eviction is marked as running, one is to be scheduled.
CountInTotal(i) ==
  /\ inserter[i].pc = "total"
  /\ total' = total + inserter[i].position
  /\ inserter' = [inserter EXCEPT ![i] = [IdleInserter EXCEPT !.pc = IF total' > 0 /\ ~marker THEN "schedule" ELSE @]]
  /\ UNCHANGED <<shared, size, eviction, remover, evictor, reader>>

\* If it still is not marked, the eviction is marked as running, and then scheduled.  If it is, another thread was
\* faster; where null is written over that thread's marker, this one looks again and schedules a second eviction.
Schedule(i) ==
  /\ inserter[i].pc = "schedule"
  /\ IF ~marker
     THEN marker' = TRUE /\ scheduled' = scheduled + 1 /\ Goes(i, "idle")
     ELSE marker' = marker_is_kept /\ UNCHANGED scheduled /\ Goes(i, IF marker_is_kept THEN "idle" ELSE "schedule")
  /\ UNCHANGED <<shared, counts, remover, evictor, reader>>

-----------------------------------------------------------------------------
(* Removing by position. *)

Least(set) == CHOOSE p \in set : \A q \in set : p <= q

\* A removal of all positions begins with the first.
Remove ==
  /\ Idle(remover)
  /\ remover' = [IdleRemover EXCEPT !.pc = "look", !.position = Least(positions),
                                       !.reported = IF removal_reports = "present" THEN size ELSE 0]
  /\ UNCHANGED <<shared, counts, eviction, inserter, evictor, reader>>

\* Where the removal goes on after a position.
Onwards(at) ==
  LET ahead == {p \in positions : p > at.position}
  IN IF ahead = {} THEN [at EXCEPT !.pc = "size", !.position = None, !.wrapper = None]
     ELSE [at EXCEPT !.pc = "look", !.position = Least(ahead), !.wrapper = None]

\* It finds the wrapper at the position, if there is one.
LookFor ==
  /\ remover.pc = "look"
  /\ remover' = IF map[remover.position] = None THEN Onwards(remover)
                ELSE [remover EXCEPT !.pc = "take", !.wrapper = map[remover.position]]
  /\ UNCHANGED <<shared, counts, eviction, inserter, evictor, reader>>

\* Under the wrapper's lock it looks whether the wrapper still is this position's: then the entry is unmapped, and
\* its slot stays behind, DETACHED.
Detach ==
  LET w == remover.wrapper
      p == remover.position
  IN /\ remover.pc = "take"
     /\ w \notin locked
     /\ IF key[w] = p
        THEN /\ map' = IF map[p] = w THEN [map EXCEPT ![p] = None] ELSE map
             /\ key' = [key EXCEPT ![w] = None]
             /\ remover' = Onwards([remover EXCEPT !.removed = @ + p])
        ELSE UNCHANGED <<map, key>> /\ remover' = Onwards(remover)
     /\ UNCHANGED <<queue, requeues, locked, pool, counts, eviction, inserter, evictor, reader>>

\* The bytes are subtracted once, at the end.
SubtractFromCache ==
  /\ remover.pc = "size"
  /\ size' = size - remover.removed
  /\ remover' = [IdleRemover EXCEPT !.pc = "total",
                                    !.reported = IF removal_reports = "present" THEN remover.reported
                                                 ELSE remover.removed]
  /\ UNCHANGED <<shared, total, eviction, inserter, evictor, reader>>

\* Then the total gives them back as well.
SubtractFromTotal ==
  /\ remover.pc = "total"
  /\ total' = total - remover.reported
  /\ remover' = IdleRemover
  /\ UNCHANGED <<shared, size, eviction, inserter, evictor, reader>>

-----------------------------------------------------------------------------
(* Evicting: one thread, one scheduled eviction after the other. *)

\* The thread begins with a scheduled eviction.
Evict ==
  /\ Idle(evictor)
  /\ scheduled > 0
  /\ scheduled' = scheduled - 1
  /\ evictor' = [evictor EXCEPT !.pc = "peek"]
  /\ UNCHANGED <<shared, counts, marker, inserter, remover, reader>>

\* It looks at the head of the queue, unless enough is free.
Peek ==
  /\ evictor.pc = "peek"
  /\ evictor' = IF queue = <<>> \/ evictor.freed >= goal
                THEN [IdleEvictor EXCEPT !.pc = "total", !.freed = evictor.freed]
                ELSE [evictor EXCEPT !.pc = "visit", !.wrapper = Head(queue),
                                     !.position = IF eviction_takes = "first" THEN key[Head(queue)] ELSE None]
  /\ UNCHANGED <<shared, counts, eviction, inserter, remover, reader>>

\* The head leaves the queue, and its wrapper goes back to the pool.  What was known of the keys is `keys`.
Recycled(w, keys) ==
  /\ queue' = Tail(queue)
  /\ pool' = pool \cup {w}
  /\ key' = [keys EXCEPT ![w] = None]
  /\ requeues' = IF recycle_clears THEN [requeues EXCEPT ![w] = 0] ELSE requeues

\* The entry of wrapper w is unmapped, its bytes are subtracted at once, and the head is recycled.
Evicted(w) ==
  /\ map' = IF map[key[w]] = w THEN [map EXCEPT ![key[w]] = None] ELSE map
  /\ size' = size - key[w]
  /\ evictor' = [IdleEvictor EXCEPT !.pc = "peek", !.mistaken = w # evictor.wrapper, !.freed = evictor.freed + key[w]]
  /\ Recycled(evictor.wrapper, [key EXCEPT ![w] = None])

\* The slot is DETACHED: it is dropped.
Missing ==
  /\ Recycled(evictor.wrapper, key)
  /\ evictor' = [IdleEvictor EXCEPT !.pc = "peek", !.freed = evictor.freed]
  /\ UNCHANGED <<map, size>>

\* Under the wrapper's lock: MISSING if it is DETACHED; else it is requeued or removed.
Visit ==
  LET w == evictor.wrapper
  IN /\ evictor.pc = "visit" /\ eviction_takes = "checked"
     /\ w \notin locked
     /\ IF key[w] = None THEN Missing
        ELSE \/ Evicted(w)
             \/ /\ requeues[w] < 1
                /\ requeues' = [requeues EXCEPT ![w] = @ + 1]
                /\ queue' = Append(Tail(queue), w)
                /\ evictor' = [IdleEvictor EXCEPT !.pc = "peek", !.freed = evictor.freed]
                /\ UNCHANGED <<map, key, pool, size>>
     /\ UNCHANGED <<locked, total, eviction, inserter, remover, reader>>

\* A bug: what was seen at the head is removed by its position, whatever stands there now.
VisitByPosition ==
  LET p == evictor.position
      w == IF p = None THEN None ELSE map[p]
  IN /\ evictor.pc = "visit" /\ eviction_takes = "first"
     /\ evictor.wrapper \notin locked /\ w \notin locked
     /\ IF w = None THEN Missing ELSE Evicted(w)
     /\ UNCHANGED <<locked, total, eviction, inserter, remover, reader>>

\* What was freed is subtracted from the total, and the eviction is no longer marked as running.
Finish ==
  /\ evictor.pc = "total"
  /\ total' = total - evictor.freed
  /\ marker' = FALSE
  /\ evictor' = IdleEvictor
  /\ UNCHANGED <<shared, size, scheduled, inserter, remover, reader>>

-----------------------------------------------------------------------------
(* Looking up. *)

\* A lookup finds the wrapper at the position.
LookUp ==
  /\ readers > 0 /\ Idle(reader)
  /\ \E p \in {q \in positions : map[q] # None} :
       reader' = [IdleReader EXCEPT !.pc = "read", !.position = p, !.wrapper = map[p]]
  /\ UNCHANGED <<shared, counts, eviction, inserter, remover, evictor>>

\* When nobody holds the lock, it gives out the wrapper's value if its key is the position.
Read ==
  /\ reader.pc = "read"
  /\ reader.wrapper \notin locked
  /\ LET found == key[reader.wrapper]
     IN reader' = [reader EXCEPT !.pc = "given", !.wrapper = None,
                                 !.given = IF lookup_checks_key /\ found # reader.position THEN None ELSE found]
  /\ UNCHANGED <<shared, counts, eviction, inserter, remover, evictor>>

\* The lookup is over.
Forget ==
  /\ reader.pc = "given"
  /\ reader' = IdleReader
  /\ UNCHANGED <<shared, counts, eviction, inserter, remover, evictor>>

-----------------------------------------------------------------------------
Next == \/ \E i \in inserters : \/ Insert(i) \/ PutAfterOffer(i) \/ Overwrite(i) \/ Offer(i)
                                \/ CountInCache(i) \/ CountInTotal(i) \/ Schedule(i)
        \/ Remove \/ LookFor \/ Detach \/ SubtractFromCache \/ SubtractFromTotal
        \/ Evict \/ Peek \/ Visit \/ VisitByPosition \/ Finish
        \/ LookUp \/ Read \/ Forget

Symmetry == Permutations(inserters) \cup Permutations(wrappers)

-----------------------------------------------------------------------------
(* What must hold.  Sizes are right only when nobody is in the middle of something. *)

Quiet == (\A i \in inserters : inserter[i].pc \in {"idle", "schedule"}) /\ Idle(remover) /\ Idle(evictor)

Sum(set) == LET Add[s \in SUBSET set] == IF s = {} THEN 0 ELSE LET p == Least(s) IN p + Add[s \ {p}] IN Add[set]
SlotsOf(w) == Cardinality({n \in DOMAIN queue : queue[n] = w})

\* The size of a cache is the sum of its entries' bytes [1].
SizesAreSums == Quiet => size = Sum({p \in positions : map[p] # None})

\* The total is the sum of the caches' sizes, and so never negative [2].
TotalIsTheSum == Quiet => total = size

\* A cached entry stands in exactly one slot, and a slot that is not DETACHED is of a cached entry [3].
OneSlotPerEntry ==
  /\ \A w \in wrappers : SlotsOf(w) <= 1
  /\ Quiet => /\ \A p \in positions : map[p] # None => SlotsOf(map[p]) = 1
              /\ \A n \in DOMAIN queue : key[queue[n]] # None => map[key[queue[n]]] = queue[n]

\* A wrapper that is in the pool is nowhere else.
AFreeWrapperIsNowhere == \A w \in pool : SlotsOf(w) = 0 /\ \A p \in positions : map[p] # w

\* A wrapper is in the pool or in a slot: none is lost, and there are no more slots than wrappers [P4].
NoWrapperIsLost == Quiet => \A w \in wrappers : w \in pool \/ SlotsOf(w) = 1

\* A wrapper at a position is that position's [4].
AWrapperKnowsItsPosition == \A p \in positions : map[p] # None => key[map[p]] = p

\* A lookup gives the asked position or nothing [4].
ALookupGivesWhatWasAsked == reader.given \in {None, reader.position}

\* An entry that was just added has not been requeued.
AnEntryStartsAfresh == \A i \in inserters : inserter[i].wrapper # None => requeues[inserter[i].wrapper] = 0

\* A pass removes the entry that it looked at, and no other.
EvictionTakesWhatItChecked == ~evictor.mistaken

\* At most one eviction is scheduled or running at a time [24].
OneEvictionAtATime == scheduled + (IF Idle(evictor) THEN 0 ELSE 1) <= 1
=============================================================================
