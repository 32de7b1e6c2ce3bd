import numpy as np
import pytest
from forager.selectors.similarities.gram import (
    cosine_matrix,
    distance_matrix,
    euclidean_matrix,
    gram_matrix,
    similarity_from_distance,
)
from scipy.spatial.distance import cdist


def test_matrices_equal_scipy_over_several_blocks() -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 70_000)).astype(np.float32)
    np.testing.assert_allclose(cosine_matrix(vectors), 1 - cdist(vectors, vectors, "cosine"))
    np.testing.assert_allclose(distance_matrix(vectors), cdist(vectors, vectors), atol=1e-6)


def test_identical_vectors_far_from_the_origin_are_at_distance_zero() -> None:
    rng = np.random.default_rng(0)
    vector = 1e6 + rng.standard_normal(1000)
    other = vector + 1e-3 * rng.standard_normal(1000)
    distances = distance_matrix([vector, vector, other])
    assert distances[0, 1] == 0
    assert distances[0, 2] == pytest.approx(np.linalg.norm(vector - other), rel=1e-6)


def test_euclidean_similarity_keeps_the_order_and_ignores_the_unit() -> None:
    vectors = np.random.default_rng(0).random((6, 20))
    similarity = euclidean_matrix(vectors)
    distances = distance_matrix(vectors)
    np.testing.assert_array_equal(np.argsort(-similarity, axis=1), np.argsort(distances, axis=1))
    np.testing.assert_allclose(euclidean_matrix(1000 * vectors), similarity)
    assert (similarity > 0).all()
    assert (np.diag(similarity) == 1).all()


def test_one_client_identical_clients_and_zeros() -> None:
    for matrix in (cosine_matrix, euclidean_matrix):
        np.testing.assert_array_equal(matrix([[1.0, 2.0]]), [[1.0]])
        np.testing.assert_allclose(matrix([[1.0, 2.0]] * 3), np.ones((3, 3)))
    np.testing.assert_array_equal(cosine_matrix([[0, 0], [1, 2]]), np.eye(2))
    assert similarity_from_distance(np.zeros((3, 3))).tolist() == [[1.0] * 3] * 3


def test_vectors_of_different_models_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        gram_matrix([np.ones(3), np.ones(4)])
    with pytest.raises(ValueError, match="finite"):
        cosine_matrix([[1.0, np.nan], [1.0, 2.0]])
