------------------------ MODULE CacheStepsProperties ------------------------
(*****************************************************************************)
(* Invariants and liveness of the steps of range caches: those of            *)
(* invariants/cache_steps.py that a broker engineer would name first, under  *)
(* the same names.                                                           *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action.                                       *)
(*****************************************************************************)
EXTENDS CacheSteps

\* All threads are idle.  Tasks may still be scheduled.
AtRest == Busy = 0

RECURSIVE Sum(_, _)
Sum(of, set) == IF set = {} THEN 0 ELSE LET n == CHOOSE n \in set : TRUE IN of[n] + Sum(of, set \ {n})

\* Whether a wrapper has an entry.
IsLive(w) == wrappers[w].key # None /\ ~wrappers[w].pooled
InQueue(w) == \E n \in DOMAIN queue : queue[n] = w
InMap(w) == \E k \in Keys : mapped[k] = w

\* The number of threads that hold the lock of a wrapper and change it.  The evicting thread counts only after it has
\* unmapped the wrapper.
Holders(w) == Cardinality({i \in Inserters : inserts[i].wrapper = w})
              + Cardinality({r \in Removers : removals[r].at \in {"unmap", "mark_removed"} /\ removals[r].wrapper = w})
              + Bit(eviction.at \in {"mark_removed", "subtract"} /\ eviction.wrapper = w)

-----------------------------------------------------------------------------
(* State invariants. *)

\* At rest, the size of a cache is the sum of the bytes of its entries.
CacheSizeEqualsSumOfEntrySizes ==
  AtRest => \A c \in DOMAIN sizes :
              LET live == {w \in Wrappers : IsLive(w) /\ CacheOf(wrappers[w].key) = c}
              IN sizes[c] = Sum([w \in live |-> BytesOf(wrappers[w].key)], live)

\* At rest, the manager's total is the sum of the sizes of the caches.
TotalEqualsSumOfCacheSizes == AtRest => total = Sum(sizes, DOMAIN sizes)

\* A wrapper in the pool has no key, and is neither in the queue nor in the map.
PooledWrapperIsUnreferenced ==
  \A w \in Wrappers : wrappers[w].pooled => wrappers[w].key = None /\ ~InQueue(w) /\ ~InMap(w)

\* A wrapper with a live value is mapped at its key, unless a thread is adding or removing it.
LiveEntryIsMapped ==
  \A w \in Wrappers : IsLive(w) /\ ~wrappers[w].released => mapped[wrappers[w].key] = w \/ Holders(w) > 0

\* The wrapper that an eviction removes is the head of the queue, which it has tested.
EvictionRemovesCheckedHead ==
  eviction.at \in {"mark_removed", "subtract"} => queue # <<>> /\ Head(queue) = eviction.wrapper

\* The number of running tasks that an insert has scheduled: 0 or 1.
RunningTasks == Bit(eviction.at # "idle" /\ ~eviction.periodic)

\* At most one eviction task is scheduled or runs.
AtMostOneEvictionTask == scheduled + RunningTasks <= 1

\* While a task is scheduled or runs, evictionInProgress is set.
EvictionIsInProgressWhileTaskExists == scheduled + RunningTasks > 0 => eviction_in_progress

-----------------------------------------------------------------------------
(* Properties of steps. *)

\* A removal or eviction counts the bytes of a wrapper only if the wrapper still has the key of the removed entry.
EntryIsCountedByOneRemover ==
  /\ \A r \in Removers : LET at == removals[r]
                         IN /\ at.at = "mark_removed"
                            /\ AfterMarkRemoved(r).removals[r].removed # at.removed
                            => wrappers[at.wrapper].key = at.key
  /\ eviction.at = "mark_removed" /\ AfterMarkEvictedRemoved.eviction.at = "subtract"
     => wrappers[eviction.wrapper].key = eviction.key

\* A lookup returns the entry at the requested position, or nothing.
LookupReturnsRequestedPositionOnly ==
  \A l \in Readers : lookups[l].at = "retain" => RetainedKey(l) \in {None, lookups[l].key}

\* Recycling a wrapper resets its key, `accessed` and value.
RecycledWrapperIsCleared ==
  eviction.at = "recycle" => LET w == AfterRecycle.wrappers[eviction.wrapper]
                             IN w.key = None /\ ~w.accessed /\ ~w.released

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: every step that continues an operation, and BeginEviction.  No new insert, removal, lookup or periodic
\* eviction is fair, so each begun operation runs to its end.  Weak fairness suffices: a thread waits only for the
\* lock of another thread, which releases it after finitely many steps.
EveryOperationTerminates == AtRest /\ scheduled = 0
=============================================================================
