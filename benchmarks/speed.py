"""Time per round of the local engine, as a ratio to a bare PyTorch loop in the same run.

``python -m forager.benchmarks.speed`` prints the table of ``docs/results/speed.md``. The two sides
take turns, round by round, so that other load on the machine hits both; the ratio of the medians is
what counts.
"""

import logging
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from ..core.config import Scalar, default_config, read_config
from ..core.tasks import load_task
from ..server_app.app import build_loop, configure_logging
from ..tools.engine.local_grid import LocalGrid
from .bare_loop import BareLoop
from .side_by_side import side_by_side

_DIGITS: dict[str, Scalar] = {
    "task": "forager.benchmarks.workloads:digits_60k",
    "model": "softmax",
    "partition": "iid",
    "num-clients": 1000,
    "clients-per-round": 100,
    "batch-size": 16,
}
_IMAGES: dict[str, Scalar] = {
    "task": "forager.benchmarks.workloads:fashion_like",
    "model": "small-cnn",
    "partition": "iid",
    "num-clients": 10,
    "clients-per-round": 10,
    "batch-size": 32,
}


def engine_round(overrides: dict[str, Scalar], folder: str) -> Callable[[], None]:
    """Return a function that runs one whole round: select, train, check, aggregate."""
    run_config: dict[str, Any] = {
        **default_config(),
        **overrides,
        "output-dir": folder,
        "num-server-rounds": 10**6,
        "evaluate-every": 10**6,
        "checkpoint.every": 0,
    }
    config = read_config(run_config)
    grid = LocalGrid(config.num_clients, run_config)
    _, loop = build_loop(grid, run_config)
    for i in range(config.num_clients):  # data are loaded once, before the first round
        load_task(config.task_spec()).client_data(i, config.num_clients)

    def play() -> None:
        loop.play_round()

    return play


def bare_round(overrides: dict[str, Scalar]) -> Callable[[], None]:
    """Return a function that runs one round of the bare loop on the same data and model."""
    config = read_config({**default_config(), **overrides})
    task = load_task(config.task_spec())
    clients = [task.client_data(i, config.num_clients).train for i in range(config.num_clients)]
    return BareLoop(task.build_model(), clients, config.clients_per_round, config.batch_size).round


def measure(overrides: dict[str, Scalar], modes: list[str], repeats: int) -> dict[str, float]:
    """Return seconds a round of the bare loop on one thread and of the engine in several modes."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = {"bare loop": bare_round(overrides)}
        for mode in modes:
            rounds[f"engine, {mode}"] = engine_round({**overrides, "local.trainer": mode}, folder)
        return side_by_side(rounds, repeats)


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    configure_logging(logging.WARNING)
    for title, overrides, modes, repeats in (
        ("1,000 clients of 60 digits, 100 a round, softmax", _DIGITS, ["serial", "auto"], 15),
        ("10 clients of 300 images, small CNN", _IMAGES, ["serial", "auto"], 7),
    ):
        seconds = measure(overrides, modes, repeats)
        print(f"\n{title}")
        for name, value in seconds.items():
            print(f"  {name:18} {1000 * value:8.1f} ms   {value / seconds['bare loop']:.3f}")


if __name__ == "__main__":
    main()
