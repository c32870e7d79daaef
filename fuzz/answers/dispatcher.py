"""Checks the deliveries of our brokers against the models: what is delivered next, to whom, and for how many permits.

`managed_ledger` decides which entries are in the replay queue, which entry is read next, and which consumer gets that
entry. `client_session` decides how many permits a delivery costs. Two choices of the brokers are accepted as they are:
the consumer of a Shared subscription, if it has permits, and redelivery counts.

Entries are numbered from 0 and lie in one ledger here, because a dispatcher does not depend on the ledger of an entry.
A method that returns a text returns an empty text if the models agree with the brokers, and otherwise says what the
models do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from model.ack_set import mask_of
from model.client_session import state as session
from model.client_session.machine import client_session
from model.machine import Refused
from model.managed_ledger.cursors import individually_deleted, is_acknowledged, with_subscription
from model.managed_ledger.dispatcher import added_to_replay, with_consumer
from model.managed_ledger.machine import managed_ledger, reference
from model.managed_ledger.state import Started, Subscription
from model.positions import Position

_SHARED = 1


class Dispatcher:
    """A dispatcher. It reads one entry at a time, always from storage."""

    def __init__(self, sub_type: int, entries: int, first: int) -> None:
        """Creates the dispatcher of a subscription, whose cursor reads from entry `first` on.

        `sub_type` is Pulsar's `SubType` (1 is Shared), `entries` the topic's number of entries.
        """
        self.is_shared = sub_type == _SHARED
        types = ("shared",) if self.is_shared else ("failover",)
        self.config = reference.config._replace(subscriptions=1, types=types, max_bytes=0, read_batch=1)
        self.state: Any = managed_ledger.start(self.config)
        for _ in range(entries):
            self.add_entry()
        self.reset(first, ())

    def step(self, action: str, *arguments: Any) -> Any:
        """Takes a step. Returns its outcome."""
        self.state, outcome = managed_ledger.step(self.config, self.state, action, arguments)
        return outcome

    @property
    def _sub(self) -> Subscription:
        [sub] = self.state.subscriptions
        return sub  # type: ignore[no-any-return]

    def _set_sub(self, sub: Subscription) -> None:
        self.state = with_subscription(self.state, 0, sub)

    # ---- changes that deliveries depend on

    def add_entry(self) -> None:
        """Adds an entry to the log."""
        self.step("add_entry")

    def attach(self, consumer: int) -> str:
        """Subscribes a consumer."""
        return _refusal(self.step("connect", 0, consumer))

    def detach(self, consumer: int) -> str:
        """Ends a consumer's session."""
        return _refusal(self.step("disconnect", 0, consumer))

    def flow(self, consumer: int, permits: int) -> str:
        """Adds the permits of a consumer's FLOW command."""
        return _refusal(self.step("flow", 0, consumer, permits))

    def redeliver(self, consumer: int, numbers: set[int | None]) -> str:
        """Handles a consumer's request for the redelivery of its pending entries with these numbers.

        The request is for all pending entries of the consumer if there are no numbers, or if the subscription is not
        Shared. None stands for a requested entry that does not exist. It matches nothing, but with it the request has a
        number, and so is not for all entries.
        """
        asking = next((each for each in self._sub.consumers if each.consumer == consumer), None)
        if asking is None or not numbers or not self.is_shared:  # the model refuses a consumer that is not attached
            return _refusal(self.step("redeliver", 0, consumer))
        again = tuple([each for each in asking.pending if each.entry in numbers])
        left = tuple([each for each in asking.pending if each.entry not in numbers])
        self._set_sub(added_to_replay(with_consumer(self._sub, asking._replace(pending=left)), again))
        return ""

    def acknowledged(self, numbers: Iterable[int], first_unacked: int) -> None:
        """Acknowledges these entries, and all entries before `first_unacked`."""
        for position in [Position(0, number) for number in numbers]:
            deleted = is_acknowledged(self._sub, position)
            # the model refuses an entry that is neither pending nor in the replay queue
            if not deleted and isinstance(self.step("acknowledge", 0, position), Refused):
                self.state = individually_deleted(self.config, self.state, 0, position)
        self.step("mark_delete", 0, Position(0, first_unacked - 1))

    def reset(self, first_unacked: int, deleted: Iterable[int]) -> None:
        """Sets the cursor after a seek, or after the topic has moved to another broker.

        Clears the pending entries and the replay queue.
        """
        acked = tuple([Position(0, number) for number in deleted])
        idle = tuple([each._replace(pending=()) for each in self._sub.consumers])
        mark = Position(0, first_unacked - 1)
        first = Position(0, first_unacked)
        self._set_sub(self._sub._replace(read_position=first, mark_delete=mark, acked=acked, consumers=idle, replay=()))

    # ---- deliveries

    def deliver(self, consumer: int, number: int, size: int, ack_set: tuple[int, ...] | None) -> str:
        """Delivers an entry of `size` messages to a consumer, as the broker did.

        In `ack_set`, words of 64 bits, a set bit is an unacknowledged message. None: no message is acknowledged.
        """
        permits = {each.consumer: each.permits for each in self._sub.consumers}
        after = _permits_after(permits.get(consumer, 0), size, ack_set)
        if after is None:
            have = permits.get(consumer, 0)
            return f"no delivery: the consumer has {have} permits, or all messages of the entry are acknowledged"
        # Shared: the broker may choose any consumer with permits, so only the chosen one keeps its permits here
        self._set_permits({consumer: permits[consumer]} if self.is_shared else permits)
        sent = self._deliver_next()
        self._set_permits({**permits, consumer: after})
        if sent != (number, consumer):
            return "the model delivers nothing" if sent is None else f"the model delivers entry {sent[0]} to {sent[1]}"
        return ""

    def overdue(self) -> str:
        """Returns a text that names the delivery that the models would make now; empty if they make none."""
        before = self.state
        sent = self._deliver_next()
        self.state = before
        return "" if sent is None else f"entry {sent[0]} is not delivered to {sent[1]}"

    def view(self) -> list[list[Any]]:
        """Returns the consumers, each with its number, its permits and the numbers of its pending entries."""
        return [[each.consumer, each.permits, _numbers(each.pending)] for each in self._sub.consumers]

    def _set_permits(self, permits: dict[int, int]) -> None:
        """Sets the permits of all consumers; those that are not named have none."""
        consumers = tuple([each._replace(permits=permits.get(each.consumer, 0)) for each in self._sub.consumers])
        self._set_sub(self._sub._replace(consumers=consumers))

    def _deliver_next(self) -> tuple[int, int] | None:
        """Reads and dispatches until an entry is sent. Returns its number and the consumer, or None."""
        # negative permits count as 0 here, because the model bounds a read by the sum of all permits
        negative = {each.consumer: min(each.permits, 0) for each in self._sub.consumers}
        self._set_permits({each.consumer: max(each.permits, 0) for each in self._sub.consumers})
        sent: tuple[int, int] | None = None
        while sent is None:
            started = self.step("read_more_entries", 0)
            if not isinstance(started, Started) or not started.positions:
                break
            for each in started.issued:
                self.step("complete_storage_read", each.number, True)
            outcome = self.step("dispatch", 0, started.kind)
            if outcome.sent:
                [(position, consumer)] = outcome.sent
                sent = position.entry, consumer
                self.step("release", 0)  # the entry has been written to the connection
            elif not outcome.skipped:  # skipped: the entry is acknowledged, and the next one is read
                break
        self._set_permits({each.consumer: each.permits + negative[each.consumer] for each in self._sub.consumers})
        return sent


def _permits_after(permits: int, size: int, ack_set: tuple[int, ...] | None) -> int | None:
    """Returns a consumer's permits after the delivery of an entry.

    Returns None if the consumer has no permits, or if all messages of the entry are acknowledged.
    """
    cfg = session.Config(batch_size=size, stored=1)
    start = client_session.start(cfg)
    left = range(size) if ack_set is None else [index for index in range(size) if mask_of(ack_set) >> index & 1]
    consumer = start.consumer._replace(permits=permits, link=start.consumer.link._replace(session="open"))
    acked = tuple([index for index in range(size) if index not in left])
    after, outcome = client_session.step(cfg, start._replace(acked=acked, consumer=consumer), "dispatch", ())
    return None if isinstance(outcome, Refused) else after.consumer.permits


def _refusal(outcome: Any) -> str:
    return outcome.why if isinstance(outcome, Refused) else ""


def _numbers(positions: Iterable[Position]) -> list[int]:
    return [each.entry for each in positions]
