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

InRequests(Holds(_)) ==
  /\ \A txn \in ack_individual_txn, list \in ack_individual_acks : Holds(AfterAckIndividual(Contents, txn, list))
  /\ \A txn \in ack_cumulative_txn, n \in ack_cumulative_entry, ack_set \in ack_cumulative_ack_set :
       Holds(AfterAckCumulative(Contents, txn, n, ack_set))
  /\ \A txn \in commit_txn, watermark \in commit_low_watermark : Holds(AfterEnd(Contents, "commit", txn, watermark))
  /\ \A txn \in abort_txn, watermark \in abort_low_watermark : Holds(AfterEnd(Contents, "abort", txn, watermark))

\* The requests whose records become durable in a ready handle.
Appending == IF status = "ready" /\ in_flight # <<>> THEN in_flight[1] ELSE <<>>
InAppends(Holds(_)) == \A rejects \in {TRUE, FALSE} : Holds(AfterCompleted(Contents, rejects))
InReads(Holds(_)) == IsReading(Contents) /\ read_position < Len(log) => Holds(AfterReadEntry(Contents))
InReadFailures(Holds(_)) ==
  IsReading(Contents) => \A stops \in read_fails_stops : Holds(AfterReadFailure(Contents, stops))
InFailures(Holds(_)) ==
  in_flight # <<>> => \A is_durable \in write_fails_durable : Holds(AfterFailure(Contents, is_durable))
InOthers(Holds(_)) ==
  /\ Holds(AfterFlush(Contents))
  /\ Holds(AfterOpening(Contents))
  /\ Holds(AfterEndReplay(Contents))
  /\ Holds(AfterClosing(Contents))

\* The result of a request, empty if it does not complete.
ResultOf(after, number) ==
  LET replies == {a \in after.replies : a.number = number} IN IF replies = {} THEN "" ELSE TheOne(replies).result

-----------------------------------------------------------------------------
(* The records of the appended entry: what the k-th finds. *)

\* The k-th record is applied, as its result says.
IsApplied(after, k) ==
  LET HasFailed(j) == ResultOf(after, Appending[j].number) = "failed"
  IN IF HasCaller(Appending[k]) THEN ResultOf(after, Appending[k].number) = "done"
     ELSE after.s.status = "ready" \/ \A j \in 1..k - 1 : ~HasFailed(j)
AppliedOf(after, op) == {k \in DOMAIN Appending : Appending[k].record.op = op /\ IsApplied(after, k)}

\* The pending acks before the k-th record.
RECURSIVE PendingAt(_, _)
PendingAt(after, k) ==
  LET Changed(memory) ==
        IF IsApplied(after, k - 1)
        THEN WithRecord([pending |-> memory, committed |-> {}], Appending[k - 1].record).pending ELSE memory
  IN IF k = 1 THEN InMemory(Contents) ELSE With(PendingAt(after, k - 1), Changed)
EndedAt(after, k) == OfTxn(PendingAt(after, k), Appending[k].record.txn)

\* The messages that the records before the k-th have acknowledged, unless the cursor rejects them.
AcknowledgedBefore(after, k, rejects) ==
  IF rejects THEN {}
  ELSE UNION {MessagesFrom(EndedAt(after, j), cursor.first_unacked, CountedBy) :
                j \in {j \in AppliedOf(after, "commit") : j < k}}

-----------------------------------------------------------------------------
(* Memory and the log. *)

\* Whenever the handle is ready, its pending acks are those that its log says, live and after a replay.
PendingAcksEqualReplayOfLog ==
  status = "ready" =>
    LET logged == Logged.pending
        memory == InMemory(Contents)
        Left(of, txn) == Unacknowledged(cursor, MessagesFrom(OfTxn(of, txn), cursor.first_unacked, CountedBy))
    IN \A txn \in DOMAIN logged \cup DOMAIN memory : Left(logged, txn) = Left(memory, txn)

\* Whenever the handle is ready, every message whose ack was committed is acknowledged.
CommittedAckStaysAcknowledged ==
  status = "ready" =>
    \A each \in Logged.committed : Unacknowledged(cursor, MessagesFrom(each, cursor.first_unacked, CountedBy)) = {}

\* A message is pending in at most one transaction, whatever the types of the acks (#4265).
MessageIsPendingInAtMostOneTransaction ==
  LET memory == InMemory(Contents)
      Of(txn) == MessagesFrom(memory[txn], 0, AckedBy)
  IN \A txn, other \in DOMAIN memory : txn < other => Of(txn) \cap Of(other) = {}

-----------------------------------------------------------------------------
(* Requests. *)

\* Every request completes exactly once, unless the broker crashes first.
EveryRequestCompletesExactlyOnce ==
  LET Open(s) == {r.number : r \in Members(OpenRequests(s))}
      Completed(after) == {a.number : a \in after.replies}
      Holds(after) ==
        /\ Open(after.s) \cup Completed(after) = 1..after.s.next_request - 1
        /\ Open(after.s) \cap Completed(after) = {}
        /\ Cardinality(Completed(after)) = Cardinality(after.replies)
        /\ Cardinality(Open(after.s)) = Len(OpenRequests(after.s))
      Crashed(after) == after.outcome = "refused" \/ OpenRequests(after.s) = <<>>
  IN /\ InRequests(Holds)
     /\ InAppends(Holds)
     /\ InFailures(Holds)
     /\ InOthers(Holds)
     /\ InReads(Holds)
     /\ InReadFailures(Holds)
     /\ \A survive \in crash_survive : Crashed(AfterCrash(Contents, survive))

\* A request that is rejected with a conflict has no record in the log.
RejectedAckIsNotLogged ==
  LET numbers == IF in_flight = <<>> THEN {} ELSE {r.number : r \in Members(in_flight[1])}
      Holds(after) == \A a \in after.replies : a.result = "conflict" => a.number \notin numbers
  IN InAppends(Holds)

\* When an individual ack completes, no message of it has a pending individual ack of another transaction.
AckedMessageIsPendingInOneTransactionOnly ==
  LET IsAlone(r, memory) ==
        LET others == UNION {memory[txn].individual : txn \in DOMAIN memory \ {r.txn}}
        IN r.cumulative \/ \A p \in Members(r.acks), q \in others : AckedBy(p) \cap AckedBy(q) = {}
      Holds(after) == \A k \in AppliedOf(after, "ack") : IsAlone(Appending[k].record, PendingAt(after, k))
  IN Appending # <<>> => Holds(AfterCompleted(Contents, FALSE))

\* All acks of completed commits are acknowledged and none is pending, but for later acks.
CommitsAreComplete(with_cumulative) ==
  LET IsComplete(after, memory, k) ==
        /\ Unacknowledged(after.s.cursor, MessagesFrom(EndedAt(after, k), cursor.first_unacked, CountedBy)) = {}
        /\ \/ Appending[k].record.txn \notin DOMAIN memory
           \/ \E j \in AppliedOf(after, "ack") : j > k /\ Appending[j].record.txn = Appending[k].record.txn
      Holds(after) ==
        \A k \in AppliedOf(after, "commit") :
          ~with_cumulative \/ (Appending[k].record.cumulative /\ EndedAt(after, k).cumulative # None) =>
            IsComplete(after, InMemory(after.s), k)
  IN Appending # <<>> => Holds(AfterCompleted(Contents, FALSE))

\* When a commit completes, all messages that its transaction had pending are acknowledged, and none is pending.
CompletedCommitHasAcknowledgedAllAcks == CommitsAreComplete(FALSE)

\* A commit of a transaction with individual and cumulative acks acknowledges both.
CommitCoversBothAckTypes == CommitsAreComplete(TRUE)

\* A commit acknowledges every entry whose batch indexes its transaction has all acked.
CommitOfEveryBatchIndexDeletesEntry ==
  LET WholeOf(pending) == {p.entry : p \in {p \in pending.individual : p.ack_set \in {None, {}}}}
      Holds(after) ==
        \A k \in AppliedOf(after, "commit") :
          \A n \in WholeOf(EndedAt(after, k)) : AckedOf(after.s.cursor, n) = AllOf(n)
  IN Appending # <<>> /\ cumulative_ack = None /\ (\A r \in Members(Appending) : ~r.record.cumulative) =>
       Holds(AfterCompleted(Contents, FALSE))

\* A commit of a transaction with pending acks completes only after its record is durable.
CommitCompletesAfterRecordIsDurable ==
  \A txn \in DOMAIN InMemory(Contents) \cap commit_txn, watermark \in commit_low_watermark :
    AfterEnd(Contents, "commit", txn, watermark).replies = {}

\* After an append with unknown outcome, the handle takes no request until a replay has read the log.
FailedAppendClosesStore ==
  LET Holds(after) == after.s.status \notin {"ready", "initializing"} IN InFailures(Holds)

\* A commit whose acks the cursor rejects fails, and its acks are not lost.
RejectedCommitDoesNotComplete ==
  LET Holds(after) ==
        \A k \in AppliedOf(after, "commit") :
          Unacknowledged(after.s.cursor, MessagesFrom(EndedAt(after, k), cursor.first_unacked, CountedBy)) = {}
  IN Appending # <<>> => Holds(AfterCompleted(Contents, TRUE))

-----------------------------------------------------------------------------
(* Aborts. *)

Redelivered(after) == UNION {InEntry(each.entry, each.messages) : each \in after.redelivered}

\* The messages that only the aborted transaction had pending and that are not acknowledged.
ReleasedAt(after, k, rejects) ==
  LET memory == PendingAt(after, k)
      Of(pending) == MessagesFrom(pending, cursor.first_unacked, AckedBy)
      others == UNION {Of(memory[txn]) : txn \in DOMAIN memory \ {Appending[k].record.txn}}
  IN Unacknowledged(cursor, Of(EndedAt(after, k))) \ (others \cup AcknowledgedBefore(after, k, rejects))

\* Aborts of transactions with, or without, a cumulative ack redeliver all that they release, and nothing else.
IsRedelivered(with_cumulative) ==
  LET Holds(after, rejects) ==
        LET released == UNION {ReleasedAt(after, k, rejects) : k \in AppliedOf(after, "abort")}
            Given(messages) ==
              \A k \in AppliedOf(after, "abort") :
                (EndedAt(after, k).cumulative # None) = with_cumulative =>
                  ReleasedAt(after, k, rejects) \subseteq messages /\ messages \subseteq released
        IN Given(Redelivered(after))
  IN Appending # <<>> => \A rejects \in {TRUE, FALSE} : Holds(AfterCompleted(Contents, rejects), rejects)

AbortedAcksAreRedelivered == IsRedelivered(FALSE)
AbortedCumulativeAckIsRedelivered == IsRedelivered(TRUE)

\* After a commit or abort, each pending transaction at or below the low watermark has an abort on its way.
TransactionsBelowLowWatermarkAreAborted ==
  LET EndsOf(after) == AppliedOf(after, "commit") \cup AppliedOf(after, "abort")
      \* transactions without acks at the last commit or abort
      NewSince(after, last) ==
        {Appending[k].record.txn : k \in {k \in AppliedOf(after, "ack") : k > last}} \ DOMAIN PendingAt(after, last + 1)
      Holds(after) ==
        after.s.status = "ready" /\ EndsOf(after) # {} =>
          LET aborting == {r.record.txn : r \in {r \in Members(Unlogged(after.s)) : r.record.op = "abort"}}
              watermarks == {Appending[k].low_watermark : k \in EndsOf(after)}
          IN \A txn \in DOMAIN InMemory(after.s) \ NewSince(after, Greatest(EndsOf(after))) :
               txn > Greatest(watermarks \cup {after.s.low_watermark}) \/ txn \in aborting
  IN Appending # <<>> => InAppends(Holds)

-----------------------------------------------------------------------------
(* The log and its index. *)

\* An ack record is deleted only when its entries are before the durable mark-delete position, or it was aborted.
DeletedRecordsAreDurablyAcknowledged ==
  LET Count(records, r) == Cardinality({k \in DOMAIN records : records[k] = r})
      IsNeeded(old, k) ==
        LET ends == {j \in k..Len(old) : old[j].txn = old[k].txn /\ old[j].op # "ack"}
        IN /\ \E n \in EntriesOf(<<old[k]>>) : n >= durable_cursor.first_unacked
           /\ ends = {} \/ old[Least(ends)].op = "commit"
      Keeps(old, new) == \A k \in DOMAIN old : IsNeeded(old, k) => Count(new, old[k]) = Count(old, old[k])
      Appended1(after) == Keeps(Joined(log) \o RecordsOf(in_flight[1]), Joined(after.s.log))
      Kept(after) == Keeps(Joined(log), Joined(after.s.log))
  IN (in_flight # <<>> => InAppends(Appended1)) /\ InReads(Kept) /\ InOthers(Kept)

Keys == log_index.keys
RecordsIn(from, to) == Len(Joined(SubSeq(log, from + 1, to)))

\* No record up to a key's log position acks an entry after the key's position of the topic.
LogIndexKeyCoversAllEarlierEntries ==
  \A k \in DOMAIN Keys :
    \A n \in EntriesOf(Joined(SubSeq(log, 1, Keys[k].log_position + 1))) : n <= Keys[k].ack_position

\* The current lag is the number of records after the last key that were applied or replayed.
LagCountsRecordsAfterLastKey ==
  status \in {"ready", "initializing"} =>
    log_index.current_lag = RecordsIn(IF Keys = <<>> THEN 0 ELSE Last(Keys).log_position + 1,
                                      IF status = "ready" THEN Len(log) ELSE replayed)

-----------------------------------------------------------------------------
(* Replay. *)

\* A handle whose log was not read to its end does not become ready.
StoppedReplayFails == LET Holds(after) == after.s.status # "ready" IN InReadFailures(Holds)

\* Each failed read is counted, and the configured number of consecutive ones fails the replay.
FailedReadsAreBounded ==
  LET Holds(after) ==
        after.s.status = "initializing" =>
          after.s.failed_reads = failed_reads + 1 /\ after.s.failed_reads < max_failed_reads
  IN InReadFailures(Holds)

\* As long as a replay is not complete, there is an entry to read.
ReplayStepReadsAnEntry == IsReading(Contents) => AfterReadEntry(Contents).outcome # "failed"

\* A replayed commit or abort does not change the pending acks of other transactions.
ReplayedEndAppliesToItsTransactionOnly ==
  LET old == InMemory(Contents)
      txns == {r.txn : r \in Members(log[read_position + 1])}
      Holds(after) == \A txn \in DOMAIN old \ txns : OfTxn(InMemory(after.s), txn) = old[txn]
  IN InReads(Holds)

\* Replay drops a position of an individual ack only if the cursor has acknowledged messages of that entry.
ReplayDropsOnlyAcknowledgedPositions ==
  LET r == log[read_position + 1][1]
      asked == {p.entry : p \in Members(r.acks)}
      pending == {p.entry : p \in UNION {t.acks : t \in Members(individual_acks)}}
      is_alone == /\ asked \cap pending = {}
                  /\ cumulative_ack = None \/ \A n \in asked : n > cumulative_ack.ack.entry
      left == {n \in asked : AckedOf(cursor, n) = {}}
      Holds(after) ==
        Len(log[read_position + 1]) = 1 /\ r.op = "ack" /\ ~r.cumulative /\ is_alone =>
          left \subseteq {p.entry : p \in AcksOf(after.s, r.txn)}
  IN InReads(Holds)

\* A replayed cumulative ack is for exactly the messages that its record names.
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
