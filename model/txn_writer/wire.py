"""Wire format, metric names and admin commands of PIP-160, as data.

A plain entry is one serialised record. A batched entry is `MAGIC` and `VERSION` (two bytes each, big-endian), then a
protobuf (proto2) message whose only field has all records of the batch. Source: PIP-160 (protocol changes, metrics
changes, CLI), PIP-31.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from model.txn_writer.state import Trigger

# ---- entries ------------------------------------------------------------------------------------------

#: The first two bytes of a batched entry. No plain entry starts with 0x0e: its first byte is a protobuf tag, and 0x0e
#: would be wire type 6, which does not exist.
MAGIC = b"\x0e\x01"
VERSION = 1
HEADER = MAGIC + VERSION.to_bytes(2, "big")

PACKAGE = "pulsar.proto"

#: enumeration -> value -> number
ENUMS: dict[str, dict[str, int]] = {
    "TransactionMetadataOp": {"NEW": 0, "ADD_PARTITION": 1, "ADD_SUBSCRIPTION": 2, "UPDATE": 3},
    "TxnStatus": {"OPEN": 0, "COMMITTING": 1, "COMMITTED": 2, "ABORTING": 3, "ABORTED": 4},
    "PendingAckOp": {"ACK": 1, "COMMIT": 2, "ABORT": 3},
    "AckType": {"Individual": 0, "Cumulative": 1},
}


class Field(NamedTuple):
    """A field of a protobuf message."""

    number: int
    name: str
    label: str  # optional, required or repeated
    kind: str  # a scalar type, or the name of an enumeration or message
    default: str = ""  # text of the default value; empty: none


#: The number of the only field of a batched message.
BATCH_FIELD = 1

MESSAGES: dict[str, tuple[Field, ...]] = {
    "Subscription": (
        Field(1, "topic", "required", "string"),
        Field(2, "subscription", "required", "string"),
    ),
    "TransactionMetadataEntry": (
        Field(1, "metadata_op", "optional", "TransactionMetadataOp"),
        Field(2, "txnid_least_bits", "optional", "uint64", default="0"),
        Field(3, "txnid_most_bits", "optional", "uint64", default="0"),
        Field(4, "expected_status", "optional", "TxnStatus"),
        Field(5, "new_status", "optional", "TxnStatus"),
        Field(6, "partitions", "repeated", "string"),
        Field(7, "subscriptions", "repeated", "Subscription"),
        Field(8, "timeout_ms", "optional", "uint64"),
        Field(9, "start_time", "optional", "uint64"),
        Field(10, "last_modification_time", "optional", "uint64"),
        Field(11, "max_local_txn_id", "optional", "uint64"),
        Field(12, "owner", "optional", "string"),
    ),
    "PendingAckMetadata": (
        Field(1, "ledgerId", "required", "uint64"),
        Field(2, "entryId", "required", "uint64"),
        Field(3, "ack_set", "repeated", "int64"),
        Field(4, "batch_size", "optional", "int32"),
    ),
    "PendingAckMetadataEntry": (
        Field(1, "pending_ack_op", "optional", "PendingAckOp"),
        Field(2, "ack_type", "optional", "AckType"),
        Field(3, "txnid_least_bits", "optional", "uint64"),
        Field(4, "txnid_most_bits", "optional", "uint64"),
        Field(5, "pending_ack_metadata", "repeated", "PendingAckMetadata"),
    ),
    "BatchedTransactionMetadataEntry": (
        Field(BATCH_FIELD, "transaction_logs", "repeated", "TransactionMetadataEntry"),
    ),
    "BatchedPendingAckMetadataEntry": (Field(BATCH_FIELD, "pending_ack_logs", "repeated", "PendingAckMetadataEntry"),),
}

# ---- metrics ------------------------------------------------------------------------------------------

#: The kind of log: of transaction coordinators, or of pending-ack stores.
Log = Literal["txn_tc", "pending_ack"]


class Metric(NamedTuple):
    """A metric: its name in PIP-160 and its shipped name, each without the prefix, and the buckets of a histogram.

    The Prometheus client library appends `_total` to a counter, and `_bucket`, `_count` and `_sum` to a histogram.
    """

    name: str
    shipped: str
    about: str
    trigger: Trigger | None = None  # the flush trigger that a counter counts
    buckets: tuple[float, ...] = ()  # empty for a counter


#: PIP-160's prefix, the shipped prefix, and PIP-160's labels. The shipped labels are cluster and broker.
PREFIXES: dict[Log, tuple[str, str, tuple[str, ...]]] = {
    "txn_tc": ("pulsar_txn_tc", "pulsar_txn_tc_bufferedwriter", ("cluster", "coordinator_id")),
    "pending_ack": ("pulsar_pending_ack", "pulsar_txn_pending_ack_store_bufferedwriter", ("cluster",)),
}

#: Until apache/pulsar#17905 and #17921 the shipped name ended in `_record_count`; the histogram's count was
#: `_record_count_count`.
RECORDS = Metric(
    "_batched_log_records_count_per_entry",
    "_batch_records",
    "Records in a batch.",
    buckets=(10, 50, 100, 200, 500, 1000),
)
#: Bytes of the records, without the header of the batch. PIP-160 prints the bucket 102400 (100 KiB) as 12400. The last
#: bucket is not 1 MiB, although PIP-160 says "1MB".
SIZE = Metric(
    "_batched_log_entry_size_bytes",
    "_batch_size_bytes",
    "Bytes of the records of a batch.",
    buckets=(128, 512, 1024, 2048, 4096, 16384, 102400, 1232896),
)
#: "olderst" is PIP-160's spelling. PIP-160's buckets are 1, 5 and 10 ms, here in seconds. The shipped histogram
#: observes seconds, with the buckets 1, 5 and 10 s, so nearly every value is in the first bucket.
DELAY = Metric(
    "_batched_log_olderst_record_delay_time_seconds",
    "_batch_oldest_record_delay_seconds",
    "Age of the oldest record of a batch.",
    buckets=(0.001, 0.005, 0.01),
)
#: One counter for each trigger but close. PIP-160 has no counter for large records: the `name` of this counter is ours.
TRIGGERS = (
    Metric(
        "_batched_log_triggering_count_by_records",
        "_flush_trigger_max_records",
        "Batches flushed by max records.",
        "records",
    ),
    Metric("_batched_log_triggering_count_by_size", "_flush_trigger_max_size", "Batches flushed by max size.", "size"),
    Metric(
        "_batched_log_triggering_count_by_delay_time",
        "_flush_trigger_max_delay",
        "Batches flushed by max delay.",
        "delay",
    ),
    Metric(
        "_batched_log_triggering_count_by_large_record",
        "_flush_trigger_large_data",
        "Batches flushed by a large record.",
        "large",
    ),
)
METRICS = (RECORDS, SIZE, DELAY, *TRIGGERS)

#: Names that PIP-160 prints irregularly: the regular name -> the printed name.
PRINTED = {"pulsar_txn_tc_batched_log_records_count_per_entry": "pulsar_txn_tc_log_records_count_per_entry"}

# ---- admin commands -----------------------------------------------------------------------------------


class Commands(NamedTuple):
    """PIP-160's two admin commands for one kind of log. Neither was shipped; apache/pulsar#16748 proposed `stat`."""

    enable: str  # enables or disables batching
    stat: str  # lists the open stores of a broker, each with whether it batches
    setting: str  # the dynamic setting that shipped instead of `enable`
    enabled: str  # the key of the broker's setting in the response of `stat`
    stores: str  # the key of the open stores in that response


COMMANDS: dict[Log, Commands] = {
    "txn_tc": Commands(
        "--set-txn-tc-batch-log --enable",
        "--get-txn-tc-batch-log-stat",
        "transactionLogBatchedWriteEnabled",
        "txnTcBatchLogEnabled",
        "coodinatorArray",  # PIP-160's spelling
    ),
    "pending_ack": Commands(
        "--set-txn-pending-ack-batch-log --enable",
        "--get-txn-pending-ack-batch-log-stat",
        "transactionPendingAckBatchedWriteEnabled",
        "txnPendingAckBatchLogEnabled",
        "subscriptionArray",
    ),
}


def batch_log_stat(log: Log, enabled: bool, stores: Mapping[str, bool]) -> dict[str, object]:
    """Returns a broker's response to `stat`: its setting, and for each open store whether the store batches."""
    command = COMMANDS[log]
    return {command.enabled: enabled, command.stores: [{name: batches} for name, batches in stores.items()]}
