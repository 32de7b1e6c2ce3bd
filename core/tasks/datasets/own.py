"""The user's own pool of data: a function without arguments, or a problem's method ``data``."""

from collections.abc import Mapping
from dataclasses import fields

from ..errors import TaskError, imported, invalid, own_code
from ..problems import Problem
from ..spec import TaskSpec
from .raw import RawData


def load(spec: TaskSpec, problem: Problem | None = None) -> RawData:
    """Call the function; it returns `RawData` or a mapping with arrays of the same names."""
    if problem is not None:
        if type(problem).data is Problem.data:
            name = type(problem).__name__
            raise TaskError(
                f"task = {spec.task!r}: {name} has no data: give it a method data(), or "
                "client_data(client, clients) and server_data()"
            )
        with own_code(f"{type(problem).__name__}.data()"):
            result = problem.data()
    else:
        found = imported("task", spec.task)
        if not callable(found):
            allowed = "the name of a function that returns the data, or of a Problem"
            raise invalid("task", spec.task, allowed)
        with own_code(f"{spec.task}()"):
            result = found()
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
        wrong = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        wrong += [f"has unknown {', '.join(sorted(map(str, strange)))}"] if strange else []
        told = f"task = {spec.task!r} returned a dict that {' and '.join(wrong)}"
        raise TaskError(f"{told}: its keys are {', '.join(names)}")
    return RawData(**result)
