"""What all fuzz tests share: how long they try, and how bytes are spoilt.

``FUZZ_EXAMPLES`` says how many inputs a test tries: a few hundred in the suite, the same every
time; many more, and new ones every time, in ``make fuzz``.
"""

import os
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_LONG = "FUZZ_EXAMPLES" in os.environ

fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "200")),
    deadline=None,
    derandomize=not _LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

_EDGES = st.sampled_from([0, 1, 2, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1])


def spoilt(honest: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return honest bytes with a few things done to them: flipped, cut, repeated, overwritten."""
    return st.tuples(honest, st.lists(_damage(), max_size=4)).map(_apply)


def _damage() -> st.SearchStrategy[Callable[[bytearray], bytearray]]:
    at = st.integers(0, 2**16)
    return st.one_of(
        st.builds(_flip, at, st.integers(1, 255)),
        st.builds(_cut, at),
        st.builds(_insert, at, st.binary(min_size=1, max_size=40)),
        st.builds(_number, at, _EDGES),
    )


def _apply(case: tuple[bytes, list[Callable[[bytearray], bytearray]]]) -> bytes:
    data = bytearray(case[0])
    for damage in case[1]:
        data = damage(data)
    return bytes(data)


def _flip(at: int, mask: int) -> Callable[[bytearray], bytearray]:
    def damage(data: bytearray) -> bytearray:
        if data:
            data[at % len(data)] ^= mask
        return data

    return damage


def _cut(at: int) -> Callable[[bytearray], bytearray]:
    return lambda data: data[: at % (len(data) + 1)]


def _insert(at: int, more: bytes) -> Callable[[bytearray], bytearray]:
    return lambda data: data[: at % (len(data) + 1)] + more + data[at % (len(data) + 1) :]


def _number(at: int, value: int) -> Callable[[bytearray], bytearray]:
    """Overwrite four bytes, as a length or a count may be."""

    def damage(data: bytearray) -> bytearray:
        place = at % max(1, len(data) - 3)
        data[place : place + 4] = value.to_bytes(4, "little")
        return data

    return damage


def sealed(body: bytes) -> bytes:
    """Return bytes with a valid checksum behind them: a forger can compute one too."""
    return body + zlib.crc32(body).to_bytes(4, "little")


def forged(honest: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return spoilt messages, most with a valid checksum, so that the checks behind it are met."""
    bodies = spoilt(honest.map(lambda message: message[:-4]))
    return st.one_of(bodies.map(sealed), bodies.map(sealed), spoilt(honest))


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """Fail if what is done inside takes more bytes than that, even for a moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most, f"{peak:,} bytes taken, {most:,} allowed"


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, 1e300, -0.0]),
)
"""What a ConfigRecord can hold."""

NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.sampled_from([0, 1, 2**63 - 1, 1e300])
)
"""What a MetricRecord can hold."""


def lists_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return single values, or lists of one kind of them, as Flower's records allow."""
    kinds = [st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.text(max_size=9)]
    return st.one_of(values, *(st.lists(kind, max_size=12) for kind in kinds))
