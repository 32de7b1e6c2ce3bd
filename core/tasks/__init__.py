"""Tasks: data sets, how they are spread over clients, their noise, and models.

Names are imported when they are first used: reading a config needs no torch, and on a device every
message is a new process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import TaskError
    from .metrics import Metric
    from .problems import (
        Classification,
        MultiLabel,
        NextToken,
        Problem,
        Regression,
        Segmentation,
    )
    from .spec import TaskSpec
    from .splits import ClientData, Samples, ServerData, Split
    from .task import Task, load_task

_PLACES = {
    "ClientData": "forager.core.tasks.splits",
    "Samples": "forager.core.tasks.splits",
    "ServerData": "forager.core.tasks.splits",
    "Split": "forager.core.tasks.splits",
    "Task": "forager.core.tasks.task",
    "TaskError": "forager.core.tasks.errors",
    "TaskSpec": "forager.core.tasks.spec",
    "load_task": "forager.core.tasks.task",
    "Metric": "forager.core.tasks.metrics",
    "Problem": "forager.core.tasks.problems",
    "Classification": "forager.core.tasks.problems",
    "MultiLabel": "forager.core.tasks.problems",
    "NextToken": "forager.core.tasks.problems",
    "Regression": "forager.core.tasks.problems",
    "Segmentation": "forager.core.tasks.problems",
}

__all__ = [
    "Classification",
    "ClientData",
    "Metric",
    "MultiLabel",
    "NextToken",
    "Problem",
    "Regression",
    "Samples",
    "Segmentation",
    "ServerData",
    "Split",
    "Task",
    "TaskError",
    "TaskSpec",
    "load_task",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tasks' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
