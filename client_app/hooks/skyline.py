"""The skyline: train on the clean samples only, which takes knowing the truth."""

from ..request import ClientHook, ClientRequest
from .coresets import train_on


class CleanOnly(ClientHook):
    """Leave out every sample that noise has touched; in simulation only."""

    chooses_data = True

    def before(self, request: ClientRequest) -> None:
        """Put the clean samples in place of all."""
        if "partition-id" not in request.context.node_config:
            raise ValueError(
                "data-selector = 'skyline': a device does not know which of its samples are clean"
            )
        clean = request.holdings.clean.nonzero().flatten().numpy()
        if not len(clean):
            raise ValueError(f"client {request.key!r} has no clean sample to train on")
        train_on(request, clean, since=request.round, seconds=0.0)
