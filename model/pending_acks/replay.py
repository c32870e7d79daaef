"""What the records of a pending-ack log do when they are read again, and what an end takes along, live or read again.

Source: the shipped `PendingAckHandleImpl`, which PIP-160 builds on. A replay begins with the subscription's cursor as
it is. An acknowledgement of which the cursor has everything in storage is dropped, entry by entry. What the cursor has
only in memory may be forgotten, so it is found again and acknowledged again.
"""

from __future__ import annotations

from model.pending_acks.state import (
    Config,
    Cumulative,
    Part,
    Record,
    State,
    acked_of,
    as_one,
    bits_of,
    claims_on,
    conflict,
    held_by,
    holding,
    is_never_answered,
    overlaps,
    reach,
    released,
    with_all_up_to,
    with_parts,
)

#: What an end takes along: what its transaction has acknowledged message by message, and cumulatively.
Ended = tuple[tuple[Part, ...], Cumulative | None]


def taken_by(cfg: Config, s: State, end: Record, *, replayed: bool) -> Ended:
    """What the end of a transaction takes along: all that the transaction holds.

    As shipped, the type of the record says which of the two it is, and a replayed end takes anybody's cumulative one.
    """
    parts, claim = held_by(s, end.txn), s.cumulative
    is_anybodys = replayed and end.cumulative and not cfg.replayed_ends_have_owners
    if claim is not None and claim.txn != end.txn and not is_anybodys:
        claim = None
    if cfg.cumulative_acks_hide_others:
        return ((), claim) if end.cumulative else (parts, None)
    return parts, claim


def without_ended(s: State, txn: int, ended: Ended) -> State:
    """The state in which a transaction does not hold this any more."""
    parts, claim = ended
    held = released(s.held, txn) if parts else s.held
    return s._replace(held=held, cumulative=None if claim is not None else s.cumulative)


def acknowledged(cfg: Config, s: State, ended: Ended) -> State:
    """The state in which the subscription's cursor has this."""
    parts, claim = ended
    acks = with_parts(cfg, s.acks, parts)
    if claim is not None:
        acks = with_all_up_to(cfg, acks, claim.part)
    return s._replace(acks=acks)


def replayed(cfg: Config, s: State, each: Record) -> State:
    """The state after a record of the log was read again."""
    if each.op == "ack":
        return _with_cumulative(cfg, s, each) if each.cumulative else _with_individual(cfg, s, each)
    ended = taken_by(cfg, s, each, replayed=True)
    s = without_ended(s, each.txn, ended)
    return acknowledged(cfg, s, ended) if each.op == "commit" else s


def _with_individual(cfg: Config, s: State, ack: Record) -> State:
    """An acknowledgement message by message: what of it is not durable in the cursor is pending again."""
    if cfg.recovery_drops == "the_whole_record":
        return s if conflict(cfg, s, ack) or is_never_answered(s, ack) else _held(s, ack, ack.parts)
    if cfg.conflicts_are_found == "in_the_log" and _is_claimed(cfg, s, ack):
        return s
    return _held(s, ack, tuple([p for p in ack.parts if bits_of(cfg, p) & ~acked_of(cfg, s.durable, p.entry)]))


def _held(s: State, ack: Record, parts: tuple[Part, ...]) -> State:
    return s._replace(held=holding(s.held, ack.txn, parts))


def _is_claimed(cfg: Config, s: State, ack: Record) -> bool:
    """The record was rejected when it came, as far as what is pending tells."""
    if is_never_answered(s, ack):
        return True
    for part in ack.parts:
        claims = claims_on(cfg, s, part.entry)
        if cfg.overlap == "words_of_pending":
            claims = as_one(claims)
        if any(part.leaves is None or overlaps(cfg, part, claim) for claim in claims):
            return True
    return False


def _with_cumulative(cfg: Config, s: State, ack: Record) -> State:
    """A cumulative acknowledgement: pending again, unless the durable mark has passed its entry."""
    part, other = ack.parts[0], s.cumulative
    if cfg.recovery_drops == "the_whole_record" and conflict(cfg, s, ack):
        return s
    if part.entry < s.durable.mark:
        return s
    is_refused = other is not None and (other.txn != ack.txn or reach(part) <= reach(other.part))
    if cfg.conflicts_are_found == "in_the_log" and is_refused:
        return s
    return s._replace(
        cumulative=Cumulative(ack.txn, part if cfg.recovery_keeps_cumulative_sets else part._replace(leaves=None))
    )
