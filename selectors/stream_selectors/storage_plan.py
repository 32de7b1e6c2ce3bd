"""The plan of who stores which label (section 3.3 of the ODE paper), and when it is made again."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..stateful import Stateful
from .coordination import Coordination, coordinate

GAP = 10
"""Rounds that a plan lasts at least, unless many clients are new."""

_MANY_NEW = 0.5  # new clients for each in the plan that cannot wait
_LONGEST_GAP = 80  # most rounds for which drifting velocities are left alone
_CHANCE = 2.0  # mean deviations of a measured velocity that are no drift
_MEMORY = 50.0  # rounds that a measured velocity is the mean of, at most


class StoragePlan(Stateful):
    """A plan that lasts: small changes wait, and a new one keeps what it can of the old.

    The server makes a new plan if clients join or leave for good, if a new label arrives, if
    capacities change, or if velocities drift. Drift is measured in shares of all arrivals, since
    the plan does not depend on the length of a round. Measured velocities differ by chance, which
    does not count as drift; every new plan because of drift doubles the rounds until the next such
    plan.

    - ``replan``: drift (in sum, of shares that add up to 1) from which on the plan is made again;
      infinite for never: only for other clients, or labels that nobody had.
    - ``clients_per_label``, ``labels_per_client``: limits of the plan; 0 for any number.
    - ``quantities``, ``cover``, ``client_weights``: as in
      :func:`~forager.selectors.stream_selectors.coordination.coordinate`.
    """

    remembers = ("quota", "class_weights", "_velocities", "_capacities", "_made_in", "_wait")

    def __init__(
        self,
        replan: float,
        clients_per_label: int,
        labels_per_client: int,
        quantities: str,
        cover: bool,
        client_weights: str = "stored",
    ) -> None:
        self.replan = replan
        self.clients_per_label, self.labels_per_client = clients_per_label, labels_per_client
        self.quantities, self.cover = quantities, cover
        self.client_weights = client_weights
        self.quota: dict[str, list[int]] = {}
        self.class_weights: list[float] = []
        self._velocities: dict[str, list[float]] = {}  # those that the plan was made for
        self._capacities: dict[str, int] = {}
        self._made_in = 0
        self._wait = GAP  # rounds that drift must wait for

    def update(
        self,
        server_round: int,
        velocities: Mapping[str, list[float]],
        capacities: Mapping[str, int],
        arrived: Mapping[str, int],
    ) -> Coordination | None:
        """Make a new plan if the old one no longer fits, and return it then.

        - ``server_round``: the round.
        - ``velocities``: samples of each label per round, by client; some come to each.
        - ``capacities``, ``arrived``: what each can store, and the samples that its velocities were
          measured by.
        """
        if not velocities or not self._outdated(server_round, velocities, capacities, arrived):
            return None
        nothing = [0] * len(next(iter(velocities.values())))
        plan = coordinate(
            list(velocities.values()),
            [capacities[key] for key in velocities],
            self.clients_per_label or len(velocities),
            self.labels_per_client or None,
            self.quantities,
            self.cover,
            client_weights=self.client_weights,
            held=[self.quota.get(key, nothing) for key in velocities],
            loyalty=self.replan if math.isfinite(self.replan) else 0.0,
        )
        self._velocities = {key: list(row) for key, row in velocities.items()}
        self._capacities = {key: capacities[key] for key in velocities}
        self.quota = {key: row.tolist() for key, row in zip(velocities, plan.quota, strict=True)}
        self.class_weights = plan.class_weights.tolist()
        self._made_in = server_round
        return plan

    def _outdated(
        self,
        server_round: int,
        velocities: Mapping[str, list[float]],
        capacities: Mapping[str, int],
        arrived: Mapping[str, int],
    ) -> bool:
        if not self._velocities:
            return True
        new = sum(key not in self._velocities for key in velocities)
        if new and new >= _MANY_NEW * len(self._velocities):
            return True
        age = abs(server_round - self._made_in)
        if age < GAP:
            return False
        if velocities.keys() != self._velocities.keys():
            return True
        if any(capacities[key] != self._capacities[key] for key in velocities):
            return True
        now = np.array(list(velocities.values()))
        before = np.array([self._velocities[key] for key in velocities])
        if ((now.sum(0) > 0) & (before.sum(0) == 0)).any():
            return True
        drift = np.abs(now / now.sum() - before / before.sum()).sum()
        if age < self._wait or drift <= self.replan:
            return False
        rounds = np.array([arrived[key] for key in velocities]) / now.sum(1)
        if drift <= self.replan + _CHANCE * _deviation(now, rounds):
            return False
        self._wait = min(2 * self._wait, _LONGEST_GAP)
        return True


def _deviation(velocity: NDArray[np.float64], rounds: NDArray[np.float64]) -> float:
    """Return how far shares are off by chance, in sum, where arrivals are Poisson.

    A velocity v that is the mean of n rounds has the variance v / n, and so a mean deviation of
    sqrt(2 / pi) times the root of it.

    >>> round(_deviation(np.array([[2.0, 2.0]]), np.array([50.0])), 3)
    0.08
    """
    window = np.clip(rounds, 1.0, _MEMORY)[:, None]
    total = np.sqrt(2 / np.pi * velocity / window).sum() / velocity.sum()
    return float(total)
