"""Scaling of each feature or channel to mean 0 and deviation 1, by numbers all clients share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from .errors import TaskError
from .spec import FOUND, NONE, STANDARD
from .splits import Batch, Samples, Split

_LEAST = 1e-6  # a spread below this share of the mean is rounding: the feature is constant


@dataclass(frozen=True)
class Scaling:
    """Means and spreads, one of each per feature or channel."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def of_moments(cls, mean: NDArray[np.float64], spread: NDArray[np.float64]) -> Scaling:
        """Return a scaling that leaves features alone that are constant, but for their mean."""
        constant = spread <= _LEAST * np.maximum(np.abs(mean), 1e-6)
        return cls(mean, np.where(constant, 1.0, spread))

    @classmethod
    def read(cls, text: str) -> Scaling:
        """Restore what :meth:`text` returned."""
        try:
            data = base64.b64decode(text.removeprefix(FOUND), validate=True)
            mean, spread = np.frombuffer(data, dtype="<f4").astype(np.float64).reshape(2, -1)
        except (binascii.Error, ValueError) as error:
            raise TaskError(
                f"data.scale = {text[:40]!r}: use {NONE} or {STANDARD}, or what a run wrote to its "
                "config.json"
            ) from error
        if not len(mean) or not np.isfinite([mean, spread]).all() or not (spread > 0).all():
            raise TaskError(f"data.scale = {text[:40]!r}: holds a spread that is not above 0")
        return cls(mean, spread)

    def text(self) -> str:
        """Return the numbers as a setting, in single precision."""
        numbers = np.stack([self.mean, self.spread]).astype("<f4").tobytes()
        return FOUND + base64.b64encode(numbers).decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaling) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.text())

    @cached_property
    def _tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.mean).float(), torch.from_numpy(self.spread).float()

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs, one sample per row, scaled."""
        check_inputs(inputs, len(self.mean))
        shape = (-1, *(1 for _ in inputs.shape[2:]))
        mean, spread = (t.to(inputs.device).reshape(shape) for t in self._tensors)
        return (inputs - mean) / spread


def check_inputs(inputs: object, width: int = 0) -> torch.Tensor:
    """Return inputs that can be scaled; an error that says why others cannot."""
    if not isinstance(inputs, torch.Tensor) or not inputs.is_floating_point() or inputs.ndim < 2:
        raise TaskError(
            "data.scale: inputs must be one tensor of numbers with a fraction, not "
            f"{inputs.dtype if isinstance(inputs, torch.Tensor) else type(inputs).__name__}; "
            "use data.scale = 'none'"
        )
    if width and inputs.shape[1] != width:
        raise TaskError(f"data.scale: made for {width} features, and inputs have {inputs.shape[1]}")
    return inputs


@dataclass(frozen=True)
class ScaledSamples(Samples):
    """Samples that are scaled when they are read."""

    inner: Samples
    scaling: Scaling

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def nbytes(self) -> int:
        """Memory that is taken."""
        return self.inner.nbytes

    @property
    def x(self) -> torch.Tensor:  # type: ignore[override]
        """All inputs."""
        return self.scaling.apply(self.inner.x)

    @property
    def y(self) -> torch.Tensor:  # type: ignore[override]
        """All targets."""
        return self.inner.y

    def select(self, positions: torch.Tensor) -> ScaledSamples:
        """Return some of the samples."""
        return ScaledSamples(self.inner.select(positions), self.scaling)

    def follow(self, plan: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """Yield inputs and targets of one batch after the other."""
        return ((self.scaling.apply(x), y) for x, y in self.inner.follow(plan))


def scaled(samples: Samples, scaling: Scaling) -> Samples:
    """Return samples with scaled inputs: at once if they are in memory, else as they are read."""
    if isinstance(samples, Split):
        return Split(scaling.apply(samples.x), samples.y) if len(samples) else samples
    return ScaledSamples(samples, scaling)


def scaling_of(scale: str) -> Scaling | None:
    """Return the numbers that a setting holds; None if inputs stay as they are, or are not known.

    >>> scaling_of("standard") is None
    True
    """
    return Scaling.read(scale) if scale.startswith(FOUND) else None
