"""Claims about the sparse index of the pending-ack log: its keys ascend, and it deletes nothing that a replay needs.

The log and the parameters of `LogIndexLagBackoff` are arbitrary. Of a log entry, only the last entry of the topic that
it acks is represented (`LAST`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import Reader, Rec, RecursiveSum, Seq, as_term, lifted, unknown
from model.pending_acks import log_index as model
from model.pending_acks import machine as pending_acks
from model.pending_acks import state as pending_acks_state
from model.pending_acks.log_index import LagBackoff, LogIndex
from model.pending_acks.state import Config, State

MODEL = "model.pending_acks.log_index"
#: Log position -> the last entry of the topic that the log entry acks; -1: none.
LAST = z3.Function("last ack", z3.IntSort(), z3.IntSort())


#: A stub of `next_lag`, which returns `max_index_lag`: any value, because these claims hold whenever keys are added.
ANY_LAG: dict[Any, Any] = {model.next_lag: lambda backoff, keys: z3.Int("any lag")}


def in_order(keys: Seq, p: Any, q: Any) -> Any:
    """Returns the condition that the first of two keys has the lower `ack_position` and the lower `log_position`."""
    one, other = keys.at(p).fields, keys.at(q).fields
    inside = z3.And(p >= 0, p < q, q < keys.length)
    return z3.Implies(
        inside, z3.And(one["ack_position"] < other["ack_position"], one["log_position"] < other["log_position"])
    )


class Index:
    """An arbitrary log index over the first `end` entries of a log, its keys number p and q, and a log position j."""

    def __init__(self) -> None:
        self.proof, self.cfg = Proof(), lifted(Config())
        self.index: Rec = unknown(LogIndex, "index")
        self.keys: Seq = self.index.fields["keys"]
        self.p, self.q, self.j, self.end = z3.Ints("p q j end")
        self.first_unacked, self.records = z3.Ints("mark records")
        self.backoff = lifted(LagBackoff(1)).replace({"minimum": z3.Int("minimum")})
        self.known = [self.keys.length >= 0, self.records >= 1, self.end >= 0]

    def holds(self, index: Rec, end: Any, log: Any, p: Any, q: Any, j: Any) -> Any:
        """Returns the invariant for two keys and one log entry.

        A key covers all acks of the log up to its log position: none is of a later entry of the topic than the key's
        ack position.
        """
        keys: Seq = index.fields["keys"]
        key, newest = keys.at(p).fields, index.fields["max_ack_position"]
        inside = z3.And(p >= 0, p < keys.length)
        counted = z3.And(j >= 0, j < end)
        return z3.And(
            in_order(keys, p, q),
            z3.Implies(
                inside, z3.And(key["ack_position"] <= newest, key["log_position"] >= 0, key["log_position"] < end)
            ),
            z3.Implies(z3.And(inside, counted, j <= key["log_position"]), log(j) <= key["ack_position"]),
            z3.Implies(counted, log(j) <= newest),
        )

    def assumed(self, key_indexes: Sequence[Any], entries: Sequence[Any]) -> list[Any]:
        """Returns the invariant for the keys and entries that a step reads."""
        held = [
            self.holds(self.index, self.end, LAST, p, q, j) for p in key_indexes for q in key_indexes for j in entries
        ]
        return [*self.known, *held]

    def with_entry(self) -> Iterator[tuple[Rec, list[Any]]]:
        """Yields on each path the index with one more log entry, and the premises of statements about it."""
        last, n = LAST(self.end), self.keys.length
        given = self.assumed((self.p, self.q, n - 1), (self.j,))
        reader = Reader(self.known, stubs=ANY_LAG)
        for path in reader.paths(model.with_entry, self.backoff, self.index, self.records, last, self.end):
            yield path.value, [*given, *path.when, last >= -1]

    def without_acked(self) -> Iterator[tuple[Rec, Any, list[Any]]]:
        """Yields on each path the index after a mark-delete, the number of deleted log entries, and the premises."""
        reader = Reader(self.known, stubs=ANY_LAG)
        for path in reader.paths(model.without_acked, self.backoff, self.index, self.first_unacked):
            count = reader.sums[0]
            gone = count.whole()
            key_indexes = (self.p, self.q, self.p + gone, self.q + gone, gone - 1)
            index, trimmed = path.value[0], as_term(path.value[1])
            given = self.assumed(key_indexes, (self.j, self.j + trimmed))
            before = [gone >= 0, *[self._is_prefix(count, self.keys.length, key_index) for key_index in key_indexes]]
            yield index, trimmed, [*given, *path.when, *before]

    def _is_prefix(self, count: RecursiveSum, end: Any, key_index: Any) -> Any:
        """Returns the condition that the counted keys before `end` are the first ones.

        A key is counted if and only if its index is below the number of counted keys.
        """
        is_counted = count.step(key_index)[0] == 1
        inside = z3.And(key_index >= 0, key_index < end)
        return z3.Implies(inside, is_counted == (key_index < count.before(end)))

    def count_is_index(self) -> None:
        """Proves by induction that the keys below the mark-delete position are the first ones."""
        reader, n, k = Reader(self.known, stubs=ANY_LAG), z3.Int("n"), z3.Int("k")
        reader.paths(model.without_acked, self.backoff, self.index, self.first_unacked)
        count = reader.sums[0]

        def so_far(end: Any, key_index: Any) -> Any:
            return z3.And(count.before(end) >= 0, count.before(end) <= end, self._is_prefix(count, end, key_index))

        key_indexes = (k, n, count.before(n))
        given = [n >= 0, n < self.keys.length, *count.facts(n), *[so_far(n, key_index) for key_index in key_indexes]]
        given += [in_order(self.keys, p, q) for p in key_indexes for q in key_indexes]
        self.proof.possible("a key", given)
        self.proof.lemma("no key", so_far(z3.IntVal(0), k), count.facts(n))
        self.proof.lemma("one more key", so_far(n + 1, k), given)


class Run(NamedTuple):
    """An index after some log entries and some advances of the mark-delete position."""

    steps: str  # the steps so far, for messages
    after: LogIndex
    log: tuple[int, ...]  # of each log entry that is kept, the last entry that it acks
    lost: tuple[int, ...]  # the same of each deleted log entry
    first_unacked: int


def runs(count: int) -> Iterator[Run]:
    """Yields the steps of random logs; always the same."""
    draw = random.Random(153)  # noqa: S311
    for _ in range(count):
        backoff = LagBackoff(draw.choice((1, 1, 2, 5)), draw.choice((None, 3)), draw.choice((1, 2)))
        index, first_unacked, steps = model.empty_index(backoff), 0, ""
        log: tuple[int, ...] = ()
        for _ in range(12):
            last = draw.randrange(-1, 6)
            index = model.with_entry(backoff, index, draw.randint(1, 3), last, len(log))
            log = (*log, last)
            first_unacked += draw.choice((0, 0, 1, 2))
            index, trimmed = model.without_acked(backoff, index, first_unacked)
            steps += f"{last} "
            yield Run(f"{steps}up to {first_unacked}", index, log[trimmed:], log[:trimmed], first_unacked)
            log = log[trimmed:]


@claim(
    "keys-of-the-index-are-in-order",
    "z3",
    "For any log, any `LogIndexLagBackoff` and any mark-delete positions: the keys of the index ascend in positions of "
    "the topic and of the log, so the keys before a mark-delete position are a prefix.",
    Control(
        "a key has the last acked position of its own log entry",
        MODEL,
        "keys = (*keys, Key(max_ack, log_position))",
        "keys = (*keys, Key(ack_position, log_position))",
        refutes="one more key",
    ),
)
def keys_are_in_order() -> Answer:
    """PIP-153: the keys and the values of the index ascend."""
    it = Index()
    it.count_is_index()
    for index, premises in it.with_entry():
        it.proof.possible("one more entry of the log", premises)
        it.proof.show("one more key", in_order(index.fields["keys"], it.p, it.q), premises, direct=True)
    for index, _, premises in it.without_acked():
        it.proof.show("fewer keys", in_order(index.fields["keys"], it.p, it.q), premises, direct=True)
    for run in runs(40):
        keys = run.after.keys
        columns = [key.ack_position for key in keys], [key.log_position for key in keys]
        it.proof.run(run.steps, all(list(each) == sorted(set(each)) for each in columns), keys)
    return it.proof.answer()


@claim(
    "deleted-log-prefix-is-acknowledged",
    "z3",
    "For any log, any `LogIndexLagBackoff` and any persisted mark-delete positions: every ack in the deleted prefix of "
    "the log is for an entry at or before the mark-delete position, so no replay needs the ack. No ack of the rest of "
    "the log up to the log position of a key is for an entry after the ack position of the key.",
    Control(
        "the key of the first unacknowledged entry is removed",
        MODEL,
        "removed = sum([key.ack_position < first_unacked for key in index.keys])",
        "removed = sum([key.ack_position <= first_unacked for key in index.keys])",
        refutes="removed positions are acknowledged",
    ),
)
def trimmed_is_acknowledged() -> Answer:
    """PIP-153: the log can be deleted up to a key whose position is at or before the mark-delete position."""
    it = Index()
    it.count_is_index()
    _prove_trim_by_durable_cursor(it)
    p, q, j = it.p, it.q, it.j
    it.proof.need("an empty index has no keys", not model.empty_index(LagBackoff(1)).keys)
    it.proof.lemma("an index without keys", it.holds(it.index, z3.IntVal(0), LAST, p, q, j), [it.keys.length == 0])
    for index, premises in it.with_entry():
        it.proof.show("one more entry", it.holds(index, it.end + 1, LAST, p, q, j), [*premises, LAST(it.end) >= -1])
    for index, trimmed, premises in it.without_acked():
        it.proof.possible("a mark-delete", premises)
        lost = z3.Implies(z3.And(j >= 0, j < trimmed), LAST(j) < it.first_unacked)
        it.proof.show("removed positions are acknowledged", lost, premises)
        it.proof.show("only entries of the log are deleted", z3.And(trimmed >= 0, trimmed <= it.end), premises)
        rest = it.holds(index, it.end - trimmed, lambda at, by=trimmed: LAST(at + by), p, q, j)
        it.proof.show("the index of the remaining log", rest, premises)
    for run in runs(60):
        acknowledged = all(last < run.first_unacked for last in run.lost)
        covered = all(last <= key.ack_position for key in run.after.keys for last in run.log[: key.log_position + 1])
        it.proof.run(run.steps, acknowledged and covered, (run.lost, run.after.keys))
    return it.proof.answer()


def _prove_trim_by_durable_cursor(it: Index) -> None:
    """Proves that the index counts every log entry with its records, and is trimmed by the persisted cursor."""
    asked: list[tuple[str, tuple[Any, ...]]] = []
    last, gone = z3.Int("last"), z3.Int("gone")
    found: Rec = unknown(LogIndex, "found")

    def with_entry(*arguments: Any) -> Rec:
        asked.append(("with_entry", arguments))
        return found

    def without_acked(*arguments: Any) -> tuple[Rec, Any]:
        asked.append(("without_acked", arguments))
        return found, gone

    stubs: Any = {
        model.with_entry: with_entry,
        model.without_acked: without_acked,
        pending_acks_state.log_index_backoff: lambda cfg: it.backoff,
        pending_acks_state.last_acked_entry: lambda entry: last,
        pending_acks_state.without_prefix: lambda s, count: s,
    }
    s, entry = unknown(State, "s"), Seq.unknown(pending_acks_state.LogRecord, "entry")
    Reader(stubs=stubs).paths(pending_acks.with_indexed_entry, it.cfg, s, entry, it.end)
    by_name = dict(asked)
    _, _, records, entry_, at = by_name["with_entry"]
    _, index, first_unacked = by_name["without_acked"]
    same = z3.And(
        records == entry.length,
        entry_ == last,
        at == it.end,
        first_unacked == s.fields["durable_cursor"].fields["first_unacked"],
    )
    it.proof.show("the counted entries, and the end of the cleared range", same, direct=True)
    it.proof.need("the counted entries are cleared", index is found and len(asked) == 2)
