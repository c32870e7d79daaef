------------------------------ MODULE PendingAcks ------------------------------
(***************************************************************************)
(* Pending acknowledgements: what a subscription promises to transactions, *)
(* kept in a log and found again in it.                                    *)
(*                                                                         *)
(* Source: PIP-160, PIP-153.  This is the twin of model/pending_acks/machine.py    *)
(* and model/pending_acks/replay.py: the same actions under the same       *)
(* names, the same settings, and as many states.  Grain: one request, one  *)
(* entry of the log that is written or read.                               *)
(*                                                                         *)
(* A record is [op, cumulative, txn, parts], parts a list; a call is       *)
(* [ticket, record, low_watermark].  After each step tickets are numbered  *)
(* anew, in the order in which their callers wait; so the next one is      *)
(* always one more than there are.                                         *)
(*                                                                         *)
(* What an action does is After...: [s, outcome, answers, redelivered,     *)
(* trimmed], with outcome done, refused, or failed, answers a set of       *)
(* [ticket, told], redelivered a set of [entry, messages].                 *)
(***************************************************************************)
EXTENDS PendingAcksState

CONSTANTS
  \* The values of the actions' arguments.
  ack_individual_txn, ack_individual_acks, ack_cumulative_txn, ack_cumulative_entry, ack_cumulative_leaves,
  commit_txn, commit_low_watermark, abort_txn, abort_low_watermark, acknowledge_entry, acknowledge_leaves,
  write_fails_durable, read_fails_stops, crash_survive

VARIABLES
  acks,            \* what is acknowledged in the subscription, in memory
  durable,         \* and in storage
  log,             \* entries, each a list of records, from the first one that is kept
  read,            \* the entry that the log's cursor reads next
  log_index,       \* memory
  status,          \* none, initializing, ready, error, or closed
  progress,        \* of a replay: up to where it has come
  attempts,        \* of a replay: reads in a row that failed
  queue,           \* calls that wait until the store is ready
  buffer,          \* calls
  in_flight,       \* lists of calls
  held,            \* memory: in the order in which transactions first acknowledged
  cumulative,      \* memory: [txn, part], or None
  low_watermark    \* memory: the highest that came with an end

vars == <<acks, durable, log, read, log_index, status, progress, attempts, queue, buffer, in_flight, held, cumulative,
          low_watermark>>

IsAsked(call) == call.ticket # 0
AskedIn(calls) == Len(SelectSeq(calls, IsAsked))
\* The calls that somebody waits for, those that go to the log first.
OpenCalls(s) == SelectSeq(OnTheWay(s) \o s.queue, IsAsked)

Contents ==
  [acks |-> acks, durable |-> durable, log |-> log, read |-> read, log_index |-> log_index, status |-> status,
   progress |-> progress, attempts |-> attempts, queue |-> queue, buffer |-> buffer, in_flight |-> in_flight,
   held |-> held, cumulative |-> cumulative, low_watermark |-> low_watermark,
   next_ticket |-> AskedIn(Joined(in_flight)) + AskedIn(buffer) + AskedIn(queue) + 1]

RecordOf(op, is_cumulative, txn, parts) == [op |-> op, cumulative |-> is_cumulative, txn |-> txn, parts |-> parts]
CallOf(ticket, r, mark) == [ticket |-> ticket, record |-> r, low_watermark |-> mark]

\* What came of an action.
Effects(s, answers, redelivered, trimmed) ==
  [s |-> s, outcome |-> "done", answers |-> answers, redelivered |-> redelivered, trimmed |-> trimmed]
Done(s) == Effects(s, {}, {}, 0)
Refused(s) == [Done(s) EXCEPT !.outcome = "refused"]
Failed(s) == [Done(s) EXCEPT !.outcome = "failed"]
AnswerOf(call, told) == IF IsAsked(call) /\ told # "" THEN {[ticket |-> call.ticket, told |-> told]} ELSE {}
FailureOf(calls) == UNION {AnswerOf(call, "failed") : call \in Members(calls)}

-----------------------------------------------------------------------------
(* Requests. *)

\* The record waits in the buffer, or is an entry of its own.
Put(s, call) ==
  IF batching THEN [s EXCEPT !.buffer = Append(@, call)] ELSE [s EXCEPT !.in_flight = Append(@, <<call>>)]

\* A request comes to the log, unless it can be answered at once.
Appended(s, call) ==
  LET r == call.record
      Comes(s_with) == [s |-> s_with, told |-> "waits"]
      claim == CumulativeClaim(s)
      is_owner == claim # None /\ claim.txn = r.txn
      is_hidden == cumulative_acks_hide_others /\ claim # None /\ ~is_owner
  IN IF r.op = "ack"
     THEN IF conflicts_are_found = "before_the_append" /\ Conflicts(s, r) THEN [s |-> s, told |-> "conflict"]
          ELSE Comes(Put(s, call))
     ELSE IF is_hidden /\ r.op = "commit" THEN [s |-> s, told |-> "done"]
     ELSE Comes(Put(s, [call EXCEPT !.record.cumulative = is_owner \/ is_hidden]))

\* A replay begins: memory is empty, and the log's cursor goes back to its mark.
Begun(s) == [s EXCEPT !.status = "initializing", !.read = IF replay_begins_at_the_mark THEN 0 ELSE @]

\* A request comes to the store: to the log, or to the queue of a store that is not open yet.
Requested(s, r, mark) ==
  LET call == CallOf(s.next_ticket, r, mark)
      Asked(after) == [after EXCEPT !.next_ticket = @ + 1]
      Queued(after) == Asked([after EXCEPT !.queue = Append(@, call)])
      AtOnce(found) ==
        IF found.told = "conflict" THEN Failed(s)
        ELSE Effects(Asked(found.s), {a \in AnswerOf(call, found.told) : a.told # "waits"}, {}, 0)
  IN IF s.status \in {"error", "closed"} THEN Refused(s)
     ELSE IF s.status = "ready" THEN With(Appended(s, call), AtOnce)
     ELSE Done(Queued(IF s.status = "none" THEN Begun(s) ELSE s))

AfterAckIndividual(s, txn, list) ==
  LET is_wrong == list = <<>> \/ \E k \in DOMAIN list : IsWrongSet(list[k].entry, list[k].leaves)
      is_twice == \E j, k \in DOMAIN list : j # k /\ list[j].entry = list[k].entry
      parts == [k \in DOMAIN list |-> PartOf(list[k].entry, list[k].leaves)]
  IN IF is_wrong \/ is_twice THEN Refused(s) ELSE Requested(s, RecordOf("ack", FALSE, txn, parts), 0)

\* What is left of the entry must be the end of its batch.
AfterAckCumulative(s, txn, n, leaves) ==
  LET part == PartOf(n, leaves)
      is_wrong == IsWrongSet(n, leaves) \/ (part.leaves # None /\ part.leaves # Least(part.leaves)..SizeOf(n) - 1)
  IN IF is_wrong THEN Refused(s) ELSE Requested(s, RecordOf("ack", TRUE, txn, <<part>>), 0)

AfterEnd(s, op, txn, mark) == Requested(s, RecordOf(op, FALSE, txn, <<>>), mark)

-----------------------------------------------------------------------------
(* The subscription. *)

\* A consumer acknowledges outside of transactions; nobody asks what is pending.
AfterAcknowledge(s, n, leaves) ==
  IF IsWrongSet(n, leaves) THEN Refused(s) ELSE Done([s EXCEPT !.acks = WithParts(@, {PartOf(n, leaves)})])
AfterPersist(s) == Done([s EXCEPT !.durable = s.acks])

-----------------------------------------------------------------------------
(* What an end takes along: [parts, claim]. *)

TakenBy(s, end, is_replayed) ==
  LET is_anybodys == is_replayed /\ end.cumulative /\ ~replayed_ends_have_owners
      claim == IF s.cumulative = None THEN None
               ELSE IF s.cumulative.txn = end.txn \/ is_anybodys THEN s.cumulative ELSE None
      hides == cumulative_acks_hide_others
  IN [parts |-> IF hides /\ end.cumulative THEN {} ELSE HeldBy(s, end.txn),
      claim |-> IF hides /\ ~end.cumulative THEN None ELSE claim]

WithoutEnded(s, txn, ended) ==
  [s EXCEPT !.held = IF ended.parts # {} THEN Released(@, txn) ELSE @,
            !.cumulative = IF ended.claim # None THEN None ELSE @]

Acknowledged(s, ended) ==
  LET Further(a) == IF ended.claim = None THEN a ELSE WithAllUpTo(a, ended.claim.part)
  IN [s EXCEPT !.acks = With(WithParts(@, ended.parts), Further)]

-----------------------------------------------------------------------------
(* The log. *)

AfterFlush(s) ==
  IF s.buffer = <<>> THEN Refused(s) ELSE Done([s EXCEPT !.buffer = <<>>, !.in_flight = Append(@, s.buffer)])

Pending(s, ack) ==
  IF ack.cumulative THEN [s EXCEPT !.cumulative = [txn |-> ack.txn, part |-> ack.parts[1]]]
  ELSE [s EXCEPT !.held = Holding(@, ack.txn, Members(ack.parts))]

\* The transactions that are to be aborted, in order, because they have ended and hold something all the same.
Stale(s) ==
  LET holders == [k \in DOMAIN s.held |-> s.held[k].txn]
      ending == {c \in Members(OnTheWay(s)) : c.record.op = "abort"}
      is_busy == \E c \in ending : c.ticket = 0
      others == IF s.cumulative = None THEN <<>>
                ELSE IF s.cumulative.txn \in Members(holders) THEN <<>> ELSE <<s.cumulative.txn>>
      IsDue(txn) == txn <= s.low_watermark
      IsLeft(txn) == IsDue(txn) /\ \A c \in ending : c.record.txn # txn
  IN IF low_watermark_aborts = "from_the_first"
     THEN IF is_busy \/ holders = <<>> THEN <<>> ELSE SelectSeq(<<holders[1]>>, IsDue)
     ELSE SelectSeq(holders \o others, IsLeft)

RECURSIVE WithAborts(_, _)
WithAborts(s, txns) ==
  LET call == CallOf(0, RecordOf("abort", FALSE, txns[1], <<>>), s.low_watermark)
      Rest(found) == WithAborts(found.s, Tail(txns))
  IN IF txns = <<>> THEN s ELSE With(Appended(s, call), Rest)

\* Transactions up to the highest low watermark have ended: those that hold anything are aborted. As shipped, only after
\* an end of what was acknowledged message by message.
WithLowWatermark(s, mark, has_parts) ==
  LET Raised(after) == WithAborts(after, Stale(after))
  IN IF low_watermark_aborts = "from_the_first" /\ ~has_parts THEN s
     ELSE With([s EXCEPT !.low_watermark = IF mark > @ THEN mark ELSE @], Raised)

\* An acknowledgement is in the log: it is pending, unless it is only now found to be a conflict.
AckedBy(s, ack) ==
  LET Told(after, told) == [s |-> after, told |-> told, redelivered |-> {}]
      is_late == conflicts_are_found = "in_the_log"
  IN IF is_late /\ Conflicts(s, ack) THEN Told(s, "conflict")
     ELSE IF is_late /\ ~ack.cumulative /\ IsNeverAnswered(s, ack) THEN Told(s, "")
     ELSE Told(Pending(s, ack), "done")

\* A record is in the log: what changes, what its caller is told (nothing, as shipped), what is redelivered.
CalledBack(s, call, refuses) ==
  LET r == call.record
      Ended(ended) ==
        LET holds == ended.parts # {} \/ ended.claim # None
            Told(after) == [s |-> WithLowWatermark(after, call.low_watermark, ended.parts # {}), told |-> "done",
                            redelivered |-> IF r.op = "abort" THEN ToRedeliver(after, ended.parts, ended.claim) ELSE {}]
            is_taken == r.op = "commit" /\ (~refuses \/ ~holds)
            is_kept == r.op = "commit" /\ ~is_taken /\ refused_commits # "are_forgotten"
            Acked(after) == IF is_taken THEN Acknowledged(after, ended) ELSE after
        IN IF is_kept
           THEN [s |-> [s EXCEPT !.status = IF refused_commits = "open_anew" THEN "error" ELSE "ready"],
                 told |-> "failed", redelivered |-> {}]
           ELSE With(Acked(WithoutEnded(s, r.txn, ended)), Told)
  IN IF r.op = "ack" THEN AckedBy(s, r) ELSE With(TakenBy(s, r, FALSE), Ended)

\* The store serves no longer: memory is gone, and those who wait in the buffer or the queue are told.
StoppedAs(s, found) == [WithoutMemory(s) EXCEPT !.status = found, !.queue = <<>>, !.buffer = <<>>]
FailureOfWaiting(s) == FailureOf(s.queue \o s.buffer)

RecordsOf(calls) == [k \in DOMAIN calls |-> calls[k].record]

\* The first entry in flight is not in flight any more, and perhaps in the log.
Logged(s, is_logged) ==
  [s EXCEPT !.in_flight = Tail(@), !.log = IF is_logged THEN Append(@, RecordsOf(s.in_flight[1])) ELSE @]

\* The calls are called back one after the other, as long as the store serves.
RECURSIVE CalledBackAll(_, _, _)
CalledBackAll(found, calls, refuses) ==
  LET call == calls[1]
      Rest(back) == CalledBackAll([s |-> back.s, answers |-> found.answers \cup AnswerOf(call, back.told),
                                   redelivered |-> found.redelivered \cup back.redelivered], Tail(calls), refuses)
  IN IF calls = <<>> THEN found
     ELSE IF found.s.status # "ready" THEN [found EXCEPT !.answers = @ \cup FailureOf(calls)]
     ELSE With(CalledBack(found.s, call, refuses), Rest)

\* The first entry in flight is in the log; the cursor may refuse what it commits.
AfterCompleted(s, refuses) ==
  LET Ended(found) ==
        LET Trimmed(kept) == Effects(kept.s, found.answers, found.redelivered, kept.gone)
        IN IF found.s.status = "ready"
           THEN With(Indexed(found.s, Last(found.s.log), Len(found.s.log) - 1), Trimmed)
           ELSE IF s.status # "ready" THEN Effects(found.s, found.answers, found.redelivered, 0)
           ELSE Effects(StoppedAs(found.s, "error"), found.answers \cup FailureOfWaiting(found.s),
                        found.redelivered, 0)
  IN IF s.in_flight = <<>> THEN Refused(s)
     ELSE With(CalledBackAll([s |-> Logged(s, TRUE), answers |-> {}, redelivered |-> {}], s.in_flight[1], refuses),
               Ended)

\* As shipped: an acknowledgement whose append failed is pending, and nobody asks whether it is a conflict.
RECURSIVE ChangedAllTheSame(_, _, _)
ChangedAllTheSame(s, calls, answers) ==
  LET ack == calls[1].record
      is_further == s.cumulative = None \/ (s.cumulative # None /\ s.cumulative.txn = ack.txn
                                              /\ IsFurther(ack.parts[1], s.cumulative.part))
      is_lost == ack.op = "ack" /\ ~ack.cumulative /\ IsNeverAnswered(s, ack)
      changes == ack.op = "ack" /\ ~is_lost /\ (ack.cumulative => is_further)
      Rest(after) ==
        ChangedAllTheSame(after, Tail(calls), answers \cup AnswerOf(calls[1], IF is_lost THEN "" ELSE "failed"))
  IN IF calls = <<>> THEN Effects(s, answers, {}, 0) ELSE With(IF changes THEN Pending(s, ack) ELSE s, Rest)

AfterFailure(s, is_durable) ==
  LET calls == s.in_flight[1]
      Ended(after) ==
        IF s.status # "ready" THEN Effects(after, FailureOf(calls), {}, 0)
        ELSE IF failed_appends = "change_memory" THEN ChangedAllTheSame(after, calls, {})
        ELSE Effects(StoppedAs(after, "error"), FailureOf(calls) \cup FailureOfWaiting(after), {}, 0)
  IN IF s.in_flight = <<>> THEN Refused(s) ELSE With(Logged(s, is_durable), Ended)

-----------------------------------------------------------------------------
(* Replay. *)

IsClaimed(s, ack) ==
  \/ IsNeverAnswered(s, ack)
  \/ \E k \in DOMAIN ack.parts :
       \E claim \in Compared(ClaimsOn(s, ack.parts[k].entry)) :
         ack.parts[k].leaves = None \/ Overlaps(ack.parts[k], claim)

\* An acknowledgement message by message: what of it is not durable in the cursor is pending again.
WithIndividual(s, ack) ==
  LET left == {p \in Members(ack.parts) : ~(MessagesOf(p) \subseteq AckedOf(s.durable, p.entry))}
  IN IF recovery_drops = "the_whole_record"
     THEN IF Conflicts(s, ack) \/ IsNeverAnswered(s, ack) THEN s ELSE Pending(s, ack)
     ELSE IF conflicts_are_found = "in_the_log" /\ IsClaimed(s, ack) THEN s
     ELSE [s EXCEPT !.held = Holding(@, ack.txn, left)]

\* A cumulative acknowledgement: pending again, unless the durable mark has passed its entry.
WithCumulative(s, ack) ==
  LET part == ack.parts[1]
      other == s.cumulative
      is_dropped == recovery_drops = "the_whole_record" /\ Conflicts(s, ack)
      is_refused == conflicts_are_found = "in_the_log" /\ other # None
                      /\ (other.txn # ack.txn \/ ~IsFurther(part, other.part))
      found == IF recovery_keeps_cumulative_sets THEN part ELSE [part EXCEPT !.leaves = None]
  IN IF is_dropped \/ part.entry < s.durable.mark \/ is_refused THEN s
     ELSE [s EXCEPT !.cumulative = [txn |-> ack.txn, part |-> found]]

Replayed(s, r) ==
  LET Ended(ended) ==
        LET after == WithoutEnded(s, r.txn, ended) IN IF r.op = "commit" THEN Acknowledged(after, ended) ELSE after
  IN IF r.op = "ack" THEN IF r.cumulative THEN WithCumulative(s, r) ELSE WithIndividual(s, r)
     ELSE With(TakenBy(s, r, TRUE), Ended)

RECURSIVE ReplayedAll(_, _)
ReplayedAll(s, records) ==
  LET Rest(after) == ReplayedAll(after, Tail(records))
  IN IF records = <<>> THEN s ELSE With(Replayed(s, records[1]), Rest)

IsRead(s) == s.progress = Len(s.log)
IsReading(s) == s.status = "initializing" /\ ~IsRead(s)

AfterReadEntry(s) ==
  LET at == s.read
      Ended(after) ==
        With(Indexed([after EXCEPT !.read = at + 1, !.progress = at + 1, !.attempts = 0], s.log[at + 1], at),
             LAMBDA found : Effects(found.s, {}, {}, found.gone))
  IN IF ~IsReading(s) THEN Refused(s)
     ELSE IF at >= Len(s.log) THEN Failed(s)
     ELSE With(ReplayedAll(s, s.log[at + 1]), Ended)

\* The requests that have waited come to the log, in order.
RECURSIVE AppendedAll(_, _, _)
AppendedAll(s, calls, answers) ==
  LET Rest(found) ==
        AppendedAll(found.s, Tail(calls),
                    answers \cup {a \in AnswerOf(calls[1], found.told) : a.told # "waits"})
  IN IF calls = <<>> THEN Effects(s, answers, {}, 0) ELSE With(Appended(s, calls[1]), Rest)

\* The store is ready.
AfterOpened(s) ==
  AppendedAll([s EXCEPT !.status = "ready", !.progress = 0, !.attempts = 0, !.queue = <<>>,
                        !.read = IF replay_begins_at_the_mark THEN 0 ELSE @], s.queue, {})

AfterReplayed(s) == IF s.status = "initializing" /\ IsRead(s) THEN AfterOpened(s) ELSE Refused(s)

AfterStopped(s, found) == Effects(StoppedAs(s, found), FailureOfWaiting(s), {}, 0)

\* A read fails: for good, or it is tried again, so many times.
AfterReadFailure(s, stops) ==
  IF ~IsReading(s) THEN Refused(s)
  ELSE IF stops /\ ~stopped_replay_fails THEN AfterOpened(s)
  ELSE IF stops \/ s.attempts + 1 = read_attempts THEN AfterStopped(s, "error")
  ELSE Done([s EXCEPT !.attempts = IF read_attempts = 0 THEN @ ELSE @ + 1])

-----------------------------------------------------------------------------
(* The end, and the beginning. *)

AfterOpening(s) ==
  IF s.status \in {"initializing", "ready"} \/ s.in_flight # <<>> THEN Refused(s) ELSE Done(Begun(s))

AfterClosing(s) == IF s.status \in {"initializing", "ready"} THEN AfterStopped(s, "closed") ELSE Refused(s)

\* Memory is lost; of the entries in flight so many are in the log all the same.
AfterCrash(s, survive) ==
  LET came == [k \in 1..survive |-> RecordsOf(s.in_flight[k])]
  IN IF survive > Len(s.in_flight) THEN Refused(s)
     ELSE Done([WithoutMemory(s) EXCEPT !.acks = s.durable, !.log = @ \o came, !.read = 0, !.status = "none",
                                        !.queue = <<>>, !.buffer = <<>>, !.in_flight = <<>>])

-----------------------------------------------------------------------------
(* Steps. *)

\* The calls, their tickets numbered after this one.
Numbered(calls, last) ==
  [k \in DOMAIN calls |->
     IF IsAsked(calls[k]) THEN [calls[k] EXCEPT !.ticket = last + AskedIn(SubSeq(calls, 1, k))] ELSE calls[k]]

\* The state after an action; one that is refused, or fails, changes nothing.
Become(given) ==
  \E result \in {given} :
    LET s == result.s
        last == AskedIn(Joined(s.in_flight))
    IN /\ result.outcome = "done"
       /\ acks' = s.acks
       /\ durable' = s.durable
       /\ log' = s.log
       /\ read' = s.read
       /\ log_index' = s.log_index
       /\ status' = s.status
       /\ progress' = s.progress
       /\ attempts' = s.attempts
       /\ in_flight' = [k \in DOMAIN s.in_flight |->
                          Numbered(s.in_flight[k], AskedIn(Joined(SubSeq(s.in_flight, 1, k - 1))))]
       /\ buffer' = Numbered(s.buffer, last)
       /\ queue' = Numbered(s.queue, last + AskedIn(s.buffer))
       /\ held' = s.held
       /\ cumulative' = s.cumulative
       /\ low_watermark' = s.low_watermark

Init == /\ acks = Nothing
        /\ durable = Nothing
        /\ log = <<>>
        /\ read = 0
        /\ log_index = NoIndex
        /\ status = "none"
        /\ progress = 0
        /\ attempts = 0
        /\ queue = <<>>
        /\ buffer = <<>>
        /\ in_flight = <<>>
        /\ held = <<>>
        /\ cumulative = None
        /\ low_watermark = 0

AckIndividual ==
  \E txn \in ack_individual_txn, list \in ack_individual_acks : Become(AfterAckIndividual(Contents, txn, list))
AckCumulative ==
  \E txn \in ack_cumulative_txn, n \in ack_cumulative_entry, leaves \in ack_cumulative_leaves :
    Become(AfterAckCumulative(Contents, txn, n, leaves))
Commit ==
  \E txn \in commit_txn, mark \in commit_low_watermark : Become(AfterEnd(Contents, "commit", txn, mark))
Abort == \E txn \in abort_txn, mark \in abort_low_watermark : Become(AfterEnd(Contents, "abort", txn, mark))
Acknowledge ==
  \E n \in acknowledge_entry, leaves \in acknowledge_leaves : Become(AfterAcknowledge(Contents, n, leaves))
Persist == Become(AfterPersist(Contents))
Flush == Become(AfterFlush(Contents))
Written == Become(AfterCompleted(Contents, FALSE))
CursorRefuses == Become(AfterCompleted(Contents, TRUE))
WriteFails == \E is_durable \in write_fails_durable : Become(AfterFailure(Contents, is_durable))
OpenStore == Become(AfterOpening(Contents))
ReadEntry == Become(AfterReadEntry(Contents))
EndReplay == Become(AfterReplayed(Contents))
ReadFails == \E stops \in read_fails_stops : Become(AfterReadFailure(Contents, stops))
Close == Become(AfterClosing(Contents))
Crash == \E survive \in crash_survive : Become(AfterCrash(Contents, survive))

-----------------------------------------------------------------------------
(* Bounds. *)

LogRecordsAtMost(n) == Len(Joined(log)) <= n
OnTheWayAtMost(n) == Len(Joined(in_flight)) + Len(buffer) + Len(queue) <= n
RecordsAtMost(n) == Len(Joined(log)) + Len(Joined(in_flight)) + Len(buffer) + Len(queue) <= n
=============================================================================
