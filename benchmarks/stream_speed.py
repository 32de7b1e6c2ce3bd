"""Speed of keeping samples of a stream: ``python -m forager.benchmarks.stream_speed``.

A million offers to a queue of the best stand against ``heapq.heappushpop`` on a heap of the same
size, which is the limit for a queue in Python. The coordination of 10,000 clients with 100 labels
stands against one ``numpy.argsort`` of the same velocities; its objective, on small instances,
against the linear program of eq. 10 of the ODE paper. Valuing 10,000 images by the last layer of
LeNet stands against one forward pass over them, which is the limit, and against a loop that asks
autograd for the last layer's gradient of one image after the other. All sides take turns in one
run.
"""

import heapq
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import nn
from torch.nn import functional

from ..core.learning.sample_values import HeadValuation
from ..core.tasks.models import build_model, split_at_head
from ..selectors.stream_selectors.ode import ValueStore, coordinate
from .side_by_side import side_by_side

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Offers:
    """What offers to a queue cost.

    Attributes
    ----------
    nanoseconds : float
        Of one offer.
    ratio : float
        To ``heapq.heappushpop``.
    growth : float
        Kilobytes of memory that nine tenths of the offers added.
    """

    nanoseconds: float
    ratio: float
    growth: float


def measure_offers(capacity: int, order: str, count: int = 1_000_000) -> Offers:
    """Return what offers cost, of values in random or in rising order (then all are stored).

    >>> measure_offers(10, "random", count=2000).growth < 100
    True
    """
    values = np.random.default_rng(0).random(count)
    offered = (np.sort(values) if order == "rising" else values).tolist()
    seconds, limit = [], []
    for _ in range(3):
        seconds.append(_seconds(lambda: _offer(ValueStore(capacity), offered)))
        limit.append(_seconds(lambda: _push_and_pop(capacity, offered)))
    best = min(seconds)
    return Offers(1e9 * best / count, best / min(limit), _growth(capacity, offered))


def _offer(store: ValueStore, values: list[float], first: int = 0) -> None:
    offer = store.offer
    for key, value in enumerate(values, first):
        offer(key, value)


def _push_and_pop(capacity: int, values: list[float]) -> None:
    heap: list[tuple[float, int]] = []
    for key, value in enumerate(values):
        if key < capacity:
            heapq.heappush(heap, (value, key))
        else:
            heapq.heappushpop(heap, (value, key))


def _growth(capacity: int, values: list[float]) -> float:
    """Return the kilobytes between a tenth of the offers and all of them."""
    store, tenth = ValueStore(capacity), max(capacity, len(values) // 10)
    tracemalloc.start()
    _offer(store, values[:tenth])
    before, _ = tracemalloc.get_traced_memory()
    rest = values[tenth:]
    held = tracemalloc.get_traced_memory()[0] - before
    _offer(store, rest, first=tenth)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before - held) / 1e3


def measure_coordination(clients: int = 10_000, labels: int = 100) -> dict[str, float]:
    """Return the seconds of work of each way to coordinate, and of one argsort.

    >>> list(measure_coordination(20, 5))
    ['argsort', 'even', 'even, 5 labels a client', 'matched']
    """
    rng = np.random.default_rng(0)
    velocity = rng.dirichlet([0.3] * labels, clients) * rng.lognormal(1, 1, clients)[:, None]
    storage = np.full(clients, 10)
    ways: dict[str, Callable[[], Any]] = {
        "argsort": lambda: np.argsort(-velocity, axis=0, kind="stable"),
        "even": lambda: coordinate(velocity, storage, 5),
        "even, 5 labels a client": lambda: coordinate(velocity, storage, 5, 5),
        "matched": lambda: coordinate(velocity, storage, 5, quantities="matched"),
    }
    return side_by_side(ways, repeats=5, clock=time.process_time)


@dataclass(frozen=True)
class Gap:
    """How far coordination stays behind the linear program, on instances that it can solve.

    Attributes
    ----------
    solved : int
        Instances for which the program has a solution at all.
    median, worst : float
        Of the share of its objective that is missed; below 0 where the program, which must meet the
        global distribution exactly, has to make do with less.
    within : float
        Share of the instances that miss no more than 5 %.
    off : float
        Mean over the instances of how far the share of a label is off, at most; the class weights
        of eq. 11 make up for it.
    """

    solved: int
    median: float
    worst: float
    within: float
    off: float


def measure_gaps(instances: int = 600) -> dict[str, Gap]:
    """Return how far each way to divide the storage stays behind the linear program of eq. 10.

    >>> gaps = measure_gaps(40)
    >>> gaps["matched"].worst < 0.05 < gaps["even"].worst
    True
    """
    missed: dict[str, list[float]] = {"even": [], "matched": []}
    off: dict[str, list[float]] = {"even": [], "matched": []}
    rng = np.random.default_rng(0)
    for _ in range(instances):
        velocity, storage, limits = _instance(rng)
        plans = {name: coordinate(velocity, storage, *limits, name) for name in missed}
        best = best_objective(velocity, storage, plans["even"].quota > 0)
        if best is None:
            continue
        share = velocity.sum(axis=0) / velocity.sum()
        for name, plan in plans.items():
            missed[name].append(1 - float((plan.quota * velocity).sum()) / best)
            stored = plan.quota.sum(axis=0) / plan.quota.sum()
            off[name].append(float(np.abs(stored - share).max()))
    return {name: _gap(missed[name], off[name]) for name in missed}


def _instance(rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64], tuple[int, int]]:
    """Return velocities, storage and limits; every client has a place for each of its labels."""
    clients, labels = int(rng.integers(3, 12)), int(rng.integers(2, 6))
    skew = rng.choice([0.1, 0.3, 1.0, 10.0])
    velocity = rng.dirichlet([skew] * labels, clients) * rng.lognormal(1, 1, clients)[:, None]
    velocity[velocity < 1e-3 * velocity.max()] = 0
    limits = int(rng.choice([2, 5, 50])), int(rng.integers(2, labels + 1))
    return velocity, rng.choice([5, 10], clients), limits


def best_objective(
    velocity: Floats, storage: NDArray[np.int64], assigned: NDArray[np.bool_]
) -> float | None:
    """Return the largest objective of eq. 10, in fractions of samples; None if none is allowed.

    >>> velocity = np.array([[1.0, 2.0, 3.0]])
    >>> best_objective(velocity, np.array([6]), velocity > 0)
    14.0
    """
    client, label = np.nonzero(assigned)
    rows = client == np.arange(len(velocity))[:, None]
    columns = label == np.arange(velocity.shape[1])[:, None]
    places = np.where(assigned.any(axis=1), storage, 0)
    wanted = places.sum() * velocity.sum(axis=0) / velocity.sum()
    totals, right = np.vstack([rows, columns]).astype(float), np.concatenate([places, wanted])
    solution = linprog(-velocity[client, label], A_eq=totals, b_eq=right, bounds=(0, None))
    return None if solution.fun is None or solution.status else -float(solution.fun)


def _gap(missed: list[float], off: list[float]) -> Gap:
    within = sum(share <= 0.05 for share in missed) / len(missed)
    return Gap(len(missed), statistics.median(missed), max(missed), within, statistics.mean(off))


def measure_valuation(count: int = 10_000, looped: int = 300) -> dict[str, float]:
    """Return the seconds that it takes to value images, and those of a forward pass over them.

    The loop goes over the first few images only; its time is scaled up to all of them.

    >>> list(measure_valuation(64, 4))
    ['forward pass', 'values', 'loop of autograd']
    """
    generator = torch.Generator().manual_seed(0)
    model = build_model("lenet", (1, 28, 28), 10).eval()
    x = torch.rand(count, 1, 28, 28, generator=generator)
    y = torch.randint(10, (count,), generator=generator)
    valuation = HeadValuation(model)
    direction = torch.randn(valuation.size, generator=generator)
    ways: dict[str, Callable[[], Any]] = {
        "forward pass": lambda: _forward(model, x),
        "values": lambda: valuation.look(x, y, direction.numpy()),
        "loop of autograd": lambda: _loop(model, x[:looped], y[:looped], direction),
    }
    found = side_by_side(ways, repeats=5, clock=time.process_time)
    return found | {"loop of autograd": found["loop of autograd"] * count / looped}


@torch.no_grad()
def _forward(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    return [model(part) for part in torch.split(x, 1024)]


def _loop(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, direction: torch.Tensor
) -> list[float]:
    """Return the values of images, from the last layer's gradient of each."""
    body, head = split_at_head(model)
    values = []
    for sample, label in zip(x, y, strict=True):
        with torch.no_grad():
            features = body(sample[None])
        loss = functional.cross_entropy(head(features), label[None])
        weight, bias = torch.autograd.grad(loss, [head.weight, head.bias])
        gradient = torch.cat([bias[:, None], weight], dim=1).flatten()
        values.append(float(gradient @ direction))
    return values


def _seconds(way: Callable[[], Any]) -> float:
    """Return the seconds of work, which other load on the machine does not add to."""
    started = time.process_time()
    way()
    return time.process_time() - started


def main() -> None:
    """Print the tables."""
    print("A million offers to a queue of the best; ratio to heapq.heappushpop")
    for capacity in (10, 10_000):
        for order in ("random", "rising"):
            cost = measure_offers(capacity, order)
            print(
                f"  capacity {capacity:6,}, {order} values {cost.nanoseconds:7.0f} ns an offer"
                f" {cost.ratio:6.2f} {cost.growth:+7.1f} kB over the last 900,000"
            )
    print("Coordination of 10,000 clients with 100 labels; ratio to one argsort of the velocities")
    seconds = measure_coordination()
    for name, value in seconds.items():
        print(f"  {name:24} {1000 * value:7.0f} ms {value / seconds['argsort']:6.2f}")
    print("Objective missed against the linear program of eq. 10, small instances")
    for name, gap in measure_gaps().items():
        print(
            f"  {name:8} {gap.solved} instances: median {gap.median:6.1%}, worst {gap.worst:6.1%},"
            f" {gap.within:.0%} within 5 %; labels' shares off by {gap.off:.1%}"
        )
    print("Valuing 10,000 images by the last layer of LeNet; ratio to one forward pass over them")
    seconds = measure_valuation()
    for name, value in seconds.items():
        print(f"  {name:24} {1000 * value:7.0f} ms {value / seconds['forward pass']:6.2f}")


if __name__ == "__main__":
    main()
