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

    Outputs for targets (n, ...) have the classes on their second axis, (n, classes, ...), as
    torch's cross-entropy expects, or on their last, (n, ..., classes). If both would fit, the task
    or the model declares ``classes_last``. Places with the target -100 do not count.

    >>> targets = torch.tensor([[0, 1, -100]])
    >>> Segmentation().loss(torch.zeros(1, 2, 3), targets).exp()
    tensor([2.])
    >>> Segmentation().loss(torch.zeros(1, 3, 2), targets).exp()
    tensor([2.])
    """

    kind = "segmentation"
    metrics = ("mean-iou", "accuracy")
    default_model = "segmenter"
    classes_last: bool | None = None

    def heed(self, model: torch.nn.Module) -> None:
        """Read on which axis a model has its classes, if it declares that."""
        declared = getattr(model, "classes_last", None)
        if declared is not None:
            self.classes_last = bool(declared)

    def check_axes(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs that could be read either way, unless the axis is declared."""
        if self.classes_last is None and len(_readings(outputs, targets)) > 1:
            raise TaskError(
                f"the model's outputs of shape {tuple(outputs.shape)} may have their classes on "
                "the second axis or on the last; set classes_last = True or False in the class of "
                "the model or of the task"
            )

    def classes_second(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return outputs as (n, classes, ...); an error if they do not fit the targets."""
        fits = _readings(outputs, targets)
        if not fits or self.classes_last not in (None, *fits):
            raise TaskError(
                f"the model's outputs have shape {tuple(outputs.shape)}, the targets "
                f"{tuple(targets.shape)}; {self.kind} needs outputs (n, classes, ...), or with "
                "classes_last = True (n, ..., classes), for targets (n, ...)"
            )
        last = fits[0] if self.classes_last is None else self.classes_last
        return outputs.movedim(-1, 1) if last else outputs

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy over each sample's places."""
        outputs = self.classes_second(outputs, targets)
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
        outputs = self.classes_second(outputs, targets)
        scores = torch.softmax(outputs, 1).movedim(1, -1).flatten(0, -2)
        truth = targets.flatten()
        counted = truth != IGNORED
        return scores.argmax(1)[counted], scores[counted], truth[counted]

    def loss_sum(self, losses: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the sum of the losses of all places, and how many there are."""
        counted = (targets != IGNORED).flatten(1).sum(1)
        return float((losses * counted).sum()), float(counted.sum())


def _readings(outputs: Tensor, targets: Tensor) -> list[bool]:
    """Return whether the classes may be on the last axis: False, True, both, or neither."""
    places = targets.shape[1:]
    shapes = {False: outputs.shape[2:], True: outputs.shape[1:-1]}
    return [last for last, shape in shapes.items() if shape == places]


class NextToken(Segmentation):
    """Predict each next token of a text; inputs and targets are token ids, judged by perplexity.

    Targets are the inputs shifted by one; both are (n, length). Outputs are (n, vocabulary, length)
    or (n, length, vocabulary).

    >>> NextToken().loss(torch.zeros(1, 5, 3), torch.tensor([[4, 0, 2]])).exp()
    tensor([5.])
    """

    kind = "next-token"
    metrics = ("perplexity", "accuracy")
    tokens = overlapping = True
    default_model = "char-gru"
