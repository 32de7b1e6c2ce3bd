"""The united strategy, as a user would run it."""

import json
from pathlib import Path

import pytest
from forager.tools.engine import run_local

SMALL = {
    "strategy": "forager",
    "num-clients": 12,
    "clients-per-round": 6,
    "num-server-rounds": 12,
    "local-epochs": 2,
    "evaluate-every": 12,
    "learning-rate": 0.1,
    "data.client-test-share": 0.2,
    "fraction-evaluate": 1.0,
    "report": False,
}


def _decided(folder: Path) -> list[str]:
    lines = (json.loads(line) for line in (folder / "events.jsonl").open())
    return [event["part"] for event in lines if event["event"] == "decided"]


def test_it_ends_above_fedavg_with_fewer_bytes(tmp_path):
    runs = {
        name: run_local({**SMALL, "strategy": name, "output-dir": str(tmp_path / name)}).rounds
        for name in ("forager", "fedavg")
    }
    last = {name: rows[-1]["clients-accuracy-mean"] for name, rows in runs.items()}
    assert last["forager"] > last["fedavg"]
    sent = {name: sum(row.get("bytes-up") or 0 for row in rows) for name, rows in runs.items()}
    assert sent["forager"] < sent["fedavg"] / 3


def test_wrong_labels_are_found_and_clean_ones_are_not(tmp_path):
    noisy = {"noise": "closed-set", "corruption.rate": 0.4}
    found = run_local({**SMALL, **noisy, "output-dir": str(tmp_path / "noisy")})
    clean = run_local({**SMALL, "output-dir": str(tmp_path / "clean")})
    assert "labels" in _decided(found.folder)
    assert "labels" not in _decided(clean.folder)


@pytest.mark.parametrize("task", ["diabetes", "poems"])
def test_it_runs_on_tasks_without_classes(tmp_path, task):
    few = {"num-server-rounds": 2, "evaluate-every": 2, "local-steps": 2}
    few |= {"task": task, "partition": "iid"}
    result = run_local({**SMALL, **few, "output-dir": str(tmp_path)})
    assert result.reason == "completed"


def test_a_resumed_run_equals_one_that_was_never_stopped(tmp_path):
    noisy = {**SMALL, "noise": "closed-set", "num-server-rounds": 8, "evaluate-every": 8}
    whole = run_local({**noisy, "output-dir": str(tmp_path / "whole")})
    part = run_local({**noisy, "num-server-rounds": 5, "output-dir": str(tmp_path / "part")})
    rest = run_local(
        {**noisy, "resume-from": str(part.folder), "output-dir": str(tmp_path / "rest")}
    )
    models = [(run.folder / "model.safetensors").read_bytes() for run in (whole, rest)]
    assert models[0] == models[1]
