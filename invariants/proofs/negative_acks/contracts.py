"""What CrossHair is asked about negative acknowledgements: the model, and its optimised twin beside it.

Each contract is a function of plain numbers and truths that says whether something holds; CrossHair looks for
arguments for which it does not. `pre:` lines say of which arguments, `post: _` that the result must be true.
"""

from __future__ import annotations

from typing import Literal

from impl.negative_acks.tracker import NegativeAcks
from model.negative_acks import machine as model
from model.negative_acks.ids import Told
from model.negative_acks.machine import Config, Slot, State
from model.positions import Position

HERE, BESIDE = Position(1, 0), Position(1, 1)
RULES: tuple[Literal["both", "earliest", "replaces", "first_stays"], ...] = (
    "both",
    "earliest",
    "replaces",
    "first_stays",
)


class Noted:
    """Stands in the place of the twin's slots, and notes what comes to which."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def add(self, time: int, *_: int) -> None:
        """An entry comes to a slot."""
        self.times.append(time)


def again_keeps_to_its_rule(rule: int, was: int, then: int) -> bool:
    """A pending entry is nacked again; another one is pending beside it.

    pre: 0 <= rule <= 3
    pre: 0 <= was and 0 <= then
    post: _
    """
    cfg = Config(again=RULES[rule], precision_bits=0, least_delay_ms=0, backoff=(then,))
    s = State(0, 0, "open", (Slot(was, (HERE, BESIDE)),), was, (), (), None)
    after, _ = model.nack(cfg, s, HERE, 0, Told())
    times = [slot.time for slot in after.slots for entry in slot.entries if entry == HERE]
    others = [slot.time for slot in after.slots for entry in slot.entries if entry == BESIDE]
    wanted = [
        [was] if was == then else sorted([was, then]),
        [min(was, then)],
        [then],
        [was],
    ]
    return times == wanted[rule] and others == [was]


def nacks_agree(now: int, timer: int | None, delay: int, bits: int, inclusive: bool) -> bool:
    """An entry is nacked while a timer is set, or none.

    pre: 0 <= now and 0 <= delay
    pre: bits == 0 or bits == 3
    post: _
    """
    cfg = Config(precision_bits=bits, least_delay_ms=0, backoff=(delay,), due_at_its_time=inclusive)
    s = model.start(cfg)._replace(now=now, timer=timer)
    twin, noted = NegativeAcks.load(cfg, s), Noted()
    twin._slots = noted  # type: ignore[assignment]  # sets and dictionaries ask for one number after the other
    done = twin.nack(HERE, 0, Told())
    after, said = model.nack(cfg, s, HERE, 0, Told())
    return done == said and twin._timer == after.timer and noted.times == [slot.time for slot in after.slots]
