"""Gradients of the cross-entropy in a linear last layer, in closed form.

With features h and logits z = W h + b, the gradient in the logits is ``softmax(z) - onehot(y)``.
The gradient in the bias and weights of output neuron k is entry k of it times ``[1, h]``. So a
forward pass through the model is enough. *Gradient Coreset for Federated Learning* chooses samples
of class c by the slice of neuron c alone (section 5.3), which is also all the server sends.

Samples with features that are not finite have gradients that are not finite.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .fisher import fisher_diagonal as fisher_diagonal

Array = NDArray[Any]


@dataclass(frozen=True)
class ClassMeans:
    """What the server sends clients about its data."""

    means: Array  # (classes, 1 + d): of the bias and weights of neuron c, over class c's samples
    counts: NDArray[np.int64]  # of how many; where 0, the mean is over the samples of all classes


def logit_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient of each sample's cross-entropy in its logits: softmax minus one-hot.

    Parameters
    ----------
    features : array, shape (n, d)
        What the last layer is given.
    weight : array, shape (classes, d)
        Of the last layer.
    bias : array, shape (classes,), optional
        Of the last layer, if it has one.
    labels : array of int, shape (n,)
        From 0 to classes - 1.

    >>> logit_gradients([[1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0], [1]).tolist()
    [[0.5, -0.5]]
    """
    inputs, matrix, offset, classes = _checked(features, weight, bias, labels)
    with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite
        gradients = inputs @ matrix.T + offset
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
    """Return the gradient of each sample's cross-entropy in the whole last layer.

    Parameters are those of :func:`logit_gradients`. Returns shape (n, classes, 1 + d): for each
    class its neuron's bias, then its weights.

    >>> head_gradients([[1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0], [1]).tolist()
    [[[0.5, 0.5, 1.0], [-0.5, -0.5, -1.0]]]
    """
    errors = logit_gradients(features, weight, bias, labels)
    return errors[:, :, None] * _with_one(features, errors.dtype)[:, None, :]


def class_slice_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient of each sample's cross-entropy in the neuron of its own label.

    >>> class_slice_gradients([[1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], None, [1]).tolist()
    [[-0.5, -0.5, -1.0]]
    """
    errors = logit_gradients(features, weight, bias, labels)
    rows = _with_one(features, errors.dtype)
    rows *= errors[np.arange(len(errors)), np.asarray(labels)][:, None]
    return rows


def feature_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> Array:
    """Return the gradient of each sample's cross-entropy in its features, for CRUST.

    >>> feature_gradients([[1.0, 2.0]], [[4.0, 0.0], [4.0, 2.0]], [4.0, 0.0], [0]).tolist()
    [[0.0, 1.0]]
    """
    errors = logit_gradients(features, weight, bias, labels)
    gradients: Array = errors @ np.asarray(weight, dtype=errors.dtype)
    return gradients


def class_mean_gradients(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike, classes: int
) -> ClassMeans:
    """Return the mean gradient of each class in its own neuron.

    A class without samples gets the mean over all samples, in its neuron. Samples with gradients
    that are not finite are left out.

    >>> told = class_mean_gradients([[1.0], [3.0]], [[0.0], [0.0]], [0.0, 0.0], [1, 1], classes=2)
    >>> told.means.tolist(), told.counts.tolist()
    ([[0.5, 1.0], [-0.5, -1.0]], [0, 2])
    """
    if len(np.asarray(weight)) != classes:
        raise ValueError(f"weight: expected {classes} rows, one per class, got {np.shape(weight)}")
    errors = logit_gradients(features, weight, bias, labels).astype(np.float64)
    rows = _with_one(features, np.dtype(np.float64))
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(errors).all(axis=1)
    errors, rows, kept = errors[usable], rows[usable], np.asarray(labels)[usable].astype(int)
    counts = np.bincount(kept, minlength=classes)
    counted = kept[:, None] == np.arange(classes)
    counted[:, counts == 0] = True
    sums = np.where(counted, errors, 0).T @ rows
    means = sums / np.maximum(counted.sum(axis=0), 1)[:, None]
    return ClassMeans(means.astype(np.result_type(np.asarray(features), np.float32)), counts)


def _checked(
    features: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, labels: ArrayLike
) -> tuple[Array, Array, Array, NDArray[np.intp]]:
    inputs, matrix, classes = np.asarray(features), np.asarray(weight), np.asarray(labels)
    kind = np.result_type(inputs, np.float32)
    if inputs.ndim != 2:
        raise ValueError(f"features: expected one row per sample, got shape {inputs.shape}")
    if matrix.ndim != 2 or matrix.shape[1] != inputs.shape[1]:
        raise ValueError(
            f"weight: expected one row of {inputs.shape[1]} values per class, got {matrix.shape}"
        )
    offset = np.zeros(len(matrix)) if bias is None else np.asarray(bias)
    if offset.shape != (len(matrix),):
        raise ValueError(f"bias: expected {len(matrix)} values as in weight, got {offset.shape}")
    if classes.shape != (len(inputs),) or (classes.size and classes.dtype.kind not in "iu"):
        raise ValueError(f"labels: expected {len(inputs)} whole numbers, got {classes.shape}")
    outside = classes[(classes < 0) | (classes >= len(matrix))]
    if outside.size:
        raise ValueError(f"labels: expected 0 to {len(matrix) - 1}, got {outside[0]}")
    return (
        inputs.astype(kind, copy=False),
        matrix.astype(kind, copy=False),
        offset.astype(kind, copy=False),
        classes.astype(np.intp),
    )


def _with_one(features: ArrayLike, dtype: np.dtype[Any]) -> Array:
    """Return rows ``[1, features]``."""
    inputs = np.asarray(features)
    rows = np.ones((inputs.shape[0], 1 + inputs.shape[1]), dtype=dtype)
    rows[:, 1:] = inputs
    return rows
