"""Orthogonal matching pursuit: few samples whose weighted gradients add up to a target.

Sivasubramanian, Nagalapatti, Iyer, Ramakrishnan: *Gradient Coreset for Federated Learning*, section
5.1 and Alg. 2. Samples are added greedily. The weights of those chosen so far minimise (eq. 5, with
the norm squared)::

    ridge * ||w||^2 + || target - sum_j w_j g_j ||^2

and the next sample is found by a residual r, by one of two rules:

- ``distance``, the paper's: the gradient nearest to the residual, ``argmin ||g_j - r||``;
- ``projection``, GradMatch's (Killamsetty et al., 2021): ``argmax <g_j, r>``.

The paper's residual can be read in four ways. G is the mean that the server sends, k the number of
samples chosen so far:

- ``mean``: ``r = G - sum_j w_j g_j``, the paper's text. G is a *mean*, so the weights add up to
  about one, r is soon small, and samples with small gradients follow: those already learned.
- ``total``: the same with ``budget * G`` in place of G. Weights are about one each, and r stays as
  large as a gradient until the budget is nearly spent.
- ``plain-mean``: ``r = (k + 1) G - sum_j g_j``, what the next gradient would have to be for the
  plain mean of those chosen to equal G. Training without weights uses this mean. All weights are
  the same, ``1 / k``; there is nothing to solve.
- ``printed``: ``r_k = sum_j w_j g_j - r_{k-1}`` from ``r_0 = G``, Alg. 2 as printed. It changes
  its sign with every step.

With ``mean`` and ``total`` a ridge of zero makes the norm of the residual fall with every sample. A
larger one makes only the objective fall.
"""

import math
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, check_target, one_of
from ..client_selectors.base import lowest

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

RULES = ("distance", "projection")
RESIDUALS = ("mean", "total", "plain-mean", "printed")
DEPENDENT = 1e-12  # share of a squared norm that rounding may leave of a combination of others


@dataclass(frozen=True)
class Pursuit:
    """What matching pursuit found."""

    indices: Positions  # the samples, in the order chosen; none twice
    # One per sample: the ridge solution for these samples. All the same for ``plain-mean``.
    weights: Floats
    # Norm of what is missing after each step: of the residual, or for ``plain-mean`` of the target
    # minus the mean of those chosen
    residuals: Floats


def matching_pursuit(
    gradients: ArrayLike,
    target: ArrayLike,
    budget: int,
    rule: str = "distance",
    ridge: float = 0.5,
    tolerance: float = 1e-4,
    step: int = 1,
    nonnegative: bool = False,
    residual: str = "mean",
) -> Pursuit:
    """Return at most ``budget`` samples whose weighted gradients come close to the target.

    Products with all gradients are taken in their own precision (float32 or float64), everything
    else in float64. Ties go to the lower index.

    - ``gradients`` (shape (n, d)): one row per sample. Rows that are not finite are never chosen.
    - ``target`` (shape (d,)): what to match. A zero target is matched by no sample at all.
    - ``budget``: how many samples; if there are fewer, all that help.
    - ``rule`` ("distance", "projection"): how the next sample is found.
    - ``ridge``: penalty on the squared weights (lambda in eq. 5). With none, a gradient that is a
      combination of those chosen gets no weight of its own.
    - ``tolerance``: stop when the residual's norm is at most this share of the target's.
    - ``step``: samples added before the weights are solved for again.
    - ``nonnegative``: choose only gradients on the residual's side, and let a sample go for good
      when its weight turns negative: the most negative first, as in GradMatch. Without effect on
      ``plain-mean``, which has no negative weights.
    - ``residual`` ("mean", "total", "plain-mean", "printed"): what the next sample is compared
      with. ``plain-mean`` spends the whole budget, whatever the tolerance.

    >>> gradients = [[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [float("nan"), 0.0]]
    >>> found = matching_pursuit(gradients, [1.0, 2.0], budget=2, ridge=0.0)
    >>> found.indices.tolist(), found.weights.round(6).tolist(), found.residuals.round(6).tolist()
    ([1, 0], [1.0, 1.0], [1.0, 0.0])
    >>> matching_pursuit(gradients, [1.0, 2.0], budget=1, rule="projection").indices.tolist()
    [2]
    """
    rows, goal = _checked_vectors(gradients, target)
    _check_settings(budget, rule, ridge, tolerance, step, residual)
    room = min(index(budget), len(rows))
    if residual == "plain-mean":
        return _plain_mean(rows, goal, room, rule, step)
    fit = _RidgeFit(goal * room if residual == "total" else goal, room, ridge)
    norms = _pursue(rows, fit, rule, tolerance, step, nonnegative, residual == "printed")
    return Pursuit(fit.positions[: fit.size], fit.weights[: fit.size], np.array(norms))


def _pursue(
    rows: NDArray[Any],
    fit: "_RidgeFit",
    rule: str,
    tolerance: float,
    step: int,
    nonnegative: bool,
    printed: bool,
) -> list[float]:
    """Add samples to the fit until it is full or good enough; return the residuals' norms."""
    residual = fit.goal
    norms = [math.sqrt(residual @ residual)]
    with np.errstate(invalid="ignore", over="ignore"):  # rows that are not finite are left out
        squares = np.einsum("ij,ij->i", rows, rows)
        closed = ~np.isfinite(squares)
        while fit.room and norms[-1] > tolerance * norms[0]:
            products = rows @ residual.astype(rows.dtype)
            scores = squares - 2 * products if rule == "distance" else -products
            scores[closed | (products <= 0) if nonnegative else closed] = np.inf
            chosen = _lowest(scores, min(step, fit.room))
            if not chosen.size:
                break
            closed[chosen] = True
            for position in chosen:
                fit.add(position, rows[position])
            if nonnegative:
                fit.drop_negative()
            residual = fit.weighted_sum() - residual if printed else fit.goal - fit.weighted_sum()
            norms.append(math.sqrt(residual @ residual))
    return norms[1:]


def _plain_mean(rows: NDArray[Any], goal: Floats, budget: int, rule: str, step: int) -> Pursuit:
    """Return samples whose plain mean comes close to the goal, chosen one by one."""
    chosen: list[int] = []
    total, norms = np.zeros_like(goal), []
    with np.errstate(invalid="ignore", over="ignore"):  # rows that are not finite are left out
        squares = np.einsum("ij,ij->i", rows, rows)
        closed = ~np.isfinite(squares)
        while len(chosen) < budget:
            residual = (len(chosen) + 1) * goal - total
            products = rows @ residual.astype(rows.dtype)
            scores = squares - 2 * products if rule == "distance" else -products
            scores[closed] = np.inf
            more = _lowest(scores, min(step, budget - len(chosen)))
            if not more.size:
                break
            closed[more] = True
            chosen += more.tolist()
            total = total + rows[more].sum(axis=0, dtype=np.float64)
            norms.append(float(np.linalg.norm(goal - total / len(chosen))))
    weights = np.full(len(chosen), 1 / max(1, len(chosen)))
    return Pursuit(np.array(chosen, dtype=np.intp), weights, np.array(norms))


def _lowest(scores: NDArray[Any], count: int) -> Positions:
    """Return the positions of the lowest finite scores; a single one in a single pass."""
    first = np.argmin(scores)
    alone = count == 1 and np.isfinite(scores[first])
    return np.array([first]) if alone else lowest(scores, count)


def _checked_vectors(gradients: ArrayLike, target: ArrayLike) -> tuple[NDArray[Any], Floats]:
    """Return the gradients in a form that BLAS takes as it is, and the target."""
    rows, goal = np.asarray(gradients), np.asarray(target, dtype=np.float64)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    check_target(rows, goal)
    return rows if rows.flags.f_contiguous else np.ascontiguousarray(rows), goal


def _check_settings(
    budget: int, rule: str, ridge: float, tolerance: float, step: int, residual: str
) -> None:
    at_least(0, budget=index(budget))
    one_of(RULES, rule=rule)
    one_of(RESIDUALS, residual=residual)
    if not 0 <= ridge < np.inf:
        raise ValueError(f"ridge: expected a finite number from 0 on, got {ridge!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected a number from 0 on, got {tolerance!r}")
    if index(step) < 1:
        raise ValueError(f"step: expected 1 or more, got {step}")


class _RidgeFit:
    """The ridge solution for the samples chosen so far, carried along as they come and go.

    Keeps a root of the inverse of the Gram matrix plus ridge: ``root.T @ root`` is that inverse. As
    long as no sample goes it is the inverse of the lower Cholesky factor. A sample more or less
    takes k^2 operations, where solving from scratch takes k^3.
    """

    def __init__(self, goal: Floats, budget: int, ridge: float) -> None:
        self.goal, self.ridge, self.size = goal, ridge, 0
        self.positions = np.zeros(budget, dtype=np.intp)
        self.weights = np.zeros(budget)
        self._rows = np.zeros((budget, goal.size))
        self._with_goal = np.zeros(budget)  # inner products of the rows with the goal
        self._root = np.zeros((budget, budget))

    @property
    def room(self) -> int:
        """How many samples may still come."""
        return len(self.positions) - self.size

    def add(self, position: int, gradient: NDArray[Any]) -> None:
        """Add a sample and solve for the weights."""
        k = self.size
        self.positions[k], self._rows[k] = position, gradient
        row, root = self._rows[k], self._root[:k, :k]
        self._with_goal[k] = row @ self.goal
        factor = root @ (self._rows[:k] @ row)
        square = row @ row + self.ridge
        pivot = square - factor @ factor
        self.size += 1
        if pivot > DEPENDENT * square:
            new = self._root[k, : k + 1]
            new[:k], new[k] = -(factor @ root), 1.0
            new /= np.sqrt(pivot)
            self.weights[: k + 1] += (new @ self._with_goal[: k + 1]) * new

    def drop_negative(self) -> None:
        """Let the sample of the most negative weight go, until none is negative."""
        while self.size and self.weights[: self.size].min() < 0:
            self._drop(int(self.weights[: self.size].argmin()))

    def _drop(self, place: int) -> None:
        k, last = self.size, self.size - 1
        root = self._root[:k, :k]
        mirror = root[:, place].copy()
        inverse = mirror @ root  # the sample's column of the inverse
        self.weights[:k] -= self.weights[place] / inverse[place] * inverse
        # A reflection gathers that column of the root in the last row; then both can go.
        mirror[last] += np.copysign(np.linalg.norm(mirror), mirror[last])
        root -= np.outer(mirror * (2 / (mirror @ mirror)), mirror @ root)
        root[:, place:last] = root[:, place + 1 :]
        root[last, :], root[:, last] = 0, 0
        for kept in (self.positions, self.weights, self._rows, self._with_goal):
            kept[place:last] = kept[place + 1 : k]
            kept[last] = 0
        self.size = last

    def weighted_sum(self) -> Floats:
        """Return what the samples add up to with their weights."""
        total: Floats = self.weights[: self.size] @ self._rows[: self.size]
        return total
