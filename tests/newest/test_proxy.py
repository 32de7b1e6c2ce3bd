"""The proxy in front of a SuperLink of Flower 1.40 or newer: devices come in, nobody else.

`make test-newest` runs this where nginx is installed (`NGINX` names it elsewhere).
"""

import os
import shutil
import ssl
import subprocess
import sys
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from forager.core.wire.versions import nodes_speak
from forager.tools.flower.env import PROGRAMS, PROJECT, environment
from forager.tools.flower.processes import Program, free_port

pytestmark = pytest.mark.timeout(600)
NGINX = os.environ.get("NGINX") or shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
FORAGER = [sys.executable, "-m", "forager.tools.cli"]
START_SECONDS = 180


def status(port: int, path: str, authority: Path) -> int:
    context = ssl.create_default_context(cafile=str(authority))
    connection = HTTPSConnection("localhost", port, timeout=10, context=context)
    try:
        connection.request("POST", path, body=b"")
        return connection.getresponse().status
    finally:
        connection.close()


def listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(nodes_speak() == "gRPC", reason="up to 1.39, devices have a port of their own")
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed: apt-get install nginx-light")
def test_devices_come_in_and_commands_do_not(tmp_path: Path) -> None:
    env = environment(tmp_path / "home") | {"PYTHONPATH": str(PROJECT)}
    fleet, control = free_port(), free_port()
    state = tmp_path / "server"
    programs: list[Program] = []

    def start(name: str, *command: str) -> Program:
        programs.append(Program(command, env=env, cwd=tmp_path, log=tmp_path / f"{name}.log"))
        return programs[-1]

    try:
        options = ["--name", "localhost", "--state-dir", str(state), "--port", str(fleet)]
        options += ["--control-port", str(control)]
        server = start("server", *FORAGER, "server", *options)
        server.wait_for(lambda: listens(control), START_SECONDS)
        proxy = start("proxy", str(NGINX), "-p", str(state), "-c", "nginx.conf")
        proxy.wait_for(lambda: listens(fleet), START_SECONDS)
        own = ["--name", "camera-7", "--partition", "1/2", "--ca", str(state / "ca.crt")]
        own += ["--state-dir", str(tmp_path / "node"), "--port", str(free_port())]
        subprocess.run(
            [*FORAGER, "node", f"localhost:{fleet}", *own, "--unit"], env=env, check=True
        )
        public = str(tmp_path / "node" / "camera-7.pub")
        register = ["supernode", "register", public, "forager", "--name", "camera-7"]
        subprocess.run([PROGRAMS / "flwr", *register], env=env, check=True)
        node = start("node", *FORAGER, "node", f"localhost:{fleet}", *own)
        node.wait_for(lambda: "SuperNode ID" in node.log.read_text(), START_SECONDS)
        for path in ("/v1/control/list-runs", "/v1/runtime/acquire-task", "/openapi.json", "/"):
            assert status(control, path, state / "ca.crt") != 403, path  # it is there
            assert status(fleet, path, state / "ca.crt") == 403, path
            assert status(fleet, f"/v1/fleet/..{path}", state / "ca.crt") == 403, path
    finally:
        for program in reversed(programs):
            program.stop()
