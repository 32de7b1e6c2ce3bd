"""What some layers cannot do without, checked before anything starts."""

import torch

from ..core.config import RunConfig
from ..core.learning.features import features_of
from ..core.learning.model_arrays import read_arrays
from ..core.methods.base import Method
from ..core.tasks import Samples, Task, load_task
from ..core.tasks.errors import TaskError


def validation_data(config: RunConfig, wanted_by: str) -> Samples:
    """Return the server's validation set; an error that says who wants it if there is none."""
    data = load_task(config.task_spec()).server_data().validation
    if not len(data):
        raise TaskError(
            f"data.validation-share = {config.data.validation_share}: it leaves no sample to the "
            f"server, which {wanted_by} needs"
        )
    return data


def check_model(method: Method, config: RunConfig) -> None:
    """Raise an error that says who wants it unless the model has what a method needs."""
    needs = method.needs_in(config)
    if not {"linear head", "classes"} & set(needs):
        return
    task = load_task(config.task_spec())
    if "classes" in needs and not task.problem.has_classes:
        raise TaskError(
            f"{method}: works class by class, and task {config.task!r} is "
            f"{task.problem.kind}, without a class per sample"
        )
    if method.axis == "data-selector" and not task.problem.has_classes:
        return  # by the gradients of the last layer, whatever it is
    model = task.build_model()
    try:
        features_of(model, read_arrays(model), _two_samples(task))
    except TaskError as error:
        raise TaskError(f"model = {config.model!r}, {method}: {error}") from error


def _two_samples(task: Task) -> Samples:
    test = task.server_data().test
    return test.select(torch.arange(min(2, len(test))))
