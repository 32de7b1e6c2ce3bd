from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.benchmarks import gcfl
from forager.benchmarks.coreset_runs import run_with_coresets
from forager.benchmarks.data_part import write_part
from forager.core.config import read_config


def options(experiment: str, **given: Any) -> Namespace:
    given = {"noise": None, "methods": None, "model": "", "data": Path("x.npz"), **given}
    given = {"learning_rate": None, "batch_size": None, **given}
    return Namespace(experiment=experiment, rounds=7, evaluate_every=2, **given)


@pytest.mark.parametrize("experiment", gcfl.EXPERIMENTS)
def test_every_run_of_an_experiment_has_a_name_of_its_own_and_a_valid_config(
    experiment: str,
) -> None:
    cells = gcfl.cells(options(experiment))
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        config = read_config(dict(cell.config))
        assert (config.num_server_rounds, config.weighting) == (7, "uniform")


def test_a_part_can_be_asked_for() -> None:
    cells = gcfl.cells(options("cifar", noise=["clean", "open-40"], methods=["trusted", "moon"]))
    assert [cell.name for cell in cells] == [
        "clean, trusted",
        "clean, moon",
        "open-40, trusted",
        "open-40, moon",
    ]


def test_data_are_needed_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gcfl.main(["cifar"])
    assert "--data: cifar needs" in capsys.readouterr().err


def test_learning_rate_and_batches_can_be_others() -> None:
    part = {"noise": ["clean"], "methods": ["trusted"]}
    (cell,) = gcfl.cells(options("fashion", **part, learning_rate=0.5, batch_size=8))
    assert (cell.config["learning-rate"], cell.config["batch-size"]) == (0.5, 8)
    (cell,) = gcfl.cells(options("fashion", **part))
    assert (cell.config["learning-rate"], cell.config["batch-size"]) == (0.01, 32)


def test_a_part_of_the_data_keeps_the_classes_alike_and_all_test_samples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.random((60, 4), dtype=np.float32),
        "y_train": rng.permutation(np.repeat([0, 1, 2], [30, 20, 10])),
        "x_test": rng.random((9, 4), dtype=np.float32),
        "y_test": np.repeat([0, 1, 2], 3),
    }
    whole = tmp_path / "whole.npz"
    np.savez(whole, **arrays)
    path = write_part("npz", str(whole), 12, tmp_path / "parts")
    with np.load(path) as part:
        assert np.bincount(part["y_train"]).tolist() == [6, 4, 2]
        assert {tuple(row) for row in part["x_train"]} < {tuple(row) for row in arrays["x_train"]}
        np.testing.assert_array_equal(part["x_test"], arrays["x_test"])
    before = path.read_bytes()
    assert write_part("npz", str(whole), 12, tmp_path / "parts").read_bytes() == before
    with np.load(write_part("npz", str(whole), 1000, tmp_path / "parts")) as part:
        np.testing.assert_array_equal(part["y_train"], arrays["y_train"])


def test_a_part_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gcfl.main(["fashion", "--samples", "0"])
    assert "--samples: expected 1 or more, got 0" in capsys.readouterr().err


def test_rows_tell_what_clients_trained_on(tmp_path: Path) -> None:
    (cell,) = gcfl.cells(options("motivating", methods=["trusted"], data=None))
    result = run_with_coresets(
        {**cell.config, "num-server-rounds": 2, "output-dir": str(tmp_path), "task": "digits"}
    )
    assert result.reason == "completed"
    first, second = result.rounds[1:]
    assert (first["bytes-guidance"], second["bytes-guidance"]) == (0, 10 * 10 * (65 + 3) * 4)
    assert 0 < second["choose-seconds"] < second["train-seconds"] + second["seconds"]
    assert 0 < second["clean-share"] < 1
    assert second["coreset-size"] > 100
