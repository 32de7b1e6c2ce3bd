"""Numbers as targets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..errors import TaskError
from .base import Problem

_PARTS = 10  # equal parts of the range of targets that partitions spread unevenly


class Regression(Problem):
    """Squared error, judged by the mean absolute error and R2.

    Targets are one number per sample or a row of numbers; they become rows.

    >>> import torch
    >>> Regression().loss(torch.tensor([[1.0], [4.0]]), torch.tensor([[1.0], [1.0]]))
    tensor([0., 9.])
    """

    kind = "regression"
    metrics = ("mae", "r2")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error of each sample."""
        if outputs.shape != targets.shape:  # else torch would stretch one to fit the other
            targets = _like(outputs, targets)
        return functional.mse_loss(outputs, targets, reduction="none").flatten(1).mean(1)

    def checked_targets(self, targets: Any, count: int, name: str) -> NDArray[Any]:
        """Return a row of finite numbers per sample."""
        array = super().checked_targets(targets, count, name)
        if array.dtype.kind not in "fiu" or array.ndim > 2 or not np.isfinite(array).all():
            raise TaskError(
                f"{name} is {array.dtype} of shape {array.shape}; with data.kind = 'regression' "
                "it must hold a finite number, or a row of them, per sample"
            )
        return array.reshape(count, int(np.prod(array.shape[1:]))).astype(np.float32)

    def num_outputs(self, *targets: NDArray[Any]) -> int:
        """Return the length of a row."""
        return int(targets[0].shape[1])

    def spread_by(self, targets: NDArray[Any]) -> NDArray[np.int64]:
        """Return in which tenth of all samples the first number lies."""
        first = np.asarray(targets).reshape(len(targets), -1)[:, 0]
        edges = np.quantile(first, np.arange(1, _PARTS) / _PARTS) if len(first) else []
        return np.searchsorted(edges, first, side="right").astype(np.int64)

    def predictions(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs and the truth, in the same shape."""
        return outputs, outputs, _like(outputs, targets)


def _like(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return targets in the shape of the outputs."""
    if outputs.numel() != targets.numel():
        raise TaskError(
            f"the model's outputs have shape {tuple(outputs.shape)}, the targets "
            f"{tuple(targets.shape)}; regression needs one output per target"
        )
    return targets.reshape(outputs.shape)
