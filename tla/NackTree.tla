------------------------------ MODULE NackTree ------------------------------
(***************************************************************************)
(* The AVL tree of bucket times of the Go client, which iterates over the  *)
(* tree while it removes keys.  Twin of model/negative_acks/avl_tree.py,   *)
(* which describes the iteration.                                          *)
(*                                                                         *)
(* A tree is [time, height, left, right]; the empty tree is None.          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANT None

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Height(t) == IF t = None THEN 0 ELSE t.height
Node(time, left, right) ==
  [time |-> time, height |-> 1 + (IF Height(left) > Height(right) THEN Height(left) ELSE Height(right)),
   left |-> left, right |-> right]

RotatedLeft(t) == Node(t.right.time, Node(t.time, t.left, t.right.left), t.right.right)
RotatedRight(t) == Node(t.left.time, t.left.left, Node(t.time, t.left.right, t.right))

\* The tree with this key and these subtrees, rotated if the heights of the subtrees differ by two.
Balanced(time, left, right) ==
  CASE Height(left) > Height(right) + 1 ->
         RotatedRight(Node(time, IF Height(left.left) < Height(left.right) THEN RotatedLeft(left) ELSE left, right))
    [] Height(right) > Height(left) + 1 ->
         RotatedLeft(Node(time, left, IF Height(right.right) < Height(right.left) THEN RotatedRight(right) ELSE right))
    [] OTHER -> Node(time, left, right)

RECURSIVE Inserted(_, _), First(_), Removed(_, _), After(_, _, _), ParentAndRight(_, _, _), Shifted(_, _)

\* The tree with a key added.  A key that is present changes nothing.
Inserted(t, time) ==
  CASE t = None      -> Node(time, None, None)
    [] t # None /\ time = t.time -> t
    [] t # None /\ time < t.time -> Balanced(t.time, Inserted(t.left, time), t.right)
    [] t # None /\ time > t.time -> Balanced(t.time, t.left, Inserted(t.right, time))

\* The smallest key of a tree.
First(t) == IF t.left = None THEN t.time ELSE First(t.left)

\* The tree with a key removed. The key must be present.
Removed(t, time) ==
  CASE time < t.time -> Balanced(t.time, Removed(t.left, time), t.right)
    [] time > t.time -> Balanced(t.time, t.left, Removed(t.right, time))
    [] time = t.time /\ t.right = None -> t.left
    [] time = t.time /\ t.right # None -> Balanced(First(t.right), t.left, Removed(t.right, First(t.right)))

\* The smallest key larger than `time`, or `found` if the subtree has none.
After(t, time, found) ==
  IF t = None THEN found
  ELSE IF time < t.time THEN After(t.left, time, t.time) ELSE After(t.right, time, found)

\* The key of a node's parent, or None, and whether the node has a right child.
ParentAndRight(t, time, parent) ==
  IF t.time = time THEN [parent |-> parent, has_right |-> t.right # None]
  ELSE ParentAndRight(IF time < t.time THEN t.left ELSE t.right, time, t.time)

\* The keys that the iteration removes at time `now`, and the remaining tree.  The iteration is at key `at` and has
\* removed the keys in `removed`.  After it removes a node with a right child, it continues with the key after the next
\* one; after any other node, with the key of the node's parent.  So it may skip due keys.
RECURSIVE WalkFrom(_, _, _, _)
WalkFrom(t, at, now, removed) ==
  IF at = None THEN [times |-> removed, tree |-> t]
  ELSE IF at > now THEN [times |-> removed, tree |-> t]
  ELSE LET node == ParentAndRight(t, at, None)
           successor == After(t, at, None)
           rest == Removed(t, at)
       IN WalkFrom(rest, IF node.has_right /\ successor # None THEN After(rest, successor, None) ELSE node.parent,
                   now, removed \cup {at})
Walk(t, now) == WalkFrom(t, IF t = None THEN None ELSE First(t), now, {})

\* The tree with n added to every key.
Shifted(t, n) ==
  IF t = None THEN None ELSE [t EXCEPT !.time = @ + n, !.left = Shifted(@, n), !.right = Shifted(@, n)]
=============================================================================
