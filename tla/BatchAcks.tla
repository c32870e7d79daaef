------------------------------- MODULE BatchAcks -------------------------------
(*****************************************************************************)
(* Acknowledgements of a cursor, for entries and for messages inside batches *)
(* (PIP-54).                                                                 *)
(*                                                                           *)
(* Twin of model/batch_acks: the same actions and settings, equal states and *)
(* steps.  Models ManagedCursorImpl.                                         *)
(*                                                                           *)
(* Step grain: one call, the start or the end of one write or read of the    *)
(* cursor, one added entry, one ledger rollover, or one crash.               *)
(*                                                                           *)
(* A state is a canonical state of the model:                                *)
(*   entries    numbered from 0 through all ledgers; so are the messages     *)
(*              (batch indexes) of an entry                                  *)
(*   masks      sets of numbers; a word of an ack set is at most 2^31 - 1,   *)
(*              because TLC's integers have 32 bits                          *)
(*   acknowledgements  [first_unacked, deleted, partial]: the first entry    *)
(*              after the mark-delete position, the individually deleted     *)
(*              entries, and a set of [entry, remaining]: the messages of an *)
(*              entry with an ack set that are not acknowledged              *)
(*   resets     [entry, remaining]: the entry to read next, and its messages *)
(*              that remain (None: all)                                      *)
(*                                                                           *)
(* Not modelled: return values, and persistable_compares_ack_sets, a rule    *)
(* about the return value of a query; the tickets that number resets in the  *)
(* model; and what the model does not model.                                 *)
(*****************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, and rules in which versions differ.  start_batch_acks is the first value of the variable batch_acks.
  \* Config in model/batch_acks/state.py explains them.
  batch_sizes, entries, start_batch_acks, max_ranges, max_ack_sets, max_ranges_in_metadata, cumulative_sets,
  cumulative_ack_is_validated_first, lists_are_atomic, zero_words_mean_whole, partial_acks_are_dirty,
  batch_sizes_are_known, reset_record_has_new_acks, queue_applies, range_cap_is_exact, metadata_ack_sets_are_recovered,
  \* The values of the actions' arguments.
  acks, position, ack_set, reset_ack_set, stored_in_metadata, write_survives, reopen_batch_acks

VARIABLES
  ledgers,        \* the number of entries of each ledger; ledger ids start at 1
  memory,         \* the acknowledgements in memory
  read_position,  \* the next read begins at this entry, and skips deleted entries
  durable,        \* the record (acknowledgements) that a recovery finds
  dirty,          \* whether memory must be written (ManagedCursorImpl.isDirty)
  writing,        \* the write in flight, or None: [record, resets, applies].  resets: the resets whose callbacks
                  \* complete with the write; applies: whether the last reset changes memory if the write succeeds
  queued,         \* queued operations (pendingMarkDeleteOps): resets, and None for a write of memory
  reading,        \* whether a read is in flight
  batch_acks      \* whether batch-index acks are enabled

vars == <<ledgers, memory, read_position, durable, dirty, writing, queued, reading, batch_acks>>

\* All variables, as one record.
Contents == [ledgers |-> ledgers, memory |-> memory, read_position |-> read_position, durable |-> durable,
             dirty |-> dirty, writing |-> writing, queued |-> queued, reading |-> reading, batch_acks |-> batch_acks]

\* Of(value), with only one evaluation of the value.  TLC evaluates an argument or a LET definition of an action again
\* at each use.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

-----------------------------------------------------------------------------
(* Entries. *)

\* `ls` is the variable ledgers.  SumTo: the number of entries in the first k ledgers.
RECURSIVE SumTo(_, _)
SumTo(ls, k) == IF k = 0 THEN 0 ELSE ls[k] + SumTo(ls, k - 1)
Total(ls) == SumTo(ls, Len(ls))

IsEntry(ls, p) == p[1] \in 1..Len(ls) /\ 0 <= p[2] /\ p[2] < ls[p[1]]
NumberOf(ls, p) == IF IsEntry(ls, p) THEN SumTo(ls, p[1] - 1) + p[2] ELSE None

\* The number that a position after the last entry, in the last ledger, will have; None for any other position.
FutureNumberOf(ls, p) ==
  IF p[1] = Len(ls) /\ p[2] >= ls[Len(ls)] THEN SumTo(ls, Len(ls) - 1) + p[2] ELSE None

\* LedgerOf: the ledger of entry n.  PositionOf: the position of entry n.  If n is the number after the last entry,
\* PositionOf is the next position of the last ledger.
LedgerOf(ls, n) ==
  LET ends_after == {k \in 1..Len(ls) - 1 : n < SumTo(ls, k)}
  IN IF ends_after = {} THEN Len(ls) ELSE CHOOSE k \in ends_after : \A j \in ends_after : k <= j
PositionOf(ls, n) == <<LedgerOf(ls, n), n - SumTo(ls, LedgerOf(ls, n) - 1)>>

IsAfter(p, q) == p[1] > q[1] \/ (p[1] = q[1] /\ p[2] > q[2])
IsAfterLastEntry(ls, p) == IsAfter(p, IF Total(ls) = 0 THEN <<1, -1>> ELSE PositionOf(ls, Total(ls) - 1))

SizeOf(n) == batch_sizes[(n % Len(batch_sizes)) + 1]
AllOf(n) == 0..SizeOf(n) - 1

\* The bits of an ack set, which is a sequence of words.  A set bit leaves its message unacknowledged.
BitsOf(word) == {i \in 0..30 : (word \div 2^i) % 2 = 1}
MaskOf(words) == UNION {{64 * (k - 1) + i : i \in BitsOf(words[k])} : k \in DOMAIN words}
\* Whether a request has an ack set.  An empty sequence counts as none.
IsGiven(words) == words # None /\ words # <<>>

-----------------------------------------------------------------------------
(* Acknowledged messages. *)

NoAcks == [first_unacked |-> 0, deleted |-> {}, partial |-> {}]
Acks(first_unacked, deleted, partial) == [first_unacked |-> first_unacked, deleted |-> deleted, partial |-> partial]

IsDeleted(a, n) == n < a.first_unacked \/ n \in a.deleted
AckSetOf(a, n) == {p \in a.partial : p.entry = n}
\* The messages that the ack set of entry n leaves unacknowledged; None if the entry has no ack set.
RemainingOf(a, n) == IF AckSetOf(a, n) = {} THEN None ELSE (CHOOSE p \in AckSetOf(a, n) : TRUE).remaining
\* The messages of an entry that are not acknowledged, with or without an ack set.
RemainingIn(a, n) ==
  IF IsDeleted(a, n) THEN {} ELSE IF RemainingOf(a, n) = None THEN AllOf(n) ELSE RemainingOf(a, n) \cap AllOf(n)

Without(partial, n) == {p \in partial : p.entry # n}
WithRemaining(partial, n, remaining) == Without(partial, n) \cup {[entry |-> n, remaining |-> remaining]}

\* The acknowledgements after entry n was deleted.  Its ack set is dropped.
WithEntryDeleted(a, n) == Acks(a.first_unacked, a.deleted \cup {n}, Without(a.partial, n))

\* The first number from n on that is not in a set.
RECURSIVE FirstNotIn(_, _)
FirstNotIn(deleted, n) == IF n \in deleted THEN FirstNotIn(deleted, n + 1) ELSE n

\* setAcknowledgedPosition: deletes every entry before n; the mark-delete position then advances over deleted entries.
MarkDeletedBefore(a, n) ==
  LET first_unacked == FirstNotIn(a.deleted, n)
  IN Acks(first_unacked, {k \in a.deleted : k >= first_unacked}, {p \in a.partial : p.entry >= first_unacked})

\* The mark-delete position advances over deleted entries.  The ack sets of these entries are dropped.
WithMarkDeleteAdvanced(a) == IF a.first_unacked \in a.deleted THEN MarkDeletedBefore(a, a.first_unacked) ELSE a

\* The messages that an ack leaves unacknowledged: {} if the ack is for the whole entry, None if the ack set has no
\* effect.
RequestedMask(batch_index_acks, words) ==
  IF ~IsGiven(words) THEN {}
  ELSE IF batch_index_acks \/ (MaskOf(words) = {} /\ zero_words_mean_whole) THEN MaskOf(words) ELSE None

\* Intersects an ack set with the stored one of its entry, if any.  An entry without remaining messages is deleted; an
\* ack set that acknowledges nothing is not stored.
WithAckSet(a, n, given) ==
  LET old == RemainingOf(a, n)
      remaining == IF old # None THEN given \cap old ELSE IF batch_sizes_are_known THEN given \cap AllOf(n) ELSE given
  IN CASE remaining = {} -> WithEntryDeleted(a, n)
       [] remaining = AllOf(n) -> Acks(a.first_unacked, a.deleted, Without(a.partial, n))
       [] OTHER -> Acks(a.first_unacked, a.deleted, WithRemaining(a.partial, n, remaining))

-----------------------------------------------------------------------------
(* Records. *)

\* The first entries of the ranges of deleted entries; a range ends with its ledger.
RangeStarts(ls, deleted) ==
  {n \in deleted : n - 1 \notin deleted \/ \E k \in 1..Len(ls) : ls[k] > 0 /\ n = SumTo(ls, k - 1)}

\* The deleted entries of the lowest ranges, up to a number of ranges.
LowestRanges(ls, deleted, most) ==
  {n \in deleted : Cardinality({first \in RangeStarts(ls, deleted) : first <= n}) <= most}

\* The acknowledgements that a record holds: the lowest ranges and the lowest ack sets, each up to its limit.
\* Without range_cap_is_exact, the record holds up to one range more.
Capped(ls, a) ==
  Acks(a.first_unacked, LowestRanges(ls, a.deleted, IF range_cap_is_exact THEN max_ranges ELSE max_ranges + 1),
       {p \in a.partial : Cardinality({q \in a.partial : q.entry < p.entry}) < max_ack_sets})

\* What a recovery reads of a record in the metadata store.
InMetadata(a) == IF metadata_ack_sets_are_recovered THEN a ELSE [a EXCEPT !.partial = {}]

\* The acknowledgements after a reset.
AfterReset(r) ==
  Acks(r.entry, {}, IF r.remaining = None THEN {} ELSE {[entry |-> r.entry, remaining |-> r.remaining]})

\* The record that is written for a reset, or for memory if `applied` is None.
RecordOf(s, applied) ==
  Capped(s.ledgers, IF applied = None THEN s.memory
                    ELSE IF reset_record_has_new_acks THEN AfterReset(applied)
                    ELSE MarkDeletedBefore(s.memory, applied.entry))

-----------------------------------------------------------------------------
(* Acknowledgements. *)

HasBitBeyondBatch(n, words) == batch_sizes_are_known /\ ~(MaskOf(words) \subseteq AllOf(n))

\* Whether an ack is invalid: its ack set has a bit beyond the batch, or its position has no entry and is not after the
\* last entry.  AfterIndividual and AfterCumulative handle positions after the last entry.
IsInvalid(s, p, words) ==
  IF ~IsEntry(s.ledgers, p) THEN ~IsAfterLastEntry(s.ledgers, p)
  ELSE IsGiven(words) /\ HasBitBeyondBatch(NumberOf(s.ledgers, p), words)

\* The acknowledgements after an individual ack of entry n.
Acked(batch_index_acks, a, n, words) ==
  LET requested == RequestedMask(batch_index_acks, words)
  IN IF requested = None \/ IsDeleted(a, n) THEN a
     ELSE IF requested = {} THEN WithEntryDeleted(a, n) ELSE WithAckSet(a, n, requested)

\* Stores acknowledgements in memory: mark-delete and read position advance.  The cursor becomes dirty if `is_changed`.
WithAcks(s, a, is_changed) ==
  LET WithMemory(after) ==
        [s EXCEPT !.memory = after, !.dirty = @ \/ is_changed,
                  !.read_position = IF after.first_unacked > @ THEN after.first_unacked ELSE @]
  IN With(WithMarkDeleteAdvanced(a), WithMemory)

\* The acknowledgements after a list, up to its first position without entry.
RECURSIVE AckedList(_, _, _)
AckedList(s, a, list) ==
  IF list = <<>> THEN a
  ELSE IF ~IsEntry(s.ledgers, list[1].position) THEN a
  ELSE LET Rest(after) == AckedList(s, after, Tail(list))
       IN With(Acked(s.batch_acks, a, NumberOf(s.ledgers, list[1].position), list[1].ack_set), Rest)

\* asyncDelete.  A list with an invalid ack, or with a position after the last entry, has no effect.  Without
\* lists_are_atomic, the acks before the first position after the last entry stay in memory, if no ack is invalid.
\* Without partial_acks_are_dirty, a list makes the cursor dirty if and only if some entry is individually deleted
\* before the mark-delete position advances.
AfterIndividual(s, list) ==
  LET is_invalid == \E k \in DOMAIN list : IsInvalid(s, list[k].position, list[k].ack_set)
      is_beyond == \E k \in DOMAIN list : ~IsEntry(s.ledgers, list[k].position)
      IsChanged(a) == IF partial_acks_are_dirty THEN a # s.memory ELSE a.deleted # {}
      Done(a) == IF ~is_beyond THEN WithAcks(s, a, IsChanged(a))
                 ELSE IF lists_are_atomic THEN s ELSE [s EXCEPT !.memory = a]
  IN IF is_invalid THEN s ELSE With(AckedList(s, s.memory, list), Done)

\* cumulative_sets "replace_if_further": the given ack set becomes that of entry n if the entry has none, or if the
\* first bit of the given one is later.  Ack sets of entries before n - 1 are dropped in either case.
FirstIn(mask) == IF mask = {} THEN -1 ELSE CHOOSE i \in mask : \A j \in mask : i <= j
ReplacedIfFurther(s, n, given) ==
  IF n = None \/ given = None THEN s.memory
  ELSE LET old == RemainingOf(s.memory, n)
           rest == {p \in s.memory.partial : p.entry >= n - 1}
           is_further == old = None \/ (old # None /\ FirstIn(given) > FirstIn(old))
       IN [s.memory EXCEPT !.partial = IF ~is_further THEN rest
                                      ELSE IF given = AllOf(n) THEN Without(rest, n) ELSE WithRemaining(rest, n, given)]

\* asyncMarkDelete: deletes all entries before `end`, and stores the ack set, if any, of entry n.  Validation fails if
\* the position is after the last entry, or if the mark-delete position would move back.  As shipped (replace_if_further
\* and ~cumulative_ack_is_validated_first), asyncMarkDelete stores the ack set first.  If validation fails, the ack set
\* stays.
AfterCumulative(s, p, words) ==
  LET n == NumberOf(s.ledgers, p)
      replaces == s.batch_acks /\ IsGiven(words) /\ cumulative_sets = "replace_if_further"
      requested_set == RequestedMask(s.batch_acks, words)
      requested == IF replaces THEN None ELSE requested_set
      at == IF n = None THEN FutureNumberOf(s.ledgers, p) ELSE n
      base == IF replaces THEN ReplacedIfFurther(s, at, requested_set) ELSE s.memory
      end == n + (IF requested = {} THEN 1 ELSE 0)
      WithSet(a) == IF requested # None /\ ~IsDeleted(a, n) THEN WithAckSet(a, n, requested) ELSE a
      Done(a) == WithAcks(s, a, a # s.memory)
  IN CASE IsInvalid(s, p, words) -> s
       [] ~IsInvalid(s, p, words) /\ (n = None \/ (n # None /\ end < s.memory.first_unacked)) ->
            IF cumulative_ack_is_validated_first THEN s ELSE [s EXCEPT !.memory = base]
       [] OTHER -> With(WithSet(MarkDeletedBefore(base, end)), Done)

-----------------------------------------------------------------------------
(* Reads and writes. *)

IsBusy(s) == s.reading \/ s.writing # None
IsReset(each) == each # None
LastReset(resets) == resets[Len(resets)]

\* Starts one write for these operations, and empties the queue.  The record of the write is that of the last reset, or
\* of memory if no operation is a reset.  With queue_applies "last", the record is that of the last operation.  A write
\* of memory makes the cursor clean when it starts; a reset, when its write succeeds.
WithWriteStarted(s, operations) ==
  LET resets == SelectSeq(operations, IsReset)
      applies == IF queue_applies = "last" THEN operations[Len(operations)] # None ELSE resets # <<>>
      record == RecordOf(s, IF applies THEN LastReset(resets) ELSE None)
  IN [s EXCEPT !.writing = [record |-> record, resets |-> resets, applies |-> applies], !.queued = <<>>,
               !.dirty = @ /\ applies]

\* When no read and no write is in flight, the queued operations start.  If the only one is a write of memory, and the
\* cursor is clean, the write is dropped.
WithQueueStarted(s) ==
  IF s.queued = <<>> \/ IsBusy(s) THEN s
  ELSE IF s.dirty \/ s.queued # <<None>> THEN WithWriteStarted(s, s.queued) ELSE [s EXCEPT !.queued = <<>>]

\* The next entry that is not deleted.
NextToRead(s) == FirstNotIn(s.memory.deleted, s.read_position)
AfterRead(s) ==
  LET n == NextToRead(s)
      Done(after) == WithQueueStarted([after EXCEPT !.reading = FALSE])
  IN CASE ~s.reading -> s
       [] s.reading /\ n >= Total(s.ledgers) -> With(s, Done)
       [] OTHER -> With([s EXCEPT !.read_position = n + 1], Done)

\* A flush of a dirty cursor writes memory.  While a read or write is in flight, the write is queued, unless the last
\* queued operation is such a write.
AfterFlush(s) ==
  CASE ~s.dirty -> s
    [] s.dirty /\ ~IsBusy(s) -> WithWriteStarted(s, <<None>>)
    [] OTHER -> IF s.queued # <<>> /\ s.queued[Len(s.queued)] = None THEN s
                ELSE [s EXCEPT !.queued = Append(@, None)]

\* The write succeeds with this record: the record is durable, and the resets of the write complete.  If the write
\* applies them, the last reset changes memory.
StoredAs(s, record) ==
  LET done == [s EXCEPT !.durable = record, !.writing = None]
      applied == LastReset(s.writing.resets)
  IN With(IF s.writing.applies
          THEN [done EXCEPT !.memory = AfterReset(applied), !.read_position = applied.entry, !.dirty = FALSE] ELSE done,
          WithQueueStarted)
AfterWritten(s) == IF s.writing = None THEN s ELSE StoredAs(s, s.writing.record)

\* The write to the cursor ledger fails.  The metadata store takes the record instead, or the write fails.  After a
\* failed write of memory, the cursor is dirty again.
AfterFailure(s, is_stored) ==
  CASE s.writing = None -> s
    [] s.writing # None /\ is_stored -> StoredAs(s, InMetadata(s.writing.record))
    [] OTHER -> With([s EXCEPT !.writing = None, !.dirty = @ \/ ~s.writing.applies], WithQueueStarted)

\* The requested reset, or None if the reset is rejected.
ResetTo(s, p, words) ==
  LET is_next == p = PositionOf(s.ledgers, Total(s.ledgers)) /\ ~IsGiven(words)
      n == IF IsEntry(s.ledgers, p) THEN NumberOf(s.ledgers, p) ELSE IF is_next THEN Total(s.ledgers) ELSE None
      remaining == IF IsGiven(words) /\ s.batch_acks THEN MaskOf(words) ELSE None
  IN CASE n = None -> None
       [] n # None /\ IsGiven(words) /\ (HasBitBeyondBatch(n, words) \/ MaskOf(words) = {}) -> None
       [] OTHER -> [entry |-> n, remaining |-> IF remaining = AllOf(n) THEN None ELSE remaining]

\* asyncResetCursor: starts a write, or is queued.
WithReset(s, r) ==
  IF r = None THEN s ELSE IF IsBusy(s) THEN [s EXCEPT !.queued = Append(@, r)] ELSE WithWriteStarted(s, <<r>>)

-----------------------------------------------------------------------------
(* Crash, close and reopen. *)

\* A cursor recovered from a record.  Its read position is directly after the mark-delete position.
Recovered(s, record, batch_index_acks) ==
  LET Read(a) == [s EXCEPT !.memory = a, !.read_position = a.first_unacked, !.durable = record, !.dirty = FALSE,
                           !.writing = None, !.queued = <<>>, !.reading = FALSE, !.batch_acks = batch_index_acks]
  IN With(WithMarkDeleteAdvanced(IF batch_index_acks THEN record ELSE [record EXCEPT !.partial = {}]), Read)

\* A crash.  If `survives`, the recovery finds the record of the write in flight, else the durable record.
AfterCrash(s, survives) ==
  IF survives /\ s.writing = None THEN s
  ELSE Recovered(s, IF survives THEN s.writing.record ELSE s.durable, s.batch_acks)

\* A clean close writes a record of memory.  If memory has few ranges, or max_ranges is 0, the record goes to the
\* metadata store.  Then the cursor is opened.
AfterReopening(s, batch_index_acks) ==
  LET record == Capped(s.ledgers, s.memory)
      is_small == max_ranges = 0 \/ Cardinality(RangeStarts(s.ledgers, s.memory.deleted)) <= max_ranges_in_metadata
  IN IF IsBusy(s) THEN s ELSE Recovered(s, IF is_small THEN InMetadata(record) ELSE record, batch_index_acks)

AfterEntry(s) == [s EXCEPT !.ledgers = [s.ledgers EXCEPT ![Len(s.ledgers)] = @ + 1]]
AfterRoll(s) == [s EXCEPT !.ledgers = Append(@, 0)]

-----------------------------------------------------------------------------
(* Steps. *)

\* Makes these contents the next state.
Become(given) ==
  \E s \in {given} :
    /\ ledgers' = s.ledgers
    /\ memory' = s.memory
    /\ read_position' = s.read_position
    /\ durable' = s.durable
    /\ dirty' = s.dirty
    /\ writing' = s.writing
    /\ queued' = s.queued
    /\ reading' = s.reading
    /\ batch_acks' = s.batch_acks

Init == /\ ledgers = <<entries>>
        /\ memory = NoAcks
        /\ read_position = 0
        /\ durable = NoAcks
        /\ dirty = FALSE
        /\ writing = None
        /\ queued = <<>>
        /\ reading = FALSE
        /\ batch_acks = start_batch_acks

AddEntry == Become(AfterEntry(Contents))
RollLedger == Become(AfterRoll(Contents))
AckIndividual == \E list \in acks : Become(AfterIndividual(Contents, list))
AckCumulative == \E p \in position, words \in ack_set : Become(AfterCumulative(Contents, p, words))
BeginRead == Become([Contents EXCEPT !.reading = TRUE])
EndRead == Become(AfterRead(Contents))
Flush == Become(AfterFlush(Contents))
Written == Become(AfterWritten(Contents))
WriteFails == \E is_stored \in stored_in_metadata : Become(AfterFailure(Contents, is_stored))
\* isCursorDataFullyPersistable is a query.
IsFullyPersistable == UNCHANGED vars
Reset == \E p \in position, words \in reset_ack_set : Become(WithReset(Contents, ResetTo(Contents, p, words)))
Crash == \E survives \in write_survives : Become(AfterCrash(Contents, survives))
Reopen == \E batch_index_acks \in reopen_batch_acks : Become(AfterReopening(Contents, batch_index_acks))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

EntriesAtMost(n) == Total(ledgers) <= n
LedgersAtMost(n) == Len(ledgers) <= n
QueuedAtMost(n) == Len(queued) <= n
=============================================================================
