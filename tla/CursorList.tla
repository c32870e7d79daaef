----------------------------- MODULE CursorList -----------------------------
(*****************************************************************************)
(* The linked list of ActiveManagedCursorContainerImpl.  Twin of             *)
(* model/active_cursors/linked_list.py, which describes the algorithm.       *)
(*                                                                           *)
(* Nodes at equal positions form a group, and share a counter: the number of *)
(* nodes up to the end of the group.  Calls record pending positions and     *)
(* pending removals; a query flushes them.                                   *)
(*                                                                           *)
(* A list is a record:                                                       *)
(*   linked    the nodes in list order                                       *)
(*   unlinked  nodes that are not in the list                                *)
(*   updates   pendingPositionUpdates: objects, as the array of a            *)
(*             java.util.PriorityQueue                                       *)
(*   removals  pendingRemovedCursors: objects, at most one for each name     *)
(*   counts    the values of counter 1, 2, ...                               *)
(*   tracked   trackedNodeCount                                              *)
(*   removed   removalsSinceLastCleanup                                      *)
(*                                                                           *)
(* A node is a record:                                                       *)
(*   cursor    the name of the cursor                                        *)
(*   object    the number of its cursor object, which identifies the node    *)
(*   present   whether the container still has the cursor                    *)
(*   position  as of the last flush, or None                                 *)
(*   pending   pendingPosition, or None                                      *)
(*   removing  pendingRemove                                                 *)
(*   counter   the number of its counter; 0 if it has none                   *)
(*                                                                           *)
(* Within a step, unlinked nodes have any order, and new counters are        *)
(* appended; Become of ActiveCursors.tla makes the state canonical.          *)
(*****************************************************************************)
EXTENDS CursorHeap

CONSTANTS
  \* Rules on which versions differ, and a setting: see Config in model/active_cursors/machine.py.
  tail_keeps_counts, untracked_keeps_position, add_keeps_pending_removal, readd_keeps_object,
  drops_removed_nodes, removals_before_cleanup

EmptyList == [linked |-> <<>>, unlinked |-> <<>>, updates |-> <<>>, removals |-> <<>>, counts |-> <<>>, tracked |-> 0,
              removed |-> 0]

AllNodes(s) == s.linked \o s.unlinked
NodeOf(s, object) == LET all == AllNodes(s) IN all[CHOOSE k \in DOMAIN all : all[k].object = object]

\* The list with node `new` in place of the node of an object.
WithNode(s, object, new) ==
  LET Put(seq) == [k \in DOMAIN seq |-> IF seq[k].object = object THEN new ELSE seq[k]]
  IN [s EXCEPT !.linked = Put(@), !.unlinked = Put(@)]

-----------------------------------------------------------------------------
(* The canonical form. *)

\* Nodes sorted by object.
ByObject(seq) ==
  LET Before(k) == Cardinality({j \in DOMAIN seq : seq[j].object < seq[k].object})
  IN [n \in DOMAIN seq |-> seq[CHOOSE k \in DOMAIN seq : Before(k) = n - 1]]

\* Counters numbered in the order of their nodes, without unused ones.
WithCountersInOrder(s) ==
  LET all == AllNodes(s)
      First(k) == /\ all[k].counter # 0
                  /\ \A j \in 1..k - 1 : all[j].counter # all[k].counter
      firsts == SelectSeq([k \in DOMAIN all |-> k], First)
      To(counter) == IF counter = 0 THEN 0 ELSE CHOOSE n \in DOMAIN firsts : all[firsts[n]].counter = counter
      Of(seq) == [k \in DOMAIN seq |-> [seq[k] EXCEPT !.counter = To(@)]]
  IN [s EXCEPT !.linked = Of(@), !.unlinked = Of(@),
               !.counts = [n \in DOMAIN firsts |-> @[all[firsts[n]].counter]]]

\* The list with its objects renumbered: To(object) is the new number, Of(nodes) are the renumbered nodes.
Renamed(s, Of(_), To(_)) ==
  WithCountersInOrder([s EXCEPT !.linked = Of(@), !.unlinked = ByObject(Of(@)),
                                !.updates = [k \in DOMAIN @ |-> To(@[k])],
                                !.removals = [k \in DOMAIN @ |-> To(@[k])]])

-----------------------------------------------------------------------------
(* The priority queue of pending updates: larger positions first, nodes without a position last. *)

\* Whether the comparator orders node a before, or after, node b.
ComesFirst(a, b) == a.position # None /\ (b.position = None \/ IsBefore(b.position, a.position))
ComesLater(a, b) == a.position = None \/ (b.position # None /\ IsBefore(a.position, b.position))

\* PriorityQueue.offer: the last element sifts up.
RECURSIVE SiftedUp(_, _, _)
SiftedUp(s, heap, k) ==
  LET parent == k \div 2
      Rest(swapped) == SiftedUp(s, swapped, parent)
  IN IF k > 1 /\ ComesFirst(NodeOf(s, heap[k]), NodeOf(s, heap[parent])) THEN With(Swapped(heap, k, parent), Rest)
     ELSE heap
Offered(s, object) == SiftedUp(s, Append(s.updates, object), Len(s.updates) + 1)

\* PriorityQueue.siftDown of the element at k.
RECURSIVE SiftedDown(_, _, _)
SiftedDown(s, heap, k) ==
  LET left == 2 * k
      child == IF left + 1 <= Len(heap) /\ ComesLater(NodeOf(s, heap[left]), NodeOf(s, heap[left + 1]))
               THEN left + 1 ELSE left
      Rest(swapped) == SiftedDown(s, swapped, child)
  IN IF k <= Len(heap) \div 2 /\ ComesLater(NodeOf(s, heap[k]), NodeOf(s, heap[child]))
     THEN With(Swapped(heap, k, child), Rest) ELSE heap

\* PriorityQueue.poll: the queue without its first element.
AfterPoll(s) ==
  LET n == Len(s.updates)
      Rest(heap) == SiftedDown(s, heap, 1)
  IN IF n = 1 THEN <<>> ELSE With(<<s.updates[n]>> \o SubSeq(s.updates, 2, n - 1), Rest)

\* PriorityQueue.removeIf: removes the nodes of removed cursors, then heapifies the rest.
RECURSIVE Heapified(_, _, _)
Heapified(s, heap, k) ==
  LET Rest(sifted) == Heapified(s, sifted, k - 1) IN IF k = 0 THEN heap ELSE With(SiftedDown(s, heap, k), Rest)
WithoutRemoved(s) ==
  LET IsPresent(object) == NodeOf(s, object).present
      heap == SelectSeq(s.updates, IsPresent)
  IN IF Len(heap) = Len(s.updates) THEN heap ELSE Heapified(s, heap, Len(heap) \div 2)

-----------------------------------------------------------------------------
(* Calls, which only record a change. *)

\* queuePositionUpdate: records a pending position; a node is in the queue at most once.
Queued(s, object, p) ==
  LET noted == WithNode(s, object, [NodeOf(s, object) EXCEPT !.pending = p])
  IN IF object \in InSet(s.updates) THEN noted ELSE [noted EXCEPT !.updates = Offered(noted, object)]

\* Records a pending removal.  pendingRemovedCursors has one node for each name, the latest.
RemovalPending(s, node) ==
  LET Before(object) == NodeOf(s, object).cursor < node.cursor
      After(object) == NodeOf(s, object).cursor > node.cursor
  IN [WithNode(s, node.object, [node EXCEPT !.removing = TRUE]) EXCEPT
        !.removals = SelectSeq(@, Before) \o <<node.object>> \o SelectSeq(@, After)]

RemovalCancelled(s, object) ==
  LET Other(each) == each # object
  IN [WithNode(s, object, [NodeOf(s, object) EXCEPT !.removing = FALSE]) EXCEPT !.removals = SelectSeq(@, Other)]

\* The list after the node of cursor object `old` was assigned another cursor object.
WithObject(s, old, object) ==
  [WithNode(s, old, [NodeOf(s, old) EXCEPT !.object = object]) EXCEPT
     !.updates = [k \in DOMAIN @ |-> IF @[k] = old THEN object ELSE @[k]],
     !.removals = [k \in DOMAIN @ |-> IF @[k] = old THEN object ELSE @[k]]]

NewNode(name, object) ==
  [cursor |-> name, object |-> object, present |-> TRUE, position |-> None, pending |-> None, removing |-> FALSE,
   counter |-> 0]

\* `add` of an absent name.  With a position, a node of that name whose removal is pending is reused.
AddedAbsent(s, name, object, p) ==
  LET HasName(each) == NodeOf(s, each).cursor = name
      same_name == IF p = None THEN <<>> ELSE SelectSeq(s.removals, HasName)
      old == Head(same_name)
      given == IF readd_keeps_object = "until_flushed" THEN old ELSE object
      Back(list) == Queued(WithNode(list, given, [NodeOf(list, given) EXCEPT !.present = TRUE]), given, p)
      New(list) == IF p = None THEN list ELSE Queued(list, object, p)
  IN IF same_name = <<>>
     THEN [nodes |-> With([s EXCEPT !.unlinked = Append(@, NewNode(name, object))], New), object |-> object]
     ELSE [nodes |-> With(WithObject(RemovalCancelled(s, old), old, given), Back), object |-> given]

\* `add`: the list, and the object that the name refers to afterwards.  `present` is the object to which the name refers
\* before, or None.
Added(s, present, name, object, p) ==
  LET given == IF readd_keeps_object = "never" THEN object ELSE present
      Untracked(list) == LET node == [NodeOf(list, given) EXCEPT !.pending = None]
                         IN IF node.position = None THEN WithNode(list, given, node)
                            ELSE RemovalPending(WithNode(list, given, node), node)
      Cancelled(list) ==
        IF NodeOf(list, given).removing /\ ~add_keeps_pending_removal THEN RemovalCancelled(list, given)
                         ELSE list
      Tracked(list) == Queued(list, given, p)
  IN IF present = None THEN AddedAbsent(s, name, object, p)
     ELSE [object |-> given,
           nodes |-> LET Rest(list) == IF p = None THEN Untracked(list) ELSE With(Cancelled(list), Tracked)
                     IN With(WithObject(s, present, given), Rest)]

\* `updateCursor` records a pending position; without a position, a pending removal.
Updated(s, object, p) ==
  LET node == NodeOf(s, object)
      Tracked(list) == Queued(list, object, p)
      untracked == [node EXCEPT !.pending = None]
  IN CASE p # None -> With(IF node.removing THEN RemovalCancelled(s, object) ELSE s, Tracked)
       [] p = None /\ node.position = None /\ ~untracked_keeps_position -> WithNode(s, object, untracked)
       [] OTHER -> RemovalPending(WithNode(s, object, untracked), untracked)

\* `compactRemovedNodes`: drops nodes of removed cursors, and their pending changes.  If this drops no pending removal,
\* linked nodes and counters stay.  The updates of other nodes stay pending.
Compacted(s) ==
  LET Stays(object) == NodeOf(s, object).present
      IsPresent(node) == node.present
      removals == SelectSeq(s.removals, Stays)
      linked == IF removals = s.removals THEN s.linked ELSE SelectSeq(s.linked, IsPresent)
      last == [n \in DOMAIN s.counts |-> {k \in DOMAIN linked : linked[k].counter = n}]
      Count(n) == IF removals = s.removals \/ last[n] = {} THEN s.counts[n]
                  ELSE CHOOSE k \in last[n] : \A j \in last[n] : j <= k
  IN [linked |-> linked, unlinked |-> SelectSeq(s.unlinked, IsPresent), updates |-> WithoutRemoved(s),
      removals |-> removals,
      counts |-> [n \in DOMAIN s.counts |-> Count(n)],
      tracked |-> s.tracked - (Len(s.linked) - Len(linked)), removed |-> 0]

\* `removeCursor`: until a flush or a cleanup (Compacted), a linked node stays in the list, and a node in the queue of
\* updates stays there.
Removed(s, object, cursors_left) ==
  LET gone == [NodeOf(s, object) EXCEPT !.present = FALSE, !.pending = None]
      WithRemoval(list) == IF gone.position = None THEN list ELSE RemovalPending(list, gone)
      \* Drops the unlinked nodes to which neither the container nor a pending change refers.
      WithReachable(list) ==
        LET IsKnown(node) == node.present \/ node.object \in InSet(list.updates) \cup InSet(list.removals)
        IN [list EXCEPT !.unlinked = SelectSeq(@, IsKnown),
                        !.removed = IF drops_removed_nodes THEN @ + 1 ELSE @]
      WithCleanup(list) ==
        IF drops_removed_nodes /\ \/ cursors_left = 0
                                  \/ list.removed >= removals_before_cleanup /\ list.removed >= cursors_left
        THEN Compacted(list) ELSE list
  IN With(With(With(WithNode(s, object, gone), WithRemoval), WithReachable), WithCleanup)

-----------------------------------------------------------------------------
(* Flush. *)

\* Adds `by` to a shared counter; counter 0 stands for none.
Changed(s, counter, by) ==
  IF counter = 0 THEN s ELSE [s EXCEPT !.counts = Exchanged(@, counter, @[counter] + by)]

WithCounter(s, count) == [s EXCEPT !.counts = Append(@, count)]
Newest(s) == Len(s.counts)

\* Adds `by` to the counter of each group in a sequence of nodes, except the group at position `last`.
RECURSIVE ChangedGroups(_, _, _, _)
ChangedGroups(s, line, last, by) ==
  IF line = <<>> THEN s
  ELSE LET node == Head(line)
           Rest(changed) == ChangedGroups(changed, Tail(line), node.position, by)
       IN With(IF node.position = last THEN s ELSE Changed(s, node.counter, by), Rest)

\* `line` is a sequence of nodes in list order.  CountAt: the count of the node at index k, or 0 before the first node.
From(line, k) == SubSeq(line, k, Len(line))
CountAt(s, k) == IF k < 1 THEN 0 ELSE s.counts[s.linked[k].counter]
InLine(s, object) == {k \in DOMAIN s.linked : s.linked[k].object = object}
WithLine(s, line) == [s EXCEPT !.linked = line]
Inserted(line, k, node) == SubSeq(line, 1, k - 1) \o <<node>> \o From(line, k)

\* The node after it was untracked, without position and counter.  With untracked_keeps_position, the node keeps both.
Untracked(node) == IF untracked_keeps_position THEN [node EXCEPT !.removing = FALSE]
                    ELSE [node EXCEPT !.position = None, !.counter = 0, !.removing = FALSE]

\* Unlinking a node that is not in the list sets head and tail to null: the list loses all nodes.
ListDetached(s, object) ==
  [s EXCEPT !.linked = <<>>,
            !.unlinked = LET all == @ \o s.linked
                         IN [k \in DOMAIN all |-> [all[k] EXCEPT !.removing = @ /\ all[k].object # object]]]

\* `removeNodeFromList`: every group from the node's own on counts one node less.
Unlinked(before, object) ==
  LET s == [before EXCEPT !.tracked = @ - 1]
      index == CHOOSE k \in InLine(s, object) : TRUE
      node == s.linked[index]
      line == Without(s.linked, index)
      start == CHOOSE k \in 1..index : /\ k = 1 \/ line[k - 1].position # node.position
                                       /\ \A j \in k + 1..index : line[j - 1].position = node.position
      left == [s EXCEPT !.linked = line, !.unlinked = Append(@, Untracked(node))]
  IN IF InLine(s, object) = {} THEN ListDetached(s, object) ELSE ChangedGroups(left, From(line, start), None, -1)

RECURSIVE UnlinkedEach(_, _)
UnlinkedEach(s, objects) ==
  LET Rest(left) == UnlinkedEach(left, Tail(objects))
  IN IF objects = <<>> THEN s ELSE With(Unlinked(s, Head(objects)), Rest)

\* `insertNodeIntoList`: inserts the node after the nodes at its position.  Every group from the node's own on counts
\* one node more.
InsertedNode(before, node) ==
  LET s == [before EXCEPT !.tracked = @ + 1]
      line == s.linked
      first == 1 + Cardinality({k \in DOMAIN line : IsBefore(line[k].position, node.position)})
      behind == 1 + Cardinality({k \in DOMAIN line : IsAtMost(line[k].position, node.position)})
      Joined(list) == ChangedGroups(list, From(list.linked, first), None, 1)
      Alone(list) == ChangedGroups(list, From(list.linked, first + 1), None, 1)
      counted == WithCounter(s, first)
  IN IF behind > first
     THEN With(WithLine(s, Inserted(line, behind, [node EXCEPT !.counter = line[first].counter])), Joined)
     ELSE With(WithLine(counted, Inserted(line, first, [node EXCEPT !.counter = Newest(counted)])), Alone)

\* `isAlreadyInCorrectPosition`: whether the list stays sorted if the node at index k moves to position p.
IsInCorrectPosition(line, k, p) ==
  /\ k = 1 \/ IsAtMost(line[k - 1].position, p)
  /\ k = Len(line) \/ IsAtMost(p, line[k + 1].position)

\* A node that passes no other node leaves its group, and joins a neighbour's group or forms its own.  With
\* tail_keeps_counts, a tail that moves changes no counter, although it may leave its group or join the previous one.
MovedInPlace(s, k, p) ==
  LET node == s.linked[k]
      Put(list, counter) == WithLine(list, Exchanged(list.linked, k, [node EXCEPT !.position = p, !.counter = counter]))
      IsAt(j) == j \in DOMAIN s.linked /\ s.linked[j].position = p
      Step(left) == CASE IsAt(k - 1) -> Put(Changed(left, left.linked[k - 1].counter, 1), left.linked[k - 1].counter)
                      [] ~IsAt(k - 1) /\ IsAt(k + 1) -> Put(left, left.linked[k + 1].counter)
                      [] OTHER -> LET new == WithCounter(left, CountAt(left, k - 1) + 1) IN Put(new, Newest(new))
  IN IF tail_keeps_counts /\ k = Len(s.linked) THEN Put(s, node.counter)
     ELSE With(IF IsBefore(node.position, p) THEN Changed(s, node.counter, -1) ELSE s, Step)

\* `moveNodeToNewPosition` past other nodes: each group passed counts one node less (forward) or one more (backward).
MovedForward(before, k, p) ==
  LET node == before.linked[k]
      line == Without(before.linked, k)
      s == WithLine(Changed(before, node.counter, -1), line)
      to == CHOOSE j \in k..Len(line) + 1 : /\ j > Len(line) \/ IsAtMost(p, line[j].position)
                                            /\ \A i \in k..j - 1 : IsBefore(line[i].position, p)
      Step(list) == LET new == WithCounter(list, CountAt(list, to - 1) + 1)
                        Put(each, counter) == WithLine(each, Inserted(line, to, [node EXCEPT !.position = p,
                                                                                            !.counter = counter]))
                    IN IF to <= Len(line) /\ line[to].position = p THEN Put(list, line[to].counter)
                       ELSE Put(new, Newest(new))
  IN With(ChangedGroups(s, SubSeq(line, k, to - 1), node.position, -1), Step)

MovedBackward(before, k, p) ==
  LET node == before.linked[k]
      line == Without(before.linked, k)
      s == WithLine(before, line)
      to == CHOOSE j \in 1..k : /\ j = 1 \/ IsAtMost(line[j - 1].position, p)
                                /\ \A i \in j..k - 1 : IsBefore(p, line[i].position)
      passed == [i \in 1..k - to |-> line[k - i]]
      Step(list) == LET joined == Changed(list, line[to - 1].counter, 1)
                        new == WithCounter(list, CountAt(list, to - 1) + 1)
                        Put(each, counter) == WithLine(each, Inserted(line, to, [node EXCEPT !.position = p,
                                                                                            !.counter = counter]))
                    IN IF to > 1 /\ line[to - 1].position = p THEN Put(joined, line[to - 1].counter)
                       ELSE Put(new, Newest(new))
  IN With(ChangedGroups(s, passed, node.position, 1), Step)

\* An untracked node that kept its position (untracked_keeps_position) moves.  Its new counter counts only this node.
MovedOutside(s, node, p) ==
  LET left == IF IsBefore(node.position, p) THEN Changed(s, node.counter, -1) ELSE s
      new == WithCounter(left, 1)
  IN IF node.position = p THEN [s EXCEPT !.unlinked = Append(@, node)]
     ELSE [new EXCEPT !.unlinked = Append(@, [node EXCEPT !.position = p, !.counter = Newest(new)])]

\* Applies a pending update: the node is inserted, is moved, or stays where it is.
Applied(s, node) ==
  LET p == node.pending
      k == CHOOSE k \in InLine(s, node.object) : TRUE
      Other(each) == each.object # node.object
      apart == [s EXCEPT !.unlinked = SelectSeq(@, Other)]
  IN CASE p = None -> s
       [] p # None /\ InLine(s, node.object) = {} ->
            IF node.position = None THEN InsertedNode(apart, [node EXCEPT !.position = p])
            ELSE MovedOutside(apart, node, p)
       [] p # None /\ InLine(s, node.object) # {} /\ node.position # p ->
            IF IsInCorrectPosition(s.linked, k, p) THEN MovedInPlace(s, k, p)
            ELSE IF IsBefore(node.position, p) THEN MovedForward(s, k, p) ELSE MovedBackward(s, k, p)
       [] OTHER -> s

RECURSIVE AppliedEach(_)
AppliedEach(s) ==
  LET next == NodeOf(s, s.updates[1])
      Rest(applied) == AppliedEach(applied)
  IN IF s.updates = <<>> THEN s ELSE With(Applied([s EXCEPT !.updates = AfterPoll(s)], next), Rest)

\* The nodes sorted by ComesBefore(one, other).
Sorted(seq, ComesBefore(_, _)) ==
  [n \in DOMAIN seq |->
     seq[CHOOSE k \in DOMAIN seq : Cardinality({j \in DOMAIN seq : j # k /\ ComesBefore(seq[j], seq[k])}) = n - 1]]

\* `rebuildEntireList`: the list of the present cursors, sorted by position, then by name.  Each node has its own
\* counter until WithSharedCounters.
Rebuilt(s) ==
  LET IsPresent(node) == node.present
      AtPending(node) == [node EXCEPT !.position = IF node.pending = None THEN @ ELSE node.pending, !.pending = None]
      all == SelectSeq(AllNodes(s), IsPresent)
      placed == [k \in DOMAIN all |-> AtPending(all[k])]
      IsIn(node) == node.position # None /\ ~node.removing
      IsOut(node) == ~IsIn(node)
      ComesBefore(a, b) == IsBefore(a.position, b.position) \/ (a.position = b.position /\ a.cursor < b.cursor)
      line == Sorted(SelectSeq(placed, IsIn), ComesBefore)
      out == SelectSeq(placed, IsOut)
      n == Len(s.counts)
      Up(k) == Cardinality({j \in DOMAIN line : IsAtMost(line[j].position, line[k].position)})
  IN [linked |-> [k \in DOMAIN line |-> [line[k] EXCEPT !.counter = n + k]],
      unlinked |-> [k \in DOMAIN out |-> Untracked(out[k])],
      updates |-> <<>>, removals |-> <<>>, counts |-> s.counts \o [k \in DOMAIN line |-> Up(k)],
      tracked |-> Len(line), removed |-> 0]

\* The list in which the nodes of a group share the counter of its first node.
WithSharedCounters(s) ==
  LET line == s.linked
      Begins(j) == j = 1 \/ line[j - 1].position # line[j].position
      FirstOf(k) == CHOOSE j \in 1..k : Begins(j) /\ line[j].position = line[k].position
  IN WithLine(s, [k \in DOMAIN line |-> [line[k] EXCEPT !.counter = line[FirstOf(k)].counter]])

\* The list after a flush: nothing is pending, and unlinked nodes of removed cursors are dropped.
Done(s) ==
  LET IsPresent(node) == node.present
      WithoutPending(seq) == [k \in DOMAIN seq |-> [seq[k] EXCEPT !.pending = None]]
  IN [s EXCEPT !.linked = WithoutPending(@), !.unlinked = WithoutPending(SelectSeq(@, IsPresent)), !.removals = <<>>]

IsFlushed(s) == s.removals = <<>> /\ s.updates = <<>>

\* `processPendingPositions`, before a query.  If the number of pending updates is at least half of `tracked`, rounded
\* down, the list is rebuilt.  Otherwise the pending removals are applied, then the pending updates.
Flushed(before) ==
  LET s == [before EXCEPT !.removed = 0]
      Rest(left) == With(AppliedEach(left), Done)
  IN CASE IsFlushed(s) -> s
       [] ~IsFlushed(s) /\ Len(s.updates) >= s.tracked \div 2 -> With(Rebuilt(s), WithSharedCounters)
       [] OTHER -> With(UnlinkedEach(s, s.removals), Rest)

-----------------------------------------------------------------------------
(* Queries on a flushed list. *)

ListSlowest(s) == IF s.linked = <<>> THEN None ELSE s.linked[1].position

\* The count of a node's group; 0 without a position, None with a position and no counter.
ListCount(s, object) ==
  LET node == NodeOf(s, object)
  IN CASE node.position = None -> 0
       [] node.position # None /\ node.counter = 0 -> None
       [] OTHER -> s.counts[node.counter]
=============================================================================
