"""Whose data changed between rounds: the direction of a client's update turns.

As long as a client's data stay the same, the difference between its update and the mean of the
round points in much the same direction in every round. If the data change, directions before and
after differ, while those before resemble one another, as do those after.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..cohorts.projection import unit_rows

_TURNED = 0.7  # mean cosine within the rounds before and those after, less that across
_FEWEST = 2  # rounds on either side


def turned(rounds: Mapping[int, tuple[Sequence[str], ArrayLike]]) -> dict[str, int]:
    """Return the clients whose updates turned, and the first round after it.

    ``rounds`` holds the clients of each round and their updates, one row each.

    >>> rng, kinds, seen = np.random.default_rng(0), np.eye(8), {}
    >>> for t in range(1, 9):
    ...     which = [0, 1, 2, 3, 4, 5, 6 if t < 5 else 7]  # g changes in round 5
    ...     seen[t] = (list("abcdefg"), kinds[which] + 0.05 * rng.normal(size=(7, 8)))
    >>> turned(seen)
    {'g': 5}
    """
    own: dict[str, list[tuple[int, NDArray[np.float64]]]] = {}
    for number, (clients, updates) in sorted(rounds.items()):
        rows = unit_rows(updates)
        for client, row in zip(clients, unit_rows(rows - rows.mean(axis=0)), strict=True):
            own.setdefault(client, []).append((number, row))
    found = {}
    for client, seen in own.items():
        rows = np.array([row for _, row in seen])
        cosines, places = rows @ rows.T, np.arange(len(rows))
        sizes = [0.0] * len(rows)
        for first in range(_FEWEST, len(rows) - _FEWEST + 1):
            after = places >= first
            same = np.triu(after[:, None] == after, 1)
            sizes[first] = cosines[same].mean() - cosines[~after[:, None] & after].mean()
        if max(sizes) > _TURNED:
            found[client] = seen[int(np.argmax(sizes))][0]
    return found
