"""A discrete event simulation of topics, dispatchers and consumers around the caches of one or more brokers.

Time is an integer of microseconds; events at the same time happen in the order in which they were scheduled. A plan, a
seed, a policy, a cache size and `waits` determine every number.

    dispatcher   a subscription has one, with at most one outstanding read, of min(permits, batch) entries or all that
                 follow if there are fewer; reads entries of the replay queue first, each by a single read. The reads
                 of a scripted subscription are commands, and several can be outstanding
    delivery     is `latency_us` after the read, for hit and miss. So all policies see the same stream, and the offline
                 optimum is valid. With `waits`, a hit takes `hit_us`, and a miss ends with its last storage read
    storage      answers a storage read `latency_us` after its beginning, to all requests that joined it
    consumer     has a receiver queue, and returns permits when half of the queue is consumed; needs time for each
                 message; sends acks after the ack group time. Acks advance the mark-delete position
    Key_Shared   a key belongs to one consumer. An entry is added to the replay queue if its consumer has no permits, or
                 if an earlier entry of its key is in the replay queue
    Shared       consumers with permits take turns. The unacknowledged messages of a consumer that leaves are added to
                 the replay queue
    restart      the broker's cache is lost, and its topics move to another broker. Cursors continue after their
                 mark-delete positions when their consumers are connected again
    rollover     if `ledger_entries` is not 0, a ledger is closed when it has this number of entries, or when its topic
                 moves. No read goes beyond a ledger. A closed ledger and its cached entries are deleted when all
                 subscriptions have acknowledged it

Not modelled: redelivery after timeouts, negative acks, batches of messages, several reads of a dispatcher in flight,
rollover by time or size, retention, deleted topics.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.workloads.caches.cache import Cache, Environment, Log
from fuzz.workloads.caches.optimum import Optimum
from fuzz.workloads.caches.plan import Plan
from fuzz.workloads.caches.running import Batch, Client, Cursor, Totals

#: Period of the caches' eviction task.
TICK_US = 10_000
#: Approximate number of samples of the bytes of dead entries in a run. No connected cursor will read a dead entry.
SAMPLES = 40


class Simulation:
    """A run of a plan under a policy."""

    def __init__(
        self, plan: Plan, make: Callable[[Environment], Cache], max_bytes: int, seed: int, waits: bool
    ) -> None:
        """`make` returns a new cache of a broker. `waits`: whether readers wait for misses."""
        self.plan, self.make, self.waits = plan, make, waits
        self.rng = Random(seed)  # noqa: S311
        self.now = 0
        self.logs = [Log() for _ in range(plan.topics)]
        self.env = Environment(self.logs, max_bytes, plan.scale, plan.latency_us, plan.ttl_us, plan.check_us)
        self.broker = list(plan.brokers) or [0] * plan.topics  # the broker of each topic
        self.caches = [make(self.env) for _ in range(max(self.broker) + 1)]  # the cache of each broker
        self.lost: list[Cache] = []  # the caches that were lost in restarts
        self.down_until = [0] * plan.topics  # for each topic, the time at which it has an owner again
        self.cursors = [Cursor(i, s, self.logs[s.topic]) for i, s in enumerate(plan.subscriptions)]
        self.of_topic: list[list[Cursor]] = [[] for _ in range(plan.topics)]
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._events = 0
        self._open: dict[tuple[int, int], Batch] = {}  # by cache and request
        self.reads = self.storage_reads = self.storage_entries = self.consumed = 0
        self.sent = 0  # sent messages, each counted once for each subscription
        self.peak = self._byte_ticks = self._ticks = 0
        self._dead: list[int] = []  # samples of the bytes of dead entries
        self._adds = iter(plan.adds)
        self._late_us = 0  # time for which producers have paused so far

    # ---- events

    def at(self, time_us: int, act: Callable[..., None], *arguments: Any) -> None:
        """Schedules the call `act(*arguments)`."""
        self._events += 1
        heapq.heappush(self._heap, (time_us, self._events, act, arguments))

    def run(self) -> Totals:
        """Runs the plan to its end. Returns the totals. A simulation can run once."""
        for topic, size in self.plan.backlog:
            self._append(topic, size, 0)
        for cursor in self.cursors:
            start = cursor.plan.start
            end = len(self.logs[cursor.plan.topic].sizes)
            cursor.position = cursor.first_unacked = end if start is None else min(start, end)
            self.of_topic[cursor.plan.topic].append(cursor)
            if cursor.plan.kind != "scripted":
                self.at(cursor.plan.connect_us, self.connect, cursor.number)
        for command in self.plan.commands:
            self.at(command.at_us, getattr(self, command.name), *command.arguments)
        self._next_add()
        self.at(TICK_US, self._tick)
        heap, end = self._heap, self.plan.end_us
        while heap and heap[0][0] <= end:
            self.now, _, act, arguments = heapq.heappop(heap)
            act(*arguments)
        return self._totals()

    def cache_of(self, topic: int) -> Cache:
        """Returns the cache of a topic's broker, set to the current time."""
        cache = self.caches[self.broker[topic]]
        cache.now_us = self.now
        return cache

    def _tick(self) -> None:
        total = 0
        for cache in self.caches:
            cache.now_us = self.now
            cache.tick()
            total += cache.size()
        self._byte_ticks += total
        self._ticks += 1
        if self._ticks % max(1, self.plan.end_us // TICK_US // SAMPLES) == 0:
            self._sample()
        self.at(self.now + TICK_US, self._tick)

    def _sample(self) -> None:
        """Samples the bytes of dead entries, if the caches can list their entries."""
        dead = 0
        for number, cache in enumerate(self.caches):
            contents = cache.contents()
            if contents is None:
                return
            first = {t: self._first_needed(t) for t in range(self.plan.topics) if self.broker[t] == number}
            replays = {(t, e) for t in first for c in self.of_topic[t] for e in c.replay}
            for topic, entry, size in contents:
                if (topic not in first or entry < first[topic]) and (topic, entry) not in replays:
                    dead += size
        self._dead.append(dead)

    def _first_needed(self, topic: int) -> int:
        """Returns the smallest read position of a connected cursor; the end of the topic if none is connected."""
        return min([c.position for c in self.of_topic[topic] if c.connected], default=len(self.logs[topic].sizes))

    # ---- producers

    def _next_add(self) -> None:
        add = next(self._adds, None)
        if add is not None:
            self.at(add.at_us + self._late_us, self._add, add.topic, add.size, add.key)

    def _add(self, topic: int, size: int, key: int) -> None:
        limit = self.plan.outstanding
        if limit is not None and self.sent - self.consumed >= limit:
            self._late_us += self.plan.stop_us
            self.at(self.now + self.plan.stop_us, self._add, topic, size, key)
            return
        self._next_add()
        self.sent += len(self.of_topic[topic])
        self.store(topic, size, key)

    def store(self, topic: int, size: int, key: int) -> None:
        """Adds an entry, now or when the topic has an owner."""
        if self.now < self.down_until[topic]:
            self.at(self.down_until[topic], self.store, topic, size, key)
            return
        entry = self._append(topic, size, key)
        cache = self.cache_of(topic)
        cache.add(topic, entry)
        self.peak = max(self.peak, cache.size())
        for cursor in self.of_topic[topic]:
            if cursor.waiting:
                cursor.waiting = False
                self._pump(cursor)

    def _append(self, topic: int, size: int, key: int) -> int:
        log = self.logs[topic]
        if 0 < self.plan.ledger_entries <= len(log.sizes) - log.ledgers[-1]:
            log.roll_over()
        log.sizes.append(size)
        log.added_us.append(self.now)
        log.keys.append(key)
        return len(log.sizes) - 1

    def _trim(self, topic: int) -> None:
        """Deletes the closed ledgers whose entries all subscriptions have acknowledged."""
        ledgers = self.logs[topic].ledgers
        if len(ledgers) > 1 and ledgers[1] <= (end := min(c.first_unacked for c in self.of_topic[topic])):
            del ledgers[: bisect_right(ledgers, end) - 1]
            self.cache_of(topic).trim(topic, ledgers[0])

    # ---- commands

    def connect(self, number: int) -> None:
        """Connects all consumers of a subscription that is not connected, now or when the topic has an owner."""
        cursor = self.cursors[number]
        topic = cursor.plan.topic
        if self.now < self.down_until[topic]:
            self.at(self.down_until[topic], self.connect, number)
        elif not cursor.connected:
            cursor.connected = True
            for client in cursor.clients:
                client.permits, client.since_flow, client.free_us = client.plan.queue, 0, self.now
            self.cache_of(topic).connect(topic, number, cursor.position, again=cursor.epoch > 0)
            self._pump(cursor)

    def disconnect(self, number: int) -> None:
        """Disconnects all consumers of a subscription. Unacknowledged messages are delivered again later."""
        cursor = self.cursors[number]
        if cursor.connected:
            self._drop(cursor)
            self.cache_of(cursor.plan.topic).disconnect(cursor.plan.topic, number)

    def _drop(self, cursor: Cursor) -> None:
        cursor.connected = cursor.reading = cursor.waiting = False
        cursor.epoch += 1
        cursor.position = cursor.first_unacked
        cursor.requested = 0
        cursor.clear_replay()
        for client in cursor.clients:
            self._drop_client(client)

    def _drop_client(self, client: Client) -> None:
        client.epoch += 1
        client.permits = client.since_flow = 0
        client.unacked.clear()

    def leave(self, number: int, client: int) -> None:
        """Disconnects a consumer of a Shared subscription, and adds its unacknowledged messages to the replay queue."""
        cursor = self.cursors[number]
        for entry in sorted(cursor.clients[client].unacked):
            cursor.put_into_replay(entry)
        self._drop_client(cursor.clients[client])
        self._pump(cursor)

    def join(self, number: int, client: int) -> None:
        """Connects the consumer, or another one in its place."""
        cursor = self.cursors[number]
        cursor.clients[client].permits, cursor.clients[client].free_us = cursor.clients[client].plan.queue, self.now
        self._pump(cursor)

    def seek(self, number: int, entry: int) -> None:
        """Resets a cursor to an entry, at most the end of the topic. All consumers disconnect and connect again."""
        cursor = self.cursors[number]
        self.disconnect(number)
        cursor.position = cursor.first_unacked = min(entry, len(self.logs[cursor.plan.topic].sizes))
        cursor.acked.clear()
        self.connect(number)

    def restart(self, broker: int) -> None:
        """Restarts a broker with an empty cache. Its topics move, and their consumers disconnect and connect again."""
        others = [b for b in range(len(self.caches)) if b != broker] or [broker]
        self.lost.append(self.caches[broker])
        self.caches[broker] = self.make(self.env)
        self.caches[broker].now_us = self.now
        least, most = self.plan.reconnect_us
        for topic, owner in enumerate(self.broker):
            if owner == broker:
                self.broker[topic] = self.rng.choice(others)
                if self.plan.ledger_entries:
                    self.logs[topic].roll_over()  # the new owner opens a ledger
                self.down_until[topic] = self.now + least
                for cursor in self.of_topic[topic]:
                    self._drop(cursor)
                    self.at(self.now + self.rng.randint(least, most), self.connect, cursor.number)

    def stall(self, number: int, client: int, micros: int) -> None:
        """Makes a consumer take no message for `micros` microseconds more."""
        each = self.cursors[number].clients[client]
        each.free_us = max(each.free_us, self.now) + micros

    def read(self, number: int, entries: int) -> None:
        """Makes a scripted subscription read its next entries, fewer at the end of the topic; none if not connected."""
        cursor = self.cursors[number]
        first = max(cursor.position, cursor.requested)
        cursor.requested = min(first + entries, len(self.logs[cursor.plan.topic].sizes))
        if cursor.connected and cursor.requested > first:
            self._read(cursor, list(range(first, cursor.requested)), False)

    def reread(self, number: int, entry: int) -> None:
        """Makes a scripted subscription read one entry again, if it is connected and the entry exists."""
        cursor = self.cursors[number]
        if cursor.connected and entry < len(self.logs[cursor.plan.topic].sizes):
            self._read(cursor, [entry], True)

    def ack(self, number: int, entry: int) -> None:
        """Makes a scripted subscription acknowledge all entries before the given one."""
        cursor = self.cursors[number]
        cursor.first_unacked = max(cursor.first_unacked, entry)
        self.cache_of(cursor.plan.topic).acked(cursor.plan.topic, number, cursor.first_unacked)

    # ---- dispatchers

    def _pump(self, cursor: Cursor) -> None:
        """Starts the next read of a subscription, if it is connected, has permits, and has an entry to read."""
        if cursor.reading or not cursor.connected or cursor.plan.kind == "scripted":
            return
        permits = sum([client.permits for client in cursor.clients if client.permits > 0])
        wanted = min(permits, self.plan.batch)
        if wanted <= 0:
            return
        if cursor.replay:
            ready = cursor.replayable(wanted)
            if ready:
                self._read(cursor, ready, True)
                return
            if len(cursor.replay) >= self.plan.look_ahead(len(cursor.clients)):
                return
        log, delay = self.logs[cursor.plan.topic], cursor.plan.delay_us
        first = cursor.position
        last = min(first + wanted, len(log.sizes), log.end_of_ledger(first))
        if delay:
            while last > first and log.added_us[last - 1] + delay > self.now:
                last -= 1
            if last <= first < len(log.sizes):
                self.at(log.added_us[first] + delay, self._pump, cursor)
                return
        if last <= first:
            cursor.waiting = True
        else:
            self._read(cursor, list(range(first, last)), False)

    def _read(self, cursor: Cursor, entries: list[int], replayed: bool) -> None:
        cursor.reading = True
        topic = cursor.plan.topic
        cache = self.cache_of(topic)
        batch = Batch(cursor, cache, entries, replayed)
        self.reads += len(entries)
        for first, last in [(e, e) for e in entries] if replayed else [(entries[0], entries[-1])]:
            reading = cache.read(topic, cursor.number, first, last, replayed)
            self._open[id(cache), reading.request] = batch
            batch.awaited += 1
            for storage_read, count in reading.issued:
                self.storage_reads += 1
                self.storage_entries += count
                self.at(self.now + self.plan.latency_us, self._complete, cache, storage_read)
        if self.waits:
            self._collect(cache, self.plan.hit_us)
        else:
            self._collect(cache, None)
            self.at(self.now + self.plan.latency_us, self._deliver, batch)

    def _complete(self, cache: Cache, storage_read: int) -> None:
        cache.now_us = self.now
        cache.complete(storage_read)
        if cache in self.caches:
            self.peak = max(self.peak, cache.size())
        self._collect(cache, 0 if self.waits else None)

    def _collect(self, cache: Cache, delay_us: int | None) -> None:
        """Assigns completed requests to their reads. Delivers a completed read after the delay, if there is a delay."""
        for request, copies in cache.answered:
            batch = self._open.pop((id(cache), request))
            batch.copies[request] = copies
            batch.awaited -= 1
            if delay_us is not None and not batch.awaited:
                self.at(self.now + delay_us, self._deliver, batch)
        cache.answered.clear()

    def _deliver(self, batch: Batch) -> None:
        cursor, cache = batch.cursor, batch.cache
        cache.now_us = self.now
        # 0 for each entry if the policy has no copies
        copies = [copy for request in sorted(batch.copies) for copy in batch.copies[request]] or [0] * len(
            batch.entries
        )
        if batch.epoch != cursor.epoch:
            for copy in filter(None, copies):
                cache.release(copy)
            return
        topic = cursor.plan.topic
        cursor.reading = False
        if not batch.replayed:
            cursor.position = max(cursor.position, batch.entries[-1] + 1)
            cache.moved(topic, cursor.number, cursor.position)
        given: dict[int, list[int]] = {}
        for entry, copy in zip(batch.entries, copies, strict=True):
            if batch.replayed and cursor.plan.kind != "scripted":
                cursor.take_from_replay(entry)
            client = None if entry in cursor.acked else cursor.consumer_for(entry)
            if client is not None:
                client.permits -= 1
                client.unacked.add(entry)
                given.setdefault(client.number, []).append(entry)
            elif entry not in cursor.acked and cursor.plan.kind != "scripted":
                if copy:
                    cache.replay(copy)
                cursor.put_into_replay(entry)
            if copy:
                cache.release(copy)
        for number, entries in given.items():
            self._consume(cursor, cursor.clients[number], entries)
        if cursor.plan.kind == "scripted":
            self.consumed += len(batch.entries)
        self._pump(cursor)

    # ---- consumers

    def _consume(self, cursor: Cursor, client: Client, entries: list[int]) -> None:
        plan = client.plan
        if not plan.think_us and not plan.pause_share:
            self.at(max(self.now, client.free_us), self._consumed, cursor, client, entries, client.epoch)
            return
        for entry in entries:
            client.free_us = max(client.free_us, self.now) + plan.think_us
            if plan.pause_share and self.rng.random() < plan.pause_share:
                client.free_us += self.rng.randint(1, plan.pause_us)
            self.at(client.free_us, self._consumed, cursor, client, [entry], client.epoch)

    def _consumed(self, cursor: Cursor, client: Client, entries: list[int], epoch: int) -> None:
        if epoch != client.epoch:
            return
        self.consumed += len(entries)
        client.since_flow += len(entries)
        self.at(self.now + self.plan.ack_us, self._acked, cursor, client, entries, epoch)
        if client.since_flow >= max(1, client.plan.queue // 2):
            client.permits += client.since_flow
            client.since_flow = 0
            self._pump(cursor)

    def _acked(self, cursor: Cursor, client: Client, entries: list[int], epoch: int) -> None:
        if epoch != client.epoch:
            return
        client.unacked.difference_update(entries)
        cursor.acked.update(entries)
        before = cursor.first_unacked
        while cursor.first_unacked in cursor.acked:
            cursor.acked.discard(cursor.first_unacked)
            cursor.first_unacked += 1
        if cursor.first_unacked != before:
            self.cache_of(cursor.plan.topic).acked(cursor.plan.topic, cursor.number, cursor.first_unacked)
            self._trim(cursor.plan.topic)

    # ---- the result

    def _totals(self) -> Totals:
        caches = [*self.lost, *self.caches]
        ticks = max(1, self._ticks)
        if all(isinstance(cache, Optimum) for cache in caches):
            solved = [cache.solve() for cache in caches if isinstance(cache, Optimum)]
            return Totals(
                self.reads,
                sum([s.storage_reads for s in solved]),
                sum([s.storage_entries for s in solved]),
                self.consumed,
                max(s.bytes_peak for s in solved),
                sum([s.byte_us for s in solved]) // max(1, self.plan.end_us),
                0,
                0,
                all(s.is_exact for s in solved),
            )
        dead = sum(self._dead) // len(self._dead) if self._dead else None
        return Totals(
            self.reads,
            self.storage_reads,
            self.storage_entries,
            self.consumed,
            self.peak,
            self._byte_ticks // ticks,
            dead,
            sum([cache.visits() for cache in caches]),
            True,
        )
