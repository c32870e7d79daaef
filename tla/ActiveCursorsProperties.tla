----------------------- MODULE ActiveCursorsProperties -----------------------
(***************************************************************************)
(* What a container of active cursors promises: the twin of                *)
(* invariants/active_cursors.py, under the same names.                     *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.  Where a promise is *)
(* about every step, it is an action property.                             *)
(*                                                                         *)
(* Not said here: the size, whether to cache what is added, and the        *)
(* version, which are not modelled.                                        *)
(***************************************************************************)
EXTENDS ActiveCursors

Names == {each.cursor : each \in InSet(cursors)}

-----------------------------------------------------------------------------
(* What questions answer. *)

RanksAreRight(c) == \A name \in cursor : ShippedRank(c, name) = RankOf(c, name)
SlowestIsRight(c) == ShippedSlowest(c) = SlowestOf(c)

\* A cursor's rank is the number of tracked cursors at its position or before it, itself and ties included.
ARankCountsAllAtOrBefore == With(UpToDate(Contents), RanksAreRight)

\* The slowest position is the smallest of all tracked ones, and there is none when nothing is tracked.
TheSlowestIsTheMinimum == With(UpToDate(Contents), SlowestIsRight)

\* An update that moves a cursor tells the smallest position before and after it.
AnUpdateTellsTheSlowest ==
  \A name \in cursor_updated_cursor, p \in position : IsMoved(Contents, name, p) =>
    With(UpToDate(Contents), SlowestIsRight) /\ With(AfterToldUpdate(name, p), SlowestIsRight)

\* A name gives the cursor that was added last under it.
ANameGivesTheCursorAddedLast ==
  \A name \in cursor, p \in position, d \in durable :
    calls = "any" \/ name \notin Names => Find(AfterAddition(name, p, d), name).object = NextObject(Contents)

-----------------------------------------------------------------------------
(* What calls do. *)

\* Calls that change something, and what comes of them.
Calls == {<<"add", name, p, d>> : name \in cursor, p \in position, d \in durable}
           \cup {<<"update", name, p, TRUE>> : name \in cursor, p \in position}
           \cup {<<"remove", name, None, TRUE>> : name \in cursor}
After(c, call) ==
  CASE call[1] = "add"    -> AfterAdditionTo(c, call[2], call[3], call[4])
    [] call[1] = "update" -> AfterUpdate(c, call[2], call[3])
    [] call[1] = "remove" -> AfterRemovalFrom(c, call[2])

\* After an update its cursor stands where it was said, forward or backward, or is not tracked any more.
AnUpdateSetsThePosition ==
  \A name \in Names, p \in position :
    LET is_refused == p = None /\ (calls = "of_the_broker" \/ container = "heap")
    IN ~is_refused => Find(AfterUpdate(Contents, name, p), name) = [Find(Contents, name) EXCEPT !.position = p]

\* A container knows how many of its cursors are durable.
DurableCursorsAreCounted == durables = Cardinality({k \in DOMAIN cursors : cursors[k].durable})

-----------------------------------------------------------------------------
(* What a shipped container keeps in mind. *)

\* The answers of a container, once it is up to date.
Answers(c) == [cursors |-> c.cursors, durables |-> c.durables, slowest |-> ShippedSlowest(c),
               ranks |-> [name \in cursor |-> ShippedRank(c, name)]]
\* Whether a question was asked before a call makes no difference to any answer after it.
AFlushCannotBeObserved ==
  \A call \in Calls :
    LET Asked(c) == With(With(After(c, call), UpToDate), Answers) IN Asked(Contents) = With(UpToDate(Contents), Asked)

\* Without a question, the list remembers no more removed cursors than there are present, or than a small number.
LittleIsKeptOfRemovedCursors ==
  LET gone == Cardinality({node \in InSet(NodesOf(Contents)) : ~node.present})
  IN gone <= removals_before_cleanup \/ gone <= Len(cursors)

\* The heap and the set hold each tracked cursor once, at its position, and nothing else.
NothingIsKeptOfReplacedCursors ==
  /\ InSet(items) = {ItemOf(each) : each \in {each \in InSet(cursors) : IsTracked(each)}}
  /\ Cardinality(InSet(items)) = Len(items)

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* When no cursor comes back, new entries are not cached for ever.
CachingWithoutCursorsEnds == cursors # <<>> \/ -last_removal_ms >= grace_ms

\* Once questions are asked, nothing waits in the list and nothing of a removed cursor is left.
AQuestionLeavesNothingPending ==
  nodes # None => IsFlushed(nodes) /\ \A node \in InSet(NodesOf(Contents)) : node.present
=============================================================================
