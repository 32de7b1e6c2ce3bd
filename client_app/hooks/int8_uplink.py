"""The int8 uplink on the client: one byte per entry; rounding errors are sent the next time."""

import numpy as np
from flwr.app import ConfigRecord

from ...core.learning.job import Outcomes, batch_seed
from ...core.wire import int8
from ...core.wire.keys import PAYLOAD, SPARSE, VALUES
from ...core.wire.records import filled
from ..batch import ClientBatch
from .base import ClientHook
from .sparse_uplink import add_residuals

_SECTION = "rounding-error"


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
        add_residuals(batch, changes, _SECTION)
        payloads = []
        for row, change in zip(batch.rows, changes, strict=True):
            sizes = [a.size for a in row.model.values() if a.dtype.kind == "f"]
            rng = np.random.default_rng([batch_seed(row.config.seed, row.key, row.round), 8])
            data, said = int8.encode(change, sizes, rng)
            payloads.append(filled(ConfigRecord, {PAYLOAD: data}))
            row.state[_SECTION] = change - said
        batch.records[SPARSE] = payloads
        batch.sends_update = True
        return outcomes
