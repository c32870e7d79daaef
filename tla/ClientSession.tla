----------------------------- MODULE ClientSession -----------------------------
(*****************************************************************************)
(* A client with one producer and one consumer, and every answer that their  *)
(* broker may give.                                                          *)
(*                                                                           *)
(* Twin of model/client_session: the same actions and settings, equal states *)
(* and steps.  Models ProducerImpl, ConsumerImpl, ConnectionHandler (in C++  *)
(* HandlerBase) and PersistentAcknowledgmentsGroupingTracker (in C++         *)
(* AckGroupingTrackerEnabled).  The producer and the consumer are handlers.  *)
(*                                                                           *)
(* Step grain: one call of the application, one command handled by the       *)
(* client, or one command processed by the broker.                           *)
(*                                                                           *)
(*   messages  of the consumer are numbered from 0 through all entries;      *)
(*             entries are numbered from 0                                   *)
(*   sends     are numbered from 0; a message of the log has the number of   *)
(*             its send, or -1 if an earlier producer sent it                *)
(*   link      [phase, created, session, down]: the phase of a handler,      *)
(*             whether it has been ready, its session at the broker, and the *)
(*             commands in flight to it; the model explains the values       *)
(*   command   [kind, value, messages]                                       *)
(*                                                                           *)
(* Not modelled: return values, and what the model does not model.           *)
(*****************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  \* Settings, and rules in which clients differ.  Config in model/client_session/state.py explains them.
  deduplication, stored, initial_sequence_id, max_pending_messages, receiver_queue_size, batch_size, index_acks, shared,
  reconnection_restarts_sequence_ids, checksum_error_takes_oldest, checksum_error_ends_session,
  unknown_command_disconnects, cumulative_ack_hides_for_ever, tracker_uses_ack_set, filtered_messages_return_permits,
  flush_waits_for_session, close_cancels_request, corrupt_batch_returns_all_permits, first_subscribe_is_retried,
  redelivery_of_all_clears_queue,
  \* The values of the actions' arguments.
  handler, redirect, retryable, checksum, kind, sequence, message

VARIABLES
  log,       \* the entries of the topic: [message, sequence], the sequence id last
  acked,     \* the acknowledged messages of the subscription
  producer,  \* link
             \*   published: lastSequenceIdPublished; next_sequence_id
             \*   pending: sequence ids without result; results: of each completed send, whether it succeeded
             \*   up: sends in flight to the broker
             \*   damaged: the first slot of the pending queue is null (checksum_error_takes_oldest)
  consumer   \* link
             \*   at the broker: permits, read (the read position), replay (entries to redeliver)
             \*   queue: incomingMessages; available_permits: permits that the next FLOW returns
             \*   taken: messages that the application has received, and has not acked or nacked
             \*   tracked: acked messages of partly acked batches
             \*   grouped, cumulative: acks that the next flush sends
             \*   covered: the highest cumulative ack that was sent (cumulative_ack_hides_for_ever)

vars == <<log, acked, producer, consumer>>

\* All variables, as one record.
S == [log |-> log, acked |-> acked, producer |-> producer, consumer |-> consumer]
-----------------------------------------------------------------------------
(* Reading and changing states. *)

Max(a, b) == IF a > b THEN a ELSE b
Sum(s, Of(_)) ==
  LET RECURSIVE To(_)
      To(n) == IF n = 0 THEN 0 ELSE To(n - 1) + Of(s[n])
  IN To(Len(s))

\* The numbers of a set in ascending order.
RECURSIVE InOrder(_)
InOrder(set) ==
  IF set = {} THEN <<>> ELSE LET least == CHOOSE n \in set : \A m \in set : n <= m
                             IN <<least>> \o InOrder(set \ {least})

Entry(m, id) == [message |-> m, sequence |-> id]
Reply(word, value, messages) == [kind |-> word, value |-> value, messages |-> messages]
Number(bool) == IF bool THEN 1 ELSE 0

MessagesOf(entry) == entry * batch_size..(entry + 1) * batch_size - 1
EntryOf(m) == m \div batch_size
Unacked(s, entry) == MessagesOf(entry) \ s.acked

WithReply(s, h, reply, session) == [s EXCEPT ![h].link.down = Append(@, reply), ![h].link.session = session]
WithNextReply(s, h) == [s EXCEPT ![h].link.down = Tail(@)]

\* The state after a handler lost or gave up its connection: the commands in flight in both directions are lost.
Disconnected(s, h, phase) ==
  LET left == [s EXCEPT ![h].link = [@ EXCEPT !.phase = phase, !.session = "none", !.down = <<>>]]
  IN IF h = "producer" THEN [left EXCEPT !.producer.up = <<>>]
     ELSE [left EXCEPT !.consumer = [@ EXCEPT !.permits = 0, !.read = 0, !.replay = {}]]

\* The highest sequence id of the producer that the broker knows; -1 without deduplication.
LastSequenceId(s) ==
  LET ids == {s.log[i].sequence : i \in DOMAIN s.log}
  IN IF deduplication /\ ids # {} THEN CHOOSE id \in ids : \A other \in ids : other <= id ELSE -1

\* The canonical form resets values that no later step reads: without a session, read position, permits and replay; and
\* `published`, unless reconnection_restarts_sequence_ids reads it.  The read position of a ready consumer is moved past
\* acknowledged entries.
Canonical(s) ==
  LET c == s.consumer
      unread == {entry \in c.read..Len(s.log) - 1 : Unacked(s, entry) # {}}
      read == IF unread # {} THEN CHOOSE n \in unread : \A m \in unread : n <= m ELSE Max(c.read, Len(s.log))
  IN [s EXCEPT !.producer.published = IF reconnection_restarts_sequence_ids THEN @ ELSE -1,
               !.consumer = IF c.link.session # "open" THEN [@ EXCEPT !.permits = 0, !.read = 0, !.replay = {}]
                            ELSE IF c.link.phase = "ready" THEN [@ EXCEPT !.read = read] ELSE @]

\* Makes the canonical form of a state the next state.
Become(given) ==
  \E s \in {Canonical(given)} :
    log' = s.log /\ acked' = s.acked /\ producer' = s.producer /\ consumer' = s.consumer

Init ==
  LET link == [phase |-> "lookup", created |-> FALSE, session |-> "none", down |-> <<>>]
  IN /\ log = [i \in 1..stored |-> Entry(-1, i - 1)]
     /\ acked = {}
     /\ producer = [link |-> link, published |-> -1, next_sequence_id |-> 0, pending |-> <<>>, results |-> <<>>,
                    up |-> <<>>, damaged |-> FALSE]
     /\ consumer = [link |-> link, permits |-> 0, read |-> 0, replay |-> {}, queue |-> <<>>, available_permits |-> 0,
                    taken |-> {}, tracked |-> {}, grouped |-> {}, cumulative |-> -1, covered |-> -1]

-----------------------------------------------------------------------------
(* Handlers. *)

\* A handler sends PRODUCER or SUBSCRIBE.  A consumer drops its receiver queue and the permits to return.
Connect ==
  \E h \in handler :
    LET sent == [S EXCEPT ![h].link = [@ EXCEPT !.phase = "waiting", !.session = "requested"]]
    IN /\ S[h].link.phase \in {"lookup", "redirected"}
       /\ Become(IF h = "producer" THEN sent
                 ELSE [sent EXCEPT !.consumer = [@ EXCEPT !.queue = <<>>, !.available_permits = 0]])
FailRedirect ==
  \E h \in handler : S[h].link.phase = "redirected" /\ Become([S EXCEPT ![h].link.phase = "lookup"])

\* The broker answers PRODUCER or SUBSCRIBE: with success (Accept), with success after it closed the request
\* (LateSuccess), or with an error (Refuse).
Success(h) == Reply("success", IF h = "producer" THEN LastSequenceId(S) ELSE 0, {})
Accept == \E h \in handler : S[h].link.session = "requested" /\ Become(WithReply(S, h, Success(h), "open"))
LateSuccess == \E h \in handler : S[h].link.session = "closed" /\ Become(WithReply(S, h, Success(h), "none"))
Refuse ==
  \E h \in handler, again \in retryable :
    S[h].link.session = "requested" /\ Become(WithReply(S, h, Reply("refused", Number(again), {}), "none"))
\* The broker closes a session or an unanswered request, with or without the URL of another broker.
Close ==
  \E h \in handler, url \in redirect :
    LET session == S[h].link.session
    IN /\ session \in {"requested", "open"}
       /\ Become(WithReply(S, h, Reply("close", Number(url), {}), IF session = "requested" THEN "closed" ELSE "none"))
\* The broker closes a session whose sends it ignores.
FinishTransfer ==
  \E h \in handler, url \in redirect :
    S[h].link.session = "ignoring" /\ Become(WithReply(S, h, Reply("close", Number(url), {}), "none"))
BreakConnection ==
  \E h \in handler : S[h].link.phase \in {"waiting", "ready"} /\ Become(Disconnected(S, h, "lookup"))

\* REACHED_END_OF_TOPIC: a client that does not know this command closes the connection.  Any other client does nothing.
EndOfTopic ==
  LET left == Disconnected(S, "consumer", "lookup")
  IN /\ consumer.link.phase = "ready" /\ consumer.link.session = "open"
     /\ Become(IF ~unknown_command_disconnects THEN S
               ELSE IF producer.link.phase \in {"waiting", "ready"} THEN Disconnected(left, "producer", "lookup")
               ELSE left)

-----------------------------------------------------------------------------
(* The producer. *)

WithoutPending(s) ==
  [s EXCEPT !.producer = [@ EXCEPT !.pending = <<>>, !.results = @ \o [i \in DOMAIN s.producer.pending |-> FALSE],
                                   !.damaged = FALSE]]
WithResult(s, result) == [s EXCEPT !.producer.pending = Tail(@), !.producer.results = Append(@, result)]

\* PRODUCER_SUCCESS: the first one determines the next sequence id; with `restarts`, a later one, too.  After each one,
\* the client sends all pending messages.  `last` is the sequence id in the reply; `again`: the producer has been ready
\* before.
Created(s, last, again) ==
  LET p == s.producer
      isSet == initial_sequence_id >= 0
      restarts == reconnection_restarts_sequence_ids /\ p.published = -1 /\ ~isSet
      published == IF ~again /\ isSet THEN initial_sequence_id ELSE IF ~again \/ restarts THEN last ELSE p.published
      next == IF ~again \/ restarts THEN published + 1 ELSE p.next_sequence_id
      sent == [i \in DOMAIN p.pending |-> Entry(Len(p.results) + i - 1, p.pending[i])]
  IN [s EXCEPT !.producer = [@ EXCEPT !.published = published, !.next_sequence_id = next, !.up = sent]]

\* A receipt.  The receipt of the oldest pending message completes this message.  A receipt of a later message closes
\* the connection.  Any other receipt is ignored.  If the queue is damaged, every receipt crashes the client.
Receipted(s, id) ==
  LET pending == s.producer.pending
  IN IF s.producer.damaged THEN [s EXCEPT !.producer.link.phase = "crashed", !.consumer.link.phase = "crashed"]
     ELSE IF pending = <<>> THEN s
     ELSE IF id < pending[1] THEN s
     ELSE IF id > pending[1] THEN Disconnected(s, "producer", "lookup")
     ELSE [WithResult(s, TRUE) EXCEPT !.producer.published = Max(@, id)]

\* A ChecksumError.  An error of the oldest pending message fails this message.  Rules decide what any other error does,
\* and whether the connection ends.
ChecksumError(s, id) ==
  LET pending == s.producer.pending
      left == Disconnected(s, "producer", "lookup")
      failed == WithResult(s, FALSE)
  IN IF pending = <<>> THEN IF checksum_error_ends_session THEN left ELSE s
     ELSE IF id = pending[1]
     THEN IF checksum_error_ends_session THEN Disconnected(failed, "producer", "lookup") ELSE failed
     ELSE IF checksum_error_takes_oldest THEN [s EXCEPT !.producer.damaged = TRUE]
     ELSE IF checksum_error_ends_session \/ id > pending[1] THEN left ELSE s

\* A producer that is not ready sends the message after its next PRODUCER_SUCCESS.
Send ==
  LET p == producer
      id == p.next_sequence_id
      up == IF p.link.phase = "ready" THEN Append(p.up, Entry(Len(p.results) + Len(p.pending), id)) ELSE p.up
  IN /\ p.link.created /\ p.link.phase \notin {"failed", "crashed"}
     /\ Len(p.pending) < max_pending_messages
     /\ Become([S EXCEPT !.producer = [@ EXCEPT !.next_sequence_id = id + 1, !.pending = Append(@, id), !.up = up]])
TimeOut == producer.pending # <<>> /\ producer.link.phase # "crashed" /\ Become(WithoutPending(S))

\* The broker takes the next send, and stores it or reports an error.
WithoutNextSend == [S EXCEPT !.producer.up = Tail(@)]
\* Whether the broker has a send to process.
IsProcessing == producer.link.session = "open" /\ producer.up # <<>>
Store ==
  LET entry == producer.up[1]
      receipted == WithReply(WithoutNextSend, "producer", Reply("receipt", entry.sequence, {}), "open")
  IN /\ IsProcessing
     /\ Become(IF entry.sequence <= LastSequenceId(S) THEN receipted ELSE [receipted EXCEPT !.log = Append(@, entry)])
SendError ==
  \E isChecksum \in checksum :
    LET reply == Reply(IF isChecksum THEN "checksum_error" ELSE "send_error", producer.up[1].sequence, {})
        session == IF checksum_error_ends_session \/ ~isChecksum THEN "ignoring" ELSE "open"
    IN IsProcessing /\ Become(WithReply(WithoutNextSend, "producer", reply, session))
\* The broker begins to ignore sends, because a transfer has begun.
IgnoreSends == producer.link.session = "open" /\ Become([S EXCEPT !.producer.link.session = "ignoring"])
\* The client handles a reply that does not name the oldest pending message.
StrayReply ==
  \E word \in kind, id \in sequence :
    /\ producer.link.phase = "ready"
    /\ IF producer.pending = <<>> THEN TRUE ELSE id # producer.pending[1]
    /\ Become(IF word = "receipt" THEN Receipted(S, id) ELSE ChecksumError(S, id))

-----------------------------------------------------------------------------
(* The consumer. *)

\* The client sends FLOW once it has half of the receiver queue to return.
WithReturned(s, permits) ==
  LET c == s.consumer
      available == c.available_permits + permits
      flows == c.link.phase = "ready" /\ available >= Max(1, receiver_queue_size \div 2)
      granted == IF flows /\ c.link.session = "open" THEN available ELSE 0
  IN [s EXCEPT !.consumer = [@ EXCEPT !.available_permits = IF flows THEN 0 ELSE available, !.permits = @ + granted]]

\* An ack reaches the broker.  Without a session, the broker ignores the ack.
AckedAtBroker(s, messages) ==
  LET done == [s EXCEPT !.acked = @ \cup messages]
  IN IF s.consumer.link.session # "open" THEN s
     ELSE [done EXCEPT !.consumer.replay = {entry \in @ : Unacked(done, entry) # {}}]

\* The broker delivers the next entry with unacknowledged messages: the first entry to redeliver, or else the first
\* unread entry.
Waiting(among) == {entry \in among : Unacked(S, entry) # {}}
First(set) == CHOOSE n \in set : \A m \in set : n <= m
Delivered(word) ==
  LET again == Waiting(consumer.replay)
      unread == Waiting(consumer.read..Len(log) - 1)
      entry == First(IF again # {} THEN again ELSE unread)
      messages == Unacked(S, entry)
      reply == Reply(word, entry, messages)
      charged == [S EXCEPT !.consumer = [@ EXCEPT !.permits = @ - Cardinality(messages), !.replay = @ \ {entry},
                                                  !.read = Max(@, entry + 1)]]
  IN /\ consumer.link.session = "open" /\ consumer.permits > 0
     /\ again \cup unread # {}
     /\ Become(WithReply(charged, "consumer", reply, "open"))
Dispatch == Delivered("message")
DispatchCorrupt == Delivered("corrupt")

\* Another consumer of the subscription acknowledges a message.
AcknowledgeElsewhere ==
  \E m \in message :
    /\ consumer.link.session # "open" /\ m < Len(log) * batch_size /\ m \notin acked
    /\ Become([S EXCEPT !.acked = @ \cup {m}])

\* The client receives an entry.  It drops messages whose acks are grouped or covered by a cumulative ack, and returns
\* their permits.
MessageReceived(s, reply) ==
  LET c == s.consumer
      fresh == {m \in reply.messages \ c.grouped : m > Max(c.cumulative, c.covered)}
      batch == MessagesOf(reply.value)
      filtered == IF tracker_uses_ack_set THEN batch \ reply.messages ELSE {}
      tracked == IF fresh # {} /\ ~index_acks THEN (c.tracked \ batch) \cup filtered ELSE c.tracked
      dropped == Cardinality(reply.messages) - Cardinality(fresh)
                 + IF filtered_messages_return_permits THEN batch_size - Cardinality(reply.messages) ELSE 0
  IN WithReturned([s EXCEPT !.consumer = [@ EXCEPT !.queue = @ \o InOrder(fresh), !.tracked = tracked]], dropped)
CorruptReceived(s, reply) ==
  WithReturned(AckedAtBroker(s, reply.messages),
               IF corrupt_batch_returns_all_permits THEN Cardinality(reply.messages) ELSE 1)

Receive ==
  LET taken == [S EXCEPT !.consumer = [@ EXCEPT !.queue = Tail(@), !.taken = @ \cup {consumer.queue[1]}]]
  IN consumer.queue # <<>> /\ consumer.link.phase # "crashed" /\ Become(WithReturned(taken, 1))

\* An individual ack.  Without index_acks, the messages of a batch are grouped when all of them are acked.
Acknowledge ==
  \E m \in message :
    LET c == [consumer EXCEPT !.taken = @ \ {m}]
        batch == MessagesOf(EntryOf(m))
        tracked == c.tracked \cup {m}
    IN /\ m \in consumer.taken
       /\ Become([S EXCEPT !.consumer =
            IF index_acks THEN [c EXCEPT !.grouped = @ \cup {m}]
            ELSE IF batch \subseteq tracked
            THEN [c EXCEPT !.tracked = tracked \ batch, !.grouped = @ \cup batch]
            ELSE [c EXCEPT !.tracked = tracked]])

\* A cumulative ack.  Without index_acks, the ack includes the batch of m only if all its messages are acked; otherwise
\* the ack ends before the batch.
AcknowledgeCumulative ==
  \E m \in message :
    LET batch == MessagesOf(EntryOf(m))
        tracked == IF index_acks THEN consumer.tracked ELSE consumer.tracked \cup {n \in batch : n <= m}
        last == IF index_acks THEN m
                ELSE EntryOf(m) * batch_size + (IF batch \subseteq tracked THEN batch_size ELSE 0) - 1
        After(set, n) == {each \in set : each > n}
    IN /\ ~shared /\ m \in consumer.taken
       /\ Become([S EXCEPT !.consumer =
            [@ EXCEPT !.taken = After(@, m), !.tracked = After(tracked, last), !.grouped = After(@, last),
                      !.cumulative = Max(@, last)]])

\* Sends the grouped acks of a ready consumer; without flush_waits_for_session, also of one that is not ready, unless it
\* has failed or crashed.  The broker ignores the acks if it has no session of the consumer.
Flush ==
  LET c == consumer
      sent == AckedAtBroker(S, c.grouped \cup (0..c.cumulative))
      covered == IF cumulative_ack_hides_for_ever THEN Max(c.covered, c.cumulative) ELSE -1
      waits == c.link.phase # "ready" /\ (flush_waits_for_session \/ c.link.phase \in {"failed", "crashed"})
  IN /\ ~waits /\ ~(c.grouped = {} /\ c.cumulative < 0)
     /\ Become([sent EXCEPT !.consumer = [@ EXCEPT !.grouped = {}, !.cumulative = -1, !.covered = covered]])

\* The consumer drops its receiver queue and the messages in flight, which belong to an older consumer epoch.
WithoutQueue(s) ==
  LET IsOther(reply) == reply.kind \notin {"message", "corrupt"}
      Cost(reply) == Cardinality(reply.messages)
      permits == Len(s.consumer.queue) + Sum(s.consumer.link.down, Cost)
  IN WithReturned([s EXCEPT !.consumer.link.down = SelectSeq(@, IsOther), !.consumer.queue = <<>>], permits)

\* A shared subscription redelivers the entry of the message, any other subscription all unacknowledged messages.
NegativeAcknowledge ==
  \E m \in message :
    LET rejected == [S EXCEPT !.consumer.taken = @ \ {m}]
        isOpen == consumer.link.session = "open"
        entry == EntryOf(m)
        again == isOpen /\ entry < consumer.read /\ Unacked(S, entry) # {}
        rewound == IF isOpen THEN [rejected EXCEPT !.consumer.read = 0] ELSE rejected
    IN /\ m \in consumer.taken
       /\ Become(IF consumer.link.phase # "ready" THEN rejected
                 ELSE IF shared THEN IF again THEN [rejected EXCEPT !.consumer.replay = @ \cup {entry}] ELSE rejected
                 ELSE IF redelivery_of_all_clears_queue THEN WithoutQueue(rewound) ELSE rewound)

-----------------------------------------------------------------------------
(* Replies. *)

\* A refusal.  If it is retryable (`again`), the handler looks the topic up again; otherwise the handler has failed.
\* Without first_subscribe_is_retried, a consumer that has never been ready fails in either case.
Refused(s, h, again) ==
  LET failed == Disconnected(s, h, "failed")
  IN IF again /\ (first_subscribe_is_retried \/ h = "producer" \/ s.consumer.link.created)
     THEN Disconnected(s, h, "lookup")
     ELSE IF h = "producer" THEN WithoutPending(failed) ELSE failed

Subscribed(s) ==
  [s EXCEPT !.consumer.permits = IF s.consumer.link.session = "open" THEN receiver_queue_size ELSE 0]

\* A handler handles the next command.  Without close_cancels_request, a handler that reconnects ignores a close.
Handle ==
  \E h \in handler :
    LET link == S[h].link
        reply == link.down[1]
        s == WithNextReply(S, h)
        ready == [s EXCEPT ![h].link = [@ EXCEPT !.phase = "ready", !.created = TRUE]]
        isKept == link.phase = "waiting" /\ link.created /\ ~close_cancels_request
    IN /\ link.down # <<>> /\ link.phase \notin {"failed", "crashed"}
       /\ Become(CASE reply.kind = "success" ->
                        IF h = "producer" THEN Created(ready, reply.value, link.created) ELSE Subscribed(ready)
                   [] reply.kind = "refused" -> Refused(s, h, reply.value = 1)
                   [] reply.kind = "close" ->
                        IF isKept THEN s ELSE Disconnected(s, h, IF reply.value = 1 THEN "redirected" ELSE "lookup")
                   [] reply.kind = "receipt" -> Receipted(s, reply.value)
                   [] reply.kind = "checksum_error" -> ChecksumError(s, reply.value)
                   [] reply.kind = "send_error" -> Disconnected(s, h, "lookup")
                   [] reply.kind = "message" -> MessageReceived(s, reply)
                   [] reply.kind = "corrupt" -> CorruptReceived(s, reply))

-----------------------------------------------------------------------------
(* Measures that a scope bounds, so that there are finitely many states. *)

EntriesAtMost(n) == Len(log) <= n
SentAtMost(n) == Len(producer.results) + Len(producer.pending) <= n
=============================================================================
