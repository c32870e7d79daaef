--------------------------- MODULE ManagedLedger ---------------------------
(******************************************************************************)
(* A managed ledger with its cursors, dispatchers and entry cache (PIP-430,   *)
(* PIP-379).                                                                  *)
(*                                                                            *)
(* Twin of model/managed_ledger: the same actions and settings, equal states  *)
(* and steps.  Models ManagedLedgerImpl, ManagedCursorImpl,                   *)
(* PersistentDispatcherMultipleConsumers,                                     *)
(* PersistentStickyKeyDispatcherMultipleConsumers and                         *)
(* PersistentDispatcherSingleActiveConsumer.  Reads and eviction are those of *)
(* EntryCacheReads.tla (EC), for one topic.                                   *)
(*                                                                            *)
(* Step grain: one add or rollover, one start of a read, one answer of        *)
(* storage, one sendMessagesToConsumers, one write of a sent entry to its     *)
(* connection, one call of a client, one run of a task.                       *)
(*                                                                            *)
(* A state is a canonical state of the model.  A copy of an entry has a name. *)
(* Each read count lists the names of its copies in two sets (EC's `copies`): *)
(*                                                                            *)
(*   held     <<request, entry>>: a copy held for a pending request           *)
(*   granted  <<Owner(i, kind of read), NumberOf(position)>>: a copy of a     *)
(*            complete request; the read of subscription i that made the      *)
(*            request is not dispatched                                       *)
(*            <<Owner(i, "sent"), n>>: a copy that is being sent to consumers *)
(*            of subscription i, the n-th of `sent`                           *)
(*                                                                            *)
(* A request's number is derived from its subscription and kind and, in a     *)
(* replay read, from its position.                                            *)
(* The container of active cursors is the field `active` of each              *)
(* subscription; the shipped containers are in ActiveCursors.tla.             *)
(*                                                                            *)
(* Not modelled: return values, metrics, a disabled cache (max_bytes 0), and  *)
(* what the model does not model.                                             *)
(******************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings.  Config in model/managed_ledger/state.py explains settings and rules.  Only EC uses eviction_task.
  subscriptions, types, entry_bytes, entry_keys, shadow_topic, eviction_task, counts_reads, invalidates_by_mark_delete,
  grace_ms, ttl_ms, max_requeue_times, extend_ttl_of_recently_accessed, max_bytes, watermark, backlogged_threshold,
  min_backlog_cursors, min_backlog_entries, max_backlog_between, read_batch, look_ahead,
  \* Rules on which versions differ.
  discard_lowers_count, replay_raises_count, replay_order, discards_cancelled_replay_read, limits_look_ahead,
  backlog_check_activates_without_consumers,
  \* The values of the actions' arguments.
  subscription, consumer, permits, success, kind, position, millis

VARIABLES
  ledgers,         \* a sequence of [ledger, entries]: ledger id and number of entries; the last one takes entries
  entry_cache,     \* the contents of the entry cache, as in EntryCacheState.tla
  last_removal_ms, \* the time at which a cursor last became inactive, or of the ledger's creation: relative to now, at
                   \* most the grace period ago
  subs             \* of each subscription its cursor and its dispatcher:
                   \*   read_position, mark_delete; acked: individuallyDeletedMessages; caches_reads: isCacheReadEntry
                   \*   active: whether the cursor is active
                   \*   consumers: of each connected consumer its permits and pending (pendingAcks)
                   \*   replay: redeliveryMessages; normal_read, replay_read: the read of each kind, or None
                   \*   sent: positions whose write to the connection is not complete, oldest first

vars == <<ledgers, entry_cache, last_removal_ms, subs>>

\* Nanoseconds in a millisecond.
NS == 1000000

\* What storage has: more entries and ledgers than any scope.  EC reads only entries that exist.
Sizes == [n \in 1..9 |-> entry_bytes[((n - 1) % Len(entry_bytes)) + 1]]
Stored == [i \in 1..9 |-> [cache |-> 0, ledger |-> i - 1, entry_bytes |-> Sizes]]

\* The operators of the entry cache.  Its variables are not used: each operator takes the contents as an argument.
EC == INSTANCE EntryCacheReads WITH
  caches <- 1, stored <- Stored, storage_reads <- "queued", ttl_ns <- ttl_ms * NS, max_reads_in_flight_bytes <- 0,
  permits_timeout_ns <- 1, permits_queue_size <- 0, start_max_bytes <- max_bytes, start_watermark <- watermark,
  start_max_requeue_times <- max_requeue_times,
  start_extend_ttl_of_recently_accessed <- extend_ttl_of_recently_accessed,
  duplicate_put <- "latest_handler", removal_marks_read <- FALSE, undelivered_release_marks_read <- FALSE,
  size_pass_requeues_expired <- TRUE, rejection_marks_read <- FALSE, periodic_eviction_clears_in_progress <- FALSE,
  timer_grants_next <- TRUE, short_answer <- "read_again", caches_unexpected_entries <- FALSE,
  cache <- {}, bytes <- {}, insert_expected_reads <- {}, ledger <- {}, first <- {}, last <- {},
  read_expected_reads <- {}, entries <- {}, oddity <- {}, count <- {}, nanos <- {}, set_max_cache_bytes_value <- {},
  set_eviction_watermark_value <- {}, set_max_requeue_times_value <- {}, set_extend_ttl_value <- {},
  queue <- <<>>, orphaned_copies <- <<>>, owners <- <<>>, sizes <- <<>>, topic_caches <- <<>>, total_bytes <- 0,
  eviction_in_progress <- FALSE, tasks <- 0, failing <- 0, reads <- <<>>, requests <- <<>>, free <- 0,
  waiting <- <<>>, grants <- {}

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(set) == CHOOSE n \in set : \A m \in set : n <= m

-----------------------------------------------------------------------------
(* Positions, and the log. *)

Before(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
Upto(p, q) == p = q \/ Before(p, q)
First(set) == CHOOSE p \in set : \A q \in set : Upto(p, q)
After(p) == <<p[1], p[2] + 1>>

\* InOrder: a set of positions as an ordered sequence.  FirstOf: the set of its first n.
RECURSIVE InOrder(_)
InOrder(set) == IF set = {} THEN <<>> ELSE LET p == First(set) IN <<p>> \o InOrder(set \ {p})
FirstOf(set, n) == LET order == InOrder(set) IN {order[i] : i \in 1..(IF n < Len(order) THEN n ELSE Len(order))}

\* The type of subscription i, the key of the entry at p, and the bytes of this entry.
TypeOf(i) == types[(i % Len(types)) + 1]
KeyOf(p) == entry_keys[(p[2] % Len(entry_keys)) + 1]
SizeOf(p) == Sizes[p[2] + 1]

\* Log: all positions of the log.
Last(log) == log[Len(log)]
Exists(log, p) == \E k \in DOMAIN log : log[k].ledger = p[1] /\ 0 <= p[2] /\ p[2] < log[k].entries
EntriesOf(log, l) == LET k == CHOOSE k \in DOMAIN log : log[k].ledger = l IN log[k].entries
Log(log) == UNION {{<<log[k].ledger, n>> : n \in 0..log[k].entries - 1} : k \in DOMAIN log}

\* The first position, at p or after p, that has an entry or gets the next added entry.
ValidFrom(log, p) ==
  LET later == {k \in DOMAIN log : log[k].ledger > p[1]}
  IN IF \E k \in DOMAIN log : log[k].ledger = p[1] /\ (p[2] < log[k].entries \/ k = Len(log)) THEN p
     ELSE IF later = {} THEN p ELSE <<log[Least(later)].ledger, 0>>

\* The number of unacknowledged entries that a cursor has still to read.
Backlog(log, sub) == Cardinality({p \in Log(log) \ sub.acked : Upto(sub.read_position, p)})

-----------------------------------------------------------------------------
(* Contents: the variables that actions change, as one record. *)

Contents == [log |-> ledgers, c |-> entry_cache, removed |-> last_removal_ms, subs |-> subs]

\* The canonical form: reads of storage are numbered from 1.
WithReadsRenumbered(c) ==
  LET numbers == [i \in DOMAIN c.reads |-> c.reads[i].number]
  IN IF \A i \in DOMAIN numbers : numbers[i] = i THEN [c EXCEPT !.next_read = Len(c.reads) + 1]
     ELSE [c EXCEPT !.reads = [i \in DOMAIN @ |-> [@[i] EXCEPT !.number = i]], !.next_read = Len(c.reads) + 1,
                    !.requests = [i \in DOMAIN @ |-> [@[i] EXCEPT !.part = EC!WithReads(@, numbers)]]]

\* Makes these contents the next state.
Become(s) ==
  \E n \in {s} : /\ ledgers' = n.log
                 /\ entry_cache' = WithReadsRenumbered(n.c)
                 /\ last_removal_ms' = n.removed
                 /\ subs' = n.subs

\* A subscription without consumers, whose cursor is at the beginning of the log.
Idle == [read_position |-> <<0, 0>>, mark_delete |-> <<0, -1>>, acked |-> {}, caches_reads |-> FALSE,
         consumers |-> <<>>, replay |-> {}, normal_read |-> None, replay_read |-> None, sent |-> <<>>, active |-> FALSE]

Init ==
  /\ ledgers = <<[ledger |-> 0, entries |-> 0]>>
  /\ entry_cache = [queue |-> <<>>, orphaned_copies |-> <<>>, owners |-> [s \in {0} |-> 0], sizes |-> [s \in {0} |-> 0],
                    topic_caches |-> [t \in {0} |-> 0], total_bytes |-> 0, eviction_in_progress |-> FALSE, tasks |-> 0,
                    failing |-> 0, reads |-> <<>>, requests |-> <<>>, free |-> 0, waiting |-> <<>>, grants |-> {},
                    next_read |-> 1]
  /\ last_removal_ms = 0
  /\ subs = [i \in 0..subscriptions - 1 |-> Idle]

-----------------------------------------------------------------------------
(* Cursors. *)

\* The position by which the container of active cursors orders a cursor.
Tracked(sub) == IF invalidates_by_mark_delete /\ ~counts_reads THEN sub.mark_delete ELSE sub.read_position
Active(s) == {i \in DOMAIN s.subs : s.subs[i].active}
Slowest(s) == IF Active(s) = {} THEN None ELSE First({Tracked(s.subs[i]) : i \in Active(s)})

\* Without counts: removes the entries before the slowest active cursor from the cache.  Without active cursors, removes
\* all entries, and no outstanding read can be joined any more.
Invalidated(s) ==
  LET slowest == Slowest(s)
      Gone(e) == slowest = None \/ Before(e.position, slowest)
      left == EC!RemoveEntries(s.c, Gone)
  IN [s EXCEPT !.c = IF slowest = None THEN EC!WithoutJoining(left, 0, None) ELSE left]

WithSubscription(s, i, new) == [s EXCEPT !.subs[i] = new]

\* The state after subscription i changed to `new`.  Without counts, a move of an active cursor removes entries from the
\* cache if the move changes the slowest position.
Moved(s, i, new) ==
  LET next == WithSubscription(s, i, new)
  IN IF counts_reads \/ ~new.active \/ Tracked(s.subs[i]) = Tracked(new) \/ Slowest(s) = Slowest(next) THEN next
     ELSE Invalidated(next)

\* The cursor of subscription i becomes active, or inactive.  Without counts, an active cursor that becomes inactive
\* removes entries from the cache.
Activated(s, i) == [s EXCEPT !.subs[i].active = TRUE]
Deactivated(s, i) ==
  LET left == [s EXCEPT !.subs[i].active = FALSE, !.removed = 0]
  IN IF ~s.subs[i].active THEN s ELSE IF counts_reads THEN left ELSE Invalidated(left)

\* The read position moves back to the position after the mark-delete position.
Rewound(s, i) == Moved(s, i, [s.subs[i] EXCEPT !.read_position = ValidFrom(s.log, After(s.subs[i].mark_delete))])

IsAcked(sub, p) == Upto(p, sub.mark_delete) \/ p \in sub.acked

\* The position of the last acknowledged entry that follows `mark` without a gap, or `mark`.
RECURSIVE PastAcked(_, _, _)
PastAcked(log, sub, mark) ==
  LET next == ValidFrom(log, After(mark)) IN IF next \in sub.acked THEN PastAcked(log, sub, next) ELSE mark

\* The mark-delete position advances to `upto`, and further over acknowledged entries.
MarkedDeleted(s, i, upto) ==
  LET sub == s.subs[i]
      mark == PastAcked(s.log, sub, upto)
      Left(set) == {p \in set : Before(mark, p)}
  IN Moved(s, i, [sub EXCEPT
       !.mark_delete = mark, !.acked = Left(@), !.replay = Left(@),
       !.read_position = IF Before(mark, @) THEN @ ELSE ValidFrom(s.log, After(mark)),
       !.consumers = [k \in DOMAIN @ |-> [@[k] EXCEPT !.pending = Left(@)]]])

-----------------------------------------------------------------------------
(* Copies of a subscription. *)

\* Numbers of positions, of requests, and of owners of copies.  The numbers are unique in every scope.
NumberOf(p) == 50 * p[1] + p[2]
Request(i, k, p) == 1000 * i + (IF k = "normal" THEN 1 ELSE 2 + NumberOf(p))
Owner(i, k) == 100000 + 10 * i + (IF k = "normal" THEN 1 ELSE IF k = "replay" THEN 2 ELSE 3)

\* A copy gets another name.
Renamed(c, old, new) ==
  LET To(copies) == [copies EXCEPT !.granted = {IF name = old THEN new ELSE name : name \in @}]
  IN EC!WithCopies(c, To)

\* Releases a copy.  The read count becomes New(count).
Released(c, name, New(_)) ==
  LET Has(copies) == name \in copies.granted
      Less(copies) == [copies EXCEPT !.granted = @ \ {name}]
  IN EC!ChangedWhere(c, Has, New, Less)

\* ReleasedAsRead: releases a copy that was written to the connection, or whose entry is acknowledged before it is sent.
\* Discarded: releases the copies of a discarded read.
ReleasedAsRead(c, name) == LET New(n) == EC!MarkedRead(n) IN Released(c, name, New)

RECURSIVE Discarded(_, _, _)
Discarded(c, owner, positions) ==
  IF positions = {} THEN c
  ELSE LET p == First(positions)
           New(n) == IF discard_lowers_count THEN EC!MarkedRead(n) ELSE n
           Rest(left) == Discarded(left, owner, positions \ {p})
       IN With(Released(c, <<owner, NumberOf(p)>>, New), Rest)

-----------------------------------------------------------------------------
(* Reads. *)

ReadOf(sub, k) == IF k = "normal" THEN sub.normal_read ELSE sub.replay_read
WithRead(sub, k, read) == IF k = "normal" THEN [sub EXCEPT !.normal_read = read] ELSE [sub EXCEPT !.replay_read = read]

\* The copies of request n, which EC lists in the grant of the request (Requested), get names <<owner, number of the
\* position>>, and the grant is dropped.  `low` is the first position of the request.
RECURSIVE WithCopiesNamed(_, _, _, _, _)
WithCopiesNamed(c, n, i, k, low) ==
  LET mine == UNION {g.copies : g \in {g \in c.grants : g.request = n}}
      index == Least(mine)
      p == <<low[1], low[2] + index - 1>>
      less == {IF g.request = n THEN [g EXCEPT !.copies = @ \ {index}] ELSE g : g \in c.grants}
      Rest(named) == WithCopiesNamed([named EXCEPT !.grants = less], n, i, k, low)
  IN IF mine = {} THEN [c EXCEPT !.grants = {g \in @ : g.request # n}]
     ELSE With(Renamed(c, <<n, index>>, <<Owner(i, k), NumberOf(p)>>), Rest)

\* The state after request n, of subscription i's read of kind k, completed or failed.  A failed request has no entries.
\* The read position moves past the entries of a normal read, unless these are before the mark-delete position.  If a
\* request of a read failed, the read is dropped when none of its requests is pending; if the read was cancelled, the
\* cursor is then rewound.
Answer(s, i, k, n, low) ==
  LET sub == s.subs[i]
      read == ReadOf(sub, k)
      mine == {g \in s.c.grants : g.request = n}
      got == IF mine = {} THEN {} ELSE {<<low[1], low[2] + m - 1>> : m \in UNION {g.copies : g \in mine}}
      now == [read EXCEPT !.requests = @ \ {n}, !.entries = @ \cup got, !.failed = @ \/ mine = {}]
      end == <<low[1], low[2] + Cardinality(got)>>
      passed == IF k = "normal" /\ got # {} /\ Before(sub.mark_delete, end)
                THEN [sub EXCEPT !.read_position = end] ELSE sub
      ended == now.requests = {} /\ now.failed
      Dropped(t) == LET left == [WithSubscription(t, i, WithRead(t.subs[i], k, None))
                                  EXCEPT !.c = Discarded(@, Owner(i, k), now.entries)]
                    IN IF now.cancelled THEN Rewound(left, i) ELSE left
      Ending(t) == IF ended THEN Dropped(t) ELSE t
  IN With(Moved([s EXCEPT !.c = WithCopiesNamed(@, n, i, k, low)], i, WithRead(passed, k, now)), Ending)

IsPending(c, n) == \E q \in EC!InSet(c.requests) : q.number = n

\* The state after the answers to those of the requests `numbers` that were pending in `before` and are no longer
\* pending.
RECURSIVE AllAnswered(_, _, _)
AllAnswered(s, before, numbers) ==
  IF numbers = {} THEN s
  ELSE LET n == Least(numbers)
           q == EC!RequestOf(before, n)
           i == n \div 1000
           Rest(t) == AllAnswered(t, before, numbers \ {n})
       IN IF IsPending(s.c, n) THEN AllAnswered(s, before, numbers \ {n})
          ELSE With(Answer(s, i, IF n % 1000 = 1 THEN "normal" ELSE "replay", n, <<q.ledger, q.part.first>>), Rest)

\* Requests the entries low..high from the entry cache.  The grant of 0 permits makes EC list the copies of the request.
\* The expected read count is set when storage answers (Expected).
Requested(s, i, k, low, high) ==
  LET n == Request(i, k, low)
      q == [number |-> n, range_cache |-> 0, cache |-> 0, ledger |-> low[1], expected_reads |-> 0,
            part |-> EC!Part("permits", low[2], high[2])]
      Rest(c) == LET t == [s EXCEPT !.c = c] IN IF IsPending(c, n) THEN t ELSE Answer(t, i, k, n, low)
  IN With(EC!Begin([s.c EXCEPT !.grants = @ \cup {[request |-> n, permits |-> 0, copies |-> {}]}], q), Rest)

RECURSIVE RequestedEach(_, _, _)
RequestedEach(s, i, positions) ==
  IF positions = {} THEN s
  ELSE LET p == First(positions)
           Rest(t) == RequestedEach(t, i, positions \ {p})
       IN With(Requested(s, i, "replay", p, p), Rest)

\* A read of these positions starts.  first_replay: minReplayedPosition.
Started(s, i, k, positions) ==
  LET sub == s.subs[i]
      low == First(positions)
      high == CHOOSE p \in positions : \A q \in positions : Upto(q, p)
      first_replay == IF replay_order = "any_of_key" /\ sub.replay # {} THEN First(sub.replay) ELSE None
      numbers == IF k = "normal" THEN {Request(i, k, low)} ELSE {Request(i, k, p) : p \in positions}
      read == [requests |-> numbers, entries |-> {}, cancelled |-> FALSE, failed |-> FALSE,
               min_replayed_position |-> first_replay]
      at == IF k = "normal" THEN [sub EXCEPT !.read_position = low] ELSE sub
      Rest(t) == IF k = "normal" THEN Requested(t, i, k, low, high) ELSE RequestedEach(t, i, positions)
  IN With(Moved(s, i, WithRead(at, k, read)), Rest)

-----------------------------------------------------------------------------
(* Consumers. *)

Connected(sub) == DOMAIN sub.consumers
Pending(sub) == UNION {sub.consumers[k].pending : k \in Connected(sub)}
\* The n-th consumer, from 0.
Nth(sub, n) == CHOOSE k \in Connected(sub) : Cardinality({j \in Connected(sub) : j < k}) = n

\* The consumer to which an entry is dispatched, or None.  Key_Shared: by the key.  Failover: the active consumer, which
\* is the first.  Shared: the first consumer with permits.
Selected(sub, i, p) ==
  LET able == {k \in Connected(sub) : sub.consumers[k].permits > 0}
  IN CASE Connected(sub) = {} -> None
       [] TypeOf(i) = "key_shared" /\ Connected(sub) # {} -> Nth(sub, KeyOf(p) % Cardinality(Connected(sub)))
       [] TypeOf(i) = "failover" /\ Connected(sub) # {} -> Least(Connected(sub))
       [] OTHER -> IF able = {} THEN None ELSE Least(able)

\* Key_Shared.  IsDraining: whether another consumer has unacknowledged messages of the entry's key.  IsBlocked: whether
\* the entry must wait for entries of its key in the replay queue: with replay_order "earlier_of_key" for earlier ones,
\* otherwise for any, but only in a normal read.
IsDraining(sub, k, p) ==
  \E j \in Connected(sub) \ {k} : \E q \in sub.consumers[j].pending : KeyOf(q) = KeyOf(p)

IsBlocked(sub, k, p) ==
  IF replay_order = "earlier_of_key" THEN \E q \in sub.replay : Before(q, p) /\ KeyOf(q) = KeyOf(p)
  ELSE k = "normal" /\ \E q \in sub.replay : KeyOf(q) = KeyOf(p)

\* Whether consumer `who` may take the entry at p from a read of kind k.
CanTake(sub, i, k, who, p) ==
  \/ TypeOf(i) = "failover"
  \/ /\ sub.consumers[who].permits > 0
     /\ TypeOf(i) = "shared" \/ (~IsBlocked(sub, k, p) /\ ~IsDraining(sub, who, p))

\* Key_Shared: the entries of `order` that a replay read may take: their consumers have permits (`left`), and their keys
\* are not draining.
RECURSIVE Replayable(_, _, _, _)
Replayable(sub, i, order, left) ==
  IF order = <<>> THEN {}
  ELSE LET p == Head(order)
           who == Selected(sub, i, p)
       IN IF left[who] > 0 /\ ~IsDraining(sub, who, p)
          THEN {p} \cup Replayable(sub, i, Tail(order), [left EXCEPT ![who] = @ - 1])
          ELSE Replayable(sub, i, Tail(order), left)

\* The positions of the replay queue that a replay read takes now: n at most.
ReplayNow(sub, i, n) ==
  IF TypeOf(i) # "key_shared" THEN FirstOf(sub.replay, n)
  ELSE FirstOf(Replayable(sub, i, InOrder(sub.replay), [k \in Connected(sub) |-> sub.consumers[k].permits]), n)

\* shouldRewindBeforeReadingOrReplaying: outstanding reads are marked cancelled.  AfterDispatch and Answer end them.
Cancelled(sub) ==
  [sub EXCEPT !.normal_read = IF @ = None THEN None ELSE [@ EXCEPT !.cancelled = TRUE],
              !.replay_read = IF @ = None THEN None ELSE [@ EXCEPT !.cancelled = TRUE]]

\* No message is pending any more, and the cursor is rewound to the position after the mark-delete position: now, or
\* when each outstanding read is dispatched or dropped.
Restarted(s, i) ==
  LET sub == Cancelled([s.subs[i] EXCEPT !.consumers = [k \in DOMAIN @ |-> [@[k] EXCEPT !.pending = {}]]])
      t == WithSubscription(s, i, sub)
  IN IF sub.normal_read # None \/ sub.replay_read # None THEN t ELSE Rewound(t, i)

\* Adds the positions that are not acknowledged to the replay queue.
IntoReplay(sub, set) == [sub EXCEPT !.replay = @ \cup {p \in set : ~IsAcked(sub, p)}]

\* Whether subscription i is of type failover, `old` and `new` have consumers, and their active consumers differ.
HasNewActive(i, old, new) ==
  /\ TypeOf(i) = "failover" /\ Connected(old) # {} /\ Connected(new) # {}
  /\ Least(Connected(old)) # Least(Connected(new))

\* The first consumer, and a new active consumer of a failover subscription, restart reading.  With counts, the cursor
\* becomes active.
AfterConnect(i, who) ==
  LET old == subs[i]
      new == [old EXCEPT !.consumers = [k \in DOMAIN @ \cup {who} |->
                                          IF k = who THEN [permits |-> 0, pending |-> {}] ELSE @[k]]]
      t == WithSubscription(Contents, i, new)
      Rest(u) == IF counts_reads THEN Activated(u, i) ELSE u
  IN With(IF Connected(old) = {} \/ HasNewActive(i, old, new) THEN Restarted(t, i) ELSE t, Rest)

Connect == \E i \in subscription, who \in consumer : who \notin Connected(subs[i]) /\ Become(AfterConnect(i, who))

\* When the last consumer leaves, outstanding reads are cancelled, the replay queue is emptied, and the cursor becomes
\* inactive.  Otherwise the consumer's pending messages are added to the replay queue; a failover subscription restarts
\* reading instead, if another consumer becomes active.
AfterDisconnect(s, i, who) ==
  LET old == s.subs[i]
      new == [old EXCEPT !.consumers = [k \in DOMAIN @ \ {who} |-> @[k]]]
  IN CASE Connected(new) = {} -> Deactivated(WithSubscription(s, i, Cancelled([new EXCEPT !.replay = {}])), i)
       [] Connected(new) # {} /\ TypeOf(i) # "failover" ->
            WithSubscription(s, i, IntoReplay(new, old.consumers[who].pending))
       [] OTHER -> LET t == WithSubscription(s, i, new) IN IF HasNewActive(i, old, new) THEN Restarted(t, i) ELSE t

Disconnect ==
  \E i \in subscription, who \in consumer : who \in Connected(subs[i]) /\ Become(AfterDisconnect(Contents, i, who))

Flow ==
  \E i \in subscription, who \in consumer, n \in permits :
    who \in Connected(subs[i]) /\ Become([Contents EXCEPT !.subs[i].consumers[who].permits = @ + n])

\* redeliverUnacknowledgedMessages.  In a failover subscription, the active consumer restarts reading, and any other
\* consumer's call does nothing.
AfterRedeliver(i, who) ==
  LET sub == subs[i]
      left == [sub EXCEPT !.consumers[who].pending = {}]
  IN CASE TypeOf(i) # "failover" -> WithSubscription(Contents, i, IntoReplay(left, sub.consumers[who].pending))
       [] OTHER -> IF who = Least(Connected(sub)) THEN Restarted(Contents, i) ELSE Contents

Redeliver == \E i \in subscription, who \in consumer : who \in Connected(subs[i]) /\ Become(AfterRedeliver(i, who))

-----------------------------------------------------------------------------
(* The log. *)

\* The added entry is cached if a cursor is active or, with counts, in the grace period; never for a shadow topic.
AfterAdd ==
  LET last == Last(ledgers)
      p == <<last.ledger, last.entries>>
      s == [Contents EXCEPT !.log = [k \in DOMAIN @ |-> IF k = Len(@) THEN [@[k] EXCEPT !.entries = @ + 1] ELSE @[k]]]
      in_grace == counts_reads /\ grace_ms > 0 /\ -last_removal_ms < grace_ms
      n == IF counts_reads THEN Cardinality(Active(s)) ELSE 0
  IN IF shadow_topic \/ ~(Active(s) # {} \/ in_grace) THEN s
     ELSE [s EXCEPT !.c = EC!InsertOrReplace(@, 0, p, SizeOf(p), EC!InitialCount(n), EC!NoCopies)]

AddEntry == Become(AfterAdd)

RolloverLedger ==
  /\ Last(ledgers).entries > 0
  /\ Become([Contents EXCEPT !.log = Append(@, [ledger |-> Last(@).ledger + 1, entries |-> 0])])

RECURSIVE WithoutLedgers(_, _)
WithoutLedgers(c, gone) ==
  IF gone = {} THEN c
  ELSE LET l == Least(gone)
           Gone(e) == e.position[1] = l
       IN WithoutLedgers(EC!WithoutJoining(EC!RemoveEntries(c, Gone), 0, l), gone \ {l})

\* Deletes the closed ledgers whose last entry is at or before the mark-delete position of every cursor, and removes
\* their entries from the cache.
AfterTrim ==
  LET slowest == First({subs[i].mark_delete : i \in DOMAIN subs})
      IsGone(k) == k < Len(ledgers) /\ Upto(<<ledgers[k].ledger, ledgers[k].entries - 1>>, slowest)
      gone == {k \in DOMAIN ledgers : IsGone(k)}
  IN [Contents EXCEPT !.log = SubSeq(@, Cardinality(gone) + 1, Len(@)),
                      !.c = WithoutLedgers(@, {ledgers[k].ledger : k \in gone})]

TrimConsumedLedgers == Become(AfterTrim)

-----------------------------------------------------------------------------
(* Reading and dispatching. *)

\* PermitsOf: the permits of the consumers that can receive entries.  In a failover subscription, this is only the
\* active consumer.
RECURSIVE SumOf(_, _)
SumOf(sub, who) == IF who = {} THEN 0 ELSE LET k == Least(who) IN sub.consumers[k].permits + SumOf(sub, who \ {k})
PermitsOf(sub, i) ==
  SumOf(sub, IF TypeOf(i) = "failover" /\ Connected(sub) # {} THEN {Least(Connected(sub))} ELSE Connected(sub))

\* readMoreEntries: starts a replay read if the replay queue has entries to read now, else a normal read unless one is
\* outstanding.
AfterReadMore(i) ==
  LET sub == [subs[i] EXCEPT !.replay = {p \in @ : ~IsAcked(subs[i], p)}]
      s == WithSubscription(Contents, i, sub)
      all == PermitsOf(sub, i)
      most == IF all < read_batch THEN all ELSE read_batch
      replay == ReplayNow(sub, i, most)
      room == look_ahead - Cardinality(sub.replay)
      n == IF TypeOf(i) = "key_shared" /\ limits_look_ahead /\ room < most THEN room ELSE most
      first == ValidFrom(ledgers, sub.read_position)
      end == IF first[2] + n < EntriesOf(ledgers, first[1]) THEN first[2] + n ELSE EntriesOf(ledgers, first[1])
      normal == {<<first[1], m>> : m \in first[2]..end - 1}
  IN CASE replay # {} -> Started(s, i, "replay", replay)
       [] replay = {} /\ sub.normal_read = None /\ normal # {} -> Started(s, i, "normal", normal)
       [] OTHER -> s

ReadMoreEntries ==
  \E i \in subscription : PermitsOf(subs[i], i) > 0 /\ subs[i].replay_read = None /\ Become(AfterReadMore(i))

\* The expected read count of the entries of a storage read, when storage answers.  The first waiting request started
\* the storage read.  A replay read has 0.  With counts, a normal read has the number of active cursors at the position
\* of the reading cursor or before, or 0 if the reading cursor is not active.  Without counts, it has 1 if the reads of
\* its cursor are cached, else 0.
Expected(r) ==
  LET n == r.waiting[1]
      i == n \div 1000
      own == subs[i].read_position
  IN CASE n % 1000 # 1 -> 0
       [] n % 1000 = 1 /\ ~counts_reads -> IF subs[i].caches_reads THEN 1 ELSE 0
       [] OTHER -> IF ~subs[i].active THEN 0
                   ELSE Cardinality({j \in DOMAIN subs : subs[j].active /\ Upto(subs[j].read_position, own)})

\* Storage completes its i-th read, or fails it.  A read of a deleted ledger fails.
AfterStorageRead(i, ok) ==
  LET r == [entry_cache.reads[i] EXCEPT !.expected_reads = Expected(entry_cache.reads[i])]
      c == [entry_cache EXCEPT !.reads = EC!Exchanged(@, i, r)]
      Rest(after) == AllAnswered([Contents EXCEPT !.c = after], entry_cache,
                                 {entry_cache.requests[j].number : j \in DOMAIN entry_cache.requests})
  IN With(EC!Answer(c, r, IF ok THEN r.last ELSE None), Rest)

CompleteStorageRead ==
  \E i \in DOMAIN entry_cache.reads, ok \in success :
    Become(AfterStorageRead(i, ok /\ \E k \in DOMAIN ledgers : ledgers[k].ledger = entry_cache.reads[i].ledger))

\* addEntryToReplay: the entry is put back for replay, and its copy is released.  With replay_raises_count, the replay
\* raises the read count by 1 before the release lowers it by 1.
PutBack(s, i, k, p) ==
  LET New(n) == IF replay_raises_count THEN n ELSE EC!MarkedRead(n)
      c == Released(s.c, <<Owner(i, k), NumberOf(p)>>, New)
  IN [s EXCEPT !.c = c, !.subs[i] = IntoReplay(@, {p})]

\* The entry at p of the read of kind k is sent to consumer `who`.
Sent(s, i, k, who, p) ==
  LET sub == s.subs[i]
      name == <<Owner(i, "sent"), Len(sub.sent) + 1>>
  IN [s EXCEPT !.c = Renamed(@, <<Owner(i, k), NumberOf(p)>>, name),
               !.subs[i] = [sub EXCEPT !.replay = @ \ {p}, !.sent = Append(@, p),
                              !.consumers[who].permits = @ - 1, !.consumers[who].pending = @ \cup {p}]]

\* Takes the entries of a complete read in order.  An acknowledged entry is released, an entry that its consumer can
\* take is sent, and any other entry is put back.
RECURSIVE DispatchEach(_, _, _, _)
DispatchEach(s, i, k, order) ==
  IF order = <<>> THEN s
  ELSE LET p == Head(order)
           sub == s.subs[i]
           who == Selected(sub, i, p)
           Rest(t) == DispatchEach(t, i, k, Tail(order))
       IN With(CASE IsAcked(sub, p) ->
                      [s EXCEPT !.c = ReleasedAsRead(@, <<Owner(i, k), NumberOf(p)>>), !.subs[i].replay = @ \ {p}]
                 [] ~IsAcked(sub, p) /\ who # None /\ CanTake(sub, i, k, who, p) -> Sent(s, i, k, who, p)
                 [] OTHER -> PutBack(s, i, k, p), Rest)

RECURSIVE PutBackEach(_, _, _, _)
PutBackEach(s, i, k, order) ==
  IF order = <<>> THEN s ELSE PutBackEach(PutBack(s, i, k, Head(order)), i, k, Tail(order))

\* sendMessagesToConsumers, for a complete read.  Without consumers, the read is discarded and the cursor is rewound.
\* The same happens to a cancelled read; but without discards_cancelled_replay_read, a cancelled replay read is
\* dispatched before the rewind.  A Key_Shared read is overtaken if the first position of the replay queue is before the
\* read's min_replayed_position: then a replay read is discarded, and the entries of a normal read are put back.
AfterDispatch(i, k) ==
  LET read == ReadOf(subs[i], k)
      s == WithSubscription(Contents, i, WithRead(subs[i], k, None))
      discarded == [s EXCEPT !.c = Discarded(@, Owner(i, k), read.entries)]
      overtaken == /\ TypeOf(i) = "key_shared" /\ read.min_replayed_position # None /\ subs[i].replay # {}
                   /\ Before(First(subs[i].replay), read.min_replayed_position)
      Rest(t) == IF read.cancelled THEN Rewound(t, i) ELSE t
  IN CASE Connected(subs[i]) = {} \/ (read.cancelled /\ (k = "normal" \/ discards_cancelled_replay_read)) ->
            Rewound(discarded, i)
       [] OTHER -> IF overtaken THEN (IF k = "replay" THEN discarded ELSE PutBackEach(s, i, k, InOrder(read.entries)))
                   ELSE With(DispatchEach(s, i, k, InOrder(read.entries)), Rest)

Dispatch ==
  \E i \in subscription, k \in kind :
    /\ ReadOf(subs[i], k) # None
    /\ ReadOf(subs[i], k).requests = {}
    /\ Become(AfterDispatch(i, k))

\* The oldest sent entry was written to the connection.
AfterRelease(i) ==
  LET owner == Owner(i, "sent")
      To(copies) == [copies EXCEPT !.granted = {IF name[1] = owner THEN <<owner, name[2] - 1>> ELSE name : name \in @}]
      Rest(c) == [Contents EXCEPT !.c = EC!WithCopies(c, To), !.subs[i].sent = Tail(@)]
  IN With(ReleasedAsRead(entry_cache, <<owner, 1>>), Rest)

Release == \E i \in subscription : subs[i].sent # <<>> /\ Become(AfterRelease(i))

-----------------------------------------------------------------------------
(* Acknowledgements. *)

AfterAck(i, p) ==
  LET sub == subs[i]
      left == [sub EXCEPT !.consumers = [k \in DOMAIN @ |-> [@[k] EXCEPT !.pending = @ \ {p}]], !.acked = @ \cup {p}]
  IN MarkedDeleted(WithSubscription(Contents, i, left), i, sub.mark_delete)

Acknowledge ==
  \E i \in subscription, p \in position :
    /\ p \in Pending(subs[i]) \/ (p \in subs[i].replay /\ ~IsAcked(subs[i], p))
    /\ Become(AfterAck(i, p))

MarkDelete ==
  \E i \in subscription, p \in position :
    Before(subs[i].mark_delete, p) /\ Exists(ledgers, p) /\ Become(MarkedDeleted(Contents, i, p))

RECURSIVE WithoutConsumers(_, _)
WithoutConsumers(s, i) ==
  LET left == Connected(s.subs[i])
      Rest(t) == WithoutConsumers(t, i)
  IN IF left = {} THEN s ELSE With(AfterDisconnect(s, i, Least(left)), Rest)

AfterSeek(i, p) ==
  LET Rest(s) == Moved(s, i, [s.subs[i] EXCEPT !.mark_delete = <<p[1], p[2] - 1>>, !.acked = {}, !.read_position = p])
  IN With(WithoutConsumers(Contents, i), Rest)

Seek ==
  \E i \in subscription, p \in position :
    /\ Exists(ledgers, p) \/ p = <<Last(ledgers).ledger, Last(ledgers).entries>>
    /\ Become(AfterSeek(i, p))

-----------------------------------------------------------------------------
(* Periodic tasks, and time. *)

\* checkBackloggedCursors, from subscription i on: cursors with consumers and a small backlog become active, all others
\* inactive.  With backlog_check_activates_without_consumers, only the backlog matters.
RECURSIVE Checked(_, _)
Checked(s, i) ==
  IF i \notin DOMAIN s.subs THEN s
  ELSE LET sub == s.subs[i]
           may_be == Connected(sub) # {} \/ backlog_check_activates_without_consumers
           Rest(t) == Checked(t, i + 1)
       IN With(IF may_be /\ Backlog(s.log, sub) < backlogged_threshold THEN Activated(s, i)
               ELSE Deactivated(s, i), Rest)

CheckBackloggedCursors == ~counts_reads /\ Become(Checked(Contents, 0))

\* checkCursorsToCacheEntries: entries from storage are cached for a cursor if its backlog has min_backlog_entries or
\* more, and enough other cursors have a similar backlog.
Near(a, b) == a - b <= max_backlog_between /\ b - a <= max_backlog_between
CheckCursorsToCacheEntries ==
  LET left == [i \in DOMAIN subs |-> Backlog(ledgers, subs[i])]
      IsMarked(i) == /\ left[i] >= min_backlog_entries
                     /\ Cardinality({j \in DOMAIN subs \ {i} : Near(left[i], left[j])}) >= min_backlog_cursors
  IN /\ ~counts_reads /\ min_backlog_cursors >= 1
     /\ Become([Contents EXCEPT !.subs = [i \in DOMAIN @ |-> [@[i] EXCEPT !.caches_reads = IsMarked(i)]]])

\* DoCacheEviction: the periodic eviction.  RunEvictionTask: a scheduled eviction task.
DoCacheEviction == Become([Contents EXCEPT !.c = EC!SizeCheck(EC!EvictEntries(@, TRUE, -ttl_ms * NS))])

RunEvictionTask ==
  /\ entry_cache.tasks > 0
  /\ Become([Contents EXCEPT !.c = [EC!SizeCheck(@) EXCEPT !.tasks = @ - 1, !.eviction_in_progress = FALSE]])

Period == IF counts_reads THEN grace_ms ELSE 0
Advance ==
  \E n \in millis :
    LET Every(e) == TRUE
        Older(e) == [e EXCEPT !.timestamp_ns = @ - n * NS]
        ago == n - last_removal_ms
    IN Become([Contents EXCEPT !.c.queue = EC!Changed(@, Every, Older),
                               !.removed = -(IF ago > Period THEN Period ELSE ago)])

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Entries of remaining ledgers; ledger ids; permits of a consumer; slots of the removal queue.
EntriesAtMost(n) == Cardinality(Log(ledgers)) <= n
LedgersAtMost(n) == Last(ledgers).ledger <= n
PermitsAtMost(n) == \A i \in DOMAIN subs : \A k \in Connected(subs[i]) : subs[i].consumers[k].permits <= n
SlotsAtMost(n) == Len(entry_cache.queue) <= n

\* Entries that are read or being sent, and not released.
Held(read) == IF read = None THEN 0 ELSE Cardinality(read.entries)
RECURSIVE CopiesOf(_)
CopiesOf(i) == IF i \notin DOMAIN subs THEN 0
               ELSE Held(subs[i].normal_read) + Held(subs[i].replay_read) + Len(subs[i].sent) + CopiesOf(i + 1)
CopiesAtMost(n) == CopiesOf(0) <= n

\* The largest negated read count; milliseconds since the oldest entry was cached or requeued.
LowestCountAtMost(n) ==
  LET IsFine(each) == each.expected_reads = None \/ -each.expected_reads <= n
  IN /\ \A k \in DOMAIN entry_cache.queue : entry_cache.queue[k] = None \/ IsFine(entry_cache.queue[k])
     /\ \A g \in DOMAIN entry_cache.orphaned_copies : IsFine(g)

AgeAtMost(n) ==
  \A k \in DOMAIN entry_cache.queue : entry_cache.queue[k] = None \/ -entry_cache.queue[k].timestamp_ns <= n * NS
=============================================================================
