"""How to drive upgrades and downgrades of brokers. New brokers write batches to transaction logs if their flag is on.

`model/txn_rollout.py` describes the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.txn_rollout import TxnRollout
from invariants import txn_rollout as invariants
from model.txn_rollout import Broker, Config, Entry, Ledger, State, Store, may_downgrade, txn_rollout


def brokers(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns all brokers."""
    return tuple(range(cfg.brokers))


def stores(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns all stores."""
    return tuple(range(cfg.stores))


def situation(cfg: Config, s: State) -> str:
    """Returns the stage of the upgrade or downgrade: "old", "new", "off", "over" or "downgrade".

    old          some brokers are old, and no store has a recorded last ledger
    new          all brokers are new, and some have the flag on
    off          all brokers are new, with the flag off; downgrades are not allowed yet
    over         all brokers are new, and may be downgraded
    downgrade    some brokers are old, and the last ledgers were recorded
    """
    new_brokers = sum([broker.new for broker in s.brokers])
    if new_brokers < cfg.brokers:
        return "old" if all(store.last_batched_ledger is None for store in s.stores) else "downgrade"
    if may_downgrade(s):
        return "over"
    return "new" if any(broker.flag for broker in s.brokers) else "off"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns versions and flags of the brokers, and modes, kinds of entries and recorded ledgers of two stores."""
    return (
        tuple(sorted(s.brokers)),
        tuple(
            sorted(
                (
                    store.owner is None,
                    store.batching,
                    min(len(store.ledgers), 3),
                    any(e.batch for ledger in store.ledgers for e in ledger.entries),
                    any(not e.batch for ledger in store.ledgers for e in ledger.entries),
                    store.last_batched_ledger is not None,
                )
                for store in s.stores[:2]
            )
        ),
    )


# ---- measures that scopes bound -------------------------------------------------------------------------


def entries(s: State) -> int:
    """Returns the number of undeleted entries of the store that has most."""
    return max(sum([len(ledger.entries) for ledger in store.ledgers]) for store in s.stores)


def ledgers(s: State) -> int:
    """Returns the number of ledgers of the store that has most."""
    return max(len(store.ledgers) for store in s.stores)


SMOKE = Scope(
    actions=tuple(txn_rollout.actions),
    settings={"brokers": 2, "stores": 1},
    domains={
        "broker": (0, 1),
        "store": (0,),
        "on": (True, False),
        "records": (1, 2),
        "entry": (0, 1),
    },
    bounds={"entries": 1, "ledgers": 2},
    reasons={
        "actions": "all actions of the model",
        "brokers": "two: one may be old while the other is new",
        "stores": "one store; two are in the scope stores",
        "broker": "both brokers of the scope",
        "store": "the only one",
        "on": "a flag is enabled or disabled at each broker",
        "records": "one and two: a batch is deleted at once, or record by record; larger batches behave as one of two",
        "entry": "the oldest entry, and a missing one",
        "entries": "one: excludes a log with a batch and a plain entry",
        "ledgers": "two: the ledger with the entry, and the next",
    },
)

CI = SMOKE.changed(
    domains={"entry": (0, 1, 2)},
    bounds={"entries": 2, "ledgers": 3},
    reasons={
        "entry": "either entry, and a missing one",
        "entries": "two: a batch and a plain entry, and a trimmable ledger after one that cannot be trimmed",
        "ledgers": "three: one for each entry, and the next",
    },
)

STORES = SMOKE.changed(
    actions=(
        "upgrade_broker",
        "downgrade_broker",
        "turn_flags_off",
        "set_flag",
        "record_last_ledgers",
        "open_store",
        "close_store",
        "reopen_stores",
        "write_records",
        "end_transactions",
        "trim",
    ),
    settings={"brokers": 1, "stores": 2},
    domains={"broker": (0,), "store": (0, 1), "records": (2,), "on": (True,)},
    reasons={
        "actions": "all except restarts, rollovers and single transactions, which are in the other scopes",
        "brokers": "one broker; two are in the other scopes",
        "stores": "two: one may batch after the other has stopped",
        "broker": "the only one",
        "store": "both stores of the scope",
        "on": "enabling only; flags are disabled together",
        "records": "two: one batch, or two plain entries, which are beyond the bound",
        "entries": "one in each store: excludes a log with a batch and a plain entry",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The ledgers of each store are numbered from 1."""
    cluster = tuple([Broker(each["new"], each["flag"]) for each in variables["cluster"]])
    logs = []
    for each in variables["logs"]:
        found = tuple(
            [
                Ledger(number, tuple([Entry(e["batch"], e["open"], e["ended"]) for e in ledger]))
                for number, ledger in enumerate(each["ledgers"], 1)
            ]
        )
        logs.append(Store(each["owner"], each["batching"], found, each["last_batched_ledger"]))
    return State(cluster, tuple(logs))


# ---- corrupted states that `check` must report ----------------------------------------------------------


def with_first(s: State, **changes: Any) -> State:
    """Returns the state with changed fields of the first store."""
    return s._replace(stores=(s.stores[0]._replace(**changes), *s.stores[1:]))


def old_broker_has_flag(_cfg: Config, s: State) -> State | None:
    """An old broker has an enabled flag."""
    if s.brokers[0].new:
        return None
    return s._replace(brokers=(Broker(False, True), *s.brokers[1:]))


def closed_store_batches(_cfg: Config, s: State) -> State | None:
    """A closed store has batching on."""
    return with_first(s, batching=True) if s.stores[0].owner is None else None


def owner_does_not_exist(_cfg: Config, s: State) -> State:
    """A store is open at a broker that does not exist."""
    return with_first(s, owner=len(s.brokers))


def ledgers_are_reversed(_cfg: Config, s: State) -> State | None:
    """The ledgers of a store are reversed."""
    return with_first(s, ledgers=s.stores[0].ledgers[::-1]) if len(s.stores[0].ledgers) > 1 else None


def recorded_ledger_is_in_the_future(_cfg: Config, s: State) -> State:
    """The recorded ledger does not exist yet."""
    return with_first(s, last_batched_ledger=s.stores[0].ledgers[-1].id + 1)


def plain_entry_has_two_records(_cfg: Config, s: State) -> State:
    """A plain entry has two records."""
    last = s.stores[0].ledgers[-1]
    return with_first(s, ledgers=(*s.stores[0].ledgers[:-1], Ledger(last.id, (*last.entries, Entry(0, 2, 0)))))


def listed_entry_is_deleted(_cfg: Config, s: State) -> State:
    """A ledger still has a batch whose records are all deleted."""
    last = s.stores[0].ledgers[-1]
    return with_first(s, ledgers=(*s.stores[0].ledgers[:-1], Ledger(last.id, (Entry(2, 0, 0), *last.entries))))


subject = Subject(
    txn_rollout,
    TxnRollout,
    invariants,
    domains={
        "broker": brokers,
        "store": stores,
        "on": (True, True, False),
        "records": (1, 2, 2, 3),
        "entry": (0, 0, 1, 2, 5),
    },
    settings={"brokers": (2, 1, 3), "stores": (2, 1, 3)},
    weights={
        "upgrade_broker": 2,
        "downgrade_broker": 0.5,
        "restart_broker": 0.3,
        "set_flag": 1,
        "turn_flags_off": 0.4,
        "record_last_ledgers": 1,
        "open_store": 5,
        "close_store": 1.5,
        "reopen_stores": 0.7,
        "write_records": 6,
        "roll_ledger": 2,
        "end_transaction": 4,
        "end_transactions": 0.5,
        "trim": 1,
    },
    situation=situation,
    in_situation={
        "old": {"upgrade_broker": 4, "record_last_ledgers": 0.2},
        "new": {"upgrade_broker": 0.1, "record_last_ledgers": 0.5},
        "off": {"upgrade_broker": 0.1, "record_last_ledgers": 3, "trim": 3, "end_transactions": 2, "reopen_stores": 2},
        "over": {"downgrade_broker": 12, "set_flag": 0.2},
        "downgrade": {"upgrade_broker": 0.2, "downgrade_broker": 6, "close_store": 2},
    },
    swarms={
        "batches": {"set_flag": 3, "turn_flags_off": 0.2, "downgrade_broker": 0.3},
        "downgrades": {
            "turn_flags_off": 3,
            "set_flag": 0.5,
            "record_last_ledgers": 3,
            "trim": 3,
            "end_transactions": 4,
        },
        "hasty downgrades": {
            "turn_flags_off": 6,
            "record_last_ledgers": 9,
            "reopen_stores": 0.3,
            "close_store": 0.4,
            "end_transactions": 8,
            "trim": 5,
        },
        "long transactions": {"end_transaction": 0.3, "end_transactions": 0.1, "roll_ledger": 2, "trim": 2},
        "moves": {"close_store": 4, "open_store": 2, "restart_broker": 3, "reopen_stores": 2},
    },
    abstract=coverage_key,
    measures={"entries": entries, "ledgers": ledgers},
    scopes={"smoke": SMOKE, "ci": CI, "stores": STORES},
    corrupt={
        "old_broker_has_flag": old_broker_has_flag,
        "closed_store_batches": closed_store_batches,
        "owner_does_not_exist": owner_does_not_exist,
        "ledgers_are_reversed": ledgers_are_reversed,
        "recorded_ledger_is_in_the_future": recorded_ledger_is_in_the_future,
        "plain_entry_has_two_records": plain_entry_has_two_records,
        "listed_entry_is_deleted": listed_entry_is_deleted,
    },
    largest={"brokers": 8, "stores": 8, "records": 66},  # each is an object of the state
    steps=128,
    tla="TxnRollout",
    from_tla=from_tla,
)
