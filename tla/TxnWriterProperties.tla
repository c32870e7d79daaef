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

-----------------------------------------------------------------------------
(* Callbacks. *)

RecordWithoutCallbackIsPending == HasAll(Held, Members(pending_callbacks)) /\ IsRising(pending_callbacks)

AddNeverThrows ==
  \A bytes \in add_size, fails \in fails_on : ~AfterAdd(Contents, bytes, fails).thrown

-----------------------------------------------------------------------------
(* Buffer and triggers. *)

BufferIsBelowThresholds ==
  /\ size = Sum([k \in DOMAIN buffer |-> buffer[k].size])
  /\ status # "closed" /\ buffer # <<>> => Len(buffer) < max_records /\ size < max_bytes

BufferedRecordIsFlushedWithinMaxDelay ==
  buffer # <<>> /\ status = "open" /\ ~HasTick =>
    IF timer = None THEN FALSE ELSE timer <= Head(buffer).since + max_delay_ms

TimerIsArmedForFirstRecordOfBatch ==
  IF timer = None THEN buffer = <<>> \/ HasTick \/ status = "closed"
  ELSE buffer # <<>> /\ timer = Head(buffer).since + max_delay_ms

-----------------------------------------------------------------------------
(* Close. *)

ClosedWriterHasEmptyBuffer == status = "closed" => buffer = <<>> /\ size = 0

CompletedCloseMeansClosed == LET after == AfterClose(Contents) IN after.is_done = (after.status = "closed")

-----------------------------------------------------------------------------
(* Liveness properties, when only the fair actions continue.               *)

BufferIsEventuallyFlushed == buffer = <<>> \/ status # "open"

CloseTerminates == status # "closing"

EveryCallbackCompletes == pending_callbacks = <<>>
=============================================================================
