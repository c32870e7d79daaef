"""A managed ledger with its dispatchers, indexed.

Implements the `reference` rules and all settings of `model/managed_ledger`:

    cache        `impl/entry_cache`. All copies of an entry share one handler, which has the expected read count
    cursors      `impl/active_cursors`, an order-statistics container
    consumers    for each consumer, the entries that it holds; for each key and consumer, how many of these entries have
                 the key
    replay       a sorted list of all entries of the replay queue, and a sorted list for each key
    readers      for each request to the cache, the subscription that made the request, and the kind of the read

In private methods, `number` is the number of a subscription. Complexities count dictionary operations as one.
"""

from __future__ import annotations

from impl.active_cursors import ActiveCursors
from impl.managed_ledger.parts import ConnectedConsumer, DispatcherRead, LiveSubscription, TopicCache, cache_config
from model.active_cursors.machine import Config as ActiveConfig
from model.active_cursors.machine import Slowest
from model.entry_cache.state import Answered, Issued
from model.entry_cache.state import Reading as CacheReading
from model.machine import Refused
from model.managed_ledger.state import (
    Added,
    Config,
    Dispatched,
    Kind,
    Ledger,
    ReadEntry,
    Started,
    State,
)
from model.positions import Position
from model.values import UNITS_PER_MS


class ManagedLedger:
    """The managed ledger of a topic. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._ledgers: dict[int, int] = {0: 0}  # ledger id -> number of entries, in the order of ids
        self._last = 0  # id of the last ledger
        self._cache = TopicCache(cache_config(cfg))
        self._cache.expected = self._expected_reads
        grace_ms = cfg.grace_ms if cfg.counts_reads else 0
        self._active = ActiveCursors(ActiveConfig(cursors=cfg.subscriptions, grace_ms=grace_ms))
        types = [cfg.types[i % len(cfg.types)] for i in range(cfg.subscriptions)]
        self._subscriptions = [LiveSubscription(each, self._key_of) for each in types]
        self._by_mark = cfg.invalidates_by_mark_delete and not cfg.counts_reads
        self._readers: dict[int, tuple[int, Kind]] = {}  # pending request -> its subscription, kind of its read

    # ---- the log

    def _key_of(self, position: Position) -> int:
        return self.cfg.entry_keys[position.entry % len(self.cfg.entry_keys)]

    def _has(self, position: Position) -> bool:
        return 0 <= position.entry < self._ledgers.get(position.ledger, 0)

    def _valid_from(self, position: Position) -> Position:
        """Returns the first position, from a given one on, that has an entry or will get the next added entry.

        O(1); O(ledgers) for a position in a deleted ledger or past the end of a closed ledger.
        """
        ledger, entry = position
        if ledger == self._last or entry < self._ledgers.get(ledger, 0):
            return position
        return Position(next(each for each in self._ledgers if each > ledger), 0)

    def _after(self, position: Position) -> Position:
        return self._valid_from(Position(position.ledger, position.entry + 1))

    def add_entry(self) -> Added:
        """Adds an entry. Caches it if a cursor is active, or during the grace period; a shadow topic never caches it.

        Cost as `TopicCache.store_entry`, and of an eviction that the entry triggers.
        """
        position = Position(self._last, self._ledgers[self._last])
        self._ledgers[self._last] += 1
        size = self.cfg.entry_bytes[position.entry % len(self.cfg.entry_bytes)]
        self._cache.store_entry(position, size)
        if self.cfg.shadow_topic or not self._active.should_cache_added_entries():
            return Added(position, False)
        expected = self._active.size() if self.cfg.counts_reads else 0
        return Added(position, self._cache.insert(0, position, size, expected))

    def rollover_ledger(self) -> int | Refused:
        """Starts a new ledger. O(1)."""
        if not self._ledgers[self._last]:
            return Refused("illegal_state", "the ledger is empty")
        self._last += 1
        self._ledgers[self._last] = 0
        return self._last

    def trim_consumed_ledgers(self) -> int:
        """Deletes the closed ledgers whose last entry all mark-delete positions have reached. Returns their number.

        O(subscriptions + ledgers + cached entries of deleted ledgers).
        """
        slowest = min(sub.mark_delete for sub in self._subscriptions)
        gone = [n for n, entries in self._ledgers.items() if n != self._last and Position(n, entries - 1) <= slowest]
        for ledger in gone:
            self._cache.delete(ledger)
            del self._ledgers[ledger]
        return len(gone)

    # ---- cursors

    def _tracked(self, sub: LiveSubscription) -> Position:
        """Returns the position that the container of active cursors has for a cursor while the cursor is active."""
        return sub.mark_delete if self._by_mark else sub.read_position

    def _cursor_moved(self, number: int, was: Position) -> None:
        """Updates a cursor's position in the container if the position is no longer `was`. O(log subscriptions).

        Without counts, also removes the entries before the slowest position from the cache if this position changed.
        """
        now = self._tracked(self._subscriptions[number])
        if now == was:
            return
        if self.cfg.counts_reads:
            self._active.update_cursor(number, now)
            return
        slowest = self._active.cursor_updated(number, now)
        if isinstance(slowest, Slowest) and slowest.previous != slowest.new:
            self._invalidate()

    def _invalidate(self) -> None:
        slowest = self._active.slowest_position()
        if slowest is None:
            self._cache.clear_cache(0)
        else:
            self._cache.invalidate_entries_before(0, slowest)

    def _activate(self, number: int) -> None:
        if self._active.get_cursor(number) is None:
            self._active.add_cursor(number, self._tracked(self._subscriptions[number]), True)

    def _deactivate(self, number: int) -> None:
        if self._active.remove_cursor(number) and not self.cfg.counts_reads:
            self._invalidate()

    def _set_read_position(self, number: int, position: Position) -> None:
        sub = self._subscriptions[number]
        was, sub.read_position = self._tracked(sub), position
        self._cursor_moved(number, was)

    def _rewind(self, number: int) -> None:
        self._set_read_position(number, self._after(self._subscriptions[number].mark_delete))

    def _set_mark_delete(self, number: int, mark: Position) -> None:
        """Moves the mark-delete position to `mark`, and on over acknowledged entries that directly follow.

        The read position stays after the mark-delete position. Entries up to the mark-delete position leave the replay
        queue and the consumers that hold them.

        O(individually deleted entries + held entries), and `ReplayQueue.remove` for each entry that leaves the queue.
        """
        sub = self._subscriptions[number]
        was = self._tracked(sub)
        while (after := self._after(mark)) in sub.acked:
            mark = after
        if mark == sub.mark_delete:
            return
        sub.mark_delete = mark
        sub.acked = {p for p in sub.acked if p > mark}
        for connected in sub.consumers.values():
            for position in [p for p in connected.pending if p <= mark]:
                sub.drop(connected, position)
        while sub.replay.positions and sub.replay.positions[0] <= mark:
            sub.replay.remove(sub.replay.positions[0])
        if sub.read_position <= mark:
            sub.read_position = self._after(mark)
        self._cursor_moved(number, was)

    # ---- consumers

    def connect(self, subscription: int, consumer: int) -> Refused | None:
        """Adds a consumer. The first one, or a new active consumer of a failover subscription, restarts the dispatcher.

        With counts, the cursor becomes active. Cost as `_restart`.
        """
        sub = self._subscriptions[subscription]
        if consumer in sub.consumers:
            return Refused("illegal_state", "the consumer is connected")
        takes_over = sub.type == "failover" and consumer < min(sub.consumers, default=consumer)
        is_first = not sub.consumers
        sub.consumers[consumer] = ConnectedConsumer(consumer)
        if is_first or takes_over:
            self._restart(subscription)
        if self.cfg.counts_reads:
            self._activate(subscription)
        return None

    def _restart(self, number: int) -> None:
        """Drops all held entries, and cancels outstanding reads. Cost as `LiveSubscription.drop_all` for each consumer.

        The cursor is rewound now if no read is outstanding, otherwise when a cancelled read ends.
        """
        sub = self._subscriptions[number]
        for connected in sub.consumers.values():
            sub.drop_all(connected)
        for read in sub.reads.values():
            read.cancelled = True
        if not sub.reads:
            self._rewind(number)

    def disconnect(self, subscription: int, consumer: int) -> Refused | None:
        """Removes a consumer. Cost as `drop_all`, and as `ReplayQueue.add` or `remove` for each entry that moves."""
        sub = self._subscriptions[subscription]
        connected = sub.consumers.get(consumer)
        if connected is None:
            return Refused("illegal_state", "the consumer is not connected")
        was_first = consumer == min(sub.consumers)
        held = sub.drop_all(connected)
        del sub.consumers[consumer]
        if not sub.consumers:
            for position in list(sub.replay.positions):
                sub.replay.remove(position)
            for read in sub.reads.values():
                read.cancelled = True
            self._deactivate(subscription)
        elif sub.type != "failover":
            sub.put_into_replay(held)
        elif was_first:
            self._restart(subscription)
        return None

    def flow(self, subscription: int, consumer: int, permits: int) -> Refused | None:
        connected = self._subscriptions[subscription].consumers.get(consumer)
        if connected is None:
            return Refused("illegal_state", "the consumer is not connected")
        connected.permits += permits
        return None

    def redeliver(self, subscription: int, consumer: int) -> Refused | None:
        """Puts the entries that a consumer holds into the replay queue. Cost as `disconnect`.

        In a failover subscription, the active consumer restarts the dispatcher instead (`_restart`); another consumer
        holds nothing.
        """
        sub = self._subscriptions[subscription]
        connected = sub.consumers.get(consumer)
        if connected is None:
            return Refused("illegal_state", "the consumer is not connected")
        if sub.type != "failover":
            sub.put_into_replay(sub.drop_all(connected))
        elif consumer == min(sub.consumers):
            self._restart(subscription)
        return None

    # ---- reads

    def read_more_entries(self, subscription: int) -> Started | Refused:
        """Starts a replay read or a normal read. O(replay queue, and the entries of the read)."""
        sub = self._subscriptions[subscription]
        consumers = sub.consumers_by_number()[:1] if sub.type == "failover" else list(sub.consumers.values())
        most = min(sum([connected.permits for connected in consumers]), self.cfg.read_batch)
        if most <= 0 or "replay" in sub.reads:
            return Refused("not_enabled", "no permits, or a replay read is outstanding")
        # `acked` suffices: entries up to the mark-delete position have already left the queue (`_set_mark_delete`)
        for position in [p for p in sub.replay.positions if p in sub.acked]:
            sub.replay.remove(position)
        positions = self._replay_now(sub, most)
        if positions:
            return self._start(subscription, "replay", positions, [(p, p) for p in positions])
        if "normal" in sub.reads:
            return Started("normal", (), ())
        if sub.type == "key_shared":
            most = min(most, self.cfg.look_ahead - len(sub.replay))
        first = self._valid_from(sub.read_position)
        end = min(first.entry + most, self._ledgers[first.ledger])
        positions = [Position(first.ledger, entry) for entry in range(first.entry, end)]
        if not positions:
            return Started("normal", (), ())
        self._set_read_position(subscription, first)
        return self._start(subscription, "normal", positions, [(positions[0], positions[-1])])

    def _replay_now(self, sub: LiveSubscription, most: int) -> list[Position]:
        """Returns the entries of the next replay read, at most `most`. O(replay queue)."""
        if sub.type != "key_shared":
            return sub.replay.positions[:most]
        consumers = sub.consumers_by_number()
        permits = {connected.number: connected.permits for connected in consumers}
        taken: list[Position] = []
        for position in sub.replay.positions:
            connected = consumers[self._key_of(position) % len(consumers)]
            if permits[connected.number] > 0 and not sub.is_held_elsewhere(connected, position):
                permits[connected.number] -= 1
                taken.append(position)
                if len(taken) == most:
                    break
        return taken

    def _start(
        self, number: int, kind: Kind, positions: list[Position], asked: list[tuple[Position, Position]]
    ) -> Started:
        """Starts a read. `asked`: the first and the last position of each request to the cache."""
        read = self._subscriptions[number].reads[kind] = DispatcherRead()
        requests = range(self._cache.next_request, self._cache.next_request + len(asked))
        read.requests.update(requests)
        self._readers.update(dict.fromkeys(requests, (number, kind)))
        issued: list[Issued] = []
        for low, high in asked:
            answer = self._cache.read(0, low.ledger, low.entry, high.entry, 0)
            assert isinstance(answer, CacheReading)
            issued.extend(answer.issued)
            self._take(answer.answered)
        return Started(kind, tuple(positions), tuple(issued))

    def _expected_reads(self, request: int) -> int:
        """Returns the expected read count of the entries that a request reads from storage.

        Cost as `ActiveCursors.number_at_same_position_or_before`.
        """
        number, kind = self._readers[request]
        if kind == "replay":
            return 0
        if self.cfg.counts_reads:
            return self._active.number_at_same_position_or_before(number)
        return int(self._subscriptions[number].caches_reads)

    def complete_storage_read(self, storage_read: int, success: bool) -> CacheReading | Refused:
        """Storage completes or fails a read; a read of a deleted ledger fails.

        Cost as `EntryCaches.complete_storage_read`.
        """
        read = self._cache.outstanding(storage_read)
        has_ledger = read is not None and read.initiator.ledger in self._ledgers
        answer = self._cache.complete_storage_read(storage_read, success and has_ledger)
        if isinstance(answer, CacheReading):
            self._take(answer.answered)
        return answer

    def _take(self, answers: tuple[Answered, ...]) -> None:
        """Adds the answers of the cache to the reads that asked for them. O(entries of the answers).

        An answer moves the read position of a normal read. A failed read ends when its last request is answered.
        """
        for answer in answers:
            number, kind = self._readers.pop(answer.request)
            sub = self._subscriptions[number]
            read = sub.reads[kind]
            read.requests.discard(answer.request)
            read.failed |= not answer.ok
            read.entries += [ReadEntry(each.position, each.copy) for each in answer.entries]
            if kind == "normal" and answer.entries:
                last = answer.entries[-1].position
                after = Position(last.ledger, last.entry + 1)
                if after > sub.mark_delete:
                    self._set_read_position(number, after)
            if read.failed and not read.requests:
                del sub.reads[kind]
                self._discard(read)
                if read.cancelled:
                    self._rewind(number)

    def _discard(self, read: DispatcherRead) -> None:
        for entry in read.entries:
            self._cache.discard(entry.copy)

    def dispatch(self, subscription: int, kind: Kind) -> Dispatched | Refused:
        """Dispatches a complete read: each entry is sent, put into the replay queue, or skipped if it is acknowledged.

        All entries are discarded if the read was cancelled, or if there is no consumer. Cost for each entry as
        `_receiver`, and as `ReplayQueue.add` or `remove`.
        """
        sub = self._subscriptions[subscription]
        read = sub.reads.get(kind)
        if read is None or read.requests:
            return Refused("not_enabled", "no read is complete")
        del sub.reads[kind]
        read.entries.sort()
        if read.cancelled or not sub.consumers:
            self._discard(read)
            self._rewind(subscription)
            return Dispatched((), (), (), tuple([entry.position for entry in read.entries]))
        consumers = sub.consumers_by_number()
        sent: list[tuple[Position, int]] = []
        replayed: list[Position] = []
        skipped: list[Position] = []
        for entry in read.entries:
            position = entry.position
            if sub.is_acked(position):
                skipped.append(position)
                sub.replay.remove(position)
                self._cache.release(entry.copy)
                continue
            connected = self._receiver(sub, consumers, position)
            if connected is None:
                replayed.append(position)
                self._cache.replay(entry.copy)
                self._cache.release(entry.copy)
                sub.replay.add(position)
                continue
            sent.append((position, connected.number))
            connected.permits -= 1
            sub.hold(connected, position)
            sub.replay.remove(position)
            sub.sent.append(entry)
        return Dispatched(tuple(sent), tuple(replayed), tuple(skipped), ())

    def _receiver(
        self, sub: LiveSubscription, consumers: list[ConnectedConsumer], position: Position
    ) -> ConnectedConsumer | None:
        """Returns the consumer that can take an entry now, or None. Shared: O(consumers); otherwise O(1)."""
        if sub.type == "failover":
            return consumers[0]
        if sub.type == "shared":
            return next((connected for connected in consumers if connected.permits > 0), None)
        connected = consumers[self._key_of(position) % len(consumers)]
        blocked = sub.replay.has_earlier(position) or sub.is_held_elsewhere(connected, position)
        return connected if connected.permits > 0 and not blocked else None

    def release(self, subscription: int) -> Position | Refused:
        """Releases the oldest sent entry, which was written to the connection. O(sent entries) in memory moves."""
        sent = self._subscriptions[subscription].sent
        if not sent:
            return Refused("not_enabled", "no entry is being sent")
        entry = sent.pop(0)
        self._cache.release(entry.copy)
        return entry.position

    # ---- acknowledgements

    def acknowledge(self, subscription: int, position: Position) -> Refused | None:
        """Acknowledges an entry. O(consumers), and `_set_mark_delete`."""
        sub = self._subscriptions[subscription]
        holder = next((connected for connected in sub.consumers.values() if position in connected.pending), None)
        if holder is not None:
            sub.drop(holder, position)
        elif position not in sub.replay or sub.is_acked(position):
            return Refused("illegal_argument", "no consumer holds the entry")
        sub.acked.add(position)
        self._set_mark_delete(subscription, sub.mark_delete)
        return None

    def mark_delete(self, subscription: int, position: Position) -> Refused | None:
        """Acknowledges all entries up to a position. Cost as `_set_mark_delete`."""
        if position <= self._subscriptions[subscription].mark_delete or not self._has(position):
            return Refused("illegal_argument", "the position is acknowledged, or not in the log")
        self._set_mark_delete(subscription, position)
        return None

    def seek(self, subscription: int, position: Position) -> Refused | None:
        """Disconnects all consumers and moves the cursor. Cost as `disconnect` for each consumer."""
        if not self._has(position) and position != (self._last, self._ledgers[self._last]):
            return Refused("illegal_argument", "the position is not in the log, nor directly after it")
        sub = self._subscriptions[subscription]
        for consumer in sorted(sub.consumers):
            self.disconnect(subscription, consumer)
        was = self._tracked(sub)
        sub.mark_delete, sub.read_position = Position(position.ledger, position.entry - 1), position
        sub.acked = set()
        self._cursor_moved(subscription, was)
        return None

    # ---- periodic tasks

    def _backlog(self, sub: LiveSubscription) -> int:
        """Returns the number of unacknowledged entries to read. O(ledgers + individually deleted entries)."""
        ledger, entry = sub.read_position
        # `before` is the number of entries of the ledger that are before the read position.
        before = min(entry, self._ledgers[ledger]) if ledger in self._ledgers else 0
        ahead = sum([entries for number, entries in self._ledgers.items() if number >= ledger]) - before
        return ahead - len([p for p in sub.acked if p >= sub.read_position])

    def check_backlogged_cursors(self) -> Refused | None:
        """Activates cursors with consumers and a small backlog, deactivates all others. `_backlog` for each cursor."""
        if self.cfg.counts_reads:
            return Refused("unsupported", "a cursor is active while it has consumers")
        for number, sub in enumerate(self._subscriptions):
            if sub.consumers and self._backlog(sub) < self.cfg.backlogged_threshold:
                self._activate(number)
            else:
                self._deactivate(number)
        return None

    def check_cursors_to_cache_entries(self) -> Refused | None:
        """Sets `caches_reads` of each subscription, unless `min_backlog_cursors` is 0.

        True if the subscription's backlog is large enough, and enough other subscriptions have a similar backlog.
        O(subscriptions^2), and `_backlog` for each subscription.
        """
        if self.cfg.counts_reads:
            return Refused("unsupported", "reads are cached by their expected read counts")
        if self.cfg.min_backlog_cursors:
            backlogs = [self._backlog(sub) for sub in self._subscriptions]
            for sub, own in zip(self._subscriptions, backlogs, strict=True):
                near = [n for n in backlogs if -self.cfg.max_backlog_between <= n - own <= self.cfg.max_backlog_between]
                # `>`, because `near` includes the subscription's own backlog
                sub.caches_reads = own >= self.cfg.min_backlog_entries and len(near) > self.cfg.min_backlog_cursors
        return None

    def do_cache_eviction(self) -> int:
        """Periodic eviction. Cost as `EntryCaches.do_cache_eviction`."""
        return self._cache.do_cache_eviction()

    def run_eviction_task(self) -> int | Refused:
        """Runs a queued eviction task. Cost as `EntryCaches.run_eviction_task`."""
        return self._cache.run_eviction_task()

    def advance(self, millis: int) -> None:
        self._cache.advance(millis * UNITS_PER_MS["ns"])
        self._active.advance(millis)

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = self._cache.check() + self._active.check()
        for number, sub in enumerate(self._subscriptions):
            if not sub.replay.keys_are_consistent():
                wrong.append(f"subscription {number}: the replay queue and its entries by key differ")
            held: dict[int, dict[int, int]] = {}
            for connected in sub.consumers.values():
                for position in connected.pending:
                    of_key = held.setdefault(self._key_of(position), {})
                    of_key[connected.number] = of_key.get(connected.number, 0) + 1
            if held != sub.holders:
                wrong.append(f"subscription {number}: the holders of keys are not those of the pending acks")
        waiting = {
            n: (i, k) for i, sub in enumerate(self._subscriptions) for k, r in sub.reads.items() for n in r.requests
        }
        if waiting != self._readers or waiting.keys() != self._cache.pending_requests():
            wrong.append("the readers of requests are not the outstanding reads")
        if self._last != max(self._ledgers):
            wrong.append("the ledger of the next entry is not the last ledger")
        return wrong

    def view(self) -> State:
        ledgers = tuple([Ledger(number, entries) for number, entries in self._ledgers.items()])
        return State(
            ledgers, self._cache.view(), self._active.view(), tuple([sub.view() for sub in self._subscriptions])
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> ManagedLedger:
        self = cls(cfg)
        self._ledgers = dict(state.ledgers)
        self._last = state.ledgers[-1].ledger
        cache = TopicCache.load(cache_config(cfg), state.caches)
        assert isinstance(cache, TopicCache)
        self._cache = cache
        self._cache.expected = self._expected_reads
        for ledger, entries in state.ledgers:
            for entry in range(entries):
                self._cache.store_entry(Position(ledger, entry), cfg.entry_bytes[entry % len(cfg.entry_bytes)])
        self._active = ActiveCursors.load(self._active.cfg, state.active)
        for number, (own, sub) in enumerate(zip(self._subscriptions, state.subscriptions, strict=True)):
            own.load(sub)
            self._readers |= dict.fromkeys(sub.normal_read.requests if sub.normal_read else (), (number, "normal"))
            self._readers |= dict.fromkeys(sub.replay_read.requests if sub.replay_read else (), (number, "replay"))
        return self
