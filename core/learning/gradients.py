"""Gradients of the cross-entropy in a linear last layer, in closed form.

With features h and logits z = W h + b, the gradient in the logits is ``softmax(z) - onehot(y)``.
The gradient in the bias and weights of output neuron k is entry k of it times ``[1, h]``. So a
forward pass through the model is enough. *Gradient Coreset for Federated Learning* chooses samples
of class c by the slice of neuron c alone (section 5.3), which is also all the server sends.

Samples with features that are not finite have gradients that are not finite.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
