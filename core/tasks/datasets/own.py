"""The user's own data: ``module:attribute`` names a function without arguments."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ..errors import TaskError, invalid
from ..spec import TaskSpec
from .raw import RawData


def load(spec: TaskSpec) -> RawData:
    """Call the function; it returns `RawData` or a mapping with arrays of the same names."""
    result = _find(spec.task)()
    if isinstance(result, RawData):
        return result
    names = [field.name for field in fields(RawData)]
    if not isinstance(result, Mapping):
        raise TaskError(
            f"task = {spec.task!r} returned {type(result).__name__}: "
            f"it must return RawData or a dict with {', '.join(names)}"
        )
    missing = {"x_train", "y_train", "x_test", "y_test"} - set(result)
    strange = set(result) - set(names)
    if missing or strange:
        raise TaskError(
            f"task = {spec.task!r} returned a dict that lacks {sorted(missing)} and has unknown "
            f"{sorted(strange)}: its keys are {', '.join(names)}"
        )
    return RawData(**result)


def _find(name: str) -> Callable[[], Any]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise invalid("task", name, "module:attribute")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise TaskError(f"task = {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise invalid("task", name, "the name of a function that returns the data")
    return found  # type: ignore[no-any-return]
