----------------------------- MODULE CursorHeap -----------------------------
(***************************************************************************)
(* The shipped heap and the sorted set of active cursors: the twin of      *)
(* model/active_cursors/heap.py.  Both are sequences of items; a heap's item at k  *)
(* is not faster than those at 2k and 2k + 1, so the first is the slowest. *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS None, removal_only_sinks

IsBefore(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])
IsAtMost(p, q) == ~IsBefore(q, p)

\* A sequence with another element at a place.  Not by EXCEPT, of which TLC 2.15 may lose sight in a sequence that it
\* has not worked out yet.
Exchanged(seq, k, each) == SubSeq(seq, 1, k - 1) \o <<each>> \o SubSeq(seq, k + 1, Len(seq))
Without(seq, k) == SubSeq(seq, 1, k - 1) \o SubSeq(seq, k + 1, Len(seq))
InSet(seq) == {seq[i] : i \in DOMAIN seq}

\* Of(value), where the value is worked out once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

PlaceOf(items, object) == CHOOSE k \in DOMAIN items : items[k].object = object

-----------------------------------------------------------------------------
(* The heap. *)

Swapped(items, i, j) == Exchanged(Exchanged(items, i, items[j]), j, items[i])

\* The item goes up as long as the one above it stands at a larger position.
RECURSIVE Risen(_, _)
Risen(items, k) ==
  LET above == k \div 2
      Rest(swapped) == Risen(swapped, above)
  IN IF k > 1 /\ IsBefore(items[k].position, items[above].position) THEN With(Swapped(items, k, above), Rest)
     ELSE items

\* The item goes down as long as one below is slower; of two that are equal, the right one takes its place.
RECURSIVE Sunk(_, _)
Sunk(items, k) ==
  LET left == 2 * k
      right == 2 * k + 1
      IsSlower(i, j) == i <= Len(items) /\ IsBefore(items[i].position, items[j].position)
      lower == CASE IsSlower(right, k) -> IF IsSlower(left, right) THEN left ELSE right
                 [] ~IsSlower(right, k) /\ IsSlower(left, k) -> left
                 [] OTHER -> 0
      Rest(swapped) == Sunk(swapped, lower)
  IN IF lower = 0 THEN items ELSE With(Swapped(items, k, lower), Rest)

Pushed(items, item) == Risen(Append(items, item), Len(items) + 1)

\* The item at a place has another position, or is another one: it sinks, or it rises.
Placed(items, k, only_sinks) ==
  IF only_sinks \/ k = 1 \/ IsAtMost(items[k \div 2].position, items[k].position) THEN Sunk(items, k)
  ELSE Risen(items, k)

Moved(items, k, p) == Placed(Exchanged(items, k, [items[k] EXCEPT !.position = p]), k, FALSE)

\* Without an item, the last one takes its place.  It may also have to rise, for it may come from another branch: a heap
\* in which it only sinks can be out of order from then on.
TakenOut(items, k) ==
  LET last == items[Len(items)]
      rest == SubSeq(items, 1, Len(items) - 1)
  IN IF k = Len(items) THEN rest ELSE Placed(Exchanged(rest, k, last), k, removal_only_sinks)

-----------------------------------------------------------------------------
(* The sorted set: by position, then by age. *)

SetWith(items, item) ==
  LET Stands(other) == IsBefore(other.position, item.position)
                       \/ (other.position = item.position /\ other.object < item.object)
      Follows(other) == ~Stands(other)
  IN SelectSeq(items, Stands) \o <<item>> \o SelectSeq(items, Follows)

SetWithout(items, object) == LET Other(item) == item.object # object IN SelectSeq(items, Other)

SetRank(items, p) == Cardinality({k \in DOMAIN items : IsAtMost(items[k].position, p)})
=============================================================================
