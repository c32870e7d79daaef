--------------------------- MODULE TxnLogProperties ---------------------------
(***************************************************************************)
(* Guarantees of the coordinator's transaction log: the twin of            *)
(* invariants/txn_log.py, under the same names.                            *)
(*                                                                         *)
(* A guarantee about steps is stated as an invariant: from every reached   *)
(* state, each action with each argument preserves it. Most are measured   *)
(* against the whole log, read from its first record by transition rules   *)
(* that are restated here.                                                 *)
(*                                                                         *)
(* The last part is about the order of deletions: it holds in memory and   *)
(* in storage, and it is the reason why no ended transaction returns, for  *)
(* every set of deleted records.                                           *)
(***************************************************************************)
EXTENDS TxnLog

\* Each action with each of its arguments.
InAppends(Holds(_)) ==
  /\ \A timeout \in timeout_ms : Holds(AfterNew(Contents, timeout))
  /\ \A id \in txn, kind \in op, n \in name : Holds(AfterParticipant(Contents, id, kind, n))
  /\ \A id \in txn, into \in to : Holds(AfterUpdate(Contents, id, into))
  /\ Holds(AfterFlush(Contents))
InFailures(Holds(_)) ==
  /\ \A n \in fail_write_durable : Holds(AfterFailWrite(Contents, n))
  /\ \A n \in fence_durable : Holds(AfterFence(Contents, n))
  /\ Holds(AfterFailLedgerCreation(Contents))
InReopens(Holds(_)) == \A batched \in reopen_batching : Holds(AfterReopen(Contents, batched))
InCrashes(Holds(_)) == \A n \in crash_durable : Holds(AfterCrash(Contents, n))
InReplay(Holds(_)) ==
  Holds(AfterReplay(Contents)) /\ Holds(AfterCompleteReplay(Contents)) /\ Holds(AfterFailRead(Contents))
\* Actions that complete no request and change no transaction, apart from trimming.
InUpkeep(Holds(_)) ==
  /\ Holds(AfterRoll(Contents))
  /\ Holds(AfterPersist(Contents))
  /\ Holds(AfterBreakCursor(Contents))
  /\ Holds(AfterLowWatermark(Contents))
\* A store becomes ready.
InRecoveries(Holds(_)) ==
  LET Recovered(after) == after.is_taken /\ after.s.status = "ready" => Holds(after.s)
  IN Recovered(AfterCompleteReplay(Contents)) /\ Recovered(AfterFailRead(Contents))

CanDelete == status = "ready" /\ cursor_works
Entries(s) == 0..EndOf(s) - 1
Trimmed == Len(log) - Len(AfterTrim(Contents).s.log)

-----------------------------------------------------------------------------
(* The transactions as the log describes them, from its first record to its last. *)

\* The legal status transitions.
Transitions == {<<"OPEN", "COMMITTING">>, <<"OPEN", "ABORTING">>, <<"COMMITTING", "COMMITTED">>, <<"ABORTING",
      "ABORTED">>}
MayReach(before, after) ==
  before = after \/ <<before, after>> \in Transitions
    \/ \E between \in {"COMMITTING", "ABORTING"} : <<before, between>> \in Transitions /\ <<between,
          after>> \in Transitions

Begun(r, position) == [id |-> r.txn, status |-> "OPEN", partitions |-> {}, subscriptions |-> {},
      positions |-> <<position>>]

\* The logged transaction after one more of its records; unchanged if the record has no effect.
LoggedAfter(logged, r, position) ==
  LET more == [logged EXCEPT !.positions = Append(@, position)]
  IN CASE r.op = "NEW" -> more
       [] r.op = "UPDATE" -> IF <<logged.status, r.to>> \in Transitions THEN [more EXCEPT !.status = r.to] ELSE logged
       [] r.op = "ADD_PARTITION" -> IF logged.status = "OPEN" THEN [more EXCEPT !.partitions = @
             \cup {r.name}] ELSE logged
       [] OTHER -> IF logged.status = "OPEN" THEN [more EXCEPT !.subscriptions = @ \cup {r.name}] ELSE logged

RECURSIVE LoggedFrom(_, _, _, _)
LoggedFrom(s, found, n, at) ==
  LET r == s.log[n + 1][at + 1]
      mine == OfId(r.txn, found)
      Next(then) == LoggedFrom(s, then, n, at + 1)
  IN IF n = EndOf(s) THEN found
     ELSE IF at = SizeOf(s, n) THEN LoggedFrom(s, found, n + 1, 0)
     ELSE IF mine # {} THEN With((found \ mine) \cup {LoggedAfter(TheOne(mine), r, <<n, at>>)}, Next)
     ELSE With(IF r.op = "NEW" THEN found \cup {Begun(r, <<n, at>>)} ELSE found, Next)
LoggedTransactions(s) == LoggedFrom(s, {}, 0, 0)

LoggedForm(t) == [id |-> t.id, status |-> t.status, partitions |-> t.partitions, subscriptions |-> t.subscriptions,
              positions |-> t.positions]
Ongoing(logged) == {e \in logged : ~HasEnded(e.status)}
Ended(logged) == {e \in logged : HasEnded(e.status)}

PendingRequests(s) ==
  LET Calls(entry) == [k \in DOMAIN entry |-> <<entry[k].txn, entry[k].op>>]
      CallsOf[k \in 0..Len(s.in_flight)] == IF k = 0 THEN <<>> ELSE CallsOf[k - 1] \o Calls(s.in_flight[k])
  IN CallsOf[Len(s.in_flight)] \o Calls(s.buffer)

-----------------------------------------------------------------------------
(* Durability. *)

\* A request succeeds only after its record is in the log. A request that needs no record succeeds only if the
\* transaction already has the requested status.
AcknowledgedOperationIsDurable ==
  LET IsDone(after) == \E k \in DOMAIN after.completions : after.completions[k].result = "success"
      Never(after) == ~IsDone(after)
      Updated(id, into, after) == IsDone(after) => after.s = Contents /\ \A t \in OfId(id, txns) : t.status = into
      Durable(after) == /\ Len(after.s.log) = Len(log) + 1
                        /\ Last(after.s.log) = in_flight[1]
                        /\ Len(after.completions) = Len(in_flight[1])
                        /\ \A k \in DOMAIN after.completions : CompletionOf(in_flight[1][k],
                              after.completions[k].result) = after.completions[k]
  IN /\ \A timeout \in timeout_ms : Never(AfterNew(Contents, timeout))
     /\ \A id \in txn, kind \in op, n \in name : Never(AfterParticipant(Contents, id, kind, n))
     /\ \A id \in txn, into \in to : Updated(id, into, AfterUpdate(Contents, id, into))
     /\ Never(AfterFlush(Contents))
     /\ InFailures(Never)
     /\ InReopens(Never)
     /\ in_flight # <<>> => Durable(AfterCompleteWrite(Contents))

\* Every request completes exactly once, in the order of the requests. A request that a failed ledger rejects at once
\* may overtake those in flight. A crash completes none.
EveryRequestCompletesOnce ==
  LET IsBag(one, other) ==
        /\ Len(one) = Len(other)
        /\ \A k \in DOMAIN one : Cardinality({j \in DOMAIN one : one[j] = one[k]})
                                   = Cardinality({j \in DOMAIN other : other[j] = one[k]})
      CompletedCalls(after) == [k \in DOMAIN after.completions |-> <<after.completions[k].txn,
            after.completions[k].op>>]
      InTurn(after, called) == PendingRequests(Contents) \o called = CompletedCalls(after) \o PendingRequests(after.s)
      InAnyTurn(after, called) == IsBag(PendingRequests(Contents) \o called,
            CompletedCalls(after) \o PendingRequests(after.s))
      Once(after, called) ==
        after.is_taken => IF after.s.ledger \in {"fenced", "closed"} THEN InAnyTurn(after, called)
                          ELSE InTurn(after, called)
      OfNobodyElse(after) == Once(after, <<>>)
      Lost(after) == PendingRequests(after.s) = <<>> /\ after.completions = <<>>
  IN /\ \A timeout \in timeout_ms : Once(AfterNew(Contents, timeout), <<<<last_id + 1, "NEW">>>>)
     /\ \A id \in txn, kind \in op, n \in name : Once(AfterParticipant(Contents, id, kind, n), <<<<id, kind>>>>)
     /\ \A id \in txn, into \in to :
          LET after == AfterUpdate(Contents, id, into)
          IN after.is_taken => InAnyTurn(after, <<<<id, "UPDATE">>>>)
     /\ OfNobodyElse(AfterFlush(Contents))
     /\ OfNobodyElse(AfterCompleteWrite(Contents))
     /\ OfNobodyElse(AfterTrim(Contents))
     /\ InFailures(OfNobodyElse)
     /\ InReopens(OfNobodyElse)
     /\ InUpkeep(OfNobodyElse)
     /\ InReplay(OfNobodyElse)
     /\ InCrashes(Lost)

\* Entries are appended whole and in the order of submission. Only trimming removes entries.
LogContainsSubmittedEntriesInOrder ==
  LET Grown(after) ==
        LET new == Len(after.s.log) - Len(log)
        IN 0 <= new /\ new <= Len(in_flight) /\ after.s.log = log \o SubSeq(in_flight, 1, new)
  IN /\ InAppends(Grown)
     /\ Grown(AfterCompleteWrite(Contents))
     /\ InFailures(Grown)
     /\ InReopens(Grown)
     /\ InCrashes(Grown)
     /\ InUpkeep(Grown)
     /\ InReplay(Grown)
     /\ AfterTrim(Contents).s.log = SubSeq(log, Trimmed + 1, Len(log))

-----------------------------------------------------------------------------
(* Deletions. *)

\* In a ready store, exactly the records without an ongoing transaction are deleted. An entry is deleted as a whole
\* exactly when none of its records remains.
EntryIsDeletedIffAllItsRecordsAre ==
  LET positions == UNION {Members(t.positions) : t \in txns}
      Needed(n) == {i \in AllOf(Contents, n) : <<n, i>> \in positions}
  IN CanDelete => \A n \in Entries(Contents) : /\ RemainingIn(Contents, acks, n) = Needed(n)
                                              /\ IsDeleted(acks, n) = (Needed(n) = {})

\* Whether a record is undeleted.
IsLeftIn(s, a, position) == position[2] \in RemainingIn(s, a, position[1])
EndedTransactionRecordsAreDeleted ==
  LET s == AfterCompleteWrite(Contents).s
      IsGone(t) == \A position \in Members(t.positions) : ~IsLeftIn(s, s.acks, position)
  IN s.cursor_works => \A t \in txns : OfId(t.id, s.txns) # {} \/ IsGone(t)

\* A deleted record stays deleted while the store is open.
DeletionsAreMonotone ==
  LET Grown(after) ==
        \A n \in Entries(Contents) : RemainingIn(after.s, after.s.acks, n) \subseteq RemainingIn(Contents, acks, n)
      Trims(after) ==
        \A n \in Entries(after.s) :
          RemainingIn(after.s, after.s.acks, n) \subseteq RemainingIn(Contents, acks, n + Len(log) - EndOf(after.s))
  IN /\ InAppends(Grown)
     /\ Grown(AfterCompleteWrite(Contents))
     /\ InFailures(Grown)
     /\ InUpkeep(Grown)
     /\ InReplay(Grown)
     /\ Trims(AfterTrim(Contents))

\* A record of an ended transaction is deleted only if its NEW record is.
NewRecordDeletedFirst(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) :
    IsLeftIn(s, a, e.positions[1]) => \A position \in Members(e.positions) : IsLeftIn(s, a, position)
RecordIsDurablyDeletedOnlyAfterNewRecord == NewRecordDeletedFirst(Contents, durable)

\* Whether one cursor record can hold all deletions.
FitsInOneRecord == /\ Cardinality({n \in acks.deleted : n - 1 \notin acks.deleted
                                            \/ \E k \in DOMAIN ledgers : n = SumTo(ledgers, k - 1)}) <= max_ranges
        /\ Cardinality(acks.partial) <= max_batch_records
CleanCursorHasPersistedAllDeletions ==
  ~dirty /\ FitsInOneRecord => \A n \in Entries(Contents) : RemainingIn(Contents, durable, n)
        \subseteq RemainingIn(Contents, acks, n)

\* A clean close and reopen with batching preserves all deletions that fit in one record.
CleanClosePreservesDeletions ==
  LET after == AfterReopen(Contents, TRUE)
  IN TRUE \in reopen_batching /\ after.is_taken /\ FitsInOneRecord /\ cursor_works /\ ledger # "fenced"
        => after.s.acks = acks

\* A cursor record that cannot hold all deletions holds every deletion below some entry and none from there on.
PersistedCursorRecordIsPrefixOfDeletions ==
  LET s == AfterPersist(Contents).s
      Found(n) == RemainingIn(s, s.durable, n)
      Lost == {n \in Entries(s) : Found(n) # RemainingIn(s, s.acks, n)}
  IN dirty /\ ~s.dirty => \A m \in Lost : \A n \in Entries(s) : n >= m => Found(n) = AllOf(s, n)

\* Only whole ledgers below the persisted mark-delete position are trimmed, and never the last one.
OnlyDurablyDeletedLedgersAreTrimmed ==
  LET after == AfterTrim(Contents).s.ledgers
      dropped == Len(ledgers) - Len(after)
  IN /\ 0 <= dropped /\ dropped < Len(ledgers)
     /\ after = SubSeq(ledgers, dropped + 1, Len(ledgers))
     /\ SumTo(ledgers, dropped) = Trimmed
     /\ Trimmed <= durable.mark
     /\ durable.mark >= 0 /\ SumTo(ledgers, Len(ledgers)) = Len(log)

\* Without ongoing transactions, the mark-delete position is at the end of the log, so everything written can be
\* trimmed.
MarkDeleteReachesLogEndWithoutOngoingTransactions == CanDelete /\ txns = {} => acks.mark = Len(log)

-----------------------------------------------------------------------------
(* Recovery. *)

\* A ready store has exactly the ongoing transactions of the log, with their status, participants and positions.
ReadyStoreEqualsLog == status = "ready" => {LoggedForm(t) : t \in txns} = Ongoing(LoggedTransactions(Contents))

\* Recovery finds every acknowledged transaction that has not ended, with all its acknowledged participants. Its
\* status is the acknowledged one or one reachable from it.
RecoveryPreservesAcknowledgedState ==
  LET IsKept(p, t) == /\ p.partitions \subseteq t.partitions
                      /\ p.subscriptions \subseteq t.subscriptions
                      /\ MayReach(p.status, t.status)
      Kept(s) == \A p \in acknowledged : HasEnded(p.status) \/ \E t \in OfId(p.id, s.txns) : IsKept(p, t)
  IN InRecoveries(Kept)

\* A transaction whose commit or abort was acknowledged is not ongoing after any later replay.
EndedTransactionIsNotRecovered ==
  LET after == AfterCompleteReplay(Contents)
  IN after.is_taken => \A p \in acknowledged : HasEnded(p.status) => Ongoing(OfId(p.id, after.s.txns)) = {}

\* The log never contains the opposite of an acknowledged commit or abort decision. No restart can find another
\* decision.
AcknowledgedDecisionIsFinal ==
  LET Way(at) == IF at = "OPEN" THEN {} ELSE IF at \in {"COMMITTING", "COMMITTED"} THEN {"commit"} ELSE {"abort"}
      logged == LoggedTransactions(Contents)
  IN \A p \in acknowledged : \A e \in OfId(p.id, logged) : Cardinality(Way(p.status) \cup Way(e.status)) < 2

\* A ready store has no COMMITTED or ABORTED transaction, whether its records could be deleted or not.
EndedTransactionLeavesTheMap == status = "ready" => Ended(txns) = {}

\* After a replay, a transaction has the positions of exactly its effective records, in log order.
RecoveredPositionsEqualEffectiveRecords ==
  LET Known(s) == \A t \in s.txns : \E e \in LoggedTransactions(s) : e.id = t.id /\ e.positions = t.positions
  IN InRecoveries(Known)

\* After a replay, no undeleted record belongs to an unknown transaction. Repeated restarts converge.
ReplayDeletesOrphanRecords ==
  LET after == AfterCompleteReplay(Contents)
      s == after.s
  IN after.is_taken /\ s.cursor_works =>
       \A n \in Entries(s) : \A i \in RemainingIn(s, s.acks, n) : OfId(s.log[n + 1][i + 1].txn, s.txns) # {}

\* Replay takes only legal status transitions, adds participants only to OPEN transactions, and removes none.
ReplayTakesOnlyLegalTransitions ==
  LET Moved(t, then) ==
        /\ MayReach(t.status, then.status)
        /\ t.partitions \subseteq then.partitions /\ t.subscriptions \subseteq then.subscriptions
        /\ (t.partitions = then.partitions /\ t.subscriptions = then.subscriptions) \/ t.status = "OPEN"
  IN \A t \in txns : \A then \in OfId(t.id, AfterReplay(Contents).s.txns) : Moved(t, then)

\* The result of a replay, without deadlines, which then count from the start time.
RECURSIVE ReplayedToTheEnd(_)
ReplayedToTheEnd(s) == IF IsRead(s) THEN s ELSE With(Replayed(s), ReplayedToTheEnd)
Bare(ts) == {[t EXCEPT !.deadline_ms = 0] : t \in ts}
FoundBy(opened) == Bare(ReplayedToTheEnd(opened).txns)

\* A second replay finds the same transactions, after a clean close and after a crash.
ReplayIsIdempotent ==
  LET Same(s) == \A again \in {AfterCrash(s, 0).s, AfterReopen(s, s.batching).s} : FoundBy(again) = Bare(s.txns)
      after == AfterCompleteReplay(Contents)
  IN after.is_taken => Same(after.s)

\* A store becomes ready only after reading its log to the end. A read that fails for good ends the replay.
StoreIsReadyOnlyAfterCompleteReplay ==
  LET Complete(s) == \A n \in read_position..Len(log) - 1 : RemainingIn(Contents, acks, n) = {}
      stopped == AfterFailRead(Contents)
  IN InRecoveries(Complete) /\ (stopped.is_taken => stopped.s.status # "replaying")

\* Recovery hands over each COMMITTING and ABORTING transaction to be ended, and each OPEN one with its deadline,
\* exactly once. The deadline is start time plus timeout.
RecoveredTransactionsAreHandedOver ==
  LET Are(s, at) == {t.id : t \in {u \in s.txns : u.status = at}}
      IsBegun(id, deadline) == \E r \in NewRecords(RecordsOf(log)) : r.txn = id /\ deadline = r.start_ms + r.timeout_ms
      GoesOn(s) ==
        LET handed == HandedOver(Contents)
        IN /\ handed.to_commit = Are(s, "COMMITTING")
           /\ handed.to_abort = Are(s, "ABORTING")
           /\ {each[1] : each \in handed.open} = Are(s, "OPEN")
           /\ \A each \in handed.open : IsBegun(each[1], each[2])
  IN InRecoveries(GoesOn)

-----------------------------------------------------------------------------
(* Ids, low watermark, deadlines. *)

\* A new transaction id is higher than every acknowledged id, across restarts, rollovers and trimming.
TransactionIdsAreNeverReused ==
  \A timeout \in timeout_ms :
    LET after == AfterNew(Contents, timeout)
    IN after.is_taken => after.s.last_id > acknowledged_id /\ after.s.last_id > last_id

\* The id that a restart would recover is at least every acknowledged id.
RecoverableIdCoversAcknowledgedIds == RecoveredId(Contents) >= acknowledged_id

\* In a ready store, every ongoing transaction is above every low watermark that was reported.
LowWatermarkIsBelowOngoingTransactions == status = "ready" => \A t \in txns : t.id > reported_watermark

\* The low watermark never decreases, and is the highest sound value. That is one below the first ongoing
\* transaction, or else one below the first pending id or the first id that a restart could assign.
LowWatermarkIsMonotoneAndMaximal ==
  LET ongoing_ids == {t.id : t \in txns}
      to_come == {r.txn : r \in NewRecords(PendingRecords(Contents))} \cup {RecoveredId(Contents) + 1}
      highest == Least(IF ongoing_ids = {} THEN to_come ELSE ongoing_ids) - 1
  IN status = "ready" => reported_watermark <= LowWatermarkOf(Contents) /\ LowWatermarkOf(Contents) = highest

\* The expired transactions are exactly the OPEN ones past their deadline, earliest deadline first.
ExactlyOverdueOpenTransactionsExpire ==
  LET list == Overdue(Contents)
      Deadline(id) == TheOne(OfId(id, txns)).deadline_ms
  IN status = "ready" =>
       /\ Members(list) = {t.id : t \in {u \in txns : u.status = "OPEN" /\ u.deadline_ms < now_ms}}
       /\ Cardinality(Members(list)) = Len(list)
       /\ \A k \in 1..Len(list) - 1 : Deadline(list[k]) <= Deadline(list[k + 1])

\* A transaction has its full timeout, counted from the request. Live, the deadline is the time of durability plus
\* the timeout, and no later record changes it.
DeadlineIsExactAndNeverEarly ==
  LET IsKept(t) == \A was \in OfId(t.id, txns) : t.deadline_ms = was.deadline_ms
      IsNew(t) == \E r \in NewRecords(Members(in_flight[1])) : r.txn = t.id /\ t.deadline_ms = now_ms + r.timeout_ms
      Counts(t) == IF OfId(t.id, txns) = {} THEN IsNew(t) ELSE IsKept(t)
  IN /\ \A t \in txns, r \in NewRecords(RecordsOf(log)) : r.txn = t.id => t.deadline_ms >= r.start_ms + r.timeout_ms
     /\ in_flight # <<>> => \A t \in AfterCompleteWrite(Contents).s.txns : Counts(t)

-----------------------------------------------------------------------------
(* Statuses. *)

\* The logged transactions after the records of the entry that becomes durable.
RECURSIVE LoggedByEntry(_, _, _)
LoggedByEntry(logged, done, at) ==
  LET r == in_flight[1][at]
      mine == Ongoing(OfId(r.txn, logged))
      position == <<Len(log), at - 1>>
      then == IF mine = {} THEN Begun(r, position) ELSE LoggedAfter(TheOne(mine), r, position)
      others == {e \in logged : e.id # r.txn}
  IN IF at > Len(in_flight[1]) THEN [logged |-> Ongoing(logged), done |-> done]
     ELSE IF mine = {} /\ r.op # "NEW" THEN LoggedByEntry(logged, Append(done, FALSE), at + 1)
     ELSE LoggedByEntry(others \cup {then}, Append(done, {then} # mine), at + 1)
OnlyDurableRecordsChangeTransactions ==
  LET Same(after) == after.s.txns = txns
      Moved(t) == [t EXCEPT !.positions = [k \in DOMAIN @ |-> <<@[k][1] - Trimmed, @[k][2]>>]]
      Durable(after, wanted) == /\ {LoggedForm(t) : t \in after.s.txns} = wanted.logged
                                /\ DOMAIN after.completions = DOMAIN wanted.done
                                /\ \A k \in DOMAIN wanted.done :
                                     (after.completions[k].result = "success") = wanted.done[k]
  IN /\ InAppends(Same)
     /\ InFailures(Same)
     /\ InUpkeep(Same)
     /\ AfterTrim(Contents).s.txns = {Moved(t) : t \in txns}
     /\ in_flight # <<>> => Durable(AfterCompleteWrite(Contents), LoggedByEntry({LoggedForm(t) : t \in txns}, <<>>, 1))

\* No request is served before the replay is complete, or after an ambiguous append.
OnlyReadyStoreServesRequests ==
  LET Refused(after) == ~after.is_taken
  IN status # "ready" =>
       /\ \A timeout \in timeout_ms : Refused(AfterNew(Contents, timeout))
       /\ \A id \in txn, kind \in op, n \in name : Refused(AfterParticipant(Contents, id, kind, n))
       /\ \A id \in txn, into \in to : Refused(AfterUpdate(Contents, id, into))
       /\ Refused(AfterLowWatermark(Contents))

\* A new transaction is rejected as too many exactly when `max_active` transactions are ongoing. Pending ones do not
\* count.
NewTransactionIsRejectedIffLimitIsReached ==
  \A timeout \in timeout_ms :
    status = "ready" => AfterNew(Contents, timeout).is_taken = (max_active = 0 \/ Cardinality(txns) < max_active)

\* After an append that failed but may be durable, the store serves nothing until it is reopened.
StoreStopsAfterAmbiguousAppend ==
  LET Stopped(after) == (\E k \in DOMAIN after.completions : after.completions[k].result = "unknown")
        => after.s.status = "stopped"
  IN InFailures(Stopped)

-----------------------------------------------------------------------------
(* Liveness, under fairness of the named actions. *)

\* With fair flushes and write completions, every pending request completes.
EveryRequestCompletes == buffer = <<>> /\ in_flight = <<>>

\* With fair reads, every replay completes.
ReplayTerminates == status # "replaying"

\* With failing reads, every replay ends: the store fails to open.
FailingReplayTerminates == status # "replaying"

\* Without ongoing transactions and with fair cursor writes and trims, every ledger but the last is trimmed.
FullyDeletedLedgersAreTrimmed == CanDelete /\ ledger # "fenced" /\ txns = {} => Len(ledgers) = 1

-----------------------------------------------------------------------------
(* A restart finds the transactions of before, whatever deletions and unacknowledged requests are lost. *)

RestartFindsSameTransactions ==
  LET Same(after) == after.is_taken => FoundBy(after.s) = Bare(txns)
  IN status = "ready" => Same(AfterCrash(Contents, 0)) /\ InReopens(Same)

-----------------------------------------------------------------------------
(* The order of deletions. *)

\* The deletion order holds in memory as well; for persisted deletions it is a guarantee above.
DeletionOrderHoldsInMemory == NewRecordDeletedFirst(Contents, acks)

\* The deletion of exactly these records.
Positions(s) == UNION {{<<n, i>> : i \in AllOf(s, n)} : n \in Entries(s)}
DeletionOf(s, positions) ==
  LET Remaining(n) == {i \in AllOf(s, n) : <<n, i>> \notin positions}
      parts == {n \in Entries(s) : Remaining(n) # {} /\ Remaining(n) # AllOf(s, n)}
  IN Settled(Acks(0, {n \in Entries(s) : Remaining(n) = {}}, {[entry |-> n, remaining |-> Remaining(n)] : n \in parts}))

\* Whether a store that recovers these deletions finds no ended transaction.
NoEndedTransactionReturns(s, a) ==
  LET Found(opened) == {t.id : t \in ReplayedToTheEnd(opened).txns}
  IN With(Opened(s, a, s.batching), Found) \cap {e.id : e \in Ended(LoggedTransactions(s))} = {}

\* For every set of deleted records: if it respects the deletion order, no ended transaction returns.
DeletionOrderImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    LET a == DeletionOf(Contents, positions) IN NewRecordDeletedFirst(Contents, a)
          => NoEndedTransactionReturns(Contents, a)

\* Two controls that fail: any set of deletions suffices; it suffices that the closing record is deleted after the
\* NEW record.
NewRecordDeletedBeforeLast(s, a) ==
  \A e \in Ended(LoggedTransactions(s)) : IsLeftIn(s, a, e.positions[1]) => IsLeftIn(s, a, Last(e.positions))
AnyDeletionImpliesNoReturn == \A positions \in SUBSET Positions(Contents) : NoEndedTransactionReturns(Contents,
      DeletionOf(Contents, positions))
LastRecordOrderImpliesNoReturn ==
  \A positions \in SUBSET Positions(Contents) :
    LET a == DeletionOf(Contents, positions) IN NewRecordDeletedBeforeLast(Contents, a)
          => NoEndedTransactionReturns(Contents, a)
=============================================================================
