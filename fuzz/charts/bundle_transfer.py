"""The sequence chart of a transfer: clients, brokers, the bookies and the channel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.charts import Chart
from invariants.properties import Event
from model.bundle_transfer.state import Command, Config, Record, State
from model.machine import Failed

#: By action, the roles of sender and receiver. `peer` is the broker in `Client.peer`.
ARROWS = {
    **dict.fromkeys(("transfer", "override", "override_stuck"), ("channel", "channel")),
    **dict.fromkeys(("deliver", "jump"), ("channel", "broker")),
    **dict.fromkeys(("publish", "fail_publish", "close_timeout"), ("broker", "channel")),
    **dict.fromkeys(("crash", "restart", "lose_session", "register", "disconnect", "clean_up"), ("broker", "broker")),
    **dict.fromkeys(("begin_load", "open_topic", "close_ledger", "fail_close"), ("broker", "bookies")),
    **dict.fromkeys(("confirm", "fail_add"), ("bookies", "broker")),
    "lookup": ("client", "broker"),
    "send": ("client", "client"),
    **dict.fromkeys(("connect", "process", "break_connection"), ("client", "peer")),
    **dict.fromkeys(("answer", "receive"), ("peer", "client")),
    "admit": ("peer", "peer"),
    "dispatch": ("bookies", "peer"),
}
#: By action, the text at its arrow, if the text is not the action's name.
TEXTS = {
    "lose_session": "loses its session",
    "close_ledger": "close ledger",
    "fail_close": "close fails",
    "begin_load": "begin load",
    "open_topic": "fence, open a ledger",
    "fail_add": "add fails",
    "close_timeout": "close times out",
    "fail_publish": "append fails",
    "disconnect": "close the clients' sessions",
    "clean_up": "clean up",
    "break_connection": "connection breaks",
}


def client_of(cfg: Config, topic: int, client: int) -> str:
    """Returns the name of a client as an actor."""
    kind = f"producer {client}" if client < cfg.producers else "consumer"
    return kind if cfg.topics == 1 else f"{kind} of topic {topic}"


def actors(cfg: Config, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Returns the actors with their headings: clients, brokers, bookies, channel.

    Broker 0, the first owner of the bundle, has the heading "source". The first other broker that an action names as
    the next owner has the heading "destination". Any further broker has the heading "spare".
    """
    pairs = itertools.product(range(cfg.topics), range(cfg.producers + cfg.consumers))
    clients = [client_of(cfg, topic, client) for topic, client in pairs]
    owners = [args.get("dst", args.get("owner")) for _, args in calls if "dst" in args or "owner" in args]
    destination = next((broker for broker in owners if broker), None)  # neither None nor broker 0
    headings = {
        f"broker {broker}": f"{'source' if broker == 0 else 'destination' if broker == destination else 'spare'} "
        f"(broker {broker})"
        for broker in range(cfg.brokers)
    }
    return {**dict(zip(clients, clients, strict=True)), **headings, "bookies": "bookies", "channel": "channel"}


def roles(cfg: Config, s: State, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns the actor of each role in a step."""
    found = {"channel": "channel", "bookies": "bookies"}
    if "broker" in arguments:
        found["broker"] = f"broker {arguments['broker']}"
    topic, client = arguments.get("topic", 0), arguments.get("client")
    if client is not None and client < len(s.topics[topic].clients):
        found["client"] = client_of(cfg, topic, client)
        peer = s.topics[topic].clients[client].peer
        found |= {"peer": f"broker {peer}"} if peer is not None else {}
    return found


def record_text(r: Record) -> str:
    """Returns a record as text: its state, owner or destination, source, and whether the record is forced."""
    brokers = str(r.dst) if r.source is None else f"{r.dst}, {r.source}"
    return f"{r.state.capitalize()}({brokers}){', forced' if r.forced else ''}"


def command_text(command: Command) -> str:
    """Returns a broker's command to a client as text."""
    if command.kind == "close":
        return "close, look up" if command.value is None else f"close, connect to {command.value}"
    kind = "entry" if command.kind == "message" else command.kind
    return kind if command.value is None else f"{kind} {command.value}"


def text(cfg: Config, s: State, event: Event, after: State) -> str:
    """Returns the text at the arrow of a step."""
    name, arguments, outcome = event
    if len(after.records) > len(s.records):
        return record_text(after.records[-1])
    broker, client = arguments.get("broker"), arguments.get("client")
    if name in ("deliver", "jump") and broker is not None:
        return record_text(after.records[after.brokers[broker].view])
    if name == "publish":
        return "a stale record, skipped"
    if client is None:
        words = TEXTS.get(name, name.replace("_", " "))
        if name != "confirm" or not isinstance(outcome, int):
            return words
        is_stored = after.topics[arguments["topic"]].log != s.topics[arguments["topic"]].log
        return f"message {outcome} {'stored' if is_stored else 'is lost'}"
    c = s.topics[arguments["topic"]].clients[client]
    if name == "receive":
        return command_text(c.down[0])
    if name == "process":  # `up` has sequence ids, or numbers of acknowledged entries
        sent = f"message {c.up[0]}" if client < cfg.producers else f"ack of entry {c.up[0] - 1}"
        return f"{sent}: {outcome}"
    if name == "admit":
        return f"answers {client_of(cfg, arguments['topic'], client)}"
    if name == "connect":
        if isinstance(outcome, Failed):
            return "broker is down"
        return "PRODUCER" if client < cfg.producers else "SUBSCRIBE"
    words = TEXTS.get(name, name)
    if name in ("send", "dispatch"):
        return f"{words} {'message' if name == 'send' else 'entry'} {outcome}"
    return words if outcome is None or isinstance(outcome, Failed) else f"{words}: {outcome}"


chart = Chart(actors, ARROWS, roles, text, without_effect=("ignored",))
