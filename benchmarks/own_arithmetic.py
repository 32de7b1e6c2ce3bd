"""What part of a round of Forager is arithmetic that FedAvg does not do, and what is left.

``OMP_NUM_THREADS=1 python -m forager.benchmarks.own_arithmetic`` plays rounds in turns with FedAvg,
as ``methods_speed`` does, and times the functions below while Forager plays. What is left of its
round is compared with a round of FedAvg. ``--record`` keeps the result in
``benchmarks/records/own-arithmetic.jsonl``, for the page of the united strategy.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch

from ..server_app.app import configure_logging
from ..tools.experiments.tables import Table
from .methods_speed import SETUPS, one_turn
from .speed import engine_round
from .speed_records import OWN_RECORDS, append_record, new_record

# Numpy and torch in and out: the test for groups, predictions and weights of samples, codecs.
# A function is replaced where it is called from.
ARITHMETIC = (
    "strategies.cohorts.split_testing:SplitTest.observe",
    "strategies.cohorts.split_testing:SplitTest.hear_labels",
    "strategies.cohorts.update_sketches:Signal.sketches",
    "client_app.hooks.confirmed_labels:predictions_of_all",
    "client_app.hooks.confirmed_labels:running_predictions",
    "client_app.hooks.confirmed_labels:agreement",
    "strategies.layers.confirmed_labels:ServerSamples.accuracy",
    "core.wire.sparse:encode_rows",
    "core.wire.sparse:decode_rows",
    "core.wire.sparse:steepness",
    "server_app.exchange:encode_shortest",
    "client_app.device.held_models:apply_change",
)


class Stopwatch:
    """Adds up the CPU time of functions; one that another of them calls counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._running = False

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which now takes its time."""

        def call(*args: Any, **named: Any) -> Any:
            if self._running:
                return work(*args, **named)
            self._running, started = True, time.process_time()
            try:
                return work(*args, **named)
            finally:
                self.seconds += time.process_time() - started
                self._running = False

        return call

    @contextmanager
    def on(self, places: tuple[str, ...] = ARITHMETIC) -> Iterator[None]:
        """Time the functions at some places, ``module:name`` below the package."""
        before = []
        for place in places:
            module, _, name = place.partition(":")
            owner: Any = import_module(f"forager.{module}")
            *path, last = name.split(".")
            owner = attrgetter(".".join(path))(owner) if path else owner
            before.append((owner, last, getattr(owner, last)))
            setattr(owner, last, self.timed(getattr(owner, last)))
        try:
            yield
        finally:
            for owner, name, work in reversed(before):
                setattr(owner, name, work)


def measure(setup: str, preset: str = "forager", turns: int = 3) -> tuple[float, float]:
    """Return a round of a preset as a multiple of FedAvg's: all of it, and its own arithmetic."""
    watch = Stopwatch()
    ours, base = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        play_base = engine_round({**SETUPS[setup], "strategy": "fedavg"}, folder)
        with watch.on():
            play_ours = engine_round({**SETUPS[setup], "strategy": preset}, folder)
            for turn in range(turns + 1):
                if turn == 1:  # the first sets things up
                    ours, base, watch.seconds = [], [], 0.0
                base += one_turn(play_base)
                ours += one_turn(play_ours)
    own = watch.seconds / len(ours) / statistics.mean(base)
    return statistics.mean(ours) / statistics.mean(base), own


def ratios(turns: int = 3) -> dict[str, float]:
    """Return what is measured, by name."""
    found = dict[str, float]()
    for setup in SETUPS:
        whole, own = measure(setup, turns=turns)
        found |= {f"{setup}, all": whole, f"{setup}, own arithmetic": own}
        found[f"{setup}, the rest"] = whole - own
    return found


def main() -> None:
    """Print a table; keep it if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m forager.benchmarks.own_arithmetic",
        description="What part of a round of Forager is arithmetic of its own?",
    )
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    configure_logging(logging.ERROR)
    found = ratios(options.turns)
    rows = [["", "times FedAvg's round"], *([name, f"{v:.1f}"] for name, v in found.items())]
    print(Table(rows).markdown())
    if options.record:
        append_record(new_record(found, load), OWN_RECORDS)


if __name__ == "__main__":
    main()
