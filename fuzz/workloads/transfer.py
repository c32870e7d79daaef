"""A transfer of one bundle under each variant of the protocol, measured on runs of the model.

Each topic has a producer, which sends a message in every round, and a consumer. In a round, the objects, clients and
ledger of every topic take each step that is possible at the beginning of the round, and every broker publishes or reads
one record. So the rounds of a transfer depend on the number of topics only by the limit LOADS. Topics in equal states
take equal steps. Such topics are a `Kind`: only one topic of a kind is run, and the number of its topics is stored.

    client_lookups      lookups that brokers receive
    publish_gap_steps   rounds (not steps of the model) from the last message that the source confirms to the first
                        message that the destination confirms; the maximum over the topics
    ignored_sends       messages that reach the source and are neither stored nor answered
    channel_appends     records that brokers append to the channel
    client_commands     commands of the protocol to clients: close and prepare
    exposure            for a crash of source or destination before each round of the transfer, with a spare broker that
                        takes over: clients attached after the crash to a topic that is not open, lookups up to two
                        rounds after every producer publishes again, the publish gap of the recovery, and messages
                        stored twice
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from fuzz.workloads import Cell, Workload
from model.bundle_transfer.machine import bundle_transfer
from model.bundle_transfer.state import Config, State, Topic, TopicObject, is_attached
from model.machine import Refused

POLICIES = ("V0", "V1a", "V1b", "V2", "V3", "V4")
#: `maxConcurrentTopicLoadRequest`: the topics that a broker begins to load in one round, at most.
LOADS = 5_000
SOURCE, DESTINATION, SPARE = 0, 1, 2
Count = Annotated[int, msgspec.Meta(ge=0)]
#: The most messages that a producer has pending. So at most this many messages of a producer can be ignored.
WINDOW = 8
#: Rounds before the transfer begins, in which messages come to be in flight; rounds after which a run counts as stuck.
_WARM_UP, _MOST = 12, 100
#: Actions of a topic's brokers, and of its clients, in the order in which a round takes them.
_OF_BROKER = ("confirm", "close_ledger", "disconnect", "clean_up", "begin_load", "open_topic")
_OF_CLIENT = ("process", "dispatch", "receive", "answer", "connect", "admit", "lookup", "send")


class Exposure(msgspec.Struct):
    """A crash before a round of the transfer, and the recovery. The module describes the counts."""

    crashed: str  # source or destination
    round: Count  # rounds since the transfer began
    record: str  # the newest record of the channel at the crash
    fenced_clients: Count
    client_lookups: Count
    publish_gap_steps: Count
    duplicates: Count


class Row(msgspec.Struct):
    """The costs of a transfer under a policy. `worst_...` is the maximum over `exposure`."""

    policy: str
    topics: Count
    deduplication: bool
    client_lookups: Count
    publish_gap_steps: Count
    ignored_sends: Count
    channel_appends: Count
    client_commands: Count
    worst_fenced_clients: Count
    worst_recovery_lookups: Count
    worst_recovery_gap: Count
    worst_duplicates: Count
    exposure: list[Exposure]


class Kind(NamedTuple):
    """Topics that are equal in all these fields."""

    topic: Topic
    confirmed: int  # the round of the last confirmed message
    gap: int  # the longest publish gap so far; 0: the writer has not changed
    writer: int  # the broker that confirmed last; -1: none since a crash


class Run(NamedTuple):
    """A bundle of many topics after some rounds. `records` and `brokers` are those of the model's state."""

    cfg: Config
    records: tuple[Any, ...]
    brokers: tuple[Any, ...]
    kinds: tuple[tuple[Kind, int], ...]  # each kind with its number of topics
    round: int
    counts: Counter[str]  # of appends, commands, lookups and ignored sends


def first_run(cfg: Config, topics: int) -> Run:
    """Returns a run of a bundle in the initial state of the model."""
    s = bundle_transfer.start(cfg._replace(topics=1))
    return Run(cfg, s.records, s.brokers, ((Kind(s.topics[0], 0, 0, SOURCE), topics),), 0, Counter())


def stepped(run: Run, name: str, *arguments: int) -> tuple[Run, bool]:
    """Takes an action that is not about a topic. Returns the run after the action, and whether it was allowed."""
    s = State(run.records, run.brokers, tuple([kind.topic for kind, _ in run.kinds]))
    after, outcome = bundle_transfer.step(run.cfg, s, name, arguments)
    if isinstance(outcome, Refused):
        return run, False
    kinds = zip(after.topics, run.kinds, strict=True)
    changed = tuple([(kind._replace(topic=topic), number) for topic, (kind, number) in kinds])
    counts = run.counts + Counter({"appends": len(after.records) - len(s.records)})
    for topic, (kind, number) in zip(after.topics, run.kinds, strict=True):
        counts["commands"] += number * sent_commands(kind.topic, topic)
    return run._replace(records=after.records, brokers=after.brokers, kinds=changed, counts=counts), True


def sent_commands(before: Topic, after: Topic) -> int:
    """Returns the number of close and prepare commands that a step of the model sent to a topic's clients."""
    was, now = [
        sum([command.kind in ("close", "prepare") for client in t.clients for command in client.down])
        for t in (before, after)
    ]
    return max(0, now - was)


def next_round(run: Run) -> Run:
    """Returns the run after a round: steps of the topics, then the brokers' steps on the channel, then overrides.

    On the channel, a broker publishes a record or, if it publishes none, reads the next one.
    """
    start = State(run.records, run.brokers, ())
    loads_left = dict.fromkeys(range(run.cfg.brokers), LOADS)
    kinds: Counter[Kind] = Counter()
    counts = Counter(run.counts)
    for kind, number in run.kinds:
        for stepped_kind, of_kind in topic_round(run, start, kind, number, loads_left, counts):
            kinds[stepped_kind] += of_kind
    run = run._replace(kinds=tuple(kinds.items()), round=run.round + 1, counts=counts)
    for broker in range(run.cfg.brokers):
        published = False
        if start.brokers[broker].duty:
            run, published = stepped(run, "publish", broker)
        if not published and start.brokers[broker].view + 1 < len(start.records):
            run, _ = stepped(run, "deliver", broker)
    for owner in (SPARE, SOURCE):  # refused unless a broker of the newest record has crashed
        run, _ = stepped(run, "override", owner)
    return run


def topic_round(
    run: Run, start: State, kind: Kind, number: int, loads_left: dict[int, int], counts: Counter[str]
) -> Iterator[tuple[Kind, int]]:
    """Yields the kinds that `number` topics of a kind become in a round, each with its number of topics.

    `start` is the state at the beginning of the round. At most `loads_left` topics of a broker begin to load. Updates
    `loads_left` and `counts`.
    """
    s = start._replace(topics=(kind.topic,))
    unloaded = [b for b in range(run.cfg.brokers) if not is_live(kind.topic.objects[b])]
    wanted = [b for b in unloaded if not isinstance(step(run.cfg, s, "begin_load", 0, b)[1], Refused)]
    admitted = min([number, *[loads_left[b] for b in wanted]])
    for b in wanted:
        loads_left[b] -= admitted
    if number > admitted:
        yield moved(run, s, kind, number - admitted, counts, without="begin_load"), number - admitted
    if admitted:
        yield moved(run, s, kind, admitted, counts), admitted


def is_live(o: TopicObject | None) -> bool:
    """Returns whether a topic object is in use."""
    return o is not None and o.phase != "disconnected"


def step(cfg: Config, s: State, name: str, *arguments: int) -> tuple[State, Any]:
    """Takes a step of the model. Returns the state after it, and its outcome."""
    return bundle_transfer.step(cfg, s, name, arguments)


def moved(run: Run, s: State, kind: Kind, number: int, counts: Counter[str], without: str = "") -> Kind:
    """Returns a kind after a round: each step that is enabled in `s` is taken once, if it is still enabled.

    `s` is the state at the beginning of the round. The action `without` is not taken. Updates `counts` for `number`
    topics.
    """
    cfg, before = run.cfg, s
    calls: list[tuple[str, tuple[int, ...]]] = []
    for name in _OF_BROKER:
        for b in range(cfg.brokers):
            calls.append((name, (0, b, *((unconfirmed(kind.topic),) if name == "open_topic" else ()))))
    lookup_broker = max(b for b, each in enumerate(run.brokers) if each.registered)
    for name in _OF_CLIENT:
        for c in range(len(kind.topic.clients)):  # the producers come first
            calls.append((name, (0, c, *((lookup_broker,) if name == "lookup" else ()))))
    for name, arguments in calls:
        if name == without or isinstance(step(cfg, before, name, *arguments)[1], Refused):
            continue
        after, outcome = step(cfg, s, name, *arguments)
        if isinstance(outcome, Refused):
            continue
        counts["commands"] += number * sent_commands(s.topics[0], after.topics[0])
        counts["lookups"] += number * (name == "lookup")
        if name == "process" and outcome == "ignored" and arguments[1] < cfg.producers:
            counts["ignored"] += number
        if name == "receive" and arguments[1] < cfg.producers:
            counts["ignored"] += number * int(outcome)  # sends in flight to a session that the broker has closed
        if name == "confirm" and isinstance(outcome, int):
            gap = run.round - kind.confirmed if arguments[1] != kind.writer else 0
            kind = kind._replace(confirmed=run.round, gap=max(kind.gap, gap), writer=arguments[1])
        s = after
    return kind._replace(topic=s.topics[0])


def unconfirmed(t: Topic) -> int:
    """Returns the number of a topic's unconfirmed entries. In these runs, a recovery keeps all of them."""
    return len(t.abandoned) + sum([len(o.adds) for o in t.objects if o is not None and o.writable])


def is_over(run: Run, owners: tuple[int, ...]) -> bool:
    """Returns whether, for every topic, one of the brokers `owners` confirmed the topic's last confirmed message."""
    return all(kind.writer in owners for kind, _ in run.kinds)


def until_over(run: Run, owners: tuple[int, ...]) -> Iterator[Run]:
    """Yields the run, and the run after each round, up to the first that `is_over`.

    Raises AssertionError if that takes _MOST rounds or more.
    """
    for _ in range(_MOST):
        yield run
        if is_over(run, owners):
            return
        run = next_round(run)
    raise AssertionError(f"{run.cfg.variant}: a producer has no message confirmed in {_MOST} rounds")


def fenced_clients(run: Run) -> int:
    """Returns the number of clients that are attached to a broker at which their topic is not open."""
    count = 0
    for kind, number in run.kinds:
        for broker, o in enumerate(kind.topic.objects):
            if o is None or o.phase != "open":
                count += number * sum(is_attached(c, broker) for c in kind.topic.clients)
    return count


def exposures(rounds: list[Run]) -> Iterator[Exposure]:
    """Yields the exposure for a crash of source and of destination in each of these states of a transfer."""
    for each in rounds:
        for broker, name in ((SOURCE, "source"), (DESTINATION, "destination")):
            crashed, _ = stepped(each, "crash", broker)
            # so the next broker that confirms a message ends the publish gap, also if it is the same as before
            fresh = tuple([(kind._replace(gap=0, writer=-1), n) for kind, n in crashed.kinds])
            fenced = fenced_clients(crashed)
            *_, found = until_over(crashed._replace(kinds=fresh), (SOURCE, DESTINATION, SPARE))
            for _ in range(2):  # in these rounds, brokers store the other messages that clients send again
                found = next_round(found)
            yield Exposure(
                crashed=name,
                round=each.round - rounds[0].round,
                record=each.records[-1].state,
                fenced_clients=fenced,
                client_lookups=found.counts["lookups"] - each.counts["lookups"],
                publish_gap_steps=max(kind.gap for kind, _ in found.kinds),
                duplicates=sum(n * (len(k.topic.log) - len(set(k.topic.log))) for k, n in found.kinds),
            )


def measured(policy: str, topics: int, deduplication: bool) -> Row:
    """Returns the row of a transfer under a policy, with the exposures to crashes before each of its rounds."""
    cfg = Config(producers=1, consumers=1, window=WINDOW, deduplication=deduplication, variant=policy)  # type: ignore[arg-type]
    run = first_run(cfg, topics)
    for _ in range(_WARM_UP):
        run = next_round(run)
    run, _ = stepped(run, "transfer", DESTINATION)
    rounds = list(until_over(run, (DESTINATION,)))
    end = rounds[-1]
    points = list(exposures(rounds[:-1]))
    return Row(
        policy=policy,
        topics=topics,
        deduplication=deduplication,
        client_lookups=end.counts["lookups"],
        publish_gap_steps=max(kind.gap for kind, _ in end.kinds),
        ignored_sends=end.counts["ignored"],
        channel_appends=end.counts["appends"],
        client_commands=end.counts["commands"],
        worst_fenced_clients=max(p.fenced_clients for p in points),
        worst_recovery_lookups=max(p.client_lookups for p in points),
        worst_recovery_gap=max(p.publish_gap_steps for p in points),
        worst_duplicates=max(p.duplicates for p in points),
        exposure=points,
    )


def measure(cell: Cell) -> Iterator[Row]:
    """Yields the rows of a cell: without and with deduplication."""
    for deduplication in (False, True):
        yield measured(cell.policy, cell.size, deduplication)


class Parameters(NamedTuple):
    """The workload has no parameters."""


workload = Workload(
    name="transfer",
    about="transfer of one bundle between brokers; every topic has one producer and one consumer",
    policies=POLICIES,
    default=POLICIES,
    size="topics",
    sizes=lambda _: (1, 100, 10_000),
    measures=(
        "client_lookups",
        "publish_gap_steps",
        "ignored_sends",
        "channel_appends",
        "client_commands",
        "worst_fenced_clients",
        "worst_recovery_lookups",
        "worst_recovery_gap",
        "worst_duplicates",
    ),
    meanings={
        "V0": "PIP-307 as merged",
        "V1a": "the source redirects clients as soon as the ledger is closed",
        "V1b": "the destination prepares the topics before the source fences them",
        "V2": "like V1b, and clients pause and connect to the destination first",
        "V3": "the source sends no address; clients look the owner up",
        "V4": "the channel has no Assigning record",
        "deduplication": "brokerDeduplicationEnabled",
        "client lookups": "lookups that brokers receive",
        "publish gap": "rounds from the source's last confirmed message to the destination's first",
        "ignored sends": "messages that reach the source and are neither stored nor answered",
        "channel appends": "ownership records that are written",
        "client commands": "close and prepare commands that brokers send to clients",
        "worst ...": "maximum over crashes of source or destination before each round: clients attached to a topic "
        "that is not open, lookups and publish gap of the recovery, messages stored twice",
    },
    row=Row,
    parameters=Parameters(),
    check=str,
    measure=measure,
    titles={"publish_gap_steps": "publish gap, rounds"},
)
