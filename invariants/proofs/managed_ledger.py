"""Claims about positions in a managed ledger, and about the expected read count of an entry put back for replay."""

from __future__ import annotations

from impl.managed_ledger.ledger import ManagedLedger
from invariants.proofs.claim import Control, contract
from model.managed_ledger import dispatcher
from model.managed_ledger import state as model
from model.managed_ledger.state import Config, Ledger, ReadEntry
from model.positions import Position
from model.range_cache import Entry


@contract(
    "positions-and-backlogs-of-implementation-and-model-agree",
    "For a log of two ledgers of any sizes, the first not empty, and any position in them up to the end of the log: "
    "implementation and model find the same valid position at or after it, and the same number of entries from it on.",
    Control(
        "the position after the last entry of a closed ledger is valid",
        "impl.managed_ledger.ledger",
        "        if ledger == self._last or entry < self._ledgers.get(ledger, 0):\n",
        "        if ledger == self._last or entry <= self._ledgers.get(ledger, 0):\n",
    ),
)
def positions_agree(first: int, second: int, ledger: int, entry: int) -> bool:
    """Equivalence of the implementation with the model.

    pre: 1 <= first and 0 <= second and 0 <= entry
    pre: 0 <= ledger and ledger <= 1
    pre: ledger == 0 or entry <= second
    post: _
    """
    cfg = Config(subscriptions=1)
    implementation = ManagedLedger(cfg)
    implementation._ledgers, implementation._last = {0: first, 1: second}, 1
    s = model.start(cfg)._replace(ledgers=(Ledger(0, first), Ledger(1, second)))
    position = Position(ledger, entry)
    implementation._subscriptions[0].read_position = position
    same_backlog = implementation._backlog(implementation._subscriptions[0]) == model.entries_from(s, position)
    return implementation._valid_from(position) == model.valid_from(s, position) and same_backlog


@contract(
    "entry-put-back-for-replay-keeps-its-count",
    "For a cached entry with any expected read count: a dispatcher that puts the entry back for replay raises the "
    "count by one and releases its copy, which lowers the count by one. So the count does not change.",
    Control(
        "the count is not raised",
        "model.managed_ledger.dispatcher",
        "    if cfg.replay_raises_count:\n",
        "    if not cfg.replay_raises_count:\n",
    ),
)
def put_back_keeps_count(count: int, size: int, requeue_count: int, accessed: bool) -> bool:
    """PIP-430, "Dynamic Updates".

    pre: 0 <= size and 0 <= requeue_count
    post: _
    """
    cfg, position = Config(subscriptions=1, types=("shared",)), Position(0, 0)
    entry = Entry(0, position, size, count, (1,), 0, requeue_count, accessed, False)
    s = model.start(cfg)
    ranges = s.caches.ranges._replace(queue=(entry,), sizes=(size,), next_copy=2)
    s = s._replace(caches=s.caches._replace(ranges=ranges, total_bytes=size))
    after = dispatcher.put_back(cfg, s, 0, ReadEntry(position, 1))
    left = after.caches.ranges.queue[0]
    return left == entry._replace(copies=()) and after.subscriptions[0].replay == (position,)


claims = (positions_agree, put_back_keeps_count)
