"""The server's own clean samples: it judges models by them, and trains on them like a client."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ..core.config import RunConfig
from ..core.learning.evaluation import evaluate, predictions_of_all
from ..core.learning.job import Job, Outcome, batch_seed
from ..core.learning.model_arrays import chosen_device, read_arrays
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import train_settings
from ..core.learning.trainer import train_one
from ..core.tasks import Samples, load_task
from ..core.tasks.errors import TaskError
from ..selectors.data_selectors.confirmed_labels import sure_accuracy

Arrays = Mapping[str, NDArray[Any]]


def validation_data(config: RunConfig, wanted_by: str) -> Samples:
    """Return the server's validation set; an error that says who wants it if there is none."""
    data = load_task(config.task_spec()).server_data().validation
    if not len(data):
        raise TaskError(
            f"data.validation-share = {config.data.validation_share}: it leaves no sample to the "
            f"server, which {wanted_by} needs"
        )
    return data


class ServerSamples:
    """The server's validation set; ``wanted_by`` names the key that needs it if it is empty."""

    def __init__(self, config: RunConfig, wanted_by: str) -> None:
        self.config, self.data = config, validation_data(config, wanted_by)
        task = load_task(config.task_spec())
        self.problem = task.problem
        self.model = task.build_model().to(chosen_device(config.device))

    @classmethod
    def of_classes(cls, config: RunConfig) -> "ServerSamples | None":
        """Return the samples if there are any, of a task with classes."""
        task = load_task(config.task_spec())
        able = task.problem.has_classes and len(task.server_data().validation)
        return cls(config, "a check of labels") if able else None

    def __len__(self) -> int:
        return len(self.data)

    def loss(self, arrays: Arrays) -> float:
        """Return the mean loss of a model."""
        return evaluate(self.model, arrays, self.data, self.problem, ())["loss"]

    def accuracy(self, arrays: Arrays) -> float:
        """Return the accuracy of a model, or the mean of the classes' own if that is lower."""
        (found,) = predictions_of_all(self.model, [arrays], [self.data])
        return sure_accuracy(found.argmax(axis=1), self.data.y.numpy())

    def trained(self, arrays: Arrays, server_round: int, epochs: int = 0) -> Outcome:
        """Train a model as clients do in a round, or for a number of epochs."""
        settings = train_settings(self.config, server_round)
        settings = replace(settings, epochs=epochs, steps=0) if epochs else settings
        seed = batch_seed(self.config.seed, "server", server_round)
        # What is aggregated may lack buffers of integers.
        job = Job({**read_arrays(self.model), **arrays}, self.data, seed)
        return train_one(self.model, job, settings, Plain(self.config), self.problem)
