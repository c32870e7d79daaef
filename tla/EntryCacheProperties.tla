------------------------ MODULE EntryCacheProperties ------------------------
(***************************************************************************)
(* What the entry cache promises: the twin of invariants/entry_cache.py,   *)
(* under the same names.                                                   *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.  Where a promise is *)
(* about every step, it is an action property.                             *)
(*                                                                         *)
(* Not said here: what callers are told and what the metrics count, which  *)
(* are not modelled.                                                       *)
(***************************************************************************)
EXTENDS EntryCache

Live(c) == SelectSeq(c.queue, IsEntry)
LiveSet(c) == InSet(Live(c))
Keys(c) == {<<e.store, e.position>> : e \in LiveSet(c)}
EntryAt(c, key) == CHOOSE e \in LiveSet(c) : e.store = key[1] /\ e.position = key[2]

Bytes(seq) == LET Sum[n \in 0..Len(seq)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + seq[n].bytes IN Sum[Len(seq)]

RECURSIVE PermitsOf(_)
PermitsOf(set) == IF set = {} THEN 0 ELSE LET g == CHOOSE g \in set : TRUE IN g.permits + PermitsOf(set \ {g})

\* The parts of a tree that wait for a read, from left to right.
RECURSIVE AwaitedIn(_)
AwaitedIn(parts) ==
  IF parts = <<>> THEN <<>>
  ELSE LET part == Head(parts)
       IN (IF part.kind = "awaited" THEN <<part>> ELSE AwaitedIn(part.parts)) \o AwaitedIn(Tail(parts))

AwaitedBy(q) == AwaitedIn(<<q.part>>)
WaitingForPermits == {waiting[i].request : i \in DOMAIN waiting}

\* A size check would find something to do.
IsDueForSizeCheck(c) == IsOverTrigger(c) /\ c.total_bytes > ShareOf(watermark)

-----------------------------------------------------------------------------
(* Of every state. *)

\* The size of a range cache is the sum of its entries' bytes as they were when they came.
SizesAreSums == \A s \in DOMAIN sizes : LET IsOf(e) == e.store = s
                                        IN sizes[s] = Bytes(SelectSeq(Live(Contents), IsOf))

\* The total is the sum of all range caches, those of removed topics included, so it is never negative.
TheTotalIsTheSum ==
  LET Sum[n \in 0..Cardinality(DOMAIN sizes)] == IF n = 0 THEN 0 ELSE Sum[n - 1] + sizes[n - 1]
  IN total_bytes = Sum[Cardinality(DOMAIN sizes)] /\ total_bytes >= 0

\* A range cache holds at most one entry at a position, in exactly one slot.
OneEntryPerPosition == Cardinality(Keys(Contents)) = Len(Live(Contents))

\* From head to tail no entry is older than the one before it, so that a time pass may stop early.
QueueIsInOrderOfTime ==
  LET live == Live(Contents)
  IN \A i \in DOMAIN live : /\ live[i].timestamp_ns <= 0
                            /\ i > 1 => live[i - 1].timestamp_ns <= live[i].timestamp_ns

\* There is at most one eviction task, and the mark stands exactly while there is one.
OneEvictionTaskAtMost == tasks = IF marked THEN 1 ELSE 0

\* Where copies stand: with an entry, or in a orphaned_copies group; and at how many places there are such.
Holders == {queue[i] : i \in {i \in DOMAIN queue : queue[i] # None}} \cup DOMAIN orphaned_copies
HeldNames == UNION {each.copies.held : each \in Holders}
GrantedNames == UNION {each.copies.granted : each \in Holders}
Places(Has(_)) ==
  LET HasEntry(slot) == slot # None /\ Has(slot.copies)
      Times[groups \in SUBSET {g \in DOMAIN orphaned_copies : Has(g.copies)}] ==
        IF groups = {} THEN 0 ELSE LET g == CHOOSE g \in groups : TRUE IN orphaned_copies[g] + Times[groups \ {g}]
  IN Len(SelectSeq(queue, HasEntry)) + Times[{g \in DOMAIN orphaned_copies : Has(g.copies)}]

\* A copy has one counter, and the copies that are held are exactly those of the requests: none leaks.
CopiesAreAccountedFor ==
  LET held == [i \in DOMAIN requests |-> AllHeld(<<requests[i].part>>)]
      named == [i \in DOMAIN requests |-> {<<requests[i].number, held[i][j].entry>> : j \in DOMAIN held[i]}]
  IN /\ \A i \in DOMAIN requests : Cardinality(named[i]) = Len(held[i])
     /\ HeldNames = UNION InSet(named)
     /\ \A name \in HeldNames : LET Has(copies) == name \in copies.held IN Places(Has) = 1
     /\ \A name \in GrantedNames : LET Has(copies) == name \in copies.granted IN Places(Has) = 1

\* A request that is not answered waits for permits, or for a read that storage has not answered.
EveryRequestWaitsForSomething ==
  \A q \in InSet(requests) : q.number \in WaitingForPermits \/ AwaitedBy(q) # <<>>

\* Every outstanding read lists those who wait for it, and is awaited by someone, for what it brings.
WhoWaitsForAReadIsListed ==
  /\ \A q \in InSet(requests) : \A part \in InSet(AwaitedBy(q)) :
       /\ part.read \in DOMAIN reads
       /\ reads[part.read].first <= part.first /\ part.last <= reads[part.read].last
  /\ \A i \in DOMAIN reads :
       /\ reads[i].waiting # <<>>
       /\ \A n \in InSet(reads[i].waiting) : \E q \in InSet(requests) : q.number = n
       /\ \A q \in InSet(requests) :
            LET IsIt(n) == n = q.number
                IsFor(part) == part.read = i
            IN Len(SelectSeq(reads[i].waiting, IsIt)) = Len(SelectSeq(AwaitedBy(q), IsFor))

\* Outstanding reads of a ledger that can be joined do not overlap: a second reader would have joined.
NothingIsReadTwiceAtATime ==
  \A i, j \in DOMAIN reads :
    LET a == reads[i]
        b == reads[j]
    IN i < j /\ a.joinable /\ b.joinable /\ a.store = b.store /\ a.ledger = b.ledger
         => a.last < b.first \/ b.last < a.first

\* The free permits and those that are granted are all there are, and none of them is negative.
PermitsAddUp ==
  /\ free + PermitsOf(grants) = max_reads_in_flight_bytes
  /\ free >= 0
  /\ \A g \in grants : g.permits >= 0

\* A request either waits for permits or has them, and an entry that was handed out keeps those of its read.
NobodyReadsWithoutPermits ==
  /\ GrantedNames = UNION {{<<g.request, i>> : i \in g.copies} : g \in grants}
  /\ \A each \in Holders : each.copies.open = 0
  /\ \A q \in InSet(requests) :
       /\ (q.number \in WaitingForPermits) = (q.part.kind = "permits")
       /\ (q.number \in WaitingForPermits) = (\A g \in grants : g.request # q.number)

\* The request that has waited longest would not fit: nobody waits for permits that are free.
WhoWaitsForPermitsCouldNotHaveThem == waiting = <<>> \/ ~Fits(Contents, Head(waiting).permits)

\* No more reads wait for permits than the setting allows.
NoMoreWaitThanMay == max_reads_in_flight_bytes > 0 => Len(waiting) <= permits_queue_size

-----------------------------------------------------------------------------
(* Of adding and evicting. *)

\* A new entry is cached whatever the total is; at a taken position it is rejected and leaves the old one alone.
AnInsertIsCached ==
  \A topic \in cache, p \in position, b \in bytes, n \in insert_expected_reads :
    LET after == AfterInsert(topic, p, b, n)
        key == <<after.homes[topic], p>>
        Uncounted(e) == [e EXCEPT !.expected_reads = None, !.copies = NoCopies]
    IN CASE key[1] = Disabled -> after.queue = queue /\ after.sizes = sizes
         [] key[1] # Disabled /\ key \notin Keys(Contents) ->
              \/ eviction_task = "immediate"
              \/ key \in Keys(after) /\ EntryAt(after, key).bytes = b /\ EntryAt(after, key).timestamp_ns = 0
         [] OTHER -> /\ Uncounted(EntryAt(after, key)) = Uncounted(EntryAt(Contents, key))
                     /\ after.total_bytes = total_bytes

\* An entry that is added again expects the reads of the latest addition, which knows the cursors of now best.
TheLatestCounterStands ==
  \A topic \in cache, p \in position, b \in bytes, n \in insert_expected_reads :
    LET after == AfterInsert(topic, p, b, n)
        key == <<after.homes[topic], p>>
    IN key \in Keys(after) => EntryAt(after, key).expected_reads = InitialCount(n)

\* What makes the total grow above the trigger begins an eviction, and nothing else does.
EvictionBeginsAboveTheTrigger ==
  [][LET is_over == IsOverTrigger(Contents)'
     IN /\ tasks' > tasks => eviction_task = "queued" /\ is_over
        /\ eviction_task = "queued" /\ total_bytes' > total_bytes /\ is_over => marked']_vars

\* Where tasks run at once, nothing that is added leaves the total above both the trigger and the watermark.
AnImmediateEvictionReachesTheWatermark ==
  [][total_bytes' > total_bytes /\ IsDueForSizeCheck(Contents)' => Live(Contents)' = <<>>]_vars

AfterEvictions == {AfterCacheEviction} \cup IF tasks > 0 THEN {AfterEvictionTask} ELSE {}

\* After a task, or the periodic eviction, the total is not above both the trigger and the watermark.
AnEvictionReachesTheWatermark == \A after \in AfterEvictions : IsDueForSizeCheck(after) => Live(after) = <<>>

\* A task that finds the total below the trigger again takes off its mark, and no entry.
ATaskBelowTheTriggerEvictsNothing ==
  tasks > 0 => LET after == AfterEvictionTask
               IN /\ after.tasks = tasks - 1 /\ ~after.marked
                  /\ ~IsOverTrigger(Contents) => after.queue = queue /\ after.total_bytes = total_bytes

\* After the periodic eviction no entry is older than the time to live.
ThePeriodicEvictionLeavesNothingOld == \A e \in LiveSet(AfterCacheEviction) : e.timestamp_ns >= -ttl_ns

\* A removal takes exactly the entries of the topic's cache that it names, and the total with them.
TakesExactly(after, gone) ==
  /\ Keys(after) = Keys(Contents) \ gone
  /\ LET IsGone(e) == <<e.store, e.position>> \in gone
     IN after.total_bytes = total_bytes - Bytes(SelectSeq(Live(Contents), IsGone))

ARemovalTakesWhatWasNamed ==
  \A topic \in cache :
    LET Named(IsNamed(_)) == {key \in Keys(Contents) : key[1] = homes[topic] /\ IsNamed(key[2])}
        Every(p) == TRUE
    IN /\ TakesExactly(AfterClear(topic), Named(Every))
       /\ TakesExactly(AfterRemoval(topic), Named(Every))
       /\ \A l \in ledger : LET IsOf(p) == p[1] = l IN TakesExactly(AfterInvalidateLedger(topic, l), Named(IsOf))
       /\ \A low \in position :
            LET IsBefore(p) == p[1] >= -1 /\ (p[1] < low[1] \/ (p[1] = low[1] /\ p[2] < low[2]))
            IN TakesExactly(AfterInvalidation(topic, low), Named(IsBefore))

\* After everything was cleared the topics' caches are empty; what removed ones were given since stays.
ClearingAllLeavesNothingOfTheTopics ==
  LET IsTopics(key) == \E topic \in DOMAIN homes : homes[topic] = key[1]
  IN Keys(AfterClearAll) = {key \in Keys(Contents) : ~IsTopics(key)}

-----------------------------------------------------------------------------
(* Of reading. *)

\* After a failed read of a ledger nobody joins the reads of it that were outstanding then.
AFailureEndsJoining ==
  \A i \in DOMAIN reads : reads[i].store >= 0 =>
    \A r \in InSet(Answered(Contents, reads[i], None).reads) :
      r.joinable => r.number > Len(reads) \/ r.store # reads[i].store \/ r.ledger # reads[i].ledger

\* Entries from storage are cached exactly if reads of them are expected.
WhatStorageBringsIsCachedIfReadsAreExpected ==
  \A i \in DOMAIN reads :
    LET r == reads[i]
        after == Answered(Contents, r, r.last)
        brought == {<<r.store, <<r.ledger, entry>> >> : entry \in r.first..r.last}
        new == Keys(after) \ Keys(Contents)
    IN IF r.expected_reads <= 0 \/ r.store < 0 THEN new = {}
       ELSE new \subseteq brought /\ (eviction_task = "immediate" \/ brought \subseteq Keys(after))

\* A read of one entry, as for a replay, expects no reads and caches nothing.
ASingleReadCachesNothing ==
  \A topic \in cache, p \in position : Keys(AfterRead(topic, p[1], p[2], p[2], 0)) \subseteq Keys(Contents)

\* When nobody has permits a read gets what it wants, or all there are if it wants more.
AnIdleLimiterGrantsEveryRead ==
  free = max_reads_in_flight_bytes =>
    \A topic \in cache, l \in ledger, low \in first, high \in last, n \in read_expected_reads :
      AfterRead(topic, l, low, high, n).waiting = waiting

-----------------------------------------------------------------------------
(* Of every step. *)

\* The copies there are, and how many of them have the counter n.
AllCopies == [held |-> HeldNames, granted |-> GrantedNames, number |-> CopiesIn(queue) + OrphanedCopiesIn(DOMAIN orphaned_copies)]
CopiesWith(n) ==
  LET Has(slot) == slot # None /\ slot.expected_reads = n
  IN CopiesIn(SelectSeq(queue, Has)) + OrphanedCopiesIn({g \in DOMAIN orphaned_copies : g.expected_reads = n})

Counters == {each.expected_reads : each \in Holders}

\* Counters with which entries come, added or from storage.
Fresh == {InitialCount(n) : n \in insert_expected_reads \cup read_expected_reads} \cup {None}

\* What the topics' caches hold, by topic and position, for range caches may be numbered anew; and the counters.
TopicKeys == UNION {{<<topic, e.position>> : e \in {e \in LiveSet(Contents) : e.store = homes[topic]}} :
                      topic \in DOMAIN homes}
CountAt(key) == EntryAt(Contents, <<homes[key[1]], key[2]>>).expected_reads

\* The counter of an entry that stays is lower than before, or undefined, and not one with which entries come.
IsAnEntryCountedDown ==
  \E key \in TopicKeys \cap TopicKeys' :
    LET was == CountAt(key)
        now == CountAt(key)'
    IN was # None /\ now # was /\ (now = None \/ now < was) /\ now \notin Fresh

\* A counter is what it began with, plus the replays, minus the entries that readers gave back; nothing else counts.
\* A step that gives out or takes back copies brings no counters but fresh ones; any other leaves each copy its own.
OnlyDeliveryLowersACounter ==
  [][\/ /\ ~IsAnEntryCountedDown
        /\ Counters' \subseteq Counters \cup Fresh
        /\ AllCopies' = AllCopies => \A n \in Counters \cup Counters' : CopiesWith(n)' = CopiesWith(n)
     \/ Release
     \/ Replay]_vars

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* If storage answers again and again, and readers give back what they got, every request is answered.
EveryRequestIsAnswered == requests = <<>>

\* An eviction that was begun comes to its end, and the total below the trigger, unless nothing is left to evict.
TheTaskRuns == tasks = 0 /\ (eviction_task = "queued" /\ IsDueForSizeCheck(Contents) => Live(Contents) = <<>>)
=============================================================================
