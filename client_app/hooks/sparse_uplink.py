"""The sparse uplink on the client: only the largest changes are sent."""

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.learning.job import Outcomes, batch_seed
from ...core.wire import int8, sparse
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


_ROUNDED = "rounding-error"


class Int8Update(ClientHook):
    """Put rounded changes into the reply, in place of the model.

    What rounding lost is added to the next update (error feedback; Karimireddy et al., 2019).
    """

    of_updates = True

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Encode the changes if the message asks for it."""
        if VALUES not in batch.told:
            return outcomes
        changes = outcomes.changes(batch.models)
        add_residuals(batch, changes, _ROUNDED)
        payloads = []
        for row, change in zip(batch.rows, changes, strict=True):
            sizes = [a.size for a in row.model.values() if a.dtype.kind == "f"]
            rng = np.random.default_rng([batch_seed(row.config.seed, row.key, row.round), 8])
            data, said = int8.encode(change, sizes, rng)
            payloads.append(filled(ConfigRecord, {PAYLOAD: data}))
            row.state[_ROUNDED] = change - said
        batch.records[SPARSE] = payloads
        batch.sends_update = True
        return outcomes
