"""Programs that run beside this one, and end with everything that they started."""

import http
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

_GRACE = 5.0  # seconds to tidy up in, before being killed


class ProgramError(RuntimeError):
    """A program did not start or ended too early; the text has its last words."""


class Process(NamedTuple):
    """One line of the system's process table."""

    pid: int
    parent: int
    group: int
    state: str


class Program:
    """A program in a session of its own, so that Ctrl-C does not reach it by itself."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path
    ) -> None:
        self.name = Path(command[0]).name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._groups = {self.process.pid}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the program itself still runs."""
        return self.process.poll() is None

    def family(self) -> list[Process]:
        """Return what runs of the program and of all that it started."""
        return family(self.process.pid, self._groups)

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until it is ready; raise :class:`ProgramError` if it ends or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.alive or time.monotonic() > deadline:
                late = f"was not ready in {seconds:g} s"
                what = late if self.alive else "ended before it was ready"
                raise ProgramError(f"{self.name} {what}:\n{self.last_words()}")
            time.sleep(0.1)
        self.family()

    def last_words(self, lines: int = 15) -> str:
        """Return the end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """Ask the program to end, then kill what is left of it and of all that it started."""
        with _undisturbed():
            self.family()
            if self.alive:
                self.process.terminate()
            deadline = time.monotonic() + _GRACE
            while self.alive and time.monotonic() < deadline:
                time.sleep(0.05)
            self.kill()

    def kill(self) -> None:
        """Kill the program and all that it started, at once."""
        with _undisturbed():
            while left := self.family():
                for process in left:
                    send(process.pid, signal.SIGKILL)
                self.process.poll()
                time.sleep(0.02)
            self.process.wait()


def family(pid: int, groups: set[int]) -> list[Process]:
    """Return what runs of a program and of all that it started; remember its process groups.

    Nothing else shows whose children processes are once their parent has ended.
    """
    table = [process for process in process_table() if process.state != "Z"]
    mine, size = {pid}, 0
    while len(mine) > size:
        size = len(mine)
        mine |= {p.pid for p in table if p.parent in mine or p.group in groups}
        groups |= {p.group for p in table if p.pid in mine}
    return [process for process in table if process.pid in mine]


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself in the meantime


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let nobody interrupt the cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def process_table() -> list[Process]:
    """Return all processes of this machine, zombies (Z) included."""
    if sys.platform == "linux":  # small images have no ps
        return list(_read_proc())
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    fields = [line.split() for line in lines]
    return [Process(int(f[0]), int(f[1]), int(f[2]), f[3][0]) for f in fields]


def _read_proc() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        state, parent, group = text.rpartition(")")[2].split()[:3]  # its name may hold anything
        yield Process(int(entry.name), int(parent), int(group), state)


def free_port() -> int:
    """Return a loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int, path: str = "/health") -> bool:
    """Return whether a web server on this machine answers, asked directly and not by a proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
