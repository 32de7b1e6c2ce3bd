"""A trial before anything starts: two samples through model, loss and metrics."""

import torch
from torch import nn

from ..tasks import Task
from ..tasks.errors import TaskError, one_line
from ..tasks.problems import Problem, Segmentation
from .evaluation import evaluate
from .model_arrays import check_trainable, device_of, moved, read_arrays


def try_out(task: Task, model: nn.Module) -> None:
    """Refuse a task whose model, loss or metrics do not fit its data, and say which."""
    check_trainable(model)
    test = task.server_data().test
    few = test.select(torch.arange(min(4, len(test))))
    model.eval()
    x, y = next(iter(few.batches(len(few))))
    device = device_of(model)
    try:
        with torch.no_grad():
            outputs = model(moved(x, device))
    except Exception as error:
        shape = f"of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
        raise TaskError(
            f"the model failed on a batch {shape}: {type(error).__name__}: {one_line(error)}"
        ) from error
    name = f"{type(task.problem).__name__}.loss"
    try:
        with torch.no_grad():
            own = ":" in task.spec.model or type(task.problem).model is not Problem.model
            if own and isinstance(task.problem, Segmentation):
                task.problem.check_axes(outputs, y)
            task.problem.checked_loss(outputs, moved(y, device))
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(
            f"{name} failed on outputs of shape {tuple(outputs.shape)} and targets of shape "
            f"{tuple(y.shape)}: {type(error).__name__}: {one_line(error)}"
        ) from error
    evaluate(model, read_arrays(model), few, task.problem, task.metrics)
