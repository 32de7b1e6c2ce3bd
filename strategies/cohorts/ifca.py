"""IFCA: k models from the start; every round each client trains the one that fits it best."""

import math
from typing import Any

from flwr.app import ArrayRecord

from ...core.config import RunConfig
from ...core.learning.model_arrays import read_arrays
from ...core.methods.cohort import CohortSettings
from ...core.tasks import load_task
from ...core.wire.arrays import to_record
from ...selectors.cohorts.ifca import Ifca
from .base import CohortRule, Scene, asked_losses


class IfcaRule(CohortRule):
    """Ask every client for the loss of every model, at the full cost of sending them all."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.ifca = Ifca(config[CohortSettings].number)

    def start(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return k models with different initial weights; the first is the run's own."""
        task, leaves = load_task(self.config.task_spec()), self.ifca.leaves()
        models = {leaves[0]: arrays}
        for number, leaf in enumerate(leaves[1:], 1):
            model = task.build_model(seed=self.config.seed + 1000 * number)
            models[leaf] = to_record(read_arrays(model))
        return models

    def place(self, scene: Scene) -> list[str]:
        """Return the model of lowest loss for each client; the last known if it does not answer."""
        leaves = self.ifca.leaves()
        if scene.training:
            told = asked_losses(scene, scene.keys)
            rows = [[told[key].get(leaf, math.nan) for leaf in leaves] for key in told]
            if told:
                self.ifca.observe(list(told), rows)
        return [self.ifca.members.leaf_of(key) or leaves[0] for key in scene.keys]

    def leaves(self) -> list[str]:
        """Return the leaves of the tree."""
        return self.ifca.leaves()

    def state_dict(self) -> dict[str, Any]:
        """Return where clients were last."""
        return self.ifca.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.ifca.load_state_dict(state)
