"""Pending acknowledgements: what a subscription promises to transactions, kept in a log and found again in it.

Source: PIP-160 (batched entries), PIP-153 (the sparse index), PIP-54 (parts of entries). Step grain: one request, one
entry of the log that is written or read. The subscription's cursor is that of `model/batch_acks/machine.py`.

    individual   a list of entries, each whole or in part; all of it is pending, or it is a conflict
    cumulative   everything up to an entry, or into its batch; one transaction at a time, and only further on
    commit       what the transaction holds is acknowledged in the subscription, and then not pending any more
    abort        what the transaction holds is not pending any more, and what nobody holds is redelivered

Each request is a record of the log. Records wait in a buffer; a flush makes one entry of all of them; when it is
written they are called back in order. Without batching each record is an entry. An entry goes as a whole, and only in
front: when each of its acknowledgements is before the subscription's durable mark, as far as the sparse index knows.
Nothing is trimmed but when an entry comes or is read again.

Memory is what the log says. So, other than shipped, here

* a conflict is found before the append: from a log with rejected acknowledgements in it no replay can tell them from
  those of which the cursor has a part;
* after an append that failed, which may be in the log, and after a commit that the cursor refused, the store serves
  nobody until it was opened anew;
* an end takes along all that its transaction holds, and what it is the end of does not hang on when it was asked;
* every holder up to the low watermark is aborted when any transaction ends, also one that acknowledged cumulatively, or
  not at all: the mark says that others have ended, whatever the one held that brings it.

As shipped, and other than PIP-160 says, no record is deleted because its transaction has ended: only a prefix goes.

The shipped rule that a replay begins where the log's cursor stands supposes that the broker has kept the cursor since
the store was closed (#16240, #26368). Then a replay reads only what was written since the last one, and if that is
nothing, it spins. A crash puts the cursor back.

Not modelled: when the buffer is flushed (model/txn_writer/machine.py), that the mark of the log's cursor becomes durable later,
ledgers of the log, so neither a mark in a ledger that was trimmed, which is another way to spin, nor the log's name, in
which the subscription's is encoded; the pause between reads that failed; more than one coordinator; which consumer
holds a message, so that after a replay nobody else is given what is pending; the future for which those wait who open
a store; statistics. The end of the topic: entries are there as far as anybody acknowledges them. An entry may stand
once in a list. An empty ack set is none, as on the wire. An abort is appended also where nothing was ever acknowledged,
which a shipped store spares itself. What it leaves half done in a request that it never answers is not modelled
either.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Failed, Machine, Step, refused
from model.pending_acks.log_index import cleared, counted
from model.pending_acks.replay import acknowledged, replayed, taken_by, without_ended
from model.pending_acks.state import (
    Call,
    Config,
    Cumulative,
    Entry,
    Messages,
    Part,
    Record,
    State,
    acked_of,
    bits_of,
    conflict,
    cumulative_claim,
    everything_of,
    holding,
    is_never_answered,
    last_ack,
    on_the_way,
    reach,
    start,
    to_redeliver,
    trimmed,
    with_parts,
    without_memory,
)
from model.values import AtLeast

pending_acks = Machine("pending_acks", Config, start, source="PIP-160, PIP-153")

Txn = Annotated[int, AtLeast(1)]
Number = Annotated[int, AtLeast(0)]


class AckOf(NamedTuple):
    """One entry of a list of acknowledgements; without an ack set, or with an empty one, it is all of it."""

    entry: Number
    leaves: Number | None


class Answer(NamedTuple):
    """What the caller with that ticket is told; one who waits is told later."""

    ticket: int
    told: Literal["waits", "done", "conflict", "failed"]


class Effects(NamedTuple):
    """Who is told what, what consumers get again, and how many entries of the log went."""

    answers: tuple[Answer, ...]
    redelivered: tuple[Messages, ...]
    trimmed: int


NOTHING = Effects((), (), 0)

# ---- requests -----------------------------------------------------------------------------------------


def put(cfg: Config, s: State, call: Call) -> State:
    """The record waits in the buffer, or is an entry of its own."""
    if cfg.batching:
        return s._replace(buffer=(*s.buffer, call))
    return s._replace(in_flight=(*s.in_flight, (call,)))


def appended(cfg: Config, s: State, call: Call) -> tuple[State, Answer, str]:
    """A request comes to the log, unless it can be answered at once; why it is a conflict, if it is."""
    each = call.record
    if each.op == "ack":
        why = conflict(cfg, s, each) if cfg.conflicts_are_found == "before_the_append" else ""
        if why:
            return s, Answer(call.ticket, "conflict"), why
        return put(cfg, s, call), Answer(call.ticket, "waits"), ""
    claim = cumulative_claim(cfg, s)
    is_owner = claim is not None and claim.txn == each.txn
    if cfg.cumulative_acks_hide_others and claim is not None and not is_owner:
        if each.op == "commit":
            return s, Answer(call.ticket, "done"), ""
        is_owner = True
    return put(cfg, s, call._replace(record=each._replace(cumulative=is_owner))), Answer(call.ticket, "waits"), ""


def requested(cfg: Config, s: State, each: Record, low_watermark: int) -> Step[State, Answer]:
    """A request comes to the store: to the log, or to the queue of a store that is not open yet."""
    if s.status in ("error", "closed"):
        return refused(s, "illegal_state", "the store must be opened first")
    call = Call(s.next_ticket, each, low_watermark)
    if s.status == "ready":
        after, answer, why = appended(cfg, s, call)
        return (s, Failed("conflict", why)) if why else (after._replace(next_ticket=call.ticket + 1), answer)
    if s.status == "none":
        s = begun(cfg, s)
    return s._replace(queue=(*s.queue, call), next_ticket=call.ticket + 1), Answer(call.ticket, "waits")


def wrong_set(cfg: Config, entry: int, leaves: int | None) -> str:
    """What is wrong with an ack set; empty if nothing is."""
    if leaves is not None and leaves >= everything_of(cfg, entry):
        return f"entry {entry} has a set that acknowledges nothing, or with a bit beyond the batch"
    return ""


@pending_acks.action
def ack_individual(cfg: Config, s: State, txn: Txn, acks: tuple[AckOf, ...]) -> Step[State, Answer]:
    """A transaction acknowledges entries, whole or in part.

    It is a conflict, and nothing of the list is pending, if an entry or a message of a part is acknowledged in the
    subscription or pending, or if a whole entry is pending in part.
    """
    if not acks:
        return refused(s, "illegal_argument", "acks is empty")
    parts = tuple([Part(entry, leaves or None) for entry, leaves in acks])
    wrong = next((why for why in [wrong_set(cfg, *part) for part in parts] if why), "")
    if len({part.entry for part in parts}) < len(parts):
        wrong = wrong or "acks has an entry twice"
    if wrong:
        return refused(s, "illegal_argument", wrong)
    return requested(cfg, s, Record("ack", False, txn, parts), 0)


@pending_acks.action
def ack_cumulative(cfg: Config, s: State, txn: Txn, entry: Number, leaves: Number | None) -> Step[State, Answer]:
    """A transaction acknowledges everything before an entry, and the entry or the beginning of its batch.

    It is a conflict if the subscription's mark has passed the entry, if another transaction has a cumulative
    acknowledgement, or if the transaction has one that reaches as far.
    """
    part, everything = Part(entry, leaves or None), everything_of(cfg, entry)
    wrong = wrong_set(cfg, entry, leaves)
    if not wrong and part.leaves is not None and part.leaves | (part.leaves & -part.leaves) - 1 != everything:
        wrong = f"leaves is {leaves}, not the end of a batch"
    if wrong:
        return refused(s, "illegal_argument", wrong)
    return requested(cfg, s, Record("ack", True, txn, (part,)), 0)


@pending_acks.action
def commit(cfg: Config, s: State, txn: Txn, low_watermark: Number) -> Step[State, Answer]:
    """A transaction is committed; no transaction up to the low watermark is open any more."""
    return requested(cfg, s, Record("commit", False, txn, ()), low_watermark)


@pending_acks.action
def abort(cfg: Config, s: State, txn: Txn, low_watermark: Number) -> Step[State, Answer]:
    """A transaction is aborted; no transaction up to the low watermark is open any more."""
    return requested(cfg, s, Record("abort", False, txn, ()), low_watermark)


# ---- the subscription ---------------------------------------------------------------------------------


@pending_acks.action
def acknowledge(cfg: Config, s: State, entry: Number, leaves: Number | None) -> Step[State, None]:
    """A consumer acknowledges an entry, or a part of it, outside of transactions; nobody asks what is pending."""
    wrong = wrong_set(cfg, entry, leaves)
    if wrong:
        return refused(s, "illegal_argument", wrong)
    acks = with_parts(cfg, s.acks, (Part(entry, leaves or None),))
    return (s if acks == s.acks else s._replace(acks=acks)), None


@pending_acks.action
def persist(cfg: Config, s: State) -> Step[State, bool]:
    """What the cursor has in memory becomes durable; true if there was anything."""
    return (s, False) if s.durable == s.acks else (s._replace(durable=s.acks), True)


# ---- the log ------------------------------------------------------------------------------------------


@pending_acks.action
def flush(cfg: Config, s: State) -> Step[State, int]:
    """What waits in the buffer goes out as one entry; how many records it has."""
    if not s.buffer:
        return refused(s, "illegal_state", "nothing waits in the buffer")
    return s._replace(buffer=(), in_flight=(*s.in_flight, s.buffer)), len(s.buffer)


def called_back(cfg: Config, s: State, call: Call, refuses: bool) -> tuple[State, str, tuple[Messages, ...]]:
    """A record is in the log: what changes, what its caller is told (nothing, as shipped), what is redelivered."""
    each = call.record
    if each.op == "ack":
        after, told = acked_by(cfg, s, each)
        return after, told, ()
    ended = taken_by(cfg, s, each, replayed=False)
    holds = ended != ((), None)
    after = without_ended(s, each.txn, ended)
    again: tuple[Messages, ...] = ()
    if each.op == "abort":
        again = to_redeliver(cfg, after, *ended)
    elif not refuses or not holds:
        after = acknowledged(cfg, after, ended)
    elif cfg.refused_commits != "are_forgotten":
        return s._replace(status="error" if cfg.refused_commits == "open_anew" else "ready"), "failed", ()
    return with_low_watermark(cfg, after, call.low_watermark, ended[0] != ()), "done", again


def acked_by(cfg: Config, s: State, ack: Record) -> tuple[State, str]:
    """An acknowledgement is in the log: it is pending, unless it is only now found to be a conflict."""
    if cfg.conflicts_are_found == "in_the_log":
        if conflict(cfg, s, ack):
            return s, "conflict"
        if not ack.cumulative and is_never_answered(s, ack):
            return s, ""
    return pending(s, ack), "done"


def pending(s: State, ack: Record) -> State:
    """The state in which an acknowledgement is pending."""
    if ack.cumulative:
        return s._replace(cumulative=Cumulative(ack.txn, ack.parts[0]))
    return s._replace(held=holding(s.held, ack.txn, ack.parts))


def with_low_watermark(cfg: Config, s: State, low_watermark: int, has_parts: bool) -> State:
    """Transactions up to the highest low watermark have ended: those that hold anything are aborted.

    As shipped, only after an end of what was acknowledged message by message.
    """
    if cfg.low_watermark_aborts == "from_the_first" and not has_parts:
        return s
    if low_watermark > s.low_watermark:
        s = s._replace(low_watermark=low_watermark)
    for txn in stale(cfg, s):
        s, *_ = appended(cfg, s, Call(0, Record("abort", False, txn, ()), s.low_watermark))
    return s


def stale(cfg: Config, s: State) -> list[int]:
    """The transactions that are to be aborted, because they have ended and hold something all the same."""
    holders = [holder.txn for holder in s.held]
    ending = [call for call in on_the_way(s) if call.record.op == "abort"]
    if cfg.low_watermark_aborts == "from_the_first":
        is_busy = any(call.ticket == 0 for call in ending)
        return [txn for txn in holders[:1] if txn <= s.low_watermark and not is_busy]
    if s.cumulative is not None and s.cumulative.txn not in holders:
        holders.append(s.cumulative.txn)
    aborted = [call.record.txn for call in ending]
    return [txn for txn in holders if txn <= s.low_watermark and txn not in aborted]


def stopped(cfg: Config, s: State, status: Literal["error", "closed"]) -> tuple[State, tuple[Answer, ...]]:
    """The store serves no longer: memory is gone, and those who wait in the buffer or the queue are told."""
    told = tuple([Answer(call.ticket, "failed") for call in (*s.queue, *s.buffer) if call.ticket])
    return without_memory(cfg, s)._replace(status=status, queue=(), buffer=()), told


def indexed(cfg: Config, s: State, entry: Entry, at: int) -> tuple[State, int]:
    """The entry of the log is counted, and what may go of the log goes."""
    index = counted(cfg.min_lag, s.log_index, len(entry), last_ack(entry), at)
    index, gone = cleared(cfg.min_lag, index, s.durable.mark)
    return trimmed(s, index, gone), gone


def logged(s: State, is_logged: bool) -> tuple[State, tuple[Call, ...]]:
    """The first entry in flight is not in flight any more, and perhaps in the log; its calls."""
    calls, *rest = s.in_flight
    log = (*s.log, tuple([call.record for call in calls])) if is_logged else s.log
    return s._replace(in_flight=tuple(rest), log=log), calls


def completed(cfg: Config, s: State, refuses: bool) -> Step[State, Effects]:
    """The first entry in flight is in the log; what its records do, one after the other."""
    if not s.in_flight:
        return refused(s, "illegal_state", "no entry is in flight")
    s, calls = logged(s, True)
    answers: list[Answer] = []
    again: tuple[Messages, ...] = ()
    was_ready = s.status == "ready"
    for call in calls:
        told = "failed"
        if s.status == "ready":
            s, told, more = called_back(cfg, s, call, refuses)
            again += more
        answers += answer(call, told)
    if s.status == "ready":
        s, gone = indexed(cfg, s, s.log[-1], len(s.log) - 1)
        return s, Effects(tuple(answers), again, gone)
    failed: tuple[Answer, ...] = ()
    if was_ready:
        s, failed = stopped(cfg, s, "error")
    return s, Effects((*answers, *failed), again, 0)


def answer(call: Call, told: str) -> list[Answer]:
    """What the caller is told, if there is one, and if it is told anything."""
    return [Answer(call.ticket, told)] if call.ticket and told else []  # type: ignore[arg-type]


@pending_acks.action
def written(cfg: Config, s: State) -> Step[State, Effects]:
    """The first entry in flight is in the log: what its records say comes true, in order, and their callers are told.

    A store that is not ready tells of failure: the record is in the log all the same, and counts when it is read again.
    """
    return completed(cfg, s, False)


@pending_acks.fault
def cursor_refuses(cfg: Config, s: State) -> Step[State, Effects]:
    """The first entry in flight is in the log, and the cursor takes none of the acknowledgements that it commits."""
    return completed(cfg, s, True)


@pending_acks.fault
def write_fails(cfg: Config, s: State, durable: bool) -> Step[State, Effects]:
    """The first entry in flight is not written, or it is and nobody knows: all its callers are told of failure.

    The store serves no longer, and those who wait in the buffer are told, too.
    """
    if not s.in_flight:
        return refused(s, "illegal_state", "no entry is in flight")
    s, calls = logged(s, durable)
    if cfg.failed_appends == "change_memory" and s.status == "ready":
        answers: list[Answer] = []
        for call in calls:
            s, told = changed_all_the_same(s, call.record)
            answers += answer(call, told)
        return s, Effects(tuple(answers), (), 0)
    answers = [each for call in calls for each in answer(call, "failed")]
    failed: tuple[Answer, ...] = ()
    if s.status == "ready":
        s, failed = stopped(cfg, s, "error")
    return s, Effects((*answers, *failed), (), 0)


def changed_all_the_same(s: State, each: Record) -> tuple[State, str]:
    """As shipped: an acknowledgement whose append failed is pending, and nobody asks whether it is a conflict."""
    if each.op != "ack":
        return s, "failed"
    if not each.cumulative:
        return (s, "") if is_never_answered(s, each) else (pending(s, each), "failed")
    other = s.cumulative
    if other is None or (other.txn == each.txn and reach(each.parts[0]) > reach(other.part)):
        s = pending(s, each)
    return s, "failed"


# ---- the end, and the beginning -----------------------------------------------------------------------


def begun(cfg: Config, s: State) -> State:
    """A replay begins: memory is empty, and the log's cursor goes back to its mark."""
    return s._replace(status="initializing", read=0 if cfg.replay_begins_at_the_mark else s.read)


@pending_acks.action
def open_store(cfg: Config, s: State) -> Step[State, None]:
    """The store is opened, or opened anew: a replay of its log begins. Nothing may be in flight."""
    if s.status in ("initializing", "ready"):
        return refused(s, "illegal_state", "the store is open")
    if s.in_flight:
        return refused(s, "illegal_state", "entries are in flight")
    return begun(cfg, s), None


def is_read(s: State) -> bool:
    """A replay has come to the end of the log."""
    return s.progress == len(s.log)


@pending_acks.action
def read_entry(cfg: Config, s: State) -> Step[State, int]:
    """The replay reads the next entry of the log; how many entries of the log went.

    As shipped, nothing is left to read for a cursor that did not go back, and the replay waits for it all the same.
    """
    if s.status != "initializing" or is_read(s):
        return refused(s, "illegal_state", "there is nothing to read")
    if s.read >= len(s.log):
        return s, Failed("no_progress", "the log's cursor stands after the last entry")
    entry, at = s.log[s.read], s.read
    for each in entry:
        s = replayed(cfg, s, each)
    return indexed(cfg, s._replace(read=at + 1, progress=at + 1, attempts=0), entry, at)


def opened(cfg: Config, s: State) -> tuple[State, Effects]:
    """The store is ready; the requests that have waited come to the log, in order."""
    queue = s.queue
    s = s._replace(status="ready", progress=0, attempts=0, queue=())
    if cfg.replay_begins_at_the_mark:
        s = s._replace(read=0)
    answers = []
    for call in queue:
        s, told, _ = appended(cfg, s, call)
        if told.told != "waits":
            answers.append(told)
    return s, Effects(tuple(answers), (), 0)


@pending_acks.action
def end_replay(cfg: Config, s: State) -> Step[State, Effects]:
    """All of the log was read: the store is ready, and the requests that have waited come to the log."""
    if s.status != "initializing" or not is_read(s):
        return refused(s, "illegal_state", "no replay has come to its end")
    return opened(cfg, s)


@pending_acks.fault
def read_fails(cfg: Config, s: State, stops: bool) -> Step[State, Effects]:
    """A read of the replay fails: for good, or it is tried again, so many times.

    When it is not tried any more the replay has failed, and so have the requests that wait for it.
    """
    if s.status != "initializing" or is_read(s):
        return refused(s, "illegal_state", "there is nothing to read")
    if stops and not cfg.stopped_replay_fails:
        return opened(cfg, s)
    if not stops and s.attempts + 1 != cfg.read_attempts:
        return (s._replace(attempts=s.attempts + 1) if cfg.read_attempts else s), NOTHING
    s, failed = stopped(cfg, s, "error")
    return s, Effects(failed, (), 0)


@pending_acks.action
def close(cfg: Config, s: State) -> Step[State, Effects]:
    """The store is closed: who waits in the buffer or the queue is told of failure; what is in flight comes through."""
    if s.status not in ("initializing", "ready"):
        return refused(s, "illegal_state", "the store is not open")
    s, failed = stopped(cfg, s, "closed")
    return s, Effects(failed, (), 0)


@pending_acks.fault
def crash(cfg: Config, s: State, survive: Number) -> Step[State, None]:
    """Memory is lost, that of the cursor, too; of the entries in flight so many are in the log all the same."""
    if survive > len(s.in_flight):
        return refused(s, "illegal_state", f"fewer than {survive} entries are in flight")
    came = tuple([tuple([call.record for call in calls]) for calls in s.in_flight[:survive]])
    return (
        without_memory(cfg, s)._replace(
            acks=s.durable, log=s.log + came, read=0, status="none", queue=(), buffer=(), in_flight=()
        ),
        None,
    )


# ---- names and observers ------------------------------------------------------------------------------


@pending_acks.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """The tickets of those who wait are numbered in the order in which they wait."""
    waiting = [call.ticket for call in (*on_the_way(s), *s.queue) if call.ticket]
    if s.next_ticket == len(waiting) + 1 and waiting == list(range(1, s.next_ticket)):
        return s
    numbers = {0: 0} | {ticket: i for i, ticket in enumerate(waiting, 1)}

    def renamed(calls: tuple[Call, ...]) -> tuple[Call, ...]:
        return tuple([call._replace(ticket=numbers[call.ticket]) for call in calls])

    return s._replace(
        queue=renamed(s.queue),
        buffer=renamed(s.buffer),
        in_flight=tuple([renamed(calls) for calls in s.in_flight]),
        next_ticket=len(waiting) + 1,
    )


@pending_acks.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Whether the store serves, what is acknowledged and pending, and how much the log and its index have."""
    entries = range(s.acks.mark, s.acks.deleted.bit_length() + 1)
    return {
        "status": s.status,
        "mark": s.acks.mark,
        "durable_mark": s.durable.mark,
        "acknowledged": [[n, acked_of(cfg, s.acks, n)] for n in entries if acked_of(cfg, s.acks, n)],
        "pending": [[h.txn, [[p.entry, bits_of(cfg, p)] for p in h.parts]] for h in s.held],
        "cumulative": s.cumulative and [s.cumulative.txn, s.cumulative.part.entry, bits_of(cfg, s.cumulative.part)],
        "log_entries": len(s.log),
        "index": [[key.entry, key.at] for key in s.log_index.keys],
        "waiting": len(s.queue) + len(on_the_way(s)),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = pending_acks.profile("reference", "what this specification holds to be right", Config())

shipped = pending_acks.profile(
    "pulsar-2026-07",
    "the rules of Apache Pulsar master, 2026-07-23, as read in its source, where the log's cursor was kept",
    Config(
        read_attempts=0,
        conflicts_are_found="in_the_log",
        failed_appends="change_memory",
        refused_commits="stay_pending",
        cumulative_acks_hide_others=True,
        parts_of_whole_entries_conflict=False,
        overlap="words_of_pending",
        low_watermark_aborts="from_the_first",
        replay_begins_at_the_mark=False,
        stopped_replay_fails=False,
        recovery_drops="the_whole_record",
        recovery_keeps_cumulative_sets=False,
        replayed_ends_have_owners=False,
    ),
)

earlier = pending_acks.profile(
    "pulsar-2026-04",
    "the same before pull request 25528: a commit forgets what is pending whether the cursor takes it or not",
    shipped.config._replace(refused_commits="are_forgotten"),
)

early = pending_acks.profile(
    "pulsar-2025-05",
    "the same before pull request 24406, too: an empty set counts for nothing where parts do not count",
    earlier.config._replace(empty_sets_mean_whole=False),
)
