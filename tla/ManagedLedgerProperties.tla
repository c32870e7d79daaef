---------------------- MODULE ManagedLedgerProperties ----------------------
(***************************************************************************)
(* Invariants and liveness of the managed ledger: the twins of those in    *)
(* invariants/managed_ledger that a broker engineer would name first.      *)
(***************************************************************************)
EXTENDS ManagedLedger

Reads(sub) == {sub.normal, sub.replayed} \ {None}

HeldEntryIsNotReadAgain == \A i \in DOMAIN subs : \A p \in Pending(subs[i]) : Before(p, subs[i].read_position)

ActiveCursorHasConsumers ==
  \A i \in DOMAIN subs : (subs[i].active => Connected(subs[i]) # {}) /\
                         (counts_reads /\ Connected(subs[i]) # {} => subs[i].active)

EveryReadIsDispatched ==
  entry_cache.requests = <<>> /\ \A i \in DOMAIN subs : Reads(subs[i]) = {} /\ subs[i].sent = <<>>
=============================================================================
