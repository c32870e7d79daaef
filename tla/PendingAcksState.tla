--------------------------- MODULE PendingAcksState ---------------------------
(******************************************************************************)
(* Settings, cursor, pending acks, conflicts and log index of a pending-ack   *)
(* handle.  Twin of state.py, conflicts.py and log_index.py in                *)
(* model/pending_acks; PendingAcks.tla says what the component models.        *)
(*                                                                            *)
(*   entries  of the topic are numbered from 0; so are the messages (batch    *)
(*            indexes) of an entry                                            *)
(*   masks    sets of numbers                                                 *)
(*   ack      [entry, ack_set]: ack_set has the messages that the ack leaves  *)
(*            unacknowledged; None for the whole entry                        *)
(*   pending individual acks of a transaction  [txn, acks], acks a set        *)
(*   cursor   [first_unacked, deleted, partial]: the first entry after the    *)
(*            mark-delete position, the individually deleted entries, and a   *)
(*            set of [entry, remaining]: the messages of an entry with an ack *)
(*            set that are not acknowledged                                   *)
(*   log index  [current_lag, max_ack, keys]: records since the last key, the *)
(*            last acked entry so far, and the keys in order, each            *)
(*            [ack_position, log_position]; the lag that adds the next key    *)
(*            follows from the number of keys (LogIndexLagBackoff)            *)
(******************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings.  Config in model/pending_acks/state.py explains settings and rules.
  batch_sizes, batch_index_acks, batched_writes, min_lag, max_lag, lag_exponent, max_failed_reads,
  \* Rules on which versions and proposals differ.
  cross_type_conflicts, conflict_check, failed_append, rejected_commit, commit_and_abort_cover_both_types,
  batch_index_of_pending_entry_conflicts, overlap_check, empty_ack_set_acks_entry, low_watermark_aborts,
  replay_rewinds, stopped_replay_fails, failed_reads_are_bounded, replay_drops, replay_keeps_cumulative_ack_set,
  replay_checks_cumulative_owner, log_deletion

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(numbers) == CHOOSE n \in numbers : \A m \in numbers : n <= m
Greatest(numbers) == CHOOSE n \in numbers : \A m \in numbers : n >= m
TheOne(set) == CHOOSE each \in set : TRUE
Last(list) == list[Len(list)]
Members(list) == {list[k] : k \in DOMAIN list}

RECURSIVE Joined(_)
Joined(lists) == IF lists = <<>> THEN <<>> ELSE lists[1] \o Joined(Tail(lists))

-----------------------------------------------------------------------------
(* Entries and acks. *)

SizeOf(n) == batch_sizes[(n % Len(batch_sizes)) + 1]
AllMessages(n) == 0..SizeOf(n) - 1

\* The bits of a mask.  There are at most 31, because TLC's integers have 32 bits.
BitsOf(mask) == {i \in 0..30 : (mask \div 2^i) % 2 = 1}

\* An ack of a request, whose ack set is a number.  An empty ack set is the same as none: the whole entry is acked.
AckOf(n, ack_set) == [entry |-> n, ack_set |-> IF ack_set = None \/ ack_set = 0 THEN None ELSE BitsOf(ack_set)]
\* Whether an ack set has a bit beyond the batch, or leaves every message unacknowledged.
IsInvalid(n, ack_set) == ack_set # None /\ ack_set >= 2^SizeOf(n) - 1

\* The messages that an ack acks.
MessagesOf(ack) == IF ack.ack_set = None THEN AllMessages(ack.entry) ELSE AllMessages(ack.entry) \ ack.ack_set

\* The first message that a cumulative ack leaves unacknowledged: <<entry, batch index>>.  The batch index is -1 if the
\* whole entry is unacknowledged.
FirstPositionAfter(ack) ==
  IF ack.ack_set = None \/ ack.ack_set = {} THEN <<ack.entry + 1, -1>> ELSE <<ack.entry, Least(ack.ack_set)>>

\* Whether cumulative ack `ack` acks more messages than `other`.
IsAfter(ack, other) ==
  LET one == FirstPositionAfter(ack)
      two == FirstPositionAfter(other)
  IN one[1] > two[1] \/ (one[1] = two[1] /\ one[2] > two[2])

-----------------------------------------------------------------------------
(* The subscription's cursor. *)

NoAcks == [first_unacked |-> 0, deleted |-> {}, partial |-> {}]
Acks(first_unacked, deleted, partial) == [first_unacked |-> first_unacked, deleted |-> deleted, partial |-> partial]

IsDeleted(a, n) == n < a.first_unacked \/ n \in a.deleted
PartialOf(a, n) == {p \in a.partial : p.entry = n}
Without(partial, n) == {p \in partial : p.entry # n}

\* The acknowledged messages of an entry.
AckedMessages(a, n) ==
  IF IsDeleted(a, n) THEN AllMessages(n)
  ELSE IF PartialOf(a, n) = {} THEN {} ELSE AllMessages(n) \ TheOne(PartialOf(a, n)).remaining

\* The first number from n on that is not deleted.
RECURSIVE NotIn(_, _)
NotIn(deleted, n) == IF n \in deleted THEN NotIn(deleted, n + 1) ELSE n

\* Every entry before n is deleted, and the mark-delete position advances over the deleted entries that follow.
WithMarkDeleteAt(a, n) ==
  LET first_unacked == NotIn(a.deleted, n)
  IN Acks(first_unacked, {k \in a.deleted : k >= first_unacked}, {p \in a.partial : p.entry >= first_unacked})

\* Whether the cursor deletes the entry of an ack, whatever was acked before (ManagedCursorImpl.asyncDelete).
AcksWholeEntry(ack_set) == ack_set = None \/ (ack_set = {} /\ (batch_index_acks \/ empty_ack_set_acks_entry))

\* Intersects an ack set with the stored one of entry n, if any.
WithAckSet(a, n, given) ==
  LET remaining == IF PartialOf(a, n) = {} THEN given ELSE given \cap TheOne(PartialOf(a, n)).remaining
      new == IF remaining = AllMessages(n) THEN {} ELSE {[entry |-> n, remaining |-> remaining]}
  IN IF remaining = {} THEN Acks(a.first_unacked, a.deleted \cup {n}, Without(a.partial, n))
     ELSE Acks(a.first_unacked, a.deleted, Without(a.partial, n) \cup new)

\* The cursor with an individual ack.  Without batch_index_acks, an ack with an ack set has no effect, unless
\* AcksWholeEntry.
WithAck(a, ack) ==
  IF IsDeleted(a, ack.entry) THEN a
  ELSE IF AcksWholeEntry(ack.ack_set)
       THEN Acks(a.first_unacked, a.deleted \cup {ack.entry}, Without(a.partial, ack.entry))
  ELSE IF batch_index_acks THEN WithAckSet(a, ack.entry, ack.ack_set) ELSE a

\* The cursor with individual acks of different entries, applied in any order; then the mark-delete position advances.
RECURSIVE WithEach(_, _)
WithEach(a, acks) ==
  LET ack == TheOne(acks)
      Rest(after) == WithEach(after, acks \ {ack})
  IN IF acks = {} THEN a ELSE With(WithAck(a, ack), Rest)
WithIndividualAcks(a, acks) ==
  LET Advanced(after) == WithMarkDeleteAt(after, after.first_unacked) IN With(WithEach(a, acks), Advanced)

WithCumulativeAck(a, ack) ==
  LET end == ack.entry + (IF AcksWholeEntry(ack.ack_set) THEN 1 ELSE 0)
  IN WithIndividualAcks(IF end > a.first_unacked THEN WithMarkDeleteAt(a, end) ELSE a, {ack})

-----------------------------------------------------------------------------
(* Pending acks. *)

AcksOf(s, txn) == UNION {t.acks : t \in {t \in Members(s.individual_acks) : t.txn = txn}}

\* The union of two sets of acks; ack sets of the same entry are intersected.  None, the whole entry, prevails.
Merged(old, new) ==
  LET Both(p, q) == IF p.ack_set = None \/ q.ack_set = None THEN None ELSE p.ack_set \cap q.ack_set
      Lacks(acks, p) == \A q \in acks : q.entry # p.entry
  IN {p \in old : Lacks(new, p)} \cup {q \in new : Lacks(old, q)}
       \cup {[entry |-> pair[1].entry, ack_set |-> Both(pair[1], pair[2])] :
               pair \in {pair \in old \X new : pair[1].entry = pair[2].entry}}

\* The pending individual acks with further acks of a transaction.
WithPending(pending, txn, acks) ==
  IF \E k \in DOMAIN pending : pending[k].txn = txn
  THEN [k \in DOMAIN pending |->
          IF pending[k].txn = txn THEN [txn |-> txn, acks |-> Merged(pending[k].acks, acks)] ELSE pending[k]]
  ELSE IF acks = {} THEN pending ELSE Append(pending, [txn |-> txn, acks |-> acks])

WithoutTxn(pending, txn) == LET IsOther(t) == t.txn # txn IN SelectSeq(pending, IsOther)

\* The requests whose records are in flight or buffered, in order.
BufferedOrInFlight(s) == Joined(s.in_flight) \o s.buffer

\* The requests of acks of this type that are in flight or buffered.  Empty if conflicts are detected after the append.
BufferedOrInFlightAcks(s, is_cumulative) ==
  LET IsAck(r) == r.record.op = "ack" /\ r.record.cumulative = is_cumulative
  IN IF conflict_check = "after_append" THEN <<>> ELSE SelectSeq(BufferedOrInFlight(s), IsAck)

\* The acks with which a new ack can conflict.  PendingAcksOfAll: all pending individual acks, as [txn, ack].
\* PendingAcksOfEntry: those of one entry.  PendingCumulativeAck: the latest cumulative ack, or None.  Acks in flight
\* or buffered count as pending, unless conflicts are detected after the append.
PendingAcksOfAll(s) ==
  UNION {{[txn |-> t.txn, ack |-> p] : p \in t.acks} : t \in Members(s.individual_acks)}
    \cup UNION {{[txn |-> r.record.txn, ack |-> p] : p \in Members(r.record.acks)} :
                  r \in Members(BufferedOrInFlightAcks(s, FALSE))}
PendingAcksOfEntry(s, n) == {each.ack : each \in {each \in PendingAcksOfAll(s) : each.ack.entry = n}}
PendingCumulativeAck(s) ==
  LET coming == BufferedOrInFlightAcks(s, TRUE)
  IN IF coming = <<>> THEN s.cumulative_ack
     ELSE [txn |-> Last(coming).record.txn, ack |-> Last(coming).record.acks[1]]

\* The messages of an entry that a cumulative ack [txn, ack] acks.
CoveredMessages(cumulative, n) ==
  IF cumulative = None THEN {}
  ELSE IF n > cumulative.ack.entry THEN {}
  ELSE IF n < cumulative.ack.entry THEN AllMessages(n) ELSE MessagesOf(cumulative.ack)

-----------------------------------------------------------------------------
(* Conflicts. *)

\* The batch indexes in the stored words of an ack set.  As shipped, zero words at the end of an ack set are not stored.
InStoredWords(ack_set) == IF ack_set = {} THEN {} ELSE 0..64 * (Greatest(ack_set) \div 64 + 1) - 1

\* The acks with which a batch-index ack is compared: each pending ack of its entry, or, as shipped (overlap_check
\* "trimmed_words"), one ack that is the union of these.
ComparedWith(pending) ==
  LET has_sets == \A p \in pending : p.ack_set # None
      left == {i \in UNION {p.ack_set : p \in pending} : \A p \in pending : i \in p.ack_set}
  IN IF overlap_check = "every_batch_index" \/ pending = {} THEN pending
     ELSE {[entry |-> TheOne(pending).entry, ack_set |-> IF has_sets THEN left ELSE None]}

\* Whether a batch-index ack overlaps a pending ack of its entry (PositionAckSetUtil.isAckSetOverlap).
Overlaps(ack, pending) ==
  LET both == MessagesOf(ack) \cap MessagesOf(pending)
  IN IF pending.ack_set = None THEN batch_index_of_pending_entry_conflicts
     ELSE (IF overlap_check = "trimmed_words" THEN both \cap InStoredWords(pending.ack_set) ELSE both) # {}

\* Whether an individual ack overlaps pending individual acks of its entry (OverlapsIndividual), or a cumulative ack of
\* another transaction (OverlapsCumulative).
OverlapsIndividual(s, ack) ==
  LET pending == PendingAcksOfEntry(s, ack.entry)
  IN IF ack.ack_set = None THEN pending # {} ELSE \E p \in ComparedWith(pending) : Overlaps(ack, p)
OverlapsCumulative(s, txn, ack) ==
  LET other == PendingCumulativeAck(s)
  IN /\ cross_type_conflicts
     /\ other # None
     /\ other.txn # txn
     /\ MessagesOf(ack) \cap CoveredMessages(other, ack.entry) # {}

\* Whether an individual ack conflicts with messages that the cursor has acknowledged, or with pending acks.
AckConflicts(s, txn, ack) ==
  \/ IsDeleted(s.cursor, ack.entry)
  \/ ack.ack_set # None /\ MessagesOf(ack) \cap AckedMessages(s.cursor, ack.entry) # {}
  \/ OverlapsIndividual(s, ack)
  \/ OverlapsCumulative(s, txn, ack)

\* Whether a cumulative ack conflicts with the cumulative ack of another transaction or, with cross_type_conflicts, with
\* individual acks of other transactions.  A cumulative ack also conflicts with an earlier one of its own transaction,
\* unless the new one acks more messages.
CumulativeConflicts(s, txn, ack) ==
  LET other == PendingCumulativeAck(s)
      own == [txn |-> txn, ack |-> ack]
  IN \/ other # None /\ (other.txn # txn \/ ~IsAfter(ack, other.ack))
     \/ /\ cross_type_conflicts
        /\ \E each \in PendingAcksOfAll(s) :
             each.txn # txn /\ MessagesOf(each.ack) \cap CoveredMessages(own, each.ack.entry) # {}

\* Whether the request of an ack record fails with TransactionConflictException.
Conflicts(s, r) ==
  IF r.cumulative THEN r.acks[1].entry < s.cursor.first_unacked \/ CumulativeConflicts(s, r.txn, r.acks[1])
  ELSE \E k \in DOMAIN r.acks : AckConflicts(s, r.txn, r.acks[k])

\* Whether a replayed ack conflicts with pending acks.  The cursor's acknowledged messages do not matter here.
PendingConflicts(s, r) ==
  IF r.cumulative THEN CumulativeConflicts(s, r.txn, r.acks[1])
  ELSE \E k \in DOMAIN r.acks : OverlapsIndividual(s, r.acks[k]) \/ OverlapsCumulative(s, r.txn, r.acks[k])

\* Whether the future of an ack never completes as shipped: a batch-index ack of an entry that is pending as a whole
\* throws, and so does the code that would fail the future.
NeverCompletes(s, r) ==
  LET whole == {p.entry : p \in {p \in UNION {t.acks : t \in Members(s.individual_acks)} : p.ack_set = None}}
  IN \E k \in DOMAIN r.acks : r.acks[k].ack_set # None /\ r.acks[k].entry \in whole

-----------------------------------------------------------------------------
(* The log index. *)

NoIndex == [current_lag |-> 0, max_ack |-> -1, keys |-> <<>>]

\* LogIndexLagBackoff: the number of records after which the next key is added, if the index has `keys` keys.
NextLag(keys) ==
  LET records == min_lag * keys^lag_exponent
  IN IF keys = 0 THEN min_lag ELSE IF max_lag # None /\ max_lag < records THEN max_lag ELSE records

\* The index with one more log entry.  ack_position is the last entry of the topic that the log entry acks.  It is -1 if
\* the log entry has only commits and aborts; then no key is added.  A new key replaces one with the same ack_position.
WithEntry(index, records, ack_position, log_position) ==
  LET lag == index.current_lag + records
      newest == IF ack_position > index.max_ack THEN ack_position ELSE index.max_ack
      keys == index.keys
      is_same == keys # <<>> /\ Last(keys).ack_position = newest
      kept == IF is_same THEN SubSeq(keys, 1, Len(keys) - 1) ELSE keys
      key == [ack_position |-> newest, log_position |-> log_position]
  IN IF ack_position < 0 \/ lag < NextLag(Len(keys)) THEN [current_lag |-> lag, max_ack |-> newest, keys |-> keys]
     ELSE [current_lag |-> 0, max_ack |-> newest, keys |-> Append(kept, key)]

\* The index without the keys at or before the persisted mark-delete position, and the number of log entries that can be
\* deleted.
WithoutAcked(index, first_unacked) ==
  LET keys == index.keys
      removed == Cardinality({k \in DOMAIN keys : keys[k].ack_position < first_unacked})
      count == keys[removed].log_position + 1
      Shifted(key) == [key EXCEPT !.log_position = @ - count]
      left == [k \in 1..Len(keys) - removed |-> Shifted(keys[removed + k])]
  IN IF removed = 0 THEN [index |-> index, count |-> 0] ELSE [index |-> [index EXCEPT !.keys = left], count |-> count]

EntriesOf(records) == {p.entry : p \in UNION {Members(r.acks) : r \in Members(records)}}

\* log_deletion "ended_transactions" (PIP-160's text): the log without the records of each ended transaction, up to its
\* last commit or abort.
WithoutEndedRecords(entries) ==
  LET flat == Joined(entries)
      Before(k) == Len(Joined(SubSeq(entries, 1, k - 1)))
      IsEnded(i) == \E j \in i..Len(flat) : flat[j].op # "ack" /\ flat[j].txn = flat[i].txn
      RECURSIVE Kept(_, _)
      Kept(k, i) ==
        IF i > Len(entries[k]) THEN <<>>
        ELSE (IF IsEnded(Before(k) + i) THEN <<>> ELSE <<entries[k][i]>>) \o Kept(k, i + 1)
      IsNotEmpty(entry) == entry # <<>>
  IN SelectSeq([k \in DOMAIN entries |-> Kept(k, 1)], IsNotEmpty)

WithoutEnded(s) == [s EXCEPT !.log = WithoutEndedRecords(@)]

\* number - count, but at least 0.
Reduced(number, count) == IF number > count THEN number - count ELSE 0

\* The state after the log entry at log_position was indexed, and the log trimmed.  With log_deletion
\* "ended_transactions" there is no index: a ready handle deletes the records of ended transactions.
WithIndexedEntry(s, entry, log_position) ==
  LET last == IF EntriesOf(entry) = {} THEN -1 ELSE Greatest(EntriesOf(entry))
      WithoutPrefix(found) ==
        [s EXCEPT !.log_index = found.index, !.log = SubSeq(@, found.count + 1, Len(@)),
                  !.read_position = Reduced(@, found.count), !.replayed = Reduced(@, found.count)]
  IN IF log_deletion = "ended_transactions"
     THEN IF s.status = "ready" THEN WithoutEnded(s) ELSE s
     ELSE With(WithoutAcked(WithEntry(s.log_index, Len(entry), last, log_position), s.durable_cursor.first_unacked),
               WithoutPrefix)

\* The state of a handle that is not open, without memory; the subscription's cursor is kept.
WithoutPendingState(s) ==
  [s EXCEPT !.read_position = IF replay_rewinds THEN 0 ELSE @, !.log_index = NoIndex, !.replayed = 0,
            !.failed_reads = 0, !.individual_acks = <<>>, !.cumulative_ack = None, !.low_watermark = 0]
=============================================================================
