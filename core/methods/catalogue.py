"""All methods: every module of this package declares some in ``METHODS``."""

import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from types import ModuleType

from .base import Method, Settings

# The axes, and on the client the order in which the hooks of their methods act: noise first, so
# that all others see what is sent; the uplink last, so that it sends what all others left.
AXES = (
    *("privacy", "data-selector", "work", "objective", "cohorts", "similarity", "client-selector"),
    *("aggregator", "weighting", "serving", "uplink"),
)


@lru_cache(maxsize=1)
def _modules() -> list[ModuleType]:
    package = __name__.rpartition(".")[0]
    names = sorted(name for _, name, _ in pkgutil.iter_modules(import_module(package).__path__))
    return [import_module(f"{package}.{name}") for name in names]


@lru_cache(maxsize=1)
def all_methods() -> tuple[Method, ...]:
    """Return every method, in the order of the axes, each axis's default first."""
    found = [method for module in _modules() for method in getattr(module, "METHODS", ())]
    return tuple(sorted(found, key=lambda m: (AXES.index(m.axis), not m.default)))


@lru_cache(maxsize=len(AXES))
def methods(axis: str) -> Mapping[str, Method]:
    """Return the methods of an axis by name."""
    return {method.name: method for method in all_methods() if method.axis == axis}


@lru_cache(maxsize=1)
def all_settings() -> tuple[type[Settings], ...]:
    """Return the sections of the run config that methods read, each once."""
    return tuple(dict.fromkeys(section for m in all_methods() for section in m.settings))


@lru_cache(maxsize=1)
def presets() -> Mapping[str, Mapping[str, str]]:
    """Return the presets: a value for some axes under one name."""
    found = {
        name: {method.axis: method.name, **others}
        for method in all_methods()
        for name, others in method.presets.items()
    }
    for module in _modules():
        found |= getattr(module, "PRESETS", {})
    return dict(sorted(found.items(), key=lambda item: (item[0] != "fedavg", item[0])))


def kind_of_preset(name: str) -> str:
    """Return whether a preset is a paper's, ours or a baseline, as its method is."""
    return next((method.kind for method in all_methods() if name in method.presets), "ours")


def axis_defaults() -> dict[str, str]:
    """Return the method of each axis that is used when nobody chooses one."""
    return {method.axis: method.name for method in all_methods() if method.default}


def chosen(axes: Mapping[str, str]) -> list[Method]:
    """Return the methods that these values of the axes name, in the order of the axes."""
    return [methods(axis)[axes[axis]] for axis in AXES if axis in axes]
