"""Contracts: what a client guarantees to its user. A contract judges the observation of one run (`run.Observed`).

A contract is made from a function. The function returns how the observation violates the contract, or an empty string;
its docstring is the guarantee. Contracts do not compare runs, because two runs of one schedule may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from fuzz.client.run import Observed


class Contract(NamedTuple):
    """A guarantee of the client."""

    name: str
    guarantee: str
    check: Callable[[Observed], str]


def contract(check: Callable[[Observed], str]) -> Contract:
    """Decorator: makes a contract of a function, with its name and docstring."""
    return Contract(check.__name__, " ".join((check.__doc__ or "").split()), check)


def _some(numbers: list[int]) -> str:
    """Returns the first five numbers as text, and how many more there are."""
    shown = ", ".join(str(each) for each in numbers[:5])
    return f"{shown} and {len(numbers) - 5} more" if len(numbers) > 5 else shown


# ---- the process --------------------------------------------------------------------------------------


@contract
def client_does_not_crash(seen: Observed) -> str:
    """Whatever a broker answers, the client's process does not crash."""
    return seen.crash


@contract
def client_does_not_hang(seen: Observed) -> str:
    """Every call of the client returns within its time limit."""
    return seen.hang


@contract
def operation_succeeds_while_brokers_serve(seen: Observed) -> str:
    """Creating a producer, subscribing and closing succeed, also if a broker first answers ServiceNotReady."""
    return "; ".join(seen.failed)


@contract
def client_keeps_its_connection(seen: Observed) -> str:
    """The client ends a connection only if a receipt is out of order, or if a broker refuses a lookup or a CONNECT.

    The client also ends its connections when the application closes the client.
    """
    lost = [each for each in seen.report.get("commands", ()) if each[2] == "LOST"]
    return f"the client ended {len(lost)} connections" if lost else ""


@contract
def client_frames_are_valid(seen: Observed) -> str:
    """All bytes that the client sends are frames of the protocol."""
    return "; ".join(seen.report.get("problems", ()))


# ---- the producer -------------------------------------------------------------------------------------


@contract
def acknowledged_message_is_stored(seen: Observed) -> str:
    """A message whose callback reports success is in the log."""
    log = set(seen.log)
    lost = [number for number in seen.acknowledged() if number not in log]
    return f"message {_some(lost)} was acknowledged and is not in the log" if lost else ""


@contract
def log_has_order_of_sending(seen: Observed) -> str:
    """The first copies of the messages are in the log in the order in which they were sent."""
    firsts = list(dict.fromkeys(seen.log))
    wrong = [b for a, b in pairwise(firsts) if a > b]
    return f"message {_some(wrong)} is in the log behind a later one" if wrong else ""


@contract
def deduplicated_log_has_no_duplicates(seen: Observed) -> str:
    """With deduplication, no message is in the log twice."""
    log = seen.log
    twice = [number for number in dict.fromkeys(log) if log.count(number) > 1]
    return f"message {_some(twice)} is in the log twice" if twice and seen.settings.get("deduplication") else ""


@contract
def callbacks_have_order_of_sending(seen: Observed) -> str:
    """Callbacks come in the order in which the messages were sent, at most once for each message."""
    order = [int(payload) for payload, _, _ in seen.results]
    wrong = [b for a, b in pairwise(order) if a >= b]
    return f"the callback of message {_some(wrong)} came late or again" if wrong else ""


@contract
def sequence_id_stands_for_one_message(seen: Observed) -> str:
    """No two messages, and no two batches, of a producer have the same sequence id."""
    messages: dict[int, str] = {}  # sequence id -> the message with which it was first sent
    # of each SEND: producer id, sequence id, and the first message of the batch
    sends = [about for _, _, kind, about in seen.report.get("commands", ()) if kind == "SEND"]
    wrong = [(i, messages[i], first) for _, i, first in sends if messages.setdefault(i, first) != first]
    return f"sequence id {wrong[0][0]} stands for message {wrong[0][1]} and for message {wrong[0][2]}" if wrong else ""


@contract
def resent_message_keeps_its_sequence_id(seen: Observed) -> str:
    """A message, or a batch, that is sent again has the sequence id of its first send."""
    ids: dict[str, int] = {}  # message -> the sequence id with which it was first sent
    # of each SEND: producer id, sequence id, and the first message of the batch
    sends = [about for _, _, kind, about in seen.report.get("commands", ()) if kind == "SEND"]
    wrong = [(first, ids[first], i) for _, i, first in sends if ids.setdefault(first, i) != i]
    return f"message {wrong[0][0]} has sequence id {wrong[0][1]} and sequence id {wrong[0][2]}" if wrong else ""


@contract
def every_send_completes(seen: Observed) -> str:
    """Once the brokers are faithful again, every message that the client accepted gets its callback."""
    done = {int(payload) for payload, _, _ in seen.results} | {number for number, _ in seen.not_accepted}
    left = [number for number in range(seen.begun) if number not in done]
    return f"message {_some(left)} is still pending" if left else ""


@contract
def send_fails_only_if_refused(seen: Observed) -> str:
    """A callback reports an error only for a message that a broker refused."""
    refused = set(seen.report.get("refused", ()))
    wrong = [f"{n}: {result}" for n, result, _ in seen.results if result != "Ok" and int(n) not in refused]
    return f"failed without a refusal: {', '.join(wrong[:5])}" if wrong else ""


# ---- the consumer -------------------------------------------------------------------------------------


@contract
def stored_message_is_delivered(seen: Observed) -> str:
    """Once the brokers are faithful again, an application with a consumer receives every message of the log.

    Messages that were once delivered with a wrong checksum are excepted.
    """
    received = {int(message[0]) for message in seen.received} | set(seen.report.get("corrupted", ()))
    missing = [number for number in dict.fromkeys(seen.log) if number not in received]
    return f"message {_some(missing)} was never received" if missing and seen.consumers else ""


@contract
def first_deliveries_have_order_of_log(seen: Observed) -> str:
    """A single consumer receives messages for the first time in the order of the log."""
    positions = [(ledger, entry, index) for _, ledger, entry, index, _ in seen.received]
    firsts = list(dict.fromkeys(positions))
    wrong = [b for a, b in pairwise(firsts) if a > b]
    return f"{wrong[0]} was received behind a later message" if wrong and seen.consumers == 1 else ""


@contract
def permits_are_conserved(seen: Observed) -> str:
    """At the end of a run, a consumer has between `receiverQueueSize / 2` and `receiverQueueSize` permits."""
    queue = seen.settings.get("receiver_queue", 0)
    wrong = [each for each in seen.report.get("permits", ()) if queue and not queue / 2 <= each[3] <= queue]
    said = [f"{has} permits ({granted} granted, {cost} used), its queue is {queue}" for _, granted, cost, has in wrong]
    return f"consumer has {said[0]}" if said else ""


@contract
def flow_returns_half_the_queue(seen: Observed) -> str:
    """The first FLOW of a session grants the size of the receiver queue, each later FLOW half of this size or more.

    The half is rounded down.
    """
    queue, flows = seen.settings.get("receiver_queue", 0), 0  # `flows`: the number of FLOW since the last SUBSCRIBE
    for _, _, kind, about in seen.report.get("commands", ()) if queue else ():
        flows = 0 if kind == "SUBSCRIBE" else flows + (kind == "FLOW")
        if kind == "FLOW" and (about[1] != queue if flows == 1 else about[1] < queue // 2):
            return f"FLOW {flows} of a session has {about[1]} permits, the queue is {queue}"
    return ""


@contract
def acknowledged_log_leaves_no_backlog(seen: Observed) -> str:
    """Once the application has received and acknowledged every message of the log, the backlog is empty."""
    if stored_message_is_delivered.check(seen):  # the application acknowledges each message that it receives
        return ""
    left = sum([each["not_acknowledged"] for each in seen.report.get("cursors", {}).values()])
    return f"{left} messages stay in the backlog" if left else ""


# ---- transfers ----------------------------------------------------------------------------------------


@contract
def redirect_needs_no_lookup(seen: Observed) -> str:
    """If CLOSE has the address of another broker, the client connects to that broker without a lookup (PIP-307)."""
    return f"{seen.redirect_lookups} lookups after redirects" if seen.redirect_lookups else ""


#: Contracts of a scenario that tests a consumer, the most severe first. A scenario may have only some of them.
CONSUMER = (
    client_does_not_crash,
    client_does_not_hang,
    stored_message_is_delivered,
    first_deliveries_have_order_of_log,
    permits_are_conserved,
    operation_succeeds_while_brokers_serve,
    client_keeps_its_connection,
    client_frames_are_valid,
)
#: Contracts of a scenario that tests a producer, the most severe first.
PRODUCER = (
    client_does_not_crash,
    client_does_not_hang,
    acknowledged_message_is_stored,
    log_has_order_of_sending,
    deduplicated_log_has_no_duplicates,
    callbacks_have_order_of_sending,
    sequence_id_stands_for_one_message,
    resent_message_keeps_its_sequence_id,
    every_send_completes,
    send_fails_only_if_refused,
    operation_succeeds_while_brokers_serve,
    client_keeps_its_connection,
    client_frames_are_valid,
)
