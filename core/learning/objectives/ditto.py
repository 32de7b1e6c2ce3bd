"""Ditto: beside the global model, a personal one that is pulled towards it (Li et al., 2021)."""

from collections.abc import Mapping

from ...config import RunConfig
from ...methods.objectives import DittoSettings
from .plain import Plain, Tensors

GLOBAL = "global"  # what the job carries: the global model, as it was sent


class Ditto(Plain):
    """The global model is trained as usual, the personal one by :mod:`client_app.hooks.personal`.

    That one minimises ``F(v) + lambda / 2 * ||v - w||^2`` (eq. 1), w the global model.
    """


class Pulled(Plain):
    """What the personal model minimises: ``lambda (v - w)`` is added to the gradient."""

    carries = (GLOBAL,)

    def __init__(self, config: RunConfig) -> None:
        self.pull = config[DittoSettings].pull

    def adjust(
        self,
        gradients: Tensors,
        parameters: Tensors,
        start: Tensors,
        carried: Mapping[str, Tensors],
    ) -> None:
        """Add the pull towards the global model."""
        for gradient, own, shared in zip(gradients, parameters, carried[GLOBAL], strict=True):
            gradient.add_(own - shared, alpha=self.pull)
