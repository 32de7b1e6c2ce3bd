"""Usual values: the median of the claims of all clients, and limits that follow from it.

This class is behind every learned limit: samples, norms, losses, utilities, velocities, estimates,
changes of control variates. No client can set such a limit alone, however early or often it sends
claims: its last claim counts once, accepted or not. Zeros and values that are not finite do not
count.

Sizes of honest clients may differ much: with one step per round, near convergence, a client's
updates are ten times as long in one round as in another. A limit therefore also leaves room for the
spread of recent claims, estimated by medians, which a minority cannot move far.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_CLIENTS = 100  # whose last claims define the usual value; more if a table has more
_ENOUGH = 5  # claims of earlier rounds that define it without those of the round
_HEARD = 5  # claims of each client from which the spread is estimated
_SPREADS = 5.0  # standard deviations of their logarithms that are no outlier
_WIDEST = 3.0  # times the factor that the spread may raise it to


class UsualSize:
    """Learns the claims of clients, and limits further claims.

    The usual value of earlier rounds decides, whatever the order of replies in a round. Only if too
    few claims are known, those of the round itself decide: then all of them should be heard before
    any is judged. The limit is ``factor`` times the usual value, or up to three times as much if
    claims differ much. With fewer claims than ``fewest`` there is no usual value: of two clients,
    there is no way to know which one lies.
    """

    def __init__(self, factor: float, fewest: int = 3) -> None:
        self.factor = factor
        self.fewest = fewest
        # The last claims of each client, the newest first; the client heard last at the end
        self._claims: dict[str, list[float]] = {}
        self._settled = 0.0
        self._before: list[list[float]] = []  # the claims that settled it

    @property
    def settled(self) -> bool:
        """Whether what is usual in this round was known before it."""
        return self._settled > 0

    @property
    def median(self) -> float:
        """The usual size; 0 if too little is known."""
        return self._settled or self._median(self.fewest)

    def settle(self) -> None:
        """Begin a round: what clients have claimed so far says what is usual in it."""
        self._settled = self._median(_ENOUGH)
        self._before = list(self._claims.values())

    def hear(self, clients: Iterable[str], sizes: Iterable[float]) -> None:
        """Take the claims of clients, right or wrong."""
        told = {key: size for key, size in zip(clients, sizes, strict=True) if 0 < size < math.inf}
        for key, size in told.items():
            self._claims[key] = [size, *self._claims.pop(key, ())][:_HEARD]
        for key in list(self._claims)[: max(0, len(self._claims) - max(_CLIENTS, len(told)))]:
            del self._claims[key]

    def most(self, otherwise: float) -> float:
        """Return the largest size that is not absurd; ``otherwise`` if too little is known."""
        claims = self._before if self.settled else list(self._claims.values())
        if not self.median or len(claims) < self.fewest:
            return self.factor * self.median or float(otherwise)
        # All clients have as many entries: of who was heard seldom, each stands there again
        logs = np.log([(own * _HEARD)[:_HEARD] for own in claims])
        usual = float(np.median(logs))
        spread = 1.4826 * float(np.median(np.abs(logs - usual)))
        stands_out = math.exp(min(_SPREADS * spread, 100.0))
        reach = min(max(self.factor, stands_out), _WIDEST * self.factor)
        # Where claims differ much, so does the median of the last ones from round to round
        return reach * (self.median if reach == self.factor else max(self.median, math.exp(usual)))

    def exceeded(self, sizes: Iterable[float]) -> bool:
        """Return whether any size may be absurd: most often none is near it."""
        return not max(sizes, default=0.0) <= self.factor * self.median

    def _median(self, fewest: int) -> float:
        known = len(self._claims) >= fewest
        return float(np.median([own[0] for own in self._claims.values()])) if known else 0.0

    def state_dict(self) -> dict[str, list[float]]:
        """Return the state as a tree."""
        return dict(self._claims)

    def load_state_dict(self, claims: Any) -> None:
        """Restore what :meth:`state_dict` returned, or the one claim an older version kept."""
        known = claims.items() if isinstance(claims, Mapping) else ()
        self._claims = {key: list(own) if isinstance(own, list) else [own] for key, own in known}
        self._settled = 0.0
