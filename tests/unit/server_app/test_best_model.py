"""The best model of a run, beside its last."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forager.core.tasks.metrics import NAMED
from forager.core.wire.arrays import to_record
from forager.server_app.callbacks.best_model import BestModel
from forager.server_app.run_folder import RunFolder
from forager.tools.engine.local import run_local
from safetensors import safe_open
from safetensors.numpy import load_file


def loop_after(server_round: int, score: float | None, own: float | None = None) -> Any:
    """A loop whose model is the number of its round; with cohorts if clients evaluate."""
    arrays = to_record({"w": np.full(2, server_round, np.float32)})
    models = {"a": (arrays, 1), "b": (arrays, 1)} if own is not None else {"": (arrays, 1)}
    return SimpleNamespace(
        round=server_round,
        evaluated_round=server_round if score is not None else server_round - 1,
        score=score,
        own_score=own,
        arrays=arrays,
        strategy=SimpleNamespace(models=lambda _: models),
        federation=SimpleNamespace(scale=""),
    )


def best_in(folder: RunFolder, cohort: str = "") -> int:
    return int(load_file(folder.best_path(cohort))["w"][0])


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "run")


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [
        ("accuracy", [0.5, 0.9, 0.7], 2),
        ("loss", [0.5, 0.9, 0.4], 3),
        ("accuracy", [0.5, 0.5, None], 1),
    ],
)
def test_it_is_that_of_the_best_round(
    folder: RunFolder, metric: str, scores: list[float | None], best: int
) -> None:
    callback = BestModel(folder, every=0, metric=NAMED[metric])
    for number, score in enumerate(scores, 1):
        callback.on_round_end(loop_after(number, score))
    assert not folder.best_path().exists()  # checkpoints are not asked for
    callback.on_run_end(loop_after(3, None))
    assert best_in(folder) == best
    with safe_open(folder.best_path(), "numpy") as file:
        about = json.loads(file.metadata()["best"])
    assert about == {"round": best, "metric": metric, "value": scores[best - 1]}


def test_with_cohorts_the_clients_decide_and_each_has_its_own(folder: RunFolder) -> None:
    callback = BestModel(folder, on_clients=True)
    for number, (score, own) in enumerate([(0.9, 0.1), (0.1, 0.9), (0.95, 0.2)], 1):
        callback.on_round_end(loop_after(number, score, own))
    assert [best_in(folder, name) for name in ("", "a", "b")] == [2, 2, 2]


def test_the_end_of_a_run_says_which_round_was_best(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    callback = BestModel(folder)
    for server_round, score in enumerate([0.5, 0.9, 0.7], 1):
        callback.on_round_end(loop_after(server_round, score))
    with caplog.at_level("INFO", "forager"):
        callback.on_run_end(loop_after(3, 0.7))
    assert "best: accuracy 90.0 % in round 2 (best.safetensors)" in caplog.text


def test_a_resumed_run_goes_on_with_it_and_a_lost_one_is_forgotten(folder: RunFolder) -> None:
    callback = BestModel(folder)
    for number, score in enumerate([0.5, 0.9], 1):
        callback.on_round_end(loop_after(number, score))
    resumed = BestModel(folder)
    resumed.load_state_dict(callback.state_dict())
    resumed.on_run_start(loop_after(2, None))
    resumed.on_round_end(loop_after(3, 0.8))
    assert best_in(folder) == 2
    resumed.on_round_end(loop_after(4, 0.95))
    assert best_in(folder) == 4

    earlier = BestModel(folder)  # from a checkpoint before the best
    earlier.load_state_dict({"round": 2, "value": 0.9})
    earlier.on_roll_back(loop_after(2, None))
    assert not folder.best_path().exists()
    earlier.on_round_end(loop_after(3, 0.1))
    assert best_in(folder) == 3
    BestModel(folder).load_state_dict({})  # a run of an earlier version


def test_a_full_disk_does_not_end_the_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    callback = BestModel(folder)
    with monkeypatch.context() as patch:
        patch.setattr("forager.server_app.callbacks.best_model.write_atomically", full)
        callback.on_round_end(loop_after(1, 0.9))
    assert not folder.best_path().exists()
    callback.on_run_end(loop_after(1, None))
    assert best_in(folder) == 1


def test_a_run_leaves_it_behind(tmp_path: Path) -> None:
    keys = {"num-clients": 4, "num-server-rounds": 2, "report": False, "task": "blobs"}
    ran = run_local({**keys, "output-dir": str(tmp_path)})
    folder = RunFolder(ran.folder)
    with safe_open(folder.best_path(), "numpy") as file:
        about = json.loads(file.metadata()["best"])
    values = [float(row["accuracy"]) for row in ran.rounds if int(row["round"])]
    assert about["value"] == pytest.approx(max(values))
    assert about["round"] == 1 + values.index(max(values))
    assert load_file(folder.best_path()).keys() == load_file(folder.model_path).keys()
