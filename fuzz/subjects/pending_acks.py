"""How to drive a pending-ack store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from fuzz.subject import Scope, Subject
from impl.pending_acks.handle import PendingAcks
from invariants.pending_acks import guarantees as invariants
from model.batch_acks.state import Acks, Partial
from model.pending_acks.log_index import Key, LogIndex, next_lag
from model.pending_acks.machine import AckOf, pending_acks
from model.pending_acks.state import Call, Config, Cumulative, Holder, Part, Record, State

#: How many entries from the one before the mark on are acknowledged.
_NEAR = 5

#: The number of a transaction that is larger than those that Python keeps one object of.
LARGE = "1000"

#: Lists of individual acknowledgements.
Lists = tuple[tuple[AckOf, ...], ...]


@lru_cache(maxsize=256)
def sets_of(size: int) -> tuple[int | None, ...]:
    """What an acknowledgement leaves of a batch: nothing, all but one at each end, halves, one message."""
    everything = 2**size - 1
    masks = [everything & ~1, everything >> 1, 1, 1 << size - 1, everything & 0b0101 * 2 ** max(size - 4, 0), 2]
    return None, *[mask for mask in dict.fromkeys(masks) if 0 < mask < everything]


@lru_cache(maxsize=256)
def ends_of(size: int) -> tuple[int | None, ...]:
    """What a cumulative acknowledgement leaves of a batch: nothing, or the end of it from some message on."""
    everything = 2**size - 1
    return None, *[everything & ~(2**n - 1) for n in dict.fromkeys((1, size // 2, size - 1)) if 0 < n < size]


@lru_cache(maxsize=1024)
def lists_near(sizes: tuple[int, ...], start: int) -> Lists:
    """Entries one by one and in pairs; lists that are refused: empty, twice one entry, sets that are none."""
    found: list[tuple[AckOf, ...]] = []
    singles = [[AckOf(n, each) for each in sets_of(sizes[n % len(sizes)])] for n in range(start, start + _NEAR)]
    for i, some in enumerate(singles):
        found += [(each,) for each in some] * 2
        if i:
            found += [(a, b) for a, b in zip(singles[i - 1], reversed(some), strict=False)]
            found += [(some[0], singles[i - 1][-1]), (singles[0][0], *[each[-1] for each in singles[i:]])]
    everything = 2 ** sizes[start % len(sizes)] - 1
    one, part, other, none = singles[0][0], singles[0][-1], singles[1][0], AckOf(start, everything)
    empty = AckOf(start + 1, 0)
    found += [(one, other), (one, other, singles[2][0]), (one, empty), (empty,)]
    return (*found, (), (one,) * 2, (one, part), (one, other, one), (none,), (other, none), (none, one))


@lru_cache(maxsize=4096)
def lists_with(sizes: tuple[int, ...], start: int, held: tuple[Part, ...]) -> Lists:
    """Entries from one on, one by one and in pairs, and more often the rest of what is held in part."""
    rests = [(AckOf(n, 2 ** sizes[n % len(sizes)] - 1 & ~(leaves or 0)),) for n, leaves in held]
    return (*lists_near(sizes, start), *rests * 8)


def lists(cfg: Config, s: State) -> Lists:
    """Entries around the mark one by one and in pairs, and the rest of what is held in part."""
    held = tuple([part for holder in s.held for part in holder.parts if part.leaves])
    return lists_with(cfg.batch_sizes, max(s.acks.mark - 1, 0), held)


def txns(cfg: Config, s: State) -> tuple[int, ...]:
    """Four transactions, and more often the first of those that hold something."""
    last = int(LARGE)  # another object each time, as a number from a file is
    return (1, 2, 3, last, s.held[0].txn, s.held[0].txn, s.held[-1].txn) if s.held else (1, 2, 3, last)


@lru_cache(maxsize=1024)
def near(start: int) -> tuple[int, ...]:
    """A few entries in order."""
    return tuple(range(start, start + _NEAR))


def entries(cfg: Config, s: State) -> tuple[int, ...]:
    """The entries around the mark, from the one before it on."""
    return near(max(s.acks.mark - 1, 0))


@lru_cache(maxsize=64)
def sets_for(sizes: tuple[int, ...]) -> tuple[int | None, ...]:
    """Sets for batches of any of these sizes."""
    return None, *[each for size in sizes for each in sets_of(size)], 2 ** max(sizes)


@lru_cache(maxsize=64)
def ends_for(sizes: tuple[int, ...]) -> tuple[int | None, ...]:
    """Sets of cumulative acknowledgements for batches of any of these sizes; the end of none; nothing at all."""
    return None, None, *[each for size in sizes for each in ends_of(size)], 0, 0b101


def sets(cfg: Config, s: State) -> tuple[int | None, ...]:
    """What an acknowledgement leaves of an entry, for any size that there is."""
    return sets_for(cfg.batch_sizes)


def ends(cfg: Config, s: State) -> tuple[int | None, ...]:
    """What a cumulative acknowledgement leaves of its entry, for any size that there is."""
    return ends_for(cfg.batch_sizes)


def last_entries(cfg: Config, s: State) -> tuple[int, ...]:
    """The entries around the mark, and seldom one that is far from it."""
    near = entries(cfg, s)
    return (*near * 4, near[-1] + 256)


def survivors(cfg: Config, s: State) -> tuple[int, ...]:
    """None, one, half and all of the entries in flight, and one more."""
    count = len(s.in_flight)
    return 0, 0, 1, count, count // 2, count + 1


def situation(cfg: Config, s: State) -> str:
    """What the next action should depend on."""
    if s.status == "initializing":
        return "replay" if s.progress < len(s.log) else "replayed"
    if s.status != "ready":
        return "in flight" if s.in_flight else "down"
    if len(s.in_flight) + len(s.buffer) > 5:
        return "busy"
    return "long" if len(s.log) > 12 else ""


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """Whether the store serves, what is pending, on its way, in the log and not yet durable."""
    return (
        s.status,
        min(len(s.held), 3),
        s.cumulative is not None and s.cumulative.part.leaves is None,
        min(len(s.buffer), 2),
        min(len(s.in_flight), 2),
        min(len(s.log), 3),
        min(len(s.log_index.keys), 3),
        s.acks == s.durable,
        min(len(s.queue), 2),
        s.low_watermark > 0,
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def log_records(s: State) -> int:
    """Records in the log."""
    return sum(len(entry) for entry in s.log)


def on_the_way(s: State) -> int:
    """Requests in the buffer, in flight and in the queue."""
    return sum(len(calls) for calls in s.in_flight) + len(s.buffer) + len(s.queue)


def records(s: State) -> int:
    """Records in the log and on their way."""
    return log_records(s) + on_the_way(s)


#: An entry of two messages: one of them, the other one.
ONE, OTHER = 2, 1

SMOKE = Scope(
    actions=(
        "ack_individual",
        "commit",
        "persist",
        "flush",
        "written",
        "open_store",
        "read_entry",
        "end_replay",
        "crash",
    ),
    settings={"batch_sizes": (2, 1), "min_lag": 1},
    domains={
        "txn": (1, 2),
        "commit.txn": (1,),
        "acks": ((AckOf(0, ONE),), (AckOf(0, OTHER), AckOf(1, None))),
        "low_watermark": (0,),
        "survive": (0,),
    },
    bounds={"records": 3, "on_the_way": 2},
    reasons={
        "actions": "what acknowledges, commits, makes durable, forgets and reads again; hides aborts and failures",
        "batch_sizes": "two messages and one: an entry that has parts, and one that has none",
        "min_lag": "one: each acknowledgement makes a key when there are few",
        "txn": "two: one can be in the other's way",
        "commit.txn": "the first; the other one only holds what it has",
        "acks": "one message, and a list with the other one and the next entry",
        "low_watermark": "none: no transaction is stale",
        "survive": "what is in flight at a crash is lost; what comes through is in the scope ci",
        "records": "three: an acknowledgement, a commit and another acknowledgement, in up to three entries",
        "on_the_way": "two: a batch of two, or one in flight and one in the buffer",
    },
)

CI = Scope(
    actions=tuple(pending_acks.actions),
    settings={"batch_sizes": (2,), "min_lag": 1, "read_attempts": 2},
    domains={
        "txn": (1, 2),
        "acks": ((AckOf(0, ONE),), (AckOf(0, OTHER),)),
        "entry": (0,),
        "ack_cumulative.leaves": (ONE,),
        "acknowledge.leaves": (None,),
        "commit.low_watermark": (1,),
        "abort.low_watermark": (0,),
        "durable": (True, False),
        "stops": (True, False),
        "survive": (0, 1),
    },
    bounds={"records": 2, "on_the_way": 1},
    reasons={
        "actions": "all that there are",
        "batch_sizes": "two messages in each entry",
        "min_lag": "one: each acknowledgement makes a key when there are few",
        "read_attempts": "two: a read that fails is tried once more",
        "txn": "two: one can be in the other's way, and be stale when the other one ends",
        "acks": "either message of the entry: two transactions can share it",
        "entry": "the one entry whose messages are acknowledged one by one",
        "ack_cumulative.leaves": "the first message of the batch is acknowledged, with all before it",
        "acknowledge.leaves": "the whole entry, whoever holds it",
        "commit.low_watermark": "the first transaction has ended when any is committed",
        "abort.low_watermark": "none: what an abort says of others is as what a commit says",
        "durable": "both, after each append that failed",
        "stops": "both kinds of reads that fail",
        "survive": "what is in flight at a crash is in the log, or is not",
        "records": "two: an acknowledgement, and another one or an end; longer logs are in the other scopes",
        "on_the_way": "one: no batches; those are in the scope smoke",
    },
)

CUMULATIVE = Scope(
    actions=(
        "ack_individual",
        "ack_cumulative",
        "commit",
        "abort",
        "persist",
        "written",
        "open_store",
        "read_entry",
        "end_replay",
        "crash",
    ),
    settings={"batch_sizes": (2,), "min_lag": 1, "batching": False},
    domains={
        "txn": (1, 2),
        "acks": ((AckOf(0, OTHER),),),
        "entry": (0,),
        "leaves": (ONE,),
        "low_watermark": (0,),
        "survive": (0,),
    },
    bounds={"records": 3, "on_the_way": 1},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "both kinds of acknowledgements, both kinds of ends, and a replay of them",
        "batch_sizes": "two messages in each entry",
        "batching": "off: each record is an entry of its own",
        "acks": "the second message of the entry, which the cumulative acknowledgement is not of",
        "entry": "the one entry, into whose batch the cumulative acknowledgement goes",
        "leaves": "the second message of the batch is left",
        "on_the_way": "one: each record is called back before the next one comes",
    },
)

NIGHTLY = Scope(
    actions=tuple(a for a in pending_acks.actions if a not in ("ack_cumulative", "acknowledge", "close", "read_fails")),
    settings=dict(SMOKE.settings),
    domains={
        "txn": (1, 2),
        "acks": SMOKE.domains["acks"],
        "low_watermark": (0,),
        "durable": (True, False),
        "survive": (0, 1),
    },
    bounds={"records": 3, "on_the_way": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "individual acknowledgements with aborts, failed appends and cursors that refuse",
        "durable": "both, after each append that failed",
        "survive": "what is in flight at a crash is in the log, or is not",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin: its masks and what a transaction holds are sets; the next lag goes without saying."""
    v = variables
    keys = tuple([Key(each["entry"], each["at"]) for each in v["log_index"]["keys"]])
    claim = v["cumulative"]
    in_flight = tuple([read_calls(calls) for calls in v["in_flight"]])
    buffer, queue = read_calls(v["buffer"]), read_calls(v["queue"])
    waiting = [call for calls in (*in_flight, buffer, queue) for call in calls if call.ticket]
    return State(
        read_acks(v["acks"]),
        read_acks(v["durable"]),
        tuple([tuple([read_record(each) for each in entry]) for entry in v["log"]]),
        v["read"],
        LogIndex(v["log_index"]["lag"], next_lag(cfg.min_lag, len(keys)), v["log_index"]["max_ack"], keys),
        v["status"],
        v["progress"],
        v["attempts"],
        queue,
        buffer,
        in_flight,
        tuple([Holder(each["txn"], read_parts(sorted(each["parts"], key=by_entry))) for each in v["held"]]),
        claim and Cumulative(claim["txn"], *read_parts([claim["part"]])),
        v["low_watermark"],
        len(waiting) + 1,
    )


def read_calls(calls: Iterable[Mapping[str, Any]]) -> tuple[Call, ...]:
    """The calls of the twin."""
    return tuple([Call(each["ticket"], read_record(each["record"]), each["low_watermark"]) for each in calls])


def read_record(each: Mapping[str, Any]) -> Record:
    """A record of the twin."""
    return Record(each["op"], each["cumulative"], each["txn"], read_parts(each["parts"]))


def read_parts(parts: Iterable[Mapping[str, Any]]) -> tuple[Part, ...]:
    """Parts of entries, with masks for the sets of the twin."""
    return tuple([Part(each["entry"], None if each["leaves"] is None else mask(each["leaves"])) for each in parts])


def read_acks(acks: Mapping[str, Any]) -> Acks:
    """What is acknowledged, with masks for the sets of the twin."""
    partial = tuple([Partial(each["entry"], mask(each["remaining"])) for each in sorted(acks["partial"], key=by_entry)])
    return Acks(acks["mark"], mask(acks["deleted"]), partial)


def by_entry(each: Mapping[str, Any]) -> int:
    """What parts are sorted by."""
    return int(each["entry"])


def mask(numbers: Iterable[int]) -> int:
    """The mask with these bits."""
    return sum(1 << n for n in numbers)


# ---- states that `check` must not let pass ------------------------------------------------------------


def the_mark_is_deleted_behind(s: State) -> State:
    """The entry at the mark is deleted, and the mark has not moved."""
    return s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << s.acks.mark))


def storage_is_ahead(s: State) -> State:
    """The mark in storage is after the one in memory."""
    return s._replace(durable=s.durable._replace(mark=s.acks.mark + 1, deleted=0, partial=()))


def a_key_behind_the_log(s: State) -> State:
    """A key stands after the last entry of the log."""
    last = Key(s.log_index.max_ack, len(s.log))
    return s._replace(log_index=s.log_index._replace(keys=(*s.log_index.keys, last)))


def a_key_comes_twice(s: State) -> State | None:
    """The last key of the index stands there twice."""
    keys = s.log_index.keys
    return s._replace(log_index=s.log_index._replace(keys=(*keys, keys[-1]))) if keys else None


def a_closed_store_remembers(s: State) -> State | None:
    """A store is closed and holds what transactions have acknowledged."""
    return s._replace(status="closed", queue=(), buffer=()) if s.held or s.cumulative is not None else None


def somebody_waits_in_a_closed_store(s: State) -> State | None:
    """A store has an error and records in its buffer."""
    return s._replace(status="error") if s.buffer else None


def a_ticket_comes_again(s: State) -> State | None:
    """The next ticket is one of somebody who waits."""
    waits = any(call.ticket for calls in s.in_flight for call in calls)
    return s._replace(next_ticket=1) if waits else None


def the_log_s_cursor_is_outside(s: State) -> State:
    """The log's cursor stands after the next entry to come."""
    return s._replace(read=len(s.log) + 1)


subject = Subject(
    pending_acks,
    PendingAcks,
    invariants,
    domains={
        "txn": txns,
        "acks": lists,
        "entry": entries,
        "ack_cumulative.entry": last_entries,
        "leaves": sets,
        "ack_cumulative.leaves": ends,
        "low_watermark": (0, 0, 0, 0, 1, 2, 3),
        "durable": (True, False),
        "stops": (False, False, True),
        "survive": survivors,
    },
    settings={
        "batch_sizes": ((4, 1, 3), (1,), (2, 2), (64, 3), (65, 1), (128,), (5,)),
        "batch_acks": (True, True, False),
        "batching": (True, True, True, False),
        "min_lag": (1, 1, 2, 3),
        "read_attempts": (3, 1, 2),
    },
    weights={
        "ack_individual": 6,
        "ack_cumulative": 1.2,
        "commit": 2.2,
        "abort": 1.4,
        "acknowledge": 0.7,
        "persist": 1,
        "flush": 2.5,
        "written": 3.5,
        "cursor_refuses": 0.3,
        "write_fails": 0.25,
        "open_store": 0.2,
        "read_entry": 0.2,
        "end_replay": 0.2,
        "read_fails": 0.05,
        "close": 0.08,
        "crash": 0.25,
    },
    situation=situation,
    in_situation={
        "replay": {"read_entry": 60, "read_fails": 6, "ack_individual": 0.3},
        "replayed": {"end_replay": 30},
        "down": {"open_store": 40, "ack_individual": 0.3, "commit": 0.3},
        "in flight": {"written": 3},
        "busy": {"flush": 3, "written": 4, "ack_individual": 0.2},
    },
    swarms={
        "messages": {"ack_cumulative": 0.05, "acknowledge": 0.3, "abort": 2, "crash": 2},
        "cumulative": {"ack_individual": 0.3, "ack_cumulative": 6, "crash": 3},
        "restarts": {"crash": 6, "close": 10, "write_fails": 6, "read_fails": 6, "persist": 2},
        "trimming": {"acknowledge": 6, "persist": 4, "abort": 0.3},
        "keys": {"acknowledge": 3, "persist": 0.02, "ack_cumulative": 0.2, "abort": 0.1, "crash": 0.1, "close": 0.1},
    },
    abstract=kind_of_state,
    measures={"log_records": log_records, "on_the_way": on_the_way, "records": records},
    scopes={"smoke": SMOKE, "ci": CI, "cumulative": CUMULATIVE, "nightly": NIGHTLY},
    corrupt={
        "the_mark_is_deleted_behind": the_mark_is_deleted_behind,
        "storage_is_ahead": storage_is_ahead,
        "a_key_behind_the_log": a_key_behind_the_log,
        "a_key_comes_twice": a_key_comes_twice,
        "a_closed_store_remembers": a_closed_store_remembers,
        "somebody_waits_in_a_closed_store": somebody_waits_in_a_closed_store,
        "a_ticket_comes_again": a_ticket_comes_again,
        "the_log_s_cursor_is_outside": the_log_s_cursor_is_outside,
    },
    steps=128,
    tla="PendingAcks",
    from_tla=from_tla,
)
