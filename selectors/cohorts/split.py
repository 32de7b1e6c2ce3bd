"""When to split a cohort: heterogeneity, and what a split would gain (Auxo, section 4.4)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, shares
from ..stateful import Stateful
from .heterogeneity import heterogeneity

OF_LEMMA = 0.5  # exponent of the number of parts, as lemma 4.1 says of J; 1 for its square root
WITHIN = 0.15  # of the variance between clients: what distinct groups leave within them


@dataclass(frozen=True)
class Gain:
    """What a split along the clusters of one round would gain."""

    # Mean squared difference to the centre of all, and to the centres of the clusters
    before: float
    after: float
    parts: int  # number of clusters
    smallest_share: float  # share of the participants that the smallest cluster holds


def gain_of(points: ArrayLike, labels: NDArray[np.intp], parts: int) -> Gain:
    """Return what a split of labelled participants would gain; unlabelled ones are left out."""
    labelled = labels >= 0
    count = int(np.count_nonzero(labelled))
    if count == 0:
        return Gain(0.0, 0.0, parts, 0.0)
    before = heterogeneity(points, np.where(labelled, 0, -1)) / count
    after = heterogeneity(points, labels) / count
    sizes = np.bincount(labels[labelled], minlength=parts)
    return Gain(before, after, parts, float(sizes.min() / count))


@dataclass(frozen=True)
class SplitRule:
    """The conditions under which a cohort of which clusters are known is split along them.

    - ``first_round``: of the cohort, before which it is not split; early splits do worse.
    - ``rounds``: rounds in a row in which heterogeneity must fall enough.
    - ``participants``: participants per round that each cohort must keep, when all share equally.
    - ``smallest_share``: of the participants, the least that each cluster must hold: outliers are
      no cohort.
    - ``exponent``: splitting into K parts must bring the mean squared difference down by ``K **
      exponent``. At one, the mean difference falls by sqrt(K) as the lemma asks; one half is laxer.
    - ``alpha``: each cohort must keep more participants than ``alpha * sqrt(|P_0| / J_0 ** 2)``
      (lemma 4.1): of P_0 before the split, whose root mean squared difference is J_0. Rows have
      length one, so that J_0 has no scale.
    """

    first_round: int = 20
    rounds: int = 3
    participants: int = 10
    smallest_share: float = 0.1
    exponent: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        at_least(0, first_round=self.first_round, exponent=self.exponent, alpha=self.alpha)
        at_least(1, rounds=self.rounds, participants=self.participants)
        shares(smallest_share=self.smallest_share)

    def resources(self, gain: Gain, participants: float) -> float:
        """Return the lemma's bound on what each part keeps of the participants before a split.

        >>> SplitRule(alpha=1.5).resources(Gain(0.25, 0.1, parts=2, smallest_share=0.5), 16)
        12.0
        """
        return self.alpha * math.sqrt(participants / gain.before) if gain.before > 0 else 0.0

    def gains(self, gain: Gain) -> bool:
        """Return whether the clusters of one round are worth a split."""
        large = gain.smallest_share >= self.smallest_share
        falls = gain.after * gain.parts**self.exponent <= gain.before
        return gain.parts > 1 and large and falls and gain.before > 0


class SplitWatch(Stateful):
    """Counts for one cohort how many rounds in a row a split would have been worth it.

    >>> watch = SplitWatch(SplitRule(first_round=0, rounds=2))
    >>> good = Gain(before=1.0, after=0.2, parts=2, smallest_share=0.5)
    >>> [watch.due(round, good, participants=20) for round in range(3)]
    [False, True, True]
    """

    remembers = ("streak",)

    def __init__(self, rule: SplitRule) -> None:
        self.rule = rule
        self.streak = 0
        self.reason = ""  # that the last round was not followed by a split

    def due(self, round: int, gain: Gain, participants: float, before: float = 0.0) -> bool:
        """Record a round and return whether to split after it.

        ``participants`` is what each cohort would be left with, of those there were ``before``.
        """
        self.streak = self.streak + 1 if self.rule.gains(gain) else 0
        self.reason = self._against(round, gain, participants, before)
        return not self.reason

    def _against(self, round: int, gain: Gain, participants: float, before: float) -> str:
        rule, least = self.rule, max(self.rule.participants, self.rule.resources(gain, before))
        if round < rule.first_round:
            first = f"after {rule.first_round} rounds at the earliest"
            return f"a cohort splits {first} (auxo.first-split)"
        if gain.parts < 2 or not gain.before:
            return "no clusters were found"
        left, most = gain.after / gain.before, gain.parts**-rule.exponent
        if left > most:
            found = f"{gain.parts} clusters leave {left:.0%} of the heterogeneity"
            return f"{found}, at most {most:.0%} is allowed"
        if gain.smallest_share < rule.smallest_share:
            found = f"the smallest of {gain.parts} clusters has {gain.smallest_share:.0%}"
            return f"{found} of the participants, at least {rule.smallest_share:.0%} is needed"
        if self.streak < rule.rounds:
            return f"clear clusters for {self.streak} of {rule.rounds} rounds in a row"
        if participants < least:
            return (
                f"each part would have {participants:.3g} participants per round, and needs "
                f"{least:.3g}: let more clients train per round"
            )
        return ""
