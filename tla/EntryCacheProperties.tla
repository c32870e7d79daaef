------------------------ MODULE EntryCacheProperties ------------------------
(*****************************************************************************)
(* Invariants and liveness of the entry cache: those of                      *)
(* invariants/entry_cache that a broker engineer would name first, under the *)
(* same names.                                                               *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.            *)
(*****************************************************************************)
EXTENDS EntryCache

Live(c) == SelectSeq(c.queue, IsEntry)
LiveSet(c) == InSet(Live(c))
Keys(c) == {<<e.store, e.position>> : e \in LiveSet(c)}
EntryAt(c, key) == CHOOSE e \in LiveSet(c) : e.store = key[1] /\ e.position = key[2]

\* The parts of a tree that await a storage read, from left to right.
RECURSIVE AwaitedIn(_)
AwaitedIn(parts) ==
  IF parts = <<>> THEN <<>>
  ELSE LET part == Head(parts)
       IN (IF part.kind = "awaited" THEN <<part>> ELSE AwaitedIn(part.parts)) \o AwaitedIn(Tail(parts))

AwaitedBy(q) == AwaitedIn(<<q.part>>)
WaitingForPermits == {waiting[i].request : i \in DOMAIN waiting}

\* Whether a size check would evict.
IsDueForSizeCheck(c) == IsOverTrigger(c) /\ c.total_bytes > ShareOf(watermark)

-----------------------------------------------------------------------------
(* States. *)

\* An eviction task is scheduled exactly while evictionInProgress is set, and never a second one.
AtMostOneEvictionTask == tasks = IF eviction_in_progress THEN 1 ELSE 0

\* Every pending request waits for permits, or for a read that storage has not completed: none is forgotten.
PendingRequestWaitsForPermitsOrStorage ==
  \A q \in InSet(requests) : q.number \in WaitingForPermits \/ AwaitedBy(q) # <<>>

\* If the first request in the limiter's queue fitted, it would have been granted.
FirstQueuedRequestDoesNotFit == waiting = <<>> \/ ~Fits(Contents, Head(waiting).permits)

-----------------------------------------------------------------------------
(* Steps. *)

\* After an insert, the cached entry has the expected read count of that insert.
LatestInsertSetsExpectedReadCount ==
  \A topic \in cache, p \in position, b \in bytes, n \in insert_expected_reads :
    LET after == AfterInsert(topic, p, b, n)
        key == <<after.topic_caches[topic], p>>
    IN key \in Keys(after) => EntryAt(after, key).expected_reads = InitialCount(n)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: CompleteStorageRead, Release.  Storage answers every read, and readers release their entries, so permits become
\* free; then every request completes or fails.
EveryRequestCompletes == requests = <<>>

\* Fair: RunEvictionTask.  A scheduled task runs.  Afterwards the total is not above the trigger, or at or below the
\* watermark, or no entry is left.
ScheduledEvictionCompletes ==
  tasks = 0 /\ (eviction_task = "queued" /\ IsDueForSizeCheck(Contents) => Live(Contents) = <<>>)
=============================================================================
