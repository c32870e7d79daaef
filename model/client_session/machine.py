"""A client with one producer and one consumer, and every answer that their broker may give.

Models `ProducerImpl`, `ConsumerImpl`, `HandlerBase` and the ack grouping tracker, from the binary protocol and PIP-307.
One step is a call of the application, a command handled by the client, or a command processed by the broker. The broker
is nondeterministic: it may accept, refuse, ignore, close or break at any time. Guarantees are those of the client.

    producer      messages are pending until they have a result: a receipt, ChecksumError, a timeout. Sequence ids start
                  after `last_sequence_id`, or after `initialSequenceId`; a message keeps its sequence id. Every
                  reconnection sends all pending messages again, in order
    receipts      in order; one out of order closes the connection, one that names no pending message is ignored
    permits       FLOW for the whole receiver queue at SUBSCRIBE, then whenever half of it was received; a batch costs a
                  permit for each of its unacknowledged messages
    acks          grouped until a flush, which needs a session; individual acks of a batch wait until it is complete,
                  unless index acks are enabled; a message whose ack is grouped is dropped when it arrives again
    redelivery    Shared: of single entries. Exclusive: of all messages; the receiver queue is dropped, and so are
                  messages of the older consumer epoch
    CLOSE         with URL: one attempt at that broker without lookup. Without URL, or if the attempt fails: a lookup
    refusal       the request is sent again if the refusal is retryable, also the first request

The reference differs from shipped versions in the rules of `Config` (see `fuzz/defects/`). Commands to the client
are a FIFO queue for each handler, sends are another; FLOW, ACK and REDELIVER reach the broker at once. A broker without
a session ignores these commands.

Not modelled: time (each delay ends at any step), lookups and their redirects, operation timeouts, several brokers by
name (the log is shared, and fencing is `model/bundle_transfer`), the delay of negative acks (`model/negative_acks`),
chunks, transactions, dead letters, seek, several consumers but for their acks, ids that an application deserializes.
"""

from __future__ import annotations

import model.client_session.handlers  # noqa: F401  (it adds the actions to the machine)
from model.client_session.state import Config, client_session

__all__ = ["client_session", "reference"]

reference = client_session.profile("reference", "the protocol as the documentation and PIP-307 state it", Config())

client_session.profile(
    "cpp-4.2.0",
    "the C++ client 4.2.0, unmodified, under Python (`pulsar-client` 3.13.0)",
    Config(
        reconnection_restarts_sequence_ids=True,
        checksum_error_takes_oldest=True,
        checksum_error_ends_session=False,
        unknown_command_disconnects=True,
        cumulative_ack_hides_for_ever=True,
        tracker_uses_ack_set=False,
        filtered_messages_return_permits=True,
        flush_waits_for_session=False,
        close_cancels_request=False,
        corrupt_batch_returns_all_permits=False,
        first_subscribe_is_retried=False,
        redelivery_of_all_clears_queue=False,
    ),
)
