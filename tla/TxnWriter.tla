------------------------------- MODULE TxnWriter -------------------------------
(*****************************************************************************)
(* Buffered writer of a transaction log: batches records into ledger entries *)
(* and completes their callbacks (PIP-160).                                  *)
(*                                                                           *)
(* Twin of model/txn_writer: the same actions and settings, equal states and *)
(* steps.  Models TxnLogBufferedWriter on one managed ledger.                *)
(*                                                                           *)
(* Step grain: one call, one completion of a ledger write, a run of queued   *)
(* tasks, an advance of the clock, or a rollover or fence of the ledger.     *)
(*                                                                           *)
(* A state is a canonical state of the model: now is 0, so deadlines are     *)
(* positive, and the times at which records were buffered are 0 or negative. *)
(* The records that the state mentions are numbered from 1 in call order.  A *)
(* write is identified by its index in in_flight.  A position is <<ledger,   *)
(* entry>>.                                                                  *)
(*                                                                           *)
(* Besides the variables, the record of a state (Contents) has the effects   *)
(* of the step: the completed callbacks and close futures, and whether the   *)
(* call throws an exception.                                                 *)
(*                                                                           *)
(* Not modelled: the results of callbacks, flush metrics, and what the model *)
(* does not model.                                                           *)
(*****************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, the environment of the writer, and rules in which versions differ.  Config in model/txn_writer/state.py
  \* explains them.
  batching, max_records, max_bytes, max_delay_ms, header_bytes, executor, writes, unserialisable_batch,
  unserialisable_unbatched, second_close, closed_buffer, size_limit, delay_from, close_buffered,
  \* The values of the actions' arguments.
  add_size, fails_on, count, by, durable

VARIABLES
  status,      \* "open", "closing" or "closed"
  tasks,       \* queued tasks of the single-threaded executor: records, timer ticks, closes
  buffer,      \* buffered records [number, size, fails_on, since]; since: the time at which it was buffered
  size,        \* bytes of the buffered records (bytesSize)
  timer,       \* deadline of the armed timer, or None
  in_flight,   \* entries submitted to the ledger and not completed: [batched, records, size]
  pending_callbacks,  \* records whose callbacks have not completed
  closers,     \* number of pending close futures
  fenced,      \* whether the ledger rejects further writes
  ledger,      \* ledger id of the next entry
  next_entry,  \* entry id of the next entry
  log          \* durable entries [position, batched, records, succeeded]; succeeded: whether the callbacks succeeded

vars == <<status, tasks, buffer, size, timer, in_flight, pending_callbacks, closers, fenced, ledger, next_entry, log>>

\* The state before a step, without effects.  callbacks: records whose callbacks complete; closed: number of close
\* futures that complete; is_done: the call of close returns a completed future; thrown: the call throws an exception.
Contents ==
  [status |-> status, tasks |-> tasks, buffer |-> buffer, size |-> size, timer |-> timer, in_flight |-> in_flight,
   pending_callbacks |-> pending_callbacks, closers |-> closers, fenced |-> fenced, ledger |-> ledger,
   next_entry |-> next_entry, log |-> log, callbacks |-> {}, closed |-> 0, is_done |-> FALSE, thrown |-> FALSE]

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Members(list) == {list[k] : k \in DOMAIN list}
NumbersOf(list) == [k \in DOMAIN list |-> list[k].number]
IsBatching == batching /\ max_records > 1

-----------------------------------------------------------------------------
(* Tasks, and the records that a state mentions. *)

Tick == [is |-> "tick"]
EndOfClose == [is |-> "close"]
TaskOf(record) == [is |-> "record", record |-> record]
RecordsOfTasks(s) == {t.record.number : t \in {each \in Members(s.tasks) : each.is = "record"}}

\* The numbers of the records that a state mentions.
Known(s) == RecordsOfTasks(s) \cup Members(NumbersOf(s.buffer)) \cup Members(s.pending_callbacks)
              \cup UNION {Members(w.records) : w \in Members(s.in_flight)}
              \cup UNION {Members(e.records) : e \in Members(s.log)}

\* Renumbers the records in `known` from 1.
RenumberedBy(s, known) ==
  LET Name(n) == Cardinality({m \in known : m <= n})
      Names(records) == [k \in DOMAIN records |-> Name(records[k])]
      InTask(t) == IF t.is = "record" THEN [t EXCEPT !.record.number = Name(@)] ELSE t
  IN IF known = 1..Cardinality(known) THEN s
     ELSE [s EXCEPT !.tasks = [k \in DOMAIN s.tasks |-> InTask(s.tasks[k])],
                    !.buffer = [k \in DOMAIN s.buffer |-> [s.buffer[k] EXCEPT !.number = Name(@)]],
                    !.in_flight = [k \in DOMAIN s.in_flight |-> [s.in_flight[k] EXCEPT !.records = Names(@)]],
                    !.log = [k \in DOMAIN s.log |-> [s.log[k] EXCEPT !.records = Names(@)]],
                    !.pending_callbacks = Names(@)]
Renumbered(s) == LET Counted(known) == RenumberedBy(s, known) IN With(Known(s), Counted)

-----------------------------------------------------------------------------
(* Effects of a step. *)

\* The callbacks of these records complete.  Success and failure are not distinguished.
WithCallbacks(s, numbers) == [s EXCEPT !.callbacks = @ \cup Members(numbers)]

\* Removes the records whose callbacks have completed from the pending ones.
CallbacksRemoved(s) ==
  LET IsLeft(n) == n \notin s.callbacks IN [s EXCEPT !.pending_callbacks = SelectSeq(@, IsLeft)]
WithoutCompletedCallbacks(s) == With(s, CallbacksRemoved)

-----------------------------------------------------------------------------
(* Writes. *)

\* The ledger stores an entry at the next position.
Stored(s, write, succeeded) ==
  LET entry == [position |-> <<s.ledger, s.next_entry>>, batched |-> write.batched, records |-> write.records,
                succeeded |-> succeeded]
  IN [s EXCEPT !.log = Append(@, entry), !.next_entry = @ + 1]

\* Stores an entry and completes its callbacks.
Completed(s, write) == Stored(WithCallbacks(s, write.records), write, TRUE)

\* ManagedLedger.asyncAddEntry: submits an entry.  A fenced ledger fails the write at once.
Submitted(s, batched, records, bytes) ==
  LET write == [batched |-> batched, records |-> records, size |-> bytes]
      Begun(t) == IF writes = "immediate" THEN Completed(t, write) ELSE [t EXCEPT !.in_flight = Append(@, write)]
  IN IF s.fenced THEN WithCallbacks(s, records) ELSE With(s, Begun)

HasUnserialisableRecord(s) == \E each \in Members(s.buffer) : each.fails_on = "batch"

\* Whether a flush throws: the exception reaches the executor, and the buffer does not change.
FlushThrows(s) == unserialisable_batch = "escapes" /\ HasUnserialisableRecord(s)

\* doFlush: writes the buffer as one batch.  The callbacks fail if the batch cannot be serialised, or if the writer is
\* not open and close_buffered is "fails".
Flushed(s) ==
  LET records == NumbersOf(s.buffer)
      fails == HasUnserialisableRecord(s) \/ (s.status # "open" /\ close_buffered = "fails")
      flushed == IF fails THEN WithCallbacks(s, records) ELSE Submitted(s, TRUE, records, s.size + header_bytes)
  IN IF FlushThrows(s) THEN s
     ELSE [flushed EXCEPT !.buffer = <<>>, !.size = 0, !.timer = IF delay_from = "tick" THEN @ ELSE None]

\* Writes one record as a plain entry.  The callback fails if the record cannot be serialised.
WrittenAlone(s, record) ==
  IF record.fails_on = "single" THEN WithCallbacks(s, <<record.number>>)
  ELSE Submitted(s, FALSE, <<record.number>>, record.size)

-----------------------------------------------------------------------------
(* Tasks of the executor. *)

\* Appends a record to the buffer, and flushes the buffer at max records or max size.  With delay_from "first_record",
\* the first record arms the timer (`begins`), unless a tick is queued.
Buffered(s, record) ==
  LET begins == delay_from = "first_record" /\ s.buffer = <<>> /\ Tick \notin Members(s.tasks)
      each == [number |-> record.number, size |-> record.size, fails_on |-> record.fails_on, since |-> 0]
      Then(t) == IF Len(t.buffer) >= max_records \/ t.size >= max_bytes THEN Flushed(t) ELSE t
  IN With([s EXCEPT !.buffer = Append(@, each), !.size = @ + record.size,
                    !.timer = IF begins THEN max_delay_ms ELSE @], Then)

\* The task of a record: buffers the record.  If the writer is not open, or the record's size cannot be computed, the
\* callback fails.  A record of max size or more flushes the buffer, and is then written alone.  With size_limit "cap",
\* a record with which the buffer would exceed max size flushes the buffer, and is then buffered.  If a flush before
\* the record throws, the record is dropped.
AfterRecordTask(s, record) ==
  LET is_large == record.size >= max_bytes
      is_due == s.buffer # <<>> /\ (is_large \/ (size_limit = "cap" /\ s.size + record.size > max_bytes))
      Then(t) == IF is_large THEN WrittenAlone(t, record) ELSE Buffered(t, record)
  IN IF s.status # "open" \/ record.fails_on = "size" THEN WithCallbacks(s, <<record.number>>)
     ELSE IF ~is_due THEN Then(s)
     ELSE IF FlushThrows(s) THEN s
     ELSE With(Flushed(s), Then)

\* The task of the timer (a tick): flushes the buffer, unless the writer is closed.  If the writer is open, the tick
\* re-arms the timer; with delay_from "first_record", only if the flush left records.
AfterTick(s) ==
  LET Rearmed(t) == IF t.status = "open" /\ (delay_from = "tick" \/ t.buffer # <<>>)
                    THEN [t EXCEPT !.timer = max_delay_ms] ELSE t
  IN With(IF s.buffer # <<>> /\ s.status # "closed" THEN Flushed(s) ELSE s, Rearmed)

\* The task of close: fails (or flushes) buffered records, cancels the timer, and completes the close futures.
AfterCloseTask(s) ==
  LET flushes == s.buffer # <<>> /\ close_buffered = "flushes"
      flushed == IF flushes THEN Flushed(s) ELSE s
      completed == IF flushes /\ ~FlushThrows(s) THEN flushed ELSE WithCallbacks(flushed, NumbersOf(flushed.buffer))
      is_empty == closed_buffer = "empty"
  IN [completed EXCEPT !.closed = @ + s.closers, !.status = "closed", !.timer = None, !.closers = 0,
                  !.buffer = IF is_empty THEN <<>> ELSE @, !.size = IF is_empty THEN 0 ELSE @]

Run(s, task) ==
  IF task.is = "record" THEN AfterRecordTask(s, task.record)
  ELSE IF task.is = "tick" THEN AfterTick(s) ELSE AfterCloseTask(s)

\* Submits a task to the executor.
WithTask(s, task) == IF executor = "immediate" THEN Run(s, task) ELSE [s EXCEPT !.tasks = Append(@, task)]

RECURSIVE RunAll(_, _)
RunAll(s, list) ==
  LET Rest(t) == RunAll(t, Tail(list)) IN IF list = <<>> THEN s ELSE With(Run(s, Head(list)), Rest)

-----------------------------------------------------------------------------
(* Calls. *)

\* asyncAddData.
AfterAdd(s, bytes, fails) ==
  LET number == Cardinality(Known(s)) + 1
      record == [number |-> number, size |-> bytes, fails_on |-> fails]
      added == [s EXCEPT !.pending_callbacks = Append(@, number)]
  IN WithoutCompletedCallbacks(IF IsBatching THEN WithTask(added, TaskOf(record))
          ELSE IF s.status # "open" THEN WithCallbacks(added, <<number>>)
          ELSE IF fails = "single" /\ unserialisable_unbatched = "exception" THEN [added EXCEPT !.thrown = TRUE]
          ELSE WrittenAlone(added, record))

\* close: a task of the executor closes a writer that batches; any other writer is closed at once.
AfterClose(s) ==
  LET Done(t) == [t EXCEPT !.is_done = @ \/ t.closed > 0]
  IN CASE s.status = "closed" -> [s EXCEPT !.is_done = TRUE]
       [] s.status = "closing" -> IF second_close = "returns" THEN [s EXCEPT !.is_done = TRUE]
                                  ELSE [s EXCEPT !.closers = @ + 1]
       [] s.status = "open" ->
            IF IsBatching
            THEN WithoutCompletedCallbacks(
                   With(WithTask([s EXCEPT !.status = "closing", !.closers = 1], EndOfClose), Done))
            ELSE [s EXCEPT !.status = "closed", !.closed = 1, !.is_done = TRUE]

\* The executor runs its first n tasks, or all if there are fewer.
AfterTasks(s, n) ==
  LET m == IF n < Len(s.tasks) THEN n ELSE Len(s.tasks)
  IN WithoutCompletedCallbacks(RunAll([s EXCEPT !.tasks = SubSeq(@, m + 1, Len(@))], SubSeq(s.tasks, 1, m)))

\* TimeAdvanced: the clock advances by ms, and the timer ticks at each of its deadlines.  ClockAdvanced: the clock
\* advances without ticks.  Now stays 0, so all times decrease.
ClockAdvanced(s, ms) ==
  [s EXCEPT !.buffer = [k \in DOMAIN @ |-> [@[k] EXCEPT !.since = @ - ms]],
            !.timer = IF @ = None THEN None ELSE @ - ms]

RECURSIVE TimeAdvanced(_, _)
TimeAdvanced(s, ms) ==
  LET Rest(t) == TimeAdvanced(t, ms - s.timer)
      due == IF s.timer = None THEN FALSE ELSE s.timer <= ms
  IN IF due THEN With(WithTask([ClockAdvanced(s, s.timer) EXCEPT !.timer = None], Tick), Rest) ELSE ClockAdvanced(s, ms)
AfterTime(s, ms) == WithoutCompletedCallbacks(TimeAdvanced(s, ms))

-----------------------------------------------------------------------------
(* The ledger. *)

\* Completes the first write in flight.
AfterCompletion(s) ==
  LET Ends(t) == Completed(t, Head(s.in_flight))
  IN IF s.in_flight = <<>> THEN s ELSE WithoutCompletedCallbacks(With([s EXCEPT !.in_flight = Tail(@)], Ends))

\* Fails the first write in flight.  If is_stored, the entry is nevertheless durable.
AfterFailure(s, is_stored) ==
  LET write == Head(s.in_flight)
      failed == WithCallbacks([s EXCEPT !.in_flight = Tail(@)], write.records)
  IN IF s.in_flight = <<>> THEN s
     ELSE WithoutCompletedCallbacks(IF is_stored THEN Stored(failed, write, FALSE) ELSE failed)

\* AfterRoll: a new ledger stores all writes that complete later, including those in flight.  AfterFence: the ledger
\* rejects later writes.  Writes in flight complete or fail.
AfterRoll(s) == [s EXCEPT !.ledger = @ + 1, !.next_entry = 0]
AfterFence(s) == [s EXCEPT !.fenced = TRUE]

-----------------------------------------------------------------------------
(* Steps. *)

\* Makes the canonical form of a state the next state.  The effects of the step are dropped.
Become(given) ==
  \E s \in {With(given, Renumbered)} :
    /\ status' = s.status
    /\ tasks' = s.tasks
    /\ buffer' = s.buffer
    /\ size' = s.size
    /\ timer' = s.timer
    /\ in_flight' = s.in_flight
    /\ pending_callbacks' = s.pending_callbacks
    /\ closers' = s.closers
    /\ fenced' = s.fenced
    /\ ledger' = s.ledger
    /\ next_entry' = s.next_entry
    /\ log' = s.log

\* An open writer with an empty buffer.  The free-running timer of a batching writer is armed.
Init == /\ status = "open"
        /\ tasks = <<>>
        /\ buffer = <<>>
        /\ size = 0
        /\ timer = IF IsBatching /\ delay_from = "tick" THEN max_delay_ms ELSE None
        /\ in_flight = <<>>
        /\ pending_callbacks = <<>>
        /\ closers = 0
        /\ fenced = FALSE
        /\ ledger = 1
        /\ next_entry = 0
        /\ log = <<>>

Add == \E bytes \in add_size, fails \in fails_on : Become(AfterAdd(Contents, bytes, fails))
Close == Become(AfterClose(Contents))
RunWriterTasks == \E n \in count : Become(AfterTasks(Contents, n))
AdvanceTime == \E ms \in by : Become(AfterTime(Contents, ms))
CompleteWrite == Become(AfterCompletion(Contents))
FailWrite == \E is_stored \in durable : Become(AfterFailure(Contents, is_stored))
RollLedger == Become(AfterRoll(Contents))
Fence == Become(AfterFence(Contents))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Records that the state mentions; queued tasks; ledgers; pending close futures; the age of the oldest buffered record.
RecordsAtMost(n) == Cardinality(Known(Contents)) <= n
TasksAtMost(n) == Len(tasks) <= n
LedgersAtMost(n) == ledger <= n
ClosersAtMost(n) == closers <= n
AgeAtMost(n) == buffer # <<>> => -Head(buffer).since <= n
=============================================================================
