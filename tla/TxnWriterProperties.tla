-------------------------- MODULE TxnWriterProperties --------------------------
(***************************************************************************)
(* What a buffered writer promises to those who hand it records, and to    *)
(* those who read the log: the twin of invariants/txn_writer.py, under the *)
(* same names.                                                             *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.                     *)
(*                                                                         *)
(* Not said here: that time does not go back, for it is always time 0.     *)
(***************************************************************************)
EXTENDS TxnWriter

\* Of steps that may give the thread something to do, and of all: the action, and the state after it with what it tells.
InTasks(Holds(_, _)) ==
  /\ \A bytes \in add_size, fails \in fails_on : Holds("add", AfterAdd(Contents, bytes, fails))
  /\ Holds("close", AfterClose(Contents))
  /\ \A n \in count : Holds("run_writer_tasks", AfterTasks(Contents, n))
  /\ \A ms \in by : Holds("advance_time", AfterTime(Contents, ms))

\* The lists of some of a list's members, one behind the other.
RECURSIVE Joined(_)
Joined(lists) == IF lists = <<>> THEN <<>> ELSE Head(lists) \o Joined(Tail(lists))
RECURSIVE Sum(_)
Sum(list) == IF list = <<>> THEN 0 ELSE Head(list) + Sum(Tail(list))
IsRising(list) == \A k \in 1..Len(list) - 1 : list[k] < list[k + 1]
HasAll(list, numbers) == Members(list) = numbers /\ Len(list) = Cardinality(numbers)

RecordsOf(entries) == Joined([k \in DOMAIN entries |-> entries[k].records])
IsRecord(task) == task.is = "record"
TaskRecords == LET found == SelectSeq(tasks, IsRecord) IN [k \in DOMAIN found |-> found[k].record.number]
\* The records that wait for the ledger, in the buffer, or for the thread, in this order.
Held == RecordsOf(in_flight) \o (IF status = "closed" THEN <<>> ELSE NumbersOf(buffer)) \o TaskRecords
HasTick == Tick \in Members(tasks)

\* How many bytes each record of a write had when it was added, waited for the thread, or was in the buffer.
SizesOf(write, after) ==
  LET came == {each.record : each \in {task \in Members(tasks) : task.is = "record"}} \cup Members(after.added)
      Size(n) == (CHOOSE each \in {[number |-> r.number, size |-> r.size] : r \in came}
                                    \cup {[number |-> r.number, size |-> r.size] : r \in Members(buffer)} :
                    each.number = n).size
  IN [k \in DOMAIN write.records |-> Size(write.records[k])]

-----------------------------------------------------------------------------
(* Answers. *)

\* Until its callback is told, a record waits for the thread, in the buffer or for the ledger: none is forgotten.
ARecordWithoutAnAnswerIsOnItsWay == HasAll(Held, Members(unanswered)) /\ IsRising(unanswered)

\* Whatever is wrong with a record, its callback is told of it, and its caller gets no exception.
NoCallerGetsAnException ==
  \A bytes \in add_size, fails \in fails_on : ~AfterAdd(Contents, bytes, fails).thrown

-----------------------------------------------------------------------------
(* Entries. *)

\* Where the size limit is a cap, the records of a batch never have more than max_bytes together.
NoBatchExceedsMaxBytes ==
  LET Holds(action, after) ==
        /\ after.size <= max_bytes
        /\ \A write \in Members(after.writes) : write.batched => Sum(SizesOf(write, after)) <= max_bytes
  IN InTasks(Holds)

-----------------------------------------------------------------------------
(* Buffer and triggers. *)

\* A batch goes as soon as it has max_records records or max_bytes bytes: an open writer never holds so much.
TheBufferIsBelowItsLimits ==
  /\ size = Sum([k \in DOMAIN buffer |-> buffer[k].size])
  /\ status # "closed" /\ buffer # <<>> => Len(buffer) < max_records /\ size < max_bytes

\* Each flush has exactly one reason, and a task of its own that gave it: enough records; if not, enough bytes, or too
\* many with the next; else a record that is large alone, the timer, or a close.
MayFlush(task, flush) ==
  IF task.is # "record" THEN flush.reason = (IF task.is = "tick" THEN "delay" ELSE "close")
  ELSE IF task.record.size >= max_bytes \/ flush.reason \notin {"records", "size"}
       THEN task.record.size >= max_bytes /\ flush.reason = "large"
  ELSE \/ flush.reason = "records"
       \/ flush.size >= max_bytes
       \/ size_limit = "cap" /\ flush.size + task.record.size > max_bytes
RECURSIVE EachHasItsTask(_, _)
EachHasItsTask(flushes, ran) ==
  IF flushes = <<>> \/ ran = <<>> THEN flushes = <<>>
  ELSE EachHasItsTask(IF MayFlush(Head(ran), Head(flushes)) THEN Tail(flushes) ELSE flushes, Tail(ran))
AFlushHasTheReasonThatItSays ==
  LET Holds(action, after) ==
        /\ EachHasItsTask(after.flushes, after.ran)
        /\ \A flush \in Members(after.flushes) :
             LET enough == flush.records >= max_records
             IN enough = (flush.reason = "records") /\ (flush.size >= max_bytes /\ ~enough => flush.reason = "size")
  IN InTasks(Holds)

\* Every flush of a buffer becomes one batch, or fails as a whole: then all that it held is told so.
AFlushTakesAllThatIsInTheBuffer ==
  LET IsBatch(write) == write.batched
      IsFailure(answer) == answer.outcome \in {"serialization", "closed", "fenced"}
      Holds(action, after) ==
        LET batches == SelectSeq(after.writes, IsBatch)
            written == [k \in DOMAIN batches |-> Len(batches[k].records)]
            flushed == [k \in DOMAIN after.flushes |-> after.flushes[k].records]
        IN IF Len(written) = Len(flushed) THEN written = flushed
           ELSE /\ Len(written) < Len(flushed)
                /\ Sum(flushed) - Sum(written) <= Len(SelectSeq(after.answers, IsFailure))
  IN InTasks(Holds)

\* While the writer is open, the timer is due no later than max_delay after a record came to the buffer, or its tick
\* waits for the thread already.
ARecordWaitsNoLongerThanTheDelay ==
  buffer # <<>> /\ status = "open" /\ ~HasTick =>
    IF timer = None THEN FALSE ELSE timer <= Head(buffer).since + max_delay_ms

\* However slow the thread is, one timer is set or one tick waits for it, never more; a timer is never overdue.
ThereIsOneTimerOrTickAtMost ==
  LET IsTick(task) == task.is = "tick"
      number == Len(SelectSeq(tasks, IsTick)) + IF timer = None THEN 0 ELSE 1
  IN /\ number <= 1
     /\ timer # None => timer > 0 /\ status # "closed"
     /\ IsBatching /\ delay_from = "tick" /\ status = "open" => number = 1

\* By the proposal's text the timer is set for max_delay after the first record of the batch, and only then.
TheDelayCountsFromTheFirstRecord ==
  IF timer = None THEN buffer = <<>> \/ HasTick \/ status = "closed"
  ELSE buffer # <<>> /\ timer = Head(buffer).since + max_delay_ms

-----------------------------------------------------------------------------
(* Close. *)

\* A closed writer has no record and no byte in its buffer.
AClosedWriterHoldsNothing == status = "closed" => buffer = <<>> /\ size = 0

\* Whoever is told that the writer is closed finds it closed, the second caller, too.
ACloseIsDoneWhenItSaysSo == LET after == AfterClose(Contents) IN after.is_done = (after.status = "closed")

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* While time passes and the thread runs, the buffer of an open writer is empty again and again.
WhatIsBufferedGoes == buffer = <<>> \/ status # "open"

\* A close ends once the thread runs, whatever the timer does meanwhile.
ACloseComesToItsEnd == status # "closing"

\* While time passes, the thread runs and writes end, there comes a time when all callbacks were told.
EveryRecordIsAnswered == unanswered = <<>>
=============================================================================
