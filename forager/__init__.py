"""Forager: who trains, on which data, and with whom, in every round of federated learning.

In a checkout and in a Flower bundle the folders stand beside this one; in a wheel, below it. Either
way they are imported under one name, as in ``forager.strategies`` or ``forager.selectors``.

Your own app imports its parts from here: ``from forager import client_mod, strategy``. Each is
imported on first use; a device does not load the server's parts.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HERE = Path(__file__).resolve().parent
if not (_HERE / "core").is_dir():
    __path__.append(str(_HERE.parent))

if TYPE_CHECKING:
    from .client_app.mod import client_mod
    from .client_app.own_app import local_data
    from .core.tasks import (
        Classification,
        Metric,
        MultiLabel,
        NextToken,
        Problem,
        Regression,
        Segmentation,
    )
    from .selectors.client_selectors.age import OldestFirst
    from .selectors.client_selectors.base import Candidates, ClientSelector
    from .selectors.client_selectors.by_loss import LocalLoss, PowerOfChoice
    from .selectors.client_selectors.cosage import CosAge
    from .selectors.client_selectors.dissimilarity import MostDissimilar
    from .selectors.client_selectors.oort import Oort
    from .selectors.client_selectors.plain import RoundRobin, Uniform
    from .server_app.callbacks.base import Callback
    from .server_app.library import run
    from .strategies.library import strategy

_SELECTORS = "selectors.client_selectors"
_PLACES = {
    "Callback": "server_app.callbacks.base",
    "Candidates": f"{_SELECTORS}.base",
    "ClientSelector": f"{_SELECTORS}.base",
    "CosAge": f"{_SELECTORS}.cosage",
    "LocalLoss": f"{_SELECTORS}.by_loss",
    "MostDissimilar": f"{_SELECTORS}.dissimilarity",
    "OldestFirst": f"{_SELECTORS}.age",
    "Oort": f"{_SELECTORS}.oort",
    "PowerOfChoice": f"{_SELECTORS}.by_loss",
    "RoundRobin": f"{_SELECTORS}.plain",
    "Uniform": f"{_SELECTORS}.plain",
    **dict.fromkeys(
        ("Classification", "Metric", "MultiLabel", "NextToken", "Problem", "Regression"),
        "core.tasks",
    ),
    "Segmentation": "core.tasks",
    "client_mod": "client_app.mod",
    "local_data": "client_app.own_app",
    "run": "server_app.library",
    "strategy": "strategies.library",
}
__all__ = [
    "Callback",
    "Candidates",
    "Classification",
    "ClientSelector",
    "CosAge",
    "LocalLoss",
    "Metric",
    "MostDissimilar",
    "MultiLabel",
    "NextToken",
    "OldestFirst",
    "Oort",
    "PowerOfChoice",
    "Problem",
    "Regression",
    "RoundRobin",
    "Segmentation",
    "Uniform",
    "client_mod",
    "local_data",
    "run",
    "strategy",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
