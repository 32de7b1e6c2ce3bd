"""Tasks: data sets, how they are spread over clients, what spoils them, and models."""

from tasks.errors import TaskError
from tasks.spec import TaskSpec
from tasks.splits import ClientData, ServerData, Split
from tasks.task import Task, load_task

__all__ = ["ClientData", "ServerData", "Split", "Task", "TaskError", "TaskSpec", "load_task"]
