---------------------- MODULE ManagedLedgerProperties ----------------------
(****************************************************************************)
(* Properties of the managed ledger, under the names of                     *)
(* invariants/managed_ledger: some of its invariants, and all of its        *)
(* liveness properties.                                                     *)
(****************************************************************************)
EXTENDS ManagedLedger

Reads(sub) == {sub.normal_read, sub.replay_read} \ {None}

\* An entry that a consumer holds (pendingAcks) is before the read position.
HeldEntryIsBeforeReadPosition == \A i \in DOMAIN subs : \A p \in Pending(subs[i]) : Before(p, subs[i].read_position)

\* A cursor is active only while its subscription has consumers.  With counts, the cursor is active exactly then.
ActiveCursorHasConsumers ==
  \A i \in DOMAIN subs : (subs[i].active => Connected(subs[i]) # {}) /\
                         (counts_reads /\ Connected(subs[i]) # {} => subs[i].active)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* If storage answers, every read fails or is dispatched, and every sent entry is released.
\* Fair: CompleteStorageRead, Dispatch, Release.
EveryReadEndsAndEverySentEntryIsReleased ==
  entry_cache.requests = <<>> /\ \A i \in DOMAIN subs : Reads(subs[i]) = {} /\ subs[i].sent = <<>>
=============================================================================
