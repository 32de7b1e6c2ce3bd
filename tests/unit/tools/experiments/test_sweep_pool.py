"""Sweeps whose runs are decided upon step by step."""

from pathlib import Path

from forager.tools.experiments.progress import SweepProgress
from forager.tools.experiments.records import Cell
from forager.tools.experiments.sweep import open_sweep


def test_workers_outlive_a_step_and_finished_runs_are_not_missing(tmp_path: Path) -> None:
    cells = [Cell("avg", {"strategy": "avg"})]
    with open_sweep(tmp_path / "s.jsonl", "fake_runners:steady", 1) as sweep:
        for seed in (0, 1):
            missing = sweep.missing(cells, [0, 1])
            assert [run.seed for run in missing] == list(range(seed, 2))
            sweep.run(missing[:1], SweepProgress("t", 1, 1))
        runs = sweep.results(cells, [0, 1]).runs["avg"]
    assert len({run.rows[-1]["pid"] for run in runs.values()}) == 1
