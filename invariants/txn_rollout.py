"""Guarantees for upgrade and downgrade of brokers whose transaction logs hold batches (PIP-160)."""

from __future__ import annotations

from collections.abc import Iterator

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.txn_rollout import Config, Entry, State, Store, txn_rollout

OPENS = ("open_store", "reopen_stores")

# ---- accessors ------------------------------------------------------------------------------------


def entries(store: Store) -> list[Entry]:
    """Undeleted entries in order."""
    return [e for ledger in store.ledgers for e in ledger.entries]


def batches(store: Store) -> list[Entry]:
    """Undeleted batches."""
    return [e for e in entries(store) if e.batch > 0]


def left(store: Store) -> int:
    """The number of records that a broker reads when it opens the store."""
    return sum([e.open + e.ended for e in entries(store)])


def still_open(store: Store) -> int:
    """The number of undeleted records of open transactions."""
    return sum([e.open for e in entries(store)])


def is_mixed(store: Store) -> bool:
    """Whether the log has undeleted plain entries and batches."""
    return 0 < len(batches(store)) < len(entries(store))


def openings(before: State, event: Event) -> Iterator[tuple[int, int]]:
    """The stores that an event tries to open, each with its broker."""
    if event.name == "open_store" and before.stores[event.arguments["store"]].owner is None:
        yield event.arguments["store"], event.arguments["broker"]
    if event.name == "reopen_stores":
        for number, store in enumerate(before.stores):
            yield number, store.owner or 0


# ---- readers ------------------------------------------------------------------------------------------


@always(txn_rollout, on=OPENS)
def old_broker_never_reads_batch(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No broker from before PIP-160 opens a store with an undeleted batch."""
    return not any(
        not before.brokers[broker].new and batches(before.stores[store]) for store, broker in openings(before, event)
    )


@always(txn_rollout, on=OPENS)
def new_broker_reads_any_mixture(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new broker opens any store and reads every undeleted record, in any mixture of batches and plain entries."""
    for store, broker in openings(before, event):
        if before.brokers[broker].new:
            is_open = after.stores[store].owner == broker
            if not is_open or left(after.stores[store]) < left(before.stores[store]):
                return False
    if isinstance(event.outcome, int):
        return event.outcome == sum([left(after.stores[store]) for store, _ in openings(before, event)])
    return True


@always(txn_rollout, given=lambda cfg: cfg.operators_follow_steps)
def batches_exist_only_with_new_brokers(cfg: Config, s: State) -> bool:
    """If operators follow the steps, all brokers are new while any store has an undeleted batch."""
    return all(broker.new for broker in s.brokers) or not any(batches(store) for store in s.stores)


@always(txn_rollout, given=lambda cfg: cfg.operators_follow_steps)
def no_batch_follows_last_batched_ledger(cfg: Config, s: State) -> bool:
    """Once the last ledger of a store was recorded, no later ledger has a batch."""
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
    """An open store keeps its mode until it is reopened, whatever the flag of its broker."""
    if event.name in OPENS or after.stores is before.stores:
        return True
    return all(
        new.batching == old.batching
        for old, new in zip(before.stores, after.stores, strict=True)
        if old.owner is not None and new.owner is not None
    )


@always(txn_rollout, on=OPENS)
def opened_store_takes_broker_flag(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that is opened batches exactly if the flag of its broker is on."""
    return all(
        after.stores[store].batching == (after.stores[store].owner is not None and after.brokers[broker].flag)
        for store, broker in openings(before, event)
    )


@always(txn_rollout, on=("write_records",))
def entries_follow_batching_mode(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Records are written as one batch if the store batches, also a single record, and otherwise as plain entries.

    They are appended to the last ledger.
    """
    if isinstance(event.outcome, Refused):
        return True
    store, count = event.arguments["store"], event.arguments["records"]
    old, new = before.stores[store], after.stores[store]
    wanted = [Entry(count, count, 0)] if old.batching else [Entry(0, 1, 0)] * count
    is_last = [each.id for each in new.ledgers] == [each.id for each in old.ledgers]
    return is_last and entries(new) == entries(old) + wanted and new.ledgers[:-1] == old.ledgers[:-1]


@always(txn_rollout)
def old_broker_has_no_flag(cfg: Config, s: State) -> bool:
    """An old broker has no flag, and no store that is closed or open at an old broker batches."""
    return not any(broker.flag and not broker.new for broker in s.brokers) and not any(
        store.batching and (store.owner is None or not s.brokers[store.owner].new) for store in s.stores
    )


@always(txn_rollout, on=("upgrade_broker", "downgrade_broker", "restart_broker"))
def stopped_broker_closes_its_stores(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a broker stops, exactly its stores are closed; their logs do not change."""
    if isinstance(event.outcome, Refused):
        return True
    stopped = event.arguments["broker"]
    for old, new in zip(before.stores, after.stores, strict=True):
        if new.owner != (None if old.owner == stopped else old.owner) or new.ledgers != old.ledgers:
            return False
    return bool(event.outcome == len([store for store in before.stores if store.owner == stopped]))


# ---- transactions -------------------------------------------------------------------------------------


@always(txn_rollout, on=OPENS)
def ended_transaction_is_not_reopened(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Opening a store finds no more open transactions than the store had."""
    return all(
        still_open(after.stores[store]) <= still_open(before.stores[store]) for store, _ in openings(before, event)
    )


@always(txn_rollout)
def ended_transaction_is_deleted(cfg: Config, s: State) -> bool:
    """An ended transaction has no undeleted record."""
    return not any(e.ended for store in s.stores for e in entries(store))


@always(txn_rollout)
def open_transaction_is_not_lost(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Open transactions disappear only by ending: one of a store, or all of every open store."""
    if after.stores is before.stores or event.name in OPENS:
        return True
    fewer = [still_open(old) - still_open(new) for old, new in zip(before.stores, after.stores, strict=True)]
    if event.name == "end_transaction" and not isinstance(event.outcome, Refused):
        return fewer[event.arguments["store"]] == 1 and sum(fewer) == 1
    if event.name == "end_transactions":
        wanted = [0 if store.owner is None else still_open(store) for store in before.stores]
        return bool(fewer == wanted and sum(wanted) == event.outcome)
    return max(fewer) <= 0


# ---- ledgers ------------------------------------------------------------------------------------------


@always(txn_rollout)
def ledgers_are_well_formed(cfg: Config, s: State) -> bool:
    """Every store has a ledger; ledger ids increase; every listed entry has an undeleted record."""
    for store in s.stores:
        ids = [ledger.id for ledger in store.ledgers]
        if not ids or ids != sorted(set(ids)):
            return False
        if not all(0 < e.open + e.ended <= max(e.batch, 1) and min(e.open, e.ended) >= 0 for e in entries(store)):
            return False
    return True


@always(txn_rollout, on=("trim",))
def only_deleted_ledgers_are_trimmed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Trimming removes exactly the fully deleted first ledgers of open stores, never the last one."""
    gone = 0
    for old, new in zip(before.stores, after.stores, strict=True):
        count = len(old.ledgers) - len(new.ledgers)
        gone += count
        if new.ledgers != old.ledgers[count:] or any(ledger.entries for ledger in old.ledgers[:count]):
            return False
        if old.owner is not None and len(new.ledgers) > 1 and not new.ledgers[0].entries:
            return False
    return bool(event.outcome == gone)


@always(txn_rollout, on=("roll_ledger", *OPENS))
def new_ledger_is_last_and_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a rollover or an opening, the last ledger is new and empty."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    stores = [each for each, _ in openings(before, event)] or [event.arguments["store"]]
    return all(
        not after.stores[each].ledgers[-1].entries
        and after.stores[each].ledgers[-1].id > before.stores[each].ledgers[-1].id
        for each in stores
    )


# ---- steps of operators -------------------------------------------------------------------------------


@always(txn_rollout, on=("record_last_ledgers",))
def last_batched_ledger_is_recorded_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last ledger of every store is recorded; a recorded one is kept."""
    if isinstance(event.outcome, Refused):
        return True
    wanted = [
        store.ledgers[-1].id if store.last_batched_ledger is None else store.last_batched_ledger
        for store in before.stores
    ]
    return [store.last_batched_ledger for store in after.stores] == wanted


@always(txn_rollout, on=("set_flag", "turn_flags_off"))
def enabling_flag_discards_recorded_ledgers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Flags have the value that was set; enabling one discards all recorded ledgers."""
    if isinstance(event.outcome, Refused):
        return True
    if event.name == "turn_flags_off":
        return not any(broker.flag for broker in after.brokers)
    on = event.arguments["on"]
    is_set = after.brokers[event.arguments["broker"]].flag is on
    return is_set and not (on and any(store.last_batched_ledger is not None for store in after.stores))


# ---- coverage goals -------------------------------------------------------------------------------


@sometimes(txn_rollout, on=OPENS)
def new_broker_reads_mixture(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new broker opens a store with batches and plain entries."""
    return any(
        before.brokers[broker].new and is_mixed(before.stores[store]) for store, broker in openings(before, event)
    )


@sometimes(txn_rollout, given=lambda cfg: cfg.flag_is_read_at_open)
def store_batches_after_flag_off(cfg: Config, s: State) -> bool:
    """A store batches although the flag of its broker is off."""
    return any(store.batching and store.owner is not None and not s.brokers[store.owner].flag for store in s.stores)


@sometimes(txn_rollout, given=lambda cfg: cfg.flag_is_read_at_open)
def store_writes_plain_entries_after_flag_on(cfg: Config, s: State) -> bool:
    """A store writes plain entries although the flag of its broker is on."""
    return any(not store.batching and store.owner is not None and s.brokers[store.owner].flag for store in s.stores)


@sometimes(txn_rollout)
def batch_is_partially_deleted(cfg: Config, s: State) -> bool:
    """A batch is partially deleted."""
    return any(e.batch > 1 and e.open + e.ended < e.batch for store in s.stores for e in entries(store))


@sometimes(txn_rollout)
def open_transaction_pins_later_ledgers(cfg: Config, s: State) -> bool:
    """A fully deleted ledger is kept because an earlier one has an open transaction."""
    return any(
        store.ledgers[0].entries and any(not ledger.entries for ledger in store.ledgers[1:-1]) for store in s.stores
    )


@sometimes(txn_rollout, on=("record_last_ledgers",))
def last_ledgers_are_recorded_with_batches_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Last ledgers are recorded while batches are undeleted."""
    return not isinstance(event.outcome, Refused) and event.outcome > 0 and any(batches(s) for s in after.stores)


@sometimes(txn_rollout, on=("downgrade_broker",))
def downgrade_completes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last new broker is downgraded after all last ledgers were recorded."""
    is_over = not any(broker.new for broker in after.brokers)
    return (
        is_over
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
    """If flags are turned off, stores reopened, transactions ended, logs trimmed and ledgers recorded fairly, brokers
    may be old again.
    """
    return not any(broker.flag for broker in s.brokers) and all(
        store.last_batched_ledger is not None and store.last_batched_ledger < store.ledgers[0].id for store in s.stores
    )
