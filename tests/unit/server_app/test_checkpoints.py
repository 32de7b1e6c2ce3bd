import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from fakes import Notes
from forager.core.config import read_config
from forager.core.log.events import CheckpointSaved
from forager.core.storage import tree
from forager.server_app.callbacks.checkpoint import CheckpointError, Checkpoints, load_checkpoint
from forager.server_app.loop import Loop
from forager.server_app.resume import check_same_run
from forager.strategies.federation.federation import Federation


def loop_at(server_round: int) -> Loop:
    state = {"round": server_round, "config": {}, "arrays": {"w": np.full(3, server_round)}}
    federation = Federation()
    federation.journal = Notes()
    fake = SimpleNamespace(
        round=server_round, federation=federation, snapshot=state, take_snapshot=lambda: state
    )
    return cast(Loop, fake)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def play(checkpoints: Checkpoints, rounds: range) -> None:
    checkpoints.on_run_start(loop_at(rounds[0] - 1))
    for number in rounds:
        checkpoints.on_round_end(loop_at(number))
    checkpoints.on_run_end(loop_at(rounds[-1]))


@pytest.mark.parametrize(
    ("every", "keep", "kept"),
    [(1, 2, [6, 7]), (3, 5, [3, 6, 7]), (0, 2, [7]), (1, 1, [7]), (7, 3, [7])],
)
def test_which_are_written_and_kept(tmp_path: Path, every: int, keep: int, kept: list[int]) -> None:
    play(Checkpoints(tmp_path, every, keep), range(1, 8))
    assert names(tmp_path) == [f"round-{number:06d}.safetensors" for number in kept]


def test_each_is_written_down_once(tmp_path: Path) -> None:
    checkpoints, loop = Checkpoints(tmp_path, 1, 2), loop_at(4)
    checkpoints.on_round_end(loop)
    checkpoints.on_run_end(loop)
    notes = cast(Notes, loop.federation.journal)
    assert [(e.round, e.path) for e in notes.of(CheckpointSaved)] == [
        (4, "round-000004.safetensors")
    ]


def test_an_interrupted_run_saves_the_last_whole_round(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 0, 2)
    loop = loop_at(5)
    loop.round = 6
    checkpoints.on_run_end(loop)
    assert names(tmp_path) == ["round-000005.safetensors"]


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, 1, 2)
    checkpoints.on_round_end(loop_at(1))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    checkpoints.on_round_end(loop_at(2))
    assert names(tmp_path) == ["round-000001.safetensors"]
    monkeypatch.undo()
    checkpoints.on_run_end(loop_at(2))
    assert names(tmp_path) == ["round-000001.safetensors", "round-000002.safetensors"]


def run_folder(tmp_path: Path, rounds: range) -> Path:
    folder = tmp_path / "run"
    play(Checkpoints(folder / "checkpoints", 1, 3), rounds)
    return folder


def test_the_newest_is_loaded_from_a_run_folder(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, range(1, 6))
    where, state = load_checkpoint(str(folder))
    assert where == folder.resolve()
    assert state["round"] == 5
    assert state["arrays"]["w"].tolist() == [5, 5, 5]


def test_any_can_be_loaded_by_its_file(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, range(1, 6))
    where, state = load_checkpoint(str(folder / "checkpoints" / "round-000003.safetensors"))
    assert (where, state["round"]) == (folder.resolve(), 3)


def test_a_relative_path_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path, range(1, 3))
    monkeypatch.chdir(folder / "checkpoints")
    where, _ = load_checkpoint("round-000002.safetensors")
    assert where == folder.resolve()


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"\0" * 500])
def test_a_damaged_last_one_costs_a_round_not_the_run(tmp_path: Path, damage: bytes) -> None:
    folder = run_folder(tmp_path, range(1, 6))
    (folder / "checkpoints" / "round-000005.safetensors").write_bytes(damage)
    assert load_checkpoint(str(folder))[1]["round"] == 4


def test_if_all_are_damaged_the_error_names_them(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, range(1, 3))
    for file in (folder / "checkpoints").iterdir():
        file.write_bytes(b"rubbish")
    with pytest.raises(CheckpointError, match=r"resume-from = .*round-000002.*round-000001"):
        load_checkpoint(str(folder))


@pytest.mark.parametrize(
    "state", [{}, {"round": "x"}, {"round": None}, {"round": 3}, {"round": 3, "config": 5}]
)
def test_a_file_of_the_right_kind_with_the_wrong_content_is_refused(
    tmp_path: Path, state: dict[str, Any]
) -> None:
    path = tmp_path / "checkpoints" / "round-000003.safetensors"
    tree.save(path, state, "checkpoint")
    with pytest.raises(CheckpointError, match="resume-from"):
        load_checkpoint(str(path))


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "round-000003.safetensors"
    tree.save(path, {"round": 3}, "client-state")
    with pytest.raises(CheckpointError, match="client-state"):
        load_checkpoint(str(path))


@pytest.mark.parametrize("where", ["nowhere", "."])
def test_nothing_to_resume_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"resume-from = '{where}'"):
        load_checkpoint(where)


def test_other_files_are_neither_loaded_nor_deleted(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, range(1, 3))
    for name in ("round-best.safetensors", "notes.txt", ".mine.tmp"):
        (folder / "checkpoints" / name).write_text("mine")
    play(Checkpoints(folder / "checkpoints", 1, 1), range(3, 5))
    assert names(folder / "checkpoints") == [
        ".mine.tmp",
        "notes.txt",
        "round-000004.safetensors",
        "round-best.safetensors",
    ]
    assert load_checkpoint(str(folder))[1]["round"] == 4


def test_what_a_crash_left_unfinished_is_removed(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, range(1, 3))
    (folder / "checkpoints" / ".round-000003.safetensors.0123abcd.tmp").write_text("half of")
    Checkpoints(folder / "checkpoints", 1, 2).on_run_start(loop_at(2))
    assert names(folder / "checkpoints") == ["round-000001.safetensors", "round-000002.safetensors"]


def test_going_back_to_an_earlier_round_does_not_lose_the_new_checkpoints(tmp_path: Path) -> None:
    """A run resumed from round 3 while 7 and 8 lie there goes on from its own rounds."""
    folder = run_folder(tmp_path, range(1, 9)) / "checkpoints"
    play(Checkpoints(folder, 1, 2), range(4, 6))
    assert "round-000005.safetensors" in names(folder)
    assert load_checkpoint(str(folder.parent))[1]["round"] == 5


SAVED = read_config({"learning-rate": 0.3, "task": "blobs"}).flat()


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"num-server-rounds": 99},
        {"output-dir": "elsewhere"},
        {"run-name": "other"},
        {"resume-from": "x"},
        {"callbacks": "tensorboard"},
        {"round.deadline": 5.0},
        {"early-stop.patience": 3},
        {"checkpoint.every": 7},
        {"local.trainer": "serial"},
    ],
)
def test_a_run_may_go_on_with_other_surroundings(keys: dict[str, Any]) -> None:
    check_same_run(SAVED, read_config({"learning-rate": 0.3, "task": "blobs", **keys}))


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"learning-rate": 0.1}, "learning-rate is 0.1, was 0.3"),
        ({"task": "digits"}, "task is 'digits', was 'blobs'"),
        ({"seed": 4}, "seed is 4, was 0"),
        ({"aggregator": "median"}, "aggregator is 'median', was 'fedavg'"),
        ({"top-k.density": 0.5}, "top-k.density is 0.5"),
        ({"num-clients": 20}, "num-clients is 20, was 10"),
    ],
)
def test_a_run_may_not_go_on_with_other_settings(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match="differs") as caught:
        check_same_run(SAVED, read_config({"learning-rate": 0.3, "task": "blobs", **keys}))
    assert named in str(caught.value)


def test_more_rounds_do_not_change_the_learning_rate_of_a_schedule() -> None:
    """A cosine that ends with the run is another one when the run gets longer."""
    keys: dict[str, Any] = {"schedule.kind": "cosine", "num-server-rounds": 10}
    with pytest.raises(ValueError, match="num-server-rounds"):
        check_same_run(read_config(keys).flat(), read_config({**keys, "num-server-rounds": 20}))
    fixed = {**keys, "schedule.rounds": 30}
    check_same_run(read_config(fixed).flat(), read_config({**fixed, "num-server-rounds": 20}))


def test_a_key_of_another_version_is_a_difference() -> None:
    saved = {**SAVED, "gone": 1}
    with pytest.raises(ValueError, match="gone is None, was 1"):
        check_same_run(saved, read_config({"learning-rate": 0.3, "task": "blobs"}))
