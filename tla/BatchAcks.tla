------------------------------- MODULE BatchAcks -------------------------------
(***************************************************************************)
(* Batch acknowledgements: what a cursor deletes, remembers and finds      *)
(* again when messages come in batches.                                    *)
(*                                                                         *)
(* Source: PIP-54.  This is the twin of model/batch_acks/machine.py: the same      *)
(* actions under the same names, the same settings, and as many states.    *)
(* Grain: one call of a consumer, the begin or the end of one write or     *)
(* read of the cursor.                                                     *)
(*                                                                         *)
(* Entries are numbered from 0, messages of an entry likewise; masks are   *)
(* sets of numbers.  What is acknowledged is [first_unacked, deleted, partial], *)
(* partial a set of [entry, remaining].  Words of ack sets are below 2^31  *)
(* and not negative.                                                       *)
(*                                                                         *)
(* Tickets of resets are not numbered here: those that wait stand in the   *)
(* order of asking.  The effect that a write has is that of the last       *)
(* reset that waits for it, or none.                                       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, and rules on which versions differ.
  batch_sizes, entries, start_batch_acks, max_ranges, max_batch_records, max_ranges_in_metadata, cumulative_sets,
  cumulative_checks_first, lists_are_atomic, zero_words_mean_whole, partial_acks_are_dirty, batch_sizes_are_known,
  resets_write_the_state_after, queue_applies, range_cap_is_exact, persistable_counts_sets, metadata_keeps_sets,
  \* The values of the actions' arguments.
  acks, position, ack_set, reset_ack_set, rescued, write_survives, reopen_batch_acks

VARIABLES
  ledgers,     \* how many entries each has
  known,       \* what is acknowledged, in memory
  read_next,   \* the entry that is read next
  durable,     \* what a recovery finds
  dirty,       \* memory has acknowledgements that no write has begun with
  writing,     \* [record, resets, applies], or None
  waiting,     \* resets, and None for a write of memory
  reading,
  batch_acks   \* acknowledgements of parts of entries count

vars == <<ledgers, known, read_next, durable, dirty, writing, waiting, reading, batch_acks>>

Contents == [ledgers |-> ledgers, known |-> known, read_next |-> read_next, durable |-> durable, dirty |-> dirty,
             writing |-> writing, waiting |-> waiting, reading |-> reading, batch_acks |-> batch_acks]

\* Of(value), where the value is worked out once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

-----------------------------------------------------------------------------
(* Entries. *)

RECURSIVE SumTo(_, _)
SumTo(ls, k) == IF k = 0 THEN 0 ELSE ls[k] + SumTo(ls, k - 1)
Total(ls) == SumTo(ls, Len(ls))

IsEntry(ls, p) == p[1] \in 1..Len(ls) /\ 0 <= p[2] /\ p[2] < ls[p[1]]
NumberOf(ls, p) == IF IsEntry(ls, p) THEN SumTo(ls, p[1] - 1) + p[2] ELSE None

\* The number that a position behind the last entry of the last ledger will have.
NumberToCome(ls, p) ==
  IF p[1] = Len(ls) /\ p[2] >= ls[Len(ls)] THEN SumTo(ls, Len(ls) - 1) + p[2] ELSE None

\* Where an entry stands; the number after the last one is the next position of the last ledger.
LedgerOf(ls, n) ==
  LET there == {k \in 1..Len(ls) - 1 : n < SumTo(ls, k)}
  IN IF there = {} THEN Len(ls) ELSE CHOOSE k \in there : \A j \in there : k <= j
PositionOf(ls, n) == <<LedgerOf(ls, n), n - SumTo(ls, LedgerOf(ls, n) - 1)>>

IsAfter(p, q) == p[1] > q[1] \/ (p[1] = q[1] /\ p[2] > q[2])
IsToCome(ls, p) == IsAfter(p, IF Total(ls) = 0 THEN <<1, -1>> ELSE PositionOf(ls, Total(ls) - 1))

SizeOf(n) == batch_sizes[(n % Len(batch_sizes)) + 1]
AllOf(n) == 0..SizeOf(n) - 1

\* The bits of an ack set.
BitsOf(word) == {i \in 0..30 : (word \div 2^i) % 2 = 1}
MaskOf(words) == UNION {{64 * (k - 1) + i : i \in BitsOf(words[k])} : k \in DOMAIN words}
IsGiven(words) == words # None /\ words # <<>>

-----------------------------------------------------------------------------
(* What is acknowledged. *)

Nothing == [first_unacked |-> 0, deleted |-> {}, partial |-> {}]
Acks(first_unacked, deleted, partial) == [first_unacked |-> first_unacked, deleted |-> deleted, partial |-> partial]

IsDeleted(a, n) == n < a.first_unacked \/ n \in a.deleted
PartOf(a, n) == {p \in a.partial : p.entry = n}
RemainingOf(a, n) == IF PartOf(a, n) = {} THEN None ELSE (CHOOSE p \in PartOf(a, n) : TRUE).remaining
LeftIn(a, n) ==
  IF IsDeleted(a, n) THEN {} ELSE IF RemainingOf(a, n) = None THEN AllOf(n) ELSE RemainingOf(a, n) \cap AllOf(n)
LeftOf(a, n) == Cardinality(LeftIn(a, n))

WithoutPart(partial, n) == {p \in partial : p.entry # n}
WithPart(partial, n, remaining) == WithoutPart(partial, n) \cup {[entry |-> n, remaining |-> remaining]}

\* An entry is deleted; what was known of its parts is not needed any more.
Whole(a, n) == Acks(a.first_unacked, a.deleted \cup {n}, WithoutPart(a.partial, n))

\* The first number from this one on that is not among the deleted.
RECURSIVE NotIn(_, _)
NotIn(deleted, n) == IF n \in deleted THEN NotIn(deleted, n + 1) ELSE n

\* Everything before a number is deleted; the mark moves over what follows.
UpTo(a, n) ==
  LET first_unacked == NotIn(a.deleted, n)
  IN Acks(first_unacked, {k \in a.deleted : k >= first_unacked}, {p \in a.partial : p.entry >= first_unacked})

Settled(a) == IF a.first_unacked \in a.deleted \/ \E p \in a.partial : p.entry < a.first_unacked THEN UpTo(a, a.first_unacked) ELSE a

\* What an acknowledgement leaves of an entry: {} for the whole entry; None if it does not count.
WhatItLeaves(counts, words) ==
  IF ~IsGiven(words) THEN {}
  ELSE IF counts \/ (MaskOf(words) = {} /\ zero_words_mean_whole) THEN MaskOf(words) ELSE None

\* An entry is left with what is left in both; with nothing, it is deleted.  A set of all its messages is no news.
Narrowed(a, n, given) ==
  LET old == RemainingOf(a, n)
      remaining == IF old # None THEN given \cap old ELSE IF batch_sizes_are_known THEN given \cap AllOf(n) ELSE given
  IN CASE remaining = {} -> Whole(a, n)
       [] remaining = AllOf(n) -> Acks(a.first_unacked, a.deleted, WithoutPart(a.partial, n))
       [] OTHER -> Acks(a.first_unacked, a.deleted, WithPart(a.partial, n, remaining))

-----------------------------------------------------------------------------
(* Records. *)

\* The first entries of the ranges of deleted entries; a range ends with its ledger.
RangeStarts(ls, deleted) ==
  {n \in deleted : n - 1 \notin deleted \/ \E k \in 1..Len(ls) : ls[k] > 0 /\ n = SumTo(ls, k - 1)}

\* The deleted entries of so many ranges, the lowest.
LowestRanges(ls, deleted, most) ==
  {n \in deleted : Cardinality({first \in RangeStarts(ls, deleted) : first <= n}) <= most}

Capped(ls, a) ==
  Acks(a.first_unacked, LowestRanges(ls, a.deleted, IF range_cap_is_exact THEN max_ranges ELSE max_ranges + 1),
       {p \in a.partial : Cardinality({q \in a.partial : q.entry < p.entry}) < max_batch_records})

InMetadata(a) == IF metadata_keeps_sets THEN a ELSE [a EXCEPT !.partial = {}]

\* What is acknowledged after a reset, [to, remaining]: what comes before its entry, and what its set leaves out.
AfterReset(r) ==
  Acks(r.to, {}, IF r.remaining = {} THEN {} ELSE {[entry |-> r.to, remaining |-> r.remaining]})

\* The record that is written now, of memory or of a reset.
RecordOf(s, applied) ==
  Capped(s.ledgers, IF applied = None THEN s.known
                    ELSE IF resets_write_the_state_after THEN AfterReset(applied) ELSE UpTo(s.known, applied.to))

-----------------------------------------------------------------------------
(* Acknowledgements. *)

IsWrongSet(n, words) == batch_sizes_are_known /\ ~(MaskOf(words) \subseteq AllOf(n))
IsWrong(s, p, words) ==
  IF ~IsEntry(s.ledgers, p) THEN ~IsToCome(s.ledgers, p)
  ELSE IsGiven(words) /\ IsWrongSet(NumberOf(s.ledgers, p), words)

AckedIn(counts, a, n, words) ==
  LET leaves == WhatItLeaves(counts, words)
  IN IF leaves = None \/ IsDeleted(a, n) THEN a ELSE IF leaves = {} THEN Whole(a, n) ELSE Narrowed(a, n, leaves)

\* The mark moves, reading goes on behind it, and what is news is to be written.
WithAcks(s, a, is_news) ==
  LET Settle(after) ==
        [s EXCEPT !.known = after, !.read_next = IF after.first_unacked > @ THEN after.first_unacked ELSE @, !.dirty = @ \/ is_news]
  IN With(Settled(a), Settle)

\* What a list acknowledges, up to the first entry that is to come, and how many messages that are news.
RECURSIVE AckedList(_, _, _, _)
AckedList(s, a, list, news) ==
  IF list = <<>> THEN [known |-> a, news |-> news]
  ELSE IF ~IsEntry(s.ledgers, list[1].position) THEN [known |-> a, news |-> news]
  ELSE LET n == NumberOf(s.ledgers, list[1].position)
           Rest(after) == AckedList(s, after, Tail(list), news + LeftOf(a, n) - LeftOf(after, n))
       IN With(AckedIn(s.batch_acks, a, n, list[1].ack_set), Rest)

Refusal(s) == [s |-> s, is_taken |-> FALSE, news |-> 0]

AfterIndividual(s, list) ==
  LET is_wrong == \E k \in DOMAIN list : IsWrong(s, list[k].position, list[k].ack_set)
      is_beyond == \E k \in DOMAIN list : ~IsEntry(s.ledgers, list[k].position)
      IsNews(a) == IF partial_acks_are_dirty THEN a # s.known ELSE a.deleted # {}
      Ended(found) ==
        IF ~is_beyond
        THEN [s |-> WithAcks(s, found.known, IsNews(found.known)), is_taken |-> TRUE, news |-> found.news]
        ELSE IF lists_are_atomic THEN Refusal(s) ELSE Refusal([s EXCEPT !.known = found.known])
  IN IF is_wrong THEN Refusal(s) ELSE With(AckedList(s, s.known, list, 0), Ended)

\* As shipped: the set takes the place of an entry's own if it begins later; parts before the entry are dropped.
Begins(mask) == IF mask = {} THEN -1 ELSE CHOOSE i \in mask : \A j \in mask : i <= j
Replaced(s, n, given) ==
  IF n = None \/ given = None THEN s.known
  ELSE LET old == RemainingOf(s.known, n)
           rest == {p \in s.known.partial : p.entry >= n}
           is_further == old = None \/ (old # None /\ Begins(given) > Begins(old))
       IN [s.known EXCEPT !.partial = IF ~is_further THEN rest
                                      ELSE IF given = AllOf(n) THEN WithoutPart(rest, n) ELSE WithPart(rest, n, given)]

RECURSIVE NewsUpTo(_, _, _, _)
NewsUpTo(before, after, n, last) ==
  IF n > last THEN 0 ELSE LeftOf(before, n) - LeftOf(after, n) + NewsUpTo(before, after, n + 1, last)

AfterCumulative(s, p, words) ==
  LET n == NumberOf(s.ledgers, p)
      replaces == s.batch_acks /\ IsGiven(words) /\ cumulative_sets = "replace_if_further"
      asked == WhatItLeaves(s.batch_acks, words)
      leaves == IF replaces THEN None ELSE asked
      base == IF replaces THEN Replaced(s, IF n = None THEN NumberToCome(s.ledgers, p) ELSE n, asked) ELSE s.known
      end == n + (IF leaves = {} THEN 1 ELSE 0)
      Parted(a) == IF leaves # None /\ ~IsDeleted(a, n) THEN Narrowed(a, n, leaves) ELSE a
      Ended(a) == [s |-> WithAcks(s, a, a # s.known), is_taken |-> TRUE, news |-> NewsUpTo(s.known, a, s.known.first_unacked, n)]
  IN CASE IsWrong(s, p, words) -> Refusal(s)
       [] ~IsWrong(s, p, words) /\ (n = None \/ (n # None /\ end < s.known.first_unacked)) ->
            IF cumulative_checks_first THEN Refusal(s) ELSE Refusal([s EXCEPT !.known = base])
       [] OTHER -> With(Parted(UpTo(base, end)), Ended)

-----------------------------------------------------------------------------
(* Reads and writes. *)

IsBusy(s) == s.reading \/ s.writing # None
IsReset(each) == each # None
LastReset(resets) == resets[Len(resets)]

\* A write begins that has the effect of these operations, in order.
Begun(s, operations) ==
  LET resets == SelectSeq(operations, IsReset)
      applies == IF queue_applies = "last" THEN operations[Len(operations)] # None ELSE resets # <<>>
      record == RecordOf(s, IF applies THEN LastReset(resets) ELSE None)
  IN [s EXCEPT !.writing = [record |-> record, resets |-> resets, applies |-> applies], !.waiting = <<>>,
               !.dirty = @ /\ applies]

WithWaitingBegun(s) ==
  IF s.waiting = <<>> \/ IsBusy(s) THEN s
  ELSE IF s.dirty \/ s.waiting # <<None>> THEN Begun(s, s.waiting) ELSE [s EXCEPT !.waiting = <<>>]

\* The next entry that is not deleted, or none.
NextToRead(s) == NotIn(s.known.deleted, s.read_next)
AfterRead(s) ==
  LET n == NextToRead(s)
      Ended(after) == WithWaitingBegun([after EXCEPT !.reading = FALSE])
  IN CASE ~s.reading -> s
       [] s.reading /\ n >= Total(s.ledgers) -> With(s, Ended)
       [] OTHER -> With([s EXCEPT !.read_next = n + 1], Ended)

AfterFlush(s) ==
  CASE ~s.dirty -> s
    [] s.dirty /\ ~IsBusy(s) -> Begun(s, <<None>>)
    [] OTHER -> IF s.waiting # <<>> /\ s.waiting[Len(s.waiting)] = None THEN s
                ELSE [s EXCEPT !.waiting = Append(@, None)]

\* A record is durable; those who wait for it are told.
StoredAs(s, record) ==
  LET done == [s EXCEPT !.durable = record, !.writing = None]
      applied == LastReset(s.writing.resets)
  IN With(IF s.writing.applies
          THEN [done EXCEPT !.known = AfterReset(applied), !.read_next = applied.to, !.dirty = FALSE] ELSE done,
          WithWaitingBegun)
AfterWritten(s) == IF s.writing = None THEN s ELSE StoredAs(s, s.writing.record)

\* The cursor's ledger does not take the record.  The metadata store does instead, or all is still to be written.
AfterFailure(s, is_rescued) ==
  CASE s.writing = None -> s
    [] s.writing # None /\ is_rescued -> StoredAs(s, InMetadata(s.writing.record))
    [] OTHER -> With([s EXCEPT !.writing = None, !.dirty = @ \/ ~s.writing.applies], WithWaitingBegun)

\* A reset that is asked for; None if it is refused.
ResetTo(s, p, words) ==
  LET is_next == p = PositionOf(s.ledgers, Total(s.ledgers)) /\ ~IsGiven(words)
      n == IF IsEntry(s.ledgers, p) THEN NumberOf(s.ledgers, p) ELSE IF is_next THEN Total(s.ledgers) ELSE None
      remaining == IF IsGiven(words) /\ s.batch_acks THEN MaskOf(words) ELSE {}
  IN CASE n = None -> None
       [] n # None /\ IsGiven(words) /\ (IsWrongSet(n, words) \/ MaskOf(words) = {}) -> None
       [] OTHER -> [to |-> n, remaining |-> IF remaining = AllOf(n) THEN {} ELSE remaining]
AfterAsked(s, r) ==
  IF r = None THEN s ELSE IF IsBusy(s) THEN [s EXCEPT !.waiting = Append(@, r)] ELSE Begun(s, <<r>>)

-----------------------------------------------------------------------------
(* The end, and the beginning. *)

\* A cursor that knows what its record says, and reads from behind the mark; nobody waits for anything.
Recovered(s, record, counts) ==
  LET Read(a) == [s EXCEPT !.known = a, !.read_next = a.first_unacked, !.durable = record, !.dirty = FALSE, !.writing = None,
                           !.waiting = <<>>, !.reading = FALSE, !.batch_acks = counts]
  IN With(Settled(IF counts THEN record ELSE [record EXCEPT !.partial = {}]), Read)

AfterCrash(s, survives) ==
  IF survives /\ s.writing = None THEN s
  ELSE Recovered(s, IF survives THEN s.writing.record ELSE s.durable, s.batch_acks)

AfterReopening(s, counts) ==
  LET record == Capped(s.ledgers, s.known)
      is_small == Cardinality(RangeStarts(s.ledgers, s.known.deleted)) <= max_ranges_in_metadata
  IN IF IsBusy(s) THEN s ELSE Recovered(s, IF is_small THEN InMetadata(record) ELSE record, counts)

FullyPersistable(s) ==
  /\ Cardinality(RangeStarts(s.ledgers, s.known.deleted)) <= max_ranges
  /\ Cardinality(s.known.partial) <= max_batch_records \/ ~persistable_counts_sets

AfterEntry(s) == [s EXCEPT !.ledgers = [s.ledgers EXCEPT ![Len(s.ledgers)] = @ + 1]]
AfterRoll(s) == [s EXCEPT !.ledgers = Append(@, 0)]

-----------------------------------------------------------------------------
(* Steps. *)

Become(given) ==
  \E s \in {given} :
    /\ ledgers' = s.ledgers
    /\ known' = s.known
    /\ read_next' = s.read_next
    /\ durable' = s.durable
    /\ dirty' = s.dirty
    /\ writing' = s.writing
    /\ waiting' = s.waiting
    /\ reading' = s.reading
    /\ batch_acks' = s.batch_acks

Init == /\ ledgers = <<entries>>
        /\ known = Nothing
        /\ read_next = 0
        /\ durable = Nothing
        /\ dirty = FALSE
        /\ writing = None
        /\ waiting = <<>>
        /\ reading = FALSE
        /\ batch_acks = start_batch_acks

AddEntry == Become(AfterEntry(Contents))
RollLedger == Become(AfterRoll(Contents))
AckIndividual == \E list \in acks : Become(AfterIndividual(Contents, list).s)
AckCumulative == \E p \in position, words \in ack_set : Become(AfterCumulative(Contents, p, words).s)
BeginRead == Become([Contents EXCEPT !.reading = TRUE])
EndRead == Become(AfterRead(Contents))
Flush == Become(AfterFlush(Contents))
Written == Become(AfterWritten(Contents))
WriteFails == \E is_rescued \in rescued : Become(AfterFailure(Contents, is_rescued))
IsFullyPersistable == UNCHANGED vars
Reset == \E p \in position, words \in reset_ack_set : Become(AfterAsked(Contents, ResetTo(Contents, p, words)))
Crash == \E survives \in write_survives : Become(AfterCrash(Contents, survives))
Reopen == \E counts \in reopen_batch_acks : Become(AfterReopening(Contents, counts))

-----------------------------------------------------------------------------
(* Bounds. *)

EntriesAtMost(n) == Total(ledgers) <= n
LedgersAtMost(n) == Len(ledgers) <= n
WaitingAtMost(n) == Len(waiting) <= n
=============================================================================
