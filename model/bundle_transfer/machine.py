"""Transfer of a bundle's topics from a source S to a destination D (PIP-307, reviewed as PIP-281).

Models the parts of `ServiceUnitStateChannelImpl`, `BrokerService`, `PersistentTopic` and `ServerCnx` that take part,
and `ProducerImpl`, `ConsumerImpl` and `ConnectionHandler` of the clients. One step is one record appended or applied,
one command sent, processed or received, one add confirmed, one ledger closed or opened. `state.py` has the state.

    transfer     Releasing(D, S) is appended to the channel
    phase 1      S applies it and fences its topics. Clients stay attached; their sends and acks are ignored. S closes
                 each ledger: the log ends at the last confirmed entry
    hand-over    S appends Assigning(D, S); D applies it and appends Owned(D, S), before it loads a topic
    phase 2      S applies Owned and closes each client's session with D's address; the topic object is removed later
    reconnect    the client connects to D without lookup. D loads the topic lazily, answers, and the producer sends all
                 pending messages again
    override     the leader appends a forced Owned, because a broker of the newest record is not registered, or a
                 transfer takes too long

Loading a topic fences its last ledger: no other broker can write to it any more, whatever its view.

`Config.variant` is V0 for PIP-307, and V1a to V4 for its alternatives. In V2 a paused client is also connected to the
destination. The model has no such connection: the source's close command makes the client wait there, and the
destination learns of the topic by `begin_load`.

The reference differs from Pulsar in the rules of `Config` (see `fuzz/defects/`):
  * a broker closes its stale topics at any Owned record, also at one that returns the bundle to it or does not name it;
  * closing a topic is retried; after a failure or a timeout the source does not append Assigning;
  * an unregistered broker answers no request; when it registers again, it first applies the newest record;
  * a restarted broker acts on the newest record, also on Releasing and Assigning.

Not modelled: versions and storage of records (see `model/ownership_channel`), splits, unloads without destination,
timers, send timeouts, several ledgers of a topic, quorums of bookies, replicators, transactions, several topics on one
connection.
"""

from __future__ import annotations

from typing import Any, get_args

import model.bundle_transfer.clients  # noqa: F401  (it adds the actions to the machine)
from model.bundle_transfer.state import Config, Variant, bundle_transfer

__all__ = ["bundle_transfer", "merged", "reference"]

reference = bundle_transfer.profile("reference", "PIP-307 with the repairs of this project", Config())

#: Rules on which master of September 2026 differs from the reference.
_MERGED: dict[str, Any] = {
    "stale_topics_closed_on": "owner_names_source",
    "close_timeout_publishes": True,
    "failed_close_evicts": True,
    "unregistered_uses_view": True,
    "load_checks_ownership_again": False,
}
merged = bundle_transfer.profile("pulsar-2026-09", "PIP-307 as of master 2026-09", Config(**_MERGED))
bundle_transfer.profile(
    "pulsar-2025-04",
    "PIP-307 as of master 2025-04, before later repairs",
    Config(
        **_MERGED,
        session_loss="stale",
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
        unregistered_source_makes_orphan=True,
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
