"""Upgrade and downgrade of a cluster to and from batched transaction logs.

Implements the `reference` rules and all settings of `model/txn_rollout`. Entries are bytes in the wire format. A broker
that opens a store reads the bytes with the reader of its version (`impl/txn_writer/records.py`); the old reader fails
on a batch.

Enabled flags, old brokers and batching stores are counted, so most preconditions compare a count. Only
`downgrade_broker` looks at the first ledger of every store. Opening and `end_transactions` are O(entries),
`write_records` is O(records), `trim` is O(ledgers), and `end_transaction` is O(ledgers + entries of one ledger). Every
other action is O(1), or O(stores) or O(brokers) if it concerns all of them.
"""

from __future__ import annotations

import functools

from impl.txn_writer.records import (
    BadEntry,
    TransactionRecord,
    batched_entry,
    is_batched,
    old_read_entry,
    plain_entry,
    read_entry,
)
from model.machine import Failed, Refused
from model.txn_rollout import Broker, Config, Entry, Ledger, State, Store

_CLOSED = Refused("illegal_state", "the store is closed")
_UNREADABLE = Failed("unsupported", "an old broker cannot read a batch")


@functools.lru_cache(maxsize=64)
def _bytes_of(batch: int) -> bytes:
    """Returns the bytes of an entry: a plain entry if `batch` is 0, else a batch of `batch` records.

    O(records), cached.
    """
    records = [TransactionRecord("NEW", number, 0, timeout_ms=60_000, start_time=0) for number in range(max(batch, 1))]
    return batched_entry(records) if batch else plain_entry(records[0])


@functools.lru_cache(maxsize=128)
def _read(new: bool, data: bytes) -> int | None:
    """Returns the number of records that a new or old broker reads in an entry; None if the broker cannot read it.

    O(records), cached.
    """
    try:
        if new:
            return len(read_entry(TransactionRecord, data).records)
        old_read_entry(TransactionRecord, data)
    except BadEntry:
        return None
    return 1


class _Entry:
    """An entry that is not fully deleted. `batch` and `open` are those of the model's `Entry`."""

    __slots__ = ("batch", "data", "open")

    def __init__(self, batch: int, open_: int) -> None:
        self.data = _bytes_of(batch)
        self.batch = batch
        self.open = open_


class _Store:
    """A store and its log: the ledgers' ids and the ledgers' undeleted entries, in two lists of equal length."""

    __slots__ = ("batching", "ids", "last_batched_ledger", "ledgers", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        self.batching = False
        self.ids = [1]
        self.ledgers: list[list[_Entry]] = [[]]
        self.last_batched_ledger: int | None = None

    def begin_ledger(self) -> None:
        """Rolls over to a new ledger; an empty last ledger is replaced."""
        following = self.ids[-1] + 1
        if self.ledgers[-1]:
            self.ids.append(following)
            self.ledgers.append([])
        else:
            self.ids[-1] = following

    def view(self) -> Store:
        """Returns the model's form."""
        ledgers = [
            Ledger(number, tuple([Entry(e.batch, e.open, 0) for e in entries]))  # 0: an ended one is deleted
            for number, entries in zip(self.ids, self.ledgers, strict=True)
        ]
        return Store(self.owner, self.batching, tuple(ledgers), self.last_batched_ledger)


class TxnRollout:
    """Brokers of two versions and their transaction log stores."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._new = [False] * cfg.brokers
        self._flags = [False] * cfg.brokers
        self._stores = [_Store() for _ in range(cfg.stores)]
        self._old = cfg.brokers  # number of old brokers
        self._on = 0  # number of enabled flags
        self._batching = 0  # number of batching stores

    # ---- brokers ----

    def _stop(self, broker: int) -> int:
        """Closes a broker's stores; returns their number. O(stores)."""
        count = 0
        for store in self._stores:
            if store.owner == broker:
                self._close(store)
                count += 1
        return count

    def _close(self, store: _Store) -> None:
        self._set_mode(store, False)
        store.owner = None

    def _set_mode(self, store: _Store, batching: bool) -> None:
        self._batching += batching - store.batching
        store.batching = batching

    def upgrade_broker(self, broker: int) -> int | Refused:
        if self._new[broker]:
            return Refused("illegal_state", "the broker is already new")
        self._new[broker] = True
        self._old -= 1
        return self._stop(broker)

    def downgrade_broker(self, broker: int) -> int | Refused:
        if not self._new[broker]:
            return Refused("illegal_state", "the broker is already old")
        if not self._may_downgrade():
            why = "a flag is on, or a last ledger is not recorded or not trimmed"
            return Refused("illegal_state", why)
        self._on -= self._flags[broker]
        self._new[broker] = self._flags[broker] = False
        self._old += 1
        return self._stop(broker)

    def _may_downgrade(self) -> bool:
        """Whether all flags are off, and the recorded last ledger of every store is trimmed. O(stores)."""
        return self._on == 0 and all(
            s.last_batched_ledger is not None and s.ids[0] > s.last_batched_ledger for s in self._stores
        )

    def restart_broker(self, broker: int) -> int:
        return self._stop(broker)

    def set_flag(self, broker: int, on: bool) -> Refused | None:
        if not self._new[broker]:
            return Refused("unsupported", "an old broker has no flag")
        if not on:
            self._turn(broker, False)
            return None
        if self._old:
            return Refused("illegal_state", "a broker is old")
        self._turn(broker, True)
        # from now on, later ledgers may have batches
        for store in self._stores:
            store.last_batched_ledger = None
        return None

    def _turn(self, broker: int, on: bool) -> int:
        """Sets a flag. Returns 1 if it changed."""
        if self._flags[broker] == on:
            return 0
        self._flags[broker] = on
        self._on += 1 if on else -1
        return 1

    def turn_flags_off(self) -> int:
        return sum([self._turn(broker, False) for broker in range(len(self._flags))]) if self._on else 0

    def record_last_ledgers(self) -> int | Refused:
        if self._on:
            return Refused("illegal_state", "a flag is on")
        if self._batching:
            return Refused("illegal_state", "a store writes batches until it is reopened")
        if self._stores[0].last_batched_ledger is not None:  # the ledgers of all stores are recorded together
            return 0
        for store in self._stores:
            store.last_batched_ledger = store.ids[-1]
        return len(self._stores)

    # ---- stores are opened and closed ----

    def _open(self, store: _Store, broker: int) -> int | None:
        """Reads all undeleted entries and begins a ledger.

        Returns the number of undeleted records. If the broker cannot read an entry, returns None, and the store stays
        closed.
        """
        new, flag = self._new[broker], self._flags[broker]
        reads = [_read(new, e.data) for entries in store.ledgers for e in entries]
        if None in reads:
            return None
        count = sum([e.open for entries in store.ledgers for e in entries])
        store.owner = broker
        self._set_mode(store, flag)
        store.begin_ledger()
        return count

    def open_store(self, store: int, broker: int) -> int | Refused | Failed:
        at = self._stores[store]
        if at.owner is not None:
            return Refused("illegal_state", "the store is open")
        count = self._open(at, broker)
        return _UNREADABLE if count is None else count

    def close_store(self, store: int) -> Refused | None:
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        self._close(at)
        return None

    def reopen_stores(self) -> int | Failed:
        counts = []
        for store in self._stores:
            broker = store.owner or 0  # a closed store (None) is opened at broker 0
            self._close(store)
            counts.append(self._open(store, broker))
        return _UNREADABLE if None in counts else sum([count or 0 for count in counts])

    # ---- logs ----

    def write_records(self, store: int, records: int) -> int | Refused:
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        if at.batching:
            at.ledgers[-1].append(_Entry(records, records))
            return 1
        at.ledgers[-1].extend([_Entry(0, 1) for _ in range(records)])
        return records

    def roll_ledger(self, store: int) -> Refused | None:
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        if not at.ledgers[-1]:
            return Refused("illegal_state", "the ledger has no undeleted entry")
        at.begin_ledger()
        return None

    def end_transaction(self, store: int, entry: int) -> int | Refused:
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        for entries in at.ledgers:
            if entry < len(entries):
                e = entries[entry]
                if not e.open:
                    return Refused("illegal_argument", "no transaction of the entry is open")
                e.open -= 1
                if not e.open:
                    del entries[entry]
                return e.open
            entry -= len(entries)
        return Refused("illegal_argument", "there is no such entry")

    def end_transactions(self) -> int:
        count = 0
        for store in self._stores:
            if store.owner is not None:
                for entries in store.ledgers:
                    count += sum([e.open for e in entries])
                    entries.clear()
        return count

    def trim(self) -> int:
        count = 0
        for store in self._stores:
            if store.owner is not None:
                trimmed, last = 0, len(store.ledgers) - 1
                while trimmed < last and not store.ledgers[trimmed]:
                    trimmed += 1
                del store.ledgers[:trimmed]
                del store.ids[:trimmed]
                count += trimmed
        return count

    # ---- for the engines ----

    def view(self) -> State:
        """Returns the model's state. O(size)."""
        brokers = tuple([Broker(new, flag) for new, flag in zip(self._new, self._flags, strict=True)])
        return State(brokers, tuple([store.view() for store in self._stores]))

    @classmethod
    def load(cls, cfg: Config, state: State) -> TxnRollout:
        """Returns an implementation in the given state. O(size)."""
        made = cls(cfg)
        made._new = [broker.new for broker in state.brokers]
        made._flags = [broker.flag for broker in state.brokers]
        made._stores = []
        for each in state.stores:
            store = _Store()
            store.owner, store.batching, store.last_batched_ledger = each.owner, each.batching, each.last_batched_ledger
            store.ids = [ledger.id for ledger in each.ledgers]
            store.ledgers = [[_Entry(e.batch, e.open) for e in ledger.entries] for ledger in each.ledgers]
            made._stores.append(store)
        made._old = made._new.count(False)
        made._on = made._flags.count(True)
        made._batching = len([1 for store in made._stores if store.batching])
        return made

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        wrong = []
        if self._old != self._new.count(False):
            wrong.append("the count of old brokers is wrong")
        if self._on != self._flags.count(True):
            wrong.append("the count of enabled flags is wrong")
        if self._batching != len([1 for store in self._stores if store.batching]):
            wrong.append("the count of batching stores is wrong")
        if any(flag and not new for new, flag in zip(self._new, self._flags, strict=True)):
            wrong.append("an old broker has a flag")
        for number, store in enumerate(self._stores):
            wrong += [f"store {number}: {each}" for each in self._wrong_in(store)]
        return wrong

    def _wrong_in(self, store: _Store) -> list[str]:
        wrong = []
        every = [e for entries in store.ledgers for e in entries]
        if store.owner is not None and not 0 <= store.owner < len(self._new):
            wrong.append("its broker does not exist")
        elif store.batching and (store.owner is None or not self._new[store.owner]):
            wrong.append("it batches while closed or at an old broker")
        if not store.ids or store.ids != sorted(set(store.ids)) or len(store.ids) != len(store.ledgers):
            wrong.append("its ledgers are unordered")
        if store.last_batched_ledger is not None and store.ids and store.last_batched_ledger > store.ids[-1]:
            wrong.append("its recorded ledger does not exist yet")
        if any(is_batched(e.data) != (e.batch > 0) for e in every):
            wrong.append("an entry has the wrong form")
        if not all(0 < e.open <= _read(True, e.data) for e in every):  # type: ignore[operator]
            wrong.append("an entry has no undeleted record, or more than were written")
        return wrong
