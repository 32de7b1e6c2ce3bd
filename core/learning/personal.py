"""Which parts of a model a client keeps to itself: its head, or its normalisation layers."""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ..tasks.errors import TaskError
from ..tasks.models.head import linear_head
from .model_arrays import travelling

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm)


def kept_names(model: nn.Module, keep: str) -> list[str]:
    """Return the names of the arrays that stay on the client, running statistics included.

    Of its "head" (FedPer; Arivazhagan et al., 2019) or its "norms" (FedBN; Li et al., 2021).

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    >>> kept_names(model, "head"), kept_names(model, "norms")
    (['2.weight', '2.bias'], ['1.weight', '1.bias'])
    >>> kept_names(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), "head")
    Traceback (most recent call last):
    forager...TaskError: personalise.keep = 'head': it is the whole model; nothing would be shared
    """
    if keep == "head":
        layers = [linear_head(model)]
    else:
        layers = [name for name, layer in model.named_modules() if isinstance(layer, _NORMS)]
    names = list(travelling(model))
    kept = [name for name in names if name.rpartition(".")[0] in layers]
    if not kept:
        raise TaskError(f"personalise.keep = {keep!r}: the model has no such part that is trained")
    if len(kept) == len(names):
        raise TaskError(
            f"personalise.keep = {keep!r}: it is the whole model; nothing would be shared"
        )
    return kept
