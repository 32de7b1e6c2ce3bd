"""How far the server's gradients confirm the label of a sample, and how samples are drawn.

The last layer's gradient in the neuron of a sample's own label is ``(p - 1) [1, h]``, with the
probability p of the label and the features h of the sample (*Gradient Coreset for Federated
Learning*, section 5.3). Divided by its first entry it is ``[1, h]``; a class's mean gradient then
becomes a weighted mean of the features of its samples, a prototype. The few numbers that the server
sends thus show where each class lies. They confirm a sample's label if its features are not much
nearer to another class's prototype than to its own.

Matching a gradient with few samples prefers samples that are already learned, whose gradients are
small. Here the server's gradients only exclude samples that contradict them. Of the others, those
that the model has not learned can be drawn more often, in proportion to ``1 - p``.
"""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

TINY = (
    1e-12  # smallest weight in a draw: samples with nothing left to teach come last, in any order
)


def confirmation(gradients: ArrayLike, labels: ArrayLike, targets: ArrayLike) -> Floats:
    """Return how far the targets confirm each label: 1 at its prototype, 0 at another's.

    That is ``e / (d + e)`` with the squared distances d and e to the own and to the nearest other
    prototype. One where nothing is known: if a sample's own gradient is zero, or if the server has
    no sample of its label, so that the target's first entry is not negative.

    - ``gradients`` (shape (n, 1 + d)): each sample's gradient in the bias and weights of its
      label's neuron. For rows that are not finite the answer is NaN.
    - ``labels`` (shape (n,)): from 0 to the number of targets - 1.
    - ``targets`` (shape (classes, 1 + d)): mean gradient of each class in its own neuron.

    Two classes around 0 and around 4. The second sample looks like the other class.

    >>> gradients = [[-0.5, 0.0], [-0.9, -3.6], [-0.2, -0.4]]
    >>> confirmation(gradients, [0, 0, 0], [[-0.5, 0.0], [-0.5, -2.0]]).tolist()
    [1.0, 0.0, 0.5]
    """
    shares = _contradictions(*_checked(gradients, labels, targets))
    return np.where(np.isfinite(shares), 1 - shares, np.nan)


def own_means(gradients: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the mean gradient of each label that a client has, NaN for a label without samples.

    It replaces the server's. Rows that are not finite are left out.
    """
    rows, classes = _matrix(gradients, "gradients"), np.asarray(labels)
    usable = np.isfinite(rows).all(axis=1)
    groups = [rows[usable & (classes == c)] for c in range(int(classes.max(initial=-1)) + 1)]
    nobody = np.full(rows.shape[1], np.nan)
    means = [group.mean(axis=0) if len(group) else nobody for group in groups]
    return np.reshape(means, (len(groups), rows.shape[1]))


def _checked(
    gradients: ArrayLike, labels: ArrayLike, targets: ArrayLike
) -> tuple[Floats, NDArray[Any], Floats]:
    rows, goals = _matrix(gradients, "gradients"), _matrix(targets, "targets")
    classes = np.asarray(labels)
    if goals.shape[1] != rows.shape[1]:
        raise ValueError(f"targets: expected {rows.shape[1]} values each, got {goals.shape[1]}")
    if classes.shape != (len(rows),):
        raise ValueError(f"labels: expected {len(rows)}, one per row, got shape {classes.shape}")
    outside = classes[(classes < 0) | (classes >= len(goals))]
    if outside.size:
        raise ValueError(f"labels: expected 0 to {len(goals) - 1}, got {outside[0]}")
    return rows, classes, goals


def draw(weights: ArrayLike, budget: int, rng: np.random.Generator) -> Positions:
    """Return ``budget`` different positions in ascending order, drawn by weight.

    One after the other in proportion to the weights of those that are left (Efraimidis and
    Spirakis, 2006, with exponential variables).

    >>> draw([0.0, 1.0, 0.0, 5.0], 2, np.random.default_rng(0)).tolist()
    [1, 3]
    """
    chances = np.maximum(np.asarray(weights, dtype=np.float64), TINY)
    at_least(0, budget=index(budget))
    waits = rng.exponential(size=chances.shape) / chances
    return np.sort(np.argsort(waits, kind="stable")[:budget])


def _contradictions(rows: Floats, classes: NDArray[Any], goals: Floats) -> Floats:
    """Return ``d / (d + e)``: d and e are squared distances to the own and nearest other prototype.

    Zero where nothing is known, infinite for rows that are not finite.
    """
    known = (goals[:, 0] < 0) & np.isfinite(goals).all(axis=1)
    places = np.cumsum(known) - 1  # of the known classes, among these
    shares = np.where(np.isfinite(rows).all(axis=1), 0.0, np.inf)
    judged = np.flatnonzero((shares == 0) & (rows[:, 0] != 0) & known[classes])
    if np.count_nonzero(known) < 2 or not judged.size:
        return shares
    features = rows[judged] / rows[judged, :1]
    prototypes = goals[known] / goals[known, :1]
    gaps = (prototypes**2).sum(axis=1) - 2 * features @ prototypes.T
    gaps = np.maximum(gaps + (features**2).sum(axis=1)[:, None], 0)
    pairs = np.arange(len(judged)), places[classes[judged]]
    own = gaps[pairs]
    gaps[pairs] = np.inf
    total = own + gaps.min(axis=1)
    shares[judged] = np.divide(own, total, out=np.zeros_like(own), where=total > 0)
    return shares


def _matrix(values: ArrayLike, name: str) -> Floats:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise ValueError(f"{name}: expected rows of a bias and weights, got shape {matrix.shape}")
    return matrix
