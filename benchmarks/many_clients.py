"""What very many virtual clients cost: start, memory, seconds per round, checkpoints.

``python -m forager.benchmarks.many_clients`` measures 100,000 and 1,000,000 clients, 100 of them
per round, each in a process of its own, and prints every number with its target. All of them must
grow with the clients that are used, not with those that there are.
"""

import json
import logging
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZES = (100_000, 1_000_000)
ROUNDS = 10
# Seconds from the start of the process to the first round, megabytes at the peak, seconds per round
# and per checkpoint, for 1,000,000 clients
TARGETS = {"start": 30.0, "memory": 2_000.0, "round": 0.2, "checkpoint": 0.5}
UNITS = {"start": "s", "memory": "MB", "round": "s", "checkpoint": "s"}


def two_million() -> dict[str, NDArray[Any]]:
    """Return two million samples of 16 numbers in ten classes, a task for a run config."""
    rng = np.random.default_rng(0)
    y = np.arange(2_001_000) % 10
    x = rng.standard_normal((len(y), 16), dtype=np.float32)
    x[np.arange(len(y)), y] += 2
    return {
        "x_train": x[:2_000_000],
        "y_train": y[:2_000_000],
        "x_test": x[2_000_000:],
        "y_test": y[2_000_000:],
    }


def measure(clients: int, partition: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Return what a run in this process costs; the process should be a new one."""
    started = time.perf_counter()
    import torch

    from ..core.config import default_config
    from ..server_app.app import build_loop, configure_logging
    from ..server_app.callbacks.checkpoint import Checkpoints
    from ..tools.engine.local_grid import LocalGrid

    torch.set_num_threads(1)
    configure_logging(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        run_config: dict[str, Any] = {
            **default_config(),
            "task": "forager.benchmarks.many_clients:two_million",
            "model": "softmax",
            "partition": partition,
            "num-clients": clients,
            "clients-per-round": 100,
            "batch-size": 16,
            "output-dir": folder,
            "data.cache-dir": folder,
            "num-server-rounds": 10**6,
            "evaluate-every": 10**6,
            "checkpoint.every": 0,
        }
        run_folder, loop = build_loop(LocalGrid(clients, run_config), run_config)
        loop.play_round()  # data are read and spread here
        start = time.perf_counter() - started
        seconds = []
        for _ in range(rounds):
            before = time.perf_counter()
            loop.play_round()
            seconds.append(time.perf_counter() - before)
        saver = Checkpoints(run_folder.checkpoints, every=1, keep=1)
        before = time.perf_counter()
        saver.on_round_end(loop)
        checkpoint = time.perf_counter() - before
        size = sum(path.stat().st_size for path in run_folder.checkpoints.iterdir())
    return {
        "start": start,
        "memory": peak_memory(),
        "round": statistics.median(seconds),
        "checkpoint": checkpoint,
        "checkpoint kB": size / 1000,
    }


def peak_memory() -> float:
    """Return the most megabytes that this process has held.

    Not by ``getrusage``, which also counts the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def in_a_new_process(clients: int, partition: str) -> dict[str, float]:
    """Return what :func:`measure` finds in a process of its own."""
    command = [sys.executable, "-m", "forager.benchmarks.many_clients", str(clients), partition]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Print every number with its target."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), sys.argv[2])))
        return
    for clients in SIZES:
        for partition in ("iid", "dirichlet"):
            found = in_a_new_process(clients, partition)
            print(f"\n{clients:,} clients, {partition}, 100 per round")
            for name, target in TARGETS.items():
                verdict = "" if found[name] <= target else "   missed"
                unit = UNITS[name]
                print(f"  {name:12} {found[name]:10.3f} {unit:3} target {target:g}{verdict}")
            print(f"  {'file':12} {found['checkpoint kB']:10.1f} kB")


if __name__ == "__main__":
    main()
