"""The tracker of negative acknowledgements: which messages a consumer wants again, and when it asks for them.

Source: PIP-393 (section "Design"), and the clients that were shipped before and after it. Step grain: one call of the
tracker, or one run of its timer's task; `advance_time` makes all runs that come due on the way.

    nack     an entry goes to the slot of its due time, now + delay, cut down to a multiple of 2^bits ms; whatever is
             there of the same entry in other slots stays there
    timer    one, set for the first slot that holds anything; none is set when nothing is pending
    run      all slots that have begun are taken out and redelivered in one command, each entry once
    ack      cancels nothing: the broker drops what is no longer pending when it is asked to redeliver it
    close    forgets everything, for good

State: the clock that timers follow, how far the wall clock is from it, the slots by time with their entries in order,
the timer's deadline, what is kept of message ids (model/negative_acks/ids.py), and the shape of the Go client's tree
(model/negative_acks/tree.py). What is stored is the entry: batch indexes are dropped, and a redelivery brings the whole batch.

Rules on which the clients differ are settings; each has a profile. Times and delays are in units of the clock, which
is a setting: a millisecond, or a nanosecond.

Not modelled: what happens between taking slots out and handing them to the consumer, the lock, the consumer's own
rules (a subscription that is not shared redelivers everything), acknowledgement timeouts, dead letters.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated, Literal, NamedTuple

from model.machine import Failed, Machine, Setting, Step, refused
from model.negative_acks import ids as nacked_ids
from model.negative_acks import tree as nack_tree
from model.negative_acks.delay import UNITS_OF, trimmed
from model.negative_acks.ids import Chunks, MessageId, Told
from model.negative_acks.tree import Tree
from model.positions import Position
from model.values import AtLeast, Between, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions differ."""

    #: what times and delays are counted in
    unit: Literal["ms", "ns"] = "ms"
    #: what the clock shows when the tracker is made, in its units
    start: Annotated[int, AtLeast(0)] = 0
    #: after how long a message comes back if there is no backoff
    redelivery_delay_ms: Annotated[int, AtLeast(0), Setting("negativeAckRedeliveryDelay", "1 minute")] = 60_000
    #: slots are 2 to the power of this long
    precision_bits: Annotated[int, Between(0, 40), Setting("negativeAckRedeliveryDelayPrecision", "8")] = 8
    #: delays by redelivery count, in units of the clock; the last one stands for all larger counts; none: no backoff
    backoff: Annotated[tuple[int, ...], Setting("negativeAckRedeliveryBackoff", "none")] = ()
    #: no delay is shorter
    least_delay_ms: Annotated[int, AtLeast(0)] = 100

    #: which delays the least one holds for
    least_delay_holds_for: Literal["all", "fixed", "none"] = "all"
    #: a delay below zero, of a backoff that has overflowed
    negative_delay: Literal["refused", "is_past"] = "refused"
    #: a message with a redelivery count, and no backoff
    count_without_backoff: Literal["ignored", "null_pointer"] = "ignored"
    #: the redelivery count that stands for an id, which has none
    count_of_an_id: Annotated[int, Between(0, 1)] = 0
    #: the clock of due times; timers always follow the steady one
    clock: Literal["steady", "wall"] = "steady"
    #: what the precision's bits are bits of
    precision_of: Literal["milliseconds", "units"] = "milliseconds"
    #: for when the timer is set: the first slot; or the delay of a nack, or a third of the delay from now, when none is
    #: set; or that third from each nack on; or always each such third, counted from the start
    timer: Literal["first_slot", "idle_nack", "idle_period", "every_nack", "ticker"] = "first_slot"
    #: an entry that is pending already: both stay; the earlier one does; the later nack counts; the first one does
    again: Literal["both", "earliest", "replaces", "first_stays"] = "both"
    #: whether a slot is due at the very time it begins
    due_at_its_time: bool = True
    #: a run takes what is due, or walks over a tree while it removes from it
    walk: Literal["complete", "while_removing"] = "complete"
    #: an entry of two slots that are due at once is in the command: once; once, and again where its first id was a kept
    #: one; once for each slot
    command: Literal["entries", "ids", "slots"] = "entries"
    #: what comes after close: nothing; a later nack starts again; slots stay, nacks are stored and never redelivered
    close: Literal["final", "forgets", "keeps"] = "final"
    #: a run of the timer's task when there is nothing to run on
    task_without_slots: Literal["does_nothing", "null_pointer"] = "does_nothing"
    #: ids of ledgers and entries below zero, which no stored message has
    negative_ids: Literal["refused", "ledger_fails", "accepted"] = "refused"
    #: what is kept of ids
    ids: Literal["traced", "with_partition", "none"] = "traced"
    #: how the pieces of a chunked message are found
    pieces_by: Literal["entry", "id"] = "entry"


# ---- state --------------------------------------------------------------------------------------------


@record
class Slot(NamedTuple):
    """The entries that come back at the same time."""

    time: int
    entries: tuple[Position, ...]  # in order


@record
class State(NamedTuple):
    """A consumer's tracker."""

    now: int
    skew: int  # the wall clock, less the steady one
    #: fresh: a Java client's before the first nack and after close; broken: its start failed
    life: Literal["fresh", "open", "closed", "broken"]
    slots: tuple[Slot, ...]  # by time
    timer: int | None  # its deadline, on the steady clock
    kept: tuple[MessageId, ...]
    chunks: tuple[Chunks, ...]
    tree: Tree  # of the slots' times, if they are walked over


def start(cfg: Config) -> State:
    """Nothing is pending; a ticker ticks from now on, and fails if it never could."""
    life: Literal["fresh", "open", "broken"] = "fresh" if cfg.close == "forgets" else "open"
    timer = None
    if cfg.timer == "ticker":
        timer = cfg.start + period(cfg)
        life = "broken" if period(cfg) == 0 else life
    return State(cfg.start, 0, life, (), None if life == "broken" else timer, (), (), None)


class Nacked(NamedTuple):
    """What became of a negative acknowledgement."""

    delay: int
    asked_backoff: bool  # for a redelivery count
    timer_set: bool


class Redelivery(NamedTuple):
    """A command for redelivery, when it was given, and the ids in it, in order."""

    at: int
    ids: tuple[MessageId, ...]


class Passed(NamedTuple):
    """What happened while time passed: how often the timer's task ran, and what it redelivered."""

    runs: int
    redeliveries: tuple[Redelivery, ...]


negative_acks = Machine("negative_acks", Config, start, source="PIP-393")

Span = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(0)]

# ---- small rules --------------------------------------------------------------------------------------


def delay_of(cfg: Config, count: int | None) -> int | None:
    """The delay of a message with this redelivery count, or of an id; None where the version has none for it."""
    least = cfg.least_delay_ms * UNITS_OF[cfg.unit]
    if cfg.backoff:
        place = cfg.count_of_an_id if count is None else count
        delay = cfg.backoff[min(place, len(cfg.backoff) - 1)]
        return least if 0 <= delay < least and cfg.least_delay_holds_for == "all" else delay
    if count is not None and cfg.count_without_backoff == "null_pointer":
        return None
    delay = cfg.redelivery_delay_ms * UNITS_OF[cfg.unit]
    return least if delay < least and cfg.least_delay_holds_for != "none" else delay


def period(cfg: Config) -> int:
    """A third of the delay of an id, for those that wake up regularly."""
    delay = delay_of(cfg, None) or 0
    if cfg.timer == "ticker":
        return max(delay, 0) // 3
    return max(max(delay, cfg.least_delay_ms * UNITS_OF[cfg.unit]) // 3, 1)


def slot_time(cfg: Config, due: int) -> int:
    """The slot of a due time: its lowest bits are zero, so it is never late."""
    return trimmed(due, cfg.precision_bits, 1 if cfg.precision_of == "units" else UNITS_OF[cfg.unit])


def with_entry(slots: tuple[Slot, ...], time: int, entry: Position) -> tuple[Slot, ...]:
    """The slots with an entry, which may be in the slot already."""
    i = bisect_left(slots, (time,))
    if i == len(slots) or slots[i].time != time:
        return (*slots[:i], Slot(time, (entry,)), *slots[i:])
    entries = slots[i].entries
    j = bisect_left(entries, entry)
    if j < len(entries) and entries[j] == entry:
        return slots
    return (*slots[:i], Slot(time, (*entries[:j], entry, *entries[j:])), *slots[i + 1 :])


def without_entry(slots: tuple[Slot, ...], entry: Position) -> tuple[Slot, ...]:
    """The slots without an entry, wherever it was; those that are empty then are gone."""
    cut = [Slot(s.time, tuple([e for e in s.entries if e != entry])) if entry in s.entries else s for s in slots]
    return tuple([s for s in cut if s.entries])


def stored(cfg: Config, s: State, time: int, entry: Position) -> tuple[Slot, ...]:
    """The slots after a nack, by the rule for an entry that is pending only once."""
    pending = [slot.time for slot in s.slots if entry in slot.entries]
    if pending and (cfg.again == "first_stays" or (cfg.again == "earliest" and min(pending) <= time)):
        return s.slots
    return with_entry(without_entry(s.slots, entry), time, entry)


def wake_up(cfg: Config, s: State, time: int) -> int:
    """On the steady clock: when a slot is due, or now if it is already."""
    at = time - s.skew if cfg.due_at_its_time else time - s.skew + 1
    return at if at > s.now else s.now


def timer_after_nack(cfg: Config, s: State, time: int, delay: int) -> int | None:
    """The timer's deadline when an entry has come to the slot of that time. Another slot never makes it later."""
    if cfg.timer == "first_slot":
        if s.timer is not None and s.timer <= s.now:
            return s.timer
        at = wake_up(cfg, s, time)
        return at if s.timer is None or at < s.timer else s.timer
    if cfg.timer == "every_nack":
        return s.now + period(cfg)
    if s.timer is not None or cfg.timer == "ticker":
        return s.timer
    return s.now + (delay if cfg.timer == "idle_nack" else period(cfg))


def timer_after_run(cfg: Config, s: State, left: tuple[Slot, ...]) -> int | None:
    """The timer's deadline after a run that has left these slots; a regular one rests when it has found nothing."""
    if cfg.timer in ("first_slot", "idle_nack"):
        return wake_up(cfg, s, left[0].time) if left else None
    if cfg.timer == "ticker":
        return s.timer
    return s.now + period(cfg) if s.slots else None


def is_due(cfg: Config, s: State, time: int) -> bool:
    """Whether a slot has begun."""
    clock = s.now + s.skew
    return time <= clock if cfg.due_at_its_time else time < clock


def taken(cfg: Config, s: State) -> tuple[list[Slot], tuple[Slot, ...], Tree]:
    """The due slots that a run takes, those that it leaves, and the tree of their times."""
    if cfg.walk == "while_removing":
        times, tree = nack_tree.walked(s.tree, s.now + s.skew)
        return (
            [slot for slot in s.slots if slot.time in times],
            tuple([t for t in s.slots if t.time not in times]),
            tree,
        )
    due = 0
    while due < len(s.slots) and is_due(cfg, s, s.slots[due].time):
        due += 1
    return list(s.slots[:due]), s.slots[due:], None


def run(cfg: Config, s: State) -> tuple[State, tuple[MessageId, ...]]:
    """A run of the timer's task: what is due is taken out, the timer is set anew, the consumer gets the ids."""
    due, left, tree = taken(cfg, s)
    timer = timer_after_run(cfg, s, left)
    if not due:
        return s._replace(timer=timer), ()
    entries = [entry for slot in due for entry in slot.entries]
    ids = nacked_ids.ids_of(s.kept, entries, cfg.command)
    found = [c for c in s.chunks if nacked_ids.is_found(cfg.pieces_by, c, ids)]
    pieces = {MessageId(piece, c.whole.partition) for c in found for piece in c.pieces} - set(ids)
    s = s._replace(slots=left, timer=timer, tree=tree)
    if s.kept:
        s = s._replace(kept=nacked_ids.without(s.kept, entries))
    if found:
        s = s._replace(chunks=tuple([c for c in s.chunks if c not in found]))
    return s, tuple(sorted([*ids, *pieces]))


# ---- calls --------------------------------------------------------------------------------------------


@negative_acks.action
def nack(cfg: Config, s: State, entry: Position, count: Count | None, told: Told) -> Step[State, Nacked]:
    """An entry is to come back after the delay, whatever else is pending ("Design"). An id has no redelivery count.

    A tracker that is closed takes nothing any more. A later, longer or shorter nack of the same entry is another one.
    """
    if s.life == "broken":
        return refused(s, "panic", "a ticker without a period was never started")
    if s.life == "closed" and cfg.close == "final":
        return refused(s, "illegal_state", "the tracker is closed")
    delay = delay_of(cfg, count)
    if delay is None:
        return refused(s, "null_pointer", "a message brings a redelivery count, and there is no backoff to ask")
    if delay < 0 and cfg.negative_delay == "refused":
        return refused(s, "illegal_argument", f"the backoff's delay for redelivery count {count} is {delay}")
    if cfg.negative_ids == "refused" and (entry.ledger < 0 or entry.entry < 0):
        return refused(s, "illegal_argument", f"entry {entry.ledger}:{entry.entry} is below zero")
    if s.life == "fresh":
        s = s._replace(life="open")
    if cfg.negative_ids == "ledger_fails" and entry.ledger < 0:
        return s, Failed("illegal_argument", "a ledger id below zero")
    time = slot_time(cfg, s.now + s.skew + delay)
    slots = with_entry(s.slots, time, entry) if cfg.again == "both" else stored(cfg, s, time, entry)
    timer = timer_after_nack(cfg, s, time, delay)
    timer_set, kept = timer != s.timer, nacked_ids.kept_of(cfg.ids, s.kept, entry, told)
    tree = nack_tree.planted(s.tree, time) if cfg.walk == "while_removing" else None
    return s._replace(slots=slots, timer=timer, kept=kept, tree=tree), Nacked(
        delay, count is not None and bool(cfg.backoff), timer_set
    )


@negative_acks.action
def remember_chunks(
    cfg: Config, s: State, last: Position, partition: Annotated[int, AtLeast(-1)], pieces: tuple[Position, ...]
) -> Step[State, None]:
    """The consumer has received a message in several pieces: when its last entry comes back, all of them must."""
    if len(pieces) < 2:
        return refused(s, "illegal_argument", "a chunked message has two pieces or more")
    whole = MessageId(last, partition, "chunk", pieces[0])
    return s._replace(chunks=nacked_ids.with_chunks(s.chunks, Chunks(whole, pieces))), None


@negative_acks.action
def ack(cfg: Config, s: State, entry: Position) -> Step[State, None]:
    """An acknowledgement cancels nothing that is pending; what was acknowledged is filtered by the broker."""
    return s, None


@negative_acks.action
def close(cfg: Config, s: State) -> Step[State, None]:
    """The consumer closes: pending entries are forgotten, for the broker redelivers them by itself. Again: nothing."""
    if s.life == "broken":
        return s, None
    if cfg.close == "keeps":
        return s._replace(life="closed", timer=None), None
    life: Literal["fresh", "closed"] = "fresh" if cfg.close == "forgets" else "closed"
    return s._replace(life=life, slots=(), timer=None, kept=(), tree=None), None


# ---- time ---------------------------------------------------------------------------------------------


@negative_acks.action
def advance_time(cfg: Config, s: State, by: Span, lag: Span) -> Step[State, Passed]:
    """Time passes. The timer's task runs whenever its deadline has passed, each time late by the lag.

    A run that would come after the end does not: it is left for later, and the clock stands at the end.
    """
    end, runs = s.now + by, 0
    redeliveries: list[Redelivery] = []
    while s.timer is not None:
        at = max(s.timer + lag, s.now)
        if at > end:
            break
        s, ids = run(cfg, s._replace(now=at))
        if cfg.timer == "ticker" and s.timer is not None:
            s = s._replace(timer=s.timer + period(cfg))
        runs += 1
        if ids:
            redeliveries.append(Redelivery(at, ids))
    return s._replace(now=end), Passed(runs, tuple(redeliveries))


@negative_acks.action
def timer_task_runs(cfg: Config, s: State) -> Step[State, Redelivery | None]:
    """A task that had begun already gets its turn now, although the timer was set anew or the tracker closed."""
    if s.life == "broken":
        return refused(s, "panic", "a ticker without a period was never started")
    if s.life != "open":
        if cfg.task_without_slots == "null_pointer":
            return refused(s, "null_pointer", "there are no slots to look at")
        return s, None
    s, ids = run(cfg, s)
    return s, Redelivery(s.now, ids) if ids else None


@negative_acks.fault
def redelivery_fails(cfg: Config, s: State) -> Step[State, Redelivery | None]:
    """As timer_task_runs, and the consumer throws: what was taken is lost, and nothing else; the timer is set."""
    before = s
    s, outcome = timer_task_runs(cfg, before)
    if isinstance(outcome, Redelivery):
        return s, Failed("consumer_failed", "what was due was not redelivered")
    return s, outcome


@negative_acks.fault
def wall_clock_jumps(cfg: Config, s: State, by: int) -> Step[State, None]:
    """The wall clock is set to another time. A tracker that follows the steady clock does not see it."""
    if cfg.clock == "steady":
        return s, None
    return s._replace(skew=s.skew + by), None


# ---- names and observers ------------------------------------------------------------------------------


@negative_acks.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """The tracker's clock stands as early as it can with the same slots to come: only its place in a slot matters."""
    grain = (1 if cfg.precision_of == "units" else UNITS_OF[cfg.unit]) << cfg.precision_bits
    clock = s.now + s.skew
    now = clock % grain
    return s._replace(
        now=now,
        skew=0,
        slots=tuple([Slot(slot.time - clock + now, slot.entries) for slot in s.slots]),
        timer=None if s.timer is None else s.timer - s.now + now,
        tree=nack_tree.moved(s.tree, now - clock),
    )


@negative_acks.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """The slots, how many entries they hold, the timer, and what is kept of ids."""
    return {
        "is_made": s.life == "open" or bool(s.slots),
        "nacked_entries": sum([len(slot.entries) for slot in s.slots]),
        "slots": [[slot.time, [entry.as_plain() for entry in slot.entries]] for slot in s.slots],
        "timer": s.timer,
        "kept": [[*each.position, each.partition] for each in s.kept],
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = negative_acks.profile("reference", "what this specification holds to be right", Config())

recorded = negative_acks.profile(
    "pulsar-2026-07",
    "the Java client after PIP-393, as recorded from Apache Pulsar master, 2026-07-23",
    Config(
        least_delay_holds_for="fixed",
        clock="wall",
        timer="idle_nack",
        command="ids",
        close="forgets",
        task_without_slots="null_pointer",
        negative_ids="accepted",
        pieces_by="id",
    ),
)

before_393 = negative_acks.profile(
    "java-before-393",
    "the Java client before PIP-393, as recorded from Apache Pulsar master, 2025-01-02",
    Config(
        unit="ns",
        precision_bits=0,
        least_delay_holds_for="fixed",
        precision_of="units",
        timer="idle_period",
        again="replaces",
        due_at_its_time=False,
        close="forgets",
        task_without_slots="null_pointer",
        negative_ids="ledger_fails",
        ids="with_partition",
        pieces_by="id",
    ),
)

go = negative_acks.profile(
    "go",
    "the Go client after PIP-393, as recorded from its master, 2026-07-23",
    Config(
        unit="ns",
        least_delay_holds_for="none",
        negative_delay="is_past",
        count_without_backoff="null_pointer",
        count_of_an_id=1,
        clock="wall",
        timer="ticker",
        walk="while_removing",
        command="slots",
        close="keeps",
        negative_ids="accepted",
        ids="none",
        pieces_by="id",
    ),
)

cpp = negative_acks.profile(
    "cpp",
    "the C++ client after PIP-393, which the Python and Node clients are made of, as we read it",
    Config(unit="ns", precision_of="units", timer="every_nack", negative_ids="accepted", ids="none", pieces_by="id"),
)

coalescing = negative_acks.profile(
    "coalescing",
    "an option of the reference: an entry is pending once, for the earliest of its due times",
    Config(again="earliest"),
)

first_stays = negative_acks.profile(
    "go-before-1410",
    "the Go client before PIP-393 where it differs from the reference: a later nack of a pending entry is ignored",
    Config(again="first_stays"),
)
