"""Which calls of a pending-ack handle are refused, and which fields of the state the other calls change."""

from __future__ import annotations

from functools import reduce

from invariants.pending_acks.messages import (
    APPENDS,
    NOTHING_PENDING,
    REQUESTS,
    acknowledged,
    all_messages,
    applied_records,
    apply_record,
    in_memory,
    is_error,
    open_numbers,
    open_requests,
    pending_of,
    results,
)
from invariants.properties import Event, always
from model.machine import Failed, Refused
from model.pending_acks.machine import Effects, pending_acks
from model.pending_acks.state import Config, LogRecord, PositionAck, Request, State

OPEN = ("initializing", "ready")


def has_invalid_ack_set(cfg: Config, event: Event) -> bool:
    """Returns whether an ack set of the call is invalid.

    An ack set is invalid if it acks no message or has a bit after the batch. The set bits of a cumulative ack must be
    the tail of the batch.
    """
    given = event.arguments.get("acks") or [(event.arguments["entry"], event.arguments["ack_set"])]
    for entry, ack_set in given:
        size = all_messages(cfg, entry).bit_length()
        bits = [i for i in range(size) if (ack_set or 0) >> i & 1]
        is_tail = bits == list(range(size - len(bits), size))
        if (ack_set and ack_set >= all_messages(cfg, entry)) or (event.name == "ack_cumulative" and not is_tail):
            return True
    return False


@always(pending_acks)
def call_is_refused_iff_not_allowed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call is refused if and only if its arguments are invalid or the state of the handle does not allow the call.

    The arguments of an ack are invalid if an ack set is invalid, or if the list is empty or names an entry twice. A
    crash needs at least as many entries in flight as survive. A request (an ack in a transaction, a commit or an abort)
    needs a handle that is neither in error nor closed. An ack without a transaction needs no handle. A handle is opened
    only if it is not open and no entry is in flight, and closed only if it is open. A flush needs a buffered record.
    The end of an append needs an entry in flight. A read of a replay needs an initializing handle and an entry that is
    not replayed. The end of a replay needs an initializing handle that has replayed all entries. The cursor can always
    be persisted.
    """
    name, s, acks = event.name, before, event.arguments.get("acks")
    if name in ("ack_individual", "ack_cumulative", "acknowledge"):
        wrong = acks == () or has_invalid_ack_set(cfg, event)
        wrong = wrong or len({each.entry for each in acks or ()}) < len(acks or ())
        wrong = wrong or (name != "acknowledge" and s.status in ("error", "closed"))
    elif name in REQUESTS:
        wrong = s.status in ("error", "closed")
    elif name in ("read_entry", "read_fails", "end_replay"):
        # `end_replay` needs a replay that has processed the whole log, the reads need one that has not
        wrong = s.status != "initializing" or (s.replayed == len(s.log)) != (name == "end_replay")
    elif name == "open_store":
        wrong = s.status in OPEN or s.in_flight != ()
    elif name == "close":
        wrong = s.status not in OPEN
    elif name == "crash":
        wrong = event.arguments["survive"] > len(s.in_flight)
    else:  # `persist`, `flush`, or the end of an append
        wrong = name != "persist" and (s.buffer == () if name == "flush" else s.in_flight == ())
    return isinstance(event.outcome, Refused) == wrong


@always(pending_acks, on=REQUESTS)
def request_is_queued_as_made(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request that is accepted (`queued`) becomes the last open request, with the arguments of the call.

    A request is open until it completes. The new request gets the next number. A ready handle appends the request's
    record; any other handle queues the request until the replay ends. In status none, the request starts the replay.
    The cursor, the log, the pending acks and the handle's low watermark stay the same. A request that conflicts changes
    nothing.

    A ready handle determines the ack type of a commit or abort: Cumulative if the latest cumulative ack, durable or
    not, is of the same transaction. The type is checked only if both `commit_and_abort_cover_both_types` and
    `conflict_check` are those of the reference. A handle that is not ready does not determine the type.
    """
    if is_error(event) or event.outcome.result != "queued":
        return not isinstance(event.outcome, Failed) or after == before
    arguments, op = event.arguments, event.name if event.name in ("commit", "abort") else "ack"
    given = arguments.get("acks") or ([] if op != "ack" else [(arguments["entry"], arguments["ack_set"])])
    acks = tuple([PositionAck(entry, ack_set or None) for entry, ack_set in given])
    # the queue that the request has joined: the buffer; if writes are not batched, a log entry in flight of its own; if
    # the handle is not ready, the accept queue
    queue = (after.buffer or after.in_flight[-1]) if before.status == "ready" else after.accept_queue
    cumulative = event.name == "ack_cumulative"
    if op != "ack" and before.status == "ready":
        owners = [s.txn for s in (before.cumulative_ack,) if s is not None]
        owners += [r.record.txn for r in open_requests(before) if r.record.op == "ack" and r.record.cumulative]
        cumulative = owners[-1:] == [arguments["txn"]]
        if not cfg.commit_and_abort_cover_both_types or cfg.conflict_check == "after_append":
            cumulative = queue[-1].record.cumulative
    record, number = LogRecord(op, cumulative, arguments["txn"], acks), before.next_request  # type: ignore[arg-type]
    is_last = queue[-1] == Request(number, record, arguments.get("low_watermark", 0)) == open_requests(after)[-1]
    status = "initializing" if before.status == "none" else before.status
    kept = after.cursor, after.log, after.individual_acks, after.cumulative_ack, after.low_watermark
    return (
        is_last
        and (after.status, after.next_request) == (status, number + 1)
        and event.outcome.request == number
        and kept == (before.cursor, before.log, before.individual_acks, before.cumulative_ack, before.low_watermark)
    )


@always(pending_acks, on=("persist", "flush", "open_store", "acknowledge", "crash"))
def call_changes_only_its_fields(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A flush, a persist, an ack without a transaction and an opening of the handle change only their own fields.

    A flush appends the buffer as one entry. A persist stores the cursor. An ack without a transaction adds its messages
    to the cursor; a cursor that stores no ack sets ignores an ack set that leaves messages. An opening starts a replay.
    A crash keeps the persisted cursor, the log, and the entries in flight that survive. It loses all requests, and the
    handle is not open.
    """
    if is_error(event):
        return True
    match event.name:
        case "persist":
            is_new = before.durable_cursor != before.cursor
            return event.outcome is is_new and after == before._replace(durable_cursor=before.cursor)
        case "flush":
            sent = before._replace(buffer=(), in_flight=(*before.in_flight, before.buffer))
            return after == sent and bool(event.outcome == len(before.buffer))
        case "open_store":
            return after == before._replace(status="initializing", read_position=after.read_position) and (
                after.read_position == (0 if cfg.replay_rewinds else before.read_position)
            )
        case "acknowledge":
            entry, ack_set = event.arguments["entry"], event.arguments["ack_set"]
            acked = 0 if ack_set and not cfg.batch_index_acks else all_messages(cfg, entry) & ~(ack_set or 0)
            entries = range(max(before.cursor.deleted.bit_length(), after.cursor.deleted.bit_length(), entry) + 1)
            wanted = [acknowledged(cfg, before.cursor, n) | (acked if n == entry else 0) for n in entries]
            is_exact = [acknowledged(cfg, after.cursor, n) for n in entries] == wanted
            return is_exact and after == before._replace(cursor=after.cursor)
    # the call is a crash
    survivors = [tuple([request.record for request in each]) for each in before.in_flight[: event.arguments["survive"]]]
    found = after.cursor, after.durable_cursor, after.log, after.status, after.next_request, after.read_position
    log = (*before.log, *survivors)
    wanted_state = before.durable_cursor, before.durable_cursor, log, "none", before.next_request, 0
    return found == wanted_state and not open_numbers(after)


@always(pending_acks, on=(*APPENDS, "write_fails", "close", "end_replay", "read_fails"))
def request_succeeds_iff_ready_handle_appends_it(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request succeeds if and only if a ready handle appends its record and the cursor rejects no commit up to it.

    A commit that the cursor rejects fails, and so do the later requests of its log entry. An append that ends removes
    its entry from the entries in flight. The log gains the entry, unless the append failed and the entry is not
    durable. Only a successful append redelivers messages. A close, a failed read and the end of a replay keep the
    cursor and the entries in flight. After a close the handle is closed, and after a complete replay it is ready.

    Not checked: what the end of a replay completes; with `conflict_check` "after_append", requests that complete with a
    conflict, and all results of an append with a commit that the cursor rejects.
    """
    if is_error(event):
        return True
    assert isinstance(event.outcome, Effects)
    found, redelivered, trimmed = list(results(event).values()), event.outcome.redelivered, event.outcome.trimmed
    if event.name not in APPENDS:
        added = int(event.name == "write_fails" and event.arguments["durable"])
        if redelivered or len(after.log) != len(before.log) + added - trimmed:
            return False
    if event.name in ("close", "end_replay", "read_fails"):
        if event.name == "read_fails" and after.status == "ready":
            return True  # `stopped_replay_fails` checks this case
        status = {"close": "closed", "end_replay": "ready"}.get(event.name, after.status)
        is_kept = (after.in_flight[: len(before.in_flight)], after.cursor) == (before.in_flight, before.cursor)
        return is_kept and after.status == status and (event.name == "end_replay" or set(found) <= {"failed"})
    grows = event.name in APPENDS or event.arguments["durable"]
    is_logged = len(after.log) + event.outcome.trimmed == len(before.log) + grows
    if not is_logged or after.in_flight[: len(before.in_flight) - 1] != before.in_flight[1:]:
        return False
    if event.name == "write_fails" or before.status != "ready":
        return set(found) <= {"failed"}
    # the handle was ready: a request fails only if the cursor rejects a commit. In the reference, this commit stops the
    # handle, so the requests after it fail, too
    if event.name == "written" or (cfg.conflict_check == "before_append" and after.status == "ready"):
        return "failed" not in found
    return cfg.conflict_check == "after_append" or found == sorted(found, key=("done", "conflict", "failed").index)


@always(pending_acks, on=("read_entry", "end_replay"))
def successful_read_resets_failed_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A successful read and the end of a replay reset the number of failed reads.

    After a read, the replay continues at the next entry. The end of a replay also resets `replayed`. Without
    `replay_rewinds`, only the number of failed reads is checked.
    """
    if is_error(event) or not cfg.replay_rewinds:
        return is_error(event) or after.failed_reads == 0
    if event.name == "end_replay":
        return (after.failed_reads, after.replayed) == (0, 0)
    # the outcome is the number of entries that are mark-deleted at the front of the log
    following = before.read_position + 1 - event.outcome, before.replayed + 1 - event.outcome
    return after.failed_reads == 0 and (after.read_position, after.replayed) == following


@always(pending_acks, on=(*APPENDS, "read_entry"))
def cursor_gains_only_committed_acks(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append or a replay acknowledges only messages that a committed transaction had pending.

    Any other message would be lost.
    """
    if after.cursor == before.cursor or is_error(event):
        return True
    first, committed = before.cursor.first_unacked, [NOTHING_PENDING]  # one element at least, for `reduce`
    if event.name == "read_entry":
        pending = dict(in_memory(before))
        ended = [(record.op, apply_record(pending, record)) for record in before.log[before.read_position]]
        committed += [each for op, each in ended if op == "commit" and each is not None]
    elif event.name == "written":
        applied = applied_records(cfg, before, event, after)
        committed += [pending_of(each) for each in applied if each.request.record.op == "commit"]
    messages = [each.commit_messages(cfg, first) for each in committed]
    # no entry from the highest of `ends` on has an acknowledged message
    ends = after.cursor.first_unacked, after.cursor.deleted.bit_length(), *[p.entry + 1 for p in after.cursor.partial]
    return not any(
        acknowledged(cfg, after.cursor, n) & ~acknowledged(cfg, before.cursor, n) & ~mask
        for n in range(first, max(ends))
        for mask in [reduce(int.__or__, [each.get(n, 0) for each in messages])]  # the committed messages of entry `n`
    )


@always(pending_acks, on=APPENDS)
def transactions_above_low_watermark_are_not_aborted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The handle itself aborts only transactions that the coordinator has ended: ids up to a low watermark it sent.

    The handle's own low watermark is not higher, either.
    """
    old = [request for entry in before.in_flight[1:] for request in entry] + list(before.buffer)
    requests = [each.request for each in applied_records(cfg, before, event, after) if each.request.record.op != "ack"]
    highest = max([before.low_watermark, *[request.low_watermark for request in requests]])
    # an abort that the handle itself starts has the request number 0 (`INTERNAL`)
    new = [request for request in open_requests(after) if not request.number and request not in old]
    return after.low_watermark <= highest and all(request.record.txn <= highest for request in new)
