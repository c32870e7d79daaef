"""State of the ownership channel: the stored records, and of each broker its view, handlers, requests and clean-ups.

The system topic is a log that every broker reads at its own pace. The writer appends unconditionally, and each reader
resolves conflicts itself. In the metadata store the writer resolves conflicts against the stored record, and readers
are notified; a reader sees the value at the time of its read, so it can miss records between two reads.
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

#: `MetadataState`: of the session of a broker.
Session = Literal["Stable", "Jittery", "Unstable"]


class Message(NamedTuple):
    """A message of the system topic; without data it is a tombstone."""

    bundle: int
    data: Data | None


class Task(NamedTuple):
    """A bundle and a record of it: a handler that has not written its answer, or a record that a clean-up read."""

    bundle: int
    data: Data


@record
class CleanUp(NamedTuple):
    """A job that moves the bundles of a broker (`doCleanup`)."""

    target: int  # the broker
    is_running: bool  # false until the health check failed
    snapshot: tuple[Task, ...]  # orphans that are overridden once, from the record read at the start


@record
class Broker(NamedTuple):
    """A broker."""

    is_up: bool
    is_registered: bool  # in the broker registry
    is_disabled: bool  # the channel is closed, because the broker shuts down
    session: Session
    view: tuple[Data | None, ...]  # of each bundle, as this broker knows it
    is_stale: tuple[bool, ...]  # of each bundle: the session was lost since the record was read (metadata store)
    read: int  # how many messages of the log it has read
    tasks: tuple[Task, ...]  # handlers that have not written their answer
    lookups: tuple[bool, ...]  # of each bundle: a lookup is parked
    unloads: tuple[bool, ...]  # of each bundle: an unload waits for its end
    clean_ups: tuple[CleanUp, ...]


@record
class State(NamedTuple):
    """A cluster and the channel."""

    leader: int | None
    leader_knows: bool  # whether the leader knows that it is
    settled: tuple[Data | None, ...]  # of each bundle: the stored record, or what a reader of the whole log has
    log: tuple[Message, ...]  # of the system topic
    is_split: tuple[bool, ...]  # of each bundle
    brokers: tuple[Broker, ...]


def started(cfg: Config, view: tuple[Data | None, ...], read: int) -> Broker:
    """A broker that has just started with this view."""
    none = (False,) * cfg.bundles
    return Broker(True, True, False, "Stable", view, none, read, (), none, none, ())


def down(cfg: Config, *, is_registered: bool) -> Broker:
    """A broker that is down; its registry entry may still exist."""
    return started(cfg, (None,) * cfg.bundles, 0)._replace(is_up=False, is_registered=is_registered)


def start(cfg: Config) -> State:
    """All brokers are up, broker 0 is the leader, and no bundle has a record."""
    none = (None,) * cfg.bundles
    return State(0, True, none, (), (False,) * cfg.bundles, (started(cfg, none, 0),) * cfg.brokers)


ownership_channel = Machine("ownership_channel", Config, start, source="PIP-192")

# ---- small rules ----------------------------------------------------------------------------------------


def with_item(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """The items with one replaced."""
    return (*items[:index], item, *items[index + 1 :])


def with_broker(s: State, broker: int, **changes: Any) -> State:
    """The state with a broker changed."""
    return s._replace(brokers=with_item(s.brokers, broker, s.brokers[broker]._replace(**changes)))


def is_system(cfg: Config, bundle: int) -> bool:
    """Whether the bundle is of the system namespace."""
    return bundle >= cfg.bundles - cfg.system_bundles


def can_split(cfg: Config, bundle: int) -> bool:
    """Whether the bundle has halves."""
    return 2 * bundle + 2 < cfg.bundles


def exists(cfg: Config, s: State, bundle: int) -> bool:
    """Whether the namespace has the bundle: it is not split, and the bundle of which it is a half is."""
    parent = (bundle - 1) // 2
    return not s.is_split[bundle] and (bundle == 0 or not can_split(cfg, parent) or s.is_split[parent])


def is_candidate(s: State, broker: int) -> bool:
    """Whether bundles may be assigned to the broker: it is registered."""
    return s.brokers[broker].is_registered


def actor_of(data: Data) -> int | None:
    """The broker that has to act on a record."""
    if data.state == "Assigning":
        return data.dst_broker
    if data.state in IN_FLIGHT or data.state == "Deleted" or (data.state == "Free" and data.force):
        return data.source_broker
    return None


def owner_of(data: Data | None) -> int | None:
    """The broker that serves a bundle with this record."""
    if data is None:
        return None
    return {"Owned": data.dst_broker, "Splitting": data.source_broker}.get(data.state)


def is_orphan(cfg: Config, data: Data | None, broker: int) -> bool:
    """Whether a bundle with this record has to be moved when the broker is gone."""
    if data is None or data.state not in ACTIVE:
        return False
    of_source = data.state in IN_FLIGHT or cfg.source_of_owned_is_orphan
    return data.dst_broker == broker or (of_source and data.source_broker == broker)


# ---- writing and reading --------------------------------------------------------------------------------


def put(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> State:
    """Writes a record. A record that conflicts is rejected later, or silently: the writer learns of no conflict.

    Without a session nothing is written to the metadata store.
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
    """A broker reads the stored record; its handler is called if the record differs from its view."""
    at, stored = s.brokers[broker], s.settled[bundle]
    s = with_broker(s, broker, is_stale=with_item(at.is_stale, bundle, False)) if at.is_stale[bundle] else s
    old = at.view[bundle]
    same_version = old is not None and stored is not None and old.version_id == stored.version_id
    if old == stored or (cfg.metadata_put == "blind_retry" and same_version):
        return s
    return applied(cfg, s, broker, bundle, stored)


def offered(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> tuple[State, bool]:
    """A reader of the topic takes a record, or rejects it. Returns whether it took it."""
    if is_rejected(cfg, s.brokers[broker].view[bundle], data):
        return s, False
    return applied(cfg, s, broker, bundle, data), True


def applied(cfg: Config, s: State, broker: int, bundle: int, data: Data | None) -> State:
    """A broker's view takes a record, and its handler begins (`handleEvent`).

    Clean-ups of other brokers end when the view names their broker no more.
    """
    at = s.brokers[broker]._replace(view=with_item(s.brokers[broker].view, bundle, data))
    at = handled(cfg, at, broker, bundle, data)
    at = at._replace(clean_ups=unfinished(cfg, at, broker))
    return s._replace(brokers=with_item(s.brokers, broker, at))


def handled(cfg: Config, at: Broker, broker: int, bundle: int, data: Data | None) -> Broker:
    """The handler of a record: it ends requests that waited for the record, or begins a task.

    A disabled channel ignores a record that is not forced; the lookup that waits fails.
    """
    state = state_of(data)
    if state not in ("Assigning", "Releasing", "Splitting") and at.lookups[bundle]:
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
    """Removes the record that the broker saw: by a forced Init record, or by a tombstone, which has no version."""
    init = Data("Init", None, data.source_broker, next_version(data), force=True)
    return put(cfg, s, broker, bundle, init if cfg.removal == "init_record" else None)


# ---- clean-ups ------------------------------------------------------------------------------------------


def reads_again(cfg: Config, bundle: int) -> bool:
    """Whether a clean-up retries the bundle until its record no longer names the broker."""
    return cfg.clean_up_retries == "all" or (cfg.clean_up_retries == "ordinary" and not is_system(cfg, bundle))


def orphans_left(cfg: Config, at: Broker, job: CleanUp) -> tuple[Task, ...]:
    """The bundles that a clean-up has still to override, each with the record that it acts on."""
    again = [
        Task(bundle, data)
        for bundle, data in enumerate(at.view)
        if data is not None and reads_again(cfg, bundle) and is_orphan(cfg, data, job.target)
    ]
    return (*again, *job.snapshot)


def unfinished(cfg: Config, at: Broker, broker: int) -> tuple[CleanUp, ...]:
    """The clean-ups that go on; that of a broker that shuts down ends when the broker stops."""
    if not at.clean_ups:
        return ()
    return tuple(
        [job for job in at.clean_ups if job.target == broker or not job.is_running or orphans_left(cfg, at, job)]
    )


def clean_up_of(at: Broker, target: int) -> CleanUp | None:
    """The broker's clean-up of a target."""
    return next((job for job in at.clean_ups if job.target == target), None)


def begun(cfg: Config, at: Broker, target: int) -> CleanUp:
    """A running clean-up of a target: bundles that are not read again are in the snapshot."""
    snapshot = [
        Task(bundle, data)
        for bundle, data in enumerate(at.view)
        if data is not None and not reads_again(cfg, bundle) and is_orphan(cfg, data, target)
    ]
    return CleanUp(target, True, tuple(snapshot))


# ---- canonical form -------------------------------------------------------------------------------------


@ownership_channel.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Messages that every running broker has read are dropped."""
    dropped = min([at.read for at in s.brokers if at.is_up], default=len(s.log))
    if not dropped:
        return s
    brokers = [at._replace(read=at.read - dropped) if at.is_up else at for at in s.brokers]
    return s._replace(log=s.log[dropped:], brokers=tuple(brokers))
