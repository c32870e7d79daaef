"""A producer and consumers while the topic moves between two brokers (PIP-307), is unloaded, or its broker stops."""

from __future__ import annotations

from fuzz.client.answer import Answer, Order
from fuzz.client.contracts import CONSUMER, PRODUCER, redirect_needs_no_lookup
from fuzz.client.run import Run
from fuzz.client.schedule import Scenario, StepKind
from fuzz.scenarios.producer import defer, hold, release

#: Seconds after which an operation of the client fails.
_OPERATION_TIMEOUT = 2
#: Addresses in CLOSE: of no broker, none, and two invalid ones. At each of them, the client looks the topic up.
_BAD_URLS = ("pulsar://127.0.0.1:1", "", "127.0.0.1:1", "pulsar://")

#: Orders of a CLOSE before SUCCESS, without and with an address. SUCCESS follows at once; with `is_late`, at the next
#: command of the client.
_CLOSES = {
    "close": Order(Answer.CLOSE),
    "close_redirect": Order(Answer.CLOSE, has_address=True),
    "close_late": Order(Answer.CLOSE, is_late=True),
    "close_redirect_late": Order(Answer.CLOSE, has_address=True, is_late=True),
}


def begin(run: Run) -> None:
    """Attaches a producer, and sends a message."""
    run.start(deduplication=run.settings["deduplication"], operation_timeout_seconds=_OPERATION_TIMEOUT)
    run.create_producer(send_timeout_millis=0, batching_enabled=False)
    run.send(1)


def subscribe(run: Run) -> None:
    """Subscribes a consumer, at most two on a Shared subscription, otherwise one. Does nothing during a transfer."""
    if not run.is_in_transfer and run.consumers < (2 if run.settings["kind"] == 1 else 1):
        run.subscribe(kind=run.settings["kind"], receiver_queue_size=run.settings["receiver_queue"])


def move(run: Run) -> None:
    """Transfers the topic to the other broker, if that broker is up. CLOSE has its address."""
    fence(run)
    finish(run)


def fence(run: Run) -> None:
    """Begins a transfer, as `Ordered.begin_transfer`, unless one is in progress or the other broker is down."""
    if run.broker("begin_transfer"):
        run.withheld.add("fence")


def finish(run: Run) -> None:
    """Ends a transfer: sends CLOSE with the address of the new owner.

    Counts the lookups that follow, unless something else can cause them: a producer or consumer was not attached, an
    order about answers was left, or an effect did not come in time. Without a transfer, only waits as `Run.sync`.
    """
    is_attached = run.broker("attached") == [run.producers, run.consumers] and not run.broker("has_answers")
    is_counted, before = is_attached and run.is_in_transfer, run.broker("count", kind="LOOKUP")
    run.broker("finish_transfer")
    run.withheld.discard("fence")
    run.sync()
    if run.is_patient and is_counted:
        run.observed.redirect_lookups += run.broker("count", kind="LOOKUP") - before


def unload(run: Run) -> None:
    """Transfers the topic as `move`, but CLOSE has no address, as before PIP-307."""
    fence(run)
    run.broker("finish_transfer", url=False)
    run.withheld.discard("fence")
    run.sync()


def mislead(run: Run, url: str) -> None:
    """Sends CLOSE with an address of `_BAD_URLS` to all clients at the owner. The owner keeps the topic."""
    run.broker("close_owner_sessions", url=url)
    run.sync()


def crash(run: Run) -> None:
    """Stops the owner, and the other broker takes over. Stops nothing if the other broker is down."""
    run.broker("crash")
    run.withheld.discard("fence")
    run.sync()


def drop(run: Run) -> None:
    """Ends all TCP connections."""
    run.broker("drop")
    run.sync()


def terminate(run: Run) -> None:
    """Sends REACHED_END_OF_TOPIC to the consumers."""
    run.wait("pings", run.broker("terminate"))
    run.sync()


def order(kind: str, answer: Answer, weight: int = 1) -> StepKind:
    """Returns a kind of step that orders an answer for the next command of a kind."""
    return StepKind(lambda run: run.broker("order", **{kind: [Order(answer)]}), weight=weight)


def close(kind: str) -> StepKind:
    """Returns a kind of step that orders CLOSE before the SUCCESS of the next command of a kind."""
    return StepKind(lambda run, how: run.broker("order", **{kind: [_CLOSES[how]]}), (tuple(_CLOSES),))


scenario = Scenario(
    "transfer",
    settings={"deduplication": (True, False), "kind": (0, 1, 2), "receiver_queue": (1000, 10)},
    steps={
        "send": StepKind(lambda run, count: run.send(count), ((1, 2, 5),), weight=3),
        "subscribe": StepKind(subscribe, weight=2),
        "receive": StepKind(lambda run, count: run.receive(count), ((1, 3),)),
        "hold": StepKind(hold),
        "defer": StepKind(defer),
        "release": StepKind(release, (("in_order", "twice"),)),
        "move": StepKind(move, weight=2),
        "fence": StepKind(fence),
        "finish": StepKind(finish),
        "unload": StepKind(unload),
        "mislead": StepKind(mislead, (_BAD_URLS,)),
        "crash": StepKind(crash),
        "restart": StepKind(lambda run: run.broker("restart")),
        "drop": StepKind(drop),
        "terminate": StepKind(terminate),
        "refuse_producer": order("PRODUCER", Answer.REFUSE),
        "refuse_subscribe": order("SUBSCRIBE", Answer.REFUSE, weight=3),
        "refuse_lookup": order("LOOKUP", Answer.REFUSE),
        "close_producer_first": close("PRODUCER"),
        "close_subscribe_first": close("SUBSCRIBE"),
    },
    begin=begin,
    end=Run.finish,
    contracts=(*dict.fromkeys((*PRODUCER, *CONSUMER)), redirect_needs_no_lookup),
)
