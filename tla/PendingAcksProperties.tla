------------------------- MODULE PendingAcksProperties -------------------------
(*****************************************************************************)
(* Invariants and liveness of a pending-ack handle: those of                 *)
(* invariants/pending_acks that a broker engineer would name first, under    *)
(* the same names.                                                           *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.  A message *)
(* is <<entry, batch index>>.                                                *)
(*****************************************************************************)
EXTENDS PendingAcks

-----------------------------------------------------------------------------
(* Messages. *)

InEntry(n, indexes) == {<<n, i>> : i \in indexes}

\* The messages that an ack acks; those that its commit acknowledges in the cursor, which may store no ack sets.
AckedBy(ack) == InEntry(ack.entry, MessagesOf(ack))
CountedBy(ack) ==
  IF ack.ack_set = None \/ ack.ack_set = {} THEN InEntry(ack.entry, AllMessages(ack.entry))
  ELSE IF batch_index_acks THEN AckedBy(ack) ELSE {}

Unacknowledged(a, messages) == {each \in messages : each[2] \notin AckedMessages(a, each[1])}

\* The pending acks of a transaction are [individual, cumulative].  Their messages from entry `first` on.
NothingPending == [individual |-> {}, cumulative |-> None]
MessagesFrom(pending, first, Of(_)) ==
  UNION {Of(ack) : ack \in pending.individual}
    \cup (IF pending.cumulative = None THEN {}
          ELSE UNION {InEntry(n, AllMessages(n)) : n \in first..pending.cumulative.entry - 1}
                 \cup Of(pending.cumulative))

\* The pending acks in memory: a function whose domain are the transactions that have pending acks.
InMemory(s) ==
  LET owner == IF s.cumulative_ack = None THEN {} ELSE {s.cumulative_ack.txn}
  IN [txn \in {t.txn : t \in Members(s.individual_acks)} \cup owner |->
        [individual |-> AcksOf(s, txn), cumulative |-> IF txn \in owner THEN s.cumulative_ack.ack ELSE None]]

\* The pending acks of one transaction in such a function.
OfTxn(memory, txn) == IF txn \in DOMAIN memory THEN memory[txn] ELSE NothingPending

\* The pending acks as the log describes them, a function as above, and the acks of every commit: [pending, committed].
WithRecord(logged, r) ==
  LET old == OfTxn(logged.pending, r.txn)
      new == IF r.cumulative THEN [old EXCEPT !.cumulative = r.acks[1]]
             ELSE [old EXCEPT !.individual = Merged(@, Members(r.acks))]
      is_commit == r.op = "commit" /\ r.txn \in DOMAIN logged.pending
  IN IF r.op = "ack"
     THEN [logged EXCEPT !.pending = [txn \in DOMAIN @ \cup {r.txn} |-> IF txn = r.txn THEN new ELSE @[txn]]]
     ELSE [pending |-> [txn \in DOMAIN logged.pending \ {r.txn} |-> logged.pending[txn]],
           committed |-> logged.committed \cup (IF is_commit THEN {old} ELSE {})]
RECURSIVE WithRecords(_, _)
WithRecords(logged, records) ==
  LET Rest(after) == WithRecords(after, Tail(records))
  IN IF records = <<>> THEN logged ELSE With(WithRecord(logged, records[1]), Rest)
Logged == WithRecords([pending |-> <<>>, committed |-> {}], Joined(log))

-----------------------------------------------------------------------------
(* Steps: whether Holds(result) for the action with each of its arguments. *)

InReads(Holds(_)) == IsReading(Contents) /\ read_position < Len(log) => Holds(AfterReadEntry(Contents))
InReadFailures(Holds(_)) ==
  IsReading(Contents) => \A stops \in read_fails_stops : Holds(AfterReadFailure(Contents, stops))
InFailures(Holds(_)) ==
  in_flight # <<>> => \A is_durable \in write_fails_durable : Holds(AfterFailure(Contents, is_durable))

-----------------------------------------------------------------------------
(* Memory and the log. *)

\* A ready handle has the pending acks of its log, except for messages that the cursor has acknowledged.
PendingAcksEqualReplayOfLog ==
  status = "ready" =>
    LET logged == Logged.pending
        memory == InMemory(Contents)
        Left(of, txn) == Unacknowledged(cursor, MessagesFrom(OfTxn(of, txn), cursor.first_unacked, CountedBy))
    IN \A txn \in DOMAIN logged \cup DOMAIN memory : Left(logged, txn) = Left(memory, txn)

\* While the handle is ready, the cursor has acknowledged the messages of every commit in the log.
CommittedAckStaysAcknowledged ==
  status = "ready" =>
    \A each \in Logged.committed : Unacknowledged(cursor, MessagesFrom(each, cursor.first_unacked, CountedBy)) = {}

\* No message is pending in two transactions, whatever the ack types.
MessageIsPendingInAtMostOneTransaction ==
  LET memory == InMemory(Contents)
      Of(txn) == MessagesFrom(memory[txn], 0, AckedBy)
  IN \A txn, other \in DOMAIN memory : txn < other => Of(txn) \cap Of(other) = {}

-----------------------------------------------------------------------------
(* Requests. *)

\* The future of a commit of pending acks does not complete with the request: its record must become durable first.
CommitCompletesAfterRecordIsDurable ==
  \A txn \in DOMAIN InMemory(Contents) \cap commit_txn, watermark \in commit_low_watermark :
    AfterEnd(Contents, "commit", txn, watermark).replies = {}

\* After a failed append the handle is not open: the record may be durable, and only a replay finds that out.
FailedAppendClosesStore ==
  LET Holds(after) == after.s.status \notin {"ready", "initializing"} IN InFailures(Holds)

-----------------------------------------------------------------------------
(* The log and its index. *)

Keys == log_index.keys

\* No log entry up to a key acks an entry after the key's ack position.
LogIndexKeyCoversAllEarlierEntries ==
  \A k \in DOMAIN Keys :
    \A n \in EntriesOf(Joined(SubSeq(log, 1, Keys[k].log_position + 1))) : n <= Keys[k].ack_position

-----------------------------------------------------------------------------
(* Replay. *)

\* A replay whose reads fail does not make the handle ready.
StoppedReplayFails == LET Holds(after) == after.s.status # "ready" IN InReadFailures(Holds)

\* As long as a replay is not complete, there is an entry to read.
ReplayStepReadsAnEntry == IsReading(Contents) => AfterReadEntry(Contents).outcome # "failed"

\* A cumulative ack that a replay makes pending is one of the log, with its ack set.
ReplayedCumulativeAckKeepsItsAckSet ==
  LET Holds(after) ==
        LET new == after.s.cumulative_ack
            IsOf(r) == r.op = "ack" /\ r.cumulative /\ r.txn = new.txn /\ r.acks = <<new.ack>>
        IN new = None \/ new = cumulative_ack \/ \E r \in Members(Joined(log)) : IsOf(r)
  IN InReads(Holds)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: ReadEntry, EndReplay.  Every read processes an entry of the finite log, so the replay ends.
ReplayEnds == status # "initializing"

\* Fair: ReadFails.  After max_failed_reads failed reads in a row the replay fails.
ReplayWithFailingReadsEnds == status # "initializing" \/ replayed = Len(log)

\* Fair: Flush, Written, ReadEntry, EndReplay.  A replay makes the handle ready, which accepts the queued requests;
\* their records are flushed, and the appends succeed.
RequestsCompleteEventually == OpenRequests(Contents) = <<>>
=============================================================================
