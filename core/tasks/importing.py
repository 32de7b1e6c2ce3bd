"""What users bring by name: ``module:attribute``."""

import importlib
from typing import Any

from .errors import TaskError, invalid, one_line


def imported(key: str, name: str, wanted: str = "module:attribute") -> Any:
    """Return what ``module:attribute`` names; an error that names the key if there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise invalid(key, name, wanted)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's module raises
        plain = isinstance(error, ImportError | AttributeError)
        told = one_line(error) if plain else f"{type(error).__name__}: {one_line(error)}"
        raise TaskError(f"{key} = {name!r} cannot be imported: {told}; use {wanted}") from error
