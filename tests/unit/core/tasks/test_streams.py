import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.storage import tree
from forager.core.tasks.errors import SayableError, TaskError
from forager.core.tasks.streams.arrivals import LabelRates
from forager.core.tasks.streams.sample_files import AfterReading
from forager.core.tasks.streams.sources import FolderStream, OwnStream, PartitionStream
from PIL import Image

SIZE = 40
X = np.arange(SIZE * 3, dtype=np.float32).reshape(SIZE, 3)
Y = np.repeat(np.arange(4), 10)


def partition(velocity: float = 5.0, **options: Any) -> PartitionStream:
    return PartitionStream(X, Y, velocity, **options)


def keys(stream: Any, *rounds: int) -> list[list[int]]:
    return [stream.arrivals(number).keys.tolist() for number in rounds]


def joined(stream: Any, *rounds: int) -> list[int]:
    return [key for arrived in keys(stream, *rounds) for key in arrived]


def saved(stream: Any) -> dict[str, Any]:
    return tree.from_bytes(tree.to_bytes(stream.state_dict(), "t"), "t")


def test_every_pass_has_every_sample_once_in_a_new_order() -> None:
    flat = joined(partition(), *range(1, 25))
    passes = [flat[start : start + SIZE] for start in range(0, 3 * SIZE, SIZE)]
    assert all(sorted(one) == list(range(SIZE)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3
    assert flat == joined(partition(), *range(1, 25))
    assert flat != joined(partition(seed=1), *range(1, 25))
    assert flat != joined(partition(partition_id=1), *range(1, 25))


def test_arrivals_carry_their_inputs_and_labels() -> None:
    arrived = partition().arrivals(4)
    assert (arrived.x == X[arrived.keys]).all()
    assert (arrived.y == Y[arrived.keys]).all()
    assert (arrived.x.dtype, arrived.y.dtype, arrived.keys.dtype) == ("f4", "i8", "i8")


def test_how_often_the_client_is_asked_does_not_matter() -> None:
    often, seldom = partition(0.3), partition(0.3)
    assert joined(often, *range(1, 31)) == joined(seldom, 7, 30)
    assert len(joined(partition(0.1), *range(1, 101))) == 10  # parts add up
    assert 0.29 * 100 < 29 == len(joined(partition(0.29), 100))
    assert keys(often, 30) == [[]]


def test_after_a_long_absence_no_more_than_the_latest_pass_comes() -> None:
    stream, steady = partition(), partition()
    late = keys(stream, 10**9 + 3)[0]
    assert len(late) == SIZE
    assert len(keys(stream, 10**9 + 4)[0]) == 5
    assert keys(steady, 19)[0] == joined(partition(), *range(1, 20))[-SIZE:]


def test_a_restart_goes_on_where_it_was_and_a_new_run_too() -> None:
    whole, first = partition(1.7), partition(1.7)
    expected = joined(whole, *range(1, 41))
    before = joined(first, 3, 20)
    second = partition(1.7)
    second.load_state_dict(saved(first))
    again = joined(second, *range(1, 21))  # the rounds count from 1 again
    assert before + again == expected
    faster = partition(3.0)
    faster.load_state_dict(saved(first))
    assert len(keys(faster, 22)[0]) == 6


def test_without_drift_classes_are_mixed_with_it_they_take_turns() -> None:
    def changes(drift: float) -> int:
        labels = np.concatenate([partition(drift=drift).arrivals(8).y])
        return int((np.diff(labels) != 0).sum())

    assert changes(1.0) == 3
    assert 3 < changes(0.8) < changes(0.0)
    stream = partition(drift=1.0)
    assert sorted(stream.arrivals(8).keys.tolist()) == list(range(SIZE))
    turns = [list(dict.fromkeys(stream.arrivals(8 * n).y.tolist())) for n in range(2, 8)]
    assert len({tuple(turn) for turn in turns}) > 1  # another order every pass


def test_the_velocity_of_labels_follows_the_drift() -> None:
    assert partition().label_velocity(6).tolist() == [1.25] * 4 + [0, 0]
    stream = partition(0.2, drift=1.0)
    assert stream.label_velocity(4).tolist() == [0.05] * 4  # nothing seen: the partition's own
    now = stream.arrivals(50).y
    assert len(set(now.tolist())) == 1
    expected = [0.2 if label == now[0] else 0.0 for label in range(4)]
    assert stream.label_velocity(4) == pytest.approx(expected)
    stream.arrivals(100)
    assert stream.label_velocity(4) != pytest.approx(expected)


def test_an_empty_stream_gives_nothing() -> None:
    empty = PartitionStream(np.zeros((0, 3)), np.zeros(0), 5.0, drift=0.5)
    assert empty.arrivals(100).x.shape == (0, 3)
    assert empty.label_velocity(2).tolist() == [0, 0]
    assert keys(partition(0.0), 1000) == [[]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"velocity": -1.0}, "velocity = -1.0 is not allowed"),
        ({"velocity": float("nan")}, "velocity = nan is not allowed"),
        ({"drift": 1.5}, r"drift = 1.5 is not allowed: use a number in \[0, 1\]"),
    ],
)
def test_options_out_of_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        partition(**options)


def test_rates_forget_what_is_long_ago() -> None:
    rates = LabelRates()
    for _ in range(300):
        rates.observe(np.array([0, 0]), rounds=1)
    for _ in range(300):
        rates.observe(np.array([3] * 10), rounds=5)
    assert rates.per_round(4) == pytest.approx([0, 0, 0, 2.0], abs=0.02)
    assert rates.per_round(1).shape == (1,)


# A folder that fills up


def folder_stream(folder: Path, **options: Any) -> FolderStream:
    return FolderStream(
        folder, **({"input_shape": (3,), "num_classes": 3, "settle": 0.0} | options)
    )


def write(path: Path, array: Any, **arrays: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        Image.fromarray(array).save(path)
    write.clock += 1  # type: ignore[attr-defined]
    os.utime(path, (0, write.clock))  # type: ignore[attr-defined]


write.clock = 1e9  # type: ignore[attr-defined]


def test_files_are_read_once_in_the_order_of_writing(tmp_path: Path) -> None:
    stream = folder_stream(tmp_path)
    write(tmp_path / "z.npz", None, x=np.full((2, 3), 0.5), y=[2, 1])
    write(tmp_path / "0" / "a.npy", np.arange(3))
    write(tmp_path / "1" / "many.npy", np.ones((4, 3)))
    arrived = stream.arrivals(1)
    assert arrived.y.tolist() == [2, 1, 0, 1, 1, 1, 1]
    assert len(set(arrived.keys.tolist())) == 4  # the last four are copies of one
    assert arrived.x[:3].tolist() == [[0.5] * 3, [0.5] * 3, [0, 1, 2]]
    write(tmp_path / "2" / "b.npy", np.arange(3))
    assert stream.arrivals(2).y.tolist() == [2]
    again = folder_stream(tmp_path)
    again.load_state_dict(saved(stream))
    assert len(again.arrivals(3).y) == 0
    write(tmp_path / "2" / "b.npy", np.zeros(3))  # replaced: that is another sample
    new = again.arrivals(4)
    assert new.x.tolist() == [[0, 0, 0]]
    assert new.keys[0] not in arrived.keys
    write(tmp_path / "copy.npz", None, x=np.full((2, 3), 0.5), y=[2, 1])  # the same samples again
    assert again.arrivals(5).keys.tolist() == arrived.keys[:2].tolist()


def test_images_become_what_the_model_takes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grey, colour = rng.integers(0, 256, (4, 5)), rng.integers(0, 256, (4, 5, 3))
    write(tmp_path / "cat" / "a.png", grey.astype(np.uint8))
    write(tmp_path / "cat" / "b.npy", grey.astype(np.uint8))
    options = {"num_classes": 2, "classes": ["dog", "cat"]}
    arrived = folder_stream(tmp_path, input_shape=(1, 4, 5), **options).arrivals(1)
    assert arrived.x == pytest.approx(np.stack([grey[None] / 255] * 2), abs=1e-6)
    assert arrived.y.tolist() == [1, 1]
    write(tmp_path / "dog" / "c.bmp", colour.astype(np.uint8))
    write(tmp_path / "dog" / "d.npy", colour.astype(np.uint8))
    arrived = folder_stream(tmp_path, input_shape=(3, 4, 5), **options).arrivals(1)
    assert arrived.x[-1] == pytest.approx(np.moveaxis(colour, 2, 0) / 255, abs=1e-6)
    assert arrived.x[-2].tolist() == arrived.x[-1].tolist()


@pytest.mark.parametrize("name", ["a.npz", "1/a.npy", "1/a.png", "1/a.jpg"])
def test_half_written_files_are_left_for_later(tmp_path: Path, name: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 30), dtype=np.uint8)
    write(tmp_path / name, pixels, x=pixels[None], y=[1])
    whole = (tmp_path / name).read_bytes()
    stream = folder_stream(tmp_path, input_shape=(1, 30, 30))
    for share in (0.0, 0.1, 0.5, 0.9):
        (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
        os.utime(tmp_path / name, (0, share))
        assert len(stream.arrivals(1).y) == 0
        assert len(stream.arrivals(1).y) == 0
    (tmp_path / name).write_bytes(whole)
    assert stream.arrivals(2).y.tolist() == [1]
    assert len(stream.arrivals(3).y) == 0


def test_a_file_must_have_been_left_alone_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "0" / "a.npy"
    write(path, np.ones(3))
    stream = folder_stream(tmp_path, settle=60.0)
    os.utime(path, (0, time.time() - 5))
    assert len(stream.arrivals(1).y) == 0
    os.utime(path, (0, time.time() - 70))
    assert len(stream.arrivals(1).y) == 1
    write(tmp_path / "0" / "future.npy", np.ones(3))
    os.utime(tmp_path / "0" / "future.npy", (0, time.time() + 9999))
    assert len(stream.arrivals(1).y) == 1


def test_what_is_no_use_is_left_out_and_said(tmp_path: Path, said: list[str]) -> None:
    bad = np.array([[1, 2, 3], [1, np.nan, 3], [4, 5, 6], [np.inf, 0, 0]])
    write(tmp_path / "a.npz", None, x=bad, y=[0, 1, 7, 2])
    write(tmp_path / "unknown" / "b.npy", np.ones(3))
    write(tmp_path / "0" / "c.npy", np.ones(5))
    write(tmp_path / "e.npz", None, x=np.ones((2, 3)), y=[0.5, 1.0])
    write(tmp_path / "f.npz", None, other=np.ones(3))
    write(tmp_path / "0" / ".hidden.npy", np.ones(3))
    stream = folder_stream(tmp_path)
    arrived = stream.arrivals(1)
    assert (arrived.x.tolist(), arrived.y.tolist()) == ([[1, 2, 3]], [0])
    assert "3 of 4 samples left out" in said[-1]
    assert "its folder must be named for one of 0, 1, 2" in said[0]
    assert "samples of shape (5,) do not fit: the task has (3,)" in " ".join(said)
    count = len(said)
    assert len(stream.arrivals(2).y) == 0
    assert len(said) == count  # said once


def test_a_contact_takes_no_more_than_its_limit(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / "1" / f"{number}.npy", np.full((2, 3), number))
    stream = folder_stream(tmp_path, limit=5)
    assert [len(stream.arrivals(n).y) for n in (1, 2, 3)] == [6, 6, 0]
    assert stream.label_velocity(3) == pytest.approx([0, 4, 0], abs=0.1)


def test_a_folder_that_is_not_there_gives_nothing_and_forgets_nothing(tmp_path: Path) -> None:
    stream = folder_stream(tmp_path / "usb")
    assert stream.arrivals(1).x.shape == (0, 3)
    (tmp_path / "usb").mkdir()
    write(tmp_path / "usb" / "0" / "a.npy", np.ones(3))
    assert len(stream.arrivals(1).y) == 1
    (tmp_path / "usb").rename(tmp_path / "pulled")
    assert len(stream.arrivals(2).y) == 0
    (tmp_path / "pulled").rename(tmp_path / "usb")
    assert len(stream.arrivals(3).y) == 0


# One's own source


def endless(start: int) -> Iterator[tuple[list[float], int]]:
    number = start
    while True:
        yield [float(number), 0.0], number % 3
        number += 1


def numbers(stream: OwnStream, *rounds: int) -> list[list[float]]:
    """Return the first entry of what arrived by each round."""
    return [stream.arrivals(number).x[:, 0].tolist() for number in rounds]


def test_an_own_source_is_read_on_from_where_it_was() -> None:
    stream = OwnStream(endless, (2,), 3, velocity=1.5)
    assert numbers(stream, 1, 2, 3) == [[0], [1, 2], [3]]
    again = OwnStream(endless, (2,), 3, velocity=1.5)
    again.load_state_dict(saved(stream))
    arrived = again.arrivals(7)
    assert arrived.x[:, 0].tolist() == [4, 5, 6, 7, 8, 9]
    assert len(set(arrived.keys.tolist())) == 6
    assert arrived.y.tolist() == [1, 2, 0, 1, 2, 0]
    assert numbers(OwnStream(endless, (2,), 3, limit=4), 1, 1) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert again.label_velocity(3).sum() == pytest.approx(1.5, abs=0.2)


def test_an_own_source_is_found_by_name() -> None:
    stream = OwnStream("test_streams:endless", (2,), 3, limit=2)
    assert numbers(stream, 1) == [[0, 1]]
    for name, message in (
        ("nowhere", "source = 'nowhere' is not allowed: use module:attribute"),
        ("no_such_module:f", "source = 'no_such_module:f' cannot be imported"),
        ("test_streams:SIZE", "use the name of a function"),
    ):
        with pytest.raises(TaskError, match=message):
            OwnStream(name, (2,), 3)


def test_what_an_own_source_gives_is_checked(said: list[str]) -> None:
    def some(start: int) -> Any:
        return iter([([np.nan, 0.0], 0), ([1.0, 1.0], 1), ([1.0, 1.0], 9)][start:])

    stream = OwnStream(some, (2,), 3)
    assert numbers(stream, 1, 2) == [[1], []]
    assert "some: 2 of 3 samples left out" in said[0]
    for pairs, message in (
        ([([1.0], 0)], r"must give pairs of an input and a label: samples of shape \(1,\)"),
        ([([1.0, 2.0], 0.5)], "must give pairs"),
        ([3], "must give pairs"),
        (None, "stream source 'odd' failed"),
    ):

        def odd(start: int, pairs: Any = pairs) -> Any:
            return iter(pairs)

        with pytest.raises(TaskError, match=message):
            OwnStream(odd, (2,), 3).arrivals(1)


# What a folder says before it is read, and what becomes of files after


def test_labels_are_counted_without_reading_samples(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", None, x=np.zeros((3, 3)), y=[0, 0, 2])
    write(tmp_path / "1" / "one.npy", np.ones(3))
    write(tmp_path / "1" / "many.npy", np.ones((4, 3)))
    write(tmp_path / "2" / "a.png", np.ones((1, 3), dtype=np.uint8))
    write(tmp_path / "unknown" / "b.npy", np.ones(3))
    (tmp_path / "2" / "broken.npy").write_bytes(b"half a file")
    stream = folder_stream(tmp_path, input_shape=(3,))
    stream.survey(1)
    assert stream.label_velocity(3).tolist() == [2, 5, 2]
    stream.survey(4)  # the same files, in more rounds; nothing was taken
    assert stream.label_velocity(3) == pytest.approx([0.5, 1.25, 0.5], abs=0.05)
    assert len(stream.arrivals(1).y) == 9
    assert stream.label_velocity(3).tolist() == [2, 5, 2]
    stream.survey(1)
    assert stream.label_velocity(3).tolist() == [2, 5, 2]


def test_a_folder_that_has_long_been_filling_is_not_a_fast_one(tmp_path: Path) -> None:
    now = time.time()
    for number in range(120):  # one a minute for two hours
        write(tmp_path / "1" / f"{number}.npy", np.full(3, number))
        os.utime(tmp_path / "1" / f"{number}.npy", (0, now - 60 * number - 10))
    stream = folder_stream(tmp_path)
    stream.survey(1)
    assert stream.label_velocity(3)[1] == pytest.approx(1, rel=0.02)
    assert len(stream.arrivals(1).y) == 120
    assert stream.label_velocity(3)[1] == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("policy", ["keep", "delete", "move"])
def test_files_that_were_read_go_where_they_should(tmp_path: Path, policy: str) -> None:
    origin, other = tmp_path / "in", tmp_path / "read"
    origin.mkdir()
    after = AfterReading.of(f"move:{other}" if policy == "move" else policy, origin)
    write(origin / "1" / "a.npy", np.ones(3))
    write(origin / "1" / "broken.npy", np.ones(5))
    stream = folder_stream(origin, after=after)
    assert len(stream.arrivals(1).y) == 1
    again = folder_stream(origin, after=after)
    again.load_state_dict(saved(stream))
    write(origin / "1" / "new.npy", np.zeros(3))
    again.release()  # as after a crash: another process does it
    assert (origin / "1" / "a.npy").exists() == (policy == "keep")
    assert (other / "1" / "a.npy").exists() == (policy == "move")
    assert (origin / "1" / "broken.npy").exists()  # it was not read
    assert (origin / "1" / "new.npy").exists()
    write(origin / "1" / "a.npy", np.full(3, 7))  # another one by an old name
    again.release()
    assert (origin / "1" / "a.npy").exists()
    assert len(again.arrivals(2).y) == 2
    again.release()
    assert len(list(other.rglob("*.npy"))) == (3 if policy == "move" else 0)


def test_what_cannot_be_done_with_files_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in" / "done"
    for text, allowed in (
        ("shred", 'use "keep", "delete" or "move:<folder>"'),
        ("move:", 'use "keep"'),
        (1, 'use "keep"'),
        (f"move:{inside}", "use a folder that is not inside stream-path"),
    ):
        with pytest.raises(SayableError, match=f"node config: stream-read = .*{allowed}"):
            AfterReading.of(text, tmp_path / "in")
