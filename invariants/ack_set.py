"""Guarantees of ack sets. The properties compute sets of messages from ack sets, and compare these sets."""

from __future__ import annotations

from invariants.properties import Event, always, sometimes
from model.ack_set import AckPosition, AckSet, Batch, Config, State, Updated, ack_set
from model.machine import Refused

QUERIES = (
    "get_index",
    "next_set_bit",
    "next_clear_bit",
    "and_ack_set",
    "and_position_ack_set",
    "is_ack_set_empty",
    "is_ack_set_overlap",
    "compare_with_ack_set",
)
RANGE_CALLS = ("set_range", "clear_range", "flip_range")
INDEX_CALLS = ("set_index", "clear_index")
SET_CALLS = ("set_range", "set_index")
CLEAR_CALLS = ("clear_range", "clear_index")


def unacknowledged(words: AckSet) -> set[int]:
    """Returns the unacknowledged messages of an ack set: bit i of word w is message 64 w + i."""
    return {64 * w + i for w, word in enumerate(words) for i in range(64) if word >> i & 1}


def unacknowledged_in(s: State, event: Event) -> set[int]:
    """Returns the unacknowledged messages of the call's batch."""
    [bits] = [b.bits for b in s.batches if b.batch == event.arguments["batch"]]
    return {i for i in range(bits.bit_length()) if bits >> i & 1}


def other_batches(s: State, batch: int) -> list[Batch]:
    """Returns all open batches except one."""
    return [b for b in s.batches if b.batch != batch]


def messages_in_arguments(event: Event) -> set[int]:
    """Returns the messages in the range or index of the call; none if the call has neither."""
    if event.name in RANGE_CALLS:
        return set(range(event.arguments["begin"], event.arguments["end"]))
    return {event.arguments["index"]} if event.name in INDEX_CALLS else set()


def was_rejected(event: Event) -> bool:
    """Returns whether the call was rejected."""
    return isinstance(event.outcome, Refused)


# ---- batches ------------------------------------------------------------------------------------------


@always(ack_set, on=(*RANGE_CALLS, *INDEX_CALLS))
def update_changes_only_named_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update sets, clears or flips the bits of its range or index, and no others."""
    if was_rejected(event):
        return True
    named, old = messages_in_arguments(event), unacknowledged_in(before, event)
    # set calls add the messages to the unacknowledged ones, clear calls remove them, `flip_range` toggles them
    new = old | named if event.name in SET_CALLS else old - named if event.name in CLEAR_CALLS else old ^ named
    return unacknowledged_in(after, event) == new


@always(ack_set, on=("and_with",))
def and_with_keeps_messages_unacknowledged_in_both(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `and_with`, a message of the batch is unacknowledged if and only if it was so in both ack sets."""
    if was_rejected(event):
        return True
    other = unacknowledged(event.arguments["words"])
    return unacknowledged_in(after, event) == unacknowledged_in(before, event) & other


@always(ack_set)
def ack_set_is_within_batch(cfg: Config, s: State) -> bool:
    """No bit beyond the batch size is set, if the size is known."""
    return cfg.batch_size == 0 or all(b.bits.bit_length() <= cfg.batch_size for b in s.batches)


@always(ack_set, on=("open_batch", "recycle", *RANGE_CALLS, *INDEX_CALLS, "and_with"))
def update_leaves_other_batches_unchanged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call changes only the batch in its arguments.

    `open_batch` adds a batch with the next number and without set bits. `recycle` removes its batch, if it is open. No
    other call adds or removes a batch. Only `open_batch` changes the next number.
    """
    if event.name == "open_batch":
        return after == State((*before.batches, Batch(event.outcome, 0)), event.outcome + 1) and (
            event.outcome == before.next_batch
        )
    if after.next_batch != before.next_batch:
        return False
    batch = event.arguments["batch"]
    kept = [b.batch for b in after.batches] == [b.batch for b in before.batches]
    # a rejected recycle changes nothing: its batch is not open, so `before` has only other batches
    recycle_is_as_expected = event.name == "recycle" and after.batches == tuple(other_batches(before, batch))
    batches_are_as_expected = recycle_is_as_expected or (kept and event.name != "recycle")
    return batches_are_as_expected and other_batches(after, batch) == other_batches(before, batch)


@always(ack_set, on=QUERIES)
def query_leaves_state_unchanged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A query changes no batch."""
    return after == before


@always(ack_set, on=("get_index", "next_set_bit", "next_clear_bit"))
def query_finds_unacknowledged_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`get_index` returns whether a message is unacknowledged; `next_set_bit` returns the first such message.

    `next_clear_bit` returns the first clear bit, within the batch or beyond it. `next_set_bit` and `next_clear_bit`
    begin at an index. If no bit from there on is set, `next_set_bit` returns -1.
    """
    if was_rejected(event):
        return True
    remaining = unacknowledged_in(before, event)
    if event.name == "get_index":
        return event.outcome is (event.arguments["index"] in remaining)
    begin = event.arguments["begin"]
    if event.name == "next_set_bit":
        return bool(event.outcome == min((i for i in remaining if i >= begin), default=-1))
    return bool(event.outcome == next(i for i in range(begin, begin + len(remaining) + 1) if i not in remaining))


# ---- functions of ack sets ----------------------------------------------------------------------------


@always(ack_set, on=("and_ack_set", "and_position_ack_set"))
def and_has_exactly_the_bits_set_in_both(cfg: Config, before: State, event: Event, after: State) -> bool:
    """In the AND of two ack sets, a bit is set if and only if it is set in both. No zero word is at the end of the AND.

    In `and_position_ack_set`: if only `other` is null, the ack set of `current` does not change; if `current` is null,
    there is no result.
    """
    if event.name == "and_ack_set":
        first, second, result = event.arguments["first"], event.arguments["second"], event.outcome
    else:
        current, other = event.arguments["current"], event.arguments["other"]
        if was_rejected(event) or current is None or other is None:
            wanted = None if current is None else Updated(current.ack_set)
            return was_rejected(event) or bool(event.outcome == wanted)
        first, second, result = current.ack_set, other.ack_set, event.outcome.current_ack_set
    return unacknowledged(result) == unacknowledged(first) & unacknowledged(second) and (not result or result[-1] != 0)


@always(ack_set, on=("is_ack_set_empty",))
def ack_set_is_empty_iff_all_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack set is empty if and only if it acknowledges all messages, whatever its number of words."""
    return event.outcome is (len(unacknowledged(event.arguments["ack_set"])) == 0)


@always(ack_set, on=("is_ack_set_overlap",))
def overlap_iff_message_acknowledged_in_both(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two ack sets overlap if and only if a message of the batch is acknowledged by both.

    Missing words at the end count as zeros. If the batch size is unknown, the batch is as long as the longer ack set. A
    null ack set overlaps with none.
    """
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None:
        return event.outcome is False
    batch = set(range(cfg.batch_size or 64 * max(len(current), len(other))))
    return event.outcome is (len(batch - unacknowledged(current) - unacknowledged(other)) > 0)


def comparison_key(p: AckPosition) -> tuple[int, int, float]:
    """Returns the ledger, the entry and the first unacknowledged message of a position, infinity if there is none."""
    return p.ledger, p.entry, min(unacknowledged(p.ack_set or ()), default=float("inf"))


@always(ack_set, on=("compare_with_ack_set",))
def comparison_orders_by_first_unacknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Positions are compared by ledger, then by entry, then by their first unacknowledged message.

    A position that acknowledges the whole entry is the largest of the entry. The property checks the sign of the result
    only.
    """
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None:
        return was_rejected(event)
    ours, theirs = comparison_key(current), comparison_key(other)
    return (event.outcome > 0, event.outcome < 0) == (ours > theirs, ours < theirs)


@always(ack_set)
def call_is_rejected_iff_invalid(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call is rejected if and only if its arguments are invalid.

    Invalid are: a batch that is not open; an inverted range; an index, a range or a bit of `words` beyond the batch
    (but `next_set_bit` and `next_clear_bit` may begin there); in `compare_with_ack_set`, a null position; in
    `and_position_ack_set`, two positions of which at least one has no ack set.
    """
    if "batch" in event.arguments and event.arguments["batch"] not in [b.batch for b in before.batches]:
        return was_rejected(event) and event.outcome.kind == "not_open"
    if event.name in ("and_position_ack_set", "compare_with_ack_set"):
        return was_rejected(event) == lacks_position_or_ack_set(event)
    if event.name in RANGE_CALLS and event.arguments["begin"] > event.arguments["end"]:
        return was_rejected(event)
    messages = messages_in_arguments(event)
    if event.name == "and_with":
        messages = unacknowledged(event.arguments["words"])
    if event.name == "get_index":
        messages = {event.arguments["index"]}
    # for a range, not max(messages): an empty range that ends beyond the batch is also rejected
    highest = event.arguments["end"] - 1 if event.name in RANGE_CALLS else max(messages, default=-1)
    return was_rejected(event) == (0 < cfg.batch_size <= highest)


def lacks_position_or_ack_set(event: Event) -> bool:
    """Returns whether a position or ack set that the call requires is missing."""
    both = [event.arguments["current"], event.arguments["other"]]
    if event.name == "compare_with_ack_set":
        return None in both
    return None not in both and any(not p.carries_ack_set or p.ack_set is None for p in both)


# ---- coverage goals -----------------------------------------------------------------------------------


@sometimes(ack_set)
def only_later_words_have_bits(cfg: Config, s: State) -> bool:
    """A batch has unacknowledged messages, but none among its first 64 messages (the first word)."""
    return any(b.bits > 2**64 - 1 and b.bits % 2**64 == 0 for b in s.batches)


@sometimes(ack_set, on=(*CLEAR_CALLS, "and_with"))
def last_message_is_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call acknowledges the last unacknowledged message of a batch, while another batch still has one."""
    if was_rejected(event) or after == before or unacknowledged_in(after, event):
        return False
    return any(b.bits for b in after.batches)


@sometimes(ack_set, on=("open_batch",))
def batch_is_opened_after_recycling(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A batch is opened while another one is open, and after a third one was recycled."""
    return len(before.batches) > 0 and before.next_batch > len(before.batches) + 1


@sometimes(ack_set, on=("is_ack_set_overlap",))
def overlap_is_in_trimmed_words_only(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The only messages that both ack sets acknowledge are in words that neither has.

    All messages of such a word count as acknowledged.
    """
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None or len(current) != len(other) or cfg.batch_size <= 64 * len(current):
        return False
    return all(a | b == -1 for a, b in zip(current, other, strict=True))  # -1: no message is acknowledged by both


@sometimes(ack_set, on=("is_ack_set_overlap",), given=lambda cfg: cfg.overlap == "within_batch")
def disjoint_acks_have_clear_padding(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two different ack sets of one word each acknowledge no common message, although both have a clear padding bit.

    Two equal ack sets without a common acknowledged message would acknowledge no message at all.
    """
    current, other = event.arguments["current"], event.arguments["other"]
    if not current or not other or cfg.batch_size % 64 == 0 or event.outcome is not False:
        return False
    # a bit that is clear in both words is beyond the batch, because the ack sets do not overlap
    return len(current) == 1 and len(other) == 1 and current != other and current[0] | other[0] != -1


@sometimes(ack_set, on=("compare_with_ack_set",))
def whole_entry_is_compared_with_part(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two positions of an entry are compared: one acknowledges the whole entry, the other one does not."""
    current, other = event.arguments["current"], event.arguments["other"]
    if current is None or other is None or comparison_key(current)[:2] != comparison_key(other)[:2]:
        return False
    return bool(unacknowledged(current.ack_set or ())) != bool(unacknowledged(other.ack_set or ()))
