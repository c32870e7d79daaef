"""How to drive the transaction log: few transactions at once, so that batches are shared and most come to an end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.txn_log.log import TxnLog
from invariants import txn_log as invariants
from model.batch_acks.state import Acks, Partial
from model.txn_log.machine import txn_log
from model.txn_log.state import Config, Place, Promise, Record, State, Txn

#: How many of the transactions that live are driven.
_DRIVEN = 4


def transactions(cfg: Config, s: State) -> tuple[int, ...]:
    """The first ones that live, more often; one that has just ended or is on its way; one to come."""
    alive = tuple([t.id for t in s.txns[:_DRIVEN]])
    return alive * 3 + (max(s.last_id, 0), s.last_id + 1)


def situation(cfg: Config, s: State) -> str:
    """What the next action should depend on."""
    if s.status != "ready":
        return s.status
    if s.ledger == "fenced":
        return "fenced"
    return "many" if len(s.txns) > 3 else "" if s.txns else "none"


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """What the store does, where records are, what lives, and what is deleted and stored."""
    return (
        s.status,
        s.ledger,
        s.cursor_works,
        s.batching,
        min(len(s.buffer), 2),
        min(len(s.in_flight), 2),
        min(len(s.ledgers), 3),
        s.first > 0,
        tuple(t.status for t in s.txns[:3]),
        min(len(s.acks.partial), 2),
        s.acks.deleted > 0,
        s.acks == s.durable,
        s.dirty,
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def entries(s: State) -> int:
    """Entries that are kept."""
    return len(s.log)


def ledgers(s: State) -> int:
    """Ledgers that are kept."""
    return len(s.ledgers)


def ids(s: State) -> int:
    """Ids that were given, from the first that is known on."""
    return s.last_id + 1


def in_flight(s: State) -> int:
    """Entries in flight."""
    return len(s.in_flight)


def late(s: State) -> int:
    """How long ago the first thing was that counts."""
    return s.now_ms


SMOKE = Scope(
    actions=(
        "new_transaction",
        "update_status",
        "flush",
        "written",
        "write_fails",
        "persist",
        "reopen",
        "crash",
        "replay_entry",
        "replay_completes",
    ),
    settings={"max_records": 2, "max_ranges": 1, "max_batch_records": 1},
    domains={
        "timeout_ms": (0,),
        "txn": (0,),
        "to": ("COMMITTING", "COMMITTED"),
        "durable": (1, 0),
        "batching": (True,),
    },
    bounds={"entries": 2, "ledgers": 2, "ids": 2, "in_flight": 1},
    reasons={
        "actions": "what writes, deletes, stores, loses, and finds again; hides participants, trimming, and time",
        "max_records": "two: an entry can be shared by two transactions, or be written half full",
        "max_ranges": "one: two entries have no more",
        "max_batch_records": "one: of two entries with parts the second is forgotten",
        "timeout_ms": "none; time does not pass",
        "txn": "the first one goes on; the second, if there is one, stays open beside it",
        "to": "the way to a commit; an abort goes the same way",
        "durable": "a failed entry is in the log, or not",
        "batching": "batched only; hides plain entries between batches",
        "entries": "two of two records: all that a transaction without participants has, and one of another",
        "ledgers": "two: one restart after something was written, or more before",
        "ids": "two transactions, whose records share entries in every way",
        "in_flight": "one: hides what several entries in flight do to each other, which is in the scope failures",
    },
)

CI = Scope(
    actions=(
        "new_transaction",
        "update_status",
        "written",
        "persist",
        "crash",
        "replay_entry",
        "replay_completes",
    ),
    settings={"max_records": 2, "max_ranges": 0, "max_batch_records": 1},
    domains=dict(SMOKE.domains) | {"txn": (0, 1)},
    bounds=dict(SMOKE.bounds),
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "what writes, deletes, stores, crashes, and finds again; entries that are half full are in smoke",
        "max_ranges": "none: an entry that is deleted after one that is not is forgotten, with what is after it",
        "txn": "both go on, in any order; each can end before the other, and be asked too late",
    },
)

FAILURES = Scope(
    actions=(
        "new_transaction",
        "update_status",
        "written",
        "write_fails",
        "creation_fails",
        "fence",
        "persist",
        "reopen",
        "crash",
        "replay_entry",
        "replay_completes",
        "read_fails",
    ),
    settings={"max_records": 1},
    domains=dict(SMOKE.domains)
    | {"to": ("COMMITTING", "COMMITTED", "ABORTING"), "durable": (0, 1), "batching": (False,)},
    bounds={"entries": 3, "ledgers": 2, "ids": 1, "in_flight": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "every way in which the ledger or a read fails, and what comes after; hides broken cursors",
        "max_records": "one: without batching, records are told apart by their entries",
        "to": "a commit, and an abort that is in its way",
        "batching": "plain entries; an outcome that is not known is the same for all records of a batch",
        "entries": "three plain ones: a beginning, and two decisions that may contradict each other",
        "ids": "one transaction; what is decided of it is decided of no other",
        "in_flight": "two: the first is in the log, and the second is not",
    },
)

CURSOR = Scope(
    actions=(
        "new_transaction",
        "update_status",
        "written",
        "cursor_breaks",
        "persist",
        "reopen",
        "crash",
        "replay_entry",
        "replay_completes",
    ),
    settings=dict(CI.settings),
    domains=dict(SMOKE.domains) | {"durable": (0,), "batching": (True, False)},
    bounds=dict(SMOKE.bounds),
    reasons=dict(CI.reasons)
    | {
        "actions": "what deletes, and a cursor that does not, live and at replay",
        "txn": "the first one goes on; the second, if there is one, stays open beside it",
        "durable": "what was in flight is lost",
        "batching": "a store that is opened without batching finds batches, and writes plain entries",
    },
)

IDS = Scope(
    actions=(
        "new_transaction",
        "update_status",
        "written",
        "persist",
        "crash",
        "replay_entry",
        "replay_completes",
        "roll_ledger",
        "trim",
        "low_watermark",
    ),
    settings={"max_records": 1},
    domains=dict(FAILURES.domains) | {"txn": (0, 1), "to": ("COMMITTING", "COMMITTED")},
    bounds={"entries": 3, "ledgers": 3, "ids": 2, "in_flight": 1},
    reasons=dict(FAILURES.reasons)
    | {
        "actions": "what ids and the watermark depend on: new ledgers, trimming, crashes",
        "to": "the way to a commit",
        "txn": "both can end, so that the whole log can go",
        "entries": "three plain ones at a time; more come when these were trimmed, and ids go on",
        "ledgers": "three: one that is trimmed, one that pins, and the last one",
        "ids": "two that are known at a time; trimmed ones are counted no longer",
        "in_flight": "one: an id that is given and not in the log",
    },
)

TIMES = Scope(
    actions=(
        "new_transaction",
        "add_participant",
        "update_status",
        "written",
        "expired",
        "advance_time",
        "crash",
        "replay_entry",
        "replay_completes",
    ),
    settings={"max_records": 1, "max_active": 2},
    domains=dict(FAILURES.domains)
    | {
        "timeout_ms": (0, 1),
        "to": ("COMMITTING",),
        "op": ("ADD_PARTITION", "ADD_SUBSCRIPTION"),
        "name": (0,),
        "by_ms": (1,),
        "durable": (0,),
    },
    bounds={"entries": 2, "ledgers": 2, "ids": 2, "in_flight": 1, "late": 2},
    reasons=dict(FAILURES.reasons)
    | {
        "actions": "what deadlines depend on, and participants; hides ends and deletions",
        "max_active": "two: a third transaction is refused",
        "timeout_ms": "none and one: the later transaction can be late first",
        "to": "a transaction that is committing is not late",
        "op": "both kinds of participants",
        "name": "one name; names do nothing to each other",
        "by_ms": "one at a time, so that every order comes",
        "durable": "what was in flight is lost",
        "entries": "two: two beginnings, or one transaction with a participant or a decision",
        "ids": "two transactions with different deadlines",
        "in_flight": "one: a deadline that is later by the time of the append",
        "late": "two: one more than the longest timeout",
    },
)

NIGHTLY = Scope(
    actions=CI.actions,
    settings=dict(CI.settings),
    domains=dict(CI.domains),
    bounds={"entries": 3, "ledgers": 2, "ids": 2, "in_flight": 1},
    reasons=dict(CI.reasons) | {"entries": "three of two records: two whole transactions without participants"},
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin: its masks and transactions are sets, its entries are numbered from the first kept."""
    v = variables
    promised = sorted(
        Promise(p["id"], p["status"], mask(p["partitions"]), mask(p["subscriptions"])) for p in v["promised"]
    )
    return State(
        v["status"],
        v["ledger"],
        v["batching"],
        v["cursor_works"],
        read_entry(v["buffer"]),
        tuple([read_entry(entry) for entry in v["in_flight"]]),
        0,
        tuple(v["ledgers"]),
        tuple([read_entry(entry) for entry in v["log"]]),
        v["ledger_id"],
        tuple(sorted(read_txn(t) for t in v["txns"])),
        v["last_id"],
        read_acks(v["known"]),
        read_acks(v["stored"]),
        v["dirty"],
        v["read_next"],
        v["now_ms"],
        tuple(promised),
        v["told_id"],
        v["told_watermark"],
    )


def read_entry(entry: Iterable[Mapping[str, Any]]) -> tuple[Record, ...]:
    """The records of an entry, whose fields have the model's names."""
    return tuple([Record(**record) for record in entry])


def read_txn(t: Mapping[str, Any]) -> Txn:
    """A transaction, with masks for the sets of the twin."""
    places = tuple([Place(*place) for place in t["places"]])
    return Txn(t["id"], t["status"], mask(t["partitions"]), mask(t["subscriptions"]), t["deadline_ms"], places)


def read_acks(acks: Mapping[str, Any]) -> Acks:
    """What is deleted, with masks for the sets of the twin."""
    partial = sorted(Partial(each["entry"], mask(each["remaining"])) for each in acks["partial"])
    return Acks(acks["mark"], mask(acks["deleted"]), tuple(partial))


def mask(numbers: Iterable[int]) -> int:
    """The mask with these bits."""
    return sum(1 << n for n in numbers)


# ---- states that `check` must not let pass ------------------------------------------------------------


def the_entry_at_the_mark_is_deleted(s: State) -> State | None:
    """The entry at the mark is deleted, and the mark has not moved."""
    return s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << s.acks.mark)) if s.acks.deleted else None


def an_entry_that_is_not_there(s: State) -> State:
    """An entry after the last one is deleted."""
    return s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << (s.first + len(s.log) + 1)))


def a_part_with_nothing_left(s: State) -> State | None:
    """An entry of which nothing is left is not deleted."""
    if not s.acks.partial:
        return None
    first = s.acks.partial[0]
    return s._replace(acks=s.acks._replace(partial=(Partial(first.entry, 0), *s.acks.partial[1:])))


def an_entry_is_in_no_ledger(s: State) -> State:
    """The log has one entry less than its ledgers."""
    return s._replace(ledgers=(*s.ledgers[:-1], s.ledgers[-1] + 1))


def a_record_of_two_transactions(s: State) -> State | None:
    """Two transactions share a record."""
    if len(s.txns) < 2:
        return None
    one, other = s.txns[0], s.txns[1]
    return s._replace(txns=(one, other._replace(places=one.places), *s.txns[2:]))


def transactions_in_no_order(s: State) -> State | None:
    """The transactions are not in the order of their ids."""
    return s._replace(txns=s.txns[::-1]) if len(s.txns) > 1 and s.status == "ready" else None


def the_stored_mark_is_trimmed(s: State) -> State | None:
    """The mark that is stored lies before the first entry that is kept."""
    return s._replace(durable=s.durable._replace(mark=s.first - 1)) if s.first else None


subject = Subject(
    txn_log,
    TxnLog,
    invariants,
    domains={
        "timeout_ms": (100, 0, 1000, 5),
        "txn": transactions,
        "op": ("ADD_PARTITION", "ADD_SUBSCRIPTION"),
        "name": (0, 1, 2, 10),
        "to": ("COMMITTING", "COMMITTED", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED"),
        "by_ms": (1, 100, 50, 1000, 100_000),
        "durable": (0, 1, 2, 100),
        "batching": (True, True, False),
    },
    settings={
        "batching": (True, True, False),
        "max_records": (2, 3, 1, 5, 65),
        "max_active": (0, 0, 1, 2),
        "max_ranges": (10_000, 1, 2, 0),
        "max_batch_records": (10_000, 1, 2, 0),
        "max_ranges_in_metadata": (1000, 1, 0),
    },
    weights={
        "new_transaction": 4,
        "add_participant": 1.5,
        "update_status": 16,
        "low_watermark": 0.7,
        "expired": 0.3,
        "advance_time": 0.5,
        "flush": 3,
        "written": 6,
        "write_fails": 0.25,
        "creation_fails": 0.3,
        "fence": 0.1,
        "cursor_breaks": 0.1,
        "roll_ledger": 1,
        "trim": 1,
        "persist": 2,
        "reopen": 0.5,
        "crash": 0.6,
        "replay_entry": 0.1,
        "replay_completes": 0.1,
        "read_fails": 0.1,
    },
    situation=situation,
    in_situation={
        "replaying": {
            "replay_entry": 200,
            "replay_completes": 60,
            "new_transaction": 0.1,
            "update_status": 0.1,
            "cursor_breaks": 2,
            "crash": 2,
            "read_fails": 10,
        },
        "stopped": {"reopen": 10, "crash": 5},
        "failed": {"reopen": 20, "crash": 5},
        "fenced": {"reopen": 10, "crash": 5},
        "many": {"new_transaction": 0.1},
        "none": {"new_transaction": 2, "flush": 8, "written": 1.5, "add_participant": 0.05, "update_status": 0.1},
    },
    swarms={
        "failures": {"write_fails": 6, "creation_fails": 5, "fence": 4, "cursor_breaks": 5, "flush": 2},
        "restarts": {"crash": 4, "reopen": 4, "persist": 2},
        "trimming": {"roll_ledger": 3, "trim": 3, "persist": 3, "low_watermark": 3, "new_transaction": 2},
        "time": {"advance_time": 8, "expired": 8, "new_transaction": 2, "update_status": 0.3},
        "large batches": {
            "add_participant": 70,
            "flush": 0.03,
            "written": 0.5,
            "crash": 0.1,
            "reopen": 0.1,
            "creation_fails": 0.1,
            "write_fails": 0.1,
        },
    },
    abstract=kind_of_state,
    measures={"entries": entries, "ledgers": ledgers, "ids": ids, "in_flight": in_flight, "late": late},
    scopes={
        "smoke": SMOKE,
        "ci": CI,
        "failures": FAILURES,
        "cursor": CURSOR,
        "ids": IDS,
        "times": TIMES,
        "nightly": NIGHTLY,
    },
    corrupt={
        "the_entry_at_the_mark_is_deleted": the_entry_at_the_mark_is_deleted,
        "an_entry_that_is_not_there": an_entry_that_is_not_there,
        "a_part_with_nothing_left": a_part_with_nothing_left,
        "an_entry_is_in_no_ledger": an_entry_is_in_no_ledger,
        "a_record_of_two_transactions": a_record_of_two_transactions,
        "transactions_in_no_order": transactions_in_no_order,
        "the_stored_mark_is_trimmed": the_stored_mark_is_trimmed,
    },
    steps=96,
    tla="TxnLog",
    from_tla=from_tla,
)
