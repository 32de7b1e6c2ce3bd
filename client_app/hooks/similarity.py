"""How similar a client's change of the model is to the last change of the global one."""

from functools import lru_cache

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.job import Job, Outcome
from ...core.methods.selector import Summary
from ...core.wire import sparse
from ...core.wire.arrays import flat_change
from ...core.wire.keys import REFERENCE, SIMILARITY, WANTS
from ...core.wire.records import entries
from ...selectors.similarities.power_norm import Reference
from ..request import ClientHook, ClientRequest, message_config


def similarity(config: ConfigRecord, change: NDArray[np.float32], run_config: RunConfig) -> float:
    """Return CosAge's similarity of a change to the global update in a message (eq. 7)."""
    payload = config.get(REFERENCE)
    if not isinstance(payload, bytes):
        raise ValueError(f"{REFERENCE}: the last global update is missing")
    return float(_decoded(payload, change.size, run_config[Summary]).similarity(change))


def as_reference(update: NDArray[np.float32], summary: Summary) -> Reference:
    """Return a global update, ready to compare changes with as the run config says."""
    return Reference(update, summary.power, summary.form)


@lru_cache(maxsize=1)
def _decoded(payload: bytes, size: int, summary: Summary) -> Reference:
    """Decode an update once for all clients of a process that were sent the same."""
    return as_reference(sparse.decode(payload, size=size), summary)


class UpdateSimilarity(ClientHook):
    """Add the similarity of a client's update to its reply, if the message asks for it."""

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Compare the update with the last one of the global model."""
        config = message_config(request.message)
        asked = entries(config)
        if asked.get(WANTS) == SIMILARITY and REFERENCE in asked:
            change = flat_change(job.arrays, outcome.arrays)
            request.metrics[SIMILARITY] = similarity(config, change, request.config)
        return outcome
