"""How to drive a pending-ack handle."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.pending_acks.handle import PendingAcks
from invariants import pending_acks as invariants
from model.pending_acks.log_index import Key, LogIndex, next_lag
from model.pending_acks.machine import AckArgument, pending_acks
from model.pending_acks.state import (
    Config,
    PositionAck,
    State,
    log_index_backoff,
)

#: Most acks are for this many entries, from the entry at the mark-delete position on.
_NEAR = 5

#: A transaction id. CPython caches only small integers: `int(LARGE)` is another object at each call.
LARGE = "1000"

#: Lists of individual acks.
Lists = tuple[tuple[AckArgument, ...], ...]


@lru_cache(maxsize=256)
def ack_sets_of(size: int) -> tuple[int | None, ...]:
    """Returns None, and ack sets of a batch that leave all messages but the first or last, one message, or two.

    The two are among the last four messages.
    """
    everything = 2**size - 1
    masks = [everything & ~1, everything >> 1, 1, 1 << size - 1, everything & 0b0101 * 2 ** max(size - 4, 0), 2]
    return None, *[mask for mask in dict.fromkeys(masks) if 0 < mask < everything]


@lru_cache(maxsize=256)
def batch_ends_of(size: int) -> tuple[int | None, ...]:
    """Returns ack sets of cumulative acks: None, and ack sets that leave the last messages of the batch."""
    everything = 2**size - 1
    return None, *[everything & ~(2**n - 1) for n in dict.fromkeys((1, size // 2, size - 1)) if 0 < n < size]


@lru_cache(maxsize=1024)
def lists_near(sizes: tuple[int, ...], start: int) -> Lists:
    """Returns lists of acks of `_NEAR` entries from `start` on, some of them invalid.

    A list is invalid if it is empty, if it has an entry twice, or if an ack set acknowledges no message.
    """
    found: list[tuple[AckArgument, ...]] = []
    singles = [
        [AckArgument(n, each) for each in ack_sets_of(sizes[n % len(sizes)])] for n in range(start, start + _NEAR)
    ]
    # for each entry: lists with one ack of it; with acks of it and of the entry before, in either order; and a list
    # with acks of the first entry, of it, and of all later ones
    for i, acks in enumerate(singles):
        found += [(each,) for each in acks] * 2
        if i:
            found += [(a, b) for a, b in zip(singles[i - 1], reversed(acks), strict=False)]
            found += [(acks[0], singles[i - 1][-1]), (singles[0][0], *[each[-1] for each in singles[i:]])]
    everything = 2 ** sizes[start % len(sizes)] - 1
    # the first entry, a part of it, the next entry, and an ack set that leaves all messages of the first entry
    one, part_of_one, next_one, no_message = (
        singles[0][0],
        singles[0][-1],
        singles[1][0],
        AckArgument(start, everything),
    )
    empty = AckArgument(start + 1, 0)  # an ack set of zero words acknowledges the entry
    found += [(one, next_one), (one, next_one, singles[2][0]), (one, empty), (empty,)]
    invalid = ((), (one,) * 2, (one, part_of_one), (one, next_one, one))
    return (*found, *invalid, (no_message,), (next_one, no_message), (no_message, one))


@lru_cache(maxsize=4096)
def lists_with(sizes: tuple[int, ...], start: int, pending: tuple[PositionAck, ...]) -> Lists:
    """Returns the lists near an entry, and eight times the acks of the remaining messages of partly pending entries."""
    remaining = [(AckArgument(n, 2 ** sizes[n % len(sizes)] - 1 & ~(ack_set or 0)),) for n, ack_set in pending]
    return (*lists_near(sizes, start), *remaining * 8)


def lists(cfg: Config, s: State) -> Lists:
    """Returns lists near the mark-delete position, and acks of the remaining messages of partly pending entries."""
    pending = tuple([ack for each in s.individual_acks for ack in each.acks if ack.ack_set])
    return lists_with(cfg.batch_sizes, max(s.cursor.first_unacked - 1, 0), pending)


def txns(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns four transactions, and again those with the first and last pending individual acks."""
    large = int(LARGE)  # a new object, like a number from a file: an implementation must not compare ids by identity
    pending = s.individual_acks
    return (1, 2, 3, large, pending[0].txn, pending[0].txn, pending[-1].txn) if pending else (1, 2, 3, large)


@lru_cache(maxsize=1024)
def near(start: int) -> tuple[int, ...]:
    """Returns the numbers of `_NEAR` entries from `start` on."""
    return tuple(range(start, start + _NEAR))


def entries(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns `_NEAR` entries, from the one at the mark-delete position on."""
    return near(max(s.cursor.first_unacked - 1, 0))


@lru_cache(maxsize=64)
def ack_sets_for(sizes: tuple[int, ...]) -> tuple[int | None, ...]:
    """Returns ack sets of batches of these sizes, and one with a bit beyond every batch."""
    return None, *[each for size in sizes for each in ack_sets_of(size)], 2 ** max(sizes)


@lru_cache(maxsize=64)
def batch_ends_for(sizes: tuple[int, ...]) -> tuple[int | None, ...]:
    """Returns ack sets of cumulative acks for these batch sizes, an empty one, and one with a gap."""
    return None, None, *[each for size in sizes for each in batch_ends_of(size)], 0, 0b101


def ack_sets(cfg: Config, s: State) -> tuple[int | None, ...]:
    """Returns ack sets for the batch sizes of the topic."""
    return ack_sets_for(cfg.batch_sizes)


def batch_ends(cfg: Config, s: State) -> tuple[int | None, ...]:
    """Returns ack sets of cumulative acks for the batch sizes of the topic."""
    return batch_ends_for(cfg.batch_sizes)


def entries_of_cumulative_acks(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the entries near the mark-delete position, four times, and one far after them."""
    known = entries(cfg, s)
    return (*known * 4, known[-1] + 256)


def survivors(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns numbers of entries in flight that survive a crash: none, one, half, all, one more than there are."""
    count = len(s.in_flight)
    return 0, 0, 1, count, count // 2, count + 1


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in; "" if none.

    replay      the handle initializes, and log entries are not replayed yet
    replayed    the handle initializes, and the whole log is replayed
    appending   the handle is not ready, and log entries are in flight
    not open    the handle is not ready
    busy        more than five requests are buffered or log entries in flight
    long log    the log has more than 12 entries
    """
    if s.status == "initializing":
        return "replay" if s.replayed < len(s.log) else "replayed"
    if s.status != "ready":
        return "appending" if s.in_flight else "not open"
    if len(s.in_flight) + len(s.buffer) > 5:
        return "busy"
    return "long log" if len(s.log) > 12 else ""


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns the status, and capped numbers of pending acks, requests, log entries and keys."""
    return (
        s.status,
        min(len(s.individual_acks), 3),
        s.cumulative_ack is not None and s.cumulative_ack.ack.ack_set is None,
        min(len(s.buffer), 2),
        min(len(s.in_flight), 2),
        min(len(s.log), 3),
        min(len(s.log_index.keys), 3),
        s.cursor == s.durable_cursor,
        min(len(s.accept_queue), 2),
        s.low_watermark > 0,
    )


# ---- scopes -------------------------------------------------------------------------------------------


def log_records(s: State) -> int:
    """Returns the number of records in the log."""
    return sum(len(entry) for entry in s.log)


def open_requests(s: State) -> int:
    """Returns the number of buffered, in-flight and queued requests."""
    return sum(len(requests) for requests in s.in_flight) + len(s.buffer) + len(s.accept_queue)


def records(s: State) -> int:
    """Returns the number of records in the log and of open requests."""
    return log_records(s) + open_requests(s)


#: Ack sets of an entry of two messages: FIRST acknowledges the first message, SECOND the second.
FIRST, SECOND = 0b10, 0b01

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
        "acks": ((AckArgument(0, FIRST),), (AckArgument(0, SECOND), AckArgument(1, None))),
        "low_watermark": (0,),
        "survive": (0,),
    },
    bounds={"records": 3, "open_requests": 2},
    reasons={
        "actions": "ack, commit, persist, crash and replay; excludes aborts, cumulative acks and failures",
        "batch_sizes": "entries of two messages and of one: with and without batch indexes",
        "min_lag": "one: each of the first acks adds a key to the log index",
        "txn": "two: acks of one transaction conflict with those of the other",
        "commit.txn": "only the first transaction commits; acks of the other one stay pending",
        "acks": "the first message of an entry; a list with its second message and the next entry",
        "low_watermark": "zero: aborts no transaction",
        "survive": "zero: every entry in flight is lost in a crash; the scope ci also has the other outcome",
        "records": "three: an ack, a commit and another ack, in up to three log entries",
        "open_requests": "two: a log entry of two records, or one request in flight and one buffered",
    },
)

CI = Scope(
    actions=tuple(pending_acks.actions),
    settings={"batch_sizes": (2,), "min_lag": 1, "max_failed_reads": 2},
    domains={
        "txn": (1, 2),
        "acks": ((AckArgument(0, FIRST),), (AckArgument(0, SECOND),)),
        "entry": (0,),
        "ack_cumulative.ack_set": (FIRST,),
        "acknowledge.ack_set": (None,),
        "commit.low_watermark": (1,),
        "abort.low_watermark": (0,),
        "durable": (True, False),
        "stops": (True, False),
        "survive": (0, 1),
    },
    bounds={"records": 2, "open_requests": 1},
    reasons={
        "actions": "all actions of the model",
        "batch_sizes": "two messages in each entry",
        "min_lag": "one: each of the first acks adds a key to the log index",
        "max_failed_reads": "two: one failed read is retried",
        "txn": "two: acks of one conflict with those of the other, and the low watermark aborts one of the two",
        "acks": "either message of the entry: two transactions can share the entry",
        "entry": "one: the entry of the individual acks",
        "ack_cumulative.ack_set": "the first message of the batch, which individual acks can have, too",
        "acknowledge.ack_set": "a consumer acks the whole entry",
        "commit.low_watermark": "one: a commit of the second transaction aborts the first",
        "abort.low_watermark": "zero: an abort applies its low watermark as a commit does",
        "durable": "both: the entry of a failed append is in the log or not",
        "stops": "both: a failed read ends the replay, or is retried",
        "survive": "zero and one: with one open request, these are all outcomes of a crash",
        "records": "two: an ack, then another ack, a commit or an abort; other scopes have longer logs",
        "open_requests": "one: log entries of several records are in the scope smoke",
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
    settings={"batch_sizes": (2,), "min_lag": 1, "batched_writes": False},
    domains={
        "txn": (1, 2),
        "acks": ((AckArgument(0, SECOND),),),
        "entry": (0,),
        "ack_set": (FIRST,),
        "low_watermark": (0,),
        "survive": (0,),
    },
    bounds={"records": 3, "open_requests": 1},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "both ack types, commit, abort, and their replay; excludes failures",
        "batch_sizes": "two messages in each entry",
        "batched_writes": "off: each record is a log entry",
        "acks": "the second message, which the cumulative ack leaves: two transactions can have one ack each",
        "entry": "one: the cumulative ack ends inside its batch",
        "ack_set": "the cumulative ack leaves the second message",
        "open_requests": "one: each record is applied before the next request",
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
    bounds={"records": 3, "open_requests": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "individual acks with aborts, failed appends and a cursor that rejects commits",
        "durable": "both: the entry of a failed append is in the log or not",
        "survive": "zero and one: excludes crashes that two entries in flight survive",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables, from which `max_index_lag` and `next_request` are computed."""
    index = variables["log_index"]
    lag = next_lag(log_index_backoff(cfg), len(index["keys"]))
    log_index = as_model(LogIndex, index, max_index_lag=lag, max_ack_position=index["max_ack"])
    waiting = (*variables["in_flight"], variables["buffer"], variables["accept_queue"])
    numbered = [request for each in waiting for request in each if request["number"]]
    found: State = as_model(State, variables, log_index=log_index, next_request=len(numbered) + 1)
    return found


# ---- corrupted states that `check` must reject --------------------------------------------------------


def mark_delete_position_did_not_advance(_cfg: Config, s: State) -> State:
    """The entry after the mark-delete position is deleted individually."""
    return s._replace(cursor=s.cursor._replace(deleted=s.cursor.deleted | 1 << s.cursor.first_unacked))


def storage_is_ahead(_cfg: Config, s: State) -> State:
    """The durable mark-delete position is after the one in memory."""
    return s._replace(
        durable_cursor=s.durable_cursor._replace(first_unacked=s.cursor.first_unacked + 1, deleted=0, partial=())
    )


def key_is_after_log(_cfg: Config, s: State) -> State:
    """A key has a log position after the last log entry."""
    last = Key(s.log_index.max_ack_position, len(s.log))
    return s._replace(log_index=s.log_index._replace(keys=(*s.log_index.keys, last)))


def key_is_duplicated(_cfg: Config, s: State) -> State | None:
    """The last key is in the index twice."""
    keys = s.log_index.keys
    return s._replace(log_index=s.log_index._replace(keys=(*keys, keys[-1]))) if keys else None


def closed_handle_has_pending_acks(_cfg: Config, s: State) -> State | None:
    """A closed handle has pending acks."""
    has_acks = s.individual_acks or s.cumulative_ack is not None
    return s._replace(status="closed", accept_queue=(), buffer=()) if has_acks else None


def failed_handle_has_buffered_requests(_cfg: Config, s: State) -> State | None:
    """A handle in error has buffered requests."""
    return s._replace(status="error") if s.buffer else None


def request_number_is_reused(_cfg: Config, s: State) -> State | None:
    """The next request number is 1, and a request in flight has a number."""
    is_open = any(request.number for requests in s.in_flight for request in requests)
    return s._replace(next_request=1) if is_open else None


def replay_position_is_after_log(_cfg: Config, s: State) -> State:
    """The replay has processed more entries than the log has."""
    return s._replace(replayed=len(s.log) + 1)


subject = Subject(
    pending_acks,
    PendingAcks,
    invariants,
    domains={
        "txn": txns,
        "acks": lists,
        "entry": entries,
        "ack_cumulative.entry": entries_of_cumulative_acks,
        "ack_set": ack_sets,
        "ack_cumulative.ack_set": batch_ends,
        "low_watermark": (0, 0, 0, 0, 1, 2, 3),
        "durable": (True, False),
        "stops": (False, False, True),
        "survive": survivors,
    },
    settings={
        "batch_sizes": ((4, 1, 3), (1,), (2, 2), (64, 3), (65, 1), (128,), (5,)),
        "batch_index_acks": (True, True, False),
        "batched_writes": (True, True, True, False),
        "min_lag": (1, 1, 2, 3),
        "max_lag": (None, None, None, 2, 5),
        "lag_exponent": (1, 1, 1, 2),
        "max_failed_reads": (3, 1, 2),
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
        "read_fails": 0.2,
        "close": 0.08,
        "crash": 0.25,
    },
    situation=situation,
    in_situation={
        "replay": {"read_entry": 60, "read_fails": 6, "ack_individual": 0.3},
        "replayed": {"end_replay": 30},
        "not open": {"open_store": 40, "ack_individual": 0.3, "commit": 0.3},
        "appending": {"written": 3},
        "busy": {"flush": 3, "written": 4, "ack_individual": 0.2},
    },
    swarms={
        "batch_indexes": {"ack_cumulative": 0.05, "acknowledge": 0.3, "abort": 2, "crash": 2},
        "cumulative": {"ack_individual": 0.3, "ack_cumulative": 6, "crash": 3},
        "restarts": {"crash": 6, "close": 10, "write_fails": 6, "read_fails": 6, "persist": 2},
        "trimming": {"acknowledge": 6, "persist": 4, "abort": 0.3},
        "keys": {"acknowledge": 3, "persist": 0.02, "ack_cumulative": 0.2, "abort": 0.1, "crash": 0.1, "close": 0.1},
    },
    # larger entries and batches make larger bit masks
    largest={
        "entry": 2**16 + 1,
        "batch_sizes": 300,
        "lag_exponent": 64,
    },
    abstract=coverage_key,
    measures={"log_records": log_records, "open_requests": open_requests, "records": records},
    scopes={"smoke": SMOKE, "ci": CI, "cumulative": CUMULATIVE, "nightly": NIGHTLY},
    corrupt={
        each.__name__: each
        for each in (
            mark_delete_position_did_not_advance,
            storage_is_ahead,
            key_is_after_log,
            key_is_duplicated,
            closed_handle_has_pending_acks,
            failed_handle_has_buffered_requests,
            request_number_is_reused,
            replay_position_is_after_log,
        )
    },
    steps=128,
    tla="PendingAcks",
    from_tla=from_tla,
)
