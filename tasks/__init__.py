"""Tasks: data sets, how they are spread over clients, what spoils them, and models.

Names are imported when they are first used: reading a config needs no torch, and on a device every
message is a new process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.errors import TaskError
    from tasks.spec import TaskSpec
    from tasks.splits import ClientData, ServerData, Split
    from tasks.task import Task, load_task

_PLACES = {
    "ClientData": "tasks.splits",
    "ServerData": "tasks.splits",
    "Split": "tasks.splits",
    "Task": "tasks.task",
    "TaskError": "tasks.errors",
    "TaskSpec": "tasks.spec",
    "load_task": "tasks.task",
}

__all__ = ["ClientData", "ServerData", "Split", "Task", "TaskError", "TaskSpec", "load_task"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tasks' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
