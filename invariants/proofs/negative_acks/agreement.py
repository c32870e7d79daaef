"""CrossHair contracts about negative acks: the model, and the implementation compared with the model."""

from __future__ import annotations

from typing import Literal

from impl.negative_acks.tracker import NegativeAcks
from invariants.proofs.claim import Control, contract
from model.negative_acks import machine as model
from model.negative_acks.delay import Backoff
from model.negative_acks.machine import Bucket, Config, State
from model.negative_acks.message_ids import NackedId
from model.positions import Position

NACKED, OTHER = Position(1, 0), Position(1, 1)
RULES: tuple[Literal["both", "earliest_due", "latest", "first"], ...] = ("both", "earliest_due", "latest", "first")


class RecordedTimes:
    """A stub of the implementation's buckets, which records the time of each added entry."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def add(self, time: int, *_: int) -> None:
        """Records the time."""
        self.times.append(time)


@contract(
    "repeated-nack-follows-its-rule",
    "A pending entry is nacked again, for any bucket time. Under the rule `both` it is then pending in both buckets, "
    "under `earliest_due` in the earlier bucket, under `latest` in that of the second nack, and under `first` in that "
    "of the first nack. Another entry of the first bucket stays pending.",
    Control(
        "the later due time stays",
        "model.negative_acks.machine",
        'cfg.repeated_nack == "earliest_due" and min(pending) <= time',
        'cfg.repeated_nack == "earliest_due" and min(pending) > time',
    ),
)
def repeated_nack_follows_rule(rule: int, was: int, then: int) -> bool:
    """PIP-393 keeps both nacks. Before, the Java client kept the latest nack, and the Go client the first.

    pre: 0 <= rule <= 3
    pre: 0 <= was and 0 <= then
    post: _
    """
    cfg = Config(repeated_nack=RULES[rule], precision_bits=0, min_delay_ms=0, backoff=Backoff("ms", (then,)))
    s = State(0, 0, "open", (Bucket(was, (NACKED, OTHER)),), was, (), (), None)
    after, _ = model.nack(cfg, s, NACKED, 0, NackedId())
    times = [bucket.time for bucket in after.buckets for entry in bucket.entries if entry == NACKED]
    others = [bucket.time for bucket in after.buckets for entry in bucket.entries if entry == OTHER]
    wanted = [
        [was] if was == then else sorted([was, then]),
        [min(was, then)],
        [then],
        [was],
    ]
    return times == wanted[rule] and others == [was]


@contract(
    "nack-agrees-with-implementation",
    "For a nack at any time with any nonnegative delay and a precision of 0 or 3 bits, while nothing is pending and "
    "the timer is armed for any time or not armed: implementation and model add the entry to the same bucket and arm "
    "the timer for the same time.",
    Control(
        "the implementation rounds up",
        "impl.negative_acks.tracker",
        "time = due - due % self._length",
        "time = due + -due % self._length",
    ),
)
def nacks_agree(now: int, timer: int | None, delay: int, bits: int) -> bool:
    """Equivalence of implementation and model.

    pre: 0 <= now and 0 <= delay
    pre: bits == 0 or bits == 3
    post: _
    """
    cfg = Config(precision_bits=bits, min_delay_ms=0, backoff=Backoff("ms", (delay,)))
    s = model.start(cfg)._replace(now=now, timer=timer)
    implementation, recorded = NegativeAcks.load(cfg, s), RecordedTimes()
    implementation._buckets = recorded  # type: ignore[assignment]  # real buckets would hash every symbolic number
    actual = implementation.nack(NACKED, 0, NackedId())
    after, expected = model.nack(cfg, s, NACKED, 0, NackedId())
    same_timer = implementation._timer == after.timer
    return actual == expected and same_timer and recorded.times == [bucket.time for bucket in after.buckets]
