"""Whether Auxo finds planted groups by either reading of ExploreReward (line 25).

``python -m forager.benchmarks.explore_reward`` prints the table of ``docs/methods/auxo.md``: a
reward speaks for the cohorts that a client has not tried when it explores, or in every round.
"""

import numpy as np
from numpy.typing import NDArray

from ..selectors.cohorts.auxo import Auxo
from .playground import Playground

CASES = ((200, 80, 45), (200, 80, 100), (1000, 50, 100), (1000, 50, 300))
SEEDS = range(3)


def blobs(groups: int, seed: int, points: int = 1000) -> tuple[NDArray[np.float64], ...]:
    """Return points in 32 dimensions and the group of each.

    >>> [each.shape for each in blobs(4, seed=0, points=8)]
    [(8, 32), (8,)]
    """
    from sklearn.datasets import make_blobs  # takes over a second to import

    found: tuple[NDArray[np.float64], ...] = make_blobs(
        points, 32, centers=groups, cluster_std=2.0, random_state=seed
    )
    return found


def agreement(points: int, participants: int, rounds: int, seed: int, every_round: bool) -> float:
    """Return the adjusted Rand index of four groups and the cohorts that clients ask for.

    >>> agreement(40, 20, 2, seed=0, every_round=False)  # one cohort still
    0.0
    """
    places, truth = blobs(4, seed, points)
    ground = Playground(Auxo(seed=seed), places, seed, every_round=every_round)
    ground.play(rounds, participants)
    return ground.score(truth)


def main() -> None:
    """Print the table."""
    print("| clients, per round | rounds | while exploring | in every round |")
    print("|---|---|---|---|")
    for points, participants, rounds in CASES:
        cells = []
        for every_round in (False, True):
            found = [agreement(points, participants, rounds, s, every_round) for s in SEEDS]
            cells.append(" ".join(f"{each:.2f}" for each in found))
        print(f"| {points:,}, {participants} | {rounds} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
