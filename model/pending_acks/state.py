"""Pending acknowledgements of transactions: settings, state, and the small functions on parts, claims and records.

Entries of the topic are numbered from 0. An acknowledgement of a part of an entry says what it leaves of it, as a mask:
bit i is message i. Without a mask it is of the whole entry.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from model.ack_set import all_of, first_of, words_of
from model.batch_acks import state as cursor
from model.batch_acks.state import Acks, is_deleted, narrowed, remaining_of, settled, up_to, whole
from model.machine import Setting
from model.pending_acks.log_index import LogIndex, empty_index
from model.values import AtLeast, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions differ."""

    #: how many messages the entries of the topic have, in turn: entry n has as many as place n modulo the length says
    batch_sizes: tuple[Annotated[int, AtLeast(1)], ...] = (4, 1, 3)
    #: whether acknowledgements of parts of entries count in the subscription's cursor
    batch_acks: Annotated[
        bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", "false up to 4.0, true from 4.1 on")
    ] = True
    #: whether records of the log wait for others and share an entry
    batching: Annotated[bool, Setting("transactionPendingAckBatchedWriteEnabled", "false")] = True
    #: after how many records the index of the log gets a key, at least
    min_lag: Annotated[int, AtLeast(1), Setting("transactionPendingAckLogIndexMinLag", "500")] = 500
    #: after how many reads in a row that failed a replay fails; 0: it reads again and again
    read_attempts: Annotated[int, AtLeast(0)] = 3

    #: when it is found that a message is taken: before the acknowledgement is appended to the log, or when it is in it
    conflicts_are_found: Literal["before_the_append", "in_the_log"] = "before_the_append"
    #: what an append does that failed and is perhaps in the log: the store is opened anew before it serves, or memory
    #: changes as if it had not failed
    failed_appends: Literal["open_anew", "change_memory"] = "open_anew"
    #: what becomes of a commit in the log whose acknowledgements the cursor refuses: the store is opened anew, the
    #: acknowledgements stay pending, or they are forgotten and the caller is told of success
    refused_commits: Literal["open_anew", "stay_pending", "are_forgotten"] = "open_anew"
    #: whether another transaction's pending cumulative acknowledgement, or one's own, keeps an end from looking further
    cumulative_acks_hide_others: bool = False
    #: whether a part of an entry that is wholly pending is a conflict; else the request is never answered
    parts_of_whole_entries_conflict: bool = True
    #: where an overlap is looked for: in the batch, claim by claim, or in one set of all that is pending of the entry,
    #: in its words when zeros at its end are cut
    overlap: Literal["within_batch", "words_of_pending"] = "within_batch"
    #: whether an entry whose messages are acknowledged one by one in a transaction counts where parts do not
    empty_sets_mean_whole: bool = True
    #: which transactions up to the low watermark are aborted: all, when any transaction ends, or one after the other
    #: from the first holder on, when one ends that has acknowledged message by message
    low_watermark_aborts: Literal["all", "from_the_first"] = "all"

    #: whether a replay begins after the mark of the log; else where the log's cursor stands, which was kept since the
    #: store was closed
    replay_begins_at_the_mark: bool = True
    #: whether a replay that was stopped early has failed; else it is reported as done
    stopped_replay_fails: bool = True
    #: what a replay drops of an acknowledgement: what is acknowledged in the subscription, or all of it if a part is
    recovery_drops: Literal["what_is_acknowledged", "the_whole_record"] = "what_is_acknowledged"
    #: whether a cumulative acknowledgement into a batch is found again with its set; else it is of the whole entry
    recovery_keeps_cumulative_sets: bool = True
    #: whether a replayed end of a cumulative acknowledgement is that of its own transaction; else that of any
    replayed_ends_have_owners: bool = True


# ---- state --------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """An acknowledgement of an entry, and the mask of what it leaves of it; None: it is of the whole entry."""

    entry: int
    leaves: int | None


class Messages(NamedTuple):
    """Messages of an entry, as a mask."""

    entry: int
    messages: int


@record
class Record(NamedTuple):
    """A record of the log. `cumulative` is the type of an acknowledgement, or of what an end is the end of."""

    op: Literal["ack", "commit", "abort"]
    cumulative: bool
    txn: int
    parts: tuple[Part, ...]  # of an acknowledgement; of a cumulative one, one


#: An entry of the log.
Entry = tuple[Record, ...]


@record
class Call(NamedTuple):
    """A record on its way into the log, and who waits for it."""

    ticket: int  # 0: nobody
    record: Record
    low_watermark: int  # of an end: no transaction up to this one is open


class Holder(NamedTuple):
    """A transaction, and what it has acknowledged message by message, in order of entries."""

    txn: int
    parts: tuple[Part, ...]


class Cumulative(NamedTuple):
    """The pending cumulative acknowledgement: a subscription has one at most."""

    txn: int
    part: Part


@record
class State(NamedTuple):
    """A subscription's cursor, its pending-ack log, and what memory knows of the log.

    Memory is that of the store while it is ready or is being replayed; otherwise there is none.
    """

    acks: Acks  # of the subscription's cursor, in memory
    durable: Acks  # and in storage
    log: tuple[Entry, ...]  # from the first one that is kept
    read: int  # the entry that the log's cursor reads next
    log_index: LogIndex  # memory
    status: Literal["none", "initializing", "ready", "error", "closed"]
    progress: int  # of a replay: up to where it has come
    attempts: int  # of a replay: reads in a row that failed
    queue: tuple[Call, ...]  # requests that wait until the store is ready
    buffer: tuple[Call, ...]
    in_flight: tuple[tuple[Call, ...], ...]
    held: tuple[Holder, ...]  # memory: in the order in which transactions first acknowledged
    cumulative: Cumulative | None  # memory
    low_watermark: int  # memory: the highest that came with an end
    next_ticket: int


def start(cfg: Config) -> State:
    """A subscription of which nothing is acknowledged; its store is not open yet."""
    nothing = Acks()
    return State(
        nothing, nothing, (), 0, empty_index(cfg.min_lag), "none", 0, 0, (), (), (), (), None, 0, next_ticket=1
    )


# ---- the subscription's cursor ------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _rules(batch_sizes: tuple[int, ...]) -> cursor.Config:
    return cursor.Config(batch_sizes=batch_sizes)


def everything_of(cfg: Config, entry: int) -> int:
    """The mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def acked_of(cfg: Config, acks: Acks, entry: int) -> int:
    """The mask of the messages of an entry that are acknowledged."""
    if is_deleted(acks, entry):
        return everything_of(cfg, entry)
    remaining = remaining_of(acks, entry)
    return 0 if remaining is None else everything_of(cfg, entry) & ~remaining


def bits_of(cfg: Config, part: Part) -> int:
    """The mask of the messages that an acknowledgement is of."""
    return everything_of(cfg, part.entry) & ~(part.leaves or 0)


def is_whole(cfg: Config, leaves: int | None) -> bool:
    """The cursor takes it for an acknowledgement of the whole entry."""
    return leaves is None or (leaves == 0 and (cfg.batch_acks or cfg.empty_sets_mean_whole))


def with_part(cfg: Config, acks: Acks, part: Part) -> Acks:
    """The cursor after an acknowledgement of an entry; of a part, only where parts count. The mark does not move."""
    if is_deleted(acks, part.entry):
        return acks
    if is_whole(cfg, part.leaves):
        return whole(acks, part.entry)
    if part.leaves is None or not cfg.batch_acks:
        return acks
    return narrowed(_rules(cfg.batch_sizes), acks, part.entry, part.leaves)


def with_parts(cfg: Config, acks: Acks, parts: tuple[Part, ...]) -> Acks:
    """The cursor after these acknowledgements, its mark moved."""
    for part in parts:
        acks = with_part(cfg, acks, part)
    return settled(acks)


def with_all_up_to(cfg: Config, acks: Acks, part: Part) -> Acks:
    """The cursor after everything before an entry, and this part of it, is acknowledged."""
    end = part.entry + is_whole(cfg, part.leaves)
    acks = up_to(acks, end) if end > acks.mark else acks
    return with_parts(cfg, acks, (part,))


# ---- what transactions hold ---------------------------------------------------------------------------


def held_by(s: State, txn: int) -> tuple[Part, ...]:
    """What a transaction has acknowledged message by message."""
    for holder in s.held:
        if holder.txn == txn:
            return holder.parts
    return ()


def with_held(parts: tuple[Part, ...], new: Part) -> tuple[Part, ...]:
    """The parts with one more; of an entry that is among them, what is left in both."""
    for i, old in enumerate(parts):
        if old.entry == new.entry:
            both = None if old.leaves is None or new.leaves is None else old.leaves & new.leaves
            return (*parts[:i], Part(old.entry, both), *parts[i + 1 :])
        if old.entry > new.entry:
            return (*parts[:i], new, *parts[i:])
    return (*parts, new)


def holding(held: tuple[Holder, ...], txn: int, parts: tuple[Part, ...]) -> tuple[Holder, ...]:
    """The holders when a transaction holds these, too."""
    for i, holder in enumerate(held):
        if holder.txn == txn:
            return (*held[:i], Holder(txn, merged(holder.parts, parts)), *held[i + 1 :])
    return (*held, Holder(txn, merged((), parts))) if parts else held


def merged(old: tuple[Part, ...], new: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts with several more."""
    for part in new:
        old = with_held(old, part)
    return old


def released(held: tuple[Holder, ...], txn: int) -> tuple[Holder, ...]:
    """The holders without a transaction."""
    return tuple([holder for holder in held if holder.txn != txn])


def on_the_way(s: State) -> list[Call]:
    """The calls that are not in the log yet, in order."""
    return [*[call for calls in s.in_flight for call in calls], *s.buffer]


def claims_on(cfg: Config, s: State, entry: int) -> list[Part]:
    """The parts of an entry that transactions hold; where conflicts are found early, those on their way, too."""
    claims = [part for holder in s.held for part in holder.parts if part.entry == entry]
    if cfg.conflicts_are_found == "before_the_append":
        coming = [call.record for call in on_the_way(s) if call.record.op == "ack" and not call.record.cumulative]
        claims += [part for each in coming for part in each.parts if part.entry == entry]
    return claims


def cumulative_claim(cfg: Config, s: State) -> Cumulative | None:
    """The cumulative acknowledgement that another one must be further than; the last one that is on its way counts."""
    if cfg.conflicts_are_found == "before_the_append":
        for call in reversed(on_the_way(s)):
            if call.record.op == "ack" and call.record.cumulative:
                return Cumulative(call.record.txn, call.record.parts[0])
    return s.cumulative


def reach(part: Part) -> tuple[int, int]:
    """How far a cumulative acknowledgement reaches: its entry, and the first message of it that is left, -1 if none."""
    first = first_of(part.leaves or 0)
    return (part.entry, first) if first >= 0 else (part.entry + 1, -1)


# ---- conflicts ----------------------------------------------------------------------------------------


def as_one(claims: list[Part]) -> list[Part]:
    """As shipped, what an acknowledgement is compared with: of all the claims on its entry, what is left in each."""
    return list(merged((), tuple(claims)))


def overlaps(cfg: Config, part: Part, claim: Part) -> bool:
    """An acknowledgement of a part of an entry is of messages that a claim on it is of."""
    if claim.leaves is None:
        return cfg.parts_of_whole_entries_conflict
    both = bits_of(cfg, part) & bits_of(cfg, claim)
    if cfg.overlap == "words_of_pending":
        both &= all_of(64 * len(words_of(claim.leaves)))
    return both != 0


def conflict_of_part(cfg: Config, s: State, part: Part) -> str:
    """Why a transaction cannot acknowledge a part of an entry; empty if it can."""
    if is_deleted(s.acks, part.entry):
        return f"entry {part.entry} is acknowledged"
    claims = claims_on(cfg, s, part.entry)
    if part.leaves is None:
        return f"entry {part.entry} is pending" if claims else ""
    if bits_of(cfg, part) & acked_of(cfg, s.acks, part.entry):
        return f"a message of entry {part.entry} is acknowledged"
    if cfg.overlap == "words_of_pending":
        claims = as_one(claims)
    if any(overlaps(cfg, part, claim) for claim in claims):
        return f"a message of entry {part.entry} is pending"
    return ""


def conflict(cfg: Config, s: State, ack: Record) -> str:
    """Why a transaction cannot acknowledge all of this; empty if it can."""
    if not ack.cumulative:
        return next((why for why in [conflict_of_part(cfg, s, part) for part in ack.parts] if why), "")
    part, other = ack.parts[0], cumulative_claim(cfg, s)
    if part.entry < s.acks.mark:
        return f"entry {part.entry} is acknowledged"
    if other is not None and other.txn != ack.txn:
        return f"transaction {other.txn} has a cumulative acknowledgement"
    if other is not None and reach(part) <= reach(other.part):
        return "the transaction has acknowledged as much"
    return ""


def is_never_answered(s: State, ack: Record) -> bool:
    """As shipped: a part of an entry that is wholly pending comes through the checks, and ends in an exception."""
    wholly = [part.entry for holder in s.held for part in holder.parts if part.leaves is None]
    return any(part.leaves is not None and part.entry in wholly for part in ack.parts)


# ---- redelivery ---------------------------------------------------------------------------------------


def covered_by(cfg: Config, claim: Cumulative | None, entry: int) -> int:
    """The mask of the messages of an entry that a cumulative acknowledgement is of."""
    if claim is None or entry > claim.part.entry:
        return 0
    return everything_of(cfg, entry) if entry < claim.part.entry else bits_of(cfg, claim.part)


def kept_of(cfg: Config, s: State, entry: int) -> int:
    """The mask of the messages of an entry that are acknowledged or pending."""
    kept = acked_of(cfg, s.acks, entry) | covered_by(cfg, s.cumulative, entry)
    for holder in s.held:
        for part in holder.parts:
            kept |= bits_of(cfg, part) if part.entry == entry else 0
    return kept


def to_redeliver(cfg: Config, s: State, parts: tuple[Part, ...], ended: Cumulative | None) -> tuple[Messages, ...]:
    """What consumers get again of what has ended: what is not acknowledged, and what nobody else holds.

    `s` is the state without what has ended.
    """
    ends = {part.entry: bits_of(cfg, part) for part in parts}
    for entry in range(s.acks.mark, ended.part.entry + 1 if ended is not None else 0):
        ends[entry] = ends.get(entry, 0) | covered_by(cfg, ended, entry)
    found = [Messages(entry, ends[entry] & ~kept_of(cfg, s, entry)) for entry in sorted(ends)]
    return tuple([each for each in found if each.messages])


# ---- the log ------------------------------------------------------------------------------------------


def last_ack(entry: Entry) -> int:
    """The last entry of the topic that an entry of the log acknowledges; -1 if there is none."""
    return max([part.entry for each in entry for part in each.parts], default=-1)


def trimmed(s: State, index: LogIndex, count: int) -> State:
    """The state with another index and without so many entries of the log."""
    if not count:
        return s._replace(log_index=index)
    read, progress = max(s.read - count, 0), max(s.progress - count, 0)
    return s._replace(log_index=index, log=s.log[count:], read=read, progress=progress)


def without_memory(cfg: Config, s: State) -> State:
    """The store has forgotten what is pending; the cursor has not forgotten anything."""
    read = 0 if cfg.replay_begins_at_the_mark else s.read
    return s._replace(
        read=read, log_index=empty_index(cfg.min_lag), progress=0, attempts=0, held=(), cumulative=None, low_watermark=0
    )
