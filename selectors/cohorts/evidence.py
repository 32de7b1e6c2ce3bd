"""How the clients of one cohort differ, estimated from several rounds without the noise.

An update is the sum of an effect of the round, an effect of the client, and noise (a two-way
additive model): ``x[i, t] = a[t] + b[i] + e[i, t]``. Only the ``b`` are a reason to split a cohort.
:func:`additive` estimates ``a`` and ``b`` by least squares, whichever clients took part. The
residuals show how much of each estimate is noise; this part is subtracted when variances are
compared (:mod:`selectors.cohorts.separation`). Since noise is independent between rounds, that
equals the mean product of a client's differences in two rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ..checks import at_least
from .projection import unit_rows

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

_SWEEPS = 10
_DENSE = 50_000  # entries up to which a matrix of mostly zeros is multiplied faster as it is
_CROWDED = 0.1  # share of entries from which a sparse matrix is the slower one


@dataclass(frozen=True)
class Differences:
    """The effects of clients: how their updates differ in all rounds."""

    keys: list[str]  # the clients
    means: Floats  # estimates of ``b``, centred (one row per client)
    counts: Positions  # in how many rounds each client was seen
    # All observations, and the client and the round of each
    observed: tuple[NDArray[np.float32], Positions, Positions]
    common: Floats  # estimates of ``a`` (one row per round)
    degrees: int  # degrees of freedom of the noise; 0 where no client was seen twice

    def noise_along(self, directions: ArrayLike) -> Floats:
        """Return the noise's variance along each of some orthonormal directions (columns)."""
        axes = np.asarray(directions, dtype=np.float64)
        if self.degrees < 1:
            return np.zeros(axes.shape[1])
        rows, clients, rounds = self.observed
        left = rows @ axes - (self.means @ axes)[clients] - (self.common @ axes)[rounds]
        return np.asarray(np.sum(left**2, axis=0) / self.degrees)

    def told_by_rounds(self, labels: Positions) -> float:
        """Return how far rounds tell groups of clients apart; 0 is as far as by chance, 1 entirely.

        Adjusted share of variance: what differs between rounds then looks like groups. 0 too once
        clients were seen twice on average: those in several rounds tell rounds from groups.
        """
        _, clients, rounds = self.observed
        if self.degrees >= len(self.keys):
            return 0.0
        members, sizes = np.eye(labels.max() + 1)[labels[clients]], np.bincount(rounds)
        sums = (rounds == np.arange(len(sizes))[:, None]) @ members
        inside, free = len(rounds) - np.sum(sums**2 / sizes[:, None]), len(rounds) - len(sizes)
        apart = len(rounds) - np.sum(members.sum(axis=0) ** 2) / len(rounds)
        return float(1 - inside / free * (len(rounds) - 1) / apart) if free and apart else 0.0


def additive(rows: ArrayLike, clients: Positions, rounds: Positions) -> tuple[Floats, Floats]:
    """Return the effects of clients, centred, and what is common to each round.

    Least squares by turns: the mean of a round depends on who took part, so effects are removed
    from it before it is removed from the observations. All is linear in the means of clients and
    of rounds, so that the turns need only one number per round and coordinate.

    Clients 0 and 1 were seen in round 0, clients 1 and 2 in round 1:

    >>> rows = np.array([[1.0], [3.0], [13.0], [15.0]])  # clients 1, 3, 5; rounds 0, 10
    >>> effects, common = additive(rows, np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]))
    >>> effects.round(1).ravel().tolist(), common.round(1).ravel().tolist()
    ([-2.0, 0.0, 2.0], [3.0, 13.0])
    """
    values = np.asarray(rows, dtype=np.float64)
    by_client, by_round = _averaging(clients), _averaging(rounds)
    of_clients, of_rounds = by_client @ values, by_round @ values
    # Clients x rounds: when it was there
    when = _filled(by_client @ (by_round > 0).T.astype(np.float64))
    who = _filled(by_round @ (by_client > 0).T.astype(np.float64))
    if len(of_clients) < len(of_rounds):  # turns among whichever are fewer
        back, start = _filled(when @ who), of_clients - when @ of_rounds
        effects = start - start.mean(axis=0)
        for _ in range(_SWEEPS - 1):
            effects = start + back @ effects
            effects -= effects.mean(axis=0)
        return effects, of_rounds - who @ effects
    back, base = _filled(who @ when), of_rounds - who @ of_clients
    mean, mean_when = of_clients.mean(axis=0), when.mean(axis=0)
    common = of_rounds
    for _ in range(_SWEEPS - 1):
        common = base + back @ common + (mean - mean_when @ common)
    effects = of_clients - when @ common
    effects -= effects.mean(axis=0)
    return effects, of_rounds - who @ effects


def _averaging(groups: Positions) -> Any:
    """Return the matrix that takes rows to the means of their groups, sparse if it is large."""
    sizes, rows = np.bincount(groups), np.arange(groups.size)
    if sizes.size * groups.size <= _DENSE:
        matrix = np.zeros((sizes.size, groups.size))
        matrix[groups, rows] = 1.0 / sizes[groups]
        return matrix
    entries = 1.0 / sizes[groups], (groups, rows)
    return csr_array(entries, shape=(sizes.size, groups.size))


def _filled(matrix: Any) -> Any:
    """Return a product as a dense matrix if few of its entries are zero."""
    crowded = isinstance(matrix, csr_array) and matrix.nnz > _CROWDED * np.prod(matrix.shape)
    return matrix.toarray() if crowded else matrix


class Evidence:
    """The last observations of one cohort: which client, in which round, in what direction.

    - ``capacity``: most observations that are kept; the oldest go first.

    >>> evidence = Evidence()
    >>> evidence.add(["a", "b"], [[2.0, 0.0], [0.0, 3.0]])
    >>> evidence.add(["a", "b"], [[1.0, 0.0], [0.0, 1.0]])
    >>> found = evidence.differences()
    >>> found.keys, found.means.tolist(), found.counts.tolist()
    (['a', 'b'], [[0.5, -0.5], [-0.5, 0.5]], [2, 2])
    """

    def __init__(self, capacity: int = 2048) -> None:
        at_least(1, capacity=capacity)
        self.capacity = capacity
        self.rounds = 0
        self._keys: list[str] = []
        self._rounds: list[int] = []
        self._points: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)

    @property
    def clients(self) -> int:
        """How many clients are remembered."""
        return len(set(self._keys))

    @property
    def dimension(self) -> int:
        """Length of the observations; 0 before the first."""
        return int(self._points.shape[1])

    def add(self, keys: Sequence[str], updates: ArrayLike, round: int | None = None) -> None:
        """Add one round; updates of zero have no direction and are left out.

        The round is by default the one after the last; late updates belong to an earlier one.
        """
        points = unit_rows(updates)
        there = np.flatnonzero(np.any(points != 0, axis=1)).tolist()
        number = self.rounds + 1 if round is None else round
        self.rounds = max(self.rounds, number)
        if not there:
            return
        new = points[there].astype(np.float32)
        kept = self._points if self._points.size else new[:0]
        self._keys += [keys[row] for row in there]
        self._rounds += [number] * len(there)
        self._keys, self._rounds = self._keys[-self.capacity :], self._rounds[-self.capacity :]
        self._points = np.concatenate([kept, new])[-self.capacity :]

    def of_round(self, round: int) -> tuple[list[str], Floats]:
        """Return who was seen in a round, and in what direction, as far as that is remembered."""
        rows = [row for row, number in enumerate(self._rounds) if number == round]
        return [self._keys[row] for row in rows], self._points[rows].astype(np.float64)

    def differences(self) -> Differences:
        """Return the estimated differences of the clients."""
        keys = list(dict.fromkeys(self._keys))
        place = {key: row for row, key in enumerate(keys)}
        clients = np.array([place[key] for key in self._keys], dtype=np.intp)
        met, rounds = np.unique(self._rounds, return_inverse=True)
        observed = self._points, clients, rounds
        if not keys:
            return Differences([], np.empty((0, 0)), clients, observed, np.empty((0, 0)), 0)
        means, common = additive(self._points, clients, rounds)
        degrees = max(0, len(self._keys) - len(keys) - len(met) + 1)
        return Differences(keys, means, np.bincount(clients), observed, common, degrees)

    def state_dict(self) -> dict[str, Any]:
        """Return the observations."""
        state = {"keys": list(self._keys), "rounds": list(self._rounds), "round": self.rounds}
        return state | {"points": self._points}  # never changed in place

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        points = np.array(state["points"], dtype=np.float32)
        keys, rounds = [str(key) for key in state["keys"]], [int(r) for r in state["rounds"]]
        if not len(points) == len(keys) == len(rounds):
            raise ValueError(f"state: {len(points)} observations of {len(keys)} clients")
        self._keys, self._rounds, self._points = keys, rounds, points
        self.rounds = int(state["round"])
