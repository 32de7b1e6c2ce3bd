"""How reliable doubts about labels are, measured on the server's clean samples.

A sample close to another class looks mislabelled. Leaving out such samples costs more than some
wrong labels do, because the model then confirms its own mistakes. The server's samples have right
labels. Class by class they set the threshold, which at most a fifth of them may miss (as in
conformal prediction: Vovk et al., 2005), and show which share of right labels is doubted. With
deliberately wrong labels, they show which share of wrong labels is detected.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .trust import certainty, label_evidence, trusted

Floats = NDArray[np.float64]

MOST = 0.2  # of clean samples that may be doubted
_FOLDS = 5
_SPREADS = 2  # standard deviations that count as chance


def held_out_evidence(
    gradients: ArrayLike, labels: ArrayLike, rivals: ArrayLike, num_classes: int
) -> Floats:
    """Return the evidence for clean samples, shape (2, n), each judged by the others.

    A fifth of the samples is judged by the class means of the other four fifths, because a sample
    is nearer to a mean that it is part of (cross-validation).

    - ``gradients``, ``labels``, ``rivals``: as in
      :func:`selectors.data_selectors.trust.label_evidence`.

    The last sample lies where the other class does. By the mean of the others, it is doubted.

    >>> features = np.array([[0.0], [0.2], [4.0], [0.1]])
    >>> gradients = -0.5 * np.column_stack([np.ones(4), features])
    >>> held_out_evidence(gradients, [0, 0, 1, 1], np.full(4, 0.5), 2)[0].round(2).tolist()
    [0.99, 0.99, 0.5, 0.0]
    """
    rows, classes = np.asarray(gradients, dtype=np.float64), np.asarray(labels)
    rival, evidence = np.asarray(rivals), np.empty((2, len(classes)))
    folds = np.empty(len(classes), dtype=np.intp)
    folds[np.argsort(classes, kind="stable")] = np.arange(len(classes)) % _FOLDS
    for fold in np.unique(folds):
        own, others = folds == fold, folds != fold
        means = np.full((num_classes, rows.shape[1]), np.nan)
        for label in np.unique(classes[others]):
            means[label] = rows[others & (classes == label)].mean(axis=0)
        evidence[:, own] = label_evidence(rows[own], classes[own], means, rival[own])
    return evidence


def standards(
    evidence: ArrayLike,
    labels: ArrayLike,
    num_classes: int,
    wrong: tuple[ArrayLike, ArrayLike] | None = None,
) -> Floats:
    """Return thresholds, and shares of right and wrong labels that are doubted, shape (3, classes).

    The first two rows are the threshold of each class and the share of its clean samples below it.
    The threshold is 1, the usual one (:func:`selectors.data_selectors.trust.trusted`), or lower if
    more than :data:`MOST` of the samples would miss it. A small class borrows one sample from the
    mean of all. The third row is the share of wrong labels that are doubted, over all classes.

    - ``evidence`` (shape (2, n)): of clean samples, from :func:`held_out_evidence`.
    - ``wrong``: evidence for wrong labels, and those labels. Without it, all of them count as
      noticed.

    The first class is easy. Half of the second would miss the threshold, which is lowered.

    >>> evidence = np.array([[0.8] * 4 + [0.1, 0.2, 0.8, 0.8]] * 2)
    >>> standards(evidence, [0] * 4 + [1] * 4, 2).tolist()
    [[1.0, 0.25], [0.0, 0.2], [1.0, 1.0]]
    """
    scores, classes = certainty(evidence), np.asarray(labels)
    scores = np.where(np.isnan(scores), 0.0, scores)
    bars = np.array([_bar(np.sort(scores[classes == label])) for label in range(num_classes)])
    below = scores < bars[classes]
    borrowed = np.where(bars < 1, 1.0, below.mean() if len(below) else 0.0)
    counts = np.bincount(classes, minlength=num_classes)
    doubted = (np.bincount(classes, below, num_classes) + borrowed) / (counts + 1)
    noticed = 1.0
    if wrong is not None and len(np.asarray(wrong[1])):
        noticed = float((certainty(wrong[0]) < bars[np.asarray(wrong[1])]).mean())
    return np.stack([bars, doubted, np.full(num_classes, noticed)])


def _bar(ordered: Sequence[float] | Floats) -> float:
    count = len(ordered)
    return min(1.0, float(ordered[max(0, int((count + 1) * MOST) - 1)])) if count else 1.0


def chances(
    trust: ArrayLike, labels: ArrayLike, standard: ArrayLike | None = None, at_least: int = 0
) -> Floats:
    """Return the weight with which each sample is drawn: 1 if its label is trusted, else less.

    Let clean samples of class y be doubted with probability ``d_y``, and a share s of the client's
    samples. If that is more than chance explains, a share ``w = (s - d) / (1 - d)`` of the client's
    labels is wrong, where d is the mean of ``d_y`` over its labels. Of class y, a share ``s_y`` is
    doubted; of these, ``r = d_y (1 - w) / s_y`` are right. For s, the lower end of its interval is
    used. Doubt counts as far as it distinguishes right from wrong, by Youden's index ``J = e - d``,
    where e is the share of wrong labels that is detected. A doubted sample weighs ``1 - J(1 - r)``:
    hardly anything on easy data, as much as any other if clean samples are doubted as often.

    - ``trust`` (shape (2, n)): from :func:`selectors.data_selectors.trust.remembered`. Samples
      without a finite trust weigh nothing.
    - ``standard`` (shape (3, classes)): from :func:`standards`. Without it, what is doubted weighs
      nothing.
    - ``at_least``: if the weights add up to less, the most trusted samples weigh 1, this many.

    >>> trust, labels = np.array([[0.9] * 60 + [0.1] * 40] * 2), np.zeros(100, int)
    >>> chances(trust, labels, [[1.0], [0.05], [0.95]])[[0, 99]].round(3).tolist()
    [1.0, 0.183]
    >>> chances(trust, labels, [[1.0], [0.4], [0.95]])[[0, 99]].tolist()
    [1.0, 1.0]
    """
    scores, classes = certainty(trust), np.asarray(labels)
    if standard is None:
        weights = np.where(scores >= 1, 1.0, 0.0)
    else:
        weights = _weights(scores, classes, np.asarray(standard, dtype=np.float64))
    if weights.sum() < at_least:
        weights[trusted(trust, at_least)] = 1.0
    return weights


def _weights(scores: Floats, labels: NDArray[np.intp], standard: Floats) -> Floats:
    bars, doubted, noticed = standard
    usable = np.isfinite(scores)
    weights, below = usable.astype(np.float64), usable & (scores < bars[labels])
    count = max(1, int(np.count_nonzero(usable)))
    expected, share = doubted[labels[usable]].sum() / count, np.count_nonzero(below) / count
    share -= _SPREADS * np.sqrt(share * (1 - share) / count)
    if share <= expected:
        return weights
    of_class = np.bincount(labels[usable], minlength=len(bars))
    shares = np.bincount(labels[below], minlength=len(bars)) / np.maximum(1, of_class)
    right = (doubted * (1 - share) / (1 - expected))[labels[below]] / shares[labels[below]]
    index = np.clip(noticed[0] - expected, 0, 1)
    weights[below] = 1 - index * (1 - np.minimum(1.0, right))
    return weights
