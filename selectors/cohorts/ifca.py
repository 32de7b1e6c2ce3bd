"""IFCA: k models, of which each client trains the one with the lowest loss on its data.

Ghosh, Chung, Yin, Ramchandran: *An Efficient Framework for Clustered Federated Learning*, algorithm
1. All k models are sent to every participant of every round.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least
from .tree import ROOT, Grouping, Membership


def best_model(losses: ArrayLike) -> NDArray[np.intp]:
    """Return the model of the lowest loss for each client; -1 if no loss is a number.

    - ``losses`` (one row per client): ties go to the lower number.
    """
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 1:
        raise ValueError(
            f"losses: expected one row per client, one column per model, got {values.shape}"
        )
    values = np.where(np.isnan(values), np.inf, values)
    best = np.argmin(values, axis=1)
    return np.where(np.isinf(values.min(axis=1)), -1, best).astype(np.intp)


class Ifca(Grouping):
    """Which model each client trained last.

    - ``models``: number of models (k), which must start differently.

    >>> ifca = Ifca(models=2)
    >>> ifca.observe(["a", "b"], [[0.9, 0.1], [0.1, 0.9]])
    ['0.1', '0.0']
    """

    def __init__(self, models: int = 2) -> None:
        at_least(1, models=models)
        self.models, self.members = models, Membership()
        if models > 1:
            self.members.split(ROOT, [[] for _ in range(models)])

    def observe(self, keys: Sequence[str], losses: ArrayLike) -> list[str]:
        """Return the model of each participant; one without any loss stays where it is.

        The columns of losses are in the order of the leaves.
        """
        chosen, leaves = best_model(losses), self.leaves()
        if len(chosen) != len(keys) or np.asarray(losses).shape[1] != self.models:
            raise ValueError(f"losses: expected {len(keys)} rows and {self.models} columns")
        for key, model in zip(keys, chosen, strict=True):
            if model >= 0:
                self.members.put(key, leaves[model])
        return [self.members.leaf_of(key) or leaves[0] for key in keys]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        leaves = state["tree"]["leaves"]
        if len(leaves) != self.models:
            raise ValueError(f"state: {len(leaves)} models, expected {self.models}")
        super().load_state_dict(state)
