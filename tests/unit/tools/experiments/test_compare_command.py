"""The command as a whole, with made-up runs in real worker processes."""

import json
import re
from pathlib import Path

import pytest
from forager.tools.experiments.compare.command import main
from forager.tools.experiments.compare.progress import ComparisonProgress
from forager.tools.experiments.records import Record

STRATEGIES = ["fedavg", "fedprox", "fedyogi", "scaffold", "cosage"]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("FAKE_CALLS", str(path))
    # Drawing takes longer than all the rest; the page has tests of its own.
    monkeypatch.setattr(
        "forager.tools.experiments.compare.command.render", lambda found: f"page of {found['best']}"
    )
    return path


def taken(calls: Path) -> list[str]:
    lines = sorted(calls.read_text().splitlines())
    calls.write_text("")
    return lines


def run(folder: Path, *more: str) -> int:
    arguments = ["--strategies", *STRATEGIES, "--seeds", "2", "--budget", "30", "--processes", "1"]
    return main([*arguments, "--out", str(folder), *more], runner="fake_candidates:run")


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
    found = json.loads((folder / "compare.json").read_text())
    assert found["recommended"] == "fedyogi"
    assert (folder / "compare.html").read_text() == "page of fedyogi"
    assert [stage["strategies"] for stage in found["stages"]] == [
        STRATEGIES,
        ["fedavg", "fedyogi"],
    ]
    assert run(folder) == 0  # nothing is left to do
    assert taken(calls) == []
    assert run(folder, "--to-the-end") == 0  # only what was dropped is missing
    assert {line.split()[0] for line in taken(calls)} == {"fedprox", "scaffold", "cosage"}


def test_what_was_interrupted_goes_on_with_the_same_command(
    tmp_path: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, advance = tmp_path / "out", ComparisonProgress.advance

    def stop(progress: ComparisonProgress, record: Record) -> None:
        advance(progress, record)
        if progress.finished == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ComparisonProgress, "advance", stop)
        assert run(folder) == 130
    assert "the same command continues from here" in capsys.readouterr().err
    assert not (folder / "compare.json").exists()
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
    assert "Failed: scaffold (2 runs); runs.jsonl says why." in capsys.readouterr().out
    monkeypatch.delenv("FAKE_BROKEN")
    taken(calls)
    assert run(tmp_path / "out") == 0
    assert taken(calls) == ["scaffold 0 10", "scaffold 1 10"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "ten"], "budget 'ten': expected a number"),
        (["--strategies", "fedagv"], "did you mean 'fedavg'?"),
        (["--seeds", "0"], "seeds = 0: must be 1 or more"),
        (["--goal", "clients", "-c", "data.client-test-share=0.0"], "clients need test data"),
        (["--budget", "5 min", "-c", "devices.slow=false"], "no simulated time ever passes"),
        (["-c", "seed=3"], "seed = 3: a comparison sets this itself"),
        (["-c", "learning-rate='fast'"], "learning-rate = 'fast'"),
    ],
)
def test_wrong_options_end_with_a_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
