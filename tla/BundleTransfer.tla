----------------------------- MODULE BundleTransfer -----------------------------
(******************************************************************************)
(* Transfer of a bundle's topics between brokers, without client lookups      *)
(* (PIP-307, reviewed as PIP-281).                                            *)
(*                                                                            *)
(* Twin of model/bundle_transfer: the same actions and settings, equal states *)
(* and steps, for every `variant`.  Models ServiceUnitStateChannelImpl,       *)
(* BrokerService, PersistentTopic and ServerCnx of the brokers, and           *)
(* ConnectionHandler of the clients.                                          *)
(*                                                                            *)
(* Step grain: one record appended or applied, one command sent, processed or *)
(* received, one add confirmed, one ledger closed or opened.                  *)
(*                                                                            *)
(*   phase 1    the source applies Releasing and fences its topics: clients   *)
(*              stay attached, and their sends and acks are ignored; it       *)
(*              closes each ledger                                            *)
(*   hand-over  the source appends Assigning, the destination Owned           *)
(*   phase 2    the source applies Owned, and closes each session with the    *)
(*              address of the destination, to which clients connect          *)
(*                                                                            *)
(* Brokers, topics and clients are numbered from 0; the producers are the     *)
(* first clients.  A broker's view is the index, from 0, of the last record   *)
(* that it applied.  The channel has only the records from the oldest view of *)
(* a running broker on.                                                       *)
(*                                                                            *)
(* Not modelled: return values, and what the model does not model.            *)
(******************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
  None,
  \* Settings, the variant, and rules in which versions differ.  Config in model/bundle_transfer/state.py explains them,
  \* and below it the fields and phases.
  brokers, topics, producers, consumers, window, deduplication, variant, stale_topics_closed_on,
  close_timeout_publishes, failed_close_evicts, unregistered_uses_view, session_loss, sends_ignored_while,
  failed_write_disconnects, failed_write_completes, address_is_used_once, restart_acts_on_record,
  removal_compares_instance, drained_topic_reopens, source_parks,
  cursor_close_checks_ownership, closing_topic_answers, load_checks_ownership_again, recovery_seals_ledger,
  \* The values of the actions' arguments.
  broker, lose_session_broker, dst, owner, topic, client, kept

VARIABLES
  records,  \* the channel: ownership records [state, dst, source, forced]
  members,  \* by broker:
            \*   alive, registered, view
            \*   duty: "prepare", "release" or "own" if the broker has to append a record, else ""
            \*   named_source: whether the last Owned record that the broker applied names the broker as source; FALSE
            \*     unless stale_topics_closed_on is "owner_names_source"
            \*   leaked: number of failed writes that still count as pending on the broker's connections
  bundle    \* by topic:
            \*   log: entries of closed ledgers, and confirmed ones of the open ledger
            \*   abandoned: unconfirmed entries of a ledger whose writer is gone
            \*   cursor: number of acknowledged entries, as persisted
            \*   objects: by broker, its topic object (PersistentTopic) or None: phase, writable, adds in flight,
            \*     cursor, older (number of pending clean-ups of older objects)
            \*   clients: phase, peer, paused, begun and done messages, commands in flight up and down

vars == <<records, members, bundle>>

\* All variables, as one record.
S == [records |-> records, members |-> members, bundle |-> bundle]

Brokers == 0..brokers - 1
Topics == 0..topics - 1
Clients == 0..producers + consumers - 1

-----------------------------------------------------------------------------
(* Reading states. *)

Record(state, d, source, forced) == [state |-> state, dst |-> d, source |-> source, forced |-> forced]
\* Initial values: a broker that is running or not, and a topic object.
Broker(up, view) ==
  [alive |-> up, registered |-> up, view |-> view, duty |-> "", named_source |-> FALSE, leaked |-> 0]
Object(phase, writable, cursor, older) ==
  [phase |-> phase, writable |-> writable, adds |-> <<>>, cursor |-> cursor, older |-> older]
Command(kind, value) == [kind |-> kind, value |-> value]

InFlight == {"acquiring", "releasing", "assigning"}
Max(a, b) == IF a > b THEN a ELSE b
Newest(s) == s.records[Len(s.records)]
ViewOf(s, b) == s.records[s.members[b].view + 1]
\* The broker that serves the bundle according to a record, or None.
OwnerIn(r) == IF r.state = "owned" THEN r.dst ELSE IF r.state = "acquiring" THEN r.source ELSE None

IsProducer(c) == c < producers
KindsOf(c) == {c.down[i].kind : i \in DOMAIN c.down}
\* Whether broker b has a session of client c: b has answered success, and has not sent close afterwards.
IsAttached(c, b) == c.peer = b /\ "close" \notin KindsOf(c) /\ (c.phase = "ready" \/ "success" \in KindsOf(c))

PhaseOf(o) == IF o = None THEN "none" ELSE o.phase
AddsOf(o) == IF o = None THEN <<>> ELSE o.adds
IsWriter(o) == IF o = None THEN FALSE ELSE o.writable
EntriesOf(adds) == [i \in DOMAIN adds |-> adds[i].entry]

\* Whether a broker may load topics.  A registered broker may, if it serves the bundle according to its view.  An
\* unregistered broker may only with unregistered_uses_view, and only if the record in its view names it as dst.
MayLoad(s, b) ==
  LET r == ViewOf(s, b)
  IN IF s.members[b].registered THEN OwnerIn(r) = b ELSE unregistered_uses_view /\ r.dst = b

-----------------------------------------------------------------------------
(* Changing topics and clients. *)

\* The topic after the sessions of some clients ended: their adds in flight get no receipt.
WithoutSessions(t, ended) ==
  LET Dead(adds) == [i \in DOMAIN adds |-> [adds[i] EXCEPT !.live = @ /\ adds[i].entry.producer \notin ended]]
  IN [t EXCEPT !.objects = [b \in Brokers |-> IF t.objects[b] = None THEN None
                                              ELSE [t.objects[b] EXCEPT !.adds = Dead(@)]]]

\* The topic after its broker sent a command to these clients; a close ends their sessions.
ToClients(t, receivers, command) ==
  LET sent == [t EXCEPT !.clients = [c \in Clients |-> IF c \in receivers
                                                       THEN [t.clients[c] EXCEPT !.down = Append(@, command)]
                                                       ELSE t.clients[c]]]
  IN IF command.kind = "close" THEN WithoutSessions(sent, receivers) ELSE sent
ToAttached(t, b, command) == ToClients(t, {c \in Clients : IsAttached(t.clients[c], b)}, command)

WithoutConnection(c, phase, peer) ==
  [c EXCEPT !.phase = phase, !.peer = peer, !.paused = FALSE, !.up = <<>>, !.down = <<>>]
Broken(t, c) == WithoutSessions([t EXCEPT !.clients[c] = WithoutConnection(@, "lookup", None)], {c})

\* Abandoned: the topic after the topic object of broker b was removed with its ledger open.  WithLedgerClosed: the
\* topic after broker b closed its ledger.
Abandoned(t, b) ==
  [t EXCEPT !.abandoned = IF IsWriter(t.objects[b]) THEN EntriesOf(t.objects[b].adds) ELSE @, !.objects[b] = None]
WithLedgerClosed(t, b, phase) ==
  [t EXCEPT !.cursor = IF t.objects[b].writable THEN Max(@, t.objects[b].cursor) ELSE @,
            !.objects[b] = [@ EXCEPT !.phase = phase, !.writable = FALSE, !.adds = <<>>]]

\* The topic after broker b fenced it for a transfer.  With load_checks_ownership_again, a load in progress is given up.
Fenced(t, b) ==
  LET phase == PhaseOf(t.objects[b])
  IN IF phase \in {"open", "failed"} THEN [t EXCEPT !.objects[b].phase = "closing"]
     ELSE IF phase = "loading" /\ load_checks_ownership_again THEN [t EXCEPT !.objects[b] = None] ELSE t

-----------------------------------------------------------------------------
(* States. *)

Init ==
  /\ records = <<Record("owned", 0, None, FALSE)>>
  /\ members = [b \in Brokers |-> Broker(TRUE, 0)]
  /\ bundle = LET attached == [phase |-> "ready", peer |-> 0, paused |-> FALSE, begun |-> 0, done |-> 0,
                               up |-> <<>>, down |-> <<>>]
              IN [k \in Topics |->
                   [log |-> <<>>, abandoned |-> <<>>, cursor |-> 0,
                    objects |-> [b \in Brokers |-> IF b = 0 THEN Object("open", TRUE, 0, 0) ELSE None],
                    clients |-> [c \in Clients |-> attached]]]

\* The canonical form: without the records before the oldest view of a running broker.
Canonical(s) ==
  LET running == {b \in Brokers : s.members[b].alive}
      views == {s.members[b].view : b \in running}
      first == IF running = {} THEN Len(s.records) - 1 ELSE CHOOSE v \in views : \A w \in views : v <= w
  IN [s EXCEPT !.records = SubSeq(@, first + 1, Len(@)),
               !.members = [b \in Brokers |-> IF b \in running THEN [s.members[b] EXCEPT !.view = @ - first]
                                              ELSE s.members[b]]]

\* Makes the canonical form of a state the next state.
Become(given) ==
  \E s \in {Canonical(given)} : records' = s.records /\ members' = s.members /\ bundle' = s.bundle

-----------------------------------------------------------------------------
(* The channel. *)

WithRecord(s, r) == [s EXCEPT !.records = Append(@, r)]

\* The state after broker b applied the record at index `view`: its new duty, and the immediate effect on its topics.
Applied(s, b, view) ==
  LET r == s.records[view + 1]
      releases == r.source = b /\ r.state = "releasing"
      duty == CASE releases -> "release"
                [] ~releases /\ r.dst = b /\ r.state = "acquiring" -> "prepare"
                [] ~releases /\ r.dst = b /\ r.state = "assigning" -> "own"
                [] OTHER -> ""
      isNamed == IF r.state = "owned" THEN r.source = b ELSE s.members[b].named_source
      Changed(t) ==
        IF releases THEN Fenced(t, b)
        ELSE IF variant = "V2" /\ r.source = b /\ r.state = "acquiring"
        THEN ToAttached(t, b, Command("prepare", r.dst))
        ELSE IF variant = "V2" /\ r = Record("owned", b, None, TRUE) THEN ToAttached(t, b, Command("close", b))
        ELSE t
  IN [s EXCEPT !.bundle = [k \in Topics |-> Changed(s.bundle[k])],
               !.members[b] = [@ EXCEPT !.view = view, !.duty = duty,
                                        !.named_source = stale_topics_closed_on = "owner_names_source" /\ isNamed]]

\* publishUnloadEventAsync with a destination.
Transfer ==
  \E d \in dst :
    LET r == Newest(S)
    IN /\ r.state = "owned" /\ d # r.dst
       /\ members[d].registered /\ members[r.dst].registered
       /\ Become(WithRecord(S, Record(IF variant \in {"V1b", "V2"} THEN "acquiring" ELSE "releasing", d, r.dst, FALSE)))

\* Deliver: a broker applies the next record.  Jump: a slow broker applies the newest record, and misses at least one.
Deliver ==
  \E b \in broker :
    /\ members[b].alive /\ members[b].view + 1 < Len(records)
    /\ Become(Applied(S, b, members[b].view + 1))
Jump ==
  \E b \in broker :
    /\ members[b].alive /\ members[b].view + 2 < Len(records)
    /\ Become(Applied(S, b, Len(records) - 1))

\* The state after a broker appended the record of its duty.  If the broker's view is stale, readers skip the record.
Published(s, b) ==
  LET r == ViewOf(s, b)
      following == CASE r.state = "acquiring" -> "releasing"
                     [] r.state = "releasing" /\ variant # "V4" -> "assigning"
                     [] OTHER -> "owned"
      done == [s EXCEPT !.members[b].duty = ""]
  IN IF s.members[b].view + 1 = Len(s.records) THEN WithRecord(done, [r EXCEPT !.state = following]) ELSE done

\* Whether a client has sent PRODUCER or SUBSCRIBE to the broker, and has not received the answer.
WaitsAt(b) ==
  ~(\A k \in Topics, c \in Clients : ~(bundle[k].clients[c].phase = "waiting" /\ bundle[k].clients[c].peer = b))
\* A broker does its duty when its topics allow this.  For "prepare", all of them are loading.  For "release", no ledger
\* remains to be closed, and with source_parks no client waits at the broker.
Publish ==
  \E b \in broker :
    LET duty == members[b].duty
        Are(phase) == {k \in Topics : PhaseOf(bundle[k].objects[b]) = phase}
    IN /\ duty # ""
       /\ duty = "prepare" => Are("loading") = Topics
       /\ duty = "release" => Are("closing") = {} /\ ~(source_parks /\ WaitsAt(b))
       /\ Become(Published(S, b))
\* FailPublish: the append fails.  CloseTimeout: BrokerService.unloadServiceUnit times out, and the source appends the
\* record, although ledgers may be open (close_timeout_publishes).
FailPublish == \E b \in broker : members[b].duty # "" /\ Become([S EXCEPT !.members[b].duty = ""])
CloseTimeout ==
  \E b \in broker : members[b].duty = "release" /\ close_timeout_publishes /\ Become(Published(S, b))

-----------------------------------------------------------------------------
(* Overrides, crashes and lost sessions. *)

\* The leader appends a forced Owned record: because a broker is gone (Override), or because a transfer takes too long
\* (OverrideStuck).
Overridden(s, d) ==
  LET r == Newest(s)
      source == IF r.state = "owned" THEN r.dst ELSE r.source
  IN WithRecord(s, Record("owned", d, IF source = d THEN None ELSE source, TRUE))

Override ==
  \E d \in owner :
    LET r == Newest(S)
        sides == {r.dst} \cup IF r.state = "owned" THEN {} ELSE {r.source}
    IN /\ ~(\A b \in sides \ {None} : members[b].registered)
       /\ members[d].registered
       /\ Become(Overridden(S, d))
OverrideStuck ==
  \E d \in owner :
    LET r == Newest(S)
    IN /\ r.state \in InFlight /\ r.source # None
       /\ \A b \in {d, r.dst, r.source} : members[b].registered
       /\ Become(Overridden(S, d))

\* The topic after broker b stopped: b loses its topic object and its clients.  A directed client only has the address
\* of b, and keeps it.
WithoutBroker(t, b) ==
  LET Left(c) == IF c.peer = b /\ c.phase # "directed" THEN WithoutConnection(c, "lookup", None) ELSE c
  IN [Abandoned(t, b) EXCEPT !.clients = [c \in Clients |-> Left(t.clients[c])]]
Stopped(s, b) ==
  [s EXCEPT !.bundle = [k \in Topics |-> WithoutBroker(s.bundle[k], b)], !.members[b] = Broker(FALSE, 0)]

Crash == \E b \in broker : members[b].alive /\ Become(Stopped(S, b))
Restart ==
  \E b \in broker :
    LET last == Len(records) - 1
        started == [S EXCEPT !.members[b] = Broker(TRUE, last)]
    IN ~members[b].alive /\ Become(IF restart_acts_on_record THEN Applied(started, b, last) ELSE started)
\* LoseSession: a broker loses its metadata session.  Register: the broker registers again.
LoseSession ==
  \E b \in lose_session_broker :
    /\ members[b].registered
    /\ Become(IF session_loss = "shutdown" THEN Stopped(S, b) ELSE [S EXCEPT !.members[b].registered = FALSE])
Register ==
  \E b \in broker :
    LET last == Len(records) - 1
        registered == [S EXCEPT !.members[b].registered = TRUE]
    IN /\ members[b].alive /\ ~members[b].registered
       /\ Become(IF session_loss = "stale" \/ members[b].view = last THEN registered ELSE Applied(registered, b, last))

-----------------------------------------------------------------------------
(* Topic objects. *)

\* Whether broker b should begin to load topic k.  The destination of acquiring loads every topic (V1b), or each topic
\* with a paused client (V2).  Otherwise a client must wait for the topic, and b may load topics, or is the next owner
\* (V1a, V2).
IsWanted(k, b) ==
  LET r == ViewOf(S, b)
      t == bundle[k]
      Waits(c) == c.phase = "waiting" /\ c.peer = b /\ c.down = <<>>
      isCue == /\ variant \in {"V1a", "V2"} /\ r.dst = b
               /\ r.state \in {"releasing", "assigning"} /\ members[b].registered
  IN IF members[b].duty = "prepare" THEN variant = "V1b" \/ \E c \in Clients : t.clients[c].paused
     ELSE (\E c \in Clients : Waits(t.clients[c])) /\ (isCue \/ MayLoad(S, b))

\* A broker begins to load a topic, also while the clean-up of an older, disconnected object is pending (`older`).
BeginLoad ==
  \E k \in topic, b \in broker :
    LET o == bundle[k].objects[b]
        older == IF o = None THEN 0 ELSE 1
    IN /\ members[b].alive
       /\ IsWanted(k, b) = TRUE
       /\ IF o = None THEN TRUE ELSE o.phase = "disconnected" /\ o.older = 0
       /\ Become([S EXCEPT !.bundle[k].objects[b] = Object("loading", FALSE, 0, older)])

\* The entries in flight of the topic's open ledger.  The ledger's writer is searched among the brokers from b on.
RECURSIVE Unconfirmed(_, _)
Unconfirmed(t, b) ==
  IF b = brokers THEN <<>>
  ELSE (IF IsWriter(t.objects[b]) THEN EntriesOf(t.objects[b].adds) ELSE <<>>) \o Unconfirmed(t, b + 1)

\* Ledger recovery fences the last ledger and keeps its first n unconfirmed entries.  With load_checks_ownership_again,
\* a broker that may not load topics gives up the load; the destination of a transfer waits.
OpenTopic ==
  \E k \in topic, b \in broker, n \in kept :
    LET t == bundle[k]
        o == t.objects[b]
        unconfirmed == t.abandoned \o Unconfirmed(t, 0)
        Sealed(each) == IF each = None THEN None ELSE [each EXCEPT !.writable = FALSE]
        opened == [o EXCEPT !.phase = "open", !.writable = TRUE, !.cursor = t.cursor]
    IN /\ PhaseOf(o) = "loading"
       /\ IF load_checks_ownership_again /\ ~MayLoad(S, b)
          THEN /\ ~(ViewOf(S, b).dst = b /\ members[b].registered)
               /\ Become([S EXCEPT !.bundle[k].objects[b] = None])
          ELSE /\ n <= Len(unconfirmed)
               /\ Become([S EXCEPT !.bundle[k] =
                    [t EXCEPT !.log = @ \o SubSeq(unconfirmed, 1, n), !.abandoned = <<>>,
                              !.objects = [m \in Brokers |-> IF m = b THEN opened ELSE Sealed(@[m])]]])

\* The state after the adds in flight failed.  Without failed_write_completes, the connections count them as pending.
WithLeakedWrites(s, k, b) ==
  IF failed_write_completes THEN s ELSE [s EXCEPT !.members[b].leaked = @ + Len(s.bundle[k].objects[b].adds)]

\* The state after an add failed.  During a transfer the adds are dropped, and failed_write_disconnects closes the
\* sessions.  Otherwise the sessions are closed and the topic object is removed.  But with sends_ignored_while "fenced",
\* sessions and object stay, and the object's phase is "failed".
AfterFailedAdd(s, k, b) ==
  LET t == s.bundle[k]
      isOpen == t.objects[b].phase \in {"open", "failed"}
      closed == IF isOpen \/ failed_write_disconnects THEN ToAttached(t, b, Command("close", None)) ELSE t
  IN IF isOpen /\ sends_ignored_while = "fenced"
     THEN [s EXCEPT !.bundle[k].objects[b] = [@ EXCEPT !.phase = "failed", !.adds = <<>>]]
     ELSE IF isOpen THEN [s EXCEPT !.bundle[k] = Abandoned(closed, b)]
     ELSE [WithLeakedWrites(s, k, b) EXCEPT !.bundle[k] = [closed EXCEPT !.objects[b].adds = <<>>]]

\* The bookies confirm the oldest add.  The add fails if ledger recovery by another broker has fenced the ledger.  But
\* without recovery_seals_ledger, an add whose entry is not in the log is confirmed all the same.  With
\* drained_topic_reopens, the last add of a closing topic reopens the topic.
Confirm ==
  \E k \in topic, b \in broker :
    LET t == bundle[k]
        o == t.objects[b]
        entry == o.adds[1].entry
        isInLog == \E i \in DOMAIN t.log : t.log[i] = entry
        reopens == drained_topic_reopens /\ o.phase = "closing" /\ Len(o.adds) = 1
        confirmed == [t EXCEPT !.log = IF o.writable THEN Append(@, entry) ELSE @,
                               !.objects[b] = [@ EXCEPT !.phase = IF reopens THEN "open" ELSE @,
                                                        !.adds = Tail(@)]]
        receipt == Command("receipt", entry.sequence)
    IN /\ AddsOf(o) # <<>>
       /\ Become(IF ~o.writable /\ (recovery_seals_ledger \/ isInLog) THEN AfterFailedAdd(S, k, b)
                 ELSE [S EXCEPT !.bundle[k] = IF o.adds[1].live THEN ToClients(confirmed, {entry.producer}, receipt)
                                              ELSE confirmed])
FailAdd ==
  \E k \in topic, b \in broker : AddsOf(bundle[k].objects[b]) # <<>> /\ Become(AfterFailedAdd(S, k, b))

\* CloseLedger: phase 1 ends for a topic.  FailClose: PersistentTopic.close fails, and the topic is removed from the
\* cache.
CloseLedger ==
  \E k \in topic, b \in broker :
    /\ PhaseOf(bundle[k].objects[b]) = "closing"
    /\ cursor_close_checks_ownership => OwnerIn(ViewOf(S, b)) # None
    /\ Become([WithLeakedWrites(S, k, b) EXCEPT !.bundle[k] = WithLedgerClosed(@, b, "closed")])
FailClose ==
  \E k \in topic, b \in broker :
    /\ PhaseOf(bundle[k].objects[b]) = "closing" /\ failed_close_evicts
    /\ Become([S EXCEPT !.members[b].duty = "", !.bundle[k] = Abandoned(@, b)])

\* Phase 2: the broker closes the sessions of its stale topic with the owner's address; in V3, without an address.  Some
\* variants do so as soon as the ledger is closed (isEarly).
Disconnect ==
  \E k \in topic, b \in broker :
    LET r == ViewOf(S, b)
        phase == PhaseOf(bundle[k].objects[b])
        isEarly == /\ variant \in {"V1a", "V1b", "V2", "V3"} /\ phase = "closed"
                   /\ r.state = "releasing" /\ r.source = b
        isStale == /\ r.state = "owned" /\ (r.dst # b \/ phase \in {"closing", "closed"})
                   /\ stale_topics_closed_on = "owner_names_source" => members[b].named_source
        address == IF variant = "V3" THEN None ELSE r.dst
    IN /\ phase \notin {"none", "disconnected"}
       /\ ~(~isEarly /\ ~isStale)
       /\ LET shut == WithLedgerClosed(bundle[k], b, "disconnected")
          IN Become([S EXCEPT !.bundle[k] = ToAttached(shut, b, Command("close", address))])

\* A disconnected topic object is removed from the cache.  If the topic was loaded again, only `older` changes; without
\* removal_compares_instance, the newer object is removed.
CleanUp ==
  \E k \in topic, b \in broker :
    LET o == bundle[k].objects[b]
        older == IF o = None THEN 0 ELSE o.older
    IN /\ ~(PhaseOf(o) # "disconnected" /\ older = 0)
       /\ Become(IF older # 0 /\ removal_compares_instance THEN [S EXCEPT !.bundle[k].objects[b].older = 0]
                 ELSE [S EXCEPT !.bundle[k] = Abandoned(@, b)])

-----------------------------------------------------------------------------
(* Clients. *)

WithClient(k, c, changed) == [S EXCEPT !.bundle[k].clients[c] = changed]

\* The address with which a broker answers a lookup from its view, or None: the broker parks the lookup.
AnswerOf(b) ==
  LET r == ViewOf(S, b)
      found == OwnerIn(r)
      isRegistered == members[b].registered
      parks == r.dst = b \/ (source_parks /\ r.source = b)
  IN IF found # None THEN IF members[found].registered \/ ~isRegistered THEN found ELSE None
     ELSE IF parks /\ isRegistered THEN None ELSE r.dst

\* A client asks a running broker for the owner.  The broker parks the lookup, or directs the client to an address.
Lookup ==
  \E k \in topic, c \in client, b \in broker :
    LET at == bundle[k].clients[c]
        found == AnswerOf(b)
    IN /\ at.phase = "lookup" /\ members[b].alive
       /\ ~members[b].registered => unregistered_uses_view
       /\ Become(WithClient(k, c, IF found = None THEN [at EXCEPT !.phase = "parked", !.peer = b]
                                  ELSE [at EXCEPT !.phase = "directed", !.peer = found]))
\* The broker answers a parked lookup.  At an unregistered broker the lookup fails, unless unregistered_uses_view.
Answer ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
    IN /\ at.phase = "parked"
       /\ IF ~members[at.peer].registered /\ ~unregistered_uses_view
          THEN Become(WithClient(k, c, WithoutConnection(at, "lookup", None)))
          ELSE /\ AnswerOf(at.peer) # None
               /\ Become(WithClient(k, c, [at EXCEPT !.phase = "directed", !.peer = AnswerOf(at.peer)]))
\* The client sends PRODUCER or SUBSCRIBE to its address.  If that broker is down, the client looks the topic up again;
\* without address_is_used_once, it keeps the address.
Connect ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
    IN /\ at.phase = "directed"
       /\ IF members[at.peer].alive THEN Become(WithClient(k, c, [at EXCEPT !.phase = "waiting"]))
          ELSE address_is_used_once /\ Become(WithClient(k, c, WithoutConnection(at, "lookup", None)))

\* A broker answers PRODUCER or SUBSCRIBE by its view.  A broker that may load the topic answers with success when the
\* topic is open; a topic that is closing answers with an error (closing_topic_answers).  Any other broker answers with
\* an error, but the registered destination (and the source, with source_parks) parks the request until the transfer
\* ends.
Admit ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
        b == at.peer
        r == ViewOf(S, b)
        o == bundle[k].objects[b]
        isInFlight == r.state \in InFlight
        commands == <<Command("success", None)>>
                    \o IF r.state = "acquiring" /\ variant = "V2" THEN <<Command("prepare", r.dst)>> ELSE <<>>
        welcomed == [at EXCEPT !.begun = IF IsProducer(c) THEN @ ELSE o.cursor, !.down = commands]
        rejected == WithClient(k, c, WithoutConnection(at, "lookup", None))
    IN /\ at.phase = "waiting" /\ at.down = <<>>
       /\ IF MayLoad(S, b)
          THEN /\ PhaseOf(o) \notin {"none", "disconnected", "loading"}
               /\ IF o.phase = "open" THEN Become(WithClient(k, c, welcomed))
                  ELSE closing_topic_answers /\ Become(rejected)
          ELSE /\ ~(isInFlight /\ r.dst = b /\ members[b].registered)
               /\ ~(isInFlight /\ r.source = b /\ source_parks)
               /\ Become(rejected)

\* A producer that is not ready, or is paused, sends the message after its next success.
Send ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
        up == IF at.phase = "ready" /\ ~at.paused THEN Append(at.up, at.begun) ELSE at.up
    IN /\ IsProducer(c) /\ at.begun - at.done < window
       /\ Become(WithClient(k, c, [at EXCEPT !.begun = @ + 1, !.up = up]))

\* The topic after an open topic took a send.  With deduplication, a sequence id at or below a stored one is a
\* duplicate.  A sequence id at or below one in flight is in doubt, and the session is closed.
AfterSend(t, b, c, sequence) ==
  LET adds == t.objects[b].adds
      Covers(entry) == entry.producer = c /\ entry.sequence >= sequence
      isStored == \E i \in DOMAIN t.log : Covers(t.log[i])
      isInDoubt == \E i \in DOMAIN adds : Covers(adds[i].entry)
      add == [entry |-> [producer |-> c, sequence |-> sequence], live |-> TRUE]
  IN IF deduplication /\ isStored THEN ToClients(t, {c}, Command("receipt", sequence))
     ELSE IF deduplication /\ isInDoubt THEN ToClients(t, {c}, Command("close", None))
     ELSE [t EXCEPT !.objects[b].adds = Append(@, add)]

\* A broker processes the next send or ack of an attached client.  A topic that is not open ignores it; in V3, the
\* broker then closes the sessions of the topic.
Process ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
        b == at.peer
        value == at.up[1]
        t == [bundle[k] EXCEPT !.clients[c].up = Tail(@)]
        changed == IF PhaseOf(t.objects[b]) # "open"
                   THEN IF variant = "V3" THEN ToAttached(t, b, Command("close", None)) ELSE t
                   ELSE IF IsProducer(c) THEN AfterSend(t, b, c, value)
                   ELSE [t EXCEPT !.objects[b].cursor = Max(@, value)]
    IN /\ at.up # <<>> /\ b # None
       /\ IsAttached(at, b) = TRUE
       /\ Become([S EXCEPT !.bundle[k] = changed])

\* A broker sends the next message of the log to an attached consumer.
Dispatch ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
    IN /\ ~IsProducer(c) /\ at.peer # None
       /\ IsAttached(at, at.peer) = TRUE
       /\ PhaseOf(bundle[k].objects[at.peer]) = "open"
       /\ at.begun < Len(bundle[k].log)
       /\ Become(WithClient(k, c, [at EXCEPT !.begun = @ + 1, !.down = Append(@, Command("message", at.begun))]))

\* A client handles the next command of its broker.  A receipt that skips a message breaks the connection.
Receive ==
  \E k \in topic, c \in client :
    LET at == bundle[k].clients[c]
        kind == at.down[1].kind
        value == at.down[1].value
        left == [at EXCEPT !.down = Tail(@)]
        pending == IF IsProducer(c) THEN [i \in 1..at.begun - at.done |-> at.done + i - 1] ELSE <<>>
        isPrepared == IF value = None THEN FALSE ELSE at.paused /\ members[value].alive
    IN /\ at.down # <<>>
       /\ Become(
         IF kind = "receipt" /\ value > at.done THEN [S EXCEPT !.bundle[k] = Broken(@, c)]
         ELSE WithClient(k, c,
           CASE kind = "success" -> [left EXCEPT !.phase = "ready", !.up = @ \o pending]
             [] kind = "message" -> [left EXCEPT !.done = Max(@, value + 1), !.up = Append(@, value + 1)]
             [] kind = "prepare" -> [left EXCEPT !.paused = TRUE]
             [] kind = "receipt" -> [left EXCEPT !.done = IF value = @ THEN @ + 1 ELSE @]
             [] OTHER -> IF value = None THEN WithoutConnection(at, "lookup", None)
                         ELSE WithoutConnection(at, IF isPrepared THEN "waiting" ELSE "directed", value)))
BreakConnection ==
  \E k \in topic, c \in client :
    bundle[k].clients[c].phase \in {"waiting", "ready"} /\ Become([S EXCEPT !.bundle[k] = Broken(@, c)])

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

RECURSIVE InFlightAdds(_, _)
InFlightAdds(t, b) == IF b = brokers THEN 0 ELSE Len(AddsOf(t.objects[b])) + InFlightAdds(t, b + 1)
EntriesAtMost(n) ==
  \A k \in Topics : Len(bundle[k].log) + Len(bundle[k].abandoned) + InFlightAdds(bundle[k], 0) <= n
MessagesAtMost(n) == \A k \in Topics, c \in Clients : bundle[k].clients[c].begun <= n
RecordsAtMost(n) == Len(records) <= n
=============================================================================
