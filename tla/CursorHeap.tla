----------------------------- MODULE CursorHeap -----------------------------
(***************************************************************************)
(* The heap of ManagedCursorContainerImpl and the sorted set: the twin of *)
(* model/active_cursors/heap.py.  The item of the heap at k is not faster *)
(* than those at 2k and 2k + 1, so the first is the slowest.              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS None, removal_only_sifts_down

IsBefore(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
IsAtMost(p, q) == ~IsBefore(q, p)

\* A sequence with another element at an index.  Not by EXCEPT, which TLC 2.15 may ignore in a sequence that it has not
\* evaluated yet.
Exchanged(seq, k, each) == SubSeq(seq, 1, k - 1) \o <<each>> \o SubSeq(seq, k + 1, Len(seq))
Without(seq, k) == SubSeq(seq, 1, k - 1) \o SubSeq(seq, k + 1, Len(seq))
InSet(seq) == {seq[i] : i \in DOMAIN seq}

\* Of(value), where the value is evaluated once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

IndexOf(items, object) == CHOOSE k \in DOMAIN items : items[k].object = object

-----------------------------------------------------------------------------
(* The heap. *)

Swapped(items, i, j) == Exchanged(Exchanged(items, i, items[j]), j, items[i])

\* siftUp: the item moves up while its parent is at a larger position.
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

Pushed(items, item) == ItemSiftedUp(Append(items, item), Len(items) + 1)

\* The item at an index changed: it sifts down or up.
Placed(items, k, only_sifts_down) ==
  IF only_sifts_down \/ k = 1 \/ IsAtMost(items[k \div 2].position, items[k].position) THEN ItemSiftedDown(items, k)
  ELSE ItemSiftedUp(items, k)

Moved(items, k, p) == Placed(Exchanged(items, k, [items[k] EXCEPT !.position = p]), k, FALSE)

\* Without an item, the last one moves to its index and sifts.  It may have to sift up, because it may come from another
\* branch: a heap in which it only sifts down can be out of order afterwards.
ItemRemoved(items, k) ==
  LET last == items[Len(items)]
      rest == SubSeq(items, 1, Len(items) - 1)
  IN IF k = Len(items) THEN rest ELSE Placed(Exchanged(rest, k, last), k, removal_only_sifts_down)

-----------------------------------------------------------------------------
(* The sorted set: by position, then by age. *)

SetWith(items, item) ==
  LET Stands(other) == IsBefore(other.position, item.position)
                       \/ (other.position = item.position /\ other.object < item.object)
      Follows(other) == ~Stands(other)
  IN SelectSeq(items, Stands) \o <<item>> \o SelectSeq(items, Follows)

SetWithout(items, object) == LET Other(item) == item.object # object IN SelectSeq(items, Other)

SetCount(items, p) == Cardinality({k \in DOMAIN items : IsAtMost(items[k].position, p)})
=============================================================================
