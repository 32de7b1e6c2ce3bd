"""Bytes of a message's payload, counted alike on every runtime."""

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from .arrays import num_bytes
from .records import entries

_SCALAR_BYTES = 8


def value_bytes(value: object) -> int:
    """Return the bytes of one value: eight for a number, the length of text and byte strings."""
    if type(value) is float or type(value) is int:
        return _SCALAR_BYTES
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):  # all of one type, as Flower's records have them
        plain = not value or type(value[0]) is float or type(value[0]) is int
        return _SCALAR_BYTES * len(value) if plain else sum(map(value_bytes, value))
    return _SCALAR_BYTES


def record_bytes(record: ArrayRecord | ConfigRecord | MetricRecord) -> int:
    """Return the bytes of the values of one record."""
    values = entries(record).values()
    return sum(map(num_bytes if type(record) is ArrayRecord else value_bytes, values))


def sizes_of(content: RecordDict) -> tuple[int, int]:
    """Return the bytes of all values in a message, and those of all names.

    Arrays count their values, text and byte strings their length, numbers eight bytes. Flower's
    transport adds headers and may send identical chunks only once; this is what the method itself
    asks to be sent.

    >>> sizes_of(RecordDict({"metrics": MetricRecord({"loss": 0.5, "classes": [1, 2]})}))
    (24, 18)
    """
    held = entries(content)
    names = sum(len(name) + sum(map(len, entries(record))) for name, record in held.items())
    return sum(map(record_bytes, held.values())), names
