"""A device of a federation: Flower's SuperNode, its key, its state, and its restarts."""

import getpass
import re
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from ...core.config import ConfigError
from ...core.storage.files import write_atomically
from ...docker.credentials import device_key
from .env import PROJECT, environment

_ADDRESS = re.compile(r".+:\d+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PART = re.compile(r"([1-9]\d*)/([1-9]\d*)")
_PAUSE = 15.0  # seconds before a SuperNode that ended is started again
_UNIT = Path(__file__).with_name("forager-node.service")


@dataclass(frozen=True)
class Device:
    """What ``forager node`` is told, with whole paths."""

    server: str
    name: str
    state: Path
    data: Path | None = None
    partition: str = ""
    tags: str = ""
    port: int = 9094
    insecure: bool = False

    def prepare(self, ca: Path | None = None) -> None:
        """Check all that is given; make the device's key, once, and put ca.crt beside it."""
        problem = self._problem(ca)
        if problem:
            raise ConfigError(f"{self.name}: {problem}")
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.insecure:
            return
        fresh, public = not (self.state / "key").exists(), self.state / f"{self.name}.pub"
        public.write_text(f"{device_key(self.state)} {self.name}\n", encoding="utf-8")
        if ca is not None and ca.absolute() != self.state / "ca.crt":
            write_atomically(self.state / "ca.crt", ca.read_bytes())
        if fresh:
            print(
                f"A key was made for {self.name}. Copy {public} to the server and run there:\n"
                f"  flwr supernode register {public.name} forager --name {self.name}",
                file=sys.stderr,
            )

    def _problem(self, ca: Path | None) -> str:
        if not _ADDRESS.fullmatch(self.server):
            return f"SERVER = {self.server!r} is not HOST:PORT, such as fl.example.org:9092"
        if not _NAME.fullmatch(self.name):
            return "--name: letters, digits and -_. only, at most 64"
        if (self.data is None) == (not self.partition):
            return "give its samples by --data, or a part of the task's data by --partition 1/3"
        if self.data is not None and not self.data.is_file():
            return f"--data {self.data}: there is no such file"
        part = _PART.fullmatch(self.partition)
        if self.partition and not (part and int(part[1]) <= int(part[2])):
            return f"--partition {self.partition!r}: expected PART/PARTS, such as 2/3"
        if ca is not None and (self.insecure or not ca.is_file()):
            return f"--ca {ca}: {'is not for --insecure' if self.insecure else 'no such file'}"
        if not self.insecure and ca is None and not (self.state / "ca.crt").exists():
            return "--ca is needed at the first start: the ca.crt that `forager server` made"
        return ""

    def unit(self) -> str:
        """Return a systemd unit that runs this device."""
        words = [sys.executable, "-m", "forager.tools.cli", "node", self.server]
        given = {"name": self.name, "state-dir": self.state, "data": self.data}
        given |= {"partition": self.partition, "tags": self.tags, "port": self.port}
        words += [f"--{key}={value}" for key, value in given.items() if value]
        words += ["--insecure"] if self.insecure else []
        return _UNIT.read_text(encoding="utf-8").format(
            name=self.name, command=shlex.join(words), state=self.state, user=getpass.getuser()
        )

    def environment(self) -> dict[str, str]:
        """Return what docker/supernode.py reads."""
        return {
            **environment(self.state / "flwr"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; 1 by default
            "NAME": self.name,
            "SERVER": self.server,
            "DATA": str(self.data or "/nowhere"),
            "PARTITION": self.partition,
            "TAGS": self.tags,
            "INSECURE": "1" if self.insecure else "",
            "STATE_DIRECTORY": str(self.state),
            "CREDENTIALS_DIRECTORY": str(self.state),
        }


def keep_running(device: Device) -> int:
    """Run the SuperNode until somebody ends this process; return its last exit code."""
    ended = threading.Event()
    command = [sys.executable, str(PROJECT / "docker" / "supernode.py"), f"--port={device.port}"]
    while True:
        node = subprocess.Popen(command, env=device.environment(), cwd=device.state)

        def end(number: int, frame: object, node: subprocess.Popen[bytes] = node) -> None:
            ended.set()
            node.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        code = node.wait()
        if not ended.is_set():
            print(f"{device.name}: started again in {_PAUSE:g} s", flush=True)
            ended.wait(_PAUSE)
        if ended.is_set():
            return code
