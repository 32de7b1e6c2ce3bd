"""A program ends with the process that started it, even if that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forager.tools.flower.env import PROJECT
from forager.tools.flower.processes import process_table

# Starts a program whose child leads a session of its own and ignores SIGTERM, as Ray's may.
LAUNCHER = """
import os, sys, time
from pathlib import Path
from forager.tools.flower.guardian import guarded
from forager.tools.flower.processes import Program
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
parent = f'''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
'''
folder = Path(sys.argv[1])
command = [sys.executable, "-c", parent]
with Program(command, env=os.environ, cwd=folder, log=folder / "log.txt") as program:
    with guarded(program.process.pid, folder / "scratch", folder / "run"):
        program.wait_for(lambda: (folder / "log.txt").read_text().strip(), 60)
        time.sleep(2)  # the guardian looks once a second
        print(program.process.pid, (folder / "log.txt").read_text().strip(), flush=True)
        sys.stdin.read()
"""


def running(pids: list[int]) -> list[int]:
    return [p.pid for p in process_table() if p.pid in pids and p.state != "Z"]


def start(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    (folder / "scratch").mkdir()
    (folder / "run").mkdir()
    (folder / "run" / "events.jsonl").write_text('{"event": "round-finished", "round": 3}\n')
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert launcher.stdout is not None
    return launcher, [int(pid) for pid in launcher.stdout.readline().split()]


def test_what_a_killed_launcher_started_ends(tmp_path: Path) -> None:
    launcher, pids = start(tmp_path)
    assert len(running(pids)) == 2
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    deadline = time.monotonic() + 60
    while running(pids) or (tmp_path / "scratch").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    last = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["reason"], last["rounds"]) == ("run-finished", "killed", 3)


def test_a_launcher_that_ends_by_itself_needs_no_guardian(tmp_path: Path) -> None:
    launcher, pids = start(tmp_path)
    assert launcher.stdin is not None
    launcher.stdin.close()
    assert launcher.wait(60) == 0
    assert running(pids) == []
    assert (tmp_path / "scratch").exists()  # the launcher's own to remove
    assert len((tmp_path / "run" / "events.jsonl").read_text().splitlines()) == 1


pytestmark = pytest.mark.timeout(180)
