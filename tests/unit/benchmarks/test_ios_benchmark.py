"""What a run keeps of supports, and the settings of the comparisons."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.benchmarks import ios
from forager.benchmarks.ios_alignment import alignment, cluster_quality
from forager.core.config import read_config
from forager.core.storage import tree
from forager.tools.engine.local import run_local
from forager.tools.experiments.records import Scalar
from forager.tools.experiments.workers import Reply, WorkerPool, read_reply, run_task

RUN: dict[str, Any] = {
    "strategy": "ios-centred",
    "num-clients": 8,
    "client-selector": "all",
    "partition": "pathological",
    "num-server-rounds": 3,
    "local-epochs": 3,
    "model": "mlp",
    "data.client-test-share": 0.2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    cache = {"output-dir": str(folder), "data.cache-dir": str(folder)}
    return run_local({**RUN, **cache}).folder


def test_a_run_keeps_the_supports_that_were_sent_and_nothing_else(run: Path) -> None:
    kept = tree.load(run / "supports.safetensors", "supports")
    assert set(kept) == {"size", "tag", "supports"}
    assert set(kept["supports"]) == {str(i) for i in range(8)}
    sizes = [data.nbytes for data in kept["supports"].values()]
    assert all(data.dtype == np.uint8 for data in kept["supports"].values())
    assert (run / "supports.safetensors").stat().st_size < sum(sizes) + 2500


def test_values_are_not_kept(tmp_path: Path, run: Path) -> None:
    cache = {"data.cache-dir": str(run.parent), "output-dir": str(tmp_path), "report": False}
    result = run_local({**RUN, **cache, "similarity": "cosine", "num-server-rounds": 2})
    assert not (result.folder / "supports.safetensors").exists()


def test_signatures_are_kept_with_the_supports_that_were_fetched(tmp_path: Path, run: Path) -> None:
    cache = {"data.cache-dir": str(run.parent), "output-dir": str(tmp_path), "report": False}
    keys = {"ios.signatures": True, "ios.every": 1, "num-server-rounds": 2}
    result = run_local({**RUN, **cache, **keys})
    kept = tree.load(result.folder / "supports.safetensors", "supports")
    assert set(kept["signatures"]) == {str(i) for i in range(8)}
    assert set(kept["supports"]) <= set(kept["signatures"])


def test_the_truth_agrees_with_itself_and_chance_does_not() -> None:
    histograms = np.kron(np.eye(3, dtype=np.int64), np.ones((4, 2), dtype=np.int64)) + 1
    truth = (histograms @ histograms.T).astype(float)
    good = alignment(truth, histograms)
    assert good["clusters"] == 3
    assert good["silhouette"] > 0.99
    assert good["R@4"] == 1.0
    chance = alignment(np.random.default_rng(0).random((12, 12)), histograms)
    assert chance["tau"] < 0.3 < good["tau"]
    assert chance["JS"] > good["JS"]


def test_a_single_cluster_has_no_quality() -> None:
    histograms = np.eye(4, dtype=np.int64) + 1
    assert cluster_quality(np.zeros(4, dtype=int), histograms) == {"clusters": 1.0}


def options(setting: str, tmp_path: Path, task: str, **given: Any) -> Namespace:
    common = {"rounds": 3, "clients": 20, "samples": 30, "epochs": 2, "splits": list(ios.SPLITS)}
    common |= {"model": ""}
    return Namespace(
        setting=setting, task=task, data=None, out=tmp_path / "x.jsonl", **{**common, **given}
    )


@pytest.mark.parametrize("setting", ["cohorts", "neighbours"])
def test_every_run_has_a_name_of_its_own_and_a_valid_config(setting: str, tmp_path: Path) -> None:
    cells = ios.cells(options(setting, tmp_path, "20news"))
    assert len({cell.name for cell in cells}) == len(cells) == 4 * 7
    configs = {cell.name: read_config(dict(cell.config)) for cell in cells}
    assert configs["Patho(30 %): cosine"].split.classes_per_client == 6
    assert configs["Dir(0.3): oracle"].similarity == "oracle"


def test_selectors_are_compared_with_a_tenth_of_the_clients(tmp_path: Path) -> None:
    cells = ios.selection_cells(options("selection", tmp_path, "20news", splits=["Dir(0.1)"]))
    configs = [read_config(dict(cell.config)) for cell in cells]
    assert [config.client_selector for config in configs] == list(ios.SELECTORS)
    assert {config.clients_per_round for config in configs} == {2}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng, file = np.random.default_rng(0), tmp_path / "images.npz"
    inputs, labels = rng.random((400, 8, 8, 1)).astype(np.float32), rng.integers(0, 10, 400)
    np.savez(file, x_train=inputs, y_train=labels, x_test=inputs[:50], y_test=labels[:50])
    return file


def small(setting: str, images: Path, out: Path) -> list[str]:
    task = ["--task", "cifar10", "--data", str(images), "--splits", "Patho(20 %)"]
    size = ["--clients", "8", "--samples", "40", "--epochs", "1", "--seeds", "1"]
    return [setting, *task, *size, "--out", str(out)]


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sweeps run here: a worker process takes longer to start than these runs take."""

    def run(pool: WorkerPool, tasks: Sequence[Mapping[str, Scalar]]) -> Iterator[tuple[int, Reply]]:
        for position, task in enumerate(tasks):
            yield position, read_reply(run_task(pool.runner, dict(task)))

    monkeypatch.setattr(WorkerPool, "run", run)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("setting", ["cohorts", "neighbours", "selection"])
def test_a_sweep_runs_and_prints_its_tables(
    setting: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*small(setting, images, tmp_path / "sweep.jsonl"), "--model", "softmax"]
    assert ios.main([*command, "--rounds", "2", "--processes", "1"]) == 0
    printed = capsys.readouterr().out
    last = "support-diversity" if setting == "selection" else "oracle"
    assert printed.count(f"Patho(20 %): {last}") == 2  # in the summary and in the differences


def test_a_setting_is_measured_once(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "align.jsonl"
    for _ in range(2):
        assert ios.main([*small("align", images, out), "--rounds", "1"]) == 0
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["rows"]["oracle"]["R@4"] == 1.0
    assert 0 < line["rows"]["IOS, K*"]["share"] <= 0.2
    printed = capsys.readouterr().out
    assert printed.count("cifar10, recall of the 8 clients") == 2
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
