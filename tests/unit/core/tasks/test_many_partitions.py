"""Partitions in whole arrays are those of flwr-datasets, draw by draw."""

from dataclasses import replace

import numpy as np
import pytest
from forager.core.tasks import partitions
from forager.core.tasks.many_partitions import MANY_PARTITIONS
from forager.core.tasks.spec import TaskSpec

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
def test_they_are_those_of_flwr_datasets(
    monkeypatch: pytest.MonkeyPatch, kind: str, clients: int, alpha: float, seed: int
) -> None:
    spec = replace(TaskSpec(), partition=kind, alpha=alpha, seed=seed)
    expected = partitions._spread(spec, GROUPS, clients)
    monkeypatch.setattr(partitions, "MANY", 1)
    found = partitions._spread(spec, GROUPS, clients)
    np.testing.assert_equal(found["offsets"], expected["offsets"])
    np.testing.assert_equal(found["order"], expected["order"])


@pytest.mark.parametrize("kind", sorted(MANY_PARTITIONS))
def test_every_sample_has_one_owner(kind: str) -> None:
    spec = replace(TaskSpec(), partition=kind)
    labels = np.arange(50_000) % 10
    spread = partitions._spread(spec, labels, 20_000)
    assert np.array_equal(np.sort(spread["order"]), np.arange(50_000))
    assert len(spread["offsets"]) == 20_001
    assert spread["offsets"][-1] == 50_000
