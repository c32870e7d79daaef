"""Actions of the ownership channel: requests, reads of records, and handlers; see `machine.py`."""

from __future__ import annotations

from typing import Annotated

from model.machine import Failed, Step, refused
from model.ownership_channel.records import (
    IN_FLIGHT,
    VERSION_ID_INIT,
    Config,
    Data,
    next_version,
)
from model.ownership_channel.state import (
    State,
    can_split,
    exists,
    is_candidate,
    notified,
    offered,
    owner_of,
    ownership_channel,
    put,
    removed,
    with_broker,
    with_item,
)
from model.values import AtLeast, Below

BrokerNumber = Annotated[int, Below("brokers")]
Bundle = Annotated[int, Below("bundles")]
Index = Annotated[int, AtLeast(0)]

# ---- requests -------------------------------------------------------------------------------------------


@ownership_channel.action
def lookup(cfg: Config, s: State, broker: BrokerNumber, bundle: Bundle, dst: BrokerNumber) -> Step[State, int | None]:
    """`ServiceUnitStateChannelImpl.getOwnerAsync`: looks up the owner of a bundle in a broker's view.

    owner                    the broker answers with the owner, or parks the lookup if the owner is not registered
    in flight to a broker    the destination parks the lookup; every other broker answers with the destination
    neither                  the broker assigns the bundle to `dst` (`publishAssignEventAsync`) and parks the lookup.
                             The Assigning record is rejected if the bundle is Releasing without destination. If a
                             lookup of the bundle is parked already, the broker writes no further Assigning record

    `Config.lookup_at_source` and `Config.unregistered_broker_parks` change the first two cases. Fails if the record in
    the view is Deleted, or if a disabled channel has to assign the bundle. Returns the broker to which the client is
    redirected, or None if the lookup is parked (`getOwnerRequests`).
    """
    at = s.brokers[broker]
    if not at.is_up:
        return refused(s, "not_enabled", "the broker is down")
    if not exists(cfg, s, bundle):
        return refused(s, "illegal_argument", "the namespace does not have the bundle")
    data = at.view[bundle]
    parked = with_broker(s, broker, lookups=with_item(at.lookups, bundle, True)) if not at.lookups[bundle] else s
    if data is not None and data.state == "Deleted":
        return s, Failed("illegal_argument", "the bundle was split")
    owner = owner_of(data)
    trusts_view = not at.is_registered and not cfg.unregistered_broker_parks
    if owner is not None:
        return (s, owner) if s.brokers[owner].is_registered or trusts_view else (parked, None)
    if data is not None and data.state in IN_FLIGHT and data.dst_broker is not None:
        parks = data.dst_broker == broker or (cfg.lookup_at_source == "parked" and data.source_broker == broker)
        return (parked, None) if parks and not trusts_view else (s, data.dst_broker)
    if at.lookups[bundle]:
        return s, None
    if at.is_disabled and not cfg.disabled_channel_assigns:
        return s, Failed("not_ready", "the channel is disabled")
    if not is_candidate(s, dst):
        return refused(s, "not_enabled", "the destination is not registered")
    return put(cfg, parked, broker, bundle, Data("Assigning", dst, None, next_version(data))), None


@ownership_channel.action
def time_out_lookup(cfg: Config, s: State, broker: BrokerNumber, bundle: Bundle) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.deferGetOwner`: a parked lookup times out. Returns the owner in the view.

    Fails if the view has no owner, or if the record is stale and `Config.stale_view_answers` is false. In Pulsar, the
    lookup of a bundle that is Init or Free completes without owner, and the caller `getActiveOwnerAsync` checks that an
    owner is registered; the model leaves out both.
    """
    at = s.brokers[broker]
    if not at.lookups[bundle]:
        return refused(s, "not_enabled", "no lookup is parked")
    s = with_broker(s, broker, lookups=with_item(at.lookups, bundle, False))
    owner = owner_of(at.view[bundle])
    if owner is None or (at.is_stale[bundle] and not cfg.stale_view_answers):
        return s, Failed("not_ready", "the bundle has no known owner")
    return s, owner


@ownership_channel.action
def unload(
    cfg: Config, s: State, broker: BrokerNumber, bundle: Bundle, dst: BrokerNumber | None, force: bool
) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.publishUnloadEventAsync`: a broker writes Releasing for an Owned bundle.

    Any broker may write the record. The unload is then pending at this broker. The bundle is transferred to `dst`, or
    freed if `dst` is None. With `force` the bundle is being deleted: the source also removes the bundle's record. With
    `transfer_order` "assigning_first", a transfer begins with Assigning in place of Releasing. The checks are those of
    `ExtensibleLoadManagerImpl.unloadNamespaceBundleAsync`. Returns the version of the record.
    """
    at = s.brokers[broker]
    data = at.view[bundle]
    if not at.is_up or at.is_disabled:
        return refused(s, "not_enabled", "the channel is not started")
    if data is None or data.state != "Owned":
        return refused(s, "illegal_state", "the bundle is not owned")
    if dst is not None and (force or dst == data.dst_broker or not is_candidate(s, dst)):
        return refused(s, "illegal_argument", "dst must be another registered broker, and null with force")
    s = with_broker(s, broker, unloads=with_item(at.unloads, bundle, True))
    new = Data("Releasing", dst, data.dst_broker, next_version(data), force)
    if cfg.transfer_order == "assigning_first" and dst is not None:
        new = new._replace(state="Assigning")
    return put(cfg, s, broker, bundle, new), new.version_id


@ownership_channel.action
def time_out_unload(cfg: Config, s: State, broker: BrokerNumber, bundle: Bundle) -> Step[State, None]:
    """`UnloadManager.waitAsync`: a pending unload times out."""
    if not s.brokers[broker].unloads[bundle]:
        return refused(s, "not_enabled", "no unload is pending")
    return with_broker(s, broker, unloads=with_item(s.brokers[broker].unloads, bundle, False)), None


@ownership_channel.action
def split(cfg: Config, s: State, broker: BrokerNumber, bundle: Bundle) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.publishSplitEventAsync`: the owner of a bundle writes Splitting.

    Returns the version of the record.
    """
    at = s.brokers[broker]
    data = at.view[bundle]
    if not at.is_up or at.is_disabled:
        return refused(s, "not_enabled", "the channel is not started")
    if not can_split(cfg, bundle):
        return refused(s, "illegal_argument", "the bundle has no halves")
    if data is None or data.state != "Owned" or data.dst_broker != broker:
        return refused(s, "illegal_state", "the broker does not own the bundle")
    new = Data("Splitting", None, broker, next_version(data))
    return put(cfg, s, broker, bundle, new), new.version_id


# ---- reads of records -----------------------------------------------------------------------------------


@ownership_channel.action
def read(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, bool]:
    """`TableViewImpl.handleMessage`: a broker reads the next message of the topic.

    Returns whether its view accepts the record.
    """
    at = s.brokers[broker]
    if not at.is_up or at.read == len(s.log):
        return refused(s, "not_enabled", "there is no message to read")
    bundle, data = s.log[at.read]
    return offered(cfg, with_broker(s, broker, read=at.read + 1), broker, bundle, data)


@ownership_channel.action
def jump(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, int]:
    """`TableViewImpl.handleMessage`: a broker reads the compacted topic instead of its unread messages.

    For each bundle with unread messages, the broker reads the last accepted record. If a tombstone removed this record,
    the compacted topic has no record of the bundle, and the view keeps its own. Returns the number of records that the
    view accepts.
    """
    at = s.brokers[broker]
    if not at.is_up or at.read == len(s.log):
        return refused(s, "not_enabled", "there is no message to read")
    accepted, written = 0, {message.bundle for message in s.log[at.read :]}
    s = with_broker(s, broker, read=len(s.log))
    for bundle in sorted(written):
        if s.settled[bundle] is not None:
            s, is_accepted = offered(cfg, s, broker, bundle, s.settled[bundle])
            accepted += is_accepted
    return s, accepted


@ownership_channel.fault
def late_ack(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, int]:
    """`PersistentSubscription.acknowledgeMessage`: a cumulative ack arrives after the channel's topic was loaded again.

    The ack is from the broker's reader. With `late_ack_moves_reader`, the ack moves the reader's cursor to the end of
    the log, and the reader skips its unread messages; otherwise the topic ignores the ack. Returns the number of
    skipped messages.
    """
    at = s.brokers[broker]
    if not at.is_up or cfg.storage != "system_topic":
        return refused(s, "not_enabled", "the broker has no reader")
    if not cfg.late_ack_moves_reader:
        return s, 0
    return with_broker(s, broker, read=len(s.log)), len(s.log) - at.read


@ownership_channel.action
def notify(cfg: Config, s: State, broker: BrokerNumber, bundle: Bundle) -> Step[State, bool]:
    """`MetadataStoreTableViewImpl.handleNotification`: a broker is notified and reads the stored record.

    The periodic refresh (`consumeAsyncReload`) is the same step. Returns whether the broker's view changes.
    """
    at = s.brokers[broker]
    if cfg.storage != "metadata_store" or not at.is_up or at.session == "Unstable":
        return refused(s, "not_enabled", "the broker has no session with the metadata store")
    after = notified(cfg, s, broker, bundle)
    if after is s:
        return refused(s, "not_enabled", "the view has the stored record")
    return after, after.brokers[broker].view is not at.view


# ---- handlers -------------------------------------------------------------------------------------------


@ownership_channel.action
def finish(cfg: Config, s: State, broker: BrokerNumber, task: Index) -> Step[State, str]:
    """`ServiceUnitStateChannelImpl.handleAssignEvent`, `handleReleaseEvent`: a handler ends and writes the next record.

    `handleDeleteEvent`, and `handleFreeEvent` of a forced record, remove the record instead. `handleSplitEvent` takes
    two steps. The first step writes Owned for both halves and splits the bundle in the namespace, which needs a
    session; if the bundle is split already, there is no first step. The second step writes Deleted; with `split_bundle`
    "removed", it removes the record. Returns the state of the written record; Init if the record is removed.
    """
    tasks = s.brokers[broker].tasks
    if task >= len(tasks):
        return refused(s, "not_enabled", "there is no such task")
    bundle, data = tasks[task]
    if data.state == "Splitting" and not s.is_split[bundle]:
        if s.brokers[broker].session == "Unstable":
            return refused(s, "not_enabled", "the namespace cannot be changed without a session")
        s = s._replace(is_split=with_item(s.is_split, bundle, True))
        for half in (2 * bundle + 1, 2 * bundle + 2):
            s = put(cfg, s, broker, half, Data("Owned", broker, None, VERSION_ID_INIT))
        return s, "Owned"
    s = with_broker(s, broker, tasks=(*tasks[:task], *tasks[task + 1 :]))
    new = next_record(cfg, data)
    if new is None:
        return removed(cfg, s, broker, bundle, data), "Init"
    return put(cfg, s, broker, bundle, new), new.state


def next_record(cfg: Config, data: Data) -> Data | None:
    """Returns the record that the handler of a record writes, or None if the handler removes the record."""
    new = data._replace(version_id=next_version(data), force=False)
    assigning_first = cfg.transfer_order == "assigning_first"
    if data.state == "Assigning":
        return new._replace(state="Releasing" if assigning_first and data.source_broker is not None else "Owned")
    if data.state == "Releasing" and data.dst_broker is None:
        return new._replace(state="Free", force=data.force)
    if data.state == "Releasing":
        return new._replace(state="Owned" if assigning_first else "Assigning")
    if data.state == "Splitting" and cfg.split_bundle == "deleted":
        return new._replace(state="Deleted")
    return None  # a Deleted or forced Free record; or Splitting, with `split_bundle` "removed"


@ownership_channel.fault
def fail_append(cfg: Config, s: State, broker: BrokerNumber, task: Index) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.pubAsync`: a handler fails, or its write fails.

    No record is written, and the handler is not retried.
    """
    tasks = s.brokers[broker].tasks
    if task >= len(tasks):
        return refused(s, "not_enabled", "there is no such task")
    return with_broker(s, broker, tasks=(*tasks[:task], *tasks[task + 1 :])), None
