---------------------- MODULE ManagedLedgerProperties ----------------------
(****************************************************************************)
(* Invariants and liveness of the managed ledger: those of                  *)
(* invariants/managed_ledger that a broker engineer would name first, under *)
(* the same names.                                                          *)
(****************************************************************************)
EXTENDS ManagedLedger

Reads(sub) == {sub.normal_read, sub.replay_read} \ {None}

\* An entry that a consumer holds unacknowledged is before the read position, so no normal read reads it again.
HeldEntryIsNotReadAgain == \A i \in DOMAIN subs : \A p \in Pending(subs[i]) : Before(p, subs[i].read_position)

\* An active cursor has consumers; with counts, a cursor with consumers is active.
ActiveCursorHasConsumers ==
  \A i \in DOMAIN subs : (subs[i].active => Connected(subs[i]) # {}) /\
                         (counts_reads /\ Connected(subs[i]) # {} => subs[i].active)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Fairness"). *)

\* Fair: CompleteStorageRead, Dispatch, Release.  Storage answers, so every request completes; then its read is
\* dispatched, and every entry that was sent is written to the connection.
EveryReadIsDispatched ==
  entry_cache.requests = <<>> /\ \A i \in DOMAIN subs : Reads(subs[i]) = {} /\ subs[i].sent = <<>>
=============================================================================
