"""The messages that are pending according to the log, and according to the handle's memory.

Nothing here calls the model's rules. If the cursor stores no ack sets, the commit of a batch-index ack acknowledges no
message. The records of a log entry are applied in order: each record applies to the result of the records before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from invariants.properties import Event, once_per_state
from model.batch_acks.state import Acks
from model.machine import Failed, Refused
from model.pending_acks.machine import Effects
from model.pending_acks.state import Config, LogRecord, PositionAck, Request, State

REQUESTS = ("ack_individual", "ack_cumulative", "commit", "abort")
#: Actions that complete the append of a log entry.
APPENDS = ("written", "cursor_refuses")

#: By entry, the mask of some of its messages.
Messages = dict[int, int]


def everything(cfg: Config, entry: int) -> int:
    """Returns the mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def acked_by(cfg: Config, ack: PositionAck) -> int:
    """Returns the mask of the messages that an ack is for."""
    return everything(cfg, ack.entry) & ~(ack.ack_set or 0)


def counted(cfg: Config, ack: PositionAck) -> int:
    """Returns the mask of the messages that an ack acknowledges when it is committed."""
    return acked_by(cfg, ack) if cfg.batch_index_acks or not ack.ack_set else 0


def acknowledged(cfg: Config, acks: Acks, entry: int) -> int:
    """Returns the mask of the acknowledged messages of an entry."""
    if entry < acks.first_unacked or acks.deleted >> entry & 1:
        return everything(cfg, entry)
    return next((everything(cfg, entry) & ~p.remaining for p in acks.partial if p.entry == entry), 0)


def covered(cfg: Config, ack: PositionAck, entry: int) -> int:
    """Returns the mask of the messages of an entry that a cumulative ack is for."""
    if entry == ack.entry:
        return acked_by(cfg, ack)
    return everything(cfg, entry) if entry < ack.entry else 0


def united(some: Messages, more: Messages) -> Messages:
    """Returns the messages that are in `some` or in `more`."""
    return some | {n: mask | some.get(n, 0) for n, mask in more.items()}


def unacknowledged(cfg: Config, acks: Acks, messages: Messages) -> Messages:
    """Returns those of the messages that are not acknowledged."""
    left = {n: mask & ~acknowledged(cfg, acks, n) for n, mask in messages.items()}
    return {n: mask for n, mask in left.items() if mask}


class Pending(NamedTuple):
    """Pending acks of one transaction: individual ones by entry, and a cumulative one."""

    individual: dict[int, PositionAck]
    cumulative: PositionAck | None

    def messages(self, cfg: Config, first: int) -> Messages:
        """Returns the messages that a commit acknowledges, from entry `first` on."""
        single = {n: counted(cfg, ack) for n, ack in self.individual.items()}
        if self.cumulative is None:
            return single
        last = self.cumulative
        up_to = {n: everything(cfg, n) for n in range(first, last.entry)} | {last.entry: counted(cfg, last)}
        return united(up_to, single)


NOTHING_PENDING = Pending({}, None)


def with_ack(pending: Pending, ack: LogRecord) -> Pending:
    """Returns the pending acks of a transaction after a further ack record."""
    if ack.cumulative:
        return pending._replace(cumulative=ack.acks[0])
    individual = dict(pending.individual)
    for entry, ack_set in ack.acks:
        old = individual[entry].ack_set if entry in individual else -1
        individual[entry] = PositionAck(entry, None if ack_set is None or old is None else ack_set & old)
    return pending._replace(individual=individual)


def apply_record(pending: dict[int, Pending], record: LogRecord) -> Pending | None:
    """Applies a record to the pending acks by transaction; returns the acks that a commit or abort ends, or None."""
    if record.op != "ack":
        return pending.pop(record.txn, None)
    pending[record.txn] = with_ack(pending.get(record.txn, NOTHING_PENDING), record)
    return None


class Logged(NamedTuple):
    """The pending acks that result from the records of a log, by transaction, and the acks that were committed."""

    pending: dict[int, Pending]
    committed: list[Pending]


@once_per_state
def logged(s: State) -> Logged:
    """Returns the pending and committed acks that result from the records of the log."""
    pending: dict[int, Pending] = {}
    committed: list[Pending] = []
    for record in (each for entry in s.log for each in entry):
        ended = apply_record(pending, record)
        if ended is not None and record.op == "commit":
            committed.append(ended)
    return Logged(pending, committed)


@once_per_state
def in_memory(s: State) -> dict[int, Pending]:
    """Returns the pending acks in the handle's memory, by transaction."""
    pending = {each.txn: Pending({ack.entry: ack for ack in each.acks}, None) for each in s.individual_acks}
    if s.cumulative_ack is not None:
        txn = s.cumulative_ack.txn
        pending[txn] = pending.get(txn, NOTHING_PENDING)._replace(cumulative=s.cumulative_ack.ack)
    return pending


def open_requests(s: State) -> list[Request]:
    """Returns the requests that are not complete, in the order in which they are logged."""
    return [*[request for entry in s.in_flight for request in entry], *s.buffer, *s.accept_queue]


def open_numbers(s: State) -> list[int]:
    """Returns the numbers of the requests with a caller that are not complete."""
    return [request.number for request in open_requests(s) if request.number]


def is_error(event: Event) -> bool:
    """Returns whether the action was refused or failed."""
    return isinstance(event.outcome, Refused | Failed)


def results(event: Event) -> dict[int, str]:
    """Returns the results of the requests that complete in this step, by number."""
    if isinstance(event.outcome, Effects):
        return dict(event.outcome.replies)
    if event.name in REQUESTS and not is_error(event):
        return {event.outcome.request: event.outcome.result} if event.outcome.result != "queued" else {}
    return {}


def appended_requests(before: State, event: Event) -> tuple[Request, ...]:
    """Returns the requests whose records become durable in a ready handle in this step."""
    is_append = event.name in APPENDS and not is_error(event) and before.status == "ready"
    return before.in_flight[0] if is_append else ()


# ---- one log entry, record by record ------------------------------------------------------------------


class Applied(NamedTuple):
    """A record that was applied, and the acks before it."""

    request: Request
    pending: dict[int, Pending]  # of each transaction, before the record
    acknowledged: Messages  # by earlier records of the same entry


def applied_records(cfg: Config, before: State, event: Event, after: State) -> Iterator[Applied]:
    """Yields the records of the appended entry that were applied: those whose requests have the result "done"."""
    replies, pending, since = results(event), in_memory(before), Messages()
    for request in appended_requests(before, event):
        result = replies.get(request.number) if request.number else "done"
        if result == "failed" and after.status != "ready":
            return
        if result != "done":
            continue
        yield Applied(request, pending, since)
        pending = dict(pending)
        ended = apply_record(pending, request.record)
        if ended is not None and request.record.op == "commit" and event.name == "written":
            since = united(since, ended.messages(cfg, before.cursor.first_unacked))


def pending_of(applied: Applied) -> Pending:
    """Returns the pending acks of the record's transaction before the record."""
    return applied.pending.get(applied.request.record.txn, NOTHING_PENDING)


def released_by(cfg: Config, before: State, abort: Applied) -> Messages:
    """Returns the messages that only the aborted transaction had acked, individually, and that are not acknowledged."""
    first, stored = before.cursor.first_unacked, cfg._replace(batch_index_acks=True)
    others = [each.messages(stored, first) for txn, each in abort.pending.items() if txn != abort.request.record.txn]
    individual = pending_of(abort)._replace(cumulative=None)
    left = unacknowledged(cfg, before.cursor, individual.messages(stored, first))
    for messages in (abort.acknowledged, *others):
        left = {n: mask & ~messages.get(n, 0) for n, mask in left.items()}
    return {n: mask for n, mask in left.items() if mask}
