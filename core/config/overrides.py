"""What the user sets on the command line, in Flower's syntax: ``-c "seed=1 task='blobs'"``."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click import ClickException

from ..wire.flower_private import parse_config_args
from .run_config import ConfigError, Scalar

_PAIR = re.compile(r"\S+?=('[^']*'|\"[^\"]*\"|\S+)")  # what Flower takes for a key and its value
_FORM = "write \"key=1 other=0.5 third=true fourth='text'\" or the name of a .toml file"


def parse_overrides(texts: Sequence[str]) -> dict[str, Scalar]:
    """Return keys and values of ``-c`` options; unlike Flower, refuse what cannot be read."""
    texts = [text for text in texts if text.strip()]
    for text in texts:
        keys = [pair[0].partition("=")[0] for pair in _PAIR.finditer(text)]
        for key in keys if len(set(keys)) < len(keys) else ():
            if keys.count(key) > 1:
                raise ConfigError(
                    f"run config: {key!r} is set {keys.count(key)} times in one -c; keep one "
                    "of them (with several -c options, the last one wins)"
                )
        rest = "" if text.endswith(".toml") else _PAIR.sub("", text).strip()
        if rest:
            raise ConfigError(f'run config: "{rest}" cannot be read; {_FORM}')
    try:
        return _with_whole_path(dict(parse_config_args(list(texts))))
    except (ClickException, ValueError, OSError, RecursionError) as error:
        reason = "" if isinstance(error, ClickException) else f" ({error})"
        raise ConfigError(
            f'run config: "{" ".join(texts)}" cannot be read{reason}; {_quotes(texts)}{_FORM}'
        ) from error


def _with_whole_path(given: dict[str, Scalar]) -> dict[str, Scalar]:
    task = str(given.get("task", ""))
    place = Path(task.removeprefix("hf:")).expanduser()
    if task.startswith("hf:") and place.exists():
        return {**given, "task": f"hf:{place.resolve()}"}
    return given


def _quotes(texts: Sequence[str]) -> str:
    """Return a hint where a text lacks its quotes."""
    bare = re.search(r"(?:^|\s)([\w.-]+)=([A-Za-z][\w:/.-]*)(?=\s|$)", " ".join(texts))
    if bare is None or bare[2] in ("true", "false"):
        return ""
    return f"put text in quotes: {bare[1]}='{bare[2]}'; "


def toml_value(value: Any) -> str:
    r"""Write a value as TOML does."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    # Flower ends a quoted value at the next quote, escaped or not, so escapes go by number.
    plain = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(plain)}"'


_KEYS = ("task", "model", "optimiser.name", "callbacks")
_PREFIXES = frozenset({"hf", "frozen"})  # of names with a colon that are no modules


def own_modules(config: Mapping[str, object]) -> dict[str, str]:
    """Return the modules that a flat run config imports, each with the setting that names it."""
    found: dict[str, str] = {}
    for key in _KEYS:
        for name in str(config.get(key, "")).split(","):
            module, colon, _ = name.strip().partition(":")
            if colon and module and module not in _PREFIXES:
                found.setdefault(module, f"{key} = {name.strip()!r}")
    return found
