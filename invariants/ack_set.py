"""What ack sets promise: each said message by message, from the words as they were given."""

from __future__ import annotations

from invariants.properties import Event, always, sometimes
from model.ack_set import AckPosition, AckSet, Batch, Config, State, ack_set
from model.machine import Refused

QUESTIONS = (
    "get_index",
    "next_set_bit",
    "next_clear_bit",
    "and_ack_set",
    "and_position_ack_set",
    "is_ack_set_empty",
    "is_ack_set_overlap",
    "compare_with_ack_set",
)
RANGES = ("set_range", "clear_range", "flip_range")
INDICES = ("set_index", "clear_index")
SETS = ("set_range", "set_index")
CLEARS = ("clear_range", "clear_index")


def left(words: AckSet) -> set[int]:
    """The messages that are not acknowledged: bit i of word w is message 64 w + i."""
    return {64 * w + i for w, word in enumerate(words) for i in range(64) if word >> i & 1}


def left_in(s: State, event: Event) -> set[int]:
    """The messages that are not acknowledged of the batch that a call is about."""
    [bits] = [b.bits for b in s.batches if b.batch == event.arguments["batch"]]
    return {i for i in range(bits.bit_length()) if bits >> i & 1}


def others(s: State, batch: int) -> list[Batch]:
    """All batches but one."""
    return [b for b in s.batches if b.batch != batch]


def named(event: Event) -> set[int]:
    """The messages that a call is about."""
    if event.name in RANGES:
        return set(range(event.arguments["begin"], event.arguments["end"]))
    return {event.arguments["index"]} if event.name in INDICES else set()


def was_refused(event: Event) -> bool:
    """The call was not allowed."""
    return isinstance(event.outcome, Refused)


# ---- batches ------------------------------------------------------------------------------------------


@always(ack_set, on=(*RANGES, *INDICES))
def a_call_changes_what_it_names(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Setting leaves messages to be acknowledged, clearing acknowledges them, flipping turns them; no others change."""
    if was_refused(event):
        return True
    wanted, old = named(event), left_in(before, event)
    new = old | wanted if event.name in SETS else old - wanted if event.name in CLEARS else old ^ wanted
    return left_in(after, event) == new


@always(ack_set, on=("and_with",))
def an_and_only_acknowledges(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Adding another set's acknowledgements keeps one's own: what is left, is left in both."""
    return was_refused(event) or left_in(after, event) == left_in(before, event) & left(event.arguments["words"])


@always(ack_set)
def no_bit_is_beyond_the_batch(cfg: Config, s: State) -> bool:
    """Nothing is left to be acknowledged that the batch does not have."""
    return cfg.batch_size == 0 or all(b.bits.bit_length() <= cfg.batch_size for b in s.batches)


@always(ack_set, on=("open_batch", "give_back", *RANGES, *INDICES, "and_with"))
def a_call_leaves_other_batches_alone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A set belongs to one batch: whatever is opened, changed or given back, no other batch changes."""
    if event.name == "open_batch":
        return after.batches == (*before.batches, Batch(event.outcome, 0)) and event.outcome == before.next_batch
    batch = event.arguments["batch"]
    kept = [b.batch for b in after.batches] == [b.batch for b in before.batches]
    is_gone = event.name == "give_back" and after.batches == tuple(others(before, batch))
    return others(after, batch) == others(before, batch) and (is_gone or (kept and event.name != "give_back"))


@always(ack_set, on=QUESTIONS)
def a_question_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Asking about a batch or about sets that are given changes no batch."""
    return after == before


@always(ack_set, on=("get_index", "next_set_bit", "next_clear_bit"))
def a_batch_knows_what_is_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batch says of each message whether it is acknowledged, and finds the next one that is, or is not."""
    if was_refused(event):
        return True
    remaining = left_in(before, event)
    if event.name == "get_index":
        return event.outcome is (event.arguments["index"] in remaining)
    begin = event.arguments["begin"]
    if event.name == "next_set_bit":
        return bool(event.outcome == min((i for i in remaining if i >= begin), default=-1))
    return bool(event.outcome == next(i for i in range(begin, begin + len(remaining) + 1) if i not in remaining))


# ---- sets that are given ------------------------------------------------------------------------------


@always(ack_set, on=("and_ack_set", "and_position_ack_set"))
def an_and_leaves_what_both_leave(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A message is acknowledged in the result if it is in either set, and the last word of the result is not zero."""
    if event.name == "and_ack_set":
        first, second, result = event.arguments["first"], event.arguments["second"], event.outcome
    else:
        current, other = event.arguments["current"], event.arguments["other"]
        if was_refused(event) or current is None or other is None:
            return was_refused(event) or event.outcome is None or event.outcome.current_ack_set == current.ack_set
        first, second, result = current.ack_set, other.ack_set, event.outcome.current_ack_set
    return left(result) == left(first) & left(second) and (not result or result[-1] != 0)


@always(ack_set, on=("is_ack_set_empty",))
def an_empty_set_leaves_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A set is empty when every message is acknowledged, however many zero words it has."""
    return event.outcome is (len(left(event.arguments["ack_set"])) == 0)


@always(ack_set, on=("is_ack_set_overlap",))
def an_overlap_is_exact(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two sets overlap if and only if both acknowledge the same message of the batch, wherever zero words were cut.

    As shipped it is broken twice: messages in a last word that is fully acknowledged are overlooked, and bits beyond
    the batch count as acknowledged.
    """
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None:
        return event.outcome is False
    batch = set(range(cfg.batch_size or 64 * max(len(current), len(other))))
    return event.outcome is (len(batch - left(current) - left(other)) > 0)


def progress(p: AckPosition) -> tuple[int, int, float]:
    """How far a position has come: ledger, entry, and how many messages come before the first one that is left."""
    return p.ledger, p.entry, min(left(p.ack_set or ()), default=float("inf"))


@always(ack_set, on=("compare_with_ack_set",))
def a_comparison_tells_who_has_come_further(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Positions are ordered by ledger, entry, and the first message not acknowledged; a whole entry is the furthest.

    The sign of the answer is that of this order, which is total.
    """
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None:
        return was_refused(event)
    ours, theirs = progress(current), progress(other)
    return (event.outcome > 0, event.outcome < 0) == (ours > theirs, ours < theirs)


@always(ack_set)
def what_makes_no_sense_is_refused(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What is refused: a batch that is not open, a message beyond the batch, a range that ends before it begins, and a
    position that lacks its set.
    """
    if "batch" in event.arguments and event.arguments["batch"] not in [b.batch for b in before.batches]:
        return was_refused(event) and event.outcome.kind == "not_open"
    if event.name in ("and_position_ack_set", "compare_with_ack_set"):
        return was_refused(event) == lacks(event)
    if event.name in RANGES and event.arguments["begin"] > event.arguments["end"]:
        return was_refused(event)
    asked = named(event) | (left(event.arguments["words"]) if event.name == "and_with" else set())
    if event.name == "get_index":
        asked = {event.arguments["index"]}
    last = event.arguments["end"] - 1 if event.name in RANGES else max(asked, default=-1)
    return was_refused(event) == (0 < cfg.batch_size <= last)


def lacks(event: Event) -> bool:
    """A position that a question needs is missing, or has no set."""
    both = [event.arguments["current"], event.arguments["other"]]
    if event.name == "compare_with_ack_set":
        return None in both
    return None not in both and any(not p.carries_ack_set or p.ack_set is None for p in both)


# ---- what a run must have seen ------------------------------------------------------------------------


@sometimes(ack_set)
def a_batch_is_more_than_a_word(cfg: Config, s: State) -> bool:
    """Messages are left in the second word of a batch, none in the first."""
    return any(b.bits > 2**64 - 1 and b.bits % 2**64 == 0 for b in s.batches)


@sometimes(ack_set, on=(*CLEARS, "and_with"))
def the_last_message_of_a_batch_is_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batch that had messages left has none any more, while another one has."""
    if was_refused(event) or after == before or left_in(after, event):
        return False
    return any(b.bits for b in after.batches)


@sometimes(ack_set, on=("open_batch",))
def a_batch_is_opened_after_another_was_given_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A set that has served one batch may serve another one, while a third is still open."""
    return len(before.batches) > 0 and before.next_batch > len(before.batches) + 1


@sometimes(ack_set, on=("is_ack_set_overlap",))
def an_overlap_only_where_zero_words_were_cut(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two sets acknowledge the same messages only in a word that neither of them has."""
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None or len(current) != len(other) or cfg.batch_size <= 64 * len(current):
        return False
    return all(a | b == -1 for a, b in zip(current, other, strict=True))


@sometimes(ack_set, on=("is_ack_set_overlap",), given=lambda cfg: cfg.overlap == "within_batch")
def no_overlap_though_bits_beyond_the_batch_are_zero(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two sets that are no longer than their batch, which is no multiple of 64, acknowledge different messages."""
    current, other = event.arguments["current"], event.arguments["other"]
    if not current or not other or cfg.batch_size % 64 == 0 or event.outcome is not False:
        return False
    return len(current) == 1 and len(other) == 1 and current != other and current[0] | other[0] != -1


@sometimes(ack_set, on=("compare_with_ack_set",))
def a_whole_entry_against_a_part(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One of two positions in an entry has no set or an empty one, the other has messages left."""
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None or progress(current)[:2] != progress(other)[:2]:
        return False
    return bool(left(current.ack_set or ())) != bool(left(other.ack_set or ()))
