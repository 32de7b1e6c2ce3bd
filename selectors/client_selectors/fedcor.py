"""FedCor: the clients whose training is expected to reduce the losses of all clients most.

Tang, Ning, Wang, Sun, Wang, Li and Chen, 2022: *FedCor: Correlation-Based Active Client Selection
Strategy for Heterogeneous Federated Learning*. The changes of the clients' losses in a round are
modelled as a Gaussian process: training a client lowers its own loss and the losses correlated with
it. As in the authors' code, the covariance is learned in rounds in which random clients train and
all clients report their losses. There such a round trains a copy of the model, which is dropped,
and older changes count less; here the round counts, and the last 20 changes have equal weight.
"""

import numpy as np
from numpy.typing import NDArray

from .base import Candidates, ClientSelector, Positions
from .by_loss import sizes

Floats = NDArray[np.float64]

_POOL = 2000  # clients that are compared at a time, drawn from all
_KEPT = 20  # changes of losses that the covariance is learnt from


def covariance_factors(changes: Floats, dimension: int = 15) -> tuple[Floats, float]:
    """Return V and s of the likeliest covariance ``V V' + s I`` of changes, one row per round.

    The kernel is the paper's: linear in embeddings of ``dimension`` numbers, plus noise. The paper
    fixes the noise and fits embeddings by gradient ascent; if the noise is fitted too, the maximum
    likelihood has a closed form (probabilistic PCA: Tipping and Bishop, 1999).
    """
    centred = changes - changes.mean(axis=0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    variances = singular**2 / len(changes)
    kept = min(dimension, len(variances), max(1, changes.shape[1] - 1))
    noise = float(variances[kept:].sum() / max(1, changes.shape[1] - kept))
    return directions[:kept].T * np.sqrt(np.maximum(variances[:kept] - noise, 0)), noise


def greatest_drop(
    factors: Floats, noise: float, shares: Floats, discounts: Floats, count: int
) -> Positions:
    """Return, greedily, the clients that lower the weighted sum of losses most (eq. 10).

    Client k is expected to lower it by ``discount_k sum_i p_i Sigma_ik / sqrt(Sigma_kk)``. After
    each choice the covariance is conditioned on the chosen client.

    >>> factors = np.array([[1.0, 0.0], [0.9, 0.0], [0.0, 0.5]])  # the first two change together
    >>> greatest_drop(factors, 0.01, np.ones(3) / 3, np.ones(3), 2).tolist()
    [0, 2]
    """
    latent, left, chosen = np.eye(factors.shape[1]), np.ones(len(factors), dtype=bool), []
    pull = factors.T @ shares
    for _ in range(min(count, len(factors))):
        spread = factors @ latent
        variances = np.einsum("ij,ij->i", spread, factors) + noise
        drops = discounts * (spread @ pull + noise * shares) / np.sqrt(np.maximum(variances, 1e-12))
        chosen.append(best := int(np.argmax(np.where(left, drops, -np.inf))))
        left[best] = False
        pull = pull - shares[best] * factors[best]  # nothing is left to learn of its own loss
        seen = latent @ factors[best]
        latent = latent - np.outer(seen, seen) / max(variances[best], 1e-12)
    return np.array(chosen, dtype=np.intp)


class FedCor(ClientSelector):
    """The clients with the largest expected drop of all losses, after some random rounds.

    - ``warm_up``: random rounds at the start, in each of which clients are asked for losses.
    - ``every``: after that, one round in so many is random; clients are asked before and after it.
    - ``dimension``: of the embeddings of clients.
    - ``annealing``: the factor on a client for each time it was chosen since the last questions.
    """

    remembers = ("_round", "_losses", "_changes", "_times")

    needs = frozenset({"loss", "num-examples"})

    def __init__(
        self, warm_up: int = 10, every: int = 10, dimension: int = 15, annealing: float = 0.95
    ) -> None:
        if min(warm_up, every - 1, dimension) < 1 or not 0 < annealing <= 1:
            raise ValueError(f"fedcor: {warm_up=}, {every=}, {dimension=}, {annealing=}")
        self.warm_up, self.every, self.dimension = warm_up, every, dimension
        self.annealing = annealing
        self._round = 0  # rounds that have been chosen for
        self._losses: dict[str, float] = {}  # if they are of the last round
        self._changes: dict[str, list[float]] = {}  # of all clients as many, the latest last
        self._times: dict[str, int] = {}  # chosen since then

    def asks(self) -> bool:
        """Return whether losses are wanted: before and after each round of random clients."""
        past = self._round - self.warm_up
        return past <= 0 or (past % self.every < 2 and past >= self.every)

    def _draws(self) -> bool:
        """Return whether clients are drawn: the rule learns only from rounds of random clients."""
        past = self._round - self.warm_up
        return past < 0 or 0 == past % self.every < past

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return positions in the order chosen."""
        losses = np.asarray(candidates.observed("loss"), dtype=np.float64)
        known = rng.permutation(np.flatnonzero(np.isfinite(losses)))
        if self.asks():
            self._learn(dict(zip(candidates.keys, losses.tolist(), strict=True)))
        else:
            self._losses = {}
        draws, self._round = self._draws(), self._round + 1
        pool = known[: max(_POOL, count)]
        keys = [candidates.keys[i] for i in pool.tolist()]
        rounds = self._rounds()
        if draws or rounds < 2 or not keys:
            return known[:count]
        changes = np.array([self._changes.get(key, [0.0] * rounds) for key in keys])
        factors, noise = covariance_factors(changes.T, self.dimension)
        shares = sizes(candidates)[pool] / max(1.0, sizes(candidates)[pool].sum())
        discounts = self.annealing ** np.array([self._times.get(key, 0) for key in keys])
        chosen = greatest_drop(factors, noise, shares, discounts, count)
        for place in chosen.tolist():
            self._times[keys[place]] = self._times.get(keys[place], 0) + 1
        return pool[chosen]

    def _learn(self, losses: dict[str, float]) -> None:
        """Learn how losses changed since the last round; a missing answer counts as no change."""
        if self._losses:
            rounds, new = self._rounds(), {}
            for key, loss in losses.items():
                change = loss - self._losses.get(key, loss)
                past = self._changes.get(key, [0.0] * rounds)
                new[key] = [*past, change if np.isfinite(change) else 0.0][-_KEPT:]
            self._changes, self._times = new, {}
        self._losses = losses

    def _rounds(self) -> int:
        return len(next(iter(self._changes.values()), ()))
