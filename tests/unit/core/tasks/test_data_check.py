"""What of the data may mislead is found before a run, and said in a line."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.tasks import Regression, TaskError, TaskSpec, load_task
from forager.core.tasks.data_check import DataFacts, check_data

FLAT = np.random.default_rng(0).normal(size=(30, 2))
LABELS = np.arange(30) % 3


def found(**more: Any) -> str:
    return "\n".join(check_data(DataFacts(**{"x": FLAT, "targets": LABELS, **KIND, **more})))


KIND = {"kind": "classification"}


def test_sound_data_are_not_talked_about() -> None:
    assert found(test_size=9, client_tests=[2, 3], class_counts=[[1, 1, 1]] * 2) == ""
    assert found(kind="regression", targets=FLAT[:, :1], kind_chosen=False) == ""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"targets": 0 * LABELS}, "every label is 0: there is nothing to learn"),
        ({"targets": LABELS + 1}, "labels go from 1 to 3: .* subtract 1"),
        (
            {"kind": "regression", "kind_chosen": False, "targets": LABELS[:, None] * 1.0},
            r"decimal point \(0.0, 1.0, 2.0, ...\) .* set data.kind = 'classification'",
        ),
        ({"x": FLAT * [1, 5000]}, "input column 1 varies .* column 0; set data.scale"),
        (
            {"x": FLAT + np.array([0, 2000])},
            "input column 1 has values up to 2,00.; set data.scale",
        ),
        ({"x": FLAT * [1, 5000], "columns": ["age", "dose"]}, "column 'dose' .* as column 'age'"),
        ({"test_size": 1}, "the server tests on one row"),
        (
            {"client_tests": [0, 4, 0], "client_test_share": 0.02},
            "2 of 3 clients: too few rows to hold out data.client-test-share = 0.02 of them",
        ),
        ({"client_tests": [1, 4, 1]}, "2 of 3 clients: one row of test data, where AUC is"),
        (
            {"kind": "regression", "client_tests": [1, 4, 1]},
            "one row of test data, where R2 is undefined; raise data.client-test-share or use mae",
        ),
        ({"owners": 25, "client_tests": [3] * 10}, "25 owners share 10 clients; set num-clients"),
        (
            {"class_counts": [[3, 0, 0], [1, 1, 1]]},
            "1 of 2 clients: a class is missing; .* are 1 of 3",
        ),
        (
            {"tests_are_owners": True, "client_test_share": 0.2},
            "data.client-test-share = 0.2 is not used",
        ),
    ],
)
def test_what_misleads_is_said(facts: dict[str, Any], expected: str) -> None:
    (line,) = found(**facts).splitlines()
    assert re.search(expected, line), line


def test_what_is_meant_so_is_not_said() -> None:
    assert found(x=FLAT * [1, 5000], scaled=True) == ""
    assert found(kind="regression", targets=LABELS[:, None] * 1.0) == ""  # chosen by the user


def clinics(folder: Path, **more: Any) -> TaskSpec:
    """Write rows of four clinics, of which the last has one test row."""
    rng = np.random.default_rng(1)
    owners = np.repeat(["north", "east", "south", "west"], [40, 30, 20, 8])
    rng.shuffle(owners)
    arrays = {"x_train": rng.normal(size=(98, 3)), "y_train": rng.integers(1, 3, 98)}
    arrays |= {"x_test": rng.normal(size=(20, 3)), "y_test": rng.integers(1, 3, 20)}
    np.savez(folder / "clinics.npz", user_train=owners, **arrays)  # type: ignore[arg-type]
    path = str(folder / "clinics.npz")
    return TaskSpec(
        **{"task": "npz", "path": path, "cache_dir": str(folder), "partition": "natural", **more}
    )


def test_a_task_knows_the_names_of_its_clients_and_what_misleads(tmp_path: Path) -> None:
    task = load_task(clinics(tmp_path, client_test_share=0.15))
    assert task.client_names(4) == ["east", "north", "south", "west"]
    assert len(task.client_data(3, 4).train) + len(task.client_data(3, 4).test) == 8
    assert task.client_names(3) == ["east and 1 more", "south", "west"]
    lines = task.findings(3)
    assert any(line.startswith("labels go from 1 to 2") for line in lines)
    assert any("4 owners share 3 clients" in line for line in lines)
    assert any("1 of 4 clients: one row of test data" in line for line in task.findings(4))
    assert task.findings(0) == [line for line in lines if line.startswith("labels")]
    spread = load_task(clinics(tmp_path, partition="iid"))
    assert spread.client_names(4) == []


class Named(Regression):
    """A task with data of its own."""

    def client_data(self, client: int, clients: int) -> Any:
        return FLAT, FLAT[:, :1]

    def server_data(self) -> Any:
        return FLAT * [1, 9000], FLAT[:, :1]

    def client_name(self, client: int, clients: int) -> str:
        return f"pump-{client}"


def test_a_task_of_ones_own_names_clients_too() -> None:
    task = load_task(TaskSpec(task=f"{__name__}:Named"))
    assert task.client_names(2) == ["pump-0", "pump-1"]
    assert len(task.findings(2)) == 1


@pytest.mark.parametrize(
    ("task", "metric", "allowed"),
    [
        ("digits", "r2", "classification; allowed are accuracy, macro-f1, balanced-accuracy, auc"),
        ("diabetes", "accuracy", "regression; allowed are mae, rmse, r2, loss"),
        ("poems", "mae", "next-token; allowed are accuracy, macro-f1"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(task: str, metric: str, allowed: str) -> None:
    with pytest.raises(TaskError, match=f"metrics = '{metric}' does not fit: .* is {allowed}"):
        _ = load_task(TaskSpec(task=task, metrics=metric)).metrics
