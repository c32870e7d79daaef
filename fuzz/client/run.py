"""One run of a schedule on the real client: the requests to brokers and client, and the observation.

A step waits for its effect: if a command were in flight between two steps, a replay of the schedule could differ. If an
effect does not come in time, later steps do not wait for theirs. Contracts report effects that are missing at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fuzz.client.harness import ClientDied, ClientHangs, Harness

#: The topic and the subscription of every schedule.
TOPIC = "persistent://public/default/topic"
SUBSCRIPTION = "subscription"
#: Seconds to wait for an effect that the client owes. The client's first retries come after 0.1, 0.2 and 0.4 s.
PATIENCE = 2.5
#: Seconds within which the client sends grouped acknowledgements.
GROUPED = 0.12


class Observed(msgspec.Struct):
    """The observation of a run. Messages are numbered from 0 in the order of sending; the payload is the number."""

    settings: dict[str, Any]
    begun: int = 0  # number of messages that the application has sent, also those that the client did not accept
    not_accepted: list[tuple[int, str]] = []  # number and error of each message that the client did not accept
    results: list[list[str]] = []  # payload, result and message id of each callback, in order
    consumers: int = 0  # number of consumers that have subscribed; a scenario sets 0 if it expects no deliveries
    received: list[list[Any]] = []  # payload, ledger, entry, batch index, redelivery count
    #: calls about received messages: kind, monotonic times before and after, ledger, entry, batch index, error
    calls: list[list[Any]] = []
    left: list[Any] = []  # messages, by entry and batch index, that a client without deviations leaves unacknowledged
    redelivered: list[list[Any]] = []  # for each reconnection: the messages that were left, and those then received
    queued: list[int] = []  # messages that the application had not received when the last step ended
    lateness: float = 0.0  # the largest lateness of the client's process, in seconds (`Driver.lateness`)
    failed: list[str] = []  # operations of the client that failed
    crash: str = ""  # how the client's process ended, if it crashed, for a message
    crashed_by: str = ""  # how it ended, without the request (`ClientDied.by`)
    hang: str = ""  # the call that did not return, if one did not
    redirect_lookups: int = 0  # number of lookups after a redirect to a broker that serves
    report: dict[str, Any] = {}  # `Ordered.report` of the brokers

    @property
    def log(self) -> list[int]:
        """The messages in the log, in its order."""
        return [int(payload) for entry in self.report.get("log", ()) for payload in entry[4]]

    def acknowledged(self) -> list[int]:
        """Returns the messages that were reported as stored, in the order of their callbacks."""
        return [int(payload) for payload, result, _ in self.results if result == "Ok"]


class Run:
    """The brokers and a client while a schedule runs. All methods raise as `Harness.broker` and `Harness.client`."""

    def __init__(self, harness: Harness, settings: dict[str, Any], patience: float = PATIENCE) -> None:
        self.harness = harness
        self.settings = settings
        self.patience = patience
        self.observed = Observed(dict(settings))
        #: why brokers do not answer every send: "sends" or "receipts" for an order about these, "fence" for a transfer
        self.withheld: set[str] = set()
        self.is_patient = True  # whether every effect has come in time so far; otherwise steps no longer wait
        self.taken: dict[int, int] = {}  # consumer -> number of messages that it has received
        self.producers = 0  # 0 or 1
        self.consumers = 0  # number of consumers that are not closed
        self.current = 0  # the number of the consumer that `take` and `call` use
        self.application: Any = None  # the state of the scenario's application, if it has one

    @property
    def is_in_transfer(self) -> bool:
        """Whether the topic is in transfer: new sessions are not answered yet."""
        return "fence" in self.withheld

    def broker(self, do: str, **arguments: Any) -> Any:
        """Sends a request to the brokers. Returns the reply."""
        return self.harness.broker(do, **arguments)

    def client(self, do: str, *, limit: float = 5.0, **arguments: Any) -> Any:
        """Sends a request to the client. Returns the reply."""
        return self.harness.client(do, limit=limit, **arguments)

    def start(self, operation_timeout_seconds: int = 30, **settings: Any) -> None:
        """Starts brokers with these arguments of `Server.do_reset`, and a client.

        In an experiment (`fuzz/scenarios/experiments.toml`), the schedule's setting `brokers` changes these settings.
        Its settings `producer` and `consumer` change the options of `create_producer` and `subscribe`.
        """
        settings |= self.settings.get("brokers", {})
        urls = self.broker("reset", **settings)
        url = ",".join([urls[0], *[each.removeprefix("pulsar://") for each in urls[1:]]])
        self.client("open", url=url, operation_timeout_seconds=operation_timeout_seconds)

    def create_producer(self, **options: Any) -> None:
        """Creates the producer with these options of the client. Adds a failure to the observation."""
        options |= self.settings.get("producer", {})
        error = self.client("create_producer", topic=TOPIC, limit=self.patience + 5.0, **options)
        if error:
            self.observed.failed.append(f"create_producer {error}")
        else:
            self.producers = 1

    def subscribe(self, **options: Any) -> None:
        """Subscribes a consumer with these arguments of `Driver.subscribe`. Adds a failure to the observation."""
        options |= self.settings.get("consumer", {})
        error = self.client("subscribe", topic=TOPIC, subscription=SUBSCRIPTION, limit=self.patience + 5.0, **options)
        if error:
            self.observed.failed.append(f"subscribe {error}")
        else:
            self.consumers += 1
            self.observed.consumers += 1

    def send(self, count: int) -> None:
        """Sends `count` messages, if there is a producer, and waits as `sync`."""
        if not self.producers:
            return
        self.observed.not_accepted += self.client("send", first=self.observed.begun, count=count)
        self.observed.begun += count
        self.sync()

    def wait(self, what: str, value: Any, patience: float | None = None) -> bool:
        """Waits for a condition of the brokers (`Ordered.is_met`). Returns whether it was met in time.

        If an earlier effect did not come in time (`is_patient`), returns False at once.
        """
        if not self.is_patient:
            return False
        seconds = self.patience if patience is None else patience
        self.is_patient = self.broker("wait", what=what, value=value, seconds=seconds)
        return self.is_patient

    def pending(self) -> int:
        """Updates the results. Returns the number of accepted messages that have no callback yet."""
        self.observed.results = self.client("results", count=0, seconds=0.0)
        return self.observed.begun - len(self.observed.not_accepted) - len(self.observed.results)

    def sync(self) -> None:
        """Waits until the producer has a session, every consumer has granted permits, and all callbacks have come.

        If the brokers do not answer every send (`withheld`), waits until the newest message has arrived at the brokers,
        and not for the callbacks. During a transfer, waits neither for consumers nor for a producer without session.
        """
        if self.is_in_transfer and not self.broker("attached")[0]:
            return  # the producer gets its next session when the transfer ends
        if self.producers and self.wait("producers", self.producers) and self.pending():
            if not self.withheld:
                self.settle(self.patience)
            elif self.observed.begun:
                self.wait("received", self.observed.begun - 1)
        if self.consumers and not self.is_in_transfer:
            self.wait("consumers", self.consumers)

    def settle(self, seconds: float) -> None:
        """Waits for the callbacks of all messages, for `seconds` at most."""
        count = self.observed.begun - len(self.observed.not_accepted)
        self.observed.results = self.client("results", count=count, seconds=seconds if self.is_patient else 0.0)
        self.is_patient = self.is_patient and len(self.observed.results) >= count

    def receive(self, count: int, seconds: float = 0.2) -> None:
        """Lets each consumer receive up to `count` messages, each within `seconds`, and acknowledge them one by one."""
        for consumer in range(self.consumers):
            before = self.taken.get(consumer, 0)
            found = self.client("receive", count=count, seconds=seconds, consumer=consumer, limit=seconds * count + 5.0)
            for index in range(before, before + len(found)):
                self.client("acknowledge", index=index, consumer=consumer)
            self.taken[consumer] = before + len(found)
            self.observed.received += found

    def take(self, count: int, seconds: float = 0.5) -> list[int]:
        """Lets the current consumer receive up to `count` messages, each within `seconds`.

        Returns their indexes among the messages that this consumer has received.
        """
        before = self.taken.get(self.current, 0)
        found = self.client("receive", count=count, seconds=seconds, limit=seconds * count + 5.0, consumer=self.current)
        self.taken[self.current] = before + len(found)
        self.observed.received += found
        return list(range(before, before + len(found)))

    def call(self, kind: str, indexes: list[int], gap: float = 0.0) -> None:
        """Calls a method of the current consumer for received messages, as `Driver.call`."""
        about = {"kind": kind, "indexes": indexes, "gap": gap, "consumer": self.current}
        self.observed.calls += self.client("call", limit=gap * len(indexes) + 5.0, **about)

    def pause(self, seconds: float) -> None:
        """Sleeps in the client's process, which measures its lateness meanwhile (`Driver.pause`)."""
        self.client("pause", limit=seconds + 5.0, seconds=max(0.0, seconds))

    def receive_all(self) -> None:
        """Receives until no consumer has a message left, or the patience is over.

        No message is left when every consumer has a session and has granted permits, every message of the log that was
        never corrupted has been received, and no further message comes. A session can begin with messages that were
        received before: their acks were lost.
        """
        until = time.monotonic() + self.patience
        while self.consumers and time.monotonic() < until:
            before = len(self.observed.received)
            self.receive(100, 0.05)
            report = self.broker("report")
            log = {int(payload) for entry in report["log"] for payload in entry[4]} - set(report["corrupted"])
            is_complete = log <= {int(message[0]) for message in self.observed.received}
            sessions = [granted for _, granted, *_ in report["permits"] if granted]
            if is_complete and len(sessions) >= self.consumers and len(self.observed.received) == before:
                break

    def finish(self) -> None:
        """Restarts stopped brokers, ends all orders, waits for callbacks and deliveries, and collects the report.

        Then closes the client.
        """
        self.is_patient = True
        self.withheld.clear()
        self.broker("restart")
        self.broker("end_orders")
        self.settle(self.patience)
        self.receive_all()
        self.broker("wait", what="flows", value=None, seconds=self.patience)  # a session may just have begun
        self.observed.report = self.broker("report")
        error = self.client("close", limit=self.patience + 5.0)
        if error:
            self.observed.failed.append(f"close {error}")


def observe(
    harness: Harness, settings: dict[str, Any], steps: Iterable[Callable[[Run], None]], patience: float = PATIENCE
) -> Observed:
    """Executes steps, which are functions of the run. Returns the observation.

    A crash or hang of the client ends the run. Raises HarnessFailed.
    """
    run = Run(harness, settings, patience)
    try:
        for step in steps:
            step(run)
    except ClientDied as problem:
        run.observed.crash, run.observed.crashed_by = str(problem), problem.by
    except ClientHangs as problem:
        run.observed.hang = str(problem)
    if run.observed.crash or run.observed.hang:
        run.observed.report = run.broker("report")
    return run.observed
