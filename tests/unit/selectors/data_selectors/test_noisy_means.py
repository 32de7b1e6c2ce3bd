"""Class means that hide single samples."""

import numpy as np
import pytest
from forager.selectors.data_selectors.noisy_means import noisy_means


def test_without_noise_and_with_a_wide_clip_they_are_the_class_means() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(50, 4)), np.arange(50) % 3
    rows[4] = np.inf
    found = noisy_means(rows, labels, 3, 1e6, 0.0, rng)
    own = [rows[(labels == c) & np.isfinite(rows).all(axis=1)].mean(axis=0) for c in range(3)]
    np.testing.assert_allclose(found, own)


def test_one_sample_changes_a_sum_by_no_more_than_the_clip() -> None:
    rng = np.random.default_rng(1)
    rows, labels = 100 * rng.normal(size=(20, 4)), np.zeros(20, dtype=int)
    whole = 20 * noisy_means(rows, labels, 1, 2.0, 0.0, rng)
    without = 19 * noisy_means(rows[1:], labels[1:], 1, 2.0, 0.0, rng)
    assert np.linalg.norm(whole - without) == pytest.approx(2.0)


def test_the_noise_on_a_sum_is_the_multiplier_times_the_clip() -> None:
    rows, labels = np.zeros((10, 2000)), np.zeros(10, dtype=int)
    found = noisy_means(rows, labels, 1, 3.0, 0.5, np.random.default_rng(2))
    assert 10 * found.std() == pytest.approx(1.5, rel=0.1)


def test_a_class_without_samples_is_unknown() -> None:
    found = noisy_means(np.ones((2, 3)), [0, 2], 3, 10.0, 1.0, np.random.default_rng(3))
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


def test_errors_name_the_argument() -> None:
    rng = np.random.default_rng()
    with pytest.raises(ValueError, match="labels: expected one per row of gradients"):
        noisy_means(np.ones((2, 3)), [0], 1, 1.0, 0.0, rng)
    with pytest.raises(ValueError, match="clip: expected a finite number above 0, got 0"):
        noisy_means(np.ones((2, 3)), [0, 0], 1, 0, 0.0, rng)
    with pytest.raises(ValueError, match="multiplier: expected a finite number from 0 on, got -1"):
        noisy_means(np.ones((2, 3)), [0, 0], 1, 1.0, -1, rng)
