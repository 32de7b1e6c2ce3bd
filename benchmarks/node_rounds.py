"""Seconds of a round with real devices: ``forager server`` and three of ``forager node``.

``python -m forager.benchmarks.node_rounds [fedavg] [cosage] ...`` starts them on this machine, as a
user would, with keys and TLS, and runs each strategy on the app of ``forager init``, all devices in
every round; and again with Flower's own SuperNodes in their place, with the same node config. The
table has the median and the range of the rounds after the second: the first ones start what stays.
``--evaluate`` lets the devices test each model, too.
"""

import argparse
import csv
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..tools.flower.env import PROGRAMS, PROJECT, environment
from ..tools.flower.processes import Program, free_port
from .federation import START_SECONDS, listens

_FORAGER = [sys.executable, "-m", "forager.tools.cli"]
_NODES = 3
_WARM = 2  # rounds at the start that are not counted


class Fleet:
    """A server and its devices, below one folder."""

    def __init__(self, folder: Path, *, by_hand: bool) -> None:
        self.folder, self._by_hand = folder, by_hand
        self.env = environment(folder / "home") | {"PYTHONPATH": str(PROJECT)}
        self.env |= {"OMP_NUM_THREADS": "1"}
        self.app = folder / "fleet"
        self._stack = ExitStack()
        subprocess.run([*_FORAGER, "init", "fleet"], cwd=folder, env=self.env, check=True)

    def __enter__(self) -> "Fleet":
        fleet, control = free_port(), free_port()
        ports = ["--port", str(fleet), "--control-port", str(control)]
        state = ["--state-dir", str(self.folder / "server")]
        server = self._start("server", [*_FORAGER, "server", "--name", "localhost", *state, *ports])
        server.wait_for(lambda: listens(f"127.0.0.1:{fleet}"), START_SECONDS)
        for number in range(1, _NODES + 1):
            node = self._device(f"node-{number}", number, f"localhost:{fleet}")
            node.wait_for(lambda: "SuperNode ID" in node.log.read_text(), START_SECONDS)  # noqa: B023
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _start(self, name: str, command: list[str]) -> Program:
        log = self.folder / f"{name}.log"
        return self._stack.enter_context(Program(command, env=self.env, cwd=self.app, log=log))

    def _device(self, name: str, number: int, server: str) -> Program:
        state, ca = self.folder / name, self.folder / "server" / "ca.crt"
        command = [
            *_FORAGER,
            "node",
            server,
            "--name",
            name,
            "--ca",
            str(ca),
            "--state-dir",
            str(state),
        ]
        command += ["--partition", f"{number}/{_NODES}", "--port", str(free_port())]
        subprocess.run([*command, "--unit"], env=self.env, check=True, stdout=subprocess.DEVNULL)
        register = ["supernode", "register", str(state / f"{name}.pub"), "forager", "--name", name]
        subprocess.run([PROGRAMS / "flwr", *register], env=self.env, check=True)
        return self._start(
            name, self._flowers_own(command, state, ca) if self._by_hand else command
        )

    def _flowers_own(self, command: list[str], state: Path, ca: Path) -> list[str]:
        number = command[command.index("--partition") + 1].split("/")[0]
        config = f"state-dir='{state}' partition-id={int(number) - 1} num-partitions={_NODES}"
        own = [str(PROGRAMS / "flower-supernode"), f"--superlink={command[len(_FORAGER) + 1]}"]
        own += [f"--root-certificates={ca}", f"--auth-supernode-private-key={state / 'key'}"]
        return [*own, f"--node-config={config}", "--port", command[-1]]

    def rounds(self, strategy: str, rounds: int, *, evaluate: bool) -> list[float]:
        """Run a strategy; return the seconds of each round."""
        settings = {"strategy": f"'{strategy}'", "run-name": f"'{strategy}'"}
        settings |= {"num-server-rounds": str(rounds), "fraction-train": "1.0"}
        settings["fraction-evaluate"] = "1.0" if evaluate else "0.0"
        keys = " ".join(f"{key}={value}" for key, value in settings.items())
        flwr = [str(PROGRAMS / "flwr"), "run", ".", "forager", "--stream", "-c", keys]
        done = subprocess.run(flwr, cwd=self.app, env=self.env, capture_output=True, text=True)
        table = self.app / "runs" / strategy / "rounds.csv"
        if not table.exists():
            raise RuntimeError(
                f"{strategy} did not run:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
            )
        with table.open() as file:
            return [float(row["seconds"]) for row in csv.DictReader(file) if row.get("seconds")]


def measured(strategies: list[str], options: argparse.Namespace, *, by_hand: bool) -> list[str]:
    """Return the seconds of a round for each strategy, as a cell of the table."""
    with tempfile.TemporaryDirectory() as folder, Fleet(Path(folder), by_hand=by_hand) as fleet:
        cells = []
        for strategy in strategies:
            found = fleet.rounds(strategy, options.rounds, evaluate=options.evaluate)[_WARM:]
            middle = statistics.median(found)
            cells.append(f"{middle:.1f} ({min(found):.1f} to {max(found):.1f})")
    return cells


def main() -> None:
    """Print a row per strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("strategies", nargs="*", default=["fedavg", "cosage"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--evaluate", action="store_true", help="devices test each model, too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the devices are ended, too
    names = options.strategies
    flowers, ours = (measured(names, options, by_hand=by_hand) for by_hand in (True, False))
    print("| strategy | Flower's own SuperNodes (s) | forager node (s) |\n| --- | --- | --- |")
    for row in zip(names, flowers, ours, strict=True):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
