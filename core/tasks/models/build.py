"""Models by name."""

import threading
from collections.abc import Callable

import torch
from torch import nn

from ..errors import unknown
from . import convolutional, deep, dense, recurrent
from .head import with_projection
from .own import own, try_out
from .spec import ModelSpec

MODELS: dict[str, Callable[[ModelSpec], nn.Module]] = {
    "softmax": dense.softmax,
    "mlp": dense.mlp,
    "dnn": dense.dnn,
    "cnn": convolutional.cnn,
    "small-cnn": convolutional.small_cnn,
    "lenet": convolutional.lenet,
    "cnn1d": convolutional.cnn1d,
    "resnet18": deep.resnet18,
    "resnet50": deep.resnet50,
    "vgg16": deep.vgg16,
    "segmenter": convolutional.segmenter,
    "char-gru": recurrent.char_gru,
}

# Reentrant, because a user's own model may be made of ours.
_GLOBAL_GENERATOR = threading.RLock()


def build_model(
    name: str | Callable[[], nn.Module],
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    seed: int = 0,
    hidden: int = 64,
    output_shape: tuple[int, ...] = (),
    tokens: bool = False,
    projection: int = 0,
) -> nn.Module:
    """Build a model with weights that depend on `seed` only."""
    if callable(name):
        build = name
    else:
        spec = ModelSpec(
            name, tuple(input_shape), num_classes, hidden, output_shape or (num_classes,), tokens
        )
        builder = _builder(name)

        def build() -> nn.Module:
            return fitting(spec, builder(spec))

    # Layers draw their weights from the global generator. Models are built on the CPU, so only
    # the CPU's generator is seeded, and put back afterwards; by one thread at a time.
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = build()
        return with_projection(model, projection) if projection else model


def fitting(spec: ModelSpec, model: nn.Module) -> nn.Module:
    """Return a built-in model if its outputs are those that the problem needs."""
    if len(spec.output_shape) > 1 or spec.tokens:
        try_out(spec, model)
    return model


def _builder(name: str) -> Callable[[ModelSpec], nn.Module]:
    if name in MODELS:
        return MODELS[name]
    if name.startswith("frozen:"):
        return dense.frozen
    if ":" in name:
        return own
    raise unknown("model", name, [*MODELS, "frozen:<backbone>", "module:attribute"])
