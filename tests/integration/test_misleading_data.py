"""Data that could mislead: what a run says of them, and what one undefined metric costs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.tasks import TaskError
from forager.tools.engine.local import LocalResult, run_local
from forager.tools.predict import cohort_of

ROWS = {"clinic-a": 40, "clinic-b": 30, "clinic-c": 8}


@pytest.fixture
def clinics(tmp_path: Path) -> dict[str, Any]:
    """A table of three clinics, the last of which tests on one row."""
    rng = np.random.default_rng(0)
    owners = np.repeat(list(ROWS), list(ROWS.values()))
    rng.shuffle(owners)
    lines = [
        f"{a:.3f},{b:.1f},{a + 0.1 * c:.3f},{owner}"
        for owner, (a, b, c) in zip(
            owners, rng.normal(size=(len(owners), 3)) * [1, 5000, 1], strict=True
        )
    ]
    (tmp_path / "clinics.csv").write_text("age,income,target,clinic\n" + "\n".join(lines) + "\n")
    return {
        "task": f"hf:{tmp_path / 'clinics.csv'}",
        "data.user-column": "clinic",
        "data.client-test-share": 0.2,
        "data.cache-dir": str(tmp_path / "cache"),
        "partition": "natural",
        "num-clients": 3,
        "clients-per-round": 3,
        "num-server-rounds": 2,
        "learning-rate": 1e-9,
        "fraction-evaluate": 1.0,
        "checkpoint.every": 0,
        "report": False,
        "output-dir": str(tmp_path / "runs"),
    }


def events(result: LocalResult, kind: str) -> list[dict[str, Any]]:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


@pytest.mark.parametrize("metrics", ["mae,r2", "r2,mae"])
def test_an_undefined_metric_costs_a_client_that_metric_only(
    clinics: dict[str, Any], metrics: str
) -> None:
    result = run_local({**clinics, "metrics": metrics, "local.check-wire": True})
    assert not events(result, "quarantined")
    (told, *_) = [e for e in events(result, "evaluated") if e["where"] == "clients"]
    assert told["clients"] == 3
    assert set(told["spread"]) == {"mae", "r2"}
    (asked, *_) = [e for e in events(result, "exchange") if e["kind"] == "evaluate"]
    assert (asked["received"], asked["failed"]) == (3, {})


def test_a_run_says_what_it_found_and_whose_data_are_whose(
    clinics: dict[str, Any], said: list[str]
) -> None:
    result = run_local(clinics)
    (names,) = events(result, "client-names")
    assert names["names"] == {"0": "clinic-a", "1": "clinic-b", "2": "clinic-c"}
    (found,) = events(result, "data-checked")
    assert any(
        "column 'income' " in line and "set data.scale = 'standard'" in line
        for line in found["findings"]
    )
    assert any("1 of 3 clients: one row of test data" in line for line in found["findings"])
    assert [line for line in said if line.startswith("data: ")] == [
        f"data: {line}" for line in found["findings"]
    ]


def test_log_lines_name_the_owners(clinics: dict[str, Any], said: list[str]) -> None:
    run_local({**clinics, "clients.allowed": "0,1"})
    assert any(line.startswith("left out: 1 of 3 clients, clinic-c (") for line in said)


def test_a_metric_of_another_kind_of_problem_is_refused(clinics: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match=r"metrics = 'accuracy' does not fit: .* is regression"):
        run_local({**clinics, "metrics": "accuracy"})
    assert not list(Path(clinics["output-dir"]).glob("*/events.jsonl"))


@pytest.mark.parametrize("wire", [False, True])
def test_a_client_too_small_to_hold_out_data_is_counted_and_no_error(
    clinics: dict[str, Any], wire: bool
) -> None:
    given = {"data.client-test-share": 0.1, "local.check-wire": wire}
    result = run_local({**clinics, **given, "strategy": "split-test"})
    for asked in events(result, "exchange"):
        assert (asked["received"], asked["failed"]) == (3, {})
    assert not events(result, "quarantined")
    told = [e for e in events(result, "evaluated") if e["where"] == "clients"]
    assert [(e["clients"], e["untested"]) for e in told] == [(2, 1)] * 2
    assert cohort_of(result.folder, "clinic-b") == cohort_of(result.folder, "1")
