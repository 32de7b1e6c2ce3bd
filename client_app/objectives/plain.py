"""Plain empirical risk."""

from collections.abc import Sequence

import torch

from server_app.config import RunConfig


class Plain:
    """Cross-entropy and nothing else.

    Other objectives derive from this one. What they do must be elementwise in the parameters, so
    that it works on one client's tensors and on a stack of clients' tensors (with a leading client
    axis) alike.
    """

    def __init__(self, config: RunConfig) -> None:
        """Take settings from the run config."""

    def adjust(
        self,
        gradients: Sequence[torch.Tensor],
        parameters: Sequence[torch.Tensor],
        start: Sequence[torch.Tensor],
    ) -> None:
        """Change gradients in place; ``start`` are the parameters as received from the server."""
