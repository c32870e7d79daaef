------------------------------ MODULE NackTree ------------------------------
(***************************************************************************)
(* The balanced tree that the Go client walks over while it removes what   *)
(* it meets: the twin of model/negative_acks/tree.py, which says how it works.      *)
(*                                                                         *)
(* A tree is [time, height, left, right], or None where there is nothing.  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANT None

\* Of(value), where the value is worked out once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Height(t) == IF t = None THEN 0 ELSE t.height
Node(time, left, right) ==
  [time |-> time, height |-> 1 + (IF Height(left) > Height(right) THEN Height(left) ELSE Height(right)),
   left |-> left, right |-> right]

TurnedLeft(t) == Node(t.right.time, Node(t.time, t.left, t.right.left), t.right.right)
TurnedRight(t) == Node(t.left.time, t.left.left, Node(t.time, t.left.right, t.right))

\* A node of parts that may differ by two in height: then it is turned.
Joined(time, left, right) ==
  CASE Height(left) > Height(right) + 1 ->
         TurnedRight(Node(time, IF Height(left.left) < Height(left.right) THEN TurnedLeft(left) ELSE left, right))
    [] Height(right) > Height(left) + 1 ->
         TurnedLeft(Node(time, left, IF Height(right.right) < Height(right.left) THEN TurnedRight(right) ELSE right))
    [] OTHER -> Node(time, left, right)

RECURSIVE Planted(_, _), FirstOf(_), Removed(_, _), AfterIn(_, _, _), AboveIn(_, _, _), Moved(_, _), Keys(_)

Planted(t, time) ==
  CASE t = None      -> Node(time, None, None)
    [] t # None /\ time = t.time -> t
    [] t # None /\ time < t.time -> Joined(t.time, Planted(t.left, time), t.right)
    [] t # None /\ time > t.time -> Joined(t.time, t.left, Planted(t.right, time))

FirstOf(t) == IF t.left = None THEN t.time ELSE FirstOf(t.left)

\* Without a key that it has.
Removed(t, time) ==
  CASE time < t.time -> Joined(t.time, Removed(t.left, time), t.right)
    [] time > t.time -> Joined(t.time, t.left, Removed(t.right, time))
    [] time = t.time /\ t.right = None -> t.left
    [] time = t.time /\ t.right # None -> Joined(FirstOf(t.right), t.left, Removed(t.right, FirstOf(t.right)))

\* The smallest key that is larger, or None.
AfterIn(t, time, found) ==
  IF t = None THEN found
  ELSE IF time < t.time THEN AfterIn(t.left, time, t.time) ELSE AfterIn(t.right, time, found)

\* Of a key that is there: its parent's key or None, and whether it has a right child.
AboveIn(t, time, above) ==
  IF t.time = time THEN [above |-> above, has_right |-> t.right # None]
  ELSE AboveIn(IF time < t.time THEN t.left ELSE t.right, time, t.time)

\* What a walk that stands at a key removes of the keys up to now, and the tree that it leaves behind.
RECURSIVE WalkedFrom(_, _, _, _)
WalkedFrom(t, at, now, taken) ==
  IF at = None THEN [times |-> taken, tree |-> t]
  ELSE IF at > now THEN [times |-> taken, tree |-> t]
  ELSE LET place == AboveIn(t, at, None)
           next == AfterIn(t, at, None)
           left == Removed(t, at)
       IN WalkedFrom(left, IF place.has_right /\ next # None THEN AfterIn(left, next, None) ELSE place.above,
                     now, taken \cup {at})
Walked(t, now) == WalkedFrom(t, IF t = None THEN None ELSE FirstOf(t), now, {})

\* The same shape, all keys later by so much.
Moved(t, n) ==
  IF t = None THEN None ELSE [t EXCEPT !.time = @ + n, !.left = Moved(@, n), !.right = Moved(@, n)]
Keys(t) == IF t = None THEN {} ELSE {t.time} \cup Keys(t.left) \cup Keys(t.right)
=============================================================================
