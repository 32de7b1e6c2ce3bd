"""Note how the classes are spread over simulated clients."""

from flwr.serverapp import Grid

from ...core.tasks import Task
from ..constant_baseline import classes_spread
from ..loop import Loop
from .base import Callback


class ClassesOfClients(Callback):
    """After the first round: Flower's simulation starts the ServerApp before its clients."""

    def __init__(self, grid: Grid, task: Task) -> None:
        self.grid, self.task = grid, task

    def on_round_end(self, loop: Loop) -> str | None:
        """Write it down once."""
        event = classes_spread(self.grid, self.task) if loop.round == 1 else None
        if event is not None:
            loop.federation.note(event)
        return None
