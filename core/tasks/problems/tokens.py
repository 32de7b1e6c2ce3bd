"""A class for each pixel, token or other place of a sample."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..errors import TaskError
from .base import Problem

IGNORED = -100
"""Target of places that do not count, as in ``torch.nn.CrossEntropyLoss``."""


class Segmentation(Problem):
    """Cross-entropy at each place of a sample: pixels of images, tokens of sentences.

    Outputs have the classes on their second axis, as torch's cross-entropy has it: (n, classes,
    ...) for targets (n, ...). Places with the target -100 do not count.

    >>> targets = torch.tensor([[0, 1, -100]])
    >>> Segmentation().loss(torch.zeros(1, 2, 3), targets).exp()
    tensor([2.])
    """

    kind = "segmentation"
    metrics = ("mean-iou", "accuracy")
    default_model = "segmenter"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy over each sample's places."""
        each = functional.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORED)
        counted = (targets != IGNORED).flatten(1).sum(1).clamp(min=1)
        return each.flatten(1).sum(1) / counted

    def checked_targets(self, targets: Any, count: int, name: str) -> NDArray[Any]:
        """Return whole numbers, with at least one axis besides the samples'."""
        array = super().checked_targets(targets, count, name)
        if array.dtype.kind not in "iu" or array.ndim < 2:
            raise TaskError(
                f"{name} is {array.dtype} of shape {array.shape}; with data.kind = "
                f"{self.kind!r} it must hold a class, a whole number, for each place of a sample"
            )
        array = array.astype(np.int64)
        if array.size and int(array[array != IGNORED].min(initial=0)) < 0:
            raise TaskError(f"{name} holds negative classes; only {IGNORED} (not counted) may be")
        return array

    def num_outputs(self, *targets: NDArray[Any]) -> int:
        """Return the largest class plus one."""
        return 1 + int(max(each.max(initial=0) for each in targets))

    def output_shape(self, num_outputs: int, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (classes, places ...)."""
        return (num_outputs, *target_shape)

    def predictions(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the likeliest class, the probabilities, and the truth at every place."""
        scores = torch.softmax(outputs, 1).movedim(1, -1).flatten(0, -2)
        truth = targets.flatten()
        counted = truth != IGNORED
        return scores.argmax(1)[counted], scores[counted], truth[counted]

    def loss_sum(self, losses: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the sum of the losses of all places, and how many there are."""
        counted = (targets != IGNORED).flatten(1).sum(1)
        return float((losses * counted).sum()), float(counted.sum())


class NextToken(Segmentation):
    """Predict each next token of a text; inputs and targets are token ids, judged by perplexity.

    Targets are the inputs moved on by one: (n, length) both. Outputs are (n, vocabulary, length).
    """

    kind = "next-token"
    metrics = ("perplexity", "accuracy")
    tokens = True
    default_model = "char-gru"
