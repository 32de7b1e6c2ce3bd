from typing import Any

import numpy as np
import pytest
import torch
from forager.core.learning.gradients import (
    class_mean_gradients,
    class_slice_gradients,
    feature_gradients,
    head_gradients,
    logit_gradients,
)
from numpy.typing import NDArray

CLOSED_FORMS = (logit_gradients, head_gradients, class_slice_gradients, feature_gradients)


def layer_and_data(seed: int = 0, dtype: Any = np.float64) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(seed)
    features, weight, bias = rng.normal(size=(11, 5)), rng.normal(size=(4, 5)), rng.normal(size=4)
    return (
        features.astype(dtype),
        weight.astype(dtype),
        bias.astype(dtype),
        np.arange(11) % 3,  # nobody is of class 3
    )


def by_autograd(
    features: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any], labels: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """The gradients of one sample after the other, by torch."""
    found: dict[str, list[NDArray[Any]]] = {"head": [], "features": [], "logits": []}
    for row, label in zip(features, labels, strict=True):
        h, w, b = (torch.tensor(a, requires_grad=True) for a in (row, weight, bias))
        logits = w @ h + b
        logits.retain_grad()
        torch.nn.functional.cross_entropy(logits, torch.tensor(label)).backward()
        assert h.grad is not None
        assert w.grad is not None
        assert b.grad is not None
        assert logits.grad is not None
        found["head"].append(torch.cat([b.grad[:, None], w.grad], dim=1).numpy())
        found["features"].append(h.grad.numpy())
        found["logits"].append(logits.grad.numpy())
    return {name: np.stack(values) for name, values in found.items()}


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_agree_with_autograd(dtype: Any, error: float) -> None:
    data = layer_and_data(dtype=dtype)
    expected = by_autograd(*data)
    head = head_gradients(*data)
    assert head.shape == (11, 4, 6)
    np.testing.assert_allclose(head, expected["head"], atol=error)
    np.testing.assert_allclose(logit_gradients(*data), expected["logits"], atol=error)
    np.testing.assert_allclose(feature_gradients(*data), expected["features"], atol=error)
    own = expected["head"][np.arange(11), data[3]]
    np.testing.assert_allclose(class_slice_gradients(*data), own, atol=error)
    for closed_form in CLOSED_FORMS:
        assert closed_form(*data).dtype == dtype


def test_a_layer_without_bias_is_one_with_a_zero_bias() -> None:
    features, weight, _, labels = layer_and_data()
    for closed_form in CLOSED_FORMS:
        np.testing.assert_array_equal(
            closed_form(features, weight, None, labels),
            closed_form(features, weight, np.zeros(4), labels),
        )


def test_small_errors_keep_their_digits() -> None:
    """In float32, 1 - p of a sample that is almost certain would be rounded to nothing."""
    features, weight = np.array([[1.0]], np.float32), np.array([[20.0], [0.0]], np.float32)
    own = class_slice_gradients(features, weight, np.zeros(2, np.float32), [0])
    np.testing.assert_allclose(own, [[-np.exp(-20.0)] * 2], rtol=1e-5)


def test_large_logits_do_not_overflow() -> None:
    gradients = head_gradients([[1.0]], [[1e4], [-1e4]], [0.0, 0.0], [1])
    assert gradients.tolist() == [[[1.0, 1.0], [-1.0, -1.0]]]


def test_class_means_are_what_the_samples_give() -> None:
    features, weight, bias, labels = layer_and_data()
    head = by_autograd(features, weight, bias, labels)["head"]
    told = class_mean_gradients(features, weight, bias, labels)
    for label in range(3):
        np.testing.assert_allclose(told[label], head[labels == label, label].mean(axis=0))
    np.testing.assert_allclose(told[3], head[:, 3].mean(axis=0))  # of class 3 there is nobody


def test_a_sample_that_is_not_finite_spoils_only_its_own_gradients() -> None:
    features, weight, bias, labels = layer_and_data()
    broken = features.copy()
    broken[4, 2], broken[7, 0] = np.nan, np.inf
    others = np.delete(np.arange(11), [4, 7])
    for closed_form in CLOSED_FORMS:
        spoilt = closed_form(broken, weight, bias, labels).reshape(11, -1)
        assert not np.isfinite(spoilt[[4, 7]]).all(axis=1).any()
        whole = closed_form(features, weight, bias, labels).reshape(11, -1)
        np.testing.assert_allclose(spoilt[others], whole[others])
    told = class_mean_gradients(broken, weight, bias, labels)
    rest = class_mean_gradients(features[others], weight, bias, labels[others])
    np.testing.assert_allclose(told, rest)


def test_no_samples() -> None:
    _, weight, bias, _ = layer_and_data()
    none, nobody = np.zeros((0, 5)), np.zeros(0, dtype=int)
    assert head_gradients(none, weight, bias, nobody).shape == (0, 4, 6)
    assert class_slice_gradients(none, weight, bias, nobody).shape == (0, 6)
    assert feature_gradients(none, weight, bias, nobody).shape == (0, 5)
    told = class_mean_gradients(none, weight, bias, nobody)
    assert told.tolist() == np.zeros((4, 6)).tolist()


def test_inputs_are_not_changed() -> None:
    data = layer_and_data()
    before = [array.copy() for array in data]
    for closed_form in CLOSED_FORMS:
        closed_form(*data)
    class_mean_gradients(*data)
    for array, copy in zip(data, before, strict=True):
        np.testing.assert_array_equal(array, copy)
