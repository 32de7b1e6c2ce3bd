"""The skyline: train on the clean samples only, which requires the true labels."""

from ...core.tasks.errors import SayableError
from ..batch import ClientRow
from .base import PerClientHook
from .coresets import train_on


class CleanOnly(PerClientHook):
    """Leave out every sample that noise has touched; in simulation only."""

    chooses_data = True

    def before_one(self, row: ClientRow) -> None:
        """Put the clean samples in place of all."""
        if not row.simulated:
            raise SayableError(
                "data-selector = 'skyline': a device does not know which of its samples are clean"
            )
        clean = row.holdings.clean.nonzero().flatten().numpy()
        if not len(clean):
            raise SayableError("this client has no clean sample to train on")
        train_on(row, clean, since=row.round, seconds=0.0)
