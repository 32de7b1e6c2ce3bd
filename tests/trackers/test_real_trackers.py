"""MLflow and Weights & Biases themselves, without a network: `make test-trackers` installs them."""

import time
from pathlib import Path
from typing import Any

import mlflow
import pytest
from forager.core.config import default_config
from forager.tools.engine.local import run_local


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let trackers write here and talk to nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path


def played(place: Path, callbacks: str, **keys: Any) -> Path:
    settings = {"num-clients": 3, "num-server-rounds": 4, "task": "synthetic"}
    config = {**default_config(), **settings, "output-dir": str(place), "callbacks": callbacks}
    return run_local({**config, **keys}).folder


def test_mlflow_in_a_file(place: Path) -> None:
    folder = played(place, "mlflow", **{"num-server-rounds": 2})
    played(place, "mlflow", **{"resume-from": str(folder), "num-server-rounds": 4})
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("forager")
    (run,) = client.search_runs([experiment.experiment_id])  # resumed, not a second one
    assert run.info.run_name == folder.name
    assert run.info.status == "FINISHED"
    assert run.data.params["task"] == "synthetic"
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert [point.step for point in history] == [0, 1, 2, 3, 4]
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert files == {"rounds.csv", "report.html", "model.safetensors"}


def test_wandb_offline(place: Path) -> None:
    folder = played(place, "wandb")
    (log,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    written = log.read_bytes()
    for expected in (b"accuracy", b"num-server-rounds", folder.name.encode()):
        assert expected in written


def test_a_tracker_that_is_down_costs_seconds_and_no_run(
    place: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    started = time.monotonic()
    folder = played(place, "mlflow")
    assert (folder / "model.safetensors").exists()
    assert time.monotonic() - started < 120
    (last,) = [line for line in said if line.endswith("continues without it")]
    assert last.startswith("callback mlflow failed")
