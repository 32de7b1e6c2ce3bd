"""Cohorts by similarity: affinity propagation on how alike clients are (IOS, section 5).

Every ``ios.every`` rounds all clients that have not reported lately are asked, the similarity
matrix is made and clients are clustered again. With ``similarity = "index-overlap"`` only indices
are used; with ``ios.signatures`` clients send signatures, and some are asked for their indices.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord

from ...core.config import RunConfig
from ...core.methods.ios import Ios
from ...core.wire.keys import ARRAYS, HISTOGRAM, STEPS, SUMMARY, WANTS
from ...core.wire.replies import Row
from ...core.wire.requests import Requests
from ...selectors.cohorts.similarity_clusters import similarity_clusters
from ..similarities.client_similarity import client_similarity, matrix_event
from .base import ONLY, CohortRule, Regrouping, Scene

_log = logging.getLogger("forager")


class SimilarityRule(CohortRule):
    """One cohort per cluster, made again every ``ios.every`` rounds from ``ios.first-round`` on."""

    remembers = ("clusters", "fresh", "generation", "similarity")

    def __init__(self, config: RunConfig) -> None:
        self.similarity = client_similarity(config)
        self.own_records = self.similarity.own_records
        self.every, self.first = config[Ios].every, config[Ios].first_round
        self.seed = config.seed
        self.clusters: dict[str, str] = {}  # the cohort of each clustered client
        self.fresh: dict[str, int] = {}  # the round in which each client reported last
        self.generation = 0
        self._round = 0
        self._report: dict[str, Any] = {}

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        """Return each client's cluster; the largest for clients that came later."""
        if not self.clusters:
            return dict(placed)
        largest = Counter(self.clusters.values()).most_common(1)[0][0]
        return {key: self.clusters.get(key, largest) for key in placed}

    def regroup(self, scene: Scene) -> Regrouping | None:
        """Cluster again if it is time, after asking those who have not reported since then."""
        self._round = scene.round
        since = scene.round - self.first
        if since < 0 or since % self.every:
            return None
        self._ask(scene)
        present = [*scene.keys, *scene.busy]
        keys = [key for key in present if key in self.similarity.told]
        if len(keys) < 2:
            return None
        self._fetch(scene, keys)
        matrix = self.similarity.matrix(keys)
        found = similarity_clusters(matrix, seed=self.seed)
        if not found.converged:
            kept = "cohorts stay" if self.clusters else "one cohort"
            _log.warning("round %d: clustering did not settle: %s", scene.round, kept)
        if not found.converged and self.clusters:
            self._report = {"converged": False, "clusters": len(set(self.clusters.values()))}
            return None
        self.generation += 1
        old = self.settled(dict.fromkeys(keys, ONLY))
        labels = found.labels.tolist()
        self.clusters = {
            key: f"{self.generation}.{label}" for key, label in zip(keys, labels, strict=True)
        }
        scene.note(matrix_event(scene.round, keys, matrix, self.clusters))
        self._report = {"converged": bool(found.converged), "clusters": len(set(labels))}
        return _origins(self.clusters, old)

    def _ask(self, scene: Scene) -> None:
        """Ask the clients that have never reported, or not since the last clustering."""
        old = scene.round - self.every
        stale = {key for key in scene.keys if self.fresh.get(key, old) <= old}
        where = self.settled(dict.fromkeys(scene.keys, ONLY))
        settings: dict[str, int | str] = {STEPS: 0}
        if self.similarity.question == SUMMARY:
            settings[WANTS] = HISTOGRAM

        news = self.similarity.news()
        sent = {name: {ARRAYS: model, **news} for name, model in scene.models.items()}

        def hear(key: str, row: Row) -> None:
            self.hear_one(key, row, scene.models[where[key]])

        asked = [key for key in scene.keys if key in stale]
        question = self.similarity.question
        scene.ask(asked, question, lambda key: sent[where[key]], settings, hear)

    def _fetch(self, scene: Scene, keys: list[str]) -> None:
        """Ask candidates for the supports that they have only signed so far."""
        present = set(scene.keys)
        missing = [key for key in self.similarity.missing(keys) if key in present]
        if missing:

            def hear(key: str, row: Row) -> None:
                self.hear_one(key, row, ArrayRecord())

            scene.ask(missing, self.similarity.question, {}, {}, hear)
        account = self.similarity.account(scene.round, keys)
        if account is not None:
            scene.note(account)

    def guide(self, requests: Requests, keys: Sequence[str]) -> None:
        """Tell clients how many parameters to report."""
        for name, record in self.similarity.news().items():
            requests.put(name, record)

    def hear_one(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take what a client reports."""
        self.similarity.hear(key, row, sent)
        if key in self.similarity.told:
            self.fresh[key] = self._round

    def report(self) -> dict[str, Any]:
        """Return whether the last clustering converged, and that no values were used."""
        return {**self._report, "values_used": self.similarity.values}

    def collected(self) -> dict[str, Any]:
        """Return what clients have sent that may be kept."""
        return self.similarity.collected()


def _origins(new: Mapping[str, str], old: Mapping[str, str]) -> Regrouping:
    """Return for each new cohort the cohorts that its members come from.

    >>> _origins({"a": "1.0", "b": "1.0", "c": "1.1"}, {"a": "0", "b": "0", "c": "0"})
    {'1.0': {'0': 2.0}, '1.1': {'0': 1.0}}
    """
    regrouping: Regrouping = {}
    for key, cohort in new.items():
        origins = regrouping.setdefault(cohort, {})
        origins[old[key]] = origins.get(old[key], 0.0) + 1.0
    return dict(sorted(regrouping.items()))
