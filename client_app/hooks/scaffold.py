"""The client side of SCAFFOLD: its control variate, kept between rounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.learning.job import Outcomes
from ...core.learning.objectives.scaffold import CONTROL as CARRIED
from ...core.learning.train_settings import train_settings
from ...core.wire.keys import CONTROL
from ..batch import Arrays, ClientBatch
from .base import ClientHook
from .moon import shapes


class ControlVariates(ClientHook):
    """Correct gradients by ``c - c_i``; afterwards update ``c_i`` and send its change."""

    def before(self, batch: ClientBatch) -> None:
        """Hand the difference of the two variates on; both are zero until they are known."""
        own, servers = _own(batch), _servers(batch)
        batch.memo[self] = own, servers
        apart = {name: servers[name] - own[name] for name in own}
        batch.carried[CARRIED] = [
            {name: stack[row] for name, stack in apart.items()} for row in range(len(batch))
        ]

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Set ``c_i+ = c_i - c + (x - y_i) / (steps * learning rate)`` (option II, eq. 4)."""
        own, servers = batch.memo[self]
        settings = train_settings(batch.config, batch.round)
        moved = {steps: momentum_steps(steps, settings.momentum) for steps in set(outcomes.steps)}
        scales = np.array([settings.learning_rate * moved[steps] for steps in outcomes.steps])
        change: Arrays = {}
        for name, theirs in servers.items():
            scale = scales.astype(theirs.dtype).reshape(-1, *[1] * (theirs.ndim - 1))
            way = _stacked(batch.models, name) - outcomes.arrays[name]
            gradient = np.where(scale, way / np.where(scale, scale, 1), theirs)
            change[name] = np.asarray(gradient - theirs, dtype=theirs.dtype)
        kept = {name: own[name] + change[name] for name in own}
        for row in batch.rows:
            row.state[CARRIED] = {name: stack[row.place].copy() for name, stack in kept.items()}
        batch.stacks[CONTROL] = change
        return outcomes


def momentum_steps(steps: int, momentum: float) -> float:
    """Return how many plain steps move as far as these with momentum, the gradient being constant.

    Without this a momentum of 0.9 makes the gradients look up to ten times larger than they are,
    and the variates grow without bound.

    >>> momentum_steps(5, 0.0), momentum_steps(2, 0.5)  # the second of two steps counts 1.5
    (5.0, 2.5)
    """
    each = np.cumsum(momentum ** np.arange(steps, dtype=np.float64))
    return float(each.sum())


def _zeros(model: Arrays) -> Arrays:
    return {name: np.zeros_like(a) for name, a in model.items() if a.dtype.kind == "f"}


def _own(batch: ClientBatch) -> Arrays:
    """Return the clients' variates, stacked: zero at first, or if the model is another one."""
    zeros = _zeros(batch.models[0])
    like = shapes(zeros)
    kept = [row.state.get(CARRIED, {}) for row in batch.rows]
    usable = [own if shapes(own) == like else zeros for own in kept]
    return {name: np.stack([own[name] for own in usable]) for name in zeros}


def _servers(batch: ClientBatch) -> Arrays:
    """Return the variates that came with the messages, or one for all; zero if none came."""
    zeros = _zeros(batch.models[0])
    if batch.requests.record(CONTROL, 0) is None:
        return {name: array[None] for name, array in zeros.items()}
    came = batch.arrays(CONTROL)
    if any(shapes(variate) != shapes(zeros) for variate in came):
        raise ValueError("the server's control variate has other shapes than its model")
    return {name: _stacked(came, name) for name in zeros}


def _stacked(models: Sequence[Arrays], name: str) -> NDArray[Any]:
    """Return an array of all clients; with a first axis of 1 if they share it."""
    first = models[0]
    if all(model is first for model in models):
        return first[name][None]
    return np.stack([model[name] for model in models])
