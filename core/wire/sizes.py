"""Bytes of a message's payload, counted alike on every runtime."""

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from .arrays import num_bytes
from .records import entries

_SCALAR_BYTES = 8


def _value_bytes(value: object) -> int:
    if type(value) is float or type(value) is int:
        return _SCALAR_BYTES
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        return sum(_value_bytes(entry) for entry in value)
    return _SCALAR_BYTES


def payload_bytes(content: RecordDict) -> int:
    """Return the bytes of all values in a message; names and framing are not counted.

    Arrays count their values, text and byte strings their length, numbers eight bytes. Flower's
    transport adds headers and may send identical chunks only once; this is what the method itself
    asks to be sent.

    >>> from flwr.app import MetricRecord
    >>> payload_bytes(RecordDict({"metrics": MetricRecord({"loss": 0.5, "classes": [1, 2]})}))
    24
    """
    return sum(map(record_bytes, entries(content).values()))


def record_bytes(record: ArrayRecord | ConfigRecord | MetricRecord) -> int:
    """Return the bytes of the values of one record."""
    values = entries(record).values()
    return sum(map(num_bytes if type(record) is ArrayRecord else _value_bytes, values))


def name_bytes(content: RecordDict) -> int:
    """Return the bytes of all names in a message: no method's own, but a client may fill them."""
    records = entries(content)
    return sum(map(len, records)) + sum([sum(map(len, entries(r))) for r in records.values()])
