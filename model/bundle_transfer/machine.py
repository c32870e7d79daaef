"""Transfer of a bundle's topics from a source S to a destination D (PIP-307, reviewed as PIP-281).

A transfer moves a bundle of topics from one broker (the source, S) to another (the destination, D). In phase 1, the
source closes the ledgers of the topics, while clients stay attached. In phase 2, it closes the clients' sessions, and
tells each client the destination's address. The clients connect there without a lookup. The brokers coordinate by
records that they append to a channel. Every broker applies the records in order. If a broker fails or a transfer takes
too long, the leader appends an override, which names the next owner. A broker that opens a topic fences the topic's
last ledger: no other broker can write to this ledger any more. Variant V0 of the protocol is PIP-307; V1a to V4 are
alternatives.

Models the parts of `ServiceUnitStateChannelImpl`, `BrokerService`, `PersistentTopic` and `ServerCnx` that take part in
a transfer, and the clients' `ProducerImpl`, `ConsumerImpl` and `ConnectionHandler`. One step is one record appended or
applied, one lookup, one command sent, processed or received, one add confirmed, one ledger opened or closed, one
clean-up of a topic object, or one failure or restart. `state.py` has the state. The record Releasing(D, S) has the
destination D and the source S.

    transfer     a broker appends Releasing(D, S)
    phase 1      S applies Releasing and fences its topics. Clients stay attached; S ignores their sends and acks. S
                 closes each ledger: the log ends at the last confirmed entry
    hand-over    S appends Assigning(D, S). D applies Assigning and appends Owned(D, S), before it loads a topic
    phase 2      S applies Owned, and closes each client's session: the close command has D's address. S removes its
                 topic object later
    reconnect    each client connects to D without lookup. D loads the topic lazily, and answers success. The producer
                 then sends all pending messages again
    override     the leader appends a forced Owned, because the owner, or the source or destination of a transfer, is
                 not registered, or because a transfer takes too long

In variant V2, the source pauses its clients, and they connect to the destination in advance. The model leaves out this
second connection: the destination begins to load a topic that has a paused client, and the source's close command moves
the paused client to the destination in one step.

The reference differs from Pulsar in rules of `Config` (see `fuzz/defects/`):
  * a broker that applies an Owned record disconnects the clients of its stale topics, also if the record does not name
    the broker as source. A topic is stale if it is fenced for a transfer, or if its broker does not own the bundle;
  * the source retries a failed close, and continues a close that times out. It appends Assigning only when the ledger
    of every topic is closed;
  * a broker that has lost its session with the metadata store is unregistered, and rejects lookups, `PRODUCER` and
    `SUBSCRIBE`. When the broker registers again, it first applies the newest record;
  * a broker that loads a topic opens the topic's ledger only while the broker owns the bundle;
  * a restarted broker acts on the newest record, also on Releasing and Assigning.

Not modelled: versions and storage of records (see `model/ownership_channel`), splits, unloads without destination,
timers, send timeouts, several ledgers of a topic, quorums of bookies, replicators, transactions, several topics on one
connection.
"""

from __future__ import annotations

from typing import Any, get_args

import model.bundle_transfer.clients  # noqa: F401  (it adds the actions to the machine)
from model.bundle_transfer.state import Config, Variant, bundle_transfer

__all__ = ["bundle_transfer", "reference"]

reference = bundle_transfer.profile("reference", "PIP-307 with its known defects repaired", Config())

#: The rules in which Pulsar's master branch of September 2026 differs from the reference.
_MERGED: dict[str, Any] = {
    "stale_topics_closed_on": "owner_names_source",
    "close_timeout_publishes": True,
    "failed_close_evicts": True,
    "unregistered_uses_view": True,
    "load_checks_ownership_again": False,
    "session_loss": "stale",
}
bundle_transfer.profile("pulsar-2026-09", "PIP-307 as of master 2026-09", Config(**_MERGED))
bundle_transfer.profile(
    "pulsar-2025-04",
    "PIP-307 as of master 2025-04, before later repairs",
    Config(
        **_MERGED,
        failed_write_completes=False,
        restart_acts_on_record=False,
        removal_compares_instance=False,
        recovery_seals_ledger=False,
    ),
)
bundle_transfer.profile(
    "pulsar-2023-10",
    "the first implementation (apache/pulsar#21408), before its repairs; otherwise the reference",
    Config(
        sends_ignored_while="fenced",
        failed_write_disconnects=True,
        source_parks=True,
        cursor_close_checks_ownership=True,
    ),
)
bundle_transfer.profile(
    "pulsar-before-pip-307",
    "old defects of clients and of closing topics; otherwise the reference",
    Config(drained_topic_reopens=True, closing_topic_answers=False),
)
bundle_transfer.profile(
    "pulsar-2026-05",
    "a client of master after apache/pulsar#25929 keeps the address of a redirect; otherwise the reference",
    Config(address_is_used_once=False),
)
bundle_transfer.profile(
    "session-loss-shuts-down",
    "the reference with `zookeeperSessionExpiredPolicy` shutdown",
    Config(session_loss="shutdown"),
)
for _variant in get_args(Variant)[1:]:
    bundle_transfer.profile(_variant, f"variant {_variant}", Config(variant=_variant))
