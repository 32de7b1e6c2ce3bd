"""Who contributed how much: what each accepted update of a round did to the model."""

from collections.abc import Mapping, Sequence
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

    The share of a client is the part of the weighted mean update that its own makes, along it:

    .. math:: s_i = \frac{w_i \langle u_i, m \rangle}{\sum_j w_j \langle m, m \rangle}
       \quad\text{with}\quad m = \frac{\sum_j w_j u_j}{\sum_j w_j}

    All together are 1; a client that pulls the other way has a negative one. Each cohort has its
    own mean.
    """

    def __init__(self) -> None:
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
        )
        federation.note(event)
        self.clear()

    def shares(self) -> NDArray[np.float64]:
        """Return the share of each client in the mean update of its cohort."""
        found = np.zeros(len(self._clients))
        cohorts = np.array([str(cohort) for cohort in self._cohorts])
        weights = np.ones(len(found)) if self.alike else np.array(self._samples)
        for cohort in np.unique(cohorts):
            rows = np.flatnonzero(cohorts == cohort)
            updates, own = np.stack([self._coordinates[row] for row in rows]), weights[rows]
            mean = own @ updates / own.sum()
            length = float(mean @ mean)
            found[rows] = own * (updates @ mean) / (own.sum() * length) if length else 0.0
        return found


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
