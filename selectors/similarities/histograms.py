"""The true similarity of clients: the divergence of their label histograms.

*Index-Overlap Similarity* (IOS), sections 5 and 6.2. Similarities are compared with this oracle in
evaluations only. The text names the Wasserstein distance, the caption of table 4 the
Jensen-Shannon divergence, which is used here because classes have no order.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def js_divergence(p: ArrayLike, q: ArrayLike) -> float:
    """Return the Jensen-Shannon divergence of two histograms, counts or shares, in bits: 0 to 1.

    >>> js_divergence([5, 5, 0], [1, 1, 0]), js_divergence([1, 0], [0, 1])
    (0.0, 1.0)
    """
    return float(_js(*_shares([p, q])))


def histogram_similarity(histograms: Sequence[ArrayLike]) -> Floats:
    """Return the oracle: the similarity of all pairs of clients by their label histograms.

    That is one minus the Jensen-Shannon divergence of counts or shares, none of them empty.

    >>> histogram_similarity([[1, 0], [2, 0], [0, 1]])
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """
    shares = _shares(histograms)
    return np.array([1 - _js(row, shares) for row in shares])


def mixture_divergence(
    similarity: ArrayLike, histograms: Sequence[ArrayLike], neighbours: int
) -> Floats:
    """Return how far each client's labels are from those of its neighbours' mixture (table 5).

    - ``similarity`` (shape (n, n)): decides who the neighbours are, of equals the first, and weighs
      them: negative counts as 0.
    - ``histograms`` (shape (classes,)): counts or shares of each class.
    - ``neighbours``: how many each client has, 1 to n - 1.

    >>> similarity = [[1, 0.9, 0.1], [0.9, 1, 0], [0.1, 0, 1]]
    >>> mixture_divergence(similarity, [[4, 4], [1, 1], [0, 9]], neighbours=1).round(2).tolist()
    [0.0, 0.0, 0.31]
    """
    shares = _shares(histograms)
    scores = np.array(similarity, dtype=np.float64)
    if scores.shape != (len(shares), len(shares)):
        raise ValueError(f"similarity: expected {len(shares)} x {len(shares)}, got {scores.shape}")
    if not 1 <= neighbours < len(shares):
        raise ValueError(f"neighbours: expected 1 to {len(shares) - 1}, got {neighbours}")
    np.fill_diagonal(scores, -np.inf)
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, :neighbours]
    weights = np.maximum(np.take_along_axis(scores, nearest, axis=1), 0.0)
    weights[weights.sum(axis=1) == 0] = 1.0
    weights /= weights.sum(axis=1, keepdims=True)
    return _js(shares, np.einsum("nk,nkc->nc", weights, shares[nearest]))


def _js(p: Floats, q: Floats) -> Floats:
    middle = (p + q) / 2
    return np.asarray(np.clip((_bits(p, middle) + _bits(q, middle)) / 2, 0.0, 1.0))


def _bits(p: Floats, q: Floats) -> Floats:
    """Return the Kullback-Leibler divergence; q is positive where p is."""
    ratio = np.divide(p, q, out=np.ones(np.broadcast(p, q).shape), where=np.asarray(p > 0))
    return np.asarray((p * np.log2(ratio)).sum(axis=-1))


def _shares(histograms: Sequence[ArrayLike]) -> Floats:
    rows = [np.asarray(histogram, dtype=np.float64) for histogram in histograms]
    shapes = {row.shape for row in rows}
    if len(shapes) > 1 or any(row.ndim != 1 for row in rows):
        raise ValueError(f"histogram: expected one number per class, got shapes {sorted(shapes)}")
    for row in rows:
        if not (np.isfinite(row).all() and (row >= 0).all() and row.sum() > 0):
            raise ValueError(f"histogram: expected numbers from 0 on, not all 0, got {row}")
    table = np.array(rows).reshape(len(rows), -1)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
