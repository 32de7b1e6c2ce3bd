"""LoRA adapters of unequal rank."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from forager.selectors.adapters import of_rank, stacked

ROOT = Path(__file__).resolve().parents[3]


def drawn(ranks, rng):
    return [(rng.normal(size=(9, r)), rng.normal(size=(r, 7))) for r in ranks]


@pytest.mark.parametrize("ranks", [(1,), (1, 2, 4), (3, 3), (8, 1)], ids=str)
def test_the_mean_of_the_products_is_exact(ranks):
    rng = np.random.default_rng(0)
    adapters, weights = drawn(ranks, rng), rng.uniform(1, 5, len(ranks))
    b, a = stacked(adapters, weights)
    mean = sum(w * left @ right for w, (left, right) in zip(weights, adapters, strict=True))
    np.testing.assert_allclose(b @ a, mean / weights.sum(), atol=1e-12)
    assert b.shape[1] == sum(ranks)


@pytest.mark.parametrize("rank", [1, 2, 3, 5, 12])
def test_a_rank_gets_the_nearest_product(rank):
    adapter = stacked(drawn((2, 1), np.random.default_rng(1)), [1, 2])
    product = adapter[0] @ adapter[1]
    b, a = of_rank(adapter, rank)
    assert b.shape == (9, min(rank, 3))
    assert a.shape == (min(rank, 3), 7)
    left = np.linalg.svd(product, compute_uv=False)[rank:]
    assert np.linalg.norm(b @ a - product) == pytest.approx(np.linalg.norm(left), abs=1e-9)


def test_the_example_trains_a_transformer():
    run = runpy.run_path(str(ROOT / "examples" / "lora_ranks.py"))["run"]
    found = run(rounds=2)
    assert set(found) == {"products", "padded", "padding is off by"}
    assert found["padding is off by"] > 0.05
