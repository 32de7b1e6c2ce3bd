"""Partitions in whole arrays are those of flwr-datasets, draw by draw."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner
from forager.core.tasks import partitions
from forager.core.tasks.partitions import ARRAY_PARTITIONS
from forager.core.tasks.spec import TaskSpec
from numpy.typing import NDArray

GROUPS = np.random.default_rng(0).integers(0, 10, 3_000)


@pytest.mark.parametrize(
    ("kind", "clients", "alpha", "seed"),
    [
        ("iid", 7, 1.0, 0),
        ("iid", 1_300, 1.0, 3),
        ("dirichlet", 20, 0.5, 0),
        ("dirichlet", 60, 5.0, 4),
        ("dirichlet", 400, 0.3, 1),  # some are left without samples
        ("dirichlet", 30, 0.05, 2),  # numpy draws such small alphas in another way
    ],
)
def test_they_are_those_of_flwr_datasets(kind: str, clients: int, alpha: float, seed: int) -> None:
    spec = replace(TaskSpec(), partition=kind, alpha=alpha, seed=seed)
    order, offsets = ARRAY_PARTITIONS[kind](spec, GROUPS, clients)
    expected = by_flower(spec, clients)
    np.testing.assert_equal(np.diff(offsets), [len(part) for part in expected])
    np.testing.assert_equal(order, np.concatenate(expected))


def by_flower(spec: TaskSpec, clients: int) -> list[NDArray[np.int64]]:
    """Partition by flwr-datasets: nobody is without samples if ten draws allow it."""
    ways: list[Any] = [IidPartitioner(clients)]
    if spec.partition == "dirichlet":
        ways = [
            DirichletPartitioner(
                clients, "group", spec.alpha, min_partition_size=smallest, seed=spec.seed
            )
            for smallest in (1, 0)
        ]
    for way in ways:
        try:
            return partitions._run(way, GROUPS, clients)
        except ValueError:
            continue
    raise AssertionError


@pytest.mark.parametrize("kind", sorted(ARRAY_PARTITIONS))
def test_every_sample_has_one_owner(kind: str) -> None:
    spec = replace(TaskSpec(), partition=kind)
    labels = np.arange(50_000) % 10
    spread = partitions._spread(spec, labels, 20_000)
    assert np.array_equal(np.sort(spread["order"]), np.arange(50_000))
    assert len(spread["offsets"]) == 20_001
    assert spread["offsets"][-1] == 50_000
