import numpy as np
import pytest
from forager.selectors.similarities.importance_average import averaged
from forager.selectors.similarities.index_overlap import top_k_support


def test_order_is_the_one_of_the_bias_corrected_average() -> None:
    rng = np.random.default_rng(0)
    estimates = rng.random((6, 200))
    value = np.zeros(200, dtype=np.float32)
    for estimate in estimates:
        value = averaged(value, estimate, 0.8)
    weights = 0.2 * 0.8 ** np.arange(6)[::-1]
    np.testing.assert_allclose(value, weights @ estimates, rtol=1e-5)
    corrected = weights @ estimates / (1 - 0.8**6)
    np.testing.assert_array_equal(top_k_support(value, 20), top_k_support(corrected, 20))


def test_averaging_lowers_the_variance_as_equation_3_says() -> None:
    rng = np.random.default_rng(0)
    value = np.zeros(20_000, dtype=np.float32)
    for _ in range(60):
        value = averaged(value, 1 + 0.1 * rng.standard_normal(20_000), 0.8)
    assert np.std(value) == pytest.approx(0.1 * np.sqrt(0.2 / 1.8), rel=0.05)


def test_beta_zero_keeps_only_the_last_round() -> None:
    assert averaged([1.0, 2.0], [5.0, 4.0], 0.0).tolist() == [5.0, 4.0]


def test_what_is_averaged_is_not_changed() -> None:
    past, estimate = np.float32([1.0, 2.0]), np.float32([3.0, 4.0])
    averaged(past, estimate, 0.5)
    assert (past.tolist(), estimate.tolist()) == ([1.0, 2.0], [3.0, 4.0])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\) as before, got \(3,\)"):
        averaged([1.0, 2.0], [1.0, 2.0, 3.0], 0.8)
    with pytest.raises(ValueError, match="finite"):
        averaged([1.0, 2.0], [1.0, np.inf], 0.8)


def test_rows_are_averaged_as_each_client_would() -> None:
    rng = np.random.default_rng(3)
    past, estimates = rng.random((2, 5, 30)).astype(np.float32)
    one_by_one = [averaged(*pair, 0.8) for pair in zip(past, estimates, strict=True)]
    np.testing.assert_array_equal(averaged(past, estimates, 0.8), one_by_one)
