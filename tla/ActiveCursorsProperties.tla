----------------------- MODULE ActiveCursorsProperties -----------------------
(*****************************************************************************)
(* Invariants and liveness of the active cursors: those of                   *)
(* invariants/active_cursors.py that a broker engineer would name first,     *)
(* under the same names.                                                     *)
(*                                                                           *)
(* A property of a step is stated as an invariant: in every reached state it *)
(* holds for the result of the action with each of its arguments.            *)
(*****************************************************************************)
EXTENDS ActiveCursors

Names == {each.cursor : each \in InSet(cursors)}

CountsAreRight(c) == \A name \in cursor : ShippedCount(c, name) = CountOf(c, name)
SlowestIsRight(c) == ShippedSlowest(c) = SlowestOf(c)

\* A query, which flushes first, returns the expected read count: the number of tracked cursors at the cursor's position
\* or before it.
ExpectedReadCountEqualsCursorsAtOrBefore == With(FlushedContents(Contents), CountsAreRight)

\* A query returns the smallest tracked position as the slowest one.
SlowestPositionIsSmallestTrackedPosition == With(FlushedContents(Contents), SlowestIsRight)

\* After `add`, the name refers to the cursor object that was added.
NameRefersToCursorAddedLast ==
  \A name \in cursor, p \in position, d \in durable :
    calls = "any" \/ name \notin Names => Find(AfterAddition(name, p, d), name).object = NextObject(Contents)

-----------------------------------------------------------------------------
(* Data structures of shipped containers. *)

\* The heap or sorted set has exactly one item for each tracked cursor.
ItemsAreExactlyTheTrackedCursors ==
  /\ InSet(items) = {ItemOf(each) : each \in {each \in InSet(cursors) : IsTracked(each)}}
  /\ Cardinality(InSet(items)) = Len(items)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: Advance.  While there are no cursors, the time since the last removal reaches the grace period, so caching of
\* added entries ends.
CachingWithoutCursorsEnds == cursors # <<>> \/ -last_removal_ms >= (IF has_grace_period THEN grace_ms ELSE 0)

\* Fair: SlowestPosition.  A query flushes the list: then no update and no removal is pending, and no node of a removed
\* cursor is left.
QueryFlushesEverything ==
  nodes # None => IsFlushed(nodes) /\ \A node \in InSet(NodesOf(Contents)) : node.present
=============================================================================
