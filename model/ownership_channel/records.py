"""Records of the ownership channel, and the rule that accepts or rejects a new record (PIP-192, PIP-378).

Models `ServiceUnitState`, `ServiceUnitStateData` and `ServiceUnitStateDataConflictResolver`. A record has the state of
one bundle (service unit). The channel keeps the last accepted record of each bundle. A bundle without a record is in
state `Init`. A record may name two brokers, a source and a destination:

    Free        the bundle has no owner; the source, if there is one, is the former owner
    Assigning   the destination was chosen; in a transfer, the source has released the bundle
    Owned       the destination owns the bundle; the source, if there is one, is the former owner
    Releasing   the source closes the bundle's topics; a transfer has a destination, which is the next owner
    Splitting   the source, which is still the owner, splits the bundle
    Deleted     the source has split the bundle

`keeps_left` (`shouldKeepLeft`) decides whether a new record is rejected. In the system topic, each reader decides; in
the metadata store, the writer decides. Three checks apply:

    version      must be the next one; a reader of the topic also accepts any higher version
    transition   must be valid after the state of the existing record (`TRANSITIONS`)
    brokers      must be those that the existing record allows (`disagrees_on_brokers`)

Only the version is checked if the new record is forced, or if it skips versions. The first record of a bundle in the
metadata store needs only the version 1; in the topic, it needs a valid transition, or is forced. A tombstone is always
accepted.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Setting
from model.values import AtLeast, Origin, Rule, record

ServiceUnitState = Literal["Init", "Free", "Owned", "Assigning", "Releasing", "Splitting", "Deleted"]
Storage = Literal["system_topic", "metadata_store"]

#: `isInFlightState`: the states in which one broker (`state.actor_of`) has to write the bundle's next record.
IN_FLIGHT: frozenset[str] = frozenset({"Assigning", "Releasing", "Splitting"})
#: `isActiveState`: the states in which a bundle has an owner or is in flight.
ACTIVE: frozenset[str] = IN_FLIGHT | {"Owned"}
#: The states, except Init, in which a bundle has no owner and is not in flight. The monitor removes such records once
#: they are old.
SEMI_TERMINAL: frozenset[str] = frozenset({"Free", "Deleted"})

#: The empty string as the name of a broker. It names no broker, like None, but is not equal to None.
BLANK = -1
#: The version of a bundle's first record.
VERSION_ID_INIT = 1
#: The largest and the smallest version (`long`). The version after the largest is the smallest.
MAX_VERSION, MIN_VERSION = 2**63 - 1, -(2**63)

#: A broker field of a record: a broker's number, `BLANK`, or None.
BrokerName = Annotated[int, AtLeast(BLANK)] | None


class Config(NamedTuple):
    """The cluster, settings of the broker, then the rules in which versions of Pulsar differ."""

    #: number of brokers; brokers are numbered from 0
    brokers: Annotated[int, AtLeast(1)] = 3
    #: number of bundles; bundle b splits into bundles 2b + 1 and 2b + 2
    bundles: Annotated[int, AtLeast(1)] = 1
    #: number of bundles in the system namespace, which are the bundles with the highest numbers
    system_bundles: Annotated[int, AtLeast(0)] = 0
    #: the storage of records
    storage: Annotated[
        Storage,
        Setting("loadManagerServiceUnitStateTableViewClassName", "ServiceUnitStateTableViewImpl (system topic)"),
    ] = "system_topic"
    #: what a broker does when its metadata session expires
    session_expired_policy: Annotated[
        Literal["reconnect", "shutdown"], Setting("zookeeperSessionExpiredPolicy", "reconnect")
    ] = "reconnect"

    #: the states of a transfer: Releasing, Assigning, Owned; or Assigning, Releasing, Owned
    transfer_order: Annotated[
        Literal["releasing_first", "assigning_first"],
        Rule(Origin.READ, {"assigning_first": "PIP-192, until apache/pulsar#19683"}),
    ] = "releasing_first"
    #: whether the version of a new record is compared with the version of the existing record
    versions: Annotated[
        Literal["checked", "unchecked"], Rule(Origin.READ, {"unchecked": "PIP-192, until apache/pulsar#19620"})
    ] = "checked"
    #: whether a reader of the topic accepts a record whose version is higher than the next version
    version_gap: Annotated[
        Literal["accepted", "rejected"], Rule(Origin.READ, {"rejected": "before apache/pulsar#20110"})
    ] = "accepted"
    #: what `shouldKeepLeft` does with a record after an Owned record without destination (`is_owner_compared`)
    owned_without_destination: Annotated[
        Literal["rejected", "null_pointer"],
        Rule(Origin.RECORDED, {"null_pointer": "ServiceUnitStateDataConflictResolver"}),
    ] = "rejected"
    #: how a record is removed: by a forced Init record with the next version, or by a tombstone, which has no version
    removal: Annotated[
        Literal["init_record", "tombstone"],
        Rule(Origin.READ, {"tombstone": "ServiceUnitStateChannelImpl.tombstoneAsync"}),
    ] = "init_record"
    #: whether the source of a split writes a Deleted record for the bundle, or removes the bundle's record
    split_bundle: Annotated[
        Literal["deleted", "removed"], Rule(Origin.READ, {"removed": "before apache/pulsar#19546"})
    ] = "deleted"
    #: compare_and_set: a write to the metadata store is checked against the stored record. blind_retry: the write is
    #: checked against the writer's view; after BadVersion, the write is repeated without a check
    metadata_put: Annotated[
        Literal["compare_and_set", "blind_retry"], Rule(Origin.READ, {"blind_retry": "before apache/pulsar#24186"})
    ] = "compare_and_set"
    #: for which in-flight records a starting broker begins a handler
    restart_resumes: Annotated[
        Literal["in_flight", "assigning", "nothing"],
        Rule(
            Origin.READ,
            {
                "nothing": "ServiceUnitStateChannelImpl.handleExisting before apache/pulsar#25379",
                "assigning": "since #25379",
            },
        ),
    ] = "in_flight"
    #: for which bundles a clean-up overrides orphans (`state.is_orphan`) until no orphan of the bundle is left in the
    #: view. Any other bundle is overridden once. ordinary: the bundles outside the system namespace
    clean_up_retries: Annotated[
        Literal["all", "ordinary", "none"],
        Rule(
            Origin.READ,
            {
                "none": "before apache/pulsar#26520",
                "ordinary": "since #26520",
                "all": "proposed in apache/pulsar#26634",
            },
        ),
    ] = "all"
    #: whether a lookup in a disabled channel assigns the bundle. (In Pulsar, only if it began before the channel was
    #: disabled; the model does not make this distinction.)
    disabled_channel_assigns: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#26520"})] = False
    #: which old records the monitor removes. semi_terminal: only Free and Deleted records
    monitor_removes: Annotated[
        Literal["semi_terminal", "any"], Rule(Origin.READ, {"any": "apache/pulsar#21213, until apache/pulsar#21721"})
    ] = "semi_terminal"
    #: whether the monitor also requires the source of an Owned record to be registered, and overrides no record while a
    #: required broker is not registered
    monitor_requires_source_of_owned: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#23064"})] = False
    #: answered: the source of a transfer answers a lookup at once, with the destination. parked: the source parks the
    #: lookup until the bundle is not in flight any more
    lookup_at_source: Annotated[
        Literal["answered", "parked"], Rule(Origin.READ, {"parked": "before apache/pulsar#22112"})
    ] = "answered"
    #: whether a broker that is not registered parks lookups like any other broker. false: it answers with the owner or
    #: the destination in its view, and parks a lookup only if it assigns the bundle
    unregistered_broker_parks: Annotated[
        bool, Rule(Origin.READ, {False: "ServiceUnitStateChannelImpl.getActiveOwnerAsync"})
    ] = True
    #: whether a broker may answer with the owner in a record that it read before it lost its session, when a parked
    #: lookup times out
    stale_view_answers: Annotated[bool, Rule(Origin.READ, {True: "MetadataStoreTableViewImpl, master 2026-09"})] = False
    #: whether a broker that reconnects learns that it was elected
    election_is_rechecked: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#23138"})] = True
    #: whether a late cumulative ack of a reader moves the reader's cursor past unread messages
    late_ack_moves_reader: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#25998"})] = False


@record
class Data(NamedTuple):
    """A record of a bundle (`ServiceUnitStateData`), without `splitServiceUnitToDestBroker` and `timestamp`."""

    state: ServiceUnitState
    dst_broker: BrokerName = None
    source_broker: BrokerName = None
    version_id: int = VERSION_ID_INIT
    force: bool = False  # `keeps_left` checks only the version of a forced record


# ---- transitions ----------------------------------------------------------------------------------------

#: For each of these states, the states that may follow it with either storage.
_WITH_EITHER_STORAGE = {
    "Owned": frozenset({"Releasing", "Splitting"}),
    "Assigning": frozenset({"Owned"}),
    "Releasing": frozenset({"Free", "Assigning"}),
    "Splitting": frozenset({"Deleted"}),
    "Deleted": frozenset({"Init"}),
}
#: `StateTransitions`: by storage and state, the states that may follow.
TRANSITIONS: dict[str, dict[str, frozenset[str]]] = {
    "system_topic": {
        # the first record that a reader of the compacted topic sees can have any state
        "Init": frozenset({"Free", "Owned", "Assigning", "Releasing", "Splitting", "Deleted"}),
        "Free": frozenset({"Init", "Assigning"}),
        **_WITH_EITHER_STORAGE,
    },
    "metadata_store": {"Init": frozenset({"Assigning"}), "Free": frozenset({"Assigning"}), **_WITH_EITHER_STORAGE},
}
#: The transitions of PIP-192 as written, where they differ: the destination acknowledges before the source releases.
ASSIGNING_FIRST: dict[str, frozenset[str]] = {
    "Owned": frozenset({"Assigning", "Releasing", "Splitting"}),
    "Assigning": frozenset({"Releasing", "Owned"}),
    "Releasing": frozenset({"Free", "Owned"}),
}


def follows(cfg: Config, storage: str, old: str, new: str) -> bool:
    """`ServiceUnitState.isValidTransition`: whether the state `new` may follow the state `old`."""
    if cfg.transfer_order == "assigning_first" and old in ASSIGNING_FIRST:
        return new in ASSIGNING_FIRST[old]
    return new in TRANSITIONS[storage][old]


# ---- conflicts ------------------------------------------------------------------------------------------


def state_of(data: Data | None) -> ServiceUnitState:
    """Returns the state of a bundle with this record."""
    return "Init" if data is None else data.state


def next_version(data: Data | None) -> int:
    """`ServiceUnitStateChannelImpl.getNextVersionId`: returns the version of the record that follows this one."""
    return VERSION_ID_INIT if data is None else data.version_id + 1


def is_blank(broker: int | None) -> bool:
    """Whether a broker field of a record names no broker."""
    return broker is None or broker == BLANK


def keeps_left(cfg: Config, storage: str, check_brokers: bool, left: Data | None, right: Data | None) -> bool | None:
    """`ServiceUnitStateDataConflictResolver.shouldKeepLeft`: whether the new record, `right`, is rejected.

    Returns None if `shouldKeepLeft` throws. A tombstone (None) is never rejected. Without `check_brokers`, the brokers
    of the records are not compared.
    """
    if right is None:
        return False
    if left is not None and cfg.versions == "checked":
        if not is_next_version(left.version_id, right.version_id):
            # a reader of the topic may have jumped over records, so it accepts a gap without any further check
            is_gap = left.version_id < right.version_id
            return not (is_gap and storage == "system_topic" and cfg.version_gap == "accepted")
    elif left is None and storage == "metadata_store":
        # the store accepts any first record of a bundle that has the first version, without any further check
        return right.version_id != VERSION_ID_INIT
    if right.force:
        return False
    if not follows(cfg, storage, state_of(left), right.state):
        return True
    if left is None or not check_brokers:
        return False
    if left.state == "Owned" and left.dst_broker is None and is_owner_compared(right):
        return None if cfg.owned_without_destination == "null_pointer" else True
    return disagrees_on_brokers(left, right)


def is_rejected(cfg: Config, left: Data | None, right: Data | None) -> bool:
    """Whether the new record, `right`, is rejected. A record on which `shouldKeepLeft` throws counts as rejected."""
    kept = keeps_left(cfg, cfg.storage, True, left, right)
    return kept is None or kept


def is_next_version(old: int, new: int) -> bool:
    """Whether the version `new` directly follows the version `old`, with the overflow of Java's `long`."""
    return new == (MIN_VERSION if old == MAX_VERSION else old + 1)


def is_owner_compared(right: Data) -> bool:
    """Whether `shouldKeepLeft` calls `equals` on the destination of the existing Owned record.

    If that record has no destination (null), the call throws.
    """
    if right.state == "Splitting":
        return is_blank(right.dst_broker)
    return right.state == "Releasing" and not is_blank(right.source_broker)


def disagrees_on_brokers(left: Data, right: Data) -> bool:
    """Whether a new record with a valid transition names brokers that the existing record does not allow.

    Owned -> Splitting              allowed: the owner as source, no destination
    Owned -> Releasing, Assigning   allowed: the owner as source, another broker or none as destination
    Free -> Assigning               allowed: no source, a destination
    Releasing -> Assigning          allowed: the same brokers, with a destination
    other, from a state in flight   allowed: the same brokers
    other                           allowed: any brokers
    """
    if left.state == "Owned" and right.state == "Splitting":
        return not is_blank(right.dst_broker) or left.dst_broker != right.source_broker
    if left.state == "Owned":  # the new record is Releasing, or Assigning with `transfer_order` "assigning_first"
        is_to_owner = left.dst_broker == right.dst_broker
        return is_blank(right.source_broker) or left.dst_broker != right.source_broker or is_to_owner
    if left.state == "Free" and right.state == "Assigning":
        return not is_blank(right.source_broker) or is_blank(right.dst_broker)
    if left.state == "Releasing" and right.state == "Assigning" and is_blank(right.dst_broker):
        return True
    changed = left.dst_broker != right.dst_broker or left.source_broker != right.source_broker
    return left.state in IN_FLIGHT and changed
