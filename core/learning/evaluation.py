"""How good a model is on some data: its mean loss, and the metrics of the task."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..tasks import Samples
from ..tasks.metrics import ACCURACY, Metric
from ..tasks.problems import Classification, Problem
from .model_arrays import load_arrays
from .placement import device_of, moved
from .pools import Pool, looked_through
from .tally import Tally

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
