"""How to drive the ownership channel: requests, brokers that process the records, sessions, clean-ups and shutdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.ownership_channel import OwnershipChannel
from invariants import ownership_channel as invariants
from model.ownership_channel.records import MAX_VERSION, MIN_VERSION, Config, Data
from model.ownership_channel.state import Broker, BundleRecord, CleanUp, Message, State, ownership_channel

STATES = ("Init", "Free", "Owned", "Assigning", "Releasing", "Splitting", "Deleted")
STORAGES = ("system_topic", "metadata_store")
#: Each comparison in the conflict resolution is true for some of these records, and false for others.
RECORDS = (
    None,
    *[Data(state, 0, 1, version) for state in STATES for version in (1, 2)],  # type: ignore[arg-type]
    *[Data(state, dst, source, 2) for state in STATES for dst, source in ((None, 0), (1, None), (-1, 0), (1, 0))],  # type: ignore[arg-type]
    Data("Owned", None, 0, 1),
    Data("Owned", 0, None, 1),
    Data("Releasing", None, 0, 1),
    Data("Splitting", None, 0, 1),
    Data("Free", None, 0, 1),
    Data("Free", 1, 0, 2, True),
    Data("Owned", 1, 0, 4),
    Data("Owned", 0, 1, MAX_VERSION),
    Data("Releasing", 1, 0, MIN_VERSION),
)


def brokers(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns all brokers."""
    return tuple(range(cfg.brokers))


def optional_brokers(cfg: Config, s: State) -> tuple[int | None, ...]:
    """Returns all brokers, and None."""
    return (*range(cfg.brokers), None)


def bundles(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns all bundles."""
    return tuple(range(cfg.bundles))


def cleaners(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the brokers that have a clean-up."""
    return tuple([number for number, at in enumerate(s.brokers) if at.clean_ups])


def targets(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the targets of clean-ups."""
    return tuple([job.target for at in s.brokers for job in at.clean_ups])


def brokers_with_task(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the first broker, and the brokers that have a task."""
    return (0, *[number for number, at in enumerate(s.brokers) if at.tasks])


def brokers_with_parked_lookup(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the first broker, and the brokers with a parked lookup."""
    return (0, *[number for number, at in enumerate(s.brokers) if any(at.lookups)])


def first_owners(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the first broker, and the brokers that are the destination of the first bundle in their own view."""
    owners = [n for n, at in enumerate(s.brokers) if (data := at.view[0]) is not None and data.dst_broker == n]
    return (0, *owners)


def has_parked_lookup_of_owned(at: Broker) -> bool:
    """Returns whether a broker has parked a lookup of a bundle that is Owned in its view."""
    return any(parked and data and data.state == "Owned" for parked, data in zip(at.lookups, at.view, strict=True))


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in.

    parked   a broker is down or not registered, and a broker has parked a lookup of a bundle that it sees as Owned
    broken   a broker is down or not registered
    busy     a broker has unread messages or tasks
    quiet    none of these
    """
    if not all(at.is_up and at.is_registered for at in s.brokers):
        return "parked" if any(has_parked_lookup_of_owned(at) for at in s.brokers) else "broken"
    if any(at.read < len(s.log) or at.tasks for at in s.brokers):
        return "busy"
    return "quiet"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns features of the first bundle's record, and for the first two brokers, in any order, status and work."""
    data = s.settled[0]
    return (
        cfg.storage,
        None if data is None else (data.state, data.force, data.dst_broker is None, data.source_broker is None),
        tuple(
            sorted(
                (
                    at.is_up,
                    at.is_registered,
                    at.is_disabled,
                    at.view[0] == data,
                    bool(at.tasks),
                    at.lookups[0],
                    bool(at.clean_ups),
                )
                for at in s.brokers[:2]
            )
        ),
    )


# ---- measures that scopes bound -------------------------------------------------------------------------


def versions(s: State) -> int:
    """Returns the largest version of a record."""
    written = [*s.settled, *[message.data for message in s.log]]
    return max([data.version_id for data in written if data is not None], default=0)


def unread(s: State) -> int:
    """Returns the largest number of messages that a running broker has not read."""
    return max([len(s.log) - at.read for at in s.brokers if at.is_up], default=0)


def tasks(s: State) -> int:
    """Returns the number of tasks of the broker that has most."""
    return max(len(at.tasks) for at in s.brokers)


def absent(s: State) -> int:
    """Returns the number of brokers that are down, not registered, disabled, or without a stable session."""
    return len(
        [1 for at in s.brokers if not at.is_up or not at.is_registered or at.is_disabled or at.session != "Stable"]
    )


#: Requests, and how brokers process the records that requests append.
REQUESTS = ("lookup", "unload", "read", "notify", "finish")
SMOKE = Scope(
    actions=(
        *REQUESTS,
        "time_out_lookup",
        "time_out_unload",
        "jump",
        "late_ack",
        "fail_append",
        "override_stuck",
        "remove_old",
    ),
    settings={"brokers": 2, "bundles": 1},
    domains={
        "broker": (0, 1),
        "bundle": (0,),
        "dst": (0, 1),
        "lookup.dst": (0, 1),
        "unload.dst": (None, 0, 1),
        "force": (False,),
        "task": (0,),
    },
    bounds={"versions": 4, "unread": 1, "tasks": 1},
    reasons={
        "actions": "requests, handlers and the monitor; faults of brokers and sessions are in other scopes",
        "brokers": "two: source and destination; excludes a third broker",
        "bundles": "one: the channel does not order the records of different bundles",
        "broker": "both brokers of the scope",
        "bundle": "the only one",
        "dst": "both brokers of the scope",
        "lookup.dst": "both brokers of the scope",
        "unload.dst": "both brokers, and no destination",
        "force": "not forced; removals of bundles are in the scope ci",
        "task": "the first: a broker has at most one",
        "versions": "four: Assigning, Owned, Releasing, and Free or Assigning again",
        "unread": "one message; two are in the scope nightly",
        "tasks": "one: excludes a handler that is still pending when the next record is read",
    },
)


def scope(actions: tuple[str, ...], settings: Any, domains: Any, bounds: Any, /, **reasons: str) -> Scope:
    """Returns a scope with these actions and bounds. Settings, domains and reasons are added to those of SMOKE.

    A reason for `lookup.dst` has the keyword `lookup_dst`, and so on.
    """
    changed = dict(SMOKE.settings) | settings, dict(SMOKE.domains) | domains
    reasons = {each.replace("_dst", ".dst"): why for each, why in reasons.items()}
    return Scope(actions, *changed, bounds, dict(SMOKE.reasons) | reasons)


STORED = scope(
    (*REQUESTS, "time_out_lookup", "time_out_unload", "lose_session", "reconnect", "remove_old"),
    {"storage": "metadata_store"},
    {},
    {"versions": 4, "tasks": 1, "absent": 1},
    storage="the metadata store; the topic is in the other scopes",
    absent="one: a broker has no session, and the other continues",
)
RECOVERY = scope(
    (
        "lookup",
        "read",
        "notify",
        "finish",
        *invariants.RECOVERY[3:],  # without "read", "notify" and "finish", which are listed above
        "restart",
        "elect_unnoticed",
        "crash",
        "lose_session",
    ),
    {},
    {"dst": (0,), "lookup.dst": (1,), "target": (0, 1), "override.dst": (None, 0, 1), "healthy": (False,)},
    {"versions": 3, "unread": 1, "tasks": 1, "absent": 1},
    actions="one assignment, all faults of brokers and sessions, and the recovery from them",
    dst="the first leader",
    lookup_dst="the other broker",
    override_dst="both brokers, and no destination",
    target="both brokers of the scope",
    healthy="false: the target fails the health check; a passed check only cancels the clean-up",
    versions="three: Assigning, Owned, and an override",
    absent="one broker at a time is down, unregistered or without a stable session",
)
SHUTDOWN = scope(
    ("lookup", "read", "notify", "finish", "disable", "stop", "override", "restart"),
    {},
    {"target": (0, 1), "override.dst": (None, 0, 1)},
    {"versions": 4, "unread": 2, "tasks": 1, "absent": 1},
    actions="assignment, and shutdown with the clean-up",
    override_dst="both brokers, and no destination",
    target="both brokers of the scope",
    unread="two: the record that a handler appended, and an override",
    absent="one broker shuts down at a time",
)
SYSTEM = scope(
    ("lookup", "read", "notify", "finish", "disable", "stop", "override"),
    {"bundles": 2, "system_bundles": 1},
    {"bundle": (0, 1), "lookup.dst": (0,), "target": (0, 1), "override.dst": (None, 0, 1)},
    {"versions": 3, "unread": 1, "tasks": 2, "absent": 1},
    actions="assignment, and shutdown with the clean-up",
    bundles="two: an ordinary one and one of the system namespace",
    system_bundles="one of the two bundles",
    bundle="both bundles of the scope",
    lookup_dst="the first broker, which shuts down",
    override_dst="both brokers, and no destination",
    target="both brokers of the scope",
    versions="three: Assigning, Owned, and an override",
    absent="one broker shuts down at a time",
    tasks="two: one for each bundle",
)
SPLIT = scope(
    (*REQUESTS, "split"),
    {"bundles": 3},
    {"dst": (0,), "lookup.dst": (0,), "unload.dst": (1,)},
    {"versions": 4, "unread": 3, "tasks": 1},
    actions="requests, handlers and the split",
    bundles="three: a bundle and its halves",
    bundle="the bundle that is split; its halves become Owned by the split",
    dst="the first broker",
    lookup_dst="the first broker",
    unload_dst="the other broker",
    versions="four: Assigning, Owned, Splitting, Deleted",
    unread="three: the messages of a split",
)
RESOLVER = Scope(
    actions=("is_valid_transition", "should_keep_left"),
    settings={},
    domains={},
    bounds={},
    reasons={
        "actions": "the two functions of the conflict resolution, for all records of the subject; they change no state"
    },
)
CI = scope(
    (*SMOKE.actions, "restart", "crash"),
    {},
    {"force": (False, True), "task": (0, 1)},
    {"versions": 4, "unread": 1, "tasks": 2, "absent": 1},
    actions="those of the scope smoke, and crashes",
    force="transfers, unloads and removals",
    task="both tasks of a broker",
    tasks="two: a handler can be pending when the next record is read",
    absent="one broker is down at a time",
)
NIGHTLY = scope(
    (*REQUESTS, "jump", "remove_old"),
    {"brokers": 3},
    {"broker": (0, 1, 2), "unload.dst": (None, 1)},
    {"versions": 4, "unread": 2, "tasks": 1},
    actions="requests, handlers, views that jump over records, and removals",
    brokers="three: source, destination, and a broker that only reads",
    broker="all brokers of the scope",
    dst="two of the brokers",
    lookup_dst="two of the brokers",
    unload_dst="one of the brokers, and no destination",
    unread="two messages; longer delays are left to fuzzing",
)

# ---- the TLA+ twin --------------------------------------------------------------------------------------


def data_of(record: Any) -> Data | None:
    """Returns the record for a record of the twin."""
    if record is None:
        return None
    return Data(record["state"], record["dst"], record["source"], record["version"], record["force"])


def tasks_of(tasks: Any) -> tuple[BundleRecord, ...]:
    """Returns the tasks for the twin's tasks of a broker, or for its snapshot of a clean-up."""
    return tuple([BundleRecord(each["bundle"], data_of(each["data"])) for each in tasks])  # type: ignore[arg-type]


def broker_of(at: Mapping[str, Any], bundles: range) -> Broker:
    """Returns the broker for a broker of the twin. `bundles` has the numbers of the bundles."""
    stale, lookups, unloads = [tuple([at[name][k] for k in bundles]) for name in ("stale", "lookups", "unloads")]
    return Broker(
        at["up"],
        at["registered"],
        at["disabled"],
        at["session"],
        tuple([data_of(at["view"][k]) for k in bundles]),
        stale,
        at["read"],
        tasks_of(at["tasks"]),
        lookups,
        unloads,
        tuple([CleanUp(job["target"], job["running"], tasks_of(job["snapshot"])) for job in at["jobs"]]),
    )


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables."""
    numbers = range(cfg.bundles)
    return State(
        variables["leader"],
        variables["leader_knows"],
        tuple([data_of(variables["settled"][k]) for k in numbers]),
        tuple([Message(each["bundle"], data_of(each["data"])) for each in variables["log"]]),
        tuple([variables["is_split"][k] for k in numbers]),
        tuple([broker_of(variables["cluster"][b], numbers) for b in range(cfg.brokers)]),
    )


# ---- corrupted states that `check` must report ---------------------------------------------------------


def changed_broker(s: State, number: int, **changes: Any) -> State:
    """Returns the state with changes of a broker."""
    made = s.brokers[number]._replace(**changes)
    return s._replace(brokers=(*s.brokers[:number], made, *s.brokers[number + 1 :]))


def stopped(s: State) -> int | None:
    """Returns the first broker that is down; None if all are up."""
    return next((number for number, at in enumerate(s.brokers) if not at.is_up), None)


def leader_knows_without_leader(_cfg: Config, s: State) -> State:
    """No broker is elected, but the leader knows that it was."""
    return s._replace(leader=None, leader_knows=True)


def leader_is_down(_cfg: Config, s: State) -> State | None:
    """The leader is a broker that is down."""
    number = stopped(s)
    return None if number is None else s._replace(leader=number)


def read_is_beyond_log(_cfg: Config, s: State) -> State:
    """A broker has read more messages than the log has."""
    return changed_broker(s, 0, read=len(s.log) + 1)


def stopped_broker_has_lookups(cfg: Config, s: State) -> State | None:
    """Lookups are parked at a broker that is down."""
    number = stopped(s)
    return None if number is None else changed_broker(s, number, lookups=(True,) * cfg.bundles)


def disabled_broker_has_no_clean_up(_cfg: Config, s: State) -> State | None:
    """A broker shuts down, and has no clean-up of itself."""
    at = s.brokers[0]
    return (
        None
        if at.is_disabled or any(job.target == 0 for job in at.clean_ups)
        else changed_broker(s, 0, is_disabled=True)
    )


def topic_record_is_stale(cfg: Config, s: State) -> State | None:
    """A broker has stale records of the system topic; only records in the metadata store can be stale."""
    return changed_broker(s, 0, is_stale=(True,) * cfg.bundles) if cfg.storage == "system_topic" else None


def task_is_of_another_broker(_cfg: Config, s: State) -> State | None:
    """A broker has a task of another broker."""
    tasks = [(number, at.tasks) for number, at in enumerate(s.brokers) if at.tasks]
    others = [n for n, at in enumerate(s.brokers) if at.is_up and tasks and n != tasks[0][0]]
    return changed_broker(s, others[0], tasks=tasks[0][1]) if others else None


subject = Subject(
    ownership_channel,
    OwnershipChannel,
    invariants,
    domains={
        "broker": brokers,
        "split.bundle": (0, 0, 0, 1, 2),
        "split.broker": first_owners,
        "time_out_lookup.broker": brokers_with_parked_lookup,
        "target": targets,
        "start_clean_up.broker": cleaners,
        "override.broker": cleaners,
        "finish.broker": brokers_with_task,
        "bundle": bundles,
        "dst": brokers,
        "unload.dst": optional_brokers,
        "override.dst": optional_brokers,
        "force": (False, False, False, True),
        "task": (0, 0, 1),
        "healthy": (True, False, False),
        "storage": STORAGES,
        "check_brokers": (True, True, False),
        "left": RECORDS,
        "right": RECORDS,
        "is_valid_transition.old": STATES,
        "is_valid_transition.new": STATES,
    },
    settings={
        "brokers": (3, 2),
        "bundles": (1, 3, 2),
        "system_bundles": (0, 1),
        "storage": STORAGES,
        "session_expired_policy": ("reconnect", "reconnect", "shutdown"),
    },
    weights={
        "lookup": 4,
        "unload": 3,
        "split": 2,
        "read": 14,
        "notify": 10,
        "finish": 8,
        "jump": 1,
        "override": 6,
        "start_clean_up": 3,
        "crash": 0.3,
        "lose_session": 0.4,
        "disable": 0.4,
        "stop": 2,
        "late_ack": 0.1,
        "fail_append": 0.5,
        "time_out_unload": 0.5,
        "elect_unnoticed": 0.3,
        "is_valid_transition": 0.3,
        "should_keep_left": 0.6,
    },
    situation=situation,
    in_situation={
        "broken": {"crash": 0.3, "lose_session": 0.3, "monitor": 2},
        "parked": {"crash": 0.3, "lose_session": 10, "monitor": 2, "time_out_lookup": 3},
        "quiet": {"unload": 2, "read": 0.3, "finish": 0.3},
    },
    swarms={
        "requests": {"crash": 0, "lose_session": 0, "disable": 0, "override_stuck": 0.2},
        "slow readers": {"read": 0.4, "notify": 0.3, "jump": 3},
        "splits": {"split": 12, "lookup": 0.4, "jump": 5, "read": 0.2, "crash": 0, "lose_session": 0, "disable": 0},
        "removals": {"remove_old": 6, "read": 2},
        "suspicions": {"lose_session": 8, "reconnect": 0.3, "start_clean_up": 3, "lookup": 3, "time_out_lookup": 5},
        "shutdowns": {"disable": 4, "stop": 2, "restart": 2},
        "functions": {"should_keep_left": 60, "is_valid_transition": 20},
    },
    abstract=coverage_key,
    measures={"versions": versions, "unread": unread, "tasks": tasks, "absent": absent},
    scopes={
        "smoke": SMOKE,
        "stored": STORED,
        "recovery": RECOVERY,
        "shutdown": SHUTDOWN,
        "system": SYSTEM,
        "split": SPLIT,
        "resolver": RESOLVER,
        "ci": CI,
        "nightly": NIGHTLY,
    },
    corrupt={
        each.__name__: each
        for each in (
            leader_knows_without_leader,
            leader_is_down,
            read_is_beyond_log,
            stopped_broker_has_lookups,
            disabled_broker_has_no_clean_up,
            topic_record_is_stale,
            task_is_of_another_broker,
        )
    },
    steps=128,
    tla="OwnershipChannel",
    from_tla=from_tla,
)
