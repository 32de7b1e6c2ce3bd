"""The clock by which replies arrive: the machine's, or one that a runtime provides.

Server code asks a clock for the time and lets it wait. It never asks whether time is simulated.
"""

import time
from abc import ABC, abstractmethod
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid


class Clock(ABC):
    """Tells the time and waits."""

    poll: float  # seconds between two looks for replies
    between_looks: float  # seconds between two looks for replies that nobody waits for

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since some moment."""

    @abstractmethod
    def wait(self, at_most: float) -> None:
        """Wait until something may have arrived, but no longer than that."""

    @abstractmethod
    def simulated_since(self, moment: float) -> float | None:
        """Return the simulated seconds since then; None if they were real."""


class WallClock(Clock):
    """The machine's own time."""

    between_looks = 1.0

    def __init__(self, poll: float = 0.2) -> None:
        self.poll = poll

    def now(self) -> float:
        """Return the seconds since the machine was started."""
        return time.monotonic()

    def wait(self, at_most: float) -> None:
        """Sleep until the next look."""
        time.sleep(max(0.0, min(self.poll, at_most)))

    def simulated_since(self, moment: float) -> None:
        """Return None: these seconds are real."""


class OwnGrid(Grid):
    """A grid that is not Flower's."""

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message (Flower's deprecated way, part of its interface)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


class ClockedGrid(OwnGrid):
    """A runtime with its own clock, which keeps its own state and that of its clients."""

    clock: Clock

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a restart: of its clients, and what is on its way."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def clock_of(grid: Grid, poll: float) -> Clock:
    """Return the clock that replies on a grid arrive by."""
    return grid.clock if isinstance(grid, ClockedGrid) else WallClock(poll)
