"""The transaction log of a coordinator: what becomes of transactions over batches, failures, crashes, and restarts.

Source: PIP-160 (the log store), PIP-31 (transactions), PIP-54 (deletion of parts of entries, for which PIP-160 cites
PIP-45). Step grain: one call, the end of one write of the ledger, or one entry of a replay.

    append      an operation becomes a record, and waits with others for their batch; its caller waits, too
    written     an entry is durable: only now its records have their effects, one by one, and their callers are told
    places      a transaction knows where its records are; when it ends, they are deleted, each by its index
    deleted     an entry, when all its records are; the mark moves over deleted entries; whole ledgers before the mark
                that is stored are trimmed
    replay      what is not deleted is read, and done again by the same rules: what is found is what was, for all that
                callers were told
    watermark   every transaction up to it has ended; participants may abort what they still have of them
    ids         given in order, and never again: every record has the last one, and so have the ledger's properties

Three decisions beside the proposal need a word; the others stand at the rules of `Config`:

    unknown outcome    an append that failed may be in the log all the same, and a replay will do what it says. A store
                       that goes on may decide otherwise meanwhile, and tell a caller so (a commit is acknowledged, and
                       after a restart the transaction is aborting). Here it serves nothing until it is opened again.
                       After the first failure nothing is appended, so a second unknown outcome cannot come on top. A
                       failure that is known not to have reached the ledger stops nothing
    caps               a record of the cursor that cannot hold all deletions holds those up to some entry. Ranges and
                       parts that are cut each on their own can keep a deleted end, and forget its deleted beginning
    empty watermark    when nothing lives it is the last id that is in the log, and not the last one that was given,
                       which may never have reached the log, and is then given again after a crash

Not modelled, of what is written: when a batch is (`max_records`, and otherwise at any time: see `model/txn_writer/machine.py`),
bytes, names of topics, owners, the time of last modification, updates that expect another status than the one before,
and an entry that is an empty container, which cannot be in this log.

Not modelled, of the store: how often the cursor is written; that a replay reads 100 entries at a time into a queue of
2000; reads that fail and are tried again, and the pause before; that the store is registered before what it has found
is driven on; a clean close with entries in flight; a flag for batching that changed before a crash; the unloading of a
coordinator that was fenced.

Not modelled, of the coordinator: a timeout below 100 ms, which aborts at once; how an end is driven, which of its
errors are tried again, every 1000 ms; that the low watermark goes out with ends only, and no reply when too many
transactions live; the client's statuses ERROR and TIME_OUT; and what participants do.
"""

from __future__ import annotations

from typing import Annotated, Literal

from model.batch_acks.state import Acks, Partial, settled
from model.machine import Failed, Machine, Refused, Step, refused
from model.txn_log.replay import (
    Recovered,
    completed,
    next_entry,
    opened,
    promise_of,
    recovered_id,
    replayed,
    stopped,
    with_promise,
)
from model.txn_log.state import (
    ENDED,
    Answer,
    Config,
    Entry,
    Place,
    Promise,
    Record,
    State,
    Target,
    Told,
    Txn,
    closed_cursor,
    effect_of,
    end_of,
    is_batching,
    live_of,
    snapshot,
    start,
    txn_of,
    with_deleted,
)
from model.values import AtLeast

txn_log = Machine("txn_log", Config, start, source="PIP-160")

#: Who is told what in a step, in the order of being told.
Answers = tuple[Answer, ...]

#: How many of the entries in flight are in the log all the same, or all, if fewer are in flight.
Durable = Annotated[int, AtLeast(0)]


# ---- operations ---------------------------------------------------------------------------------------


def not_ready(s: State) -> tuple[State, Refused]:
    """No operation is served before the replay is done, or after an append whose outcome is not known."""
    return refused(s, "illegal_state", f"the store is {s.status}, not ready")


def not_found(s: State, txn: int) -> tuple[State, Refused]:
    """A transaction that never was, is not yet, or has ended."""
    return refused(s, "not_found", f"no transaction {txn} lives")


@txn_log.action
def new_transaction(cfg: Config, s: State, timeout_ms: Annotated[int, AtLeast(0)]) -> Step[State, Answers]:
    """The next id is given, and the transaction lives when its record is durable. An id whose record fails is lost.

    A new one is refused while so many live as may, whatever the store does; those on their way do not count.
    """
    if 0 < cfg.max_active <= len(s.txns):
        return refused(s, "too_many", f"{len(s.txns)} transactions live")
    if s.status != "ready":
        return not_ready(s)
    txn = s.last_id + 1
    record = Record(txn, "NEW", txn, start_ms=s.now_ms, timeout_ms=timeout_ms)
    return appended(cfg, s._replace(last_id=txn), record)


@txn_log.action
def add_participant(
    cfg: Config,
    s: State,
    txn: Annotated[int, AtLeast(0)],
    op: Literal["ADD_PARTITION", "ADD_SUBSCRIPTION"],
    name: Annotated[int, AtLeast(0)],
) -> Step[State, Answers]:
    """A partition or a subscription is to take part in a transaction, which must be open when this is durable."""
    if s.status != "ready":
        return not_ready(s)
    if txn_of(s.txns, txn) is None:
        return not_found(s, txn)
    return appended(cfg, s, Record(txn, op, s.last_id, name=name))


@txn_log.action
def update_status(cfg: Config, s: State, txn: Annotated[int, AtLeast(0)], to: Target) -> Step[State, Answers]:
    """A transaction is to go one step further, if it is in the status before when this is durable.

    Where it has the new status already, the caller is told that it is done, and nothing is written.
    """
    if s.status != "ready":
        return not_ready(s)
    t = txn_of(s.txns, txn)
    if t is None:
        return not_found(s, txn)
    if t.status == to:
        return s, (Answer(txn, "UPDATE", "done"),)
    return appended(cfg, s, Record(txn, "UPDATE", s.last_id, to=to))


@txn_log.action
def low_watermark(cfg: Config, s: State) -> Step[State, int]:
    """The id up to which every transaction has ended: the one before the first that lives.

    When none lives it is the last id that is in the log, or the one before the first whose record is on its way. An id
    that was given and is not in the log may be given again after a crash.
    """
    if s.status != "ready":
        return not_ready(s)
    watermark = watermark_of(cfg, s)
    return s if watermark <= s.told_watermark else s._replace(told_watermark=watermark), watermark


def watermark_of(cfg: Config, s: State) -> int:
    """The low watermark. As shipped it is 0 when nothing lives."""
    if s.txns:
        return s.txns[0].id - 1
    if cfg.empty_watermark == "zero":
        return 0
    coming = [record.txn for entry in (*s.in_flight, s.buffer) for record in entry if record.op == "NEW"]
    return min([recovered_id(s), *[txn - 1 for txn in coming]])


@txn_log.action
def expired(cfg: Config, s: State) -> Step[State, tuple[int, ...]]:
    """The transactions that are open and whose deadline is over, the earliest first: they are to be aborted."""
    if s.status != "ready":
        return not_ready(s)
    late = [(t.deadline_ms, t.id) for t in s.txns if t.status == "OPEN" and t.deadline_ms < s.now_ms]
    return s, tuple([txn for _, txn in sorted(late)])


@txn_log.action
def advance_time(cfg: Config, s: State, by_ms: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """Time passes."""
    return s._replace(now_ms=s.now_ms + by_ms), None


# ---- appends ------------------------------------------------------------------------------------------


def appended(cfg: Config, s: State, record: Record) -> tuple[State, Answers]:
    """A record joins its batch, which is written when it is full; without batching it is an entry of its own."""
    if not is_batching(cfg, s):
        return submitted(s, (record,))
    s = s._replace(buffer=(*s.buffer, record))
    return with_flush(s) if len(s.buffer) >= cfg.max_records else (s, ())


def with_flush(s: State) -> tuple[State, Answers]:
    """All records that wait are one entry now."""
    return submitted(s._replace(buffer=()), s.buffer)


def submitted(s: State, entry: Entry) -> tuple[State, Answers]:
    """An entry goes to the ledger, a new one if need be. Without one it fails at once, and is not in the log.

    A ledger that could not be replaced is found out by the append that fails; the next one tries again.
    """
    if s.ledger == "fenced":
        return s, answers(entry, "fenced")
    if s.ledger == "write_failed":
        return s._replace(ledger="closed"), answers(entry, "not_written")
    if s.ledger == "closed":
        s = with_new_ledger(s)
    return s._replace(in_flight=(*s.in_flight, entry)), ()


def answers(entry: Entry, told: Told) -> Answers:
    """All callers of an entry are told the same."""
    return tuple([Answer(r.txn, r.op, told) for r in entry])


def with_new_ledger(s: State) -> State:
    """The log goes on in a new ledger, unless the last one is empty, and the properties have the last id."""
    ledgers = (*s.ledgers, 0) if s.ledgers[-1] else s.ledgers
    return s._replace(ledger="open", ledgers=ledgers, ledger_id=s.last_id)


@txn_log.action
def flush(cfg: Config, s: State) -> Step[State, Answers]:
    """What waits is written as one entry, however little it is."""
    return with_flush(s) if s.buffer else (s, ())


@txn_log.action
def written(cfg: Config, s: State) -> Step[State, Answers]:
    """The first entry in flight is durable: each of its records has its effect, in order, and its caller is told."""
    if not s.in_flight:
        return refused(s, "illegal_state", "no entry is in flight")
    entry, number = s.in_flight[0], end_of(s)
    s = in_log(s._replace(in_flight=s.in_flight[1:]), entry)
    told: list[Answer] = []
    for at, record in enumerate(entry):
        s, answer = with_effect(cfg, s, record, Place(number, at))
        told.append(answer)
    return s, tuple(told)


def in_log(s: State, entry: Entry) -> State:
    """An entry is in the last ledger."""
    return s._replace(log=(*s.log, entry), ledgers=(*s.ledgers[:-1], s.ledgers[-1] + 1))


def with_effect(cfg: Config, s: State, record: Record, place: Place) -> tuple[State, Answer]:
    """A record that has just become durable has its effect; its deadline counts from now."""
    effect = effect_of(s.txns, record, place, s.now_ms + record.timeout_ms)
    if effect.told == "done":
        before, after = txn_of(s.txns, record.txn), txn_of(effect.txns, record.txn)
        if after is not None:
            promise = promise_of(after)
        elif before is not None and record.to is not None:
            promise = Promise(before.id, record.to, before.partitions, before.subscriptions)
        promised, told_id = with_promise(s.promised, promise), max(s.told_id, record.txn)
        s = s._replace(txns=effect.txns, promised=promised, told_id=told_id)
    return with_deleted(cfg, s, effect.deleted), Answer(record.txn, record.op, effect.told)


# ---- failures of the ledger ---------------------------------------------------------------------------


@txn_log.fault
def write_fails(cfg: Config, s: State, durable: Durable) -> Step[State, Answers]:
    """The ledger confirms nothing of what is in flight, and is lost.

    The first so many entries are in the log, or all, if fewer are in flight. All callers are told that this is not
    known, and nothing has an effect. The store stops.
    """
    if not s.in_flight:
        return refused(s, "illegal_state", "no entry is in flight")
    return with_unknown(cfg, s._replace(ledger="write_failed"), durable)


def with_unknown(cfg: Config, s: State, durable: int) -> tuple[State, Answers]:
    """What is in flight comes to an end that nobody knows. As shipped, the store goes on all the same."""
    told = [answer for entry in s.in_flight for answer in answers(entry, "unknown")]
    stops = cfg.unknown_outcome == "reopens" and s.in_flight != () and s.status == "ready"
    s = with_durable(s, durable)
    return s._replace(status="stopped") if stops else s, tuple(told)


def with_durable(s: State, durable: int) -> State:
    """Nothing is in flight any more; the first so many entries of it are in the log."""
    entries, s = s.in_flight[:durable], s._replace(in_flight=())
    for entry in entries:
        s = in_log(s, entry)
    return s


@txn_log.fault
def creation_fails(cfg: Config, s: State) -> Step[State, Answers]:
    """The ledger is full and no new one can be made: what is in flight was never sent, and its callers are told so."""
    if s.ledger != "open":
        return refused(s, "illegal_state", f"the ledger is {s.ledger}, not open")
    told = [answer for entry in s.in_flight for answer in answers(entry, "not_written")]
    return s._replace(in_flight=(), ledger="write_failed" if s.in_flight else "closed"), tuple(told)


@txn_log.fault
def fence(cfg: Config, s: State, durable: Durable) -> Step[State, Answers]:
    """Another broker takes the log: no append succeeds any more, nor does a write of the cursor.

    What is in flight fails, and the first so many entries of it are in the log, or all, if fewer are in flight.
    """
    if s.ledger == "fenced":
        return refused(s, "illegal_state", "the ledger is fenced")
    return with_unknown(cfg, s._replace(ledger="fenced"), durable)


@txn_log.fault
def cursor_breaks(cfg: Config, s: State) -> Step[State, None]:
    """From now on no deletion succeeds, and none is written, until the store is opened again."""
    if not s.cursor_works:
        return refused(s, "illegal_state", "the cursor does not work")
    return s._replace(cursor_works=False), None


# ---- ledgers and the cursor's record ------------------------------------------------------------------


@txn_log.action
def roll_ledger(cfg: Config, s: State) -> Step[State, int]:
    """The ledger is full: the log goes on in a new one, whose properties have the last id. How many there are."""
    if s.ledger != "open":
        return refused(s, "illegal_state", f"the ledger is {s.ledger}, not open")
    if s.ledgers[-1] == 0:
        return refused(s, "illegal_state", "the ledger is empty")
    return with_new_ledger(s), len(s.ledgers) + 1


@txn_log.action
def trim(cfg: Config, s: State) -> Step[State, int]:
    """Ledgers of which every entry lies before the mark that is stored are dropped, but never the last one.

    The list of ledgers is written anew then, and its properties with the last id.
    """
    count, first = 0, s.first
    while count < len(s.ledgers) - 1 and first + s.ledgers[count] <= s.durable.mark:
        first += s.ledgers[count]
        count += 1
    if count == 0:
        return s, 0
    log = s.log[first - s.first :]
    kept = {record.txn for entry in log for record in entry}
    promised = tuple([p for p in s.promised if p.status not in ENDED or p.id in kept])
    s = s._replace(first=first, ledgers=s.ledgers[count:], log=log, ledger_id=s.last_id, promised=promised)
    return s, count


@txn_log.action
def persist(cfg: Config, s: State) -> Step[State, bool]:
    """What is deleted is written, as far as a record of the cursor can hold it; true if there was anything to write."""
    if s.ledger == "fenced" or not s.cursor_works:
        return refused(s, "illegal_state", "the cursor cannot be written")
    if not s.dirty:
        return s, False
    return s._replace(durable=snapshot(cfg, s), dirty=False), True


# ---- the end, and the beginning -----------------------------------------------------------------------


@txn_log.action
def reopen(cfg: Config, s: State, batching: bool) -> Step[State, Answers]:
    """A clean close, and the store is opened again, with batching or without: deletions are written before.

    Records that wait for their batch are not written, and their callers are told so.
    """
    if s.in_flight:
        return refused(s, "illegal_state", "entries are in flight")
    return opened(cfg, s, closed_cursor(cfg, s), batching), answers(s.buffer, "closed")


@txn_log.fault
def crash(cfg: Config, s: State, durable: Durable) -> Step[State, None]:
    """Memory is lost, and callers hear nothing; the first so many of the entries in flight are in the log, or all, if
    fewer are in flight.

    The store is opened again, with what was written of the deletions.
    """
    s = with_durable(s, durable)
    return opened(cfg, s, s.durable, s.batching), None


@txn_log.action
def replay_entry(cfg: Config, s: State) -> Step[State, int]:
    """The next entry that is not deleted is read, and what its records say is done; how many these are.

    A record of a transaction that is not there is one of a transaction that has ended: it is deleted.
    """
    if s.status != "replaying":
        return refused(s, "illegal_state", f"the store is {s.status}, not replaying")
    entry = next_entry(s)
    if entry is None:
        return refused(s, "illegal_state", "the log has been read to its end")
    return replayed(cfg, s, entry)


@txn_log.action
def replay_completes(cfg: Config, s: State) -> Step[State, Recovered]:
    """Nothing is left to be read: the store is ready.

    Those that were committing and aborting go on, and those that are open are watched until their deadlines.
    """
    if s.status != "replaying":
        return refused(s, "illegal_state", f"the store is {s.status}, not replaying")
    if next_entry(s) is not None:
        return refused(s, "illegal_state", "the log has not been read to its end")
    return completed(s)


@txn_log.fault
def read_fails(cfg: Config, s: State) -> Step[State, Recovered | Failed]:
    """Reading stops for good before the end of the log: the store is not opened."""
    if s.status != "replaying":
        return refused(s, "illegal_state", f"the store is {s.status}, not replaying")
    return stopped(cfg, s)


# ---- names and observers ------------------------------------------------------------------------------


@txn_log.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Ids count from the first that is known, entries from the first that is kept, time from the first that counts.

    An id of 0 has a meaning where the watermark of nothing is 0: then ids stay.
    """
    ids = 0 if cfg.empty_watermark == "zero" else first_id(s)
    time = first_time(s)
    if ids == 0 and s.first == 0 and time == 0:
        return s
    entries = s.first

    def of_record(r: Record) -> Record:
        start_ms = r.start_ms - time if r.op == "NEW" else 0
        return r._replace(txn=r.txn - ids, last_id=r.last_id - ids, start_ms=start_ms)

    def of_entry(entry: Entry) -> Entry:
        return tuple([of_record(r) for r in entry])

    def of_txn(t: Txn) -> Txn:
        places = tuple([Place(p.entry - entries, p.at) for p in t.places])
        return t._replace(id=t.id - ids, deadline_ms=t.deadline_ms - time, places=places)

    return s._replace(
        buffer=of_entry(s.buffer),
        in_flight=tuple([of_entry(entry) for entry in s.in_flight]),
        first=0,
        log=tuple([of_entry(entry) for entry in s.log]),
        ledger_id=s.ledger_id - ids,
        txns=tuple([of_txn(t) for t in s.txns]),
        last_id=s.last_id - ids,
        acks=shifted(s.acks, entries),
        durable=shifted(s.durable, entries),
        read_next=s.read_next - entries if s.read_next else 0,
        now_ms=s.now_ms - time,
        promised=tuple([p._replace(id=p.id - ids) for p in s.promised]),
        told_id=max(s.told_id - ids, -1),
        told_watermark=max(s.told_watermark - ids, -1),
    )


def first_id(s: State) -> int:
    """The first id that a later step may show or compare; one that was only told before it is as good as any other."""
    known = [r.txn for entry in (*s.log, *s.in_flight, s.buffer) for r in entry]
    known += [t.id for t in s.txns] + [p.id for p in s.promised]
    return min([*known, s.last_id + 1, s.ledger_id + 1])


def first_time(s: State) -> int:
    """The first time that a later step may compare with."""
    starts = [r.start_ms for entry in (*s.log, *s.in_flight, s.buffer) for r in entry if r.op == "NEW"]
    return min([*starts, s.now_ms])


def shifted(acks: Acks, by: int) -> Acks:
    """What is deleted, with entries counted from a later one."""
    partial = tuple([Partial(p.entry - by, p.remaining) for p in acks.partial])
    return Acks(acks.mark - by, acks.deleted >> by, partial)


@txn_log.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """What the coordinator's statistics show, and what is left of the log."""
    found = settled(s.acks)
    return {
        "status": s.status,
        "ledger": s.ledger,
        "low_watermark": watermark_of(cfg, s) if s.status == "ready" else None,
        "last_id": s.last_id,
        "transactions": [[t.id, t.status, t.partitions, t.subscriptions, t.deadline_ms] for t in s.txns],
        "ledgers": list(s.ledgers),
        "mark": found.mark,
        "durable_mark": s.durable.mark,
        "not_deleted": [live_of(found, n, len(entry)).bit_count() for n, entry in enumerate(s.log, s.first)],
        "callers_waiting": len(s.buffer) + sum(len(entry) for entry in s.in_flight),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = txn_log.profile("reference", "what this specification holds to be right", Config())

shipped = txn_log.profile(
    "pulsar-2026-07",
    "the rules of Apache Pulsar master, 2026-07-23, as read in its source",
    Config(
        parts_are_deletable="as_configured",
        partial_deletes_are_dirty=False,
        metadata_keeps_sets=False,
        range_cap_is_exact=False,
        caps_keep="each_its_own",
        unknown_outcome="goes_on",
        replay_removes_first=False,
        stopped_replay="complete",
        empty_watermark="zero",
    ),
)

later = txn_log.profile(
    "pulsar-2026-09",
    "the same with pull request 26474, which finds parts in the metadata store, and with ranges kept as bitmaps",
    shipped.config._replace(metadata_keeps_sets=True, range_cap_is_exact=True),
)

earlier = txn_log.profile(
    "pulsar-4.0",
    "the same before 4.1, where parts of entries could not be deleted unless the log was batched or a broker said so",
    shipped.config._replace(
        batch_index_acks=False, max_ranges=10_000, max_batch_records=10_000, max_ranges_in_metadata=1000
    ),
)

goes_on = txn_log.profile(
    "goes-on",
    "the reference with one shipped rule: a store goes on after an append whose outcome is not known",
    Config(unknown_outcome="goes_on"),
)
