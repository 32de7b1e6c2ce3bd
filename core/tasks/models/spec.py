"""What a model is built for, and the checks that an input fits a model."""

import math
from dataclasses import dataclass

from ..errors import TaskError, invalid


@dataclass(frozen=True)
class ModelSpec:
    """Everything a model builder needs to know."""

    model: str
    input_shape: tuple[int, ...]
    num_classes: int
    hidden: int
    output_shape: tuple[int, ...] = ()
    tokens: bool = False

    def __post_init__(self) -> None:
        if not self.input_shape or min(self.input_shape) < 1:
            raise invalid("input_shape", self.input_shape, "positive sizes")
        if self.num_classes < 1:
            raise invalid("num_classes", self.num_classes, "a number of at least 1")
        if self.hidden < 1:
            raise invalid("hidden", self.hidden, "a number of at least 1")
        if not self.output_shape:
            object.__setattr__(self, "output_shape", (self.num_classes,))

    @property
    def inputs(self) -> int:
        """Number of values in one sample."""
        return math.prod(self.input_shape)

    def image(self, smallest: int = 1) -> tuple[int, int, int]:
        """Return (channels, height, width); refuse what is no image of at least that size."""
        if len(self.input_shape) != 3 or min(self.input_shape[1:]) < smallest:
            raise self.misfit(
                f"images (channels, height, width) of at least {smallest} x {smallest} pixels"
            )
        channels, height, width = self.input_shape
        return channels, height, width

    def series(self, shortest: int) -> tuple[int, int]:
        """Return (channels, time); refuse what is no series of at least that length."""
        if len(self.input_shape) != 2 or self.input_shape[1] < shortest:
            raise self.misfit(f"series (channels, time) of at least {shortest} steps")
        channels, time = self.input_shape
        return channels, time

    def misfit(self, expected: str) -> TaskError:
        """Return the error for an input that this model cannot read."""
        return TaskError(
            f"model = {self.model!r} reads {expected}; one sample here has shape {self.input_shape}"
        )
