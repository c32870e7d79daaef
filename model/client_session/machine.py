"""A client with one producer and one consumer, and every answer that their broker may give.

Models `ProducerImpl`, `ConsumerImpl`, `ConnectionHandler` (in C++ `HandlerBase`) and
`PersistentAcknowledgmentsGroupingTracker` (in C++ `AckGroupingTrackerEnabled`), from the binary protocol and PIP-307.
One step is a call of the application, a command handled by the client, or a command processed by the broker. The broker
is nondeterministic: at any time it may accept, refuse or ignore a command, close a session, or lose the connection. The
properties are guarantees of the client. `state.py` has the state.

    producer      a message is pending until it has a result: a receipt, a ChecksumError, a timeout or a final refusal.
                  Sequence ids start after `last_sequence_id`, or after `initialSequenceId`; a message keeps its
                  sequence id. Every reconnection sends all pending messages again, in order
    receipts      the receipt of the oldest pending message completes it; one of a later message closes the connection,
                  any other is ignored
    permits       FLOW for the whole receiver queue after SUBSCRIBE, then whenever half of it was received; a batch
                  costs a permit for each of its unacknowledged messages
    acks          grouped until a flush, which needs a session; individual acks of a batch are tracked until all its
                  messages are acknowledged, unless index acks are enabled; a message whose ack is grouped is dropped
                  when it arrives again
    redelivery    Shared: of single entries. Exclusive: of all unacknowledged messages; the client drops its receiver
                  queue and the messages of an older consumer epoch
    CLOSE         with URL: one attempt at that broker without lookup. Without URL, or if the attempt fails: a lookup
    refusal       a request is sent again after a retryable refusal, also the first request

The reference differs from shipped versions in the rules of `Config` (see `fuzz/defects/`). Commands to a handler are
in a FIFO queue, and sends are in another one; FLOW, ACK and REDELIVER reach the broker at once. A broker without a
session of the handler ignores these commands.

Not modelled: time (a delay may end at any step), lookups and their redirects, operation timeouts, names of brokers (the
log is shared; `model/bundle_transfer` has fencing), the delay of negative acks (`model/negative_acks`), chunks,
transactions, dead letters, seek, other consumers (only their acks), ids that an application deserializes.
"""

from __future__ import annotations

import model.client_session.handlers  # noqa: F401  (it adds the actions to the machine)
from model.client_session.state import Config, client_session

__all__ = ["client_session", "reference"]

reference = client_session.profile("reference", "the protocol as the documentation and PIP-307 state it", Config())

# The source of this client differs from the profile in five cases, which no experiment has shown yet:
#   * it drops its receiver queue after SUBSCRIBE is answered, not before it (`ConsumerImpl::handleCreateConsumer`);
#   * after its creation, a consumer retries every refusal, and a producer all but ProducerFenced and TopicTerminated;
#   * a CLOSE during the first request cancels nothing, either (`HandlerBase::grabCnx`);
#   * a ChecksumError of a later message also closes the connection, and the next reconnection or timeout dereferences
#     the null pointer, too (`ProducerImpl::resendMessages`, `getPendingCallbacksWhenFailed`);
#   * grouped index acks drop no message of a batch (`AckGroupingTrackerEnabled::isDuplicate` compares whole entries).
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
