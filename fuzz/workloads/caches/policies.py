"""The policies of the study: each has a name, a description, and a function that creates a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fuzz.workloads.caches.cache import BACKLOG_THRESHOLD, Cache, Environment, Rules
from fuzz.workloads.caches.central import Central, Known, NextReader, Readers, SeparateCounters, Settings, Stash
from fuzz.workloads.caches.optimum import Optimum
from fuzz.workloads.caches.simple import LIBRARY, LRU, Legacy, LibraryCache, has_library
from model.machine import BadValue


class Policy(NamedTuple):
    """A policy. `about` is printed below the table."""

    about: str
    make: Callable[[Environment], Cache]
    offline: bool = False  # whether the policy knows the future
    needs_library: bool = False  # whether the policy is one of `simple.LIBRARY`


#: As before PIP-430: a cursor is active below a backlog. Added entries are cached while there are active cursors.
#: Entries below the slowest active cursor are removed.
_OLD = Rules(BACKLOG_THRESHOLD, grace_ttl=0, invalidates=True)
#: The same, but a cursor's position is its mark-delete position.
_OLD_BY_MARK = _OLD._replace(by_mark_delete=True)


def _central(about: str, settings: Settings) -> Policy:
    return Policy(about, lambda env: Central(env, settings))


_SHIPPED = Settings(extend_ttl_of_recently_accessed=True)
_REFERENCE = Settings()
_FIFO = Settings(_OLD, counts="none", max_requeue_times=0)

POLICIES: dict[str, Policy] = {
    "4.0": Policy(
        "branch 4.0: entries below the slowest read position are removed; a full cache rejects new entries",
        lambda env: Legacy(env, _OLD),
    ),
    "4.0-mark-delete": Policy(
        "branch 4.0 with cacheEvictionByMarkDeletedPosition", lambda env: Legacy(env, _OLD_BY_MARK)
    ),
    "fifo": _central("4.1 and later with cacheEvictionByExpectedReadCount=false: one global queue alone", _FIFO),
    "fifo-mark-delete": _central("fifo with cacheEvictionByMarkDeletedPosition", _FIFO._replace(rules=_OLD_BY_MARK)),
    "fifo-backlog": _central(
        "fifo, and entries that are read from a backlog are cached, too (apache/pulsar#12258)",
        _FIFO._replace(rules=Rules(grace_ttl=0, invalidates=True), caches_storage_reads=True),
    ),
    "stash": _central(
        "first draft of PIP-430: a size pass keeps entries with expected reads until their TTL; no grace period",
        Settings(Rules(grace_ttl=0), queue=Stash),
    ),
    "4.1": _central(
        "release 4.1: one global queue, expected read counts, 5 requeues, also for recent access", _SHIPPED
    ),
    "4.2": _central("release 4.2: the settings of 4.1", _SHIPPED),
    "access-only": _central("4.1 without requeues for expected reads", _SHIPPED._replace(max_requeue_times=0)),
    "no-extension": _central(
        "4.1 as it starts with the factory's settings: 0 requeues, no access extension (before apache/pulsar#26627)",
        Settings(max_requeue_times=0),
    ),
    "5.0": _central("release 5.0: as 4.1, but entries are requeued for expected reads only", _REFERENCE),
    "max-1": _central("5.0 with 1 requeue", _REFERENCE._replace(max_requeue_times=1)),
    "max-2": _central("5.0 with 2 requeues", _REFERENCE._replace(max_requeue_times=2)),
    "max-20": _central("5.0 with 20 requeues", _REFERENCE._replace(max_requeue_times=20)),
    "ttl-250": _central("5.0 with a TTL of 250 ms", _REFERENCE._replace(ttl_us=250_000)),
    "ttl-4000": _central("5.0 with a TTL of 4 s", _REFERENCE._replace(ttl_us=4_000_000)),
    "near": _central(
        "5.0, and a cursor counts only if the entries between the cursor and the entry fit into the cache",
        _REFERENCE._replace(counts="near"),
    ),
    "near-1000": _central(
        "5.0, and a cursor counts only within 1000 entries (times scale)", _REFERENCE._replace(counts="near_1000")
    ),
    "others": _central(
        "5.0, and an entry read from storage is cached only if a cursor other than the reader counts",
        _REFERENCE._replace(least_count_to_cache=2),
    ),
    "drop-read": _central(
        "5.0, and the last expected read of an entry removes the entry", _REFERENCE._replace(spent="removed")
    ),
    "spent-first": _central(
        "5.0, and a size pass first removes entries whose last expected read is done",
        _REFERENCE._replace(spent="first"),
    ),
    "others-near": _central(
        "the changes of others and near", _REFERENCE._replace(least_count_to_cache=2, counts="near")
    ),
    "separate": _central(
        "4.1, and requeues for recent access do not count towards the 5", _SHIPPED._replace(queue=SeparateCounters)
    ),
    "readers": _central(
        "5.0 without counts: an entry is requeued while an active cursor is at the entry or before it",
        Settings(queue=Readers),
    ),
    "known": _central(
        "5.0, and an entry is also requeued while an active cursor is at the entry or before it", Settings(queue=Known)
    ),
    "known-first": _central(
        "known, and a size pass first removes entries whose last expected read is done and that no cursor will read",
        Settings(queue=Known, spent="first"),
    ),
    "next-reader": _central(
        "known without a maximum; a size pass removes entries that no cursor will read, then those to be read last",
        Settings(queue=NextReader, max_requeue_times=1 << 30),  # no maximum
    ),
    "lru": Policy("evicts the least recently used entry; no TTL, no cursors", LRU),
    "s3fifo": Policy(f"S3-FIFO of {LIBRARY}", lambda env: LibraryCache(env, "S3FIFO"), needs_library=True),
    "sieve": Policy(f"SIEVE of {LIBRARY}", lambda env: LibraryCache(env, "Sieve"), needs_library=True),
    "library-lru": Policy(f"LRU of {LIBRARY}: equals lru", lambda env: LibraryCache(env, "LRU"), needs_library=True),
    "optimum": Policy("offline optimum, exact or an upper bound on hits (column `bound`)", Optimum, offline=True),
    "optimum-feasible": Policy(
        "offline, feasible: a lower bound on the optimum's hits", lambda env: Optimum(env, lower=True), offline=True
    ),
    "optimum-90": Policy(
        "optimum in a cache of 90 % of the size: shows the cost of the watermark",
        lambda env: Optimum(env, 0.9),
        offline=True,
    ),
    "optimum-ttl": Policy(
        "optimum that keeps an entry for at most 6 TTL without a read",
        lambda env: Optimum(env, ttl_us=6 * env.ttl_us),
        offline=True,
    ),
}

#: The policies that run if none is named.
DEFAULT = (
    "4.0",
    "fifo",
    "stash",
    "4.1",
    "5.0",
    "near",
    "drop-read",
    "spent-first",
    "separate",
    "readers",
    "known",
    "known-first",
    "next-reader",
    "lru",
    "s3fifo",
    "sieve",
    "optimum",
)


def available(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of the policies `names` that can run here."""
    return tuple([name for name in names if has_library() or not POLICIES[name].needs_library])


def find_policy(name: str) -> Policy:
    """Returns the policy of that name, one of `POLICIES`. Raises BadValue if its library is not installed."""
    policy = POLICIES[name]
    if policy.needs_library and not has_library():
        raise BadValue(f"policy {name} needs {LIBRARY}, which is not installed: pip install -e '.[study]'")
    return policy
