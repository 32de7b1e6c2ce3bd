"""Keys and names of earlier versions: what to write now."""

from collections.abc import Mapping

from ..methods.catalogue import AXES
from .run_config import Scalar

_NOW = {
    "tensorboard": "use callbacks = 'tensorboard'",
    "top-k.error-feedback": "use uplink = 'top-k', or 'top-k-plain' without it",
    "top-k.values": "use uplink = 'compact' for half precision",
    "coreset.rule": "use data-selector = 'gcfl', 'trusted', 'gradmatch' or 'nearest'",
    "aggregation.beta-1": "it is aggregation.momentum now",
    "data.workers": "set workers in the class of your task",
    "stream.capacity-bytes": "set stream-capacity-bytes in the node config",
    "optimiser.accumulate": "use a larger batch-size",
    "ode.quantities": "data-selector = 'ode' divides stores evenly, 'ode-balanced' in proportion",
    "ode.client-weights": "data-selector = 'ode' weighs by what is stored, 'ode-balanced' by speed",
}
# The one value that a key had for all, which is accepted
_FIXED: dict[str, Scalar] = {
    **{"data.workers": 0, "stream.capacity-bytes": 0, "optimiser.accumulate": 1},
    **{"ode.quantities": "auto", "ode.client-weights": "auto", "ode.normalize": False},
    **{"ode.cover": True, "ode.replan": 0.2, "ode.labels-per-client": 0, "stream.burst": 1},
    **{"stream.ingest": "contact", "coreset.radius": 2.0, "summary.batches": 4},
    **{"auxo.last-split": 0, "auxo.split-rounds": 3, "auxo.split-exponent": 0.5},
    **{"auxo.exploration": 0.3, "split-test.split-rounds": 2},
    **{"split-test.within-groups": 0.15, "split-test.ask-newcomers": 1, "cfl.mean-norm": 0.5},
    **{"cfl.longest-norm": 0.5, "cfl.cross-similarity": 0.35, "flexcfl.pretrain-steps": 50},
    **{"fl-hc.distance": 0.5, "ios.ema": 0.8, "ios.per-layer": False, "ios.hashes": 128},
    **{"ios.bands": 32, "data.synthetic-alpha": 1.0, "data.synthetic-beta": 1.0},
    **{"round.poll": 0.2, "round.roll-back-after": 3, "groups.strength": 0.5, "sce.alpha": 0.1},
    **{"fedcor.warm-up": 10, "coreset.step": 1, "coreset.memory": 0.3, "top-k.values": "float32"},
    **{"corruption.severity": 5, "corruption.kinds": "all", "optimiser.precision": "float32"},
}
# Of methods and presets; accepted for one version. What had a paper's name and was not the paper's
# cannot be told from the paper's.
_NAMES = {
    **{f"{n}-paper": n for n in ("cosage", "gcfl", "ode", "auxo", "ios", "index-overlap")},
    "top-k-paper": "top-k-plain",
    "agreement": "trusted",
}


def what_now(key: str) -> str:
    """Return what to write for a key that an earlier version had; empty for any other."""
    if key in _NOW:
        return _NOW[key]
    return f"it is always {_FIXED[key]!r} now" if key in _FIXED else ""


def without_fixed(flat: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return a flat run config without the old keys that are set to what is always so now."""
    return {k: v for k, v in flat.items() if k not in _FIXED or _FIXED[k] != v}


def name_now(name: str) -> str:
    """Return what a method or a preset is called now."""
    return _NAMES.get(name, name)


def old_names(given: Mapping[str, object]) -> list[str]:
    """Return what to write for the methods that a run config calls by their old names."""
    return [
        f"{key} = {given[key]!r}: it is {_NAMES[str(given[key])]!r} now; "
        "the old name goes with the next version"
        for key in ("strategy", *AXES)
        if given.get(key) in _NAMES
    ]
