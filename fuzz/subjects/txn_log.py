"""How to drive the transaction log: with few ongoing transactions, which share batches, and most of which end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.txn_log.log import TxnLog
from invariants import txn_log as invariants
from model.batch_acks.state import Partial
from model.txn_log.machine import txn_log
from model.txn_log.state import Config, State

# ---- domains and coverage -----------------------------------------------------------------------------

#: Actions apply to this many ongoing transactions, the first ones.
_ONGOING = 4


def transactions(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the ids of the first ongoing transactions, three times; the last assigned id; the next id."""
    ongoing = tuple([t.id for t in s.txns[:_ONGOING]])
    return ongoing * 3 + (max(s.last_id, 0), s.last_id + 1)


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in; "" if none.

    STATUS   the status of the log, if it is not "ready"
    fenced   the ledger is fenced
    many     more than three transactions are ongoing
    none     no transaction is ongoing
    """
    if s.status != "ready":
        return s.status
    if s.ledger == "fenced":
        return "fenced"
    return "many" if len(s.txns) > 3 else "" if s.txns else "none"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns the status, facts about ledger, buffer and deletions, and the statuses of three transactions."""
    return (
        s.status,
        s.ledger,
        s.deletions_succeed,
        s.batching,
        min(len(s.buffer), 2),
        min(len(s.in_flight), 2),
        min(len(s.ledgers), 3),
        s.first_entry > 0,
        tuple(t.status for t in s.txns[:3]),
        min(len(s.acks.partial), 2),
        s.acks.deleted > 0,
        s.acks == s.durable,
        s.dirty,
    )


# ---- measures that scopes bound -------------------------------------------------------------------------


def entries(s: State) -> int:
    """Returns the number of entries in the log."""
    return len(s.log)


def ledgers(s: State) -> int:
    """Returns the number of ledgers of the log."""
    return len(s.ledgers)


def ids(s: State) -> int:
    """Returns the number of assigned ids. In a canonical state, ids are numbered from the first known one."""
    return s.last_id + 1


def in_flight(s: State) -> int:
    """Returns the number of entries in flight."""
    return len(s.in_flight)


def late(s: State) -> int:
    """Returns the clock. In a canonical state, this is the time since the earliest known start of a transaction."""
    return s.now_ms


#: Records are appended and deleted, deletions are persisted, and a crash is followed by a replay.
APPEND_AND_REPLAY = (
    "new_transaction",
    "update_status",
    "complete_write",
    "persist",
    "crash",
    "replay_entry",
    "complete_replay",
)

SMOKE = Scope(
    actions=(*APPEND_AND_REPLAY, "flush", "fail_write", "reopen"),
    settings={"max_records": 2, "max_ranges": 1, "max_ack_sets": 1},
    domains={
        "timeout_ms": (0,),
        "txn": (0,),
        "to": ("COMMITTING", "COMMITTED"),
        "durable": (1, 0),
        "batching": (True,),
    },
    bounds={"entries": 2, "ledgers": 2, "ids": 2, "in_flight": 1},
    reasons={
        "actions": "append, delete, persist, fail and replay; excludes participants, trimming and time",
        "max_records": "two: two transactions share an entry, or an entry is flushed with one record",
        "max_ranges": "one: two entries have at most one range",
        "max_ack_sets": "one: of two partly deleted entries, the persisted cursor keeps the first only",
        "timeout_ms": "zero: time does not advance in this scope",
        "txn": "the first transaction is updated; the second stays OPEN",
        "to": "commit: an abort has the same steps",
        "durable": "one and zero: a failed entry is durable or not",
        "batching": "true: excludes plain entries between batches",
        "entries": "two, with four records: a whole transaction without participants, and one record of another",
        "ledgers": "two: one restart of a log with entries; excludes several",
        "ids": "two transactions: their records share entries in every way",
        "in_flight": "one: interaction of entries in flight is in the scope failures",
    },
)

CI = SMOKE.changed(
    actions=APPEND_AND_REPLAY,
    settings={"max_ranges": 0},
    domains={"txn": (0, 1)},
    reasons={
        "actions": "append, delete, persist, crash and replay; flushes of partial batches are in the scope smoke",
        "max_ranges": "zero: the persisted cursor keeps no deleted range that follows an undeleted entry",
        "txn": "both are updated, in any order: each can end first, and can be updated after its end",
    },
)

FAILURES = Scope(
    actions=(*APPEND_AND_REPLAY, "fail_write", "fail_ledger_creation", "fence", "reopen", "fail_read"),
    settings={"max_records": 1},
    domains=dict(SMOKE.domains)
    | {"to": ("COMMITTING", "COMMITTED", "ABORTING"), "durable": (0, 1), "batching": (False,)},
    bounds={"entries": 3, "ledgers": 2, "ids": 1, "in_flight": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "every failure of the ledger and of reads; broken cursors are in the scope cursor",
        "max_records": "one: without batching, each record is an entry",
        "to": "a commit and a conflicting abort",
        "batching": "false: plain entries; an unknown outcome would apply to all records of a batch",
        "entries": "three plain entries: a NEW record and two decisions that may conflict",
        "ids": "one transaction; decisions of different transactions are independent",
        "in_flight": "two: the first can be durable when the second is not",
    },
)

CURSOR = Scope(
    actions=(*APPEND_AND_REPLAY, "break_cursor", "reopen"),
    settings=dict(CI.settings),
    domains=dict(SMOKE.domains) | {"durable": (0,), "batching": (True, False)},
    bounds=dict(SMOKE.bounds),
    reasons=dict(CI.reasons)
    | {
        "actions": "deletions with a working and a broken cursor, live and at replay",
        "txn": "the first transaction is updated; the second stays OPEN",
        "durable": "entries in flight are lost",
        "batching": "a store that is reopened without batching reads batches and writes plain entries",
    },
)

IDS = FAILURES.changed(
    actions=(*APPEND_AND_REPLAY, "roll_ledger", "trim", "low_watermark"),
    domains={"txn": (0, 1), "to": ("COMMITTING", "COMMITTED")},
    bounds={"ledgers": 3, "ids": 2, "in_flight": 1},
    reasons={
        "actions": "ids and low watermark over rollover, trimming and crashes",
        "to": "transactions are only committed",
        "txn": "both can end, so the whole log can be trimmed",
        "entries": "three plain entries at a time; trimming admits more",
        "ledgers": "three: one that can be trimmed, one that cannot, and the last one",
        "ids": "two known ids at a time; ids of trimmed records do not count",
        "in_flight": "one: an assigned id that is not in the log",
    },
)

TIMES = FAILURES.changed(
    actions=(
        "new_transaction",
        "add_participant",
        "update_status",
        "complete_write",
        "expired",
        "advance_time",
        "crash",
        "replay_entry",
        "complete_replay",
    ),
    settings={"max_active": 2},
    domains={
        "timeout_ms": (0, 1),
        "to": ("COMMITTING",),
        "op": ("ADD_PARTITION", "ADD_SUBSCRIPTION"),
        "name": (0,),
        "by_ms": (1,),
        "durable": (0,),
    },
    bounds={"entries": 2, "ids": 2, "in_flight": 1, "late": 2},
    reasons={
        "actions": "deadlines and participants; excludes ended transactions and deletions",
        "max_active": "two: a third transaction is rejected",
        "timeout_ms": "zero and one: the later transaction can expire first",
        "to": "a COMMITTING transaction does not expire",
        "op": "both kinds of participants",
        "name": "one name: names are independent",
        "by_ms": "one: every order of steps and deadlines occurs",
        "durable": "entries in flight are lost",
        "entries": "two: two NEW records, or one transaction with a participant or decision",
        "ids": "two transactions with different deadlines",
        "in_flight": "one: a deadline can be later by the latency of the append",
        "late": "two: one more than the longest timeout",
    },
)

NIGHTLY = CI.changed(
    bounds={"entries": 3},
    reasons={
        "entries": "three, with six records: two whole transactions without participants",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin numbers entries from the first one of the log."""
    found: State = as_model(State, variables, first_entry=0)
    return found


# ---- corrupted states that `check` must report ----------------------------------------------------------


def first_unacked_entry_is_deleted(_cfg: Config, s: State) -> State | None:
    """The entry after the mark-delete position is deleted individually."""
    return (
        s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << s.acks.first_unacked)) if s.acks.deleted else None
    )


def deleted_entry_is_beyond_log(_cfg: Config, s: State) -> State:
    """An entry after the last one is deleted."""
    return s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << (s.first_entry + len(s.log) + 1)))


def ack_set_is_empty(_cfg: Config, s: State) -> State | None:
    """An ack set has no remaining record, and its entry is not deleted."""
    if not s.acks.partial:
        return None
    first = s.acks.partial[0]
    return s._replace(acks=s.acks._replace(partial=(Partial(first.entry, 0), *s.acks.partial[1:])))


def ledger_has_missing_entry(_cfg: Config, s: State) -> State:
    """The ledgers have one entry more than the log."""
    return s._replace(ledgers=(*s.ledgers[:-1], s.ledgers[-1] + 1))


def transactions_share_position(_cfg: Config, s: State) -> State | None:
    """Two transactions share a position."""
    if len(s.txns) < 2:
        return None
    one, other = s.txns[0], s.txns[1]
    return s._replace(txns=(one, other._replace(positions=one.positions), *s.txns[2:]))


def transactions_are_unordered(_cfg: Config, s: State) -> State | None:
    """The transactions are not in id order."""
    return s._replace(txns=s.txns[::-1]) if len(s.txns) > 1 and s.status == "ready" else None


def durable_mark_is_trimmed(_cfg: Config, s: State) -> State | None:
    """The durable mark-delete position is before a trimmed entry."""
    return s._replace(durable=s.durable._replace(first_unacked=s.first_entry - 1)) if s.first_entry else None


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
        "max_ack_sets": (10_000, 1, 2, 0),
        "max_ranges_in_metadata": (1000, 1, 0, -1),
    },
    weights={
        "new_transaction": 4,
        "add_participant": 1.5,
        "update_status": 16,
        "low_watermark": 0.7,
        "expired": 0.3,
        "advance_time": 0.5,
        "flush": 3,
        "complete_write": 6,
        "fail_write": 0.25,
        "fail_ledger_creation": 0.3,
        "fence": 0.1,
        "break_cursor": 0.1,
        "roll_ledger": 1,
        "trim": 1,
        "persist": 2,
        "reopen": 0.5,
        "crash": 0.6,
        "replay_entry": 0.1,
        "complete_replay": 0.1,
        "fail_read": 0.1,
    },
    situation=situation,
    in_situation={
        "replaying": {
            "replay_entry": 200,
            "complete_replay": 60,
            "new_transaction": 0.1,
            "update_status": 0.1,
            "break_cursor": 2,
            "crash": 2,
            "fail_read": 10,
        },
        "stopped": {"reopen": 10, "crash": 5},
        "failed": {"reopen": 20, "crash": 5},
        "fenced": {"reopen": 10, "crash": 5},
        "many": {"new_transaction": 0.1},
        "none": {
            "new_transaction": 2,
            "flush": 8,
            "complete_write": 1.5,
            "add_participant": 0.05,
            "update_status": 0.1,
        },
    },
    swarms={
        "failures": {"fail_write": 6, "fail_ledger_creation": 5, "fence": 4, "break_cursor": 5, "flush": 2},
        "restarts": {"crash": 4, "reopen": 4, "persist": 2},
        "trimming": {"roll_ledger": 3, "trim": 3, "persist": 3, "low_watermark": 3, "new_transaction": 2},
        "time": {"advance_time": 8, "expired": 8, "new_transaction": 2, "update_status": 0.3},
        "large batches": {
            "add_participant": 70,
            "flush": 0.03,
            "complete_write": 0.5,
            "crash": 0.1,
            "reopen": 0.1,
            "fail_ledger_creation": 0.1,
            "fail_write": 0.1,
        },
    },
    largest={"name": 300},  # larger names make larger bit masks
    abstract=coverage_key,
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
        "first_unacked_entry_is_deleted": first_unacked_entry_is_deleted,
        "deleted_entry_is_beyond_log": deleted_entry_is_beyond_log,
        "ack_set_is_empty": ack_set_is_empty,
        "ledger_has_missing_entry": ledger_has_missing_entry,
        "transactions_share_position": transactions_share_position,
        "transactions_are_unordered": transactions_are_unordered,
        "durable_mark_is_trimmed": durable_mark_is_trimmed,
    },
    steps=96,
    tla="TxnLog",
    from_tla=from_tla,
)
