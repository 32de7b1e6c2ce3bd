"""The sparse uplink on the client: only the largest changes are sent."""

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.learning.job import Job, Outcome
from ...core.wire import sparse
from ...core.wire.arrays import flat_change
from ...core.wire.keys import DENSITY, PAYLOAD, SPARSE, VALUES
from ...core.wire.records import entries
from ..request import ClientHook, ClientRequest, message_config

_SECTION = "residual"


class SparseUpdate(ClientHook):
    """Put the k largest changes into the reply, in place of the model.

    What is left out is added to the next update (error feedback; Stich et al., 2018).
    """

    error_feedback = True

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Encode the change, as densely as the message says."""
        asked = entries(message_config(request.message))
        if DENSITY in asked:
            change = flat_change(job.arrays, outcome.arrays)
            k = max(1, round(float(asked[DENSITY]) * change.size))
            payload = self._payload(request, change, k, str(asked[VALUES]))
            request.reply[SPARSE] = ConfigRecord({PAYLOAD: payload})
            request.sends_update = True
        return outcome

    def _payload(
        self, request: ClientRequest, change: NDArray[np.float32], k: int, values: str
    ) -> bytes:
        if not self.error_feedback:
            return sparse.encode(change, k, values)
        residual = request.state.get(_SECTION)
        if residual is not None and residual.size == change.size:
            change = change + residual
        payload = sparse.encode(change, k, values)
        request.state[_SECTION] = change - sparse.decode(payload, size=change.size)
        return payload


class ForgetfulUpdate(SparseUpdate):
    """Send the k largest changes; the others are lost."""

    error_feedback = False
