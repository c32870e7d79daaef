------------------------------- MODULE TxnRollout -------------------------------
(***************************************************************************)
(* Upgrade and downgrade of brokers whose transaction logs hold batches    *)
(* (PIP-160).                                                              *)
(*                                                                         *)
(* Twin of model/txn_rollout: the same actions, settings and canonical     *)
(* states. One step is one step of an operator or of a store.              *)
(*                                                                         *)
(* Ledgers have no ids: they are a sequence of sequences of undeleted      *)
(* entries, and the last one takes writes. The recorded ledger is the      *)
(* number of the store's ledgers up to it.                                 *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  None,
  \* Settings, and rules on which versions and operators differ.
  brokers, stores, batch_index_acks, operators_follow_steps, last_ledgers_recorded, flag_is_read_at_open,
  batch_index_deletion_needs_batching,
  \* The values of the actions' arguments. Names of brokers and stores start at 0, indexes in sequences at 1.
  broker, store, on, records, entry

VARIABLES
  cluster,  \* of each broker [new, flag]
  logs      \* of each store [owner, batching, ledgers, last_batched_ledger]; an entry is [batch, open, ended]

vars == <<cluster, logs>>

Contents == [cluster |-> cluster, logs |-> logs]

\* Of(value), with the value evaluated once.
With(value, Of(_)) == CHOOSE result \in {Of(each) : each \in {value}} : TRUE

-----------------------------------------------------------------------------
(* Logs. *)

Left(e) == e.open + e.ended
HasLeft(e) == Left(e) > 0

\* The undeleted entries of all ledgers, in order.
RECURSIVE Joined(_, _)
Joined(ledgers, k) == IF k = 0 THEN <<>> ELSE Joined(ledgers, k - 1) \o ledgers[k]
EntriesOf(log) == Joined(log.ledgers, Len(log.ledgers))

RECURSIVE SumOf(_, _)
SumOf(numbers, k) == IF k = 0 THEN 0 ELSE numbers[k] + SumOf(numbers, k - 1)
Sum(numbers) == SumOf(numbers, Len(numbers))

LeftIn(log) == LET all == EntriesOf(log) IN Sum([k \in DOMAIN all |-> Left(all[k])])
OpenIn(log) == LET all == EntriesOf(log) IN Sum([k \in DOMAIN all |-> all[k].open])
HasBatch(log) == \E k \in DOMAIN log.ledgers : \E i \in DOMAIN log.ledgers[k] : log.ledgers[k][i].batch > 0

\* Whether a store in this mode can delete single records of a batch, and recovers such deletions.
DeletesBatchIndexes(batching) == batching \/ batch_index_acks \/ ~batch_index_deletion_needs_batching

LastOf(log) == log.ledgers[Len(log.ledgers)]
FrontOf(log) == SubSeq(log.ledgers, 1, Len(log.ledgers) - 1)

\* Rolls over to a new ledger; an empty last ledger is replaced.
Begun(log) ==
  IF LastOf(log) # <<>> THEN [log EXCEPT !.ledgers = Append(@, <<>>)]
  ELSE [log EXCEPT !.last_batched_ledger = IF @ = Len(log.ledgers) THEN @ - 1 ELSE @]

\* Trims the fully deleted first ledgers, never the last one.
RECURSIVE EmptyInFront(_, _)
EmptyInFront(ledgers, k) ==
  IF k < Len(ledgers) /\ ledgers[k] = <<>> THEN EmptyInFront(ledgers, k + 1) ELSE k - 1
Trimmed(log) ==
  LET gone == EmptyInFront(log.ledgers, 1)
  IN IF log.owner = None THEN log
     ELSE [log EXCEPT !.ledgers = SubSeq(@, gone + 1, Len(@)),
                      !.last_batched_ledger = IF @ = None THEN None ELSE IF @ > gone THEN @ - gone ELSE 0]

\* The entry after some of its transactions ended: their records are deleted, if they can be.
Ended(log, e, count) ==
  IF e.batch > 1 /\ ~DeletesBatchIndexes(log.batching) THEN [e EXCEPT !.open = @ - count, !.ended = @ + count]
  ELSE [e EXCEPT !.open = @ - count]

AllEnded(log) ==
  LET EndedLedger(ledger) == SelectSeq([i \in DOMAIN ledger |-> Ended(log, ledger[i], ledger[i].open)], HasLeft)
  IN IF log.owner = None THEN log
     ELSE [log EXCEPT !.ledgers = [k \in DOMAIN log.ledgers |-> EndedLedger(log.ledgers[k])]]

\* An entry as recovered at open.
Found(e, parts) ==
  IF e.batch < 2 THEN e ELSE [batch |-> e.batch, open |-> IF parts THEN Left(e) ELSE e.batch, ended |-> 0]

-----------------------------------------------------------------------------
(* Operators. *)

FlagsAreOff(s) == \A b \in DOMAIN s.cluster : ~s.cluster[b].flag
IsGone(log) == log.last_batched_ledger # None /\ log.last_batched_ledger = 0
MayDowngrade(s) == FlagsAreOff(s) /\ \A k \in DOMAIN s.logs : IsGone(s.logs[k])
AllAreNew(s) == \A b \in DOMAIN s.cluster : s.cluster[b].new

Closed(log) == [log EXCEPT !.owner = None, !.batching = FALSE]
Stopped(s, b) ==
  [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> IF s.logs[k].owner = b THEN Closed(s.logs[k]) ELSE s.logs[k]]]
Replaced(s, b, is_new) == [Stopped(s, b) EXCEPT !.cluster[b + 1] = [new |-> is_new, flag |-> FALSE]]

AfterUpgrade(s, b) == IF s.cluster[b + 1].new THEN s ELSE Replaced(s, b, TRUE)
AfterDowngrade(s, b) ==
  IF ~s.cluster[b + 1].new \/ (operators_follow_steps /\ ~MayDowngrade(s)) THEN s ELSE Replaced(s, b, FALSE)

\* Sets flags; without flag_is_read_at_open the stores of these brokers change with them.
Turned(s, them, is_on) ==
  LET turned == {b \in them : s.cluster[b + 1].flag # is_on}
      ModeOf(log) ==
        IF ~flag_is_read_at_open /\ log.owner \in turned THEN [log EXCEPT !.batching = is_on] ELSE log
  IN [cluster |-> [b \in DOMAIN s.cluster |-> IF b - 1 \in turned THEN [new |-> TRUE, flag |-> is_on]
        ELSE s.cluster[b]],
      logs |-> [k \in DOMAIN s.logs |-> ModeOf(s.logs[k])]]
Void(s) == [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> [s.logs[k] EXCEPT !.last_batched_ledger = None]]]
IsRefusedFlag(s, b, is_on) == ~s.cluster[b + 1].new \/ (is_on /\ operators_follow_steps /\ ~AllAreNew(s))
AfterFlag(s, b, is_on) ==
  CASE IsRefusedFlag(s, b, is_on) -> s
    [] ~IsRefusedFlag(s, b, is_on) /\ is_on -> Void(Turned(s, {b}, TRUE))
    [] OTHER -> Turned(s, {b}, FALSE)
AfterFlagsOff(s) == Turned(s, 0..brokers - 1, FALSE)

CannotNote(s) ==
  \/ ~FlagsAreOff(s)
  \/ last_ledgers_recorded = "after_stores_reopened" /\ \E k \in DOMAIN s.logs : s.logs[k].batching
  \/ s.logs[1].last_batched_ledger # None
AfterRecordLastLedgers(s) ==
  IF CannotNote(s) THEN s
  ELSE [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> [s.logs[k] EXCEPT !.last_batched_ledger = Len(s.logs[k].ledgers)]]]

-----------------------------------------------------------------------------
(* Stores. *)

CanRead(s, log, b) == s.cluster[b + 1].new \/ ~HasBatch(log)
Opened(s, log, b) ==
  LET is_on == s.cluster[b + 1].flag
      parts == DeletesBatchIndexes(is_on)
      read == [k \in DOMAIN log.ledgers |-> [i \in DOMAIN log.ledgers[k] |-> Found(log.ledgers[k][i], parts)]]
  IN IF CanRead(s, log, b) THEN Begun([log EXCEPT !.owner = b, !.batching = is_on, !.ledgers = read]) ELSE Closed(log)

AfterOpening(s, k, b) ==
  IF s.logs[k + 1].owner # None THEN s ELSE [s EXCEPT !.logs[k + 1] = Opened(s, s.logs[k + 1], b)]
AfterClosing(s, k) == [s EXCEPT !.logs[k + 1] = Closed(@)]
OwnerOrFirst(log) == IF log.owner = None THEN 0 ELSE log.owner
AfterReopening(s) ==
  [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> Opened(s, s.logs[k], OwnerOrFirst(s.logs[k]))]]

Written(log, n) ==
  IF log.batching THEN <<[batch |-> n, open |-> n, ended |-> 0]>>
  ELSE [i \in 1..n |-> [batch |-> 0, open |-> 1, ended |-> 0]]
AfterWriting(s, k, n) ==
  LET log == s.logs[k + 1]
  IN IF log.owner = None THEN s
     ELSE [s EXCEPT !.logs[k + 1].ledgers = Append(FrontOf(log), LastOf(log) \o Written(log, n))]
AfterRoll(s, k) ==
  LET log == s.logs[k + 1]
  IN IF log.owner = None THEN s ELSE IF LastOf(log) = <<>> THEN s ELSE [s EXCEPT !.logs[k + 1] = Begun(log)]

\* The ledgers after a transaction of the n-th entry, counted from 0, ended.
RECURSIVE EndedAt(_, _, _, _)
EndedAt(log, ledgers, k, n) ==
  CASE k > Len(ledgers) -> ledgers
    [] k <= Len(ledgers) /\ n >= Len(ledgers[k]) -> EndedAt(log, ledgers, k + 1, n - Len(ledgers[k]))
    [] OTHER -> LET e == ledgers[k][n + 1]
                IN IF e.open = 0 THEN ledgers
                   ELSE [ledgers EXCEPT ![k] = SelectSeq([@ EXCEPT ![n + 1] = Ended(log, e, 1)], HasLeft)]
AfterEnd(s, k, n) ==
  LET log == s.logs[k + 1]
  IN IF log.owner = None THEN s ELSE [s EXCEPT !.logs[k + 1].ledgers = EndedAt(log, @, 1, n)]
AfterEnds(s) == [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> AllEnded(s.logs[k])]]
AfterTrim(s) == [s EXCEPT !.logs = [k \in DOMAIN s.logs |-> Trimmed(s.logs[k])]]

-----------------------------------------------------------------------------
(* Steps. *)

Become(given) == \E s \in {given} : cluster' = s.cluster /\ logs' = s.logs

Init == /\ cluster = [b \in 1..brokers |-> [new |-> FALSE, flag |-> FALSE]]
        /\ logs = [k \in 1..stores |-> [owner |-> None, batching |-> FALSE, ledgers |-> <<<<>>>>,
              last_batched_ledger |-> None]]

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
(* Bounds. *)

EntriesAtMost(n) == \A k \in DOMAIN logs : Len(EntriesOf(logs[k])) <= n
LedgersAtMost(n) == \A k \in DOMAIN logs : Len(logs[k].ledgers) <= n
=============================================================================
