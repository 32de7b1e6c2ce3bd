"""Runs on the local engine that stop at a budget and go on later."""

from pathlib import Path
from typing import Any

import pytest
from forager.core.config import Scalar
from forager.tools.experiments.compare.runner import run_candidate

SETTINGS: dict[str, Scalar] = {
    "strategy": "cosage",
    "seed": 3,
    "num-clients": 4,
    "num-server-rounds": 6,
    "fraction-evaluate": 1.0,
    "data.client-test-share": 0.2,
    "schedule.kind": "cosine",
    "local.threads": 1,
}


def run(home: Path, kind: str, amount: float, **more: Scalar) -> list[dict[str, Any]]:
    limits: dict[str, Scalar] = {"limit.kind": kind, "limit.amount": amount}
    place = {"output-dir": str(home / "any")}
    return run_candidate({**SETTINGS, **limits, **place, **more}).rounds


def learnt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without times, and without bytes: a run that goes on sends its clients some again."""
    return [
        {k: v for k, v in row.items() if "seconds" not in k and not k.startswith("bytes")}
        for row in rows
    ]


def test_a_run_in_two_stages_equals_one_in_one(tmp_path: Path) -> None:
    short = run(tmp_path / "a", "rounds", 2)
    assert [row["round"] for row in short] == [0, 1, 2]
    long = run(tmp_path / "a", "rounds", 6)
    assert learnt(long) == learnt(run(tmp_path / "b", "rounds", 6))
    work = [row["client-seconds"] for row in long]
    assert work == sorted(work)
    assert work[:3] == [row["client-seconds"] for row in short]
    # A smaller budget afterwards is cut from what is there.
    assert run(tmp_path / "a", "rounds", 2) == short
    assert len(list((tmp_path / "a").iterdir())) == 1


def test_bytes_and_simulated_seconds_end_a_run_too(tmp_path: Path) -> None:
    rows = run(tmp_path, "rounds", 6)
    enough = rows[3]["bytes"]
    assert [row["round"] for row in run(tmp_path, "bytes", enough)] == [0, 1, 2, 3]
    fresh = run(tmp_path / "fresh", "bytes", enough - 1)
    assert [row["round"] for row in fresh] == [0, 1, 2]
    slow: dict[str, Scalar] = {"devices.slow": True}
    clock = [row["simulated-seconds"] for row in run(tmp_path / "slow", "rounds", 3, **slow)]
    assert clock == sorted(set(clock))
    timed = run(tmp_path / "timed", "seconds", clock[2], **slow)
    assert [row["simulated-seconds"] for row in timed] == clock[:3]
    # Evaluation is for the experimenter; a run's own table counts the rest in the same way.
    parts = ("bytes-down", "bytes-up", "bytes-select")
    assert rows[-1]["bytes"] == sum(row.get(part, 0) for row in rows for part in parts)
    assert sum(row.get("bytes-test", 0) for row in rows) > 0


def test_a_folder_without_a_checkpoint_is_started_anew(tmp_path: Path) -> None:
    first = run(tmp_path, "rounds", 2)
    (folder,) = tmp_path.iterdir()
    for checkpoint in (folder / "checkpoints").iterdir():
        checkpoint.unlink()
    again = run(tmp_path, "rounds", 3)
    assert learnt(again)[:3] == learnt(first)


def test_wrong_settings_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task = 'digit'"):
        run(tmp_path, "rounds", 1, task="digit")
