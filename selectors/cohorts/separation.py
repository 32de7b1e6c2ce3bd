"""A test of whether the clients of a cohort fall into groups, or merely differ from each other.

Clients always differ, because each has its own data. Groups also leave gaps along the few
directions in which clients differ most. The test projects clients on the ``K - 1`` main directions
of their differences, clusters them into K, and compares the share of variance within the clusters
with two limits: a fixed one, and the share found in random clients without groups, which are drawn
from a normal distribution of the same variance along every direction (as in SigClust: Liu, Hayes,
Nobel, Marron: *Statistical Significance of Clustering for High-Dimension, Low-Sample Size Data*).
Variances are those between clients, without the noise within them.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .evidence import Differences
from .many_kmeans import many_kmeans

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

FEWEST = 6  # clients: among fewer, chance makes gaps as clear as any
_ALIKE = 0.01  # shares within groups below this are equally small
_MARGIN = 0.5  # of what chance leaves within groups: cohorts are looked at in many rounds
_MOST_DRAWS, _FEWEST_DRAWS = 99, 19  # of clients without groups; fewer of many clients
_POINTS_DRAWN = 20_000
_ROUNDING = 1e-13  # of a squared length, relative to the largest


@dataclass(frozen=True)
class Separation:
    """How clearly clients fall into groups."""

    labels: Labels  # the group of each client
    parts: int  # how many groups; 1 if there are too few clients to see
    # Share of the variance between clients, along the main directions, within the groups
    within: float
    # The smallest such share among draws without groups; not a number if it was not needed
    chance: float
    smallest: int  # clients in the smallest group
    rivalled: bool = False  # whether another number of groups is almost as clear

    def clear(self, limit: float) -> bool:
        """Return whether there are groups."""
        # Where noise leaves next to nothing to compare, nothing within groups means nothing.
        within = max(self.within, _ALIKE)
        return self.parts > 1 and within <= limit and within < _MARGIN * self.chance

    @property
    def drowned(self) -> bool:
        """Whether noise leaves so little that not even equal clients would count as a group."""
        return self.chance * _MARGIN <= _ALIKE

    def very_clear(self, limit: float) -> bool:
        """Return whether twice as much could be within the groups, and their number is sure."""
        twice = 2 * max(self.within, _ALIKE) < _MARGIN * self.chance
        return self.clear(limit) and twice and not self.rivalled


def separation(found: Differences, most: int, limit: float = 0.15, seed: int = 0) -> Separation:
    """Return the groups, ``most`` at most, that separate clients most clearly.

    The best number is that which leaves the smallest share within the groups, compared with what
    chance leaves. Every group has two clients or more.

    >>> from .evidence import Evidence
    >>> evidence, rng = Evidence(), np.random.default_rng(0)
    >>> for _ in range(3):
    ...     noise = 0.2 * rng.normal(size=(12, 5))
    ...     evidence.add([str(i) for i in range(12)], np.eye(5)[np.arange(12) % 3] + noise)
    >>> groups = separation(evidence.differences(), most=4)
    >>> groups.labels.tolist(), groups.clear(0.15)
    ([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2], True)
    """
    count = len(found.keys)
    none = Separation(np.zeros(count, dtype=np.intp), 1, 1.0, np.nan, count)
    if count < FEWEST:
        return none
    lengths, directions = _main_directions(found.means, 3 * most)
    most = min(most, count // 2, len(lengths) + 1)
    if most < 2:  # all do the same
        return none
    positions = found.means @ directions[:, : most - 1]
    numbers = range(2, most + 1)
    noise = np.cumsum(found.noise_along(directions[:, : most - 1]))[:, None] / found.counts
    scores = positions * np.tri(most - 1)[:, None, :]  # K - 1 directions for K groups
    clusters = many_kmeans(scores, numbers, np.random.default_rng(seed))
    shares = shares_within(scores, clusters, noise).tolist()
    best, costs = none, [np.inf]
    for parts, labels, within in zip(numbers, clusters, shares, strict=True):
        smallest = int(np.bincount(labels, minlength=parts).min())
        if smallest < 2:
            continue
        chance = by_chance(lengths, parts, noise[parts - 2], seed) if within <= limit else np.nan
        this = Separation(labels, parts, within, chance, smallest)
        # Clear groups before others; then by how much less is within them than chance leaves.
        cost = max(within, _ALIKE) / max(chance, _ALIKE) if this.clear(limit) else 1 + within
        if cost < min(costs):
            best = this
        costs.append(cost)
    first, second = sorted([*costs, np.inf])[:2]
    return replace(best, rivalled=second < 2 * first)


def _main_directions(means: Floats, most: int) -> tuple[Floats, Floats]:
    """Return the lengths of the differences along their main directions, and these as columns.

    From the products of all pairs of clients or of coordinates, whichever are fewer: a singular
    value decomposition takes several times as long.
    """
    few = len(means) < means.shape[1]
    products = means @ means.T if few else means.T @ means
    last = len(products) - 1
    squares, axes = eigh(products, subset_by_index=[max(0, last - most + 1), last])
    squares, axes = squares[::-1], axes[:, ::-1]
    kept = squares > (_ROUNDING * max(squares[0], 1e-300))
    lengths = np.sqrt(squares[kept])
    return lengths, means.T @ axes[:, kept] / lengths if few else axes[:, kept]


def shares_within(sets: Floats, labels: Labels, noise: Floats) -> Floats:
    """Return the share of the variance between clients that is within groups, at most 1.

    One of each set. Per degree of freedom, without the noise's part. 1 where noise explains all.

    >>> sets, labels = np.array([[[-1.0], [-3.0], [1.0], [3.0]]] * 2), np.array([[0, 0, 1, 1]] * 2)
    >>> shares_within(sets, labels, np.array([[0.0] * 4, [1.0] * 4])).round(3).tolist()
    [0.3, 0.176]
    """
    count = labels.shape[1]
    member = (labels[:, None, :] == np.arange(labels.max() + 1)[:, None]).astype(np.float64)
    sizes = member.sum(axis=2)
    centres = member @ sets / np.maximum(sizes, 1)[..., None]
    own = np.take_along_axis(centres, labels[..., None], axis=1)
    degrees = 1 - 1 / np.take_along_axis(sizes, labels, axis=1)  # that a client adds to its group's
    inside = np.sum((sets - own) ** 2, axis=(1, 2)) - np.sum(noise * degrees, axis=1)
    apart = np.sum((sets - sets.mean(axis=1, keepdims=True)) ** 2, axis=(1, 2))
    total = apart - noise.sum(axis=-1) * (count - 1) / count
    share = inside / (count - np.count_nonzero(sizes, axis=1)) * (count - 1)
    known = total > 0
    return np.where(known, np.clip(share / np.where(known, total, 1), 0, 1), 1.0)


def by_chance(lengths: Floats, parts: int, noise: Floats, seed: int = 0) -> float:
    """Return the smallest share within groups that is found among clients without groups.

    - ``lengths``: of the clients' differences along their main directions (singular values).
    - ``parts``: number of clusters to look for.
    - ``noise``: variance of each client's mean along the first ``parts - 1`` directions.
    """
    rng, count = np.random.default_rng([seed, parts]), len(noise)
    draws = int(np.clip(_POINTS_DRAWN / count, _FEWEST_DRAWS, _MOST_DRAWS))
    spread = lengths[: 3 * parts] / np.sqrt(count - 1)
    drawn = rng.standard_normal((draws, count, len(spread))) * spread
    drawn -= drawn.mean(axis=1, keepdims=True)
    axes = np.linalg.eigh(drawn.transpose(0, 2, 1) @ drawn)[1]
    scores = drawn @ axes[:, :, :-parts:-1]  # along the main directions, the longest first
    labels = many_kmeans(scores, [parts] * draws, rng)
    return float(shares_within(scores, labels, noise[None]).min())
