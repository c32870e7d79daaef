"""Claims about the buffered writer: when it flushes, the size of a batch, and the positions in callbacks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import facts_of
from invariants.proofs.symbolic import (
    Listener,
    ListenerCall,
    Path,
    Reader,
    Rec,
    Seq,
    as_term,
    code_of,
    equal,
    lifted,
    unknown,
)
from model.positions import Position
from model.txn_writer import machine as model
from model.txn_writer import state
from model.txn_writer.state import Buffered, Config, Flush, Record, State, Write

MODEL = "model.txn_writer.machine"
BYTES = "bytes"


class Writer:
    """Any writer that batches, in any state that satisfies the invariant, and any record to add."""

    def __init__(self, **rules: str) -> None:
        self.max_records, self.max_bytes = z3.Ints("max_records max_bytes")
        limits = {"max_records": self.max_records, "max_bytes": self.max_bytes, "max_delay_ms": z3.Int("max_delay_ms")}
        cfg: Rec = lifted(Config())
        self.cfg = cfg.replace({**limits, **{rule: lifted(value) for rule, value in rules.items()}})
        self.buffer = Seq.unknown(Buffered, "buffer", {BYTES: lambda each: each.fields["size"]})
        self.s: Rec = unknown(State, "s").replace({"buffer": self.buffer})
        self.record: Rec = unknown(Record, "record")
        self.size, self.count = self.s.fields["size"], self.buffer.length
        self.known = [self.max_records >= 2, self.max_bytes >= 0, self.record.fields["size"] >= 0]
        self.known += [self.holds(self.s), *facts_of((self.buffer,), self.size)]

    def holds(self, s: Rec) -> Any:
        """Returns the invariant: the buffer is below both limits or empty, and `size` is the sum of its records."""
        buffer, size = s.fields["buffer"], as_term(s.fields["size"])
        if isinstance(buffer, tuple):
            buffer = self._as_seq(buffer)
        below = z3.And(buffer.length < self.max_records, size < self.max_bytes)
        return z3.And(z3.Or(buffer.length == 0, below), size == buffer.total(BYTES), size >= 0)

    def _as_seq(self, buffer: tuple[Any, ...]) -> Seq:
        """Returns a buffer of known length as a sequence."""
        seq = Seq.empty(Buffered, self.buffer.measures)
        for each in buffer:
            seq = seq.appended(each)
        return seq

    def steps(self) -> Iterator[tuple[str, list[Path], Listener]]:
        """Yields the paths of an added record, a tick of the timer and a close, each with its name and its effects."""
        for name, function, arguments in (
            ("a record", model.run_add, (self.record,)),
            ("the timer", model.run_tick, ()),
            ("a close", model.run_close, ()),
        ):
            out = Listener()
            yield name, Reader(self.known).paths(function, self.cfg, self.s, *arguments, out), out


def flushes_in(out: Listener) -> list[tuple[Any, ListenerCall]]:
    """Returns the fields of each recorded flush, with the call that recorded it, which has the path conditions."""
    return [(call.arguments[0].fields, call) for call in out.calls_of("flushes.append")]


# ---- the claims ---------------------------------------------------------------------------------------


@claim(
    "batch-respects-limits",
    "z3",
    "For any limits (max_records at least 2) and any records: a flushed buffer has at most max_records records. Their "
    "size is at most 2 * max_bytes - 2 if max_bytes triggers a flush, and at most max_bytes if it is a cap.",
    Control(
        "a record that is as large as the limit is buffered",
        MODEL,
        "is_large, ok = record.size >= cfg.max_bytes, True",
        "is_large, ok = record.size > cfg.max_bytes, True",
        refutes="a flush by a record",
    ),
)
def batch_is_less_than_two_limits() -> Answer:
    """transactionLogBatchedWriteMaxRecords and transactionLogBatchedWriteMaxSize of PIP-160: the size is a trigger."""
    proof = Proof()
    for limit in ("trigger", "cap"):
        it = Writer(size_limit=limit)
        most = 2 * it.max_bytes - 2 if limit == "trigger" else it.max_bytes
        for name, paths, out in it.steps():
            for path in paths:
                premises = [*it.known, *path.when]
                proof.possible(name, premises)
                proof.show(f"below both limits after {name}", it.holds(path.value), premises)
            flushes = flushes_in(out)
            proof.need(f"{name} may flush", bool(flushes) or name == "a close")
            for flush, call in flushes:
                premises = [*it.known, *call.when]
                proof.possible(f"a flush by {name}", premises)
                within = z3.And(flush["records"] >= 1, flush["records"] <= it.max_records, flush["size"] <= most)
                proof.show(f"a flush by {name}", within, premises, direct=True)
    for cfg, what, flushed, s in runs(200):
        most = 2 * cfg.max_bytes - 2 if cfg.size_limit == "trigger" else cfg.max_bytes
        fits = all(each.records <= cfg.max_records and each.size <= most for each in flushed)
        between = s.size == sum(b.size for b in s.buffer) and len(s.buffer) < cfg.max_records
        proof.run(what, fits and between, flushed)
    return proof.answer()


@claim(
    "records-trigger-precedes-size-trigger",
    "z3",
    "For any limits (max_records at least 2, and max_bytes is no cap) and any records: adding a record flushes at most "
    "once. If the writer is open and the size of the record can be computed: a record of max_bytes or more flushes the "
    "buffered records before it. With any other record the trigger is max records if that is reached, otherwise max "
    "size if that is reached, and otherwise nothing is flushed. No other record flushes.",
    Control(
        "the size limit is tested before the number of records",
        MODEL,
        "    if len(s.buffer) >= cfg.max_records:\n"
        '        return flushed(cfg, s, "records", out)[0]\n'
        '    return flushed(cfg, s, "size", out)[0] if s.size >= cfg.max_bytes else s',
        "    if s.size >= cfg.max_bytes:\n"
        '        return flushed(cfg, s, "size", out)[0]\n'
        '    return flushed(cfg, s, "records", out)[0] if len(s.buffer) >= cfg.max_records else s',
        refutes="a flush has its trigger",
    ),
)
def records_before_bytes() -> Answer:
    """PIP-160 flushes by the number of records, by their size and by the delay; a flush counts under one trigger."""
    proof, it = Proof(), Writer()
    [_, paths, out] = next(it.steps())  # the first step adds a record
    size = it.record.fields["size"]
    large, buffered = size >= it.max_bytes, _is_buffered(it)
    count, total = it.count + 1, it.size + size
    wanted = {
        "records": z3.And(buffered, count >= it.max_records),
        "size": z3.And(buffered, count < it.max_records, total >= it.max_bytes),
        "large": z3.And(_is_accepted(it), large, it.count > 0),
    }
    flushes = flushes_in(out)
    for flush, call in flushes:
        trigger, premises = flush["trigger"], [*it.known, *call.when]
        is_it = z3.Or(*[z3.And(code_is(trigger, name), cause) for name, cause in wanted.items()])
        proof.show("a flush has its trigger", is_it, premises, direct=True)
        whole = z3.And(flush["records"] == z3.If(large, it.count, count), flush["size"] == z3.If(large, it.size, total))
        proof.show("a flush is the whole buffer", whole, premises, direct=True)
    happens = [z3.And(*call.when) for _, call in flushes]
    for name, cause in wanted.items():
        proof.possible(f"a flush for {name}", [*it.known, cause])
        proof.show(f"a flush for {name} takes place", z3.Implies(cause, z3.Or(*happens)), it.known, direct=True)
    once = [z3.Not(z3.And(one, other)) for n, one in enumerate(happens) for other in happens[:n]]
    proof.show("one flush at most", z3.And(*once), it.known, direct=True)
    for path in paths:
        buffer = path.value.fields["buffer"]
        length = as_term(len(buffer)) if isinstance(buffer, tuple) else buffer.length
        none = z3.Implies(z3.And(_is_accepted(it), z3.Or(*wanted.values(), large)), length == 0)
        proof.show("a flush leaves nothing", none, [*it.known, *path.when], direct=True)
        stays = z3.Implies(z3.And(buffered, z3.Not(z3.Or(*wanted.values()))), length == count)
        proof.show("otherwise the record is buffered", stays, [*it.known, *path.when], direct=True)
    for cfg, what, flushed, s in runs(200):
        right = len(flushed) < 2 and all(
            (each.trigger == "records") == (each.records >= cfg.max_records)
            for each in flushed
            if each.trigger != "large"
        )
        proof.run(what, right, (flushed, len(s.buffer)))
    return proof.answer()


def code_is(word: Any, text: str) -> Any:
    """Returns whether a symbolic string equals `text`."""
    return lifted(word).code == code_of(text)


def _is_accepted(it: Writer) -> Any:
    """Returns whether the record is not rejected: the writer is open, and the record's size can be computed."""
    return z3.And(code_is(it.s.fields["status"], "open"), z3.Not(code_is(it.record.fields["fails_on"], "size")))


def _is_buffered(it: Writer) -> Any:
    """Returns whether the record is added to the buffer."""
    return z3.And(_is_accepted(it), it.record.fields["size"] < it.max_bytes)


def runs(count: int) -> Iterator[tuple[Config, str, Sequence[Flush], State]]:
    """Yields steps of random runs: config, name of the step, its flushes, state after it; always the same sequence."""
    draw = random.Random(512)  # noqa: S311
    for _ in range(count):
        limit: Any = draw.choice(("trigger", "trigger", "cap"))
        cfg = Config(max_records=draw.choice((2, 3)), max_bytes=draw.choice((1, 4, 9)), size_limit=limit)
        s = state.start(cfg)
        for n in range(8):
            out = model.EffectCollector()
            if draw.random() < 0.1:
                s, what = model.run_tick(cfg, s, out), "a tick"
            else:
                size = draw.randrange(cfg.max_bytes + 2)
                what = f"{size} bytes after {s.size} of {len(s.buffer)} records, {cfg.max_records}, {cfg.max_bytes}"
                s = model.run_add(cfg, s, Record(n, size, "nothing"), out)
            yield cfg, what, tuple(out.flushes), s


@claim(
    "callback-has-batch-index",
    "z3",
    "For an entry with any number of records: when the entry is stored, the callbacks complete in order, each once and "
    "with the position of the entry. In a batch, the callback also has the batch index and the batch size.",
    Control(
        "batch indexes start at 1",
        MODEL,
        '[Callback(number, "ok", position, i, batch_size) for',
        '[Callback(number, "ok", position, i + 1, batch_size) for',
        refutes="in a batch",
    ),
)
def callback_has_position() -> Answer:
    """PIP-160: a record's position has batchIndex and batchSize, by which it is deleted from the log."""
    proof, k, out = Proof(), z3.Int("k"), Listener()
    s, write = unknown(State, "s"), unknown(Write, "write")
    records = write.fields["records"]
    known = [k >= 0, k < records.length]
    Reader(known).paths(model.completed, s, write, out)
    completions = out.calls_of("callbacks +=")
    proof.need("callbacks of batches and of plain records complete", len(completions) == 2)
    for call in completions:
        [all_of_them] = call.arguments
        answer, premises = all_of_them.at(k).fields, [*known, *call.when]
        proof.possible("an entry", premises)
        proof.show("each one", all_of_them.length == records.length, premises, direct=True)
        proof.show("its own record", answer["record"] == records.at(k), premises, direct=True)
        where = as_term(equal(answer["position"], Position(s.fields["ledger"], s.fields["next_entry"])))
        proof.show("the position of the entry", where, premises, direct=True)
        placed = [
            as_term(equal(answer[name], value)) for name, value in (("batch_index", k), ("batch_size", records.length))
        ]
        bare = [as_term(equal(answer[name], None)) for name in ("batch_index", "batch_size")]
        batched = write.fields["batched"]
        proof.show("in a batch", z3.Implies(batched, z3.And(*placed)), premises, direct=True)
        proof.show("alone", z3.Implies(z3.Not(batched), z3.And(*bare)), premises, direct=True)
    for n in range(1, 101):
        effects, numbers = model.EffectCollector(), tuple(range(n, 2 * n))
        after = model.completed(state.start(Config()), Write(1, True, numbers, 0), effects)
        indexes = [(answer.record, answer.batch_index, answer.batch_size) for answer in effects.callbacks]
        wanted = [(number, i, n) for i, number in enumerate(numbers)]
        proof.run(f"{n} records", indexes == wanted and after.log[-1].records == numbers, indexes[:2])
    return proof.answer()
