"""Differential privacy: the server's noise, and the account of what is left of privacy."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ..core.wire.records import attach, entries, filled, records_of, sent_arrays
from .accountant import gaussian_epsilon
from .layer import Layer
from .roster import Roster

Arrays = dict[str, NDArray[Any]]


def clipped(before: Arrays, after: Arrays, norm: float) -> Arrays:
    """Return the arrays with their change shortened to a norm, if it is longer; floats only count.

    >>> clipped({"w": np.zeros(2)}, {"w": np.array([3.0, 4.0])}, norm=1.0)["w"].round(3).tolist()
    [0.6, 0.8]
    """
    changes = {n: after[n] - before[n] for n in before if before[n].dtype.kind == "f"}
    squares = (float(np.vdot(c, c)) for c in changes.values())
    length = math.sqrt(sum(squares))
    scale = min(1.0, norm / length) if length > 0 else 1.0
    shortened = {n: (before[n] + scale * c).astype(before[n].dtype) for n, c in changes.items()}
    return {name: shortened.get(name, after[name]) for name in after}


class PrivacyLedger(Layer):
    """Count what clients have released and report the epsilon that this amounts to.

    Parameters
    ----------
    inner : Strategy
        Any.
    roster : Roster
        Stable names of the clients.
    multiplier : float
        Noise over sensitivity of one release of one client.
    delta : float (default: 1e-5)
        At which epsilon is reported.
    """

    def __init__(
        self, inner: Strategy, roster: Roster, multiplier: float, delta: float = 1e-5
    ) -> None:
        super().__init__(inner)
        self.roster = roster
        self.multiplier = multiplier
        self.delta = delta
        self.releases: Counter[str] = Counter()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Count a release for everyone asked: a reply that gets lost was released all the same."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.releases.update(self.roster.key(m.metadata.dst_node_id) for m in messages)
        if self.releases:
            most = max(self.releases.values())
            mean = sum(self.releases.values()) / len(self.releases)
            self.journal(
                "privacy",
                round=server_round,
                delta=self.delta,
                **{
                    "epsilon-most": gaussian_epsilon(self.delta, self.multiplier, most),
                    "epsilon-mean": gaussian_epsilon(self.delta, self.multiplier, round(mean)),
                },
            )
        return messages

    def own_state(self) -> dict[str, Any]:
        """Return the releases of each client."""
        return {"releases": dict(self.releases)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self.releases = Counter(state["releases"])


class CentralNoise(Layer):
    """Clip every update, weigh all alike, and add noise to their mean (central privacy).

    What Flower's server-side wrapper does, for a strategy that gets replies one by one and with a
    generator of its own.

    Parameters
    ----------
    inner : Strategy
        Takes the mean of the replies.
    clip : float
        Longest update.
    multiplier : float
        Standard deviation of the noise, over what one client can change in the mean.
    delta : float (default: 1e-5)
        At which epsilon is reported.
    rng : Generator, optional
        Of the noise; unpredictable by default.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        clip: float,
        multiplier: float,
        delta: float = 1e-5,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(inner)
        self.clip = clip
        self.multiplier = multiplier
        self.delta = delta
        self.rng = rng or np.random.default_rng()
        self.releases = 0
        self._sent: dict[int, Arrays] = {}
        self._count = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the models that updates are relative to."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        records = {m.metadata.dst_node_id: sent_arrays(m, ARRAYS) for m in messages}
        self._sent = {node: from_record(record) for node, record in records.items()}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate clipped updates, then add the noise."""
        self._count = 0
        arrays, metrics = super().aggregate_train(server_round, self._clipped(replies))
        if arrays is None:
            return None, metrics
        self.releases += 1
        scale = self.multiplier * self.clip / max(1, self._count)
        noisy = {
            name: array + self.rng.normal(scale=scale, size=array.shape).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in from_record(arrays).items()
        }
        epsilon = gaussian_epsilon(self.delta, self.multiplier, self.releases)
        more = {"epsilon-most": epsilon, "epsilon-mean": epsilon}
        self.journal("privacy", round=server_round, delta=self.delta, **more)
        return to_record(noisy), metrics

    def _clipped(self, replies: Iterable[Message]) -> Iterator[Message]:
        for reply in replies:
            if not reply.has_error():
                before = self._sent[reply.metadata.src_node_id]
                after = from_record(records_of(reply.content, ArrayRecord)[0])
                metrics = dict(entries(records_of(reply.content, MetricRecord)[0]))
                attach(reply, ARRAYS, to_record(clipped(before, after, self.clip)))
                once = filled(MetricRecord, {**metrics, NUM_EXAMPLES: 1})
                attach(reply, METRICS, once)  # type: ignore[arg-type]
                self._count += 1
            yield reply

    def own_state(self) -> dict[str, Any]:
        """Return the number of releases and the generator."""
        return {"releases": self.releases, "rng": self.rng.bit_generator.state}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self.releases = int(state["releases"])
        self.rng.bit_generator.state = state["rng"]
