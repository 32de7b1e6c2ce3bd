"""What of the data may mislead, found before a run: one short line each, with what to set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_CLASSES = 50  # that whole numbers with a decimal point may stand for
_UNEQUAL = 20.0  # times the spread of another column, or any size above it
_LOOKED_AT = 10_000  # rows of a table whose columns are compared


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What is known of the data of a task."""

    x: Any  # training inputs, as read
    targets: NDArray[Any]
    kind: str
    columns: Sequence[str] = ()  # names of the inputs, where they have some
    kind_chosen: bool = True  # by the user or the data, not by the type of the targets
    scaled: bool = False  # before training
    test_size: int = 0  # samples that the server tests on
    owners: int = 0  # of the samples, where clients go by them
    client_tests: Sequence[int] = ()  # samples that each client tests on
    tests_are_owners: bool = False  # whether those are the owners' part of the test data
    client_test_share: float = 0.0  # that the run says clients hold out
    class_counts: Sequence[list[int]] = ()  # at each client, where clients are real owners


def check_data(facts: DataFacts) -> list[str]:
    """Return what may mislead, and what to do about it."""
    found = [
        _labels(facts),
        _whole_numbers(facts),
        *_columns(facts),
        _merged_owners(facts),
        _unused_share(facts),
        *_small_tests(facts),
        _missing_classes(facts),
    ]
    return [line for line in found if line]


def _labels(facts: DataFacts) -> str:
    if facts.kind != "classification" or not facts.targets.size:
        return ""
    if facts.targets.min() == facts.targets.max():
        return f"every label is {facts.targets.min()}: there is nothing to learn"
    if facts.targets.min() != 1:
        return ""
    return (
        f"labels go from 1 to {facts.targets.max()}: class 0 has no sample, but an output of the "
        "model; subtract 1"
    )


def _whole_numbers(facts: DataFacts) -> str:
    targets = facts.targets
    if facts.kind != "regression" or facts.kind_chosen or not targets.size:
        return ""
    values = np.unique(targets)
    few = len(values) <= min(_MOST_CLASSES, len(targets) // 2)
    if not few or values[0] < 0 or (values % 1).any():
        return ""
    shown = ", ".join(f"{value:g}.0" for value in values[:3])
    return (
        f"targets are whole numbers with a decimal point ({shown}, ...) and are learned as a "
        "regression; if they are classes, set data.kind = 'classification'"
    )


def _columns(facts: DataFacts) -> list[str]:
    if facts.scaled or getattr(facts.x, "ndim", 0) != 2 or not isinstance(facts.x, np.ndarray):
        return []
    if facts.x.dtype.kind != "f" or len(facts.x) < 2:
        return []
    some = facts.x[:_LOOKED_AT].astype(np.float64)
    spread, size = some.std(axis=0), np.abs(some).max(axis=0)
    varying = np.flatnonzero(spread > 1e-9 * np.maximum(size, 1e-9))
    if not len(varying):
        return []
    names = [f"'{name}'" for name in facts.columns] or list(map(str, range(len(size))))
    wide, narrow = varying[spread[varying].argmax()], varying[spread[varying].argmin()]
    ratio = spread[wide] / spread[narrow]
    if ratio > _UNEQUAL:
        told = f"varies {ratio:,.0f} times as much as column {names[narrow]}"
    elif size.max() > _UNEQUAL:
        wide, told = size.argmax(), f"has values up to {size.max():,.0f}"
    else:
        return []
    return [f"input column {names[wide]} {told}; set data.scale = 'standard'"]


def _merged_owners(facts: DataFacts) -> str:
    clients = len(facts.client_tests)
    if not 0 < clients < facts.owners:
        return ""
    return (
        f"{facts.owners} owners share {clients} clients; set num-clients = {facts.owners} for one "
        "client per owner"
    )


def _unused_share(facts: DataFacts) -> str:
    if not facts.tests_are_owners or not facts.client_test_share:
        return ""
    return (
        "clients test on their owners' rows of the test data; data.client-test-share = "
        f"{facts.client_test_share} is not used"
    )


def _small_tests(facts: DataFacts) -> list[str]:
    found = []
    if facts.test_size == 1:
        found.append("the server tests on one row; give more, or lower data.validation-share")
    none = sum(size == 0 for size in facts.client_tests)
    if none and facts.client_test_share:
        found.append(
            f"{none} of {len(facts.client_tests)} clients: too few rows to hold out "
            f"data.client-test-share = {facts.client_test_share} of them; raise it"
        )
    single = sum(size == 1 for size in facts.client_tests)
    if single:
        numbers = facts.kind == "regression"
        what, instead = ("R2", "mae or rmse") if numbers else ("AUC", "accuracy")
        found.append(
            f"{single} of {len(facts.client_tests)} clients: one row of test data, where {what} is "
            f"undefined; raise data.client-test-share or use {instead}"
        )
    return found


def _missing_classes(facts: DataFacts) -> str:
    counts = np.asarray(facts.class_counts)
    if not counts.size or counts.shape[1] < 2:
        return ""
    held = (counts > 0).sum(axis=1)
    lacking = int((held < counts.shape[1]).sum())
    if not lacking:
        return ""
    return (
        f"{lacking} of {len(counts)} clients: a class is missing; the fewest at a client are "
        f"{held.min()} of {counts.shape[1]}"
    )
