"""What some layers cannot do without, checked before anything starts."""

import torch

from ..core.config.run_config import RunConfig
from ..core.learning.features import features_of
from ..core.learning.trainer import read_arrays
from ..core.tasks import Split, load_task
from ..core.tasks.errors import TaskError


def validation_data(config: RunConfig, wanted_by: str) -> Split:
    """Return the server's validation set; an error that says who wants it if there is none."""
    data = load_task(config.task_spec()).server_data().validation
    if not len(data):
        raise TaskError(
            f"data.validation-share = {config.data.validation_share}: it leaves no sample to the "
            f"server, which {wanted_by} needs"
        )
    return data


def check_room(config: RunConfig) -> None:
    """Raise an error unless a client may store at least one sample of the task."""
    room, shape = config.stream.capacity_bytes, load_task(config.task_spec()).input_shape
    sample = torch.empty(shape).nbytes
    if 0 < room < sample:
        raise TaskError(
            f"stream.capacity-bytes = {room}: one sample of task {config.task!r} takes {sample}; "
            "give at least that, or 0 for no limit in bytes"
        )


def check_linear_head(config: RunConfig, wanted_by: str) -> None:
    """Raise an error that says who wants it unless the model ends in a linear layer."""
    task = load_task(config.task_spec())
    model = task.build_model()
    try:
        features_of(model, read_arrays(model), torch.zeros(2, *task.input_shape))
    except TaskError as error:
        raise TaskError(f"model = {config.model!r}, {wanted_by}: {error}") from error
