"""What is computed for many clients at once, against one client after the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from forager.core.learning.features import features_of, features_of_all
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.pools import Pool, pools
from forager.core.tasks import Split
from torch import nn

SIZES = [3, 1, 40, 0, 2, 700, 900]


def seeded(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def chain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))


MODELS = {"chain": chain, "convolutional": convolutional}


def clients(sizes: Sequence[int] = SIZES) -> list[Split]:
    generator = torch.Generator().manual_seed(3)
    return [
        Split(
            torch.randn(n, 1, 2, 3, generator=generator),
            torch.randint(0, 3, (n,), generator=generator),
        )
        for n in sizes
    ]


def models_of(model: nn.Module, way: str, count: int) -> list[dict[str, Any]]:
    """Return one model for all, two models by turns, or a model each."""
    first = read_arrays(model)
    rng = np.random.default_rng(1)
    others = [
        {n: (a + rng.normal(scale=0.1, size=a.shape)).astype(np.float32) for n, a in first.items()}
        for _ in range(count)
    ]
    return {"same": [first] * count, "two": (others[:2] * count)[:count], "own": others}[way]


every_way = pytest.mark.parametrize("way", ["same", "two", "own"])
every_model = pytest.mark.parametrize("kind", list(MODELS))


def test_pools_hold_clients_with_the_same_key_and_not_too_many_samples():
    data = clients()
    found = pools([0, 0, 1, 0, 1, 1, 1], data)
    assert [each.clients if isinstance(each, Pool) else each for each in found] == [
        3,  # has no sample
        [1, 0],
        [4, 2],
        5,
        6,
    ]
    assert [len(each.clients) for each in pools([0] * 5, data[:1] * 5, most=2)[:2]] == [2, 2]


def test_a_pool_is_cut_where_padding_would_outweigh_its_samples():
    together = pools([0] * 21, clients([1] * 20 + [300]))
    assert [each if isinstance(each, int) else len(each.clients) for each in together] == [20, 20]


@every_way
@every_model
def test_features_are_those_one_by_one(kind, way):
    model, data = MODELS[kind](), [each for each in clients() if len(each)]
    arrays = models_of(model, way, len(data))
    found = features_of_all(model, arrays, data)
    expected = torch.cat([features_of(model, *each) for each in zip(arrays, data, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
