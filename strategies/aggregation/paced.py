"""Paced averaging: server momentum whose step follows how well successive rounds agree.

A server step of 1, FedAvg's, is too short where clients take few local steps, and a fixed longer
one overshoots where they take many. Whether it is too short shows in the updates themselves: while
the mean update of a round points where those before it pointed, more of the way is left; once it
points back, the last steps were too long. This is hypergradient descent (Baydin et al., 2018) on
the logarithm of the step, with the cosine in place of the product, so that neither the client's
learning rate nor the size of the model matters.
"""

import math
from collections.abc import Iterable

import numpy as np
from flwr.app import Message

from ...core.wire.arrays import from_record, to_record
from ..layers.base import Outcome
from .update_average import Arrays, FromCurrent

_GAIN = 0.5  # of the step's logarithm per unit of cosine
_EXPECTED = 0.05  # cosine at which the step stays as it is
_LONGEST = 16.0
_BACK = -0.6  # cosine, of one round or of two in sequence, below which momentum is of no use


def next_step(step: float, cosine: float) -> float:
    """Return the next step: longer the better a round agrees with those before, never below 1.

    >>> round(next_step(1.0, 0.45), 3), next_step(1.0, -0.5)
    (1.221, 1.0)
    """
    return min(_LONGEST, max(1.0, step * math.exp(_GAIN * (cosine - _EXPECTED))))


class PacedAvg(FromCurrent):
    """FedAvg with bias-corrected momentum and a step of its own finding.

    With the mean update ``d_t`` of round t, ``m_t = b m_{t-1} + (1 - b) d_t`` and the step
    ``s_t = next_step(s_{t-1}, cos(d_t, m_{t-1}))``, the model moves by ``s_t m_t / (1 - b**t)``.
    Where a round turns back, or two do so less clearly, momentum has carried the model past its
    aim, and ``m`` and its count begin anew (O'Donoghue and Candes, 2015: adaptive restart). It
    sends what FedAvg sends, and remembers one model.
    """

    def __init__(self, *, server_momentum: float = 0.9, **everyone: int) -> None:
        super().__init__(**everyone)
        self.server_momentum = server_momentum
        self.mean_update: Arrays = {}
        # The step, how many rounds have been taken, and how far the last one turned back
        self.pace = np.array([1.0, 0.0, 0.0])

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Move the model along the mean of this round's and earlier updates."""
        mean, metrics = super().aggregate_train(server_round, replies)
        if mean is None:
            return None, metrics
        beta = self.server_momentum
        update = {n: a - self.current[n] for n, a in from_record(mean).items()}
        before = self.mean_update or {n: np.zeros_like(a) for n, a in update.items()}
        cosine = _cosine(update, before)
        step, rounds = next_step(float(self.pace[0]), cosine), self.pace[1] + 1
        back = min(0.0, cosine)
        if back + self.pace[2] < _BACK:
            before, rounds, back = {n: np.zeros_like(a) for n, a in update.items()}, 1, 0.0
        self.pace = np.array([step, rounds, back])
        self.mean_update = {n: beta * before[n] + (1 - beta) * a for n, a in update.items()}
        factor = step / (1 - beta**rounds)
        self.current = {n: a + factor * self.mean_update[n] for n, a in self.current.items()}
        return to_record(self.current), metrics


def _cosine(one: Arrays, other: Arrays) -> float:
    """Return the cosine of two updates; what keeps the step as it is if one of them is zero."""
    pairs = [(one[name].ravel(), other[name].ravel()) for name in one]
    product = sum(float(a @ b) for a, b in pairs)
    norms = math.sqrt(sum(float(a @ a) for a, _ in pairs) * sum(float(b @ b) for _, b in pairs))
    return product / norms if norms > 0 else _EXPECTED
