"""MOON's memory: the last model that the client sent."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ...core.learning.job import Outcome
from ...core.learning.objectives.moon import PREVIOUS
from ..batch import ClientRow
from .base import PerClientHook


class PreviousModel(PerClientHook):
    """Bring the previous local model to the objective, and keep the new one."""

    def before_one(self, row: ClientRow) -> None:
        """Hand on the previous model, unless it is of another shape than the one that came."""
        previous = row.state.get(PREVIOUS)
        if previous is not None and shapes(previous) == shapes(row.model):
            row.carry(PREVIOUS, previous)

    def after_one(self, row: ClientRow, outcome: Outcome) -> Outcome:
        """Keep the trained model, not the whole stack that it is a part of."""
        row.state[PREVIOUS] = {name: array.copy() for name, array in outcome.arrays.items()}
        return outcome


def shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array."""
    return {name: array.shape for name, array in arrays.items()}
