"""A device that is not there: tensors on it hold real numbers but refuse to meet CPU tensors.

There is no GPU where these tests run. Here `meta` stands in for one: while :class:`StandIn` is
active, a tensor that is moved to it becomes a :class:`Far` tensor. It computes as on the CPU, but
only with other far tensors and numbers, as on a GPU, and gives its values away only after
``.cpu()`` or ``.item()``.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
_NUMBERS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


class Stray(AssertionError):
    """A CPU tensor met one of the device."""


class Far(torch.Tensor):
    """A tensor on the stand-in device."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> "Far":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
            requires_grad=near.requires_grad,
        )
        made.near = near
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Far({self.near!r})"

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(function, args, kwargs or {})


class StandIn(TorchDispatchMode):
    """While active, `meta` is a device that can compute."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(function, args, kwargs or {})


def _dispatch(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    flat, _ = tree_flatten((args, kwargs))
    tensors = [each for each in flat if isinstance(each, torch.Tensor)]
    far = [each for each in tensors if isinstance(each, Far)]
    wanted = kwargs.get("device")
    if wanted is not None:
        wanted = torch.device(wanted)
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if far and function not in _COPIES:
        stray = [t for t in tensors if not isinstance(t, Far) and t.ndim > 0]
        if stray:
            raise Stray(f"{function} got a CPU tensor of shape {tuple(stray[0].shape)}")
    near_args, near_kwargs = tree_map(_near, (args, kwargs))
    result = function(*near_args, **near_kwargs)
    if function is torch.ops.aten.copy_.default:
        return args[0]
    if function in _NUMBERS:
        return result
    to_far = bool(far) if wanted is None else wanted.type == DEVICE.type
    if not to_far:
        return result
    return _same_objects(result, args, near_args)


def _near(value: Any) -> Any:
    return value.near if isinstance(value, Far) else value


def _same_objects(result: Any, args: Any, near_args: Any) -> Any:
    """Wrap results; what was changed in place is given back as the tensor that it was."""
    pairs = [
        (near, far)
        for near, far in zip(tree_flatten(near_args)[0], tree_flatten(args)[0], strict=True)
        if isinstance(far, Far)
    ]

    def wrap(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        same = next((far for near, far in pairs if near is value), None)
        return Far(value) if same is None else same

    return tree_map(wrap, result)
