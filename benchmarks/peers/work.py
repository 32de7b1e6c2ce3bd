"""The work that every peer does, and the bare loop that it is measured against.

It is the first work of ``benchmarks/speed.py``: 1,000 clients with 60 digits each, 100 of them per
round, a softmax model, one epoch of SGD in batches of 16. It imports nothing of this project,
because every peer has an environment of its own.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

CLIENTS, PER_ROUND, SAMPLES, BATCH, RATE = 1_000, 100, 60, 16, 0.1
ROUNDS = 12  # that are measured, after one to warm up
RECORDS = Path(__file__).parents[1] / "records" / "peers.jsonl"

Data = list[tuple[torch.Tensor, torch.Tensor]]
Clocks = tuple[float, float]  # seconds that passed, and seconds of work of this process


@lru_cache
def clients() -> Data:
    """Return the digits of every client: scikit-learn's, repeated, in random order."""
    x, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(CLIENTS * SAMPLES) % len(x)
    inputs = torch.tensor(x[rows] / 16, dtype=torch.float32).split(SAMPLES)  # type: ignore[no-untyped-call]
    labels = torch.tensor(y[rows]).split(SAMPLES)  # type: ignore[no-untyped-call]
    return list(zip(inputs, labels, strict=True))


def softmax() -> torch.nn.Module:
    """Return the model."""
    torch.manual_seed(0)
    return torch.nn.Linear(64, 10)


def train(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train for one epoch, as plainly as PyTorch allows."""
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for batch in torch.randperm(len(x)).split(BATCH):  # type: ignore[no-untyped-call]
        optimiser.zero_grad()
        functional.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


class BareLoop:
    """Federated averaging with no framework around it."""

    def __init__(self, data: Data) -> None:
        self.data, self.model = data, softmax()
        self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        self._rng = np.random.default_rng(0)

    def round(self) -> None:
        """Train some clients and average their models."""
        total = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        for client in self._rng.choice(len(self.data), PER_ROUND, replace=False):
            self.model.load_state_dict(self.weights)
            train(self.model, *self.data[client])
            for name, value in self.model.state_dict().items():
                total[name] += value
        self.weights = {name: value / PER_ROUND for name, value in total.items()}


class Turns:
    """Times the rounds of a peer and of the bare loop, which take turns.

    Other load on the machine then hits both, so that the ratio of the medians is what counts.

    Parameters
    ----------
    name : str
        What the peer is called.
    package : str
        What it is called on PyPI.
    data : list
        The clients.
    """

    def __init__(self, name: str, package: str, data: Data) -> None:
        torch.set_num_threads(1)
        self.name, self._version, self._bare = name, version(package), BareLoop(data)
        self._load = os.getloadavg()[0]
        self._since = _clocks()
        self._peers: list[Clocks] = []
        self._bares: list[Clocks] = []

    def begin(self) -> None:
        """Note that a round of the peer begins."""
        self._since = _clocks()

    def end(self) -> None:
        """Note that it has ended, and play a round of the bare loop."""
        self._peers.append(_passed(self._since))
        self._bares.append(_seconds(self._bare.round))

    def show(self) -> None:
        """Print the ratios, and keep them if ``--record`` was given; the first turn warms up."""
        wall, work = (self._ratio(clock) for clock in (0, 1))
        rounds = len(self._peers) - 1
        print(
            f"{self.name} {self._version}: {wall:.2f} times the bare loop ({rounds} rounds); "
            f"seconds of work of this process: {work:.2f} times",
            flush=True,
        )
        if "--record" in sys.argv:
            record = {
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "peer": self.name,
                "version": self._version,
                "ratio": float(f"{wall:.3g}"),
                "cpu_ratio": float(f"{work:.3g}"),
                "rounds": rounds,
                "load": round(self._load, 2),
                "cores": os.cpu_count() or 1,
            }
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def _ratio(self, clock: int) -> float:
        peer, bare = (
            statistics.median(each[clock] for each in found[1:])
            for found in (self._peers, self._bares)
        )
        return peer / bare


def _clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


def _passed(since: Clocks) -> Clocks:
    now = _clocks()
    return now[0] - since[0], now[1] - since[1]


def _seconds(play: Callable[[], None]) -> Clocks:
    since = _clocks()
    play()
    return _passed(since)
