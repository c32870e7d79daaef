"""What the transaction log of a coordinator promises.

The measure of most promises is the whole log, read from its first record by rules that are said here once more: what it
says of each transaction, whatever is deleted. A property that some shipped version breaks says so in its last sentence.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.batch_acks.state import Acks
from model.machine import Failed, Refused
from model.txn_log.machine import txn_log
from model.txn_log.replay import Recovered
from model.txn_log.state import Config, Entry, Place, Promise, Record, State, Txn

RESTARTS = ("reopen", "crash")
APPENDS = ("new_transaction", "add_participant", "update_status", "flush")
FAILURES = ("write_fails", "creation_fails", "fence")
REPLAY = ("replay_entry", "replay_completes", "read_fails")

#: The only steps that a transaction takes: from, to.
STEPS = {("OPEN", "COMMITTING"), ("OPEN", "ABORTING"), ("COMMITTING", "COMMITTED"), ("ABORTING", "ABORTED")}
HAS_ENDED = {"COMMITTED", "ABORTED"}
COMMITS, ABORTS = {"COMMITTING", "COMMITTED"}, {"ABORTING", "ABORTED"}


class Said(NamedTuple):
    """What a log says of a transaction, and the places of the records that say it."""

    status: str
    partitions: frozenset[int]
    subscriptions: frozenset[int]
    places: tuple[Place, ...]


def names(mask: int) -> frozenset[int]:
    """The names in a mask."""
    return frozenset([n for n in range(mask.bit_length()) if mask >> n & 1])


def said_then(said: Said, record: Record, place: Place) -> Said:
    """What a log says of a transaction after one more record of it; the same if that has no effect."""
    places = (*said.places, place)
    if record.op == "NEW":
        return said._replace(places=places)
    if record.to is not None:
        if (said.status, record.to) in STEPS:
            return said._replace(status=record.to, places=places)
    elif said.status == "OPEN":
        field = "partitions" if record.op == "ADD_PARTITION" else "subscriptions"
        return said._replace(**{field: getattr(said, field) | {record.name}, "places": places})
    return said


@once_per_state
def what_the_log_says(s: State) -> dict[int, Said]:
    """What the kept log says of every transaction whose beginning it has, from its first record to its last."""
    found: dict[int, Said] = {}
    for number, entry in enumerate(s.log, s.first):
        for at, record in enumerate(entry):
            place = Place(number, at)
            if record.txn in found:
                found[record.txn] = said_then(found[record.txn], record, place)
            elif record.op == "NEW":
                found[record.txn] = Said("OPEN", frozenset(), frozenset(), (place,))
    return found


def said_of(t: Txn) -> Said:
    """What a store says of a transaction."""
    return Said(t.status, names(t.partitions), names(t.subscriptions), t.places)


def living(said: dict[int, Said]) -> dict[int, Said]:
    """The transactions that have not ended."""
    return {txn: each for txn, each in said.items() if each.status not in HAS_ENDED}


def left(acks: Acks, entry: int, size: int) -> int:
    """The mask of the records of an entry that are not deleted."""
    if entry < acks.mark or acks.deleted >> entry & 1:
        return 0
    return {p.entry: p.remaining for p in acks.partial}.get(entry, (1 << size) - 1)


def left_in(s: State, acks: Acks) -> list[int]:
    """What is left of each entry that is kept."""
    return [left(acks, n, len(entry)) for n, entry in enumerate(s.log, s.first)]


def fits(cfg: Config, s: State) -> bool:
    """A record of the cursor can hold all deletions: a range of deleted entries ends with its ledger."""
    begins = s.acks.deleted & ~(s.acks.deleted << 1)
    for first in accumulate(s.ledgers[:-1], initial=s.first) if begins else ():
        begins |= s.acks.deleted & 1 << first
    return begins.bit_count() <= cfg.max_ranges and len(s.acks.partial) <= cfg.max_batch_records


def needed_by(s: State) -> list[int]:
    """The records of each entry that some living transaction has."""
    masks = [0] * len(s.log)
    for t in s.txns:
        for entry, at in t.places:
            masks[entry - s.first] |= 1 << at
    return masks


def is_served(s: State) -> bool:
    """The store serves operations, and can delete."""
    return s.status == "ready" and s.cursor_works


def is_error(event: Event) -> bool:
    """The call was refused, or failed."""
    return isinstance(event.outcome, Refused | Failed)


def is_recovered(event: Event) -> bool:
    """A store has become ready."""
    return isinstance(event.outcome, Recovered)


def on_the_way(s: State) -> list[Record]:
    """The records whose callers wait, in the order in which they are written."""
    return [record for entry in (*s.in_flight, s.buffer) for record in entry]


def may_become(before: str, after: str) -> bool:
    """Whether a transaction can get from one status to the other."""
    return before == after or any(a == before and may_become(b, after) for a, b in STEPS)


# ---- durability ---------------------------------------------------------------------------------------


@always(txn_log)
def acknowledged_means_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Whoever is told that an operation is done can rely on its record: it is in the log by then.

    Where nothing had to be written, the transaction has the status that was asked for already.
    """
    if is_error(event) or event.name not in (*APPENDS, *FAILURES, "written", "reopen"):
        return True
    done = [answer for answer in event.outcome if answer.told == "done"]
    if event.name == "update_status" and done:
        txn, to = event.arguments["txn"], event.arguments["to"]
        return after is before and [t.status for t in before.txns if t.id == txn] == [to]
    if event.name != "written":
        return not done
    entry = before.in_flight[0]
    told = [(answer.txn, answer.op) for answer in event.outcome]
    return after.log[-1] == entry and len(after.log) == len(before.log) + 1 and told == [(r.txn, r.op) for r in entry]


@always(txn_log)
def every_caller_is_told_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A caller waits until told what became of the operation, in the order of the calls, but an append that is refused
    at once overtakes what is in flight; a crash tells nobody.
    """
    if event.name == "crash" or is_error(event):
        return event.name != "crash" or not on_the_way(after)
    waiting = [(r.txn, r.op) for r in on_the_way(before)]
    if event.name == "new_transaction":
        waiting.append((before.last_id + 1, "NEW"))
    elif event.name == "add_participant":
        waiting.append((event.arguments["txn"], event.arguments["op"]))
    elif event.name == "update_status":
        waiting.append((event.arguments["txn"], "UPDATE"))
    is_told = event.name in (*APPENDS, *FAILURES, "written", "reopen")
    told = [(a.txn, a.op) for a in event.outcome] if is_told else []
    waits = [(r.txn, r.op) for r in on_the_way(after)]
    if after.ledger in ("fenced", "closed") or event.name == "update_status":
        return sorted(waiting) == sorted(told + waits)
    return waiting == told + waits


@always(txn_log)
def only_what_is_written_is_in_the_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Entries come to the end of the log in the order in which they were sent, whole; trimming alone drops any."""
    if after.log is before.log:
        return True
    if event.name == "trim":
        return after.log == before.log[after.first - before.first :]
    new = after.log[len(before.log) :]
    return after.log[: len(before.log)] == before.log and new == before.in_flight[: len(new)]


# ---- deletions ----------------------------------------------------------------------------------------


@always(txn_log)
def an_entry_is_deleted_when_all_its_records_are(cfg: Config, s: State) -> bool:
    """In a store that serves, exactly the records that no living transaction has are deleted, and an entry with none
    left is deleted as a whole.

    As shipped before 4.1, a store that is opened without batching can delete no part of an entry, so that batches which
    were written before are never deleted.
    """
    if not is_served(s):
        return True
    gone = [n for n in range(s.first, s.first + len(s.log)) if n < s.acks.mark or s.acks.deleted >> n & 1]
    needed = needed_by(s)
    return left_in(s, s.acks) == needed and gone == [n for n, mask in enumerate(needed, s.first) if mask == 0]


@always(txn_log, on=("written",))
def an_end_deletes_what_the_transaction_had(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a transaction ends, all its records are deleted, in batches, too, whether the store batches now or not.

    As shipped before 4.1, a store that is opened without batching ignores deletions in batches that it finds.
    """
    alive = {t.id for t in after.txns}
    ended = [t for t in before.txns if t.id not in alive] if after.cursor_works else []
    masks = left_in(after, after.acks) if ended else []
    return not any(masks[p.entry - after.first] >> p.at & 1 for t in ended for p in t.places)


@always(txn_log)
def deletions_only_grow(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What is deleted stays deleted as long as the store is open."""
    if event.name in RESTARTS or after.acks is before.acks:
        return True
    gone = after.first - before.first
    pairs = zip(left_in(before, before.acks)[gone:], left_in(after, after.acks), strict=False)
    return all(more & ~less == 0 for less, more in pairs)


@always(txn_log)
def nothing_of_an_ended_transaction_is_deleted_before_its_first_record(cfg: Config, s: State) -> bool:
    """Whatever a crash leaves of the deletions: where any record of an ended transaction is deleted, so is its first
    one. Else the transaction would come back: without its closing record, or without a step that leads to it.

    As shipped, ranges of deleted entries and parts of entries are cut each on their own, and the metadata store forgets
    parts.
    """
    masks = left_in(s, s.durable)
    for said in what_the_log_says(s).values():
        first, others = said.places[0], said.places[1:]
        begins = said.status in HAS_ENDED and masks[first.entry - s.first] >> first.at & 1
        if begins and not all(masks[p.entry - s.first] >> p.at & 1 for p in others):
            return False
    return True


@always(txn_log)
def what_is_not_dirty_is_durable(cfg: Config, s: State) -> bool:
    """With no deletion left to be written, a crash forgets none, as far as a record of the cursor can hold them.

    As shipped, a transaction whose records share every entry with one that lives is ended again at each restart: parts
    of entries alone are never written.
    """
    if s.dirty or not fits(cfg, s):
        return True
    return all(found & ~known == 0 for found, known in zip(left_in(s, s.durable), left_in(s, s.acks), strict=True))


@always(txn_log, on=("reopen",))
def a_clean_close_keeps_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that is closed, and opened with batching again, knows all deletions that a record of the cursor can hold.

    As shipped until pull request 26474, the metadata store gives no parts of entries back.
    """
    is_clean = not is_error(event) and before.cursor_works and before.ledger != "fenced"
    return after.acks == before.acks or not (is_clean and event.arguments["batching"] and fits(cfg, before))


@always(txn_log, on=("persist",))
def a_record_holds_all_up_to_some_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record of the cursor that cannot hold all deletions has every one up to some entry, and none from there on.

    As shipped, it has the lowest ranges of entries and the lowest parts, as many as there may be of each: the end of a
    transaction stays deleted, and its beginning comes back.
    """
    if event.outcome is not True:
        return True
    pairs = list(zip(left_in(after, after.acks), left_in(after, after.durable), strict=True))
    lost = next((n for n, (known, found) in enumerate(pairs) if known != found), len(pairs))
    return all(found == (1 << len(entry)) - 1 for entry, (_, found) in zip(after.log[lost:], pairs[lost:], strict=True))


@always(txn_log)
def only_stored_deletions_are_trimmed(cfg: Config, s: State) -> bool:
    """Whole ledgers are dropped, none of which has an entry that a crash would bring back, and never the last one."""
    return s.first <= s.durable.mark and len(s.ledgers) > 0 and sum(s.ledgers) == len(s.log)


@always(txn_log)
def when_all_ended_all_is_deletable(cfg: Config, s: State) -> bool:
    """When no transaction lives, the mark stands at the end of the log: everything written so far can be trimmed.

    As shipped before 4.1, batches that a store without batching finds keep it for ever.
    """
    return bool(s.txns) or not is_served(s) or s.acks.mark == s.first + len(s.log)


# ---- recovery -----------------------------------------------------------------------------------------


@always(txn_log)
def the_store_has_what_the_log_says(cfg: Config, s: State) -> bool:
    """A store that serves has exactly the transactions that the log says have not ended, each with its status and
    participants, and knows where their records are.

    As shipped, a store that goes on after an append whose outcome is not known differs from what a replay will find.
    """
    if s.status != "ready":
        return True
    return {t.id: said_of(t) for t in s.txns} == living(what_the_log_says(s))


@always(txn_log, on=REPLAY)
def recovery_gives_what_was_promised(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a crash or a restart every transaction is there that callers were told of and that has not ended, with all
    its participants, and with the status that they were told or one that comes after it.

    As shipped, a commit that was acknowledged is lost when an abort of the same transaction failed before and is in the
    log all the same, and a replay that stopped early is taken for complete.
    """
    if not is_recovered(event):
        return True
    found = {t.id: t for t in after.txns}
    return all(
        promise.status in HAS_ENDED or (promise.id in found and is_kept(promise, found[promise.id]))
        for promise in before.promised
    )


def is_kept(promise: Promise, t: Txn) -> bool:
    """A transaction that lives is what callers were told of it."""
    participants = promise.partitions & ~t.partitions == 0 and promise.subscriptions & ~t.subscriptions == 0
    return participants and may_become(promise.status, t.status)


@always(txn_log, on=("replay_completes",))
def no_ended_transaction_returns(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction of which callers were told that it is committed or aborted lives in no store that has read its
    log later.

    As shipped, it comes back as open after a clean restart, when its first record is part of an entry and its last one
    is not.
    """
    if not is_recovered(event):
        return True
    found = {t.id for t in after.txns if t.status not in HAS_ENDED}
    return not any(promise.status in HAS_ENDED and promise.id in found for promise in before.promised)


@always(txn_log)
def a_decision_is_final(cfg: Config, s: State) -> bool:
    """Where callers were told that a transaction is committing or committed, the log does not say the opposite, nor the
    other way round: no restart can find another decision than the one that was acknowledged.

    As shipped, it can: the opposite had failed before, and is in the log all the same, where it comes first.
    """
    said = what_the_log_says(s)
    decided = [{p.status, said[p.id].status} for p in s.promised if p.id in said]
    return not any(pair & COMMITS and pair & ABORTS for pair in decided)


@always(txn_log)
def what_has_ended_leaves_the_store(cfg: Config, s: State) -> bool:
    """No transaction that is committed or aborted stays in a store that serves, whether its records could be deleted
    or not.

    As shipped, it does when a replay ends it and its records cannot be deleted; the watermark stays below it.
    """
    return s.status != "ready" or not any(t.status in HAS_ENDED for t in s.txns)


@always(txn_log, on=REPLAY)
def recovered_positions_are_the_live_ones(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay each transaction knows the places of exactly those of its records that had an effect, in order."""
    if not is_recovered(event):
        return True
    said = what_the_log_says(after)
    return all(t.id in said and t.places == said[t.id].places for t in after.txns)


@always(txn_log, on=("replay_completes",))
def orphans_are_deleted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay no record is left of a transaction that is not there: repeated restarts read less and less."""
    if not is_recovered(event) or not after.cursor_works:
        return True
    found = {t.id for t in after.txns}
    masks = left_in(after, after.acks)
    return not any(
        masks[n] >> at & 1 and record.txn not in found
        for n, entry in enumerate(after.log)
        for at, record in enumerate(entry)
    )


@always(txn_log, on=("replay_entry",))
def replay_makes_no_illegal_move(cfg: Config, before: State, event: Event, after: State) -> bool:
    """At replay, too, a transaction only goes where it may, gains participants only while open, and loses none."""
    for t in before.txns:
        for then in [each for each in after.txns if each.id == t.id]:
            more = (t.partitions, t.subscriptions) != (then.partitions, then.subscriptions)
            lost = t.partitions & ~then.partitions | t.subscriptions & ~then.subscriptions
            if lost or not may_become(t.status, then.status) or (more and t.status != "OPEN"):
                return False
    return True


@always(txn_log, on=("replay_completes",))
def a_second_replay_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that has just been opened and crashes, or is closed, finds the same transactions once more."""
    if not is_recovered(event):
        return True
    wanted = [t._replace(deadline_ms=0) for t in after.txns]
    return all(
        [t._replace(deadline_ms=0) for t in opened_again(cfg, after, *restart)] == wanted
        for restart in (("crash", (0,)), ("reopen", (after.batching,)))
    )


def opened_again(cfg: Config, s: State, name: str, arguments: tuple[object, ...]) -> tuple[Txn, ...]:
    """What a store finds after a restart."""
    s, _ = txn_log.step(cfg, s, name, arguments)
    for _ in range(len(s.log) + 1):
        s, _ = txn_log.step(cfg, s, "replay_entry", ())
    return txn_log.step(cfg, s, "replay_completes", ())[0].txns


@always(txn_log, on=REPLAY)
def a_replay_is_complete_or_fails(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store is ready only when it has read its log to the end: never with a part of it. A read that fails for good
    ends the replay, which is then not tried for ever.

    As shipped, such a read is taken for the end of the log.
    """
    if not is_recovered(event):
        return event.name != "read_fails" or after.status != "replaying"
    rest = range(before.read_next, before.first + len(before.log))
    return not any(left(before.acks, n, len(before.log[n - before.first])) for n in rest)


@always(txn_log, on=REPLAY)
def what_is_recovered_goes_on(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The transactions that were committing and aborting are handed to be ended, and those that are open with their
    deadlines, which count from their beginnings: each exactly once.
    """
    if not is_recovered(event):
        return True
    begun = {r.txn: r.start_ms + r.timeout_ms for entry in reversed(after.log) for r in entry if r.op == "NEW"}
    said = {t.id: t.status for t in after.txns}
    return (
        list(event.outcome.to_commit) == [txn for txn in said if said[txn] == "COMMITTING"]
        and list(event.outcome.to_abort) == [txn for txn in said if said[txn] == "ABORTING"]
        and list(event.outcome.open) == [(txn, begun.get(txn)) for txn in said if said[txn] == "OPEN"]
    )


# ---- ids, the watermark, and time ---------------------------------------------------------------------


@always(txn_log, on=("new_transaction",))
def ids_are_never_used_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new id is higher than every id of which a caller was told, through all restarts and however much is trimmed."""
    return is_error(event) or after.last_id > max(before.told_id, before.last_id)


@always(txn_log)
def the_log_knows_the_last_id(cfg: Config, s: State) -> bool:
    """Whenever the store is opened again, it goes on after every id of which a caller was told."""
    return id_after_restart(s) >= s.told_id


def id_after_restart(s: State) -> int:
    """The last id that a store knows of when it is opened."""
    return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_id


@always(txn_log)
def the_watermark_is_below_all_that_live(cfg: Config, s: State) -> bool:
    """In a store that serves, no transaction lives up to a watermark that was told: what participants abort by it has
    ended.

    As shipped it is 0 when nothing lives, also before transaction 0 is in the log; harmless, for it is only sent with
    an end. A store that goes on after an append whose outcome is not known can find the transaction later.
    """
    return s.status != "ready" or not s.txns or s.txns[0].id > s.told_watermark


@always(txn_log, on=("low_watermark",))
def the_watermark_does_not_go_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A watermark is never lower than one that was told before. It is next to the first transaction that lives; if
    none does, to the first that is on its way, or to the first id that a restart could give.

    As shipped, it falls back to 0 when nothing lives.
    """
    if is_error(event):
        return True
    alive = [t.id for t in before.txns]
    coming = [r.txn for r in on_the_way(before) if r.op == "NEW"]
    highest = min(alive or [*coming, id_after_restart(before) + 1]) - 1
    return bool(before.told_watermark <= event.outcome == highest)


@always(txn_log, on=("expired",))
def exactly_what_is_late_expires(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The transactions that are open and whose time is over are named, the earliest deadline first."""
    if is_error(event):
        return True
    late = [t for t in before.txns if t.status == "OPEN" and t.deadline_ms < before.now_ms]
    by_deadline = [t.deadline_ms for txn in event.outcome for t in late if t.id == txn]
    return sorted(event.outcome) == [t.id for t in late] and by_deadline == sorted(by_deadline)


@always(txn_log)
def a_deadline_is_never_early(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction has all the time that was asked for, counted from the call; live, exactly so much from when its
    record became durable, and no record that comes later moves its deadline.
    """
    if after.txns is before.txns:
        return True
    if event.name == "written":
        wanted = {r.txn: before.now_ms + r.timeout_ms for r in before.in_flight[0] if r.op == "NEW"}
        wanted |= {t.id: t.deadline_ms for t in before.txns}
        return all(t.deadline_ms == wanted.get(t.id) for t in after.txns)
    begun = {r.txn: r.start_ms + r.timeout_ms for entry in reversed(after.log) for r in entry if r.op == "NEW"}
    return all(t.deadline_ms >= begun.get(t.id, t.deadline_ms) for t in after.txns)


# ---- statuses -----------------------------------------------------------------------------------------


@always(txn_log, on=(*APPENDS, "written", *FAILURES, "persist", "trim", "roll_ledger"))
def only_durable_records_change_the_map(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Transactions change when an entry becomes durable, as its records say, in order; the caller of a
    record without an effect is told so.
    """
    if event.name != "written" or is_error(event):
        return after.txns == before.txns
    said = {t.id: said_of(t) for t in before.txns}
    place = Place(before.first + len(before.log), 0)
    done = []
    for at, record in enumerate(before.in_flight[0]):
        known = said.get(record.txn)
        is_known = known is not None and known.status not in HAS_ENDED
        if not is_known and record.op == "NEW":
            said[record.txn] = Said("OPEN", frozenset(), frozenset(), (place._replace(at=at),))
            done.append(True)
        else:
            then = said_then(known, record, place._replace(at=at)) if known is not None and is_known else known
            done.append(then is not known)
            if then is not None:
                said[record.txn] = then
    told = [answer.told == "done" for answer in event.outcome]
    return {t.id: said_of(t) for t in after.txns} == living(said) and told == done


@always(txn_log, on=("new_transaction", "add_participant", "update_status", "low_watermark", "expired"))
def only_a_complete_store_serves(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No operation is served before the log was read to its end, nor while what the log says is not known."""
    return before.status == "ready" or isinstance(event.outcome, Refused)


@always(txn_log, on=("new_transaction",))
def a_new_one_is_refused_when_enough_live(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new transaction is refused, and its caller told why, while as many live as may, and only then, where the store
    serves; those on their way do not count.
    """
    enough = 0 < cfg.max_active <= len(before.txns)
    told = isinstance(event.outcome, Refused) and event.outcome.kind == "too_many"
    return told is enough and (before.status != "ready" or isinstance(event.outcome, Refused) is enough)


@always(txn_log, on=FAILURES)
def a_store_stops_when_it_does_not_know(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an append that failed and may be in the log all the same, nothing is decided until the log was read again.

    As shipped, the store goes on, and may tell a caller the opposite of what the log says.
    """
    unknown = not is_error(event) and any(answer.told == "unknown" for answer in event.outcome)
    return not unknown or after.status == "stopped"


# ---- what a run must have seen ------------------------------------------------------------------------


def has_two(entry: Entry) -> bool:
    """An entry has records of more than one transaction."""
    return len({record.txn for record in entry}) > 1


@sometimes(txn_log)
def a_batch_has_records_of_two_transactions(cfg: Config, s: State) -> bool:
    """An entry has a record of a transaction that lives, and another one that is deleted."""
    masks = left_in(s, s.acks)
    return any(has_two(entry) and 0 < mask < (1 << len(entry)) - 1 for entry, mask in zip(s.log, masks, strict=True))


@sometimes(txn_log, on=("crash",))
def a_crash_forgets_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash brings records back of a transaction that has ended."""
    return left_in(before, before.acks) != left_in(after, after.acks)[: len(before.log)]


@sometimes(txn_log, on=("crash",))
def a_crash_comes_in_the_middle_of_a_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store crashes when it has read some entries and not all of them."""
    is_within = before.read_next > before.durable.mark and before.read_next < before.first + len(before.log)
    return before.status == "replaying" and is_within


@sometimes(txn_log, on=FAILURES)
def an_ambiguous_append_is_in_the_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Callers are told of a failure, and the records are in the log."""
    return len(after.log) > len(before.log)


@sometimes(txn_log, on=("replay_entry",))
def a_replay_decides_what_nobody_was_told(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds that a transaction has gone further than its callers were told."""
    known = {promise.id: promise.status for promise in before.promised}
    return any(t.id in known and t.status != known[t.id] and may_become(known[t.id], t.status) for t in after.txns)


@sometimes(txn_log, on=("replay_entry",))
def a_replay_ends_a_transaction_once_more(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds a transaction that has ended with some of its records, and deletes them."""
    found = {t.id for t in after.txns}
    return any(t.id not in found for t in before.txns)


@sometimes(txn_log, on=("replay_entry",))
def a_replay_meets_an_orphan(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds a record of a transaction that is not there."""
    return not is_error(event) and event.outcome > 0 and after.txns == before.txns and after.acks != before.acks


@sometimes(txn_log, on=("written",))
def a_record_comes_too_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A participant is added to a transaction that has ended meanwhile, in the same batch."""
    if is_error(event):
        return False
    ended = [at for at, record in enumerate(before.in_flight[0]) if record.to in HAS_ENDED]
    late = [at for at, answer in enumerate(event.outcome) if answer.told == "invalid_status" and answer.op != "UPDATE"]
    return bool(ended and late) and ended[0] < late[-1]


@sometimes(txn_log, on=("trim",))
def a_ledger_is_trimmed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Entries are dropped while a transaction lives whose records come after them."""
    return after.first > before.first and after.txns != ()


@sometimes(txn_log, on=("new_transaction",))
def ids_go_on_when_the_whole_log_is_gone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction begins in a log without entries, and is not the first one."""
    return not is_error(event) and before.log == () and before.told_id >= 0


@sometimes(txn_log, on=("persist",))
def a_record_cannot_hold_everything(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Deletions are written, and some are left out."""
    return event.outcome is True and left_in(after, after.durable) != left_in(after, after.acks)


@sometimes(txn_log, on=("update_status",))
def an_end_is_tried_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction that has the status already is asked to go there: nothing is written."""
    return not is_error(event) and any(answer.told == "done" for answer in event.outcome)


@sometimes(txn_log, on=("new_transaction", "flush"))
def a_ledger_is_made_after_one_was_lost(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append finds no ledger, and makes one."""
    return before.ledger == "closed" and after.ledger == "open"


@sometimes(txn_log, on=("expired",))
def several_are_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two transactions are late, and the one with the lower id is not the first."""
    return not is_error(event) and len(event.outcome) > 1 and event.outcome[0] > event.outcome[1]


@sometimes(txn_log, on=("reopen",))
def batching_is_turned_off_over_batches(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store is opened without batching, on a log with batches of which a part is deleted."""
    return not is_error(event) and before.batching and not after.batching and before.acks.partial != ()


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(txn_log, fair=("flush", "written"))
def every_caller_is_told(cfg: Config, s: State) -> bool:
    """When batches are flushed and writes come to an end, nobody waits any more."""
    return s.buffer == () and s.in_flight == ()


@eventually(txn_log, fair=("replay_entry", "replay_completes"))
def a_replay_comes_to_its_end(cfg: Config, s: State) -> bool:
    """When entries go on to be read, the store is ready."""
    return s.status != "replaying"


@eventually(txn_log, fair=("read_fails",))
def a_replay_whose_reads_fail_ends(cfg: Config, s: State) -> bool:
    """A replay comes to an end also if it can read nothing: the store is ready, or failed to open."""
    return s.status != "replaying"


@eventually(txn_log, fair=("persist", "trim"))
def all_ended_means_all_is_trimmed(cfg: Config, s: State) -> bool:
    """When no transaction lives and deletions go on to be written, every ledger but the last one is trimmed."""
    is_idle = is_served(s) and s.ledger != "fenced" and s.txns == ()
    return not is_idle or len(s.ledgers) == 1
