"""What some layers cannot do without, checked before anything starts."""

import torch

from ..core.config import RunConfig
from ..core.learning.features import features_of
from ..core.learning.model_arrays import read_arrays
from ..core.learning.personal import kept_names
from ..core.methods.base import Method
from ..core.methods.catalogue import methods
from ..core.methods.stream import StreamSettings
from ..core.tasks import Samples, Task, load_task
from ..core.tasks.errors import TaskError
from ..core.tasks.models.head import linear_head


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
            f"{task.problem.kind}, without a class per sample; {method.axis} can be "
            f"{', '.join(_any_problem(method.axis))}"
        )
    if "linear head" not in needs:
        return
    if method.axis == "data-selector" and not task.problem.has_classes:
        return  # by the gradients of the last layer, whatever it is
    model = task.build_model()
    try:
        features_of(model, read_arrays(model), _two_samples(task))
        if "output bias" in needs and model.get_submodule(linear_head(model)).bias is None:
            raise TaskError("its last layer has no bias; use torch.nn.Linear(..., bias=True)")
    except TaskError as error:
        raise TaskError(f"model = {config.model!r}, {method}: {error}") from error


def check_personal(config: RunConfig) -> None:
    """Raise an error unless the model has the part that clients are to keep, and more."""
    if config.personalise.keep != "none":
        kept_names(load_task(config.task_spec()).build_model(), config.personalise.keep)


def _any_problem(axis: str) -> list[str]:
    """Return the methods of an axis that work on every kind of problem, streams left out."""
    found = methods(axis).values()
    return [m.name for m in found if "classes" not in m.needs and StreamSettings not in m.settings]


def _two_samples(task: Task) -> Samples:
    test = task.server_data().test
    return test.select(torch.arange(min(2, len(test))))
