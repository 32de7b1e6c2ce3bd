"""Everything that can be wrong with one honest reply: one thing at a time, by name.

A damage names a record of a reply, perhaps an entry of it, and what is done to that. It is applied
to whatever honest reply comes next, which need not be the one that it was made for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from forager.core.wire import sparse
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.supports import decode_signature, encode_signature
from fuzzing import sealed
from numpy.typing import NDArray

HUGE = "x" * 10**6
GONE = object()
NUMBERS = [0, -1, 1e12, 1e300, 3.4e38, float("nan"), float("inf"), 2**62, 0.5, -0.25]
NUMBER_LISTS = [[], [1.0], [7] * 10, [0.0] * 10, [-1] * 10, [1e300] * 10, [2**62] * 3]
NUMBER_LISTS += [[float("nan")] * 10, [3.4e38] * 5, [0] * 20_000]
OTHERS = [True, "", HUGE, "7", "a\x00b\n", b"", b"\x00" * 9, b"\xff" * 10**5]
OTHER_LISTS = [["1"] * 10, [b"x"], [True] * 10, [HUGE[:1000]] * 300]
NAMES = ["more", HUGE, "a\nb", "é" * 9]
MORE = "more"

Record = ArrayRecord | ConfigRecord | MetricRecord


@dataclass(frozen=True)
class Damage:
    """What is done to a reply: ``value`` is put at ``entry`` of ``record``, or made of it."""

    record: str
    entry: str | None
    what: str
    value: Any = None

    def __str__(self) -> str:
        said = "" if self.value is None else f" {str(self.value)[:40]!r}"
        return f"{self.record[:20]}.{(self.entry or '')[:20]}: {self.what}{said}"

    def apply(self, reply: Message) -> Message:
        """Return the reply with the damage done."""
        content: dict[str, Any] = dict(reply.content)
        record = content.get(self.record)
        if self.entry is None:
            content[self.record] = self.value
        elif isinstance(record, ArrayRecord):
            content[self.record] = self._array(record)
        else:
            kind = type(record) if record is not None else ConfigRecord
            entries = {**(record or {}), self.entry: self.value}
            content[self.record] = kind({k: v for k, v in entries.items() if v is not GONE})
        reply.content = RecordDict({k: v for k, v in content.items() if v is not GONE})
        return reply

    def _array(self, record: ArrayRecord) -> ArrayRecord:
        assert self.entry is not None
        arrays: dict[str, Any] = dict(record)
        if self.what == "missing":
            arrays.pop(self.entry, None)
        elif self.what == "extra":
            arrays[self.entry] = self.value
        elif self.entry in arrays:
            arrays[self.entry] = damaged_array(arrays[self.entry], self.what)
        return ArrayRecord(arrays)


ARRAY_DAMAGES = ["shape", "flat", "empty", "float64", "int32", "object", "no such type"]
ARRAY_DAMAGES += ["half the bytes", "claims to be huge", "another coding", "nan", "one nan"]
ARRAY_DAMAGES += ["inf", "3e38", "-3e38", "1e18", "zeros"]


def damaged_array(array: Array, what: str) -> Array:
    """Return an array with something wrong about it."""
    values = np.array(from_record(ArrayRecord({"a": array}))["a"])
    kind = values.dtype
    with np.errstate(all="ignore"):
        made = {
            "shape": lambda: np.zeros((*values.shape, 2), kind),
            "flat": values.ravel,
            "empty": lambda: np.zeros(0, kind),
            "float64": lambda: values.astype(np.float64),
            "int32": lambda: values.astype(np.int32),
            "nan": lambda: np.full_like(values, np.nan if kind.kind == "f" else 2**30),
            "one nan": lambda: (
                np.where(np.arange(values.size) == 0, np.nan, values.flat)
                .reshape(values.shape)
                .astype(kind)
            ),
            "inf": lambda: np.full(values.shape, np.inf).astype(kind),
            "3e38": lambda: np.full(values.shape, 3e38).astype(kind),
            "-3e38": lambda: np.full(values.shape, -3e38).astype(kind),
            "1e18": lambda: np.full(values.shape, 1e18).astype(kind),
            "zeros": lambda: np.zeros_like(values),
        }
        if what in made:
            return to_record({"a": made[what]()})["a"]
    data, shape, dtype, coding = array.data, array.shape, array.dtype, array.stype
    if what == "object":
        dtype = "O"
    elif what == "no such type":
        dtype = "floaty"
    elif what == "half the bytes":
        data = data[: len(data) // 2]
    elif what == "claims to be huge":
        shape = (2**31 - 1, 2**20)
    else:
        assert what == "another coding", what
        coding = "pickle"
    return Array(dtype, shape, coding, data)


def damages_of(content: RecordDict) -> list[Damage]:
    """Return all damages of a reply, each once."""
    found: list[Damage] = []
    for name, record in content.items():
        found += _of_record(name, record)
    found += [Damage(MORE, None, "record extra", other) for other in _other_kinds(None)]
    found.append(Damage(HUGE, None, "record extra", ConfigRecord()))
    return found


def _of_record(name: str, record: Any) -> Iterator[Damage]:
    yield Damage(name, None, "record missing", GONE)
    for other in _other_kinds(type(record)):
        yield Damage(name, None, f"a {type(other).__name__} instead", other)
    yield Damage(name, None, "empty", type(record)())
    if isinstance(record, ArrayRecord):
        for entry in record:
            yield Damage(name, entry, "missing")
            yield from (Damage(name, entry, what) for what in ARRAY_DAMAGES)
        extra = to_record({"a": np.zeros(3, np.float32)})["a"]
        yield from (Damage(name, entry, "extra", extra) for entry in NAMES)
        return
    values: list[Any] = [*NUMBERS, *NUMBER_LISTS]
    if isinstance(record, ConfigRecord):
        values += [*OTHERS, *OTHER_LISTS]
    for entry, honest in record.items():
        yield Damage(name, entry, "missing", GONE)
        for value in [*values, *_nearly(honest)]:
            yield Damage(name, entry, "is", value)
    for value in values:
        yield Damage(name, MORE, "extra", value)
    yield from (Damage(name, entry, "extra", 1.0) for entry in NAMES[1:])


def _nearly(honest: Any) -> list[Any]:
    """Return values that are nearly honest: a list one longer or shorter, bytes cut or flipped."""
    if isinstance(honest, bytes):
        cut = [honest[:-1], honest + b"\x00", b"\xff" + honest[1:], honest[: len(honest) // 2]]
        return cut + _forged(honest)
    if isinstance(honest, list) and honest:
        edges = [-1, 2**62] if isinstance(honest[0], int) else []
        edges = [float("nan"), 1e300, -1.0] if isinstance(honest[0], float) else edges
        edges = [HUGE, "0.0.0.0"] if isinstance(honest[0], str) else edges
        return [honest[:-1], [*honest, honest[-1]], *([edge, *honest[1:]] for edge in edges)]
    if isinstance(honest, int | float):
        return [float(honest), int(honest)] if type(honest) is not bool else []
    return []


def _forged(honest: bytes) -> list[bytes]:
    """Return messages with a valid checksum that say something else."""
    found: list[bytes] = [sealed(honest[:-4] + b"\x00"), sealed(b"\xff" + honest[1:-4])]
    try:
        told = decode_signature(honest)
    except ValueError:
        pass
    else:
        short, long = told.signature[:-1], np.tile(told.signature, 2)
        found += [encode_signature(s, told.count, told.size, told.tag) for s in (short, long)]
        found.append(encode_signature(told.signature, told.size, told.size, told.tag))
        found.append(encode_signature(told.signature, 1, told.size, told.tag ^ 1))
    try:
        update = sparse.decode(honest)
    except ValueError:
        pass
    else:
        for value in (np.nan, np.inf, 3e38, -3e38, 1e18, 0.0):
            wrong = np.full_like(update, value)
            found += [_encoded(wrong), _encoded(wrong[:-1])]
    return found


def _encoded(update: NDArray[np.float32]) -> bytes:
    try:
        return sparse.encode(update, update.size)
    except ValueError:
        return b""


def _other_kinds(kind: type | None) -> list[Record]:
    others: list[Record] = [
        ArrayRecord({"a": to_record({"a": np.zeros(3, np.float32)})["a"]}),
        ConfigRecord({"key": "7", "payload": b"x"}),
        MetricRecord({"num-examples": 3, "loss": 1.0}),
    ]
    return [other for other in others if type(other) is not kind]
