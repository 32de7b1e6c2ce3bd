"""The defaults that an environment gets for Flower."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forager.tools.flower import env


@pytest.mark.parametrize("ray", [None, object()], ids=["without Ray", "with Ray"])
def test_setting_up_an_environment_says_if_ray_is_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ray: object,
) -> None:
    monkeypatch.setattr(env.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(env.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(env, "find_spec", lambda name: ray)
    env.main()
    assert ("pip install 'forager-fl[simulation]'" in capsys.readouterr().out) == (ray is None)
    (written,) = tmp_path.glob("*.pth")
    bare = {key: value for key, value in os.environ.items() if not key.startswith("FLWR_")}
    code = f"{written.read_text()}\nprint(e['FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION'])"
    said = subprocess.run(
        [sys.executable, "-IS", "-c", code], env=bare, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "1"


def test_simulated_clients_are_not_put_behind_every_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "RAY_worker_niceness"  # Ray's own default is 15
    monkeypatch.delenv(name, raising=False)
    assert env.environment(tmp_path)[name] == env.defaults(tmp_path)[name] == "0"
    monkeypatch.setenv(name, "5")
    assert env.environment(tmp_path)[name] == "5"


def test_commands_are_as_short_as_this_terminal_allows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "forager"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(env, "PROGRAMS", program.parent)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert env.command_name() == "bin/forager"
    monkeypatch.setenv("PATH", str(program.parent))
    assert env.command_name() == "forager"
