import numpy as np
import pytest
from forager.selectors.cohorts.many_kmeans import many_kmeans
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score


@pytest.mark.parametrize(("parts", "dimension"), [(2, 1), (3, 2), (6, 5)])
def test_sets_are_clustered_as_if_each_were_alone(parts: int, dimension: int) -> None:
    rng = np.random.default_rng(parts)
    centres = 9 * rng.normal(size=(4, parts, dimension))
    sets = centres[:, np.arange(60) % parts] + 0.3 * rng.normal(size=(4, 60, dimension))
    labels = many_kmeans(sets, [parts] * 4, np.random.default_rng(0))
    for points, found in zip(sets, labels, strict=True):
        theirs = KMeans(parts, n_init=10, random_state=0).fit(points).labels_
        assert adjusted_rand_score(theirs, found) == 1.0
        assert list(dict.fromkeys(found.tolist())) == list(range(found.max() + 1))


def test_points_that_coincide_are_in_one_cluster() -> None:
    points = np.array([[[1.0], [5.0], [1.0], [5.0], [1.0]]])
    assert many_kmeans(points, [3], np.random.default_rng(0)).tolist() == [[0, 1, 0, 1, 0]]


def test_seeded_and_inputs_stay_as_they_were() -> None:
    sets = np.random.default_rng(0).normal(size=(3, 20, 2))
    before = sets.copy()
    first = many_kmeans(sets, [4] * 3, np.random.default_rng(1))
    np.testing.assert_array_equal(many_kmeans(sets, [4] * 3, np.random.default_rng(1)), first)
    np.testing.assert_array_equal(sets, before)


def test_each_set_has_its_own_number_of_clusters() -> None:
    sets = np.random.default_rng(0).normal(size=(3, 20, 2))
    sets[0, :, 1] = 0
    together, alone = np.random.default_rng(1), np.random.default_rng(1)
    found = many_kmeans(sets, [2, 5, 3], together)
    for own, points, parts in zip(found, sets, [2, 5, 3], strict=True):
        assert own.max() == parts - 1
        np.testing.assert_array_equal(own, many_kmeans(points[None], [parts], alone)[0])


def test_the_unit_of_length_does_not_matter() -> None:
    sets = np.random.default_rng(0).normal(size=(3, 40, 2))
    found = many_kmeans(sets, [5] * 3, np.random.default_rng(1), starts=1)
    for scale in (2.0**-12, 2.0**12):
        again = many_kmeans(scale * sets, [5] * 3, np.random.default_rng(1), starts=1)
        np.testing.assert_array_equal(again, found)
