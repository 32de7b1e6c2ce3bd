"""HiCS-FL: clients with many classes first, estimated from the update of the output layer's bias.

Chen and Vikalo, 2024: *Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID
Federated Learning*. Training raises the bias of a class in proportion to its share of the client's
samples. The update db of the bias therefore shows the entropy of the labels (section 3.2). Clients
are clustered by the angles between their updates and by this entropy. Clusters of high entropy are
drawn more often at first, all clusters equally often in the end (algorithm 1). Clients send nothing
for it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.cluster import AgglomerativeClustering

from .base import Candidates, ClientSelector, Positions, draw, known_and_not
from .by_loss import sizes

Floats = NDArray[np.float64]

_POOL = 2000  # clients that are clustered at a time, drawn from all


def label_entropies(updates: ArrayLike, temperature: float = 0.5) -> Floats:
    """Return the estimated entropy of each client's labels: that of softmax(db / T).

    The paper sets T for a learning rate; here it is a share of the median length of the updates,
    so that it suits any.

    >>> one_class, two, all_alike = [0.9, -0.3, -0.3, -0.3], [0.5, 0.5, -0.5, -0.5], [0.0] * 4
    >>> label_entropies([one_class, two, all_alike], 0.1).round(2).tolist()
    [0.0, 0.69, 1.39]
    """
    rows = np.asarray(updates, dtype=np.float64)
    usual = np.median(np.linalg.norm(rows, axis=1)) if len(rows) else 0.0
    shares = softmax(rows / max(temperature * usual, 1e-12), axis=1)
    return np.asarray(-(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1))


def clusters(updates: ArrayLike, entropies: Floats, number: int, weight: float) -> NDArray[np.intp]:
    """Return clusters by ``angle(db_i, db_j) + weight * |H_i - H_j|`` (eq. 9)."""
    rows = np.asarray(updates, dtype=np.float64)
    if number >= len(rows) or len(rows) < 2:
        return np.arange(len(rows))
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    angles = np.arccos(np.clip(rows @ rows.T, -1, 1))
    distances = angles + weight * np.abs(entropies[:, None] - entropies)
    np.fill_diagonal(distances, 0.0)
    made = AgglomerativeClustering(number, metric="precomputed", linkage="average").fit(distances)
    return np.asarray(made.labels_, dtype=np.intp)


class Hics(ClientSelector):
    """Draws clusters in proportion to ``exp(gamma_t H)`` (H: mean entropy), then a client of each.

    Clients that have not trained yet come first. Within a cluster clients are drawn in proportion
    to the size of their data. ``gamma_t = gamma (1 - t / rounds)``, at least 0.

    - ``temperature``: T, as a share of the median length of updates.
    - ``weight``: weight of entropies relative to angles (lambda).
    - ``gamma``: initial preference for clusters of high entropy.
    - ``rounds``: rounds after which all clusters count alike; 0 means never.
    """

    remembers = ("_round",)

    needs = frozenset({"bias-update", "num-examples"})

    def __init__(
        self,
        temperature: float = 0.5,
        weight: float = 10.0,
        gamma: float = 4.0,
        rounds: int = 100,
    ) -> None:
        if not (temperature > 0 and weight >= 0 and gamma >= 0 and rounds >= 0):
            raise ValueError(f"hics: {temperature=}, {weight=}, {gamma=}, {rounds=}")
        self.temperature, self.weight, self.gamma = temperature, weight, gamma
        self.rounds, self._round = rounds, 0

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of newcomers, then of those drawn."""
        self._round += 1
        updates = candidates.observed("bias-update")
        known, new = known_and_not(updates)
        first = rng.permutation(new)[:count]
        wanted = min(count - first.size, known.size)
        if wanted <= 0:
            return first
        pool = rng.permutation(known)[: max(_POOL, wanted)]
        drawn = self._drawn(updates[pool], sizes(candidates)[pool], wanted, rng)
        return np.concatenate([first, pool[drawn]])

    def _drawn(
        self, updates: Floats, weights: Floats, count: int, rng: np.random.Generator
    ) -> Positions:
        entropies = label_entropies(updates, self.temperature)
        labels = clusters(updates, entropies, count, self.weight)
        queues = []
        for label in range(labels.max() + 1):
            members = np.flatnonzero(labels == label)
            queues.append(members[draw(weights[members], members.size, rng)].tolist())
        means = np.array([entropies[queue].mean() for queue in queues])
        gamma = self.gamma * max(0.0, 1 - self._round / self.rounds if self.rounds else 1.0)
        odds = np.exp(gamma * (means - means.max()))
        chosen: list[int] = []
        while len(chosen) < count:
            queue = queues[drawn := rng.choice(len(odds), p=odds / odds.sum())]
            chosen.append(queue.pop(0))
            odds[drawn] *= bool(queue)
        return np.array(chosen, dtype=np.intp)
