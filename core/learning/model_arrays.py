"""What travels of a model: the arrays that training can change, and no others.

Parameters that need no gradient come with the model, on the server and on every client, and never
travel. So do the buffers of layers that are frozen altogether, which stay in evaluation mode while
the rest is trained.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..tasks.errors import TaskError


def chosen_device(name: str) -> torch.device:
    """Return the device that a run or a node asks for."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or not (number.isdecimal() or number == ""):
        raise TaskError(f"device = {name!r} is not allowed: use auto, cpu, cuda, cuda:N or mps")
    count = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= count:
        raise TaskError(
            f"device = {name!r}: this machine has {count} CUDA devices; use auto or cpu"
        )
    if kind == "mps" and not _has_mps():
        raise TaskError("device = 'mps': this machine has no such device; use auto or cpu")
    return torch.device(name)


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


def device_or_cpu(name: str) -> tuple[torch.device, str]:
    """Return the device that is asked for, or the CPU and why."""
    try:
        return chosen_device(name), ""
    except TaskError as error:
        return torch.device("cpu"), f"{error}; trained on the CPU"


def device_of(model: nn.Module) -> torch.device:
    """Return where a model is."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def moved(value: Any, device: torch.device) -> Any:
    """Return a tensor, or tensors in tuples, lists and dicts, on a device."""
    if isinstance(value, torch.Tensor):
        return value if value.device == device else value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(each, device) for each in value)
    return value


Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")


def travelling(model: nn.Module) -> list[str]:
    """Return the names of the arrays that travel, in the order of the model's state."""
    frozen = set(_frozen_names(model))
    return [name for name in model.state_dict() if name not in frozen]


def check_trainable(model: nn.Module) -> None:
    """Refuse a model in which there is nothing to train, or that cannot be sent."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TaskError(
            "the model has no trainable parameter: leave requires_grad on for those to be trained"
        )
    for name, array in read_arrays(model).items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise TaskError(
                f"the model's array {name!r} holds values that are not finite before training; "
                "for a constant such as a mask, register_buffer(..., persistent=False) keeps it "
                "out of the messages"
            )


def load_arrays(model: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy named arrays into a model; what does not travel may be missing, and stays."""
    state = model.state_dict()
    needed = state.keys() - set(_frozen_names(model))
    if not needed <= arrays.keys() <= state.keys():
        odd = sorted((needed - arrays.keys()) | (arrays.keys() - state.keys()))
        raise ValueError(
            f"arrays do not fit the model; names on one side only: {odd[:5]}. The same parameters "
            "must be trainable on the server and on all clients"
        )
    with torch.no_grad():
        for name, array in arrays.items():
            tensor = state[name]
            if tuple(array.shape) != tuple(tensor.shape):
                raise ValueError(
                    f"array {name} has shape {array.shape}, the model's is {tuple(tensor.shape)}"
                )
            tensor.copy_(torch.from_numpy(array))


def read_arrays(model: nn.Module) -> Arrays:
    """Return copies of the arrays that travel, by name."""
    state = model.state_dict()
    return {name: state[name].cpu().numpy().copy() for name in travelling(model)}


def frozen_arrays(model: nn.Module) -> Arrays:
    """Return the arrays that do not travel, by name."""
    state = model.state_dict()
    return {name: state[name].cpu().numpy() for name in _frozen_names(model)}


def frozen_digest(model: nn.Module) -> str:
    """Return a checksum of what does not travel, for clients to compare; empty if all does."""
    frozen = frozen_arrays(model)
    if not frozen:
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for name, array in sorted(frozen.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def training_mode(model: nn.Module) -> None:
    """Put a model into training mode, but not the layers that are frozen altogether."""
    model.train()
    for module in _frozen_modules(model):
        module.eval()


def per_model(compute: Callable[[nn.Module], T]) -> Callable[[nn.Module], T]:
    """Remember what a function returns for each model, for as long as the model is in use."""
    known: WeakKeyDictionary[nn.Module, T] = WeakKeyDictionary()

    @wraps(compute)
    def looked_up(model: nn.Module) -> T:
        if model not in known:
            known[model] = compute(model)
        return known[model]

    return looked_up


@per_model
def _frozen_modules(model: nn.Module) -> tuple[nn.Module, ...]:
    return tuple(
        module
        for module in model.modules()
        if list(module.parameters()) and not any(p.requires_grad for p in module.parameters())
    )


@per_model
def _frozen_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of parameters without gradient, and of the buffers of frozen layers."""
    state = model.state_dict()
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    for path, module in model.named_modules():
        if module in _frozen_modules(model):
            prefix = f"{path}." if path else ""
            frozen |= {prefix + name for name, _ in module.named_buffers()}
    return tuple(name for name in state if name in frozen)
