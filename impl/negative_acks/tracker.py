"""The tracker of negative acknowledgements, in little memory and with runs that cost what they redeliver.

The same behaviour as `model/negative_acks/machine.py`. How slots are kept depends on the rules:

    impl/negative_acks/buckets.py   progressions, bitmaps and packed pages, where an entry may be pending several times
    impl/negative_acks/once.py    dictionaries and a heap, where it is pending once, as before PIP-393
    impl/negative_acks/tree.py    the Go client's tree

Complexities count dictionary operations as one; n are the slots that are pending.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from impl.negative_acks.buckets import Entries, Slots
from impl.negative_acks.once import OnceSlots
from impl.negative_acks.tree import WalkedSlots
from model.machine import Failed, Refused
from model.negative_acks.delay import UNITS_OF
from model.negative_acks.ids import Chunks, MessageId, Told
from model.negative_acks.machine import Config, Nacked, Passed, Redelivery, Slot, State
from model.negative_acks.tree import Tree
from model.positions import Position

_BROKEN = Refused("panic", "a ticker without a period was never started")


class Pending(Protocol):
    """Entries by slot."""

    def __bool__(self) -> bool: ...

    def first(self) -> int | None:
        """The earliest slot, or None."""

    def add(self, time: int, ledger: int, entry: int, /) -> None:
        """An entry comes to a slot."""

    def take(self, limit: int, /) -> list[tuple[int, Entries]]:
        """Takes out slots up to a time, in order."""

    def items(self) -> list[tuple[int, Entries]]:
        """All slots, in order."""

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each."""


def pending(cfg: Config) -> Pending:
    """Slots by the rules of a config."""
    if cfg.walk == "while_removing":
        return WalkedSlots()
    return Slots() if cfg.again == "both" else OnceSlots(cfg.again)


class Delays:
    """The delays of a config, worked out once."""

    def __init__(self, cfg: Config) -> None:
        unit = UNITS_OF[cfg.unit]
        least, fixed = cfg.least_delay_ms * unit, cfg.redelivery_delay_ms * unit
        if cfg.least_delay_holds_for != "none":
            fixed = max(fixed, least)
        self._table = cfg.backoff
        if cfg.least_delay_holds_for == "all":
            self._table = tuple([max(delay, least) if delay >= 0 else delay for delay in cfg.backoff])
        self._last = len(self._table) - 1
        self.asks = bool(self._table)
        self.of_id = self._table[min(cfg.count_of_an_id, self._last)] if self._table else fixed
        self._of_count = None if cfg.count_without_backoff == "null_pointer" else fixed
        if cfg.timer == "ticker":
            self.period = max(self.of_id, 0) // 3
        else:
            self.period = max(max(self.of_id, least) // 3, 1)

    def of(self, count: int | None) -> int | None:
        """The delay for a redelivery count, or for an id, or None. O(1)."""
        if count is None:
            return self.of_id
        if self._last < 0:
            return self._of_count
        return self._table[count if count < self._last else self._last]


class KeptIds:
    """What is kept of ids, and the pieces of chunked messages."""

    def __init__(self, cfg: Config) -> None:
        self._rule, self._command, self._by_id = cfg.ids, cfg.command, cfg.pieces_by == "id"
        self.ids: dict[Position, MessageId] = {}
        self.chunks: dict[Position, dict[MessageId, tuple[Position, ...]]] = {}

    def nacked(self, position: Position, told: Told) -> None:
        """An entry was negatively acknowledged by this id. O(1)."""
        if self._rule == "with_partition":
            self.ids[position] = MessageId(position, told.partition)
        elif self._rule == "traced" and (told.traced or told.kind == "chunk"):
            self.ids[position] = MessageId(position, told.partition, told.kind, told.first_chunk, told.batch_index)

    def received(self, whole: MessageId, pieces: tuple[Position, ...]) -> None:
        """A chunked message was received. O(1)."""
        self.chunks.setdefault(whole.position, {})[whole] = pieces

    def redelivered(self, slots: list[tuple[int, Entries]]) -> tuple[MessageId, ...]:
        """The ids of some slots' entries, with the pieces that belong to them, in order. O(k log k) for k of them."""
        entries: Iterable[Position] = [
            Position(ledger, entry) for _, slot in slots for ledger, numbers in slot for entry in numbers
        ]
        ids: list[MessageId]
        if self._command == "entries":
            entries = dict.fromkeys(entries)
        if self.ids:
            kept = self.ids
            ids = [kept.pop(entry) if entry in kept else MessageId(entry) for entry in entries]
        else:
            ids = [MessageId(entry) for entry in entries]
        if self._command == "ids":
            ids = list(dict.fromkeys(ids))
        if self.chunks:
            ids += self._pieces(ids)
        return tuple(sorted(ids))

    def _pieces(self, ids: list[MessageId]) -> set[MessageId]:
        """The pieces of the chunked messages that these ids find, which are forgotten; but for those that are there."""
        found: set[MessageId] = set()
        for each in ids:
            wholes = self.chunks.get(each.position)
            if not wholes:
                continue
            for whole in [whole for whole in wholes if not self._by_id or whole == each]:
                found |= {MessageId(piece, whole.partition) for piece in wholes.pop(whole)}
            if not wholes:
                del self.chunks[each.position]
        return found.difference(ids)

    def check(self, slots: list[tuple[int, Entries]]) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        wrong = []
        there = {(ledger, entry) for _, slot in slots for ledger, entries in slot for entry in entries}
        if not there.issuperset(self.ids):
            wrong.append("an id is kept of an entry that is not pending")
        if self._rule == "with_partition" and len(there) != len(self.ids):
            wrong.append("no partition is kept of an entry that is pending")
        if not all(self.chunks.values()):
            wrong.append("an entry is believed to end a chunked message, and there is none")
        return wrong


class NegativeAcks:
    """A consumer's tracker. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now = cfg.start
        self._skew = 0
        self._delays = Delays(cfg)
        self._slots = pending(cfg)
        self._kept = KeptIds(cfg)
        self._keeps_ids = cfg.ids != "none"
        self._grain = (1 if cfg.precision_of == "units" else UNITS_OF[cfg.unit]) << cfg.precision_bits
        self._strict = 0 if cfg.due_at_its_time else 1
        self._refuses_past, self._refuses_ids = cfg.negative_delay == "refused", cfg.negative_ids == "refused"
        self._life: Any = "fresh" if cfg.close == "forgets" else "open"
        self._timer: int | None = None
        self._rule = cfg.timer
        self._ticks, self._follows_slots = cfg.timer == "ticker", cfg.timer in ("first_slot", "idle_nack")
        if self._ticks and self._delays.period:
            self._timer = self.now + self._delays.period
        elif self._ticks:
            self._life = "broken"

    # ---- calls

    def nack(self, entry: Position, count: int | None, told: Told) -> Nacked | Refused | Failed:
        """An entry is to come back. O(1), and O(n) for one nack in many."""
        if self._life != "open":
            refusal = self._not_open()
            if refusal is not None:
                return refusal
        delay = self._delays.of(count)
        if delay is None:
            return Refused("null_pointer", "a message brings a redelivery count, and there is no backoff to ask")
        if delay < 0 and self._refuses_past:
            return Refused("illegal_argument", f"the backoff's delay for redelivery count {count} is {delay}")
        ledger, number = entry
        if (ledger < 0 or number < 0) and self._refuses_ids:
            return Refused("illegal_argument", f"entry {ledger}:{number} is below zero")
        if self._life == "fresh":
            self._life = "open"
        if ledger < 0 and self.cfg.negative_ids == "ledger_fails":
            return Failed("illegal_argument", "a ledger id below zero")
        due = self.now + self._skew + delay
        time = due - due % self._grain
        self._slots.add(time, ledger, number)
        if self._keeps_ids:
            self._kept.nacked(entry, told)
        before = self._timer
        self._timer = timer = self._after_nack(time, delay)
        return Nacked(delay, count is not None and self._delays.asks, timer != before)

    def _not_open(self) -> Refused | None:
        if self._life == "broken":
            return _BROKEN
        if self._life == "closed" and self.cfg.close == "final":
            return Refused("illegal_state", "the tracker is closed")
        return None

    def _after_nack(self, time: int, delay: int) -> int | None:
        rule, timer = self._rule, self._timer
        if rule == "first_slot":
            at = time - self._skew + self._strict
            if timer is None or at < timer:
                return at if at > self.now else self.now if timer is None or timer > self.now else timer
            return timer
        if rule == "every_nack":
            return self.now + self._delays.period
        if timer is not None or self._ticks:
            return timer
        return self.now + (delay if rule == "idle_nack" else self._delays.period)

    def remember_chunks(self, last: Position, partition: int, pieces: tuple[Position, ...]) -> Refused | None:
        """A chunked message was received. O(1)."""
        if len(pieces) < 2:
            return Refused("illegal_argument", "a chunked message has two pieces or more")
        self._kept.received(MessageId(last, partition, "chunk", pieces[0]), pieces)
        return None

    def ack(self, entry: Position) -> None:
        """Cancels nothing. O(1)."""

    def close(self) -> None:
        """The consumer closes. O(1)."""
        if self._life == "broken":
            return
        self._timer = None
        self._life = "fresh" if self.cfg.close == "forgets" else "closed"
        if self.cfg.close != "keeps":
            self._slots = pending(self.cfg)
            self._kept.ids.clear()

    # ---- time

    def advance_time(self, by: int, lag: int) -> Passed:
        """Time passes. O(log n) a run, and what is redelivered."""
        end, runs = self.now + by, 0
        redeliveries: list[Redelivery] = []
        while self._timer is not None and (at := max(self._timer + lag, self.now)) <= end:
            self.now, deadline = at, self._timer
            ids = self._run()
            if self._ticks:
                self._timer = deadline + self._delays.period
            runs += 1
            if ids:
                redeliveries.append(Redelivery(at, ids))
        self.now = end
        return Passed(runs, tuple(redeliveries))

    def _run(self) -> tuple[MessageId, ...]:
        slots, had_any = self._slots, bool(self._slots)
        due = slots.take(self.now + self._skew - self._strict)
        if self._follows_slots:
            first = slots.first()
            self._timer = None if first is None else max(first - self._skew + self._strict, self.now)
        elif not self._ticks:
            self._timer = self.now + self._delays.period if had_any else None
        return self._kept.redelivered(due) if due else ()

    def timer_task_runs(self) -> Redelivery | Refused | None:
        """A task that had begun gets its turn. As a run."""
        if self._life == "broken":
            return _BROKEN
        if self._life != "open":
            if self.cfg.task_without_slots == "null_pointer":
                return Refused("null_pointer", "there are no slots to look at")
            return None
        ids = self._run()
        return Redelivery(self.now, ids) if ids else None

    def redelivery_fails(self) -> Refused | Failed | None:
        """A task gets its turn, and the consumer throws. As a run."""
        outcome = self.timer_task_runs()
        if isinstance(outcome, Redelivery):
            return Failed("consumer_failed", "what was due was not redelivered")
        return outcome

    def wall_clock_jumps(self, by: int) -> None:
        """The wall clock is set to another time. O(1)."""
        if self.cfg.clock == "wall":
            self._skew += by

    # ---- for the engines

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        slots = self._slots.items()
        wrong = self._slots.check() + self._kept.check(slots)
        if any(time % self._grain for time, _ in slots):
            wrong.append("a slot does not begin where slots begin")
        if self._slots.first() != (slots[0][0] if slots else None):
            wrong.append("the first slot is not the first")
        if self._life != "open" and slots and self.cfg.close != "keeps":
            wrong.append("a tracker that is not open has something pending")
        if slots and self._timer is None and self._life == "open":
            wrong.append("something is pending, and no timer is set")
        if self.cfg.timer == "first_slot" and self.cfg.again == "both" and self.cfg.clock == "steady":
            first = self._slots.first()
            at = None if first is None else max(first + self._strict, self.now)
            if at != self._timer and (at is None or self._timer is None or self._timer > self.now):
                wrong.append("the timer is not set for the first slot")
        return wrong

    def view(self) -> State:
        """The model's state of which this is an implementation. O(all)."""
        kept = self._kept
        return State(
            self.now,
            self._skew,
            self._life,
            tuple([Slot(time, positions(slot)) for time, slot in self._slots.items()]),
            self._timer,
            tuple(sorted(kept.ids.values())),
            tuple(sorted([Chunks(*each) for wholes in kept.chunks.values() for each in wholes.items()])),
            self._shape(),
        )

    def _shape(self) -> Tree:
        return self._slots.shape() if isinstance(self._slots, WalkedSlots) else None

    @classmethod
    def load(cls, cfg: Config, state: State) -> NegativeAcks:
        """An implementation in the given state of the model. O(all)."""
        self = cls(cfg)
        self.now, self._skew, self._life, self._timer = state.now, state.skew, state.life, state.timer
        if isinstance(self._slots, WalkedSlots):
            self._slots.load(state.tree)
        for slot in state.slots:
            for ledger, entry in slot.entries:
                self._slots.add(slot.time, ledger, entry)
        self._kept.ids = {each.position: each for each in state.kept}
        for whole, pieces in state.chunks:
            self._kept.received(whole, pieces)
        return self


def positions(slot: Entries) -> tuple[Position, ...]:
    """A slot's entries, in order."""
    return tuple([Position(ledger, entry) for ledger, entries in slot for entry in entries])
