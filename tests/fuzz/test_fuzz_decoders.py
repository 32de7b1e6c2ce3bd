"""Every decoder takes any bytes: it returns something sound or refuses, and never grows large."""

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from forager.client_app.device.sample_store import DiskStore
from forager.core.storage import tree
from forager.core.wire import sparse
from forager.core.wire.arrays import checked_arrays, checked_view, num_bytes, record_bytes
from forager.core.wire.byte_planes import decode_planes, encode_planes
from forager.core.wire.changes import apply_change, encode_change
from forager.core.wire.envelope import MalformedUpdate
from forager.core.wire.subsets import MAX_SIZE, decode_subset, encode_subset
from forager.core.wire.supports import (
    MalformedSupport,
    decode_signed_support,
    decode_support,
    encode_signed_support,
    encode_support,
)
from fuzzing import forged, fuzz, little_memory, sealed, spoilt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SIZE, TAG = 700, 0xC0FFEE
MEMORY = 300_000  # far above what SIZE entries take, far below what a bomb claims

masks = hnp.arrays(bool, SIZE, elements=st.booleans())
runs = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda run: np.isin(np.arange(SIZE), np.arange(run[0], min(SIZE, run[0] + run[1])))
)
subsets = st.one_of(masks, runs).map(np.flatnonzero)
updates = hnp.arrays(np.float32, SIZE, elements=st.floats(-9, 9, width=32))
honest_sparse = st.builds(
    lambda update, k, values: sparse.encode(update, k, values),
    updates,
    st.integers(0, SIZE),
    st.sampled_from(["float32", "float16"]),
)
honest_subset = subsets.map(lambda indices: encode_subset(indices, SIZE))
honest_support = subsets.map(
    lambda indices: encode_support(indices if indices.size else np.array([3]), SIZE, TAG)
)

honest_signed = st.builds(
    lambda indices, seed: encode_signed_support(
        indices, np.random.default_rng(seed).choice([-1, 1], indices.size), SIZE, TAG
    ),
    subsets.filter(lambda indices: indices.size > 0),
    st.integers(0, 9),
)


def is_subset(indices: Any, size: int) -> bool:
    return bool(
        indices.dtype == np.int64
        and (np.diff(indices) > 0).all()
        and (indices.size == 0 or 0 <= indices[0] <= indices[-1] < size)
    )


@fuzz
@given(st.one_of(st.binary(max_size=300), forged(honest_sparse)))
def test_sparse_updates(data: bytes) -> None:
    try:
        with little_memory(MEMORY):
            dense = sparse.decode(data, SIZE)
    except MalformedUpdate:
        return
    assert (dense.dtype, dense.shape) == (np.float32, (SIZE,))


@fuzz
@given(st.one_of(st.binary(max_size=300), forged(honest_sparse)))
def test_sparse_updates_of_unknown_size(data: bytes) -> None:
    """Memory is in proportion to the bytes, whatever size they claim."""
    try:
        with little_memory(MEMORY + 500 * len(data)):
            size, indices, values = sparse.decode_pairs(data)
    except MalformedUpdate:
        return
    assert is_subset(indices, size)
    assert values.shape == indices.shape


@fuzz
@given(st.one_of(st.binary(max_size=300), forged(honest_subset)))
def test_subsets(data: bytes) -> None:
    try:
        with little_memory(MEMORY):
            indices = decode_subset(data, SIZE)
    except MalformedUpdate:
        return
    assert is_subset(indices, SIZE)


@fuzz
@given(
    st.integers(0, 3), st.integers(0, 2**32 - 1), st.integers(0, MAX_SIZE), st.binary(max_size=60)
)
def test_claims_of_many_indices(form: int, count: int, k: int, body: bytes) -> None:
    """A few bytes that claim any number of positions of the largest model there can be."""
    header = b"FRGR" + bytes([1, 1]) + MAX_SIZE.to_bytes(4, "little") + k.to_bytes(4, "little")
    data = sealed(header + bytes([form]) + count.to_bytes(4, "little") + body)
    try:
        with little_memory(MEMORY + 500 * len(data)):
            sparse.decode_pairs(data)
    except MalformedUpdate:
        return


@fuzz
@given(st.one_of(st.binary(max_size=300), forged(honest_support)))
def test_supports(data: bytes) -> None:
    try:
        with little_memory(MEMORY):
            support = decode_support(data, SIZE, TAG)
    except MalformedSupport:
        return
    assert is_subset(support, SIZE)
    assert support.size > 0


@fuzz
@given(st.one_of(st.binary(max_size=300), forged(honest_signed)))
def test_signed_supports(data: bytes) -> None:
    try:
        with little_memory(MEMORY):
            support, signs = decode_signed_support(data, SIZE, TAG)
    except MalformedSupport:
        return
    assert is_subset(support, SIZE)
    assert support.size == signs.size > 0
    assert set(signs.tolist()) <= {-1, 1}


BEFORE = {"w": np.arange(600, dtype=np.float32).reshape(30, 20), "n": np.array(3)}
changed = hnp.arrays(np.float32, (30, 20), elements=st.floats(-9, 9, width=32)).map(
    lambda w: encode_change(BEFORE, {"w": w, "n": BEFORE["n"]})
)


@fuzz
@given(
    st.one_of(
        changed.flatmap(lambda c: st.tuples(forged(st.just(c[0])), spoilt(st.just(c[1])))),
        st.tuples(st.binary(max_size=200), st.binary(max_size=200)),
        st.lists(st.one_of(st.binary(max_size=9), st.text(max_size=9), st.integers()), max_size=3),
    )
)
def test_changes(parts: Any) -> None:
    try:
        with little_memory(MEMORY):
            after = apply_change(BEFORE, list(parts))
    except MalformedUpdate:
        return
    assert {n: (a.shape, a.dtype) for n, a in after.items()} == {
        n: (a.shape, a.dtype) for n, a in BEFORE.items()
    }


planes = hnp.arrays(np.uint32, (30, 20), elements=st.integers(0, 2**32 - 1)).map(
    lambda w: encode_planes(BEFORE, {"w": w.view(np.float32), "n": np.array(4)})
)
# Streams of any length, as a forger may put in place of any plane.
streams = st.lists(st.integers(0, 2**16).map(lambda n: zlib.compress(bytes(n))), max_size=13)


@fuzz
@given(st.one_of(st.binary(max_size=300), spoilt(planes), streams.map(b"".join)))
def test_planes(data: bytes) -> None:
    try:
        with little_memory(MEMORY):
            after = decode_planes(BEFORE, data)
    except MalformedUpdate:
        return
    assert {n: (a.shape, a.dtype) for n, a in after.items()} == {
        n: (a.shape, a.dtype) for n, a in BEFORE.items()
    }


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    hnp.arrays(st.sampled_from([np.float32, np.int64, np.uint8]), hnp.array_shapes(max_side=4)),
)
trees = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=8,
    ),
    max_size=5,
)


@fuzz
@given(trees)
def test_trees_survive(state: dict[str, Any]) -> None:
    np.testing.assert_equal(tree.from_bytes(tree.to_bytes(state, "fuzz"), "fuzz"), state)


@fuzz
@given(st.one_of(st.binary(max_size=300), spoilt(trees.map(lambda t: tree.to_bytes(t, "fuzz")))))
def test_trees(data: bytes) -> None:
    try:
        with little_memory(MEMORY + 100 * len(data)):
            state = tree.from_bytes(data, "fuzz")
    except tree.TreeError:
        return
    assert isinstance(state, dict)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


LIKE = np.zeros((4, 5), np.float32)
arrays = hnp.arrays(st.sampled_from([np.float32, np.float64, np.int8]), st.just((4, 5)))
headers = st.binary(max_size=120).map(
    lambda text: b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
)


@fuzz
@given(
    st.one_of(st.binary(max_size=200), spoilt(arrays.map(npy)), headers),
    st.sampled_from(["float32", "float64", "O", "", "floaty", "<f4"]),
    st.sampled_from([(4, 5), (20,), (), (2**40, 2**40), (-4, -5)]),
    st.sampled_from(["numpy.ndarray", "pickle", ""]),
)
def test_arrays(data: bytes, dtype: str, shape: tuple[int, ...], stype: str) -> None:
    array = Array(dtype, shape, stype, data)
    record = ArrayRecord()
    record["w"] = array
    assert 0 <= num_bytes(array) <= len(data)
    assert record_bytes(record) == num_bytes(array)
    try:
        with little_memory(MEMORY):
            values = checked_view(array, LIKE)
            checked_arrays(record, {"w": LIKE})
    except ValueError:
        return
    assert (values.shape, values.dtype) == (LIKE.shape, LIKE.dtype)


def file_of(folder: Path, data: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(data)
    return path


def a_store(folder: Path) -> bytes:
    store = DiskStore(folder / "honest", "digits", 10)
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([0, 1, 2])
    assert store.swap([], [5, 6, 7], x, y)
    assert store.swap([6], [8], x[:1], y[:1])
    store.commit()
    return (folder / "honest").read_bytes()


def test_stores(tmp_path: Path) -> None:
    honest = a_store(tmp_path)

    @fuzz
    @given(st.one_of(st.binary(max_size=200), spoilt(st.just(honest))))
    def opened(data: bytes) -> None:
        store = DiskStore(file_of(tmp_path, data), "digits", 10)
        x, y = store.read()
        assert len(x) == len(y) == len(store) <= 10
        store.commit()
        assert DiskStore(tmp_path / "file", "digits", 10).keys.tolist() == store.keys.tolist()

    opened()
