"""What must hold when brokers whose transaction logs hold batches are upgraded and downgraded (PIP-160)."""

from __future__ import annotations

from collections.abc import Iterator

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.txn_rollout import Config, Entry, State, Store, txn_rollout

OPENS = ("open_store", "reopen_stores")

# ---- what is looked at --------------------------------------------------------------------------------


def entries(store: Store) -> list[Entry]:
    """Entries of which something is left, in order."""
    return [e for ledger in store.ledgers for e in ledger.entries]


def batches(store: Store) -> list[Entry]:
    """Those that are batches."""
    return [e for e in entries(store) if e.batch > 0]


def left(store: Store) -> int:
    """Records that a broker finds that opens the store now."""
    return sum([e.open + e.ended for e in entries(store)])


def still_open(store: Store) -> int:
    """Records whose transactions are open."""
    return sum([e.open for e in entries(store)])


def is_mixed(store: Store) -> bool:
    """Something is left of a plain entry, and something of a batch."""
    return 0 < len(batches(store)) < len(entries(store))


def openings(before: State, event: Event) -> Iterator[tuple[int, int]]:
    """The stores that an event opens, or tries to, each with the broker."""
    if event.name == "open_store" and before.stores[event.arguments["store"]].owner is None:
        yield event.arguments["store"], event.arguments["broker"]
    if event.name == "reopen_stores":
        for number, store in enumerate(before.stores):
            yield number, store.owner or 0


# ---- readers ------------------------------------------------------------------------------------------


@always(txn_rollout, on=OPENS)
def an_old_broker_meets_no_batch(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No broker from before PIP-160 opens a store in which something of a batch is left: it could not read it.

    Broken where the steps are not followed, by one old broker that is left; and as the proposal has its step of noting
    ledgers: until it is opened again, a store may write another batch, after the ledger that was noted.
    """
    return not any(
        not before.brokers[broker].new and batches(before.stores[store]) for store, broker in openings(before, event)
    )


@always(txn_rollout, on=OPENS)
def any_mixture_is_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new broker opens any store, with batches and plain entries in any order, and finds every record there is."""
    for store, broker in openings(before, event):
        if before.brokers[broker].new:
            is_open = after.stores[store].owner == broker
            if not is_open or left(after.stores[store]) < left(before.stores[store]):
                return False
    if isinstance(event.outcome, int):
        return event.outcome == sum([left(after.stores[store]) for store, _ in openings(before, event)])
    return True


@always(txn_rollout, given=lambda cfg: cfg.operators_follow_the_steps)
def where_a_batch_is_every_broker_is_new(cfg: Config, s: State) -> bool:
    """Operators who follow the steps have no old broker while anything is left of a batch in any store.

    Broken as the proposal has its step of noting ledgers.
    """
    return all(broker.new for broker in s.brokers) or not any(batches(store) for store in s.stores)


@always(txn_rollout, given=lambda cfg: cfg.operators_follow_the_steps)
def no_batch_lies_behind_the_noted_ledger(cfg: Config, s: State) -> bool:
    """Once the last ledger of a store was noted, every batch lies in it or before it.

    Broken where it is noted as soon as the flags are off: a store goes on writing batches until it is opened again.
    """
    return not any(
        store.noted is not None and ledger.id > store.noted and any(e.batch for e in ledger.entries)
        for store in s.stores
        for ledger in store.ledgers
    )


# ---- flags and modes ----------------------------------------------------------------------------------


@always(txn_rollout)
def a_store_keeps_its_mode_until_it_is_opened_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that is open and stays open writes as it did, whatever becomes of the flag of its broker."""
    if event.name in OPENS or after.stores is before.stores:
        return True
    return all(
        new.batching == old.batching
        for old, new in zip(before.stores, after.stores, strict=True)
        if old.owner is not None and new.owner is not None
    )


@always(txn_rollout, on=OPENS)
def an_opened_store_writes_as_the_flag_says(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that is opened writes batches if the flag of its broker is on then, and plain entries if it is off."""
    return all(
        after.stores[store].batching == (after.stores[store].owner is not None and after.brokers[broker].flag)
        for store, broker in openings(before, event)
    )


@always(txn_rollout, on=("write_records",))
def an_entry_is_written_as_the_store_does(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Records come into one batch where the store writes batches, be it of one record; else each comes into an entry.

    They come after all others, into the last ledger.
    """
    if isinstance(event.outcome, Refused):
        return True
    store, count = event.arguments["store"], event.arguments["records"]
    old, new = before.stores[store], after.stores[store]
    wanted = [Entry(count, count, 0)] if old.batching else [Entry(0, 1, 0)] * count
    is_last = [each.id for each in new.ledgers] == [each.id for each in old.ledgers]
    return is_last and entries(new) == entries(old) + wanted and new.ledgers[:-1] == old.ledgers[:-1]


@always(txn_rollout)
def an_old_broker_has_no_flag(cfg: Config, s: State) -> bool:
    """Old brokers have no flag, and no store writes batches that is closed or open at one of them."""
    return not any(broker.flag and not broker.new for broker in s.brokers) and not any(
        store.batching and (store.owner is None or not s.brokers[store.owner].new) for store in s.stores
    )


@always(txn_rollout, on=("upgrade_broker", "downgrade_broker", "restart_broker"))
def a_broker_that_stops_has_no_stores(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a broker stops, its stores are closed, and no others; what is in them stays."""
    if isinstance(event.outcome, Refused):
        return True
    stopped = event.arguments["broker"]
    for old, new in zip(before.stores, after.stores, strict=True):
        if new.owner != (None if old.owner == stopped else old.owner) or new.ledgers != old.ledgers:
            return False
    return bool(event.outcome == len([store for store in before.stores if store.owner == stopped]))


# ---- transactions -------------------------------------------------------------------------------------


@always(txn_rollout, on=OPENS)
def an_ended_transaction_stays_ended(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store that is opened finds no more open transactions than it had: none that has ended is back.

    Broken where a record of a batch can be deleted only while batches are written: after a store was opened with
    batching off, the transactions of its batches are back each time that it is opened.
    """
    return all(
        still_open(after.stores[store]) <= still_open(before.stores[store]) for store, _ in openings(before, event)
    )


@always(txn_rollout)
def what_has_ended_is_deleted(cfg: Config, s: State) -> bool:
    """Of a transaction that has ended no record is left.

    Broken where a record of a batch can be deleted only while batches are written: the log is never trimmed again.
    """
    return not any(e.ended for store in s.stores for e in entries(store))


@always(txn_rollout)
def an_open_transaction_is_not_lost(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store has fewer open transactions only when transactions end: one of it, or all of every store that is open."""
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
def ledgers_are_in_order(cfg: Config, s: State) -> bool:
    """Every store has a ledger to write to, the ledgers' ids go up, and every entry has something left."""
    for store in s.stores:
        ids = [ledger.id for ledger in store.ledgers]
        if not ids or ids != sorted(set(ids)):
            return False
        if not all(0 < e.open + e.ended <= max(e.batch, 1) and min(e.open, e.ended) >= 0 for e in entries(store)):
            return False
    return True


@always(txn_rollout, on=("trim",))
def only_what_is_deleted_is_trimmed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Of an open store the first ledgers go until one in which something is left, or the last; nothing else goes."""
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
def a_ledger_that_begins_is_the_last(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A ledger that is rolled, or left by an opening, is written to no more: the next one has nothing in it."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    stores = [each for each, _ in openings(before, event)] or [event.arguments["store"]]
    return all(
        not after.stores[each].ledgers[-1].entries
        and after.stores[each].ledgers[-1].id > before.stores[each].ledgers[-1].id
        for each in stores
    )


# ---- steps of operators -------------------------------------------------------------------------------


@always(txn_rollout, on=("note_ledgers",))
def a_ledger_is_noted_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last ledger of every store is noted; where one was noted already, that one stays."""
    if isinstance(event.outcome, Refused):
        return True
    wanted = [store.ledgers[-1].id if store.noted is None else store.noted for store in before.stores]
    return [store.noted for store in after.stores] == wanted


@always(txn_rollout, on=("set_flag", "turn_flags_off"))
def a_flag_that_goes_on_makes_the_notes_void(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The flags are as they were set; after one went on, the ledgers of all stores are to be noted anew."""
    if isinstance(event.outcome, Refused):
        return True
    if event.name == "turn_flags_off":
        return not any(broker.flag for broker in after.brokers)
    on = event.arguments["on"]
    is_set = after.brokers[event.arguments["broker"]].flag is on
    return is_set and not (on and any(store.noted is not None for store in after.stores))


# ---- what a run must have seen ------------------------------------------------------------------------


@sometimes(txn_rollout, on=OPENS)
def a_new_broker_reads_a_mixture(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store is opened by a new broker in which there are batches and plain entries."""
    return any(
        before.brokers[broker].new and is_mixed(before.stores[store]) for store, broker in openings(before, event)
    )


@sometimes(txn_rollout, given=lambda cfg: cfg.flags_are_read_at_open)
def a_store_writes_batches_with_the_flag_off(cfg: Config, s: State) -> bool:
    """A store goes on writing batches though the flag of its broker is off."""
    return any(store.batching and store.owner is not None and not s.brokers[store.owner].flag for store in s.stores)


@sometimes(txn_rollout, given=lambda cfg: cfg.flags_are_read_at_open)
def a_store_writes_plain_entries_with_the_flag_on(cfg: Config, s: State) -> bool:
    """A store goes on writing plain entries though the flag of its broker is on."""
    return any(not store.batching and store.owner is not None and s.brokers[store.owner].flag for store in s.stores)


@sometimes(txn_rollout)
def a_batch_is_deleted_in_part(cfg: Config, s: State) -> bool:
    """Some records of a batch are deleted, and others are not."""
    return any(e.batch > 1 and e.open + e.ended < e.batch for store in s.stores for e in entries(store))


@sometimes(txn_rollout)
def an_open_transaction_pins_later_ledgers(cfg: Config, s: State) -> bool:
    """In a ledger nothing is left, and it stays: a transaction is open in a ledger before it."""
    return any(
        store.ledgers[0].entries and any(not ledger.entries for ledger in store.ledgers[1:-1]) for store in s.stores
    )


@sometimes(txn_rollout, on=("note_ledgers",))
def ledgers_are_noted_with_batches_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last ledgers are noted while something is left of batches."""
    return not isinstance(event.outcome, Refused) and event.outcome > 0 and any(batches(s) for s in after.stores)


@sometimes(txn_rollout, on=("downgrade_broker",))
def a_downgrade_is_over(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last new broker is made old, when the last ledger of every store was noted."""
    is_over = not any(broker.new for broker in after.brokers)
    return is_over and any(b.new for b in before.brokers) and all(store.noted is not None for store in after.stores)


@sometimes(txn_rollout, on=("open_store",))
def an_old_broker_goes_on_with_a_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a downgrade an old broker opens a store with transactions that are still open."""
    if not isinstance(event.outcome, int) or not event.outcome:
        return False
    return not after.brokers[event.arguments["broker"]].new and after.stores[event.arguments["store"]].noted is not None


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(txn_rollout, fair=("turn_flags_off", "reopen_stores", "end_transactions", "trim", "note_ledgers"))
def the_downgrade_ends(cfg: Config, s: State) -> bool:
    """When the flags are off, stores are opened again, transactions end and logs are trimmed, brokers may be old again.

    Broken where a record of a batch can be deleted only while batches are written: the ledger that was noted stays.
    """
    return not any(broker.flag for broker in s.brokers) and all(
        store.noted is not None and store.noted < store.ledgers[0].id for store in s.stores
    )
