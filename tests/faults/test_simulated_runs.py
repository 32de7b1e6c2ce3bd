"""Flower's simulation as `make run` starts it: your own task, a failed run, a killed launcher."""

import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from forager.tools.flower import run as flower_run
from forager.tools.flower.env import FLOWER_HOME
from own_task_page import command, prepare
from test_flwr_run import Launcher, read_end, settings

pytestmark = pytest.mark.timeout(3600)


def test_ones_own_task_runs_as_its_page_says(tmp_path, monkeypatch):
    prepare(tmp_path)
    (chosen,) = command("make", "run")
    chosen = chosen.removeprefix("CONFIG=").replace("/data/", f"{tmp_path}/")
    chosen += f" num-server-rounds=3 output-dir='{tmp_path}/runs' run-name='own' report=false"
    path = f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}"  # where mymodel.py is
    monkeypatch.setenv("PYTHONPATH", path.removeprefix(":"))
    with Launcher(tmp_path, chosen) as launcher:
        said = launcher.wait()
        assert launcher.exit_code == 0, said
    accuracy = re.search(r"final accuracy +([0-9.]+) %", said)
    assert float(accuracy[1]) > 85
    assert re.search(r"clients chosen +\d of 8", said)


def test_a_run_that_fails_tells_why(tmp_path):
    missing = tmp_path / "no-such-run"
    with Launcher(tmp_path, settings(num_clients=2, resume_from=str(missing))) as launcher:
        said = launcher.wait()
        assert launcher.exit_code == flower_run.FAILED, said
        assert f"The run failed: resume-from = '{missing}': neither a checkpoint" in said
        assert "Traceback" not in said
        assert launcher.family() == []
    found = re.search(r"^Logs: (.+)$", said, re.MULTILINE)
    assert found, said
    logs = Path(found[1])
    assert "CheckpointError" in (logs / "run.log").read_text()
    assert logs.parent == FLOWER_HOME / "runs"
    shutil.rmtree(logs)


def test_a_killed_launcher_leaves_nothing_running(tmp_path):
    chosen = {"num_clients": 2, "num_server_rounds": 5000, "run_name": "killed"}
    with Launcher(tmp_path, settings(output_dir=str(tmp_path), **chosen)) as launcher:
        launcher.wait(until="round 2/5000")
        assert len(launcher.family()) > 3
        launcher.process.kill()
        deadline = time.monotonic() + 60
        while launcher.family():
            assert time.monotonic() < deadline, launcher.family()
            time.sleep(0.2)
    assert read_end(tmp_path / "killed")["reason"] == "killed"
