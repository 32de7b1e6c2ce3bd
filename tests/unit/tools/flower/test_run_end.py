"""How the launcher ends."""

import shlex
from pathlib import Path

import pytest
from forager.server_app.run_folder import RunFolder
from forager.tools.cli.diagnose import examined
from forager.tools.experiments.compare.candidates import parse_candidates
from forager.tools.flower import run
from forager.tools.flower.plan import RunPlan


def test_the_next_command_is_about_the_same_data() -> None:
    asked = {
        "strategy": "ios-centred",
        "task": "hf:shop.csv",
        "data.target-column": "label",
        "partition": "natural",
        "num-clients": 4,
        "data.client-test-share": 0.2,
        "ios.share": 0.1,
        "run-name": "csv",
    }
    said = run.suggestions(asked, Path("runs/csv"))
    keys = "task='hf:shop.csv' data.target-column='label' partition='natural' num-clients=4"
    row = '"ios-centred ios.share=0.1"'
    assert f'compare {row} fedavg --goal clients -c "{keys}"' in said
    assert max(map(len, said.splitlines()[1:3])) < 120  # a long command does not push others away
    assert "--goal" not in run.suggestions({"strategy": "cosage"}, Path("runs/csv"))


def test_the_next_command_compares_what_was_run() -> None:
    asked = {"strategy": "fedavg", "privacy": "local-dp", "client-selector": "hics"}
    said = run.suggestions(asked, Path("runs/one"))
    (line,) = [line for line in said.splitlines() if " compare " in line]
    words = shlex.split(line)
    assert words[2] == "fedavg privacy='local-dp' client-selector='hics'"
    assert words[3] == "fedavg"
    assert parse_candidates(words[2:3])[0].settings == asked
    same = run.suggestions({"strategy": "fedavg", "uplink": "dense"}, Path("runs/one"))
    assert " compare fedavg cosage" in same  # not with itself


def test_after_an_examination_the_next_command_is_its_diagnosis() -> None:
    said = run.suggestions(examined({"num-clients": 9}, 12), Path("runs/one"))
    assert "diagnose runs/one --target 0.9" in said
    assert "compare" not in said
    assert "demo" not in said


def test_the_next_command_can_be_run_as_it_stands() -> None:
    asked = {
        **{"strategy": "ode-paper", "privacy": "local-dp"},
        **{"ode.noise": 1.0, "ode.coordinate": False, "stream.capacity": 5},
    }
    said = run.suggestions(asked, Path("runs/one"))
    (line,) = [line for line in said.splitlines() if " compare " in line]
    (first, second) = parse_candidates(shlex.split(line)[2:4])
    assert first.settings == {**asked, "strategy": "ode"}  # without these it would be refused
    assert second.settings == {"strategy": "ode"}


@pytest.mark.parametrize(("reason", "code"), [("completed", 0), (None, run.INTERRUPTED)])
def test_a_run_that_was_quicker_than_ctrl_c_is_not_called_stopped(
    reason: str | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    folder = RunFolder.create(tmp_path / "runs", "one")
    folder.append_event({"event": "run-started", "strategy": "fedavg on digits", "config": {}})
    if reason:
        folder.append_event({"event": "run-finished", "reason": reason, "rounds": 3})
    assert run._interrupted(RunPlan({}, 2, folder.path), home, "received SIGINT") == code
    said = capsys.readouterr()
    assert ("completed before it was stopped" in said.err) == (code == 0)
    assert ("The run was stopped (received SIGINT)" in said.err) == (code != 0)
    assert ("Next:" in said.out) == (code == 0)
    assert not home.exists()
