"""Properties of the ownership channel (PIP-192): versions, views, roles, removal, requests, recovery, liveness."""

from __future__ import annotations

from collections.abc import Iterator

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.ownership_channel.records import Config, Data
from model.ownership_channel.state import Broker, State, Task, ownership_channel

#: States in which a broker has to act, and states in which a bundle has an owner or is in flight.
IN_FLIGHT = ("Assigning", "Releasing", "Splitting")
ACTIVE = (*IN_FLIGHT, "Owned")
#: Actions in which a view accepts records.
READS = ("read", "jump", "notify")
#: Actions that write records.
WRITES = ("lookup", "unload", "split", "finish", "override", "override_stuck", "remove_old")

# ---- accessors ------------------------------------------------------------------------------------------


def state(data: Data | None) -> str:
    """Returns the state of a bundle with this record."""
    return "Init" if data is None else data.state


def names(data: Data | None, broker: int) -> bool:
    """Whether a record names the broker as destination of an active bundle, or as source of one in flight."""
    if data is None or data.state not in ACTIVE:
        return False
    return data.dst_broker == broker or (data.state in IN_FLIGHT and data.source_broker == broker)


def acceptances(before: State, after: State) -> Iterator[tuple[int, Data | None, Data | None]]:
    """Yields each bundle whose accepted record a step changes, with the old and the new record.

    A step of a split changes both halves.
    """
    if after.settled is not before.settled:
        for bundle, (old, new) in enumerate(zip(before.settled, after.settled, strict=True)):
            if old != new:
                yield bundle, old, new


def reader(s: State, event: Event) -> Broker:
    """Returns the broker that the action names, in this state."""
    at: Broker = s.brokers[event.arguments["broker"]]
    return at


def taken(before: State, event: Event, after: State) -> Iterator[tuple[int, Data | None]]:
    """Yields each bundle whose record in the broker's view a step changes, with the new record."""
    for bundle, (old, new) in enumerate(zip(reader(before, event).view, reader(after, event).view, strict=True)):
        if old != new:
            yield bundle, new


# ---- one order of records -------------------------------------------------------------------------------


@always(ownership_channel, on=WRITES)
def accepted_versions_are_consecutive(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The accepted records of a bundle have the versions 1, 2, 3 and so on, without gaps."""
    return all(
        new is not None and new.version_id == (1 if old is None else old.version_id + 1)
        for _, old, new in acceptances(before, after)
        if new is not None or cfg.removal != "tombstone"
    )


@always(ownership_channel)
def caught_up_view_has_accepted_records(cfg: Config, s: State) -> bool:
    """The view of a broker that has read the whole topic has the accepted record of every bundle."""
    return cfg.storage != "system_topic" or all(
        at.view == s.settled for at in s.brokers if at.is_up and at.read == len(s.log)
    )


@always(ownership_channel)
def owners_in_two_views_have_two_versions(cfg: Config, s: State) -> bool:
    """If two running brokers own a bundle in their views, the versions of the two records differ: one is outdated."""
    for bundle in range(cfg.bundles):
        records = [(number, at.view[bundle]) for number, at in enumerate(s.brokers) if at.is_up]
        owned = [
            r.version_id for number, r in records if r is not None and r.state == "Owned" and r.dst_broker == number
        ]
        if len(set(owned)) < len(owned):
            return False
    return True


@always(ownership_channel, on=("notify",))
def notified_view_has_stored_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a broker reads the metadata store, its view has the stored record, and the record is not stale."""
    if isinstance(event.outcome, Refused):
        return True
    bundle, at = event.arguments["bundle"], reader(after, event)
    return at.view[bundle] == after.settled[bundle] and not at.is_stale[bundle]


@always(ownership_channel, on=("should_keep_left",))
def conflict_resolution_does_not_fail(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`shouldKeepLeft` of any two records keeps one of them: it does not throw."""
    return not isinstance(event.outcome, Failed)


@always(ownership_channel, on=("should_keep_left",), given=lambda cfg: cfg.versions == "checked")
def stale_record_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record whose version is not greater than the existing record's version is rejected, even if it is forced.

    Not checked if the existing record has the largest version, `Long.MAX_VALUE`.
    """
    left, right = event.arguments["left"], event.arguments["right"]
    if left is None or right is None or right.version_id > left.version_id or left.version_id == 2**63 - 1:
        return True
    return event.outcome is True


@always(ownership_channel, on=("is_valid_transition",))
def bundle_is_assigned_only_without_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A Free bundle becomes only Assigning or Init, and an Owned bundle is released before it is assigned.

    No state follows itself.
    """
    old, new = event.arguments["old"], event.arguments["new"]
    if not event.outcome.is_valid:
        return True
    is_released = (old, new) != ("Owned", "Assigning") or cfg.transfer_order == "assigning_first"
    return old != new and is_released and (old != "Free" or new in ("Assigning", "Init"))


# ---- roles ----------------------------------------------------------------------------------------------


@always(ownership_channel, on=WRITES)
def owned_bundle_is_given_up_by_its_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An Owned record is followed by Releasing or Splitting with its owner as source, or by a forced record."""
    for _, old, new in acceptances(before, after):
        if old is not None and new is not None and old.state == "Owned" and not new.force:
            in_order = new.state in ("Releasing", "Splitting") or cfg.transfer_order == "assigning_first"
            if new.source_broker != old.dst_broker or not in_order:
                return False
    return True


@always(ownership_channel, on=WRITES)
def only_destination_writes_owned(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An Owned record is written by the destination of an Assigning record, by a split, or by force."""
    for bundle, old, new in acceptances(before, after):
        if new is not None and new.state == "Owned" and not new.force and cfg.transfer_order == "releasing_first":
            is_half = after.is_split[(bundle - 1) // 2] if bundle else False
            is_assigned = old is not None and old.state == "Assigning" and old.dst_broker == new.dst_broker
            if event.name != "finish" or event.arguments["broker"] != new.dst_broker or not (is_assigned or is_half):
                return False
    return True


@always(ownership_channel, on=WRITES)
def only_source_ends_release(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A Releasing record is replaced only by the handler of its source, or by a forced record."""
    for _, old, new in acceptances(before, after):
        is_ended = old is not None and old.state == "Releasing" and new is not None and not new.force
        if is_ended and (event.name != "finish" or event.arguments["broker"] != old.source_broker):  # type: ignore[union-attr]
            return False
    return True


@always(ownership_channel, on=("finish",))
def halves_are_owned_by_the_splitting_broker(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a bundle is split, both halves are Owned by the broker that splits it."""
    for bundle, (old, new) in enumerate(zip(before.is_split, after.is_split, strict=True)):
        halves = after.settled[2 * bundle + 1 : 2 * bundle + 3]
        if new and not old and not all(state(half) == "Owned" for half in halves):
            return False
        if new and not old and {half.dst_broker for half in halves if half} != {event.arguments["broker"]}:
            return False
    return True


@always(ownership_channel, on=READS)
def handler_begins_only_at_broker_that_has_to_act(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new record in a view begins a handler if and only if this broker has to act on the record.

    The destination has to act on an Assigning record, the source on a Releasing, Splitting, Deleted or forced Free
    record. In a disabled channel, a handler begins only for a forced record.
    """
    if isinstance(event.outcome, Refused):
        return True
    at = reader(before, event)
    begun = list(reader(after, event).tasks[len(at.tasks) :])
    for bundle, data in taken(before, event, after):
        wanted: int | None = None
        if data is not None and (data.force or not at.is_disabled):
            by_source = data.state in ("Releasing", "Splitting", "Deleted") or (data.state == "Free" and data.force)
            wanted = data.source_broker if by_source else data.dst_broker if data.state == "Assigning" else None
        if (Task(bundle, data) in begun) != (wanted == event.arguments["broker"]):  # type: ignore[arg-type]
            return False
    return len(begun) <= len(list(taken(before, event, after)))


# ---- removal --------------------------------------------------------------------------------------------


@always(ownership_channel, on=("finish", "remove_old"))
def removal_removes_the_record_that_was_seen(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal removes only the record that the removing broker has read."""
    if isinstance(event.outcome, Refused):
        return True
    for bundle, old, new in acceptances(before, after):
        if state(new) == "Init":
            if event.name == "finish":
                seen = reader(before, event).tasks[event.arguments["task"]].data
            else:
                seen = before.brokers[before.leader or 0].view[bundle]
            if old != seen:
                return False
    return True


@always(ownership_channel, on=("remove_old",))
def monitor_removes_no_active_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The monitor removes no record that is active in the leader's view."""
    if isinstance(event.outcome, Refused):
        return True
    return state(before.brokers[before.leader or 0].view[event.arguments["bundle"]]) not in ACTIVE


@always(ownership_channel, on=WRITES)
def deleted_bundle_is_not_assigned_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A bundle that was split does not become active again after its record is Deleted or removed."""
    return not any(
        state(new) in ACTIVE and before.is_split[bundle] and state(old) in ("Deleted", "Init")
        for bundle, old, new in acceptances(before, after)
    )


# ---- requests -------------------------------------------------------------------------------------------


@always(ownership_channel, on=READS)
def record_that_settles_ownership_ends_requests(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new record in a view ends a parked lookup if and only if the record is not in flight, or is not forced in a
    disabled channel.

    A pending unload ends when the bundle is transferred, freed or deleted, or its record is removed.
    """
    if isinstance(event.outcome, Refused):
        return True
    old, new = reader(before, event), reader(after, event)
    for bundle, data in taken(before, event, after):
        ignored = new.is_disabled and not (data is not None and data.force)
        is_settled = state(data) not in IN_FLIGHT
        if new.lookups[bundle] != (old.lookups[bundle] and not is_settled and not ignored):
            return False
        ends = is_settled and not (state(data) == "Owned" and data is not None and data.source_broker is None)
        if new.unloads[bundle] != (old.unloads[bundle] and not (ends and not ignored)):
            return False
    return True


@always(ownership_channel, on=("lookup",))
def lookup_at_source_of_transfer_is_answered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """During a transfer, every broker but the destination answers a lookup at once, with the destination."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    data = reader(before, event).view[event.arguments["bundle"]]
    if data is None or data.state not in IN_FLIGHT or data.dst_broker in (None, event.arguments["broker"]):
        return True
    return bool(event.outcome == data.dst_broker)


@always(ownership_channel, on=("lookup",))
def broker_answers_itself_only_as_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker answers a lookup with itself only if its view says that it owns the bundle."""
    broker = event.arguments["broker"]
    if isinstance(event.outcome, Refused | Failed) or event.outcome != broker:
        return True
    data = reader(before, event).view[event.arguments["bundle"]]
    owner = data and {"Owned": data.dst_broker, "Splitting": data.source_broker}.get(data.state)
    return bool(owner == broker)


@always(ownership_channel, on=("lookup",))
def registered_owner_is_answered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup of an owned bundle is answered at once if the owner is registered, else parked."""
    at = reader(before, event)
    data = at.view[event.arguments["bundle"]]
    owner = data and {"Owned": data.dst_broker, "Splitting": data.source_broker}.get(data.state)
    if isinstance(event.outcome, Refused | Failed) or owner is None:
        return True
    trusts_view = not at.is_registered and not cfg.unregistered_broker_parks
    return bool(event.outcome == (owner if before.brokers[owner].is_registered or trusts_view else None))


@always(ownership_channel, on=("time_out_lookup",))
def timed_out_lookup_is_not_answered_from_stale_view(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup that times out is answered only from a record that was read in the broker's current session."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    return not reader(before, event).is_stale[event.arguments["bundle"]]


@always(ownership_channel, on=("lookup",))
def disabled_channel_assigns_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker that is shutting down assigns no bundle."""
    if not reader(before, event).is_disabled:
        return True
    return after.settled == before.settled and after.log == before.log


# ---- recovery -------------------------------------------------------------------------------------------


def resumed(before: State, event: Event, after: State, states: tuple[str, ...]) -> bool:
    """Whether a restarted broker has a task for each record in these states on which it has to act."""
    broker = event.arguments["broker"]
    at = after.brokers[broker]
    return isinstance(event.outcome, Refused) or all(
        Task(bundle, data) in at.tasks
        for bundle, data in enumerate(at.view)
        if data is not None
        and data.state in states
        and broker == (data.dst_broker if data.state == "Assigning" else data.source_broker)
    )


@always(ownership_channel, on=("restart",))
def restarted_broker_resumes_assignments(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A starting broker begins a handler for each Assigning record with itself as destination."""
    return resumed(before, event, after, ("Assigning",))


@always(ownership_channel, on=("restart",))
def restarted_broker_resumes_releases(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A starting broker begins a handler for each Releasing or Splitting record with itself as source."""
    return resumed(before, event, after, ("Releasing", "Splitting"))


@always(ownership_channel, on=("stop",))
def broker_stops_without_bundles(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a broker stops, its view has no bundle that this broker owns, or that is in flight from or to it."""
    if isinstance(event.outcome, Refused):
        return True
    return not any(names(data, event.arguments["broker"]) for data in reader(before, event).view)


@always(ownership_channel, on=("override",))
def clean_up_overrides_only_orphans(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A clean-up of a broker overrides an Owned record only if this broker is the destination of the record."""
    data = reader(before, event).view[event.arguments["bundle"]]
    if isinstance(event.outcome, Refused) or data is None or data.state != "Owned":
        return True
    return bool(data.dst_broker == event.arguments["target"])


@always(ownership_channel, on=("override", "override_stuck"))
def override_names_registered_broker(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An override is a forced record that names a registered broker other than the clean-up's target, or frees the
    bundle.
    """
    dst = event.arguments["dst"]
    if isinstance(event.outcome, Refused):
        return True
    if dst is not None and (not before.brokers[dst].is_registered or dst == event.arguments.get("target")):
        return False
    return all(
        new is not None and new.force and dst in (new.dst_broker, new.source_broker)
        for _, _, new in acceptances(before, after)
    )


@always(ownership_channel)
def registered_broker_is_not_cleaned_up(cfg: Config, s: State) -> bool:
    """No broker has scheduled a clean-up of another broker that is registered."""
    return not any(
        job.target != number and s.brokers[job.target].is_registered
        for number, at in enumerate(s.brokers)
        for job in at.clean_ups
    )


@always(ownership_channel, on=("recheck_election",))
def reconnected_leader_knows_that_it_leads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A leader that reconnects learns that it was elected."""
    return after.leader is None or after.leader_knows


@always(ownership_channel)
def leader_is_running(cfg: Config, s: State) -> bool:
    """The leader is running and is not shutting down."""
    return s.leader is None or (s.brokers[s.leader].is_up and not s.brokers[s.leader].is_disabled)


# ---- coverage goals -------------------------------------------------------------------------------------


@sometimes(ownership_channel, on=("finish",))
def transfer_completes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The destination of a transfer becomes the owner of the bundle."""
    return any(
        new is not None and new.state == "Owned" and new.source_broker is not None and not new.force
        for _, _, new in acceptances(before, after)
    )


@sometimes(ownership_channel)
def two_brokers_own_bundle_in_their_own_views(cfg: Config, s: State) -> bool:
    """In the views of two running brokers, each of them owns the same bundle."""
    views = [(number, at.view) for number, at in enumerate(s.brokers) if at.is_up]
    return any(
        len([1 for number, view in views if (data := view[b]) and data.state == "Owned" and data.dst_broker == number])
        > 1
        for b in range(cfg.bundles)
    )


@sometimes(ownership_channel, on=("read",), given=lambda cfg: cfg.storage == "system_topic")
def conflicting_record_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reader of the topic rejects a record."""
    return event.outcome is False


@sometimes(ownership_channel, on=("jump", "notify"))
def view_skips_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A view changes to a record whose version is not the next version."""
    return not isinstance(event.outcome, Refused) and any(
        old is not None and new is not None and new.version_id > old.version_id + 1
        for old, new in zip(reader(before, event).view, reader(after, event).view, strict=True)
    )


@sometimes(ownership_channel, on=("override",))
def bundle_of_running_broker_is_overridden(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A clean-up of a running broker by another broker overrides a bundle."""
    target, broker = event.arguments["target"], event.arguments["broker"]
    return not isinstance(event.outcome, Refused) and target != broker and before.brokers[target].is_up


@sometimes(ownership_channel, on=("stop",))
def broker_that_owned_bundles_stops(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker stops after it transferred or freed a bundle."""
    return not isinstance(event.outcome, Refused) and any(
        data is not None and data.source_broker == event.arguments["broker"] for data in reader(before, event).view
    )


@sometimes(ownership_channel)
def split_bundle_is_deleted(cfg: Config, s: State) -> bool:
    """The record of a split bundle is Deleted."""
    return cfg.bundles < 3 or any(state(data) == "Deleted" for data in s.settled)


# ---- liveness -------------------------------------------------------------------------------------------

#: The actions that continue after faults and requests have ended.
RECOVERY = (
    "read",
    "notify",
    "finish",
    "expire",
    "reconnect",
    "stabilize",
    "elect",
    "recheck_election",
    "monitor",
    "start_clean_up",
    "override",
    "override_stuck",
)


@eventually(ownership_channel, fair=RECOVERY)
def every_bundle_has_a_running_owner_or_none(cfg: Config, s: State) -> bool:
    """Every bundle is eventually Owned by a running registered broker, or has no owner and is not in flight.

    This assumes that the recovery actions are fair and that some broker runs. No broker is restarted.
    """
    return not any(at.is_up for at in s.brokers) or not any(
        state(data) in IN_FLIGHT or (data is not None and data.state == "Owned" and not owner_runs(s, data))
        for data in s.settled
    )


def owner_runs(s: State, data: Data) -> bool:
    """Whether the destination of a record is up and registered."""
    return data.dst_broker is not None and s.brokers[data.dst_broker].is_up and s.brokers[data.dst_broker].is_registered


@eventually(ownership_channel, fair=("read", "notify", "reconnect", "time_out_lookup", "time_out_unload"))
def views_agree_and_requests_end(cfg: Config, s: State) -> bool:
    """Running brokers eventually have equal views and no pending request, if reads and time-outs are fair."""
    running = [at for at in s.brokers if at.is_up]
    return not any(any(at.lookups) or any(at.unloads) or at.view != running[0].view for at in running)
