"""A managed ledger with its dispatchers, indexed.

Implements the `reference` rules and all settings of `model/managed_ledger`:

    cache        `impl/entry_cache`, with a handler for each entry that all its copies share
    cursors      `impl/active_cursors`, an order-statistics container
    consumers    for each consumer the entries that it holds, and their number by key
    replay       a sorted list, and one for each key
    readers      for each request to the cache the subscription, and the kind of read, that made it

Complexities count dictionary operations as one.
"""

from __future__ import annotations

from impl.active_cursors import ActiveCursors
from impl.managed_ledger.parts import Client, Reading, Topic, TopicCache, cache_config
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
        self._ledgers: dict[int, int] = {0: 0}  # ledger -> entries, in order
        self._last = 0
        self._cache = TopicCache(cache_config(cfg))
        self._cache.expected = self._expected_reads
        grace_ms = cfg.grace_ms if cfg.counts_reads else 0
        self._active = ActiveCursors(ActiveConfig(cursors=cfg.subscriptions, grace_ms=grace_ms))
        types = [cfg.types[i % len(cfg.types)] for i in range(cfg.subscriptions)]
        self._topics = [Topic(kind, self._key_of) for kind in types]
        self._by_mark = cfg.invalidates_by_mark_delete and not cfg.counts_reads
        self._readers: dict[int, tuple[int, Kind]] = {}

    # ---- the log

    def _key_of(self, position: Position) -> int:
        return self.cfg.entry_keys[position.entry % len(self.cfg.entry_keys)]

    def _has(self, position: Position) -> bool:
        return 0 <= position.entry < self._ledgers.get(position.ledger, 0)

    def _valid_from(self, position: Position) -> Position:
        """Returns the first entry at a position or after it, or the next entry. O(ledgers) past the end of one."""
        ledger, entry = position
        if ledger == self._last or entry < self._ledgers.get(ledger, 0):
            return position
        return Position(next(each for each in self._ledgers if each > ledger), 0)

    def _after(self, position: Position) -> Position:
        return self._valid_from(Position(position.ledger, position.entry + 1))

    def add_entry(self) -> Added:
        """Adds an entry, and caches it while a cursor is active or in the grace period. O(1), and an eviction."""
        position = Position(self._last, self._ledgers[self._last])
        self._ledgers[self._last] += 1
        size = self.cfg.entry_bytes[position.entry % len(self.cfg.entry_bytes)]
        self._cache.store(position, size)
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
        """Deletes the closed ledgers that all cursors have passed. O(subscriptions + ledgers)."""
        slowest = min(topic.mark_delete for topic in self._topics)
        gone = [n for n, entries in self._ledgers.items() if n != self._last and Position(n, entries - 1) <= slowest]
        for ledger in gone:
            self._cache.delete(ledger)
            del self._ledgers[ledger]
        return len(gone)

    # ---- cursors

    def _tracked(self, topic: Topic) -> Position:
        return topic.mark_delete if self._by_mark else topic.read_position

    def _cursor_moved(self, name: int, was: Position) -> None:
        """Updates a cursor's position in the container if it changed. O(log subscriptions), and invalidation."""
        now = self._tracked(self._topics[name])
        if now == was:
            return
        if self.cfg.counts_reads:
            self._active.update_cursor(name, now)
            return
        slowest = self._active.cursor_updated(name, now)
        if isinstance(slowest, Slowest) and slowest.previous != slowest.new:
            self._invalidate()

    def _invalidate(self) -> None:
        slowest = self._active.slowest_position()
        if slowest is None:
            self._cache.clear_cache(0)
        else:
            self._cache.invalidate_entries_before(0, slowest)

    def _activate(self, name: int) -> None:
        if self._active.get_cursor(name) is None:
            self._active.add_cursor(name, self._tracked(self._topics[name]), True)

    def _deactivate(self, name: int) -> None:
        if self._active.remove_cursor(name) and not self.cfg.counts_reads:
            self._invalidate()

    def _set_read_position(self, name: int, position: Position) -> None:
        topic = self._topics[name]
        was, topic.read_position = self._tracked(topic), position
        self._cursor_moved(name, was)

    def _rewind(self, name: int) -> None:
        self._set_read_position(name, self._after(self._topics[name].mark_delete))

    def _set_mark_delete(self, name: int, mark: Position) -> None:
        """Moves the mark-delete position, also over the acknowledged entries after it. O(tracked entries)."""
        topic = self._topics[name]
        was = self._tracked(topic)
        while (after := self._after(mark)) in topic.acked:
            mark = after
        if mark == topic.mark_delete:
            return
        topic.mark_delete = mark
        topic.acked = {p for p in topic.acked if p > mark}
        for client in topic.clients.values():
            for position in [p for p in client.pending if p <= mark]:
                topic.drop(client, position)
        while topic.replay.positions and topic.replay.positions[0] <= mark:
            topic.replay.remove(topic.replay.positions[0])
        if topic.read_position <= mark:
            topic.read_position = self._after(mark)
        self._cursor_moved(name, was)

    # ---- consumers

    def connect(self, subscription: int, consumer: int) -> Refused | None:
        """Adds a consumer. O(entries that consumers hold)."""
        topic = self._topics[subscription]
        if consumer in topic.clients:
            return Refused("illegal_state", "the consumer is connected")
        takes_over = topic.kind == "failover" and consumer < min(topic.clients, default=consumer)
        is_first = not topic.clients
        topic.clients[consumer] = Client(consumer)
        if is_first or takes_over:
            self._restart(subscription)
        if self.cfg.counts_reads:
            self._activate(subscription)
        return None

    def _restart(self, name: int) -> None:
        """Rewinds the cursor: now, or when its reads are complete. O(entries that consumers hold)."""
        topic = self._topics[name]
        for client in topic.clients.values():
            topic.drop_all(client)
        for reading in topic.reads.values():
            reading.cancelled = True
        if not topic.reads:
            self._rewind(name)

    def disconnect(self, subscription: int, consumer: int) -> Refused | None:
        """Removes a consumer. O(entries that it holds)."""
        topic = self._topics[subscription]
        client = topic.clients.get(consumer)
        if client is None:
            return Refused("illegal_state", "the consumer is not connected")
        was_first = consumer == min(topic.clients)
        held = topic.drop_all(client)
        del topic.clients[consumer]
        if not topic.clients:
            for position in list(topic.replay.positions):
                topic.replay.remove(position)
            for reading in topic.reads.values():
                reading.cancelled = True
            self._deactivate(subscription)
        elif topic.kind != "failover":
            topic.put_into_replay(held)
        elif was_first:
            self._restart(subscription)
        return None

    def flow(self, subscription: int, consumer: int, permits: int) -> Refused | None:
        client = self._topics[subscription].clients.get(consumer)
        if client is None:
            return Refused("illegal_state", "the consumer is not connected")
        client.permits += permits
        return None

    def redeliver(self, subscription: int, consumer: int) -> Refused | None:
        """Puts the entries that a consumer holds into the replay queue. O(entries that it holds)."""
        topic = self._topics[subscription]
        client = topic.clients.get(consumer)
        if client is None:
            return Refused("illegal_state", "the consumer is not connected")
        if topic.kind != "failover":
            topic.put_into_replay(topic.drop_all(client))
        elif consumer == min(topic.clients):
            self._restart(subscription)
        return None

    # ---- reads

    def read_more_entries(self, subscription: int) -> Started | Refused:
        """Starts a replay read or a normal read. O(replay queue, and the entries of the read)."""
        topic = self._topics[subscription]
        clients = topic.order()[:1] if topic.kind == "failover" else list(topic.clients.values())
        most = min(sum([client.permits for client in clients]), self.cfg.read_batch)
        if most <= 0 or "replay" in topic.reads:
            return Refused("not_enabled", "no permits, or a replay read is outstanding")
        for position in [p for p in topic.replay.positions if p in topic.acked]:
            topic.replay.remove(position)
        positions = self._replay_now(topic, most)
        if positions:
            return self._start(subscription, "replay", positions, [(p, p) for p in positions])
        if "normal" in topic.reads:
            return Started("normal", (), ())
        if topic.kind == "key_shared":
            most = min(most, self.cfg.look_ahead - len(topic.replay))
        first = self._valid_from(topic.read_position)
        end = min(first.entry + most, self._ledgers[first.ledger])
        positions = [Position(first.ledger, entry) for entry in range(first.entry, end)]
        if not positions:
            return Started("normal", (), ())
        self._set_read_position(subscription, first)
        return self._start(subscription, "normal", positions, [(positions[0], positions[-1])])

    def _replay_now(self, topic: Topic, most: int) -> list[Position]:
        if topic.kind != "key_shared":
            return topic.replay.positions[:most]
        clients = topic.order()
        permits = {client.number: client.permits for client in clients}
        taken: list[Position] = []
        for position in topic.replay.positions:
            client = clients[self._key_of(position) % len(clients)]
            if permits[client.number] > 0 and not topic.is_held_elsewhere(client, position):
                permits[client.number] -= 1
                taken.append(position)
                if len(taken) == most:
                    break
        return taken

    def _start(
        self, name: int, kind: Kind, positions: list[Position], asked: list[tuple[Position, Position]]
    ) -> Started:
        reading = self._topics[name].reads[kind] = Reading()
        numbers = range(self._cache.next_request, self._cache.next_request + len(asked))
        reading.requests.update(numbers)
        self._readers.update(dict.fromkeys(numbers, (name, kind)))
        issued: list[Issued] = []
        for low, high in asked:
            answer = self._cache.read(0, low.ledger, low.entry, high.entry, 0)
            assert isinstance(answer, CacheReading)
            issued.extend(answer.issued)
            self._take(answer.answered)
        return Started(kind, tuple(positions), tuple(issued))

    def _expected_reads(self, request: int) -> int:
        """Returns the expected read count of the entries that a request reads from storage. O(log subscriptions)."""
        name, kind = self._readers[request]
        if kind == "replay":
            return 0
        if self.cfg.counts_reads:
            return self._active.number_at_same_position_or_before(name)
        return int(self._topics[name].caches_reads)

    def complete_storage_read(self, storage_read: int, success: bool) -> CacheReading | Refused:
        """Storage completes or fails a read. Cost as `EntryCaches.complete_storage_read`."""
        read = self._cache.outstanding(storage_read)
        has_ledger = read is not None and read.initiator.ledger in self._ledgers
        answer = self._cache.complete_storage_read(storage_read, success and has_ledger)
        if isinstance(answer, CacheReading):
            self._take(answer.answered)
        return answer

    def _take(self, answers: tuple[Answered, ...]) -> None:
        """Takes the answers of complete and failed requests to the cache. O(their entries)."""
        for answer in answers:
            name, kind = self._readers.pop(answer.request)
            topic = self._topics[name]
            reading = topic.reads[kind]
            reading.requests.discard(answer.request)
            reading.failed |= not answer.ok
            reading.entries += [ReadEntry(each.position, each.copy) for each in answer.entries]
            if kind == "normal" and answer.entries:
                last = answer.entries[-1].position
                after = Position(last.ledger, last.entry + 1)
                if after > topic.mark_delete:
                    self._set_read_position(name, after)
            if reading.failed and not reading.requests:
                del topic.reads[kind]
                self._discard(reading)
                if reading.cancelled:
                    self._rewind(name)

    def _discard(self, reading: Reading) -> None:
        for entry in reading.entries:
            self._cache.discard(entry.copy)

    def dispatch(self, subscription: int, kind: Kind) -> Dispatched | Refused:
        """Sends the entries of a complete read, or puts them back for replay. O(its entries log consumers)."""
        topic = self._topics[subscription]
        reading = topic.reads.get(kind)
        if reading is None or reading.requests:
            return Refused("not_enabled", "no read is complete")
        del topic.reads[kind]
        reading.entries.sort()
        if reading.cancelled or not topic.clients:
            self._discard(reading)
            self._rewind(subscription)
            return Dispatched((), (), (), tuple([entry.position for entry in reading.entries]))
        clients = topic.order()
        sent: list[tuple[Position, int]] = []
        replayed: list[Position] = []
        skipped: list[Position] = []
        for entry in reading.entries:
            position = entry.position
            if topic.is_acked(position):
                skipped.append(position)
                topic.replay.remove(position)
                self._cache.release(entry.copy)
                continue
            client = self._receiver(topic, clients, position)
            if client is None:
                replayed.append(position)
                self._cache.replay(entry.copy)
                self._cache.release(entry.copy)
                topic.replay.add(position)
                continue
            sent.append((position, client.number))
            client.permits -= 1
            topic.hold(client, position)
            topic.replay.remove(position)
            topic.sent.append(entry)
        return Dispatched(tuple(sent), tuple(replayed), tuple(skipped), ())

    def _receiver(self, topic: Topic, clients: list[Client], position: Position) -> Client | None:
        """Returns the consumer that can take an entry now. O(consumers) for a Shared subscription, else O(1)."""
        if topic.kind == "failover":
            return clients[0]
        if topic.kind == "shared":
            return next((client for client in clients if client.permits > 0), None)
        client = clients[self._key_of(position) % len(clients)]
        blocked = topic.replay.has_earlier(position) or topic.is_held_elsewhere(client, position)
        return client if client.permits > 0 and not blocked else None

    def release(self, subscription: int) -> Position | Refused:
        """Completes the write of the oldest sent entry. O(n) in memory moves."""
        sent = self._topics[subscription].sent
        if not sent:
            return Refused("not_enabled", "no entry is being sent")
        entry = sent.pop(0)
        self._cache.release(entry.copy)
        return entry.position

    # ---- acknowledgements

    def acknowledge(self, subscription: int, position: Position) -> Refused | None:
        """Acknowledges an entry. O(consumers + individually deleted entries)."""
        topic = self._topics[subscription]
        holder = next((client for client in topic.clients.values() if position in client.pending), None)
        if holder is not None:
            topic.drop(holder, position)
        elif position not in topic.replay or topic.is_acked(position):
            return Refused("illegal_argument", "no consumer holds the entry")
        topic.acked.add(position)
        self._set_mark_delete(subscription, topic.mark_delete)
        return None

    def mark_delete(self, subscription: int, position: Position) -> Refused | None:
        """Acknowledges all entries up to a position. O(entries that are tracked)."""
        if position <= self._topics[subscription].mark_delete or not self._has(position):
            return Refused("illegal_argument", "the position is acknowledged, or not in the log")
        self._set_mark_delete(subscription, position)
        return None

    def seek(self, subscription: int, position: Position) -> Refused | None:
        """Disconnects all consumers and moves the cursor. O(entries that they hold)."""
        if not self._has(position) and position != (self._last, self._ledgers[self._last]):
            return Refused("illegal_argument", "the position is not in the log, nor directly after it")
        topic = self._topics[subscription]
        for consumer in sorted(topic.clients):
            self.disconnect(subscription, consumer)
        was = self._tracked(topic)
        topic.mark_delete, topic.read_position = Position(position.ledger, position.entry - 1), position
        topic.acked = set()
        self._cursor_moved(subscription, was)
        return None

    # ---- periodic tasks

    def _backlog(self, topic: Topic) -> int:
        """Returns the number of unacknowledged entries to read. O(ledgers + individually deleted entries)."""
        ledger, entry = topic.read_position
        before = min(entry, self._ledgers[ledger]) if ledger in self._ledgers else 0
        ahead = sum([entries for number, entries in self._ledgers.items() if number >= ledger]) - before
        return ahead - len([p for p in topic.acked if p >= topic.read_position])

    def check_backlogged_cursors(self) -> Refused | None:
        """Activates cursors with consumers and a small backlog. O(subscriptions * ledgers)."""
        if self.cfg.counts_reads:
            return Refused("unsupported", "a cursor is active while it has consumers")
        for name, topic in enumerate(self._topics):
            if topic.clients and self._backlog(topic) < self.cfg.backlogged_threshold:
                self._activate(name)
            else:
                self._deactivate(name)
        return None

    def check_cursors_to_cache_entries(self) -> Refused | None:
        """Marks backlogged cursors with similar backlogs. O(subscriptions^2)."""
        if self.cfg.counts_reads:
            return Refused("unsupported", "reads are cached by their expected read counts")
        if self.cfg.min_backlog_cursors:
            backlogs = [self._backlog(topic) for topic in self._topics]
            for topic, own in zip(self._topics, backlogs, strict=True):
                near = [n for n in backlogs if -self.cfg.max_backlog_between <= n - own <= self.cfg.max_backlog_between]
                # `near` has the own backlog, which does not count
                topic.caches_reads = own >= self.cfg.min_backlog_entries and len(near) > self.cfg.min_backlog_cursors
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
        for name, topic in enumerate(self._topics):
            if not topic.replay.keys_are_consistent():
                wrong.append(f"subscription {name}: the replay queue and its entries by key differ")
            held: dict[int, dict[int, int]] = {}
            for client in topic.clients.values():
                for position in client.pending:
                    of_key = held.setdefault(self._key_of(position), {})
                    of_key[client.number] = of_key.get(client.number, 0) + 1
            if held != topic.holders:
                wrong.append(f"subscription {name}: the holders of keys are not those of the pending acks")
        waiting = {
            n: (i, k) for i, topic in enumerate(self._topics) for k, r in topic.reads.items() for n in r.requests
        }
        if waiting != self._readers or waiting.keys() != self._cache.pending_requests():
            wrong.append("the readers of requests are not the outstanding reads")
        if self._last != max(self._ledgers):
            wrong.append("entries are not added to the last ledger")
        return wrong

    def view(self) -> State:
        ledgers = tuple([Ledger(number, entries) for number, entries in self._ledgers.items()])
        return State(ledgers, self._cache.view(), self._active.view(), tuple([topic.view() for topic in self._topics]))

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
                self._cache.store(Position(ledger, entry), cfg.entry_bytes[entry % len(cfg.entry_bytes)])
        self._active = ActiveCursors.load(self._active.cfg, state.active)
        for name, (topic, sub) in enumerate(zip(self._topics, state.subscriptions, strict=True)):
            topic.load(sub)
            self._readers |= dict.fromkeys(sub.normal_read.requests if sub.normal_read else (), (name, "normal"))
            self._readers |= dict.fromkeys(sub.replay_read.requests if sub.replay_read else (), (name, "replay"))
        return self
