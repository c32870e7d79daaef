------------------------------ MODULE PendingAcks ------------------------------
(******************************************************************************)
(* Pending-ack handle of one subscription: acknowledgements made inside       *)
(* transactions (PIP-160, PIP-153).                                           *)
(*                                                                            *)
(* Twin of model/pending_acks: the same actions and settings, equal states    *)
(* and steps.  Models PendingAckHandleImpl (the handle), its log              *)
(* (MLPendingAckStore) and LogIndexLagBackoff.  PendingAcksState.tla defines  *)
(* acks, the subscription's cursor, conflicts and the log index.              *)
(*                                                                            *)
(* Step grain: one request, one ack without a transaction, one flush, one log *)
(* entry that is appended or replayed, one write of the cursor, one opening   *)
(* or close, the end of a replay, or one failure.                             *)
(*                                                                            *)
(* A record of the log is [op, cumulative, txn, acks], acks a sequence; op is *)
(* "ack", "commit" or "abort".  A request is [number, record,                 *)
(* low_watermark].  After each step the requests with a caller are numbered   *)
(* from 1 in order; an abort that the handle starts itself, for a low         *)
(* watermark, has number 0.                                                   *)
(*                                                                            *)
(* An operator After... has the value [s, outcome, replies]: the next state,  *)
(* "done", "rejected" or "failed", and a set of [number, result] for the      *)
(* requests that complete.                                                    *)
(*                                                                            *)
(* Not modelled: other return values, such as the messages that an abort      *)
(* redelivers, and what model/pending_acks does not model.                    *)
(******************************************************************************)
EXTENDS PendingAcksState

CONSTANTS
  \* The values of the actions' arguments.
  ack_individual_txn, ack_individual_acks, ack_cumulative_txn, ack_cumulative_entry, ack_cumulative_ack_set,
  commit_txn, commit_low_watermark, abort_txn, abort_low_watermark, acknowledge_entry, acknowledge_ack_set,
  write_fails_durable, read_fails_stops, crash_survive

VARIABLES
  cursor,            \* the subscription's cursor in memory
  durable_cursor,    \* the subscription's cursor as persisted
  log,               \* entries after the log's mark-delete position, each a sequence of records
  read_position,     \* the next entry that the log's cursor reads
  log_index,         \* memory of the handle: the log index
  status,            \* of the handle: "none", "initializing", "ready", "error" or "closed"
  replayed,          \* the entry after the last one that the replay has processed (currentLoadPosition), or 0
  failed_reads,      \* number of consecutive failed reads of the replay
  accept_queue,      \* requests that wait until the handle is ready (acceptQueue)
  buffer,            \* requests whose records are in the buffered writer
  in_flight,         \* log entries that are being appended, each a sequence of requests
  individual_acks,   \* memory: individualAckOfTransaction, in order of each transaction's first ack
  cumulative_ack,    \* memory: cumulativeAckOfTransaction, [txn, ack] or None
  low_watermark      \* memory: the highest that a commit or abort applied (lowWaterMarks)

vars == <<cursor, durable_cursor, log, read_position, log_index, status, replayed, failed_reads, accept_queue, buffer,
          in_flight, individual_acks, cumulative_ack, low_watermark>>

HasCaller(request) == request.number # 0
CallersOf(requests) == Len(SelectSeq(requests, HasCaller))

\* The requests that are not complete, with a caller, in the order in which they are logged.
OpenRequests(s) == SelectSeq(BufferedOrInFlight(s) \o s.accept_queue, HasCaller)

\* All variables, and the number of the next request, as one record.
Contents ==
  [cursor |-> cursor, durable_cursor |-> durable_cursor, log |-> log, read_position |-> read_position,
   log_index |-> log_index, status |-> status, replayed |-> replayed, failed_reads |-> failed_reads,
   accept_queue |-> accept_queue, buffer |-> buffer, in_flight |-> in_flight, individual_acks |-> individual_acks,
   cumulative_ack |-> cumulative_ack, low_watermark |-> low_watermark,
   next_request |-> CallersOf(Joined(in_flight)) + CallersOf(buffer) + CallersOf(accept_queue) + 1]

RecordOf(op, is_cumulative, txn, acks) == [op |-> op, cumulative |-> is_cumulative, txn |-> txn, acks |-> acks]
RequestOf(number, r, watermark) == [number |-> number, record |-> r, low_watermark |-> watermark]

Effects(s, replies) == [s |-> s, outcome |-> "done", replies |-> replies]
Done(s) == Effects(s, {})
Rejected(s) == [Done(s) EXCEPT !.outcome = "rejected"]
Failed(s) == [Done(s) EXCEPT !.outcome = "failed"]

\* The set with the completion of a request.  The set is empty if the request has no caller, or if the result is "" (the
\* future never completes).
ReplyTo(request, result) ==
  IF HasCaller(request) /\ result # "" THEN {[number |-> request.number, result |-> result]} ELSE {}
FailureOf(requests) == UNION {ReplyTo(request, "failed") : request \in Members(requests)}

-----------------------------------------------------------------------------
(* Requests. *)

\* Appends the record of a request: to the buffer, or as a log entry of its own.
WithAppend(s, request) ==
  IF batched_writes THEN [s EXCEPT !.buffer = Append(@, request)] ELSE [s EXCEPT !.in_flight = Append(@, <<request>>)]

\* A ready handle takes a request.  The value is [s, result]; with conflict_check "before_append", the result of an ack
\* that conflicts is "conflict".  As shipped (~commit_and_abort_cover_both_types), a commit or abort ends acks of one
\* type only.  The type is fixed here: it is cumulative if any transaction has a pending cumulative ack.  If another
\* transaction has this ack, a commit completes without a record.
Accepted(s, request) ==
  LET r == request.record
      Queued(after) == [s |-> after, result |-> "queued"]
      other == PendingCumulativeAck(s)
      is_owner == other # None /\ other.txn = r.txn
      is_beside_other == ~commit_and_abort_cover_both_types /\ other # None /\ ~is_owner
  IN IF r.op = "ack"
     THEN IF conflict_check = "before_append" /\ Conflicts(s, r) THEN [s |-> s, result |-> "conflict"]
          ELSE Queued(WithAppend(s, request))
     ELSE IF is_beside_other /\ r.op = "commit" THEN [s |-> s, result |-> "done"]
     ELSE Queued(WithAppend(s, [request EXCEPT !.record.cumulative = is_owner \/ is_beside_other]))

\* A replay starts.
Initializing(s) == [s EXCEPT !.status = "initializing", !.read_position = IF replay_rewinds THEN 0 ELSE @]

\* A request arrives.  A ready handle takes the request.  An initializing handle queues the request.  A handle in status
\* "none" queues the request and starts its replay.  In status "error" or "closed", the request is rejected.
Received(s, r, watermark) ==
  LET request == RequestOf(s.next_request, r, watermark)
      Counted(after) == [after EXCEPT !.next_request = @ + 1]
      Queued(after) == Counted([after EXCEPT !.accept_queue = Append(@, request)])
      AtOnce(found) ==
        IF found.result = "conflict" THEN Failed(s)
        ELSE Effects(Counted(found.s), {a \in ReplyTo(request, found.result) : a.result # "queued"})
  IN IF s.status \in {"error", "closed"} THEN Rejected(s)
     ELSE IF s.status = "ready" THEN With(Accepted(s, request), AtOnce)
     ELSE Done(Queued(IF s.status = "none" THEN Initializing(s) ELSE s))

AfterAckIndividual(s, txn, list) ==
  LET is_invalid == list = <<>> \/ \E k \in DOMAIN list : IsInvalid(list[k].entry, list[k].ack_set)
      is_twice == \E j, k \in DOMAIN list : j # k /\ list[j].entry = list[k].entry
      acks == [k \in DOMAIN list |-> AckOf(list[k].entry, list[k].ack_set)]
  IN IF is_invalid \/ is_twice THEN Rejected(s) ELSE Received(s, RecordOf("ack", FALSE, txn, acks), 0)

\* The ack set of a cumulative ack must leave the last messages of the batch, without a gap.
AfterAckCumulative(s, txn, n, ack_set) ==
  LET ack == AckOf(n, ack_set)
      is_no_tail == ack.ack_set # None /\ ack.ack_set # Least(ack.ack_set)..SizeOf(n) - 1
  IN IF IsInvalid(n, ack_set) \/ is_no_tail THEN Rejected(s) ELSE Received(s, RecordOf("ack", TRUE, txn, <<ack>>), 0)

AfterCommitOrAbort(s, op, txn, watermark) == Received(s, RecordOf(op, FALSE, txn, <<>>), watermark)

-----------------------------------------------------------------------------
(* The subscription. *)

\* An individual ack without a transaction.
AfterAcknowledge(s, n, ack_set) ==
  IF IsInvalid(n, ack_set) THEN Rejected(s)
  ELSE Done([s EXCEPT !.cursor = WithIndividualAcks(@, {AckOf(n, ack_set)})])

\* The cursor is persisted.
AfterPersist(s) == Done([s EXCEPT !.durable_cursor = s.cursor])

-----------------------------------------------------------------------------
(* The acks that a commit or abort ends (`r` is its record): [acks, cumulative]. *)

EndedAcks(s, r, is_replay) ==
  LET any_owner == is_replay /\ r.cumulative /\ ~replay_checks_cumulative_owner
      cumulative == IF s.cumulative_ack = None THEN None
                    ELSE IF s.cumulative_ack.txn = r.txn \/ any_owner THEN s.cumulative_ack ELSE None
      by_type == ~commit_and_abort_cover_both_types
  IN [acks |-> IF by_type /\ r.cumulative THEN {} ELSE AcksOf(s, r.txn),
      cumulative |-> IF by_type /\ ~r.cumulative THEN None ELSE cumulative]

WithoutEndedAcks(s, txn, ended) ==
  [s EXCEPT !.individual_acks = IF ended.acks # {} THEN WithoutTxn(@, txn) ELSE @,
            !.cumulative_ack = IF ended.cumulative # None THEN None ELSE @]

WithCommittedAcks(s, ended) ==
  LET Cumulative(a) == IF ended.cumulative = None THEN a ELSE WithCumulativeAck(a, ended.cumulative.ack)
  IN [s EXCEPT !.cursor = With(WithIndividualAcks(@, ended.acks), Cumulative)]

-----------------------------------------------------------------------------
(* The log. *)

\* The buffered records become a log entry in flight.
AfterFlush(s) ==
  IF s.buffer = <<>> THEN Rejected(s) ELSE Done([s EXCEPT !.buffer = <<>>, !.in_flight = Append(@, s.buffer)])

WithPendingAck(s, r) ==
  IF r.cumulative THEN [s EXCEPT !.cumulative_ack = [txn |-> r.txn, ack |-> r.acks[1]]]
  ELSE [s EXCEPT !.individual_acks = WithPending(@, r.txn, Members(r.acks))]

\* The transactions that the low watermark aborts: those at or below the low watermark that have pending acks, and whose
\* abort is not buffered or in flight.  With low_watermark_aborts "from_first": only the first transaction of
\* individual_acks, if at or below the low watermark, and unless an abort that the handle itself started is buffered or
\* in flight.
StaleTxns(s) ==
  LET txns == [k \in DOMAIN s.individual_acks |-> s.individual_acks[k].txn]
      aborts == {r \in Members(BufferedOrInFlight(s)) : r.record.op = "abort"}
      is_aborting == \E r \in aborts : r.number = 0
      others == IF s.cumulative_ack = None THEN <<>>
                ELSE IF s.cumulative_ack.txn \in Members(txns) THEN <<>> ELSE <<s.cumulative_ack.txn>>
      IsBelow(txn) == txn <= s.low_watermark
      IsStale(txn) == IsBelow(txn) /\ \A r \in aborts : r.record.txn # txn
  IN IF low_watermark_aborts = "from_first"
     THEN IF is_aborting \/ txns = <<>> THEN <<>> ELSE SelectSeq(<<txns[1]>>, IsBelow)
     ELSE SelectSeq(txns \o others, IsStale)

RECURSIVE WithAborts(_, _)
WithAborts(s, txns) ==
  LET request == RequestOf(0, RecordOf("abort", FALSE, txns[1], <<>>), s.low_watermark)
      Rest(found) == WithAborts(found.s, Tail(txns))
  IN IF txns = <<>> THEN s ELSE With(Accepted(s, request), Rest)

\* A commit or abort applies its low watermark.  As shipped (low_watermark_aborts "from_first"), only a commit or abort
\* that has ended individual acks does so.
WithLowWatermark(s, watermark, had_individual_acks) ==
  LET Raised(after) == WithAborts(after, StaleTxns(after))
  IN IF low_watermark_aborts = "from_first" /\ ~had_individual_acks THEN s
     ELSE With([s EXCEPT !.low_watermark = IF watermark > @ THEN watermark ELSE @], Raised)

\* A durable ack becomes pending.  As shipped (conflict_check "after_append"), conflicts are detected only here.
WithAppliedAck(s, r) ==
  LET Result(after, result) == [s |-> after, result |-> result]
      is_late == conflict_check = "after_append"
  IN IF is_late /\ Conflicts(s, r) THEN Result(s, "conflict")
     ELSE IF is_late /\ ~r.cumulative /\ NeverCompletes(s, r) THEN Result(s, "")
     ELSE Result(WithPendingAck(s, r), "done")

\* Applies a durable record.  The value is [s, result]; the result is "" if the future never completes.  If the cursor
\* rejects the acks of a commit, rejected_commit decides.  "fail_handle": the commit fails, and the status becomes
\* "error".  "keep_pending": the commit fails, and the acks stay pending.  "drop": the commit completes, and the acks
\* are dropped.
Applied(s, request, cursor_rejects) ==
  LET r == request.record
      Ended(ended) ==
        LET has_acks == ended.acks # {} \/ ended.cumulative # None
            Result(after) ==
              [s |-> WithLowWatermark(after, request.low_watermark, ended.acks # {}), result |-> "done"]
            is_acked == r.op = "commit" /\ (~cursor_rejects \/ ~has_acks)
            is_kept == r.op = "commit" /\ ~is_acked /\ rejected_commit # "drop"
            Acked(after) == IF is_acked THEN WithCommittedAcks(after, ended) ELSE after
        IN IF is_kept
           THEN [s |-> [s EXCEPT !.status = IF rejected_commit = "fail_handle" THEN "error" ELSE "ready"],
                 result |-> "failed"]
           ELSE With(Acked(WithoutEndedAcks(s, r.txn, ended)), Result)
  IN IF r.op = "ack" THEN WithAppliedAck(s, r) ELSE With(EndedAcks(s, r, FALSE), Ended)

\* The handle after it stopped with status "error" or "closed", without memory.  The queued and buffered requests fail
\* (FailureOfWaiting); entries in flight stay in flight.
Stopped(s, stopped) == [WithoutPendingState(s) EXCEPT !.status = stopped, !.accept_queue = <<>>, !.buffer = <<>>]
FailureOfWaiting(s) == FailureOf(s.accept_queue \o s.buffer)

RecordsOf(requests) == [k \in DOMAIN requests |-> requests[k].record]

\* The append of the first entry in flight succeeds or fails.  The log has the entry if the entry is durable.
Appended(s, is_durable) ==
  [s EXCEPT !.in_flight = Tail(@), !.log = IF is_durable THEN Append(@, RecordsOf(s.in_flight[1])) ELSE @]

\* The records are applied in order as long as the handle is ready; then the remaining requests fail.
RECURSIVE AppliedAll(_, _, _)
AppliedAll(found, requests, cursor_rejects) ==
  LET request == requests[1]
      Rest(one) == AppliedAll([s |-> one.s, replies |-> found.replies \cup ReplyTo(request, one.result)],
                              Tail(requests), cursor_rejects)
  IN IF requests = <<>> THEN found
     ELSE IF found.s.status # "ready" THEN [found EXCEPT !.replies = @ \cup FailureOf(requests)]
     ELSE With(Applied(found.s, request, cursor_rejects), Rest)

\* The append of the first entry in flight succeeds; if cursor_rejects, the cursor rejects all acks that the
\* records commit.
AfterCompleted(s, cursor_rejects) ==
  LET Ended(found) ==
        LET Kept(after) == Effects(after, found.replies)
        IN IF found.s.status = "ready"
           THEN With(WithIndexedEntry(found.s, Last(found.s.log), Len(found.s.log) - 1), Kept)
           ELSE IF s.status # "ready" THEN Effects(found.s, found.replies)
           ELSE Effects(Stopped(found.s, "error"), found.replies \cup FailureOfWaiting(found.s))
      empty == [s |-> Appended(s, TRUE), replies |-> {}]
  IN IF s.in_flight = <<>> THEN Rejected(s) ELSE With(AppliedAll(empty, s.in_flight[1], cursor_rejects), Ended)

\* failed_append "apply", as shipped: acks become pending after a failed append.  An individual ack is not checked for
\* conflicts; if NeverCompletes, it does not become pending.  A cumulative ack becomes pending if no
\* cumulative ack is pending, or if it advances that of its own transaction.
RECURSIVE WithFailedAcks(_, _, _)
WithFailedAcks(s, requests, replies) ==
  LET r == requests[1].record
      is_after == s.cumulative_ack = None \/ (s.cumulative_ack # None /\ s.cumulative_ack.txn = r.txn
                                                /\ IsAfter(r.acks[1], s.cumulative_ack.ack))
      is_lost == r.op = "ack" /\ ~r.cumulative /\ NeverCompletes(s, r)
      is_applied == r.op = "ack" /\ ~is_lost /\ (r.cumulative => is_after)
      Rest(after) ==
        WithFailedAcks(after, Tail(requests), replies \cup ReplyTo(requests[1], IF is_lost THEN "" ELSE "failed"))
  IN IF requests = <<>> THEN Effects(s, replies) ELSE With(IF is_applied THEN WithPendingAck(s, r) ELSE s, Rest)

\* The append of the first entry in flight fails.  If is_durable, the entry is nevertheless in the log.
AfterFailure(s, is_durable) ==
  LET requests == s.in_flight[1]
      Ended(after) ==
        IF s.status # "ready" THEN Effects(after, FailureOf(requests))
        ELSE IF failed_append = "apply" THEN WithFailedAcks(after, requests, {})
        ELSE Effects(Stopped(after, "error"), FailureOf(requests) \cup FailureOfWaiting(after))
  IN IF s.in_flight = <<>> THEN Rejected(s) ELSE With(Appended(s, is_durable), Ended)

-----------------------------------------------------------------------------
(* Replay. *)

\* The acks of a replayed record become pending.  The record is dropped if it conflicts with pending acks (its request
\* was rejected), or if NeverCompletes.  An ack is dropped if the persisted cursor has acknowledged its messages.  With
\* replay_drops "record", the whole record is dropped instead, if it conflicts with the cursor in memory.
WithReplayedAcks(s, r) ==
  LET left == {p \in Members(r.acks) : ~(MessagesOf(p) \subseteq AckedMessages(s.durable_cursor, p.entry))}
      acks == IF replay_drops = "record" THEN IF Conflicts(s, r) THEN {} ELSE Members(r.acks) ELSE left
  IN IF NeverCompletes(s, r) \/ PendingConflicts(s, r) THEN s
     ELSE [s EXCEPT !.individual_acks = WithPending(@, r.txn, acks)]

\* A replayed cumulative ack becomes pending, unless it conflicts with pending acks, or the persisted mark-delete
\* position has reached its entry, or, with replay_drops "record", that of the cursor in memory has.
WithReplayedCumulative(s, r) ==
  LET ack == r.acks[1]
      is_dropped == \/ ack.entry < s.durable_cursor.first_unacked
                    \/ PendingConflicts(s, r)
                    \/ replay_drops = "record" /\ Conflicts(s, r)
      kept == IF replay_keeps_cumulative_ack_set THEN ack ELSE [ack EXCEPT !.ack_set = None]
  IN IF is_dropped THEN s ELSE [s EXCEPT !.cumulative_ack = [txn |-> r.txn, ack |-> kept]]

WithReplayed(s, r) ==
  LET Ended(ended) ==
        LET after == WithoutEndedAcks(s, r.txn, ended)
        IN IF r.op = "commit" THEN WithCommittedAcks(after, ended) ELSE after
  IN IF r.op = "ack" THEN IF r.cumulative THEN WithReplayedCumulative(s, r) ELSE WithReplayedAcks(s, r)
     ELSE With(EndedAcks(s, r, TRUE), Ended)

RECURSIVE ReplayedAll(_, _)
ReplayedAll(s, records) ==
  LET Rest(after) == ReplayedAll(after, Tail(records))
  IN IF records = <<>> THEN s ELSE With(WithReplayed(s, records[1]), Rest)

IsReading(s) == s.status = "initializing" /\ s.replayed # Len(s.log)

\* The replay reads the next entry.  The step fails if the log's cursor is at the end of the log although the replay
\* is not complete.
AfterReadEntry(s) ==
  LET at == s.read_position
      Next(after) == [after EXCEPT !.read_position = at + 1, !.replayed = at + 1, !.failed_reads = 0]
      Ended(after) ==
        With(WithIndexedEntry(Next(after), s.log[at + 1], at), Done)
  IN IF ~IsReading(s) THEN Rejected(s)
     ELSE IF at >= Len(s.log) THEN Failed(s)
     ELSE With(ReplayedAll(s, s.log[at + 1]), Ended)

\* The handle takes the queued requests in order.
RECURSIVE AcceptedAll(_, _, _)
AcceptedAll(s, requests, replies) ==
  LET Rest(found) ==
        AcceptedAll(found.s, Tail(requests),
                     replies \cup {a \in ReplyTo(requests[1], found.result) : a.result # "queued"})
  IN IF requests = <<>> THEN Effects(s, replies) ELSE With(Accepted(s, requests[1]), Rest)

\* The replay ends, and the handle is ready.
AfterReady(s) ==
  LET ready == [s EXCEPT !.status = "ready", !.replayed = 0, !.failed_reads = 0, !.accept_queue = <<>>,
                         !.read_position = IF replay_rewinds THEN 0 ELSE @]
      WithQueue(after) == AcceptedAll(after, s.accept_queue, {})
  IN With(IF log_deletion = "ended_transactions" THEN WithoutEnded(ready) ELSE ready, WithQueue)

AfterEndReplay(s) == IF s.status = "initializing" /\ ~IsReading(s) THEN AfterReady(s) ELSE Rejected(s)

AfterStopped(s, stopped) == Effects(Stopped(s, stopped), FailureOfWaiting(s))

\* A read of the replay fails.  If `stops`, the read is not retried and the handle fails; without stopped_replay_fails,
\* the handle is ready instead.  If ~stops, the read is retried, and the handle fails after max_failed_reads consecutive
\* failures; without failed_reads_are_bounded, the handle never fails.
AfterReadFailure(s, stops) ==
  IF ~IsReading(s) THEN Rejected(s)
  ELSE IF stops /\ ~stopped_replay_fails THEN AfterReady(s)
  ELSE IF ~stops /\ ~failed_reads_are_bounded THEN Done(s)
  ELSE IF ~stops /\ s.failed_reads + 1 < max_failed_reads THEN Done([s EXCEPT !.failed_reads = @ + 1])
  ELSE AfterStopped(s, "error")

-----------------------------------------------------------------------------
(* Open, close, crash. *)

AfterOpening(s) ==
  IF s.status \in {"initializing", "ready"} \/ s.in_flight # <<>> THEN Rejected(s) ELSE Done(Initializing(s))

AfterClosing(s) == IF s.status \in {"initializing", "ready"} THEN AfterStopped(s, "closed") ELSE Rejected(s)

\* A crash.  Of the entries in flight the first `survive` are durable.
AfterCrash(s, survive) ==
  LET durable == [k \in 1..survive |-> RecordsOf(s.in_flight[k])]
  IN IF survive > Len(s.in_flight) THEN Rejected(s)
     ELSE Done([WithoutPendingState(s) EXCEPT !.cursor = s.durable_cursor, !.log = @ \o durable, !.read_position = 0,
                                        !.status = "none", !.accept_queue = <<>>, !.buffer = <<>>, !.in_flight = <<>>])

-----------------------------------------------------------------------------
(* Steps. *)

\* The requests, numbered after `last`.
Renumbered(requests, last) ==
  [k \in DOMAIN requests |->
     IF HasCaller(requests[k]) THEN [requests[k] EXCEPT !.number = last + CallersOf(SubSeq(requests, 1, k))]
     ELSE requests[k]]

\* Makes the canonical form of the result the next state.  An action that is rejected or fails is no step.
Become(given) ==
  \E result \in {given} :
    LET s == result.s
        last == CallersOf(Joined(s.in_flight))
    IN /\ result.outcome = "done"
       /\ cursor' = s.cursor
       /\ durable_cursor' = s.durable_cursor
       /\ log' = s.log
       /\ read_position' = s.read_position
       /\ log_index' = s.log_index
       /\ status' = s.status
       /\ replayed' = s.replayed
       /\ failed_reads' = s.failed_reads
       /\ in_flight' = [k \in DOMAIN s.in_flight |->
                          Renumbered(s.in_flight[k], CallersOf(Joined(SubSeq(s.in_flight, 1, k - 1))))]
       /\ buffer' = Renumbered(s.buffer, last)
       /\ accept_queue' = Renumbered(s.accept_queue, last + CallersOf(s.buffer))
       /\ individual_acks' = s.individual_acks
       /\ cumulative_ack' = s.cumulative_ack
       /\ low_watermark' = s.low_watermark

Init == /\ cursor = NoAcks
        /\ durable_cursor = NoAcks
        /\ log = <<>>
        /\ read_position = 0
        /\ log_index = NoIndex
        /\ status = "none"
        /\ replayed = 0
        /\ failed_reads = 0
        /\ accept_queue = <<>>
        /\ buffer = <<>>
        /\ in_flight = <<>>
        /\ individual_acks = <<>>
        /\ cumulative_ack = None
        /\ low_watermark = 0

AckIndividual ==
  \E txn \in ack_individual_txn, list \in ack_individual_acks : Become(AfterAckIndividual(Contents, txn, list))
AckCumulative ==
  \E txn \in ack_cumulative_txn, n \in ack_cumulative_entry, ack_set \in ack_cumulative_ack_set :
    Become(AfterAckCumulative(Contents, txn, n, ack_set))
Commit ==
  \E txn \in commit_txn, watermark \in commit_low_watermark :
    Become(AfterCommitOrAbort(Contents, "commit", txn, watermark))
Abort ==
  \E txn \in abort_txn, watermark \in abort_low_watermark :
    Become(AfterCommitOrAbort(Contents, "abort", txn, watermark))
Acknowledge ==
  \E n \in acknowledge_entry, ack_set \in acknowledge_ack_set : Become(AfterAcknowledge(Contents, n, ack_set))
Persist == Become(AfterPersist(Contents))
Flush == Become(AfterFlush(Contents))
Written == Become(AfterCompleted(Contents, FALSE))
CursorRefuses == Become(AfterCompleted(Contents, TRUE))
WriteFails == \E is_durable \in write_fails_durable : Become(AfterFailure(Contents, is_durable))
OpenStore == Become(AfterOpening(Contents))
ReadEntry == Become(AfterReadEntry(Contents))
EndReplay == Become(AfterEndReplay(Contents))
ReadFails == \E stops \in read_fails_stops : Become(AfterReadFailure(Contents, stops))
Close == Become(AfterClosing(Contents))
Crash == \E survive \in crash_survive : Become(AfterCrash(Contents, survive))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Records in the log; requests that are not complete, also those without a caller; both.
LogRecordsAtMost(n) == Len(Joined(log)) <= n
OpenRequestsAtMost(n) == Len(Joined(in_flight)) + Len(buffer) + Len(accept_queue) <= n
RecordsAtMost(n) == Len(Joined(log)) + Len(Joined(in_flight)) + Len(buffer) + Len(accept_queue) <= n
=============================================================================
