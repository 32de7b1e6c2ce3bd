"""The app that `forager init` writes: Flower takes it, and every command works in its folder."""

import importlib
import json
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from forager.tools.cli.app import main
from forager.tools.cli.options import REFUSED
from forager.tools.flower.env import PROGRAMS, PROJECT, environment, run_config
from forager.tools.flower.packing import copy_to_pack, own_code
from safetensors.torch import load_file
from torch import nn

NAME, MODULE = "moon-shot", "moon_shot"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        monkeypatch.delitem(sys.modules, module)
    assert main(["init", NAME]) == 0
    monkeypatch.chdir(tmp_path / NAME)
    return tmp_path / NAME


def build(app: Path, tmp_path: Path) -> zipfile.ZipFile:
    env = environment(tmp_path / "home")
    done = subprocess.run(
        [PROGRAMS / "flwr", "build", "--app", app],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("*.fab")
    return zipfile.ZipFile(file)


def test_flower_packs_it_and_nothing_is_called_as_in_the_template(
    app: Path, tmp_path: Path
) -> None:
    bundle = build(app, tmp_path)
    files = {name for name in bundle.namelist() if not name.startswith(".info")}
    assert files == {
        *("LICENSE", "README.md", "pyproject.toml", f"{MODULE}/__init__.py"),
        *(f"{MODULE}/{name}.py" for name in ("client_app", "server_app", "task")),
    }
    assert bundle.read("LICENSE").strip().startswith(b"Apache License")
    for file in (path for path in app.rglob("*") if path.is_file()):
        assert not re.search("my.federation", file.read_text()), file
    assert (app / "README.md").read_text().startswith("---\ntags: [")


def test_the_hub_takes_it(app: Path) -> None:
    """`make hub` asks Flower's newest version, too."""
    program = PROJECT / "tests" / "hub" / "validate.py"
    done = subprocess.run(
        [sys.executable, program, app], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "9 files, " in done.stdout
    (app / "LICENSE").unlink()
    done = subprocess.run(
        [sys.executable, program, app], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "LICENSE" in done.stderr


def test_keys_that_it_does_not_declare_travel_in_the_copy(app: Path, tmp_path: Path) -> None:
    given = {"round.deadline": 5.0, "strategy": "cosage", "task": f"{MODULE}.task:Task"}
    copy = copy_to_pack(app, tmp_path / "copy", own_code(given, app), given)
    build(copy, tmp_path)
    declared, before = run_config(copy), run_config(app)
    assert before is not None
    assert declared == {**before, **given}


def test_from_a_new_folder_to_a_prediction(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = "strategy='fedavg' num-server-rounds=3 run-name='first' report=false"
    assert main(["run", "--local", "-c", keys]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^rounds +3 in ", said, re.MULTILINE)
    config = json.loads((app / "runs/first/config.json").read_text())
    assert config["overrides"]["task"] == f"{MODULE}.task:Task"
    assert config["num-clients"] == 8

    assert main(["resume", "--local", "-c", "num-server-rounds=4"]) == 0  # its own code is trusted
    assert re.search(r"^rounds +4\b", capsys.readouterr().out, re.MULTILINE)
    (app / "runs/first/config.json").write_text(json.dumps({**config, "runs-on": "devices"}))
    assert main(["resume"]) == REFUSED
    line = capsys.readouterr().err.splitlines()[-1]  # what the app would otherwise set, and no more
    assert "strategy='fedavg' " in line
    assert "num-clients" not in line
    (app / "runs/first/config.json").write_text(json.dumps(config))
    assert main(["report"]) == 0
    assert (app / "runs/first/report.html").exists()

    data = importlib.import_module(f"{MODULE}.task").Task().data()
    np.savez("new.npz", x=data["x_test"], y=data["y_test"])
    capsys.readouterr()
    assert main(["predict", "latest", "new.npz", "--out", "answers.npz"]) == 0
    accuracy = re.search(r"accuracy: ([0-9.]+) %", capsys.readouterr().out)
    assert accuracy
    assert float(accuracy[1]) > 80
    # Without Forager: the module, and its arrays
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    model.load_state_dict(load_file("runs/first/best.safetensors"))
    expected = model(torch.from_numpy(data["x_test"])).argmax(1).numpy()
    assert main(["predict", "latest", "new.npz", "--out", "best.npz", "--best"]) == 0
    with np.load("best.npz") as answers:
        np.testing.assert_array_equal(answers["classes"], expected)
    if find_spec("onnxscript") is None:
        assert main(["export", "latest", "--onnx", "model.onnx"]) == REFUSED
        assert "pip install 'forager-fl[onnx]'" in capsys.readouterr().err
    else:
        assert main(["export", "latest", "--onnx", "model.onnx"]) == 0
        assert (app / "model.onnx").stat().st_size > 0
    with np.load("answers.npz") as answers:
        assert answers["classes"].shape == (400,)
        np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, rtol=1e-5)
    np.savez("wide.npz", x=np.zeros((3, 5), np.float32))
    assert main(["predict", "latest", "wide.npz"]) == REFUSED
    assert "does not fit inputs of shape (5,)" in capsys.readouterr().err


def test_elsewhere_its_code_is_somebody_elses(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "strategy='fedavg' num-server-rounds=1 run-name='one' report=false"
    assert main(["run", "--local", "-c", keys]) == 0
    monkeypatch.chdir(app.parent)
    assert main(["resume", f"{NAME}/runs/one", "--local"]) == REFUSED
    assert "--trust" in capsys.readouterr().err  # the folder names code: ask first


def test_a_comparison_takes_what_the_app_says(app: Path, tmp_path: Path) -> None:
    arguments = ["fedavg", "--seeds", "1", "--budget", "1 rounds", "--processes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "forager.tools.cli", "compare", *arguments],
        env=environment(tmp_path / "home") | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "page: comparisons/moon-shot.task-Task/compare-fedavg-" in done.stdout


def test_what_is_there_is_not_written_over(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (app / "README.md").write_text("precious")
    assert main(["init", str(app)]) == REFUSED
    assert "exists already" in capsys.readouterr().err
    assert (app / "README.md").read_text() == "precious"
