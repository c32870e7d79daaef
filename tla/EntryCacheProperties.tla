------------------------ MODULE EntryCacheProperties ------------------------
(***************************************************************************)
(* Invariants and liveness of the entry cache: the twins of those in       *)
(* invariants/entry_cache.py that a broker engineer would name first.      *)
(*                                                                         *)
(* A property of a step is an invariant here: from every reached state,    *)
(* the action with any of its arguments keeps it.  A property of every     *)
(* step is an action property.  Outcomes and metrics are not modelled.     *)
(***************************************************************************)
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

AtMostOneEvictionTask == tasks = IF eviction_in_progress THEN 1 ELSE 0

\* The holders of copies: cached entries and groups of orphaned copies.
Holders == {queue[i] : i \in {i \in DOMAIN queue : queue[i] # None}} \cup DOMAIN orphaned_copies

PendingRequestWaitsForPermitsOrStorage ==
  \A q \in InSet(requests) : q.number \in WaitingForPermits \/ AwaitedBy(q) # <<>>

FirstQueuedRequestDoesNotFit == waiting = <<>> \/ ~Fits(Contents, Head(waiting).permits)

-----------------------------------------------------------------------------
(* Of adding and evicting. *)

LatestInsertSetsExpectedReadCount ==
  \A topic \in cache, p \in position, b \in bytes, n \in insert_expected_reads :
    LET after == AfterInsert(topic, p, b, n)
        key == <<after.topic_caches[topic], p>>
    IN key \in Keys(after) => EntryAt(after, key).expected_reads = InitialCount(n)

-----------------------------------------------------------------------------
(* Of every step. *)

Counters == {each.expected_reads : each \in Holders}

\* Initial read counts of entries, added or from storage.
Fresh == {InitialCount(n) : n \in insert_expected_reads \cup read_expected_reads} \cup {None}

\* Cached entries by topic and position, because range caches are renumbered; and the read counts.
TopicKeys == UNION {{<<topic, e.position>> : e \in {e \in LiveSet(Contents) : e.store = topic_caches[topic]}} :
                      topic \in DOMAIN topic_caches}
CountAt(key) == EntryAt(Contents, <<topic_caches[key[1]], key[2]>>).expected_reads

\* The read count of an entry that remains cached is lower than before or undefined, and not an initial one.
IsAnEntryCountedDown ==
  \E key \in TopicKeys \cap TopicKeys' :
    LET was == CountAt(key)
        now == CountAt(key)'
    IN was # None /\ now # was /\ (now = None \/ now < was) /\ now \notin Fresh

-----------------------------------------------------------------------------
(* Liveness: goals reached once only the fair actions happen. *)

EveryRequestCompletes == requests = <<>>

ScheduledEvictionCompletes == tasks = 0 /\ (eviction_task = "queued" /\ IsDueForSizeCheck(Contents) => Live(Contents) = <<>>)
=============================================================================
