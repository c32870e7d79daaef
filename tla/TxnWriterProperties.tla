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
InSteps(Holds(_, _)) ==
  /\ InTasks(Holds)
  /\ Holds("complete_write", AfterCompletion(Contents))
  /\ \A is_stored \in durable : Holds("fail_write", AfterFailure(Contents, is_stored))
  /\ Holds("roll_ledger", AfterRoll(Contents))
  /\ Holds("fence", AfterFence(Contents))

\* The lists of some of a list's members, one behind the other.
RECURSIVE Joined(_)
Joined(lists) == IF lists = <<>> THEN <<>> ELSE Head(lists) \o Joined(Tail(lists))
RECURSIVE Sum(_)
Sum(list) == IF list = <<>> THEN 0 ELSE Head(list) + Sum(Tail(list))
IsRising(list) == \A k \in 1..Len(list) - 1 : list[k] < list[k + 1]
HasAll(list, numbers) == Members(list) = numbers /\ Len(list) = Cardinality(numbers)
\* A list is another one, to which more may have come.
IsMoreOf(list, begin) == Len(begin) <= Len(list) /\ \A k \in DOMAIN begin : list[k] = begin[k]
Plus(n) == IF n < 0 THEN 0 ELSE n

RecordsOf(entries) == Joined([k \in DOMAIN entries |-> entries[k].records])
IsRecord(task) == task.is = "record"
TaskRecords == LET found == SelectSeq(tasks, IsRecord) IN [k \in DOMAIN found |-> found[k].record.number]
\* The records that wait for the ledger, in the buffer, or for the thread, in this order.
Held == RecordsOf(in_flight) \o (IF status = "closed" THEN <<>> ELSE NumbersOf(buffer)) \o TaskRecords
HasTick == Tick \in Members(tasks)
IsOk(answer) == answer.outcome = "ok"

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

\* A record's callback is told exactly once, that it is stored or that it failed; a new record waits for that.
ACallbackIsToldOnce ==
  LET new == Cardinality(Known(Contents)) + 1
      Holds(action, after) ==
        HasAll([k \in DOMAIN after.answers |-> after.answers[k].record] \o after.unanswered,
               Members(unanswered) \cup (IF action = "add" THEN {new} ELSE {}))
  IN InSteps(Holds)

\* Each success names the entry, and the place in it, where a reader finds that very record, and each stored record is
\* told so unless its write failed all the same.
WhatIsToldIsWhatIsStored ==
  LET Expected(entry) ==
        LET n == Len(entry.records)
        IN [k \in 1..n |-> [record |-> entry.records[k], outcome |-> "ok", position |-> entry.position,
                            place |-> IF entry.batched THEN k - 1 ELSE None,
                            batch |-> IF entry.batched THEN n ELSE None]]
      IsTold(entry) == entry.told
      Holds(action, after) ==
        LET new == SelectSeq(SubSeq(after.log, Len(log) + 1, Len(after.log)), IsTold)
        IN SelectSeq(after.answers, IsOk) = Joined([k \in DOMAIN new |-> Expected(new[k])])
  IN InSteps(Holds)

\* The end of a write is told to each record of that entry, in order, all alike; other entries are not touched.
AnEndReachesEveryRecordOfItsEntryAndNoOther ==
  LET Reaches(after, outcome) ==
        /\ after.in_flight = Tail(in_flight)
        /\ [k \in DOMAIN after.answers |-> <<after.answers[k].record, after.answers[k].outcome>>]
             = [k \in DOMAIN Head(in_flight).records |-> <<Head(in_flight).records[k], outcome>>]
  IN in_flight # <<>> =>
       /\ Reaches(AfterCompletion(Contents), "ok")
       /\ \A is_stored \in durable : Reaches(AfterFailure(Contents, is_stored), "write_failed")

\* Whoever is told of a success later stands behind all that were told before, and so with the places of a batch.
IsBefore(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
SuccessesComeInTheOrderOfPositions ==
  LET Place(answer) == IF answer.place = None THEN 0 ELSE answer.place
      Follows(a, b) == \/ IsBefore(a.position, b.position)
                       \/ a.position = b.position /\ Place(a) < Place(b)
      Holds(action, after) ==
        LET told == SelectSeq(after.answers, IsOk)
        IN /\ \A k \in 1..Len(told) - 1 : Follows(told[k], told[k + 1])
           /\ told # <<>> /\ log # <<>> => IsBefore(log[Len(log)].position, told[1].position)
  IN InSteps(Holds)

-----------------------------------------------------------------------------
(* Entries. *)

\* No record stands before one that was added earlier, nor twice: not in the log, nor among what is to be written.
RecordsAreStoredInTheOrderOfTheirCalls == IsRising(RecordsOf(log) \o Held)

\* Entry numbers rise by one from 0 in each ledger, and the next entry comes behind all of them.
EntriesHavePositionsInOrder ==
  LET Before(k) == {j \in 1..k - 1 : log[j].position[1] = log[k].position[1]}
  IN /\ \A k \in DOMAIN log : log[k].position[2] = Cardinality(Before(k)) /\ log[k].position[1] <= ledger
     /\ \A k \in 1..Len(log) - 1 : log[k].position[1] <= log[k + 1].position[1]
     /\ next_entry = Cardinality({k \in DOMAIN log : log[k].position[1] = ledger})

\* A batch has one to max_records records.  All but the last have less than max_bytes together, and with it they have
\* less than twice as many.  A plain entry has one record.  An entry has its records' bytes, a batch a header, too.
AnEntryIsOneRecordOrABatchWithinItsLimits ==
  LET Shaped(each) == Len(each.records) \in 1..(IF each.batched THEN max_records ELSE 1)
      Fits(write, sizes) ==
        /\ Shaped(write)
        /\ write.size = Sum(sizes) + IF write.batched THEN header_bytes ELSE 0
        /\ write.batched => /\ Sum(SubSeq(sizes, 1, Len(sizes) - 1)) < max_bytes
                            /\ Sum(sizes) <= Plus(2 * max_bytes - 2)
      Holds(action, after) ==
        /\ \A entry \in Members(SubSeq(after.log, Len(log) + 1, Len(after.log))) : Shaped(entry)
        /\ \A write \in Members(after.writes) : Fits(write, SizesOf(write, after))
  IN InSteps(Holds)

\* A record of max_bytes or more is never in a batch, and a smaller one always, even if it is the only one.
WhatIsLargeGoesAloneAndWhatIsSmallInABatch ==
  LET Holds(action, after) ==
        /\ \A write \in Members(after.writes) :
             \A n \in Members(SizesOf(write, after)) : write.batched = (n < max_bytes)
        /\ \A each \in Members(after.buffer) : each.size < max_bytes
  IN InTasks(Holds)

\* With batching off no entry begins with the magic number, nothing is buffered, no timer is set, no task waits.
WithoutBatchingNothingHasAHeader ==
  /\ \A each \in Members(log) : ~each.batched
  /\ \A each \in Members(in_flight) : ~each.batched
  /\ buffer = <<>>
  /\ timer = None
  /\ tasks = <<>>

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

\* Once close was called no entry is submitted, unless the writer is one that flushes then; after it, none at all.
AWriterThatClosesWritesNothing ==
  LET Others(told) == {each.outcome : each \in {a \in Members(told) : a.record \notin Members(RecordsOf(in_flight))}}
      Holds(action, after) == /\ after.writes = <<>>
                              /\ status = "closing" \/ Others(after.answers) \subseteq {"closed"}
  IN status = "closed" \/ (status = "closing" /\ close_buffered = "fails") => InSteps(Holds)

\* Once close was called, all that is in the buffer or waits for the thread is told that the writer is closed, and what
\* is in the buffer no later than those who called close, unless it cannot be serialised and the timer finds that first.
ACloseFailsWhatHasNotGone ==
  LET buffered == Members(NumbersOf(buffer))
      Holds(action, after) ==
        LET fails == after.flushes # <<>> /\ IsPoisoned(Contents)
            IsToldSo(a) == a.outcome = "closed" \/ (fails /\ a.record \in buffered /\ a.outcome = "serialization")
        IN after.status # "open" =>
             /\ \A answer \in Members(after.answers) : IsToldSo(answer)
             /\ after.status = "closing" \/ buffered \subseteq {a.record : a \in Members(after.answers)}
  IN status # "closed" => InTasks(Holds)

\* A close fails what is in the buffer, and not what is on its way to the ledger: that ends as it may.
ACloseLeavesAloneWhatIsInFlight ==
  LET Holds(action, after) ==
        action \in {"close", "run_writer_tasks"} => IsMoreOf(after.in_flight, in_flight)
  IN InTasks(Holds)

\* Whoever is told that the writer is closed finds it closed, the second caller, too.
ACloseIsDoneWhenItSaysSo == LET after == AfterClose(Contents) IN after.is_done = (after.status = "closed")

\* Each caller of close who has to wait is told when the writer is closed; somebody waits only while it closes.
WhoeverClosesIsTold ==
  LET Holds(action, after) ==
        LET came == IF action = "close" /\ (after.closed > 0 \/ ~after.is_done) THEN 1 ELSE 0
        IN /\ after.closers = closers + came - after.closed
           /\ (after.closers > 0) = (after.status = "closing")
  IN InSteps(Holds)

\* An open writer closes, a closing one is closed, and that is that; a fence stays, and what is stored.
TimeAndStatusNeverGoBack ==
  LET later == [open |-> {"open", "closing", "closed"}, closing |-> {"closing", "closed"}, closed |-> {"closed"}]
      Holds(action, after) == /\ after.status \in later[status]
                              /\ fenced => after.fenced
                              /\ IsMoreOf(after.log, log)
  IN InSteps(Holds)

\* After a fence no write begins: each record that would have been written is told that the ledger is fenced.
AFencedLedgerTakesNothing ==
  LET Holds(action, after) == after.writes = <<>> IN fenced => InSteps(Holds)

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* While time passes and the thread runs, the buffer of an open writer is empty again and again.
WhatIsBufferedGoes == buffer = <<>> \/ status # "open"

\* A close ends once the thread runs, whatever the timer does meanwhile.
ACloseComesToItsEnd == status # "closing"

\* While time passes, the thread runs and writes end, there comes a time when all callbacks were told.
EveryRecordIsAnswered == unanswered = <<>>
=============================================================================
