"""Differential privacy: the server's noise, and the account of epsilon."""

import itertools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import ConfigError, RunConfig
from ...core.entropy import protective
from ...core.learning.clipping import clipped, with_noise
from ...core.log.events import PrivacySpent
from ...core.methods.catalogue import chosen
from ...core.methods.privacy import Dp
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS, NUM_EXAMPLES
from ...core.wire.records import attach, entries, records_of, sent_arrays
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.requests import Requests
from ..aggregation.running_mean import mean_of
from ..federation.accountant import gaussian_epsilon, releases_within
from ..federation.grids import GridView
from .base import Layer, Outcome, RunOver

_EVERYONE = ("",)  # whom a noisy mean is charged to


class PrivacyLedger(Layer):
    """Count what clients have released, and report its epsilon.

    Epsilon holds for replacing all updates of one client by any others; the participants are
    public. Two updates are up to 2 C apart for a clip C, and two means of n updates up to 2 C / n,
    so half of the noise multiplier counts. The same epsilon holds for adding or removing a client
    if n is public. The multiplier is the standard deviation of the noise, divided by the clip;
    epsilon is reported at ``delta``. If a mean is released (``central``), every round counts for
    every client, whoever took part. A client whose next release would exceed the ``budget`` is not
    asked again; when no client is left, the run ends.
    """

    def __init__(
        self,
        inner: Strategy,
        multiplier: float,
        delta: float = 1e-5,
        *,
        central: bool = False,
        budget: float = 0.0,
    ) -> None:
        super().__init__(inner)
        self.multiplier = multiplier / 2
        self.delta = delta
        self.central = self.federation.discreet = central
        self.budget = budget
        self.most = releases_within(budget, delta, self.multiplier) if budget else math.inf
        if not self.most:
            least = gaussian_epsilon(delta, self.multiplier)
            raise ConfigError(
                f"dp.budget = {budget}: a single round spends {least:.4g} at dp.delta = {delta:g}; "
                "raise it, or dp.noise-multiplier"
            )

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "PrivacyLedger":
        """Return the ledger that a config describes."""
        dp, central = config[Dp], config.privacy == "central-dp"
        more = [] if central else [m.noise_multipliers(config) for m in chosen(config.axes())]
        multiplier = together([dp.noise_multiplier, *itertools.chain(*more)])
        return cls(inner, multiplier, dp.delta, central=central, budget=dp.budget)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Count a release for every client asked: a reply that gets lost was still released."""
        releases = self.federation.releases
        view = self._within_budget(grid, releases.counts)
        requests = Requests.of(super().configure_train(server_round, arrays, config, view))
        if self.central and (requests is not None or self.federation.busy):
            releases.charge(server_round, _EVERYONE)
        elif requests is not None:
            releases.charge(server_round, self.federation.keys(requests.nodes))
        if releases.most:
            self.federation.note(
                PrivacySpent(
                    round=server_round,
                    delta=self.delta,
                    epsilon_most=gaussian_epsilon(self.delta, self.multiplier, releases.most),
                    epsilon_mean=gaussian_epsilon(
                        self.delta, self.multiplier, round(releases.mean)
                    ),
                    budget=self.budget or None,
                    used_up=sum(count >= self.most for count in releases.counts.values()),
                )
            )
        return requests or []

    def _within_budget(self, grid: Grid, counts: Mapping[str, int]) -> Grid:
        used_up = {key for key, count in counts.items() if count >= self.most}
        if not used_up:
            return grid
        self.federation.nodes(grid)  # new ones are asked for their names
        here, busy = self.federation.in_view(grid), self.federation.busy
        left = [n for n in here if n in busy or self.federation.key(n) not in used_up]
        left = [] if self.central else left
        if len(here) and not left:
            spent = gaussian_epsilon(self.delta, self.multiplier, max(counts.values()))
            raise RunOver(
                f"dp.budget = {self.budget:g} is used up: {spent:.4g} is spent at delta "
                f"{self.delta:g}, and another round would exceed it for every connected client"
            )
        return GridView(grid, left)

    def own_state(self) -> dict[str, Any]:
        """Return the releases of each client."""
        return {"releases": dict(self.federation.releases.counts)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`own_state` returned; what was released since stays released."""
        self.federation.releases.at_least(state["releases"])


def together(multipliers: Sequence[float]) -> float:
    """Return the noise multiplier equivalent to several releases in one round."""
    return sum(z**-2 for z in multipliers) ** -0.5 if all(multipliers) else 0.0


class CentralNoise(Layer):
    """Clip every update, weight all equally, and add noise to their mean (central privacy).

    The strategy inside gets the noisy mean as a single reply: momentum, adaptive steps or
    fine-tuning on it release no more. Metrics, which carry no noise, are left out. Updates are at
    most as long as the clip; the multiplier is the standard deviation of the noise, divided by the
    share of the clip in the mean. ``seed`` is used in simulation; elsewhere the noise is
    unpredictable.
    """

    def __init__(self, inner: Strategy, *, clip: float, multiplier: float, seed: int = 0) -> None:
        super().__init__(inner)
        self.clip = clip
        self.multiplier = multiplier
        self.seed = seed

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "CentralNoise":
        """Return the layer that a config describes."""
        dp = config[Dp]
        return cls(inner, clip=dp.clip, multiplier=dp.noise_multiplier, seed=config.seed)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate the noisy mean of clipped updates."""
        tables = ReplyStream(tables_in(replies)).through(self._clipped).tables
        mean = mean_of(tables, equal_weights=True)
        if mean is None:
            return None, None
        count = entries(records_of(mean.content, MetricRecord)[0])[NUM_EXAMPLES]
        scale = self.multiplier * self.clip / max(1, count)
        own = zlib.crc32((self.federation.cohort or "").encode())  # cohorts share no noise
        rng = protective(self.federation.simulated, self.seed, 5, server_round, own)
        noisy = with_noise(from_record(sent_arrays(mean, ARRAYS)), scale, rng)
        attach(mean, ARRAYS, to_record(noisy))
        return super().aggregate_train(server_round, [mean])

    def _clipped(self, replies: Replies) -> Replies:
        stacks = {name: array.copy() for name, array in replies.arrays.items()}
        for row, assignment in enumerate(self.federation.ledger.of(replies)):
            assert assignment is not None  # it was checked
            assert assignment.model is not None
            after = {name: stack[row] for name, stack in stacks.items()}
            for name, array in clipped(from_record(assignment.model), after, self.clip).items():
                stacks[name][row] = array
        replies.put(ARRAYS, stacks)
        for name in replies.metrics.keys() - {NUM_EXAMPLES}:
            replies.take_metric(name)
        return replies
