----------------------------- MODULE CursorHeap -----------------------------
(***************************************************************************)
(* The heap of ManagedCursorContainerImpl, and the sorted set of           *)
(* ActiveManagedCursorContainerNavigableSetImpl.  Twin of                  *)
(* model/active_cursors/heap.py and model/active_cursors/sorted_set.py.    *)
(*                                                                         *)
(* An item [position, object, cursor] belongs to a tracked cursor or, with *)
(* add_keeps_old_item, to one that was replaced; `object` is the number of *)
(* the cursor object.  In the heap, the position of the item at index k is *)
(* not after those of the items at 2k and 2k + 1.  So the first item is    *)
(* the slowest.                                                            *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* A rule: see Config in model/active_cursors/machine.py.
  removal_only_sifts_down

IsBefore(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
IsAtMost(p, q) == ~IsBefore(q, p)

\* The sequence with another element at index k.  EXCEPT is not used: TLC 2.15 ignores it in a function that it converts
\* to a sequence unevaluated.
Exchanged(seq, k, each) == SubSeq(seq, 1, k - 1) \o <<each>> \o SubSeq(seq, k + 1, Len(seq))
Without(seq, k) == SubSeq(seq, 1, k - 1) \o SubSeq(seq, k + 1, Len(seq))
InSet(seq) == {seq[i] : i \in DOMAIN seq}

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

IndexOf(items, object) == CHOOSE k \in DOMAIN items : items[k].object = object

-----------------------------------------------------------------------------
(* The heap. *)

Swapped(items, i, j) == Exchanged(Exchanged(items, i, items[j]), j, items[i])

\* siftUp: the item at index k moves up while its parent is at a larger position.
RECURSIVE ItemSiftedUp(_, _)
ItemSiftedUp(items, k) ==
  LET above == k \div 2
      Rest(swapped) == ItemSiftedUp(swapped, above)
  IN IF k > 1 /\ IsBefore(items[k].position, items[above].position) THEN With(Swapped(items, k, above), Rest)
     ELSE items

\* siftDown: the item moves down while a child is slower; of two equal children, the right one moves up.
RECURSIVE ItemSiftedDown(_, _)
ItemSiftedDown(items, k) ==
  LET left == 2 * k
      right == 2 * k + 1
      IsSlower(i, j) == i <= Len(items) /\ IsBefore(items[i].position, items[j].position)
      lower == CASE IsSlower(right, k) -> IF IsSlower(left, right) THEN left ELSE right
                 [] ~IsSlower(right, k) /\ IsSlower(left, k) -> left
                 [] OTHER -> 0
      Rest(swapped) == ItemSiftedDown(swapped, lower)
  IN IF lower = 0 THEN items ELSE With(Swapped(items, k, lower), Rest)

\* The heap with one more item.
Pushed(items, item) == ItemSiftedUp(Append(items, item), Len(items) + 1)

\* The heap after the item at index k was replaced: the new item sifts down, or up.
Placed(items, k, only_sifts_down) ==
  IF only_sifts_down \/ k = 1 \/ IsAtMost(items[k \div 2].position, items[k].position) THEN ItemSiftedDown(items, k)
  ELSE ItemSiftedUp(items, k)

\* The heap after the cursor of the item at index k has moved to position p.
Moved(items, k, p) == Placed(Exchanged(items, k, [items[k] EXCEPT !.position = p]), k, FALSE)

\* The heap without the item at index k: the last item moves to k, and sifts down or up.  The last item may come from
\* another branch, and must then sift up.  If it only sifts down (`removeCursor` as shipped), the heap can be out of
\* order.
ItemRemoved(items, k) ==
  LET last == items[Len(items)]
      rest == SubSeq(items, 1, Len(items) - 1)
  IN IF k = Len(items) THEN rest ELSE Placed(Exchanged(rest, k, last), k, removal_only_sifts_down)

-----------------------------------------------------------------------------
(* The sorted set: items ordered by position, then by object. *)

SetWith(items, item) ==
  LET ComesBefore(other) == IsBefore(other.position, item.position)
                       \/ (other.position = item.position /\ other.object < item.object)
      Follows(other) == ~ComesBefore(other)
  IN SelectSeq(items, ComesBefore) \o <<item>> \o SelectSeq(items, Follows)

SetWithout(items, object) == LET Other(item) == item.object # object IN SelectSeq(items, Other)

\* The number of items at position p or before.
SetCount(items, p) == Cardinality({k \in DOMAIN items : IsAtMost(items[k].position, p)})
=============================================================================
