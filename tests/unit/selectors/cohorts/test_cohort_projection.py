import tracemalloc

import numpy as np
import pytest
from forager.selectors.cohorts.projection import Projection, unit_rows


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_angles_and_lengths_are_kept_about() -> None:
    rng = np.random.default_rng(0)
    sizes = [30_000, 5000, 10]
    project, errors, lengths = Projection(sizes, coordinates=4096), [], []
    for correlation in (-0.5, 0.0, 0.5, 0.95):
        one = [rng.normal(size=n) for n in sizes]
        noise = [rng.normal(size=n) for n in sizes]
        share = np.sqrt(1 - correlation**2)
        two = [correlation * a + share * b for a, b in zip(one, noise, strict=True)]
        errors.append(cosine(project.sketch(one), project.sketch(two)) - correlation)
        lengths.append(np.linalg.norm(project.sketch(one)) / np.sqrt(sum(sizes)))
    assert np.abs(errors).max() < 0.2
    assert np.sqrt(np.mean(np.square(errors))) < 0.1
    assert 0.8 < np.mean(lengths) < 1.2


def test_it_is_linear_and_the_shape_of_a_layer_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    project = Projection([40_000, 7], dimension=32, coordinates=1000)
    old = [rng.normal(size=(200, 200)).astype(np.float32), np.zeros(7, dtype=np.float32)]
    step = [0.01 * rng.normal(size=layer.shape).astype(np.float32) for layer in old]
    new = [a + b for a, b in zip(old, step, strict=True)]
    difference = project.sketch(new) - project.sketch(old)
    np.testing.assert_allclose(difference, project.sketch([s.ravel() for s in step]), atol=1e-2)
    np.testing.assert_array_equal(project.sketch_each([old, new])[1], project.sketch(new))
    together = project.sketch_stack([np.stack(layers) for layers in zip(old, new, strict=True)])
    np.testing.assert_array_equal(together, project.sketch_each([old, new]))


def test_the_same_coordinates_are_read_whatever_the_type() -> None:
    project = Projection([40_000, 7], dimension=32, coordinates=1000)
    rng = np.random.default_rng(2)
    single = [rng.normal(size=size).astype(np.float32) for size in (40_000, 7)]
    double = [layer.astype(np.float64) for layer in single]
    np.testing.assert_array_equal(project.sketch(single), project.sketch(double))


def test_it_is_fixed_by_its_seed() -> None:
    vector = [np.arange(5000.0)]
    first = Projection([5000], seed=3).sketch(vector)
    np.testing.assert_array_equal(Projection([5000], seed=3).sketch(vector), first)
    assert not np.allclose(Projection([5000], seed=4).sketch(vector), first)


def test_small_layers_are_seen_whole() -> None:
    project = Projection([1_000_000, 50], coordinates=2000)
    for place in range(50):
        bias = np.zeros(50)
        bias[place] = 1.0
        assert np.linalg.norm(project.sketch([np.zeros(1_000_000), bias])) == pytest.approx(1)


def test_memory_does_not_grow_with_the_model() -> None:
    tracemalloc.start()
    project = Projection([10_000_000])
    _, made = tracemalloc.get_traced_memory()
    update = np.zeros(10_000_000, dtype=np.float32)
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    project.sketch([update])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made < 5e6
    assert peak - before < 1e6


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"layers: expected sizes \[10\], got \[9\]"):
        Projection([10]).sketch([np.zeros(9)])
    for bad in ({"sizes": []}, {"sizes": [3, 0]}, {"sizes": [3], "dimension": 0}):
        with pytest.raises(ValueError, match="1 or more"):
            Projection(**bad)


def test_unit_rows_survive_extreme_lengths() -> None:
    with np.errstate(divide="raise", invalid="raise"):
        rows = unit_rows([[1e-300, 0.0], [1e300, 1e300], [0.0, 0.0]])
    np.testing.assert_allclose(rows, [[1, 0], [0.5**0.5, 0.5**0.5], [0, 0]])
    assert unit_rows(np.zeros((0, 3))).shape == (0, 3)
