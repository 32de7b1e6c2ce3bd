"""Speed of choosing coresets, as ratios to what others take and to the least it can take.

``python -m forager.benchmarks.coreset_speed`` chooses 500 of 5000 gradients of length 2049 by
matching pursuit. Each step needs the product of all gradients with the residual, so 500 of these
products are the limit. It is compared with scikit-learn's pursuit, and with solving for the weights
from scratch at every step. Then it chooses 200 of 2000 samples by facility location, compared with
the lazy greedy of apricot-select where that is installed; it is not among the requirements. Last,
it chooses a tenth of a client's 1000 images of 32 x 32 pixels, gradients included, compared with an
epoch of training the paper's CNN on all of them.

All sides take turns in one run, so that other load on the machine hits all of them; the ratio of
the medians is what counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp

from ..core.config import RunConfig
from ..core.learning.gradients import sample_rows, server_targets
from ..core.learning.job import Job
from ..core.learning.model_arrays import read_arrays
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import TrainSettings
from ..core.learning.trainer import train_one
from ..core.methods.catalogue import methods
from ..core.methods.coreset import CoresetMethod
from ..core.tasks import Split
from ..core.tasks.models import build_model
from ..core.tasks.problems import Classification
from ..selectors.data_selectors.coreset import choose_coreset
from ..selectors.data_selectors.facility_location import facility_location
from ..selectors.data_selectors.matching_pursuit import matching_pursuit
from .side_by_side import side_by_side

Array = NDArray[Any]


@dataclass(frozen=True)
class Cost:
    """What one way of choosing takes, and how well it does.

    Attributes
    ----------
    seconds : float
        Median over the repeats.
    ratio : float
        To the way that is listed first.
    quality : float
        Of matching pursuit the relative norm of the residual, of facility location the sum of
        squared distances to the nearest sample chosen; lower is better, NaN where nothing is.
    """

    seconds: float
    ratio: float
    quality: float


def pursuit_costs(
    samples: int = 5000, length: int = 2049, budget: int = 500, repeats: int = 3
) -> dict[str, Cost]:
    """Return what each way of matching the mean gradient takes.

    >>> costs = pursuit_costs(samples=60, length=30, budget=5, repeats=1)
    >>> list(costs)[0], costs["ours, projection"].quality < 1
    ('the products alone', True)
    """
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((samples, length), dtype=np.float32)
    target = gradients.mean(axis=0)

    def products() -> float:
        for _ in range(budget):
            gradients @ target
        return float("nan")

    def pursue(**options: Any) -> float:
        found = matching_pursuit(gradients, target, budget, tolerance=0.0, **options)
        return float(found.residuals[-1] / np.linalg.norm(target))

    def scikit_learn() -> float:
        weights = orthogonal_mp(gradients.T, target, n_nonzero_coefs=budget, precompute=False)
        return _left(gradients, target, weights)

    ways = {
        "the products alone": products,
        "ours, distance": pursue,
        "ours, projection": lambda: pursue(rule="projection"),
        "ours, projection, nonnegative": lambda: pursue(rule="projection", nonnegative=True),
        "ours, distance, 5 a step": lambda: pursue(step=5),
        "ours, projection, no ridge": lambda: pursue(rule="projection", ridge=0.0),
        "scikit-learn (no ridge)": scikit_learn,
        "solved from scratch, projection": lambda: _from_scratch(gradients, target, budget),
    }
    return _side_by_side(ways, repeats)


def location_costs(
    samples: int = 2000, length: int = 64, budget: int = 200, repeats: int = 3
) -> dict[str, Cost]:
    """Return what each way of choosing by facility location takes.

    >>> list(location_costs(samples=40, length=3, budget=5, repeats=1))[0]
    'ours'
    """
    rng = np.random.default_rng(0)
    features = rng.standard_normal((samples, length), dtype=np.float32)
    ways: dict[str, Callable[[], float]] = {
        "ours": lambda: _spread(features, facility_location(features, budget))
    }
    if find_spec("apricot") is not None:
        selection = import_module("apricot").FacilityLocationSelection

        def apricot() -> float:
            chosen = selection(budget, metric="euclidean", optimizer="lazy").fit(features).ranking
            return _spread(features, chosen)

        ways["apricot-select, lazy"] = apricot
    return _side_by_side(ways, repeats)


def epoch_costs(
    samples: int = 1000, size: int = 32, model_name: str = "cnn", repeats: int = 3
) -> dict[str, Cost]:
    """Return what a client's choice of a tenth of its samples takes beside an epoch on all of them.

    >>> costs = epoch_costs(samples=60, size=8, model_name="mlp", repeats=1)
    >>> list(costs)[:2]
    ['an epoch on all samples', 'gcfl']
    """
    rng = np.random.default_rng(0)
    images = rng.random((samples, 3, size, size), dtype=np.float32)
    data = Split(torch.from_numpy(images), torch.from_numpy(rng.integers(0, 10, samples)))
    model = build_model(model_name, (3, size, size), 10)
    arrays = read_arrays(model)
    targets = server_targets(model, arrays, data, True, Classification())

    # As in section 6.3 of the paper
    settings = TrainSettings(1, 0, 32, learning_rate=0.01, momentum=0.9, weight_decay=5e-4)

    def epoch() -> float:
        return train_one(model, Job(arrays, data, seed=0), settings, Plain(RunConfig())).loss

    def choose(rule: str) -> float:
        rows = sample_rows(model, arrays, data, rule, True, Classification())
        guide = None if rule == "crust" else targets
        chosen = choose_coreset(rule, rows, data.y.numpy(), samples // 10, guide, rng)
        return float(len(chosen))

    ways = {"an epoch on all samples": epoch}
    for name in ("gcfl", "gradmatch", "nearest", "crust"):
        method = methods("data-selector")[name]
        assert isinstance(method, CoresetMethod)
        ways[name] = partial(choose, method.rule)
    return _side_by_side(ways, repeats)


def _from_scratch(gradients: Array, target: Array, budget: int, ridge: float = 0.5) -> float:
    """Return the relative residual of the projection rule with a new solution at every step."""
    chosen: list[int] = []
    residual = target
    for _ in range(budget):
        scores = gradients @ residual
        scores[chosen] = -np.inf
        chosen.append(int(np.argmax(scores)))
        rows = gradients[chosen]
        weights = np.linalg.solve(rows @ rows.T + ridge * np.eye(len(rows)), rows @ target)
        residual = (target - weights @ rows).astype(target.dtype)
    return float(np.linalg.norm(residual) / np.linalg.norm(target))


def _left(gradients: Array, target: Array, weights: Array) -> float:
    return float(np.linalg.norm(target - weights @ gradients) / np.linalg.norm(target))


def _spread(features: Array, chosen: Array) -> float:
    """Return the sum of squared distances to the nearest sample chosen: the objective."""
    rows = features.astype(np.float64)
    squares = (rows**2).sum(axis=1)
    distances = squares[:, None] + squares[chosen] - 2 * rows @ rows[chosen].T
    return float(distances.min(axis=1).sum())


def _side_by_side(ways: dict[str, Callable[[], float]], repeats: int) -> dict[str, Cost]:
    """Return the cost of each: seconds, alone and to the first, and how good the result is."""
    qualities: dict[str, float] = {}

    def noting(name: str) -> Callable[[], None]:
        return lambda: qualities.update({name: ways[name]()})

    seconds = side_by_side({name: noting(name) for name in ways}, repeats)
    limit = next(iter(seconds.values()))
    return {name: Cost(seconds[name], seconds[name] / limit, qualities[name]) for name in ways}


def _show(costs: dict[str, Cost]) -> None:
    for name, cost in costs.items():
        print(f"  {name:32} {cost.seconds:8.3f} s {cost.ratio:7.2f} {cost.quality:12.4f}")


def main() -> None:
    """Print all tables."""
    print("Matching pursuit, 500 of 5000 gradients of length 2049, float32:")
    print("seconds, ratio to the products alone, relative residual")
    _show(pursuit_costs())
    print("Facility location, 200 of 2000 samples of length 64, float32:")
    print("seconds, ratio to ours, sum of squared distances to the nearest")
    _show(location_costs())
    if find_spec("apricot") is None:
        print("  apricot-select is not installed: pip install apricot-select to compare")
    print("A tenth of 1000 images of 32 x 32 pixels, the paper's CNN:")
    print("seconds, ratio to an epoch, loss or samples")
    _show(epoch_costs())


if __name__ == "__main__":
    main()
