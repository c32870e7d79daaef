"""Expected read counts: when a count equals the number of deliveries still to come, and when it does not.

A delivery of a cached entry is the release of a copy (the `EntryImpl` of a reader) that was sent, or that was skipped
because the entry is acknowledged. Each delivery lowers the count by 1. The count should equal the number of deliveries
to come: then it reaches 0 when nobody needs the entry any more. This number is the sum of three numbers:

    copies    copies that share the entry's count and are not released: a pending request or a read has the copy, or the
              copy is being sent
    cursors   active cursors whose read position is at the entry or before it, and whose normal read has no pending
              request for the entry
    replays   subscriptions whose replay queue has the entry, not acknowledged, and whose replay read does not include
              the entry

These deliveries occur, unless a read fails or is discarded, or a call of `INTERVENTIONS` prevents them. The surplus of
a cached entry is its count minus its deliveries to come. The reader of an entry from storage is the cursor that issued
the storage read.
"""

from __future__ import annotations

from invariants.entry_cache.derived import parts_in
from invariants.properties import Event, always, once_per_state, sometimes
from model.entry_cache.shared_reads import StorageRead
from model.machine import Refused
from model.managed_ledger.machine import managed_ledger
from model.managed_ledger.state import Config, Dispatched, State, Subscription
from model.positions import Position
from model.range_cache import Entry


def with_counts(cfg: Config) -> bool:
    """Whether `counts_reads` is on."""
    return cfg.counts_reads


@once_per_state
def cached(s: State) -> dict[Position, Entry]:
    """Returns the cached entries by position."""
    return {e.position: e for e in s.caches.ranges.queue if e is not None}


@once_per_state
def active(s: State) -> dict[int, Position | None]:
    """Returns the positions of the active cursors in the container of active cursors, by cursor."""
    return {c.cursor: c.position for c in s.active.cursors}


def is_acked(sub: Subscription, position: Position) -> bool:
    """Whether an entry is acknowledged on a subscription."""
    return position <= sub.mark_delete or position in sub.acked


def asked_for(s: State, requests: tuple[int, ...]) -> set[Position]:
    """Returns the positions of the entries that these pending requests ask for."""
    parts = [(q.ledger, q.part) for q in s.caches.requests if q.number in requests]
    return {Position(ledger, i) for ledger, part in parts for i in range(part.first, part.last + 1)}


def is_asked_for(s: State, sub: Subscription, position: Position) -> bool:
    """Whether a pending request of the normal read of a subscription asks for an entry."""
    return sub.normal_read is not None and position in asked_for(s, sub.normal_read.requests)


def awaits(s: State, sub: Subscription, storage_read: int, position: Position) -> bool:
    """Whether the normal read of a subscription awaits an entry from a storage read.

    A request consists of parts. A part of the kind "awaited" waits for the entries of one storage read.
    """
    requests = sub.normal_read.requests if sub.normal_read is not None else ()
    return any(
        part.kind == "awaited" and part.first <= position.entry <= part.last and part.read == storage_read
        for q in s.caches.requests
        if q.number in requests
        for part in parts_in(q.part)
    )


def replays_to_come(s: State, sub: Subscription) -> set[Position]:
    """Returns the unacknowledged entries of the replay queue that the replay read does not include."""
    positions, read = {p for p in sub.replay if not is_acked(sub, p)}, sub.replay_read
    if read is not None:
        positions -= {*asked_for(s, read.requests), *[each.position for each in read.entries]}
    return positions


@once_per_state
def deliveries_to_come(s: State) -> dict[Position, int]:
    """Returns the number of deliveries to come of each cached entry, by position."""
    deliveries = {position: len(e.copies) for position, e in cached(s).items()}
    for number, sub in enumerate(s.subscriptions):
        asked = asked_for(s, sub.normal_read.requests) if sub.normal_read is not None else ()
        unread = [p for p in deliveries if sub.read_position <= p and p not in asked] if number in active(s) else []
        for position in (*unread, *replays_to_come(s, sub)):
            if position in deliveries:
                deliveries[position] += 1
    return deliveries


def surplus(s: State, e: Entry) -> int | None:
    """Returns the surplus of a cached entry; None for an entry without a count."""
    return None if e.expected_reads is None else e.expected_reads - deliveries_to_come(s)[e.position]


def surpluses(s: State) -> dict[Position, int]:
    """Returns the surplus of every cached entry that has a count."""
    found = {position: surplus(s, e) for position, e in cached(s).items()}
    return {position: each for position, each in found.items() if each is not None}


def positions_of_answer(before: State, event: Event) -> set[Position]:
    """Returns the positions of the entries of the storage read that a step completes or fails."""
    read = next((r for r in before.caches.reads if r.number == event.arguments["storage_read"]), None)
    return set() if read is None else {Position(read.ledger, i) for i in range(read.first, read.last + 1)}


def positions_released(before: State, after: State) -> set[Position]:
    """Returns the positions of the ranges whose copies a pending request releases in a step, to read them again.

    partial cache hit   a gap of the part ("mixed") has failed, and its last read has been answered: the request
                        releases its copies of the part, and awaits or joins a storage read of the whole range
    joined range        a storage read of the part ("joined") has failed: the request releases its copies of the
                        part. It reads the range again when all reads of the partial cache hit are answered that
                        has the part
    """
    now = {(q.number, part.first, part.last): part.kind for q in after.caches.requests for part in parts_in(q.part)}
    released = {"mixed": ("awaited", "joined"), "joined": ("failed",)}
    return {
        Position(q.ledger, i)
        for q in before.caches.requests
        for part in parts_in(q.part)
        if now.get((q.number, part.first, part.last)) in released.get(part.kind, ())
        for i in range(part.first, part.last + 1)
    }


def reader(s: State, request: int) -> tuple[int, bool]:
    """Returns the subscription that made a request, and whether it did so for a normal read; (-1, False) for none."""
    for number, sub in enumerate(s.subscriptions):
        if sub.normal_read is not None and request in sub.normal_read.requests:
            return number, True
        if sub.replay_read is not None and request in sub.replay_read.requests:
            return number, False
    return -1, False


def storage_read_of(before: State, event: Event) -> StorageRead:
    """Returns the storage read that an accepted step completes or fails."""
    return next(r for r in before.caches.reads if r.number == event.arguments["storage_read"])


def position_of_reader(s: State, read: StorageRead) -> Position | None:
    """Returns the position of the active cursor whose normal read issued a storage read; None if there is none."""
    number, is_normal = reader(s, read.waiting[0])
    return active(s).get(number) if is_normal else None


# ---- counts of new entries ----------------------------------------------------------------------------


@always(managed_ledger, on=("add_entry",), given=with_counts)
def added_entry_expects_one_read_of_each_active_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The count of an added entry is the number of active cursors, and equals the number of its deliveries to come.

    If no cursor is active, the entry has no count.
    """
    e = cached(after).get(event.outcome.position)
    if e is None or not event.outcome.cached:
        return True
    expected = len(active(before))
    return e.expected_reads == (expected or None) and (not expected or surplus(after, e) == 0)


@always(managed_ledger, on=("complete_storage_read",), given=with_counts)
def entry_from_storage_expects_reads_of_cursors_at_or_before_reader(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """The count of an entry from storage is the number of active cursors at or before its reader when storage answers.

    The answer adds no entry to the cache if a replay read issued the storage read, if the reader is inactive when
    storage answers, or if the cache is disabled.
    """
    if isinstance(event.outcome, Refused) or not event.arguments["success"]:
        return True
    reader_at = position_of_reader(before, storage_read_of(before, event))
    expected = sum(1 for p in active(before).values() if reader_at is not None and p is not None and p <= reader_at)
    was, now = cached(before), cached(after)
    if not expected or cfg.max_bytes == 0:
        return all(now.get(p) is None or p in was for p in positions_of_answer(before, event))
    return all(p not in now or now[p].expected_reads == expected for p in positions_of_answer(before, event))


@always(managed_ledger, on=("complete_storage_read",), given=with_counts)
def count_of_entry_from_storage_equals_deliveries_to_come(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """The count of an entry from storage equals its deliveries to come, except in seven cases (listed in the source).

    Only answers to the normal read of an active cursor are checked. The count is the number of active cursors at or
    before the reader. It can differ from the deliveries to come in the seven cases. (1) The normal read of an active
    cursor has a pending request for the entry, but the read position has passed the entry, because the mark-delete
    position did. (2) The entry is in a replay queue, or a replay read waits for the same storage read. (3) An inactive
    cursor has an outstanding normal read, of any entries. (4) The position of an active cursor is after the reader's,
    and at the entry or before it. (5) The normal read of an active cursor has a pending request for the entry, and gets
    the entry from the cache or from another storage read. (6) A pending request releases its copies of a range, to read
    it again (`positions_released`), and the entry is in this range. (7) A read position moves back, because the request
    of a cancelled normal read fails.
    """
    if isinstance(event.outcome, Refused) or not event.arguments["success"]:
        return True
    read = storage_read_of(before, event)
    reader_at = position_of_reader(before, read)
    if reader_at is None:
        return True

    def is_exact(sub: Subscription, number: int, position: Position) -> bool:
        replays = set(sub.replay_read.requests) if sub.replay_read is not None else set()
        if position in sub.replay or replays & set(read.waiting):
            return False  # case 2
        if after.subscriptions[number].read_position < sub.read_position:
            return False  # case 7
        if number not in active(before):
            return sub.normal_read is None  # case 3
        if reader_at < sub.read_position <= position:
            return False  # case 4
        if not is_asked_for(before, sub, position):
            return True
        return sub.read_position <= position and awaits(before, sub, read.number, position)  # cases 1 and 5

    now = cached(after)
    return all(
        surplus(after, now[p]) in (0, None)
        for p in positions_of_answer(before, event) - positions_released(before, after)  # case 6
        if p in now and all(is_exact(sub, i, p) for i, sub in enumerate(before.subscriptions))
    )


# ---- counts of cached entries -------------------------------------------------------------------------

#: Actions that can change deliveries to come without changing a count. The first four coverage goals below show this
#: for all of them but `acknowledge`, which removes a delivery to come of an entry in the replay queue.
INTERVENTIONS = ("connect", "disconnect", "redeliver", "seek", "mark_delete", "acknowledge")


def is_comparable_answer(s: State, event: Event) -> bool:
    """Whether storage completes a read, no request fails, and no request of an unsuitable read completes.

    A cancelled normal read is unsuitable: when its request completes, the read position moves past entries that the
    cursor reads again after its rewind. A replay read with a failed request is unsuitable: with its last request, the
    read ends, all its entries are released, and those that are acknowledged are not replayed.
    """
    if isinstance(event.outcome, Refused) or not event.arguments["success"]:
        return False
    for answer in event.outcome.answered:
        number, is_normal = reader(s, answer.request)
        sub = s.subscriptions[number]
        read = sub.normal_read if is_normal else sub.replay_read
        if not answer.ok or (number >= 0 and read is not None and (read.failed or (is_normal and read.cancelled))):
            return False
    return True


def is_comparable(before: State, event: Event, after: State, e: Entry) -> bool:
    """Whether a step must change the count and the deliveries to come of a cached entry by the same number.

    A copy shares the count of the cached entry, unless the entry has got another `EntryReadCountHandlerImpl` since the
    copy was made, or was evicted and cached again.

        storage answers          true if `is_comparable_answer`, except for an entry of the answer, which may get
                                 another handler, and for an entry of `positions_released`
        an entry is put back     true for this entry if the copy of the read shares the count
        a read is discarded      true for an entry of the read whose copy shares the count, if the replay queue keeps
                                 the entry, or if the read position of an active cursor moves back to the entry or
                                 before it; false for every other cached entry
        otherwise                true
    """
    if event.name == "complete_storage_read":
        if e.position in positions_of_answer(before, event) or not is_comparable_answer(before, event):
            return False
        return e.position not in positions_released(before, after)
    if event.name != "dispatch" or not isinstance(event.outcome, Dispatched):
        return True
    number = event.arguments["subscription"]
    sub, now = before.subscriptions[number], after.subscriptions[number]
    read = sub.normal_read if event.arguments["kind"] == "normal" else sub.replay_read
    copies = {each.position: each.copy for each in read.entries} if read else {}
    shares = copies.get(e.position) in e.copies  # false for an entry that the read does not have
    if e.position in event.outcome.put_back:
        return shares
    if e.position in event.outcome.discarded:
        is_read_again = number in active(after) and now.read_position <= e.position < sub.read_position
        return shares and (is_read_again or e.position in replays_to_come(after, now))
    return not event.outcome.discarded


@always(
    managed_ledger,
    on=tuple(name for name in managed_ledger.actions if name not in INTERVENTIONS),
    given=with_counts,
)
def count_follows_deliveries_to_come(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Except at calls such as connect and seek, a count changes by as much as its entry's deliveries to come.

    A delivery lowers both by 1. An entry that a dispatch puts back keeps both. Not checked: calls of `INTERVENTIONS`,
    and the steps and entries for which `is_comparable` is false: mostly answers of storage, and discarded reads.
    """
    was, now = cached(before), cached(after)
    return all(
        surplus(before, e) == surplus(after, now[position])
        for position, e in was.items()
        if position in now and is_comparable(before, event, after, e)
    )


# ---- the cases in which a count differs from the deliveries to come -----------------------------------


def new_differences(before: State, after: State) -> list[int]:
    """Returns the surpluses of the entries whose count equalled the deliveries to come before a step, but not after."""
    was, now = surpluses(before), surpluses(after)
    return [now[position] for position, each in was.items() if each == 0 and now.get(position, 0) != 0]


@sometimes(managed_ledger, on=("connect",), given=with_counts)
def connected_cursor_is_not_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A connection activates or rewinds a cursor, which will read cached entries; their counts do not rise."""
    return any(each < 0 for each in new_differences(before, after))


@sometimes(managed_ledger, on=("disconnect", "seek"), given=with_counts)
def inactive_cursor_remains_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor becomes inactive, and the counts of cached entries still include it."""
    return any(each > 0 for each in new_differences(before, after))


@sometimes(managed_ledger, on=("redeliver", "disconnect"), given=with_counts)
def redelivery_is_not_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Entries that a consumer held will be read again for redelivery, but their counts do not rise."""
    return any(each < 0 for each in new_differences(before, after))


@sometimes(managed_ledger, on=("mark_delete",), given=with_counts)
def entry_deleted_before_its_read_remains_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The mark-delete position passes entries that still had to be read; their counts do not fall."""
    return any(each > 0 for each in new_differences(before, after))


@sometimes(managed_ledger, on=("complete_storage_read",), given=with_counts)
def entry_of_failed_read_remains_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A storage read fails: a request releases the cached entries that it held, and their counts do not fall.

    The request then reads its whole range again.
    """
    return not event.arguments["success"] and any(each > 0 for each in new_differences(before, after))


@sometimes(managed_ledger, on=("dispatch",), given=with_counts)
def rewind_is_not_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A rewound cursor will read cached entries again, and their counts do not rise."""
    return bool(event.outcome.discarded if isinstance(event.outcome, Dispatched) else ()) and any(
        each < 0 for each in new_differences(before, after)
    )


@sometimes(managed_ledger, on=("complete_storage_read",), given=with_counts)
def cursor_between_reader_and_entry_is_not_counted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The count of an entry from storage leaves out an active cursor between the reading cursor and the entry."""
    if isinstance(event.outcome, Refused) or not event.arguments["success"]:
        return False
    reader_at = position_of_reader(before, storage_read_of(before, event))
    found = [e for p, e in cached(after).items() if p in positions_of_answer(before, event)]
    return any(
        reader_at is not None and p is not None and reader_at < p <= e.position and (surplus(after, e) or 0) < 0
        for e in found
        for p in active(before).values()
    )


@sometimes(managed_ledger, given=with_counts)
def entry_cached_in_grace_period_is_read_without_count(cfg: Config, s: State) -> bool:
    """A cursor reads a cached entry that has no count: it was added while no cursor was active."""
    return any(e.expected_reads is None and e.copies for e in cached(s).values())


@sometimes(managed_ledger, given=with_counts)
def count_is_negative(cfg: Config, s: State) -> bool:
    """A cached entry was read more often than its count expected."""
    return any(e.expected_reads is not None and e.expected_reads < 0 for e in cached(s).values())
