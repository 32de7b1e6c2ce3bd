"""One client's piece of work, and what comes of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tasks import Samples


@dataclass(frozen=True)
class Job:
    """Train the model with these arrays on these data; the seed decides the mini-batches.

    ``carried`` holds arrays like the model's that the objective needs, by the name it gives them.
    """

    arrays: Mapping[str, NDArray[Any]]
    data: Samples
    seed: int
    weights: NDArray[Any] | None = None
    carried: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    steps: int = 0  # mini-batches; 0 for as many as the settings say


@dataclass(frozen=True)
class Outcome:
    """The trained arrays, the mean loss over the steps taken, and how much was done.

    ``squares`` are the squared gradients of samples, flat over the trained parameters: the mean
    over steps of the mean over a step's samples, in parts: step t is in part t modulo their number.
    """

    arrays: dict[str, NDArray[Any]]
    loss: float
    num_examples: int
    steps: int
    squares: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class Outcomes(Sequence[Outcome]):
    """The outcomes of jobs that were trained together, as columns: row i belongs to job i."""

    arrays: dict[str, NDArray[Any]]
    losses: list[float]
    num_examples: list[int]
    steps: list[int]
    squares: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Outcomes":
        """Return any outcomes of jobs with the same model as columns."""
        if isinstance(outcomes, cls):
            return outcomes
        return cls(
            {n: np.stack([each.arrays[n] for each in outcomes]) for n in outcomes[0].arrays},
            [each.loss for each in outcomes],
            [each.num_examples for each in outcomes],
            [each.steps for each in outcomes],
            _stacked([each.squares for each in outcomes]),
        )

    def changes(self, models: Sequence[Mapping[str, NDArray[Any]]]) -> NDArray[np.float32]:
        """Return how each row differs from the model it started from, as ``flat_change`` does."""
        first = models[0]
        floats = [name for name, array in first.items() if array.dtype.kind == "f"]
        shared = all(model is first for model in models)
        sizes = [first[name].size for name in floats]
        found = np.empty((len(self), sum(sizes)), dtype=np.float32)
        for name, columns in zip(floats, np.split(found, np.cumsum(sizes)[:-1], 1), strict=True):
            before = first[name][None] if shared else np.stack([model[name] for model in models])
            trained = self.arrays[name].reshape(len(self), -1)
            np.subtract(trained, before.reshape(len(before), -1), out=columns, casting="same_kind")
        return found

    def __getitem__(self, index: int) -> Outcome:  # type: ignore[override]
        return Outcome(
            {name: array[index] for name, array in self.arrays.items()},
            self.losses[index],
            self.num_examples[index],
            self.steps[index],
            None if self.squares is None else self.squares[index],
        )

    def __iter__(self) -> Iterator[Outcome]:
        return (self[row] for row in range(len(self)))

    def __len__(self) -> int:
        return len(self.losses)


def _stacked(squares: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    known = [each for each in squares if each is not None]
    return np.stack(known) if known and len(known) == len(squares) else None
