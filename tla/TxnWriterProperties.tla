-------------------------- MODULE TxnWriterProperties --------------------------
(***************************************************************************)
(* Guarantees of the buffered writer: the twin of                          *)
(* invariants/txn_writer.py, under the same names.                         *)
(*                                                                         *)
(* A guarantee about steps is stated as an invariant: from every reached   *)
(* state, each action with each argument preserves it. Time is always 0,   *)
(* so its monotonicity is not stated.                                      *)
(***************************************************************************)
EXTENDS TxnWriter

\* Steps that may submit tasks, and all steps: the action, and the state after it with its effects.
InTasks(Holds(_, _)) ==
  /\ \A bytes \in add_size, fails \in fails_on : Holds("add", AfterAdd(Contents, bytes, fails))
  /\ Holds("close", AfterClose(Contents))
  /\ \A n \in count : Holds("run_writer_tasks", AfterTasks(Contents, n))
  /\ \A ms \in by : Holds("advance_time", AfterTime(Contents, ms))

\* Concatenation of lists.
RECURSIVE Joined(_)
Joined(lists) == IF lists = <<>> THEN <<>> ELSE Head(lists) \o Joined(Tail(lists))
RECURSIVE Sum(_)
Sum(list) == IF list = <<>> THEN 0 ELSE Head(list) + Sum(Tail(list))
IsRising(list) == \A k \in 1..Len(list) - 1 : list[k] < list[k + 1]
HasAll(list, numbers) == Members(list) = numbers /\ Len(list) = Cardinality(numbers)

RecordsOf(entries) == Joined([k \in DOMAIN entries |-> entries[k].records])
IsRecord(task) == task.is = "record"
TaskRecords == LET found == SelectSeq(tasks, IsRecord) IN [k \in DOMAIN found |-> found[k].record.number]
\* The records in flight, in the buffer, and in the queue, in this order.
Held == RecordsOf(in_flight) \o (IF status = "closed" THEN <<>> ELSE NumbersOf(buffer)) \o TaskRecords
HasTick == Tick \in Members(tasks)

\* The sizes of the records of a write.
SizesOf(write, after) ==
  LET came == {each.record : each \in {task \in Members(tasks) : task.is = "record"}} \cup Members(after.added)
      Size(n) == (CHOOSE each \in {[number |-> r.number, size |-> r.size] : r \in came}
                                    \cup {[number |-> r.number, size |-> r.size] : r \in Members(buffer)} :
                    each.number = n).size
  IN [k \in DOMAIN write.records |-> Size(write.records[k])]

-----------------------------------------------------------------------------
(* Answers. *)

\* A record whose callback has not completed is queued, buffered or in flight: none is lost. Without batching,
\* records whose call threw are covered by `add_never_throws`.
RecordWithoutCallbackIsPending == HasAll(Held, Members(pending_callbacks)) /\ IsRising(pending_callbacks)

\* A record that cannot be serialised fails its callback; the call does not throw.
AddNeverThrows ==
  \A bytes \in add_size, fails \in fails_on : ~AfterAdd(Contents, bytes, fails).thrown

-----------------------------------------------------------------------------
(* Entries. *)

\* With the size limit as a cap, the records of a batch never exceed max_bytes.
BatchRespectsSizeCap ==
  LET Holds(action, after) ==
        /\ after.size <= max_bytes
        /\ \A write \in Members(after.writes) : write.batched => Sum(SizesOf(write, after)) <= max_bytes
  IN InTasks(Holds)

-----------------------------------------------------------------------------
(* Buffer and triggers. *)

\* The buffer of an open writer is below both thresholds.
BufferIsBelowThresholds ==
  /\ size = Sum([k \in DOMAIN buffer |-> buffer[k].size])
  /\ status # "closed" /\ buffer # <<>> => Len(buffer) < max_records /\ size < max_bytes

\* Each flush has exactly one trigger, caused by its own task: max records; otherwise max size, or the cap with the
\* next record; otherwise a large record, the timer, or close.
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
FlushTriggerIsCorrect ==
  LET Holds(action, after) ==
        /\ EachHasItsTask(after.flushes, after.ran)
        /\ \A flush \in Members(after.flushes) :
             LET enough == flush.records >= max_records
             IN enough = (flush.reason = "records") /\ (flush.size >= max_bytes /\ ~enough => flush.reason = "size")
  IN InTasks(Holds)

\* Every flush becomes one batch, or fails all records of the buffer.
FlushWritesOrFailsWholeBuffer ==
  LET IsBatch(write) == write.batched
      IsFailure(answer) == answer.outcome \in {"serialization", "closed", "fenced"}
      Holds(action, after) ==
        LET batches == SelectSeq(after.writes, IsBatch)
            written == [k \in DOMAIN batches |-> Len(batches[k].records)]
            flushed == [k \in DOMAIN after.flushes |-> after.flushes[k].records]
        IN IF Len(written) = Len(flushed) THEN written = flushed
           ELSE /\ Len(written) < Len(flushed)
                /\ Sum(flushed) - Sum(written) <= Len(SelectSeq(after.callbacks, IsFailure))
  IN InTasks(Holds)

\* While the writer is open, the timer is due within max_delay after each buffered record was added, or its tick is
\* queued.
BufferedRecordIsFlushedWithinMaxDelay ==
  buffer # <<>> /\ status = "open" /\ ~HasTick =>
    IF timer = None THEN FALSE ELSE timer <= Head(buffer).since + max_delay_ms

\* With the delay counted from the first record, the timer is armed exactly for max_delay after the first record of
\* the batch.
TimerIsArmedForFirstRecordOfBatch ==
  IF timer = None THEN buffer = <<>> \/ HasTick \/ status = "closed"
  ELSE buffer # <<>> /\ timer = Head(buffer).since + max_delay_ms

-----------------------------------------------------------------------------
(* Close. *)

\* A closed writer has no record and no byte in its buffer.
ClosedWriterHasEmptyBuffer == status = "closed" => buffer = <<>> /\ size = 0

\* A close is complete on return exactly when the writer is closed, also for a second caller.
CompletedCloseMeansClosed == LET after == AfterClose(Contents) IN after.is_done = (after.status = "closed")

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* With fair time and executor, the buffer of an open writer is empty again and again.
BufferIsEventuallyFlushed == buffer = <<>> \/ status # "open"

\* With a fair executor, every close completes.
CloseTerminates == status # "closing"

\* With fair time, executor and ledger, every callback completes.
EveryCallbackCompletes == pending_callbacks = <<>>
=============================================================================
