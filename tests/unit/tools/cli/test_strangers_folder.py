"""A run's folder from somebody else: no command runs code that it names or brings along."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forager.core.config.overrides import own_modules
from forager.server_app.run_folder import RunFolderError
from forager.tools.engine.local import run_local
from forager.tools.flower.env import PROJECT
from forager.tools.predict import load_model

EVIL = """
from pathlib import Path
Path("ran").touch()
def task(*_): raise RuntimeError("ran")
build = make = task
"""
KEYS = {
    "task": "evil:task",
    "model": "evil:build",
    "optimiser.name": "evil:make",
    "callbacks": "prometheus, evil:make",
}
# Modules that commands import, or that something which they import would like to have
SHADOWS = ("rich", "matplotlib", "safetensors", "webbrowser", "cupy", "triton", "tensorboard")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {"task": "blobs", "num-clients": 3, "num-server-rounds": 1, "report": False}
    return run_local({**keys, "output-dir": str(tmp_path_factory.mktemp("runs"))}).folder


@pytest.fixture
def theirs(finished: Path, tmp_path: Path) -> Path:
    """The folder of a run that names a module which lies in it."""
    folder = tmp_path / "theirs"
    subprocess.run(["cp", "-r", str(finished), str(folder)], check=True)
    config = json.loads((folder / "config.json").read_text())
    config.update(KEYS, overrides={**config["overrides"], **KEYS})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(EVIL)
    np.savez(folder / "new.npz", x=np.zeros((2, 2), np.float32))
    return folder


def said(folder: Path, *arguments: str) -> str:
    """Run the installed command inside the folder, as people do; return what it says."""
    start = f"import sys; sys.path[0] = {str(PROJECT)!r}; "
    start += "from forager.tools.cli.app import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", ".", "new.npz"),
        ("report", "."),
        ("resume", ".", "--local", "-c", "num-server-rounds=2"),
        ("resume", ".", "-c", "num-server-rounds=2"),
        ("watch", "."),
    ],
    ids=" ".join,
)
def test_no_command_runs_what_a_folder_names_or_brings(
    theirs: Path, arguments: tuple[str, ...]
) -> None:
    for name in SHADOWS:
        (theirs / f"{name}.py").write_text(EVIL)
    text = said(theirs, *arguments)
    assert not (theirs / "ran").exists(), text
    assert "Traceback" not in text
    if arguments[0] in ("predict", "resume"):
        assert "--trust" in text
        assert "evil" in text


def test_who_trusts_a_folder_gets_its_code(theirs: Path) -> None:
    for arguments in (("predict", ".", "new.npz"), ("resume", ".", "--local")):
        said(theirs, *arguments, "--trust")
        assert (theirs / "ran").exists()
        (theirs / "ran").unlink()


def test_what_the_user_names_needs_no_trust(theirs: Path) -> None:
    config = json.loads((theirs / "config.json").read_text())
    config["overrides"] = {"task": "evil:task", "num-clients": 3}
    (theirs / "config.json").write_text(json.dumps(config))
    assert "--trust" in said(theirs, "resume", ".", "--local")
    assert "--trust" not in said(theirs, "resume", ".", "--local", "-c", "task='evil:task'")
    assert (theirs / "ran").exists()


def test_a_model_is_loaded_with_own_code_only_if_asked(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(theirs)
    monkeypatch.chdir(theirs)
    with pytest.raises(RunFolderError, match="evil"):
        load_model(theirs, (2,))
    assert "evil" not in sys.modules


def test_modules_are_found_wherever_a_config_names_them() -> None:
    assert own_modules(KEYS) == {"evil": "task = 'evil:task'"}
    others = {"task": "hf:some/set", "model": "frozen:efficientnet-lite0"}
    assert list(own_modules({**others, "callbacks": "a:b, c.d:e"})) == ["a", "c.d"]
    assert own_modules({"task": "digits", "model": 3, "callbacks": "mlflow,wandb"}) == {}
