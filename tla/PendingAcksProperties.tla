------------------------- MODULE PendingAcksProperties -------------------------
(*****************************************************************************)
(* Properties of a pending-ack handle, under the names of                    *)
(* invariants/pending_acks: some of its invariants, and all of its liveness  *)
(* properties.                                                               *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.  A message is <<entry, batch index>>.                  *)
(*****************************************************************************)
EXTENDS PendingAcks

-----------------------------------------------------------------------------
(* Messages. *)

InEntry(n, indexes) == {<<n, i>> : i \in indexes}

\* AckedBy: the messages that an ack acks.  CountedBy: those of them that the cursor must have after a
\* commit of the ack.  Without batch_index_acks, the cursor stores no ack sets.
AckedBy(ack) == InEntry(ack.entry, MessagesOf(ack))
CountedBy(ack) ==
  IF ack.ack_set = None \/ ack.ack_set = {} THEN InEntry(ack.entry, AllMessages(ack.entry))
  ELSE IF batch_index_acks THEN AckedBy(ack) ELSE {}

Unacknowledged(a, messages) == {each \in messages : each[2] \notin AckedMessages(a, each[1])}

\* The pending acks of a transaction are [individual, cumulative].  MessagesFrom: their messages; of a cumulative ack,
\* only those of its own entry, and of the entries from `first` on.  Of(ack) is AckedBy or CountedBy.
NothingPending == [individual |-> {}, cumulative |-> None]
MessagesFrom(pending, first, Of(_)) ==
  UNION {Of(ack) : ack \in pending.individual}
    \cup (IF pending.cumulative = None THEN {}
          ELSE UNION {InEntry(n, AllMessages(n)) : n \in first..pending.cumulative.entry - 1}
                 \cup Of(pending.cumulative))

\* The pending acks in memory, a function from the transactions that have pending acks.
InMemory(s) ==
  LET owner == IF s.cumulative_ack = None THEN {} ELSE {s.cumulative_ack.txn}
  IN [txn \in {t.txn : t \in Members(s.individual_acks)} \cup owner |->
        [individual |-> AcksOf(s, txn), cumulative |-> IF txn \in owner THEN s.cumulative_ack.ack ELSE None]]

\* The pending acks of one transaction in such a function.
OfTxn(memory, txn) == IF txn \in DOMAIN memory THEN memory[txn] ELSE NothingPending

\* Logged (below) is [pending, committed]: the pending acks that the log describes, a function like InMemory, and a set
\* with the acks of every commit.  WithRecord is Logged after one more record.
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

\* The pending acks of a ready handle are those that result from the records of the log, also after a replay.
\* Acknowledged messages are not compared; nor, without batch_index_acks, are batch-index acks (CountedBy).
PendingAcksEqualReplayOfLog ==
  status = "ready" =>
    LET logged == Logged.pending
        memory == InMemory(Contents)
        Left(of, txn) == Unacknowledged(cursor, MessagesFrom(OfTxn(of, txn), cursor.first_unacked, CountedBy))
    IN \A txn \in DOMAIN logged \cup DOMAIN memory : Left(logged, txn) = Left(memory, txn)

\* While the handle is ready, all messages that a commit in the log has committed are acknowledged.
CommittedAckStaysAcknowledged ==
  status = "ready" =>
    \A each \in Logged.committed : Unacknowledged(cursor, MessagesFrom(each, cursor.first_unacked, CountedBy)) = {}

\* A message is pending in at most one transaction, whatever the types of the acks (apache/pulsar#4265).
MessageIsPendingInAtMostOneTransaction ==
  LET memory == InMemory(Contents)
      Of(txn) == MessagesFrom(memory[txn], 0, AckedBy)
  IN \A txn, other \in DOMAIN memory : txn < other => Of(txn) \cap Of(other) = {}

-----------------------------------------------------------------------------
(* Requests. *)

\* A commit of a transaction with pending acks succeeds only after its record is durable.
CommitSucceedsOnlyAfterRecordIsDurable ==
  \A txn \in DOMAIN InMemory(Contents) \cap commit_txn, watermark \in commit_low_watermark :
    AfterCommitOrAbort(Contents, "commit", txn, watermark).replies = {}

\* After a failed append, the handle is neither ready nor initializing: it must be opened again.
HandleIsNotOpenAfterFailedAppend ==
  LET Holds(after) == after.s.status \notin {"ready", "initializing"} IN InFailures(Holds)

-----------------------------------------------------------------------------
(* The log and its index. *)

Keys == log_index.keys

\* No record up to a key's log_position acks an entry after the key's ack_position.
LogIndexKeyCoversAllEarlierEntries ==
  \A k \in DOMAIN Keys :
    \A n \in EntriesOf(Joined(SubSeq(log, 1, Keys[k].log_position + 1))) : n <= Keys[k].ack_position

-----------------------------------------------------------------------------
(* Replay. *)

\* A replay whose reads stop early does not make the handle ready.
StoppedReplayFails == LET Holds(after) == after.s.status # "ready" IN InReadFailures(Holds)

\* As long as a replay is not complete, there is an entry to read.
ReplayStepReadsAnEntry == IsReading(Contents) => AfterReadEntry(Contents).outcome # "failed"

\* A cumulative ack that a replay makes pending has the position and the ack set of a record of its transaction.
ReplayedCumulativeAckKeepsItsAckSet ==
  LET Holds(after) ==
        LET new == after.s.cumulative_ack
            IsOf(r) == r.op = "ack" /\ r.cumulative /\ r.txn = new.txn /\ r.acks = <<new.ack>>
        IN new = None \/ new = cumulative_ack \/ \E r \in Members(Joined(log)) : IsOf(r)
  IN InReads(Holds)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* Every replay ends if its reads succeed.
\* Fair: ReadEntry, EndReplay.  The log is finite, and every read processes one entry.
ReplayEnds == status # "initializing"

\* Every replay that has entries to read ends if every read fails.
\* Fair: ReadFails.  The replay fails after max_failed_reads consecutive failed reads.
ReplayWithFailingReadsEnds == status # "initializing" \/ replayed = Len(log)

\* Every request completes if buffers are flushed, appends succeed and replays continue.
\* Fair: Flush, Written, ReadEntry, EndReplay.  After its replay the handle is ready, and takes the queued requests.
RequestsCompleteEventually == OpenRequests(Contents) = <<>>
=============================================================================
