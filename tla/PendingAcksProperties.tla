------------------------- MODULE PendingAcksProperties -------------------------
(***************************************************************************)
(* What a pending-ack store promises: the twin of                          *)
(* invariants/pending_acks/guarantees.py, under the same names.                       *)
(*                                                                         *)
(* The log is the truth: what it says is worked out here anew, message by  *)
(* message, and compared with what memory holds.  A message is             *)
(* <<entry, place in it>>.                                                 *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.                     *)
(***************************************************************************)
EXTENDS PendingAcks

-----------------------------------------------------------------------------
(* Messages. *)

InEntry(n, places) == {<<n, i>> : i \in places}

\* The messages of a part, where parts count and where they do not.
BitsOfPart(part) == InEntry(part.entry, MessagesOf(part))
CountedBits(part) ==
  IF part.leaves = None \/ part.leaves = {} THEN InEntry(part.entry, AllOf(part.entry))
  ELSE IF batch_acks THEN BitsOfPart(part) ELSE {}

\* Those of the messages that are not acknowledged.
NotAcked(a, bits) == {each \in bits : each[2] \notin AckedOf(a, each[1])}

\* What a transaction holds: [parts, cumulative]; and the messages of it from a mark on.
NotHeld == [parts |-> {}, cumulative |-> None]
Bits(h, mark, Of(_)) ==
  UNION {Of(p) : p \in h.parts}
    \cup (IF h.cumulative = None THEN {}
          ELSE UNION {InEntry(n, AllOf(n)) : n \in mark..h.cumulative.entry - 1} \cup Of(h.cumulative))

\* What each transaction holds in memory: a function of transactions; and that of any transaction.
InMemory(s) ==
  LET claim == IF s.cumulative = None THEN {} ELSE {s.cumulative.txn}
  IN [txn \in {h.txn : h \in Members(s.held)} \cup claim |->
        [parts |-> HeldBy(s, txn), cumulative |-> IF txn \in claim THEN s.cumulative.part ELSE None]]
OfTxn(memory, txn) == IF txn \in DOMAIN memory THEN memory[txn] ELSE NotHeld

\* What a log says, one record after the other: what each transaction holds, and what was committed.
WithSaid(said, r) ==
  LET old == OfTxn(said.holds, r.txn)
      new == IF r.cumulative THEN [old EXCEPT !.cumulative = r.parts[1]]
             ELSE [old EXCEPT !.parts = Merged(@, Members(r.parts))]
  IN IF r.op = "ack"
     THEN [said EXCEPT !.holds = [txn \in DOMAIN @ \cup {r.txn} |-> IF txn = r.txn THEN new ELSE @[txn]]]
     ELSE [holds |-> [txn \in DOMAIN said.holds \ {r.txn} |-> said.holds[txn]],
           committed |-> said.committed \cup (IF r.op = "commit" /\ r.txn \in DOMAIN said.holds THEN {old} ELSE {})]
RECURSIVE SaidBy(_, _)
SaidBy(said, records) ==
  LET Rest(after) == SaidBy(after, Tail(records))
  IN IF records = <<>> THEN said ELSE With(WithSaid(said, records[1]), Rest)
Said == SaidBy([holds |-> <<>>, committed |-> {}], Joined(log))

-----------------------------------------------------------------------------
(* Steps. *)

\* Holds(result) of the requests; Holds(result, calls) of what comes back, calls those that a store which serves
\* calls back.
InAcks(Holds(_, _, _, _)) ==
  /\ \A txn \in ack_individual_txn, list \in ack_individual_acks :
       Holds(txn, [k \in DOMAIN list |-> PartOf(list[k].entry, list[k].leaves)], FALSE,
             AfterAckIndividual(Contents, txn, list))
  /\ \A txn \in ack_cumulative_txn, n \in ack_cumulative_entry, leaves \in ack_cumulative_leaves :
       Holds(txn, <<PartOf(n, leaves)>>, TRUE, AfterAckCumulative(Contents, txn, n, leaves))
Ends ==
  {AfterEnd(Contents, "commit", txn, mark) : txn \in commit_txn, mark \in commit_low_watermark}
    \cup {AfterEnd(Contents, "abort", txn, mark) : txn \in abort_txn, mark \in abort_low_watermark}
InRequests(Holds(_)) ==
  LET OfAck(txn, parts, is_cumulative, after) == Holds(after)
  IN InAcks(OfAck) /\ \A after \in Ends : Holds(after)

Comes == IF status = "ready" /\ in_flight # <<>> THEN in_flight[1] ELSE <<>>
InCallbacks(Holds(_)) == \A refuses \in {TRUE, FALSE} : Holds(AfterCompleted(Contents, refuses))
InReads(Holds(_)) == IsReading(Contents) /\ read < Len(log) => Holds(AfterReadEntry(Contents))
InReadFailures(Holds(_)) ==
  IsReading(Contents) => \A stops \in read_fails_stops : Holds(AfterReadFailure(Contents, stops))
InFailures(Holds(_)) ==
  in_flight # <<>> => \A is_durable \in write_fails_durable : Holds(AfterFailure(Contents, is_durable))
InOthers(Holds(_)) ==
  /\ Holds(AfterFlush(Contents))
  /\ Holds(AfterOpening(Contents))
  /\ Holds(AfterReplayed(Contents))
  /\ Holds(AfterClosing(Contents))

\* What callers were told, by ticket.
ToldTo(after, ticket) ==
  LET answers == {a \in after.answers : a.ticket = ticket} IN IF answers = {} THEN "" ELSE TheOne(answers).told

-----------------------------------------------------------------------------
(* An entry that comes back, record by record: what the k-th finds. *)

\* The k-th call did what it asks for, as its caller was told.
IsDone(after, k) ==
  LET HasFailed(j) == ToldTo(after, Comes[j].ticket) = "failed"
  IN IF IsAsked(Comes[k]) THEN ToldTo(after, Comes[k].ticket) = "done"
     ELSE after.s.status = "ready" \/ \A j \in 1..k - 1 : ~HasFailed(j)
DoneOf(after, op) == {k \in DOMAIN Comes : Comes[k].record.op = op /\ IsDone(after, k)}

\* What each transaction holds, as it follows from memory before the entry and from the records before the k-th.
RECURSIVE MemoryAt(_, _)
MemoryAt(after, k) ==
  LET Changed(memory) ==
        IF IsDone(after, k - 1) THEN WithSaid([holds |-> memory, committed |-> {}], Comes[k - 1].record).holds
        ELSE memory
  IN IF k = 1 THEN InMemory(Contents) ELSE With(MemoryAt(after, k - 1), Changed)
HeldAt(after, k) == OfTxn(MemoryAt(after, k), Comes[k].record.txn)

\* The messages that the records before the k-th have acknowledged, unless the cursor refuses.
AckedSince(after, k, refuses) ==
  IF refuses THEN {}
  ELSE UNION {Bits(HeldAt(after, j), acks.mark, CountedBits) : j \in {j \in DoneOf(after, "commit") : j < k}}

-----------------------------------------------------------------------------
(* Memory and the log. *)

\* Whenever the store serves, live or after a replay, exactly what its log says is pending, message by message.
MemoryIsWhatTheLogSays ==
  status = "ready" =>
    LET said == Said.holds
        memory == InMemory(Contents)
        Left(of, txn) == NotAcked(acks, Bits(OfTxn(of, txn), acks.mark, CountedBits))
    IN \A txn \in DOMAIN said \cup DOMAIN memory : Left(said, txn) = Left(memory, txn)

\* Whenever the store serves, every message that a transaction held when it was committed is acknowledged.
ACommittedAckIsNotRedelivered ==
  status = "ready" => \A each \in Said.committed : NotAcked(acks, Bits(each, acks.mark, CountedBits)) = {}

\* No message is pending in two transactions by acknowledgements of its own entry.
NoTwoTransactionsHoldOneMessage ==
  \A j, k \in DOMAIN held :
    j < k => \A p \in held[j].parts, q \in held[k].parts : NotAcked(acks, BitsOfPart(p) \cap BitsOfPart(q)) = {}

-----------------------------------------------------------------------------
(* Requests. *)

\* Who asks for anything is told once what became of it, unless a crash comes first.
EveryRequestIsAnswered ==
  LET Tickets(s) == {c.ticket : c \in Members(OpenCalls(s))}
      Told(after) == {a.ticket : a \in after.answers}
      Holds(after) ==
        /\ Tickets(after.s) \cup Told(after) = 1..after.s.next_ticket - 1
        /\ Tickets(after.s) \cap Told(after) = {}
        /\ Cardinality(Told(after)) = Cardinality(after.answers)
        /\ Cardinality(Tickets(after.s)) = Len(OpenCalls(after.s))
      Crashed(after) == after.outcome = "refused" \/ OpenCalls(after.s) = <<>>
  IN /\ InRequests(Holds)
     /\ InCallbacks(Holds)
     /\ InFailures(Holds)
     /\ InOthers(Holds)
     /\ InReads(Holds)
     /\ InReadFailures(Holds)
     /\ \A survive \in crash_survive : Crashed(AfterCrash(Contents, survive))

\* A request that was answered with a conflict leaves no record: else a replay could bring it back.
WhatIsRejectedIsNotInTheLog ==
  LET tickets == IF in_flight = <<>> THEN {} ELSE {c.ticket : c \in Members(in_flight[1])}
      Holds(after) == \A a \in after.answers : a.told = "conflict" => a.ticket \notin tickets
  IN InCallbacks(Holds)

\* When a caller is told that an acknowledgement is pending, no message of its list is pending in another's name.
WhoIsToldOfAnAckHasItAlone ==
  LET IsAlone(r, memory) ==
        LET others == UNION {memory[txn].parts : txn \in DOMAIN memory \ {r.txn}}
        IN r.cumulative \/ \A p \in Members(r.parts), q \in others : BitsOfPart(p) \cap BitsOfPart(q) = {}
      Holds(after) == \A k \in DoneOf(after, "ack") : IsAlone(Comes[k].record, MemoryAt(after, k))
  IN Comes # <<>> => Holds(AfterCompleted(Contents, FALSE))

\* What was held when a commit came back is acknowledged; who held it holds nothing, but for what came after it. Of
\* both: only commits count that are of a cumulative acknowledgement, at least.
AllIsCommitted(is_of_both) ==
  LET IsFreed(after, memory, k) ==
        /\ NotAcked(after.s.acks, Bits(HeldAt(after, k), acks.mark, CountedBits)) = {}
        /\ \/ Comes[k].record.txn \notin DOMAIN memory
           \/ \E j \in DoneOf(after, "ack") : j > k /\ Comes[j].record.txn = Comes[k].record.txn
      Holds(after) ==
        \A k \in DoneOf(after, "commit") :
          ~is_of_both \/ (Comes[k].record.cumulative /\ HeldAt(after, k).cumulative # None) =>
            IsFreed(after, InMemory(after.s), k)
  IN Comes # <<>> => Holds(AfterCompleted(Contents, FALSE))

\* When a caller is told that a transaction is committed, all that it held is acknowledged, and it holds nothing.
WhoIsToldOfACommitHasIt == AllIsCommitted(FALSE)

\* A commit of a transaction that has acknowledged in both ways is a commit of both.
ACumulativeCommitTakesTheRestAlong == AllIsCommitted(TRUE)

\* When a transaction is committed, each entry is acknowledged of which it acknowledged all messages one by one.
MessagesOneByOneCountAsTheEntry ==
  LET WholeOf(h) == {p.entry : p \in {p \in h.parts : p.leaves \in {None, {}}}}
      Holds(after) ==
        \A k \in DoneOf(after, "commit") :
          \A n \in WholeOf(HeldAt(after, k)) : AckedOf(after.s.acks, n) = AllOf(n)
  IN Comes # <<>> /\ cumulative = None /\ (\A call \in Members(Comes) : ~call.record.cumulative) =>
       Holds(AfterCompleted(Contents, FALSE))

\* A commit of a transaction that holds anything is answered only when its record is in the log.
ACommitIsNotAnsweredBeforeItIsInTheLog ==
  \A txn \in DOMAIN InMemory(Contents) \cap commit_txn, mark \in commit_low_watermark :
    AfterEnd(Contents, "commit", txn, mark).answers = {}

\* After an append that failed, and is perhaps in the log, the store serves nobody until its log was read again.
AFailedAppendChangesNoMemory ==
  LET Holds(after) == after.s.status \notin {"ready", "initializing"} IN InFailures(Holds)

\* If the cursor does not take what a transaction commits, its caller is told of failure, and the store is opened anew,
\* or the acknowledgements stay pending.
ACommitThatIsRefusedIsNotDone ==
  LET Holds(after) ==
        \A k \in DoneOf(after, "commit") :
          NotAcked(after.s.acks, Bits(HeldAt(after, k), acks.mark, CountedBits)) = {}
  IN Comes # <<>> => Holds(AfterCompleted(Contents, TRUE))

-----------------------------------------------------------------------------
(* Aborts. *)

\* The messages that consumers get again.
AgainBy(after) == UNION {InEntry(each.entry, each.messages) : each \in after.redelivered}

\* What an abort leaves to nobody: what is not acknowledged, and held by its transaction alone.
LeftAt(after, k, refuses) ==
  LET memory == MemoryAt(after, k)
      Of(h) == Bits(h, acks.mark, BitsOfPart)
      others == UNION {Of(memory[txn]) : txn \in DOMAIN memory \ {Comes[k].record.txn}}
  IN NotAcked(acks, Of(HeldAt(after, k))) \ (others \cup AckedSince(after, k, refuses))

\* If an abort has ended a cumulative acknowledgement, or none, all that it leaves to nobody is redelivered, and nothing
\* that no abort of its entry leaves.
IsRedelivered(is_cumulative) ==
  LET Holds(after, refuses) ==
        LET left == UNION {LeftAt(after, k, refuses) : k \in DoneOf(after, "abort")}
            Given(again) ==
              \A k \in DoneOf(after, "abort") :
                (HeldAt(after, k).cumulative # None) = is_cumulative =>
                  LeftAt(after, k, refuses) \subseteq again /\ again \subseteq left
        IN Given(AgainBy(after))
  IN Comes # <<>> => \A refuses \in {TRUE, FALSE} : Holds(AfterCompleted(Contents, refuses), refuses)

\* When a transaction is aborted, consumers get every message again that only it held and that is not acknowledged.
AnAbortedAckIsRedelivered == IsRedelivered(FALSE)

\* When a cumulative acknowledgement is aborted, consumers get everything again up to it that nobody else has.
AnAbortedCumulativeAckIsRedelivered == IsRedelivered(TRUE)

\* When a transaction has ended, each that holds anything and is not above the low watermark is on its way out.
StaleTransactionsAreAborted ==
  LET EndsOf(after) == DoneOf(after, "commit") \cup DoneOf(after, "abort")
      \* who holds anything only since the last end
      FreshIn(after, last) ==
        {Comes[k].record.txn : k \in {k \in DoneOf(after, "ack") : k > last}} \ DOMAIN MemoryAt(after, last + 1)
      Holds(after) ==
        after.s.status = "ready" /\ EndsOf(after) # {} =>
          LET ending == {c.record.txn : c \in {c \in Members(OnTheWay(after.s)) : c.record.op = "abort"}}
              marks == {Comes[k].low_watermark : k \in EndsOf(after)}
          IN \A txn \in DOMAIN InMemory(after.s) \ FreshIn(after, Greatest(EndsOf(after))) :
               txn > Greatest(marks \cup {after.s.low_watermark}) \/ txn \in ending
  IN Comes # <<>> => InCallbacks(Holds)

-----------------------------------------------------------------------------
(* The log and its index. *)

\* The log with the entries in flight.
Whole == log \o [k \in DOMAIN in_flight |-> RecordsOf(in_flight[k])]

\* An entry of the log goes only when every entry of the topic that it acknowledges is before the durable mark.
WhatIsTrimmedWasAcknowledged ==
  LET Holds(after) == \A n \in EntriesOf(Joined(SubSeq(Whole, 1, after.trimmed))) : n < durable.mark
  IN InCallbacks(Holds) /\ InReads(Holds)

Keys == log_index.keys
RecordsIn(from, to) == Len(Joined(SubSeq(log, from + 1, to)))

\* Up to a key's entry of the log, itself included, no entry of the topic after the key's is acknowledged.
AKeySpeaksOfAllBeforeIt ==
  \A k \in DOMAIN Keys : \A n \in EntriesOf(Joined(SubSeq(log, 1, Keys[k].at + 1))) : n <= Keys[k].entry

\* The lag is the number of records in the log after the last key, as far as they were called back or read.
TheLagCountsWhatHasNoKey ==
  status \in {"ready", "initializing"} =>
    log_index.lag = RecordsIn(IF Keys = <<>> THEN 0 ELSE Last(Keys).at + 1,
                              IF status = "ready" THEN Len(log) ELSE progress)

-----------------------------------------------------------------------------
(* Replay. *)

\* A store whose log could not be read to the end is not ready, and those who wait for it are told of failure.
AReplayThatStopsEarlyFails == LET Holds(after) == after.s.status # "ready" IN InReadFailures(Holds)

\* Each read that fails brings the replay nearer to its end.
AReadIsNotTriedForEver ==
  LET Holds(after) == after.s.attempts > attempts \/ after.s.status # "initializing" IN InReadFailures(Holds)

\* As long as a replay goes on, there is something to read, and each step reads an entry.
AStepOfAReplayReads == IsReading(Contents) => AfterReadEntry(Contents).outcome # "failed"

\* An end that is read again changes nothing of what other transactions hold.
AReplayedEndIsItsOwnerS ==
  LET old == InMemory(Contents)
      named == {r.txn : r \in Members(log[read + 1])}
      Holds(after) == \A txn \in DOMAIN old \ named : OfTxn(InMemory(after.s), txn) = old[txn]
  IN InReads(Holds)

\* An acknowledgement that is read again is dropped only where the cursor has it, entry by entry of its list.
AReplayDropsNoMessageThatIsLeft ==
  LET r == log[read + 1][1]
      asked == {p.entry : p \in Members(r.parts)}
      claimed == {p.entry : p \in UNION {h.parts : h \in Members(held)}}
      left == {n \in asked : AckedOf(acks, n) = {}}
      Holds(after) ==
        Len(log[read + 1]) = 1 /\ r.op = "ack" /\ ~r.cumulative /\ asked \cap claimed = {} =>
          left \subseteq {p.entry : p \in HeldBy(after.s, r.txn)}
  IN InReads(Holds)

\* A cumulative acknowledgement that is read again is of the messages of which it was, and of no more.
ACumulativeAckKeepsItsSet ==
  LET Holds(after) ==
        LET new == after.s.cumulative
        IN new = None \/ new = cumulative
             \/ \E r \in Members(Joined(log)) : /\ r.op = "ack"
                                                /\ r.cumulative
                                                /\ r.txn = new.txn
                                                /\ r.parts = <<new.part>>
  IN InReads(Holds)

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* A replay comes to its end if it goes on reading; and also if every read of it fails.
AReplayEnds == status # "initializing"
AReplayWhoseReadsFailEnds == status # "initializing" \/ progress = Len(log)

\* If entries are written and replays go on, nobody waits for ever.
RequestsAreAnsweredInTheEnd == OpenCalls(Contents) = <<>>
=============================================================================
