"""Time and memory of choosing clients, as ratios to ``numpy.argsort`` of the same scores.

``python -m forager.benchmarks.selection_speed`` chooses 100 of 1,000,000 clients. A ranking cannot
be had for less than one argsort, so that is the limit. All sides take turns in one run, so that
other load on the machine hits all of them; the ratio of the medians is what counts.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..selectors.client_selectors.cosage import cosage
from .side_by_side import side_by_side


@dataclass(frozen=True)
class Cost:
    """What one way of choosing takes.

    Attributes
    ----------
    seconds : float
        Median over the repeats.
    ratio : float
        To the argsort of the same scores.
    megabytes : float
        At the peak, besides the inputs.
    """

    seconds: float
    ratio: float
    megabytes: float


def measure(clients: int = 1_000_000, count: int = 100, repeats: int = 7) -> dict[str, Cost]:
    """Return what each way of choosing ``count`` of ``clients`` takes.

    >>> list(measure(clients=1000, count=10, repeats=1))[:2]
    ['argsort', 'cosage']
    """
    rng = np.random.default_rng(0)
    scores, age = rng.uniform(-1, 1, clients), rng.integers(0, 50, clients)
    rounded = scores.round(2)
    ways: dict[str, Callable[[], Any]] = {
        "argsort": lambda: np.argsort(scores),
        "cosage": lambda: cosage(scores, age, count),
        "cosage, seeded ties": lambda: cosage(scores, age, count, rng=rng),
        "cosage, half of them silent": lambda: cosage(scores, age, count, silent_ratio=0.5),
        "argsort, two digits": lambda: np.argsort(rounded),
        "cosage, two digits": lambda: cosage(rounded, age, count),
        "cosage, two digits, seeded ties": lambda: cosage(rounded, age, count, rng=rng),
    }
    seconds = side_by_side(ways, repeats)
    costs, limit = {}, 1.0
    for name, way in ways.items():
        limit = seconds[name] if name.startswith("argsort") else limit
        costs[name] = Cost(seconds[name], seconds[name] / limit, _peak_megabytes(way))
    return costs


def _peak_megabytes(way: Callable[[], Any]) -> float:
    tracemalloc.start()
    way()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    """Print the table."""
    print("| 100 of 1,000,000 clients | over argsort of the same scores | peak memory |")
    print("| --- | --- | --- |")
    for name, cost in measure().items():
        print(f"| {name} | {cost.ratio:.2f} | {cost.megabytes:.0f} MB |")


if __name__ == "__main__":
    main()
