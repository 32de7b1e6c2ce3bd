"""How a client takes a step, given the gradients of a mini-batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..tasks.errors import TaskError, unknown
from ..tasks.importing import imported
from .train_settings import TrainSettings

Step = Callable[[Sequence[Tensor]], None]
BUILT_IN = ("sgd", "adam", "adamw")


def stepper(parameters: Sequence[Tensor], settings: TrainSettings) -> Step:
    """Return a function that takes one step in place, given the gradients."""
    if settings.optimiser == "sgd":
        momenta = [torch.zeros_like(p) for p in parameters] if settings.momentum else []

        def plain(gradients: Sequence[Tensor]) -> None:
            sgd_(parameters, _clipped(gradients, settings.clip_norm), momenta, settings)

        return plain
    optimiser = _optimiser(parameters, settings)

    def by_optimiser(gradients: Sequence[Tensor]) -> None:
        for parameter, gradient in zip(
            parameters, _clipped(gradients, settings.clip_norm), strict=True
        ):
            parameter.grad = gradient
        optimiser.step()
        optimiser.zero_grad()

    return by_optimiser


def check_optimiser(name: str) -> None:
    """Refuse a name that is neither built in nor can be imported.

    >>> check_optimiser("adma")
    Traceback (most recent call last):
        ...
    forager...TaskError: optimiser.name = 'adma' is not known: use one of sgd, adam, adamw, ...
    """
    if name not in BUILT_IN:
        _found(name)


def _optimiser(parameters: Sequence[Tensor], settings: TrainSettings) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    made = _found(settings.optimiser)(list(parameters), rate)
    if not isinstance(made, torch.optim.Optimizer):
        raise TaskError(
            f"optimiser.name = {settings.optimiser!r} returned {type(made).__name__}; expected a "
            "torch.optim.Optimizer"
        )
    return made


def _found(name: str) -> Callable[[list[Tensor], float], object]:
    if ":" not in name:
        raise unknown("optimiser.name", name, [*BUILT_IN, "module:attribute"])
    found: Callable[[list[Tensor], float], object] = imported("optimiser.name", name)
    return found


def _clipped(gradients: Sequence[Tensor], limit: float) -> Sequence[Tensor]:
    """Return gradients scaled down so that their common norm is at most the limit."""
    if not limit:
        return gradients
    norm = torch.nn.utils.get_total_norm(gradients)
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)  # as torch's clip_grad_norm_ does it
    return [gradient * scale for gradient in gradients]


def sgd_(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor],
    settings: TrainSettings,
) -> None:
    """Take one step of SGD with weight decay and momentum in place, as ``torch.optim.SGD`` does."""
    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if settings.weight_decay:
            gradient = gradient.add(parameter, alpha=settings.weight_decay)
        if settings.momentum:
            gradient = momenta[i].mul_(settings.momentum).add_(gradient)
        parameter.add_(gradient, alpha=-settings.learning_rate)
