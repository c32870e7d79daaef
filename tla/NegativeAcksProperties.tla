------------------------ MODULE NegativeAcksProperties ------------------------
(*****************************************************************************)
(* Properties of the negative-acks tracker, under the names of               *)
(* invariants/negative_acks.py: some of its invariants, and all of its       *)
(* liveness properties.                                                      *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.  The other properties of the model, except those about *)
(* message ids, hold here because model and twin have equal steps.           *)
(*****************************************************************************)
EXTENDS NegativeAcks

\* The entries of the scope, and two with negative ids, which no stored message has.
AnyEntry == entry \cup {<<1, -1>>, <<-1, 0>>}
ClockSteps == step_wall_clock_by \cup {-1, 1}
\* 2^precision_bits milliseconds, in clock_unit.  This is the length of a bucket if precision_unit is "milliseconds".
MsLength == Units * 2^precision_bits

\* Whether Holds(result, lag) for every advance of time (InTime), and also for a run of the timer task (InRuns).
InTime(Holds(_, _)) == \A n \in advance_time_by, late \in timer_lag : Holds(AfterTime(Tracker, n, late), late)
InRuns(Holds(_, _)) == InTime(Holds) /\ Holds(AfterTask(Tracker), 0)

Commands(after) == {after.commands[k] : k \in DOMAIN after.commands}
EntriesOf(ns) == {n[2] : n \in ns}
IsEmpty(s) == s.nacks = {} /\ s.deadline = None

\* The construction of the tracker succeeds for every delay, including 0.
TrackerStartsWithAnyDelay == status # "failed"

-----------------------------------------------------------------------------
(* Nack. *)

\* Whether Holds(state) for the state after each nack.
InNacks(Holds(_)) == \A e \in AnyEntry, c \in redelivery_count : Holds(AfterNack(Tracker, e, c))

\* A nack leaves an armed timer armed, with the same deadline or an earlier one.
NackNeverPostponesTimer ==
  LET Holds(s) == deadline # None => s.deadline # None /\ s.deadline <= deadline IN InNacks(Holds)

-----------------------------------------------------------------------------
(* Buckets and timer. *)

\* Every bucket time is a multiple of 2^precision_bits milliseconds.
BucketTimesAreMultiplesOfLength == \A n \in nacks : n[1] % MsLength = 0

\* While an open tracker has pending nacks, its timer is armed, and the deadline is at most the first bucket time, or
\* now if that is later.
TimerDeadlineIsAtMostFirstBucket ==
  status = "open" /\ nacks # {} => deadline # None /\ deadline <= Max(FirstTime(nacks), now)

-----------------------------------------------------------------------------
(* Redelivery. *)

\* A pending nack is redelivered at most the timer lag after the end of its bucket.  If the bucket has ended before the
\* step, the lag counts from the start of the step.  TimerDeadlineIsAtMostFirstBucket guarantees that the timer is
\* armed, at the latest for the bucket time.
RedeliveryIsNotLate ==
  LET Holds(after, late) ==
        \A n \in nacks :
          LET latest == Max(n[1] + MsLength - 1, now) + late
          IN latest <= after.s.now =>
               \E given \in Commands(after) : given.at <= latest /\ n[2] \in EntriesOf(given.nacks)
  IN status = "open" => InTime(Holds)

\* A step of the wall clock does not change the monotonic time of any bucket.
WallClockStepMovesNoDueTime == \A n \in ClockSteps : nacks # {} => AfterClockStep(Tracker, n).offset = 0

-----------------------------------------------------------------------------
(* Close. *)

\* A closed tracker stays closed, and redelivers nothing.  It has no pending nack and no armed timer.
CloseIsFinal ==
  LET closed == AfterClose(Tracker)
      IsSilent(after, late) == IsEmpty(after.s) /\ after.commands = <<>>
      IsRejected(s) == s.status = "closed" /\ IsEmpty(s)
  IN /\ status # "failed" => closed.status = "closed" /\ IsEmpty(closed)
     /\ status = "closed" => IsEmpty(Tracker) /\ InRuns(IsSilent) /\ InNacks(IsRejected)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* If time advances, the timer task runs and nacks stop, every pending nack is eventually redelivered.
\* Fair: AdvanceTime, RunTimerTask.  RunTimerTask is fair because AdvanceTime may give the timer any lag.  That the
\* timer is armed is a safety property (TimerDeadlineIsAtMostFirstBucket).
EveryNackIsRedelivered == nacks = {}
=============================================================================
