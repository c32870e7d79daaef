---------------------------- MODULE OwnershipChannel ----------------------------
(******************************************************************************)
(* The ownership channel of the extensible load manager: which broker owns a  *)
(* bundle (PIP-192).                                                          *)
(*                                                                            *)
(* Twin of model/ownership_channel: the same actions and settings, equal      *)
(* states and steps.  Models ServiceUnitStateChannelImpl,                     *)
(* ServiceUnitStateDataConflictResolver and parts of                          *)
(* ExtensibleLoadManagerImpl and UnloadManager, over the system topic or the  *)
(* metadata store (PIP-378).                                                  *)
(*                                                                            *)
(* Step grain: one write of a record, one read of a record with the start of  *)
(* its handler, or one event of a broker or a session.                        *)
(*                                                                            *)
(*   record    ServiceUnitStateData: [state, dst, source, version, force];    *)
(*             None if the bundle has none                                    *)
(*   handler   a task [bundle, data]: the broker still has to write the       *)
(*             bundle's next record, or to remove the record `data`           *)
(*   clean-up  doCleanup, a job [target, running, snapshot]: the bundles of   *)
(*             the target move to other brokers; snapshot: orphans whose      *)
(*             override is not retried, a sequence of [bundle, data]          *)
(*                                                                            *)
(* Brokers and bundles are numbered from 0; bundle k has the halves 2k + 1    *)
(* and 2k + 2.  The log has only the messages that some running broker has    *)
(* not read.                                                                  *)
(*                                                                            *)
(* Not modelled: return values, with the actions and settings that change     *)
(* only these (is_valid_transition, should_keep_left, stale_view_answers,     *)
(* owned_without_destination); and what the model does not model.             *)
(******************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  None,
  \* Settings, and rules in which versions differ.  Config in model/ownership_channel/records.py explains them.
  brokers, bundles, system_bundles, storage, session_expired_policy, transfer_order, versions, version_gap, removal,
  split_bundle, metadata_put, restart_resumes, clean_up_retries, disabled_channel_assigns, monitor_removes,
  monitor_requires_source_of_owned, lookup_at_source, unregistered_broker_parks, election_is_rechecked,
  late_ack_moves_reader,
  \* The values of the actions' arguments.
  broker, bundle, dst, lookup_dst, unload_dst, override_dst, target, force, task, healthy

VARIABLES
  leader,        \* the elected leader, or None
  leader_knows,  \* whether the leader has noticed its election
  settled,       \* by bundle: the record in the metadata store, or the one that a reader of the whole topic keeps
  log,           \* messages of the system topic, [bundle, data]; without data, a tombstone
  is_split,      \* by bundle: whether it was split
  cluster        \* by broker:
                 \*   up, registered; disabled: the channel is disabled, because the broker shuts down
                 \*   session: "Stable", "Jittery" or "Unstable", with the metadata store
                 \*   view: by bundle, the record in its table view; read: number of messages read
                 \*   stale: by bundle, the session was lost after the record was read (metadata store)
                 \*   tasks: running handlers; jobs: clean-ups
                 \*   lookups, unloads: by bundle, a lookup is parked, an unload is pending

vars == <<leader, leader_knows, settled, log, is_split, cluster>>

\* All variables, as one record.
S == [leader |-> leader, knows |-> leader_knows, settled |-> settled, log |-> log, split |-> is_split,
      cluster |-> cluster]

Brokers == 0..brokers - 1
Bundles == 0..bundles - 1
OnTopic == storage = "system_topic"
\* The order of a transfer until apache/pulsar#19683: Assigning, Releasing, Owned.
AssigningFirst == transfer_order = "assigning_first"

-----------------------------------------------------------------------------
(* Records. *)

Data(state, d, source, version, forced) ==
  [state |-> state, dst |-> d, source |-> source, version |-> version, force |-> forced]
InFlight == {"Assigning", "Releasing", "Splitting"}
StateOf(r) == IF r = None THEN "Init" ELSE r.state
NextVersion(r) == IF r = None THEN 1 ELSE r.version + 1

\* ServiceUnitState.isValidTransition.
Follows(old, new) ==
  new \in
    CASE old = "Owned" -> {"Releasing", "Splitting"} \cup IF AssigningFirst THEN {"Assigning"} ELSE {}
      [] old = "Assigning" -> {"Owned"} \cup IF AssigningFirst THEN {"Releasing"} ELSE {}
      [] old = "Releasing" -> {"Free", IF AssigningFirst THEN "Owned" ELSE "Assigning"}
      [] old = "Splitting" -> {"Deleted"}
      [] old = "Deleted" -> {"Init"}
      [] old = "Free" -> {"Assigning"} \cup IF OnTopic THEN {"Init"} ELSE {}
      [] OTHER -> {"Assigning"} \cup IF OnTopic THEN {"Free", "Owned", "Deleted"} \cup InFlight ELSE {}

\* shouldKeepLeft, for a valid transition: whether record r names other brokers than the existing record l requires.
NamesWrongBrokers(l, r) ==
  LET changed == l.dst # r.dst \/ l.source # r.source
  IN IF l.state = "Owned" /\ r.state = "Splitting" THEN r.dst # None \/ l.dst # r.source
     ELSE IF l.state = "Owned" THEN r.source = None \/ l.dst # r.source \/ l.dst = r.dst
     ELSE IF l.state = "Free" /\ r.state = "Assigning" THEN r.source # None \/ r.dst = None
     ELSE IF l.state = "Releasing" /\ r.state = "Assigning" THEN r.dst = None \/ changed
     ELSE l.state \in InFlight /\ changed

\* ServiceUnitStateDataConflictResolver.shouldKeepLeft: whether the existing record l is kept, and the new one r
\* rejected.  With version_gap "accepted", the topic accepts a version that skips versions, without further checks.
IsKept(l, r) ==
  IF r = None THEN FALSE
  ELSE IF l # None /\ versions = "checked" /\ (l # None => r.version # l.version + 1)
       THEN ~(l.version < r.version /\ OnTopic /\ version_gap = "accepted")
  ELSE IF l = None /\ ~OnTopic THEN r.version # 1
  ELSE IF r.force THEN FALSE
  ELSE IF ~Follows(StateOf(l), r.state) THEN TRUE
  ELSE l # None /\ NamesWrongBrokers(l, r)

\* ActorOf: the broker whose handler answers the record, or None.  OwnerOf (getOwnerNow): the broker that serves the
\* bundle, or None.  IsOrphan: whether a clean-up of broker b overrides the record.
ActorOf(r) ==
  IF r.state = "Assigning" THEN r.dst
  ELSE IF r.state \in {"Releasing", "Splitting", "Deleted"} \/ (r.state = "Free" /\ r.force) THEN r.source ELSE None
OwnerOf(r) ==
  IF StateOf(r) = "Owned" THEN r.dst ELSE IF StateOf(r) = "Splitting" THEN r.source ELSE None
IsOrphan(r, b) ==
  /\ StateOf(r) \in InFlight \cup {"Owned"}
  /\ r.dst = b \/ (r.state \in InFlight /\ r.source = b)

-----------------------------------------------------------------------------
(* Clean-ups. *)

IsSystem(k) == k >= bundles - system_bundles
\* Whether a clean-up overrides the bundle's records until the view has no orphan of the bundle.
IsRetried(k) == clean_up_retries = "all" \/ (clean_up_retries = "ordinary" /\ ~IsSystem(k))

\* The orphans of target b in a view: those whose override is retried if `again`, else the other ones.
OrphansIn(view, b, again) ==
  LET Is(k) == IsRetried(k) = again /\ IsOrphan(view[k], b)
      found == SelectSeq([i \in 1..bundles |-> i - 1], Is)
  IN [i \in DOMAIN found |-> [bundle |-> found[i], data |-> view[found[i]]]]
\* The orphans that a clean-up has not overridden yet.
Left(at, job) == OrphansIn(at.view, job.target, TRUE) \o job.snapshot
StartedCleanUp(at, b) == [target |-> b, running |-> TRUE, snapshot |-> OrphansIn(at.view, b, FALSE)]
HasJob(at, b) == \E i \in DOMAIN at.jobs : at.jobs[i].target = b
JobOf(at, b) == CHOOSE job \in {at.jobs[i] : i \in DOMAIN at.jobs} : job.target = b
WithoutJob(at, b) == LET Others(job) == job.target # b IN [at EXCEPT !.jobs = SelectSeq(@, Others)]

\* The broker without its completed clean-ups.  A broker's clean-up of itself completes when the broker stops.
WithoutCompletedCleanUps(at, b) ==
  LET GoesOn(job) == job.target = b \/ ~job.running \/ Left(at, job) # <<>>
  IN [at EXCEPT !.jobs = SelectSeq(@, GoesOn)]

-----------------------------------------------------------------------------
(* Writing and reading. *)

\* handleEvent: completes the requests that the record settles, and begins a task if the broker has to answer the
\* record.  An Owned record without source completes no unload.  At a disabled broker, a tombstone or a record that is
\* not forced only ends the parked lookup.
Handled(at, b, k, r) ==
  LET isSettled == StateOf(r) \notin InFlight
      isIgnored == at.disabled /\ ~(IF r = None THEN FALSE ELSE r.force)
      ends == isSettled /\ ~(StateOf(r) = "Owned" /\ (r # None => r.source = None))
      acts == IF r = None THEN FALSE ELSE ActorOf(r) = b
  IN [at EXCEPT !.lookups[k] = @ /\ ~isSettled /\ ~isIgnored,
                !.unloads[k] = @ /\ (isIgnored \/ ~ends),
                !.tasks = IF acts /\ ~isIgnored THEN Append(@, [bundle |-> k, data |-> r]) ELSE @]

\* Applied: a record enters the view of a broker.  Offered: a reader of the topic accepts or rejects a record.
\* Notified: a broker reads the record in the metadata store.
Applied(s, b, k, r) == [s EXCEPT !.cluster[b] = WithoutCompletedCleanUps(Handled([@ EXCEPT !.view[k] = r], b, k, r), b)]
Offered(s, b, k, r) == IF IsKept(s.cluster[b].view[k], r) THEN s ELSE Applied(s, b, k, r)

Notified(s, b, k) ==
  LET old == s.cluster[b].view[k]
      stored == s.settled[k]
      fresh == [s EXCEPT !.cluster[b].stale[k] = FALSE]
      isSame == IF old = None \/ stored = None THEN FALSE ELSE old.version = stored.version
  IN IF old = stored \/ (metadata_put = "blind_retry" /\ isSame) THEN fresh ELSE Applied(fresh, b, k, stored)

\* ServiceUnitStateTableView.put: writes a record.  The topic stores every record, and its readers reject records that
\* conflict.  The metadata store rejects a record that conflicts, and every record of a broker without session.
Put(s, b, k, r) ==
  IF OnTopic
  THEN [s EXCEPT !.log = Append(@, [bundle |-> k, data |-> r]), !.settled[k] = IF IsKept(@, r) THEN @ ELSE r]
  ELSE LET decided == IF metadata_put = "compare_and_set" THEN s.settled[k] ELSE s.cluster[b].view[k]
       IN IF s.cluster[b].session = "Unstable" \/ IsKept(decided, r) THEN s
          ELSE Notified([s EXCEPT !.settled[k] = r], b, k)

\* tombstoneAsync: removes a record.  The reference writes a forced Init record, which has a version.
Removed(s, b, k, r) ==
  Put(s, b, k, IF removal = "init_record" THEN Data("Init", None, r.source, r.version + 1, TRUE) ELSE None)

-----------------------------------------------------------------------------
(* States. *)

\* A running broker with this view, which has read `count` messages.
StartedBroker(view, count) ==
  LET no == [k \in Bundles |-> FALSE]
  IN [up |-> TRUE, registered |-> TRUE, disabled |-> FALSE, session |-> "Stable", view |-> view, stale |-> no,
      read |-> count, tasks |-> <<>>, lookups |-> no, unloads |-> no, jobs |-> <<>>]
NoRecords == [k \in Bundles |-> None]

Least(numbers) == CHOOSE n \in numbers : \A m \in numbers : n <= m

\* The canonical form: without the messages that every running broker has read.
Canonical(s) ==
  LET running == {b \in Brokers : s.cluster[b].up}
      dropped == IF running = {} THEN Len(s.log) ELSE Least({s.cluster[b].read : b \in running})
  IN [s EXCEPT !.log = SubSeq(@, dropped + 1, Len(@)),
               !.cluster = [b \in Brokers |-> IF b \in running THEN [s.cluster[b] EXCEPT !.read = @ - dropped]
                                              ELSE s.cluster[b]]]

\* Makes the canonical form of a state the next state.
Become(given) ==
  \E s \in {Canonical(given)} :
    /\ leader' = s.leader /\ leader_knows' = s.knows /\ settled' = s.settled /\ log' = s.log /\ is_split' = s.split
    /\ cluster' = s.cluster

Init == /\ leader = 0 /\ leader_knows = TRUE /\ settled = NoRecords /\ log = <<>>
        /\ is_split = [k \in Bundles |-> FALSE]
        /\ cluster = [b \in Brokers |-> StartedBroker(NoRecords, 0)]

-----------------------------------------------------------------------------
(* Requests. *)

\* CanSplit: whether there are numbers for the halves of bundle k.  Exists: whether bundle k is not split, and its
\* parent is split if the parent can be split.
CanSplit(k) == 2 * k + 2 < bundles
Exists(k) ==
  LET parent == (k - 1) \div 2
  IN ~is_split[k] /\ IF k = 0 THEN TRUE ELSE CanSplit(parent) => is_split[parent]
IsStarted(b) == cluster[b].up /\ ~cluster[b].disabled

\* getOwnerAsync: returns the owner (no step), parks the lookup, or assigns a bundle without owner to d.  isRaw: an
\* unregistered broker answers from its view, and parks a lookup only to assign the bundle.
Lookup ==
  \E b \in broker, k \in bundle, d \in lookup_dst :
    LET at == cluster[b]
        r == at.view[k]
        owner == OwnerOf(r)
        isRaw == ~at.registered /\ ~unregistered_broker_parks
        parked == [S EXCEPT !.cluster[b].lookups[k] = TRUE]
    IN /\ at.up /\ Exists(k) /\ StateOf(r) # "Deleted"
       /\ IF owner # None THEN ~isRaw /\ ~cluster[owner].registered /\ Become(parked)
          ELSE IF StateOf(r) \in InFlight /\ (r # None => r.dst # None)
          THEN ~isRaw /\ (r.dst = b \/ (lookup_at_source = "parked" /\ r.source = b)) /\ Become(parked)
          ELSE /\ ~at.lookups[k] /\ (at.disabled => disabled_channel_assigns) /\ cluster[d].registered
               /\ Become(Put(parked, b, k, Data("Assigning", d, None, NextVersion(r), FALSE)))
TimeOutLookup ==
  \E b \in broker, k \in bundle : cluster[b].lookups[k] /\ Become([S EXCEPT !.cluster[b].lookups[k] = FALSE])

\* publishUnloadEventAsync: to a destination (a transfer), or to none.
Unload ==
  \E b \in broker, k \in bundle, d \in unload_dst, f \in force :
    LET r == cluster[b].view[k]
        state == IF AssigningFirst /\ d # None THEN "Assigning" ELSE "Releasing"
    IN /\ IsStarted(b) /\ StateOf(r) = "Owned"
       /\ IF d = None THEN TRUE ELSE ~f /\ d # r.dst /\ cluster[d].registered
       /\ Become(Put([S EXCEPT !.cluster[b].unloads[k] = TRUE], b, k, Data(state, d, r.dst, r.version + 1, f)))
TimeOutUnload ==
  \E b \in broker, k \in bundle : cluster[b].unloads[k] /\ Become([S EXCEPT !.cluster[b].unloads[k] = FALSE])

Split ==
  \E b \in broker, k \in bundle :
    LET r == cluster[b].view[k]
    IN /\ IsStarted(b) /\ CanSplit(k) /\ StateOf(r) = "Owned"
       /\ r.dst = b
       /\ Become(Put(S, b, k, Data("Splitting", None, b, r.version + 1, FALSE)))

-----------------------------------------------------------------------------
(* Reads of records. *)

HasUnread(b) == cluster[b].up /\ cluster[b].read < Len(log)

\* Read: a broker reads the next message of the topic.  Jump: a slow broker reads the compacted topic in place of its
\* unread messages: for each bundle of these, the last accepted record, unless a tombstone removed the record.
Read ==
  \E b \in broker :
    /\ HasUnread(b)
    /\ LET message == log[cluster[b].read + 1]
       IN Become(Offered([S EXCEPT !.cluster[b].read = @ + 1], b, message.bundle, message.data))

RECURSIVE Jumped(_, _, _, _)
Jumped(s, b, written, k) ==
  IF k = bundles THEN s
  ELSE Jumped(IF k \in written /\ s.settled[k] # None THEN Offered(s, b, k, s.settled[k]) ELSE s, b, written, k + 1)
Jump ==
  \E b \in broker :
    /\ HasUnread(b)
    /\ LET written == {log[i].bundle : i \in cluster[b].read + 1..Len(log)}
       IN Become(Jumped([S EXCEPT !.cluster[b].read = Len(log)], b, written, 0))

\* A late acknowledgement moves the reader to the end of the topic (late_ack_moves_reader).
LateAck ==
  \E b \in broker :
    /\ cluster[b].up /\ OnTopic /\ late_ack_moves_reader
    /\ Become([S EXCEPT !.cluster[b].read = Len(log)])

\* The metadata store notifies a broker of a record.
Notify ==
  \E b \in broker, k \in bundle :
    ~OnTopic /\ cluster[b].up /\ cluster[b].session # "Unstable" /\ Become(Notified(S, b, k))

-----------------------------------------------------------------------------
(* Handlers. *)

Tasks(b) == cluster[b].tasks
Without(tasks, i) == SubSeq(tasks, 1, i - 1) \o SubSeq(tasks, i + 1, Len(tasks))

\* The state of the record that the handler of record r writes.  "Init": the handler removes the record.
AnswerTo(r) ==
  CASE r.state = "Assigning" -> IF AssigningFirst /\ r.source # None THEN "Releasing" ELSE "Owned"
    [] r.state = "Releasing" -> IF r.dst = None THEN "Free" ELSE IF AssigningFirst THEN "Owned" ELSE "Assigning"
    [] r.state = "Splitting" -> IF split_bundle = "deleted" THEN "Deleted" ELSE "Init"
    [] OTHER -> "Init"

\* A handler writes the bundle's next record, or removes the record, and ends.  The handler of a split first writes the
\* records of the halves.
Finish ==
  \E b \in broker, t \in task :
    /\ t < Len(Tasks(b))
    /\ LET k == Tasks(b)[t + 1].bundle
           r == Tasks(b)[t + 1].data
           half == Data("Owned", b, None, 1, FALSE)
           done == [S EXCEPT !.cluster[b].tasks = Without(@, t + 1)]
           answer == AnswerTo(r)
       IN /\ r.state = "Splitting" /\ ~is_split[k] => cluster[b].session # "Unstable"
          /\ Become(
            IF r.state = "Splitting" /\ ~is_split[k]
            THEN Put(Put([S EXCEPT !.split[k] = TRUE], b, 2 * k + 1, half), b, 2 * k + 2, half)
            ELSE IF answer = "Init" THEN Removed(done, b, k, r)
            ELSE Put(done, b, k, Data(answer, r.dst, r.source, r.version + 1, r.force /\ answer = "Free")))
\* A handler fails, and writes nothing.
FailAppend ==
  \E b \in broker, t \in task : t < Len(Tasks(b)) /\ Become([S EXCEPT !.cluster[b].tasks = Without(@, t + 1)])

-----------------------------------------------------------------------------
(* Brokers and sessions. *)

ActingLeader(s) == IF s.knows THEN s.leader ELSE None
\* Broker b schedules a clean-up of broker t, unless broker b has one.
Scheduled(s, b, t) ==
  IF HasJob(s.cluster[b], t) THEN s
  ELSE [s EXCEPT !.cluster[b].jobs = Append(@, [target |-> t, running |-> FALSE, snapshot |-> <<>>])]
\* Deregistered: the registry entry of b is removed, and the acting leader, if another broker with a session, schedules
\* a clean-up of b.  Registered: the clean-ups of b by other brokers are dropped, because b has registered.
Deregistered(given, b) ==
  LET s == [given EXCEPT !.cluster[b].registered = FALSE]
      l == ActingLeader(s)
  IN IF l = None \/ l = b THEN s ELSE IF s.cluster[l].session = "Unstable" THEN s ELSE Scheduled(s, l, b)
Registered(s, b) ==
  [s EXCEPT !.cluster = [n \in Brokers |-> IF n = b THEN s.cluster[n] ELSE WithoutJob(s.cluster[n], b)]]
\* The state without b as leader.
NotLed(s, b) == IF s.leader = b THEN [s EXCEPT !.leader = None, !.knows = FALSE] ELSE s
Stopped(s, b) ==
  [NotLed(s, b) EXCEPT !.cluster[b] = [StartedBroker(NoRecords, 0) EXCEPT !.up = FALSE,
                                                                          !.registered = s.cluster[b].registered]]

\* Restart: a started broker has the accepted records in its view, and has read the whole log.  restart_resumes says for
\* which records in flight it begins the handlers.
Crash == \E b \in broker : cluster[b].up /\ Become(Stopped(S, b))
Restart ==
  \E b \in broker :
    /\ ~cluster[b].up
    /\ LET resumed == CASE restart_resumes = "in_flight" -> InFlight
                        [] restart_resumes = "assigning" -> {"Assigning"}
                        [] OTHER -> {}
           Is(k) == StateOf(settled[k]) \in resumed /\ (settled[k] # None => ActorOf(settled[k]) = b)
           found == SelectSeq([i \in 1..bundles |-> i - 1], Is)
           tasks == [i \in DOMAIN found |-> [bundle |-> found[i], data |-> settled[found[i]]]]
       IN Become(Registered([S EXCEPT !.cluster[b] = [StartedBroker(settled, Len(log)) EXCEPT !.tasks = tasks]], b))
Expire == \E b \in broker : ~cluster[b].up /\ cluster[b].registered /\ Become(Deregistered(S, b))
\* LoseSession: a broker loses its session with the metadata store, and stops or continues without a session.
\* Reconnect: a broker gets a new session, and registers unless it is disabled.
LoseSession ==
  \E b \in broker :
    /\ cluster[b].up /\ cluster[b].session # "Unstable"
    /\ LET lost == [S EXCEPT !.cluster[b].session = "Unstable", !.cluster[b].stale = [k \in Bundles |-> ~OnTopic]]
       IN Become(Deregistered(IF session_expired_policy = "shutdown" THEN Stopped(S, b) ELSE lost, b))
Reconnect ==
  \E b \in broker :
    /\ cluster[b].up /\ cluster[b].session = "Unstable"
    /\ LET s == [S EXCEPT !.cluster[b].session = "Jittery", !.cluster[b].registered = ~cluster[b].disabled]
       IN Become(IF cluster[b].disabled THEN s ELSE Registered(s, b))
Stabilize ==
  \E b \in broker : cluster[b].session = "Jittery" /\ Become([S EXCEPT !.cluster[b].session = "Stable"])

-----------------------------------------------------------------------------
(* The leader. *)

\* Whether there is no registered leader, and broker b can become leader.
CanBeElected(b) ==
  /\ IF leader = None THEN TRUE ELSE ~cluster[leader].registered
  /\ cluster[b].up /\ cluster[b].registered /\ ~cluster[b].disabled
Elect == \E b \in broker : CanBeElected(b) /\ Become([S EXCEPT !.leader = b, !.knows = TRUE])
ElectUnnoticed == \E b \in broker : CanBeElected(b) /\ Become([S EXCEPT !.leader = b, !.knows = FALSE])
RecheckElection ==
  leader # None /\ ~leader_knows /\ election_is_rechecked /\ Become([S EXCEPT !.knows = TRUE])

\* Whether a leader that has noticed its election has a stable session.  Only such a leader monitors the records.
IsMonitoring == IF ActingLeader(S) = None THEN FALSE ELSE cluster[leader].session = "Stable"
\* The brokers that must be registered for an active record.
NeededBy(r) ==
  IF StateOf(r) \notin InFlight \cup {"Owned"} THEN <<>>
  ELSE LET IsNamed(b) == b # None
       IN SelectSeq(<<r.dst, IF r.state \in InFlight \/ monitor_requires_source_of_owned THEN r.source ELSE None>>,
                    IsNamed)

RECURSIVE Needed(_, _)
Needed(view, k) == IF k = bundles THEN <<>> ELSE NeededBy(view[k]) \o Needed(view, k + 1)
RECURSIVE AllScheduled(_, _)
AllScheduled(s, targets) ==
  IF targets = <<>> THEN s
  ELSE AllScheduled(IF s.cluster[Head(targets)].registered THEN s ELSE Scheduled(s, s.leader, Head(targets)),
                    Tail(targets))
\* monitorOwnerships: schedules clean-ups of the brokers that records need (NeededBy) and that are not registered.
Monitor == IsMonitoring /\ Become(AllScheduled(S, Needed(cluster[leader].view, 0)))

\* overrideOwnership: the record that moves an orphan of target t, or a stuck bundle, to broker d.  If d is None, the
\* record is Free.
Replacement(r, t, d, isGraceful) ==
  LET source == IF r.state \in InFlight THEN r.source ELSE t
  IN CASE d = None -> Data("Free", None, source, r.version + 1, TRUE)
       [] d # None /\ r.state = "Splitting" -> Data("Splitting", r.dst, d, r.version + 1, TRUE)
       [] d # None /\ r.state = "Owned" /\ isGraceful -> Data("Releasing", d, t, r.version + 1, TRUE)
       [] OTHER -> Data("Owned", d, IF d = source THEN None ELSE source, r.version + 1, TRUE)

\* The monitor overrides a record that has been in flight too long.
OverrideStuck ==
  \E k \in bundle, d \in dst :
    /\ IsMonitoring
    /\ LET view == cluster[leader].view
           r == view[k]
           needed == IF monitor_requires_source_of_owned THEN Needed(view, 0) ELSE NeededBy(r)
       IN /\ StateOf(r) \in InFlight
          /\ \A i \in DOMAIN needed : cluster[needed[i]].registered
          /\ cluster[d].registered
          /\ Become(Put(S, leader, k, Replacement(r, None, d, FALSE)))
\* The monitor removes an old record.
RemoveOld ==
  \E k \in bundle :
    /\ IsMonitoring
    /\ LET r == cluster[leader].view[k]
       IN /\ StateOf(r) # "Init"
          /\ StateOf(r) \in {"Free", "Deleted"} \/ monitor_removes = "any"
          /\ Become(Removed(S, leader, k, r))

-----------------------------------------------------------------------------
(* Clean-ups and shutdown. *)

\* A scheduled clean-up checks the health of its target.  If the target is healthy, the clean-up is dropped; otherwise
\* it starts.
StartCleanUp ==
  \E b \in broker, t \in target, h \in healthy :
    LET at == cluster[b]
        others == WithoutJob(at, t)
    IN /\ HasJob(at, t)
       /\ ~JobOf(at, t).running /\ (h => cluster[t].up)
       /\ Become([S EXCEPT !.cluster[b] =
                    IF h THEN others
                    ELSE WithoutCompletedCleanUps([others EXCEPT !.jobs = Append(@, StartedCleanUp(at, t))], b)])

\* A clean-up moves an orphan to another registered broker, or frees the bundle if there is no such broker.  System
\* bundles come last.
Override ==
  \E b \in broker, t \in target, k \in bundle, d \in override_dst :
    LET at == cluster[b]
    IN /\ HasJob(at, t)
       /\ JobOf(at, t).running
       /\ LET job == JobOf(at, t)
              left == Left(at, job)
              places == {i \in DOMAIN left : left[i].bundle = k}
              others == {n \in Brokers \ {t} : cluster[n].registered}
          IN /\ places # {}
             /\ IsSystem(k) => \A i \in DOMAIN left : IsSystem(left[i].bundle)
             /\ d \in IF others = {} THEN {None} ELSE others
             /\ LET orphan == left[Least(places)]
                    Others(each) == each # orphan
                    rest == [job EXCEPT !.snapshot = SelectSeq(@, Others)]
                    jobs == [i \in DOMAIN at.jobs |-> IF at.jobs[i] = job THEN rest ELSE at.jobs[i]]
                    s == [S EXCEPT !.cluster[b] = WithoutCompletedCleanUps([at EXCEPT !.jobs = jobs], b)]
                IN Become(Put(s, b, k, Replacement(orphan.data, t, d, b = t)))

\* Disable (cleanOwnerships): the channel is disabled, and the broker moves its own bundles.  Stop (disableBroker): the
\* broker stops when it has no bundle left.
Disable ==
  \E b \in broker :
    /\ IsStarted(b)
    /\ Become([NotLed(S, b) EXCEPT !.cluster[b].disabled = TRUE, !.cluster[b].jobs = <<StartedCleanUp(cluster[b], b)>>])
Stop ==
  \E b \in broker :
    /\ HasJob(cluster[b], b)
    /\ Left(cluster[b], JobOf(cluster[b], b)) = <<>>
    /\ Become(Deregistered(Stopped(S, b), b))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

\* Versions of records; unread messages of a broker; running handlers of a broker; brokers that are not in normal state.
VersionsAtMost(n) ==
  /\ \A k \in Bundles : settled[k] # None => settled[k].version <= n
  /\ \A i \in DOMAIN log : log[i].data # None => log[i].data.version <= n
UnreadAtMost(n) == \A b \in Brokers : cluster[b].up => Len(log) - cluster[b].read <= n
TasksAtMost(n) == \A b \in Brokers : Len(cluster[b].tasks) <= n
IsAbsent(at) == ~at.up \/ ~at.registered \/ at.disabled \/ at.session # "Stable"
AbsentAtMost(n) == Cardinality({b \in Brokers : IsAbsent(cluster[b])}) <= n
=============================================================================
