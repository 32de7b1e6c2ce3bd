"""What is usual."""

import numpy as np
import pytest
from forager.strategies.federation.plausibility import UsualSize


@pytest.mark.parametrize("count", [1, 2, 5, 200, 301])
def test_the_usual_is_the_median_of_what_was_accepted_last(count: int) -> None:
    sizes = np.random.default_rng(count).lognormal(size=count).tolist()
    usual = UsualSize(factor=2.0)
    assert usual.median == 0.0
    for size in sizes[: count // 2]:
        usual.append(size)
    half = usual.median
    usual.extend(sizes[count // 2 :])
    assert usual.median == np.median(sizes[-200:])
    usual.load(sizes[: count // 2][-200:])
    assert usual.median == half
