"""SCAFFOLD: undo the drift towards a client's own optimum (Karimireddy et al., 2020)."""

from .plain import Carried, Plain, Tensors

CONTROL = "control"  # what the job carries: the server's control variate minus the client's


class ScaffoldObjective(Plain):
    """Add ``c - c_i`` to every gradient (eq. 3); :mod:`client_app.hooks.scaffold` brings it."""

    carries = (CONTROL,)

    def adjust(
        self, gradients: Tensors, parameters: Tensors, start: Tensors, carried: Carried
    ) -> None:
        """Add the difference of the control variates."""
        for gradient, correction in zip(gradients, carried[CONTROL], strict=True):
            gradient.add_(correction)
