"""Gradients of a model's head, as coresets are chosen by them: a row a sample, or their means."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..tasks import Split
from ..tasks.models import linear_head
from .features import features_of
from .gradients import (
    class_mean_gradients,
    class_slice_gradients,
    feature_gradients,
    head_gradients,
    logit_gradients,
)

Arrays = Mapping[str, NDArray[Any]]
Head = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any]]


def sample_rows(
    model: nn.Module, arrays: Arrays, data: Split, rule: str, per_class: bool
) -> NDArray[Any]:
    """Return what a rule compares samples by.

    That is the gradient in the features for CRUST, in the neuron of the sample's own label for
    other rules (section 5.3), or in the whole head where all classes are chosen from at once.
    """
    head = _head(model, arrays, data)
    if rule == "crust":
        return feature_gradients(*head)
    if per_class:
        return class_slice_gradients(*head)
    return head_gradients(*head).reshape(len(data), -1)


def rows_and_rivals(
    model: nn.Module, arrays: Arrays, data: Split
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each sample's gradient in its label's neuron, and the probability of its best rival.

    The rival is the likeliest of all other labels.
    """
    features, weight, bias, labels = _head(model, arrays, data)
    chances = logit_gradients(features, weight, bias, labels)  # of all labels but the own one
    chances[np.arange(len(labels)), labels] = 0
    return class_slice_gradients(features, weight, bias, labels), chances.max(axis=1, initial=0)


def server_targets(
    model: nn.Module, arrays: Arrays, data: Split, per_class: bool
) -> NDArray[np.float32]:
    """Return what clients are to match, (classes, 1 + d).

    Either each class's mean gradient in its own neuron, or the mean gradient of all samples in the
    whole head.
    """
    features, weight, bias, labels = _head(model, arrays, data)
    if per_class:
        told = class_mean_gradients(features, weight, bias, labels, len(weight))
        return told.means.astype(np.float32)
    errors = logit_gradients(features, weight, bias, labels).astype(np.float64)
    means = [errors.mean(0)[:, None], errors.T @ features / len(errors)]
    return np.concatenate(means, axis=1).astype(np.float32)


def _head(model: nn.Module, arrays: Arrays, data: Split) -> Head:
    """Return the head's inputs, its weight and bias, and the labels."""
    features = features_of(model, arrays, data.x).numpy()
    name = linear_head(model)
    return features, arrays[f"{name}.weight"], arrays.get(f"{name}.bias"), data.y.numpy()
