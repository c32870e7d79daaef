"""Redelivery delays and bucket times of negative acks (PIP-393, "TimeStamp Bucket").

Models `MultiplierRedeliveryBackoff` (Java), `defaultNackBackoffPolicy` (Go) and `NegativeAcksTracker.trimLowerBit`.

    delay         fixed, or given by a backoff for the message's redelivery count
    bucket time   the due time with its lowest bits cleared: less than 2^bits units before the due time, never after it.
                  The unit is the millisecond in Java and Go, the nanosecond in C++

PIP-393 states that with 8 bits a redelivery may be 512 ms early. In Java, the actual bound is 2^8 - 1 = 255 ms.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from model.values import UNITS_PER_MS

Unit = Literal["ms", "ns"]

#: The number of delays of `go_default_backoff`: one for each redelivery count from 0 to 55. From 55 on, `1 s << count`
#: is 0 in 64 bits, and the delay is the maximum.
_GO_COUNTS = 56
_GO_MIN_NS = 1_000_000_000
_GO_MAX_NS = 600_000_000_000


class Backoff(NamedTuple):
    """Delays by redelivery count; the last delay applies to all larger counts. Empty if no backoff is configured."""

    unit: Unit = "ms"
    delays: tuple[int, ...] = ()


def converted(duration: int, unit: Unit, to: Unit) -> int:
    """Returns a duration in another unit, rounded down."""
    return duration * UNITS_PER_MS[to] // UNITS_PER_MS[unit]


def trim_lower_bits(time: int, bits: int, unit: int) -> int:
    """`trimLowerBit`: returns the bucket time of a due time: the time, rounded down to a multiple of 2^bits units.

    `unit`: the length of one of these units, in units of the clock.
    """
    length = unit << bits
    return time // length * length


def multiplier_backoff(minimum: int, maximum: int, multiplier: float) -> tuple[int, ...]:
    """Returns the delays of `MultiplierRedeliveryBackoff`: minimum * multiplier^count, truncated, at most the maximum.

    A minimum of 0 gives 0 for every count. Raises ValueError for arguments that the builder rejects.
    """
    if minimum < 0 or maximum < minimum or multiplier <= 1:
        raise ValueError(f"invalid backoff: minimum {minimum}, maximum {maximum}, multiplier {multiplier}")
    if minimum == 0:
        return (0,)
    # minimum * multiplier^last is at least the maximum, so every larger count has the maximum
    table, last = [minimum], math.floor(math.log(maximum / minimum) / math.log(multiplier)) + 1
    for count in range(1, last + 1):
        table.append(min(int(minimum * multiplier**count), maximum))
    return (*table, maximum)


def go_default_backoff() -> Backoff:
    """Returns the delays of Go's `defaultNackBackoffPolicy`: 1 s << count in signed 64 bits, at most 10 minutes.

    The shift overflows: 13 delays from count 34 to 54 are negative (apache/pulsar-client-go#1385 fixed 55 and above).
    """
    table = []
    for count in range(_GO_COUNTS):
        shifted = (_GO_MIN_NS << count) % 2**64
        delay = shifted - 2**64 if shifted >= 2**63 else shifted
        table.append(_GO_MAX_NS if delay > _GO_MAX_NS or delay == 0 else delay)
    return Backoff("ns", tuple(table))
