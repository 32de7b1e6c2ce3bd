"""On a device a process forks for every message, so that Flower is imported once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forager.tools.flower.env import PROJECT

LEAN = PROJECT / "docker" / "lean"
# In place of the lean program: it says who it is, and how it was called.
CLIENTAPP = """
import json, os, random, signal, sys
import numpy as np
open("imports", "a").write("once\\n")
def program():
    def run():
        usual = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        told = [sys.argv, os.getppid(), usual, np.random.random(), random.random()]
        with open(f"{sys.argv[-1]}.new", "w") as file:
            json.dump(told, file)
        os.rename(f"{sys.argv[-1]}.new", f"{sys.argv[-1]}.json")
        sys.exit(0)
    return run
"""
# SuperExec's part without Flower: the launcher, and what comes of its requests.
DRIVER = """
import os, pathlib, runpy, signal, socket, sys, time
superexec = runpy.run_path(sys.argv[1])
ours, its = socket.socketpair()
ready = os.fork()
if ready == 0:
    ours.close()
    superexec["answer"](its)
    sys.exit(3)
its.close()
launch = superexec["Launcher"](ours)
def launched(name, **how):
    launch(["flwr-clientapp", "--token", name], **how)
    deadline = time.monotonic() + 60
    while not pathlib.Path(f"{name}.json").exists():
        assert time.monotonic() < deadline, name
        time.sleep(0.02)
launched("one"); launched("two")
children = pathlib.Path(f"/proc/{ready}/task/{ready}/children")
deadline = time.monotonic() + 60
while children.read_text():  # no copy that has ended may stay
    assert time.monotonic() < deadline
    time.sleep(0.02)
print(ready)
if sys.argv[2] == "killed":
    os.kill(ready, signal.SIGKILL)
else:
    ours.close()
print(os.waitstatus_to_exitcode(os.waitpid(ready, 0)[1]))
launched("three")
"""


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_a_process_that_is_ready_forks_and_others_start_when_it_has_ended(
    end: str, tmp_path: Path
) -> None:
    shutil.copy(LEAN / "flower-superexec", tmp_path)
    (tmp_path / "flwr-clientapp").write_text(CLIENTAPP)
    (tmp_path / "bin").mkdir()
    started = tmp_path / "bin" / "flwr-clientapp"  # what a search path leads to
    started.write_text('#!/bin/sh\nprintf \'["started"]\' > "$2.json"\n')
    started.chmod(0o755)
    path = os.pathsep.join([str(started.parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "flower-superexec"), end],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    ready, code = map(int, done.stdout.split())
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    for told, name in ((one, "one"), (two, "two")):
        assert told[:3] == [["flwr-clientapp", "--token", name], ready, True]
    assert one[3] != two[3], "copies draw the same numbers"
    assert one[4] != two[4]
    assert (tmp_path / "imports").read_text() == "once\n"
    assert code == (-9 if end == "killed" else 0)
    assert json.loads((tmp_path / "three.json").read_text()) == ["started"]


def test_it_is_flowers_superexec_and_can_be_started() -> None:
    program = LEAN / "flower-superexec"
    assert os.access(program, os.X_OK)
    done = subprocess.run(
        [sys.executable, str(program), "--help"], capture_output=True, text=True, check=True
    )
    assert "--runtime-api-address" in done.stdout
