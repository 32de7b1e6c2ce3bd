"""Which modules of the user's own a run config names."""

from collections.abc import Mapping

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
