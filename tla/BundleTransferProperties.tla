----------------------- MODULE BundleTransferProperties ------------------------
(***************************************************************************)
(* Properties of the transfer of a bundle, under the names of              *)
(* invariants/bundle_transfer.py: some of its invariants, and all of its   *)
(* liveness properties.                                                    *)
(***************************************************************************)
EXTENDS BundleTransfer

Producers == 0..producers - 1

\* The sequence ids of a producer in the order of the log.
SequencesOf(t, c) ==
  LET Is(entry) == entry.producer = c
      own == SelectSeq(t.log, Is)
  IN [i \in DOMAIN own |-> own[i].sequence]

\* Every message with a receipt is in the log.
ReceiptedMessageIsInLog ==
  \A k \in Topics, c \in Producers : \A n \in 0..bundle[k].clients[c].done - 1 :
    \E i \in DOMAIN bundle[k].log : bundle[k].log[i] = [producer |-> c, sequence |-> n]

\* The messages of a producer are in the log in order and without gap; a resend may repeat messages, in order.
LogKeepsProducerOrder ==
  \A k \in Topics, c \in Producers :
    LET found == SequencesOf(bundle[k], c)
    IN \A i \in DOMAIN found : found[i] <= IF i = 1 THEN 0 ELSE found[i - 1] + 1

\* With deduplication, every message is in the log at most once.
DeduplicatedLogHasNoDuplicate ==
  \A k \in Topics : LET log == bundle[k].log IN \A i, j \in DOMAIN log : log[i] = log[j] => i = j

\* The broker of an attached client has an object of the client's topic that is neither loading nor disconnected.
AttachedClientHasTopicObject ==
  \A k \in Topics, c \in Clients, b \in Brokers :
    IsAttached(bundle[k].clients[c], b) =>
      PhaseOf(bundle[k].objects[b]) \in {"open", "closing", "closed", "failed"}

\* A broker opens a topic only if the broker is registered, and is the owner of the bundle in its own view.
\* The source of an acquiring record (V1b, V2) still owns the bundle.
TopicIsOpenedByItsOwner ==
  [][\A k \in Topics, b \in Brokers :
       PhaseOf(bundle[k].objects[b]) = "loading" /\ PhaseOf(bundle'[k].objects[b]) = "open" =>
         members[b].registered /\ OwnerIn(ViewOf(S, b)) = b]_vars

\* A broker that opens a topic, and has applied every override, does not fence the owner in the newest record.
LoadFencesNoOwner ==
  [][\A k \in Topics, b \in Brokers :
       LET r == Newest(S)
           isOpened == PhaseOf(bundle[k].objects[b]) = "loading" /\ PhaseOf(bundle'[k].objects[b]) = "open"
           mayLag == \E i \in members[b].view + 2..Len(records) : records[i].forced
       IN isOpened /\ r.state = "owned" /\ r.dst # b /\ ~mayLag => ~IsWriter(bundle[k].objects[r.dst])]_vars

\* The source of Releasing appends the next record only after it has closed the ledger of every topic.
SourceReleasesAfterLedgersAreClosed ==
  [][\A b \in Brokers :
       members[b].duty = "release" /\ members'[b].duty = "" /\ Len(records') > Len(records) =>
         \A k \in Topics : ~IsWriter(bundle'[k].objects[b])]_vars

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* Fair for all six: Deliver, Publish, BeginLoad, OpenTopic, Confirm, CloseLedger, Disconnect, CleanUp, Lookup,
\* Answer, Connect, Admit, Process, Receive, Override, Restart, Register.  Records are applied, duties done, topics
\* loaded and closed, adds confirmed and commands handled; brokers come back, and the leader replaces owners that are
\* gone.  No transfer, crash, failure or lost connection is fair: each may happen before the switch, but not for ever.
\* No run of these properties has FailPublish: after it, only OverrideStuck ends the transfer, and that is not fair.

\* The bundle is eventually owned by a registered broker: transfers end, and unregistered owners are replaced.
BundleIsOwnedByRegisteredBroker == Newest(S).state = "owned" /\ members[Newest(S).dst].registered

\* Every running broker eventually applies the newest record.
ViewsConverge == \A b \in Brokers : members[b].alive => members[b].view = Len(records) - 1

\* Every message that was sent eventually gets its receipt.
PendingMessagesAreReceipted ==
  \A k \in Topics, c \in Producers : bundle[k].clients[c].done = bundle[k].clients[c].begun

\* Every client is eventually attached to the owner, whose topic is open.  Then no lookup is parked.
ClientsAreAttachedToOwner ==
  \A k \in Topics :
    /\ Newest(S).state = "owned"
    /\ PhaseOf(bundle[k].objects[Newest(S).dst]) = "open"
    /\ \A c \in Clients : IsAttached(bundle[k].clients[c], Newest(S).dst)

\* No client stays attached for ever to a topic that is not open.
ClientLeavesClosedTopic ==
  \A k \in Topics, c \in Clients, b \in Brokers :
    IsAttached(bundle[k].clients[c], b) => PhaseOf(bundle[k].objects[b]) = "open"

\* Eventually only the owner has topic objects, and these are open or loading.
OnlyOwnerHasTopicObject ==
  /\ Newest(S).state = "owned"
  /\ \A k \in Topics, b \in Brokers :
       PhaseOf(bundle[k].objects[b]) \in {"none"} \cup IF b = Newest(S).dst THEN {"open", "loading"} ELSE {}
=============================================================================
