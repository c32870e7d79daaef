"""The sequence chart of a client's session: the application, its producer and consumer, and the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.charts import Chart
from invariants.properties import Event
from model.client_session.state import Config, Reply, State, link_of

#: By action, the roles of sender and receiver. `handler` is the handler that the action names.
ARROWS = {
    **dict.fromkeys(("connect", "fail_redirect", "break_connection"), ("handler", "broker")),
    **dict.fromkeys(("accept", "refuse", "close", "finish_transfer", "late_success"), ("broker", "broker")),
    "handle": ("broker", "handler"),
    **dict.fromkeys(("send", "time_out"), ("application", "producer")),
    **dict.fromkeys(("store", "send_error"), ("producer", "broker")),
    "stray_reply": ("broker", "producer"),
    "ignore_sends": ("broker", "broker"),
    "end_of_topic": ("broker", "consumer"),
    **dict.fromkeys(("dispatch", "dispatch_corrupt", "acknowledge_elsewhere"), ("broker", "broker")),
    "receive": ("consumer", "application"),
    **dict.fromkeys(
        ("acknowledge", "acknowledge_cumulative", "negative_acknowledge"),
        ("application", "consumer"),
    ),
    "flush": ("consumer", "broker"),
}


def actors(cfg: Config, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Returns the actors that take part in these actions, with headings: application, producer, consumer, broker."""
    names = [action for action, _ in calls]
    present = {role for action in names for role in ARROWS[action]} | {args.get("handler", "") for _, args in calls}
    return {name: name for name in ("application", "producer", "consumer", "broker") if name in present}


def roles(cfg: Config, s: State, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns the actor of each role in a step."""
    found = {name: name for name in ("application", "producer", "consumer", "broker")}
    return found | ({"handler": arguments["handler"]} if "handler" in arguments else {})


def reply_text(reply: Reply) -> str:
    """Returns a reply of the broker as text."""
    if reply.kind in ("message", "corrupt"):
        return f"{'MESSAGE' if reply.kind == 'message' else 'corrupt MESSAGE'} {', '.join(map(str, reply.messages))}"
    if reply.kind == "close":
        return f"CLOSE {'with' if reply.value else 'without'} URL"
    if reply.kind == "refused":
        return "retryable error" if reply.value else "final error"
    return f"{reply.kind.replace('_', ' ')} {reply.value}"


def text(cfg: Config, s: State, event: Event, after: State) -> str:
    """Returns the text at the arrow of a step."""
    name, arguments, outcome = event
    if name == "handle":
        return f"{reply_text(link_of(s, arguments['handler']).down[0])}: {outcome}"
    if name == "connect":
        return f"{'PRODUCER' if arguments['handler'] == 'producer' else 'SUBSCRIBE'} after {outcome}"
    if name in ("accept", "refuse", "close", "finish_transfer", "late_success"):
        return f"{name.replace('_', ' ')} {arguments['handler']}"
    if name == "store":
        sent = s.producer.up[0]
        return f"message {sent.message}, sequence id {sent.sequence}: {outcome}"
    if name == "send":
        return f"send, sequence id {outcome}"
    if name == "flush":
        return f"acks: {', '.join(map(str, (*range(s.consumer.cumulative + 1), *s.consumer.grouped)))}"
    # the arguments follow the name; a number that an action without arguments returns takes their place
    words = [name.replace("_", " "), *map(str, arguments.values())]
    return " ".join([*words, str(outcome)] if isinstance(outcome, int) and not arguments else words)


chart = Chart(actors, ARROWS, roles, text, without_effect=("duplicate", "ignored", "dropped"))
