"""What a device keeps from message to message, and from run to run."""

import multiprocessing
import os
import shutil
import socket
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import _answer_one, answer_one
from forager.client_app.batch import ClientBatch, ClientRow
from forager.client_app.device.file_lock import FileClaim, StateInUseError, hold
from forager.client_app.device.state import ClientState, state_path
from forager.core.config import default_config, read_config
from forager.core.learning.gradients import server_targets
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import (
    ARRAYS,
    ASK_UPDATE,
    CONFIG,
    CONTROL,
    CORESET,
    IDENTIFY,
    INGEST,
    PLAN,
    REFERENCE,
    ROUND,
    SIMILARITY,
    STEPS,
    SUMMARY,
    TARGETS,
    WANTS,
)
from forager.core.wire.requests import Requests
from forager.core.wire.sparse import encode

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
TASK = load_task(read_config({}).task_spec())
MODEL = read_arrays(TASK.build_model())
SIZE = sum(array.size for array in MODEL.values())


class Device:
    """A client that is sent messages; every one finds only what the last has left."""

    def __init__(self, folder: Path | None = None, run: str = "", **config: Any) -> None:
        self.node: dict[str, Any] = {"partition-id": 0, "num-partitions": 4}
        if folder is not None:
            self.node["state-dir"] = str(folder)
        self.run, self.run_id = run, 1
        self.config = default_config() | {k.replace("__", "."): v for k, v in config.items()}
        self.state = RecordDict()

    @property
    def context(self) -> Context:
        return Context(self.run_id, 7, self.node, self.state, self.config)

    def send(self, kind: str, number: int, records: Any = None, **entries: Any) -> Message:
        entries |= {"run": self.run} if self.run else {}
        config = ConfigRecord({ROUND: number, **entries})
        content = RecordDict({CONFIG: config, **(records or {})})
        message = Message(content, dst_node_id=7, message_type=kind)
        context = self.context
        reply = answer_one(message, context)
        self.state = context.state
        return reply

    def train(self, number: int, **records: Any) -> Message:
        reply = self.send("train", number, {ARRAYS: to_record(MODEL), **records})
        assert not reply.has_error(), reply.error
        return reply

    def ask_similarity(self, number: int) -> Message:
        entries = {WANTS: SIMILARITY, REFERENCE: encode(np.ones(SIZE, np.float32), 50)}
        reply = self.send(SUMMARY, number, {ARRAYS: to_record(MODEL)}, **entries)
        assert not reply.has_error(), reply.error
        return reply


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "state" if request.param == "disk" else None


def told(reply: Message) -> Any:
    return reply.content[PLAN]


def targets() -> Any:
    model, data = TASK.build_model(), TASK.server_data().validation
    return to_record({"means": server_targets(model, MODEL, data, True)})


STREAM = {"data-selector": "reservoir", "stream.capacity": 6, "stream.velocity": 3.0}


@pytest.mark.parametrize("rule", ["reservoir", "ode-balanced", "fifo", "high-loss"])
def test_questions_take_nothing_from_what_is_stored(folder: Path | None, rule: str) -> None:
    asked, undisturbed = (
        Device(where, **STREAM | {"data-selector": rule})
        for where in (folder, folder and folder.with_name("other"))
    )
    for device in (asked, undisturbed):
        stored = told(device.train(1))["stored"]
        assert sum(stored) == 6
    for number in range(2, 7):
        asked.ask_similarity(number)
    assert list(told(asked.send(INGEST, 1))["stored"]) == list(stored)
    assert dict(told(asked.train(7))) == dict(told(undisturbed.train(7)))


def test_a_question_that_is_closed_keeps_what_arrived(folder: Path | None) -> None:
    device = Device(folder, **STREAM)
    before = told(device.train(1))["arrived"]
    device.send(ASK_UPDATE, 2, {ARRAYS: to_record(MODEL)}, **{STEPS: 1})
    after = told(device.send(INGEST, 2))
    assert after["arrived"] == before + 3
    assert sum(after["stored"]) == 6


def test_stored_samples_outlive_a_run(folder: Path | None) -> None:
    device = Device(folder, "monday", **STREAM)
    device.train(1)
    first = told(device.train(20))
    device.run = "tuesday"
    second = told(device.train(1))
    assert second["arrived"] == first["arrived"] + 3
    assert sum(second["stored"]) == 6


@pytest.mark.parametrize("rule", ["ode-balanced", "fifo", "high-loss"])
def test_samples_that_one_rule_kept_are_offered_to_the_next(
    folder: Path | None, tmp_path: Path, rule: str
) -> None:
    data, came = TASK.client_data(0, 4).train, tmp_path / "in"
    came.mkdir()
    np.savez(came / "a.npz", x=data.x[:20].numpy(), y=data.y[:20].numpy())
    os.utime(came / "a.npz", (1, 1))  # written long ago
    device = Device(folder, "monday", **STREAM)
    device.node["stream-path"] = str(came)
    stored = told(device.train(1))["stored"]
    assert sum(stored) == 6
    (came / "a.npz").unlink()
    device.config["data-selector"] = rule
    device.run = "tuesday"
    assert list(told(device.train(1))["stored"]) == list(stored)


def test_a_run_starts_without_the_last_ones_coresets(folder: Path | None) -> None:
    device = Device(folder, "monday", strategy="trusted")
    device.train(2, **{TARGETS: targets()})
    assert device.train(3).content[CORESET]["round"] == 2
    device.run = "tuesday"
    assert device.train(1).content[CORESET]["round"] == 0


def test_flowers_run_id_is_the_runs_name_if_it_has_no_other(folder: Path | None) -> None:
    device = Device(folder, strategy="trusted")
    device.train(2, **{TARGETS: targets()})
    device.run_id = 2
    assert device.train(3).content[CORESET]["round"] == 0


def test_a_run_starts_without_the_last_ones_control_variates(folder: Path | None) -> None:
    def change(device: Device, number: int) -> Any:
        control = device.train(number).content.array_records[CONTROL]
        return {name: array.numpy() for name, array in control.items()}

    device, fresh = Device(folder, "monday", strategy="scaffold"), Device(strategy="scaffold")
    expected = change(fresh, 1)
    change(device, 1)
    device.run = "tuesday"
    again = change(device, 1)
    for name, array in expected.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_resumed_run_goes_on_under_another_id_of_flowers(folder: Path | None) -> None:
    device = Device(folder, "monday", strategy="trusted")
    device.train(2, **{TARGETS: targets()})
    device.run_id = 99
    assert device.train(3).content[CORESET]["round"] == 2


def test_a_run_that_goes_back_does_not_see_its_own_future(
    folder: Path | None, said: list[str]
) -> None:
    device = Device(folder, "monday", strategy="trusted")
    device.train(5, **{TARGETS: targets()})
    device.ask_similarity(5)  # a question may follow the training
    assert device.train(6).content[CORESET]["round"] == 5
    assert not said
    assert device.train(4).content[CORESET]["round"] == 0
    assert "its state is from round 6, and this is round 4: it starts afresh" in said[0]


def test_a_round_that_is_done_again_begins_as_it_did_before(tmp_path: Path) -> None:
    device = Device(tmp_path, "monday", strategy="trusted")
    device.train(2, **{TARGETS: targets()})
    for _ in range(2):  # a server that crashes, and goes on with its last checkpoint
        device.train(7, **{TARGETS: targets()})
        assert ClientState(device.context)["coreset"]["round"] == 7
        device.ask_similarity(7)
        assert device.train(7).content[CORESET]["round"] == 2
    assert device.train(8).content[CORESET]["round"] == 2
    assert device.train(2).content[CORESET]["round"] == 0


def test_another_model_is_another_memory(folder: Path | None) -> None:
    device = Device(folder, "monday", strategy="scaffold")
    device.train(1)
    assert "control" in ClientState(device.context)
    device.config["net.hidden"] = 77
    assert dict(row_of(device, "query").state) == {}


def test_only_the_last_runs_stay_on_disk(tmp_path: Path) -> None:
    for number in range(7):
        Device(tmp_path, f"run-{number}", strategy="moon", **{"moon.projection": 0}).train(1)
    assert len(list(tmp_path.glob("*.safetensors"))) == 4
    device = Device(tmp_path, "run-6", strategy="moon", **{"moon.projection": 0})
    assert len(ClientState(device.context)) == 1
    device.train(2)
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_a_damaged_state_is_set_aside_and_the_device_goes_on(
    tmp_path: Path, said: list[str]
) -> None:
    device = Device(tmp_path, "monday", strategy="moon", **{"moon.projection": 0})
    device.train(1)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-9])
    device.train(2)
    device.train(3)
    about_state = [line for line in said if "set aside" in line or "not used" in line]
    assert len(about_state) == 1, "it goes on with what it had before its last training, if any"
    assert about_state[0].endswith(f"set aside as {path.name}.damaged-1")
    assert path.with_name(f"{path.name}.damaged-1").exists()
    assert len(ClientState(device.context)) == 1


@pytest.mark.parametrize("harm", ["cut", "flipped", "foreign"])
def test_damaged_samples_are_set_aside_and_the_device_goes_on(
    tmp_path: Path, said: list[str], harm: str
) -> None:
    device = Device(tmp_path, **STREAM)
    device.train(1)
    (path,) = tmp_path.glob("*.samples")
    data = bytearray(path.read_bytes())
    for place in range(4096, len(data), 100):
        data[place] ^= 0x10
    harmed = {"cut": data[: len(data) // 2], "flipped": data, "foreign": b"PK\3\4 else"}
    path.write_bytes(harmed[harm])
    for number in (2, 3):
        assert 0 < sum(told(device.train(number))["stored"]) <= 6
    assert len(said) == 1
    assert f"set aside as {path.name}.damaged-1" in said[0]


@pytest.mark.parametrize("rule", ["ode-balanced", "reservoir"])
def test_samples_of_another_shape_or_task_are_set_aside(
    tmp_path: Path, said: list[str], rule: str
) -> None:
    def device(width: int, **config: Any) -> Device:
        rng = np.random.default_rng(width)
        x = rng.normal(size=(40, width)).astype(np.float32)
        y = np.arange(40) % 3
        np.savez(tmp_path / f"{width}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        run = {"task": "npz", "data.num-classes": 3, "data.path": str(tmp_path / f"{width}.npz")}
        return Device(tmp_path / "state", **STREAM | run | {"data-selector": rule} | config)

    def train(device: Device, number: int) -> Any:
        arrays = read_arrays(load_task(read_config(device.config).task_spec()).build_model())
        reply = device.send("train", number, {ARRAYS: to_record(arrays)})
        assert not reply.has_error(), reply.error
        return told(reply)

    train(device(4), 1)
    for number in (2, 3):
        assert 0 < sum(train(device(5), number)["stored"]) <= 6
    assert len(said) == 1
    assert "holds samples for" in said[0]
    assert len(list((tmp_path / "state").glob("*.samples.other-1"))) == 1


def test_a_rule_that_begins_to_look_has_no_need_of_an_old_model(tmp_path: Path) -> None:
    device = Device(tmp_path, **STREAM | {"data-selector": "ode-balanced", "ode.estimator": "none"})
    device.train(1)
    device.config["ode.estimator"] = "incremental"
    assert sum(told(device.train(2))["stored"]) == 6


def keep(path: Path, ready: Any, seconds: float) -> None:
    claim = FileClaim(path, "camera")
    ready.set()
    time.sleep(seconds)
    claim.release()


def in_another_process(path: Path, seconds: float) -> Any:
    """Start a process that claims a client's files for a while."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=keep, args=(path, ready, seconds))
    process.start()
    assert ready.wait(30)
    return process


def lock_of(device: Device) -> Path:
    files = state_path(device.context)
    assert files is not None
    return files.with_suffix(".lock")


def test_a_process_waits_for_the_one_before_it(tmp_path: Path) -> None:
    device = Device(tmp_path, **STREAM)
    other = in_another_process(lock_of(device), 0.5)
    device.train(1)
    other.join()


def test_two_devices_with_one_folder_and_name_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(tmp_path, **STREAM)
    other = in_another_process(lock_of(device), 60)
    monkeypatch.setattr(FileClaim.__init__, "__defaults__", (0.1,))
    try:
        reply = device.send("train", 1, {ARRAYS: to_record(MODEL)})
        assert reply.has_error()
        assert str(tmp_path) in reply.error.reason
        assert "give every SuperNode a client-id or a state-dir of its own" in reply.error.reason
    finally:
        other.kill()
        other.join()
    device.train(1)  # a killed process holds nothing


def supernode(folder: Path, node_id: int, said: Any, done: Any) -> None:
    """Be a SuperNode: every message is answered by a process of its own."""
    with multiprocessing.get_context("fork").Pool(1) as processes:
        said.put(processes.apply(why_it_refuses, (folder, node_id)))
    done.wait(60)


def why_it_refuses(folder: Path, node_id: int) -> str:
    node = {"client-id": "camera", "state-dir": str(folder)}
    message = Message(RecordDict(), dst_node_id=node_id, message_type=IDENTIFY)
    reply = _answer_one(IDENTIFY, message, Context(1, node_id, node, RecordDict(), {}))
    return reply.error.reason if reply.has_error() else ""


def test_the_files_are_one_supernodes_as_long_as_it_lives(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("fork")
    said, done, never = processes.Queue(), processes.Event(), processes.Event()
    done.set()

    def started(node_id: int, until: Any) -> tuple[Any, str]:
        process = processes.Process(target=supernode, args=(tmp_path, node_id, said, until))
        process.start()
        return process, said.get(timeout=60)

    first, refusal = started(11, never)
    assert not refusal
    second, refusal = started(12, done)
    assert f"another SuperNode (process {first.pid} " in refusal
    assert "give every SuperNode a client-id or a state-dir of its own" in refusal
    again, refusal = started(11, done)
    assert not refusal, "with a key it has the same id when it is started again"
    first.kill()
    for process in (first, second, again):
        process.join()
    third, refusal = started(12, done)
    assert not refusal, "the first is gone"
    third.join()


@pytest.mark.parametrize(("hours", "is_there"), [(0.5, True), (1.5, False)])
def test_a_supernode_elsewhere_is_there_for_an_hour(
    tmp_path: Path, hours: float, is_there: bool
) -> None:
    files = tmp_path / "camera"
    hold(files, "camera", 11)
    owner = files.with_suffix(".owner")
    owner.write_text(owner.read_text().replace(socket.gethostname(), "elsewhere"))
    os.utime(owner, (time.time() - 3600 * hours,) * 2)
    with pytest.raises(StateInUseError) if is_there else nullcontext():
        hold(files, "camera", 12)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"node": 3}'])
def test_a_damaged_note_of_the_owner_is_in_nobodys_way(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "camera.owner").write_bytes(content)
    hold(tmp_path / "camera", "camera", 11)


def row_of(device: Device, kind: str = "train") -> ClientRow:
    requests = Requests.of([Message(RecordDict(), dst_node_id=7, message_type=kind)])
    assert requests is not None
    return ClientBatch(requests, [device.context]).rows[0]


def test_an_unclosed_request_is_in_nobodys_way(tmp_path: Path) -> None:
    device = Device(tmp_path, strategy="moon", **{"moon.projection": 0})
    left = row_of(device)
    left.state["mine"] = {"number": 1}
    with pytest.raises(StateInUseError, match="another process"):
        FileClaim(lock_of(device), "0", patience=0.05)
    other = row_of(device)
    assert "mine" not in other.state
    other.state["mine"] = {"number": 2}
    other.close()
    with pytest.raises(RuntimeError, match="another message came"):
        left.close()
    failed = row_of(device)
    failed.state["mine"] = {"number": 3}
    failed.abandon()
    assert ClientState(device.context)["mine"] == {"number": 2}


def test_a_copied_folder_is_as_good(tmp_path: Path) -> None:
    device = Device(tmp_path / "a", **STREAM)
    stored = told(device.train(1))["stored"]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    device.node["state-dir"] = str(tmp_path / "b")
    assert list(told(device.send(INGEST, 1))["stored"]) == list(stored)
    assert sorted(Path(name).suffix for name in os.listdir(tmp_path / "b")) == [
        ".lock",
        ".safetensors",
        ".samples",
    ]
