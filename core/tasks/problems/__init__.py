"""Kinds of learning problems: the loss that is minimised, and the metrics that judge a model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import invalid

if TYPE_CHECKING:
    from .base import Classification as Classification
    from .base import Problem as Problem
    from .multi_label import MultiLabel as MultiLabel
    from .regression import Regression as Regression
    from .tokens import NextToken as NextToken
    from .tokens import Segmentation as Segmentation

KINDS = {
    "classification": "base:Classification",
    "multi-label": "multi_label:MultiLabel",
    "regression": "regression:Regression",
    "segmentation": "tokens:Segmentation",
    "next-token": "tokens:NextToken",
}
"""Kinds by name; imported when used, because reading a config needs no torch."""

_PLACES = {"Problem": "base", **{p.split(":")[1]: p.split(":")[0] for p in KINDS.values()}}


def problem_of(kind: str) -> "Problem":
    """Return the built-in problem of a kind."""
    if kind not in KINDS:
        raise invalid("kind", kind, f"one of {', '.join(KINDS)}")
    module, name = KINDS[kind].split(":")
    found: Problem = getattr(import_module(f".{module}", __name__), name)()
    return found


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
