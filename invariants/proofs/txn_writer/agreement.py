"""A contract that CrossHair checks about the buffered writer: implementation and model agree."""

from __future__ import annotations

from impl.txn_writer.writer import TxnWriter
from invariants.proofs.claim import Control, contract
from model.txn_writer import machine as model
from model.txn_writer.state import Buffered, Config, start


@contract(
    "flush-triggers-of-implementation-and-model-agree",
    "For a record of any size, max_records of at least 2, max_bytes of at least 1, and a buffer of up to two records "
    "that is below both limits: implementation and model flush by the same trigger, submit the same entries and keep "
    "the same buffer.",
    Control(
        "the implementation counts bytes first",
        "impl.txn_writer.writer",
        "        if len(batch.numbers) >= self._max_records:\n"
        '            self._flush("records")\n'
        "        elif batch.size >= self._max_bytes:\n"
        '            self._flush("size")',
        "        if batch.size >= self._max_bytes:\n"
        '            self._flush("size")\n'
        "        elif len(batch.numbers) >= self._max_records:\n"
        '            self._flush("records")',
    ),
)
def triggers_agree(held: int, first: int, second: int, size: int, max_records: int, max_bytes: int) -> bool:
    """Equivalence of the implementation with the model.

    pre: 0 <= held and held <= 2
    pre: 0 <= first and 0 <= second and 0 <= size
    pre: 2 <= max_records and 1 <= max_bytes
    pre: held < max_records
    pre: (first if held > 0 else 0) + (second if held > 1 else 0) < max_bytes
    post: _
    """
    cfg = Config(max_records=max_records, max_bytes=max_bytes, executor="immediate")
    buffer: tuple[Buffered, ...] = ()
    if held > 0:
        buffer = (Buffered(1, first, "nothing", 0),)
    if held > 1:
        buffer = (*buffer, Buffered(2, second, "nothing", 0))
    numbers = tuple([each.number for each in buffer])
    total = sum([each.size for each in buffer])
    s = start(cfg)._replace(buffer=buffer, size=total, pending_callbacks=numbers, next_record=len(buffer) + 1)
    implementation = TxnWriter.load(cfg, s)
    actual = implementation.add(size, "nothing")
    after, expected = model.add(cfg, s, size, "nothing")
    same = [(each.number, each.size) for each in after.buffer] == [
        *zip(implementation._buffer.numbers, implementation._buffer.sizes, strict=True)
    ]
    return actual == expected and same and implementation._buffer.size == after.size
