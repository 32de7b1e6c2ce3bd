"""Class means that hide single samples: clipped gradients and Gaussian noise.

The server of *Gradient Coreset for Federated Learning* sends the mean gradient of each class. A
gradient in the neuron of its own class is ``(p - 1) [1, h]``, so a mean divided by its first entry
is a weighted mean of the features h. It reveals what a class of the server's samples looks like or,
if the class has one sample, that sample. The paper (section 5) suggests protecting the server's
gradients as clients' are. This is the Gaussian mechanism (Dwork and Roth, 2014), for each class::

    mean_c = (1 / n_c) (sum_j g_j min(1, clip / ||g_j||) + N(0, (multiplier clip)^2 I))

One sample more or less changes the sum by at most ``clip``. The numbers of samples are not hidden.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def noisy_means(
    gradients: ArrayLike,
    labels: ArrayLike,
    classes: int,
    clip: float,
    multiplier: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return the noisy mean of each class's clipped gradients, shape (classes, d).

    A class without samples gets a row of NaN: nothing is known of it. Rows that are not finite are
    left out.

    - ``gradients`` (shape (n, d)): one row per sample.
    - ``labels`` (shape (n,)): from 0 to classes - 1.
    - ``classes``: how many classes there are.
    - ``clip``: norm to which gradients are clipped.
    - ``multiplier``: standard deviation of the noise on a sum, divided by the clip.
    - ``rng``: of the noise. Whoever can predict it can remove it.

    >>> gradients = [[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]
    >>> noisy_means(gradients, [0, 0, 1], 3, 5.0, 0.0, np.random.default_rng()).tolist()
    [[1.5, 2.5], [3.0, 4.0], [nan, nan]]
    """
    rows, groups = np.asarray(gradients, dtype=np.float64), np.asarray(labels)
    if rows.ndim != 2 or groups.shape != rows.shape[:1]:
        raise ValueError(
            f"labels: expected one per row of gradients, got {groups.shape} for {rows.shape}"
        )
    if not 0 < clip < np.inf:
        raise ValueError(f"clip: expected a finite number above 0, got {clip!r}")
    if not 0 <= multiplier < np.inf:
        raise ValueError(f"multiplier: expected a finite number from 0 on, got {multiplier!r}")
    usable = np.isfinite(rows).all(axis=1)
    rows, groups = rows[usable], groups[usable]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows * np.minimum(1.0, clip / np.maximum(norms, np.finfo(np.float64).tiny))
    noise = rng.normal(scale=multiplier * clip, size=(classes, rows.shape[1]))
    means: list[NDArray[Any]] = []
    for label in range(classes):
        own = rows[groups == label]
        unknown = np.full(rows.shape[1], np.nan)
        means.append((own.sum(axis=0) + noise[label]) / len(own) if len(own) else unknown)
    return np.reshape(means, (classes, rows.shape[1]))
