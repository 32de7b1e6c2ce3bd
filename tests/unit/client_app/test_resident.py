"""The worker that stays between messages: same answers, one process, gone when it should be."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import app
from forager.client_app.device import resident
from forager.client_app.device.resident import connected
from forager.client_app.device.state import ClientState
from forager.core.config import default_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks.models import build_model
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.changes import BASE, CHANGE, TAG, encode_shortest, tag_of
from forager.core.wire.keys import ARRAYS, CONFIG, ROUND
from forager.tools.flower.env import PROJECT
from forager.tools.flower.processes import process_table

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the worker is for Linux"),
    pytest.mark.timeout(180),
]
RUN: dict[str, Any] = {"task": "npz", "data.num-classes": 3, "local-steps": 3, "seed": 4}


def write_data(path: Path, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    np.savez(path, x_train=rng.normal(size=(30, 4)).astype(np.float32), y_train=np.arange(30) % 3)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Callable[..., Context]]:
    """Contexts of a device with data of its own; its workers are killed after the test."""
    write_data(tmp_path / "own.npz")

    def context(**more: Any) -> Context:
        node = {"client-id": "camera", "data-path": str(tmp_path / "own.npz")}
        node |= {"state-dir": str(tmp_path / "state"), "resident-seconds": 60, **more}
        return Context(1, 7, node, RecordDict(), default_config() | RUN)

    yield context
    for pid in workers(tmp_path):
        os.kill(pid, signal.SIGKILL)


def workers(folder: Path) -> list[int]:
    """The living workers that listen below a folder."""
    found = []
    for process in process_table():
        command = Path("/proc", str(process.pid), "cmdline")
        try:
            words = command.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if (
            "forager.client_app.device.resident_worker" in words
            and process.state != "Z"
            and str(folder) in "".join(words)
        ):
            found.append(process.pid)
    return found


def training(round_number: int = 1, **more: Any) -> Message:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    arrays = read_arrays(build_model("softmax", (4,), 3, seed=0))
    content = RecordDict(
        {ARRAYS: to_record(arrays), CONFIG: ConfigRecord({ROUND: round_number, **more})}
    )
    message = Message(content, dst_node_id=7, message_type="train")
    message.metadata.__dict__["_message_id"] = f"message-{round_number}"
    return message


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_answers_as_the_process_itself_would_and_stays(
    device: Callable[..., Context], tmp_path: Path
) -> None:
    alone = device(**{"resident-seconds": 0, "state-dir": str(tmp_path / "other")})
    seen = set()
    for number in (1, 2):
        reply = app(training(number), device())
        wanted = app(training(number), alone)
        assert reply.metadata.reply_to_message_id == f"message-{number}"
        got, expected = (from_record(r.content.array_records[ARRAYS]) for r in (reply, wanted))
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array)
        seen.update(workers(tmp_path))
    assert len(seen) == 1
    path = resident.socket_path(device())
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_the_device_remembers_goes_to_and_fro(device: Callable[..., Context]) -> None:
    """Error feedback keeps a residual in the state; the context's own records survive too."""
    context = device()
    context.run_config = (
        default_config()
        | RUN
        | {
            "uplink": "top-k",
        }
    )
    context.state["mine"] = ConfigRecord({"a": 1})
    reply = app(training(1, **{"uplink-density": 0.3, "uplink-values": "float32"}), context)
    assert "sparse" in reply.content
    assert context.state["mine"] == ConfigRecord({"a": 1})
    assert "residual" in ClientState(context)


def test_a_model_that_came_whole_is_changed_by_the_next_message(
    device: Callable[..., Context], tmp_path: Path
) -> None:
    context, first, second = device(), training(1), training(2)
    before = from_record(first.content.array_records[ARRAYS])
    after = {name: array + np.float32(0.001) for name, array in before.items()}
    first.content.config_records[CONFIG][TAG] = tag_of(before)
    assert app(first, context).has_content()
    alone = device(**{"resident-seconds": 0, "state-dir": str(tmp_path / "other")})
    second.content[ARRAYS] = to_record(after)
    wanted = from_record(app(second, alone).content.array_records[ARRAYS])
    short = training(2)
    del short.content[ARRAYS]
    change = encode_shortest(before, after)
    short.content[CONFIG].update({TAG: tag_of(after), BASE: tag_of(before), CHANGE: change})
    reply = app(short, context)
    assert tag_of(from_record(reply.content.array_records[ARRAYS])) == tag_of(wanted)
    assert len(workers(tmp_path)) == 1


def test_a_worker_is_replaced_when_data_change_and_when_it_was_killed(
    device: Callable[..., Context], tmp_path: Path
) -> None:
    first = app(training(), device())
    (old,) = workers(tmp_path)
    write_data(tmp_path / "own.npz", seed=1)
    second = app(training(), device())
    before, after = (from_record(r.content.array_records[ARRAYS]) for r in (first, second))
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    wait_until(lambda: old not in workers(tmp_path))
    (pid,) = workers(tmp_path)
    os.kill(pid, signal.SIGKILL)
    assert resident.socket_path(device()).exists(), "what it left behind is in nobody's way"
    assert app(training(), device()).has_content()
    assert len(workers(tmp_path)) == 1


def test_an_answer_that_breaks_off_is_not_computed_twice(
    device: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    Connection(os.dup(theirs.fileno())).send_bytes(resident.ACCEPTED)
    theirs.shutdown(socket.SHUT_WR)
    monkeypatch.setattr(resident, "_connect", lambda context: Connection(ours.detach()))
    reply = app(training(), device())
    assert reply.has_error()
    assert "ended while it was at work" in reply.error.reason


def test_without_a_worker_the_process_answers_by_itself(
    device: Callable[..., Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert app(training(), device()).has_content()
    assert workers(tmp_path) == []


def test_it_ends_with_its_supernode_and_when_idle(
    device: Callable[..., Context], tmp_path: Path
) -> None:
    app(training(), device(**{"resident-seconds": 1}))
    wait_until(lambda: workers(tmp_path) == [])
    assert not resident.socket_path(device()).exists()

    # A parent that starts a worker as a SuperNode's child would, and is then killed.
    script = (
        "import os, sys, time, subprocess\n"
        "fd = os.pidfd_open(os.getpid())\n"
        "worker = 'forager.client_app.device.resident_worker'\n"
        "arguments = [sys.executable, '-m', worker, sys.argv[1], 'v', str(fd), '600']\n"
        "subprocess.Popen(arguments, pass_fds=[fd])\n"
        "time.sleep(600)\n"
    )
    path = tmp_path / "state" / "other.sock"
    supernode = subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=PROJECT)
    wait_until(path.exists, 60)
    assert len(workers(tmp_path)) == 1
    supernode.kill()
    supernode.wait()
    wait_until(lambda: workers(tmp_path) == [])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"resident-seconds": "long"}, "resident-seconds = 'long': expected 0 to 86400"),
        ({"resident-seconds": -1}, "resident-seconds = -1"),
        ({"resident-seconds": 60, "state-dir": ""}, "needs a state-dir"),
    ],
)
def test_settings_that_make_no_sense(
    device: Callable[..., Context], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        resident.idle_seconds(device(**more))


def test_another_user_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
        assert connected(ours) is None
        assert theirs.recv(1) == b""  # hung up on


def test_a_device_with_a_state_dir_has_a_worker_unless_it_says_otherwise(
    device: Callable[..., Context],
) -> None:
    node = device().node_config
    node.pop("resident-seconds")
    context = Context(1, 7, node, RecordDict(), default_config() | RUN)
    assert resident.idle_seconds(context) == 600
    assert resident.idle_seconds(device(**{"resident-seconds": 0})) == 0
    node.pop("state-dir")
    assert resident.idle_seconds(context) == 0


def test_a_device_writes_one_line_per_message(
    device: Callable[..., Context],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)  # another test's: this is a device
    app(training(3), device(**{"resident-seconds": 0}))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"camera: round 3: train, 30 samples, loss \d\.\d{3}, \d+\.\d s", lines[0])
    app(training(4), device(**{"resident-seconds": 0, "data-path": "/nowhere.npz"}))
    assert "camera: round 4: train failed after" in capsys.readouterr().err
