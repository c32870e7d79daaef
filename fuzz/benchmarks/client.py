"""Benchmark of the real client: messages a second that it sends, receives and acknowledges, without batches."""

from __future__ import annotations

from fuzz.benchmarks.runner import Benchmark, Measured, in_turns
from fuzz.client.harness import Harness
from fuzz.client.run import SUBSCRIPTION, TOPIC

_MESSAGES = 20_000
#: The most seconds of sending, and of receiving, all messages.
_LIMIT = 120.0


def _broker() -> Measured:
    with Harness() as harness:
        value, baseline = in_turns(
            lambda: _speed(harness, _MESSAGES, one_by_one=False),
            lambda: _speed(harness, _MESSAGES // 4, one_by_one=True),  # fewer, because waiting is slow
        )
    return Measured(value, baseline, value / baseline)


def _speed(harness: Harness, count: int, *, one_by_one: bool) -> float:
    """Returns the messages a second. A message counts twice: when sent, and when received and acknowledged.

    With `one_by_one`, the client waits for each receipt before it sends the next message.
    """
    urls = harness.broker("reset", check=False)
    harness.client("open", url=urls[0])
    options = {"send_timeout_millis": 0, "batching_enabled": False, "block_if_queue_full": True}
    harness.client("create_producer", topic=TOPIC, **options)
    harness.client("subscribe", topic=TOPIC, subscription=SUBSCRIPTION)
    seconds: float = harness.client("produce", count=count, one_by_one=one_by_one, limit=_LIMIT)
    seconds += harness.client("consume", count=count, limit=_LIMIT)
    harness.client("close")
    return 2 * count / seconds


benchmarks = [
    Benchmark(
        "client",
        "broker",
        "messages/s",
        "a real client's sends and receives; against waiting for each receipt",
        _broker,
    )
]
