"""Negative-ack tracker of one consumer: which entries to redeliver, and when (PIP-393).

An application that cannot process a message nacks it; after a delay, the client asks the broker to redeliver the
message. Meanwhile the tracker keeps the nacked entries in buckets. A bucket has the entries that become due in the same
short interval. A timer is armed for the first bucket. When the timer task runs, the tracker removes all due buckets and
redelivers their entries in one command. Of most message ids, the tracker keeps only ledger and entry id. It retains the
whole id if the id is traced (has a tracing span), or if the message was sent in several chunks.

Models `NegativeAcksTracker` of the Java client before and after PIP-393, of the C++ client (on which the Python and
Node.js clients are built), and `negativeAcksTracker` of the Go client. One step is one call, one run of the timer task,
one step of the wall clock, or an advance of the monotonic clock with all runs that become due.

    nack     adds the entry to a bucket. A nack is due at now + delay; the time of the bucket is this due time with the
             lowest `precision_bits` bits cleared
    timer    one timer, armed for the first bucket; no timer is armed while nothing is pending
    run      removes all due buckets and redelivers their entries in one command. An entry that is in several of these
             buckets is redelivered once
    ack      leaves the tracker unchanged; the broker ignores a redelivery request for an acknowledged message
    close    removes all pending nacks; later nacks are rejected

The tracker stores entries: the batch index of a message is dropped, and redelivery applies to the whole entry. With
batch-index acks, the broker and the consumer omit the entry's acknowledged messages. Nacks of one entry in different
buckets are independent: each bucket redelivers the entry in the run that removes the bucket.

State: the monotonic clock, the offset of the wall clock, the status, the buckets by time with their entries sorted by
position, the timer's deadline, retained message ids and chunked messages (model/negative_acks/message_ids.py), and
the Go client's AVL tree (model/negative_acks/avl_tree.py). Times are in units of `Config.clock_unit`.

Differences from the shipped clients (each a rule of `Config`; see `fuzz/defects/negative_acks.toml`):
  * a nack whose bucket is due before the timer's deadline re-arms the timer, so redelivery is not late;
  * a nack never postpones the timer;
  * due times follow the monotonic clock, so a wall clock step does not move them;
  * the precision bits are bits of a time in milliseconds;
  * the minimum delay applies to backoffs, too; negative delays and negative ids are rejected;
  * a run removes all due buckets, and redelivers an entry of several due buckets once;
  * a closed tracker stays closed, and a timer task that runs after close does nothing;
  * all chunks of a nacked chunked message are redelivered, whatever the class of the nacked message id.

Not modelled:
  * the tracker's lock, and the time between the removal of due buckets and `redeliverUnacknowledgedMessages`;
  * the consumer: which messages it requests (all, unless the subscription is Shared or Key_Shared), dead-letter topics,
    lost connections, and nacks of each chunk of a chunked message (Go without a backoff, and C++ since
    apache/pulsar-client-cpp#604);
  * the ack timeout (`UnAckedMessageTracker`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated, Any, Literal, NamedTuple

from model.machine import Failed, Machine, Setting, Step, plain, refused
from model.negative_acks import avl_tree, message_ids
from model.negative_acks.avl_tree import Tree
from model.negative_acks.delay import Backoff, Unit, converted, trim_lower_bits
from model.negative_acks.message_ids import ChunkedMessage, MessageId, NackedId
from model.positions import Position
from model.values import UNITS_PER_MS, AnyOrder, AtLeast, Between, InUnit, Origin, Rule, record

#: The sources of the rules.
JAVA, JAVA_OLD = "Java NegativeAcksTracker, master 2026-07", "Java NegativeAcksTracker before PIP-393, master 2025-01"
CPP, GO = "C++ NegativeAcksTracker, client 4.2.0", "Go negativeAcksTracker, master 2026-07"

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules in which the clients differ."""

    #: time of both clocks when the tracker is constructed, in clock units
    initial_time: Annotated[int, AtLeast(0)] = 0
    #: delay of a nack without a backoff
    redelivery_delay_ms: Annotated[int, AtLeast(0), Setting("negativeAckRedeliveryDelay", 60_000)] = 60_000
    #: a bucket is 2^precision_bits `precision_unit`s long; the Java and Go builders accept every nonnegative value
    precision_bits: Annotated[int, Between(0, 40), Setting("negativeAckPrecisionBitCnt", (("4.1", 8),))] = 8
    #: delays by redelivery count
    backoff: Annotated[Backoff, Setting("negativeAckRedeliveryBackoff", "none")] = Backoff()
    #: the minimum delay (`MIN_NACK_DELAY_MS`)
    min_delay_ms: Annotated[int, AtLeast(0)] = 100

    #: the unit of both clocks
    clock_unit: Annotated[
        Unit, Rule(Origin.RECORDED, {"ns": f"System.nanoTime in {JAVA_OLD}; time.Time in {GO}; steady_clock in {CPP}"})
    ] = "ms"
    #: the clock of due times; timers always follow the monotonic clock
    due_clock: Annotated[
        Literal["monotonic", "wall"],
        Rule(Origin.READ, {"wall": f"System.currentTimeMillis in {JAVA}; UnixMilli in {GO}"}),
    ] = "monotonic"
    #: which delays the minimum delay applies to. fixed: only `redelivery_delay_ms`, not the delays of a backoff
    min_delay_applies_to: Annotated[
        Literal["all", "fixed", "none"], Rule(Origin.RECORDED, {"fixed": f"add in {JAVA} and before", "none": GO})
    ] = "all"
    #: what happens to a nack whose backoff overflows and computes a negative delay
    negative_delay: Annotated[
        Literal["rejected", "accepted"], Rule(Origin.RECORDED, {"accepted": f"defaultNackBackoffPolicy.Next in {GO}"})
    ] = "rejected"
    #: the effect of a nack by message if no backoff is configured. `fixed_delay`: its delay is `redelivery_delay_ms`.
    #: `null_pointer`: the client calls the backoff, which is null
    message_without_backoff: Annotated[
        Literal["fixed_delay", "null_pointer"], Rule(Origin.RECORDED, {"null_pointer": f"AddMessage in {GO}"})
    ] = "fixed_delay"
    #: the redelivery count with which the backoff is called for a nack by message id, which has none
    redelivery_count_of_id: Annotated[
        int, Between(0, 1), Rule(Origin.RECORDED, {1: f"newNegativeAcksTracker in {GO}"})
    ] = 0
    #: the unit of the time whose lowest `precision_bits` bits are cleared
    precision_unit: Annotated[
        Literal["milliseconds", "clock_units"],
        Rule(Origin.READ, {"clock_units": "trimLowerBit on nanoseconds in C++ since apache/pulsar-client-cpp#497"}),
    ] = "milliseconds"
    #: the timer's deadline after a nack and after a run
    #: first_bucket           nack: when its bucket is due, if no timer is armed or the deadline is later. run: when the
    #:                        first remaining bucket is due
    #: delay_when_idle        nack: now + its delay, if no timer is armed. run: as with first_bucket
    #: interval_when_idle     nack: now + interval, if no timer is armed. run: now + interval, if nacks were pending
    #: interval_on_each_nack  nack: now + interval. run: as with interval_when_idle
    #: ticker                 unchanged: the timer fires at every interval from construction on
    #: An interval is a third of the delay of a nack by message id; except for a ticker, at least a third of the minimum
    #: delay
    timer: Annotated[
        Literal["first_bucket", "delay_when_idle", "interval_when_idle", "interval_on_each_nack", "ticker"],
        Rule(
            Origin.RECORDED,
            {"delay_when_idle": JAVA, "interval_when_idle": JAVA_OLD, "ticker": GO},
            {Origin.OBSERVED: {"interval_on_each_nack": f"scheduleTimer in {CPP}"}},
        ),
    ] = "first_bucket"
    #: the unit to which the timer's interval is rounded down
    interval_unit: Annotated[
        Literal["clock_units", "milliseconds"], Rule(Origin.OBSERVED, {"milliseconds": f"timerInterval_ in {CPP}"})
    ] = "clock_units"
    #: which nacks stay pending when a pending entry is nacked again: both, the one with the earlier bucket time
    #: (`earliest_due`), the new nack (`latest`), or the old nack (`first`)
    repeated_nack: Annotated[
        Literal["both", "earliest_due", "latest", "first"],
        Rule(
            Origin.RECORDED,
            {"latest": JAVA_OLD},
            {Origin.READ: {"first": "Go before #1410"}, Origin.INFERRED: {"earliest_due": "an option of ours"}},
        ),
    ] = "both"
    #: whether a bucket is due at its bucket time; otherwise it is due one clock unit later
    due_at_bucket_time: Annotated[bool, Rule(Origin.RECORDED, {False: f"triggerRedelivery in {JAVA_OLD}"})] = True
    #: which due buckets a run removes: all, or those that an iteration over the AVL tree visits while it removes keys
    due_buckets: Annotated[Literal["all", "avl_walk"], Rule(Origin.RECORDED, {"avl_walk": f"track in {GO}"})] = "all"
    #: what a redelivery command has at most once, apart from the ids of chunks. `message_id`: it may have the retained
    #: id and the plain id of an entry (see `retained_ids`). `nothing`: it has one id for each due bucket of an entry
    unique_in_command: Annotated[
        Literal["entry", "message_id", "nothing"],
        Rule(Origin.RECORDED, {"message_id": f"triggerRedelivery in {JAVA}", "nothing": f"track in {GO}"}),
    ] = "entry"
    #: what a nack after close does. `final`: it is rejected. `reopens`: it reopens the tracker. `stores_nacks`: it is
    #: accepted and never redelivered. `keeps_buckets`: as `stores_nacks`, and close does not remove pending nacks
    after_close: Annotated[
        Literal["final", "reopens", "stores_nacks", "keeps_buckets"],
        Rule(
            Origin.RECORDED,
            {"reopens": f"add in {JAVA} and before", "keeps_buckets": f"Close in {GO}"},
            {Origin.OBSERVED: {"stores_nacks": CPP}},
        ),
    ] = "final"
    #: what a run of the timer task does while `nackedMessages` is null: before the first nack, and after close
    task_without_buckets: Annotated[
        Literal["no_op", "null_pointer"],
        Rule(Origin.RECORDED, {"null_pointer": f"triggerRedelivery after close in {JAVA} and before"}),
    ] = "no_op"
    #: what a nack with a negative ledger or entry id does; no stored message has such an id. `ledger_fails`: it fails
    #: if the ledger id is negative
    negative_ids: Annotated[
        Literal["rejected", "ledger_fails", "accepted"],
        Rule(
            Origin.RECORDED,
            {"ledger_fails": JAVA_OLD, "accepted": f"{JAVA} and {GO}"},
            {Origin.OBSERVED: {"accepted": CPP}},
        ),
    ] = "rejected"
    #: which message ids are retained and redelivered in place of plain ids. A plain id has only ledger and entry id.
    #: `traced`: ids that have a span (`TraceableMessageId`), and ids of chunked messages. `with_partition`: an id with
    #: the partition for each entry
    retained_ids: Annotated[
        Literal["traced", "with_partition", "none"],
        Rule(Origin.RECORDED, {"with_partition": JAVA_OLD, "none": GO}, {Origin.OBSERVED: {"none": CPP}}),
    ] = "traced"
    #: what finds the chunks of a redelivered chunked message in `unAckedChunkedMessageIdSequenceMap`. `entry`: the
    #: position of the last chunk. `message_id`: only a redelivered id that equals the id of the chunked message
    chunks_found_by: Annotated[
        Literal["entry", "message_id"],
        Rule(Origin.RECORDED, {"message_id": f"addChunkedMessageIdsAndRemoveFromSequenceMap in {JAVA} and before"}),
    ] = "entry"


# ---- state --------------------------------------------------------------------------------------------


@record
class Bucket(NamedTuple):
    """The pending entries of one bucket time."""

    time: int  # bucket time
    entries: tuple[Position, ...]  # sorted by position


@record
class State(NamedTuple):
    """The tracker of a consumer, and its clocks."""

    now: int  # monotonic clock
    wall_offset: int  # wall clock minus monotonic clock
    #: new: `nackedMessages` is null (only with `after_close` `reopens`): before the first nack, and after close.
    #: failed: the constructor panicked
    status: Literal["new", "open", "closed", "failed"]
    buckets: tuple[Bucket, ...]  # by time
    timer: int | None  # deadline, on the monotonic clock
    retained_ids: tuple[MessageId, ...]
    chunked_messages: tuple[ChunkedMessage, ...]  # `unAckedChunkedMessageIdSequenceMap`
    avl_tree: Tree  # of the bucket times; empty unless `due_buckets` is avl_walk


def start(cfg: Config) -> State:
    """Returns the state after construction: no nack is pending. The start of a ticker with interval 0 panics."""
    status: Literal["new", "open", "failed"] = "new" if cfg.after_close == "reopens" else "open"
    timer = None
    if cfg.timer == "ticker":
        timer = cfg.initial_time + timer_interval(cfg)
        status = "failed" if timer_interval(cfg) == 0 else status
    return State(
        now=cfg.initial_time,
        wall_offset=0,
        status=status,
        buckets=(),
        timer=None if status == "failed" else timer,
        retained_ids=(),
        chunked_messages=(),
        avl_tree=None,
    )


class Nacked(NamedTuple):
    """Outcome of an accepted nack."""

    delay: int
    backoff_used: bool  # whether a backoff computed the delay from the message's redelivery count
    timer_changed: bool


class Redelivery(NamedTuple):
    """A redelivery command: its time and its message ids. They are sorted here; in the clients, their order is free."""

    at: int
    ids: tuple[MessageId, ...]

    def as_plain(self) -> dict[str, Any]:
        """Returns the command as plain data: its ids may be in any order."""
        return {"at": self.at, "ids": AnyOrder([plain(each) for each in self.ids])}


class Elapsed(NamedTuple):
    """Outcome of `advance_time`: the number of runs of the timer task, and their redelivery commands."""

    timer_runs: int
    redeliveries: tuple[Redelivery, ...]


negative_acks = Machine(
    "negative_acks",
    Config,
    start,
    source="PIP-393",
    java={
        "NegativeAcksTracker": ("add", "triggerRedelivery", "close"),
        "ConsumerImpl": ("unAckedChunkedMessageIdSequenceMap",),
    },
)

Duration = Annotated[int, AtLeast(0), InUnit("clock_unit")]
RedeliveryCount = Annotated[int, AtLeast(0)]

# ---- delays, buckets and the timer --------------------------------------------------------------------


def delay_of(cfg: Config, redelivery_count: int | None) -> int | None:
    """Returns the delay of a nack by message with this redelivery count, or by message id if the count is None.

    Models `add` and `RedeliveryBackoff.next`. A negative delay of a backoff is not raised to the minimum delay. Returns
    None if the client dereferences a null backoff.
    """
    minimum = cfg.min_delay_ms * UNITS_PER_MS[cfg.clock_unit]
    if cfg.backoff.delays:
        count = cfg.redelivery_count_of_id if redelivery_count is None else redelivery_count
        listed = cfg.backoff.delays[min(count, len(cfg.backoff.delays) - 1)]
        delay = converted(listed, cfg.backoff.unit, cfg.clock_unit)
        return minimum if 0 <= delay < minimum and cfg.min_delay_applies_to == "all" else delay
    if redelivery_count is not None and cfg.message_without_backoff == "null_pointer":
        return None
    delay = cfg.redelivery_delay_ms * UNITS_PER_MS[cfg.clock_unit]
    return minimum if delay < minimum and cfg.min_delay_applies_to != "none" else delay


def timer_interval(cfg: Config) -> int:
    """`timerIntervalNanos`, `timerInterval_`: returns a third of the delay of a nack by id.

    If the delay is below the minimum delay, the interval is a third of the minimum delay; a ticker has no such minimum.
    Only the interval of a ticker can be 0.
    """
    delay = delay_of(cfg, None) or 0  # never None for a nack by message id
    if cfg.timer == "ticker":
        return max(delay, 0) // 3
    unit = UNITS_PER_MS[cfg.clock_unit] if cfg.interval_unit == "milliseconds" else 1
    minimum = cfg.min_delay_ms * UNITS_PER_MS[cfg.clock_unit]
    # rounded down to a multiple of `unit`, but not to 0
    return max(max(delay, minimum) // 3 // unit, 1) * unit


def bucket_time(cfg: Config, due: int) -> int:
    """`trimLowerBit`: returns the bucket time of a due time."""
    unit = 1 if cfg.precision_unit == "clock_units" else UNITS_PER_MS[cfg.clock_unit]
    return trim_lower_bits(due, cfg.precision_bits, unit)


def with_entry(buckets: tuple[Bucket, ...], time: int, entry: Position) -> tuple[Bucket, ...]:
    """Returns the buckets with an entry added to the bucket of that time. Idempotent."""
    i = bisect_left(buckets, (time,))
    if i == len(buckets) or buckets[i].time != time:
        return (*buckets[:i], Bucket(time, (entry,)), *buckets[i:])
    entries = buckets[i].entries
    j = bisect_left(entries, entry)
    if j < len(entries) and entries[j] == entry:
        return buckets
    return (*buckets[:i], Bucket(time, (*entries[:j], entry, *entries[j:])), *buckets[i + 1 :])


def without_entry(buckets: tuple[Bucket, ...], entry: Position) -> tuple[Bucket, ...]:
    """Returns the buckets with an entry removed from all of them. Empty buckets are removed."""
    rest = [Bucket(b.time, tuple([e for e in b.entries if e != entry])) if entry in b.entries else b for b in buckets]
    return tuple([b for b in rest if b.entries])


def with_single_nack(cfg: Config, s: State, time: int, entry: Position) -> tuple[Bucket, ...]:
    """Returns the buckets after a nack, if `repeated_nack` is not `both`: one nack of each entry stays pending."""
    pending = [bucket.time for bucket in s.buckets if entry in bucket.entries]
    if pending and (cfg.repeated_nack == "first" or (cfg.repeated_nack == "earliest_due" and min(pending) <= time)):
        return s.buckets
    return with_entry(without_entry(s.buckets, entry), time, entry)


def timer_for_bucket(cfg: Config, s: State, time: int) -> int:
    """Returns the deadline of a timer for a bucket: when the bucket becomes due, or `now` if the bucket is due."""
    at = time - s.wall_offset if cfg.due_at_bucket_time else time - s.wall_offset + 1
    return at if at > s.now else s.now


def timer_after_nack(cfg: Config, s: State, time: int, delay: int) -> int | None:
    """Returns the timer's deadline after a nack with this bucket time and delay (`add`, `scheduleTimer`).

    With `repeated_nack` `first` or `earliest_due`, the buckets may lack the nack; it counts for the timer all the same.
    """
    if s.status == "closed":
        return s.timer  # a nack after close arms no timer, even if it is accepted (`after_close`)
    if cfg.timer == "first_bucket":
        at = timer_for_bucket(cfg, s, time)
        return at if s.timer is None or at < s.timer else s.timer
    if cfg.timer == "interval_on_each_nack":
        return s.now + timer_interval(cfg)
    if s.timer is not None or cfg.timer == "ticker":
        return s.timer
    return s.now + (delay if cfg.timer == "delay_when_idle" else timer_interval(cfg))


def timer_after_run(cfg: Config, s: State, remaining: tuple[Bucket, ...]) -> int | None:
    """Returns the timer's deadline after a run that leaves these buckets (`triggerRedelivery`, `handleTimer`).

    `interval_when_idle` and `interval_on_each_nack` re-arm the timer only if a nack was pending before the run. The
    next tick of a ticker does not depend on its runs (`advance_time`).
    """
    if cfg.timer in ("first_bucket", "delay_when_idle"):
        return timer_for_bucket(cfg, s, remaining[0].time) if remaining else None
    if cfg.timer == "ticker":
        return s.timer
    return s.now + timer_interval(cfg) if s.buckets else None


def is_due(cfg: Config, s: State, time: int) -> bool:
    """Returns whether the bucket of that time is due."""
    clock = s.now + s.wall_offset
    return time <= clock if cfg.due_at_bucket_time else time < clock


def split_due(cfg: Config, s: State) -> tuple[list[Bucket], tuple[Bucket, ...], Tree]:
    """Returns the buckets that a run removes, the remaining buckets, and the AVL tree of the remaining bucket times."""
    if cfg.due_buckets == "avl_walk":
        times, tree = avl_tree.walk(s.avl_tree, s.now + s.wall_offset)
        return (
            [bucket for bucket in s.buckets if bucket.time in times],
            tuple([bucket for bucket in s.buckets if bucket.time not in times]),
            tree,
        )
    due = 0
    while due < len(s.buckets) and is_due(cfg, s, s.buckets[due].time):
        due += 1
    return list(s.buckets[:due]), s.buckets[due:], None


def trigger_redelivery(cfg: Config, s: State) -> tuple[State, tuple[MessageId, ...]]:
    """Runs the timer task: removes the due buckets, re-arms the timer, returns the ids to redeliver in one command.

    Retained ids and chunked messages that the command redelivers are removed, too.
    """
    due, remaining, tree = split_due(cfg, s)
    timer = timer_after_run(cfg, s, remaining)
    if not due:
        return s._replace(timer=timer), ()
    entries = [entry for bucket in due for entry in bucket.entries]
    ids = message_ids.ids_to_redeliver(s.retained_ids, entries, cfg.unique_in_command)
    found = [m for m in s.chunked_messages if message_ids.is_found(cfg.chunks_found_by, m, ids)]
    chunks = {MessageId(chunk, m.id.partition) for m in found for chunk in m.chunks} - set(ids)
    s = s._replace(buckets=remaining, timer=timer, avl_tree=tree)
    if s.retained_ids:
        s = s._replace(retained_ids=message_ids.without(s.retained_ids, entries))
    if found:
        s = s._replace(chunked_messages=tuple([m for m in s.chunked_messages if m not in found]))
    return s, tuple(sorted([*ids, *chunks], key=message_ids.order_in_command))


# ---- calls --------------------------------------------------------------------------------------------


@negative_acks.action
def nack(
    cfg: Config, s: State, entry: Position, redelivery_count: RedeliveryCount | None, message_id: NackedId
) -> Step[State, Nacked]:
    """`NegativeAcksTracker.add`: adds an entry to the bucket of its due time and arms the timer.

    `negativeAcknowledge(Message)` passes a redelivery count, `negativeAcknowledge(MessageId)` passes None. `message_id`
    has the fields of the message id other than ledger and entry id. With the default rules, earlier nacks of the entry
    stay pending, and a closed tracker rejects the nack.
    """
    if s.status == "failed":
        return refused(s, "panic", "the ticker's interval is 0: the tracker was not constructed")
    if s.status == "closed" and cfg.after_close == "final":
        return refused(s, "illegal_state", "the tracker is closed")
    delay = delay_of(cfg, redelivery_count)
    if delay is None:
        return refused(s, "null_pointer", "the message has a redelivery count, and there is no backoff")
    if delay < 0 and cfg.negative_delay == "rejected":
        return refused(s, "illegal_argument", f"the backoff's delay for redelivery count {redelivery_count} is {delay}")
    if cfg.negative_ids == "rejected" and (entry.ledger < 0 or entry.entry < 0):
        return refused(s, "illegal_argument", f"the ledger or entry id of {entry.ledger}:{entry.entry} is negative")
    if s.status == "new":
        s = s._replace(status="open")
    if cfg.negative_ids == "ledger_fails" and entry.ledger < 0:
        # Java creates `nackedMessages`, and then fails to add the entry. So the tracker is open after this failure.
        return s, Failed("illegal_argument", f"the ledger id {entry.ledger} is negative")
    time = bucket_time(cfg, s.now + s.wall_offset + delay)
    both = cfg.repeated_nack == "both"
    buckets = with_entry(s.buckets, time, entry) if both else with_single_nack(cfg, s, time, entry)
    timer = timer_after_nack(cfg, s, time, delay)
    timer_changed = timer != s.timer
    retained = message_ids.retained_after_nack(cfg.retained_ids, s.retained_ids, entry, message_id)
    tree = avl_tree.inserted(s.avl_tree, time) if cfg.due_buckets == "avl_walk" else None
    s = s._replace(buckets=buckets, timer=timer, retained_ids=retained, avl_tree=tree)
    return s, Nacked(delay, redelivery_count is not None and bool(cfg.backoff.delays), timer_changed)


@negative_acks.action
def receive_chunks(
    cfg: Config, s: State, last_chunk: Position, partition: Annotated[int, AtLeast(-1)], chunks: tuple[Position, ...]
) -> Step[State, None]:
    """`unAckedChunkedMessageIdSequenceMap`: stores the positions of the chunks of a received chunked message."""
    if len(chunks) < 2:
        return refused(s, "illegal_argument", f"a chunked message has at least 2 chunks, got {len(chunks)}")
    message = ChunkedMessage(MessageId(last_chunk, partition, "chunk", chunks[0]), chunks)
    return s._replace(chunked_messages=message_ids.with_chunked_message(s.chunked_messages, message)), None


@negative_acks.action
def ack(cfg: Config, s: State, entry: Position) -> Step[State, None]:
    """`ConsumerImpl.acknowledgeAsync`: the tracker is unchanged; pending nacks of the entry are still redelivered."""
    return s, None


@negative_acks.action
def close(cfg: Config, s: State) -> Step[State, None]:
    """`NegativeAcksTracker.close`: removes pending nacks and cancels the timer. Idempotent.

    With `after_close` `keeps_buckets`, pending nacks stay. The consumer is closed too; the broker redelivers its
    unacknowledged messages.
    """
    if s.status == "failed":
        return s, None
    if cfg.after_close == "keeps_buckets":
        return s._replace(status="closed", timer=None), None
    status: Literal["new", "closed"] = "new" if cfg.after_close == "reopens" else "closed"
    return s._replace(status=status, buckets=(), timer=None, retained_ids=(), avl_tree=None), None


# ---- time ---------------------------------------------------------------------------------------------


@negative_acks.action
def advance_time(cfg: Config, s: State, by: Duration, timer_lag: Duration) -> Step[State, Elapsed]:
    """Advances the clock. The timer task (`triggerRedelivery`) runs `timer_lag` after each deadline.

    A run that is due after the end of the step belongs to a later step.
    """
    end, runs = s.now + by, 0
    redeliveries: list[Redelivery] = []
    while s.timer is not None:
        at = max(s.timer + timer_lag, s.now)
        if at > end:
            break
        s, ids = trigger_redelivery(cfg, s._replace(now=at))
        if cfg.timer == "ticker" and s.timer is not None:  # the next tick does not depend on the timer lag
            s = s._replace(timer=s.timer + timer_interval(cfg))
        runs += 1
        if ids:
            redeliveries.append(Redelivery(at, ids))
    return s._replace(now=end), Elapsed(runs, tuple(redeliveries))


@negative_acks.action
def run_timer_task(cfg: Config, s: State) -> Step[State, Redelivery | None]:
    """`triggerRedelivery`: runs a timer task that had already started when its timer was re-armed or cancelled.

    All other runs are part of `advance_time`. If the tracker is not open, the run only follows `task_without_buckets`.
    """
    if s.status == "failed":
        return refused(s, "panic", "the ticker's interval is 0: the tracker was not constructed")
    if s.status != "open":
        if cfg.task_without_buckets == "null_pointer":
            return refused(s, "null_pointer", "nackedMessages is null")
        return s, None
    s, ids = trigger_redelivery(cfg, s)
    return s, Redelivery(s.now, ids) if ids else None


@negative_acks.fault
def fail_redelivery(cfg: Config, s: State) -> Step[State, Redelivery | None]:
    """`triggerRedelivery`: runs a timer task in which the consumer throws.

    The due nacks are lost, and the timer is re-armed for the other nacks.
    """
    s, outcome = run_timer_task(cfg, s)
    if isinstance(outcome, Redelivery):
        return s, Failed("consumer_failed", "the due entries were not redelivered")
    return s, outcome


@negative_acks.fault
def step_wall_clock(cfg: Config, s: State, by: Annotated[int, InUnit("clock_unit")]) -> Step[State, None]:
    """Steps the wall clock forward or back. Has no effect if due times follow the monotonic clock."""
    if cfg.due_clock == "monotonic":
        return s, None
    return s._replace(wall_offset=s.wall_offset + by), None


# ---- canonical form and observation -------------------------------------------------------------------


@negative_acks.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Sets both clocks to the wall clock modulo the bucket length. The tracker behaves the same after this shift.

    Bucket times keep their distance from the wall clock, the timer's deadline from the monotonic clock.
    """
    unit = 1 if cfg.precision_unit == "clock_units" else UNITS_PER_MS[cfg.clock_unit]
    clock = s.now + s.wall_offset
    now = clock % (unit << cfg.precision_bits)
    return s._replace(
        now=now,
        wall_offset=0,
        buckets=tuple([Bucket(bucket.time - clock + now, bucket.entries) for bucket in s.buckets]),
        timer=None if s.timer is None else s.timer - s.now + now,
        avl_tree=avl_tree.shifted(s.avl_tree, now - clock),
    )


@negative_acks.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns whether `nackedMessages` exists, the number of nacks, the buckets, the deadline and the retained ids.

    `nackedMessages` exists while the tracker is open. A closed tracker has it if buckets remain: with `after_close`
    `keeps_buckets` or `stores_nacks`.
    """
    return {
        "created": s.status == "open" or bool(s.buckets),
        "nacked_entries": sum([len(bucket.entries) for bucket in s.buckets]),
        "buckets": [[bucket.time, [entry.as_plain() for entry in bucket.entries]] for bucket in s.buckets],
        "timer": s.timer,
        "retained_ids": [[*each.position, each.partition] for each in s.retained_ids],
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = negative_acks.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

pip_393 = negative_acks.profile(
    "pip-393",
    "the text of PIP-393: wall-clock milliseconds; only time, ledger id and entry id are stored; the rules of "
    "profile reference where the text defines none",
    Config(due_clock="wall", retained_ids="none"),
)

recorded = negative_acks.profile(
    "pulsar-2026-07",
    "the Java client after PIP-393, recorded from Apache Pulsar master of 2026-07-23",
    Config(
        due_clock="wall",
        min_delay_applies_to="fixed",
        timer="delay_when_idle",
        unique_in_command="message_id",
        after_close="reopens",
        task_without_buckets="null_pointer",
        negative_ids="accepted",
        chunks_found_by="message_id",
    ),
)

before_393 = negative_acks.profile(
    "java-before-393",
    "the Java client before PIP-393 (4.0), recorded from Apache Pulsar master of 2025-01-02",
    Config(
        precision_bits=0,
        clock_unit="ns",
        min_delay_applies_to="fixed",
        precision_unit="clock_units",
        timer="interval_when_idle",
        repeated_nack="latest",
        due_at_bucket_time=False,
        after_close="reopens",
        task_without_buckets="null_pointer",
        negative_ids="ledger_fails",
        retained_ids="with_partition",
        chunks_found_by="message_id",
    ),
)

go = negative_acks.profile(
    "go",
    "the Go client after PIP-393, recorded from its master of 2026-07-23",
    Config(
        clock_unit="ns",
        due_clock="wall",
        min_delay_applies_to="none",
        negative_delay="accepted",
        message_without_backoff="null_pointer",
        redelivery_count_of_id=1,
        timer="ticker",
        due_buckets="avl_walk",
        unique_in_command="nothing",
        after_close="keeps_buckets",
        negative_ids="accepted",
        retained_ids="none",
        chunks_found_by="message_id",
    ),
)

cpp = negative_acks.profile(
    "cpp",
    "the C++ client after PIP-393 and the Python and Node.js clients built on it, observed with client 4.2.0",
    Config(
        clock_unit="ns",
        precision_unit="clock_units",
        timer="interval_on_each_nack",
        interval_unit="milliseconds",
        after_close="stores_nacks",
        negative_ids="accepted",
        retained_ids="none",
        chunks_found_by="message_id",
    ),
)

coalescing = negative_acks.profile(
    "coalescing",
    "option: an entry is pending once, at the earliest of its due times",
    Config(repeated_nack="earliest_due"),
)

go_before_1410 = negative_acks.profile(
    "go-before-1410",
    "profile reference with one rule of the Go client before PIP-393: a nack of a pending entry is ignored",
    Config(repeated_nack="first"),
)

java_4_0 = negative_acks.release("4.0", rules=before_393.config)
java_4_1 = negative_acks.release("4.1", "4.2", "5.0", rules=recorded.config)
