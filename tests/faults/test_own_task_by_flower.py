"""docs/your-own-task.md by Flower's simulation, as `make run` starts it."""

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from own_task_page import command, prepare
from test_flwr_run import Launcher

pytestmark = pytest.mark.timeout(900)


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
