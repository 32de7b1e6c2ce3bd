"""How many labels of clients are wrong, and whose: by how seldom the global model predicts them.

As :class:`~selectors.data_selectors.confirmed_labels.LabelDoubt`, but also for single clients and
with chance accounted for. A round counts if its model predicts most of the server's labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data_selectors.confirmed_labels import UPPER

LEARNED = 0.5  # accuracy on clean samples from which a model's opinion counts
ROUNDS = 3  # of such models that are needed
_LAST = 5  # that count
_SOME = 0.15  # share of wrong labels that matters
_SELDOM = 0.35  # share of a client's labels that is doubted more than usual
_SIGMAS = 3.0


@dataclass(frozen=True)
class Doubts:
    """How far the model disagrees with clients' labels."""

    wrong: float  # estimated share of wrong labels among most clients
    everywhere: bool  # whether that is beyond chance
    clients: list[str]  # whose labels the model gives much more seldom than those of others
    shares: dict[str, float]  # estimated share of wrong labels, by client


def doubts(
    clients: Sequence[str],
    agreement: NDArray[np.float64],
    samples: NDArray[np.float64],
    clean: Sequence[float],
    clean_samples: int,
) -> Doubts | None:
    """Return whose labels are doubtful; None if the model has not learned enough to tell.

    - ``agreement``: of each round's model (rows) with the labels of each client (columns), NaN
      where a client did not take part.
    - ``clean``: the accuracy of these models on samples of the server, which are so many.

    >>> agree = np.full((6, 4), 0.9)
    >>> agree[:, 3] = 0.3
    >>> found = doubts(list("abcd"), agree, np.full(4, 60.0), [0.9] * 6, 100)
    >>> found.clients, found.everywhere, round(found.shares["d"], 2)
    (['d'], False, 0.67)
    """
    accuracies = np.asarray(clean, dtype=np.float64)
    learned = np.flatnonzero(accuracies >= LEARNED)[-_LAST:]
    if len(learned) < ROUNDS:
        return None
    right, agree = accuracies[learned], agreement[learned]
    usual = np.nanquantile(agree, UPPER, axis=1)
    wrong = max(0.0, float(np.median(1 - usual / right)))
    known = float(right[-1])
    chance = 2 * np.sqrt((1 - known) / known / max(1, clean_samples))
    seen = np.asarray(np.isfinite(agree).any(axis=0))
    # A client of rare classes is understood in some round; one with wrong labels in none.
    ratios = agree[:, seen] / np.maximum(usual, right)[:, None]
    shares = np.maximum(0.0, 1 - np.nanmax(ratios, axis=0))
    top = float(np.clip(usual.mean(), 0.5, 0.99))
    noise = np.sqrt(top * (1 - top) / np.maximum(samples[seen], 1)) / top
    extra = shares - wrong
    odd = (extra > _SELDOM) & (extra > _SIGMAS * noise)
    names = [key for key, there in zip(clients, seen, strict=True) if there]
    return Doubts(
        wrong,
        bool(wrong > max(_SOME, chance)),
        [key for key, mark in zip(names, odd, strict=True) if mark],
        dict(zip(names, shares.tolist(), strict=True)),
    )
