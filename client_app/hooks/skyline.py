"""The skyline: train on the clean samples only, as nobody could who does not know the truth."""

from ..request import Part, Visit
from .coresets import train_on


class CleanOnly(Part):
    """Leave out every sample that noise has touched; in simulation only."""

    chooses_data = True

    def before(self, visit: Visit) -> None:
        """Put the clean samples in place of all."""
        if "partition-id" not in visit.context.node_config:
            raise ValueError(
                "data-selector = 'skyline': a device does not know which of its samples are clean"
            )
        clean = visit.holdings.clean.nonzero().flatten().numpy()
        if not len(clean):
            raise ValueError(f"client {visit.key!r} has no clean sample to train on")
        train_on(visit, clean, since=visit.round, seconds=0.0)
