"""How to drive a cursor's acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from fuzz.subject import Scope, Subject
from impl.batch_acks import BatchAcks
from invariants import batch_acks as invariants
from model.ack_set import AckSet, words_of
from model.batch_acks.machine import Ack, batch_acks
from model.batch_acks.state import Acks, Config, Partial, Reset, State, Write
from model.positions import Position

#: How many entries from the one before the mark on are acknowledged more often than the others.
_NEAR = 4


@lru_cache(maxsize=1024)
def near(ledgers: tuple[int, ...], first_unacked: int) -> tuple[Position, ...]:
    """Where the entries around the mark are, in order, from the one before it on."""
    first, end = max(first_unacked - 1, 0), max(first_unacked - 1, 0) + _NEAR
    found: list[Position] = []
    for ledger, count in enumerate(ledgers, 1):
        if first < count and end > 0:
            found += [Position(ledger, n) for n in range(max(first, 0), min(end, count))]
        first, end = first - count, end - count
    return tuple(found)


def positions(cfg: Config, s: State) -> tuple[Position, ...]:
    """The entries around the mark, the first and the last one, the next to come and the one after it, and no entry."""
    known, ledgers = near(s.ledgers, s.acks.first_unacked), s.ledgers
    last, count = len(ledgers), ledgers[-1]
    ends = Position(1, 0), Position(last, count - 1), Position(last, count), Position(last, count + 1)
    return *known, *known, *known, *ends, Position(1, ledgers[0] + 1), Position(0, 0)


@lru_cache(maxsize=256)
def sets_of(size: int) -> tuple[AckSet | None, ...]:
    """Ack sets for a batch: whole in three ways, each end, gaps, prefixes; zeros at the end; one bit beyond."""
    everything = 2**size - 1
    masks = [everything & ~1, everything >> 1, everything & ~2, 1, 1 << size - 1, everything & ~5, everything & ~3]
    sets = [words_of(mask) for mask in masks if mask]
    return None, *sets, (), (0,), (*sets[0], 0) if sets else (0, 0), words_of(everything), words_of(everything + 1)


@lru_cache(maxsize=64)
def sets_for(sizes: tuple[int, ...]) -> tuple[AckSet | None, ...]:
    """Sets for batches of any of these sizes."""
    return tuple([each for size in sizes for each in sets_of(size)])


def sets(cfg: Config, s: State) -> tuple[AckSet | None, ...]:
    """The sets for an entry of any size that there is."""
    return sets_for(cfg.batch_sizes)


#: Lists of individual acknowledgements.
Lists = tuple[tuple[Ack, ...], ...]


@lru_cache(maxsize=1024)
def singles(position: Position, size: int) -> Lists:
    """One entry, with every set."""
    return tuple([(Ack(position, each),) for each in sets_of(size)])


@lru_cache(maxsize=4096)
def pairs(one: Position, size: int, other: Position, other_size: int) -> Lists:
    """Two entries, with different sets, in either order; and the first one twice."""
    some, more = singles(one, size), singles(other, other_size)
    mixed = [a + b for a, b in zip(some[::2], more[::-2], strict=False)]
    turned = [b + a for a, b in zip(some[::3], more[::3], strict=False)]
    return (*mixed, *turned, *[a + b for a, b in pairwise(some[1:5])])


@lru_cache(maxsize=1024)
def lists_near(sizes: tuple[int, ...], first: int, known: tuple[Position, ...]) -> Lists:
    """These entries, of which the first has that number, one by one and in pairs."""
    found: Lists = ((),)
    before = None
    for n, position in enumerate(known, first):
        size = sizes[n % len(sizes)]
        found += singles(position, size)
        if before is not None:
            found += pairs(*before, position, size)
        before = position, size
    return found


def lists(cfg: Config, s: State) -> Lists:
    """Entries around the mark one by one and in pairs, with one to come, and nothing."""
    first, ledgers = max(s.acks.first_unacked - 1, 0), s.ledgers
    found = lists_near(cfg.batch_sizes, first % len(cfg.batch_sizes), near(ledgers, s.acks.first_unacked))
    to_come = Ack(Position(len(ledgers), ledgers[-1]), None)
    if len(found) == 1:
        return (), (to_come,)
    last, other = found[-1], found[1]
    return *found, (to_come,), (*last, to_come), (*other, to_come), (to_come, *last), (*other, *last, to_come)


def situation(cfg: Config, s: State) -> str:
    """What the next action should depend on."""
    ahead = sum(s.ledgers) - s.acks.first_unacked
    return "few" if ahead < 3 else "many" if ahead > 9 else ""


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """What is known behind the mark, what storage lacks, what is on its way, and what waits."""
    return (
        s.acks.first_unacked > 0,
        min(s.acks.deleted.bit_count(), 3),
        min(len(s.acks.partial), 3),
        s.durable == s.acks,
        s.dirty,
        None if s.writing is None else len(s.writing.resets),
        tuple(each is None for each in s.waiting[:3]),
        s.reading,
        s.batch_acks,
        min(len(s.ledgers), 3),
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def entries(s: State) -> int:
    """Entries of all ledgers."""
    return sum(s.ledgers)


def ledgers(s: State) -> int:
    """Ledgers, empty ones included."""
    return len(s.ledgers)


def waiting(s: State) -> int:
    """Resets and writes that wait."""
    return len(s.waiting)


def at(entry: int, ack_set: AckSet | None = None) -> Ack:
    """An acknowledgement in the first ledger."""
    return Ack(Position(1, entry), ack_set)


#: An entry of two messages: all of it, one of them, the other one.
PARTS = (None, (2,), (1,))

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
    settings={"batch_sizes": (2, 1), "entries": 2, "max_ranges": 1, "max_batch_records": 1},
    domains={
        "acks": (*[(at(0, each),) for each in PARTS], (at(1),), (at(1), at(2))),
        "position": (Position(1, 0), Position(1, 1), Position(1, 2)),
        "ack_set": (None, (2,)),
        "rescued": (False,),
        "write_survives": (True, False),
    },
    bounds={"waiting": 1},
    reasons={
        "actions": "what acknowledges, writes, resets and forgets; hides new entries and clean closes",
        "batch_sizes": "two messages and one: an entry with parts, and one without",
        "entries": "two: the mark, and one entry behind it",
        "max_ranges": "one: two entries have no more",
        "max_batch_records": "one: no more than one entry has parts",
        "acks": "each entry whole, each message of the first alone, and a list with an entry that is not there",
        "position": "both entries, and the next one",
        "ack_set": "none, and the second message alone left",
        "rescued": "the metadata store fails, too; else it is as a write that is done",
        "write_survives": "both, where a write is in flight",
        "waiting": "one operation; hides in which order several have their effect",
    },
)

CI = Scope(
    actions=tuple(batch_acks.actions),
    settings={
        "batch_sizes": (2, 1),
        "entries": 0,
        "max_ranges": 1,
        "max_batch_records": 0,
        "max_ranges_in_metadata": 0,
    },
    domains={
        "acks": ((at(0, (2,)),), (at(0, (1,)), at(1)), (at(2),), (Ack(Position(2, 0), None),)),
        "position": (Position(1, 0), Position(1, 1), Position(2, 0)),
        "ack_set": (None, (2,)),
        "rescued": (True, False),
        "write_survives": (True, False),
        "batch_acks": (True, False),
    },
    bounds={"entries": 3, "ledgers": 2, "waiting": 0},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "all that there are",
        "entries": "none at the start, three at most: two ranges, with the mark before them",
        "max_ranges": "one: three entries can have two",
        "max_batch_records": "none: parts are in memory only, or in a record of the other scopes",
        "max_ranges_in_metadata": "none: with a range the cursor's ledger is used, without one the metadata store",
        "acks": "one of two messages; the other one with the next entry; two entries behind them, in either ledger",
        "position": "the first two entries, and the first one of the second ledger",
        "rescued": "both, after each failed write",
        "batch_acks": "both, after each clean close",
        "ledgers": "two: a range ends with the first",
        "waiting": "nothing waits; what does is in the other scopes",
    },
)

QUEUE = Scope(
    actions=(
        "ack_individual",
        "flush",
        "written",
        "write_fails",
        "reset",
        "crash",
        "begin_read",
        "end_read",
    ),
    settings=dict(SMOKE.settings),
    domains=dict(SMOKE.domains)
    | {
        "acks": ((at(0, (2,)),), (at(0, (1,)),), (at(1),)),
        "position": (Position(1, 0), Position(1, 2)),
        "reset.ack_set": (None,),
    },
    bounds={"waiting": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "what may wait, what it waits for, and what a crash leaves of it",
        "acks": "each message alone, in either order",
        "position": "the first entry, and behind the last one",
        "reset.ack_set": "none; sets are in the scope smoke",
        "waiting": "two operations, so that one is not the last",
    },
)

NIGHTLY = Scope(
    actions=SMOKE.actions,
    settings={"batch_sizes": (2,), "entries": 3, "max_ranges": 1, "max_batch_records": 1},
    domains=dict(SMOKE.domains)
    | {
        "acks": tuple((at(entry, each),) for entry in range(3) for each in PARTS),
        "position": (Position(1, 0), Position(1, 1), Position(1, 3)),
    },
    bounds={"waiting": 0},
    reasons=dict(SMOKE.reasons)
    | {
        "batch_sizes": "two messages in each entry",
        "entries": "three: two ranges, or one behind an entry with parts",
        "max_ranges": "one: a record cannot hold the second range",
        "max_batch_records": "one: a record cannot hold all parts",
        "acks": "each entry whole, and each message alone",
        "position": "two entries, and behind the last one",
        "waiting": "nothing waits; what does is in the scope queue",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, whose masks are sets and whose resets are numbered only by their order."""
    found = variables["writing"]
    resets = tuple([read_reset(i, each) for i, each in enumerate(found["resets"] if found else (), 1)])
    write = found and Write(read_acks(found["record"]), resets, resets[-1] if found["applies"] else None)
    waiting: list[Reset | None] = []
    ticket = len(resets) + 1
    for each in variables["waiting"]:
        waiting.append(None if each is None else read_reset(ticket, each))
        ticket += each is not None
    return State(
        variables["ledgers"],
        read_acks(variables["known"]),
        variables["read_next"],
        read_acks(variables["durable"]),
        variables["dirty"],
        write,
        tuple(waiting),
        variables["reading"],
        variables["batch_acks"],
        ticket,
    )


def read_acks(acks: Mapping[str, Any]) -> Acks:
    """What is acknowledged, with masks for the sets of the twin."""
    partial = sorted(Partial(each["entry"], mask(each["remaining"])) for each in acks["partial"])
    return Acks(acks["first_unacked"], mask(acks["deleted"]), tuple(partial))


def read_reset(ticket: int, each: Mapping[str, Any]) -> Reset:
    """A reset of the twin, with its ticket."""
    return Reset(ticket, each["to"], mask(each["remaining"]))


def mask(numbers: Iterable[int]) -> int:
    """The mask with these bits."""
    return sum(1 << n for n in numbers)


# ---- states that `check` must not let pass ------------------------------------------------------------


def the_mark_is_deleted_behind(s: State) -> State | None:
    """The entry at the mark is deleted, and the mark has not moved."""
    return (
        s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << s.acks.first_unacked)) if s.acks.deleted else None
    )


def an_entry_that_is_not_there(s: State) -> State:
    """An entry far behind the last one is deleted."""
    return s._replace(acks=s.acks._replace(deleted=s.acks.deleted | 1 << (sum(s.ledgers) + 5)))


def a_part_of_a_deleted_entry(s: State) -> State | None:
    """An entry before the mark has parts."""
    first = Partial(s.acks.first_unacked - 1, 1)
    return s._replace(acks=s.acks._replace(partial=(first, *s.acks.partial))) if s.acks.first_unacked else None


def the_reader_is_behind(s: State) -> State | None:
    """The reader stands before the mark."""
    return s._replace(read_next=s.acks.first_unacked - 1) if s.acks.first_unacked else None


def something_waits_for_nothing(s: State) -> State:
    """A write waits, and nothing is in flight."""
    return s._replace(waiting=(None,), reading=False, writing=None)


subject = Subject(
    batch_acks,
    BatchAcks,
    invariants,
    domains={
        "acks": lists,
        "position": positions,
        "ack_set": sets,
        "rescued": (False, True),
        "write_survives": (True, False),
        "batch_acks": (True, True, True, False),
    },
    settings={
        "batch_sizes": ((4, 1, 3), (1,), (2, 2), (64, 3), (65, 1), (128,), (5,)),
        "entries": (4, 0, 9),
        "batch_acks": (True, True, True, False),
        "max_ranges": (10_000, 1, 2, 0),
        "max_batch_records": (10_000, 1, 2, 0),
        "max_ranges_in_metadata": (1000, 1, 0),
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
    in_situation={"few": {"add_entry": 4, "reset": 2}, "many": {"add_entry": 0.2, "ack_cumulative": 2}},
    swarms={
        "gaps": {"ack_cumulative": 0.1, "roll_ledger": 2, "reset": 0.2, "crash": 0.5},
        "storage": {"flush": 2, "written": 1.5, "write_fails": 3, "crash": 3, "reopen": 4},
        "resets": {"reset": 8, "begin_read": 3, "ack_cumulative": 3, "flush": 2},
        "cumulative": {"ack_cumulative": 8},
    },
    abstract=kind_of_state,
    measures={"entries": entries, "ledgers": ledgers, "waiting": waiting},
    scopes={"smoke": SMOKE, "ci": CI, "queue": QUEUE, "nightly": NIGHTLY},
    corrupt={
        "the_mark_is_deleted_behind": the_mark_is_deleted_behind,
        "an_entry_that_is_not_there": an_entry_that_is_not_there,
        "a_part_of_a_deleted_entry": a_part_of_a_deleted_entry,
        "the_reader_is_behind": the_reader_is_behind,
        "something_waits_for_nothing": something_waits_for_nothing,
    },
    steps=96,
    tla="BatchAcks",
    from_tla=from_tla,
)
