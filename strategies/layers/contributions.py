"""Contributions: how much each accepted update of a round changed the model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import Contributed
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.replies import Replies
from ..federation.federation import Federation
from ..federation.ledger import Assignment

Arrays = Mapping[str, NDArray[Any]]

MOST_COORDINATES = 4096  # of a model, evenly spread, that shares are computed from


class Contributions:
    r"""The updates that a round accepted, by a few coordinates of each.

    The share of a client is the part that its update contributes along the weighted mean update:

    .. math:: s_i = \frac{w_i \langle u_i, m \rangle}{\sum_j w_j \langle m, m \rangle}
       \quad\text{with}\quad m = \frac{\sum_j w_j u_j}{\sum_j w_j}

    All shares add up to 1; a client that pulls against the others has a negative share. Each cohort
    has its own mean.

    With a ``loss`` of models on the server's data, every update has a value, too: how much higher
    the loss of the mean is without it. All updates of a round are then held until its end.
    """

    def __init__(self) -> None:
        self.loss: Callable[[Arrays], float] | None = None
        self.alike = False  # whether clients count the same, whatever their samples
        self.clear()

    def clear(self) -> None:
        """Begin a round."""
        self._clients: list[str] = []
        self._cohorts: list[str | None] = []
        self._bytes: list[int] = []
        self._samples: list[float] = []
        self._norms: list[float] = []
        self._coordinates: list[NDArray[np.float64]] = []
        self._models: list[tuple[Arrays, Arrays]] = []  # as sent and as received, for values

    def add(
        self,
        table: Replies,
        keys: Sequence[str],
        asked: Sequence[Assignment],
        models: Sequence[Arrays],
        norms: NDArray[np.float64],
    ) -> None:
        """Add rows that were accepted, with the models that their clients were sent."""
        self._clients += keys
        self._cohorts += [each.cohort for each in asked]
        self._bytes += [each.bytes_up for each in asked]
        self._samples += [float(count) for count in table.metrics[NUM_EXAMPLES]]
        self._norms += norms.tolist()
        self._coordinates += list(_coordinates(table, models))
        if self.loss is not None:
            places = range(len(table))
            after = [{name: rows[i] for name, rows in table.arrays.items()} for i in places]
            self._models += zip(models, after, strict=True)

    def note(self, federation: Federation, server_round: int) -> None:
        """Write down who made the model of a round."""
        if not self._clients:
            return
        event = Contributed(
            round=server_round,
            clients=self._clients,
            bytes_up=self._bytes,
            samples=self._samples,
            norms=[float(f"{norm:.4g}") for norm in self._norms],
            shares=[float(f"{share:.4g}") for share in self.shares()],
            values=[float(f"{value:.4g}") for value in self.values()],
        )
        federation.note(event)
        self.clear()

    def shares(self) -> NDArray[np.float64]:
        """Return the share of each client in the mean update of its cohort."""
        found = np.zeros(len(self._clients))
        for rows, own in self._by_cohort():
            updates = np.stack([self._coordinates[row] for row in rows])
            mean = own @ updates / own.sum()
            length = float(mean @ mean)
            found[rows] = own * (updates @ mean) / (own.sum() * length) if length else 0.0
        return found

    def values(self) -> NDArray[np.float64]:
        """Return the rise of a cohort's loss without each client; empty if not requested."""
        if self.loss is None:
            return np.zeros(0)
        found = np.zeros(len(self._clients))
        for rows, own in self._by_cohort():
            sent, total = self._models[rows[0]][0], float(own.sum())
            sums = {n: np.zeros(a.shape) for n, a in sent.items() if a.dtype.kind == "f"}
            for row, weight in zip(rows, own.tolist(), strict=True):
                for name, array in sums.items():
                    array += weight * self._models[row][1][name]
            with_all = self.loss({**sent, **{name: array / total for name, array in sums.items()}})
            for row, weight in zip(rows, own.tolist(), strict=True):
                left, after = total - weight, self._models[row][1]
                # Of a client that is alone, what it was sent remains
                rest = {n: (a - weight * after[n]) / left for n, a in sums.items() if left}
                found[row] = self.loss({**sent, **rest}) - with_all
        return found

    def _by_cohort(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
        """Yield the rows of each cohort and their weights."""
        cohorts = np.array([str(cohort) for cohort in self._cohorts])
        weights = np.ones(len(cohorts)) if self.alike else np.array(self._samples)
        for cohort in np.unique(cohorts):
            rows = np.flatnonzero(cohorts == cohort)
            yield rows, weights[rows]


def _coordinates(table: Replies, models: Sequence[Arrays]) -> NDArray[np.float64]:
    """Return some coordinates of each update, a row per client: all of a small model."""
    first = models[0]
    floats = {name: array for name, array in first.items() if array.dtype.kind == "f"}
    step = -(-sum(array.size for array in floats.values()) // MOST_COORDINATES)
    parts = []
    for name in floats:
        after = table.arrays[name].reshape(len(table), -1)[:, ::step]
        if all(model is first for model in models):
            before = first[name].ravel()[::step]
        else:
            before = np.stack([model[name].ravel()[::step] for model in models])
        parts.append(after.astype(np.float64) - before)
    return np.concatenate(parts, axis=1)
