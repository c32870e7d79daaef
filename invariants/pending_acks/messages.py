"""The messages that are pending according to the log, and according to the handle's memory.

The functions use the types of the model, but none of its functions.
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
#: Actions in which the append of a log entry succeeds.
APPENDS = ("written", "cursor_refuses")

#: A set of messages: entry -> the mask of its messages that are in the set.
Messages = dict[int, int]


def all_messages(cfg: Config, entry: int) -> int:
    """Returns the mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def acked_by(cfg: Config, ack: PositionAck) -> int:
    """Returns the mask of the messages that an ack is for."""
    return all_messages(cfg, ack.entry) & ~(ack.ack_set or 0)


def acknowledged_by_commit_of(cfg: Config, ack: PositionAck) -> int:
    """Returns the mask of the messages that the commit of an ack acknowledges.

    A cursor that stores no ack sets ignores a batch-index ack, unless its ack set is empty.
    """
    return acked_by(cfg, ack) if cfg.batch_index_acks or not ack.ack_set else 0


def acknowledged(cfg: Config, acks: Acks, entry: int) -> int:
    """Returns the mask of the acknowledged messages of an entry."""
    if entry < acks.first_unacked or acks.deleted >> entry & 1:
        return all_messages(cfg, entry)
    return next((all_messages(cfg, entry) & ~p.remaining for p in acks.partial if p.entry == entry), 0)


def covered(cfg: Config, ack: PositionAck, entry: int) -> int:
    """Returns the mask of the messages of an entry that a cumulative ack is for."""
    if entry == ack.entry:
        return acked_by(cfg, ack)
    return all_messages(cfg, entry) if entry < ack.entry else 0


def union(some: Messages, more: Messages) -> Messages:
    """Returns the messages in `some` or in `more`."""
    return some | {n: mask | some.get(n, 0) for n, mask in more.items()}


def unacknowledged(cfg: Config, acks: Acks, messages: Messages) -> Messages:
    """Returns the given messages without the acknowledged ones."""
    left = {n: mask & ~acknowledged(cfg, acks, n) for n, mask in messages.items()}
    return {n: mask for n, mask in left.items() if mask}


class Pending(NamedTuple):
    """Pending acks of one transaction: individual acks by entry, and a cumulative ack."""

    individual: dict[int, PositionAck]
    cumulative: PositionAck | None

    def commit_messages(self, cfg: Config, first: int) -> Messages:
        """Returns the messages that a commit of these acks acknowledges.

        The messages of a batch-index ack that the cursor ignores are left out. `first` is the first entry after the
        mark-delete position: a cumulative ack also covers the entries before it, which are left out, too.
        """
        by_individual = {n: acknowledged_by_commit_of(cfg, ack) for n, ack in self.individual.items()}
        if self.cumulative is None:
            return by_individual
        last = self.cumulative.entry
        by_cumulative = {n: all_messages(cfg, n) for n in range(first, last)}
        by_cumulative[last] = acknowledged_by_commit_of(cfg, self.cumulative)
        return union(by_cumulative, by_individual)


NOTHING_PENDING = Pending({}, None)


def with_ack(pending: Pending, ack: LogRecord) -> Pending:
    """Returns the pending acks of a transaction after one more ack record."""
    if ack.cumulative:
        return pending._replace(cumulative=ack.acks[0])
    individual = dict(pending.individual)
    for entry, ack_set in ack.acks:
        old = individual[entry].ack_set if entry in individual else -1  # -1: all bits are set, no message is acked
        individual[entry] = PositionAck(entry, None if ack_set is None or old is None else ack_set & old)
    return pending._replace(individual=individual)


def apply_record(pending: dict[int, Pending], record: LogRecord) -> Pending | None:
    """Applies a record to `pending`, the pending acks by transaction.

    Returns the acks that a commit or abort ends; None for an ack, or if no ack ends.
    """
    if record.op != "ack":
        return pending.pop(record.txn, None)
    pending[record.txn] = with_ack(pending.get(record.txn, NOTHING_PENDING), record)
    return None


class Logged(NamedTuple):
    """The acks that result from the records of a log."""

    pending: dict[int, Pending]  # by transaction
    committed: list[Pending]  # by commit, in log order


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
    """Returns the requests that are not complete, in the order in which their records are logged."""
    return [*[request for entry in s.in_flight for request in entry], *s.buffer, *s.accept_queue]


def open_numbers(s: State) -> list[int]:
    """Returns the numbers of the requests that are not complete, without internal aborts (`INTERNAL`, 0)."""
    return [request.number for request in open_requests(s) if request.number]


def is_error(event: Event) -> bool:
    """Returns whether the action was refused or failed."""
    return isinstance(event.outcome, Refused | Failed)


def results(event: Event) -> dict[int, str]:
    """Returns the results of the requests that complete in this step, by request number."""
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
    """A record that was applied, and what was pending and committed before it was applied."""

    request: Request
    pending: dict[int, Pending]  # the pending acks before the record, by transaction
    committed: Messages  # the messages that earlier records of the same log entry have committed


def applied_records(cfg: Config, before: State, event: Event, after: State) -> Iterator[Applied]:
    """Yields the records of the appended entry that were applied, each with what was pending and committed before it.

    These are the records of internal aborts and of requests with the result `done`. If a commit fails and stops the
    handle, no later record of the entry is applied.
    """
    replies, pending, committed = results(event), in_memory(before), Messages()
    for request in appended_requests(before, event):
        result = replies.get(request.number) if request.number else "done"  # an internal abort has no reply
        if result == "failed" and after.status != "ready":
            return
        if result != "done":
            continue
        yield Applied(request, pending, committed)
        pending = dict(pending)
        ended = apply_record(pending, request.record)
        if ended is not None and request.record.op == "commit" and event.name == "written":
            committed = union(committed, ended.commit_messages(cfg, before.cursor.first_unacked))


def pending_of(applied: Applied) -> Pending:
    """Returns the acks that the transaction of an applied record had pending before the record."""
    return applied.pending.get(applied.request.record.txn, NOTHING_PENDING)


def messages_to_redeliver(cfg: Config, before: State, abort: Applied) -> Messages:
    """Returns the messages that an abort must redeliver.

    These are the messages that its transaction acked individually and that are neither acknowledged nor pending in
    another transaction.
    """
    first = before.cursor.first_unacked
    with_ack_sets = cfg._replace(batch_index_acks=True)  # the handle knows ack sets that the cursor does not store
    others = [
        each.commit_messages(with_ack_sets, first)
        for txn, each in abort.pending.items()
        if txn != abort.request.record.txn
    ]
    individual = pending_of(abort)._replace(cumulative=None)
    left = unacknowledged(cfg, before.cursor, individual.commit_messages(with_ack_sets, first))
    for messages in (abort.committed, *others):
        left = {n: mask & ~messages.get(n, 0) for n, mask in left.items()}
    return {n: mask for n, mask in left.items() if mask}
