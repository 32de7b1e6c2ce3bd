"""One client's piece of work, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tasks import Split


@dataclass(frozen=True)
class Job:
    """Train the model with these arrays on these data; the seed decides the mini-batches."""

    arrays: Mapping[str, NDArray[Any]]
    data: Split
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The trained arrays, the mean loss over the steps taken, and how much was done."""

    arrays: dict[str, NDArray[Any]]
    loss: float
    num_examples: int
    steps: int
