"""The similarity of a client's update to the last update of the global model (CosAge)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.learning.job import Outcomes
from ...core.methods.selector import Summary
from ...core.wire import sparse
from ...core.wire.keys import CONFIG, REFERENCE, SIMILARITY, WANTS
from ...core.wire.records import entries
from ...selectors.similarities.index_overlap import overlaps_with
from ...selectors.similarities.power_norm import Reference
from ..batch import ClientBatch
from .base import ClientHook


class UpdateSimilarity(ClientHook):
    """Add the similarity of a client's update to its reply, if the message asks for it."""

    of_updates = True

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Compare the updates with the last one of the global model."""
        column = batch.requests.column(CONFIG)
        rows = [row for row, record in enumerate(column) if _asks(record)]
        if rows:
            changes = outcomes.changes(batch.models)
            values: list[float | None] = [None] * len(batch)
            for row, value in zip(rows, similarities(batch, changes, rows), strict=True):
                values[row] = value
            batch.metrics[SIMILARITY] = values
        return outcomes


def _asks(record: ConfigRecord | None) -> bool:
    asked = {} if record is None else entries(record)
    return asked.get(WANTS) == SIMILARITY and REFERENCE in asked


def similarities(
    batch: ClientBatch, changes: NDArray[np.float32], rows: Sequence[int] | None = None
) -> list[float]:
    """Return CosAge's similarity of changes to the last global one (eq. 7), of all or some rows.

    That is the one in the message or, where a model came as a change, that change. Rows with the
    same reference, most often all, are one matrix expression.
    """
    places = range(len(batch)) if rows is None else rows
    column, groups = batch.requests.column(CONFIG), dict[int, tuple[Any, list[int]]]()
    for row in places:
        reference = entries(column[row]).get(REFERENCE)
        if reference is None and batch.held:
            reference = batch.held[row].difference
        if not isinstance(reference, bytes | np.ndarray):
            raise ValueError(f"{REFERENCE}: the last global update is missing")
        groups.setdefault(id(reference), (reference, []))[1].append(row)
    summary, found = batch.config[Summary], np.empty(len(batch))
    for given, some in groups.values():
        if isinstance(given, bytes):
            given = sparse.decode(given, size=changes.shape[1])
        own = changes if len(some) == len(batch) else changes[some]
        if summary.form == "index-overlap":
            found[some] = overlaps_with(given, own)
        else:
            found[some] = Reference(given, summary.power, summary.form).similarities(own)
    return [float(value) for value in found[list(places)]]
