"""The sparse uplink on the client: only the largest changes are sent."""

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.learning.job import Outcomes
from ...core.wire import sparse
from ...core.wire.keys import DENSITY, PAYLOAD, SPARSE, VALUES
from ...core.wire.records import filled
from ..batch import ClientBatch
from .base import ClientHook

_SECTION = "residual"


class SparseUpdate(ClientHook):
    """Put the k largest changes into the reply, in place of the model.

    What is left out is added to the next update (error feedback; Stich et al., 2018).
    """

    of_updates = True
    error_feedback = True

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Encode the changes, as densely as the message says; without that, send the model."""
        if DENSITY not in batch.told:
            return outcomes
        changes = outcomes.changes(batch.models)
        k = sparse.num_kept(float(batch.told[DENSITY]), changes.shape[1])
        left = None
        if self.error_feedback:
            add_residuals(batch, changes, _SECTION)
            left = changes.copy()
        payloads = sparse.encode_rows(changes, k, str(batch.told[VALUES]), left)
        if left is not None:
            for row, residual in zip(batch.rows, left, strict=True):
                row.state[_SECTION] = residual.copy()
        batch.records[SPARSE] = [filled(ConfigRecord, {PAYLOAD: own}) for own in payloads]
        batch.sends_update = True
        return outcomes


class ForgetfulUpdate(SparseUpdate):
    """Send the k largest changes; the others are lost."""

    error_feedback = False


def add_residuals(batch: ClientBatch, changes: NDArray[np.float32], section: str) -> None:
    """Add to the changes what each client did not send before, kept in a section of its state."""
    for row, change in zip(batch.rows, changes, strict=True):
        residual = row.state.get(section)
        if residual is not None and residual.size == change.size:
            change += residual
