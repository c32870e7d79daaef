"""What a log and a memory of pending acknowledgements say, message by message, worked out without the model.

Acknowledgements of parts of entries where parts do not count are of no message. An entry of the log is worked off
record by record: what one of them finds is what those before it have left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from invariants.properties import Event, once_per_state
from model.batch_acks.state import Acks
from model.machine import Failed, Refused
from model.pending_acks.machine import Effects
from model.pending_acks.state import Call, Config, Part, Record, State

REQUESTS = ("ack_individual", "ack_cumulative", "commit", "abort")
ENDS = ("written", "cursor_refuses")

#: Of each entry the mask of some of its messages.
Bits = dict[int, int]


def everything(cfg: Config, entry: int) -> int:
    """The mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def of(cfg: Config, part: Part) -> int:
    """The messages of an acknowledgement, as far as they count."""
    if part.leaves is None or part.leaves == 0:
        return everything(cfg, part.entry)
    return everything(cfg, part.entry) & ~part.leaves if cfg.batch_acks else 0


def acked(cfg: Config, acks: Acks, entry: int) -> int:
    """The messages of an entry that are acknowledged."""
    if entry < acks.mark or acks.deleted >> entry & 1:
        return everything(cfg, entry)
    return next((everything(cfg, entry) & ~p.remaining for p in acks.partial if p.entry == entry), 0)


def up_to(cfg: Config, part: Part, mark: int) -> Bits:
    """The messages from a mark on that a cumulative acknowledgement is of."""
    return {n: everything(cfg, n) for n in range(mark, part.entry)} | {part.entry: of(cfg, part)}


def united(some: Bits, more: Bits) -> Bits:
    """The messages of either."""
    return some | {n: bits | some.get(n, 0) for n, bits in more.items()}


def not_acked(cfg: Config, acks: Acks, bits: Bits) -> Bits:
    """Those of the messages that are not acknowledged."""
    left = {n: each & ~acked(cfg, acks, n) for n, each in bits.items()}
    return {n: each for n, each in left.items() if each}


class Held(NamedTuple):
    """What one transaction holds: parts by entry, and a cumulative acknowledgement."""

    parts: dict[int, Part]
    cumulative: Part | None

    def bits(self, cfg: Config, mark: int) -> Bits:
        """The messages of it, as far as they count, from the mark on."""
        single = {n: of(cfg, part) for n, part in self.parts.items()}
        return single if self.cumulative is None else united(up_to(cfg, self.cumulative, mark), single)


#: What a transaction holds that holds nothing.
NOTHING_HELD = Held({}, None)


def with_ack(held: Held, ack: Record) -> Held:
    """What a transaction holds after an acknowledgement of the log."""
    if ack.cumulative:
        return held._replace(cumulative=ack.parts[0])
    parts = dict(held.parts)
    for entry, leaves in ack.parts:
        old = parts[entry].leaves if entry in parts else -1
        parts[entry] = Part(entry, None if leaves is None or old is None else leaves & old)
    return held._replace(parts=parts)


def put_into(holds: dict[int, Held], each: Record) -> Held | None:
    """Puts a record into what each transaction holds; what its transaction held, if it is an end of one that did."""
    if each.op != "ack":
        return holds.pop(each.txn, None)
    holds[each.txn] = with_ack(holds.get(each.txn, NOTHING_HELD), each)
    return None


class Said(NamedTuple):
    """What a log says: what each transaction holds, and what was committed."""

    held: dict[int, Held]
    committed: list[Held]


@once_per_state
def said(s: State) -> Said:
    """What the records of the log say, one after the other."""
    held: dict[int, Held] = {}
    committed: list[Held] = []
    for each in (each for entry in s.log for each in entry):
        ended = put_into(held, each)
        if ended is not None and each.op == "commit":
            committed.append(ended)
    return Said(held, committed)


@once_per_state
def in_memory(s: State) -> dict[int, Held]:
    """What each transaction holds in memory."""
    held = {h.txn: Held({p.entry: p for p in h.parts}, None) for h in s.held}
    if s.cumulative is not None:
        txn = s.cumulative.txn
        held[txn] = held.get(txn, NOTHING_HELD)._replace(cumulative=s.cumulative.part)
    return held


def open_calls(s: State) -> list[Call]:
    """The requests that are not answered yet, those that go to the log first."""
    return [*[call for calls in s.in_flight for call in calls], *s.buffer, *s.queue]


def open_tickets(s: State) -> list[int]:
    """The tickets of those who wait."""
    return [call.ticket for call in open_calls(s) if call.ticket]


def is_error(event: Event) -> bool:
    """The action was not taken, or did not succeed."""
    return isinstance(event.outcome, Refused | Failed)


def told(event: Event) -> dict[int, str]:
    """Who is told what, at last, by ticket."""
    if isinstance(event.outcome, Effects):
        return dict(event.outcome.answers)
    if event.name in REQUESTS and not is_error(event):
        return {event.outcome.ticket: event.outcome.told} if event.outcome.told != "waits" else {}
    return {}


def comes(before: State, event: Event) -> tuple[Call, ...]:
    """The calls that are called back by a store that serves."""
    is_end = event.name in ENDS and not is_error(event) and before.status == "ready"
    return before.in_flight[0] if is_end else ()


# ---- an entry, record by record -----------------------------------------------------------------------


class Back(NamedTuple):
    """A record that did what it asks for, and what was so when it came back."""

    call: Call
    memory: dict[int, Held]  # what each transaction held
    since: Bits  # what the records before it in its entry have acknowledged


def worked_off(cfg: Config, before: State, event: Event, after: State) -> Iterator[Back]:
    """The records of an entry that did what they ask for, as their callers were told, one after the other.

    What each of them finds is worked out from what was so before the entry, and from the records before it.
    """
    answers, memory, since = told(event), in_memory(before), Bits()
    for call in comes(before, event):
        answer = answers.get(call.ticket) if call.ticket else "done"
        if answer == "failed" and after.status != "ready":
            return
        if answer != "done":
            continue
        yield Back(call, memory, since)
        memory = dict(memory)
        ended = put_into(memory, call.record)
        if ended is not None and call.record.op == "commit" and event.name == "written":
            since = united(since, ended.bits(cfg, before.acks.mark))


def held_by(back: Back) -> Held:
    """What the transaction of a record held when it came back."""
    return back.memory.get(back.call.record.txn, NOTHING_HELD)


def left_by(cfg: Config, before: State, end: Back) -> Bits:
    """The messages that an end leaves to nobody: not acknowledged, and held by its transaction alone."""
    mark, counted = before.acks.mark, cfg._replace(batch_acks=True)
    others = [held.bits(counted, mark) for txn, held in end.memory.items() if txn != end.call.record.txn]
    left = not_acked(cfg, before.acks, held_by(end).bits(counted, mark))
    for bits in (end.since, *others):
        left = {n: mine & ~bits.get(n, 0) for n, mine in left.items()}
    return {n: mine for n, mine in left.items() if mine}
