"""Negative-ack tracker with compressed buckets.

Implements the `reference` rules and all settings of `model/negative_acks`. Buckets are kept in
`impl/negative_acks/buckets.py`. Times are monotonic milliseconds.

Complexities count dictionary operations as one.
"""

from __future__ import annotations

from impl.negative_acks.buckets import Buckets, Entries
from model.machine import Failed, Refused
from model.negative_acks.machine import Bucket, Config, Elapsed, Nacked, Redelivery, State
from model.negative_acks.message_ids import ChunkedMessage, MessageId, NackedId
from model.positions import Position


class MessageIds:
    """Retained message ids by entry, and received chunked messages by the position of their last chunk."""

    def __init__(self) -> None:
        self.retained: dict[Position, MessageId] = {}
        self.chunked: dict[Position, dict[MessageId, tuple[Position, ...]]] = {}

    def nacked(self, position: Position, nacked: NackedId) -> None:
        """Retains the id of a traced or chunked message. O(1)."""
        kind, partition, traced, first_chunk, batch_index = nacked
        if traced or kind == "chunk":
            self.retained[position] = MessageId(position, partition, kind, first_chunk, batch_index)

    def received(self, whole: MessageId, chunks: tuple[Position, ...]) -> None:
        """Stores a received chunked message. O(1)."""
        self.chunked.setdefault(whole.position, {})[whole] = chunks

    def take(self, buckets: list[tuple[int, Entries]]) -> tuple[MessageId, ...]:
        """Returns the ids to redeliver for the entries of buckets, in order. O(k log k) for k ids.

        The entries' retained ids and chunked messages are removed.
        """
        entries = {Position(ledger, entry): None for _, bucket in buckets for ledger, ids in bucket for entry in ids}
        retained = self.retained
        if retained:
            found = [retained.pop(entry) if entry in retained else MessageId(entry) for entry in entries]
        else:
            found = [MessageId(entry) for entry in entries]
        if not self.chunked:
            return tuple(sorted(found))
        found += self._take_chunks(entries).difference(found)
        # a chunk has no batch index, but the retained id of its entry may have one: None is not comparable
        return tuple(sorted(found, key=lambda each: [(value is not None, value) for value in each]))

    def _take_chunks(self, entries: dict[Position, None]) -> set[MessageId]:
        """Removes the chunked messages whose last chunk is among the entries. Returns the ids of all their chunks."""
        chunks: set[MessageId] = set()
        for last in [entry for entry in entries if entry in self.chunked]:
            for whole, positions in self.chunked.pop(last).items():
                chunks.update([MessageId(each, whole.partition) for each in positions])
        return chunks

    def check(self, buckets: list[tuple[int, Entries]]) -> list[str]:
        """Returns the violated structural invariants, one line each. O(all)."""
        wrong = []
        pending = {(ledger, entry) for _, bucket in buckets for ledger, ids in bucket for entry in ids}
        if not pending.issuperset(self.retained):
            wrong.append("an id is retained for an entry that is not pending")
        if not all(self.chunked.values()):
            wrong.append("an entry is recorded as a last chunk without a chunked message")
        return wrong


class NegativeAcks:
    """A consumer's tracker. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.now = cfg.initial_time
        unit, delays = cfg.backoff
        per_ms = 1 if unit == "ms" else 1_000_000
        self._backoff = [self._floored(delay // per_ms, cfg.min_delay_ms) for delay in delays]
        # the delay of a nack by message id; without a backoff, of every nack
        self._delay = self._backoff[0] if delays else max(cfg.redelivery_delay_ms, cfg.min_delay_ms)
        self._last = len(delays) - 1  # the largest redelivery count that has its own delay; -1 without a backoff
        self._length = 1 << cfg.precision_bits  # of a bucket
        self._buckets = Buckets()
        self._ids = MessageIds()
        self._is_closed = False
        self._timer: int | None = None

    @staticmethod
    def _floored(delay: int, minimum: int) -> int:
        """Returns a delay, raised to the minimum. A negative delay stays negative, so that `nack` rejects it."""
        return delay if delay < 0 else max(delay, minimum)

    # ---- calls

    def nack(self, entry: Position, redelivery_count: int | None, message_id: NackedId) -> Nacked | Refused:
        """Adds an entry to its bucket and arms the timer. Cost as `Buckets.add`."""
        if self._is_closed:
            return Refused("illegal_state", "the tracker is closed")
        delay, uses_backoff = self._delay, False
        if redelivery_count is not None and self._last >= 0:
            uses_backoff = True
            delay = self._backoff[redelivery_count if redelivery_count < self._last else self._last]
        if delay < 0:
            why = f"the backoff's delay for redelivery count {redelivery_count} is {delay}"
            return Refused("illegal_argument", why)
        ledger, number = entry
        if ledger < 0 or number < 0:
            return Refused("illegal_argument", f"the ledger or entry id of {ledger}:{number} is negative")
        due = self.now + delay
        time = due - due % self._length
        self._buckets.add(time, ledger, number)
        self._ids.nacked(entry, message_id)
        return Nacked(delay, uses_backoff, self._arm(time))

    def _arm(self, time: int) -> bool:
        """Arms the timer for a bucket, unless the timer is due, or armed for this time or earlier.

        Returns whether the timer changed.
        """
        timer, now = self._timer, self.now
        if timer is not None and (timer <= now or timer <= time):
            return False
        self._timer = time if time > now else now
        return True

    def receive_chunks(self, last_chunk: Position, partition: int, chunks: tuple[Position, ...]) -> Refused | None:
        if len(chunks) < 2:
            return Refused("illegal_argument", f"a chunked message has at least 2 chunks, got {len(chunks)}")
        self._ids.received(MessageId(last_chunk, partition, "chunk", chunks[0]), chunks)
        return None

    def ack(self, entry: Position) -> None:
        """Leaves the tracker unchanged. O(1)."""

    def close(self) -> None:
        self._is_closed = True
        self._timer = None
        self._buckets = Buckets()
        self._ids.retained.clear()

    # ---- time

    def advance_time(self, by: int, timer_lag: int) -> Elapsed:
        """Advances the clock. A run costs as `Buckets.take` and `MessageIds.take`."""
        end, runs = self.now + by, 0
        redeliveries: list[Redelivery] = []
        while self._timer is not None and (at := max(self._timer + timer_lag, self.now)) <= end:
            self.now = at
            runs += 1
            ids = self._trigger()
            if ids:
                redeliveries.append(Redelivery(at, ids))
        self.now = end
        return Elapsed(runs, tuple(redeliveries))

    def _trigger(self) -> tuple[MessageId, ...]:
        """Removes the due buckets, re-arms the timer, and returns the ids to redeliver."""
        due = self._buckets.take(self.now)
        self._timer = self._buckets.first()  # later than now: all due buckets were removed
        return self._ids.take(due) if due else ()

    def run_timer_task(self) -> Redelivery | None:
        """Runs a timer task that started before the timer was re-armed or cancelled. The cost is that of one run."""
        if self._is_closed:
            return None
        ids = self._trigger()
        return Redelivery(self.now, ids) if ids else None

    def fail_redelivery(self) -> Failed | None:
        """Runs the timer task; the consumer throws if there is something to redeliver. The cost is that of one run."""
        if self.run_timer_task() is None:
            return None
        return Failed("consumer_failed", "the due entries were not redelivered")

    def step_wall_clock(self, by: int) -> None:
        """Does nothing: the wall clock is not used. O(1)."""

    # ---- for the engines

    def check(self) -> list[str]:
        buckets = self._buckets.items()
        wrong = self._buckets.check() + self._ids.check(buckets)
        first = self._buckets.first()
        if any(time % self._length for time, _ in buckets):
            wrong.append("a bucket's time is not a multiple of its length")
        if first != (buckets[0][0] if buckets else None):
            wrong.append("the recorded first bucket time is not the smallest bucket time")
        if self._is_closed and buckets:
            wrong.append("a closed tracker has pending entries")
        if buckets and self._timer is None and not self._is_closed:
            wrong.append("entries are pending, and no timer is armed")
        # `at`: the deadline for the first bucket. A timer that is due may differ from it: it is not armed again
        at = None if first is None else max(first, self.now)
        if at != self._timer and (at is None or self._timer is None or self._timer > self.now):
            wrong.append("the timer is not armed for the first bucket")
        return wrong

    def view(self) -> State:
        ids = self._ids
        # 0 and None: `wall_offset` and `avl_tree`, which the reference does not use
        return State(
            self.now,
            0,
            "closed" if self._is_closed else "open",
            tuple([Bucket(time, positions(entries)) for time, entries in self._buckets.items()]),
            self._timer,
            tuple(sorted(ids.retained.values())),
            tuple(sorted([ChunkedMessage(*each) for by_id in ids.chunked.values() for each in by_id.items()])),
            None,
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> NegativeAcks:
        self = cls(cfg)
        self.now, self._timer, self._is_closed = state.now, state.timer, state.status == "closed"
        for bucket in state.buckets:
            for ledger, entry in bucket.entries:
                self._buckets.add(bucket.time, ledger, entry)
        self._ids.retained = {each.position: each for each in state.retained_ids}
        for whole, chunks in state.chunked_messages:
            self._ids.received(whole, chunks)
        return self


def positions(bucket: Entries) -> tuple[Position, ...]:
    """Returns the entries of a bucket, in order."""
    return tuple([Position(ledger, entry) for ledger, entries in bucket for entry in entries])
