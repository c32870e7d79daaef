----------------------------- MODULE NegativeAcks -----------------------------
(*****************************************************************************)
(* Negative-ack tracker of one consumer: which entries to redeliver, and     *)
(* when (PIP-393).                                                           *)
(*                                                                           *)
(* Twin of model/negative_acks/machine.py: the same actions and settings,    *)
(* equal states and steps.  Models NegativeAcksTracker of the Java client    *)
(* before and after PIP-393, that of the C++ client, and negativeAcksTracker *)
(* of the Go client.  NackTree.tla is the Go client's AVL tree.              *)
(*                                                                           *)
(* Step grain: one call of the tracker, one run of its timer task, one step  *)
(* of the wall clock, or one AdvanceTime with all runs that become due.      *)
(*                                                                           *)
(* A state is a canonical state of the model: the clocks show the same time, *)
(* and all times are shifted so that now is less than a bucket length.  A    *)
(* pending nack is a pair <<bucket time, entry>>.  Times are in clock_unit.  *)
(*                                                                           *)
(* Not modelled: message ids, so neither retained ids nor chunked messages;  *)
(* the contents of a redelivery command beyond its entries                   *)
(* (unique_in_command); what a run without buckets throws                    *)
(* (task_without_buckets); and what the model does not model.                *)
(*****************************************************************************)
EXTENDS NackTree

CONSTANTS
  \* Settings, and rules in which clients differ.  Config in model/negative_acks/machine.py explains them.
  clock_unit, initial_time, redelivery_delay_ms, precision_bits, backoff, min_delay_ms, min_delay_applies_to,
  negative_delay, message_without_backoff, redelivery_count_of_id, due_clock, precision_unit, timer, interval_unit,
  repeated_nack, due_at_bucket_time, due_buckets, after_close, negative_ids,
  \* The values of the actions' arguments.
  entry, ack_entry, redelivery_count, advance_time_by, timer_lag, step_wall_clock_by

VARIABLES
  now,       \* the time of the monotonic clock and of the wall clock
  status,    \* "new" (nackedMessages is null), "open", "closed", or "failed" (the constructor panicked)
  nacks,     \* the pending nacks: a set of <<bucket time, entry>>
  deadline,  \* the deadline of the timer, or None if no timer is armed
  avl_tree   \* the AVL tree of the bucket times; None if it is empty, or due_buckets is not "avl_walk"

vars == <<now, status, nacks, deadline, avl_tree>>

\* The variables as one record.  offset: the wall clock minus the monotonic clock; 0 between steps, because Become
\* shifts the times instead.
Tracker == [now |-> now, offset |-> 0, status |-> status, nacks |-> nacks, deadline |-> deadline, avl_tree |-> avl_tree]

-----------------------------------------------------------------------------
(* Rules. *)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
\* The number of time units in a millisecond.
PerMs(unit) == IF unit = "ms" THEN 1 ELSE 1000000
Units == PerMs(clock_unit)
BucketLength == (IF precision_unit = "clock_units" THEN 1 ELSE Units) * 2^precision_bits
MinDelay == min_delay_ms * Units

\* The delay of a nack by message with redelivery count c, or by message id if c is None.  The value is None if the call
\* throws because there is no backoff.
DelayOf(c) ==
  LET count == IF c = None THEN redelivery_count_of_id ELSE c
      listed == (backoff.delays[Min(count + 1, Len(backoff.delays))] * Units) \div PerMs(backoff.unit)
      fixed == redelivery_delay_ms * Units
  IN CASE backoff.delays # <<>> ->
            IF 0 <= listed /\ listed < MinDelay /\ min_delay_applies_to = "all" THEN MinDelay ELSE listed
       [] backoff.delays = <<>> /\ c # None /\ message_without_backoff = "null_pointer" -> None
       [] OTHER -> IF fixed < MinDelay /\ min_delay_applies_to # "none" THEN MinDelay ELSE fixed

\* The timer interval: a third of the delay of a nack by id.  Except for a ticker, a delay below the minimum delay
\* counts as the minimum delay, and the interval is a multiple of interval_unit, rounded down, but not to 0.
Interval ==
  LET delay == IF DelayOf(None) = None THEN 0 ELSE DelayOf(None)
      unit == IF interval_unit = "milliseconds" THEN Units ELSE 1
  IN IF timer = "ticker" THEN Max(delay, 0) \div 3 ELSE Max((Max(delay, MinDelay) \div 3) \div unit, 1) * unit

\* trimLowerBit: the due time, rounded down to a multiple of the bucket length.
BucketTime(due) == (due \div BucketLength) * BucketLength

TimesOf(ns) == {n[1] : n \in ns}
FirstTime(ns) == CHOOSE t \in TimesOf(ns) : \A u \in TimesOf(ns) : t <= u
Without(ns, e) == {n \in ns : n[2] # e}

\* The pending nacks after a nack, by the rule for repeated nacks.
WithNack(ns, time, e) ==
  LET own == {n \in ns : n[2] = e}
      single == Without(ns, e) \cup {<<time, e>>}
  IN CASE repeated_nack = "both" -> ns \cup {<<time, e>>}
       [] repeated_nack = "first" /\ own # {} -> ns
       [] repeated_nack = "earliest_due" /\ own # {} -> IF FirstTime(own) <= time THEN ns ELSE single
       [] OTHER -> single

\* The monotonic time at which a bucket is due, or now if the bucket is due already.
TimerForBucket(s, time) == Max(s.now, IF due_at_bucket_time THEN time - s.offset ELSE time - s.offset + 1)

\* The deadline of the timer after a nack with this bucket time and delay (DeadlineAfterNack), or after a run that
\* leaves the nacks `rest` (DeadlineAfterRun).  With timer "first_bucket", a nack does not re-arm a timer that is due.
DeadlineAfterNack(s, time, delay) ==
  CASE s.status = "closed" -> s.deadline
    [] s.status # "closed" /\ timer = "first_bucket" ->
         IF s.deadline = None THEN TimerForBucket(s, time)
         ELSE IF s.deadline <= s.now THEN s.deadline ELSE Min(s.deadline, TimerForBucket(s, time))
    [] s.status # "closed" /\ timer = "interval_on_each_nack" -> s.now + Interval
    [] OTHER ->
         IF s.deadline # None \/ timer = "ticker" THEN s.deadline
         ELSE s.now + (IF timer = "delay_when_idle" THEN delay ELSE Interval)

DeadlineAfterRun(s, rest) ==
  CASE timer \in {"first_bucket", "delay_when_idle"} -> IF rest = {} THEN None ELSE TimerForBucket(s, FirstTime(rest))
    [] timer = "ticker" -> s.deadline
    [] OTHER -> IF s.nacks = {} THEN None ELSE s.now + Interval

IsDue(s, time) == IF due_at_bucket_time THEN time <= s.now + s.offset ELSE time < s.now + s.offset

-----------------------------------------------------------------------------
(* Actions map a record (Tracker) to the next record; those that redeliver, to [s |-> next record, commands]. *)

\* triggerRedelivery: removes the due buckets, and redelivers their entries in one command [at, nacks].
AfterRun(s) ==
  LET walk == Walk(s.avl_tree, s.now + s.offset)
      due == {n \in s.nacks : IF due_buckets = "avl_walk" THEN n[1] \in walk.times ELSE IsDue(s, n[1])}
      rest == s.nacks \ due
      tree == IF due_buckets = "avl_walk" THEN walk.tree ELSE None
  IN [s |-> [s EXCEPT !.nacks = rest, !.deadline = DeadlineAfterRun(s, rest), !.avl_tree = tree],
      commands |-> IF due = {} THEN <<>> ELSE <<[at |-> s.now, nacks |-> due]>>]

Opened(s) == IF s.status = "new" THEN [s EXCEPT !.status = "open"] ELSE s

\* A nack of entry e that is due after the delay.
Accepted(s, e, delay) ==
  LET time == BucketTime(s.now + s.offset + delay)
  IN [s EXCEPT !.nacks = WithNack(@, time, e), !.deadline = DeadlineAfterNack(s, time, delay),
               !.avl_tree = IF due_buckets = "avl_walk" THEN Inserted(@, time) ELSE None]

\* With negative_ids "ledger_fails", a nack with a negative ledger id opens the tracker, but its entry is not stored.
AfterNack(s, e, c) ==
  LET delay == DelayOf(c)
      is_rejected == \/ s.status = "failed"
                     \/ s.status = "closed" /\ after_close = "final"
                     \/ delay = None
                     \/ delay # None /\ delay < 0 /\ negative_delay = "rejected"
                     \/ negative_ids = "rejected" /\ (e[1] < 0 \/ e[2] < 0)
  IN CASE is_rejected -> s
       [] ~is_rejected /\ negative_ids = "ledger_fails" /\ e[1] < 0 -> Opened(s)
       [] OTHER -> Accepted(Opened(s), e, delay)

\* An acknowledgement leaves the tracker unchanged; the broker ignores the redelivery of an acknowledged message.
AfterAck(s, e) == s

AfterClose(s) ==
  CASE s.status = "failed" -> s
    [] s.status # "failed" /\ after_close = "keeps_buckets" -> [s EXCEPT !.status = "closed", !.deadline = None]
    [] OTHER -> [s EXCEPT !.status = IF after_close = "reopens" THEN "new" ELSE "closed", !.nacks = {},
                          !.deadline = None, !.avl_tree = None]

\* All runs of the timer task up to the time `end`.  Each run is `late` time units after its deadline, or now if
\* that is later.
RECURSIVE RunsUntil(_, _, _, _)
RunsUntil(s, end, late, commands) ==
  LET at == IF s.deadline = None THEN end + 1 ELSE Max(s.deadline + late, s.now)
      Ticked(t) == IF timer = "ticker" /\ t.deadline # None THEN [t EXCEPT !.deadline = @ + Interval] ELSE t
      Rest(ran) == RunsUntil(Ticked(ran.s), end, late, commands \o ran.commands)
  IN IF at > end THEN [s |-> [s EXCEPT !.now = end], commands |-> commands]
     ELSE With(AfterRun([s EXCEPT !.now = at]), Rest)
AfterTime(s, n, late) == RunsUntil(s, s.now + n, late, <<>>)

\* A run of the timer task outside AdvanceTime.  It has no effect unless the tracker is open.
AfterTask(s) == IF s.status = "open" THEN AfterRun(s) ELSE [s |-> s, commands |-> <<>>]

AfterClockStep(s, n) == IF due_clock = "monotonic" THEN s ELSE [s EXCEPT !.offset = @ + n]

-----------------------------------------------------------------------------
(* Steps. *)

\* Makes the canonical form of a state the next state.
Become(given) ==
  \E s \in {given} : \E shown \in {s.now + s.offset} : \E later \in {(shown % BucketLength) - shown} :
    /\ now' = shown + later
    /\ status' = s.status
    /\ nacks' = {<<n[1] + later, n[2]>> : n \in s.nacks}
    /\ deadline' = IF s.deadline = None THEN None ELSE s.deadline + s.offset + later
    /\ avl_tree' = Shifted(s.avl_tree, later)

Init ==
  LET is_failed == timer = "ticker" /\ Interval = 0
      begin == initial_time % BucketLength
  IN /\ now = begin
     /\ status = IF is_failed THEN "failed" ELSE IF after_close = "reopens" THEN "new" ELSE "open"
     /\ nacks = {}
     /\ deadline = IF timer = "ticker" /\ ~is_failed THEN begin + Interval ELSE None
     /\ avl_tree = None

Nack == \E e \in entry, c \in redelivery_count : Become(AfterNack(Tracker, e, c))
Ack == \E e \in ack_entry : Become(AfterAck(Tracker, e))
Close == Become(AfterClose(Tracker))
AdvanceTime == \E n \in advance_time_by, late \in timer_lag : Become(AfterTime(Tracker, n, late).s)

\* RunTimerTask: a run of the timer task that had started when its timer was re-armed or cancelled.  FailRedelivery: the
\* same run, but the consumer throws.  The due nacks are lost, because the tracker has removed them.
RunTimerTask == Become(AfterTask(Tracker).s)
FailRedelivery == Become(AfterTask(Tracker).s)
StepWallClock == \E n \in step_wall_clock_by : Become(AfterClockStep(Tracker, n))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Pending nacks; the time since the deadline; the largest distance of a bucket time from now.
PendingAtMost(n) == Cardinality(nacks) <= n
OverdueAtMost(n) == deadline = None \/ now - deadline <= n
ReachAtMost(n) == \A p \in nacks : p[1] - now <= n /\ now - p[1] <= n
=============================================================================
