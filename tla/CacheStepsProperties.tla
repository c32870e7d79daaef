------------------------ MODULE CacheStepsProperties ------------------------
(*****************************************************************************)
(* Properties of the steps of range caches, under the names of               *)
(* invariants/cache_steps.py: some of its invariants, and all of its         *)
(* liveness properties.                                                      *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
(*****************************************************************************)
EXTENDS CacheSteps

\* Whether every thread is idle.  Eviction tasks may still be scheduled.
AtRest == Busy = 0

\* The sum of values[n] for each n in a set.
RECURSIVE Sum(_, _)
Sum(values, set) == IF set = {} THEN 0 ELSE LET n == CHOOSE n \in set : TRUE IN values[n] + Sum(values, set \ {n})

\* Whether a wrapper is live: it has a key and is not in the pool.
IsLive(w) == wrappers[w].key # None /\ ~wrappers[w].pooled
InQueue(w) == \E n \in DOMAIN queue : queue[n] = w
InMap(w) == \E k \in Keys : mapped[k] = w

\* The number of threads that hold the lock of a wrapper to add or remove the wrapper.  The evicting thread counts only
\* after it has unmapped the wrapper.
Holders(w) == Cardinality({i \in Inserters : inserts[i].wrapper = w})
              + Cardinality({r \in Removers : removals[r].at \in {"unmap", "mark_removed"} /\ removals[r].wrapper = w})
              + Bit(eviction.at \in {"mark_removed", "subtract"} /\ eviction.wrapper = w)

-----------------------------------------------------------------------------
(* State invariants. *)

\* While every thread is idle, the size of each cache is the sum of the bytes of its live wrappers' entries.
CacheSizeEqualsSumOfEntrySizes ==
  AtRest => \A c \in DOMAIN sizes :
              LET live == {w \in Wrappers : IsLive(w) /\ CacheOf(wrappers[w].key) = c}
              IN sizes[c] = Sum([w \in live |-> BytesOf(wrappers[w].key)], live)

\* While every thread is idle, the total is the sum of all cache sizes.
TotalEqualsSumOfCacheSizes == AtRest => total = Sum(sizes, DOMAIN sizes)

\* A pooled wrapper is neither queued nor mapped, and has no key.
PooledWrapperIsUnreferenced ==
  \A w \in Wrappers : wrappers[w].pooled => wrappers[w].key = None /\ ~InQueue(w) /\ ~InMap(w)

\* A live wrapper is mapped at its position, unless a thread adds or removes it under its lock (Holders), or its value
\* is deallocated.
LiveEntryIsMapped ==
  \A w \in Wrappers : IsLive(w) /\ ~wrappers[w].released => mapped[wrappers[w].key] = w \/ Holders(w) > 0

\* The entry that an eviction removes is the head that it checked.
EvictionRemovesCheckedHead ==
  eviction.at \in {"mark_removed", "subtract"} => queue # <<>> /\ Head(queue) = eviction.wrapper

\* The number of running tasks that an insert has scheduled: 0 or 1.
RunningTasks == Bit(eviction.at # "idle" /\ ~eviction.periodic)

\* At most one eviction task that an insert scheduled is queued or running.
AtMostOneEvictionTask == scheduled + RunningTasks <= 1

\* `evictionInProgress` is set while an eviction task that an insert scheduled is queued or running.
EvictionIsInProgressWhileTaskExists == scheduled + RunningTasks > 0 => eviction_in_progress

-----------------------------------------------------------------------------
(* Properties of steps. *)

\* A removal or eviction counts an entry only if the wrapper still has the entry's key.
EntryIsCountedByOneRemover ==
  /\ \A r \in Removers : LET at == removals[r]
                         IN /\ at.at = "mark_removed"
                            /\ AfterMarkRemoved(r).removals[r].removed # at.removed
                            => wrappers[at.wrapper].key = at.key
  /\ eviction.at = "mark_removed" /\ AfterMarkEvictedRemoved.eviction.at = "subtract"
     => wrappers[eviction.wrapper].key = eviction.key

\* A lookup returns the entry at the requested position or none, also if the wrapper was reused meanwhile.
LookupReturnsRequestedPositionOnly ==
  \A l \in Readers : lookups[l].at = "retain" => RetainedKey(l) \in {None, lookups[l].key}

\* A recycled wrapper has no key; its `accessed` and `released` are false.
RecycledWrapperIsCleared ==
  eviction.at = "recycle" => LET w == AfterRecycle.wrappers[eviction.wrapper]
                             IN w.key = None /\ ~w.accessed /\ ~w.released

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* When no thread begins a new operation, every operation terminates and every scheduled task runs.
\* Fair: every step that continues an operation, and BeginEviction.  Weak fairness suffices: a thread waits only for the
\* lock of another thread, which releases the lock after finitely many steps.  New lookups are not fair: lookups without
\* end can keep a size pass from ending, because they set `accessed` of requeued entries again.
EveryOperationTerminates == AtRest /\ scheduled = 0
=============================================================================
