------------------------ MODULE CacheStepsProperties ------------------------
(***************************************************************************)
(* Properties of range caches between the steps of their operations: the   *)
(* twin of invariants/cache_steps.py, under the same names.                *)
(*                                                                         *)
(* A property of a step is an invariant here: in every reached state, the  *)
(* state after the step satisfies it.                                      *)
(***************************************************************************)
EXTENDS CacheSteps

\* All threads are idle; tasks may be scheduled.
AtRest == Busy = 0

RECURSIVE Sum(_, _)
Sum(of, set) == IF set = {} THEN 0 ELSE LET n == CHOOSE n \in set : TRUE IN of[n] + Sum(of, set \ {n})

IsLive(w) == wrappers[w].key # None /\ ~wrappers[w].pooled
InQueue(w) == \E n \in DOMAIN queue : queue[n] = w
InMap(w) == \E k \in Keys : mapped[k] = w

\* The threads that hold the lock of a wrapper; the evicting thread only after it has unmapped the wrapper.
Holders(w) == Cardinality({i \in Inserters : inserts[i].wrapper = w})
              + Cardinality({r \in Removers : removals[r].at \in {"unmap", "clear"} /\ removals[r].wrapper = w})
              + Bit(eviction.at \in {"clear", "subtract"} /\ eviction.wrapper = w)

-----------------------------------------------------------------------------
(* State invariants. *)

\* When all threads are idle, each cache's size is the sum of its live entries' bytes.
CacheSizeEqualsSumOfEntrySizes ==
  AtRest => \A c \in DOMAIN sizes :
              LET live == {w \in Wrappers : IsLive(w) /\ CacheOf(wrappers[w].key) = c}
              IN sizes[c] = Sum([w \in live |-> BytesOf(wrappers[w].key)], live)

\* When all threads are idle, the total is the sum of the sizes, so it is not negative.
TotalEqualsSumOfCacheSizes == AtRest => total = Sum(sizes, DOMAIN sizes)

\* A wrapper in the pool is not in the queue, not in the map, and has no key.
PooledWrapperIsUnreferenced ==
  \A w \in Wrappers : wrappers[w].pooled => wrappers[w].key = None /\ ~InQueue(w) /\ ~InMap(w)

\* A live entry whose wrapper is not locked is mapped at its position.
LiveEntryIsMapped ==
  \A w \in Wrappers : IsLive(w) /\ ~wrappers[w].released => mapped[wrappers[w].key] = w \/ Holders(w) > 0

\* The entry that an eviction removes is the one that it has checked, and is still the head of the queue.
EvictionRemovesCheckedHead == eviction.at \in {"clear", "subtract"} => queue # <<>> /\ Head(queue) = eviction.wrapper

\* At most one eviction task is scheduled or running.
RunningTasks == Bit(eviction.at # "idle" /\ ~eviction.periodic)
AtMostOneEvictionTask == scheduled + RunningTasks <= 1

\* While an eviction task is scheduled or running, the marker is set.
MarkerIsSetWhileTaskExists == scheduled + RunningTasks > 0 => marker

-----------------------------------------------------------------------------
(* Properties of steps. *)

\* A removal or an eviction counts an entry only if it has cleared the wrapper itself.
EntryIsCountedByOneRemover ==
  /\ \A r \in Removers : LET at == removals[r]
                         IN /\ at.at = "clear"
                            /\ AfterClear(r).removals[r].removed # at.removed
                            => wrappers[at.wrapper].key = at.key
  /\ eviction.at = "clear" /\ AfterClearEvicted.eviction.at = "subtract"
     => wrappers[eviction.wrapper].key = eviction.key

\* A lookup returns the entry at the requested position, or a miss.
LookupReturnsRequestedPositionOnly == \A l \in Readers : lookups[l].at = "retain" => Given(l) \in {None, lookups[l].key}

\* A recycled wrapper has no key, and `accessed` and `released` are not set.
RecycledWrapperIsCleared ==
  eviction.at = "recycle" => LET w == AfterRecycle.wrappers[eviction.wrapper]
                             IN w.key = None /\ ~w.accessed /\ ~w.released

-----------------------------------------------------------------------------
(* Liveness. *)

\* If no thread begins another operation, every operation terminates, and no task stays scheduled.
EveryOperationTerminates == AtRest /\ scheduled = 0
=============================================================================
