"""Time of finding cohorts, as shares of what a round costs anyway.

``python -m forager.benchmarks.cohort_speed`` prints two things. What one step of clustering takes
for 200 participants and a model of 1,000,000 parameters (projection included), as a share of the
weighted mean of the same 200 replies; the two take turns in one run. And how long it takes to match
100,000 requests to leaves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from numpy.typing import NDArray

from ..selectors.cohorts.affinity import Affinity, AffinityRecord
from ..selectors.cohorts.auxo import Auxo
from ..selectors.cohorts.matching import Claims, choose_leaves
from ..selectors.cohorts.projection import Projection
from ..selectors.cohorts.split import SplitRule
from .side_by_side import side_by_side

Layers = list[NDArray[np.float32]]

_LEAVES = 4


@dataclass(frozen=True)
class Cost:
    """What one way takes.

    Attributes
    ----------
    seconds : float
        Median over the repeats.
    share : float
        Of the weighted mean in numpy.
    """

    seconds: float
    share: float


def replies(count: int, parameters: int, rng: np.random.Generator) -> list[Layers]:
    """Return models of three layers, a large, a middling and a small one, in four groups."""
    sizes = [parameters - parameters // 3 - 1000, parameters // 3, 1000]
    centres = [[rng.standard_normal(size, dtype=np.float32) for size in sizes] for _ in range(4)]
    return [
        [layer + rng.normal(0, 0.3, layer.size).astype(np.float32) for layer in centres[i % 4]]
        for i in range(count)
    ]


def weighted_mean(models: list[Layers]) -> Layers:
    """Return the mean as Flower's FedAvg computes it, on arrays."""
    weight = 1 / len(models)
    mean = [layer * weight for layer in models[0]]
    for model in models[1:]:
        for total, layer in zip(mean, model, strict=True):
            total += layer * weight
    return mean


def with_four_leaves(keys: list[str], sketches: NDArray[np.float64]) -> Auxo:
    """Return cohorts that were split in four by one round of these participants."""
    rule = SplitRule(first_round=0, rounds=1, participants=1)
    auxo = Auxo(parts=_LEAVES, rule=rule, first_cluster_round=0, retry=10**9)
    if not auxo.observe("0", keys, sketches, [None] * len(keys)).children:
        raise ValueError("the groups of this workload should be told apart")
    return auxo


def measure_step(
    participants: int = 200, parameters: int = 1_000_000, repeats: int = 9
) -> dict[str, Cost]:
    """Return what aggregating and clustering the same replies take.

    >>> list(measure_step(participants=40, parameters=6000, repeats=1))[:2]
    ['weighted mean, numpy', 'weighted mean, flwr']
    """
    models = replies(participants, parameters, np.random.default_rng(0))
    keys = [f"client-{i}" for i in range(participants)]
    project = Projection([layer.size for layer in models[0]])
    sketches = project.sketch_each(models)
    auxo, requests = with_four_leaves(keys, sketches), [Affinity() for _ in keys]
    for key, request in zip(keys, requests, strict=True):
        request.learn(auxo.feedback_for(key), auxo.tree)
    leaf = auxo.leaves()[0]
    records = [
        RecordDict(
            {
                "arrays": ArrayRecord({str(i): Array(layer) for i, layer in enumerate(model)}),
                "metrics": MetricRecord({FedAvg().weighted_by_key: 1}),
            }
        )
        for model in models
    ]
    ways: dict[str, Callable[[], Any]] = {
        "weighted mean, numpy": lambda: weighted_mean(models),
        "weighted mean, flwr": lambda: aggregate_arrayrecords(records, FedAvg().weighted_by_key),
        "sketches": lambda: project.sketch_each(models),
        "sketches and clusters": lambda: auxo.observe(
            leaf, keys, project.sketch_each(models), requests
        ),
        "sketches and first clusters": lambda: with_four_leaves(keys, project.sketch_each(models)),
    }
    seconds = side_by_side(ways, repeats)
    limit = seconds["weighted mean, numpy"]
    return {name: Cost(value, value / limit) for name, value in seconds.items()}


def requests_of(clients: int, leaves: list[str]) -> tuple[list[str], list[Affinity]]:
    """Return that many clients and their random requests."""
    rewards = np.random.default_rng(0).normal(size=(clients, len(leaves))).tolist()
    keys = [f"client-{i:07}" for i in range(clients)]
    return keys, [
        Affinity({leaf: AffinityRecord(r) for leaf, r in zip(leaves, row, strict=True)})
        for row in rewards
    ]


def measure_matching(clients: int = 100_000, repeats: int = 3) -> dict[str, float]:
    """Return the seconds that matching all these clients' requests to leaves takes.

    >>> sorted(measure_matching(clients=1000, repeats=1))
    ['from requests to groups of names', 'rewards to leaves']
    """
    sketches = np.repeat(np.eye(_LEAVES), 10, axis=0)
    auxo = with_four_leaves([str(number) for number in range(len(sketches))], sketches)
    keys, requests = requests_of(clients, auxo.leaves())
    rewards, rng = Claims.of(requests, auxo.tree).rewards, np.random.default_rng(0)
    ways: dict[str, Callable[[], Any]] = {
        "rewards to leaves": lambda: choose_leaves(rewards, [0.3] * _LEAVES, rng),
        "from requests to groups of names": lambda: auxo.match(keys, requests),
    }
    return side_by_side(ways, repeats)


def main() -> None:
    """Print the tables."""
    print("One round of 200 participants, 1,000,000 parameters; shares of the mean in numpy")
    for name, cost in measure_step().items():
        print(f"  {name:30} {1000 * cost.seconds:8.1f} ms {cost.share:6.3f}")
    print(f"Matching 100,000 requests to {_LEAVES} leaves")
    for name, seconds in measure_matching().items():
        print(f"  {name:30} {seconds:8.2f} s")


if __name__ == "__main__":
    main()
