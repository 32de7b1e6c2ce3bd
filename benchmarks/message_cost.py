"""What a message costs on a device.

``python -m forager.benchmarks.message_cost processes|federation``

Flower starts a process for every message. ``processes``: seconds of CPU of such a process, by kind
of message, and of one that only starts and ends: Flower's own program, that of ``docker/lean``,
which devices use, and the latter with a resident worker. ``federation``: seconds from message to
reply at a real SuperLink and SuperNode on this machine, Flower's waiting between looks included.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.config import Scalar, default_config
from ..core.log.events import Exchanged, as_events
from ..core.wire.keys import IDENTIFY, SUMMARY
from ..server_app.run_folder import RunFolder
from ..tools.experiments.tables import Table
from ..tools.flower.env import PROGRAMS, PROJECT
from ..tools.flower.run import wait_for_end
from .federation import Federation
from .watched import cpu_of_process, memory_of_process

_NOTHING = "none"  # the program starts, reads its options and ends
KINDS = (IDENTIFY, SUMMARY, "train", "evaluate")
RUN: dict[str, Scalar] = {
    "task": "npz",
    "data.num-classes": 10,
    "data.client-test-share": 0.2,
    "model": "softmax",
}
FLOWERS, LEAN = PROGRAMS / "flwr-clientapp", PROJECT / "docker" / "lean" / "flwr-clientapp"


def write_data(folder: Path) -> Path:
    """Write 500 samples like handwritten digits for the server, and for a device."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(500, 64)).astype(np.float32), np.arange(500) % 10
    np.savez(folder / "server.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.savez(folder / "device.npz", x_train=x, y_train=y)
    return folder / "device.npz"


def cpu_of(command: Sequence[str]) -> float:
    """Return the seconds of CPU that a command takes, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=env, cwd=PROJECT, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# Forks as docker/lean/flower-superexec does, and prints the seconds of CPU of a copy.
_FORKS = """
import os, resource, runpy, sys
clientapp = runpy.run_path(sys.argv[1])["beside"]("flwr-clientapp").program()
count, sys.argv = int(sys.argv[2]), ["flwr-clientapp", "--help"]
for _ in range(count):
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        clientapp()
    os.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print((used.ru_utime + used.ru_stime) / count)
"""


def cpu_of_fork(repeats: int) -> float:
    """Return the seconds of CPU of a copy of the process that is ready, which starts and ends."""
    command = [sys.executable, "-c", _FORKS, str(LEAN.with_name("flower-superexec")), str(repeats)]
    done = subprocess.run(command, check=True, cwd=PROJECT, capture_output=True, text=True)
    return float(done.stdout)


def worker_of(state: Path) -> Path | None:
    """Return where the system tells of the resident worker of a device, if there is one."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "forager.client_app.device.resident" in command and str(state) in command:
            return process
    return None


def cpu_of_worker(state: Path) -> float:
    """Return the seconds of CPU that the resident worker has taken so far."""
    worker = worker_of(state)
    if worker is None:
        return 0.0
    return cpu_of_process(worker)


def memory_of_worker(state: Path) -> int:
    """Return the resident memory of the worker in bytes."""
    worker = worker_of(state)
    return 0 if worker is None else memory_of_process(worker)


def processes(repeats: int) -> None:
    """Print seconds of CPU per message, the median of some repeats."""
    with tempfile.TemporaryDirectory() as folder:
        own, state = write_data(Path(folder)), Path(folder, "state")
        node = {"client-id": "camera", "data-path": str(own), "state-dir": str(state)}
        alone, stays = {**node, "resident-seconds": 0}, {**node, "resident-seconds": 600}
        ways = {
            "Flower's program": (FLOWERS, alone),
            "lean program": (LEAN, alone),
            "lean program, resident worker": (LEAN, stays),
        }
        cpu_of(_answering(LEAN, "train", stays))  # starts the worker
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for _ in range(repeats):  # in turn, so that a busy machine is busy for all of them
            for way, (program, config) in ways.items():
                found[_NOTHING, way].append(cpu_of([sys.executable, str(program), "--help"]))
                for kind in KINDS:
                    before = cpu_of_worker(state)
                    spent = cpu_of(_answering(program, kind, config))
                    found[kind, way].append(spent + cpu_of_worker(state) - before)
        memory = memory_of_worker(state)
    print(f"seconds of CPU; memory of the worker: {memory / 1e6:.0f} MB\n")
    rows = [["message", *ways]]
    for kind in (_NOTHING, *KINDS):
        rows.append([kind, *(f"{statistics.median(found[kind, way]):.2f}" for way in ways)])
    print(Table(rows).markdown())
    print(f"\nnone, as a copy of the process that is ready: {cpu_of_fork(10 * repeats):.2f}")


def _answering(program: Path, kind: str, node: Mapping[str, Any]) -> list[str]:
    """Return the command that answers one message."""
    run = json.dumps({**default_config(), **RUN})
    module = [sys.executable, "-m", "forager.benchmarks.one_message"]
    return [*module, str(program), run, kind, json.dumps(node)]


def federation(rounds: int) -> None:
    """Print seconds from message to reply, median and range over the messages of a run."""
    print("| message | way | seconds | messages |\n| --- | --- | --- | --- |")
    for way, more in {
        "a process": " resident-seconds=0",
        "resident worker": " resident-seconds=600",
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds = _seconds_of_run(Path(folder), rounds, more)
        for kind, found in seconds.items():
            middle = statistics.median(found)
            spread = f"{middle:.1f} ({min(found):.1f} to {max(found):.1f})"
            print(f"| {kind} | {way} | {spread} | {len(found)} |", flush=True)


def _seconds_of_run(folder: Path, rounds: int, more: str) -> dict[str, list[float]]:
    own = write_data(folder)
    started = Federation(folder)
    try:
        node = f"client-id='camera' data-path='{own}' state-dir='{folder / 'state'}'{more}"
        started.add_supernode("camera", node)
        run_config: dict[str, Scalar] = {
            **RUN,
            "strategy": "cosage",
            "data.path": str(folder / "server.npz"),
            "num-server-rounds": rounds,
            "fraction-evaluate": 1.0,
            "report": False,
            "output-dir": str(folder / "runs"),
            "run-name": "cost",
        }
        run_id = started.cli.submit(started.app, run_config)
        log = "\n".join(started.cli.log(run_id))
        if not wait_for_end(started.cli, run_id).succeeded:
            raise RuntimeError(f"the run failed:\n{log[-3000:]}")
    finally:
        started.stop()
    seconds: dict[str, list[float]] = defaultdict(list)
    for event in as_events(RunFolder.open(folder / "runs" / "cost").read_events()):
        if isinstance(event, Exchanged) and event.received == event.sent:
            seconds[event.kind].append(event.seconds or 0.0)
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("processes").add_argument("--repeats", type=int, default=5)
    commands.add_parser("federation").add_argument("--rounds", type=int, default=6)
    options = parser.parse_args(arguments)
    if options.what == "processes":
        processes(options.repeats)
    else:
        federation(options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
