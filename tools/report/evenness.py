"""How evenly clients take part."""

from statistics import median


def jain_index(values: list[int]) -> float | None:
    r"""Return how even values are, :math:`(\sum x)^2 / (n \sum x^2)`: 1 when all are equal.

    Examples
    --------
    >>> jain_index([3, 3, 3]), jain_index([4, 0, 0, 0]), jain_index([])
    (1.0, 0.25, None)
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def spread(values: list[int]) -> tuple[int, float, int]:
    """Return least, median and most of some values."""
    return min(values), median(values), max(values)
