"""Data as it was read, before it is spread over clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError
from ..problems import problem_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from ..problems import Problem

    Inputs = NDArray[Any] | csr_array


@dataclass(frozen=True)
class RawData:
    """A train and a test pool, inputs as compact as they came; ``rows`` makes them float32."""

    x_train: Inputs  # one sample per row of the first axis
    y_train: NDArray[Any]  # one row per sample; for classification labels, whole numbers from 0
    x_test: Inputs
    y_test: NDArray[Any]
    user_train: NDArray[Any] | None = None  # owner of every sample, where samples have one
    user_test: NDArray[Any] | None = None
    num_classes: int = 0  # 0 for the largest label plus one; in other problems, outputs of a model
    columns: tuple[str, ...] = ()  # names of the inputs, where they have some
    problem: Problem | str = ""  # a kind of `core.tasks.problems`, or a user's own; empty: auto

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.x_train.shape[1:])


def rows(inputs: Inputs, indices: NDArray[np.int64], tokens: bool = False) -> NDArray[Any]:
    """Chosen samples as a new float32 array, uint8 as [0, 1]; tokens as int64."""
    chosen: Any = inputs[indices]
    if not isinstance(chosen, np.ndarray):
        chosen = chosen.toarray()
    if tokens:
        return np.ascontiguousarray(chosen, dtype=np.int64)
    if chosen.dtype == np.uint8:
        return np.ascontiguousarray(chosen, dtype=np.float32) / np.float32(255)
    return np.ascontiguousarray(chosen, dtype=np.float32)


def input_range(inputs: Inputs) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Smallest and largest value of every feature, on the scale that ``rows`` gives."""
    low, high = (_dense_row(getattr(inputs, bound)(axis=0)) for bound in ("min", "max"))
    return rows(low, np.array([0]))[0], rows(high, np.array([0]))[0]


def _dense_row(bound: Any) -> NDArray[Any]:
    """Bound per feature as one row; sparse arrays give sparse bounds."""
    if hasattr(bound, "toarray"):
        return np.asarray(bound.toarray()).reshape(1, -1)
    return np.asarray(bound)[None]


def model_inputs(inputs: NDArray[Any], origin: str = "x", *, tokens: bool = False) -> NDArray[Any]:
    """Return inputs as people hold them in the layout and range that models are given."""
    tidy = _inputs(inputs, "x", origin, tokens)
    return rows(tidy, np.arange(len_of(tidy)), tokens)


def tidied(raw: RawData, origin: str, problem: Problem | None = None) -> RawData:
    """Check the data and bring it into the layout that models expect: images channels first."""
    if problem is None:
        named = raw.problem or kind_of(raw.y_train)
        problem = problem_of(named) if isinstance(named, str) else named
    x_train = _inputs(raw.x_train, "x_train", origin, problem.tokens)
    x_test = _inputs(raw.x_test, "x_test", origin, problem.tokens)
    if x_train.shape[1:] != x_test.shape[1:]:
        raise TaskError(
            f"{origin}: x_train and x_test hold samples of different shapes, "
            f"{x_train.shape[1:]} and {x_test.shape[1:]}"
        )
    y_train = problem.checked_targets(raw.y_train, len_of(x_train), f"{origin}: y_train")
    y_test = problem.checked_targets(raw.y_test, len_of(x_test), f"{origin}: y_test")
    num_classes = raw.num_classes or problem.num_outputs(y_train, y_test)
    if problem.has_classes:
        _check_range(y_train, num_classes, "y_train", origin)
        _check_range(y_test, num_classes, "y_test", origin)
    return replace(
        raw,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        user_train=_users(raw.user_train, len(y_train), "user_train", origin),
        user_test=_users(raw.user_test, len(y_test), "user_test", origin),
        num_classes=int(num_classes),
        problem=problem,
    )


def kind_of(targets: Any) -> str:
    """Return the kind of problem that targets look like: numbers with a fraction are regression."""
    return "regression" if np.asarray(targets).dtype.kind == "f" else "classification"


def len_of(inputs: Inputs) -> int:
    """Count the samples; sparse arrays have no ``len``."""
    return int(inputs.shape[0])


def _inputs(inputs: Inputs, name: str, origin: str, tokens: bool) -> Inputs:
    if hasattr(inputs, "toarray"):
        _check_finite(inputs.data, name, origin)
        return inputs
    array = np.asarray(inputs)
    if array.dtype.kind not in "fiub" or array.ndim < 2:
        raise TaskError(
            f"{origin}: {name} is {array.dtype} of shape {array.shape}; it must hold numbers, "
            "one sample per row"
        )
    if tokens:
        return _tokens(array, name, origin)
    if array.dtype.kind == "f":
        _check_finite(array, name, origin)
    if array.dtype not in (np.uint8, np.float16, np.float32):
        array = array.astype(np.float32)
    return _channels_first(array)


def _tokens(array: NDArray[Any], name: str, origin: str) -> NDArray[Any]:
    if array.dtype.kind not in "iu" or array.min(initial=0) < 0:
        raise TaskError(f"{origin}: {name} is {array.dtype}; token ids are whole numbers from 0")
    return array


def _check_finite(values: Any, name: str, origin: str) -> None:
    if not np.isfinite(values).all():
        raise TaskError(f"{origin}: {name} holds NaN or infinite values; remove those samples")


def _channels_first(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim == 3 and array.dtype == np.uint8:
        return array[:, None]
    if array.ndim == 4 and array.shape[3] in (1, 3) and array.shape[1] not in (1, 3):
        return np.moveaxis(array, 3, 1)
    return array


def _check_range(labels: NDArray[np.int64], num_classes: int, name: str, origin: str) -> None:
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise TaskError(
            f"{origin}: {name} holds the label {wrong[0]}; "
            f"with {num_classes} classes labels go from 0 to {num_classes - 1}"
        )


def _users(users: Any, count: int, name: str, origin: str) -> NDArray[Any] | None:
    if users is None:
        return None
    array = np.asarray(users)
    if array.shape != (count,) or array.dtype.kind not in "iuUS":
        raise TaskError(
            f"{origin}: {name} is {array.dtype} of shape {array.shape}; "
            f"it must hold one number or name for each of the {count} samples"
        )
    return array
