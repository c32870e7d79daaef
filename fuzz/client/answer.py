"""The types of orders about answers: an order makes the brokers answer a command otherwise than the models do.

`orders.py` describes what each order does.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Answer(StrEnum):
    """How the brokers answer a command."""

    FAITHFUL = "faithful"  # as the models do
    REFUSE = "refuse"
    SILENT = "silent"
    FAIL = "fail"
    CLOSE = "close"
    ERROR = "error"
    TWICE = "twice"
    QUEUED = "queued"
    RENAME = "rename"
    EAGER = "eager"
    REDIRECT = "redirect"
    VERSION = "version"
    SUCCESS_FIRST = "success_first"
    STAY = "stay"
    NEVER = "never"
    BEFORE_SUBSCRIBE = "before_subscribe"
    AFTER_SUBSCRIBE = "after_subscribe"
    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


class Order(msgspec.Struct, frozen=True):
    """The order for the next command of a kind. SUCCESS stands for PRODUCER_SUCCESS, too."""

    answer: Answer = Answer.FAITHFUL
    number: int = 0  # with Answer.VERSION, the protocol version; with Answer.ERROR, the error (not for CONNECT)
    has_address: bool = False  # with Answer.CLOSE: whether the CLOSE has the address of the broker that sends it
    is_late: bool = False  # whether SUCCESS is held back until the next command arrives, on any connection
