------------------------- MODULE PendingAcksProperties -------------------------
(***************************************************************************)
(* Guarantees of a pending-ack handle: those of                            *)
(* invariants/pending_acks/guarantees.py that a broker engineer would name *)
(* first, and all liveness properties.  A message is <<entry, index>>.     *)
(*                                                                         *)
(* A guarantee about a step is an invariant here: from every reachable     *)
(* state, the action with any of its arguments keeps it.                   *)
(***************************************************************************)
EXTENDS PendingAcks

-----------------------------------------------------------------------------
(* Messages. *)

InEntry(n, indexes) == {<<n, i>> : i \in indexes}

\* The messages of an ack; and those that a commit of it acknowledges.
AckedBy(ack) == InEntry(ack.entry, MessagesOf(ack))
CountedBy(ack) ==
  IF ack.ack_set = None \/ ack.ack_set = {} THEN InEntry(ack.entry, AllOf(ack.entry))
  ELSE IF batch_index_acks THEN AckedBy(ack) ELSE {}

Unacknowledged(a, messages) == {each \in messages : each[2] \notin AckedOf(a, each[1])}

\* Pending acks of a transaction, [individual, cumulative], and their messages from an entry on.
NothingPending == [individual |-> {}, cumulative |-> None]
MessagesFrom(pending, first, Of(_)) ==
  UNION {Of(ack) : ack \in pending.individual}
    \cup (IF pending.cumulative = None THEN {}
          ELSE UNION {InEntry(n, AllOf(n)) : n \in first..pending.cumulative.entry - 1} \cup Of(pending.cumulative))

\* The pending acks in memory, a function of transactions; those of any transaction.
InMemory(s) ==
  LET owner == IF s.cumulative_ack = None THEN {} ELSE {s.cumulative_ack.txn}
  IN [txn \in {t.txn : t \in Members(s.individual_acks)} \cup owner |->
        [individual |-> AcksOf(s, txn), cumulative |-> IF txn \in owner THEN s.cumulative_ack.ack ELSE None]]
OfTxn(memory, txn) == IF txn \in DOMAIN memory THEN memory[txn] ELSE NothingPending

\* What a log says, record by record: [pending, committed].
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
(* Steps: Holds(what the action does), for all arguments. *)

InReads(Holds(_)) == IsReading(Contents) /\ read_position < Len(log) => Holds(AfterReadEntry(Contents))
InReadFailures(Holds(_)) ==
  IsReading(Contents) => \A stops \in read_fails_stops : Holds(AfterReadFailure(Contents, stops))
InFailures(Holds(_)) ==
  in_flight # <<>> => \A is_durable \in write_fails_durable : Holds(AfterFailure(Contents, is_durable))

-----------------------------------------------------------------------------
(* Memory and the log. *)

PendingAcksEqualReplayOfLog ==
  status = "ready" =>
    LET logged == Logged.pending
        memory == InMemory(Contents)
        Left(of, txn) == Unacknowledged(cursor, MessagesFrom(OfTxn(of, txn), cursor.first_unacked, CountedBy))
    IN \A txn \in DOMAIN logged \cup DOMAIN memory : Left(logged, txn) = Left(memory, txn)

CommittedAckStaysAcknowledged ==
  status = "ready" =>
    \A each \in Logged.committed : Unacknowledged(cursor, MessagesFrom(each, cursor.first_unacked, CountedBy)) = {}

MessageIsPendingInAtMostOneTransaction ==
  LET memory == InMemory(Contents)
      Of(txn) == MessagesFrom(memory[txn], 0, AckedBy)
  IN \A txn, other \in DOMAIN memory : txn < other => Of(txn) \cap Of(other) = {}

-----------------------------------------------------------------------------
(* Requests. *)

CommitCompletesAfterRecordIsDurable ==
  \A txn \in DOMAIN InMemory(Contents) \cap commit_txn, watermark \in commit_low_watermark :
    AfterEnd(Contents, "commit", txn, watermark).replies = {}

FailedAppendClosesStore ==
  LET Holds(after) == after.s.status \notin {"ready", "initializing"} IN InFailures(Holds)

-----------------------------------------------------------------------------
(* The log and its index. *)

Keys == log_index.keys

LogIndexKeyCoversAllEarlierEntries ==
  \A k \in DOMAIN Keys :
    \A n \in EntriesOf(Joined(SubSeq(log, 1, Keys[k].log_position + 1))) : n <= Keys[k].ack_position

-----------------------------------------------------------------------------
(* Replay. *)

StoppedReplayFails == LET Holds(after) == after.s.status # "ready" IN InReadFailures(Holds)

\* As long as a replay is not complete, there is an entry to read.
ReplayStepReadsAnEntry == IsReading(Contents) => AfterReadEntry(Contents).outcome # "failed"

ReplayedCumulativeAckKeepsItsAckSet ==
  LET Holds(after) ==
        LET new == after.s.cumulative_ack
            IsOf(r) == r.op = "ack" /\ r.cumulative /\ r.txn = new.txn /\ r.acks = <<new.ack>>
        IN new = None \/ new = cumulative_ack \/ \E r \in Members(Joined(log)) : IsOf(r)
  IN InReads(Holds)

-----------------------------------------------------------------------------
(* Liveness, under the fairness of the actions that invariants/ names. *)

ReplayEnds == status # "initializing"
ReplayWithFailingReadsEnds == status # "initializing" \/ replayed = Len(log)
RequestsCompleteEventually == OpenRequests(Contents) = <<>>
=============================================================================
