"""Presets: one name for a method, as values of the axes that the user left empty."""

PRESETS: dict[str, dict[str, str]] = {
    "fedavg": {},
    "fedprox": {"objective": "prox"},
    "fedyogi": {"aggregator": "fedyogi"},
    "scaffold": {"objective": "scaffold"},
    "moon": {"objective": "moon"},
    "cosage": {"client-selector": "cosage", "uplink": "top-k", "weighting": "uniform"},
    "gcfl": {"data-selector": "gcfl", "weighting": "uniform"},
    "agreement": {"data-selector": "agreement", "weighting": "uniform"},
    "ode": {"data-selector": "ode"},
    "auxo": {"cohorts": "auxo", "aggregator": "fedyogi"},
    "ios": {"cohorts": "similarity", "similarity": "index-overlap"},
}

# What an axis is when neither the user nor the preset says anything.
AXIS_DEFAULTS: dict[str, str] = {
    "client-selector": "random",
    "data-selector": "full",
    "cohorts": "none",
    "similarity": "none",
    "aggregator": "fedavg",
    "objective": "sgd",
    "uplink": "dense",
    "privacy": "none",
    "weighting": "examples",
    "task": "digits",
    "partition": "dirichlet",
    "noise": "none",
    "model": "softmax",
}


def fill_axes(preset: str, chosen: dict[str, str]) -> dict[str, str]:
    """Return a value for every axis: the user's where given, else the preset's, else the default.

    >>> fill_axes("fedprox", {"aggregator": "median"})["objective"]
    'prox'
    >>> fill_axes("fedprox", {"objective": "sgd"})["objective"]
    'sgd'
    """
    given = {axis: value for axis, value in chosen.items() if value}
    return {**AXIS_DEFAULTS, **PRESETS[preset], **given}
