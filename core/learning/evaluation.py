"""How good a model is on some data: its mean loss, and the metrics of the task."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..tasks import Samples, Task
from ..tasks.errors import TaskError, optional_packages, own_code
from ..tasks.metrics import ACCURACY, RECALL, Metric
from ..tasks.problems import Classification, Problem, Segmentation
from .model_arrays import check_trainable, device_of, load_arrays, moved, read_arrays
from .pools import Pool, looked_through

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
    with own_code(f"metric {metric.name!r}{_on(outputs, targets)}"):
        return float(metric.compute(outputs, targets))


def _on(outputs: Tensor, targets: Tensor) -> str:
    return f" on outputs of shape {tuple(outputs.shape)} and targets of {tuple(targets.shape)}"


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


BATCH = 512


def mean_losses(
    model: nn.Module, arrays: Sequence[Any], data: Sequence[Samples], problem: Problem
) -> list[float]:
    """Return the mean loss of each client, as :func:`evaluate_all` finds it."""
    return [found["loss"] for found in evaluate_all(model, arrays, data, problem, ())]


@torch.no_grad()
def root_mean_square_losses(
    model: nn.Module, arrays: Sequence[Any], data: Sequence[Samples], problem: Problem
) -> list[float]:
    """Return the root of each client's mean squared loss of a sample: Oort's utility."""
    found = np.empty(len(data))
    device = device_of(model)
    for looked in looked_through(model, arrays, data):
        if isinstance(looked, int):
            load_arrays(model, arrays[looked])
            total = 0.0
            for x, y in data[looked].batches(BATCH):
                losses = problem.checked_loss(model(moved(x, device)), moved(y, device))
                total += float(losses.double().square().sum())
            found[looked] = math.sqrt(total / len(data[looked]))
            continue
        pool, outputs = looked
        losses = problem.checked_loss(outputs, pool.y.to(outputs.device)).double().square()
        found[pool.clients] = np.sqrt(pool.sums(losses.cpu().numpy()) / pool.sizes)
    return found.tolist()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    arrays: Any,
    data: Samples,
    problem: Problem | None = None,
    metrics: Sequence[Metric] = (ACCURACY,),
) -> dict[str, float]:
    """Return the metrics by name, and ``loss``, of the model with these arrays on these data."""
    problem = problem or Classification()
    load_arrays(model, arrays)
    model.eval()
    device = device_of(model)
    tally = Tally(problem, metrics)
    for x, y in data.batches(BATCH):
        tally.add(model(moved(x, device)), moved(y, device))
    return tally.found()


@torch.no_grad()
def evaluate_all(
    model: nn.Module,
    arrays: Sequence[Any],
    data: Sequence[Samples],
    problem: Problem | None = None,
    metrics: Sequence[Metric] = (ACCURACY,),
) -> list[dict[str, float]]:
    """Return what :func:`evaluate` finds for each client, with arrays and data of its own.

    Small clients go through the model together: losses differ by the order of sums, metrics do not.
    """
    problem = problem or Classification()
    found: list[dict[str, float]] = [{}] * len(data)
    for looked in looked_through(model, arrays, data):
        if isinstance(looked, int):
            found[looked] = evaluate(model, arrays[looked], data[looked], problem, metrics)
            continue
        pool, outputs = looked
        for client, own in zip(
            pool.clients, _of_pool(pool, outputs, problem, metrics), strict=True
        ):
            found[client] = own
    return found


def _of_pool(
    pool: Pool, outputs: Tensor, problem: Problem, metrics: Sequence[Metric]
) -> list[dict[str, float]]:
    """Return what is found for each client of a pool, for all at once if it is means of samples."""
    targets, sizes = pool.y.to(outputs.device), pool.sizes
    shares = _accuracies(pool, outputs, targets, problem) if list(metrics) == [ACCURACY] else None
    if type(problem).loss_sum is not Problem.loss_sum or (metrics and shares is None):
        parts = (torch.split(each, sizes.tolist()) for each in (outputs, targets))
        return [Tally(problem, metrics).add(*own).found() for own in zip(*parts, strict=True)]
    losses = pool.sums(problem.checked_loss(outputs, targets).cpu().numpy()) / sizes
    if shares is None:
        return [{"loss": loss} for loss in losses.tolist()]
    both = zip(shares.tolist(), losses.tolist(), strict=True)
    return [{"accuracy": share, "loss": loss} for share, loss in both]


def _accuracies(
    pool: Pool, outputs: Tensor, targets: Tensor, problem: Problem
) -> NDArray[np.float64] | None:
    """Return each client's share of right predictions; None if they do not belong to samples."""
    prediction, _, truth = problem.predictions(outputs, targets)
    if len(truth) != len(targets):
        return None
    right = (prediction == truth).view(len(targets), -1)
    return pool.sums(right.sum(1).cpu().numpy()) / (pool.sizes * right.shape[1])


@torch.no_grad()
def predictions_of_all(
    model: nn.Module, arrays: Sequence[Any], data: Sequence[Samples]
) -> list[NDArray[np.float32]]:
    """Return the class probabilities of each client's samples, a row per sample."""
    found: list[NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(data)
    for looked in looked_through(model, arrays, data):
        if isinstance(looked, int):
            load_arrays(model, arrays[looked])
            model.eval()
            device = device_of(model)
            parts = [model(moved(x, device)) for x, _ in data[looked].batches(BATCH)]
            found[looked] = _probabilities(torch.cat(parts))
            continue
        pool, outputs = looked
        for client, own in zip(pool.clients, pool.cut(_probabilities(outputs)), strict=True):
            found[client] = own
    return found


def _probabilities(outputs: Tensor) -> NDArray[np.float32]:
    return outputs.float().softmax(dim=1).cpu().numpy()


def try_out(task: Task, model: nn.Module) -> None:
    """Refuse a task whose model, loss or metrics do not fit its data, and say which."""
    check_trainable(model)
    test = task.server_data().test
    few = test.select(torch.arange(min(4, len(test))))
    model.eval()
    x, y = next(iter(few.batches(len(few))))
    device = device_of(model)
    shape = f"of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
    with own_code(f"the model, on a batch {shape},"), torch.no_grad():
        outputs = model(moved(x, device))
    name = f"{type(task.problem).__name__}.loss"
    with own_code(f"{name}{_on(outputs, y)}"), torch.no_grad():
        own = ":" in task.spec.model or type(task.problem).model is not Problem.model
        if own and isinstance(task.problem, Segmentation):
            task.problem.check_axes(outputs, y)
        task.problem.checked_loss(outputs, moved(y, device))
    evaluate(model, read_arrays(model), few, task.problem, task.metrics)
