---------------------------- MODULE ActiveCursors ----------------------------
(****************************************************************************)
(* The active cursors of a managed ledger: how many are at a position or    *)
(* before it, and which is the slowest.                                     *)
(*                                                                          *)
(* Source: PIP-430.  Twin of model/active_cursors/machine.py: the same      *)
(* actions and settings, equal states and steps.  Models                    *)
(* ActiveManagedCursorContainer and its implementations, each a value of    *)
(* `container`:                                                             *)
(*                                                                          *)
(*   definition   no data structure: answers are computed from the cursors  *)
(*   linked_list  ActiveManagedCursorContainerImpl, in CursorList.tla       *)
(*   heap         ManagedCursorContainerImpl, in CursorHeap.tla             *)
(*   sorted_set   ActiveManagedCursorContainerNavigableSetImpl, in          *)
(*                CursorHeap.tla                                            *)
(*                                                                          *)
(* Step grain: one call on the container.  A state is a canonical state of  *)
(* the model.  The cursor objects (`object`) are numbered: first those of   *)
(* the active cursors, in the order of the names, then all others, in the   *)
(* order of the data structure.  The time of the last removal is relative   *)
(* to now, and at most the grace period ago.                                *)
(*                                                                          *)
(* Not modelled: return values, the change counter of the model, and what   *)
(* the model does not model.  So a query changes the state only by a flush  *)
(* of the list.  A rejected call changes nothing.                           *)
(****************************************************************************)
EXTENDS CursorList

CONSTANTS
  \* Settings, and rules in which versions or containers differ.  Config in model/active_cursors/machine.py explains
  \* them.
  grace_ms, has_grace_period, calls, container, counts_cursors, update_returns_slowest, update_starts_tracking,
  add_keeps_old_item,
  \* The values of the actions' arguments.
  cursor, cursor_updated_cursor, get_cursor_cursor, remove_while_iterating_cursor, position, durable, advance_millis

VARIABLES
  cursors,          \* the active cursors, ordered by name; a cursor without a position is not tracked
  last_removal_ms,  \* time of the last removal, or of the container's creation
  durables,         \* the container's count of durable cursors
  nodes,            \* the linked list, or None
  items             \* the items of the heap or of the sorted set

vars == <<cursors, last_removal_ms, durables, nodes, items>>

\* All variables, as one record.  The operators map such a record to the next one.  Become makes a record the next
\* state.
Contents == [cursors |-> cursors, last_removal_ms |-> last_removal_ms, durables |-> durables, nodes |-> nodes,
             items |-> items]

Init == /\ cursors = <<>>
        /\ last_removal_ms = 0
        /\ durables = 0
        /\ nodes = IF container = "linked_list" THEN EmptyList ELSE None
        /\ items = <<>>

-----------------------------------------------------------------------------
(* The canonical form: numbers of cursor objects. *)

NodesOf(c) == IF c.nodes = None THEN <<>> ELSE c.nodes.linked \o c.nodes.unlinked
Objects(seq) == {each.object : each \in InSet(seq)}

\* The number of a new cursor object.
NextObject(c) == Cardinality(Objects(c.cursors) \cup Objects(NodesOf(c)) \cup Objects(c.items)) + 1

\* The nodes or items whose objects no active cursor has, in the order of the data structure.  Only items of the sorted
\* set at one position are ordered by name instead: the answers of the set do not depend on their order.
NodesOrItemsWithoutCursor(c) ==
  LET Unknown(each) == each.object \notin Objects(c.cursors)
      left == SelectSeq(c.items, Unknown)
      IsFirst(i, j) == \/ IsBefore(left[i].position, left[j].position)
                       \/ /\ left[i].position = left[j].position
                          /\ left[i].cursor < left[j].cursor \/ (left[i].cursor = left[j].cursor /\ i < j)
      order == [n \in DOMAIN left |-> CHOOSE j \in DOMAIN left :
                                        Cardinality({i \in DOMAIN left : IsFirst(i, j)}) = n - 1]
  IN CASE c.nodes # None           -> SelectSeq(NodesOf(c), Unknown)
       [] container = "sorted_set" -> [n \in DOMAIN left |-> left[order[n]]]
       [] OTHER                    -> left

\* The contents with renumbered cursor objects.
Renumbered(c) ==
  LET rest == NodesOrItemsWithoutCursor(c)
      n == Len(c.cursors)
      To(object) == IF \E k \in 1..n : c.cursors[k].object = object
                    THEN CHOOSE k \in 1..n : c.cursors[k].object = object
                    ELSE n + (CHOOSE k \in DOMAIN rest : rest[k].object = object)
      Of(seq) == [k \in DOMAIN seq |-> [seq[k] EXCEPT !.object = To(@)]]
      AsSet[k \in 0..Len(c.items)] == IF k = 0 THEN <<>> ELSE SetWith(AsSet[k - 1], Of(c.items)[k])
  IN [c EXCEPT !.cursors = Of(@), !.items = IF container = "sorted_set" THEN AsSet[Len(@)] ELSE Of(@),
               !.nodes = IF @ = None THEN None ELSE Renamed(@, Of, To)]

\* Makes the canonical form of these contents the next state.
Become(c) ==
  \E n \in {With(IF c.nodes = None THEN c ELSE [c EXCEPT !.nodes.unlinked = ByObject(@)], Renumbered)} :
    /\ cursors' = n.cursors
    /\ last_removal_ms' = n.last_removal_ms
    /\ durables' = n.durables
    /\ nodes' = n.nodes
    /\ items' = n.items

-----------------------------------------------------------------------------
(* Cursors, and answers by definition. *)

\* Find: the cursor of a name, or None.
IndexesOf(c, name) == {k \in DOMAIN c.cursors : c.cursors[k].cursor = name}
Find(c, name) == IF IndexesOf(c, name) = {} THEN None ELSE c.cursors[CHOOSE k \in IndexesOf(c, name) : TRUE]

WithoutCursor(c, name) == LET Other(each) == each.cursor # name IN [c EXCEPT !.cursors = SelectSeq(@, Other)]
WithCursor(c, new) ==
  LET Before(each) == each.cursor < new.cursor
      After(each) == each.cursor > new.cursor
  IN [c EXCEPT !.cursors = SelectSeq(@, Before) \o <<new>> \o SelectSeq(@, After)]

IsTracked(each) == each # None /\ each.position # None
Count(flag) == IF flag THEN 1 ELSE 0

\* The answers by definition.  CountOf: the number of tracked cursors at the position of cursor `name` or before; 0 if
\* this cursor is not tracked.  SlowestOf: the smallest tracked position, or None.
CountOf(c, name) ==
  LET own == Find(c, name)
  IN IF ~IsTracked(own) THEN 0
     ELSE Cardinality({k \in DOMAIN c.cursors : IsTracked(c.cursors[k]) /\
                                                IsAtMost(c.cursors[k].position, own.position)})
SlowestOf(c) ==
  LET tracked == {each.position : each \in InSet(c.cursors)} \ {None}
  IN IF tracked = {} THEN None ELSE CHOOSE p \in tracked : \A q \in tracked : IsAtMost(p, q)

ItemsWith(c, item) == IF container = "heap" THEN Pushed(c.items, item) ELSE SetWith(c.items, item)
ItemsWithout(c, object) == IF container = "heap" THEN ItemRemoved(c.items, IndexOf(c.items, object))
                           ELSE SetWithout(c.items, object)
ItemOf(each) == [position |-> each.position, object |-> each.object, cursor |-> each.cursor]

-----------------------------------------------------------------------------
(* Changes. *)

\* The contents after the data structure added cursor `new`.  `old` is the cursor that had the name before, or None.
StructureAfterAddition(c, old, new) ==
  LET present == IF old = None THEN None ELSE old.object
      WithList(added) == WithCursor([c EXCEPT !.nodes = added.nodes], [new EXCEPT !.object = added.object])
      WithoutOld(each) == IF IsTracked(old) /\ ~add_keeps_old_item
                    THEN [each EXCEPT !.items = ItemsWithout(each, old.object)] ELSE each
      WithNew(each) == IF new.position = None THEN each ELSE [each EXCEPT !.items = ItemsWith(each, ItemOf(new))]
  IN CASE container = "definition" -> c
       [] c.nodes # None -> With(Added(c.nodes, present, new.cursor, new.object, new.position), WithList)
       [] OTHER -> With(WithoutOld(c), WithNew)

\* `add`.  A broker never adds a name that is present: with `calls` "of_the_broker", this call is rejected.
AfterAdditionTo(c, name, p, d) ==
  LET old == Find(c, name)
      new == [cursor |-> name, position |-> p, durable |-> d, object |-> NextObject(Contents)]
      counted == c.durables + Count(d) - Count(old # None /\ old.durable /\ ~add_keeps_old_item)
  IN IF old # None /\ calls = "of_the_broker" THEN c
     ELSE StructureAfterAddition(WithCursor([c EXCEPT !.durables = counted], new), old, new)
AfterAddition(name, p, d) == AfterAdditionTo(Contents, name, p, d)

AddCursor == \E name \in cursor, p \in position, d \in durable : Become(AfterAddition(name, p, d))

\* The contents after the data structure moved a cursor: `old` is the cursor before the move, `new` after the move.
StructureAfterMove(c, old, new) ==
  LET WithoutOld(each) == IF old.position = None THEN each ELSE [each EXCEPT !.items = ItemsWithout(each, old.object)]
      WithNew(each) == IF new.position = None THEN each ELSE [each EXCEPT !.items = ItemsWith(each, ItemOf(new))]
  IN CASE container = "definition" -> c
       [] c.nodes # None -> [c EXCEPT !.nodes = Updated(@, old.object, new.position)]
       [] container = "heap" /\ IsTracked(old) /\ IsTracked(new) ->
            [c EXCEPT !.items = Moved(@, IndexOf(@, old.object), new.position)]
       [] OTHER -> With(WithoutOld(c), WithNew)

\* Whether an update is accepted.  The cursor must be known, and tracked unless update_starts_tracking.  Position None
\* untracks the cursor; it is accepted only with `calls` "any", because a broker never passes it, and not by the heap.
IsAccepted(c, name, p) ==
  LET old == Find(c, name)
  IN /\ old # None /\ (old.position # None \/ update_starts_tracking)
     /\ p # None \/ (calls = "any" /\ container # "heap")

AfterUpdate(c, name, p) ==
  LET old == Find(c, name)
      new == [old EXCEPT !.position = p]
  IN IF IsAccepted(c, name, p) THEN StructureAfterMove(WithCursor(c, new), old, new) ELSE c

UpdateCursor == \E name \in cursor, p \in position : Become(AfterUpdate(Contents, name, p))

\* A query about positions flushes the list first.
FlushedContents(c) == IF c.nodes = None THEN c ELSE [c EXCEPT !.nodes = Flushed(@)]

\* `cursorUpdated` returns the slowest position before and after the update, so the list is flushed twice.  A container
\* whose update does not return the slowest position rejects the call.
AfterCursorUpdated(name, p) ==
  LET Step(c) == With(AfterUpdate(c, name, p), FlushedContents)
  IN IF update_returns_slowest /\ IsAccepted(Contents, name, p) THEN With(FlushedContents(Contents), Step) ELSE Contents

CursorUpdated == \E name \in cursor_updated_cursor, p \in position : Become(AfterCursorUpdated(name, p))

\* `removeCursor`; the grace period starts.
AfterRemovalFrom(before, name) ==
  LET old == Find(before, name)
      c == [WithoutCursor(before, name) EXCEPT !.last_removal_ms = 0, !.durables = @ - Count(old.durable)]
  IN CASE old = None -> before
       [] old # None /\ c.nodes # None -> [c EXCEPT !.nodes = Removed(@, old.object, Len(c.cursors))]
       [] old # None /\ c.nodes = None /\ c.items # <<>> /\ IsTracked(old) ->
            [c EXCEPT !.items = ItemsWithout(c, old.object)]
       [] OTHER -> c
AfterRemoval(name) == AfterRemovalFrom(Contents, name)

RemoveCursor == \E name \in cursor : Become(AfterRemoval(name))

RemoveWhileIterating == \E name \in remove_while_iterating_cursor : UNCHANGED vars

-----------------------------------------------------------------------------
(* Queries and time. *)

GetCursor == \E name \in get_cursor_cursor : UNCHANGED vars
NumberAtSamePositionOrBefore == Become(IF counts_cursors THEN FlushedContents(Contents) ELSE Contents)
SlowestPosition == Become(FlushedContents(Contents))
Size == UNCHANGED vars
ShouldCacheAddedEntries == UNCHANGED vars

Period == IF has_grace_period /\ grace_ms > 0 THEN grace_ms ELSE 0
Advance ==
  \E n \in advance_millis :
    LET ago == n - last_removal_ms
    IN Become([Contents EXCEPT !.last_removal_ms = -(IF ago > Period THEN Period ELSE ago)])

\* For the properties: the answers of the container's data structure after a flush; None if the query throws.  Without
\* nodes and items, ShippedCount is the count by definition: the container has no data structure, or tracks no cursor.
ShippedCount(c, name) ==
  LET own == Find(c, name)
  IN CASE c.nodes = None /\ c.items = <<>> -> CountOf(c, name)
       [] c.nodes # None /\ own # None -> ListCount(c.nodes, own.object)
       [] c.nodes = None /\ c.items # <<>> /\ IsTracked(own) -> SetCount(c.items, own.position)
       [] OTHER -> 0
ShippedSlowest(c) ==
  CASE container = "definition" -> SlowestOf(c)
    [] c.nodes # None -> ListSlowest(c.nodes)
    [] OTHER -> IF c.items = <<>> THEN None ELSE c.items[1].position

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Nodes and items of the data structure; the largest absolute value of a counter of the list.
RetainedAtMost(n) == Len(items) + Len(NodesOf(Contents)) <= n
LargestAbsoluteCountAtMost(n) ==
  nodes # None => \A k \in DOMAIN nodes.counts : nodes.counts[k] <= n /\ -nodes.counts[k] <= n
=============================================================================
