"""How good a model is on some data: its mean loss, and the metrics of the task."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..tasks import Samples
from ..tasks.errors import TaskError, one_line, optional_packages
from ..tasks.metrics import ACCURACY, RECALL, Metric
from ..tasks.problems import Classification, Problem
from .model_arrays import load_arrays
from .placement import device_of, moved

BATCH = 512
_FROM_LOSS = {"perplexity", "loss"}  # metrics that need nothing but the mean loss
Columns = NDArray[Any]


@torch.no_grad()
def mean_loss(model: nn.Module, arrays: Any, data: Samples, problem: Problem) -> float:
    """Return the mean loss of the model with these arrays on these data."""
    return evaluate(model, arrays, data, problem, ())["loss"]


@torch.no_grad()
def root_mean_square_loss(model: nn.Module, arrays: Any, data: Samples, problem: Problem) -> float:
    """Return the square root of the mean squared loss of the samples: Oort's utility."""
    load_arrays(model, arrays)
    model.eval()
    device = device_of(model)
    total = 0.0
    for x, y in data.batches(BATCH):
        losses = problem.checked_loss(model(moved(x, device)), moved(y, device))
        total += float(losses.double().square().sum())
    return math.sqrt(total / len(data))


@torch.no_grad()
def evaluate(
    model: nn.Module,
    arrays: Any,
    data: Samples,
    problem: Problem | None = None,
    metrics: Sequence[Metric] = (ACCURACY,),
) -> dict[str, float]:
    """Return the metrics by name, and ``loss``, of the model with these arrays on these data.

    Parameters
    ----------
    model : nn.Module
        The architecture; it is left with the arrays, in evaluation mode.
    arrays : mapping of str to array
        What is loaded into it.
    data : Samples
        At least one sample.
    problem : Problem, optional
        Whose loss it is; classification by default.
    metrics : sequence of Metric (default: accuracy)
        What to compute.

    Raises
    ------
    TaskError
        If a metric of the user's own fails, with its name.

    Examples
    --------
    >>> from forager.core.tasks import Split
    >>> model = nn.Sequential(nn.Linear(1, 2))
    >>> arrays = {"0.weight": np.float32([[0], [1]]), "0.bias": np.float32([0, 0])}
    >>> data = Split(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
    >>> found = evaluate(model, arrays, data)
    >>> found["accuracy"], round(found["loss"], 3)
    (0.5, 0.813)
    """
    problem = problem or Classification()
    load_arrays(model, arrays)
    model.eval()
    device = device_of(model)
    total = counted = correct = predicted = 0.0
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    raw: list[tuple[Tensor, Tensor]] = []
    wanted = {metric.name for metric in metrics if metric.compute is None}
    looked_at = wanted - _FROM_LOSS  # of each prediction
    for x, y in data.batches(BATCH):
        outputs, targets = model(moved(x, device)), moved(y, device)
        loss, count = problem.loss_sum(problem.checked_loss(outputs, targets), targets)
        total, counted = total + loss, counted + count
        if looked_at:
            prediction, scores, truth = problem.predictions(outputs, targets)
            if "accuracy" in wanted:
                correct += float((prediction == truth).sum())
                predicted += truth.numel()
            if looked_at - {"accuracy"}:
                kept.append((prediction.cpu(), scores.cpu(), truth.cpu()))
        if len(wanted) < len(metrics):
            raw.append((outputs.cpu(), targets.cpu()))
    loss = total / counted if counted else math.nan
    found: dict[str, float] = {}
    joined = tuple(torch.cat(column).numpy() for column in zip(*kept, strict=True))
    for metric in metrics:
        if metric.compute is not None:
            found[metric.name] = _own(metric, raw)
        elif metric.name == "accuracy":
            found["accuracy"] = correct / predicted if predicted else math.nan
        elif metric.name == "perplexity":
            found["perplexity"] = math.exp(min(loss, 700.0))
        elif metric.name.startswith(RECALL):
            found[metric.name] = _recall(int(metric.name.removeprefix(RECALL)), *joined)
        elif metric.name != "loss":
            with optional_packages(f"metrics = {metric.name!r}"):
                found[metric.name] = _COMPUTED[metric.name](*joined)
    return found | {"loss": loss}


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
