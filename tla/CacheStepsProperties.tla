------------------------ MODULE CacheStepsProperties ------------------------
(***************************************************************************)
(* What range caches promise between the steps of their operations: the    *)
(* twin of invariants/cache_steps.py, under the same names.                *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the step would keep it.                                                 *)
(***************************************************************************)
EXTENDS CacheSteps

\* No thread is in the middle of anything; tasks may wait.
AtRest == Busy = 0

RECURSIVE Sum(_, _)
Sum(of, set) == IF set = {} THEN 0 ELSE LET n == CHOOSE n \in set : TRUE IN of[n] + Sum(of, set \ {n})

IsLive(w) == wrappers[w].key # None /\ ~wrappers[w].pooled
InQueue(w) == \E n \in DOMAIN queue : queue[n] = w
InMap(w) == \E k \in Keys : mapped[k] = w

\* The threads that hold the lock of a wrapper; the evicting thread from when it has unmapped.
Holders(w) == Cardinality({i \in Inserters : inserts[i].wrapper = w})
              + Cardinality({r \in Removers : removals[r].at \in {"unmap", "clear"} /\ removals[r].wrapper = w})
              + Bit(eviction.at \in {"clear", "subtract"} /\ eviction.wrapper = w)

-----------------------------------------------------------------------------
(* Of every state. *)

\* When no thread is in the middle of anything, each cache's size is the sum of its live entries' bytes.
CacheSizeEqualsSumOfEntrySizes ==
  AtRest => \A c \in DOMAIN sizes :
              LET live == {w \in Wrappers : IsLive(w) /\ CacheOf(wrappers[w].key) = c}
              IN sizes[c] = Sum([w \in live |-> BytesOf(wrappers[w].key)], live)

\* When no thread is in the middle of anything, the total is the sum of all sizes, and so never negative.
TotalEqualsSumOfCacheSizes == AtRest => total = Sum(sizes, DOMAIN sizes)

\* A wrapper in the pool is not in the queue, not in the map, and carries no key.
PooledWrapperIsUnreferenced ==
  \A w \in Wrappers : wrappers[w].pooled => wrappers[w].key = None /\ ~InQueue(w) /\ ~InMap(w)

\* An entry that is live, and not locked, is in the map at its position.
LiveEntryIsMapped ==
  \A w \in Wrappers : IsLive(w) /\ ~wrappers[w].released => mapped[wrappers[w].key] = w \/ Holders(w) > 0

\* The entry that an eviction removes is the one that it has decided on, which still stands at the head.
EvictionRemovesCheckedHead == eviction.at \in {"clear", "subtract"} => queue # <<>> /\ Head(queue) = eviction.wrapper

\* At most one eviction task waits or runs at a time.
RunningTasks == Bit(eviction.at # "idle" /\ ~eviction.periodic)
AtMostOneEvictionTask == scheduled + RunningTasks <= 1

\* While an eviction task waits or runs the marker is set.
MarkerIsSetWhileTaskExists == scheduled + RunningTasks > 0 => marker

-----------------------------------------------------------------------------
(* Of every step. *)

\* Whoever removes an entry counts it only if it is the one who cleared it.
EntryIsCountedByOneRemover ==
  /\ \A r \in Removers : LET at == removals[r]
                         IN /\ at.at = "clear"
                            /\ AfterClear(r).removals[r].removed # at.removed
                            => wrappers[at.wrapper].key = at.key
  /\ eviction.at = "clear" /\ AfterClearEvicted.eviction.at = "subtract"
     => wrappers[eviction.wrapper].key = eviction.key

\* A lookup gives the entry at the asked position, or nothing.
LookupReturnsRequestedPositionOnly == \A l \in Readers : lookups[l].at = "retain" => Given(l) \in {None, lookups[l].key}

\* A wrapper that goes back to the pool has no key and no mark left.
RecycledWrapperIsCleared ==
  eviction.at = "recycle" => LET w == AfterRecycle.wrappers[eviction.wrapper]
                             IN w.key = None /\ ~w.accessed /\ ~w.released

-----------------------------------------------------------------------------
(* What must come in the end. *)

\* If no thread begins anything new, each comes to the end of what it does, and no task is left waiting.
EveryOperationTerminates == AtRest /\ scheduled = 0
=============================================================================
