----------------------------- MODULE CursorList -----------------------------
(***************************************************************************)
(* The shipped list of active cursors, sorted and lazily brought up to     *)
(* date: the twin of model/active_cursors/linked_list.py, which says how it works.        *)
(*                                                                         *)
(* A node is [cursor, object, present, position, pending, queued,          *)
(* removing, counter], and a list [linked, others, removals, counts,       *)
(* tracked, removed].  Within a step the nodes that do not stand in the    *)
(* list are in any order, and counters only grow in number.                *)
(***************************************************************************)
EXTENDS CursorHeap

CONSTANTS tail_keeps_counts, untracked_keeps_position, adding_keeps_removal, readding_keeps_object,
          drops_removed_nodes, removals_before_cleanup

EmptyList == [linked |-> <<>>, others |-> <<>>, removals |-> <<>>, counts |-> <<>>, tracked |-> 0, removed |-> 0]

AllNodes(kept) == kept.linked \o kept.others
NodeOf(kept, object) == LET all == AllNodes(kept) IN all[CHOOSE k \in DOMAIN all : all[k].object = object]

\* The same list with another node in the place of the one of that object.
Exchange(kept, object, new) ==
  LET Put(seq) == [k \in DOMAIN seq |-> IF seq[k].object = object THEN new ELSE seq[k]]
  IN [kept EXCEPT !.linked = Put(@), !.others = Put(@)]

-----------------------------------------------------------------------------
(* Names. *)

\* Nodes in the order of their objects.
ByObject(seq) ==
  LET Before(k) == Cardinality({j \in DOMAIN seq : seq[j].object < seq[k].object})
  IN [n \in DOMAIN seq |-> seq[CHOOSE k \in DOMAIN seq : Before(k) = n - 1]]

\* Counters are numbered in the order in which their nodes stand, and those that nobody shares are forgotten.
WithCountersInOrder(kept) ==
  LET all == AllNodes(kept)
      First(k) == /\ all[k].counter # 0
                  /\ \A j \in 1..k - 1 : all[j].counter # all[k].counter
      firsts == SelectSeq([k \in DOMAIN all |-> k], First)
      To(counter) == IF counter = 0 THEN 0 ELSE CHOOSE n \in DOMAIN firsts : all[firsts[n]].counter = counter
      Of(seq) == [k \in DOMAIN seq |-> [seq[k] EXCEPT !.counter = To(@)]]
  IN [kept EXCEPT !.linked = Of(@), !.others = Of(@),
                  !.counts = [n \in DOMAIN firsts |-> @[all[firsts[n]].counter]]]

\* The list with other numbers for the objects: Of(sequence of nodes), To(object).
Renamed(kept, Of(_), To(_)) ==
  WithCountersInOrder([kept EXCEPT !.linked = Of(@), !.others = ByObject(Of(@)),
                                   !.removals = [k \in DOMAIN @ |-> To(@[k])]])

-----------------------------------------------------------------------------
(* Calls that only take notes. *)

Queued(node, p) == [node EXCEPT !.pending = p, !.queued = TRUE]

\* A flush will take the node out.  One node a name: another one that waited under it is forgotten.
DueForRemoval(kept, node) ==
  LET Before(object) == NodeOf(kept, object).cursor < node.cursor
      After(object) == NodeOf(kept, object).cursor > node.cursor
  IN [Exchange(kept, node.object, [node EXCEPT !.removing = TRUE]) EXCEPT
        !.removals = SelectSeq(@, Before) \o <<node.object>> \o SelectSeq(@, After)]

NoLongerDue(kept, object) ==
  LET Other(each) == each # object
  IN [Exchange(kept, object, [NodeOf(kept, object) EXCEPT !.removing = FALSE]) EXCEPT !.removals = SelectSeq(@, Other)]

\* The node stands for another object from now on.
WithObject(kept, old, object) ==
  [Exchange(kept, old, [NodeOf(kept, old) EXCEPT !.object = object]) EXCEPT
     !.removals = [k \in DOMAIN @ |-> IF @[k] = old THEN object ELSE @[k]]]

NewNode(name, object, p) ==
  [cursor |-> name, object |-> object, present |-> TRUE, position |-> None, pending |-> p, queued |-> p # None,
   removing |-> FALSE, counter |-> 0]

\* After the addition of a name that is absent; one that waits for its removal gets its node back.
AddedAnew(kept, name, object, p) ==
  LET Waits(each) == NodeOf(kept, each).cursor = name
      waiting == IF p = None THEN <<>> ELSE SelectSeq(kept.removals, Waits)
      old == Head(waiting)
      given == IF readding_keeps_object = "until_flushed" THEN old ELSE object
      Back(list) == LET node == NodeOf(list, given)
                    IN Exchange(list, given, Queued([node EXCEPT !.present = TRUE], p))
  IN IF waiting = <<>>
     THEN [nodes |-> [kept EXCEPT !.others = Append(@, NewNode(name, object, p))], object |-> object]
     ELSE [nodes |-> With(WithObject(NoLongerDue(kept, old), old, given), Back), object |-> given]

\* After an addition: the list, and the object that the name gives from now on; `present` is the one that it gave.
Added(kept, present, name, object, p) ==
  LET given == IF readding_keeps_object = "never" THEN object ELSE present
      Untracked(list) == LET node == [NodeOf(list, given) EXCEPT !.pending = None]
                         IN IF node.position = None THEN Exchange(list, given, node)
                            ELSE DueForRemoval(Exchange(list, given, node), node)
      CalledOff(list) == IF NodeOf(list, given).removing /\ ~adding_keeps_removal THEN NoLongerDue(list, given)
                         ELSE list
      Tracked(list) == Exchange(list, given, Queued(NodeOf(list, given), p))
  IN IF present = None THEN AddedAnew(kept, name, object, p)
     ELSE [object |-> given,
           nodes |-> LET Rest(list) == IF p = None THEN Untracked(list) ELSE With(CalledOff(list), Tracked)
                     IN With(WithObject(kept, present, given), Rest)]

\* After an update: the new position is noted, or that the cursor will not be tracked.
Updated(kept, object, p) ==
  LET node == NodeOf(kept, object)
      Tracked(list) == Exchange(list, object, Queued(NodeOf(list, object), p))
      untracked == [node EXCEPT !.pending = None]
  IN CASE p # None -> With(IF node.removing THEN NoLongerDue(kept, object) ELSE kept, Tracked)
       [] p = None /\ node.position = None /\ ~untracked_keeps_position -> Exchange(kept, object, untracked)
       [] OTHER -> DueForRemoval(Exchange(kept, object, untracked), untracked)

\* Nodes of removed cursors go, and the counts of those that stay are set; positions stay as they are.
CleanedUp(kept) ==
  LET Stays(object) == NodeOf(kept, object).present
      IsPresent(node) == node.present
      removals == SelectSeq(kept.removals, Stays)
      linked == IF removals = kept.removals THEN kept.linked ELSE SelectSeq(kept.linked, IsPresent)
      last == [n \in DOMAIN kept.counts |-> {k \in DOMAIN linked : linked[k].counter = n}]
      Count(n) == IF removals = kept.removals \/ last[n] = {} THEN kept.counts[n]
                  ELSE CHOOSE k \in last[n] : \A j \in last[n] : j <= k
  IN [linked |-> linked, others |-> SelectSeq(kept.others, IsPresent), removals |-> removals,
      counts |-> [n \in DOMAIN kept.counts |-> Count(n)],
      tracked |-> kept.tracked - (Len(kept.linked) - Len(linked)), removed |-> 0]

\* After a removal.  A node that was never placed stays queued, one that was waits in the list, until a flush.
Removed(kept, object, cursors_left) ==
  LET gone == [NodeOf(kept, object) EXCEPT !.present = FALSE, !.pending = None]
      Due(list) == IF gone.position = None THEN list ELSE DueForRemoval(list, gone)
      Forgotten(list) == LET IsKnown(node) == node.present \/ node.queued \/ node.object \in InSet(list.removals)
                         IN [list EXCEPT !.others = SelectSeq(@, IsKnown),
                                         !.removed = IF drops_removed_nodes THEN @ + 1 ELSE @]
      Cleaned(list) ==
        IF drops_removed_nodes /\ \/ cursors_left = 0
                                  \/ list.removed >= removals_before_cleanup /\ list.removed >= cursors_left
        THEN CleanedUp(list) ELSE list
  IN With(With(With(Exchange(kept, object, gone), Due), Forgotten), Cleaned)

-----------------------------------------------------------------------------
(* The flush. *)

\* Changes a counter for all who share it; a node that was never counted has none.
Changed(kept, counter, by) ==
  IF counter = 0 THEN kept ELSE [kept EXCEPT !.counts = Exchanged(@, counter, @[counter] + by)]

WithCounter(kept, count) == [kept EXCEPT !.counts = Append(@, count)]
Newest(kept) == Len(kept.counts)

\* Changes the counter of each first node at a position, in a sequence of nodes; one at `last` is none.
RECURSIVE ChangedGroups(_, _, _, _)
ChangedGroups(kept, line, last, by) ==
  IF line = <<>> THEN kept
  ELSE LET node == Head(line)
           Rest(changed) == ChangedGroups(changed, Tail(line), node.position, by)
       IN With(IF node.position = last THEN kept ELSE Changed(kept, node.counter, by), Rest)

From(line, k) == SubSeq(line, k, Len(line))
CountAt(kept, k) == IF k < 1 THEN 0 ELSE kept.counts[kept.linked[k].counter]
InLine(kept, object) == {k \in DOMAIN kept.linked : kept.linked[k].object = object}
WithLine(kept, line) == [kept EXCEPT !.linked = line]
Inserted(line, k, node) == SubSeq(line, 1, k - 1) \o <<node>> \o From(line, k)

\* What untracking leaves of a node: nothing, or a stale position and a share in a counter.
LeftBehind(node) == IF untracked_keeps_position THEN [node EXCEPT !.removing = FALSE]
                    ELSE [node EXCEPT !.position = None, !.counter = 0, !.removing = FALSE]

\* A node that does not stand in the list is taken out of it all the same: the list has no head any more.
Lost(kept, object) ==
  [kept EXCEPT !.linked = <<>>,
               !.others = LET all == @ \o kept.linked
                          IN [k \in DOMAIN all |-> [all[k] EXCEPT !.removing = @ /\ all[k].object # object]]]

\* A node leaves the list: all groups from its own on count one node fewer.
Unlinked(before, object) ==
  LET kept == [before EXCEPT !.tracked = @ - 1]
      place == CHOOSE k \in InLine(kept, object) : TRUE
      node == kept.linked[place]
      line == Without(kept.linked, place)
      start == CHOOSE k \in 1..place : /\ k = 1 \/ line[k - 1].position # node.position
                                       /\ \A j \in k + 1..place : line[j - 1].position = node.position
      left == [kept EXCEPT !.linked = line, !.others = Append(@, LeftBehind(node))]
  IN IF InLine(kept, object) = {} THEN Lost(kept, object) ELSE ChangedGroups(left, From(line, start), None, -1)

RECURSIVE UnlinkedEach(_, _)
UnlinkedEach(kept, objects) ==
  LET Rest(left) == UnlinkedEach(left, Tail(objects))
  IN IF objects = <<>> THEN kept ELSE With(Unlinked(kept, Head(objects)), Rest)

\* A node comes into the list, behind those at its position; from its group on, all groups count it.
InsertedNode(before, node) ==
  LET kept == [before EXCEPT !.tracked = @ + 1]
      line == kept.linked
      first == 1 + Cardinality({k \in DOMAIN line : IsBefore(line[k].position, node.position)})
      behind == 1 + Cardinality({k \in DOMAIN line : IsAtMost(line[k].position, node.position)})
      Joined(list) == ChangedGroups(list, From(list.linked, first), None, 1)
      Alone(list) == ChangedGroups(list, From(list.linked, first + 1), None, 1)
      counted == WithCounter(kept, first)
  IN IF behind > first
     THEN With(WithLine(kept, Inserted(line, behind, [node EXCEPT !.counter = line[first].counter])), Joined)
     ELSE With(WithLine(counted, Inserted(line, first, [node EXCEPT !.counter = Newest(counted)])), Alone)

\* The node may have this position where it stands.
Fits(line, k, p) == /\ k = 1 \/ IsAtMost(line[k - 1].position, p)
                    /\ k = Len(line) \/ IsAtMost(p, line[k + 1].position)

\* A node gets another position without passing anybody: it leaves its group, and joins a neighbour's or none.  The tail
\* shortcut forgets who stands in front of the last node: a group that it leaves, or one that it joins.
MovedInPlace(kept, k, p) ==
  LET node == kept.linked[k]
      Put(list, counter) == WithLine(list, Exchanged(list.linked, k, [node EXCEPT !.position = p, !.counter = counter]))
      IsAt(j) == j \in DOMAIN kept.linked /\ kept.linked[j].position = p
      Step(left) == CASE IsAt(k - 1) -> Put(Changed(left, left.linked[k - 1].counter, 1), left.linked[k - 1].counter)
                      [] ~IsAt(k - 1) /\ IsAt(k + 1) -> Put(left, left.linked[k + 1].counter)
                      [] OTHER -> LET new == WithCounter(left, CountAt(left, k - 1) + 1) IN Put(new, Newest(new))
  IN IF tail_keeps_counts /\ k = Len(kept.linked) THEN Put(kept, node.counter)
     ELSE With(IF IsBefore(node.position, p) THEN Changed(kept, node.counter, -1) ELSE kept, Step)

\* A node passes others: forward, its group and each group passed count one fewer; backward, one more.
MovedForward(before, k, p) ==
  LET node == before.linked[k]
      line == Without(before.linked, k)
      kept == WithLine(Changed(before, node.counter, -1), line)
      to == CHOOSE j \in k..Len(line) + 1 : /\ j > Len(line) \/ IsAtMost(p, line[j].position)
                                            /\ \A i \in k..j - 1 : IsBefore(line[i].position, p)
      Step(list) == LET new == WithCounter(list, CountAt(list, to - 1) + 1)
                        Put(each, counter) == WithLine(each, Inserted(line, to, [node EXCEPT !.position = p,
                                                                                            !.counter = counter]))
                    IN IF to <= Len(line) /\ line[to].position = p THEN Put(list, line[to].counter)
                       ELSE Put(new, Newest(new))
  IN With(ChangedGroups(kept, SubSeq(line, k, to - 1), node.position, -1), Step)

MovedBackward(before, k, p) ==
  LET node == before.linked[k]
      line == Without(before.linked, k)
      kept == WithLine(before, line)
      to == CHOOSE j \in 1..k : /\ j = 1 \/ IsAtMost(line[j - 1].position, p)
                                /\ \A i \in j..k - 1 : IsBefore(p, line[i].position)
      passed == [i \in 1..k - to |-> line[k - i]]
      Step(list) == LET joined == Changed(list, line[to - 1].counter, 1)
                        new == WithCounter(list, CountAt(list, to - 1) + 1)
                        Put(each, counter) == WithLine(each, Inserted(line, to, [node EXCEPT !.position = p,
                                                                                            !.counter = counter]))
                    IN IF to > 1 /\ line[to - 1].position = p THEN Put(joined, line[to - 1].counter)
                       ELSE Put(new, Newest(new))
  IN With(ChangedGroups(kept, passed, node.position, 1), Step)

\* A node that untracking took out of the list, and that kept its position, is taken for one that stands alone.
MovedOutside(kept, node, p) ==
  LET left == IF IsBefore(node.position, p) THEN Changed(kept, node.counter, -1) ELSE kept
      new == WithCounter(left, 1)
  IN IF node.position = p THEN [kept EXCEPT !.others = Append(@, node)]
     ELSE [new EXCEPT !.others = Append(@, [node EXCEPT !.position = p, !.counter = Newest(new)])]

\* A queued node gets its new position.
Settled(kept, node) ==
  LET p == node.pending
      k == CHOOSE k \in InLine(kept, node.object) : TRUE
      Other(each) == each.object # node.object
      apart == [kept EXCEPT !.others = SelectSeq(@, Other)]
  IN CASE p = None -> kept
       [] p # None /\ InLine(kept, node.object) = {} ->
            IF node.position = None THEN InsertedNode(apart, [node EXCEPT !.position = p])
            ELSE MovedOutside(apart, node, p)
       [] p # None /\ InLine(kept, node.object) # {} /\ node.position # p ->
            IF Fits(kept.linked, k, p) THEN MovedInPlace(kept, k, p)
            ELSE IF IsBefore(node.position, p) THEN MovedForward(kept, k, p) ELSE MovedBackward(kept, k, p)
       [] OTHER -> kept

RECURSIVE SettledEach(_, _)
SettledEach(kept, queue) ==
  LET Rest(settled) == SettledEach(settled, Tail(queue))
  IN IF queue = <<>> THEN kept ELSE With(Settled(kept, Head(queue)), Rest)

\* Nodes in an order that Stands(one, other) says.
Sorted(seq, Stands(_, _)) ==
  [n \in DOMAIN seq |->
     seq[CHOOSE k \in DOMAIN seq : Cardinality({j \in DOMAIN seq : j # k /\ Stands(seq[j], seq[k])}) = n - 1]]

\* The queued nodes: the farthest old position first, those never placed last; equal ones by name.
InOrderOfFlush(seq) ==
  LET IsQueued(node) == node.queued
      ByName(a, b) == a.cursor < b.cursor \/ (a.cursor = b.cursor /\ a.object < b.object)
      Stands(a, b) == CASE a.position = b.position                      -> ByName(a, b)
                        [] a.position # b.position /\ b.position = None -> TRUE
                        [] a.position = None /\ b.position # None       -> FALSE
                        [] OTHER                                        -> IsBefore(b.position, a.position)
  IN Sorted(SelectSeq(seq, IsQueued), Stands)

\* The list from scratch, from the cursors that are present, in the order of their names where they are equal.
BuiltAnew(kept) ==
  LET IsPresent(node) == node.present
      AtLast(node) == [node EXCEPT !.position = IF node.pending = None THEN @ ELSE node.pending, !.pending = None,
                                   !.queued = FALSE]
      all == SelectSeq(AllNodes(kept), IsPresent)
      placed == [k \in DOMAIN all |-> AtLast(all[k])]
      IsIn(node) == node.position # None /\ ~node.removing
      IsOut(node) == ~IsIn(node)
      Stands(a, b) == IsBefore(a.position, b.position) \/ (a.position = b.position /\ a.cursor < b.cursor)
      line == Sorted(SelectSeq(placed, IsIn), Stands)
      out == SelectSeq(placed, IsOut)
      n == Len(kept.counts)
      Up(k) == Cardinality({j \in DOMAIN line : IsAtMost(line[j].position, line[k].position)})
  IN [linked |-> [k \in DOMAIN line |-> [line[k] EXCEPT !.counter = n + k]],
      others |-> [k \in DOMAIN out |-> LeftBehind(out[k])],
      removals |-> <<>>, counts |-> kept.counts \o [k \in DOMAIN line |-> Up(k)],
      tracked |-> Len(line), removed |-> 0]

\* Nodes at one position share the counter of the first of them.
Shared(kept) ==
  LET line == kept.linked
      Begins(j) == j = 1 \/ line[j - 1].position # line[j].position
      FirstOf(k) == CHOOSE j \in 1..k : Begins(j) /\ line[j].position = line[k].position
  IN WithLine(kept, [k \in DOMAIN line |-> [line[k] EXCEPT !.counter = line[FirstOf(k)].counter]])

\* The list as it is now, with nothing pending.
Done(kept) ==
  LET IsPresent(node) == node.present
      Calm(seq) == [k \in DOMAIN seq |-> [seq[k] EXCEPT !.queued = FALSE, !.pending = None]]
  IN [kept EXCEPT !.linked = Calm(@), !.others = Calm(SelectSeq(@, IsPresent)), !.removals = <<>>]

IsFlushed(kept) == kept.removals = <<>> /\ \A node \in InSet(AllNodes(kept)) : ~node.queued

\* What a question does first.
Flushed(before) ==
  LET kept == [before EXCEPT !.removed = 0]
      IsQueued(node) == node.queued
      pending == Len(SelectSeq(AllNodes(kept), IsQueued))
      Rest(left) == With(SettledEach(left, InOrderOfFlush(AllNodes(left))), Done)
  IN CASE IsFlushed(kept) -> kept
       [] ~IsFlushed(kept) /\ pending >= kept.tracked \div 2 -> With(BuiltAnew(kept), Shared)
       [] OTHER -> With(UnlinkedEach(kept, kept.removals), Rest)

-----------------------------------------------------------------------------
(* Questions to a list that is up to date. *)

ListSlowest(kept) == IF kept.linked = <<>> THEN None ELSE kept.linked[1].position

\* The count of a cursor's group; 0 if it has no position, None if it has one and was never counted.
ListRank(kept, object) ==
  LET node == NodeOf(kept, object)
  IN CASE node.position = None -> 0
       [] node.position # None /\ node.counter = 0 -> None
       [] OTHER -> kept.counts[node.counter]
=============================================================================
