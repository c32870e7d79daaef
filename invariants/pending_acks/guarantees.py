"""What a pending-ack store promises.

The log is the truth: what it says is worked out here anew, message by message, and compared with what memory holds.
Acknowledgements of parts of entries where parts do not count are of no message. A property that some shipped version
breaks says so in its last sentence.
"""

from __future__ import annotations

from itertools import pairwise

from invariants.pending_acks.messages import (
    ENDS,
    NOTHING_HELD,
    Bits,
    Held,
    acked,
    comes,
    everything,
    held_by,
    in_memory,
    is_error,
    left_by,
    not_acked,
    open_calls,
    open_tickets,
    said,
    told,
    up_to,
    worked_off,
)
from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.machine import Failed, Refused
from model.pending_acks.machine import Effects, pending_acks
from model.pending_acks.state import Config, Entry, Messages, Part, State

# ---- memory and the log -------------------------------------------------------------------------------


@always(pending_acks)
def memory_is_what_the_log_says(cfg: Config, s: State) -> bool:
    """Whenever the store serves, live or after a replay, exactly what its log says is pending, message by message.

    Messages that are acknowledged do not count. So a replay gives what was live. As shipped, a replay drops a whole
    acknowledgement of which the cursor has a part, it forgets the set of a cumulative one, it ends that of another
    transaction, it may read less than the log; and an append that failed changes memory.
    """
    if s.status != "ready" or (not s.log and not s.held and s.cumulative is None):
        return True
    wanted, found = said(s).held, in_memory(s)
    for txn in wanted.keys() | found.keys():
        one, other = (each.get(txn, NOTHING_HELD).bits(cfg, s.acks.mark) for each in (wanted, found))
        if one != other and not_acked(cfg, s.acks, one) != not_acked(cfg, s.acks, other):
            return False
    return True


@always(pending_acks)
def a_committed_ack_is_not_redelivered(cfg: Config, s: State) -> bool:
    """Whenever the store serves, every message that a transaction held when it was committed is acknowledged.

    So it is after a crash that made the cursor forget it. As shipped, a replay loses acknowledgements and commits less.
    """
    if s.status != "ready":
        return True
    committed = said(s).committed
    return not any(not_acked(cfg, s.acks, each.bits(cfg, s.acks.mark)) for each in committed)


@always(pending_acks)
def no_two_transactions_hold_one_message(cfg: Config, s: State) -> bool:
    """No message is pending in two transactions by acknowledgements of its own entry: one of them got a conflict.

    As shipped, a part of an entry whose messages are all pending one by one, in one transaction or in several, is no
    conflict, and an acknowledgement whose append failed is pending without a check.
    """
    seen: Bits = {}
    for holder in s.held:
        for part in holder.parts:
            bits = everything(cfg, part.entry) & ~(part.leaves or 0)
            if seen.get(part.entry, 0) & bits & ~acked(cfg, s.acks, part.entry):
                return False
            seen[part.entry] = seen.get(part.entry, 0) | bits
    return True


@always(pending_acks)
def only_a_store_that_is_open_has_memory(cfg: Config, s: State) -> bool:
    """A store that is not open holds nothing, and nobody waits in its buffer or its queue."""
    is_waiting = (bool(s.buffer) and s.status != "ready") or (bool(s.queue) and s.status != "initializing")
    has_memory = bool(s.held) or s.cumulative is not None or s.log_index.lag > 0 or s.low_watermark > 0
    return not is_waiting and (s.status in ("ready", "initializing") or not has_memory)


# ---- requests -----------------------------------------------------------------------------------------


@always(pending_acks)
def every_request_is_answered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Who asks for anything is told once what became of it, unless a crash comes first.

    As shipped, a part of an entry that is wholly pending is never answered.
    """
    if event.name == "crash":
        return is_error(event) or not open_tickets(after)
    if before.next_ticket == after.next_ticket and before.in_flight is after.in_flight and before.queue is after.queue:
        return before.buffer is after.buffer or open_tickets(before) == open_tickets(after) or bool(told(event))
    asked = [before.next_ticket] if after.next_ticket > before.next_ticket else []
    return sorted([*told(event), *open_tickets(after)]) == sorted([*open_tickets(before), *asked])


@always(pending_acks)
def requests_keep_their_order(cfg: Config, s: State) -> bool:
    """Requests come to the log in the order in which they were asked, also those from before the store was open."""
    tickets = open_tickets(s)
    return all(one < other for one, other in pairwise(tickets))


@always(pending_acks, on=("ack_individual", "ack_cumulative"))
def only_a_conflict_is_a_conflict(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that serves refuses an acknowledgement exactly if somebody has it: it is acknowledged or pending already.

    A whole entry conflicts with any part of it that is pending, a cumulative acknowledgement with one of another
    transaction, and with its own if it is no further. Acknowledgements on their way to the log count.
    """
    if before.status != "ready" or isinstance(event.outcome, Refused):
        return True
    is_early = cfg.conflicts_are_found == "before_the_append"
    return isinstance(event.outcome, Failed) == (is_early and conflicts(cfg, before, event))


def conflicts(cfg: Config, s: State, event: Event) -> bool:
    """Somebody has what is asked for."""
    txn = event.arguments["txn"]
    coming = [call.record for call in open_calls(s) if call.record.op == "ack"]
    if event.name == "ack_cumulative":
        entry, leaves = event.arguments["entry"], event.arguments["leaves"]
        claims = [(s.cumulative.txn, s.cumulative.part)] if s.cumulative is not None else []
        claims += [(each.txn, each.parts[0]) for each in coming if each.cumulative]
        last = claims[-1] if claims else None
        bits = up_to(cfg._replace(batch_acks=True), Part(entry, leaves), 0)
        reached = up_to(cfg._replace(batch_acks=True), last[1], 0) if last else {}
        is_further = any(each & ~reached.get(n, 0) for n, each in bits.items())
        return entry < s.acks.mark or (last is not None and (last[0] != txn or not is_further))
    parts = [part for holder in s.held for part in holder.parts]
    parts += [part for each in coming if not each.cumulative for part in each.parts]
    for entry, leaves in event.arguments["acks"]:
        claimed = [everything(cfg, entry) & ~(part.leaves or 0) for part in parts if part.entry == entry]
        asked, known = everything(cfg, entry) & ~(leaves or 0), acked(cfg, s.acks, entry)
        if known == everything(cfg, entry) or any(asked & each for each in claimed) or (leaves and asked & known):
            return True
    return False


@always(pending_acks)
def what_is_rejected_is_not_in_the_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request that was answered with a conflict leaves no record: else a replay could bring it back.

    As shipped, it does, for conflicts are looked for when the record is in the log.
    """
    tickets = [call.ticket for call in before.in_flight[0]] if event.name in ENDS and before.in_flight else []
    return not any(what == "conflict" and ticket in tickets for ticket, what in told(event).items())


@always(pending_acks, on=("written",))
def who_is_told_of_an_ack_has_it_alone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a caller is told that an acknowledgement is pending, no message of its list is pending in another's name.

    As shipped, a message is, if it lies in the zero words at the end of the set of what is pending, which are cut.
    """
    for call, memory, _ in worked_off(cfg, before, event, after):
        each = call.record
        parts = each.parts if each.op == "ack" and not each.cumulative else ()
        asked = {part.entry: everything(cfg, part.entry) & ~(part.leaves or 0) for part in parts}
        others = (
            [part for txn, held in memory.items() if txn != each.txn for part in held.parts.values()] if asked else []
        )
        if any(asked.get(part.entry, 0) & ~(part.leaves or 0) for part in others):
            return False
    return True


@always(pending_acks, on=("written",))
def who_is_told_of_a_commit_has_it(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a caller is told that a transaction is committed, all that it held is acknowledged, and it holds nothing.

    As shipped, the record says of which kind the commit is, as it looked when the commit came; the rest stays pending.
    """
    return all_is_committed(cfg, before, event, after)


@always(pending_acks, on=("written",))
def a_cumulative_commit_takes_the_rest_along(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit of a transaction that has acknowledged in both ways is a commit of both.

    As shipped, only the cumulative acknowledgement is committed, and the others stay pending.
    """
    return all_is_committed(cfg, before, event, after, of_both=True)


def all_is_committed(cfg: Config, before: State, event: Event, after: State, *, of_both: bool = False) -> bool:
    """What was held when a commit came back is acknowledged; who held it holds nothing, but for what came after it.

    With `of_both`, only commits count that are of a cumulative acknowledgement, at least.
    """
    ended: set[int] = set()
    for back in worked_off(cfg, before, event, after):
        each = back.call.record
        if each.op == "ack":
            ended.discard(each.txn)
        elif each.op == "commit" and (not of_both or (each.cumulative and held_by(back).cumulative is not None)):
            ended.add(each.txn)
            if not_acked(cfg, after.acks, held_by(back).bits(cfg, before.acks.mark)):
                return False
    return not ended & in_memory(after).keys()


@always(pending_acks, on=("written",))
def messages_one_by_one_count_as_the_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a transaction is committed, each entry is acknowledged of which it acknowledged all messages one by one.

    As shipped until pull request 24406, it is not where acknowledgements of parts of entries do not count.
    """
    if before.cumulative is not None or any(call.record.cumulative for call in comes(before, event)):
        return True
    for back in worked_off(cfg, before, event, after):
        whole = [part.entry for part in held_by(back).parts.values() if not part.leaves]
        if back.call.record.op == "commit" and any(acked(cfg, after.acks, n) != everything(cfg, n) for n in whole):
            return False
    return True


@always(pending_acks, on=("commit",))
def a_commit_is_not_answered_before_it_is_in_the_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit of a transaction that holds anything is answered only when its record is in the log.

    As shipped, it is answered at once and does nothing while another transaction has a cumulative acknowledgement.
    """
    return is_error(event) or event.outcome.told == "waits" or event.arguments["txn"] not in in_memory(before)


@always(pending_acks)
def a_failed_append_changes_no_memory(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an append that failed, and is perhaps in the log, the store serves nobody until its log was read again.

    As shipped, it goes on as if the append had not failed, and a crash may show that it had.
    """
    return event.name != "write_fails" or is_error(event) or after.status not in ("ready", "initializing")


@always(pending_acks, on=("cursor_refuses",))
def a_commit_that_is_refused_is_not_done(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If the cursor does not take what a transaction commits, its caller is told of failure, and the store is opened
    anew, or the acknowledgements stay pending.

    As shipped until pull request 25528, they were forgotten, and the caller was told of success.
    """
    for back in worked_off(cfg, before, event, after):
        held = held_by(back)
        if back.call.record.op == "commit" and not_acked(cfg, after.acks, held.bits(cfg, before.acks.mark)):
            return False
    return True


@always(pending_acks)
def what_is_acknowledged_stays_so(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only a crash makes the subscription's cursor forget an acknowledgement, and none makes its storage forget."""
    for old, new in ((before.acks, after.acks), (before.durable, after.durable)):
        if old is new or (event.name == "crash" and old is before.acks):
            continue
        entries = range(old.mark, max(old.deleted.bit_length(), *[p.entry + 1 for p in old.partial], old.mark))
        if new.mark < old.mark or any(acked(cfg, old, n) & ~acked(cfg, new, n) for n in entries):
            return False
    return True


# ---- aborts -------------------------------------------------------------------------------------------


@always(pending_acks, on=ENDS)
def an_aborted_ack_is_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a transaction is aborted, consumers get every message again that only it held and that is not acknowledged.

    As shipped, nothing of it is released while another transaction has a cumulative acknowledgement.
    """
    ended = wrongly_redelivered(cfg, before, event, after)
    return ended is None or ended.cumulative is not None


@always(pending_acks, on=ENDS)
def an_aborted_cumulative_ack_is_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a cumulative acknowledgement is aborted, consumers get everything again up to it that nobody else has.

    As shipped, nothing of it is released if the abort came before the acknowledgement was in the log.
    """
    ended = wrongly_redelivered(cfg, before, event, after)
    return ended is None or ended.cumulative is None


def wrongly_redelivered(cfg: Config, before: State, event: Event, after: State) -> Held | None:
    """What the first abort of an entry ended that does not redeliver, in its turn, exactly what it leaves to nobody."""
    if all(call.record.op != "abort" for call in comes(before, event)):
        return None
    found, ended = list(event.outcome.redelivered), None
    for back in worked_off(cfg, before, event, after):
        if back.call.record.op != "abort":
            continue
        wanted = [Messages(n, bits) for n, bits in sorted(left_by(cfg, before, back).items())]
        ended = held_by(back)
        if found[: len(wanted)] != wanted:
            return ended
        del found[: len(wanted)]
    return ended if found else None


@always(pending_acks, on=ENDS)
def what_is_pending_is_not_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No message is redelivered that is acknowledged, or that another transaction holds when an abort releases it."""
    if is_error(event) or not event.outcome.redelivered or after.status != "ready":
        return True
    ended = {call.record.txn for call in before.in_flight[0] if call.record.op != "ack"}
    held = [each.bits(cfg, after.acks.mark) for txn, each in in_memory(before).items() if txn not in ended]
    return not any(
        bits & (acked(cfg, before.acks, n) | each.get(n, 0))
        for n, bits in event.outcome.redelivered
        for each in (*held, {})
    )


@always(pending_acks, on=ENDS)
def stale_transactions_are_aborted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a transaction has ended, each that holds anything and is not above the low watermark is on its way out.

    As shipped, only the one that acknowledged first is looked at, and only if the one that ends had acknowledged
    message by message: the others wait.
    """
    if after.status != "ready" or all(call.record.op == "ack" for call in comes(before, event)):
        return True
    marks: list[int] = []
    fresh: set[int] = set()  # who holds anything only since the last end
    for call, memory, _ in worked_off(cfg, before, event, after):
        if call.record.op != "ack":
            marks.append(call.low_watermark)
            fresh = set()
        elif call.record.txn not in memory:
            fresh.add(call.record.txn)
    ending = {call.record.txn for call in open_calls(after) if call.record.op == "abort"}
    ended = max(after.low_watermark, *marks) if marks else -1
    return all(txn > ended or txn in ending for txn in in_memory(after).keys() - fresh)


# ---- the log and its index ----------------------------------------------------------------------------


@always(pending_acks)
def what_is_trimmed_was_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry of the log goes only when every entry of the topic that it acknowledges is before the durable mark.

    As shipped, one whose append was reported as failed may go too early, for the index does not know of it: then an
    acknowledgement that is committed later is lost in a crash.
    """
    gone = event.outcome.trimmed if isinstance(event.outcome, Effects) else 0
    gone = event.outcome if event.name == "read_entry" and not is_error(event) else gone
    parts = [part for entry in log_and_in_flight(before)[:gone] for each in entry for part in each.parts]
    return all(part.entry < before.durable.mark for part in parts)


def log_and_in_flight(s: State) -> tuple[Entry, ...]:
    """The log as it is when all that is in flight is in it: an entry may go as soon as it comes."""
    return s.log + tuple([tuple([call.record for call in calls]) for calls in s.in_flight])


@always(pending_acks)
def whole_entries_are_trimmed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The log grows after its last entry and is cut in front, entry by entry: no record goes alone, none changes."""
    if before.log is after.log:
        return True
    whole = log_and_in_flight(before)
    came = len(before.in_flight) if event.name == "crash" else event.name in (*ENDS, "write_fails")
    ends = range(max(len(before.log), len(after.log)), len(before.log) + came + 1)
    return any(whole[end - len(after.log) : end] == after.log for end in ends)


@always(pending_acks)
def the_index_grows_in_both_columns(cfg: Config, s: State) -> bool:
    """Keys stand in the order of entries of the topic and of the log alike, none twice, none after the log's end."""
    keys = s.log_index.keys
    is_growing = all(a.entry < b.entry and a.at < b.at for a, b in pairwise(keys))
    return is_growing and (not keys or (keys[-1].at < len(s.log) and keys[0].at >= 0))


@always(pending_acks)
def the_index_stays_sparse(cfg: Config, s: State) -> bool:
    """Between one key and the next there are as many records as the setting says, times the keys still there before it.

    So the number of keys grows as the square root of the number of records.
    """
    keys = s.log_index.keys
    for count, (one, other) in enumerate(pairwise(keys), 1):
        if sum(len(entry) for entry in s.log[one.at + 1 : other.at + 1]) < cfg.min_lag * count:
            return False
    return True


@always(pending_acks)
def a_key_speaks_of_all_before_it(cfg: Config, s: State) -> bool:
    """Up to a key's entry of the log, itself included, no entry of the topic after the key's is acknowledged.

    As shipped, an entry whose append was reported as failed stands in the log without the index knowing.
    """
    reached = [max([part.entry for each in entry for part in each.parts], default=-1) for entry in s.log]
    return all(max(reached[: key.at + 1]) <= key.entry for key in s.log_index.keys)


@always(pending_acks)
def the_lag_counts_what_has_no_key(cfg: Config, s: State) -> bool:
    """The lag is the number of records in the log after the last key, as far as they were called back or read.

    As shipped, an entry whose append was reported as failed is not counted, nor what a replay did not read.
    """
    if s.status not in ("ready", "initializing"):
        return True
    keys = s.log_index.keys
    known = s.log if s.status == "ready" else s.log[: s.progress]
    return s.log_index.lag == sum(len(entry) for entry in known[keys[-1].at + 1 if keys else 0 :])


@always(pending_acks, on=("written", "read_entry"))
def nothing_is_kept_that_the_index_lets_go(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When an entry was written or read, no key is left before the durable mark: what it speaks of is trimmed."""
    is_known = not is_error(event) and after.status in ("ready", "initializing")
    return not is_known or all(key.entry >= after.durable.mark for key in after.log_index.keys)


# ---- replay -------------------------------------------------------------------------------------------


@always(pending_acks, on=("read_fails",))
def a_replay_that_stops_early_fails(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store whose log could not be read to the end is not ready, and those who wait for it are told of failure.

    As shipped, it is ready with what was read so far.
    """
    return is_error(event) or after.status != "ready"


@always(pending_acks, on=("read_fails",))
def a_read_is_not_tried_for_ever(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each read that fails brings the replay nearer to its end.

    As shipped, it is tried again at once, and again, a thousand times a second.
    """
    return is_error(event) or after.attempts > before.attempts or after.status != "initializing"


@always(pending_acks, on=("read_entry",))
def a_step_of_a_replay_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """As long as a replay goes on, there is something to read, and each step reads an entry.

    As shipped, a cursor that is reused stands after what the replay waits for, and it spins.
    """
    return not isinstance(event.outcome, Failed)


@always(pending_acks, on=("read_entry",))
def a_replayed_end_is_its_owner_s(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An end that is read again changes nothing of what other transactions hold.

    As shipped, the abort of one transaction ends the cumulative acknowledgement of another.
    """
    if is_error(event):
        return True
    named = {each.txn for each in before.log[before.read]}
    old, new = in_memory(before), in_memory(after)
    return all(new.get(txn) == held for txn, held in old.items() if txn not in named)


@always(pending_acks, on=("read_entry",))
def a_replay_drops_no_message_that_is_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An acknowledgement that is read again is dropped only where the cursor has it, entry by entry of its list.

    As shipped, a list is dropped if the cursor has one entry of it, and what was committed with it is redelivered.
    """
    records = () if is_error(event) else before.log[before.read]
    if len(records) != 1 or records[0].op != "ack" or records[0].cumulative:
        return True
    claimed = {part.entry for holder in before.held for part in holder.parts}
    if claimed & {part.entry for part in records[0].parts}:
        return True
    left = {part.entry for part in records[0].parts if not acked(cfg, before.acks, part.entry)}
    return left <= {part.entry for holder in after.held if holder.txn == records[0].txn for part in holder.parts}


@always(pending_acks, on=("read_entry",))
def a_cumulative_ack_keeps_its_set(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative acknowledgement that is read again is of the messages of which it was, and of no more.

    As shipped, it is of the whole batch into which it goes.
    """
    if is_error(event) or after.cumulative is None or after.cumulative == before.cumulative:
        return True
    txn, part = after.cumulative
    acks = [each for entry in before.log for each in entry if each.txn == txn and each.op == "ack" and each.cumulative]
    return any(each.parts == (part,) for each in acks)


@eventually(pending_acks, fair=("read_entry", "end_replay"))
def a_replay_ends(cfg: Config, s: State) -> bool:
    """A replay comes to its end if it goes on reading."""
    return s.status != "initializing"


@eventually(pending_acks, fair=("read_fails",))
def a_replay_whose_reads_fail_ends(cfg: Config, s: State) -> bool:
    """A replay comes to an end also if every read of it fails."""
    return s.status != "initializing" or s.progress == len(s.log)


@eventually(pending_acks, fair=("flush", "written", "read_entry", "end_replay"))
def requests_are_answered_in_the_end(cfg: Config, s: State) -> bool:
    """If entries are written and replays go on, nobody waits for ever."""
    return not open_tickets(s)


# ---- what a run must have seen ------------------------------------------------------------------------


@once_per_state
def ops(s: State) -> list[str]:
    """What the records of the log are."""
    return [each.op for entry in s.log for each in entry]


@sometimes(pending_acks, on=("crash",))
def a_crash_forgets_a_commit(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit is in the log, and a crash makes the cursor forget what it acknowledged: a replay must bring it back."""
    return "commit" in ops(before) and after.acks != before.acks and "ack" in ops(before)


@sometimes(pending_acks, on=("crash",))
def an_entry_in_flight_survives(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash leaves an entry in the log of which nobody was told."""
    return len(after.log) > len(before.log)


@sometimes(pending_acks, on=("read_entry",))
def a_replay_drops_a_part(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds an acknowledgement of several entries of which the cursor has one."""
    if is_error(event):
        return False
    lists = [each for each in before.log[before.read] if each.op == "ack" and len(each.parts) > 1]
    known = [[acked(cfg, before.durable, p.entry) == everything(cfg, p.entry) for p in each.parts] for each in lists]
    return any(any(each) and not all(each) for each in known)


@sometimes(pending_acks, on=ENDS)
def several_keys_go_at_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The mark has moved over more than one key."""
    return len(before.log_index.keys) > len(after.log_index.keys) + 1 and after.status == "ready"


@sometimes(pending_acks)
def trimming_waits_for_the_next_append(cfg: Config, s: State) -> bool:
    """The mark has passed a key, and the log keeps what could go: an idle subscription keeps its log for ever."""
    return s.status == "ready" and any(key.entry < s.durable.mark for key in s.log_index.keys)


@sometimes(pending_acks, on=ENDS)
def an_abort_redelivers_what_others_do_not_hold(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction is aborted that shares an entry with another one."""
    if is_error(event) or not event.outcome.redelivered:
        return False
    entries = {part.entry for holder in after.held for part in holder.parts}
    return any(n in entries for n, _ in event.outcome.redelivered)


@sometimes(pending_acks, on=ENDS)
def an_abort_redelivers_what_its_own_entry_has(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry has an acknowledgement and, after it, its transaction's abort, which redelivers it."""
    aborts = [back for back in worked_off(cfg, before, event, after) if back.call.record.op == "abort"]
    return any(left_by(cfg, before, back) for back in aborts if back.call.record.txn not in in_memory(before))


@sometimes(pending_acks, on=ENDS)
def a_stale_transaction_is_aborted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The end of one transaction aborts another, for which nobody asks any more."""
    return not is_error(event) and any(call.ticket == 0 for call in open_calls(after))


@sometimes(pending_acks, on=("end_replay",))
def a_request_has_waited_for_the_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Requests that came before the store was ready go to the log."""
    return len(before.queue) > 1 and len(open_calls(after)) > 1


@sometimes(pending_acks, on=("cursor_refuses",))
def a_commit_is_refused(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The cursor does not take what a transaction commits."""
    return "failed" in told(event).values() and bool(comes(before, event))


@sometimes(pending_acks, on=ENDS)
def a_cumulative_ack_into_a_batch_is_committed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative acknowledgement that leaves messages of its entry is committed."""
    claim = before.cumulative
    is_part = claim is not None and claim.part.leaves is not None and after.cumulative is None
    return is_part and after.status == "ready" and after.acks != before.acks


@sometimes(pending_acks, on=ENDS)
def messages_one_by_one_are_a_whole_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction is committed that acknowledged all messages of a batch one by one."""
    has_it = any(part.leaves == 0 for holder in before.held for part in holder.parts)
    return has_it and after.status == "ready" and len(after.held) < len(before.held) and after.acks is not before.acks


@sometimes(pending_acks, on=("written", "write_fails"))
def an_entry_comes_after_one_that_failed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is written although one before it was not: its callers are told of failure, and it is in the log."""
    return event.name == "written" and before.status == "error" and not is_error(event)
