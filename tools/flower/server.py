"""The server of a federation: Flower's SuperLink, its certificate, and its name for ``flwr``."""

import os
import shlex
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ...core.config import ConfigError
from ...core.storage.files import write_atomically
from ...core.wire.versions import flower_version, nodes_speak
from ...docker.credentials import authority, server_certificate
from .env import PROGRAMS, PROJECT, environment

_NAME = "forager"  # of the connection in Flower's config file
_HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Server:
    """What ``forager server`` is told."""

    names: tuple[str, ...]
    port: int
    control_port: int
    state: Path
    insecure: bool = False

    def run(self) -> NoReturn:
        """Become the SuperLink."""
        state = self.state.resolve()
        if not self.insecure and not self.names:
            raise ConfigError(
                "--name is needed: a name or an address by which devices reach this machine, for "
                "its certificate; or --insecure, for devices on this machine only"
            )
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.insecure:
            issuer, signer = authority(state)
            server_certificate(state, [*self.names, *_HERE], issuer, signer)
        self.make_known(state)
        command = self.command(state)
        print(shlex.join(command))
        if not self.insecure:
            print(f"Devices need {state / 'ca.crt'}, and to be registered:")
            print(f"  flwr supernode register camera-7.pub {_NAME} --name camera-7")
            self.write_proxy(state)
        env = {**environment(state / "flwr"), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
        sys.stdout.flush()
        os.execve(PROGRAMS / command[0], command, env)  # it gets all signals

    def command(self, state: Path) -> list[str]:
        """Return the SuperLink's command line."""
        where = "127.0.0.1" if self.insecure else "0.0.0.0"
        command = ["flower-superlink", "--host=127.0.0.1", f"--port={self.control_port}"]
        if nodes_speak() == "gRPC":
            command += [f"--fleet-api-address={where}:{self.port}"]
        if self.insecure:
            command += ["--insecure"]
        else:
            files = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
            command += [f"--ssl-{option}={state / name}" for option, name in files.items()]
            command += ["--enable-supernode-auth"]
        database = f"--database={state / 'state.db'}"
        return [*command, database, "--disable-runtime-dependency-installation"]

    def write_proxy(self, state: Path) -> None:
        """Write the proxy's config where Flower takes devices and commands on one port."""
        if nodes_speak() == "gRPC":
            return
        text = (PROJECT / "docker" / "nginx.conf").read_text(encoding="utf-8")
        text = text.replace("listen 9092 ", f"listen {self.port} ")
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.control_port}")
        (state / "nginx.conf").write_text(text, encoding="utf-8")
        flower = f"Flower {flower_version()}"
        print(f"{flower} takes devices and commands on one port, {self.control_port}.")
        print(f"Let devices in, by port {self.port}, and only them: nginx -p {state} -c nginx.conf")

    def make_known(self, state: Path) -> None:
        """Tell ``flwr`` of this server, unless it knows one of this name."""
        home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
        file = home / "config.toml"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        known = tomllib.loads(text).get("superlink", {}).get(_NAME)
        trust = "insecure = true" if self.insecure else f'root-certificates = "{state}/ca.crt"'
        table = f'[superlink.{_NAME}]\naddress = "127.0.0.1:{self.control_port}"\n{trust}\n'
        if known is None:
            home.mkdir(parents=True, exist_ok=True)
            write_atomically(file, (f"{text}\n{table}" if text else table).encode())
        elif known != tomllib.loads(table)["superlink"][_NAME]:
            print(f"{file} has another [superlink.{_NAME}]; for this server:\n{table}")
