import warnings

import numpy as np
import pytest
from forager.selectors.cohorts.similarity_clusters import similarity_clusters


def blocks(*sizes: int, noise: float = 0.05) -> np.ndarray:
    """Similar within a block, not between."""
    rng, truth = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    similarity = (truth[:, None] == truth[None, :]) * 0.8 + noise * rng.random((len(truth),) * 2)
    return (similarity + similarity.T) / 2


def test_blocks_are_clusters_with_a_member_that_stands_for_each() -> None:
    found = similarity_clusters(blocks(5, 7, 4))
    assert found.converged
    assert found.labels.tolist() == [0] * 5 + [1] * 7 + [2] * 4
    assert found.labels[found.exemplars].tolist() == [0, 1, 2]


def test_seeded_and_the_diagonal_does_not_matter() -> None:
    similarity = blocks(6, 6, noise=0.5)
    other = similarity.copy()
    np.fill_diagonal(other, 1e3)
    first = similarity_clusters(similarity, seed=1)
    assert similarity_clusters(other, seed=1).labels.tolist() == first.labels.tolist()


def test_nobody_one_and_identical_clients_are_one_cluster() -> None:
    for clients in (0, 1, 2, 9):
        found = similarity_clusters(np.ones((clients, clients)))
        assert found.labels.tolist() == [0] * clients
        assert found.exemplars.tolist() == [0] * min(clients, 1)
        assert found.converged


def test_what_does_not_settle_is_one_cluster_and_says_so() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = similarity_clusters(blocks(5, 5), iterations=3)
    assert not found.converged
    assert set(found.labels.tolist()) == {0}


def test_what_is_no_similarity_is_refused() -> None:
    for bad in (np.ones((2, 3)), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match="similarity"):
            similarity_clusters(bad)
