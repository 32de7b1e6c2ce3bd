"""What a model's head is given: the representation that selection and contrast look at."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from ..tasks import Samples
from ..tasks.models import split_at_head
from .model_arrays import device_of, load_arrays, moved
from .pools import looked_through

_BATCH = 512


@torch.no_grad()
def features_of(
    model: nn.Module, arrays: Mapping[str, NDArray[Any]], data: Samples
) -> torch.Tensor:
    """Return the head's inputs in evaluation mode, a row each, on the CPU; arrays stay loaded."""
    load_arrays(model, arrays)
    model.eval()
    body, _ = split_at_head(model)
    device = device_of(model)
    parts = [body(moved(x, device)).flatten(1).cpu() for x, _ in data.batches(_BATCH)]
    return torch.cat(parts) if parts else torch.zeros((0, 1))


@torch.no_grad()
def features_of_all(
    model: nn.Module, arrays: Sequence[Mapping[str, NDArray[Any]]], data: Sequence[Samples]
) -> torch.Tensor:
    """Return :func:`features_of` of all clients, up to the order of sums, the first one first."""
    found = [torch.empty(0)] * len(data)
    for looked in looked_through(model, arrays, data, to_head=True):
        if isinstance(looked, int):
            found[looked] = features_of(model, arrays[looked], data[looked])
            continue
        pool, features = looked
        parts = torch.split(features.flatten(1).cpu(), pool.sizes.tolist())
        for client, part in zip(pool.clients, parts, strict=True):
            found[client] = part
    return torch.cat(found)
