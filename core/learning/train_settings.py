"""How a client trains: settings read from the run config once per process, and optimisers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..config import RunConfig
from ..methods.selector import PROXY_BATCHES
from ..tasks.errors import TaskError, imported, unknown
from ..wire.keys import SHARE, STEPS


@dataclass(frozen=True)
class TrainSettings:
    """The local loop's settings for one round."""

    epochs: int
    steps: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    optimiser: str = "sgd"
    clip_norm: float = 0.0
    squares: int = 0
    """Parts in which the squared gradients of samples are added up (IOS); 0 for not at all."""
    squared_steps: int = 0
    """Steps that they are of, the first ones; 0 for all."""

    def squares_of(self, step: int) -> int | None:
        """Return the part that the squares of a step belong to, in turns; None if they do not."""
        return step % self.squares if self.squares and step < self.squared_of(step + 1) else None

    def squared_of(self, steps: int) -> int:
        """Return how many of so many steps have their squares added up."""
        return min(steps, self.squared_steps) if self.squared_steps else steps

    @property
    def stackable(self) -> bool:
        """Whether many clients can be trained at once: plain SGD."""
        return self.optimiser == "sgd" and not self.clip_norm


def learning_rate(config: RunConfig, server_round: int) -> float:
    """Return the learning rate of a round (rounds count from 1)."""
    done = server_round - 1
    if config.schedule.kind == "step":
        return config.learning_rate * config.schedule.factor ** (done // config.schedule.every)
    if config.schedule.kind == "cosine":
        total = config.schedule.rounds or config.num_server_rounds
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done / max(1, total))))
    return config.learning_rate


def summary_settings(config: RunConfig, server_round: int) -> TrainSettings:
    """Return the settings of a proxy update: a few mini-batches."""
    return replace(train_settings(config, server_round), steps=PROXY_BATCHES)


def train_settings(config: RunConfig, server_round: int) -> TrainSettings:
    """Return the settings of a round."""
    return TrainSettings(
        epochs=config.local_epochs,
        steps=config.local_steps,
        batch_size=config.batch_size,
        learning_rate=learning_rate(config, server_round),
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        optimiser=config.optimiser.name,
        clip_norm=config.optimiser.clip_norm,
    )


def local_steps(settings: TrainSettings, examples: float) -> int:
    """Return how many mini-batches a client with so many samples trains on.

    >>> from forager.core.config import read_config
    >>> local_steps(train_settings(read_config({"local-epochs": 2, "batch-size": 16}), 1), 40)
    6
    """
    return settings.steps or settings.epochs * -(-int(examples) // settings.batch_size)


def given_steps(work: Mapping[str, Any], settings: TrainSettings, examples: float) -> int:
    """Return how many mini-batches a message gives a client: so many, or a share of the usual ones.

    >>> from forager.core.config import read_config
    >>> usual = train_settings(read_config({"local-epochs": 2, "batch-size": 16}), 1)
    >>> given_steps({"share": 0.5}, usual, 40), given_steps({"steps": 9}, usual, 40)
    (3, 9)
    """
    if SHARE in work:
        return max(1, round(float(work[SHARE]) * local_steps(settings, examples)))
    return max(1, int(work[STEPS]))


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
