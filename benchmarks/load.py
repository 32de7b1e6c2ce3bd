"""Many clients at one SuperLink: ``python -m forager.benchmarks.load --clients 50 --rounds 10``.

A real SuperLink and a real ServerApp on this machine, and clients that talk to it as SuperNodes do
(:mod:`forager.benchmarks.light_clients`). Prints rounds a minute, the largest memory of each
program, and how many replies were lost, which must be none.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.config import Scalar
from ..core.wire.events import Exchanged, RoundFinished, as_events
from ..server_app.run_folder import RunFolder
from ..tools.flower.env import PROJECT
from ..tools.flower.processes import Program
from ..tools.flower.run import wait_for_end
from .federation import Federation
from .light_clients import IDLE_SECONDS, LightClient, connect

_PROGRAMS = ("flower-superlink", "flwr-serverapp")
_START_SECONDS = 180.0


@dataclass
class Load:
    """What a run under load was like."""

    clients: int
    rounds: int
    sent: int
    lost: int
    failed: dict[str, str]
    seconds: list[float]  # of each round
    memory: dict[str, int] = field(default_factory=dict)  # largest, in bytes, by program

    @property
    def rounds_a_minute(self) -> float:
        """By the median round after the first, which loads what the others find."""
        later = sorted(self.seconds[1:] or self.seconds)
        return 60.0 / later[len(later) // 2]

    def __str__(self) -> str:
        megabytes = {name: f"{size / 1e6:.0f} MB" for name, size in self.memory.items()}
        memory = ", ".join(f"{name} {size}" for name, size in megabytes.items())
        return (
            f"{self.clients} clients, {self.rounds} rounds: {self.rounds_a_minute:.1f} rounds a "
            f"minute; {self.sent} messages, {self.lost} replies lost; {memory}"
        )


class MemoryWatch(threading.Thread):
    """Notes the largest resident memory of the programs of a family, twice a second."""

    def __init__(self, program: Program) -> None:
        super().__init__(daemon=True)
        self.program, self.largest, self._ended = program, dict.fromkeys(_PROGRAMS, 0), False

    def run(self) -> None:
        """Watch until told to stop."""
        while not self._ended:
            for process in self.program.family():
                self._note(Path("/proc", str(process.pid)))
            time.sleep(0.5)

    def _note(self, process: Path) -> None:
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            pages = int((process / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return  # it has just ended
        for name in _PROGRAMS:
            if name in command:
                self.largest[name] = max(self.largest[name], pages * 4096)

    def stop(self) -> None:
        """Watch no longer."""
        self._ended = True
        self.join()


def run_under_load(
    folder: Path, clients: int, rounds: int, idle: float, config: dict[str, Scalar]
) -> Load:
    """Start everything, run, stop everything; return what was measured."""
    run_config: dict[str, Scalar] = {
        "client-selector": "all",
        "num-server-rounds": rounds,
        "num-clients": clients,
        "report": False,
        "round.deadline": 120.0,
        "data.cache-dir": str(folder / "cache"),
        "output-dir": str(folder / "runs"),
        "run-name": "load",
        **config,
    }
    with ExitStack() as ending:
        federation = Federation(folder)
        ending.callback(federation.stop)
        memory = MemoryWatch(federation.superlink)
        memory.start()
        ending.callback(memory.stop)
        crowd = connect(federation.fleet, clients, idle)
        ending.callback(_dismiss, crowd)
        federation.superlink.wait_for(
            lambda: len(federation.activations()) >= clients, _START_SECONDS
        )
        run_id = federation.cli.submit(PROJECT, run_config)
        log = "\n".join(federation.cli.log(run_id))
        if not wait_for_end(federation.cli, run_id).succeeded:
            raise RuntimeError(f"the run failed:\n{log[-3000:]}")
    broken = [str(client.error) for client in crowd if client.error is not None]
    if broken:
        raise RuntimeError(f"{len(broken)} clients broke: {broken[0]}")
    return measured(RunFolder.open(folder / "runs" / "load").read_events(), clients, memory.largest)


def _dismiss(crowd: Sequence[LightClient]) -> None:
    for client in crowd:
        client.stop()
    for client in crowd:
        client.join(10)


def measured(log: Iterable[Mapping[str, Any]], clients: int, memory: dict[str, int]) -> Load:
    """Return what a run's events tell.

    >>> events = [
    ...     {"event": "exchange", "sent": 2, "received": 1, "failed": {}, "late": ["1"]},
    ...     {"event": "round-finished", "round": 1, "seconds": 6.0},
    ... ]
    >>> found = measured(events, 2, {"flower-superlink": 10**8})
    >>> found.lost, found.rounds_a_minute
    (1, 10.0)
    """
    events = list(as_events(log))
    exchanges = [event for event in events if isinstance(event, Exchanged)]
    rounds = [event.seconds or 0.0 for event in events if isinstance(event, RoundFinished)]
    sent, received = sum(e.sent for e in exchanges), sum(e.received for e in exchanges)
    failed = {key: text for e in exchanges for key, text in e.failed.items()}
    return Load(clients, len(rounds), sent, sent - received, failed, rounds, memory)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; fail if a reply is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds between looks")
    parser.add_argument("--selector", default="all")
    parser.add_argument("--per-round", type=int, default=0, help="clients that train; 0 for all")
    options = parser.parse_args(arguments)
    config: dict[str, Scalar] = {
        "client-selector": options.selector,
        "clients-per-round": options.per_round,
    }
    with tempfile.TemporaryDirectory() as folder:
        load = run_under_load(Path(folder), options.clients, options.rounds, options.idle, config)
    print(load)
    return 1 if load.lost else 0


if __name__ == "__main__":
    sys.exit(main())
