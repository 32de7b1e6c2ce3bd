"""SCAFFOLD's half on the client: its control variate, kept between rounds."""

import numpy as np
from flwr.app import ArrayRecord

from ...core.learning.job import Job, Outcome
from ...core.learning.objectives.scaffold import CONTROL as CARRIED
from ...core.learning.train_settings import train_settings
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import CONTROL
from ...core.wire.records import record_at
from ..request import Arrays, ClientHook, ClientRequest
from .moon import shapes


class ControlVariates(ClientHook):
    """Correct gradients by ``c - c_i``; afterwards update ``c_i`` and send its change."""

    def before(self, request: ClientRequest) -> None:
        """Hand the difference of the two variates on; both are zero until they are known."""
        ours, theirs = _own(request), _servers(request)
        request.carried[CARRIED] = {name: theirs[name] - ours[name] for name in ours}

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Set ``c_i+ = c_i - c + (x - y_i) / (steps * learning rate)`` (option II, eq. 4)."""
        settings = train_settings(request.config, request.round)
        scale = settings.learning_rate * momentum_steps(outcome.steps, settings.momentum)
        change: Arrays = {}
        for name, servers in _servers(request).items():
            gradient = (job.arrays[name] - outcome.arrays[name]) / scale if scale else servers
            change[name] = np.asarray(gradient - servers, dtype=servers.dtype)
        request.state[CARRIED] = {name: own + change[name] for name, own in _own(request).items()}
        request.reply[CONTROL] = to_record(change)
        return outcome


def momentum_steps(steps: int, momentum: float) -> float:
    """Return how many plain steps move as far as these with momentum, the gradient being constant.

    Without this a momentum of 0.9 makes the gradients look up to ten times larger than they are,
    and the variates grow without bound.

    >>> momentum_steps(5, 0.0), momentum_steps(2, 0.5)  # the second of two steps counts 1.5
    (5.0, 2.5)
    """
    each = np.cumsum(momentum ** np.arange(steps, dtype=np.float64))
    return float(each.sum())


def _zeros(request: ClientRequest) -> Arrays:
    return {name: np.zeros_like(a) for name, a in request.arrays.items() if a.dtype.kind == "f"}


def _own(request: ClientRequest) -> Arrays:
    """Return the client's variate: zero at first, or if the model is another one."""
    zeros = _zeros(request)
    kept: Arrays = request.state.get(CARRIED, {})
    return kept if shapes(kept) == shapes(zeros) else zeros


def _servers(request: ClientRequest) -> Arrays:
    """Return the variate that came with the message; zero if none came."""
    record = record_at(request.message.content, CONTROL, ArrayRecord)
    zeros = _zeros(request)
    came = {} if record is None else from_record(record)
    if record is not None and shapes(came) != shapes(zeros):
        raise ValueError("the server's control variate has other shapes than its model")
    return came or zeros
