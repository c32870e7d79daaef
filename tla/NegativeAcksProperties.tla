------------------------ MODULE NegativeAcksProperties ------------------------
(***************************************************************************)
(* Guarantees of the negative-ack tracker.  Twin of                        *)
(* invariants/negative_acks.py, under the same names.                      *)
(*                                                                         *)
(* An action property is an invariant here: in every reachable state, the  *)
(* action with any of its arguments would satisfy it.                      *)
(*                                                                         *)
(* Not stated: what equal steps already establish, as the properties hold  *)
(* for the model; properties of message ids, which are not modelled.       *)
(***************************************************************************)
EXTENDS NegativeAcks

\* Entries of the scope, and ids that no stored message has.
AnyEntry == entry \cup {<<1, -1>>, <<-1, 0>>}
ClockSteps == step_wall_clock_by \cup {-1, 1}
IsValid(e) == e[1] >= 0 /\ e[2] >= 0
MsLength == Units * 2^precision_bits

RequestedDelay(c) ==
  IF backoff.delays = <<>> THEN redelivery_delay_ms * Units
  ELSE LET count == IF c = None THEN redelivery_count_of_id ELSE c
           listed == backoff.delays[IF count < Len(backoff.delays) THEN count + 1 ELSE Len(backoff.delays)]
       IN (listed * Units) \div PerMs(backoff.unit)

\* For all steps of time and all runs of the timer task: Holds(result, lag).
InTime(Holds(_, _)) == \A n \in advance_time_by, late \in timer_lag : Holds(AfterTime(Tracker, n, late), late)
InRuns(Holds(_, _)) == InTime(Holds) /\ Holds(AfterTask(Tracker), 0)

Commands(after) == {after.commands[k] : k \in DOMAIN after.commands}
EntriesOf(ns) == {n[2] : n \in ns}
IsEmpty(s) == s.nacks = {} /\ s.deadline = None

\* The tracker is constructed for every delay, including 0.
TrackerStartsWithAnyDelay == status # "failed"

-----------------------------------------------------------------------------
(* Nack. *)

\* For all nacks of these entries: Holds(entry, redelivery count, result).
InNacks(entries, Holds(_, _, _)) ==
  \A e \in entries, c \in redelivery_count : Holds(e, c, AfterNack(Tracker, e, c))

\* A tracker that is not closed accepts every nack with nonnegative ids and a nonnegative delay.
ValidNackIsAccepted ==
  LET Holds(e, c, after) ==
        status \in {"closed", "failed"} \/ ~IsValid(e) \/ RequestedDelay(c) < 0 \/ after.is_accepted
  IN InNacks(AnyEntry, Holds)

\* A nack with a negative ledger or entry id is rejected and leaves the state unchanged.
NegativeMessageIdIsRejected ==
  LET Holds(e, c, after) == IsValid(e) \/ (~after.is_accepted /\ after.s = Tracker) IN InNacks(AnyEntry, Holds)

\* The delay of an accepted nack is not negative.
NackDelayIsNonnegative ==
  LET Holds(e, c, after) == after.is_accepted => after.delay >= 0 IN InNacks(entry, Holds)

\* The delay of an accepted nack is the requested one, or the minimum delay if that is longer.
NackDelayIsRequestedOrMinimum ==
  LET Holds(e, c, after) ==
        after.is_accepted /\ after.delay >= 0 => after.delay = Max(RequestedDelay(c), min_delay_ms * Units)
  IN InNacks(entry, Holds)

\* The bucket times of an entry after a nack, and when it is due.
OwnTimes(e, after) == {n[1] : n \in {n \in after.s.nacks : n[2] = e}}
Due(after) == now + after.delay

\* After a nack its entry is in a bucket at the due time or before it by less than the bucket length.
\* With the option earliest_due, an earlier bucket of the entry remains its only one.
NackedEntryIsInBucketOfDueTime ==
  LET Holds(e, c, after) ==
        LET earlier == {n[1] : n \in {n \in nacks : n[2] = e}}
        IN after.is_accepted =>
             IF repeated_nack = "earliest_due" /\ \E t \in earlier : t <= Due(after) THEN OwnTimes(e, after) = earlier
             ELSE \E t \in OwnTimes(e, after) : Due(after) - MsLength < t /\ t <= Due(after)
  IN InNacks(entry, Holds)

\* A nack adds at most its entry to one bucket; all nacks pending before it are pending after it.
NackLeavesOtherNacksPending ==
  LET Holds(e, c, after) ==
        LET added == after.s.nacks \ nacks
        IN nacks \subseteq after.s.nacks /\ EntriesOf(added) \subseteq {e} /\ Cardinality(added) <= 1
  IN InNacks(AnyEntry, Holds)

\* A nack leaves an armed timer armed, with the same deadline or an earlier one.
NackNeverPostponesTimer ==
  LET Holds(e, c, after) == deadline # None => after.s.deadline # None /\ after.s.deadline <= deadline
  IN InNacks(AnyEntry, Holds)

-----------------------------------------------------------------------------
(* Buckets and timer. *)

\* Every bucket time is a multiple of 2^precision_bits milliseconds.
BucketTimesAreMultiplesOfLength == \A n \in nacks : n[1] % MsLength = 0

\* While nacks are pending, the timer's deadline is not after the first bucket time, or not after now.
TimerDeadlineIsAtMostFirstBucket ==
  status = "open" /\ nacks # {} => deadline # None /\ deadline <= Max(FirstTime(nacks), now)

-----------------------------------------------------------------------------
(* Redelivery. *)

\* A pending nack is redelivered before its bucket ends, or at once if it has ended, plus the lag of the timer.
RedeliveryIsNotLate ==
  LET Holds(after, late) ==
        \A n \in nacks :
          LET latest == Max(n[1] + MsLength - 1, now) + late
          IN latest <= after.s.now =>
               \E given \in Commands(after) : given.at <= latest /\ n[2] \in EntriesOf(given.nacks)
  IN status = "open" => InTime(Holds)

\* The ids of a redelivery command are distinct.
RedeliveryCommandHasNoDuplicateId ==
  LET Holds(after, late) ==
        \A given \in Commands(after) :
          unique_in_command = "nothing" => Cardinality(EntriesOf(given.nacks)) = Cardinality(given.nacks)
  IN InRuns(Holds)

\* After a run of the timer task, every remaining bucket is in the future.
TimerRunLeavesNoDueBucket ==
  LET NothingDue(after) == \A n \in after.s.nacks : n[1] > after.s.now
      Holds(after, late) ==
        LET ran_now == \/ deadline # None /\ Max(deadline + late, now) = after.s.now
                       \/ \E given \in Commands(after) : given.at = after.s.now
        IN ran_now => NothingDue(after)
  IN InTime(Holds) /\ (status = "open" => NothingDue(AfterTask(Tracker)))

\* Every run of the timer task redelivers something.
TimerRunsOnlyToRedeliver == LET Holds(after, late) == after.runs = Len(after.commands) IN InTime(Holds)

\* A step of the wall clock leaves every due time at the same monotonic time.
WallClockStepMovesNoDueTime == \A n \in ClockSteps : nacks # {} => AfterClockStep(Tracker, n).offset = 0

-----------------------------------------------------------------------------
(* Close. *)

\* Close leaves the tracker closed; a closed tracker has no pending nack and no timer, and redelivers nothing.
CloseIsFinal ==
  LET closed == AfterClose(Tracker)
      IsSilent(after, late) == IsEmpty(after.s) /\ after.commands = <<>>
      IsRejected(e, c, after) == after.s.status = "closed" /\ IsEmpty(after.s)
  IN /\ status # "failed" => closed.status = "closed" /\ IsEmpty(closed)
     /\ status = "closed" => IsEmpty(Tracker) /\ InRuns(IsSilent) /\ InNacks(AnyEntry, IsRejected)

\* A timer task that runs while the tracker is not open returns normally and changes nothing.
TimerTaskAfterCloseIsANoOp ==
  LET after == AfterTask(Tracker)
  IN status \notin {"open", "failed"} => ~after.fails /\ after.commands = <<>> /\ after.s = Tracker

-----------------------------------------------------------------------------
(* Liveness, once only the fair actions occur. *)

\* If time passes, the timer task runs and no new nack is made, no nack stays pending.
EveryNackIsRedelivered == nacks = {}
=============================================================================
