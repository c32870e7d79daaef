"""How to drive a cursor's acknowledgements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.batch_acks import BatchAcks
from invariants import batch_acks as invariants
from model.ack_set import AckSet, words_of
from model.batch_acks.machine import Ack, batch_acks
from model.batch_acks.state import Acks, Config, Partial, Reset, State, Write, position_of
from model.positions import Position

#: The number of entries near the mark-delete position: the one at this position and the next ones. Most acks are there.
_NEAR = 4
#: A topic that starts with this many entries or more has a long backlog. About half of its acks are spread over it.
_LONG_BACKLOG = 80


@lru_cache(maxsize=1024)
def near(ledgers: tuple[int, ...], first_unacked: int) -> tuple[Position, ...]:
    """Returns the positions of the entries near the mark-delete position, in order; fewer than `_NEAR` at the end."""
    first, end = max(first_unacked - 1, 0), max(first_unacked - 1, 0) + _NEAR  # counted from the loop's `ledger` on
    found: list[Position] = []
    for ledger, count in enumerate(ledgers, 1):
        if first < count and end > 0:
            found += [Position(ledger, n) for n in range(max(first, 0), min(end, count))]
        first, end = first - count, end - count
    return tuple(found)


def positions(cfg: Config, s: State) -> tuple[Position, ...]:
    """Returns positions near the mark-delete position, of the first and last entry, and positions without an entry."""
    known, ledgers = near(s.ledgers, s.acks.first_unacked), s.ledgers
    last, count = len(ledgers), ledgers[-1]
    ends = Position(1, 0), Position(last, count - 1), Position(last, count), Position(last, count + 1)
    return *known, *known, *known, *ends, Position(1, ledgers[0] + 1), Position(0, 0)  # near ones are the most likely


@lru_cache(maxsize=256)
def sets_of(size: int) -> tuple[AckSet | None, ...]:
    """Returns ack sets of a batch of this size, also with a zero word at the end, and with a bit beyond the batch.

    None, () and (0,) acknowledge all messages. The other valid ones leave at least one message.
    """
    everything = 2**size - 1
    masks = [everything & ~1, everything >> 1, everything & ~2, 1, 1 << size - 1, everything & ~5, everything & ~3]
    sets = [words_of(mask) for mask in masks if mask]
    return None, *sets, (), (0,), (*sets[0], 0), words_of(everything), words_of(everything + 1)


@lru_cache(maxsize=64)
def sets_for(sizes: tuple[int, ...]) -> tuple[AckSet | None, ...]:
    """Returns ack sets of batches of these sizes."""
    return tuple([each for size in sizes for each in sets_of(size)])


def sets(cfg: Config, s: State) -> tuple[AckSet | None, ...]:
    """Returns ack sets of each batch size of the topic."""
    return sets_for(cfg.batch_sizes)


#: Lists of individual acks.
Lists = tuple[tuple[Ack, ...], ...]


@lru_cache(maxsize=1024)
def singles(position: Position, size: int) -> Lists:
    """Returns lists with one ack of the entry, one list for each ack set."""
    return tuple([(Ack(position, each),) for each in sets_of(size)])


@lru_cache(maxsize=4096)
def pairs(one: Position, size: int, other: Position, other_size: int) -> Lists:
    """Returns some lists with an ack of each of two entries, in either order, and some with two acks of the first."""
    of_one, of_other = singles(one, size), singles(other, other_size)
    in_order = [a + b for a, b in zip(of_one[::2], of_other[::-2], strict=False)]
    in_reverse = [b + a for a, b in zip(of_one[::3], of_other[::3], strict=False)]
    return (*in_order, *in_reverse, *[a + b for a, b in pairwise(of_one[1:5])])


@lru_cache(maxsize=1024)
def lists_near(sizes: tuple[int, ...], first: int, known: tuple[Position, ...]) -> Lists:
    """Returns the empty list, and lists with acks of one entry or of two neighbours.

    `sizes[first]` is the batch size of `known[0]`.
    """
    found: Lists = ((),)
    before = None
    for n, position in enumerate(known, first):
        size = sizes[n % len(sizes)]
        found += singles(position, size)
        if before is not None:
            found += pairs(*before, position, size)
        before = position, size
    return found


@lru_cache(maxsize=1024)
def lists_spread(sizes: tuple[int, ...], ledgers: tuple[int, ...], furthest: int) -> Lists:
    """Returns lists with one ack: of the entry `furthest` (`lists`), or of the entry that is 1, 2 or 34 entries later.

    Such acks move through the backlog with gaps, and leave many ranges and ack sets. At the end of the backlog, the
    entry `furthest // 2` replaces `furthest`. Acks of whole entries are the most frequent.
    """
    start = furthest if furthest + 2 < sum(ledgers) else furthest // 2
    numbers = [n for n in (start, start + 1, start + 2, start + 2, start + 34) if n < sum(ledgers)]
    found = [(position_of(ledgers, n), sizes[n % len(sizes)]) for n in numbers]
    return tuple([each for p, size in found for each in (*singles(p, size), *[(Ack(p, None),)] * 8)])


def lists(cfg: Config, s: State) -> Lists:
    """Returns the empty list, lists near the mark-delete position, and lists with an ack beyond the last entry.

    In a long backlog, also returns lists that are spread over the backlog.
    """
    first, ledgers = max(s.acks.first_unacked - 1, 0), s.ledgers
    found = lists_near(cfg.batch_sizes, first % len(cfg.batch_sizes), near(ledgers, s.acks.first_unacked))
    if cfg.entries >= _LONG_BACKLOG and len(found) > 1:
        # after the last individually deleted entry, or at the last ack set, whichever is further; otherwise `first`
        furthest = max(s.acks.deleted.bit_length(), s.acks.partial[-1].entry if s.acks.partial else first)
        found += lists_spread(cfg.batch_sizes, ledgers, furthest)
    ack_of_next = Ack(Position(len(ledgers), ledgers[-1]), None)
    if len(found) == 1:  # only the empty list: the topic has no entry
        return (), (ack_of_next,)
    last_list, first_list = found[-1], found[1]
    return (
        *found,
        (ack_of_next,),
        (*last_list, ack_of_next),
        (*first_list, ack_of_next),
        (ack_of_next, *last_list),
        (*first_list, *last_list, ack_of_next),
    )


def situation(cfg: Config, s: State) -> str:
    """Returns "long backlog" if the topic starts with `_LONG_BACKLOG` entries or more.

    Otherwise returns "few", "" or "many", by the number of entries after the mark-delete position.
    """
    ahead = sum(s.ledgers) - s.acks.first_unacked
    if cfg.entries >= _LONG_BACKLOG:
        return "long backlog"
    return "few" if ahead < 3 else "many" if ahead > 9 else ""


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns facts about the acknowledgements, the write or read in flight, the queue, and the ledgers."""
    return (
        s.acks.first_unacked > 0,
        min(s.acks.deleted.bit_count(), 3),
        min(len(s.acks.partial), 3),
        s.durable == s.acks,
        s.dirty,
        None if s.writing is None else len(s.writing.resets),
        tuple(each is None for each in s.queued[:3]),
        s.reading,
        s.batch_acks,
        min(len(s.ledgers), 3),
    )


# ---- scopes -------------------------------------------------------------------------------------------


def entries(s: State) -> int:
    """Returns the number of entries of all ledgers."""
    return sum(s.ledgers)


def ledgers(s: State) -> int:
    """Returns the number of ledgers, including empty ones."""
    return len(s.ledgers)


def queued(s: State) -> int:
    """Returns the number of queued resets and writes."""
    return len(s.queued)


def ack(entry: int, ack_set: AckSet | None = None) -> Ack:
    """Returns an individual ack of an entry of the first ledger."""
    return Ack(Position(1, entry), ack_set)


#: Ack sets of a batch of two messages: they acknowledge all messages, the first message, or the second message.
SETS_OF_TWO = (None, (2,), (1,))

SMOKE = Scope(
    actions=(
        "ack_individual",
        "ack_cumulative",
        "flush",
        "written",
        "write_fails",
        "reset",
        "crash",
        "begin_read",
        "end_read",
    ),
    settings={"batch_sizes": (2, 1), "entries": 2, "max_ranges": 1, "max_ack_sets": 1},
    domains={
        "acks": (*[(ack(0, each),) for each in SETS_OF_TWO], (ack(1),), (ack(1), ack(2))),
        "position": (Position(1, 0), Position(1, 1), Position(1, 2)),
        "ack_set": (None, (2,)),
        "stored_in_metadata": (False,),
        "write_survives": (True, False),
    },
    bounds={"queued": 1},
    reasons={
        "actions": "acks, writes, resets, reads and crashes; excludes new entries and clean closes",
        "batch_sizes": "two messages and one: an entry that can have an ack set, and one that cannot",
        "entries": "two: the first unacknowledged one, and one after it",
        "max_ranges": "one: two entries have at most one range",
        "max_ack_sets": "one: at most one entry has an ack set",
        "acks": "each entry, each message of the first one, and a list with a position after the last entry",
        "position": "both entries, and the position after them",
        "ack_set": "none, and one that leaves the second message",
        "stored_in_metadata": "false: a write fails at both stores; true equals success if recovery reads ack sets",
        "write_survives": "both: the write in flight is durable or lost",
        "queued": "one operation; excludes the order of several",
    },
)

CI = SMOKE.changed(
    actions=tuple(batch_acks.actions),
    settings={"entries": 0, "max_ack_sets": 0, "max_ranges_in_metadata": 0},
    domains={
        "acks": ((ack(0, (2,)),), (ack(0, (1,)), ack(1)), (ack(2),), (Ack(Position(2, 0), None),)),
        "position": (Position(1, 0), Position(1, 1), Position(2, 0)),
        "stored_in_metadata": (True, False),
        "batch_acks": (True, False),
    },
    bounds={"entries": 3, "ledgers": 2, "queued": 0},
    reasons={
        "actions": "all actions of the model",
        "entries": "none at the start, at most three: enough for two ranges, one in each ledger",
        "max_ranges": "one: three entries in two ledgers can have two ranges",
        "max_ack_sets": "none: ack sets in records are in the other scopes",
        "max_ranges_in_metadata": "zero: with a range the cursor ledger is used, without a range the metadata store",
        "acks": "the first message of entry 0; its second one with entry 1; entry 2; an entry of the second ledger",
        "position": "the first two entries, and the first one of the second ledger",
        "stored_in_metadata": "both, for each failed write",
        "batch_acks": "both, for each reopen",
        "ledgers": "two: a range cannot extend into the second ledger",
        "queued": "none: queued operations are in the scopes smoke and queue",
    },
)

QUEUE = SMOKE.changed(
    actions=tuple(name for name in SMOKE.actions if name != "ack_cumulative"),
    domains={
        "acks": ((ack(0, (2,)),), (ack(0, (1,)),), (ack(1),)),
        "position": (Position(1, 0), Position(1, 2)),
        "reset.ack_set": (None,),
    },
    bounds={"queued": 2},
    reasons={
        "actions": "those of the scope smoke; excludes cumulative acks, because individual acks make the cursor dirty",
        "acks": "each message of the first entry, and the second entry",
        "position": "the first entry, and the position after the last one",
        "reset.ack_set": "none; resets with an ack set are in the scope smoke",
        "queued": "two operations: the order of two; excludes more",
    },
)

NIGHTLY = SMOKE.changed(
    settings={"batch_sizes": (2,), "entries": 3},
    domains={
        "acks": tuple((ack(entry, each),) for entry in range(3) for each in SETS_OF_TWO),
        "position": (Position(1, 0), Position(1, 1), Position(1, 3)),
    },
    bounds={"queued": 0},
    reasons={
        "batch_sizes": "two messages in each entry",
        "entries": "three: a range can follow an entry with an ack set, or precede one",
        "max_ranges": "one: three entries of one ledger have at most one range",
        "max_ack_sets": "one: a record cannot hold all ack sets",
        "acks": "each entry, and each message",
        "position": "two entries, and the position after the last one",
        "queued": "none: queued operations are in the scope queue",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. Resets of the twin have no tickets; here they are numbered from 1."""
    writing = variables["writing"]
    resets = tuple([reset_of(i, each) for i, each in enumerate(writing["resets"] if writing else (), 1)])
    write = writing and Write(as_model(Acks, writing["record"]), resets, resets[-1] if writing["applies"] else None)
    queued: list[Reset | None] = []
    ticket = len(resets) + 1
    for each in variables["queued"]:
        queued.append(None if each is None else reset_of(ticket, each))
        ticket += each is not None
    memory = as_model(Acks, variables["memory"])
    s: State = as_model(State, variables, acks=memory, writing=write, queued=tuple(queued), next_ticket=ticket)
    return s


def reset_of(ticket: int, each: Mapping[str, Any]) -> Reset:
    """Returns the reset that corresponds to a reset of the twin (`each`), with this ticket."""
    found: Reset = as_model(Reset, each, ticket=ticket)
    return found


# ---- corrupted states, which `check` must detect ------------------------------------------------------


def first_unacked_entry_is_deleted(_cfg: Config, s: State) -> State | None:
    """The entry after the mark-delete position is deleted individually, in addition to at least one other entry."""
    return (
        s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << s.acks.first_unacked)) if s.acks.deleted else None
    )


def deleted_entry_does_not_exist(_cfg: Config, s: State) -> State:
    """An entry after the last one is deleted."""
    return s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << (sum(s.ledgers) + 5)))


def deleted_entry_has_ack_set(_cfg: Config, s: State) -> State | None:
    """The entry at the mark-delete position has an ack set."""
    first = Partial(s.acks.first_unacked - 1, 1)
    return s._replace(acks=s.acks._replace(partial=(first, *s.acks.partial))) if s.acks.first_unacked else None


def read_position_is_at_mark_delete_position(_cfg: Config, s: State) -> State | None:
    """The read position is at the mark-delete position."""
    return s._replace(read_position=s.acks.first_unacked - 1) if s.acks.first_unacked else None


def operation_is_queued_with_nothing_in_flight(_cfg: Config, s: State) -> State:
    """A write is queued, and neither a read nor a write is in flight."""
    return s._replace(queued=(None,), reading=False, writing=None)


subject = Subject(
    batch_acks,
    BatchAcks,
    invariants,
    domains={
        "acks": lists,
        "position": positions,
        "ack_set": sets,
        "stored_in_metadata": (False, True),
        "write_survives": (True, False),
        "batch_acks": (True, True, True, False),
    },
    settings={
        "batch_sizes": ((4, 1, 3), (1,), (2, 2), (64, 3), (65, 1), (128,), (5,)),
        "entries": (4, 0, 9, 4, 0, 9, 4, 0, 9, _LONG_BACKLOG),
        "batch_acks": (True, True, True, False),
        "max_ranges": (10_000, 1, 2, 0),
        "max_ack_sets": (10_000, 1, 2, 0),
        "max_ranges_in_metadata": (1000, 1, 0, -1),
    },
    weights={
        "add_entry": 2,
        "roll_ledger": 0.7,
        "ack_individual": 7,
        "ack_cumulative": 1,
        "begin_read": 1.5,
        "end_read": 2,
        "flush": 2.5,
        "written": 2.5,
        "write_fails": 0.4,
        "reset": 0.5,
        "crash": 0.4,
        "reopen": 0.5,
        "is_fully_persistable": 0.5,
    },
    situation=situation,
    in_situation={
        "few": {"add_entry": 4, "reset": 2},
        "many": {"add_entry": 0.2, "ack_cumulative": 2},
        "long backlog": {"add_entry": 0.1, "ack_cumulative": 0.1, "reset": 0.2, "crash": 0.3},
    },
    swarms={
        "gaps": {"ack_cumulative": 0.1, "roll_ledger": 2, "reset": 0.2, "crash": 0.5},
        "storage": {"flush": 2, "written": 1.5, "write_fails": 3, "crash": 3, "reopen": 4},
        "resets": {"reset": 8, "begin_read": 3, "ack_cumulative": 3, "flush": 2},
        "cumulative": {"ack_cumulative": 8},
    },
    largest={"entries": 300, "batch_sizes": 300},  # larger values make larger bit masks
    abstract=coverage_key,
    measures={"entries": entries, "ledgers": ledgers, "queued": queued},
    scopes={"smoke": SMOKE, "ci": CI, "queue": QUEUE, "nightly": NIGHTLY},
    corrupt={
        each.__name__: each
        for each in (
            first_unacked_entry_is_deleted,
            deleted_entry_does_not_exist,
            deleted_entry_has_ack_set,
            read_position_is_at_mark_delete_position,
            operation_is_queued_with_nothing_in_flight,
        )
    },
    steps=96,
    tla="BatchAcks",
    from_tla=from_tla,
)
