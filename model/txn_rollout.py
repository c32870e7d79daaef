"""Upgrade and downgrade of brokers whose transaction logs hold batches.

Source: PIP-160, sections "Compatibility", "Upgrade" and "Downgrade". Step grain: one step of an operator, or one step
of a store: it is opened or closed, writes an entry, deletes, begins a ledger, or trims.

    brokers   old ones, before PIP-160, know neither the flag nor batches; new ones have a flag, off at first
    stores    a log of transactions is open at one broker, or closed; it writes batches or plain entries
    logs      ledgers with what there is still to be read: plain entries of one record, and batches; the last ledger is
              written to; a ledger goes when nothing is left in it and in those before it
    opening   reads all that is left. A new broker reads any mixture; an old one fails on a batch, whatever is in it
    steps     to upgrade: the flags go on when all brokers are new. Steps 3 and 4 of the upgrade change nothing here;
              the commands of step 4 did not ship. To downgrade: the flags go off, every store is opened again, the
              last ledger of each is noted, transactions end, logs are trimmed; when every ledger that was noted is
              gone, brokers may be old again

Where the proposal leaves a choice, or a version is another:

* A store reads the flag when it is opened, and writes as it said then until it is opened again.
* The last ledger is noted when no store writes batches any more. The proposal notes it when the flags are off.
* A record of a batch can be deleted whatever the flag is. Shipped, only where batching is on or batch index
  acknowledgement is; else the deletion is reported as done, nothing happens, and the transaction is back after the next
  opening; with it comes what was deleted of that batch before.

Not modelled: what is in a record, several records of a transaction, deletions that a crash forgets, the size of a
ledger, the time that waiting takes. Stores of pending acknowledgements, which have a flag of their own, and trim
otherwise: as their subscription moves on, and then only at their next append or opening.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Failed, Machine, Setting, Step, refused
from model.values import AtLeast, Below, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, then the rules on which versions and operators differ."""

    #: how many brokers there are; they are named by numbers from 0
    brokers: Annotated[int, AtLeast(1)] = 2
    #: how many stores there are; likewise
    stores: Annotated[int, AtLeast(1)] = 2
    #: whether records of batches can be deleted one by one in every log, whatever its own rule says
    batch_index_acks: Annotated[
        bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", "false up to 4.0, true from 4.1 on")
    ] = False

    #: whether operators turn flags on, and make brokers old, only where the proposal's steps allow it
    operators_follow_the_steps: bool = True
    #: when the last ledgers with batches are noted: when no store writes batches, or as soon as the flags are off
    ledgers_are_noted: Literal["when_stores_have_stopped", "when_flags_are_off"] = "when_stores_have_stopped"
    #: whether a store takes the flag as it is when it is opened; else it changes with the flag
    flags_are_read_at_open: bool = True
    #: whether records of batches can be deleted one by one only where the store writes batches
    deletion_is_tied_to_batching: bool = False


# ---- state --------------------------------------------------------------------------------------------


@record
class Broker(NamedTuple):
    """A broker."""

    new: bool  # knows PIP-160
    flag: bool  # stores that it opens are to write batches


@record
class Entry(NamedTuple):
    """An entry of which something is left."""

    batch: int  # how many records it was written with; 0: a plain entry, with one
    open: int  # records whose transactions are open
    ended: int  # records whose transactions have ended, and which could not be deleted


class Ledger(NamedTuple):
    """A ledger, and what is left in it."""

    id: int
    entries: tuple[Entry, ...]


@record
class Store(NamedTuple):
    """A log of transactions."""

    owner: int | None  # the broker where it is open
    batching: bool  # how it writes while it is open
    ledgers: tuple[Ledger, ...]  # in order; the last one is the one that is written to
    noted: int | None  # the last ledger that may hold batches, as the operators have noted


@record
class State(NamedTuple):
    """A cluster."""

    brokers: tuple[Broker, ...]
    stores: tuple[Store, ...]


def start(cfg: Config) -> State:
    """Old brokers; all stores are closed and empty."""
    return State((Broker(False, False),) * cfg.brokers, (Store(None, False, (Ledger(1, ()),), None),) * cfg.stores)


txn_rollout = Machine("txn_rollout", Config, start, source="PIP-160")

BrokerName = Annotated[int, Below("brokers")]
StoreName = Annotated[int, Below("stores")]
Count = Annotated[int, AtLeast(1)]
Number = Annotated[int, AtLeast(0)]

# ---- small rules --------------------------------------------------------------------------------------


def with_broker(s: State, broker: int, changed: Broker) -> State:
    """The state with another broker in this place."""
    return s._replace(brokers=(*s.brokers[:broker], changed, *s.brokers[broker + 1 :]))


def with_store(s: State, store: int, changed: Store) -> State:
    """The state with another store in this place."""
    return s._replace(stores=(*s.stores[:store], changed, *s.stores[store + 1 :]))


def left_in(e: Entry) -> int:
    """How many records of an entry a broker finds that opens the store now."""
    return e.open + e.ended


def has_batch(store: Store) -> bool:
    """Something is left of a batch."""
    return any(e.batch for ledger in store.ledgers for e in ledger.entries)


def deletes_parts(cfg: Config, batching: bool) -> bool:
    """A store that writes like this can delete a record of a batch, and knows which were deleted."""
    return batching or cfg.batch_index_acks or not cfg.deletion_is_tied_to_batching


def begun(ledgers: tuple[Ledger, ...]) -> tuple[Ledger, ...]:
    """The ledgers with a new one after them.

    A last ledger of which nothing is left is as good as one that was never written: the next one takes its place.
    """
    last = ledgers[-1]
    return (*(ledgers if last.entries else ledgers[:-1]), Ledger(last.id + 1, ()))


def flags_are_off(s: State) -> bool:
    """No store that is opened now will write batches."""
    return not any(broker.flag for broker in s.brokers)


def may_downgrade(s: State) -> bool:
    """The flags are off, and every ledger that was noted is gone: by the steps, brokers may be old again."""
    return flags_are_off(s) and all(store.noted is not None and store.ledgers[0].id > store.noted for store in s.stores)


def closed(s: State, broker: int) -> tuple[State, int]:
    """A broker stops: its stores are closed. And how many these are."""
    count = len([store for store in s.stores if store.owner == broker])
    stores = [store._replace(owner=None, batching=False) if store.owner == broker else store for store in s.stores]
    return (s._replace(stores=tuple(stores)) if count else s), count


# ---- brokers ------------------------------------------------------------------------------------------


@txn_rollout.action
def upgrade_broker(cfg: Config, s: State, broker: BrokerName) -> Step[State, int]:
    """An old broker is stopped, and a new one begins in its place, its flag off. The outcome counts closed stores."""
    if s.brokers[broker].new:
        return refused(s, "illegal_state", "the broker is new already")
    s, count = closed(s, broker)
    return with_broker(s, broker, Broker(True, False)), count


@txn_rollout.action
def downgrade_broker(cfg: Config, s: State, broker: BrokerName) -> Step[State, int]:
    """A new broker is stopped, and an old one begins in its place: by the steps, not before all batches are gone.

    The outcome counts the stores that are closed.
    """
    if not s.brokers[broker].new:
        return refused(s, "illegal_state", "the broker is old already")
    if cfg.operators_follow_the_steps and not may_downgrade(s):
        return refused(
            s, "illegal_state", "a flag is on, or not every ledger that may hold batches was noted and is gone"
        )
    s, count = closed(s, broker)
    return with_broker(s, broker, Broker(False, False)), count


@txn_rollout.fault
def restart_broker(cfg: Config, s: State, broker: BrokerName) -> Step[State, int]:
    """A broker stops and begins again, with its flag. The outcome counts the stores that are closed."""
    return closed(s, broker)


@txn_rollout.action
def set_flag(cfg: Config, s: State, broker: BrokerName, on: bool) -> Step[State, None]:
    """A new broker's flag goes on or off: by the steps, on only when all brokers are new.

    With a flag that goes on, what was noted for a downgrade is void.
    """
    old = s.brokers[broker]
    if not old.new:
        return refused(s, "unsupported", "an old broker has no flag")
    if not on:
        return turned(cfg, s, broker, False), None
    if cfg.operators_follow_the_steps and not all(each.new for each in s.brokers):
        return refused(s, "illegal_state", "there is an old broker left")
    s = turned(cfg, s, broker, True)
    return s._replace(stores=tuple([store._replace(noted=None) for store in s.stores])), None


def turned(cfg: Config, s: State, broker: int, on: bool) -> State:
    """A broker's flag is set; where stores do not wait until they are opened, those of the broker change."""
    if s.brokers[broker].flag == on:
        return s
    s = with_broker(s, broker, Broker(True, on))
    if cfg.flags_are_read_at_open:
        return s
    changed = [store._replace(batching=on) if store.owner == broker else store for store in s.stores]
    return s._replace(stores=tuple(changed))


@txn_rollout.action
def turn_flags_off(cfg: Config, s: State) -> Step[State, int]:
    """The first step of a downgrade: all flags go off. The outcome counts those that were on."""
    count = 0
    for broker, each in enumerate(s.brokers):
        count += each.flag
        s = turned(cfg, s, broker, False)
    return s, count


@txn_rollout.action
def note_ledgers(cfg: Config, s: State) -> Step[State, int]:
    """Operators note the last ledger of every store: what comes after it is plain. The outcome counts stores.

    They wait until the flags are off, and until no store writes batches any more; what was noted once stays.
    """
    if not flags_are_off(s):
        return refused(s, "illegal_state", "a flag is on")
    if cfg.ledgers_are_noted == "when_stores_have_stopped" and any(store.batching for store in s.stores):
        return refused(s, "illegal_state", "a store goes on writing batches until it is opened again")
    if s.stores[0].noted is not None:
        return s, 0
    noted = [store._replace(noted=store.ledgers[-1].id) for store in s.stores]
    return s._replace(stores=tuple(noted)), len(noted)


# ---- stores are opened and closed ---------------------------------------------------------------------


def opened(cfg: Config, s: State, store: int, broker: int) -> State | None:
    """A closed store is opened at a broker, with a new ledger; None if that broker cannot read it."""
    at, old = s.brokers[broker], s.stores[store]
    if not at.new and has_batch(old):
        return None
    parts = deletes_parts(cfg, at.flag)
    read = [Ledger(ledger.id, tuple([found(e, parts) for e in ledger.entries])) for ledger in old.ledgers]
    return with_store(s, store, old._replace(owner=broker, batching=at.flag, ledgers=begun(tuple(read))))


def found(e: Entry, parts: bool) -> Entry:
    """An entry as it is read: what could not be deleted is back; without parts, so is all that was deleted of it."""
    if e.batch < 2:
        return e
    return Entry(e.batch, left_in(e) if parts else e.batch, 0)


def records_of(store: Store) -> int:
    """How many records are left in a log."""
    return sum([left_in(e) for ledger in store.ledgers for e in ledger.entries])


@txn_rollout.action
def open_store(cfg: Config, s: State, store: StoreName, broker: BrokerName) -> Step[State, int]:
    """A closed store is opened at a broker, which reads all that is left and takes its flag for the store.

    The outcome counts the records that were read. An old broker fails on a batch, and the store stays closed.
    """
    if s.stores[store].owner is not None:
        return refused(s, "illegal_state", "the store is open")
    after = opened(cfg, s, store, broker)
    if after is None:
        return s, Failed("unsupported", "an old broker cannot read a batch")
    return after, records_of(after.stores[store])


@txn_rollout.action
def close_store(cfg: Config, s: State, store: StoreName) -> Step[State, None]:
    """A store is closed, to be opened elsewhere or again."""
    if s.stores[store].owner is None:
        return refused(s, "illegal_state", "the store is closed")
    return with_store(s, store, s.stores[store]._replace(owner=None, batching=False)), None


@txn_rollout.action
def reopen_stores(cfg: Config, s: State) -> Step[State, int]:
    """Every store is closed and opened again at its broker; one that was closed, at the first broker.

    The outcome counts the records that were read. A store that its broker cannot read stays closed.
    """
    count, unread = 0, False
    for store, each in enumerate(s.stores):
        owner = each.owner
        if owner is not None:
            s, _ = close_store(cfg, s, store)
        after = opened(cfg, s, store, owner or 0)
        unread = unread or after is None
        s = s if after is None else after
        count += 0 if after is None else records_of(s.stores[store])
    return s, Failed("unsupported", "an old broker cannot read a batch") if unread else count


# ---- logs ---------------------------------------------------------------------------------------------


@txn_rollout.action
def write_records(cfg: Config, s: State, store: StoreName, records: Count) -> Step[State, int]:
    """Records of so many transactions are written: as one batch, or each in an entry. The outcome counts entries."""
    old = s.stores[store]
    if old.owner is None:
        return refused(s, "illegal_state", "the store is closed")
    new = (Entry(records, records, 0),) if old.batching else (Entry(0, 1, 0),) * records
    last = old.ledgers[-1]
    ledgers = (*old.ledgers[:-1], Ledger(last.id, (*last.entries, *new)))
    return with_store(s, store, old._replace(ledgers=ledgers)), len(new)


@txn_rollout.action
def roll_ledger(cfg: Config, s: State, store: StoreName) -> Step[State, None]:
    """The ledger is full or old: the next entry comes into a new one. One of which nothing is left is not rolled."""
    old = s.stores[store]
    if old.owner is None:
        return refused(s, "illegal_state", "the store is closed")
    if not old.ledgers[-1].entries:
        return refused(s, "illegal_state", "nothing is left in the ledger")
    return with_store(s, store, old._replace(ledgers=begun(old.ledgers))), None


def after_ends(cfg: Config, store: Store, e: Entry, count: int) -> Entry:
    """An entry when so many of its transactions have ended: their records are deleted, if they can be."""
    if e.batch > 1 and not deletes_parts(cfg, store.batching):
        return e._replace(open=e.open - count, ended=e.ended + count)
    return e._replace(open=e.open - count)


def located(ledgers: tuple[Ledger, ...], entry: int) -> tuple[int, int]:
    """In which ledger an entry is, and where in it; after the last ledger if there is no such entry."""
    place = 0
    while place < len(ledgers) and entry >= len(ledgers[place].entries):
        entry -= len(ledgers[place].entries)
        place += 1
    return place, entry


@txn_rollout.action
def end_transaction(cfg: Config, s: State, store: StoreName, entry: Number) -> Step[State, int]:
    """A transaction of an entry ends, and its record is deleted: the entry when that was the last one.

    Entries are numbered from the oldest of which something is left. The outcome is how many records are left of it.
    """
    old = s.stores[store]
    if old.owner is None:
        return refused(s, "illegal_state", "the store is closed")
    place, at = located(old.ledgers, entry)
    if place == len(old.ledgers):
        return refused(s, "illegal_argument", "there is no such entry")
    ledger = old.ledgers[place]
    e = ledger.entries[at]
    if not e.open:
        return refused(s, "illegal_argument", "no transaction of the entry is open")
    e = after_ends(cfg, old, e, 1)
    kept = (*ledger.entries[:at], *((e,) if left_in(e) else ()), *ledger.entries[at + 1 :])
    ledgers = (*old.ledgers[:place], Ledger(ledger.id, kept), *old.ledgers[place + 1 :])
    return with_store(s, store, old._replace(ledgers=ledgers)), left_in(e)


@txn_rollout.action
def end_transactions(cfg: Config, s: State) -> Step[State, int]:
    """Every transaction of an open store ends, or times out. The outcome counts them."""
    count = 0
    for name, store in enumerate(s.stores):
        ended = sum([e.open for ledger in store.ledgers for e in ledger.entries])
        if store.owner is None or not ended:
            continue
        count += ended
        ledgers = []
        for ledger in store.ledgers:
            entries = [after_ends(cfg, store, e, e.open) for e in ledger.entries]
            ledgers.append(Ledger(ledger.id, tuple([e for e in entries if left_in(e)])))
        s = with_store(s, name, store._replace(ledgers=tuple(ledgers)))
    return s, count


@txn_rollout.action
def trim(cfg: Config, s: State) -> Step[State, int]:
    """In every open store the first ledgers go in which nothing is left, but for the last. The outcome counts them."""
    count = 0
    for name, store in enumerate(s.stores):
        if store.owner is None:
            continue
        gone = 0
        while gone < len(store.ledgers) - 1 and not store.ledgers[gone].entries:
            gone += 1
        if gone:
            count += gone
            s = with_store(s, name, store._replace(ledgers=store.ledgers[gone:]))
    return s, count


# ---- names --------------------------------------------------------------------------------------------


@txn_rollout.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """The ledgers of a store are numbered from 1, and what was noted is the last of those that there are, or 0."""
    stores = []
    for store in s.stores:
        ledgers = tuple([Ledger(number, ledger.entries) for number, ledger in enumerate(store.ledgers, 1)])
        noted = None if store.noted is None else len([1 for ledger in store.ledgers if ledger.id <= store.noted])
        stores.append(store._replace(ledgers=ledgers, noted=noted))
    return s._replace(stores=tuple(stores))


# ---- profiles -----------------------------------------------------------------------------------------

reference = txn_rollout.profile(
    "reference", "the proposal's steps, flags that are read at open, and batches that can always be deleted", Config()
)
shipped = txn_rollout.profile(
    "pulsar-2026-07",
    "the shipped rules: records of batches are deleted where the broker has batch index acknowledgement, and the "
    "operators note the last ledger as soon as the flags are off, as the proposal says",
    Config(batch_index_acks=True, ledgers_are_noted="when_flags_are_off", deletion_is_tied_to_batching=True),
)
older = txn_rollout.profile(
    "pulsar-4.0",
    "the same up to 4.0, where batch index acknowledgement is off by default",
    Config(ledgers_are_noted="when_flags_are_off", deletion_is_tied_to_batching=True),
)
careless = txn_rollout.profile(
    "no-steps",
    "operators turn flags on and make brokers old whenever they like",
    Config(operators_follow_the_steps=False),
)
at_once = txn_rollout.profile(
    "flags-at-once",
    "stores that change with the flag while they are open",
    Config(flags_are_read_at_open=False),
)
