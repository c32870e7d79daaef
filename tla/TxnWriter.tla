------------------------------- MODULE TxnWriter -------------------------------
(***************************************************************************)
(* Buffered writer of a transaction log: batches records into ledger       *)
(* entries and completes their callbacks (PIP-160).                        *)
(*                                                                         *)
(* Twin of model/txn_writer: the same actions, settings and canonical      *)
(* states. One step is one call or one completion of a ledger write.       *)
(*                                                                         *)
(* Records are numbered in call order; after each step the known ones are  *)
(* renumbered from 1. A write is known by its index among those in flight. *)
(* The time is always 0: deadlines are positive, and buffered records were *)
(* added at a time of 0 or less. A position is <<ledger, entry>>.          *)
(*                                                                         *)
(* The effects of a step (completed callbacks and close futures) are       *)
(* collected beside the state.                                             *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, the environment of the writer, and rules on which versions differ.
  batching, max_records, max_bytes, max_delay_ms, header_bytes, thread, writes, unserialisable_batch,
  unserialisable_alone, second_close, closed_buffer, size_limit, delay_from, close_buffered,
  \* The values of the actions' arguments.
  add_size, fails_on, count, by, durable

VARIABLES
  status,      \* open, closing, or closed
  tasks,       \* queued tasks of the executor
  buffer,      \* [number, size, fails_on, since]
  size,        \* bytes of the buffered records
  timer,       \* deadline of the armed timer, or None
  in_flight,   \* [batched, records, size]
  pending_callbacks,  \* records whose callbacks have not completed
  closers,     \* pending close futures
  fenced,      \* the ledger rejects further writes
  ledger,      \* ledger id of the next entry
  next_entry,
  log          \* [position, batched, records, acknowledged]

vars == <<status, tasks, buffer, size, timer, in_flight, pending_callbacks, closers, fenced, ledger, next_entry, log>>

\* The state before a step, without effects.
Contents ==
  [status |-> status, tasks |-> tasks, buffer |-> buffer, size |-> size, timer |-> timer, in_flight |-> in_flight,
   pending_callbacks |-> pending_callbacks, closers |-> closers, fenced |-> fenced, ledger |-> ledger,
         next_entry |-> next_entry,
   log |-> log, callbacks |-> {}, closed |-> 0, is_done |-> FALSE, thrown |-> FALSE]

\* Of(value), with the value evaluated once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Members(list) == {list[k] : k \in DOMAIN list}
NumbersOf(list) == [k \in DOMAIN list |-> list[k].number]
IsBatching == batching /\ max_records > 1

-----------------------------------------------------------------------------
(* Tasks, and which records are known. *)

Tick == [is |-> "tick"]
EndOfClose == [is |-> "close"]
TaskOf(record) == [is |-> "record", record |-> record]
Waiting(s) == {t.record.number : t \in {each \in Members(s.tasks) : each.is = "record"}}

Known(s) == Waiting(s) \cup Members(NumbersOf(s.buffer)) \cup Members(s.pending_callbacks)
              \cup UNION {Members(w.records) : w \in Members(s.in_flight)}
              \cup UNION {Members(e.records) : e \in Members(s.log)}

\* Renumbers the known records from 1.
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

Answered(s, numbers) == [s EXCEPT !.callbacks = @ \cup Members(numbers)]

\* Removes the records whose callbacks completed in a step.
CompletedIn(s) ==
  LET IsLeft(n) == n \notin s.callbacks IN [s EXCEPT !.pending_callbacks = SelectSeq(@, IsLeft)]
Told(s) == With(s, CompletedIn)

-----------------------------------------------------------------------------
(* Writes. *)

\* Stores an entry at the next position.
Stored(s, write, is_acknowledged) ==
  LET entry == [position |-> <<s.ledger, s.next_entry>>, batched |-> write.batched, records |-> write.records,
                acknowledged |-> is_acknowledged]
  IN [s EXCEPT !.log = Append(@, entry), !.next_entry = @ + 1]

\* Stores an entry and completes its callbacks.
Completed(s, write) == Stored(Answered(s, write.records), write, TRUE)

\* Submits an entry to the ledger. A fenced ledger fails the write at once.
Submitted(s, batched, records, bytes) ==
  LET write == [batched |-> batched, records |-> records, size |-> bytes]
      Begun(t) == IF writes = "at_once" THEN Completed(t, write) ELSE [t EXCEPT !.in_flight = Append(@, write)]
  IN IF s.fenced THEN Answered(s, records) ELSE With(s, Begun)

IsPoisoned(s) == \E each \in Members(s.buffer) : each.fails_on = "batch"
\* An exception escapes and leaves the buffer unchanged.
IsStuck(s) == unserialisable_batch = "escapes" /\ IsPoisoned(s)

\* Flushes the buffer as one batch, unless an exception escapes.
Flushed(s) ==
  LET records == NumbersOf(s.buffer)
      fails == IsPoisoned(s) \/ (s.status # "open" /\ close_buffered = "fails")
      gone == IF fails THEN Answered(s, records) ELSE Submitted(s, TRUE, records, s.size + header_bytes)
  IN IF IsStuck(s) THEN s
     ELSE [gone EXCEPT !.buffer = <<>>, !.size = 0, !.timer = IF delay_from = "tick" THEN @ ELSE None]

\* Writes one record as a plain entry.
Alone(s, record) ==
  IF record.fails_on = "single" THEN Answered(s, <<record.number>>)
  ELSE Submitted(s, FALSE, <<record.number>>, record.size)

-----------------------------------------------------------------------------
(* Tasks of the executor. *)

\* Appends a record and flushes at max records, else at max size.
Buffered(s, record) ==
  LET begins == delay_from = "first_record" /\ s.buffer = <<>> /\ Tick \notin Members(s.tasks)
      each == [number |-> record.number, size |-> record.size, fails_on |-> record.fails_on, since |-> 0]
      Then(t) == IF Len(t.buffer) >= max_records \/ t.size >= max_bytes THEN Flushed(t) ELSE t
  IN With([s EXCEPT !.buffer = Append(@, each), !.size = @ + record.size,
                    !.timer = IF begins THEN max_delay_ms ELSE @], Then)

\* Adds a record to the buffer; a large record flushes the buffer and is written alone.
Taken(s, record) ==
  LET is_large == record.size >= max_bytes
      is_due == s.buffer # <<>> /\ (is_large \/ (size_limit = "cap" /\ s.size + record.size > max_bytes))
      Then(t) == IF is_large THEN Alone(t, record) ELSE Buffered(t, record)
  IN IF s.status # "open" \/ record.fails_on = "size" THEN Answered(s, <<record.number>>)
     ELSE IF ~is_due THEN Then(s)
     ELSE IF IsStuck(s) THEN s
     ELSE With(Flushed(s), Then)

\* Flushes the buffer by max delay, and re-arms the timer unless the writer is closing.
Ticked(s) ==
  LET SetAnew(t) == IF t.status = "open" /\ (delay_from = "tick" \/ t.buffer # <<>>)
                    THEN [t EXCEPT !.timer = max_delay_ms] ELSE t
  IN With(IF s.buffer # <<>> /\ s.status # "closed" THEN Flushed(s) ELSE s, SetAnew)

\* Completes a close: fails (or flushes) buffered records, cancels the timer, completes the close futures.
Ended(s) ==
  LET flushes == s.buffer # <<>> /\ close_buffered = "flushes"
      gone == IF flushes THEN Flushed(s) ELSE s
      completed == IF flushes /\ ~IsStuck(s) THEN gone ELSE Answered(gone, NumbersOf(gone.buffer))
      is_empty == closed_buffer = "empty"
  IN [completed EXCEPT !.closed = @ + s.closers, !.status = "closed", !.timer = None, !.closers = 0,
                  !.buffer = IF is_empty THEN <<>> ELSE @, !.size = IF is_empty THEN 0 ELSE @]

Run(s, task) ==
  IF task.is = "record" THEN Taken(s, task.record) ELSE IF task.is = "tick" THEN Ticked(s) ELSE Ended(s)

\* Submits a task to the executor.
Given(s, task) == IF thread = "immediate" THEN Run(s, task) ELSE [s EXCEPT !.tasks = Append(@, task)]

RECURSIVE RunAll(_, _)
RunAll(s, list) ==
  LET Rest(t) == RunAll(t, Tail(list)) IN IF list = <<>> THEN s ELSE With(Run(s, Head(list)), Rest)

-----------------------------------------------------------------------------
(* Calls. *)

AfterAdd(s, bytes, fails) ==
  LET number == Cardinality(Known(s)) + 1
      record == [number |-> number, size |-> bytes, fails_on |-> fails]
      added == [s EXCEPT !.pending_callbacks = Append(@, number)]
  IN Told(IF IsBatching THEN Given(added, TaskOf(record))
          ELSE IF s.status # "open" THEN Answered(added, <<number>>)
          ELSE IF fails = "single" /\ unserialisable_alone = "exception" THEN [added EXCEPT !.thrown = TRUE]
          ELSE Alone(added, record))

AfterClose(s) ==
  LET Done(t) == [t EXCEPT !.is_done = @ \/ t.closed > 0]
  IN CASE s.status = "closed" -> [s EXCEPT !.is_done = TRUE]
       [] s.status = "closing" -> IF second_close = "returns" THEN [s EXCEPT !.is_done = TRUE]
                                  ELSE [s EXCEPT !.closers = @ + 1]
       [] s.status = "open" ->
            IF IsBatching THEN Told(With(Given([s EXCEPT !.status = "closing", !.closers = 1], EndOfClose), Done))
            ELSE [s EXCEPT !.status = "closed", !.closed = 1, !.is_done = TRUE]

AfterTasks(s, n) ==
  LET m == IF n < Len(s.tasks) THEN n ELSE Len(s.tasks)
  IN Told(RunAll([s EXCEPT !.tasks = SubSeq(@, m + 1, Len(@))], SubSeq(s.tasks, 1, m)))

\* Advances the clock by ms, at most to the deadline of the timer.
Later(s, ms) ==
  [s EXCEPT !.buffer = [k \in DOMAIN @ |-> [@[k] EXCEPT !.since = @ - ms]],
            !.timer = IF @ = None THEN None ELSE @ - ms]

RECURSIVE Passed(_, _)
Passed(s, ms) ==
  LET Rest(t) == Passed(t, ms - s.timer)
      due == IF s.timer = None THEN FALSE ELSE s.timer <= ms
  IN IF due THEN With(Given([Later(s, s.timer) EXCEPT !.timer = None], Tick), Rest) ELSE Later(s, ms)
AfterTime(s, ms) == Told(Passed(s, ms))

-----------------------------------------------------------------------------
(* The ledger. *)

\* Completes the first write in flight.
AfterCompletion(s) ==
  LET Ends(t) == Completed(t, Head(s.in_flight))
  IN IF s.in_flight = <<>> THEN s ELSE Told(With([s EXCEPT !.in_flight = Tail(@)], Ends))

\* Fails the first write in flight; its entry may be durable.
AfterFailure(s, is_stored) ==
  LET write == Head(s.in_flight)
      failed == Answered([s EXCEPT !.in_flight = Tail(@)], write.records)
  IN IF s.in_flight = <<>> THEN s ELSE Told(IF is_stored THEN Stored(failed, write, FALSE) ELSE failed)

AfterRoll(s) == [s EXCEPT !.ledger = @ + 1, !.next_entry = 0]
AfterFence(s) == [s EXCEPT !.fenced = TRUE]

-----------------------------------------------------------------------------
(* Steps. *)

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

\* An open writer with an empty buffer. A free-running timer is armed.
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
(* Bounds. *)

RecordsAtMost(n) == Cardinality(Known(Contents)) <= n
TasksAtMost(n) == Len(tasks) <= n
LedgersAtMost(n) == ledger <= n
ClosersAtMost(n) == closers <= n
AgeAtMost(n) == buffer # <<>> => -Head(buffer).since <= n
=============================================================================
