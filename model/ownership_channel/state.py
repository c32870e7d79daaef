"""State of the ownership channel: the stored records, and the view, handlers, requests and clean-ups of each broker.

The system topic is a log that every broker reads at its own pace. A writer appends unconditionally, and each reader
resolves conflicts itself. In the metadata store, the writer resolves a conflict with the stored record. After a
notification, a reader reads the record that the store has at this time, so it can miss records between two reads.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from model.machine import Machine
from model.ownership_channel.records import (
    ACTIVE,
    IN_FLIGHT,
    Config,
    Data,
    is_blank,
    is_rejected,
    next_version,
    state_of,
)
from model.values import record

#: A broker's session with the metadata store (`ServiceUnitStateChannelImpl.MetadataState`). Unstable: the session is
#: lost; Jittery: the session is new.
Session = Literal["Stable", "Jittery", "Unstable"]


class Message(NamedTuple):
    """A message of the system topic. A message without data is a tombstone."""

    bundle: int
    data: Data | None


class BundleRecord(NamedTuple):
    """A bundle with one of its records: the record that a running handler handles, or an orphan."""

    bundle: int
    data: Data


@record
class CleanUp(NamedTuple):
    """`ServiceUnitStateChannelImpl.doCleanup`: moves the bundles of one broker, the target, to other brokers.

    A record that the clean-up has to override is an orphan (`is_orphan`).
    """

    target: int
    is_running: bool  # false: scheduled; the clean-up runs once the target has failed the health check
    #: orphans of bundles that are not retried (`is_retried`): those that the view had when the clean-up began, without
    #: those already overridden. Orphans of other bundles are looked up in the view (`orphans_left`)
    snapshot: tuple[BundleRecord, ...]


@record
class Broker(NamedTuple):
    """A broker, its view and its pending work."""

    is_up: bool
    is_registered: bool  # in the broker registry
    is_disabled: bool  # the channel is in state Disabled, because the broker shuts down
    session: Session
    view: tuple[Data | None, ...]  # by bundle: the record in the table view of this broker
    is_stale: tuple[bool, ...]  # by bundle: the session was lost after the record was read (metadata store)
    read: int  # number of messages of the log that this broker has read
    tasks: tuple[BundleRecord, ...]  # running handlers: for each of them, the record that it handles
    lookups: tuple[bool, ...]  # by bundle: a lookup is parked (`getOwnerRequests`)
    unloads: tuple[bool, ...]  # by bundle: an unload by this broker is pending (`UnloadManager.inFlightUnloadRequest`)
    clean_ups: tuple[CleanUp, ...]  # `cleanupJobs`, at most one of each target


@record
class State(NamedTuple):
    """The brokers of a cluster, and the records of the channel."""

    leader: int | None  # None: no broker is elected
    leader_knows: bool  # whether the leader knows that it was elected
    #: by bundle: the last accepted record, which is the record in the metadata store, or the record in the view of a
    #: reader that has read every message of the topic
    settled: tuple[Data | None, ...]
    log: tuple[Message, ...]  # the messages of the system topic
    is_split: tuple[bool, ...]  # by bundle: the namespace has the halves in place of the bundle
    brokers: tuple[Broker, ...]


def started(cfg: Config, view: tuple[Data | None, ...], read: int) -> Broker:
    """Returns a registered broker that has just started with this view, and has read `read` messages."""
    no_bundle = (False,) * cfg.bundles
    return Broker(
        is_up=True,
        is_registered=True,
        is_disabled=False,
        session="Stable",
        view=view,
        is_stale=no_bundle,
        read=read,
        tasks=(),
        lookups=no_bundle,
        unloads=no_bundle,
        clean_ups=(),
    )


def down(cfg: Config, *, is_registered: bool) -> Broker:
    """Returns a broker that is down; its registry entry may still exist."""
    return started(cfg, (None,) * cfg.bundles, 0)._replace(is_up=False, is_registered=is_registered)


def start(cfg: Config) -> State:
    """Returns the initial state: all brokers are up, broker 0 is the leader, and no bundle has a record."""
    no_records = (None,) * cfg.bundles
    brokers = (started(cfg, no_records, 0),) * cfg.brokers
    return State(0, True, no_records, (), is_split=(False,) * cfg.bundles, brokers=brokers)


ownership_channel = Machine(
    "ownership_channel",
    Config,
    start,
    source="PIP-192",
    java={
        "ServiceUnitStateChannelImpl": (
            "getOwnerAsync",
            "publishUnloadEventAsync",
            "publishSplitEventAsync",
            "handleAssignEvent",
            "handleReleaseEvent",
            "handleFreeEvent",
            "handleDeleteEvent",
            "handleSplitEvent",
            "handleExisting",
            "handleMetadataSessionEvent",
            "monitorOwnerships",
            "overrideOwnership",
        ),
        "ServiceUnitState": ("isValidTransition",),
        "ServiceUnitStateDataConflictResolver": ("shouldKeepLeft",),
        "TableViewImpl": (),
        "MetadataStoreTableViewImpl": ("handleNotification", "consumeAsyncReload"),
        "ExtensibleLoadManagerImpl": (),
        "UnloadManager": (),
        "BrokerRegistryImpl": (),
        "LeaderElectionImpl": (),
        "PersistentSubscription": (),
    },
)

# ---- bundles and brokers --------------------------------------------------------------------------------


def with_item(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """Returns the items with the item at `index` replaced."""
    return (*items[:index], item, *items[index + 1 :])


def with_broker(s: State, broker: int, **changes: Any) -> State:
    """Returns the state with fields of a broker changed."""
    return s._replace(brokers=with_item(s.brokers, broker, s.brokers[broker]._replace(**changes)))


def is_system(cfg: Config, bundle: int) -> bool:
    """Whether the bundle is in the system namespace."""
    return bundle >= cfg.bundles - cfg.system_bundles


def can_split(cfg: Config, bundle: int) -> bool:
    """Whether the bundle can be split: the config has bundles for both halves (2b + 1 and 2b + 2, for bundle b)."""
    return 2 * bundle + 2 < cfg.bundles


def exists(cfg: Config, s: State, bundle: int) -> bool:
    """Whether the namespace has the bundle: the bundle is not split, and its parent, if it has one, is split.

    A bundle has a parent only if the parent can be split (`can_split`).
    """
    parent = (bundle - 1) // 2
    return not s.is_split[bundle] and (bundle == 0 or not can_split(cfg, parent) or s.is_split[parent])


def is_candidate(s: State, broker: int) -> bool:
    """Whether bundles may be assigned to the broker. Any registered broker is a candidate, also while it shuts down."""
    return s.brokers[broker].is_registered


def actor_of(data: Data) -> int | None:
    """Returns the broker whose handler writes the bundle's next record or removes this record, or None."""
    if data.state == "Assigning":
        return data.dst_broker
    if data.state in IN_FLIGHT or data.state == "Deleted" or (data.state == "Free" and data.force):
        return data.source_broker
    return None


def owner_of(data: Data | None) -> int | None:
    """`ServiceUnitStateChannelImpl.getOwnerNow`: returns the broker that serves a bundle with this record, or None."""
    if data is None:
        return None
    return {"Owned": data.dst_broker, "Splitting": data.source_broker}.get(data.state)


def is_orphan(data: Data | None, target: int) -> bool:
    """`ServiceUnitStateChannelImpl.doCleanup`: whether a clean-up of the target overrides this record."""
    if data is None or data.state not in ACTIVE:
        return False
    return data.dst_broker == target or (data.state in IN_FLIGHT and data.source_broker == target)


# ---- writing and reading --------------------------------------------------------------------------------


def put(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> State:
    """`ServiceUnitStateTableView.put`: returns the state after a broker wrote a record (None: a tombstone).

    The write completes normally even if the record conflicts with the last accepted one. The system topic stores every
    message, and each reader accepts or rejects it. The metadata store does not store a record that conflicts with the
    stored one (with `blind_retry`: with the one in the writer's view), or whose writer has no session. A writer reads
    the record that it has stored at once (`notified`).
    """
    old = s.settled[bundle]
    if cfg.storage == "system_topic":
        settled = s.settled if is_rejected(cfg, old, data) else with_item(s.settled, bundle, data)
        return s._replace(log=(*s.log, Message(bundle, data)), settled=settled)
    if s.brokers[broker].session == "Unstable":
        return s
    existing = old if cfg.metadata_put == "compare_and_set" else s.brokers[broker].view[bundle]
    if is_rejected(cfg, existing, data):
        return s
    return notified(cfg, s._replace(settled=with_item(s.settled, bundle, data)), broker, bundle)


def notified(cfg: Config, s: State, broker: int, bundle: int) -> State:
    """Returns the state after a broker read the stored record: the bundle's record in the view is not stale any more.

    If the view had another record, the stored one replaces it, and the handler of the stored one is called. With
    `blind_retry`, records of one version count as equal (`ServiceUnitStateData.equals` before apache/pulsar#24186).
    """
    at, stored = s.brokers[broker], s.settled[bundle]
    s = with_broker(s, broker, is_stale=with_item(at.is_stale, bundle, False)) if at.is_stale[bundle] else s
    old = at.view[bundle]
    same_version = old is not None and stored is not None and old.version_id == stored.version_id
    if old == stored or (cfg.metadata_put == "blind_retry" and same_version):
        return s
    return applied(cfg, s, broker, bundle, stored)


def offered(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> tuple[State, bool]:
    """Returns the state after a reader of the topic accepted or rejected a record, and whether it was accepted."""
    if is_rejected(cfg, s.brokers[broker].view[bundle], data):
        return s, False
    return applied(cfg, s, broker, bundle, data), True


def applied(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> State:
    """Returns the state after a record was put into a broker's view (None: a tombstone).

    The record's handler is called, and a clean-up that has no orphans left completes.
    """
    at = s.brokers[broker]._replace(view=with_item(s.brokers[broker].view, bundle, data))
    at = handled(cfg, at, broker, bundle, data)
    at = at._replace(clean_ups=unfinished(cfg, at, broker))
    return s._replace(brokers=with_item(s.brokers, broker, at))


def handled(cfg: Config, at: Broker, broker: int, bundle: int, data: Data | None) -> Broker:
    """`ServiceUnitStateChannelImpl.handleEvent`: returns the broker after its handler of a record was called.

    A record that is not in flight completes the bundle's parked lookup. An Owned record with a source, a Free, Deleted
    or Init record, and a tombstone complete the pending unload. If `actor_of` returns this broker, the record's handler
    is running afterwards (`tasks`). In a disabled channel, a tombstone or a record that is not forced ends the parked
    lookup, and has no other effect.
    """
    state = state_of(data)
    if state not in IN_FLIGHT and at.lookups[bundle]:
        at = at._replace(lookups=with_item(at.lookups, bundle, False))
    if at.is_disabled and not (data is not None and data.force):
        return at._replace(lookups=with_item(at.lookups, bundle, False)) if at.lookups[bundle] else at
    is_transferred = data is not None and state == "Owned" and not is_blank(data.source_broker)
    if at.unloads[bundle] and (is_transferred or state in ("Free", "Deleted", "Init")):
        at = at._replace(unloads=with_item(at.unloads, bundle, False))
    if data is not None and actor_of(data) == broker:
        at = at._replace(tasks=(*at.tasks, BundleRecord(bundle, data)))
    return at


def removed(cfg: Config, s: State, broker: int, bundle: int, data: Data) -> State:
    """`ServiceUnitStateChannelImpl.tombstoneAsync`: returns the state after a broker removed a record that it has read.

    `Config.removal` decides what the broker writes: a tombstone, or a forced Init record with the next version.
    """
    init = Data("Init", None, data.source_broker, next_version(data), force=True)
    return put(cfg, s, broker, bundle, init if cfg.removal == "init_record" else None)


# ---- clean-ups ------------------------------------------------------------------------------------------


def is_retried(cfg: Config, bundle: int) -> bool:
    """Whether a clean-up overrides the bundle's records until the view has no orphan of the bundle."""
    return cfg.clean_up_retries == "all" or (cfg.clean_up_retries == "ordinary" and not is_system(cfg, bundle))


def orphans_left(cfg: Config, at: Broker, job: CleanUp) -> tuple[BundleRecord, ...]:
    """Returns the orphans that a clean-up still has to override.

    These are the orphans that the view has now, of bundles that are retried (`is_retried`), and those of the snapshot.
    """
    retried = [
        BundleRecord(bundle, data)
        for bundle, data in enumerate(at.view)
        if data is not None and is_retried(cfg, bundle) and is_orphan(data, job.target)
    ]
    return (*retried, *job.snapshot)


def unfinished(cfg: Config, at: Broker, broker: int) -> tuple[CleanUp, ...]:
    """Returns the clean-ups that are not complete. A broker's clean-up of itself completes when the broker stops."""
    if not at.clean_ups:
        return ()
    return tuple(
        [job for job in at.clean_ups if job.target == broker or not job.is_running or orphans_left(cfg, at, job)]
    )


def clean_up_of(at: Broker, target: int) -> CleanUp | None:
    """Returns the broker's clean-up of a target, or None."""
    return next((job for job in at.clean_ups if job.target == target), None)


def begun(cfg: Config, at: Broker, target: int) -> CleanUp:
    """Returns a clean-up of a target that begins to run. Its snapshot has the orphans that are not retried."""
    snapshot = [
        BundleRecord(bundle, data)
        for bundle, data in enumerate(at.view)
        if data is not None and not is_retried(cfg, bundle) and is_orphan(data, target)
    ]
    return CleanUp(target, True, tuple(snapshot))


# ---- canonical form -------------------------------------------------------------------------------------


@ownership_channel.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Returns the state without the messages that every running broker has read."""
    dropped = min([at.read for at in s.brokers if at.is_up], default=len(s.log))
    if not dropped:
        return s
    brokers = [at._replace(read=at.read - dropped) if at.is_up else at for at in s.brokers]
    return s._replace(log=s.log[dropped:], brokers=tuple(brokers))
