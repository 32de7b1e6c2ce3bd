"""IFCA: k models from the start; every round each client trains the one that fits it best."""

import logging
from typing import Any

from flwr.app import ArrayRecord, MetricRecord

from client_app.trainer import read_arrays
from cohorts.ifca import best_models
from server_app.config import RunConfig
from strategies.cohort_rules.base import CohortRule, Scene
from tasks import load_task
from tasks.models import build_model
from wire.arrays import to_record
from wire.keys import ASK_LOSSES, LOSSES
from wire.records import records_of

_log = logging.getLogger("forager")


class IfcaRule(CohortRule):
    """Ask every client for the loss of every model, at the full cost of sending them all."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.count = config.cohort.number
        self.places: dict[str, str] = {}

    def start(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return k models with different initial weights; the first is the run's own."""
        task, models = load_task(self.config.task_spec()), {"0.0": arrays}
        for number in range(1, self.count):
            model = build_model(
                self.config.model,
                task.input_shape,
                task.num_classes,
                seed=self.config.seed + 1000 * number,
                hidden=self.config.net.hidden,
            )
            models[f"0.{number}"] = to_record(read_arrays(model))
        return models

    def place(self, scene: Scene) -> list[str]:
        """Return the model of lowest loss for each client; the last known if it does not answer."""
        names = sorted(scene.models)
        if scene.training:
            replies = scene.ask(scene.keys, ASK_LOSSES, dict(scene.models), {})
            for key, reply in replies.items():
                metrics = records_of(reply.content, MetricRecord)
                losses = metrics[0].get(LOSSES) if metrics else None
                if not isinstance(losses, list) or len(losses) != len(names):
                    _log.warning("client %s: no losses that can be compared", key)
                    continue
                self.places[key] = names[int(best_models([losses])[0])]
        return [self.places.get(key, names[0]) for key in scene.keys]

    def state_dict(self) -> dict[str, Any]:
        """Return where clients were last."""
        return {"places": self.places}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.places = dict(state["places"])
