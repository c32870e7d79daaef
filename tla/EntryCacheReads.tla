-------------------------- MODULE EntryCacheReads --------------------------
(*****************************************************************************)
(* Reads of the entry cache: twin of                                         *)
(* model/entry_cache/{reads,shared_reads,reads_limiter}.py.  Models          *)
(* RangeEntryCacheImpl.doAsyncReadEntriesByPosition, PendingReadsManager and *)
(* InflightReadsLimiter.                                                     *)
(*                                                                           *)
(* The range of a pending request is a tree of parts, each a range of        *)
(* entries of one ledger:                                                    *)
(*                                                                           *)
(*   found    copies of its entries are held for the request; not of all if  *)
(*            storage returned fewer entries than requested                  *)
(*   failed   the read failed                                                *)
(*   permits  waits for permits of the limiter                               *)
(*   awaited  awaits one read of storage                                     *)
(*   joined   the common part with a read that another request has started,  *)
(*            and the parts beside it                                        *)
(*   mixed    cached entries, and the gaps between or beside them            *)
(*                                                                           *)
(* An operator that evaluates a part has the value [c |-> the contents,      *)
(* part |-> the part] after the evaluation.                                  *)
(*****************************************************************************)
EXTENDS EntryCacheEviction

-----------------------------------------------------------------------------
(* Parts and requests. *)

Part(kind, low, high) == [kind |-> kind, first |-> low, last |-> high, read |-> 0, held |-> <<>>, parts |-> <<>>]
Found(low, high, held) == [Part("found", low, high) EXCEPT !.held = held]
Awaited(low, high, read) == [Part("awaited", low, high) EXCEPT !.read = read]
Composite(kind, low, high, parts) == [Part(kind, low, high) EXCEPT !.parts = parts]

\* IsSettled: whether a part awaits nothing.  IsComplete: whether all entries of its range are held.
IsSettled(part) == part.kind \in {"found", "failed"}
IsComplete(part) == part.kind = "found" /\ Len(part.held) = part.last - part.first + 1

\* The held entries of parts, in order.
RECURSIVE AllHeld(_)
AllHeld(parts) ==
  IF parts = <<>> THEN <<>>
  ELSE LET part == Head(parts)
       IN (IF part.kind = "found" THEN part.held ELSE AllHeld(part.parts)) \o AllHeld(Tail(parts))

RequestOf(c, n) == LET i == CHOOSE i \in DOMAIN c.requests : c.requests[i].number = n IN c.requests[i]

WithoutRequest(c, n) == LET Other(q) == q.number # n IN [c EXCEPT !.requests = SelectSeq(@, Other)]

\* Inserts a request; requests are ordered by number.
WithRequest(c, q) ==
  LET Before(other) == other.number < q.number
      After(other) == other.number > q.number
  IN [c EXCEPT !.requests = SelectSeq(@, Before) \o <<q>> \o SelectSeq(@, After)]

\* The bytes of each entry of a topic's ledger in storage.
StoredOf(topic, l) ==
  LET found == {i \in DOMAIN stored : stored[i].cache = topic /\ stored[i].ledger = l}
  IN IF found = {} THEN <<>> ELSE stored[Greatest(found)].entry_bytes

-----------------------------------------------------------------------------
(* Permits. *)

\* Whether permits can be granted: enough are free, or the request exceeds the maximum and all are free.
Fits(c, permits) ==
  c.free >= permits \/ (permits > max_reads_in_flight_bytes /\ c.free = max_reads_in_flight_bytes)

\* Grants a request its permits, or all permits if the request exceeds the maximum.
Taken(c, n, permits) ==
  LET taken == IF permits > max_reads_in_flight_bytes THEN max_reads_in_flight_bytes ELSE permits
  IN [c EXCEPT !.free = @ - taken, !.grants = @ \cup {[request |-> n, permits |-> taken, copies |-> {}]}]

\* The state after the permits of a request were freed.
PermitsReturned(c, n) ==
  LET mine == {g \in c.grants : g.request = n}
  IN IF mine = {} THEN c
     ELSE LET g == CHOOSE g \in mine : TRUE IN [c EXCEPT !.free = @ + g.permits, !.grants = @ \ mine]

\* internalRelease: from the head of the queue, requests that have waited longer than the timeout fail, and requests
\* that fit are granted, up to the first request that does neither.
RECURSIVE GrantQueued(_, _, _)
GrantQueued(c, granted, failed) ==
  LET done == [c |-> c, granted |-> granted, failed |-> failed]
  IN IF c.waiting = <<>> THEN done
     ELSE LET w == Head(c.waiting)
              rest == [c EXCEPT !.waiting = Tail(@)]
          IN CASE -w.since_ns > permits_timeout_ns -> GrantQueued(rest, granted, failed \cup {w.request})
               [] -w.since_ns <= permits_timeout_ns /\ Fits(c, w.permits) ->
                    GrantQueued(Taken(rest, w.request, w.permits), Append(granted, w.request), failed)
               [] OTHER -> done

\* timeoutCheck, the timer: from the head of the queue, requests fail that have waited as long as the timeout, or
\* longer.
RECURSIVE Expired(_, _)
Expired(c, failed) ==
  IF c.waiting # <<>> /\ -Head(c.waiting).since_ns >= permits_timeout_ns
  THEN Expired([c EXCEPT !.waiting = Tail(@)], failed \cup {Head(c.waiting).request})
  ELSE [c |-> c, failed |-> failed]

\* Fails requests that have waited too long for permits.
FailTimedOut(c, failed) == LET Stays(q) == q.number \notin failed IN [c EXCEPT !.requests = SelectSeq(@, Stays)]

-----------------------------------------------------------------------------
(* Entries from storage. *)

\* An entry from storage is cached only if further reads of the entry are expected.  In a disabled range cache, no reads
\* are expected.
InsertedReadEntry(c, r, entry, names) ==
  LET n == InitialCount(IF r.range_cache >= 0 THEN r.expected_reads ELSE 0)
      b == StoredOf(r.cache, r.ledger)[entry + 1]
  IN IF HasExpectedReads(n) THEN InsertOrReplace(c, r.range_cache, <<r.ledger, entry>>, b, n, Held(names))
     ELSE [c EXCEPT !.orphaned_copies = WithOrphanedCopies(@, Held(names), n)]

\* Read r returns its entries from `entry` to `up_to`, each with a handler of its own.  `wanted` has <<request, first,
\* last>> for each part that awaits the read.  The request gets copies of the entries from `first` to `last`.
RECURSIVE ReceivedEntries(_, _, _, _, _)
ReceivedEntries(c, r, entry, up_to, wanted) ==
  IF entry > up_to THEN c
  ELSE LET names == {<<w[1], entry>> : w \in {w \in wanted : w[2] <= entry /\ entry <= w[3]}}
           Rest(came) == ReceivedEntries(came, r, entry + 1, up_to, wanted)
       IN With(InsertedReadEntry(c, r, entry, names), Rest)

\* The part low..high after read r has returned the entries up to `up_to`.
PartOf(r, low, high, up_to) ==
  LET end == IF high > up_to THEN up_to ELSE high
      size == StoredOf(r.cache, r.ledger)
  IN Found(low, high, [i \in 1..(IF end < low THEN 0 ELSE end - low + 1) |->
                         [entry |-> low + i - 1, bytes |-> size[low + i]]])

\* PendingReadsManager.invalidateLedger, or clear if l is None: later requests to range cache s do not join its reads of
\* this ledger (of any ledger).
WithoutJoining(c, s, l) ==
  [c EXCEPT !.reads = [i \in DOMAIN @ |-> IF @[i].range_cache = s /\ (l = None \/ @[i].ledger = l)
                                          THEN [@[i] EXCEPT !.joinable = FALSE] ELSE @[i]]]

-----------------------------------------------------------------------------
(* Looking up, joining and reading. *)

\* PendingReadsManager.findPendingRead: the index of the read to join, or 0 if there is none.  A read that includes the
\* range comes first; then a read that lacks entries only on the right (rank 1), only on the left (2), or on both sides
\* (3).  Joinable reads do not overlap, so only rank 3 can have several reads.  The latest one is joined.
Candidate(c, q, low, high) ==
  LET IsOfCache(r) == r.range_cache = q.range_cache /\ r.ledger = q.ledger
      Overlaps(r) == r.joinable /\ IsOfCache(r) /\ r.first <= high /\ low <= r.last
      near == {i \in DOMAIN c.reads : Overlaps(c.reads[i])}
      including == {i \in near : c.reads[i].first <= low /\ high <= c.reads[i].last}
      Rank(i) == (IF low < c.reads[i].first THEN 2 ELSE 0) + (IF c.reads[i].last < high THEN 1 ELSE 0)
  IN CASE near = {} \/ q.range_cache < 0 -> 0
       [] including # {} -> Least(including)
       [] OTHER -> Greatest({i \in near : Rank(i) = Least({Rank(j) : j \in near})})

\* Starts a read of a range, which storage completes in this step or later.
ReadFromStorage(c, q, low, high) ==
  LET r == [number |-> c.next_read, range_cache |-> q.range_cache, cache |-> q.cache, ledger |-> q.ledger,
            first |-> low, last |-> high, expected_reads |-> q.expected_reads, joinable |-> q.range_cache >= 0,
            waiting |-> <<q.number>>]
      asked == [c EXCEPT !.next_read = @ + 1]
  IN CASE storage_reads = "queued" ->
            [c |-> [asked EXCEPT !.reads = Append(@, r)], part |-> Awaited(low, high, r.number)]
       [] storage_reads = "immediate" /\ c.failing > 0 ->
            [c |-> [asked EXCEPT !.failing = @ - 1], part |-> Part("failed", low, high)]
       [] OTHER ->
            [c |-> ReceivedEntries(asked, r, low, high, {<<q.number, low, high>>}), part |-> PartOf(r, low, high, high)]

\* Splits a range into cached entries and the maximal gaps between or beside them.  A gap is "awaited" with read 0; then
\* ReadGaps reads it.  `there` has the bytes of each cached entry.
RECURSIVE Pieces(_, _, _)
Pieces(there, low, high) ==
  IF low > high THEN <<>>
  ELSE IF low \in DOMAIN there
  THEN <<Found(low, low, <<[entry |-> low, bytes |-> there[low]]>>)>> \o Pieces(there, low + 1, high)
  ELSE LET further == {entry \in DOMAIN there : entry > low}
           end == IF further = {} THEN high ELSE Least(further) - 1
       IN <<Awaited(low, end, 0)>> \o Pieces(there, end + 1, high)

RECURSIVE ReadRange(_, _, _, _), ReadMissing(_, _, _, _), ReadGaps(_, _, _, _)

\* Reads each gap among the parts, from left to right.
ReadGaps(c, q, parts, i) ==
  IF i > Len(parts) THEN [c |-> c, parts |-> parts]
  ELSE IF parts[i].kind # "awaited" THEN ReadGaps(c, q, parts, i + 1)
  ELSE LET Rest(asked) == ReadGaps(asked.c, q, Exchanged(parts, i, asked.part), i + 1)
       IN With(ReadMissing(c, q, parts[i].first, parts[i].last), Rest)

\* Holds the cached entries of a range, sets their `accessed`, and reads each gap.
ReadRange(c, q, low, high) ==
  LET Chosen(e) == /\ e.range_cache = q.range_cache /\ e.position[1] = q.ledger
                   /\ low <= e.position[2] /\ e.position[2] <= high
      Looked(e) == [e EXCEPT !.accessed = TRUE, !.copies.held = @ \cup {<<q.number, e.position[2]>>}]
      IsChosen(slot) == slot # None /\ Chosen(slot)
      found == InSet(SelectSeq(c.queue, IsChosen))
      there == [entry \in {e.position[2] : e \in found} |-> (CHOOSE e \in found : e.position[2] = entry).bytes]
      pieces == Pieces(there, low, high)
      held == [c EXCEPT !.queue = Changed(@, Chosen, Looked)]
  IN CASE found = {} -> ReadMissing(c, q, low, high)
       [] DOMAIN there = low..high -> [c |-> held, part |-> Found(low, high, AllHeld(pieces))]
       [] OTHER -> LET Rest(asked) == [c |-> asked.c, part |-> Composite("mixed", low, high, asked.parts)]
                   IN With(ReadGaps(held, q, pieces, 1), Rest)

\* Reads a range that has no cached entries, or that Settle reads again: joins a read, or starts one.  The parts of the
\* range before and after the joined read are looked up in the cache, first the part before (Left, Right).
ReadMissing(c, q, low, high) ==
  LET i == Candidate(c, q, low, high)
  IN IF i = 0 THEN ReadFromStorage(c, q, low, high)
     ELSE LET r == c.reads[i]
              left == IF low < r.first THEN r.first ELSE low
              right == IF r.last < high THEN r.last ELSE high
              common == Awaited(left, right, r.number)
              joined == [c EXCEPT !.reads = Exchanged(@, i, [r EXCEPT !.waiting = Append(@, q.number)])]
              One(looked) == [c |-> looked.c, parts |-> <<looked.part>>]
              Beside(found, from, to) == IF from > to THEN [c |-> found, parts |-> <<>>]
                                         ELSE With(ReadRange(found, q, from, to), One)
              All(parts) == IF Len(parts) = 1 THEN common ELSE Composite("joined", low, high, parts)
              Right(before) ==
                LET Both(after) == [c |-> after.c, part |-> All(before.parts \o <<common>> \o after.parts)]
                IN With(Beside(before.c, right + 1, high), Both)
              Left(found) == With(Beside(found, low, left - 1), Right)
          IN With(joined, Left)

-----------------------------------------------------------------------------
(* Evaluating the parts of a request. *)

\* Releases held copies that were not delivered.  Read counts change only with undelivered_release_marks_read.
RECURSIVE Discard(_, _, _)
Discard(c, n, held) ==
  IF held = <<>> THEN c
  ELSE LET name == <<n, Head(held).entry>>
           Has(copies) == name \in copies.held
           Less(copies) == [copies EXCEPT !.held = @ \ {name}]
           Rest(left) == Discard(left, n, Tail(held))
       IN With(IF undelivered_release_marks_read THEN ChangedWhere(c, Has, MarkedRead, Less)
               ELSE ChangedWhere(c, Has, Same, Less), Rest)

\* Evaluates a tree of parts.  A joined or mixed range waits until all its parts are settled, and completes if all are
\* complete.  If a part has failed, all held copies are released; a joined range fails, and a mixed range is read again
\* as a whole, without a lookup in the cache.  The same happens if no part has failed, but storage has returned fewer
\* entries than requested (is_short), with two exceptions.  With short_answer "fails", a mixed range fails, too.  With
\* "never_answered", a joined or mixed range does not change, and its copies stay held.
RECURSIVE Settle(_, _, _), SettleEach(_, _, _, _)
Settle(c, q, part) ==
  IF part.parts = <<>> THEN [c |-> c, part |-> part]
  ELSE LET Again(asked) == Settle(asked.c, q, asked.part)
           Rest(each) ==
             LET settled == InSet(each.parts)
                 is_short == \A p \in settled : p.kind = "found"
                 Failed(c_then) ==
                   IF part.kind = "joined" \/ (short_answer = "fails" /\ is_short)
                   THEN [c |-> c_then, part |-> Part("failed", part.first, part.last)]
                   ELSE With(ReadMissing(c_then, q, part.first, part.last), Again)
                 so_far == [c |-> each.c, part |-> [part EXCEPT !.parts = each.parts]]
                 gathered == AllHeld(each.parts)
             IN CASE \E p \in settled : ~IsSettled(p) -> so_far
                  [] \A p \in settled : IsComplete(p) -> [c |-> each.c, part |-> Found(part.first, part.last, gathered)]
                  [] OTHER -> IF short_answer = "never_answered" /\ is_short THEN so_far
                              ELSE With(Discard(each.c, q.number, gathered), Failed)
       IN With(SettleEach(c, q, part.parts, 1), Rest)

SettleEach(c, q, parts, i) ==
  IF i > Len(parts) THEN [c |-> c, parts |-> parts]
  ELSE LET Rest(settled) == SettleEach(settled.c, q, Exchanged(parts, i, settled.part), i + 1)
       IN With(Settle(c, q, parts[i]), Rest)

-----------------------------------------------------------------------------
(* Completing requests. *)

\* The copies held for request n become copies of the reader.  If the request has permits, the copies are listed with
\* the permits; otherwise they are counted as open.
RECURSIVE WithOpenCopies(_, _, _, _)
WithOpenCopies(c, n, held, i) ==
  IF i > Len(held) THEN c
  ELSE LET name == <<n, held[i].entry>>
           Has(copies) == name \in copies.held
           Granted(copies) == [copies EXCEPT !.held = @ \ {name}, !.granted = @ \cup {<<n, i>>}]
           Open(copies) == [copies EXCEPT !.held = @ \ {name}, !.open = @ + 1]
           Rest(over) == WithOpenCopies(over, n, held, i + 1)
       IN With(IF \E g \in c.grants : g.request = n THEN ChangedWhere(c, Has, Same, Granted)
               ELSE ChangedWhere(c, Has, Same, Open), Rest)

RECURSIVE ContinueRequest(_, _), Begin(_, _), BeginEach(_, _), StartQueuedRequests(_)

\* After permits were freed, queued requests start, or fail because they have waited too long.
StartQueuedRequests(c) ==
  LET Rest(handed) == IF handed.granted = <<>> /\ handed.failed = {} THEN c
                      ELSE With(BeginEach(FailTimedOut(handed.c, handed.failed), handed.granted), StartQueuedRequests)
  IN With(GrantQueued(c, <<>>, {}), Rest)

ReleasePermits(c, n) == IF c.grants = {} THEN c ELSE With(PermitsReturned(c, n), StartQueuedRequests)

\* Begins the requests of these numbers.
BeginEach(c, numbers) ==
  IF numbers = <<>> THEN c
  ELSE LET n == Head(numbers)
           Rest(begun) == BeginEach(begun, Tail(numbers))
       IN With(Begin(WithoutRequest(c, n), RequestOf(c, n)), Rest)

\* A request that has its permits looks up its range.
Begin(c, q) ==
  LET Rest(looked) == ContinueRequest(looked.c, [q EXCEPT !.part = looked.part])
  IN With(ReadRange(c, q, q.part.first, q.part.last), Rest)

\* Completes a request with its held entries.  Without entries, its permits are freed at once.
Deliver(c, n, held) ==
  LET Rest(over) ==
        IF held = <<>> THEN ReleasePermits(over, n)
        ELSE [over EXCEPT !.grants = {IF g.request = n THEN [g EXCEPT !.copies = DOMAIN held] ELSE g : g \in @}]
  IN With(WithOpenCopies(c, n, held, 1), Rest)

\* Evaluates a request.  The request still awaits a read, fails, or completes.
ContinueRequest(c, q) ==
  LET Rest(settled) ==
        CASE ~IsSettled(settled.part)     -> WithRequest(settled.c, [q EXCEPT !.part = settled.part])
          [] settled.part.kind = "failed" -> ReleasePermits(settled.c, q.number)
          [] OTHER                        -> Deliver(settled.c, q.number, settled.part.held)
  IN With(Settle(c, q, q.part), Rest)

-----------------------------------------------------------------------------
(* Answers of storage. *)

\* The parts of a tree of request n that await a read, as a set of <<request, first, last>>.
RECURSIVE Wanted(_, _, _)
Wanted(n, part, read) ==
  (IF part.kind = "awaited" /\ part.read = read THEN {<<n, part.first, part.last>>} ELSE {})
    \cup UNION {Wanted(n, part.parts[i], read) : i \in DOMAIN part.parts}

\* The tree after read r.  The parts that awaited read r have the entries up to `up_to`, or have failed if `up_to` is
\* None.
RECURSIVE WithAnswers(_, _, _)
WithAnswers(part, r, up_to) ==
  CASE part.kind = "awaited" /\ part.read = r.number ->
         IF up_to = None THEN Part("failed", part.first, part.last) ELSE PartOf(r, part.first, part.last, up_to)
    [] OTHER -> [part EXCEPT !.parts = [i \in DOMAIN @ |-> WithAnswers(@[i], r, up_to)]]

\* The requests of these numbers continue, in this order.
RECURSIVE AnswerEach(_, _, _, _)
AnswerEach(c, numbers, r, up_to) ==
  IF numbers = <<>> THEN c
  ELSE LET Step(q) == ContinueRequest(WithoutRequest(c, q.number), [q EXCEPT !.part = WithAnswers(@, r, up_to)])
           Rest(answered) == AnswerEach(answered, Tail(numbers), r, up_to)
       IN With(With(RequestOf(c, Head(numbers)), Step), Rest)

\* Storage completes read r with its entries up to `up_to`, or fails the read (None).  The requests that await read r
\* continue in the order of their arrival.  After a failure, later requests do not join the other reads of the ledger.
Answer(c, r, up_to) ==
  LET Other(each) == each # r
      rest == [c EXCEPT !.reads = SelectSeq(@, Other)]
      wanted == UNION {Wanted(n, RequestOf(c, n).part, r.number) : n \in InSet(r.waiting)}
      taken == CASE up_to # None -> ReceivedEntries(rest, r, r.first, up_to, wanted)
                 [] up_to = None /\ r.range_cache >= 0 -> WithoutJoining(rest, r.range_cache, r.ledger)
                 [] OTHER -> rest
      Rest(so_far) == AnswerEach(so_far, Distinct(r.waiting), r, up_to)
  IN With(taken, Rest)
=============================================================================
