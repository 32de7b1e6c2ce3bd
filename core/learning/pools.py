"""Clients that are looked at in one pass: their samples one after the other, results cut again.

A forward pass over a sample takes a microsecond, and all that surrounds it a hundred. So the
samples of small clients that were sent the same model go through it together. Clients with models
of their own do where the model is a chain of linear layers: those are stacked. Whoever has many
samples, or samples that are not in memory, stays alone.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..tasks import Samples, Split
from ..tasks.models import split_at_head
from .model_arrays import device_of, load_arrays, per_model
from .stack import can_stack, chain_forward, stacks

Arrays = Mapping[str, NDArray[Any]]

_SAMPLES = 1024  # in one pass
_PADDING = 256  # samples that fill up a stack, besides as many as there are
_STACK_NUMBERS = 2**24  # parameters of all clients in a stack


@dataclass(frozen=True)
class Pool:
    """The samples of some clients, those of the first client first."""

    clients: list[int]
    sizes: NDArray[np.int64]
    x: Tensor
    y: Tensor

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the samples of each client start."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes)

    def cut(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Return each client's part of rows that belong to the samples."""
        ends = (self.starts + self.sizes).tolist()
        return [rows[start:end] for start, end in zip(self.starts.tolist(), ends, strict=True)]

    def sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of the values of each client's samples."""
        return np.add.reduceat(values, self.starts, dtype=np.float64)

    @cached_property
    def used(self) -> Tensor:
        """Which places of :meth:`padded` hold a sample, shape (clients, longest)."""
        return torch.from_numpy(np.arange(self.sizes.max()) < self.sizes[:, None])

    def padded(self, rows: Tensor) -> Tensor:
        """Return rows that belong to the samples as (clients, longest, ...), filled up by zeros."""
        places = self.used.to(rows.device)
        filled = rows.new_zeros(*places.shape, *rows.shape[1:])
        filled[places] = rows
        return filled


def pools(keys: Sequence[Hashable], data: Sequence[Samples], most: int = 2**31) -> list[Pool | int]:
    """Return who is looked at together, at most so many clients, and the numbers of the others.

    Those in a pool have the same key, and about as many samples: stacks hold little padding.
    """
    alone: list[Pool | int] = []
    kinds: dict[Hashable, list[tuple[int, int]]] = {}
    for number, (key, samples) in enumerate(zip(keys, data, strict=True)):
        size = len(samples)
        if size and isinstance(samples, Split):
            kind = key, samples.x.shape[1:], samples.y.shape[1:], samples.x.dtype
            kinds.setdefault(kind, []).append((size, number))
        else:
            alone.append(number)
    found = [part for clients in kinds.values() for part in _parts(sorted(clients), most)]
    return alone + [_pool(part, data) if len(part) > 1 else part[0][1] for part in found]


def _parts(clients: list[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Cut clients, given as (samples, number) with the smallest first, into parts."""
    part: list[tuple[int, int]] = []
    total = 0
    for size, number in clients:
        padded = (len(part) + 1) * size
        total += size
        if part and (total > _SAMPLES or padded > 2 * total + _PADDING or len(part) == most):
            yield part
            part, total = [], size
        part.append((size, number))
    if part:
        yield part


def _pool(part: list[tuple[int, int]], data: Sequence[Samples]) -> Pool:
    clients = [number for _, number in part]
    return Pool(
        clients,
        np.array([size for size, _ in part]),
        torch.cat([data[number].x for number in clients]),
        torch.cat([data[number].y for number in clients]),
    )


def of_same_model(model: nn.Module, arrays: Sequence[Arrays]) -> list[int]:
    """Return keys for :func:`pools`: one for the same arrays, unless the model mixes samples."""
    return list(range(len(arrays))) if _mixes_samples(model) else [id(own) for own in arrays]


@per_model
def _mixes_samples(model: nn.Module) -> bool:
    norms = (m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    return any(norm.running_mean is None for norm in norms)


def stackable(model: nn.Module, data: Sequence[Samples]) -> bool:
    """Return whether clients can have models of their own in a pool."""
    flat = isinstance(model, nn.Sequential) and isinstance(model[0], nn.Flatten)
    return can_stack(model) and (
        flat or all(samples.x.ndim == 2 for samples in data if isinstance(samples, Split))
    )


def stack_limit(model: nn.Module) -> int:
    """Return how many models a stack may hold."""
    return max(1, _STACK_NUMBERS // max(1, sum(p.numel() for p in model.parameters())))


def stacked_parameters(model: nn.Module, arrays: Sequence[Arrays], pool: Pool) -> dict[str, Tensor]:
    """Return the parameters of a pool's clients, (clients, ...) by name, for reading only."""
    names = [name for name, _ in model.named_parameters()]
    own = [arrays[client] for client in pool.clients]
    return dict(zip(names, stacks(own, names, device_of(model)), strict=True))


def looked_through(
    model: nn.Module, arrays: Sequence[Arrays], data: Sequence[Samples], to_head: bool = False
) -> Iterator[tuple[Pool, Tensor] | int]:
    """Yield pools with the outputs for their samples, and the numbers of clients that stay alone.

    Outputs are in evaluation mode, on the model's device; or what its head is given.
    """
    model.eval()
    keys, own = of_same_model(model, arrays), stackable(model, data)
    shared = Counter(keys)
    keys = [0 if own and shared[key] == 1 else key for key in keys]
    for pool in pools(keys, data, stack_limit(model) if own else 2**31):
        yield pool if isinstance(pool, int) else (pool, _outputs(model, arrays, pool, to_head))


def _outputs(model: nn.Module, arrays: Sequence[Arrays], pool: Pool, to_head: bool) -> Tensor:
    device, first = device_of(model), arrays[pool.clients[0]]
    if all(arrays[client] is first for client in pool.clients):
        load_arrays(model, first)
        run = split_at_head(model)[0] if to_head else model
        return run(pool.x.to(device))
    inputs = pool.padded(pool.x).to(device)
    seen = chain_forward(model, stacked_parameters(model, arrays, pool), inputs)
    return seen[-2 if to_head else -1].mT[pool.used.to(device)]
