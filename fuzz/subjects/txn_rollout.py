"""How to drive upgrades and downgrades of brokers whose transaction logs hold batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.txn_rollout import TxnRollout
from invariants import txn_rollout as invariants
from model.txn_rollout import Broker, Config, Entry, Ledger, State, Store, may_downgrade, txn_rollout


def brokers(cfg: Config, s: State) -> tuple[int, ...]:
    """All brokers."""
    return tuple(range(cfg.brokers))


def stores(cfg: Config, s: State) -> tuple[int, ...]:
    """All stores."""
    return tuple(range(cfg.stores))


def situation(cfg: Config, s: State) -> str:
    """How far an upgrade or a downgrade is."""
    new = sum([broker.new for broker in s.brokers])
    if new < cfg.brokers:
        return "old" if all(store.noted is None for store in s.stores) else "downgrade"
    if may_downgrade(s):
        return "over"
    return "new" if any(broker.flag for broker in s.brokers) else "off"


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """Versions and flags, how stores write, what is in their logs, and what was noted."""
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
                    store.noted is not None,
                )
                for store in s.stores[:2]
            )
        ),
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def entries(s: State) -> int:
    """Entries of which something is left, of the store that has most."""
    return max(sum([len(ledger.entries) for ledger in store.ledgers]) for store in s.stores)


def ledgers(s: State) -> int:
    """Ledgers of the store that has most."""
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
        "actions": "all that there are",
        "brokers": "two: one may be old when the other is new",
        "stores": "one; two are in the scope stores",
        "broker": "both of the cluster",
        "store": "the only one",
        "on": "both, at each broker",
        "records": "one and two: a batch that goes as a whole, and one that may go in parts; more go as two do",
        "entry": "the oldest one, and one that is not there",
        "entries": "one; hides logs that are mixed",
        "ledgers": "two: the one with the entry, and the next",
    },
)

CI = Scope(
    actions=SMOKE.actions,
    settings={"brokers": 2, "stores": 1},
    domains=dict(SMOKE.domains) | {"entry": (0, 1, 2)},
    bounds={"entries": 2, "ledgers": 3},
    reasons=dict(SMOKE.reasons)
    | {
        "entry": "either one, and one that is not there",
        "entries": "two: mixed logs, and a ledger behind one that is pinned",
        "ledgers": "three: one for each entry, and the next",
    },
)

STORES = Scope(
    actions=(
        "upgrade_broker",
        "downgrade_broker",
        "turn_flags_off",
        "set_flag",
        "note_ledgers",
        "open_store",
        "close_store",
        "reopen_stores",
        "write_records",
        "end_transactions",
        "trim",
    ),
    settings={"brokers": 1, "stores": 2},
    domains=dict(SMOKE.domains) | {"broker": (0,), "store": (0, 1), "records": (2,), "on": (True,)},
    bounds={"entries": 1, "ledgers": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "all but what the other scopes have: restarts, ledgers that are rolled, transactions one by one",
        "brokers": "one; two are in the other scopes",
        "stores": "two: one may write batches when the other has stopped",
        "broker": "the only one",
        "store": "both of the cluster",
        "on": "on; they go off together",
        "records": "two: a batch that may go in parts, or two plain entries, which are beyond the bound",
        "entries": "one in each store; hides mixed logs",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, whose brokers and stores count from 1, and whose ledgers are numbered anew."""
    cluster = tuple([Broker(each["new"], each["flag"]) for each in variables["cluster"]])
    logs = []
    for each in variables["logs"]:
        found = tuple(
            [
                Ledger(number, tuple([Entry(e["batch"], e["open"], e["ended"]) for e in ledger]))
                for number, ledger in enumerate(each["ledgers"], 1)
            ]
        )
        logs.append(Store(each["owner"], each["batching"], found, each["noted"]))
    return State(cluster, tuple(logs))


# ---- states that `check` must not let pass ------------------------------------------------------------


def with_first(s: State, **changes: Any) -> State:
    """The state with another first store."""
    return s._replace(stores=(s.stores[0]._replace(**changes), *s.stores[1:]))


def an_old_broker_with_a_flag(s: State) -> State | None:
    """A flag is on at a broker that is old."""
    if s.brokers[0].new:
        return None
    return s._replace(brokers=(Broker(False, True), *s.brokers[1:]))


def a_closed_store_that_writes(s: State) -> State | None:
    """A store writes batches though it is closed."""
    return with_first(s, batching=True) if s.stores[0].owner is None else None


def a_broker_that_is_none(s: State) -> State:
    """A store is open at a broker that is not there."""
    return with_first(s, owner=len(s.brokers))


def ledgers_that_are_turned(s: State) -> State | None:
    """The ledgers of a store are in the other order."""
    return with_first(s, ledgers=s.stores[0].ledgers[::-1]) if len(s.stores[0].ledgers) > 1 else None


def a_note_of_the_future(s: State) -> State:
    """A ledger was noted that is to come."""
    return with_first(s, noted=s.stores[0].ledgers[-1].id + 1)


def more_than_was_written(s: State) -> State:
    """A plain entry with two records."""
    last = s.stores[0].ledgers[-1]
    return with_first(s, ledgers=(*s.stores[0].ledgers[:-1], Ledger(last.id, (*last.entries, Entry(0, 2, 0)))))


def an_entry_with_nothing_left(s: State) -> State:
    """A batch of which everything is deleted, and which is still there."""
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
        "note_ledgers": 1,
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
        "old": {"upgrade_broker": 4, "note_ledgers": 0.2},
        "new": {"upgrade_broker": 0.1, "note_ledgers": 0.5},
        "off": {"upgrade_broker": 0.1, "note_ledgers": 3, "trim": 3, "end_transactions": 2, "reopen_stores": 2},
        "over": {"downgrade_broker": 12, "set_flag": 0.2},
        "downgrade": {"upgrade_broker": 0.2, "downgrade_broker": 6, "close_store": 2},
    },
    swarms={
        "batches": {"set_flag": 3, "turn_flags_off": 0.2, "downgrade_broker": 0.3},
        "downgrades": {"turn_flags_off": 3, "set_flag": 0.5, "note_ledgers": 3, "trim": 3, "end_transactions": 4},
        "hasty downgrades": {
            "turn_flags_off": 6,
            "note_ledgers": 9,
            "reopen_stores": 0.3,
            "close_store": 0.4,
            "end_transactions": 8,
            "trim": 5,
        },
        "long transactions": {"end_transaction": 0.3, "end_transactions": 0.1, "roll_ledger": 2, "trim": 2},
        "moves": {"close_store": 4, "open_store": 2, "restart_broker": 3, "reopen_stores": 2},
    },
    abstract=kind_of_state,
    measures={"entries": entries, "ledgers": ledgers},
    scopes={"smoke": SMOKE, "ci": CI, "stores": STORES},
    corrupt={
        "an_old_broker_with_a_flag": an_old_broker_with_a_flag,
        "a_closed_store_that_writes": a_closed_store_that_writes,
        "a_broker_that_is_none": a_broker_that_is_none,
        "ledgers_that_are_turned": ledgers_that_are_turned,
        "a_note_of_the_future": a_note_of_the_future,
        "more_than_was_written": more_than_was_written,
        "an_entry_with_nothing_left": an_entry_with_nothing_left,
    },
    steps=128,
    tla="TxnRollout",
    from_tla=from_tla,
)
