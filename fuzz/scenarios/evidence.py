"""Evidence of known deviations: a row of `known.toml` names a function of this module.

The function gets an observation that violates the row's contract, and returns whether the deviation explains the whole
violation. The docstring of the function says when the function returns True. The function looks for the deviation's
mechanism in the commands, and checks that the mechanism can reach every message that the violation is about. If another
defect also violates the contract in the same schedule, the function returns False.

Messages are numbered in the order of sending. A refused message is one whose send a broker answered with ChecksumError.
An ack by id is an ack by a deserialized message id. A filtered message is acknowledged already: the broker delivers its
entry with an ack set, by which the client drops the message.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from fuzz.client.answer import Answer
from fuzz.client.run import Observed
from fuzz.scenarios.ack_contracts import entries_acknowledged_by_id, left_at_brokers, messages_not_removed
from fuzz.scenarios.nack_contracts import (
    closed_consumer_redelivers_nothing,
    redelivery_command_has_due_entries,
    redelivery_follows_timing_law,
)

Commands = list[tuple[str, Any]]


def _commands(seen: Observed) -> Commands:
    """Returns the kind and the details of what the brokers recorded, in order (`Cluster.commands`).

    These are mostly received commands. After a command that used an order, the order follows.
    """
    return [(kind, about) for _, _, kind, about in seen.report.get("commands", ())]


def _journal(seen: Observed, kind: str) -> list[list[Any]]:
    """Returns the details of the brokers' decisions of a kind, such as deliveries, in order."""
    return [about for each, *about in seen.report.get("journal", ()) if each == kind]


# ---- sequence ids -------------------------------------------------------------------------------------


def _sessions(seen: Observed) -> list[dict[int, int]]:
    """Returns for each session of the producer: sent message -> sequence id. Of a batch, only its first message."""
    found: list[dict[int, int]] = [{}]  # the first one stands for no session, and is removed at the end
    for kind, about in _commands(seen):
        if kind == "PRODUCER":
            found.append({})
        elif kind == "SEND":
            found[-1][int(about[2])] = about[1]
    return found[1:]


def _newest_ids(seen: Observed) -> dict[int, int]:
    """Returns sent message -> its newest sequence id. Of a batch, only its first message."""
    return {message: number for session in _sessions(seen) for message, number in session.items()}


def _id_of(ids: dict[int, int], message: int) -> int | None:
    """Returns the sequence id of a message or of its batch: that of the newest key of `ids` at or before the message.

    Returns None if there is no such key.
    """
    return ids.get(max([first for first in ids if first <= message], default=-1))


def _reused(seen: Observed) -> set[int]:
    """Returns the messages that have the sequence id of an earlier message. Of a batch, only its first message."""
    owner: dict[int, int] = {}
    return {m for session in _sessions(seen) for m, number in session.items() if owner.setdefault(number, m) != m}


def sequence_ids_restart_before_first_receipt(seen: Observed) -> bool:
    """Two messages have one sequence id, and reconnections before the first receipt explain every restart of the ids.

    Ids restart at a message whose id is not above that of the message before. A session that sends all messages of
    earlier sessions again began before the first receipt. Each such session explains one restart, at a message that it
    or a later session sends first. No message changes its id.
    """
    ids: dict[int, int] = {}
    begun: dict[int, int] = {}  # message -> the first session that sends it
    reconnections: list[int] = []  # sessions that send all messages of earlier sessions again
    for number, session in enumerate(_sessions(seen)):
        if number and ids.keys() <= session.keys():
            reconnections.append(number)
        for message, sequence in session.items():
            if ids.setdefault(message, sequence) != sequence:
                return False
            begun.setdefault(message, number)
    for before, message in pairwise(sorted(ids)):
        if ids[message] <= ids[before] and (not reconnections or reconnections.pop(0) > begun[message]):
            return False
    return bool(_reused(seen))


def lost_messages_have_reused_ids(seen: Observed) -> bool:
    """Sequence ids restart, and each message that was reported as stored and is not in the log has a reused id."""
    ids, reused, log = _newest_ids(seen), _reused(seen), set(seen.log)
    lost = [m for m in seen.acknowledged() if m not in log]
    first_of_batch = [max([first for first in ids if first <= m], default=-1) for m in lost]
    return sequence_ids_restart_before_first_receipt(seen) and reused.issuperset(first_of_batch)


def _ids_of_wrongly_failed(seen: Observed) -> set[int | None]:
    """Returns the sequence ids of the messages that failed with ChecksumError although they were not refused."""
    ids, refused = _newest_ids(seen), set(seen.report.get("refused", ()))
    failed = [int(message) for message, result, _ in seen.results if result == "ChecksumError"]
    return {_id_of(ids, message) for message in failed if message not in refused}


def failed_messages_have_ids_of_refused_ones(seen: Observed) -> bool:
    """Sequence ids restart, and each message that failed and was not refused has the id of a refused message.

    No message failed with another error than ChecksumError.
    """
    ids, refused = _newest_ids(seen), seen.report.get("refused", ())
    no_other_errors = all(result in ("Ok", "ChecksumError") for _, result, _ in seen.results)
    is_shared = _ids_of_wrongly_failed(seen) <= {_id_of(ids, message) for message in refused}
    return no_other_errors and is_shared and sequence_ids_restart_before_first_receipt(seen)


def pending_messages_were_refused_and_others_failed(seen: Observed) -> bool:
    """Sequence ids restart, and each pending message was refused; another message with the same id failed instead."""
    ids, refused = _newest_ids(seen), seen.report.get("refused", ())
    with_result = {int(payload) for payload, _, _ in seen.results}
    pending = [message for message in range(seen.begun) if message not in with_result]
    failed = _ids_of_wrongly_failed(seen)
    is_refused = all(message in refused and _id_of(ids, message) in failed for message in pending)
    return is_refused and sequence_ids_restart_before_first_receipt(seen)


# ---- requests and connections -------------------------------------------------------------------------


def _answers(seen: Observed, kind: str) -> list[Answer]:
    """Returns for each producer or consumer the ordered answer to its last command of a kind.

    Without an order, the answer is FAITHFUL. The brokers record a command, and directly after it the order that the
    command used.
    """
    commands, found = _commands(seen), dict[int, Answer]()
    for (name, about), (following, details) in pairwise([*commands, ("", None)]):
        if name == kind:
            is_ordered = following == "ORDER" and details[0] == kind
            found[about[0]] = Answer(details[1]["answer"]) if is_ordered else Answer.FAITHFUL
    return list(found.values())


def segmentation_fault_after_checksum_error(seen: Observed) -> bool:
    """The client crashed with SIGSEGV, and an older message than a refused one was never reported as stored."""
    refused, stored = seen.report.get("refused", ()), set(seen.acknowledged())
    return seen.crashed_by == "was ended by SIGSEGV" and any(set(range(each)) - stored for each in refused)


def producer_was_closed_during_its_request(seen: Observed) -> bool:
    """The answer to the last PRODUCER was CLOSE before SUCCESS, and no producer is attached."""
    is_closed = _answers(seen, "PRODUCER")[-1:] == [Answer.CLOSE]
    return is_closed and bool(seen.report.get("attached", [1])[0] == 0)


def consumer_was_closed_during_its_request(seen: Observed) -> bool:
    """Some consumers are not attached: at most as many as got CLOSE before the SUCCESS of their last SUBSCRIBE."""
    closed = _answers(seen, "SUBSCRIBE").count(Answer.CLOSE)
    detached = seen.consumers - int(seen.report.get("attached", [0, 0])[1])
    return 0 < detached <= closed


def _subscribe_timed_out(seen: Observed, answer: Answer) -> bool:
    """Returns whether all failures are timeouts of subscribing, and orders explain them.

    There are at most as many failures as consumers whose last SUBSCRIBE an order refused or closed. For at least one of
    these consumers, the order was `answer`.
    """
    answers = [each for each in _answers(seen, "SUBSCRIBE") if each in (Answer.CLOSE, Answer.REFUSE)]
    is_timeout = all(each == "subscribe failed: Timeout" for each in seen.failed)
    return is_timeout and len(seen.failed) <= len(answers) and answer in answers


def subscribe_was_refused(seen: Observed) -> bool:
    """All failures are timeouts of subscribing that orders explain. The last SUBSCRIBE of a consumer was refused."""
    return _subscribe_timed_out(seen, Answer.REFUSE)


def subscribe_was_closed(seen: Observed) -> bool:
    """All failures are timeouts of subscribing that orders explain. A consumer's last SUBSCRIBE got CLOSE first."""
    return _subscribe_timed_out(seen, Answer.CLOSE)


def connections_were_lost_after_end_of_topic(seen: Observed) -> bool:
    """The client ended connections without need (LOST) only if REACHED_END_OF_TOPIC was sent on them.

    The client does not know this command.
    """
    recorded = [(kind, connection) for _, connection, kind, _ in seen.report.get("commands", ())]
    lost = {connection for kind, connection in recorded if kind == "LOST"}
    return lost <= {connection for kind, connection in recorded if kind == "REACHED_END_OF_TOPIC"}


# ---- negative acknowledgements ------------------------------------------------------------------------


def redeliveries_follow_the_model(seen: Observed) -> bool:
    """The two contracts hold by which redelivery commands agree with the model `negative_acks` (profile `cpp`)."""
    return not redelivery_follows_timing_law.check(seen) and not redelivery_command_has_due_entries.check(seen)


def closed_tracker_requests_nothing(seen: Observed) -> bool:
    """After close, no redelivery is requested."""
    return not closed_consumer_redelivers_nothing.check(seen)


def requests_for_all_messages_repeat_queued_ones(seen: Observed) -> bool:
    """Each queued message comes again at most once for each REDELIVER without ids, which requests all messages."""
    commands = [about for kind, about in _commands(seen) if kind == "REDELIVER" and not about["ids"]]
    received = [int(message[0]) for message in seen.received]
    return all(received.count(number) <= 1 + len(commands) for number in seen.queued)


# ---- acknowledgements ---------------------------------------------------------------------------------


def entries_left_came_with_an_ack_set(seen: Observed) -> bool:
    """Each entry without acks by id in `messages_not_removed` was delivered with an ack set."""
    with_ack_set = {number for *_, number, words in _journal(seen, "deliver") if words}
    return all(entry in with_ack_set for entry, _ in messages_not_removed(seen, by_id=False))


def entries_lost_were_acknowledged_by_id(seen: Observed) -> bool:
    """Each entry with lost messages has an ack by id, and an ACK command names the entry without an ack set."""
    whole = {entry for kind, about in _commands(seen) if kind == "ACK" for _, entry, words in about["ids"] if not words}
    expected = {(entry, index) for entry, index in seen.left}
    lost = {entry for entry, _ in expected - left_at_brokers(seen)}
    return lost <= whole & entries_acknowledged_by_id(seen)


def acknowledgement_by_id_was_not_sent(seen: Observed) -> bool:
    """No ACK without an ack set names an entry that still has messages although it has acks by id.

    Index acks are off in the settings, or there was a second SUBSCRIBE, which may have switched them off.
    """
    subscribed = [kind for kind, _ in _commands(seen)].count("SUBSCRIBE")
    whole = {entry for kind, about in _commands(seen) if kind == "ACK" for _, entry, words in about["ids"] if not words}
    left = {entry for entry, _ in messages_not_removed(seen, by_id=True)}
    return (subscribed > 1 or not seen.settings.get("index_acks", True)) and not left & whole


def redeliveries_differ_in_entries_acknowledged_by_id(seen: Observed) -> bool:
    """After a reconnection, only entries with acks by id have missing or extra messages."""
    both = [({tuple(each) for each in left}, {tuple(each) for each in got}) for left, got in seen.redelivered]
    return {entry for left, got in both for entry, _ in left ^ got} <= entries_acknowledged_by_id(seen)


def lost_cumulative_ack_covers_backlog(seen: Observed) -> bool:
    """Cumulative acks of the application cover the backlog, and a broker ignored or rejected a cumulative ACK."""
    acks = [about for kind, about in _commands(seen) if kind == "ACK" and about["cumulative"] and not about["accepted"]]
    # Entry and batch index; an ack without an index covers the whole entry.
    calls = [
        (each[4], each[5] if each[5] >= 0 else 2**31) for each in seen.calls if each[0] == "acknowledge_cumulative"
    ]
    left = left_at_brokers(seen)
    return bool(acks and calls and left) and max(left) <= max(calls)


# ---- permits ------------------------------------------------------------------------------------------


def _permits_follow_deviations(seen: Observed) -> bool:
    """Returns whether `permits_are_conserved` holds without the effects of two deviations.

    A delivery costs one permit for each message that is not filtered, and the client should return as many permits.
    Instead, the client returns one permit for a corrupt batch. For an intact batch, it returns one permit for each
    message, filtered or not.
    """
    sizes = [len(entry[4]) for entry in seen.report.get("log", ())]
    extra = Counter[int]()  # session -> permits that the client returned too much; below 0: too few
    returned = cost = 0
    for kind, *about in seen.report.get("journal", ()):
        if kind == "deliver":
            _, session, number, words = about
            returned = sizes[number]  # as for an intact batch; the decision `corrupt`, if any, follows
            cost = returned if words is None else sum([(word % 2**64).bit_count() for word in words])  # words: signed
            extra[session] += returned - cost
        elif kind == "corrupt":  # the batch of the last delivery: the client returned one permit
            extra[about[1]] += 1 - returned
    queue = seen.settings.get("receiver_queue", 0)
    return all(queue / 2 <= permits - extra[session] <= queue for session, permits in _permits(seen))


def _permits(seen: Observed) -> list[tuple[int, int]]:
    """Returns the session and the permits of each consumer."""
    dispatchers = seen.report.get("dispatchers", {}).values()
    return [(session, permits) for consumers in dispatchers for session, permits, _ in consumers]


def permits_of_corrupt_batches_are_lost(seen: Observed) -> bool:
    """The permits follow both deviations, and a consumer has permits for less than half its queue."""
    half = seen.settings.get("receiver_queue", 0) / 2
    return _permits_follow_deviations(seen) and any(permits < half for _, permits in _permits(seen))


def consumer_stalls_without_permits(seen: Observed) -> bool:
    """No consumer has permits, because the client does not return those of corrupt batches."""
    return permits_of_corrupt_batches_are_lost(seen) and all(permits <= 0 for _, permits in _permits(seen))


def filtered_messages_return_permits(seen: Observed) -> bool:
    """The permits follow both deviations, and a consumer has more permits than its queue."""
    queue = seen.settings.get("receiver_queue", 0)
    return _permits_follow_deviations(seen) and any(permits > queue for _, permits in _permits(seen))
