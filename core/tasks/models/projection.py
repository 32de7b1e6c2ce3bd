"""A projection in front of a model's head, whose output contrastive methods compare.

MOON's network (Li, He and Song, 2021, section 3.3): a base encoder, a projection of two layers, and
an output layer on top of it. All three are trained and travel; predictions pass through them too.
"""

from torch import nn

from ..errors import TaskError
from .head import linear_head


def with_projection(model: nn.Module, width: int) -> nn.Module:
    """Return a model with two more layers of this width between its body and its head."""
    try:
        name = linear_head(model)
    except TaskError as error:
        raise TaskError(f"moon.projection = {width}: {error}") from error
    head = model.get_submodule(name)
    assert isinstance(head, nn.Linear)  # linear_head guarantees it
    layers = (
        nn.Linear(head.in_features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.Linear(width, head.out_features, bias=head.bias is not None),
    )
    if type(model) is nn.Sequential and model[-1] is head:
        return nn.Sequential(*list(model)[:-1], *layers)  # a plain chain stays one
    path, _, last = name.rpartition(".")
    setattr(model.get_submodule(path), last, nn.Sequential(*layers))
    return model
