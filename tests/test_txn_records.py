"""Codec of transaction records and entries: hand-written bytes, round trips, truncation, corruption, old readers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.txn_writer.records import (
    HEADER,
    MAGIC,
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
from model.txn_writer.wire import ENUMS

TOP = (1 << 64) - 1

NEW = TransactionRecord(
    "NEW", 5, 1, timeout_ms=60000, start_time=1000, last_modification_time=1000, max_local_txn_id=5, owner="me"
)
ADDED = TransactionRecord("ADD_SUBSCRIPTION", 5, 1, subscriptions=(Subscription("tp", "sb"),))
UPDATED = TransactionRecord("UPDATE", 5, 1, expected_status="OPEN", new_status="COMMITTING")
ACK = PendingAckRecord("ACK", "Individual", 3, 0, (PendingAck(7, 9, (-2,), 10),))

#: per field: a tag (8 * number + wire type), then the value; strings and messages have a length prefix
NEW_BYTES = bytes.fromhex("0800 1005 1801 40e0d403 48e807 50e807 5805 62026d65")
ADDED_BYTES = bytes.fromhex("0802 1005 1801 3a08 0a027470 12027362")
UPDATED_BYTES = bytes.fromhex("0803 1005 1801 2000 2801")
ACK_BYTES = bytes.fromhex("0801 1000 1803 2000 2a11 0807 1009 18feffffffffffffffff01 200a")

numbers = st.one_of(st.integers(0, 300), st.sampled_from([(1 << 63) - 1, 1 << 63, TOP]), st.integers(0, TOP))
int64s = st.one_of(st.sampled_from([-(1 << 63), -1, 0, (1 << 63) - 1]), st.integers(-(1 << 63), (1 << 63) - 1))
strings = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
statuses = st.sampled_from(list(ENUMS["TxnStatus"]))


@st.composite
def transaction_records(draw: Any) -> TransactionRecord:
    op = draw(st.sampled_from(list(ENUMS["TransactionMetadataOp"])))
    maybe = st.none() | numbers
    return TransactionRecord(
        op,
        draw(numbers),
        draw(numbers),
        draw(statuses if op == "UPDATE" else st.none() | statuses),
        draw(statuses if op == "UPDATE" else st.none() | statuses),
        tuple(draw(st.lists(strings, max_size=3))),
        tuple(Subscription(*each) for each in draw(st.lists(st.tuples(strings, strings), max_size=3))),
        draw(numbers if op == "NEW" else maybe),
        draw(numbers if op == "NEW" else maybe),
        draw(maybe),
        draw(maybe),
        draw(st.none() | strings),
    )


positions = st.builds(
    PendingAck,
    numbers,
    numbers,
    st.lists(int64s, max_size=3).map(tuple),
    st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
)
pending_ack_records = st.builds(
    PendingAckRecord,
    st.sampled_from(list(ENUMS["PendingAckOp"])),
    st.sampled_from(list(ENUMS["AckType"])),
    numbers,
    numbers,
    st.lists(positions, max_size=3).map(tuple),
)
records = transaction_records() | pending_ack_records
batches = st.lists(transaction_records(), min_size=1, max_size=4) | st.lists(
    pending_ack_records, min_size=1, max_size=4
)


def read_or_none(kind: Any, data: bytes) -> Entry[Any] | None:
    """Returns the entry that is read, or None if it is rejected with BadEntry. Any other exception fails the test."""
    read: Entry[Any] | None = None
    with contextlib.suppress(BadEntry):
        read = read_entry(kind, data)
    assert read is None or all(type(record) is kind for record in read.records)
    return read


# ---- round trips ----


@pytest.mark.parametrize(
    ("record", "data"), [(NEW, NEW_BYTES), (ADDED, ADDED_BYTES), (UPDATED, UPDATED_BYTES), (ACK, ACK_BYTES)]
)
def test_record_equals_hand_written_bytes(record: Record, data: bytes) -> None:
    assert plain_entry(record) == data
    assert read_entry(type(record), data) == Entry(False, (record,))
    assert batched_entry([record]) == bytes.fromhex("0e01 0001 0a") + bytes([len(data)]) + data


def test_batched_entry_is_header_and_length_prefixed_records() -> None:
    data = bytes.fromhex("0e01 0001 0a16") + NEW_BYTES + b"\x0a\x10" + ADDED_BYTES + b"\x0a\x0a" + UPDATED_BYTES
    assert batched_entry([NEW, ADDED, UPDATED]) == data
    assert read_entry(TransactionRecord, data) == Entry(True, (NEW, ADDED, UPDATED))


@given(records)
def test_plain_entry_round_trips(record: Record) -> None:
    data = plain_entry(record)
    assert read_entry(type(record), data) == Entry(False, (record,))
    assert old_read_entry(type(record), data) == record
    assert record_size(record) == len(data)


@given(batches)
def test_batched_entry_round_trips_in_order_and_has_the_predicted_size(batch: list[Any]) -> None:
    data = batched_entry(batch)
    sizes = [record_size(record) for record in batch]
    assert read_entry(type(batch[0]), data) == Entry(True, tuple(batch))
    assert entry_size(sizes) == len(data) == framing_overhead(sizes) + sum(sizes)


@pytest.mark.parametrize("length", [0, 1, 90, 110, 120, 16_300, 16_400, 2_097_150])
def test_entry_size_counts_the_varint_length_of_each_record(length: int) -> None:
    record = UPDATED._replace(owner="x" * length)
    assert entry_size([record_size(record)] * 2) == len(batched_entry([record, record]))


def test_framing_overhead_by_record_size() -> None:
    assert framing_overhead([]) == 4
    assert [framing_overhead([size]) - 4 for size in (0, 127, 128, 16_383, 16_384)] == [2, 2, 3, 3, 4]


# ---- plain or batched ----


@given(records, batches)
def test_first_two_bytes_distinguish_batched_from_plain_entry(record: Record, batch: list[Any]) -> None:
    """A plain record begins with the tag of its first field, 0x08; 0x0e would be that field with wire type 6."""
    assert not is_batched(plain_entry(record))
    assert plain_entry(record)[0] == 0x08
    assert is_batched(batched_entry(batch))


@given(st.sampled_from([TransactionRecord, PendingAckRecord]), st.binary(max_size=40), st.integers(0, 255))
def test_bytes_with_first_byte_of_magic_are_not_a_plain_entry(kind: Any, rest: bytes, second: int) -> None:
    with pytest.raises(BadEntry, match="field 1 has wire type 6, which does not exist"):
        old_read_entry(kind, bytes([MAGIC[0], second]) + rest)


@given(batches)
def test_old_reader_rejects_every_batched_entry(batch: list[Any]) -> None:
    with pytest.raises(BadEntry, match="wire type 6"):
        old_read_entry(type(batch[0]), batched_entry(batch))


def test_empty_batch_is_read_but_never_written() -> None:
    assert read_entry(TransactionRecord, HEADER) == Entry(True, ())
    with pytest.raises(BadEntry, match="at least 1 record, got 0"):
        batched_entry([])


# ---- corrupt entries ----


@settings(max_examples=40)
@given(batches)
def test_every_prefix_of_an_entry_is_read_or_rejected(batch: list[Any]) -> None:
    kind = type(batch[0])
    for data in (plain_entry(batch[0]), batched_entry(batch)):
        for end in range(len(data)):
            read = read_or_none(kind, data[:end])
            if read is not None and read.batched:
                assert read.records == tuple(batch[: len(read.records)]), "a prefix contains whole records only"


@settings(max_examples=60)
@given(batches, st.data())
def test_entry_with_a_changed_byte_is_read_or_rejected(batch: list[Any], data: Any) -> None:
    for entry in (plain_entry(batch[0]), batched_entry(batch)):
        changed = bytearray(entry)
        changed[data.draw(st.integers(0, len(entry) - 1))] = data.draw(st.integers(0, 255))
        read_or_none(type(batch[0]), bytes(changed))
        read_or_none(TransactionRecord, bytes(changed))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [(TransactionRecord, batched_entry([NEW, ADDED])), (PendingAckRecord, plain_entry(ACK))],
)
def test_every_change_of_every_byte_is_read_or_rejected(kind: Any, entry: bytes) -> None:
    rejected = 0
    for at in range(len(entry)):
        for value in range(256):
            rejected += read_or_none(kind, entry[:at] + bytes([value]) + entry[at + 1 :]) is None
    assert 0 < rejected < 256 * len(entry)


@given(st.sampled_from([TransactionRecord, PendingAckRecord]), st.binary(max_size=60), st.booleans())
def test_random_bytes_are_read_or_rejected(kind: Any, garbage: bytes, framed: bool) -> None:
    read_or_none(kind, HEADER + garbage if framed else garbage)


BAD = [
    ("", "an entry must have at least 2 bytes, got 0"),
    ("0e", "an entry must have at least 2 bytes, got 1"),
    ("0e01", "must have 4 bytes of magic and version, got 2 bytes"),
    ("0e0100", "must have 4 bytes of magic and version, got 3 bytes"),
    ("0e010002", "a batched entry must have version 1, got 2"),
    ("0e01 0001 1200", "a batch of TransactionRecord must have only field 1 in version 1, got field 2"),
    ("0e01 0001 0801", "a batch of TransactionRecord.transaction_logs has undefined value 1"),
    ("0e01 0001 0a00", "TransactionRecord lacks metadata_op"),
    ("0e01 0001 0a05 0803", "a batch of TransactionRecord cannot be read from 4 bytes: truncated, or not protobuf"),
    ("0e01 0001 0a02 0809", "TransactionMetadataEntry.metadata_op has undefined value 9"),
    ("0e02", "field 1 has wire type 6, which does not exist"),
    ("0809", "TransactionRecord.metadata_op has undefined value 9"),
    ("1005", "TransactionRecord lacks metadata_op"),
    ("0800", "TransactionRecord NEW lacks timeout_ms"),
    ("0800 4005", "TransactionRecord NEW lacks start_time"),
    ("0803 2000", "TransactionRecord UPDATE lacks new_status"),
    ("0803 2000 2805", "TransactionRecord.new_status has undefined value 5"),
    ("0801 1500000000", "TransactionRecord.txnid_least_bits has wrong wire type 5"),
    ("0801 3202fffe", "TransactionRecord.partitions is not UTF-8"),
    ("0802 3a03 0a0174", "TransactionRecord lacks subscriptions"),
    ("0802 3a07 0a017412017318", "TransactionRecord cannot be read from 11 bytes"),
]


@pytest.mark.parametrize(("data", "why"), BAD)
def test_corrupt_transaction_entry_is_rejected_in_one_line(data: str, why: str) -> None:
    with pytest.raises(BadValue, match=r"^[^\n]+$") as rejected:
        read_entry(TransactionRecord, bytes.fromhex(data))
    assert isinstance(rejected.value, BadEntry)
    assert why in str(rejected.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("0800", "pending_ack_op has undefined value 0"),
        ("0801", "PendingAckRecord lacks ack_type"),
        ("0801 1000 1803", "PendingAckRecord lacks txnid_most_bits"),
        ("0801 1000 1803 2000 2a02 0807", r"lacks pending_ack_metadata\[0\].entryId"),
        ("0801 1000 1803 2000 2a07 0807 1009 1a8080", "cannot be read"),
        ("0801 1000 1803 2000 2a05 0807 1009 25", "cannot be read"),
    ],
)
def test_corrupt_pending_ack_entry_is_rejected(data: str, why: str) -> None:
    with pytest.raises(BadEntry, match=why):
        read_entry(PendingAckRecord, bytes.fromhex(data))


def test_any_version_reads_every_version() -> None:
    data = bytes.fromhex("0e01 0907 0a0a") + UPDATED_BYTES
    assert read_entry(TransactionRecord, data, any_version=True) == Entry(True, (UPDATED,))
    with pytest.raises(BadEntry, match="version 1, got 2311"):
        read_entry(TransactionRecord, data)


def test_unknown_fields_of_a_record_are_ignored() -> None:
    later = bytes.fromhex("7807 820103616263")  # field 15, a number; field 16, a text
    assert read_entry(TransactionRecord, UPDATED_BYTES + later) == Entry(False, (UPDATED,))


def test_absent_fields_have_their_defaults() -> None:
    read = read_entry(TransactionRecord, bytes.fromhex("0801 32017a"))
    assert read.records == (TransactionRecord("ADD_PARTITION", 0, 0, partitions=("z",)),)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (NEW._replace(timeout_ms=-1), "cannot be written: Value out of range: -1"),
        (NEW._replace(txnid_least_bits=TOP + 1), "out of range"),
        (NEW._replace(owner="\ud800"), "surrogates not allowed"),
        (NEW._replace(op="OLD"), "op must be one of NEW, ADD_PARTITION, ADD_SUBSCRIPTION, UPDATE, got 'OLD'"),
        (
            UPDATED._replace(new_status="GONE"),
            "new_status must be one of OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED, got 'GONE'",
        ),
        (UPDATED._replace(expected_status=None), "UPDATE lacks expected_status"),
        (ADDED._replace(subscriptions=(7,)), "cannot be written"),
        (ACK._replace(ack_type="Both"), "ack_type must be one of Individual, Cumulative, got 'Both'"),
        (ACK._replace(positions=(PendingAck(7, 9, (1 << 63,)),)), "out of range"),
        ("a text", "a record must be one of TransactionRecord, PendingAckRecord, got str"),
    ],
)
def test_invalid_record_is_not_written(record: Any, why: str) -> None:
    for write in (lambda: plain_entry(record), lambda: batched_entry([record])):
        with pytest.raises(BadEntry, match=r"^[^\n]+$") as rejected:
            write()
        assert why in str(rejected.value)


def test_batch_has_records_of_one_kind() -> None:
    with pytest.raises(BadEntry, match="one kind, got TransactionRecord and PendingAckRecord"):
        batched_entry([NEW, ACK])
