"""LoRA adapters of unequal rank, aggregated by their products.

An adapter changes a weight by ``B A``, with B of shape (out, r) and A of shape (r, in). The mean of
the B's times the mean of the A's is not the mean of the changes, and is undefined if ranks differ.
Stacking the factors gives the mean of the changes exactly (FLoRA: Wang et al., 2024):

    sum_i w_i B_i A_i = [w_1 B_1, w_2 B_2, ...] [A_1; A_2; ...]

For a client of a smaller rank, the best adapter of that rank follows from the singular values of
the product, which are found without computing the product (FlexLoRA: Bai et al., 2024).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Adapter = tuple[NDArray[np.floating], NDArray[np.floating]]  # B and A


def stacked(adapters: Sequence[Adapter], weights: ArrayLike) -> Adapter:
    """Return one adapter whose product is the weighted mean of all products.

    >>> one = np.array([[1.0], [0.0]]), np.array([[2.0, 0.0]])
    >>> two = np.eye(2), np.array([[0.0, 0.0], [0.0, 4.0]])
    >>> b, a = stacked([one, two], weights=[1, 3])
    >>> b.shape, (b @ a).tolist()
    ((2, 3), [[0.5, 0.0], [0.0, 3.0]])
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    scaled = [share * b for share, (b, _) in zip(shares, adapters, strict=True)]
    return np.concatenate(scaled, axis=1), np.concatenate([a for _, a in adapters])


def of_rank(adapter: Adapter, rank: int) -> Adapter:
    """Return the adapter of at most a rank whose product is nearest.

    >>> b, a = of_rank((np.diag([3.0, 1.0]), np.eye(2)), rank=1)
    >>> b.shape, np.round(np.abs(b @ a), 6).tolist()
    ((2, 1), [[3.0, 0.0], [0.0, 0.0]])
    """
    left, b = np.linalg.qr(adapter[0])
    right, a = np.linalg.qr(adapter[1].T)
    u, s, vh = np.linalg.svd(b @ a.T)
    root = np.sqrt(s[:rank])
    return left @ u[:, : len(root)] * root, root[:, None] * (vh[: len(root)] @ right.T)
