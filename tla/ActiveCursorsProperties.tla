----------------------- MODULE ActiveCursorsProperties -----------------------
(***************************************************************************)
(* Invariants and liveness of the active cursors: the twins of those in    *)
(* invariants/active_cursors.py that a broker engineer would name first.   *)
(*                                                                         *)
(* A property of a step is an invariant here: from every reached state,    *)
(* the action with any of its arguments keeps it.                          *)
(***************************************************************************)
EXTENDS ActiveCursors

Names == {each.cursor : each \in InSet(cursors)}

CountsAreRight(c) == \A name \in cursor : ShippedCount(c, name) = CountOf(c, name)
SlowestIsRight(c) == ShippedSlowest(c) = SlowestOf(c)

\* The expected read count of a catch-up read is the number of tracked cursors at its cursor's position or before.
ExpectedReadCountEqualsCursorsAtOrBefore == With(FlushedContents(Contents), CountsAreRight)

\* The slowest position is the smallest of all tracked positions, and None if no cursor is tracked.
SlowestPositionIsSmallestTrackedPosition == With(FlushedContents(Contents), SlowestIsRight)

\* A name refers to the cursor object that was added last under it, and to none after its removal.
NameRefersToCursorAddedLast ==
  \A name \in cursor, p \in position, d \in durable :
    calls = "any" \/ name \notin Names => Find(AfterAddition(name, p, d), name).object = NextObject(Contents)

\* After an update, the cursor has the given position, forward or backward, or is untracked if none was given.
UpdateSetsPosition ==
  \A name \in Names, p \in position :
    LET is_refused == p = None /\ (calls = "of_the_broker" \/ container = "heap")
    IN ~is_refused => Find(AfterUpdate(Contents, name, p), name) = [Find(Contents, name) EXCEPT !.position = p]

-----------------------------------------------------------------------------
(* Data structures of shipped containers. *)

Calls == {<<"add", name, p, d>> : name \in cursor, p \in position, d \in durable}
           \cup {<<"update", name, p, TRUE>> : name \in cursor, p \in position}
           \cup {<<"remove", name, None, TRUE>> : name \in cursor}
After(c, call) ==
  CASE call[1] = "add"    -> AfterAdditionTo(c, call[2], call[3], call[4])
    [] call[1] = "update" -> AfterUpdate(c, call[2], call[3])
    [] call[1] = "remove" -> AfterRemovalFrom(c, call[2])
Answers(c) == [cursors |-> c.cursors, durables |-> c.durables, slowest |-> ShippedSlowest(c),
               counts |-> [name \in cursor |-> ShippedCount(c, name)]]

\* A query before a call makes no difference to any answer after the call.
FlushIsNotObservable ==
  \A call \in Calls :
    LET Asked(c) == With(With(After(c, call), FlushedContents), Answers)
    IN Asked(Contents) = With(FlushedContents(Contents), Asked)

\* Without queries, the list retains no more removed nodes than present cursors, or than the cleanup setting.
NodesOfRemovedCursorsAreBounded ==
  LET gone == Cardinality({node \in InSet(NodesOf(Contents)) : ~node.present})
  IN gone <= removals_before_cleanup \/ gone <= Len(cursors)

\* The heap and the set hold each tracked cursor once, at its position, and nothing else.
ItemsAreExactlyTheTrackedCursors ==
  /\ InSet(items) = {ItemOf(each) : each \in {each \in InSet(cursors) : IsTracked(each)}}
  /\ Cardinality(InSet(items)) = Len(items)

-----------------------------------------------------------------------------
(* Liveness, once only the fair actions happen. *)

\* If no cursor is added, caching of added entries ends.
CachingWithoutCursorsEnds == cursors # <<>> \/ -last_removal_ms >= (IF has_grace_period THEN grace_ms ELSE 0)

\* After a query nothing is pending in the list, and no node of a removed cursor is retained.
QueryFlushesEverything ==
  nodes # None => IsFlushed(nodes) /\ \A node \in InSet(NodesOf(Contents)) : node.present
=============================================================================
