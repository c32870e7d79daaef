-------------------------- MODULE TxnWriterProperties --------------------------
(*****************************************************************************)
(* Properties of the buffered writer, under the names of                     *)
(* invariants/txn_writer.py: some of its invariants, and all of its liveness *)
(* properties.                                                               *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
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

\* The records in flight, in the buffer, and in the executor's queue, in this order.  The buffer of a closed writer does
\* not count: the callbacks of its records have completed.
RecordsInOrder == RecordsOf(in_flight) \o (IF status = "closed" THEN <<>> ELSE NumbersOf(buffer)) \o TaskRecords
HasTick == Tick \in Members(tasks)

-----------------------------------------------------------------------------
(* Callbacks. *)

\* A record's callback is pending if and only if the record is in the executor's queue, buffered or in flight.  Each
\* record occurs there once, and callbacks are pending in the order of the calls.
CallbackIsPendingIffItsRecordIs == HasAll(RecordsInOrder, Members(pending_callbacks)) /\ IsRising(pending_callbacks)

\* `add` does not throw, even if the record cannot be serialised.
AddNeverThrows ==
  \A bytes \in add_size, fails \in fails_on : ~AfterAdd(Contents, bytes, fails).thrown

-----------------------------------------------------------------------------
(* Buffer and triggers. *)

\* `size` is the size of the buffered records.  The buffer of a writer that is not closed is below both thresholds.
BufferIsBelowThresholds ==
  /\ size = Sum([k \in DOMAIN buffer |-> buffer[k].size])
  /\ status # "closed" /\ buffer # <<>> => Len(buffer) < max_records /\ size < max_bytes

\* While an open writer has buffered records, a tick is queued, or the timer is due within max_delay.  max_delay counts
\* from the addition of the oldest buffered record.
BufferedRecordIsFlushedWithinMaxDelay ==
  buffer # <<>> /\ status = "open" /\ ~HasTick =>
    IF timer = None THEN FALSE ELSE timer <= Head(buffer).since + max_delay_ms

\* The timer is armed only while records are buffered, and is due exactly max_delay after the first of them was added
\* (PIP-160).  The timer of buffered records is armed, unless a tick is queued or the writer is closed.  A free-running
\* timer violates this.
TimerIsArmedForFirstRecordOfBatch ==
  IF timer = None THEN buffer = <<>> \/ HasTick \/ status = "closed"
  ELSE buffer # <<>> /\ timer = Head(buffer).since + max_delay_ms

-----------------------------------------------------------------------------
(* Close. *)

\* The buffer of a closed writer is empty, and its size is 0.
ClosedWriterHasEmptyBuffer == status = "closed" => buffer = <<>> /\ size = 0

\* The future of a close, including a second one, is complete on return if and only if the writer is closed.
CompletedCloseMeansClosed == LET after == AfterClose(Contents) IN after.is_done = (after.status = "closed")

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* Every buffered record of an open writer is eventually flushed.
\* Fair: AdvanceTime, RunWriterTasks.  The timer reaches its deadline, and the executor runs its tick, which flushes the
\* buffer.
BufferIsEventuallyFlushed == buffer = <<>> \/ status # "open"

\* Every close completes.
\* Fair: RunWriterTasks.  The executor runs the task of close, which waits for neither the ledger nor the timer.
CloseTerminates == status # "closing"

\* Every callback completes.
\* Fair: AdvanceTime, RunWriterTasks, CompleteWrite.  The executor runs the record's task, the timer flushes the buffer,
\* and the ledger completes the write.
EveryCallbackCompletes == pending_callbacks = <<>>
=============================================================================
