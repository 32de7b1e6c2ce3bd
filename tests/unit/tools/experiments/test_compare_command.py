"""The command as a whole, with made-up runs in real worker processes."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.config import default_config, read_config
from forager.core.tasks import load_task
from forager.tools.cli.app import main as forager
from forager.tools.experiments.compare.command import Options, run_comparison
from forager.tools.experiments.compare.schema import Document
from forager.tools.experiments.fingerprint import fingerprint
from forager.tools.experiments.progress import SweepProgress
from forager.tools.experiments.records import SweepRecord

STRATEGIES = ["fedavg", "fedprox", "fedyogi", "scaffold", "cosage"]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("FAKE_CALLS", str(path))
    # Drawing takes longer than all the rest; the page has tests of its own.
    monkeypatch.setattr(
        "forager.tools.experiments.compare.command.render", lambda found: f"page of {found.best}"
    )
    return path


def taken(calls: Path) -> list[str]:
    lines = sorted(calls.read_text().splitlines())
    calls.write_text("")
    return lines


def run(folder: Path, *more: str, **options: Any) -> int:
    given = Options([*STRATEGIES, *more], seeds=2, budget="30", processes=1, out=folder)
    return run_comparison(replace(given, **options), runner="fake_candidates:run")


def written(folder: Path, kind: str = "json") -> list[Path]:
    return sorted(folder.glob(f"compare-*.{kind}"))


def test_it_drops_the_hopeless_early_and_tells_what_to_run(
    tmp_path: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert run(folder) == 0
    assert taken(calls) == sorted(
        [f"{name} {seed} 10" for name in STRATEGIES for seed in (0, 1)]
        + [f"{name} {seed} 30" for name in ("fedavg", "fedyogi") for seed in (0, 1)]
    )
    said = capsys.readouterr()
    assert "Run fedyogi: it beats fedavg by 20.0 points" in said.out
    assert re.search(r"^\[14/14\] .* about 0:00:00 left$", said.err, re.MULTILINE)
    (file,) = written(folder)
    found = json.loads(file.read_text())
    assert found["recommended"] == "fedyogi"
    assert file.with_suffix(".html").read_text() == "page of fedyogi"
    assert [stage["strategies"] for stage in found["stages"]] == [
        STRATEGIES,
        ["fedavg", "fedyogi"],
    ]
    assert run(folder) == 0  # nothing is left to do
    assert taken(calls) == []
    assert run(folder, to_the_end=True) == 0  # only what was dropped is missing
    assert {line.split()[0] for line in taken(calls)} == {"fedprox", "scaffold", "cosage"}


def test_a_script_gets_json_by_the_schema_and_an_exit_code(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    monkeypatch.setenv("FAKE_BROKEN", "scaffold")
    assert run(folder, json=True) == 1
    said = capsys.readouterr().out
    found = Document.model_validate_json(said)  # nothing else is printed
    (file,) = written(folder)
    assert file.read_text() == said
    assert (found.recommended, found.goal) == ("fedyogi", "server")
    assert found.page == str(file.with_suffix(".html"))
    broken = json.loads(said)["strategies"][-1]
    assert (broken["name"], broken["failed"], broken["score"]["mean"]) == ("scaffold", 2, None)
    assert not found.command.endswith("--json")
    schema = Document.model_json_schema()
    assert set(schema["properties"]) == set(json.loads(said))
    assert {"type": "null"} in schema["$defs"]["Estimate"]["properties"]["mean"]["anyOf"]


def test_what_was_interrupted_goes_on_with_the_same_command(
    tmp_path: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, advance = tmp_path / "out", SweepProgress.advance

    def stop(progress: SweepProgress, record: SweepRecord) -> None:
        advance(progress, record)
        if progress.finished == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SweepProgress, "advance", stop)
        assert run(folder) == 130
    assert "the same command continues from here" in capsys.readouterr().err
    assert not written(folder)
    assert len((folder / "runs.jsonl").read_text().splitlines()) == 3
    taken(calls)
    assert run(folder) == 0
    assert len(taken(calls)) == 14 - 3
    capsys.readouterr()

    def stop_drawing(found: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("forager.tools.experiments.compare.command.render", stop_drawing)
        assert run(folder) == 130
    assert run(folder) == 0
    assert "Run fedyogi" in capsys.readouterr().out


def test_a_strategy_that_fails_does_not_stop_the_others(
    tmp_path: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAKE_BROKEN", "scaffold")
    assert run(tmp_path / "out") == 1
    assert "Failed: scaffold (2 runs); runs.jsonl has the reasons." in capsys.readouterr().out
    monkeypatch.delenv("FAKE_BROKEN")
    taken(calls)
    assert run(tmp_path / "out") == 0
    assert taken(calls) == ["scaffold 0 10", "scaffold 1 10"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "ten"], "budget 'ten': expected a number"),
        (["fedagv"], "did you mean 'fedavg'?"),
        (["--seeds", "0"], "seeds = 0: must be 1 or more"),
        (["--goal", "clients", "-c", "data.client-test-share=0.0"], "clients need test data"),
        (["--budget", "5 min", "-c", "devices.slow=false"], "no simulated time ever passes"),
        (["--goal", "both"], "goal = 'both': allowed are server, clients"),
        (["-c", "seed=3"], "seed = 3: a comparison sets this; use --seeds"),
        (["-c", "num-server-rounds=5"], "num-server-rounds = 5: a comparison sets this; use --bud"),
        (["-c", "learning-rate='fast'"], "learning-rate = 'fast'"),
    ],
)
def test_wrong_options_end_with_a_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert forager(["compare", *arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_runs_are_done_again_when_the_data_or_own_code_change(
    tmp_path: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(0)
    data = {"x_train": rng.normal(size=(80, 3)), "x_test": rng.normal(size=(20, 3))}
    labels = {"y_train": np.arange(80) % 2, "y_test": np.arange(20) % 2}
    np.savez(tmp_path / "mine.npz", **data, **labels)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "widths.py").write_text("WIDTH = 4")
    (tmp_path / "mymodel.py").write_text(
        "import widths\nfrom torch import nn\n"
        "def build(shape, classes):\n"
        "    inner = widths.WIDTH\n"
        "    return nn.Sequential(nn.Linear(*shape, inner), nn.Linear(inner, classes))"
    )
    keys = f"task='npz' data.path='{tmp_path}/mine.npz' model='mymodel:build' num-clients=4"

    def compared() -> tuple[int, str]:
        load_task.cache_clear()
        options = Options(["fedavg", "fedprox"], [keys], seeds=1, budget="3", processes=1)
        options = replace(options, out=tmp_path / "out")
        assert run_comparison(options, runner="fake_candidates:run") == 0
        return len(taken(calls)), capsys.readouterr().err

    assert compared()[0] == 2
    count, said = compared()
    assert count == 0
    assert "reused: 2 earlier runs" in said
    assert "checked for changes: mine.npz, mymodel.py, widths.py" in said
    np.savez(tmp_path / "mine.npz", **data, y_train=rng.integers(0, 2, 80), y_test=labels["y_test"])
    count, said = compared()
    assert count == 2
    assert "reused: 0 earlier runs" in said
    assert "earlier runs on other data or code are not reused" in said
    (tmp_path / "widths.py").write_text("WIDTH = 5  # the model is another")
    assert compared()[0] == 2
    assert compared()[0] == 0


def test_the_data_that_a_task_of_ones_own_reads_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clinics_task.py").write_text(
        "from pathlib import Path\nimport numpy as np\n"
        "def load():\n"
        "    y = np.loadtxt(Path(__file__).parent / 'targets.txt')\n"
        "    x = np.arange(len(y), dtype=np.float32)[:, None]\n"
        "    return {'x_train': x, 'y_train': y, 'x_test': x, 'y_test': y}"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    config = read_config({**default_config(), "task": "clinics_task:load"})
    found = []
    for shift in (0.5, 0.5, 0.7):
        np.savetxt(tmp_path / "targets.txt", np.arange(30) + shift)
        load_task.cache_clear()
        task = load_task(config.task_spec())
        found.append(fingerprint(config.flat(), task, 3, tmp_path / "cache.json"))
    assert found[0] == found[1] != found[2]


def test_a_comparison_says_its_goal_first_and_keeps_the_page_of_another(
    tmp_path: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert run(folder) == 0
    said = capsys.readouterr()
    assert "goal: accuracy on the server's test data decides (--goal clients" in said.err
    assert "Judged by accuracy on the server's test data:\nRun fedyogi" in said.out
    assert "cosage: client-selector='cosage' weighting='uniform' uplink='top-k-plain'" in said.out
    assert "Add \"fedavg uplink='top-k-plain'\" to separate the effects" in said.out
    assert run(folder, "fedavg uplink='top-k-plain'") == 0
    said = capsys.readouterr()
    assert "differ in more than selection: cosage (uplink='top-k-plain')" in said.out
    assert "to separate the effects" not in said.out
    assert run(folder, seeds=3) == 0  # the same comparison, with more seeds
    assert len(written(folder)) == len(written(folder, "html")) == 2
