"""FedProx: stay near the global model (Li et al., 2020, eq. 2)."""

from ...config import RunConfig
from ...methods.objectives import ProxSettings
from .plain import Carried, Plain, Tensors


class Prox(Plain):
    """Add ``mu / 2 * ||w - w_global||^2`` to the loss: ``mu * (w - w_global)`` to its gradient."""

    def __init__(self, config: RunConfig) -> None:
        self.mu = config[ProxSettings].mu

    def adjust(
        self, gradients: Tensors, parameters: Tensors, start: Tensors, carried: Carried
    ) -> None:
        """Add the pull towards the global model."""
        for gradient, parameter, origin in zip(gradients, parameters, start, strict=True):
            gradient.add_(parameter - origin, alpha=self.mu)
