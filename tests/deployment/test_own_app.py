"""From an empty folder to a federation: `forager init`, `forager server`, `forager node`."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from federation import START_SECONDS, listens
from forager.tools.flower.env import PROGRAMS, PROJECT, environment
from forager.tools.flower.processes import Program, free_port

pytestmark = pytest.mark.timeout(900)
FORAGER = [sys.executable, "-m", "forager.tools.cli"]


def test_three_nodes_train_an_app_of_somebodys_own(tmp_path: Path) -> None:
    env = environment(tmp_path / "home") | {"PYTHONPATH": str(PROJECT)}
    subprocess.run([*FORAGER, "init", "my-fleet"], cwd=tmp_path, env=env, check=True)
    app = tmp_path / "my-fleet"
    fleet, control = free_port(), free_port()
    where = ["--state-dir", str(tmp_path / "server")]
    ports = ["--port", str(fleet), "--control-port", str(control)]
    programs: list[Program] = []
    mine = tmp_path / "mine.npz"  # one device brings its own samples, as the app's README has it
    np.savez(mine, x_train=np.eye(2, dtype=np.float32).repeat(20, 0), y_train=[0] * 20 + [1] * 20)

    def start(name: str, *arguments: str) -> Program:
        log = tmp_path / f"{name}.log"
        programs.append(Program([*FORAGER, *arguments], env=env, cwd=app, log=log))
        return programs[-1]

    try:
        server = start("server", "server", "--name", "localhost", *where, *ports)
        server.wait_for(lambda: listens(f"127.0.0.1:{fleet}"), START_SECONDS)
        assert "flower-superlink --host=127.0.0.1" in server.log.read_text()
        for number in (1, 2, 3):
            own = ["--state-dir", str(tmp_path / f"node-{number}"), "--port", str(free_port())]
            own += ["--ca", str(tmp_path / "server" / "ca.crt"), "--name", f"node-{number}"]
            own += ["--partition", f"{number}/3"] if number < 3 else ["--data", str(mine)]
            made = subprocess.run(
                [*FORAGER, "node", f"localhost:{fleet}", *own, "--unit"],
                cwd=app,
                env=env,
                check=True,
                capture_output=True,
                text=True,
            )
            assert (f"--partition={number}/3" if number < 3 else f"--data={mine}") in made.stdout
            public = tmp_path / f"node-{number}" / f"node-{number}.pub"
            register = ["supernode", "register", str(public), "forager", "--name", public.stem]
            subprocess.run([PROGRAMS / "flwr", *register], env=env, check=True)
            start(f"node-{number}", "node", f"localhost:{fleet}", *own)
        for program in programs[1:]:
            program.wait_for(
                lambda log=program.log: "SuperNode ID" in log.read_text(),  # type: ignore[misc]
                START_SECONDS,
            )
        keys = "strategy='fedavg' num-server-rounds=2 fraction-train=1.0 run-name='deployed'"
        told = subprocess.run(
            [PROGRAMS / "flwr", "run", ".", "forager", "--stream", "-c", keys],
            cwd=app,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    finally:
        for program in reversed(programs):
            program.stop()
    run = app / "runs" / "deployed"
    assert run.is_dir(), told
    with (run / "rounds.csv").open() as file:
        rounds = list(csv.DictReader(file))
    assert float(rounds[-1]["loss"]) < float(rounds[0]["loss"]), told
    assert "3/3 clients" in told
    for number in (1, 2, 3):
        said = (tmp_path / f"node-{number}.log").read_text()
        assert "flower-supernode --superlink=localhost" in said
        assert "No module named" not in said
        left = os.listdir(tmp_path / f"node-{number}")
        assert any(name.endswith(".owner") for name in left), left
