"""Orders about answers, as types. `orders.py` describes them."""

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
    """The order for the next command of a kind."""

    answer: Answer = Answer.FAITHFUL
    number: int = 0  # the number of the error or of the protocol version
    has_address: bool = False  # whether CLOSE has the broker's address
    is_late: bool = False  # whether SUCCESS comes just before the answer to the next command
