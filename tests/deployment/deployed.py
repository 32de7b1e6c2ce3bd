"""The deployment of docker/ as plain processes: its command lines, its credentials, its tools.

What differs from the containers are places and ports only. Every process can be killed, frozen and
started again; a device's connection can lead over a wire that the test may cut.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from federation import START_SECONDS, listens
from forager.tools.flower.env import PROGRAMS, PROJECT, environment
from forager.tools.flower.processes import Program, free_port
from wire_to_cut import WireToCut

DOCKER = PROJECT / "docker"
PATIENCE = 900.0  # seconds, after which a process hangs; machines may be slow
SERVICES = yaml.safe_load((DOCKER / "compose.yml").read_text())["services"]


class Deployment:
    """A server with TLS and node keys, and devices; all of it below one folder.

    Parameters
    ----------
    folder : Path
        Where everything is kept, as Docker keeps it on volumes.
    devices : sequence of str
        Names of devices that are enrolled from the beginning.
    runs : bool (default: True)
        Whether there is something to run ServerApps.
    more : dict of str to dict, optional
        By name of program, variables that its environment has besides.
    """

    def __init__(
        self,
        folder: Path,
        devices: Sequence[str] = (),
        *,
        runs: bool = True,
        more: dict[str, dict[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        self.more = more or {}
        self.results = folder / "results"
        self.programs: list[Program] = []
        self.wires: dict[str, WireToCut] = {}
        self.partitions: dict[str, str] = {}
        self.control, self.fleet = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        roles = ("authority", "public", "superlink", "serverapp", "registry")
        for name in (*roles, "results", "state"):
            (folder / name).mkdir()
        issued = [f"--{role}={folder / role}" for role in roles[:4]]
        self.tool("credentials.py", "server", "--names=localhost,127.0.0.1", *issued)
        self.superlink = self.start_superlink()
        if runs:
            self.serverapp = self.start_serverapp()
        for name in devices:
            self.make_key(name)
        if devices:
            self.enrol()

    # --- The server

    def start_superlink(self) -> Program:
        """Start the SuperLink, for the first time or again, and wait until it answers."""
        host, _, port = self.control.partition(":")
        command = adapted(
            SERVICES["superlink"]["command"],
            {
                "--host=control": f"--host={host}",
                "--port=8000": f"--port={port}",
                "0.0.0.0:9092": self.fleet,
                "=/superlink/": f"={self.folder / 'state'}/",
                "=/credentials": f"={self.folder / 'superlink'}",
                "127.0.0.1:9100": f"127.0.0.1:{free_port()}",
            },
        )
        self.superlink = self._start("superlink", command)
        self.superlink.wait_for(
            lambda: listens(self.control) and listens(self.fleet), START_SECONDS
        )
        return self.superlink

    def start_serverapp(self) -> Program:
        """Start what runs ServerApps, for the first time or again."""
        command = adapted(
            SERVICES["serverapp"]["command"],
            {
                "control:8000": self.control,
                "=/credentials": f"={self.folder / 'serverapp'}",
                "127.0.0.1:9100": f"127.0.0.1:{free_port()}",
            },
        )
        self.serverapp = self._start("serverapp", command)
        return self.serverapp

    def submit(self, *arguments: str) -> Program:
        """Start ``docker/submit.py`` with these arguments."""
        return self._start("submit", [sys.executable, str(DOCKER / "submit.py"), *arguments])

    # --- Devices

    def make_key(self, name: str, authority: Path | None = None) -> None:
        """Make a device's key, or leave the one that it has."""
        folder = self.folder / name
        for part in ("credentials", "state", "data"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self.tool(
            "credentials.py",
            "device",
            name,
            f"--folder={folder / 'credentials'}",
            f"--ca={authority or self.folder / 'public' / 'ca.crt'}",
            f"--publish={self.folder / 'public'}",
        )

    def enrol(self) -> str:
        """Enrol all devices that have a key."""
        return self.fleet_tool("enrol")

    def fleet_tool(self, *arguments: str) -> str:
        """Return what ``docker/fleet.py`` says."""
        places = [f"--registry={self.folder / 'registry'}", f"--public={self.folder / 'public'}"]
        return self.tool("fleet.py", *places, *arguments)

    def nodes(self) -> dict[str, tuple[str, str]]:
        """Return the status and the node id of every device."""
        lines = [line.split() for line in self.fleet_tool("list").splitlines()]
        return {name: (status, node_id) for name, status, node_id in lines}

    def start_device(self, name: str, partition: str = "", *, by_wire: bool = False) -> Program:
        """Start a device's SuperNode, for the first time or again; do not wait for it."""
        partition = self.partitions.setdefault(name, partition)
        if by_wire and name not in self.wires:
            self.wires[name] = WireToCut(self.fleet)
        folder = self.folder / name
        device = {
            "NAME": name,
            "SERVER": self.wires[name].address if name in self.wires else self.fleet,
            "DATA": str(folder / "data" / "train.npz"),
            "PARTITION": partition,
            "CREDENTIALS_DIRECTORY": str(folder / "credentials"),
            "STATE_DIRECTORY": str(folder / "state"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, str(DOCKER / "supernode.py")]
        command += [f"--port={free_port()}", f"--health-server-address=127.0.0.1:{free_port()}"]
        return self._start(name, command, device)

    def start_devices(
        self, names: Sequence[str], *, of: int = 0, by_wire: bool = False
    ) -> list[Program]:
        """Start devices with a part of the built-in data each; wait until all are online."""
        count = of or len(names)
        programs = [
            self.start_device(name, f"{i}/{count}", by_wire=by_wire)
            for i, name in enumerate(names, start=1)
        ]
        for name, program in zip(names, programs, strict=True):
            program.wait_for(lambda name=name: self.logins(name) > 0, START_SECONDS)
        return programs

    def bring_back(self, name: str, seconds: float = PATIENCE) -> Program:
        """Start a device again and again, as Docker and systemd do, until the server takes it."""
        deadline = time.monotonic() + seconds
        while True:
            before = self.logins(name)
            program = self.start_device(name)
            while program.alive:
                if self.logins(name) > before:
                    return program
                time.sleep(0.2)
            assert time.monotonic() < deadline, program.last_words()
            time.sleep(5.0)

    def logins(self, name: str) -> int:
        """Return how many times a device has been let in."""
        return (self.folder / name / "log.txt").read_text().count("SuperNode ID")

    # --- Everything

    def tool(self, program: str, *arguments: str) -> str:
        """Run one of docker's programs to its end; return what it said."""
        done = subprocess.run(
            [sys.executable, str(DOCKER / program), *arguments],
            env=self._environment("tools"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stop(self) -> None:
        """End all of them, the SuperLink last."""
        for program in self.programs:
            if program is not self.superlink:
                thaw(program)
                program.kill()
        self.superlink.stop()
        for wire in self.wires.values():
            wire.close()

    def _environment(self, name: str) -> dict[str, str]:
        home = self.folder / name / "home"
        home.mkdir(parents=True, exist_ok=True)
        return environment(home) | {
            "PYTHONPATH": str(PROJECT),
            "CONTROL_ADDRESS": self.control,
            "CA_FILE": str(self.folder / "public" / "ca.crt"),
            "RESULTS": str(self.results),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            **self.more.get(name, {}),
        }

    def _start(
        self, name: str, command: Sequence[str], device: dict[str, str] | None = None
    ) -> Program:
        env = (device or {}) | self._environment(name)
        log = self.folder / name / "log.txt"
        program = Program(command, env=env, cwd=self.folder / name, log=log)
        self.programs.append(program)
        return program


def adapted(command: Sequence[str], changes: dict[str, str]) -> list[str]:
    """Return a container's command line for a process of this machine."""
    text = "\n".join(command)
    for theirs, ours in changes.items():
        assert theirs in text, f"{theirs} is not in compose.yml any more"
        text = text.replace(theirs, ours)
    first, *rest = text.split("\n")
    return [str(PROGRAMS / first), *rest]


def send(program: Program, number: signal.Signals) -> None:
    """Send a signal to a program and to all that it started."""
    for process in program.family():
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue  # it ended by itself in the meantime


def freeze(program: Program) -> None:
    """Stop a program where it stands."""
    send(program, signal.SIGSTOP)


def thaw(program: Program) -> None:
    """Let a frozen program go on."""
    send(program, signal.SIGCONT)


def settings(**values: object) -> str:
    """Return a run config for the command line; underscores stand for hyphens, __ for dots.

    >>> settings(num_server_rounds=3, round__deadline=40.0, client_selector="all")
    "num-server-rounds=3 round.deadline=40.0 client-selector='all'"
    """
    texts = []
    for key, value in values.items():
        name = key.replace("__", ".").replace("_", "-")
        plain = str(value).lower() if isinstance(value, bool) else value
        texts.append(f"{name}='{value}'" if isinstance(value, str) else f"{name}={plain}")
    return " ".join(texts)


def within(seconds: float, condition: Callable[[], bool], explain: Callable[[], str]) -> float:
    """Wait until something holds; return the seconds that it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, explain()
        time.sleep(0.1)
    return time.monotonic() - started
