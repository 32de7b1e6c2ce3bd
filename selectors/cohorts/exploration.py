"""How often clients try another cohort, and what one try says about the others (section 4.3)."""


def exploration_rate(round: int, initial: float = 0.3, decay: float = 0.99) -> float:
    """Return the probability of a random cohort, ``initial * decay ** round``.

    The round is that of the cohort. (Line 29 of algorithm 1, taken literally, would explore ever
    more; the text says less.)

    >>> exploration_rate(0), round(exploration_rate(100), 4)
    (0.3, 0.1098)
    """
    if round < 0:
        raise ValueError(f"round: expected 0 or more, got {round}")
    for name, value in {"initial": initial, "decay": decay}.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}: expected a share from 0 to 1, got {value!r}")
    return initial * decay**round


def predicted(before: float, instant: float, distance: int) -> float:
    """Return the reward of a cohort that a client has not tried, after it tried another.

    ``R + dR / (d + 1)`` (ExploreReward, line 25): the farther away in the tree, the less it says.

    - ``before``: what was expected of it so far, R.
    - ``instant``: reward that the cohort gave which was tried, dR.
    - ``distance``: :meth:`forager.selectors.cohorts.tree.CohortTree.distance` of the two.

    Figure 7:

    >>> predicted(0.0, -3.0, distance=1), predicted(0.0, -3.0, distance=2)
    (-1.5, -1.0)
    """
    return before + instant / (distance + 1)
