--------------------------- MODULE PendingAcksState ---------------------------
(***************************************************************************)
(* What a pending-ack store is about: the subscription's cursor, what      *)
(* transactions hold, conflicts between them, and the sparse index of the  *)
(* log.  The twin of model/pending_acks/state.py and model/pending_acks/log_index.py.   *)
(*                                                                         *)
(* Entries of the topic are numbered from 0, messages of an entry          *)
(* likewise; masks are sets of numbers.  What is acknowledged is           *)
(* [mark, deleted, partial], partial a set of [entry, remaining].  A part  *)
(* of an entry is [entry, leaves]; leaves is None if it is of the whole    *)
(* entry.  A holder is [txn, parts], parts a set.  Entries of the log are  *)
(* numbered from 0, from the first one that is kept.                       *)
(*                                                                         *)
(* How many records make the next key is not kept, for it follows from the *)
(* number of keys.                                                         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, and rules on which versions differ.
  batch_sizes, batch_acks, batching, min_lag, read_attempts, conflicts_are_found, failed_appends, refused_commits,
  cumulative_acks_hide_others, parts_of_whole_entries_conflict, overlap, empty_sets_mean_whole, low_watermark_aborts,
  replay_begins_at_the_mark, stopped_replay_fails, recovery_drops, recovery_keeps_cumulative_sets,
  replayed_ends_have_owners

\* Of(value), where the value is worked out once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(numbers) == CHOOSE n \in numbers : \A m \in numbers : n <= m
Greatest(numbers) == CHOOSE n \in numbers : \A m \in numbers : n >= m
TheOne(set) == CHOOSE each \in set : TRUE
Last(list) == list[Len(list)]
Members(list) == {list[k] : k \in DOMAIN list}

RECURSIVE Joined(_)
Joined(lists) == IF lists = <<>> THEN <<>> ELSE lists[1] \o Joined(Tail(lists))

-----------------------------------------------------------------------------
(* Entries and parts of them. *)

SizeOf(n) == batch_sizes[(n % Len(batch_sizes)) + 1]
AllOf(n) == 0..SizeOf(n) - 1

\* The bits of a mask.
BitsOf(mask) == {i \in 0..30 : (mask \div 2^i) % 2 = 1}

\* An acknowledgement as it is asked for, its set a number; an empty set is none.
PartOf(n, leaves) == [entry |-> n, leaves |-> IF leaves = None \/ leaves = 0 THEN None ELSE BitsOf(leaves)]
IsWrongSet(n, leaves) == leaves # None /\ leaves >= 2^SizeOf(n) - 1

\* The messages that an acknowledgement is of.
MessagesOf(part) == IF part.leaves = None THEN AllOf(part.entry) ELSE AllOf(part.entry) \ part.leaves

\* How far a cumulative acknowledgement reaches: its entry, and the first message of it that is left, -1 if none.
Reach(part) ==
  IF part.leaves = None \/ part.leaves = {} THEN <<part.entry + 1, -1>> ELSE <<part.entry, Least(part.leaves)>>
IsFurther(part, other) ==
  LET one == Reach(part)
      two == Reach(other)
  IN one[1] > two[1] \/ (one[1] = two[1] /\ one[2] > two[2])

-----------------------------------------------------------------------------
(* The subscription's cursor. *)

Nothing == [mark |-> 0, deleted |-> {}, partial |-> {}]
Acks(mark, deleted, partial) == [mark |-> mark, deleted |-> deleted, partial |-> partial]

IsDeleted(a, n) == n < a.mark \/ n \in a.deleted
KnownOf(a, n) == {p \in a.partial : p.entry = n}
Without(partial, n) == {p \in partial : p.entry # n}

\* The messages of an entry that are acknowledged.
AckedOf(a, n) ==
  IF IsDeleted(a, n) THEN AllOf(n)
  ELSE IF KnownOf(a, n) = {} THEN {} ELSE AllOf(n) \ TheOne(KnownOf(a, n)).remaining

\* The first number from this one on that is not among the deleted.
RECURSIVE NotIn(_, _)
NotIn(deleted, n) == IF n \in deleted THEN NotIn(deleted, n + 1) ELSE n

\* Everything before a number is deleted, and nothing is remembered of it; the mark moves over what follows.
UpTo(a, n) ==
  LET mark == NotIn(a.deleted, n)
  IN Acks(mark, {k \in a.deleted : k >= mark}, {p \in a.partial : p.entry >= mark})

\* The cursor takes it for an acknowledgement of the whole entry.
IsWhole(leaves) == leaves = None \/ (leaves = {} /\ (batch_acks \/ empty_sets_mean_whole))

Narrowed(a, n, given) ==
  LET remaining == IF KnownOf(a, n) = {} THEN given ELSE given \cap TheOne(KnownOf(a, n)).remaining
      new == IF remaining = AllOf(n) THEN {} ELSE {[entry |-> n, remaining |-> remaining]}
  IN IF remaining = {} THEN Acks(a.mark, a.deleted \cup {n}, Without(a.partial, n))
     ELSE Acks(a.mark, a.deleted, Without(a.partial, n) \cup new)

WithPart(a, part) ==
  IF IsDeleted(a, part.entry) THEN a
  ELSE IF IsWhole(part.leaves) THEN Acks(a.mark, a.deleted \cup {part.entry}, Without(a.partial, part.entry))
  ELSE IF batch_acks THEN Narrowed(a, part.entry, part.leaves) ELSE a

\* Parts of different entries, in whatever order; then the mark moves.
RECURSIVE WithEach(_, _)
WithEach(a, parts) ==
  LET part == TheOne(parts)
      Rest(after) == WithEach(after, parts \ {part})
  IN IF parts = {} THEN a ELSE With(WithPart(a, part), Rest)
WithParts(a, parts) ==
  LET Settled(after) == UpTo(after, after.mark) IN With(WithEach(a, parts), Settled)

\* Everything before an entry, and this part of it, is acknowledged.
WithAllUpTo(a, part) ==
  LET end == part.entry + (IF IsWhole(part.leaves) THEN 1 ELSE 0)
  IN WithParts(IF end > a.mark THEN UpTo(a, end) ELSE a, {part})

-----------------------------------------------------------------------------
(* What transactions hold. *)

HeldBy(s, txn) == UNION {h.parts : h \in {h \in Members(s.held) : h.txn = txn}}

\* The parts with more of them; of an entry that is among both, what is left in both.
Merged(old, new) ==
  LET Both(p, q) == IF p.leaves = None \/ q.leaves = None THEN None ELSE p.leaves \cap q.leaves
      Lacks(parts, p) == \A q \in parts : q.entry # p.entry
  IN {p \in old : Lacks(new, p)} \cup {q \in new : Lacks(old, q)}
       \cup {[entry |-> pair[1].entry, leaves |-> Both(pair[1], pair[2])] :
               pair \in {pair \in old \X new : pair[1].entry = pair[2].entry}}

Holding(held, txn, parts) ==
  IF \E k \in DOMAIN held : held[k].txn = txn
  THEN [k \in DOMAIN held |->
          IF held[k].txn = txn THEN [txn |-> txn, parts |-> Merged(held[k].parts, parts)] ELSE held[k]]
  ELSE IF parts = {} THEN held ELSE Append(held, [txn |-> txn, parts |-> parts])

Released(held, txn) == LET IsOther(h) == h.txn # txn IN SelectSeq(held, IsOther)

\* The calls that are not in the log yet, in order.
OnTheWay(s) == Joined(s.in_flight) \o s.buffer

\* The parts of an entry that transactions hold; where conflicts are found early, those on their way, too.
ClaimsOn(s, n) ==
  LET coming == IF conflicts_are_found # "before_the_append" THEN {}
                ELSE {c.record : c \in {c \in Members(OnTheWay(s)) : c.record.op = "ack" /\ ~c.record.cumulative}}
  IN {p \in UNION ({h.parts : h \in Members(s.held)} \cup {Members(r.parts) : r \in coming}) : p.entry = n}

\* The cumulative acknowledgement that another one must be further than; the last one that is on its way counts.
CumulativeClaim(s) ==
  LET IsCumulativeAck(c) == c.record.op = "ack" /\ c.record.cumulative
      coming == SelectSeq(OnTheWay(s), IsCumulativeAck)
  IN IF conflicts_are_found = "before_the_append" /\ coming # <<>>
     THEN [txn |-> Last(coming).record.txn, part |-> Last(coming).record.parts[1]] ELSE s.cumulative

-----------------------------------------------------------------------------
(* Conflicts. *)

\* As shipped, zero words at the end of a pending set are cut, and what lies in them is not looked at.
InWords(leaves) == IF leaves = {} THEN {} ELSE 0..64 * (Greatest(leaves) \div 64 + 1) - 1

\* What an acknowledgement is compared with, of the claims on its entry: each; as shipped, what is left in all of them.
Compared(claims) ==
  LET is_part == \A claim \in claims : claim.leaves # None
      left == {i \in UNION {claim.leaves : claim \in claims} : \A claim \in claims : i \in claim.leaves}
  IN IF overlap = "within_batch" \/ claims = {} THEN claims
     ELSE {[entry |-> TheOne(claims).entry, leaves |-> IF is_part THEN left ELSE None]}

Overlaps(part, claim) ==
  LET both == MessagesOf(part) \cap MessagesOf(claim)
  IN IF claim.leaves = None THEN parts_of_whole_entries_conflict
     ELSE (IF overlap = "words_of_pending" THEN both \cap InWords(claim.leaves) ELSE both) # {}

PartConflicts(s, part) ==
  \/ IsDeleted(s.acks, part.entry)
  \/ /\ part.leaves = None
     /\ ClaimsOn(s, part.entry) # {}
  \/ /\ part.leaves # None
     /\ \/ MessagesOf(part) \cap AckedOf(s.acks, part.entry) # {}
        \/ \E claim \in Compared(ClaimsOn(s, part.entry)) : Overlaps(part, claim)

\* A transaction cannot acknowledge all of this.
Conflicts(s, ack) ==
  IF ~ack.cumulative THEN \E k \in DOMAIN ack.parts : PartConflicts(s, ack.parts[k])
  ELSE LET part == ack.parts[1]
           other == CumulativeClaim(s)
       IN \/ part.entry < s.acks.mark
          \/ other # None /\ (other.txn # ack.txn \/ ~IsFurther(part, other.part))

\* As shipped: a part of an entry that is wholly pending comes through the checks, and ends in an exception.
IsNeverAnswered(s, ack) ==
  LET wholly == {p.entry : p \in {p \in UNION {h.parts : h \in Members(s.held)} : p.leaves = None}}
  IN \E k \in DOMAIN ack.parts : ack.parts[k].leaves # None /\ ack.parts[k].entry \in wholly

-----------------------------------------------------------------------------
(* Redelivery: what consumers get again is a set of [entry, messages]. *)

\* The messages of an entry that a cumulative acknowledgement is of.
CoveredBy(claim, n) ==
  IF claim = None THEN {}
  ELSE IF n > claim.part.entry THEN {} ELSE IF n < claim.part.entry THEN AllOf(n) ELSE MessagesOf(claim.part)

\* The messages of an entry that are acknowledged or pending.
KeptOf(s, n) ==
  AckedOf(s.acks, n) \cup CoveredBy(s.cumulative, n)
    \cup UNION {MessagesOf(p) : p \in {p \in UNION {h.parts : h \in Members(s.held)} : p.entry = n}}

\* What consumers get of what has ended; s is the state without it.
ToRedeliver(s, parts, ended) ==
  LET entries == {p.entry : p \in parts} \cup (IF ended = None THEN {} ELSE s.acks.mark..ended.part.entry)
      EndedOf(n) == CoveredBy(ended, n) \cup UNION {MessagesOf(p) : p \in {p \in parts : p.entry = n}}
      found == {[entry |-> n, messages |-> EndedOf(n) \ KeptOf(s, n)] : n \in entries}
  IN {each \in found : each.messages # {}}

-----------------------------------------------------------------------------
(* The index of the log: [lag, max_ack, keys], keys in order, each [entry, at]. *)

NoIndex == [lag |-> 0, max_ack |-> -1, keys |-> <<>>]
NextLag(keys) == min_lag * (IF keys = 0 THEN 1 ELSE keys)

\* One more entry of the log stands at this place, with so many records; the last entry of the topic that they
\* acknowledge is -1 if there is none, and then no key is made.
Counted(index, records, last, at) ==
  LET lag == index.lag + records
      max_ack == IF last > index.max_ack THEN last ELSE index.max_ack
      keys == index.keys
      kept == IF keys # <<>> /\ Last(keys).entry = max_ack THEN SubSeq(keys, 1, Len(keys) - 1) ELSE keys
  IN IF last < 0 \/ lag < NextLag(Len(keys)) THEN [lag |-> lag, max_ack |-> max_ack, keys |-> keys]
     ELSE [lag |-> 0, max_ack |-> max_ack, keys |-> Append(kept, [entry |-> max_ack, at |-> at])]

\* The index without the keys before the durable mark, and how many entries of the log go.
Cleared(index, mark) ==
  LET keys == index.keys
      gone == Cardinality({k \in DOMAIN keys : keys[k].entry < mark})
      count == keys[gone].at + 1
      left == [k \in 1..Len(keys) - gone |-> [entry |-> keys[gone + k].entry, at |-> keys[gone + k].at - count]]
  IN IF gone = 0 THEN [index |-> index, gone |-> 0] ELSE [index |-> [index EXCEPT !.keys = left], gone |-> count]

EntriesOf(records) == {p.entry : p \in UNION {Members(r.parts) : r \in Members(records)}}

WithoutSoMany(number, count) == IF number > count THEN number - count ELSE 0

\* The entry of the log is counted, and what may go of the log goes.
Indexed(s, entry, at) ==
  LET last == IF EntriesOf(entry) = {} THEN -1 ELSE Greatest(EntriesOf(entry))
      Trimmed(found) ==
        [s |-> [s EXCEPT !.log_index = found.index, !.log = SubSeq(@, found.gone + 1, Len(@)),
                         !.read = WithoutSoMany(@, found.gone), !.progress = WithoutSoMany(@, found.gone)],
         gone |-> found.gone]
  IN With(Cleared(Counted(s.log_index, Len(entry), last, at), s.durable.mark), Trimmed)

\* The store has forgotten what is pending; the cursor has not forgotten anything.
WithoutMemory(s) ==
  [s EXCEPT !.read = IF replay_begins_at_the_mark THEN 0 ELSE @, !.log_index = NoIndex, !.progress = 0,
            !.attempts = 0, !.held = <<>>, !.cumulative = None, !.low_watermark = 0]
=============================================================================
