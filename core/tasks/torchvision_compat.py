"""The one place that imports torchvision.

PyPI's torchvision wheel is built against a CUDA torch. Beside a CPU-only torch its C++ library
cannot be loaded, two operators are then unknown to torch, and ``import torchvision`` raises,
although its models, transforms and data sets never use them. Everything here reaches torchvision
through this module.
"""

import functools
import importlib
from types import ModuleType

import torch

from .errors import optional_packages

# The operators that torchvision refers to while it is imported, declared as in its C++ library.
_MISSING_OPERATORS = ("torchvision::nms", "torchvision::qnms")
_BOX_OPERATOR_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@functools.cache
def torchvision() -> ModuleType:
    """Import torchvision on first use, also where its C++ operators cannot be loaded."""
    try:
        with optional_packages("torchvision's networks and data sets"):
            return importlib.import_module("torchvision")
    except RuntimeError as error:
        # Only the known fault is mended; a torchvision broken in another way must say so itself.
        if not any(operator in str(error) for operator in _MISSING_OPERATORS):
            raise
    _declare_missing_operators()
    return importlib.import_module("torchvision")


def _declare_missing_operators() -> None:
    """Declare the operators without implementing them: calling one raises, importing does not."""
    for operator in _MISSING_OPERATORS:
        torch.library.define(operator, _BOX_OPERATOR_SCHEMA)
