"""The ownership channel.

Implements the `reference` rules and all settings of `model/ownership_channel`. The log is never trimmed; each broker
has a read position. Requests and stale records are sets of bundles; clean-ups are a table by target.

Reading a message costs O(1), a jump over n messages O(n log n), any other action O(brokers + bundles + handlers).
While a broker runs clean-ups, each record that it applies, and each start of a clean-up, costs O(bundles) more for each
of them.
"""

from __future__ import annotations

from model.machine import Failed, Refused
from model.ownership_channel.machine import Transition
from model.ownership_channel.records import BLANK, MAX_VERSION, MIN_VERSION, Config, Data
from model.ownership_channel.state import Broker, BundleRecord, CleanUp, Message, State

_IN_FLIGHT = ("Assigning", "Releasing", "Splitting")
#: The valid transitions of both storages, then those of the system topic.
_TRANSITIONS = {
    ("Owned", "Releasing"),
    ("Owned", "Splitting"),
    ("Assigning", "Owned"),
    ("Releasing", "Free"),
    ("Releasing", "Assigning"),
    ("Splitting", "Deleted"),
    ("Deleted", "Init"),
    ("Init", "Assigning"),
    ("Free", "Assigning"),
}
_TOPIC_TRANSITIONS = (
    _TRANSITIONS | {("Free", "Init")} | {("Init", to) for to in ("Free", "Owned", *_IN_FLIGHT, "Deleted")}
)
#: The transitions that change neither broker of the record.
_SAME_BROKERS = {
    ("Assigning", "Owned"),
    ("Releasing", "Assigning"),
    ("Releasing", "Free"),
    ("Splitting", "Deleted"),
}
#: The values of a broker field that name no broker.
_NONE = (None, BLANK)


def _successor(version: int) -> int:
    """Returns the version after a version, with the overflow of Java's `long`."""
    return version + 1 if version != MAX_VERSION else MIN_VERSION


def _accepts(storage: str, check_brokers: bool, old: Data | None, new: Data | None) -> bool:
    """Whether a new record replaces the old one. O(1)."""
    if new is None:
        return True
    is_topic = storage == "system_topic"
    if old is None:
        # a view accepts a forced record, and any valid transition from Init; the store accepts only version 1
        return (new.force or ("Init", new.state) in _TOPIC_TRANSITIONS) if is_topic else new.version_id == 1
    if new.version_id != _successor(old.version_id):  # a view accepts any later version: it may have missed records
        return is_topic and new.version_id > old.version_id
    if new.force:
        return True
    pair = old.state, new.state
    if pair not in (_TOPIC_TRANSITIONS if is_topic else _TRANSITIONS):
        return False
    return not check_brokers or _brokers_fit(pair, old, new)


def _brokers_fit(pair: tuple[str, str], old: Data, new: Data) -> bool:
    """Whether the brokers of a record with a valid transition fit those of the old one."""
    if pair in _SAME_BROKERS and (old.dst_broker, old.source_broker) != (new.dst_broker, new.source_broker):
        return False
    if pair in (("Releasing", "Assigning"), ("Free", "Assigning")):
        # an Assigning record needs a destination; after Free, it has no source
        return new.dst_broker not in _NONE and (pair[0] == "Releasing" or new.source_broker in _NONE)
    if pair == ("Owned", "Splitting"):
        return new.dst_broker in _NONE and old.dst_broker is not None and old.dst_broker == new.source_broker
    if pair == ("Owned", "Releasing"):
        return new.source_broker not in _NONE and old.dst_broker == new.source_broker != new.dst_broker
    return True


class _Broker:
    """A broker. The attributes are those of the model's `Broker`; flags by bundle are sets of bundles."""

    __slots__ = (
        "clean_ups",
        "disabled",
        "lookups",
        "read",
        "registered",
        "session",
        "stale",
        "tasks",
        "unloads",
        "up",
        "view",
    )

    def __init__(self, view: list[Data | None], read: int, *, up: bool = True, registered: bool = True) -> None:
        self.up, self.registered, self.disabled = up, registered, False
        self.session = "Stable"
        self.view, self.read = view, read
        self.stale = set[int]()
        self.tasks: list[BundleRecord] = []
        self.lookups = set[int]()
        self.unloads = set[int]()
        self.clean_ups: dict[int, bool] = {}  # the targets of clean-ups, and whether they run

    def as_model(self) -> Broker:
        """Returns the broker in the model's representation."""
        every = range(len(self.view))
        return Broker(
            self.up,
            self.registered,
            self.disabled,
            self.session,  # type: ignore[arg-type]
            tuple(self.view),
            tuple([b in self.stale for b in every]),
            self.read,
            tuple(self.tasks),
            tuple([b in self.lookups for b in every]),
            tuple([b in self.unloads for b in every]),
            # with `clean_up_retries` "all", the snapshot of a clean-up is empty
            tuple([CleanUp(target, runs, ()) for target, runs in self.clean_ups.items()]),
        )


def _owner_of(data: Data | None) -> int | None:
    """Returns the broker that serves a bundle with this record, or None."""
    if data is not None and data.state in ("Owned", "Splitting"):
        return data.dst_broker if data.state == "Owned" else data.source_broker
    return None


def _is_orphan(data: Data | None, target: int) -> bool:
    """Whether a clean-up of the target overrides this record."""
    if data is None:
        return False
    if data.state in _IN_FLIGHT:
        return target in (data.dst_broker, data.source_broker)
    return data.state == "Owned" and data.dst_broker == target


def _actor(data: Data) -> int | None:
    """Returns the broker whose handler writes the next record or removes this record, or None."""
    if data.state == "Assigning":
        return data.dst_broker
    if data.state == "Owned" or (data.state == "Free" and not data.force) or data.state == "Init":
        return None
    return data.source_broker  # of a Releasing, Splitting, Deleted or forced Free record


def _next_version(data: Data | None) -> int:
    """Returns the version of the record that a broker writes after this one."""
    return 1 if data is None else data.version_id + 1


class OwnershipChannel:
    """A cluster of brokers and the channel. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._topic = cfg.storage == "system_topic"
        self._leader: int | None = 0
        self._leader_knows = True
        #: `State.settled`: by bundle, the last record that the store, or a reader of the whole topic, has accepted
        self._stored: list[Data | None] = [None] * cfg.bundles
        self._log: list[Message] = []
        self._split = [False] * cfg.bundles
        self._brokers = [_Broker([None] * cfg.bundles, 0) for _ in range(cfg.brokers)]

    # ---- records ----

    def _write(self, broker: int, bundle: int, data: Data) -> None:
        """Appends a record to the topic, or stores it unless it conflicts or the broker has no metadata session."""
        is_accepted = _accepts(self.cfg.storage, True, self._stored[bundle], data)
        if self._topic:
            self._log.append(Message(bundle, data))
            if is_accepted:
                self._stored[bundle] = data
        elif is_accepted and self._brokers[broker].session != "Unstable":
            self._stored[bundle] = data
            self._brokers[broker].stale.discard(bundle)
            self._apply(broker, bundle, data)

    def _apply(self, broker: int, bundle: int, data: Data | None) -> None:
        """Puts a record into a broker's view, begins its handler, and ends the clean-ups that are done.

        A record that is not in flight completes the parked lookup. An Owned record with a source, a Free, Deleted or
        Init record, and a tombstone complete the pending unload. In a disabled channel, a tombstone or a record that is
        not forced only ends the parked lookup.
        """
        at = self._brokers[broker]
        at.view[bundle] = data
        is_handled = not at.disabled or (data is not None and data.force)
        not_in_flight = data is None or data.state not in _IN_FLIGHT
        if not_in_flight or not is_handled:
            at.lookups.discard(bundle)
        if is_handled:
            if not_in_flight and (data is None or data.state != "Owned" or data.source_broker not in _NONE):
                at.unloads.discard(bundle)
            if data is not None and _actor(data) == broker:
                at.tasks.append(BundleRecord(bundle, data))
        if at.clean_ups:
            self._end_clean_ups(broker)

    def _end_clean_ups(self, broker: int) -> None:
        """Removes the broker's running clean-ups of other brokers that have no orphan left."""
        at = self._brokers[broker]
        for target in [t for t, runs in at.clean_ups.items() if runs and t != broker]:
            if not any(_is_orphan(data, target) for data in at.view):
                del at.clean_ups[target]

    def _offer(self, broker: int, bundle: int, data: Data | None) -> bool:
        """Puts a record of the topic into a broker's view unless it conflicts. Returns whether the view accepts it."""
        if not _accepts("system_topic", True, self._brokers[broker].view[bundle], data):
            return False
        self._apply(broker, bundle, data)
        return True

    def _remove(self, broker: int, bundle: int, data: Data) -> None:
        """Writes the forced Init record that removes a record."""
        self._write(broker, bundle, Data("Init", None, data.source_broker, data.version_id + 1, True))

    # ---- requests ----

    def lookup(self, broker: int, bundle: int, dst: int) -> int | Refused | Failed | None:
        at = self._brokers[broker]
        if not at.up:
            return Refused("not_enabled", "the broker is down")
        parent = (bundle - 1) // 2  # the halves of bundle b are 2b + 1 and 2b + 2
        is_half = bundle > 0 and 2 * parent + 2 < self.cfg.bundles
        if self._split[bundle] or (is_half and not self._split[parent]):
            return Refused("illegal_argument", "the namespace does not have the bundle")
        data = at.view[bundle]
        if data is not None and data.state == "Deleted":
            return Failed("illegal_argument", "the bundle was split")
        owner = _owner_of(data)
        if owner is not None:
            if self._brokers[owner].registered:
                return owner
            at.lookups.add(bundle)
            return None
        if data is not None and data.state in _IN_FLIGHT and data.dst_broker is not None:
            if data.dst_broker != broker:
                return data.dst_broker
            at.lookups.add(bundle)
            return None
        if bundle in at.lookups:
            return None
        if at.disabled:
            return Failed("not_ready", "the channel is disabled")
        if not self._brokers[dst].registered:
            return Refused("not_enabled", "the destination is not registered")
        at.lookups.add(bundle)
        self._write(broker, bundle, Data("Assigning", dst, None, _next_version(data)))
        return None

    def time_out_lookup(self, broker: int, bundle: int) -> int | Refused | Failed:
        at = self._brokers[broker]
        if bundle not in at.lookups:
            return Refused("not_enabled", "no lookup is parked")
        at.lookups.remove(bundle)
        owner = None if bundle in at.stale else _owner_of(at.view[bundle])
        return Failed("not_ready", "the bundle has no known owner") if owner is None else owner

    def unload(self, broker: int, bundle: int, dst: int | None, force: bool) -> int | Refused:
        at = self._brokers[broker]
        data = at.view[bundle]
        if not at.up or at.disabled:
            return Refused("not_enabled", "the channel is not started")
        if data is None or data.state != "Owned":
            return Refused("illegal_state", "the bundle is not owned")
        if dst is not None and (force or dst == data.dst_broker or not self._brokers[dst].registered):
            return Refused("illegal_argument", "dst must be another registered broker, and null with force")
        at.unloads.add(bundle)
        self._write(broker, bundle, Data("Releasing", dst, data.dst_broker, data.version_id + 1, force))
        return data.version_id + 1

    def time_out_unload(self, broker: int, bundle: int) -> Refused | None:
        if bundle not in self._brokers[broker].unloads:
            return Refused("not_enabled", "no unload is pending")
        self._brokers[broker].unloads.remove(bundle)
        return None

    def split(self, broker: int, bundle: int) -> int | Refused:
        at = self._brokers[broker]
        data = at.view[bundle]
        if not at.up or at.disabled:
            return Refused("not_enabled", "the channel is not started")
        if 2 * bundle + 2 >= self.cfg.bundles:
            return Refused("illegal_argument", "the bundle has no halves")
        if data is None or data.state != "Owned" or data.dst_broker != broker:
            return Refused("illegal_state", "the broker does not own the bundle")
        self._write(broker, bundle, Data("Splitting", None, broker, data.version_id + 1))
        return data.version_id + 1

    # ---- views ----

    def _has_unread(self, broker: int) -> bool:
        return self._brokers[broker].up and self._brokers[broker].read < len(self._log)

    def read(self, broker: int) -> bool | Refused:
        if not self._has_unread(broker):
            return Refused("not_enabled", "there is no message to read")
        bundle, data = self._log[self._brokers[broker].read]
        self._brokers[broker].read += 1
        return self._offer(broker, bundle, data)

    def jump(self, broker: int) -> int | Refused:
        if not self._has_unread(broker):
            return Refused("not_enabled", "there is no message to read")
        written = sorted({message.bundle for message in self._log[self._brokers[broker].read :]})
        self._brokers[broker].read = len(self._log)
        return sum([self._offer(broker, b, self._stored[b]) for b in written if self._stored[b] is not None])

    def late_ack(self, broker: int) -> int | Refused:
        if not self._topic or not self._brokers[broker].up:
            return Refused("not_enabled", "the broker has no reader")
        return 0

    def notify(self, broker: int, bundle: int) -> bool | Refused:
        at = self._brokers[broker]
        if self._topic or not at.up or at.session == "Unstable":
            return Refused("not_enabled", "the broker has no session with the metadata store")
        stored = self._stored[bundle]
        is_new = at.view[bundle] != stored
        if not is_new and bundle not in at.stale:
            return Refused("not_enabled", "the view has the stored record")
        at.stale.discard(bundle)
        if is_new:
            self._apply(broker, bundle, stored)
        return is_new

    # ---- handlers ----

    def finish(self, broker: int, task: int) -> str | Refused:
        tasks = self._brokers[broker].tasks
        if task >= len(tasks):
            return Refused("not_enabled", "there is no such task")
        bundle, data = tasks[task]
        if data.state == "Splitting" and not self._split[bundle]:
            if self._brokers[broker].session == "Unstable":
                return Refused("not_enabled", "the namespace cannot be changed without a session")
            self._split[bundle] = True
            for half in (2 * bundle + 1, 2 * bundle + 2):
                self._write(broker, half, Data("Owned", broker))
            return "Owned"  # the task stays: its next call writes Deleted
        del tasks[task]
        if data.state in ("Free", "Deleted"):
            self._remove(broker, bundle, data)
            return "Init"
        release = "Free" if data.dst_broker is None else "Assigning"
        state = {"Assigning": "Owned", "Releasing": release, "Splitting": "Deleted"}[data.state]
        force = data.force and state == "Free"
        new = Data(state, data.dst_broker, data.source_broker, data.version_id + 1, force)  # type: ignore[arg-type]
        self._write(broker, bundle, new)
        return state

    def fail_append(self, broker: int, task: int) -> Refused | None:
        tasks = self._brokers[broker].tasks
        if task >= len(tasks):
            return Refused("not_enabled", "there is no such task")
        del tasks[task]
        return None

    # ---- brokers and sessions ----

    def _crash(self, broker: int) -> None:
        """Stops a broker: all it has is lost, except its registry entry."""
        registered = self._brokers[broker].registered
        self._brokers[broker] = _Broker([None] * self.cfg.bundles, 0, up=False, registered=registered)
        if self._leader == broker:
            self._leader = None
        self._leader_knows = self._leader_knows and self._leader is not None

    def _deregister(self, broker: int) -> None:
        """Deletes a broker's registry entry.

        The leader schedules a clean-up if it is another broker, knows that it is the leader, and has a session.
        """
        self._brokers[broker].registered = False
        leader = self._leader if self._leader_knows else None
        if leader is not None and leader != broker and self._brokers[leader].session != "Unstable":
            self._brokers[leader].clean_ups.setdefault(broker, False)

    def _register(self, broker: int) -> None:
        """Registers a broker. The other brokers cancel their clean-ups of this broker."""
        self._brokers[broker].registered = True
        for number, other in enumerate(self._brokers):
            if number != broker:
                other.clean_ups.pop(broker, None)

    def crash(self, broker: int) -> Refused | None:
        if not self._brokers[broker].up:
            return Refused("not_enabled", "the broker is down")
        self._crash(broker)
        return None

    def restart(self, broker: int) -> int | Refused:
        if self._brokers[broker].up:
            return Refused("not_enabled", "the broker is up")
        at = self._brokers[broker] = _Broker(list(self._stored), len(self._log))
        in_flight = [(b, data) for b, data in enumerate(at.view) if data is not None and data.state in _IN_FLIGHT]
        at.tasks = [BundleRecord(b, data) for b, data in in_flight if _actor(data) == broker]
        self._register(broker)
        return len(at.tasks)

    def expire(self, broker: int) -> Refused | None:
        at = self._brokers[broker]
        if at.up or not at.registered:
            return Refused("not_enabled", "the broker is up, or is not registered")
        self._deregister(broker)
        return None

    def lose_session(self, broker: int) -> Refused | None:
        at = self._brokers[broker]
        if not at.up or at.session == "Unstable":
            return Refused("not_enabled", "the broker has no session")
        if self.cfg.session_expired_policy == "shutdown":
            self._crash(broker)
        else:
            at.session = "Unstable"
            at.stale = set() if self._topic else set(range(self.cfg.bundles))
        self._deregister(broker)
        return None

    def reconnect(self, broker: int) -> Refused | None:
        at = self._brokers[broker]
        if not at.up or at.session != "Unstable":
            return Refused("not_enabled", "the broker has a session")
        at.session = "Jittery"
        if not at.disabled:
            self._register(broker)
        return None

    def stabilize(self, broker: int) -> Refused | None:
        if self._brokers[broker].session != "Jittery":
            return Refused("not_enabled", "the session is not new")
        self._brokers[broker].session = "Stable"
        return None

    # ---- the leader ----

    def elect(self, broker: int) -> Refused | None:
        at = self._brokers[broker]
        if self._leader is not None and self._brokers[self._leader].registered:
            return Refused("not_enabled", "there is a leader")
        if not at.up or not at.registered or at.disabled:
            return Refused("not_enabled", "the broker cannot be elected")
        self._leader, self._leader_knows = broker, True
        return None

    def elect_unnoticed(self, broker: int) -> Refused | None:
        outcome = self.elect(broker)
        # a broker that was elected (outcome None) does not know it
        self._leader_knows = self._leader_knows and outcome is not None
        return outcome

    def recheck_election(self) -> Refused | None:
        if self._leader is None or self._leader_knows:
            return Refused("not_enabled", "the leader knows of its election, or never checks it")
        self._leader_knows = True
        return None

    def _monitoring(self) -> tuple[int, _Broker] | None:
        """Returns the leader if it can run the monitor, else None."""
        if self._leader is None or not self._leader_knows or self._brokers[self._leader].session != "Stable":
            return None
        return self._leader, self._brokers[self._leader]

    def monitor(self) -> int | Refused:
        found = self._monitoring()
        if found is None:
            return Refused("not_enabled", "no leader with a stable session")
        count, at = 0, found[1]
        for data in at.view:
            if data is not None and data.state in ("Owned", *_IN_FLIGHT):
                named = (data.dst_broker,) if data.state == "Owned" else (data.dst_broker, data.source_broker)
                for target in named:
                    if target is not None and not self._brokers[target].registered and target not in at.clean_ups:
                        at.clean_ups[target] = False
                        count += 1
        return count

    def override_stuck(self, bundle: int, dst: int) -> int | Refused:
        found = self._monitoring()
        data = None if found is None else found[1].view[bundle]
        if found is None or data is None or data.state not in _IN_FLIGHT:
            return Refused("not_enabled", "no leader with a stable session has the bundle in flight")
        needed = [each for each in (dst, data.dst_broker, data.source_broker) if each is not None]
        if not all(self._brokers[each].registered for each in needed):
            return Refused("not_enabled", "a broker of the record or the destination is not registered")
        self._write(found[0], bundle, self._replacement(data, None, dst, graceful=False))
        return data.version_id + 1

    def remove_old(self, bundle: int) -> Refused | None:
        found = self._monitoring()
        data = None if found is None else found[1].view[bundle]
        if found is None or data is None or data.state == "Init":
            return Refused("not_enabled", "no leader with a stable session has a record")
        if data.state not in ("Free", "Deleted"):
            return Refused("illegal_state", "the record is not semi-terminal")
        self._remove(found[0], bundle, data)
        return None

    # ---- clean-ups ----

    def _replacement(self, data: Data, target: int | None, dst: int | None, *, graceful: bool) -> Data:
        """Returns the record that overrides an orphan of the target, or a stuck record (target None).

        `graceful`: the target itself gives its bundles away, while it shuts down.
        """
        version = data.version_id + 1
        source = target if data.state == "Owned" else data.source_broker
        if dst is None:
            return Data("Free", None, source, version, True)
        if data.state == "Splitting":
            return Data("Splitting", data.dst_broker, dst, version, True)
        if graceful and data.state == "Owned":
            return Data("Releasing", dst, target, version, True)
        return Data("Owned", dst, source if source != dst else None, version, True)

    def start_clean_up(self, broker: int, target: int, healthy: bool) -> bool | Refused:
        at = self._brokers[broker]
        # `get` returns True if there is no clean-up of the target, and if the clean-up runs already
        if at.clean_ups.get(target, True) or (healthy and not self._brokers[target].up):
            return Refused(
                "not_enabled", "no clean-up of the target is scheduled, or the target is down, so not healthy"
            )
        del at.clean_ups[target]
        if not healthy:
            at.clean_ups[target] = True
            self._end_clean_ups(broker)
        return not healthy

    def override(self, broker: int, target: int, bundle: int, dst: int | None) -> int | Refused:
        at = self._brokers[broker]
        data = at.view[bundle]
        if not at.clean_ups.get(target, False) or data is None or not _is_orphan(data, target):
            return Refused("not_enabled", "the bundle is no orphan of a clean-up that runs")
        ordinary = self.cfg.bundles - self.cfg.system_bundles
        if bundle >= ordinary and any(_is_orphan(each, target) for each in at.view[: max(ordinary, 0)]):
            return Refused("not_enabled", "ordinary bundles come first")
        has_other = any(other.registered for number, other in enumerate(self._brokers) if number != target)
        is_fit = dst is not None and dst != target and self._brokers[dst].registered
        if (has_other and not is_fit) or (not has_other and dst is not None):
            return Refused("not_enabled", "the destination must be another registered broker; None if there is none")
        self._write(broker, bundle, self._replacement(data, target, dst, graceful=broker == target))
        return data.version_id + 1

    # ---- shutdown ----

    def disable(self, broker: int) -> Refused | None:
        at = self._brokers[broker]
        if not at.up or at.disabled:
            return Refused("not_enabled", "the broker is down or shuts down")
        if self._leader == broker:
            self._leader, self._leader_knows = None, False
        at.disabled, at.clean_ups = True, {broker: True}
        return None

    def stop(self, broker: int) -> Refused | None:
        at = self._brokers[broker]
        if not at.disabled or any(_is_orphan(data, broker) for data in at.view):
            return Refused("not_enabled", "the broker does not shut down, or its clean-up is not done")
        self._crash(broker)
        self._deregister(broker)
        return None

    # ---- functions ----

    def is_valid_transition(self, storage: str, old: str, new: str) -> Transition:
        pairs = _TOPIC_TRANSITIONS if storage == "system_topic" else _TRANSITIONS
        return Transition((old, new) in pairs, new in _IN_FLIGHT, new == "Owned" or new in _IN_FLIGHT)

    def should_keep_left(self, storage: str, check_brokers: bool, left: Data | None, right: Data | None) -> bool:
        return not _accepts(storage, check_brokers, left, right)

    # ---- for the engines ----

    def view(self) -> State:
        """Returns the model's state. O(size)."""
        brokers = tuple([at.as_model() for at in self._brokers])
        split, stored = tuple(self._split), tuple(self._stored)
        return State(self._leader, self._leader_knows, stored, tuple(self._log), split, brokers)

    @classmethod
    def load(cls, cfg: Config, state: State) -> OwnershipChannel:
        """Returns an implementation in the given state. O(size)."""
        made = cls(cfg)
        made._leader, made._leader_knows = state.leader, state.leader_knows
        made._stored, made._log, made._split = list(state.settled), list(state.log), list(state.is_split)
        for number, each in enumerate(state.brokers):
            at = made._brokers[number] = _Broker(
                list(each.view), each.read, up=each.is_up, registered=each.is_registered
            )
            at.disabled, at.session, at.tasks = each.is_disabled, each.session, list(each.tasks)
            for bundle in range(cfg.bundles):
                for flags, members in (
                    (each.is_stale, at.stale),
                    (each.lookups, at.lookups),
                    (each.unloads, at.unloads),
                ):
                    if flags[bundle]:
                        members.add(bundle)
            at.clean_ups = {job.target: job.is_running for job in each.clean_ups}
        return made

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        wrong = []
        if self._leader is None and self._leader_knows:
            wrong.append("there is no leader, but `leader_knows` is set")
        if self._leader is not None and not self._brokers[self._leader].up:
            wrong.append("the leader is down")
        for number, at in enumerate(self._brokers):
            if not 0 <= at.read <= len(self._log):
                wrong.append(f"broker {number} reads outside the log")
            if not at.up and (at.tasks or at.clean_ups or at.lookups or at.unloads or any(at.view)):
                wrong.append(f"broker {number} is down and has work, or records in its view")
            if at.disabled != at.clean_ups.get(number, False):
                wrong.append(
                    f"broker {number} shuts down without a clean-up of itself, or has one and does not shut down"
                )
            if self._topic and at.stale:
                wrong.append(f"broker {number} has stale records of the topic")
            if any(_actor(task.data) != number for task in at.tasks):
                wrong.append(f"broker {number} has a task of another broker")
        return wrong
