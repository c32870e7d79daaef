"""Records and entries of transactions as bytes: written out by hand, there and back, cut, damaged, and by old readers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.txn_writer.records import (
    ACK_TYPES,
    HEADER,
    MAGIC,
    OPS,
    PENDING_ACK_OPS,
    STATUSES,
    BadEntry,
    Entry,
    PendingAck,
    PendingAckRecord,
    Record,
    Subscription,
    TransactionRecord,
    batched_entry,
    entry_size,
    framing_overhead,
    is_batched,
    old_read_entry,
    plain_entry,
    read_entry,
    record_size,
)
from model.machine import BadValue

TOP = (1 << 64) - 1

NEW = TransactionRecord(
    "NEW", 5, 1, timeout_ms=60000, start_time=1000, last_modification_time=1000, max_local_txn_id=5, owner="me"
)
JOINED = TransactionRecord("ADD_SUBSCRIPTION", 5, 1, subscriptions=(Subscription("tp", "sb"),))
ENDED = TransactionRecord("UPDATE", 5, 1, expected_status="OPEN", new_status="COMMITTING")
ACK = PendingAckRecord("ACK", "Individual", 3, 0, (PendingAck(7, 9, (-2,), 10),))

#: field by field: a tag (number times eight, and the wire type), and the value; texts and messages have a length
NEW_BYTES = bytes.fromhex("0800 1005 1801 40e0d403 48e807 50e807 5805 62026d65")
JOINED_BYTES = bytes.fromhex("0802 1005 1801 3a08 0a027470 12027362")
ENDED_BYTES = bytes.fromhex("0803 1005 1801 2000 2801")
ACK_BYTES = bytes.fromhex("0801 1000 1803 2000 2a11 0807 1009 18feffffffffffffffff01 200a")

numbers = st.one_of(st.integers(0, 300), st.sampled_from([(1 << 63) - 1, 1 << 63, TOP]), st.integers(0, TOP))
words64 = st.one_of(st.sampled_from([-(1 << 63), -1, 0, (1 << 63) - 1]), st.integers(-(1 << 63), (1 << 63) - 1))
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
statuses = st.sampled_from(STATUSES)


@st.composite
def transaction_records(draw: Any) -> TransactionRecord:
    op = draw(st.sampled_from(OPS))
    maybe = st.none() | numbers
    return TransactionRecord(
        op,
        draw(numbers),
        draw(numbers),
        draw(statuses if op == "UPDATE" else st.none() | statuses),
        draw(statuses if op == "UPDATE" else st.none() | statuses),
        tuple(draw(st.lists(texts, max_size=3))),
        tuple(Subscription(*each) for each in draw(st.lists(st.tuples(texts, texts), max_size=3))),
        draw(numbers if op == "NEW" else maybe),
        draw(numbers if op == "NEW" else maybe),
        draw(maybe),
        draw(maybe),
        draw(st.none() | texts),
    )


positions = st.builds(
    PendingAck,
    numbers,
    numbers,
    st.lists(words64, max_size=3).map(tuple),
    st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
)
pending_ack_records = st.builds(
    PendingAckRecord,
    st.sampled_from(PENDING_ACK_OPS),
    st.sampled_from(ACK_TYPES),
    numbers,
    numbers,
    st.lists(positions, max_size=3).map(tuple),
)
records = transaction_records() | pending_ack_records
batches = st.lists(transaction_records(), min_size=1, max_size=4) | st.lists(
    pending_ack_records, min_size=1, max_size=4
)


def reads_or_refuses(kind: Any, data: bytes) -> Entry[Any] | None:
    """What the entry is read as, or nothing where it is refused; anything else is raised."""
    read: Entry[Any] | None = None
    with contextlib.suppress(BadEntry):
        read = read_entry(kind, data)
    assert read is None or all(type(record) is kind for record in read.records)
    return read


# ---- there and back ----


@pytest.mark.parametrize(
    ("record", "data"), [(NEW, NEW_BYTES), (JOINED, JOINED_BYTES), (ENDED, ENDED_BYTES), (ACK, ACK_BYTES)]
)
def test_records_are_the_bytes_written_out_by_hand(record: Record, data: bytes) -> None:
    assert plain_entry(record) == data
    assert read_entry(type(record), data) == Entry(False, (record,))
    assert batched_entry([record]) == bytes.fromhex("0e01 0001 0a") + bytes([len(data)]) + data


def test_a_batch_is_the_header_and_each_record_with_its_length() -> None:
    data = bytes.fromhex("0e01 0001 0a16") + NEW_BYTES + b"\x0a\x10" + JOINED_BYTES + b"\x0a\x0a" + ENDED_BYTES
    assert batched_entry([NEW, JOINED, ENDED]) == data
    assert read_entry(TransactionRecord, data) == Entry(True, (NEW, JOINED, ENDED))


@given(records)
def test_any_record_comes_back_from_a_plain_entry(record: Record) -> None:
    data = plain_entry(record)
    assert read_entry(type(record), data) == Entry(False, (record,))
    assert old_read_entry(type(record), data) == record
    assert record_size(record) == len(data)


@given(batches)
def test_any_batch_comes_back_in_order_and_its_size_is_known_before_it_is_written(batch: list[Any]) -> None:
    data = batched_entry(batch)
    sizes = [record_size(record) for record in batch]
    assert read_entry(type(batch[0]), data) == Entry(True, tuple(batch))
    assert entry_size(sizes) == len(data) == framing_overhead(sizes) + sum(sizes)


@pytest.mark.parametrize("length", [0, 1, 90, 110, 120, 16_300, 16_400, 2_097_150])
def test_the_length_before_a_record_takes_as_many_bytes_as_it_needs(length: int) -> None:
    record = ENDED._replace(owner="x" * length)
    assert entry_size([record_size(record)] * 2) == len(batched_entry([record, record]))


def test_framing_alone() -> None:
    assert framing_overhead([]) == 4
    assert [framing_overhead([size]) - 4 for size in (0, 127, 128, 16_383, 16_384)] == [2, 2, 3, 3, 4]


# ---- which form it is ----


@given(records, batches)
def test_the_first_two_bytes_tell_a_batch_from_a_plain_record(record: Record, batch: list[Any]) -> None:
    """A plain record begins with the tag of its first field, 0x08; 0x0e would be that field with wire type 6."""
    assert not is_batched(plain_entry(record))
    assert plain_entry(record)[0] == 0x08
    assert is_batched(batched_entry(batch))


@given(st.sampled_from([TransactionRecord, PendingAckRecord]), st.binary(max_size=40), st.integers(0, 255))
def test_nothing_that_begins_as_the_magic_does_is_a_plain_record(kind: Any, rest: bytes, second: int) -> None:
    with pytest.raises(BadEntry, match="field 1 has wire type 6, which does not exist"):
        old_read_entry(kind, bytes([MAGIC[0], second]) + rest)


@given(batches)
def test_an_old_reader_fails_loudly_on_every_batch(batch: list[Any]) -> None:
    with pytest.raises(BadEntry, match="wire type 6"):
        old_read_entry(type(batch[0]), batched_entry(batch))


def test_a_batch_without_records_is_read_as_such_and_never_written() -> None:
    assert read_entry(TransactionRecord, HEADER) == Entry(True, ())
    with pytest.raises(BadEntry, match="this one has none"):
        batched_entry([])


# ---- what is no entry ----


@settings(max_examples=40)
@given(batches)
def test_every_prefix_of_an_entry_is_read_or_refused(batch: list[Any]) -> None:
    kind = type(batch[0])
    for data in (plain_entry(batch[0]), batched_entry(batch)):
        for end in range(len(data)):
            read = reads_or_refuses(kind, data[:end])
            if read is not None and read.batched:
                assert read.records == tuple(batch[: len(read.records)]), "whole records only"


@settings(max_examples=60)
@given(batches, st.data())
def test_every_changed_byte_is_read_or_refused(batch: list[Any], data: Any) -> None:
    for entry in (plain_entry(batch[0]), batched_entry(batch)):
        changed = bytearray(entry)
        changed[data.draw(st.integers(0, len(entry) - 1))] = data.draw(st.integers(0, 255))
        reads_or_refuses(type(batch[0]), bytes(changed))
        reads_or_refuses(TransactionRecord, bytes(changed))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [(TransactionRecord, batched_entry([NEW, JOINED])), (PendingAckRecord, plain_entry(ACK))],
)
def test_every_byte_of_an_entry_changed_in_every_way(kind: Any, entry: bytes) -> None:
    refused = 0
    for at in range(len(entry)):
        for value in range(256):
            refused += reads_or_refuses(kind, entry[:at] + bytes([value]) + entry[at + 1 :]) is None
    assert 0 < refused < 256 * len(entry)


@given(st.sampled_from([TransactionRecord, PendingAckRecord]), st.binary(max_size=60), st.booleans())
def test_garbage_is_read_or_refused(kind: Any, garbage: bytes, framed: bool) -> None:
    reads_or_refuses(kind, HEADER + garbage if framed else garbage)


BAD = [
    ("", "an entry has 2 bytes at least, this one has 0"),
    ("0e", "an entry has 2 bytes at least, this one has 1"),
    ("0e01", "a version after the magic, this one ends after 2 bytes"),
    ("0e0100", "a version after the magic, this one ends after 3 bytes"),
    ("0e010002", "a batched entry of version 2, only version 1 can be read"),
    ("0e01 0001 1200", "a batch of TransactionRecord has a field 2; a batch of version 1 has field 1 only"),
    ("0e01 0001 0801", "a batch of TransactionRecord.transaction_logs has 1, which it cannot be"),
    ("0e01 0001 0a00", "TransactionRecord lacks metadata_op"),
    ("0e01 0001 0a05 0803", "a batch of TransactionRecord cannot be read from 4 bytes: truncated, or not protobuf"),
    ("0e01 0001 0a02 0809", "TransactionMetadataEntry.metadata_op has 9, which it cannot be"),
    ("0e02", "field 1 has wire type 6, which does not exist"),
    ("0809", "TransactionRecord.metadata_op has 9, which it cannot be"),
    ("1005", "TransactionRecord lacks metadata_op"),
    ("0800", "TransactionRecord NEW lacks timeout_ms"),
    ("0800 4005", "TransactionRecord NEW lacks start_time"),
    ("0803 2000", "TransactionRecord UPDATE lacks new_status"),
    ("0803 2000 2805", "TransactionRecord.new_status has 5, which it cannot be"),
    ("0801 1500000000", "TransactionRecord.txnid_least_bits has wire type 5, which it has not"),
    ("0801 3202fffe", "TransactionRecord.partitions is not UTF-8"),
    ("0802 3a03 0a0174", "TransactionRecord lacks subscriptions"),
    ("0802 3a07 0a017412017318", "TransactionRecord cannot be read from 11 bytes"),
]


@pytest.mark.parametrize(("data", "why"), BAD)
def test_what_is_no_entry_is_refused_in_one_line(data: str, why: str) -> None:
    with pytest.raises(BadValue, match=r"^[^\n]+$") as refused:
        read_entry(TransactionRecord, bytes.fromhex(data))
    assert isinstance(refused.value, BadEntry)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("0800", "pending_ack_op has 0, which it cannot be"),
        ("0801", "PendingAckRecord lacks ack_type"),
        ("0801 1000 1803", "PendingAckRecord lacks txnid_most_bits"),
        ("0801 1000 1803 2000 2a02 0807", r"lacks pending_ack_metadata\[0\].entryId"),
        ("0801 1000 1803 2000 2a07 0807 1009 1a8080", "cannot be read"),
        ("0801 1000 1803 2000 2a05 0807 1009 25", "cannot be read"),
    ],
)
def test_what_is_no_pending_ack_is_refused(data: str, why: str) -> None:
    with pytest.raises(BadEntry, match=why):
        read_entry(PendingAckRecord, bytes.fromhex(data))


def test_a_reader_that_skips_the_version_reads_any() -> None:
    data = bytes.fromhex("0e01 0907 0a0a") + ENDED_BYTES
    assert read_entry(TransactionRecord, data, any_version=True) == Entry(True, (ENDED,))
    with pytest.raises(BadEntry, match="version 2311"):
        read_entry(TransactionRecord, data)


def test_a_record_may_have_fields_of_a_later_broker() -> None:
    later = bytes.fromhex("7807 820103616263")  # field 15, a number; field 16, a text
    assert read_entry(TransactionRecord, ENDED_BYTES + later) == Entry(False, (ENDED,))


def test_what_is_left_out_is_the_default() -> None:
    read = read_entry(TransactionRecord, bytes.fromhex("0801 32017a"))
    assert read.records == (TransactionRecord("ADD_PARTITION", 0, 0, partitions=("z",)),)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (NEW._replace(timeout_ms=-1), "cannot be written: Value out of range: -1"),
        (NEW._replace(txnid_least_bits=TOP + 1), "out of range"),
        (NEW._replace(owner="\ud800"), "surrogates not allowed"),
        (NEW._replace(op="OLD"), "op is 'OLD', must be one of NEW, ADD_PARTITION, ADD_SUBSCRIPTION, UPDATE"),
        (ENDED._replace(new_status="GONE"), "new_status is 'GONE', must be one of OPEN"),
        (ENDED._replace(expected_status=None), "UPDATE lacks expected_status"),
        (JOINED._replace(subscriptions=(7,)), "cannot be written"),
        (ACK._replace(ack_type="Both"), "ack_type is 'Both', must be one of Individual, Cumulative"),
        (ACK._replace(positions=(PendingAck(7, 9, (1 << 63,)),)), "out of range"),
        ("a text", "is no kind of record; there are TransactionRecord, PendingAckRecord"),
    ],
)
def test_what_is_no_record_is_not_written(record: Any, why: str) -> None:
    for write in (lambda: plain_entry(record), lambda: batched_entry([record])):
        with pytest.raises(BadEntry, match=r"^[^\n]+$") as refused:
            write()
        assert why in str(refused.value)


def test_a_batch_is_of_one_kind() -> None:
    with pytest.raises(BadEntry, match="one kind, not TransactionRecord and PendingAckRecord"):
        batched_entry([NEW, ACK])
