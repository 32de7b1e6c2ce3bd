from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.benchmarks import ode
from forager.benchmarks.stream_runs import run_stream
from forager.core.config import read_config
from forager.core.methods.stream import StreamSettings
from forager.tools.experiments.records import Row, SweepRecord
from forager.tools.experiments.results import Results


def options(task: str = "synthetic", what: str = "methods", **given: Any) -> Namespace:
    given = {"methods": None, "data": None, "rate": None, "capacity": None, **given}
    return Namespace(task=task, what=what, rounds=7, every=2, **given)


def results(curves: dict[str, list[list[float]]]) -> Results:
    """Make results of accuracies by seed and evaluation; one evaluation every ten rounds."""
    runs: dict[str, dict[int, SweepRecord]] = {}
    for name, seeds in curves.items():
        for seed, heights in enumerate(seeds):
            rows: list[Row] = [
                {"round": 10 * n, "accuracy": height} for n, height in enumerate(heights)
            ]
            record = SweepRecord(name, seed, "", "completed", "completed", "", 0.0, {}, rows)
            runs.setdefault(name, {})[seed] = record
    return Results(runs, [])


@pytest.mark.parametrize("what", ["methods", "parts", "settings"])
@pytest.mark.parametrize("task", ode.TASKS)
def test_every_run_has_a_name_of_its_own_and_a_valid_config(
    task: str, what: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "users.npz", user_train=[0, 0, 1, 2])
    cells = ode.cells(options(task, what, data=tmp_path / "users.npz", capacity=3))
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        config = read_config(dict(cell.config))
        assert (config.num_server_rounds, config.num_clients) == (7, 3)
        assert config[StreamSettings].capacity == 3 or "stored" in cell.name


def test_data_are_needed_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ode.main(["traffic"])
    assert "--data: traffic needs" in capsys.readouterr().err


def test_the_speed_up_is_to_the_final_accuracy_of_the_reservoir() -> None:
    found = results(
        {
            "reservoir": [[0.1, 0.3, 0.5, 0.5, 0.5]],
            "fast": [[0.2, 0.6, 0.4, 0.4, 0.4]],
            "never": [[0.1, 0.1, 0.2, 0.3, 0.4]],
        }
    )
    rows = ode.speed_ups(found, "accuracy").rows[1:]
    assert rows == [["reservoir", "20", "1.00"], ["fast", "10", "2.00"], ["never", "-", "never"]]


def test_settings_show_differences_by_seed() -> None:
    heights = {"reservoir": 0.5, "ode-balanced": 0.4, "ode": 0.7}
    curves = {
        f"{method}, {setting}": [[height + 0.1 * seed] for seed in range(2)]
        for setting in ode.ROBUSTNESS
        for method, height in heights.items()
    }
    table = ode.under_settings(results(curves), ode.COLUMNS[1])
    assert [row[0] for row in table.rows[1:]] == list(ode.ROBUSTNESS)
    assert table.rows[1][1].startswith("55.0 ± ")
    assert [entry.split()[0].rstrip(",") for entry in table.rows[1][2:]] == ["-10.0", "+20.0"]


def test_rows_tell_which_labels_are_stored(tmp_path: Path) -> None:
    (cell,) = ode.cells(options("few", methods=["ode-balanced"]))
    result = run_stream({**cell.config, "num-server-rounds": 2, "output-dir": str(tmp_path)})
    assert result.reason == "completed"
    last = result.rounds[-1]
    assert 0 < last["labels-per-client"] <= 10  # type: ignore[operator]
    assert last["labels-per-client"] <= last["labels"] <= 10  # type: ignore[operator]
    assert last["fewest-holders"] >= 1  # type: ignore[operator]
    assert last["worst-class"] == min(last[f"class-{label}"] for label in range(10))  # type: ignore[type-var]
