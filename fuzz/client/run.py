"""One schedule on the real client: its steps, and what was observed."""

from __future__ import annotations

from typing import Any

import msgspec

from fuzz.client.harness import ClientDied, ClientHangs, Harness

#: What every schedule uses: one topic and one subscription.
TOPIC = "persistent://public/default/topic"
SUBSCRIPTION = "subscription"
#: Seconds for an effect that the client owes. Its first retries come after 0.1, 0.2 and 0.4 s.
PATIENCE = 2.5


class Observed(msgspec.Struct):
    """What a run observed. Messages are numbered in the order of sending; their payloads are their numbers."""

    settings: dict[str, Any]
    begun: int = 0  # messages sent
    refused: list[str] = []  # messages that the client did not accept
    results: list[list[str]] = []  # payload, result and message id of each callback, in order
    received: list[list[Any]] = []  # payload, ledger, entry, batch index, redelivery count
    failed: list[str] = []  # operations of the client that failed
    ended: str = ""  # how the client's process ended, if it did
    hangs: str = ""  # the call that did not return, if one did not
    connected: list[bool] = []  # at the end
    report: dict[str, Any] = {}  # the brokers'

    @property
    def log(self) -> list[int]:
        """The messages in the log."""
        return [int(payload) for entry in self.report.get("log", ()) for payload in entry[4]]

    def acknowledged(self) -> list[int]:
        """The messages that were reported as stored, in the order of their callbacks."""
        return [int(payload) for payload, result, _ in self.results if result == "Ok"]


class Run:
    """The brokers and a client in the course of a schedule. Steps wait for their effects, and not longer."""

    def __init__(self, harness: Harness, settings: dict[str, Any], patience: float = PATIENCE) -> None:
        self.harness = harness
        self.settings = settings
        self.patience = patience
        self.observed = Observed(dict(settings))
        self.is_faithful = True  # the brokers store every send and send every receipt
        self.is_patient = True  # no effect has been missing yet
        self.producers = 0
        self.consumers = 0

    def broker(self, do: str, **arguments: Any) -> Any:
        """A request to the brokers."""
        return self.harness.broker(do, **arguments)

    def client(self, do: str, *, limit: float = 5.0, **arguments: Any) -> Any:
        """A request to the client."""
        return self.harness.client(do, limit=limit, **arguments)

    def start(self, operation_timeout_seconds: int = 30, **settings: Any) -> None:
        """Starts brokers with these settings, and a client."""
        urls = self.broker("reset", **settings)
        self.client("open", url=urls[0], operation_timeout_seconds=operation_timeout_seconds)

    def produce(self, **options: Any) -> None:
        """Creates the producer."""
        said = self.client("create_producer", topic=TOPIC, limit=self.patience + 5.0, **options)
        if said.startswith("failed"):
            self.observed.failed.append(f"create_producer {said}")
        else:
            self.producers = 1

    def subscribe(self, **options: Any) -> None:
        """Subscribes a consumer."""
        said = self.client("subscribe", topic=TOPIC, subscription=SUBSCRIPTION, limit=self.patience + 5.0, **options)
        if said:
            self.observed.failed.append(f"subscribe {said}")
        else:
            self.consumers += 1

    def send(self, count: int) -> None:
        """Sends messages."""
        if not self.producers:
            return
        refused = self.client("send", first=self.observed.begun, count=count)
        self.observed.refused += refused
        self.observed.begun += count
        self.sync()

    def wait(self, what: str, value: Any, patience: float | None = None) -> bool:
        """Waits for a condition of the brokers. Once one has not come, later ones are not waited for."""
        if not self.is_patient:
            return False
        seconds = self.patience if patience is None else patience
        self.is_patient = self.broker("wait", what=what, value=value, seconds=seconds)
        return self.is_patient

    def pending(self) -> int:
        """Messages without a callback."""
        self.observed.results = self.client("results", count=0, seconds=0.0)
        return self.observed.begun - len(self.observed.refused) - len(self.observed.results)

    def sync(self) -> None:
        """Waits until the client is attached again, and the brokers have all messages that have no callback."""
        if self.producers and self.wait("producers", self.producers) and self.pending():
            if self.is_faithful:
                self.settle(self.patience)
            elif self.observed.begun:
                self.wait("received", self.observed.begun - 1)
        if self.consumers:
            self.wait("consumers", self.consumers)

    def settle(self, seconds: float) -> None:
        """Waits for the callbacks of all messages."""
        count = self.observed.begun - len(self.observed.refused)
        self.observed.results = self.client("results", count=count, seconds=seconds if self.is_patient else 0.0)
        self.is_patient = self.is_patient and len(self.observed.results) >= count

    def receive_all(self) -> None:
        """Receives until every message of the log was received, and acknowledges cumulatively."""
        for consumer in range(self.consumers):
            self.observed.received += self.client("receive", count=10_000, seconds=0.3, consumer=consumer, limit=60.0)

    def finish(self) -> None:
        """Lets faithful brokers finish what is pending, and takes down what is there; then closes the client."""
        self.is_patient = True
        self.broker("obey_no_more")
        self.is_faithful = True
        self.settle(self.patience)
        self.observed.connected = self.client("is_connected")
        self.observed.report = self.broker("report")
        said = self.client("close", limit=self.patience + 5.0)
        if said:
            self.observed.failed.append(f"close {said}")


def observe(harness: Harness, settings: dict[str, Any], steps: Any, patience: float = PATIENCE) -> Observed:
    """Runs steps, functions of a run, on fresh brokers and a fresh client. Returns what was observed."""
    run = Run(harness, settings, patience)
    try:
        for step in steps:
            step(run)
    except ClientDied as problem:
        run.observed.ended = str(problem)
    except ClientHangs as problem:
        run.observed.hangs = str(problem)
    if run.observed.ended or run.observed.hangs:
        run.observed.report = run.broker("report")
    return run.observed
