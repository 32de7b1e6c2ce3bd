"""What to make of doubted labels: the server's clean samples show how often doubt is unfounded.

Samples close to another class look like wrong labels, and leaving them out costs more than some
wrong labels do: the model then confirms its own mistakes. The server has samples whose labels are
right. Class by class, they set the bar (no more than a fifth of clean samples may fall short of it,
as in conformal prediction: Vovk et al., 2005) and tell which share is doubted without a reason.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .trust import certainty, trusted

Floats = NDArray[np.float64]

MOST = 0.2  # of clean samples that may be doubted
_SPREADS = 2  # standard deviations that count as chance


def standards(evidence: ArrayLike, labels: ArrayLike, num_classes: int) -> Floats:
    """Return each class's bar and the share of its clean samples below it, shape (2, classes).

    The bar is 1, the usual one (:func:`selectors.data_selectors.trust.trusted`), or lower where
    more than :data:`MOST` of the samples would fall short of it. A class of few samples borrows one
    more from the mean of all.

    Parameters
    ----------
    evidence : array, shape (2, n)
        Of clean samples, from :func:`selectors.data_selectors.trust.label_evidence`.
    labels : array of int, shape (n,)
    num_classes : int

    Examples
    --------
    The first class is easy. Half of the second would fall short, so that its bar is lowered.

    >>> evidence = np.array([[0.8] * 4 + [0.1, 0.2, 0.8, 0.8]] * 2)
    >>> standards(evidence, [0] * 4 + [1] * 4, 2).tolist()
    [[1.0, 0.25], [0.0, 0.0]]
    """
    scores, classes = certainty(evidence), np.asarray(labels)
    scores = np.where(np.isnan(scores), 0.0, scores)
    of = [np.sort(scores[classes == label]) for label in range(num_classes)]
    places = [max(0, int((len(s) + 1) * MOST) - 1) for s in of]
    bars = np.array([min(1.0, s[n]) if len(s) else 1.0 for s, n in zip(of, places, strict=True)])
    below = scores < bars[classes]
    overall = float(below.mean()) if len(below) else 0.0
    counts = np.bincount(classes, minlength=num_classes)
    doubted = (np.bincount(classes, below, num_classes) + overall) / (counts + 1)
    return np.stack([bars, doubted])


def chances(
    trust: ArrayLike, labels: ArrayLike, standard: ArrayLike | None = None, at_least: int = 0
) -> Floats:
    """Return how readily each sample is drawn: 1 if its label is trusted, else less.

    Let clean samples of class y be doubted with probability ``d_y``, and a share s of the client's
    samples. If that is more than chance explains, a share ``w = (s - d) / (1 - d)`` of the client's
    labels is wrong, where d is the mean of ``d_y`` over its labels. Of class y, a share ``s_y`` is
    doubted; of these, ``d_y (1 - w) / s_y`` are right. That is the weight of each. For s, the lower
    end of its interval is used. On easy data, doubted samples weigh next to nothing. Where clean
    samples are doubted as often, nothing is wrong and all weigh the same.

    Parameters
    ----------
    trust : array, shape (2, n)
        From :func:`selectors.data_selectors.trust.remembered`. Samples without a finite trust weigh
        nothing.
    labels : array of int, shape (n,)
    standard : array, shape (2, classes), optional
        From :func:`standards`. Without it, what is doubted weighs nothing.
    at_least : int
        If the weights add up to less, the most trusted samples weigh 1, this many.

    Examples
    --------
    >>> trust = np.array([[0.9] * 60 + [0.1] * 40] * 2)
    >>> chances(trust, np.zeros(100, int), [[1.0], [0.05]])[[0, 99]].round(3).tolist()
    [1.0, 0.092]
    >>> chances(trust, np.zeros(100, int), [[1.0], [0.4]])[[0, 99]].tolist()
    [1.0, 1.0]
    """
    scores, classes = certainty(trust), np.asarray(labels)
    if standard is None:
        weights = np.where(scores >= 1, 1.0, 0.0)
    else:
        weights = _shares_right(scores, classes, np.asarray(standard, dtype=np.float64))
    if weights.sum() < at_least:
        weights[trusted(trust, at_least)] = 1.0
    return weights


def _shares_right(scores: Floats, labels: NDArray[np.intp], standard: Floats) -> Floats:
    bars, doubted = standard
    usable = np.isfinite(scores)
    weights, below = usable.astype(np.float64), usable & (scores < bars[labels])
    count = max(1, int(np.count_nonzero(usable)))
    expected, share = doubted[labels[usable]].sum() / count, np.count_nonzero(below) / count
    share -= _SPREADS * np.sqrt(share * (1 - share) / count)
    if share <= expected:
        return weights
    right = (1 - share) / (1 - expected)
    of_class = np.bincount(labels[usable], minlength=len(bars))
    shares = np.bincount(labels[below], minlength=len(bars)) / np.maximum(1, of_class)
    weights[below] = np.minimum(1.0, (doubted * right)[labels[below]] / shares[labels[below]])
    return weights
