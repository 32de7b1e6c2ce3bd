"""Where tensors are: the device of a run, or of one node of it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..tasks.errors import TaskError


def chosen_device(name: str) -> torch.device:
    """Return the device that a run or a node asks for.

    >>> chosen_device("cpu")
    device(type='cpu')
    >>> chosen_device("gpu")
    Traceback (most recent call last):
        ...
    forager...TaskError: device = 'gpu' is not allowed: use auto, cpu, cuda, cuda:N or mps
    """
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
