"""What running programs take of the machine, as the system tells."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..tools.flower.processes import Program

_BETWEEN = 0.2  # seconds between two looks


@dataclass
class Taken:
    """What one program has taken so far."""

    memory: int = 0  # largest, in bytes
    cpu: float = 0.0  # seconds of work


def cpu_of_process(process: Path) -> float:
    """Return the seconds of CPU of a process, given by its folder below ``/proc``.

    >>> cpu_of_process(Path("/proc/self")) > 0
    True
    """
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of_process(process: Path) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Watch(threading.Thread):
    """Notes what the programs of a family take, several times per second.

    Parameters
    ----------
    program : Program
        The head of the family.
    names : sequence of str
        The programs to look at, by their names; each runs once.
    """

    def __init__(self, program: Program, names: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.program, self.taken = program, {name: Taken() for name in names}
        self._told_to_stop = threading.Event()

    def run(self) -> None:
        """Watch until told to stop."""
        while not self._told_to_stop.wait(_BETWEEN):
            for process in self.program.family():
                self._look_at(Path("/proc", str(process.pid)))

    def _look_at(self, process: Path) -> None:
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            memory, cpu = memory_of_process(process), cpu_of_process(process)
        except (FileNotFoundError, ProcessLookupError):
            return  # it has just ended
        for name, taken in self.taken.items():
            if name in command:
                taken.memory, taken.cpu = max(taken.memory, memory), max(taken.cpu, cpu)

    def stop(self) -> None:
        """Watch no longer."""
        self._told_to_stop.set()
        self.join()
