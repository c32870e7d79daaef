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
MsLength == Units * 2^precision_bits

\* For all steps of time and all runs of the timer task: Holds(result, lag).
InTime(Holds(_, _)) == \A n \in advance_time_by, late \in timer_lag : Holds(AfterTime(Tracker, n, late), late)
InRuns(Holds(_, _)) == InTime(Holds) /\ Holds(AfterTask(Tracker), 0)

Commands(after) == {after.commands[k] : k \in DOMAIN after.commands}
EntriesOf(ns) == {n[2] : n \in ns}
IsEmpty(s) == s.nacks = {} /\ s.deadline = None

TrackerStartsWithAnyDelay == status # "failed"

-----------------------------------------------------------------------------
(* Nack. *)

\* The state after any nack.
InNacks(Holds(_)) == \A e \in AnyEntry, c \in redelivery_count : Holds(AfterNack(Tracker, e, c))

NackNeverPostponesTimer ==
  LET Holds(s) == deadline # None => s.deadline # None /\ s.deadline <= deadline IN InNacks(Holds)

-----------------------------------------------------------------------------
(* Buckets and timer. *)

BucketTimesAreMultiplesOfLength == \A n \in nacks : n[1] % MsLength = 0

TimerDeadlineIsAtMostFirstBucket ==
  status = "open" /\ nacks # {} => deadline # None /\ deadline <= Max(FirstTime(nacks), now)

-----------------------------------------------------------------------------
(* Redelivery. *)

RedeliveryIsNotLate ==
  LET Holds(after, late) ==
        \A n \in nacks :
          LET latest == Max(n[1] + MsLength - 1, now) + late
          IN latest <= after.s.now =>
               \E given \in Commands(after) : given.at <= latest /\ n[2] \in EntriesOf(given.nacks)
  IN status = "open" => InTime(Holds)

WallClockStepMovesNoDueTime == \A n \in ClockSteps : nacks # {} => AfterClockStep(Tracker, n).offset = 0

-----------------------------------------------------------------------------
(* Close. *)

CloseIsFinal ==
  LET closed == AfterClose(Tracker)
      IsSilent(after, late) == IsEmpty(after.s) /\ after.commands = <<>>
      IsRejected(s) == s.status = "closed" /\ IsEmpty(s)
  IN /\ status # "failed" => closed.status = "closed" /\ IsEmpty(closed)
     /\ status = "closed" => IsEmpty(Tracker) /\ InRuns(IsSilent) /\ InNacks(IsRejected)

-----------------------------------------------------------------------------
(* Liveness, once only the fair actions occur. *)

EveryNackIsRedelivered == nacks = {}
=============================================================================
