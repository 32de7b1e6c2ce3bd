"""Reading Flower's flat run config: all that is wrong is collected into one ConfigError."""

import difflib
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError

from ..methods.catalogue import AXES, methods, presets
from .combinations import impossible
from .moved import name_now, what_now, without_fixed
from .run_config import AXIS_DEFAULTS, ConfigError, RunConfig, Scalar

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


def fill_axes(preset: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return a value for every axis: the user's, else the preset's, else the default."""
    own = {axis: value for axis, value in given.items() if value}
    return {**AXIS_DEFAULTS, **presets()[preset], **own}


def read_config(flat: Mapping[str, Scalar]) -> RunConfig:
    """Return the typed config of Flower's flat run config, presets filled in."""
    if isinstance(flat, SharedConfig):
        return flat.parsed
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
    axes = fill_axes(strategy, {axis: flat.get(axis, "") for axis in AXIS_DEFAULTS})
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
