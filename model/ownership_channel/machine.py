"""The ownership channel of the extensible load manager: which broker owns a bundle (PIP-192).

A bundle is a group of topics that one broker owns. The brokers agree on the owner by records, which they write to a
system topic or to the metadata store. A record has the state of one bundle, such as Assigning, Owned or Releasing, and
names the brokers concerned. Every broker reads the records, and has a view: the last record of each bundle that it
accepted. If a record asks a broker to do something, such as to close topics, the broker does it and writes the next
record: this is the handler of the record. If an owner fails, the leader assigns its bundles to other brokers: a
clean-up.

Models `ServiceUnitStateChannelImpl` and its callers in `ExtensibleLoadManagerImpl` and `UnloadManager`. The records are
stored in the system topic (`ServiceUnitStateTableViewImpl`) or in the metadata store
(`ServiceUnitStateMetadataStoreTableViewImpl`, PIP-378). One step is one request, one read of records with the start of
their handlers, the end of one handler with its write, or one event of a broker, a session or the leader.

A record names up to two brokers, the source and the destination, and has a version. A broker that writes a record gives
the record the version after the one in the broker's view. If the view was outdated, that version exists already, and
the record is rejected. `records.py` has the complete rule. A bundle is in flight while its record is Assigning,
Releasing or Splitting: then a handler (`handleAssignEvent` and so on) of one of the two brokers writes the next record.

State (`state.py`):

    records     in the topic or in the store
    broker      its session with the metadata store, its running handlers, the lookups and unloads that wait for a
                record, its clean-ups (`recovery.py`), and its view: for each bundle, the last record that it accepted
    leader      the broker that runs the monitor (`recovery.py`)

Life of a bundle:

    lookup      a broker answers with the owner in its view, or with the destination of a record in flight. If the view
                has neither, the broker assigns the bundle. An unanswered lookup is parked until the broker reads a
                record of the bundle that is not in flight, or until the lookup times out
    assign      Assigning -> Owned; the destination writes Owned before it loads a topic
    unload      Owned -> Releasing; the source closes the bundle's topics, then writes Assigning (transfer) or Free. The
                unload is pending at the broker that wrote Releasing, until this broker reads a record that ends the
                unload (`state.handled`), or until the unload times out
    split       Owned -> Splitting; the source writes Owned for both halves, then Deleted for the bundle

Records:

    read        a reader of the topic accepts or rejects the next message
    jump        a slow reader of the topic reads the compacted topic in place of its unread messages
    notify      a reader of the metadata store reads a stored record
    finish      the handler of a record writes the bundle's next record, or removes the record, and ends. The handler of
                a split takes one step more: it first writes the records of the halves

The reference differs from Pulsar in rules of `Config` (see `fuzz/defects/`). The most important rule is how a record is
removed. Pulsar writes a tombstone, which has no version. After a tombstone versions restart at 1, so a late record from
before the tombstone can be accepted. The reference writes a forced Init record with the next version.

Simplifications, under every profile:
  * The source of a forced unload writes a forced Free record, and the handler of this record removes it. In Pulsar,
    `handleReleaseEvent` writes Free without force, and the monitor removes the record later.
  * A pending unload completes at a Deleted or forced Free record. `UnloadManager` waits until the record is removed.
  * A broker that begins to shut down resigns as leader, and rejects unloads and splits. In Pulsar, `disableBroker`
    resigns last, and a channel in state Disabled still publishes unloads and splits.
  * `recovery.py` lists four more.

Not modelled: topics and clients (see `model/bundle_transfer`); time (a timeout may fire in any state); the choice of a
broker by load; two leaders; a compaction in progress (`jump` reads to the end of the topic);
`ServiceUnitStateTableViewSyncer`.
"""

from __future__ import annotations

from typing import NamedTuple

from model.machine import Failed, Step
from model.ownership_channel import recovery, requests  # noqa: F401  (they add the actions to the machine)
from model.ownership_channel.records import (
    ACTIVE,
    IN_FLIGHT,
    TRANSITIONS,
    Config,
    Data,
    ServiceUnitState,
    Storage,
    follows,
    keeps_left,
)
from model.ownership_channel.state import State, ownership_channel

__all__ = ["Transition", "ownership_channel", "reference"]

ownership_channel.diagrams = {storage.replace("_", " "): table for storage, table in TRANSITIONS.items()}

# ---- functions ------------------------------------------------------------------------------------------


class Transition(NamedTuple):
    """Outcome of `is_valid_transition`. `is_in_flight` and `is_active` describe the new state."""

    is_valid: bool
    is_in_flight: bool
    is_active: bool


@ownership_channel.action
def is_valid_transition(
    cfg: Config, s: State, storage: Storage, old: ServiceUnitState, new: ServiceUnitState
) -> Step[State, Transition]:
    """`ServiceUnitState.isValidTransition`: returns whether `new` may follow `old`. The state does not change."""
    return s, Transition(follows(cfg, storage, old, new), new in IN_FLIGHT, new in ACTIVE)


@ownership_channel.action
def should_keep_left(
    cfg: Config, s: State, storage: Storage, check_brokers: bool, left: Data | None, right: Data | None
) -> Step[State, bool]:
    """`ServiceUnitStateDataConflictResolver.shouldKeepLeft`: returns whether the new record, `right`, is rejected.

    Fails if `shouldKeepLeft` throws. The state does not change.
    """
    kept = keeps_left(cfg, storage, check_brokers, left, right)
    return (s, Failed("null_pointer", "the Owned record has no destination")) if kept is None else (s, kept)


# ---- profiles -------------------------------------------------------------------------------------------

reference = ownership_channel.profile(
    "reference",
    "records are in the system topic, and a record is removed by a further record, Init, which has a version",
    Config(),
)
shipped = ownership_channel.profile(
    "pulsar-2026-09",
    "shipped rules, master 2026-09",
    Config(
        owned_without_destination="null_pointer",
        removal="tombstone",
        restart_resumes="assigning",
        clean_up_retries="ordinary",
        unregistered_broker_parks=False,
        stale_view_answers=True,
    ),
)
recorded = ownership_channel.profile(
    "pulsar-2026-07",
    "shipped rules, master 2026-07",
    shipped.config._replace(clean_up_retries="none", disabled_channel_assigns=True),
)
release_4 = ownership_channel.profile(
    "pulsar-4.0.0",
    "shipped rules of the first release with both storages",
    recorded.config._replace(metadata_put="blind_retry", restart_resumes="nothing", late_ack_moves_reader=True),
)
release_3_1 = ownership_channel.profile(
    "pulsar-3.1.0",
    "shipped rules of the first releases, system topic only",
    release_4.config._replace(
        metadata_put="compare_and_set",
        unregistered_broker_parks=True,
        monitor_requires_source_of_owned=True,
        lookup_at_source="parked",
        election_is_rechecked=False,
    ),
)
ownership_channel.profile(
    "pulsar-3.0.2",
    "pulsar-3.1.0 with apache/pulsar#21213 and without its repair #21721: the monitor removes every old record",
    release_3_1.config._replace(monitor_removes="any"),
)
ownership_channel.profile(
    "master-2023-03",
    "master after apache/pulsar#19683 (transfer order) and before #20110: version gaps are rejected",
    release_3_1.config._replace(version_gap="rejected"),
)
proposal = ownership_channel.profile(
    "pip-192",
    "PIP-192 as written: the destination acknowledges before the source releases, records have no version",
    Config(
        transfer_order="assigning_first",
        versions="unchecked",
        removal="tombstone",
        split_bundle="removed",
        restart_resumes="nothing",
        clean_up_retries="none",
        disabled_channel_assigns=True,
        monitor_requires_source_of_owned=True,
        lookup_at_source="parked",
        election_is_rechecked=False,
    ),
)
