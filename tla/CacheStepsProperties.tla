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
              + Cardinality({r \in Removers : removals[r].at \in {"unmap", "mark_removed"} /\ removals[r].wrapper = w})
              + Bit(eviction.at \in {"mark_removed", "subtract"} /\ eviction.wrapper = w)

-----------------------------------------------------------------------------
(* State invariants. *)

CacheSizeEqualsSumOfEntrySizes ==
  AtRest => \A c \in DOMAIN sizes :
              LET live == {w \in Wrappers : IsLive(w) /\ CacheOf(wrappers[w].key) = c}
              IN sizes[c] = Sum([w \in live |-> BytesOf(wrappers[w].key)], live)

TotalEqualsSumOfCacheSizes == AtRest => total = Sum(sizes, DOMAIN sizes)

PooledWrapperIsUnreferenced ==
  \A w \in Wrappers : wrappers[w].pooled => wrappers[w].key = None /\ ~InQueue(w) /\ ~InMap(w)

LiveEntryIsMapped ==
  \A w \in Wrappers : IsLive(w) /\ ~wrappers[w].released => mapped[wrappers[w].key] = w \/ Holders(w) > 0

EvictionRemovesCheckedHead == eviction.at \in {"mark_removed", "subtract"} => queue # <<>> /\ Head(queue) = eviction.wrapper

\* At most one eviction task is scheduled or running.
RunningTasks == Bit(eviction.at # "idle" /\ ~eviction.periodic)
AtMostOneEvictionTask == scheduled + RunningTasks <= 1

EvictionIsInProgressWhileTaskExists == scheduled + RunningTasks > 0 => eviction_in_progress

-----------------------------------------------------------------------------
(* Properties of steps. *)

EntryIsCountedByOneRemover ==
  /\ \A r \in Removers : LET at == removals[r]
                         IN /\ at.at = "mark_removed"
                            /\ AfterMarkRemoved(r).removals[r].removed # at.removed
                            => wrappers[at.wrapper].key = at.key
  /\ eviction.at = "mark_removed" /\ AfterMarkEvictedRemoved.eviction.at = "subtract"
     => wrappers[eviction.wrapper].key = eviction.key

LookupReturnsRequestedPositionOnly == \A l \in Readers : lookups[l].at = "retain" => Given(l) \in {None, lookups[l].key}

RecycledWrapperIsCleared ==
  eviction.at = "recycle" => LET w == AfterRecycle.wrappers[eviction.wrapper]
                             IN w.key = None /\ ~w.accessed /\ ~w.released

-----------------------------------------------------------------------------
(* Liveness. *)

EveryOperationTerminates == AtRest /\ scheduled = 0
=============================================================================
