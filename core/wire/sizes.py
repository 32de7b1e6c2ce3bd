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


def name_bytes(content: RecordDict) -> int:
    """Return the bytes of all names in a message: no method's own, but a client may fill them."""
    return sizes_of(content)[1]


def sizes_of(content: RecordDict) -> tuple[int, int]:
    """Return the bytes of all values in a message, and those of all names.

    Arrays count their values, text and byte strings their length, numbers eight bytes. Flower's
    transport adds headers and may send identical chunks only once; this is what the method itself
    asks to be sent.

    >>> sizes_of(RecordDict({"metrics": MetricRecord({"loss": 0.5, "classes": [1, 2]})}))
    (24, 18)
    """
    values = names = 0
    for name, record in entries(content).items():
        held = entries(record)
        names += len(name) + sum(map(len, held))
        if type(record) is ArrayRecord:
            values += sum(map(num_bytes, held.values()))
            continue
        for value in held.values():
            plain = type(value) is float or type(value) is int
            values += _SCALAR_BYTES if plain else value_bytes(value)
    return values, names
