"""How similar a client's change of the model is to the last change of the global one."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ..core.config.run_config import RunConfig, Summary
from ..core.wire import sparse
from ..core.wire.arrays import flat_floats
from ..core.wire.keys import REFERENCE
from ..selectors.similarities.power_norm import Reference


def flat_change(
    before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """Return the change of the float arrays as one vector, in their order.

    >>> before = {"w": np.zeros((1, 2)), "n": np.array(1)}
    >>> flat_change(before, {"w": np.ones((1, 2)), "n": np.array(2)})
    array([1., 1.], dtype=float32)
    """
    return flat_floats({name: after[name] - before[name] for name in before})


def similarity(config: ConfigRecord, change: NDArray[np.float32], run_config: RunConfig) -> float:
    """Return CosAge's similarity of a change to the global update in a message (eq. 7)."""
    payload = config.get(REFERENCE)
    if not isinstance(payload, bytes):
        raise ValueError(f"{REFERENCE}: the last global update is missing")
    return float(_decoded(payload, change.size, run_config.summary).similarity(change))


def as_reference(update: NDArray[np.float32], summary: Summary) -> Reference:
    """Return a global update, ready to compare changes with as the run config says."""
    return Reference(update, summary.power, summary.form)


@lru_cache(maxsize=1)
def _decoded(payload: bytes, size: int, summary: Summary) -> Reference:
    """Decode an update once for all clients of a process that were sent the same."""
    return as_reference(sparse.decode(payload, size=size), summary)
