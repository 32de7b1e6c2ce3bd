import itertools

import numpy as np
import pytest
from forager.selectors.similarities import intersections
from forager.selectors.similarities.index_overlap import (
    choose_k,
    choose_ks,
    layer_budgets,
    overlap,
    overlap_matrix,
    overlaps_with,
    stability,
    top_k_support,
    top_k_supports,
)
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def random_supports(count: int, size: int, k: int, seed: int = 0) -> list[Indices]:
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(size, k, replace=False)) for _ in range(count)]


def plain_overlaps(supports: list[Indices]) -> NDArray[np.float64]:
    sets = [set(support.tolist()) for support in supports]
    return np.array([[len(a & b) / np.sqrt(len(a) * len(b)) for b in sets] for a in sets])


# --- supports --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("k", [1, 37, 499, 500])
def test_support_is_the_head_of_a_stable_sort(dtype: type, k: int) -> None:
    importance = np.random.default_rng(k).integers(0, 40, 500).astype(dtype)  # many ties
    head = np.sort(np.argsort(-importance.astype(np.float64), kind="stable")[:k])
    np.testing.assert_array_equal(top_k_support(importance, k), head)


def test_support_leaves_importance_as_it_was() -> None:
    importance = np.random.default_rng(0).random(100)
    before = importance.copy()
    top_k_support(importance, 10)
    np.testing.assert_array_equal(importance, before)


def test_support_per_layer_ignores_the_scale_of_a_layer() -> None:
    importance, layers = np.random.default_rng(0).random(1000), [600, 300, 100]
    scaled = importance * np.repeat([1e-6, 1.0, 1e6], layers)
    per_layer = top_k_support(importance, 120, layers)
    np.testing.assert_array_equal(top_k_support(scaled, 120, layers), per_layer)
    assert np.histogram(per_layer, [0, 600, 900, 1000])[0].tolist() == [72, 36, 12]
    assert not np.array_equal(top_k_support(scaled, 120), top_k_support(importance, 120))


@pytest.mark.parametrize("layers", [None, [100, 20, 80]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_supports_of_many_rows_are_those_of_each(dtype: type, layers: list[int] | None) -> None:
    rng = np.random.default_rng(0)
    importance = rng.integers(0, 9, (40, 200)).astype(dtype)  # many ties
    counts = rng.integers(1, 201, 40)
    for k in (1, 37, 200, counts):
        each = [
            top_k_support(row, int(n), layers)
            for row, n in zip(importance, np.broadcast_to(k, 40), strict=True)
        ]
        found = top_k_supports(importance, k, layers)
        assert [support.tolist() for support in found] == [support.tolist() for support in each]


def test_a_row_of_zeros_has_no_support_and_bad_counts_are_refused() -> None:
    importance = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]])
    assert [support.tolist() for support in top_k_supports(importance, [2, 2])] == [[], [0, 2]]
    assert top_k_supports(np.empty((0, 3)), 1) == []
    for bad in (0, 4, [1], 1.0):
        with pytest.raises(ValueError, match=r"^k: expected"):
            top_k_supports(importance, bad)


@pytest.mark.parametrize("k", range(1, 12))
def test_layer_budgets_sum_to_k_and_fit_their_layers(k: int) -> None:
    sizes = [1, 7, 3]
    budgets = layer_budgets(sizes, k)
    assert budgets.sum() == k
    assert all(budgets <= sizes)
    assert np.abs(budgets - np.array(sizes) * k / 11).max() < 1


@pytest.mark.parametrize("k", [0, -1, 6, 2.0])
def test_bad_k_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=r"k: expected .*" + str(k)):
        top_k_support([1.0, 2, 3, 4, 5], k)


def test_importance_that_names_no_support_is_refused() -> None:
    with pytest.raises(ValueError, match="only zeros"):
        top_k_support(np.zeros(5), 2)
    with pytest.raises(ValueError, match="finite"):
        top_k_support([1.0, np.nan], 1)
    with pytest.raises(ValueError, match="importance"):
        top_k_support(np.ones((2, 2)), 1)
    with pytest.raises(ValueError, match="layers"):
        top_k_support([1.0, 2.0, 3.0], 1, layers=[1, 1])


# --- overlap ---------------------------------------------------------------------------------


def test_overlap_is_the_share_of_k_for_equal_sizes() -> None:
    assert overlap([0, 1, 2, 3], [2, 3, 4, 5]) == 0.5
    assert overlap([3, 1, 2], [1, 2, 3]) == 1.0
    assert overlap([0], [1]) == 0.0


def test_overlap_of_different_sizes_keeps_the_bound_of_proposition_1() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = np.abs(rng.standard_cauchy((2, 60)))
        i, j = (top_k_support(s, int(rng.integers(1, 40))) for s in (a, b))
        heads = (a[i], b[j])
        energy = min((head @ head) / (s @ s) for head, s in zip(heads, (a, b), strict=True))
        dispersion = max(head.max() / head.min() for head in heads)
        cosine = a @ b / np.sqrt((a @ a) * (b @ b))
        assert cosine >= energy / dispersion**2 * overlap(i, j) - 1e-12


@pytest.mark.parametrize("support", [[], [1, 1], [-1, 2], [0.5], [[1, 2]], np.array([True, False])])
def test_what_is_no_support_is_refused(support: object) -> None:
    with pytest.raises(ValueError, match="b: expected"):
        overlap([1, 2], support)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"supports\[1\]: expected"):
        overlap_matrix([[1, 2], support])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("count", "size", "k"), [(7, 50, 20), (9, 5000, 900), (70, 9000, 900), (131, 3000, 200)]
)
def test_matrix_equals_all_pairs_of_sets(count: int, size: int, k: int) -> None:
    supports = random_supports(count, size, k)
    supports[0], supports[3] = supports[0][:5], np.arange(size)  # few members, and all
    np.testing.assert_allclose(overlap_matrix(supports), plain_overlaps(supports), rtol=1e-12)


def test_matrix_does_not_depend_on_threads() -> None:
    supports = random_supports(140, 20_000, 3000)
    np.testing.assert_array_equal(overlap_matrix(supports, 1), overlap_matrix(supports, 3))


def test_matrix_of_full_supports_cannot_overflow_a_count() -> None:
    supports = [np.arange(5000)] * 140
    assert (overlap_matrix(supports) == 1).all()


def test_matrix_of_few_indices_of_a_huge_model_takes_little_memory() -> None:
    supports = [np.array([3, 10**15]), np.array([4, 10**15]), np.array([2**62])]
    np.testing.assert_allclose(
        overlap_matrix(supports), [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]], rtol=1e-12
    )


def test_blocks_are_no_longer_than_a_count_allows() -> None:
    dense, thin = np.arange(3000, 6000), np.arange(0, 9000, 50)
    layout = intersections._MANY
    blocks = list(intersections._blocks([dense, thin], layout))
    assert sum(block.length for block in blocks) >= 9000
    assert all((block.stops - block.starts).max() <= layout.limit for block in blocks)
    merged = [block.length for block in intersections._blocks([thin], layout)]
    assert merged == [layout.block] * 4 + [1020], "where sets are thin"


def test_one_client_and_identical_clients() -> None:
    assert overlap_matrix([[4, 5]]).tolist() == [[1.0]]
    assert (overlap_matrix([[4, 5, 9]] * 5) == 1).all()
    assert overlap_matrix([]).shape == (0, 0)


# --- stability and choice of K ---------------------------------------------------------------


def test_stability_is_the_mean_over_pairs() -> None:
    supports = random_supports(6, 100, 30)
    pairs = [overlap(a, b) for a, b in itertools.combinations(supports, 2)]
    assert stability(supports) == pytest.approx(np.mean(pairs))
    assert stability([[1, 2], [1, 2], [1, 2]]) == 1.0
    with pytest.raises(ValueError, match="two or more"):
        stability([[1, 2]])


@pytest.mark.parametrize("coverage", [0.05, 0.3, 0.5, 0.9, 1.0])
def test_chosen_k_is_the_least_that_covers(coverage: float) -> None:
    importance = np.random.default_rng(1).random(400).astype(np.float32) ** 4
    best_first = np.sort(importance.astype(np.float64))[::-1]
    k = choose_k(importance, coverage, k_max=400)
    assert best_first[:k].sum() >= coverage * best_first.sum() * (1 - 1e-9)
    assert best_first[: k - 1].sum() < coverage * best_first.sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_ks_are_those_of_each_row(dtype: type) -> None:
    importance = np.random.default_rng(1).gamma(0.3, size=(60, 650)).astype(dtype)
    for coverage, most in ((0.1, 650), (0.9, 163), (1.0, 650)):
        each = [choose_k(row, coverage, most) for row in importance]
        assert choose_ks(importance, coverage, most).tolist() == each


def test_rounding_does_not_ask_for_one_more() -> None:
    assert choose_k([0.6, 0.3, 0.1], 0.9, k_max=3) == 2  # 0.6 + 0.3 < 0.9 in floating point
    assert choose_k([0.1] * 10, 0.3, k_max=10) == 3


def test_k_max_caps_coverage_and_stability() -> None:
    importance = [4.0, 3.0, 2.0, 1.0]
    unstable = [[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    assert choose_k(importance, 1.0, k_max=2) == 2
    # At 3 the two supports share 2 of 3 indices, at 4 all; Algorithm 1 looks no further than 2 up.
    assert choose_k(importance, 0.4, 4, resamples=unstable, stability_target=0.6) == 3
    assert choose_k(importance, 0.4, 2, resamples=unstable, stability_target=0.6) == 1
    assert choose_k(importance, 0.4, 4, resamples=unstable, stability_target=0.9) == 1
    assert choose_k(importance, 0.7, 4, resamples=unstable, stability_target=0.9) == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([1.0, 2.0], 0.5, 0), "k_max"),
        (([1.0, 2.0], 0.5, 3), "k_max"),
        (([1.0, 2.0], 0.0, 1), "coverage"),
        (([1.0, 2.0], 1.1, 1), "coverage"),
        (([0.0, 0.0], 0.5, 1), "importance"),
        (([1.0, -2.0], 0.5, 1), "importance"),
        (([1.0, 2.0], 0.5, 1, [[1.0], [2.0]]), "resamples"),
    ],
)
def test_bad_choices_are_refused(arguments: tuple, named: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=f"^{named}: expected"):
        choose_k(*arguments)


# --- overlap with a reference ----------------------------------------------------------------


def test_overlaps_with_a_reference_are_those_of_the_largest_entries() -> None:
    rng = np.random.default_rng(0)
    reference, updates = rng.normal(size=400), rng.normal(size=(6, 400))
    largest = set(np.argsort(-np.abs(reference))[:40].tolist())
    wanted = [
        len(largest & set(np.argsort(-np.abs(update))[:40].tolist())) / 40 for update in updates
    ]
    np.testing.assert_allclose(overlaps_with(reference, updates, k=40), wanted)
    np.testing.assert_allclose(overlaps_with(reference, -3 * updates, k=40), wanted)
    by_default = overlaps_with(reference, [reference, updates[0]])  # a quarter of so few
    both = set(np.argsort(-np.abs(reference))[:100]) & set(np.argsort(-np.abs(updates[0]))[:100])
    np.testing.assert_allclose(by_default, [1.0, len(both) / 100])


def test_what_is_zero_is_in_no_support_and_what_is_broken_is_unknown() -> None:
    updates = [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [np.nan, 1.0, 1.0]]
    found = overlaps_with([0.0, 1.0, 0.5], updates, k=2)
    np.testing.assert_allclose(found, [0.0, 1 / np.sqrt(2), np.nan])
    assert np.isnan(overlaps_with([np.inf, 1.0, 0.5], updates, k=2)).all()
