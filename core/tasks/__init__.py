"""Data sets, partitions, noise and models; imported on first use: a config needs no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import TaskError as TaskError
    from .metrics import Metric as Metric
    from .problems import Classification as Classification
    from .problems import MultiLabel as MultiLabel
    from .problems import NextToken as NextToken
    from .problems import Problem as Problem
    from .problems import Regression as Regression
    from .problems import Segmentation as Segmentation
    from .spec import TaskSpec as TaskSpec
    from .splits import ClientData as ClientData
    from .splits import Samples as Samples
    from .splits import ServerData as ServerData
    from .splits import Split as Split
    from .task import Task as Task
    from .task import load_task as load_task

_NAMES = {
    "errors": ("TaskError",),
    "metrics": ("Metric",),
    "problems": (
        *("Classification", "MultiLabel", "NextToken", "Problem", "Regression", "Segmentation"),
    ),
    "spec": ("TaskSpec",),
    "splits": ("ClientData", "Samples", "ServerData", "Split"),
    "task": ("Task", "load_task"),
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tasks' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
