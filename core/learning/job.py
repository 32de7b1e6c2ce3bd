"""One client's piece of work, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from ..tasks import Samples


@dataclass(frozen=True)
class Job:
    """Train the model with these arrays on these data; the seed decides the mini-batches.

    Samples weigh the same unless there are ``weights``. ``carried`` holds arrays like the model's
    that the objective needs, by the name it gives them.
    """

    arrays: Mapping[str, NDArray[Any]]
    data: Samples
    seed: int
    weights: NDArray[Any] | None = None
    carried: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The trained arrays, the mean loss over the steps taken, and how much was done."""

    arrays: dict[str, NDArray[Any]]
    loss: float
    num_examples: int
    steps: int
