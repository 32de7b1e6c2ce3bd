"""Any number of labels per sample."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..errors import TaskError
from .base import Problem


class MultiLabel(Problem):
    """Binary cross-entropy per label; targets are rows of 0 and 1, judged by macro F1.

    >>> import torch
    >>> MultiLabel().loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).exp()
    tensor([2.])
    """

    kind = "multi-label"
    metrics = ("macro-f1", "accuracy")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy of each sample's labels."""
        each = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return each.flatten(1).mean(1)

    def checked_targets(self, targets: Any, count: int, name: str) -> NDArray[Any]:
        """Return a row of 0 and 1 per sample, as numbers."""
        array = super().checked_targets(targets, count, name)
        if array.ndim != 2 or not np.isin(array, (0, 1)).all():
            raise TaskError(
                f"{name} is {array.dtype} of shape {array.shape}; with data.kind = 'multi-label' "
                "it must hold a row of 0 and 1 per sample, one column per label"
            )
        return array.astype(np.float32)

    def num_outputs(self, *targets: NDArray[Any]) -> int:
        """Return the number of labels."""
        return int(targets[0].shape[1])

    def predictions(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return which labels are likelier than not, their probabilities, and the truth."""
        return (outputs > 0).long(), outputs.sigmoid(), targets.long()
