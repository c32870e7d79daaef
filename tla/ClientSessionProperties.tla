------------------------ MODULE ClientSessionProperties ------------------------
(****************************************************************************)
(* Properties of a client's session, under the names of                     *)
(* invariants/client_session: some of its invariants, and all of its        *)
(* liveness properties.                                                     *)
(****************************************************************************)
EXTENDS ClientSession

Handlers == {"producer", "consumer"}
StoredMessages == {log[i].message : i \in DOMAIN log} \ {-1}
\* The index at which a message is first stored.
FirstIndexOf(m) == CHOOSE i \in DOMAIN log : log[i].message = m /\ \A j \in 1..i - 1 : log[j].message # m

\* The first `Reused` messages have sequence ids that an earlier producer has stored.  Below 0: no message has one.
Reused == IF deduplication /\ initial_sequence_id >= 0 THEN stored - initial_sequence_id - 1 ELSE 0

\* Every message that was reported stored is in the log, except a message with a reused sequence id.  An application
\* reuses sequence ids if it sets `initialSequenceId` below the last sequence id of an earlier producer.
ReportedMessageIsStored ==
  \A i \in DOMAIN producer.results : producer.results[i] /\ i - 1 >= Reused => i - 1 \in StoredMessages

\* Messages are first stored in the order in which they were sent.
LogKeepsSendOrder == \A m, n \in StoredMessages : m < n => FirstIndexOf(m) < FirstIndexOf(n)

\* No message is stored while an earlier message is pending and is not stored.  An earlier message with a reused
\* sequence id does not count: the broker never stores it.
StoredMessageLeavesNoGap ==
  \A i \in DOMAIN producer.pending :
    LET m == Len(producer.results) + i - 1
    IN m \notin StoredMessages /\ m >= Reused => \A n \in StoredMessages : n < m

\* With deduplication, every message and every sequence id is in the log at most once.
DeduplicatedLogHasNoDuplicate ==
  \A i, j \in DOMAIN log :
    i # j => log[i].sequence # log[j].sequence /\ (log[i].message # log[j].message \/ log[i].message = -1)

\* The sequence ids of pending messages ascend, and the next sequence id is above them.
PendingSequenceIdsAscend ==
  LET ids == Append(producer.pending, producer.next_sequence_id)
  IN \A i \in 1..Len(ids) - 1 : ids[i] < ids[i + 1]

\* No answer of the broker ends the client's process.
ClientDoesNotCrash == \A h \in Handlers : S[h].link.phase # "crashed"

\* For every ready handler, the broker has a session, or a command that ends the session is in flight.
ReadyHandlerHasSessionOrLearnsOtherwise ==
  \A h \in Handlers :
    LET link == S[h].link
        ends == {"close", "send_error", "checksum_error"}
    IN link.phase = "ready" =>
         link.session \in {"open", "ignoring"} \/ \E i \in DOMAIN link.down : link.down[i].kind \in ends

\* A refused handler looks the topic up again if the refusal is retryable, also at its first request.
RetryableRefusalIsRetried ==
  [][\A h \in Handlers :
       LET down == S[h].link.down
           isRefused == IF down = <<>> THEN FALSE ELSE down[1] = Reply("refused", 1, {})
       IN isRefused /\ S'[h].link.down # down => S'[h].link.phase = "lookup"]_vars

\* Only a ready consumer sends its grouped acks: without a session, they are lost.
FlushWaitsUntilConsumerIsReady ==
  [][(consumer.grouped # {} \/ consumer.cumulative >= 0) /\ consumer'.grouped = {} /\ consumer'.cumulative < 0 =>
       consumer.link.phase = "ready"]_vars

\* Permits at the broker, messages in flight or queued, and permits to return add up to the receiver queue size.
\* This holds while the consumer is ready and the broker has the session.
PermitsAreConserved ==
  LET c == consumer
      Cost(reply) == Cardinality(reply.messages)
  IN c.link.phase = "ready" /\ c.link.session = "open" =>
       c.permits + Sum(c.link.down, Cost) + Len(c.queue) + c.available_permits = receiver_queue_size

\* The receiver queue of an exclusive consumer has each message once, in order.
ExclusiveQueueIsInOrder == ~shared => \A i, j \in DOMAIN consumer.queue : i < j => consumer.queue[i] < consumer.queue[j]

\* While an exclusive consumer is ready and has a session, the broker's read position is after every message of the
\* consumer's receiver queue.
QueuedMessageIsNotSentAgain ==
  ~shared /\ consumer.link.phase = "ready" /\ consumer.link.session = "open" =>
    \A i \in DOMAIN consumer.queue : EntryOf(consumer.queue[i]) < consumer.read

\* A message that the client drops whenever it arrives is acknowledged at the broker, or the next flush sends its ack.
\* The client drops such messages only with `cumulative_ack_hides_for_ever`.
DroppedMessageIsAcknowledged ==
  0..consumer.covered \subseteq acked \cup consumer.grouped \cup (0..consumer.cumulative)

-----------------------------------------------------------------------------
(* Liveness: predicates that hold at some time after the switch to the fair actions (README.md, "Liveness"). *)

\* Fair for all three: Connect, Accept, Handle, Store, FinishTransfer, Dispatch, Receive, Acknowledge, Flush.  The
\* broker accepts every request and processes every command, and the application receives and acknowledges every
\* message.  No refusal, close or lost connection is fair: each may happen before the switch, but not for ever.

\* Every message that was sent is eventually reported stored or failed.
EveryMessageHasResult == producer.pending = <<>>

\* Every stored message is eventually acknowledged, or the consumer has failed, or the client has crashed.
EveryMessageIsAcknowledged ==
  Cardinality(acked) = Len(log) * batch_size \/ consumer.link.phase \in {"failed", "crashed"}

\* Every handler eventually is ready and has a session, or has failed, or the client has crashed.
HandlersAreAttached ==
  \A h \in Handlers :
    LET link == S[h].link
    IN link.phase \in {"failed", "crashed"} \/ (link.phase = "ready" /\ link.session = "open")
=============================================================================
