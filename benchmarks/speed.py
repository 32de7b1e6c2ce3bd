"""Time per round of the local engine, as a ratio to a bare PyTorch loop in the same run.

``python -m forager.benchmarks.speed`` prints every number with its target and with how it has
changed since the last record. With ``--record`` it is kept in ``benchmarks/records/speed.jsonl``
and shown in ``docs/results/speed.md``. The two sides of a ratio take turns, round by round, so that
other load on the machine hits both; the ratio of the medians is what counts. A turn lasts at least
a tenth of a second: short rounds follow each other, as they do in a run.
"""

import argparse
import gc
import logging
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..core.config import Scalar, default_config, read_config
from ..core.tasks import load_task
from ..server_app.app import build_loop, configure_logging
from ..tools.engine.local_grid import LocalGrid
from . import many_clients
from .bare_loop import BareLoop
from .side_by_side import side_by_side
from .speed_records import (
    append_record,
    is_quiet,
    judged,
    last_ratios,
    new_record,
    read_records,
    verdict,
    write_page,
)

DIGITS: dict[str, Scalar] = {
    "task": "forager.benchmarks.workloads:digits_60k",
    "model": "softmax",
    "partition": "iid",
    "num-clients": 1000,
    "clients-per-round": 100,
    "batch-size": 16,
}
IMAGES: dict[str, Scalar] = {
    "task": "forager.benchmarks.workloads:fashion_like",
    "model": "small-cnn",
    "partition": "iid",
    "num-clients": 10,
    "clients-per-round": 10,
    "batch-size": 32,
}
MODES = {"one by one": "serial", "auto": "auto"}
_TURN = 0.1  # seconds, in which short rounds follow each other as in a run


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

    gc.freeze()  # as `run_local` does

    def play() -> None:
        loop.play_round()

    return play


def bare_round(overrides: dict[str, Scalar]) -> Callable[[], None]:
    """Return a function that runs one round of the bare loop on the same data and model."""
    config = read_config({**default_config(), **overrides})
    task = load_task(config.task_spec())
    clients = [task.client_data(i, config.num_clients).train for i in range(config.num_clients)]
    return BareLoop(task.build_model(), clients, config.clients_per_round, config.batch_size).round


def measure(overrides: dict[str, Scalar], repeats: int) -> dict[str, float]:
    """Return the engine's seconds per round, one client at a time and as it chooses itself.

    They are ratios to those of the bare loop on one thread.
    """
    with tempfile.TemporaryDirectory() as folder:
        rounds = {"bare loop": bare_round(overrides)}
        for name, mode in MODES.items():
            rounds[name] = engine_round({**overrides, "local.trainer": mode}, folder)
        seconds = side_by_side(rounds, repeats, at_least=_TURN)
    bare = seconds.pop("bare loop")
    return {name: value / bare for name, value in seconds.items()}


@contextmanager
def one_core_busy() -> Iterator[None]:
    """Let another process keep one core busy."""
    process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _spin() -> None:
    while True:
        pass


def all_ratios() -> dict[str, float]:
    """Measure everything that has a target."""
    digits, images = measure(DIGITS, 15), measure(IMAGES, 7)
    with one_core_busy():
        busy = measure(IMAGES, 7)
    many = many_clients.in_a_new_process(1_000_000, "iid")
    return {
        "digits, stacked / bare loop": digits["auto"],
        "digits, one by one / bare loop": digits["one by one"],
        "CNN, as it chooses / bare loop": images["auto"],
        "CNN, one core busy / bare loop": busy["auto"],
        "CNN, one by one / bare loop": images["one by one"],
        "1,000,000 clients, start (s)": many["start"],
        "1,000,000 clients, memory (GB)": many["memory"] / 1000,
        "1,000,000 clients, round (s)": many["round"],
        "1,000,000 clients, checkpoint (s)": many["checkpoint"],
    }


def main() -> None:
    """Print every number with its target; keep them if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m forager.benchmarks.speed", description="How fast is the local engine?"
    )
    parser.add_argument("--record", action="store_true", help="keep the numbers, change the page")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    configure_logging(logging.WARNING)
    ratios = all_ratios()
    records = read_records()
    last = last_ratios(records)
    print(*judged(ratios, last), *verdict(ratios, last), sep="\n")
    if not last:
        print("there is no record of a quiet machine to compare with")
    if not is_quiet(load, os.cpu_count() or 1):
        print(f"the machine was busy before this began (load {load:.1f}): measure again")
    if options.record:
        record = new_record(ratios, load)
        append_record(record)
        write_page([*records, record])


if __name__ == "__main__":
    main()
