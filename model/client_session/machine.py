"""A client with one producer and one consumer, and every answer that their broker may give.

The producer and the consumer each have a session with the broker of their topic. At any time, the broker may accept,
refuse or ignore a command, close a session, or lose the connection. This component says what the client does then:
which messages it sends again, what it acknowledges, and when it looks the topic up. The producer and the consumer are
also called handlers: each restores its own session.

Models `ProducerImpl`, `ConsumerImpl`, `ConnectionHandler` (in C++ `HandlerBase`) and
`PersistentAcknowledgmentsGroupingTracker` (in C++ `AckGroupingTrackerEnabled`), from the binary protocol and PIP-307.
One step is a call of the application, a command handled by the client, a command processed by the broker, or a
connection that is made or lost. `state.py` has the state.

    producer      A message is pending until it has a result: a receipt, a ChecksumError, a timeout or a final refusal.
                  The first message gets the sequence id after the broker's last sequence id, or after
                  `initialSequenceId`. A message keeps its sequence id. After every reconnection, the producer sends all
                  pending messages again, in order
    receipts      The receipt of the oldest pending message completes this message. A receipt of a later message closes
                  the connection. Any other receipt is ignored
    permits       When SUBSCRIBE succeeds, the consumer sends FLOW for its whole receiver queue. Later it sends FLOW
                  whenever the application has received, or the client has dropped, half a queue of messages. A batch
                  costs a permit for each of its unacknowledged messages
    acks          Acks are grouped until a flush, which needs a ready consumer. With index acks
                  (`batchIndexAckEnabled`), the broker can acknowledge single messages of a batch. Without index acks,
                  the client tracks the acknowledged messages of a batch, and groups the batch's ack when all its
                  messages are acknowledged. A message that arrives again while its ack is grouped is dropped
    redelivery    A Shared subscription redelivers single entries. An Exclusive subscription redelivers all
                  unacknowledged messages, and the client drops the messages in its receiver queue and in flight
    CLOSE         A handler tries once to connect to the URL of the command, without lookup. If there is no URL, or this
                  attempt fails, the handler looks the topic up
    refusal       After a retryable refusal of PRODUCER or SUBSCRIBE, also of the first one, a handler looks the topic
                  up, and sends the command again

The reference differs from shipped versions in rules of `Config` (see `fuzz/defects/`). The broker's commands, except
stray replies (`stray_reply`), reach a handler in order, and the producer's sends reach the broker in order. FLOW, ACK
and REDELIVER reach the broker at once. A broker without a session of the handler ignores these three commands.

Not modelled: time (a delay may end at any step), lookups and their redirects, operation timeouts, names of brokers (the
log is shared; `model/bundle_transfer` has fencing), the delay of negative acks (`model/negative_acks`), chunks,
transactions, dead letters, seek, other consumers (only their acks), ids that an application deserializes.
"""

from __future__ import annotations

import model.client_session.handlers  # noqa: F401  (it adds the actions to the machine)
from model.client_session.state import Config, client_session

__all__ = ["client_session", "reference"]

reference = client_session.profile("reference", "the protocol as the documentation and PIP-307 state it", Config())

# The source of the C++ client 4.2.0 differs from its profile in five cases, which no experiment has shown yet:
#   * the consumer drops its receiver queue after SUBSCRIBE is answered, not before
#     (`ConsumerImpl::handleCreateConsumer`);
#   * after its creation, a consumer retries every refusal, and a producer all but ProducerFenced and TopicTerminated;
#   * a CLOSE during the first request cancels nothing (`HandlerBase::grabCnx`); in the profile, it cancels the request;
#   * a ChecksumError of a later message also closes the connection. In the profile only a receipt dereferences the
#     null pointer; in the source, a reconnection and a timeout do, too (`ProducerImpl::resendMessages`,
#     `getPendingCallbacksWhenFailed`);
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
