---------------------- MODULE OwnershipChannelProperties -----------------------
(****************************************************************************)
(* Properties of the ownership channel, under the names of                  *)
(* invariants/ownership_channel.py: some of its invariants, and all of its  *)
(* liveness properties.                                                     *)
(****************************************************************************)
EXTENDS OwnershipChannel

\* The accepted records of a bundle have the versions 1, 2, 3 and so on, without gaps.  After a tombstone, versions
\* restart at 1.
AcceptedVersionsAreConsecutive ==
  [][\A k \in Bundles :
       \/ settled'[k] = settled[k]
       \/ settled'[k] = None /\ removal = "tombstone"
       \/ (IF settled'[k] = None THEN FALSE ELSE settled'[k].version = NextVersion(settled[k]))]_vars

\* The view of a broker that has read the whole topic has the accepted record of every bundle.
CaughtUpViewHasAcceptedRecords ==
  OnTopic => \A b \in Brokers : cluster[b].up /\ cluster[b].read = Len(log) => cluster[b].view = settled

\* The record after an Owned record is Releasing or Splitting, and names the owner as source.  A forced record and a
\* tombstone may also follow.  With AssigningFirst, any state may follow.
OwnerIsSourceOfNextRecord ==
  [][\A k \in Bundles :
       LET old == settled[k]
           new == settled'[k]
       IN StateOf(old) = "Owned" /\ new # old /\ (IF new = None THEN FALSE ELSE ~new.force) =>
            new.source = old.dst /\ (new.state \in {"Releasing", "Splitting"} \/ AssigningFirst)]_vars

\* A bundle that was split does not become active again after its record is Deleted or removed.
SplitBundleDoesNotBecomeActiveAgain ==
  [][\A k \in Bundles :
       is_split[k] /\ StateOf(settled[k]) \in {"Deleted", "Init"} =>
         StateOf(settled'[k]) \notin InFlight \cup {"Owned"}]_vars

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* If some broker runs and does not shut down, every bundle is eventually Owned by a running registered broker, or has no
\* owner and is not in flight.
\* Fair: Read, Notify, Finish, Expire, Reconnect, Stabilize, Elect, RecheckElection, Monitor, StartCleanUp, Override,
\* OverrideStuck.  Brokers read and handle every record, and registry entries of dead brokers expire.  A leader is
\* elected, monitors the records, and overrides records that name dead brokers or are stuck.  Restart is not fair:
\* brokers may stay down.
EveryBundleHasARunningOwnerOrNone ==
  (\E b \in Brokers : cluster[b].up /\ ~cluster[b].disabled) => \A k \in Bundles :
    /\ StateOf(settled[k]) \notin InFlight
    /\ StateOf(settled[k]) = "Owned" => cluster[settled[k].dst].up /\ cluster[settled[k].dst].registered

\* Running brokers eventually have equal views, no parked lookup and no pending unload.
\* Fair: Read, Notify, Reconnect, TimeOutLookup, TimeOutUnload.  Every record is read, and a request that no record
\* completes times out.
ViewsAgreeAndRequestsEnd ==
  \A b \in Brokers : cluster[b].up =>
    /\ \A k \in Bundles : ~cluster[b].lookups[k] /\ ~cluster[b].unloads[k]
    /\ \A n \in Brokers : cluster[n].up => cluster[n].view = cluster[b].view
=============================================================================
