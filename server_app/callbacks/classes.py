"""Note how the classes are spread over simulated clients."""

import numpy as np
from flwr.serverapp import Grid

from ...core.log.events import ClassesSpread
from ...core.tasks import Task
from ...core.wire.flower_private import is_simulation
from ..loop import Loop
from .base import Callback

_MOST_CLIENTS = 200  # rows of a picture that can still be told apart
_MOST_CLASSES = 100


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


def classes_spread(grid: Grid, task: Task) -> ClassesSpread | None:
    """Return how many samples of each class clients hold, in simulation; None on devices.

    Nobody is asked: in simulation, the data are the experimenter's own.
    """
    clients = int(getattr(grid, "num_partitions", 0))
    if is_simulation(grid):
        clients = len(list(grid.get_node_ids()))
    if not clients or not task.problem.has_classes or task.num_classes > _MOST_CLASSES:
        return None
    counts = task.class_counts(clients, at_most=_MOST_CLIENTS)
    if counts is None:
        return None
    return ClassesSpread(clients=clients, counts=np.asarray(counts).tolist())
