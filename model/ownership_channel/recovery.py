"""Recovery of the ownership channel: sessions, the leader, its monitor, clean-ups and shutdown (PIP-192).

Models `LeaderElectionImpl`, and these parts of `ServiceUnitStateChannelImpl`:

deletion    the registry entry of a broker is deleted, and the leader schedules a clean-up of this broker
clean-up    a broker checks the health of another broker, the target. If the check fails, the broker overrides each
            orphan: a record by which the target owns a bundle, or takes part in an assignment, transfer or split. The
            override names another broker, or frees the bundle if no other broker is registered
monitor     the leader schedules clean-ups of unregistered brokers that its view names, overrides records that have been
            in flight for too long, and removes old Free and Deleted records
shutdown    a broker disables its channel, runs a clean-up of itself without a health check, and stops

Simplifications, under every profile:
  * When a broker registers, all other brokers cancel their clean-ups of this broker. `handleBrokerCreationEvent` first
    checks the broker's health, and cancels only a clean-up that has not started to run.
  * One run of the monitor schedules clean-ups of both brokers of a record. `monitorOwnerships` schedules the clean-up
    of the source, and in its next run the clean-up of the destination.
  * A clean-up begins even if no broker is elected leader. `doCleanup` skips it then, also at shutdown.
  * Except for rules of `Config`, clean-ups and overrides are the same in every version. Before apache/pulsar#23064, a
    clean-up did not check the health of its target, the target became the source in each override but that of a
    Splitting record, and the monitor returned a stuck Releasing bundle to its source.
"""

from __future__ import annotations

from model.machine import Step, refused
from model.ownership_channel.records import IN_FLIGHT, SEMI_TERMINAL, Config, Data, is_blank, next_version
from model.ownership_channel.requests import BrokerNumber, Bundle
from model.ownership_channel.state import (
    BundleRecord,
    CleanUp,
    State,
    actor_of,
    begun,
    clean_up_of,
    down,
    is_candidate,
    is_system,
    orphans_left,
    ownership_channel,
    put,
    removed,
    started,
    unfinished,
    with_broker,
    with_item,
)

# ---- brokers and sessions -------------------------------------------------------------------------------


def deregistered(s: State, broker: int) -> State:
    """`handleBrokerDeletionEvent`: returns the state after a broker's registry entry was deleted.

    The leader schedules a clean-up of the broker if the leader is another broker, knows that it leads, and has a
    session.
    """
    s = with_broker(s, broker, is_registered=False)
    leader = acting_leader(s)
    if leader is None or leader == broker or s.brokers[leader].session == "Unstable":
        return s
    return scheduled(s, leader, broker)


def without_clean_ups_of(s: State, broker: int) -> State:
    """`handleBrokerCreationEvent`: returns the state after the other brokers cancelled their clean-ups of a broker."""
    for number, other in enumerate(s.brokers):
        if number != broker and clean_up_of(other, broker) is not None:
            s = with_broker(s, number, clean_ups=tuple([job for job in other.clean_ups if job.target != broker]))
    return s


def scheduled(s: State, broker: int, target: int) -> State:
    """`scheduleCleanup`: returns the state after a broker scheduled a clean-up of a target.

    A broker has at most one clean-up of each target.
    """
    at = s.brokers[broker]
    if clean_up_of(at, target) is not None:
        return s
    return with_broker(s, broker, clean_ups=(*at.clean_ups, CleanUp(target, False, ())))


def stopped(cfg: Config, s: State, broker: int) -> State:
    """Returns the state after a broker stopped: its view, handlers, requests, clean-ups and leadership are lost."""
    at = down(cfg, is_registered=s.brokers[broker].is_registered)
    if s.leader == broker:
        s = s._replace(leader=None, leader_knows=False)
    return s._replace(brokers=with_item(s.brokers, broker, at))


@ownership_channel.fault
def crash(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """A broker crashes. If it is registered, its registry entry stays until its session expires (`expire`)."""
    if not s.brokers[broker].is_up:
        return refused(s, "not_enabled", "the broker is down")
    return stopped(cfg, s, broker), None


@ownership_channel.action
def restart(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.handleExisting`: a broker starts, registers, reads all records, and begins handlers.

    A handler begins for each record on which the broker has to act (`actor_of`), if `Config.restart_resumes` allows the
    record's state. Returns the number of handlers that begin.
    """
    if s.brokers[broker].is_up:
        return refused(s, "not_enabled", "the broker is up")
    resumed = {"in_flight": IN_FLIGHT, "assigning": {"Assigning"}, "nothing": ()}[cfg.restart_resumes]
    tasks = [
        BundleRecord(bundle, data)
        for bundle, data in enumerate(s.settled)
        if data is not None and data.state in resumed and actor_of(data) == broker
    ]
    at = started(cfg, s.settled, len(s.log))._replace(tasks=tuple(tasks))
    return without_clean_ups_of(s._replace(brokers=with_item(s.brokers, broker, at)), broker), len(tasks)


@ownership_channel.action
def expire(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.handleBrokerDeletionEvent`: the session of a crashed broker expires."""
    at = s.brokers[broker]
    if at.is_up or not at.is_registered:
        return refused(s, "not_enabled", "the broker is up, or is not registered")
    return deregistered(s, broker), None


@ownership_channel.fault
def lose_session(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.handleMetadataSessionEvent`, SessionLost: the session of a running broker expires.

    The broker's registry entry is deleted. If records are in the metadata store, all records in the broker's view
    become stale. Under the policy `shutdown` the broker stops.
    """
    at = s.brokers[broker]
    if not at.is_up or at.session == "Unstable":
        return refused(s, "not_enabled", "the broker has no session")
    if cfg.session_expired_policy == "shutdown":
        return deregistered(stopped(cfg, s, broker), broker), None
    is_stale = cfg.storage == "metadata_store"
    s = with_broker(s, broker, session="Unstable", is_stale=(is_stale,) * cfg.bundles)
    return deregistered(s, broker), None


@ownership_channel.action
def reconnect(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.handleMetadataSessionEvent`, SessionReestablished: a broker gets a new session.

    A broker that is not shutting down registers again (`BrokerRegistryImpl.registerAsync`).
    """
    at = s.brokers[broker]
    if not at.is_up or at.session != "Unstable":
        return refused(s, "not_enabled", "the broker has a session")
    s = with_broker(s, broker, session="Jittery", is_registered=not at.is_disabled)
    return (s if at.is_disabled else without_clean_ups_of(s, broker)), None


@ownership_channel.action
def stabilize(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.getMetadataState`: a new session is stable after `maxCleanupDelayTimeInSecs`."""
    if s.brokers[broker].session != "Jittery":
        return refused(s, "not_enabled", "the session is not new")
    return with_broker(s, broker, session="Stable"), None


# ---- the leader -----------------------------------------------------------------------------------------


def acting_leader(s: State) -> int | None:
    """Returns the leader if it knows that it was elected, else None."""
    return s.leader if s.leader_knows else None


def monitoring_leader(s: State) -> int | None:
    """Returns the leader if it can run the monitor: it knows that it was elected, and its session is Stable."""
    leader = acting_leader(s)
    return None if leader is None or s.brokers[leader].session != "Stable" else leader


def elected(s: State, broker: int, *, knows: bool) -> Step[State, None]:
    """Returns the step in which a broker is elected leader. Refused while there is a registered leader.

    Only a running registered broker that is not shutting down can be elected. `knows`: whether the broker learns of its
    election.
    """
    at = s.brokers[broker]
    if s.leader is not None and s.brokers[s.leader].is_registered:
        return refused(s, "not_enabled", "there is a leader")
    if not at.is_up or not at.is_registered or at.is_disabled:
        return refused(s, "not_enabled", "the broker cannot be elected")
    return s._replace(leader=broker, leader_knows=knows), None


@ownership_channel.action
def elect(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`LeaderElectionImpl.elect`: a broker is elected leader."""
    return elected(s, broker, knows=True)


@ownership_channel.fault
def elect_unnoticed(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`LeaderElectionImpl.elect`: a broker is elected leader, and does not learn of its election.

    The broker was disconnected from the metadata store for a while, and its session did not expire.
    """
    return elected(s, broker, knows=False)


@ownership_channel.action
def recheck_election(cfg: Config, s: State) -> Step[State, None]:
    """`LeaderElectionImpl.elect`: the leader reconnects, reads the election node, and learns that it was elected."""
    if s.leader is None or s.leader_knows or not cfg.election_is_rechecked:
        return refused(s, "not_enabled", "the leader knows of its election, or never checks it")
    return s._replace(leader_knows=True), None


@ownership_channel.action
def monitor(cfg: Config, s: State) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.monitorOwnerships`: the leader schedules clean-ups of unregistered brokers.

    Each of these brokers is the destination of an Owned record, or the source or destination of a record in flight;
    with `monitor_requires_source_of_owned`, also the source of an Owned record. Returns the number of scheduled
    clean-ups.
    """
    leader = monitoring_leader(s)
    if leader is None:
        return refused(s, "not_enabled", "no leader with a stable session")
    count = 0
    for data in s.brokers[leader].view:
        for target in needed_by(cfg, data):
            if not s.brokers[target].is_registered and clean_up_of(s.brokers[leader], target) is None:
                s, count = scheduled(s, leader, target), count + 1
    return s, count


def needed_by(cfg: Config, data: Data | None) -> list[int]:
    """Returns the brokers of a record that the monitor requires to be registered."""
    if data is None or data.state in ("Init", "Free", "Deleted"):
        return []
    is_source_needed = data.state in IN_FLIGHT or cfg.monitor_requires_source_of_owned
    named = [data.dst_broker, data.source_broker if is_source_needed else None]
    return [broker for broker in named if broker is not None and not is_blank(broker)]


@ownership_channel.action
def override_stuck(cfg: Config, s: State, bundle: Bundle, dst: BrokerNumber) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.monitorOwnerships`: overrides a record that has been in flight for too long.

    Refused unless all brokers that the record names are registered; with `monitor_requires_source_of_owned`, all
    brokers that any record requires. `dst` may be any registered broker, also one that the record names. Returns the
    version of the override.
    """
    leader = monitoring_leader(s)
    data = None if leader is None else s.brokers[leader].view[bundle]
    if leader is None or data is None or data.state not in IN_FLIGHT:
        return refused(s, "not_enabled", "no leader with a stable session has the bundle in flight")
    records = s.brokers[leader].view if cfg.monitor_requires_source_of_owned else (data,)
    needed = [broker for record in records for broker in needed_by(cfg, record)]
    if not all(s.brokers[each].is_registered for each in needed) or not is_candidate(s, dst):
        return refused(s, "not_enabled", "a broker of the record or the destination is not registered")
    new = replacement(data, None, dst, is_graceful=False)
    return put(cfg, s, leader, bundle, new), new.version_id


@ownership_channel.action
def remove_old(cfg: Config, s: State, bundle: Bundle) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.monitorOwnerships`: removes an old record if `Config.monitor_removes` allows it."""
    leader = monitoring_leader(s)
    data = None if leader is None else s.brokers[leader].view[bundle]
    if leader is None or data is None or data.state == "Init":
        return refused(s, "not_enabled", "no leader with a stable session has a record")
    if data.state not in SEMI_TERMINAL and cfg.monitor_removes == "semi_terminal":
        return refused(s, "illegal_state", "the record is not semi-terminal")
    return removed(cfg, s, leader, bundle, data), None


# ---- clean-ups ------------------------------------------------------------------------------------------


def replacement(data: Data, target: int | None, dst: int | None, *, is_graceful: bool) -> Data:
    """`overrideOwnership`: returns the record that overrides an orphan of a target, or a stuck record (target None).

    Without `dst` the returned record is Free. A Splitting record stays Splitting, and `dst` continues the split as
    source. With `is_graceful` (the clean-up runs at the target), an orphan that is Owned becomes Releasing, and the
    target closes the bundle's topics. Any other record becomes Owned by `dst`.
    """
    version = next_version(data)
    # an Owned record is overridden only by a clean-up, so `target` is not None then
    source = data.source_broker if data.state in IN_FLIGHT else target
    if dst is None:
        return Data("Free", None, source, version, force=True)
    if data.state == "Splitting":
        return Data("Splitting", data.dst_broker, dst, version, force=True)
    if data.state == "Owned" and is_graceful:
        return Data("Releasing", dst, target, version, force=True)
    return Data("Owned", dst, None if dst == source else source, version, force=True)


@ownership_channel.action
def start_clean_up(
    cfg: Config, s: State, broker: BrokerNumber, target: BrokerNumber, healthy: bool
) -> Step[State, bool]:
    """`ServiceUnitStateChannelImpl.doCleanup`: a scheduled clean-up begins if its target fails the health check.

    `healthy`: the target passes the check, and the clean-up is cancelled. The check of a running target may fail.
    Returns whether the clean-up begins.
    """
    at = s.brokers[broker]
    job = clean_up_of(at, target)
    if job is None or job.is_running or (healthy and not s.brokers[target].is_up):
        return refused(
            s, "not_enabled", "no clean-up of the target is scheduled, or the target is down, so not healthy"
        )
    others = tuple([each for each in at.clean_ups if each is not job])
    if healthy:
        return with_broker(s, broker, clean_ups=others), False
    at = at._replace(clean_ups=(*others, begun(cfg, at, target)))
    return with_broker(s, broker, clean_ups=unfinished(cfg, at, broker)), True


@ownership_channel.action
def override(
    cfg: Config, s: State, broker: BrokerNumber, target: BrokerNumber, bundle: Bundle, dst: BrokerNumber | None
) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.overrideOwnership`: a clean-up overrides an orphan.

    Bundles of the system namespace come last. `dst` is a registered broker other than the target; None if there is no
    such broker. Returns the version of the override.
    """
    at = s.brokers[broker]
    job = clean_up_of(at, target)
    left = () if job is None or not job.is_running else orphans_left(cfg, at, job)
    orphan = next((each for each in left if each.bundle == bundle), None)
    if job is None or orphan is None:
        return refused(s, "not_enabled", "the bundle is no orphan of a clean-up that runs")
    if is_system(cfg, bundle) and not all(is_system(cfg, each.bundle) for each in left):
        return refused(s, "not_enabled", "ordinary bundles come first")
    others: list[int | None] = [each for each in range(cfg.brokers) if each != target and is_candidate(s, each)]
    if dst not in (others or [None]):
        return refused(s, "not_enabled", "the destination must be another registered broker; None if there is none")
    rest = job._replace(snapshot=tuple([each for each in job.snapshot if each is not orphan]))
    at = at._replace(clean_ups=tuple([rest if each is job else each for each in at.clean_ups]))
    s = with_broker(s, broker, clean_ups=unfinished(cfg, at, broker))
    new = replacement(orphan.data, target, dst, is_graceful=broker == target)
    return put(cfg, s, broker, bundle, new), new.version_id


# ---- shutdown -------------------------------------------------------------------------------------------


@ownership_channel.action
def disable(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.cleanOwnerships`: a broker that shuts down disables its channel.

    The broker resigns as leader, cancels its clean-ups of other brokers, and begins a clean-up of itself.
    """
    at = s.brokers[broker]
    if not at.is_up or at.is_disabled:
        return refused(s, "not_enabled", "the broker is down or shuts down")
    if s.leader == broker:
        s = s._replace(leader=None, leader_knows=False)
    return with_broker(s, broker, is_disabled=True, clean_ups=(begun(cfg, at, broker),)), None


@ownership_channel.action
def stop(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ExtensibleLoadManagerImpl.disableBroker`: the broker stops when its clean-up of itself has no orphan left."""
    at = s.brokers[broker]
    job = clean_up_of(at, broker)
    if job is None or orphans_left(cfg, at, job):
        return refused(s, "not_enabled", "the broker does not shut down, or its clean-up is not done")
    return deregistered(stopped(cfg, s, broker), broker), None
