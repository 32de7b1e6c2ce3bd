import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.client_app.record_log import RecordLog
from forager.client_app.sample_store import DiskStore, SampleStore, SampleStoreError
from forager.core.storage import tree

Make = Callable[..., SampleStore]


def sample(key: int) -> np.ndarray[Any, Any]:
    """Content that says which sample it is."""
    return np.array([key, key * 0.5, -key], dtype=np.float32)


def put(store: SampleStore, *keys: int, evicted: Any = ()) -> bool:
    samples = [sample(key) for key in keys]
    return store.swap(np.array(evicted, int), list(keys), samples, [key % 3 for key in keys])


def content(store: SampleStore) -> dict[int, tuple[list[float], int]]:
    x, y = store.read()
    rows = zip(x.tolist(), y.tolist(), strict=True)
    return dict(zip(store.keys.tolist(), rows, strict=True))


def expected(*keys: int) -> dict[int, tuple[list[float], int]]:
    return {key: (sample(key).tolist(), key % 3) for key in keys}


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def build(capacity: int = 5, capacity_bytes: int = 0) -> SampleStore:
        if request.param == "memory":
            return SampleStore(capacity, capacity_bytes)
        return DiskStore(tmp_path / "state" / "samples", "digits", capacity, capacity_bytes)

    return build


def disk(tmp_path: Path, **options: Any) -> DiskStore:
    return DiskStore(tmp_path / "samples", **({"task": "digits", "capacity": 9} | options))


def test_samples_come_and_go(make: Make) -> None:
    store = make()
    assert (len(store), store.nbytes, store.keys.tolist()) == (0, 0, [])
    assert put(store, 3, 1)
    assert put(store, 4, evicted=[3, 99])
    assert content(store) == expected(1, 4)
    assert (store.nbytes, 1 in store, 3 in store) == (24, True, False)
    assert put(store, 1)  # again: it is the latest now
    assert store.keys.tolist() == [4, 1]
    assert store.read([1])[0].tolist() == [sample(1).tolist()]
    store.retain([1, 77])
    assert content(store) == expected(1)
    with pytest.raises(KeyError, match=r"not stored: \[4\]"):
        store.read([1, 4])
    store.retain([])
    assert store.read()[0].shape == (0, 3)


def test_no_more_than_the_capacity(make: Make, said: list[str]) -> None:
    store = make(capacity=3, capacity_bytes=25)
    assert store.places(sample(0)) == 2
    assert put(store, 1, 2)
    assert not put(store, 3)
    assert not put(store, 3, 4, evicted=[1])
    assert said[-1] == "no room for 2 samples beside 2: not kept"
    assert content(store) == expected(1, 2)
    assert put(store, 3, evicted=[1])
    assert not put(make(capacity=0), 8)


def test_what_is_read_or_given_can_be_changed_without_harm(make: Make) -> None:
    store, given = make(), sample(1)[None]
    store.swap([], [1], given, [1])
    given[:] = 9
    store.read()[0][:] = 8
    assert content(store) == expected(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [5], np.zeros((1, 4), np.float32), [0]), "x: expected float32 of shape"),
        (([], [5], np.zeros((1, 3)), [0]), "x: expected float32 of shape"),
        (([], [5], np.zeros((2, 3), np.float32), [0]), "x: expected 1 arrays of numbers"),
        (([], [5], np.array([["a"]]), [0]), "x: expected 1 arrays of numbers"),
        (([], [5], sample(5)[None], [0, 1]), "y: expected 1 labels as in keys, got 2"),
        (([], [0.5], sample(5)[None], [0]), "keys: expected whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(make: Make, arguments: Any, message: str) -> None:
    store = make()
    put(store, 1)
    with pytest.raises(ValueError, match=message):
        store.swap(*arguments)
    assert content(store) == expected(1)


def test_a_store_in_memory_can_be_kept_elsewhere() -> None:
    store, empty = SampleStore(5), SampleStore(5)
    put(store, 1, 2, 3)
    state = tree.from_bytes(tree.to_bytes(store.state_dict(), "t"), "t")
    other, small = SampleStore(5), SampleStore(2)
    other.load_state_dict(state)
    small.load_state_dict(state)
    assert content(other) == expected(1, 2, 3)
    assert content(small) == expected(1, 2)
    other.load_state_dict(empty.state_dict())
    assert len(other) == 0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[tuple[int, set[int]]]]:
    """A file, and after each of its whole records: its length, and the keys that are stored."""
    folder = tmp_path_factory.mktemp("log")
    store = disk(folder)
    put(store, 1, 2)
    put(store, 3, evicted=[1])
    put(store, 1, 4, evicted=[2])
    store.close()
    data = (folder / "samples").read_bytes()
    records = RecordLog(folder / "samples", "sample-store")
    steps: list[tuple[int, set[int]]] = [(records.start, set())]
    for (offset, record), (verb, key) in zip(
        records.records(), ["+1", "+2", "-1", "+3", "-2", "+1", "+4"], strict=True
    ):
        keys = steps[-1][1] | {int(key)} if verb == "+" else steps[-1][1] - {int(key)}
        steps.append((offset + records.OVERHEAD + len(record), keys))
    records.close()
    assert steps[-1] == (len(data), {1, 3, 4})
    return data, steps


def test_a_file_cut_at_any_byte_opens_with_all_that_was_whole(
    tmp_path: Path, log: tuple[bytes, list[tuple[int, set[int]]]]
) -> None:
    data, steps = log
    for cut in range(len(data) + 1):
        (tmp_path / "samples").write_bytes(data[:cut])
        store = disk(tmp_path)
        whole = [keys for end, keys in steps if end <= cut]
        assert content(store) == expected(*(whole[-1] if whole else ())), cut
        if cut % 9 == 0:  # it can be written to, as if nothing had been
            assert put(store, 7, 8)
            store.close()
            store = disk(tmp_path)
            assert content(store) == expected(*(whole[-1] if whole else ()), 7, 8), cut
        store.close()


@pytest.mark.parametrize("evicted", [(0,), (0, 1), (0, 1, 2)])
def test_a_swap_cut_at_any_byte_never_leaves_more_than_the_capacity(
    tmp_path: Path, evicted: tuple[int, ...]
) -> None:
    store = disk(tmp_path, capacity=3)
    put(store, *range(3 - max(0, 2 - len(evicted))))
    before = (tmp_path / "samples").stat().st_size
    assert put(store, 7, 8, evicted=evicted)
    store.close()
    data = (tmp_path / "samples").read_bytes()
    for cut in range(before, len(data) + 1):
        (tmp_path / "samples").write_bytes(data[:cut])
        store = disk(tmp_path, capacity=3)
        assert len(store) <= 3, cut
        store.close()


def test_a_file_damaged_at_any_byte_never_gives_garbage(
    tmp_path: Path, log: tuple[bytes, list[tuple[int, set[int]]]]
) -> None:
    data, _ = log
    opened = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        (tmp_path / "samples").write_bytes(damaged)
        try:
            store = disk(tmp_path)
        except SampleStoreError:
            continue
        opened += 1
        found = content(store)
        assert found == expected(*found), place
        store.close()
    assert opened >= len(data) - log[1][0][0]


def test_zeros_at_the_end_are_not_records(tmp_path: Path) -> None:
    store = disk(tmp_path)
    put(store, 1)
    store.close()
    with (tmp_path / "samples").open("ab") as file:
        file.write(bytes(500))
    assert content(disk(tmp_path)) == expected(1)


def test_another_task_version_or_program_is_a_clear_error(tmp_path: Path) -> None:
    store = disk(tmp_path)
    put(store, 1)
    store.close()
    with pytest.raises(SampleStoreError, match=r"samples: holds samples of task 'digits', not 'x'"):
        disk(tmp_path, task="x")
    assert content(disk(tmp_path)) == expected(1)
    header = {"version": 2, "task": "digits", "shape": [3], "dtype": "<f4"}
    RecordLog.create(tmp_path / "samples", header, "sample-store").close()
    with pytest.raises(SampleStoreError, match="holds samples of version 2, not 1"):
        disk(tmp_path)
    RecordLog.create(tmp_path / "samples", header, "else").close()
    with pytest.raises(SampleStoreError, match="expected a 'sample-store' file, found 'else'"):
        disk(tmp_path)
    (tmp_path / "samples").write_bytes(b"PK\3\4 something else")
    with pytest.raises(SampleStoreError, match="not a log of this project"):
        disk(tmp_path)
    assert (tmp_path / "samples").read_bytes() == b"PK\3\4 something else"


def test_the_file_does_not_grow_with_what_passes_through(tmp_path: Path) -> None:
    store = disk(tmp_path, capacity=10)
    big = np.ones((1, 3000), dtype=np.float32)
    for key in range(100):
        assert store.swap([key - 10], [key], big * key, [0])
        assert (tmp_path / "samples").stat().st_size < 3 * 10 * big.nbytes + 70_000
    store.close()
    again = disk(tmp_path, capacity=10)
    assert again.keys.tolist() == list(range(90, 100))
    assert again.read()[0][:, 0].tolist() == list(range(90, 100))
    assert os.listdir(tmp_path) == ["samples"]


def test_what_a_crash_left_while_the_file_was_written_anew_is_removed(tmp_path: Path) -> None:
    put(disk(tmp_path), 1)
    (tmp_path / ".samples.0a1b2c3d.tmp").write_bytes(b"half")
    assert content(disk(tmp_path)) == expected(1)
    assert os.listdir(tmp_path) == ["samples"]


def test_samples_of_another_shape_may_follow_once_the_store_is_empty(tmp_path: Path) -> None:
    store = disk(tmp_path)
    put(store, 1)
    store.retain([])
    assert store.swap([], [2], np.ones((1, 2, 2), np.uint8), [0])
    store.close()
    assert disk(tmp_path).read()[0].shape == (1, 2, 2)


class FullDisk:
    """A file on a disk that has room for so many more bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self.room = file, room

    def write(self, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._file.write(data[: self.room])
        self.room -= written
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [0, 1, 30, 40, 100])
def test_on_a_full_disk_what_is_stored_stays(tmp_path: Path, said: list[str], room: int) -> None:
    store = disk(tmp_path, capacity=3)
    put(store, 1, 2)
    log = store._file
    assert log is not None
    log._file = FullDisk(log._file, room)  # type: ignore[assignment]
    assert not put(store, 3, 4, 5, evicted=[1, 2])
    assert said[-1].endswith("No space left on device: what is stored stays, nothing new")
    assert content(store) == expected(1, 2)
    assert content(disk(tmp_path)) == expected(1, 2)
    log._file.room = 0  # type: ignore[attr-defined]
    store.retain([2])  # cannot even be noted
    assert content(store) == expected(2)
    log._file.room = 10**6  # type: ignore[attr-defined]
    assert put(store, 6)
    store.close()
    assert {2, 6} <= set(disk(tmp_path).keys.tolist())


def test_other_trouble_with_the_disk_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk(tmp_path)
    put(store, 1)

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        put(store, 2)
    assert content(disk(tmp_path)) == content(store) == expected(1)


WRITER = """
import sys, numpy as np
from pathlib import Path
from forager.client_app.sample_store import DiskStore
store = DiskStore(Path(sys.argv[1]), "digits", 20)
for key in range(100000):
    x = np.full((1, 2000), key, dtype=np.float32)
    store.swap([key - 20], [key], x, [key % 3])
    print(key, flush=True)
"""


def test_a_killed_process_loses_at_most_what_it_was_writing(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "samples")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
    )
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) >= 150:
            os.kill(writer.pid, signal.SIGKILL)
            break
    last = max([150, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    writer.wait()
    store = disk(tmp_path, capacity=20)
    x, y = store.read()
    assert (x == store.keys[:, None]).all()
    assert (y == store.keys % 3).all()
    held = set(store.keys.tolist())
    assert set(range(last - 18, last + 1)) <= held <= set(range(last - 20, last + 2))
