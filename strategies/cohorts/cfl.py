"""CFL: split a cohort in two when it has converged and its clients have not."""

from collections.abc import Mapping

import numpy as np

from ...core.config import RunConfig
from ...core.methods.cohort import CohortSettings
from ...selectors.cohorts.cfl import Cfl
from .base import CohortSignals, CoreRule, Regrouping, by_key, split_into

_MEAN = 0.5  # a cohort is split when the mean update is shorter than this share of the longest,
_LONGEST = 0.5  # while that is longer than this share of the longest of all rounds,
_ALIKE = 0.35  # unless two clients of different parts have updates with at least this cosine


class CflRule(CoreRule[Cfl]):
    """Sattler's recursive bipartition.

    The paper's two thresholds are lengths, which depend on the model and the learning rate. Here
    the mean update must be shorter than a share of the round's longest (epsilon 1), and the longest
    must exceed a share of the longest of all rounds (epsilon 2): converged clients are not split.
    Lengths cannot distinguish groups from clients with few labels each. A split is therefore also
    refused if clients of different parts are similar (gamma_max in the paper's algorithm). A client
    that was absent when its cohort was split goes to the largest part, and is assigned when it next
    takes part in a split.
    """

    remembers = ("longest",)

    def __init__(self, config: RunConfig) -> None:
        self.longest = 0.0  # of all updates so far
        self.core = Cfl(
            after_round=config[CohortSettings].joint_rounds_of(config.num_server_rounds),
            cross_below=_ALIKE,
        )

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        """Return each client's cohort."""
        return by_key(self.core.members.of(list(placed)))

    def learn(
        self, server_round: int, rounds: Mapping[str, int], seen: Mapping[str, CohortSignals]
    ) -> Regrouping | None:
        """Split every cohort that is due."""
        parts: dict[str, list[str]] = {}
        for leaf, observed in seen.items():
            longest = float(np.linalg.norm(observed.signals, axis=1).max(initial=0.0))
            self.longest = max(self.longest, longest)
            self.core.mean_below = _MEAN * longest
            self.core.max_above = _LONGEST * self.longest
            children = self.core.observe(leaf, observed.keys, observed.signals, rounds[leaf])
            if children:
                parts[leaf] = children
        return split_into(rounds, parts)
