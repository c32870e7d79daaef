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

ExpectedReadCountEqualsCursorsAtOrBefore == With(FlushedContents(Contents), CountsAreRight)

SlowestPositionIsSmallestTrackedPosition == With(FlushedContents(Contents), SlowestIsRight)

NameRefersToCursorAddedLast ==
  \A name \in cursor, p \in position, d \in durable :
    calls = "any" \/ name \notin Names => Find(AfterAddition(name, p, d), name).object = NextObject(Contents)

-----------------------------------------------------------------------------
(* Data structures of shipped containers. *)

After(c, call) ==
  CASE call[1] = "add"    -> AfterAdditionTo(c, call[2], call[3], call[4])
    [] call[1] = "update" -> AfterUpdate(c, call[2], call[3])
    [] call[1] = "remove" -> AfterRemovalFrom(c, call[2])

ItemsAreExactlyTheTrackedCursors ==
  /\ InSet(items) = {ItemOf(each) : each \in {each \in InSet(cursors) : IsTracked(each)}}
  /\ Cardinality(InSet(items)) = Len(items)

-----------------------------------------------------------------------------
(* Liveness, once only the fair actions happen. *)

CachingWithoutCursorsEnds == cursors # <<>> \/ -last_removal_ms >= (IF has_grace_period THEN grace_ms ELSE 0)

QueryFlushesEverything ==
  nodes # None => IsFlushed(nodes) /\ \A node \in InSet(NodesOf(Contents)) : node.present
=============================================================================
