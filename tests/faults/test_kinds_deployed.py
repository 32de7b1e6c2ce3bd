"""Every built-in kind of problem once over gRPC, with selection, cohorts and privacy."""

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "deployment"))

from federation import Federation
from forager.tools.flower.run import wait_for_end

pytestmark = pytest.mark.timeout(3600)

RUNS = {
    "diabetes": {"strategy": "cosage", "learning-rate": 0.05},
    "poems": {"strategy": "ios-centred", "partition": "natural", "ios.samples": 4},
    "shapes": {"privacy": "local-dp"},
}


def test_every_kind_of_problem_is_trained_over_grpc(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    try:
        nodes = [
            federation.add_supernode(f"node-{i}", f"partition-id={i} num-partitions=3")
            for i in range(3)
        ]
        for task, keys in RUNS.items():
            settings = {
                "task": task,
                **keys,
                "num-server-rounds": 2,
                "local-steps": 2,
                "fraction-train": 1.0,
                "round.deadline": 300.0,
                "output-dir": str(tmp_path / "runs"),
                "run-name": task,
            }
            run_id = federation.cli.submit(federation.app, settings)
            log = "\n".join(federation.cli.log(run_id))
            words = log + "".join(node.last_words() for node in nodes)
            assert wait_for_end(federation.cli, run_id).succeeded, words
            metric = {"diabetes": "mae", "poems": "perplexity", "shapes": "mean-iou"}[task]
            with (tmp_path / "runs" / task / "rounds.csv").open() as file:
                rows = list(csv.DictReader(file))
            assert float(rows[-1][metric]) > 0
            assert [row["received"] for row in rows[1:]] == ["3", "3"], words
    finally:
        federation.stop()
