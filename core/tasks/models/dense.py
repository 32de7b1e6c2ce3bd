"""Models of linear layers only. They read samples of any shape."""

from torch import nn

from .. import backbones
from ..errors import TaskError
from .spec import ModelSpec


def softmax(spec: ModelSpec) -> nn.Sequential:
    """Build softmax regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.inputs, spec.num_classes))


def mlp(spec: ModelSpec) -> nn.Sequential:
    """Build a network with one hidden layer of `hidden` units."""
    return _one_hidden_layer(spec, spec.hidden)


def dnn(spec: ModelSpec) -> nn.Sequential:
    """Build ODE's network for sensor data: one hidden layer of 100 units."""
    return _one_hidden_layer(spec, 100)


def frozen(spec: ModelSpec) -> nn.Sequential:
    """Build the head over a frozen backbone's features, which are the samples (``backbones``)."""
    backbone = spec.model.removeprefix("frozen:")
    try:
        size = backbones.feature_size(backbone)
    except TaskError as error:
        raise TaskError(f"model = {spec.model!r}: {error}") from error
    if spec.input_shape != (size,):
        raise spec.misfit(f"the ({size},) features of backbone {backbone!r}")
    return softmax(spec)


def _one_hidden_layer(spec: ModelSpec, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.inputs, width),
        nn.ReLU(),
        nn.Linear(width, spec.num_classes),
    )
