"""The metrics of a task, from outputs and targets that come batch by batch."""

import math
from collections.abc import Sequence
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
    """What is added up batch by batch to find the metrics."""

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
            elif metric.name == "mae":
                found["mae"] = float(np.abs(joined[0] - joined[2]).mean())
            elif metric.name == "rmse":
                squares = np.square(joined[0] - joined[2], dtype=np.float64)
                found["rmse"] = float(np.sqrt(squares.mean()))
            elif metric.name != "loss":
                with optional_packages(f"metrics = {metric.name!r}"):
                    found[metric.name] = _by_sklearn(metric.name, *joined)
        return {k: v for k, v in found.items() if math.isfinite(v)} | {"loss": loss}


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


def _by_sklearn(name: str, prediction: Columns, scores: Columns, truth: Columns) -> float:
    # Imported when asked for: on a device every message is a new process
    from sklearn import metrics

    if not np.isfinite(scores).all():
        raise TaskError(
            "the model's outputs are not finite: training diverges; lower learning-rate, or set "
            "data.scale = 'standard'"
        )
    if name == "macro-f1":
        return float(metrics.f1_score(truth, prediction, average="macro", zero_division=0))
    if name == "balanced-accuracy":
        # The mean recall of the classes that there are; scikit-learn's own warns about the others.
        recall, present = metrics.recall_score, np.unique(truth)
        return float(recall(truth, prediction, labels=present, average="macro", zero_division=0))
    if name == "mean-iou":
        iou, present = metrics.jaccard_score, np.union1d(truth, prediction)
        return float(iou(truth, prediction, labels=present, average="macro", zero_division=0))
    if name == "r2":
        return float(metrics.r2_score(truth, prediction)) if len(truth) > 1 else math.nan
    # The mean area under the ROC curve, each class against the others; classes that all or none of
    # the samples have are left out: they have no curve.
    if truth.ndim == 1:
        truth = truth[:, None] == np.arange(scores.shape[1])
    mixed = truth.any(0) & ~truth.all(0)
    if not mixed.any():
        return math.nan
    return float(metrics.roc_auc_score(truth[:, mixed], scores[:, mixed], average="macro"))
