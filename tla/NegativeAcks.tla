----------------------------- MODULE NegativeAcks -----------------------------
(***************************************************************************)
(* The tracker of negative acknowledgements: which entries a consumer      *)
(* wants again, and when it asks for them.                                 *)
(*                                                                         *)
(* Source: PIP-393.  This is the twin of model/negative_acks/machine.py: the same  *)
(* actions under the same names, the same settings, and as many states.    *)
(* The Go client's tree is in NackTree.tla.  Grain: one call of the        *)
(* tracker, or one run of its timer's task.                                *)
(*                                                                         *)
(* A state here is what the model calls its canonical state: the wall      *)
(* clock and the steady one show the same, and stand as early as they can  *)
(* with the same slots to come.  The slots are a set of pairs <<time,      *)
(* entry>>, so that they have no order and none of them is empty.          *)
(*                                                                         *)
(* Not modelled: what is kept of message ids beside ledger and entry,      *)
(* traced ids and the pieces of chunked messages among them.  A run sets   *)
(* `ids` to none where a profile keeps the partition of every id.          *)
(***************************************************************************)
EXTENDS NackTree

CONSTANTS
  \* Settings, and rules on which versions differ.
  unit, start, redelivery_delay_ms, precision_bits, backoff, least_delay_ms, least_delay_holds_for, negative_delay,
  count_without_backoff, count_of_an_id, clock, precision_of, timer, again, due_at_its_time, walk, command, close,
  task_without_slots, negative_ids,
  \* The values of the actions' arguments.
  entry, ack_entry, count, advance_time_by, lag, wall_clock_jumps_by

VARIABLES
  now,       \* both clocks
  life,      \* fresh, open, closed or broken
  pairs,     \* what is pending: <<time, entry>>
  deadline,  \* the timer's, or None
  tree       \* of the slots' times, if they are walked over

vars == <<now, life, pairs, deadline, tree>>

\* The wall clock is ahead of the steady one only within a step.
Contents == [now |-> now, skew |-> 0, life |-> life, pairs |-> pairs, deadline |-> deadline, tree |-> tree]

-----------------------------------------------------------------------------
(* Small rules. *)

Least(a, b) == IF a < b THEN a ELSE b
Most(a, b) == IF a > b THEN a ELSE b
Units == IF unit = "ms" THEN 1 ELSE 1000000
Grain == (IF precision_of = "units" THEN 1 ELSE Units) * 2^precision_bits
LeastDelay == least_delay_ms * Units

\* The delay of a message with this redelivery count, or of an id; None where the version has none for it.
DelayOf(c) ==
  LET place == IF c = None THEN count_of_an_id ELSE c
      of_backoff == backoff[Least(place + 1, Len(backoff))]
      fixed == redelivery_delay_ms * Units
  IN CASE backoff # <<>> ->
            IF 0 <= of_backoff /\ of_backoff < LeastDelay /\ least_delay_holds_for = "all"
            THEN LeastDelay ELSE of_backoff
       [] backoff = <<>> /\ c # None /\ count_without_backoff = "null_pointer" -> None
       [] OTHER -> IF fixed < LeastDelay /\ least_delay_holds_for # "none" THEN LeastDelay ELSE fixed

\* A third of the delay of an id, for those that wake up regularly.
Period ==
  LET delay == IF DelayOf(None) = None THEN 0 ELSE DelayOf(None)
  IN IF timer = "ticker" THEN Most(delay, 0) \div 3 ELSE Most(Most(delay, LeastDelay) \div 3, 1)

SlotTime(due) == (due \div Grain) * Grain

TimesOf(ps) == {p[1] : p \in ps}
FirstTime(ps) == CHOOSE t \in TimesOf(ps) : \A u \in TimesOf(ps) : t <= u
IsOf(p, e) == p[2] = e
Without(ps, e) == {p \in ps : ~IsOf(p, e)}

\* What is pending after a nack, by the rule for an entry that is pending already.
Stored(ps, time, e) ==
  LET own == {p \in ps : IsOf(p, e)}
  IN CASE again = "both" -> ps \cup {<<time, e>>}
       [] again = "first_stays" /\ own # {} -> ps
       [] again = "earliest" /\ own # {} -> IF FirstTime(own) <= time THEN ps ELSE Without(ps, e) \cup {<<time, e>>}
       [] OTHER -> Without(ps, e) \cup {<<time, e>>}

\* On the steady clock: when a slot is due, or now if it is already.
WakeUp(s, time) == Most(s.now, IF due_at_its_time THEN time - s.skew ELSE time - s.skew + 1)

DeadlineAfterNack(s, time, delay) ==
  CASE timer = "first_slot" ->
         IF s.deadline = None THEN WakeUp(s, time)
         ELSE IF s.deadline <= s.now THEN s.deadline ELSE Least(s.deadline, WakeUp(s, time))
    [] timer = "every_nack" -> s.now + Period
    [] timer \in {"idle_nack", "idle_period", "ticker"} ->
         IF s.deadline # None \/ timer = "ticker" THEN s.deadline
         ELSE s.now + (IF timer = "idle_nack" THEN delay ELSE Period)

DeadlineAfterRun(s, left) ==
  CASE timer \in {"first_slot", "idle_nack"} -> IF left = {} THEN None ELSE WakeUp(s, FirstTime(left))
    [] timer = "ticker" -> s.deadline
    [] OTHER -> IF s.pairs = {} THEN None ELSE s.now + Period

IsDue(s, time) == IF due_at_its_time THEN time <= s.now + s.skew ELSE time < s.now + s.skew

-----------------------------------------------------------------------------
(* Calls.  Each gives the state after it, and what the properties ask of its outcome. *)

\* A command: when it is given, and the pairs that are taken out for it.
Ran(s, due, left, left_tree) ==
  [s |-> [s EXCEPT !.pairs = left, !.deadline = DeadlineAfterRun(s, left), !.tree = left_tree],
   commands |-> IF due = {} THEN <<>> ELSE <<[at |-> s.now, pairs |-> due]>>]

AfterRun(s) ==
  LET walked == Walked(s.tree, s.now + s.skew)
      due == {p \in s.pairs : IF walk = "while_removing" THEN p[1] \in walked.times ELSE IsDue(s, p[1])}
  IN Ran(s, due, s.pairs \ due, IF walk = "while_removing" THEN walked.tree ELSE None)

Opened(s) == IF s.life = "fresh" THEN [s EXCEPT !.life = "open"] ELSE s

Taken(s, e, delay) ==
  LET time == SlotTime(s.now + s.skew + delay)
  IN [s EXCEPT !.pairs = Stored(@, time, e), !.deadline = DeadlineAfterNack(s, time, delay),
               !.tree = IF walk = "while_removing" THEN Planted(@, time) ELSE None]

AfterNack(s, e, c) ==
  LET delay == DelayOf(c)
      is_refused == \/ s.life = "broken"
                    \/ s.life = "closed" /\ close = "final"
                    \/ delay = None
                    \/ delay # None /\ delay < 0 /\ negative_delay = "refused"
                    \/ negative_ids = "refused" /\ (e[1] < 0 \/ e[2] < 0)
  IN CASE is_refused -> [s |-> s, is_taken |-> FALSE, delay |-> None]
       [] ~is_refused /\ negative_ids = "ledger_fails" /\ e[1] < 0 ->
            [s |-> Opened(s), is_taken |-> FALSE, delay |-> None]
       [] OTHER -> [s |-> Taken(Opened(s), e, delay), is_taken |-> TRUE, delay |-> delay]

AfterAck(s, e) == s

AfterClose(s) ==
  CASE s.life = "broken" -> s
    [] s.life # "broken" /\ close = "keeps" -> [s EXCEPT !.life = "closed", !.deadline = None]
    [] OTHER -> [s EXCEPT !.life = IF close = "forgets" THEN "fresh" ELSE "closed", !.pairs = {}, !.deadline = None,
                          !.tree = None]

\* All runs until that time, each late by so much; then the clock stands there.
RECURSIVE RunsUntil(_, _, _, _, _)
RunsUntil(s, end, late, runs, commands) ==
  LET at == IF s.deadline = None THEN end + 1 ELSE Most(s.deadline + late, s.now)
      Ticked(t) == IF timer = "ticker" /\ t.deadline # None THEN [t EXCEPT !.deadline = @ + Period] ELSE t
      Rest(ran) == RunsUntil(Ticked(ran.s), end, late, runs + 1, commands \o ran.commands)
  IN IF at > end THEN [s |-> [s EXCEPT !.now = end], runs |-> runs, commands |-> commands]
     ELSE With(AfterRun([s EXCEPT !.now = at]), Rest)
AfterTime(s, n, late) == RunsUntil(s, s.now + n, late, 0, <<>>)

\* `fails`: what there is to look at is missing.
AfterTask(s) ==
  LET Whole(ran) == [s |-> ran.s, commands |-> ran.commands, fails |-> FALSE]
  IN IF s.life = "open" THEN With(AfterRun(s), Whole)
     ELSE [s |-> s, commands |-> <<>>, fails |-> s.life # "broken" /\ task_without_slots = "null_pointer"]

AfterJump(s, n) == IF clock = "steady" THEN s ELSE [s EXCEPT !.skew = @ + n]

-----------------------------------------------------------------------------
(* Steps. *)

Become(given) ==
  \E s \in {given} : \E shown \in {s.now + s.skew} : \E later \in {(shown % Grain) - shown} :
    /\ now' = shown + later
    /\ life' = s.life
    /\ pairs' = {<<p[1] + later, p[2]>> : p \in s.pairs}
    /\ deadline' = IF s.deadline = None THEN None ELSE s.deadline + s.skew + later
    /\ tree' = Moved(s.tree, later)

Init ==
  LET is_broken == timer = "ticker" /\ Period = 0
      begin == start % Grain
  IN /\ now = begin
     /\ life = IF is_broken THEN "broken" ELSE IF close = "forgets" THEN "fresh" ELSE "open"
     /\ pairs = {}
     /\ deadline = IF timer = "ticker" /\ ~is_broken THEN begin + Period ELSE None
     /\ tree = None

Nack == \E e \in entry, c \in count : Become(AfterNack(Contents, e, c).s)
Ack == \E e \in ack_entry : Become(AfterAck(Contents, e))
Close == Become(AfterClose(Contents))
AdvanceTime == \E n \in advance_time_by, late \in lag : Become(AfterTime(Contents, n, late).s)
TimerTaskRuns == Become(AfterTask(Contents).s)
\* The consumer throws: what was taken is lost, and nothing else.
RedeliveryFails == Become(AfterTask(Contents).s)
WallClockJumps == \E n \in wall_clock_jumps_by : Become(AfterJump(Contents, n))

-----------------------------------------------------------------------------
(* Bounds. *)

\* Entries, each as often as it is in a slot; for how long the deadline has passed; how far a slot is from now.
PendingAtMost(n) == Cardinality(pairs) <= n
OverdueAtMost(n) == deadline = None \/ now - deadline <= n
ReachAtMost(n) == \A p \in pairs : p[1] - now <= n /\ now - p[1] <= n
=============================================================================
