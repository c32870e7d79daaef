"""Upgrade and downgrade of a cluster to and from batched transaction logs (PIP-160).

With PIP-160, a broker can write several records of a transaction log as one entry: a batch. Each log has a store, which
is open at one broker. Brokers from before PIP-160 cannot read batches. So operators follow steps. For an upgrade, they
replace all brokers by new ones, then enable a flag at each broker that turns batching on. For a downgrade, they disable
the flags, and wait until the ledgers that may have batches are trimmed, before they install old brokers.

Models the sections "Upgrade" and "Downgrade" of PIP-160: operators, brokers, and the brokers' transaction log stores
(`MLTransactionLogImpl`). One step is one action of an operator, the restart of a broker, or one action of one store or
of all stores: open, close, reopen, write, end transactions, roll over or trim.

    brokers     an old broker, from before PIP-160, writes one record per entry and cannot read a batch of records. A
                new broker can, and has a flag (`transactionLogBatchedWriteEnabled`), initially off
    stores      a store is open at one broker, or closed; its log is a list of ledgers. A store that was opened with the
                flag on writes records as batches; any other store writes plain entries
    opening     reads all undeleted entries. A new broker reads batches and plain entries; an old one fails on a batch
    trimming    a transaction that ends deletes its record; an entry is deleted when all its records are deleted. Fully
                deleted ledgers are trimmed, from the first one on, except the last ledger
    upgrade     brokers are replaced by new ones; when all are new, flags are enabled
    downgrade   flags are disabled, and every store is reopened; the last ledger of each store is then recorded. When
                every recorded ledger is trimmed, brokers may be replaced by old ones

Differences from PIP-160 and from shipped brokers (each a rule of `Config`; see `fuzz/defects/txn_rollout.toml`):
  * the last ledgers are recorded when no store writes batches any more; in PIP-160, as soon as the flags are off;
  * single records of a batch can always be deleted. While batching and batch index acknowledgment are off, a shipped
    broker ignores such a deletion and reports success.

Not modelled: steps 3 and 4 of the upgrade, which only wait and check; contents of records, several records of a
transaction, deletions lost by a crash, ledger sizes, durations; pending-ack stores, which have a flag of their own.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Failed, Machine, Setting, Step, refused
from model.txn_writer import wire
from model.values import AtLeast, Below, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """The cluster, a broker setting, then the rules in which versions and operators differ."""

    #: number of brokers; brokers are numbered from 0
    brokers: Annotated[int, AtLeast(1)] = 2
    #: number of stores; stores are numbered from 0
    stores: Annotated[int, AtLeast(1)] = 2
    #: the broker-wide switch for batch index deletion
    batch_index_acks: Annotated[
        bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", (("4.0", False), ("4.1", True)))
    ] = False

    #: whether operators enable flags and downgrade brokers only when PIP-160's steps allow it; otherwise at any time
    operators_follow_steps: Annotated[
        bool, Rule(Origin.INFERRED, {False: "operators who skip the steps of PIP-160, Upgrade and Downgrade"})
    ] = True
    #: when operators record the last ledger that may have batches. `after_stores_reopened`: when all flags are off and
    #: no store writes batches any more. `after_flags_off`: as soon as all flags are off
    last_ledgers_recorded: Annotated[
        Literal["after_stores_reopened", "after_flags_off"],
        Rule(Origin.READ, {"after_flags_off": "PIP-160, Downgrade, note 2"}),
    ] = "after_stores_reopened"
    #: whether a store reads the flag only when it is opened; otherwise an open store follows the flag
    flag_is_read_at_open: Annotated[
        bool, Rule(Origin.INFERRED, {False: "transactionLogBatchedWriteEnabled is marked dynamic"})
    ] = True
    #: whether deleting single records of a batch requires that the store batches or `batch_index_acks` is on
    batch_index_deletion_needs_batching: Annotated[
        bool, Rule(Origin.READ, {True: "constructor of MLTransactionLogImpl (managed ledger config), master 2026-07"})
    ] = False


# ---- state --------------------------------------------------------------------------------------------


@record
class Broker(NamedTuple):
    """A broker."""

    new: bool  # whether the broker has PIP-160
    flag: bool  # `transactionLogBatchedWriteEnabled`


@record
class Entry(NamedTuple):
    """An undeleted entry: at least one of its records is not deleted."""

    batch: int  # number of records of the batch, also deleted ones; 0 for a plain entry, which has one record
    open: int  # number of undeleted records of open transactions
    ended: int  # number of undeleted records of ended transactions


class Ledger(NamedTuple):
    """A ledger and its undeleted entries."""

    id: int
    entries: tuple[Entry, ...]


@record
class Store(NamedTuple):
    """A transaction log store."""

    owner: int | None  # the broker at which the store is open; None: the store is closed
    batching: bool  # whether the store writes batches
    ledgers: tuple[Ledger, ...]  # in order; entries are written to the last one
    last_batched_ledger: int | None  # id of the recorded last ledger; None: not recorded


@record
class State(NamedTuple):
    """A cluster."""

    brokers: tuple[Broker, ...]
    stores: tuple[Store, ...]


def start(cfg: Config) -> State:
    """Returns a cluster of old brokers, in which all stores are closed and empty."""
    old = Broker(new=False, flag=False)
    closed = Store(owner=None, batching=False, ledgers=(Ledger(1, ()),), last_batched_ledger=None)
    return State((old,) * cfg.brokers, (closed,) * cfg.stores)


txn_rollout = Machine("txn_rollout", Config, start, source="PIP-160")

BrokerName = Annotated[int, Below("brokers")]
StoreName = Annotated[int, Below("stores")]
Count = Annotated[int, AtLeast(1)]
Number = Annotated[int, AtLeast(0)]

# ---- functions of the state ---------------------------------------------------------------------------


def with_broker(s: State, broker: int, changed: Broker) -> State:
    """Returns the state with one broker replaced."""
    return s._replace(brokers=(*s.brokers[:broker], changed, *s.brokers[broker + 1 :]))


def with_store(s: State, store: int, changed: Store) -> State:
    """Returns the state with one store replaced."""
    return s._replace(stores=(*s.stores[:store], changed, *s.stores[store + 1 :]))


def undeleted_in(e: Entry) -> int:
    """Returns the number of undeleted records of an entry."""
    return e.open + e.ended


def has_batch(store: Store) -> bool:
    """Whether the log has an undeleted batch."""
    return any(e.batch for ledger in store.ledgers for e in ledger.entries)


def deletes_batch_indexes(cfg: Config, batching: bool) -> bool:
    """Whether a store with this batching mode can delete single records of a batch, and recovers such deletions."""
    return batching or cfg.batch_index_acks or not cfg.batch_index_deletion_needs_batching


def with_new_ledger(ledgers: tuple[Ledger, ...]) -> tuple[Ledger, ...]:
    """Returns the ledgers after a rollover. A last ledger without undeleted entries is replaced."""
    last = ledgers[-1]
    return (*(ledgers if last.entries else ledgers[:-1]), Ledger(last.id + 1, ()))


def batch_log_stat(s: State, broker: int) -> dict[str, object]:
    """Returns the response of a new broker to `--get-txn-tc-batch-log-stat`; coordinator n has store n."""
    opened = {str(n): store.batching for n, store in enumerate(s.stores) if store.owner == broker}
    return wire.batch_log_stat("txn_tc", s.brokers[broker].flag, opened)


def flags_are_off(s: State) -> bool:
    """Whether every flag is off."""
    return not any(broker.flag for broker in s.brokers)


def may_downgrade(s: State) -> bool:
    """Whether PIP-160's steps allow a downgrade: flags are off, and the recorded ledger of every store is trimmed."""
    return flags_are_off(s) and all(
        store.last_batched_ledger is not None and store.ledgers[0].id > store.last_batched_ledger for store in s.stores
    )


def with_stores_closed(s: State, broker: int) -> tuple[State, int]:
    """Returns the state after a broker's stores are closed, and the number of these stores."""
    count = len([store for store in s.stores if store.owner == broker])
    stores = [store._replace(owner=None, batching=False) if store.owner == broker else store for store in s.stores]
    return (s._replace(stores=tuple(stores)) if count else s), count


# ---- brokers ------------------------------------------------------------------------------------------


@txn_rollout.action
def upgrade_broker(cfg: Config, s: State, broker: BrokerName) -> Step[State, int]:
    """Replaces an old broker by a new one with its flag off. Returns the number of stores closed."""
    if s.brokers[broker].new:
        return refused(s, "illegal_state", "the broker is already new")
    s, count = with_stores_closed(s, broker)
    return with_broker(s, broker, Broker(new=True, flag=False)), count


@txn_rollout.action
def downgrade_broker(cfg: Config, s: State, broker: BrokerName) -> Step[State, int]:
    """Replaces a new broker by an old one, if PIP-160's steps allow it. Returns the number of stores closed."""
    if not s.brokers[broker].new:
        return refused(s, "illegal_state", "the broker is already old")
    if cfg.operators_follow_steps and not may_downgrade(s):
        return refused(s, "illegal_state", "a flag is on, or a last ledger is not recorded or not trimmed")
    s, count = with_stores_closed(s, broker)
    return with_broker(s, broker, Broker(new=False, flag=False)), count


@txn_rollout.fault
def restart_broker(cfg: Config, s: State, broker: BrokerName) -> Step[State, int]:
    """Restarts a broker, which keeps its flag. Returns the number of stores closed."""
    return with_stores_closed(s, broker)


@txn_rollout.action
def set_flag(cfg: Config, s: State, broker: BrokerName, on: bool) -> Step[State, None]:
    """Sets the flag of a new broker. If operators follow the steps, they enable a flag only when all brokers are new.

    Enabling a flag discards the recorded last ledgers.
    """
    if not s.brokers[broker].new:
        return refused(s, "unsupported", "an old broker has no flag")
    if not on:
        return with_flag(cfg, s, broker, False), None
    if cfg.operators_follow_steps and not all(each.new for each in s.brokers):
        return refused(s, "illegal_state", "a broker is old")
    s = with_flag(cfg, s, broker, True)
    return s._replace(stores=tuple([store._replace(last_batched_ledger=None) for store in s.stores])), None


def with_flag(cfg: Config, s: State, broker: int, on: bool) -> State:
    """Returns the state after a flag is set. If `flag_is_read_at_open` is false, the broker's open stores follow it."""
    if s.brokers[broker].flag == on:
        return s
    s = with_broker(s, broker, Broker(new=True, flag=on))
    if cfg.flag_is_read_at_open:
        return s
    changed = [store._replace(batching=on) if store.owner == broker else store for store in s.stores]
    return s._replace(stores=tuple(changed))


@txn_rollout.action
def turn_flags_off(cfg: Config, s: State) -> Step[State, int]:
    """Disables all flags, the first step of a downgrade. Returns the number of flags that were on."""
    count = 0
    for broker, each in enumerate(s.brokers):
        count += each.flag
        s = with_flag(cfg, s, broker, False)
    return s, count


@txn_rollout.action
def record_last_ledgers(cfg: Config, s: State) -> Step[State, int]:
    """Records the last ledger of every store. Returns the number of stores, or 0 if the ledgers are already recorded.

    All flags must be off and, with `after_stores_reopened`, no store may write batches.
    """
    if not flags_are_off(s):
        return refused(s, "illegal_state", "a flag is on")
    if cfg.last_ledgers_recorded == "after_stores_reopened" and any(store.batching for store in s.stores):
        return refused(s, "illegal_state", "a store writes batches until it is reopened")
    # the ledgers of all stores are recorded, and discarded, together
    if s.stores[0].last_batched_ledger is not None:
        return s, 0
    stores = [store._replace(last_batched_ledger=store.ledgers[-1].id) for store in s.stores]
    return s._replace(stores=tuple(stores)), len(stores)


# ---- opening and closing of stores ---------------------------------------------------------------------


def opened(cfg: Config, s: State, store: int, broker: int) -> State | None:
    """Returns the state after a closed store is opened, with a new ledger; None if the broker cannot read the log."""
    opener, closed = s.brokers[broker], s.stores[store]
    if not opener.new and has_batch(closed):
        return None
    deletes_indexes = deletes_batch_indexes(cfg, opener.flag)
    read = [
        Ledger(ledger.id, tuple([recovered_entry(e, deletes_indexes) for e in ledger.entries]))
        for ledger in closed.ledgers
    ]
    return with_store(
        s, store, closed._replace(owner=broker, batching=opener.flag, ledgers=with_new_ledger(tuple(read)))
    )


def recovered_entry(e: Entry, deletes_indexes: bool) -> Entry:
    """Returns an entry after its store is opened: every transaction with an undeleted record is open, or open again.

    Without batch index deletion, the opening recovers no deletion of a single record: all records of a batch are
    undeleted.
    """
    # a plain entry, or a batch of one record: the end of its transaction deletes it, so the transaction is open
    if e.batch < 2:
        return e
    return Entry(e.batch, undeleted_in(e) if deletes_indexes else e.batch, 0)


def undeleted_records(store: Store) -> int:
    """Returns the number of undeleted records in the log of a store."""
    return sum([undeleted_in(e) for ledger in store.ledgers for e in ledger.entries])


@txn_rollout.action
def open_store(cfg: Config, s: State, store: StoreName, broker: BrokerName) -> Step[State, int]:
    """Opens a closed store at a broker, which reads all undeleted entries. The broker's flag sets the batching mode.

    Returns the number of records read. An old broker fails on a batch, and the store stays closed.
    """
    if s.stores[store].owner is not None:
        return refused(s, "illegal_state", "the store is open")
    after = opened(cfg, s, store, broker)
    if after is None:
        return s, Failed("unsupported", "an old broker cannot read a batch")
    return after, undeleted_records(after.stores[store])


@txn_rollout.action
def close_store(cfg: Config, s: State, store: StoreName) -> Step[State, None]:
    """Closes a store."""
    if s.stores[store].owner is None:
        return refused(s, "illegal_state", "the store is closed")
    return with_store(s, store, s.stores[store]._replace(owner=None, batching=False)), None


@txn_rollout.action
def reopen_stores(cfg: Config, s: State) -> Step[State, int]:
    """Closes and reopens every store at its broker; a closed store is opened at broker 0.

    Returns the number of records read. If an old broker fails on a batch, the store stays closed, the step fails, and
    the other stores are reopened all the same.
    """
    count, has_failed = 0, False
    for store, each in enumerate(s.stores):
        owner = each.owner
        if owner is not None:
            s, _ = close_store(cfg, s, store)
        after = opened(cfg, s, store, owner or 0)  # None, a closed store: broker 0
        has_failed = has_failed or after is None
        s = s if after is None else after
        count += 0 if after is None else undeleted_records(s.stores[store])
    return s, Failed("unsupported", "an old broker cannot read a batch") if has_failed else count


# ---- logs ---------------------------------------------------------------------------------------------


@txn_rollout.action
def write_records(cfg: Config, s: State, store: StoreName, records: Count) -> Step[State, int]:
    """Begins `records` new transactions, and writes one record of each: as one batch, or as plain entries.

    Returns the number of entries.
    """
    before = s.stores[store]
    if before.owner is None:
        return refused(s, "illegal_state", "the store is closed")
    new = (Entry(records, records, 0),) if before.batching else (Entry(0, 1, 0),) * records
    last = before.ledgers[-1]
    ledgers = (*before.ledgers[:-1], Ledger(last.id, (*last.entries, *new)))
    return with_store(s, store, before._replace(ledgers=ledgers)), len(new)


@txn_rollout.action
def roll_ledger(cfg: Config, s: State, store: StoreName) -> Step[State, None]:
    """Rolls over to a new ledger, unless the last one has no undeleted entry."""
    before = s.stores[store]
    if before.owner is None:
        return refused(s, "illegal_state", "the store is closed")
    if not before.ledgers[-1].entries:
        return refused(s, "illegal_state", "the ledger has no undeleted entry")
    return with_store(s, store, before._replace(ledgers=with_new_ledger(before.ledgers))), None


def entry_after_ends(cfg: Config, store: Store, e: Entry, count: int) -> Entry:
    """Returns the entry after `count` of its transactions ended: their records are deleted, if they can be."""
    if e.batch > 1 and not deletes_batch_indexes(cfg, store.batching):
        return e._replace(open=e.open - count, ended=e.ended + count)
    return e._replace(open=e.open - count)


def located(ledgers: tuple[Ledger, ...], entry: int) -> tuple[int, int]:
    """Returns the index of the ledger that has an entry, and the index of the entry in this ledger.

    `entry` counts undeleted entries from 0 across all ledgers. If there is no such entry, the first index is the number
    of ledgers.
    """
    index = 0
    while index < len(ledgers) and entry >= len(ledgers[index].entries):
        entry -= len(ledgers[index].entries)
        index += 1
    return index, entry


@txn_rollout.action
def end_transaction(cfg: Config, s: State, store: StoreName, entry: Number) -> Step[State, int]:
    """Ends a transaction that has a record in the given entry, and deletes the record, if it can be deleted.

    `entry` counts undeleted entries from 0 across all ledgers. The entry is deleted when all its records are deleted.
    Returns the number of the entry's records that are still undeleted.
    """
    before = s.stores[store]
    if before.owner is None:
        return refused(s, "illegal_state", "the store is closed")
    index, at = located(before.ledgers, entry)
    if index == len(before.ledgers):
        return refused(s, "illegal_argument", "there is no such entry")
    ledger = before.ledgers[index]
    e = ledger.entries[at]
    if not e.open:
        return refused(s, "illegal_argument", "no transaction of the entry is open")
    e = entry_after_ends(cfg, before, e, 1)
    kept = (*ledger.entries[:at], *((e,) if undeleted_in(e) else ()), *ledger.entries[at + 1 :])
    ledgers = (*before.ledgers[:index], Ledger(ledger.id, kept), *before.ledgers[index + 1 :])
    return with_store(s, store, before._replace(ledgers=ledgers)), undeleted_in(e)


@txn_rollout.action
def end_transactions(cfg: Config, s: State) -> Step[State, int]:
    """Ends every transaction of the open stores. Returns the number of transactions."""
    count = 0
    for name, store in enumerate(s.stores):
        ended = sum([e.open for ledger in store.ledgers for e in ledger.entries])
        if store.owner is None or not ended:
            continue
        count += ended
        ledgers = []
        for ledger in store.ledgers:
            entries = [entry_after_ends(cfg, store, e, e.open) for e in ledger.entries]
            ledgers.append(Ledger(ledger.id, tuple([e for e in entries if undeleted_in(e)])))
        s = with_store(s, name, store._replace(ledgers=tuple(ledgers)))
    return s, count


@txn_rollout.action
def trim(cfg: Config, s: State) -> Step[State, int]:
    """Trims the leading fully deleted ledgers of every open store, never its last ledger. Returns their number."""
    count = 0
    for name, store in enumerate(s.stores):
        if store.owner is None:
            continue
        trimmed = 0
        while trimmed < len(store.ledgers) - 1 and not store.ledgers[trimmed].entries:
            trimmed += 1
        if trimmed:
            count += trimmed
            s = with_store(s, name, store._replace(ledgers=store.ledgers[trimmed:]))
    return s, count


# ---- canonical form --------------------------------------------------------------------------------------------


@txn_rollout.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers ledgers from 1. A recorded ledger id becomes the number of ledgers up to this id."""
    stores = []
    for store in s.stores:
        ledgers = tuple([Ledger(number, ledger.entries) for number, ledger in enumerate(store.ledgers, 1)])
        last_batched_ledger = (
            None
            if store.last_batched_ledger is None
            else len([1 for ledger in store.ledgers if ledger.id <= store.last_batched_ledger])
        )
        stores.append(store._replace(ledgers=ledgers, last_batched_ledger=last_batched_ledger))
    return s._replace(stores=tuple(stores))


# ---- profiles -----------------------------------------------------------------------------------------

reference = txn_rollout.profile(
    "reference",
    "PIP-160's steps, but last ledgers are recorded when no store batches; single records can always be deleted",
    Config(),
)
shipped = txn_rollout.profile(
    "pulsar-2026-07",
    "Apache Pulsar master, 2026-07, with batch index acknowledgment on, upgraded and downgraded by PIP-160's steps",
    Config(batch_index_acks=True, last_ledgers_recorded="after_flags_off", batch_index_deletion_needs_batching=True),
)
# 4.0 has another default of the switch for batch index deletion
older = txn_rollout.release("4.0", rules=shipped.config, about="pulsar-2026-07")
newer = txn_rollout.release("4.1", "4.2", "5.0", rules=shipped.config)
proposal = txn_rollout.profile(
    "pip-160",
    "PIP-160 as written: last ledgers recorded once flags are off, single records of a batch always deletable",
    Config(last_ledgers_recorded="after_flags_off"),
)
careless = txn_rollout.profile(
    "operators-skip-steps",
    "operators enable flags and downgrade brokers at any time",
    Config(operators_follow_steps=False),
)
at_once = txn_rollout.profile(
    "flag-takes-effect-at-once",
    "open stores change with the flag",
    Config(flag_is_read_at_open=False),
)
