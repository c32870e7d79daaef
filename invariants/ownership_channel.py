"""Properties of the ownership channel (PIP-192): order of records, roles, removal, requests, recovery, liveness.

The accepted record of a bundle is the record that was accepted last (`State.settled`). The view of a broker has, for
each bundle, the last record that this broker accepted. A record that a broker read from the metadata store is stale if
the broker then lost its session; records of the topic are never stale. The handler of a record runs (`Broker.tasks`)
until it ends (`finish`), fails, or its broker stops.
"""

from __future__ import annotations

from collections.abc import Iterator

from invariants.properties import Event, always, eventually, sometimes
from model.machine import Failed, Refused
from model.ownership_channel.machine import ownership_channel
from model.ownership_channel.records import Config, Data
from model.ownership_channel.state import Broker, BundleRecord, State

#: States in which one broker has to write the bundle's next record.
IN_FLIGHT = ("Assigning", "Releasing", "Splitting")
#: States in which a bundle has an owner or is in flight.
ACTIVE = (*IN_FLIGHT, "Owned")
#: Actions in which a broker reads records. (A write to the metadata store also changes the writer's view.)
READS = ("read", "jump", "notify")
#: Actions that write records.
WRITES = ("lookup", "unload", "split", "finish", "override", "override_stuck", "remove_old")

# ---- accessors ------------------------------------------------------------------------------------------


def bundle_state(data: Data | None) -> str:
    """Returns the state of a bundle with this record."""
    return "Init" if data is None else data.state


def owner(data: Data | None) -> int | None:
    """Returns the broker that serves a bundle with this record, or None."""
    if data is None:
        return None
    return {"Owned": data.dst_broker, "Splitting": data.source_broker}.get(data.state)


def involves(data: Data | None, broker: int) -> bool:
    """Whether a record names the broker as destination of an active bundle, or as source of a bundle in flight."""
    if data is None or data.state not in ACTIVE:
        return False
    return data.dst_broker == broker or (data.state in IN_FLIGHT and data.source_broker == broker)


def acceptances(before: State, after: State) -> Iterator[tuple[int, Data | None, Data | None]]:
    """Yields each bundle whose last accepted record a step changes, with the old and the new record.

    A step changes at most one record, with one exception: the first step of a split changes the records of both halves.
    """
    if after.settled is not before.settled:
        for bundle, (old, new) in enumerate(zip(before.settled, after.settled, strict=True)):
            if old != new:
                yield bundle, old, new


def broker_of(s: State, event: Event) -> Broker:
    """Returns the state of the step's broker, which is the argument `broker`."""
    at: Broker = s.brokers[event.arguments["broker"]]
    return at


def view_changes(before: State, event: Event, after: State) -> Iterator[tuple[int, Data | None]]:
    """Yields each bundle whose record in the view of the step's broker changes, with the new record."""
    for bundle, (old, new) in enumerate(zip(broker_of(before, event).view, broker_of(after, event).view, strict=True)):
        if old != new:
            yield bundle, new


# ---- the order of records ------------------------------------------------------------------------------


@always(ownership_channel, on=WRITES)
def accepted_versions_are_consecutive(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The accepted records of a bundle have the versions 1, 2, 3 and so on, without gaps.

    A tombstone has no version. After a tombstone, versions restart at 1.
    """
    return all(
        new is not None and new.version_id == (1 if old is None else old.version_id + 1)
        for _, old, new in acceptances(before, after)
        if new is not None or cfg.removal != "tombstone"
    )


@always(ownership_channel)
def caught_up_view_has_accepted_records(cfg: Config, s: State) -> bool:
    """The view of a running broker that has read the whole topic has the accepted record of every bundle."""
    return cfg.storage != "system_topic" or all(
        at.view == s.settled for at in s.brokers if at.is_up and at.read == len(s.log)
    )


@always(ownership_channel)
def views_of_two_owners_differ_in_version(cfg: Config, s: State) -> bool:
    """Two running brokers that each own a bundle in their own view have Owned records of different versions."""
    for bundle in range(cfg.bundles):
        records = [(number, at.view[bundle]) for number, at in enumerate(s.brokers) if at.is_up]
        versions = [
            r.version_id for number, r in records if r is not None and r.state == "Owned" and r.dst_broker == number
        ]
        if len(set(versions)) < len(versions):
            return False
    return True


@always(ownership_channel, on=("notify",))
def notified_view_has_stored_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a broker reads a stored record, its view has this record, as one that it read in its current session."""
    if isinstance(event.outcome, Refused):
        return True
    bundle, at = event.arguments["bundle"], broker_of(after, event)
    return at.view[bundle] == after.settled[bundle] and not at.is_stale[bundle]


@always(ownership_channel, on=("should_keep_left",))
def conflict_resolution_does_not_fail(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`shouldKeepLeft` decides between any two records of a bundle, and never throws."""
    return not isinstance(event.outcome, Failed)


@always(ownership_channel, on=("should_keep_left",), given=lambda cfg: cfg.versions == "checked")
def outdated_record_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A record whose version is not greater than the existing record's version is rejected, even if it is forced.

    An existing record with the largest version, `Long.MAX_VALUE`, is exempt: its next version is `Long.MIN_VALUE`.
    """
    left, right = event.arguments["left"], event.arguments["right"]
    if left is None or right is None or right.version_id > left.version_id or left.version_id == 2**63 - 1:
        return True
    return event.outcome is True


@always(ownership_channel, on=("is_valid_transition",))
def owned_bundle_is_released_before_assignment(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The transition from Owned to Assigning is invalid: an Owned bundle is released before it is assigned.

    With `transfer_order` "assigning_first", this transition may be valid. No state follows itself, and only Assigning
    and Init may follow Free.
    """
    old, new = event.arguments["old"], event.arguments["new"]
    if not event.outcome.is_valid:
        return True
    is_released = (old, new) != ("Owned", "Assigning") or cfg.transfer_order == "assigning_first"
    return old != new and is_released and (old != "Free" or new in ("Assigning", "Init"))


# ---- roles ----------------------------------------------------------------------------------------------


@always(ownership_channel, on=WRITES)
def owner_is_source_of_next_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The record after an Owned record is Releasing or Splitting, and names the owner as source.

    A forced record and a tombstone may also follow. With `transfer_order` "assigning_first", the record may have any
    state.
    """
    for _, old, new in acceptances(before, after):
        if old is not None and new is not None and old.state == "Owned" and not new.force:
            in_order = new.state in ("Releasing", "Splitting") or cfg.transfer_order == "assigning_first"
            if new.source_broker != old.dst_broker or not in_order:
                return False
    return True


@always(ownership_channel, on=WRITES)
def only_destination_writes_owned(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An Owned record is forced, or a handler of its destination writes it after an Assigning record.

    The Assigning record has the same destination. The first record of each half of a split bundle is exempt: it needs
    no Assigning record. With `transfer_order` "assigning_first", nothing is required.
    """
    for bundle, old, new in acceptances(before, after):
        if new is not None and new.state == "Owned" and not new.force and cfg.transfer_order == "releasing_first":
            is_half = old is None and bundle != 0 and after.is_split[(bundle - 1) // 2]
            is_assigned = old is not None and old.state == "Assigning" and old.dst_broker == new.dst_broker
            if event.name != "finish" or event.arguments["broker"] != new.dst_broker or not (is_assigned or is_half):
                return False
    return True


@always(ownership_channel, on=WRITES)
def only_source_ends_release(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A Releasing record is followed by a record that a handler of the source writes, or by a forced record.

    A tombstone may also follow.
    """
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
        if new and not old and not all(bundle_state(half) == "Owned" for half in halves):
            return False
        if new and not old and {half.dst_broker for half in halves if half} != {event.arguments["broker"]}:
            return False
    return True


@always(ownership_channel, on=READS)
def handler_begins_only_at_broker_that_has_to_act(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new record in a broker's view begins a handler if and only if this broker has to act on the record.

    The destination has to act on an Assigning record, the source on a Releasing, Splitting, Deleted or forced Free
    record. In a disabled channel, a handler begins only for a forced record.
    """
    if isinstance(event.outcome, Refused):
        return True
    at = broker_of(before, event)
    begun = list(broker_of(after, event).tasks[len(at.tasks) :])
    for bundle, data in view_changes(before, event, after):
        actor: int | None = None
        if data is not None and (data.force or not at.is_disabled):
            # `actor` is the broker that has to act on the record, None if no broker has to
            is_of_source = data.state in ("Releasing", "Splitting", "Deleted") or (data.state == "Free" and data.force)
            actor = data.source_broker if is_of_source else data.dst_broker if data.state == "Assigning" else None
        if (BundleRecord(bundle, data) in begun) != (actor == event.arguments["broker"]):  # type: ignore[arg-type]
            return False
    # no more handlers begin than records change
    return len(begun) <= len(list(view_changes(before, event, after)))


# ---- removal --------------------------------------------------------------------------------------------


@always(ownership_channel, on=("finish", "remove_old"))
def removal_removes_the_record_that_was_seen(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker removes only a record that it has read: its handler's record or, as leader, the record in its view."""
    if isinstance(event.outcome, Refused):
        return True
    for bundle, old, new in acceptances(before, after):
        if bundle_state(new) == "Init":
            if event.name == "finish":
                seen = broker_of(before, event).tasks[event.arguments["task"]].data
            else:
                seen = before.brokers[before.leader or 0].view[bundle]  # without a leader, the step is refused
            if old != seen:
                return False
    return True


@always(ownership_channel, on=("remove_old",))
def monitor_removes_no_active_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The leader's monitor, which removes old records, removes none that is active in the leader's view."""
    if isinstance(event.outcome, Refused):
        return True
    return bundle_state(before.brokers[before.leader or 0].view[event.arguments["bundle"]]) not in ACTIVE


@always(ownership_channel, on=WRITES)
def split_bundle_does_not_become_active_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A bundle that was split does not become active again after its record is Deleted or removed."""
    return not any(
        bundle_state(new) in ACTIVE and before.is_split[bundle] and bundle_state(old) in ("Deleted", "Init")
        for bundle, old, new in acceptances(before, after)
    )


# ---- requests -------------------------------------------------------------------------------------------


@always(ownership_channel, on=READS)
def record_that_is_not_in_flight_ends_requests(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new record in a broker's view ends a parked lookup, unless the record is Releasing, Assigning or Splitting.

    The record also ends a pending unload if the bundle is transferred, freed or deleted, or if the bundle's record is
    removed. Exception: a disabled channel ignores a tombstone and a record that is not forced. An ignored record ends
    the bundle's parked lookup and no pending unload.
    """
    if isinstance(event.outcome, Refused):
        return True
    old, new = broker_of(before, event), broker_of(after, event)
    for bundle, data in view_changes(before, event, after):
        is_ignored = new.is_disabled and not (data is not None and data.force)
        in_flight = bundle_state(data) in IN_FLIGHT
        if new.lookups[bundle] != (old.lookups[bundle] and in_flight and not is_ignored):
            return False
        # an Owned record without source ends an assignment; with a source it ends a transfer, and so an unload
        is_first_assignment = bundle_state(data) == "Owned" and data is not None and data.source_broker is None
        ends_unload = not in_flight and not is_first_assignment and not is_ignored
        if new.unloads[bundle] != (old.unloads[bundle] and not ends_unload):
            return False
    return True


@always(ownership_channel, on=("lookup",))
def lookup_of_bundle_in_flight_is_answered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """While a bundle is in flight to a destination, every other broker answers a lookup with the destination."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    data = broker_of(before, event).view[event.arguments["bundle"]]
    if data is None or data.state not in IN_FLIGHT or data.dst_broker in (None, event.arguments["broker"]):
        return True
    return bool(event.outcome == data.dst_broker)


@always(ownership_channel, on=("lookup",))
def broker_answers_itself_only_as_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker answers a lookup with itself only if the broker is the owner of the bundle in its own view."""
    broker = event.arguments["broker"]
    if isinstance(event.outcome, Refused | Failed) or event.outcome != broker:
        return True
    return bool(owner(broker_of(before, event).view[event.arguments["bundle"]]) == broker)


@always(ownership_channel, on=("lookup",))
def registered_owner_is_answered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup of an owned bundle is answered with the owner if the owner is registered, and is parked otherwise.

    If `unregistered_broker_parks` is false, an unregistered broker answers with the owner in either case.
    """
    at = broker_of(before, event)
    expected = owner(at.view[event.arguments["bundle"]])
    if isinstance(event.outcome, Refused | Failed) or expected is None:
        return True
    trusts_view = not at.is_registered and not cfg.unregistered_broker_parks
    return bool(event.outcome == (expected if before.brokers[expected].is_registered or trusts_view else None))


@always(ownership_channel, on=("time_out_lookup",))
def timed_out_lookup_is_not_answered_from_stale_view(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup that times out is not answered from a stale record."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    return not broker_of(before, event).is_stale[event.arguments["bundle"]]


@always(ownership_channel, on=("lookup",))
def disabled_channel_assigns_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker that is shutting down assigns no bundle."""
    if not broker_of(before, event).is_disabled:
        return True
    return after.settled == before.settled and after.log == before.log


# ---- recovery -------------------------------------------------------------------------------------------


def resumed(before: State, event: Event, after: State, states: tuple[str, ...]) -> bool:
    """Whether a restarted broker has a handler for each record in these states on which the broker has to act.

    The destination has to act on an Assigning record, the source on any other record.
    """
    broker = event.arguments["broker"]
    at = after.brokers[broker]
    return isinstance(event.outcome, Refused) or all(
        BundleRecord(bundle, data) in at.tasks
        for bundle, data in enumerate(at.view)
        if data is not None
        and data.state in states
        and broker == (data.dst_broker if data.state == "Assigning" else data.source_broker)
    )


@always(ownership_channel, on=("restart",))
def restarted_broker_resumes_assignments(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A starting broker begins the handler of each Assigning record that names it as destination."""
    return resumed(before, event, after, ("Assigning",))


@always(ownership_channel, on=("restart",))
def restarted_broker_resumes_releases(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A starting broker begins the handler of each Releasing or Splitting record that names it as source."""
    return resumed(before, event, after, ("Releasing", "Splitting"))


@always(ownership_channel, on=("stop",))
def broker_stops_without_bundles(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker stops only after it has given up all its bundles in its own view.

    The view names the broker neither as owner, nor as source or destination of a bundle in flight.
    """
    if isinstance(event.outcome, Refused):
        return True
    return not any(involves(data, event.arguments["broker"]) for data in broker_of(before, event).view)


@always(ownership_channel, on=("override",))
def clean_up_overrides_only_orphans(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A clean-up of a broker overrides an Owned record only if the record names this broker as destination.

    Records in flight are not checked.
    """
    return all(
        old is None or old.state != "Owned" or old.dst_broker == event.arguments["target"]
        for _, old, _ in acceptances(before, after)
    )


@always(ownership_channel, on=("override_stuck",))
def bundle_stuck_in_flight_is_overridden(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A leader with a stable session overrides each record in flight of its view whose brokers are registered.

    The new destination must be registered, too.
    """
    if not isinstance(event.outcome, Refused) or before.leader is None or not before.leader_knows:
        return True
    at, dst = before.brokers[before.leader], event.arguments["dst"]
    data = at.view[event.arguments["bundle"]]
    if at.session != "Stable" or data is None or data.state not in IN_FLIGHT or not before.brokers[dst].is_registered:
        return True
    named = [broker for broker in (data.source_broker, data.dst_broker) if broker is not None]
    return not all(before.brokers[broker].is_registered for broker in named)


@always(ownership_channel, on=("override", "override_stuck"))
def override_names_registered_broker(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An override is forced, and frees the bundle or names a registered broker, not the one that is cleaned up."""
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
    """No broker has a scheduled or running clean-up of another broker that is registered."""
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
    """Two running brokers each own the same bundle in their own view."""
    views = [(number, at.view) for number, at in enumerate(s.brokers) if at.is_up]
    return any(
        len([1 for number, view in views if (data := view[b]) and data.state == "Owned" and data.dst_broker == number])
        > 1
        for b in range(cfg.bundles)
    )


@sometimes(ownership_channel, on=("read",), given=lambda cfg: cfg.storage == "system_topic")
def conflicting_record_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker rejects a record that it reads from the topic."""
    return event.outcome is False


@sometimes(ownership_channel, on=("jump", "notify"))
def view_skips_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A view skips a record: the version of a bundle's new record is higher than the last one by 2 or more."""
    return not isinstance(event.outcome, Refused) and any(
        old is not None and new is not None and new.version_id > old.version_id + 1
        for old, new in zip(broker_of(before, event).view, broker_of(after, event).view, strict=True)
    )


@sometimes(ownership_channel, on=("override",))
def bundle_of_running_broker_is_overridden(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A clean-up overrides an orphan of another broker that is still running."""
    target, broker = event.arguments["target"], event.arguments["broker"]
    return not isinstance(event.outcome, Refused) and target != broker and before.brokers[target].is_up


@sometimes(ownership_channel, on=("stop",))
def broker_that_owned_bundles_stops(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker that has given away a bundle stops: a record in its view still names it as source."""
    return not isinstance(event.outcome, Refused) and any(
        data is not None and data.source_broker == event.arguments["broker"] for data in broker_of(before, event).view
    )


@sometimes(ownership_channel)
def split_bundle_is_deleted(cfg: Config, s: State) -> bool:
    """The record of a split bundle is Deleted.

    With fewer than three bundles, no bundle can be split, and the goal counts as reached.
    """
    return cfg.bundles < 3 or any(bundle_state(data) == "Deleted" for data in s.settled)


# ---- liveness -------------------------------------------------------------------------------------------

#: The actions that still occur after the last fault and the last request.
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

    If all running brokers shut down, none can lead, and nothing is required. The actions in `RECOVERY` are fair, and no
    broker restarts. The scope that checks this property has no splits: overrides may repeat a split for ever.
    """
    return not any(at.is_up and not at.is_disabled for at in s.brokers) or not any(
        bundle_state(data) in IN_FLIGHT or (data is not None and data.state == "Owned" and not owner_runs(s, data))
        for data in s.settled
    )


def owner_runs(s: State, data: Data) -> bool:
    """Whether the owner of a bundle with this Owned record is up and registered."""
    return data.dst_broker is not None and s.brokers[data.dst_broker].is_up and s.brokers[data.dst_broker].is_registered


@eventually(ownership_channel, fair=("read", "notify", "reconnect", "time_out_lookup", "time_out_unload"))
def views_agree_and_requests_end(cfg: Config, s: State) -> bool:
    """Running brokers eventually have equal views, no parked lookup and no pending unload.

    Reads, reconnections and time-outs are fair.
    """
    running = [at for at in s.brokers if at.is_up]
    return not any(any(at.lookups) or any(at.unloads) or at.view != running[0].view for at in running)
