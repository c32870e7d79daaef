---------------------- MODULE OwnershipChannelProperties -----------------------
(***************************************************************************)
(* Guarantees of the ownership channel: the twin of                        *)
(* invariants/ownership_channel.py, under the same names.                  *)
(***************************************************************************)
EXTENDS OwnershipChannel

\* The records of a bundle that are accepted have the versions 1, 2, 3 and so on.
AcceptedVersionsAreConsecutive ==
  [][\A k \in Bundles :
       \/ settled'[k] = settled[k]
       \/ settled'[k] = None /\ removal = "tombstone"
       \/ (IF settled'[k] = None THEN FALSE ELSE settled'[k].version = NextVersion(settled[k]))]_vars

\* A broker that has read the whole topic has the accepted record of every bundle.
CaughtUpViewHasAcceptedRecords ==
  OnTopic => \A b \in Brokers : cluster[b].up /\ cluster[b].read = Len(log) => cluster[b].view = settled

\* Unless a record is forced, an Owned bundle becomes only a bundle that its owner releases or splits.
OwnedBundleIsGivenUpByItsOwner ==
  [][\A k \in Bundles :
       LET old == settled[k]
           new == settled'[k]
       IN StateOf(old) = "Owned" /\ new # old /\ (IF new = None THEN FALSE ELSE ~new.force) =>
            new.source = old.dst /\ (new.state \in {"Releasing", "Splitting"} \/ IsFirst)]_vars

\* A bundle that was split and is Deleted, or removed, gets no active record.
DeletedBundleIsNotAssignedAgain ==
  [][\A k \in Bundles :
       is_split[k] /\ StateOf(settled[k]) \in {"Deleted", "Init"} =>
         StateOf(settled'[k]) \notin InFlight \cup {"Owned"}]_vars

-----------------------------------------------------------------------------
(* What must come in the end, once only the fair actions go on happening. *)

\* Every bundle is Owned by a running broker, or has no owner and is not in flight, unless no broker runs.
EveryBundleHasARunningOwnerOrNone ==
  (\E b \in Brokers : cluster[b].up) => \A k \in Bundles :
    /\ StateOf(settled[k]) \notin InFlight
    /\ StateOf(settled[k]) = "Owned" => cluster[settled[k].dst].up /\ cluster[settled[k].dst].registered

\* Running brokers have equal views and no request waits.
ViewsAgreeAndRequestsEnd ==
  \A b \in Brokers : cluster[b].up =>
    /\ \A k \in Bundles : ~cluster[b].lookups[k] /\ ~cluster[b].unloads[k]
    /\ \A n \in Brokers : cluster[n].up => cluster[n].view = cluster[b].view
=============================================================================
