"""What a model's head is given: the representation that selection and contrast look at."""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from ..tasks.models import split_at_head
from .trainer import load_arrays

_BATCH = 512


@torch.no_grad()
def features_of(
    model: nn.Module, arrays: Mapping[str, NDArray[Any]], x: torch.Tensor
) -> torch.Tensor:
    """Return the head's inputs for these samples, a row each; the model is left with the arrays.

    Dropout is off and batch normalisation uses its running statistics.

    >>> import numpy as np
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    >>> arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    >>> features_of(model, arrays, torch.ones(5, 2)).shape
    torch.Size([5, 2])
    """
    load_arrays(model, arrays)
    model.eval()
    body, _ = split_at_head(model)
    parts = [body(x[start : start + _BATCH]) for start in range(0, len(x), _BATCH)]
    return torch.cat(parts).flatten(1) if parts else x.new_zeros((0, 1))
