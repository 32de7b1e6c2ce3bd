import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from forager.client_app.device.sample_store import DiskStore, SampleStore
from forager.client_app.device.state import ContextStore
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


@pytest.fixture(params=["memory", "context", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    context = Context(1, 2, {}, RecordDict(), {})

    def build(capacity: int = 5, capacity_bytes: int = 0) -> SampleStore:
        if request.param == "memory":
            return SampleStore(capacity, capacity_bytes)
        if request.param == "context":
            return ContextStore(context, "digits", capacity, capacity_bytes)
        return DiskStore(tmp_path / "state" / "samples", "digits", capacity, capacity_bytes)

    return build


def disk(tmp_path: Path, **options: Any) -> DiskStore:
    return DiskStore(tmp_path / "samples", **({"made_for": "digits", "capacity": 9} | options))


def test_samples_come_and_go(make: Make) -> None:
    store = make()
    assert (len(store), store.keys.tolist()) == (0, [])
    assert put(store, 3, 1)
    assert put(store, 4, evicted=[3, 99])
    assert content(store) == expected(1, 4)
    assert (store.read()[0].nbytes, store.keys.tolist()) == (24, [1, 4])
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


def test_only_what_is_committed_is_found_again(make: Make) -> None:
    store = make(capacity=9)
    store.commit()
    assert len(make()) == 0
    if type(store) is SampleStore:
        return  # another one in memory never holds what this one does
    put(store, 3, 1, 2)
    store.memo = {"place": 4, "rows": np.arange(3)}
    assert len(make()) == 0
    store.commit()
    again = make(capacity=9)
    assert content(again) == expected(3, 1, 2)
    assert again.keys.tolist() == [3, 1, 2]
    assert (again.memo["place"], again.memo["rows"].tolist()) == (4, [0, 1, 2])
    put(again, 3, 7, evicted=[1])  # 3 is the latest now, nearly
    again.retain([2, 3])
    again.memo = {}
    assert content(make(capacity=9)) == expected(3, 1, 2)
    again.commit()
    assert make(capacity=9).keys.tolist() == [2, 3]
    assert make(capacity=9).memo == {}


def test_a_context_of_something_else_is_not_read() -> None:
    context = Context(1, 2, {}, RecordDict(), {})
    store = ContextStore(context, "digits", 5)
    put(store, 1)
    store.commit()
    assert len(ContextStore(context, "faces", 5)) == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with five samples and a memo."""
    folder = tmp_path_factory.mktemp("written")
    store = disk(folder)
    put(store, 1, 2, 5)
    store.commit()
    put(store, 3, 4, 6, evicted=[5])
    store.memo = {"seen": 6}
    store.commit()
    return (folder / "samples").read_bytes()


def harmed(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file cut off or changed in many places, those that hold something above all."""
    places = [i for i, byte in enumerate(data) if byte] + list(range(0, len(data), 97))
    for place in sorted(set(places)):
        yield f"changed at {place}", data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]
    for place in sorted({*range(120), *range(0, len(data), 61), len(data) - 1}):
        yield f"cut at {place}", data[:place]
    yield "other pages", data[:4096] + bytes(len(data) - 4096)
    yield "zeros at the end", data + bytes(500)
    yield "another file", b"PK\3\4 something else"


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files need not wait for a disk, where the system has such folders."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def test_a_damaged_file_never_gives_garbage_and_never_fails_for_ever(
    in_memory: Path, written: bytes, said: list[str]
) -> None:
    untouched = 0
    for what, data in harmed(written):
        folder = in_memory / what
        folder.mkdir()
        (folder / "samples").write_bytes(data)
        store = disk(folder)
        found = content(store)
        assert found == expected(*found), what
        assert set(found) <= {1, 2, 3, 4, 6}, what
        assert store.memo in ({}, {"seen": 6}), what
        assert len(said) <= 1, what
        aside = len(list(folder.glob("samples.*")))
        assert aside == len(said), what
        untouched += len(found) == 5
        said.clear()
        assert content(disk(folder)) == found, what  # without a commit, and without a word
        assert put(store, 8, evicted=store.keys[:3])
        store.commit()
        assert content(disk(folder)) == content(store), what
        assert not said, what
    assert untouched > 100


def test_no_sample_is_lost_by_a_bit_outside_of_the_samples(
    in_memory: Path, written: bytes, said: list[str]
) -> None:
    """The first page says where the tables are, another what the samples are for."""
    used = [*range(112), *(at for at in range(112, 4096) if written[at])]
    purpose = written.index(b"made-for", 4096)
    for at in [*used, *range(purpose, purpose + 40)]:
        for bit in (0, 5, 7):
            data = bytearray(written)
            data[at] ^= 1 << bit
            folder = in_memory / f"{at}-{bit}"
            folder.mkdir()
            (folder / "samples").write_bytes(data)
            assert set(content(disk(folder))) == {1, 2, 3, 4, 6}, (at, bit, said)


def test_what_can_be_read_of_a_damaged_file_is_kept(tmp_path: Path, said: list[str]) -> None:
    store, big = disk(tmp_path, capacity=50), np.ones((1, 3000), dtype=np.float32)
    for key in range(50):
        store.swap([], [key], big * key, [0])
    store.memo = {"seen": 50}
    store.commit()
    data = bytearray((tmp_path / "samples").read_bytes())
    data[data.index((big * 20).tobytes()[:999])] ^= 1  # where sample 20 begins
    (tmp_path / "samples").write_bytes(data)
    again = disk(tmp_path, capacity=50)
    assert (len(again), again.memo) == (49, {"seen": 50})
    assert (again.read()[0] == again.keys[:, None]).all()
    assert said[0].endswith("set aside as samples.damaged-1; 49 samples could be read")
    assert (tmp_path / "samples.damaged-1").read_bytes() == data


def test_an_empty_file_is_a_store_that_was_never_filled(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "samples").touch()
    store = disk(tmp_path)
    put(store, 1)
    store.commit()
    assert content(disk(tmp_path)) == expected(1)
    assert not said


def test_samples_for_something_else_are_set_aside(tmp_path: Path, said: list[str]) -> None:
    names = ["digits", "faces"] * 4
    for number, made_for in enumerate(names):
        store = disk(tmp_path, made_for=made_for)
        assert len(store) == 0
        put(store, number)
        store.commit()
        assert content(disk(tmp_path, made_for=made_for)) == expected(number)
    assert len(said) == len(names) - 1
    assert said[0].endswith("holds samples for digits, not for faces: set aside as samples.other-1")
    kept = ["samples", *(f"samples.other-{number}" for number in range(1, 8))]
    assert sorted(os.listdir(tmp_path)) == kept, "nothing is deleted that nobody asked for"


def test_the_file_does_not_grow_with_what_passes_through(tmp_path: Path) -> None:
    store = disk(tmp_path, capacity=10)
    big = np.ones((1, 3000), dtype=np.float32)
    for key in range(100):
        assert store.swap([key - 10], [key], big * key, [0])
        store.commit()
        assert (tmp_path / "samples").stat().st_size < 2 * 10 * big.nbytes + 70_000
    again = disk(tmp_path, capacity=10)
    assert again.keys.tolist() == list(range(90, 100))
    assert again.read()[0][:, 0].tolist() == list(range(90, 100))
    assert os.listdir(tmp_path) == ["samples"]


def test_samples_of_another_shape_may_follow_once_the_store_is_empty(tmp_path: Path) -> None:
    store = disk(tmp_path)
    put(store, 1)
    store.commit()
    store.retain([])
    assert store.swap([], [2], np.ones((1, 2, 2), np.uint8), [0])
    store.commit()
    assert disk(tmp_path).read()[0].shape == (1, 2, 2)


def test_on_a_full_disk_what_is_stored_stays(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk(tmp_path)
    put(store, 1, 2)
    store.memo = {"seen": 2}
    store.commit()
    connect = sqlite3.connect

    def without_room(path: Path, **options: Any) -> sqlite3.Connection:
        file = connect(path, **options)
        file.execute("PRAGMA max_page_count = 1")  # it cannot grow
        return file

    monkeypatch.setattr(sqlite3, "connect", without_room)
    store.retain([1])
    assert store.swap([], [7], np.ones((1, 3), dtype=np.float32), [0])
    store.memo = {"seen": np.zeros(9000)}
    store.commit()
    assert said == [f"{tmp_path}/samples: disk full: stored samples stay, new ones are dropped"]
    assert content(disk(tmp_path)) == expected(1, 2)
    assert disk(tmp_path).memo == {"seen": 2}
    monkeypatch.undo()
    store.memo = {"seen": 7}
    store.commit()  # as soon as there is room
    again = disk(tmp_path)
    assert (again.keys.tolist(), again.memo) == ([1, 7], {"seen": 7})


def test_other_trouble_with_the_disk_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(sqlite3.connect, timeout=0.1)  # it is 5 seconds
    monkeypatch.setattr(sqlite3, "connect", impatient)
    store = disk(tmp_path)
    put(store, 1)
    store.commit()
    put(store, 2)
    with closing(sqlite3.connect(tmp_path / "samples")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match="samples: database is locked"):
            store.commit()
    assert content(disk(tmp_path)) == expected(1)
    (tmp_path / "folder" / "samples").mkdir(parents=True)
    with pytest.raises(OSError, match="unable to open"):
        disk(tmp_path / "folder")


WRITER = """
import sys, numpy as np
from pathlib import Path
from forager.client_app.device.sample_store import DiskStore
store = DiskStore(Path(sys.argv[1]), "digits", 20)
for key in range(100000):
    x = np.full((1, 2000), key, dtype=np.float32)
    store.swap([key - 20], [key], x, [key % 3])
    store.commit()
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
    held = store.keys.tolist()
    assert len(held) == 20
    assert held[-1] in (last, last + 1)
    assert held == list(range(held[-1] - 19, held[-1] + 1))


def test_a_write_that_was_cut_off_anywhere_is_taken_back(tmp_path: Path) -> None:
    """What a power cut leaves: the journal, and a file of which any part may be new."""
    store = disk(tmp_path, capacity=3)
    put(store, 1, 2, 3)
    store.commit()
    old, path = (tmp_path / "samples").read_bytes(), tmp_path / "samples"
    journal = _journal_of_a_change(tmp_path / "writer", old)
    put(store, 7, 8, evicted=[1, 2])
    store.commit()
    new = path.read_bytes()
    for cut in range(0, len(new) + 1, 512):
        path.write_bytes(new[:cut] + old[cut:])
        (tmp_path / "samples-journal").write_bytes(journal)
        again = disk(tmp_path, capacity=3)
        assert content(again) == expected(1, 2, 3), cut
        assert os.listdir(tmp_path).count("samples-journal") == 0


def _journal_of_a_change(folder: Path, old: bytes) -> bytes:
    """Return the journal as it is on the disk just before a change of every page is committed."""
    folder.mkdir()
    (folder / "samples").write_bytes(old)
    with closing(sqlite3.connect(folder / "samples", isolation_level=None)) as file:
        file.execute("PRAGMA cache_size = 1")  # so that it is written before the commit
        file.execute("BEGIN IMMEDIATE")
        file.execute("UPDATE samples SET label = label + 1")
        file.execute("UPDATE about SET value = zeroblob(20000)")
        file.execute("CREATE TABLE other (number)")
        journal = (folder / "samples-journal").read_bytes()
        file.execute("ROLLBACK")
    return journal
