------------------------ MODULE EntryCacheProperties ------------------------
(*****************************************************************************)
(* Properties of the entry cache, under the names of invariants/entry_cache: *)
(* some of its invariants, and all of its liveness properties.               *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
(*****************************************************************************)
EXTENDS EntryCache

\* The cached entries, in the order of the removal queue.
Live(c) == SelectSeq(c.queue, IsEntry)
LiveSet(c) == InSet(Live(c))
Keys(c) == {<<e.range_cache, e.position>> : e \in LiveSet(c)}
EntryAt(c, key) == CHOOSE e \in LiveSet(c) : e.range_cache = key[1] /\ e.position = key[2]

\* The parts of a tree that await a storage read, from left to right.
RECURSIVE AwaitedIn(_)
AwaitedIn(parts) ==
  IF parts = <<>> THEN <<>>
  ELSE LET part == Head(parts)
       IN (IF part.kind = "awaited" THEN <<part>> ELSE AwaitedIn(part.parts)) \o AwaitedIn(Tail(parts))

AwaitedBy(q) == AwaitedIn(<<q.part>>)
WaitingForPermits == {waiting[i].request : i \in DOMAIN waiting}

\* Whether a size check would start a size pass.
IsDueForSizePass(c) == IsOverTrigger(c) /\ c.total_bytes > ShareOf(watermark)

-----------------------------------------------------------------------------
(* States. *)

\* At most one eviction task is scheduled, and `evictionInProgress` is set exactly while one is.
AtMostOneEvictionTask == tasks = IF eviction_in_progress THEN 1 ELSE 0

\* A pending request waits for permits or for an outstanding storage read.
PendingRequestWaitsForPermitsOrStorage ==
  \A q \in InSet(requests) : q.number \in WaitingForPermits \/ AwaitedBy(q) # <<>>

\* The first queued request does not fit: fewer permits are free than the request needs.
FirstQueuedRequestDoesNotFit == waiting = <<>> \/ ~Fits(Contents, Head(waiting).permits)

-----------------------------------------------------------------------------
(* Steps. *)

\* After an insert, the entry at the given position, if cached, has the given read count; none if this is zero or less.
LatestInsertSetsExpectedReadCount ==
  \A topic \in cache, p \in position, b \in bytes, n \in insert_expected_reads :
    LET after == AfterInsert(topic, p, b, n)
        key == <<after.topic_caches[topic], p>>
    IN key \in Keys(after) => EntryAt(after, key).expected_reads = InitialCount(n)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* If storage keeps answering and readers release their entries, every request completes or fails.
\* Fair: CompleteStorageRead, Release.  Released entries free the permits for which other requests wait.
EveryRequestCompletes == requests = <<>>

\* Every scheduled eviction completes.  Then the total size is at most the trigger or at most the watermark, unless no
\* entry is cached.  With `eviction_task` "immediate", no eviction is scheduled, and the total size is not checked.
\* Fair: RunEvictionTask.  No run of this property has SetMaxCacheBytes: a lower maximum schedules no eviction.
ScheduledEvictionCompletes ==
  tasks = 0 /\ (eviction_task = "queued" /\ IsDueForSizePass(Contents) => Live(Contents) = <<>>)
=============================================================================
