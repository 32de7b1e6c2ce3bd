"""Devices with streams: what the node config says, and what survives a crash or an absence."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.client_app.device.sample_file import SampleFile
from forager.core.config import default_config, read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.tasks.streams.folder import FolderStream
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, CONFIG, ESTIMATE, INGEST, PLAN, ROUND

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
TASK = load_task(read_config({"data-selector": "ode-balanced"}).task_spec())
MODEL = read_arrays(TASK.build_model())
DATA = TASK.client_data(0, 4).train


def told(home: Path, node: dict[str, Any], number: int, kind: str = INGEST, **config: Any) -> Any:
    """Return what a device says of its stream; the text of the error if it fails."""
    run = {**default_config(), "data-selector": "ode-balanced", "stream.capacity": 6, **config}
    where = {"partition-id": 0, "num-partitions": 4, "state-dir": str(home / "state")}
    content = RecordDict({CONFIG: ConfigRecord({ROUND: number})})
    if kind == "train":
        content[ARRAYS] = to_record(MODEL)
    message = Message(content, dst_node_id=7, message_type=kind)
    settings = {key: value for key, value in {**where, **node}.items() if value is not None}
    reply = answer_one(message, Context(1, 7, settings, RecordDict(), run))
    return reply.error.reason if reply.has_error() else reply.content


def fill(folder: Path, name: str, rows: slice) -> None:
    folder.mkdir(exist_ok=True)
    part = folder / f".{name}"
    with part.open("wb") as file:
        np.savez(file, x=DATA.x[rows].numpy(), y=DATA.y[rows].numpy())
    os.utime(part, (1, 1 + rows.start))  # written long ago
    part.rename(folder / name)


def counting(start: int) -> Any:
    """A source of one's own that can give a sample only once."""
    return ((np.full((8, 8), number / 40), number % 2) for number in range(start, 20))


def test_a_device_says_how_fast_labels_come_before_it_has_a_model(tmp_path: Path) -> None:
    node = {"stream-path": str(tmp_path / "in")}
    assert not sum(told(tmp_path, node, 1)[PLAN]["velocity"])
    fill(tmp_path / "in", "a.npz", slice(0, 20))
    profile = told(tmp_path, node, 2)[PLAN]
    assert sum(profile["velocity"]) == pytest.approx(20 / 2, rel=0.05)
    assert profile["arrived"] == 0  # counted, not taken
    after = told(tmp_path, node, 2, "train")[PLAN]
    assert list(after["velocity"]) == pytest.approx(list(profile["velocity"]))
    assert after["arrived"] == 20


def test_so_does_a_source_of_ones_own_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    node = {"stream-source": f"{__name__}:counting"}
    profile = told(tmp_path, node, 1)[PLAN]
    assert list(profile["velocity"][:2]) == [10, 10]
    assert profile["arrived"] == 20
    assert sum(profile["stored"]) == 6
    trained = told(tmp_path, node, 1, "train")
    assert trained[PLAN]["arrived"] == 20
    assert sum(trained[PLAN]["stored"]) == 6
    assert trained[ESTIMATE]["estimate"].numpy().any()  # of what was kept by lot
    slow = {**node, "stream-velocity": 1.5}
    assert told(tmp_path / "slow", slow, 2)[PLAN]["arrived"] == 3


def test_a_device_has_a_room_of_its_own(tmp_path: Path) -> None:
    fill(tmp_path / "in", "a.npz", slice(0, 40))
    node: dict[str, Any] = {"stream-path": str(tmp_path / "in"), "stream-capacity": 12}
    profile = told(tmp_path, node, 1, "train")[PLAN]
    assert sum(profile["stored"]) == profile["capacity"] == 12
    node["stream-capacity-bytes"] = 4 * 64 * 4 + 3
    profile = told(tmp_path, node, 2, "train")[PLAN]
    assert sum(profile["stored"]) == profile["capacity"] == 4


def test_folders_have_names_and_contacts_limits(tmp_path: Path) -> None:
    names = [f"digit {number}" for number in range(10)]
    for name in ("digit 3", "digit 5"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(4):
            np.save(tmp_path / "in" / name / f"{number}.npy", np.full((8, 8), number))
    node = {
        "stream-path": str(tmp_path / "in"),
        "stream-classes": ", ".join(names),
        "stream-limit": 5,
        "stream-settle": 0.0,
    }
    profile = told(tmp_path, node, 1, "train")[PLAN]
    assert profile["arrived"] == 5
    assert sum(profile["stored"][n] for n in (3, 5)) == sum(profile["stored"]) == 5


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"stream-capacity": 0}, "stream-capacity = 0 .*a whole number of at least 1"),
        ({"stream-capacity": "9"}, "stream-capacity = '9' .*a whole number"),
        ({"stream-capacity-bytes": 255}, "stream-capacity-bytes = 255 .*at least 256"),
        ({"stream-limit": 0}, "stream-limit = 0 .*a whole number of at least 1"),
        ({"stream-settle": -1.0}, "stream-settle = -1.0 .*a finite number of at least 0"),
        ({"stream-settle": "soon"}, "stream-settle = 'soon' .*a finite number"),
        ({"stream-classes": "cat,dog"}, "stream-classes = 'cat,dog' .*10 different names"),
        ({"stream-velocity": 2}, "stream-velocity = 2 .*together with stream-source"),
        ({"stream-read": "burn"}, 'stream-read = \'burn\' .*"keep", "delete" or "move:'),
        ({"stream-read": "delete", "state-dir": None}, "stream-read = 'delete' .*state-dir"),
        ({"stream-capcity": 5}, "'stream-capcity' is not known: .*did you mean 'stream-capacity'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_bad_node_config_says_what_is_allowed(
    tmp_path: Path, node: dict[str, Any], message: str
) -> None:
    reason = told(tmp_path, {"stream-path": str(tmp_path / "in"), **node}, 1, "train")
    with pytest.raises(ValueError, match=f"node config: {message}"):
        raise ValueError(reason)


def test_files_go_only_when_the_store_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {"stream-path": str(tmp_path / "in"), "stream-read": f"move:{tmp_path / 'read'}"}
    fill(tmp_path / "in", "a.npz", slice(0, 20))
    told(tmp_path, node, 1)
    assert (tmp_path / "in" / "a.npz").exists()  # only counted
    with monkeypatch.context() as patch:
        patch.setattr("forager.client_app.device.sample_file.SampleFile.write", lambda *_: False)
        told(tmp_path, node, 1, "train")
    assert (tmp_path / "in" / "a.npz").exists()  # the disk is full
    assert told(tmp_path, node, 2, "train")[PLAN]["arrived"] == 20
    assert not (tmp_path / "in" / "a.npz").exists()
    assert (tmp_path / "read" / "a.npz").exists()


def contact(home: Path, number: int, killed: str = "") -> tuple[int, int]:
    """Let a device answer in a process of its own, which may be killed while it stores.

    Returns what is stored and how many have arrived; nothing if it was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _die_at(killed)
        node = {"stream-path": str(home / "in"), "stream-read": "delete", "stream-capacity": 8}
        profile = told(home, node, number, "train", **{"data-selector": "reservoir"})[PLAN]
        os.write(writer, f"{sum(profile['stored'])} {profile['arrived']}".encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        words = said.read().split()
    assert status == (signal.SIGKILL if killed else 0), status
    return (0, 0) if killed else (int(words[0]), int(words[1]))


def _die_at(point: str) -> None:
    """Let this process be killed before, within or after the commit of its samples."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    write = SampleFile._write
    if point == "before":
        SampleFile.write = die  # type: ignore[assignment, method-assign]
    elif point == "within":
        SampleFile._write = lambda *a: (write(*a), die())[0]  # type: ignore[method-assign]
    elif point == "after":
        FolderStream.release = die  # type: ignore[method-assign]


def story(home: Path) -> None:
    """Fill a folder, kill the device while it stores, let it be away for ten rounds."""
    came = home / "in"
    fill(came, "1.npz", slice(10, 20))
    assert contact(home, 1) == (8, 10)
    assert not list(came.iterdir())
    for number, point in enumerate(("before", "within", "after"), 2):
        fill(came, f"{number}.npz", slice(10 * number, 10 * number + 10))
        contact(home, number, killed=point)
        assert len(list(came.iterdir())) == 1  # it is there until the samples are safe
        assert contact(home, number) == (8, 10 * number)  # each file counts once
        assert not list(came.iterdir())
    for number in range(5, 15):
        fill(came, f"{number}.npz", slice(10 * number, 10 * number + 10))
    assert contact(home, 15) == (8, 140)
    assert not list(came.iterdir())


def test_a_device_that_is_killed_and_away_loses_nothing_and_keeps_its_limits(
    tmp_path: Path,
) -> None:
    # A process that has imported everything, and has no threads yet, forks the device's.
    program = "import sys, pathlib, test_stream_devices as t; t.story(pathlib.Path(sys.argv[1]))"
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
