"""Gradients of a model's last layer, as coresets are chosen by them: a row per sample, or means.

For classification with a linear last layer they have a closed form. Any other loss and layer take
one backward pass through the last layer for a batch of samples.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from ..tasks import Samples, Split
from ..tasks.models import linear_head
from ..tasks.problems import Problem
from .features import features_of
from .fisher import fisher_diagonal as fisher_diagonal  # the diagonal of the whole model
from .model_arrays import device_of, load_arrays, moved
from .pools import of_same_model, pools

Array = NDArray[Any]


def logit_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient of each sample's cross-entropy in its logits: softmax minus one-hot."""
    kind = np.result_type(np.asarray(features), np.float32)
    inputs, matrix = np.asarray(features, dtype=kind), np.asarray(weight, dtype=kind)
    classes = np.asarray(labels, dtype=np.intp)
    outside = classes[(classes < 0) | (classes >= len(matrix))]
    if outside.size:
        raise ValueError(f"labels: expected 0 to {len(matrix) - 1}, got {outside[0]}")
    with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite
        offset = np.asarray(0 if bias is None else bias, dtype=kind)
        gradients: Array = inputs @ matrix.T + offset
        gradients -= gradients.max(axis=1, keepdims=True, initial=-np.inf)
        np.exp(gradients, out=gradients)
        own = np.arange(len(classes)), classes
        totals = gradients.sum(axis=1)
        gradients[own] = 0
        # p - 1 is minus the sum of the others, which keeps its digits when p is almost 1
        gradients[own] = -gradients.sum(axis=1)
        gradients /= totals[:, None]
    return gradients


def head_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient in the whole last layer, (n, classes, 1 + d): bias, then weights."""
    errors = logit_gradients(features, weight, bias, labels)
    return errors[:, :, None] * _with_one(features, errors.dtype)[:, None, :]


def class_slice_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient of each sample's cross-entropy in the neuron of its own label."""
    errors = logit_gradients(features, weight, bias, labels)
    rows = _with_one(features, errors.dtype)
    rows *= errors[np.arange(len(errors)), np.asarray(labels)][:, None]
    return rows


def feature_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient of each sample's cross-entropy in its features, for CRUST."""
    errors = logit_gradients(features, weight, bias, labels)
    gradients: Array = errors @ np.asarray(weight, dtype=errors.dtype)
    return gradients


def class_mean_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the mean gradient of each class in its own neuron, (classes, 1 + d).

    A class without samples gets the mean over all samples. What is not finite is left out.
    """
    classes = len(np.asarray(weight))
    errors = logit_gradients(features, weight, bias, labels).astype(np.float64)
    rows = _with_one(features, np.dtype(np.float64))
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(errors).all(axis=1)
    errors, rows, kept = errors[usable], rows[usable], np.asarray(labels)[usable].astype(int)
    counts = np.bincount(kept, minlength=classes)
    counted = kept[:, None] == np.arange(classes)
    counted[:, counts == 0] = True
    sums = np.where(counted, errors, 0).T @ rows
    means: Array = sums / np.maximum(counted.sum(axis=0), 1)[:, None]
    return means.astype(np.result_type(np.asarray(features), np.float32))


def _with_one(features: ArrayLike, dtype: np.dtype[Any]) -> Array:
    """Return rows ``[1, features]``."""
    inputs = np.asarray(features)
    rows = np.ones((inputs.shape[0], 1 + inputs.shape[1]), dtype=dtype)
    rows[:, 1:] = inputs
    return rows


_BATCH = 128

Arrays = Mapping[str, NDArray[Any]]
Columns = TypeVar("Columns", bound=tuple[NDArray[Any], ...])
Head = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any]]


def sample_rows(
    model: nn.Module,
    arrays: Arrays,
    data: Samples,
    rule: str,
    per_class: bool,
    problem: Problem | None = None,
) -> NDArray[Any]:
    """Return what a rule compares samples by.

    That is the gradient in the features for CRUST, in the neuron of the sample's own label for
    others (section 5.3), or in the whole head where samples are not chosen by class.
    """
    if problem is not None and not problem.has_classes:
        return last_layer_gradients(model, arrays, data, problem)
    head = _head(model, arrays, data)
    if rule == "crust":
        return feature_gradients(*head)
    if per_class:
        return class_slice_gradients(*head)
    return head_gradients(*head).reshape(len(data), -1)


def rows_and_rivals(
    model: nn.Module, arrays: Arrays, data: Samples, labels: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each sample's gradient in its label's neuron, and its best rival's chance."""
    features, weight, bias, own = _head(model, arrays, data)
    labels = own if labels is None else labels
    chances = logit_gradients(features, weight, bias, labels)  # of all labels but the own one
    chances[np.arange(len(labels)), labels] = 0
    return class_slice_gradients(features, weight, bias, labels), chances.max(axis=1, initial=0)


def sample_rows_of_all(
    model: nn.Module,
    arrays: Sequence[Arrays],
    data: Sequence[Samples],
    rule: str,
    per_class: bool,
    problem: Problem | None = None,
) -> list[NDArray[Any]]:
    """Return :func:`sample_rows` of each client; one pass for small ones with the same model."""

    def rows(own: Arrays, samples: Samples) -> tuple[NDArray[Any]]:
        return (sample_rows(model, own, samples, rule, per_class, problem),)

    return [found for (found,) in _of_all(rows, of_same_model(model, arrays), arrays, data)]


def rows_and_rivals_of_all(
    model: nn.Module, arrays: Sequence[Arrays], data: Sequence[Samples]
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return :func:`rows_and_rivals` of each client; one pass for small ones with one model."""
    keys = of_same_model(model, arrays)
    return _of_all(partial(rows_and_rivals, model), keys, arrays, data)


def _of_all(
    rows: Callable[[Arrays, Samples], Columns],
    keys: Sequence[int],
    arrays: Sequence[Arrays],
    data: Sequence[Samples],
) -> list[Columns]:
    """Return what a function says of each client's samples, a row each in every column."""
    found: dict[int, Any] = {}
    for pool in pools(keys, data):
        if isinstance(pool, int):
            found[pool] = rows(arrays[pool], data[pool])
        else:
            columns = rows(arrays[pool.clients[0]], Split(pool.x, pool.y))
            parts = zip(*map(pool.cut, columns), strict=True)
            found |= zip(pool.clients, parts, strict=True)
    return [found[client] for client in range(len(data))]


def server_targets(
    model: nn.Module, arrays: Arrays, data: Samples, per_class: bool, problem: Problem | None = None
) -> NDArray[np.float32]:
    """Return what clients match: each class's mean gradient in its neuron, or that in the head."""
    if problem is not None and not problem.has_classes:
        rows = last_layer_gradients(model, arrays, data, problem)
        mean = rows.mean(axis=0, dtype=np.float64, keepdims=True)
        return np.asarray(mean, dtype=np.float32)
    features, weight, bias, labels = _head(model, arrays, data)
    if per_class:
        return class_mean_gradients(features, weight, bias, labels).astype(np.float32)
    errors = logit_gradients(features, weight, bias, labels).astype(np.float64)
    means = [errors.mean(0)[:, None], errors.T @ features / len(errors)]
    return np.concatenate(means, axis=1).astype(np.float32)


def last_layer_gradients(
    model: nn.Module, arrays: Arrays, data: Samples, problem: Problem
) -> NDArray[np.float32]:
    """Return the gradient of each sample's loss in the last layer that is trained, a row each."""
    load_arrays(model, arrays)
    model.eval()
    device, parameters = device_of(model), _last_parameters(model)
    rows = []
    for x, y in data.batches(_BATCH):
        with torch.enable_grad():
            losses = problem.checked_loss(model(moved(x, device)), moved(y, device))
            each = torch.eye(len(losses), device=device)
            gradients = torch.autograd.grad(
                losses, parameters, each, is_grads_batched=True, materialize_grads=True
            )
        rows.append(torch.cat([part.flatten(1) for part in gradients], dim=1).cpu())
    return torch.cat(rows).numpy()


def _last_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters of the last module that has any of its own."""
    own = [
        [p for p in module.parameters(recurse=False) if p.requires_grad]
        for module in model.modules()
    ]
    return [parameters for parameters in own if parameters][-1]


def _head(model: nn.Module, arrays: Arrays, data: Samples) -> Head:
    """Return the head's inputs, its weight and bias, and the labels."""
    features = features_of(model, arrays, data).numpy()
    name = linear_head(model)
    return features, arrays[f"{name}.weight"], arrays.get(f"{name}.bias"), data.y.numpy()
