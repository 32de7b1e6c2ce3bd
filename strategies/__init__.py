"""Server-side strategies: layers that wrap any Flower strategy and change as little as they can.

Those for apps of your own are imported from here: ``from forager.strategies import Selection``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .library import Auxo, Cohorts, Coresets, Selection

__all__ = ["Auxo", "Cohorts", "Coresets", "Selection"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.library"), name)
