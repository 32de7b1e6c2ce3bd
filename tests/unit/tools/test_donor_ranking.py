"""``forager donors``: the ranking of donors, and how far it agrees with the truth."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.config import read_config
from forager.core.tasks import Split, load_task
from forager.server_app.run_folder import RunFolder
from forager.tools.cli.app import main
from forager.tools.donor_ranking import donors_table, rank_donors, shapley_matrix
from forager.tools.engine.local import run_local
from scipy.spatial.distance import jensenshannon
from scipy.stats import kendalltau

RUN: dict[str, Any] = {
    "strategy": "ios",
    "num-clients": 8,
    "client-selector": "all",
    "partition": "pathological",
    "num-server-rounds": 3,
    "local-epochs": 3,
    "model": "mlp",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_local({**RUN, "output-dir": str(tmp_path_factory.mktemp("runs"))}).folder


def last_similarities(run: Path) -> np.ndarray:
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return np.array([line for line in lines if line["event"] == "similarity"][-1]["matrix"])


def test_the_ranking_is_that_of_the_events_and_agrees_with_labels_as_scipy_says(run: Path) -> None:
    found = rank_donors(RunFolder.open(run))
    matrix = last_similarities(run)
    task = load_task(read_config(RUN).task_spec())
    held = [task.client_data(i, 8).train.y.numpy() for i in range(8)]
    shares = np.array([np.bincount(y, minlength=10) / len(y) for y in held])
    taus, recalls = [], []
    for row in range(8):
        others = [i for i in range(8) if i != row]
        assert found.donors(str(row)) == [
            str(i) for i in sorted(others, key=lambda i: (-matrix[row, i], i))
        ]
        truth = [1 - jensenshannon(shares[row], shares[i], base=2) ** 2 for i in others]
        own = matrix[row, others]
        taus.append(kendalltau(own, np.round(truth, 12)).statistic)
        best = [set(np.argsort(-np.asarray(each), kind="stable")[:5]) for each in (own, truth)]
        recalls.append(len(best[0] & best[1]) / 5)
    assert found.scores["Kendall's tau, labels"] == pytest.approx(np.mean(taus), abs=1e-6)
    assert found.scores["Recall@5, labels"] == pytest.approx(np.mean(recalls))
    assert found.scores["Kendall's tau, labels"] > 0.2  # clients have two classes each


def test_the_command_prints_it_and_adds_it_to_events_and_report_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "run")
    for _ in range(2):
        assert main(["donors", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    found = rank_donors(RunFolder.open(run))
    assert ", ".join(found.donors("3")[:5]) in printed
    for name, score in found.scores.items():
        assert f"{name}: {score:.3f}" in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<summary>Donors: who could help whom</summary>" in page
    assert "tau, labels" in page
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert sum('"alignment"' in line for line in events) == 1


def test_all_donors_of_one_client(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = donors_table(rank_donors(RunFolder.open(run)), "3").rows[1:]
    assert sorted(row[0] for row in rows) == ["0", "1", "2", "4", "5", "6", "7"]
    scores = [float(row[1]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert main(["donors", str(run), "--of", "nobody"]) == 2
    assert "--of 'nobody': not among 0, 1" in capsys.readouterr().err


def test_without_the_data_the_ranking_is_left(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "run")
    events = tmp_path / "run" / "events.jsonl"
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    for line in lines:
        if line["event"] == "similarity":
            line["clients"] = [f"camera-{key}" for key in line["clients"]]
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["donors", str(tmp_path / "run")]) == 0
    assert "cannot be loaded here" in capsys.readouterr().out
    assert rank_donors(RunFolder.open(tmp_path / "run")).truths == {}


def test_a_run_that_compared_nobody_says_how_one_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run_local({"num-server-rounds": 1, "num-clients": 3, "output-dir": str(tmp_path)})
    assert main(["donors", str(plain.folder)]) == 2
    said = capsys.readouterr().err
    assert "no similarities of clients are among its events" in said
    assert "strategy='ios'" in said
    assert main(["donors", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_code_that_a_stranger_names_is_not_run(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | {"task": "theirs:Task"}))
    assert main(["donors", str(tmp_path / "run")]) == 2


def test_a_client_with_the_same_data_is_worth_most() -> None:
    task = load_task(read_config({"partition": "iid", "num-clients": 4}).task_spec())
    one, two = (task.client_data(i, 4).train for i in (0, 1))
    wrong = Split(one.x, (one.y + 1) % 10)
    worth = shapley_matrix([one, wrong, one, two])
    assert worth[0].argmax() == 2
    assert worth[0, 1] < 0 < worth[0, 3]
