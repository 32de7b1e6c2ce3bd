"""CFL: split a cohort in two when its clients disagree near a common optimum."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cohorts.cfl import CflRule, bipartition
from cohorts.projection import unit_rows
from cohorts.tree import CohortTree
from server_app.config import RunConfig
from strategies.cohort_rules.base import CohortRule, Observed, Regrouping, Scene


class CflCohorts(CohortRule):
    """Sattler's recursive bipartition.

    The original has every client take part in every round. Here a client that was absent when its
    cohort was split is sorted by the last update it sent; one that never sent any goes to the first
    part, and is sorted once it has.
    """

    def __init__(self, config: RunConfig) -> None:
        self.rule = CflRule(config.cohort.mean_norm, config.cohort.first_split)
        self.tree = CohortTree()
        self.places: dict[str, str] = {}
        self.last: dict[str, NDArray[np.float32]] = {}

    def place(self, scene: Scene) -> list[str]:
        """Return each client's cohort, the first leaf below its last known one."""
        return [
            self.tree.below(self.tree.nearest(self.places.get(key, "0")))[0] for key in scene.keys
        ]

    def learn(
        self, server_round: int, rounds: Mapping[str, int], seen: Mapping[str, Observed]
    ) -> Regrouping | None:
        """Split every cohort that is due."""
        regrouping = {leaf: {leaf: 1.0} for leaf in rounds}
        for leaf, observed in seen.items():
            for key, signal in zip(observed.keys, observed.signals, strict=True):
                self.places.setdefault(key, leaf)
                self.last[key] = signal
            if self.rule.due(rounds[leaf], observed.norms, observed.mean_norm):
                del regrouping[leaf]
                regrouping |= {child: {leaf: 1.0} for child in self._split(leaf, observed)}
        return regrouping if regrouping.keys() != rounds.keys() else None

    def _split(self, leaf: str, observed: Observed) -> list[str]:
        sides = bipartition(observed.signals)
        children = self.tree.split(leaf, 2)
        points = unit_rows(observed.signals)
        centres = np.array([points[sides == side].mean(axis=0) for side in (0, 1)])
        for key, place in self.places.items():
            if place == leaf and key in self.last:
                own = unit_rows([self.last[key]])[0]
                self.places[key] = children[int(np.argmax(centres @ own))]
        for key, side in zip(observed.keys, sides.tolist(), strict=True):
            self.places[key] = children[side]
        return children

    def state_dict(self) -> dict[str, Any]:
        """Return the tree, where clients are and what they sent last."""
        return {"tree": self.tree.state_dict(), "places": self.places, "last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.tree.load_state_dict(state["tree"])
        self.places, self.last = dict(state["places"]), dict(state["last"])
