"""Paced averaging: server momentum whose step follows how well successive rounds agree.

FedAvg's server step of 1 is too short if clients take few local steps, and a fixed longer one
overshoots if they take many. The updates themselves show which is the case: as long as the mean
update of a round has the direction of earlier ones, the step can grow; once it points back, the
last steps were too long. This is hypergradient descent (Baydin et al., 2018) on the logarithm of
the step, with the cosine in place of the product: neither the client's learning rate nor the size
of the model matters.
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
    """FedAvg with bias-corrected momentum and an adaptive step.

    With the mean update ``d_t`` of round t, ``m_t = b m_{t-1} + (1 - b) d_t`` and the step
    ``s_t = next_step(s_{t-1}, cos(d_t, m_{t-1}))``, the model moves by ``s_t m_t / (1 - b**t)``.
    If a round reverses the direction, or two rounds do so less clearly, momentum has overshot, and
    ``m`` and its count start again (O'Donoghue and Candes, 2015: adaptive restart). It sends the
    same as FedAvg, and stores one model.
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
    """Return the cosine of two updates; if one is zero, the value that keeps the step."""
    pairs = [(one[name].ravel(), other[name].ravel()) for name in one]
    product = sum(float(a @ b) for a, b in pairs)
    norms = math.sqrt(sum(float(a @ a) for a, _ in pairs) * sum(float(b @ b) for _, b in pairs))
    return product / norms if norms > 0 else _EXPECTED
