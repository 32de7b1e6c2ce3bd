"""Differential privacy: the server's noise, and the account of what is left of privacy."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.learning.clipping import clipped, with_noise
from ...core.log.events import PrivacySpent
from ...core.methods.privacy import Dp
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS, NUM_EXAMPLES
from ...core.wire.records import attach, entries, records_of, sent_arrays
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.requests import Requests
from ..aggregation.running_mean import mean_of
from ..federation.accountant import gaussian_epsilon
from .base import Layer


class PrivacyLedger(Layer):
    """Count what clients have released and report the epsilon that this amounts to.

    Parameters
    ----------
    inner : Strategy
        Any.
    multiplier : float
        Noise over sensitivity of one release of one client.
    delta : float (default: 1e-5)
        At which epsilon is reported.
    """

    def __init__(self, inner: Strategy, multiplier: float, delta: float = 1e-5) -> None:
        super().__init__(inner)
        self.multiplier = multiplier
        self.delta = delta
        self.releases: Counter[str] = Counter()

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "PrivacyLedger":
        """Return the ledger of local noise: any two updates of a client are two clips apart."""
        return cls(inner, config[Dp].noise_multiplier / 2, config[Dp].delta)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Count a release for every client asked: a reply that gets lost was still released."""
        messages = super().configure_train(server_round, arrays, config, grid)
        requests = Requests.of(messages)
        if requests is not None:
            self.releases.update(self.federation.keys(requests.nodes))
        if self.releases:
            most = max(self.releases.values())
            mean = sum(self.releases.values()) / len(self.releases)
            self.federation.note(
                PrivacySpent(
                    round=server_round,
                    delta=self.delta,
                    epsilon_most=gaussian_epsilon(self.delta, self.multiplier, most),
                    epsilon_mean=gaussian_epsilon(self.delta, self.multiplier, round(mean)),
                )
            )
        return requests or []

    def own_state(self) -> dict[str, Any]:
        """Return the releases of each client."""
        return {"releases": dict(self.releases)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self.releases = Counter(state["releases"])


class CentralNoise(Layer):
    """Clip every update, weight all equally, and add noise to their mean (central privacy).

    The strategy inside is given the noisy mean as a single reply: whatever it makes of that, by
    momentum, adaptive steps or fine-tuning, releases no more.

    Parameters
    ----------
    inner : Strategy
        Makes a model of the mean.
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

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "CentralNoise":
        """Return the layer that a config describes."""
        dp, rng = config[Dp], np.random.default_rng([config.seed, 5])
        return cls(inner, clip=dp.clip, multiplier=dp.noise_multiplier, delta=dp.delta, rng=rng)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the noisy mean of clipped updates."""
        tables = ReplyStream(tables_in(replies)).through(self._clipped).tables
        mean = mean_of(tables, equal_weights=True)
        if mean is None:
            return None, None
        count = entries(records_of(mean.content, MetricRecord)[0])[NUM_EXAMPLES]
        scale = self.multiplier * self.clip / max(1, count)
        noisy = with_noise(from_record(sent_arrays(mean, ARRAYS)), scale, self.rng)
        attach(mean, ARRAYS, to_record(noisy))
        self.releases += 1
        arrays, metrics = super().aggregate_train(server_round, [mean])
        if arrays is not None:
            epsilon = gaussian_epsilon(self.delta, self.multiplier, self.releases)
            self.federation.note(
                PrivacySpent(
                    round=server_round,
                    delta=self.delta,
                    epsilon_most=epsilon,
                    epsilon_mean=epsilon,
                )
            )
        return arrays, metrics

    def _clipped(self, replies: Replies) -> Replies:
        """Return replies with their updates clipped."""
        stacks = {name: array.copy() for name, array in replies.arrays.items()}
        for row, assignment in enumerate(self.federation.ledger.of(replies)):
            assert assignment is not None  # it was checked
            assert assignment.model is not None
            after = {name: stack[row] for name, stack in stacks.items()}
            for name, array in clipped(from_record(assignment.model), after, self.clip).items():
                stacks[name][row] = array
        replies.put(ARRAYS, stacks)
        return replies

    def own_state(self) -> dict[str, Any]:
        """Return the number of releases and the generator."""
        return {"releases": self.releases, "rng": self.rng.bit_generator.state}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self.releases = int(state["releases"])
        self.rng.bit_generator.state = state["rng"]
