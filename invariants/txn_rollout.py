"""Guarantees of the upgrade and downgrade of a cluster to and from batched transaction logs (PIP-160).

A new broker has PIP-160, an old one does not. The flag of a broker is `transactionLogBatchedWriteEnabled`. A plain
entry has one record and is no batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.txn_rollout import Broker, Config, Entry, Ledger, State, Store, txn_rollout

#: Actions that open stores.
OPENS = ("open_store", "reopen_stores")
#: Actions that stop a broker.
STOPS = ("upgrade_broker", "downgrade_broker", "restart_broker")

# ---- accessors ------------------------------------------------------------------------------------


def entries(store: Store) -> list[Entry]:
    """Returns the undeleted entries of a store, in order."""
    return [e for ledger in store.ledgers for e in ledger.entries]


def batches(store: Store) -> list[Entry]:
    """Returns the undeleted batches of a store."""
    return [e for e in entries(store) if e.batch > 0]


def undeleted_records(store: Store) -> int:
    """Returns the number of undeleted records of a store."""
    return sum([e.open + e.ended for e in entries(store)])


def open_records(store: Store) -> int:
    """Returns the number of undeleted records of open transactions in a store."""
    return sum([e.open for e in entries(store)])


def is_mixed(store: Store) -> bool:
    """Whether the log has undeleted plain entries and batches."""
    return 0 < len(batches(store)) < len(entries(store))


def openings(before: State, event: Event) -> Iterator[tuple[int, int]]:
    """Yields the stores that an event tries to open, each with the broker.

    `reopen_stores` opens a closed store at broker 0.
    """
    if event.name == "open_store" and before.stores[event.arguments["store"]].owner is None:
        yield event.arguments["store"], event.arguments["broker"]
    if event.name == "reopen_stores":
        for number, store in enumerate(before.stores):
            yield number, store.owner or 0


# ---- readers ------------------------------------------------------------------------------------------


@always(txn_rollout, on=OPENS)
def old_broker_never_reads_batch(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No broker from before PIP-160 tries to open a store with an undeleted batch."""
    return not any(
        not before.brokers[broker].new and batches(before.stores[store]) for store, broker in openings(before, event)
    )


@always(txn_rollout, on=OPENS)
def new_broker_reads_any_mixture(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new broker opens any store and reads every undeleted record, in any mixture of batches and plain entries.

    An old broker opens a store without batches in the same way. If it tries to open a store with an undeleted batch,
    this store is closed afterwards. Other stores do not change. The outcome is the number of records read, or a failure
    if a store could not be opened.
    """
    stores, read, all_opened = list(before.stores), 0, True
    for store, broker in openings(before, event):
        is_readable = before.brokers[broker].new or not batches(stores[store])
        stores[store] = (
            reread(cfg, before, store, broker) if is_readable else stores[store]._replace(owner=None, batching=False)
        )
        all_opened = all_opened and is_readable
        read += undeleted_records(stores[store])
    is_outcome = event.outcome == read if all_opened else isinstance(event.outcome, Failed)
    return after == State(before.brokers, tuple(stores)) and (isinstance(event.outcome, Refused) or is_outcome)


def deletable(cfg: Config, batching: bool, e: Entry) -> bool:
    """Whether a store with this batching mode can delete single records of an entry, and recovers such deletions."""
    return e.batch < 2 or batching or cfg.batch_index_acks or not cfg.batch_index_deletion_needs_batching


def reread(cfg: Config, before: State, store: int, broker: int) -> Store:
    """Returns a store after a broker has opened it, with a new last ledger. A last ledger without entries is replaced.

    After the opening, all undeleted records of a batch are of open transactions. If single records cannot be deleted,
    all records of a batch are undeleted again.
    """
    old, flag = before.stores[store], before.brokers[broker].flag
    ledgers = []
    for ledger in old.ledgers:
        found = [
            Entry(e.batch, e.open + e.ended if deletable(cfg, flag, e) else e.batch, 0) if e.batch else e
            for e in ledger.entries
        ]
        if found or ledger is not old.ledgers[-1]:
            ledgers.append(Ledger(ledger.id, tuple(found)))
    new = Ledger(old.ledgers[-1].id + 1, ())
    return Store(broker, flag, (*ledgers, new), old.last_batched_ledger)


@always(txn_rollout, given=lambda cfg: cfg.operators_follow_steps)
def batches_exist_only_with_new_brokers(cfg: Config, s: State) -> bool:
    """If operators follow the steps, all brokers are new while a store has an undeleted batch."""
    return all(broker.new for broker in s.brokers) or not any(batches(store) for store in s.stores)


@always(txn_rollout, given=lambda cfg: cfg.operators_follow_steps)
def no_batch_follows_last_batched_ledger(cfg: Config, s: State) -> bool:
    """If operators follow the steps, no ledger after its store's recorded last ledger has an undeleted batch."""
    return not any(
        store.last_batched_ledger is not None
        and ledger.id > store.last_batched_ledger
        and any(e.batch for e in ledger.entries)
        for store in s.stores
        for ledger in store.ledgers
    )


# ---- flags and modes ----------------------------------------------------------------------------------


@always(txn_rollout)
def open_store_keeps_batching_mode(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An open store keeps its batching mode until it is reopened, even if the flag of its broker changes."""
    if event.name in OPENS or after.stores is before.stores:
        return True
    return all(
        new.batching == old.batching
        for old, new in zip(before.stores, after.stores, strict=True)
        if old.owner is not None and new.owner is not None
    )


@always(txn_rollout, on=("write_records",))
def entries_follow_batching_mode(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batching store writes records as one batch, even a single record; any other store writes plain entries.

    The entries are appended to the last ledger. The outcome is their number.
    """
    if isinstance(event.outcome, Refused):
        return True
    store, count = event.arguments["store"], event.arguments["records"]
    old = before.stores[store]
    wanted = (Entry(count, count, 0),) if old.batching else (Entry(0, 1, 0),) * count
    ledgers = (*old.ledgers[:-1], Ledger(old.ledgers[-1].id, (*old.ledgers[-1].entries, *wanted)))
    stores = (*before.stores[:store], old._replace(ledgers=ledgers), *before.stores[store + 1 :])
    return after == State(before.brokers, stores) and bool(event.outcome == len(wanted))


@always(txn_rollout)
def only_new_brokers_have_flags_and_batching_stores(cfg: Config, s: State) -> bool:
    """The flag of an old broker is off, and only a store that is open at a new broker batches."""
    return not any(broker.flag and not broker.new for broker in s.brokers) and not any(
        store.batching and (store.owner is None or not s.brokers[store.owner].new) for store in s.stores
    )


@always(txn_rollout, on=(*STOPS, "close_store"))
def stopped_broker_closes_its_stores(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a broker stops, exactly its stores are closed.

    An upgraded or downgraded broker starts with its flag off. Closing a store changes neither its log nor another
    store.
    """
    if isinstance(event.outcome, Refused):
        return True
    stopped, brokers = event.arguments.get("broker"), list(before.brokers)  # `stopped` is None for `close_store`
    if stopped is not None and event.name != "restart_broker":
        brokers[stopped] = Broker(event.name == "upgrade_broker", False)
    stores = list(before.stores)
    owned = [number for number, store in enumerate(stores) if store.owner == stopped]
    closed = [event.arguments["store"]] if stopped is None else owned
    for each in closed:
        stores[each] = Store(None, False, stores[each].ledgers, stores[each].last_batched_ledger)
    return after == State(tuple(brokers), tuple(stores)) and event.outcome == (None if stopped is None else len(closed))


# ---- rejections ---------------------------------------------------------------------------------------


def is_against_steps(cfg: Config, s: State, event: Event) -> bool:
    """Whether PIP-160's steps do not allow a call.

    If operators follow the steps, a flag is enabled only if all brokers are new, and a broker is downgraded only if all
    flags are off and the last ledger of every store is recorded and trimmed. Whether or not they follow the steps,
    operators record last ledgers only if all flags are off and, with `after_stores_reopened`, no store batches.
    """
    is_flag_on = any(broker.flag for broker in s.brokers)
    recorded = [store.last_batched_ledger for store in s.stores]
    match event.name:
        case "set_flag":
            return bool(cfg.operators_follow_steps and event.arguments["on"]) and not all(b.new for b in s.brokers)
        case "downgrade_broker":
            are_trimmed = all(
                last is not None and last < store.ledgers[0].id for last, store in zip(recorded, s.stores, strict=True)
            )
            return cfg.operators_follow_steps and (is_flag_on or not are_trimmed)
        case "record_last_ledgers":
            waits_for_stores = cfg.last_ledgers_recorded == "after_stores_reopened"
            return is_flag_on or (waits_for_stores and any(store.batching for store in s.stores))
    return False


@always(txn_rollout)
def call_is_rejected_iff_not_allowed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call is rejected if and only if its broker, store or entry, or PIP-160's steps, do not allow the call.

    A broker cannot be replaced by one of its own version, and an old broker has no flag. `open_store` needs a closed
    store; every other call of a store needs an open store. A rollover needs an undeleted entry in the last ledger.
    `end_transaction` needs an open transaction in its entry.
    """
    must_reject = is_against_steps(cfg, before, event)
    # `is_against_steps` is false for every call of a store
    if "store" in event.arguments:
        store = before.stores[event.arguments["store"]]
        must_reject = (store.owner is None) != (event.name == "open_store")
        must_reject = must_reject or (event.name == "roll_ledger" and not store.ledgers[-1].entries)
        at = event.arguments.get("entry")
        # the slice has the entry, or nothing if the index is too high
        must_reject = must_reject or (at is not None and not any(e.open for e in entries(store)[at : at + 1]))
    elif "broker" in event.arguments and event.name != "restart_broker":
        # an upgrade needs an old broker; a downgrade and `set_flag` need a new one
        must_reject = must_reject or before.brokers[event.arguments["broker"]].new == (event.name == "upgrade_broker")
    return isinstance(event.outcome, Refused) == must_reject


# ---- transactions -------------------------------------------------------------------------------------


@always(txn_rollout, on=OPENS)
def ended_transaction_is_not_reopened(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Opening a store never finds more open transactions than the store had before."""
    return all(
        open_records(after.stores[store]) <= open_records(before.stores[store]) for store, _ in openings(before, event)
    )


@always(txn_rollout, on=("end_transaction", "end_transactions"))
def ending_deletes_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The end of a transaction deletes its record if and only if single records of the entry can be deleted.

    An entry is deleted with its last record; other entries and the ledgers stay. The outcome of `end_transaction` is
    the number of undeleted records of the entry.
    """
    if isinstance(event.outcome, Refused):
        return True
    for number, old in enumerate(before.stores):
        at, ledgers, index = event.arguments.get("entry"), [], 0
        chosen = old.owner is not None and event.arguments.get("store", number) == number
        for ledger in old.ledgers:
            found = []
            for e in ledger.entries:
                # transactions of the entry that end: none, one (`end_transaction`), or all (`end_transactions`)
                count = 0 if not chosen or at not in (None, index) else e.open if at is None else 1
                kept = 0 if deletable(cfg, old.batching, e) else count
                new = Entry(e.batch, e.open - count, e.ended + kept)
                found += [new] if new.open + new.ended else []
                if chosen and at == index and event.outcome != new.open + new.ended:
                    return False
                index += 1
            ledgers.append(Ledger(ledger.id, tuple(found)))
        if after.stores[number] != old._replace(ledgers=tuple(ledgers)):
            return False
    return after.brokers == before.brokers


@always(txn_rollout)
def ended_transaction_is_deleted(cfg: Config, s: State) -> bool:
    """An ended transaction has no undeleted record."""
    return not any(e.ended for store in s.stores for e in entries(store))


@always(txn_rollout)
def open_transaction_is_not_lost(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An open transaction disappears only when it ends.

    `end_transaction` ends one transaction, `end_transactions` ends all transactions of the open stores.
    `new_broker_reads_any_mixture` covers openings.
    """
    if after.stores is before.stores or event.name in OPENS:
        return True
    ended = [open_records(old) - open_records(new) for old, new in zip(before.stores, after.stores, strict=True)]
    if event.name == "end_transaction":
        return bool(ended[event.arguments["store"]] == sum(ended) == 1)
    if event.name == "end_transactions":
        wanted = [0 if store.owner is None else open_records(store) for store in before.stores]
        return bool(ended == wanted and sum(wanted) == event.outcome)
    return max(ended) <= 0


# ---- ledgers ------------------------------------------------------------------------------------------


@always(txn_rollout)
def ledgers_are_well_formed(cfg: Config, s: State) -> bool:
    """Every store has a ledger, ledger ids increase, and every entry has an undeleted record.

    A batch has at most as many undeleted records as it had records; a plain entry has one.
    """
    for store in s.stores:
        ids = [ledger.id for ledger in store.ledgers]
        if not ids or ids != sorted(set(ids)):
            return False
        if not all(0 < e.open + e.ended <= max(e.batch, 1) and min(e.open, e.ended) >= 0 for e in entries(store)):
            return False
    return True


@always(txn_rollout, on=("trim",))
def only_deleted_ledgers_are_trimmed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Trimming removes exactly the leading fully deleted ledgers of every open store, but never its last ledger.

    Trimming changes nothing else, and returns the number of ledgers removed.
    """
    trimmed = 0
    for old, new in zip(before.stores, after.stores, strict=True):
        count = len(old.ledgers) - len(new.ledgers)
        trimmed += count
        if new != old._replace(ledgers=old.ledgers[count:]) or any(ledger.entries for ledger in old.ledgers[:count]):
            return False
        if old.owner is None and count:
            return False
        if old.owner is not None and len(new.ledgers) > 1 and not new.ledgers[0].entries:
            return False
    return bool(event.outcome == trimmed) and after.brokers == before.brokers


@always(txn_rollout, on=("roll_ledger", *OPENS))
def new_ledger_is_last_and_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A rollover or an opening adds an empty last ledger with the next id; a rollover keeps the other ledgers."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    if event.name == "roll_ledger":
        each, old = event.arguments["store"], before.stores[event.arguments["store"]]
        new = old._replace(ledgers=(*old.ledgers, Ledger(old.ledgers[-1].id + 1, ())))
        return after.stores[each] == new and after.brokers == before.brokers
    return all(
        after.stores[each].ledgers[-1] == Ledger(before.stores[each].ledgers[-1].id + 1, ())
        for each, _ in openings(before, event)
    )


# ---- steps of operators -------------------------------------------------------------------------------


@always(txn_rollout, on=("record_last_ledgers",))
def last_batched_ledger_is_recorded_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`record_last_ledgers` records the last ledger of each store that has none recorded, and returns their number."""
    if isinstance(event.outcome, Refused):
        return True
    if event.outcome != len([store for store in before.stores if store.last_batched_ledger is None]):
        return False
    wanted = [
        store.ledgers[-1].id if store.last_batched_ledger is None else store.last_batched_ledger
        for store in before.stores
    ]
    return [store.last_batched_ledger for store in after.stores] == wanted


@always(txn_rollout, on=("set_flag", "turn_flags_off"))
def enabling_flag_discards_recorded_ledgers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Enabling a flag discards all recorded last ledgers; disabling one keeps them.

    `set_flag` sets the flag of its broker, `turn_flags_off` the flags of all. No broker changes its version.
    `turn_flags_off` returns the number of flags that were on.
    """
    if isinstance(event.outcome, Refused):
        return True
    chosen, on = event.arguments.get("broker"), bool(event.arguments.get("on"))
    wanted = [Broker(b.new, on if chosen in (None, i) else b.flag) for i, b in enumerate(before.brokers)]
    recorded = [None if on else store.last_batched_ledger for store in before.stores]
    is_set = list(after.brokers) == wanted and [store.last_batched_ledger for store in after.stores] == recorded
    return is_set and (chosen is not None or event.outcome == len([broker for broker in before.brokers if broker.flag]))


# ---- coverage goals -------------------------------------------------------------------------------


@sometimes(txn_rollout, on=OPENS)
def new_broker_reads_mixture(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new broker opens a store with batches and plain entries."""
    return any(
        before.brokers[broker].new and is_mixed(before.stores[store]) for store, broker in openings(before, event)
    )


@sometimes(txn_rollout, given=lambda cfg: cfg.flag_is_read_at_open)
def store_batches_after_flag_off(cfg: Config, s: State) -> bool:
    """A store still writes batches although the flag of its broker is off."""
    return any(store.batching and store.owner is not None and not s.brokers[store.owner].flag for store in s.stores)


@sometimes(txn_rollout, given=lambda cfg: cfg.flag_is_read_at_open)
def store_writes_plain_entries_after_flag_on(cfg: Config, s: State) -> bool:
    """A store still writes single records although the flag of its broker is on."""
    return any(not store.batching and store.owner is not None and s.brokers[store.owner].flag for store in s.stores)


@sometimes(txn_rollout)
def batch_is_partially_deleted(cfg: Config, s: State) -> bool:
    """Some records of a batch are deleted, and others are not."""
    return any(e.batch > 1 and e.open + e.ended < e.batch for store in s.stores for e in entries(store))


@sometimes(txn_rollout)
def open_transaction_pins_later_ledgers(cfg: Config, s: State) -> bool:
    """A ledger without undeleted records is kept, because the first ledger has an open transaction."""
    return any(
        any(e.open for e in store.ledgers[0].entries) and any(not ledger.entries for ledger in store.ledgers[1:-1])
        for store in s.stores
    )


@sometimes(txn_rollout, on=("record_last_ledgers",))
def last_ledgers_are_recorded_with_batches_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """In a downgrade, the last ledgers are recorded while a store has an undeleted batch."""
    return not isinstance(event.outcome, Refused) and event.outcome > 0 and any(batches(s) for s in after.stores)


@sometimes(txn_rollout, on=("downgrade_broker",))
def downgrade_completes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last new broker is replaced by an old one, after the last ledger of each store was recorded."""
    are_all_old = not any(broker.new for broker in after.brokers)
    return (
        are_all_old
        and any(b.new for b in before.brokers)
        and all(store.last_batched_ledger is not None for store in after.stores)
    )


@sometimes(txn_rollout, on=("open_store",))
def old_broker_continues_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a downgrade, an old broker opens a store with open transactions."""
    if not isinstance(event.outcome, int) or not event.outcome:
        return False
    return (
        not after.brokers[event.arguments["broker"]].new
        and after.stores[event.arguments["store"]].last_batched_ledger is not None
    )


# ---- liveness -------------------------------------------------------------------------------------


@eventually(txn_rollout, fair=("turn_flags_off", "reopen_stores", "end_transactions", "trim", "record_last_ledgers"))
def downgrade_terminates(cfg: Config, s: State) -> bool:
    """If the steps of a downgrade are fair, PIP-160's steps eventually allow operators to downgrade brokers.

    All flags are then off, and the last ledger of every store is recorded and trimmed.
    """
    return not any(broker.flag for broker in s.brokers) and all(
        store.last_batched_ledger is not None and store.last_batched_ledger < store.ledgers[0].id for store in s.stores
    )
