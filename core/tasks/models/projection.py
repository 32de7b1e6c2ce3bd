"""A projection in front of a model's head, whose output contrastive methods compare.

MOON's network (Li, He and Song, 2021, section 3.3): a base encoder, a projection of two layers, and
an output layer on top of it. All three are trained and travel; predictions pass through them too.
"""

from torch import nn

from ..errors import TaskError
from .head import linear_head


def with_projection(model: nn.Module, width: int) -> nn.Module:
    """Return a model with two more layers of this width between its body and its head.

    The head is replaced by one that reads the projection; all other layers stay.

    >>> with_projection(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), 8)
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=4, out_features=8, bias=True)
      (2): ReLU()
      (3): Linear(in_features=8, out_features=8, bias=True)
      (4): Linear(in_features=8, out_features=3, bias=True)
    )
    """
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
