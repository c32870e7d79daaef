"""State of the ownership channel: the stored records, and of each broker its view, handlers, requests and clean-ups.

The system topic is a log that every broker reads at its own pace. A writer appends unconditionally, and each reader
resolves conflicts itself. In the metadata store, the writer resolves a conflict with the stored record, and readers are
notified. A reader gets the value at the time of its read, so it can miss records between two reads.
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

#: A broker's session with the metadata store (`ServiceUnitStateChannelImpl.MetadataState`).
Session = Literal["Stable", "Jittery", "Unstable"]


class Message(NamedTuple):
    """A message of the system topic. A message without data is a tombstone."""

    bundle: int
    data: Data | None


class Task(NamedTuple):
    """A bundle and a record of it: the one that a running handler handles, or the one that a clean-up overrides."""

    bundle: int
    data: Data


@record
class CleanUp(NamedTuple):
    """`ServiceUnitStateChannelImpl.doCleanup`: moves the bundles of one broker, the target, to other brokers."""

    target: int
    is_running: bool  # false until the health check failed
    #: the orphans at the start of the clean-up that it does not retry, and has not overridden yet
    snapshot: tuple[Task, ...]


@record
class Broker(NamedTuple):
    """A broker, its view and its pending work."""

    is_up: bool
    is_registered: bool  # in the broker registry
    is_disabled: bool  # the channel is closed, because the broker shuts down
    session: Session
    view: tuple[Data | None, ...]  # by bundle: the record in the table view of this broker
    is_stale: tuple[bool, ...]  # by bundle: the session was lost after the record was read (metadata store)
    read: int  # number of messages of the log that this broker has read
    tasks: tuple[Task, ...]  # running handlers
    lookups: tuple[bool, ...]  # by bundle: a lookup is parked (`getOwnerRequests`)
    unloads: tuple[bool, ...]  # by bundle: an unload is pending (`UnloadManager.inFlightUnloadRequest`)
    clean_ups: tuple[CleanUp, ...]


@record
class State(NamedTuple):
    """The brokers of a cluster, and the records of the channel."""

    leader: int | None
    leader_knows: bool  # whether the leader knows that it was elected
    #: by bundle: the last accepted record: the one in the metadata store, or that a reader of the whole topic keeps
    settled: tuple[Data | None, ...]
    log: tuple[Message, ...]  # the messages of the system topic
    is_split: tuple[bool, ...]  # by bundle
    brokers: tuple[Broker, ...]


def started(cfg: Config, view: tuple[Data | None, ...], read: int) -> Broker:
    """Returns a broker that has started with this view."""
    none = (False,) * cfg.bundles
    return Broker(True, True, False, "Stable", view, none, read, (), none, none, ())


def down(cfg: Config, *, is_registered: bool) -> Broker:
    """Returns a broker that is down; its registry entry may still exist."""
    return started(cfg, (None,) * cfg.bundles, 0)._replace(is_up=False, is_registered=is_registered)


def start(cfg: Config) -> State:
    """Returns the initial state: all brokers are up, broker 0 is the leader, and no bundle has a record."""
    none = (None,) * cfg.bundles
    return State(0, True, none, (), (False,) * cfg.bundles, (started(cfg, none, 0),) * cfg.brokers)


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

# ---- small rules ----------------------------------------------------------------------------------------


def with_item(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """Returns the items with the one at `index` replaced."""
    return (*items[:index], item, *items[index + 1 :])


def with_broker(s: State, broker: int, **changes: Any) -> State:
    """Returns the state with fields of a broker changed."""
    return s._replace(brokers=with_item(s.brokers, broker, s.brokers[broker]._replace(**changes)))


def is_system(cfg: Config, bundle: int) -> bool:
    """Whether the bundle is in the system namespace."""
    return bundle >= cfg.bundles - cfg.system_bundles


def can_split(cfg: Config, bundle: int) -> bool:
    """Whether the bundle has halves."""
    return 2 * bundle + 2 < cfg.bundles


def exists(cfg: Config, s: State, bundle: int) -> bool:
    """Whether the namespace has the bundle: the bundle is not split, and its parent, if it has one, is split."""
    parent = (bundle - 1) // 2
    return not s.is_split[bundle] and (bundle == 0 or not can_split(cfg, parent) or s.is_split[parent])


def is_candidate(s: State, broker: int) -> bool:
    """Whether bundles may be assigned to the broker: it is registered."""
    return s.brokers[broker].is_registered


def actor_of(data: Data) -> int | None:
    """Returns the broker that has to act on a record: to write the bundle's next record, or to remove this one."""
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


def is_orphan(cfg: Config, data: Data | None, broker: int) -> bool:
    """`ServiceUnitStateChannelImpl.doCleanup`: whether a clean-up of the broker overrides this record."""
    if data is None or data.state not in ACTIVE:
        return False
    of_source = data.state in IN_FLIGHT or cfg.source_of_owned_is_orphan
    return data.dst_broker == broker or (of_source and data.source_broker == broker)


# ---- writing and reading --------------------------------------------------------------------------------


def put(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> State:
    """`ServiceUnitStateTableView.put`: writes a record. It completes normally, also if the record conflicts.

    The system topic has the conflicting message, and readers reject it. The metadata store does not store a conflicting
    record, and nothing from a broker without session.
    """
    old = s.settled[bundle]
    if cfg.storage == "system_topic":
        settled = s.settled if is_rejected(cfg, old, data) else with_item(s.settled, bundle, data)
        return s._replace(log=(*s.log, Message(bundle, data)), settled=settled)
    if s.brokers[broker].session == "Unstable":
        return s
    decided_on = old if cfg.metadata_put == "compare_and_set" else s.brokers[broker].view[bundle]
    if is_rejected(cfg, decided_on, data):
        return s
    return notified(cfg, s._replace(settled=with_item(s.settled, bundle, data)), broker, bundle)


def notified(cfg: Config, s: State, broker: int, bundle: int) -> State:
    """Returns the state after a broker read the stored record. If its view had another one, the handler is called.

    With `blind_retry`, records are compared by version only (`ServiceUnitStateData.equals` before apache/pulsar#24186).
    """
    at, stored = s.brokers[broker], s.settled[bundle]
    s = with_broker(s, broker, is_stale=with_item(at.is_stale, bundle, False)) if at.is_stale[bundle] else s
    old = at.view[bundle]
    same_version = old is not None and stored is not None and old.version_id == stored.version_id
    if old == stored or (cfg.metadata_put == "blind_retry" and same_version):
        return s
    return applied(cfg, s, broker, bundle, stored)


def offered(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> tuple[State, bool]:
    """Returns the state after a reader of the topic accepted or rejected a record, and whether it accepted it."""
    if is_rejected(cfg, s.brokers[broker].view[bundle], data):
        return s, False
    return applied(cfg, s, broker, bundle, data), True


def applied(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> State:
    """Puts a record into a broker's view and calls the handler. A clean-up without orphans in the view completes."""
    at = s.brokers[broker]._replace(view=with_item(s.brokers[broker].view, bundle, data))
    at = handled(cfg, at, broker, bundle, data)
    at = at._replace(clean_ups=unfinished(cfg, at, broker))
    return s._replace(brokers=with_item(s.brokers, broker, at))


def handled(cfg: Config, at: Broker, broker: int, bundle: int, data: Data | None) -> Broker:
    """`ServiceUnitStateChannelImpl.handleEvent`: completes requests, and begins a task if this broker has to act.

    In a disabled channel, a record that is not forced only fails the parked lookup.
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
        at = at._replace(tasks=(*at.tasks, Task(bundle, data)))
    return at


def removed(cfg: Config, s: State, broker: int, bundle: int, data: Data) -> State:
    """`ServiceUnitStateChannelImpl.tombstoneAsync`: removes a record that the broker has read.

    The reference writes a forced Init record in place of the tombstone, which has no version.
    """
    init = Data("Init", None, data.source_broker, next_version(data), force=True)
    return put(cfg, s, broker, bundle, init if cfg.removal == "init_record" else None)


# ---- clean-ups ------------------------------------------------------------------------------------------


def is_retried(cfg: Config, bundle: int) -> bool:
    """Whether a clean-up retries the bundle until its record no longer names the target."""
    return cfg.clean_up_retries == "all" or (cfg.clean_up_retries == "ordinary" and not is_system(cfg, bundle))


def orphans_left(cfg: Config, at: Broker, job: CleanUp) -> tuple[Task, ...]:
    """Returns the orphans that a clean-up has not overridden yet, with their records."""
    again = [
        Task(bundle, data)
        for bundle, data in enumerate(at.view)
        if data is not None and is_retried(cfg, bundle) and is_orphan(cfg, data, job.target)
    ]
    return (*again, *job.snapshot)


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
    """Returns a running clean-up of a target. Its snapshot has the orphans that are not retried."""
    snapshot = [
        Task(bundle, data)
        for bundle, data in enumerate(at.view)
        if data is not None and not is_retried(cfg, bundle) and is_orphan(cfg, data, target)
    ]
    return CleanUp(target, True, tuple(snapshot))


# ---- canonical form -------------------------------------------------------------------------------------


@ownership_channel.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Drops the messages that every running broker has read."""
    dropped = min([at.read for at in s.brokers if at.is_up], default=len(s.log))
    if not dropped:
        return s
    brokers = [at._replace(read=at.read - dropped) if at.is_up else at for at in s.brokers]
    return s._replace(log=s.log[dropped:], brokers=tuple(brokers))
