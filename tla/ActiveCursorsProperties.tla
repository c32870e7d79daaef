----------------------- MODULE ActiveCursorsProperties -----------------------
(*****************************************************************************)
(* Properties of the active cursors, under the names of                      *)
(* invariants/active_cursors.py: some of its invariants, and all of its      *)
(* liveness properties.                                                      *)
(*                                                                           *)
(* A property of a step is written as an invariant: in every reached state,  *)
(* it computes the result of the action for each choice of arguments, and    *)
(* tests this result.                                                        *)
(*****************************************************************************)
EXTENDS ActiveCursors

\* The names of the active cursors.
Names == {each.cursor : each \in InSet(cursors)}

\* Whether the data structure answers as the definition does.
CountsAreRight(c) == \A name \in cursor : ShippedCount(c, name) = CountOf(c, name)
SlowestIsRight(c) == ShippedSlowest(c) = SlowestOf(c)

\* The expected read count of a catch-up read is the number of tracked cursors at the reader's position or before.  The
\* reading cursor itself and cursors at the same position are included.  For an unknown or untracked cursor the count is
\* 0.  The query flushes the list first.
ExpectedReadCountEqualsCursorsAtOrBefore == With(FlushedContents(Contents), CountsAreRight)

\* The slowest position is the smallest of all tracked positions, and None if no cursor is tracked.  The query flushes
\* the list first.
SlowestPositionIsSmallestTrackedPosition == With(FlushedContents(Contents), SlowestIsRight)

\* A name refers to the cursor object that was added last under this name.  Unless `calls` is "any", the addition of a
\* name that is present is rejected.
NameRefersToCursorAddedLast ==
  \A name \in cursor, p \in position, d \in durable :
    calls = "any" \/ name \notin Names => Find(AfterAddition(name, p, d), name).object = NextObject(Contents)

-----------------------------------------------------------------------------
(* Data structures of shipped containers. *)

\* The heap and the set hold each tracked cursor once, at its position, and nothing else.
ItemsAreExactlyTheTrackedCursors ==
  /\ InSet(items) = {ItemOf(each) : each \in {each \in InSet(cursors) : IsTracked(each)}}
  /\ Cardinality(InSet(items)) = Len(items)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* If no cursor exists and none is added, added entries are no longer cached after the grace period.
\* Fair: Advance.  The time since the last removal reaches the grace period.
CachingWithoutCursorsEnds == cursors # <<>> \/ -last_removal_ms >= (IF has_grace_period THEN grace_ms ELSE 0)

\* A query of the slowest position flushes the list: no update or removal is pending, and no node of a removed cursor is
\* retained.
\* Fair: SlowestPosition.
QueryFlushesEverything ==
  nodes # None => IsFlushed(nodes) /\ \A node \in InSet(NodesOf(Contents)) : node.present
=============================================================================
