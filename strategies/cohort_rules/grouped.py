"""Rules that group all clients at one time, by updates they are asked for: FlexCFL and FL+HC."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from cohorts.fl_hc import hierarchical_clusters
from cohorts.flexcfl import group, join
from cohorts.projection import unit_rows
from server_app.config import RunConfig
from strategies.cohort_rules.base import ONLY, CohortRule, Regrouping, Scene
from strategies.signals import Signal
from wire.arrays import from_record, to_record
from wire.keys import ARRAYS, ASK_UPDATE, STEPS
from wire.records import record_at

_log = logging.getLogger("forager")

Floats = NDArray[np.float64]


class GroupedRule(CohortRule):
    """Ask for updates in one round, group clients by them, and let newcomers join.

    Parameters
    ----------
    config : RunConfig
        The run's.
    at_round : int
        The round before which clients are grouped.
    asked : int
        How many clients are asked then; the others join as newcomers. 0 for all.
    steps : int
        Local steps of an update; 0 for as many as in a round.
    """

    def __init__(self, config: RunConfig, at_round: int, asked: int, steps: int) -> None:
        self.config = config
        self.at_round, self.asked, self.steps = at_round, asked, steps
        self.signal = Signal(config.cohort.dimension, config.seed)
        self.rng = np.random.default_rng([config.seed, 11])
        self.places: dict[str, str] = {}
        self.directions: Floats = np.zeros((0, config.cohort.dimension))
        self._compared_from: ArrayRecord | None = None  # the model that updates start from

    def labels(self, updates: Floats) -> NDArray[np.intp]:
        """Return the group of each row."""
        raise NotImplementedError

    def place(self, scene: Scene) -> list[str]:
        """Return each client's group; before there are any, the one cohort."""
        if not len(self.directions):
            return [ONLY] * len(scene.keys)
        new = [key for key in scene.keys if key not in self.places]
        if new and scene.training:
            for key, update in self._updates(scene, new).items():
                self.places[key] = f"0.{join(update, self.directions)}"
        return [self.places.get(key, "0.0") for key in scene.keys]

    def regroup(self, scene: Scene) -> Regrouping | None:
        """Group clients when it is time."""
        if scene.round < self.at_round or len(self.directions) or not scene.keys:
            return None
        count = min(self.asked or len(scene.keys), len(scene.keys))
        chosen = np.sort(self.rng.choice(len(scene.keys), count, replace=False))
        self._compared_from = scene.models[ONLY]
        updates = self._updates(scene, [scene.keys[i] for i in chosen])
        if not updates:
            return None
        points = np.array(list(updates.values()))
        labels = self.labels(points)
        means = [points[labels == label].mean(axis=0) for label in range(labels.max() + 1)]
        self.directions = unit_rows(means)
        for key, label in zip(updates, labels.tolist(), strict=True):
            self.places[key] = f"0.{label}"
        return {f"0.{label}": {ONLY: 1.0} for label in range(len(means))}

    def _updates(self, scene: Scene, keys: Sequence[str]) -> dict[str, Floats]:
        """Return sketches of the updates that clients make of the model all are compared from."""
        assert self._compared_from is not None
        model = self._compared_from
        replies = scene.ask(keys, ASK_UPDATE, {ARRAYS: model}, {STEPS: self.steps})
        before = self.signal.sketch(from_record(model))
        found = {}
        for key, reply in replies.items():
            after = _model_in(reply, model)
            if after is None:
                _log.warning("client %s: no update that can be compared", key)
            else:
                found[key] = self.signal.sketch(after) - before
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the groups and what newcomers are compared with."""
        model = self._compared_from
        return {
            "places": self.places,
            "directions": self.directions,
            "model": None if model is None else from_record(model),
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.places, self.directions = dict(state["places"]), np.array(state["directions"])
        self._compared_from = None if state["model"] is None else to_record(state["model"])
        self.rng.bit_generator.state = state["rng"]


def _model_in(reply: Message, like: ArrayRecord) -> dict[str, NDArray[Any]] | None:
    """Return the model in a reply, if it is like another and finite."""
    record = record_at(reply.content, ARRAYS, ArrayRecord)
    if record is None or list(record) != list(like):
        return None
    arrays, expected = from_record(record), from_record(like)
    sound = all(a.shape == expected[n].shape and np.isfinite(a).all() for n, a in arrays.items())
    return arrays if sound else None


class FlexCflRule(GroupedRule):
    """FlexCFL: groups from the start, by some clients' pretraining updates."""

    def __init__(self, config: RunConfig) -> None:
        asked = 20 * config.cohort.number
        super().__init__(config, at_round=1, asked=asked, steps=config.cohort.pretrain_steps)

    def labels(self, updates: Floats) -> NDArray[np.intp]:
        """Return groups by the decomposed cosine."""
        return group(updates, self.config.cohort.number, self.config.seed).labels


class FlHcRule(GroupedRule):
    """FL+HC: after some joint rounds, groups by everybody's update."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config, at_round=config.cohort.first_split, asked=0, steps=0)

    def labels(self, updates: Floats) -> NDArray[np.intp]:
        """Return clusters by average linkage, as many as the distance threshold leaves."""
        return hierarchical_clusters(updates, self.config.cohort.distance)
