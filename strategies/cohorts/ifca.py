"""IFCA and CLoVE: k models from the start; each client trains the one that fits its data."""

import math

from flwr.app import ArrayRecord

from ...core.config import RunConfig
from ...core.learning.model_arrays import read_arrays
from ...core.methods.cohort import CohortSettings
from ...core.tasks import load_task
from ...core.wire.arrays import to_record
from ...selectors.cohorts.clove import Clove
from ...selectors.cohorts.ifca import Ifca
from .base import CoreRule, Scene, asked_losses


class IfcaRule(CoreRule[Ifca]):
    """Ask every client for the loss of every model, at the full cost of sending them all."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.core = Ifca(config[CohortSettings].number)

    def start(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return k models with different initial weights; the first is the run's own."""
        task, leaves = load_task(self.config.task_spec()), self.core.leaves()
        models = {leaves[0]: arrays}
        for number, leaf in enumerate(leaves[1:], 1):
            model = task.build_model(seed=self.config.seed + 1000 * number)
            models[leaf] = to_record(read_arrays(model))
        return models

    def place(self, scene: Scene) -> list[str]:
        """Return the model of lowest loss for each client; the last known if it does not answer."""
        leaves = self.core.leaves()
        if scene.training:
            told = asked_losses(scene, scene.keys)
            rows = [[told[key].get(leaf, math.nan) for leaf in leaves] for key in told]
            if told:
                self.core.observe(list(told), rows)
        return [self.core.members.leaf_of(key) or leaves[0] for key in scene.keys]


class CloveRule(IfcaRule):
    """Ask every client for the loss of every model, as IFCA does, and cluster the answers."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.core = Clove(config[CohortSettings].number)
