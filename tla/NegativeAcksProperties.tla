------------------------ MODULE NegativeAcksProperties ------------------------
(*****************************************************************************)
(* Invariants and liveness of the negative-ack tracker: those of             *)
(* invariants/negative_acks.py that a client engineer would name first,      *)
(* under the same names.                                                     *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.  Equal     *)
(* steps establish the other properties of the model, except those of        *)
(* message ids.                                                              *)
(*****************************************************************************)
EXTENDS NegativeAcks

\* The entries of the scope, and two with negative ids, which no stored message has.
AnyEntry == entry \cup {<<1, -1>>, <<-1, 0>>}
ClockSteps == step_wall_clock_by \cup {-1, 1}
\* The length of a bucket if precision_bits are bits of a time in milliseconds.
MsLength == Units * 2^precision_bits

\* Whether Holds(result, lag) for every advance of time; and for every run of the timer task, too.
InTime(Holds(_, _)) == \A n \in advance_time_by, late \in timer_lag : Holds(AfterTime(Tracker, n, late), late)
InRuns(Holds(_, _)) == InTime(Holds) /\ Holds(AfterTask(Tracker), 0)

Commands(after) == {after.commands[k] : k \in DOMAIN after.commands}
EntriesOf(ns) == {n[2] : n \in ns}
IsEmpty(s) == s.nacks = {} /\ s.deadline = None

\* The constructor does not panic, whatever the delay.
TrackerStartsWithAnyDelay == status # "failed"

-----------------------------------------------------------------------------
(* Nack. *)

\* Whether Holds(state) for the state after any nack.
InNacks(Holds(_)) == \A e \in AnyEntry, c \in redelivery_count : Holds(AfterNack(Tracker, e, c))

\* A nack leaves an armed timer armed, with the same deadline or an earlier one.
NackNeverPostponesTimer ==
  LET Holds(s) == deadline # None => s.deadline # None /\ s.deadline <= deadline IN InNacks(Holds)

-----------------------------------------------------------------------------
(* Buckets and timer. *)

\* A bucket time is a multiple of 2^precision_bits milliseconds.
BucketTimesAreMultiplesOfLength == \A n \in nacks : n[1] % MsLength = 0

\* While nacks are pending, the timer of an open tracker is armed for the first bucket or earlier.
TimerDeadlineIsAtMostFirstBucket ==
  status = "open" /\ nacks # {} => deadline # None /\ deadline <= Max(FirstTime(nacks), now)

-----------------------------------------------------------------------------
(* Redelivery. *)

\* As time advances, every nack is redelivered at its due time or earlier, plus the lag of the timer.
RedeliveryIsNotLate ==
  LET Holds(after, late) ==
        \A n \in nacks :
          LET latest == Max(n[1] + MsLength - 1, now) + late
          IN latest <= after.s.now =>
               \E given \in Commands(after) : given.at <= latest /\ n[2] \in EntriesOf(given.nacks)
  IN status = "open" => InTime(Holds)

\* A step of the wall clock does not change the time that remains until a nack is due.
WallClockStepMovesNoDueTime == \A n \in ClockSteps : nacks # {} => AfterClockStep(Tracker, n).offset = 0

-----------------------------------------------------------------------------
(* Close. *)

\* After close nothing is pending, nothing is redelivered, and nacks are rejected.
CloseIsFinal ==
  LET closed == AfterClose(Tracker)
      IsSilent(after, late) == IsEmpty(after.s) /\ after.commands = <<>>
      IsRejected(s) == s.status = "closed" /\ IsEmpty(s)
  IN /\ status # "failed" => closed.status = "closed" /\ IsEmpty(closed)
     /\ status = "closed" => IsEmpty(Tracker) /\ InRuns(IsSilent) /\ InNacks(IsRejected)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: AdvanceTime, RunTimerTask.  Every bucket becomes due, and a run then redelivers it.  RunTimerTask is fair
\* because a timer may lag for any time; that it is armed is a safety property (TimerDeadlineIsAtMostFirstBucket).
EveryNackIsRedelivered == nacks = {}
=============================================================================
