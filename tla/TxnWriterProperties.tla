-------------------------- MODULE TxnWriterProperties --------------------------
(*****************************************************************************)
(* Invariants and liveness of the buffered writer: those of                  *)
(* invariants/txn_writer.py that a broker engineer would name first, under   *)
(* the same names.                                                           *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.            *)
(*****************************************************************************)
EXTENDS TxnWriter

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

\* The records in flight, in the buffer, and in the executor's queue, in this order.
RecordsInOrder == RecordsOf(in_flight) \o (IF status = "closed" THEN <<>> ELSE NumbersOf(buffer)) \o TaskRecords
HasTick == Tick \in Members(tasks)

-----------------------------------------------------------------------------
(* Callbacks. *)

\* A record whose callback has not completed is in flight, buffered or queued, exactly once, and callbacks are pending
\* in call order.
CallbackIsPendingIffItsRecordIs == HasAll(RecordsInOrder, Members(pending_callbacks)) /\ IsRising(pending_callbacks)

\* `add` does not throw, even if the record cannot be serialised.
AddNeverThrows ==
  \A bytes \in add_size, fails \in fails_on : ~AfterAdd(Contents, bytes, fails).thrown

-----------------------------------------------------------------------------
(* Buffer and triggers. *)

\* The buffer of a writer that is not closed is below max records and max size, and `size` is its bytes.
BufferIsBelowThresholds ==
  /\ size = Sum([k \in DOMAIN buffer |-> buffer[k].size])
  /\ status # "closed" /\ buffer # <<>> => Len(buffer) < max_records /\ size < max_bytes

\* The timer is armed no later than max delay after the oldest record was buffered, or its tick is queued.
BufferedRecordIsFlushedWithinMaxDelay ==
  buffer # <<>> /\ status = "open" /\ ~HasTick =>
    IF timer = None THEN FALSE ELSE timer <= Head(buffer).since + max_delay_ms

\* The timer is armed exactly while records are buffered, for max delay after the oldest (PIP-160).  A free-running
\* timer violates this.
TimerIsArmedForFirstRecordOfBatch ==
  IF timer = None THEN buffer = <<>> \/ HasTick \/ status = "closed"
  ELSE buffer # <<>> /\ timer = Head(buffer).since + max_delay_ms

-----------------------------------------------------------------------------
(* Close. *)

\* A closed writer does not refer to its buffer, which is recycled.
ClosedWriterHasEmptyBuffer == status = "closed" => buffer = <<>> /\ size = 0

\* A call of close returns a completed future exactly if the writer is closed.
CompletedCloseMeansClosed == LET after == AfterClose(Contents) IN after.is_done = (after.status = "closed")

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: AdvanceTime, RunWriterTasks.  The timer reaches its deadline, and the executor runs its tick, which flushes.
BufferIsEventuallyFlushed == buffer = <<>> \/ status # "open"

\* Fair: RunWriterTasks.  The executor runs the task of close, which waits for neither the ledger nor the timer.
CloseTerminates == status # "closing"

\* Fair: AdvanceTime, RunWriterTasks, CompleteWrite.  The record's task runs, the timer flushes the buffer, and the
\* ledger completes the write.
EveryCallbackCompletes == pending_callbacks = <<>>
=============================================================================
