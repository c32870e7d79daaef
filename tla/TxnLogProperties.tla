--------------------------- MODULE TxnLogProperties ---------------------------
(***************************************************************************)
(* What the transaction log of a coordinator promises: the twin of         *)
(* invariants/txn_log.py, under the same names.                            *)
(*                                                                         *)
(* A promise about a step is an invariant here: from every reached state,  *)
(* the action with any of its arguments would keep it.                     *)
(*                                                                         *)
(* The measure of most promises is the whole log, read from its first      *)
(* record by rules that are said here once more, whatever is deleted.      *)
(* The last part is about the order of deletions: that it holds in memory  *)
(* and in what is durable, and that it is why no ended transaction         *)
(* returns, for every set of records that could be deleted.                *)
(***************************************************************************)
EXTENDS TxnLog

\* Each action with each of its arguments.
InAppends(Holds(_)) ==
  /\ \A timeout \in timeout_ms : Holds(AfterNew(Contents, timeout))
  /\ \A id \in txn, kind \in op, n \in name : Holds(AfterParticipant(Contents, id, kind, n))
  /\ \A id \in txn, into \in to : Holds(AfterUpdate(Contents, id, into))
  /\ Holds(AfterFlush(Contents))
InFailures(Holds(_)) ==
  /\ \A n \in write_fails_durable : Holds(AfterFailure(Contents, n))
  /\ \A n \in fence_durable : Holds(AfterFence(Contents, n))
  /\ Holds(AfterNoCreation(Contents))
InReopenings(Holds(_)) == \A batched \in reopen_batching : Holds(AfterReopening(Contents, batched))
InCrashes(Holds(_)) == \A n \in crash_durable : Holds(AfterCrash(Contents, n))
InReplay(Holds(_)) ==
  Holds(AfterReplay(Contents)) /\ Holds(AfterCompletion(Contents)) /\ Holds(AfterStop(Contents))
\* What neither tells callers anything nor changes transactions, but for the trimming of the log.
InUpkeep(Holds(_)) ==
  /\ Holds(AfterRoll(Contents))
  /\ Holds(AfterPersist(Contents))
  /\ Holds(AfterBreak(Contents))
  /\ Holds(AfterWatermark(Contents))
\* A store has become ready.
InRecoveries(Holds(_)) ==
  LET Recovered(after) == after.is_taken /\ after.s.status = "ready" => Holds(after.s)
  IN Recovered(AfterCompletion(Contents)) /\ Recovered(AfterStop(Contents))

IsServed == status = "ready" /\ cursor_works
Entries(s) == 0..EndOf(s) - 1
Trimmed == Len(log) - Len(AfterTrim(Contents).s.log)

-----------------------------------------------------------------------------
(* What a log says of each transaction whose beginning it has, from its first record to its last. *)

\* The only steps that a transaction takes.
Steps == {<<"OPEN", "COMMITTING">>, <<"OPEN", "ABORTING">>, <<"COMMITTING", "COMMITTED">>, <<"ABORTING", "ABORTED">>}
MayBecome(before, after) ==
  before = after \/ <<before, after>> \in Steps
    \/ \E between \in {"COMMITTING", "ABORTING"} : <<before, between>> \in Steps /\ <<between, after>> \in Steps

Begun(r, place) == [id |-> r.txn, status |-> "OPEN", partitions |-> {}, subscriptions |-> {}, places |-> <<place>>]

\* What is said after one more record of a transaction; the same if that has no effect.
SaidThen(said, r, place) ==
  LET more == [said EXCEPT !.places = Append(@, place)]
  IN CASE r.op = "NEW" -> more
       [] r.op = "UPDATE" -> IF <<said.status, r.to>> \in Steps THEN [more EXCEPT !.status = r.to] ELSE said
       [] r.op = "ADD_PARTITION" -> IF said.status = "OPEN" THEN [more EXCEPT !.partitions = @ \cup {r.name}] ELSE said
       [] OTHER -> IF said.status = "OPEN" THEN [more EXCEPT !.subscriptions = @ \cup {r.name}] ELSE said

RECURSIVE SaidFrom(_, _, _, _)
SaidFrom(s, found, n, at) ==
  LET r == s.log[n + 1][at + 1]
      mine == OfId(r.txn, found)
      Next(then) == SaidFrom(s, then, n, at + 1)
  IN IF n = EndOf(s) THEN found
     ELSE IF at = SizeOf(s, n) THEN SaidFrom(s, found, n + 1, 0)
     ELSE IF mine # {} THEN With((found \ mine) \cup {SaidThen(TheOne(mine), r, <<n, at>>)}, Next)
     ELSE With(IF r.op = "NEW" THEN found \cup {Begun(r, <<n, at>>)} ELSE found, Next)
WhatTheLogSays(s) == SaidFrom(s, {}, 0, 0)

SaidOf(t) == [id |-> t.id, status |-> t.status, partitions |-> t.partitions, subscriptions |-> t.subscriptions,
              places |-> t.places]
Living(said) == {e \in said : ~HasEnded(e.status)}
Ended(said) == {e \in said : HasEnded(e.status)}

OnTheWay(s) ==
  LET Calls(entry) == [k \in DOMAIN entry |-> <<entry[k].txn, entry[k].op>>]
      CallsOf[k \in 0..Len(s.in_flight)] == IF k = 0 THEN <<>> ELSE CallsOf[k - 1] \o Calls(s.in_flight[k])
  IN CallsOf[Len(s.in_flight)] \o Calls(s.buffer)

-----------------------------------------------------------------------------
(* Durability. *)

\* Whoever is told that an operation is done can rely on its record: it is in the log by then.  Where nothing had to be
\* written, the transaction has the status that was asked for already.
AcknowledgedMeansDurable ==
  LET IsDone(after) == \E k \in DOMAIN after.told : after.told[k].told = "done"
      Never(after) == ~IsDone(after)
      Updated(id, into, after) == IsDone(after) => after.s = Contents /\ \A t \in OfId(id, txns) : t.status = into
      Durable(after) == /\ Len(after.s.log) = Len(log) + 1
                        /\ Last(after.s.log) = in_flight[1]
                        /\ Len(after.told) = Len(in_flight[1])
                        /\ \A k \in DOMAIN after.told : AnswerTo(in_flight[1][k], after.told[k].told) = after.told[k]
  IN /\ \A timeout \in timeout_ms : Never(AfterNew(Contents, timeout))
     /\ \A id \in txn, kind \in op, n \in name : Never(AfterParticipant(Contents, id, kind, n))
     /\ \A id \in txn, into \in to : Updated(id, into, AfterUpdate(Contents, id, into))
     /\ Never(AfterFlush(Contents))
     /\ InFailures(Never)
     /\ InReopenings(Never)
     /\ in_flight # <<>> => Durable(AfterWritten(Contents))

\* A caller waits until told what became of the operation, in the order of the calls, but an append that is
\* refused at once overtakes what is in flight; a crash tells nobody.
EveryCallerIsToldOnce ==
  LET IsBag(one, other) ==
        /\ Len(one) = Len(other)
        /\ \A k \in DOMAIN one : Cardinality({j \in DOMAIN one : one[j] = one[k]})
                                   = Cardinality({j \in DOMAIN other : other[j] = one[k]})
      Told(after) == [k \in DOMAIN after.told |-> <<after.told[k].txn, after.told[k].op>>]
      InTurn(after, called) == OnTheWay(Contents) \o called = Told(after) \o OnTheWay(after.s)
      InAnyTurn(after, called) == IsBag(OnTheWay(Contents) \o called, Told(after) \o OnTheWay(after.s))
      Once(after, called) ==
        after.is_taken => IF after.s.ledger \in {"fenced", "closed"} THEN InAnyTurn(after, called)
                          ELSE InTurn(after, called)
      OfNobodyElse(after) == Once(after, <<>>)
      Lost(after) == OnTheWay(after.s) = <<>> /\ after.told = <<>>
  IN /\ \A timeout \in timeout_ms : Once(AfterNew(Contents, timeout), <<<<last_id + 1, "NEW">>>>)
     /\ \A id \in txn, kind \in op, n \in name : Once(AfterParticipant(Contents, id, kind, n), <<<<id, kind>>>>)
     /\ \A id \in txn, into \in to :
          LET after == AfterUpdate(Contents, id, into)
          IN after.is_taken => InAnyTurn(after, <<<<id, "UPDATE">>>>)
     /\ OfNobodyElse(AfterFlush(Contents))
     /\ OfNobodyElse(AfterWritten(Contents))
     /\ OfNobodyElse(AfterTrim(Contents))
     /\ InFailures(OfNobodyElse)
     /\ InReopenings(OfNobodyElse)
     /\ InUpkeep(OfNobodyElse)
     /\ InReplay(OfNobodyElse)
     /\ InCrashes(Lost)

\* Entries come to the end of the log in the order in which they were sent, whole; trimming alone drops any.
OnlyWhatIsWrittenIsInTheLog ==
  LET Grown(after) ==
        LET new == Len(after.s.log) - Len(log)
        IN 0 <= new /\ new <= Len(in_flight) /\ after.s.log = log \o SubSeq(in_flight, 1, new)
  IN /\ InAppends(Grown)
     /\ Grown(AfterWritten(Contents))
     /\ InFailures(Grown)
     /\ InReopenings(Grown)
     /\ InCrashes(Grown)
     /\ InUpkeep(Grown)
     /\ InReplay(Grown)
     /\ AfterTrim(Contents).s.log = SubSeq(log, Trimmed + 1, Len(log))

-----------------------------------------------------------------------------
(* Deletions. *)

\* In a store that serves, exactly the records that no living transaction has are deleted, and an entry with none left
\* is deleted as a whole.
AnEntryIsDeletedWhenAllItsRecordsAre ==
  LET places == UNION {Members(t.places) : t \in txns}
      Needed(n) == {i \in AllOf(Contents, n) : <<n, i>> \in places}
  IN IsServed => \A n \in Entries(Contents) : /\ LeftIn(Contents, known, n) = Needed(n)
                                              /\ IsDeleted(known, n) = (Needed(n) = {})

\* When a transaction ends, all its records are deleted, in batches, too, whether the store batches now or not.
IsLeftIn(s, a, place) == place[2] \in LeftIn(s, a, place[1])
AnEndDeletesWhatTheTransactionHad ==
  LET s == AfterWritten(Contents).s
      IsGone(t) == \A place \in Members(t.places) : ~IsLeftIn(s, s.known, place)
  IN s.cursor_works => \A t \in txns : OfId(t.id, s.txns) # {} \/ IsGone(t)

\* What is deleted stays deleted as long as the store is open.
DeletionsOnlyGrow ==
  LET Grown(after) ==
        \A n \in Entries(Contents) : LeftIn(after.s, after.s.known, n) \subseteq LeftIn(Contents, known, n)
      Trims(after) ==
        \A n \in Entries(after.s) :
          LeftIn(after.s, after.s.known, n) \subseteq LeftIn(Contents, known, n + Len(log) - EndOf(after.s))
  IN /\ InAppends(Grown)
     /\ Grown(AfterWritten(Contents))
     /\ InFailures(Grown)
     /\ InUpkeep(Grown)
     /\ InReplay(Grown)
     /\ Trims(AfterTrim(Contents))

\* Whatever a crash leaves of the deletions: where any record of an ended transaction is deleted, so is its first one.
\* Else the transaction would come back: without its closing record, or without a step that leads to it.
OthersAfterBeginnings(s, a) ==
  \A e \in Ended(WhatTheLogSays(s)) :
    IsLeftIn(s, a, e.places[1]) => \A place \in Members(e.places) : IsLeftIn(s, a, place)
NothingOfAnEndedTransactionIsDeletedBeforeItsFirstRecord == OthersAfterBeginnings(Contents, stored)

\* With no deletion left to be written, a crash forgets none, as far as a record of the cursor can hold them.
Fits == /\ Cardinality({n \in known.deleted : n - 1 \notin known.deleted
                                            \/ \E k \in DOMAIN ledgers : n = SumTo(ledgers, k - 1)}) <= max_ranges
        /\ Cardinality(known.partial) <= max_batch_records
WhatIsNotDirtyIsDurable ==
  ~dirty /\ Fits => \A n \in Entries(Contents) : LeftIn(Contents, stored, n) \subseteq LeftIn(Contents, known, n)

\* A store that is closed, and opened with batching again, knows all deletions that a record of the cursor can hold.
ACleanCloseKeepsDeletions ==
  LET after == AfterReopening(Contents, TRUE)
  IN TRUE \in reopen_batching /\ after.is_taken /\ Fits /\ cursor_works /\ ledger # "fenced" => after.s.known = known

\* A record of the cursor that cannot hold all deletions has every one up to some entry, and none from there on.
ARecordHoldsAllUpToSomeEntry ==
  LET s == AfterPersist(Contents).s
      Found(n) == LeftIn(s, s.stored, n)
      Lost == {n \in Entries(s) : Found(n) # LeftIn(s, s.known, n)}
  IN dirty /\ ~s.dirty => \A m \in Lost : \A n \in Entries(s) : n >= m => Found(n) = AllOf(s, n)

\* Whole ledgers are dropped, none of which has an entry that a crash would bring back, and never the last one.
OnlyStoredDeletionsAreTrimmed ==
  LET after == AfterTrim(Contents).s.ledgers
      dropped == Len(ledgers) - Len(after)
  IN /\ 0 <= dropped /\ dropped < Len(ledgers)
     /\ after = SubSeq(ledgers, dropped + 1, Len(ledgers))
     /\ SumTo(ledgers, dropped) = Trimmed
     /\ Trimmed <= stored.mark
     /\ stored.mark >= 0 /\ SumTo(ledgers, Len(ledgers)) = Len(log)

\* When no transaction lives, the mark stands at the end of the log: everything written so far can be trimmed.
WhenAllEndedAllIsDeletable == IsServed /\ txns = {} => known.mark = Len(log)

-----------------------------------------------------------------------------
(* Recovery. *)

\* A store that serves has exactly the transactions that the log says have not ended.
TheStoreHasWhatTheLogSays == status = "ready" => {SaidOf(t) : t \in txns} = Living(WhatTheLogSays(Contents))

\* After a crash or a restart every transaction is there that callers were told of and that has not ended, with all its
\* participants, and with the status that they were told or one that comes after it.
RecoveryGivesWhatWasPromised ==
  LET IsKept(p, t) == /\ p.partitions \subseteq t.partitions
                      /\ p.subscriptions \subseteq t.subscriptions
                      /\ MayBecome(p.status, t.status)
      Kept(s) == \A p \in promised : HasEnded(p.status) \/ \E t \in OfId(p.id, s.txns) : IsKept(p, t)
  IN InRecoveries(Kept)

\* A transaction of which callers were told that it is committed or aborted lives in no store that has read its
\* log later.
NoEndedTransactionReturns ==
  LET after == AfterCompletion(Contents)
  IN after.is_taken => \A p \in promised : HasEnded(p.status) => Living(OfId(p.id, after.s.txns)) = {}

\* Where callers were told that a transaction is committing or committed, the log does not say the opposite, nor the
\* other way round: no restart can find another decision than the one that was acknowledged.
ADecisionIsFinal ==
  LET Way(at) == IF at = "OPEN" THEN {} ELSE IF at \in {"COMMITTING", "COMMITTED"} THEN {"commit"} ELSE {"abort"}
      said == WhatTheLogSays(Contents)
  IN \A p \in promised : \A e \in OfId(p.id, said) : Cardinality(Way(p.status) \cup Way(e.status)) < 2

\* No transaction that is committed or aborted stays in a store that serves, whether its records could be
\* deleted or not.
WhatHasEndedLeavesTheStore == status = "ready" => Ended(txns) = {}

\* After a replay each transaction knows the places of exactly those of its records that had an effect, in order.
RecoveredPositionsAreTheLiveOnes ==
  LET Known(s) == \A t \in s.txns : \E e \in WhatTheLogSays(s) : e.id = t.id /\ e.places = t.places
  IN InRecoveries(Known)

\* After a replay no record is left of a transaction that is not there.
OrphansAreDeleted ==
  LET after == AfterCompletion(Contents)
      s == after.s
  IN after.is_taken /\ s.cursor_works =>
       \A n \in Entries(s) : \A i \in LeftIn(s, s.known, n) : OfId(s.log[n + 1][i + 1].txn, s.txns) # {}

\* At replay, too, a transaction only goes where it may, gains participants only while open, and loses none.
ReplayMakesNoIllegalMove ==
  LET Moved(t, then) ==
        /\ MayBecome(t.status, then.status)
        /\ t.partitions \subseteq then.partitions /\ t.subscriptions \subseteq then.subscriptions
        /\ (t.partitions = then.partitions /\ t.subscriptions = then.subscriptions) \/ t.status = "OPEN"
  IN \A t \in txns : \A then \in OfId(t.id, AfterReplay(Contents).s.txns) : Moved(t, then)

\* What a replay finds; deadlines aside, which count from the beginnings then.
RECURSIVE ReplayedToTheEnd(_)
ReplayedToTheEnd(s) == IF IsRead(s) THEN s ELSE With(Replayed(s), ReplayedToTheEnd)
Bare(ts) == {[t EXCEPT !.deadline_ms = 0] : t \in ts}
FoundBy(opened) == Bare(ReplayedToTheEnd(opened).txns)

\* A store that has just been opened and crashes, or is closed, finds the same transactions once more.
ASecondReplayChangesNothing ==
  LET Same(s) == \A again \in {AfterCrash(s, 0).s, AfterReopening(s, s.batching).s} : FoundBy(again) = Bare(s.txns)
      after == AfterCompletion(Contents)
  IN after.is_taken => Same(after.s)

\* A store is ready only when it has read its log to the end: never with a part of it.  A read that fails for good ends
\* the replay, which is then not tried for ever.
AReplayIsCompleteOrFails ==
  LET Complete(s) == \A n \in read_next..Len(log) - 1 : LeftIn(Contents, known, n) = {}
      stopped == AfterStop(Contents)
  IN InRecoveries(Complete) /\ (stopped.is_taken => stopped.s.status # "replaying")

\* The transactions that were committing and aborting are handed to be ended, and those that are open with their
\* deadlines, which count from their beginnings: each exactly once.
WhatIsRecoveredGoesOn ==
  LET Are(s, at) == {t.id : t \in {u \in s.txns : u.status = at}}
      IsBegun(id, deadline) == \E r \in Beginnings(RecordsOf(log)) : r.txn = id /\ deadline = r.start_ms + r.timeout_ms
      GoesOn(s) ==
        LET handed == Handed(Contents)
        IN /\ handed.to_commit = Are(s, "COMMITTING")
           /\ handed.to_abort = Are(s, "ABORTING")
           /\ {each[1] : each \in handed.open} = Are(s, "OPEN")
           /\ \A each \in handed.open : IsBegun(each[1], each[2])
  IN InRecoveries(GoesOn)

-----------------------------------------------------------------------------
(* Ids, the watermark, and time. *)

\* A new id is higher than every id of which a caller was told, through all restarts and however much is trimmed.
IdsAreNeverUsedAgain ==
  \A timeout \in timeout_ms :
    LET after == AfterNew(Contents, timeout)
    IN after.is_taken => after.s.last_id > told_id /\ after.s.last_id > last_id

\* Whenever the store is opened again, it goes on after every id of which a caller was told.
TheLogKnowsTheLastId == RecoveredId(Contents) >= told_id

\* In a store that serves, no transaction lives up to a watermark that was told.
TheWatermarkIsBelowAllThatLive == status = "ready" => \A t \in txns : t.id > told_watermark

\* A watermark is never lower than one that was told before.  It is next to the first transaction that lives; if none
\* does, to the first that is on its way, or to the first id that a restart could give.
TheWatermarkDoesNotGoBack ==
  LET alive == {t.id : t \in txns}
      to_come == {r.txn : r \in Beginnings(Coming(Contents))} \cup {RecoveredId(Contents) + 1}
      highest == Least(IF alive = {} THEN to_come ELSE alive) - 1
  IN status = "ready" => told_watermark <= Watermark(Contents) /\ Watermark(Contents) = highest

\* The transactions that are open and whose time is over are named, the earliest deadline first.
ExactlyWhatIsLateExpires ==
  LET list == Late(Contents)
      Deadline(id) == TheOne(OfId(id, txns)).deadline_ms
  IN status = "ready" =>
       /\ Members(list) = {t.id : t \in {u \in txns : u.status = "OPEN" /\ u.deadline_ms < now_ms}}
       /\ Cardinality(Members(list)) = Len(list)
       /\ \A k \in 1..Len(list) - 1 : Deadline(list[k]) <= Deadline(list[k + 1])

\* A transaction has all the time that was asked for, counted from the call; live, exactly so much from when its record
\* became durable, and no record that comes later moves its deadline.
ADeadlineIsNeverEarly ==
  LET IsKept(t) == \A was \in OfId(t.id, txns) : t.deadline_ms = was.deadline_ms
      IsNew(t) == \E r \in Beginnings(Members(in_flight[1])) : r.txn = t.id /\ t.deadline_ms = now_ms + r.timeout_ms
      Counts(t) == IF OfId(t.id, txns) = {} THEN IsNew(t) ELSE IsKept(t)
  IN /\ \A t \in txns, r \in Beginnings(RecordsOf(log)) : r.txn = t.id => t.deadline_ms >= r.start_ms + r.timeout_ms
     /\ in_flight # <<>> => \A t \in AfterWritten(Contents).s.txns : Counts(t)

-----------------------------------------------------------------------------
(* Statuses. *)

\* Transactions change when an entry becomes durable, as its records say, in order; the caller of a record
\* without an effect is told so.
RECURSIVE SaidByEntry(_, _, _)
SaidByEntry(said, done, at) ==
  LET r == in_flight[1][at]
      mine == Living(OfId(r.txn, said))
      place == <<Len(log), at - 1>>
      then == IF mine = {} THEN Begun(r, place) ELSE SaidThen(TheOne(mine), r, place)
      others == {e \in said : e.id # r.txn}
  IN IF at > Len(in_flight[1]) THEN [said |-> Living(said), done |-> done]
     ELSE IF mine = {} /\ r.op # "NEW" THEN SaidByEntry(said, Append(done, FALSE), at + 1)
     ELSE SaidByEntry(others \cup {then}, Append(done, {then} # mine), at + 1)
OnlyDurableRecordsChangeTheMap ==
  LET Same(after) == after.s.txns = txns
      Moved(t) == [t EXCEPT !.places = [k \in DOMAIN t.places |-> <<t.places[k][1] - Trimmed, t.places[k][2]>>]]
      Durable(after, wanted) == /\ {SaidOf(t) : t \in after.s.txns} = wanted.said
                                /\ [k \in DOMAIN after.told |-> after.told[k].told = "done"] = wanted.done
  IN /\ InAppends(Same)
     /\ InFailures(Same)
     /\ InUpkeep(Same)
     /\ AfterTrim(Contents).s.txns = {Moved(t) : t \in txns}
     /\ in_flight # <<>> => Durable(AfterWritten(Contents), SaidByEntry({SaidOf(t) : t \in txns}, <<>>, 1))

\* No operation is served before the log was read to its end, nor while what the log says is not known.
OnlyACompleteStoreServes ==
  LET Refused(after) == ~after.is_taken
  IN status # "ready" =>
       /\ \A timeout \in timeout_ms : Refused(AfterNew(Contents, timeout))
       /\ \A id \in txn, kind \in op, n \in name : Refused(AfterParticipant(Contents, id, kind, n))
       /\ \A id \in txn, into \in to : Refused(AfterUpdate(Contents, id, into))
       /\ Refused(AfterWatermark(Contents))

\* A new transaction is refused while as many live as may, and only then, where the store serves; those on their way do
\* not count.
ANewOneIsRefusedWhenEnoughLive ==
  \A timeout \in timeout_ms :
    status = "ready" => AfterNew(Contents, timeout).is_taken = (max_active = 0 \/ Cardinality(txns) < max_active)

\* After an append that failed and may be in the log all the same, nothing is decided until the log was read again.
AStoreStopsWhenItDoesNotKnow ==
  LET Stopped(after) == (\E k \in DOMAIN after.told : after.told[k].told = "unknown") => after.s.status = "stopped"
  IN InFailures(Stopped)

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* When batches are flushed and writes come to an end, nobody waits any more.
EveryCallerIsTold == buffer = <<>> /\ in_flight = <<>>

\* When entries go on to be read, the store is ready.
AReplayComesToItsEnd == status # "replaying"

\* A replay comes to an end also if it can read nothing: the store is ready, or failed to open.
AReplayWhoseReadsFailEnds == status # "replaying"

\* When no transaction lives and deletions go on to be written, every ledger but the last one is trimmed.
AllEndedMeansAllIsTrimmed == IsServed /\ ledger # "fenced" /\ txns = {} => Len(ledgers) = 1

-----------------------------------------------------------------------------
(* Recovered is what there was: whatever is lost of deletions, and of what nobody was told to be done. *)

ARestartFindsTheSame ==
  LET Same(after) == after.is_taken => FoundBy(after.s) = Bare(txns)
  IN status = "ready" => Same(AfterCrash(Contents, 0)) /\ InReopenings(Same)

-----------------------------------------------------------------------------
(* The order of deletions. *)

\* The order holds in memory as it does in storage, where it is among the promises above.
TheOrderHoldsInMemory == OthersAfterBeginnings(Contents, known)

\* What is deleted when exactly these records are.
Places(s) == UNION {{<<n, i>> : i \in AllOf(s, n)} : n \in Entries(s)}
DeletionOf(s, places) ==
  LET Left(n) == {i \in AllOf(s, n) : <<n, i>> \notin places}
      parts == {n \in Entries(s) : Left(n) # {} /\ Left(n) # AllOf(s, n)}
  IN Settled(Acks(0, {n \in Entries(s) : Left(n) = {}}, {[entry |-> n, remaining |-> Left(n)] : n \in parts}))

\* Whether a store that finds this deleted finds none of the transactions that have ended.
NothingReturns(s, a) ==
  LET Found(opened) == {t.id : t \in ReplayedToTheEnd(opened).txns}
  IN With(Opened(s, a, s.batching), Found) \cap {e.id : e \in Ended(WhatTheLogSays(s))} = {}

\* Whichever records of the log are deleted, in the order or against it: with it, no ended transaction returns.
TheOrderIsWhyNothingReturns ==
  \A places \in SUBSET Places(Contents) :
    LET a == DeletionOf(Contents, places) IN OthersAfterBeginnings(Contents, a) => NothingReturns(Contents, a)

\* Two that do not hold, as controls: that any deletion does, and that it is enough to look at the last record, which has
\* no effect without the step before it.
EndsAfterBeginnings(s, a) ==
  \A e \in Ended(WhatTheLogSays(s)) : IsLeftIn(s, a, e.places[1]) => IsLeftIn(s, a, Last(e.places))
AnyDeletionWouldDo == \A places \in SUBSET Places(Contents) : NothingReturns(Contents, DeletionOf(Contents, places))
TheLastRecordIsEnough ==
  \A places \in SUBSET Places(Contents) :
    LET a == DeletionOf(Contents, places) IN EndsAfterBeginnings(Contents, a) => NothingReturns(Contents, a)
=============================================================================
