"""A second real client in a process of its own, to cross-check the brokers: `python -m fuzz.client.rust_driver`.

The package `mq-bridge-pulsar` contains the Rust client `pulsar-rs`, and an interface that sends, receives and
acknowledges. The interface supports one service address and Shared subscriptions, and waits for each receipt. Its
producer ends with the connection. Tests use this client, scenarios do not.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from fuzz.client.driver import Received, main


class RustDriver:
    """The methods of `fuzz.client.driver.Driver` that this client supports."""

    def __init__(self) -> None:
        self._bridge: Any = None
        self._url = ""
        self._producer: Any = None
        self._consumer: Any = None

    def hello(self) -> str:
        """Loads the client. Returns its name and version."""
        self._bridge = importlib.import_module("mq_bridge")
        importlib.import_module("mq_bridge_pulsar").register()
        return f"mq-bridge-pulsar {importlib.metadata.version('mq-bridge-pulsar')}"

    def open(self, url: str) -> None:
        """Keeps the address for `create_producer` and `subscribe`."""
        self._url = url

    def _endpoint(self, topic: str, **options: Any) -> dict[str, Any]:
        return {"custom": {"name": "pulsar", "config": {"url": self._url, "topic": topic, **options}}}

    def create_producer(self, topic: str) -> str:
        """Creates the producer. Returns an empty string."""
        self._producer = self._bridge.Publisher.from_config(self._endpoint(topic))
        return ""

    def send(self, first: int, count: int) -> list[tuple[int, str]]:
        """Sends messages whose payloads are their numbers, from `first` on, one by one. Returns an empty list."""
        for number in range(first, first + count):
            self._producer.send(str(number).encode())
        return []

    def subscribe(self, topic: str, subscription: str) -> str:
        """Subscribes. Returns an empty string."""
        self._consumer = self._bridge.Consumer.from_config(self._endpoint(topic, subscription=subscription))
        return ""

    def receive(self, count: int, seconds: float) -> list[Received]:
        """Receives and acknowledges up to `count` messages within `seconds`.

        Returns for each its payload, then ids and a count as of a first message: the interface does not show them.
        """
        messages = self._consumer.poll(count, int(seconds * 1000))
        self._consumer.commit()
        return [(message.payload.decode(), 0, 0, -1, 0) for message in messages]


if __name__ == "__main__":
    main(RustDriver())
