"""Oort: useful and fast clients, and sometimes new ones.

Lai, Zhu, Madhyastha, Chowdhury: *Oort: Efficient Federated Learning via Guided Participant
Selection*, algorithm 1. The statistical utility of a client is ``|B| sqrt(mean(loss^2))`` over its
samples, as of its last training.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import at_least, shares
from .base import Candidates, ClientSelector, Positions, draw, lowest

Floats = NDArray[np.float64]

_BARRED_SHARE = 0.3  # of the candidates, at most, are on the blacklist


class Oort(ClientSelector):
    """Exploits clients of high utility, and explores clients of unknown utility.

    A client of unknown utility (NaN) has not been explored; one of unknown seconds does not count
    as slow.

    - ``exploration``, ``decay``, ``floor``: share of the chosen that is explored: at first, its
      factor per round, and its minimum.
    - ``alpha``: exponent of the penalty of clients slower than the preferred duration.
    - ``clip``: utilities above this quantile count as the quantile.
    - ``cut_off``: clients are drawn from those whose score is at least this share of the lowest
      score among the best ``count``.
    - ``pace``: the preferred duration, as a quantile of the known durations. The pacer raises it by
      ``pacer_step`` after ``pacer_rounds`` rounds without a gain in utility.
    - ``blacklist_after``: a client chosen this often is not chosen again as long as there are
      others; 0 means never.

    >>> seen = {"age": [0, 0, 0, 0], "participated": [1, 1, 1, 0],
    ...         "utility": [9.0, 1.0, 8.0, np.nan], "seconds": [1.0, 1.0, 90.0, np.nan]}
    >>> crowd = Candidates(list("abcd"), {name: np.array(v) for name, v in seen.items()})
    >>> Oort(exploration=0.5).select(crowd, 2, np.random.default_rng(0)).tolist()  # c is slow
    [0, 3]
    """

    remembers = ("_round", "_exploration", "_pace", "_gains", "_times")

    needs = frozenset({"utility", "seconds"})

    def __init__(
        self,
        exploration: float = 0.9,
        decay: float = 0.98,
        floor: float = 0.2,
        alpha: float = 2.0,
        clip: float = 0.95,
        cut_off: float = 0.95,
        pace: float = 0.3,
        pacer_step: float = 0.05,
        pacer_rounds: int = 20,
        blacklist_after: int = 10,
    ) -> None:
        shares(exploration=exploration, decay=decay, floor=floor, clip=clip)
        shares(cut_off=cut_off, pace=pace, pacer_step=pacer_step)
        at_least(0, alpha=alpha, blacklist_after=blacklist_after)
        at_least(1, pacer_rounds=pacer_rounds)
        self.decay, self.floor, self.alpha = decay, floor, alpha
        self.clip, self.cut_off = clip, cut_off
        self.pacer_step, self.pacer_rounds = pacer_step, pacer_rounds
        self.blacklist_after = blacklist_after
        self._exploration, self._pace = exploration, pace
        self._round = 0
        self._gains: list[float] = []  # utility of the participants, of the last rounds
        self._times: dict[str, int] = {}  # how often each was chosen, the latest last

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return positions: exploited and explored clients; if too few, also blacklisted ones."""
        self._round += 1
        self._pacer(candidates)
        count = min(count, len(candidates))
        scores, barred = self._scores(candidates), self._barred(candidates)
        known = np.flatnonzero(np.isfinite(scores) & ~barred)
        new = np.flatnonzero(~np.isfinite(scores) & ~barred)
        to_explore = min(math.ceil(count * self._exploration - 1e-9), new.size)
        to_exploit = min(count - to_explore, known.size)
        exploited = known[self._exploit(scores[known], to_exploit, rng)]
        explored = rng.choice(new, size=min(count - exploited.size, new.size), replace=False)
        chosen = np.concatenate([exploited, explored]).astype(np.intp)
        times = np.where(barred, self._chosen_so_often(candidates), np.nan)
        chosen = np.concatenate([chosen, lowest(times, count - chosen.size, rng)])
        self._remember(candidates, chosen)
        return chosen

    def _scores(self, candidates: Candidates) -> Floats:
        """Return clipped utility plus staleness bonus, times the penalty of the slow."""
        utility = _known(candidates.observed("utility"))
        seconds = _known(candidates.observed("seconds"))
        explored = np.isfinite(utility)
        if not explored.any():
            return utility
        low, cap = np.min(utility[explored]), np.quantile(utility[explored], self.clip)
        statistical = (np.minimum(utility, cap) - low) / ((cap - low) or 1.0)
        last = np.maximum(self._round - 1 - candidates.observed("age"), 1)
        scores: Floats = statistical + np.sqrt(0.1 * np.log(self._round) / last)
        timed = seconds[np.isfinite(seconds)]
        preferred = np.quantile(timed, self._pace) if timed.size else np.inf
        slow = seconds > preferred
        scores[slow] *= (preferred / seconds[slow]) ** self.alpha
        return scores

    def _exploit(self, scores: Floats, count: int, rng: np.random.Generator) -> Positions:
        """Return a draw, by score, among those close to the ``count`` best or better."""
        if count == 0:
            return np.empty(0, dtype=np.intp)
        worst = scores[lowest(-scores, count)[-1]]
        pool = np.flatnonzero(scores >= self.cut_off * worst)
        return pool[draw(scores[pool], count, rng)]

    def _pacer(self, candidates: Candidates) -> None:
        """Accept slower clients if the last rounds gained less utility than those before."""
        trained = np.asarray(candidates.observed("participated"), dtype=np.bool_)
        just_trained = trained & (candidates.observed("age") == 0)
        utility = _known(candidates.observed("utility"))[just_trained]
        width = self.pacer_rounds
        self._gains = [*self._gains, float(np.nansum(utility))][-2 * width :]
        full = len(self._gains) == 2 * width and self._round % width == 0
        if full and sum(self._gains[:width]) > sum(self._gains[width:]):
            self._pace = min(1.0, self._pace + self.pacer_step)

    def _chosen_so_often(self, candidates: Candidates) -> NDArray[np.int64]:
        return np.array([self._times.get(key, 0) for key in candidates.keys], dtype=np.int64)

    def _barred(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return who is on the blacklist: those chosen most often, but never too many."""
        barred = np.zeros(len(candidates), dtype=np.bool_)
        if self.blacklist_after:
            times = self._chosen_so_often(candidates)
            worst = lowest(-times, int(_BARRED_SHARE * len(candidates)))
            barred[worst] = times[worst] >= self.blacklist_after
        return barred

    def _remember(self, candidates: Candidates, chosen: Positions) -> None:
        """Count, decay, and forget those that were chosen longest ago if there are too many."""
        for key in [candidates.keys[i] for i in chosen]:
            self._times[key] = self._times.pop(key, 0) + 1
        surplus = max(0, len(self._times) - 4 * len(candidates))
        self._times = dict(list(self._times.items())[surplus:])
        self._exploration = max(self.floor, self._exploration * self.decay)


def _known(values: NDArray[Any]) -> Floats:
    """Return an observation with NaN for all that is not a usable number."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(numbers) & (numbers >= 0), numbers, np.nan)
