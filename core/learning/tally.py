"""The metrics of a task, from outputs and targets that come batch by batch."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..tasks.errors import TaskError, one_line, optional_packages
from ..tasks.metrics import RECALL, Metric
from ..tasks.problems import Problem

_FROM_LOSS = {"perplexity", "loss"}  # metrics that need nothing but the mean loss
Columns = NDArray[Any]


class Tally:
    """What is added up batch by batch to find the metrics.

    Parameters
    ----------
    problem : Problem
        Whose loss it is.
    metrics : sequence of Metric
        What to find.

    Examples
    --------
    >>> from forager.core.tasks.metrics import ACCURACY
    >>> from forager.core.tasks.problems import Classification
    >>> tally = Tally(Classification(), [ACCURACY])
    >>> tally.add(torch.eye(2), torch.tensor([0, 0])).found()["accuracy"]
    0.5
    """

    def __init__(self, problem: Problem, metrics: Sequence[Metric]) -> None:
        self.problem, self.metrics = problem, metrics
        self.wanted = {metric.name for metric in metrics if metric.compute is None}
        self.total = self.counted = self.correct = self.predicted = 0.0
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self.raw: list[tuple[Tensor, Tensor]] = []

    def add(self, outputs: Tensor, targets: Tensor) -> "Tally":
        """Take in the outputs and targets of a batch."""
        losses = self.problem.checked_loss(outputs, targets)
        loss, count = self.problem.loss_sum(losses, targets)
        self.total, self.counted = self.total + loss, self.counted + count
        looked_at = self.wanted - _FROM_LOSS  # of each prediction
        if looked_at:
            prediction, scores, truth = self.problem.predictions(outputs, targets)
            if "accuracy" in looked_at:
                self.correct += float((prediction == truth).sum())
                self.predicted += truth.numel()
            if looked_at - {"accuracy"}:
                self.kept.append((prediction.cpu(), scores.cpu(), truth.cpu()))
        if len(self.wanted) < len(self.metrics):
            self.raw.append((outputs.cpu(), targets.cpu()))
        return self

    def found(self) -> dict[str, float]:
        """Return the mean loss, and the metrics by name; not those undefined on these samples."""
        loss = self.total / self.counted if self.counted else math.nan
        found: dict[str, float] = {}
        joined = tuple(torch.cat(column).numpy() for column in zip(*self.kept, strict=True))
        for metric in self.metrics:
            if metric.compute is not None:
                found[metric.name] = _own(metric, self.raw)
            elif metric.name == "accuracy":
                found["accuracy"] = self.correct / self.predicted if self.predicted else math.nan
            elif metric.name == "perplexity":
                found["perplexity"] = math.exp(min(loss, 700.0))
            elif metric.name.startswith(RECALL):
                found[metric.name] = _recall(int(metric.name.removeprefix(RECALL)), *joined)
            elif metric.name != "loss":
                with optional_packages(f"metrics = {metric.name!r}"):
                    found[metric.name] = _COMPUTED[metric.name](*joined)
        return {name: value for name, value in found.items() if math.isfinite(value)} | {
            "loss": loss
        }


def _recall(label: int, prediction: Columns, scores: Columns, truth: Columns) -> float:
    """Return the share of a class's samples that are recognised; NaN if it has none."""
    chosen = prediction[truth == label]
    return float((chosen == label).mean()) if len(chosen) else math.nan


def _own(metric: Metric, raw: Sequence[tuple[Tensor, Tensor]]) -> float:
    assert metric.compute is not None
    outputs, targets = (torch.cat(column) for column in zip(*raw, strict=True))
    try:
        return float(metric.compute(outputs, targets))
    except Exception as error:  # whatever the user's code raises is reported by name
        raise TaskError(
            f"metric {metric.name!r} failed on outputs of shape {tuple(outputs.shape)} and targets "
            f"of shape {tuple(targets.shape)}: {type(error).__name__}: {one_line(error)}"
        ) from error


# ---- By scikit-learn, imported when asked for: on a device every message is a new process


def _macro_f1(prediction: Columns, scores: Columns, truth: Columns) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, prediction, average="macro", zero_division=0))


def _balanced_accuracy(prediction: Columns, scores: Columns, truth: Columns) -> float:
    from sklearn.metrics import recall_score

    # The mean recall of the classes that there are; scikit-learn's own warns about the others.
    present = np.unique(truth)
    recalls = recall_score(truth, prediction, labels=present, average="macro", zero_division=0)
    return float(recalls)


def _mean_iou(prediction: Columns, scores: Columns, truth: Columns) -> float:
    from sklearn.metrics import jaccard_score

    present = np.union1d(truth, prediction)
    return float(jaccard_score(truth, prediction, labels=present, average="macro", zero_division=0))


def _auc(prediction: Columns, scores: Columns, truth: Columns) -> float:
    """Return the mean area under the ROC curve, each class against the others.

    Classes that all or none of the samples have are left out: they have no curve.
    """
    from sklearn.metrics import roc_auc_score

    if truth.ndim == 1:
        truth = truth[:, None] == np.arange(scores.shape[1])
    mixed = truth.any(0) & ~truth.all(0)
    if not mixed.any():
        return math.nan
    return float(roc_auc_score(truth[:, mixed], scores[:, mixed], average="macro"))


def _mae(prediction: Columns, scores: Columns, truth: Columns) -> float:
    return float(np.abs(prediction - truth).mean())


def _rmse(prediction: Columns, scores: Columns, truth: Columns) -> float:
    return float(np.sqrt(np.square(prediction - truth, dtype=np.float64).mean()))


def _r2(prediction: Columns, scores: Columns, truth: Columns) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(truth, prediction)) if len(truth) > 1 else math.nan


_COMPUTED: dict[str, Callable[[Columns, Columns, Columns], float]] = {
    "macro-f1": _macro_f1,
    "balanced-accuracy": _balanced_accuracy,
    "auc": _auc,
    "mean-iou": _mean_iou,
    "mae": _mae,
    "rmse": _rmse,
    "r2": _r2,
}
