"""Weights of samples by how far the global model confirms their labels; a test for wrong labels.

A network learns what most labels agree on before it memorises wrong ones (Arpit et al., 2017), and
a global model averages out what single clients memorise. A running mean of its predictions is
therefore a second opinion on each label. It is used only if labels are found to be wrong: on clean
but difficult data it would leave out the samples that are still to be learned.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..stateful import Stateful

Floats = NDArray[np.float64]

MEMORY = 0.8  # weight of earlier predictions
DOUBTFUL = 0.1  # estimated share of wrong labels from which samples are weighed
FITTED = 0.9  # accuracy on the clean samples, once they train too, of a model that fits
MANY = 0.4  # estimated share of wrong labels from which samples of a model that fits are blended
UPPER = 2 / 3  # of a round's clients that must agree too seldom
_ROUNDS = 5  # whose median counts
_FEWEST = 3  # clients per round
_SHARPEST = 2.0
_LEARNED = 0.3  # accuracy on clean samples below which a model has no opinion


def running_predictions(before: ArrayLike | None, seen: ArrayLike) -> Floats:
    """Return the running mean of a model's class probabilities, one row per sample.

    >>> running_predictions([[1.0, 0.0]], [[0.0, 1.0]]).tolist()
    [[0.8, 0.19999999999999996]]
    """
    now = np.asarray(seen, dtype=np.float64)
    return now if before is None else MEMORY * np.asarray(before) + (1 - MEMORY) * now


def label_weights(predictions: ArrayLike, labels: ArrayLike, sharpness: float = 1.0) -> Floats:
    """Return how much each sample counts: the probability of its label over the highest one."""
    rows = np.asarray(predictions, dtype=np.float64)
    own = rows[np.arange(len(rows)), np.asarray(labels)]
    shares = own / np.maximum(rows.max(axis=1), np.finfo(np.float64).tiny)
    return np.asarray(shares**sharpness)


def sharpness(clean_accuracy: float) -> float:
    """Return the exponent of weights: the odds that the model is right on clean samples, at most 2.

    A model that is often wrong must not decide alone which samples it learns from.

    >>> sharpness(0.5), round(sharpness(0.6), 6), sharpness(0.99)
    (1.0, 1.5, 2.0)
    """
    return min(_SHARPEST, clean_accuracy / max(1 - clean_accuracy, 1e-9))


def blend(weights: Floats, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each sample another one, drawn by weight, and which of the two gives the label.

    The mean of both takes the sample's place (mixup in equal parts, Zhang et al., 2018). A model
    that fits what it is taught learns the wrong labels that are left by heart, however little they
    weigh, and confirms them from then on. In every round the means are others.

    >>> others, labels = blend(np.array([0.0, 1.0, 0.0]), np.random.default_rng(0))
    >>> others.tolist(), labels.tolist()
    ([1, 1, 1], [0, 1, 1])
    """
    own, shares = np.arange(len(weights)), weights + 1e-9
    others = rng.choice(own, len(own), p=shares / shares.sum())
    return others, np.where(rng.random(len(own)) < 0.5, own, others)


def agreement(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of labels that are also the likeliest class.

    >>> agreement([[0.8, 0.2], [0.1, 0.9]], [0, 0])
    0.5
    """
    return float((np.asarray(predictions).argmax(axis=1) == np.asarray(labels)).mean())


def sure_accuracy(predicted: ArrayLike, labels: ArrayLike) -> float:
    """Return the accuracy on clean samples, or the mean of the classes' own if that is lower.

    Clients that hold more samples of difficult classes than the server must not look suspicious for
    that reason.

    >>> sure_accuracy([0, 0, 0, 0], [0, 0, 0, 1])
    0.5
    """
    right, classes = np.asarray(predicted) == np.asarray(labels), np.asarray(labels)
    by_class = [right[classes == label].mean() for label in np.unique(classes)]
    return float(min(right.mean(), np.mean(by_class)))


class LabelDoubt(Stateful):
    """Whether clients' labels are wrong, by how seldom a model agrees with them.

    A model agrees with right labels that it was trained on at least as often as with the labels of
    clean samples that it has not seen. If a share w of the labels is wrong, it agrees with at most
    about ``(1 - w)`` times as many. The estimate is ``w = 1 - a / c``, with the accuracy c on clean
    samples and the agreement a that a third of the clients exceed. If groups of clients use labels
    with different meanings, one group agrees with the model, and nothing is found. The median over
    five rounds counts. Two thirds of the clients would have to lie to move it.

    >>> doubt = LabelDoubt()
    >>> [doubt.hear([0.5, 0.55, 0.6], clean_accuracy=0.9) for _ in range(5)]
    [False, False, False, False, True]
    >>> round(doubt.wrong, 2)
    0.37
    """

    remembers = ("found", "_estimates")

    def __init__(self) -> None:
        self.found = False
        self._estimates: list[float] = []

    @property
    def wrong(self) -> float:
        """The estimated share of wrong labels."""
        return max(0.0, float(np.median(self._estimates))) if self._estimates else 0.0

    def hear(self, agreements: Sequence[float], clean_accuracy: float) -> bool:
        """Add a round; return whether wrong labels have been found so far."""
        if len(agreements) >= _FEWEST and clean_accuracy >= _LEARNED:
            estimate = 1 - float(np.quantile(agreements, UPPER)) / clean_accuracy
            self._estimates = [*self._estimates, estimate][-_ROUNDS:]
            self.found = self.found or (len(self._estimates) == _ROUNDS and self.wrong > DOUBTFUL)
        return self.found
