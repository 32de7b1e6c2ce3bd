"""How often clients try another cohort, and what one try says about the others (section 4.3)."""

from cohorts.tree import path_distance


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


def predicted_reward(instant: float, explored: str, other: str) -> float:
    """Return the reward that a cohort not yet tried can be expected to give: ``dR / (d + 1)``.

    The farther away in the tree, the less a bad reward speaks against it: figure 7.

    >>> predicted_reward(-3.0, "0.0.1", "0.0.0"), predicted_reward(-3.0, "0.0.1", "0.1")
    (-1.5, -1.0)
    """
    return instant / (path_distance(explored, other) + 1)
