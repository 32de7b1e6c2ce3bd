"""When a cohort is split (Auxo, section 4.4 and lemma 4.1)."""

import math
from dataclasses import dataclass
from typing import Any

from .heterogeneity import Gain


@dataclass(frozen=True)
class SplitRule:
    """The conditions under which a cohort of which clusters are known is split along them.

    - ``first_round``, ``last_round``: rounds of the cohort before and after which it is not split;
      the paper found that early and late splits do worse. No last one if 0.
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
    last_round: int = 0
    rounds: int = 3
    participants: int = 10
    smallest_share: float = 0.1
    exponent: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        least = {"first_round": 0, "last_round": 0, "rounds": 1, "participants": 1}
        least |= {"exponent": 0, "alpha": 0}
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name}: expected {bound} or more, got {getattr(self, name)!r}")
        if not 0 <= self.smallest_share <= 1:
            raise ValueError(f"smallest_share: expected 0 to 1, got {self.smallest_share!r}")
        if 0 < self.last_round < self.first_round:
            raise ValueError(f"last_round: expected {self.first_round} or more, or 0 for none")

    def allows(self, round: int, participants: float) -> bool:
        """Return whether a cohort may be split now and leave its parts enough participants."""
        in_time = self.first_round <= round and not 0 < self.last_round < round
        return in_time and participants >= self.participants

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


class SplitWatch:
    """Counts for one cohort how many rounds in a row a split would have been worth it.

    >>> watch = SplitWatch(SplitRule(first_round=0, rounds=2))
    >>> good = Gain(before=1.0, after=0.2, parts=2, smallest_share=0.5)
    >>> [watch.due(round, good, participants=20) for round in range(3)]
    [False, True, True]
    """

    def __init__(self, rule: SplitRule) -> None:
        self.rule = rule
        self.streak = 0

    def due(self, round: int, gain: Gain, participants: float, before: float = 0.0) -> bool:
        """Record a round and return whether to split after it.

        ``participants`` is what each cohort would be left with, of those there were ``before``.
        """
        self.streak = self.streak + 1 if self.rule.gains(gain) else 0
        enough = participants >= self.rule.resources(gain, before)
        return enough and self.streak >= self.rule.rounds and self.rule.allows(round, participants)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of rounds in a row."""
        return {"streak": self.streak}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.streak = int(state["streak"])
