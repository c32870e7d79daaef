------------------------ MODULE NegativeAcksProperties ------------------------
(***************************************************************************)
(* What a tracker of negative acknowledgements promises: the twin of       *)
(* invariants/negative_acks.py, under the same names.                      *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.                     *)
(*                                                                         *)
(* Not said here: what concerns ids and the pieces of chunked messages,    *)
(* which are not modelled; that slots are in order and hold something,     *)
(* for a set of pairs has no order and no empty slots.                     *)
(***************************************************************************)
EXTENDS NegativeAcks

\* Entries as a scope has them, and ids that no stored message has.
AnyEntry == entry \cup {<<1, -1>>, <<-1, 0>>}
Jumps == wall_clock_jumps_by \cup {-1, 1}
IsSound(e) == e[1] >= 0 /\ e[2] >= 0
SlotLength == Units * 2^precision_bits

AskedDelay(c) ==
  IF backoff = <<>> THEN redelivery_delay_ms * Units
  ELSE LET place == IF c = None THEN count_of_an_id ELSE c
       IN backoff[IF place < Len(backoff) THEN place + 1 ELSE Len(backoff)]

\* All runs of time and of the timer's task, with their lag, and what comes of them.
InTime(Holds(_, _)) == \A n \in advance_time_by, late \in lag : Holds(AfterTime(Contents, n, late), late)
InRuns(Holds(_, _)) == InTime(Holds) /\ Holds(AfterTask(Contents), 0)

Commands(after) == {after.commands[k] : k \in DOMAIN after.commands}
EntriesOf(ps) == {p[2] : p \in ps}
HoldsNothing(s) == s.pairs = {} /\ s.deadline = None

\* Every tracker starts, however short its delays are.
ATrackerStarts == life # "broken"

-----------------------------------------------------------------------------
(* What a nack does. *)

\* For all nacks of these entries: Holds(entry, count, what comes of it).
InNacks(entries, Holds(_, _, _)) == \A e \in entries, c \in count : Holds(e, c, AfterNack(Contents, e, c))

\* A nack of a stored message, with a delay of zero or more, is taken by every tracker that is not closed.
EverySoundNackIsTaken ==
  LET Holds(e, c, after) == life \in {"closed", "broken"} \/ ~IsSound(e) \/ AskedDelay(c) < 0 \/ after.is_taken
  IN InNacks(AnyEntry, Holds)

\* Ids below zero are refused, and leave no trace.
OnlyWhatCanBeStoredIsTracked ==
  LET Holds(e, c, after) == IsSound(e) \/ (~after.is_taken /\ after.s = Contents) IN InNacks(AnyEntry, Holds)

\* No nack is due before it was made: a delay below zero is refused.
NobodyWaitsForLessThanNothing ==
  LET Holds(e, c, after) == after.is_taken => after.delay >= 0 IN InNacks(entry, Holds)

\* The least delay holds for the fixed delay and for those of a backoff; longer ones are as asked.
NoDelayIsShorterThanTheLeast ==
  LET Holds(e, c, after) ==
        after.is_taken /\ after.delay >= 0 => after.delay = Most(AskedDelay(c), least_delay_ms * Units)
  IN InNacks(entry, Holds)

\* The times of an entry's slots after a nack, and when it is due.
OwnTimes(e, after) == {p[1] : p \in {p \in after.s.pairs : p[2] = e}}
Due(after) == now + after.delay

\* After a nack its entry is in a slot that begins no later than it is due, and less than a slot's length before.
\* Under the option that an entry is pending once, an earlier slot stays.
ANackGoesToTheSlotOfItsDueTime ==
  LET Holds(e, c, after) ==
        LET earlier == {p[1] : p \in {p \in pairs : p[2] = e}}
        IN after.is_taken =>
             IF again = "earliest" /\ \E t \in earlier : t <= Due(after) THEN OwnTimes(e, after) = earlier
             ELSE \E t \in OwnTimes(e, after) : Due(after) - SlotLength < t /\ t <= Due(after)
  IN InNacks(entry, Holds)

\* A nack adds at most its own entry in one slot; what was pending before it is pending in the same slots after it.
ANackDisturbsNoOther ==
  LET Holds(e, c, after) ==
        LET added == after.s.pairs \ pairs
        IN pairs \subseteq after.s.pairs /\ EntriesOf(added) \subseteq {e} /\ Cardinality(added) <= 1
  IN InNacks(AnyEntry, Holds)

\* A nack may set the timer for an earlier time, and never for a later one.
ANackMakesNoTimerLater ==
  LET Holds(e, c, after) == deadline # None => after.s.deadline # None /\ after.s.deadline <= deadline
  IN InNacks(AnyEntry, Holds)

-----------------------------------------------------------------------------
(* Slots and the timer. *)

\* Slots are a power of two of milliseconds long and begin at multiples of that, so that due times share them.
SlotsBeginAtMultiplesOfTheirLength == \A p \in pairs : p[1] % SlotLength = 0

\* The timer never runs later than the first slot begins, or than now if that has begun.
TheTimerIsSetForTheFirstSlot ==
  life = "open" /\ pairs # {} => deadline # None /\ deadline <= Most(FirstTime(pairs), now)

-----------------------------------------------------------------------------
(* What is redelivered, and when. *)

\* What is pending is redelivered before its slot ends, or at once if it has ended, late by no more than the timer.
NothingComesLate ==
  LET Holds(after, late) ==
        \A p \in pairs :
          LET latest == Most(p[1] + SlotLength - 1, now) + late
          IN latest <= after.s.now => \E given \in Commands(after) : given.at <= latest /\ p[2] \in EntriesOf(given.pairs)
  IN life = "open" => InTime(Holds)

\* An entry of several slots that are due at once is in the command once.
AnEntryComesOnceInACommand ==
  LET Holds(after, late) ==
        \A given \in Commands(after) :
          command = "slots" => Cardinality(EntriesOf(given.pairs)) = Cardinality(given.pairs)
  IN InRuns(Holds)

\* After a run at the present time, every slot that is left begins later.
ARunLeavesNothingThatIsDue ==
  LET NothingDue(after) == \A p \in after.s.pairs : p[1] > after.s.now
      Holds(after, late) ==
        LET ran_now == \/ deadline # None /\ Most(deadline + late, now) = after.s.now
                       \/ \E given \in Commands(after) : given.at = after.s.now
        IN ran_now => NothingDue(after)
  IN InTime(Holds) /\ (life = "open" => NothingDue(AfterTask(Contents)))

\* The timer's task runs only when it has something to redeliver.
NoRunIsInVain == LET Holds(after, late) == after.runs = Len(after.commands) IN InTime(Holds)

\* When the wall clock is set to another time, nothing comes earlier or later by it.
AJumpOfTheWallClockMovesNothing == \A n \in Jumps : pairs # {} => AfterJump(Contents, n).skew = 0

-----------------------------------------------------------------------------
(* Close. *)

\* A tracker that was closed holds nothing, takes nothing, sets no timer and redelivers nothing, ever.
CloseIsFinal ==
  LET closed == AfterClose(Contents)
      IsNothing(after, late) == HoldsNothing(after.s) /\ after.commands = <<>>
      IsRefused(e, c, after) == HoldsNothing(after.s)
  IN /\ life # "broken" => HoldsNothing(closed) /\ HoldsNothing(AfterNack(closed, <<0, 0>>, None).s)
     /\ life = "closed" => HoldsNothing(Contents) /\ InRuns(IsNothing) /\ InNacks(AnyEntry, IsRefused)

\* A task that had begun when the tracker was closed finds nothing to do, and nothing fails.
ALateTaskDoesNoHarm ==
  LET after == AfterTask(Contents)
  IN life \notin {"open", "broken"} => ~after.fails /\ after.commands = <<>> /\ after.s = Contents

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* When time goes on and the timer's task gets its turn, nothing stays pending.
EverythingComesBack == pairs = {}
=============================================================================
