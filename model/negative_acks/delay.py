"""After how long a negatively acknowledged message comes back, and to which slot of time that belongs.

Source: PIP-393 and the backoffs of the Java and Go clients. A side model: `model/negative_acks/machine.py` asks it.

    delay    the fixed one, or that of the backoff for the message's redelivery count
    slot     the due time with its lowest bits set to zero, so at most 2^bits - 1 ms early and never late
    backoff  a table of delays by redelivery count, whose last one stands for all larger counts

The tables of the two backoffs that clients ship are worked out here; any other table is as good.
"""

from __future__ import annotations

import math

#: How many units of a clock make a millisecond.
UNITS_OF = {"ms": 1, "ns": 1_000_000}

#: From this redelivery count on, what the Go client shifts is zero and its backoff the maximum again.
_GO_COUNTS = 56
_GO_FIRST_NS = 1_000_000_000
_GO_MOST_NS = 600_000_000_000


def trimmed(time: int, bits: int, unit: int) -> int:
    """The start of the slot that a time belongs to: slots are 2^bits units long and begin at multiples of that."""
    grain = unit << bits
    return time // grain * grain


def multiplier_backoff(least: int, most: int, multiplier: float) -> tuple[int, ...]:
    """The Java client's `MultiplierRedeliveryBackoff`: `least` times the multiplier to the power of the count.

    The whole part of that, and at most `most`; nothing grows out of a least delay of nothing. Delays are in any unit.
    Raises ValueError for what that class refuses. Cost: the length of the table.
    """
    if least < 0 or most < least or multiplier <= 1:
        raise ValueError(f"a backoff from {least} to {most} by {multiplier} makes no sense")
    if least == 0:
        return (0,)
    table, last = [least], math.floor(math.log(most / least) / math.log(multiplier)) + 1
    for count in range(1, last + 1):
        table.append(min(int(least * multiplier**count), most))
    return (*table, most)


def go_backoff() -> tuple[int, ...]:
    """The Go client's default backoff in nanoseconds: a second, doubled with each redelivery, at most ten minutes.

    The doubling is a shift of a signed number of 64 bits: from count 34 on some delays are negative, at 54 the most
    negative number that there is.
    """
    table = []
    for count in range(_GO_COUNTS):
        shifted = (_GO_FIRST_NS << count) % 2**64
        delay = shifted - 2**64 if shifted >= 2**63 else shifted
        table.append(_GO_MOST_NS if delay > _GO_MOST_NS or delay == 0 else delay)
    return tuple(table)
