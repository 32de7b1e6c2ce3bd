import json
import os
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.storage import tree
from forager.core.storage.files import write_atomically
from forager.core.storage.tree import TreeError, from_bytes, load, to_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**130), 2**130),
    st.floats(allow_nan=True),
    st.text(max_size=8),
    arrays,
)
# "__array__" and slashes: clients choose the names that end up as keys.
keys = st.one_of(st.sampled_from(["a", "b", "a/b", "/", "", "0", "__array__"]), st.text(max_size=5))
nodes = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)
trees = st.dictionaries(keys, nodes, max_size=5)


def assert_equal(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    elif isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        np.testing.assert_array_equal(left, right)
    else:
        assert left == right or (left != left and right != right)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_any_tree_comes_back_as_it_was(state: dict[str, Any]) -> None:
    assert_equal(from_bytes(to_bytes(state, "test"), "test"), state)


def test_a_client_may_be_called_anything() -> None:
    """One called like the mark of an array must not make the checkpoint unreadable."""
    state = {"strikes": {"__array__": 1}}
    assert from_bytes(to_bytes(state, "test"), "test") == state


def test_keys_with_slashes_are_not_mixed_up() -> None:
    state = {"a": {"b": np.zeros(2)}, "a/b": np.ones(2)}
    assert_equal(from_bytes(to_bytes(state, "test"), "test"), state)


def test_arrays_that_are_not_contiguous_or_of_other_byte_order() -> None:
    state = {
        "strided": np.arange(20, dtype=np.float32)[::3],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "swapped": np.arange(3, dtype=">f4"),
    }
    back = from_bytes(to_bytes(state, "test"), "test")
    for name, array in state.items():
        np.testing.assert_array_equal(back[name], array)


def test_what_comes_back_can_be_changed() -> None:
    back = from_bytes(to_bytes({"w": np.zeros(3)}, "test"), "test")
    back["w"] += 1
    assert back["w"].tolist() == [1, 1, 1]


def test_tuples_become_lists_and_scalars_of_numpy_plain_ones() -> None:
    state = {"t": (1, 2), "f": np.float32(0.5), "i": np.int64(3), "b": np.True_}
    back = from_bytes(to_bytes(state, "test"), "test")
    assert back == {"t": [1, 2], "f": 0.5, "i": 3, "b": True}
    assert [type(back[key]) for key in "fib"] == [float, int, bool]


def test_a_generator_continues() -> None:
    rng = np.random.default_rng(3)
    rng.random(5)
    back = from_bytes(to_bytes({"rng": rng.bit_generator.state}, "test"), "test")
    other = np.random.default_rng(0)
    other.bit_generator.state = back["rng"]
    assert other.random(4).tolist() == rng.random(4).tolist()


@pytest.mark.parametrize(
    "state",
    [{"x": {1: 2}}, {"x": object()}, {"x": {1, 2}}, {"x": b"bytes"}, {"x": 1j}, {"x": [object()]}],
)
def test_what_cannot_be_stored_is_refused_by_its_place(state: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="'/x"):
        to_bytes(state, "test")


GOOD = to_bytes({"w": np.arange(6, dtype=np.float32), "n": {"deep": [1, 2.5, "text"]}}, "test")


@pytest.mark.parametrize("length", range(0, len(GOOD), 7))
def test_a_torn_file_is_refused(length: int) -> None:
    with pytest.raises(TreeError):
        from_bytes(GOOD[:length], "test")


def flipped(position: int, change: int) -> dict[str, Any] | None:
    """What is read from the good file with one byte changed; nothing if it is refused."""
    data = bytearray(GOOD)
    data[position] ^= change
    try:
        return from_bytes(bytes(data), "test")
    except TreeError:
        return None


@settings(max_examples=500, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_flipped_byte_gives_no_other_error(position: int, change: int) -> None:
    assert isinstance(flipped(position, change), dict | None)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_flipped_byte_does_not_change_a_number_unnoticed(position: int, change: int) -> None:
    """A checkpoint that silently holds other numbers is worse than one that is refused."""
    back = flipped(position, change)
    if back is not None:
        assert_equal(back, from_bytes(GOOD, "test"))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(TreeError):
        from_bytes(data, "test")


def foreign(metadata: Any, header: dict[str, Any] | None = None) -> bytes:
    text = json.dumps({"__metadata__": metadata, **(header or {})}).encode()
    return len(text).to_bytes(8, "little") + text


MINE = {"format": "forager-tree-1", "kind": "test"}

FOREIGN: dict[str, bytes] = {
    "a model": save({"w": np.zeros(3)}),
    "another format": save({"w": np.zeros(3)}, metadata={"format": "other"}),
    "no tree": foreign(MINE),
    "tree that is a number": foreign({**MINE, "tree": 5}),
    "tree that is none": foreign({**MINE, "tree": None}),
    "tree that is a list": foreign({**MINE, "tree": "[1, 2]"}),
    "tree that is no json": foreign({**MINE, "tree": "{"}),
    "reference to nowhere": foreign({**MINE, "tree": '{"w": {"__array__": "/w"}}'}),
    "reference that is a list": foreign({**MINE, "tree": '{"w": {"__array__": [1]}}'}),
    "reference that is a dict": foreign({**MINE, "tree": '{"w": {"__array__": {}}}'}),
    "bottomless tree": foreign({**MINE, "tree": '{"w":' + "[" * 100_000}),
    "metadata that is a list": foreign([1, 2]),
    "metadata that is a number": foreign(3),
    "header that is a list": (2).to_bytes(8, "little") + b"[]",
    "header that is no text": (4).to_bytes(8, "little") + b"\xff\xfe\x00\x01",
    "header beyond the end": (2**62).to_bytes(8, "little") + b"{}",
    "bottomless header": (100_000).to_bytes(8, "little") + b"[" * 100_000,
    "array beyond the end": foreign(
        {**MINE, "tree": "{}"}, {"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}
    ),
    "array of odd type": foreign(
        {**MINE, "tree": "{}"}, {"w": {"dtype": "F3", "shape": [0], "data_offsets": [0, 0]}}
    ),
    "array of bfloat16": foreign(
        {**MINE, "tree": "{}"}, {"w": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}}
    ),
    "array of float8": foreign(
        {**MINE, "tree": "{}"}, {"w": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]}}
    ),
    "nothing": b"",
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_file_is_refused(data: bytes) -> None:
    with pytest.raises(TreeError):
        from_bytes(data, "test")


def test_another_kind_is_refused_by_name() -> None:
    with pytest.raises(TreeError, match=r"'checkpoint'.*'client-state'"):
        from_bytes(to_bytes({}, "client-state"), "checkpoint")


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "state.safetensors"
    tree.save(path, {"w": np.arange(3)}, "test")
    assert load(path, "test")["w"].tolist() == [0, 1, 2]
    tree.save(path, {"w": np.arange(2)}, "test")
    assert load(path, "test")["w"].tolist() == [0, 1]
    assert os.listdir(path.parent) == ["state.safetensors"]


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(GOOD[:50])
    with pytest.raises(TreeError, match=r"broken\.safetensors"):
        load(path, "test")


@pytest.mark.parametrize("broken", ["os.replace", "os.fsync"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, error: BaseException
) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(broken, fail)
    with pytest.raises(type(error)):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_a_file_is_written_out_before_it_takes_the_place_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    replace, fsync = os.replace, os.fsync

    def noted_fsync(handle: int) -> None:
        order.append("fsync")
        fsync(handle)

    def noted_replace(source: str, target: Path) -> None:
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr("os.fsync", noted_fsync)
    monkeypatch.setattr("os.replace", noted_replace)
    write_atomically(tmp_path / "state", b"new")
    assert order[:2] == ["fsync", "replace"]


def test_files_can_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    """A report or a model is for other people too."""
    previous = os.umask(0o022)
    try:
        write_atomically(tmp_path / "model", b"x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o644


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=2000))
def test_any_bytes_are_written_as_they_are(tmp_path: Path, data: bytes) -> None:
    write_atomically(tmp_path / "state", data)
    assert (tmp_path / "state").read_bytes() == data


def test_a_file_is_written_as_it_goes(tmp_path: Path) -> None:
    """A checkpoint of many clients' arrays takes no second copy of them in memory."""
    arrays = {str(i): np.full(2**18, i, dtype=np.float32) for i in range(16)}
    tracemalloc.start()
    try:
        tree.save(tmp_path / "state", arrays, "demo")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    loaded = tree.load(tmp_path / "state", "demo")
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())
