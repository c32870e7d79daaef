"""Calls on a managed ledger: what each call changes in log, cursors and dispatchers, and when a call is rejected.

A call is an action of the model. A call "on" a subscription has the number of the subscription as an argument. A
consumer "holds" the entries in its pending acks.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from invariants.managed_ledger.counts import asked_for, is_acked
from invariants.properties import Event, always, once_per_state
from model.machine import Refused
from model.managed_ledger.machine import managed_ledger
from model.managed_ledger.state import Config, Dispatched, Ledger, Read, ReadEntry, Started, State, Subscription
from model.positions import Position

#: kind of a read -> the field of `Subscription` that has the read
READ_FIELD = {"normal": "normal_read", "replay": "replay_read"}


def is_type(cfg: Config, number: int, subscription_type: str) -> bool:
    """Whether a subscription has a type."""
    return cfg.types[number % len(cfg.types)] == subscription_type


def key(cfg: Config, position: Position) -> int:
    """Returns the key of an entry."""
    return cfg.entry_keys[position.entry % len(cfg.entry_keys)]


@functools.lru_cache(maxsize=1024)
def positions_in(ledger: Ledger) -> list[Position]:
    """Returns the positions of the entries of a ledger, in order. Memoised, because most ledgers stay the same."""
    return [Position(ledger.ledger, i) for i in range(ledger.entries)]


@once_per_state
def log(s: State) -> list[Position]:
    """Returns the positions of all entries, in order."""
    return [position for ledger in s.ledgers for position in positions_in(ledger)]


def entries_between(s: State, after: Position, before: Position) -> list[Position]:
    """Returns the positions of the entries after one position and before another, in order."""
    return log(s)[bisect_right(log(s), after) : bisect_left(log(s), before)]


def end(s: State) -> Position:
    """Returns the position that the next added entry will get."""
    return Position(s.ledgers[-1].ledger, s.ledgers[-1].entries)


def pending(sub: Subscription) -> list[Position]:
    """Returns the entries that consumers of a subscription hold."""
    return [p for c in sub.consumers for p in c.pending]


def permits(cfg: Config, number: int, sub: Subscription) -> int:
    """Returns the sum of the permits of all consumers; of a failover subscription, the first consumer's permits."""
    granted = [c.permits for c in sub.consumers]
    return sum(granted[:1] if is_type(cfg, number, "failover") else granted)


# ---- rejected calls, and the log ----------------------------------------------------------------------


def is_connected(cfg: Config, s: State, args: Mapping[str, Any], sub: Subscription) -> bool:
    """Whether the consumer that a call names is connected."""
    return any(c.consumer == args["consumer"] for c in sub.consumers)


#: Call -> whether the call is accepted, given the config, the state, the arguments of the call, and the subscription
#: that the call is on. The model always accepts the other calls; no property checks this.
POSSIBLE: dict[str, Callable[[Config, State, Mapping[str, Any], Subscription], bool]] = {
    "rollover_ledger": lambda cfg, s, args, sub: s.ledgers[-1].entries > 0,
    "connect": lambda cfg, s, args, sub: not is_connected(cfg, s, args, sub),
    **dict.fromkeys(("disconnect", "flow", "redeliver"), is_connected),
    "read_more_entries": lambda cfg, s, args, sub: (
        permits(cfg, args["subscription"], sub) > 0 and sub.replay_read is None
    ),
    "complete_storage_read": lambda cfg, s, args, sub: any(r.number == args["storage_read"] for r in s.caches.reads),
    "dispatch": lambda cfg, s, args, sub: any(
        read is not None and not read.requests for read in [getattr(sub, READ_FIELD[args["kind"]])]
    ),
    "release": lambda cfg, s, args, sub: len(sub.sent) > 0,
    "acknowledge": lambda cfg, s, args, sub: (
        args["position"] in pending(sub) or (args["position"] in sub.replay and not is_acked(sub, args["position"]))
    ),
    "mark_delete": lambda cfg, s, args, sub: sub.mark_delete < args["position"] in log(s),
    "seek": lambda cfg, s, args, sub: args["position"] in (*log(s), end(s)),
    "check_backlogged_cursors": lambda cfg, s, args, sub: not cfg.counts_reads,
    "check_cursors_to_cache_entries": lambda cfg, s, args, sub: not cfg.counts_reads,
    "run_eviction_task": lambda cfg, s, args, sub: s.caches.tasks > 0,
}


@always(managed_ledger, on=tuple(POSSIBLE))
def call_is_rejected_exactly_if_it_cannot_happen(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call is rejected exactly if the call cannot happen in the state.

    The consumer, storage read or eviction task of a call must exist; `connect` needs a consumer that is not connected.
    A read starts only with permits, and not during a replay read. `dispatch` needs a read whose requests are all
    complete, and `release` a sent entry. An ack needs an entry that is held, or that is in the replay queue and not
    acknowledged. A mark-delete needs an entry after the mark-delete position. A seek needs an entry, or the end of the
    log. A rollover needs entries in the last ledger. The checks of backlogs run only without counts.
    """
    sub = before.subscriptions[event.arguments.get("subscription", 0)]
    return isinstance(event.outcome, Refused) is not POSSIBLE[event.name](cfg, before, event.arguments, sub)


@always(managed_ledger)
def log_changes_only_by_adds_rollovers_and_trims(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only adds, rollovers and trims change the log: they append an entry, begin a ledger, or delete consumed ledgers.

    An added entry is the next one of the last ledger. A trim deletes the closed ledgers whose last entry all
    mark-delete positions have reached, and returns the number of deleted ledgers.
    """
    ledgers, last = before.ledgers, before.ledgers[-1]
    if event.name == "add_entry":
        grown = Ledger(last.ledger, last.entries + 1)
        return after.ledgers == (*ledgers[:-1], grown) and bool(event.outcome.position == end(before))
    if isinstance(event.outcome, Refused):
        return after.ledgers == ledgers
    if event.name == "rollover_ledger":
        return after.ledgers == (*ledgers, Ledger(last.ledger + 1, 0)) and bool(event.outcome == last.ledger + 1)
    if event.name == "trim_consumed_ledgers":
        marks = [sub.mark_delete for sub in before.subscriptions]
        kept = [each for each in ledgers[:-1] if any(mark < (each.ledger, each.entries - 1) for mark in marks)]
        return after.ledgers == (*kept, last) and bool(event.outcome == len(ledgers) - len(kept) - 1)
    return after.ledgers == ledgers


@always(managed_ledger, on=("acknowledge", "mark_delete", "seek", "dispatch", "redeliver", "disconnect"))
def ack_or_seek_changes_exactly_its_acknowledgements(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack, mark-delete or seek changes exactly its acknowledgements; dispatch, redeliver and disconnect, none.

    An ack acknowledges one entry, a mark-delete all entries up to its position. After a seek, exactly the entries
    before its position are acknowledged. All individually acknowledged entries are after the first unacknowledged one.
    """
    if isinstance(event.outcome, Refused):
        return True
    named, position, entries = event.arguments["subscription"], event.arguments.get("position"), log(before)
    for number, (was, now) in enumerate(zip(before.subscriptions, after.subscriptions, strict=True)):
        acked = {p for p in entries if is_acked(was, p)}
        if number == named and position is not None:
            below = {p for p in entries if p < position}
            acked = below if event.name == "seek" else acked | {position}
            acked |= below if event.name == "mark_delete" else set()
        first = next((p for p in entries if p not in acked), end(before))
        if acked != {p for p in entries if is_acked(now, p)} or any(p < first for p in now.acked):
            return False
    return True


# ---- reads --------------------------------------------------------------------------------------------


@always(managed_ledger, on=("read_more_entries",))
def read_takes_entries_to_replay_then_the_next_ones(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read takes the first entries of the replay queue, or else the next entries of one ledger at the read position.

    Permits and `dispatcherMaxReadBatchSize` limit the number of entries. No normal read starts during another one.
    Key_Shared: a replay read takes only entries whose consumer has a permit left, and whose key no other consumer
    holds. `look_ahead` limits a normal read (`limits_look_ahead`).
    """
    if not isinstance(event.outcome, Started):
        return True
    number = event.arguments["subscription"]
    sub, kind = before.subscriptions[number], "replay"
    most = min(cfg.read_batch, permits(cfg, number, sub))
    replay = [p for p in sub.replay if not is_acked(sub, p)]
    wanted = replay[:most]
    if is_type(cfg, number, "key_shared"):
        wanted = []
        for i, c in enumerate(sub.consumers):
            keys_of_others = {key(cfg, p) for other in sub.consumers if other is not c for p in other.pending}
            own = [p for p in replay if key(cfg, p) % len(sub.consumers) == i]  # the entries that go to this consumer
            wanted += [p for p in own if key(cfg, p) not in keys_of_others][: c.permits]
        wanted = sorted(wanted)[:most]
    if not wanted:
        kind = "normal"
        ahead = [p for p in log(before) if p >= sub.read_position] if sub.normal_read is None else []
        if is_type(cfg, number, "key_shared") and cfg.limits_look_ahead:
            most = max(0, min(most, cfg.look_ahead - len(replay)))
        wanted = [p for p in ahead if p.ledger == ahead[0].ledger][:most]
    is_started = kind == event.outcome.kind and wanted == list(event.outcome.positions)
    now: Read | None = getattr(after.subscriptions[number], READ_FIELD[kind])
    if not is_started or not wanted or now is None:
        return is_started and not wanted  # without entries to read, the outcome has no positions
    read = {e.position for e in now.entries} | asked_for(after, now.requests)
    return read == set(wanted) and not now.failed and not now.cancelled


@always(managed_ledger)
def read_completes_or_fails_as_a_whole(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read keeps its entries until all its requests have completed or failed. If one failed, the read ends then.

    A read without a failed request ends when it is dispatched. A read is cancelled when the dispatcher starts to
    deliver again from the mark-delete position.
    """
    args, is_refused = event.arguments, isinstance(event.outcome, Refused)
    for number, (sub, later) in enumerate(zip(before.subscriptions, after.subscriptions, strict=True)):
        is_called = args.get("subscription") == number and not is_refused
        if sub is later and not is_called and event.name != "complete_storage_read":
            continue
        for kind, field in READ_FIELD.items():
            read: Read | None = getattr(sub, field)
            now: Read | None = getattr(later, field)
            if is_called and event.name == "read_more_entries" and kind == event.outcome.kind and read is None:
                continue  # `read_takes_entries_to_replay_then_the_next_ones` checks the new read
            if is_called and event.name == "dispatch" and kind == args["kind"]:
                read = None
            elif read is not None and event.name == "complete_storage_read" and not is_refused:
                read = _read_after_answers(read, event)
            elif read is not None and is_called and starts_again(cfg, number, sub, later, event):
                read = read._replace(cancelled=True)
            if now != read:
                return False
    return True


def _read_after_answers(read: Read, event: Event) -> Read | None:
    """Returns a read after the answers to its requests; None if the read failed and no request is left."""
    answers = [a for a in event.outcome.answered if a.request in read.requests]
    found = [ReadEntry(e.position, e.copy) for a in answers for e in a.entries]
    left = tuple(n for n in read.requests if n not in {a.request for a in answers})
    failed = read.failed or not all(a.ok for a in answers)
    if failed and not left:
        return None
    return read._replace(requests=left, entries=tuple(sorted((*read.entries, *found))), failed=failed)


def starts_again(cfg: Config, number: int, before: Subscription, after: Subscription, event: Event) -> bool:
    """Whether a call on a subscription makes its dispatcher deliver again from the mark-delete position.

    True if no consumer is connected before the call, or none after the call. Failover: also true if the active consumer
    changes or asks for redelivery.
    """
    old, new = ([c.consumer for c in sub.consumers] for sub in (before, after))
    if not old or not new:
        return True
    if not is_type(cfg, number, "failover"):
        return False
    return old[0] != new[0] or (event.name == "redeliver" and event.arguments["consumer"] == old[0])


@always(managed_ledger, on=("dispatch",))
def dispatch_sends_what_consumers_can_take(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each entry of a complete read is skipped if it is acknowledged, sent if its consumer can take it, or put back.

    A Failover consumer can take every entry. A Shared consumer needs a permit. A Key_Shared consumer needs a permit;
    moreover, no other consumer may hold the key, and the replay queue may have no entry that must be sent first
    (`replay_order`). There are two exceptions. All entries are discarded if no consumer is connected, or if the read
    was cancelled (a replay read only with `discards_cancelled_replay_read`). No entry of a Key_Shared read is sent if
    the replay queue now begins before `min_replayed_position`: the entries of a normal read are put back, those of a
    replay read are discarded.
    """
    if not isinstance(event.outcome, Dispatched):
        return True
    number, kind = event.arguments["subscription"], event.arguments["kind"]
    sub, now = before.subscriptions[number], after.subscriptions[number]
    read: Read = getattr(sub, READ_FIELD[kind])
    positions = tuple(e.position for e in read.entries)
    if not sub.consumers or (read.cancelled and (kind == "normal" or cfg.discards_cancelled_replay_read)):
        return event.outcome == Dispatched((), (), (), positions) and now.sent == sub.sent
    earliest = read.min_replayed_position
    if earliest is not None and is_type(cfg, number, "key_shared") and sub.replay and sub.replay[0] < earliest:
        back = Dispatched((), (), (), positions) if kind == "replay" else Dispatched((), positions, (), ())
        return event.outcome == back and now.sent == sub.sent
    left = {c.consumer: c.permits for c in sub.consumers}
    held = {c.consumer: {*c.pending} for c in sub.consumers}
    replay, sent, replayed, skipped = {*sub.replay}, [], [], []
    for p in positions:
        to = _consumer_for(cfg, number, left, p)
        if is_acked(sub, p):
            skipped.append(p)
            replay.discard(p)
        elif to is None or (is_type(cfg, number, "key_shared") and _must_wait(cfg, kind, held, replay, to, p)):
            replayed.append(p)
            replay.add(p)
        else:
            sent.append((p, to))
            left[to] -= 1
            held[to].add(p)
            replay.discard(p)
    copies = tuple(e for e in read.entries if e.position in {p for p, _ in sent})
    return (
        event.outcome == Dispatched(tuple(sent), tuple(replayed), tuple(skipped), ())
        and holding(now) == ({c: (left[c], held[c]) for c in left}, replay)
        and now.sent == (*sub.sent, *copies)
    )


def _consumer_for(cfg: Config, number: int, left: Mapping[int, int], position: Position) -> int | None:
    """Returns the consumer that may get an entry; None if no consumer may get it. `left` has each consumer's permits.

    A failover consumer needs no permit.
    """
    consumers = sorted(left)
    if is_type(cfg, number, "failover"):
        return consumers[0]
    if is_type(cfg, number, "key_shared"):
        consumers = [consumers[key(cfg, position) % len(consumers)]]
    return next((c for c in consumers if left[c] > 0), None)


def _must_wait(
    cfg: Config, kind: str, held: Mapping[int, set[Position]], replay: set[Position], to: int, position: Position
) -> bool:
    """Whether another consumer holds entries of the key, or the replay queue has an entry that must be sent first."""
    key_of_entry = key(cfg, position)
    if any(key(cfg, p) == key_of_entry for c, entries in held.items() if c != to for p in entries):
        return True
    same = [p for p in replay if key(cfg, p) == key_of_entry]
    return any(p < position for p in same) if cfg.replay_order == "earlier_of_key" else kind == "normal" and same != []


# ---- consumers and cursors ----------------------------------------------------------------------------


#: The permits and the held entries of each consumer, by its number; and the entries in the replay queue.
Holding = tuple[dict[int, tuple[int, set[Position]]], set[Position]]
#: Calls that can make a dispatcher deliver again from the mark-delete position.
RESTARTING = ("connect", "disconnect", "redeliver", "seek")


def holding(sub: Subscription) -> Holding:
    """Returns the permits and held entries of the consumers, and the replay queue."""
    return {c.consumer: (c.permits, {*c.pending}) for c in sub.consumers}, {*sub.replay}


def _holding_after(cfg: Config, number: int, sub: Subscription, now: Subscription, event: Event) -> Holding:
    """Returns the permits and held entries of the consumers, and the replay queue, after a call on a subscription."""
    (held, replay), args = holding(sub), event.arguments
    # -1 for a call without a consumer; such a call does not use `consumer`, `granted` and `entries`
    consumer, is_failover = args.get("consumer", -1), is_type(cfg, number, "failover")
    granted, entries = held.get(consumer, (0, set()))
    if event.name in ("connect", "flow"):
        held[consumer] = granted + args.get("permits", 0), entries
    elif event.name in ("disconnect", "redeliver"):
        replay |= set() if is_failover else entries
        held[consumer] = granted, (entries if is_failover else set())
        if event.name == "disconnect":
            del held[consumer]
    elif event.name == "seek":
        held = {}
    elif event.name in ("acknowledge", "mark_delete"):
        held = {c: (n, {p for p in ps if not is_acked(now, p)}) for c, (n, ps) in held.items()}
        replay = {p for p in replay if p > now.mark_delete}
    elif event.name == "read_more_entries":
        replay = {p for p in replay if not is_acked(sub, p)}
    if event.name in RESTARTING and starts_again(cfg, number, sub, now, event):
        # no consumer holds entries; without consumers, the replay queue is empty
        return {c: (n, set()) for c, (n, _) in held.items()}, replay if held else set()
    return held, replay


@always(managed_ledger, on=tuple(name for name in managed_ledger.actions if name != "dispatch"))
def dispatcher_changes_only_by_its_calls(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Permits, held entries, replay queue and sent entries of a subscription change only by calls on the subscription.

    Flow adds permits. A consumer holds an entry until the entry is acknowledged or redelivered, or the consumer leaves.
    A redelivered entry and an entry of a leaving consumer are added to the replay queue. Exception: a failover
    subscription, and a subscription without consumers, read the entry again from the mark-delete position. An
    acknowledged entry leaves the replay queue when the mark-delete position passes the entry, or at the next
    `read_more_entries`. A release removes the oldest sent entry.
    """
    for number, (sub, now) in enumerate(zip(before.subscriptions, after.subscriptions, strict=True)):
        is_called = event.arguments.get("subscription") == number and not isinstance(event.outcome, Refused)
        if sub is now and not is_called:
            continue
        wanted = _holding_after(cfg, number, sub, now, event) if is_called else holding(sub)
        is_release = is_called and event.name == "release"
        if is_release and event.outcome != sub.sent[0].position:
            return False
        if holding(now) != wanted or now.sent != (sub.sent[1:] if is_release else sub.sent):
            return False
    return True


@always(managed_ledger)
def read_position_moves_by_reads_rewinds_and_seeks(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The read position moves past the entries of a complete normal read, or to where a rewind or seek puts it.

    A rewind moves the read position to the first unacknowledged entry, a seek to the given position. If an ack moves
    the mark-delete position to the read position or past it, the read position moves to the first unacknowledged entry.
    A normal read that starts moves the read position to its first entry. Two positions with no entry between them are
    not distinguished.
    """
    args, is_refused = event.arguments, isinstance(event.outcome, Refused)
    for number, (sub, now) in enumerate(zip(before.subscriptions, after.subscriptions, strict=True)):
        is_called = args.get("subscription") == number and not is_refused
        if sub is now and not is_called and event.name != "complete_storage_read":
            continue
        first = _next(after, _following(now.mark_delete))
        wanted = sub.read_position
        reads = [read for read in (sub.normal_read, sub.replay_read) if read is not None]
        if is_called and event.name == "seek":
            wanted = args["position"]
        elif is_called and event.name in ("acknowledge", "mark_delete"):
            wanted = max(wanted, first)
        elif is_called and event.name in ("connect", "disconnect", "redeliver"):
            rewinds = now.consumers and not reads and starts_again(cfg, number, sub, now, event)
            wanted = first if rewinds else wanted
        elif is_called and event.name == "dispatch":
            read: Read = getattr(sub, READ_FIELD[args["kind"]])
            wanted = first if read.cancelled or not sub.consumers else wanted
        elif is_called and event.name == "read_more_entries" and event.outcome.kind == "normal":
            positions = event.outcome.positions
            # a read whose entries are all cached completes in the step in which it starts
            is_complete = now.normal_read is not None and not now.normal_read.requests
            if positions:
                wanted = max(first, _following(positions[-1])) if is_complete else positions[0]
        elif event.name == "complete_storage_read" and not is_refused:
            wanted = _read_position_after_answers(sub, event, wanted, first)
        if _next(after, now.read_position) != _next(after, wanted):
            return False
    return True


def _next(s: State, position: Position) -> Position:
    """Returns the position of the first entry at a position or after it; without such an entry, the end of the log."""
    index = bisect_left(log(s), position)
    return log(s)[index] if index < len(log(s)) else end(s)


def _following(position: Position) -> Position:
    """Returns the position after another one in its ledger."""
    return Position(position.ledger, position.entry + 1)


def _read_position_after_answers(sub: Subscription, event: Event, position: Position, first: Position) -> Position:
    """Returns the read position of a cursor after storage answered its reads.

    `position` is the read position before the answers, `first` the position of the first unacknowledged entry. A read
    that was cancelled and has failed rewinds the cursor.
    """
    for read in (sub.normal_read, sub.replay_read):
        answers = [a for a in event.outcome.answered if read is not None and a.request in read.requests]
        if read is sub.normal_read and answers and answers[0].entries:
            last = _following(answers[0].entries[-1].position)
            position = last if last > sub.mark_delete else position
        if read is not None and answers and _read_after_answers(read, event) is None and read.cancelled:
            position = first
    return position
