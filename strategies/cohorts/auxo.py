"""Auxo on the server.

The algorithm is ``selectors.cohorts.auxo``; this module turns messages into its arrays and back.
Affinity records are stored on the clients. Before clients are matched to several cohorts, one small
message delivers the last feedback and asks for their requests. Training replies also carry the
requests, for clustering. As in the paper, over-commitment discards late replies
(:mod:`strategies.cohorts.split_testing` learns from them).
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord

from ...core.config import RunConfig
from ...core.methods.auxo import AuxoSettings
from ...core.wire.keys import AFFINITY, ASK_AFFINITY
from ...core.wire.records import filled
from ...core.wire.replies import Row
from ...core.wire.requests import Requests
from ...core.wire.schemas import AffinityTold
from ...selectors.cohorts.affinity import Affinity
from ...selectors.cohorts.auxo import Auxo
from ...selectors.cohorts.split import OF_LEMMA, SplitRule
from .base import ONLY, CohortSignals, CoreRule, Regrouping, Scene, by_key, split_into

_log = logging.getLogger("forager")


class AuxoRule(CoreRule[Auxo]):
    """Algorithm 1 of Auxo as a rule of the Cohorts layer."""

    own_records = (AFFINITY,)

    def __init__(self, config: RunConfig) -> None:
        settings = config[AuxoSettings]
        self.core = Auxo(
            parts=settings.parts,
            rule=SplitRule(
                first_round=settings.first_split,
                participants=settings.min_participants,
                alpha=settings.alpha,
                exponent=OF_LEMMA,
            ),
            first_cluster_round=settings.first_clustering,
            strikes=settings.lies_allowed,
            seed=config.seed,
        )
        self._requests: dict[str, Affinity | None] = {}
        self._placed_by: dict[str, Affinity] = {}  # answers that placed clients in this round
        self._report: dict[str, Any] = {}
        self._rounds = config.num_server_rounds

    def place(self, scene: Scene) -> list[str]:
        """Match requests to leaves; clients on the blacklist get no place."""
        keys = scene.keys
        if not scene.training:
            where = by_key(self.core.members(keys))
        elif len(self.core.leaves()) == 1:
            where = dict.fromkeys(self.core.lies.allowed(keys), self.core.leaves()[0])
        else:
            told = self._placed_by = self._requested(scene)
            where = by_key(self.core.match(keys, [told.get(key) for key in keys]))
        return [where.get(key, "") for key in keys]

    def _requested(self, scene: Scene) -> dict[str, Affinity]:
        """Ask clients for their records (section 3.2, matching); most are told the same."""
        leaves = self.core.leaves()
        no_news = {AFFINITY: filled(ConfigRecord, {"leaves": leaves})}

        def news(key: str) -> Mapping[str, Any]:
            if self.core.feedback_for(key) is None:
                return no_news
            return {AFFINITY: self._feedback(key, leaves)}

        def read(key: str, row: Row) -> Affinity:
            return _request_in(row) or Affinity()

        return scene.ask(self.core.lies.allowed(scene.keys), ASK_AFFINITY, news, {}, read)

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        """Return the leaf that suits each client best."""
        return by_key(self.core.members(list(placed)))

    def guide(self, requests: Requests, keys: Sequence[str]) -> None:
        """Tell clients what the last round found about them, and the leaves there are."""
        leaves = self.core.leaves()
        requests.put_column(AFFINITY, [self._feedback(key, leaves) for key in keys])

    def _feedback(self, key: str, leaves: list[str]) -> ConfigRecord:
        message: dict[str, Any] = {"leaves": leaves}
        feedback = self.core.feedback_for(key)
        if feedback is not None:
            message |= {"cohort": feedback.cohort, "reward": feedback.reward}
            message |= {"index": feedback.index, "serial": feedback.serial}
        return filled(ConfigRecord, message)

    def hear_one(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take the records that a client sends with its reply, unless others have placed it."""
        self._requests[key] = None
        told = _request_in(row)
        self._requests[key] = self._placed_by.get(key, told)

    def learn(
        self, server_round: int, rounds: Mapping[str, int], seen: Mapping[str, CohortSignals]
    ) -> Regrouping | None:
        """Cluster the participants of every leaf, reward them, and split what is due."""
        parts: dict[str, list[str]] = {}
        self._report = {"heterogeneity": {}, "liars": [], "barred": [], "strange": []}
        reasons = self._report["reasons"] = {}
        for leaf, observed in seen.items():
            requests = [self._requests.get(key) for key in observed.keys]
            found = self.core.observe(leaf, observed.keys, observed.signals, requests)
            if found.gain.before > 0:
                fall = found.gain.after / found.gain.before
                self._report["heterogeneity"][leaf] = fall if math.isfinite(fall) else None
            for name in ("liars", "barred", "strange"):
                self._report[name] += getattr(found, name)
            if found.children:
                parts[leaf] = found.children
            else:
                reasons[leaf] = found.reason
        self._requests.clear()
        self._placed_by = {}
        if server_round == self._rounds and self.core.leaves() == list(reasons) == [ONLY]:
            _log.info("auxo did not split: %s", reasons[ONLY])
        return split_into(rounds, parts)

    def report(self) -> dict[str, Any]:
        """Return how much heterogeneity a split would leave, and who contradicted itself."""
        return self._report


def _request_in(row: Row) -> Affinity | None:
    """Return the records in a reply, if there are any; ValueError if they make no sense."""
    if not row.has(AFFINITY):
        return None
    request = Affinity()
    told = AffinityTold.read(row.config(AFFINITY), "affinity records")
    request.load_state_dict(told.model_dump())
    return request
