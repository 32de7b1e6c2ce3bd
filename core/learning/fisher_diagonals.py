"""Diagonals of the Fisher information of many clients at once.

The gradient of a sample in the weight of a linear layer is an outer product, and the square of an
outer product is the outer product of the squares: so the sums over the samples of all clients are
one batched product per layer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..tasks import Samples
from .fisher import Loss, fisher_diagonal, sum_of_losses
from .model_arrays import load_arrays
from .placement import device_of
from .pools import Arrays, Pool, pools, stack_limit, stackable, stacked_parameters
from .stack import chain_backward, chain_forward


def fisher_diagonals(
    model: nn.Module, loss: Loss, arrays: Sequence[Arrays], data: Sequence[Samples]
) -> NDArray[np.float32]:
    """Return the diagonal of each client, of the model with its arrays on its data.

    Chains of linear layers are looked at for many clients at once, any other model client by client
    by :func:`fisher_diagonal`, whose result it is up to the order of sums.
    """
    chain = stackable(model, data)
    size = sum(each.numel() for each in model.parameters() if each.requires_grad)
    found = np.empty((len(data), size), dtype=np.float32)
    keys = [0] * len(data) if chain else list(range(len(data)))
    for pool in pools(keys, data, stack_limit(model)):
        if isinstance(pool, int):
            load_arrays(model, arrays[pool])
            found[pool] = fisher_diagonal(model, loss, data[pool].x, data[pool].y)
        else:
            found[pool.clients] = _of_pool(model, loss, arrays, pool)
    return found


@torch.no_grad()
def _of_pool(model: nn.Module, loss: Loss, arrays: Sequence[Arrays], pool: Pool) -> NDArray[Any]:
    """Return the diagonals of a pool's clients, whose model is a chain of linear layers."""
    parameters = stacked_parameters(model, arrays, pool)
    device = device_of(model)
    seen = chain_forward(model, parameters, pool.padded(pool.x).to(device))
    used = pool.used.to(device)
    with torch.enable_grad():
        outputs = seen[-1].mT[used].requires_grad_()
        total = sum_of_losses(loss, outputs, pool.y.to(device))
        (behind,) = torch.autograd.grad(total, outputs)
    squares: dict[str, Tensor] = {}
    for name, given, delta in chain_backward(model, parameters, seen, pool.padded(behind).mT):
        # Zero where a place holds no sample; of outer products as in layer_squares
        squared = delta.square()
        squares[f"{name}.weight"] = torch.bmm(squared, given.square().mT)
        squares[f"{name}.bias"] = squared.sum(2)
    sizes = torch.from_numpy(pool.sizes).to(device)
    flat = torch.cat([squares[name].flatten(1) for name in parameters], dim=1)
    return np.asarray(flat.div_(sizes.unsqueeze(1)).cpu().numpy())
