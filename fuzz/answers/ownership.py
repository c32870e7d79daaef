"""Which broker serves the topics, by the model `bundle_transfer`.

The model does not track the real clients. Before a step for one of them, a client of the model is put into the phase in
which the real client is.
"""

from __future__ import annotations

from typing import Any

from model.bundle_transfer.clients import answer_of
from model.bundle_transfer.machine import bundle_transfer, reference
from model.bundle_transfer.state import Client, Config, State
from model.machine import Failed, Refused

#: A client of the model in its first phase: it has no connection and sent nothing.
_NOBODY = Client("lookup", None, False, 0, 0, (), ())


class Ownership:
    """The bundle of all topics (one topic of the model), and the brokers."""

    def __init__(self, brokers: int, producers: int = 1, *, deduplication: bool = False) -> None:
        self.config: Config = reference.config._replace(
            brokers=max(brokers, 2), producers=max(producers, 1), consumers=0, deduplication=deduplication
        )
        self.state: State = bundle_transfer.start(self.config)

    def step(self, action: str, *arguments: Any) -> Any:
        """Takes a step. Returns its outcome."""
        self.state, outcome = bundle_transfer.step(self.config, self.state, action, arguments)
        return outcome

    def _must(self, action: str, *arguments: Any) -> Any:
        """Takes a step. Returns its outcome. Raises ValueError if the model refuses the step."""
        outcome = self.step(action, *arguments)
        if isinstance(outcome, Refused | Failed):
            raise ValueError(f"{action}{arguments}: {outcome.why}")
        return outcome

    def with_client(self, client: Client, number: int = 0) -> None:
        """Replaces client `number` of the model by `client`."""
        [topic] = self.state.topics
        clients = (*topic.clients[:number], client, *topic.clients[number + 1 :])
        self.state = self.state._replace(topics=(topic._replace(clients=clients),))

    def process(self, broker: int, producer: int, sequence: int) -> str:
        """Returns the outcome of a send to a broker by an attached producer: added (and confirmed), duplicate, ignored.

        A text that begins with `refused` says why the model has no such send.
        """
        # the producer is connected to the broker, and only this send is in flight
        ready = _NOBODY._replace(phase="ready", peer=broker, begun=sequence + 1, done=sequence, up=(sequence,))
        self.with_client(ready, producer)
        outcome = self.step("process", 0, producer)
        if outcome == "added":
            self._must("confirm", 0, broker)
        self.with_client(_NOBODY, producer)
        return outcome if isinstance(outcome, str) else f"refused: {outcome.why}"

    def log(self) -> list[tuple[int, int]]:
        """Returns the producer and sequence id of each stored message of all topics, in order."""
        return [(entry.producer, entry.sequence) for entry in self.state.topics[0].log]

    @property
    def owner(self) -> int:
        """The owner or, during a transfer, the destination."""
        return self.state.records[-1].dst

    def phase(self, broker: int) -> str:
        """Returns the phase of the topic at a broker; empty if the broker has no topic object."""
        instance = self.state.topics[0].objects[broker]
        return "" if instance is None else instance.phase

    def answer(self, broker: int) -> int | None:
        """Returns the broker that a broker's answer to a lookup names; None if the lookup waits for an owner."""
        return answer_of(self.config, self.state, broker)

    def admit(self, broker: int) -> bool | None:
        """Returns the broker's answer to PRODUCER or SUBSCRIBE: True for success, False for an error, None if not yet.

        The broker loads the topic first, if it may.
        """
        self.with_client(_NOBODY._replace(phase="waiting", peer=broker))
        if self.phase(broker) == "disconnected":
            self.step("clean_up", 0, broker)
        self.step("begin_load", 0, broker)
        self.step("open_topic", 0, broker, 0)
        outcome = self.step("admit", 0, 0)
        self.with_client(_NOBODY)
        if isinstance(outcome, Refused):
            return None
        return not isinstance(outcome, Failed)

    def is_up(self, broker: int) -> bool:
        """Returns whether a broker runs."""
        return self.state.brokers[broker].alive

    def begin_transfer(self, destination: int) -> bool:
        """Begins a transfer: from now on, the source ignores sends and acks.

        Returns whether the model allows the transfer.
        """
        if isinstance(self.step("transfer", destination), Refused):
            return False
        for broker in range(self.config.brokers):
            self.step("deliver", broker)
        return True

    def finish_transfer(self) -> tuple[int, int]:
        """Completes a transfer: the destination becomes the owner, and the source disconnects its clients.

        Returns source and destination.
        """
        record = self.state.records[-1]
        source, destination = record.source, record.dst
        assert source is not None, "a transfer has a source"
        self.step("close_ledger", 0, source)  # refused if the source has not loaded the topic
        self._must("publish", source)
        for broker in range(self.config.brokers):
            self.step("deliver", broker)
        self._must("publish", destination)
        for broker in range(self.config.brokers):
            self.step("deliver", broker)
        self.step("disconnect", 0, source)
        return source, destination

    def crash(self, broker: int, heir: int) -> None:
        """Stops a broker. If the broker is the owner, or takes part in a transfer, `heir` becomes the owner.

        Raises ValueError if the broker is down, or if the last record has the state `owned` and this broker as source.
        """
        self._must("crash", broker)
        if self.owner == broker or self.state.records[-1].source == broker:
            self._must("override", heir)
        for each in range(self.config.brokers):
            # refused if the broker is down, or has applied all records of the channel
            while not isinstance(self.step("deliver", each), Refused):
                pass

    def restart(self, broker: int) -> None:
        """Starts a stopped broker again."""
        self._must("restart", broker)
