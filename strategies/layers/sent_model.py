"""The model that clients were sent, and how replies differ from it."""

import math
from collections.abc import Container, Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...core.wire.arrays import from_record
from ...core.wire.keys import ARRAYS
from ...core.wire.replies import Replies

Norms = NDArray[np.float64]


class SentModel:
    """The model that clients were sent, ready to compare replies with."""

    def __init__(self, record: ArrayRecord) -> None:
        self.arrays = from_record(record)
        # Half precision overflows at 65,504; in single precision only absurd values do.
        kinds = {name: a.dtype for name, a in self.arrays.items() if a.dtype.kind == "f"}
        self.wide = {name: np.promote_types(kind, np.float32) for name, kind in kinds.items()}
        floats = [
            self.arrays[name].ravel().astype(wide, copy=False) for name, wide in self.wide.items()
        ]
        self.norm = math.sqrt(sum(float(np.vdot(a, a)) for a in floats))


def misfits(
    table: Replies, sent: Sequence[SentModel | None], expected: Container[str]
) -> dict[int, str]:
    """Return the rows whose arrays are not like the model that their clients were sent."""
    surplus = [n for n in table.stacks if n != ARRAYS and n not in expected]
    wrong: dict[int, str] = {}
    for row in range(len(table)):
        more = [
            name
            for name, column in table.records.items()
            if type(column[row]) is ArrayRecord and name != ARRAYS and name not in expected
        ]
        if more or surplus:
            wrong[row] = f"{1 + len(more) + len(surplus)} array records instead of one"
    like = next(model for model in sent if model is not None)
    return table.fitting(ARRAYS, like.arrays) | wrong


def impossible(table: Replies, sent: Sequence[SentModel | None]) -> dict[int, str]:
    """Return the rows with a variance below 0 where they were sent none: its root is no number."""
    wrong: dict[int, str] = {}
    for name in (name for name in table.arrays if name.endswith("running_var")):
        below = table.arrays[name].reshape(len(table), -1).min(axis=1) < 0
        for row in np.flatnonzero(below).tolist():
            model = sent[row]
            if model is not None and model.arrays[name].min() >= 0:
                wrong[row] = f"array {name}: variances below 0"
    return wrong


def update_norms(table: Replies, sent: Sequence[SentModel | None]) -> Norms:
    """Return the norm of each update; of values that are not finite, it is not finite either."""
    models = [model for model in sent if model is not None]
    alike = all(model is models[0] for model in models)
    squares = np.zeros(len(table))
    for name, wide in models[0].wide.items():
        after = table.arrays[name]
        before = models[0].arrays[name]
        if not alike:
            before = np.stack([(model or models[0]).arrays[name] for model in sent])
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.subtract(after, before, dtype=wide).reshape(len(after), -1)
            squares += np.vecdot(rows, rows)
    norms: Norms = np.sqrt(squares)
    return norms


def shorten(
    table: Replies, sent: Sequence[SentModel | None], norms: Norms, limits: Mapping[int, float]
) -> None:
    """Shorten the updates of some rows to the norms given, and enter these."""
    arrays = {name: stack.copy() for name, stack in table.arrays.items()}
    for row, limit in limits.items():
        model = sent[row]
        if model is None:
            continue
        for name in model.wide:
            before, update = model.arrays[name], arrays[name][row] - model.arrays[name]
            arrays[name][row] = before + update * (limit / norms[row])
        norms[row] = limit
    table.put(ARRAYS, arrays)
