"""Streams: who stores samples of which label, and the estimate of the global gradient (ODE).

Gong et al.: *To Store or Not? Online Data Selection for Federated Learning with Limited Storage*,
section 3.4. The algorithms are in ``stream_selectors``; this layer exchanges what they need.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.sample_values import valuation
from ...core.log.events import Guided, StoragePlanned, StreamsStored
from ...core.methods.ode import OdeSettings, ode_method
from ...core.tasks import load_task
from ...core.wire.arrays import record_bytes, to_record
from ...core.wire.keys import ARRAYS, ESTIMATE, INGEST, PLAN
from ...core.wire.records import filled
from ...core.wire.replies import Replies, Row
from ...core.wire.requests import Requests
from ...core.wire.schemas import BadReply, StreamTold
from ...selectors.stream_selectors.ode import GlobalGradient
from ...selectors.stream_selectors.storage_plan import StoragePlan
from ..federation.plausibility import UsualSize
from ..federation.stream_profiles import StreamProfiles
from .base import Layer, Outcome

_ABSURD = 1e9  # the norm of a gradient, until some are known
_MOST_DRAWN = 100  # clients whose part of a plan is logged
_FACTOR = 100.0  # how many times the usual norm of an estimate is absurd


@dataclass(frozen=True)
class _Heard:
    """What a client reports about its stream; unrequested fields are empty."""

    profile: dict[str, Any] | None
    estimate: NDArray[np.float32] | None

    @property
    def speed(self) -> float:
        """Samples of all labels per round."""
        return float(sum(self.profile["velocity"])) if self.profile else 0.0

    @property
    def size(self) -> float:
        """Norm of the estimate."""
        none = self.estimate is None
        return 0.0 if none else float(np.linalg.norm(np.asarray(self.estimate, np.float64)))


class Streams(Layer):
    """Coordinate which samples of their streams clients store.

    This layer stands outside client selection, because clients collect while others train. It asks
    new clients for their profile (:class:`StreamProfiles`), and makes a new plan
    (:class:`StoragePlan`) if clients join or leave, or velocities drift. Training messages carry
    the plan and the estimate of the global gradient. The estimator "exact" is an oracle. With
    ``private`` clients there are no profiles and no plan, only gradients with noise.
    """

    remembers = ("profiles", "gradient", "plan", "_shares", "_sizes", "_speeds")
    own_records = (PLAN, ESTIMATE)

    def __init__(
        self,
        inner: Strategy,
        num_classes: int,
        gradient_size: int,  # entries of the gradients that clients report
        ode: OdeSettings | None,
        *,
        plan: StoragePlan | None = None,  # by default one without limits, in proportion
        velocity_factor: float = 100.0,  # times the usual velocity that is absurd
        norm_factor: float = 5.0,  # times the usual norm that an estimate counts for at most
        private: bool = False,
    ) -> None:
        super().__init__(inner)
        self.num_classes = num_classes
        self._like = np.empty(gradient_size, dtype=np.float32)
        self.ode, self.private = ode, private
        self._here: Sequence[str] = ()
        self.profiles = StreamProfiles()
        self.plan = plan or StoragePlan(0.2, 0, 0, "proportional", True, "velocity")
        recent = ode is not None and ode.estimator in ("participants", "stored")
        self.gradient = GlobalGradient({}, "participants" if recent else "incremental")
        self._shares: dict[str, float] = {}  # velocities that the estimate was made with
        self.norm_factor = norm_factor
        self._sizes = UsualSize(_FACTOR)  # of the estimates that clients report
        self._speeds = UsualSize(velocity_factor)
        self._estimates: dict[str, NDArray[np.float32]] = {}  # in this round

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Streams":
        """Return the layer that a config describes."""
        ode, task, bounds = ode_method(config), load_task(config.task_spec()), config.quarantine
        return cls(
            inner,
            task.num_classes,
            valuation(task.build_model(), config, task.problem).size if ode else 0,
            config[OdeSettings] if ode else None,
            plan=ode.plan(config) if ode else None,
            velocity_factor=bounds.count_factor,
            norm_factor=bounds.norm_factor,
            private=config.privacy == "local-dp",
        )

    @property
    def exact(self) -> bool:
        """Whether the estimate of the gradient is the oracle's."""
        return self.ode is not None and self.ode.estimator == "exact"

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Advance the streams, plan, choose, and send plan and estimate to those who train."""
        self._sizes.settle()
        self._speeds.settle()
        nodes = self.federation.nodes(grid)
        self._here = self.federation.keys(nodes)
        self.profiles.advance(server_round, self._here)
        if not self.private:
            pairs = zip(nodes, self._here, strict=True)
            unknown = [node for node, key in pairs if self.profiles.unknown(key, server_round)]
            self._ask(server_round, grid, unknown, None)
        if self.exact:
            self._ask(server_round, grid, nodes, arrays)
        if self.ode and self.ode.coordinate and not self.private:
            self._plan(server_round)
        return super().configure_train(server_round, arrays, config, grid)

    def _ask(
        self, server_round: int, grid: Grid, nodes: Sequence[int], arrays: ArrayRecord | None
    ) -> None:
        """Notify clients of a new round, and learn how their streams are."""
        content: dict[str, Any] = {} if arrays is None else {ARRAYS: arrays}
        answers = self.federation.ask(grid, server_round, INGEST, nodes, content)
        estimates: dict[str, NDArray[np.float32]] = {}
        told = self.federation.readable(server_round, answers, self._read)
        for node, reason in self._learn(told, estimates).items():
            self.federation.set_aside(server_round, node, reason)
        answered = [node for table in answers for node in table.nodes]
        self.profiles.answered(self.federation.keys(answered), server_round)
        self._report(estimates)

    def _read(self, row: Row) -> _Heard:
        """Read this layer's records in a reply; :class:`BadReply` if they are invalid."""
        said, estimate = row.config(PLAN), None
        if self.ode and row.has(ESTIMATE):
            try:
                estimate = row.arrays(ESTIMATE, {"estimate": self._like})["estimate"]
            except ValueError as error:
                raise BadReply(f"estimate: {error}") from error
        if self.private:
            return _Heard(None, estimate)
        if said is None and self.federation.key(row.node) in self.profiles.told:
            return _Heard(None, estimate)
        n = self.num_classes
        told = StreamTold.read(said, "stream profile", velocity=n, stored=n)
        return _Heard(told.model_dump(), estimate)

    def _learn(
        self, told: Mapping[int, _Heard], estimates: dict[str, NDArray[np.float32]]
    ) -> dict[int, str]:
        """Learn plausible reports; return the clients that are not believed, and why."""
        keys = self.federation.keys(told)
        sizes = [each.size for each in told.values()]
        self._speeds.hear(keys, [each.speed for each in told.values()])
        self._sizes.hear(keys, sizes)
        fastest, most = self._speeds.most(math.inf), self._sizes.most(_ABSURD)
        longest = self.norm_factor * self._sizes.median or math.inf
        if any(each.speed > fastest for each in told.values()):
            # One device may see most of the data, but not more than all others together
            others = self.profiles.velocities().items()
            known = sum(sum(row) for key, row in others if key not in set(keys))
            together = known + sum(min(each.speed, fastest) for each in told.values()) - fastest
            fastest = max(fastest, together)
        wrong: dict[int, str] = {}
        for (node, each), key, size in zip(told.items(), keys, sizes, strict=True):
            if each.speed > fastest:
                wrong[node] = f"{each.speed:.4g} samples a round, more than {fastest:.4g}"
            elif size > most:
                wrong[node] = f"an estimate of norm {size:.3g}, more than {most:.3g}"
            else:
                if each.profile is not None:
                    self.profiles.hear(key, each.profile)
                if each.estimate is not None:
                    share = longest / size if size > longest else 1.0
                    estimates[key] = each.estimate * np.float32(share)
        return wrong

    def _report(self, estimates: dict[str, NDArray[np.float32]]) -> None:
        """Bring the estimate of the global gradient up to date (eq. 8)."""
        if estimates:
            shares = dict.fromkeys(self.profiles.told, 0.0)
            shares |= {key: sum(row) for key, row in self.profiles.velocities().items()}
            if self.private:
                shares = dict.fromkeys([*self._here, *estimates], 1.0)
            if shares != self._shares:
                self._shares = shares
                self.gradient.reshare(shares)
            self.gradient.report(estimates)

    def _plan(self, server_round: int) -> None:
        """Make a new plan if the old one no longer fits (section 3.3)."""
        told = self.profiles.told
        plan = self.plan.update(
            server_round,
            self.profiles.velocities(),
            {key: int(profile["capacity"]) for key, profile in told.items()},
            {key: int(profile["arrived"]) for key, profile in told.items()},
        )
        if plan is not None:
            self.federation.note(
                StoragePlanned(
                    round=server_round,
                    clients=len(plan.quota),
                    stored=plan.quota.sum(0).tolist(),
                    holders=(plan.quota > 0).sum(0).tolist(),
                    class_weights=plan.class_weights.tolist(),
                    quota=dict(islice(self.plan.quota.items(), _MOST_DRAWN)),
                )
            )

    def guide(self, server_round: int, requests: Requests) -> None:
        """Send those who train the plan and the estimate of the gradient."""
        if not self.ode:
            return
        estimate = self.gradient.estimate
        sent = 0
        if self.plan.class_weights:
            plans = [self._plan_of(key) for key in self.federation.keys(requests.nodes)]
            requests.put_column(PLAN, plans)
            sent += sum(map(record_bytes, plans))
        if estimate.ndim:
            record = to_record({"estimate": estimate.astype(np.float32)})
            requests.put(ESTIMATE, record)
            sent += len(requests) * record_bytes(record)
        self.federation.note(Guided(round=server_round, layer="streams", bytes_down=sent))

    def _plan_of(self, key: str) -> ConfigRecord:
        told: dict[str, Any] = {"class-weights": self.plan.class_weights}
        if any(self.plan.quota.get(key, ())):  # else its labels are not known yet
            told["quota"] = self.plan.quota[key]
        return filled(ConfigRecord, told)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate, and learn from the reports on streams."""
        self._estimates = {}
        result = super().aggregate_train(server_round, replies)
        if not self.exact:
            self._report(self._estimates)
        self._note(server_round)
        return result

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Take out the reports on streams."""
        told: dict[int, _Heard] = {}

        def read(row: Row) -> None:
            told[row.node] = self._read(row)

        sound = self.federation.read_rows(server_round, replies, read)
        wrong = self._learn(told, self._estimates)
        rows = {row: wrong[node] for row, node in enumerate(sound.nodes) if node in wrong}
        sound = self.federation.sound(server_round, sound, rows)
        sound.take(PLAN)
        sound.take(ESTIMATE)
        sound.drop(ESTIMATE)
        return sound

    def _note(self, server_round: int) -> None:
        if self.private:
            return
        here = self.profiles.here()
        stored = np.array([told["stored"] for told in here]).reshape(-1, self.num_classes)
        self.federation.note(
            StreamsStored(
                round=server_round,
                clients=len(stored),
                stored=stored.sum(0).tolist(),
                arrived=sum(int(told["arrived"]) for told in here),
                classes=float((stored > 0).sum(1).mean()) if len(stored) else 0.0,
            )
        )
