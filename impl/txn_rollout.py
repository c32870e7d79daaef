"""Upgrade and downgrade of brokers whose transaction logs hold batches, with counters and real entries.

The same behaviour as `model/txn_rollout.py`. Entries are the bytes that a ledger would hold, and an opening reads them
with the reader of the broker's version (impl/txn_writer/records.py): an old broker fails on a batch because its reader does.

How many flags are on, how many brokers are old, and how many stores write batches is counted: whether a step is allowed
is a comparison, but for the last one, which looks at the first ledger of every store.

Complexities: an opening reads what is left, O(entries); all else is O(1), or O(stores) where all stores change, or O(n)
for the n-th entry of which something is left.
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
    """An entry as a ledger holds it: a plain one for 0, else a batch of so many records. O(records), once."""
    records = [TransactionRecord("NEW", number, 0, timeout_ms=60_000, start_time=0) for number in range(max(batch, 1))]
    return batched_entry(records) if batch else plain_entry(records[0])


@functools.lru_cache(maxsize=128)
def _read(new: bool, data: bytes) -> int | None:
    """How many records a broker of that version reads from an entry; None if it fails. O(records), once."""
    try:
        if new:
            return len(read_entry(TransactionRecord, data).records)
        old_read_entry(TransactionRecord, data)
    except BadEntry:
        return None
    return 1


class _Entry:
    """An entry of which something is left."""

    __slots__ = ("batch", "data", "ended", "open")

    def __init__(self, batch: int, open_: int, ended: int) -> None:
        self.data = _bytes_of(batch)
        self.batch = batch
        self.open = open_
        self.ended = ended


class _Store:
    """A log: ids of ledgers and what is left in each, in two lists of one length."""

    __slots__ = ("batching", "ids", "ledgers", "noted", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        self.batching = False
        self.ids = [1]
        self.ledgers: list[list[_Entry]] = [[]]
        self.noted: int | None = None

    def begin_ledger(self) -> None:
        """The next entry comes into a new ledger; the last one goes if nothing is left in it."""
        following = self.ids[-1] + 1
        if self.ledgers[-1]:
            self.ids.append(following)
            self.ledgers.append([])
        else:
            self.ids[-1] = following

    def view(self) -> Store:
        """The model's form of it."""
        ledgers = [
            Ledger(number, tuple([Entry(e.batch, e.open, e.ended) for e in entries]))
            for number, entries in zip(self.ids, self.ledgers, strict=True)
        ]
        return Store(self.owner, self.batching, tuple(ledgers), self.noted)


class TxnRollout:
    """Brokers of two versions, and the logs of transactions that are open at them."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._new = [False] * cfg.brokers
        self._flags = [False] * cfg.brokers
        self._stores = [_Store() for _ in range(cfg.stores)]
        self._old = cfg.brokers  # how many are
        self._on = 0  # flags
        self._batching = 0  # stores
        #: whether every store can delete a record of a batch
        self._always_parts = cfg.batch_index_acks or not cfg.deletion_is_tied_to_batching

    # ---- brokers ----

    def _stop(self, broker: int) -> int:
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
        """See the model."""
        if self._new[broker]:
            return Refused("illegal_state", "the broker is new already")
        self._new[broker] = True
        self._old -= 1
        return self._stop(broker)

    def downgrade_broker(self, broker: int) -> int | Refused:
        """See the model."""
        if not self._new[broker]:
            return Refused("illegal_state", "the broker is old already")
        if self.cfg.operators_follow_the_steps and not self._may_downgrade():
            why = "a flag is on, or not every ledger that may hold batches was noted and is gone"
            return Refused("illegal_state", why)
        self._on -= self._flags[broker]
        self._new[broker] = self._flags[broker] = False
        self._old += 1
        return self._stop(broker)

    def _may_downgrade(self) -> bool:
        return self._on == 0 and all(s.noted is not None and s.ids[0] > s.noted for s in self._stores)

    def restart_broker(self, broker: int) -> int:
        """See the model."""
        return self._stop(broker)

    def set_flag(self, broker: int, on: bool) -> Refused | None:
        """See the model."""
        if not self._new[broker]:
            return Refused("unsupported", "an old broker has no flag")
        if not on:
            self._turn(broker, False)
            return None
        if self._old and self.cfg.operators_follow_the_steps:
            return Refused("illegal_state", "there is an old broker left")
        self._turn(broker, True)
        for store in self._stores:
            store.noted = None
        return None

    def _turn(self, broker: int, on: bool) -> int:
        """Sets a flag; 1 if it was another."""
        if self._flags[broker] == on:
            return 0
        self._flags[broker] = on
        self._on += 1 if on else -1
        if not self.cfg.flags_are_read_at_open:
            for store in self._stores:
                if store.owner == broker:
                    self._set_mode(store, on)
        return 1

    def turn_flags_off(self) -> int:
        """See the model."""
        return sum([self._turn(broker, False) for broker in range(len(self._flags))]) if self._on else 0

    def note_ledgers(self) -> int | Refused:
        """See the model."""
        if self._on:
            return Refused("illegal_state", "a flag is on")
        if self._batching and self.cfg.ledgers_are_noted == "when_stores_have_stopped":
            return Refused("illegal_state", "a store goes on writing batches until it is opened again")
        if self._stores[0].noted is not None:
            return 0
        for store in self._stores:
            store.noted = store.ids[-1]
        return len(self._stores)

    # ---- stores are opened and closed ----

    def _open(self, store: _Store, broker: int) -> int | None:
        """Reads all that is left and begins a ledger; how many records there were, or None if one was unreadable."""
        new, flag = self._new[broker], self._flags[broker]
        reads = [_read(new, e.data) for entries in store.ledgers for e in entries]
        if None in reads:
            return None
        parts = flag or self._always_parts
        count = 0
        for entries in store.ledgers:
            for e in entries:
                if e.batch > 1:
                    e.open, e.ended = (e.open + e.ended if parts else e.batch), 0
                count += e.open
        store.owner = broker
        self._set_mode(store, flag)
        store.begin_ledger()
        return count

    def open_store(self, store: int, broker: int) -> int | Refused | Failed:
        """See the model."""
        at = self._stores[store]
        if at.owner is not None:
            return Refused("illegal_state", "the store is open")
        count = self._open(at, broker)
        return _UNREADABLE if count is None else count

    def close_store(self, store: int) -> Refused | None:
        """See the model."""
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        self._close(at)
        return None

    def reopen_stores(self) -> int | Failed:
        """See the model."""
        counts = []
        for store in self._stores:
            broker = store.owner or 0
            self._close(store)
            counts.append(self._open(store, broker))
        return _UNREADABLE if None in counts else sum([count or 0 for count in counts])

    # ---- logs ----

    def write_records(self, store: int, records: int) -> int | Refused:
        """See the model."""
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        if at.batching:
            at.ledgers[-1].append(_Entry(records, records, 0))
            return 1
        at.ledgers[-1].extend([_Entry(0, 1, 0) for _ in range(records)])
        return records

    def roll_ledger(self, store: int) -> Refused | None:
        """See the model."""
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        if not at.ledgers[-1]:
            return Refused("illegal_state", "nothing is left in the ledger")
        at.begin_ledger()
        return None

    def _end(self, store: _Store, e: _Entry, count: int) -> int:
        """So many transactions of an entry end; how many records are left of it."""
        e.open -= count
        if e.batch > 1 and not (store.batching or self._always_parts):
            e.ended += count
        return e.open + e.ended

    def end_transaction(self, store: int, entry: int) -> int | Refused:
        """See the model."""
        at = self._stores[store]
        if at.owner is None:
            return _CLOSED
        for entries in at.ledgers:
            if entry < len(entries):
                e = entries[entry]
                if not e.open:
                    return Refused("illegal_argument", "no transaction of the entry is open")
                left = self._end(at, e, 1)
                if not left:
                    del entries[entry]
                return left
            entry -= len(entries)
        return Refused("illegal_argument", "there is no such entry")

    def end_transactions(self) -> int:
        """See the model."""
        count = 0
        for store in self._stores:
            if store.owner is not None:
                for entries in store.ledgers:
                    count += sum([e.open for e in entries])
                    entries[:] = [e for e in entries if self._end(store, e, e.open)]
        return count

    def trim(self) -> int:
        """See the model."""
        count = 0
        for store in self._stores:
            if store.owner is not None:
                gone, last = 0, len(store.ledgers) - 1
                while gone < last and not store.ledgers[gone]:
                    gone += 1
                del store.ledgers[:gone]
                del store.ids[:gone]
                count += gone
        return count

    # ---- for the engines ----

    def view(self) -> State:
        """The model's state. O(size)."""
        brokers = tuple([Broker(new, flag) for new, flag in zip(self._new, self._flags, strict=True)])
        return State(brokers, tuple([store.view() for store in self._stores]))

    @classmethod
    def load(cls, cfg: Config, state: State) -> TxnRollout:
        """A cluster in a given state. O(size)."""
        made = cls(cfg)
        made._new = [broker.new for broker in state.brokers]
        made._flags = [broker.flag for broker in state.brokers]
        made._stores = []
        for each in state.stores:
            store = _Store()
            store.owner, store.batching, store.noted = each.owner, each.batching, each.noted
            store.ids = [ledger.id for ledger in each.ledgers]
            store.ledgers = [[_Entry(*e) for e in ledger.entries] for ledger in each.ledgers]
            made._stores.append(store)
        made._old = made._new.count(False)
        made._on = made._flags.count(True)
        made._batching = len([1 for store in made._stores if store.batching])
        return made

    def check(self) -> list[str]:
        """What does not fit together."""
        wrong = []
        if self._old != self._new.count(False):
            wrong.append("the number of old brokers is not theirs")
        if self._on != self._flags.count(True):
            wrong.append("the number of flags that are on is not theirs")
        if self._batching != len([1 for store in self._stores if store.batching]):
            wrong.append("the number of stores that write batches is not theirs")
        if any(flag and not new for new, flag in zip(self._new, self._flags, strict=True)):
            wrong.append("an old broker has a flag")
        for number, store in enumerate(self._stores):
            wrong += [f"store {number}: {each}" for each in self._wrong_in(store)]
        return wrong

    def _wrong_in(self, store: _Store) -> list[str]:
        wrong = []
        every = [e for entries in store.ledgers for e in entries]
        if store.owner is not None and not 0 <= store.owner < len(self._new):
            wrong.append("its broker is none")
        elif store.batching and (store.owner is None or not self._new[store.owner]):
            wrong.append("it writes batches, closed or at an old broker")
        if not store.ids or store.ids != sorted(set(store.ids)) or len(store.ids) != len(store.ledgers):
            wrong.append("its ledgers are not in order")
        if store.noted is not None and store.ids and store.noted > store.ids[-1]:
            wrong.append("a ledger was noted that is to come")
        if any(is_batched(e.data) != (e.batch > 0) for e in every):
            wrong.append("an entry is of the other form")
        if not all(e.open >= 0 <= e.ended and 0 < e.open + e.ended <= _read(True, e.data) for e in every):  # type: ignore[operator]
            wrong.append("an entry has more records left than it was written with, or none")
        return wrong
