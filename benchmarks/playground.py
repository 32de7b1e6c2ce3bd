"""Auxo without messages: each client has one point, and its update points from the model to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from ..selectors.cohorts.affinity import Affinity
from ..selectors.cohorts.auxo import Auxo, AuxoObserved
from ..selectors.cohorts.matching import equal_shares

Lie = Callable[[Auxo], Affinity]


@dataclass
class Playground:
    """A federation of points, played round by round."""

    auxo: Auxo
    points: NDArray[np.float64]
    seed: int = 0
    liars: dict[str, Lie] = field(default_factory=dict)
    loss: float = 0.0  # share of the clients that have lost their records
    every_round: bool = False  # see Affinity.learn

    def __post_init__(self) -> None:
        self.keys = [str(i) for i in range(len(self.points))]
        self.records = {key: Affinity() for key in self.keys}
        self.models = {"0": np.zeros(self.points.shape[1])}
        self.rng = np.random.default_rng(self.seed)
        self.splits: list[tuple[int, str, int]] = []
        self.barred: list[str] = []

    def play(self, rounds: int, participants: int) -> None:
        """Share the participants of each round out among the leaves that there are."""
        for number in range(rounds):
            groups, leaves = self.match(), self.auxo.leaves()
            shares = equal_shares(participants, len(leaves), number)
            for leaf, share in zip(leaves, shares, strict=True):
                who = self.rng.permutation(groups[leaf])[:share].tolist()
                if who:
                    self.train(number, leaf, who)

    def train(self, number: int, leaf: str, who: Sequence[str]) -> AuxoObserved:
        """Play one round of one leaf."""
        updates = self.points[[int(key) for key in who]] - self.models[leaf]
        seen = self.auxo.observe(leaf, who, updates, [self.request(key) for key in who])
        self.models[leaf] = self.models[leaf] + updates.mean(axis=0)
        self.barred += seen.barred
        if seen.children:
            self.splits.append((number, leaf, len(seen.children)))
            self.models |= dict.fromkeys(seen.children, self.models[leaf])
        return seen

    def match(self) -> dict[str, list[str]]:
        """Ask all clients for their requests; some have lost their records meanwhile."""
        for key in self.keys:
            feedback = self.auxo.feedback_for(key)
            self.records[key].learn(feedback, self.auxo.tree, every_round=self.every_round)
            if self.rng.random() < self.loss:
                self.records[key] = Affinity(serial=self.records[key].serial)
        return self.auxo.match(self.keys, [self.request(key) for key in self.keys])

    def request(self, key: str) -> Affinity:
        """Return what a client says of itself."""
        return self.liars[key](self.auxo) if key in self.liars else self.records[key]

    def score(self, truth: NDArray[Any], among: Sequence[str] | None = None) -> float:
        """Return how well the cohorts agree with the truth, corrected for chance."""
        self.match()
        found = {
            key: leaf
            for leaf, members in self.auxo.members(self.keys if among is None else among).items()
            for key in members
        }
        return float(adjusted_rand_score([truth[int(key)] for key in found], list(found.values())))
