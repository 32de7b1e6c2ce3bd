"""Reading Flower's flat run config: all that is wrong is collected into one ConfigError."""

import difflib
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError

from ..methods.catalogue import AXES, methods, presets
from ..methods.forager import STREAMED
from ..methods.stream import StreamSettings
from .combinations import impossible
from .run_config import AXIS_DEFAULTS, ConfigError, RunConfig, Scalar

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
        "the old name will be removed in the next version"
        for key in ("strategy", *AXES)
        if given.get(key) in _NAMES
    ]


T = TypeVar("T")

# What other programs call our keys
_ELSEWHERE = {
    **{"rounds": "num-server-rounds", "clients": "num-clients", "epochs": "local-epochs"},
    **{"lr": "learning-rate", "alpha": "split.alpha", "data.owner": "data.user-column"},
}


def nearest(name: str, names: list[str]) -> str:
    """Return a hint naming the closest valid name, or nothing."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def fill_axes(preset: str, given: Mapping[str, str], streams: bool = False) -> dict[str, str]:
    """Return a value for every axis: the user's, else the preset's, else the default."""
    own = {axis: value for axis, value in given.items() if value}
    of_streams = STREAMED.get(preset, {}) if streams else {}
    return {**AXIS_DEFAULTS, **presets()[preset], **of_streams, **own}


def _describes_a_stream(flat: Mapping[str, Scalar]) -> bool:
    usual = default_config()
    return any(flat.get(key, usual[key]) != usual[key] for key in StreamSettings.own_keys())


def read_config(flat: Mapping[str, Scalar]) -> RunConfig:
    """Return the typed config of Flower's flat run config, presets filled in."""
    if isinstance(flat, SharedConfig):
        return flat.parsed
    for key, value in flat.items():
        if isinstance(value, (list, dict)):
            raise ConfigError(f"{key} = {value!r}: must be text, a number, true or false")
    # True, 1 and 1.0 are equal, but not the same setting: the type is part of what is cached.
    return _read_cached(tuple(sorted((key, value, type(value)) for key, value in flat.items())))


class SharedConfig(dict[str, Scalar]):
    """A flat run config that all clients of one process share; it must not be changed.

    It is parsed when it is first read. To find a dict in a cache takes 0.1 ms, which is longer than
    the training of a small client.
    """

    @cached_property
    def parsed(self) -> RunConfig:
        """The typed config."""
        return read_config(dict(self))

    def once(self, make: Callable[[RunConfig], T]) -> T:
        """Return what a function makes of the config; it is called once."""
        if make not in self._made:
            self._made[make] = make(self.parsed)
        made: T = self._made[make]
        return made

    def having(self, own: tuple[tuple[str, Scalar], ...]) -> "SharedConfig":
        """Return this config with other values for some keys, the same one every time."""
        if own not in self._made:
            self._made[own] = SharedConfig({**self, **dict(own)})
        made: SharedConfig = self._made[own]
        return made

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}


@lru_cache(maxsize=16)
def _read_cached(items: tuple[tuple[str, Scalar, type], ...]) -> RunConfig:
    flat: dict[str, Any] = without_fixed({key: value for key, value, _ in items})
    problems = _unknown_keys(flat)
    flat = {key: value for key, value in flat.items() if key in default_config()}
    for axis in ("strategy", *AXIS_DEFAULTS):
        if not isinstance(flat.get(axis, ""), str):
            problems.append(f"{axis} = {flat.pop(axis)!r}: must be a text")
    flat |= {axis: name_now(flat[axis]) for axis in ("strategy", *AXES) if axis in flat}
    strategy = flat.get("strategy") or "fedavg"
    if strategy not in presets():
        problems.append(_unknown("strategy", strategy, list(presets())))
        strategy = "fedavg"
    own = {axis: flat.get(axis, "") for axis in AXIS_DEFAULTS}
    axes = fill_axes(strategy, own, _describes_a_stream(flat))
    problems += [
        _unknown(axis, axes[axis], list(methods(axis)))
        for axis in AXES
        if axes[axis] not in methods(axis)
    ]
    try:
        config = RunConfig.model_validate(_nest({**flat, **axes, "strategy": strategy}))
    except ValidationError as error:
        raise _error([*problems, *_explain(error)]) from None
    problems = problems or impossible(config)
    if problems:
        raise _error(problems)
    return config


def _unknown(key: str, value: str, allowed: list[str]) -> str:
    names = ", ".join(allowed)
    return f"{key} = {value!r}: unknown; allowed are {names}{nearest(value, allowed)}"


def _unknown_keys(flat: Mapping[str, Scalar]) -> list[str]:
    known = list(default_config())
    return [
        f"{key} = {value!r}: unknown key{_hint(key, known)}"
        for key, value in flat.items()
        if key not in known
    ]


def _hint(key: str, known: list[str]) -> str:
    now = what_now(key)
    near = nearest(_ELSEWHERE.get(key, key), known)
    return f"; {now}" if now else near or "; forager keys lists all keys"


def _nest(flat: Mapping[str, Scalar]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[name] = value
    return tree


_BETTER = {  # wording, instead of pydantic's
    "input should be": "must be",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    "a valid integer": "a whole number",
}


def _explain(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        why = item["msg"].removeprefix("Value error, ").lower()
        for said, better in _BETTER.items():
            why = why.replace(said, better)
        lines.append(f"{key} = {item['input']!r}: {why}")
    return lines


def _error(problems: list[str]) -> ConfigError:
    return ConfigError("run config: " + "\n            ".join(problems))


@lru_cache(maxsize=1)
def default_config() -> dict[str, Scalar]:
    """Return every key with its default: axes are empty, the preset fills them."""
    return {**RunConfig().flat(), **dict.fromkeys(AXIS_DEFAULTS, "")}
