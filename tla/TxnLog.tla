-------------------------------- MODULE TxnLog --------------------------------
(***************************************************************************)
(* The transaction log of a coordinator: what becomes of transactions over *)
(* batches, failures, crashes, and restarts.                               *)
(*                                                                         *)
(* Source: PIP-160, PIP-31, PIP-54.  This is the twin of model/txn_log/machine.py: *)
(* the same actions under the same names, the same settings, and as many   *)
(* states.  Grain: one call, the end of one write of the ledger, or one    *)
(* entry of a replay.                                                      *)
(*                                                                         *)
(* Entries are numbered from the first one that is kept; a record's place  *)
(* is <<entry, at>>, both from 0; masks are sets of numbers.  What is      *)
(* deleted is [mark, deleted, partial], partial a set of                   *)
(* [entry, remaining].  Transactions and what callers were told of them    *)
(* are sets of records with different ids.  After each step ids and time   *)
(* are counted anew, from the first that a later step may compare with.    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, and rules on which versions differ.
  start_batching, max_records, max_active, max_ranges, max_batch_records, max_ranges_in_metadata, batch_index_acks,
  parts_are_deletable, partial_deletes_are_dirty, metadata_keeps_sets, range_cap_is_exact, caps_keep,
  unknown_outcome, replay_removes_first, stopped_replay, empty_watermark,
  \* The values of the actions' arguments.
  timeout_ms, txn, op, name, to, by_ms, write_fails_durable, fence_durable, crash_durable, reopen_batching

VARIABLES
  status,          \* replaying, ready, stopped, or failed
  ledger,          \* open, write_failed, closed, or fenced
  batching,        \* as it was read when the store was opened
  cursor_works,
  buffer,          \* records that wait for their batch
  in_flight,       \* entries
  ledgers,         \* how many entries each has that is kept; the last one is written to
  log,             \* the entries that are kept
  ledger_id,       \* the last id, as the ledger's properties have it
  txns,            \* [id, status, partitions, subscriptions, deadline_ms, places]
  last_id,         \* the last id that was given
  known,           \* what is deleted, in memory
  stored,          \* what a crash leaves of it
  dirty,           \* there are deletions to be written
  read_next,       \* the entry that the replay reads next; 0 when it is over
  now_ms,
  promised,        \* what callers were told: [id, status, partitions, subscriptions]
  told_id,         \* the highest id that was told
  told_watermark   \* the highest watermark that was told

vars == <<status, ledger, batching, cursor_works, buffer, in_flight, ledgers, log, ledger_id, txns, last_id, known,
          stored, dirty, read_next, now_ms, promised, told_id, told_watermark>>

Contents ==
  [status |-> status, ledger |-> ledger, batching |-> batching, cursor_works |-> cursor_works, buffer |-> buffer,
   in_flight |-> in_flight, ledgers |-> ledgers, log |-> log, ledger_id |-> ledger_id, txns |-> txns,
   last_id |-> last_id, known |-> known, stored |-> stored, dirty |-> dirty, read_next |-> read_next,
   now_ms |-> now_ms, promised |-> promised, told_id |-> told_id, told_watermark |-> told_watermark]

\* Of(value), where the value is worked out once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

Least(numbers) == CHOOSE n \in numbers : \A m \in numbers : n <= m
Last(list) == list[Len(list)]
Members(list) == {list[k] : k \in DOMAIN list}

-----------------------------------------------------------------------------
(* Transactions and records. *)

\* From where a transaction may come to each status: this is what its record expects.
Expected == [COMMITTING |-> "OPEN", COMMITTED |-> "COMMITTING", ABORTING |-> "OPEN", ABORTED |-> "ABORTING"]
\* Whether a transaction in a status that callers know can end in this way.
MayEnd(at, end) == at \in {"OPEN", Expected[end], end}
HasEnded(each) == each \in {"COMMITTED", "ABORTED"}

\* A record; what its kind does not need has its default.  An update alone has a status to go to.
RecordOf(id, kind, last) ==
  [txn |-> id, op |-> kind, last_id |-> last, name |-> 0, to |-> None, start_ms |-> 0, timeout_ms |-> 0]

OfId(id, ts) == {t \in ts : t.id = id}
TheOne(ts) == CHOOSE t \in ts : TRUE

\* What a durable record does to the map, live and at replay alike: the map after it, the places that it deletes, and
\* whether it was in time.  A transaction that ends leaves the map, and all its records are deleted.
EffectOf(ts, r, place, deadline) ==
  LET mine == OfId(r.txn, ts)
      t == TheOne(mine)
      places == Append(t.places, place)
      late == [txns |-> ts, deleted |-> {place}, told |-> "invalid_status"]
      Done(then) == [txns |-> (ts \ mine) \cup {then}, deleted |-> {}, told |-> "done"]
      new == [id |-> r.txn, status |-> "OPEN", partitions |-> {}, subscriptions |-> {}, deadline_ms |-> deadline,
              places |-> <<place>>]
  IN IF r.op = "NEW" THEN Done(IF mine = {} THEN new ELSE [t EXCEPT !.places = places])
     ELSE IF mine = {} THEN late
     ELSE IF r.to # None THEN
       IF t.status # Expected[r.to] THEN late
       ELSE IF HasEnded(r.to) THEN [txns |-> ts \ mine, deleted |-> Members(places), told |-> "done"]
       ELSE Done([t EXCEPT !.status = r.to, !.places = places])
     ELSE IF t.status # "OPEN" THEN late
     ELSE IF r.op = "ADD_PARTITION" THEN Done([t EXCEPT !.partitions = @ \cup {r.name}, !.places = places])
     ELSE Done([t EXCEPT !.subscriptions = @ \cup {r.name}, !.places = places])

\* What callers know of a transaction.
PromiseOf(t, at) == [id |-> t.id, status |-> at, partitions |-> t.partitions, subscriptions |-> t.subscriptions]
WithPromise(ps, new) == {p \in ps : p.id # new.id} \cup {new}

-----------------------------------------------------------------------------
(* What is deleted. *)

Nothing == [mark |-> 0, deleted |-> {}, partial |-> {}]
Acks(mark, deleted, partial) == [mark |-> mark, deleted |-> deleted, partial |-> partial]

EndOf(s) == Len(s.log)
SizeOf(s, n) == Len(s.log[n + 1])
AllOf(s, n) == 0..SizeOf(s, n) - 1

IsDeleted(a, n) == n < a.mark \/ n \in a.deleted
PartOf(a, n) == {p \in a.partial : p.entry = n}
\* The records of an entry that are not deleted.
LeftIn(s, a, n) ==
  LET part == PartOf(a, n)
  IN IF IsDeleted(a, n) THEN {} ELSE IF part = {} THEN AllOf(s, n) ELSE TheOne(part).remaining

\* The first number from this one on that is not among these.
RECURSIVE NotIn(_, _)
NotIn(deleted, n) == IF n \in deleted THEN NotIn(deleted, n + 1) ELSE n

\* The mark moves over the deleted entries that follow it, and nothing is remembered of what lies before it.
Settled(a) ==
  LET mark == NotIn(a.deleted, a.mark)
  IN Acks(mark, {n \in a.deleted : n >= mark}, {p \in a.partial : p.entry >= mark})

DeletesParts(batched) == parts_are_deletable = "always" \/ batch_index_acks \/ (batched /\ max_records > 1)

\* Records are deleted, each by its index; an entry is when its last one is.  Where parts cannot be deleted, only
\* entries of one record are.
Acked(s, places) ==
  LET a == s.known
      hit == {n \in {p[1] : p \in places} : ~IsDeleted(a, n) /\ (SizeOf(s, n) = 1 \/ DeletesParts(s.batching))}
      Left(n) == {i \in LeftIn(s, a, n) : <<n, i>> \notin places}
      gone == {n \in hit : Left(n) = {}}
  IN Acks(a.mark, a.deleted \cup gone,
          {p \in a.partial : p.entry \notin hit} \cup {[entry |-> n, remaining |-> Left(n)] : n \in hit \ gone})

WithDeleted(s, places) ==
  LET Ended(a) == IF a = s.known THEN s
                  ELSE [s EXCEPT !.known = Settled(a), !.dirty = @ \/ partial_deletes_are_dirty \/ a.deleted # {}]
  IN IF places = {} \/ ~s.cursor_works THEN s ELSE With(Acked(s, places), Ended)

-----------------------------------------------------------------------------
(* What is kept of deletions. *)

RECURSIVE SumTo(_, _)
SumTo(ls, k) == IF k = 0 THEN 0 ELSE ls[k] + SumTo(ls, k - 1)

\* The first entries of the ranges of deleted entries; a range ends with its ledger.
RangeStarts(ls, deleted) ==
  {n \in deleted : n - 1 \notin deleted \/ \E k \in 1..Len(ls) : ls[k] > 0 /\ n = SumTo(ls, k - 1)}

\* The lowest ranges and the lowest parts, as many as a record of the cursor may hold; as shipped, one range more.
MostRanges == IF range_cap_is_exact THEN max_ranges ELSE max_ranges + 1
Capped(ls, a) ==
  Acks(a.mark, {n \in a.deleted : Cardinality({first \in RangeStarts(ls, a.deleted) : first <= n}) <= MostRanges},
       {p \in a.partial : Cardinality({q \in a.partial : q.entry < p.entry}) < max_batch_records})

\* What is kept, up to the first entry of which something is lost.
PrefixOf(a, kept) ==
  LET lost == (a.deleted \ kept.deleted) \cup {p.entry : p \in a.partial \ kept.partial}
      limit == Least(lost)
  IN IF lost = {} THEN kept
     ELSE Acks(kept.mark, {n \in kept.deleted : n < limit}, {p \in kept.partial : p.entry < limit})

\* What a record of the cursor holds: everything, if it can.  Else all up to some entry; as shipped the lowest of each.
Snapshot(s) ==
  LET Kept(kept) == IF caps_keep = "each_its_own" THEN kept ELSE PrefixOf(s.known, kept)
  IN With(Capped(s.ledgers, s.known), Kept)

\* What a clean close leaves: with few ranges it goes to the metadata store.
ClosedCursor(s) ==
  LET Kept(kept) ==
        IF Cardinality(RangeStarts(s.ledgers, kept.deleted)) <= max_ranges_in_metadata /\ ~metadata_keeps_sets
        THEN [kept EXCEPT !.partial = {}] ELSE kept
  IN IF s.ledger = "fenced" \/ ~s.cursor_works THEN s.stored ELSE With(Snapshot(s), Kept)

-----------------------------------------------------------------------------
(* Operations.  What comes of a step: the state, who is told what, and whether it was taken or refused. *)

Taken(s, told) == [s |-> s, told |-> told, is_taken |-> TRUE]
Refusal(s) == [s |-> s, told |-> <<>>, is_taken |-> FALSE]
AnswerTo(r, told) == [txn |-> r.txn, op |-> r.op, told |-> told]
Answers(entry, told) == [k \in DOMAIN entry |-> AnswerTo(entry[k], told)]
RECURSIVE AllAnswers(_, _)
AllAnswers(entries, told) ==
  IF entries = <<>> THEN <<>> ELSE Answers(Head(entries), told) \o AllAnswers(Tail(entries), told)

\* The log goes on in a new ledger, unless the last one is empty, and the properties have the last id.
WithNewLedger(s) ==
  [s EXCEPT !.ledger = "open", !.ledgers = IF Last(@) > 0 THEN Append(@, 0) ELSE @, !.ledger_id = s.last_id]

\* An entry goes to the ledger, a new one if need be.  Without one it fails at once, and is not in the log.
Submitted(s, entry) ==
  CASE s.ledger = "fenced" -> Taken(s, Answers(entry, "fenced"))
    [] s.ledger = "write_failed" -> Taken([s EXCEPT !.ledger = "closed"], Answers(entry, "not_written"))
    [] s.ledger = "closed" -> Taken([WithNewLedger(s) EXCEPT !.in_flight = Append(@, entry)], <<>>)
    [] OTHER -> Taken([s EXCEPT !.in_flight = Append(@, entry)], <<>>)

Flushed(s) == Submitted([s EXCEPT !.buffer = <<>>], s.buffer)

\* A record joins its batch, which is written when it is full; without batching it is an entry of its own.
Appended(s, r) ==
  LET joined == [s EXCEPT !.buffer = Append(@, r)]
  IN IF ~(s.batching /\ max_records > 1) THEN Submitted(s, <<r>>)
     ELSE IF Len(joined.buffer) >= max_records THEN Flushed(joined) ELSE Taken(joined, <<>>)

\* The next id is given.
AfterNew(s, timeout) ==
  LET id == s.last_id + 1
  IN IF s.status # "ready" \/ (max_active > 0 /\ Cardinality(s.txns) >= max_active) THEN Refusal(s)
     ELSE Appended([s EXCEPT !.last_id = id],
                   [RecordOf(id, "NEW", id) EXCEPT !.start_ms = s.now_ms, !.timeout_ms = timeout])

\* A partition or a subscription is to take part.
AfterParticipant(s, id, kind, n) ==
  IF s.status # "ready" \/ OfId(id, s.txns) = {} THEN Refusal(s)
  ELSE Appended(s, [RecordOf(id, kind, s.last_id) EXCEPT !.name = n])

\* A transaction is to go one step further.  Where it has it already, nothing is written.
AfterUpdate(s, id, into) ==
  LET r == [RecordOf(id, "UPDATE", s.last_id) EXCEPT !.to = into]
  IN IF s.status # "ready" \/ OfId(id, s.txns) = {} THEN Refusal(s)
     ELSE IF TheOne(OfId(id, s.txns)).status = into THEN Taken(s, <<AnswerTo(r, "done")>>) ELSE Appended(s, r)

\* The last id that is in the log: of the last ledger's last record, or of its properties if it has none.
RecoveredId(s) == IF Last(s.ledgers) > 0 THEN Last(Last(s.log)).last_id ELSE s.ledger_id

RecordsOf(entries) == UNION {Members(entries[k]) : k \in DOMAIN entries}
Coming(s) == RecordsOf(s.in_flight) \cup Members(s.buffer)
Beginnings(records) == {r \in records : r.op = "NEW"}

\* The id up to which every transaction has ended.  As shipped it is 0 when nothing lives.
Watermark(s) ==
  IF s.txns # {} THEN Least({t.id : t \in s.txns}) - 1
  ELSE IF empty_watermark = "zero" THEN 0
  ELSE Least({RecoveredId(s)} \cup {r.txn - 1 : r \in Beginnings(Coming(s))})
AfterWatermark(s) ==
  LET Told(w) == Taken(IF w <= s.told_watermark THEN s ELSE [s EXCEPT !.told_watermark = w], <<>>)
  IN IF s.status # "ready" THEN Refusal(s) ELSE With(Watermark(s), Told)

\* The transactions that are open and late, the earliest deadline first.
IsLate(s, t) == t.status = "OPEN" /\ t.deadline_ms < s.now_ms
IsBefore(t, u) == t.deadline_ms < u.deadline_ms \/ (t.deadline_ms = u.deadline_ms /\ t.id <= u.id)
RECURSIVE InOrder(_)
InOrder(ts) ==
  LET next == CHOOSE t \in ts : \A u \in ts : IsBefore(t, u)
  IN IF ts = {} THEN <<>> ELSE <<next.id>> \o InOrder(ts \ {next})
Late(s) == InOrder({t \in s.txns : IsLate(s, t)})

AfterFlush(s) == IF s.buffer = <<>> THEN Taken(s, <<>>) ELSE Flushed(s)

-----------------------------------------------------------------------------
(* The ends of writes. *)

\* An entry is in the last ledger.
InLog(s, entry) == [s EXCEPT !.log = Append(@, entry), !.ledgers = [@ EXCEPT ![Len(@)] = @ + 1]]

\* A record that has just become durable has its effect; its deadline counts from now.
WithEffect(s, r, place) ==
  LET Told(effect) ==
        LET after == OfId(r.txn, effect.txns)
            promise == IF after # {} THEN PromiseOf(TheOne(after), TheOne(after).status)
                       ELSE PromiseOf(TheOne(OfId(r.txn, s.txns)), r.to)
            done == [s EXCEPT !.txns = effect.txns, !.promised = WithPromise(@, promise),
                              !.told_id = IF r.txn > @ THEN r.txn ELSE @]
        IN Taken(WithDeleted(IF effect.told = "done" THEN done ELSE s, effect.deleted), <<AnswerTo(r, effect.told)>>)
  IN With(EffectOf(s.txns, r, place, s.now_ms + r.timeout_ms), Told)

\* From this record of an entry on.
RECURSIVE WithEffects(_, _, _, _)
WithEffects(done, entry, n, at) ==
  LET Next(then) == WithEffects([then EXCEPT !.told = done.told \o @], entry, n, at + 1)
  IN IF at = Len(entry) THEN done ELSE With(WithEffect(done.s, entry[at + 1], <<n, at>>), Next)

\* The first entry in flight is durable: each of its records has its effect, in order, and its caller is told.
AfterWritten(s) ==
  IF s.in_flight = <<>> THEN Refusal(s)
  ELSE WithEffects(Taken(InLog([s EXCEPT !.in_flight = Tail(@)], Head(s.in_flight)), <<>>), Head(s.in_flight),
                   EndOf(s), 0)

\* Nothing is in flight any more; the first so many entries of it are in the log.
RECURSIVE WithDurable(_, _)
WithDurable(s, n) ==
  LET Next(then) == WithDurable(then, n - 1)
  IN IF n = 0 \/ s.in_flight = <<>> THEN [s EXCEPT !.in_flight = <<>>]
     ELSE With(InLog([s EXCEPT !.in_flight = Tail(@)], Head(s.in_flight)), Next)

\* What is in flight comes to an end that nobody knows, and the store stops.  As shipped, it goes on all the same.
WithUnknown(s, n) ==
  LET stops == unknown_outcome = "reopens" /\ s.in_flight # <<>> /\ s.status = "ready"
      ended == WithDurable(s, n)
  IN Taken(IF stops THEN [ended EXCEPT !.status = "stopped"] ELSE ended, AllAnswers(s.in_flight, "unknown"))

\* The ledger confirms nothing of what is in flight, and is lost.
AfterFailure(s, n) ==
  IF s.in_flight = <<>> THEN Refusal(s) ELSE WithUnknown([s EXCEPT !.ledger = "write_failed"], n)

\* The ledger is full and no new one can be made: what is in flight was never sent.
AfterNoCreation(s) ==
  IF s.ledger # "open" THEN Refusal(s)
  ELSE Taken([s EXCEPT !.in_flight = <<>>, !.ledger = IF s.in_flight = <<>> THEN "closed" ELSE "write_failed"],
             AllAnswers(s.in_flight, "not_written"))

\* Another broker takes the log.
AfterFence(s, n) == IF s.ledger = "fenced" THEN Refusal(s) ELSE WithUnknown([s EXCEPT !.ledger = "fenced"], n)

\* From now on no deletion succeeds, and none is written.
AfterBreak(s) == IF s.cursor_works THEN Taken([s EXCEPT !.cursor_works = FALSE], <<>>) ELSE Refusal(s)

-----------------------------------------------------------------------------
(* Ledgers and the cursor's record. *)

AfterRoll(s) == IF s.ledger # "open" \/ Last(s.ledgers) = 0 THEN Refusal(s) ELSE Taken(WithNewLedger(s), <<>>)

Shifted(a, by) ==
  Acks(a.mark - by, {n - by : n \in a.deleted}, {[entry |-> p.entry - by, remaining |-> p.remaining] : p \in a.partial})

\* How many ledgers lie before the mark that is stored, but never the last one.
Trimmable(s) ==
  Cardinality({k \in 1..Len(s.ledgers) - 1 : \A j \in 1..k : SumTo(s.ledgers, j) <= s.stored.mark})

\* These are dropped, entries are counted anew, and the properties have the last id.  Of what has ended nothing is known without a record in the log.
AfterTrim(s) ==
  LET count == Trimmable(s)
      by == SumTo(s.ledgers, count)
      entries == SubSeq(s.log, by + 1, Len(s.log))
      ids == {r.txn : r \in RecordsOf(entries)}
      Moved(t) == [t EXCEPT !.places = [k \in DOMAIN t.places |-> <<t.places[k][1] - by, t.places[k][2]>>]]
  IN IF count = 0 THEN Taken(s, <<>>)
     ELSE Taken([s EXCEPT !.ledgers = SubSeq(@, count + 1, Len(@)), !.log = entries, !.ledger_id = s.last_id,
                          !.promised = {p \in @ : ~HasEnded(p.status) \/ p.id \in ids},
                          !.txns = {Moved(t) : t \in @}, !.known = Shifted(@, by), !.stored = Shifted(@, by),
                          !.read_next = IF @ = 0 THEN 0 ELSE @ - by],
                <<>>)

\* What is deleted is written, as far as a record of the cursor can hold it.
AfterPersist(s) ==
  IF s.ledger = "fenced" \/ ~s.cursor_works THEN Refusal(s)
  ELSE Taken(IF s.dirty THEN [s EXCEPT !.stored = Snapshot(s), !.dirty = FALSE] ELSE s, <<>>)

-----------------------------------------------------------------------------
(* The end, and the beginning. *)

\* A store that has just been opened knows no transaction yet, and the replay begins at the mark.
Opened(s, found, batched) ==
  LET Read(a) ==
        [s EXCEPT !.status = "replaying", !.ledger = "open", !.batching = batched, !.cursor_works = TRUE,
                  !.buffer = <<>>, !.in_flight = <<>>, !.ledgers = IF Last(@) > 0 THEN Append(@, 0) ELSE @,
                  !.ledger_id = RecoveredId(s), !.txns = {}, !.last_id = RecoveredId(s), !.known = a,
                  !.stored = found, !.dirty = FALSE, !.read_next = a.mark]
  IN With(Settled(IF DeletesParts(batched) THEN found ELSE [found EXCEPT !.partial = {}]), Read)

\* A clean close, and the store is opened again: deletions are written before, records that wait are not.
AfterReopening(s, batched) ==
  IF s.in_flight # <<>> THEN Refusal(s)
  ELSE Taken(Opened(s, ClosedCursor(s), batched), Answers(s.buffer, "closed"))

\* Memory is lost, and callers hear nothing; the first so many of the entries in flight are in the log.
AfterCrash(s, n) ==
  LET Lost(left) == Taken(Opened(left, left.stored, left.batching), <<>>) IN With(WithDurable(s, n), Lost)

\* The next entry that is not deleted; the number after the last one at the end.
NextEntry(s) ==
  LET there == {n \in s.read_next..EndOf(s) - 1 : ~IsDeleted(s.known, n)}
  IN IF there = {} THEN EndOf(s) ELSE Least(there)
IsRead(s) == NextEntry(s) = EndOf(s)

\* A transaction has ended as a durable record says; one that could not end so is known as before.
WithEnd(ps, r) ==
  {IF p.id = r.txn /\ MayEnd(p.status, r.to) THEN [p EXCEPT !.status = r.to] ELSE p : p \in ps}

\* What a record says is done again; its deadline counts from when the transaction was begun.  As shipped, a transaction
\* that ends stays in the map as ended when its records cannot be deleted.
WithReplayed(s, r, place) ==
  LET Done(effect) ==
        LET is_end == effect.told = "done" /\ HasEnded(r.to)
            t == TheOne(OfId(r.txn, s.txns))
            stays == is_end /\ ~replay_removes_first /\ ~s.cursor_works
            ts == IF stays THEN effect.txns \cup {[t EXCEPT !.status = r.to, !.places = Append(@, place)]}
                  ELSE effect.txns
        IN WithDeleted([s EXCEPT !.txns = ts, !.promised = IF is_end THEN WithEnd(@, r) ELSE @], effect.deleted)
  IN With(EffectOf(s.txns, r, place, r.start_ms + r.timeout_ms), Done)

\* Those of an entry's records that were not deleted when it was read.
RECURSIVE ReplayedFrom(_, _, _, _)
ReplayedFrom(s, left, n, at) ==
  LET Next(then) == ReplayedFrom(then, left, n, at + 1)
  IN IF at = SizeOf(s, n) THEN s
     ELSE With(IF at \in left THEN WithReplayed(s, s.log[n + 1][at + 1], <<n, at>>) ELSE s, Next)
Replayed(s) ==
  LET Next(n) == ReplayedFrom([s EXCEPT !.read_next = n + 1], LeftIn(s, s.known, n), n, 0)
  IN With(NextEntry(s), Next)

\* The store is ready, and callers may see what it has found.
Completed(s) ==
  LET ended == {p \in s.promised : HasEnded(p.status) /\ OfId(p.id, s.txns) = {}}
  IN [s EXCEPT !.status = "ready", !.read_next = 0,
               !.promised = ended \cup {PromiseOf(t, t.status) : t \in s.txns}]

\* What is to be committed and aborted at once, and what is open, with its deadline.
Handed(s) == [to_commit |-> {t.id : t \in {u \in s.txns : u.status = "COMMITTING"}},
              to_abort |-> {t.id : t \in {u \in s.txns : u.status = "ABORTING"}},
              open |-> {<<t.id, t.deadline_ms>> : t \in {u \in s.txns : u.status = "OPEN"}}]

AfterReplay(s) == IF s.status # "replaying" \/ IsRead(s) THEN Refusal(s) ELSE Taken(Replayed(s), <<>>)
AfterCompletion(s) == IF s.status # "replaying" \/ ~IsRead(s) THEN Refusal(s) ELSE Taken(Completed(s), <<>>)

\* Reading came to an end before the log did.  As shipped, that is taken for the end of the log.
AfterStop(s) ==
  IF s.status # "replaying" THEN Refusal(s)
  ELSE Taken(IF stopped_replay = "complete" THEN Completed(s)
             ELSE [s EXCEPT !.status = "failed", !.read_next = 0], <<>>)

-----------------------------------------------------------------------------
(* Steps.  Ids count from the first that is known, time from the first that counts.  A refusal is no step. *)

\* An id of 0 has a meaning where the watermark of nothing is 0: then ids stay.
FirstId(s) ==
  IF empty_watermark = "zero" THEN 0
  ELSE Least({r.txn : r \in RecordsOf(s.log) \cup Coming(s)} \cup {t.id : t \in s.txns} \cup {p.id : p \in s.promised}
             \cup {s.last_id + 1, s.ledger_id + 1})
FirstTime(s) == Least({r.start_ms : r \in Beginnings(RecordsOf(s.log) \cup Coming(s))} \cup {s.now_ms})

Renumbered(s, ids, time) ==
  LET OfRecord(r) == [r EXCEPT !.txn = @ - ids, !.last_id = @ - ids, !.start_ms = IF r.op = "NEW" THEN @ - time ELSE 0]
      OfEntry(entry) == [k \in DOMAIN entry |-> OfRecord(entry[k])]
      OfEntries(entries) == [k \in DOMAIN entries |-> OfEntry(entries[k])]
      OrLess(n) == IF n - ids < -1 THEN -1 ELSE n - ids
  IN IF ids = 0 /\ time = 0 THEN s
     ELSE [s EXCEPT !.buffer = OfEntry(@), !.in_flight = OfEntries(@), !.log = OfEntries(@), !.ledger_id = @ - ids,
                    !.txns = {[t EXCEPT !.id = @ - ids, !.deadline_ms = @ - time] : t \in @}, !.last_id = @ - ids,
                    !.now_ms = @ - time, !.promised = {[p EXCEPT !.id = @ - ids] : p \in @},
                    !.told_id = OrLess(@), !.told_watermark = OrLess(@)]

Become(after) ==
  \E done \in {after} : done.is_taken /\ \E s \in {Renumbered(done.s, FirstId(done.s), FirstTime(done.s))} :
    /\ status' = s.status
    /\ ledger' = s.ledger
    /\ batching' = s.batching
    /\ cursor_works' = s.cursor_works
    /\ buffer' = s.buffer
    /\ in_flight' = s.in_flight
    /\ ledgers' = s.ledgers
    /\ log' = s.log
    /\ ledger_id' = s.ledger_id
    /\ txns' = s.txns
    /\ last_id' = s.last_id
    /\ known' = s.known
    /\ stored' = s.stored
    /\ dirty' = s.dirty
    /\ read_next' = s.read_next
    /\ now_ms' = s.now_ms
    /\ promised' = s.promised
    /\ told_id' = s.told_id
    /\ told_watermark' = s.told_watermark

Init == /\ status = "ready"
        /\ ledger = "open"
        /\ batching = start_batching
        /\ cursor_works = TRUE
        /\ buffer = <<>>
        /\ in_flight = <<>>
        /\ ledgers = <<0>>
        /\ log = <<>>
        /\ ledger_id = -1
        /\ txns = {}
        /\ last_id = -1
        /\ known = Nothing
        /\ stored = Nothing
        /\ dirty = FALSE
        /\ read_next = 0
        /\ now_ms = 0
        /\ promised = {}
        /\ told_id = -1
        /\ told_watermark = -1

NewTransaction == \E timeout \in timeout_ms : Become(AfterNew(Contents, timeout))
AddParticipant == \E id \in txn, kind \in op, n \in name : Become(AfterParticipant(Contents, id, kind, n))
UpdateStatus == \E id \in txn, into \in to : Become(AfterUpdate(Contents, id, into))
LowWatermark == Become(AfterWatermark(Contents))
Expired == UNCHANGED vars
AdvanceTime == \E by \in by_ms : Become(Taken([Contents EXCEPT !.now_ms = @ + by], <<>>))
Flush == Become(AfterFlush(Contents))
Written == Become(AfterWritten(Contents))
WriteFails == \E n \in write_fails_durable : Become(AfterFailure(Contents, n))
CreationFails == Become(AfterNoCreation(Contents))
Fence == \E n \in fence_durable : Become(AfterFence(Contents, n))
CursorBreaks == Become(AfterBreak(Contents))
RollLedger == Become(AfterRoll(Contents))
Trim == Become(AfterTrim(Contents))
Persist == Become(AfterPersist(Contents))
Reopen == \E batched \in reopen_batching : Become(AfterReopening(Contents, batched))
Crash == \E n \in crash_durable : Become(AfterCrash(Contents, n))
ReplayEntry == Become(AfterReplay(Contents))
ReplayCompletes == Become(AfterCompletion(Contents))
ReadFails == Become(AfterStop(Contents))

-----------------------------------------------------------------------------
(* Bounds. *)

EntriesAtMost(n) == Len(log) <= n
LedgersAtMost(n) == Len(ledgers) <= n
IdsAtMost(n) == last_id < n
InFlightAtMost(n) == Len(in_flight) <= n
LateAtMost(n) == now_ms <= n
=============================================================================
