"""How the loopback brokers answer commands of consumers. A method `_kind` answers the command KIND.

A FLOW, ACK or REDELIVER is ignored if the consumer has no session, or if the connection's broker does not serve
(`cluster.py`). An ACK is also ignored by order.
"""

from __future__ import annotations

from typing import Any

from fuzz.client.answer import Answer
from fuzz.client.cluster import Cluster, close_command
from fuzz.client.topic import EXCLUSIVE, FAILOVER, Connection, Consumer, Subscription, Topic
from fuzz.client.wire import ServerError, Type, command_of


class Consumers(Cluster):
    """Brokers that also answer the commands of consumers."""

    def _subscribe(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "SUBSCRIBE", [body.consumer_id, body.subscription, body.type])
        if body.type > FAILOVER:  # Key_Shared: no scenario has it
            self._fail(connection, body, ServerError.NOT_ALLOWED)
            return
        if not self._admit(connection, "SUBSCRIBE", body):
            return
        topic, key = self.topic(body.topic), (connection.number, body.consumer_id)
        if key in topic.consumers:  # the consumer has a session on this connection: the new session replaces it
            topic.remove(*topic.consumers.pop(key))
        first = 0 if body.initial_position == 1 else len(topic.log)  # 1 is Earliest
        if body.HasField("start_message_id"):
            # a reader starts after the entry of this id; if the id has a batch index, it starts with this entry
            start_id = body.start_message_id
            first = topic.first_from(start_id, after=not start_id.HasField("batch_index") or start_id.batch_index < 0)
        is_durable = body.durable or not body.HasField("durable")  # the protocol's default is true
        subscription = topic.subscription(body.subscription, body.type, first, is_durable=is_durable)
        if subscription.sub_type == EXCLUSIVE and subscription.consumers:
            self._fail(connection, body, ServerError.CONSUMER_BUSY)
            return
        self.newest_session += 1
        consumer = Consumer(connection, body.consumer_id, body.consumer_name, self.newest_session)
        subscription.attach(consumer)
        topic.consumers[key] = subscription, consumer
        order = self._use_order(connection, "SUBSCRIBE")
        if order.answer is Answer.CLOSE:
            topic.remove(*topic.consumers.pop(key))
        if order.answer is Answer.EAGER:
            subscription.flow(consumer, 1)
            subscription.dispatch(topic.log)
        self._welcome(order, consumer, command_of(Type.SUCCESS, request_id=body.request_id))

    def _consumer(self, connection: Connection, consumer_id: int) -> tuple[Topic, Subscription, Consumer] | None:
        """Returns the topic, the subscription and the consumer with this id on a connection.

        Returns None if the consumer has no session, or if the connection's broker does not serve.
        """
        if self.serving != connection.broker:
            return None
        for topic in self.topics.values():
            found = topic.consumers.get((connection.number, consumer_id))
            if found is not None:
                return topic, *found
        return None

    def _flow(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "FLOW", [body.consumer_id, body.permits])
        found = self._consumer(connection, body.consumer_id)
        if found is not None:
            topic, subscription, consumer = found
            subscription.flow(consumer, body.permits)
            subscription.dispatch(topic.log)

    def _ack(self, connection: Connection, body: Any, _: bytes) -> None:
        ids, is_cumulative = ids_of(body.message_id), body.ack_type == 1
        found = self._consumer(connection, body.consumer_id)
        if self.acks == "ignore":
            found = None
        accepted = found is not None and found[1].acknowledge(ids, cumulative=is_cumulative)
        about = {"consumer": body.consumer_id, "cumulative": is_cumulative, "ids": ids, "accepted": accepted}
        if body.HasField("validation_error"):
            about["validation_error"] = body.validation_error
        self._note(connection, "ACK", about)
        if found is not None and body.HasField("request_id"):  # the client asks for a receipt of the ack
            connection.send(command_of(Type.ACK_RESPONSE, consumer_id=body.consumer_id, request_id=body.request_id))

    def _redeliver(self, connection: Connection, body: Any, _: bytes) -> None:
        ids = ids_of(body.message_ids)
        self._note(connection, "REDELIVER", {"consumer": body.consumer_id, "ids": ids})
        found = self._consumer(connection, body.consumer_id)
        if found is not None:
            topic, subscription, consumer = found
            subscription.redeliver(consumer, ids)
            subscription.dispatch(topic.log)

    def _close_consumer(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "CLOSE_CONSUMER", body.consumer_id)
        self._forget_consumer(connection, body.consumer_id)
        connection.send(command_of(Type.SUCCESS, request_id=body.request_id))

    def _unsubscribe(self, connection: Connection, body: Any, _: bytes) -> None:
        self._note(connection, "UNSUBSCRIBE", body.consumer_id)
        for topic in self.topics.values():
            if (connection.number, body.consumer_id) in topic.consumers:
                subscription = topic.consumers[connection.number, body.consumer_id][0]
                topic.subscriptions = {n: each for n, each in topic.subscriptions.items() if each is not subscription}
        self._forget_consumer(connection, body.consumer_id)
        connection.send(command_of(Type.SUCCESS, request_id=body.request_id))

    def _forget_consumer(self, connection: Connection, consumer_id: int) -> None:
        """Ends the session of a consumer, if there is one, and redelivers its pending entries to other consumers."""
        for topic in self.topics.values():
            if (connection.number, consumer_id) in topic.consumers:
                subscription, consumer = topic.consumers.pop((connection.number, consumer_id))
                topic.remove(subscription, consumer)
                subscription.dispatch(topic.log)

    def _seek(self, connection: Connection, body: Any, _: bytes) -> None:
        """Resets the cursor. Sends CLOSE to the subscription's consumers, then SUCCESS. An order can change this.

        Sends ERROR instead if the consumer has no session, or if the broker does not serve.
        """
        self._note(connection, "SEEK", [body.consumer_id, body.message_id.ledger, body.message_id.entry])
        found, answer = self._consumer(connection, body.consumer_id), self._use_order(connection, "SEEK").answer
        if found is None or answer is Answer.FAIL:
            self._fail(connection, body, ServerError.METADATA_ERROR)
            return
        topic, subscription, _consumer = found
        subscription.seek(topic.first_from(body.message_id))
        reply = command_of(Type.SUCCESS, request_id=body.request_id)
        if answer in (Answer.SUCCESS_FIRST, Answer.STAY):
            connection.send(reply)
        for key, (other, consumer) in list(topic.consumers.items()):
            if other is subscription and answer is not Answer.STAY:
                topic.remove(*topic.consumers.pop(key))
                consumer.connection.send(close_command(consumer))
        if answer in (Answer.BEFORE_SUBSCRIBE, Answer.AFTER_SUBSCRIBE):
            self.seek_replies.append((answer, connection, reply))
        elif answer is Answer.FAITHFUL:
            connection.send(reply)
        topic.dispatch()

    def _consumer_stats(self, connection: Connection, body: Any, _: bytes) -> None:
        connection.send(command_of(Type.CONSUMER_STATS_RESPONSE, request_id=body.request_id))

    def _get_last_message_id(self, connection: Connection, body: Any, _: bytes) -> None:
        reply = command_of(Type.GET_LAST_MESSAGE_ID_RESPONSE, request_id=body.request_id)
        for topic in self.topics.values():  # without a session of the consumer, the reply has no message id
            if (connection.number, body.consumer_id) in topic.consumers:
                last = topic.log[-1] if topic.log else None
                found = reply.GET_LAST_MESSAGE_ID_RESPONSE.last_message_id
                # in an empty topic, both ids are -1, as unsigned integers
                found.ledger, found.entry = (last.ledger, last.entry) if last else (2**64 - 1, 2**64 - 1)
        connection.send(reply)


def ids_of(ids: Any) -> list[tuple[int, int, tuple[int, ...] | None]]:
    """Returns message ids as plain data: ledger, entry, and the words of the ack set, or None without an ack set."""
    return [(each.ledger, each.entry, tuple(each.ack_words) or None) for each in ids]
