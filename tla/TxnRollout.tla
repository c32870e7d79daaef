------------------------------- MODULE TxnRollout -------------------------------
(*****************************************************************************)
(* Upgrade and downgrade of brokers whose transaction logs hold batches      *)
(* (PIP-160, "Compatibility", "Upgrade" and "Downgrade").                    *)
(*                                                                           *)
(* Twin of model/txn_rollout.py: the same actions and settings, equal states *)
(* and steps.  Step grain: one step of an operator, of one store or of all   *)
(* stores, or the restart of a broker.                                       *)
(*                                                                           *)
(*   brokers    old ones cannot read batches; new ones have a flag           *)
(*              (transactionLogBatchedWriteEnabled)                          *)
(*   stores     a transaction log (MLTransactionLogImpl), open at one broker *)
(*              or closed; it writes batches or plain entries                *)
(*   upgrade    flags are enabled when all brokers are new                   *)
(*   downgrade  flags off, every store reopened, the last ledger of each     *)
(*              recorded, transactions end, logs are trimmed; brokers may be *)
(*              old again when every recorded ledger is trimmed              *)
(*                                                                           *)
(* A ledger has no id: it is the sequence of its undeleted entries.  A log   *)
(* is a sequence of ledgers; the last one takes writes.  A recorded ledger   *)
(* is represented by its index among the ledgers that are not trimmed, or by *)
(* 0 after it is trimmed.                                                    *)
(*                                                                           *)
(* Not modelled: what the model does not model.                              *)
(*****************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  None,
  \* Settings, and rules in which versions and operators differ.  Config in model/txn_rollout.py explains them.
  brokers, stores, batch_index_acks, operators_follow_steps, last_ledgers_recorded, flag_is_read_at_open,
  batch_index_deletion_needs_batching,
  \* The values of the actions' arguments.  Brokers and stores are numbered from 0: broker b is cluster[b + 1].
  broker, store, on, records, entry

VARIABLES
  cluster,  \* of each broker [new, flag]: whether it has PIP-160, and whether its flag is on
  logs      \* of each store [owner, batching, ledgers, last_batched_ledger]: the broker that has the store open, or
            \* None; whether it writes batches; its ledgers; the recorded last ledger that may hold batches, or None

\* An undeleted entry is [batch, open, ended]: the number of records of the batch (0 for a plain entry, which has one),
\* and the numbers of undeleted records of open and of ended transactions.

vars == <<cluster, logs>>

Contents == [cluster |-> cluster, logs |-> logs]

-----------------------------------------------------------------------------
(* Logs. *)

\* The number of undeleted records of an entry.
UndeletedIn(e) == e.open + e.ended
IsUndeleted(e) == UndeletedIn(e) > 0

\* Joined: the undeleted entries of the first k ledgers, in order.  EntriesOf: those of all ledgers.
RECURSIVE Joined(_, _)
Joined(ledgers, k) == IF k = 0 THEN <<>> ELSE Joined(ledgers, k - 1) \o ledgers[k]
EntriesOf(log) == Joined(log.ledgers, Len(log.ledgers))

RECURSIVE SumOf(_, _)
SumOf(numbers, k) == IF k = 0 THEN 0 ELSE numbers[k] + SumOf(numbers, k - 1)
Sum(numbers) == SumOf(numbers, Len(numbers))

\* The number of undeleted records of open transactions.
OpenIn(log) == LET all == EntriesOf(log) IN Sum([k \in DOMAIN all |-> all[k].open])
\* Whether a log has an undeleted batch.
HasBatch(log) == \E k \in DOMAIN log.ledgers : \E i \in DOMAIN log.ledgers[k] : log.ledgers[k][i].batch > 0

\* Whether a store with this `batching` can delete single records of a batch, and recovers such deletions.
DeletesBatchIndexes(batching) == batching \/ batch_index_acks \/ ~batch_index_deletion_needs_batching

LastOf(log) == log.ledgers[Len(log.ledgers)]
FrontOf(log) == SubSeq(log.ledgers, 1, Len(log.ledgers) - 1)

\* Rolls over to a new ledger, which replaces an empty last ledger.  If the replaced ledger was the recorded one, the
\* ledger before takes its place; without such a ledger, the recorded ledger counts as trimmed (0).
RolledOver(log) ==
  IF LastOf(log) # <<>> THEN [log EXCEPT !.ledgers = Append(@, <<>>)]
  ELSE [log EXCEPT !.last_batched_ledger = IF @ = Len(log.ledgers) THEN @ - 1 ELSE @]

\* FullyDeletedInFront: the number of fully deleted ledgers at the front, without the last ledger.  An open store trims
\* them (Trimmed).
RECURSIVE FullyDeletedInFront(_, _)
FullyDeletedInFront(ledgers, k) ==
  IF k < Len(ledgers) /\ ledgers[k] = <<>> THEN FullyDeletedInFront(ledgers, k + 1) ELSE k - 1
Trimmed(log) ==
  LET trimmed == FullyDeletedInFront(log.ledgers, 1)
  IN IF log.owner = None THEN log
     ELSE [log EXCEPT !.ledgers = SubSeq(@, trimmed + 1, Len(@)),
                      !.last_batched_ledger = IF @ = None THEN None ELSE IF @ > trimmed THEN @ - trimmed ELSE 0]

\* The entry after `count` of its transactions ended.  Their records are deleted, if the store can delete them.
AfterEndOf(log, e, count) ==
  IF e.batch > 1 /\ ~DeletesBatchIndexes(log.batching) THEN [e EXCEPT !.open = @ - count, !.ended = @ + count]
  ELSE [e EXCEPT !.open = @ - count]

\* The log of an open store after all its transactions ended.
AllEnded(log) ==
  LET LedgerAfterEnds(ledger) ==
        SelectSeq([i \in DOMAIN ledger |-> AfterEndOf(log, ledger[i], ledger[i].open)], IsUndeleted)
  IN IF log.owner = None THEN log
     ELSE [log EXCEPT !.ledgers = [k \in DOMAIN log.ledgers |-> LedgerAfterEnds(log.ledgers[k])]]

\* An entry as an opening recovers it.  An entry with one record does not change.  With batch index deletion, all
\* undeleted records of a batch count as open, also those of ended transactions; without it, all records do.
Recovered(e, deletes_batch_indexes) ==
  IF e.batch < 2 THEN e
  ELSE [batch |-> e.batch, open |-> IF deletes_batch_indexes THEN UndeletedIn(e) ELSE e.batch, ended |-> 0]

-----------------------------------------------------------------------------
(* Operators. *)

FlagsAreOff(s) == \A b \in DOMAIN s.cluster : ~s.cluster[b].flag
\* Whether the last ledger that may hold batches was recorded, and then trimmed.
RecordedLedgerIsTrimmed(log) == log.last_batched_ledger # None /\ log.last_batched_ledger = 0
MayDowngrade(s) == FlagsAreOff(s) /\ \A k \in DOMAIN s.logs : RecordedLedgerIsTrimmed(s.logs[k])
AllAreNew(s) == \A b \in DOMAIN s.cluster : s.cluster[b].new

Closed(log) == [log EXCEPT !.owner = None, !.batching = FALSE]
Stopped(s, b) ==
  [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> IF s.logs[k].owner = b THEN Closed(s.logs[k]) ELSE s.logs[k]]]
Replaced(s, b, is_new) == [Stopped(s, b) EXCEPT !.cluster[b + 1] = [new |-> is_new, flag |-> FALSE]]

AfterUpgrade(s, b) == IF s.cluster[b + 1].new THEN s ELSE Replaced(s, b, TRUE)
AfterDowngrade(s, b) ==
  IF ~s.cluster[b + 1].new \/ (operators_follow_steps /\ ~MayDowngrade(s)) THEN s ELSE Replaced(s, b, FALSE)

\* Sets the flags of these brokers.  Without flag_is_read_at_open, the stores of these brokers change with the flags.
WithFlags(s, of_brokers, is_on) ==
  LET changed == {b \in of_brokers : s.cluster[b + 1].flag # is_on}
      ModeOf(log) ==
        IF ~flag_is_read_at_open /\ log.owner \in changed THEN [log EXCEPT !.batching = is_on] ELSE log
  IN [cluster |-> [b \in DOMAIN s.cluster |->
                     IF b - 1 \in changed THEN [new |-> TRUE, flag |-> is_on] ELSE s.cluster[b]],
      logs |-> [k \in DOMAIN s.logs |-> ModeOf(s.logs[k])]]

\* Enabling a flag discards the recorded ledgers.
WithoutRecordedLedgers(s) ==
  [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> [s.logs[k] EXCEPT !.last_batched_ledger = None]]]
IsRefusedFlag(s, b, is_on) == ~s.cluster[b + 1].new \/ (is_on /\ operators_follow_steps /\ ~AllAreNew(s))
AfterFlag(s, b, is_on) ==
  CASE IsRefusedFlag(s, b, is_on) -> s
    [] ~IsRefusedFlag(s, b, is_on) /\ is_on -> WithoutRecordedLedgers(WithFlags(s, {b}, TRUE))
    [] OTHER -> WithFlags(s, {b}, FALSE)
AfterFlagsOff(s) == WithFlags(s, 0..brokers - 1, FALSE)

\* Whether operators may not record the last ledgers now.  The last ledgers of all stores are recorded together, so the
\* first store shows whether they are recorded already.
CannotRecord(s) ==
  \/ ~FlagsAreOff(s)
  \/ last_ledgers_recorded = "after_stores_reopened" /\ \E k \in DOMAIN s.logs : s.logs[k].batching
  \/ s.logs[1].last_batched_ledger # None
AfterRecordLastLedgers(s) ==
  IF CannotRecord(s) THEN s
  ELSE [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> [s.logs[k] EXCEPT !.last_batched_ledger = Len(s.logs[k].ledgers)]]]

-----------------------------------------------------------------------------
(* Stores. *)

\* An old broker cannot read a batch.  If a broker cannot read the log, the store stays closed.
CanRead(s, log, b) == s.cluster[b + 1].new \/ ~HasBatch(log)
Opened(s, log, b) ==
  LET is_on == s.cluster[b + 1].flag
      deletes_batch_indexes == DeletesBatchIndexes(is_on)
      read == [k \in DOMAIN log.ledgers |->
                 [i \in DOMAIN log.ledgers[k] |-> Recovered(log.ledgers[k][i], deletes_batch_indexes)]]
  IN IF CanRead(s, log, b) THEN RolledOver([log EXCEPT !.owner = b, !.batching = is_on, !.ledgers = read])
     ELSE Closed(log)

AfterOpening(s, k, b) ==
  IF s.logs[k + 1].owner # None THEN s ELSE [s EXCEPT !.logs[k + 1] = Opened(s, s.logs[k + 1], b)]
AfterClosing(s, k) == [s EXCEPT !.logs[k + 1] = Closed(@)]
\* A reopening opens a closed store at the first broker.
OwnerOrFirst(log) == IF log.owner = None THEN 0 ELSE log.owner
AfterReopening(s) ==
  [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> Opened(s, s.logs[k], OwnerOrFirst(s.logs[k]))]]

\* The entries of n records: one batch, or n plain entries.
Written(log, n) ==
  IF log.batching THEN <<[batch |-> n, open |-> n, ended |-> 0]>>
  ELSE [i \in 1..n |-> [batch |-> 0, open |-> 1, ended |-> 0]]
AfterWriting(s, k, n) ==
  LET log == s.logs[k + 1]
  IN IF log.owner = None THEN s
     ELSE [s EXCEPT !.logs[k + 1].ledgers = Append(FrontOf(log), LastOf(log) \o Written(log, n))]
AfterRoll(s, k) ==
  LET log == s.logs[k + 1]
  IN IF log.owner = None THEN s ELSE IF LastOf(log) = <<>> THEN s ELSE [s EXCEPT !.logs[k + 1] = RolledOver(log)]

\* The ledgers after a transaction of the n-th entry ended.  Entries are counted from 0, beginning with ledger k.
RECURSIVE AfterEndAt(_, _, _, _)
AfterEndAt(log, ledgers, k, n) ==
  CASE k > Len(ledgers) -> ledgers
    [] k <= Len(ledgers) /\ n >= Len(ledgers[k]) -> AfterEndAt(log, ledgers, k + 1, n - Len(ledgers[k]))
    [] OTHER -> LET e == ledgers[k][n + 1]
                IN IF e.open = 0 THEN ledgers
                   ELSE [ledgers EXCEPT ![k] = SelectSeq([@ EXCEPT ![n + 1] = AfterEndOf(log, e, 1)], IsUndeleted)]
AfterEnd(s, k, n) ==
  LET log == s.logs[k + 1]
  IN IF log.owner = None THEN s ELSE [s EXCEPT !.logs[k + 1].ledgers = AfterEndAt(log, @, 1, n)]
AfterEnds(s) == [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> AllEnded(s.logs[k])]]
AfterTrim(s) == [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> Trimmed(s.logs[k])]]

-----------------------------------------------------------------------------
(* Steps. *)

\* Makes these contents the next state.
Become(given) == \E s \in {given} : cluster' = s.cluster /\ logs' = s.logs

Init == /\ cluster = [b \in 1..brokers |-> [new |-> FALSE, flag |-> FALSE]]
        /\ logs = [k \in 1..stores |->
                     [owner |-> None, batching |-> FALSE, ledgers |-> <<<<>>>>, last_batched_ledger |-> None]]

UpgradeBroker == \E b \in broker : Become(AfterUpgrade(Contents, b))
DowngradeBroker == \E b \in broker : Become(AfterDowngrade(Contents, b))
RestartBroker == \E b \in broker : Become(Stopped(Contents, b))
SetFlag == \E b \in broker, is_on \in on : Become(AfterFlag(Contents, b, is_on))
TurnFlagsOff == Become(AfterFlagsOff(Contents))
RecordLastLedgers == Become(AfterRecordLastLedgers(Contents))
OpenStore == \E k \in store, b \in broker : Become(AfterOpening(Contents, k, b))
CloseStore == \E k \in store : Become(AfterClosing(Contents, k))
ReopenStores == Become(AfterReopening(Contents))
WriteRecords == \E k \in store, n \in records : Become(AfterWriting(Contents, k, n))
RollLedger == \E k \in store : Become(AfterRoll(Contents, k))
EndTransaction == \E k \in store, n \in entry : Become(AfterEnd(Contents, k, n))
EndTransactions == Become(AfterEnds(Contents))
Trim == Become(AfterTrim(Contents))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

EntriesAtMost(n) == \A k \in DOMAIN logs : Len(EntriesOf(logs[k])) <= n
LedgersAtMost(n) == \A k \in DOMAIN logs : Len(logs[k].ledgers) <= n
=============================================================================
