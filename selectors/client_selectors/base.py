"""What every client selector promises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Candidates:
    """The clients to choose from, in a fixed order, and what is known about them.

    Attributes
    ----------
    keys : sequence of str
        Stable names of the clients.
    observations : mapping of str to array
        One value a client each, in the order of the keys: ``age``, ``similarity``, ``loss``, ...
    """

    keys: Sequence[str]
    observations: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)


class ClientSelector:
    """Chooses clients. Stateless selectors override only :meth:`select`."""

    def select(
        self, candidates: Candidates, count: int, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Return the positions of at most ``count`` different candidates."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return what the selector remembers between rounds."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
