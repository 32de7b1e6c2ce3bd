"""Models as compressed differences of their bits: exact for any numbers, and never too large."""

import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from forager.core.wire.byte_planes import decode_planes, encode_planes
from forager.core.wire.changes import tag_of
from forager.core.wire.envelope import MalformedUpdate

EDGES = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3e38], np.float32)


def any_bits(seed: int, *shape: int) -> Any:
    """Floats of any bit pattern: all kinds of NaN and denormals are among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"w": any_bits(0, 40, 7)}, {"w": any_bits(1, 40, 7)}),
        ({"w": EDGES}, {"w": EDGES[::-1]}),
        ({"w": np.zeros(9, np.float32)}, {"w": EDGES}),
        ({"n": np.array(3)}, {"n": np.array(-4)}),
        ({"n": np.array(3), "w": any_bits(0, 5)}, {"n": np.array(3), "w": any_bits(1, 5)}),
        ({"w": np.zeros((0, 4), np.float32)}, {"w": np.zeros((0, 4), np.float32)}),
        ({}, {}),
        ({"w": np.arange(12.0).reshape(3, 4).T}, {"w": np.arange(12.0).reshape(4, 3) + 1}),
        (
            {"a": np.float16([1, 2]), "b": np.array([True]), "c": np.uint8([7]), "d": np.ones(2)},
            {"a": np.float16([1, 3]), "b": np.array([False]), "c": np.uint8([8]), "d": np.ones(2)},
        ),
    ],
)
def test_every_bit_is_restored(before: dict[str, Any], after: dict[str, Any]) -> None:
    kept = tag_of(before)
    got = decode_planes(before, encode_planes(before, after))
    assert tag_of(got) == tag_of(after)
    assert list(got) == list(after)
    assert tag_of(before) == kept


def test_a_small_step_takes_far_fewer_bytes_than_the_model() -> None:
    before = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    nothing = encode_planes({"w": before}, {"w": before})
    step = encode_planes({"w": before}, {"w": before * np.float32(1.0001)})
    assert len(nothing) < 0.01 * before.nbytes
    assert len(step) < 0.6 * before.nbytes


BEFORE = {"w": np.ones(1000, np.float32), "n": np.array(1)}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[1:],
        lambda data: data + b"\0",
        lambda data: data + zlib.compress(b""),
        lambda data: b"",
        lambda data: zlib.compress(b"\0" * 999) + data,
        lambda data: zlib.compress(b"\0" * 1001) + data,
        lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:],
    ],
)
def test_malformed_bytes_are_refused(spoil: Any) -> None:
    data = encode_planes(BEFORE, {"w": any_bits(0, 1000), "n": np.array(2)})
    with pytest.raises(MalformedUpdate):
        decode_planes(BEFORE, spoil(data))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(b"\0" * 50_000_000)
    tracemalloc.start()
    with pytest.raises(MalformedUpdate):
        decode_planes(BEFORE, bomb)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500_000
