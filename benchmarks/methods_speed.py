"""CPU time of a round of every preset, as a multiple of that of FedAvg in the same process.

``python -m forager.benchmarks.methods_speed`` prints a table of two set-ups: 1,000 small clients,
of which 100 train, and 30 uneven ones with a larger model, of which 10 train. With ``--record`` it
is kept in ``benchmarks/records/methods.jsonl`` and shown in ``docs/results/speed.md``. Set
``OMP_NUM_THREADS=1``: the CPU time of numpy's other threads, which mostly wait, would count too.

Each preset takes turns with FedAvg. A turn is a whole number of times five rounds, because IOS
compares clients every fifth round; the first turn, in which things are set up, does not count.
Evaluation and checkpoints are left out.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..core.config import Scalar
from ..core.methods.catalogue import presets
from ..server_app.app import configure_logging
from ..tools.experiments.tables import Table
from .speed import engine_round
from .speed_records import (
    METHOD_RECORDS,
    METHOD_TARGETS,
    append_record,
    is_quiet,
    last_ratios,
    new_record,
    read_records,
    verdict,
    write_page,
)

BASELINE = "fedavg"
SETUPS: Mapping[str, dict[str, Scalar]] = {
    "1,000 clients": {
        "task": "digits",
        "model": "softmax",
        "partition": "iid",
        "num-clients": 1000,
        "clients-per-round": 100,
        "batch-size": 16,
        "local-epochs": 1,
    },
    "30 clients": {
        "task": "digits",
        "model": "mlp",
        "net.hidden": 64,
        "partition": "dirichlet",
        "split.alpha": 0.3,
        "num-clients": 30,
        "clients-per-round": 10,
        "batch-size": 16,
        "local-epochs": 2,
    },
}
# Softmax regression has no hidden features, which MOON compares.
LEFT_OUT = {("moon", "1,000 clients")}
_ROUNDS = 5  # of a turn, or a multiple of it
_TURN = 0.1  # seconds, in which short rounds follow each other as in a run


@dataclass(frozen=True)
class Cost:
    """Rounds of a preset, as multiples of FedAvg's.

    Attributes
    ----------
    median, mean : float
        Of the CPU time of a round. What is done every few rounds shows in the mean only.
    baseline : float
        Median seconds of a round of FedAvg.
    """

    median: float
    mean: float
    baseline: float


def measure(
    preset: str,
    setup: Mapping[str, Scalar],
    turns: int = 3,
    clock: Callable[[], float] = time.process_time,
) -> Cost:
    """Return what rounds of a preset cost, in turns with FedAvg."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            name: engine_round({**setup, "strategy": name}, folder) for name in (BASELINE, preset)
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(turns + 1):
            for name, play in ways.items():
                took = one_turn(play, clock)
                seconds[name] += took if turn else []
    ours, base = seconds[preset], seconds[BASELINE]
    return Cost(
        statistics.median(ours) / statistics.median(base),
        statistics.mean(ours) / statistics.mean(base),
        statistics.median(base),
    )


def one_turn(
    play: Callable[[], None], clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return the CPU seconds of each round of a turn.

    >>> len(one_turn(lambda: None, iter(range(99)).__next__))
    5
    """
    took: list[float] = []
    while sum(took) < _TURN or len(took) % _ROUNDS:
        started = clock()
        play()
        took.append(clock() - started)
    return took


def all_costs(names: Sequence[str], turns: int) -> dict[str, Cost]:
    """Measure presets in both set-ups; names are those of targets."""
    return {
        f"{preset}, {setup}": measure(preset, overrides, turns)
        for setup, overrides in SETUPS.items()
        for preset in names
        if (preset, setup) not in LEFT_OUT
    }


def table(costs: Mapping[str, Cost]) -> Table:
    """Return a row per preset and set-up; the mean is what has a target.

    >>> print(table({"cosage, 30 clients": Cost(4.0, 5.0, 0.002)}).markdown())
    | preset             | median | mean | target | fedavg (ms) |
    | ------------------ | ------ | ---- | ------ | ----------- |
    | cosage, 30 clients | 4.0    | 5.0  | 2      | 2.0         |
    """
    rows = [["preset", "median", "mean", "target", "fedavg (ms)"]]
    for name, cost in costs.items():
        target = f"{METHOD_TARGETS[name]:g}" if name in METHOD_TARGETS else ""
        numbers = [f"{cost.median:.1f}", f"{cost.mean:.1f}", target, f"{1000 * cost.baseline:.1f}"]
        rows.append([name, *numbers])
    return Table(rows)


def main() -> None:
    """Print the table; keep it if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m forager.benchmarks.methods_speed",
        description="What does a round of each preset cost, next to FedAvg's?",
    )
    known = [name for name in presets() if name != BASELINE]
    parser.add_argument("presets", nargs="*", default=known, help="only these")
    parser.add_argument("--turns", type=int, default=3, help="turns of each that are measured")
    parser.add_argument("--record", action="store_true", help="keep the numbers, change the page")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    configure_logging(logging.WARNING)
    costs = all_costs(options.presets, options.turns)
    ratios = {name: cost.mean for name, cost in costs.items()}
    last = last_ratios(read_records(METHOD_RECORDS))
    print(table(costs).markdown(), *verdict(ratios, last, METHOD_TARGETS), sep="\n")
    if not is_quiet(load, os.cpu_count() or 1):
        print(f"the machine was busy before this began (load {load:.1f})")
    if options.record:
        append_record(new_record(ratios, load), METHOD_RECORDS)
        write_page(read_records())


if __name__ == "__main__":
    main()
