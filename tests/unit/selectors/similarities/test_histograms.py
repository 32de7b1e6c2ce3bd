import numpy as np
import pytest
from forager.selectors.similarities.histograms import histogram_similarity, mixture_divergence
from scipy.spatial.distance import jensenshannon


def js_divergence(p, q):
    """In bits."""
    return jensenshannon(p, q, base=2) ** 2


def random_histograms(count: int, classes: int = 10) -> np.ndarray:  # type: ignore[type-arg]
    histograms = np.random.default_rng(0).multinomial(50, np.full(classes, 0.1), size=count)
    histograms[:, 0] = 0  # a class that nobody has
    return histograms


def test_how_many_samples_a_client_has_does_not_matter() -> None:
    p, _ = random_histograms(2)
    assert histogram_similarity([p, 3 * p])[0, 1] == 1
    assert histogram_similarity([[0, 7], [2, 0]])[0, 1] == 0


def test_oracle_is_a_similarity() -> None:
    similarity = histogram_similarity(random_histograms(6))
    np.testing.assert_allclose(similarity, similarity.T)
    np.testing.assert_allclose(np.diag(similarity), 1)
    assert similarity.min() >= 0
    assert histogram_similarity([[1, 0, 0], [0, 0, 1]])[0, 1] == 0
    assert histogram_similarity([[3, 1]]).tolist() == [[1.0]]


def test_oracle_entries_are_those_of_the_pairs() -> None:
    histograms = random_histograms(4)
    similarity = histogram_similarity(histograms)
    assert similarity[1, 3] == pytest.approx(1 - js_divergence(histograms[1], histograms[3]))


def test_mixture_weighs_the_nearest_by_similarity() -> None:
    histograms = [[4, 0, 0], [0, 8, 0], [0, 0, 2], [1, 1, 1]]
    similarity = np.array([[9, 0.6, 0.2, -1], [0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9.0]])
    divergences = mixture_divergence(similarity, histograms, neighbours=2)
    assert divergences[0] == pytest.approx(js_divergence([1, 0, 0], [0, 0.75, 0.25]))
    # None is similar: the first two weigh the same.
    assert divergences[2] == pytest.approx(js_divergence([0, 0, 1], [0.5, 0.5, 0]))
    np.testing.assert_array_equal(np.diag(similarity), 9)


@pytest.mark.parametrize("histogram", [[0, 0], [-1, 2], [np.nan, 1], [[1, 2]], [1, 2, 3]])
def test_what_is_no_histogram_is_refused(histogram: list[float]) -> None:
    with pytest.raises(ValueError, match="histogram: expected"):
        histogram_similarity([[1, 2], histogram])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="neighbours"):
        mixture_divergence(np.eye(2), [[1, 2], [2, 1]], neighbours=2)
    with pytest.raises(ValueError, match="similarity"):
        mixture_divergence(np.eye(3), [[1, 2], [2, 1]], neighbours=1)
